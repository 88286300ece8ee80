// All layers of a small network, and the arg-max, in one launch. A work-group computes one record
// from input to class, and only its own work-items wait for each other between layers. Differs from
// layers/packed_4x4: it computes no absent records. Work-items share the common dimension as in
// affine/few, and values between layers are in local memory. Source: own.
// Layouts: a holds the weights (C, or panels as the kernels for full batches have them) and the
// biases of all layers; b FROM, r TO, as in common/place, with WIDTH records. b has L0 rows and r
// has ROWS.
// LAYERS: affine layers, at most 16. LAST_LAYER: LAYERS - 1. CLASSES: rows that the arg-max
// compares, 0 for no arg-max. HIDDEN: the most rows between two layers. HALF_WEIGHTS: as in
// common/weights. Biases are floats.
// For each layer n: Ln columns of its padded weights; Kn terms of a sum without padding; Qn rows in
// fours, at most GROUP_0; ACTn as ACTIVATION in common/activation, with the parameters PARAMSn; An
// and Bn the offsets of its weights and biases in a, in fours; Pn rows of a panel, in fours.
#ifndef GROUP_0
#define GROUP_0 1024
#endif
#if LAYERS < 1 || LAYERS > 16
#error "layers_few: LAYERS must be 1 to 16"
#endif
// Weights that a work-item loads ahead, a multiple of four.
#define AHEAD 8
// Most sums that one work-item adds without help.
#define ALONE 32
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
// Local memory for the values of any layer and for the scores. BY_SLICES needs at most twice the
// terms plus ALONE * AHEAD.
#define VALUES LARGER(2 * LARGER(L0, HIDDEN) + ALONE * AHEAD, ROWS)

// The compiler knows `activation`.
float activated(const uint activation, const float2 params, const float x)
{
    return activation == 1 ? SIGMOID(x)
         : activation == 2 ? RELU(x)
         : activation == 3 ? TANH(x)
         : activation == 4 ? LEAKY_RELU(x)
         : activation == 5 ? CLIP(x) : x;
}

