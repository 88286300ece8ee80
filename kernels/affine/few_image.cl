// Affine layer of single records, with the weights through the texture path. A work-group computes
// 4 * QUADS rows of one record, and its work-items share the common dimension. Each weight is
// loaded once, four rows at a time. Differs from affine/few: a is an image. Differs from
// affine/image: it computes no absent records. Source: own.
// Layouts: a an RGBA float image whose pixel (x, k) is rows 4x to 4x + 3 of column k (C); b FROM, r
// TO, as in common/place; bias is plain. An image has no panels, so PANEL has no effect.
// ACTIVATION: as in common/activation. HALF_WEIGHTS: a has halves. BYTE_WEIGHTS: a has signed
// bytes. read_imagef returns floats of all. STEP: distance between rows of b, if it is constant.
#ifndef QUADS
#define QUADS 4
#define SLICES 16
#endif
#define GROUP (QUADS * SLICES) // SLICES is a multiple of 4
// Weights that a work-item loads ahead.
#define AHEAD 4
#ifdef BYTE_WEIGHTS
#define PIXEL(x, k) convert_float4(read_imagei(a, pixel, (int2)((x), (k))))
#else
#define PIXEL(x, k) read_imagef(a, pixel, (int2)((x), (k)))
#endif
#ifdef STEP
#define VALUE(k) values[(k) * STEP]
#else
#define VALUE(k) b[PLACE_B(l, w, (k), col)]
#endif

constant sampler_t pixel =
    CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void affine_few_image(uint l, uint w, uint h, float2 params,
                             read_only image2d_t a,
                             global const float *restrict b,
                             global const float *restrict bias,
                             global float *restrict r)
{
    local float sums[4 * GROUP];
    const uint id = get_local_id(0), slice = id / QUADS, lane = id - mul24(slice, (uint)QUADS);
    const uint first = get_group_id(0) * QUADS, quad = first + lane, col = get_group_id(1);
    float4 sum = (float4)(0.0f);
#ifdef STEP
    global const float *values = b + PLACE_B(l, w, 0, col);
#endif
    if (4 * quad < h) {
        uint k = slice;
        for (; k + (AHEAD - 1) * SLICES < l; k += AHEAD * SLICES) {
            float4 weights[AHEAD];
            float x[AHEAD];
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                weights[i] = PIXEL(quad, k + i * SLICES);
                x[i] = VALUE(k + i * SLICES);
            }
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i)
                sum = fma(weights[i], (float4)(x[i]), sum);
        }
        for (; k < l; k += SLICES)
            sum = fma(PIXEL(quad, k), (float4)(VALUE(k)), sum);
    }
    vstore4(sum, id, sums);
    barrier(CLK_LOCAL_MEM_FENCE);
    // Each of the 4 * QUADS results has SLICES summands. Every work-item adds four of them, then
    // one work-item for each result adds the rest.
    float some = 0.0f;
#pragma unroll
    for (uint i = 0; i < 4; ++i)
        some += sums[id + i * GROUP];
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[id] = some;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint row = 4 * first + id;
    if (id >= 4 * QUADS || row >= h)
        return;
    float x = FIRST(bias, row);
#pragma unroll
    for (uint i = 0; i < SLICES / 4; ++i)
        x += sums[id + i * 4 * QUADS];
    r[PLACE_R(h, w, row, col)] = ACTIVATE(LAST(x, bias, row));
}
