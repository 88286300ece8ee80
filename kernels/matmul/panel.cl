// Matrix product for CPUs: micro-tiles of 32 rows by RECORDS columns, whose sums stay in
// vector registers; SHARE micro-tiles per work-item.
// Differs from matmul/packed_4x4: a micro-tile fills a CPU's wide registers, and a work-group
// is one work-item, so that nothing is vectorised across work-items. affine/panel.cl is
// the same with bias and activation, and says more.
// Source: own, after the micro-kernel of the host engine.
// Layouts: a R_32_1_C, b and r C_16_RECORDS_C.

// Of CPUs whose vectors are shorter Clang says that functions take these otherwise; none is called
// from elsewhere.
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

// Asks for AHEAD vectors behind p, the share of 16 columns of a panel, into the second-level
// cache; behind the last panel that is harmless. PoCL's prefetch() is empty; drivers whose
// target is no CPU may not have the compiler's own.
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
    // Work-items run in the order of dimension 0, which a plan gives the rows: counted anew,
    // those that share panels are neighbours.
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
            // The next block, or the next panel: each micro-tile asks for its share.
            global const float16 *next = pa + 2 * length + s * (2 * length / SHARE);
            for (uint chunk = 0; chunk < length; chunk += 16) {
                PREFETCH(next);
                next += AHEAD;
                // All of them: with less, or without the number, LLVM orders them worse.
#pragma unroll 16
                for (uint k = 0; k < 16; ++k) {
                    const float16 x0 = pa[2 * k], x1 = pa[2 * k + 1];
#pragma unroll
                    for (uint n = 0; n < RECORDS; ++n) {
                        // A function of whole vectors: for a sum of products alone LLVM
                        // would take registers of 256 bits where there are wider ones.
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
