//! Operations with windows over an image: convolution, pooling, reductions along axes.

use super::node::{OnnxNode, live};
use crate::bake::front::builder::Builder;
use crate::bake::front::elementwise::{math, power};
use crate::bake::front::functions;
use crate::bake::front::operations::{self, MOST, Reduction, image};
use crate::bake::front::value::{Live, ModelValue, inner_axes, standard};
use crate::ir::op::{Activation, Arithmetic, Border, Float, Math, Op, Pool, Window};

/// Returns the attribute `name`, a list of `axes` numbers from 0 to [`MOST`]. Without the
/// attribute, each number is `default`.
fn list(
    node: &OnnxNode<'_>,
    name: &str,
    axes: usize,
    default: usize,
) -> Result<Vec<usize>, String> {
    let Some(found) = node.ints(name) else {
        return Ok(vec![default; axes]);
    };
    let size = |&n: &i64| usize::try_from(n).ok().filter(|&n| n <= MOST);
    let numbers: Option<Vec<usize>> = found.iter().map(size).collect();
    match numbers {
        Some(numbers) if numbers.len() == axes => Ok(numbers),
        _ => Err(format!(
            "{name}: expected {axes} numbers from 0 to {MOST}, found {found:?}"
        )),
    }
}

/// The window of a convolution or pooling along one axis. `before` and `after` are its padding.
#[derive(Clone, Copy)]
struct Span {
    size: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    after: usize,
}

impl Span {
    /// A window of one element.
    const ONE: Span = Span {
        size: 1,
        stride: 1,
        dilation: 1,
        before: 0,
        after: 0,
    };
}

/// Makes a window from its spans along one or two axes. A single axis is the axis of the columns.
fn over(spans: &[Span], ceil: bool) -> Window {
    let (y, x) = match *spans {
        [y, x] => (y, x),
        [x] => (Span::ONE, x),
        _ => (Span::ONE, Span::ONE),
    };
    Window {
        size: (y.size, x.size),
        stride: (y.stride, x.stride),
        dilation: (y.dilation, x.dilation),
        border: Border {
            top: y.before,
            left: x.before,
            bottom: y.after,
            right: x.after,
        },
        ceil,
    }
}

/// Returns the window of a node over the image `x`. `size` is the window's size along each axis.
fn window(node: &OnnxNode<'_>, x: &Live, size: &[usize], ceil: bool) -> Result<Window, String> {
    Ok(over(&spans(node, x, size, ceil)?, ceil))
}

/// Returns the spans of a node's window along each axis of the image `x`.
fn spans(node: &OnnxNode<'_>, x: &Live, size: &[usize], ceil: bool) -> Result<Vec<Span>, String> {
    let (axes, mut size) = (size.len(), size.to_vec());
    let (mut stride, dilation) = (
        list(node, "strides", axes, 1)?,
        list(node, "dilations", axes, 1)?,
    );
    for (name, numbers) in [
        ("kernel_shape", &size),
        ("strides", &stride),
        ("dilations", &dilation),
    ] {
        if numbers.contains(&0) {
            return Err(format!(
                "{name}: expected numbers above 0, found {numbers:?}"
            ));
        }
    }
    let image = &x.dims[1..];
    let (mut before, mut after) = (vec![0; axes], vec![0; axes]);
    match node.text("auto_pad", "NOTSET") {
        "NOTSET" | "" => {
            let pads = list(node, "pads", 2 * axes, 0)?;
            (before, after) = (pads[..axes].to_vec(), pads[axes..].to_vec());
        }
        "VALID" => {}
        same @ ("SAME_UPPER" | "SAME_LOWER") => {
            for i in 0..axes {
                let all = operations::same(image[i], size[i], stride[i], dilation[i]);
                let less = all / 2;
                (before[i], after[i]) = if same == "SAME_UPPER" {
                    (less, all - less)
                } else {
                    (all - less, less)
                };
            }
        }
        other => {
            return Err(format!(
                "auto_pad: expected NOTSET, VALID, SAME_UPPER or SAME_LOWER, found {other}"
            ));
        }
    }
    for i in (0..axes).filter(|_| ceil) {
        let (all, covered) = (
            before[i] + image[i] + after[i],
            (size[i] - 1) * dilation[i] + 1,
        );
        // With `ceil_mode`, a window longer than the padded image still has one position. A mean
        // counts no element beyond the padding, so the window is cut to the padded image.
        if (1..stride[i]).contains(&covered.saturating_sub(all)) {
            size[i] = all.div_ceil(dilation[i]);
            stride[i] = all;
        }
    }
    let span = |i: usize| Span {
        size: size[i],
        stride: stride[i],
        dilation: dilation[i],
        before: before[i],
        after: after[i],
    };
    Ok((0..axes).map(span).collect())
}

