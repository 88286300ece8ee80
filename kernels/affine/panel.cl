// Affine layer for CPUs in one launch: product, bias and activation. A micro-tile has 32 rows by
// RECORDS columns, and its sums stay in vector registers. A work-item computes SHARE micro-tiles.
// Differs from affine/packed_4x4: a micro-tile fills a CPU's wide registers. A work-group is one
// work-item, so compilers do not vectorise across work-items. Source: own, after the micro-kernel
// of the host engine.
// For each k a micro-tile loads two vectors of a and RECORDS values of b. A work-item computes all
// its micro-tiles for one block of k before the next, so that shared data stays in the cache.
// Between blocks the sums are in r.
// Layouts: a R_32_1_C, b and r C_16_RECORDS_C, bias plain. 16 rows of a column are contiguous, so a
// vector of sums is stored without a shuffle, and layers chain.
// RECORDS: columns of a micro-tile. 2 * RECORDS sums and a few operands fill 32 registers.
// SHARE: micro-tiles of a work-item, which share a panel of a. Leftover columns go tile by tile,
// and their micro-tiles share b.
// BLOCK: terms of the sum in a block, a multiple of 16.
// ACTIVATION: as in common/activation. HALF_WEIGHTS, BYTE_WEIGHTS: the format of a. Sums are
// floats.

// Clang warns that passing these vectors depends on the CPU's vector size. Only this file calls
// these functions.
#pragma clang diagnostic ignored "-Wpsabi"
#ifndef RECORDS
#define RECORDS 10
#endif
#ifndef SHARE
#define SHARE 5
#endif
#ifndef BLOCK
#define BLOCK 512
#endif
#ifndef GROUP_0
#define GROUP_0 1
#define GROUP_1 1
#endif

// LOAD reads a vector of a as floats. Clang's conversion of whole vectors uses the CPU's
// instruction, if it has one. PoCL's vload_half16 takes 10 % longer. LINE: vectors in a cache line.
#ifdef BYTE_WEIGHTS
#define LINE 4
#define WEIGHT char16
#define LOAD(p, i) convert_float16((p)[i])
#elif defined HALF_WEIGHTS
#define LINE 2
#if defined(__clang__) && (defined(__F16C__) || defined(__aarch64__))
typedef __fp16 weight16 __attribute__((ext_vector_type(16)));
#define WEIGHT weight16
#define LOAD(p, i) __builtin_convertvector((p)[i], float16)
#else
#define WEIGHT ushort16
#define LOAD(p, i) vload_half16((i), (global const half *)(p))
#endif
#else
#define LINE 1
#define WEIGHT float16
#define LOAD(p, i) (p)[i]
#endif

// Prefetches AHEAD vectors from p on into the second-level cache. They are a micro-tile's share of
// 16 columns of a panel. Behind the last panel this does no harm. PoCL's prefetch() is empty, and
// compilers for other targets may lack the builtin.
#define AHEAD ((32 + SHARE - 1) / SHARE)
#if defined(__x86_64__) || defined(__aarch64__)
#define PREFETCH(p)                                                                    \
    _Pragma("unroll") for (uint q = 0; q < AHEAD; q += LINE) __builtin_prefetch((p) + q, 0, 2)
#else
#define PREFETCH(p)
#endif

__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
kernel void affine_panel(uint l, uint h, float2 params,
                         global const WEIGHT *restrict a,
                         global const float *restrict b,
                         global const float16 *restrict bias,
                         global float16 *restrict r)
{
    // Work-items run in the order of dimension 0, which is that of the rows. Renumbering makes
    // work-items that share panels neighbours.
    const uint tiles = get_global_size(1), shares = tiles / SHARE;
    const uint item = get_global_id(0) + get_global_size(0) * get_global_id(1);
    const uint group = item / tiles, j = item - group * tiles;
    const bool whole = j < shares * SHARE;
    const uint own = whole ? j / shares : 0;
    for (uint start = 0; start < l; start += BLOCK) {
        const uint length = min((uint)BLOCK, l - start);
        for (uint s = 0; s < SHARE; ++s) {
            const uint panel = group * SHARE + (whole ? own : s);
            const uint tile = whole ? (j - own * shares) * SHARE + s : j;
            if (32 * panel >= h)
                break;
            global const WEIGHT *pa = a + 2 * ((size_t)panel * l + start);
            global const float *pb = b + (size_t)RECORDS * ((size_t)tile * l + start);
            global float16 *const to = r + (size_t)RECORDS * (tile * (h / 16) + 2 * panel);
            float16 low[RECORDS], high[RECORDS];
#pragma unroll
            for (uint n = 0; n < RECORDS; ++n) {
                low[n] = start ? to[n] : (float16)(FIRST(bias, 2 * panel));
                high[n] = start ? to[n + RECORDS] : (float16)(FIRST(bias, 2 * panel + 1));
            }
            // Each micro-tile prefetches its share of the next block or panel.
            global const WEIGHT *next = pa + 2 * length + s * (2 * length / SHARE);
            for (uint chunk = 0; chunk < length; chunk += 16) {
                PREFETCH(next);
                next += AHEAD;
                // LLVM orders the instructions worse with less unrolling, or without the number.
#pragma unroll 16
                for (uint k = 0; k < 16; ++k) {
                    const float16 x0 = LOAD(pa, 2 * k), x1 = LOAD(pa, 2 * k + 1);
#pragma unroll
                    for (uint n = 0; n < RECORDS; ++n) {
                        // fma on whole vectors keeps registers of 512 bits in use. For * and + LLVM
                        // chooses 256 bits.
                        low[n] = fma(x0, (float16)(pb[16 * n + k]), low[n]);
                        high[n] = fma(x1, (float16)(pb[16 * n + k]), high[n]);
                    }
                }
                pa += 32;
                pb += 16 * RECORDS;
            }
            const bool last = start + length == l;
#pragma unroll
            for (uint n = 0; n < RECORDS; ++n) {
                to[n] = last ? ACTIVATE(LAST(low[n], bias, 2 * panel)) : low[n];
                to[n + RECORDS] = last ? ACTIVATE(LAST(high[n], bias, 2 * panel + 1)) : high[n];
            }
        }
    }
}
