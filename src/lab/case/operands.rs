//! The operands of a checked or timed kernel, and the contents that the kernel reads from them.

use super::WorkGroup;
use super::problems::{middle, parts_before};
use crate::engine::model::{Values, bytes};
use crate::ir::half;
use crate::ir::layout::Layout;
use crate::ir::network::Precision;
use crate::ir::scale::{self, BESIDE};
use crate::lab::reference::Random;
use crate::planner::bind::Sizes;
use crate::registry::{Holds, Kernel as Entry, Operation, Parameter, Problem};
use std::borrow::Cow;

/// The value that the border pixels of a Sobel result have before the filter, and must keep.
pub(super) const BORDER: u8 = 0x5A;

/// The weights (row major) and the biases of one layer.
#[derive(Default)]
pub(super) struct LayerOperands {
    pub(super) weights: Vec<f32>,
    columns: usize,
    pub(super) biases: Vec<f32>,
}

impl LayerOperands {
    /// Returns the quantized weights as integers that fit into bytes, without the scales of their
    /// rows.
    pub(super) fn numbers(&self) -> Vec<f32> {
        let rows = self.weights.chunks_exact(self.columns.max(1));
        rows.flat_map(|row| {
            let scale = scale::of_row(row);
            row.iter().map(move |&w| scale::number(w, scale).into())
        })
        .collect()
    }

    /// Returns the biases, each beside the quantization scale of its row, padded to `rows` rows.
    /// Kernels with weights in bytes take them in this form.
    fn biases_and_scales(&self, rows: usize) -> Vec<f32> {
        let scales: Vec<f32> = match self.weights.is_empty() {
            true => (0..self.biases.len()).map(power).collect(),
            false => self
                .weights
                .chunks_exact(self.columns.max(1))
                .map(scale::of_row)
                .collect(),
        };
        let both: Vec<f32> = self
            .biases
            .iter()
            .zip(scales)
            .flat_map(|(&b, s)| [b, s])
            .collect();
        Layout::panels(BESIDE).pack(
            &both,
            (self.biases.len(), 2),
            (rows.next_multiple_of(BESIDE), 2),
            0.0,
        )
    }
}

/// Returns the scale of a row for kernels that add up parts. They have no weights to compute a
/// scale from, so powers of two are used.
pub(super) fn power(row: usize) -> f32 {
    2f32.powi(row as i32 % 7 - 3)
}

/// The operands of a run in plain row-major order, without padding.
pub(super) struct Operands {
    pub(super) real: Problem,
    /// The left operand and the biases. For a kernel that computes two layers, they are those of
    /// the first layer.
    pub(super) first: LayerOperands,
    /// The weights and biases of the second layer, empty for a kernel of one layer.
    pub(super) second: LayerOperands,
    /// The type that weights are stored as.
    pub(super) weights: Precision,
    pub(super) b: Vec<f32>,
    /// The result matrix before the run. Scaled products add β times this matrix, and in-place
    /// kernels compute with it.
    pub(super) r: Vec<f32>,
    pub(super) image: Vec<u8>,
    pub(super) alpha: f32,
    pub(super) beta: f32,
}

/// The sizes of a launch's operands. `plain` has the problem's own sizes, and `padded` those that
/// the kernel works on. Contents are packed from `plain` into `padded`. Operands of
/// [`Holds::Bytes`] have no padding.
pub(super) struct LaunchSizes {
    plain: Sizes,
    pub(super) padded: Sizes,
}

impl LaunchSizes {
    pub(super) fn new(
        entry: &Entry,
        group: WorkGroup,
        operands: &Operands,
        parts: usize,
    ) -> LaunchSizes {
        let padded = entry.pad(operands.real, group);
        let align = entry.restrictions.a.as_ref().map_or(1, |a| a.row_align);
        LaunchSizes {
            plain: operands.sizes(entry, operands.real, parts, 1),
            padded: operands.sizes(entry, padded, parts, align),
        }
    }

