// Convolution with bias and activation, one element of the result per work-item, in any layouts.
// Baseline. Groups may have any size, down to one channel. Source: own. Layouts: a R, a row for
// each output, with columns in the order ky, kx, c; b FROM, r TO, as in common/place. ACTIVATION:
// as in common/activation. ADD: c has the layout of r and is added before the activation.
// HALF_WEIGHTS, BYTE_WEIGHTS: the format of a. Sums are floats. STEP: distance between rows of b,
// if it is constant. Dimension 0 runs over the outputs with their padding rows, dimension 1 over
// pixels, then the columns of each.
kernel void convolution_any(uint l, uint w, uint h, float2 params, uint16 geometry,
                            global const WEIGHT *restrict a,
                            global const float *restrict b,
                            global const float *restrict bias,
#ifdef ADD
                            global const float *restrict c,
#endif
                            global float *restrict r)
{
    const uint o = get_global_id(0);
    PIXEL_AND(col);
    float sum = 0.0f;
    if (o < OUTPUTS) {
        WINDOW_INSIDE;
        const uint first = o / GROUP_OUTPUTS * GROUP_CHANNELS;
        sum = FIRST(bias, o);
        for (uint ky = from_y; ky < end_y; ++ky)
            for (uint kx = from_x; kx < end_x; ++kx) {
                const uint row = first + IN_ROW(ky, kx);
                global const WEIGHT *weights =
                    a + ((o * WINDOW_HEIGHT + ky) * WINDOW_WIDTH + kx) * GROUP_CHANNELS;
#ifdef STEP
                global const float *values = b + PLACE_B(l, w, row, col);
                for (uint c = 0; c < GROUP_CHANNELS; ++c)
                    sum += LOAD(weights, c) * values[c * STEP];
#else
                for (uint c = 0; c < GROUP_CHANNELS; ++c)
                    sum += LOAD(weights, c) * b[PLACE_B(l, w, row + c, col)];
#endif
            }
        sum = LAST(sum, bias, o);
#ifdef ADD
        sum += c[PLACE_R(h, w, OUT_ROW + o, col)];
#endif
        sum = ACTIVATE(sum);
    }
    r[PLACE_R(h, w, OUT_ROW + o, col)] = sum;
}
