//! ONNX operations on tensors beyond layers: powers, comparisons, selections, repetitions,
//! normalizations.

use super::node::{OnnxNode, live};
use super::ops::NodeOutputs;
use super::{attention, integers, picking, quantised, signals, tensor};
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Data, Element, Int, together};
use crate::bake::front::elementwise::{self, Comparison, Operand, math, power};
use crate::bake::front::fold;
use crate::bake::front::normalise;
use crate::bake::front::operations::{self, Reduction};
use crate::bake::front::products::{self, Equation};
use crate::bake::front::resample::{self, Tap};
use crate::bake::front::value::{Live, ModelValue, axis, inner_axes, inner_axis};
use crate::ir::op::{Activation, Arithmetic, Float, Math};

/// Builds an operation with one output, if it is implemented here, in `attention`, in `picking` or
/// in `signals`. `None` for all other operations.
pub(super) fn apply(b: &mut Builder, node: &OnnxNode<'_>) -> Option<Result<Live, String>> {
    Some(match node.op() {
        "Pow" => pow(b, node),
        "Min" => largest(b, node, Arithmetic::Minimum),
        "Max" => largest(b, node, Arithmetic::Maximum),
        "Mean" => mean(b, node),
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => compare(b, node),
        "Mod" => modulo(b, node),
        "LpNormalization" => normalised(b, node),
        "ReduceProd" => product_along(b, node),
        "AffineGrid" => grid(b, node),
        "Hardmax" => picking::hardmax(b, node),
        "GatherElements" => picking::elements(b, node),
        "GatherND" => picking::gather(b, node),
        "Scatter" | "ScatterElements" | "ScatterND" => picking::scatter(b, node),
        "Compress" => picking::compress(b, node),
        "CenterCropPad" => picking::centred(b, node),
        "NegativeLogLikelihoodLoss" => live(node, 0)
            .cloned()
            .and_then(|x| picking::loss(b, node, &x)),
        "DFT" => signals::fourier(b, node),
        "STFT" => signals::short_time(b, node),
        "RotaryEmbedding" => attention::rotary(b, node),
        "Tan" | "Sinh" | "Cosh" | "Asinh" | "Acosh" | "Atanh" | "Atan" | "Asin" | "Acos" => {
            trigonometry(b, node)
        }
        "Not" => live(node, 0)
            .cloned()
            .and_then(|x| elementwise::not(b, &node.name, &x)),
        "And" | "Or" | "Xor" => logic(b, node),
        "Where" => choose(b, node),
        "Ceil" | "Sign" | "Softsign" | "Celu" | "ThresholdedRelu" | "Shrink" => function(b, node),
        "Expand" => expand(b, node),
        "Tile" => tile(b, node),
        "CumSum" => cumulated(b, node),
        "Trilu" => triangle(b, node),
        "OneHot" => one_hot(b, node),
        "Einsum" => einsum(b, node),
        "ReduceMin" | "ReduceL1" | "ReduceL2" | "ReduceSumSquare" | "ReduceLogSum"
        | "ReduceLogSumExp" => reduce(b, node),
        "RMSNormalization" => root_mean_square(b, node),
        "MeanVarianceNormalization" => mean_variance(b, node),
        "InstanceNormalization" => instance_norm(b, node),
        "GroupNormalization" => group_norm(b, node),
        "LRN" => local_response(b, node),
        "QuantizeLinear" => quantize(b, node),
        "DequantizeLinear" => dequantize(b, node),
        _ => return None,
    })
}

/// Returns input `i` of a node as an operand: a constant or a tensor computed from the record.
pub(super) fn operand<'o>(node: &'o OnnxNode<'_>, i: usize) -> Result<Operand<'o>, String> {
    match node.input(i) {
        Some(ModelValue::Constant(c)) => Ok(Operand::Constant(c)),
        _ => live(node, i).map(Operand::Live),
    }
}

fn pow(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, y) = (operand(node, 0)?, operand(node, 1)?);
    if let (Operand::Live(x), Operand::Constant(c)) = (x, y) {
        let exponents = c.numbers()?;
        let first = exponents.first().copied().unwrap_or(1.0);
        let fits = together(&x.whole(), &c.dims).is_some_and(|all| all == x.whole());
        if fits && exponents.iter().all(|&e| e == first) {
            return power(b, &node.name, x, first);
        }
    }
    elementwise::power_of(b, &node.name, x, y)
}

/// `Mod`. The remainder has the sign of the first operand if `fmod` is set, otherwise that of the
/// second operand.
fn modulo(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, y) = (operand(node, 0)?, operand(node, 1)?);
    elementwise::remainder(b, &node.name, x, y, node.int("fmod", 0) != 0)
}

