// The largest value or the mean of windows, four records of a channel per work-item.
// Differs from pool/any: four neighbours are one vector, and places are sums.
// Source: own.
// Layouts: b and r C_1_16_R.
// POOL: 0 the largest value, 1 the mean of what is inside the image, 2 the mean with zeros in the border.
// ACTIVATION: as in common/activation.
// Dimension 0 runs over the channels and the rows of padding behind them, dimension 1 over fours of columns, pixel by
// pixel.
#ifndef POOL
#define POOL 0
#endif
kernel void pool_packed(uint l, uint h, float2 params, uint16 geometry,
                        global const float4 *restrict b,
                        global float4 *restrict r)
{
    const uint c = get_global_id(0);
    const uint quads = get_global_size(1) / (OUT_HEIGHT * OUT_WIDTH);
    const uint pixel = get_global_id(1) / quads, j = get_global_id(1) - pixel * quads;
    const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH;
    const uint top = y * STRIDE_Y, left = x * STRIDE_X;
    float4 found = (float4)(0.0f);
    if (c < OUTPUTS) {
        const uint from_y = FIRST_INSIDE(top, BORDER_TOP, DILATION_Y);
        const uint end_y = END_INSIDE(top, BORDER_TOP, DILATION_Y, WINDOW_HEIGHT, IN_HEIGHT);
        const uint from_x = FIRST_INSIDE(left, BORDER_LEFT, DILATION_X);
        const uint end_x = END_INSIDE(left, BORDER_LEFT, DILATION_X, WINDOW_WIDTH, IN_WIDTH);
        global const float4 *pb = b + (j >> 2) * (4 * l) + (j & 3) + 4 * (IN_FIRST + c);
        found = (float4)(POOL == 0 ? -INFINITY : 0.0f);
        for (uint ky = from_y; ky < end_y; ++ky)
            for (uint kx = from_x; kx < end_x; ++kx) {
                const float4 v = pb[4 * ((top + ky * DILATION_Y - BORDER_TOP) * IN_LINE +
                                         (left + kx * DILATION_X - BORDER_LEFT) * IN_PIXEL)];
#if POOL == 0
                // NaN stays.
                found = v > found || isnan(v) ? v : found;
#else
                found += v;
#endif
            }
#if POOL == 1
        found /= (float)((end_y - from_y) * (end_x - from_x));
#elif POOL == 2
        // What lies behind the border does not count.
        found /= (float)(END_INSIDE(top, 0, DILATION_Y, WINDOW_HEIGHT, BORDER_TOP + IN_HEIGHT + BORDER_BOTTOM) *
                         END_INSIDE(left, 0, DILATION_X, WINDOW_WIDTH, BORDER_LEFT + IN_WIDTH + BORDER_RIGHT));
#endif
        found = ACTIVATE(found);
    }
    r[(j >> 2) * (4 * h) + 4 * (OUT_FIRST + y * OUT_LINE + x * OUT_PIXEL + c) + (j & 3)] = found;
}
