// Affine layer on tensor cores with the accuracy of floats: common/products, then bias and
// activation. Differs from affine/tiled: weights go from memory to the registers of the one warp
// that multiplies them, and only values are shared. Source: own. Layouts: a R_32_1_C; b C (a
// record's values are contiguous); r C, with the partial results of a record one after the other.
// ACTIVATION: as in common/activation. HALF_WEIGHTS, BYTE_WEIGHTS: as in common/weights and
// common/bias.

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void affine_mma(uint l, uint w, uint h, float2 params,
                       global const UNIT *restrict a,
                       global const float *restrict b,
                       global const float4 *restrict bias,
                       global float4 *restrict r)
{
    local float stages[LOCAL_FLOATS] __attribute__((aligned(16)));
    const uint tiles = (h + BM - 1) / BM, parts = get_num_groups(0) / tiles;
    const uint part = (uint)get_group_id(0) / tiles, tile = REST((uint)get_group_id(0), tiles);
    const uint first = get_group_id(1) * BN;
    tile_of_product(stages, l, w, h, tile, first, part, parts, params, a, b, bias, r);
}