/// `LpNormalization`: x divided by its L1 or L2 norm along an axis.
fn normalised(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, name) = (live(node, 0)?, &node.name);
    let axes = vec![inner_axis(node.int("axis", -1), x)?];
    let norm = match node.int("p", 2) {
        1 => {
            let sizes = math(b, name, x, Math::Abs)?;
            operations::reduce(b, name, &sizes, axes, Reduction::Sum, true)?
        }
        2 => {
            let squares = power(b, name, x, 2.0)?;
            let sum = operations::reduce(b, name, &squares, axes, Reduction::Sum, true)?;
            math(b, name, &sum, Math::Sqrt)?
        }
        p => return Err(format!("p: expected 1 or 2, found {p}")),
    };
    operations::combined(b, name, Arithmetic::Divide, x, &norm)
}

/// `ReduceProd`: the product of the elements along axes. The first half of an axis is multiplied by
/// the second half, element by element, until one element is left.
fn product_along(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let mut x = live(node, 0)?.clone();
    let (axes, keep) = (reduced_axes(node, &x)?, node.int("keepdims", 1) != 0);
    for &a in &axes {
        while x.dims[a] > 1 {
            let half = x.dims[a] / 2;
            let mut part = |first: usize, size: usize| {
                let at: Vec<usize> = (first..first + size).collect();
                operations::along(b, &node.name, &x, a, &at)
            };
            let (first, second) = (part(0, half)?, part(half, half)?);
            let rest = (x.dims[a] % 2 == 1)
                .then(|| part(2 * half, 1))
                .transpose()?;
            x = operations::combined(b, &node.name, Arithmetic::Multiply, &first, &second)?;
            if let Some(rest) = rest {
                x = operations::concat(b, &node.name, &[x, rest], a)?;
            }
        }
    }
    let mut gone = axes;
    gone.sort_unstable();
    gone.dedup();
    if !keep {
        for &a in gone.iter().rev() {
            x = x.spliced(a, &[]);
        }
    }
    Ok(x)
}

/// `AffineGrid`: for each pixel of an image, the coordinates to which the record's matrix maps it.
/// The image spans coordinates from -1 to 1.
fn grid(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let sizes = node.needed(1, "a size")?.integers()?;
    let sizes: Option<Vec<usize>> = sizes.iter().map(|&n| usize::try_from(n).ok()).collect();
    let sizes = sizes.filter(|s| s.len() > 2 && s.iter().all(|&n| n > 0));
    let sizes = sizes.ok_or("expected sizes above 0")?;
    let (image, at) = (&sizes[2..], x.dims.len().saturating_sub(2));
    let axes = image.len();
    if x.dims.get(at..) != Some(&[axes, axes + 1][..]) || x.records.is_some_and(|r| r > at) {
        return Err(format!(
            "expected matrices of {axes} rows and {} columns, found {}",
            axes + 1,
            x.shown()
        ));
    }
    let corners = node.int("align_corners", 0) != 0;
    let place = |i: usize, n: usize| match corners {
        true if n == 1 => 0.0,
        true => 2.0 * i as f64 / (n - 1) as f64 - 1.0,
        false => (2 * i + 1) as f64 / n as f64 - 1.0,
    };
    let count: usize = image.iter().product();
    let mut rows = Vec::new();
    for pixel in 0..count {
        // A pixel's coordinates begin with the coordinate of the image's last axis.
        let mut rest = pixel;
        for &n in image.iter().rev() {
            rows.push(place(rest % n, n));
            rest /= n;
        }
        rows.push(1.0);
    }
    let y = operations::product(b, &node.name, x, rows, count)?;
    let order: Vec<usize> = (0..at).chain([at + 1, at]).collect();
    let y = b.transpose(&node.name, &y, &order)?;
    Ok(y.with_dims([&x.dims[..at], image, &[axes]].concat()))
}

/// `Min` or `Max` of any number of operands.
fn largest(b: &mut Builder, node: &OnnxNode<'_>, of: Arithmetic) -> Result<Live, String> {
    let first = (0..node.inputs.len()).find_map(|i| live(node, i).ok().map(|x| (i, x.clone())));
    let (at, mut result) = first.ok_or("expected inputs, found nothing")?;
    for i in (0..node.inputs.len()).filter(|&i| i != at) {
        let (x, y) = (Operand::Live(&result), operand(node, i)?);
        result = elementwise::arithmetic(b, &node.name, of, x, y)?;
    }
    Ok(result)
}

