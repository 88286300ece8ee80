//! The vector operations that an instruction set provides for the micro-kernels, and the loading of
//! weights into vectors.

use super::Bounds;
use super::image::{self, Line};
use super::kernel::{self, Subproblem, TilePlace};

/// A vector of floats. All its functions except `tiles` and `blocks` are `inline(always)`. They
/// become part of the function that enables the instruction set.
///
/// SAFETY of all functions: the CPU has the instruction set, and pointers are valid for `LANES`
/// values. A prefetch takes any address.
pub(super) trait Vector: Copy {
    const LANES: usize;
    /// True if the vector is a CPU register, so that several sums can stay in registers side by
    /// side.
    const REGISTERS: bool = true;
    /// True if the CPU has 32 of these registers, false for 16.
    const MANY: bool = true;
    /// True if the CPU has registers for the addresses of all columns of some windows. Without them
    /// the address of each element is chosen anew, or the addresses of two columns are kept.
    const WALKS: bool = false;
    /// The number of columns of weights that the inner loop of a micro-kernel takes at a time.
    const COLUMNS: usize = 1;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn load_halves(from: *const u16) -> Self;
    /// Loads `LANES` signed bytes and converts them to floats.
    unsafe fn load_bytes(from: *const i8) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Returns a · b + self. It is rounded only once if the instruction set has a fused
    /// instruction.
    unsafe fn fma(self, a: Self, b: Self) -> Self;
    /// True if `fma_of_lane` is a single instruction. Micro-kernels then load a vector of values,
    /// instead of broadcasting each value.
    const FMA_OF_LANES: bool = false;
    /// Returns a · b[lane] + self. The argument `lane` must be a constant for the instruction.
    #[inline(always)]
    unsafe fn fma_of_lane(self, a: Self, b: Self, lane: usize) -> Self {
        let mut values = [0.0; 16];
        // SAFETY: the trait's promise. No vector has more than 16 lanes.
        unsafe {
            b.store(values.as_mut_ptr());
            self.fma(a, Self::splat(values[lane]))
        }
    }
    unsafe fn div(self, b: Self) -> Self;
    /// Returns the larger value of each lane, or NaN if `other` is NaN. If only `self` is NaN, the
    /// result is `other` or NaN, depending on the instruction set.
    unsafe fn max(self, other: Self) -> Self;
    /// Returns the smaller value of each lane, or NaN if `other` is NaN. If only `self` is NaN, the
    /// result is `other` or NaN, depending on the instruction set.
    unsafe fn min(self, other: Self) -> Self;
    /// Returns the nearest integer to each lane. A tie goes to the even integer.
    unsafe fn round(self) -> Self;
    /// Returns the largest integer that is not above each lane.
    unsafe fn floor(self) -> Self;
    /// Returns 2ⁿ in each lane. The lowest nine bits of the lane of `self` hold n + 127, for n from
    /// −126 to 127.
    unsafe fn power_of_two(self) -> Self;
    /// True if [`Vector::prefetch`] does something.
    const PREFETCHES: bool = false;
    /// Prefetches the cache line at address `from` into the second-level cache. On instruction sets
    /// where measurements showed no gain, it does nothing.
    #[inline(always)]
    unsafe fn prefetch(_from: *const f32) {}
    /// Runs [`kernel::tiles`], compiled as a separate function for each M, N and FAR.
    unsafe fn tiles<E: Stored, const M: usize, const N: usize, const FAR: bool>(
        sub: &Subproblem<'_, E>,
        place: &mut TilePlace<'_, E, N>,
    );
    /// Runs [`image::blocks`], compiled as a separate function for each kind of block. In one
    /// function, the compiler computed the addresses of all kinds before each block. That took as
    /// long as the products of layers with few channels. The caller for AVX-512 enables the same
    /// features, so the compiler makes these functions part of it nevertheless.
    #[inline(never)]
    unsafe fn blocks<const K: usize, const S: usize, const P: usize, const BORDER: bool>(
        line: &Line,
        at: usize,
        count: usize,
    ) {
        // SAFETY: the caller's promise is passed on.
        unsafe { image::blocks::<Self, K, S, P, BORDER>(line, at, count) }
    }
}

