// Measures how fast a device moves data: every work-item reads and writes four numbers. Differs
// from probe_fma: no arithmetic. Source: own. Layouts: plain numbers, four per work-item.
kernel void probe_copy(global const float4 *restrict a,
                       global float4 *restrict r)
{
    const uint i = get_global_id(1) * get_global_size(0) + get_global_id(0);
    r[i] = a[i];
}
