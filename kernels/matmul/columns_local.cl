// Matrix product, one element of the result per work-item, from tiles in local memory.
// Differs from columns: a work-group copies a tile of a and of b, then sums over them. Each
// work-item copies an element of both. An element is loaded TILE times less often. The first
// barrier waits until the tiles are there, the second until they are used up.
// Source: tutorial, section 3 (whose listing has lost its barriers).
// Layouts: a C, b C, r C: M[i + P * j], P rows; h, w and l are multiples of TILE.
//
//                 +----+
//                 |    |     right: TILE x TILE of b, next one below
//                 +----+
//   +----+----+   +----+
//   |    | -> |   |    |     r: the tile of this work-group
//   +----+----+   +----+
//   left: TILE x TILE of a, next one to the right
#ifndef TILE
#define TILE 16
#endif
#if defined(GROUP_0) && (GROUP_0 != TILE || GROUP_1 != TILE)
#error "matmul_columns_local: the work-group must be TILE x TILE"
#endif

__attribute__((reqd_work_group_size(TILE, TILE, 1)))
kernel void matmul_columns_local(uint l, uint h,
                                 global const float *restrict a,
                                 global const float *restrict b,
                                 global float *restrict r)
{
    local float left[TILE][TILE];  // [k][row]
    local float right[TILE][TILE]; // [col][k]
    const uint i = get_local_id(0);
    const uint j = get_local_id(1);
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    float sum = 0.0f;
    for (uint start = 0; start < l; start += TILE) {
        left[j][i] = a[row + h * (start + j)];
        right[j][i] = b[start + i + l * col];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; k < TILE; ++k)
            sum += left[k][i] * right[j][k];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    r[row + h * col] = sum;
}
