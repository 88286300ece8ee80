//! Element-wise operations on tensors beyond plain arithmetic: powers, comparisons, selections,
//! maxima. A truth value is 1 or 0.

use super::builder::Builder;
use super::constant::{self, ConstantTensor, Data, Element};
use super::operations::{self, Around, clip, combined, with_constant};
use super::value::{self, Live, ModelValue};
use crate::ir::op::{Activation, Arithmetic, Math};

/// An operand of an operation. At least one operand of the operation is computed from the record.
#[derive(Clone, Copy)]
pub(super) enum Operand<'o> {
    Live(&'o Live),
    Constant(&'o ConstantTensor),
}

/// Adds a node that applies a mathematical function to each element.
pub(super) fn math(b: &mut Builder, name: &str, x: &Live, function: Math) -> Result<Live, String> {
    b.activation(name, x, Activation::Math(function))
}

/// Adds a node for x · factor + summand, with the same two numbers for all elements.
fn linear(
    b: &mut Builder,
    name: &str,
    x: &Live,
    factor: f64,
    summand: f64,
) -> Result<Live, String> {
    b.scale(name, x, &[factor], &[summand])
}

/// Makes a graph value from the constant `c`, broadcast to the sizes of `like`. It is computed as 0
/// · `like` + `c`. So an infinite element of `like` gives NaN, and the program refuses the record.
pub(super) fn constant_like(
    b: &mut Builder,
    name: &str,
    like: &Live,
    c: &ConstantTensor,
) -> Result<Live, String> {
    let zero = linear(b, name, like, 0.0, 0.0)?;
    with_constant(b, name, Arithmetic::Add, &zero, c, false)
}

/// Makes a graph value from the constant `c`. One element of `from` is multiplied by 0, repeated,
/// and the constant is added. At the axis of the records of `from`, the constant must have size 1.
pub(super) fn constant_value(
    b: &mut Builder,
    name: &str,
    from: &Live,
    c: &ConstantTensor,
) -> Result<Live, String> {
    let mut dims = c.dims.clone();
    if let Some(r) = from.records {
        if r >= dims.len() || dims.remove(r) != 1 {
            return Err(format!(
                "a constant of sizes {:?} has a row for each record",
                c.dims
            ));
        }
    }
    let len = c.len();
    // One element of `from` is multiplied by 0 and repeated.
    let flat = Live::new(from.value, vec![from.len()], from.kind);
    let first = b.select(name, &flat, &[0])?;
    let zeros = linear(b, name, &first, 0.0, 0.0)?;
    let zeros = operations::along(b, name, &zeros, 0, &vec![0; len])?;
    let value = b.scale(name, &zeros, &[1.0], &c.numbers()?)?;
    Ok(Live {
        dims,
        records: from.records,
        ..value
    })
}

/// Completes the graph of a model. Minus infinity that does not reach a softmax is an error. If any
/// output is computed from the record, constant outputs become graph values too.
pub(super) fn completed(
    b: &mut Builder,
    outputs: &mut [(String, ModelValue)],
) -> Result<(), String> {
    b.check_masked()?;
    let live = outputs.iter().find_map(|(_, value)| match value {
        ModelValue::Live(live) => Some(live.clone()),
        _ => None,
    });
    let Some(live) = live else {
        return Ok(());
    };
    for (name, value) in outputs {
        if let ModelValue::Constant(c) = value {
            let constant = constant_value(b, name, &live, c);
            let constant = constant.map_err(|e| format!("output {name}: {e}"))?;
            *value = ModelValue::Live(constant);
        }
    }
    Ok(())
}

/// Concatenates operands along axis `a`. A constant at either end that is one number everywhere
/// becomes a border, made by padding.
pub(super) fn joined(
    b: &mut Builder,
    name: &str,
    parts: &[Operand<'_>],
    a: usize,
) -> Result<Live, String> {
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    let mut lives: Vec<Live> = Vec::new();
    let first = parts.iter().find_map(|p| match p {
        Operand::Live(x) => Some((*x).clone()),
        Operand::Constant(_) => None,
    });
    let first = first.ok_or("expected a value computed from the record, found constants")?;
    let last = parts.iter().rposition(|p| matches!(p, Operand::Live(_)));
    // Padding puts a border behind all concatenated operands. So the constants behind the last
    // computed operand become borders only if each of them can.
    let behind_last = &parts[last.map_or(0, |last| last + 1)..];
    let bordered = behind_last.iter().all(|p| match *p {
        Operand::Constant(c) => c.len() == 0 || border(c, &first, a).is_some(),
        Operand::Live(_) => false,
    });
    for (i, part) in parts.iter().enumerate() {
        match *part {
            Operand::Live(x) => lives.push(x.clone()),
            Operand::Constant(c) if c.len() == 0 => {}
            Operand::Constant(c) => match border(c, &first, a) {
                Some(border) if lives.is_empty() => before.insert(0, border),
                Some(border) if bordered && last.is_some_and(|last| last < i) => {
                    behind.push(border);
                }
                _ => lives.push(constant_value(b, name, &first, c)?),
            },
        }
    }
    let mut result = operations::concat(b, name, &lives, a)?;
    for (borders, front) in [(before, true), (behind, false)] {
        for (size, number) in borders {
            let mut around = vec![Around::NONE; result.dims.len()];
            around[a] = match front {
                true => Around {
                    before: size,
                    ..Around::NONE
                },
                false => Around {
                    behind: size,
                    ..Around::NONE
                },
            };
            result = operations::pad(b, name, &result, &around, number)?;
        }
    }
    Ok(result)
}

/// Returns the size along axis `a` and the number of a constant that is the same finite number
/// everywhere. `None` for other constants, or if another axis differs in size from the tensor `of`.
fn border(c: &ConstantTensor, of: &Live, a: usize) -> Option<(usize, f64)> {
    let mut dims = c.dims.clone();
    if let Some(r) = of.records {
        (r < dims.len() && dims.remove(r) == 1).then_some(())?;
    }
    let same = |(i, (c, x)): (usize, (&usize, &usize))| i == a || c == x;
    let fits = dims.len() == of.dims.len() && dims.iter().zip(&of.dims).enumerate().all(same);
    let numbers = c.numbers().ok().filter(|_| fits)?;
    let first = *numbers.first()?;
    let all = first.is_finite() && numbers.iter().all(|&n| n == first);
    all.then_some((dims[a], first))
}

/// Builds arithmetic on two operands. At least one of them is computed from the record.
pub(super) fn arithmetic(
    b: &mut Builder,
    name: &str,
    of: Arithmetic,
    x: Operand<'_>,
    y: Operand<'_>,
) -> Result<Live, String> {
    match (x, y) {
        (Operand::Live(x), Operand::Live(y)) => combined(b, name, of, x, y),
        (Operand::Live(x), Operand::Constant(c)) => of_constant(b, name, of, x, c, false),
        (Operand::Constant(c), Operand::Live(x)) => of_constant(b, name, of, x, c, true),
        (Operand::Constant(_), Operand::Constant(_)) => {
            Err("expected a value computed from the record, found constants".into())
        }
    }
}

fn of_constant(
    b: &mut Builder,
    name: &str,
    of: Arithmetic,
    x: &Live,
    c: &ConstantTensor,
    first: bool,
) -> Result<Live, String> {
    match of {
        Arithmetic::Divide if first => {
            let reciprocal = math(b, name, x, Math::Reciprocal)?;
            with_constant(b, name, Arithmetic::Multiply, &reciprocal, c, false)
        }
        Arithmetic::Maximum | Arithmetic::Minimum => {
            if let Ok(n) = c.number() {
                let bounds = match of {
                    Arithmetic::Maximum => clip(n, f64::INFINITY),
                    _ => clip(f64::NEG_INFINITY, n),
                };
                let sizes = constant::together(&x.whole(), &c.dims).unwrap_or(x.whole());
                let x = operations::expanded(b, name, x, &sizes)?;
                return b.activation(name, &x, bounds);
            }
            let other = constant_like(b, name, x, c)?;
            combined(b, name, of, x, &other)
        }
        Arithmetic::RoundedSum { .. } => {
            let other = constant_like(b, name, x, c)?;
            match first {
                true => combined(b, name, of, &other, x),
                false => combined(b, name, of, x, &other),
            }
        }
        Arithmetic::Add => {
            let (c, masks) = masked(c);
            let sum = with_constant(b, name, of, x, &c, first)?;
            b.masked.extend(masks.then_some(sum.value));
            Ok(sum)
        }
        _ => with_constant(b, name, of, x, c, first),
    }
}

/// The number that stands for minus infinity, because weights must be finite. It is so low that
/// softmax gives 0 for it. A sum of several such numbers is still finite.
pub(super) const MASKED: f64 = -1e37;

/// Replaces minus infinity in a constant by [`MASKED`]. The second result is true if there was any.
fn masked(c: &ConstantTensor) -> (ConstantTensor, bool) {
    let Data::Floats(numbers) = &c.data else {
        return (c.clone(), false);
    };
    let low = |n: &f64| *n == f64::NEG_INFINITY;
    if !numbers.iter().any(low) {
        return (c.clone(), false);
    }
    let finite = numbers.iter().map(|n| if low(n) { MASKED } else { *n });
    (
        ConstantTensor::floats(c.dims.clone(), finite.collect()),
        true,
    )
}

/// A comparison of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
}

/// Compares two operands by their difference, which is 0 only for equal floats. The result is 1 for
/// true and 0 for false.
pub(super) fn compared(
    b: &mut Builder,
    name: &str,
    comparison: Comparison,
    x: Operand<'_>,
    y: Operand<'_>,
) -> Result<Live, String> {
    let (x, y) = match comparison {
        Comparison::Less | Comparison::LessOrEqual => (y, x),
        _ => (x, y),
    };
    let difference = arithmetic(b, name, Arithmetic::Subtract, x, y)?;
    let truth = match comparison {
        Comparison::Greater | Comparison::Less => math(b, name, &difference, Math::Above)?,
        Comparison::GreaterOrEqual | Comparison::LessOrEqual => {
            math(b, name, &difference, Math::NotBelow)?
        }
        Comparison::Equal | Comparison::NotEqual => {
            let size = math(b, name, &difference, Math::Abs)?;
            let differs = math(b, name, &size, Math::Above)?;
            match comparison {
                Comparison::Equal => not(b, name, &differs)?,
                _ => differs,
            }
        }
    };
    Ok(Live {
        kind: Element::Bool,
        ..truth
    })
}

/// 1 − x, which negates a truth value of 1 or 0.
pub(super) fn not(b: &mut Builder, name: &str, x: &Live) -> Result<Live, String> {
    linear(b, name, x, -1.0, 1.0)
}

/// Checks that the outputs `x` and `y` of an `If` node's two branches have the same sizes.
pub(super) fn same_sizes(x: Operand<'_>, y: Operand<'_>) -> Result<(), String> {
    let sizes = |o: Operand<'_>| match o {
        Operand::Live(live) => live.shown(),
        Operand::Constant(c) => format!("{:?}", c.dims),
    };
    let (x, y) = (sizes(x), sizes(y));
    if x == y {
        return Ok(());
    }
    Err(format!(
        "the condition is computed from the record, so both branches must have the same sizes, \
         found {x} and {y}"
    ))
}

