// Convolution with bias and activation for CPUs: a micro-tile of 32 outputs of a pixel by RECORDS columns per work-item,
// whose sums stay in vector registers.
// Differs from affine/panel: the common dimension runs over the elements of a window, line by line of the image.
// Source: own.
// Layouts: a R_32_1_C, its columns in the order ky, kx, c; b and r C_16_RECORDS_C; bias is plain.
// RECORDS: columns of a micro-tile; 2 * RECORDS sums and a few operands fill 32 registers.
// ACTIVATION: as in common/activation.
// ADD: c, which stands as r does, is added before the activation.
// HALF_WEIGHTS: a holds halves; the sums are of floats.
// Dimension 0 runs over panels, dimension 1 over tiles of columns, pixel by pixel.
kernel void convolution_panel(uint l, uint h, float2 params, uint16 geometry,
                              global const WEIGHT *restrict a,
                              global const float *restrict b,
                              global const float16 *restrict bias,
#ifdef ADD
                              global const float16 *restrict c,
#endif
                              global float16 *restrict r)
{
    const uint panel = get_global_id(0);
    PIXEL_AND(tile);
    WINDOW_INSIDE;
    RUNS_INSIDE;
    global const WEIGHT *pa = a + 32 * (size_t)panel * taps;
    global const float *pb = b + (size_t)RECORDS * tile * l;
    float16 low[RECORDS], high[RECORDS];
#pragma unroll
    for (uint n = 0; n < RECORDS; ++n) {
        low[n] = bias[2 * panel];
        high[n] = bias[2 * panel + 1];
    }
    for (uint ky = from_y; ky < end_y; ++ky) {
        uint tap = (ky * WINDOW_WIDTH + from_x) * GROUP_CHANNELS;
        uint row = IN_ROW(ky, from_x);
        for (uint run = 0; run < runs; ++run) {
            for (uint k = 0; k < length; ++k) {
                const float16 w0 = LOAD16(pa, 2 * (tap + k)), w1 = LOAD16(pa, 2 * (tap + k) + 1);
                // 16 rows of a column are neighbours.
                global const float *v = pb + ((row + k) >> 4) * (16 * RECORDS) + ((row + k) & 15);
#pragma unroll
                for (uint n = 0; n < RECORDS; ++n) {
                    low[n] = fma(w0, (float16)(v[16 * n]), low[n]);
                    high[n] = fma(w1, (float16)(v[16 * n]), high[n]);
                }
            }
            tap += GROUP_CHANNELS;
            row += step;
        }
    }
    const uint first = OUT_ROW + 32 * panel;
    const size_t at = (size_t)RECORDS * (tile * (h / 16) + first / 16);
    global float16 *const to = r + at;
    // The last panel may have 16 rows only.
    const bool both = 32 * panel + 16 < OUT_PIXEL;
#pragma unroll
    for (uint n = 0; n < RECORDS; ++n) {
#ifdef ADD
        low[n] += c[at + n];
        if (both)
            high[n] += c[at + n + RECORDS];
#endif
        to[n] = ACTIVATE(low[n]);
        if (both)
            to[n + RECORDS] = ACTIVATE(high[n]);
    }
}
