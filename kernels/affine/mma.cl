// Affine layer on tensor cores, with the accuracy of floats: a work-group computes BM rows for BN records, a warp 32 rows
// for all of them.
// Each operand is a sum of two numbers of TF32 (11 binary digits, the exponents of floats: nothing overflows that would
// not as a float); of the four products the three larger ones are summed in floats. Halves and bytes are one such number.
// A product may be four units of 2^-23 off; eight terms have that much beside the errors of their sums.
// Differs from affine/tiled: the same tile, parts and slices; weights go from memory to the registers of the one warp that
// multiplies them, only values are shared. A panel of 32 rows is what a warp takes: a work-item has four rows at a time,
// those of a fragment of mma.m16n8k8 and of the next.
// Where there is no PTX a work-item computes the same sums of the tile that its fragments hold.
// Source: own.
// Layouts: a R_32_1_C; b R, or with RECORDS C (a record's values contiguous); r R, one after the other for each part.
// ACTIVATION: as in common/activation.
// HALF_WEIGHTS, BYTE_WEIGHTS: as in common/weights and common/bias.
//
//   WARPS x SLICES warps; BM = 32 * WARPS, BN = 8 * TILES; slices share the common dimension
#ifndef WARPS
#define WARPS 4
#define TILES 13
#define SLICES 2
#define BK 32
#define STAGES 3
#define RECORDS 0
#endif
// Tiles of columns whose products are under way at a time.
#ifndef TURN
#define TURN 4
#endif
// Stages that weights are loaded ahead.
#ifndef AHEAD
#define AHEAD 2
#endif

// x % n: a pair of / and % is compiled to what oclgrind's check of values does not know.
#define REST(x, n) ((x) - mul24((x) / (uint)(n), (uint)(n)))
#define BM (32 * WARPS)
#define BN (8 * TILES)
#define MEMBERS (32 * WARPS)
#define GROUP (MEMBERS * SLICES)
// Steps of eight that a slice makes in a stage.
#define STEPS (BK / 8 / SLICES)
// Values are read by eight columns (or rows) and four rows (or columns) at a time: from 32 banks.
#if RECORDS
#define WIDTH (BK + 4)
#define STAGE (BN * WIDTH)
#define AT(k, n) ((n) * WIDTH + (k))
#define MOVES (BN * BK)
#else
#define WIDTH (BN + (40 - BN % 32) % 32)
#define STAGE (BK * WIDTH)
#define AT(k, n) ((k) * WIDTH + (n))
#define MOVES (BN * BK / 4)
#endif
// The place is a multiple of eight bytes; that is worth 8 % of a network. oclgrind's check of values takes the other store.
#ifdef __NV_CL_C_VERSION
#define PTX 1
#define DEPTH STAGES
#define STORE2(to, x, y) (*(global float2 *)(to) = (float2)((x), (y)))
#else
#define PTX 0
#define DEPTH 2
#define STORE2(to, x, y) vstore2((float2)((x), (y)), 0, (to))
#endif
#define NB ((MOVES + GROUP - 1) / GROUP)
#define HAS_B(i) (MOVES % GROUP == 0 || id + (i) * GROUP < MOVES)

#if BK % (8 * SLICES) || (SLICES > 1 && DEPTH * STAGE < (SLICES - 1) * 4 * TILES * MEMBERS)
#error "affine_mma: 8 * SLICES divides BK, and the sums of half a warp's rows of every slice fit into the stages"
#endif

