// The micro-kernels for whole numbers on 32-bit ARM: products of bytes, depthwise convolutions,
// scaling, and sums of two values. `arm.rs` calls them, and `neon.c` says how they are compiled.
// They compute the same as `whole.rs`, `bytes.rs` and `image.rs`, under the same safety conditions.

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
    uint32_t rounds, bytes; // true if results are rounded, and if they are bytes
    int32_t low; // the number whose byte is 0
    void *result;
    size_t result_stride; // in values
};

// Loads four bytes into both halves of a vector. In assembly, because compilers that do not know the
// alignment load through core registers and the stack.
INLINE int8x8_t load_group(const uint8_t *from) {
    int8x8_t group;
    __asm__("vld1.32 {%P0[]}, [%1]" : "=w"(group) : "r"(from), "m"(*(const uint8_t(*)[4])from));
    return group;
}

// Stores the first four bytes of a vector.
INLINE void store_four(uint8_t *to, int8x8_t bytes) {
    __asm__("vst1.32 {%P1[0]}, [%2]" : "=m"(*(uint8_t(*)[4])to) : "w"(bytes), "r"(to));
}

// 1.5 * 2^23: the lowest bits of this float plus a whole number are that number.
#define ONE 12582912.0f

// Rounds numbers of at most 22 bits to the nearest whole numbers, of two to the even one. Returns
// their lowest 16 bits.
INLINE int16x4_t rounded(float32x4_t numbers) {
    return vmovn_s32(vreinterpretq_s32_f32(vaddq_f32(numbers, vdupq_n_f32(ONE))));
}

// Returns rounded numbers as bytes. `low` is the number whose byte is 0.
INLINE int8x8_t bytes_of(int16x4_t first, int16x4_t second, int32_t low) {
    return vmovn_s16(vsubq_s16(vcombine_s16(first, second), vdupq_n_s16((int16_t)low)));
}

// Adds two products, or one, for each 16 bits. Then adds those of neighbours to the sums.
INLINE void add_products(int32x4_t *sum, int8x8_t x, int8x8_t w, const int8x8_t *second_x, const int8x8_t *second_w) {
    int16x8_t products = vmull_s8(x, w);
    if (second_x)
        products = vmlal_s8(products, *second_x, *second_w);
    *sum = vpadalq_s16(*sum, products);
}

// The operands of assembly for tiles of two windows by two vectors of rows: the sums, and the
// addresses of values and weights.
#define TWO_BY_TWO(...)                                                                                                \
    [x0] "+r"(x[0]), [x1] "+r"(x[1]), [first] "+r"(*weights), [second] "+r"(second)__VA_ARGS__,                        \
        [a] "+w"(sums[0][0][0]), [b] "+w"(sums[0][0][1]), [c] "+w"(sums[0][1][0]), [d] "+w"(sums[0][1][1]),            \
        [e] "+w"(sums[1][0][0]), [f] "+w"(sums[1][0][1]), [g] "+w"(sums[1][1][0]), [h] "+w"(sums[1][1][1])

