//! What is computed of constants alone.

use super::node::Node;
use crate::bake::front::constant::{Constant, Data, Int, elements, repeated, together};
use crate::bake::front::fold::{
    concat, dequantize, gather, integers, one, reshape, scale_of, sizes, slice, squeezed, transpose, two,
};
use crate::bake::front::value::axis;
use std::rc::Rc;

/// The constant that a node of constants gives.
///
/// # Errors
/// What cannot be computed.
pub(super) fn fold(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let op = node.op();
    let input = |i: usize| {
        let found = inputs.get(i).and_then(|c| c.as_deref());
        found.ok_or_else(|| format!("expected an input {i}, found nothing"))
    };
    match op {
        "Constant" => given(node),
        "ConstantOfShape" => {
            let dims = sizes(&input(0)?.integers()?)?;
            let n = elements(&dims).ok_or("more elements than can be read")?;
            let value = node.tensor("value").map_or(Constant::floats(vec![1], vec![0.0]), |t| (*t).clone());
            match value.len() {
                1 => Ok(value.pick(dims, &vec![0; n])),
                found => Err(format!("value: expected one number, found {found}")),
            }
        }
        "Add" | "Sub" | "Mul" | "Div" | "Min" | "Max" | "Pow" | "Mod" | "Equal" | "Greater" | "Less"
        | "And" | "Or" | "Sum" => {
            let mut result = input(0)?.clone();
            for i in 1..inputs.len() {
                result = two(op, &result, input(i)?)?;
            }
            Ok(result)
        }
        "Neg" | "Sqrt" | "Reciprocal" | "Exp" | "Log" | "Abs" | "Floor" | "Ceil" | "Not" => {
            one(op, input(0)?)
        }
        "Identity" | "Dropout" => Ok(input(0)?.clone()),
        "Cast" => cast(input(0)?, node.int("to", 0)),
        "Shape" => {
            let dims: Vec<i64> = input(0)?.dims.iter().map(|&d| d as i64).collect();
            part_of_shape(node, Constant::ints(vec![dims.len()], dims))
        }
        "Size" => Ok(Constant::ints(vec![], vec![input(0)?.len() as i64])),
        "Reshape" => {
            let c = input(0)?;
            let target = if node.version < 5 { node.ints("shape").map(<[i64]>::to_vec) } else { None };
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
            let order = order.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
            if order.len() != rank || (0..rank).any(|a| !order.contains(&a)) {
                return Err(format!("perm: expected every axis of {rank} once"));
            }
            Ok(transpose(c, &order))
        }
        "Concat" => {
            let parts = (0..inputs.len()).map(input).collect::<Result<Vec<_>, _>>()?;
            concat(&parts, node.int("axis", 0))
        }
        "Gather" | "ArrayFeatureExtractor" => {
            let (c, at) = (input(0)?, input(1)?);
            let last = c.dims.len() as i64 - 1;
            gather(c, at, if op == "Gather" { node.int("axis", 0) } else { last })
        }
        "Slice" => {
            let c = input(0)?;
            let list = |name: &str, i: usize| match node.ints(name) {
                Some(list) => Ok(Some(list.to_vec())),
                None => inputs.get(i).and_then(|c| c.as_deref()).map(Constant::integers).transpose(),
            };
            let missing = || "expected starts and ends".to_string();
            let (starts, ends) =
                (list("starts", 1)?.ok_or_else(missing)?, list("ends", 2)?.ok_or_else(missing)?);
            slice(c, &starts, &ends, list("axes", 3)?, list("steps", 4)?)
        }
        "Expand" => {
            let (c, to) = (input(0)?, sizes(&input(1)?.integers()?)?);
            let dims =
                together(&c.dims, &to).ok_or_else(|| format!("{:?} does not expand to {to:?}", c.dims))?;
            let at = repeated(&c.dims, &dims).ok_or("more elements than can be read")?;
            Ok(c.pick(dims, &at))
        }
        "Where" => {
            let (condition, a, b) = (input(0)?, input(1)?, input(2)?);
            let meet = || "sizes do not meet".to_string();
            let dims =
                together(&a.dims, &b.dims).and_then(|d| together(&d, &condition.dims)).ok_or_else(meet)?;
            let at = |c: &Constant| repeated(&c.dims, &dims).ok_or_else(meet);
            let (chosen, first, second) = (condition.integers()?, at(a)?, at(b)?);
            let chosen = at(condition)?.into_iter().map(|i| chosen[i] != 0);
            let both = concat(&[&a.with_dims(vec![a.len()]), &b.with_dims(vec![b.len()])], 0)?;
            let pick: Vec<usize> = chosen
                .enumerate()
                .map(|(i, first_one)| if first_one { first[i] } else { a.len() + second[i] })
                .collect();
            Ok(both.pick(dims, &pick))
        }
        "Range" => {
            let number = |i: usize| match input(i)?.integers()?[..] {
                [n] => Ok(n),
                _ => Err("expected one number".to_string()),
            };
            let (start, limit, delta) = (number(0)?, number(1)?, number(2)?);
            let steps = limit.checked_sub(start).and_then(|all| all.checked_div(delta));
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
        "ReduceProd" | "ReduceSum" => {
            let c = input(0)?;
            let rank_one = c.dims.len() <= 1;
            if !rank_one {
                return Err(format!("of constants only lists are reduced, found sizes {:?}", c.dims));
            }
            let dims = if node.int("keepdims", 1) != 0 { vec![1; c.dims.len()] } else { vec![] };
            match &c.data {
                Data::Floats(v) => Ok(Constant::floats(
                    dims,
                    vec![if op == "ReduceProd" { v.iter().product() } else { v.iter().sum() }],
                )),
                _ => {
                    let neutral = Int::Known(i64::from(op == "ReduceProd"));
                    let Data::Ints(v) = &c.data else { return Err("expected numbers, found texts".into()) };
                    let step = if op == "ReduceProd" { "Mul" } else { "Add" };
                    let result = v.iter().try_fold(neutral, |a, &b| integers(step, a, b))?;
                    Ok(Constant { dims, data: Data::Ints(vec![result]) })
                }
            }
        }
        "MatMul" => product(input(0)?, input(1)?),
        "DequantizeLinear" => {
            let zero = inputs.get(2).and_then(|c| c.as_deref());
            dequantize(input(0)?, input(1)?, zero, node.int("axis", 1), node.int("block_size", 0))
        }
        "QuantizeLinear" => {
            let zero = inputs.get(2).and_then(|c| c.as_deref());
            quantize(node, input(0)?, input(1)?, zero)
        }
        _ => Err("it is not computed of constants alone".into()),
    }
}

/// The part of a shape that `Shape` asks for.
pub(super) fn part_of_shape(node: &Node<'_>, shape: Constant) -> Result<Constant, String> {
    let rank = shape.len() as i64;
    let bound = |a: i64| if a < 0 { (a + rank).max(0) } else { a.min(rank) };
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
        return Ok(Constant::floats(vec![], vec![node.float("value_float", 0.0)]));
    }
    if node.has("value_int") {
        return Ok(Constant::ints(vec![], vec![node.int("value_int", 0)]));
    }
    if node.has("value_string") {
        let text = vec![node.text("value_string", "").to_string()];
        return Ok(Constant { dims: vec![], data: Data::Texts(text) });
    }
    if let Some(numbers) = node.floats("value_floats") {
        return Ok(Constant::floats(vec![numbers.len()], numbers));
    }
    if let Some(numbers) = node.ints("value_ints") {
        return Ok(Constant::ints(vec![numbers.len()], numbers.to_vec()));
    }
    match node.texts("value_strings") {
        Some(texts) => Ok(Constant { dims: vec![texts.len()], data: Data::Texts(texts.to_vec()) }),
        None => Err("expected a value, found nothing".into()),
    }
}

