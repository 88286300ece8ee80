// Sobel filter 3x3, one pixel per work-item. Baseline. Source: ARM, section 1.3.4 and listing 1.1.
// Dimension 0 is the column. Layouts: image, dx and dy are w x h bytes, row after row. dx is right
// minus left and dy is top minus bottom, both divided by 8. The border of one pixel is not written.
//
//   image:  l0 m0 r0
//           l1    r1     dx = r0 - l0 + 2 (r1 - l1) + r2 - l2
//           l2 m2 r2     dy = l0 + 2 m0 + r0 - (l2 + 2 m2 + r2)
kernel void sobel_char(uint w, uint h,
                       global const uchar *restrict image,
                       global char *restrict dx,
                       global char *restrict dy)
{
    const uint row = get_global_id(1);
    const uint col = get_global_id(0);
    if (row + 2 >= h || col + 2 >= w)
        return;
    const uint from = row * w + col; // the upper left neighbour
    global const uchar *p = image + from;
    const short l0 = p[0], m0 = p[1], r0 = p[2];
    const short l1 = p[w], r1 = p[w + 2];
    const short l2 = p[2 * w], m2 = p[2 * w + 1], r2 = p[2 * w + 2];
    const short x = r0 - l0 + (r1 - l1) * 2 + r2 - l2;
    const short y = l0 + m0 * 2 + r0 - l2 - m2 * 2 - r2;
    dx[from + w + 1] = (char)(x >> 3);
    dy[from + w + 1] = (char)(y >> 3);
}
