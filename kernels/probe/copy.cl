// What a device can move: every work-item reads four numbers and writes them.
// Differs from probe_fma: no arithmetic.
// Source: own.
// Layouts: plain numbers, four per work-item.
kernel void probe_copy(global const float4 *restrict a,
                       global float4 *restrict r)
{
    const uint i = get_global_id(1) * get_global_size(0) + get_global_id(0);
    r[i] = a[i];
}
