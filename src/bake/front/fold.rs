//! Operations on constants at build time. They compute in the type of the constants and are named
//! as in ONNX.

use super::constant::{ConstantTensor, Data, Element, Int, Scales, elements, repeated, together};
use super::value::axis;

/// Converts integers to sizes.
pub(super) fn sizes(numbers: &[i64]) -> Result<Vec<usize>, String> {
    let sizes: Option<Vec<usize>> = numbers.iter().map(|&n| usize::try_from(n).ok()).collect();
    sizes.ok_or_else(|| format!("expected sizes of 0 or more, found {numbers:?}"))
}

/// Computes an operation on two integers. The result wraps around in the type `kind`. A power that
/// leaves the type's range is an error.
///
/// An operand may be the unknown number of records, if the result is a known integer or that number
/// again.
pub(super) fn integers(op: &str, kind: Element, a: Int, b: Int) -> Result<Int, String> {
    use Int::{Known, Records};
    let truth = |truth: bool| Ok(Known(truth.into()));
    match (op, a, b) {
        ("Mul", Records, Known(1)) | ("Mul", Known(1), Records) | ("Div", Records, Known(1)) => {
            Ok(Records)
        }
        ("Add", Records, Known(0)) | ("Add", Known(0), Records) | ("Sub", Records, Known(0)) => {
            Ok(Records)
        }
        ("Min" | "Max", Records, Records) => Ok(Records),
        ("Div" | "Equal", Records, Records) => Ok(Known(1)),
        ("Sub", Records, Records) => Ok(Known(0)),
        // The number of records is at least 1, so its comparison with a number below 1 is known.
        ("Equal", Records, Known(i)) | ("Equal", Known(i), Records) if i < 1 => Ok(Known(0)),
        ("Greater", Records, Known(i)) | ("Less", Known(i), Records) if i < 1 => Ok(Known(1)),
        ("Max", Records, Known(i)) | ("Max", Known(i), Records) if i <= 1 => Ok(Records),
        (_, Records, _) | (_, _, Records) => Err(format!(
            "{op} with the number of records, which is known at run time only"
        )),
        ("Min", Known(a), Known(b)) => Ok(Known(a.min(b))),
        ("Max", Known(a), Known(b)) => Ok(Known(a.max(b))),
        ("Equal", Known(a), Known(b)) => truth(a == b),
        ("Greater", Known(a), Known(b)) => truth(a > b),
        ("Less", Known(a), Known(b)) => truth(a < b),
        ("And", Known(a), Known(b)) => truth(a != 0 && b != 0),
        ("Or", Known(a), Known(b)) => truth(a != 0 || b != 0),
        (_, Known(a), Known(b)) => {
            let (a, b) = (i128::from(a), i128::from(b));
            let exact = match op {
                "Add" | "Sum" => Some(a + b),
                "Sub" => Some(a - b),
                "Mul" => Some(a * b),
                "Div" => a.checked_div(b),
                "Fmod" => a.checked_rem(b),
                // The result of `Mod` has the sign of the divisor, that of `Fmod` the sign of the
                // dividend.
                "Mod" => a.checked_rem(b).map(|r| {
                    if r != 0 && (r < 0) != (b < 0) {
                        r + b
                    } else {
                        r
                    }
                }),
                // A power out of range is an error, because the results of other programs depend on
                // the machine.
                "Pow" => u32::try_from(b)
                    .ok()
                    .and_then(|b| a.checked_pow(b))
                    .filter(|n| {
                        kind.range()
                            .is_some_and(|(low, high)| (low..=high).contains(n))
                    }),
                _ => return Err(format!("{op} of integers is not computed")),
            };
            let exact = exact.ok_or_else(|| {
                format!(
                    "{op} of {a} and {b}: the result is not a number of type {}",
                    kind.name()
                )
            })?;
            kind.wrapped(exact).map(Known)
        }
    }
}

