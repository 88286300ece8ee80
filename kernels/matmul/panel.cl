// Matrix product for CPUs. A micro-tile has 32 rows by RECORDS columns, and its sums stay in vector
// registers. A work-item computes SHARE micro-tiles. Differs from matmul/packed_4x4: a micro-tile
// fills a CPU's wide registers. A work-group is one work-item, so compilers do not vectorise across
// work-items. affine/panel.cl, with bias and activation, explains more. Source: own, after the
// micro-kernel of the host engine. Layouts: a R_32_1_C, b and r C_16_RECORDS_C.

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

// Prefetches AHEAD vectors from p on into the second-level cache. They are a micro-tile's share of
// 16 columns of a panel. Behind the last panel this does no harm. PoCL's prefetch() is empty, and
// compilers for other targets may lack the builtin.
#define AHEAD ((32 + SHARE - 1) / SHARE)
#if defined(__x86_64__) || defined(__aarch64__)
#define PREFETCH(p)                                                                    \
    _Pragma("unroll") for (uint q = 0; q < AHEAD; ++q) __builtin_prefetch((p) + q, 0, 2)
#else
#define PREFETCH(p)
#endif

__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
kernel void matmul_panel(uint l, uint h,
                         global const float16 *restrict a,
                         global const float *restrict b,
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
            global const float16 *pa = a + 2 * ((size_t)panel * l + start);
            global const float *pb = b + (size_t)RECORDS * ((size_t)tile * l + start);
            global float16 *const to = r + (size_t)RECORDS * (tile * (h / 16) + 2 * panel);
            float16 low[RECORDS], high[RECORDS];
#pragma unroll
            for (uint n = 0; n < RECORDS; ++n) {
                low[n] = start ? to[n] : (float16)(0.0f);
                high[n] = start ? to[n + RECORDS] : (float16)(0.0f);
            }
            // Each micro-tile prefetches its share of the next block or panel.
            global const float16 *next = pa + 2 * length + s * (2 * length / SHARE);
            for (uint chunk = 0; chunk < length; chunk += 16) {
                PREFETCH(next);
                next += AHEAD;
                // LLVM orders the instructions worse with less unrolling, or without the number.
#pragma unroll 16
                for (uint k = 0; k < 16; ++k) {
                    const float16 x0 = pa[2 * k], x1 = pa[2 * k + 1];
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
#pragma unroll
            for (uint n = 0; n < RECORDS; ++n) {
                to[n] = low[n];
                to[n + RECORDS] = high[n];
            }
        }
    }
}
