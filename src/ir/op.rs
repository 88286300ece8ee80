//! What nodes of a graph and kernels compute, as plain data. `ops` knows what it means.

/// What a node computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// R = W·I + b, W of outputs × inputs.
    Affine,
    /// An element-wise function.
    Activation(Activation),
}

impl Op {
    /// Its name in `library.json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Affine => "affine",
            Op::Activation(a) => a.name(),
        }
    }
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
    LeakyRelu(Slope),
}

/// The slope of an activation below 0: finite.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slope(u32);

impl Slope {
    /// Of a number.
    pub(crate) const fn new(slope: f32) -> Slope {
        Slope(slope.to_bits())
    }

    /// The number.
    pub(crate) const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl std::fmt::Debug for Slope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.get())
    }
}

impl Activation {
    /// One with some slope: kernels and entries serve every other, tests use this one.
    const LEAKY_RELU: Activation = Activation::LeakyRelu(Slope::new(0.25));

    /// Every one that is a function, in the order of their codes.
    pub(crate) const ALL: [Activation; 4] =
        [Activation::Sigmoid, Activation::Relu, Activation::Tanh, Activation::LEAKY_RELU];

    /// The value the kernels know it by (`-DACTIVATION=…`, `kernels/common/activation.cl`).
    pub(crate) fn code(self) -> u32 {
        match self {
            Activation::None => 0,
            Activation::Sigmoid => 1,
            Activation::Relu => 2,
            Activation::Tanh => 3,
            Activation::LeakyRelu(_) => 4,
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
        }
    }

    /// Its slope below 0, of which kernels have an argument; 0 where it has none.
    pub(crate) fn slope(self) -> f32 {
        if let Activation::LeakyRelu(slope) = self { slope.get() } else { 0.0 }
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
    /// R = activation(sum of `l` parts + b): ends an affine layer whose common dimension work-groups have shared
    Reduce,
    /// R = A2·activation(A·B + b) + b2: two affine layers in one kernel
    Pair,
    /// all affine layers with their activations, then the arg-max: a network in one kernel
    Layers,
    /// R = f(R)
    Activation(Activation),
    /// the same matrix in another layout
    Repack,
    /// class of every column: the row of its largest value, the lowest of equal ones, `NAN_CLASS` if one is NaN or
    /// infinite
    ArgMax,
    /// Horizontal and vertical 3×3 Sobel filter of a byte image (ARM, §1); the border stays as it is
    Sobel,
    /// r[i] = number of work-items before this one (the thesis, fig. 12.1)
    Order,
    /// Measures the device: multiply-adds in registers, or a copy
    Probe,
}

impl Operation {
    /// Every operation, in the order of a layer.
    pub(crate) const ALL: [Operation; 15] = [
        Operation::Matmul,
        Operation::Bias,
        Operation::Affine,
        Operation::Reduce,
        Operation::Pair,
        Operation::Layers,
        Operation::Activation(Activation::Sigmoid),
        Operation::Activation(Activation::Relu),
        Operation::Activation(Activation::Tanh),
        Operation::Activation(Activation::LEAKY_RELU),
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
            Operation::Layers => "layers",
            Operation::Activation(a) => a.name(),
            Operation::Repack => "repack",
            Operation::ArgMax => "argmax",
            Operation::Sobel => "sobel",
            Operation::Order => "order",
            Operation::Probe => "probe",
        }
    }
}
