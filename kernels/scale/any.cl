// Rows times factors, plus summands; or, with PRELU, times factors where they are below 0. One element per work-item,
// whatever the layouts.
// Differs: the baseline.
// Source: own.
// Layouts: factors and bias plain, one for each row; b FROM, r TO, as in common/place. r may have more rows than b: there
// is nothing to read for those.
// PRELU: 1: x where it is above 0, else x times its factor; bias is not read.
// ACTIVATION: as in common/activation.
#ifndef PRELU
#define PRELU 0
#endif
kernel void scale_any(uint l, uint w, uint h, float2 params,
                      global const float *restrict factors,
                      global const float *restrict b,
                      global const float *restrict bias,
                      global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    float x = 0.0f;
    if (row < l)
        x = b[PLACE_B(l, w, row, col)];
#if PRELU
    x = x < 0.0f ? x * factors[row] : x;
#else
    x = x * factors[row] + bias[row];
#endif
    r[PLACE_R(h, w, row, col)] = ACTIVATE(x);
}
