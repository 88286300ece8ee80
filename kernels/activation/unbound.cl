// Any activation in place, one element per work-item, in any layout. The driver chooses the
// work-group size ("unbound"). Source: as sigmoid_unbound. Layouts: any. ACTIVATION: as in
// common/activation.
kernel void activation_unbound(float2 params, global float *restrict r)
{
    const uint i = get_global_id(0);
    const float x = r[i];
    r[i] = ACTIVATE(x);
}
