// The micro-kernels for 32-bit ARM with NEON, whose intrinsics are not stable in Rust. `arm.rs`
// calls them. They compute the same in the same order as `kernel.rs`, `image.rs` and `winograd.rs`,
// under the same safety conditions.
//
// `build.rs` compiles this file and `whole.c` twice: with FUSED=1 for VFPv4 (fused multiply-add,
// halves), and with FUSED=0 for NEON alone. Only these objects may contain NEON instructions,
// because the rest of the program runs on CPUs without NEON.

#include "neon.h"

// The largest number of records in a tile.
#define MOST 6
// The number of columns per block for several records. A tile uses half a line of a panel of 16
// rows. The next tile finds the other half in a first-level cache of 32 KB.
#define BLOCK 256

// The codes of `Activation` in Rust.
enum activation { NONE, SIGMOID, RELU, TANH, LEAKY_RELU, CLIP, ELU, GELU, GELU_TANH, HARD_SIGMOID, HARD_SWISH, SILU, MISH, SOFTPLUS, FLOOR = 18, ROUND = 19 };

// `Subproblem` of kernel.rs. Strides are in values.
struct subproblem {
    const void *weights; // panels of `panel` rows by `columns`, of floats, halves or bytes
    const float *biases;
    const float *scales; // of weights stored as bytes
    size_t panel, columns, inputs;
    size_t row, end_row;
    size_t records;
    const float *x;
    size_t x_stride;
    const float *const *table; // the addresses of runs, or null
    size_t apart;              // the distance of runs, or 0 if the table has the address of each
    size_t length;             // of runs, or 0 without runs
    float *result;
    size_t result_stride;
    float least, largest; // of results
};

// Returns y clamped. `visible` keeps overflows.
INLINE float32x4_t bounded(float32x4_t y, float32x4_t least, float32x4_t largest) {
    return visible(vminq_f32(largest, vmaxq_f32(least, y)), y);
}

// Loads `vectors` (1, 2 or 4) times four signed bytes, two vectors at a time. In assembly, because
// compilers that do not know the alignment load through core registers and the stack.
INLINE void load_bytes(float32x4_t *values, const int8_t *from, int vectors) {
    int8x8_t bytes;
    if (vectors == 1) {
        __asm__("vld1.32 {%P0[]}, [%1]" : "=w"(bytes) : "r"(from), "m"(*(const int8_t(*)[4])from));
        values[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
        return;
    }
    UNROLL
    for (int i = 0; i < vectors; i += 2) {
        const int8_t *two = from + i * LANES;
        __asm__("vld1.8 {%P0}, [%1]" : "=w"(bytes) : "r"(two), "m"(*(const int8_t(*)[8])two));
        const int16x8_t words = vmovl_s8(bytes);
        values[i] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)));
        values[i + 1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(words)));
    }
}

// Loads four halves, which are never infinite or NaN.
INLINE float32x4_t load_halves(const uint16_t *from) {
#if FUSED
    // Assembly, because the intrinsic needs a flag that some compilers do not have.
    float32x4_t value;
    __asm__("vcvt.f32.f16 %q0, %P1" : "=w"(value) : "w"(vld1_u16(from)));
    return value;
#else
    // NEON flushes subnormal floats to zero, so halves below 2^-14 are converted as whole numbers.
    const uint32x4_t half = vmovl_u16(vld1_u16(from));
    const uint32x4_t magnitude = vandq_u32(half, vdupq_n_u32(0x7fff));
    const uint32x4_t sign = vshlq_n_u32(veorq_u32(half, magnitude), 16);
    const uint32x4_t normal = vaddq_u32(vshlq_n_u32(magnitude, 13), vdupq_n_u32(112u << 23));
    const uint32x4_t small = vreinterpretq_u32_f32(vcvtq_n_f32_u32(magnitude, 24));
    const uint32x4_t is_small = vcltq_u32(magnitude, vdupq_n_u32(0x400));
    return vreinterpretq_f32_u32(vorrq_u32(sign, vbslq_u32(is_small, small, normal)));
#endif
}

// The columns of a tile: `runs` runs of `length` values, both at least one. `next` is the distance
// in bytes from the end of a run to the next run. `end` is for the assembly, which counts `runs`
// down and needs this order.
struct columns {
    size_t runs, length, next;
    float32x4_t *end;
};

