//! The data that steps move, and their shapes in words. `bench network --layers` prints them.

use super::dense::Dense;
use super::micro::WindowOp;
use super::steps::{Action, HostStep};
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::OfChannels;
use crate::ir::view::Geometry;

/// The computation of a step in words, and the bytes that it moves at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepWork {
    /// The number of the step in the plan.
    pub(crate) number: usize,
    /// The operation, for example `convolution, tiles`.
    pub(crate) operation: &'static str,
    /// For example `3x3/2 32→64 at 112x112`.
    pub(crate) shape: String,
    /// The bytes of a record's operands and of its result.
    pub(crate) values: usize,
    /// The bytes of weights, biases and factors. The engine's padding counts.
    pub(crate) weights: usize,
}

/// The steps that a team computes, and the number of its threads.
#[derive(Clone, Debug)]
pub(crate) struct TeamWork {
    pub(crate) threads: usize,
    /// Steps that have become part of others are left out.
    pub(crate) steps: Vec<StepWork>,
}

/// The bytes of a float.
const FLOAT: usize = size_of::<f32>();

impl HostStep {
    /// Describes the step. `number` is its number in the plan, and `rows` are the rows of the
    /// buffer that it writes.
    pub(super) fn work(&self, number: usize, rows: usize) -> StepWork {
        StepWork {
            number,
            operation: self.action.operation(),
            shape: self.action.shape(rows),
            values: self.values(rows),
            weights: self.action.weight_bytes(),
        }
    }

    /// The bytes of a record's operands and of its result, each once. Of an operand only pixels
    /// within windows count.
    fn values(&self, rows: usize) -> usize {
        let read = if self.reads_bytes() { 1 } else { FLOAT };
        let written = self.value_size();
        match &self.action {
            Action::Affine(dense) => dense.inputs * read + dense.biases.len() * written,
            Action::Convolution(_, geometry)
            | Action::Tiles(_, geometry, _)
            | Action::Windows { geometry, .. }
            | Action::Resample { geometry, .. }
            | Action::OfChannels { geometry, .. } => {
                let (_, to) = geometry.output;
                let added = self.action.other().map_or(0, |_| to.len() * FLOAT);
                seen(geometry) * read + to.len() * written + added
            }
            Action::Combine { geometry, .. } => {
                let ((_, second), (_, to)) = (geometry.input, geometry.output);
                second.len() * read + to.len() * (read + written)
            }
            Action::Product { product, .. } => {
                let operands = product.rows * product.terms + product.terms * product.columns;
                product.groups * operands * read + product.len() * written
            }
            Action::Scale { moves, .. } => 2 * moves.len() * FLOAT,
            Action::Sum { count, .. } => count * (2 * read + written),
            Action::Gather { moves, .. } => 2 * moves.len() * FLOAT,
            Action::Activate(_) => 2 * rows * FLOAT,
            Action::ArgMax(scores) => scores * FLOAT,
        }
    }
}

/// The number of the operand's values that lie in a window.
fn seen(geometry: &Geometry) -> usize {
    let ((_, from), (_, to)) = (geometry.input, geometry.output);
    let (down, along) = geometry.window.size;
    from.h.min(to.h * down) * from.w.min(to.w * along) * from.c
}

