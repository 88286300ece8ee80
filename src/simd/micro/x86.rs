//! Vectors and micro-kernels for x86-64: AVX2 with FMA, and AVX-512.

use super::bytes::{
    self, ByteKernels, ByteSum, Bytes, ChannelWindows, TapOrder, Taps, WholeVector,
};
use super::image::{self, Line, Scaling, WholeSum};
use super::kernel::{self, Subproblem, TilePlace};
use super::vector::{Byte, Half, Stored, Vector, compiled, inlined};
use super::whole::{
    self, Dot, Packed, PackedRuns, Tiles, WholeKernels, WholePlace, WholeWindows, dot, tiles_of_dot,
};
use super::winograd::{self, Pixels, Steps, Transforms};
use super::{Activation, Arithmetic, Bounds, Kernels, of_bytes, of_halves};
use crate::planner::tiles::TileSize;
use std::arch::asm;
use std::arch::x86_64::*;

/// Returns the kernels that the CPU and the operating system support, fastest first.
///
/// It uses only two CPUID instructions, because each traps in a virtual machine. The standard
/// library's detection uses more.
pub(super) fn available() -> [Option<Kernels>; 2] {
    const FMA_XSAVE_AVX_F16C: u32 = 1 << 12 | 1 << 27 | 1 << 28 | 1 << 29;
    // SAFETY: every x86-64 CPU has CPUID with leaf 1. A CPU with AVX has XGETBV and leaf 13, hence
    // 7.
    #[allow(unused_unsafe)]
    let (leaf7, state) = unsafe {
        if __cpuid(1).ecx & FMA_XSAVE_AVX_F16C != FMA_XSAVE_AVX_F16C {
            return [None; 2];
        }
        (__cpuid_count(7, 0).ebx, state())
    };
    // The operating system must save the registers: the bits 0x6 are those of AVX, 0xE6 also those
    // of AVX-512.
    let has = |bits: u32, registers: u64| leaf7 & bits == bits && state & registers == registers;
    let avx2 = has(1 << 5, 0x6);
    #[cfg(mortonnet_avx512)]
    let avx512 = (avx2 && has(1 << 16, 0xE6)).then_some(avx512::AVX512);
    #[cfg(not(mortonnet_avx512))]
    let avx512 = None;
    [avx512, avx2.then_some(AVX2)]
}

/// Returns the integer kernels that the CPU and the operating system support, fastest first. They
/// are detected separately, because only integer networks need them.
pub(super) fn whole() -> [Option<WholeKernels>; 5] {
    let [avx512, avx2] = available();
    if avx2.is_none() {
        return [None; 5];
    }
    #[cfg(mortonnet_avx512)]
    {
        const BW: u32 = 1 << 30;
        const VNNI: u32 = 1 << 11;
        const AVX_VNNI: u32 = 1 << 4;
        // SAFETY: a CPU with AVX2 has leaf 7. Leaves of it that do not exist are zeros.
        #[allow(unused_unsafe)]
        let (first, second) = unsafe { (__cpuid_count(7, 0), __cpuid_count(7, 1)) };
        let bytes = avx512.is_some() && first.ebx & BW != 0 && first.ecx & VNNI != 0;
        let avx = first.eax >= 1 && second.eax & AVX_VNNI != 0;
        #[cfg(test)]
        let for_tests = (bytes && first.ebx & 1 << 31 != 0).then_some(avx512::VNNI_256);
        #[cfg(not(test))]
        let for_tests = None;
        [
            bytes.then_some(avx512::VNNI),
            avx.then_some(avx512::AVX_VNNI),
            Some(PAIRS),
            Some(LONG_PAIRS),
            for_tests,
        ]
    }
    #[cfg(not(mortonnet_avx512))]
    {
        let _ = avx512;
        [Some(PAIRS), Some(LONG_PAIRS), None, None, None]
    }
}

/// Returns the register XCR0. Its bits say which registers the operating system saves.
///
/// SAFETY: the CPU has XSAVE and the system uses it.
#[target_feature(enable = "xsave")]
unsafe fn state() -> u64 {
    // SAFETY: the caller's promise.
    #[allow(unused_unsafe)]
    unsafe {
        _xgetbv(0)
    }
}

