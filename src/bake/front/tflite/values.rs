//! TensorFlow Lite operators beyond layers: functions, comparisons, selections, repetitions,
//! resizing.

use super::ops::{
    TRANSPOSE_CONV_BIAS, as_image, as_live, fused, image, of_image, plain, position, shown, sides,
    straight,
};
use super::{OperatorNode, Turned};
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{Element, together};
use crate::bake::front::elementwise::{self, Comparison, Operand, math, power};
use crate::bake::front::fold;
use crate::bake::front::integers::{self, Limits};
use crate::bake::front::operations::{self, Around, MOST, Reduction};
use crate::bake::front::products;
use crate::bake::front::resample::{self, BlockOrder, Continued, Enlarging, Tap, Taps, tap};
use crate::bake::front::value::{Live, axis, inner_axes, inner_axis};
use crate::ir::op::{Arithmetic, Math};

/// Adds an operator to the draft, if it is implemented in this file. `None` for all other
/// operators.
pub(super) fn apply(b: &mut Builder, node: &OperatorNode<'_>) -> Option<Result<Turned, String>> {
    Some(match node.op {
        "SQUARE" | "RSQRT" | "CEIL" | "SIGN" => function(b, node),
        "POW" => pow(b, node),
        "SQUARED_DIFFERENCE" => squared_difference(b, node),
        "ADD_N" => sum(b, node),
        "LESS" | "LESS_EQUAL" | "GREATER" | "GREATER_EQUAL" | "EQUAL" | "NOT_EQUAL" => {
            compare(b, node)
        }
        "LOGICAL_AND" | "LOGICAL_OR" => logic(b, node),
        "LOGICAL_NOT" => node
            .live(0)
            .and_then(|x| Ok(x.with(elementwise::not(b, &node.name, &x.live)?))),
        "SELECT" | "SELECT_V2" => choose(b, node),
        "REDUCE_MIN" => least(b, node),
        "L2_NORMALIZATION" => normalised(b, node),
        "TILE" => tile(b, node),
        "BROADCAST_TO" => broadcast(b, node),
        "GATHER" => gather(b, node),
        "PACK" => pack(b, node),
        "REVERSE_V2" => reverse(b, node),
        "CUMSUM" => cumulated(b, node),
        "ONE_HOT" => one_hot(b, node),
        "BATCH_MATMUL" => product(b, node),
        "MIRROR_PAD" => mirrored(b, node),
        "RESIZE_BILINEAR" | "RESIZE_NEAREST_NEIGHBOR" => resize(b, node),
        "DEPTH_TO_SPACE" | "SPACE_TO_DEPTH" => blocks(b, node),
        "TRANSPOSE_CONV" => enlarge(b, node),
        TRANSPOSE_CONV_BIAS => enlarge_with_bias(b, node),
        _ => return None,
    })
}

fn function(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let (x, name) = (node.live(0)?, &node.name);
    let live = &x.live;
    Ok(x.with(match node.op {
        "SQUARE" => power(b, name, live, 2.0)?,
        "RSQRT" => power(b, name, live, -0.5)?,
        "CEIL" => {
            let negative = b.scale(name, live, &[-1.0], &[0.0])?;
            let floor = math(b, name, &negative, Math::Floor)?;
            b.scale(name, &floor, &[-1.0], &[0.0])?
        }
        _ => elementwise::sign(b, name, live)?,
    }))
}

fn pow(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let (x, exponents) = (node.live(0)?, node.needed(1, "an exponent")?.numbers()?);
    match exponents.first() {
        Some(&first) if exponents.iter().all(|&e| e == first) => {
            Ok(x.with(power(b, &node.name, &x.live, first)?))
        }
        _ => Err("expected one exponent, found several".into()),
    }
}

