//! TensorFlow Lite operators on 8-bit integers. Layers, sums, products, means and copies have rules
//! that give the same integers as XNNPACK. All other operators compute real numbers and round the
//! result.

use super::ops::{self, image, of_image, pool_window, sides};
use super::tensor::TfliteTensor;
use super::{OperatorNode, TfliteValue, Turned, dynamic, values};
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::ConstantTensor;
use crate::bake::front::integers::{self, Function, Limits, Steps, Summand};
use crate::bake::front::listed;
use crate::bake::front::operations;
use crate::bake::front::value::Live;
use crate::ir::op::{Float, OfChannels, Pool};
use std::rc::Rc;

/// The last step of an operator on integers: it scales, rounds and limits the result.
#[derive(Clone)]
pub(super) struct Rule {
    /// The factors that turn the operator's integer sums into integers of the result. There is one
    /// for all sums, or one for each channel. Empty if no scaling is needed.
    factors: Vec<f64>,
    /// The quantization of the operator's result.
    to: Steps,
}

impl Rule {
    /// Adds this last step to the draft. `code` is the activation that is fused into the operator.
    pub(super) fn apply(
        &self,
        b: &mut Builder,
        name: &str,
        live: &Live,
        code: u8,
    ) -> Result<Live, String> {
        let limits = self.to.limits().and(activation(code, self.to)?);
        if self.factors.is_empty() {
            return match limits == self.to.limits() {
                true => Ok(live.clone()),
                false => integers::limited(b, name, live, limits),
            };
        }
        // The draft stores all numbers of a channel in a row, so each channel's factor is repeated.
        let each = match self.factors.len() {
            1 => 1,
            channels => live.len() / channels,
        };
        let factors = self.factors.iter();
        let factors: Vec<f64> = factors
            .flat_map(|&f| std::iter::repeat_n(f, each))
            .collect();
        integers::requantised(b, name, live, &factors, limits)
    }
}

/// Returns the limits that an operator's fused activation sets to the integers of its result.
fn activation(code: u8, to: Steps) -> Result<Limits, String> {
    let (low, high) = match code {
        0 => (i32::MIN, i32::MAX),
        1 => (0, i32::MAX),
        2 => (to.nearest(-1.0), to.nearest(1.0)),
        3 => (0, to.nearest(6.0)),
        _ => {
            return Err(format!(
                "fused_activation_function: expected NONE, RELU, RELU_N1_TO_1 or RELU6 of \
                 integers, found code {code}"
            ));
        }
    };
    Ok(Limits { low, high })
}

/// Functions of one integer that are computed as tables.
const TABLES: &str = "HARD_SWISH LOGISTIC TANH";

/// Functions that limit an integer. They are computed as tables if the scales differ.
const LIMITS: &str = "RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1";

/// Operators that copy integers, or select some of them, without arithmetic.
const COPIES: &str = "BROADCAST_TO CONCATENATION DEPTH_TO_SPACE EXPAND_DIMS GATHER MAXIMUM \
                      MAX_POOL_2D MINIMUM MIRROR_PAD PACK PAD PADV2 REDUCE_MAX REDUCE_MIN RESHAPE \
                      RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SLICE SPACE_TO_DEPTH SPLIT SPLIT_V \
                      SQUEEZE STRIDED_SLICE TILE TRANSPOSE UNPACK";

impl OperatorNode<'_> {
    /// Returns the quantization of input `i`, if that input is computed as integers.
    fn steps(&self, i: usize) -> Option<Steps> {
        self.tensors.get(i).copied().flatten()?.steps()
    }

    /// Returns this operator with other inputs and another last step.
    fn with(&self, inputs: Vec<Option<TfliteValue>>, rule: Option<Rule>) -> Self {
        OperatorNode {
            name: self.name.clone(),
            inputs,
            tensors: self.tensors.clone(),
            rule,
            ..*self
        }
    }
}