/// The kernels for AVX2 with FMA. Twelve sums, two vectors of weights and a value fit the sixteen
/// registers.
const AVX2: Kernels = Kernels {
    name: "avx2",
    gflops: 60,
    lanes: F32x8::LANES,
    tile_records: 6,
    tile_vectors: 2,
    affine: kernel::affine::<F32x8, f32, 6, 2>,
    adds: true,
    affine_of_halves: of_halves(kernel::affine::<F32x8, Half, 4, 2>),
    affine_of_bytes: of_bytes(kernel::affine::<F32x8, Byte, 2, 4>),
    peak: avx2_peak,
    read: avx2_read,
    activate: avx2_activate,
    line: avx2_line,
    takes_lines: F32x8::REGISTERS,
    pairs: F32x8::REGISTERS,
    combine: avx2_combine,
    scale: avx2_scale,
    sum: avx2_sum,
    transforms: &[
        Transforms {
            size: TileSize::Two,
            filters: avx2_filters,
            spread: avx2_spread,
            gather: avx2_gather,
        },
        Transforms {
            size: TileSize::Four,
            filters: avx2_filters_of_four,
            spread: avx2_spread_of_four,
            gather: avx2_gather_of_four,
        },
    ],
};

compiled! { "avx2,fma":
    avx2_peak = kernel::peak::<F32x8>, (turns: usize);
    avx2_read = kernel::read::<F32x8>, (values: *const f32, count: usize, turns: usize);
    avx2_activate = kernel::activate::<F32x8>, (f: Activation, values: *mut f32, count: usize);
    avx2_line = image::line::<F32x8>, (line: &Line);
    avx2_combine = image::combine::<F32x8>,
        (f: Arithmetic, a: *const f32, b: *const f32, result: *mut f32, count: usize);
    avx2_scale = image::scale::<F32x8>, (rows: &Scaling);
    avx2_sum = image::sum::<F32x8>, (sum: &WholeSum);
    avx2_filters = winograd::filters::<F32x8, 2>,
        (from: *const f32, apart: usize, to: *mut f32, apart_to: usize, count: usize);
    avx2_filters_of_four = winograd::filters::<F32x8, 4>,
        (from: *const f32, apart: usize, to: *mut f32, apart_to: usize, count: usize);
    avx2_spread = winograd::spread::<F32x8, 2>,
        (first: *const f32, steps: Steps, channels: usize, to: *mut f32, apart: usize);
    avx2_spread_of_four = winograd::spread::<F32x8, 4>,
        (first: *const f32, steps: Steps, channels: usize, to: *mut f32, apart: usize);
    avx2_gather = winograd::gather::<F32x8, 2>,
        (from: *const f32, apart: usize, channels: usize, pixels: Pixels, bounds: Bounds);
    avx2_gather_of_four = winograd::gather::<F32x8, 4>,
        (from: *const f32, apart: usize, channels: usize, pixels: Pixels, bounds: Bounds);
}

/// The two kinds of rounding to integers: to the nearest and down.
const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
const DOWN: i32 = _MM_FROUND_TO_NEG_INF;