fn squared_difference(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let sides = sides(b, node, &[0, 1])?;
    let (x, y) = (sides.sides[0].operand(), sides.sides[1].operand());
    let difference = elementwise::arithmetic(b, &node.name, Arithmetic::Subtract, x, y)?;
    let square = power(b, &node.name, &difference, 2.0)?;
    Ok(sides.turned(square))
}

fn sum(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let all: Vec<usize> = (0..node.inputs.len()).collect();
    let mut sides = sides(b, node, &all)?;
    // The graph cannot add constants alone. So the sum begins with a tensor computed from the
    // record.
    let live = |s: &super::ops::Side| matches!(s.operand(), Operand::Live(_));
    sides.sides.sort_by_key(|s| !live(s));
    let Operand::Live(first) = sides.sides[0].operand() else {
        return Err("expected a value computed from the record, found constants".into());
    };
    let mut result = first.clone();
    for side in &sides.sides[1..] {
        let (x, y) = (Operand::Live(&result), side.operand());
        result = elementwise::arithmetic(b, &node.name, Arithmetic::Add, x, y)?;
    }
    Ok(sides.turned(result))
}

fn compare(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let comparison = match node.op {
        "LESS" => Comparison::Less,
        "LESS_EQUAL" => Comparison::LessOrEqual,
        "GREATER" => Comparison::Greater,
        "GREATER_EQUAL" => Comparison::GreaterOrEqual,
        "EQUAL" => Comparison::Equal,
        _ => Comparison::NotEqual,
    };
    let sides = sides(b, node, &[0, 1])?;
    let (x, y) = (sides.sides[0].operand(), sides.sides[1].operand());
    let truth = elementwise::compared(b, &node.name, comparison, x, y)?;
    Ok(sides.turned(truth))
}

fn logic(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let of = match node.op {
        "LOGICAL_AND" => Arithmetic::Multiply,
        _ => Arithmetic::Maximum,
    };
    let sides = sides(b, node, &[0, 1])?;
    let (x, y) = (sides.sides[0].operand(), sides.sides[1].operand());
    let truth = elementwise::arithmetic(b, &node.name, of, x, y)?;
    Ok(sides.turned(Live {
        kind: Element::Bool,
        ..truth
    }))
}

fn choose(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let sides = sides(b, node, &[0, 1, 2])?;
    let [condition, x, y] = &sides.sides[..] else {
        return Err("expected three inputs".into());
    };
    let (condition, x, y) = (condition.operand(), x.operand(), y.operand());
    let chosen = elementwise::chosen(b, &node.name, condition, x, y)?;
    Ok(sides.turned(Live {
        kind: node.output.computed(),
        ..chosen
    }))
}

/// `REDUCE_MIN`, computed as −max(−x).
fn least(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = plain(b, &node.name, node.live(0)?)?;
    let axes = inner_axes(&node.needed(1, "axes")?.integers()?, &x)?;
    let keep = node.options.flag(0)?;
    let negative = b.scale(&node.name, &x, &[-1.0], &[0.0])?;
    let most = operations::reduce(b, &node.name, &negative, axes, Reduction::Max, keep)?;
    Ok(straight(b.scale(&node.name, &most, &[-1.0], &[0.0])?))
}

/// `L2_NORMALIZATION`: x / √max(sum of squares, 10⁻¹²) along the last axis.
fn normalised(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let (x, name) = (plain(b, &node.name, node.live(0)?)?, &node.name);
    let last = inner_axis(-1, &x)?;
    let squares = power(b, name, &x, 2.0)?;
    let sum = operations::reduce(b, name, &squares, vec![last], Reduction::Sum, true)?;
    let least = b.activation(name, &sum, operations::clip(1e-12, f64::INFINITY))?;
    let root = math(b, name, &least, Math::Sqrt)?;
    let y = operations::combined(b, name, Arithmetic::Divide, &x, &root)?;
    Ok(straight(fused(b, node, y, 0)?))
}

