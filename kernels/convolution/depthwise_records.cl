// Convolution of single channels with bias and activation, where a record's values are contiguous.
// A work-item computes four channels of a column. Differs from depthwise_packed: columns are the
// pixels of all records, and neighbouring work-items have neighbouring channels. Source: own.
// Layouts: a C, with columns in the order ky, kx; b and r C; bias is plain. ACTIVATION: as in
// common/activation. HALF_WEIGHTS, BYTE_WEIGHTS: the format of a. Sums are floats. Dimension 0 runs
// over fours of channels, dimension 1 over columns, record by record.
kernel void convolution_depthwise_records(uint l, uint w, uint h, float2 params, uint16 geometry,
                                          global const WEIGHT4 *restrict a,
                                          global const float *restrict b,
                                          global const float4 *restrict bias,
                                          global float4 *restrict r)
{
    const uint four = get_global_id(0), column = get_global_id(1), fours = (OUTPUTS + 3) / 4;
    const uint pixels = OUT_HEIGHT * OUT_WIDTH, n = column / pixels, pixel = column - n * pixels;
    const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH;
    if (four >= OUT_PIXEL / 4 || n >= w)
        return;
    float4 sum = (float4)(0.0f);
    if (four < fours) {
        WINDOW_INSIDE;
        const bool aligned = ((l | IN_FIRST | IN_LINE | IN_PIXEL) & 3) == 0;
        // Behind the last channel the last one is read again, and its sums are not used.
        const uint last = OUTPUTS - 1 - 4 * four;
        const uint second = min(1u, last), third = min(2u, last), fourth = min(3u, last);
        sum = FIRST(bias, four);
        for (uint ky = from_y; ky < end_y; ++ky)
            for (uint kx = from_x; kx < end_x; ++kx) {
                global const float *from = b + n * l + IN_ROW(ky, kx) + 4 * four;
                const float4 v = aligned ? *(global const float4 *)from
                                         : (float4)(from[0], from[second], from[third],
                                                    from[fourth]);
                sum += LOAD4(a, (ky * WINDOW_WIDTH + kx) * fours + four) * v;
            }
        sum = ACTIVATE(LAST(sum, bias, four));
    }
    r[(n * h + OUT_ROW) / 4 + four] = sum;
}
