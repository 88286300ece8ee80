//! Operations whose windows run over an image: convolution, pooling, means along axes.

use super::builder::{Builder, inner_axis, live, sizes};
use super::node::Node;
use super::value::{Live, standard};
use crate::ir::graph::{Role, Shape};
use crate::ir::op::{Border, Op, Pool, Window};

/// Largest size, stride, dilation or border.
pub(super) const MOST: usize = 1 << 20;

/// An attribute of one number for each axis of the image.
fn list(node: &Node<'_>, name: &str, axes: usize, default: usize) -> Result<Vec<usize>, String> {
    let Some(found) = node.ints(name) else { return Ok(vec![default; axes]) };
    let size = |&n: &i64| usize::try_from(n).ok().filter(|&n| n <= MOST);
    let numbers: Option<Vec<usize>> = found.iter().map(size).collect();
    match numbers {
        Some(numbers) if numbers.len() == axes => Ok(numbers),
        _ => Err(format!("{name}: expected {axes} numbers from 0 to {MOST}, found {found:?}")),
    }
}

/// The window of a node whose kernel has the sizes `size`, over the image of `x`.
fn window(node: &Node<'_>, x: &Live, size: &[usize], ceil: bool) -> Result<Window, String> {
    let axes = size.len();
    let (stride, dilation) = (list(node, "strides", axes, 1)?, list(node, "dilations", axes, 1)?);
    for (name, numbers) in [("kernel_shape", size), ("strides", &stride), ("dilations", &dilation)] {
        if numbers.contains(&0) {
            return Err(format!("{name}: expected numbers above 0, found {numbers:?}"));
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
                let covered =
                    (image[i].div_ceil(stride[i]) - 1) * stride[i] + (size[i] - 1) * dilation[i] + 1;
                let all = covered.saturating_sub(image[i]);
                let less = all / 2;
                (before[i], after[i]) =
                    if same == "SAME_UPPER" { (less, all - less) } else { (all - less, less) };
            }
        }
        other => {
            return Err(format!("auto_pad: expected NOTSET, VALID, SAME_UPPER or SAME_LOWER, found {other}"));
        }
    }
    // One axis is that of the columns.
    let two = |v: &[usize], one: usize| if let [x] = *v { (one, x) } else { (v[0], v[1]) };
    let ((top, left), (bottom, right)) = (two(&before, 0), two(&after, 0));
    Ok(Window {
        size: two(size, 1),
        stride: two(&stride, 1),
        dilation: two(&dilation, 1),
        border: Border { top, left, bottom, right },
        ceil,
    })
}

/// Axes of the image of a value.
fn image(x: &Live) -> Result<usize, String> {
    match x.dims.len() {
        n @ 2..=3 => Ok(n - 1),
        _ => Err(format!("expected [N, C, H, W] or [N, C, L], found {}", sizes(x))),
    }
}

/// The value of a node in the sizes of an image.
fn imaged(b: &Builder, value: usize, x: &Live) -> Live {
    let Shape { c, h, w } = b.draft.shape(value);
    let dims = if x.dims.len() == 2 { vec![c, w] } else { vec![c, h, w] };
    Live { value, dims, integers: false }
}

