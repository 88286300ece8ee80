//! The parameters of each operation's kernels: name, content and size of every operand.

use super::{Covered, Kernel, Operation};
use crate::ir::layout::Layout;
use crate::ir::plan::{Arg, Step};

/// The content of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A constant of weights, stored as floats, halves, bytes or an image.
    Weights,
    /// A constant of floats, one for each row.
    Biases,
    /// A constant of floats, by which elements are multiplied.
    Factors,
    /// A constant of floats, a position and a weight for each tap.
    Taps,
    /// All constants of the network in one buffer.
    Constants,
    /// A matrix of floats, a column for each record.
    Values,
    /// A u32 for each column.
    Classes,
    /// A byte for each element.
    Bytes,
    /// A u32 for each element.
    Words,
}

/// The number of rows or columns of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dim {
    One,
    /// The rows of the result.
    H,
    /// The columns of the result, one per record.
    W,
    /// The common dimension, over which products are summed.
    L,
    /// The rows of a pair's first layer.
    M,
    /// The rows of the result times the number of parts of the common dimension.
    Parts,
    /// The common dimension times the number of parts of the previous layer's common dimension.
    PartsOfL,
    /// The rows of a convolution's weights, or the taps of a resampling.
    Outputs,
    /// The columns of a convolution's weights: the terms of each sum, padded. The two numbers of
    /// a resampling's tap.
    Taps,
    /// The rows of the second of two operands.
    Second,
    /// The length of an array of factors.
    Factors,
    /// The length of an array of summands.
    Summands,
    /// The length of a buffer that holds all constants or all hidden values. Only the plan has it.
    Plan,
}

/// A parameter of a kernel that is an operand, and the operand's content and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// The name in the source.
    pub(crate) name: &'static str,
    pub(crate) holds: Holds,
    pub(crate) rows: Dim,
    pub(crate) cols: Dim,
}

const fn parameter(name: &'static str, holds: Holds, rows: Dim, cols: Dim) -> Parameter {
    Parameter {
        name,
        holds,
        rows,
        cols,
    }
}

/// Returns a parameter for a matrix of floats with a column per record.
const fn values(name: &'static str, rows: Dim) -> Parameter {
    parameter(name, Holds::Values, rows, Dim::W)
}

const A: Parameter = parameter("a", Holds::Weights, Dim::H, Dim::L);
const B: Parameter = values("b", Dim::L);
const R: Parameter = values("r", Dim::H);
const ADDED: Parameter = values("c", Dim::H);
const PROBED: Parameter = values("a", Dim::H);
const BIAS: Parameter = parameter("bias", Holds::Biases, Dim::H, Dim::One);
const BIAS_2: Parameter = parameter("bias2", Holds::Biases, Dim::H, Dim::One);
const TAPS: Parameter = parameter("a", Holds::Weights, Dim::Outputs, Dim::Taps);
const OUTPUTS: Parameter = parameter("bias", Holds::Biases, Dim::Outputs, Dim::One);
const CONSTANTS: Parameter = parameter("a", Holds::Constants, Dim::Plan, Dim::One);
const HIDDEN: Parameter = values("hidden", Dim::Plan);
const CLASSES: Parameter = parameter("classes", Holds::Classes, Dim::One, Dim::W);

