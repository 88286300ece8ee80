// SGEMM r = alpha * a * b + beta * r: blocked_nn with its loop in step.
// Differs from blocked_nn: a barrier after every DELTA_K steps (of four each) keeps the work-items
// of a group in step. They then find each other's lines in the cache. l may be any that blocked_nn
// supports. The last stretch is shorter, with the same length for all work-items. With beta = 0, r
// is not read and may hold NaN.
// Source: ARM, section 1.4.8; its listing 1.13 shows the NT kernel.
// Layouts: a R, b R, r R; l and w are multiples of 4.
//
//   k4:   0 ......... 31 | 32 ........ 63 | 64 .. l/4 |
//                     barrier          barrier     barrier
#ifndef DELTA_K
#define DELTA_K 32
#endif
#if DELTA_K < 1
#error "matmul_cacheblocked_nn: DELTA_K must be at least 1"
#endif

#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_cacheblocked_nn(uint l, uint w,
                                   float alpha, float beta,
                                   global const float4 *restrict a,
                                   global const float4 *restrict b,
                                   global float4 *restrict r)
{
    const uint row = get_global_id(1);
    const uint col = get_global_id(0); // of float4
    const uint l4 = l >> 2;
    const uint w4 = w >> 2;
    global const float4 *pa = a + row * l4;
    global const float4 *pb = b + col;
    float4 sum = (float4)(0.0f);
    for (uint start = 0; start < l4; start += DELTA_K) {
        const uint end = min(start + DELTA_K, l4);
        for (uint k = start; k < end; ++k) {
            const float4 x = pa[k];
            const float4 b0 = pb[0], b1 = pb[w4], b2 = pb[2 * w4], b3 = pb[3 * w4];
            sum += x.s0 * b0 + x.s1 * b1 + x.s2 * b2 + x.s3 * b3;
            pb += 4 * w4;
        }
        // The barrier only lets work-items catch up. They share no data, but ARM's listing has this
        // fence.
        barrier(CLK_GLOBAL_MEM_FENCE);
    }
    const uint at = row * w4 + col;
    float4 result = alpha * sum;
    if (beta != 0.0f)
        result += beta * r[at];
    r[at] = result;
}
