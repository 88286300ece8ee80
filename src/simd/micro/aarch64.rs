//! The vectors and micro-kernels of NEON, which every aarch64 CPU has.

use super::image;
use super::kernel::{self, Subproblem, TilePlace};
use super::vector::{Byte, Half, Stored, Vector, inlined};
use super::whole::{
    self, Dot, Packed, PackedRuns, Tiles, WholeKernels, WholePlace, WholeWindows, dot, tiles,
};
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
    affine: kernel::affine::<F32x4, f32, 4, 4>,
    adds: true,
    affine_of_halves: of_halves(kernel::affine::<F32x4, Half, 4, 4>),
    affine_of_bytes: of_bytes(kernel::affine::<F32x4, Byte, 4, 4>),
    peak: kernel::peak::<F32x4>,
    read: kernel::read::<F32x4>,
    activate: kernel::activate::<F32x4>,
    line: image::line::<F32x4>,
    takes_lines: F32x4::REGISTERS,
    pairs: F32x4::REGISTERS,
    combine: image::combine::<F32x4>,
    scale: image::scale::<F32x4>,
    sum: image::sum::<F32x4>,
    transforms: &[],
};

/// Returns the kernels for whole numbers that this CPU can run, fastest first. Cortex-A55, A75, A76
/// and later ones have dot products of bytes.
pub(super) fn whole() -> [Option<WholeKernels>; 2] {
    let dots = std::arch::is_aarch64_feature_detected!("dotprod");
    [dots.then_some(DOTS), Some(PRODUCTS)]
}

const DOTS: WholeKernels = WholeKernels {
    name: "dotprod",
    lanes: Dots::LANES,
    group: Dots::GROUP,
    signed: true,
    weights: [-128, 127],
    affine: whole::affine::<Dots, 4, 2, 4, 4, 1, 8>,
    bytes: None,
};

/// Without −128 among the weights, the sum of two products of bytes has 16 bits.
const PRODUCTS: WholeKernels = WholeKernels {
    name: "neon",
    weights: [-127, 127],
    affine: whole::affine::<Products, 4, 2, 2, 4, 1, 4>,
    ..DOTS
};

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
    |floats, to| pack_lanes(floats, to),
    |from, count| load_first(from, count),
    of_lanes(|sums, values, weights, lane| match lane {
        0 => sdot!(sums, weights, values, 0),
        1 => sdot!(sums, weights, values, 1),
        2 => sdot!(sums, weights, values, 2),
        _ => sdot!(sums, weights, values, 3),
    })
);

/// Sums of products of bytes without dot products. The sum of two products has 16 bits, and is then
/// added to sums of 32 bits. Each row has two sums next to each other. So four rows have two
/// vectors.
#[derive(Clone, Copy)]
struct Products(int32x4_t, int32x4_t);

// SAFETY of the bodies: the trait's promise.
impl Dot for Products {
    const OF_TWO: bool = true;
    type Float = F32x4;
    type Groups = int8x16_t;

