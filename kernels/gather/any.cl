// Rows of a matrix as rows of another, or a constant, whatever the layouts: one element per work-item.
// Differs: the baseline. It moves what no kernel reads where it stands: concatenated, transposed, with a border.
// Source: own.
// Layouts: b FROM, r TO, as in common/place.
// pairs: where from and where to; 0xFFFFFFFF: the constant.
kernel void gather_any(uint l, uint w, uint h, float value,
                       global const uint2 *restrict pairs,
                       global const float *restrict b,
                       global float *restrict r)
{
    const uint2 pair = pairs[get_global_id(0)];
    const uint col = get_global_id(1);
    float x = value;
    if (pair.x != 0xFFFFFFFFu)
        x = b[PLACE_B(l, w, pair.x, col)];
    r[PLACE_R(h, w, pair.y, col)] = x;
}
