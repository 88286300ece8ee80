//! Normalizations of each record, built from means, squares and roots.

use super::builder::Builder;
use super::constant::{ConstantTensor, Element};
use super::elementwise::{math, power};
use super::operations::{Reduction, combined, reduce};
use super::value::Live;
use crate::ir::op::{Arithmetic, Math};

/// The mean of the squares along `axes`. These axes stay with size 1.
fn mean_square(b: &mut Builder, name: &str, x: &Live, axes: &[usize]) -> Result<Live, String> {
    let squares = power(b, name, x, 2.0)?;
    reduce(b, name, &squares, axes.to_vec(), Reduction::Mean, true)
}

/// √(mean of squares + ε) along `axes`. These axes stay with size 1.
fn root_mean_square(
    b: &mut Builder,
    name: &str,
    x: &Live,
    axes: &[usize],
    epsilon: f64,
) -> Result<Live, String> {
    let square = mean_square(b, name, x, axes)?;
    let shifted = b.scale(name, &square, &[1.0], &[epsilon])?;
    math(b, name, &shifted, Math::Sqrt)
}

/// RMS normalization along `axes`: x / √(mean of squares + ε).
pub(super) fn by_root_mean_square(
    b: &mut Builder,
    name: &str,
    x: &Live,
    axes: &[usize],
    epsilon: f64,
) -> Result<Live, String> {
    let root = root_mean_square(b, name, x, axes, epsilon)?;
    divided(b, name, x, &root)
}

/// Divides x by `root`. The result is of a float type, even if x is of an integer type.
fn divided(b: &mut Builder, name: &str, x: &Live, root: &Live) -> Result<Live, String> {
    let y = combined(b, name, Arithmetic::Divide, x, root)?;
    Ok(Live {
        kind: Element::F32,
        ..y
    })
}

/// A normalized tensor, its mean, and its standard deviation √(variance + ε). In the mean and the
/// deviation, the reduced axes have size 1.
pub(super) struct Normalised {
    pub(super) result: Live,
    pub(super) mean: Live,
    pub(super) deviation: Live,
}

/// Normalization along `axes`: (x − mean) / √(variance + ε).
pub(super) fn of_mean_and_variance(
    b: &mut Builder,
    name: &str,
    x: &Live,
    axes: &[usize],
    epsilon: f64,
) -> Result<Normalised, String> {
    let mean = reduce(b, name, x, axes.to_vec(), Reduction::Mean, true)?;
    let centred = combined(b, name, Arithmetic::Subtract, x, &mean)?;
    let deviation = root_mean_square(b, name, &centred, axes, epsilon)?;
    Ok(Normalised {
        result: divided(b, name, &centred, &deviation)?,
        mean,
        deviation,
    })
}

/// Returns only the normalized tensor of [`of_mean_and_variance`].
pub(super) fn by_mean_and_variance(
    b: &mut Builder,
    name: &str,
    x: &Live,
    axes: &[usize],
    epsilon: f64,
) -> Result<Live, String> {
    Ok(of_mean_and_variance(b, name, x, axes, epsilon)?.result)
}

/// x · scale + bias. Both constants are broadcast to the sizes of x. A missing scale is 1, a
/// missing bias 0.
pub(super) fn affine(
    b: &mut Builder,
    name: &str,
    x: &Live,
    scale: Option<&ConstantTensor>,
    bias: Option<&ConstantTensor>,
) -> Result<Live, String> {
    let numbers = |c: Option<&ConstantTensor>, none: f64| match c {
        Some(c) => b.against(x, c),
        None => Ok(vec![none]),
    };
    let (factors, summands) = (numbers(scale, 1.0)?, numbers(bias, 0.0)?);
    b.scale(name, x, &factors, &summands)
}