/// Selects elements of `x` where the condition is true, else of `y`. With c for the condition it
/// computes c · x + (1 − c) · y.
pub(super) fn chosen(
    b: &mut Builder,
    name: &str,
    condition: Operand<'_>,
    x: Operand<'_>,
    y: Operand<'_>,
) -> Result<Live, String> {
    let opposite;
    let other = match condition {
        Operand::Live(c) => {
            opposite = (Some(not(b, name, c)?), None);
            Operand::Live(opposite.0.as_ref().unwrap_or(c))
        }
        Operand::Constant(c) => {
            let numbers = c.numbers()?.into_iter().map(|n| 1.0 - n).collect();
            opposite = (None, Some(ConstantTensor::floats(c.dims.clone(), numbers)));
            Operand::Constant(opposite.1.as_ref().unwrap_or(c))
        }
    };
    let first = product(b, name, condition, x)?;
    let second = product(b, name, other, y)?;
    arithmetic(b, name, Arithmetic::Add, first.operand(), second.operand())
}

/// The result of [`product`]. It is a constant if both operands are constants.
#[derive(Clone)]
pub(super) enum Factor {
    Live(Live),
    Constant(ConstantTensor),
}

impl Factor {
    pub(super) fn operand(&self) -> Operand<'_> {
        match self {
            Factor::Live(live) => Operand::Live(live),
            Factor::Constant(c) => Operand::Constant(c),
        }
    }
}

