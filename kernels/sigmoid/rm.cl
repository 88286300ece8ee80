// Sigmoid in place, one element per work-item of a row-major matrix.
// Differs from sigmoid_unbound: rows and columns as in the product, so neighbours along
// dimension 0 are a row apart in memory: expected to be the slowest.
// Source: thesis, section 9.2.
// Layouts: r R.
kernel void sigmoid_rm(uint w, global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    const uint at = row * w + col;
    const float x = r[at];
    r[at] = SIGMOID(x);
}
