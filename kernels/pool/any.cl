// The largest value or the mean of windows, one element of the result per work-item, whatever the layouts.
// Differs: the baseline.
// Source: own.
// Layouts: b FROM, r TO, as in common/place.
// POOL: as in common/geometry.
// ACTIVATION: as in common/activation.
// Dimension 0 runs over the channels and the rows of padding behind them, dimension 1 over columns, pixel by pixel.
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
        for (uint ky = from_y; ky < end_y; ++ky)
            for (uint kx = from_x; kx < end_x; ++kx) {
                const uint row = IN_ROW(ky, kx) + c;
                const float v = b[PLACE_B(l, w, row, col)];
#if POOL == 0
                // NaN stays.
                found = v > found || isnan(v) ? v : found;
#else
                found += v;
#endif
            }
#if POOL
        found /= ELEMENTS;
#endif
        found = ACTIVATE(found);
    }
    r[PLACE_R(h, w, OUT_ROW + c, col)] = found;
}
