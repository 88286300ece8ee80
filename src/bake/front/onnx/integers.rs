//! Operations between `DequantizeLinear` and `QuantizeLinear` of 8-bit integers. ONNX defines them
//! on real numbers, but ONNX Runtime computes them on integers. mortonnet does so too.
//!
//! If the inputs of an operation are integers, the operation is also built on the integers. The
//! `QuantizeLinear` behind it rounds the integer sums. The operation on real numbers is dropped,
//! unless another node reads its result.

use super::node::{OnnxNode, live};
use super::ops;
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Data, Element, Scales};
use crate::bake::front::elementwise::{Factor, math};
use crate::bake::front::integers::{
    self, Limits, Origin, Steps, Summand, Sums, Whole, WholeOperand,
};
use crate::bake::front::operations;
use crate::bake::front::value::{Live, ModelValue, inner_axis};
use crate::ir::op::{Math, Op, Pool};
use std::rc::Rc;

/// 2²⁴, up to which an f32 holds every whole number.
const EXACT: f64 = 16_777_216.0;

/// Notes in `b.known` that a node's result stands for 8-bit integers, or for sums of them. If the
/// operation has a form on integers, builds that too. Does nothing if the build computes integers
/// as floats.
pub(super) fn note(
    b: &mut Builder,
    node: &OnnxNode<'_>,
    outputs: &[ModelValue],
) -> Result<(), String> {
    let (true, [ModelValue::Live(y)]) = (b.known.on, outputs) else {
        return Ok(());
    };
    match node.op() {
        "DequantizeLinear" => {
            if let Some(whole) = dequantized(b, node)? {
                b.known.whole.insert(y.value, whole);
            }
        }
        "Relu" => {
            if let Some(sums) = b.known.sums.get(&live(node, 0)?.value).cloned() {
                b.known.sums.insert(y.value, Sums { relu: true, ..sums });
            }
        }
        op => {
            let of = match op {
                "Conv" | "Gemm" | "MatMul" => layer(b, node)?,
                "GlobalAveragePool" => mean(b, node)?,
                "AveragePool" => means(b, node)?,
                "Add" => both(b, node, y)?,
                "Mul" => multiplied(b, node)?,
                "LeakyRelu" => {
                    let slope = node.float("alpha", 0.01) as f32;
                    whole(b, node, 0).map(|x| Origin::Sloped(x, slope))
                }
                "Concat" => joined(b, node),
                _ => None,
            };
            if let Some(of) = of {
                b.known.sums.insert(y.value, Sums { of, relu: false });
            }
        }
    }
    Ok(())
}

/// Returns the quantization that `QuantizeLinear` or `DequantizeLinear` states. `None` unless it
/// has a single scale and 8-bit integers.
fn steps(node: &OnnxNode<'_>) -> Result<Option<Steps>, String> {
    let (scale, zero) = (
        node.needed(1, "a scale")?,
        node.constant(2, "a zero point")?,
    );
    let Some(zero) = zero.filter(|z| z.len() == 1 && scale.len() == 1) else {
        return Ok(None);
    };
    let Some(range @ ((0, 255) | (-128, 127))) = zero.kind.range() else {
        return Ok(None);
    };
    let (scale, zero) = (scale.number()? as f32, zero.number()?);
    let right = scale.is_finite() && scale > 0.0;
    Ok(right.then_some(Steps {
        scale,
        zero: zero as i32,
        low: range.0 as i32,
        high: range.1 as i32,
    }))
}

