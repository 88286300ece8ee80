// Convolution with bias and activation, one element of the result per work-item, whatever the layouts.
// Differs: the baseline; groups of any size, and of one channel each.
// Source: own.
// Layouts: a R, a row for each output, its columns in the order ky, kx, c; b FROM, r TO, as in common/place.
// ACTIVATION: as in common/activation.
// HALF_WEIGHTS: a holds halves; the sums are of floats.
// STEP: from a row of b to the next, where that is the same for all.
// Dimension 0 runs over the outputs and the rows of padding behind them, dimension 1 over columns, pixel by pixel.
#ifdef HALF_WEIGHTS
#define WEIGHT half
#define LOAD(p, i) vload_half((i), (p))
#else
#define WEIGHT float
#define LOAD(p, i) (p)[i]
#endif

kernel void convolution_any(uint l, uint w, uint h, float2 params, uint16 geometry,
                            global const WEIGHT *restrict a,
                            global const float *restrict b,
                            global const float *restrict bias,
                            global float *restrict r)
{
    const uint o = get_global_id(0);
    const uint columns = get_global_size(1) / (OUT_HEIGHT * OUT_WIDTH);
    const uint pixel = get_global_id(1) / columns, col = get_global_id(1) - pixel * columns;
    const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH;
    const uint top = y * STRIDE_Y, left = x * STRIDE_X;
    float sum = 0.0f;
    if (o < OUTPUTS) {
        // The border once for all of the window: its turns are those inside the image.
        const uint from_y = FIRST_INSIDE(top, BORDER_TOP, DILATION_Y);
        const uint end_y = END_INSIDE(top, BORDER_TOP, DILATION_Y, WINDOW_HEIGHT, IN_HEIGHT);
        const uint from_x = FIRST_INSIDE(left, BORDER_LEFT, DILATION_X);
        const uint end_x = END_INSIDE(left, BORDER_LEFT, DILATION_X, WINDOW_WIDTH, IN_WIDTH);
        const uint first = IN_FIRST + o / GROUP_OUTPUTS * GROUP_CHANNELS;
        sum = bias[o];
        for (uint ky = from_y; ky < end_y; ++ky)
            for (uint kx = from_x; kx < end_x; ++kx) {
                const uint row = first + (top + ky * DILATION_Y - BORDER_TOP) * IN_LINE +
                                 (left + kx * DILATION_X - BORDER_LEFT) * IN_PIXEL;
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
        sum = ACTIVATE(sum);
    }
    r[PLACE_R(h, w, OUT_FIRST + y * OUT_LINE + x * OUT_PIXEL + o, col)] = sum;
}
