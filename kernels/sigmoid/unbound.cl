// Sigmoid in place, one element per work-item, whatever the layout.
// Differs: the work-group size is the driver's choice ("unbound").
// Source: thesis, source 6.2.
// Layouts: any.
kernel void sigmoid_unbound(global float *restrict r)
{
    const uint i = get_global_id(0);
    r[i] = 1.0f / (1.0f + exp(-r[i]));
}
