// Adds a bias to every column of a column-major matrix, one element per work-item.
// Differs from bias_rm: neighbours along dimension 0 access neighbouring elements. bias_cm_grouped
// is the same with work-groups of 4x16.
// Source: thesis, section 9.1; groups: section 7.2.
// Layouts: r C; bias is plain.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void bias_cm(uint h,
                    global float *restrict r,
                    global const float *restrict bias)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    r[col * h + row] += bias[row];
}
