// ReLU in place, one element per work-item of a row-major matrix. Differs from relu_unbound:
// dimension 0 is the row, as in the product. Neighbours along it are a row apart in memory, so this
// should be the slowest. Source: thesis, section 9.2 (measured there for the sigmoid). Layouts: r
// R.
kernel void relu_rm(uint w, global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    const uint at = row * w + col;
    const float x = r[at];
    r[at] = RELU(x);
}
