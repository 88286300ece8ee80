// Multiplies values by factors and adds summands, or applies a PReLU. One element per work-item, in
// any layouts. Baseline. Source: own. Layouts: factors and bias plain; b FROM, r TO, as in
// common/place. Rows without an element get the activation of 0.
// moved, added: the maps from elements to factors and to summands (common/moved). ALIKE: b and r
// have the same layout and rows, and all elements have one factor and one summand. Padding is
// scaled too.
// PRELU: with 1 a value below 0 is multiplied by its factor, and bias is not read. ACTIVATION,
// ROUNDS: as in common/activation.
// Dimension 0 runs over rows, dimension 1 over columns. With ALIKE dimension 0 runs over elements.
#ifndef PRELU
#define PRELU 0
#endif
kernel void scale_any(uint l, uint w, uint h, float2 params, uint16 moved, uint16 added,
                      global const float *restrict factors,
                      global const float *restrict b,
                      global const float *restrict bias,
                      global float *restrict r)
{
#ifdef ALIKE
    const uint to = get_global_id(0), from = to;
    const uint factor = moved.s0, summand = added.s0;
    const bool real = true;
#else
    uint element, row;
    const uint col = get_global_id(1);
    const bool real = moved_to(moved, get_global_id(0), &element, &row);
    const uint to = PLACE_R(h, w, row, col), from = PLACE_B(l, w, row, col);
    const uint factor = moved_from(moved, element), summand = moved_from(added, element);
#endif
    float x = 0.0f;
    if (real) {
        x = b[from];
#if PRELU
        x = x < 0.0f ? x * factors[factor] : x;
#else
        x = x * factors[factor] + bias[summand];
#endif
    }
    x = ROUNDED(x);
    r[to] = ACTIVATE(x);
}
