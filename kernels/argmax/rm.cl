// Class of every column: the row of its largest value, the lowest of equal ones;
// 0xFFFFFFFF if one of them is NaN or infinite. One column per work-item.
// Differs: b is row major.
// Source: own.
// Layouts: b R. n rows count, the rows of padding do not.
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