/// Multiplies a mask of ones and zeros by `x`. Both may be constants. Minus infinity in a constant
/// `x` is first replaced by [`MASKED`], because 0 times infinity is NaN.
pub(super) fn product(
    b: &mut Builder,
    name: &str,
    mask: Operand<'_>,
    x: Operand<'_>,
) -> Result<Factor, String> {
    match (mask, x) {
        (Operand::Constant(m), Operand::Constant(x)) => {
            let m = m.cast(Element::F32)?;
            let (x, masks) = masked(&x.cast(Element::F32)?);
            let product = super::fold::two("Mul", &m, &x)?;
            // `MASKED` times 1 becomes minus infinity again.
            let numbers = product.numbers()?.into_iter();
            let whole = numbers.map(|n| match masks && n <= MASKED {
                true => f64::NEG_INFINITY,
                false => n,
            });
            let product = ConstantTensor::floats(product.dims, whole.collect());
            Ok(Factor::Constant(product))
        }
        (Operand::Live(m), Operand::Constant(x)) => {
            let (x, masks) = masked(x);
            let (m, c) = (Operand::Live(m), Operand::Constant(&x));
            let product = arithmetic(b, name, Arithmetic::Multiply, m, c)?;
            b.masked.extend(masks.then_some(product.value));
            Ok(Factor::Live(product))
        }
        _ => arithmetic(b, name, Arithmetic::Multiply, mask, x).map(Factor::Live),
    }
}

