//! Operations on tensors that several model formats share. An axis number leaves out the axis of
//! the records and is an index in `Live::dims`.

use super::builder::{Builder, per_element, run};
use super::constant::{self, ConstantTensor, Element};
use super::fold;
use super::resample::{self, Tap};
use super::value::{Live, shape_of, standard};
use crate::bake::draft::Array;
use crate::ir::graph::{Role, Shape};
use crate::ir::op::{Activation, Arithmetic, Axis, Float, OfChannels, Op, Padding, Pool, Window};
use crate::ir::view::MOST_SIDE;

/// The largest size, stride, dilation or border that a front end accepts.
pub(super) const MOST: usize = 1 << 20;

/// Makes the activation that limits x to a range. If `low` is above `high`, the result is `high`.
pub(super) fn clip(low: f64, high: f64) -> Activation {
    let (low, high) = ((low.min(high)) as f32, high as f32);
    // f32's largest and smallest number stand for no limit.
    let high = if high >= f32::MAX {
        f32::INFINITY
    } else {
        high
    };
    let low = if low <= f32::MIN {
        f32::NEG_INFINITY
    } else {
        low
    };
    if low == 0.0 && high == f32::INFINITY {
        return Activation::Relu;
    }
    Activation::Clip {
        low: Float::new(low),
        high: Float::new(high),
    }
}

/// PReLU: x where x is above 0, else x times a constant slope.
pub(super) fn prelu(
    b: &mut Builder,
    name: &str,
    live: &Live,
    slope: &ConstantTensor,
) -> Result<Live, String> {
    let slopes = b.against(live, slope)?;
    if let ([one], 1) = (&slopes[..], slope.len()) {
        return b.activation(name, live, Activation::LeakyRelu(Float::new(*one as f32)));
    }
    let value = b.standard(name, live)?;
    let slopes = per_element(Role::Factors, slopes, live);
    let value = b.push(name, Op::PRelu, &[value], vec![slopes])?;
    Ok(live.with_value(value))
}

/// Builds arithmetic on a tensor and a constant. `first` is true if the constant is the first
/// operand.
pub(super) fn with_constant(
    b: &mut Builder,
    name: &str,
    arithmetic: Arithmetic,
    x: &Live,
    c: &ConstantTensor,
    first: bool,
) -> Result<Live, String> {
    let x = &match constant::together(&x.whole(), &c.dims) {
        Some(sizes) if sizes != x.whole() => expanded(b, name, x, &sizes)?,
        _ => x.clone(),
    };
    let numbers = b.against(x, c)?;
    let all = |f: fn(f64) -> f64| numbers.iter().map(|&n| f(n)).collect::<Vec<_>>();
    match (arithmetic, first) {
        (Arithmetic::Add, _) => b.scale(name, x, &[1.0], &numbers),
        (Arithmetic::Subtract, false) => b.scale(name, x, &[1.0], &all(|n| -n)),
        (Arithmetic::Subtract, true) => b.scale(name, x, &[-1.0], &numbers),
        (Arithmetic::Multiply, _) => b.scale(name, x, &numbers, &[0.0]),
        (Arithmetic::Divide, false) => b.scale(name, x, &all(|n| 1.0 / n), &[0.0]),
        _ => Err("a constant divided by a value computed from the record is not supported".into()),
    }
}

/// Repeats a tensor along its axes of size 1, up to `sizes`. `sizes` has a 1 for the axis of the
/// records. Axes that the tensor lacks are added in front.
pub(super) fn expanded(
    b: &mut Builder,
    name: &str,
    x: &Live,
    sizes: &[usize],
) -> Result<Live, String> {
    let mut x = led(x, sizes.len());
    let mut dims = sizes.to_vec();
    if let Some(r) = x.records {
        if dims.remove(r) != 1 {
            return Err(format!(
                "a constant of sizes {sizes:?} does not match a value of {}: it has a row for \
                 each record",
                x.shown()
            ));
        }
    }
    if constant::elements(&dims).is_none() {
        return Err("more values than a program can hold".into());
    }
    for (a, n) in dims.into_iter().enumerate() {
        if x.dims[a] != n {
            x = along(b, name, &x, a, &vec![0; n])?;
        }
    }
    Ok(x)
}

