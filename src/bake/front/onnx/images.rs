//! ONNX operations that change the sizes of images: resizing, transposed convolutions, padding with
//! pixels of the image, depth to space and back.

use super::node::{OnnxNode, live};
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{Data, Int};
use crate::bake::front::operations::{self, Around, MOST};
use crate::bake::front::resample::{
    self, Between, BlockOrder, Continued, Coordinates, Enlarging, Nearest,
};
use crate::bake::front::value::{Live, axes};

/// Builds `Resize` or `Upsample`.
pub(super) fn resize(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let mut x = live(node, 0)?.clone();
    let upsample = node.op() == "Upsample" || node.version < 11;
    if node.int("antialias", 0) != 0 {
        return Err("antialias: expected 0, found 1".into());
    }
    let policy = node.text("keep_aspect_ratio_policy", "stretch");
    if policy != "stretch" {
        return Err(format!(
            "keep_aspect_ratio_policy: expected stretch, found {policy}"
        ));
    }
    let coordinates = coordinates(node, upsample)?;
    let between = between(node, upsample)?;
    let asked = asked(node, &x, upsample)?;
    // ONNX Runtime copies an image if its sizes do not change, whatever the scales are.
    if asked.iter().map(|a| a.to).eq(x.whole()) {
        return Ok(x);
    }
    for (axis, asked) in asked.into_iter().enumerate() {
        let a = match x.records {
            Some(r) if r == axis => {
                if asked.to != 1 {
                    return Err("records cannot be resized".into());
                }
                continue;
            }
            Some(r) if r < axis => axis - 1,
            _ => axis,
        };
        let from = x.dims[a];
        if asked.to == 0 || asked.to > MOST {
            return Err(format!(
                "expected sizes from 1 to {MOST}, found {}",
                asked.to
            ));
        }
        if asked.scale == 1.0 && asked.to == from {
            continue;
        }
        // If an axis's size times its scale has a fraction, ONNX computes `align_corners` with the
        // fraction, but ONNX Runtime drops it. So such a scale is an error. A fraction as small as
        // the scale's rounding error is ignored.
        let fraction = (from as f32 * asked.scale).fract() > from as f32 * f32::EPSILON;
        if coordinates == Coordinates::AlignCorners && fraction {
            return Err(format!(
                "align_corners: expected a whole number of elements, found {} of {from}: state \
                 sizes instead of scales",
                asked.scale
            ));
        }
        let taps = resample::resized(from, asked.to, asked.scale, coordinates, between);
        x = resample::along(b, &node.name, &x, a, &taps)?;
    }
    Ok(x)
}

/// The new number of elements that a resize states for an axis, and the factor of the resize.
struct Asked {
    to: usize,
    scale: f32,
}

/// Returns the new sizes of all axes of a resize. The node states them as scales or as sizes. An
/// axis that the node does not name keeps its size.
fn asked(node: &OnnxNode<'_>, x: &Live, upsample: bool) -> Result<Vec<Asked>, String> {
    let whole = x.whole();
    let by = |i: usize, what: &str| node.constant(i, what).map(|c| c.filter(|c| c.len() > 0));
    let (scales, sizes) = match (node.floats("scales"), upsample) {
        (Some(scales), _) => (Some(scales), None),
        (None, true) => (by(1, "scales")?.map(|c| c.numbers()).transpose()?, None),
        (None, false) => (
            by(2, "scales")?.map(|c| c.numbers()).transpose()?,
            by(3, "sizes")?,
        ),
    };
    let named = match node.ints("axes") {
        Some(list) => axes(list, whole.len())?,
        None => (0..whole.len()).collect(),
    };
    let unchanged = |&to: &usize| Asked { to, scale: 1.0 };
    let mut all: Vec<Asked> = whole.iter().map(unchanged).collect();
    let meet = |found: usize| match found == named.len() {
        true => Ok(()),
        false => Err(format!(
            "expected {} sizes or scales, found {found}",
            named.len()
        )),
    };
    if let Some(scales) = scales {
        meet(scales.len())?;
        for (&a, &scale) in named.iter().zip(&scales) {
            // Other runtimes compute sizes from scales in f32, so this code does too.
            let scale = scale as f32;
            let to = (whole[a] as f32 * scale).floor() as usize;
            all[a] = Asked { to, scale };
        }
        return Ok(all);
    }
    let sizes = sizes.ok_or("expected scales or sizes, found nothing")?;
    meet(sizes.len())?;
    let Data::Ints(list) = &sizes.data else {
        return Err("expected sizes of integers".into());
    };
    for (&a, size) in named.iter().zip(list) {
        let to = match *size {
            Int::Records => 1,
            Int::Known(n) => {
                usize::try_from(n).map_err(|_| format!("expected sizes, found {n}"))?
            }
        };
        // The axis of the records is not resized, even if the model states the number of records.
        let to = if x.records == Some(a) { 1 } else { to };
        let scale = to as f32 / whole[a] as f32;
        all[a] = Asked { to, scale };
    }
    Ok(all)
}