/// x to the power of a constant. A negative x gives NaN if the exponent has a fraction.
pub(super) fn power(b: &mut Builder, name: &str, x: &Live, exponent: f64) -> Result<Live, String> {
    let result = if exponent == 0.0 {
        linear(b, name, x, 0.0, 1.0)?
    } else if exponent.fract() == 0.0 && (1.0..=LARGEST_PRODUCT).contains(&exponent) {
        whole_power(b, name, x, exponent as u32)?
    } else if exponent == 0.5 {
        math(b, name, x, Math::Sqrt)?
    } else if exponent == -0.5 {
        let root = math(b, name, x, Math::Sqrt)?;
        math(b, name, &root, Math::Reciprocal)?
    } else if exponent == -1.0 {
        math(b, name, x, Math::Reciprocal)?
    } else if exponent == 0.75 {
        let root = math(b, name, x, Math::Sqrt)?;
        let second = math(b, name, &root, Math::Sqrt)?;
        combined(b, name, Arithmetic::Multiply, &root, &second)?
    } else if exponent.fract() == 0.0 && (-LARGEST_PRODUCT..0.0).contains(&exponent) {
        let inverse = whole_power(b, name, x, -exponent as u32)?;
        math(b, name, &inverse, Math::Reciprocal)?
    } else if exponent.fract() == 0.0 || !exponent.is_finite() {
        return Err(format!(
            "expected a whole exponent from -{LARGEST_PRODUCT} to {LARGEST_PRODUCT}, or one that \
             is not whole, found {exponent}"
        ));
    } else {
        // For an exponent of 1/4 or more, a tiny summand keeps the logarithm of x = 0 finite. The
        // power of 0 is then nearly 0.
        let tiny = if exponent >= 0.25 { TINY } else { 0.0 };
        let shifted = linear(b, name, x, 1.0, tiny)?;
        let logarithm = math(b, name, &shifted, Math::Log)?;
        let scaled = linear(b, name, &logarithm, exponent, 0.0)?;
        math(b, name, &scaled, Math::Exp)?
    };
    Ok(result)
}

/// A number just above f32's smallest normal number.
const TINY: f64 = 1.2e-38;

/// The largest supported whole exponent. The power is computed as a chain of products.
const LARGEST_PRODUCT: f64 = 64.0;

/// x to the power of a whole number above 0, computed by repeated squaring.
fn whole_power(b: &mut Builder, name: &str, x: &Live, exponent: u32) -> Result<Live, String> {
    let mut result = None;
    let mut square = x.clone();
    for bit in 0..=exponent.ilog2() {
        if bit > 0 {
            square = combined(b, name, Arithmetic::Multiply, &square, &square)?;
        }
        if exponent >> bit & 1 == 1 {
            result = Some(match result {
                Some(product) => combined(b, name, Arithmetic::Multiply, &product, &square)?,
                None => square.clone(),
            });
        }
    }
    result.ok_or_else(|| "expected an exponent above 0".into())
}

