// Matrix product, one element of the result per work-item.
// Baseline of all other products. naive_grouped is the same with work-groups of 4x16.
// Source: thesis, section 6.1 and source 6.1; groups: section 7.2.
// Layouts: a R, b R, r R.
//
//            b: l x w        work-item (row, col) walks one row of a
//              | |           and one column of b, with a stride of w
//   a: h x l ---+---         through b.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_naive(uint l, uint w,
                         global const float *restrict a,
                         global const float *restrict b,
                         global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    float sum = 0.0f;
    for (uint k = 0; k < l; ++k)
        sum += a[row * l + k] * b[k * w + col];
    r[row * w + col] = sum;
}
