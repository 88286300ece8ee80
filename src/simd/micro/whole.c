// The micro-kernels for whole numbers on 32-bit ARM: products of bytes, scaling, and sums of two
// values. `arm.rs` calls them, and `neon.c` says how they are compiled. They compute the same as
// `whole.rs` and `image.rs`, under the same safety conditions.

#include "neon.h"

// The most windows and vectors of rows in a tile.
#define WINDOWS 2
#define VECTORS 2

// `CWholeTile` of arm.rs. The addresses are those of the tile's first row.
struct whole_tile {
    const uint8_t *x[WINDOWS]; // the packed values of each window
    const int8_t *weights;
    size_t apart; // from one vector of rows to the next in `weights`, in bytes
    size_t lines, runs, line_apart, run_apart, length; // of `PackedRuns`
    const int32_t *start;
    const float *factors, *summands;
    float least, largest;
    uint32_t rounds;
    float *result;
    size_t result_stride;
};

// Loads four bytes into both halves of a vector. In assembly, because compilers that do not know the
// alignment load through core registers and the stack.
INLINE int8x8_t load_group(const uint8_t *from) {
    int8x8_t group;
    __asm__("vld1.32 {%P0[]}, [%1]" : "=w"(group) : "r"(from), "m"(*(const uint8_t(*)[4])from));
    return group;
}

// Adds two products, or one, for each 16 bits. Then adds those of neighbours to the sums.
INLINE void add_products(int32x4_t *sum, int8x8_t x, int8x8_t w, const int8x8_t *second_x, const int8x8_t *second_w) {
    int16x8_t products = vmull_s8(x, w);
    if (second_x)
        products = vmlal_s8(products, *second_x, *second_w);
    *sum = vpadalq_s16(*sum, products);
}

// Adds `pairs` pairs of groups, at least one, to the sums of two windows by two vectors of rows, as
// `whole_tile` does. In assembly, because compilers do not keep everything in registers. q0 to q7
// are the sums, q8 to q11 the weights, and d24 to d27 the values. The products alternate between
// q14 and q15, so that one waits while the other is used.
INLINE void two_by_two(int32x4_t *sums, const uint8_t **x, const int8_t **weights, size_t apart, size_t pairs) {
    const int8_t *second = *weights + apart;
    __asm__ volatile("vldmia %[sums], {d0-d15}\n"
                     "1:\n"
                     "vld1.8 {d16-d19}, [%[first]]!\n"
                     "vld2.32 {d24[],d25[]}, [%[x0]]!\n"
                     "vmull.s8 q14, d16, d24\n"
                     "vmull.s8 q15, d17, d24\n"
                     "vld1.8 {d20-d23}, [%[second]]!\n"
                     "vmlal.s8 q14, d18, d25\n"
                     "vmlal.s8 q15, d19, d25\n"
                     "vld2.32 {d26[],d27[]}, [%[x1]]!\n"
                     "subs %[pairs], %[pairs], #1\n"
                     "vpadal.s16 q0, q14\n"
                     "vpadal.s16 q1, q15\n"
                     "vmull.s8 q14, d20, d24\n"
                     "vmull.s8 q15, d21, d24\n"
                     "vmlal.s8 q14, d22, d25\n"
                     "vmlal.s8 q15, d23, d25\n"
                     "vpadal.s16 q2, q14\n"
                     "vpadal.s16 q3, q15\n"
                     "vmull.s8 q14, d16, d26\n"
                     "vmull.s8 q15, d17, d26\n"
                     "vmlal.s8 q14, d18, d27\n"
                     "vmlal.s8 q15, d19, d27\n"
                     "vpadal.s16 q4, q14\n"
                     "vpadal.s16 q5, q15\n"
                     "vmull.s8 q14, d20, d26\n"
                     "vmull.s8 q15, d21, d26\n"
                     "vmlal.s8 q14, d22, d27\n"
                     "vmlal.s8 q15, d23, d27\n"
                     "vpadal.s16 q6, q14\n"
                     "vpadal.s16 q7, q15\n"
                     "bne 1b\n"
                     "vstmia %[sums], {d0-d15}\n"
                     : [x0] "+r"(x[0]), [x1] "+r"(x[1]), [first] "+r"(*weights), [second] "+r"(second), [pairs] "+r"(pairs)
                     : [sums] "r"(sums)
                     : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15",
                       "cc", "memory");
}