/// Clamps `value`, which is `sum` or `sum` rounded. Without LARGEST it is not compared with the
/// upper bound. Most layers have none, and the comparison delays the results of layers with few
/// inputs. Sums that are not finite become NaN. A ReLU alone would turn −∞ into 0 and hide an
/// overflow.
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn clamp<V: Vector, const LARGEST: bool>(value: V, sum: V, b: Bounds) -> V {
    // SAFETY: the caller's promise. `max` and `min` keep a NaN of their argument. Adding 0 · sum
    // makes infinities NaN and changes no finite value.
    unsafe {
        let above = V::splat(b.least).max(value);
        let clamped = match LARGEST {
            true => V::splat(b.largest).min(above),
            false => above,
        };
        clamped.fma(sum, V::splat(0.0))
    }
}

/// Defines those functions of [`Vector`] that return a vector.
macro_rules! inlined {
    ($(fn $name:ident($($argument:tt)*) { $body:expr })*) => {$(
        #[inline(always)]
        unsafe fn $name($($argument)*) -> Self {
            // SAFETY: the trait's promise.
            unsafe { $body }
        }
    )*};
}
// On 32-bit ARM no other module implements [`Vector`], so the macro is not used outside this one.
#[allow(unused_imports)]
pub(super) use inlined;

/// Defines functions that each compile a generic kernel for the CPU features `$features`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! compiled {
    ($features:literal: $($name:ident = $kernel:expr, ($($argument:ident: $type:ty),*);)*) => {$(
        #[target_feature(enable = $features)]
        unsafe fn $name($($argument: $type),*) {
            // SAFETY: the caller's promise is passed on.
            unsafe { $kernel($($argument),*) }
        }
    )*};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use compiled;

/// The type that weights are stored as. Kernels load weights only through this trait, which
/// converts them to floats.
pub(super) trait Stored: Copy {
    /// True if each row has a quantization scale. Its sum is multiplied by the scale before the
    /// bias is added.
    const SCALED: bool = false;

    /// Loads `V::LANES` weights and converts them to floats.
    ///
    /// SAFETY: as [`Vector`].
    unsafe fn load<V: Vector>(from: *const Self) -> V;
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const f32) -> V {
        // SAFETY: the trait's promise.
        unsafe { V::load(from) }
    }
}

/// The bits of a half-precision weight, which halves the memory traffic of f32. Weights are never
/// infinite or NaN.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Half(pub(crate) u16);

impl Stored for Half {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const Half) -> V {
        // SAFETY: the trait's promise.
        unsafe { V::load_halves(from.cast()) }
    }
}

/// An 8-bit weight, which needs a quarter of the memory traffic of f32. Sums of its row are
/// multiplied by the row's scale.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Byte(pub(crate) i8);

impl Stored for Byte {
    const SCALED: bool = true;

    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const Byte) -> V {
        // SAFETY: the trait's promise.
        unsafe { V::load_bytes(from.cast()) }
    }
}

/// A vector of four lanes in plain Rust, which every CPU can run.
#[derive(Clone, Copy)]
pub(super) struct Lanes4([f32; 4]);

impl Lanes4 {
    #[inline(always)]
    fn zip(self, Lanes4(b): Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let Lanes4(a) = self;
        Lanes4([f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])])
    }
}

impl Vector for Lanes4 {
    const LANES: usize = 4;
    const REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Lanes4([x; 4])
    }

    inlined! {
        fn load(from: *const f32) { Lanes4(from.cast::<[f32; 4]>().read_unaligned()) }
        fn load_bytes(from: *const i8) { Lanes4(from.cast::<[i8; 4]>().read().map(f32::from)) }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u16) -> Self {
        // SAFETY: the trait's promise.
        let halves = unsafe { from.cast::<[u16; 4]>().read_unaligned() };
        // Multiplying by 2^112 corrects the exponent, for both normal and subnormal halves.
        Lanes4(halves.map(|h| {
            let magnitude =
                f32::from_bits(u32::from(h & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
            f32::from_bits(magnitude.to_bits() | u32::from(h & 0x8000) << 16)
        }))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        let Lanes4(values) = self;
        // SAFETY: the trait's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(values) }
    }

    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        self.zip(a.zip(b, |a, b| a * b), |s, p| s + p)
    }

    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        self.zip(b, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        let Lanes4(values) = self;
        Lanes4(values.map(f32::round_ties_even))
    }

    #[inline(always)]
    unsafe fn floor(self) -> Self {
        let Lanes4(values) = self;
        Lanes4(values.map(f32::floor))
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        let Lanes4(values) = self;
        Lanes4(values.map(|x| f32::from_bits(x.to_bits() << 23)))
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