/// Gives a tensor `rank` axes, with the axis of the records. Missing axes are added in front, with
/// size 1.
pub(super) fn led(x: &Live, rank: usize) -> Live {
    let ahead = rank.saturating_sub(x.rank());
    Live {
        dims: [vec![1; ahead], x.dims.clone()].concat(),
        records: x.records.map(|r| r + ahead),
        ..x.clone()
    }
}

/// Builds arithmetic on two tensors. Either is repeated along axes of size 1 to match the other.
pub(super) fn combined(
    b: &mut Builder,
    name: &str,
    arithmetic: Arithmetic,
    x: &Live,
    y: &Live,
) -> Result<Live, String> {
    let shown = [x, y].map(Live::shown);
    let (x, y) = (&led(x, y.rank()), &led(y, x.rank()));
    if x.records != y.records {
        return Err(mismatch(x, &shown[0], y, &shown[1]));
    }
    let live = |value: usize, of: &Live| of.with_value(value);
    if x.dims == y.dims {
        // The tensors' sizes are equal, but their shapes in the draft may differ. Then `shaped`
        // reshapes `y`.
        let shape = b.draft.shape(x.value);
        let y = b.shaped(name, y.value, shape)?;
        return Ok(live(
            b.push(name, Op::Combine(arithmetic), &[x.value, y], Vec::new())?,
            x,
        ));
    }
    if let Some((whole, part)) = prefix(x, y) {
        let (xv, yv) = (
            b.shaped(name, x.value, whole)?,
            b.shaped(name, y.value, part)?,
        );
        return Ok(live(
            b.push(name, Op::Combine(arithmetic), &[xv, yv], Vec::new())?,
            x,
        ));
    }
    if let (Some((whole, part)), true) = (prefix(y, x), arithmetic != Arithmetic::Divide) {
        let (yv, xv) = (
            b.shaped(name, y.value, whole)?,
            b.shaped(name, x.value, part)?,
        );
        let exchanged = Op::Combine(arithmetic.exchanged());
        let value = b.push(name, exchanged, &[yv, xv], Vec::new())?;
        return match arithmetic {
            Arithmetic::Subtract => b.scale(name, &live(value, y), &[-1.0], &[0.0]),
            _ => Ok(live(value, y)),
        };
    }
    let Some(dims) = constant::together(&x.dims, &y.dims) else {
        return Err(mismatch(x, &x.shown(), y, &y.shown()));
    };
    let sizes = x.with_dims(dims.clone()).whole();
    if x.dims != dims && (y.dims != dims || arithmetic == Arithmetic::Divide) {
        let x = expanded(b, name, x, &sizes)?;
        return combined(b, name, arithmetic, &x, y);
    }
    // Transposes both tensors, so that `y` has one element for each channel of `x` (see `prefix`).
    if let Some(order) = shared_first(x, y).filter(|order| !order.is_sorted()) {
        let (front, other) = (b.transpose(name, x, &order)?, b.transpose(name, y, &order)?);
        let result = combined(b, name, arithmetic, &front, &other)?;
        let back: Vec<usize> = (0..order.len())
            .filter_map(|a| order.iter().position(|&o| o == a))
            .collect();
        return b.transpose(name, &result, &back);
    }
    let y = expanded(b, name, y, &sizes)?;
    combined(b, name, arithmetic, x, &y)
}

/// Returns the message why two tensors cannot be combined. `shown_x` and `shown_y` are their
/// formatted sizes.
pub(super) fn mismatch(x: &Live, shown_x: &str, y: &Live, shown_y: &str) -> String {
    let behind = |v: &Live| v.records.map(|r| v.rank() - r);
    if behind(x) != behind(y) {
        return format!(
            "values of {shown_x} and {shown_y}: axes are matched from the last one on, so the \
             axis of the records would be matched with another axis; give both as many axes"
        );
    }
    format!("the sizes of {shown_x} and {shown_y} do not match")
}

