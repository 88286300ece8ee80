//! What nodes of a graph and kernels compute, as plain data. `ops` knows what it means.

use super::graph::Shape;

/// What a node computes. Values are in the order c, y, x; each operation's file in `ops` says more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// R = W·I + b, W of outputs × inputs.
    Affine,
    /// Weights that a window carries over the image: W of outputs × (ky, kx, c), c of one group.
    Convolution {
        /// Where it looks.
        window: Window,
        /// Groups of channels, each of which sees its own channels only.
        groups: usize,
    },
    /// The largest value of a window, or their mean.
    Pool {
        /// Which of the two.
        kind: Pool,
        /// Where it looks.
        window: Window,
    },
    /// An element-wise function.
    Activation(Activation),
    /// x where it is above 0, else slope · x, with a slope of each channel.
    PRelu,
    /// x · factor + bias, of each channel or of each element.
    Scale,
    /// Two values, element by element; of the second each channel may have one element for all
    /// pixels.
    Combine(Arithmetic),
    /// Values one behind the other along an axis.
    Concat(Axis),
    /// A part: elements side by side along an axis.
    Slice {
        /// The axis.
        axis: Axis,
        /// The first of them.
        first: usize,
        /// How many.
        size: usize,
    },
    /// A border of a constant.
    Pad {
        /// Its rows and columns.
        border: Border,
        /// The constant.
        value: Float,
    },
    /// Softmax over the channels of each pixel, or its logarithm.
    Softmax(SoftmaxOf),
    /// The same elements in another shape.
    Reshape(Shape),
    /// The axes in another order: axis i of the result is axis `.0[i]` of the operand.
    Transpose([Axis; 3]),
}

impl Op {
    /// Its name in `library.json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Affine => "affine",
            Op::Convolution { .. } => "convolution",
            Op::Pool {
                kind: Pool::Max, ..
            } => "max_pool",
            Op::Pool {
                kind: Pool::Mean | Pool::PaddedMean,
                ..
            } => "average_pool",
            Op::Activation(a) => a.name(),
            Op::PRelu => "prelu",
            Op::Scale => "scale",
            Op::Combine(a) => a.name(),
            Op::Concat(_) => "concat",
            Op::Slice { .. } => "slice",
            Op::Pad { .. } => "pad",
            Op::Softmax(SoftmaxOf::Linear) => "softmax",
            Op::Softmax(SoftmaxOf::Logarithm) => "log_softmax",
            Op::Reshape(_) => "reshape",
            Op::Transpose(_) => "transpose",
        }
    }
}

/// How a window runs over an image, (height, width) each. What it covers of the border does not
/// count, or counts as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Its size.
    pub(crate) size: (usize, usize),
    /// From one to the next.
    pub(crate) stride: (usize, usize),
    /// From one of its elements to the next.
    pub(crate) dilation: (usize, usize),
    /// What stands around the image.
    pub(crate) border: Border,
    /// The last window may begin inside the image and end outside of its border.
    pub(crate) ceil: bool,
}

impl Window {
    /// A window of `size` that stands side by side.
    pub(crate) const fn of(size: (usize, usize)) -> Window {
        let border = Border {
            top: 0,
            left: 0,
            bottom: 0,
            right: 0,
        };
        Window {
            size,
            stride: (1, 1),
            dilation: (1, 1),
            border,
            ceil: false,
        }
    }
}

/// Rows and columns around an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Border {
    /// Rows above.
    pub(crate) top: usize,
    /// Columns to the left.
    pub(crate) left: usize,
    /// Rows below.
    pub(crate) bottom: usize,
    /// Columns to the right.
    pub(crate) right: usize,
}

/// What a pooling makes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// The largest value; NaN where there is one.
    Max,
    /// The mean of the values inside the image.
    Mean,
    /// The mean with zeros in the border.
    PaddedMean,
}

/// An axis of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Channels.
    C,
    /// Rows of the image.
    Y,
    /// Columns of the image.
    X,
}

/// How two values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// a + b
    Add,
    /// a − b
    Subtract,
    /// a · b
    Multiply,
    /// a / b
    Divide,
}

impl Arithmetic {
    /// Every one, in the order of their codes.
    pub(crate) const ALL: [Arithmetic; 4] = [
        Arithmetic::Add,
        Arithmetic::Subtract,
        Arithmetic::Multiply,
        Arithmetic::Divide,
    ];

