// The largest value or the mean of windows, four records of a channel per work-item. Differs from
// pool/any: four neighbouring records are one vector, and offsets are simple sums. Source: own.
// Layouts: b and r C_1_16_R. POOL: as in common/geometry. ACTIVATION: as in common/activation.
// Dimension 0 runs over the channels with their padding rows, dimension 1 over chunks, the pixels
// of each, then fours of columns.
// The most elements that are added up one by one. A longer sum rounds too often: that of 512 × 512
// equal elements would be off by 2.5e-3 of its size.
#define PART 64u
kernel void pool_packed(uint l, uint h, float2 params, uint16 geometry,
                        global const float4 *restrict b,
                        global float4 *restrict r)
{
    const uint c = get_global_id(0);
    PACKED_PIXEL_AND(chunk, unit);
    const uint at = chunk * (4 * h) + 4 * (OUT_ROW + c) + unit;
    float4 found = (float4)(0.0f);
    if (c < OUTPUTS) {
        WINDOW_INSIDE;
        const uint wide = end_x - from_x;
        global const float4 *pb = b + (chunk * (4 * l) + unit + 4 * (c + IN_ROW(from_y, from_x)));
        found = (float4)(POOL == 0 ? -INFINITY : 0.0f);
        for (uint lines = end_y - from_y; lines; --lines) {
            for (uint left = wide; left;) {
                uint n = min(left, PART);
                left -= n;
                float4 part = found;
#if POOL
                part = (float4)(0.0f);
#endif
                for (; n; --n) {
                    const float4 next = *pb;
#if POOL == 0
                    // A NaN in the window stays.
                    part = next > part || isnan(next) ? next : part;
#else
                    part += next;
#endif
                    pb += 4 * DILATION_X * IN_PIXEL;
                }
#if POOL
                part += found;
#endif
                found = part;
            }
            pb += (int)(4 * (DILATION_Y * IN_LINE - wide * DILATION_X * IN_PIXEL));
        }
#if POOL
        found /= ELEMENTS;
#endif
        found = ACTIVATE(found);
    }
    r[at] = found;
}
