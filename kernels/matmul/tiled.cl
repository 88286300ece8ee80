// Matrix product, one tile of the result per work-group. Operands are staged in local memory, and
// each work-item holds a TM x TN tile in registers.
// Differs from the kernels for small GPUs: an element from global memory is used BM or BN times.
// One from local memory is used TM or TN times.
// Source: own; local memory as in tutorial 3, panels as BLIS packs them, tiles in registers as in
// CUTLASS.
// Layouts: a R_BM_1_C (panels of BM rows, a panel's columns contiguous), b R, r R. The height is a
// multiple of BM. A partial tile leaves out absent columns.
// SLICES: parts of the work-group that share the common dimension, to employ more work-items for a
// small result. Their sums are added in a fixed order at the end.
// ASYNC: the tiles of the next STAGES - 1 steps are copied without registers (cp.async of NVIDIA
// GPUs from compute capability 8.0). Elsewhere two stages pass through registers.
// AHEAD: a work-item loads the operands of the next k while it multiplies the present ones, even
// across barriers. It hides latency with few warps on a multiprocessor, and takes registers.
// SNAKE: odd columns of a work-item's tile are visited upwards, so that the compiler can reuse
// operands.
//
//   a work-group: COLS x ROWS work-items, in warps of LM x LN
//   a, staged:  | k 0: BM rows | k 1: BM rows | ...    b, staged:  | k 0: BN columns | ...
#ifndef TM
#define TM 8
#define TN 8
#define LM 8
#define LN 4
#define WM 2
#define WN 4
#define SLICES 1
#define BK 16
#define STAGES 2
#define SNAKE 1
#define AHEAD 0
#define ASYNC 1
#endif

#define MEMBERS (LM * LN * WM * WN)
#define GROUP (MEMBERS * SLICES)
#define BM (TM * LM * WM)
#define BN (TN * LN * WN)
#define STAGE (BK * (BM + BN))
#if ASYNC && defined(__NV_CL_C_VERSION)
#define PIPED 1
#define DEPTH STAGES
#else
#define PIPED 0
#define DEPTH 2
#endif
// float4 values that a work-item moves in a step. HAS_A and HAS_B are true if its i-th value
// exists.
#define NA ((BM * BK / 4 + GROUP - 1) / GROUP)
#define NB ((BN * BK / 4 + GROUP - 1) / GROUP)
// x % n. A / and % of the same operands compile to an instruction that oclgrind's value check does
// not know.
#define REST(x, n) ((x) - mul24((x) / (uint)(n), (uint)(n)))
#define HAS_A(i) ((BM * BK / 4) % GROUP == 0 || id + (i) * GROUP < BM * BK / 4)
#define HAS_B(i) ((BN * BK / 4) % GROUP == 0 || id + (i) * GROUP < BN * BK / 4)
#define K_OF_A(i) ((id + (i) * GROUP) / (BM / 4))
#define K_OF_B(i) ((id + (i) * GROUP) / (BN / 4))
// Rows of sums that fit into the stages when the slices are added.
#define FIT (DEPTH * STAGE / ((SLICES > 1 ? SLICES - 1 : 1) * TN * MEMBERS))
#define CHUNK (FIT < TM ? FIT : TM)

#if BK % SLICES || BK / SLICES % (1 + AHEAD) || TM % 4 || TN % 4 || FIT < 1
#error "matmul_tiled: SLICES divides BK (twice if AHEAD), 4 divides TM and TN, FIT is 1 or more"
#endif

// The macros below name variables of the kernel.
#if PIPED
// Copies 16 bytes, or zeros where `valid` is false.
#define COPY(to, from, valid) \
    __asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" \
                   ::"r"((uint)(size_t)(to)), "l"(from), "r"((valid) ? 16 : 0) : "memory")