/// `Clip`. Its bounds are attributes or inputs, depending on the operation set.
pub(super) fn clip(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let mut plain = [f64::NEG_INFINITY, f64::INFINITY];
    let mut computed = Vec::new();
    let bounds = [("min", Arithmetic::Maximum), ("max", Arithmetic::Minimum)];
    for (i, (key, of)) in bounds.into_iter().enumerate() {
        match (node.has(key), node.input(i + 1)) {
            (true, _) => plain[i] = node.float(key, plain[i]),
            (false, None) => {}
            (false, Some(ModelValue::Constant(c))) => plain[i] = c.number()?,
            (false, Some(_)) => computed.push((of, live(node, i + 1)?.clone())),
        }
    }
    let [low, high] = plain;
    let mut result = match plain == [f64::NEG_INFINITY, f64::INFINITY] && !computed.is_empty() {
        true => x.clone(),
        false => b.activation(&node.name, x, operations::clip(low, high))?,
    };
    for (of, bound) in computed {
        result = operations::combined(b, &node.name, of, &result, &bound)?;
    }
    Ok(result)
}

/// `Mean` of any number of operands.
fn mean(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let first = (0..node.inputs.len()).find_map(|i| live(node, i).ok().map(|x| (i, x.clone())));
    let (at, mut result) = first.ok_or("expected inputs, found nothing")?;
    for i in (0..node.inputs.len()).filter(|&i| i != at) {
        let (x, y) = (Operand::Live(&result), operand(node, i)?);
        result = elementwise::arithmetic(b, &node.name, Arithmetic::Add, x, y)?;
    }
    let share = 1.0 / node.inputs.len() as f64;
    b.scale(&node.name, &result, &[share], &[0.0])
}

fn compare(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let comparison = match node.op() {
        "Equal" => Comparison::Equal,
        "Greater" => Comparison::Greater,
        "GreaterOrEqual" => Comparison::GreaterOrEqual,
        "Less" => Comparison::Less,
        _ => Comparison::LessOrEqual,
    };
    let (x, y) = (operand(node, 0)?, operand(node, 1)?);
    elementwise::compared(b, &node.name, comparison, x, y)
}

/// `And`, `Or` or `Xor` of truth values, which are 1 or 0.
fn logic(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, y) = (operand(node, 0)?, operand(node, 1)?);
    let of = match node.op() {
        "And" => Arithmetic::Multiply,
        "Or" => Arithmetic::Maximum,
        _ => {
            return elementwise::compared(b, &node.name, Comparison::NotEqual, x, y);
        }
    };
    let truth = elementwise::arithmetic(b, &node.name, of, x, y)?;
    Ok(Live {
        kind: Element::Bool,
        ..truth
    })
}

fn choose(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let condition = operand(node, 0)?;
    let (x, y) = (operand(node, 1)?, operand(node, 2)?);
    let chosen = elementwise::chosen(b, &node.name, condition, x, y)?;
    let kind = |o: Operand<'_>| match o {
        Operand::Live(x) => x.kind,
        Operand::Constant(c) => c.kind,
    };
    Ok(Live {
        kind: kind(x),
        ..chosen
    })
}

/// Builds functions that the graph has no operation for, such as `Softsign`, from operations that
/// it has.
fn function(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, name) = (live(node, 0)?.clone(), &node.name);
    let float = |key: &str, default: f64| node.float(key, default);
    match node.op() {
        "Ceil" => {
            let negative = b.scale(name, &x, &[-1.0], &[0.0])?;
            let floor = math(b, name, &negative, Math::Floor)?;
            b.scale(name, &floor, &[-1.0], &[0.0])
        }
        "Sign" => elementwise::sign(b, name, &x),
        "Softsign" => {
            let size = math(b, name, &x, Math::Abs)?;
            let divisor = b.scale(name, &size, &[1.0], &[1.0])?;
            operations::combined(b, name, Arithmetic::Divide, &x, &divisor)
        }
        "Celu" => {
            let alpha = float("alpha", 1.0);
            let inner = b.scale(name, &x, &[1.0 / alpha], &[0.0])?;
            let elu = Activation::Elu {
                alpha: Float::new(1.0),
                gamma: Float::new(1.0),
            };
            let y = b.activation(name, &inner, elu)?;
            b.scale(name, &y, &[alpha], &[0.0])
        }
        "ThresholdedRelu" => {
            let shifted = b.scale(name, &x, &[1.0], &[-float("alpha", 1.0)])?;
            let above = math(b, name, &shifted, Math::Above)?;
            operations::combined(b, name, Arithmetic::Multiply, &x, &above)
        }
        _ => shrink(b, node, &x),
    }
}

