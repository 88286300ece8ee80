// Rows of a matrix as rows of another, or a constant, whatever the layouts: one element per
// work-item. Differs: the baseline. It moves what no kernel reads where it stands: concatenated,
// transposed, with a border. Source: own. Layouts: b FROM, r TO, as in common/place. moved: as in
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
