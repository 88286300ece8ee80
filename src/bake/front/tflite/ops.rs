//! TensorFlow Lite operators: layers, arithmetic, changes of shape, and all operators on constants.
//! `values` has further operators.

use super::{OF_CONSTANTS, OperatorNode, TfliteValue, Turned, values};
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Data, Element, Int, elements};
use crate::bake::front::elementwise::{self, Operand};
use crate::bake::front::fold;
use crate::bake::front::functions;
use crate::bake::front::listed;
use crate::bake::front::operations::{self, Around, MOST, Reduction};
use crate::bake::front::value::{Class, Live, axis, inner_axes, inner_axis, order_of, permutation};
use crate::ir::op::{Activation, Arithmetic, Border, Float, OfChannels, Pool, Window};
use std::rc::Rc;

impl OperatorNode<'_> {
    pub(super) fn input(&self, i: usize) -> Option<&TfliteValue> {
        self.inputs.get(i).and_then(Option::as_ref)
    }

    /// Returns input `i`. It is an error if that is not a tensor computed from the record.
    pub(super) fn live(&self, i: usize) -> Result<&Turned, String> {
        match self.input(i) {
            Some(TfliteValue::Live(turned)) => Ok(turned),
            Some(TfliteValue::Class(_)) => {
                Err("a predicted class cannot be the input of another operation".into())
            }
            Some(TfliteValue::Constant(_)) => Err(format!(
                "input {i}: expected a value computed from the record, found a constant"
            )),
            Some(TfliteValue::Unknown) | None => {
                Err(format!("input {i}: expected a value, found nothing"))
            }
        }
    }

    /// Returns input `i`, which must be a constant. `None` if the input is left out. `what` is its
    /// name in messages.
    pub(super) fn constant(
        &self,
        i: usize,
        what: &str,
    ) -> Result<Option<&Rc<ConstantTensor>>, String> {
        match self.input(i) {
            None => Ok(None),
            Some(TfliteValue::Constant(c)) => Ok(Some(c)),
            Some(_) => Err(format!(
                "expected {what} that is a constant, found a value computed from the record"
            )),
        }
    }

    /// Returns input `i`, which must be a constant and must not be left out. `what` is its name in
    /// messages.
    pub(super) fn needed(&self, i: usize, what: &str) -> Result<&Rc<ConstantTensor>, String> {
        self.constant(i, what)?
            .ok_or_else(|| format!("expected {what}, found nothing"))
    }

    /// Returns the option in `field`, an integer from 1 to [`MOST`]. `what` is its name in
    /// messages.
    pub(super) fn count(&self, field: usize, what: &str, default: i32) -> Result<usize, String> {
        let found = self.options.int(field, default)?;
        match usize::try_from(found) {
            Ok(n) if (1..=MOST).contains(&n) => Ok(n),
            _ => Err(format!(
                "{what}: expected a number from 1 to {MOST}, found {found}"
            )),
        }
    }
}

/// The name of MediaPipe's custom operator for a transposed convolution with biases.
pub(super) const TRANSPOSE_CONV_BIAS: &str = "Convolution2DTransposeBias";

/// The TensorFlow Lite operators whose result on integers is exact when computed as floats.
const OF_INTEGERS: &str = "ABS ARG_MAX BROADCAST_TO CAST CONCATENATION EQUAL EXPAND_DIMS GATHER \
                           GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_NOT \
                           LOGICAL_OR MAXIMUM MAX_POOL_2D MINIMUM MIRROR_PAD NOT_EQUAL ONE_HOT \
                           PACK PAD PADV2 QUANTIZE REDUCE_MAX REDUCE_MIN RELU RELU6 RESHAPE \
                           RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SELECT SELECT_V2 SHAPE SLICE SPLIT \
                           SPLIT_V SQUEEZE STRIDED_SLICE TILE TRANSPOSE UNPACK";

/// Computes the outputs of an operator. If all inputs are constants, the outputs are constants too.
/// Otherwise the operator is added to the draft.
pub(super) fn compute(
    b: &mut Builder,
    node: &OperatorNode<'_>,
) -> Result<Vec<TfliteValue>, String> {
    let parts = matches!(node.op, "SPLIT" | "SPLIT_V" | "UNPACK");
    let mut inputs = node.inputs.iter().flatten();
    match parts && inputs.any(|i| matches!(i, TfliteValue::Live(_))) {
        true => Ok(split(b, node)?.into_iter().map(TfliteValue::Live).collect()),
        false => Ok(vec![one(b, node)?]),
    }
}

/// Computes the output of an operator that has only one. It is a constant if all inputs are
/// constants.
fn one(b: &mut Builder, node: &OperatorNode<'_>) -> Result<TfliteValue, String> {
    let constant = |i: &'_ TfliteValue| match i {
        TfliteValue::Constant(c) => Some(c.clone()),
        _ => None,
    };
    let constants: Option<Vec<Rc<ConstantTensor>>> =
        node.inputs.iter().flatten().map(constant).collect();
    match constants {
        Some(constants) if !constants.is_empty() => {
            let inputs: Vec<&ConstantTensor> = constants.iter().map(|c| &**c).collect();
            let folded = of_constants(node, &inputs)?;
            Ok(TfliteValue::Constant(Rc::new(folded)))
        }
        _ => of_live(b, node),
    }
}

