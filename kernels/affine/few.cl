// Affine layer of single records: a matrix times a vector. A work-group computes 4 * QUADS rows of
// one record, and its work-items share the common dimension. Each weight is loaded once, four rows
// at a time. Differs from affine/narrow: it computes no absent records, and weights may be in
// panels. Source: own.
// Layouts: a C, or R_PANEL_1_C as the kernel for full batches has it; b FROM, r TO, as in
// common/place; bias is plain.
// ACTIVATION: as in common/activation. HALF_WEIGHTS: as in common/weights. STEP: distance between
// rows of b, if it is constant.
// STAGED: number of values that the work-group copies to local memory at a time, a multiple of
// AHEAD * SLICES. A work-item reads the values for its next AHEAD weights in fours. It loads its
// first weights before the copy is complete.
// KEPT: work-groups out of 16 that ask the shared cache to keep their weights for the next record
// (common/cache, needs STAGED). The others ask it to drop them first. Without KEPT none asks.
#ifndef QUADS
#define QUADS 2
#define SLICES 128
#endif
#define GROUP (QUADS * SLICES)
// Weights that a work-item loads ahead.
#define AHEAD 4
#ifdef STEP
#define VALUE(k) values[(k) * STEP]
#else
#define VALUE(k) b[PLACE_B(l, w, (k), col)]
#endif
#ifdef KEPT
#define WEIGHTS_AT(p) ONCE(p, policy)
#else
#define WEIGHTS_AT(p) (*(p))
#endif
// Loads those of the next AHEAD weights for whose number i the condition holds.
#define LOAD_IF(condition) \
    { \
        _Pragma("unroll") for (uint i = 0; i < AHEAD; ++i) \
            if (condition) \
                weights[i] = WEIGHTS_AT(next + i * SLICES * fours); \
    }

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void affine_few(uint l, uint w, uint h, float2 params,
                       global const UNIT *restrict a,
                       global const float *restrict b,
                       global const float *restrict bias,
                       global float *restrict r)
{
    local float sums[4 * GROUP];
    const uint id = get_local_id(0), slice = id / QUADS, lane = id - mul24(slice, (uint)QUADS);
    const uint first = get_group_id(0) * QUADS, quad = first + lane, col = get_group_id(1);
#ifdef PANEL
    const uint panel = quad / (PANEL / 4), fours = PANEL / 4;
#else
    const uint panel = 0, fours = h / 4;
#endif
    float4 sum = (float4)(0.0f);
    global const UNIT *pa = a + panel * fours * l + (quad - panel * fours);
#ifdef STEP
    global const float *values = b + PLACE_B(l, w, 0, col);
#endif
#ifdef STAGED
#ifdef KEPT
    const ulong policy = get_group_id(0) % 16 < KEPT ? STAYS : LEAVES;
#endif
    local float4 in_fours[STAGED / 4];
    local float *staged = (local float *)in_fours;
    for (uint from = 0; from < l; from += STAGED) {
        const uint terms = min(l - from, (uint)STAGED);
        float mine[STAGED / GROUP];
#pragma unroll
        for (uint i = 0; i < STAGED / GROUP; ++i)
            if (id + i * GROUP < terms)
                mine[i] = VALUE(from + id + i * GROUP);
        UNIT weights[AHEAD];
        const uint own = 4 * quad < h ? terms : 0;
        uint k = slice;
        global const UNIT *next = pa + (from + k) * fours;
        if (own > 0)
            LOAD_IF(k + i * SLICES < own)
        if (from > 0)
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint i = 0; i < STAGED / GROUP; ++i)
            if (id + i * GROUP < terms)
                staged[BY_SLICES(id + i * GROUP, SLICES)] = mine[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        local const float4 *at = in_fours + slice * (AHEAD / 4);
#pragma unroll 1
        for (; k < own; at += SLICES * (AHEAD / 4)) {
            float4 x[AHEAD / 4];
#pragma unroll
            for (uint i = 0; i < AHEAD / 4; ++i)
                x[i] = at[i];
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i)
                if (k + i * SLICES < own)
                    sum = fma(WIDE(weights[i]), (float4)(OF_FOURS(x, i)), sum);
            k += AHEAD * SLICES;
            next += AHEAD * SLICES * fours;
            if (k + (AHEAD - 1) * SLICES < own)
                LOAD_IF(true)
            else
                LOAD_IF(k + i * SLICES < own)
        }
    }
#else
    if (4 * quad < h) {
        uint k = slice;
        for (; k + (AHEAD - 1) * SLICES < l; k += AHEAD * SLICES) {
            UNIT weights[AHEAD];
            float x[AHEAD];
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                weights[i] = pa[(k + i * SLICES) * fours];
                x[i] = VALUE(k + i * SLICES);
            }
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i)
                sum = fma(WIDE(weights[i]), (float4)(x[i]), sum);
        }
        for (; k < l; k += SLICES)
            sum = fma(WIDE(pa[k * fours]), (float4)(VALUE(k)), sum);
    }
#endif
    vstore4(sum, id, sums);
    barrier(CLK_LOCAL_MEM_FENCE);
    // Each of the 4 * QUADS results has SLICES summands. Every work-item adds four of them, then
    // one work-item for each result adds the rest.
    float some = 0.0f;
#pragma unroll
    for (uint i = id; i < 4 * GROUP; i += GROUP)
        some += sums[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[id] = some;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint row = 4 * first + id;
    if (id >= 4 * QUADS || row >= h)
        return;
    float x = FIRST(bias, row);
#pragma unroll
    for (uint i = id; i < GROUP; i += 4 * QUADS)
        x += sums[i];
    r[PLACE_R(h, w, row, col)] = ACTIVATE(LAST(x, bias, row));
}