/// x to the power of y, one of which may be a constant. It is exp(y · log |x|), negated where x is
/// below 0 and y is odd. The result is NaN where x is below 0 and y is not whole.
pub(super) fn power_of(
    b: &mut Builder,
    name: &str,
    x: Operand<'_>,
    y: Operand<'_>,
) -> Result<Live, String> {
    // Both operands are broadcast to the sizes of the result.
    let zero = arithmetic(b, name, Arithmetic::Multiply, x, Operand::Constant(&none()))
        .or_else(|_| arithmetic(b, name, Arithmetic::Multiply, y, Operand::Constant(&none())))?;
    let x = arithmetic(b, name, Arithmetic::Add, Operand::Live(&zero), x)?;
    let y = arithmetic(
        b,
        name,
        Arithmetic::Add,
        Operand::Live(&x.with_value(zero.value)),
        y,
    );
    let y = y?;
    let size = math(b, name, &x, Math::Abs)?;
    let logarithm = math(b, name, &size, Math::Log)?;
    let product = combined(b, name, Arithmetic::Multiply, &y, &logarithm)?;
    let power = math(b, name, &product, Math::Exp)?;
    let from_zero = math(b, name, &x, Math::NotBelow)?;
    let negative = not(b, name, &from_zero)?;
    let half = linear(b, name, &y, 0.5, 0.0)?;
    let half = math(b, name, &half, Math::Floor)?;
    let even = linear(b, name, &half, 2.0, 0.0)?;
    // `odd` is 0 for an even y and 1 for an odd y. A y with a fraction gives a number between 0 and
    // 2.
    let odd = combined(b, name, Arithmetic::Subtract, &y, &even)?;
    let whole = math(b, name, &y, Math::Floor)?;
    let broken = combined(b, name, Arithmetic::Subtract, &y, &whole)?;
    let broken = combined(b, name, Arithmetic::Multiply, &broken, &negative)?;
    let broken = math(b, name, &broken, Math::Above)?;
    // `defined` is NaN where the power is undefined (the logarithm of −1), else 0 (the logarithm of
    // 1).
    let defined = linear(b, name, &broken, -2.0, 1.0)?;
    let defined = math(b, name, &defined, Math::Log)?;
    let turned = combined(b, name, Arithmetic::Multiply, &odd, &negative)?;
    let sign = linear(b, name, &turned, -2.0, 1.0)?;
    let signed = combined(b, name, Arithmetic::Multiply, &power, &sign)?;
    combined(b, name, Arithmetic::Add, &signed, &defined)
}

/// The constant 0, without axes.
fn none() -> ConstantTensor {
    ConstantTensor::floats(vec![], vec![0.0])
}

/// The remainder of x / y. It has the sign of y, or the sign of x if `of_first` is true.
pub(super) fn remainder(
    b: &mut Builder,
    name: &str,
    x: Operand<'_>,
    y: Operand<'_>,
    of_first: bool,
) -> Result<Live, String> {
    let quotient = arithmetic(b, name, Arithmetic::Divide, x, y)?;
    let whole = match of_first {
        true => truncated(b, name, &quotient)?,
        false => math(b, name, &quotient, Math::Floor)?,
    };
    let part = arithmetic(b, name, Arithmetic::Multiply, Operand::Live(&whole), y)?;
    arithmetic(b, name, Arithmetic::Subtract, x, Operand::Live(&part))
}

/// Rounds x towards 0.
fn truncated(b: &mut Builder, name: &str, x: &Live) -> Result<Live, String> {
    let size = math(b, name, x, Math::Abs)?;
    let whole = math(b, name, &size, Math::Floor)?;
    let sign = sign(b, name, x)?;
    combined(b, name, Arithmetic::Multiply, &whole, &sign)
}