#if PTX
// c += a b of 16 rows, 8 columns, 8 terms.
#define MULTIPLY(c, a0, a1, a2, a3, b0, b1) \
    __asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
          : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3]) \
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
// The nearest number of TF32, and (to 11 digits, of which the instruction takes no more) what it lacks.
#define LARGE(x) ((as_uint(x) + 0x1000u) & 0xffffe000u)
#define SMALL(x, large) (as_uint((x) - as_float(large)) + 0x1000u)
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void affine_mma(uint l, uint w, uint h, float2 params,
                       global const UNIT *restrict a,
                       global const float *restrict b,
                       global const float *restrict bias,
                       global float *restrict r)
{
    local float stages[DEPTH * STAGE] __attribute__((aligned(16)));
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = id % MEMBERS;
    const uint lane = id % 32, eighth = lane / 4, quarter = lane % 4;
    const uint tiles = (h + BM - 1) / BM, parts = get_num_groups(0) / tiles;
    const uint part = (uint)get_group_id(0) / tiles, tile = REST((uint)get_group_id(0), tiles);
    const uint depth = ((l + BK - 1) / BK + parts - 1) / parts * BK;
    const uint begin = min(part * depth, l), end = min(begin + depth, l);
    const uint first = get_group_id(1) * BN;
    // Of a last tile of rows some warps have none.
    const uint row = tile * BM + member / 32 * 32;
    const bool has_rows = row < h;

    // Four rows of a column; a warp takes four columns at a time.
    global const UNIT *pa = a + (has_rows ? row : 0) / 4 * l + eighth;
#define LOAD_A(k) ((k) < end && has_rows ? pa[(k) * 8] : (UNIT)(0))

#if RECORDS
    // Single values: neighbours are those of a record.
#define K_OF_B(i) REST(id + (i) * GROUP, BK)
#define COL_OF_B(i) ((id + (i) * GROUP) / BK)
    global const float *pb[NB];
#pragma unroll
    for (uint i = 0; i < NB; ++i)
        pb[i] = b + min(first + COL_OF_B(i), w - 1) * l + K_OF_B(i);
#define FROM_B(k, i) (pb[i] + (k))
#define TO_B(s, i) (stages + (s) * STAGE + AT(K_OF_B(i), COL_OF_B(i)))
#define VALUE float
#else
    // Four records of a row.
#define K_OF_B(i) ((id + (i) * GROUP) / (BN / 4))
#define COL_OF_B(i) (REST(id + (i) * GROUP, BN / 4) * 4)
    global const float *pb[NB];
#pragma unroll
    for (uint i = 0; i < NB; ++i)
        pb[i] = b + K_OF_B(i) * w + min(first + COL_OF_B(i), w - 4);
#define FROM_B(k, i) (pb[i] + (k) * w)
#define TO_B(s, i) (stages + (s) * STAGE + AT(K_OF_B(i), COL_OF_B(i)))
#define VALUE float4
#endif

    // Of each fragment two rows of two columns; fragment m has rows 2 m and 2 m + 1 of the work-item's four.
    float sum[2][TILES][4];
#pragma unroll
    for (uint m = 0; m < 2; ++m)
#pragma unroll
        for (uint j = 0; j < TILES; ++j)
#pragma unroll
            for (uint i = 0; i < 4; ++i)
                sum[m][j][i] = 0.0f;

    const uint shift = slice * (8 * STEPS);
#if PTX
#if RECORDS
#define COPY "cp.async.ca.shared.global [%0], [%1], 4, %2;"
#else
#define COPY "cp.async.cg.shared.global [%0], [%1], 16, %2;"
#endif
#define FETCH(s, k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            if (HAS_B(i)) \
                __asm volatile(COPY ::"r"((uint)(size_t)TO_B(s, i)), "l"(FROM_B(k, i)), \
                               "r"((k) + K_OF_B(i) < end ? (uint)sizeof(VALUE) : 0u) : "memory"); \
    } while (0)
    for (uint s = 0; s < DEPTH - 1; ++s) {
        if (begin + s * BK < end)
            FETCH(s, begin + s * BK);
        __asm volatile("cp.async.commit_group;" ::: "memory");
    }
    UNIT weights[AHEAD][STEPS][2];
#pragma unroll
    for (uint s = 0; s < AHEAD; ++s)
#pragma unroll
        for (uint q = 0; q < 2 * STEPS; ++q)
            weights[s][q / 2][q % 2] = LOAD_A(begin + s * BK + shift + 4 * q + quarter);
#else
#define FILL(s, k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            if (HAS_B(i)) \
                *(local VALUE *)TO_B(s, i) = (k) + K_OF_B(i) < end ? *(global const VALUE *)FROM_B(k, i) : (VALUE)(0.0f); \
    } while (0)
    FILL(0, begin);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    uint stage = 0;
    for (uint k = begin; k < end; k += BK) {
#if PTX
        __asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 2) : "memory");
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k + (DEPTH - 1) * BK < end)
            FETCH((stage + DEPTH - 1) % DEPTH, k + (DEPTH - 1) * BK);
        __asm volatile("cp.async.commit_group;" ::: "memory");
        UNIT next[STEPS][2];
#pragma unroll
        for (uint q = 0; q < 2 * STEPS; ++q)
            next[q / 2][q % 2] = LOAD_A(k + AHEAD * BK + shift + 4 * q + quarter);
        local const float *values = stages + stage * STAGE + AT(shift + quarter, eighth);
