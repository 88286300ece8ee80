//! Element-wise functions.

use crate::ir::graph::Shape;
use crate::ir::op::Activation;

impl Activation {
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
