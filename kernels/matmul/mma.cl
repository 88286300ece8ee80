// A product on tensor cores, with the accuracy of floats: a tile of the result per work-group, its operands staged in local
// memory, a warp 32 FM rows of 32 FN columns.
// Each operand is a sum of two numbers of TF32 (11 binary digits, the exponents of floats: nothing overflows that would not
// as a float, but numbers from 0x1.ffep127 on, half a unit of TF32 below the largest float); of the four products the three larger ones are summed in floats. Eight terms have the accuracy that a product lacks beside the errors of their sums.
// Differs from matmul/tiled: mma.m16n8k8 in place of fma. A work-item takes four rows (columns) of one k at a time, those
// of two fragments of a (of four of b); a k's fours stand in an order that spreads what a warp reads over all banks.
// Where there is no PTX a work-item computes the same sums of the tile that its fragments hold.
// Source: own.
// Layouts: a R_BM_1_C (panels of BM rows, a panel's columns contiguous), b R, r R; the height is a multiple of BM, columns
// of a last part tile are left out.
//
//   WM x WN warps; BM = 32 FM WM, BN = 32 FN WN
#ifndef FM
#define FM 2
#define FN 1
#define WM 2
#define WN 4
#define BK 16
#define STAGES 3
#endif

#define BM (32 * FM * WM)
#define BN (32 * FN * WN)
#define GROUP (32 * WM * WN)
#define STAGE (BK * (BM + BN))
#if WARP
#define DEPTH STAGES
#else
#define DEPTH 2
#endif
// x % n: a pair of / and % is compiled to what oclgrind's check of values does not know.
#define REST(x, n) ((x) - mul24((x) / (uint)(n), (uint)(n)))
// float4 of a stage that a work-item moves.
#define NA (BM * BK / 4 / GROUP)
#define NB (BN * BK / 4 / GROUP)
#define K_OF_A(i) ((id + (i) * GROUP) / (BM / 4))
#define K_OF_B(i) ((id + (i) * GROUP) / (BN / 4))
// The four with number n of those of a k.
#define SPREAD(n, k) ((n) ^ ((k) % 4 * 2))

#if BK % 8 || BM * BK / 4 % GROUP || BN * BK / 4 % GROUP
#error "matmul_mma: 8 divides BK, and work-items share a stage of each operand evenly"
#endif

#if WARP
// The nearest number of TF32, and what it lacks, of which the instruction takes 11 digits: a product is at most 4 units
// of 2^-23 off.
#define LARGE(x) ((as_uint(x) + 0x1000u) & 0xffffe000u)
#define SMALL(x, large) as_uint((x) - as_float(large))
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_mma(uint l, uint w,
                       global const float4 *restrict a,
                       global const float4 *restrict b,
                       global float *restrict r)
{
    local float4 stages[DEPTH * STAGE / 4];
    const uint id = get_local_id(0);
    const uint lane = id % 32, eighth = lane / 4, quarter = lane % 4, warp = id / 32;
    // Fours of rows, of columns.
    const uint row = warp % WM * (8 * FM), col = warp / WM * (8 * FN);
    const uint panel = get_group_id(0), first = get_group_id(1) * BN;
    const uint w4 = w / 4;

    global const float4 *pa = a + panel * (BM / 4) * l + id;
    global const float4 *pb[NB];
#pragma unroll
    for (uint i = 0; i < NB; ++i)
        pb[i] = b + K_OF_B(i) * w4 + min(first / 4 + REST(id + i * GROUP, BN / 4), w4 - 1);
#define TO_A(s, i) (stages + (s) * (STAGE / 4) + K_OF_A(i) * (BM / 4) + SPREAD(REST(id + (i) * GROUP, BM / 4), K_OF_A(i)))
#define TO_B(s, i) (stages + (s) * (STAGE / 4) + BK * BM / 4 + K_OF_B(i) * (BN / 4) + SPREAD(REST(id + (i) * GROUP, BN / 4), K_OF_B(i)))

    // Of each fragment two rows of two columns: fragment m has the rows 2 (m % 2) and the next of the work-item's four with
    // number m / 2, tile j the columns j % 4 of two fours side by side.
    float sum[2 * FM][4 * FN][4];
#pragma unroll
    for (uint m = 0; m < 2 * FM; ++m)
#pragma unroll
        for (uint j = 0; j < 4 * FN; ++j)
#pragma unroll
            for (uint i = 0; i < 4; ++i)
                sum[m][j][i] = 0.0f;

#if WARP
#define FETCH(s, k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
            COPY_16(TO_A(s, i), pa + (k) * (BM / 4) + i * GROUP, (k) + K_OF_A(i) < l ? 16 : 0); \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            COPY_16(TO_B(s, i), pb[i] + (k) * w4, (k) + K_OF_B(i) < l ? 16 : 0); \
    } while (0)
    for (uint s = 0; s < DEPTH - 1; ++s) {
        if (s * BK < l)
            FETCH(s, s * BK);
        COMMIT_COPIES;
    }
