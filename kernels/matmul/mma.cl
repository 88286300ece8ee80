// Matrix product on tensor cores with the accuracy of floats: common/products. Differs from
// matmul/tiled: mma.m16n8k16 instead of fma, and layouts for it. Source: own. Layouts: a R_32_1_C
// (panels of 32 rows, a panel's columns contiguous), b C, r C.

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_mma(uint l, uint w, uint h,
                       global const float4 *restrict a,
                       global const float *restrict b,
                       global float4 *restrict r)
{
    local float stages[LOCAL_FLOATS] __attribute__((aligned(16)));
    const uint panel = get_group_id(0), first = get_group_id(1) * BN;
    tile_of_product(stages, l, w, h, panel, first, 0, 1, (float2)(0.0f), a, b, 0, r);
}