#pragma unroll
        for (uint q = 0; q < STEPS; ++q) {
            const float4 x = WIDE(weights[0][q][0]), y = WIDE(weights[0][q][1]);
            // Rows of the work-item, then four columns on.
            const float terms[2][4] = {{x.x, x.y, y.x, y.y}, {x.z, x.w, y.z, y.w}};
            uint large[2][4], small[2][4];
#pragma unroll
            for (uint i = 0; i < 8; ++i) {
                large[i / 4][i % 4] = NARROW ? as_uint(terms[i / 4][i % 4]) : LARGE(terms[i / 4][i % 4]);
                small[i / 4][i % 4] = NARROW ? 0 : SMALL(terms[i / 4][i % 4], large[i / 4][i % 4]);
            }
#pragma unroll
            for (uint j0 = 0; j0 < TILES; j0 += TURN) {
                uint bl[TURN][2], bs[TURN][2];
#pragma unroll
                for (uint j = 0; j < TURN; ++j)
                    if (j0 + j < TILES)
#pragma unroll
                        for (uint i = 0; i < 2; ++i) {
                            const float v = values[AT(q * 8 + i * 4, (j0 + j) * 8)];
                            bl[j][i] = LARGE(v);
                            bs[j][i] = SMALL(v, bl[j][i]);
                        }
#define PRODUCTS(p, q) \
                _Pragma("unroll") for (uint j = 0; j < TURN; ++j) \
                    if (j0 + j < TILES) \
                        _Pragma("unroll") for (uint m = 0; m < 2; ++m) \
                            MULTIPLY(sum[m][j0 + j], p[m][0], p[m][1], p[m][2], p[m][3], q[j][0], q[j][1])
                PRODUCTS(large, bs);
#if !NARROW
                PRODUCTS(small, bl);
#endif
                PRODUCTS(large, bl);
            }
        }
#pragma unroll
        for (uint s = 0; s < AHEAD; ++s)
#pragma unroll
            for (uint q = 0; q < 2 * STEPS; ++q)
                weights[s][q / 2][q % 2] = s + 1 < AHEAD ? weights[s + 1][q / 2][q % 2] : next[q / 2][q % 2];
        stage = (stage + 1) % DEPTH;
#else
        if (k + BK < end)
            FILL(stage ^ 1, k + BK);
        local const float *values = stages + stage * STAGE;
        for (uint q = shift; q < shift + 8 * STEPS; ++q) {
            const float4 x = WIDE(LOAD_A(k + q));
            for (uint j = 0; j < TILES; ++j)
                for (uint i = 0; i < 2; ++i) {
                    const float v = values[AT(q, j * 8 + quarter * 2 + i)];
                    sum[0][j][i] = fma(x.x, v, sum[0][j][i]);
                    sum[0][j][2 + i] = fma(x.y, v, sum[0][j][2 + i]);
                    sum[1][j][i] = fma(x.z, v, sum[1][j][i]);
                    sum[1][j][2 + i] = fma(x.w, v, sum[1][j][2 + i]);
                }
        }
        stage ^= 1;
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }

#if SLICES > 1
    // First the sums of one fragment's rows, then of the other's.
#pragma unroll
    for (uint m = 0; m < 2; ++m) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice > 0) {
#pragma unroll
            for (uint i = 0; i < 4 * TILES; ++i)
                stages[((slice - 1) * (4 * TILES) + i) * MEMBERS + member] = sum[m][i / 4][i % 4];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice == 0) {
#pragma unroll
            for (uint s = 0; s + 1 < SLICES; ++s)
#pragma unroll
                for (uint i = 0; i < 4 * TILES; ++i)
                    sum[m][i / 4][i % 4] += stages[(s * (4 * TILES) + i) * MEMBERS + member];
        }
    }
#endif

    if (slice > 0 || !has_rows)
        return;
    r += part * h * w;
#pragma unroll
    for (uint m = 0; m < 2; ++m)
#pragma unroll
        for (uint n = 0; n < 2; ++n) {
            const uint at = row + 4 * eighth + 2 * m + n;
#pragma unroll
            for (uint j = 0; j < TILES; ++j) {
                const uint col = first + j * 8 + quarter * 2;
                float x = sum[m][j][2 * n], y = sum[m][j][2 * n + 1];
                if (parts == 1) {
                    x += FIRST(bias, at);
                    y += FIRST(bias, at);
                    x = ACTIVATE(LAST(x, bias, at));
                    y = ACTIVATE(LAST(y, bias, at));
                }
                if (col < w)
                    STORE2(r + at * w + col, x, y);
            }
        }
}
