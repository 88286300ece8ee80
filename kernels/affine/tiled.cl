// Affine layer for batches of about a hundred records: a work-group computes BM rows for BN
// records, from tiles in local memory, a TM x TN tile in the registers of a work-item.
// Differs from matmul/tiled: the tile is as wide as the batch, so every weight is read once;
// the height alone gives too few work-groups, so several share the common dimension: each
// part writes its own result, which reduce/rm adds up. With one part, bias and activation
// are applied here.
// Source: own.
// Layouts: a R_BM_1_C; b R, or with RECORDS C (a record's values contiguous);
// r R, one after the other for each part. Records of a last part tile are left out.
// ACTIVATION: 0 none, 1 sigmoid, 2 ReLU (NaN stays NaN), 3 tanh.
// SLICES and ASYNC as in matmul/tiled.
//
//   a slice of a work-group: ROWS x COLS work-items; BM = TM * ROWS, BN = TN * COLS
#ifndef ACTIVATION
#define ACTIVATION 0
#endif
#ifndef TM
#define TM 32
#define TN 4
#define ROWS 5
#define COLS 25
#define SLICES 2
#define BK 16
#define STAGES 2
#define RECORDS 0
#define ASYNC 1
#endif

#if ACTIVATION == 0
#define ACTIVATE(x) (x)
#elif ACTIVATION == 1
#define ACTIVATE(x) (1.0f / (1.0f + exp(-(x))))
#elif ACTIVATION == 2
#define ACTIVATE(x) select((x), (float4)(0.0f), isless((x), (float4)(0.0f)))
#elif ACTIVATION == 3
#define ACTIVATE(x) tanh(x)
#else
#error "affine_tiled: ACTIVATION must be 0 (none), 1 (sigmoid), 2 (ReLU) or 3 (tanh)"
#endif

// Whole warps; the last work-items of a slice may repeat what others do.
#define MEMBERS ((ROWS * COLS + 31) / 32 * 32)
#define GROUP (MEMBERS * SLICES)
#define BM (TM * ROWS)
#define BN (TN * COLS)
#define STAGE (BK * (BM + BN))
#if ASYNC && defined(__NV_CL_C_VERSION)
#define PIPED 1
#define DEPTH (RECORDS ? 2 : STAGES)
#else
#define PIPED 0
#define DEPTH 2
#endif
#define NA ((BM * BK / 4 + GROUP - 1) / GROUP)
#define NB ((BN * BK / 4 + GROUP - 1) / GROUP)
#define HAS_A(i) ((BM * BK / 4) % GROUP == 0 || id + (i) * GROUP < BM * BK / 4)
#define HAS_B(i) ((BN * BK / 4) % GROUP == 0 || id + (i) * GROUP < BN * BK / 4)
#define K_OF_A(i) ((id + (i) * GROUP) / (BM / 4))
#define FIT (DEPTH * STAGE / ((SLICES > 1 ? SLICES - 1 : 1) * TN * MEMBERS))
#define CHUNK (FIT < TM ? FIT : TM)

