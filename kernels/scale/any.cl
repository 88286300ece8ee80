// Values times factors, plus summands; or, with PRELU, times factors where they are below 0. One
// element per work-item, whatever the layouts. Differs: the baseline. Source: own. Layouts: factors
// and bias plain; b FROM, r TO, as in common/place. Rows of no element hold what 0 becomes. moved,
// added: which of the factors, and of bias, belong to each row, as in common/moved. PRELU: 1: x
// where it is above 0, else x times its factor; bias is not read. ACTIVATION: as in
// common/activation.
#ifndef PRELU
#define PRELU 0
#endif
kernel void scale_any(uint l, uint w, uint h, float2 params, uint16 moved, uint16 added,
                      global const float *restrict factors,
                      global const float *restrict b,
                      global const float *restrict bias,
                      global float *restrict r)
{
    uint element, row;
    const uint col = get_global_id(1);
    float x = 0.0f;
    if (moved_to(moved, get_global_id(0), &element, &row)) {
        x = b[PLACE_B(l, w, row, col)];
        const float factor = factors[moved_from(moved, element)];
#if PRELU
        x = x < 0.0f ? x * factor : x;
#else
        x = x * factor + bias[moved_from(added, element)];
#endif
    }
    r[PLACE_R(h, w, row, col)] = ACTIVATE(x);
}
