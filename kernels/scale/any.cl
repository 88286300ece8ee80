// Multiplies values by factors and adds summands, or applies a PReLU. One element per work-item, in
// any layouts. Baseline. Source: own. Layouts: factors and bias plain; b FROM, r TO, as in
// common/place. Rows without an element get the activation of 0.
// moved, added: the maps from elements to factors and to summands (common/moved). PRELU: with 1 a
// value below 0 is multiplied by its factor, and bias is not read. ACTIVATION: as in
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
