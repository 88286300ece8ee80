// Adds a bias to every column of a Morton 4-2 matrix, one element per work-item.
// Differs from bias_rm: the index of C_4_2_C. (The listing of the thesis computes one of
// C_4_4_C; its text uses it for C_4_2_C, and calls it vectorised.)
// bias_morton_4_2_grouped is the same with work-groups of 1x16.
// Source: thesis, section 9.1 and source 12.6.
// Layouts: r C_4_2_C; bias is plain.
//
//   one chunk, 4 rows x 2 columns:   0 4
//                                    1 5      chunks follow each other down the columns
//                                    2 6
//                                    3 7
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void bias_morton_4_2(uint h,
                            global float *restrict r,
                            global const float *restrict bias)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    const uint chunk = (col >> 1) * 2 * h + (row >> 2) * 8;
    r[chunk + (col & 1) * 4 + (row & 3)] += bias[row];
}
