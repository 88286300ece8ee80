// Softmax over the channels of a pixel, or its logarithm, one pixel per work-item, in any layouts.
// Baseline. Source: own. Layouts: b FROM, r TO, as in common/place. The pixels of r are contiguous.
// LOGARITHM: with 1 the result is the logarithm of the probabilities. FACTOR: if it is defined, the
// values are multiplied by it, and the results are whole numbers of 1/256 from 0 to 255, rounded as
// LiteRT rounds them. Dimension 1 runs over pixels, then the columns of each.
#ifndef LOGARITHM
#define LOGARITHM 0
#endif
#ifdef FACTOR
#define EXPONENTIAL(x) exp(FACTOR * (x))
// LiteRT adds up all classes one by one.
#define PART OUTPUTS
#else
#define EXPONENTIAL(x) exp(x)
// The most classes that are added up one by one. A longer sum rounds too often: that of 18 000
// classes would be off by 2e-4 of its size.
#define PART 64u
#endif
kernel void softmax_any(uint l, uint w, uint h, uint16 geometry,
                        global const float *restrict b,
                        global float *restrict r)
{
    PIXEL_AND(col);
    const uint from = IN_FIRST + y * IN_LINE + x * IN_PIXEL;
    const uint to = OUT_ROW;
    float most = -INFINITY, sum = 0.0f;
    for (uint c = 0; c < OUTPUTS; ++c)
        most = max(most, b[PLACE_B(l, w, from + c, col)]);
    for (uint first = 0; first < OUTPUTS; first += PART) {
        const uint end = min(OUTPUTS, first + PART);
        float part = 0.0f;
        for (uint c = first; c < end; ++c)
            part += EXPONENTIAL(b[PLACE_B(l, w, from + c, col)] - most);
        sum += part;
    }
    for (uint c = 0; c < OUT_PIXEL; ++c) {
        float x = 0.0f;
        if (c < OUTPUTS) {
            x = b[PLACE_B(l, w, from + c, col)];
            // Gives NaN if x has overflowed.
            const float lost = 0.0f * x;
#ifdef FACTOR
            x = floor(256.0f * (EXPONENTIAL(x - most) * (1.0f / sum)) + 0.5f);
            // `min` may make 255 of NaN.
            x = (x > 255.0f ? 255.0f : x) + lost;
#elif LOGARITHM
            x = x - most - log(sum) + lost;
#else
            x = exp(x - most) / sum + lost;
#endif
        }
        r[PLACE_R(h, w, to + c, col)] = x;
    }
}