/// Returns the integers of the constant input `i`. It is an error if one is negative.
fn sizes_of(node: &OperatorNode<'_>, i: usize, what: &str) -> Result<Vec<usize>, String> {
    let size = |n: i64| usize::try_from(n).map_err(|_| format!("expected {what}, found {n}"));
    let list = node.needed(i, what)?.integers()?;
    list.into_iter().map(size).collect()
}

fn tile(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let mut x = plain(b, &node.name, node.live(0)?)?;
    let mut repeats = sizes_of(node, 1, "repeats")?;
    if repeats.len() != x.rank() {
        return Err(format!(
            "expected {} repeats, found {}",
            x.rank(),
            repeats.len()
        ));
    }
    if x.records.is_some_and(|r| repeats.remove(r) != 1) {
        return Err("records cannot be repeated".into());
    }
    for (a, repeat) in repeats.into_iter().enumerate() {
        x = operations::repeated(b, &node.name, &x, a, repeat)?;
    }
    Ok(straight(x))
}

fn broadcast(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = plain(b, &node.name, node.live(0)?)?;
    let asked = sizes_of(node, 1, "a shape")?;
    let sizes = together(&x.whole(), &asked)
        .ok_or_else(|| format!("{} does not expand to {asked:?}", x.shown()))?;
    operations::expanded(b, &node.name, &x, &sizes).map(straight)
}

fn gather(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    // Field numbers of the schema's table `GatherOptions`: 0 axis, 1 batch_dims.
    if node.options.int(1, 0)? != 0 {
        return Err(format!(
            "batch_dims: expected 0, found {}",
            node.options.int(1, 0)?
        ));
    }
    let x = plain(b, &node.name, node.live(0)?)?;
    let a = inner_axis(node.options.int(0, 0)?.into(), &x)?;
    let c = node.needed(1, "indices")?;
    let at = c.integers()?.into_iter().map(|i| axis(i, x.dims[a]));
    let at: Vec<usize> = at.collect::<Result<_, _>>()?;
    let y = operations::along(b, &node.name, &x, a, &at)?;
    Ok(straight(y.spliced(a, &c.dims)))
}

/// `PACK`: stacks tensors along a new axis.
fn pack(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let first = (0..node.inputs.len()).find_map(|i| node.live(i).ok());
    let first = first.ok_or("expected inputs, found nothing")?;
    // Field numbers of the schema's table `PackOptions`: 0 values_count, 1 axis.
    let rank = first.live.rank() + 1;
    let at = axis(node.options.int(1, 0)?.into(), rank)? as i64;
    let mut parts = Vec::new();
    for i in 0..node.inputs.len() {
        let part = as_live(b, node, i, first)?;
        let part = plain(b, &node.name, &part)?;
        parts.push(operations::squeezed("Unsqueeze", &part, Some(&[at]))?);
    }
    let a = inner_axis(at, &parts[0])?;
    operations::concat(b, &node.name, &parts, a).map(straight)
}

fn reverse(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let mut x = node.live(0)?.clone();
    for of in node.needed(1, "axes")?.integers()? {
        let a = position(&x, of)?;
        let at: Vec<usize> = (0..x.live.dims[a]).rev().collect();
        x.live = operations::along(b, &node.name, &x.live, a, &at)?;
    }
    Ok(x)
}

fn cumulated(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = node.live(0)?;
    let of = node.needed(1, "an axis")?.integers()?;
    let &[of] = &of[..] else {
        return Err(format!("expected one axis, found {}", of.len()));
    };
    let a = position(x, of)?;
    // Field numbers of the schema's table `CumsumOptions`: 0 exclusive, 1 reverse.
    let (exclusive, reverse) = (node.options.flag(0)?, node.options.flag(1)?);
    let live = operations::cumulated(b, &node.name, &x.live, a, exclusive, reverse)?;
    Ok(x.with(live))
}

