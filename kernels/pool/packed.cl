// The largest value or the mean of windows, four records of a channel per work-item.
// Differs from pool/any: four neighbours are one vector, and places are sums.
// Source: own.
// Layouts: b and r C_1_16_R.
// POOL: as in common/geometry.
// ACTIVATION: as in common/activation.
// Dimension 0 runs over the channels and the rows of padding behind them, dimension 1 over fours of columns, pixel by
// pixel.
kernel void pool_packed(uint l, uint h, float2 params, uint16 geometry,
                        global const float4 *restrict b,
                        global float4 *restrict r)
{
    const uint c = get_global_id(0);
    PIXEL_AND(j);
    float4 found = (float4)(0.0f);
    if (c < OUTPUTS) {
        WINDOW_INSIDE;
        global const float4 *pb = b + (j >> 2) * (4 * l) + (j & 3) + 4 * c;
        found = (float4)(POOL == 0 ? -INFINITY : 0.0f);
        for (uint ky = from_y; ky < end_y; ++ky)
            for (uint kx = from_x; kx < end_x; ++kx) {
                const float4 v = pb[4 * IN_ROW(ky, kx)];
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
    r[(j >> 2) * (4 * h) + 4 * (OUT_ROW + c) + (j & 3)] = found;
}
