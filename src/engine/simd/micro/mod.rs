//! The host's micro-kernels, with the widest vectors the CPU has.
//!
//! Weights are in panels of P rows (`R_P_1_C`): for each k, P weights are neighbours. A vector
//! holds neighbouring rows, so nothing is ever reduced across lanes.
//!
//! | file             | what                                                          |
//! |------------------|---------------------------------------------------------------|
//! | `vector`         | what a kernel needs of an instruction set; plain Rust         |
//! | `x86`, `aarch64`, `arm` | the instruction sets, and finding out which ones the CPU has |
//! | `kernel`         | the micro-kernels: tiles, bias, activation                    |
//! | `image`          | those of images: windows channel by channel                   |
//! | `winograd`       | what goes around the products of a convolution by tiles       |
//! | `decode`         | bytes and text to numbers, for the readers of records         |
//!
//! Another instruction set is another `Kernels` with the functions of `kernel`, or with functions
//! of its own that keep the promise of `Subproblem` (32-bit ARM, whose intrinsics are not stable in
//! Rust, has them in C).

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "arm")]
mod arm;
pub(crate) mod decode;
// (32-bit ARM has its activations in C; tiles are of x86-64 alone.)
#[cfg_attr(target_arch = "arm", allow(dead_code))]
#[macro_use]
mod kernel;
mod image;
#[cfg_attr(target_arch = "arm", allow(dead_code))]
mod vector;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(super) mod winograd;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use image::Made;
pub(super) use image::{Line, together};
#[cfg(feature = "lab")]
pub(super) use kernel::INDEPENDENT;
pub(super) use kernel::{Runs, Subproblem};
pub(super) use vector::{Byte, Half};

use crate::ir::network::Activation;
use crate::ir::op::Arithmetic;
use vector::{Lanes4, Vector};
use winograd::Transforms;

/// One affine layer. `E` is how its weights are stored.
pub(super) struct Affine<'a, E = f32> {
    /// Weights, `rows`/P panels of `columns` × P.
    pub(crate) weights: &'a [E],
    /// Biases, `rows`.
    pub(crate) biases: &'a [f32],
    /// Of weights stored as bytes: what the sums of products of each row are multiplied with,
    /// `rows`; else nothing.
    pub(crate) scales: &'a [f32],
    /// Rows of a panel, a multiple of 4.
    pub(crate) panel: usize,
    /// Columns of the weights: the padded common dimension.
    pub(crate) columns: usize,
    /// Common dimension: columns behind it are padding and not read.
    pub(crate) inputs: usize,
    /// Applied to each sum.
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
    /// If so many weights are not those of `rows` rows.
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