macro_rules! vector {
    ($name:ident, $features:literal, $type:ty, $lanes:literal, $splat:ident, $load:ident,
     $store:ident, $fma:ident, $div:ident, $max:ident, $min:ident, $whole:ident, $to_bits:ident,
     $shift:ident,
     $from_bits:ident, $load_halves:ident, $from_halves:ident, $load_bytes:ident, $widen:ident,
     $from_whole:ident) => {
        #[derive(Clone, Copy)]
        struct $name($type);

        // SAFETY of the bodies: the trait's promise.
        impl Vector for $name {
            const LANES: usize = $lanes;
            const MANY: bool = $lanes == 16;
            // A column has twelve multiply-adds with 16 registers, and 24 with 32, so there the
            // instructions around them weigh less.
            const COLUMNS: usize = if $lanes == 8 { 4 } else { 1 };

            inlined! {
                fn splat(x: f32) { $name($splat(x)) }
                fn load(from: *const f32) { $name($load(from)) }
                fn load_halves(from: *const u16) { $name($from_halves($load_halves(from.cast()))) }
                fn load_bytes(from: *const i8) {
                    $name($from_whole($widen($load_bytes(from.cast()))))
                }
                fn fma(self, $name(a): Self, $name(b): Self) { $name($fma(a, b, self.0)) }
                fn div(self, $name(b): Self) { $name($div(self.0, b)) }
                fn max(self, $name(other): Self) { $name($max(self.0, other)) }
                fn min(self, $name(other): Self) { $name($min(self.0, other)) }
                fn round(self) { $name($whole::<{ NEAREST | _MM_FROUND_NO_EXC }>(self.0)) }
                fn floor(self) { $name($whole::<{ DOWN | _MM_FROUND_NO_EXC }>(self.0)) }
                fn power_of_two(self) { $name($from_bits($shift::<23>($to_bits(self.0)))) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: the trait's promise.
                unsafe { $store(to, self.0) }
            }

            const PREFETCHES: bool = true;

            #[inline(always)]
            unsafe fn prefetch(from: *const f32) {
                // SAFETY: a prefetch of any address is allowed.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
            }

            // This function must not enable the CPU features itself. Otherwise a compiler may
            // inline the inner function: rustc 1.95 ignores `inline(never)` beside
            // `target_feature`.
            #[inline(always)]
            unsafe fn tiles<E: Stored, const M: usize, const N: usize, const FAR: bool>(
                sub: &Subproblem<'_, E>,
                place: &mut TilePlace<'_, E, N>,
            ) {
                #[target_feature(enable = $features)]
                #[inline(never)]
                unsafe fn tiles<E: Stored, const M: usize, const N: usize, const FAR: bool>(
                    sub: &Subproblem<'_, E>,
                    place: &mut TilePlace<'_, E, N>,
                ) {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { kernel::tiles::<$name, E, M, N, FAR>(sub, place) }
                }
                // SAFETY: the caller's promise is passed on.
                unsafe { tiles::<E, M, N, FAR>(sub, place) }
            }

            // This function enables no CPU features itself, for the same reason as `tiles`.
            #[inline(always)]
            unsafe fn blocks<const K: usize, const S: usize, const P: usize, const BORDER: bool>(
                line: &Line,
                at: usize,
                count: usize,
            ) {
                #[target_feature(enable = $features)]
                #[inline(never)]
                unsafe fn blocks<
                    const K: usize,
                    const S: usize,
                    const P: usize,
                    const BORDER: bool,
                >(
                    line: &Line,
                    at: usize,
                    count: usize,
                ) {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { image::blocks::<$name, K, S, P, BORDER>(line, at, count) }
                }
                // SAFETY: the caller's promise is passed on.
                unsafe { blocks::<K, S, P, BORDER>(line, at, count) }
            }
        }
    };
}

vector!(
    F32x8,
    "avx2,fma,f16c",
    __m256,
    8,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_fmadd_ps,
    _mm256_div_ps,
    _mm256_max_ps,
    _mm256_min_ps,
    _mm256_round_ps,
    _mm256_castps_si256,
    _mm256_slli_epi32,
    _mm256_castsi256_ps,
    _mm_loadu_si128,
    _mm256_cvtph_ps,
    _mm_loadl_epi64,
    _mm256_cvtepi8_epi32,
    _mm256_cvtepi32_ps
);

/// Implements [`WholeVector`] for a vector of 256 bits.
macro_rules! bytes_of_256_bits {
    ($name:ident) => {
        // SAFETY of the bodies: the trait's promise.
        impl WholeVector for $name {
            type Float = F32x8;

            inlined! {
                fn nearest(F32x8(floats): F32x8) { $name(_mm256_cvtps_epi32(floats)) }
                fn narrow([a, b, c, d]: [Self; 4], $name(low): Self) {
                    {
                        let first = _mm256_subs_epi16(_mm256_packs_epi32(a.0, b.0), low);
                        let second = _mm256_subs_epi16(_mm256_packs_epi32(c.0, d.0), low);
                        $name(_mm256_packus_epi16(first, second))
                    }
                }
                fn in_order(self) {
                    {
                        let places = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                        $name(_mm256_permutevar8x32_epi32(self.0, places))
                    }
                }
                fn max_bytes(self, $name(other): Self) {
                    $name(_mm256_max_epu8(self.0, other))
                }
                fn min_bytes(self, $name(other): Self) {
                    $name(_mm256_min_epu8(self.0, other))
                }
                fn load_bytes(from: *const u8, count: usize) {
                    $name(match count {
                        32.. => _mm256_loadu_si256(from.cast()),
                        _ => _mm256_zextsi128_si256(_mm_loadu_si128(from.cast())),
                    })
                }
                fn load_pixels(from: *const u8, _pixel: usize, apart: usize) {
                    $name(_mm256_loadu2_m128i(from.wrapping_add(apart).cast(), from.cast()))
                }
                fn load_numbers(from: *const u8) {
                    $name(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast())))
                }
                fn shift(self, count: u32) {
                    $name(_mm256_sra_epi32(self.0, _mm_cvtsi32_si128(count as i32)))
                }
                fn times(self, $name(other): Self) {
                    $name(_mm256_mullo_epi32(self.0, other))
                }
                fn add(self, $name(other): Self) { $name(_mm256_add_epi32(self.0, other)) }
            }

            #[inline(always)]
            unsafe fn store_first(self, to: *mut u8, count: usize) {
                debug_assert!(matches!(count, 8 | 16 | 32), "whole parts of a vector");
                // SAFETY: the trait's promise.
                unsafe {
                    let low = _mm256_castsi256_si128(self.0);
                    match count {
                        32.. => _mm256_storeu_si256(to.cast(), self.0),
                        16 => _mm_storeu_si128(to.cast(), low),
                        _ => _mm_storel_epi64(to.cast(), low),
                    }
                }
            }

            #[inline(always)]
            unsafe fn store_halves(self, [first, second]: [*mut u8; 2]) {
                // SAFETY: the trait's promise.
                unsafe { _mm256_storeu2_m128i(second.cast(), first.cast(), self.0) }
            }

            #[inline(always)]
            unsafe fn to_floats(self) -> F32x8 {
                // SAFETY: the trait's promise.
                unsafe { self.floats() }
            }

            #[inline(always)]
            unsafe fn quads([$name(a), $name(b), $name(c)]: [Self; 3]) -> [Self; 4] {
                // SAFETY: the trait's promise.
                unsafe {
                    let zero = _mm256_setzero_si256();
                    let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
                    let third = [_mm256_unpacklo_epi8(c, zero), _mm256_unpackhi_epi8(c, zero)];
                    [
                        $name(_mm256_unpacklo_epi16(low, third[0])),
                        $name(_mm256_unpackhi_epi16(low, third[0])),
                        $name(_mm256_unpacklo_epi16(high, third[1])),
                        $name(_mm256_unpackhi_epi16(high, third[1])),
                    ]
                }
            }
        }
    };
}