// Computes the columns of six records by two vectors of rows. In assembly, because compilers do not
// keep everything in registers. q0 to q11 are the sums, and q12 and q13 the weights, which LOAD
// fills. q14 and q15 alternate as values, so that one is loaded while the other is used. The
// addresses of weights and values are incremented by the loads. The register of `sum` has `next`
// between two runs, because there are not enough.
#define SIX_BY_TWO(LOAD)                                                                                               \
    size_t count = columns.length;                                                                                     \
    columns.end = sum + 8;                                                                                             \
    __asm__ volatile("vldmia %[sum]!, {d0-d15}\n"                                                                      \
                     "vldmia %[sum], {d16-d23}\n"                                                                      \
                     "1:\n" LOAD                                                                                       \
                     "vld1.32 {d28[],d29[]}, [%[x0]]!\n"                                                               \
                     "vld1.32 {d30[],d31[]}, [%[x1]]!\n"                                                               \
                     "subs %[count], %[count], #1\n"                                                                   \
                     MULTIPLY_ADD " q0, q12, q14\n" MULTIPLY_ADD " q1, q13, q14\n"                                     \
                     "vld1.32 {d28[],d29[]}, [%[x2]]!\n"                                                               \
                     MULTIPLY_ADD " q2, q12, q15\n" MULTIPLY_ADD " q3, q13, q15\n"                                     \
                     "vld1.32 {d30[],d31[]}, [%[x3]]!\n"                                                               \
                     MULTIPLY_ADD " q4, q12, q14\n" MULTIPLY_ADD " q5, q13, q14\n"                                     \
                     "vld1.32 {d28[],d29[]}, [%[x4]]!\n"                                                               \
                     MULTIPLY_ADD " q6, q12, q15\n" MULTIPLY_ADD " q7, q13, q15\n"                                     \
                     "vld1.32 {d30[],d31[]}, [%[x5]]!\n"                                                               \
                     MULTIPLY_ADD " q8, q12, q14\n" MULTIPLY_ADD " q9, q13, q14\n"                                     \
                     MULTIPLY_ADD " q10, q12, q15\n" MULTIPLY_ADD " q11, q13, q15\n"                                   \
                     "bne 1b\n"                                                                                        \
                     "ldr %[count], [%[columns]]\n"                                                                    \
                     "subs %[count], %[count], #1\n"                                                                   \
                     "str %[count], [%[columns]]\n"                                                                    \
                     "beq 2f\n"                                                                                        \
                     "ldr %[sum], [%[columns], #8]\n"                                                                  \
                     "ldr %[count], [%[columns], #4]\n"                                                                \
                     "add %[x0], %[x0], %[sum]\n"                                                                      \
                     "add %[x1], %[x1], %[sum]\n"                                                                      \
                     "add %[x2], %[x2], %[sum]\n"                                                                      \
                     "add %[x3], %[x3], %[sum]\n"                                                                      \
                     "add %[x4], %[x4], %[sum]\n"                                                                      \
                     "add %[x5], %[x5], %[sum]\n"                                                                      \
                     "b 1b\n"                                                                                          \
                     "2:\n"                                                                                            \
                     "ldr %[sum], [%[columns], #12]\n"                                                                 \
                     "vstmia %[sum], {d16-d23}\n"                                                                      \
                     "sub %[sum], %[sum], #128\n"                                                                      \
                     "vstmia %[sum], {d0-d15}\n"                                                                       \
                     : [sum] "+r"(sum), [weights] "+r"(weights), [count] "+r"(count), [x0] "+r"(x[0]),                 \
                       [x1] "+r"(x[1]), [x2] "+r"(x[2]), [x3] "+r"(x[3]), [x4] "+r"(x[4]), [x5] "+r"(x[5])             \
                     : [step] "r"(step), [columns] "r"(&columns)                                                       \
                     : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "q14",   \
                       "q15", "cc", "memory")

INLINE void six_by_two(float32x4_t *sum, const float *weights, size_t panel, const float **x, struct columns columns) {
    const size_t step = panel * sizeof *weights;
    SIX_BY_TWO("vld1.32 {d24-d27}, [%[weights]], %[step]\n");
}

#if FUSED
INLINE void six_by_two_of_halves(float32x4_t *sum, const uint16_t *weights, size_t panel, const float **x, struct columns columns) {
    const size_t step = panel * sizeof *weights;
    SIX_BY_TWO("vld1.16 {d26-d27}, [%[weights]], %[step]\n"
               "vcvt.f32.f16 q12, d26\n"
               "vcvt.f32.f16 q13, d27\n");
}
#endif

INLINE void six_by_two_of_bytes(float32x4_t *sum, const int8_t *weights, size_t panel, const float **x, struct columns columns) {
    const size_t step = panel * sizeof *weights;
    SIX_BY_TWO("vld1.8 {d30}, [%[weights]], %[step]\n"
               "vmovl.s8 q15, d30\n"
               "vmovl.s16 q12, d30\n"
               "vmovl.s16 q13, d31\n"
               "vcvt.f32.s32 q12, q12\n"
               "vcvt.f32.s32 q13, q13\n");
}

// The position of a tile: record, row, first weight, and `count` columns from `begin` on. All its
// vectors are in one panel. `run` has the address of each record's values, if they are in a table. `offset`
// is added to it, or to the address of the record.
struct place {
    size_t n, row, at, begin, count, offset;
    struct columns columns;
    const float *const *run;
};

// The storage types of weights.
enum stored { FLOATS, HALVES, BYTES };

// Computes records n to n + M by N vectors of rows. M, N and `stored` are constants.
INLINE void tile(const struct subproblem *p, const struct place *place, int M, int N, enum stored stored) {
    const size_t last = p->records - 1, panel = p->panel;
    const size_t n = place->n, row = place->row, begin = place->begin, count = place->count;
    const float *floats = (const float *)p->weights + place->at;
    const uint16_t *bits = (const uint16_t *)p->weights + place->at;
    const int8_t *bytes = (const int8_t *)p->weights + place->at;
    const float *x[MOST];
    float *result[MOST];
    float32x4_t sum[MOST * 4];
    UNROLL
    for (int m = 0; m < M; m++) {
        // Records after the last one repeat the last one.
        const size_t record = least(n + m, last);
        x[m] = (p->table ? place->run[record] : p->x + record * p->x_stride) + place->offset;
        result[m] = p->result + record * p->result_stride + row;
        // Sums begin with the bias or with the result of the previous columns. Sums with a scale
        // begin with 0.
        const float *first = begin == 0 ? p->biases + row : result[m];
        UNROLL
        for (int i = 0; i < N; i++)
            sum[m * N + i] = stored == BYTES && begin == 0 ? vdupq_n_f32(0.0f) : vld1q_f32(first + i * LANES);
    }
    if (M == MOST && stored == FLOATS) {
        six_by_two(sum, floats, panel, x, place->columns);
#if FUSED
    } else if (M == MOST && stored == HALVES) {
        six_by_two_of_halves(sum, bits, panel, x, place->columns);
#endif
    } else if (M == MOST && stored == BYTES) {
        six_by_two_of_bytes(sum, bytes, panel, x, place->columns);
    } else {
        size_t left = place->columns.length;
        for (size_t k = 0; k < count; k++, left--) {
            if (left == 0) {
                left = place->columns.length;
                UNROLL
                for (int m = 0; m < M; m++)
                    x[m] = (const float *)((const char *)x[m] + place->columns.next);
            }
            float32x4_t weights[4];
            if (stored == BYTES)
                load_bytes(weights, bytes, N);
            UNROLL
            for (int i = 0; stored != BYTES && i < N; i++)
                weights[i] = stored == HALVES ? load_halves(bits + i * LANES) : vld1q_f32(floats + i * LANES);
            floats += panel;
            bits += panel;
            bytes += panel;
            UNROLL
            for (int m = 0; m < M; m++) {
                const float32x4_t value = vld1q_dup_f32(x[m]++);
                UNROLL
                for (int i = 0; i < N; i++)
                    sum[m * N + i] = multiply_add(sum[m * N + i], weights[i], value);
            }
        }
    }
    if (stored == BYTES && begin + count == p->inputs) {
        UNROLL
        for (int i = 0; i < N; i++) {
            const float32x4_t bias = vld1q_f32(p->biases + row + i * LANES), scale = vld1q_f32(p->scales + row + i * LANES);
            UNROLL
            for (int m = 0; m < M; m++)
                sum[m * N + i] = multiply_add(bias, sum[m * N + i], scale);
        }
    }
    const int complete = begin + count == p->inputs;
    const float32x4_t low = vdupq_n_f32(complete ? p->least : -__builtin_inff());
    const float32x4_t high = vdupq_n_f32(complete ? p->largest : __builtin_inff());
    UNROLL
    for (int m = 0; m < M; m++)
        UNROLL
        for (int i = 0; i < N; i++)
            vst1q_f32(result[m] + i * LANES, bounded(sum[m * N + i], low, high));
}