/// `Shrink`: x − bias above lambda, x + bias below −lambda, else 0.
fn shrink(b: &mut Builder, node: &OnnxNode<'_>, x: &Live) -> Result<Live, String> {
    let (lambda, bias) = (node.float("lambd", 0.5), node.float("bias", 0.0));
    let mut part = |sign: f64| {
        let name = &node.name;
        let beyond = b.scale(name, x, &[sign], &[-lambda])?;
        let mask = math(b, name, &beyond, Math::Above)?;
        let moved = b.scale(name, x, &[1.0], &[-sign * bias])?;
        operations::combined(b, name, Arithmetic::Multiply, &moved, &mask)
    };
    let (above, below) = (part(1.0)?, part(-1.0)?);
    operations::combined(b, &node.name, Arithmetic::Add, &above, &below)
}

/// Returns the sizes that the constant input `i` states. The number of records counts as 1.
fn sizes_of(node: &OnnxNode<'_>, i: usize, what: &str) -> Result<Vec<usize>, String> {
    let c = node.needed(i, what)?;
    let Data::Ints(list) = &c.data else {
        return Err(format!("expected {what} of integers"));
    };
    let size = |n: &Int| match *n {
        Int::Records => Ok(1),
        Int::Known(n) => usize::try_from(n).map_err(|_| format!("expected {what}, found {n}")),
    };
    list.iter().map(size).collect()
}

fn expand(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, asked) = (live(node, 0)?, sizes_of(node, 1, "a shape")?);
    let sizes = together(&x.whole(), &asked)
        .ok_or_else(|| format!("{} does not expand to {asked:?}", x.shown()))?;
    operations::expanded(b, &node.name, x, &sizes)
}

fn tile(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let mut x = live(node, 0)?.clone();
    let mut repeats = sizes_of(node, 1, "repeats")?;
    if repeats.len() != x.rank() {
        return Err(format!(
            "expected {} repeats, found {}",
            x.rank(),
            repeats.len()
        ));
    }
    if x.records.is_some_and(|r| repeats.remove(r) != 1) {
        return Err("records cannot be repeated".into());
    }
    for (a, repeat) in repeats.into_iter().enumerate() {
        x = operations::repeated(b, &node.name, &x, a, repeat)?;
    }
    Ok(x)
}

fn cumulated(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let along = node.needed(1, "an axis")?.integers()?;
    let &[along] = &along[..] else {
        return Err(format!("expected one axis, found {}", along.len()));
    };
    let a = inner_axis(along, x)?;
    let (exclusive, reverse) = (node.int("exclusive", 0) != 0, node.int("reverse", 0) != 0);
    operations::cumulated(b, &node.name, x, a, exclusive, reverse)
}

/// `Trilu`: keeps the upper or lower triangle of each matrix, and sets the other elements to 0.
fn triangle(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let &[.., rows, cols] = &x.dims[..] else {
        return Err(format!("expected matrices, found {}", x.shown()));
    };
    let diagonal = match node.constant(1, "a diagonal")? {
        Some(c) => c.integers()?.first().copied().unwrap_or(0),
        None => 0,
    };
    let upper = node.int("upper", 1) != 0;
    let places = (0..rows as i64).flat_map(|i| (0..cols as i64).map(move |j| j - i));
    let stays = |d: i64| if upper { d >= diagonal } else { d <= diagonal };
    let mask = places.map(|d| if stays(d) { 1.0 } else { 0.0 }).collect();
    let mask = ConstantTensor::floats(vec![rows, cols], mask);
    operations::with_constant(b, &node.name, Arithmetic::Multiply, x, &mask, false)
}

/// `OneHot`: each index becomes `depth` numbers along a new axis: `on` at the index, `off`
/// elsewhere.
fn one_hot(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let depth = node.needed(1, "a depth")?.number()?;
    let values = node.needed(2, "values")?;
    let &[off, on] = &values.numbers()?[..] else {
        return Err(format!("expected two values, found {}", values.len()));
    };
    let (x, axis) = (live(node, 0)?, node.int("axis", -1));
    let x = elementwise::from_front(b, &node.name, x, depth)?;
    let hot = elementwise::one_hot(b, &node.name, &x, (axis, depth), [off, on])?;
    Ok(Live {
        kind: values.kind,
        ..hot
    })
}

/// Returns the axes of a reduction. A node without `axes` reduces all axes, or none with
/// `noop_with_empty_axes`. Reducing all axes is an error if one of them is the axis of the records.
fn reduced_axes(node: &OnnxNode<'_>, x: &Live) -> Result<Vec<usize>, String> {
    match node.ints_of("axes", 1)?.filter(|a| !a.is_empty()) {
        Some(axes) => inner_axes(&axes, x),
        None if node.int("noop_with_empty_axes", 0) != 0 => Ok(Vec::new()),
        None if x.records.is_none() => Ok((0..x.dims.len()).collect()),
        None => Err("axes: expected some, found none: all of them would mix records".into()),
    }
}

