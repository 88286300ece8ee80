// SGEMM r = alpha * a * b + beta * r, a 1x4 tile of the result per work-item.
// Differs from scalar_nn: one float4 of a and a 4x4 block of b (blocking 1x4x4) give four results
// per step. (Differs from blocked_rmrm: alpha and beta.) With beta = 0, r is not read and may hold
// NaN.
// Source: ARM, section 1.4.5 and listing 1.11. Dimension 0 is the column.
// Layouts: a R, b R, r R; l and w are multiples of 4.
//
//                 | b0 |
//                 | b1 |     sum += a.s0 * b0 + a.s1 * b1 + a.s2 * b2 + a.s3 * b3
//                 | b2 |
//   a: |0 1 2 3|  | b3 |     each b. one float4 of a row
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_blocked_nn(uint l, uint w,
                              float alpha, float beta,
                              global const float4 *restrict a,
                              global const float4 *restrict b,
                              global float4 *restrict r)
{
    const uint row = get_global_id(1);
    const uint col = get_global_id(0); // of float4
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
    const uint at = row * w4 + col;
    float4 result = alpha * sum;
    if (beta != 0.0f)
        result += beta * r[at];
    r[at] = result;
}
