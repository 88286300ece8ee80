// Two affine layers in one launch, for networks so small that launches dominate the time. A
// work-group carries one record through both layers. The values between them stay in local memory.
// Source: own.
// Layouts: a C (m x l), a2 R (h x m), b C (a record's values are contiguous), r R; biases are
// plain.
// ACTIVATION: of the values between, as in common/activation.
// HALF_WEIGHTS, BYTE_WEIGHTS: the format of a and a2. Sums are floats.
//
//   first layer:   a work-item has four rows and every n-th column, n = GROUP_0 / (m / 4)
//   second layer:  32 work-items to a row
#ifndef GROUP_0
#define GROUP_0 256
#endif
#ifndef AHEAD
#define AHEAD 20
#endif
#ifndef INPUTS
#define INPUTS 4096
#define MIDDLE 1024
#endif

__attribute__((reqd_work_group_size(GROUP_0, 1, 1)))
kernel void pair_records(uint l, uint m, uint w, uint h, float2 params,
                         global const UNIT *restrict a,
                         global const float *restrict bias,
                         global const WEIGHT *restrict a2,
                         global const float *restrict bias2,
                         global const float *restrict b,
                         global float *restrict r)
{
    local float record[INPUTS + AHEAD * GROUP_0];
    local float4 sums[GROUP_0];
    local float middle[MIDDLE];
    const uint id = get_local_id(0), col = get_group_id(1);
    const uint quads = m / 4, shares = GROUP_0 / quads;
    // Zeros behind the record give every work-item the same number of steps, with AHEAD weights
    // loaded ahead.
    for (uint i = id; i < l + AHEAD * shares; i += GROUP_0)
        record[i] = i < l ? b[col * l + i] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);

    // % is not used, because a / and % of the same operands compile to an instruction that
    // oclgrind's value check does not know.
    const uint share = id / quads, quad = id - mul24(share, quads);
    float4 sum = (float4)(0.0f);
    if (share < shares) {
        global const UNIT *pa = a + quad;
        for (uint k = share; k < l; k += AHEAD * shares) {
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                const uint at = k + i * shares;
                sum = fma(WIDE(pa[min(at, l - 1) * quads]), (float4)(record[at]), sum);
            }
        }
    }
    sums[id] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = id; i < m; i += GROUP_0) {
        local const float *from = (local const float *)sums + i;
        float s = FIRST(bias, i);
        for (uint n = 0; n < shares; ++n)
            s += from[n * m];
        middle[i] = ACTIVATE(LAST(s, bias, i));
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    local float *parts = (local float *)sums;
    for (uint from = 0; from < h; from += GROUP_0 / 32) {
        const uint row = from + id / 32;
        float s = 0.0f;
        if (row < h)
            for (uint k = id % 32; k < m; k += 32)
                s = fma(LOAD(a2, row * m + k), middle[k], s);
        parts[id] = s;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id % 32 == 0 && row < h) {
            s = FIRST(bias2, row);
            for (uint i = 0; i < 32; ++i)
                s += parts[id + i];
            r[row * w + col] = LAST(s, bias2, row);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
