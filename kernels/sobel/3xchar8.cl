// Sobel filter 3x3, three rows of eight pixels per work-item.
// Differs from 2xchar8: five input rows give three rows of output. This takes too many registers
// for 128 threads on a Mali-T604. If tiles do not divide the interior, the last tile ends at the
// border. It and its neighbour write equal values to the pixels that they share.
// Source: ARM, section 1.3.7 and listing 1.8. Dimension 0 is the column.
// Layouts: image, dx and dy are w x h bytes, row after row. dx is right minus left and dy is top
// minus bottom, both divided by 8. The border of one pixel is not written.

// Computes one pixel of an interior smaller than a tile. p is its upper left neighbour.
void pixel(uint w, global const uchar *p, global char *dx, global char *dy)
{
    const short l0 = p[0], m0 = p[1], r0 = p[2];
    const short l1 = p[w], r1 = p[w + 2];
    const short l2 = p[2 * w], m2 = p[2 * w + 1], r2 = p[2 * w + 2];
    *dx = (char)((r0 - l0 + (r1 - l1) * 2 + r2 - l2) >> 3);
    *dy = (char)((l0 + m0 * 2 + r0 - l2 - m2 * 2 - r2) >> 3);
}

kernel void sobel_3xchar8(uint w, uint h,
                          global const uchar *restrict image,
                          global char *restrict dx,
                          global char *restrict dy)
{
    uint row = get_global_id(1) * 3;
    uint col = get_global_id(0) * 8;
    if (row + 2 >= h || col + 2 >= w)
        return;
    if (w < 10 || h < 5) {
        for (uint y = row; y < min(row + 3, h - 2); ++y)
            for (uint x = col; x < min(col + 8, w - 2); ++x)
                pixel(w, image + y * w + x, dx + (y + 1) * w + x + 1, dy + (y + 1) * w + x + 1);
        return;
    }
    row = min(row, h - 5); // the last tile ends at the border
    col = min(col, w - 10);
    const uint from = row * w + col;
    const short8 l0 = convert_short8(vload8(0, image + from));
    const short8 m0 = convert_short8(vload8(0, image + from + 1));
    const short8 r0 = convert_short8(vload8(0, image + from + 2));
    short8 x0 = r0 - l0;
    short8 y0 = l0 + m0 * (short8)(2) + r0;

    const short8 l1 = convert_short8(vload8(0, image + from + w));
    const short8 m1 = convert_short8(vload8(0, image + from + w + 1));
    const short8 r1 = convert_short8(vload8(0, image + from + w + 2));
    x0 += (r1 - l1) * (short8)(2);
    short8 x1 = r1 - l1;
    short8 y1 = l1 + m1 * (short8)(2) + r1;

    const short8 l2 = convert_short8(vload8(0, image + from + 2 * w));
    const short8 m2 = convert_short8(vload8(0, image + from + 2 * w + 1));
    const short8 r2 = convert_short8(vload8(0, image + from + 2 * w + 2));
    x0 += r2 - l2;
    y0 -= l2 + m2 * (short8)(2) + r2;
    x1 += (r2 - l2) * (short8)(2);
    short8 x2 = r2 - l2;
    short8 y2 = l2 + m2 * (short8)(2) + r2;

    const short8 l3 = convert_short8(vload8(0, image + from + 3 * w));
    const short8 m3 = convert_short8(vload8(0, image + from + 3 * w + 1));
    const short8 r3 = convert_short8(vload8(0, image + from + 3 * w + 2));
    x1 += r3 - l3;
    y1 -= l3 + m3 * (short8)(2) + r3;
    x2 += (r3 - l3) * (short8)(2);

    const short8 l4 = convert_short8(vload8(0, image + from + 4 * w));
    const short8 m4 = convert_short8(vload8(0, image + from + 4 * w + 1));
    const short8 r4 = convert_short8(vload8(0, image + from + 4 * w + 2));
    x2 += r4 - l4;
    y2 -= l4 + m4 * (short8)(2) + r4;

    vstore8(convert_char8(x0 >> 3), 0, dx + from + w + 1);
    vstore8(convert_char8(y0 >> 3), 0, dy + from + w + 1);
    vstore8(convert_char8(x1 >> 3), 0, dx + from + 2 * w + 1);
    vstore8(convert_char8(y1 >> 3), 0, dy + from + 2 * w + 1);
    vstore8(convert_char8(x2 >> 3), 0, dx + from + 3 * w + 1);
    vstore8(convert_char8(y2 >> 3), 0, dy + from + 3 * w + 1);
}