    /// Returns how many bytes of an operand the kernel may read or write.
    pub(super) fn touched(
        &self,
        entry: &Entry,
        operand: &Parameter,
        precision: Precision,
    ) -> usize {
        let (sizes, bytes) = match operand.holds {
            Holds::Bytes => (&self.plain, 1),
            Holds::Weights => (&self.padded, precision.bytes()),
            _ => (&self.padded, 4),
        };
        let (mut rows, mut cols) = sizes.of_operand(entry.operation, operand);
        if operand.holds == Holds::Biases && precision == Precision::I8 {
            (rows, cols) = (rows.next_multiple_of(BESIDE), 2);
        }
        rows * cols * bytes
    }
}

/// The contents of an operand before a launch.
pub(super) enum Contents<'a> {
    Raw(Cow<'a, [u8]>),
    Numbers(Values),
}

impl Contents<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Contents::Raw(raw) => raw,
            Contents::Numbers(values) => bytes(values),
        }
    }
}

impl Operands {
    /// Draws random operands for `entry`. The result is filled with NaN unless the kernel reads it.
    pub(super) fn draw(
        random: &mut Random,
        entry: &Entry,
        real: Problem,
        (alpha, beta): (f32, f32),
    ) -> Operands {
        let Problem { h, w, l } = real;
        let operation = entry.operation;
        let mut floats = |n: usize| (0..n).map(|_| random.float()).collect::<Vec<f32>>();
        let in_place = matches!(
            operation,
            Operation::Bias | Operation::Sigmoid | Operation::Relu | Operation::Activation
        );
        let reads = in_place || (entry.restrictions.scaled && beta != 0.0);
        let r = match reads {
            true => floats(h * w),
            false => vec![f32::NAN; h * w],
        };
        let product = matches!(
            operation,
            Operation::Matmul | Operation::Affine | Operation::Pair
        );
        let (rows, second) = match middle(operation, real) {
            0 => (h, LayerOperands::default()),
            rows => {
                let second = LayerOperands {
                    weights: floats(h * rows),
                    columns: rows,
                    biases: floats(h),
                };
                (rows, second)
            }
        };
        let b = match operation {
            _ if product => floats(l * w),
            Operation::Repack => floats(l * w),
            Operation::Reduce => floats(l * h * w),
            Operation::ReducePair => floats(parts_before(l) * l * w),
            Operation::ArgMax => with_ties_and_nan(floats(l * w), l, w),
            _ => Vec::new(),
        };
        let weights = match operation {
            Operation::Probe => floats(h * w),
            _ if product => floats(rows * l),
            _ => Vec::new(),
        };
        let first = LayerOperands {
            weights,
            columns: l,
            biases: floats(rows),
        };
        let image = match operation {
            Operation::Sobel => (0..h * w).map(|_| random.byte()).collect(),
            _ => Vec::new(),
        };
        Operands {
            real,
            first,
            second,
            weights: Precision::F32,
            b,
            r,
            image,
            alpha,
            beta,
        }
    }

    /// Returns the rows of the first of two layers, or 0 if the kernel computes one layer.
    pub(super) fn middle(&self) -> usize {
        self.second.columns
    }

    /// Returns the sizes of a launch of `entry` on problem `p`, which is real or padded. If the
    /// kernel computes two layers, the rows of the first are padded to a multiple of `align`.
    fn sizes(&self, entry: &Entry, p: Problem, parts: usize, align: usize) -> Sizes {
        let mut sizes = Sizes {
            parts,
            rows: self.real.l,
            ..Sizes::of(p)
        };
        if entry.operation == Operation::ReducePair {
            sizes.parts = parts_before(p.l);
        }
        if entry.operation == Operation::Pair {
            sizes.middle = self.middle().next_multiple_of(align);
        }
        sizes
    }

    /// Makes the last record overflow, unless there is only one. Infinities of both signs replace
    /// some values that the kernel sums up, activates or compares.
    pub(super) fn overflow(&mut self) {
        let w = self.real.w;
        if w < 2 {
            return;
        }
        let values = match self.b.is_empty() {
            true => &mut self.r,
            false => &mut self.b,
        };
        for (i, row) in values.chunks_exact_mut(w).enumerate().step_by(3) {
            row[w - 1] = match i % 2 {
                0 => f32::NEG_INFINITY,
                _ => f32::INFINITY,
            };
        }
    }

