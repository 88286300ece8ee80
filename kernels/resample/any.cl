// Resamples the rows and columns of an image, one element of the result per work-item, in any
// layouts. Baseline. Source: own. Layouts: b FROM, r TO, as in common/place. The window of the
// geometry has the numbers of taps of a row and of a column. taps: the position and the weight of
// each, first for all rows of the result, then for all columns. A tap of weight 0 is not read, so
// that an infinity there does not count. Dimension 0 runs over the channels with their padding
// rows, dimension 1 over pixels, then the columns of each.
kernel void resample_any(uint l, uint w, uint h, uint16 geometry,
                         global const float2 *restrict taps,
                         global const float *restrict b,
                         global float *restrict r)
{
    const uint c = get_global_id(0);
    PIXEL_AND(col);
    float found = 0.0f;
    if (c < OUTPUTS) {
        global const float2 *down = taps + y * WINDOW_HEIGHT;
        global const float2 *along = taps + OUT_HEIGHT * WINDOW_HEIGHT + x * WINDOW_WIDTH;
        for (uint i = 0; i < WINDOW_HEIGHT; ++i) {
            const float2 of_row = down[i];
            const uint first = IN_FIRST + (uint)of_row.x * IN_LINE + c;
            for (uint j = 0; j < WINDOW_WIDTH; ++j) {
                const float2 of_column = along[j];
                if (of_row.y != 0.0f && of_column.y != 0.0f) {
                    const uint row = first + (uint)of_column.x * IN_PIXEL;
                    found += of_row.y * of_column.y * b[PLACE_B(l, w, row, col)];
                }
            }
        }
    }
    r[PLACE_R(h, w, OUT_ROW + c, col)] = found;
}