/// Builds `ReduceMin`, and the reductions to norms and to logarithms of sums, from sums and maxima.
fn reduce(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, name) = (live(node, 0)?, &node.name);
    let (axes, keep) = (reduced_axes(node, x)?, node.int("keepdims", 1) != 0);
    let none = axes.is_empty();
    let sum = |b: &mut Builder, of: &Live| match none {
        true => Ok(of.clone()),
        false => operations::reduce(b, name, of, axes.clone(), Reduction::Sum, keep),
    };
    match node.op() {
        "ReduceMin" => {
            let negative = b.scale(name, x, &[-1.0], &[0.0])?;
            let most = match none {
                true => negative,
                false => operations::reduce(b, name, &negative, axes, Reduction::Max, keep)?,
            };
            b.scale(name, &most, &[-1.0], &[0.0])
        }
        "ReduceL1" => {
            let sizes = math(b, name, x, Math::Abs)?;
            sum(b, &sizes)
        }
        "ReduceSumSquare" | "ReduceL2" => {
            let squares = power(b, name, x, 2.0)?;
            let sum = sum(b, &squares)?;
            match node.op() {
                "ReduceL2" => math(b, name, &sum, Math::Sqrt),
                _ => Ok(sum),
            }
        }
        "ReduceLogSum" => {
            let sum = sum(b, x)?;
            math(b, name, &sum, Math::Log)
        }
        _ if none => Ok(x.clone()),
        _ => {
            // ln Σ eˣ = m + ln Σ eˣ⁻ᵐ, where m is the largest x, so that no power overflows.
            let most = operations::reduce(b, name, x, axes.clone(), Reduction::Max, true)?;
            let less = operations::combined(b, name, Arithmetic::Subtract, x, &most)?;
            let exponentials = math(b, name, &less, Math::Exp)?;
            let sum = sum(b, &exponentials)?;
            let log = math(b, name, &sum, Math::Log)?;
            let most = log.with_value(most.value);
            operations::combined(b, name, Arithmetic::Add, &log, &most)
        }
    }
}

/// Returns the axes of a normalization: the attribute `axis` and all axes behind it.
fn last_axes(node: &OnnxNode<'_>, x: &Live) -> Result<Vec<usize>, String> {
    let first = axis(node.int("axis", -1), x.rank())?;
    let all: Vec<i64> = (first as i64..x.rank() as i64).collect();
    inner_axes(&all, x)
}

/// `LayerNormalization`: the normalized tensor and the mean. If the node has a third output, also
/// the reciprocal of the standard deviation.
pub(super) fn layer_norm(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let (x, epsilon) = (live(node, 0)?, node.float("epsilon", 1e-5));
    let axes = last_axes(node, x)?;
    let found = normalise::of_mean_and_variance(b, &node.name, x, &axes, epsilon)?;
    let y = scaled_by(b, node, &found.result, 1)?;
    let mut all = vec![y, found.mean];
    if node.gives(2) {
        all.push(math(b, &node.name, &found.deviation, Math::Reciprocal)?);
    }
    Ok(all.into_iter().map(ModelValue::Live).collect())
}

/// Multiplies x by input `i` and adds input `i + 1` of the node. A missing input changes nothing.
fn scaled_by(b: &mut Builder, node: &OnnxNode<'_>, x: &Live, i: usize) -> Result<Live, String> {
    let constants = [i, i + 1].map(|i| !matches!(node.input(i), Some(ModelValue::Live(_))));
    if constants == [true, true] {
        let (scale, bias) = (
            node.constant(i, "a scale")?,
            node.constant(i + 1, "a bias")?,
        );
        return normalise::affine(b, &node.name, x, scale.as_deref(), bias.as_deref());
    }
    let mut y = x.clone();
    for (i, of) in [(i, Arithmetic::Multiply), (i + 1, Arithmetic::Add)] {
        if node.input(i).is_some() {
            y = elementwise::arithmetic(b, &node.name, of, Operand::Live(&y), operand(node, i)?)?;
        }
    }
    Ok(y)
}

