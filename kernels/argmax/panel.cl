// Class of each column: the lowest row that has the largest value. NaN or infinity in a column
// gives 0xFFFFFFFF. One column per work-item. Differs from argmax_packed: b is C_16_RECORDS_C, so
// 16 rows of a column are contiguous. Source: own. Layouts: b C_16_RECORDS_C of l rows. Rows from n
// on are padding.
#ifndef RECORDS
#define RECORDS 10
#endif

kernel void argmax_panel(uint l, uint n,
                         global const float *restrict b,
                         global uint *restrict classes)
{
    const uint col = get_global_id(0);
    global const float *column = b + col / RECORDS * RECORDS * l + col % RECORDS * 16;
    float best = column[0];
    uint at = 0;
    bool refused = !isfinite(best);
    for (uint row = 1; row < n; ++row) {
        const float x = column[row / 16 * 16 * RECORDS + row % 16];
        refused |= !isfinite(x);
        if (x > best) {
            best = x;
            at = row;
        }
    }
    classes[col] = refused ? 0xFFFFFFFFu : at;
}
