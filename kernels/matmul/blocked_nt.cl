// SGEMM r = alpha * a * b + beta * r, a 2x2 tile of the result per work-item, b stored transposed.
// Differs from blocked_nn: blocking 2x4x2. It has four loads per step instead of five, all along
// consecutive addresses. (Differs from blocked_rmcm: alpha and beta, r row major.) With beta = 0, r
// is not read and may hold NaN.
// Source: ARM, section 1.4.5 and listing 1.12.
// Layouts: a R, b C (the transpose of ARM's row-major B), r R; h and w are multiples of 2, l of 4.
//
//               b0 b1
//   a0 -->      00 01      dot of each pair, summed over l
//   a1 -->      10 11
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_blocked_nt(uint l, uint w,
                              float alpha, float beta,
                              global const float4 *restrict a,
                              global const float4 *restrict b,
                              global float2 *restrict r)
{
    const uint row = get_global_id(0); // of pairs
    const uint col = get_global_id(1); // of pairs
    const uint l4 = l >> 2;
    const uint w2 = w >> 1;
    global const float4 *pa = a + 2 * row * l4;
    global const float4 *pb = b + 2 * col * l4;
    float4 sum = (float4)(0.0f);
    for (uint k = 0; k < l4; ++k) {
        const float4 a0 = pa[k], a1 = pa[k + l4];
        const float4 b0 = pb[k], b1 = pb[k + l4];
        sum += (float4)(dot(a0, b0), dot(a0, b1), dot(a1, b0), dot(a1, b1));
    }
    const uint at = 2 * row * w2 + col;
    float4 result = alpha * sum;
    if (beta != 0.0f)
        result += beta * (float4)(r[at], r[at + w2]);
    r[at] = result.s01;
    r[at + w2] = result.s23;
}
