//! What is computed of constants alone.

use super::node::Node;
use super::{classify, ops, tensor};
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{Constant, Data, Element, Int, elements, repeated, together};
use crate::bake::front::fold::{
    argmax, concat, dequantize, gather, mapped, one, reduced, reshape, scale_of, sizes, slice,
    squeezed, transpose, two,
};
use crate::bake::front::value::{Live, Value, axis, standard};
use crate::ir::graph;
use std::rc::Rc;

/// The constants that a node of constants gives, one for each output. `left`: elements that they
/// may have together.
///
/// # Errors
/// What cannot be computed.
pub(super) fn fold(
    node: &Node<'_>,
    inputs: &[Option<Rc<Constant>>],
    left: usize,
) -> Result<Vec<Constant>, String> {
    let found = inputs.iter().flatten();
    match node.op() {
        // What other operations give has no more elements than what they read.
        "ConstantOfShape" => room(&sizes(&needed(inputs, 0)?.integers()?)?, left)?,
        "Expand" => {
            let to = sizes(&needed(inputs, 1)?.integers()?)?;
            room(
                &together(&needed(inputs, 0)?.dims, &to).unwrap_or_default(),
                left,
            )?;
        }
        "Tile" => room(&tiled(needed(inputs, 0)?, needed(inputs, 1)?)?, left)?,
        "Gather" => {
            let (data, at) = (needed(inputs, 0)?, needed(inputs, 1)?);
            let of = data
                .dims
                .get(axis(node.int("axis", 0), data.dims.len())?)
                .copied()
                .unwrap_or(1);
            room(&[data.len() / of.max(1), at.len()], left)?;
        }
        "MatMul" => {
            let last =
                |i: usize| needed(inputs, i).map(|c| c.dims.last().copied().unwrap_or(1).max(1));
            room(&[needed(inputs, 0)?.len() / last(0)?, last(1)?], left)?;
        }
        "Concat" => room(&[found.map(|c| c.len()).sum()], left)?,
        _ => {
            let all = found
                .map(|c| Some(c.dims.clone()))
                .reduce(|a, b| together(&a?, &b?))
                .flatten();
            room(&all.unwrap_or_default(), left)?;
        }
    }
    match node.op() {
        "Split" => split(node, inputs),
        _ if LIVE_ONLY.contains(&node.op()) || node.domain() == "ai.onnx.ml" => {
            through(node, inputs)
        }
        _ => folded(node, inputs).map(|c| vec![c]),
    }
}

/// Refuses sizes with more elements than `left`.
fn room(dims: &[usize], left: usize) -> Result<(), String> {
    match elements(dims).filter(|&n| n <= left) {
        Some(_) => Ok(()),
        None => Err(format!(
            "a constant of sizes {dims:?}: the constants that are computed of others may have \
             {left} more elements \
             together; store it as an initialiser, or make it smaller"
        )),
    }
}

fn needed(inputs: &[Option<Rc<Constant>>], i: usize) -> Result<&Constant, String> {
    let found = inputs.get(i).and_then(|c| c.as_deref());
    found.ok_or_else(|| format!("expected an input {i}, found nothing"))
}

/// Operations that are computed of constants by the same graph that computes them of values.
const LIVE_ONLY: [&str; 13] = [
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "LogSoftmax",
    "MaxPool",
    "PRelu",
    "Pad",
    "Softmax",
    "ZipMap",
    "Normalizer",
];

