// Copies a matrix from one layout into another, one element per work-item. Baseline. It connects
// two kernels of a plan whose layouts differ. Source: thesis, section 8.3.3. Layouts: b FROM, r TO,
// as in common/place. The first n rows of b are copied, and the other rows of r get zeros.
kernel void repack_any(uint l, uint w, uint h, uint n,
                       global const float *restrict b,
                       global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    float x = 0.0f;
    if (row < n)
        x = b[PLACE_B(l, w, row, col)];
    r[PLACE_R(h, w, row, col)] = x;
}