#if BK % SLICES || BK % 4 || TM % 4 || TN % 4 || FIT < 1
#error "affine_tiled: SLICES divides BK, 4 divides BK, TM and TN, and a row of every slice fits into a stage"
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void affine_tiled(uint l, uint w, uint h,
                         global const float4 *restrict a,
                         global const float4 *restrict b,
                         global const float *restrict bias,
                         global float *restrict r)
{
    local float tiles[DEPTH * STAGE] __attribute__((aligned(16)));
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = id % MEMBERS;
    const uint quad = member % COLS, band = min(member / COLS, (uint)(ROWS - 1));
    const uint panels = h / BM, panel = get_group_id(0) % panels;
    const uint parts = get_num_groups(0) / panels, part = get_group_id(0) / panels;
    const uint depth = ((l + BK - 1) / BK + parts - 1) / parts * BK;
    const uint begin = min(part * depth, l), end = min(begin + depth, l);
    const uint first = get_group_id(1) * BN;

    global const float4 *pa = a + panel * (BM / 4) * l + id;
    global const float4 *pb[NB];
#if RECORDS
    // Four values of a record; neighbours read neighbouring records and write consecutively.
#define K_OF_B(i) ((id + (i) * GROUP) / BN * 4)
#define STEP_B(k) ((k) / 4)
#pragma unroll
    for (uint i = 0; i < NB; ++i)
        pb[i] = b + min(first + (id + i * GROUP) % BN, w - 1) * (l / 4) + K_OF_B(i) / 4;
#else
    // Four records of a row.
#define K_OF_B(i) ((id + (i) * GROUP) / (BN / 4))
#define STEP_B(k) ((k) * (w / 4))
#pragma unroll
    for (uint i = 0; i < NB; ++i)
        pb[i] = b + K_OF_B(i) * (w / 4) + min(first / 4 + (id + i * GROUP) % (BN / 4), w / 4 - 1);
#endif
    local float4 *stage_a = (local float4 *)tiles + id;
    local float4 *stage_b = stage_a + BK * BM / 4;

    float4 sum[TM][TN / 4];
#pragma unroll
    for (uint i = 0; i < TM; ++i)
#pragma unroll
        for (uint j = 0; j < TN / 4; ++j)
            sum[i][j] = (float4)(0.0f);

#define COPY(to, from, valid) \
    __asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" \
                   ::"r"((uint)(size_t)(to)), "l"(from), "r"((valid) ? 16 : 0) : "memory")
#define COPY_A(s, k) \
    _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
        if (HAS_A(i)) \
            COPY(stage_a + (s) * (STAGE / 4) + i * GROUP, pa + (k) * (BM / 4) + i * GROUP, (k) + K_OF_A(i) < end)
#define COPY_B(s, k) \
    _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
        if (HAS_B(i)) \
            COPY(stage_b + (s) * (STAGE / 4) + i * GROUP, pb[i] + STEP_B(k), (k) + K_OF_B(i) < end)
#define LOAD_A(k) \
    _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
        if (HAS_A(i)) \
            next_a[i] = (k) + K_OF_A(i) < end ? pa[(k) * (BM / 4) + i * GROUP] : (float4)(0.0f)
#define LOAD_B(k) \
    _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
        if (HAS_B(i)) \
            next_b[i] = (k) + K_OF_B(i) < end ? pb[i][STEP_B(k)] : (float4)(0.0f)
#define STORE_A(s) \
    _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
        if (HAS_A(i)) \
            stage_a[(s) * (STAGE / 4) + i * GROUP] = next_a[i]
#if RECORDS
#define STORE_B(s) \
    _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
        if (HAS_B(i)) { \
            local float *to = tiles + (s) * STAGE + BK * BM + K_OF_B(i) * BN + (id + i * GROUP) % BN; \
            to[0] = next_b[i].x; to[BN] = next_b[i].y; to[2 * BN] = next_b[i].z; to[3 * BN] = next_b[i].w; \
        }
#else
#define STORE_B(s) \
    _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
        if (HAS_B(i)) \
            stage_b[(s) * (STAGE / 4) + i * GROUP] = next_b[i]
#endif

#if PIPED && RECORDS
    float4 next_b[NB];
    COPY_A(0, begin);
    __asm volatile("cp.async.commit_group;" ::: "memory");
    LOAD_B(begin);
    STORE_B(0);
#elif PIPED
    for (uint s = 0; s < DEPTH - 1; ++s) {
        if (begin + s * BK < end) {
            COPY_A(s, begin + s * BK);
            COPY_B(s, begin + s * BK);
        }
        __asm volatile("cp.async.commit_group;" ::: "memory");
    }
#else
    float4 next_a[NA], next_b[NB];
    LOAD_A(begin);
    LOAD_B(begin);
    STORE_A(0);
    STORE_B(0);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    uint stage = 0;
    for (uint k = begin; k < end; k += BK) {
#if PIPED && RECORDS
        const bool more = k + BK < end;
        __asm volatile("cp.async.wait_group 0;" ::: "memory");
        barrier(CLK_LOCAL_MEM_FENCE);
        if (more) {
            COPY_A(stage ^ 1, k + BK);
            LOAD_B(k + BK);
        }
        __asm volatile("cp.async.commit_group;" ::: "memory");
#elif PIPED
        __asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 2) : "memory");
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k + (DEPTH - 1) * BK < end) {
            COPY_A((stage + DEPTH - 1) % DEPTH, k + (DEPTH - 1) * BK);
            COPY_B((stage + DEPTH - 1) % DEPTH, k + (DEPTH - 1) * BK);
        }
        __asm volatile("cp.async.commit_group;" ::: "memory");
