// The largest value or the mean of windows for CPUs: 16 channels of a pixel for RECORDS columns per work-item.
// Differs from pool/any: neighbouring channels are one vector, and places are sums.
// Source: own.
// Layouts: b and r C_16_RECORDS_C.
// RECORDS: columns of a work-item.
// POOL: 0 the largest value, 1 the mean of what is inside the image, 2 the mean with zeros in the border.
// ACTIVATION: as in common/activation.
// Dimension 0 runs over vectors of channels, dimension 1 over tiles of columns, pixel by pixel.
#ifndef RECORDS
#define RECORDS 10
#endif
#ifndef POOL
#define POOL 0
#endif
kernel void pool_panel(uint l, uint h, float2 params, uint16 geometry,
                       global const float *restrict b,
                       global float16 *restrict r)
{
    const uint vector = get_global_id(0);
    PIXEL_AND(tile);
    WINDOW_INSIDE;
    global const float *pb = b + (size_t)RECORDS * tile * l;
    const uint first = OUT_ROW + 16 * vector;
    global float16 *const to = r + (size_t)RECORDS * (tile * (h / 16) + first / 16);
    const int16 real = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + (int)(16 * vector) < (int)OUTPUTS;
    for (uint n = 0; n < RECORDS; ++n) {
        float16 found = (float16)(0.0f);
        if (16 * vector < OUTPUTS) {
            found = (float16)(POOL == 0 ? -INFINITY : 0.0f);
            for (uint ky = from_y; ky < end_y; ++ky)
                for (uint kx = from_x; kx < end_x; ++kx) {
                    const uint row = IN_ROW(ky, kx) + 16 * vector;
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
#if POOL == 0
                    // NaN stays.
                    found = v > found || isnan(v) ? v : found;
#else
                    found += v;
#endif
                }
#if POOL
            found /= ELEMENTS(POOL);
#endif
            found = ACTIVATE(found);
        }
        to[n] = select((float16)(0.0f), found, real);
    }
}