fn coordinates(node: &OnnxNode<'_>, upsample: bool) -> Result<Coordinates, String> {
    let mode = node.text(
        "coordinate_transformation_mode",
        if upsample { "asymmetric" } else { "half_pixel" },
    );
    Ok(match mode {
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::HalfPixelTorch,
        "tf_half_pixel_for_nn" => Coordinates::HalfPixelShifted,
        "asymmetric" => Coordinates::Asymmetric,
        "align_corners" => Coordinates::AlignCorners,
        other => {
            return Err(format!(
                "coordinate_transformation_mode: expected half_pixel, half_pixel_symmetric, \
                 pytorch_half_pixel, tf_half_pixel_for_nn, asymmetric or align_corners, found \
                 {other}"
            ));
        }
    })
}

fn between(node: &OnnxNode<'_>, upsample: bool) -> Result<Between, String> {
    Ok(match node.text("mode", "nearest") {
        "nearest" if upsample => Between::Nearest(Nearest::BySize),
        "nearest" => Between::Nearest(match node.text("nearest_mode", "round_prefer_floor") {
            "round_prefer_floor" => Nearest::PreferFloor,
            "round_prefer_ceil" => Nearest::PreferCeil,
            "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            other => {
                return Err(format!(
                    "nearest_mode: expected round_prefer_floor, round_prefer_ceil, floor or ceil, \
                     found {other}"
                ));
            }
        }),
        "linear" | "bilinear" => Between::Linear,
        "cubic" => Between::Cubic {
            a: node.float("cubic_coeff_a", -0.75) as f32,
            exclude_outside: node.int("exclude_outside", 0) != 0,
        },
        other => {
            return Err(format!(
                "mode: expected nearest, linear or cubic, found {other}"
            ));
        }
    })
}

/// `Pad` with elements of the tensor itself: its edge, its mirror image, or its opposite end.
pub(super) fn continued(
    b: &mut Builder,
    node: &OnnxNode<'_>,
    x: &Live,
    around: &[Around],
    mode: &str,
) -> Result<Live, String> {
    let how = match mode {
        "edge" => Continued::Edge,
        "reflect" => Continued::Reflect,
        "wrap" => Continued::Wrap,
        other => {
            return Err(format!(
                "mode: expected constant, edge, reflect or wrap, found {other}"
            ));
        }
    };
    resample::continued(b, &node.name, x, around, how)
}

/// Builds `DepthToSpace` or `SpaceToDepth`.
pub(super) fn blocks(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let block = usize::try_from(node.int("blocksize", 0)).unwrap_or(0);
    if node.op() == "SpaceToDepth" {
        return resample::space_to_depth(b, &node.name, x, block);
    }
    let order = match node.text("mode", "DCR") {
        "DCR" => BlockOrder::PlacesFirst,
        "CRD" => BlockOrder::ChannelsFirst,
        other => return Err(format!("mode: expected DCR or CRD, found {other}")),
    };
    resample::depth_to_space(b, &node.name, x, (block, block), order)
}

/// One axis of a transposed convolution. `size` is the window's size with its dilation. The first
/// `before` elements of the full result are cut off, and the next `to` elements are kept.
struct EnlargedAxis {
    size: usize,
    stride: usize,
    before: usize,
    to: usize,
}

/// Builds `ConvTranspose` of images [N, C, H, W] or of lines [N, C, L].
pub(super) fn enlarge(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let rank = operations::image(x)?;
    let weights = node.needed(1, "weights")?;
    let groups = usize::try_from(node.int("group", 1)).unwrap_or(0);
    let &[inputs, of_group, ref size @ ..] = &weights.dims[..] else {
        return Err(format!("expected weights of {} axes", rank + 2));
    };
    if size.len() != rank || groups == 0 || inputs != x.dims[0] || inputs % groups != 0 {
        return Err(format!(
            "{} with weights {:?} and group {groups}: channels do not match",
            x.shown(),
            weights.dims
        ));
    }
    let axes = (0..rank).map(|i| enlarged_axis(node, x, size[i], (i, rank)));
    let mut axes: Vec<EnlargedAxis> = axes.collect::<Result<_, _>>()?;
    let dilation = list(node, "dilations", rank, 1)?;
    let mut numbers = weights.numbers()?;
    let mut window = size.to_vec();
    for (i, axis) in axes.iter().enumerate() {
        numbers = spread(&numbers, &window, i, dilation[i]);
        window[i] = axis.size;
    }
    if rank == 1 {
        // A line is treated as an image with one row.
        let rows = EnlargedAxis {
            size: 1,
            stride: 1,
            before: 0,
            to: 1,
        };
        axes.insert(0, rows);
    }
    let outputs = of_group * groups;
    let biases = match node.constant(2, "biases")? {
        Some(c) if c.len() == outputs => c.numbers()?,
        Some(c) => return Err(format!("expected {outputs} biases, found {}", c.len())),
        None => vec![0.0; outputs],
    };
    let (h, w) = (&axes[0], &axes[1]);
    let enlarging = Enlarging {
        weights: numbers,
        biases,
        size: (h.size, w.size),
        stride: (h.stride, w.stride),
        groups,
        before: (h.before, w.before),
        to: (h.to, w.to),
    };
    let dims = match x.dims[..] {
        [c, w] => vec![c, 1, w],
        _ => x.dims.clone(),
    };
    let y = resample::enlarged(b, &node.name, &x.with_dims(dims), &enlarging)?;
    let mut dims = y.dims.clone();
    if rank == 1 {
        dims.remove(1);
    }
    Ok(y.with_dims(dims))
}

