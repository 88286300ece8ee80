//! The layers of a network JSON by name, with the keys that each may have.

use crate::ir::op::{Activation, Arithmetic, Float, Pool};
use std::ops::RangeInclusive;

/// The layers by name; those that differ in parameters only share a form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Affine,
    Convolution,
    Depthwise,
    Pool(Pool),
    GlobalPool(Pool),
    BatchNorm,
    Scale,
    PRelu,
    Activation(Activation),
    LeakyRelu,
    Clip,
    Elu,
    Gelu,
    HardSigmoid,
    Combine(Arithmetic),
    Concat,
    Flatten,
    Reshape,
    Transpose,
    Pad,
    Softmax,
}

const RELU6: Activation = Activation::Clip {
    low: Float::new(0.0),
    high: Float::new(6.0),
};

/// α and γ as in Klambauer et al., Self-Normalizing Neural Networks, 2017.
const SELU: Activation = Activation::Elu {
    alpha: Float::new(1.673_263_2),
    gamma: Float::new(1.050_701),
};

pub(super) const LAYERS: [(&str, Form); 34] = [
    ("AffineLayer", Form::Affine),
    ("SigmoidLayer", Form::Activation(Activation::Sigmoid)),
    ("ReLULayer", Form::Activation(Activation::Relu)),
    ("TanhLayer", Form::Activation(Activation::Tanh)),
    ("LeakyReLULayer", Form::LeakyRelu),
    ("PReLULayer", Form::PRelu),
    ("ReLU6Layer", Form::Activation(RELU6)),
    ("ClipLayer", Form::Clip),
    ("ELULayer", Form::Elu),
    ("SELULayer", Form::Activation(SELU)),
    ("GELULayer", Form::Gelu),
    ("HardSigmoidLayer", Form::HardSigmoid),
    ("HardSwishLayer", Form::Activation(Activation::HardSwish)),
    ("SiLULayer", Form::Activation(Activation::Silu)),
    ("MishLayer", Form::Activation(Activation::Mish)),
    ("SoftplusLayer", Form::Activation(Activation::Softplus)),
    ("SoftmaxLayer", Form::Softmax),
    ("ConvLayer", Form::Convolution),
    ("DepthwiseConvLayer", Form::Depthwise),
    ("MaxPoolLayer", Form::Pool(Pool::Max)),
    ("AveragePoolLayer", Form::Pool(Pool::Mean)),
    ("GlobalMaxPoolLayer", Form::GlobalPool(Pool::Max)),
    ("GlobalAveragePoolLayer", Form::GlobalPool(Pool::Mean)),
    ("BatchNormLayer", Form::BatchNorm),
    ("ScaleLayer", Form::Scale),
    ("AddLayer", Form::Combine(Arithmetic::Add)),
    ("SubtractLayer", Form::Combine(Arithmetic::Subtract)),
    ("MultiplyLayer", Form::Combine(Arithmetic::Multiply)),
    ("DivideLayer", Form::Combine(Arithmetic::Divide)),
    ("ConcatLayer", Form::Concat),
    ("FlattenLayer", Form::Flatten),
    ("ReshapeLayer", Form::Reshape),
    ("TransposeLayer", Form::Transpose),
    ("PadLayer", Form::Pad),
];

impl Form {
    /// The keys besides `layer`, `name` and `input` or `inputs`.
    pub(super) fn keys(self) -> &'static [&'static str] {
        match self {
            Form::Affine => &["weights", "biases"],
            Form::Convolution => &[
                "weights", "biases", "kernel", "stride", "pad", "dilation", "groups",
            ],
            Form::Depthwise => &["weights", "biases", "kernel", "stride", "pad", "dilation"],
            Form::Pool(Pool::Max) => &["kernel", "stride", "pad", "dilation", "ceil"],
            Form::Pool(_) => &[
                "kernel",
                "stride",
                "pad",
                "dilation",
                "ceil",
                "countIncludePad",
            ],
            Form::BatchNorm => &["mean", "variance", "scale", "offset", "epsilon"],
            Form::Scale => &["scale", "offset"],
            Form::PRelu => &["slopes"],
            Form::LeakyRelu => &["slope"],
            Form::Clip => &["low", "high"],
            Form::Elu => &["alpha"],
            Form::Gelu => &["approximate"],
            Form::HardSigmoid => &["alpha", "beta"],
            Form::Concat => &["axis"],
            Form::Reshape => &["shape"],
            Form::Transpose => &["axes"],
            Form::Pad => &["pad", "value"],
            Form::GlobalPool(_)
            | Form::Activation(_)
            | Form::Combine(_)
            | Form::Flatten
            | Form::Softmax => &[],
        }
    }

    /// The number of inputs.
    pub(super) fn inputs(self) -> RangeInclusive<usize> {
        match self {
            Form::Combine(_) => 2..=2,
            Form::Concat => 2..=usize::MAX,
            _ => 1..=1,
        }
    }
}