/// Defines integer kernels for AVX2 that multiply 16-bit integers and add two products to a sum.
/// Twelve sums, two vectors of weights, a value and a product fit the sixteen registers.
macro_rules! pairs {
    ($kernels:ident, $name:ident, $weights:expr $(, $($bytes:tt)*)?) => {
        const $kernels: WholeKernels = WholeKernels {
            name: "avx2",
            lanes: $name::LANES,
            group: $name::GROUP,
            signed: false,
            weights: $weights,
            matrices: false,
            affine: whole::affine::<$name, 6, 2, 6, 1, 8>,
            bytes: ByteKernels {
                block: 4 * Pairs::LANES,
                order: TapOrder::Pair,
                // 16-bit integers in all sets.
                weights: [-256, 255],
                channels: pairs_channels,
                sum: pairs_sum,
            },
        };

        dot!(
            $name,
            "avx2,fma",
            __m256i,
            F32x8,
            2,
            _mm256_set1_epi32,
            _mm256_loadu_si256,
            _mm256_or_si256,
            _mm256_cvtepi32_ps,
            |sums, values, weights| _mm256_add_epi32(sums, _mm256_madd_epi16(values, weights)),
            |floats, to| {
                let numbers = _mm256_castps_si256(floats);
                let numbers = _mm256_sub_epi32(numbers, _mm256_set1_epi32(ONE_BITS));
                let pairs = _mm256_packs_epi32(numbers, numbers);
                let pairs = _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(pairs));
                _mm_storeu_si128(to.cast(), pairs);
                _mm256_add_epi32(numbers, _mm256_set1_epi32(256))
            },
            |from, count| _mm256_maskload_ps(from, first_of_8(count))
            $(, $($bytes)*)?
        );

        bytes_of_256_bits!($name);
        const _: () = assert!($kernels.weight_size() == $name::WEIGHT);
    };
}

