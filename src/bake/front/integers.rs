//! Tensors that are 8-bit integers in the model. The draft holds each integer less its zero point,
//! as a whole number in a float. An f32 holds whole numbers up to 2²⁴ exactly, so every engine
//! computes the same integers.
//!
//! Rounding follows XNNPACK, which runs such models in TensorFlow Lite and LiteRT. docs/INTEGERS.md
//! lists the rules.

use super::builder::Builder;
use super::elementwise::{self, Factor, Operand, math};
use super::operations::clip;
use super::resample::{self, Tap, Taps};
use super::value::Live;
use crate::ir::op::{Activation, Arithmetic, Math};
use std::collections::HashMap;

/// The quantization of 8-bit integers: an integer q stands for (q − zero) · scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Steps {
    pub(super) scale: f32,
    /// The zero point.
    pub(super) zero: i32,
    /// The smallest integer of the type.
    pub(super) low: i32,
    /// The largest integer of the type.
    pub(super) high: i32,
}

/// The smallest and the largest whole number that a tensor may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub(super) low: i32,
    pub(super) high: i32,
}

impl Steps {
    /// Returns the limits of the integer type, less the zero point.
    pub(super) fn limits(self) -> Limits {
        Limits {
            low: self.low - self.zero,
            high: self.high - self.zero,
        }
    }

    /// Returns the whole number (integer less zero point) nearest to a real number. Halves are
    /// rounded away from 0.
    pub(super) fn nearest(self, real: f32) -> i32 {
        (real / self.scale).round() as i32
    }
}

impl Limits {
    /// Returns the range that lies within both limits.
    pub(super) fn and(self, other: Limits) -> Limits {
        Limits {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
        }
    }
}

/// The integers behind tensors that the draft holds as real numbers. Such tensors lie between two
/// quantized ones. The maps' keys are indices of the draft's values.
#[derive(Default)]
pub(super) struct Known {
    /// True if the build computes quantized operations in integers, false for floats.
    pub(super) on: bool,
    pub(super) whole: HashMap<usize, Whole>,
    pub(super) sums: HashMap<usize, Sums>,
}

/// A tensor of whole numbers: the model's integers less their zero point. `scale` is their
/// quantization scale.
#[derive(Clone)]
pub(super) struct Whole {
    pub(super) numbers: Live,
    pub(super) scale: f32,
}

/// An operand of whole numbers (integers less their zero point), which may be a constant.
#[derive(Clone)]
pub(super) struct WholeOperand {
    pub(super) numbers: Factor,
    pub(super) scale: f32,
}

/// A result computed on integers, before the `QuantizeLinear` behind it has scaled and rounded it.
#[derive(Clone)]
pub(super) struct Sums {
    pub(super) of: Origin,
    /// True if a ReLU follows, so that numbers below 0 become 0.
    pub(super) relu: bool,
}

/// The operation that made the integer results in [`Sums`].
#[derive(Clone)]
pub(super) enum Origin {
    /// Sums of products of integers. The real number is the sum times its scale, divided by
    /// `count`.
    Products {
        sums: Live,
        /// One scale for all sums, or one scale for each sum.
        scales: Vec<f32>,
        count: usize,
    },
    /// Means over windows, stored as the sums that are yet to be divided. Each entry of `scales` is
    /// the operand's scale divided by the number of elements in a window. There is one entry for
    /// all sums, or one for each.
    Means { sums: Live, scales: Vec<f32> },
    /// The sum of two operands. At least one of them is no constant.
    Both([WholeOperand; 2]),
    /// A leaky ReLU. The number is its slope below 0.
    Sloped(Whole, f32),
    /// Tensors that are concatenated along the axis in the second field.
    Joined(Vec<Whole>, usize),
}

/// Adds a node that limits whole numbers to a range.
pub(super) fn limited(
    b: &mut Builder,
    name: &str,
    x: &Live,
    limits: Limits,
) -> Result<Live, String> {
    b.activation(name, x, clip(limits.low.into(), limits.high.into()))
}

/// Rounds x · factor to the nearest whole number and limits it. The product is a float, and a half
/// is rounded to the even number. `factors` has one number for all elements or one for each.
pub(super) fn requantised(
    b: &mut Builder,
    name: &str,
    x: &Live,
    factors: &[f64],
    limits: Limits,
) -> Result<Live, String> {
    rounded(b, name, x, factors, 0.0, limits)
}

