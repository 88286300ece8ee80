// Matrix product, one element of the result per work-item, b and r column major.
// Differs from naive: b is read down its contiguous columns. A cache line therefore serves 16 steps
// of the loop instead of one. rmcm_grouped and rmcm_grouped_8x32 are the same with work-groups of
// 4x16 and 8x32, whose work-items share those lines.
// Source: thesis, section 7.1 and source 7.1; groups: section 7.2.
// Layouts: a R, b C, r C.
//
//            b: l x w
//              |           both operands run along consecutive addresses
//              v
//   a: h x l  -->
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_rmcm(uint l, uint h,
                        global const float *restrict a,
                        global const float *restrict b,
                        global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    global const float *pa = a + row * l;
    global const float *pb = b + col * l;
    float sum = 0.0f;
    for (uint k = 0; k < l; ++k)
        sum += pa[k] * pb[k];
    r[col * h + row] = sum;
}
