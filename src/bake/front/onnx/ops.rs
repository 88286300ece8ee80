//! The operations of ONNX's standard set on tensors computed from the record.

use super::node::{OnnxNode, live};
use super::{attention, fold, images, integers, picking, recurrence, tensor, values, window};
use crate::bake::draft::Array;
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Data, Element, Int};
use crate::bake::front::elementwise::{self, Operand};
use crate::bake::front::fold as constants;
use crate::bake::front::functions;
use crate::bake::front::listed;
use crate::bake::front::operations::{self, Around};
use crate::bake::front::products;
use crate::bake::front::value::{
    Class, Live, ModelValue, axes, axis, inner_axis, order_of, shape_of, standard,
};
use crate::ir::graph::{Role, Shape};
use crate::ir::op::{Activation, Arithmetic, Float, OfChannels, Op, Window};
use std::rc::Rc;

/// The outputs of a node, in the order of the node's outputs.
pub(super) type NodeOutputs = Result<Vec<ModelValue>, String>;

/// The ONNX operations that treat the first axis as the axis of the records (the batch axis).
const FIRST_AXIS: &str = "AveragePool BatchNormalization Conv ConvTranspose DepthToSpace \
                          FusedConv GlobalAveragePool GlobalMaxPool GroupNormalization \
                          InstanceNormalization LRN LpPool MaxPool SpaceToDepth";

/// Computes the outputs of a node, and notes which of them stand for integers. At least one input
/// of the node is computed from the record.
pub(super) fn apply(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let outputs = plain(b, node)?;
    integers::note(b, node, &outputs)?;
    Ok(outputs)
}

/// Computes the outputs of a node as ONNX defines them, with real numbers.
pub(super) fn plain(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    if listed(FIRST_AXIS, node.op()) {
        return by_records(node, |node| operation(b, node));
    }
    operation(b, node)
}