/// The constants that a graph of the one node gives of its first input, whose rows are its records.
fn through(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Vec<Constant>, String> {
    let x = needed(inputs, 0)?;
    let (Some((&records, dims)), true) = (x.dims.split_first(), x.kind.float()) else {
        return Err(format!(
            "of a constant of {} and sizes {:?} it is not computed",
            x.kind.name(),
            x.dims
        ));
    };
    let input = graph::Value {
        name: "constant".into(),
        shape: standard(dims),
    };
    let (mut b, _) = Builder::new(vec![input], None)?;
    let mut values: Vec<Option<Value>> = inputs
        .iter()
        .map(|i| i.clone().map(Value::Constant))
        .collect();
    values[0] = Some(Value::Live(Live {
        value: 0,
        dims: dims.to_vec(),
        kind: x.kind,
    }));
    let own = Node {
        proto: node.proto,
        name: node.name.clone(),
        inputs: values,
        version: node.version,
        tensors: node.tensors.clone(),
    };
    let given = match node.domain() {
        "ai.onnx.ml" => classify::apply(&mut b, &own)?,
        _ => ops::apply(&mut b, &own)?,
    };
    let (numbers, weights) = (x.numbers()?, b.draft.rounded());
    let constant = |value: Value| {
        let Value::Live(live) = value else {
            return Err("of constants alone it is not computed".to_string());
        };
        let mut graph = b.draft.graph.clone();
        graph.outputs = vec![live.value].into();
        let mut result = Vec::new();
        for row in 0..records {
            let row = numbers[row * numbers.len() / records..(row + 1) * numbers.len() / records]
                .to_vec();
            result.extend(
                graph
                    .evaluate(&weights, row, |_, _| ())
                    .swap_remove(live.value),
            );
        }
        let dims = [vec![records], live.dims].concat();
        Ok(Constant::rounded(x.kind, dims, result))
    };
    given.into_iter().map(constant).collect()
}

/// Parts along an axis.
fn split(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Vec<Constant>, String> {
    let x = needed(inputs, 0)?;
    let a = axis(node.int("axis", 0), x.dims.len())?;
    let parts = ops::parts(node, x.dims[a])?;
    let mut first = 0;
    let mut part = |n: usize| {
        let at = (first..first + n).map(|i| i as i64).collect();
        first += n;
        gather(x, &Constant::ints(vec![n], at), a as i64)
    };
    parts.into_iter().map(&mut part).collect()
}

/// The sizes of a constant that is repeated along its axes.
fn tiled(c: &Constant, repeats: &Constant) -> Result<Vec<usize>, String> {
    let repeats = sizes(&repeats.integers()?)?;
    if repeats.len() != c.dims.len() {
        return Err(format!(
            "expected {} repeats, found {}",
            c.dims.len(),
            repeats.len()
        ));
    }
    Ok(c.dims
        .iter()
        .zip(repeats)
        .map(|(d, r)| d.saturating_mul(r))
        .collect())
}

/// The one constant that a node of constants gives.
fn folded(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let op = node.op();
    let input = |i: usize| needed(inputs, i);
    match op {
        "Constant" => given(node),
        "ConstantOfShape" => {
            let dims = sizes(&input(0)?.integers()?)?;
            let n = elements(&dims).ok_or("more elements than can be read")?;
            let value = node
                .tensor("value")
                .map_or(Constant::floats(vec![1], vec![0.0]), |t| (*t).clone());
            match value.len() {
                1 => Ok(value.pick(dims, &vec![0; n])),
                found => Err(format!("value: expected one number, found {found}")),
            }
        }
        "Add" | "Sub" | "Mul" | "Div" | "Min" | "Max" | "Pow" | "Mod" | "Equal" | "Greater"
        | "Less" | "And" | "Or" | "Sum" => {
            let op = if op == "Mod" && node.int("fmod", 0) != 0 {
                "Fmod"
            } else {
                op
            };
            let mut result = input(0)?.clone();
            for i in 1..inputs.len() {
                result = two(op, &result, input(i)?)?;
            }
            Ok(result)
        }
        "Neg" | "Sqrt" | "Reciprocal" | "Exp" | "Log" | "Abs" | "Floor" | "Ceil" | "Not" => {
            one(op, input(0)?)
        }
        "Relu" if !input(0)?.kind.float() => one(op, input(0)?),
        "Relu" | "LeakyRelu" | "Elu" | "Selu" | "Gelu" | "HardSwish" | "Sigmoid"
        | "HardSigmoid" | "Tanh" => {
            let a = ops::activation(node)?;
            mapped(input(0)?, op, |x| a.apply(x))
        }
        "Clip" => {
            let mut result = input(0)?.clone();
            for (i, name, op) in [(1, "min", "Max"), (2, "max", "Min")] {
                let bound = match node.has(name) {
                    true => Some(Rc::new(
                        Constant::floats(vec![], vec![node.float(name, 0.0)]).cast(result.kind)?,
                    )),
                    false => inputs.get(i).cloned().flatten(),
                };
                if let Some(bound) = bound {
                    result = two(op, &result, &bound)?;
                }
            }
            Ok(result)
        }
        "Tile" => {
            let (c, dims) = (input(0)?, tiled(input(0)?, input(1)?)?);
            let n = elements(&dims).ok_or("more elements than can be read")?;
            let from = |mut i: usize| {
                let (mut at, mut stride) = (0, 1);
                for (&to, &of) in dims.iter().zip(&c.dims).rev() {
                    at += i % to % of * stride;
                    (i, stride) = (i / to, stride * of);
                }
                at
            };
            let at: Vec<usize> = (0..n).map(from).collect();
            Ok(c.pick(dims.clone(), &at))
        }
        "Identity" | "Dropout" => Ok(input(0)?.clone()),
        "Cast" => {
            let to = node.int("to", 0);
            let kind =
                tensor::element(to).ok_or_else(|| format!("numbers do not become type {to}"))?;
            input(0)?.cast(kind)
        }
        "Shape" => {
            let dims: Vec<i64> = input(0)?.dims.iter().map(|&d| d as i64).collect();
            part_of_shape(node, Constant::ints(vec![dims.len()], dims))
        }
        "Size" => Ok(Constant::ints(vec![], vec![input(0)?.len() as i64])),
        "Reshape" => {
            let c = input(0)?;
            let target = if node.version < 5 {
                node.ints("shape").map(<[i64]>::to_vec)
            } else {
                None
            };
            let target = target.map_or_else(|| input(1)?.integers(), Ok)?;
            reshape(c, &target, node.int("allowzero", 0) != 0)
        }
        "Flatten" => {
            let c = input(0)?;
            let rank = c.dims.len();
            let at = match node.int("axis", 1) {
                a if a == rank as i64 => rank,
                a => axis(a, rank)?,
            };
            let product = |d: &[usize]| d.iter().product();
            Ok(c.with_dims(vec![product(&c.dims[..at]), product(&c.dims[at..])]))
        }
        "Squeeze" | "Unsqueeze" => {
            let axes = match node.ints("axes") {
                Some(axes) => Some(axes.to_vec()),
                None if inputs.len() > 1 => Some(input(1)?.integers()?),
                None => None,
            };
            let c = input(0)?;
            Ok(c.with_dims(squeezed(op, &c.dims, axes.as_deref())?))
        }
        "Transpose" => {
            let c = input(0)?;
            let rank = c.dims.len();
            let reversed: Vec<i64> = (0..rank as i64).rev().collect();
            let order = node.ints("perm").unwrap_or(&reversed);
            let order = order
                .iter()
                .map(|&a| axis(a, rank))
                .collect::<Result<Vec<_>, _>>()?;
            if order.len() != rank || (0..rank).any(|a| !order.contains(&a)) {
                return Err(format!("perm: expected every axis of {rank} once"));
            }
            Ok(transpose(c, &order))
        }
        "Concat" => {
            let parts = (0..inputs.len())
                .map(input)
                .collect::<Result<Vec<_>, _>>()?;
            concat(&parts, node.int("axis", 0))
        }
        "Gather" | "ArrayFeatureExtractor" => {
            let (c, at) = (input(0)?, input(1)?);
            let last = c.dims.len() as i64 - 1;
            gather(
                c,
                at,
                if op == "Gather" {
                    node.int("axis", 0)
                } else {
                    last
                },
            )
        }
        "Slice" => {
            let c = input(0)?;
            let list = |name: &str, i: usize| match node.ints(name) {
                Some(list) => Ok(Some(list.to_vec())),
                None => inputs
                    .get(i)
                    .and_then(|c| c.as_deref())
                    .map(Constant::integers)
                    .transpose(),
            };
            let missing = || "expected starts and ends".to_string();
            let (starts, ends) = (
                list("starts", 1)?.ok_or_else(missing)?,
                list("ends", 2)?.ok_or_else(missing)?,
            );
            slice(c, &starts, &ends, list("axes", 3)?, list("steps", 4)?)
        }
        "Expand" => {
            let (c, to) = (input(0)?, sizes(&input(1)?.integers()?)?);
            let dims = together(&c.dims, &to)
                .ok_or_else(|| format!("{:?} does not expand to {to:?}", c.dims))?;
            let at = repeated(&c.dims, &dims).ok_or("more elements than can be read")?;
            Ok(c.pick(dims, &at))
        }
        "Where" => {
            let (condition, a, b) = (input(0)?, input(1)?, input(2)?);
            let meet = || "sizes do not meet".to_string();
            let dims = together(&a.dims, &b.dims)
                .and_then(|d| together(&d, &condition.dims))
                .ok_or_else(meet)?;
            let at = |c: &Constant| repeated(&c.dims, &dims).ok_or_else(meet);
            let (chosen, first, second) = (condition.integers()?, at(a)?, at(b)?);
            let chosen = at(condition)?.into_iter().map(|i| chosen[i] != 0);
            let both = concat(
                &[&a.with_dims(vec![a.len()]), &b.with_dims(vec![b.len()])],
                0,
            )?;
            let pick: Vec<usize> = chosen
                .enumerate()
                .map(|(i, first_one)| {
                    if first_one {
                        first[i]
                    } else {
                        a.len() + second[i]
                    }
                })
                .collect();
            Ok(both.pick(dims, &pick))
        }
        "Range" => {
            let number = |i: usize| match input(i)?.integers()?[..] {
                [n] => Ok(n),
                _ => Err("expected one number".to_string()),
            };
            let (start, limit, delta) = (number(0)?, number(1)?, number(2)?);
            let steps = limit
                .checked_sub(start)
                .and_then(|all| all.checked_div(delta));
            if steps.is_none_or(|s| s.unsigned_abs() > 1 << 20) {
                return Err("expected a step other than 0, and at most 1048576 numbers".into());
            }
            let mut numbers = Vec::new();
            let mut n = start;
            while (delta > 0 && n < limit) || (delta < 0 && n > limit) {
                numbers.push(n);
                n = n.saturating_add(delta);
            }
            Ok(Constant::ints(vec![numbers.len()], numbers))
        }
        "ReduceProd" | "ReduceSum" | "ReduceMean" | "ReduceMax" => {
            let axes = match node.ints("axes") {
                Some(axes) => axes.to_vec(),
                None => inputs
                    .get(1)
                    .and_then(|c| c.as_deref())
                    .map_or(Ok(Vec::new()), Constant::integers)?,
            };
            match axes.is_empty() && node.int("noop_with_empty_axes", 0) != 0 {
                true => Ok(input(0)?.clone()),
                false => reduced(op, input(0)?, &axes, node.int("keepdims", 1) != 0),
            }
        }
        "ArgMax" => {
            let last = node.int("select_last_index", 0) != 0;
            argmax(
                input(0)?,
                node.int("axis", 0),
                node.int("keepdims", 1) != 0,
                last,
            )
        }
        "MatMul" => product(input(0)?, input(1)?),
        "DequantizeLinear" => {
            let zero = inputs.get(2).and_then(|c| c.as_deref());
            dequantize(
                input(0)?,
                input(1)?,
                zero,
                node.int("axis", 1),
                node.int("block_size", 0),
            )
        }
        "QuantizeLinear" => {
            let zero = inputs.get(2).and_then(|c| c.as_deref());
            quantize(node, input(0)?, input(1)?, zero)
        }
        _ => Err("of constants alone it is not computed".into()),
    }
}

/// The part of a shape that `Shape` asks for.
pub(super) fn part_of_shape(node: &Node<'_>, shape: Constant) -> Result<Constant, String> {
    let rank = shape.len() as i64;
    let bound = |a: i64| {
        if a < 0 {
            (a + rank).max(0)
        } else {
            a.min(rank)
        }
    };
    let (start, end) = (bound(node.int("start", 0)), bound(node.int("end", rank)));
    let at: Vec<usize> = (start..end).map(|i| i as usize).collect();
    Ok(shape.pick(vec![at.len()], &at))
}

/// What the node `Constant` gives.
fn given(node: &Node<'_>) -> Result<Constant, String> {
    if let Some(tensor) = node.tensor("value") {
        return Ok((*tensor).clone());
    }
    if node.has("value_float") {
        return Ok(Constant::floats(
            vec![],
            vec![node.float("value_float", 0.0)],
        ));
    }
    if node.has("value_int") {
        return Ok(Constant::ints(vec![], vec![node.int("value_int", 0)]));
    }
    if node.has("value_string") {
        let text = vec![node.text("value_string", "").to_string()];
        return Ok(Constant::texts(vec![], text));
    }
    if let Some(numbers) = node.floats("value_floats") {
        return Ok(Constant::floats(vec![numbers.len()], numbers));
    }
    if let Some(numbers) = node.ints("value_ints") {
        return Ok(Constant::ints(vec![numbers.len()], numbers.to_vec()));
    }
    match node.texts("value_strings") {
        Some(texts) => Ok(Constant::texts(vec![texts.len()], texts.to_vec())),
        None => Err("expected a value, found nothing".into()),
    }
}

/// The product of two matrices.
fn product(a: &Constant, b: &Constant) -> Result<Constant, String> {
    // The axis that a list is given is left out of the result.
    let (left, right) = match (&*a.dims, &*b.dims) {
        (&[k], &[l]) => ([1, k], [l, 1]),
        (&[k], &[l, c]) => ([1, k], [l, c]),
        (&[r, k], &[l]) => ([r, k], [l, 1]),
        (&[r, k], &[l, c]) => ([r, k], [l, c]),
        _ => {
            return Err(format!(
                "of constants only matrices are multiplied, found {:?} and {:?}",
                a.dims, b.dims
            ));
        }
    };
    let ([rows, inner], [second, cols]) = (left, right);
    let mut dims = vec![];
    dims.extend((a.dims.len() == 2).then_some(rows));
    dims.extend((b.dims.len() == 2).then_some(cols));
    if inner != second {
        return Err(format!("sizes {:?} and {:?} do not meet", a.dims, b.dims));
    }
    if a.kind != b.kind {
        return Err(format!(
            "expected inputs of one type, found {} and {}",
            a.kind.name(),
            b.kind.name()
        ));
    }
    if !a.kind.float() {
        let (x, y) = (a.integers()?, b.integers()?);
        let sum = |i: usize| {
            let (r, c) = (i / cols, i % cols);
            let products =
                (0..inner).map(|k| i128::from(x[r * inner + k]) * i128::from(y[k * cols + c]));
            a.kind
                .wrapped(products.fold(0i128, i128::wrapping_add))
                .map(Int::Known)
        };
        let data = (0..rows * cols).map(sum).collect::<Result<_, _>>()?;
        return Ok(Constant {
            kind: a.kind,
            dims,
            data: Data::Ints(data),
        });
    }
    let (x, y) = (a.numbers()?, b.numbers()?);
    let mut result = vec![0.0; rows * cols];
    for r in 0..rows {
        for k in 0..inner {
            let factor = x[r * inner + k];
            let row = &mut result[r * cols..][..cols];
            row.iter_mut()
                .zip(&y[k * cols..][..cols])
                .for_each(|(s, v)| *s += factor * v);
        }
    }
    Ok(Constant::rounded(a.kind, dims, result))
}

fn quantize(
    node: &Node<'_>,
    x: &Constant,
    scale: &Constant,
    zero: Option<&Constant>,
) -> Result<Constant, String> {
    let (numbers, scales) = (x.numbers()?, scale.numbers()?);
    let of = scale_of(
        &x.dims,
        scale,
        node.int("axis", 1),
        node.int("block_size", 0),
    )?;
    let zeros = zero.map_or_else(|| Ok(vec![0.0; scales.len()]), Constant::numbers)?;
    if zeros.len() != scales.len() {
        return Err("expected as many zero points as scales".into());
    }
    let kind = match (zero, node.int("output_dtype", 0)) {
        (Some(zero), _) => zero.kind,
        (None, 0) => Element::U8,
        (None, code) => tensor::element(code)
            .ok_or_else(|| format!("output_dtype: type {code} is not supported"))?,
    };
    let Some((low, high)) = kind.range().filter(|_| kind != Element::Bool) else {
        return Err(format!(
            "expected a zero point of integers, found {}",
            kind.name()
        ));
    };
    let quantized = |(v, i): (&f64, usize)| {
        let whole = x.kind.rounded(v / scales[i]).round_ties_even() + zeros[i];
        if whole.is_nan() {
            return Err(format!("{v} does not become {}", kind.name()));
        }
        kind.wrapped((whole as i128).clamp(low, high))
            .map(Int::Known)
    };
    let data = numbers
        .iter()
        .zip(of)
        .map(quantized)
        .collect::<Result<_, _>>()?;
    Ok(Constant {
        kind,
        dims: x.dims.clone(),
        data: Data::Ints(data),
    })
}
