// The place of an element in any layout: MIndex of the thesis, section 8.2. This file precedes
// every source that supports any layouts.
// FROM, TO: the layouts of operand and result, from the outside in. Each level has three numbers:
// the order (0 row by row, 1 column by column), then rows and columns of its chunks. The last
// chunks are single elements. R is 0,1,1 and C_4_2_R is 1,4,2,0,1,1.
#ifndef FROM
#define FROM 0,1,1
#endif
#ifndef TO
#define TO 1,1,1
#endif

constant uint from_levels[] = {FROM};
constant uint to_levels[] = {TO};
#define LEVELS(list) (sizeof(list) / (3 * sizeof(uint)))

// Returns the place of element (row, col) of a matrix with `rows` rows and `cols` columns.
uint place(constant uint *level, const uint levels, uint rows, uint cols, uint row, uint col)
{
    uint index = 0;
    for (uint k = 0; k < levels; ++k, level += 3) {
        const uint y = level[1], x = level[2];
        const uint i = row / y, j = col / x;
        index += (level[0] ? j * (rows / y) + i : i * (cols / x) + j) * (y * x);
        row -= i * y;
        col -= j * x;
        rows = y;
        cols = x;
    }
    return index;
}
#define PLACE_B(rows, cols, row, col) \
    place(from_levels, LEVELS(from_levels), (rows), (cols), (row), (col))
#define PLACE_R(rows, cols, row, col) \
    place(to_levels, LEVELS(to_levels), (rows), (cols), (row), (col))
