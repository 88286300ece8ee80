// Affine layer with bias and activation where a record's values are contiguous: a work-group computes 16 outputs of 32
// records; eight work-items share the common dimension of each and add their sums up in local memory.
// Differs from affine/tiled: no tiles of operands in local memory, so small layers take little time for one record, and for
// a hundred; the result is as the operand, for the next layer.
// Source: own.
// Layouts: a R_16_1_C; b and r C; bias is plain.
// ACTIVATION: as in common/activation.
// HALF_WEIGHTS: a holds halves; the sums are of floats.
// Dimension 0 runs over work-groups of 16 outputs, dimension 1 over those of records.
#define LANES 32
#define SLICES 8
#define ROWS 4
#ifdef HALF_WEIGHTS
#define WEIGHT half
#define LOAD(p, i) vload_half4((i), (p))
#else
#define WEIGHT float4
#define LOAD(p, i) (p)[i]
#endif

__attribute__((reqd_work_group_size(LANES * SLICES, 1, 1)))
kernel void affine_records(uint l, uint w, uint h, float2 params,
                           global const WEIGHT *restrict a,
                           global const float4 *restrict b,
                           global const float4 *restrict bias,
                           global float4 *restrict r)
{
    local float4 parts[SLICES * ROWS * LANES];
    const uint id = get_local_id(0), slice = id / LANES, lane = id - slice * LANES;
    const uint panel = get_group_id(0), column = get_group_id(1) * LANES + lane;
    global const float4 *values = b + min(column, w - 1) * (l / 4);
    const uint end = (slice + 1) * (l / 4) / SLICES;
    float4 sums[ROWS];
#pragma unroll
    for (uint i = 0; i < ROWS; ++i)
        sums[i] = (float4)(0.0f);
#pragma unroll 4
    for (uint k = slice * (l / 4) / SLICES; k < end; ++k) {
        const float4 v = values[k];
        const uint at = panel * l + 4 * k;
#pragma unroll
        for (uint i = 0; i < ROWS; ++i) {
            sums[i] += LOAD(a, at * ROWS + i) * v.s0;
            sums[i] += LOAD(a, (at + 1) * ROWS + i) * v.s1;
            sums[i] += LOAD(a, (at + 2) * ROWS + i) * v.s2;
            sums[i] += LOAD(a, (at + 3) * ROWS + i) * v.s3;
        }
    }
#pragma unroll
    for (uint i = 0; i < ROWS; ++i)
        parts[(slice * ROWS + i) * LANES + lane] = sums[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    // A slice adds up what all of them have of four outputs.
    if (slice >= ROWS || column >= w)
        return;
    float4 sum = bias[panel * ROWS + slice];
    for (uint s = 0; s < SLICES; ++s)
        sum += parts[(s * ROWS + slice) * LANES + lane];
    r[column * (h / 4) + panel * ROWS + slice] = ACTIVATE(sum);
}