/// Builds arithmetic on small integers. The result wraps around into the range of the type `kind`.
/// A quotient is rounded towards 0.
pub(super) fn wrapped(
    b: &mut Builder,
    name: &str,
    of: Arithmetic,
    (x, y): (Operand<'_>, Operand<'_>),
    kind: Element,
) -> Result<Live, String> {
    let Some((low, high)) = kind.range() else {
        return Err(format!("expected integers, found {}", kind.name()));
    };
    let (low, count) = (low as f64, (high - low + 1) as f64);
    let exact = match of {
        Arithmetic::Divide => {
            // One half is added to the dividend's absolute value, because a device may round an
            // exact quotient to just below the whole number.
            let one = ConstantTensor::floats(vec![], vec![1.0]);
            let one = Operand::Constant(&one);
            let x = arithmetic(b, name, Arithmetic::Multiply, x, one)?;
            let sign_x = sign(b, name, &x)?;
            let size = math(b, name, &x, Math::Abs)?;
            let size = linear(b, name, &size, 1.0, 0.5)?;
            let quotient = arithmetic(b, name, Arithmetic::Divide, Operand::Live(&size), y)?;
            let sign_y = sign(b, name, &quotient)?;
            let size = math(b, name, &quotient, Math::Abs)?;
            let whole = math(b, name, &size, Math::Floor)?;
            let signed = combined(b, name, Arithmetic::Multiply, &whole, &sign_y)?;
            combined(b, name, Arithmetic::Multiply, &signed, &sign_x)?
        }
        _ => arithmetic(b, name, of, x, y)?,
    };
    let turns = linear(b, name, &exact, 1.0 / count, -low / count)?;
    let turns = math(b, name, &turns, Math::Floor)?;
    let back = linear(b, name, &turns, -count, 0.0)?;
    let result = combined(b, name, Arithmetic::Add, &exact, &back)?;
    Ok(Live { kind, ..result })
}

/// Converts a tensor to another element type. Floats become integers by rounding towards 0. A truth
/// value is 1 where the number is not 0. A narrower integer type that cannot hold every integer of
/// `x`'s type is an error.
pub(super) fn cast(b: &mut Builder, name: &str, x: &Live, kind: Element) -> Result<Live, String> {
    let value = if kind.float() || kind == x.kind || x.kind.widens(kind) {
        x.clone()
    } else if kind == Element::Bool {
        let size = math(b, name, x, Math::Abs)?;
        math(b, name, &size, Math::Above)?
    } else if x.kind.float() && kind.range().is_some() {
        truncated(b, name, x)?
    } else {
        return Err(format!(
            "{} to {}: expected a type of floats, or a wider one of integers: integers are not \
             wrapped",
            x.kind.name(),
            kind.name()
        ));
    };
    Ok(Live { kind, ..value })
}

/// The sign of each element: 1 above 0, 0 at 0, −1 below 0.
pub(super) fn sign(b: &mut Builder, name: &str, x: &Live) -> Result<Live, String> {
    let above = math(b, name, x, Math::Above)?;
    let from_zero = math(b, name, x, Math::NotBelow)?;
    let sum = combined(b, name, Arithmetic::Add, &above, &from_zero)?;
    linear(b, name, &sum, 1.0, -1.0)
}

/// Converts negative indices, which count from the end, to indices from the front. `depth` is the
/// number of elements that the indices select from.
pub(super) fn from_front(
    b: &mut Builder,
    name: &str,
    index: &Live,
    depth: f64,
) -> Result<Live, String> {
    let from_zero = math(b, name, index, Math::NotBelow)?;
    let shift = linear(b, name, &from_zero, -depth, depth)?;
    combined(b, name, Arithmetic::Add, index, &shift)
}