/// Builds trigonometric and hyperbolic functions from exp, log, sin, cos and roots.
fn trigonometry(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, name) = (live(node, 0)?, &*node.name);
    match node.op() {
        "Tan" => {
            let (sine, cosine) = (math(b, name, x, Math::Sin)?, math(b, name, x, Math::Cos)?);
            operations::combined(b, name, Arithmetic::Divide, &sine, &cosine)
        }
        op @ ("Sinh" | "Cosh") => {
            let negative = b.scale(name, x, &[-1.0], &[0.0])?;
            let up = math(b, name, x, Math::Exp)?;
            let down = math(b, name, &negative, Math::Exp)?;
            let of = match op {
                "Sinh" => Arithmetic::Subtract,
                _ => Arithmetic::Add,
            };
            let both = operations::combined(b, name, of, &up, &down)?;
            b.scale(name, &both, &[0.5], &[0.0])
        }
        op @ ("Asinh" | "Acosh") => {
            // asinh x is ln(|x| + √(x² + 1)) with the sign of x. acosh x is ln(x + √(x² − 1)).
            let one = if op == "Asinh" { 1.0 } else { -1.0 };
            let square = power(b, name, x, 2.0)?;
            let shifted = b.scale(name, &square, &[1.0], &[one])?;
            let root = math(b, name, &shifted, Math::Sqrt)?;
            let from = match op {
                "Asinh" => math(b, name, x, Math::Abs)?,
                _ => x.clone(),
            };
            let sum = operations::combined(b, name, Arithmetic::Add, &from, &root)?;
            let y = math(b, name, &sum, Math::Log)?;
            if op == "Acosh" {
                return Ok(y);
            }
            let sign = elementwise::sign(b, name, x)?;
            operations::combined(b, name, Arithmetic::Multiply, &y, &sign)
        }
        "Atanh" => {
            let above = b.scale(name, x, &[1.0], &[1.0])?;
            let below = b.scale(name, x, &[-1.0], &[1.0])?;
            let quotient = operations::combined(b, name, Arithmetic::Divide, &above, &below)?;
            let y = math(b, name, &quotient, Math::Log)?;
            b.scale(name, &y, &[0.5], &[0.0])
        }
        "Atan" => arc_tangent(b, name, x),
        op => {
            // asin x = 2 · atan(x / (1 + √(1 − x²))), and acos x = π/2 − asin x.
            let square = power(b, name, x, 2.0)?;
            let rest = b.scale(name, &square, &[-1.0], &[1.0])?;
            let root = math(b, name, &rest, Math::Sqrt)?;
            let divisor = b.scale(name, &root, &[1.0], &[1.0])?;
            let half = operations::combined(b, name, Arithmetic::Divide, x, &divisor)?;
            let y = arc_tangent(b, name, &half)?;
            match op {
                "Asin" => b.scale(name, &y, &[2.0], &[0.0]),
                _ => b.scale(name, &y, &[-2.0], &[std::f64::consts::FRAC_PI_2]),
            }
        }
    }
}

/// The arc tangent of x. The formula atan x = 2 · atan(x / (1 + √(1 + x²))) is applied twice. The
/// remaining arguments are at most tan(π/8), and a power series computes their arc tangent.
fn arc_tangent(b: &mut Builder, name: &str, x: &Live) -> Result<Live, String> {
    // Larger numbers have squares that f32 cannot hold. The tangent of π/2 − 1e-9 is 1e9.
    let most = Activation::Clip {
        low: Float::new(-1e9),
        high: Float::new(1e9),
    };
    let mut half = b.activation(name, x, most)?;
    for _ in 0..2 {
        let square = power(b, name, &half, 2.0)?;
        let sum = b.scale(name, &square, &[1.0], &[1.0])?;
        let root = math(b, name, &sum, Math::Sqrt)?;
        let divisor = b.scale(name, &root, &[1.0], &[1.0])?;
        half = operations::combined(b, name, Arithmetic::Divide, &half, &divisor)?;
    }
    let square = power(b, name, &half, 2.0)?;
    let terms = [17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0];
    // Horner's scheme: each step multiplies the sum by −x² and adds the next coefficient.
    let mut sum = b.scale(name, &square, &[0.0], &[1.0 / 17.0])?;
    for pair in terms.windows(2) {
        let product = operations::combined(b, name, Arithmetic::Multiply, &sum, &square)?;
        sum = b.scale(name, &product, &[-1.0], &[1.0 / pair[1]])?;
    }
    let y = operations::combined(b, name, Arithmetic::Multiply, &sum, &half)?;
    b.scale(name, &y, &[4.0], &[0.0])
}

fn root_mean_square(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, epsilon) = (live(node, 0)?, node.float("epsilon", 1e-5));
    let axes = last_axes(node, x)?;
    let y = normalise::by_root_mean_square(b, &node.name, x, &axes, epsilon)?;
    scaled_by(b, node, &y, 1)
}

