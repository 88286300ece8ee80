// Matrix product, one element of the result per work-item, from tiles in local memory, the sum in
// four lanes.
// Differs from columns_local: the common dimension is contiguous in both tiles, so a step takes a
// float4 of each. The tile is the document's 8x8. The first barrier waits until the tiles are
// there, the second until they are used up.
// Source: tutorial, section 3 (whose listing has lost its barriers, and gathers its operand of b
// from four rows).
// Layouts: a C, b C, r C: M[i + P * j], P rows; h, w and l are multiples of TILE.
//
//   left, a row per work-item i:       right, a column per work-item j:
//   |k 0 1 2 3| 4 5 6 7                |k 0 1 2 3| 4 5 6 7      sum += left * right
#ifndef TILE
#define TILE 8
#endif
#if TILE % 4 != 0
#error "matmul_columns_local_vector: TILE must be a multiple of 4"
#endif
#if defined(GROUP_0) && (GROUP_0 != TILE || GROUP_1 != TILE)
#error "matmul_columns_local_vector: the work-group must be TILE x TILE"
#endif

__attribute__((reqd_work_group_size(TILE, TILE, 1)))
kernel void matmul_columns_local_vector(uint l, uint h,
                                        global const float *restrict a,
                                        global const float *restrict b,
                                        global float *restrict r)
{
    local float left[TILE][TILE];  // [row][k]
    local float right[TILE][TILE]; // [col][k]
    const uint i = get_local_id(0);
    const uint j = get_local_id(1);
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    float4 sum = (float4)(0.0f);
    for (uint start = 0; start < l; start += TILE) {
        left[i][j] = a[row + h * (start + j)];
        right[j][i] = b[start + i + l * col];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; k < TILE; k += 4)
            sum += vload4(0, &left[i][k]) * vload4(0, &right[j][k]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    r[row + h * col] = dot(sum, (float4)(1.0f));
}
