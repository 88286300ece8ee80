//! What is computed of constants alone.

use super::constant::{Constant, Data, Int, elements, repeated, together};
use super::node::{Node, axis};
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

/// Integers as sizes.
fn sizes(numbers: &[i64]) -> Result<Vec<usize>, String> {
    let sizes: Option<Vec<usize>> = numbers.iter().map(|&n| usize::try_from(n).ok()).collect();
    sizes.ok_or_else(|| format!("expected sizes of 0 or more, found {numbers:?}"))
}

/// Two integers; the number of records only where it stays what it is.
fn integers(op: &str, a: Int, b: Int) -> Result<Int, String> {
    use Int::{Known, Records};
    let known = |i: Option<i64>| i.map(Known).ok_or_else(|| format!("{op}: no such integer"));
    match (op, a, b) {
        ("Mul", Records, Known(1)) | ("Mul", Known(1), Records) | ("Div", Records, Known(1)) => Ok(Records),
        ("Add", Records, Known(0)) | ("Add", Known(0), Records) | ("Sub", Records, Known(0)) => Ok(Records),
        ("Min" | "Max", Records, Records) => Ok(Records),
        ("Div" | "Equal", Records, Records) => Ok(Known(1)),
        ("Sub", Records, Records) => Ok(Known(0)),
        // There is at least one record.
        ("Equal", Records, Known(i)) | ("Equal", Known(i), Records) if i < 1 => Ok(Known(0)),
        ("Greater", Records, Known(i)) | ("Less", Known(i), Records) if i < 1 => Ok(Known(1)),
        ("Max", Records, Known(i)) | ("Max", Known(i), Records) if i <= 1 => Ok(Records),
        (_, Records, _) | (_, _, Records) => {
            Err(format!("{op} with the number of records, which is known at run time only"))
        }
        ("Add" | "Sum", Known(a), Known(b)) => known(a.checked_add(b)),
        ("Sub", Known(a), Known(b)) => known(a.checked_sub(b)),
        ("Mul", Known(a), Known(b)) => known(a.checked_mul(b)),
        ("Div", Known(a), Known(b)) => known(a.checked_div(b)),
        ("Mod", Known(a), Known(b)) => known(a.checked_rem_euclid(b)),
        ("Min", Known(a), Known(b)) => Ok(Known(a.min(b))),
        ("Max", Known(a), Known(b)) => Ok(Known(a.max(b))),
        ("Equal", Known(a), Known(b)) => Ok(Known((a == b).into())),
        ("Greater", Known(a), Known(b)) => Ok(Known((a > b).into())),
        ("Less", Known(a), Known(b)) => Ok(Known((a < b).into())),
        ("And", Known(a), Known(b)) => Ok(Known((a != 0 && b != 0).into())),
        ("Or", Known(a), Known(b)) => Ok(Known((a != 0 || b != 0).into())),
        ("Pow", Known(a), Known(b)) => known(u32::try_from(b).ok().and_then(|b| a.checked_pow(b))),
        _ => Err(format!("{op} of integers is not computed")),
    }
}

/// Two constants, element by element.
fn two(op: &str, a: &Constant, b: &Constant) -> Result<Constant, String> {
    let meet = || format!("sizes {:?} and {:?} do not meet", a.dims, b.dims);
    let dims = together(&a.dims, &b.dims).ok_or_else(meet)?;
    let at = |c: &Constant| repeated(&c.dims, &dims).ok_or_else(meet);
    let (at_a, at_b) = (at(a)?, at(b)?);
    if let (Data::Ints(x), Data::Ints(y)) = (&a.data, &b.data) {
        let numbers: Result<Vec<Int>, String> =
            at_a.iter().zip(&at_b).map(|(&i, &j)| integers(op, x[i], y[j])).collect();
        return Ok(Constant { dims, data: Data::Ints(numbers?) });
    }
    let (x, y) = (a.numbers()?, b.numbers()?);
    let truth = |f: fn(f64, f64) -> bool| {
        let list = at_a.iter().zip(&at_b).map(|(&i, &j)| i64::from(f(x[i], y[j])));
        Ok(Constant::ints(dims.clone(), list.collect()))
    };
    let f: fn(f64, f64) -> f64 = match op {
        "Add" | "Sum" => |a, b| a + b,
        "Sub" => |a, b| a - b,
        "Mul" => |a, b| a * b,
        "Div" => |a, b| a / b,
        "Min" => f64::min,
        "Max" => f64::max,
        "Pow" => libm::pow,
        "Equal" => return truth(|a, b| a == b),
        "Greater" => return truth(|a, b| a > b),
        "Less" => return truth(|a, b| a < b),
        _ => return Err(format!("{op} of floats is not computed")),
    };
    Ok(Constant::floats(dims, at_a.iter().zip(&at_b).map(|(&i, &j)| f(x[i], y[j])).collect()))
}

