//! The operations of graphs and of kernels as plain data. The module `ops` defines what graph
//! operations compute.

use super::graph::Shape;

/// The operation of a graph node. Operations number the elements of a value in the order c, y, x.
/// The files in `ops` define what each operation computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// An affine layer: R = W·I + b. W has a row for each output and a column for each input.
    Affine,
    /// A convolution. W has a row for each output channel and a column for each (ky, kx, c), where
    /// c counts the channels of a group.
    Convolution {
        window: Window,
        groups: usize,
    },
    /// The maximum or the mean of each window of an image.
    Pool {
        kind: Pool,
        window: Window,
    },
    Activation(Activation),
    /// x if x is above 0, else slope · x. Each channel has its own slope.
    PRelu,
    /// x · factor + bias. Each channel or each element has its own factor and bias.
    Scale,
    /// An element-wise operation on two values. The second value may have only one element per
    /// channel, which is then used for all pixels of the channel.
    Combine(Arithmetic),
    /// The concatenation of values along an axis.
    Concat(Axis),
    /// The slice of `size` neighbouring elements along an axis, beginning with element `first`.
    Slice {
        axis: Axis,
        first: usize,
        size: usize,
    },
    /// The operand, surrounded by padding elements that all have the constant `value`.
    Pad {
        padding: Padding,
        value: Float,
    },
    /// A linear resampling of rows and columns. Element (c, y, x) of the result is the sum of wy ·
    /// wx · element (c, py, px) of the operand. The sum is over the taps (py, wy) of row y and the
    /// taps (px, wx) of column x. The node's only array holds the taps ([`taps`](super::taps)).
    Resample {
        height: usize,
        width: usize,
        /// The number of taps that each row and each column of the result has.
        taps: (usize, usize),
    },
    /// Matrix products of two values A and B, one for each channel g. Element (g, i, j) of the
    /// result is the sum over k of A(g, i, k) · B(g, k, j). With `transposed` it is the sum over k
    /// of A(g, i, k) · B(g, j, k).
    Product {
        transposed: bool,
    },
    /// For each pixel, a function of all its channels.
    OfChannels(OfChannels),
    /// All elements in the same order, as a value of another shape.
    Reshape(Shape),
    /// The operand with its axes in another order. Axis i of the result is axis `.0[i]` of the
    /// operand.
    Transpose([Axis; 3]),
}

impl Op {
    /// Returns true for the operation that rounds values to steps that follow from them.
    pub(crate) fn rounds_to_steps(self) -> bool {
        self == Op::OfChannels(OfChannels::ByteSteps)
    }

    /// Returns true for operations whose results are always whole numbers.
    pub(crate) fn rounds(self) -> bool {
        match self {
            Op::Activation(Activation::Math(function)) => function.rounds(),
            Op::Combine(arithmetic) => arithmetic.rounds(),
            _ => false,
        }
    }

    /// Returns true for operations that compute nothing. Their results are elements of the operands
    /// or constants, and the same on all engines.
    pub(crate) fn moves(self) -> bool {
        match self {
            Op::Concat(_)
            | Op::Slice { .. }
            | Op::Pad { .. }
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Activation(Activation::Relu | Activation::Clip { .. }) => true,
            Op::Pool { kind, .. } => kind == Pool::Max,
            _ => false,
        }
    }

    /// The name of the operation in `library.json`.
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
            Op::OfChannels(OfChannels::Softmax) => "softmax",
            Op::OfChannels(OfChannels::LogSoftmax) => "log_softmax",
            Op::OfChannels(OfChannels::IntegerSoftmax(_)) => "integer_softmax",
            Op::OfChannels(OfChannels::ByteSteps) => "byte_steps",
            Op::Reshape(_) => "reshape",
            Op::Transpose(_) => "transpose",
        }
    }
}

/// A window that moves over an image. Pairs are (height, width). The window may cover a border
/// around the image. Elements in the border count as 0 or not at all, which the operation decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) size: (usize, usize),
    /// The distance in pixels from one position of the window to the next.
    pub(crate) stride: (usize, usize),
    /// The distance in pixels between neighbouring elements of the window.
    pub(crate) dilation: (usize, usize),
    pub(crate) border: Border,
    /// True if the last window of a row or column may reach beyond the border (ONNX: `ceil_mode`).
    pub(crate) ceil: bool,
}

impl Window {
    /// A window with stride 1, dilation 1 and no border.
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

/// The number of rows and columns around an image that a window may cover. Each side has its own
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Border {
    pub(crate) top: usize,
    pub(crate) left: usize,
    pub(crate) bottom: usize,
    pub(crate) right: usize,
}

/// The number of elements that padding adds around a value, before and behind it along c, y and x.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Padding {
    pub(crate) before: [usize; 3],
    pub(crate) behind: [usize; 3],
}