/// Computes a node that treats the first axis as the axis of the records. A tensor without such an
/// axis must have size 1 in its first axis. Then the results have such a first axis too.
pub(super) fn by_records(
    node: &OnnxNode<'_>,
    compute: impl FnOnce(&OnnxNode<'_>) -> NodeOutputs,
) -> NodeOutputs {
    let of = node.inputs.iter().flatten().find_map(|i| match i {
        ModelValue::Live(live) => Some(live.records),
        _ => None,
    });
    let Some(of) = of.filter(|&of| of != Some(0)) else {
        return compute(node);
    };
    let input = |i: &Option<ModelValue>| match i {
        Some(ModelValue::Live(live)) => Ok(Some(ModelValue::Live(live.per_record()?))),
        other => Ok(other.clone()),
    };
    let node = OnnxNode {
        inputs: node
            .inputs
            .iter()
            .map(input)
            .collect::<Result<_, String>>()?,
        name: node.name.clone(),
        tensors: node.tensors.clone(),
        ..*node
    };
    let like = |value: ModelValue| match value {
        ModelValue::Live(live) => ModelValue::Live(live.like(of)),
        ModelValue::Map(live, names) => ModelValue::Map(live.like(of), names),
        ModelValue::Flags(live, threshold) => ModelValue::Flags(live.like(of), threshold),
        other => other,
    };
    Ok(compute(&node)?.into_iter().map(like).collect())
}

/// Computes a node whose inputs have the axis of the records where its operation expects it.
fn operation(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let one = |live: Result<Live, String>| live.map(|l| vec![ModelValue::Live(l)]);
    if let Some(ModelValue::Class(class)) = node.input(0) {
        return of_class(node, class.clone());
    }
    check_types(node)?;
    if let (Some(ModelValue::Flags(..) | ModelValue::Map(..)), "Identity" | "Cast" | "Reshape") =
        (node.input(0), node.op())
    {
        return Ok(node.inputs[..1].iter().flatten().cloned().collect());
    }
    if let Some(live) = values::apply(b, node) {
        return one(live);
    }
    if let Some(function) = activation(node)? {
        let live = live(node, 0)?.clone();
        return one(b.activation(&node.name, &live, function));
    }
    match node.op() {
        "Identity" => one(live(node, 0).cloned()),
        "Dropout" => dropout(b, node),
        "Cast" => cast(b, node),
        "CastLike" => cast_like(b, node),
        "Shape" => shape(b, node),
        "Clip" => one(values::clip(b, node)),
        "Neg" => one(negative(b, node)),
        "PRelu" => one(prelu(b, node)),
        "Add" | "Sub" | "Mul" | "Div" | "Sum" => one(arithmetic(b, node)),
        "BatchNormalization" => one(batch_norm(b, node)),
        "Gemm" => one(gemm(b, node)),
        "MatMul" => one(matmul(b, node)),
        "Resize" | "Upsample" => one(images::resize(b, node)),
        "ConvTranspose" => one(images::enlarge(b, node)),
        "DepthToSpace" | "SpaceToDepth" => one(images::blocks(b, node)),
        "Conv" => one(window::convolution(b, node)),
        "FusedConv" => one(window::fused_convolution(b, node)),
        "MaxPool" | "AveragePool" => one(window::pool(b, node)),
        "GlobalAveragePool" | "GlobalMaxPool" => one(window::global(b, node)),
        "ReduceMean" | "ReduceMax" | "ReduceSum" => one(window::reduce(b, node)),
        "Softmax" | "LogSoftmax" => one(softmax(b, node)),
        "ArgMax" | "ArgMin" => picking::index(b, node),
        "TopK" => picking::top(b, node),
        "SoftmaxCrossEntropyLoss" => picking::cross_entropy(b, node),
        "LayerNormalization" => values::layer_norm(b, node),
        "LSTM" | "GRU" | "RNN" => recurrence::unrolled(b, node),
        "Attention" => attention::attention(b, node),
        "EyeLike" => identity(b, node),
        "Size" => count(b, node),
        "LpPool" => one(window::norm_pool(b, node)),
        "Flatten" => one(flatten(b, node)),
        "Reshape" => one(reshape(b, node)),
        "Squeeze" | "Unsqueeze" => one(squeeze(node)),
        "Transpose" => one(transpose(b, node)),
        "Concat" => one(concat(b, node)),
        "Pad" => one(pad(b, node)),
        "Slice" => one(slice(b, node)),
        "Gather" => one(gather(b, node)),
        "Split" => split(b, node),
        op => {
            let advice = ONLY_CONSTANTS
                .iter()
                .find(|(ops, _)| ops.contains(&op))
                .map_or(END, |(_, advice)| advice);
            Err(format!(
                "it is supported on constants only, not on values computed from the record: \
                 {advice}"
            ))
        }
    }
}

/// Returns an error if an input has integers and the operation's result would differ for floats.
fn check_types(node: &OnnxNode<'_>) -> Result<(), String> {
    let kinds = node.inputs.iter().flatten().filter_map(|i| match i {
        ModelValue::Live(live) => Some(live.kind),
        _ => None,
    });
    match kinds.into_iter().find(|kind| !kind.float()) {
        Some(kind) if !listed(OF_INTEGERS, node.op()) && !wraps(node.op(), kind) => Err(format!(
            "{} values are computed as floats, which neither wrap nor truncate: Cast them to \
             FLOAT before it",
            kind.name()
        )),
        _ => Ok(()),
    }
}

/// Returns the element type of the first operand computed from the record, if it is an integer
/// type.
fn integer(node: &OnnxNode<'_>) -> Option<Element> {
    let kinds = node.inputs.iter().flatten().filter_map(|i| match i {
        ModelValue::Live(live) => Some(live.kind),
        _ => None,
    });
    kinds.into_iter().next().filter(|kind| !kind.float())
}

/// Advice for operations that are supported on constants only. An entry lists operations and the
/// advice for them.
const ONLY_CONSTANTS: [(&[&str], &str); 1] = [(
    &["Range", "ConstantOfShape"],
    "export the model with fixed sizes",
)];

const END: &str = "let the network end before it";

/// The ONNX operations whose result on integers is exact when computed as floats.
const OF_INTEGERS: &str = "Abs And ArgMax ArgMin Attention Cast CastLike CenterCropPad \
                           Clip Compress Concat DequantizeLinear Equal Expand EyeLike \
                           Flatten Gather GatherElements GatherND Greater GreaterOrEqual \
                           Identity Less LessOrEqual Max MaxPool Min \
                           NegativeLogLikelihoodLoss Not OneHot Or Pad QuantizeLinear \
                           ReduceMax ReduceMin Relu Reshape Resize Scatter \
                           ScatterElements ScatterND Shape Sign Size Slice \
                           SoftmaxCrossEntropyLoss Split Squeeze Tile TopK Transpose \
                           Trilu Unsqueeze Upsample Where Xor";

/// True if an operation on integers of type `kind` can be computed in f32 and then wrapped around
/// like that type. Before wrapping, its results stay in the range in which f32 has all whole
/// numbers.
fn wraps(op: &str, kind: Element) -> bool {
    let bits = match kind {
        Element::I8 | Element::U8 => 8,
        Element::I16 | Element::U16 => 16,
        _ => return false,
    };
    match op {
        "Add" | "Sub" | "Div" | "Mod" => true,
        "Mul" => bits == 8,
        _ => false,
    }
}

/// Computes a node whose input is a predicted class. Only operations that change a class's shape or
/// type are supported. They return the class unchanged.
fn of_class(node: &OnnxNode<'_>, class: Class) -> NodeOutputs {
    match node.op() {
        "Identity" | "Cast" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" => {
            Ok(vec![ModelValue::Class(class)])
        }
        _ => Err("a predicted class cannot be the input of another operation".into()),
    }
}

