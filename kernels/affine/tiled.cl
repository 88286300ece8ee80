// Affine layer for batches of about a hundred records. A work-group computes BM rows for BN records
// from tiles in local memory. A work-item holds a TM x TN tile in registers.
// Differs from matmul/tiled: the tile is as wide as the batch, so every weight is read once. The
// height alone gives too few work-groups, so several share the common dimension. Each writes a
// partial result, and reduce/rm adds them. With one part this kernel applies bias and activation.
// Source: own.
// Layouts: a R_BM_1_C; b R, or C with RECORDS (a record's values are contiguous); r R, the parts
// one after the other. A partial tile leaves out absent records.
// ACTIVATION: as in common/activation. SLICES, ASYNC: as in matmul/tiled.
// HALF_WEIGHTS: a has halves, converted to floats on the way into local memory. COLS work-items
// read each weight there, and all would convert it.
//
//   a slice of a work-group: ROWS x COLS work-items; BM = TM * ROWS, BN = TN * COLS
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

// x % n. A / and % of the same operands compile to an instruction that oclgrind's value check does
// not know.
#define REST(x, n) ((x) - mul24((x) / (uint)(n), (uint)(n)))
// Work-items of a slice, in whole warps. The last ones may repeat the work of others.
#define MEMBERS ((ROWS * COLS + 31) / 32 * 32)
#define GROUP (MEMBERS * SLICES)
#define BM (TM * ROWS)
#define BN (TN * COLS)
#define STAGE (BK * (BM + BN))
#if ASYNC && defined(__NV_CL_C_VERSION)
#define PIPED 1
#define DEPTH STAGES
#else
#define PIPED 0
#define DEPTH 2
#endif
#define NA ((BM * BK / 4 + GROUP - 1) / GROUP)
#if RECORDS
#define MOVES (BN * BK)
#else
#define MOVES (BN * BK / 4)
#endif
#define NB ((MOVES + GROUP - 1) / GROUP)
#define HAS_A(i) ((BM * BK / 4) % GROUP == 0 || id + (i) * GROUP < BM * BK / 4)
#define HAS_B(i) (MOVES % GROUP == 0 || id + (i) * GROUP < MOVES)
#define K_OF_A(i) ((id + (i) * GROUP) / (BM / 4))
#define FIT (DEPTH * STAGE / ((SLICES > 1 ? SLICES - 1 : 1) * TN * MEMBERS))
#define CHUNK (FIT < TM ? FIT : TM)

#if BK % SLICES || BK % 8 || TM % 4 || TN % 4 || FIT < 1
#error "affine_tiled: SLICES and 8 divide BK, 4 divides TM and TN, a row of each slice fits a stage"
#endif

// The macros below name variables of the kernel. The first ones say how a work-item moves b.
#if RECORDS
#define VALUE float
#define K_OF_B(i) ((id + (i) * GROUP) / (8 * BN) * 8 + (id + (i) * GROUP) % 8)
#define COL_OF_B(i) REST((id + (i) * GROUP) / 8, BN)
#define STEP_B(k) (k)
#define PLACE_B(s, i) (tiles + (s) * STAGE + BK * BM + K_OF_B(i) * BN + COL_OF_B(i))
#else
#define VALUE float4
#define K_OF_B(i) ((id + (i) * GROUP) / (BN / 4))
#define STEP_B(k) ((k) * (w / 4))
#define PLACE_B(s, i) (stage_b + (s) * (STAGE / 4) + (i) * GROUP)
#endif
#if NARROW || !PIPED
// Loads the weights from term k on. STORE_A puts them into stage s.
#define LOAD_A(k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
            if (HAS_A(i)) \
                next_a[i] = (k) + K_OF_A(i) < end ? pa[(k) * (BM / 4) + i * GROUP] : (UNIT)(0); \
    } while (0)
#define STORE_A(s) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
            if (HAS_A(i)) \
                stage_a[(s) * (STAGE / 4) + i * GROUP] = WIDE(next_a[i]); \
    } while (0)
#endif
#if PIPED
#define COPY(how, bytes, to, from, valid) \
    __asm volatile("cp.async." how ".shared.global [%0], [%1], %2, %3;" \
                   ::"r"((uint)(size_t)(to)), "l"(from), "n"(bytes), "r"((valid) ? bytes : 0) \
                   : "memory")
#if RECORDS
#define COPY_B(to, from, valid) COPY("ca", 4, to, from, valid)
#else
#define COPY_B(to, from, valid) COPY("cg", 16, to, from, valid)
#endif
// Starts to copy the operands from term k on into stage s.
#define FETCH(s, k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
            if (!NARROW && HAS_A(i)) \
                COPY("cg", 16, stage_a + (s) * (STAGE / 4) + i * GROUP, \
                     pa + (k) * (BM / 4) + i * GROUP, (k) + K_OF_A(i) < end); \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            if (HAS_B(i)) \
                COPY_B(PLACE_B(s, i), pb[i] + STEP_B(k), (k) + K_OF_B(i) < end); \
    } while (0)