/// Returns an order of axes that puts last the axes along which one of two tensors must be
/// repeated. `None` if both must be repeated, or their sizes do not match.
fn shared_first(x: &Live, y: &Live) -> Option<Vec<usize>> {
    let (whole, part) = if x.len() < y.len() { (y, x) } else { (x, y) };
    if whole.dims.len() != part.dims.len()
        || part
            .dims
            .iter()
            .zip(&whole.dims)
            .any(|(p, w)| p != w && *p != 1)
    {
        return None;
    }
    let mut order: Vec<usize> = (0..whole.dims.len()).collect();
    order.sort_by_key(|&a| part.dims[a] != whole.dims[a]);
    Some(order)
}

/// Finds shapes for two tensors such that `y` has one element for each channel of `x`. `None` if
/// there are no such shapes.
fn prefix(x: &Live, y: &Live) -> Option<(Shape, Shape)> {
    let rank = x.dims.len();
    // Broadcasting matches axes from the last one on, with the axis of the records.
    if y.dims.len() != rank {
        return None;
    }
    let same = x
        .dims
        .iter()
        .zip(&y.dims)
        .take_while(|(a, b)| a == b)
        .count();
    if y.dims[same..].iter().any(|&d| d != 1) {
        return None;
    }
    let c: usize = x.dims[..same].iter().product();
    let standard = x.standard();
    let whole = if standard.c == c {
        standard
    } else {
        shape_of(c, 1, x.len() / c.max(1))
    };
    Some((whole, Shape::vector(c)))
}

/// Multiplies a matrix by the channels of each pixel. This is a 1 × 1 convolution.
pub(super) fn pointwise(
    b: &mut Builder,
    name: &str,
    x: &Live,
    weights: Vec<f64>,
    outputs: usize,
) -> Result<Live, String> {
    // Axis 0 is the channel axis, even if it has size 1. `Live::standard` may leave it out then.
    let value = b.shaped(name, x.value, standard(&x.dims))?;
    let arrays = Array::of_layer(weights, vec![0.0; outputs]);
    let op = Op::Convolution {
        window: Window::of((1, 1)),
        groups: 1,
    };
    let value = b.push(name, op, &[value], arrays)?;
    Ok(Live {
        kind: Element::F32,
        ..x.spliced(0, &[outputs]).with_value(value)
    })
}

/// Multiplies a matrix of `outputs` rows by each vector along the last axis of `x`.
pub(super) fn product(
    b: &mut Builder,
    name: &str,
    x: &Live,
    weights: Vec<f64>,
    outputs: usize,
) -> Result<Live, String> {
    let Some((&inner, ahead)) = x.dims.split_last() else {
        return Err("expected a value of at least two axes".into());
    };
    let count = ahead.iter().product();
    let dims = [ahead, &[outputs]].concat();
    if count == 1 {
        let y = b.affine(name, x, weights, vec![0.0; outputs])?;
        return Ok(y.with_dims(dims));
    }
    // The axis of the sum becomes the channel axis, so that a 1 × 1 convolution computes the
    // product.
    let flat = Live::new(x.value, vec![count, inner], x.kind);
    let turned = b.transpose(name, &flat, &[1, 0])?;
    let y = pointwise(b, name, &turned, weights, outputs)?;
    let back = b.transpose(name, &y, &[1, 0])?;
    Ok(Live {
        kind: y.kind,
        ..x.with_dims(dims).with_value(back.value)
    })
}

/// Builds a function of all numbers along an axis. The height of `shape` is the size of that axis.
/// Its channels are the product of the sizes before the axis, and its width that of the sizes
/// behind.
pub(super) fn of_axis(
    b: &mut Builder,
    name: &str,
    x: &Live,
    shape: Shape,
    of: OfChannels,
) -> Result<Live, String> {
    if shape.c == 1 {
        // All axes before the axis have size 1, so the axis can be the channel axis.
        let shape = match x.standard() {
            standard if standard.c == shape.h => standard,
            _ => shape_of(shape.h, 1, shape.w),
        };
        let value = b.shaped(name, x.value, shape)?;
        return Ok(x.with_value(b.push(name, Op::OfChannels(of), &[value], Vec::new())?));
    }
    // Transposes the axis to the front, and the result back.
    let (dims, order): (Vec<usize>, &[usize]) = match shape.w {
        1 => (vec![shape.c, shape.h], &[1, 0]),
        w => (vec![shape.c, shape.h, w], &[1, 0, 2]),
    };
    let front = b.transpose(name, &Live::new(x.value, dims, x.kind), order)?;
    let from = b.standard(name, &front)?;
    let value = b.push(name, Op::OfChannels(of), &[from], Vec::new())?;
    let back = b.transpose(name, &front.with_value(value), order)?;
    Ok(x.with_value(back.value))
}