    /// Its name in `library.json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arithmetic::Add => "add",
            Arithmetic::Subtract => "subtract",
            Arithmetic::Multiply => "multiply",
            Arithmetic::Divide => "divide",
        }
    }
}

/// What a softmax gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoftmaxOf {
    /// Probabilities.
    Linear,
    /// Their logarithms.
    Logarithm,
}

/// An element-wise function between layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Activation {
    /// x
    None,
    /// 1 / (1 + e^−x)
    Sigmoid,
    /// max(x, 0), NaN stays NaN
    Relu,
    /// tanh x
    Tanh,
    /// x above 0, slope · x below; NaN stays NaN
    LeakyRelu(Float),
    /// x between the two: min(max(x, low), high); NaN stays NaN
    Clip {
        /// The lower limit, which may be −∞.
        low: Float,
        /// The upper limit, which may be ∞.
        high: Float,
    },
    /// γ · x above 0, γ · α · (eˣ − 1) below
    Elu {
        /// α
        alpha: Float,
        /// γ: 1 for the ELU, more for the SELU.
        gamma: Float,
    },
    /// x · Φ(x), Φ the normal distribution's
    Gelu,
    /// x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))
    GeluTanh,
    /// α · x + β between 0 and 1
    HardSigmoid {
        /// α
        alpha: Float,
        /// β
        beta: Float,
    },
    /// x · (x / 6 + 1/2, between 0 and 1)
    HardSwish,
}

/// A float that is compared by its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Float(u32);

impl Float {
    /// Of a number.
    pub(crate) const fn new(x: f32) -> Float {
        Float(x.to_bits())
    }

    /// The number.
    pub(crate) const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl std::fmt::Debug for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.get())
    }
}

impl Activation {
    /// Those that kernels apply to their results, with some parameters: kernels and entries serve
    /// every other, tests use these.
    pub(crate) const FUSED: [Activation; 5] = [
        Activation::Sigmoid,
        Activation::Relu,
        Activation::Tanh,
        Activation::LeakyRelu(Float::new(0.25)),
        Activation::Clip {
            low: Float::new(-0.25),
            high: Float::new(0.5),
        },
    ];

    /// Every one that is a function, in the order of their codes.
    pub(crate) const ALL: [Activation; 10] = [
        Activation::FUSED[0],
        Activation::FUSED[1],
        Activation::FUSED[2],
        Activation::FUSED[3],
        Activation::FUSED[4],
        Activation::Elu {
            alpha: Float::new(1.5),
            gamma: Float::new(0.75),
        },
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::HardSigmoid {
            alpha: Float::new(0.2),
            beta: Float::new(0.5),
        },
        Activation::HardSwish,
    ];

    /// The value the kernels know it by (`-DACTIVATION=…`, `kernels/common/activation.cl`).
    pub(crate) fn code(self) -> u32 {
        match self {
            Activation::None => 0,
            Activation::Sigmoid => 1,
            Activation::Relu => 2,
            Activation::Tanh => 3,
            Activation::LeakyRelu(_) => 4,
            Activation::Clip { .. } => 5,
            Activation::Elu { .. } => 6,
            Activation::Gelu => 7,
            Activation::GeluTanh => 8,
            Activation::HardSigmoid { .. } => 9,
            Activation::HardSwish => 10,
        }
    }

    /// Its lower-case name; `none` for the identity.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Activation::None => "none",
            Activation::Sigmoid => "sigmoid",
            Activation::Relu => "relu",
            Activation::Tanh => "tanh",
            Activation::LeakyRelu(_) => "leaky_relu",
            Activation::Clip { .. } => "clip",
            Activation::Elu { .. } => "elu",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_tanh",
            Activation::HardSigmoid { .. } => "hard_sigmoid",
            Activation::HardSwish => "hard_swish",
        }
    }

    /// Its parameters, of which kernels have arguments: a slope, or two limits; 0 where it has
    /// none.
    pub(crate) fn parameters(self) -> [f32; 2] {
        match self {
            Activation::LeakyRelu(slope) => [slope.get(), 0.0],
            Activation::Clip { low, high } => [low.get(), high.get()],
            Activation::Elu { alpha, gamma } => [alpha.get(), gamma.get()],
            Activation::HardSigmoid { alpha, beta } => [alpha.get(), beta.get()],
            Activation::None
            | Activation::Sigmoid
            | Activation::Relu
            | Activation::Tanh
            | Activation::Gelu
            | Activation::GeluTanh
            | Activation::HardSwish => [0.0; 2],
        }
    }
}

