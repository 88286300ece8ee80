// Affine layer of single records: a matrix times a vector. A work-group computes QUADS fours of rows of one record, its
// work-items share the common dimension; each weight is loaded once, four rows at a time.
// Differs from affine/narrow: nothing is computed for records that are not there; weights may stand in panels.
// Source: own.
// Layouts: a C, or panels of PANEL rows each (R_PANEL_1_C, as the kernel for full batches has it); b FROM, r TO, as in
// common/place; bias is plain.
// ACTIVATION: as in common/activation.
// HALF_WEIGHTS: as in common/weights.
// STEP: from a row of b to the next, where that is the same for all.
// LINES: a work-item that asks for weights fetches the 128 bytes around them, where other work-groups' rows are, into the
// cache that all share (NVIDIA's GPUs from compute capability 7.5).
#ifndef QUADS
#define QUADS 2
#define SLICES 128
#endif
#ifndef LINES
#define LINES 0
#endif
#define GROUP (QUADS * SLICES)
// Weights under way at a time, of each work-item.
#define AHEAD 4
#ifdef STEP
#define VALUE(k) values[(k) * STEP]
#else
#define VALUE(k) b[PLACE_B(l, w, (k), col)]
#endif

UNIT weights_at(global const UNIT *p)
{
#if LINES && defined(__NV_CL_C_VERSION)
#define LINE_LOAD "ld.global.nc.L1::no_allocate.L2::128B."
#ifdef BYTE_WEIGHTS
    uint x;
    __asm(LINE_LOAD "u32 %0, [%1];" : "=r"(x) : "l"(p));
    return as_char4(x);
#elif defined HALF_WEIGHTS
    ulong x;
    __asm(LINE_LOAD "u64 %0, [%1];" : "=l"(x) : "l"(p));
    return x;
#else
    float4 x;
    __asm(LINE_LOAD "v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(p));
    return x;
#endif
#else
    return *p;
#endif
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
    if (4 * quad < h) {
        global const UNIT *pa = a + panel * fours * l + (quad - panel * fours);
#ifdef STEP
        global const float *values = b + PLACE_B(l, w, 0, col);
#endif
        uint k = slice;
        for (; k + (AHEAD - 1) * SLICES < l; k += AHEAD * SLICES) {
            UNIT weights[AHEAD];
            float x[AHEAD];
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                weights[i] = weights_at(pa + (k + i * SLICES) * fours);
                x[i] = VALUE(k + i * SLICES);
            }
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i)
                sum = fma(WIDE(weights[i]), (float4)(x[i]), sum);
        }
        for (; k < l; k += SLICES)
            sum = fma(WIDE(weights_at(pa + k * fours)), (float4)(VALUE(k)), sum);
    }
    vstore4(sum, id, sums);
    barrier(CLK_LOCAL_MEM_FENCE);
    // 4 * QUADS results of SLICES summands each: first some of each for every work-item, then the rest.
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
