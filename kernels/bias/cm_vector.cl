// Adds a bias to every column of a column-major matrix, four rows per work-item.
// Differs from bias_cm: one float4 down the column instead of one float.
// bias_cm_vector_grouped is the same with work-groups of 4x16.
// Source: thesis, section 9.1; groups: section 7.2.
// Layouts: r C; bias is plain; h is a multiple of 4.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void bias_cm_vector(uint h,
                           global float4 *restrict r,
                           global const float4 *restrict bias)
{
    const uint row = get_global_id(0); // of float4
    const uint col = get_global_id(1);
    r[col * (h >> 2) + row] += bias[row];
}
