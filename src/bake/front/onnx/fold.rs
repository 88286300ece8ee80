//! Computes ONNX nodes whose inputs are all constants, at build time.

use super::node::OnnxNode;
use super::{classify, ops, signals, tensor};
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{
    ConstantTensor, Data, Element, Int, elements, repeated, together,
};
use crate::bake::front::fold::{
    argmax, concat, dequantize, gather, mapped, one, reduced, reshape, scale_of, sizes, slice,
    squeezed, transpose, two,
};
use crate::bake::front::listed;
use crate::bake::front::value::{Live, ModelValue, axis, permutation, standard};
use crate::ir::graph;
use std::rc::Rc;

/// The constant inputs of a node. `None` stands for an input that is left out.
type Inputs = [Option<Rc<ConstantTensor>>];

/// Computes a node whose inputs are constants. Returns one constant for each output. `left` is the
/// most elements that all outputs may have together.
pub(super) fn fold(
    node: &OnnxNode<'_>,
    inputs: &Inputs,
    left: usize,
) -> Result<Vec<ConstantTensor>, String> {
    let found = inputs.iter().flatten();
    match node.op() {
        // `ConstantOfShape`, `Expand`, `Tile`, `Gather`, `MatMul` and `Concat` can give results
        // much larger than their inputs, so the size of the result is computed. For other
        // operations it is estimated as the size of all inputs broadcast together. `Pad`, `Gemm`,
        // `Range` and `HannWindow` can give more.
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
        _ if listed(WITH_GRAPH, node.op()) || node.domain() == "ai.onnx.ml" => {
            through(node, inputs)
        }
        _ => folded(node, inputs).map(|c| vec![c]),
    }
}

/// Returns an error if a tensor of the sizes `dims` has more elements than `left`.
fn room(dims: &[usize], left: usize) -> Result<(), String> {
    match elements(dims).filter(|&n| n <= left) {
        Some(_) => Ok(()),
        None => Err(format!(
            "a constant of sizes {dims:?} is too large: constants computed from others may have \
             {left} more elements together; store it as an initialiser, or make it smaller"
        )),
    }
}

fn needed(inputs: &Inputs, i: usize) -> Result<&ConstantTensor, String> {
    let found = inputs.get(i).and_then(|c| c.as_deref());
    found.ok_or_else(|| format!("expected an input {i}, found nothing"))
}

/// Operations that have no code for constants. [`through`] builds a graph for such a node as if its
/// input came from a record, and evaluates the graph.
const WITH_GRAPH: &str = "AveragePool BatchNormalization Conv Gemm GlobalAveragePool \
                          GlobalMaxPool LogSoftmax MaxPool PRelu Pad Softmax ZipMap Normalizer";

