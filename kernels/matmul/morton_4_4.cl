// Matrix product, a 2x2 tile of the result per work-item, over Morton 4-4 layouts.
// Differs from morton_4_2: chunks of 4x4, one cache line each; two work-items share a
// chunk, each uses half of it.
// Source: thesis, section 8.4 and source 12.4 (the width, which it does not use, is no
// argument).
// Layouts: a R_4_4_R, b C_4_4_C, r C_4_4_C.
//
//   a, in float4:  | row 0 | row 1 | row 2 | row 3 |  of k 0..3, then of k 4..7, ...
//   b, in float4:  | col 0 | col 1 | col 2 | col 3 |  of k 0..3, then of k 4..7, ...
//   r, one chunk in float2:   0 2 4 6     (rows 0, 1)
//                             1 3 5 7     (rows 2, 3)
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_morton_4_4(uint l, uint h,
                              global const float4 *restrict a,
                              global const float4 *restrict b,
                              global float2 *restrict r)
{
    const uint row = get_global_id(0); // of pairs
    const uint col = get_global_id(1); // of pairs
    // A chunk holds 4 float4 and covers 4 of l, so a row of chunks is l float4 long.
    global const float4 *pa = a + (row >> 1) * l + (row & 1) * 2;
    global const float4 *pb = b + (col >> 1) * l + (col & 1) * 2;
    float4 sum = (float4)(0.0f);
    for (uint k = 0; k < l; k += 4) {
        const float4 a0 = pa[k], a1 = pa[k + 1];
        const float4 b0 = pb[k], b1 = pb[k + 1];
        sum += (float4)(dot(a0, b0), dot(a1, b0), dot(a0, b1), dot(a1, b1));
    }
    const uint chunk = (col >> 1) * 2 * h + (row >> 1) * 8; // in float2
    const uint at = chunk + (col & 1) * 4 + (row & 1);
    r[at] = sum.s01;
    r[at + 2] = sum.s23;
}
