//! Element-wise functions without parameters, by their names in each format.

use crate::ir::op::{Activation, Float, Math};

/// An element-wise function without parameters, and its name in each format.
pub(super) struct Function {
    pub(super) activation: Activation,
    /// The function's layer name in a network JSON, if it has one.
    pub(super) layer: Option<&'static str>,
    /// The function's operation name in ONNX, if it has an operation without attributes.
    onnx: Option<&'static str>,
    /// The function's operation name in TensorFlow Lite, if it has one.
    tflite: Option<&'static str>,
}

const fn named(
    activation: Activation,
    layer: &'static str,
    onnx: Option<&'static str>,
    tflite: Option<&'static str>,
) -> Function {
    Function {
        activation,
        layer: Some(layer),
        onnx,
        tflite,
    }
}

/// Makes the table entry of a function that has no layer name in a network JSON.
const fn math(
    function: Math,
    onnx: Option<&'static str>,
    tflite: Option<&'static str>,
) -> Function {
    Function {
        activation: Activation::Math(function),
        layer: None,
        onnx,
        tflite,
    }
}

const RELU6: Activation = Activation::Clip {
    low: Float::new(0.0),
    high: Float::new(6.0),
};

/// SELU, with α and γ as in Klambauer et al., Self-Normalizing Neural Networks, 2017.
const SELU: Activation = Activation::Elu {
    alpha: Float::new(1.673_263_2),
    gamma: Float::new(1.050_701),
};

pub(super) const FUNCTIONS: [Function; 19] = [
    named(
        Activation::Sigmoid,
        "SigmoidLayer",
        Some("Sigmoid"),
        Some("LOGISTIC"),
    ),
    named(Activation::Relu, "ReLULayer", Some("Relu"), Some("RELU")),
    named(Activation::Tanh, "TanhLayer", Some("Tanh"), Some("TANH")),
    named(RELU6, "ReLU6Layer", None, Some("RELU6")),
    named(SELU, "SELULayer", None, None),
    named(
        Activation::HardSwish,
        "HardSwishLayer",
        Some("HardSwish"),
        Some("HARD_SWISH"),
    ),
    named(Activation::Silu, "SiLULayer", None, None),
    named(Activation::Mish, "MishLayer", Some("Mish"), None),
    named(
        Activation::Softplus,
        "SoftplusLayer",
        Some("Softplus"),
        None,
    ),
    math(Math::Abs, Some("Abs"), Some("ABS")),
    math(Math::Erf, Some("Erf"), None),
    math(Math::Sin, Some("Sin"), Some("SIN")),
    math(Math::Cos, Some("Cos"), Some("COS")),
    math(Math::Floor, Some("Floor"), Some("FLOOR")),
    math(Math::Round, Some("Round"), Some("ROUND")),
    math(Math::Exp, Some("Exp"), Some("EXP")),
    math(Math::Reciprocal, Some("Reciprocal"), None),
    math(Math::Log, Some("Log"), Some("LOG")),
    math(Math::Sqrt, Some("Sqrt"), Some("SQRT")),
];

/// Returns the function whose ONNX operation is `op`, if [`FUNCTIONS`] has one.
pub(super) fn of_onnx(op: &str) -> Option<Activation> {
    let found = FUNCTIONS.iter().find(|f| f.onnx == Some(op));
    found.map(|f| f.activation)
}

/// Returns the function whose TensorFlow Lite operation is `op`, if [`FUNCTIONS`] has one.
pub(super) fn of_tflite(op: &str) -> Option<Activation> {
    let found = FUNCTIONS.iter().find(|f| f.tflite == Some(op));
    found.map(|f| f.activation)
}

/// Lists the names of the ONNX operations in [`FUNCTIONS`].
#[cfg(test)]
pub(super) fn onnx_names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().filter_map(|f| f.onnx)
}