/// Concatenates tensors along axis `a`.
pub(super) fn concat(
    b: &mut Builder,
    name: &str,
    parts: &[Live],
    a: usize,
) -> Result<Live, String> {
    let first = parts
        .first()
        .cloned()
        .ok_or("expected inputs, found nothing")?;
    let without = |x: &Live| {
        x.dims
            .iter()
            .enumerate()
            .filter(|(axis, _)| *axis != a)
            .map(|(_, &d)| d)
            .collect::<Vec<_>>()
    };
    if let Some(other) = parts
        .iter()
        .find(|p| p.dims.len() != first.dims.len() || without(p) != without(&first))
    {
        return Err(format!(
            "values of {} and {}: expected sizes that differ along the axis only",
            first.shown(),
            other.shown()
        ));
    }
    let mut dims = first.dims.clone();
    dims[a] = parts.iter().map(|p| p.dims[a]).sum();
    let result = |value: usize| first.with_dims(dims.clone()).with_value(value);
    if let [_] = parts {
        return Ok(first);
    }
    let shape = Builder::around(&first, a);
    // If all axes before `a` have size 1, `a` is the channel axis. Images keep their shape.
    let channels = shape.c == 1;
    let one = first.standard();
    let image = |p: &Live| {
        let standard = p.standard();
        standard.c == p.dims[a] && (standard.h, standard.w) == (one.h, one.w)
    };
    let images = parts.iter().all(image);
    let mut values = Vec::new();
    for p in parts {
        let shape = match (channels, p.standard()) {
            (true, standard) if images => standard,
            (true, _) => shape_of(p.dims[a], 1, shape.w),
            _ => Builder::around(p, a),
        };
        values.push(b.shaped(name, p.value, shape)?);
    }
    let along = if channels { Axis::C } else { Axis::Y };
    Ok(result(b.push(
        name,
        Op::Concat(along),
        &values,
        Vec::new(),
    )?))
}

/// The sizes of the border that padding adds before and behind one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) before: usize,
    pub(super) behind: usize,
}

impl Around {
    pub(super) const NONE: Around = Around {
        before: 0,
        behind: 0,
    };
}

/// Pads each axis with a constant number.
pub(super) fn pad(
    b: &mut Builder,
    name: &str,
    x: &Live,
    around: &[Around],
    value: f64,
) -> Result<Live, String> {
    let value = Float::new(value as f32);
    let dims: Vec<usize> = x
        .dims
        .iter()
        .zip(around)
        .map(|(d, p)| p.before + d + p.behind)
        .collect();
    if constant::elements(&dims).is_none() {
        return Err("more values than a program can hold".into());
    }
    let mut result = x.clone();
    // All axes of an image are padded by one node. Other axes need a node each.
    let padded = |a: &usize| around[*a] != Around::NONE;
    let axes: Option<Vec<(Axis, Around)>> = (0..around.len())
        .filter(padded)
        .map(|a| Some((image_axis(x, a)?, around[a])))
        .collect();
    if let Some(axes) = axes {
        let mut padding = Padding::default();
        for (axis, p) in axes {
            padding.before[axis as usize] = p.before;
            padding.behind[axis as usize] = p.behind;
        }
        let from = b.standard(name, x)?;
        result.value = b.push(name, Op::Pad { padding, value }, &[from], Vec::new())?;
        result.dims = dims;
        return Ok(result);
    }
    for (a, &around) in around.iter().enumerate() {
        if around == Around::NONE {
            continue;
        }
        let padding = Padding {
            before: [0, around.before, 0],
            behind: [0, around.behind, 0],
        };
        let from = b.shaped(name, result.value, Builder::around(&result, a))?;
        result.value = b.push(name, Op::Pad { padding, value }, &[from], Vec::new())?;
        result.dims[a] = dims[a];
    }
    Ok(result)
}