fn dequantized(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Option<Whole>, String> {
    let (Some(steps), x) = (steps(node)?, live(node, 0)?) else {
        return Ok(None);
    };
    let numbers = match steps.zero {
        0 => x.clone(),
        zero => b.scale(&node.name, x, &[1.0], &[-f64::from(zero)])?,
    };
    let numbers = Live {
        kind: Element::F32,
        ..numbers
    };
    let scale = steps.scale;
    Ok(Some(Whole { numbers, scale }))
}

/// `QuantizeLinear` computed in integers. `None` unless it has one scale for 8-bit integers, and
/// integer arithmetic is on.
pub(super) fn quantized(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Option<Live>, String> {
    let Some(to) = steps(node)?.filter(|_| b.known.on) else {
        return Ok(None);
    };
    let (x, name) = (live(node, 0)?, &node.name);
    let mut limits = to.limits();
    let known = b.known.sums.get(&x.value).cloned();
    if known.as_ref().is_some_and(|k| k.relu) {
        limits = limits.and(Limits {
            low: 0,
            high: i32::MAX,
        });
    }
    let whole = match known.map(|k| k.of) {
        Some(of) => of_sums(b, name, x, of, to, limits)?,
        // The operand's integers are rescaled directly.
        None => match whole(b, node, 0) {
            Some(Whole { numbers, scale }) => {
                integers::requantised(b, name, &numbers, &[(scale / to.scale).into()], limits)?
            }
            None => integers::requantised(b, name, x, &[(1.0 / to.scale).into()], limits)?,
        },
    };
    let whole = match to.zero {
        0 => whole,
        zero => b.scale(name, &whole, &[1.0], &[zero.into()])?,
    };
    Ok(Some(shaped(&whole, x)))
}

/// Returns the whole numbers for the real result `x` of the operation `of`, in steps of the scale
/// of `to`.
fn of_sums(
    b: &mut Builder,
    name: &str,
    x: &Live,
    of: Origin,
    to: Steps,
    limits: Limits,
) -> Result<Live, String> {
    match of {
        Origin::Products {
            sums,
            scales,
            count,
        } => {
            let divisor = to.scale * count as f32;
            let factors: Vec<f64> = scales.iter().map(|s| (s / divisor).into()).collect();
            integers::requantised(b, name, &sums, &factors, limits)
        }
        Origin::Means { sums, scales } => {
            let factors: Vec<f64> = scales.iter().map(|s| (s / to.scale).into()).collect();
            // A factor that is a power of 2 gives halves. ONNX Runtime adds the zero point before
            // it rounds a half to the even integer.
            let halves = factors.iter().all(|&f| libm::frexp(f).0 == 0.5);
            let moved = if halves { to.zero & 1 } else { 0 };
            let limits = Limits {
                low: limits.low + moved,
                high: limits.high.saturating_add(moved),
            };
            let moved = f64::from(moved);
            let whole = integers::rounded(b, name, &sums, &factors, moved, limits)?;
            match moved == 0.0 {
                true => Ok(whole),
                false => b.scale(name, &whole, &[1.0], &[-moved]),
            }
        }
        Origin::Both(operands) if integers::adds([0, 1].map(|i| operands[i].scale / to.scale)) => {
            let summands = [0, 1].map(|i| Summand {
                numbers: operands[i].numbers.operand(),
                ratio: operands[i].scale / to.scale,
            });
            integers::sum(b, name, summands, limits)
        }
        Origin::Both(_) => integers::requantised(b, name, x, &[(1.0 / to.scale).into()], limits),
        Origin::Sloped(Whole { numbers, scale }, slope) => {
            let factors = [scale / to.scale, scale * slope / to.scale];
            integers::sloped(b, name, &numbers, factors, limits)
        }
        Origin::Joined(parts, axis) => {
            let mut moved = Vec::new();
            for Whole { numbers, scale } in parts {
                let factor = f64::from(scale / to.scale);
                moved.push(integers::requantised(b, name, &numbers, &[factor], limits)?);
            }
            operations::concat(b, name, &moved, axis)
        }
    }
}

/// Computes the operation of `node` on other inputs.
fn computed(
    b: &mut Builder,
    node: &OnnxNode<'_>,
    inputs: Vec<Option<ModelValue>>,
) -> Result<Option<Live>, String> {
    let node = OnnxNode {
        inputs,
        name: node.name.clone(),
        tensors: node.tensors.clone(),
        ..*node
    };
    match &ops::plain(b, &node)?[..] {
        [ModelValue::Live(y)] => Ok(Some(y.clone())),
        _ => Ok(None),
    }
}

/// Builds the integer sums of a convolution or matrix product. `None` if an operand is not known as
/// integers.
fn layer(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Option<Origin>, String> {
    let Some(Whole { numbers, scale }) = whole(b, node, 0) else {
        return Ok(None);
    };
    let (Some(ModelValue::Constant(weights)), biases) = (node.input(1), node.input(2)) else {
        return Ok(None);
    };
    let plain = ["alpha", "beta"]
        .iter()
        .all(|name| node.float(name, 1.0) == 1.0);
    let Some((whole_weights, scales)) = integers_of(weights)?.filter(|_| plain) else {
        return Ok(None);
    };
    let channels = match node.op() {
        "Conv" => 0,
        _ if node.int("transB", 0) != 0 => 0,
        _ => weights.dims.len().saturating_sub(1),
    };
    // A vector's only axis is the axis of the sum.
    let along = weights.dims.len() > 1 && scales.axis == channels;
    if scales.list.len() > 1 && !along {
        return Ok(None);
    }
    let products: Vec<f32> = scales.list.iter().map(|&s| scale * s as f32).collect();
    let biases = match biases {
        None => None,
        Some(ModelValue::Constant(c)) => match integers_of(c)? {
            Some((whole, of)) if alike(&of.list, &products) => {
                Some(ModelValue::Constant(Rc::new(whole)))
            }
            _ => return Ok(None),
        },
        Some(_) => return Ok(None),
    };
    let whole = ModelValue::Constant(Rc::new(whole_weights));
    let inputs = vec![Some(ModelValue::Live(numbers)), Some(whole), biases];
    let Some(sums) = computed(b, node, inputs)? else {
        return Ok(None);
    };
    let outputs = products.len();
    let each = sums.len() / outputs.max(1);
    let scales = match (outputs, node.op()) {
        (1, _) => products,
        (_, "Conv") => products
            .iter()
            .flat_map(|&p| std::iter::repeat_n(p, each))
            .collect(),
        _ => products.repeat(each),
    };
    Ok(Some(Origin::Products {
        sums,
        scales,
        count: 1,
    }))
}

/// True if the biases' scales equal the scales of the sums, within a relative error of 1e-6.
fn alike(biases: &[f64], products: &[f32]) -> bool {
    let near = |(&b, &p): (&f64, &f32)| (b - f64::from(p)).abs() <= 1e-6 * b.abs();
    biases.len() == products.len() && biases.iter().zip(products).all(near)
}

/// Returns a constant's integers, each less its zero point, and their scales. `None` if the
/// constant was not dequantized from integers, or if an integer is too large for f32.
fn integers_of(c: &ConstantTensor) -> Result<Option<(ConstantTensor, Scales)>, String> {
    let Some(scales) = c.scales.clone() else {
        return Ok(None);
    };
    let behind: usize = c.dims.iter().skip(scales.axis + 1).product();
    let scale = |i: usize| scales.list[i / behind.max(1) % scales.list.len()];
    let numbers = c.numbers()?;
    let whole: Vec<f64> = numbers
        .iter()
        .enumerate()
        .map(|(i, x)| (x / scale(i)).round())
        .collect();
    if whole.iter().any(|q| q.abs() >= EXACT) {
        return Ok(None);
    }
    let mut constant = c.with_dims(c.dims.clone());
    constant.data = Data::Floats(whole);
    Ok(Some((constant, scales)))
}

/// Builds the integer sums over each channel of an image. The mean is the sum divided by the number
/// of pixels.
fn mean(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Option<Origin>, String> {
    let Some(Whole { numbers, scale }) = whole(b, node, 0) else {
        return Ok(None);
    };
    let Some(means) = computed(b, node, vec![Some(ModelValue::Live(numbers.clone()))])? else {
        return Ok(None);
    };
    let count = numbers.len() / means.len().max(1);
    // A mean times its element count is nearly the sum, so rounding gives the exact sum.
    let sums = b.scale(&node.name, &means, &[count as f64], &[0.0])?;
    let sums = math(b, &node.name, &sums, Math::Round)?;
    Ok(Some(Origin::Products {
        sums,
        scales: vec![scale],
        count,
    }))
}

/// Returns the whole numbers that input `i` stands for, in the input's present sizes. `None` if
/// they are not known.
fn whole(b: &Builder, node: &OnnxNode<'_>, i: usize) -> Option<Whole> {
    let x = live(node, i).ok()?;
    let found = b.known.whole.get(&x.value)?;
    Some(Whole {
        numbers: shaped(&found.numbers, x),
        scale: found.scale,
    })
}

/// Returns whole numbers with the sizes of the real tensor that they stand for.
fn shaped(numbers: &Live, like: &Live) -> Live {
    Live {
        dims: like.dims.clone(),
        records: like.records,
        ..numbers.clone()
    }
}

/// Returns the whole numbers of input `i`, which may be a constant with a single scale. `None` if
/// they are not known.
fn operand(b: &Builder, node: &OnnxNode<'_>, i: usize) -> Result<Option<WholeOperand>, String> {
    let Some(ModelValue::Constant(c)) = node.input(i) else {
        return Ok(whole(b, node, i).map(|x| WholeOperand {
            numbers: Factor::Live(x.numbers),
            scale: x.scale,
        }));
    };
    Ok(match integers_of(c)? {
        Some((numbers, of)) if of.list.len() == 1 => Some(WholeOperand {
            numbers: Factor::Constant(numbers),
            scale: of.list[0] as f32,
        }),
        _ => None,
    })
}

/// Notes a sum of two operands whose integers are known. `None` unless both have the sizes of the
/// result or are constants.
fn both(b: &Builder, node: &OnnxNode<'_>, y: &Live) -> Result<Option<Origin>, String> {
    let (Some(one), Some(other)) = (operand(b, node, 0)?, operand(b, node, 1)?) else {
        return Ok(None);
    };
    let same = |of: &WholeOperand| match &of.numbers {
        Factor::Live(x) => x.dims == y.dims,
        Factor::Constant(_) => true,
    };
    Ok((same(&one) && same(&other)).then_some(Origin::Both([one, other])))
}

/// Builds the product of two operands in integers. `None` if the integers of either are not known.
fn multiplied(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Option<Origin>, String> {
    let (Some(one), Some(other)) = (operand(b, node, 0)?, operand(b, node, 1)?) else {
        return Ok(None);
    };
    let scales = vec![one.scale * other.scale];
    let inputs = [one, other].map(|of| match of.numbers {
        Factor::Live(x) => Some(ModelValue::Live(x)),
        Factor::Constant(c) => Some(ModelValue::Constant(Rc::new(c))),
    });
    let products = computed(b, node, inputs.to_vec())?;
    Ok(products.map(|sums| Origin::Products {
        sums,
        scales,
        count: 1,
    }))
}

/// Builds the integer sums over each pooling window. A mean is the sum divided by the number of
/// elements in the window.
fn means(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Option<Origin>, String> {
    let image = node.ints("kernel_shape").is_some_and(|k| k.len() < 3);
    let Some(Whole { numbers, scale }) = whole(b, node, 0).filter(|_| image) else {
        return Ok(None);
    };
    let Some(means) = computed(b, node, vec![Some(ModelValue::Live(numbers.clone()))])? else {
        return Ok(None);
    };
    let mut counts = match b.draft.graph.nodes.last().map(|n| n.op) {
        Some(Op::Pool { kind, window }) => match kind {
            Pool::Mean => window.counts(numbers.standard(), means.standard()),
            _ if window.ceil => return Ok(None),
            _ => vec![(window.size.0 * window.size.1) as f64],
        },
        _ => return Ok(None),
    };
    if counts.iter().all(|&n| n == counts[0]) {
        counts.truncate(1);
    }
    if ![1, means.len()].contains(&counts.len()) {
        return Ok(None);
    }
    // A mean times its element count is nearly the sum, so rounding gives the exact sum.
    let sums = b.scale(&node.name, &means, &counts, &[0.0])?;
    let sums = math(b, &node.name, &sums, Math::Round)?;
    let scales = counts.iter().map(|&n| scale / n as f32).collect();
    Ok(Some(Origin::Means { sums, scales }))
}

/// Notes a concatenation of tensors whose integers are known. `None` if those of a tensor are not
/// known.
fn joined(b: &Builder, node: &OnnxNode<'_>) -> Option<Origin> {
    let parts: Option<Vec<Whole>> = (0..node.inputs.len()).map(|i| whole(b, node, i)).collect();
    let parts = parts?;
    let axis = inner_axis(node.int("axis", 1), &parts.first()?.numbers).ok()?;
    Some(Origin::Joined(parts, axis))
}