// Slices share the terms of layer n. There are at most as many slices as work-items allow, and at
// most ALONE unless a slice would then have more than AHEAD terms. If possible, a slice's terms are
// a multiple of 128 bytes apart. The cache looks up one line of 128 bytes at a time, and a load
// across two lines costs two look-ups.
#define WHOLE(n) (P##n % 8 == 0 ? 1u : P##n % 4 == 0 ? 2u : P##n % 2 == 0 ? 4u : 8u)
#define MOST(n) \
    min((uint)(GROUP_0 / Q##n), \
        min((uint)K##n, max((uint)ALONE, (uint)((K##n + AHEAD - 1) / AHEAD))))
#define SLICES(n) (MOST(n) < WHOLE(n) ? MOST(n) : MOST(n) / WHOLE(n) * WHOLE(n))
// Loads the first weights and the biases of layer n, before any work-item waits for values.
#define BEGIN(n) \
    const uint slices##n = SLICES(n), strides##n = K##n / (slices##n * AHEAD); \
    const uint rest##n = K##n - strides##n * slices##n * AHEAD; \
    const uint slice##n = id / Q##n, quad##n = id - mul24(slice##n, (uint)Q##n); \
    const uint panel##n = quad##n / P##n; \
    global const UNIT *from##n = (global const UNIT *)a + A##n + panel##n * (P##n * L##n) \
                               + (quad##n - mul24(panel##n, (uint)P##n)) + slice##n * P##n; \
    UNIT weights##n[AHEAD]; \
    if (slice##n < slices##n) { \
        if (strides##n > 0) { \
            LOAD_IF(n, true) \
        } else { \
            LOAD_IF(n, IN_REST(n)) \
        } \
    } \
    const float bias##n = id < 4 * Q##n ? FIRST((global const float *)(a + B##n), id) : 0.0f;
#define IN_REST(n) (i * slices##n < rest##n && slice##n + i * slices##n < rest##n)
#define LOAD_IF(n, condition) \
    _Pragma("unroll") for (uint i = 0; i < AHEAD; ++i) \
        if (condition) \
            weights##n[i] = from##n[i * (slices##n * P##n)]; \
    from##n += AHEAD * (slices##n * P##n);
#define ADD_IF(n, condition) \
    { \
        float4 x[AHEAD / 4]; \
        _Pragma("unroll") for (uint i = 0; i < AHEAD / 4; ++i) \
            x[i] = at[i]; \
        _Pragma("unroll") for (uint i = 0; i < AHEAD; ++i) \
            if (condition) \
                sum = fma(WIDE(weights##n[i]), (float4)(OF_FOURS(x, i)), sum); \
        at += slices##n * (AHEAD / 4); \
    }
#define SUMS(n) \
    { \
        float4 sum = (float4)(0.0f); \
        if (slice##n < slices##n) { \
            local const float4 *at = in_fours + slice##n * (AHEAD / 4); \
            if (strides##n > 0) \
                ADD_IF(n, true) \
            _Pragma("unroll 1") for (uint stride = 1; stride < strides##n; ++stride) { \
                LOAD_IF(n, true) \
                ADD_IF(n, true) \
            } \
            if (rest##n > 0) { \
                if (strides##n > 0) { \
                    LOAD_IF(n, IN_REST(n)) \
                } \
                ADD_IF(n, IN_REST(n)) \
            } \
        } \
        vstore4(sum, id, sums); \
    }
// Adds the sums of all slices. If there are more than ALONE, more work-items first add some of
// them.
#define END(n, PLACE) \
    { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        const uint rows = 4 * Q##n; \
        const uint parts = \
            slices##n > ALONE ? min((uint)(GROUP_0 / rows), (uint)16) : slices##n; \
        if (slices##n > ALONE) { \
            const uint part = id / rows; \
            float some = 0.0f; \
            if (part < parts) \
                _Pragma("unroll 16") for (uint s = part; s < slices##n; s += parts) \
                    some += sums[s * rows + (id - part * rows)]; \
            barrier(CLK_LOCAL_MEM_FENCE); \
            if (part < parts) \
                sums[id] = some; \
            barrier(CLK_LOCAL_MEM_FENCE); \
        } \
        for (uint row = id; row < rows; row += GROUP_0) { \
            float x = row < GROUP_0 ? bias##n : FIRST((global const float *)(a + B##n), row); \
            _Pragma("unroll 32") for (uint s = 0; s < parts; ++s) \
                x += sums[s * rows + row]; \
            x = activated(ACT##n, (float2)(PARAMS##n), \
                          LAST(x, (global const float *)(a + B##n), row)); \
            if (n < LAST_LAYER || CLASSES) \
                values[PLACE] = x; \
            if (n == LAST_LAYER && row < ROWS) \
                r[PLACE_R(ROWS, WIDTH, row, col)] = x; \
        } \
        if (n < LAST_LAYER || CLASSES) \
            barrier(CLK_LOCAL_MEM_FENCE); \
    }
// Ends layer m, then computes the sums of the next layer n.
#define NEXT(m, n) \
    BEGIN(n) \
    END(m, BY_SLICES(row, slices##n)) \
    SUMS(n)
#define RESULT_OF(n) END(n, row)
#ifdef STEP
#define INPUT(k) input[(k) * STEP]
#else
#define INPUT(k) b[PLACE_B(L0, WIDTH, (k), col)]
#endif

__attribute__((reqd_work_group_size(GROUP_0, 1, 1)))
kernel void layers_few(global const float4 *restrict a,
                       global const float *restrict b,
                       global float *r,
                       global uint *classes)
{
    local float sums[4 * GROUP_0];
    local float4 in_fours[(VALUES + 3) / 4];
    local float *values = (local float *)in_fours;
    const uint id = get_local_id(0), col = get_group_id(1);
#ifdef STEP
    global const float *input = b + PLACE_B(L0, WIDTH, 0, col);
#endif
    const float first = id < K0 ? INPUT(id) : 0.0f;
    BEGIN(0)
    if (id < K0)
        values[BY_SLICES(id, slices0)] = first;
    for (uint k = id + GROUP_0; K0 > GROUP_0 && k < K0; k += GROUP_0)
        values[BY_SLICES(k, slices0)] = INPUT(k);
    barrier(CLK_LOCAL_MEM_FENCE);
    SUMS(0)
#if LAYERS > 1
    NEXT(0, 1)
#endif
#if LAYERS > 2
    NEXT(1, 2)
#endif
#if LAYERS > 3
    NEXT(2, 3)
#endif
#if LAYERS > 4
    NEXT(3, 4)
#endif
#if LAYERS > 5
    NEXT(4, 5)
#endif
#if LAYERS > 6
    NEXT(5, 6)
#endif
#if LAYERS > 7
    NEXT(6, 7)
#endif
#if LAYERS > 8
    NEXT(7, 8)
#endif
#if LAYERS > 9
    NEXT(8, 9)
#endif
#if LAYERS > 10
    NEXT(9, 10)
#endif
#if LAYERS > 11
    NEXT(10, 11)
#endif
#if LAYERS > 12
    NEXT(11, 12)
#endif
#if LAYERS > 13
    NEXT(12, 13)
#endif
#if LAYERS > 14
    NEXT(13, 14)
#endif
#if LAYERS > 15
    NEXT(14, 15)
#endif
    RESULT_OF(LAST_LAYER)
#if CLASSES
    if (id == 0) {
        float best = values[0];
        uint at = 0;
        bool refused = !isfinite(best);
        for (uint row = 1; row < CLASSES; ++row) {
            const float x = values[row];
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
