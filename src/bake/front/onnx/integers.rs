//! Operations between `DequantizeLinear` and `QuantizeLinear` of 8-bit integers. ONNX computes real
//! numbers there. ONNX Runtime computes integers, which mortonnet does too: an operation whose
//! inputs are integers is also built on the integers, and a `QuantizeLinear` behind it rounds their
//! sums. Its real numbers are left out, unless another node reads them.

use super::node::{OnnxNode, live};
use super::ops;
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Data, Element, Scales};
use crate::bake::front::elementwise::{Operand, math};
use crate::bake::front::integers::{self, Limits, Of, Steps, Summand, Sums, Whole};
use crate::bake::front::value::{Live, ModelValue};
use crate::ir::op::Math;
use std::rc::Rc;

/// The largest integer that floats hold with all smaller ones.
const EXACT: f64 = 16_777_216.0;

/// Notes what is known of the result of a node, and builds the operation on integers.
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
                "Add" => both(b, node, y),
                _ => None,
            };
            if let Some(of) = of {
                b.known.sums.insert(y.value, Sums { of, relu: false });
            }
        }
    }
    Ok(())
}

/// The quantization that `QuantizeLinear` or `DequantizeLinear` states, if it is one scale for all
/// 8-bit integers.
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

/// `QuantizeLinear` of a value whose whole numbers are known. `None` for other values.
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
        Some(Of::Products {
            sums,
            scales,
            count,
        }) => {
            let divisor = to.scale * count as f32;
            let factors: Vec<f64> = scales.iter().map(|s| (s / divisor).into()).collect();
            integers::requantised(b, name, &sums, &factors, limits)?
        }
        Some(Of::Both(one, other))
            if integers::adds([one.scale / to.scale, other.scale / to.scale]) =>
        {
            let summand = |of: &'_ Whole| of.scale / to.scale;
            let summands = [&one, &other].map(|of| Summand {
                numbers: Operand::Live(&of.numbers),
                ratio: summand(of),
            });
            integers::sum(b, name, summands, limits)?
        }
        _ => integers::requantised(b, name, x, &[(1.0 / to.scale).into()], limits)?,
    };
    let whole = match to.zero {
        0 => whole,
        zero => b.scale(name, &whole, &[1.0], &[zero.into()])?,
    };
    Ok(Some(whole))
}

/// A node with these inputs, computed as any other.
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

/// The sums of a layer of integers. `None` if an operand has no integers.
fn layer(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Option<Of>, String> {
    let Ok(x) = live(node, 0) else {
        return Ok(None);
    };
    let Some(Whole { numbers, scale }) = b.known.whole.get(&x.value).cloned() else {
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
    // The only axis of a vector is that of the sum.
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
    Ok(Some(Of::Products {
        sums,
        scales,
        count: 1,
    }))
}

/// True if biases have the scales of the sums, or nearly.
fn alike(biases: &[f64], products: &[f32]) -> bool {
    let near = |(&b, &p): (&f64, &f32)| (b - f64::from(p)).abs() <= 1e-6 * b.abs();
    biases.len() == products.len() && biases.iter().zip(products).all(near)
}

/// The integers of a constant, each less its zero point, and their scales. `None` if it is none of
/// integers, or if floats do not hold them.
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

/// The sums over an image, whose count of pixels divides them.
fn mean(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Option<Of>, String> {
    let x = live(node, 0)?;
    let Some(Whole { numbers, scale }) = b.known.whole.get(&x.value).cloned() else {
        return Ok(None);
    };
    let Some(means) = computed(b, node, vec![Some(ModelValue::Live(numbers.clone()))])? else {
        return Ok(None);
    };
    let count = numbers.len() / means.len().max(1);
    // A mean times its count is nearly the sum.
    let sums = b.scale(&node.name, &means, &[count as f64], &[0.0])?;
    let sums = math(b, &node.name, &sums, Math::Round)?;
    Ok(Some(Of::Products {
        sums,
        scales: vec![scale],
        count,
    }))
}

/// The sum of two values of the same sizes.
fn both(b: &Builder, node: &OnnxNode<'_>, y: &Live) -> Option<Of> {
    let whole = |i: usize| {
        let x = live(node, i).ok()?;
        b.known.whole.get(&x.value).cloned()
    };
    let (one, other) = (whole(0)?, whole(1)?);
    let same = one.numbers.dims == y.dims && other.numbers.dims == y.dims;
    same.then_some(Of::Both(one, other))
}