/// What a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// R = A·B
    Matmul,
    /// R += b, the same summand for every column
    Bias,
    /// R = activation(A·B + b) in one kernel
    Affine,
    /// R = activation(sum of `l` parts + b): ends an affine layer whose common dimension
    /// work-groups have shared
    Reduce,
    /// R = A2·activation(A·B + b) + b2: two affine layers in one kernel
    Pair,
    /// R = A2·activation(sum of `c` parts + b) + b2: ends an affine layer as `Reduce` does, and
    /// computes the next one
    ReducePair,
    /// all affine layers with their activations, then the arg-max: a network in one kernel
    Layers,
    /// R = activation(convolution of B with A, + b)
    Convolution,
    /// R = the largest value, or the mean, of each window of B
    Pool,
    /// R = sigmoid(R)
    Sigmoid,
    /// R = max(R, 0)
    Relu,
    /// R = f(R), f any element-wise function
    Activation,
    /// R = B · factor + bias; or R = B, times a factor where it is below 0
    Scale,
    /// R = B and C, element by element
    Combine,
    /// R = softmax of each pixel's channels, or its logarithm
    Softmax,
    /// rows of one matrix as rows of another
    Gather,
    /// the same matrix in another layout
    Repack,
    /// class of every column: the row of its largest value, the lowest of equal ones, `NAN_CLASS`
    /// if one is NaN or infinite
    ArgMax,
    /// Horizontal and vertical 3×3 Sobel filter of a byte image (ARM, §1); the border stays as it
    /// is
    Sobel,
    /// r[i] = number of work-items before this one (the thesis, fig. 12.1)
    Order,
    /// Measures the device: multiply-adds in registers, or a copy
    Probe,
}

impl Operation {
    /// Every operation, in the order of a layer.
    pub(crate) const ALL: [Operation; 21] = [
        Operation::Matmul,
        Operation::Bias,
        Operation::Affine,
        Operation::Reduce,
        Operation::Pair,
        Operation::ReducePair,
        Operation::Layers,
        Operation::Convolution,
        Operation::Pool,
        Operation::Sigmoid,
        Operation::Relu,
        Operation::Activation,
        Operation::Scale,
        Operation::Combine,
        Operation::Softmax,
        Operation::Gather,
        Operation::Repack,
        Operation::ArgMax,
        Operation::Sobel,
        Operation::Order,
        Operation::Probe,
    ];

    /// Its name in `library.json`, and the folder of its kernels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Matmul => "matmul",
            Operation::Bias => "bias",
            Operation::Affine => "affine",
            Operation::Reduce => "reduce",
            Operation::Pair => "pair",
            Operation::ReducePair => "reducepair",
            Operation::Layers => "layers",
            Operation::Convolution => "convolution",
            Operation::Pool => "pool",
            Operation::Sigmoid => "sigmoid",
            Operation::Relu => "relu",
            Operation::Activation => "activation",
            Operation::Scale => "scale",
            Operation::Combine => "combine",
            Operation::Softmax => "softmax",
            Operation::Gather => "gather",
            Operation::Repack => "repack",
            Operation::ArgMax => "argmax",
            Operation::Sobel => "sobel",
            Operation::Order => "order",
            Operation::Probe => "probe",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels know activations by their codes, files know operations by their names.
    #[test]
    fn codes_and_names_tell_one_from_another() {
        assert_eq!(Activation::None.code(), 0);
        assert!(Activation::ALL.iter().map(|a| a.code()).eq(1..=10));
        let mut names: Vec<&str> = Activation::ALL.iter().map(|a| a.name()).collect();
        names.extend(Arithmetic::ALL.iter().map(|a| a.name()));
        names.push(Activation::None.name());
        let functions = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), functions);
        let mut names: Vec<&str> = Operation::ALL.iter().map(|o| o.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Operation::ALL.len());
    }

    #[test]
    fn parameters_are_shown_and_compared_as_they_are() {
        let leaky = Activation::LeakyRelu(Float::new(0.25));
        assert_eq!(format!("{leaky:?}"), "LeakyRelu(0.25)");
        assert_eq!(leaky.parameters(), [0.25, 0.0]);
        assert_eq!(Float::new(f32::NAN), Float::new(f32::NAN));
        assert_ne!(Float::new(0.0), Float::new(-0.0));
    }
}