/// Computes an element-wise operation on two constants, which are broadcast to common sizes. Both
/// have the same type, except for `Pow`.
pub(super) fn two(
    op: &str,
    a: &ConstantTensor,
    b: &ConstantTensor,
) -> Result<ConstantTensor, String> {
    let meet = || format!("sizes {:?} and {:?} do not match", a.dims, b.dims);
    let dims = together(&a.dims, &b.dims).ok_or_else(meet)?;
    let at = |c: &ConstantTensor| repeated(&c.dims, &dims).ok_or_else(meet);
    let (at_a, at_b) = (at(a)?, at(b)?);
    if a.kind != b.kind && op != "Pow" {
        return Err(format!(
            "expected inputs of one type, found {} and {}",
            a.kind.name(),
            b.kind.name()
        ));
    }
    let compares = matches!(op, "Equal" | "Greater" | "Less" | "And" | "Or");
    let kind = if compares { Element::Bool } else { a.kind };
    if let (Data::Ints(x), Data::Ints(y)) = (&a.data, &b.data) {
        let numbers: Result<Vec<Int>, String> = at_a
            .iter()
            .zip(&at_b)
            .map(|(&i, &j)| integers(op, kind, x[i], y[j]))
            .collect();
        return Ok(ConstantTensor::new(kind, dims, Data::Ints(numbers?)));
    }
    let (x, y) = (a.numbers()?, b.numbers()?);
    let truth = |f: fn(f64, f64) -> bool| {
        let list = at_a
            .iter()
            .zip(&at_b)
            .map(|(&i, &j)| Int::Known(f(x[i], y[j]).into()));
        Ok(ConstantTensor::new(
            kind,
            dims.clone(),
            Data::Ints(list.collect()),
        ))
    };
    let f: fn(f64, f64) -> f64 = match op {
        "Add" | "Sum" => |a, b| a + b,
        "Sub" => |a, b| a - b,
        "Mul" => |a, b| a * b,
        "Div" => |a, b| a / b,
        "Fmod" => libm::fmod,
        "Mod" => return Err("fmod: expected 1 for floats, found 0".into()),
        "Min" => |a, b| if a.is_nan() || a < b { a } else { b },
        "Max" => |a, b| if a.is_nan() || a > b { a } else { b },
        "Pow" => libm::pow,
        "Equal" => return truth(|a, b| a == b),
        "Greater" => return truth(|a, b| a > b),
        "Less" => return truth(|a, b| a < b),
        _ => return Err(format!("{op} of floats is not computed")),
    };
    let numbers = at_a.iter().zip(&at_b).map(|(&i, &j)| f(x[i], y[j]));
    if !kind.float() {
        // Only `Pow` with an integer base and a float exponent comes here.
        return ConstantTensor::new(Element::F64, dims, Data::Floats(numbers.collect())).cast(kind);
    }
    Ok(ConstantTensor::rounded(kind, dims, numbers))
}

/// Computes an element-wise operation on one constant.
pub(super) fn one(op: &str, c: &ConstantTensor) -> Result<ConstantTensor, String> {
    if let (Data::Ints(_), "Neg" | "Abs" | "Not" | "Relu") = (&c.data, op) {
        let f = |i: i64| match op {
            "Neg" => c.kind.wrapped(-i128::from(i)),
            "Abs" => c.kind.wrapped(i128::from(i).abs()),
            "Relu" => Ok(i.max(0)),
            _ => Ok(i64::from(i == 0)),
        };
        let ints = c
            .integers()?
            .into_iter()
            .map(|i| f(i).map(Int::Known))
            .collect::<Result<_, _>>()?;
        return Ok(ConstantTensor::new(
            c.kind,
            c.dims.clone(),
            Data::Ints(ints),
        ));
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
    mapped(c, op, f)
}

/// Applies a function to each element of a constant of floats.
pub(super) fn mapped(
    c: &ConstantTensor,
    op: &str,
    f: impl Fn(f64) -> f64,
) -> Result<ConstantTensor, String> {
    match c.kind.float() {
        true => Ok(ConstantTensor::rounded(
            c.kind,
            c.dims.clone(),
            c.numbers()?.into_iter().map(f),
        )),
        false => Err(format!("{op}: expected floats, found {}", c.kind.name())),
    }
}

/// Computes the sum, product, mean or maximum along axes. An empty `axes` stands for all axes. A
/// reduced axis stays with size 1 if `keep` is true, else it is left out.
pub(super) fn reduced(
    op: &str,
    c: &ConstantTensor,
    axes: &[i64],
    keep: bool,
) -> Result<ConstantTensor, String> {
    let rank = c.dims.len();
    let mut gone = vec![axes.is_empty(); rank];
    for &a in axes {
        gone[axis(a, rank)?] = true;
    }
    let kept: Vec<usize> = c
        .dims
        .iter()
        .zip(&gone)
        .map(|(&d, &g)| if g { 1 } else { d })
        .collect();
    let many = elements(&kept).ok_or("too many elements")?;
    let count = c.len().checked_div(many).unwrap_or(0);
    if count == 0 && op != "ReduceSum" && op != "ReduceProd" {
        return Err(format!("{op} of no elements"));
    }
    let groups = Groups {
        op,
        kind: c.kind,
        into: repeated(&kept, &c.dims).ok_or("too many elements")?,
        many,
        count,
    };
    let data = match &c.data {
        Data::Floats(v) => Data::Floats(groups.floats(v)),
        Data::Ints(v) if v.contains(&Int::Records) => Data::Ints(groups.of_records(v)?),
        Data::Ints(v) => Data::Ints(groups.ints(v)?),
        Data::Texts(_) => return Err("expected numbers, found texts".into()),
    };
    let result = ConstantTensor::new(c.kind, kept, data);
    let left = c
        .dims
        .iter()
        .zip(&gone)
        .filter(|(_, g)| !**g)
        .map(|(&d, _)| d);
    Ok(if keep {
        result
    } else {
        result.with_dims(left.collect())
    })
}

/// The elements of a constant, divided into groups. A reduction computes one number for each group.
struct Groups<'o> {
    op: &'o str,
    kind: Element,
    /// For each element of the constant, the index of its group.
    into: Vec<usize>,
    /// The number of groups.
    many: usize,
    /// The number of elements in each group.
    count: usize,
}