/// Turns sums of whole numbers into integers of the result, less its zero point. `zeros` is the sum
/// of the operand's zero points. The sum with them times the factor, and the result's zero point
/// less `zeros` times the factor, are rounded to f32 and added up. The sum is rounded to f32 and
/// then to the nearest integer, of two the even one.
pub(super) fn reduced(
    b: &mut Builder,
    name: &str,
    x: &Live,
    (zeros, factor): (f32, f32),
    to: Steps,
) -> Result<Live, String> {
    let sums = b.scale(name, x, &[1.0], &[zeros.into()])?;
    let sums = math(b, name, &sums, Math::Round)?;
    let summand = to.zero as f32 - zeros * factor;
    if zeros == 0.0 && to.zero == 0 {
        return requantised(b, name, &sums, &[factor.into()], to.limits());
    }
    let products = b.scale(name, &sums, &[factor.into()], &[0.0])?;
    let all = b.scale(name, &products, &[1.0], &[summand.into()])?;
    let whole = math(b, name, &all, Math::Round)?;
    rounded(b, name, &whole, &[1.0], (-to.zero).into(), to.limits())
}

/// Quantizes a real tensor: x / scale, rounded to a whole number (the integer less its zero point).
pub(super) fn quantised(b: &mut Builder, name: &str, x: &Live, to: Steps) -> Result<Live, String> {
    requantised(b, name, x, &[(1.0 / to.scale).into()], to.limits())
}

/// Returns the real tensor that whole numbers stand for: x · scale.
pub(super) fn real(b: &mut Builder, name: &str, x: &Live, of: Steps) -> Result<Live, String> {
    b.scale(name, x, &[of.scale.into()], &[0.0])
}

/// Rounds x · factor + summand to the nearest whole number, and limits it.
pub(super) fn rounded(
    b: &mut Builder,
    name: &str,
    x: &Live,
    factors: &[f64],
    summand: f64,
    limits: Limits,
) -> Result<Live, String> {
    let scaled = b.scale(name, x, factors, &[summand])?;
    let whole = math(b, name, &scaled, Math::Round)?;
    limited(b, name, &whole, limits)
}

/// Returns the summand that makes round-half-to-even round halves up. It is added before rounding
/// to numbers that are multiples of `unit`.
fn half_up(unit: f64) -> f64 {
    unit / 2.0
}

/// Returns the summand that makes rounding to the nearest round down. It is added before rounding
/// to numbers that are multiples of `unit`.
fn down(unit: f64) -> f64 {
    unit / 2.0 - 0.5
}

/// Converts whole numbers from the scale of `from` to that of `to`, in fixed point. The ratio of
/// the scales is rounded to a multiple of 1/256. Numbers below 0 are also multiplied by `slope`.
pub(super) fn converted(
    b: &mut Builder,
    name: &str,
    x: &Live,
    from: Steps,
    to: Steps,
    slope: f32,
) -> Result<Live, String> {
    let ratio = 256.0 * from.scale / to.scale;
    let (above, below) = (f64::from(ratio.round()), f64::from((ratio * slope).round()));
    let (unit, up) = (1.0 / 256.0, half_up(1.0 / 256.0));
    if above == below {
        return rounded(b, name, x, &[above * unit], up, to.limits());
    }
    let of = match above > below {
        true => Arithmetic::Maximum,
        false => Arithmetic::Minimum,
    };
    let one = b.scale(name, x, &[above * unit], &[up])?;
    let other = b.scale(name, x, &[below * unit], &[up])?;
    let chosen = elementwise::arithmetic(b, name, of, Operand::Live(&one), Operand::Live(&other))?;
    let whole = math(b, name, &chosen, Math::Round)?;
    limited(b, name, &whole, to.limits())
}