// Starts to copy the operands from term k on into stage s.
#define FETCH(s, k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
            if (HAS_A(i)) \
                COPY(stage_a + (s) * (STAGE / 4) + i * GROUP, pa + (k) * (BM / 4) + i * GROUP, \
                     (k) + K_OF_A(i) < l); \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            if (HAS_B(i)) \
                COPY(stage_b + (s) * (STAGE / 4) + i * GROUP, pb[i] + (k) * w4, \
                     (k) + K_OF_B(i) < l); \
    } while (0)
// Waits until the stage after the last used one has arrived for all work-items.
#define ARRIVED() \
    __asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 2) : "memory"); \
    barrier(CLK_LOCAL_MEM_FENCE)
#else
// Loads the operands from term k on. STORE puts them into stage s.
#define LOAD(k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
            if (HAS_A(i)) \
                next_a[i] = (k) + K_OF_A(i) < l ? pa[(k) * (BM / 4) + i * GROUP] : (float4)(0.0f); \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            if (HAS_B(i)) \
                next_b[i] = (k) + K_OF_B(i) < l ? pb[i][(k) * w4] : (float4)(0.0f); \
    } while (0)
#define STORE(s) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
            if (HAS_A(i)) \
                stage_a[(s) * (STAGE / 4) + i * GROUP] = next_a[i]; \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            if (HAS_B(i)) \
                stage_b[(s) * (STAGE / 4) + i * GROUP] = next_b[i]; \
    } while (0)
#endif
// Loads a work-item's operands of one k. PRODUCTS multiplies them.
#define OPERANDS(xs, ys) \
    _Pragma("unroll") for (uint i = 0; i < TM; i += 4) { \
        const float4 v = *(local const float4 *)(ta + at * BM + i * LM); \
        xs[i] = v.x; xs[i + 1] = v.y; xs[i + 2] = v.z; xs[i + 3] = v.w; \
    } \
    _Pragma("unroll") for (uint j = 0; j < TN; j += 4) { \
        const float4 v = *(local const float4 *)(tb + at * BN + j * LN); \
        ys[j] = v.x; ys[j + 1] = v.y; ys[j + 2] = v.z; ys[j + 3] = v.w; \
    }
#if SNAKE
#define PRODUCTS(xs, ys) \
    _Pragma("unroll") for (uint j = 0; j < TN; ++j) \
        _Pragma("unroll") for (uint n = 0; n < TM; ++n) { \
            const uint i = j % 2 ? TM - 1 - n : n; \
            sum[i][j] = fma(xs[i], ys[j], sum[i][j]); \
        }
#else
#define PRODUCTS(xs, ys) \
    _Pragma("unroll") for (uint i = 0; i < TM; ++i) \
        _Pragma("unroll") for (uint j = 0; j < TN; ++j) \
            sum[i][j] = fma(xs[i], ys[j], sum[i][j]);