fn dropout(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let training = node
        .constant(2, "training_mode")?
        .map_or(Ok(0.0), |t| t.number())?;
    if training != 0.0 {
        return Err("training_mode: expected false, found true".into());
    }
    let x = live(node, 0)?.clone();
    let mut all = vec![ModelValue::Live(x.clone())];
    if node.gives(1) {
        // The second output is the mask of kept elements. Outside of training all elements are
        // kept.
        let mask = b.scale(&node.name, &x, &[0.0], &[1.0])?;
        all.push(ModelValue::Live(Live {
            kind: Element::Bool,
            ..mask
        }));
    }
    Ok(all)
}

fn cast(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let (live, to) = (live(node, 0)?.clone(), node.int("to", 0));
    let found = || tensor::element(to).map_or_else(|| format!("type {to}"), |k| k.name().into());
    let kind = tensor::element(to).ok_or_else(|| {
        format!(
            "to: expected a type of numbers, found {}: let the network end before it",
            found()
        )
    })?;
    elementwise::cast(b, &node.name, &live, kind).map(|live| vec![ModelValue::Live(live)])
}

/// `CastLike`: converts the first operand to the type of the second.
fn cast_like(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let kind = match values::operand(node, 1)? {
        Operand::Live(like) => like.kind,
        Operand::Constant(c) => c.kind,
    };
    Ok(vec![match values::operand(node, 0)? {
        Operand::Live(x) => ModelValue::Live(elementwise::cast(b, &node.name, x, kind)?),
        Operand::Constant(c) => ModelValue::Constant(Rc::new(c.cast(kind)?)),
    }])
}

fn negative(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    b.scale(&node.name, live(node, 0)?, &[-1.0], &[0.0])
}

fn prelu(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let slope = node.needed(1, "a slope")?;
    operations::prelu(b, &node.name, live(node, 0)?, &slope)
}

fn shape(b: &Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let shape = b.shape_constant(live(node, 0)?, Element::I64);
    let part = fold::part_of_shape(node, shape)?;
    Ok(vec![ModelValue::Constant(Rc::new(part))])
}

/// Returns the element-wise function that a node computes, with its attributes. `None` for other
/// operations.
pub(super) fn activation(node: &OnnxNode<'_>) -> Result<Option<Activation>, String> {
    let float = |name: &str, default: f64| Float::new(node.float(name, default) as f32);
    Ok(Some(match node.op() {
        "LeakyRelu" => Activation::LeakyRelu(float("alpha", 0.01)),
        "Elu" => Activation::Elu {
            alpha: float("alpha", 1.0),
            gamma: Float::new(1.0),
        },
        "Selu" => Activation::Elu {
            alpha: float("alpha", 1.673_263_192_176_818_8),
            gamma: float("gamma", 1.050_701_022_148_132_3),
        },
        "Gelu" => match node.text("approximate", "none") {
            "none" => Activation::Gelu,
            "tanh" => Activation::GeluTanh,
            other => return Err(format!("approximate: expected none or tanh, found {other}")),
        },
        "Swish" if node.float("alpha", 1.0) != 1.0 => {
            return Err(format!(
                "alpha: expected 1, found {}",
                node.float("alpha", 1.0)
            ));
        }
        "Swish" => Activation::Silu,
        "HardSigmoid" => Activation::HardSigmoid {
            alpha: float("alpha", 0.2),
            beta: float("beta", 0.5),
        },
        op => return Ok(functions::of_onnx(op)),
    }))
}

