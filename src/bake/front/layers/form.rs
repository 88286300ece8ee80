//! The layers that a network JSON can have, by name, with the keys that each may have.

use crate::bake::front::functions::FUNCTIONS;
use crate::ir::op::{Activation, Arithmetic, Pool};
use std::ops::RangeInclusive;

/// The form of a layer. It decides which keys and how many inputs the layer has. Layers that differ
/// only in parameters share a form.
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

const LAYERS: [(&str, Form); 25] = [
    ("AffineLayer", Form::Affine),
    ("LeakyReLULayer", Form::LeakyRelu),
    ("PReLULayer", Form::PRelu),
    ("ClipLayer", Form::Clip),
    ("ELULayer", Form::Elu),
    ("GELULayer", Form::Gelu),
    ("HardSigmoidLayer", Form::HardSigmoid),
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

/// Lists all layers that a network JSON can have, with their names.
pub(super) fn layers() -> impl Iterator<Item = (&'static str, Form)> {
    let functions = FUNCTIONS
        .iter()
        .filter_map(|f| Some((f.layer?, Form::Activation(f.activation))));
    LAYERS.into_iter().chain(functions)
}

impl Form {
    /// Returns the keys that a layer may have besides `layer`, `name` and `input` or `inputs`.
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

    /// Returns the least and the largest number of inputs of a layer.
    pub(super) fn inputs(self) -> RangeInclusive<usize> {
        match self {
            Form::Combine(_) => 2..=2,
            Form::Concat => 2..=usize::MAX,
            _ => 1..=1,
        }
    }
}
