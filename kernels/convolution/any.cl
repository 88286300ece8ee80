// Convolution with bias and activation, one element of the result per work-item, whatever the
// layouts. Differs: the baseline; groups of any size, and of one channel each. Source: own.
// Layouts: a R, a row for each output, its columns in the order ky, kx, c; b FROM, r TO, as in
// common/place. ACTIVATION: as in common/activation. ADD: c, which stands as r does, is added
// before the activation. HALF_WEIGHTS, BYTE_WEIGHTS: a holds halves, bytes (common/bias); the sums
// are of floats. STEP: from a row of b to the next, where that is the same for all. Dimension 0
// runs over the outputs and the rows of padding behind them, dimension 1 over columns, pixel by
// pixel.
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
