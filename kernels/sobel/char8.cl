// Sobel filter 3x3, eight pixels of a row per work-item.
// Differs from char: vectors of eight, which fill a 128-bit register as shorts. If tiles do not
// divide the interior, the last tile ends at the border. It and its neighbour write equal values to
// the pixels that they share.
// Source: ARM, section 1.3.5 and listing 1.2. Dimension 0 is the column.
// Layouts: image, dx and dy are w x h bytes, row after row. dx is right minus left and dy is top
// minus bottom, both divided by 8. The border of one pixel is not written.
//
//   one input row:  |l l l l l l l l|r r     three loads: l from column 0, m from 1,
//                    . m m m m m m m m .     r from 2 (the middle row needs no m)

// Computes one pixel of an interior smaller than a tile. p is its upper left neighbour.
void pixel(uint w, global const uchar *p, global char *dx, global char *dy)
{
    const short l0 = p[0], m0 = p[1], r0 = p[2];
    const short l1 = p[w], r1 = p[w + 2];
    const short l2 = p[2 * w], m2 = p[2 * w + 1], r2 = p[2 * w + 2];
    *dx = (char)((r0 - l0 + (r1 - l1) * 2 + r2 - l2) >> 3);
    *dy = (char)((l0 + m0 * 2 + r0 - l2 - m2 * 2 - r2) >> 3);
}

kernel void sobel_char8(uint w, uint h,
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
    const short8 l0 = convert_short8(vload8(0, image + from));
    const short8 m0 = convert_short8(vload8(0, image + from + 1));
    const short8 r0 = convert_short8(vload8(0, image + from + 2));
    short8 x0 = r0 - l0;
    short8 y0 = l0 + m0 * (short8)(2) + r0;

    const short8 l1 = convert_short8(vload8(0, image + from + w));
    const short8 r1 = convert_short8(vload8(0, image + from + w + 2));
    x0 += (r1 - l1) * (short8)(2);

    const short8 l2 = convert_short8(vload8(0, image + from + 2 * w));
    const short8 m2 = convert_short8(vload8(0, image + from + 2 * w + 1));
    const short8 r2 = convert_short8(vload8(0, image + from + 2 * w + 2));
    x0 += r2 - l2;
    y0 -= l2 + m2 * (short8)(2) + r2;

    vstore8(convert_char8(x0 >> 3), 0, dx + from + w + 1);
    vstore8(convert_char8(y0 >> 3), 0, dy + from + w + 1);
}
