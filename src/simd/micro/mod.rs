//! The host engine's micro-kernels, with the widest vectors of the CPU.
//!
//! Weights are in panels of P rows (`R_P_1_C`), so the P weights of each column k are contiguous. A
//! vector has contiguous rows, so sums are never reduced across lanes.
//!
//! | file                    | content                                                    |
//! |-------------------------|------------------------------------------------------------|
//! | `vector`                | the trait of an instruction set, and plain Rust for it     |
//! | `x86`, `aarch64`, `arm` | the instruction sets, and their detection                  |
//! | `kernel`                | the micro-kernels: tiles, bias, activation                 |
//! | `image`                 | the micro-kernels that treat each channel by itself        |
//! | `whole`                 | the micro-kernels for products of whole numbers            |
//! | `bytes`                 | the micro-kernels for whole numbers in bytes               |
//! | `winograd`              | the transforms of a convolution by tiles                   |
//! | `decode`                | bytes and text to numbers, for the readers of records      |
//!
//! A further instruction set needs a `Kernels` with the functions of `kernel`, or functions that
//! keep the promise of `Subproblem`. 32-bit ARM has its functions in C, because its intrinsics are
//! not stable in Rust.

// 32-bit ARM has its micro-kernels in C, so much of `kernel` and `vector` is unused there. `kernel`
// comes first, because it defines a macro for the others.
#[cfg_attr(target_arch = "arm", allow(dead_code))]
#[macro_use]
mod kernel;
#[cfg(target_arch = "aarch64")]
mod aarch64;
mod aligned;
#[cfg(target_arch = "arm")]
mod arm;
pub(crate) mod decode;
mod image;
#[cfg_attr(target_arch = "arm", allow(dead_code))]
mod vector;
// 32-bit ARM has its kernels for bytes in C, and other CPUs have none.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code)
)]
mod bytes;
// 32-bit ARM has its tiles in C, and other CPUs have no kernels for whole numbers.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, unused_macros, unused_imports)
)]
mod whole;
// Only x86-64 and 64-bit ARM use these transforms in Rust.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code)
)]
pub(super) mod winograd;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(super) use aligned::Aligned;
pub(super) use bytes::{
    ByteSum, Bytes, ChannelWeights, ChannelWindows, SumIntegers, scales_to_numbers,
};
pub(crate) use image::WindowOp;
pub(super) use image::{Line, PAIR, Scaling, SumNumbers, WholeSum, takes_pairs, together};
pub(super) use kernel::{Added, Runs, Subproblem};
#[cfg(feature = "lab")]
pub(super) use kernel::{INDEPENDENT, READ_AT_ONCE};
pub(super) use vector::{Byte, Half};
pub(super) use whole::{
    ROOM, Rescale, WholeKernels, WholeSubproblem, WholeWeights, WholeWindows, interleave,
};

use crate::ir::network::Activation;
use crate::ir::op::Arithmetic;
use crate::planner::tiles::TileSize;
#[cfg(test)]
use std::cell::Cell;
use vector::{Lanes4, Vector};
use winograd::Transforms;

/// An affine layer. `E` is the storage type of its weights.
pub(super) struct Affine<'a, E = f32> {
    /// The weights: `rows`/P panels of `columns` × P.
    pub(crate) weights: &'a [E],
    pub(crate) biases: &'a [f32],
    /// For weights stored as bytes: the `rows` factors for the sums of products. Else empty.
    pub(crate) scales: &'a [f32],
    /// The number of rows in a panel, a multiple of 4.
    pub(crate) panel: usize,
    /// The number of columns of the weights, which is the padded common dimension.
    pub(crate) columns: usize,
    /// The common dimension. Later columns are padding and not read.
    pub(crate) inputs: usize,
    pub(crate) activation: Activation,
}

impl<E> Affine<'_, E> {
    /// # Panics
    /// If the sizes do not fit together.
    #[cfg(test)]
    pub(super) fn check(&self) {
        Self::fits(
            self.weights.len(),
            self.biases.len(),
            self.panel,
            self.columns,
            self.inputs,
        );
        assert!(self.scales.is_empty() || self.scales.len() == self.biases.len());
    }

    /// # Panics
    /// If the sizes of a layer with `weights` weights and `rows` rows do not fit together.
    pub(super) fn fits(weights: usize, rows: usize, panel: usize, columns: usize, inputs: usize) {
        assert!(
            panel > 0 && panel % 4 == 0 && rows % panel == 0,
            "panels of 4 n rows"
        );
        assert!(
            weights == rows * columns && inputs <= columns,
            "{rows} rows"
        );
    }
}