#endif
#if AHEAD
// Loads the q-th operands of the slice from the present stage.
#define AHEAD_OPERANDS(to, q) \
    do { \
        const uint at = slice * (BK / SLICES) + (q); \
        local const float *ta = tiles + stage * STAGE + row; \
        local const float *tb = tiles + stage * STAGE + BK * BM + col; \
        OPERANDS(x[to], y[to]) \
    } while (0)
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_tiled(uint l, uint w,
                         global const float4 *restrict a,
                         global const float4 *restrict b,
                         global float *restrict r)
{
    local float tiles[DEPTH * STAGE] __attribute__((aligned(16)));
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = REST(id, MEMBERS);
    const uint lane = REST(member, LM * LN), warp = member / (LM * LN);
    const uint row = REST(warp, WM) * TM * LM + REST(lane, LM) * 4;
    const uint col = (warp / WM) * TN * LN + lane / LM * 4;
    const uint panel = get_group_id(0), first = get_group_id(1) * BN;
    const uint w4 = w / 4;

    global const float4 *pa = a + panel * (BM / 4) * l + id;
    global const float4 *pb[NB];
#pragma unroll
    for (uint i = 0; i < NB; ++i)
        pb[i] = b + K_OF_B(i) * w4 + min(first / 4 + REST(id + i * GROUP, BN / 4), w4 - 1);
    local float4 *stage_a = (local float4 *)tiles + id;
    local float4 *stage_b = stage_a + BK * BM / 4;

    float sum[TM][TN];
#pragma unroll
    for (uint i = 0; i < TM; ++i)
#pragma unroll
        for (uint j = 0; j < TN; ++j)
            sum[i][j] = 0.0f;

#if PIPED
    for (uint s = 0; s < DEPTH - 1; ++s) {
        if (s * BK < l)
            FETCH(s, s * BK);
        __asm volatile("cp.async.commit_group;" ::: "memory");
    }
#else
    float4 next_a[NA], next_b[NB];
    LOAD(0);
    STORE(0);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    uint stage = 0;
#if AHEAD
    float x[2][TM], y[2][TN];
#if PIPED
    ARRIVED();
#endif
    AHEAD_OPERANDS(0, 0);
#endif
    for (uint k = 0; k < l; k += BK) {
#if AHEAD || !PIPED
        const bool more = k + BK < l;
#endif
#if PIPED
#if !AHEAD
        ARRIVED();
#endif
        if (k + (DEPTH - 1) * BK < l)
            FETCH((stage + DEPTH - 1) % DEPTH, k + (DEPTH - 1) * BK);
        __asm volatile("cp.async.commit_group;" ::: "memory");
#else
        if (more)
            LOAD(k + BK);
#endif
#if AHEAD
#pragma unroll
        for (uint q = 0; q < BK / SLICES - 1; ++q) {
            AHEAD_OPERANDS((q + 1) % 2, q + 1);
            PRODUCTS(x[q % 2], y[q % 2])
        }
#else
        local const float *ta = tiles + stage * STAGE + row;
        local const float *tb = tiles + stage * STAGE + BK * BM + col;
#pragma unroll
        for (uint q = 0; q < BK / SLICES; ++q) {
            const uint at = slice * (BK / SLICES) + q;
            float x[TM], y[TN];
            OPERANDS(x, y)
            PRODUCTS(x, y)
        }
#endif
        stage = (stage + 1) % DEPTH;
#if !PIPED
        if (more)
            STORE(stage);
        barrier(CLK_LOCAL_MEM_FENCE);
#elif AHEAD
        ARRIVED();
#endif
#if AHEAD
        if (more)
            AHEAD_OPERANDS(0, 0);
        PRODUCTS(x[1], y[1])
#endif
    }

#if SLICES > 1
#pragma unroll
    for (uint from = 0; from < TM; from += CHUNK) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice > 0) {
#pragma unroll
            for (uint i = 0; i < CHUNK; ++i)
                if (from + i < TM)
#pragma unroll
                    for (uint j = 0; j < TN; ++j)
                        tiles[(((slice - 1) * CHUNK + i) * TN + j) * MEMBERS + member] =
                            sum[from + i][j];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice == 0) {
#pragma unroll
            for (uint s = 0; s + 1 < SLICES; ++s)
#pragma unroll
                for (uint i = 0; i < CHUNK; ++i)
                    if (from + i < TM)
#pragma unroll
                        for (uint j = 0; j < TN; ++j)
                            sum[from + i][j] +=
                                tiles[((s * CHUNK + i) * TN + j) * MEMBERS + member];
        }
    }
    if (slice > 0)
        return;
#endif

#pragma unroll
    for (uint i = 0; i < TM; ++i) {
        const uint at = (panel * BM + row + i / 4 * LM * 4 + i % 4) * w + first;
#pragma unroll
        for (uint j = 0; j < TN; j += 4)
            if (first + col + j * LN < w)
                *(global float4 *)(r + at + col + j * LN) =
                    (float4)(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
    }
}