/// Rounds x · above, or x · below where x is negative, to the nearest whole number within limits.
pub(super) fn sloped(
    b: &mut Builder,
    name: &str,
    x: &Live,
    [above, below]: [f32; 2],
    limits: Limits,
) -> Result<Live, String> {
    let of = match above > below {
        true => Arithmetic::Maximum,
        false => Arithmetic::Minimum,
    };
    let one = b.scale(name, x, &[above.into()], &[0.0])?;
    let other = b.scale(name, x, &[below.into()], &[0.0])?;
    let chosen = elementwise::arithmetic(b, name, of, Operand::Live(&one), Operand::Live(&other))?;
    let whole = math(b, name, &chosen, Math::Round)?;
    limited(b, name, &whole, limits)
}

/// A function of one whole number x. It applies an activation to the real number that x stands for,
/// and divides by the scale of the result.
pub(super) struct Function {
    pub(super) activation: Activation,
    pub(super) of: Steps,
    pub(super) to: Steps,
}

impl Function {
    /// Returns the function's result, before it is rounded.
    fn exact(&self, x: i32) -> f64 {
        let real = f64::from(x) * f64::from(self.of.scale);
        self.activation.apply(real) / f64::from(self.to.scale)
    }

    /// Returns the function's result as XNNPACK tabulates it: the real number, the function and
    /// the quotient are rounded to f32, then to the nearest whole number, of two the even one.
    pub(super) fn nearest(&self, x: i32) -> i32 {
        let real = x as f32 * self.of.scale;
        let result = self.activation.apply(real.into()) as f32;
        (result / self.to.scale).round_ties_even() as i32
    }

    /// Returns the result of a function that limits its operand, in TensorFlow Lite's fixed point.
    /// A factor below 1/2 makes it round twice.
    pub(super) fn clamped(&self, x: i32) -> i32 {
        let limit = |sign: f64| {
            let limit = self.activation.apply(sign * f64::INFINITY) as f32;
            (limit / self.to.scale).round()
        };
        let result = Multiplier::of(self.of.scale / self.to.scale).times(x);
        (result as f32).clamp(limit(-1.0), limit(1.0)) as i32
    }

    /// Returns TensorFlow Lite's hard swish, which it computes in 16 bits. With scales that
    /// TensorFlow Lite refuses, returns the nearest whole number.
    pub(super) fn hard_swish(&self, x: i32) -> i32 {
        let input = self.of.scale / 128.0;
        let (output, right) = Multiplier::of(input / self.to.scale).of_16_bits();
        let (slope, left) = Multiplier::of(input / (3.0 / 32768.0)).of_16_bits();
        if !(-30..=0).contains(&right) || !(-30..=15).contains(&left) {
            return self.nearest(x);
        }
        let fits = |x: i32| x.clamp(i16::MIN.into(), i16::MAX.into());
        let x = x * 128;
        let mut share = if left > 0 { fits(x << (left - 1)) } else { x };
        share = high_product(share, slope, true);
        share = match left {
            1.. => fits(share << 1),
            _ => shifted(share, -left),
        };
        let share = (share + 32768) >> 1;
        shifted(
            high_product(share, high_product(x, output, true), false),
            -right,
        )
    }
}

/// A factor in fixed point: `digits`, a number of 31 bits, times 2^(`exponent` − 31).
struct Multiplier {
    digits: i64,
    exponent: i32,
}

impl Multiplier {
    fn of(factor: f32) -> Multiplier {
        let (digits, exponent) = libm::frexp(factor.into());
        let digits = (digits * libm::exp2(31.0)).round() as i64;
        match digits == 1 << 31 {
            true => Multiplier {
                digits: digits / 2,
                exponent: exponent + 1,
            },
            false => Multiplier { digits, exponent },
        }
    }

    /// Returns x times the factor. The product is rounded to a multiple of a power of two that is
    /// at most 1, with halves upwards. That is rounded to a whole number, with halves away from 0.
    fn times(&self, x: i32) -> i32 {
        let product = (i64::from(x) << self.exponent.max(0)) * self.digits;
        let half = if product >= 0 { 1 << 30 } else { 1 - (1 << 30) };
        let high = (product + half) / (1 << 31);
        shifted(high as i32, -self.exponent.min(0))
    }

    /// Returns the 15 upper bits of `digits`, rounded, and the exponent.
    fn of_16_bits(&self) -> (i32, i32) {
        let upper = (self.digits + (1 << 15)) >> 16;
        (upper.min(i16::MAX.into()) as i32, self.exponent)
    }
}