/// An axis is long above this size. If [`along`] selects from a small range of a long axis, it
/// first cuts that range out.
const SMALL: usize = 64;

/// Selects the elements with the indices `at` along axis `a`, in that order. An index may appear
/// more than once.
pub(super) fn along(
    b: &mut Builder,
    name: &str,
    x: &Live,
    a: usize,
    at: &[usize],
) -> Result<Live, String> {
    let shape = Builder::around(x, a);
    if at.iter().copied().eq(0..shape.h) {
        return Ok(x.clone());
    }
    let result = |value: usize| Ok(x.spliced(a, &[at.len()]).with_value(value));
    if let Some(first) = run(at).filter(|_| x.len() > shape.h) {
        return result(slice(b, name, x, a, first, at.len())?);
    }
    if let (Some(&first), Some(&last)) = (at.iter().min(), at.iter().max()) {
        // Cuts the used range out of a long axis first, so that the selection reads fewer elements.
        if shape.h > SMALL && last - first < shape.h / 2 {
            let part: Vec<usize> = (first..=last).collect();
            let rest: Vec<usize> = at.iter().map(|i| i - first).collect();
            let value = match x.len() == shape.h {
                true => b.select(name, x, &part)?.value,
                false => along(b, name, x, a, &part)?.value,
            };
            let part = x.spliced(a, &[part.len()]).with_value(value);
            return along(b, name, &part, a, &rest);
        }
    }
    let taps: Vec<Vec<Tap>> = at.iter().map(|&at| vec![Tap { at, weight: 1.0 }]).collect();
    if let Some(value) = resample::on_axis(b, name, x, a, &taps)? {
        return result(value);
    }
    result(match x.len() == shape.h {
        true => b.select(name, x, at)?.value,
        false => select_by_product(b, name, x, shape, at)?,
    })
}

/// Concatenates `times` copies of a tensor along axis `a`.
pub(super) fn repeated(
    b: &mut Builder,
    name: &str,
    x: &Live,
    a: usize,
    times: usize,
) -> Result<Live, String> {
    let n = x.dims[a];
    let count = n
        .checked_mul(times)
        .filter(|count| (1..=MOST).contains(count));
    let count = count.ok_or_else(|| format!("{n} elements cannot be repeated {times} times"))?;
    let at: Vec<usize> = (0..count).map(|i| i % n).collect();
    along(b, name, x, a, &at)
}

/// Replaces each element by the sum of all elements along axis `a` up to this one. If `exclusive`
/// is true, the sum leaves out the element itself. If `reverse` is true, sums begin at the end.
pub(super) fn cumulated(
    b: &mut Builder,
    name: &str,
    x: &Live,
    a: usize,
    exclusive: bool,
    reverse: bool,
) -> Result<Live, String> {
    let n = x.dims[a];
    let mut weights = vec![0.0; n * n];
    for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let (first, last) = if reverse { (i, j) } else { (j, i) };
        if first < last || (first == last && !exclusive) {
            weights[i * n + j] = 1.0;
        }
    }
    mixed(b, name, x, a, weights, n)
}

/// Returns the axis of the default shape ([`Live::standard`]) that axis `a` of a tensor becomes.
/// `None` if that shape leaves out axis `a`, or if the tensor has more than three axes.
pub(super) fn image_axis(x: &Live, a: usize) -> Option<Axis> {
    let image = x.behind_first().unwrap_or(&x.dims).len();
    match (image, a.checked_sub(x.dims.len() - image)?) {
        (1..=3, 0) => Some(Axis::C),
        (3, 1) => Some(Axis::Y),
        (2, 1) | (3, 2) => Some(Axis::X),
        _ => None,
    }
}

/// Slices `size` elements, from the index `first` on, along axis `a`. Images keep their shape.
fn slice(
    b: &mut Builder,
    name: &str,
    x: &Live,
    a: usize,
    first: usize,
    size: usize,
) -> Result<usize, String> {
    let image = image_axis(x, a).map(|axis| (axis, x.standard()));
    let (axis, shape) = image.unwrap_or((Axis::Y, Builder::around(x, a)));
    let from = b.shaped(name, x.value, shape)?;
    let slice = Op::Slice { axis, first, size };
    b.push(name, slice, &[from], Vec::new())
}

