//! Operations on values as several formats have them. Axes are those behind the records, in the
//! order of the value's sizes.

use super::builder::{Builder, per_element, run};
use super::constant::{self, Constant, Element};
use super::value::{Live, standard};
use crate::bake::draft::Array;
use crate::ir::graph::{Role, Shape};
use crate::ir::op::{Activation, Arithmetic, Axis, Border, Float, Op, Pool, SoftmaxOf, Window};

/// Largest size, stride, dilation or border.
pub(super) const MOST: usize = 1 << 20;

/// x between two limits. Where they cross, the upper one.
pub(super) fn clip(low: f64, high: f64) -> Activation {
    let (low, high) = ((low.min(high)) as f32, high as f32);
    // The types' own limits stand for none.
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

/// x where it is above 0, else times a constant's slope.
pub(super) fn prelu(
    b: &mut Builder,
    name: &str,
    live: &Live,
    slope: &Constant,
) -> Result<Live, String> {
    let slopes = b.against(live, slope)?;
    if let ([one], 1) = (&slopes[..], slope.len()) {
        return b.activation(name, live, Activation::LeakyRelu(Float::new(*one as f32)));
    }
    let shape = standard(&live.dims);
    let value = b.shaped(name, live.value, shape)?;
    let slopes = Array::mapped(Role::Factors, per_element(slopes, live));
    let value = b.push(name, Op::PRelu, &[value], vec![slopes])?;
    Ok(Live {
        value,
        ..live.clone()
    })
}

/// A value and a constant, which comes first if `first`.
pub(super) fn with_constant(
    b: &mut Builder,
    name: &str,
    arithmetic: Arithmetic,
    x: &Live,
    c: &Constant,
    first: bool,
) -> Result<Live, String> {
    let numbers = b.against(x, c)?;
    let all = |f: fn(f64) -> f64| numbers.iter().map(|&n| f(n)).collect::<Vec<_>>();
    match (arithmetic, first) {
        (Arithmetic::Add, _) => b.scale(name, x, &[1.0], &numbers),
        (Arithmetic::Subtract, false) => b.scale(name, x, &[1.0], &all(|n| -n)),
        (Arithmetic::Subtract, true) => b.scale(name, x, &[-1.0], &numbers),
        (Arithmetic::Multiply, _) => b.scale(name, x, &numbers, &[0.0]),
        (Arithmetic::Divide, false) => b.scale(name, x, &all(|n| 1.0 / n), &[0.0]),
        _ => Err("a constant divided by a value that is computed is not supported".into()),
    }
}

/// Two values; of one each channel (or the like) may have one element for all that stands behind
/// it.
pub(super) fn combined(
    b: &mut Builder,
    name: &str,
    arithmetic: Arithmetic,
    x: &Live,
    y: &Live,
) -> Result<Live, String> {
    let live = |value: usize, of: &Live| Live {
        value,
        ..of.clone()
    };
    if x.dims == y.dims {
        // In the shape of one of them: no other need be made where both have it.
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
    if let Some((whole, part)) = prefix(y, x) {
        let (yv, xv) = (
            b.shaped(name, y.value, whole)?,
            b.shaped(name, x.value, part)?,
        );
        return match arithmetic {
            Arithmetic::Add | Arithmetic::Multiply => Ok(live(
                b.push(name, Op::Combine(arithmetic), &[yv, xv], Vec::new())?,
                y,
            )),
            Arithmetic::Subtract => {
                let value = b.push(name, Op::Combine(arithmetic), &[yv, xv], Vec::new())?;
                b.scale(name, &live(value, y), &[-1.0], &[0.0])
            }
            Arithmetic::Divide => Err(format!(
                "{} divided by {}: the first would be repeated",
                x.shown(),
                y.shown()
            )),
        };
    }
    // The axes that both have go to the front, and back.
    if let Some(order) = shared_first(x, y).filter(|order| !order.is_sorted()) {
        let (front, other) = (b.transpose(name, x, &order)?, b.transpose(name, y, &order)?);
        let result = combined(b, name, arithmetic, &front, &other)?;
        let back: Vec<usize> = (0..order.len())
            .filter_map(|a| order.iter().position(|&o| o == a))
            .collect();
        return b.transpose(name, &result, &back);
    }
    Err(apart((&x.shown(), &x.dims), (&y.shown(), &y.dims)))
}

/// Why two values, by their sizes as messages have them and behind the records, cannot be combined.
pub(super) fn apart((x, of_x): (&str, &[usize]), (y, of_y): (&str, &[usize])) -> String {
    if of_x.len() != of_y.len() {
        return format!(
            "values of {x} and {y}: sizes are counted from the last axis, so the records of one \
             would meet another axis of \
             the other"
        );
    }
    match of_x
        .iter()
        .zip(of_y)
        .all(|(&a, &b)| a == b || a == 1 || b == 1)
    {
        true => {
            format!(
                "values of {x} and {y}: each would be repeated along an axis of the other; one of \
                 the two may be"
            )
        }
        false => format!("values of {x} and {y} do not go together"),
    }
}

/// The axes of two values of which one is repeated along some: first those along which it is not.
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

/// Shapes in which the second has one element for each channel of the first, if there are such.
fn prefix(x: &Live, y: &Live) -> Option<(Shape, Shape)> {
    let rank = x.dims.len();
    // Without a value for the records' axis the two would not meet.
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
    let standard = standard(&x.dims);
    let whole = if standard.c == c {
        standard
    } else {
        Shape {
            c,
            h: 1,
            w: x.len() / c.max(1),
        }
    };
    Some((whole, Shape::vector(c)))
}

/// The product of a matrix with the channels of each pixel.
pub(super) fn pointwise(
    b: &mut Builder,
    name: &str,
    x: &Live,
    weights: Vec<f64>,
    outputs: usize,
) -> Result<Live, String> {
    let value = b.standard(name, x)?;
    let arrays = vec![
        Array::weights(outputs, weights),
        Array::column(Role::Biases, vec![0.0; outputs]),
    ];
    let op = Op::Convolution {
        window: Window::of((1, 1)),
        groups: 1,
    };
    let value = b.push(name, op, &[value], arrays)?;
    Ok(Live {
        value,
        dims: [&[outputs], &x.dims[1..]].concat(),
        kind: Element::F32,
    })
}

/// The product of a matrix, `outputs` rows as long as the last axis, with what stands along that
/// axis.
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
        return Ok(Live { dims, ..y });
    }
    // The axis of the sum is that of the channels: one product for each of the others.
    let flat = Live {
        dims: vec![count, inner],
        ..x.clone()
    };
    let turned = b.transpose(name, &flat, &[1, 0])?;
    let y = pointwise(b, name, &turned, weights, outputs)?;
    let back = b.transpose(name, &y, &[1, 0])?;
    Ok(Live { dims, ..back })
}