/// Computes the outputs of an operator. In the draft a tensor of 8-bit integers is whole numbers:
/// the integers less their zero point.
pub(super) fn compute(
    b: &mut Builder,
    node: &OperatorNode<'_>,
) -> Result<Vec<TfliteValue>, String> {
    let live = |i: &usize| matches!(node.input(*i), Some(TfliteValue::Live(_)));
    let lives: Vec<usize> = (0..node.inputs.len()).filter(live).collect();
    let whole = |i: &usize| node.steps(*i).is_some();
    let to = node.output.steps();
    if to.is_none() {
        if let Some(inputs) = dynamic::rounded(b, node)? {
            return ops::compute(b, &node.with(inputs, None));
        }
    }
    if lives.is_empty() || to.is_none() && !lives.iter().any(whole) {
        return ops::compute(b, node);
    }
    if let Some(to) = to {
        if let Some(by_rule) = with_rule(b, node, to)? {
            return Ok(by_rule);
        }
    }
    if node.op == "SHAPE" {
        return ops::compute(b, node);
    }
    let mut inputs = node.inputs.clone();
    for i in lives {
        let of = node.tensors.get(i).copied().flatten();
        inputs[i] = Some(TfliteValue::Live(real(b, &node.name, node.live(i)?, of)?));
    }
    let mut outputs = ops::compute(b, &node.with(inputs, None))?;
    if let Some(to) = to {
        for output in &mut outputs {
            if let TfliteValue::Live(x) = output {
                x.live = integers::quantised(b, &node.name, &x.live, to)?;
            }
        }
    }
    Ok(outputs)
}

/// Returns the real numbers that the whole numbers `x` of the tensor `of` stand for. Other tensors
/// are returned unchanged.
pub(super) fn real(
    b: &mut Builder,
    name: &str,
    x: &Turned,
    of: Option<&TfliteTensor<'_>>,
) -> Result<Turned, String> {
    match of.and_then(TfliteTensor::steps) {
        Some(steps) => Ok(x.with(integers::real(b, name, &x.live, steps)?)),
        None => Ok(x.clone()),
    }
}

/// Quantizes an input of the model, which holds real numbers, to whole numbers. An input that is
/// not computed as integers is returned unchanged.
pub(super) fn of_input(
    b: &mut Builder,
    x: &Turned,
    of: Option<&TfliteTensor<'_>>,
) -> Result<Turned, String> {
    match of.and_then(|t| Some((t, t.steps()?))) {
        Some((of, steps)) => Ok(x.with(integers::quantised(b, &of.name, &x.live, steps)?)),
        None => Ok(x.clone()),
    }
}

