//! The vectors and micro-kernels of NEON, which every aarch64 CPU has.

use super::bytes::{
    self, ByteKernels, ByteSum, Bytes, ChannelWindows, TapOrder, Taps, WholeVector,
};
use super::image;
use super::kernel::{self, Subproblem, TilePlace};
use super::vector::{Byte, Half, Stored, Vector, compiled, inlined};
use super::whole::{
    self, Dot, Packed, PackedRuns, Tiles, WholeKernels, WholePlace, WholeWindows, dot, tiles_of_dot,
};
use super::winograd::{self, Transforms};
use super::{Kernels, of_bytes, of_halves};
use crate::planner::tiles::TileSize;
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
    transforms: &[
        Transforms {
            size: TileSize::Two,
            filters: winograd::filters::<F32x4, 2>,
            spread: winograd::spread::<F32x4, 2>,
            gather: winograd::gather::<F32x4, 2>,
        },
        Transforms {
            size: TileSize::Four,
            filters: winograd::filters::<F32x4, 4>,
            spread: winograd::spread::<F32x4, 4>,
            gather: winograd::gather::<F32x4, 4>,
        },
    ],
};

/// Returns the kernels for whole numbers that this CPU can run, fastest first. Cortex-A55, A75, A76
/// and later ones have dot products of bytes. Cortex-A510, A710 and later ones have products of
/// matrices too.
pub(super) fn whole() -> [Option<WholeKernels>; 3] {
    let dots = std::arch::is_aarch64_feature_detected!("dotprod");
    let matrices = dots && std::arch::is_aarch64_feature_detected!("i8mm");
    [
        matrices.then_some(MATRICES),
        dots.then_some(DOTS),
        Some(PRODUCTS),
    ]
}

const MATRICES: WholeKernels = WholeKernels {
    name: "i8mm",
    matrices: true,
    affine: whole::affine::<Matrices, 4, 4, 4, 1, 8>,
    ..DOTS
};

const DOTS: WholeKernels = WholeKernels {
    name: "dotprod",
    lanes: Dots::LANES,
    group: Dots::GROUP,
    signed: true,
    weights: [-128, 127],
    matrices: false,
    affine: whole::affine::<Dots, 4, 4, 4, 1, 8>,
    bytes: ByteKernels {
        block: 4 * Dots::LANES,
        order: TapOrder::Channel,
        weights: [-128, 127],
        channels: dots_channels,
        sum: dots_sum,
    },
};

/// Without −128 among the weights, the sum of two products of bytes has 16 bits.
const PRODUCTS: WholeKernels = WholeKernels {
    name: "neon",
    weights: [-127, 127],
    affine: whole::affine::<Products, 4, 2, 4, 1, 4>,
    bytes: ByteKernels {
        block: 4 * Products::LANES,
        order: TapOrder::Tap,
        weights: [-127, 127],
        channels: bytes::channels::<Dots, ByTap>,
        sum: bytes::sum::<Dots>,
    },
    ..DOTS
};

