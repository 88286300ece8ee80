// Class of each column: the lowest row that has the largest value. NaN or infinity in a column
// gives 0xFFFFFFFF. One column per work-item.
// Differs from argmax_rm: b is C_4_2_C.
// Source: own.
// Layouts: b C_4_2_C of l rows. Rows from n on are padding.
kernel void argmax_morton_4_2(uint l, uint n,
                              global const float *restrict b,
                              global uint *restrict classes)
{
    const uint col = get_global_id(0);
    global const float *column = b + (col >> 1) * 2 * l + (col & 1) * 4;
    float best = column[0];
    uint at = 0;
    bool refused = !isfinite(best);
    for (uint row = 1; row < n; ++row) {
        const float x = column[(row >> 2) * 8 + (row & 3)];
        refused |= !isfinite(x);
        if (x > best) {
            best = x;
            at = row;
        }
    }
    classes[col] = refused ? 0xFFFFFFFFu : at;
}
