// Adds the l partial results of an affine layer in order, then bias and activation. A work-item
// computes a row of a record. Differs from reduce/rm: a record's values are contiguous. Source:
// own. Layouts: b C, with l parts of h rows one after the other for each record; r C. ACTIVATION:
// as in common/activation.

__attribute__((reqd_work_group_size(128, 1, 1)))
kernel void reduce_cm(uint l, uint w, uint h, float2 params,
                      global const float *restrict b,
                      global const float *restrict bias,
                      global float *restrict r)
{
    const uint row = get_global_id(0), col = get_global_id(1);
    if (row >= h)
        return;
    global const float *pb = b + col * l * h + row;
    float x = *pb;
    for (uint part = 1; part < l; ++part)
        x += pb[part * h];
    x += FIRST(bias, row);
    r[col * h + row] = ACTIVATE(LAST(x, bias, row));
}