impl Groups<'_> {
    fn floats(&self, numbers: &[f64]) -> Vec<f64> {
        let start = match self.op {
            "ReduceProd" => 1.0,
            "ReduceMax" => f64::NEG_INFINITY,
            _ => 0.0,
        };
        let mut sums = vec![start; self.many];
        for (&x, &i) in numbers.iter().zip(&self.into) {
            let sum = &mut sums[i];
            *sum = match self.op {
                "ReduceProd" => self.kind.rounded(*sum * x),
                "ReduceMax" if x.is_nan() || x > *sum => x,
                "ReduceMax" => *sum,
                _ => *sum + x,
            };
        }
        if self.op == "ReduceMean" {
            sums.iter_mut().for_each(|sum| *sum /= self.count as f64);
        }
        sums.into_iter().map(|x| self.kind.rounded(x)).collect()
    }

    /// Reduces integers, some of which are the unknown number of records. Only sums and products
    /// are supported.
    fn of_records(&self, ints: &[Int]) -> Result<Vec<Int>, String> {
        let op = self.op;
        let (step, start) = match op {
            "ReduceProd" => ("Mul", Int::Known(1)),
            "ReduceSum" => ("Add", Int::Known(0)),
            _ => return Err(format!("{op} of the number of records is not supported")),
        };
        let mut sums = vec![start; self.many];
        for (&x, &i) in ints.iter().zip(&self.into) {
            sums[i] = integers(step, self.kind, sums[i], x)?;
        }
        Ok(sums)
    }

    /// Reduces known integers. A result out of the type's range is an error, because other programs
    /// disagree: ONNX Runtime 1.32 gives the largest integer, ONNX's reference wraps around.
    fn ints(&self, ints: &[Int]) -> Result<Vec<Int>, String> {
        let leaves = || {
            format!(
                "{} of {}: the result leaves the range of the type",
                self.op,
                self.kind.name()
            )
        };
        let start = match self.op {
            "ReduceProd" => 1,
            "ReduceMax" => i128::from(i64::MIN),
            _ => 0,
        };
        let mut sums = vec![start; self.many];
        for (&x, &i) in ints.iter().zip(&self.into) {
            let Int::Known(x) = x else { continue };
            let (sum, x) = (sums[i], i128::from(x));
            sums[i] = match self.op {
                "ReduceProd" => sum.checked_mul(x).ok_or_else(leaves)?,
                "ReduceMax" => sum.max(x),
                _ => sum + x,
            };
        }
        let (low, high) = self.kind.range().ok_or_else(leaves)?;
        let known = |sum: i128| {
            let sum = match self.op {
                "ReduceMean" => sum / self.count as i128,
                _ => sum,
            };
            let fits = (low..=high).contains(&sum);
            let known = i64::try_from(sum).ok().filter(|_| fits);
            known.map(Int::Known).ok_or_else(leaves)
        };
        sums.into_iter().map(known).collect()
    }
}

/// Returns the index of the largest number along an axis. Among equal numbers it is the first, or
/// the last if `last` is true. The reduced axis stays with size 1 if `keep` is true, else it is
/// left out.
pub(super) fn argmax(
    c: &ConstantTensor,
    along: i64,
    keep: bool,
    last: bool,
) -> Result<ConstantTensor, String> {
    let a = axis(along, c.dims.len())?;
    let (count, inner) = (c.dims[a], c.dims[a + 1..].iter().product::<usize>());
    let numbers = c.numbers()?;
    if numbers.is_empty() {
        return Err("the largest of no elements".into());
    }
    let best = |at: usize| {
        let along = |i: usize| numbers[at / inner * count * inner + i * inner + at % inner];
        (1..count).fold(0, |best, i| {
            match along(i) > along(best) || (last && along(i) == along(best)) {
                true => i,
                false => best,
            }
        })
    };
    let indices = (0..numbers.len() / count)
        .map(|at| best(at) as i64)
        .collect();
    let mut dims = c.dims.clone();
    dims[a] = 1;
    if !keep {
        dims.remove(a);
    }
    Ok(ConstantTensor::ints(dims, indices))
}

