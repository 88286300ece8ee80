// Biases, and the numbers beside them: scales of weights, and the scaling of a network behind a
// layer. This file precedes every source whose kernel accepts weights as bytes. A sum starts with
// FIRST(bias, i) and ends with LAST, where i is a row. If bias points to vectors, i counts vectors
// of neighbouring rows. SCALE_SUMS finishes c0 to c3, each of which is a row of four records.
// BYTE_WEIGHTS: sums are of whole numbers, and the end multiplies them by the scale of their row.
// RESCALE: the end multiplies the layer's results by factors and adds summands. ROUNDS: as in
// common/activation. Biases, scales, factors and summands are the columns of a matrix in R_16_1_C:
// 16 biases, then the other numbers of these rows.
#if defined BYTE_WEIGHTS && defined RESCALE
#define COLUMNS 4
#elif defined RESCALE
#define COLUMNS 3
#elif defined BYTE_WEIGHTS
#define COLUMNS 2
#else
#define COLUMNS 1
#endif
// The number in a column of row i, or of vector i.
#define UNITS(bias) ((uint)(64 / sizeof(*(bias))))
#define BESIDE(bias, i, column) \
    (bias)[((i) / UNITS(bias) * COLUMNS + (column)) * UNITS(bias) + (i) % UNITS(bias)]
#ifdef BYTE_WEIGHTS
#define FIRST(bias, i) 0.0f
#define SCALED(x, bias, i, of) ((x) * BESIDE(bias, i, 1) of + BESIDE(bias, i, 0) of)
#else
#define FIRST(bias, i) BESIDE(bias, i, 0)
#define SCALED(x, bias, i, of) (x)
#endif
#ifdef RESCALE
#define RESCALED(x, bias, i, of) \
    (SCALED(x, bias, i, of) * BESIDE(bias, i, COLUMNS - 2) of + BESIDE(bias, i, COLUMNS - 1) of)
#else
#define RESCALED SCALED
#endif
#define LAST(x, bias, i) ROUNDED(RESCALED(x, bias, i, ))
#define SCALE_SUM(n, bias, i) c##n = ROUNDED(RESCALED(c##n, bias, i, .s##n))
#define SCALE_SUMS(bias, i) \
    SCALE_SUM(0, bias, i), SCALE_SUM(1, bias, i), SCALE_SUM(2, bias, i), SCALE_SUM(3, bias, i)
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