/// Selects elements by a product with a matrix whose rows have a single 1. The height of `shape` is
/// the axis that is selected from.
fn select_by_product(
    b: &mut Builder,
    name: &str,
    x: &Live,
    shape: Shape,
    at: &[usize],
) -> Result<usize, String> {
    let mut weights = vec![0.0; at.len() * shape.h];
    for (row, &i) in at.iter().enumerate() {
        weights[row * shape.h + i] = 1.0;
    }
    mixed_elements(b, name, x, shape, weights, at.len())
}

/// Multiplies a matrix of `outputs` rows by each vector along axis `a`.
pub(super) fn mixed(
    b: &mut Builder,
    name: &str,
    x: &Live,
    a: usize,
    weights: Vec<f64>,
    outputs: usize,
) -> Result<Live, String> {
    let value = mixed_elements(b, name, x, Builder::around(x, a), weights, outputs)?;
    Ok(x.spliced(a, &[outputs]).with_value(value))
}

/// Multiplies a matrix of `outputs` rows by each vector along the height of `x`, seen in `shape`.
/// Returns the index of the new value in the draft.
fn mixed_elements(
    b: &mut Builder,
    name: &str,
    x: &Live,
    shape: Shape,
    weights: Vec<f64>,
    outputs: usize,
) -> Result<usize, String> {
    let image = x.standard();
    if shape.c == 1 && image.c == shape.h {
        let flat = Live::new(x.value, vec![image.c, image.h, image.w], x.kind);
        return Ok(pointwise(b, name, &flat, weights, outputs)?.value);
    }
    let around = Live::new(x.value, vec![shape.c, shape.h, shape.w], x.kind);
    let front = b.transpose(name, &around, &[1, 0, 2])?;
    let y = pointwise(b, name, &front, weights, outputs)?;
    Ok(b.transpose(name, &y, &[1, 0, 2])?.value)
}

/// Removes or inserts axes of size 1 ([`fold::squeezed`]).
pub(super) fn squeezed(op: &str, x: &Live, axes: Option<&[i64]>) -> Result<Live, String> {
    // Stands for the size of the axis of the records. It is not 1, so that axis is never removed.
    const RECORDS: usize = usize::MAX;
    let mut whole = x.dims.clone();
    if let Some(r) = x.records {
        whole.insert(r, RECORDS);
    }
    let mut dims = fold::squeezed(op, &whole, axes).map_err(|e| {
        if e.contains(&RECORDS.to_string()) {
            format!("an axis of {} is the axis of the records", x.shown())
        } else {
            e
        }
    })?;
    let records = dims.iter().position(|&d| d == RECORDS);
    if let Some(r) = records {
        dims.remove(r);
    }
    Ok(Live {
        dims,
        records,
        ..x.clone()
    })
}

/// Returns the number of axes of an image without the channel axis: 1 or 2.
pub(super) fn image(x: &Live) -> Result<usize, String> {
    match x.dims.len() {
        n @ 2..=3 => Ok(n - 1),
        _ => Err(format!(
            "expected [N, C, H, W] or [N, C, L], found {}",
            x.shown()
        )),
    }
}

/// Returns the tensor for the output `value` of a node on the image `x`. It has as many axes as
/// `x`.
fn imaged(b: &Builder, value: usize, x: &Live) -> Live {
    let Shape { c, h, w } = b.draft.shape(value);
    let dims = if x.dims.len() == 2 {
        vec![c, w]
    } else {
        vec![c, h, w]
    };
    x.with_dims(dims).with_value(value)
}

/// Returns the border for SAME padding: the rows or columns on both sides together. With it, a
/// window of `size` over `n` elements gives n / stride results, rounded up.
pub(super) fn same(n: usize, size: usize, stride: usize, dilation: usize) -> usize {
    let covered = (n.div_ceil(stride) - 1) * stride + (size - 1) * dilation + 1;
    covered.saturating_sub(n)
}