// Computes a tile of M windows by N vectors of rows. A row has two sums next to each other, so a
// vector of four rows has two vectors of sums. Two groups are multiplied at a time: without -128
// among the weights, the sum of two products of bytes has 16 bits.
INLINE void whole_tile(const struct whole_tile *t, const int M, const int N) {
    int32x4_t sums[WINDOWS][VECTORS][2];
    UNROLL
    for (int i = 0; i < N; i++) {
        const int32x4x2_t start = vzipq_s32(vld1q_s32(t->start + i * LANES), vdupq_n_s32(0));
        UNROLL
        for (int m = 0; m < M; m++) {
            sums[m][i][0] = start.val[0];
            sums[m][i][1] = start.val[1];
        }
    }
    const int8_t *weights = t->weights;
    for (size_t line = 0; line < t->lines; line++) {
        for (size_t run = 0; run < t->runs; run++) {
            const size_t first = line * t->line_apart + run * t->run_apart;
            const uint8_t *x[WINDOWS];
            UNROLL
            for (int m = 0; m < M; m++)
                x[m] = t->x[m] + first;
            size_t left = t->length;
            if (M == 2 && N == 2 && left >= 2) {
                two_by_two(&sums[0][0][0], x, &weights, t->apart, left / 2);
                left %= 2;
            }
            for (; left >= 2; left -= 2, weights += 8 * LANES) {
                int8x16_t w[VECTORS][2];
                UNROLL
                for (int i = 0; i < N; i++) {
                    w[i][0] = vld1q_s8(weights + i * t->apart);
                    w[i][1] = vld1q_s8(weights + i * t->apart + 4 * LANES);
                }
                UNROLL
                for (int m = 0; m < M; m++) {
                    const int8x8_t a = load_group(x[m]), b = load_group(x[m] + 4);
                    UNROLL
                    for (int i = 0; i < N; i++) {
                        const int8x8_t low = vget_low_s8(w[i][1]), high = vget_high_s8(w[i][1]);
                        add_products(&sums[m][i][0], a, vget_low_s8(w[i][0]), &b, &low);
                        add_products(&sums[m][i][1], a, vget_high_s8(w[i][0]), &b, &high);
                    }
                    x[m] += 8;
                }
            }
            if (left) {
                UNROLL
                for (int i = 0; i < N; i++) {
                    const int8x16_t w = vld1q_s8(weights + i * t->apart);
                    UNROLL
                    for (int m = 0; m < M; m++) {
                        const int8x8_t a = load_group(x[m]);
                        add_products(&sums[m][i][0], a, vget_low_s8(w), 0, 0);
                        add_products(&sums[m][i][1], a, vget_high_s8(w), 0, 0);
                    }
                }
                weights += 4 * LANES;
            }
        }
    }
    const float32x4_t least = vdupq_n_f32(t->least), largest = vdupq_n_f32(t->largest);
    UNROLL
    for (int i = 0; i < N; i++) {
        const float32x4_t factor = vld1q_f32(t->factors + i * LANES), summand = vld1q_f32(t->summands + i * LANES);
        UNROLL
        for (int m = 0; m < M; m++) {
            const int32x4_t a = sums[m][i][0], b = sums[m][i][1];
            const int32x2_t low = vpadd_s32(vget_low_s32(a), vget_high_s32(a));
            const int32x2_t high = vpadd_s32(vget_low_s32(b), vget_high_s32(b));
            float32x4_t value = multiply_add(summand, vcvtq_f32_s32(vcombine_s32(low, high)), factor);
            if (t->rounds)
                value = nearest(value);
            vst1q_f32(t->result + m * t->result_stride + i * LANES, vminq_f32(largest, vmaxq_f32(least, value)));
        }
    }
}