pub(super) fn convolution(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let axes = image(&x)?;
    let weights = node.needed(1, "weights")?;
    let groups = usize::try_from(node.int("group", 1)).unwrap_or(0);
    let &[outputs, group, ref size @ ..] = &*weights.dims else {
        return Err(format!(
            "expected weights of {} axes, found sizes {:?}",
            axes + 2,
            weights.dims
        ));
    };
    if size.len() != axes || weights.len() == 0 {
        return Err(format!(
            "expected weights of {} axes, found sizes {:?}",
            axes + 2,
            weights.dims
        ));
    }
    if list(node, "kernel_shape", axes, 0).is_ok_and(|k| node.has("kernel_shape") && k != size) {
        return Err(format!(
            "kernel_shape: expected {size:?}, as the weights have"
        ));
    }
    if groups == 0 || x.dims[0] != groups * group || outputs % groups != 0 {
        return Err(format!(
            "{} with weights {:?} and group {groups}: channels do not match",
            x.shown(),
            weights.dims
        ));
    }
    let window = window(node, &x, size, false)?;
    let numbers = weights.numbers()?;
    let pixels: usize = size.iter().product();
    // Reorders each output's weights from (channel, row, column) to (row, column, channel).
    let mut turned = Vec::with_capacity(numbers.len());
    for row in numbers.chunks_exact(group * pixels) {
        for p in 0..pixels {
            turned.extend((0..group).map(|c| row[c * pixels + p]));
        }
    }
    let biases = node
        .constant(2, "biases")?
        .map_or_else(|| Ok(vec![0.0; outputs]), |c| c.numbers())?;
    if biases.len() != outputs {
        return Err(format!("expected {outputs} biases, found {}", biases.len()));
    }
    operations::convolution(b, &node.name, &x, turned, biases, window, groups)
}

/// `FusedConv` of ONNX Runtime: a convolution, then the sum with another tensor, then an
/// activation.
pub(super) fn fused_convolution(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let mut y = convolution(b, node)?;
    if let Some(ModelValue::Live(summand)) = node.input(3) {
        y = operations::combined(b, &node.name, Arithmetic::Add, &y, summand)?;
    }
    let parameters = node.floats("activation_params").unwrap_or_default();
    let parameter = |i: usize, default: f64| parameters.get(i).copied().unwrap_or(default);
    let activation = match node.text("activation", "") {
        "" => return Ok(y),
        "LeakyRelu" => Activation::LeakyRelu(Float::new(parameter(0, 0.01) as f32)),
        "Clip" => operations::clip(parameter(0, f64::NEG_INFINITY), parameter(1, f64::INFINITY)),
        "HardSigmoid" => Activation::HardSigmoid {
            alpha: Float::new(parameter(0, 0.2) as f32),
            beta: Float::new(parameter(1, 0.5) as f32),
        },
        other => functions::of_onnx(other)
            .ok_or_else(|| format!("activation: {other} is not supported"))?,
    };
    b.activation(&node.name, &y, activation)
}