/// `Add`, `Sub`, `Mul` or `Div` of two inputs, or `Sum` of any number. At least one input is
/// computed from the record. All others may be constants.
fn arithmetic(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let count = node.inputs.len();
    if node.op() != "Sum" && count != 2 {
        return Err(format!("expected 2 inputs, found {count}"));
    }
    let name = &node.name;
    let of = match node.op() {
        "Add" | "Sum" => Arithmetic::Add,
        "Sub" => Arithmetic::Subtract,
        "Mul" => Arithmetic::Multiply,
        _ => Arithmetic::Divide,
    };
    if let Some(kind) = integer(node).filter(|&kind| wraps(node.op(), kind)) {
        let (x, y) = (values::operand(node, 0)?, values::operand(node, 1)?);
        return elementwise::wrapped(b, name, of, (x, y), kind);
    }
    let operand = |i: usize| {
        node.input(i)
            .cloned()
            .ok_or_else(|| format!("expected an input {i}"))
    };
    let mut operands = (0..count).map(operand).collect::<Result<Vec<_>, _>>()?;
    if node.op() == "Sum" {
        // Constants come last, so that each addition has a tensor computed from the record. A sum
        // of constants alone would be rounded to their type.
        operands.sort_by_key(|v| matches!(v, ModelValue::Constant(_)));
    }
    let mut operands = operands.into_iter();
    let mut result = operands.next().unwrap_or(ModelValue::Unknown);
    for second in operands {
        result = ModelValue::Live(match (&result, &second) {
            (ModelValue::Live(x), ModelValue::Constant(c)) => {
                elementwise::arithmetic(b, name, of, Operand::Live(x), Operand::Constant(c))?
            }
            (ModelValue::Constant(c), ModelValue::Live(x)) => {
                elementwise::arithmetic(b, name, of, Operand::Constant(c), Operand::Live(x))?
            }
            (ModelValue::Live(x), ModelValue::Live(y)) => operations::combined(b, name, of, x, y)?,
            _ => {
                let constant = |i: &usize| matches!(node.input(*i), Some(ModelValue::Constant(_)));
                let error = (0..count)
                    .filter(|i| !constant(i))
                    .find_map(|i| live(node, i).err());
                return Err(error.unwrap_or_default());
            }
        });
    }
    match result {
        ModelValue::Live(live) => Ok(live),
        _ => live(node, 0).cloned(),
    }
}

fn batch_norm(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    if node.int("training_mode", 0) != 0 {
        return Err(
            "training_mode: expected 0, found 1: export the model in evaluation mode".into(),
        );
    }
    // Before operation set 14 no attribute states training mode, but more than one output does.
    if node.version < 14 && (1..5).any(|i| node.gives(i)) {
        return Err(
            "it has more than one output, as in training mode: export the model in evaluation mode"
                .into(),
        );
    }
    if node.int("spatial", 1) != 1 {
        return Err("spatial: expected 1, found 0".into());
    }
    let x = live(node, 0)?.clone();
    let channels = x.dims.first().copied().unwrap_or(1);
    let list = |i: usize, what: &str| {
        let numbers = node.needed(i, what)?.numbers()?;
        match numbers.len() == channels {
            true => Ok(numbers),
            false => Err(format!(
                "expected {what} of {channels} channels, found {}",
                numbers.len()
            )),
        }
    };
    let (scale, bias) = (list(1, "a scale")?, list(2, "a bias")?);
    let (mean, variance) = (list(3, "a mean")?, list(4, "a variance")?);
    let epsilon = node.float("epsilon", 1e-5);
    let factors: Vec<f64> = scale
        .iter()
        .zip(&variance)
        .map(|(s, v)| s / (v + epsilon).sqrt())
        .collect();
    let summands: Vec<f64> = bias
        .iter()
        .zip(&mean)
        .zip(&factors)
        .map(|((b, m), f)| b - m * f)
        .collect();
    let shape = Shape {
        c: channels,
        ..standard(&x.dims)
    };
    let shape = if shape.len() == x.len() {
        shape
    } else {
        shape_of(channels, 1, x.len() / channels)
    };
    let value = b.shaped(&node.name, x.value, shape)?;
    let arrays = vec![
        Array::column(Role::Factors, factors),
        Array::column(Role::Biases, summands),
    ];
    Ok(x.with_value(b.push(&node.name, Op::Scale, &[value], arrays)?))
}

/// `Gemm` of two tensors computed from the record: alpha · x · y + beta · c.
fn gemm_of_values(
    b: &mut Builder,
    node: &OnnxNode<'_>,
    x: &Live,
    y: &Live,
) -> Result<Live, String> {
    let transposed = node.int("transB", 0) != 0;
    let product = products::of_matrices(b, &node.name, x, y, transposed)?;
    let product = b.scale(&node.name, &product, &[node.float("alpha", 1.0)], &[0.0])?;
    if node.input(2).is_none() {
        return Ok(product);
    }
    let c = values::operand(node, 2)?;
    let beta = ConstantTensor::floats(vec![], vec![node.float("beta", 1.0)]);
    let summand = elementwise::product(b, &node.name, c, Operand::Constant(&beta))?;
    let product = Operand::Live(&product);
    elementwise::arithmetic(b, &node.name, Arithmetic::Add, product, summand.operand())
}