/// `ONE_HOT`: each index becomes `depth` numbers along a new axis: `on` at the index, `off`
/// elsewhere.
fn one_hot(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = plain(b, &node.name, node.live(0)?)?;
    let number = |i: usize, what: &str| node.needed(i, what)?.number();
    let (depth, on, off) = (
        number(1, "a depth")?,
        number(2, "a value")?,
        number(3, "a value")?,
    );
    // Field numbers of the schema's table `OneHotOptions`: 0 axis.
    let axis = i64::from(node.options.int(0, 0)?);
    let hot = elementwise::one_hot(b, &node.name, &x, (axis, depth), [off, on])?;
    Ok(straight(Live {
        kind: node.output.computed(),
        ..hot
    }))
}

/// `BATCH_MATMUL` of two tensors computed from the record, or of such a tensor and a constant.
fn product(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    // Field numbers of the schema's table `BatchMatMulOptions`: 0 adj_x, 1 adj_y.
    let first = (0..2).find_map(|i| node.live(i).ok());
    let first = first.ok_or("expected values, found constants")?.clone();
    let x = as_live(b, node, 0, &first)?;
    let mut x = plain(b, &node.name, &x)?;
    if node.options.flag(0)? {
        let n = x.dims.len();
        let mut order: Vec<usize> = (0..n).collect();
        if n < 2 {
            return Err(format!("expected matrices, found {}", x.shown()));
        }
        order.swap(n - 1, n - 2);
        x = b.transpose(&node.name, &x, &order)?;
    }
    if let Ok(y) = node.live(1) {
        let y = plain(b, &node.name, y)?;
        let transposed = node.options.flag(1)?;
        return products::of_matrices(b, &node.name, &x, &y, transposed).map(straight);
    }
    let w = node.needed(1, "a matrix")?;
    let &[ref ahead @ .., rows, cols] = &w.dims[..] else {
        return Err(format!("expected a matrix, found sizes {:?}", w.dims));
    };
    let transposed = node.options.flag(1)?;
    let (inner, outputs) = if transposed {
        (cols, rows)
    } else {
        (rows, cols)
    };
    if ahead.iter().any(|&n| n != 1) || x.dims.last() != Some(&inner) {
        return Err(format!(
            "values of {} and a matrix of sizes {:?} do not match",
            x.shown(),
            w.dims
        ));
    }
    let w = w.with_dims(vec![rows, cols]);
    let w = match transposed {
        true => w,
        false => fold::transpose(&w, &[1, 0]),
    };
    operations::product(b, &node.name, &x, w.numbers()?, outputs).map(straight)
}

fn mirrored(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = plain(b, &node.name, node.live(0)?)?;
    let pads = sizes_of(node, 1, "paddings")?;
    if pads.len() != 2 * x.rank() || pads.iter().any(|&p| p > MOST) {
        return Err(format!("expected paddings of sizes [{}, 2]", x.rank()));
    }
    let pairs = pads.chunks_exact(2).map(|p| Around {
        before: p[0],
        behind: p[1],
    });
    let mut around: Vec<Around> = pairs.collect();
    if x.records.is_some_and(|r| around.remove(r) != Around::NONE) {
        return Err("paddings: records cannot be padded".into());
    }
    // Field numbers of the schema's table `MirrorPadOptions`: 0 mode.
    let how = match node.options.byte(0)? {
        0 => Continued::Reflect,
        1 => Continued::Symmetric,
        other => {
            return Err(format!(
                "mode: expected REFLECT or SYMMETRIC, found {other}"
            ));
        }
    };
    resample::continued(b, &node.name, &x, &around, how).map(straight)
}

/// The options of a resize, which state where new pixels lie on the old image: `align_corners` and
/// `half_pixel_centers`. `nearest` is true if a new pixel copies the nearest old one.
#[derive(Clone, Copy)]
struct Placed {
    corners: bool,
    centres: bool,
    nearest: bool,
}

