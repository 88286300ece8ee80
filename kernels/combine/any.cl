// Combines two values element by element, one element of the result per work-item, in any layouts.
// Baseline. Source: own. Layouts: b and c FROM, r TO, as in common/place. The rows of b are those
// of r. c has its own geometry, with steps of 0 rows if one pixel serves all pixels.
// ALIKE: b, c and r have the same layout and rows. Padding is combined too.
// COMBINE: 0 sum, 1 difference, 2 product, 3 quotient, 4 larger, 5 smaller one, 6 sum of whole
// numbers times factors, rounded to the nearest, halves upwards. ACTIVATION: as in
// common/activation. Of NaN and infinities 4 and 5 make NaN.
// Dimension 0 runs over the channels with their padding rows, dimension 1 over pixels, then the
// columns of each. With ALIKE dimension 0 runs over the elements.
#ifndef COMBINE
#define COMBINE 0
#endif
kernel void combine_any(uint l, uint s, uint w, uint h, float2 params, float2 factors,
                        uint16 geometry,
                        global const float *restrict b,
                        global const float *restrict c,
                        global float *restrict r)
{
#ifdef ALIKE
    const uint to = get_global_id(0), from = to, second = to;
    const bool real = true;
#else
    const uint channel = get_global_id(0);
    PIXEL_AND(col);
    const uint row = OUT_ROW + channel;
    const uint to = PLACE_R(h, w, row, col), from = PLACE_B(l, w, row, col);
    const uint second = PLACE_B(s, w, IN_FIRST + y * IN_LINE + x * IN_PIXEL + channel, col);
    const bool real = channel < OUTPUTS;
#endif
    float found = 0.0f;
    if (real) {
        const float p = b[from], q = c[second];
#if COMBINE == 0
        found = p + q;
#elif COMBINE == 1
        found = p - q;
#elif COMBINE == 2
        found = p * q;
#elif COMBINE == 3
        found = p / q;
#elif COMBINE == 4
        found = max(p, q) + 0.0f * p + 0.0f * q;
#elif COMBINE == 5
        found = min(p, q) + 0.0f * p + 0.0f * q;
#else
        // A product has more digits than a float. So the factors are split into whole numbers of a
        // unit, nine digits behind the first of the larger factor, and the rest, of up to twelve
        // digits. All sums of either are exact. Parts of a unit decide no rounding, so they are cut
        // off. The masks give the power of two below the larger factor, and 1 divided by it. `rint`
        // is much faster than `floor` and `ldexp` on CPUs.
        const uint power = as_uint(max(fabs(factors.x), fabs(factors.y))) & 0x7f800000u;
        const float unit = as_float(power) / 512;
        const float2 scaled = factors * (512 * as_float(0x7f000000u - power));
        const float2 whole = rint(scaled), rest = scaled - whole;
        const float units = rint(p * rest.x + q * rest.y - (0.5f - 1.0f / 8192));
        found = rint((p * whole.x + q * whole.y + units) * unit + 0.5f * unit);
#endif
        found = ROUNDED(found);
        found = ACTIVATE(found);
    }
    r[to] = found;
}
