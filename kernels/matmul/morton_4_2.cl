// Matrix product, a 2x2 tile of the result per work-item, over Morton 4-2 layouts.
// Differs from blocked RMxCM: each work-item reads its two rows of a, and its two columns of b,
// from consecutive addresses. A cache line is therefore used up at once.
// Source: thesis, section 8.4 and source 12.5 (unsigned, index arithmetic hoisted).
// Layouts: a R_2_4_R, b C_4_2_C, r C_4_2_C.
//
//   a, in float4:  | row 0, k 0..3 | row 1, k 0..3 | row 0, k 4..7 | row 1, k 4..7 | ...
//   b, in float4:  | col 0, k 0..3 | col 1, k 0..3 | col 0, k 4..7 | col 1, k 4..7 | ...
#ifndef GROUP_0
#define GROUP_0 4
#define GROUP_1 16
#endif

__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
kernel void matmul_morton_4_2(uint l, uint h,
                              global const float4 *restrict a,
                              global const float4 *restrict b,
                              global float2 *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    const uint pairs = l >> 1; // float4 of two rows (or columns)
    global const float4 *pa = a + row * pairs;
    global const float4 *pb = b + col * pairs;
    float4 sum = (float4)(0.0f);
    for (uint k = 0; k < pairs; k += 2) {
        const float4 a0 = pa[k], a1 = pa[k + 1];
        const float4 b0 = pb[k], b1 = pb[k + 1];
        sum += (float4)(dot(a0, b0), dot(a1, b0), dot(a0, b1), dot(a1, b1));
    }
    const uint at = h * col + ((row >> 1) << 2) + (row & 1);
    r[at] = sum.s01;
    r[at + 2] = sum.s23;
}