#else
        const bool more = k + BK < end;
        if (more) {
            LOAD_A(k + BK);
            LOAD_B(k + BK);
        }
#endif
        local const float4 *ta = (local const float4 *)(tiles + stage * STAGE) + band;
        local const float4 *tb = (local const float4 *)(tiles + stage * STAGE + BK * BM) + quad;
#pragma unroll
        for (uint q = 0; q < BK / SLICES; ++q) {
            const uint at = slice * (BK / SLICES) + q;
            float4 y[TN / 4];
#pragma unroll
            for (uint j = 0; j < TN / 4; ++j)
                y[j] = tb[at * (BN / 4) + j * COLS];
#pragma unroll
            for (uint i = 0; i < TM; i += 4) {
                const float4 x = ta[at * (BM / 4) + i / 4 * ROWS];
#pragma unroll
                for (uint j = 0; j < TN / 4; ++j) {
                    sum[i][j] = fma((float4)(x.x), y[j], sum[i][j]);
                    sum[i + 1][j] = fma((float4)(x.y), y[j], sum[i + 1][j]);
                    sum[i + 2][j] = fma((float4)(x.z), y[j], sum[i + 2][j]);
                    sum[i + 3][j] = fma((float4)(x.w), y[j], sum[i + 3][j]);
                }
            }
        }
#if PIPED && RECORDS
        stage ^= 1;
        if (more)
            STORE_B(stage);
#elif PIPED
        stage = (stage + 1) % DEPTH;
#else
        stage ^= 1;
        if (more) {
            STORE_A(stage);
            STORE_B(stage);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }

#if SLICES > 1
    local float4 *sums = (local float4 *)tiles;
#pragma unroll
    for (uint from = 0; from < TM; from += CHUNK) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice > 0) {
#pragma unroll
            for (uint i = 0; i < CHUNK; ++i)
                if (from + i < TM)
#pragma unroll
                    for (uint j = 0; j < TN / 4; ++j)
                        sums[(((slice - 1) * CHUNK + i) * (TN / 4) + j) * MEMBERS + member] = sum[from + i][j];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice == 0) {
#pragma unroll
            for (uint s = 0; s + 1 < SLICES; ++s)
#pragma unroll
                for (uint i = 0; i < CHUNK; ++i)
                    if (from + i < TM)
#pragma unroll
                        for (uint j = 0; j < TN / 4; ++j)
                            sum[from + i][j] += sums[((s * CHUNK + i) * (TN / 4) + j) * MEMBERS + member];
        }
    }
#endif

    if (slice > 0 || member >= ROWS * COLS)
        return;
    r += part * h * w;
#pragma unroll
    for (uint i = 0; i < TM; ++i) {
        const uint row = panel * BM + (i / 4 * ROWS + band) * 4 + i % 4;
#pragma unroll
        for (uint j = 0; j < TN / 4; ++j) {
            const uint col = first + (j * COLS + quad) * 4;
            float4 x = sum[i][j];
            if (parts == 1) {
                x += bias[row];
                x = ACTIVATE(x);
            }
            if (col < w)
                *(global float4 *)(r + row * w + col) = x;
        }
    }
}
