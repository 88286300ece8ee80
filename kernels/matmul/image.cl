// Matrix product, an 8x4 tile of the result per work-item, b through the texture path.
// Differs from blocked_rmrm: b is an image, which has a cache of its own, and every float4 of it
// serves eight rows of a.
// Source: Adreno, figure 7 ("4x8" is 4 columns by 8 rows; dimension 0 is the column). Work-items
// outside the result return early, as there. h may be any number: rows of a tile behind the last
// row read that row again and are not written.
// Layouts: a R, b an RGBA float image of l rows whose pixels are four neighbouring columns of R, r
// R; l and w are multiples of 4. The global size covers ceil(h / 8) x w / 4.
//
//                   | b0 |
//                   | b1 |    pixels (col, k) to (col, k + 3)
//                   | b2 |
//   8 rows of a:    | b3 |
//   |0 1 2 3|       sum0
//   |0 1 2 3|       sum1      sum[i] += a.s0 * b0 + a.s1 * b1 + a.s2 * b2 + a.s3 * b3
//      ...           ...
#define ROWS 8 // its loops are unrolled, so that from and sum stay in registers

constant sampler_t pixel =
    CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;

#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_image(uint l, uint w, uint h,
                         global const float *restrict a,
                         read_only image2d_t b,
                         global float *restrict r)
{
    const uint row = get_global_id(1) * ROWS;
    const uint col = get_global_id(0) * 4;
    if (row >= h || col >= w)
        return;
    uint from[ROWS];
    float4 sum[ROWS];
#pragma unroll
    for (uint i = 0; i < ROWS; ++i) {
        from[i] = min(row + i, h - 1) * l;
        sum[i] = (float4)(0.0f);
    }
    const int x = col >> 2;
    for (uint k = 0; k < l; k += 4) {
        const float4 b0 = read_imagef(b, pixel, (int2)(x, k));
        const float4 b1 = read_imagef(b, pixel, (int2)(x, k + 1));
        const float4 b2 = read_imagef(b, pixel, (int2)(x, k + 2));
        const float4 b3 = read_imagef(b, pixel, (int2)(x, k + 3));
#pragma unroll
        for (uint i = 0; i < ROWS; ++i) {
            const float4 v = vload4(0, a + from[i] + k);
            sum[i] += v.s0 * b0 + v.s1 * b1 + v.s2 * b2 + v.s3 * b3;
        }
    }
#pragma unroll
    for (uint i = 0; i < ROWS; ++i)
        if (row + i < h)
            vstore4(sum[i], 0, r + (row + i) * w + col);
}
