// Convolution with bias and activation for CPUs. A work-item computes a micro-tile of 32 outputs of
// a pixel by RECORDS columns, with the sums in vector registers. Differs from affine/panel: the
// common dimension runs over the elements of a window, line by line of the image. Source: own.
// Layouts: a R_32_1_C, with columns in the order ky, kx, c; b and r C_16_RECORDS_C; bias is plain.
// RECORDS: columns of a micro-tile. 2 * RECORDS sums and a few operands fill 32 registers.
// ACTIVATION: as in common/activation. ADD: c has the layout of r and is added before the
// activation. HALF_WEIGHTS, BYTE_WEIGHTS: the format of a. Sums are floats. Dimension 0 runs over
// panels, dimension 1 over tiles of columns, then the pixels of each.

// Clang warns that passing these vectors depends on the CPU's vector size. Only this file calls
// these functions.
#pragma clang diagnostic ignored "-Wpsabi"

// Sums over a window for the upper half of a panel. HIGH is the step for the lower half, if it has
// outputs.
#define SUM_WINDOW(HIGH) \
    for (uint ky = from_y; ky < end_y; ++ky) { \
        global const WEIGHT *w = \
            pa + 32 * (size_t)((ky * WINDOW_WIDTH + from_x) * GROUP_CHANNELS); \
        uint row = IN_ROW(ky, from_x); \
        for (uint run = 0; run < runs; ++run, row += step) \
            for (uint k = 0; k < length;) { \
                /* 16 rows of a column are neighbours. */ \
                const uint at = (row + k) & 15, end = min(length, k + 16 - at); \
                global const float *v = pb + ((row + k) >> 4) * (16 * RECORDS) + at; \
                for (; k < end; ++k, ++v, w += 32) { \
                    const float16 w0 = LOAD16(w, 0), w1 = LOAD16(w, 1); \
                    _Pragma("unroll") for (uint n = 0; n < RECORDS; ++n) \
                    { \
                        low[n] = fma(w0, (float16)(v[16 * n]), low[n]); \
                        HIGH; \
                    } \
                } \
            } \
    }

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
    PIXEL_OF(tile);
    WINDOW_INSIDE;
    RUNS_INSIDE;
    global const WEIGHT *pa = a + 32 * (size_t)panel * taps;
    global const float *pb = b + (size_t)RECORDS * tile * l;
    float16 low[RECORDS], high[RECORDS];
#pragma unroll
    for (uint n = 0; n < RECORDS; ++n) {
        low[n] = FIRST(bias, 2 * panel);
        high[n] = FIRST(bias, 2 * panel + 1);
    }
    if (32 * panel + 16 < OUTPUTS) {
        SUM_WINDOW(high[n] = fma(w1, (float16)(v[16 * n]), high[n]))
    } else {
        SUM_WINDOW()
    }
    const uint first = OUT_ROW + 32 * panel;
    const size_t at = (size_t)RECORDS * (tile * (h / 16) + first / 16);
    global float16 *const to = r + at;
    // The last panel may have only 16 rows.
    const bool both = 32 * panel + 16 < OUT_PIXEL;
#pragma unroll
    for (uint n = 0; n < RECORDS; ++n) {
        low[n] = LAST(low[n], bias, 2 * panel);
        if (both)
            high[n] = LAST(high[n], bias, 2 * panel + 1);
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