/// Returns the upper half of twice the product of two 16-bit numbers, rounded or truncated.
fn high_product(a: i32, b: i32, rounded: bool) -> i32 {
    let product = i64::from(a) * i64::from(b);
    let half = match (rounded, product >= 0) {
        (false, _) => 0,
        (true, true) => 1 << 14,
        (true, false) => 1 - (1 << 14),
    };
    ((product + half) / (1 << 15)).min(i16::MAX.into()) as i32
}

/// Returns x / 2ⁿ, rounded to the nearest, with halves away from 0.
fn shifted(x: i32, n: i32) -> i32 {
    let rest = x & ((1 << n) - 1);
    let half = (((1 << n) - 1) >> 1) + i32::from(x < 0);
    (x >> n) + i32::from(rest > half)
}

/// A float result up to this far from a whole number is surely rounded to it by every engine.
const SURE: f64 = 0.499;

/// Builds a function of one whole number that gives exactly `result`. The function is computed in
/// floats and rounded. Where the float may round to another number, a correction is added.
pub(super) fn function(
    b: &mut Builder,
    name: &str,
    x: &Live,
    f: &Function,
    result: &dyn Fn(i32) -> i32,
) -> Result<Live, String> {
    let (from, limits) = (f.of.limits(), f.to.limits());
    let real = real(b, name, x, f.of)?;
    let y = b.activation(name, &real, f.activation)?;
    let mut y = b.scale(name, &y, &[1.0 / f64::from(f.to.scale)], &[0.0])?;
    for q in from.low..=from.high {
        let (exact, wanted) = (f.exact(q), result(q).clamp(limits.low, limits.high));
        let off = exact - f64::from(wanted);
        let below = wanted == limits.low && off < 0.0;
        let above = wanted == limits.high && off > 0.0;
        if off.abs() <= SURE || below || above {
            continue;
        }
        // The correction is added only where x is q. It is 0 for all other whole numbers.
        let distance = b.scale(name, x, &[1.0], &[(-q).into()])?;
        let other = limited(b, name, &distance, Limits { low: -1, high: 1 })?;
        let other = elementwise::power(b, name, &other, 2.0)?;
        let correction = b.scale(name, &other, &[off], &[-off])?;
        let (all, one) = (Operand::Live(&y), Operand::Live(&correction));
        y = elementwise::arithmetic(b, name, Arithmetic::Add, all, one)?;
    }
    let whole = math(b, name, &y, Math::Round)?;
    limited(b, name, &whole, limits)
}

/// Resizes an image of whole numbers along rows and columns, from taps for each axis. The weights
/// are rounded to 11 binary digits. The results are rounded to the nearest, halves upwards.
pub(super) fn resized(
    b: &mut Builder,
    name: &str,
    x: &Live,
    (rows, columns): (&Taps, &Taps),
    limits: Limits,
) -> Result<Live, String> {
    let digits = |taps: &Taps, unit: f64| {
        let whole = |t: &Tap| (t.weight / unit).fract() == 0.0;
        taps.iter().flatten().all(whole)
    };
    let unit = libm::exp2(-11.0);
    let rounded_taps = |taps: &Taps| -> Taps {
        let weight = |t: &Tap| Tap {
            weight: libm::rint(t.weight / unit) * unit,
            ..*t
        };
        let line = |line: &Vec<Tap>| line.iter().map(weight).collect();
        taps.iter().map(line).collect()
    };
    let (rows, columns) = (rounded_taps(rows), rounded_taps(columns));
    let along =
        |b: &mut Builder, x: &Live, a: usize, taps: &Taps| resample::along(b, name, x, a, taps);
    let short = libm::exp2(-7.0);
    let lines = along(b, x, 2, &columns)?;
    if digits(&rows, short) && digits(&columns, short) {
        // The product of both weights and a whole number has at most 22 binary digits, so a float
        // holds it.
        let y = along(b, &lines, 1, &rows)?;
        return rounded(b, name, &y, &[1.0], half_up(short * short), limits);
    }
    // The lines' whole parts and fractions are resized apart, because their products together have
    // more binary digits than a float.
    let less = |b: &mut Builder, x: &Live, y: &Live| {
        let (x, y) = (Operand::Live(x), Operand::Live(y));
        elementwise::arithmetic(b, name, Arithmetic::Subtract, x, y)
    };
    let whole_part = |b: &mut Builder, x: &Live, summand: f64| {
        let moved = b.scale(name, x, &[1.0], &[summand])?;
        math(b, name, &moved, Math::Round)
    };
    let whole = whole_part(b, &lines, down(unit))?;
    let fractions = less(b, &lines, &whole)?;
    let (of_whole, of_fractions) = (along(b, &whole, 1, &rows)?, along(b, &fractions, 1, &rows)?);
    let whole = whole_part(b, &of_whole, down(unit))?;
    let rest = less(b, &of_whole, &whole)?;
    let (rest, more) = (Operand::Live(&rest), Operand::Live(&of_fractions));
    let rest = elementwise::arithmetic(b, name, Arithmetic::Add, rest, more)?;
    let carried = whole_part(b, &rest, half_up(unit * unit))?;
    let (whole, carried) = (Operand::Live(&whole), Operand::Live(&carried));
    let sum = elementwise::arithmetic(b, name, Arithmetic::Add, whole, carried)?;
    limited(b, name, &sum, limits)
}

