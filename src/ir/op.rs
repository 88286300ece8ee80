//! The operations of graphs and kernels as plain data. The module `ops` computes them.

use super::graph::Shape;

/// The operation of a node. The elements of a value are in the order c, y, x. The files in `ops`
/// define each operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// R = W·I + b, W of outputs × inputs.
    Affine,
    /// A convolution with W of outputs × (ky, kx, c), where c are the channels of a group.
    Convolution {
        window: Window,
        groups: usize,
    },
    /// The maximum or mean of each window.
    Pool {
        kind: Pool,
        window: Window,
    },
    Activation(Activation),
    /// x above 0, else slope · x, with a slope for each channel.
    PRelu,
    /// x · factor + bias, with a factor and a bias for each channel or each element.
    Scale,
    /// An element-wise operation on two values. The second may have one element per channel, which
    /// is used for all pixels.
    Combine(Arithmetic),
    /// The concatenation of values along an axis.
    Concat(Axis),
    /// The `size` neighbouring elements from `first` on along an axis.
    Slice {
        axis: Axis,
        first: usize,
        size: usize,
    },
    /// The operand, surrounded by elements that have the constant `value`.
    Pad {
        padding: Padding,
        value: Float,
    },
    /// A linear resampling of rows and columns. Element (c, y, x) of the result is the sum of
    /// wy · wx · element (c, py, px) of the operand, over the taps (py, wy) of row y and the taps
    /// (px, wx) of column x. The only array has the taps ([`taps`](super::taps)).
    Resample {
        height: usize,
        width: usize,
        /// The number of taps for each row and for each column.
        taps: (usize, usize),
    },
    /// The products of two values A and B, in groups. Element (g, i, j) of the result is the sum
    /// over k of A(g, i, k) · B(g, k, j), or of A(g, i, k) · B(g, j, k) with `transposed`. The
    /// channels of both values are the groups.
    Product {
        transposed: bool,
    },
    /// Softmax over the channels of each pixel, or its logarithm.
    Softmax(SoftmaxOf),
    /// The elements in their order, in another shape.
    Reshape(Shape),
    /// The axes in another order. Axis i of the result is axis `.0[i]` of the operand.
    Transpose([Axis; 3]),
}

impl Op {
    /// The name in `library.json`.
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
            Op::Resample { .. } => "resample",
            Op::Product { .. } => "product",
            Op::Softmax(SoftmaxOf::Linear) => "softmax",
            Op::Softmax(SoftmaxOf::Logarithm) => "log_softmax",
            Op::Reshape(_) => "reshape",
            Op::Transpose(_) => "transpose",
        }
    }
}

/// A window that moves over an image. Pairs are (height, width). Elements of the window in the
/// border count as 0, or do not count, as the operation says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) size: (usize, usize),
    /// The distance from one position of the window to the next.
    pub(crate) stride: (usize, usize),
    /// The distance between neighbouring elements of the window.
    pub(crate) dilation: (usize, usize),
    pub(crate) border: Border,
    /// True if the last window may end outside of the border.
    pub(crate) ceil: bool,
}

impl Window {
    /// A window with stride 1 and no border.
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

/// The number of rows and columns around an image that a window may cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Border {
    pub(crate) top: usize,
    pub(crate) left: usize,
    pub(crate) bottom: usize,
    pub(crate) right: usize,
}

/// The number of elements around a value, before and behind it along c, y and x.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Padding {
    pub(crate) before: [usize; 3],
    pub(crate) behind: [usize; 3],
}

impl Padding {
    /// Returns the padding that has the rows and columns of `border` and no channels.
    pub(crate) fn of_border(border: Border) -> Padding {
        Padding {
            before: [0, border.top, border.left],
            behind: [0, border.bottom, border.right],
        }
    }

    /// Returns the rows and columns of the padding as a border. `None` if the padding has channels.
    pub(crate) fn border(self) -> Option<Border> {
        let ([before, top, left], [behind, bottom, right]) = (self.before, self.behind);
        (before + behind == 0).then_some(Border {
            top,
            left,
            bottom,
            right,
        })
    }
}

