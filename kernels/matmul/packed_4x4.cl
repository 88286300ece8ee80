// Matrix product, a 4x4 tile of the result per work-item, as outer products of packed operands.
// Differs from Morton 4-2: for each k one load reads four rows of a and one four columns of b, for
// 16 multiply-adds. Morton 4-2 has two loads for 8. No sum crosses lanes.
// Source: own; benches/mali says how it compiles for Mali.
// Layouts: a R_16_1_C, b C_1_16_R, r C_1_16_R. A cache line holds 16 rows (columns) of one k. A
// work-group uses it up in one turn, before accesses to other panels can evict it.
// K_STEP: terms of the sum in a turn, 1 (few registers: Midgard) or 4 (few branches: Bifrost,
// Valhall). l is a multiple of it.
//
//   a, in float4:  | rows 0..3, k 0 | rows 4..7, k 0 | 8..11 | 12..15 | rows 0..3, k 1 | ...
//   b, in float4:  | k 0, cols 0..3 | k 0, cols 4..7 | 8..11 | 12..15 | k 1, cols 0..3 | ...
#ifndef K_STEP
#define K_STEP 1
#endif
#ifndef GROUP_0
#define GROUP_0 4
#define GROUP_1 8
#endif

#define ADD_PRODUCT(x, y)                                                              \
    c0 += (x).s0 * (y);                                                                \
    c1 += (x).s1 * (y);                                                                \
    c2 += (x).s2 * (y);                                                                \
    c3 += (x).s3 * (y)

__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
kernel void matmul_packed_4x4(uint l, uint h,
                              global const float4 *restrict a,
                              global const float4 *restrict b,
                              global float4 *restrict r)
{
    const uint i = get_global_id(0);
    const uint j = get_global_id(1);
    const uint at = (j >> 2) * (4 * h) + 16 * i + (j & 3);
    float4 c0 = (float4)(0.0f), c1 = c0, c2 = c0, c3 = c0;
#if K_STEP == 1
    // One counter serves both operands and counts down to 0, so the loop fits 8 registers.
    const uint ia = (i >> 2) * (4 * l) + (i & 3) - 4;
    const uint ib = (j >> 2) * (4 * l) + (j & 3) - 4;
    for (uint k = 4 * l; k; k -= 4) {
        const float4 x = a[ia + k], y = b[ib + k];
        ADD_PRODUCT(x, y);
    }
#elif K_STEP == 4
    global const float4 *pa = a + (i >> 2) * (4 * l) + (i & 3);
    global const float4 *pb = b + (j >> 2) * (4 * l) + (j & 3);
    global const float4 *const end = pb + 4 * l;
    do {
        ADD_PRODUCT(pa[0], pb[0]);
        ADD_PRODUCT(pa[4], pb[4]);
        ADD_PRODUCT(pa[8], pb[8]);
        ADD_PRODUCT(pa[12], pb[12]);
        pa += 16;
        pb += 16;
    } while (pb != end);
#else
#error "matmul_packed_4x4: K_STEP must be 1 or 4"
#endif
    r[at] = c0;
    r[at + 4] = c1;
    r[at + 8] = c2;
    r[at + 12] = c3;
}
