//! The vectors and micro-kernels of NEON, which every aarch64 CPU has.

use super::image;
use super::kernel::{self, Subproblem, TilePlace};
use super::vector::{Byte, Half, Stored, Vector, inlined};
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
