// Sobel filter 3x3, sixteen pixels of a row per work-item, two loads per row.
// Differs from char16: m is put together from l and r instead of loaded. If tiles do not divide the
// interior, the last tile ends at the border. It and its neighbour write equal values to the pixels
// that they share.
// Source: ARM, section 1.3.6 and listing 1.5. Dimension 0 is the column.
// Layouts: image, dx and dy are w x h bytes, row after row. dx is right minus left and dy is top
// minus bottom, both divided by 8. The border of one pixel is not written.
//
//   l:  0 1 2 3 4 5 6 7 8 ... f
//   m:    1 ......... 8|9 ........ 16        l.s1 to l.s8, then r.s7 to r.se
//   r:      2 3 4 5 6 7 8 ........ 16 17

// Computes one pixel of an interior smaller than a tile. p is its upper left neighbour.
void pixel(uint w, global const uchar *p, global char *dx, global char *dy)
{
    const short l0 = p[0], m0 = p[1], r0 = p[2];
    const short l1 = p[w], r1 = p[w + 2];
    const short l2 = p[2 * w], m2 = p[2 * w + 1], r2 = p[2 * w + 2];
    *dx = (char)((r0 - l0 + (r1 - l1) * 2 + r2 - l2) >> 3);
    *dy = (char)((l0 + m0 * 2 + r0 - l2 - m2 * 2 - r2) >> 3);
}

kernel void sobel_char16_swizzle(uint w, uint h,
                                 global const uchar *restrict image,
                                 global char *restrict dx,
                                 global char *restrict dy)
{
    const uint row = get_global_id(1);
    uint col = get_global_id(0) * 16;
    if (row + 2 >= h || col + 2 >= w)
        return;
    if (w < 18) {
        for (uint at = row * w + col, last = row * w + w - 2; at < last; ++at)
            pixel(w, image + at, dx + at + w + 1, dy + at + w + 1);
        return;
    }
    col = min(col, w - 18); // the last vector ends at the border
    const uint from = row * w + col;
    const uchar16 a0 = vload16(0, image + from);
    const uchar16 b0 = vload16(0, image + from + 2);
    const short16 l0 = convert_short16(a0);
    const short16 m0 = convert_short16((uchar16)(
        a0.s1, a0.s2, a0.s3, a0.s4, a0.s5, a0.s6, a0.s7, a0.s8,
        b0.s7, b0.s8, b0.s9, b0.sa, b0.sb, b0.sc, b0.sd, b0.se));
    const short16 r0 = convert_short16(b0);
    short16 x0 = r0 - l0;
    short16 y0 = l0 + m0 * (short16)(2) + r0;

    const uchar16 a1 = vload16(0, image + from + w);
    const uchar16 b1 = vload16(0, image + from + w + 2);
    const short16 l1 = convert_short16(a1);
    const short16 r1 = convert_short16(b1);
    x0 += (r1 - l1) * (short16)(2);

    const uchar16 a2 = vload16(0, image + from + 2 * w);
    const uchar16 b2 = vload16(0, image + from + 2 * w + 2);
    const short16 l2 = convert_short16(a2);
    const short16 m2 = convert_short16((uchar16)(
        a2.s1, a2.s2, a2.s3, a2.s4, a2.s5, a2.s6, a2.s7, a2.s8,
        b2.s7, b2.s8, b2.s9, b2.sa, b2.sb, b2.sc, b2.sd, b2.se));
    const short16 r2 = convert_short16(b2);
    x0 += r2 - l2;
    y0 -= l2 + m2 * (short16)(2) + r2;

    vstore16(convert_char16(x0 >> 3), 0, dx + from + w + 1);
    vstore16(convert_char16(y0 >> 3), 0, dy + from + w + 1);
}
