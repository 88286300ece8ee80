// Affine layer in one launch for CPUs: product, bias and activation of a panel of 32 rows
// for RECORDS columns per work-item, the sums in vector registers.
// Differs from affine/packed_4x4: a work-item is a whole micro-tile of a CPU's wide vectors,
// and a work-group is one work-item, so that nothing is vectorised across work-items. A k
// costs two vectors of a and RECORDS values of b, each multiplied by both.
// Source: own, after the micro-kernel of the host engine.
// Layouts: a R_32_1_C, b and r C_16_RECORDS_C (a vector of 16 rows is a column of a chunk,
// so results are stored as they stand, and layers chain); bias is plain.
// RECORDS: columns of a work-item; 2 * RECORDS sums and 3 vectors fill the registers.
// ACTIVATION: 0 none, 1 sigmoid, 2 ReLU (NaN stays NaN), 3 tanh.
#ifndef ACTIVATION
#define ACTIVATION 0
#endif
#ifndef RECORDS
#define RECORDS 10
#endif
#ifndef GROUP_0
#define GROUP_0 1
#define GROUP_1 1
#endif

#if ACTIVATION == 0
#define ACTIVATE(x) (x)
#elif ACTIVATION == 1
#define ACTIVATE(x) (1.0f / (1.0f + exp(-(x))))
#elif ACTIVATION == 2
#define ACTIVATE(x) select((x), (float16)(0.0f), isless((x), (float16)(0.0f)))
#elif ACTIVATION == 3
#define ACTIVATE(x) tanh(x)
#else
#error "affine_panel: ACTIVATION must be 0 (none), 1 (sigmoid), 2 (ReLU) or 3 (tanh)"
#endif

__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
kernel void affine_panel(uint l, uint h,
                         global const float16 *restrict a,
                         global const float *restrict b,
                         global const float16 *restrict bias,
                         global float16 *restrict r)
{
    const uint j = get_global_id(0);
    const uint i = get_global_id(1);
    float16 low[RECORDS], high[RECORDS];
#pragma unroll
    for (uint n = 0; n < RECORDS; ++n) {
        low[n] = bias[2 * i];
        high[n] = bias[2 * i + 1];
    }
    a += (size_t)i * 2 * l;
    b += (size_t)j * RECORDS * l;
    for (uint chunk = 0; chunk < l; chunk += 16) {
#pragma unroll 4
        for (uint k = 0; k < 16; ++k) {
            const float16 x0 = a[2 * k], x1 = a[2 * k + 1];
#pragma unroll
            for (uint n = 0; n < RECORDS; ++n) {
                const float16 y = (float16)(b[16 * n + k]);
                low[n] = fma(x0, y, low[n]);
                high[n] = fma(x1, y, high[n]);
            }
        }
        a += 32;
        b += 16 * RECORDS;
    }
    r += (size_t)j * RECORDS * (h / 16) + i * 2 * RECORDS;
#pragma unroll
    for (uint n = 0; n < RECORDS; ++n) {
        r[n] = ACTIVATE(low[n]);
        r[n + RECORDS] = ACTIVATE(high[n]);
    }
}
