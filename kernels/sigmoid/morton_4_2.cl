// Sigmoid in place, one element per work-item of a Morton 4-2 matrix.
// Differs from sigmoid_cm: the index of C_4_2_C; a work-group of 4x16 spans one row of eight
// chunks.
// Source: thesis, section 9.2; index: section 8.2.
// Layouts: r C_4_2_C.
//
//   one chunk, 4 rows x 2 columns:   0 4
//                                    1 5      chunks follow each other down the columns
//                                    2 6
//                                    3 7
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void sigmoid_morton_4_2(uint h, global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    const uint chunk = (col >> 1) * 2 * h + (row >> 2) * 8;
    const uint at = chunk + (col & 1) * 4 + (row & 3);
    const float x = r[at];
    r[at] = SIGMOID(x);
}