/// Builds a one-hot code of each index along a new axis of size `depth`: `on` at the index, `off`
/// elsewhere. An index that is out of range gives `off` everywhere.
pub(super) fn one_hot(
    b: &mut Builder,
    name: &str,
    x: &Live,
    (axis, depth): (i64, f64),
    [off, on]: [f64; 2],
) -> Result<Live, String> {
    if !(1.0..=65536.0).contains(&depth) {
        return Err(format!("expected a depth from 1 to 65536, found {depth}"));
    }
    let at = value::axis(axis, x.rank() + 1)?;
    if x.records.is_some_and(|r| r >= at) {
        return Err("axis: expected one behind the axis of the records".into());
    }
    let index = operations::squeezed("Unsqueeze", x, Some(&[at as i64]))?;
    let mut dims = vec![1; index.rank()];
    dims[at] = depth as usize;
    let classes = (0..depth as usize).map(|i| i as f64).collect();
    let classes = ConstantTensor::floats(dims, classes);
    let (x, y) = (Operand::Live(&index), Operand::Constant(&classes));
    let truth = compared(b, name, Comparison::Equal, x, y)?;
    linear(b, name, &truth, on - off, off)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::graph::{Shape, Value};

    /// Builds a graph with one input and returns its result for the input `numbers`.
    fn computed(
        numbers: &[f64],
        build: impl FnOnce(&mut Builder, &Live) -> Result<Live, String>,
    ) -> Vec<f64> {
        let input = Value {
            name: "x".into(),
            shape: Shape::vector(numbers.len()),
        };
        let (mut b, _) = Builder::new(vec![input], None).unwrap();
        let x = Live::new(0, vec![numbers.len()], Element::F32);
        let y = build(&mut b, &x).unwrap();
        let mut graph = b.draft.graph.clone();
        graph.outputs = vec![y.value].into();
        let weights = b.draft.rounded();
        let mut values = graph.evaluate(&weights, numbers.to_vec(), |_, _| ());
        values.swap_remove(y.value)
    }

    fn two(c: &[f64]) -> ConstantTensor {
        ConstantTensor::floats(vec![c.len()], c.to_vec())
    }

    #[test]
    fn comparisons_and_choices() {
        use Comparison::*;
        let of = |comparison, first: bool| {
            computed(&[1.0, 2.0, 3.0], |b, x| {
                let c = two(&[2.0, 2.0, 2.0]);
                let (x, c) = (Operand::Live(x), Operand::Constant(&c));
                let (x, y) = if first { (x, c) } else { (c, x) };
                compared(b, "c", comparison, x, y)
            })
        };
        assert_eq!(of(Greater, true), [0.0, 0.0, 1.0]);
        assert_eq!(of(Greater, false), [1.0, 0.0, 0.0]);
        assert_eq!(of(GreaterOrEqual, true), [0.0, 1.0, 1.0]);
        assert_eq!(of(Less, true), [1.0, 0.0, 0.0]);
        assert_eq!(of(LessOrEqual, true), [1.0, 1.0, 0.0]);
        assert_eq!(of(Equal, true), [0.0, 1.0, 0.0]);
        assert_eq!(of(NotEqual, false), [1.0, 0.0, 1.0]);
        let chosen = computed(&[1.0, 2.0, 3.0], |b, x| {
            let (condition, other) = (two(&[1.0, 0.0, 1.0]), two(&[7.0, 8.0, 9.0]));
            let (condition, other) = (Operand::Constant(&condition), Operand::Constant(&other));
            chosen(b, "w", condition, Operand::Live(x), other)
        });
        assert_eq!(chosen, [1.0, 8.0, 3.0]);
    }

    #[test]
    fn powers_and_constants() {
        for exponent in [-1.0, -0.5, 0.5, 0.75, 1.0, 2.0, 3.0, 4.0] {
            let found = computed(&[0.25, 2.0], |b, x| power(b, "p", x, exponent));
            for (y, x) in found.iter().zip([0.25f64, 2.0]) {
                assert!((y - x.powf(exponent)).abs() < 1e-9, "{exponent}: {found:?}");
            }
        }
        let larger = computed(&[1.0, 5.0], |b, x| {
            let c = two(&[2.0, 3.0]);
            let (x, c) = (Operand::Live(x), Operand::Constant(&c));
            arithmetic(b, "m", Arithmetic::Maximum, c, x)
        });
        assert_eq!(larger, [2.0, 5.0]);
        let quotient = computed(&[1.0, 4.0], |b, x| {
            let c = two(&[2.0, 3.0]);
            let (x, c) = (Operand::Live(x), Operand::Constant(&c));
            arithmetic(b, "d", Arithmetic::Divide, c, x)
        });
        assert_eq!(quotient, [2.0, 0.75]);
        let constant = computed(&[1.0, 4.0], |b, x| {
            constant_value(
                b,
                "c",
                x,
                &ConstantTensor::floats(vec![1, 3], vec![5.0, 6.0, 7.0]),
            )
        });
        assert_eq!(constant, [5.0, 6.0, 7.0]);
    }
}
