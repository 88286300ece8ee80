// SGEMM r = alpha * a * b + beta * r: blocked_nt_1x4x4 with its loop in step.
// Differs from blocked_nt_1x4x4: a barrier after every DELTA_K steps (of four each) keeps the
// work-items of a group in step. They then find each other's lines in the cache. l may be any that
// blocked_nt_1x4x4 supports. The last stretch is shorter, with the same length for all work-items.
// With beta = 0, r is not read and may hold NaN.
// Source: ARM, section 1.4.8 and table 1.4 (named there, not listed).
// Layouts: a R, b C (the transpose of ARM's row-major B), r R; l and w are multiples of 4.
//
//   k4:   0 ......... 31 | 32 ........ 63 | 64 .. l/4 |
//                     barrier          barrier     barrier
#ifndef DELTA_K
#define DELTA_K 32
#endif
#if DELTA_K < 1
#error "matmul_cacheblocked_nt_1x4x4: DELTA_K must be at least 1"
#endif

#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_cacheblocked_nt_1x4x4(uint l, uint w,
                                         float alpha, float beta,
                                         global const float4 *restrict a,
                                         global const float4 *restrict b,
                                         global float4 *restrict r)
{
    const uint row = get_global_id(1);
    const uint col = get_global_id(0); // of float4
    const uint l4 = l >> 2;
    global const float4 *pa = a + row * l4;
    global const float4 *pb = b + 4 * col * l4;
    float4 sum = (float4)(0.0f);
    for (uint start = 0; start < l4; start += DELTA_K) {
        const uint end = min(start + DELTA_K, l4);
        for (uint k = start; k < end; ++k) {
            const float4 x = pa[k];
            const float4 b0 = pb[k], b1 = pb[k + l4], b2 = pb[k + 2 * l4], b3 = pb[k + 3 * l4];
            sum += (float4)(dot(x, b0), dot(x, b1), dot(x, b2), dot(x, b3));
        }
        // The barrier only lets work-items catch up. They share no data, but ARM's listing has this
        // fence.
        barrier(CLK_GLOBAL_MEM_FENCE);
    }
    const uint at = row * (w >> 2) + col;
    float4 result = alpha * sum;
    if (beta != 0.0f)
        result += beta * r[at];
    r[at] = result;
}