/// An operand of an integer sum. `ratio` is the operand's scale divided by the scale of the sum.
pub(super) struct Summand<'s> {
    pub(super) numbers: Operand<'s>,
    pub(super) ratio: f32,
}

/// Computes the mean of each window in integers. The sum of the integers, with zero points, is
/// divided by the number of elements in the window. Halves are rounded away from 0.
///
/// `x` has the means of the whole numbers. `counts` has the number of elements in each window.
pub(super) fn mean(
    b: &mut Builder,
    name: &str,
    x: &Live,
    counts: &[f64],
    zero: i32,
    limits: Limits,
) -> Result<Live, String> {
    let zero = f64::from(zero);
    let of_counts = |f: &dyn Fn(f64) -> f64| counts.iter().map(|&n| f(n)).collect::<Vec<f64>>();
    // The mean times the window's element count is nearly the sum, so rounding gives the exact sum.
    let sums = b.scale(name, x, counts, &of_counts(&|n| n * zero))?;
    let sums = math(b, name, &sums, Math::Round)?;
    // A quotient can be a half only if the count is even. Halves of sums up to 0 are rounded down,
    // halves of other sums up.
    let even = |n: f64| if n % 2.0 == 0.0 { 1.0 } else { 0.0 };
    let mut rounded = sums.clone();
    if counts.iter().any(|&n| even(n) == 1.0) {
        let above = math(b, name, &sums, Math::Above)?;
        let above = b.scale(name, &above, &of_counts(&even), &[0.0])?;
        let (sums, above) = (Operand::Live(&sums), Operand::Live(&above));
        rounded = elementwise::arithmetic(b, name, Arithmetic::Add, sums, above)?;
    }
    // The quotients are multiples of 1 / n. `rounded` has already decided all halves.
    let moved = |n: f64| ((n / 2.0).floor() - even(n)) / n + down(1.0 / n) - zero;
    let divided = b.scale(name, &rounded, &of_counts(&|n| 1.0 / n), &of_counts(&moved))?;
    let whole = math(b, name, &divided, Math::Round)?;
    limited(b, name, &whole, limits)
}

/// Returns true if XNNPACK supports an addition with these ratios. A ratio is an operand's scale
/// divided by the scale of the sum.
pub(super) fn adds(ratios: [f32; 2]) -> bool {
    Arithmetic::rounded_sum(ratios).is_some()
}

