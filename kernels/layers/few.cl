// All layers of a small network, and the arg-max, in one launch: a work-group carries one record from the input to the
// class. Only its own work-items wait for each other, between layers.
// Differs from layers/packed_4x4: nothing is computed for records that are not there; work-items share the common
// dimension as in affine/few.
// Source: own.
// Layouts: a holds the weights (C, or panels as the kernels for full batches have them) and the biases of all layers; b
// FROM, r TO, as in common/place, matrices of WIDTH records, b of L0 rows and r of ROWS; hidden is C.
// LAYERS: affine layers, at most 16. CLASSES: how many rows the arg-max looks at; 0 is no arg-max.
// HIDDEN: rows of hidden.
// Of each layer n: Ln columns of its padded weights, Kn terms of a sum that are no padding, Qn rows in fours, at most
// GROUP_0, ACTn as ACTIVATION in common/activation with the parameters PARAMSn, An and Bn where its weights and its
// biases start in a, in fours, Pn rows of a panel, in fours, Sn where its results start in the record's part of hidden.
// HALF_WEIGHTS: as in common/weights; the biases are floats.
#ifndef GROUP_0
#define GROUP_0 1024
#endif
#if LAYERS < 1 || LAYERS > 16
#error "layers_few: LAYERS must be 1 to 16"
#endif

// `activation` is known to the compiler.
float activated(const uint activation, const float2 params, const float x)
{
    return activation == 1 ? SIGMOID(x)
         : activation == 2 ? RELU(x)
         : activation == 3 ? TANH(x)
         : activation == 4 ? LEAKY_RELU(x)
         : activation == 5 ? CLIP(x) : x;
}

// Layer n: as many slices of its terms as there are terms, and work-items for, then their sums. VALUE: that of term k.
#define LAYER(n, VALUE) \
    { \
        const uint slices = min((uint)K##n, (uint)(GROUP_0 / Q##n)), slice = id / Q##n, quad = id - mul24(slice, (uint)Q##n); \
        const uint panel = quad / P##n; \
        global const UNIT *pa = (global const UNIT *)a + A##n + panel * (P##n * L##n) + (quad - mul24(panel, (uint)P##n)); \
        float4 sum = (float4)(0.0f); \
        if (slice < slices) { \
            _Pragma("unroll 8") for (uint k = slice; k < K##n; k += slices) \
                sum = fma(WIDE(pa[k * P##n]), (float4)(VALUE), sum); \
        } \
        vstore4(sum, id, sums); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (uint row = id; row < 4 * Q##n; row += GROUP_0) { \
            float x = FIRST((global const float *)(a + B##n), row); \
            for (uint s = 0; s < slices; ++s) \
                x += sums[s * (4 * Q##n) + row]; \
            x = activated(ACT##n, (float2)(PARAMS##n), LAST(x, (global const float *)(a + B##n), row)); \
            if (n + 1 < LAYERS) \
                between[S##n + row] = x; \
            else if (row < ROWS) \
                r[PLACE_R(ROWS, WIDTH, row, col)] = x; \
        } \
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); \
    }
#define NEXT(n, m) LAYER(n, between[S##m + k])
#ifdef STEP
#define INPUT input[k * STEP]
#else
#define INPUT b[PLACE_B(L0, WIDTH, k, col)]
#endif

__attribute__((reqd_work_group_size(GROUP_0, 1, 1)))
kernel void layers_few(global const float4 *restrict a,
                       global const float *restrict b,
                       global float *hidden,
                       global float *r,
                       global uint *classes)
{
    local float sums[4 * GROUP_0];
    const uint id = get_local_id(0), col = get_group_id(1);
    global float *between = hidden + col * HIDDEN;
#ifdef STEP
    global const float *input = b + PLACE_B(L0, WIDTH, 0, col);
#endif
    LAYER(0, INPUT)
#if LAYERS > 1
    NEXT(1, 0)
#endif
#if LAYERS > 2
    NEXT(2, 1)
#endif
#if LAYERS > 3
    NEXT(3, 2)
#endif
#if LAYERS > 4
    NEXT(4, 3)
#endif
#if LAYERS > 5
    NEXT(5, 4)
#endif
#if LAYERS > 6
    NEXT(6, 5)
#endif
#if LAYERS > 7
    NEXT(7, 6)
#endif
#if LAYERS > 8
    NEXT(8, 7)
#endif
#if LAYERS > 9
    NEXT(9, 8)
#endif
#if LAYERS > 10
    NEXT(10, 9)
#endif
#if LAYERS > 11
    NEXT(11, 10)
#endif
#if LAYERS > 12
    NEXT(12, 11)
#endif
#if LAYERS > 13
    NEXT(13, 12)
#endif
#if LAYERS > 14
    NEXT(14, 13)
#endif
#if LAYERS > 15
    NEXT(15, 14)
#endif
#if CLASSES
    if (id == 0) {
        float best = r[PLACE_R(ROWS, WIDTH, 0, col)];
        uint at = 0;
        bool refused = !isfinite(best);
        for (uint row = 1; row < CLASSES; ++row) {
            const float x = r[PLACE_R(ROWS, WIDTH, row, col)];
            refused |= !isfinite(x);
            if (x > best) {
                best = x;
                at = row;
            }
        }
        classes[col] = refused ? 0xFFFFFFFFu : at;
    }
#endif
}