/// The value that pooling computes from a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// The maximum, or NaN if the window has one.
    Max,
    /// The mean of the values inside the image.
    Mean,
    /// The mean, where elements in the border count as 0.
    PaddedMean,
}

/// An axis of a value: channels (c), rows (y) or columns (x) of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    C,
    Y,
    X,
}

/// An element-wise operation on two values a and b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// The larger of both operands. NaN if an operand is NaN.
    Maximum,
    /// The smaller of both operands. NaN if an operand is NaN.
    Minimum,
}

impl Arithmetic {
    /// All arithmetic operations, in the order of their codes in kernels (`-DCOMBINE=…`).
    pub(crate) const ALL: [Arithmetic; 6] = [
        Arithmetic::Add,
        Arithmetic::Subtract,
        Arithmetic::Multiply,
        Arithmetic::Divide,
        Arithmetic::Maximum,
        Arithmetic::Minimum,
    ];

    /// The name in `library.json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arithmetic::Add => "add",
            Arithmetic::Subtract => "subtract",
            Arithmetic::Multiply => "multiply",
            Arithmetic::Divide => "divide",
            Arithmetic::Maximum => "maximum",
            Arithmetic::Minimum => "minimum",
        }
    }
}

/// The result of a softmax: probabilities or their logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoftmaxOf {
    Linear,
    Logarithm,
}

/// An element-wise function between layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Activation {
    /// The identity: x is not changed.
    None,
    /// 1 / (1 + e^−x)
    Sigmoid,
    /// max(x, 0). NaN stays NaN.
    Relu,
    Tanh,
    /// x above 0, slope · x below. NaN stays NaN.
    LeakyRelu(Float),
    /// min(max(x, low), high), where the limits may be infinite. NaN stays NaN.
    Clip {
        low: Float,
        high: Float,
    },
    /// γ · x above 0, γ · α · (eˣ − 1) below. ELU has γ = 1, SELU a larger γ.
    Elu {
        alpha: Float,
        gamma: Float,
    },
    /// x · Φ(x), where Φ is the distribution function of the normal distribution.
    Gelu,
    /// x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))
    GeluTanh,
    /// α · x + β, limited to 0 and 1.
    HardSigmoid {
        alpha: Float,
        beta: Float,
    },
    /// x · min(max(x / 6 + 1/2, 0), 1)
    HardSwish,
    /// x / (1 + e^−x), also called Swish.
    Silu,
    /// x · tanh(ln(1 + eˣ))
    Mish,
    /// ln(1 + eˣ)
    Softplus,
    /// A function such as sine or logarithm. It stands between other operations, not behind layers.
    Math(Math),
}

/// A mathematical function without parameters. No kernel fuses it with a layer, and the host engine
/// computes it in float64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Math {
    Abs,
    /// The error function
    Erf,
    Sin,
    Cos,
    /// The largest whole number up to x
    Floor,
    /// The nearest whole number, of two the even one
    Round,
    /// 1 if x is above 0, otherwise 0
    Above,
    /// 1 if x is 0 or more, otherwise 0
    NotBelow,
    /// eˣ
    Exp,
    /// 1 / x
    Reciprocal,
    /// ln x
    Log,
    Sqrt,
}

impl Math {
    /// True for functions that may give infinity or NaN of a finite number.
    pub(crate) fn unbounded(self) -> bool {
        matches!(self, Math::Exp | Math::Reciprocal | Math::Log | Math::Sqrt)
    }

    /// True for functions that give whole numbers.
    pub(crate) fn rounds(self) -> bool {
        matches!(self, Math::Round | Math::Floor)
    }

    /// All mathematical functions, in the order of their codes in kernels.
    pub(crate) const ALL: [Math; 12] = [
        Math::Abs,
        Math::Erf,
        Math::Sin,
        Math::Cos,
        Math::Floor,
        Math::Round,
        Math::Above,
        Math::NotBelow,
        Math::Exp,
        Math::Reciprocal,
        Math::Log,
        Math::Sqrt,
    ];

