//! Element-wise functions. Their exponentials are of libm: the same bits wherever a network is baked and run.

use crate::ir::graph::Shape;
use crate::ir::op::Activation;

impl Activation {
    /// The function in float64. NaN stays NaN.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Activation::None => x,
            Activation::Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
            Activation::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Activation::Tanh => libm::tanh(x),
        }
    }
}

pub(super) fn shape(inputs: &[Shape]) -> Result<Shape, String> {
    match inputs {
        &[input] => Ok(input),
        _ => Err("an activation has one input".into()),
    }
}