    /// Rounds the weights to values that `precision` can represent.
    pub(super) fn store_as(&mut self, precision: Precision) {
        self.weights = precision;
        match precision {
            Precision::F32 => {}
            Precision::F16 => self.round_to_halves(),
            Precision::I8 => {
                for layer in [&mut self.first, &mut self.second] {
                    let alike = vec![1.0; layer.columns];
                    layer
                        .weights
                        .chunks_exact_mut(layer.columns.max(1))
                        .for_each(|row| scale::round(row, &alike));
                }
            }
        }
    }

    /// Rounds the weights to half precision. The weights of every third row become subnormal
    /// halves, whose digits a device or a conversion in software may lose. The biases of these rows
    /// become as small. Beside larger biases, the rounding of the sums would exceed the bound.
    fn round_to_halves(&mut self) {
        let LayerOperands {
            weights, biases, ..
        } = &mut self.first;
        let rows = weights.chunks_exact_mut(self.real.l.max(1)).zip(biases);
        for (row, bias) in rows.skip(1).step_by(3) {
            row.iter_mut()
                .chain([bias])
                .for_each(|v| *v *= 2f32.powi(-15));
        }
        let both = weights.iter_mut().chain(&mut self.second.weights);
        both.for_each(|v| *v = half::to_f32(half::from_f32(*v)));
    }

    /// Returns the contents of an operand, padded and in the layout of `entry`. If the product is
    /// split into several `parts`, the result is filled with NaN.
    pub(super) fn contents(
        &self,
        entry: &Entry,
        operand: &Parameter,
        sizes: &LaunchSizes,
        parts: usize,
    ) -> Contents<'_> {
        let plain @ (plain_rows, plain_cols) = sizes.plain.of_operand(entry.operation, operand);
        let to @ (rows, cols) = sizes.padded.of_operand(entry.operation, operand);
        let layout = entry.layout(operand);
        let pack = |values: &[f32], pad: f32| layout.pack(values, plain, to, pad);
        let bytes = self.weights == Precision::I8;
        let layer = match operand.name {
            "a2" | "bias2" => &self.second,
            _ => &self.first,
        };
        let values = match (operand.holds, operand.name) {
            (Holds::Bytes, "image") => return Contents::Raw(Cow::Borrowed(&self.image)),
            (Holds::Bytes, _) => {
                return Contents::Raw(vec![BORDER; plain_rows * plain_cols].into());
            }
            (Holds::Words | Holds::Classes, _) => {
                return Contents::Raw(vec![0; 4 * rows * cols].into());
            }
            (Holds::Biases, _) if bytes => layer.biases_and_scales(rows),
            (Holds::Biases, _) => pack(&layer.biases, 0.0),
            (Holds::Weights, "a" | "a2") if bytes => pack(&layer.numbers(), 0.0),
            (_, "a" | "a2") => pack(&layer.weights, 0.0),
            (_, "b") => pack(&self.b, 0.0),
            _ if parts > 1 => vec![f32::NAN; rows * cols],
            _ if self.r.iter().any(|v| v.is_nan()) => pack(&self.r, f32::NAN),
            _ => pack(&self.r, 0.0),
        };
        let stored = match operand.holds {
            Holds::Weights => self.weights,
            _ => Precision::F32,
        };
        Contents::Numbers(match stored {
            Precision::F32 => Values::F32(values.into()),
            Precision::F16 => Values::F16(values.iter().map(|&v| half::from_f32(v)).collect()),
            Precision::I8 => Values::I8(values.iter().map(|&v| v as i8).collect()),
        })
    }
}

/// Returns a matrix of `l` rows. Every third column has only a few distinct values, so that its
/// largest one may occur twice. Every fifth column gets a NaN.
fn with_ties_and_nan(mut b: Vec<f32>, l: usize, w: usize) -> Vec<f32> {
    for c in (0..w).step_by(3) {
        (0..l).for_each(|i| b[i * w + c] = (b[i * w + c] * 3.0).round());
    }
    for c in (1..w).step_by(5) {
        b[(c % l) * w + c] = f32::NAN;
    }
    b
}