/// Computes the output of an operator with at least one input that is computed from the record.
/// Most operators become nodes of the draft.
fn of_live(b: &mut Builder, node: &OperatorNode<'_>) -> Result<TfliteValue, String> {
    if let Some(TfliteValue::Class(class)) = node.input(0) {
        return match node.op {
            "CAST" | "RESHAPE" | "SQUEEZE" | "EXPAND_DIMS" => Ok(TfliteValue::Class(class.clone())),
            _ => Err("a predicted class cannot be the input of another operation".into()),
        };
    }
    if OF_CONSTANTS.contains(&node.op) {
        return Err(
            "it is supported on constants only, not on values computed from the record".into(),
        );
    }
    check_types(node)?;
    if let Some(turned) = values::apply(b, node) {
        return turned.map(TfliteValue::Live);
    }
    let turned = match node.op {
        "SHAPE" => return shape(b, node),
        "ARG_MAX" => return argmax(b, node),
        // A quantized tensor already holds the real numbers that its integers stand for. So these
        // operators have nothing to do, except that 16-bit integers limit them.
        "DEQUANTIZE" | "DENSIFY" => node.live(0)?.clone(),
        "QUANTIZE" => match node.output.limits() {
            Some([low, high]) if low < 0.0 => {
                let (x, limits) = (node.live(0)?, operations::clip(low.into(), high.into()));
                x.with(b.activation(&node.name, &x.live, limits)?)
            }
            _ => node.live(0)?.clone(),
        },
        "CAST" => cast(b, node)?,
        "ADD" | "SUB" | "MUL" | "DIV" | "MAXIMUM" | "MINIMUM" => arithmetic(b, node)?,
        "NEG" => {
            let x = node.live(0)?;
            x.with(b.scale(&node.name, &x.live, &[-1.0], &[0.0])?)
        }
        "PRELU" => {
            let (x, slope) = (node.live(0)?, node.needed(1, "a slope")?);
            let slope = turned(slope, x);
            x.with(operations::prelu(b, &node.name, &x.live, &slope)?)
        }
        "CONV_2D" | "DEPTHWISE_CONV_2D" => convolution(b, node)?,
        "AVERAGE_POOL_2D" | "MAX_POOL_2D" => pool(b, node)?,
        "FULLY_CONNECTED" => fully_connected(b, node)?,
        "MEAN" | "SUM" | "REDUCE_MAX" => reduce(b, node)?,
        "SOFTMAX" | "LOG_SOFTMAX" => softmax(b, node)?,
        "RESHAPE" | "SQUEEZE" | "EXPAND_DIMS" => reshape(b, node)?,
        "TRANSPOSE" => transpose(node)?,
        "CONCATENATION" => concat(b, node)?,
        "PAD" | "PADV2" => pad(b, node)?,
        "STRIDED_SLICE" => strided_slice(b, node)?,
        "SLICE" => slice(b, node)?,
        _ => {
            let x = node.live(0)?;
            x.with(b.activation(&node.name, &x.live, activation(node)?)?)
        }
    };
    Ok(TfliteValue::Live(turned))
}

/// Returns an error if an input has integers and the operator's result would differ for floats.
fn check_types(node: &OperatorNode<'_>) -> Result<(), String> {
    let first = node.inputs.iter().flatten().find_map(|i| match i {
        TfliteValue::Live(x) => Some(x.live.kind),
        _ => None,
    });
    match first {
        Some(kind) if !kind.float() && !listed(OF_INTEGERS, node.op) => Err(format!(
            "{} values are computed as floats, which neither wrap nor truncate: CAST them to \
             FLOAT32 before it",
            kind.name()
        )),
        _ => Ok(()),
    }
}

/// Transposes a value of the draft, so that its axes become the tensor's axes in the order `want`.
pub(super) fn arranged(
    b: &mut Builder,
    name: &str,
    x: &Turned,
    want: &[usize],
) -> Result<Live, String> {
    let at: Vec<usize> = want
        .iter()
        .filter_map(|a| x.order.iter().position(|o| o == a))
        .collect();
    b.transpose(name, &x.live, &at)
}

/// Transposes a value of the draft, so that its axes have the order of the tensor's axes.
pub(super) fn plain(b: &mut Builder, name: &str, x: &Turned) -> Result<Live, String> {
    let order: Vec<usize> = (0..x.order.len()).collect();
    arranged(b, name, x, &order)
}

/// Wraps a value of the draft whose axes already have the order of the tensor's axes.
pub(super) fn straight(live: Live) -> Turned {
    Turned {
        order: (0..live.dims.len()).collect(),
        live,
    }
}

/// Returns the sizes of the tensor's axes in the tensor's order, without the axis of the records.
fn dims(x: &Turned) -> Vec<usize> {
    let mut dims = vec![0; x.order.len()];
    x.order
        .iter()
        .zip(&x.live.dims)
        .for_each(|(&a, &d)| dims[a] = d);
    dims
}

/// Returns the value with the sizes of the tensor, in the tensor's order. The result is used only
/// for its sizes, because the elements may be in another order.
pub(super) fn tensor(x: &Turned) -> Live {
    x.live.with_dims(dims(x))
}

/// Formats the sizes of the tensor, for messages.
pub(super) fn shown(x: &Turned) -> String {
    tensor(x).shown()
}

/// Gives a value `rank` axes. Missing axes are added in front, with size 1. A value with an axis of
/// the records is returned unchanged.
fn led(x: &Turned, rank: usize) -> Turned {
    let ahead = rank.saturating_sub(x.live.rank());
    if ahead == 0 || x.live.records.is_some() {
        return x.clone();
    }
    Turned {
        live: x
            .live
            .with_dims([vec![1; ahead], x.live.dims.clone()].concat()),
        order: (0..ahead)
            .chain(x.order.iter().map(|a| a + ahead))
            .collect(),
    }
}

/// Transposes a constant operand of an element-wise operator to the order of the axes of the value
/// `x`. Axes that the constant lacks are added in front, with size 1.
fn turned(c: &ConstantTensor, x: &Turned) -> ConstantTensor {
    let Some(ahead) = x
        .live
        .rank()
        .checked_sub(c.dims.len())
        .filter(|_| c.len() > 1)
    else {
        return c.clone();
    };
    turned_whole(&c.with_dims([vec![1; ahead], c.dims.clone()].concat()), x)
}

/// Transposes a constant to the order of the axes of `x`. The constant has as many axes as `x`'s
/// tensor.
fn turned_whole(whole: &ConstantTensor, x: &Turned) -> ConstantTensor {
    let first = usize::from(x.live.records.is_some());
    let order: Vec<usize> = (0..first)
        .chain(x.order.iter().map(|a| a + first))
        .collect();
    fold::transpose(whole, &order)
}

/// Converts an axis number of the tensor to an index among the axes of the value `x`.
pub(super) fn position(x: &Turned, axis: i64) -> Result<usize, String> {
    let a = inner_axis(axis, &tensor(x))?;
    x.order
        .iter()
        .position(|&o| o == a)
        .ok_or_else(|| format!("no axis {axis} of {}", shown(x)))
}

