// A function of all channels of a pixel, one pixel per work-item, in any layouts: a softmax, its
// logarithm, or the values rounded to 8-bit integers between the smallest and the largest one.
// Baseline. Source: own. Layouts: b FROM, r TO, as in common/place. The pixels of r are contiguous.
// LOGARITHM: with 1 the result is the logarithm of the probabilities. FACTOR: if it is defined, the
// values are multiplied by it, and the results are whole numbers of 1/256 from 0 to 255, rounded as
// LiteRT rounds them. BYTE_STEPS: the values are rounded, and the results are the real numbers that
// the integers stand for, as src/ir/byte_steps.rs defines them. Dimension 1 runs over pixels, then
// the columns of each.
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
#ifdef BYTE_STEPS
// A multiply-add would round once where the rules round twice.
#pragma OPENCL FP_CONTRACT OFF
// x / y, rounded correctly. Devices may be off by 2 units of the last place.
float quotient(float x, float y)
{
    const float q = x / y;
    const float better = fma(fma(-q, y, x), 1.0f / y, q);
    return isfinite(better) ? better : q;
}
// Keeps NaN, which `min` and `max` may lose.
float limited(float x)
{
    return x < -128.0f ? -128.0f : x > 127.0f ? 127.0f : x;
}
#endif
kernel void softmax_any(uint l, uint w, uint h, uint16 geometry,
                        global const float *restrict b,
                        global float *restrict r)
{
    PIXEL_AND(col);
    const uint from = IN_FIRST + y * IN_LINE + x * IN_PIXEL;
    const uint to = OUT_ROW;
#ifdef BYTE_STEPS
    float least = 0.0f, most = 0.0f;
    for (uint c = 0; c < OUTPUTS; ++c) {
        const float x = b[PLACE_B(l, w, from + c, col)];
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    const float all = quotient(255.0f, most - least);
    // All values are 0, or so small that they become 0.
    const float scale = isinf(all) ? 1.0f : all;
    const float step = quotient(1.0f, scale), first = least * scale, last = most * scale;
    const bool by_least = (-128.0f + first) + (127.0f + last) > 0.0f;
    const float zero = rint(limited(by_least ? -128.0f - first : 127.0f - last));
#else
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
#endif
    for (uint c = 0; c < OUT_PIXEL; ++c) {
        float x = 0.0f;
        if (c < OUTPUTS) {
            x = b[PLACE_B(l, w, from + c, col)];
            // Gives NaN if x has overflowed.
            const float lost = 0.0f * x;
#ifdef BYTE_STEPS
            x = (limited(rint(x * scale) + zero) - zero) * step + lost;
#elif defined(FACTOR)
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