impl Operation {
    /// Returns the operands that every kernel of this operation takes, in order.
    pub(crate) fn parameters(self) -> &'static [Parameter] {
        self.operands(false)
    }

    /// Returns the operands in order. With `more`, they include one that only some kernels take. It
    /// is a value to add, in the layout of the result, or a buffer for the values between layers.
    pub(crate) fn operands(self, more: bool) -> &'static [Parameter] {
        const AFFINE: [Parameter; 4] = [A, B, BIAS, values("r", Dim::Parts)];
        const REDUCE: [Parameter; 3] = [values("b", Dim::Parts), BIAS, R];
        const PAIR: [Parameter; 6] = [
            parameter("a", Holds::Weights, Dim::M, Dim::L),
            parameter("bias", Holds::Biases, Dim::M, Dim::One),
            parameter("a2", Holds::Weights, Dim::H, Dim::M),
            BIAS_2,
            B,
            R,
        ];
        const REDUCE_PAIR: [Parameter; 5] = [
            values("b", Dim::PartsOfL),
            parameter("bias", Holds::Biases, Dim::L, Dim::One),
            parameter("a2", Holds::Weights, Dim::H, Dim::L),
            BIAS_2,
            R,
        ];
        const SCALE: [Parameter; 4] = [
            parameter("factors", Holds::Factors, Dim::Factors, Dim::One),
            B,
            parameter("bias", Holds::Biases, Dim::Summands, Dim::One),
            R,
        ];
        const TWO_VALUES: [Parameter; 3] = [B, values("c", Dim::Second), R];
        const RESAMPLE: [Parameter; 3] = [
            parameter("taps", Holds::Taps, Dim::Outputs, Dim::Taps),
            B,
            R,
        ];
        const SOBEL: [Parameter; 3] = [
            parameter("image", Holds::Bytes, Dim::H, Dim::W),
            parameter("dx", Holds::Bytes, Dim::H, Dim::W),
            parameter("dy", Holds::Bytes, Dim::H, Dim::W),
        ];
        const ORDER: [Parameter; 2] = [
            parameter("counter", Holds::Words, Dim::One, Dim::One),
            parameter("r", Holds::Words, Dim::H, Dim::W),
        ];
        match self {
            Operation::Matmul => &[A, B, R],
            Operation::Bias => &[R, BIAS],
            Operation::Affine => &AFFINE,
            Operation::Reduce => &REDUCE,
            Operation::Pair => &PAIR,
            Operation::ReducePair => &REDUCE_PAIR,
            Operation::Layers if more => &[CONSTANTS, B, HIDDEN, R, CLASSES],
            Operation::Layers => &[CONSTANTS, B, R, CLASSES],
            Operation::Convolution if more => &[TAPS, B, OUTPUTS, ADDED, R],
            Operation::Convolution => &[TAPS, B, OUTPUTS, R],
            Operation::Sigmoid | Operation::Relu | Operation::Activation => &[R],
            Operation::Pool | Operation::Softmax => &[B, R],
            Operation::Resample => &RESAMPLE,
            Operation::Scale => &SCALE,
            Operation::Combine | Operation::Product => &TWO_VALUES,
            Operation::Gather | Operation::Repack => &[B, R],
            Operation::ArgMax => &[B, CLASSES],
            Operation::Sobel => &SOBEL,
            Operation::Order => &ORDER,
            Operation::Probe => &[PROBED, R],
        }
    }
}

/// Returns the parameters of a step's kernel that are operands, and the arguments for them.
pub(crate) fn operands(step: &Step) -> (&'static [Parameter], &[Arg]) {
    let scalar = |a: &&Arg| {
        matches!(
            a,
            Arg::Size(_)
                | Arg::Scalar(_)
                | Arg::Pair(_)
                | Arg::Geometry(_)
                | Arg::Moved(_)
                | Arg::Product(_)
        )
    };
    let args = &step.args[step.args.iter().take_while(scalar).count()..];
    let more = args.len() > step.operation.parameters().len();
    (step.operation.operands(more), args)
}

impl Kernel {
    /// Returns the operands of this kernel, in order.
    pub(crate) fn parameters(&self) -> &'static [Parameter] {
        self.operation.operands(self.adds() || self.takes_hidden())
    }

    /// Returns true if the kernel takes `hidden`, a buffer for the values between layers.
    pub(crate) fn takes_hidden(&self) -> bool {
        self.operation == Operation::Layers && !self.of_few()
    }

    /// Returns true if the kernel can add a value to its sums.
    pub(crate) fn adds(&self) -> bool {
        self.epilogue.contains(&Covered::Add)
    }

    /// Returns the layout of the operand for `parameter`. It is row by row if the entry names none.
    pub(crate) fn layout(&self, parameter: &Parameter) -> Layout {
        let r = &self.restrictions;
        let of = match parameter.name {
            "a" => &r.a,
            "b" => &r.b,
            "r" => &r.r,
            _ => &None,
        };
        of.as_ref()
            .and_then(|o| o.representation.clone())
            .unwrap_or(Layout::R)
    }

    /// Returns true if the operand for `parameter` is an image.
    pub(crate) fn reads_image(&self, parameter: &Parameter) -> bool {
        let of = match parameter.name {
            "a" => &self.restrictions.a,
            "b" => &self.restrictions.b,
            _ => &None,
        };
        of.as_ref().is_some_and(|o| o.image)
    }
}