pub(super) fn pool(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let axes = match x.dims.len() {
        4 => 3,
        _ => image(&x)?,
    };
    if node.gives(1) {
        return Err("its second output, the indices, is not supported".into());
    }
    if !node.has("kernel_shape") {
        return Err("kernel_shape: expected sizes, found nothing".into());
    }
    let size = list(node, "kernel_shape", axes, 0)?;
    let kind = match (node.op(), node.int("count_include_pad", 0)) {
        ("MaxPool", _) => Pool::Max,
        (_, 0) => Pool::Mean,
        _ => Pool::PaddedMean,
    };
    let ceil = node.int("ceil_mode", 0) != 0;
    if let &[c, d, h, w] = &x.dims[..] {
        // A volume is pooled in two steps: first the rows and columns of each plane, then the
        // planes. This gives the same maximum or mean.
        let spans = spans(node, &x, &size, ceil)?;
        let planes = x.with_dims(vec![c * d, h, w]);
        let flat = operations::pool(b, &node.name, &planes, kind, over(&spans[1..], ceil))?;
        let &[_, h, w] = &flat.dims[..] else {
            return Err("expected planes".into());
        };
        let deep = flat.with_dims(vec![c, d, h * w]);
        let one = Span::ONE;
        let y = operations::pool(b, &node.name, &deep, kind, over(&[spans[0], one], ceil))?;
        return Ok(y.with_dims(vec![c, y.dims[1], h, w]));
    }
    let window = window(node, &x, &size, ceil)?;
    operations::pool(b, &node.name, &x, kind, window)
}

/// `LpPool`: in each window, the p-th root of the sum of the p-th powers.
pub(super) fn norm_pool(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, name) = (live(node, 0)?, &node.name);
    let axes = image(x)?;
    let p = node.int("p", 2) as f64;
    if !(1.0..=8.0).contains(&p) || node.int("ceil_mode", 0) != 0 {
        return Err("expected p from 1 to 8, and ceil_mode 0".into());
    }
    let size = list(node, "kernel_shape", axes, 1)?;
    let window = window(node, x, &size, false)?;
    let sizes = math(b, name, x, Math::Abs)?;
    let powers = power(b, name, &sizes, p)?;
    let mean = operations::pool(b, name, &powers, Pool::PaddedMean, window)?;
    let count: usize = size.iter().product();
    let sum = b.scale(name, &mean, &[count as f64], &[0.0])?;
    power(b, name, &sum, 1.0 / p)
}

/// `GlobalAveragePool` or `GlobalMaxPool`: one number for each channel.
pub(super) fn global(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    if x.dims.len() < 2 {
        return Err(format!("expected an image, found {}", x.shown()));
    }
    let kind = if node.op() == "GlobalMaxPool" {
        Pool::Max
    } else {
        Pool::Mean
    };
    let shape = standard(&x.dims);
    let from = b.shaped(&node.name, x.value, shape)?;
    let window = Window {
        stride: (1, 1),
        ..Window::of((shape.h, shape.w))
    };
    let value = b.push(&node.name, Op::Pool { kind, window }, &[from], Vec::new())?;
    let mut dims = vec![1; x.dims.len()];
    dims[0] = x.dims[0];
    Ok(Live::new(value, dims, x.kind))
}

/// `ReduceMean`, `ReduceMax` or `ReduceSum`: the mean, maximum or sum along axes.
pub(super) fn reduce(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let axes = match node.ints_of("axes", 1)?.filter(|a| !a.is_empty()) {
        Some(axes) => inner_axes(&axes, &x)?,
        None if node.int("noop_with_empty_axes", 0) != 0 => return Ok(x),
        None if x.records.is_none() => (0..x.dims.len()).collect(),
        None => {
            return Err("axes: expected some, found none: all of them would mix records".into());
        }
    };
    let of = match node.op() {
        "ReduceMean" => Reduction::Mean,
        "ReduceMax" => Reduction::Max,
        _ => Reduction::Sum,
    };
    operations::reduce(b, &node.name, &x, axes, of, node.int("keepdims", 1) != 0)
}
