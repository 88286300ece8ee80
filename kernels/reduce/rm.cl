// Adds the l partial results of an affine layer in order, then bias and activation. A work-group
// has 4 rows of 128 records, a work-item four records of a row. Source: own. Layouts: b R, l
// matrices of h x w one after the other; r R. ACTIVATION: as in common/activation.

__attribute__((reqd_work_group_size(128, 1, 1)))
kernel void reduce_rm(uint l, uint w, uint h, float2 params,
                      global const float4 *restrict b,
                      global const float *restrict bias,
                      global float4 *restrict r)
{
    const uint row = get_group_id(0) * 4 + get_local_id(0) / 32;
    const uint quad = get_group_id(1) * 32 + get_local_id(0) % 32;
    if (row >= h || quad >= w / 4)
        return;
    const uint at = row * (w / 4) + quad;
    float4 x = b[at];
    for (uint part = 1; part < l; ++part)
        x += b[part * h * (w / 4) + at];
    x += FIRST(bias, row);
    r[at] = ACTIVATE(LAST(x, bias, row));
}
