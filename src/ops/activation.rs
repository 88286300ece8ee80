//! Activations. Their exponentials come from libm, so a network that is baked on another machine
//! has the same bits.

use crate::ir::graph::Shape;
use crate::ir::op::Activation;

impl Activation {
    /// Applies [`Activation::apply`] to each value in place, with one `match` for all values.
    pub(crate) fn apply_all(self, values: &mut [f64]) {
        match self {
            Activation::None => {}
            Activation::Relu => values.iter_mut().for_each(|x| *x = relu(*x)),
            Activation::Clip { low, high } => {
                let (low, high) = (f64::from(low.get()), f64::from(high.get()));
                values.iter_mut().for_each(|x| *x = clip(*x, low, high));
            }
            other => values.iter_mut().for_each(|x| *x = other.apply(*x)),
        }
    }

    /// The function in float64. NaN stays NaN.
    pub(crate) fn apply(self, x: f64) -> f64 {
        match self {
            Activation::None => x,
            Activation::Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
            Activation::Relu => relu(x),
            Activation::Tanh => libm::tanh(x),
            Activation::LeakyRelu(slope) => {
                if x < 0.0 {
                    f64::from(slope.get()) * x
                } else {
                    x
                }
            }
            Activation::Clip { low, high } => clip(x, f64::from(low.get()), f64::from(high.get())),
            Activation::Elu { alpha, gamma } => {
                let below = f64::from(alpha.get()) * libm::expm1(x);
                f64::from(gamma.get()) * if x < 0.0 { below } else { x }
            }
            Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Activation::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                0.5 * x * (1.0 + libm::tanh(inner))
            }
            Activation::HardSigmoid { alpha, beta } => {
                clip(f64::from(alpha.get()) * x + f64::from(beta.get()), 0.0, 1.0)
            }
            Activation::HardSwish => x * clip(x / 6.0 + 0.5, 0.0, 1.0),
        }
    }

    /// Returns true for a function that is computed from an exponential and has values from −1 to
    /// 1.
    pub(crate) fn bounded(self) -> bool {
        match self {
            Activation::Sigmoid | Activation::Tanh => true,
            Activation::None
            | Activation::Relu
            | Activation::LeakyRelu(_)
            | Activation::Clip { .. }
            | Activation::Elu { .. }
            | Activation::Gelu
            | Activation::GeluTanh
            | Activation::HardSigmoid { .. }
            | Activation::HardSwish => false,
        }
    }

    /// The largest absolute value of the derivative.
    fn steepest(self) -> f64 {
        let [a, b] = self.parameters().map(|p| f64::from(p.abs()));
        match self {
            Activation::Sigmoid | Activation::Tanh | Activation::None | Activation::Relu => 1.0,
            Activation::Clip { .. } => 1.0,
            Activation::LeakyRelu(_) => a.max(1.0),
            Activation::Elu { .. } => b * a.max(1.0),
            Activation::Gelu | Activation::GeluTanh => 1.13,
            Activation::HardSigmoid { .. } => a,
            Activation::HardSwish => 1.5,
        }
    }

    /// The error that exponentials in f32 add. The rounding of `x` and of the result is not
    /// included.
    pub(crate) fn own_error(self) -> f64 {
        match self {
            Activation::Sigmoid | Activation::Tanh => 2f64.powi(-20),
            Activation::Elu { .. } => {
                2f64.powi(-20)
                    * f64::from(self.parameters()[0] * self.parameters()[1])
                        .abs()
                        .max(1.0)
            }
            Activation::Gelu | Activation::GeluTanh => 2f64.powi(-19),
            _ => 0.0,
        }
    }

    /// The largest error of the result, computed in f32, for an `x` with the given error.
    pub(crate) fn error(self, error: f64) -> f64 {
        if self.bounded() {
            error.min(2.0) + 1e-6
        } else {
            error * self.steepest() + self.own_error()
        }
    }
}

/// max(x, 0), where NaN stays NaN.
fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// min(max(x, low), high), where NaN stays NaN.
fn clip(x: f64, low: f64, high: f64) -> f64 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

pub(super) fn shape(inputs: &[Shape]) -> Result<Shape, String> {
    match inputs {
        &[input] => Ok(input),
        _ => Err("an activation has one input".into()),
    }
}
