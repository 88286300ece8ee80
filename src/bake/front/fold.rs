//! What is computed of constants alone. Operations of two or one go by the names of ONNX.

use super::constant::{Constant, Data, Int, elements, repeated, together};
use super::value::axis;

/// Integers as sizes.
pub(super) fn sizes(numbers: &[i64]) -> Result<Vec<usize>, String> {
    let sizes: Option<Vec<usize>> = numbers.iter().map(|&n| usize::try_from(n).ok()).collect();
    sizes.ok_or_else(|| format!("expected sizes of 0 or more, found {numbers:?}"))
}

/// Two integers; the number of records only where it stays what it is.
pub(super) fn integers(op: &str, a: Int, b: Int) -> Result<Int, String> {
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
pub(super) fn two(op: &str, a: &Constant, b: &Constant) -> Result<Constant, String> {
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
pub(super) fn one(op: &str, c: &Constant) -> Result<Constant, String> {
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

/// The same elements with other sizes: -1 is what is left, 0 (unless `zero`) what was there.
pub(super) fn reshape(c: &Constant, target: &[i64], zero: bool) -> Result<Constant, String> {
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

/// One behind the other along an axis.
pub(super) fn concat(parts: &[&Constant], along: i64) -> Result<Constant, String> {
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

/// Elements along an axis, by their indices.
pub(super) fn gather(c: &Constant, at: &Constant, along: i64) -> Result<Constant, String> {
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

/// Parts along several axes.
pub(super) fn slice(
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

/// For each element, which scale is its own: one for all, or one for each index along an axis.
pub(super) fn scale_of(dims: &[usize], scale: &Constant, along: i64) -> Result<Vec<usize>, String> {
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

/// (x − zero point) · scale, one of each or one for each index along an axis.
pub(super) fn dequantize(
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