/// Applies the activation that is fused into an operator. Converters may leave out a ReLU behind a
/// quantized sum whose zero point is the lowest integer, because that sum cannot store numbers
/// below 0. So the ReLU is applied here. Sums that are 16-bit integers are limited to what these
/// can store, because calibration may have left out large numbers.
pub(super) fn fused(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    live: Live,
    field: usize,
) -> Result<Live, String> {
    let code = node.options.byte(field)?;
    if let Some(rule) = &node.rule {
        return rule.apply(b, &node.name, &live, code);
    }
    let sum = matches!(
        node.op,
        "CONV_2D" | "DEPTHWISE_CONV_2D" | "FULLY_CONNECTED" | "ADD" | "SUB"
    );
    let limits = node.output.limits();
    let limits = limits.filter(|&[low, _]| sum && (code == 0 || low < 0.0));
    let [low, high] = limits.map_or([f64::NEG_INFINITY, f64::INFINITY], |l| l.map(f64::from));
    let a = match (code, limits) {
        (0, None) => return Ok(live),
        (0, Some(_)) => operations::clip(low, high),
        (1, None) => Activation::Relu,
        (1, Some(_)) => operations::clip(0.0, high),
        (2, _) => operations::clip(low.max(-1.0), high.min(1.0)),
        (3, _) => operations::clip(0.0, high.min(6.0)),
        (4, _) => Activation::Tanh,
        _ => {
            let known = "NONE, RELU, RELU_N1_TO_1, RELU6 or TANH";
            let found = if code == 5 {
                "SIGN_BIT".to_string()
            } else {
                code.to_string()
            };
            return Err(format!(
                "fused_activation_function: expected {known}, found {found}"
            ));
        }
    };
    b.activation(&node.name, &live, a)
}

pub(super) fn activation(node: &OperatorNode<'_>) -> Result<Activation, String> {
    Ok(match node.op {
        "RELU_N1_TO_1" => operations::clip(-1.0, 1.0),
        "RELU_0_TO_1" => operations::clip(0.0, 1.0),
        "LEAKY_RELU" => Activation::LeakyRelu(Float::new(node.options.float(0)?)),
        "ELU" => Activation::Elu {
            alpha: Float::new(1.0),
            gamma: Float::new(1.0),
        },
        "GELU" if node.options.flag(0)? => Activation::GeluTanh,
        "GELU" => Activation::Gelu,
        op => {
            functions::of_tflite(op).ok_or("it is not supported: docs/TFLITE.md lists what is")?
        }
    })
}

fn cast(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = node.live(0)?;
    if node.output.quantised.is_some() {
        return Err("it is not supported of quantised values".into());
    }
    Ok(x.with(elementwise::cast(
        b,
        &node.name,
        &x.live,
        node.output.element(),
    )?))
}

/// `SHAPE`: the sizes of a tensor as a constant of integers. One of them is the number of records.
fn shape(b: &Builder, node: &OperatorNode<'_>) -> Result<TfliteValue, String> {
    let shape = b.shape_constant(&tensor(node.live(0)?), node.output.element());
    Ok(TfliteValue::Constant(Rc::new(shape)))
}

fn argmax(b: &mut Builder, node: &OperatorNode<'_>) -> Result<TfliteValue, String> {
    let x = node.live(0)?;
    let of = node.needed(1, "an axis")?.integers()?;
    let &[of] = &of[..] else {
        return Err(format!("expected one axis, found {}", of.len()));
    };
    let a = position(x, of)?;
    if x.live.dims[a] != x.live.len() {
        return Err(format!(
            "axis {of}: expected all values of a record, found {}",
            shown(x)
        ));
    }
    Ok(TfliteValue::Class(Class {
        scores: plain(b, &node.name, x)?.value,
        labels: None,
    }))
}

fn arithmetic_of(op: &str) -> Arithmetic {
    match op {
        "ADD" => Arithmetic::Add,
        "SUB" => Arithmetic::Subtract,
        "MUL" => Arithmetic::Multiply,
        "MAXIMUM" => Arithmetic::Maximum,
        "MINIMUM" => Arithmetic::Minimum,
        _ => Arithmetic::Divide,
    }
}

/// An operand of an element-wise operator. Its axes have the order that all operands share.
pub(super) enum Side {
    Live(Live),
    Constant(ConstantTensor),
}

impl Side {
    pub(super) fn operand(&self) -> Operand<'_> {
        match self {
            Side::Live(live) => Operand::Live(live),
            Side::Constant(c) => Operand::Constant(c),
        }
    }
}

/// All operands of an element-wise operator, and the common order of their axes.
pub(super) struct Sides {
    pub(super) sides: Vec<Side>,
    order: Vec<usize>,
}

impl Sides {
    pub(super) fn turned(self, live: Live) -> Turned {
        Turned {
            live,
            order: self.order,
        }
    }
}

/// Returns the operator's inputs with the indices `at` as operands with a common order of axes.
/// The common order is that of the largest tensor, so that only smaller tensors are transposed.
pub(super) fn sides(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    at: &[usize],
) -> Result<Sides, String> {
    let rank = at.iter().map(|&i| match node.input(i) {
        Some(TfliteValue::Constant(c)) => Ok(c.dims.len()),
        _ => node.live(i).map(|x| x.live.rank()),
    });
    let rank = rank.collect::<Result<Vec<_>, _>>()?.into_iter().max();
    let lives = at.iter().filter_map(|&i| node.live(i).ok());
    let mut lives: Vec<Turned> = lives.map(|x| led(x, rank.unwrap_or(0))).collect();
    lives.sort_by_key(|x| std::cmp::Reverse(x.live.len()));
    let Some(like) = lives.first().cloned() else {
        return Err("expected a value computed from the record, found constants".into());
    };
    let mut sides = Vec::new();
    for &i in at {
        sides.push(match node.input(i) {
            Some(TfliteValue::Constant(c)) => Side::Constant(turned(c, &like)),
            _ => {
                let x = led(node.live(i)?, rank.unwrap_or(0));
                if x.order.len() != like.order.len() {
                    let (shown_x, shown_y) = (shown(&like), shown(&x));
                    return Err(operations::mismatch(
                        &like.live, &shown_x, &x.live, &shown_y,
                    ));
                }
                Side::Live(arranged(b, &node.name, &x, &like.order)?)
            }
        });
    }
    Ok(Sides {
        sides,
        order: like.order,
    })
}

