// Convolution of single channels with bias and activation for CPUs: 16 channels of a pixel for RECORDS columns per
// work-item.
// Differs from convolution/panel: an element of the window is a vector of channels, times as many weights.
// Source: own.
// Layouts: a C, a column for each element of the window in the order ky, kx; b and r C_16_RECORDS_C; bias is plain.
// RECORDS: columns of a work-item.
// ACTIVATION: as in common/activation.
// HALF_WEIGHTS: a holds halves; the sums are of floats.
// Dimension 0 runs over vectors of channels, dimension 1 over tiles of columns, pixel by pixel.
#ifndef RECORDS
#define RECORDS 10
#endif
#ifdef HALF_WEIGHTS
#define WEIGHT half
#define LOAD(p, i) vload_half16((i), (p))
#else
#define WEIGHT float
#define LOAD(p, i) vload16((i), (p))
#endif

kernel void convolution_depthwise_panel(uint l, uint h, float2 params, uint16 geometry,
                                        global const WEIGHT *restrict a,
                                        global const float *restrict b,
                                        global const float16 *restrict bias,
                                        global float16 *restrict r)
{
    const uint vector = get_global_id(0), vectors = (OUTPUTS + 15) / 16;
    PIXEL_AND(tile);
    WINDOW_INSIDE;
    global const float *pb = b + (size_t)RECORDS * tile * l;
    const uint first = OUT_ROW + 16 * vector;
    global float16 *const to = r + (size_t)RECORDS * (tile * (h / 16) + first / 16);
    // Rows of padding are finite whatever their neighbours are.
    const int16 real = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + (int)(16 * vector) < (int)OUTPUTS;
    for (uint n = 0; n < RECORDS; ++n) {
        float16 sum = (float16)(0.0f);
        if (vector < vectors) {
            sum = bias[vector];
            for (uint ky = from_y; ky < end_y; ++ky)
                for (uint kx = from_x; kx < end_x; ++kx) {
                    const uint row = IN_ROW(ky, kx) + 16 * vector;
                    const float16 w = LOAD(a, (ky * WINDOW_WIDTH + kx) * vectors + vector);
                    float16 v;
                    if ((row & 15) == 0) {
                        v = vload16(0, pb + (size_t)RECORDS * row + 16 * n);
                    } else {
                        // Channels that do not begin with a vector; behind the last one the last one again.
                        float all[16];
                        for (uint c = 0; c < 16; ++c) {
                            const uint at = row + min(c, OUTPUTS - 1 - 16 * vector);
                            all[c] = pb[(at >> 4) * (16 * RECORDS) + 16 * n + (at & 15)];
                        }
                        v = vload16(0, all);
                    }
                    sum = fma(w, v, sum);
                }
            sum = ACTIVATE(sum);
        }
        to[n] = select((float16)(0.0f), sum, real);
    }
}
