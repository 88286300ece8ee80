// Convolution of single channels with bias and activation for CPUs. A work-item computes 16
// channels of a pixel for RECORDS columns. Differs from convolution/panel: an element of the window
// is a vector of channels, times as many weights. Source: own. Layouts: a C, a column for each
// element of the window in the order ky, kx; b and r C_16_RECORDS_C; bias is plain. RECORDS:
// columns of a work-item. ACTIVATION: as in common/activation. HALF_WEIGHTS, BYTE_WEIGHTS: the
// format of a. Sums are floats. Dimension 0 runs over vectors of channels, dimension 1 over tiles
// of columns, then the pixels of each.

// Clang warns that passing these vectors depends on the CPU's vector size. Only this file calls
// these functions.
#pragma clang diagnostic ignored "-Wpsabi"
kernel void convolution_depthwise_panel(uint l, uint h, float2 params, uint16 geometry,
                                        global const WEIGHT *restrict a,
                                        global const float *restrict b,
                                        global const float16 *restrict bias,
                                        global float16 *restrict r)
{
    const uint vector = get_global_id(0), vectors = (OUTPUTS + 15) / 16;
    PIXEL_OF(tile);
    WINDOW_INSIDE;
    global const float *pb = b + (size_t)RECORDS * tile * l;
    const uint first = OUT_ROW + 16 * vector;
    global float16 *const to = r + (size_t)RECORDS * (tile * (h / 16) + first / 16);
    float16 sum[RECORDS];
    if (vector < vectors) {
#pragma unroll
        for (uint n = 0; n < RECORDS; ++n)
            sum[n] = FIRST(bias, vector);
        for (uint ky = from_y; ky < end_y; ++ky)
            for (uint kx = from_x; kx < end_x; ++kx) {
                const uint row = IN_ROW(ky, kx) + 16 * vector;
                const float16 w = LOAD16(a, (ky * WINDOW_WIDTH + kx) * vectors + vector);
                if ((row & 15) == 0) {
                    global const float *v = pb + (size_t)RECORDS * row;
#pragma unroll
                    for (uint n = 0; n < RECORDS; ++n)
                        sum[n] = fma(w, vload16(n, v), sum[n]);
                } else {
#pragma unroll
                    for (uint n = 0; n < RECORDS; ++n) {
                        LOAD_CHANNELS(v, pb, row, n, OUTPUTS - 1 - 16 * vector);
                        sum[n] = fma(w, v, sum[n]);
                    }
                }
            }
    }
    // Padding rows get zeros, so they are finite even if other rows overflow.
    const int16 real = REAL_CHANNELS(16 * vector);
#pragma unroll
    for (uint n = 0; n < RECORDS; ++n)
        to[n] = vector < vectors
                    ? select((float16)(0.0f), ACTIVATE(LAST(sum[n], bias, vector)), real)
                    : (float16)(0.0f);
}
