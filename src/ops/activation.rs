//! Element-wise functions.

use crate::ir::graph::Shape;

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

    /// The function in float64. NaN stays NaN.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Activation::None => x,
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Activation::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Activation::Tanh => x.tanh(),
        }
    }
}

pub(super) fn shape(inputs: &[Shape]) -> Result<Shape, String> {
    match inputs {
        &[input] => Ok(input),
        _ => Err("an activation has one input".into()),
    }
}
