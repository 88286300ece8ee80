// Adds the c partial results of an affine layer in order, then bias and activation. Then computes
// the narrow layer behind it, with h outputs. A work-group has one record. Differs from reduce/cm
// and affine/narrow: one launch for both, with the values between them in registers. Source: own.
// Layouts: b C, with c parts of l rows one after the other for each record; a2 R (h x l), r C;
// biases are plain. ACTIVATION: of the first layer, as in common/activation. HALF_WEIGHTS,
// BYTE_WEIGHTS: the format of a2. Sums are floats.
#ifndef GROUP_0
#define GROUP_0 512
#endif
// Most outputs. A work-item loads the weights of all of them together.
#ifndef OUTPUTS
#define OUTPUTS 16
#endif
// Parts that a work-item loads ahead.
#define AHEAD 8
#define SHARES (GROUP_0 / OUTPUTS)

__attribute__((reqd_work_group_size(GROUP_0, 1, 1)))
kernel void reducepair_cm(uint l, uint h, uint c, float2 params,
                          global const float4 *restrict b,
                          global const float4 *restrict bias,
                          global const WEIGHT4 *restrict a2,
                          global const float *restrict bias2,
                          global float *restrict r)
{
    local float sums[OUTPUTS * GROUP_0];
    local float parts[OUTPUTS * (SHARES + 1)];
    const uint id = get_local_id(0), col = get_group_id(1), quads = l / 4;
    global const float4 *pb = b + col * c * quads;
    float sum[OUTPUTS];
#pragma unroll
    for (uint row = 0; row < OUTPUTS; ++row)
        sum[row] = 0.0f;
    for (uint quad = id; quad < quads; quad += GROUP_0) {
        float4 y[OUTPUTS], z[AHEAD];
#pragma unroll
        for (uint row = 0; row < OUTPUTS; ++row)
            y[row] = row < h ? LOAD4(a2, row * quads + quad) : (float4)(0.0f);
        float4 x = pb[quad];
        for (uint part = 1; part < c; part += AHEAD) {
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i)
                z[i] = part + i < c ? pb[(part + i) * quads + quad] : (float4)(0.0f);
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i)
                x += z[i];
        }
        x = LAST(x + FIRST(bias, quad), bias, quad);
        x = ACTIVATE(x);
#pragma unroll
        for (uint row = 0; row < OUTPUTS; ++row)
            sum[row] = fma(y[row].x, x.x,
                           fma(y[row].y, x.y, fma(y[row].z, x.z, fma(y[row].w, x.w, sum[row]))));
    }
    // Each output has GROUP_0 summands. SHARES work-items add some of them each, then one adds the
    // rest.
#pragma unroll
    for (uint row = 0; row < OUTPUTS; ++row)
        if (row < h)
            sums[row * GROUP_0 + id] = sum[row];
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint output = id / SHARES, share = id - mul24(output, (uint)SHARES);
    if (output < h) {
        float s = 0.0f;
        for (uint i = share; i < GROUP_0; i += SHARES)
            s += sums[output * GROUP_0 + i];
        parts[output * (SHARES + 1) + share] = s;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    // Rows behind the outputs are padding and get zeros.
    for (uint row = id; row < h; row += GROUP_0) {
        float s = 0.0f;
        if (row < OUTPUTS) {
            s = FIRST(bias2, row);
            for (uint i = 0; i < SHARES; ++i)
                s += parts[row * (SHARES + 1) + i];
            s = LAST(s, bias2, row);
        }
        r[col * h + row] = s;
    }
}
