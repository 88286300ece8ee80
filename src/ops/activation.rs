//! Activation functions in float64. Their exponentials come from libm, so that every machine bakes
//! the same bits.

use crate::ir::graph::Shape;
use crate::ir::op::{Activation, Math};

impl Activation {
    /// Applies [`Activation::apply`] to each value in place, but selects the function only once for
    /// all values.
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

    /// Computes the function in float64. NaN stays NaN.
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
            Activation::Silu => x / (1.0 + libm::exp(-x)),
            Activation::Mish => x * libm::tanh(softplus(x)),
            Activation::Softplus => softplus(x),
            Activation::Math(function) => function.apply(x),
        }
    }

    /// Returns bounds on the function's slope and on its error when it is computed in f32.
    fn accuracy(self) -> Accuracy {
        let [a, b] = self.parameters().map(|p| f64::from(p.abs()));
        let exact = |steepest| Accuracy {
            steepest,
            own_error: 0.0,
            bounded: false,
        };
        let exponential = |steepest, own_error| Accuracy {
            own_error,
            ..exact(steepest)
        };
        match self {
            Activation::None | Activation::Relu | Activation::Clip { .. } => exact(1.0),
            Activation::Sigmoid | Activation::Tanh => Accuracy {
                bounded: true,
                ..exponential(1.0, 2f64.powi(-20))
            },
            Activation::LeakyRelu(_) => exact(a.max(1.0)),
            Activation::Elu { .. } => {
                exponential(b * a.max(1.0), 2f64.powi(-20) * (a * b).max(1.0))
            }
            Activation::Gelu | Activation::GeluTanh => exponential(1.13, 2f64.powi(-19)),
            Activation::Silu => exponential(1.1, 2f64.powi(-19)),
            Activation::Mish => exponential(1.09, 2f64.powi(-19)),
            Activation::Softplus => exponential(1.0, 2f64.powi(-20)),
            Activation::Math(Math::Erf | Math::Sin | Math::Cos) => Accuracy {
                bounded: true,
                ..exponential(1.13, 2f64.powi(-20))
            },
            Activation::Math(Math::Abs) => exact(1.0),
            // The remaining functions have steps or an unbounded slope.
            Activation::Math(_) => exact(f64::INFINITY),
            Activation::HardSigmoid { .. } => exact(a),
            Activation::HardSwish => exact(1.5),
        }
    }

    /// Returns true for functions whose values are from −1 to 1: sigmoid, tanh, the error function,
    /// sine and cosine.
    pub(crate) fn bounded(self) -> bool {
        self.accuracy().bounded
    }

    /// Returns the error that the function itself adds in f32, apart from rounding `x` and the
    /// result. It is 0 for functions without exponentials, sines and the like. It is also 0 if
    /// [`Activation::error`] is infinite.
    pub(crate) fn own_error(self) -> f64 {
        self.accuracy().own_error
    }

    /// Returns the largest error of the f32 result if `x` has an error of at most `error`. It is
    /// infinite for functions with steps or an unbounded slope.
    pub(crate) fn error(self, error: f64) -> f64 {
        let steepest = self.accuracy().steepest;
        if self.bounded() {
            error.min(2.0) + 1e-6
        } else if steepest.is_infinite() {
            f64::INFINITY
        } else {
            error * steepest + self.own_error()
        }
    }
}

impl Math {
    /// Computes the function in float64. NaN stays NaN.
    fn apply(self, x: f64) -> f64 {
        let truth = |truth: bool| if truth { 1.0 } else { 0.0 * x };
        match self {
            Math::Abs => x.abs(),
            Math::Erf => libm::erf(x),
            Math::Sin => libm::sin(x),
            Math::Cos => libm::cos(x),
            Math::Floor => libm::floor(x),
            Math::Round => libm::rint(x),
            Math::Above => truth(x > 0.0),
            Math::NotBelow => truth(x >= 0.0),
            Math::Exp => libm::exp(x),
            Math::Reciprocal => 1.0 / x,
            Math::Log => libm::log(x),
            Math::Sqrt => libm::sqrt(x),
        }
    }
}

/// The facts that bound the error of an activation in f32.
struct Accuracy {
    /// The largest absolute value of the function's derivative.
    steepest: f64,
    own_error: f64,
    bounded: bool,
}

/// max(x, 0), where NaN stays NaN.
fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// ln(1 + eˣ), computed from e^−|x|, which does not overflow.
fn softplus(x: f64) -> f64 {
    relu(x) + libm::log1p(libm::exp(-x.abs()))
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
