// Class of every column: the row of its largest value, the lowest of equal ones;
// 0xFFFFFFFF if one of them is NaN. One column per work-item.
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
    bool nan = isnan(best);
    for (uint row = 1; row < n; ++row) {
        const float x = b[row * w + col];
        nan |= isnan(x);
        if (x > best) {
            best = x;
            at = row;
        }
    }
    classes[col] = nan ? 0xFFFFFFFFu : at;
}