    fn name(self) -> &'static str {
        match self {
            Math::Abs => "abs",
            Math::Erf => "erf",
            Math::Sin => "sin",
            Math::Cos => "cos",
            Math::Floor => "floor",
            Math::Round => "round",
            Math::Above => "above",
            Math::NotBelow => "not_below",
            Math::Exp => "exp",
            Math::Reciprocal => "reciprocal",
            Math::Log => "log",
            Math::Sqrt => "sqrt",
        }
    }
}

/// A float that is compared and hashed by its bits, so that NaN equals NaN and 0 differs from −0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Float(u32);

impl Float {
    pub(crate) const fn new(x: f32) -> Float {
        Float(x.to_bits())
    }

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
    /// The activations that kernels can fuse. The parameters are examples for tests. Kernels take
    /// any parameters.
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

    /// The activations that stand behind layers, with example parameters, in the order of their
    /// codes. All are continuous functions.
    pub(crate) const BEHIND_LAYERS: [Activation; 13] = [
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
        Activation::Silu,
        Activation::Mish,
        Activation::Softplus,
    ];

    /// All activations but `None`, with example parameters, in the order of their codes.
    pub(crate) const ALL: [Activation; 25] = {
        let mut all = [Activation::None; 25];
        let mut i = 0;
        while i < all.len() {
            all[i] = match i.checked_sub(Activation::BEHIND_LAYERS.len()) {
                None => Activation::BEHIND_LAYERS[i],
                Some(i) => Activation::Math(Math::ALL[i]),
            };
            i += 1;
        }
        all
    };

    /// True if the host engine computes the activation in float64, number by number. It computes
    /// all others in vectors of floats.
    pub(crate) fn computed_each(self) -> bool {
        matches!(self, Activation::Math(function) if !function.rounds())
    }

    /// The number of the activation in kernels (`-DACTIVATION=…`, `kernels/common/activation.cl`).
    pub(crate) fn code(self) -> u32 {
        self.facts().code
    }

    /// The lower-case name, `none` for the identity.
    pub(crate) fn name(self) -> &'static str {
        self.facts().name
    }

    /// The two parameters that kernels get as arguments. A parameter that the activation does not
    /// have is 0.
    pub(crate) fn parameters(self) -> [f32; 2] {
        self.facts().parameters
    }

    fn facts(self) -> Facts {
        let facts = |code, name, a: Float, b: Float| Facts {
            code,
            name,
            parameters: [a.get(), b.get()],
        };
        let zero = Float::new(0.0);
        let plain = |code, name| facts(code, name, zero, zero);
        match self {
            Activation::None => plain(0, "none"),
            Activation::Sigmoid => plain(1, "sigmoid"),
            Activation::Relu => plain(2, "relu"),
            Activation::Tanh => plain(3, "tanh"),
            Activation::LeakyRelu(slope) => facts(4, "leaky_relu", slope, zero),
            Activation::Clip { low, high } => facts(5, "clip", low, high),
            Activation::Elu { alpha, gamma } => facts(6, "elu", alpha, gamma),
            Activation::Gelu => plain(7, "gelu"),
            Activation::GeluTanh => plain(8, "gelu_tanh"),
            Activation::HardSigmoid { alpha, beta } => facts(9, "hard_sigmoid", alpha, beta),
            Activation::HardSwish => plain(10, "hard_swish"),
            Activation::Silu => plain(11, "silu"),
            Activation::Mish => plain(12, "mish"),
            Activation::Softplus => plain(13, "softplus"),
            Activation::Math(function) => plain(14 + function as u32, function.name()),
        }
    }

    /// Returns the activation with the parameters `[a, b]`. Parameters that it does not have are
    /// ignored.
    pub(crate) fn with(self, [a, b]: [f32; 2]) -> Activation {
        let (a, b) = (Float::new(a), Float::new(b));
        match self {
            Activation::LeakyRelu(_) => Activation::LeakyRelu(a),
            Activation::Clip { .. } => Activation::Clip { low: a, high: b },
            Activation::Elu { .. } => Activation::Elu { alpha: a, gamma: b },
            Activation::HardSigmoid { .. } => Activation::HardSigmoid { alpha: a, beta: b },
            // A test fails if an activation that has parameters reaches this arm.
            without_parameters => without_parameters,
        }
    }

    /// Returns the activation with this code and example parameters. `None` if no activation has
    /// the code.
    pub(crate) fn of_code(code: u32) -> Option<Activation> {
        let known = std::iter::once(Activation::None).chain(Activation::ALL);
        known.into_iter().find(|known| known.code() == code)
    }
}