impl Placed {
    /// Returns the taps of an axis that is resized from `from` to `to` pixels: for each new pixel,
    /// the old pixels and their weights. Positions are computed in f32, as LiteRT does.
    fn taps(self, from: usize, to: usize) -> Taps {
        let scale = match self.corners && to > 1 {
            true => (from - 1) as f32 / (to - 1) as f32,
            false => from as f32 / to as f32,
        };
        (0..to).map(|i| self.of(i, scale, from)).collect()
    }

    fn of(self, i: usize, scale: f32, from: usize) -> Vec<Tap> {
        let x = i as f32;
        if self.nearest {
            let place = (x + if self.centres { 0.5 } else { 0.0 }) * scale;
            let at = if self.corners {
                place.round()
            } else {
                place.floor()
            };
            return vec![tap(at as i64, from, 1.0)];
        }
        let place = match self.centres {
            true => (x + 0.5) * scale - 0.5,
            false => x * scale,
        };
        let place = place.clamp(0.0, (from - 1) as f32);
        let (first, share) = (place.floor() as i64, f64::from(place - place.floor()));
        match share {
            0.0 => vec![tap(first, from, 1.0)],
            _ => vec![tap(first, from, 1.0 - share), tap(first + 1, from, share)],
        }
    }
}

/// Returns the taps of the rows and of the columns for a resize operator on the image `x`.
fn taps_of(node: &OperatorNode<'_>, x: &Live) -> Result<(Taps, Taps), String> {
    let to = sizes_of(node, 1, "sizes")?;
    let &[h, w] = &to[..] else {
        return Err(format!("expected two sizes, found {to:?}"));
    };
    if ![h, w].iter().all(|n| (1..=MOST).contains(n)) {
        return Err(format!("expected sizes from 1 to {MOST}, found {to:?}"));
    }
    // Field numbers of the schema's table `ResizeBilinearOptions`: 2 align_corners, 3
    // half_pixel_centers. Field numbers of `ResizeNearestNeighborOptions`: 0 align_corners, 1
    // half_pixel_centers.
    let nearest = node.op == "RESIZE_NEAREST_NEIGHBOR";
    let first = if nearest { 0 } else { 2 };
    let placed = Placed {
        corners: node.options.flag(first)?,
        centres: node.options.flag(first + 1)?,
        nearest,
    };
    Ok((placed.taps(x.dims[1], h), placed.taps(x.dims[2], w)))
}

/// `RESIZE_BILINEAR` of 8-bit integers, computed in integers.
pub(super) fn resized_whole(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    limits: Limits,
) -> Result<Turned, String> {
    let x = image(b, node)?;
    let (rows, cols) = taps_of(node, &x)?;
    let y = integers::resized(b, &node.name, &x, (&rows, &cols), limits)?;
    Ok(of_image(y, node.live(0)?.live.records))
}

fn resize(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = image(b, node)?;
    let (rows, cols) = taps_of(node, &x)?;
    let y = resample::along(b, &node.name, &x, 1, &rows)?;
    let y = resample::along(b, &node.name, &y, 2, &cols)?;
    Ok(of_image(y, node.live(0)?.live.records))
}

fn blocks(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = image(b, node)?;
    let block = node.count(0, "block_size", 0)?;
    let y = match node.op {
        "DEPTH_TO_SPACE" => {
            let order = BlockOrder::PlacesFirst;
            resample::depth_to_space(b, &node.name, &x, (block, block), order)?
        }
        _ => resample::space_to_depth(b, &node.name, &x, block)?,
    };
    Ok(of_image(y, node.live(0)?.live.records))
}

