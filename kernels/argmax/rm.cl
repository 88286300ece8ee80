// Class of each column: the lowest row that has the largest value. NaN or infinity in a column
// gives 0xFFFFFFFF. One column per work-item.
// Differs: b is row major.
// Source: own.
// Layouts: b R. Rows from n on are padding.
kernel void argmax_rm(uint w, uint n,
                      global const float *restrict b,
                      global uint *restrict classes)
{
    const uint col = get_global_id(0);
    float best = b[col];
    uint at = 0;
    bool refused = !isfinite(best);
    for (uint row = 1; row < n; ++row) {
        const float x = b[row * w + col];
        refused |= !isfinite(x);
        if (x > best) {
            best = x;
            at = row;
        }
    }
    classes[col] = refused ? 0xFFFFFFFFu : at;
}
