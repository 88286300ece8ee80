//! Element-wise functions. Their exponentials are of libm: the same bits wherever a network is baked and run.

use crate::ir::graph::Shape;
use crate::ir::op::Activation;

impl Activation {
    /// The function in float64. NaN stays NaN.
    pub(crate) fn apply(self, x: f64) -> f64 {
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
            Activation::LeakyRelu(slope) => {
                if x < 0.0 {
                    f64::from(slope.get()) * x
                } else {
                    x
                }
            }
        }
    }

    /// Whether its values are between −1 and 1.
    pub(crate) fn bounded(self) -> bool {
        match self {
            Activation::Sigmoid | Activation::Tanh => true,
            Activation::None | Activation::Relu | Activation::LeakyRelu(_) => false,
        }
    }

    /// How far its value may be off where `x` is off by `error`, computed in f32.
    pub(crate) fn error(self, error: f64) -> f64 {
        if self.bounded() { error.min(2.0) + 1e-6 } else { error * f64::from(self.slope().abs()).max(1.0) }
    }
}

pub(super) fn shape(inputs: &[Shape]) -> Result<Shape, String> {
    match inputs {
        &[input] => Ok(input),
        _ => Err("an activation has one input".into()),
    }
}
