// Where the elements of a matrix stand in any layout: MIndex of the thesis, section 8.2. This
// stands in front of every source that takes its operands in any layouts, FROM and TO. FROM, TO: a
// layout as its grammar has it, from the outside in: three numbers for each level, the order (0 row
// major, 1 column major), then rows and columns of the chunks that stand in it. The last chunks are
// elements, 1 by 1: R is 0,1,1 and C_4_2_R is 1,4,2,0,1,1.
#ifndef FROM
#define FROM 0,1,1
#endif
#ifndef TO
#define TO 1,1,1
#endif

constant uint from_levels[] = {FROM};
constant uint to_levels[] = {TO};
#define LEVELS(list) (sizeof(list) / (3 * sizeof(uint)))

// Where element (row, col) of a rows by cols matrix stands.
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
#define PLACE_B(rows, cols, row, col) place(from_levels, LEVELS(from_levels), (rows), (cols), (row), (col))
#define PLACE_R(rows, cols, row, col) place(to_levels, LEVELS(to_levels), (rows), (cols), (row), (col))