#[cfg(test)]
thread_local! {
    /// The most lanes of the kernels for teams that this thread makes.
    pub(crate) static MOST_LANES: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The most lanes that kernels may have. A test can choose shorter vectors than the CPU has.
fn most_lanes() -> usize {
    #[cfg(test)]
    return MOST_LANES.get();
    #[cfg(not(test))]
    usize::MAX
}

#[derive(Clone, Copy)]
pub(super) struct Kernels {
    pub(crate) name: &'static str,
    /// The approximate speed of a core, which decides if sharing work pays.
    pub(crate) gflops: u32,
    /// The number of floats in a vector.
    pub(crate) lanes: usize,
    /// The size of a micro-tile: its records, and its vectors of rows.
    pub(crate) tile_records: usize,
    pub(crate) tile_vectors: usize,
    /// Computes a [`Subproblem`] with weights stored as floats.
    ///
    /// SAFETY: the subproblem is sound, and the CPU has the instruction set.
    pub(crate) affine: unsafe fn(&Subproblem<'_, f32>),
    /// True if `affine` and its siblings add the values of [`Subproblem::added`].
    pub(crate) adds: bool,
    /// `affine` for weights stored as halves. `None` if the program cannot have any. Its
    /// micro-tiles are mainly for single records.
    pub(crate) affine_of_halves: Option<unsafe fn(&Subproblem<'_, Half>)>,
    /// `affine` for weights stored as bytes. `None` if the program cannot have any.
    pub(crate) affine_of_bytes: Option<unsafe fn(&Subproblem<'_, Byte>)>,
    /// Computes [`INDEPENDENT`] vectors of multiply-adds for a number of iterations, and nothing
    /// else.
    ///
    /// SAFETY: the CPU has the instruction set.
    #[cfg_attr(not(feature = "lab"), allow(dead_code))]
    pub(crate) peak: unsafe fn(usize),
    /// Reads a number of values for a number of iterations, and does nothing else with them.
    ///
    /// SAFETY: the values exist, their number is a multiple of [`READ_AT_ONCE`] vectors, and the
    /// CPU has the instruction set.
    #[cfg_attr(not(feature = "lab"), allow(dead_code))]
    pub(crate) read: unsafe fn(*const f32, usize, usize),
    /// Applies an activation to a number of values in place.
    ///
    /// SAFETY: the values exist, their number is a multiple of the lanes, and the CPU has the
    /// instruction set.
    pub(crate) activate: unsafe fn(Activation, *mut f32, usize),
    /// Computes a [`Line`] of an image.
    ///
    /// SAFETY: the line is sound, and the CPU has the instruction set.
    pub(crate) line: unsafe fn(&Line),
    /// True if `line` computes several lines at a time.
    pub(crate) takes_lines: bool,
    /// True if `line` computes [`PAIR`](image::PAIR) lines, where [`takes_pairs`] is true.
    pub(crate) pairs: bool,
    /// Combines two arrays element by element. The arguments are the operation, both operands, the
    /// result and the number of values.
    ///
    /// SAFETY: as `activate`.
    pub(crate) combine: unsafe fn(Arithmetic, *const f32, *const f32, *mut f32, usize),
    /// Multiplies rows by factors and adds summands.
    ///
    /// SAFETY: the [`Scaling`] is sound, and the CPU has the instruction set.
    pub(crate) scale: unsafe fn(&Scaling),
    /// Computes a [`WholeSum`].
    ///
    /// SAFETY: the sum is sound, and the CPU has the instruction set.
    pub(crate) sum: unsafe fn(&WholeSum),
    /// The transforms of convolutions by tiles, one for each size. Empty if tiles are not known to
    /// be faster. On x86-64 they were measured to be. On ARM a count of instructions says so
    /// (`benches/arm/network`).
    pub(crate) transforms: &'static [Transforms],
}

/// True if the program may get weights of any type, because it is compiled without knowing them.
const ANY_WEIGHTS: bool = cfg!(any(
    test,
    feature = "lab",
    feature = "appended",
    feature = "bake"
));

/// Returns `kernel` if the program may have weights stored as halves. Otherwise nothing refers to
/// the kernel, and the linker drops it.
const fn of_halves(
    kernel: unsafe fn(&Subproblem<'_, Half>),
) -> Option<unsafe fn(&Subproblem<'_, Half>)> {
    match ANY_WEIGHTS || cfg!(mortonnet_weights = "f16") {
        true => Some(kernel),
        false => None,
    }
}

/// Like `of_halves`, for weights stored as bytes.
const fn of_bytes(
    kernel: unsafe fn(&Subproblem<'_, Byte>),
) -> Option<unsafe fn(&Subproblem<'_, Byte>)> {
    match ANY_WEIGHTS || cfg!(mortonnet_weights = "i8") {
        true => Some(kernel),
        false => None,
    }
}

/// The range that values are clamped to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(super) least: f32,
    pub(super) largest: f32,
}

impl Bounds {
    /// Bounds that change no value.
    pub(super) const NONE: Bounds = Bounds {
        least: f32::NEG_INFINITY,
        largest: f32::INFINITY,
    };

    /// Returns the bounds of an activation that only clamps, or `None` for any other activation.
    pub(super) fn of(activation: Activation) -> Option<Bounds> {
        let [least, largest] = match activation {
            Activation::None => return Some(Bounds::NONE),
            Activation::Relu => [0.0, f32::INFINITY],
            Activation::Clip { .. } => activation.parameters(),
            _ => return None,
        };
        Some(Bounds { least, largest })
    }

    /// Bounds that leave one value.
    pub(super) fn both(value: f32) -> Bounds {
        Bounds {
            least: value,
            largest: value,
        }
    }
}

/// Applies an activation to each value. NaN stays NaN. Adding 0 · x turns the infinities of an
/// overflow into NaN.
///
/// SAFETY: `values` is valid for `count` values.
pub(super) unsafe fn activate_each(activation: Activation, values: *mut f32, count: usize) {
    // SAFETY: the caller's promise.
    for x in unsafe { std::slice::from_raw_parts_mut(values, count) } {
        *x = activation.apply(f64::from(*x)) as f32 + 0.0 * *x;
    }
}

/// The kernels for every CPU: four lanes in plain Rust.
const PORTABLE: Kernels = Kernels {
    name: "portable",
    gflops: 4,
    lanes: Lanes4::LANES,
    tile_records: 2,
    tile_vectors: 1,
    affine: kernel::affine::<Lanes4, f32, 2, 1>,
    adds: true,
    affine_of_halves: of_halves(kernel::affine::<Lanes4, Half, 1, 1>),
    affine_of_bytes: of_bytes(kernel::affine::<Lanes4, Byte, 1, 1>),
    peak: kernel::peak::<Lanes4>,
    read: kernel::read::<Lanes4>,
    activate: activate_each,
    line: image::line::<Lanes4>,
    takes_lines: Lanes4::REGISTERS,
    pairs: Lanes4::REGISTERS,
    combine: image::combine::<Lanes4>,
    scale: image::scale::<Lanes4>,
    sum: image::sum::<Lanes4>,
    transforms: &[],
};

impl Kernels {
    /// Returns the transforms for tiles of a size, if the instruction set has them.
    pub(super) fn transforms_of(&self, size: TileSize) -> Option<&'static Transforms> {
        self.transforms.iter().find(|t| t.size == size)
    }

    /// Applies the activation to the results of `affine`, unless `affine` has applied it already.
    ///
    /// SAFETY: as `affine`.
    pub(super) unsafe fn complete<E>(&self, sub: &Subproblem<'_, E>) {
        let activation = sub.layer.activation;
        if Bounds::of(activation).is_some() {
            return;
        }
        // Contiguous records are treated as one record.
        let (records, count) = match sub.result_stride == sub.rows.len() {
            true => (1, sub.records * sub.rows.len()),
            false => (sub.records, sub.rows.len()),
        };
        for n in 0..records {
            let values = sub
                .result
                .wrapping_add(n * sub.result_stride + sub.rows.start);
            // SAFETY: passed on; rows are whole vectors.
            unsafe { (self.activate)(activation, values, count) }
        }
    }

    /// Returns the fastest kernels for this CPU and panels of `panel` rows. Detected at run time,
    /// so that the binary runs on every CPU of its architecture.
    pub(super) fn detect(panel: usize) -> Kernels {
        let taken = |k: &Kernels| panel % k.lanes == 0 && k.lanes <= most_lanes();
        Kernels::all().find(taken).unwrap_or(PORTABLE)
    }

    /// Returns all kernels that this CPU can run, fastest first.
    pub(super) fn all() -> impl Iterator<Item = Kernels> {
        #[cfg(target_arch = "x86_64")]
        let special = x86::available();
        #[cfg(target_arch = "aarch64")]
        let special = [Some(aarch64::NEON)];
        #[cfg(target_arch = "arm")]
        let special = arm::available();
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "arm")))]
        let special = [None; 0];
        special.into_iter().flatten().chain([PORTABLE])
    }
}