/// A function of each element.
fn one(op: &str, c: &Constant) -> Result<Constant, String> {
    if let (Data::Ints(_), "Neg" | "Abs" | "Not") = (&c.data, op) {
        let f = |i: i64| match op {
            "Neg" => i.wrapping_neg(),
            "Abs" => i.wrapping_abs(),
            _ => i64::from(i == 0),
        };
        return Ok(Constant::ints(c.dims.clone(), c.integers()?.into_iter().map(f).collect()));
    }
    let f: fn(f64) -> f64 = match op {
        "Neg" => |x| -x,
        "Sqrt" => libm::sqrt,
        "Reciprocal" => |x| 1.0 / x,
        "Exp" => libm::exp,
        "Log" => libm::log,
        "Abs" => f64::abs,
        "Floor" => f64::floor,
        "Ceil" => f64::ceil,
        _ => return Err(format!("{op} of floats is not computed")),
    };
    Ok(Constant::floats(c.dims.clone(), c.numbers()?.into_iter().map(f).collect()))
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

fn reshape(c: &Constant, target: &[i64], zero: bool) -> Result<Constant, String> {
    let wrong = || format!("sizes {:?} do not become {target:?}", c.dims);
    let mut open = None;
    let mut dims = Vec::new();
    for (i, &size) in target.iter().enumerate() {
        match size {
            -1 if open.is_none() => {
                open = Some(i);
                dims.push(1);
            }
            0 if !zero => dims.push(*c.dims.get(i).ok_or_else(wrong)?),
            size => dims.push(usize::try_from(size).map_err(|_| wrong())?),
        }
    }
    let product = elements(&dims).ok_or_else(wrong)?;
    if let Some(i) = open {
        dims[i] = c.len().checked_div(product).ok_or_else(wrong)?;
    }
    match elements(&dims) == Some(c.len()) {
        true => Ok(c.with_dims(dims)),
        false => Err(wrong()),
    }
}

/// Sizes without some that are 1, or with more of them.
pub(super) fn squeezed(op: &str, dims: &[usize], axes: Option<&[i64]>) -> Result<Vec<usize>, String> {
    let rank = dims.len() + if op == "Unsqueeze" { axes.map_or(0, <[i64]>::len) } else { 0 };
    let axes =
        axes.map(|axes| axes.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>, _>>()).transpose()?;
    if op == "Unsqueeze" {
        let mut rest = dims.iter();
        let axes = axes.ok_or("expected axes, found nothing")?;
        let one = |i| if axes.contains(&i) { Some(1) } else { rest.next().copied() };
        let sizes: Option<Vec<usize>> = (0..rank).map(one).collect();
        return sizes.ok_or_else(|| "axes: expected each once".into());
    }
    match axes {
        Some(axes) => {
            if let Some(&a) = axes.iter().find(|&&a| dims[a] != 1) {
                return Err(format!("axis {a} has size {}, only 1 can be left out", dims[a]));
            }
            Ok(dims.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|d| *d.1).collect())
        }
        None => Ok(dims.iter().copied().filter(|&d| d != 1).collect()),
    }
}

/// The axes in another order: axis i of the result is axis `order[i]`.
pub(super) fn transpose(c: &Constant, order: &[usize]) -> Constant {
    let dims: Vec<usize> = order.iter().map(|&a| c.dims[a]).collect();
    let stride = |a: usize| c.dims[a + 1..].iter().product::<usize>();
    let strides: Vec<usize> = order.iter().map(|&a| stride(a)).collect();
    let at: Vec<usize> = (0..c.len())
        .map(|mut i| {
            let mut from = 0;
            for axis in (0..dims.len()).rev() {
                from += i % dims[axis] * strides[axis];
                i /= dims[axis];
            }
            from
        })
        .collect();
    c.pick(dims, &at)
}