// Weights are bytes in memory, which a single instruction loads as 16-bit integers.
pairs!(
    PAIRS,
    Pairs,
    [-128, 127],
    bytes(|from| _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())))
);

// For weights that are bytes without a sign, less a zero point.
pairs!(LONG_PAIRS, LongPairs, [-256, 255]);

compiled! { "avx2,fma":
    pairs_channels = bytes::channels::<Pairs, ByPair>, (windows: &ChannelWindows<'_>);
    pairs_sum = bytes::sum::<Pairs>, (sum: &ByteSum);
}

/// Adds the products of two pairs of values with the weights of vector I of a line to a sum.
/// Assembly, because the compiler loads weights into registers for both lines of results, and
/// spills them.
///
/// SAFETY: the CPU has AVX2, and `weights` are valid for a line.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn add_pairs<const I: usize>(
    mut sum: __m256i,
    values: [__m256i; 2],
    weights: *const u32,
) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "vpmaddwd {product}, {first}, ymmword ptr [{weights} + {at_first}]",
            "vpaddd {sum}, {sum}, {product}",
            "vpmaddwd {product}, {second}, ymmword ptr [{weights} + {at_second}]",
            "vpaddd {sum}, {sum}, {product}",
            sum = inout(ymm_reg) sum,
            product = out(ymm_reg) _,
            first = in(ymm_reg) values[0],
            second = in(ymm_reg) values[1],
            weights = in(reg) weights,
            at_first = const 32 * I,
            at_second = const 32 * (4 + I),
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    sum
}

/// [`TapOrder::Pair`]. Weights stay in memory, because they are more than the registers.
struct ByPair;

// SAFETY of the bodies: the trait's promise.
impl Taps<Pairs> for ByPair {
    const ORDER: TapOrder = TapOrder::Pair;
    type Weights = *const u32;

    #[inline(always)]
    unsafe fn weights(from: *const u32) -> *const u32 {
        from
    }

    #[inline(always)]
    unsafe fn line<const P: usize>(
        sums: &mut [[Pairs; 4]; P],
        [Pairs(a), Pairs(b), Pairs(c)]: [Pairs; 3],
        weights: &[*const u32; 3],
        k: usize,
    ) {
        // SAFETY: the trait's promise.
        unsafe {
            let zero = _mm256_setzero_si256();
            let first = [_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)];
            let second = [_mm256_unpacklo_epi8(c, zero), _mm256_unpackhi_epi8(c, zero)];
            // Four vectors one after the other, so that the registers hold all sums beside them.
            // Bytes with zeros between them are 16-bit numbers.
            macro_rules! vector {
                ($i:literal, $bytes:ident, $pairs:ident) => {
                    let values = [$bytes(first[$i / 2], zero), $pairs(second[$i / 2], zero)];
                    unrolled!(p < P, {
                        if p <= k && k < p + 3 {
                            sums[p][$i].0 = add_pairs::<$i>(sums[p][$i].0, values, weights[k - p]);
                        }
                    });
                };
            }
            vector!(0, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16);
            vector!(1, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16);
            vector!(2, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16);
            vector!(3, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16);
        }
    }
}

/// Returns a mask in which the first `count` of eight lanes are set.
///
/// SAFETY: the CPU has AVX2.
#[inline(always)]
unsafe fn first_of_8(count: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lanes)
    }
}

/// The bits of the float [`whole::ONE`] as an integer.
const ONE_BITS: i32 = whole::ONE.to_bits() as i32;

