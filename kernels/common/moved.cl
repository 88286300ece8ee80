// Which rows a kernel writes and what it reads for them: the parts of its argument of type uint16.
// This stands in front of every source whose kernel has such an argument. Element i of a value is
// read at `moved_from` and belongs to a row of the result. Rows are found by nested loops. A
// work-item numbers rows where the result is filled, those of no element too; else it numbers
// elements.

// The element and the row of work-item t. False where the row is that of no element.
bool moved_to(const uint16 moved, const uint t, uint *element, uint *row)
{
    // Turns of the outermost loop: 0 where work-items number elements.
    const bool by_rows = moved.s3 > 0;
    // Below the first row it wraps, and is beyond all loops.
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

// Where element i is read.
uint moved_from(const uint16 moved, const uint i)
{
    const uint j = i / moved.sb, rest = i - j * moved.sb;
    const uint k = rest / moved.sd;
    return moved.s0 + j * moved.sc + k * moved.se + (rest - k * moved.sd) * moved.sf;
}