fn list(
    node: &OnnxNode<'_>,
    name: &str,
    count: usize,
    default: usize,
) -> Result<Vec<usize>, String> {
    let Some(found) = node.ints(name) else {
        return Ok(vec![default; count]);
    };
    let size = |&n: &i64| usize::try_from(n).ok().filter(|&n| n <= MOST);
    let sizes: Option<Vec<usize>> = found.iter().map(size).collect();
    sizes.filter(|s| s.len() == count).ok_or_else(|| {
        format!("{name}: expected {count} numbers from 0 to {MOST}, found {found:?}")
    })
}

/// Computes axis `i` of the `rank` axes of a transposed convolution, whose window has `taps`
/// elements along it.
fn enlarged_axis(
    node: &OnnxNode<'_>,
    x: &Live,
    taps: usize,
    (i, rank): (usize, usize),
) -> Result<EnlargedAxis, String> {
    let stride = list(node, "strides", rank, 1)?[i];
    let dilation = list(node, "dilations", rank, 1)?[i];
    let more = list(node, "output_padding", rank, 0)?[i];
    let pads = list(node, "pads", 2 * rank, 0)?;
    if stride == 0 || dilation == 0 || taps == 0 {
        return Err("strides, dilations and sizes: expected numbers above 0".into());
    }
    let (n, size) = (x.dims[i + 1], (taps - 1) * dilation + 1);
    let all = stride * (n - 1) + size + more;
    let shape = node.ints("output_shape").map(|s| s.to_vec());
    let stated = shape.and_then(|s| usize::try_from(*s.get(s.len().checked_sub(rank)? + i)?).ok());
    let same = node.text("auto_pad", "NOTSET");
    let (before, to) = match (same, stated) {
        ("NOTSET" | "VALID" | "", None) => {
            let cut = pads[i] + pads[rank + i];
            (pads[i], all.saturating_sub(cut))
        }
        ("NOTSET" | "" | "SAME_UPPER" | "SAME_LOWER", stated) => {
            // SAME padding gives `n` · `stride` elements, but a window smaller than the stride
            // gives fewer.
            let to = stated.unwrap_or(all.min(n * stride));
            if to > all {
                return Err(format!(
                    "output_shape: expected at most {all} along axis {}, found {to}",
                    i + 2
                ));
            }
            // If an odd number of elements is cut off, the extra element comes off the front. For
            // SAME_UPPER it comes off the end.
            let cut = all - to;
            let before = match same {
                "SAME_UPPER" => cut / 2,
                _ => cut - cut / 2,
            };
            (before, to)
        }
        (other, _) => {
            return Err(format!(
                "auto_pad: {other} is not supported with output_shape"
            ));
        }
    };
    if to == 0 || before + to > all.max(before + to - more) + stride {
        return Err(format!(
            "axis {}: its result has no elements, or more than its window gives",
            i + 2
        ));
    }
    Ok(EnlargedAxis {
        size,
        stride,
        before,
        to,
    })
}

/// Dilates a window along axis `i`: puts `step` − 1 zeros between neighbouring elements.
fn spread(numbers: &[f64], window: &[usize], i: usize, step: usize) -> Vec<f64> {
    if step == 1 {
        return numbers.to_vec();
    }
    let inner: usize = window[i + 1..].iter().product();
    let (n, wide) = (window[i], (window[i] - 1) * step + 1);
    let mut spread = vec![0.0; numbers.len() / n * wide];
    for (k, &number) in numbers.iter().enumerate() {
        let (outer, at, rest) = (k / inner / n, k / inner % n, k % inner);
        spread[(outer * wide + at * step) * inner + rest] = number;
    }
    spread
}