impl Padding {
    /// Returns a padding with the rows and columns of `border`. It adds no channels.
    pub(crate) fn of_border(border: Border) -> Padding {
        Padding {
            before: [0, border.top, border.left],
            behind: [0, border.bottom, border.right],
        }
    }

    /// Returns the padding as a border. `None` if the padding adds channels, which a border cannot.
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

/// The number that pooling computes from each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// The maximum of the window's elements, or NaN if one of them is NaN.
    Max,
    /// The mean of those elements of the window that are inside the image.
    Mean,
    /// The mean of all elements of the window, where elements in the border are 0.
    PaddedMean,
}

/// An axis of a value: the channels (c), the rows (y) or the columns (x) of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    C,
    Y,
    X,
}

/// An element-wise operation on two values a and b, for example a − b.
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
    /// The whole number nearest to x · a + y · b, the larger one if two are equally near. The sum
    /// of two values of a network of integers.
    ///
    /// All engines give the same results for whole numbers below 512, positive or negative. The
    /// larger factor is at least 2⁻¹⁰ and at most 2⁸. Both have at most 22 binary digits, counted
    /// from the first of the larger one.
    RoundedSum {
        a: Float,
        b: Float,
    },
}

impl Arithmetic {
    /// All operations on two values without numbers of their own, in the order of their codes in
    /// kernels (`-DCOMBINE=…`).
    pub(crate) const ALL: [Arithmetic; 6] = [
        Arithmetic::Add,
        Arithmetic::Subtract,
        Arithmetic::Multiply,
        Arithmetic::Divide,
        Arithmetic::Maximum,
        Arithmetic::Minimum,
    ];

    /// Returns the rounded sum of two operands of whole numbers. A ratio is the scale of an
    /// operand, divided by the scale of the sum. Each ratio is rounded to a multiple of 2⁻ⁿ, where
    /// n is chosen so that the larger ratio has 21 binary digits. `None` for ratios with which
    /// engines may give different sums, and XNNPACK gives none.
    pub(crate) fn rounded_sum(ratios: [f32; 2]) -> Option<Arithmetic> {
        let [least, largest] = [f32::min, f32::max].map(|f| f(ratios[0].abs(), ratios[1].abs()));
        if !(least >= 1.0 / 1024.0 && largest < 256.0) {
            return None;
        }
        let exponent = libm::frexp(largest.into()).1 - 1;
        let unit = libm::exp2(f64::from(exponent - 20));
        let [a, b] = ratios.map(|ratio| {
            let rounded = libm::rint(f64::from(ratio) / unit) * unit;
            Float::new(rounded as f32)
        });
        Some(Arithmetic::RoundedSum { a, b })
    }

    /// The name of the operation in `library.json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arithmetic::Add => "add",
            Arithmetic::Subtract => "subtract",
            Arithmetic::Multiply => "multiply",
            Arithmetic::Divide => "divide",
            Arithmetic::Maximum => "maximum",
            Arithmetic::Minimum => "minimum",
            Arithmetic::RoundedSum { .. } => "rounded_sum",
        }
    }

    /// The code of the operation in kernels (`-DCOMBINE=…`, `neon.c`).
    pub(crate) fn code(self) -> u32 {
        match self {
            Arithmetic::Add => 0,
            Arithmetic::Subtract => 1,
            Arithmetic::Multiply => 2,
            Arithmetic::Divide => 3,
            Arithmetic::Maximum => 4,
            Arithmetic::Minimum => 5,
            Arithmetic::RoundedSum { .. } => 6,
        }
    }

    /// The factors of both operands that kernels get as an argument. 0 for operations without
    /// factors.
    pub(crate) fn factors(self) -> [Float; 2] {
        match self {
            Arithmetic::RoundedSum { a, b } => [a, b],
            _ => [Float::new(0.0); 2],
        }
    }

    /// Returns true for operations whose results are always whole numbers.
    pub(crate) fn rounds(self) -> bool {
        matches!(self, Arithmetic::RoundedSum { .. })
    }

    /// Returns the operation with its factors exchanged, for operands that are exchanged.
    pub(crate) fn exchanged(self) -> Arithmetic {
        match self {
            Arithmetic::RoundedSum { a, b } => Arithmetic::RoundedSum { a: b, b: a },
            without_factors => without_factors,
        }
    }
}

/// A function of all channels of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfChannels {
    /// Probabilities.
    Softmax,
    /// The logarithms of probabilities.
    LogSoftmax,
    /// Probabilities of values times a factor, as whole numbers of 1/256 from 0 to 255, which is
    /// how LiteRT stores them as 8-bit integers. Each operation is rounded to f32 as there
    /// (`ops::elements::integer_softmax`).
    IntegerSoftmax(Float),
    /// The values, rounded to 8-bit integers between the smallest and the largest one
    /// ([`ByteSteps`](crate::ir::byte_steps::ByteSteps)). Results are the real numbers that these
    /// integers stand for.
    ByteSteps,
}