    #[inline(always)]
    unsafe fn splat(group: u32) -> int8x16_t {
        // SAFETY: the trait's promise.
        unsafe { vreinterpretq_s8_u32(vdupq_n_u32(group)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> int8x16_t {
        // SAFETY: the trait's promise.
        unsafe { vld1q_s8(from.cast()) }
    }

    #[inline(always)]
    unsafe fn or(a: int8x16_t, b: int8x16_t) -> int8x16_t {
        // SAFETY: the trait's promise.
        unsafe { vorrq_s8(a, b) }
    }

    #[inline(always)]
    unsafe fn pack_lanes(F32x4(floats): F32x4, to: *mut u8) -> int8x16_t {
        // SAFETY: the trait's promise.
        unsafe { vreinterpretq_s8_s32(pack_lanes(floats, to)) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> F32x4 {
        // SAFETY: the trait's promise.
        unsafe { F32x4(load_first(from, count)) }
    }

    #[inline(always)]
    unsafe fn floats(self) -> F32x4 {
        // SAFETY: the trait's promise.
        unsafe { F32x4(vcvtq_f32_s32(vpaddq_s32(self.0, self.1))) }
    }

    inlined! {
        fn start(from: *const i32) {{
            let (start, zero) = (vld1q_s32(from), vdupq_n_s32(0));
            Products(vzip1q_s32(start, zero), vzip2q_s32(start, zero))
        }}
    }

    // Assembly, because the compiler moves upper halves and sums to other registers for the
    // intrinsics, and because cores that issue in order wait for a product that is used at once.

    #[inline(always)]
    unsafe fn dot(self, x: int8x16_t, w: int8x16_t) -> Self {
        let Products(mut low, mut high) = self;
        // SAFETY: the trait's promise.
        unsafe {
            asm!(
                "smull {p:v}.8h, {w:v}.8b, {x:v}.8b",
                "smull2 {q:v}.8h, {w:v}.16b, {x:v}.16b",
                "sadalp {low:v}.4s, {p:v}.8h",
                "sadalp {high:v}.4s, {q:v}.8h",
                low = inout(vreg) low, high = inout(vreg) high, w = in(vreg) w, x = in(vreg) x,
                p = out(vreg) _, q = out(vreg) _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        Products(low, high)
    }

    #[inline(always)]
    unsafe fn dots_of_two<const N: usize>(
        sums: &mut [Self; N],
        [x, y]: [int8x16_t; 2],
        weights: &[[int8x16_t; 2]; N],
    ) {
        // SAFETY: the trait's promise.
        unsafe {
            unrolled!(pair < N / 2, {
                let (i, k) = (2 * pair, 2 * pair + 1);
                let (Products(mut a, mut b), Products(mut c, mut d)) = (sums[i], sums[k]);
                asm!(
                    "smull {p:v}.8h, {v:v}.8b, {x:v}.8b",
                    "smull2 {q:v}.8h, {v:v}.16b, {x:v}.16b",
                    "smull {r:v}.8h, {s:v}.8b, {x:v}.8b",
                    "smull2 {t:v}.8h, {s:v}.16b, {x:v}.16b",
                    "smlal {p:v}.8h, {w:v}.8b, {y:v}.8b",
                    "smlal2 {q:v}.8h, {w:v}.16b, {y:v}.16b",
                    "smlal {r:v}.8h, {u:v}.8b, {y:v}.8b",
                    "smlal2 {t:v}.8h, {u:v}.16b, {y:v}.16b",
                    "sadalp {a:v}.4s, {p:v}.8h",
                    "sadalp {b:v}.4s, {q:v}.8h",
                    "sadalp {c:v}.4s, {r:v}.8h",
                    "sadalp {d:v}.4s, {t:v}.8h",
                    a = inout(vreg) a, b = inout(vreg) b, c = inout(vreg) c, d = inout(vreg) d,
                    x = in(vreg) x, y = in(vreg) y,
                    v = in(vreg) weights[i][0], w = in(vreg) weights[i][1],
                    s = in(vreg) weights[k][0], u = in(vreg) weights[k][1],
                    p = out(vreg) _, q = out(vreg) _, r = out(vreg) _, t = out(vreg) _,
                    options(pure, nomem, nostack, preserves_flags),
                );
                (sums[i], sums[k]) = (Products(a, b), Products(c, d));
            });
            if N % 2 == 1 {
                let [v, w] = weights[N - 1];
                sums[N - 1] = sums[N - 1].dot(x, v).dot(y, w);
            }
        }
    }
}

tiles!(Products, "neon", 4);

/// Packs floats as [`Dot::pack_lanes`] does.
///
/// SAFETY: as there.
#[inline(always)]
unsafe fn pack_lanes(floats: float32x4_t, to: *mut u8) -> int32x4_t {
    // SAFETY: as above.
    unsafe {
        let one = vdupq_n_s32(whole::ONE.to_bits() as i32);
        let numbers = vsubq_s32(vreinterpretq_s32_f32(floats), one);
        let pairs = vmovn_s32(numbers);
        let bytes = vmovn_s16(vcombine_s16(pairs, pairs));
        // A store of a float needs no move to a core register.
        let four = vget_lane_f32::<0>(vreinterpret_f32_s8(bytes));
        to.cast::<f32>().write_unaligned(four);
        vaddq_s32(numbers, vdupq_n_s32(128))
    }
}

/// Loads floats as [`Dot::load_first`] does.
///
/// SAFETY: as there.
#[inline(always)]
unsafe fn load_first(from: *const f32, count: usize) -> float32x4_t {
    // SAFETY: as above.
    unsafe {
        let mut some = [0.0f32; 4];
        (0..count).for_each(|k| some[k] = *from.add(k));
        vld1q_f32(some.as_ptr())
    }
}

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
    unsafe fn tile<E: Stored, const M: usize, const N: usize, const FAR: bool>(
        sub: &Subproblem<'_, E>,
        place: &TilePlace<'_, E, N>,
    ) {
        // SAFETY: the caller's promise is passed on.
        unsafe { kernel::tile::<Self, E, M, N, FAR>(sub, place) }
    }
}
