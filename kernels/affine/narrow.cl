// Affine layer of few outputs: a work-group computes 4 outputs of 4 records, its work-items share
// the common dimension.
// Differs from affine/tiled: enough work-items for a result that is smaller than one tile.
// Source: own.
// Layouts: a C, b and r R, or with RECORDS C (a record's values contiguous); bias is plain.
// ACTIVATION: as in common/activation.
// HALF_WEIGHTS, BYTE_WEIGHTS: the format of a. Sums are floats.
#ifndef GROUP_0
#define GROUP_0 256
#endif
#ifndef RECORDS
#define RECORDS 0
#endif
// Weights that a work-item loads ahead.
#define AHEAD 12

// Row k of four records.
#if RECORDS
#define VALUES float
#define LOAD_B(k) ((float4)(pb[k], pb[l + (k)], pb[2 * l + (k)], pb[3 * l + (k)]))
#else
#define VALUES float4
#define LOAD_B(k) pb[(k) * (w / 4)]
#endif

__attribute__((reqd_work_group_size(GROUP_0, 1, 1)))
kernel void affine_narrow(uint l, uint w, uint h, float2 params,
                          global const UNIT *restrict a,
                          global const VALUES *restrict b,
                          global const float *restrict bias,
                          global float *restrict r)
{
    local float sums[16 * GROUP_0];
    local float parts[256];
    const uint id = get_local_id(0), row = get_group_id(0), col = get_group_id(1);
    global const VALUES *pb = b + (RECORDS ? 4 * col * l : col);
    float4 s0 = (float4)(0.0f), s1 = s0, s2 = s0, s3 = s0;
    for (uint from = id; from < l; from += AHEAD * GROUP_0) {
#pragma unroll
        for (uint i = 0; i < AHEAD; ++i) {
            const uint k = min(from + i * GROUP_0, l - 1);
            const float4 x = WIDE(a[k * (h / 4) + row]);
            const float4 y = from + i * GROUP_0 < l ? LOAD_B(k) : (float4)(0.0f);
            s0 = fma((float4)(x.x), y, s0);
            s1 = fma((float4)(x.y), y, s1);
            s2 = fma((float4)(x.z), y, s2);
            s3 = fma((float4)(x.w), y, s3);
        }
    }
    // Each of the 16 results has GROUP_0 summands. 16 work-items add a sixteenth each, then one
    // adds the rest.
    local float *to = sums + id;
    to[0 * GROUP_0] = s0.x; to[1 * GROUP_0] = s0.y; to[2 * GROUP_0] = s0.z; to[3 * GROUP_0] = s0.w;
    to[4 * GROUP_0] = s1.x; to[5 * GROUP_0] = s1.y; to[6 * GROUP_0] = s1.z; to[7 * GROUP_0] = s1.w;
    to[8 * GROUP_0] = s2.x; to[9 * GROUP_0] = s2.y;
    to[10 * GROUP_0] = s2.z; to[11 * GROUP_0] = s2.w;
    to[12 * GROUP_0] = s3.x; to[13 * GROUP_0] = s3.y;
    to[14 * GROUP_0] = s3.z; to[15 * GROUP_0] = s3.w;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < 256) {
        local const float *from = sums + id / 16 * GROUP_0 + id % 16;
        float s = 0.0f;
        for (uint i = 0; i < GROUP_0; i += 16)
            s += from[i];
        parts[id] = s;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < 16) {
        float s = 0.0f;
        for (uint i = 0; i < 16; ++i)
            s += parts[id * 16 + i];
        s += FIRST(bias, row * 4 + id / 4);
        r[RECORDS ? (col * 4 + id % 4) * h + row * 4 + id / 4
                  : (row * 4 + id / 4) * w + col * 4 + id % 4] =
            ACTIVATE(LAST(s, bias, row * 4 + id / 4));
    }
}