fn gemm(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    let mut x = live(node, 0)?.clone();
    if x.rank() != 2 {
        return Err(format!("expected a matrix [N, K], found {}", x.shown()));
    }
    if node.int("transA", 0) != 0 {
        x = b.reorder(&node.name, &x, &order_of(&[1, 0], &x)?)?;
    }
    if x.records == Some(1) {
        return Err("transA: expected 0, found 1: it would mix records".into());
    }
    if let Some(ModelValue::Live(y)) = node.input(1) {
        return gemm_of_values(b, node, &x, y);
    }
    let c = node.needed(1, "weights")?;
    let &[rows, cols] = &*c.dims else {
        return Err(format!("expected a matrix of weights, found {:?}", c.dims));
    };
    let c = if node.int("transB", 0) != 0 {
        (*c).clone()
    } else {
        constants::transpose(&c, &[1, 0])
    };
    let (outputs, inputs) = (c.dims[0], c.dims[1]);
    if x.dims.last() != Some(&inputs) {
        return Err(format!(
            "values of {} and weights of sizes [{rows}, {cols}] do not match",
            x.shown()
        ));
    }
    let weights: Vec<f64> = c.numbers()?.into_iter().map(|w| w * alpha).collect();
    let summand = match node.input(2) {
        Some(ModelValue::Live(summand)) => {
            let product = operations::product(b, &node.name, &x, weights, outputs)?;
            let summand = b.scale(&node.name, summand, &[beta], &[0.0])?;
            return operations::combined(b, &node.name, Arithmetic::Add, &product, &summand);
        }
        _ => node.constant(2, "biases")?,
    };
    let dims = match x.records {
        Some(_) => vec![outputs],
        None => vec![1, outputs],
    };
    let mut biases = vec![0.0; outputs];
    if let Some(c) = summand {
        if x.len() != inputs {
            let product = operations::product(b, &node.name, &x, weights, outputs)?;
            let c = c.cast(Element::F64)?;
            let numbers = c.numbers()?.into_iter().map(|n| n * beta);
            let c = ConstantTensor::new(c.kind, c.dims.clone(), Data::Floats(numbers.collect()));
            return operations::with_constant(b, &node.name, Arithmetic::Add, &product, &c, false);
        }
        let numbers = b.against(&x.with_dims(dims.clone()), &c)?;
        biases = (0..outputs)
            .map(|i| numbers[i % numbers.len()] * beta)
            .collect();
    }
    if x.len() != inputs {
        return operations::product(b, &node.name, &x, weights, outputs);
    }
    Ok(b.affine(&node.name, &x, weights, biases)?.with_dims(dims))
}

/// `MatMul` of a tensor and constant weights on either side, or of two tensors computed from the
/// record.
fn matmul(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    match (node.input(0), node.input(1)) {
        (Some(ModelValue::Live(x)), Some(ModelValue::Constant(w))) => {
            times_weights(b, &node.name, x, w)
        }
        (Some(ModelValue::Constant(w)), Some(ModelValue::Live(x))) => {
            weights_times(b, &node.name, w, x)
        }
        _ => {
            let (x, y) = (live(node, 0)?, live(node, 1)?);
            of_values(b, &node.name, x, y)
        }
    }
}

/// The product of two tensors. A vector counts as a row on the left and as a column on the right.
/// The result leaves out the axis that such a row or column adds.
fn of_values(b: &mut Builder, name: &str, x: &Live, y: &Live) -> Result<Live, String> {
    let (row, column) = (x.rank() == 1, y.rank() == 1);
    let squeezed = |v: &Live, axis: i64| operations::squeezed("Unsqueeze", v, Some(&[axis]));
    let x = if row { squeezed(x, 0)? } else { x.clone() };
    let y = if column { squeezed(y, 1)? } else { y.clone() };
    let mut product = products::of_matrices(b, name, &x, &y, false)?;
    if column {
        product = product.spliced(product.dims.len() - 1, &[]);
    }
    if row {
        product = product.spliced(product.dims.len() - 2 + usize::from(column), &[]);
    }
    Ok(product)
}

/// The product x · w of a tensor computed from the record and constant weights.
fn times_weights(
    b: &mut Builder,
    name: &str,
    x: &Live,
    w: &ConstantTensor,
) -> Result<Live, String> {
    if w.dims.len() > 2 && matrix(w).is_err() {
        return batch(b, name, x, w).or_else(|why| {
            let w = elementwise::constant_value(b, name, x, w);
            let product = w.and_then(|w| products::of_matrices(b, name, x, &w, false));
            product.map_err(|_| why)
        });
    }
    if w.dims.len() > x.rank() && x.records.is_some() {
        return Err(format!(
            "weights {:?} have more axes than values of {}: the first axis must stay the axis of \
             the records",
            w.dims,
            x.shown()
        ));
    }
    let (vector, w) = (w.dims.len() == 1, matrix(w)?);
    let last = x.records.is_some_and(|r| r + 1 == x.rank());
    if x.dims.last() != Some(&w.dims[0]) && !(x.dims.is_empty() && w.dims[0] == 1) || last {
        return Err(format!(
            "values of {} and weights {:?} do not match",
            x.shown(),
            w.dims
        ));
    }
    let weights = constants::transpose(&w, &[1, 0]).numbers()?;
    let mut y = operations::product(b, name, x, weights, w.dims[1])?;
    // A vector of weights counts as a column, whose axis is left out of the result.
    if vector {
        y = y.spliced(y.dims.len() - 1, &[]);
    }
    Ok(y)
}

