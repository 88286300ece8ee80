// The largest value or the mean of windows, one element of the result per work-item, in any
// layouts. Baseline. Source: own. Layouts: b FROM, r TO, as in common/place. POOL: as in
// common/geometry. ACTIVATION: as in common/activation. Dimension 0 runs over the channels with
// their padding rows, dimension 1 over pixels, then the columns of each.
// The most elements that are added up one by one. A longer sum rounds too often: that of 512 × 512
// equal elements would be off by 2.5e-3 of its size.
#define PART 64u
kernel void pool_any(uint l, uint w, uint h, float2 params, uint16 geometry,
                     global const float *restrict b,
                     global float *restrict r)
{
    const uint c = get_global_id(0);
    PIXEL_AND(col);
    float found = 0.0f;
    if (c < OUTPUTS) {
        WINDOW_INSIDE;
        found = POOL == 0 ? -INFINITY : 0.0f;
        // Unrolled for many loads at a time, because a global pool is one long loop of few
        // work-items.
        const uint wide = max(end_x, from_x) - from_x, all = (max(end_y, from_y) - from_y) * wide;
        for (uint first = 0; first < all; first += PART) {
            const uint end = min(all, first + PART);
            float part = found;
#if POOL
            part = 0.0f;
#endif
#pragma unroll 8
            for (uint e = first; e < end; ++e) {
                const uint line = e / wide;
                const uint row = IN_ROW(from_y + line, from_x + e - line * wide) + c;
                const float v = b[PLACE_B(l, w, row, col)];
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
    r[PLACE_R(h, w, OUT_ROW + c, col)] = found;
}
