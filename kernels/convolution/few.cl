// Convolution with bias and activation for few records. A work-item computes four outputs of TN
// columns. Differs from convolution/packed_4x4: columns are the pixels of all records, so it
// computes no absent records, and each weight serves TN pixels. Differs from convolution/records:
// no local memory. Source: own; benches/mali says how it compiles for Mali.
// Layouts: a C, or R_PANEL_1_C as the kernel for full batches has it, with columns in the order ky,
// kx, c; b FROM, r TO, as in common/place; bias is plain.
// ACTIVATION: as in common/activation. ADD: c has the layout of r and is added before the
// activation. HALF_WEIGHTS, BYTE_WEIGHTS: the format of a. Sums are floats. STEP: distance between
// rows of b, if it is constant.
// Dimension 0 runs over fours of outputs, dimension 1 over TN pixels at a time. Each record has its
// own work-groups. Behind the last pixel the last one is computed again and not stored.
#define FOURS (PANEL / 4)
// Value k of pixel t.
#ifdef STEP
#define VALUE(t, k) from[t][(k) * STEP]
#else
#define VALUE(t, k) b[PLACE_B(l, w, row[t] + (k), record)]
#endif
// The place of output i of pixel t.
#define AT(i) PLACE_R(h, w, to[t] + i, record)

__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
kernel void convolution_few(uint l, uint w, uint h, float2 params, uint16 geometry,
                            global const WEIGHT4 *restrict a,
                            global const float *restrict b,
                            global const float4 *restrict bias,
#ifdef ADD
                            global const float *restrict c,
#endif
                            global float *restrict r)
{
    const uint i = get_global_id(0);
    if (4 * i >= OUT_PIXEL)
        return;
    const uint pixels = OUT_HEIGHT * OUT_WIDTH;
    const uint groups = (pixels + GROUP_1 * TN - 1) / (GROUP_1 * TN);
    const uint record = (uint)get_group_id(1) / groups;
    const uint first = ((uint)get_global_id(1) - record * groups * GROUP_1) * TN;
    uint to[TN], top[TN], left[TN];
    float4 sums[TN];
#pragma unroll
    for (uint t = 0; t < TN; ++t) {
        const uint pixel = min(first + t, pixels - 1);
        const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH;
        to[t] = OUT_ROW + 4 * i;
        // Coordinates above or left of the image wrap to large numbers, so one comparison finds
        // both sides.
        top[t] = y * STRIDE_Y - BORDER_TOP;
        left[t] = x * STRIDE_X - BORDER_LEFT;
        sums[t] = (float4)(0.0f);
    }
    if (4 * i < OUTPUTS) {
        const uint panel = i / FOURS;
        global const WEIGHT4 *pa =
            a + UNIT4 * (panel * FOURS * (WINDOW_HEIGHT * WINDOW_WIDTH * GROUP_CHANNELS)
                         + (i - panel * FOURS));
#pragma unroll
        for (uint t = 0; t < TN; ++t)
            sums[t] = FIRST(bias, i);
        for (uint ky = 0; ky < WINDOW_HEIGHT; ++ky)
            for (uint kx = 0; kx < WINDOW_WIDTH; ++kx) {
                bool inside[TN];
                uint row[TN];
#pragma unroll
                for (uint t = 0; t < TN; ++t) {
                    const uint line = top[t] + ky * DILATION_Y, pixel = left[t] + kx * DILATION_X;
                    inside[t] = line < IN_HEIGHT && pixel < IN_WIDTH;
                    row[t] = IN_FIRST + (inside[t] ? line * IN_LINE + pixel * IN_PIXEL : 0);
                }
#ifdef STEP
                global const float *from[TN];
#pragma unroll
                for (uint t = 0; t < TN; ++t)
                    from[t] = b + PLACE_B(l, w, 0, record) + row[t] * STEP;
#endif
                uint k = 0;
#if defined(STEP) && STEP == 1
                if (((l | IN_FIRST | IN_LINE | IN_PIXEL) & 3) == 0)
                    for (; k + 3 < GROUP_CHANNELS; k += 4, pa += UNIT4 * 4 * FOURS) {
                        const float4 w0 = LOAD4(pa, 0), w1 = LOAD4(pa, FOURS);
                        const float4 w2 = LOAD4(pa, 2 * FOURS), w3 = LOAD4(pa, 3 * FOURS);
#pragma unroll
                        for (uint t = 0; t < TN; ++t) {
                            const float4 v =
                                inside[t] ? *(global const float4 *)(from[t] + k) : (float4)(0.0f);
                            sums[t] += w0 * v.s0 + w1 * v.s1 + w2 * v.s2 + w3 * v.s3;
                        }
                    }
#endif
                for (; k < GROUP_CHANNELS; ++k, pa += UNIT4 * FOURS) {
                    const float4 weights = LOAD4(pa, 0);
#pragma unroll
                    for (uint t = 0; t < TN; ++t)
                        sums[t] += weights * (inside[t] ? VALUE(t, k) : 0.0f);
                }
            }
    }
#pragma unroll
    for (uint t = 0; t < TN; ++t) {
        float4 sum = 4 * i < OUTPUTS ? LAST(sums[t], bias, i) : (float4)(0.0f);
        if (first + t >= pixels)
            continue;
        const uint4 at = (uint4)(AT(0), AT(1), AT(2), AT(3));
#ifdef ADD
        sum += (float4)(c[at.s0], c[at.s1], c[at.s2], c[at.s3]);
#endif
        sum = ACTIVATE(sum);
        r[at.s0] = sum.s0;
        r[at.s1] = sum.s1;
        r[at.s2] = sum.s2;
        r[at.s3] = sum.s3;
    }
}