#define TILE(M, N)                                                                                                     \
    void NAME(whole_##M##x##N)(const struct whole_tile *t) { whole_tile(t, M, N); }
TILE(1, 1)
TILE(1, 2)
TILE(2, 1)
TILE(2, 2)

// Packs `count` floats plus `shift` into bytes, which are the lowest bits of the sums, and returns
// all bits of the sums: those of a byte only, unless a float was NaN, infinite or out of range.
// `shift` is 1.5 * 2^23 less the number that becomes 0.
uint32_t NAME(pack)(const float *from, uint8_t *to, size_t count, float shift) {
    const float one = 12582912.0f;
    uint32x4_t all = vdupq_n_u32(0);
    size_t k = 0;
    for (; k + LANES <= count; k += LANES) {
        const float32x4_t sum = vaddq_f32(vld1q_f32(from + k), vdupq_n_f32(shift));
        const int32x4_t numbers = vsubq_s32(vreinterpretq_s32_f32(sum), vreinterpretq_s32_f32(vdupq_n_f32(one)));
        const int16x4_t pairs = vmovn_s32(numbers);
        const int8x8_t bytes = vmovn_s16(vcombine_s16(pairs, pairs));
        __asm__("vst1.32 {%P1[0]}, [%2]" : "=m"(*(uint8_t(*)[4])(to + k)) : "w"(bytes), "r"(to + k));
        all = vorrq_u32(all, vreinterpretq_u32_s32(vaddq_s32(numbers, vdupq_n_s32(128))));
    }
    uint32x2_t both = vorr_u32(vget_low_u32(all), vget_high_u32(all));
    uint32_t bits = vget_lane_u32(both, 0) | vget_lane_u32(both, 1);
    for (; k < count; k++) {
        union { float value; int32_t bits; } sum = {from[k] + shift}, zero = {one};
        const int32_t number = sum.bits - zero.bits;
        to[k] = (uint8_t)number;
        bits |= (uint32_t)number + 128;
    }
    return bits;
}

// `CScaling` of arm.rs.
struct scaling {
    const float *x;
    float *result;
    const float *numbers[2]; // the factor and the summand of the first row
    size_t count; // a multiple of four
    size_t steps[2]; // from a row to the next: 0 or 1
    size_t turns;
    size_t apart[3]; // from a turn to the next: rows, factors, summands
    uint32_t rounds;
    float least, largest;
};

INLINE float32x4_t load_numbers(const float *from, size_t step) {
    return step ? vld1q_f32(from) : vld1q_dup_f32(from);
}

INLINE void scale_turns(const struct scaling *s, const int rounds) {
    const float32x4_t least = vdupq_n_f32(s->least), largest = vdupq_n_f32(s->largest);
    for (size_t k = 0; k < s->count; k += LANES) {
        const float *factors = s->numbers[0] + k * s->steps[0], *summands = s->numbers[1] + k * s->steps[1];
        const float *x = s->x + k;
        float *result = s->result + k;
        float32x4_t factor = load_numbers(factors, s->steps[0]), summand = load_numbers(summands, s->steps[1]);
        for (size_t turn = 0; turn < s->turns; turn++, x += s->apart[0], result += s->apart[0]) {
            if (s->apart[1] + s->apart[2]) {
                factor = load_numbers(factors + turn * s->apart[1], s->steps[0]);
                summand = load_numbers(summands + turn * s->apart[2], s->steps[1]);
            }
            const float32x4_t sum = multiply_add(summand, vld1q_f32(x), factor);
            const float32x4_t value = rounds ? nearest(sum) : sum;
            vst1q_f32(result, visible(vminq_f32(largest, vmaxq_f32(least, value)), sum));
        }
    }
}

// Computes x * factor + summand for each row.
void NAME(scale)(const struct scaling *s) {
    if (s->rounds)
        scale_turns(s, 1);
    else
        scale_turns(s, 0);
}

// `CSum` of arm.rs.
struct sum {
    const float *x, *y;
    float *result;
    size_t count; // a multiple of four
    float lower[3], upper[3]; // two factors and a summand
    float factor, summand, least, largest;
};

INLINE float32x4_t part(const float *numbers, float32x4_t x, float32x4_t y) {
    const float32x4_t sum = multiply_add(vdupq_n_f32(numbers[2]), x, vdupq_n_f32(numbers[0]));
    return multiply_add(sum, y, vdupq_n_f32(numbers[1]));
}

// Computes a sum of two values, whose products have more digits than a float.
void NAME(sum)(const struct sum *s) {
    const float32x4_t least = vdupq_n_f32(s->least), largest = vdupq_n_f32(s->largest);
    for (size_t i = 0; i < s->count; i += LANES) {
        const float32x4_t x = vld1q_f32(s->x + i), y = vld1q_f32(s->y + i);
        const float32x4_t all = vaddq_f32(part(s->upper, x, y), nearest(part(s->lower, x, y)));
        const float32x4_t value = multiply_add(vdupq_n_f32(s->summand), all, vdupq_n_f32(s->factor));
        vst1q_f32(s->result + i, visible(vminq_f32(largest, vmaxq_f32(least, nearest(value))), value));
    }
}