/// Adds a convolution node. A row of `weights` has the order y, x, input channel of the group.
pub(super) fn convolution(
    b: &mut Builder,
    name: &str,
    x: &Live,
    weights: Vec<f64>,
    biases: Vec<f64>,
    window: Window,
    groups: usize,
) -> Result<Live, String> {
    let arrays = Array::of_layer(weights, biases);
    let from = b.standard(name, x)?;
    let value = b.push(name, Op::Convolution { window, groups }, &[from], arrays)?;
    Ok(imaged(b, value, x))
}

/// Adds a pooling node, which computes the maximum or the mean of each window.
pub(super) fn pool(
    b: &mut Builder,
    name: &str,
    x: &Live,
    kind: Pool,
    window: Window,
) -> Result<Live, String> {
    let from = b.standard(name, x)?;
    let value = b.push(name, Op::Pool { kind, window }, &[from], Vec::new())?;
    Ok(imaged(b, value, x))
}

/// The ways to reduce an axis to one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    Mean,
    Max,
    Sum,
}

/// Computes the mean, maximum or sum along axes. A reduced axis stays with size 1 if `keep` is
/// true, else it is left out.
pub(super) fn reduce(
    b: &mut Builder,
    name: &str,
    x: &Live,
    mut axes: Vec<usize>,
    of: Reduction,
    keep: bool,
) -> Result<Live, String> {
    axes.sort_unstable();
    axes.dedup();
    let (Some(&first), Some(&last)) = (axes.first(), axes.last()) else {
        return Ok(x.clone());
    };
    if last - first + 1 != axes.len() {
        // Axes that are not adjacent are reduced one after the other.
        let (&last, others) = axes.split_last().unwrap_or((&last, &[]));
        let inner = reduce(b, name, x, vec![last], of, keep)?;
        return reduce(b, name, &inner, others.to_vec(), of, keep);
    }
    let product = |d: &[usize]| d.iter().product();
    let count: usize = product(&x.dims[first..=last]);
    let long = || {
        (1..=MOST_SIDE)
            .rev()
            .find(|n| count % n == 0 && count / n <= MOST_SIDE)
    };
    if let Some(factor) = (count > MOST_SIDE).then(long).flatten() {
        let value = in_two_steps(b, name, x, &axes, (count / factor, factor), of)?;
        return Ok(reduced(x.with_value(value), &axes, keep));
    }
    let all = shape_of(
        product(&x.dims[..first]),
        count,
        product(&x.dims[last + 1..]),
    );
    let image = x.standard();
    // The pooling window covers all pixels of an image. Otherwise it covers all rows of the shape
    // `all`, in which the reduced axes are joined to rows.
    let (shape, size) = match all.w {
        1 if image.c == all.c => (image, (image.h, image.w)),
        _ => (all, (count, 1)),
    };
    let kind = if of == Reduction::Max {
        Pool::Max
    } else {
        Pool::Mean
    };
    let from = b.shaped(name, x.value, shape)?;
    let value = b.push(
        name,
        Op::Pool {
            kind,
            window: Window::of(size),
        },
        &[from],
        Vec::new(),
    )?;
    let result = reduced(x.with_value(value), &axes, keep);
    match of {
        Reduction::Sum => b.scale(name, &result, &[count as f64], &[0.0]),
        _ => Ok(result),
    }
}

/// Reduces adjacent axes that have too many elements for one pooling window. They are reshaped to
/// two axes of the sizes `outer` and `inner`, and the inner axis is reduced first.
fn in_two_steps(
    b: &mut Builder,
    name: &str,
    x: &Live,
    axes: &[usize],
    (outer, inner): (usize, usize),
    of: Reduction,
) -> Result<usize, String> {
    let first = axes[0];
    let mut lines = x.clone();
    for &a in axes.iter().rev() {
        let sides = [outer, inner];
        lines = lines.spliced(a, if a == first { &sides } else { &[] });
    }
    let inner = reduce(b, name, &lines, vec![first + 1], of, false)?;
    Ok(reduce(b, name, &inner, vec![first], of, false)?.value)
}

/// Returns the tensor without the reduced axes, or with size 1 in their place if `keep` is true.
fn reduced(mut value: Live, axes: &[usize], keep: bool) -> Live {
    for &a in axes.iter().rev() {
        value = value.spliced(a, if keep { &[1] } else { &[] });
    }
    value
}