/// Computes a node of constants by evaluating a graph of this node alone. Each row of the first
/// input is one record of that graph.
fn through(node: &OnnxNode<'_>, inputs: &Inputs) -> Result<Vec<ConstantTensor>, String> {
    let x = needed(inputs, 0)?;
    let (Some((&records, dims)), true) = (x.dims.split_first(), x.kind.float()) else {
        return Err(format!(
            "it is not supported on a constant of {} and sizes {:?}",
            x.kind.name(),
            x.dims
        ));
    };
    let input = graph::Value {
        name: "constant".into(),
        shape: standard(dims),
    };
    let (mut b, _) = Builder::new(vec![input], None)?;
    let mut values: Vec<Option<ModelValue>> = inputs
        .iter()
        .map(|i| i.clone().map(ModelValue::Constant))
        .collect();
    values[0] = Some(ModelValue::Live(Live::new(0, dims.to_vec(), x.kind)));
    let own = OnnxNode {
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
    let constant = |value: ModelValue| {
        let ModelValue::Live(live) = value else {
            return Err("it is not supported on constants alone".to_string());
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
        Ok(ConstantTensor::rounded(x.kind, dims, result))
    };
    given.into_iter().map(constant).collect()
}

/// `Split`: cuts a constant into parts along an axis.
fn split(node: &OnnxNode<'_>, inputs: &Inputs) -> Result<Vec<ConstantTensor>, String> {
    let x = needed(inputs, 0)?;
    let a = axis(node.int("axis", 0), x.dims.len())?;
    let parts = ops::parts(node, x.dims[a])?;
    let mut first = 0;
    let mut part = |n: usize| {
        let at = (first..first + n).map(|i| i as i64).collect();
        first += n;
        gather(x, &ConstantTensor::ints(vec![n], at), a as i64)
    };
    parts.into_iter().map(&mut part).collect()
}

/// Returns the sizes of the result of `Tile`: each size of `c` times its number of repeats.
fn tiled(c: &ConstantTensor, repeats: &ConstantTensor) -> Result<Vec<usize>, String> {
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

/// Computes a node that has one output and only constant inputs.
fn folded(node: &OnnxNode<'_>, inputs: &Inputs) -> Result<ConstantTensor, String> {
    let op = node.op();
    let input = |i: usize| needed(inputs, i);
    let zero_point = || inputs.get(2).and_then(|c| c.as_deref());
    match op {
        "Constant" => given(node),
        "ConstantOfShape" => filled(node, input(0)?),
        "Add" | "Sub" | "Mul" | "Div" | "Min" | "Max" | "Pow" | "Mod" | "Equal" | "Greater"
        | "Less" | "And" | "Or" | "Sum" => {
            let fmod = op == "Mod" && node.int("fmod", 0) != 0;
            let op = if fmod { "Fmod" } else { op };
            (1..inputs.len()).try_fold(input(0)?.clone(), |result, i| two(op, &result, input(i)?))
        }
        "Neg" | "Sqrt" | "Reciprocal" | "Exp" | "Log" | "Abs" | "Floor" | "Ceil" | "Not" => {
            one(op, input(0)?)
        }
        "Relu" if !input(0)?.kind.float() => one(op, input(0)?),
        "Clip" => clip(node, inputs),
        "Tile" => tile(input(0)?, input(1)?),
        "Identity" | "Dropout" => Ok(input(0)?.clone()),
        "Cast" => {
            let to = node.int("to", 0);
            let kind = tensor::element(to);
            let kind = kind.ok_or_else(|| format!("numbers cannot be converted to type {to}"))?;
            input(0)?.cast(kind)
        }
        "CastLike" => input(0)?.cast(input(1)?.kind),
        "HannWindow" | "HammingWindow" | "BlackmanWindow" => signals::window(node, input(0)?),
        "GreaterOrEqual" => one("Not", &two("Less", input(0)?, input(1)?)?),
        "LessOrEqual" => one("Not", &two("Greater", input(0)?, input(1)?)?),
        "Shape" => {
            let dims: Vec<i64> = input(0)?.dims.iter().map(|&d| d as i64).collect();
            part_of_shape(node, ConstantTensor::ints(vec![dims.len()], dims))
        }
        "Size" => Ok(ConstantTensor::ints(vec![], vec![input(0)?.len() as i64])),
        "Reshape" => {
            let stated = node.ints("shape").filter(|_| node.version < 5);
            let target = stated.map_or_else(|| input(1)?.integers(), |s| Ok(s.to_vec()))?;
            reshape(input(0)?, &target, node.int("allowzero", 0) != 0)
        }
        "Flatten" => flatten(node, input(0)?),
        "Squeeze" | "Unsqueeze" => {
            let (c, axes) = (input(0)?, ints_of(node, "axes", inputs, 1)?);
            Ok(c.with_dims(squeezed(op, &c.dims, axes.as_deref())?))
        }
        "Transpose" => {
            let c = input(0)?;
            let reversed: Vec<i64> = (0..c.dims.len() as i64).rev().collect();
            let order = node.ints("perm").unwrap_or(&reversed);
            Ok(transpose(c, &permutation(order, c.dims.len())?))
        }
        "Concat" => {
            let parts: Result<Vec<_>, String> = (0..inputs.len()).map(input).collect();
            concat(&parts?, node.int("axis", 0))
        }
        "Gather" => gather(input(0)?, input(1)?, node.int("axis", 0)),
        "ArrayFeatureExtractor" => gather(input(0)?, input(1)?, -1),
        "Slice" => {
            let list = |name: &str, i: usize| ints_of(node, name, inputs, i);
            let (Some(starts), Some(ends)) = (list("starts", 1)?, list("ends", 2)?) else {
                return Err("expected starts and ends".into());
            };
            slice(
                input(0)?,
                &starts,
                &ends,
                list("axes", 3)?,
                list("steps", 4)?,
            )
        }
        "Expand" => expand(input(0)?, input(1)?),
        "Where" => choose(input(0)?, input(1)?, input(2)?),
        "Range" => range(input(0)?, input(1)?, input(2)?),
        "ReduceProd" | "ReduceSum" | "ReduceMean" | "ReduceMax" => {
            let axes = ints_of(node, "axes", inputs, 1)?.unwrap_or_default();
            match axes.is_empty() && node.int("noop_with_empty_axes", 0) != 0 {
                true => Ok(input(0)?.clone()),
                false => reduced(op, input(0)?, &axes, node.int("keepdims", 1) != 0),
            }
        }
        "ArgMax" => {
            let last = node.int("select_last_index", 0) != 0;
            let keep = node.int("keepdims", 1) != 0;
            argmax(input(0)?, node.int("axis", 0), keep, last)
        }
        "MatMul" => product(input(0)?, input(1)?),
        "DequantizeLinear" => {
            let (axis, block) = (node.int("axis", 1), node.int("block_size", 0));
            dequantize(input(0)?, input(1)?, zero_point(), axis, block)
        }
        "QuantizeLinear" => quantize(node, input(0)?, input(1)?, zero_point()),
        _ => match ops::activation(node)? {
            Some(function) => mapped(input(0)?, op, |x| function.apply(x)),
            None => Err("it is not supported on constants alone".into()),
        },
    }
}

/// Returns the integers of the attribute `name`, or of the constant input `i`. In newer operation
/// sets the input replaces the attribute. `None` if the node has neither.
fn ints_of(
    node: &OnnxNode<'_>,
    name: &str,
    inputs: &Inputs,
    i: usize,
) -> Result<Option<Vec<i64>>, String> {
    if let Some(list) = node.ints(name) {
        return Ok(Some(list.to_vec()));
    }
    let input = inputs.get(i).and_then(|c| c.as_deref());
    input.map(ConstantTensor::integers).transpose()
}

/// `ConstantOfShape`: a constant of the stated sizes. All elements are the single number in the
/// attribute `value`, or 0 without this attribute.
fn filled(node: &OnnxNode<'_>, sizes_of: &ConstantTensor) -> Result<ConstantTensor, String> {
    let dims = sizes(&sizes_of.integers()?)?;
    let n = elements(&dims).ok_or("too many elements")?;
    let zero = || Rc::new(ConstantTensor::floats(vec![1], vec![0.0]));
    let value = node.tensor("value").unwrap_or_else(zero);
    match value.len() {
        1 => Ok(value.pick(dims, &vec![0; n])),
        found => Err(format!("value: expected one number, found {found}")),
    }
}

/// `Clip` of a constant. The bounds are attributes or inputs, and either may be left out.
fn clip(node: &OnnxNode<'_>, inputs: &Inputs) -> Result<ConstantTensor, String> {
    let mut result = needed(inputs, 0)?.clone();
    for (i, name, op) in [(1, "min", "Max"), (2, "max", "Min")] {
        let bound = match node.has(name) {
            true => {
                let bound = ConstantTensor::floats(vec![], vec![node.float(name, 0.0)]);
                Some(Rc::new(bound.cast(result.kind)?))
            }
            false => inputs.get(i).cloned().flatten(),
        };
        if let Some(bound) = bound {
            result = two(op, &result, &bound)?;
        }
    }
    Ok(result)
}

/// `Tile`: repeats a constant along its axes.
fn tile(c: &ConstantTensor, repeats: &ConstantTensor) -> Result<ConstantTensor, String> {
    let dims = tiled(c, repeats)?;
    let n = elements(&dims).ok_or("too many elements")?;
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

/// `Flatten`: turns a constant into a matrix. The axes in front of the attribute `axis` become its
/// rows, the other axes its columns.
fn flatten(node: &OnnxNode<'_>, c: &ConstantTensor) -> Result<ConstantTensor, String> {
    let rank = c.dims.len();
    let at = match node.int("axis", 1) {
        a if a == rank as i64 => rank,
        a => axis(a, rank)?,
    };
    let product = |d: &[usize]| d.iter().product();
    Ok(c.with_dims(vec![product(&c.dims[..at]), product(&c.dims[at..])]))
}

/// `Expand`: repeats a constant along its axes of size 1, up to the sizes in `to`.
fn expand(c: &ConstantTensor, to: &ConstantTensor) -> Result<ConstantTensor, String> {
    let to = sizes(&to.integers()?)?;
    let dims =
        together(&c.dims, &to).ok_or_else(|| format!("{:?} does not expand to {to:?}", c.dims))?;
    let at = repeated(&c.dims, &dims).ok_or("too many elements")?;
    Ok(c.pick(dims, &at))
}

/// `Where`: selects elements of `a` where the condition is true, else of `b`.
fn choose(
    condition: &ConstantTensor,
    a: &ConstantTensor,
    b: &ConstantTensor,
) -> Result<ConstantTensor, String> {
    let meet = || "sizes do not match".to_string();
    let dims = together(&a.dims, &b.dims)
        .and_then(|d| together(&d, &condition.dims))
        .ok_or_else(meet)?;
    let at = |c: &ConstantTensor| repeated(&c.dims, &dims).ok_or_else(meet);
    let (truths, at_a, at_b) = (condition.integers()?, at(a)?, at(b)?);
    let both = concat(
        &[&a.with_dims(vec![a.len()]), &b.with_dims(vec![b.len()])],
        0,
    )?;
    let mut pick = Vec::new();
    for (i, truth) in at(condition)?.into_iter().enumerate() {
        pick.push(match truths[truth] {
            0 => a.len() + at_b[i],
            _ => at_a[i],
        });
    }
    Ok(both.pick(dims, &pick))
}

/// `Range`: the numbers from `start` on in steps of `delta`, up to but without `limit`.
fn range(
    start: &ConstantTensor,
    limit: &ConstantTensor,
    delta: &ConstantTensor,
) -> Result<ConstantTensor, String> {
    let (first, end, step) = (start.number()?, limit.number()?, delta.number()?);
    let count = ((end - first) / step).ceil();
    // The comparison is negated so that it refuses NaN too, which a step of 0 can give.
    if !(-1e9..=1048576.0).contains(&count) {
        return Err("expected a step other than 0, and at most 1048576 numbers".into());
    }
    let count = count.max(0.0) as usize;
    let numbers = (0..count).map(|i| first + i as f64 * step);
    if start.kind.float() {
        return Ok(ConstantTensor::rounded(start.kind, vec![count], numbers));
    }
    let ints = numbers.map(|n| Int::Known(n as i64)).collect();
    Ok(ConstantTensor::new(
        start.kind,
        vec![count],
        Data::Ints(ints),
    ))
}

/// `Shape`: returns the part of a shape that the node's attributes `start` and `end` select.
pub(super) fn part_of_shape(
    node: &OnnxNode<'_>,
    shape: ConstantTensor,
) -> Result<ConstantTensor, String> {
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

/// `Constant`: returns the constant that one of the node's attributes holds.
fn given(node: &OnnxNode<'_>) -> Result<ConstantTensor, String> {
    if let Some(tensor) = node.tensor("value") {
        return Ok((*tensor).clone());
    }
    if node.has("value_float") {
        return Ok(ConstantTensor::floats(
            vec![],
            vec![node.float("value_float", 0.0)],
        ));
    }
    if node.has("value_int") {
        return Ok(ConstantTensor::ints(vec![], vec![node.int("value_int", 0)]));
    }
    if node.has("value_string") {
        let text = vec![node.text("value_string", "").to_string()];
        return Ok(ConstantTensor::texts(vec![], text));
    }
    if let Some(numbers) = node.floats("value_floats") {
        return Ok(ConstantTensor::floats(vec![numbers.len()], numbers));
    }
    if let Some(numbers) = node.ints("value_ints") {
        return Ok(ConstantTensor::ints(vec![numbers.len()], numbers.to_vec()));
    }
    match node.texts("value_strings") {
        Some(texts) => Ok(ConstantTensor::texts(vec![texts.len()], texts.to_vec())),
        None => Err("expected a value, found nothing".into()),
    }
}

/// `MatMul`: the product of two constant matrices or vectors.
fn product(a: &ConstantTensor, b: &ConstantTensor) -> Result<ConstantTensor, String> {
    // A vector counts as a matrix with one row or column. That axis is left out of the result.
    let (left, right) = match (&*a.dims, &*b.dims) {
        (&[k], &[l]) => ([1, k], [l, 1]),
        (&[k], &[l, c]) => ([1, k], [l, c]),
        (&[r, k], &[l]) => ([r, k], [l, 1]),
        (&[r, k], &[l, c]) => ([r, k], [l, c]),
        _ => {
            return Err(format!(
                "expected matrices, as both inputs are constants, found sizes {:?} and {:?}",
                a.dims, b.dims
            ));
        }
    };
    let ([rows, inner], [second, cols]) = (left, right);
    let mut dims = vec![];
    dims.extend((a.dims.len() == 2).then_some(rows));
    dims.extend((b.dims.len() == 2).then_some(cols));
    if inner != second {
        return Err(format!("sizes {:?} and {:?} do not match", a.dims, b.dims));
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
        return Ok(ConstantTensor::new(a.kind, dims, Data::Ints(data)));
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
    Ok(ConstantTensor::rounded(a.kind, dims, result))
}

/// `QuantizeLinear`: x / scale, rounded half to even, plus the zero point, clamped to the range of
/// the zero point's type. Without a zero point the type is `output_dtype`, by default UINT8.
fn quantize(
    node: &OnnxNode<'_>,
    x: &ConstantTensor,
    scale: &ConstantTensor,
    zero: Option<&ConstantTensor>,
) -> Result<ConstantTensor, String> {
    let (numbers, scales) = (x.numbers()?, scale.numbers()?);
    let of = scale_of(
        &x.dims,
        scale,
        node.int("axis", 1),
        node.int("block_size", 0),
    )?;
    let zeros = zero.map_or_else(|| Ok(vec![0.0; scales.len()]), ConstantTensor::numbers)?;
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
            return Err(format!("{v} cannot be converted to {}", kind.name()));
        }
        kind.wrapped((whole as i128).clamp(low, high))
            .map(Int::Known)
    };
    let data = numbers
        .iter()
        .zip(of)
        .map(quantized)
        .collect::<Result<_, _>>()?;
    Ok(ConstantTensor::new(kind, x.dims.clone(), Data::Ints(data)))
}