impl Action {
    fn operation(&self) -> &'static str {
        let integers = |dense: &Dense| dense.whole.is_some();
        match self {
            Action::Affine(dense) if integers(dense) => "affine, integers",
            Action::Affine(_) => "affine",
            Action::Convolution(dense, _) if integers(dense) => "convolution, integers",
            Action::Convolution(dense, _) if dense.addend.is_some() => "convolution, add",
            Action::Convolution(..) => "convolution",
            Action::Tiles(..) => "convolution, tiles",
            Action::Windows {
                operation, bytes, ..
            } => match operation {
                WindowOp::Products if bytes.is_some() => "depthwise convolution, integers",
                WindowOp::Products => "depthwise convolution",
                WindowOp::Max => "max pool",
                WindowOp::Mean | WindowOp::PaddedMean => "mean pool",
            },
            Action::Combine { arithmetic, .. } => arithmetic.name(),
            Action::Scale { biases: None, .. } => "prelu",
            Action::Scale { .. } => "scale",
            Action::Sum { .. } => "sum of integers",
            Action::Resample { .. } => "resample",
            Action::Product { .. } => "product",
            Action::OfChannels { of, .. } => match of {
                OfChannels::Softmax | OfChannels::LogSoftmax | OfChannels::IntegerSoftmax(_) => {
                    "softmax"
                }
                OfChannels::ByteSteps => "byte steps",
            },
            Action::Gather { .. } => "gather",
            Action::Activate(Activation::None) => "nothing",
            Action::Activate(activation) => activation.name(),
            Action::ArgMax(_) => "argmax",
        }
    }

    /// The sizes that tell layers of one operation apart.
    fn shape(&self, rows: usize) -> String {
        let image = |Shape { c, h, w }: Shape| format!("{c} at {h}x{w}");
        match self {
            Action::Affine(dense) => format!("{}→{}", dense.inputs, dense.biases.len()),
            Action::Convolution(_, geometry) | Action::Tiles(_, geometry, _) => {
                let ((_, from), (_, to)) = (geometry.input, geometry.output);
                let groups = match geometry.groups {
                    0 | 1 => String::new(),
                    groups => format!(", {groups} groups"),
                };
                format!("{} {}→{}{groups}", window(geometry), from.c, image(to))
            }
            Action::Windows { geometry, .. } => {
                let (_, to) = geometry.output;
                format!("{} {}", window(geometry), image(to))
            }
            Action::Resample { geometry, .. } => {
                let ((_, from), (_, to)) = (geometry.input, geometry.output);
                format!("{}x{}→{}", from.h, from.w, image(to))
            }
            Action::Combine { geometry, .. } | Action::OfChannels { geometry, .. } => {
                let (_, to) = geometry.output;
                image(to)
            }
            Action::Product { product, .. } => {
                let (rows, terms, columns) = (product.rows, product.terms, product.columns);
                format!("{} of {rows}x{terms}x{columns}", product.groups)
            }
            Action::Scale { moves, .. } => moves.len().to_string(),
            Action::Sum { count, .. } => count.to_string(),
            Action::Gather { moves, .. } => moves.len().to_string(),
            Action::Activate(_) => rows.to_string(),
            Action::ArgMax(scores) => scores.to_string(),
        }
    }

    fn weight_bytes(&self) -> usize {
        match self {
            Action::Affine(dense) | Action::Convolution(dense, _) => {
                let stored = match &dense.whole {
                    Some(_) => dense.inputs * dense.biases.len(),
                    None => dense.weights.bytes(),
                };
                stored + numbers_of_rows(dense)
            }
            // The transformed weights have more elements than the 3 × 3 of the layer.
            Action::Tiles(dense, _, size) => {
                (dense.weights.bytes() * 9 + numbers_of_rows(dense)) / size.elements()
            }
            Action::Windows {
                bytes: Some(weights),
                ..
            } => {
                let rows = weights.start.len() + weights.factors.len() + weights.summands.len();
                weights.groups.len() * 4 + rows * FLOAT
            }
            Action::Windows {
                weights: Some((weights, biases)),
                ..
            } => weights.bytes() + size_of_val(&**biases),
            Action::Scale {
                factors, biases, ..
            } => size_of_val(&**factors) + biases.as_ref().map_or(0, |b| size_of_val(&**b)),
            _ => 0,
        }
    }
}

/// The bytes of the biases, scales and factors of a layer's rows.
fn numbers_of_rows(dense: &Dense) -> usize {
    let rescale = dense.rescale.as_ref();
    let rescale = rescale.map_or(0, |r| r.factors.len() + r.summands.len());
    (dense.biases.len() + dense.scales.len() + rescale) * FLOAT
}

/// Window size, stride and dilation, for example `3x3/2`. The stride is left out if it is 1.
fn window(geometry: &Geometry) -> String {
    let window = &geometry.window;
    let ((h, w), (down, along)) = (window.size, window.stride);
    let stride = match (down, along) {
        (1, 1) => String::new(),
        _ if down == along => format!("/{down}"),
        _ => format!("/{down}x{along}"),
    };
    let dilation = match window.dilation {
        (1, 1) => String::new(),
        (down, along) if down == along => format!(" dilated {down}"),
        (down, along) => format!(" dilated {down}x{along}"),
    };
    format!("{h}x{w}{stride}{dilation}")
}