// Adds `groups` groups to the sums of two windows by two vectors of rows, as `whole_tile` does. In
// assembly, because compilers do not keep everything in registers. The sums stay in registers from
// run to run. q8 to q11 are the weights, and d24 to d27 the values. The products alternate between
// q14 and q15, so that one waits while the other is used.
INLINE void two_by_two(int32x4_t sums[WINDOWS][VECTORS][2], const uint8_t **x, const int8_t **weights, size_t apart,
                       size_t groups) {
    const int8_t *second = *weights + apart;
    size_t pairs = groups / 2;
    if (pairs) {
        __asm__ volatile("1:\n"
                         "vld1.8 {d16-d19}, [%[first]]!\n"
                         "vld2.32 {d24[],d25[]}, [%[x0]]!\n"
                         "vmull.s8 q14, d16, d24\n"
                         "vmull.s8 q15, d17, d24\n"
                         "vld1.8 {d20-d23}, [%[second]]!\n"
                         "vmlal.s8 q14, d18, d25\n"
                         "vmlal.s8 q15, d19, d25\n"
                         "vld2.32 {d26[],d27[]}, [%[x1]]!\n"
                         "subs %[pairs], %[pairs], #1\n"
                         "vpadal.s16 %q[a], q14\n"
                         "vpadal.s16 %q[b], q15\n"
                         "vmull.s8 q14, d20, d24\n"
                         "vmull.s8 q15, d21, d24\n"
                         "vmlal.s8 q14, d22, d25\n"
                         "vmlal.s8 q15, d23, d25\n"
                         "vpadal.s16 %q[c], q14\n"
                         "vpadal.s16 %q[d], q15\n"
                         "vmull.s8 q14, d16, d26\n"
                         "vmull.s8 q15, d17, d26\n"
                         "vmlal.s8 q14, d18, d27\n"
                         "vmlal.s8 q15, d19, d27\n"
                         "vpadal.s16 %q[e], q14\n"
                         "vpadal.s16 %q[f], q15\n"
                         "vmull.s8 q14, d20, d26\n"
                         "vmull.s8 q15, d21, d26\n"
                         "vmlal.s8 q14, d22, d27\n"
                         "vmlal.s8 q15, d23, d27\n"
                         "vpadal.s16 %q[g], q14\n"
                         "vpadal.s16 %q[h], q15\n"
                         "bne 1b\n"
                         : TWO_BY_TWO(, [pairs] "+r"(pairs))
                         :
                         : "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15", "cc", "memory");
    }
    if (groups % 2) {
        __asm__ volatile("vld1.8 {d16-d17}, [%[first]]!\n"
                         "vld1.32 {d24[]}, [%[x0]]\n"
                         "vmull.s8 q14, d16, d24\n"
                         "vmull.s8 q15, d17, d24\n"
                         "vld1.8 {d20-d21}, [%[second]]\n"
                         "vld1.32 {d26[]}, [%[x1]]\n"
                         "vpadal.s16 %q[a], q14\n"
                         "vpadal.s16 %q[b], q15\n"
                         "vmull.s8 q14, d20, d24\n"
                         "vmull.s8 q15, d21, d24\n"
                         "vmull.s8 q9, d16, d26\n"
                         "vmull.s8 q11, d17, d26\n"
                         "vpadal.s16 %q[c], q14\n"
                         "vpadal.s16 %q[d], q15\n"
                         "vmull.s8 q14, d20, d26\n"
                         "vmull.s8 q15, d21, d26\n"
                         "vpadal.s16 %q[e], q9\n"
                         "vpadal.s16 %q[f], q11\n"
                         "vpadal.s16 %q[g], q14\n"
                         "vpadal.s16 %q[h], q15\n"
                         : TWO_BY_TWO()
                         :
                         : "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15", "memory");
    }
}

// What becomes of the sums of a tile.
enum results { FLOATS, ROUNDED_FLOATS, BYTES };

// Scales and stores the sums of M windows by N vectors of rows.
INLINE void finish(const struct whole_tile *t, int32x4_t sums[WINDOWS][VECTORS][2], const int M, const int N,
                   const enum results results) {
    const float32x4_t least = vdupq_n_f32(t->least), largest = vdupq_n_f32(t->largest);
    int16x4_t numbers[WINDOWS][2];
    UNROLL
    for (int i = 0; i < N; i++) {
        const int32x4_t start = vld1q_s32(t->start + i * LANES);
        const float32x4_t factor = vld1q_f32(t->factors + i * LANES), summand = vld1q_f32(t->summands + i * LANES);
        UNROLL
        for (int m = 0; m < M; m++) {
            const int32x4_t a = sums[m][i][0], b = sums[m][i][1];
            const int32x2_t low = vpadd_s32(vget_low_s32(a), vget_high_s32(a));
            const int32x2_t high = vpadd_s32(vget_low_s32(b), vget_high_s32(b));
            const int32x4_t sum = vaddq_s32(vcombine_s32(low, high), start);
            float32x4_t value = multiply_add(summand, vcvtq_f32_s32(sum), factor);
            if (results == ROUNDED_FLOATS)
                value = nearest(value);
            value = vminq_f32(largest, vmaxq_f32(least, value));
            if (results == BYTES)
                numbers[m][i] = rounded(value);
            else
                vst1q_f32((float *)t->result + m * t->result_stride + i * LANES, value);
        }
    }
    if (results != BYTES)
        return;
    UNROLL
    for (int m = 0; m < M; m++) {
        uint8_t *to = (uint8_t *)t->result + m * t->result_stride;
        const int8x8_t bytes = bytes_of(numbers[m][0], numbers[m][N - 1], t->low);
        if (N == 1)
            store_four(to, bytes);
        else
            vst1_s8((int8_t *)to, bytes);
    }
}