pub(super) fn convolution(b: &mut Builder, node: &Node<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let axes = image(&x)?;
    let weights = node.needed(1, "weights")?;
    let groups = usize::try_from(node.int("group", 1)).unwrap_or(0);
    let &[outputs, group, ref size @ ..] = &*weights.dims else {
        return Err(format!("expected weights of {} axes, found sizes {:?}", axes + 2, weights.dims));
    };
    if size.len() != axes || weights.len() == 0 {
        return Err(format!("expected weights of {} axes, found sizes {:?}", axes + 2, weights.dims));
    }
    if list(node, "kernel_shape", axes, 0).is_ok_and(|k| node.has("kernel_shape") && k != size) {
        return Err(format!("kernel_shape: expected {size:?}, as the weights have"));
    }
    if groups == 0 || x.dims[0] != groups * group || outputs % groups != 0 {
        return Err(format!(
            "{} with weights {:?} and group {groups}: channels do not meet",
            sizes(&x),
            weights.dims
        ));
    }
    let window = window(node, &x, size, false)?;
    let numbers = weights.numbers()?;
    let pixels: usize = size.iter().product();
    // From (c, ky, kx) to (ky, kx, c).
    let mut turned = Vec::with_capacity(numbers.len());
    for row in numbers.chunks_exact(group * pixels) {
        for p in 0..pixels {
            turned.extend((0..group).map(|c| row[c * pixels + p]));
        }
    }
    let biases = node.constant(2, "biases")?.map_or_else(|| Ok(vec![0.0; outputs]), |c| c.numbers())?;
    if biases.len() != outputs {
        return Err(format!("expected {outputs} biases, found {}", biases.len()));
    }
    let arrays = vec![(Role::Weights, outputs, pixels * group, turned), (Role::Biases, outputs, 1, biases)];
    let from = b.standard(node, &x)?;
    let value = b.push(node, Op::Convolution { window, groups }, &[from], arrays)?;
    Ok(imaged(b, value, &x))
}

pub(super) fn pool(b: &mut Builder, node: &Node<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let axes = image(&x)?;
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
    let window = window(node, &x, &size, node.int("ceil_mode", 0) != 0)?;
    let from = b.standard(node, &x)?;
    let value = b.push(node, Op::Pool { kind, window }, &[from], Vec::new())?;
    Ok(imaged(b, value, &x))
}

/// One number of each channel.
pub(super) fn global(b: &mut Builder, node: &Node<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    if x.dims.len() < 2 {
        return Err(format!("expected an image, found {}", sizes(&x)));
    }
    let kind = if node.op() == "GlobalMaxPool" { Pool::Max } else { Pool::Mean };
    let shape = standard(&x.dims);
    let from = b.shaped(node, x.value, shape)?;
    let window = Window { stride: (1, 1), ..Window::of((shape.h, shape.w)) };
    let value = b.push(node, Op::Pool { kind, window }, &[from], Vec::new())?;
    let mut dims = vec![1; x.dims.len()];
    dims[0] = x.dims[0];
    Ok(Live { value, dims, integers: false })
}

/// Mean, maximum or sum along axes that stand side by side.
pub(super) fn reduce(b: &mut Builder, node: &Node<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let axes = node.ints_of("axes", 1)?.filter(|a| !a.is_empty());
    let Some(axes) = axes else {
        return match node.int("noop_with_empty_axes", 0) {
            0 => Err("axes: expected some, found none: all of them would mix records".into()),
            _ => Ok(x),
        };
    };
    let mut axes = axes.into_iter().map(|a| inner_axis(a, &x)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    let (first, last) = (axes[0], axes[axes.len() - 1]);
    if last - first + 1 != axes.len() {
        return Err(format!("axes: of {} only those side by side are reduced", sizes(&x)));
    }
    let product = |d: &[usize]| d.iter().product();
    let count: usize = product(&x.dims[first..=last]);
    let all = Shape { c: product(&x.dims[..first]), h: count, w: product(&x.dims[last + 1..]) };
    let image = standard(&x.dims);
    // The pixels of an image, or the middle of what stands around the axes.
    let (shape, size) = match (first, all.w) {
        (1, 1) if image.c == all.c => (image, (image.h, image.w)),
        _ => (all, (count, 1)),
    };
    let kind = if node.op() == "ReduceMax" { Pool::Max } else { Pool::Mean };
    let from = b.shaped(node, x.value, shape)?;
    let value = b.push(node, Op::Pool { kind, window: Window::of(size) }, &[from], Vec::new())?;
    let keep = node.int("keepdims", 1) != 0;
    let dims = x.dims.iter().enumerate();
    let dims: Vec<usize> =
        dims.filter_map(|(i, &d)| if !axes.contains(&i) { Some(d) } else { keep.then_some(1) }).collect();
    let result = Live { value, dims, integers: false };
    match node.op() {
        "ReduceSum" => b.scale(node, &result, &[count as f64], &[0.0]),
        _ => Ok(result),
    }
}
