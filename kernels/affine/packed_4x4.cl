// Affine layer in one launch: product, bias and activation. A work-item computes a 4x4 tile of the
// result as outer products of packed operands.
// Differs from affine/morton_4_2: for each k one load reads four rows of a and one four columns of
// b, for 16 multiply-adds. No sum crosses lanes. The result is packed as b is, so layers chain.
// Source: own; benches/mali says how it compiles for Mali.
// Layouts: a R_16_1_C, b C_1_16_R, r C_1_16_R; bias is plain.
// K_STEP: terms of the sum in a turn, 1 (few registers: Midgard) or 4 (few branches: Bifrost,
// Valhall). l is a multiple of it.
// ACTIVATION: as in common/activation. HALF_WEIGHTS, BYTE_WEIGHTS: the format of a. Sums are
// floats.
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
kernel void affine_packed_4x4(uint l, uint h, float2 params,
                              global const WEIGHT4 *restrict a,
                              global const float4 *restrict b,
                              global const float4 *restrict bias,
                              global float4 *restrict r)
{
    const uint i = get_global_id(0);
    const uint j = get_global_id(1);
    const uint at = (j >> 2) * (4 * h) + 16 * i + (j & 3);
    // The bias is read first, so its address takes no register in the loop.
    const float4 s = FIRST(bias, i);
    float4 c0 = (float4)(s.s0), c1 = (float4)(s.s1), c2 = (float4)(s.s2), c3 = (float4)(s.s3);
#if K_STEP == 1
    // One counter serves both operands and counts down to 0, so the loop fits 8 registers.
    const uint ia = (i >> 2) * (4 * l) + (i & 3) - 4;
    const uint ib = (j >> 2) * (4 * l) + (j & 3) - 4;
    for (uint k = 4 * l; k; k -= 4) {
        const float4 x = LOAD4(a, ia + k), y = b[ib + k];
        ADD_PRODUCT(x, y);
    }
#elif K_STEP == 4
    global const WEIGHT4 *pa = a + UNIT4 * ((i >> 2) * (4 * l) + (i & 3));
    global const float4 *pb = b + (j >> 2) * (4 * l) + (j & 3);
    global const float4 *const end = pb + 4 * l;
    do {
        ADD_PRODUCT(LOAD4(pa, 0), pb[0]);
        ADD_PRODUCT(LOAD4(pa, 4), pb[4]);
        ADD_PRODUCT(LOAD4(pa, 8), pb[8]);
        ADD_PRODUCT(LOAD4(pa, 12), pb[12]);
        pa += 16 * UNIT4;
        pb += 16;
    } while (pb != end);
#else
#error "affine_packed_4x4: K_STEP must be 1 or 4"
#endif
    SCALE_SUMS(bias, i);
#if ACTIVATION == 2 || ACTIVATION >= 4
    c0 = ACTIVATE(c0);
    c1 = ACTIVATE(c1);
    c2 = ACTIVATE(c2);
    c3 = ACTIVATE(c3);
#endif
    r[at] = c0;
    r[at + 4] = c1;
    r[at + 8] = c2;
    r[at + 12] = c3;
#if ACTIVATION == 1 || ACTIVATION == 3
    // In place, one row at a time. The registers of the sums are free now.
    for (uint row = at; row != at + 16; row += 4) {
        const float4 x = r[row];
        r[row] = ACTIVATION == 1 ? SIGMOID_EXP2(x) : TANH_EXP2(x);
    }
#endif
}
