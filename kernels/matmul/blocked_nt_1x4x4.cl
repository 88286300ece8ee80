// SGEMM r = alpha * a * b + beta * r, a 1x4 tile of the result per work-item, b stored transposed.
// Differs from blocked_nt: blocking 1x4x4, one row of a against four columns of b. It has five
// loads per step instead of four, but reads and writes r as one float4. ARM compares plain and
// cache-blocked loops with it. With beta = 0, r is not read and may hold NaN.
// Source: ARM, section 1.4.10 and table 1.4 (named there, not listed).
// Layouts: a R, b C (the transpose of ARM's row-major B), r R; l and w are multiples of 4.
//
//               b0 b1 b2 b3
//   a -->        0  1  2  3      dot of each pair, summed over l
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void matmul_blocked_nt_1x4x4(uint l, uint w,
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
    for (uint k = 0; k < l4; ++k) {
        const float4 x = pa[k];
        const float4 b0 = pb[k], b1 = pb[k + l4], b2 = pb[k + 2 * l4], b3 = pb[k + 3 * l4];
        sum += (float4)(dot(x, b0), dot(x, b1), dot(x, b2), dot(x, b3));
    }
    const uint at = row * (w >> 2) + col;
    float4 result = alpha * sum;
    if (beta != 0.0f)
        result += beta * r[at];
    r[at] = result;
}
