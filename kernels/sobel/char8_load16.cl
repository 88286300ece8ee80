// Sobel filter 3x3, eight pixels of a row per work-item, one load per row.
// Differs from char8: one load of sixteen reads the ten pixels of a row. l, m and r are parts of
// it. If tiles do not divide the interior, the last tile ends at the border. It and its neighbour
// write equal values to the pixels that they share.
// Source: ARM, section 1.3.6 and listing 1.4. Dimension 0 is the column.
// Layouts: image, dx and dy are w x h bytes, row after row. dx is right minus left and dy is top
// minus bottom, both divided by 8. The border of one pixel is not written.
//
//   one load:  0 1 2 3 4 5 6 7 8 9 a b c d e f
//           l: <------------->
//           m:   <------------->
//           r:     <------------->

// Computes one pixel of an interior smaller than a tile. p is its upper left neighbour.
void pixel(uint w, global const uchar *p, global char *dx, global char *dy)
{
    const short l0 = p[0], m0 = p[1], r0 = p[2];
    const short l1 = p[w], r1 = p[w + 2];
    const short l2 = p[2 * w], m2 = p[2 * w + 1], r2 = p[2 * w + 2];
    *dx = (char)((r0 - l0 + (r1 - l1) * 2 + r2 - l2) >> 3);
    *dy = (char)((l0 + m0 * 2 + r0 - l2 - m2 * 2 - r2) >> 3);
}

kernel void sobel_char8_load16(uint w, uint h,
                               global const uchar *restrict image,
                               global char *restrict dx,
                               global char *restrict dy)
{
    const uint row = get_global_id(1);
    uint col = get_global_id(0) * 8;
    if (row + 2 >= h || col + 2 >= w)
        return;
    if (w < 10) {
        for (uint at = row * w + col, last = row * w + w - 2; at < last; ++at)
            pixel(w, image + at, dx + at + w + 1, dy + at + w + 1);
        return;
    }
    col = min(col, w - 10); // the last vector ends at the border
    const uint from = row * w + col;
    // A load of 16 may run into the next row, but not past the last one.
    const bool inside = row + 3 < h || col + 16 <= w;
    const uchar16 v0 = vload16(0, image + from);
    const short8 l0 = convert_short8(v0.s01234567);
    const short8 m0 = convert_short8(v0.s12345678);
    const short8 r0 = convert_short8(v0.s23456789);
    short8 x0 = r0 - l0;
    short8 y0 = l0 + m0 * (short8)(2) + r0;

    const uchar16 v1 = vload16(0, image + from + w);
    const short8 l1 = convert_short8(v1.s01234567);
    const short8 r1 = convert_short8(v1.s23456789);
    x0 += (r1 - l1) * (short8)(2);

    global const uchar *last = image + from + 2 * w;
    short8 l2, m2, r2;
    if (inside) {
        const uchar16 v2 = vload16(0, last);
        l2 = convert_short8(v2.s01234567);
        m2 = convert_short8(v2.s12345678);
        r2 = convert_short8(v2.s23456789);
    } else {
        l2 = convert_short8(vload8(0, last));
        m2 = convert_short8(vload8(0, last + 1));
        r2 = convert_short8(vload8(0, last + 2));
    }
    x0 += r2 - l2;
    y0 -= l2 + m2 * (short8)(2) + r2;

    vstore8(convert_char8(x0 >> 3), 0, dx + from + w + 1);
    vstore8(convert_char8(y0 >> 3), 0, dy + from + w + 1);
}
