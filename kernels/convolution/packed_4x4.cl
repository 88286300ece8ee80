// Convolution with bias and activation: four outputs of a pixel for four records per work-item, as outer products of
// packed operands.
// Differs from affine/packed_4x4: the common dimension runs over the elements of a window, line by line of the image.
// Source: own.
// Layouts: a R_16_1_C, its columns in the order ky, kx, c; b and r C_1_16_R; bias is plain.
// ACTIVATION: as in common/activation.
// HALF_WEIGHTS: a holds halves; the sums are of floats.
// Dimension 0 runs over fours of outputs, dimension 1 over fours of columns, pixel by pixel.
kernel void convolution_packed_4x4(uint l, uint h, float2 params, uint16 geometry,
                                   global const WEIGHT4 *restrict a,
                                   global const float4 *restrict b,
                                   global const float4 *restrict bias,
                                   global float4 *restrict r)
{
    const uint i = get_global_id(0);
    PIXEL_AND(j);
    WINDOW_INSIDE;
    RUNS_INSIDE;
    global const WEIGHT4 *pa = a + UNIT4 * ((i >> 2) * (4 * taps) + (i & 3));
    global const float4 *pb = b + (j >> 2) * (4 * l) + (j & 3);
    const float4 s = bias[i];
    float4 c0 = (float4)(s.s0), c1 = (float4)(s.s1), c2 = (float4)(s.s2), c3 = (float4)(s.s3);
    for (uint ky = from_y; ky < end_y; ++ky) {
        uint tap = (ky * WINDOW_WIDTH + from_x) * GROUP_CHANNELS;
        uint row = IN_ROW(ky, from_x);
        for (uint run = 0; run < runs; ++run) {
            for (uint k = 0; k < length; ++k) {
                const float4 w = LOAD4(pa, 4 * (tap + k)), v = pb[4 * (row + k)];
                c0 += w.s0 * v;
                c1 += w.s1 * v;
                c2 += w.s2 * v;
                c3 += w.s3 * v;
            }
            tap += GROUP_CHANNELS;
            row += step;
        }
    }
    const uint at = (j >> 2) * (4 * h) + 4 * (OUT_ROW + 4 * i) + (j & 3);
    r[at] = ACTIVATE(c0);
    r[at + 4] = ACTIVATE(c1);
    r[at + 8] = ACTIVATE(c2);
    r[at + 12] = ACTIVATE(c3);
}
