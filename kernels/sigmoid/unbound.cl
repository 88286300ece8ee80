// Sigmoid in place, one element per work-item, in any layout. Differs from the others: the driver
// chooses the work-group size ("unbound"). Source: thesis, source 6.2. Layouts: any.
kernel void sigmoid_unbound(global float *restrict r)
{
    const uint i = get_global_id(0);
    const float x = r[i];
    r[i] = SIGMOID(x);
}