/// Computes an operator in integers. `None` if it has no rule for these operands.
fn with_rule(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    to: Steps,
) -> Result<Option<Vec<TfliteValue>>, String> {
    let of = node.steps(0);
    let turned = |x: Turned| Ok(Some(vec![TfliteValue::Live(x)]));
    let one = |x: &Turned, live: Live| turned(x.with(live));
    match (node.op, of) {
        ("QUANTIZE", None) => {
            let x = node.live(0)?;
            one(x, integers::quantised(b, &node.name, &x.live, to)?)
        }
        ("QUANTIZE", Some(of)) => {
            let x = node.live(0)?;
            one(x, integers::converted(b, &node.name, &x.live, of, to, 1.0)?)
        }
        ("LEAKY_RELU", Some(of)) => {
            let (x, slope) = (node.live(0)?, node.options.float(0)?);
            one(
                x,
                integers::converted(b, &node.name, &x.live, of, to, slope)?,
            )
        }
        ("CONV_2D" | "DEPTHWISE_CONV_2D" | "FULLY_CONNECTED", Some(of)) => layer(node, of, to)?
            .map(|layer| ops::compute(b, &layer))
            .transpose(),
        ("ADD" | "SUB", _) => match node.steps(1).zip(of) {
            Some((second, first))
                if integers::adds([first.scale / to.scale, second.scale / to.scale]) =>
            {
                sum(b, node, [first, second], to).map(Some)
            }
            _ => Ok(None),
        },
        ("MUL", _) => match (of.zip(node.steps(1)), whole_operands(node, None)?) {
            (Some((first, second)), Some(inputs)) => {
                let factors = vec![(first.scale * second.scale / to.scale).into()];
                ops::compute(b, &node.with(inputs, Some(Rule { factors, to }))).map(Some)
            }
            _ => Ok(None),
        },
        ("AVERAGE_POOL_2D", Some(of)) if of == to => turned(average_pool(b, node, to)?),
        ("MEAN" | "SUM", Some(of)) => reduced(b, node, of, to).map(Some),
        ("RESIZE_BILINEAR", Some(of)) if of == to => {
            turned(values::resized_whole(b, node, to.limits())?)
        }
        (op, Some(of)) if listed(TABLES, op) || listed(LIMITS, op) && of.scale != to.scale => {
            turned(tabulated(b, node, of, to)?)
        }
        // LiteRT takes no other quantization of the result.
        ("SOFTMAX", Some(of)) if to.scale == 1.0 / 256.0 && to.zero == to.low => {
            turned(softmax(b, node, of)?)
        }
        (op, _) if listed(COPIES, op) => match whole_operands(node, Some(to))? {
            Some(inputs) => {
                let factors = Vec::new();
                ops::compute(b, &node.with(inputs, Some(Rule { factors, to }))).map(Some)
            }
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Computes a function of one integer, to the last integer as LiteRT does.
fn tabulated(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    of: Steps,
    to: Steps,
) -> Result<Turned, String> {
    let (x, activation) = (node.live(0)?, ops::activation(node)?);
    let f = Function { activation, of, to };
    let result = |q: i32| match node.op {
        "HARD_SWISH" => f.hard_swish(q),
        op if listed(LIMITS, op) => f.clamped(q),
        _ => f.nearest(q),
    };
    Ok(x.with(integers::function(b, &node.name, &x.live, &f, &result)?))
}

/// Returns an operator's operands, with quantized constants as whole numbers. `None` if a float
/// operand is not quantized. `None` also if `all` is stated and an operand's quantization differs
/// from it.
fn whole_operands(
    node: &OperatorNode<'_>,
    all: Option<Steps>,
) -> Result<Option<Vec<Option<TfliteValue>>>, String> {
    let mut inputs = node.inputs.clone();
    for (i, input) in inputs.iter_mut().enumerate() {
        match (&mut *input, node.steps(i)) {
            (Some(TfliteValue::Constant(c)), Some(steps)) => *c = Rc::new(whole(c, steps)?),
            (Some(TfliteValue::Live(_)), None) => return Ok(None),
            (Some(TfliteValue::Constant(c)), None) if c.kind.float() => return Ok(None),
            _ => {}
        }
        if all.is_some_and(|all| node.steps(i).is_some_and(|steps| steps != all)) {
            return Ok(None);
        }
    }
    Ok(Some(inputs))
}

/// Returns the whole numbers that a quantized constant, which holds real numbers, stands for.
fn whole(c: &ConstantTensor, steps: Steps) -> Result<ConstantTensor, String> {
    let numbers = c.numbers()?.into_iter();
    let whole = numbers.map(|x| (x / f64::from(steps.scale)).round());
    Ok(ConstantTensor::floats(c.dims.clone(), whole.collect()))
}

/// 2²⁴, up to which an f32 holds every whole number.
const EXACT: f64 = 16_777_216.0;

/// Returns true if a sum of the operator may exceed the whole numbers that an f32 holds exactly.
/// `None` if that is not known.
pub(super) fn long_sums(
    op: &str,
    [of, weights, biases]: [Option<&TfliteTensor<'_>>; 3],
) -> Option<bool> {
    let limits = of?.steps()?.limits();
    let most = f64::from(limits.high.max(-limits.low));
    let numbers = weights?.integers().ok()?.numbers().ok()?;
    let biases = biases.and_then(|t| t.integers().ok()?.numbers().ok());
    let outputs = match op {
        "DEPTHWISE_CONV_2D" => weights?.dims.last(),
        _ => weights?.dims.first(),
    };
    let outputs = usize::try_from(*outputs?).ok().filter(|&n| n > 0)?;
    let mut sums = vec![0.0; outputs];
    let terms = numbers.len() / outputs;
    for (i, w) in numbers.iter().enumerate() {
        let row = if op == "DEPTHWISE_CONV_2D" {
            i % outputs
        } else {
            i / terms
        };
        sums[row] += w.abs() * most;
    }
    let bias = |row: usize| {
        biases
            .as_ref()
            .and_then(|b| b.get(row))
            .map_or(0.0, |b| b.abs())
    };
    Some((0..outputs).any(|row| sums[row] + bias(row) >= EXACT))
}

/// Returns a layer with its weights and biases as integers. `None` if the file does not store them
/// as integers.
fn layer<'n>(
    node: &OperatorNode<'n>,
    of: Steps,
    to: Steps,
) -> Result<Option<OperatorNode<'n>>, String> {
    let tensor = |i: usize| node.tensors.get(i).copied().flatten();
    let (Some(weights), biases) = (tensor(1), tensor(2)) else {
        return Ok(None);
    };
    let whole = |t: &TfliteTensor<'_>| t.known() && t.kind() == "INT32";
    let axis = if node.op == "DEPTHWISE_CONV_2D" { 3 } else { 0 };
    let Some(scales) = weights.weight_scales(axis).filter(|_| weights.known()) else {
        return Ok(None);
    };
    if !biases.is_none_or(whole) {
        return Ok(None);
    }
    let constant = |t: &TfliteTensor<'_>| {
        let integers = t.integers()?;
        Ok::<_, String>(Some(TfliteValue::Constant(Rc::new(integers))))
    };
    let biases = biases.map_or(Ok(None), constant)?;
    let inputs = vec![node.inputs[0].clone(), constant(weights)?, biases];
    let factor = |s: &f32| f64::from(of.scale * s / to.scale);
    let factors = scales.iter().map(factor).collect();
    Ok(Some(node.with(inputs, Some(Rule { factors, to }))))
}

fn sum(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    of: [Steps; 2],
    to: Steps,
) -> Result<Vec<TfliteValue>, String> {
    let Some(inputs) = whole_operands(node, None)? else {
        return Err("expected operands of 8-bit integers".into());
    };
    let node = node.with(inputs, None);
    let sides = sides(b, &node, &[0, 1])?;
    let sign = if node.op == "SUB" { -1.0 } else { 1.0 };
    let summands = [
        Summand {
            numbers: sides.sides[0].operand(),
            ratio: of[0].scale / to.scale,
        },
        Summand {
            numbers: sides.sides[1].operand(),
            ratio: sign * of[1].scale / to.scale,
        },
    ];
    let limits = to.limits().and(activation(node.options.byte(0)?, to)?);
    let live = integers::sum(b, &node.name, summands, limits)?;
    Ok(vec![TfliteValue::Live(sides.turned(live))])
}

fn softmax(b: &mut Builder, node: &OperatorNode<'_>, of: Steps) -> Result<Turned, String> {
    let factor = Float::new(of.scale * ops::beta(node)?);
    ops::of_last_axis(
        b,
        &node.name,
        node.live(0)?,
        OfChannels::IntegerSoftmax(factor),
    )
}

fn average_pool(b: &mut Builder, node: &OperatorNode<'_>, to: Steps) -> Result<Turned, String> {
    let x = image(b, node)?;
    let window = pool_window(node, &x)?;
    let y = operations::pool(b, &node.name, &x, Pool::Mean, window)?;
    let counts = window.counts(x.standard(), y.standard());
    let limits = to.limits().and(activation(node.options.byte(5)?, to)?);
    let y = integers::mean(b, &node.name, &y, &counts, to.zero, limits)?;
    Ok(of_image(y, node.live(0)?.live.records))
}

/// Sums of integers along axes, divided by their count for a `MEAN`.
fn reduced(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    of: Steps,
    to: Steps,
) -> Result<Vec<TfliteValue>, String> {
    let sums = OperatorNode {
        op: "SUM",
        ..node.with(node.inputs.clone(), None)
    };
    let mut sums = ops::compute(b, &sums)?;
    let elements = node.live(0)?.live.len();
    for value in &mut sums {
        if let TfliteValue::Live(x) = value {
            let count = elements / x.live.len().max(1);
            let divisor = if node.op == "MEAN" { count } else { 1 };
            let factor = of.scale / to.scale * (1.0 / divisor as f32);
            let zeros = of.zero as f32 * count as f32;
            x.live = integers::reduced(b, &node.name, &x.live, (zeros, factor), to)?;
        }
    }
    Ok(sums)
}