// Returns 1 / x with an error of at most one ulp, and 0 from 2^126 on.
INLINE float32x4_t reciprocal(float32x4_t x) {
#if FUSED
    float32x4_t r = vrecpeq_f32(x);
    r = vmulq_f32(r, vrecpsq_f32(x, r));
    r = vmulq_f32(r, vrecpsq_f32(x, r));
    return vfmaq_f32(r, r, vfmsq_f32(vdupq_n_f32(1.0f), x, r));
#else
    // Divides one by one. Newton steps with rounded products have an error of three ulp, which is
    // too much for tanh.
    float values[LANES];
    vst1q_f32(values, x);
    for (int i = 0; i < LANES; i++)
        values[i] = 1.0f / values[i];
    return vld1q_f32(values);
#endif
}

// Returns a / b, rounded once, for b below 2^126.
INLINE float32x4_t quotient(float32x4_t a, float32x4_t b) {
#if FUSED
    const float32x4_t r = reciprocal(b), q = vmulq_f32(a, r);
    return vfmaq_f32(q, vfmsq_f32(a, q, b), r);
#else
    float values[LANES], divisors[LANES];
    vst1q_f32(values, a);
    vst1q_f32(divisors, b);
    for (int i = 0; i < LANES; i++)
        values[i] /= divisors[i];
    return vld1q_f32(values);
#endif
}

// e^x as power + power * rest, as `exp` of kernel.rs.
struct exponential { float32x4_t power, rest; };

INLINE struct exponential parts_of_exponential(float32x4_t x) {
    static const float SERIES[] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f};
    const float32x4_t round = vdupq_n_f32(12582912.0f + 127.0f);
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-87.0f)), vdupq_n_f32(88.0f));
    const float32x4_t rounded = multiply_add(round, x, vdupq_n_f32(1.44269504f));
    const float32x4_t n = vsubq_f32(rounded, round);
    float32x4_t r = multiply_add(x, n, vdupq_n_f32(-0.6933594f));
    r = multiply_add(r, n, vdupq_n_f32(2.1219444e-4f));
    float32x4_t y = vdupq_n_f32(1.0f / 5040.0f);
    UNROLL
    for (int i = 0; i < 6; i++)
        y = multiply_add(vdupq_n_f32(SERIES[i]), y, r);
    const float32x4_t power = vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(rounded), 23));
    return (struct exponential){power, vmulq_f32(y, r)};
}

INLINE float32x4_t exponential(float32x4_t x) {
    const struct exponential e = parts_of_exponential(x);
    return multiply_add(e.power, e.power, e.rest);
}

// Returns e^x - 1 with the digits of a small x.
INLINE float32x4_t exponential_less_one(float32x4_t x) {
    const struct exponential e = parts_of_exponential(x);
    return multiply_add(vsubq_f32(e.power, vdupq_n_f32(1.0f)), e.power, e.rest);
}

// Returns ln(1 + x) for x from 0 to 1, as `log1p` of kernel.rs.
INLINE float32x4_t log1p_of(float32x4_t x) {
    static const float SERIES[] = {2.0f / 11.0f, 2.0f / 9.0f, 2.0f / 7.0f, 2.0f / 5.0f, 2.0f / 3.0f, 2.0f};
    const float32x4_t s = vmulq_f32(x, reciprocal(vaddq_f32(x, vdupq_n_f32(2.0f))));
    const float32x4_t square = vmulq_f32(s, s);
    float32x4_t y = vdupq_n_f32(2.0f / 13.0f);
    UNROLL
    for (int i = 0; i < 6; i++)
        y = multiply_add(vdupq_n_f32(SERIES[i]), y, square);
    return vmulq_f32(y, s);
}

// Returns 1 / (1 + e^(factor · x)).
INLINE float32x4_t NAME(logistic)(float32x4_t x, float factor) {
    return reciprocal(vaddq_f32(exponential(vmulq_n_f32(x, factor)), vdupq_n_f32(1.0f)));
}

