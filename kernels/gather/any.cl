// Copies rows of a matrix to rows of another, or fills them with a constant. One element per
// work-item, in any layouts. Baseline. It serves concatenations, transpositions and borders that no
// kernel can read in place. Source: own. Layouts: b FROM, r TO, as in common/place. moved: as in
// common/moved.
kernel void gather_any(uint l, uint w, uint h, float value, uint16 moved,
                       global const float *restrict b,
                       global float *restrict r)
{
    uint element, row;
    const uint col = get_global_id(1);
    float x = value;
    if (moved_to(moved, get_global_id(0), &element, &row))
        x = b[PLACE_B(l, w, moved_from(moved, element), col)];
    r[PLACE_R(h, w, row, col)] = x;
}
