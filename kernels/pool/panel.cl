// The largest value or the mean of windows for CPUs. A work-item computes 16 channels of a pixel
// for RECORDS columns. Differs from pool/any: neighbouring channels are one vector, and offsets are
// simple sums. Source: own. Layouts: b and r C_16_RECORDS_C. RECORDS: columns of a work-item. POOL:
// as in common/geometry. ACTIVATION: as in common/activation. Dimension 0 runs over vectors of
// channels, dimension 1 over tiles of columns, then the pixels of each.

// The most elements that are added up one by one. A longer sum rounds too often: that of 512 × 512
// equal elements would be off by 2.5e-3 of its size.
#define PART 64u
// Clang warns that passing these vectors depends on the CPU's vector size. Only this file calls
// these functions.
#pragma clang diagnostic ignored "-Wpsabi"

kernel void pool_panel(uint l, uint h, float2 params, uint16 geometry,
                       global const float *restrict b,
                       global float16 *restrict r)
{
    const uint vector = get_global_id(0);
    PIXEL_OF(tile);
    WINDOW_INSIDE;
    global const float *pb = b + (size_t)RECORDS * tile * l;
    const uint first = OUT_ROW + 16 * vector;
    global float16 *const to = r + (size_t)RECORDS * (tile * (h / 16) + first / 16);
    const int16 real = REAL_CHANNELS(16 * vector);
    for (uint n = 0; n < RECORDS; ++n) {
        float16 found = (float16)(0.0f);
        if (16 * vector < OUTPUTS) {
            found = (float16)(POOL == 0 ? -INFINITY : 0.0f);
            for (uint ky = from_y; ky < end_y; ++ky)
                for (uint first = from_x; first < end_x; first += PART) {
                    const uint end = min(end_x, first + PART);
                    float16 part = found;
#if POOL
                    part = (float16)(0.0f);
#endif
                    for (uint kx = first; kx < end; ++kx) {
                        const uint row = IN_ROW(ky, kx) + 16 * vector;
                        LOAD_CHANNELS(v, pb, row, n, OUTPUTS - 1 - 16 * vector);
#if POOL == 0
                        // A NaN in the window stays.
                        part = v > part || isnan(v) ? v : part;
#else
                        part += v;
#endif
                    }
#if POOL
                    part += found;
#endif
                    found = part;
                }
#if POOL
            found /= ELEMENTS;
#endif
            found = ACTIVATE(found);
        }
        to[n] = select((float16)(0.0f), found, real);
    }
}