// Returns the tail of the normal distribution above x >= 0, as `tail` of kernel.rs.
INLINE float32x4_t NAME(tail)(float32x4_t x) {
    const float32x4_t t = reciprocal(vaddq_f32(vmulq_n_f32(x, 0.3275911f * 0.70710678f), vdupq_n_f32(1.0f)));
    float32x4_t y = vdupq_n_f32(1.0614054f);
    y = multiply_add(vdupq_n_f32(-1.453152f), y, t);
    y = multiply_add(vdupq_n_f32(1.4214137f), y, t);
    y = multiply_add(vdupq_n_f32(-0.28449674f), y, t);
    y = multiply_add(vdupq_n_f32(0.2548296f), y, t);
    return vmulq_f32(vmulq_n_f32(vmulq_f32(y, t), 0.5f), exponential(vmulq_n_f32(vmulq_f32(x, x), -0.5f)));
}

INLINE float32x4_t NAME(between)(float32x4_t x, float low, float high) {
    return vminq_f32(vmaxq_f32(x, vdupq_n_f32(low)), vdupq_n_f32(high));
}

// Applies an activation to `count` values in place, a multiple of four.
void NAME(activate)(uint32_t activation, float a, float b, float *values, size_t count) {
    const float32x4_t zero = vdupq_n_f32(0.0f);
    if (activation == NONE)
        return;
    for (size_t i = 0; i < count; i += LANES) {
        const float32x4_t x = vld1q_f32(values + i);
        float32x4_t y;
        switch (activation) {
        case SIGMOID: y = NAME(logistic)(x, -1.0f); break;
        case RELU: y = vmaxq_f32(x, zero); break;
        // With m = e^-2x - 1, tanh x is -m / (m + 2), which keeps the digits of a small x. It is 1
        // or -1 before the exponential is too large for a quotient.
        case TANH: {
            const float32x4_t m = exponential_less_one(vminq_f32(vmulq_n_f32(x, -2.0f), vdupq_n_f32(80.0f)));
            y = quotient(vnegq_f32(m), vaddq_f32(m, vdupq_n_f32(2.0f)));
            break;
        }
        case LEAKY_RELU: y = multiply_add(vmaxq_f32(x, zero), vminq_f32(x, zero), vdupq_n_f32(a)); break;
        case CLIP: y = NAME(between)(x, a, b); break;
        case ELU: {
            const float32x4_t below = exponential_less_one(vminq_f32(x, zero));
            y = vmulq_n_f32(multiply_add(vmaxq_f32(x, zero), below, vdupq_n_f32(a)), b);
            break;
        }
        case GELU: {
            const float32x4_t size = vabsq_f32(x);
            y = vsubq_f32(vmaxq_f32(x, zero), vmulq_f32(size, NAME(tail)(size)));
            break;
        }
        case GELU_TANH: {
            const float32x4_t cube = vmulq_f32(vmulq_f32(x, x), x);
            // kernel.rs has the reason for the limit (`activate`).
            y = vmulq_f32(vmaxq_f32(x, vdupq_n_f32(-16.0f)),
                          NAME(logistic)(multiply_add(x, cube, vdupq_n_f32(0.044715f)), -1.5957691f));
            break;
        }
        case HARD_SIGMOID: y = NAME(between)(multiply_add(vdupq_n_f32(b), x, vdupq_n_f32(a)), 0.0f, 1.0f); break;
        case HARD_SWISH:
            y = vmulq_f32(x, NAME(between)(multiply_add(vdupq_n_f32(0.5f), x, vdupq_n_f32(1.0f / 6.0f)), 0.0f, 1.0f));
            break;
        // kernel.rs has the reasons for the limits and the formulas (`activate`).
        case SILU: y = vmulq_f32(vmaxq_f32(x, vdupq_n_f32(-88.0f)), NAME(logistic)(x, -1.0f)); break;
        case MISH: {
            const float32x4_t e = exponential(vminq_f32(x, vdupq_n_f32(20.0f)));
            const float32x4_t square = vmulq_f32(e, vaddq_f32(e, vdupq_n_f32(2.0f)));
            const float32x4_t tanh = vmulq_f32(square, reciprocal(vaddq_f32(square, vdupq_n_f32(2.0f))));
            y = vmulq_f32(vmaxq_f32(x, vdupq_n_f32(-88.0f)), tanh);
            break;
        }
        case SOFTPLUS: y = vaddq_f32(vmaxq_f32(x, zero), log1p_of(exponential(vnegq_f32(vabsq_f32(x))))); break;
        case FLOOR: {
            const float32x4_t part = vcvtq_f32_s32(vcvtq_s32_f32(x));
            const uint32x4_t above = vcgtq_f32(part, x);
            y = or_whole(x, vsubq_f32(part, vreinterpretq_f32_u32(vandq_u32(above, vreinterpretq_u32_f32(vdupq_n_f32(1.0f))))));
            break;
        }
        case ROUND: y = nearest(x); break;
        default: return;
        }
        vst1q_f32(values + i, visible(y, x));
    }
}

// Computes only multiply-adds of 12 vectors, `turns` times. In assembly, so that no compiler
// evaluates them.
void NAME(peak)(size_t turns) {
    __asm__ volatile("vmov.f32 q12, #0.5\n"
                     "vmov.f32 q13, #0.25\n"
                     "1:\n"
                     "subs %[turns], %[turns], #1\n"
                     MULTIPLY_ADD " q0, q12, q13\n" MULTIPLY_ADD " q1, q12, q13\n"
                     MULTIPLY_ADD " q2, q12, q13\n" MULTIPLY_ADD " q3, q12, q13\n"
                     MULTIPLY_ADD " q4, q12, q13\n" MULTIPLY_ADD " q5, q12, q13\n"
                     MULTIPLY_ADD " q6, q12, q13\n" MULTIPLY_ADD " q7, q12, q13\n"
                     MULTIPLY_ADD " q8, q12, q13\n" MULTIPLY_ADD " q9, q12, q13\n"
                     MULTIPLY_ADD " q10, q12, q13\n" MULTIPLY_ADD " q11, q12, q13\n"
                     "bne 1b\n"
                     : [turns] "+r"(turns)
                     :
                     : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "cc");
}