fn mean_variance(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let axes = node.ints("axes").unwrap_or(&[0, 2, 3]);
    let axes = inner_axes(axes, x)?;
    normalise::by_mean_and_variance(b, &node.name, x, &axes, 1e-9)
}

/// Returns input `i`, a constant with one number for each channel. Its sizes become [channels, 1,
/// …], so that it is broadcast over the pixels.
fn of_channels(
    node: &OnnxNode<'_>,
    i: usize,
    what: &str,
    (channels, rank): (usize, usize),
) -> Result<ConstantTensor, String> {
    let c = node.needed(i, what)?;
    if c.len() != channels {
        return Err(format!(
            "expected {what} of {channels} channels, found {}",
            c.len()
        ));
    }
    Ok(c.with_dims([vec![channels], vec![1; rank - 1]].concat()))
}

fn instance_norm(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, epsilon) = (live(node, 0)?, node.float("epsilon", 1e-5));
    let rank = x.dims.len();
    if rank < 2 {
        return Err(format!("expected an image, found {}", x.shown()));
    }
    let axes: Vec<usize> = (1..rank).collect();
    let y = normalise::by_mean_and_variance(b, &node.name, x, &axes, epsilon)?;
    let sizes = (x.dims[0], rank);
    let (scale, bias) = (
        of_channels(node, 1, "a scale", sizes)?,
        of_channels(node, 2, "a bias", sizes)?,
    );
    normalise::affine(b, &node.name, &y, Some(&scale), Some(&bias))
}

fn group_norm(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, epsilon) = (live(node, 0)?, node.float("epsilon", 1e-5));
    let groups = usize::try_from(node.int("num_groups", 0)).unwrap_or(0);
    let channels = x.dims.first().copied().unwrap_or(0);
    if groups == 0 || channels % groups != 0 {
        return Err(format!(
            "num_groups: {groups} does not divide {channels} channels"
        ));
    }
    let grouped = x.with_dims(vec![groups, x.len() / groups]);
    let y = normalise::by_mean_and_variance(b, &node.name, &grouped, &[1], epsilon)?;
    let y = y.with_dims(x.dims.clone());
    // Before operation set 21, scale and bias have a number for each group. Since then they have a
    // number for each channel.
    let list = |i: usize, what: &str| -> Result<ConstantTensor, String> {
        let c = node.needed(i, what)?;
        let each = channels / c.len().max(1);
        if c.len() * each != channels {
            return Err(format!(
                "expected {what} of {channels} channels, found {}",
                c.len()
            ));
        }
        let at: Vec<usize> = (0..channels).map(|i| i / each).collect();
        Ok(c.pick([vec![channels], vec![1; x.dims.len() - 1]].concat(), &at))
    };
    let (scale, bias) = (list(1, "a scale")?, list(2, "a bias")?);
    normalise::affine(b, &node.name, &y, Some(&scale), Some(&bias))
}

/// `LRN`: x / (bias + alpha / size · s)^beta. Here s is the sum of the squares of `size`
/// neighbouring channels.
fn local_response(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, name) = (live(node, 0)?, &node.name);
    let size = usize::try_from(node.int("size", 0)).unwrap_or(0);
    let channels = x.dims.first().copied().unwrap_or(0);
    if size == 0 || channels == 0 {
        return Err("size: expected a number of channels above 0".into());
    }
    let share = node.float("alpha", 1e-4) / size as f64;
    let taps: Vec<Vec<Tap>> = (0..channels)
        .map(|c| {
            let first = c.saturating_sub((size - 1) / 2);
            let last = (c + size / 2).min(channels - 1);
            (first..=last).map(|at| Tap { at, weight: share }).collect()
        })
        .collect();
    let squares = power(b, name, x, 2.0)?;
    let sums = resample::along(b, name, &squares, 0, &taps)?;
    let shifted = b.scale(name, &sums, &[1.0], &[node.float("bias", 1.0)])?;
    let divisor = power(b, name, &shifted, node.float("beta", 0.75))?;
    operations::combined(b, name, Arithmetic::Divide, x, &divisor)
}

/// The scales and zero points of a quantized tensor. Each list has one number for all elements, or
/// one for each element.
struct Steps {
    scales: Vec<f64>,
    zeros: Vec<f64>,
    kind: Element,
}