/// Gives a constant the sizes `target`. -1 stands for the size that the other sizes leave. 0 stands
/// for the constant's own size at that axis, or for an empty axis if `zero` is true.
pub(super) fn reshape(
    c: &ConstantTensor,
    target: &[i64],
    zero: bool,
) -> Result<ConstantTensor, String> {
    let wrong = || format!("sizes {:?} cannot be reshaped to {target:?}", c.dims);
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

/// Computes the sizes after `Squeeze`, which removes axes of size 1, or `Unsqueeze`, which inserts
/// them. Without `axes`, `Squeeze` removes every axis of size 1.
pub(super) fn squeezed(
    op: &str,
    dims: &[usize],
    axes: Option<&[i64]>,
) -> Result<Vec<usize>, String> {
    let rank = dims.len()
        + if op == "Unsqueeze" {
            axes.map_or(0, <[i64]>::len)
        } else {
            0
        };
    let axes = axes
        .map(|axes| {
            axes.iter()
                .map(|&a| axis(a, rank))
                .collect::<Result<Vec<_>, _>>()
        })
        .transpose()?;
    if op == "Unsqueeze" {
        let mut rest = dims.iter();
        let axes = axes.ok_or("expected axes, found nothing")?;
        let one = |i| {
            if axes.contains(&i) {
                Some(1)
            } else {
                rest.next().copied()
            }
        };
        let sizes: Option<Vec<usize>> = (0..rank).map(one).collect();
        return sizes.ok_or_else(|| "axes: expected each once".into());
    }
    match axes {
        Some(axes) => {
            if let Some(&a) = axes.iter().find(|&&a| dims[a] != 1) {
                return Err(format!(
                    "axis {a} has size {}, only 1 can be left out",
                    dims[a]
                ));
            }
            Ok(dims
                .iter()
                .enumerate()
                .filter(|(i, _)| !axes.contains(i))
                .map(|(_, &d)| d)
                .collect())
        }
        None => Ok(dims.iter().copied().filter(|&d| d != 1).collect()),
    }
}

/// Transposes a constant. Axis i of the result is axis `order[i]` of the operand.
pub(super) fn transpose(c: &ConstantTensor, order: &[usize]) -> ConstantTensor {
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

/// Concatenates constants along an axis.
pub(super) fn concat(parts: &[&ConstantTensor], along: i64) -> Result<ConstantTensor, String> {
    let first = parts.first().ok_or("expected inputs, found nothing")?;
    let a = axis(along, first.dims.len())?;
    let rest = |c: &ConstantTensor| {
        let mut dims = c.dims.clone();
        if a < dims.len() {
            dims.remove(a);
        }
        dims
    };
    if parts
        .iter()
        .any(|p| p.dims.len() != first.dims.len() || rest(p) != rest(first))
    {
        return Err("expected constants that differ along the axis only".into());
    }
    let mut dims = first.dims.clone();
    dims[a] = parts.iter().map(|p| p.dims[a]).sum();
    let inner: usize = dims[a + 1..].iter().product();
    let outer: usize = dims[..a].iter().product();
    // `begin` has the offset of each part in the joined data of all parts.
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
    let kind = first.kind;
    if let Some(other) = parts.iter().find(|p| p.kind != kind) {
        return Err(format!(
            "expected inputs of one type, found {} and {}",
            kind.name(),
            other.kind.name()
        ));
    }
    let mut joined = first.data.clone();
    for part in &parts[1..] {
        joined.extend(&part.data);
    }
    Ok(ConstantTensor::new(kind, vec![all], joined).pick(dims, &at))
}

/// Selects elements of `c` along an axis by the indices in `at`. The axes of `at` replace that axis
/// in the result.
pub(super) fn gather(
    c: &ConstantTensor,
    at: &ConstantTensor,
    along: i64,
) -> Result<ConstantTensor, String> {
    let a = axis(along, c.dims.len())?;
    let n = c.dims[a];
    let indices: Vec<usize> = at
        .integers()?
        .into_iter()
        .map(|i| axis(i, n).map_err(|_| format!("expected one of {n} indices, found {i}")))
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

/// Returns the indices that a slice selects along an axis of size `n`.
pub(super) fn sliced(start: i64, end: i64, step: i64, n: usize) -> Result<Vec<usize>, String> {
    let n = n as i64;
    let from_end = |i: i64| if i < 0 { i.saturating_add(n) } else { i };
    if step == 0 {
        return Err("expected a step other than 0".into());
    }
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let (mut i, end) = (
        from_end(start).clamp(low.max(0), high.max(0)),
        from_end(end).clamp(low, high),
    );
    let mut at = Vec::new();
    while i < n && ((step > 0 && i < end) || (step < 0 && i > end)) {
        at.push(i as usize);
        i = i.saturating_add(step);
    }
    Ok(at)
}

/// Slices a constant along several axes. If `axes` is `None`, the slices are for the first axes. If
/// `steps` is `None`, each step is 1.
pub(super) fn slice(
    c: &ConstantTensor,
    starts: &[i64],
    ends: &[i64],
    axes: Option<Vec<i64>>,
    steps: Option<Vec<i64>>,
) -> Result<ConstantTensor, String> {
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()]
        .iter()
        .any(|&n| n != starts.len())
    {
        return Err("expected as many starts as ends, axes and steps".into());
    }
    let mut result = c.clone();
    for (((&start, &end), &along), &step) in starts.iter().zip(ends).zip(&axes).zip(&steps) {
        let a = axis(along, c.dims.len())?;
        let at = sliced(start, end, step, result.dims[a])?;
        let at = ConstantTensor::ints(vec![at.len()], at.into_iter().map(|i| i as i64).collect());
        result = gather(&result, &at, a as i64)?;
    }
    Ok(result)
}

/// Returns for each element the index of its quantization scale. There is one scale for all
/// elements, or one for each index along an axis. If `block` is not 0, each run of `block`
/// neighbours along the axis shares a scale.
pub(super) fn scale_of(
    dims: &[usize],
    scale: &ConstantTensor,
    along: i64,
    block: i64,
) -> Result<Vec<usize>, String> {
    let all = 0..elements(dims).unwrap_or(0);
    if block == 0 && scale.len() == 1 {
        return Ok(vec![0; all.len()]);
    }
    let a = axis(along, dims.len())?;
    let (n, inner) = (dims[a], dims[a + 1..].iter().product::<usize>());
    if block != 0 {
        let found = usize::try_from(block).ok().filter(|&b| b > 0);
        let block =
            found.ok_or_else(|| format!("block_size: expected 1 or more, found {block}"))?;
        let count = n.div_ceil(block);
        let expected = [&dims[..a], &[count], &dims[a + 1..]].concat();
        if scale.dims != expected {
            return Err(format!(
                "expected scales of sizes {expected:?}, found {:?}",
                scale.dims
            ));
        }
        return Ok(all
            .map(|i| (i / inner / n * count + i / inner % n / block) * inner + i % inner)
            .collect());
    }
    if scale.dims.len() != 1 || scale.len() != n {
        return Err(format!(
            "expected one scale or {n}, found sizes {:?}",
            scale.dims
        ));
    }
    Ok(all.map(|i| i / inner % n).collect())
}

/// Dequantizes a constant: (x − zero point) · scale. There is a zero point for each scale.
/// [`scale_of`] assigns the scales to the elements.
pub(super) fn dequantize(
    x: &ConstantTensor,
    scale: &ConstantTensor,
    zero: Option<&ConstantTensor>,
    along: i64,
    block: i64,
) -> Result<ConstantTensor, String> {
    let (numbers, scales, of) = (
        x.numbers()?,
        scale.numbers()?,
        scale_of(&x.dims, scale, along, block)?,
    );
    let zeros = zero.map_or_else(|| Ok(vec![0.0; scales.len()]), ConstantTensor::numbers)?;
    if zeros.len() != scales.len() {
        return Err(format!(
            "expected {} zero points, found {}",
            scales.len(),
            zeros.len()
        ));
    }
    let result = numbers
        .iter()
        .zip(of)
        .map(|(v, i)| (v - zeros[i]) * scales[i]);
    let mut real = ConstantTensor::rounded(scale.kind, x.dims.clone(), result);
    let rank = x.dims.len();
    let axis = match scales.len() {
        1 => Some(rank.saturating_sub(1)),
        _ => axis(along, rank).ok(),
    };
    real.scales = axis
        .filter(|_| block == 0)
        .map(|axis| Scales { list: scales, axis });
    Ok(real)
}
