//! Element-wise operations: scale, PReLU, operations on two values. Also functions of all channels.

use super::shaped;
use crate::ir::byte_steps::ByteSteps;
use crate::ir::graph::Shape;
use crate::ir::op::{Arithmetic, OfChannels};

/// Returns the shape of an operation whose constant arrays have one number per channel or per
/// element.
pub(super) fn scaled(
    inputs: &[Shape],
    tensors: &[(usize, usize)],
    arrays: usize,
) -> Result<Shape, String> {
    let &[input] = inputs else {
        return Err("it has one input".into());
    };
    if tensors.len() != arrays {
        return Err(format!("expected {arrays} arrays, found {}", tensors.len()));
    }
    match tensors
        .iter()
        .find(|&&t| t != (input.c, 1) && t != (input.len(), 1))
    {
        Some((rows, cols)) => Err(format!(
            "expected {} × 1 numbers, one for each channel, or {} × 1, one for each value; found \
             {rows} × {cols}",
            input.c,
            input.len()
        )),
        None => Ok(input),
    }
}

pub(super) fn combined(inputs: &[Shape]) -> Result<Shape, String> {
    let &[a, b] = inputs else {
        return Err("it has two inputs".into());
    };
    let of_channels = Shape { c: a.c, h: 1, w: 1 };
    if b != a && b != of_channels {
        return Err(format!(
            "expected two values of the same shape, or the second of {of_channels}, found {a} and \
             {b}"
        ));
    }
    Ok(a)
}

/// Returns the number that element `i` uses from an array with one number per channel or one per
/// element.
fn at(array: &[f32], shape: Shape, i: usize) -> f64 {
    f64::from(if array.len() == shape.c {
        array[i / (shape.h * shape.w)]
    } else {
        array[i]
    })
}

/// Returns x · factor + summand. If the summand is 0, the product is rounded to f32, because all
/// engines round it so. A later rounding to whole numbers depends on that float.
pub(crate) fn linear(x: f64, factor: f64, summand: f64) -> f64 {
    let product = x * factor;
    match summand == 0.0 && product.abs() <= f32::MAX.into() {
        true => f64::from(product as f32),
        false => product + summand,
    }
}

pub(super) fn scale(values: &[f64], shape: Shape, (factors, biases): (&[f32], &[f32])) -> Vec<f64> {
    let element = |(i, &x): (usize, &f64)| linear(x, at(factors, shape, i), at(biases, shape, i));
    values.iter().enumerate().map(element).collect()
}

pub(super) fn prelu(values: &[f64], shape: Shape, slopes: &[f32]) -> Vec<f64> {
    let element = |(i, &x): (usize, &f64)| if x < 0.0 { x * at(slopes, shape, i) } else { x };
    values.iter().enumerate().map(element).collect()
}

impl Arithmetic {
    pub(crate) fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
            Arithmetic::Divide => a / b,
            Arithmetic::Maximum if a.is_nan() || b.is_nan() => f64::NAN,
            Arithmetic::Minimum if a.is_nan() || b.is_nan() => f64::NAN,
            Arithmetic::Maximum => a.max(b),
            Arithmetic::Minimum => a.min(b),
            Arithmetic::RoundedSum { .. } => {
                let [x, y] = self.factors().map(|f| f64::from(f.get()));
                libm::floor(a * x + b * y + 0.5)
            }
        }
    }
}

pub(super) fn combine(arithmetic: Arithmetic, (a, shape): (&[f64], Shape), b: &[f64]) -> Vec<f64> {
    let pixels = shape.h * shape.w;
    let of = |i: usize| {
        if b.len() == a.len() {
            b[i]
        } else {
            b[i / pixels]
        }
    };
    a.iter()
        .enumerate()
        .map(|(i, &x)| arithmetic.apply(x, of(i)))
        .collect()
}

/// Returns the probabilities of `values` times a factor, as whole numbers of 1/256 from 0 to 255.
///
/// LiteRT computes them for 8-bit integers in f32: exponentials, their sum from the first to the
/// last, its reciprocal, and the products with it, rounded with halves upwards. Rounding the exact
/// probabilities would give another integer for up to 4 in 1000 values of two classes.
fn integer_softmax(values: &[f64], factor: f32) -> Vec<f64> {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponential = |v: &f64| libm::exp((factor * (v - most) as f32).into()) as f32;
    let all: Vec<f32> = values.iter().map(exponential).collect();
    let reciprocal = 1.0 / all.iter().fold(0.0, |sum: f32, e| sum + e);
    let rounded = |e: &f32| (256.0 * (e * reciprocal) + 0.5).floor();
    // `min` would make 255 of NaN, and so hide an overflow.
    let limited = |x: f32| if x > 255.0 { 255.0 } else { x };
    all.iter().map(|e| limited(rounded(e)).into()).collect()
}

/// Returns `values` rounded to 8-bit integers, as the real numbers that these stand for.
fn byte_steps(values: &[f64]) -> Vec<f64> {
    let floats: Vec<f32> = values.iter().map(|&x| x as f32).collect();
    let steps = ByteSteps::between(
        floats.iter().copied().fold(0.0, f32::min),
        floats.iter().copied().fold(0.0, f32::max),
    );
    floats.iter().map(|&x| steps.rounded(x).into()).collect()
}

/// Returns a function of all channels of one pixel.
pub(crate) fn of_pixel(channels: &[f64], of: OfChannels) -> Vec<f64> {
    let most = channels.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum = || -> f64 { channels.iter().map(|x| libm::exp(x - most)).sum() };
    match of {
        OfChannels::Softmax => {
            let sum = sum();
            channels.iter().map(|x| libm::exp(x - most) / sum).collect()
        }
        OfChannels::LogSoftmax => {
            let log = libm::log(sum());
            channels.iter().map(|x| x - most - log).collect()
        }
        OfChannels::IntegerSoftmax(factor) => integer_softmax(channels, factor.get()),
        OfChannels::ByteSteps => byte_steps(channels),
    }
}

/// Returns a function of all channels of each pixel.
pub(super) fn of_channels(values: &[f64], shape: Shape, of: OfChannels) -> Vec<f64> {
    let pixels = shape.h * shape.w;
    let at = |p: usize| {
        let channels: Vec<f64> = values.iter().skip(p).step_by(pixels).copied().collect();
        of_pixel(&channels, of)
    };
    let all: Vec<Vec<f64>> = (0..pixels).map(at).collect();
    shaped(shape, |c, y, x| all[y * shape.w + x][c])
}
