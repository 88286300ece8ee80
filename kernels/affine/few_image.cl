// Affine layer of single records, the weights through the texture path. A work-group computes QUADS
// fours of rows of one record, its work-items share the common dimension; each weight is loaded
// once, four rows at a time. Differs from affine/few: a is an image; from affine/image: nothing is
// computed for records that are not there. Source: own. Layouts: a an RGBA float image whose pixel
// (x, k) is rows 4x to 4x + 3 of column k (C); b FROM, r TO, as in common/place; bias is plain.
// ACTIVATION: as in common/activation. HALF_WEIGHTS: a is an image of halves; read_imagef gives
// floats of both. BYTE_WEIGHTS: of bytes with a sign. STEP: from a row of b to the next, where that
// is the same for all. PANEL says nothing here: an image has no panels.
#ifndef QUADS
#define QUADS 4
#define SLICES 16
#endif
#define GROUP (QUADS * SLICES) // SLICES is a multiple of 4
// Weights under way at a time, of each work-item.
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
    // 4 * QUADS results of SLICES summands each: first some of each for every work-item, then the
    // rest.
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