/// Whether a number of ONNX's types is one of floats.
pub(super) fn is_float(to: i64) -> bool {
    matches!(to, 1 | 10 | 11 | 16)
}

/// The constant as another type of number.
fn cast(c: &Constant, to: i64) -> Result<Constant, String> {
    match to {
        _ if is_float(to) => Ok(Constant::floats(c.dims.clone(), c.numbers()?)),
        2..=7 | 9 | 12 | 13 => match &c.data {
            Data::Ints(_) if to != 9 => Ok(c.clone()),
            _ => {
                let number = |v: f64| if to == 9 { i64::from(v != 0.0) } else { v.trunc() as i64 };
                Ok(Constant::ints(c.dims.clone(), c.numbers()?.into_iter().map(number).collect()))
            }
        },
        8 => match &c.data {
            Data::Texts(_) => Ok(c.clone()),
            Data::Ints(_) => {
                let texts = c.integers()?.iter().map(i64::to_string).collect();
                Ok(Constant { dims: c.dims.clone(), data: Data::Texts(texts) })
            }
            Data::Floats(_) => Err("floats do not become texts".into()),
        },
        other => Err(format!("numbers do not become type {other}")),
    }
}

/// The product of two matrices.
fn product(a: &Constant, b: &Constant) -> Result<Constant, String> {
    let (&[rows, inner], &[second, cols]) = (&*a.dims, &*b.dims) else {
        return Err(format!(
            "of constants only matrices are multiplied, found {:?} and {:?}",
            a.dims, b.dims
        ));
    };
    if inner != second {
        return Err(format!("sizes {:?} and {:?} do not meet", a.dims, b.dims));
    }
    let (x, y) = (a.numbers()?, b.numbers()?);
    let mut result = vec![0.0; rows * cols];
    for r in 0..rows {
        for k in 0..inner {
            let factor = x[r * inner + k];
            let row = &mut result[r * cols..][..cols];
            row.iter_mut().zip(&y[k * cols..][..cols]).for_each(|(s, v)| *s += factor * v);
        }
    }
    Ok(Constant::floats(vec![rows, cols], result))
}

fn quantize(
    node: &Node<'_>,
    x: &Constant,
    scale: &Constant,
    zero: Option<&Constant>,
) -> Result<Constant, String> {
    let (numbers, scales) = (x.numbers()?, scale.numbers()?);
    let of = scale_of(&x.dims, scale, node.int("axis", 1))?;
    let zeros = zero.map_or_else(|| Ok(vec![0.0; scales.len()]), Constant::numbers)?;
    if zeros.len() != scales.len() || node.int("block_size", 0) != 0 {
        return Err("expected as many zero points as scales, and no blocks".into());
    }
    // Signed or not is told by the zero point's type, which constants do not keep: the way back undoes both alike as
    // long as nothing saturates.
    let result: Vec<i64> =
        numbers.iter().zip(of).map(|(v, i)| ((v / scales[i]).round_ties_even() + zeros[i]) as i64).collect();
    if result.iter().any(|v| !(-128..=255).contains(v)) {
        return Err("constants that saturate when they are quantised are not supported".into());
    }
    Ok(Constant::ints(x.dims.clone(), result))
}
