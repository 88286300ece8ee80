// SGEMM r = alpha * a * b + beta * r, one element of the result per work-item, the sum in four
// lanes.
// Differs from scalar_nn: four steps at a time. a is read as float4, and the four values of b come
// from four rows. With beta = 0, r is not read and may hold NaN.
// Source: SDK, "Implementation"; the matrices need not be square. Dimension 0 is the column.
// Layouts: a R, b R, r R; l is a multiple of 4.
//
//                  b: x .     x, y, z, w: four rows of one column, w floats apart
//                     y .
//                     z .
//   a: |x y z w| ...  w .
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_sgemm(uint l, uint w,
                         float alpha, float beta,
                         global const float *restrict a,
                         global const float *restrict b,
                         global float *restrict r)
{
    const uint row = get_global_id(1);
    const uint col = get_global_id(0);
    global const float *pa = a + row * l;
    global const float *pb = b + col;
    float4 sum = (float4)(0.0f);
    for (uint k = 0; k < l; k += 4) {
        sum += vload4(0, pa + k) * (float4)(pb[0], pb[w], pb[2 * w], pb[3 * w]);
        pb += 4 * w;
    }
    const uint at = row * w + col;
    float result = alpha * dot(sum, (float4)(1.0f));
    if (beta != 0.0f)
        result += beta * r[at];
    r[at] = result;
}