/// The AVX-512 intrinsics are stable since Rust 1.89. build.rs sets the cfg `mortonnet_avx512` for
/// such compilers.
#[cfg(mortonnet_avx512)]
#[allow(clippy::incompatible_msrv)]
mod avx512 {
    use super::*;

    /// The kernels for AVX-512. 24 sums, three vectors of weights and a value fit the 32 registers.
    /// Eleven loads serve 24 multiply-adds.
    pub(super) const AVX512: Kernels = Kernels {
        name: "avx512",
        gflops: 150,
        lanes: F32x16::LANES,
        tile_records: 8,
        tile_vectors: 3,
        affine: kernel::affine::<F32x16, f32, 8, 3>,
        adds: true,
        affine_of_halves: of_halves(kernel::affine::<F32x16, Half, 8, 2>),
        // A tile has four vectors of rows. With fewer sums, those of a single record would wait for
        // each other.
        affine_of_bytes: of_bytes(kernel::affine::<F32x16, Byte, 4, 4>),
        peak: avx512_peak,
        read: avx512_read,
        activate: avx512_activate,
        line: avx512_line,
        takes_lines: F32x16::REGISTERS,
        pairs: F32x16::REGISTERS,
        combine: avx512_combine,
        // These are AVX2 functions, because many pixels have eight channels, or eight more than a
        // multiple of sixteen.
        scale: avx2_scale,
        sum: avx512_sum,
        transforms: &[
            Transforms {
                size: TileSize::Two,
                filters: avx2_filters,
                spread: avx512_spread,
                gather: avx512_gather,
            },
            Transforms {
                size: TileSize::Four,
                filters: avx2_filters_of_four,
                spread: avx512_spread_of_four,
                gather: avx512_gather_of_four,
            },
        ],
    };

    compiled! { "avx512f,avx2,fma":
        avx512_peak = kernel::peak::<F32x16>, (turns: usize);
        avx512_read = kernel::read::<F32x16>, (values: *const f32, count: usize, turns: usize);
        avx512_activate = kernel::activate::<F32x16>,
            (f: Activation, values: *mut f32, count: usize);
        avx512_line = image::line::<F32x16>, (line: &Line);
        avx512_combine = image::combine::<F32x16>,
            (f: Arithmetic, a: *const f32, b: *const f32, result: *mut f32, count: usize);
        avx512_sum = image::sum::<F32x16>, (sum: &WholeSum);
        avx512_spread = winograd::spread::<F32x16, 2>,
            (first: *const f32, steps: Steps, channels: usize, to: *mut f32, apart: usize);
        avx512_spread_of_four = winograd::spread::<F32x16, 4>,
            (first: *const f32, steps: Steps, channels: usize, to: *mut f32, apart: usize);
        avx512_gather = winograd::gather::<F32x16, 2>,
            (from: *const f32, apart: usize, channels: usize, pixels: Pixels, bounds: Bounds);
        avx512_gather_of_four = winograd::gather::<F32x16, 4>,
            (from: *const f32, apart: usize, channels: usize, pixels: Pixels, bounds: Bounds);
    }

    vector!(
        F32x16,
        "avx512f,avx2,fma",
        __m512,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_fmadd_ps,
        _mm512_div_ps,
        _mm512_max_ps,
        _mm512_min_ps,
        _mm512_roundscale_ps,
        _mm512_castps_si512,
        _mm512_slli_epi32,
        _mm512_castsi512_ps,
        _mm256_loadu_si256,
        _mm512_cvtph_ps,
        _mm_loadu_si128,
        _mm512_cvtepi8_epi32,
        _mm512_cvtepi32_ps
    );

    /// Integer kernels for AVX-512 VNNI that multiply bytes and add four products to a sum. A tile
    /// has four vectors of rows, because most layers have a multiple of 64 channels.
    pub(super) const VNNI: WholeKernels = WholeKernels {
        name: "avx512vnni",
        lanes: Bytes512::LANES,
        group: Bytes512::GROUP,
        signed: false,
        weights: [-128, 127],
        matrices: false,
        affine: whole::affine::<Bytes512, 6, 4, 8, 2, 8>,
        bytes: ByteKernels {
            block: 4 * Bytes512::LANES,
            order: TapOrder::Channel,
            weights: [-128, 127],
            channels: bytes512_channels,
            sum: bytes512_sum,
        },
    };

