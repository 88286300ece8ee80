// Leaky ReLU in place, one element per work-item, whatever the layout.
// Differs: the work-group size is the driver's choice ("unbound").
// Source: as sigmoid_unbound.
// Layouts: any.
kernel void leaky_relu_unbound(float slope, global float *restrict r)
{
    const uint i = get_global_id(0);
    const float x = r[i];
    r[i] = LEAKY_RELU(x);
}