/// The code, the name and the parameters by which files and kernels identify an activation.
struct Facts {
    code: u32,
    name: &'static str,
    parameters: [f32; 2],
}

/// The operation of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// R = A·B, a product of matrices
    Matmul,
    /// R += b, with the same b for every column
    Bias,
    /// R = activation(A·B + b) in one kernel
    Affine,
    /// R = activation(sum of `l` parts + b). Ends an affine layer of which each of several
    /// work-groups has summed a part of the common dimension.
    Reduce,
    /// R = A2·activation(A·B + b) + b2: two affine layers in one kernel
    Pair,
    /// R = A2·activation(sum of `c` parts + b) + b2. Ends an affine layer as `Reduce` does, and
    /// computes the layer behind it.
    ReducePair,
    /// A whole network in one kernel: all affine layers with their activations, then the arg-max.
    Layers,
    /// R = activation(convolution of B with A + b)
    Convolution,
    /// R = maximum or mean of each window of B
    Pool,
    /// R = sigmoid(R), in place
    Sigmoid,
    /// R = max(R, 0), in place
    Relu,
    /// R = f(R), where f is any activation
    Activation,
    /// R = B · factor + bias, or PReLU
    Scale,
    /// An element-wise operation on B and C.
    Combine,
    /// R = a linear resampling of the rows and columns of B
    Resample,
    /// R = B · C, a product in each group of two computed values
    Product,
    /// R = softmax over the channels of each pixel, or its logarithm
    Softmax,
    /// Copies rows of one matrix to rows of another.
    Gather,
    /// Copies a matrix into another layout.
    Repack,
    /// The class of every column: the row of the largest value, the lowest row of equal values, or
    /// `NAN_CLASS` if a value is NaN or infinite.
    ArgMax,
    /// Horizontal and vertical 3×3 Sobel filter of a byte image (ARM, §1). The border is not
    /// changed.
    Sobel,
    /// r[i] = number of work-items that ran before work-item i (the thesis, fig. 12.1)
    Order,
    /// Measures the speed of the device: multiply-adds in registers, or a copy in memory.
    Probe,
}

impl Operation {
    /// All operations, in the order in which `bench` lists them.
    pub(crate) const ALL: [Operation; 23] = [
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
        Operation::Resample,
        Operation::Product,
        Operation::Softmax,
        Operation::Gather,
        Operation::Repack,
        Operation::ArgMax,
        Operation::Sobel,
        Operation::Order,
        Operation::Probe,
    ];

    /// The name in `library.json`, which is also the folder of the kernels.
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
            Operation::Resample => "resample",
            Operation::Product => "product",
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

    /// Code and parameters, which files store, give the activation back.
    #[test]
    fn an_activation_is_its_number_and_parameters() {
        for known in Activation::ALL {
            assert_eq!(Activation::of_code(known.code()), Some(known));
            let (before, after) = (known.parameters(), known.with([3.0, 7.0]).parameters());
            for (i, new) in [3.0, 7.0].into_iter().enumerate() {
                let expected = if before[i] == 0.0 { 0.0 } else { new };
                assert_eq!(after[i], expected, "{known:?}");
            }
        }
        assert_eq!(Activation::of_code(0), Some(Activation::None));
        assert_eq!(Activation::of_code(99), None);
    }

    /// Codes identify activations in kernels, names identify operations in files.
    #[test]
    fn codes_and_names_tell_one_from_another() {
        assert_eq!(Activation::None.code(), 0);
        assert!((1..).zip(Activation::ALL).all(|(code, a)| a.code() == code));
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
