// Adds the c parts of an affine layer whose common dimension was shared by work-groups, in their
// order, then bias and activation; then the narrow layer behind it, of h outputs. A work-group has
// a record. Differs from reduce/cm and affine/narrow: one launch for both, and the values between
// them stay in registers. Source: own. Layouts: b C, of each record c parts of l rows after each
// other; a2 R (h x l), r C; biases are plain. ACTIVATION, of the first layer: as in
// common/activation. HALF_WEIGHTS, BYTE_WEIGHTS: a2 holds halves, bytes (common/bias); the sums are
// of floats.
#ifndef GROUP_0
#define GROUP_0 512
#endif
// Most outputs: the weights of all are under way at a time.
#ifndef OUTPUTS
#define OUTPUTS 16
#endif
// Parts that are under way at a time.
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
        x = LAST4(x + FIRST(bias, quad), bias, quad);
        x = ACTIVATE(x);
#pragma unroll
        for (uint row = 0; row < OUTPUTS; ++row)
            sum[row] = fma(y[row].x, x.x, fma(y[row].y, x.y, fma(y[row].z, x.z, fma(y[row].w, x.w, sum[row]))));
    }
    // Each output has GROUP_0 summands: first SHARES work-items add up some of them, then one the
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
    // Rows behind the outputs are padding: they hold zeros.
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
