// Matrix product, one element of the result per work-item, everything column major.
// Differs from naive: the layout. a is read with a stride. Neighbours along dimension 0 read
// neighbouring elements of a and write neighbouring results. The sum stays in a register (the
// document adds to the result in memory).
// Source: tutorial, section 2.
// Layouts: a C, b C, r C: M[i + P * j], P rows.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_columns(uint l, uint h,
                           global const float *restrict a,
                           global const float *restrict b,
                           global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    float sum = 0.0f;
    for (uint k = 0; k < l; ++k)
        sum += a[row + h * k] * b[k + l * col];
    r[row + h * col] = sum;
}