// Computes a tile of M windows by N vectors of rows. A row has two sums next to each other, so a
// vector of four rows has two vectors of sums. Two groups are multiplied at a time: without -128
// among the weights, the sum of two products of bytes has 16 bits.
INLINE void whole_tile(const struct whole_tile *t, const int M, const int N) {
    int32x4_t sums[WINDOWS][VECTORS][2];
    UNROLL
    for (int i = 0; i < N; i++) {
        UNROLL
        for (int m = 0; m < M; m++)
            sums[m][i][0] = sums[m][i][1] = vdupq_n_s32(0);
    }
    const int8_t *weights = t->weights;
    for (size_t line = 0; line < t->lines; line++) {
        for (size_t run = 0; run < t->runs; run++) {
            const size_t first = line * t->line_apart + run * t->run_apart;
            const uint8_t *x[WINDOWS];
            UNROLL
            for (int m = 0; m < M; m++)
                x[m] = t->x[m] + first;
            if (M == 2 && N == 2) {
                two_by_two(sums, x, &weights, t->apart, t->length);
                continue;
            }
            size_t left = t->length;
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
    if (t->bytes)
        finish(t, sums, M, N, BYTES);
    else if (t->rounds)
        finish(t, sums, M, N, ROUNDED_FLOATS);
    else
        finish(t, sums, M, N, FLOATS);
}

#define TILE(M, N)                                                                                                     \
    void NAME(whole_##M##x##N)(const struct whole_tile *t) { whole_tile(t, M, N); }
TILE(1, 1)
TILE(1, 2)
TILE(2, 1)
TILE(2, 2)

// Packs `count` floats plus `shift` into bytes, which are the lowest bits of the sums, and returns
// all bits of the sums: those of a byte only, unless a float was NaN, infinite or out of range.
// `shift` is ONE less the number that becomes 0.
uint32_t NAME(pack)(const float *from, uint8_t *to, size_t count, float shift) {
    uint32x4_t all = vdupq_n_u32(0);
    size_t k = 0;
    for (; k + LANES <= count; k += LANES) {
        const float32x4_t sum = vaddq_f32(vld1q_f32(from + k), vdupq_n_f32(shift));
        const int32x4_t numbers = vsubq_s32(vreinterpretq_s32_f32(sum), vreinterpretq_s32_f32(vdupq_n_f32(ONE)));
        const int16x4_t pairs = vmovn_s32(numbers);
        store_four(to + k, vmovn_s16(vcombine_s16(pairs, pairs)));
        all = vorrq_u32(all, vreinterpretq_u32_s32(vaddq_s32(numbers, vdupq_n_s32(128))));
    }
    uint32x2_t both = vorr_u32(vget_low_u32(all), vget_high_u32(all));
    uint32_t bits = vget_lane_u32(both, 0) | vget_lane_u32(both, 1);
    for (; k < count; k++) {
        union { float value; int32_t bits; } sum = {from[k] + shift}, zero = {ONE};
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

// The number of channels of a pixel that `channels` computes at a time.
#define CHANNELS 8

// `CChannels` of arm.rs.
struct channels {
    const uint8_t *x; // pixel (0, 0) of the image
    size_t x_pixel, x_line, width, height;
    size_t stride[2], dilation[2], top, left; // of `Window`
    uint8_t *result; // pixel (0, 0)
    size_t pixel, line, columns, lines[2];
    size_t inside[2]; // the columns whose windows are inside the lines of the image
    const int8_t *weights; // for each block and line of the window: three vectors and one of zeros
    const int32_t *start;
    const float *factors, *summands;
    float bounds[2];
    int32_t low;
    uint32_t zero; // the byte of a 0 of the image
};

// Pixels in a line of the image, `apart` bytes from each other.
struct pixels_of_line {
    const uint8_t *first;
    size_t apart;
};

// The numbers of a block of channels.
struct block {
    int8x8_t weights[9];
    const int32_t *start;
    const float *factors, *summands, *bounds;
};

INLINE int8x8_t load_channels(const uint8_t *from) { return vld1_s8((const int8_t *)from); }

// Computes a block of channels of a pixel of the result. `lines` are the lines of its window. A sum
// of two products has 16 bits.
INLINE void channels_of_pixel(const struct channels *c, const struct block *block, const struct pixels_of_line *lines,
                              uint8_t *to) {
    int8x8_t x[9];
    UNROLL
    for (int line = 0; line < 3; line++) {
        const uint8_t *from = lines[line].first;
        UNROLL
        for (int i = 0; i < 3; i++, from += lines[line].apart)
            x[3 * line + i] = load_channels(from);
    }
    // Compilers would move these numbers out of the loop, and weights to the stack instead.
    __asm__ volatile("" ::: "memory");
    int32x4_t sums[2] = {vld1q_s32(block->start), vld1q_s32(block->start + LANES)};
    UNROLL
    for (int i = 0; i < 9; i += 2) {
        int16x8_t products = vmull_s8(x[i], block->weights[i]);
        if (i < 8)
            products = vmlal_s8(products, x[i + 1], block->weights[i + 1]);
        sums[0] = vaddw_s16(sums[0], vget_low_s16(products));
        sums[1] = vaddw_s16(sums[1], vget_high_s16(products));
    }
    const float32x4_t least = vld1q_dup_f32(block->bounds), largest = vld1q_dup_f32(block->bounds + 1);
    int16x4_t numbers[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float32x4_t factor = vld1q_f32(block->factors + i * LANES);
        const float32x4_t summand = vld1q_f32(block->summands + i * LANES);
        const float32x4_t value = multiply_add(summand, vcvtq_f32_s32(sums[i]), factor);
        numbers[i] = rounded(vminq_f32(largest, vmaxq_f32(least, value)));
    }
    vst1_s8((int8_t *)to, bytes_of(numbers[0], numbers[1], c->low));
}

// Computes the block of channels from channel `k` on in a line of the result.
INLINE void channels_of_line(const struct channels *c, const struct block *block, size_t k, size_t y) {
    const int8x8_t zeros = vdup_n_s8((int8_t)c->zero);
    const size_t apart = c->dilation[1] * c->x_pixel;
    uint8_t *to = c->result + y * c->line + k;
    // Column 0 of each line of the image. Lines in the border are the same zeros again and again.
    struct pixels_of_line lines[3];
    UNROLL
    for (int i = 0; i < 3; i++) {
        const size_t at = y * c->stride[0] + i * c->dilation[0] - c->top;
        lines[i] = (struct pixels_of_line){(const uint8_t *)&zeros, 0};
        if (at < c->height)
            lines[i] = (struct pixels_of_line){c->x + at * c->x_line + k, c->x_pixel};
    }
    for (size_t column = 0; column < c->columns;) {
        const size_t left = column * c->stride[1] - c->left;
        struct pixels_of_line window[3];
        if (column < c->inside[0] || column >= c->inside[1]) {
            // The pixels of the window are copied beside zeros.
            int8x8_t copied[3][3];
            UNROLL
            for (int i = 0; i < 3; i++) {
                for (int j = 0; j < 3; j++) {
                    const size_t at = left + j * c->dilation[1];
                    copied[i][j] = at < c->width ? load_channels(lines[i].first + at * lines[i].apart) : zeros;
                }
                window[i] = (struct pixels_of_line){(const uint8_t *)copied[i], CHANNELS};
            }
            channels_of_pixel(c, block, window, to);
            column++, to += c->pixel;
            continue;
        }
        UNROLL
        for (int i = 0; i < 3; i++)
            window[i] = (struct pixels_of_line){lines[i].first + left * lines[i].apart, lines[i].apart ? apart : 0};
        for (; column < c->inside[1]; column++, to += c->pixel) {
            channels_of_pixel(c, block, window, to);
            UNROLL
            for (int i = 0; i < 3; i++)
                window[i].first += c->stride[1] * lines[i].apart;
        }
    }
}

// Computes some lines of a depthwise convolution with windows of 3 x 3.
void NAME(channels)(const struct channels *of_caller) {
    // A copy, because stores of bytes could change the original.
    const struct channels c = *of_caller;
    for (size_t k = 0; k < c.pixel; k += CHANNELS) {
        struct block block = {.start = c.start + k, .factors = c.factors + k, .summands = c.summands + k, .bounds = of_caller->bounds};
        UNROLL
        for (int i = 0; i < 9; i++)
            block.weights[i] = vld1_s8(c.weights + 12 * k + (4 * (i / 3) + i % 3) * CHANNELS);
        for (size_t y = c.lines[0]; y < c.lines[1]; y++)
            channels_of_line(&c, &block, k, y);
    }
}

// `CByteSum` of arm.rs.
struct byte_sum {
    const int8_t *x, *y;
    void *result;
    size_t count; // a multiple of four
    int32_t factors[2], summand, shift; // of `SumIntegers`
    uint32_t bytes; // true if the result is bytes
    int32_t low, least_byte, largest_byte;
    float least, largest;
};

// Computes four values of a sum.
INLINE int32x4_t byte_sum(const struct byte_sum *s, int16x4_t x, int16x4_t y) {
    int32x4_t sum = vmlaq_s32(vdupq_n_s32(s->summand), vmovl_s16(x), vdupq_n_s32(s->factors[0]));
    sum = vmlaq_s32(sum, vmovl_s16(y), vdupq_n_s32(s->factors[1]));
    return vshlq_s32(sum, vdupq_n_s32(-s->shift));
}

// Stores four values of a sum as floats.
INLINE void store_numbers(const struct byte_sum *s, size_t at, int32x4_t numbers) {
    const float32x4_t least = vdupq_n_f32(s->least), largest = vdupq_n_f32(s->largest);
    vst1q_f32((float *)s->result + at, vminq_f32(largest, vmaxq_f32(least, vcvtq_f32_s32(numbers))));
}

// Computes a sum of two values of bytes.
void NAME(sum_of_bytes)(const struct byte_sum *s) {
    const int8x8_t least = vdup_n_s8((int8_t)s->least_byte), largest = vdup_n_s8((int8_t)s->largest_byte);
    for (size_t at = 0; at < s->count; at += 2 * LANES) {
        const int whole = at + 2 * LANES <= s->count;
        const int8x8_t bytes_x = whole ? vld1_s8(s->x + at) : load_group((const uint8_t *)s->x + at);
        const int8x8_t bytes_y = whole ? vld1_s8(s->y + at) : load_group((const uint8_t *)s->y + at);
        const int16x8_t x = vmovl_s8(bytes_x), y = vmovl_s8(bytes_y);
        const int32x4_t low = byte_sum(s, vget_low_s16(x), vget_low_s16(y));
        const int32x4_t high = byte_sum(s, vget_high_s16(x), vget_high_s16(y));
        if (!s->bytes) {
            store_numbers(s, at, low);
            if (whole)
                store_numbers(s, at + LANES, high);
            continue;
        }
        const int16x8_t both = vcombine_s16(vqmovn_s32(low), vqmovn_s32(high));
        const int8x8_t bytes = vqmovn_s16(vqsubq_s16(both, vdupq_n_s16((int16_t)s->low)));
        const int8x8_t clamped = vmin_s8(largest, vmax_s8(least, bytes));
        if (whole)
            vst1_s8((int8_t *)s->result + at, clamped);
        else
            store_four((uint8_t *)s->result + at, clamped);
    }
}