/// The product w · x of constant weights and a tensor computed from the record.
fn weights_times(
    b: &mut Builder,
    name: &str,
    w: &ConstantTensor,
    x: &Live,
) -> Result<Live, String> {
    let vector = w.dims.len() == 1;
    let w = match vector {
        true => w.with_dims(vec![1, w.len()]),
        false => matrix(w)?,
    };
    let mixes = || format!("a matrix times a value of {} would mix records", x.shown());
    let &[ref ahead @ .., inner, cols] = &*x.dims else {
        return Err(mixes());
    };
    if x.records.is_some_and(|r| r > ahead.len()) {
        return Err(mixes());
    }
    if w.dims[1] != inner {
        return Err(format!(
            "weights {:?} and values of {} do not match",
            w.dims,
            x.shown()
        ));
    }
    let (outputs, several) = (w.dims[0], ahead.iter().product());
    // The axis of the sum becomes the channel axis, because a 1 × 1 convolution sums over channels.
    let from = Live::new(x.value, vec![several, inner, cols], x.kind);
    let turned = b.transpose(name, &from, &[1, 0, 2])?;
    let each = turned.with_dims(vec![inner, several * cols]);
    let y = operations::pointwise(b, name, &each, w.numbers()?, outputs)?;
    let y = y.with_dims(vec![outputs, several, cols]);
    let back = b.transpose(name, &y, &[1, 0, 2])?;
    let rows = if vector { vec![] } else { vec![outputs] };
    let result = x.spliced(ahead.len(), &rows).with_value(back.value);
    Ok(Live {
        kind: Element::F32,
        ..result
    })
}

/// The product x · w, where `w` has a separate matrix for each index of its leading axes. It
/// becomes a 1 × 1 convolution with one group for each matrix.
fn batch(b: &mut Builder, name: &str, x: &Live, w: &ConstantTensor) -> Result<Live, String> {
    let meet = || match x.dims.last() == w.dims.get(w.dims.len() - 2) {
        true => format!(
            "values of {} with weights {:?}: expected one matrix of weights, or a matrix for each \
             n of values of [N, n, rows, columns]",
            x.shown(),
            w.dims
        ),
        false => format!(
            "values of {} and weights {:?} do not match",
            x.shown(),
            w.dims
        ),
    };
    let (&[ref several @ .., rows, inner], &[ref ahead @ .., k, m]) = (&x.dims[..], &w.dims[..])
    else {
        return Err(meet());
    };
    // `w` has a matrix for each index of x's last leading axes. Earlier axes of x must have size 1.
    let long = |d: &[usize]| d.iter().copied().filter(|&n| n > 1).collect::<Vec<_>>();
    let early = x
        .records
        .is_none_or(|r| r <= several.len().saturating_sub(ahead.len()) + 1);
    let count = ahead.iter().product();
    let behind = several
        .len()
        .saturating_sub(ahead.iter().skip_while(|&&n| n == 1).count());
    if k != inner
        || long(several) != long(&several[behind..])
        || !early
        || long(&several[behind..]) != long(ahead)
    {
        return Err(meet());
    }
    let flat = Live::new(x.value, vec![count, rows, inner], x.kind);
    let turned = b.transpose(name, &flat, &[0, 2, 1])?;
    let from = b.shaped(name, turned.value, shape_of(count * inner, 1, rows))?;
    let weights = constants::transpose(&w.with_dims(vec![count, k, m]), &[0, 2, 1]).numbers()?;
    let biases = Array::column(Role::Biases, vec![0.0; count * m]);
    let arrays = vec![Array::weights(count * m, weights), biases];
    let op = Op::Convolution {
        window: Window::of((1, 1)),
        groups: count,
    };
    let value = b.push(name, op, &[from], arrays)?;
    let product = Live::new(value, vec![count, m, rows], Element::F32);
    let back = b.transpose(name, &product, &[0, 2, 1])?;
    let result = x.spliced(x.dims.len() - 1, &[m]).with_value(back.value);
    Ok(Live {
        kind: Element::F32,
        ..result
    })
}

/// Returns constant weights as a matrix, without leading axes of size 1. A vector becomes a column.
fn matrix(c: &ConstantTensor) -> Result<ConstantTensor, String> {
    match *c.dims {
        [k] => Ok(c.with_dims(vec![k, 1])),
        [ref ahead @ .., r, k] if ahead.iter().all(|&d| d == 1) => Ok(c.with_dims(vec![r, k])),
        _ => Err(format!(
            "expected a matrix of weights, found sizes {:?}",
            c.dims
        )),
    }
}

