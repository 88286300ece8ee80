// What the micro-kernels for 32-bit ARM share. `neon.c` says how they are compiled.

#ifndef MORTONNET_NEON_H
#define MORTONNET_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#if FUSED
#define NAME(function) mortonnet_vfpv4_##function
#define MULTIPLY_ADD "vfma.f32"
#else
#define NAME(function) mortonnet_neon_##function
#define MULTIPLY_ADD "vmla.f32"
#endif

#define INLINE static inline __attribute__((always_inline))
// For a loop over registers, which must not remain a loop at any optimisation level.
#define UNROLL _Pragma("GCC unroll 10")

// The number of floats in a vector.
#define LANES 4

INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Returns sum + a · b. NEON without VFPv4 rounds the product too.
INLINE float32x4_t multiply_add(float32x4_t sum, float32x4_t a, float32x4_t b) {
#if FUSED
    return vfmaq_f32(sum, a, b);
#else
    return vmlaq_f32(sum, a, b);
#endif
}

// Returns y, or NaN if x is infinite or NaN.
INLINE float32x4_t visible(float32x4_t y, float32x4_t x) { return multiply_add(y, x, vdupq_n_f32(0.0f)); }

// Returns `rounded` for numbers that may have a fraction, and x for all others: from 2^23 on, and NaN.
INLINE float32x4_t or_whole(float32x4_t x, float32x4_t rounded) {
    return vbslq_f32(vcltq_f32(vabsq_f32(x), vdupq_n_f32(8388608.0f)), rounded, x);
}

// Rounds to the nearest whole number, of two to the even one. Adding 2^23 leaves no digits behind the
// point.
INLINE float32x4_t nearest(float32x4_t x) {
    const float32x4_t size = vabsq_f32(x), large = vdupq_n_f32(8388608.0f);
    const float32x4_t near = vsubq_f32(vaddq_f32(size, large), large);
    return or_whole(x, vbslq_f32(vcltq_f32(x, vdupq_n_f32(0.0f)), vnegq_f32(near), near));
}

#endif