fn concat(parts: &[&Constant], along: i64) -> Result<Constant, String> {
    let Some(first) = parts.first() else { return Err("expected inputs, found nothing".into()) };
    let a = axis(along, first.dims.len())?;
    let rest = |c: &Constant| {
        let mut dims = c.dims.clone();
        if a < dims.len() {
            dims.remove(a);
        }
        dims
    };
    if parts.iter().any(|p| p.dims.len() != first.dims.len() || rest(p) != rest(first)) {
        return Err("expected constants that differ along the axis only".into());
    }
    let mut dims = first.dims.clone();
    dims[a] = parts.iter().map(|p| p.dims[a]).sum();
    let inner: usize = dims[a + 1..].iter().product();
    let outer: usize = dims[..a].iter().product();
    // Where each part begins in all of them one behind the other.
    let (mut at, mut begin) = (Vec::new(), Vec::new());
    let mut all = 0;
    for p in parts {
        begin.push(all);
        all += p.len();
    }
    for o in 0..outer {
        for (p, begin) in parts.iter().zip(&begin) {
            let run = p.dims[a] * inner;
            at.extend((0..run).map(|i| begin + o * run + i));
        }
    }
    let joined = if parts.iter().all(|p| matches!(p.data, Data::Ints(_))) {
        let ints = parts.iter().flat_map(|p| match &p.data {
            Data::Ints(v) => v.clone(),
            _ => Vec::new(),
        });
        Data::Ints(ints.collect())
    } else if parts.iter().all(|p| matches!(p.data, Data::Texts(_))) {
        let texts = parts.iter().flat_map(|p| match &p.data {
            Data::Texts(v) => v.clone(),
            _ => Vec::new(),
        });
        Data::Texts(texts.collect())
    } else {
        let mut numbers = Vec::new();
        for p in parts {
            numbers.extend(p.numbers()?);
        }
        Data::Floats(numbers)
    };
    Ok(Constant { dims: vec![all], data: joined }.pick(dims, &at))
}

fn gather(c: &Constant, at: &Constant, along: i64) -> Result<Constant, String> {
    let a = axis(along, c.dims.len())?;
    let n = c.dims[a];
    let indices: Vec<usize> = at
        .integers()?
        .into_iter()
        .map(|i| axis(i, n).map_err(|_| format!("expected an index of {n}, found {i}")))
        .collect::<Result<_, _>>()?;
    let inner: usize = c.dims[a + 1..].iter().product();
    let outer: usize = c.dims[..a].iter().product();
    let mut from = Vec::new();
    for o in 0..outer {
        for &i in &indices {
            from.extend((0..inner).map(|j| (o * n + i) * inner + j));
        }
    }
    let dims = [&c.dims[..a], &at.dims, &c.dims[a + 1..]].concat();
    Ok(c.pick(dims, &from))
}

/// The indices along an axis of `n` that a slice takes.
pub(super) fn sliced(start: i64, end: i64, step: i64, n: usize) -> Result<Vec<usize>, String> {
    let n = n as i64;
    let from_end = |i: i64| if i < 0 { i.saturating_add(n) } else { i };
    if step == 0 {
        return Err("expected a step other than 0".into());
    }
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let (mut i, end) = (from_end(start).clamp(low.max(0), high.max(0)), from_end(end).clamp(low, high));
    let mut at = Vec::new();
    while i < n && ((step > 0 && i < end) || (step < 0 && i > end)) {
        at.push(i as usize);
        i = i.saturating_add(step);
    }
    Ok(at)
}

fn slice(
    c: &Constant,
    starts: &[i64],
    ends: &[i64],
    axes: Option<Vec<i64>>,
    steps: Option<Vec<i64>>,
) -> Result<Constant, String> {
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&n| n != starts.len()) {
        return Err("expected as many starts as ends, axes and steps".into());
    }
    let mut result = c.clone();
    for (((&start, &end), &along), &step) in starts.iter().zip(ends).zip(&axes).zip(&steps) {
        let a = axis(along, c.dims.len())?;
        let at = sliced(start, end, step, result.dims[a])?;
        let at = Constant::ints(vec![at.len()], at.into_iter().map(|i| i as i64).collect());
        result = gather(&result, &at, a as i64)?;
    }
    Ok(result)
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

/// For each element, which scale is its own: one for all, or one for each index along an axis.
fn scale_of(dims: &[usize], scale: &Constant, along: i64) -> Result<Vec<usize>, String> {
    if scale.len() == 1 {
        return Ok(vec![0; elements(dims).unwrap_or(0)]);
    }
    let a = axis(along, dims.len())?;
    if scale.dims.len() != 1 || scale.len() != dims[a] {
        return Err(format!("expected one scale or {}, found sizes {:?}", dims[a], scale.dims));
    }
    let inner: usize = dims[a + 1..].iter().product();
    Ok((0..elements(dims).unwrap_or(0)).map(|i| i / inner % dims[a]).collect())
}

fn dequantize(
    x: &Constant,
    scale: &Constant,
    zero: Option<&Constant>,
    along: i64,
    block: i64,
) -> Result<Constant, String> {
    if block != 0 {
        return Err("block_size: blocks are not supported".into());
    }
    let (numbers, scales, of) = (x.numbers()?, scale.numbers()?, scale_of(&x.dims, scale, along)?);
    let zeros = zero.map_or_else(|| Ok(vec![0.0; scales.len()]), Constant::numbers)?;
    if zeros.len() != scales.len() {
        return Err(format!("expected {} zero points, found {}", scales.len(), zeros.len()));
    }
    let result = numbers.iter().zip(of).map(|(v, i)| (v - zeros[i]) * scales[i]).collect();
    Ok(Constant::floats(x.dims.clone(), result))
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
