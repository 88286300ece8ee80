//! The operands of each operation's kernels: name, content and size of every parameter that is one.

use super::{Covered, Kernel, Operation};
use crate::ir::layout::Layout;
use crate::ir::plan::{Arg, Step};

/// The kind of data that an operand of a kernel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A constant with weights, stored as floats, halves, bytes or an image.
    Weights,
    /// A constant with one float for each row, such as biases.
    Biases,
    /// A constant with the floats that elements are multiplied by.
    Factors,
    /// A constant with two floats for each tap of a resampling: a position and a weight.
    Taps,
    /// All constants of the network in one buffer.
    Constants,
    /// A matrix of floats, with a column for each record.
    Values,
    /// One u32 for each column, the class of a record.
    Classes,
    /// One byte for each element.
    Bytes,
    /// One u32 for each element.
    Words,
}

/// The number of rows or columns of a kernel's operand, in terms of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dim {
    One,
    /// The number of rows of the result.
    H,
    /// The number of columns of the result, one per record.
    W,
    /// The common dimension of a product, over which terms are summed.
    L,
    /// The number of rows of the first layer, if the kernel computes a pair of layers.
    M,
    /// The number of rows of the result, times the number of parts that the common dimension is
    /// split into.
    Parts,
    /// The common dimension, times the number of parts that the previous step wrote.
    PartsOfL,
    /// The number of rows of a convolution's weights, or of taps of a resampling.
    Outputs,
    /// The number of columns of a convolution's weights: the padded terms of each sum. For a
    /// resampling it is 2, a position and a weight for each tap.
    Taps,
    /// The number of rows of the second operand, if there are two.
    Second,
    /// The length of an array of factors.
    Factors,
    /// The length of an array of summands.
    Summands,
    /// The length of a buffer that holds all constants or all hidden values. Only the plan knows
    /// it.
    Plan,
}

/// An operand among the parameters of a kernel, with its content and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// The name of the parameter in the kernel's source.
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

/// Returns a parameter for a matrix of floats that has a column per record.
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
    /// Returns the operands that every kernel of this operation takes, in the order of the
    /// parameters.
    pub(crate) fn parameters(self) -> &'static [Parameter] {
        self.operands(false)
    }

    /// Returns the operands in the order of the parameters. With `more`, they include an operand
    /// that only some kernels take: a value to add, in the result's layout, or a buffer for values
    /// between layers.
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

/// Returns the operands of a step's kernel, and the arguments for them.
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
    /// Returns the operands of this kernel, in the order of its parameters.
    pub(crate) fn parameters(&self) -> &'static [Parameter] {
        self.operation.operands(self.adds() || self.takes_hidden())
    }

    /// Returns true if the kernel has the operand `hidden`, a buffer for the values between layers.
    pub(crate) fn takes_hidden(&self) -> bool {
        self.operation == Operation::Layers && !self.of_few()
    }

    /// Returns true if the kernel can add another value to its sums in the same launch.
    pub(crate) fn adds(&self) -> bool {
        self.epilogue.contains(&Covered::Add)
    }

    /// Returns the layout of the operand `parameter`. If the kernel's entry names none, it is row
    /// by row.
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

    /// Returns true if the kernel reads the operand `parameter` as an OpenCL image.
    pub(crate) fn reads_image(&self, parameter: &Parameter) -> bool {
        let of = match parameter.name {
            "a" => &self.restrictions.a,
            "b" => &self.restrictions.b,
            _ => &None,
        };
        of.as_ref().is_some_and(|o| o.image)
    }
}
