//! The vectors and micro-kernels of NEON, which every aarch64 CPU has.

use super::image;
use super::kernel::{self, Subproblem, TilePlace};
use super::vector::{Byte, Half, Stored, Vector, inlined};
use super::whole::{self, Dot, Packed, PackedRuns, WholeKernels, WholePlace, WholeWindows, dot};
use super::{Kernels, of_bytes, of_halves};
use std::arch::aarch64::*;
use std::arch::asm;

/// Sixteen sums, the four weight vectors of a panel of sixteen rows, and a value fit the registers.
pub(super) const NEON: Kernels = Kernels {
    name: "neon",
    gflops: 8,
    lanes: F32x4::LANES,
    tile_records: 4,
    tile_vectors: 4,
    affine: kernel::affine::<F32x4, f32, 4, 2, 4>,
    affine_of_halves: of_halves(kernel::affine::<F32x4, Half, 4, 2, 4>),
    affine_of_bytes: of_bytes(kernel::affine::<F32x4, Byte, 4, 2, 4>),
    peak: kernel::peak::<F32x4>,
    activate: kernel::activate::<F32x4>,
    line: image::line::<F32x4>,
    takes_lines: F32x4::REGISTERS,
    combine: image::combine::<F32x4>,
    scale: image::scale::<F32x4>,
    sum: image::sum::<F32x4>,
    transforms: None,
};

/// Returns the kernels for whole numbers, if the CPU has dot products of bytes (Cortex-A55, A75,
/// A76 and later ones).
pub(super) fn whole() -> Option<WholeKernels> {
    std::arch::is_aarch64_feature_detected!("dotprod").then_some(WholeKernels {
        name: "dotprod",
        lanes: Dots::LANES,
        group: Dots::GROUP,
        signed: Dots::SIGNED,
        affine: whole::affine::<Dots, 4, 2, 4, 4, 1>,
        bytes: None,
    })
}

/// Adds the products of four groups of bytes and of the group in a lane to the sums. Assembly,
/// because the intrinsic of this instruction is not stable.
macro_rules! sdot {
    ($sums:ident, $rows:ident, $values:ident, $lane:literal) => {{
        let mut sums: int32x4_t = $sums;
        asm!(concat!("sdot {:v}.4s, {:v}.16b, {:v}.4b[", $lane, "]"),
            inout(vreg) sums, in(vreg) $rows, in(vreg) $values,
            options(pure, nomem, nostack, preserves_flags));
        sums
    }};
}

// Sixteen sums, four vectors of weights and four of values fit the registers.
dot!(
    Dots,
    "dotprod",
    int32x4_t,
    F32x4,
    4,
    vdupq_n_s32,
    vld1q_s32,
    vorrq_s32,
    vcvtq_f32_s32,
    |sums, values, weights| sdot!(sums, weights, values, 0),
    |floats, to| {
        let one = vdupq_n_s32(whole::ONE.to_bits() as i32);
        let numbers = vsubq_s32(vreinterpretq_s32_f32(floats), one);
        let pairs = vmovn_s32(numbers);
        let bytes = vmovn_s16(vcombine_s16(pairs, pairs));
        // A store of a float needs no move to a core register.
        let four = vget_lane_f32::<0>(vreinterpret_f32_s8(bytes));
        to.cast::<f32>().write_unaligned(four);
        vaddq_s32(numbers, vdupq_n_s32(128))
    },
    |from, count| {
        let mut some = [0.0f32; 4];
        (0..count).for_each(|k| some[k] = *from.add(k));
        vld1q_f32(some.as_ptr())
    },
    signed,
    |sums, values, weights, lane| match lane {
        0 => sdot!(sums, weights, values, 0),
        1 => sdot!(sums, weights, values, 1),
        2 => sdot!(sums, weights, values, 2),
        _ => sdot!(sums, weights, values, 3),
    }
);

#[derive(Clone, Copy)]
pub(super) struct F32x4(float32x4_t);

impl Vector for F32x4 {
    const LANES: usize = 4;
    // Multiply-adds of lanes replace broadcasts. A broadcast by a load takes a vector pipe of
    // Cortex-A72 and A76, and a cycle of A53 (benches/arm).
    const FMA_OF_LANES: bool = true;

    // FMAX and FMIN return NaN if either operand is NaN. The promise of `Vector` allows it.
    inlined! {
        fn splat(x: f32) { F32x4(vdupq_n_f32(x)) }
        fn load(from: *const f32) { F32x4(vld1q_f32(from)) }
        fn fma(self, F32x4(a): Self, F32x4(b): Self) { F32x4(vfmaq_f32(self.0, a, b)) }
        fn div(self, F32x4(b): Self) { F32x4(vdivq_f32(self.0, b)) }
        fn max(self, F32x4(other): Self) { F32x4(vmaxq_f32(self.0, other)) }
        fn min(self, F32x4(other): Self) { F32x4(vminq_f32(self.0, other)) }
        fn round(self) { F32x4(vrndnq_f32(self.0)) }
        fn floor(self) { F32x4(vrndmq_f32(self.0)) }
        fn power_of_two(self) {
            F32x4(vreinterpretq_f32_u32(vshlq_n_u32::<23>(vreinterpretq_u32_f32(self.0))))
        }
    }

    #[inline(always)]
    unsafe fn fma_of_lane(self, F32x4(a): Self, F32x4(b): Self, lane: usize) -> Self {
        // SAFETY: the trait's promise.
        unsafe {
            F32x4(match lane {
                0 => vfmaq_laneq_f32::<0>(self.0, a, b),
                1 => vfmaq_laneq_f32::<1>(self.0, a, b),
                2 => vfmaq_laneq_f32::<2>(self.0, a, b),
                _ => vfmaq_laneq_f32::<3>(self.0, a, b),
            })
        }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u16) -> Self {
        // SAFETY: the trait's promise. Assembly, because the intrinsic of this instruction is not
        // stable.
        unsafe {
            let floats;
            asm!("fcvtl {:v}.4s, {:v}.4h", lateout(vreg) floats, in(vreg) vld1_u16(from),
                options(pure, nomem, nostack, preserves_flags));
            F32x4(floats)
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const i8) -> Self {
        // SAFETY: the trait's promise.
        unsafe {
            // Loading the four bytes as a float keeps them out of the core registers.
            let four = from.cast::<f32>().read_unaligned();
            let four = vreinterpret_s8_f32(vset_lane_f32::<0>(four, vdup_n_f32(0.0)));
            F32x4(vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(four)))))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's promise.
        unsafe { vst1q_f32(to, self.0) }
    }

    #[inline(never)]
    unsafe fn tile<E: Stored, const M: usize, const N: usize>(
        sub: &Subproblem<'_, E>,
        place: &TilePlace<'_, E, N>,
    ) {
        // SAFETY: the caller's promise is passed on.
        unsafe { kernel::tile::<Self, E, M, N>(sub, place) }
    }
}
