//! What nodes of a graph and kernels compute, as plain data. `ops` knows what it means.

/// What a node computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// R = W·I + b, W of outputs × inputs.
    Affine,
    /// An element-wise function.
    Activation(Activation),
}

impl Op {
    /// Its name in `library.json`.
    pub fn name(self) -> &'static str {
        match self {
            Op::Affine => "affine",
            Op::Activation(a) => a.name(),
        }
    }
}

/// An element-wise function between layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x
    None,
    /// 1 / (1 + e^−x)
    Sigmoid,
    /// max(x, 0), NaN stays NaN
    Relu,
    /// tanh x
    Tanh,
}

impl Activation {
    /// Every one that is a function, in the order of their codes.
    pub const ALL: [Activation; 3] = [Activation::Sigmoid, Activation::Relu, Activation::Tanh];

    /// The value the kernels know it by (`-DACTIVATION=…`, `kernels/common/activation.cl`).
    pub fn code(self) -> u32 {
        match self {
            Activation::None => 0,
            Activation::Sigmoid => 1,
            Activation::Relu => 2,
            Activation::Tanh => 3,
        }
    }

    /// Its lower-case name; `none` for the identity.
    pub fn name(self) -> &'static str {
        match self {
            Activation::None => "none",
            Activation::Sigmoid => "sigmoid",
            Activation::Relu => "relu",
            Activation::Tanh => "tanh",
        }
    }
}

/// What a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
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
    /// R = sigmoid(R)
    Sigmoid,
    /// R = max(R, 0)
    Relu,
    /// R = tanh(R)
    Tanh,
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
    pub const ALL: [Operation; 14] = [
        Operation::Matmul,
        Operation::Bias,
        Operation::Affine,
        Operation::Reduce,
        Operation::Pair,
        Operation::Layers,
        Operation::Sigmoid,
        Operation::Relu,
        Operation::Tanh,
        Operation::Repack,
        Operation::ArgMax,
        Operation::Sobel,
        Operation::Order,
        Operation::Probe,
    ];

    /// Its name in `library.json`, and the folder of its kernels.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Matmul => "matmul",
            Operation::Bias => "bias",
            Operation::Affine => "affine",
            Operation::Reduce => "reduce",
            Operation::Pair => "pair",
            Operation::Layers => "layers",
            Operation::Sigmoid => "sigmoid",
            Operation::Relu => "relu",
            Operation::Tanh => "tanh",
            Operation::Repack => "repack",
            Operation::ArgMax => "argmax",
            Operation::Sobel => "sobel",
            Operation::Order => "order",
            Operation::Probe => "probe",
        }
    }
}