// Only reads `count` values, `turns` times. `count` is a multiple of 8 vectors.
void NAME(read)(const float *values, size_t count, size_t turns) {
    float32x4_t largest[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        largest[i] = vdupq_n_f32(0);
    for (size_t turn = 0; turn < turns; turn++) {
        // The compiler must not know that a turn reads the same values as the last one.
        __asm__ volatile("" : "+r"(values));
        for (size_t at = 0; at < count; at += 8 * LANES) {
            UNROLL
            for (int i = 0; i < 8; i++)
                largest[i] = vmaxq_f32(largest[i], vld1q_f32(values + at + i * LANES));
        }
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        __asm__ volatile("" : : "w"(largest[i]));
}

typedef void compute(const struct subproblem *p, const struct place *place);

#define TILE(FUNCTION, M, N, STORED)                                                                                       \
    static void FUNCTION(const struct subproblem *p, const struct place *place) { tile(p, place, M, N, STORED); }
TILE(NAME(floats_6_2), MOST, 2, FLOATS)
TILE(NAME(floats_3_2), 3, 2, FLOATS)
TILE(NAME(floats_1_4), 1, 4, FLOATS)
TILE(NAME(floats_1_2), 1, 2, FLOATS)
TILE(NAME(floats_1_1), 1, 1, FLOATS)
#if FUSED
TILE(NAME(halves_6_2), MOST, 2, HALVES)
TILE(NAME(halves_1_4), 1, 4, HALVES)
#endif
TILE(NAME(halves_3_2), 3, 2, HALVES)
TILE(NAME(halves_1_2), 1, 2, HALVES)
TILE(NAME(halves_1_1), 1, 1, HALVES)
TILE(NAME(bytes_6_2), MOST, 2, BYTES)
TILE(NAME(bytes_3_2), 3, 2, BYTES)
TILE(NAME(bytes_1_4), 1, 4, BYTES)
TILE(NAME(bytes_1_2), 1, 2, BYTES)
TILE(NAME(bytes_1_1), 1, 1, BYTES)

// The tiles for six and three records by two vectors, and for one record by one, two and four
// vectors. Tiles of six records and of four vectors may be missing.
struct tiles {
    compute *six, *three, *one[3];
};

static void NAME(layer)(const struct subproblem *p, const struct tiles *tiles) {
    const size_t inputs = p->inputs, records = p->records;
    // A single record uses each weight once, so blocks would not help. A run from a table is a
    // block. Runs that are equally far apart are one block together.
    const size_t blocks = records > 1 && !p->length ? (inputs + BLOCK - 1) / BLOCK : 1;
    const size_t length = p->length && !p->apart ? p->length : (inputs + blocks - 1) / blocks;
    struct place place = {.run = p->table};
    for (place.begin = 0; place.begin < inputs; place.begin += length) {
        place.count = least(length, inputs - place.begin);
        place.columns = (struct columns){.runs = 1, .length = place.count};
        if (p->apart)
            place.columns = (struct columns){inputs / p->length, p->length, (p->apart - p->length) * sizeof(float)};
        size_t vectors;
        for (place.row = p->row; place.row < p->end_row; place.row += vectors * LANES) {
            const size_t in_panel = place.row % p->panel;
            place.at = (place.row - in_panel) * p->columns + place.begin * p->panel + in_panel;
            const size_t rest = least(p->panel - in_panel, p->end_row - place.row) / LANES;
            vectors = rest >= 4 && records == 1 && tiles->one[2] ? 4 : least(rest, 2);
            place.n = 0;
            // A repeated last record costs as much as any other. Six records are used for a rest of
            // four, three for a rest of two.
            for (; vectors == 2 && tiles->six && records > place.n + 3; place.n += 6)
                tiles->six(p, &place);
            for (; vectors == 2 && records > place.n + 1; place.n += 3)
                tiles->three(p, &place);
            for (; records > place.n; place.n++)
                tiles->one[vectors / 2](p, &place);
        }
        if (p->table)
            place.run += records;
        else
            place.offset += length;
    }
}

void NAME(affine)(const struct subproblem *p) {
    static const struct tiles floats = {
        .six = NAME(floats_6_2),
        .three = NAME(floats_3_2),
        .one = {NAME(floats_1_1), NAME(floats_1_2), NAME(floats_1_4)},
    };
    NAME(layer)(p, &floats);
}

void NAME(affine_of_halves)(const struct subproblem *p) {
    static const struct tiles halves = {
        .three = NAME(halves_3_2),
#if FUSED
        .six = NAME(halves_6_2),
        .one = {NAME(halves_1_1), NAME(halves_1_2), NAME(halves_1_4)},
#else
        // The conversion needs so many registers that larger tiles would not fit.
        .one = {NAME(halves_1_1), NAME(halves_1_2)},
#endif
    };
    NAME(layer)(p, &halves);
}

void NAME(affine_of_bytes)(const struct subproblem *p) {
    static const struct tiles bytes = {
        .six = NAME(bytes_6_2),
        .three = NAME(bytes_3_2),
        .one = {NAME(bytes_1_1), NAME(bytes_1_2), NAME(bytes_1_4)},
    };
    NAME(layer)(p, &bytes);
}

// The codes of `WindowOp` in Rust.
enum window_op { LARGEST, MEAN, PADDED_MEAN, PRODUCTS };

// `Line` of image.rs. Ranges are two numbers.
struct line {
    const float *x;
    size_t x_pixel, x_line, width, top;
    size_t first_turn, end_turn, columns, stride;
    size_t dilation_y, dilation_x, left;
    const float *weights, *biases;
    size_t lines, next_windows, next_result;
    size_t first_whole, end_whole;
    size_t channels, real, pads, pixels;
    float *result;
    size_t result_step;
    float least, largest;
    size_t bordered_rows, bordered_width;
    uint32_t op;
};

// Pixel `at` of a line, or pixels from there on, and channels from `c` on. The window columns
// `from` to `to` are inside the image.
struct windows {
    size_t at, c, from, to;
};

// Returns a / b, rounded up. Few lines are dilated, and not every CPU can divide.
INLINE size_t divided(size_t a, size_t b) { return b == 1 ? a : (a + b - 1) / b; }

// The most elements of a mean that are added up one by one.
enum { PART = 64 };

// Returns the channels of whole vectors.
INLINE size_t whole(size_t channels) { return (channels + LANES - 1) / LANES * LANES; }

// Sets the window columns that are inside the image.
INLINE void set_inside(const struct line *l, struct windows *w) {
    const size_t from = w->at * l->stride, end = l->left + l->width;
    w->to = least(l->columns, from < end ? divided(end - from, l->dilation_x) : 0);
    w->from = from < l->left ? least(w->to, divided(l->left - from, l->dilation_x)) : 0;
}

// Returns 1 / the number of elements in the mean.
INLINE float share(const struct line *l, const struct windows *w, enum window_op op) {
    if (op == PADDED_MEAN)
        return 1.0f / (l->bordered_rows * least(l->columns, divided(l->bordered_width - w->at * l->stride, l->dilation_x)));
    return 1.0f / ((w->to - w->from) * (l->end_turn - l->first_turn));
}

// Computes P pixels by N vectors of channels, for as many channels as are whole times N vectors
// from w->c on, and sets w->c to the next channel. `op`, P, N and `columns` are constants.
//
// With `columns`, the windows are inside the image with all columns, next to each other, and not
// dilated. Each loaded pixel then serves all windows that have it in their line. A line of eight
// windows with three columns takes 24 multiply-adds and 13 loads, instead of 27 loads. By GCC's
// model of Cortex-A15 (cortex-a15-neon.md), a cycle has room for one multiply-add of four floats and
// one load. So the loads do not delay the multiply-adds. Each sum adds its products in the same
// order either way.
INLINE void some(const struct line *l, struct windows *w, enum window_op op, int P, int N, int columns) {
    const size_t pixel = l->x_pixel, apart = l->lines > 1 ? l->next_windows : l->stride * pixel;
    const size_t result_apart = l->lines > 1 ? l->next_result : l->result_step;
    const size_t start = w->at * l->stride + w->from * l->dilation_x - l->left;
    const float scale = op == MEAN || op == PADDED_MEAN ? share(l, w, op) : 1.0f;
    const size_t computed = whole(l->real);
    const size_t channels = l->channels, first_turn = l->first_turn, end_turn = l->end_turn, step = l->dilation_x * pixel;
    const size_t next_line = l->dilation_y * l->x_line, next_weights = op == PRODUCTS ? l->columns * channels : 0;
    const float *top = l->x + (l->top * l->x_line + start * pixel + w->c);
    const float *weights = op == PRODUCTS ? l->weights + ((first_turn * l->columns + w->from) * channels + w->c) : 0;
    const float *biases = op == PRODUCTS ? l->biases + w->c : 0;
    float *result = l->result + (w->at * l->result_step + w->c);
    for (; w->c + N * LANES <= computed; w->c += N * LANES) {
        float32x4_t sum[8], lost[4];
        UNROLL
        for (int i = 0; i < N; i++) {
            const float32x4_t first =
                op == PRODUCTS ? vld1q_f32(biases + i * LANES) : vdupq_n_f32(op == LARGEST ? -__builtin_inff() : 0.0f);
            lost[i] = vdupq_n_f32(0.0f);
            UNROLL
            for (int p = 0; p < P; p++)
                sum[p * N + i] = first;
        }
        const float *line = top, *line_weights = weights;
        for (size_t y = first_turn; y < end_turn; y++, line += next_line, line_weights += next_weights) {
            const float *x = line, *next = line_weights;
            if (columns) {
                float32x4_t factors[5];
                UNROLL
                for (int k = 0; k < columns; k++, next += channels)
                    factors[k] = vld1q_f32(next);
                UNROLL
                for (int j = 0; j < P + columns - 1; j++, x += pixel) {
                    const float32x4_t value = vld1q_f32(x);
                    UNROLL
                    for (int p = 0; p < P; p++)
                        if (j >= p && j < p + columns)
                            sum[p] = multiply_add(sum[p], factors[j - p], value);
                    // Without this limit GCC 12 loads so many pixels in advance that a sum is spilled.
                    if (j == P / 2)
                        __asm__ volatile("" ::: "memory");
                }
                continue;
            }
            for (size_t k = w->from, n = 0; k < w->to; k++, x += step, next += op == PRODUCTS ? channels : 0) {
                const float *pixels = x;
                float32x4_t factors[4];
                UNROLL
                for (int i = 0; op == PRODUCTS && i < N; i++)
                    factors[i] = vld1q_f32(next + i * LANES);
                UNROLL
                for (int p = 0; p < P; p++, pixels += apart)
                    UNROLL
                    for (int i = 0; i < N; i++) {
                        const float32x4_t value = vld1q_f32(pixels + i * LANES);
                        float32x4_t *s = &sum[p * N + i];
                        *s = op == PRODUCTS  ? multiply_add(*s, factors[i], value)
                             : op == LARGEST ? vmaxq_f32(*s, value)
                                             : vaddq_f32(*s, value);
                        if (op == LARGEST)
                            lost[i] = visible(lost[i], value);
                    }
                // The parts of a mean, as in image.rs. P is 1.
                if ((op == MEAN || op == PADDED_MEAN) && (++n == PART || k + 1 == w->to)) {
                    n = 0;
                    UNROLL
                    for (int i = 0; i < N; i++) {
                        lost[i] = vaddq_f32(lost[i], sum[i]);
                        sum[i] = vdupq_n_f32(0.0f);
                    }
                }
            }
        }
        const float32x4_t low = vdupq_n_f32(l->least), high = vdupq_n_f32(l->largest);
        float *to = result;
        UNROLL
        for (int p = 0; p < P; p++, to += result_apart)
            UNROLL
            for (int i = 0; i < N; i++) {
                const float32x4_t s = sum[p * N + i];
                const float32x4_t y = op == PRODUCTS ? s : op == LARGEST ? vaddq_f32(lost[i], s) : vmulq_n_f32(lost[i], scale);
                vst1q_f32(to + i * LANES, bounded(y, low, high));
            }
        top += N * LANES;
        weights += op == PRODUCTS ? N * LANES : 0;
        biases += op == PRODUCTS ? N * LANES : 0;
        result += N * LANES;
    }
}

typedef void some_windows(const struct line *l, struct windows *w);

// Functions of their own, so that the code around them takes no registers. The names have pixels
// and vectors, or pixels and window columns.
#define WINDOWS(FUNCTION, OP, P, N, COLUMNS)                                                                               \
    static __attribute__((noinline)) void FUNCTION(const struct line *l, struct windows *w) {                              \
        some(l, w, OP, P, N, COLUMNS);                                                                                     \
    }
WINDOWS(NAME(products_8_1), PRODUCTS, 8, 1, 0)
WINDOWS(NAME(products_4_1), PRODUCTS, 4, 1, 0)
WINDOWS(NAME(products_1_4), PRODUCTS, 1, 4, 0)
WINDOWS(NAME(products_1_1), PRODUCTS, 1, 1, 0)
WINDOWS(NAME(shared_8_3), PRODUCTS, 8, 1, 3)
WINDOWS(NAME(shared_4_3), PRODUCTS, 4, 1, 3)
WINDOWS(NAME(shared_4_5), PRODUCTS, 4, 1, 5)
WINDOWS(NAME(largest_1_4), LARGEST, 1, 4, 0)
WINDOWS(NAME(largest_1_1), LARGEST, 1, 1, 0)
WINDOWS(NAME(mean4), MEAN, 1, 4, 0)
WINDOWS(NAME(mean1), MEAN, 1, 1, 0)
WINDOWS(NAME(paddedmean4), PADDED_MEAN, 1, 4, 0)
WINDOWS(NAME(paddedmean1), PADDED_MEAN, 1, 1, 0)

// Computes a line as `line` of image.rs.
void NAME(line)(const struct line *l) {
    static some_windows *const ONE[4][2] = {
        [LARGEST] = {NAME(largest_1_4), NAME(largest_1_1)},
        [MEAN] = {NAME(mean4), NAME(mean1)},
        [PADDED_MEAN] = {NAME(paddedmean4), NAME(paddedmean1)},
        [PRODUCTS] = {NAME(products_1_4), NAME(products_1_1)},
    };
    const size_t first = l->first_whole, end = l->end_whole, all = end - first;
    // Five factors and eight sums leave too few registers, so such windows are shared by fours.
    const int shared = l->stride == 1 && l->dilation_x == 1 && l->lines == 1 && (l->columns == 3 || l->columns == 5);
    const size_t most = shared && l->columns == 5 ? 4 : 8;
    struct windows w;
    size_t next;
    for (w.at = 0; w.at < l->pixels; w.at = next) {
        size_t count = l->lines;
        next = w.at + 1;
        if (l->op == PRODUCTS && count == 1 && first <= w.at && w.at < end) {
            // As `together` in image.rs.
            const size_t left = end - w.at;
            count = left < 2 || all < 4 ? 1 : all >= most && left > 4 ? most : 4;
            w.at = least(w.at, end - count);
            next = w.at + count;
        }
        set_inside(l, &w);
        w.c = 0;
        if (count == 8) {
            (shared ? NAME(shared_8_3) : NAME(products_8_1))(l, &w);
        } else if (count == 4) {
            (!shared ? NAME(products_4_1) : l->columns == 3 ? NAME(shared_4_3) : NAME(shared_4_5))(l, &w);
        } else {
            ONE[l->op][0](l, &w);
            if (w.c < whole(l->real))
                ONE[l->op][1](l, &w);
        }
    }
    for (size_t y = 0; l->pads && l->real < l->channels && y < l->lines; y++)
        for (size_t at = 0; at < l->pixels; at++) {
            float *to = l->result + y * l->next_result + at * l->result_step;
            size_t c = l->real;
            for (; c % LANES; c++)
                to[c] = 0.0f;
            for (; c < l->channels; c += LANES)
                vst1q_f32(to + c, vdupq_n_f32(0.0f));
        }
}

// The codes of `Arithmetic` in Rust.
enum arithmetic { ADD, SUBTRACT, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM };

INLINE void combine_with(enum arithmetic arithmetic, const float *a, const float *b, float *result, size_t count) {
    _Pragma("GCC unroll 4")
    for (const float *end = a + count; a < end; a += LANES, b += LANES, result += LANES) {
        const float32x4_t x = vld1q_f32(a), y = vld1q_f32(b);
        vst1q_f32(result, arithmetic == ADD ? vaddq_f32(x, y) : arithmetic == SUBTRACT ? vsubq_f32(x, y) : vmulq_f32(x, y));
    }
}

// Computes result[i] = a[i] and b[i] combined for `count` values, a multiple of four.
void NAME(combine)(uint32_t arithmetic, const float *a, const float *b, float *result, size_t count) {
    switch (arithmetic) {
    case ADD: combine_with(ADD, a, b, result, count); break;
    case SUBTRACT: combine_with(SUBTRACT, a, b, result, count); break;
    case MULTIPLY: combine_with(MULTIPLY, a, b, result, count); break;
    // NaN and the infinities of an overflow become NaN.
    case MAXIMUM:
    case MINIMUM:
        for (size_t i = 0; i < count; i += LANES) {
            const float32x4_t x = vld1q_f32(a + i), y = vld1q_f32(b + i);
            const float32x4_t lost = vaddq_f32(vmulq_n_f32(x, 0.0f), vmulq_n_f32(y, 0.0f));
            const float32x4_t found = arithmetic == MAXIMUM ? vmaxq_f32(x, y) : vminq_f32(x, y);
            vst1q_f32(result + i, vaddq_f32(found, lost));
        }
        break;
    default:
        // NEON cannot divide.
        for (size_t i = 0; i < count; i++)
            result[i] = a[i] / b[i];
    }
}

// The transforms of winograd.rs. Where the factors are 1 and -1, sums and differences give the bits
// of the multiply-adds there.

// Loads the four values `step` apart and computes their spread, Bᵀ x.
INLINE void load_spread(float32x4_t *d, const float *from, size_t step) {
    float32x4_t x[4];
    UNROLL
    for (int i = 0; i < 4; i++, from += step)
        x[i] = vld1q_f32(from);
    d[0] = vsubq_f32(x[0], x[2]);
    d[1] = vaddq_f32(x[1], x[2]);
    d[2] = vsubq_f32(x[2], x[1]);
    d[3] = vsubq_f32(x[1], x[3]);
}

// Stores a + b or a - b of four values, `step` apart.
INLINE void store_four(float *to, size_t step, const float32x4_t *a, const float32x4_t *b, int add) {
    UNROLL
    for (int i = 0; i < 4; i++, to += step)
        vst1q_f32(to, add ? vaddq_f32(a[i], b[i]) : vsubq_f32(a[i], b[i]));
}

// Computes Bᵀ d B of a tile. The results are stored as soon as their columns are there, so that at
// most two columns take registers.
void NAME(spread)(const float *first, size_t line, size_t pixel, size_t channels, float *to, size_t apart) {
    for (size_t c = 0; c < channels; c += LANES, first += LANES, to += LANES) {
        float32x4_t a[4], b[4];
        load_spread(a, first + 2 * pixel, line);
        load_spread(b, first, line);
        store_four(to, 4 * apart, b, a, 0);
        load_spread(b, first + pixel, line);
        store_four(to + apart, 4 * apart, b, a, 1);
        store_four(to + 2 * apart, 4 * apart, a, b, 0);
        load_spread(a, first + 3 * pixel, line);
        store_four(to + 3 * apart, 4 * apart, b, a, 0);
    }
}

// Loads the four elements `step` apart and computes Aᵀ m.
INLINE void load_gathered(float32x4_t *s, const float *from, size_t step) {
    float32x4_t m[4];
    UNROLL
    for (int i = 0; i < 4; i++, from += step)
        m[i] = vld1q_f32(from);
    s[0] = vaddq_f32(vaddq_f32(m[0], m[1]), m[2]);
    s[1] = vsubq_f32(vsubq_f32(m[1], m[2]), m[3]);
}

// `Pixels` of winograd.rs, and the bounds. `lines` and `columns`, 1 or 2, are in the image.
struct pixels {
    float *first;
    size_t line, pixel, lines, columns;
    float least, largest;
};

// Computes Aᵀ m A of a tile, clamped.
void NAME(gather)(const float *from, size_t apart, size_t channels, const struct pixels *pixels) {
    const float32x4_t low = vdupq_n_f32(pixels->least), high = vdupq_n_f32(pixels->largest);
    float *first = pixels->first;
    for (size_t c = 0; c < channels; c += LANES, from += LANES, first += LANES) {
        float32x4_t s[4][2];
        UNROLL
        for (int j = 0; j < 4; j++)
            load_gathered(s[j], from + j * apart, 4 * apart);
        UNROLL
        for (int i = 0; i < 2; i++) {
            float *to = first + i * pixels->line;
            if (i == 1 && pixels->lines < 2)
                break;
            vst1q_f32(to, bounded(vaddq_f32(vaddq_f32(s[0][i], s[1][i]), s[2][i]), low, high));
            if (pixels->columns > 1)
                vst1q_f32(to + pixels->pixel, bounded(vsubq_f32(vsubq_f32(s[1][i], s[2][i]), s[3][i]), low, high));
        }
    }
}

// Computes G g.
INLINE void filtered(float32x4_t *lines, const float32x4_t *g) {
    const float32x4_t half = vdupq_n_f32(0.5f), ends = vmulq_f32(vaddq_f32(g[0], g[2]), half);
    lines[0] = g[0];
    lines[1] = multiply_add(ends, g[1], half);
    lines[2] = multiply_add(ends, g[1], vdupq_n_f32(-0.5f));
    lines[3] = g[2];
}

// Computes G g Gᵀ of `count` filters.
void NAME(filters)(const float *from, size_t apart, float *to, size_t apart_to, size_t count) {
    for (size_t i = 0; i < count; i += LANES) {
        float32x4_t lines[3][4];
        for (int j = 0; j < 3; j++) {
            float32x4_t g[3];
            UNROLL
            for (int k = 0; k < 3; k++)
                g[k] = vld1q_f32(from + (3 * k + j) * apart + i);
            filtered(lines[j], g);
        }
        for (int k = 0; k < 4; k++) {
            const float32x4_t g[] = {lines[0][k], lines[1][k], lines[2][k]};
            float32x4_t elements[4];
            filtered(elements, g);
            UNROLL
            for (int j = 0; j < 4; j++)
                vst1q_f32(to + (4 * k + j) * apart_to + i, elements[j]);
        }
    }
}

#if !FUSED
// Converts each byte to a float.
void NAME(widen)(const uint8_t *bytes, float *values, size_t count) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const uint16x8_t words = vmovl_u8(vld1_u8(bytes + i));
        vst1q_f32(values + i, vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))));
        vst1q_f32(values + i + 4, vcvtq_f32_u32(vmovl_u16(vget_high_u16(words))));
    }
    for (; i < count; i++)
        values[i] = bytes[i];
}
#endif
