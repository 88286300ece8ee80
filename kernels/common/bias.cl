// What is added to sums of products. This stands in front of every source whose kernel takes weights as bytes, too.
// Begin with FIRST, end with LAST, of one row, of four neighbouring rows (bias: float4), of 16 (float16).
// BYTE_WEIGHTS: sums are of whole numbers, multiplied at the end with the scale of their row. Biases and scales are the two
// columns of a matrix in R_16_1_C: 16 biases, then the scales of these rows.
#ifdef BYTE_WEIGHTS
#define BESIDE(i) (((i) >> 4) * 32 + ((i) & 15))
#define BESIDE4(i) (((i) >> 2) * 8 + ((i) & 3))
#define FIRST(bias, i) 0.0f
#define FIRST4(bias, i) (float4)(0.0f)
#define FIRST16(bias, i) (float16)(0.0f)
#define LAST(x, bias, i) ((x) * (bias)[BESIDE(i) + 16] + (bias)[BESIDE(i)])
#define LAST4(x, bias, i) fma((x), (bias)[BESIDE4(i) + 4], (bias)[BESIDE4(i)])
#define LAST16(x, bias, i) fma((x), (bias)[2 * (i) + 1], (bias)[2 * (i)])
// Of four rows of four records each.
#define SCALE_SUMS(bias, i)                                                            \
    c0 = fma(c0, (float4)((bias)[BESIDE4(i) + 4].s0), (float4)((bias)[BESIDE4(i)].s0)); \
    c1 = fma(c1, (float4)((bias)[BESIDE4(i) + 4].s1), (float4)((bias)[BESIDE4(i)].s1)); \
    c2 = fma(c2, (float4)((bias)[BESIDE4(i) + 4].s2), (float4)((bias)[BESIDE4(i)].s2)); \
    c3 = fma(c3, (float4)((bias)[BESIDE4(i) + 4].s3), (float4)((bias)[BESIDE4(i)].s3))
#else
#define SCALE_SUMS(bias, i)
#define FIRST(bias, i) (bias)[i]
#define FIRST4(bias, i) (bias)[i]
#define FIRST16(bias, i) (bias)[i]
#define LAST(x, bias, i) (x)
#define LAST4(x, bias, i) (x)
#define LAST16(x, bias, i) (x)
#endif