#else
// Loads the operands from term k on. STORE puts them into stage s.
#define LOAD(k) \
    do { \
        LOAD_A(k); \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            if (HAS_B(i)) \
                next_b[i] = (k) + K_OF_B(i) < end ? pb[i][STEP_B(k)] : (VALUE)(0.0f); \
    } while (0)
#define STORE(s) \
    do { \
        STORE_A(s); \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            if (HAS_B(i)) \
                *PLACE_B(s, i) = next_b[i]; \
    } while (0)
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void affine_tiled(uint l, uint w, uint h, float2 params,
                         global const UNIT *restrict a,
                         global const float4 *restrict b,
                         global const float *restrict bias,
                         global float *restrict r)
{
    local float tiles[DEPTH * STAGE] __attribute__((aligned(16)));
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = id % MEMBERS;
    const uint quad = REST(member, COLS), band = min(member / COLS, (uint)(ROWS - 1));
    const uint panels = h / BM, parts = get_num_groups(0) / panels;
    const uint part = (uint)get_group_id(0) / panels, panel = REST((uint)get_group_id(0), panels);
    const uint depth = ((l + BK - 1) / BK + parts - 1) / parts * BK;
    const uint begin = min(part * depth, l), end = min(begin + depth, l);
    const uint first = get_group_id(1) * BN;

    global const UNIT *pa = a + panel * (BM / 4) * l + id;
#if RECORDS
    // Single values. A warp moves eight values of each of four records, which are whole sectors of
    // memory and go to different banks.
    global const float *pb[NB];
#pragma unroll
    for (uint i = 0; i < NB; ++i)
        pb[i] = (global const float *)b + min(first + COL_OF_B(i), w - 1) * l + K_OF_B(i);
#else
    // Four records of a row.
    global const float4 *pb[NB];
#pragma unroll
    for (uint i = 0; i < NB; ++i)
        pb[i] = b + K_OF_B(i) * (w / 4) + min(first / 4 + REST(id + i * GROUP, BN / 4), w / 4 - 1);
#endif
    local float4 *stage_a = (local float4 *)tiles + id;
    local float4 *stage_b = stage_a + BK * BM / 4;

    float4 sum[TM][TN / 4];
#pragma unroll
    for (uint i = 0; i < TM; ++i)
#pragma unroll
        for (uint j = 0; j < TN / 4; ++j)
            sum[i][j] = (float4)(0.0f);

#if NARROW || !PIPED
    // Weights pass through registers.
    UNIT next_a[NA];
#endif
#if PIPED
    for (uint s = 0; s < DEPTH - 1; ++s) {
        if (begin + s * BK < end)
            FETCH(s, begin + s * BK);
        __asm volatile("cp.async.commit_group;" ::: "memory");
#if NARROW
        LOAD_A(begin + s * BK);
        STORE_A(s);
#endif
    }
#else
    VALUE next_b[NB];
    LOAD(begin);
    STORE(0);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    uint stage = 0;
    for (uint k = begin; k < end; k += BK) {
#if PIPED
        __asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 2) : "memory");
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k + (DEPTH - 1) * BK < end)
            FETCH((stage + DEPTH - 1) % DEPTH, k + (DEPTH - 1) * BK);
        __asm volatile("cp.async.commit_group;" ::: "memory");
#if NARROW
        // The loads overlap the sums. Behind the end they give zeros that nothing reads.
        LOAD_A(k + (DEPTH - 1) * BK);
#endif
#else
        const bool more = k + BK < end;
        if (more)
            LOAD(k + BK);
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
#if PIPED
#if NARROW
        // The previous step has read this stage before the barrier.
        STORE_A((stage + DEPTH - 1) % DEPTH);
#endif
        stage = (stage + 1) % DEPTH;
#else
        stage ^= 1;
        if (more)
            STORE(stage);
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
                        sums[(((slice - 1) * CHUNK + i) * (TN / 4) + j) * MEMBERS + member] =
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
                        for (uint j = 0; j < TN / 4; ++j)
                            sum[from + i][j] +=
                                sums[((s * CHUNK + i) * (TN / 4) + j) * MEMBERS + member];
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
                x += FIRST(bias, row);
                x = ACTIVATE(LAST(x, bias, row));
            }
            if (col < w)
                *(global float4 *)(r + row * w + col) = x;
        }
    }
}
