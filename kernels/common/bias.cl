// Biases, scales and groups of four weights. This file precedes every source whose kernel accepts
// weights as bytes. A sum starts with FIRST(bias, i) and ends with LAST, where i is a row. For
// vectors of neighbouring rows, LAST4 takes four (bias: float4) and LAST16 takes 16 (float16).
// SCALE_SUMS finishes c0 to c3, each of which is a row of four records.
// BYTE_WEIGHTS: sums are of whole numbers, and the end multiplies them by the scale of their row.
// Biases and scales are the two columns of a matrix in R_16_1_C: 16 biases, then the scales of
// these rows.
#ifdef BYTE_WEIGHTS
#define BESIDE(i) (((i) >> 4) * 32 + ((i) & 15))
#define BESIDE4(i) (((i) >> 2) * 8 + ((i) & 3))
#define FIRST(bias, i) 0.0f
#define LAST(x, bias, i) ((x) * (bias)[BESIDE(i) + 16] + (bias)[BESIDE(i)])
#define LAST4(x, bias, i) ((x) * (bias)[BESIDE4(i) + 4] + (bias)[BESIDE4(i)])
#define LAST16(x, bias, i) ((x) * (bias)[2 * (i) + 1] + (bias)[2 * (i)])
#define SCALE_SUM(n, bias, i) c##n = c##n * (bias)[BESIDE4(i) + 4].s##n + (bias)[BESIDE4(i)].s##n
#define SCALE_SUMS(bias, i) \
    SCALE_SUM(0, bias, i), SCALE_SUM(1, bias, i), SCALE_SUM(2, bias, i), SCALE_SUM(3, bias, i)
#else
#define FIRST(bias, i) (bias)[i]
#define LAST(x, bias, i) (x)
#define LAST4(x, bias, i) (x)
#define LAST16(x, bias, i) (x)
#define SCALE_SUMS(bias, i)
#endif
// LOAD4 reads four weights. UNIT4: elements of type WEIGHT4 that they take.
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