#else
#define FILL(s, k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < NA; ++i) \
            *TO_A(s, i) = (k) + K_OF_A(i) < l ? pa[(k) * (BM / 4) + i * GROUP] : (float4)(0.0f); \
        _Pragma("unroll") for (uint i = 0; i < NB; ++i) \
            *TO_B(s, i) = (k) + K_OF_B(i) < l ? pb[i][(k) * w4] : (float4)(0.0f); \
    } while (0)
    FILL(0, 0);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    uint stage = 0;
    for (uint k = 0; k < l; k += BK) {
        local const float4 *ta = stages + stage * (STAGE / 4) + row, *tb = stages + stage * (STAGE / 4) + BK * BM / 4 + col;
#if WARP
        AWAIT_COPIES(DEPTH - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k + (DEPTH - 1) * BK < l)
            FETCH((stage + DEPTH - 1) % DEPTH, k + (DEPTH - 1) * BK);
        COMMIT_COPIES;
        ta += quarter * (BM / 4) + SPREAD(eighth, quarter);
        tb += quarter * (BN / 4) + SPREAD(eighth, quarter);
#pragma unroll
        for (uint q = 0; q < BK / 8; ++q) {
            uint al[2 * FM][4], as[2 * FM][4], bl[4 * FN][2], bs[4 * FN][2];
#pragma unroll
            for (uint f = 0; f < FM; ++f) {
                const float4 x = ta[q * 8 * (BM / 4) + 8 * f], y = ta[(q * 8 + 4) * (BM / 4) + 8 * f];
                const float terms[2][4] = {{x.x, x.y, y.x, y.y}, {x.z, x.w, y.z, y.w}};
#pragma unroll
                for (uint i = 0; i < 8; ++i) {
                    al[2 * f + i / 4][i % 4] = LARGE(terms[i / 4][i % 4]);
                    as[2 * f + i / 4][i % 4] = SMALL(terms[i / 4][i % 4], al[2 * f + i / 4][i % 4]);
                }
            }
#pragma unroll
            for (uint g = 0; g < FN; ++g) {
                const float4 x = tb[q * 8 * (BN / 4) + 8 * g], y = tb[(q * 8 + 4) * (BN / 4) + 8 * g];
                const float terms[4][2] = {{x.x, y.x}, {x.y, y.y}, {x.z, y.z}, {x.w, y.w}};
#pragma unroll
                for (uint i = 0; i < 8; ++i) {
                    bl[4 * g + i / 2][i % 2] = LARGE(terms[i / 2][i % 2]);
                    bs[4 * g + i / 2][i % 2] = SMALL(terms[i / 2][i % 2], bl[4 * g + i / 2][i % 2]);
                }
            }
#define PRODUCTS(p, q) \
            _Pragma("unroll") for (uint m = 0; m < 2 * FM; ++m) \
                _Pragma("unroll") for (uint j = 0; j < 4 * FN; ++j) \
                    MULTIPLY_TF32(sum[m][j], p[m], q[j][0], q[j][1])
            PRODUCTS(al, bs);
            PRODUCTS(as, bl);
            PRODUCTS(al, bl);
        }
        stage = (stage + 1) % DEPTH;
#else
        if (k + BK < l)
            FILL(stage ^ 1, k + BK);
        for (uint q = 0; q < BK; ++q)
            for (uint f = 0; f < FM; ++f) {
                const float4 x = ta[q * (BM / 4) + 8 * f + SPREAD(eighth, q)];
                for (uint g = 0; g < FN; ++g)
                    for (uint i = 0; i < 2; ++i) {
                        const float4 y = tb[q * (BN / 4) + 8 * g + SPREAD(2 * quarter + i, q)];
                        const float ys[4] = {y.x, y.y, y.z, y.w};
                        for (uint j = 0; j < 4; ++j) {
                            sum[2 * f][4 * g + j][i] = fma(x.x, ys[j], sum[2 * f][4 * g + j][i]);
                            sum[2 * f][4 * g + j][2 + i] = fma(x.y, ys[j], sum[2 * f][4 * g + j][2 + i]);
                            sum[2 * f + 1][4 * g + j][i] = fma(x.z, ys[j], sum[2 * f + 1][4 * g + j][i]);
                            sum[2 * f + 1][4 * g + j][2 + i] = fma(x.w, ys[j], sum[2 * f + 1][4 * g + j][2 + i]);
                        }
                    }
            }
        stage ^= 1;
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }

#pragma unroll
    for (uint m = 0; m < 2 * FM; ++m)
#pragma unroll
        for (uint n = 0; n < 2; ++n) {
            const uint at = (panel * BM + 4 * (row + m / 2 * 8 + eighth) + 2 * (m % 2) + n) * w;
#pragma unroll
            for (uint g = 0; g < FN; ++g)
#pragma unroll
                for (uint i = 0; i < 2; ++i) {
                    const uint c = first + 4 * (col + 8 * g + 2 * quarter + i);
                    if (c < w)
                        *(global float4 *)(r + at + c) = (float4)(sum[m][4 * g][2 * n + i], sum[m][4 * g + 1][2 * n + i],
                                                                  sum[m][4 * g + 2][2 * n + i], sum[m][4 * g + 3][2 * n + i]);
                }
        }
}
