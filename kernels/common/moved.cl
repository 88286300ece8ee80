// The argument of type uint16 that maps the rows that a kernel writes to their sources. This file
// precedes every source whose kernel has such an argument. Element i of a value is read at
// `moved_from(i)` and belongs to a row of the result, which nested loops find. If the kernel fills
// all rows, work-items count rows. Otherwise they count elements.

// Finds the element and the row of work-item t. Returns false if the row has no element.
bool moved_to(const uint16 moved, const uint t, uint *element, uint *row)
{
    // The turns of the outermost loop are 0 if work-items count elements.
    const bool by_rows = moved.s3 > 0;
    // A row before the first wraps and lies outside all loops.
    uint rest = by_rows ? t - moved.s1 : t;
    const uint i = rest / moved.s2;
    rest -= i * moved.s2;
    const uint j = rest / moved.s5;
    rest -= j * moved.s5;
    const uint k = rest / moved.s8;
    rest -= k * moved.s8;
    const uint other = i * moved.s4 + j * moved.s7 + k * moved.sa;
    *element = by_rows ? other : t;
    *row = by_rows ? t : moved.s1 + other;
    return !by_rows || (i < moved.s3 && j < moved.s6 && k < moved.s9 && rest == 0);
}

// Returns the row or number where element i is read.
uint moved_from(const uint16 moved, const uint i)
{
    const uint j = i / moved.sb, rest = i - j * moved.sb;
    const uint k = rest / moved.sd;
    return moved.s0 + j * moved.sc + k * moved.se + (rest - k * moved.sd) * moved.sf;
}