/// An element-wise function, mostly the activation function of a layer.
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
    /// α · x + β, limited to the range from 0 to 1.
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
    /// A mathematical function such as sine or logarithm. Networks use it between other operations,
    /// not as the activation of a layer.
    Math(Math),
}

/// A mathematical function without parameters. No kernel fuses it with a layer. The host engine
/// computes it in float64, except for functions that round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Math {
    Abs,
    /// The error function erf(x)
    Erf,
    Sin,
    Cos,
    /// The largest whole number that is not above x
    Floor,
    /// The whole number nearest to x, and the even one if two are equally near
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
    /// Returns true for functions that may turn a finite number into infinity or NaN.
    pub(crate) fn unbounded(self) -> bool {
        matches!(self, Math::Exp | Math::Reciprocal | Math::Log | Math::Sqrt)
    }

    /// Returns true for functions whose results are always whole numbers.
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

/// A float that is compared and hashed by its bits. So NaN equals NaN, and 0 differs from −0.
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
    /// The activations that kernels can fuse with a layer, with example parameters for tests.
    /// Kernels accept any parameters.
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

    /// All activations of layers, with example parameters, in the order of their codes. Each is a
    /// continuous function.
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

    /// All activations except `None`, with example parameters, in the order of their codes.
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

    /// Returns true if the host engine computes the activation in float64, one number at a time.
    /// The host engine computes all other activations in vectors of floats.
    pub(crate) fn computed_each(self) -> bool {
        matches!(self, Activation::Math(function) if !function.rounds())
    }

    /// The code of the activation in kernels (`-DACTIVATION=…`, `kernels/common/activation.cl`).
    pub(crate) fn code(self) -> u32 {
        self.facts().code
    }

    /// The name of the activation in lower case. It is `none` for the identity.
    pub(crate) fn name(self) -> &'static str {
        self.facts().name
    }

    /// The two parameters that kernels get as arguments. If the activation has fewer parameters,
    /// the others are 0.
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

    /// Returns the same kind of activation with the parameters `[a, b]`. Ignores parameters that
    /// this kind does not have.
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

/// The code, the name and the parameters of an activation, by which files and kernels identify it.
struct Facts {
    code: u32,
    name: &'static str,
    parameters: [f32; 2],
}

/// The operation that a kernel computes. B is the operand, and R the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// R = A·B, a product of matrices
    Matmul,
    /// R += b, with the same b for every column
    Bias,
    /// R = activation(A·B + b) in one kernel
    Affine,
    /// R = activation(sum of `l` parts + b). It completes an affine layer after a kernel in which
    /// several work-groups shared the common dimension. Each part is the sum of one work-group.
    Reduce,
    /// R = A2·activation(A·B + b) + b2: two affine layers in one kernel
    Pair,
    /// R = A2·activation(sum of `c` parts + b) + b2. It completes an affine layer as `Reduce` does,
    /// and also computes the next affine layer.
    ReducePair,
    /// A whole network in one kernel: all affine layers with their activations, and the arg-max if
    /// the network has classes.
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
    /// R = B · factor + bias, or the PReLU of B
    Scale,
    /// R = an element-wise operation on B and C
    Combine,
    /// R = a linear resampling of the rows and columns of B
    Resample,
    /// R = B · C for two computed values: one matrix product for each group
    Product,
    /// R = softmax over the channels of each pixel of B, or its logarithm
    Softmax,
    /// Copies rows of one matrix to rows of another matrix.
    Gather,
    /// Copies a matrix into another memory layout.
    Repack,
    /// The predicted class of every column (record): the row of its largest value. Of equal values
    /// the lowest row wins. The class is `NAN_CLASS` if a value is NaN or infinite.
    ArgMax,
    /// The horizontal and vertical 3×3 Sobel filters of a byte image (ARM, §1). The pixels at the
    /// border of the result are not written.
    Sobel,
    /// r[i] = number of work-items that ran before work-item i (thesis, fig. 12.1)
    Order,
    /// Measures the speed of the device, either of multiply-adds in registers or of a copy in
    /// memory.
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

    /// The name of the operation in `library.json`. The folder with its kernels has the same name.
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

    /// An activation can be restored from its code and its parameters, which files store.
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

    /// No two activations have the same code or name, and no two operations have the same name.
    /// Kernels identify activations by code, files identify operations by name.
    #[test]
    fn codes_and_names_tell_one_from_another() {
        assert_eq!(Activation::None.code(), 0);
        assert!((1..).zip(Activation::ALL).all(|(code, a)| a.code() == code));
        assert!((0..).zip(Arithmetic::ALL).all(|(code, a)| a.code() == code));
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