/// Adds two tensors of whole numbers in fixed point ([`Arithmetic::rounded_sum`]), and limits the
/// sums.
pub(super) fn sum(
    b: &mut Builder,
    name: &str,
    summands: [Summand<'_>; 2],
    limits: Limits,
) -> Result<Live, String> {
    let of = Arithmetic::rounded_sum(summands.each_ref().map(|s| s.ratio));
    let of = of.ok_or("the scales of the operands and of the sum are too different")?;
    let [x, y] = summands.map(|s| s.numbers);
    let sum = elementwise::arithmetic(b, name, of, x, y)?;
    limited(b, name, &sum, limits)
}

#[cfg(test)]
mod tests {
    use super::super::constant::{ConstantTensor, Element};
    use super::*;
    use crate::ir::graph::{Shape, Value};
    use crate::ir::op::Op;

    /// The operands of a sum, beside the tensor x of three rows with two numbers each.
    #[derive(Clone, Copy, Debug)]
    enum Other {
        /// 5 − x
        Computed,
        /// 5 − x of the last two numbers, for each row
        Row,
        Constant,
    }

    /// Returns the sum of x and of the other operand, which is the first one if `exchanged`. Also
    /// returns the sum by XNNPACK's rule, in 64-bit integers.
    fn sums(ratios: [f32; 2], other: Other, exchanged: bool) -> [Vec<f64>; 2] {
        let numbers = [-128.0, 127.0, 3.0, -77.0, 0.0, 1.0];
        let input = Value {
            name: "x".into(),
            shape: Shape::vector(6),
        };
        let (mut b, _) = Builder::new(vec![input], None).unwrap();
        let x = Live::new(0, vec![3, 2], Element::F32);
        let flat = Live::new(0, vec![6], Element::F32);
        let last = b.select("row", &flat, &[4, 5]).unwrap();
        let from = match other {
            Other::Row => last.with_dims(vec![1, 2]),
            _ => x.clone(),
        };
        let computed = b.scale("y", &from, &[-1.0], &[5.0]).unwrap();
        let constants: Vec<f64> = (0..6).map(|i| f64::from(i * 17 - 40)).collect();
        let constant = ConstantTensor::floats(vec![3, 2], constants.clone());
        let second = match other {
            Other::Constant => Operand::Constant(&constant),
            _ => Operand::Live(&computed),
        };
        let mut operands = [Operand::Live(&x), second];
        let y = |i: usize| match other {
            Other::Computed => 5.0 - numbers[i],
            Other::Row => 5.0 - numbers[4 + i % 2],
            Other::Constant => constants[i],
        };
        let mut values: Vec<[f64; 2]> = (0..6).map(|i| [numbers[i], y(i)]).collect();
        if exchanged {
            operands.reverse();
            values.iter_mut().for_each(|pair| pair.reverse());
        }
        let summands = [0, 1].map(|i| Summand {
            numbers: operands[i],
            ratio: ratios[i],
        });
        let limits = Limits { low: -90, high: 70 };
        let all = sum(&mut b, "sum", summands, limits).unwrap();
        let mut graph = b.draft.graph.clone();
        let added = |n: &&crate::ir::graph::Node| n.op.name() == "rounded_sum";
        assert_eq!(graph.nodes.iter().filter(added).count(), 1);
        let combines = |n: &&crate::ir::graph::Node| matches!(n.op, Op::Combine(_));
        assert_eq!(graph.nodes.iter().filter(combines).count(), 1);
        graph.outputs = vec![all.value].into();
        let found = graph.evaluate(&b.draft.rounded(), numbers.to_vec(), |_, _| ());
        let largest = ratios[0].abs().max(ratios[1].abs());
        let shift = 20 - largest.log2().floor() as i32;
        let multiplier = |r: f32| (f64::from(r) * 2f64.powi(shift)).round_ties_even() as i64;
        let rule = |[x, y]: &[f64; 2]| {
            let products = *x as i64 * multiplier(ratios[0]) + *y as i64 * multiplier(ratios[1]);
            let rounded = (products + (1 << (shift - 1))) >> shift;
            rounded.clamp(-90, 70) as f64
        };
        let expected = values.iter().map(rule).collect();
        [found[all.value].clone(), expected]
    }

    /// A sum is one operation, whatever its operands. Ratios just below a power of two are rounded
    /// to it.
    #[test]
    fn sums_follow_the_rule_of_xnnpack() {
        for ratios in [
            [0.5, 0.5],
            [1.5, -0.75],
            [0.123_456_79, 0.876_543_2],
            [1.999_999_9, 1.000_000_1],
            [255.999_98, 1.0 / 1024.0],
            [1.0 / 1024.0, 1.0 / 1000.0],
        ] {
            for other in [Other::Computed, Other::Row, Other::Constant] {
                for exchanged in [false, true] {
                    let [found, expected] = sums(ratios, other, exchanged);
                    assert_eq!(found, expected, "{ratios:?} {other:?} {exchanged}");
                }
            }
        }
    }
}
