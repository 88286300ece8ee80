// Matrix product, a 2x2 tile of the result per work-item, b and r column major.
// Differs from rmcm_vector: two rows of a and two columns of b give four results, so
// every float4 that is loaded is used twice.
// Source: thesis, section 7.4.2 and source 12.3 (after ARM's blockedNT, without alpha and
// beta, r column major).
// Layouts: a R, b C, r C; h and w are multiples of 2, l of 4.
//
//               b0 b1
//   a0 -->      00 01      dot of each pair, summed over l
//   a1 -->      10 11
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_blocked_rmcm(uint l, uint h,
                                global const float4 *restrict a,
                                global const float4 *restrict b,
                                global float2 *restrict r)
{
    const uint row = get_global_id(0); // of pairs
    const uint col = get_global_id(1); // of pairs
    const uint l4 = l >> 2;
    const uint h2 = h >> 1;
    global const float4 *pa = a + 2 * row * l4;
    global const float4 *pb = b + 2 * col * l4;
    float4 sum = (float4)(0.0f);
    for (uint k = 0; k < l4; ++k) {
        const float4 a0 = pa[k], a1 = pa[k + l4];
        const float4 b0 = pb[k], b1 = pb[k + l4];
        sum += (float4)(dot(a0, b0), dot(a1, b0), dot(a0, b1), dot(a1, b1));
    }
    const uint at = 2 * col * h2 + row;
    r[at] = sum.s01;
    r[at + h2] = sum.s23;
}
