// Affine layer in one launch: product, bias and activation. A work-item computes a tile of 4 rows
// by 8 records, with the weights through the texture path. Differs from matmul/image: the product
// is transposed, so that the constant operand is the image. Records stay buffers, and layers chain.
// Source: Adreno, figure 7, transposed.
// Layouts: a an RGBA float image whose pixel (x, k) is rows 4x to 4x + 3 of column k (C); b C, r C;
// bias is plain. l and h are multiples of 4, records of 8. Work-items behind the last row return
// early, as in the document.
// ACTIVATION: as in common/activation. HALF_WEIGHTS: a has halves. BYTE_WEIGHTS: a has signed
// bytes. read_imagef returns floats of all.
//
//   8 records of b:       | a0 |
//   |k 0 1 2 3|           | a1 |    pixels (x, k) to (x, k + 3): four rows each
//   |k 0 1 2 3|    sum0   | a2 |
//      ...          ...   | a3 |    sum[i] += b.s0 * a0 + b.s1 * a1 + b.s2 * a2 + b.s3 * a3
#ifdef BYTE_WEIGHTS
#define PIXEL(x, k) convert_float4(read_imagei(a, pixel, (int2)((x), (k))))
#else
#define PIXEL(x, k) read_imagef(a, pixel, (int2)((x), (k)))
#endif
#define RECORDS 8 // its loops are unrolled, so that sum stays in registers

constant sampler_t pixel =
    CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;

#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void affine_image(uint l, uint h, float2 params,
                         read_only image2d_t a,
                         global const float *restrict b,
                         global const float4 *restrict bias,
                         global float *restrict r)
{
    const uint x = get_global_id(0);
    if (4 * x >= h)
        return;
    const uint first = get_global_id(1) * RECORDS;
    global const float *record = b + first * l;
    float4 sum[RECORDS];
#pragma unroll
    for (uint i = 0; i < RECORDS; ++i)
        sum[i] = FIRST(bias, x);
    for (uint k = 0; k < l; k += 4) {
        const float4 a0 = PIXEL(x, k);
        const float4 a1 = PIXEL(x, k + 1);
        const float4 a2 = PIXEL(x, k + 2);
        const float4 a3 = PIXEL(x, k + 3);
#pragma unroll
        for (uint i = 0; i < RECORDS; ++i) {
            const float4 v = vload4(0, record + i * l + k);
            sum[i] += v.s0 * a0 + v.s1 * a1 + v.s2 * a2 + v.s3 * a3;
        }
    }
#pragma unroll
    for (uint i = 0; i < RECORDS; ++i)
        vstore4(ACTIVATE(LAST(sum[i], bias, x)), x, r + (first + i) * h);
}
