// All layers of a small network, and the arg-max, in one launch: a work-group carries one record
// from the input to the class. Only its own work-items wait for each other, between layers. Differs
// from layers/packed_4x4: nothing is computed for records that are not there; work-items share the
// common dimension as in affine/few; values between layers stand in local memory, so there is no
// buffer for them. Source: own. Layouts: a holds the weights (C, or panels as the kernels for full
// batches have them) and the biases of all layers; b FROM, r TO, as in common/place, matrices of
// WIDTH records, b of L0 rows and r of ROWS. LAYERS: affine layers, at most 16; LAST_LAYER is one
// less. CLASSES: how many rows the arg-max looks at; 0 is no arg-max. HIDDEN: the most rows between
// two layers. Of each layer n: Ln columns of its padded weights, Kn terms of a sum that are no
// padding, Qn rows in fours, at most GROUP_0, ACTn as ACTIVATION in common/activation with the
// parameters PARAMSn, An and Bn where its weights and its biases start in a, in fours, Pn rows of a
// panel, in fours. HALF_WEIGHTS: as in common/weights; the biases are floats.
#ifndef GROUP_0
#define GROUP_0 1024
#endif
#if LAYERS < 1 || LAYERS > 16
#error "layers_few: LAYERS must be 1 to 16"
#endif
// Weights under way at a time, of each work-item: a multiple of four.
#define AHEAD 8
// Sums that one work-item adds up without help.
#define ALONE 32
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
// Room for the values of any layer: twice its terms and ALONE * AHEAD suffice for BY_SLICES. The
// scores stand there, too.
#define VALUES LARGER(2 * LARGER(L0, HIDDEN) + ALONE * AHEAD, ROWS)

// `activation` is known to the compiler.
float activated(const uint activation, const float2 params, const float x)
{
    return activation == 1 ? SIGMOID(x)
         : activation == 2 ? RELU(x)
         : activation == 3 ? TANH(x)
         : activation == 4 ? LEAKY_RELU(x)
         : activation == 5 ? CLIP(x) : x;
}

// Layer n: slices share its terms, as many as there are work-items for, but no more than ALONE
// where AHEAD terms suffice for each. Where that is possible, so many that from one term to a
// slice's next are whole lines of 128 bytes: a cache looks up a line at a time, and weights across
// two cost both.
#define WHOLE(n) (P##n % 8 == 0 ? 1u : P##n % 4 == 0 ? 2u : P##n % 2 == 0 ? 4u : 8u)
#define MOST(n) min((uint)(GROUP_0 / Q##n), min((uint)K##n, max((uint)ALONE, (uint)((K##n + AHEAD - 1) / AHEAD))))
#define SLICES(n) (MOST(n) < WHOLE(n) ? MOST(n) : MOST(n) / WHOLE(n) * WHOLE(n))
// Its weights of the first terms, and its biases, are asked for before anybody waits for its
// values.
#define BEGIN(n) \
    const uint slices##n = SLICES(n), strides##n = K##n / (slices##n * AHEAD); \
    const uint rest##n = K##n - strides##n * slices##n * AHEAD; \
    const uint slice##n = id / Q##n, quad##n = id - mul24(slice##n, (uint)Q##n), panel##n = quad##n / P##n; \
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
// The sums of all slices. Where they are many, others add up some of them first.
#define END(n, PLACE) \
    { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        const uint rows = 4 * Q##n, parts = slices##n > ALONE ? min((uint)(GROUP_0 / rows), (uint)16) : slices##n; \
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
            x = activated(ACT##n, (float2)(PARAMS##n), LAST(x, (global const float *)(a + B##n), row)); \
            if (n < LAST_LAYER || CLASSES) \
                values[PLACE] = x; \
            if (n == LAST_LAYER && row < ROWS) \
                r[PLACE_R(ROWS, WIDTH, row, col)] = x; \
        } \
        if (n < LAST_LAYER || CLASSES) \
            barrier(CLK_LOCAL_MEM_FENCE); \
    }
// The end of layer m and the sums of layer n, the next one.
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