impl Steps {
    fn of(node: &OnnxNode<'_>, x: &Live) -> Result<Steps, String> {
        let scale = node.needed(1, "a scale")?;
        let zero = node.constant(2, "a zero point")?;
        let (numbers, count) = (scale.numbers()?, scale.len());
        let zeros = zero
            .as_deref()
            .map_or(Ok(vec![0.0; count]), |z| z.numbers())?;
        if zeros.len() != count {
            return Err("expected as many zero points as scales".into());
        }
        let axis = node.int("axis", 1);
        let of = fold::scale_of(&x.whole(), &scale, axis, node.int("block_size", 0))?;
        let each = |list: Vec<f64>| match list[..] {
            [one] => vec![one],
            _ => of.iter().map(|&i| list[i]).collect(),
        };
        let kind = match (zero, node.int("output_dtype", 0)) {
            (Some(zero), _) => zero.kind,
            (None, 0) => Element::U8,
            (None, code) => {
                tensor::element(code).ok_or("output_dtype: expected a type of integers")?
            }
        };
        Ok(Steps {
            scales: each(numbers),
            zeros: each(zeros),
            kind,
        })
    }
}

/// `QuantizeLinear`: integers, which are computed as floats with whole numbers.
fn quantize(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    if let Some(ModelValue::Live(_)) = node.input(1) {
        return quantised::by_computed_scale(b, node);
    }
    let (x, name) = (live(node, 0)?, &node.name);
    let step = Steps::of(node, x)?;
    if let Some(whole) = integers::quantized(b, node)? {
        return Ok(Live {
            kind: step.kind,
            ..whole
        });
    }
    let Some((low, high)) = step.kind.range().filter(|&(low, _)| low >= -(1 << 15)) else {
        return Err(format!(
            "expected a zero point of at most 16 bits, found {}",
            step.kind.name()
        ));
    };
    let factors: Vec<f64> = step.scales.iter().map(|s| 1.0 / s).collect();
    let steps = b.scale(name, x, &factors, &[0.0])?;
    let whole = math(b, name, &steps, Math::Round)?;
    let moved = b.scale(name, &whole, &[1.0], &step.zeros)?;
    let y = b.activation(name, &moved, operations::clip(low as f64, high as f64))?;
    Ok(Live {
        kind: step.kind,
        ..y
    })
}

/// `DequantizeLinear` of integers that are held as floats.
fn dequantize(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let step = Steps::of(node, x)?;
    let moved = step.scales.iter().zip(&step.zeros).map(|(s, z)| -z * s);
    let y = b.scale(&node.name, x, &step.scales, &moved.collect::<Vec<_>>())?;
    Ok(Live {
        kind: Element::F32,
        ..y
    })
}

/// `Einsum` with one or two operands.
fn einsum(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let equation = Equation::parse(node.text("equation", ""))?;
    if node.inputs.len() == 1 {
        return products::summed_alone(b, &node.name, &equation, live(node, 0)?);
    }
    let first = (0..2).find_map(|i| live(node, i).ok()).cloned();
    let first = first.ok_or("expected two operands, found nothing")?;
    if first.records.is_some() {
        return Err(format!(
            "equation: it would mix records of {}: set all sizes for one record",
            first.shown()
        ));
    }
    let both = [0, 1].map(|i| match operand(node, i)? {
        Operand::Live(x) => Ok(x.clone()),
        Operand::Constant(c) => elementwise::constant_value(b, &node.name, &first, c),
    });
    let [x, y]: [Result<Live, String>; 2] = both;
    products::summed(b, &node.name, &equation, [&x?, &y?])
}

/// `Gather` of rows of a constant table by indices that are computed from the record. Each index
/// becomes a one-hot vector, and the product of this vector and the table is the row.
pub(super) fn looked_up(
    b: &mut Builder,
    node: &OnnxNode<'_>,
    table: &ConstantTensor,
) -> Result<Live, String> {
    let at = live(node, 1)?.clone();
    let &[rows, ref rest @ ..] = &table.dims[..] else {
        return Err("expected rows of numbers, found one number".into());
    };
    if node.int("axis", 0) != 0 {
        return Err("axis: expected 0 with indices that are computed from the record".into());
    }
    if rows.saturating_mul(at.len()) > MOST_PLACES {
        return Err(format!(
            "{} indices of {rows} rows are too many: at most {MOST_PLACES} pairs are supported",
            at.len()
        ));
    }
    let at = elementwise::from_front(b, &node.name, &at, rows as f64)?;
    let hot = elementwise::one_hot(b, &node.name, &at, (-1, rows as f64), [0.0, 1.0])?;
    let width: usize = rest.iter().product();
    let weights = fold::transpose(&table.with_dims(vec![rows, width]), &[1, 0]);
    let hot = Live {
        kind: Element::F32,
        ..hot
    };
    let y = operations::product(b, &node.name, &hot, weights.numbers()?, width)?;
    Ok(y.spliced(y.dims.len() - 1, rest))
}

/// The most pairs of an index and a table row that a `Gather` may compare for one record.
const MOST_PLACES: usize = 1 << 22;