/// Softmax along the height of `shape`, what stands before and behind it being the channels and the
/// width.
pub(super) fn softmax(
    b: &mut Builder,
    name: &str,
    x: &Live,
    shape: Shape,
    of: SoftmaxOf,
) -> Result<Live, String> {
    if shape.c == 1 {
        // That axis is the channels'.
        let shape = match standard(&x.dims) {
            standard if standard.c == shape.h => standard,
            _ => Shape {
                c: shape.h,
                h: 1,
                w: shape.w,
            },
        };
        let value = b.shaped(name, x.value, shape)?;
        return Ok(Live {
            value: b.push(name, Op::Softmax(of), &[value], Vec::new())?,
            ..x.clone()
        });
    }
    // That axis to the front, and back.
    let (dims, order): (Vec<usize>, &[usize]) = match shape.w {
        1 => (vec![shape.c, shape.h], &[1, 0]),
        w => (vec![shape.c, shape.h, w], &[1, 0, 2]),
    };
    let front = b.transpose(name, &Live { dims, ..x.clone() }, order)?;
    let from = b.standard(name, &front)?;
    let value = b.push(name, Op::Softmax(of), &[from], Vec::new())?;
    let back = b.transpose(name, &Live { value, ..front }, order)?;
    Ok(Live {
        value: back.value,
        ..x.clone()
    })
}

