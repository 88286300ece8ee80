//! The parameters of each operation's kernels: what their operands hold, how large they are, where
//! they stand.

use super::{Covered, Kernel, Operation};
use crate::ir::layout::Layout;
use crate::ir::plan::{Arg, Step};

/// What the operand of a parameter holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Weights: a constant that may be stored as halves, or an image.
    Weights,
    /// Summands of rows: a constant of floats.
    Biases,
    /// Factors of single elements: a constant of floats.
    Factors,
    /// Every constant of the network, one after the other.
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

/// A number of rows or columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dim {
    /// 1
    One,
    /// Rows of the result.
    H,
    /// Columns of the result: records.
    W,
    /// Common dimension.
    L,
    /// Rows of a pair's first layer.
    M,
    /// Rows of the result, once for each part of the common dimension.
    Parts,
    /// The common dimension, once for each part of that of the layer before.
    PartsOfL,
    /// Rows of a convolution's weights.
    Outputs,
    /// Columns of a convolution's weights.
    Taps,
    /// Rows of the second of two operands.
    Second,
    /// Numbers of an array of factors.
    Factors,
    /// Numbers of an array of summands.
    Summands,
    /// What the plan gives it: values between layers.
    Plan,
}

/// A parameter of a kernel for an operand: its name in the source, what it holds, its rows and
/// columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// Name in the source.
    pub(crate) name: &'static str,
    /// What it holds.
    pub(crate) holds: Holds,
    /// Rows.
    pub(crate) rows: Dim,
    /// Columns.
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

const A: Parameter = parameter("a", Holds::Weights, Dim::H, Dim::L);
const B: Parameter = parameter("b", Holds::Values, Dim::L, Dim::W);
const R: Parameter = parameter("r", Holds::Values, Dim::H, Dim::W);
const ADDED: Parameter = parameter("c", Holds::Values, Dim::H, Dim::W);
const BIAS: Parameter = parameter("bias", Holds::Biases, Dim::H, Dim::One);
const TAPS: Parameter = parameter("a", Holds::Weights, Dim::Outputs, Dim::Taps);
const OUTPUTS: Parameter = parameter("bias", Holds::Biases, Dim::Outputs, Dim::One);
const CONSTANTS: Parameter = parameter("a", Holds::Constants, Dim::Plan, Dim::One);
const HIDDEN: Parameter = parameter("hidden", Holds::Values, Dim::Plan, Dim::W);
const CLASSES: Parameter = parameter("classes", Holds::Classes, Dim::One, Dim::W);

impl Operation {
    /// What a kernel of this operation takes after its sizes, in order.
    pub(crate) fn parameters(self) -> &'static [Parameter] {
        self.operands(false)
    }

    /// The same; with what only some kernels of it take, too: a value that is added to their sums,
    /// which stands as the result does, or a place for what is between layers.
    pub(crate) fn operands(self, more: bool) -> &'static [Parameter] {
        match self {
            Operation::Matmul => const { &[A, B, R] },
            Operation::Bias => const { &[R, BIAS] },
            Operation::Affine => {
                const {
                    &[
                        A,
                        B,
                        BIAS,
                        parameter("r", Holds::Values, Dim::Parts, Dim::W),
                    ]
                }
            }
            Operation::Reduce => {
                const { &[parameter("b", Holds::Values, Dim::Parts, Dim::W), BIAS, R] }
            }
            Operation::Pair => {
                const {
                    &[
                        parameter("a", Holds::Weights, Dim::M, Dim::L),
                        parameter("bias", Holds::Biases, Dim::M, Dim::One),
                        parameter("a2", Holds::Weights, Dim::H, Dim::M),
                        parameter("bias2", Holds::Biases, Dim::H, Dim::One),
                        B,
                        R,
                    ]
                }
            }
            Operation::ReducePair => {
                const {
                    &[
                        parameter("b", Holds::Values, Dim::PartsOfL, Dim::W),
                        parameter("bias", Holds::Biases, Dim::L, Dim::One),
                        parameter("a2", Holds::Weights, Dim::H, Dim::L),
                        parameter("bias2", Holds::Biases, Dim::H, Dim::One),
                        R,
                    ]
                }
            }
            Operation::Layers if more => const { &[CONSTANTS, B, HIDDEN, R, CLASSES] },
            Operation::Layers => const { &[CONSTANTS, B, R, CLASSES] },
            Operation::Convolution if more => const { &[TAPS, B, OUTPUTS, ADDED, R] },
            Operation::Convolution => const { &[TAPS, B, OUTPUTS, R] },
            Operation::Sigmoid | Operation::Relu | Operation::Activation => const { &[R] },
            Operation::Pool | Operation::Softmax => const { &[B, R] },
            Operation::Scale => {
                const {
                    &[
                        parameter("factors", Holds::Factors, Dim::Factors, Dim::One),
                        B,
                        parameter("bias", Holds::Biases, Dim::Summands, Dim::One),
                        R,
                    ]
                }
            }
            Operation::Combine => {
                const { &[B, parameter("c", Holds::Values, Dim::Second, Dim::W), R] }
            }
            Operation::Gather | Operation::Repack => const { &[B, R] },
            Operation::ArgMax => const { &[B, CLASSES] },
            Operation::Sobel => {
                const {
                    &[
                        parameter("image", Holds::Bytes, Dim::H, Dim::W),
                        parameter("dx", Holds::Bytes, Dim::H, Dim::W),
                        parameter("dy", Holds::Bytes, Dim::H, Dim::W),
                    ]
                }
            }
            Operation::Order => {
                const {
                    &[
                        parameter("counter", Holds::Words, Dim::One, Dim::One),
                        parameter("r", Holds::Words, Dim::H, Dim::W),
                    ]
                }
            }
            Operation::Probe => const { &[parameter("a", Holds::Values, Dim::H, Dim::W), R] },
        }
    }
}

/// The operands of a step: the parameters of its kernel, and their arguments.
pub(crate) fn operands(step: &Step) -> (&'static [Parameter], &[Arg]) {
    let scalar = |a: &&Arg| {
        matches!(
            a,
            Arg::Size(_) | Arg::Scalar(_) | Arg::Pair(_) | Arg::Geometry(_) | Arg::Moved(_)
        )
    };
    let args = &step.args[step.args.iter().take_while(scalar).count()..];
    let more = args.len() > step.operation.parameters().len();
    (step.operation.operands(more), args)
}

impl Kernel {
    /// What it takes after its sizes, in order; where it can add a value to its sums, that, too.
    pub(crate) fn parameters(&self) -> &'static [Parameter] {
        self.operation.operands(self.adds() || self.takes_hidden())
    }

    /// Whether it takes `hidden`, a buffer for the values between the layers that it computes.
    pub(crate) fn takes_hidden(&self) -> bool {
        self.operation == Operation::Layers && !self.of_few()
    }

    /// Whether it can add a value to its sums.
    pub(crate) fn adds(&self) -> bool {
        self.epilogue.contains(&Covered::Add)
    }

    /// The layout in which the kernel takes `parameter`; row major where it does not say.
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

    /// Whether it reads `parameter` as an image.
    pub(crate) fn reads_image(&self, parameter: &Parameter) -> bool {
        let of = match parameter.name {
            "a" => &self.restrictions.a,
            "b" => &self.restrictions.b,
            _ => &None,
        };
        of.as_ref().is_some_and(|o| o.image)
    }
}
