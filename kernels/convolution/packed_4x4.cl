// Convolution with bias and activation: four outputs of a pixel for four records per work-item, as
// outer products of packed operands. Differs from affine/packed_4x4: the common dimension runs over
// the elements of a window, line by line of the image. Source: own. Layouts: a R_16_1_C, its
// columns in the order ky, kx, c; b and r C_1_16_R; bias is plain. ACTIVATION: as in
// common/activation. ADD: c has the layout of r and is added before the activation. HALF_WEIGHTS,
// BYTE_WEIGHTS: a holds halves, bytes (common/bias); the sums are of floats. Dimension 0 runs over
// fours of outputs, dimension 1 over chunks, the pixels of each, then fours of columns.
// GROUP_0, GROUP_1: work-items of a work-group. Without them a compiler for Midgard uses only 8
// registers.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void convolution_packed_4x4(uint l, uint h, float2 params, uint16 geometry,
                                   global const WEIGHT4 *restrict a,
                                   global const float4 *restrict b,
                                   global const float4 *restrict bias,
#ifdef ADD
                                   global const float4 *restrict c,
#endif
                                   global float4 *restrict r)
{
    const uint i = get_global_id(0);
    if (4 * i >= OUT_PIXEL)
        return;
    PACKED_PIXEL_AND(chunk, unit);
    const uint at = chunk * (4 * h) + 4 * (OUT_ROW + 4 * i) + unit;
    WINDOW_INSIDE;
    RUNS_INSIDE;
    // The start of a run in a and b. One counter serves both and counts down to 0, so the pointers
    // are 4 before the start.
    const uint tap = (from_y * WINDOW_WIDTH + from_x) * GROUP_CHANNELS;
    global const WEIGHT4 *pa = a + UNIT4 * ((i >> 2) * (4 * taps) + (i & 3) + 4 * tap) - UNIT4 * 4;
    global const float4 *pb = b + (chunk * (4 * l) + unit + 4 * IN_ROW(from_y, from_x)) - 4;
    const float4 s = FIRST(bias, i);
    float4 c0 = (float4)(s.s0), c1 = (float4)(s.s1), c2 = (float4)(s.s2), c3 = (float4)(s.s3);
    for (uint lines = end_y - from_y; lines; --lines) {
        for (uint run = runs; run; --run) {
            for (uint k = 4 * length; k; k -= 4) {
                const float4 w = LOAD4(pa, k), v = pb[k];
                c0 += w.s0 * v;
                c1 += w.s1 * v;
                c2 += w.s2 * v;
                c3 += w.s3 * v;
            }
            pa += UNIT4 * 4 * GROUP_CHANNELS;
            pb += 4 * DILATION_X * IN_PIXEL;
        }
        pa += UNIT4 * 4 * ((WINDOW_WIDTH - runs) * GROUP_CHANNELS);
        pb += (int)(4 * (DILATION_Y * IN_LINE - runs * DILATION_X * IN_PIXEL));
    }
    SCALE_SUMS(bias, i);
#ifdef ADD
    c0 += c[at];
    c1 += c[at + 4];
    c2 += c[at + 8];
    c3 += c[at + 12];
#endif
    r[at] = ACTIVATE(c0);
    r[at + 4] = ACTIVATE(c1);
    r[at + 8] = ACTIVATE(c2);
    r[at + 12] = ACTIVATE(c3);
}