/// Values one behind the other along an axis.
pub(super) fn concat(
    b: &mut Builder,
    name: &str,
    parts: &[Live],
    a: usize,
) -> Result<Live, String> {
    let Some(first) = parts.first().cloned() else {
        return Err("expected inputs, found nothing".into());
    };
    let without = |x: &Live| {
        x.dims
            .iter()
            .enumerate()
            .filter(|d| d.0 != a)
            .map(|d| *d.1)
            .collect::<Vec<_>>()
    };
    if let Some(other) = parts
        .iter()
        .find(|p| p.dims.len() != first.dims.len() || without(p) != without(&first))
    {
        return Err(format!(
            "values of {} and {} differ along other axes too",
            first.shown(),
            other.shown()
        ));
    }
    let mut dims = first.dims.clone();
    dims[a] = parts.iter().map(|p| p.dims[a]).sum();
    let result = |value: usize| Live {
        value,
        dims: dims.clone(),
        kind: first.kind,
    };
    if let [_] = parts {
        return Ok(first);
    }
    let shape = Builder::around(&first, a);
    // Along the channels where nothing stands in front of the axis, in the shape of an image where
    // it is one.
    let channels = shape.c == 1;
    let mut values = Vec::new();
    for p in parts {
        let shape = match (channels, standard(&p.dims)) {
            (true, standard) if standard.c == p.dims[a] => standard,
            (true, _) => Shape {
                c: p.dims[a],
                h: 1,
                w: shape.w,
            },
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

/// A border of a constant, before and behind each axis.
pub(super) fn pad(
    b: &mut Builder,
    name: &str,
    x: &Live,
    around: &[(usize, usize)],
    value: f64,
) -> Result<Live, String> {
    let value = Float::new(value as f32);
    let dims: Vec<usize> = x
        .dims
        .iter()
        .zip(around)
        .map(|(d, p)| p.0 + d + p.1)
        .collect();
    if constant::elements(&dims).is_none() {
        return Err("more values than a program can hold".into());
    }
    let mut result = x.clone();
    // The last two axes of an image at once, others one by one.
    let image = x.dims.len() == 3;
    if image && around[1..].iter().any(|p| *p != (0, 0)) {
        let border = Border {
            top: around[1].0,
            left: around[2].0,
            bottom: around[1].1,
            right: around[2].1,
        };
        let from = b.standard(name, x)?;
        result.value = b.push(name, Op::Pad { border, value }, &[from], Vec::new())?;
        result.dims[1..].copy_from_slice(&dims[1..]);
    }
    for (a, &(before, after)) in around.iter().enumerate() {
        if (before, after) == (0, 0) || (image && a > 0) {
            continue;
        }
        let border = Border {
            top: before,
            bottom: after,
            ..Border::default()
        };
        let from = b.shaped(name, result.value, Builder::around(&result, a))?;
        result.value = b.push(name, Op::Pad { border, value }, &[from], Vec::new())?;
        result.dims[a] = dims[a];
    }
    Ok(result)
}

/// Some elements along an axis.
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
    if x.len() == shape.h {
        let y = b.select(name, x, at)?;
        return Ok(Live {
            dims: resized(&x.dims, a, at.len()),
            kind: x.kind,
            ..y
        });
    }
    let image = standard(&x.dims);
    if let Some(first) = run(at) {
        // Along an axis of the image, where it is one.
        let (axis, shape) = match (x.dims.len(), a) {
            (1..=3, 0) => (Axis::C, image),
            (3, 1) => (Axis::Y, image),
            (2, 1) | (3, 2) => (Axis::X, image),
            _ => (Axis::Y, shape),
        };
        let from = b.shaped(name, x.value, shape)?;
        let value = b.push(
            name,
            Op::Slice {
                axis,
                first,
                size: at.len(),
            },
            &[from],
            Vec::new(),
        )?;
        return Ok(Live {
            value,
            dims: resized(&x.dims, a, at.len()),
            kind: x.kind,
        });
    }
    // A product of the channels of each pixel with rows that have a single 1.
    let mut weights = vec![0.0; at.len() * shape.h];
    at.iter()
        .enumerate()
        .for_each(|(row, &i)| weights[row * shape.h + i] = 1.0);
    if shape.c == 1 && image.c == shape.h {
        let flat = Live {
            dims: vec![image.c, image.h, image.w],
            ..x.clone()
        };
        let y = pointwise(b, name, &flat, weights, at.len())?;
        return Ok(Live {
            dims: resized(&x.dims, a, at.len()),
            kind: x.kind,
            ..y
        });
    }
    let front = b.transpose(
        name,
        &Live {
            dims: vec![shape.c, shape.h, shape.w],
            ..x.clone()
        },
        &[1, 0, 2],
    )?;
    let y = pointwise(b, name, &front, weights, at.len())?;
    let back = b.transpose(name, &y, &[1, 0, 2])?;
    Ok(Live {
        dims: resized(&x.dims, a, at.len()),
        kind: x.kind,
        ..back
    })
}

/// Sizes with another one along an axis.
fn resized(dims: &[usize], a: usize, n: usize) -> Vec<usize> {
    let mut dims = dims.to_vec();
    dims[a] = n;
    dims
}

/// Axes of the image of a value.
///
/// # Errors
/// Of one that is no image.
pub(super) fn image(x: &Live) -> Result<usize, String> {
    match x.dims.len() {
        n @ 2..=3 => Ok(n - 1),
        _ => Err(format!(
            "expected [N, C, H, W] or [N, C, L], found {}",
            x.shown()
        )),
    }
}

/// The value of a node in the sizes of an image.
fn imaged(b: &Builder, value: usize, x: &Live) -> Live {
    let Shape { c, h, w } = b.draft.shape(value);
    let dims = if x.dims.len() == 2 {
        vec![c, w]
    } else {
        vec![c, h, w]
    };
    Live {
        value,
        dims,
        kind: x.kind,
    }
}

/// Rows or columns of a border with which windows of `size` give as many results as there are
/// strides in `n`.
pub(super) fn same(n: usize, size: usize, stride: usize, dilation: usize) -> usize {
    let covered = (n.div_ceil(stride) - 1) * stride + (size - 1) * dilation + 1;
    covered.saturating_sub(n)
}

/// A convolution with weights of outputs × (y, x, channel of a group).
pub(super) fn convolution(
    b: &mut Builder,
    name: &str,
    x: &Live,
    (weights, biases): (Vec<f64>, Vec<f64>),
    window: Window,
    groups: usize,
) -> Result<Live, String> {
    let outputs = biases.len();
    let arrays = vec![
        Array::weights(outputs, weights),
        Array::column(Role::Biases, biases),
    ];
    let from = b.standard(name, x)?;
    let value = b.push(name, Op::Convolution { window, groups }, &[from], arrays)?;
    Ok(imaged(b, value, x))
}

/// The largest value or the mean of each window.
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

/// What an axis is reduced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    /// The mean.
    Mean,
    /// The largest value.
    Max,
    /// The sum.
    Sum,
}

/// Mean, maximum or sum along axes that stand side by side; reduced axes are kept with size 1, or
/// left out.
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
        return Err(format!(
            "axes: of {} only those side by side are reduced",
            x.shown()
        ));
    }
    let product = |d: &[usize]| d.iter().product();
    let count: usize = product(&x.dims[first..=last]);
    let all = Shape {
        c: product(&x.dims[..first]),
        h: count,
        w: product(&x.dims[last + 1..]),
    };
    let image = standard(&x.dims);
    // The pixels of an image, or the middle of what stands around the axes.
    let (shape, size) = match (first, all.w) {
        (1, 1) if image.c == all.c => (image, (image.h, image.w)),
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
    let dims = x.dims.iter().enumerate();
    let dims: Vec<usize> = dims
        .filter_map(|(i, &d)| {
            if !axes.contains(&i) {
                Some(d)
            } else {
                keep.then_some(1)
            }
        })
        .collect();
    let result = Live {
        value,
        dims,
        kind: x.kind,
    };
    match of {
        Reduction::Sum => b.scale(name, &result, &[count as f64], &[0.0]),
        _ => Ok(result),
    }
}
