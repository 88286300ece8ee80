// Multiplies two values in groups, one element of the result per work-item, in any layouts.
// Baseline. Source: own. Layouts: b and c FROM, r TO, as in common/place. product: the first row of
// b and the rows from an element to the next along groups, rows and terms; of c the first row and
// those along groups, terms and columns; then the sizes. Element (g, i, j) of the result is in row
// (i * GROUPS + g) * COLUMNS + j. Rows behind the last element become 0.
// Dimension 0 runs over the rows of the result with its padding, dimension 1 over columns.
#define GROUPS product.s8
#define ROWS product.s9
#define COLUMNS product.sa
#define TERMS product.sb
kernel void product_any(uint l, uint s, uint w, uint h, uint16 product,
                        global const float *restrict b,
                        global const float *restrict c,
                        global float *restrict r)
{
    const uint row = get_global_id(0), col = get_global_id(1);
    const uint i = row / (GROUPS * COLUMNS), rest = row - i * (GROUPS * COLUMNS);
    const uint g = rest / COLUMNS, j = rest - g * COLUMNS;
    float sum = 0.0f;
    if (i < ROWS) {
        uint first = product.s0 + g * product.s1 + i * product.s2;
        uint second = product.s4 + g * product.s5 + j * product.s7;
        for (uint k = 0; k < TERMS; ++k) {
            sum += b[PLACE_B(l, w, first, col)] * c[PLACE_B(s, w, second, col)];
            first += product.s3;
            second += product.s6;
        }
    }
    r[PLACE_R(h, w, row, col)] = sum;
}