/// Adds the products of four groups of bytes to the sums: with four other groups, or with the one
/// in a lane. Assembly, because the intrinsics of this instruction are not stable.
macro_rules! sdot {
    ($sums:ident, $rows:ident, $values:ident, $groups:literal) => {{
        let mut sums: int32x4_t = $sums;
        asm!(concat!("sdot {:v}.4s, {:v}.16b, {:v}.", $groups),
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
    |sums, values, weights| sdot!(sums, weights, values, "16b"),
    |floats, to| pack_lanes(floats, to),
    |from, count| load_first(from, count),
    of_lanes(|sums, values, weights, lane| match lane {
        0 => sdot!(sums, weights, values, "4b[0]"),
        1 => sdot!(sums, weights, values, "4b[1]"),
        2 => sdot!(sums, weights, values, "4b[2]"),
        _ => sdot!(sums, weights, values, "4b[3]"),
    })
);

/// [`TapOrder::Tap`].
struct ByTap;

// SAFETY of the bodies: the trait's promise.
impl Taps<Dots> for ByTap {
    const ORDER: TapOrder = TapOrder::Tap;
    type Weights = [Dots; 4];

    #[inline(always)]
    unsafe fn weights(from: *const u32) -> [Dots; 4] {
        // SAFETY: the trait's promise.
        unsafe { bytes::four::<Dots>(from) }
    }

    #[inline(always)]
    unsafe fn line<const P: usize>(
        sums: &mut [[Dots; 4]; P],
        three: [Dots; 3],
        weights: &[[Dots; 4]; 3],
        k: usize,
    ) {
        // SAFETY: the trait's promise.
        unsafe {
            let (x, y, z) = (three[0].bytes(), three[1].bytes(), three[2].bytes());
            unrolled!(p < P, {
                if p <= k && k < p + 3 {
                    let [u, v, w, _] = weights[k - p];
                    let (u, v, w) = (u.bytes(), v.bytes(), w.bytes());
                    // Two products have 16 bits together, because no weight is −128.
                    let low = vmull_s8(vget_low_s8(x), vget_low_s8(u));
                    let low = vmlal_s8(low, vget_low_s8(y), vget_low_s8(v));
                    let high = vmlal_high_s8(vmull_high_s8(x, u), y, v);
                    add_halves(&mut sums[p], low, high);
                    let low = vmull_s8(vget_low_s8(z), vget_low_s8(w));
                    add_halves(&mut sums[p], low, vmull_high_s8(z, w));
                }
            });
        }
    }
}

compiled! { "dotprod":
    dots_channels = bytes::channels::<Dots, bytes::ByChannel>, (windows: &ChannelWindows<'_>);
    dots_sum = bytes::sum::<Dots>, (sum: &ByteSum);
}

// SAFETY of the bodies: the trait's promise.
impl WholeVector for Dots {
    type Float = F32x4;

    inlined! {
        fn nearest(F32x4(floats): F32x4) { Dots(vcvtnq_s32_f32(floats)) }
        fn narrow([a, b, c, d]: [Self; 4], Dots(low): Self) {{
            let low = vreinterpretq_s16_s32(low);
            let first = vqsubq_s16(vqmovn_high_s32(vqmovn_s32(a.0), b.0), low);
            let second = vqsubq_s16(vqmovn_high_s32(vqmovn_s32(c.0), d.0), low);
            Dots(vreinterpretq_s32_s8(vqmovn_high_s16(vqmovn_s16(first), second)))
        }}
        fn max_bytes(self, other: Self) { from_bytes(vmaxq_s8(self.bytes(), other.bytes())) }
        fn min_bytes(self, other: Self) { from_bytes(vminq_s8(self.bytes(), other.bytes())) }
        fn load_bytes(from: *const u8, count: usize) {
            match count {
                16.. => from_bytes(vld1q_s8(from.cast())),
                _ => {
                    let mut some = [0i8; 16];
                    some.as_mut_ptr().copy_from_nonoverlapping(from.cast(), count);
                    from_bytes(vld1q_s8(some.as_ptr()))
                }
            }
        }
        // Pixels of 16 bytes or more fill a vector.
        fn load_pixels(from: *const u8, _pixel: usize, _apart: usize) {
            from_bytes(vld1q_s8(from.cast()))
        }
        fn load_numbers(from: *const u8) {{
            let four = from.cast::<f32>().read_unaligned();
            let four = vreinterpret_s8_f32(vset_lane_f32::<0>(four, vdup_n_f32(0.0)));
            Dots(vmovl_s16(vget_low_s16(vmovl_s8(four))))
        }}
        fn add(self, Dots(other): Self) { Dots(vaddq_s32(self.0, other)) }
        fn times(self, Dots(other): Self) { Dots(vmulq_s32(self.0, other)) }
        fn shift(self, count: u32) { Dots(vshlq_s32(self.0, vdupq_n_s32(-(count as i32)))) }
    }

    #[inline(always)]
    unsafe fn in_order(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn to_floats(self) -> F32x4 {
        // SAFETY: the trait's promise.
        unsafe { F32x4(vcvtq_f32_s32(self.0)) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut u8, count: usize) {
        debug_assert!(count % 4 == 0 && count <= 16, "whole parts of a vector");
        // SAFETY: the trait's promise. Stores of floats need no move to core registers.
        unsafe {
            let (all, to) = (vreinterpretq_f32_s32(self.0), to.cast::<f32>());
            match count {
                16.. => vst1q_f32(to, all),
                8.. => {
                    vst1_f32(to, vget_low_f32(all));
                    if count > 8 {
                        to.add(2).write_unaligned(vgetq_lane_f32::<2>(all));
                    }
                }
                _ => to.write_unaligned(vgetq_lane_f32::<0>(all)),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_halves(self, [first, second]: [*mut u8; 2]) {
        // SAFETY: the trait's promise.
        unsafe {
            vst1_s8(first.cast(), vget_low_s8(self.bytes()));
            vst1_s8(second.cast(), vget_high_s8(self.bytes()));
        }
    }

    #[inline(always)]
    unsafe fn quads([a, b, c]: [Self; 3]) -> [Self; 4] {
        // SAFETY: the trait's promise.
        unsafe {
            let (a, b, c, zero) = (a.bytes(), b.bytes(), c.bytes(), vdupq_n_s8(0));
            let halves = |bytes: int8x16_t| vreinterpretq_s16_s8(bytes);
            let (low, high) = (halves(vzip1q_s8(a, b)), halves(vzip2q_s8(a, b)));
            let third = [halves(vzip1q_s8(c, zero)), halves(vzip2q_s8(c, zero))];
            [
                Dots(vreinterpretq_s32_s16(vzip1q_s16(low, third[0]))),
                Dots(vreinterpretq_s32_s16(vzip2q_s16(low, third[0]))),
                Dots(vreinterpretq_s32_s16(vzip1q_s16(high, third[1]))),
                Dots(vreinterpretq_s32_s16(vzip2q_s16(high, third[1]))),
            ]
        }
    }

    #[inline(always)]
    unsafe fn widen(self) -> [Self; 4] {
        // SAFETY: the trait's promise.
        unsafe {
            let bytes = self.bytes();
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            [
                Dots(vmovl_s16(vget_low_s16(low))),
                Dots(vmovl_high_s16(low)),
                Dots(vmovl_s16(vget_low_s16(high))),
                Dots(vmovl_high_s16(high)),
            ]
        }
    }
}

/// Adds sixteen numbers of 16 bits to four vectors of sums.
#[inline(always)]
unsafe fn add_halves(sums: &mut [Dots; 4], low: int16x8_t, high: int16x8_t) {
    // SAFETY: every aarch64 CPU has NEON.
    unsafe {
        sums[0].0 = vaddw_s16(sums[0].0, vget_low_s16(low));
        sums[1].0 = vaddw_high_s16(sums[1].0, low);
        sums[2].0 = vaddw_s16(sums[2].0, vget_low_s16(high));
        sums[3].0 = vaddw_high_s16(sums[3].0, high);
    }
}

impl Dots {
    /// The vector as sixteen bytes.
    #[inline(always)]
    unsafe fn bytes(self) -> int8x16_t {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { vreinterpretq_s8_s32(self.0) }
    }
}

/// Sixteen bytes as a vector of groups.
#[inline(always)]
unsafe fn from_bytes(bytes: int8x16_t) -> Dots {
    // SAFETY: every aarch64 CPU has NEON.
    unsafe { Dots(vreinterpretq_s32_s8(bytes)) }
}

/// Implements the functions of [`Dot`] that do not multiply for sums `$name` of groups in [`Dots`].
macro_rules! groups_in_dots {
    ($name:ident) => {
        type Float = F32x4;
        type Groups = Dots;

        #[inline(always)]
        unsafe fn splat(group: u32) -> Dots {
            // SAFETY: the trait's promise.
            unsafe { Dots::splat(group) }
        }

        #[inline(always)]
        unsafe fn load(from: *const u32) -> Dots {
            // SAFETY: the trait's promise.
            unsafe { Dots::load(from) }
        }

        #[inline(always)]
        unsafe fn or(a: Dots, b: Dots) -> Dots {
            // SAFETY: the trait's promise.
            unsafe { Dots::or(a, b) }
        }

        #[inline(always)]
        unsafe fn pack_lanes(floats: F32x4, to: *mut u8) -> Dots {
            // SAFETY: the trait's promise.
            unsafe { Dots::pack_lanes(floats, to) }
        }

        #[inline(always)]
        unsafe fn store_bytes<const N: usize>(values: [F32x4; N], bytes: &Bytes, to: *mut u8) {
            // SAFETY: the trait's promise.
            unsafe { bytes::store::<$name, N>(values, bytes, to) }
        }

        #[inline(always)]
        unsafe fn store_windows(values: [[F32x4; 2]; 2], bytes: &Bytes, to: [*mut u8; 2]) {
            // SAFETY: the trait's promise.
            unsafe { bytes::store_windows::<$name>(values, bytes, to) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> F32x4 {
            // SAFETY: the trait's promise.
            unsafe { F32x4(load_first(from, count)) }
        }
    };
}

/// Sums of 32 bits whose products with four groups at a time are those of matrices. Operands are
/// those of [`Dots`].
#[derive(Clone, Copy)]
struct Matrices(Dots);

/// Adds the products of two windows and two rows to their sums. Each operand has the eight bytes of
/// one window or row behind those of the other. The sums are window by window. Assembly, because
/// the intrinsic of this instruction is not stable.
macro_rules! smmla {
    ($sums:expr, $windows:expr, $rows:expr) => {
        asm!("smmla {:v}.4s, {:v}.16b, {:v}.16b",
            inout(vreg) $sums.0, in(vreg) $windows.0, in(vreg) $rows.0,
            options(pure, nomem, nostack, preserves_flags))
    };
}

// SAFETY of the bodies: the trait's promise.
impl Dot for Matrices {
    const OF_MATRICES: bool = true;

    groups_in_dots!(Matrices);

    inlined! {
        fn start(from: *const i32) { Matrices(<Dots as Dot>::start(from)) }
        fn dot(self, values: Dots, weights: Dots) { Matrices(self.0.dot(values, weights)) }
    }

    #[inline(always)]
    unsafe fn floats(self) -> F32x4 {
        // SAFETY: the trait's promise.
        unsafe { self.0.floats() }
    }

    #[inline(always)]
    unsafe fn add_fours<const M: usize, const N: usize>(
        sums: &mut [[Self; N]; M],
        run: [*const u8; M],
        weights: *const u8,
        apart: usize,
        fours: usize,
    ) {
        // SAFETY: the trait's promise. Vectors of zero bytes are zeros.
        unsafe {
            // The sums of two windows for rows 0 and 1, and those for rows 2 and 3. If the number
            // of windows is odd, the last one is paired with itself.
            let mut two: [[[Dots; 2]; N]; M] = std::mem::zeroed();
            unrolled!(p < M.div_ceil(2), {
                let (m, n) = (2 * p, (2 * p + 1).min(M - 1));
                unrolled!(i < N, { two[p][i] = swapped([sums[m][i].0, sums[n][i].0]) });
            });
            let (mut at, mut next) = (0, weights);
            while at < 16 * fours {
                let mut windows: [[Dots; 2]; M] = std::mem::zeroed();
                unrolled!(p < M.div_ceil(2), {
                    let (m, n) = (2 * p, (2 * p + 1).min(M - 1));
                    let load = [run[m].add(at).cast(), run[n].add(at).cast()];
                    windows[p] = swapped([Dots::load(load[0]), Dots::load(load[1])]);
                });
                unrolled!(half < 2, {
                    unrolled!(i < N, {
                        let from = next.add(i * apart + half * 32).cast::<u32>();
                        let rows = [Dots::load(from), Dots::load(from.add(4))];
                        unrolled!(p < M.div_ceil(2), {
                            smmla!(two[p][i][0], windows[p][half], rows[0]);
                            smmla!(two[p][i][1], windows[p][half], rows[1]);
                        });
                    });
                });
                next = next.add(64);
                at += 16;
            }
            unrolled!(p < M.div_ceil(2), {
                unrolled!(i < N, {
                    let [first, second] = swapped(two[p][i]);
                    sums[2 * p][i] = Matrices(first);
                    if 2 * p + 1 < M {
                        sums[2 * p + 1][i] = Matrices(second);
                    }
                });
            });
        }
    }
}

tiles_of_dot!(Matrices, "dotprod,i8mm", 4);

/// The lower halves of two vectors, and the upper ones.
#[inline(always)]
unsafe fn swapped([Dots(a), Dots(b)]: [Dots; 2]) -> [Dots; 2] {
    // SAFETY: every aarch64 CPU has NEON.
    unsafe {
        let (a, b) = (vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b));
        [
            Dots(vreinterpretq_s32_s64(vzip1q_s64(a, b))),
            Dots(vreinterpretq_s32_s64(vzip2q_s64(a, b))),
        ]
    }
}

/// Sums of products of bytes without dot products. The sum of two products has 16 bits, and is then
/// added to sums of 32 bits. Each row has two sums next to each other. So four rows have two
/// vectors. Operands are those of [`Dots`].
#[derive(Clone, Copy)]
struct Products(int32x4_t, int32x4_t);

// SAFETY of the bodies: the trait's promise.
impl Dot for Products {
    const OF_TWO: bool = true;

    groups_in_dots!(Products);

    inlined! {
        fn start(from: *const i32) {{
            let (start, zero) = (vld1q_s32(from), vdupq_n_s32(0));
            Products(vzip1q_s32(start, zero), vzip2q_s32(start, zero))
        }}
    }

    #[inline(always)]
    unsafe fn floats(self) -> F32x4 {
        // SAFETY: the trait's promise.
        unsafe { F32x4(vcvtq_f32_s32(vpaddq_s32(self.0, self.1))) }
    }

    // Assembly, because the compiler moves upper halves and sums to other registers for the
    // intrinsics, and because cores that issue in order wait for a product that is used at once.

    #[inline(always)]
    unsafe fn dot(self, Dots(x): Dots, Dots(w): Dots) -> Self {
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
        [Dots(x), Dots(y)]: [Dots; 2],
        weights: &[[Dots; 2]; N],
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
                    v = in(vreg) weights[i][0].0, w = in(vreg) weights[i][1].0,
                    s = in(vreg) weights[k][0].0, u = in(vreg) weights[k][1].0,
                    p = out(vreg) _, q = out(vreg) _, r = out(vreg) _, t = out(vreg) _,
                    options(pure, nomem, nostack, preserves_flags),
                );
                (sums[i], sums[k]) = (Products(a, b), Products(c, d));
            });
            if N % 2 == 1 {
                let [v, w] = weights[N - 1];
                sums[N - 1] = sums[N - 1].dot(Dots(x), v).dot(Dots(y), w);
            }
        }
    }
}

tiles_of_dot!(Products, "neon", 4);

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
    const WALKS: bool = true;

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
    unsafe fn tiles<E: Stored, const M: usize, const N: usize, const FAR: bool>(
        sub: &Subproblem<'_, E>,
        place: &mut TilePlace<'_, E, N>,
    ) {
        // SAFETY: the caller's promise is passed on.
        unsafe { kernel::tiles::<Self, E, M, N, FAR>(sub, place) }
    }
}
