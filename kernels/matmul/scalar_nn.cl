// SGEMM r = alpha * a * b + beta * r, one element of the result per work-item.
// Differs from naive: alpha and beta. With beta = 0, r is not read and may hold NaN.
// Source: ARM, section 1.4.3 and listing 1.9; the matrices need not be square.
// Dimension 0 is the column.
// Layouts: a R, b R, r R.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_scalar_nn(uint l, uint w,
                             float alpha, float beta,
                             global const float *restrict a,
                             global const float *restrict b,
                             global float *restrict r)
{
    const uint row = get_global_id(1);
    const uint col = get_global_id(0);
    float sum = 0.0f;
    for (uint k = 0; k < l; ++k)
        sum += a[row * l + k] * b[k * w + col];
    const uint at = row * w + col;
    float result = alpha * sum;
    if (beta != 0.0f)
        result += beta * r[at];
    r[at] = result;
}
