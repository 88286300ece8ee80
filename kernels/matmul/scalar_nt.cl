// SGEMM r = alpha * a * b + beta * r, one element of the result per work-item, b stored transposed.
// Differs from scalar_nn: b is read with stride 1. (Differs from rmcm: alpha and beta, r row
// major.) With beta = 0, r is not read and may hold NaN.
// Source: ARM, section 1.4.3 and listing 1.10. Dimension 0 is the column.
// Layouts: a R, b C (the transpose of ARM's row-major B), r R.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_scalar_nt(uint l, uint w,
                             float alpha, float beta,
                             global const float *restrict a,
                             global const float *restrict b,
                             global float *restrict r)
{
    const uint row = get_global_id(1);
    const uint col = get_global_id(0);
    global const float *pa = a + row * l;
    global const float *pb = b + col * l;
    float sum = 0.0f;
    for (uint k = 0; k < l; ++k)
        sum += pa[k] * pb[k];
    const uint at = row * w + col;
    float result = alpha * sum;
    if (beta != 0.0f)
        result += beta * r[at];
    r[at] = result;
}
