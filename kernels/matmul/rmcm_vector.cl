// Matrix product, one element of the result per work-item, four steps at a time.
// Differs from rmcm: loads float4 and sums with dot, a quarter of the loads.
// Source: thesis, section 7.3 and source 7.2.
// Layouts: a R, b C, r C; l is a multiple of 4.
//
//   a, row:  | k 0..3 | k 4..7 | ...
//                 x        x            dot of each pair, summed
//   b, col:  | k 0..3 | k 4..7 | ...
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_rmcm_vector(uint l, uint h,
                               global const float4 *restrict a,
                               global const float4 *restrict b,
                               global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    const uint quads = l >> 2; // float4 of a row of a (or a column of b)
    global const float4 *pa = a + row * quads;
    global const float4 *pb = b + col * quads;
    float sum = 0.0f;
    for (uint k = 0; k < quads; ++k)
        sum += dot(pa[k], pb[k]);
    r[col * h + row] = sum;
}
