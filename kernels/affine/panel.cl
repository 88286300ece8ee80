// Affine layer in one launch for CPUs: product, bias and activation in micro-tiles of 32 rows
// by RECORDS columns, whose sums stay in vector registers; SHARE micro-tiles per work-item.
// Differs from affine/packed_4x4: a micro-tile fills a CPU's wide registers, and a work-group
// is one work-item, so that nothing is vectorised across work-items. A k costs two vectors
// of a and RECORDS values of b, each multiplied by both. A work-item passes blocks of k, so
// that what its micro-tiles share stays in the cache; between blocks sums wait in r.
// Source: own, after the micro-kernel of the host engine.
// Layouts: a R_32_1_C, b and r C_16_RECORDS_C (16 rows of a column are neighbours: a vector
// of sums is stored as it stands, and layers chain); bias is plain.
// RECORDS: columns of a micro-tile; 2 * RECORDS sums and a few operands fill 32 registers.
// SHARE: micro-tiles of a work-item, a panel of a with as many tiles of columns; what is left
// of the columns goes tile by tile, with as many panels.
// BLOCK: terms of the sum in a block, a multiple of 16.
// ACTIVATION: as in common/activation.
// HALF_WEIGHTS, BYTE_WEIGHTS: a holds halves, bytes (common/bias); the sums are of floats.

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

// LOAD: a vector of a as floats. Where an instruction does that, Clang's own conversion of whole
// vectors is it; PoCL's vload_half16 costs a tenth more time. LINE: vectors of a cache line.
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

// Asks for AHEAD vectors behind p, the share of 16 columns of a panel, into the second-level
// cache; behind the last panel that is harmless. PoCL's prefetch() is empty; drivers whose
// target is no CPU may not have the compiler's own.
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
            global const WEIGHT *pa = a + 2 * ((size_t)panel * l + start);
            global const float *pb = b + (size_t)RECORDS * ((size_t)tile * l + start);
            global float16 *const to = r + (size_t)RECORDS * (tile * (h / 16) + 2 * panel);
            float16 low[RECORDS], high[RECORDS];
#pragma unroll
            for (uint n = 0; n < RECORDS; ++n) {
                low[n] = start ? to[n] : (float16)(FIRST(bias, 2 * panel));
                high[n] = start ? to[n + RECORDS] : (float16)(FIRST(bias, 2 * panel + 1));
            }
            // The next block, or the next panel: each micro-tile asks for its share.
            global const WEIGHT *next = pa + 2 * length + s * (2 * length / SHARE);
            for (uint chunk = 0; chunk < length; chunk += 16) {
                PREFETCH(next);
                next += AHEAD;
                // All of them: with less, or without the number, LLVM orders them worse.
#pragma unroll 16
                for (uint k = 0; k < 16; ++k) {
                    const float16 x0 = LOAD(pa, 2 * k), x1 = LOAD(pa, 2 * k + 1);
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
            const bool last = start + length == l;
#pragma unroll
            for (uint n = 0; n < RECORDS; ++n) {
                to[n] = last ? ACTIVATE(LAST16(low[n], bias, 2 * panel)) : low[n];
                to[n + RECORDS] = last ? ACTIVATE(LAST16(high[n], bias, 2 * panel + 1)) : high[n];
            }
        }
    }
}
