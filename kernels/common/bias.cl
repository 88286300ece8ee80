// Weights in fours, and what is added to sums of products. This stands in front of every source
// whose kernel takes weights as bytes, too. Sums begin with FIRST, of a row or of a vector of
// neighbouring ones, and end with LAST of a row, LAST4 of four (bias: float4), LAST16 of 16
// (float16); SCALE_SUMS of c0 to c3, each a row of four records. BYTE_WEIGHTS: sums are of whole
// numbers, multiplied at the end with the scale of their row. Biases and scales are the two columns
// of a matrix in R_16_1_C: 16 biases, then the scales of these rows.
#ifdef BYTE_WEIGHTS
#define BESIDE(i) (((i) >> 4) * 32 + ((i) & 15))
#define BESIDE4(i) (((i) >> 2) * 8 + ((i) & 3))
#define FIRST(bias, i) 0.0f
#define LAST(x, bias, i) ((x) * (bias)[BESIDE(i) + 16] + (bias)[BESIDE(i)])
#define LAST4(x, bias, i) ((x) * (bias)[BESIDE4(i) + 4] + (bias)[BESIDE4(i)])
#define LAST16(x, bias, i) ((x) * (bias)[2 * (i) + 1] + (bias)[2 * (i)])
#define SCALE_SUM(n, bias, i) c##n = c##n * (bias)[BESIDE4(i) + 4].s##n + (bias)[BESIDE4(i)].s##n
#define SCALE_SUMS(bias, i) SCALE_SUM(0, bias, i), SCALE_SUM(1, bias, i), SCALE_SUM(2, bias, i), SCALE_SUM(3, bias, i)
#else
#define FIRST(bias, i) (bias)[i]
#define LAST(x, bias, i) (x)
#define LAST4(x, bias, i) (x)
#define LAST16(x, bias, i) (x)
#define SCALE_SUMS(bias, i)
#endif
// Fours of weights, UNIT4 of which are a WEIGHT4.
#ifdef BYTE_WEIGHTS
#define WEIGHT4 char4
#define UNIT4 1
#define LOAD4(p, i) convert_float4((p)[i])
#elif defined HALF_WEIGHTS
#define WEIGHT4 half
#define UNIT4 4
#define LOAD4(p, i) vload_half4((i), (p))
#else
#define WEIGHT4 float4
#define UNIT4 1
#define LOAD4(p, i) (p)[i]
#endif