/// Adds an element-wise arithmetic operator on two operands, and its fused activation.
fn arithmetic(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let of = arithmetic_of(node.op);
    let sides = sides(b, node, &[0, 1])?;
    let (x, y) = (sides.sides[0].operand(), sides.sides[1].operand());
    let live = elementwise::arithmetic(b, &node.name, of, x, y)?;
    let live = match of {
        Arithmetic::Maximum | Arithmetic::Minimum => live,
        _ => fused(b, node, live, 0)?,
    };
    Ok(sides.turned(live))
}

/// Returns input 0 as an image with the axes [channels, rows, columns] for each record.
pub(super) fn image(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Live, String> {
    as_image(b, &node.name, node.live(0)?)
}

/// Returns a value as an image with the axes [channels, rows, columns] for each record.
pub(super) fn as_image(b: &mut Builder, name: &str, x: &Turned) -> Result<Live, String> {
    if x.live.rank() != 4 || tensor(x).behind_first().is_none() {
        return Err(format!("expected [N, H, W, C], found {}", shown(x)));
    }
    let order: &[usize] = match x.live.records {
        Some(_) => &[2, 0, 1],
        None => &[0, 3, 1, 2],
    };
    arranged(b, name, x, order)?.per_record()
}

/// Wraps an image of channels, rows, columns as a tensor whose channels are last. `records` is the
/// index of the axis of the records in that tensor. If it is `None`, the tensor gets a first axis
/// of size 1.
pub(super) fn of_image(live: Live, records: Option<usize>) -> Turned {
    Turned {
        live: live.like(records),
        order: match records {
            Some(_) => vec![2, 0, 1],
            None => vec![0, 3, 1, 2],
        },
    }
}

/// Returns the window of a convolution or pooling over the image `x`. The padding is field 0 of the
/// operator's options.
pub(super) fn window(
    node: &OperatorNode<'_>,
    x: &Live,
    size: (usize, usize),
    stride: (usize, usize),
    dilation: (usize, usize),
) -> Result<Window, String> {
    let border = match node.options.byte(0)? {
        // SAME padding. If the number of border rows or columns is odd, the extra one is at the
        // bottom or right.
        0 => {
            let [(height, width), (down, right), (dy, dx)] = [size, stride, dilation];
            let rows = operations::same(x.dims[1], height, down, dy);
            let cols = operations::same(x.dims[2], width, right, dx);
            let (top, left) = (rows / 2, cols / 2);
            Border {
                top,
                left,
                bottom: rows - top,
                right: cols - left,
            }
        }
        1 => Border::default(),
        other => return Err(format!("padding: expected SAME or VALID, found {other}")),
    };
    Ok(Window {
        size,
        stride,
        dilation,
        border,
        ceil: false,
    })
}

/// Returns the biases in input 2 of an operator, or zeros if the input is left out.
pub(super) fn biases(node: &OperatorNode<'_>, outputs: usize) -> Result<Vec<f64>, String> {
    let Some(c) = node.constant(2, "biases")? else {
        return Ok(vec![0.0; outputs]);
    };
    let biases = c.numbers()?;
    match biases.len() == outputs {
        true => Ok(biases),
        false => Err(format!("expected {outputs} biases, found {}", biases.len())),
    }
}

fn convolution(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let depthwise = node.op == "DEPTHWISE_CONV_2D";
    let x = image(b, node)?;
    let weights = node.needed(1, "weights")?;
    let &[first, height, width, last] = &weights.dims[..] else {
        return Err(format!(
            "expected weights of 4 axes, found sizes {:?}",
            weights.dims
        ));
    };
    let channels = x.dims[0];
    let meet = || {
        format!(
            "{} with weights {:?}: channels do not match",
            shown(&of_image(x.clone(), Some(0))),
            weights.dims
        )
    };
    if weights.len() == 0 || [height, width].iter().any(|&n| n > MOST) {
        return Err(meet());
    }
    let (outputs, group) = if depthwise { (last, 1) } else { (first, last) };
    let groups = channels / group;
    if groups == 0
        || channels != groups * group
        || outputs % groups != 0
        || (depthwise && first != 1)
    {
        return Err(meet());
    }
    let mut numbers = weights.numbers()?;
    if depthwise {
        // Reorders the weights from (row, column, output) to (output, row, column).
        numbers = (0..outputs)
            .flat_map(|o| numbers.iter().skip(o).step_by(outputs).copied())
            .collect();
    }
    // Field numbers of the schema's table `Conv2DOptions`: 0 padding, 1 stride_w, 2 stride_h, 3
    // activation, 4 dilation_w_factor, 5 dilation_h_factor. In `DepthwiseConv2DOptions` field 3 is
    // depth_multiplier, and activation and dilations follow from 4 on.
    let more = usize::from(depthwise);
    let stride = (node.count(2, "stride_h", 0)?, node.count(1, "stride_w", 0)?);
    let dilation = (
        node.count(5 + more, "dilation_h_factor", 1)?,
        node.count(4 + more, "dilation_w_factor", 1)?,
    );
    let window = window(node, &x, (height, width), stride, dilation)?;
    let biases = biases(node, outputs)?;
    let live = operations::convolution(b, &node.name, &x, numbers, biases, window, groups)?;
    let records = node.live(0)?.live.records;
    Ok(of_image(fused(b, node, live, 3 + more)?, records))
}

/// Returns the window of a pooling operator over the image `x`.
pub(super) fn pool_window(node: &OperatorNode<'_>, x: &Live) -> Result<Window, String> {
    // Field numbers of the schema's table `Pool2DOptions`: 0 padding, 1 stride_w, 2 stride_h, 3
    // filter_width, 4 filter_height, 5 activation.
    let stride = (node.count(2, "stride_h", 0)?, node.count(1, "stride_w", 0)?);
    let size = (
        node.count(4, "filter_height", 0)?,
        node.count(3, "filter_width", 0)?,
    );
    window(node, x, size, stride, (1, 1))
}

fn pool(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = image(b, node)?;
    let window = pool_window(node, &x)?;
    let kind = if node.op == "MAX_POOL_2D" {
        Pool::Max
    } else {
        Pool::Mean
    };
    let live = operations::pool(b, &node.name, &x, kind, window)?;
    let records = node.live(0)?.live.records;
    Ok(of_image(fused(b, node, live, 5)?, records))
}

fn fully_connected(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    // Field numbers of the schema's table `FullyConnectedOptions`: 0 activation, 1 weights_format,
    // 2 keep_num_dims.
    if node.options.byte(1)? != 0 {
        return Err("weights_format: expected DEFAULT, found SHUFFLED4x16INT8".into());
    }
    let keep = node.options.flag(2)?;
    let x = node.live(0)?;
    let weights = node.needed(1, "weights")?;
    let &[outputs, inputs] = &weights.dims[..] else {
        return Err(format!(
            "expected a matrix of weights, found sizes {:?}",
            weights.dims
        ));
    };
    let biases = biases(node, outputs)?;
    let numbers = weights.numbers()?;
    let sizes = dims(x);
    if x.live.len() == inputs {
        let from = plain(b, &node.name, x)?;
        let y = b.affine(&node.name, &from, numbers, biases)?;
        let live = fused(b, node, y, 0)?;
        let ahead = match (keep, x.live.records) {
            (true, _) => sizes.len().saturating_sub(1),
            (false, Some(_)) => 0,
            (false, None) => 1,
        };
        return Ok(straight(
            live.with_dims([vec![1; ahead], vec![outputs]].concat()),
        ));
    }
    if !keep && x.live.records.is_none() && x.live.len() % inputs.max(1) == 0 {
        let rows = plain(b, &node.name, x)?;
        let rows = rows.with_dims(vec![x.live.len() / inputs.max(1), inputs]);
        return rows_by_weights(b, node, &straight(rows), numbers, &biases);
    }
    if sizes.last() != Some(&inputs) {
        return Err(format!(
            "values of {} and weights {:?} do not match",
            shown(x),
            weights.dims
        ));
    }
    if !keep {
        return Err(format!(
            "{} as rows of {inputs} values would mix records: expected keep_num_dims",
            shown(x)
        ));
    }
    rows_by_weights(b, node, x, numbers, &biases)
}

/// Multiplies a matrix of weights by each row along the last axis of a tensor, and adds biases.
fn rows_by_weights(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    x: &Turned,
    numbers: Vec<f64>,
    biases: &[f64],
) -> Result<Turned, String> {
    let (outputs, last) = (biases.len(), x.order.len() - 1);
    // The axis of the sum becomes the channel axis, so that a 1 × 1 convolution computes the
    // product.
    let order: Vec<usize> = std::iter::once(last).chain(0..last).collect();
    let from = arranged(b, &node.name, x, &order)?;
    let y = operations::pointwise(b, &node.name, &from, numbers, outputs)?;
    let each = y.len() / outputs.max(1);
    let summands: Vec<f64> = biases
        .iter()
        .flat_map(|&s| std::iter::repeat_n(s, each))
        .collect();
    let y = b.scale(&node.name, &y, &[1.0], &summands)?;
    Ok(Turned {
        live: fused(b, node, y, 0)?,
        order,
    })
}

fn reduce(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = node.live(0)?;
    let axes = node.needed(1, "axes")?.integers()?;
    let mut axes = inner_axes(&axes, &tensor(x))?;
    axes.sort_unstable();
    axes.dedup();
    if axes.is_empty() {
        return Ok(x.clone());
    }
    // Axes that are adjacent in the value are reduced at once. Other axes are first moved to the
    // end, where they are adjacent.
    let mut at: Vec<usize> = axes
        .iter()
        .filter_map(|a| x.order.iter().position(|o| o == a))
        .collect();
    at.sort_unstable();
    let (live, order) = if at
        .last()
        .zip(at.first())
        .is_some_and(|(l, f)| l - f + 1 == at.len())
    {
        (x.live.clone(), x.order.clone())
    } else {
        let rest = (0..x.order.len()).filter(|a| !axes.contains(a));
        let order: Vec<usize> = rest.chain(axes.iter().copied()).collect();
        at = (order.len() - axes.len()..order.len()).collect();
        (arranged(b, &node.name, x, &order)?, order)
    };
    let of = match node.op {
        "MEAN" => Reduction::Mean,
        "SUM" => Reduction::Sum,
        _ => Reduction::Max,
    };
    let keep = node.options.flag(0)?;
    let live = operations::reduce(b, &node.name, &live, at, of, keep)?;
    let order = match keep {
        true => order,
        // Without the reduced axes, the remaining axes are renumbered.
        false => order
            .iter()
            .filter(|a| !axes.contains(a))
            .map(|&a| a - axes.iter().filter(|&&r| r < a).count())
            .collect(),
    };
    Ok(Turned { live, order })
}

fn softmax(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = node.live(0)?;
    if node.op == "LOG_SOFTMAX" {
        return of_last_axis(b, &node.name, x, OfChannels::LogSoftmax);
    }
    let beta = beta(node)?;
    let scaled = match beta == 1.0 {
        true => x.clone(),
        false => x.with(b.scale(&node.name, &x.live, &[beta.into()], &[0.0])?),
    };
    of_last_axis(b, &node.name, &scaled, OfChannels::Softmax)
}

/// Builds a function of all numbers along the last axis.
pub(super) fn of_last_axis(
    b: &mut Builder,
    name: &str,
    x: &Turned,
    of: OfChannels,
) -> Result<Turned, String> {
    let around = Builder::around(&x.live, position(x, -1)?);
    Ok(x.with(operations::of_axis(b, name, &x.live, around, of)?))
}

/// Returns the factor of a `SOFTMAX`'s operand.
pub(super) fn beta(node: &OperatorNode<'_>) -> Result<f32, String> {
    let beta = node.options.float(0)?;
    match beta.is_finite() && beta > 0.0 {
        true => Ok(beta),
        false => Err(format!("beta: expected a number above 0, found {beta}")),
    }
}

/// Changes the sizes of a tensor. If only axes of size 1 come and go, no node is needed.
fn reshape(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = node.live(0)?;
    let reshaped = sizes_of(b, node, x)?;
    if reshaped.records.is_some_and(|r| r > 0) {
        return Err("the first axis must stay the axis of the records".into());
    }
    let (old, new) = (dims(x), reshaped.dims);
    let long = |dims: &[usize]| (0..dims.len()).filter(|&a| dims[a] > 1).collect::<Vec<_>>();
    let (from, to) = (long(&old), long(&new));
    if from.iter().map(|&a| old[a]).ne(to.iter().map(|&a| new[a])) {
        let live = plain(b, &node.name, x)?;
        return Ok(straight(Live { dims: new, ..live }));
    }
    let after = |a: &usize| from.iter().position(|f| f == a).map(|k| to[k]);
    let mut order: Vec<usize> = x.order.iter().filter_map(after).collect();
    order.extend((0..new.len()).filter(|a| new[*a] == 1));
    let dims = order.iter().map(|&a| new[a]).collect();
    Ok(Turned {
        live: x.live.with_dims(dims),
        order,
    })
}

/// Returns the tensor with the sizes that `RESHAPE`, `SQUEEZE` or `EXPAND_DIMS` asks for. Only the
/// sizes of the result may be used, because the value's axes may have another order.
fn sizes_of(b: &Builder, node: &OperatorNode<'_>, x: &Turned) -> Result<Live, String> {
    let old = tensor(x);
    match node.op {
        "SQUEEZE" => {
            let axes = node.options.longs_of_ints(0)?;
            operations::squeezed("Squeeze", &old, Some(&axes[..]).filter(|a| !a.is_empty()))
        }
        "EXPAND_DIMS" => {
            let axes = node.needed(1, "an axis")?.integers()?;
            operations::squeezed("Unsqueeze", &old, Some(&axes))
        }
        _ => {
            let target = match node.constant(1, "a shape")? {
                Some(c) => match &c.data {
                    Data::Ints(target) => target.clone(),
                    _ => return Err("expected a shape of integers".into()),
                },
                None => node
                    .options
                    .ints(0)?
                    .into_iter()
                    .map(|i| Int::Known(i.into()))
                    .collect(),
            };
            b.reshape(&old, &target, true)
        }
    }
}

/// `TRANSPOSE`: needs no node. Only the order of the tensor's axes changes.
fn transpose(node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = node.live(0)?;
    let order = node.needed(1, "an order of axes")?.integers()?;
    let turned = order_of(&order, &tensor(x))?;
    if turned.records.is_some_and(|r| r > 0) {
        return Err(format!(
            "perm {order:?}: the first axis must stay the axis of the records"
        ));
    }
    let place = |a: &usize| turned.inner.iter().position(|o| o == a);
    Ok(Turned {
        order: x.order.iter().filter_map(place).collect(),
        ..x.clone()
    })
}

fn concat(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let first = (0..node.inputs.len()).find_map(|i| node.live(i).ok());
    let first = first.ok_or("expected inputs, found nothing")?;
    // Field numbers of the schema's table `ConcatenationOptions`: 0 axis, 1 activation.
    let a = position(first, node.options.int(0, 0)?.into())?;
    let mut sides = Vec::new();
    for i in 0..node.inputs.len() {
        sides.push(match node.input(i) {
            Some(TfliteValue::Constant(c)) if c.dims.len() == first.live.rank() => {
                Side::Constant(turned_whole(c, first))
            }
            _ => {
                let part = node.live(i)?;
                if part.order.len() != first.order.len() {
                    return Err(format!(
                        "the sizes of {} and {} do not match",
                        shown(first),
                        shown(part)
                    ));
                }
                Side::Live(arranged(b, &node.name, part, &first.order)?)
            }
        });
    }
    let parts: Vec<Operand<'_>> = sides.iter().map(Side::operand).collect();
    let live = elementwise::joined(b, &node.name, &parts, a)?;
    Ok(Turned {
        live: fused(b, node, live, 1)?,
        order: first.order.clone(),
    })
}

/// Returns input `i` as a graph value. A constant is turned into one. It gets an axis of the
/// records if `beside` has one.
pub(super) fn as_live(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    i: usize,
    beside: &Turned,
) -> Result<Turned, String> {
    match node.input(i) {
        Some(TfliteValue::Constant(c)) => {
            elementwise::constant_value(b, &node.name, &beside.live, c).map(straight)
        }
        _ => node.live(i).cloned(),
    }
}

fn pad(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let x = node.live(0)?;
    let pads = node.needed(1, "paddings")?;
    let rank = x.live.rank();
    if pads.dims != [rank, 2] {
        return Err(format!(
            "expected paddings of sizes [{rank}, 2], found {:?}",
            pads.dims
        ));
    }
    let value = node
        .constant(2, "a value")?
        .map_or(Ok(0.0), |c| c.number())?;
    let size = |p: i64| match usize::try_from(p) {
        Ok(p) if p <= MOST => Ok(p),
        _ => Err(format!(
            "paddings: expected numbers from 0 to {MOST}, found {p}"
        )),
    };
    let pads = pads
        .integers()?
        .into_iter()
        .map(size)
        .collect::<Result<Vec<_>, _>>()?;
    let first = usize::from(x.live.records.is_some());
    if pads[..2 * first].iter().any(|&p| p != 0) {
        return Err("paddings: records cannot be padded".into());
    }
    let around = |&a: &usize| Around {
        before: pads[2 * (a + first)],
        behind: pads[2 * (a + first) + 1],
    };
    let around: Vec<Around> = x.order.iter().map(around).collect();
    Ok(x.with(operations::pad(b, &node.name, &x.live, &around, value)?))
}

/// The part of one axis that a strided slice selects.
#[derive(Clone)]
struct Taken {
    /// The indices that the slice selects along the axis. `None` selects the whole axis.
    at: Option<Vec<usize>>,
    /// True if the axis stays in the result. False if it is left out, because only one index of it
    /// was selected.
    stays: bool,
}

/// Returns the part of each axis that a strided slice selects. In `sizes` the axis of the records
/// has the size `usize::MAX`. `records` is the number of records, if the model states it.
fn taken(
    node: &OperatorNode<'_>,
    sizes: &[usize],
    records: Option<usize>,
) -> Result<Vec<Taken>, String> {
    // Field numbers of the schema's table `StridedSliceOptions`: 0 begin_mask, 1 end_mask, 2
    // ellipsis_mask, 3 new_axis_mask, 4 shrink_axis_mask, 5 offset.
    let mask = |n: usize| node.options.int(n, 0);
    let (begins, ends, shrunk) = (mask(0)?, mask(1)?, mask(4)?);
    for (n, name) in [(2, "ellipsis_mask"), (3, "new_axis_mask")] {
        if mask(n)? != 0 {
            return Err(format!("{name}: expected 0, found {}", mask(n)?));
        }
    }
    if node.options.flag(5)? {
        return Err("offset: expected false, found true".into());
    }
    let list = |i: usize, what: &str| node.needed(i, what)?.integers();
    let (begin, end, strides) = (list(1, "begins")?, list(2, "ends")?, list(3, "strides")?);
    if begin.len() > sizes.len()
        || begin.len() != end.len()
        || begin.len() != strides.len()
        || begin.len() > 31
    {
        return Err("expected as many begins as ends and strides, and no more than axes".into());
    }
    let whole = Taken {
        at: None,
        stays: true,
    };
    let mut taken = vec![whole; sizes.len()];
    for (a, &n) in sizes.iter().enumerate().take(begin.len()) {
        let bit = |mask: i32| mask >> a & 1 == 1;
        if bit(shrunk) {
            let i = axis(begin[a], n)
                .map_err(|_| format!("expected one of {n} indices, found {}", begin[a]))?;
            taken[a] = Taken {
                at: Some(vec![i]),
                stays: false,
            };
            continue;
        }
        let back = strides[a] < 0;
        let from = if bit(begins) {
            if back { i64::MAX } else { 0 }
        } else {
            begin[a]
        };
        let to = if bit(ends) {
            if back { i64::MIN } else { i64::MAX }
        } else {
            end[a]
        };
        if n == usize::MAX {
            // Along this axis only a slice of all records in their order is supported.
            if strides[a] != 1 || from != 0 || to != i64::MAX && !all_records(records, to) {
                return Err(RECORDS.into());
            }
            continue;
        }
        taken[a].at = Some(fold::sliced(from, to, strides[a], n)?);
    }
    Ok(taken)
}

/// The message for a slice that takes only some of the records.
const RECORDS: &str = "axis 0 is the axis of the records, which a slice must take whole";

/// True if the model states a number of records, and `n` is that number.
fn all_records(records: Option<usize>, n: i64) -> bool {
    records.is_some_and(|all| usize::try_from(n) == Ok(all))
}

fn strided_slice(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let mut x = node.live(0)?.clone();
    let first = usize::from(x.live.records.is_some());
    let sizes = [vec![usize::MAX; first], dims(&x)].concat();
    if first == 1 && node.needed(1, "begins")?.len() > 0 && node.options.int(4, 0)? & 1 == 1 {
        return Err(RECORDS.into());
    }
    let taken = taken(node, &sizes, b.records)?;
    for (a, taken) in taken.iter().enumerate().skip(first) {
        let Some(at) = &taken.at else { continue };
        if at.is_empty() {
            return Err(format!("the slice of axis {a} of {} is empty", shown(&x)));
        }
        let place = position(&x, a as i64)?;
        x.live = operations::along(b, &node.name, &x.live, place, at)?;
    }
    let left: Vec<usize> = (0..x.order.len())
        .filter(|a| taken[a + first].stays)
        .collect();
    let (mut order, mut dims) = (Vec::new(), Vec::new());
    for (a, &d) in x.order.iter().zip(&x.live.dims) {
        if let Some(new) = left.iter().position(|l| l == a) {
            order.push(new);
            dims.push(d);
        }
    }
    Ok(Turned {
        live: x.live.with_dims(dims),
        order,
    })
}

/// `SLICE`: a stated number of elements from a stated index on, for each axis. -1 stands for all
/// elements up to the end.
fn slice(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Turned, String> {
    let mut x = node.live(0)?.clone();
    let (begins, counts) = (
        node.needed(1, "begins")?.integers()?,
        node.needed(2, "sizes")?.integers()?,
    );
    let (rank, ahead) = (x.live.rank(), usize::from(x.live.records.is_some()));
    if begins.len() != rank || counts.len() != rank {
        return Err(format!(
            "expected {rank} begins and sizes, found {begins:?} and {counts:?}"
        ));
    }
    if ahead == 1 && (begins[0] != 0 || counts[0] != -1 && !all_records(b.records, counts[0])) {
        return Err(RECORDS.into());
    }
    for (a, n) in dims(&x).into_iter().enumerate() {
        let (begin, count) = (begins[a + ahead], counts[a + ahead]);
        let first = usize::try_from(begin).ok().filter(|&first| first < n);
        let end = first.and_then(|first| match count {
            -1 => Some(n),
            count => first
                .checked_add(usize::try_from(count).ok()?)
                .filter(|&end| end > first && end <= n),
        });
        let (Some(first), Some(end)) = (first, end) else {
            let shown = shown(&x);
            return Err(format!(
                "expected a part of axis {} of {shown}, found {count} elements from {begin} on",
                a + ahead
            ));
        };
        let (place, at) = (
            position(&x, (a + ahead) as i64)?,
            (first..end).collect::<Vec<_>>(),
        );
        x.live = operations::along(b, &node.name, &x.live, place, &at)?;
    }
    Ok(x)
}

/// Cuts a tensor into parts along an axis. `UNPACK` removes that axis from the results.
fn split(b: &mut Builder, node: &OperatorNode<'_>) -> Result<Vec<Turned>, String> {
    let axis_of = |i: usize| {
        let axes = node.needed(i, "an axis")?.integers()?;
        let &[axis] = &axes[..] else {
            return Err(format!("expected one axis, found {}", axes.len()));
        };
        Ok(axis)
    };
    let (x, axis) = match node.op {
        "SPLIT" => (node.live(1)?, axis_of(0)?),
        "SPLIT_V" => (node.live(0)?, axis_of(2)?),
        // Field numbers of the schema's table `UnpackOptions`: 0 num, 1 axis.
        _ => (node.live(0)?, node.options.int(1, 0)?.into()),
    };
    let place = position(x, axis)?;
    let (n, gone) = (x.live.dims[place], x.order[place]);
    let sizes = match node.op {
        "SPLIT_V" => {
            let sizes = node.needed(1, "sizes")?.integers()?;
            let stated = sizes
                .iter()
                .filter(|&&s| s >= 0)
                .fold(0i64, |sum, &s| sum.saturating_add(s));
            let rest = n as i64 - stated;
            // A size that is out of range becomes 0, which is reported below.
            let size = |&s: &i64| {
                usize::try_from(if s == -1 { rest } else { s })
                    .ok()
                    .filter(|&s| s <= n)
            };
            sizes.iter().map(|s| size(s).unwrap_or(0)).collect()
        }
        // Field 0 is num_splits in `SplitOptions`, and num in `UnpackOptions`.
        op => {
            let count = node.count(0, if op == "SPLIT" { "num_splits" } else { "num" }, 0)?;
            vec![n / count; count]
        }
    };
    if sizes.contains(&0)
        || sizes.iter().sum::<usize>() != n
        || (node.op == "UNPACK" && sizes.len() != n)
    {
        return Err(format!(
            "expected parts along axis {axis} of {} that add up to its size, found {sizes:?}",
            shown(x)
        ));
    }
    let (mut first, mut parts) = (0, Vec::new());
    for size in sizes {
        let at: Vec<usize> = (first..first + size).collect();
        let mut part = Turned {
            live: operations::along(b, &node.name, &x.live, place, &at)?,
            order: x.order.clone(),
        };
        if node.op == "UNPACK" {
            part.live.dims.remove(place);
            part.order.remove(place);
            part.order
                .iter_mut()
                .filter(|a| **a > gone)
                .for_each(|a| *a -= 1);
        }
        parts.push(part);
        first += size;
    }
    Ok(parts)
}

/// Computes an operator whose inputs are all constants.
fn of_constants(
    node: &OperatorNode<'_>,
    inputs: &[&ConstantTensor],
) -> Result<ConstantTensor, String> {
    let input = |i: usize| {
        let found = inputs.get(i).copied();
        found.ok_or_else(|| format!("expected an input {i}, found nothing"))
    };
    let first = input(0)?;
    let activation = match node.op {
        "ADD" | "SUB" | "MUL" | "DIV" => node.options.byte(0)?,
        "CONCATENATION" => node.options.byte(1)?,
        _ => 0,
    };
    if activation != 0 {
        return Err("fused_activation_function: expected NONE between constants".into());
    }
    let two = |op: &str| fold::two(op, first, input(1)?);
    match node.op {
        // A constant already holds the real numbers that its quantized integers stand for.
        "QUANTIZE" | "DEQUANTIZE" => first.cast(Element::F32),
        // A sparse constant was filled with zeros when it was read, so nothing is left to do.
        "DENSIFY" => Ok(first.clone()),
        "CAST" => first.cast(node.output.computed()),
        "ADD" => two("Add"),
        "SUB" => two("Sub"),
        "MUL" => two("Mul"),
        "DIV" => two("Div"),
        "MAXIMUM" => two("Max"),
        "MINIMUM" => two("Min"),
        "NEG" => fold::one("Neg", first),
        "SHAPE" => {
            let dims: Vec<i64> = first.dims.iter().map(|&d| d as i64).collect();
            ConstantTensor::ints(vec![dims.len()], dims).cast(node.output.element())
        }
        "RESHAPE" => {
            let target = match input(1) {
                Ok(c) => c.integers()?,
                Err(_) => node.options.longs_of_ints(0)?,
            };
            fold::reshape(first, &target, true)
        }
        "SQUEEZE" => {
            let axes = node.options.longs_of_ints(0)?;
            let axes = Some(&axes[..]).filter(|a| !a.is_empty());
            Ok(first.with_dims(fold::squeezed("Squeeze", &first.dims, axes)?))
        }
        "EXPAND_DIMS" => {
            let axes = input(1)?.integers()?;
            Ok(first.with_dims(fold::squeezed("Unsqueeze", &first.dims, Some(&axes))?))
        }
        "TRANSPOSE" => {
            let order = permutation(&input(1)?.integers()?, first.dims.len())?;
            Ok(fold::transpose(first, &order))
        }
        "CONCATENATION" => fold::concat(inputs, node.options.int(0, 0)?.into()),
        "PACK" => pack(node, inputs),
        // Field numbers of the schema's table `GatherOptions`: 0 axis, 1 batch_dims.
        "GATHER" if node.options.int(1, 0)? == 0 => {
            fold::gather(first, input(1)?, node.options.int(0, 0)?.into())
        }
        "REDUCE_PROD" if first.dims.len() <= 1 => product(node, first),
        "STRIDED_SLICE" => slice_of_constant(node, first),
        _ => Err("it is not supported on constants alone".into()),
    }
}

/// `PACK`: stacks constants along a new axis.
fn pack(node: &OperatorNode<'_>, inputs: &[&ConstantTensor]) -> Result<ConstantTensor, String> {
    // Field numbers of the schema's table `PackOptions`: 1 axis.
    let along = node.options.int(1, 0)?.into();
    let a = axis(along, inputs.first().map_or(0, |c| c.dims.len()) + 1)?;
    let with = |c: &&ConstantTensor| {
        let mut dims = c.dims.clone();
        dims.insert(a.min(dims.len()), 1);
        c.with_dims(dims)
    };
    let parts: Vec<ConstantTensor> = inputs.iter().map(with).collect();
    fold::concat(&parts.iter().collect::<Vec<_>>(), a as i64)
}

/// `REDUCE_PROD` of a vector: the product of all its integers.
fn product(node: &OperatorNode<'_>, c: &ConstantTensor) -> Result<ConstantTensor, String> {
    let Data::Ints(v) = &c.data else {
        return Err("expected integers".into());
    };
    let mut factors = v.iter();
    let product = factors.try_fold(Int::Known(1), |a, &b| fold::integers("Mul", c.kind, a, b))?;
    let keep = node.options.flag(0)?;
    Ok(ConstantTensor::new(
        c.kind,
        if keep { vec![1; c.dims.len()] } else { vec![] },
        Data::Ints(vec![product]),
    ))
}

/// `STRIDED_SLICE` of a constant, for example of a shape.
fn slice_of_constant(
    node: &OperatorNode<'_>,
    c: &ConstantTensor,
) -> Result<ConstantTensor, String> {
    let taken = taken(node, &c.dims, None)?;
    let mut result = c.clone();
    for (a, taken) in taken.iter().enumerate() {
        let Some(at) = &taken.at else { continue };
        let at = ConstantTensor::ints(vec![at.len()], at.iter().map(|&i| i as i64).collect());
        result = fold::gather(&result, &at, a as i64)?;
    }
    let stays = result.dims.iter().zip(&taken).filter(|(_, t)| t.stays);
    let dims: Vec<usize> = stays.map(|(&d, _)| d).collect();
    match elements(&dims) == Some(result.len()) {
        true => Ok(result.with_dims(dims)),
        false => Err("an axis of a size other than 1 cannot be left out".into()),
    }
}