/// The micro-kernels for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    /// Name of the instruction set.
    pub(crate) name: &'static str,
    /// What a core does with it, roughly: tells whether sharing work pays.
    pub(crate) gflops: u32,
    /// Floats of a vector.
    pub(crate) lanes: usize,
    /// Records and vectors of a tile.
    pub(crate) tile: (usize, usize),
    /// SAFETY: the subproblem is sound, the CPU has the instruction set.
    pub(crate) affine: unsafe fn(&Subproblem<'_, f32>),
    /// The same of weights stored as halves, where the program may have some: made for single
    /// records, fewer tiles are compiled.
    pub(crate) affine_of_halves: Option<unsafe fn(&Subproblem<'_, Half>)>,
    /// The same of weights stored as bytes.
    pub(crate) affine_of_bytes: Option<unsafe fn(&Subproblem<'_, Byte>)>,
    /// So many turns of [`INDEPENDENT`] vectors of multiply-adds, and nothing else.
    ///
    /// SAFETY: the CPU has the instruction set.
    #[cfg_attr(not(feature = "lab"), allow(dead_code))]
    pub(crate) peak: unsafe fn(usize),
    /// SAFETY: so many values, a multiple of the lanes, are there; the CPU has the instruction set.
    pub(crate) activate: unsafe fn(Activation, *mut f32, usize),
    /// SAFETY: the line is sound, the CPU has the instruction set.
    pub(crate) line: unsafe fn(&Line),
    /// Whether `line` takes several lines at a time.
    pub(crate) takes_lines: bool,
    /// First operand, second, result, and how many values: `combine` of `image.rs`.
    ///
    /// SAFETY: so many values, a multiple of the lanes, are there; the CPU has the instruction set.
    pub(crate) combine: unsafe fn(Arithmetic, *const f32, *const f32, *mut f32, usize),
    /// Where convolutions by tiles have been measured to take less time.
    pub(crate) transforms: Option<Transforms>,
}

/// `kernel`, if weights in this program may be stored as halves: nothing else refers to it then,
/// and it is left out.
const fn of_halves(
    kernel: unsafe fn(&Subproblem<'_, Half>),
) -> Option<unsafe fn(&Subproblem<'_, Half>)> {
    if cfg!(any(
        test,
        feature = "lab",
        feature = "appended",
        feature = "bake",
        mortonnet_weights = "f16"
    )) {
        Some(kernel)
    } else {
        None
    }
}

/// The same for bytes.
const fn of_bytes(
    kernel: unsafe fn(&Subproblem<'_, Byte>),
) -> Option<unsafe fn(&Subproblem<'_, Byte>)> {
    if cfg!(any(
        test,
        feature = "lab",
        feature = "appended",
        feature = "bake",
        mortonnet_weights = "i8"
    )) {
        Some(kernel)
    } else {
        None
    }
}

/// The least and the largest value of an activation that does nothing but bound them.
pub(super) fn bounds(activation: Activation) -> Option<(f32, f32)> {
    match activation {
        Activation::None => Some((f32::NEG_INFINITY, f32::INFINITY)),
        Activation::Relu => Some((0.0, f32::INFINITY)),
        Activation::Clip { .. } => Some(activation.parameters().into()),
        _ => None,
    }
}

/// Applies an activation value by value. NaN stays NaN, and 0 · x makes NaN of the infinities that
/// an overflow leaves.
///
/// SAFETY: so many values are there.
pub(super) unsafe fn activate_each(activation: Activation, values: *mut f32, count: usize) {
    // SAFETY: the caller's promise.
    for x in unsafe { std::slice::from_raw_parts_mut(values, count) } {
        *x = activation.apply(f64::from(*x)) as f32 + 0.0 * *x;
    }
}

/// What every CPU runs: four lanes in plain Rust.
const PORTABLE: Kernels = Kernels {
    name: "portable",
    gflops: 4,
    lanes: Lanes4::LANES,
    tile: (2, 1),
    affine: kernel::affine::<Lanes4, f32, 2, 1, 1>,
    affine_of_halves: of_halves(kernel::affine::<Lanes4, Half, 1, 1, 1>),
    affine_of_bytes: of_bytes(kernel::affine::<Lanes4, Byte, 1, 1, 1>),
    peak: kernel::peak::<Lanes4>,
    activate: activate_each,
    line: image::line::<Lanes4>,
    takes_lines: Lanes4::REGISTERS,
    combine: image::combine::<Lanes4>,
    transforms: None,
};

impl Kernels {
    /// Applies the activation to what `affine` has left, unless it is applied already.
    ///
    /// SAFETY: as `affine`.
    pub(super) unsafe fn complete<E>(&self, sub: &Subproblem<'_, E>) {
        let activation = sub.layer.activation;
        if matches!(activation, Activation::None | Activation::Relu) {
            return;
        }
        // Records that are neighbours are one.
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

    /// The best for this CPU and panels of `panel` rows, asked at run time: the binary runs on
    /// every CPU of its architecture.
    pub(super) fn detect(panel: usize) -> Kernels {
        Kernels::all()
            .find(|k| panel % k.lanes == 0)
            .unwrap_or(PORTABLE)
    }

    /// Everything this CPU can run, the best first.
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