/// `TRANSPOSE_CONV`. The operator's inputs are the sizes of the result, weights, image and biases.
fn enlarge(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let to = sizes_of(node, 0, "sizes")?;
    let &[_, h, w, _] = &to[..] else {
        return Err(format!("expected four sizes, found {to:?}"));
    };
    // Field numbers of the schema's table `TransposeConvOptions`: 0 padding, 1 stride_w, 2
    // stride_h, 3 activation.
    let stride = (node.count(2, "stride_h", 0)?, node.count(1, "stride_w", 0)?);
    let transposed = Transposed {
        inputs: [2, 1, 3],
        stride,
        same: node.options.byte(0)? == 0,
        to: Some((h, w)),
    };
    transposed.apply(b, node)
}

/// MediaPipe's transposed convolution. Its inputs are image, weights and biases. Its options are
/// three 32-bit integers: the padding (1 SAME, 2 VALID), then the column stride and the row stride.
fn enlarge_with_bias(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let numbers = node.custom_options.chunks_exact(4).take(3);
    let numbers: Vec<i32> = numbers
        .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let (&[padding @ 1..=2, right, down], true) = (&numbers[..], node.inputs.len() == 3) else {
        return Err(format!("expected padding and strides, found {numbers:?}"));
    };
    let size = |n: i32| usize::try_from(n).ok().filter(|n| (1..=MOST).contains(n));
    let (Some(right), Some(down)) = (size(right), size(down)) else {
        return Err(format!(
            "expected strides from 1 on, found {down} and {right}"
        ));
    };
    let transposed = Transposed {
        inputs: [0, 1, 2],
        stride: (down, right),
        same: padding == 1,
        to: None,
    };
    transposed.apply(b, node)
}

/// A transposed convolution operator.
struct Transposed {
    /// The indices of image, weights and biases among the operator's inputs.
    inputs: [usize; 3],
    stride: (usize, usize),
    /// True for SAME padding, false for VALID.
    same: bool,
    /// The rows and columns of the result. `None` if they follow from the image, window and stride.
    to: Option<(usize, usize)>,
}

impl Transposed {
    fn apply(self, b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
        let [image, weights, biases] = self.inputs;
        let of = node.live(image)?;
        let (x, weights) = (
            as_image(b, &node.name, of)?,
            node.needed(weights, "weights")?,
        );
        let &[outputs, rows, cols, inputs] = &weights.dims[..] else {
            return Err(format!(
                "expected weights of 4 axes, found sizes {:?}",
                weights.dims
            ));
        };
        if inputs != x.dims[0] || weights.len() == 0 {
            return Err(format!(
                "{} with weights {:?}: channels do not match",
                shown(of),
                weights.dims
            ));
        }
        let whole = |n: usize, size: usize, stride: usize| match self.same {
            true => n * stride,
            false => (n - 1) * stride + size,
        };
        let (down, right) = self.stride;
        let all = (whole(x.dims[1], rows, down), whole(x.dims[2], cols, right));
        let (h, w) = self.to.unwrap_or(all);
        // The number of rows or columns to cut off in front. It is the padding of the ordinary
        // convolution that leads back from the result to the image.
        let before = |n: usize, size: usize, stride: usize, to: usize| match self.same {
            true => ((n - 1) * stride + size).saturating_sub(to) / 2,
            false => 0,
        };
        let biases = match node.constant(biases, "biases")? {
            Some(c) if c.len() == outputs => c.numbers()?,
            Some(c) => return Err(format!("expected {outputs} biases, found {}", c.len())),
            None => vec![0.0; outputs],
        };
        // Reorders the weights from (output, row, column, input) to (input, output, row, column).
        let turned = fold::transpose(weights, &[3, 0, 1, 2]);
        let enlarging = Enlarging {
            weights: turned.numbers()?,
            biases,
            size: (rows, cols),
            stride: self.stride,
            groups: 1,
            before: (
                before(x.dims[1], rows, down, h),
                before(x.dims[2], cols, right, w),
            ),
            to: (h, w),
        };
        let mut y = resample::enlarged(b, &node.name, &x, &enlarging)?;
        if self.to.is_some() {
            y = fused(b, node, y, 3)?;
        }
        Ok(of_image(y, of.live.records))
    }
}