    dot!(
        Bytes512,
        "avx512f,avx512bw,avx512vnni,avx2,fma",
        __m512i,
        F32x16,
        4,
        _mm512_set1_epi32,
        _mm512_loadu_si512,
        _mm512_or_si512,
        _mm512_cvtepi32_ps,
        |sums, values, weights| _mm512_dpbusd_epi32(sums, values, weights),
        |floats, to| {
            let one = _mm512_set1_epi32(ONE_BITS);
            let numbers = _mm512_sub_epi32(_mm512_castps_si512(floats), one);
            _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(numbers));
            numbers
        },
        |from, count| _mm512_maskz_loadu_ps((1 << count) - 1, from)
    );

    compiled! { "avx512f,avx512bw,avx512vnni,avx2,fma":
        bytes512_channels = bytes::channels::<Bytes512, bytes::ByChannel>,
            (windows: &ChannelWindows<'_>);
        bytes512_sum = bytes::sum::<Bytes512>, (sum: &ByteSum);
    }

    // SAFETY of the bodies: the trait's promise.
    impl WholeVector for Bytes512 {
        type Float = F32x16;

        inlined! {
            fn nearest(F32x16(floats): F32x16) { Bytes512(_mm512_cvtps_epi32(floats)) }
            fn narrow([a, b, c, d]: [Self; 4], Bytes512(low): Self) {
                {
                    let first = _mm512_subs_epi16(_mm512_packs_epi32(a.0, b.0), low);
                    let second = _mm512_subs_epi16(_mm512_packs_epi32(c.0, d.0), low);
                    Bytes512(_mm512_packus_epi16(first, second))
                }
            }
            fn in_order(self) {
                {
                    let places = _mm512_setr_epi32(
                        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
                    );
                    Bytes512(_mm512_permutexvar_epi32(places, self.0))
                }
            }
            fn max_bytes(self, Bytes512(other): Self) { Bytes512(_mm512_max_epu8(self.0, other)) }
            fn min_bytes(self, Bytes512(other): Self) { Bytes512(_mm512_min_epu8(self.0, other)) }
            fn load_bytes(from: *const u8, count: usize) {
                Bytes512(match count {
                    64.. => _mm512_loadu_si512(from.cast()),
                    _ => _mm512_maskz_loadu_epi8((1 << count) - 1, from.cast()),
                })
            }
            fn load_pixels(from: *const u8, pixel: usize, apart: usize) {
                {
                    let second = from.wrapping_add(apart);
                    let [low, high] = match pixel {
                        32 => [
                            _mm256_loadu_si256(from.cast()),
                            _mm256_loadu_si256(second.cast()),
                        ],
                        _ => {
                            let third = second.wrapping_add(apart);
                            let fourth = third.wrapping_add(apart);
                            [
                                _mm256_loadu2_m128i(second.cast(), from.cast()),
                                _mm256_loadu2_m128i(fourth.cast(), third.cast()),
                            ]
                        }
                    };
                    Bytes512(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high))
                }
            }
            fn shift(self, count: u32) {
                Bytes512(_mm512_sra_epi32(self.0, _mm_cvtsi32_si128(count as i32)))
            }
            fn times(self, Bytes512(other): Self) { Bytes512(_mm512_mullo_epi32(self.0, other)) }
            fn add(self, Bytes512(other): Self) { Bytes512(_mm512_add_epi32(self.0, other)) }
            fn load_numbers(from: *const u8) {
                Bytes512(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())))
            }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut u8, count: usize) {
            // SAFETY: the trait's promise.
            unsafe {
                match count {
                    64.. => _mm512_storeu_si512(to.cast(), self.0),
                    32 => _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(self.0)),
                    16 => _mm_storeu_si128(to.cast(), _mm512_castsi512_si128(self.0)),
                    _ => _mm512_mask_storeu_epi8(to.cast(), (1 << count) - 1, self.0),
                }
            }
        }

        #[inline(always)]
        unsafe fn store_halves(self, [first, second]: [*mut u8; 2]) {
            // SAFETY: the trait's promise.
            unsafe {
                _mm256_storeu_si256(first.cast(), _mm512_castsi512_si256(self.0));
                let upper = _mm512_extracti64x4_epi64::<1>(self.0);
                _mm256_storeu_si256(second.cast(), upper);
            }
        }

        #[inline(always)]
        unsafe fn to_floats(self) -> F32x16 {
            // SAFETY: the trait's promise.
            unsafe { self.floats() }
        }

        #[inline(always)]
        unsafe fn quads([Bytes512(a), Bytes512(b), Bytes512(c)]: [Self; 3]) -> [Self; 4] {
            // SAFETY: the trait's promise.
            unsafe {
                let zero = _mm512_setzero_si512();
                let (low, high) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
                let third = [_mm512_unpacklo_epi8(c, zero), _mm512_unpackhi_epi8(c, zero)];
                [
                    Bytes512(_mm512_unpacklo_epi16(low, third[0])),
                    Bytes512(_mm512_unpackhi_epi16(low, third[0])),
                    Bytes512(_mm512_unpacklo_epi16(high, third[1])),
                    Bytes512(_mm512_unpackhi_epi16(high, third[1])),
                ]
            }
        }
    }

    /// Defines vectors of 256 bits whose instruction `$dot` multiplies bytes, and kernels for them.
    macro_rules! bytes256 {
        ($kernels:ident, $called:literal, $name:ident, $features:literal, $dot:ident,
         $channels:ident, $sum:ident) => {
            pub(super) const $kernels: WholeKernels = WholeKernels {
                name: $called,
                lanes: $name::LANES,
                group: $name::GROUP,
                signed: false,
                weights: [-128, 127],
                matrices: false,
                affine: whole::affine::<$name, 6, 2, 6, 1, 8>,
                bytes: ByteKernels {
                    block: 4 * $name::LANES,
                    order: TapOrder::Channel,
                    weights: [-128, 127],
                    channels: $channels,
                    sum: $sum,
                },
            };

            dot!(
                $name,
                $features,
                __m256i,
                F32x8,
                4,
                _mm256_set1_epi32,
                _mm256_loadu_si256,
                _mm256_or_si256,
                _mm256_cvtepi32_ps,
                |sums, values, weights| $dot(sums, values, weights),
                |floats, to| {
                    let one = _mm256_set1_epi32(ONE_BITS);
                    let numbers = _mm256_sub_epi32(_mm256_castps_si256(floats), one);
                    let pairs = _mm256_packus_epi32(numbers, numbers);
                    let bytes = _mm256_packus_epi16(pairs, pairs);
                    let (low, high) = (
                        _mm256_castsi256_si128(bytes),
                        _mm256_extracti128_si256::<1>(bytes),
                    );
                    _mm_storel_epi64(to.cast(), _mm_unpacklo_epi32(low, high));
                    numbers
                },
                |from, count| _mm256_maskload_ps(from, first_of_8(count))
            );

            compiled! { $features:
                $channels = bytes::channels::<$name, bytes::ByChannel>,
                    (windows: &ChannelWindows<'_>);
                $sum = bytes::sum::<$name>, (sum: &ByteSum);
            }

            bytes_of_256_bits!($name);
        };
    }

    // Integer kernels that multiply bytes, for CPUs with AVX-VNNI but without AVX-512.
    bytes256!(
        AVX_VNNI,
        "avxvnni",
        Bytes256,
        "avxvnni,avx2,fma",
        _mm256_dpbusd_avx_epi32,
        bytes256_channels,
        bytes256_sum
    );

    // The same kernels with the instruction of AVX-512, so that tests run them on more CPUs.
    #[cfg(test)]
    bytes256!(
        VNNI_256,
        "avx512vnni of 256 bits",
        Bytes256Long,
        "avx512vnni,avx512vl,avx2,fma",
        _mm256_dpbusd_epi32,
        long_channels,
        long_sum
    );
}