fn softmax(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let of = if node.op() == "Softmax" {
        OfChannels::Softmax
    } else {
        OfChannels::LogSoftmax
    };
    let shape = if node.version < 13 {
        // Before operation set 13 the softmax is over `axis` and all axes behind it together.
        let a = inner_axis(node.int("axis", 1), &x)?;
        if x.records.is_some_and(|r| r > a) {
            return Err(format!("axis {a} of {} would mix records", x.shown()));
        }
        let product = |d: &[usize]| d.iter().product();
        shape_of(product(&x.dims[..a]), product(&x.dims[a..]), 1)
    } else {
        let a = inner_axis(node.int("axis", -1), &x)?;
        Builder::around(&x, a)
    };
    operations::of_axis(b, &node.name, &x, shape, of)
}

/// `EyeLike`: a constant matrix with the sizes of the input: 1 on a diagonal and 0 elsewhere.
fn identity(b: &Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let x = live(node, 0)?;
    let sizes = b.shape_constant(x, Element::I64).integers()?;
    let &[rows, cols] = &sizes[..] else {
        return Err(format!("expected a matrix, found {}", x.shown()));
    };
    let kind = match node.int("dtype", 0) {
        0 => x.kind,
        code => tensor::element(code).ok_or("dtype: expected a type of numbers")?,
    };
    let diagonal = node.int("k", 0);
    let all = (0..rows).flat_map(|i| (0..cols).map(move |j| i64::from(j - i == diagonal)));
    let dims = vec![rows as usize, cols as usize];
    let c = ConstantTensor::ints(dims, all.collect()).cast(kind)?;
    Ok(vec![ModelValue::Constant(Rc::new(c))])
}

/// `Size`: the number of elements as a constant. If the tensor has an axis of the records, the
/// model must state the number of records.
fn count(b: &Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let x = live(node, 0)?;
    match x.records.map_or(Some(1), |_| b.records) {
        Some(records) => {
            let c = ConstantTensor::ints(vec![], vec![(x.len() * records) as i64]);
            Ok(vec![ModelValue::Constant(Rc::new(c))])
        }
        None => Err(format!(
            "the size of {} depends on the number of records: set all sizes for one record",
            x.shown()
        )),
    }
}

fn flatten(b: &Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let a = match node.int("axis", 1) {
        a if a == x.rank() as i64 => x.rank(),
        a => axis(a, x.rank())?,
    };
    let product = |d: &[usize]| d.iter().product();
    let ahead = match x.records {
        None => {
            let (ahead, behind) = x.dims.split_at(a);
            return Ok(x.with_dims(vec![product(ahead), product(behind)]));
        }
        Some(r) => product(&x.dims[..a.saturating_sub(1).max(r)]),
    };
    // The rows of the result are the records, so other axes in front must have size 1. If the model
    // states one record, the columns may include the axis of the records.
    let mixed = x.records.is_some_and(|r| a <= r);
    if (mixed && b.records != Some(1)) || ahead != 1 {
        return Err(format!(
            "axis {a} of {} would mix records and values",
            x.shown()
        ));
    }
    Ok(Live::new(x.value, vec![x.len()], x.kind))
}

fn reshape(b: &Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let target: Vec<Int> = match node.ints("shape") {
        Some(shape) => shape.iter().map(|&i| Int::Known(i)).collect(),
        None => match &node.needed(1, "a shape")?.data {
            Data::Ints(target) => target.clone(),
            _ => return Err("expected a shape of integers".into()),
        },
    };
    b.reshape(&x, &target, node.int("allowzero", 0) != 0)
}

fn squeeze(node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let axes = node.ints_of("axes", 1)?;
    operations::squeezed(node.op(), &x, axes.as_deref())
}

fn transpose(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let reversed: Vec<i64> = (0..x.rank() as i64).rev().collect();
    let order = node.ints("perm").unwrap_or(&reversed);
    b.reorder(&node.name, &x, &order_of(order, &x)?)
}

fn slice(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let mut x = live(node, 0)?.clone();
    let needed =
        |found: Option<Vec<i64>>| found.ok_or_else(|| "expected starts and ends".to_string());
    let (starts, ends) = (
        needed(node.ints_of("starts", 1)?)?,
        needed(node.ints_of("ends", 2)?)?,
    );
    let axes = node
        .ints_of("axes", 3)?
        .unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = node
        .ints_of("steps", 4)?
        .unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()]
        .iter()
        .any(|&n| n != starts.len())
    {
        return Err("expected as many starts as ends, axes and steps".into());
    }
    for (((&start, &end), &axis), &step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let of_records = x.records == Some(self::axis(axis, x.rank())?);
        if of_records && all_records(b, start, end, step) {
            continue;
        }
        let a = inner_axis(axis, &x)?;
        let at = constants::sliced(start, end, step, x.dims[a])?;
        if at.is_empty() {
            return Err(format!(
                "the slice of axis {axis} of {} is empty",
                x.shown()
            ));
        }
        x = operations::along(b, &node.name, &x, a, &at)?;
    }
    Ok(x)
}

