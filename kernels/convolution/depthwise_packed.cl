// Convolution of single channels with bias and activation: four channels of a pixel for four
// records per work-item. Differs from convolution/packed_4x4: an element of the window is four rows
// of b, each with a weight of its own. Source: own. Layouts: a C, a column for each element of the
// window in the order ky, kx; b and r C_1_16_R; bias is plain. ACTIVATION: as in common/activation.
// HALF_WEIGHTS, BYTE_WEIGHTS: the format of a. Sums are floats.
// Dimension 0 runs over fours of channels, dimension 1 over chunks, the pixels of each, then fours
// of columns. GROUP_0, GROUP_1: work-items of a work-group. Without them a compiler for Midgard
// uses only 8 registers.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void convolution_depthwise_packed(uint l, uint h, float2 params, uint16 geometry,
                                         global const WEIGHT4 *restrict a,
                                         global const float4 *restrict b,
                                         global const float4 *restrict bias,
                                         global float4 *restrict r)
{
    const uint i = get_global_id(0), fours = (OUTPUTS + 3) / 4;
    if (4 * i >= OUT_PIXEL)
        return;
    PACKED_PIXEL_AND(chunk, unit);
    const uint at = chunk * (4 * h) + 4 * (OUT_ROW + 4 * i) + unit;
    float4 c0 = (float4)(0.0f), c1 = c0, c2 = c0, c3 = c0;
    if (i < fours) {
        WINDOW_INSIDE;
        const uint wide = end_x - from_x;
        // Behind the last channel the last one is read again, and its sums are not used.
        const uint last = OUTPUTS - 1 - 4 * i;
        const uint r1 = 4 * min(1u, last), r2 = 4 * min(2u, last), r3 = 4 * min(3u, last);
        global const WEIGHT4 *pa = a + UNIT4 * ((from_y * WINDOW_WIDTH + from_x) * fours + i);
        global const float4 *pb =
            b + (chunk * (4 * l) + unit + 16 * i + 4 * IN_ROW(from_y, from_x));
        const float4 s = FIRST(bias, i);
        c0 += s.s0;
        c1 += s.s1;
        c2 += s.s2;
        c3 += s.s3;
        for (uint lines = end_y - from_y; lines; --lines) {
            for (uint n = wide; n; --n) {
                const float4 w = LOAD4(pa, 0);
                c0 += w.s0 * pb[0];
                c1 += w.s1 * pb[r1];
                c2 += w.s2 * pb[r2];
                c3 += w.s3 * pb[r3];
                pa += UNIT4 * fours;
                pb += 4 * DILATION_X * IN_PIXEL;
            }
            pa += UNIT4 * (WINDOW_WIDTH - wide) * fours;
            pb += (int)(4 * (DILATION_Y * IN_LINE - wide * DILATION_X * IN_PIXEL));
        }
        SCALE_SUMS(bias, i);
        c0 = ACTIVATE(c0);
        c1 = ACTIVATE(c1);
        c2 = ACTIVATE(c2);
        c3 = ACTIVATE(c3);
    }
    // Padding rows get zeros, so they are finite even if other rows overflow.
    r[at] = c0;
    r[at + 4] = 4 * i + 1 < OUTPUTS ? c1 : (float4)(0.0f);
    r[at + 8] = 4 * i + 2 < OUTPUTS ? c2 : (float4)(0.0f);
    r[at + 12] = 4 * i + 3 < OUTPUTS ? c3 : (float4)(0.0f);
}
