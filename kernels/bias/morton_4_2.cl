// Adds a bias to every column of a Morton 4-2 matrix, four rows per work-item. Differs from
// bias_cm_vector: the index of C_4_2_C, with one column of a chunk for each work-item. The thesis
// calls it vectorised. Its listing takes single elements and has the index of C_4_4_C, which its
// text uses for C_4_2_C. bias_morton_4_2_grouped has work-groups of 1x16, which is one row of eight
// chunks. Source: thesis, section 9.1 and source 12.6. Layouts: r C_4_2_C; bias is plain.
//
//   one chunk, a float4 per column:  0 1     chunks follow each other down the columns
//                                    0 1
//                                    0 1
//                                    0 1
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void bias_morton_4_2(uint h,
                            global float4 *restrict r,
                            global const float4 *restrict bias)
{
    const uint row = get_global_id(0); // of float4
    const uint col = get_global_id(1);
    r[(col >> 1) * (h >> 1) + row * 2 + (col & 1)] += bias[row];
}
