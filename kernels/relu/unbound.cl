// ReLU in place, one element per work-item, in any layout. Differs from the others: the driver
// chooses the work-group size ("unbound"). Source: thesis, list 5.1 (its own listing prints the
// sigmoid twice). Layouts: any.
kernel void relu_unbound(global float *restrict r)
{
    const uint i = get_global_id(0);
    const float x = r[i];
    r[i] = RELU(x);
}