/// Returns true if a slice along the axis of the records takes all records in their order.
fn all_records(b: &Builder, start: i64, end: i64, step: i64) -> bool {
    match b.records {
        Some(n) => constants::sliced(start, end, step, n).is_ok_and(|at| at.into_iter().eq(0..n)),
        None => (start, step) == (0, 1) && end >= i64::from(i32::MAX),
    }
}

fn concat(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let first = (0..node.inputs.len()).find_map(|i| live(node, i).ok());
    let first = first.ok_or("expected inputs, found nothing")?.clone();
    let a = inner_axis(node.int("axis", 1), &first)?;
    let parts = (0..node.inputs.len()).map(|i| values::operand(node, i));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    elementwise::joined(b, &node.name, &parts, a)
}

fn pad(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?.clone();
    let mode = node.text("mode", "constant");
    let pads = node
        .ints_of("pads", 1)?
        .ok_or("expected pads, found nothing")?;
    let value = match node.has("value") {
        true => node.float("value", 0.0),
        false => node
            .constant(2, "a value")?
            .map_or(Ok(0.0), |c| c.number())?,
    };
    let rank = x.rank();
    let axes = match node.constant(3, "axes")? {
        Some(list) => axes(&list.integers()?, rank)?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(format!(
            "expected {} pads, found {}",
            2 * axes.len(),
            pads.len()
        ));
    }
    let mut around = vec![Around::NONE; rank];
    for (i, &a) in axes.iter().enumerate() {
        let size = |p: i64| match usize::try_from(p) {
            Ok(p) if p <= operations::MOST => Ok(p),
            _ => Err(format!(
                "pads: expected numbers from 0 to {}, found {p}",
                operations::MOST
            )),
        };
        around[a] = Around {
            before: size(pads[i])?,
            behind: size(pads[axes.len() + i])?,
        };
    }
    if x.records.is_some_and(|r| around.remove(r) != Around::NONE) {
        return Err("pads: records cannot be padded".into());
    }
    let padded = match mode {
        "constant" => operations::pad(b, &node.name, &x, &around, value),
        other => images::continued(b, node, &x, &around, other),
    };
    padded.map_err(|e| format!("pads: {e}"))
}

/// `Gather`: selects elements along an axis by their indices.
fn gather(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    if let Some(ModelValue::Constant(table)) = node.input(0) {
        return values::looked_up(b, node, table);
    }
    let x = live(node, 0)?.clone();
    let a = inner_axis(node.int("axis", 0), &x)?;
    let c = node.needed(1, "indices")?;
    let at = axes(&c.integers()?, x.dims[a])?;
    let y = operations::along(b, &node.name, &x, a, &at)?;
    Ok(y.spliced(a, &c.dims))
}

/// `Split`: cuts a tensor into parts along an axis.
fn split(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let x = live(node, 0)?.clone();
    let a = inner_axis(node.int("axis", 0), &x)?;
    let parts = parts(node, x.dims[a])?;
    let mut first = 0;
    let mut results = Vec::new();
    for p in parts {
        let at: Vec<usize> = (first..first + p).collect();
        if at.is_empty() {
            let mut dims = x.whole();
            dims[a + usize::from(x.records.is_some_and(|r| r <= a))] = 0;
            let none = ConstantTensor::floats(dims, Vec::new());
            results.push(ModelValue::Constant(Rc::new(none)));
            continue;
        }
        results.push(ModelValue::Live(operations::along(
            b, &node.name, &x, a, &at,
        )?));
        first += p;
    }
    Ok(results)
}

/// Returns the sizes of the parts into which `Split` cuts an axis of size `n`.
pub(super) fn parts(node: &OnnxNode<'_>, n: usize) -> Result<Vec<usize>, String> {
    let parts: Vec<usize> = match node.ints_of("split", 1)? {
        Some(parts) => parts
            .iter()
            .map(|&p| usize::try_from(p).unwrap_or(0))
            .collect(),
        None => {
            let count = usize::try_from(node.int("num_outputs", 0)).unwrap_or(0);
            let count = if count == 0 {
                node.proto.output.len()
            } else {
                count
            };
            let each = n.div_ceil(count.max(1));
            (0..count)
                .map(|i| each.min(n.saturating_sub(i * each)))
                .collect()
        }
    };
    if parts.iter().sum::<usize>() != n {
        return Err(format!(
            "expected parts that add up to {n}, found {parts:?}"
        ));
    }
    Ok(parts)
}
