// Matrix product, a 1x4 tile of the result per work-item, everything row major.
// Differs from naive: one float4 of a and a 4x4 block of b give four results per step. Rows of b
// are read as float4 although b is not transposed.
// Source: thesis, section 7.4.1 and source 12.2 (after ARM's blockedNN, without alpha and beta).
// Layouts: a R, b R, r R; l and w are multiples of 4.
//
//                 | b0 |
//                 | b1 |     r = a.s0 * b0 + a.s1 * b1 + a.s2 * b2 + a.s3 * b3
//                 | b2 |
//   a: |0 1 2 3|  | b3 |     each b. one float4 of a row
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_blocked_rmrm(uint l, uint w,
                                global const float4 *restrict a,
                                global const float4 *restrict b,
                                global float4 *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1); // of float4
    const uint l4 = l >> 2;
    const uint w4 = w >> 2;
    global const float4 *pa = a + row * l4;
    global const float4 *pb = b + col;
    float4 sum = (float4)(0.0f);
    for (uint k = 0; k < l4; ++k) {
        const float4 x = pa[k];
        const float4 b0 = pb[0], b1 = pb[w4], b2 = pb[2 * w4], b3 = pb[3 * w4];
        sum += x.s0 * b0 + x.s1 * b1 + x.s2 * b2 + x.s3 * b3;
        pb += 4 * w4;
    }
    r[row * w4 + col] = sum;
}
