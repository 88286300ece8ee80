//! ONNX models (operation sets 7 and later): every tensor is a constant, which is computed here, or
//! a value of the graph, whose first axis is that of the records. Sizes are inferred node by node.

mod classify;
mod file;
mod fold;
mod node;
mod ops;
mod tensor;
mod window;

use super::Source;
use super::beside::{self, Lowered, Place};
use super::builder::Builder;
use super::constant::{self, Constant, Element};
use super::tail::{self, Tail};
use super::value::{Live, Value, standard};
use crate::bake::Mistakes;
use crate::bake::matrix::Files;
use crate::bake::model::Read;
use crate::ir::graph;
use crate::ir::network::InputOrder;
use file::{Model, NodeRest, TensorRest};
use node::Node;
use rten_onnx::onnx::{AttributeType, DataType, GraphProto, NodeProto, ValueInfoProto};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use tensor::Tensors;

/// Operations on values that are computed, with the attributes that they may have.
const OPS: [(&str, &[&str]); 55] = [
    ("Add", &[]),
    ("ArgMax", &["axis", "keepdims", "select_last_index"]),
    ("ArrayFeatureExtractor", &[]),
    (
        "AveragePool",
        &[
            "auto_pad",
            "ceil_mode",
            "count_include_pad",
            "dilations",
            "kernel_shape",
            "pads",
            "strides",
        ],
    ),
    (
        "BatchNormalization",
        &["epsilon", "is_test", "momentum", "spatial", "training_mode"],
    ),
    ("Binarizer", &["threshold"]),
    ("Cast", &["saturate", "to", "round_mode"]),
    ("Clip", &["max", "min"]),
    ("Concat", &["axis"]),
    (
        "Conv",
        &[
            "auto_pad",
            "dilations",
            "group",
            "kernel_shape",
            "pads",
            "strides",
        ],
    ),
    ("Div", &[]),
    ("Dropout", &["is_test", "ratio", "seed"]),
    ("Elu", &["alpha"]),
    ("Flatten", &["axis"]),
    ("Gather", &["axis"]),
    ("Gelu", &["approximate"]),
    ("Gemm", &["alpha", "beta", "transA", "transB", "broadcast"]),
    ("GlobalAveragePool", &[]),
    ("GlobalMaxPool", &[]),
    ("HardSigmoid", &["alpha", "beta"]),
    ("HardSwish", &[]),
    ("Identity", &[]),
    (
        "LabelEncoder",
        &[
            "classes_strings",
            "default_float",
            "default_int64",
            "default_string",
            "default_tensor",
            "keys_int64s",
            "keys_strings",
            "keys_tensor",
            "values_int64s",
            "values_strings",
            "values_tensor",
        ],
    ),
    ("LeakyRelu", &["alpha"]),
    (
        "LinearClassifier",
        &[
            "classlabels_ints",
            "classlabels_strings",
            "coefficients",
            "intercepts",
            "multi_class",
            "post_transform",
        ],
    ),
    (
        "LinearRegressor",
        &["coefficients", "intercepts", "post_transform", "targets"],
    ),
    ("LogSoftmax", &["axis"]),
    ("MatMul", &[]),
    ("Max", &[]),
    (
        "MaxPool",
        &[
            "auto_pad",
            "ceil_mode",
            "dilations",
            "kernel_shape",
            "pads",
            "storage_order",
            "strides",
        ],
    ),
    ("Min", &[]),
    ("Mul", &[]),
    ("Neg", &[]),
    ("Normalizer", &["norm"]),
    ("PRelu", &[]),
    ("Pad", &["mode", "pads", "value"]),
    ("ReduceMax", &["axes", "keepdims", "noop_with_empty_axes"]),
    ("ReduceMean", &["axes", "keepdims", "noop_with_empty_axes"]),
    ("ReduceSum", &["axes", "keepdims", "noop_with_empty_axes"]),
    ("Relu", &[]),
    ("Reshape", &["allowzero", "shape"]),
    ("Scaler", &["offset", "scale"]),
    ("Selu", &["alpha", "gamma"]),
    ("Shape", &["end", "start"]),
    ("Sigmoid", &[]),
    ("Slice", &["axes", "ends", "starts", "steps"]),
    ("Softmax", &["axis"]),
    ("Split", &["axis", "num_outputs", "split"]),
    ("Squeeze", &["axes"]),
    ("Sub", &[]),
    ("Sum", &[]),
    ("Tanh", &[]),
    ("Transpose", &["perm"]),
    ("Unsqueeze", &["axes"]),
    ("ZipMap", &["classlabels_int64s", "classlabels_strings"]),
];

/// Operations on constants alone, with the attributes that they may have.
const OF_CONSTANTS: [(&str, &[&str]); 25] = [
    ("Abs", &[]),
    ("And", &[]),
    ("Ceil", &[]),
    (
        "Constant",
        &[
            "value",
            "value_float",
            "value_floats",
            "value_int",
            "value_ints",
            "value_string",
            "value_strings",
        ],
    ),
    ("ConstantOfShape", &["value"]),
    ("DequantizeLinear", &["axis", "block_size", "output_dtype"]),
    ("Equal", &[]),
    ("Exp", &[]),
    ("Expand", &[]),
    ("Floor", &[]),
    ("Greater", &[]),
    ("Less", &[]),
    ("Log", &[]),
    ("Mod", &["fmod"]),
    ("Not", &[]),
    ("Or", &[]),
    ("Pow", &[]),
    (
        "QuantizeLinear",
        &[
            "axis",
            "block_size",
            "output_dtype",
            "precision",
            "saturate",
        ],
    ),
    ("Range", &[]),
    ("Reciprocal", &[]),
    ("ReduceProd", &["axes", "keepdims", "noop_with_empty_axes"]),
    ("Size", &[]),
    ("Sqrt", &[]),
    ("Tile", &[]),
    ("Where", &[]),
];

/// Those of `ai.onnx.ml`.
const ML: [&str; 8] = [
    "ArrayFeatureExtractor",
    "Binarizer",
    "LabelEncoder",
    "LinearClassifier",
    "LinearRegressor",
    "Normalizer",
    "Scaler",
    "ZipMap",
];

/// Operations that are not supported, with what to use instead.
const INSTEAD: [(&str, &str); 26] = [
    (
        "Resize",
        "resize images before they are read, or let the network end before it",
    ),
    (
        "Upsample",
        "resize images before they are read, or let the network end before it",
    ),
    ("ConvTranspose", "let the network end before it"),
    ("GRU", "use convolutions over a window of time instead"),
    ("LSTM", "use convolutions over a window of time instead"),
    ("RNN", "use convolutions over a window of time instead"),
    (
        "Loop",
        "export the model with the loop unrolled (torch.onnx.export traces it)",
    ),
    (
        "Scan",
        "export the model with the loop unrolled (torch.onnx.export traces it)",
    ),
    (
        "If",
        "export the model without a choice: onnxsim folds those that are known at build time",
    ),
    ("Erf", "export with operation set 20, which has Gelu"),
    ("LRN", "use batch normalisation instead"),
    ("InstanceNormalization", "use batch normalisation instead"),
    ("GroupNormalization", "use batch normalisation instead"),
    ("LayerNormalization", "use batch normalisation instead"),
    ("Softplus", "use Relu, Elu or Gelu instead"),
    ("Softsign", "use Tanh instead"),
    ("Mish", "use HardSwish instead"),
    ("Swish", "x · Sigmoid(x) as Mul and Sigmoid is supported"),
    ("Einsum", "use MatMul instead"),
    (
        "QLinearConv",
        "export the model before quantisation: weights can be stored as f16 or i8 when it is baked",
    ),
    (
        "QLinearMatMul",
        "export the model before quantisation: weights can be stored as f16 or i8 when it is baked",
    ),
    (
        "ConvInteger",
        "export the model before quantisation: weights can be stored as f16 or i8 when it is baked",
    ),
    (
        "MatMulInteger",
        "export the model before quantisation: weights can be stored as f16 or i8 when it is baked",
    ),
    (
        "DynamicQuantizeLinear",
        "export the model before quantisation: weights can be stored as f16 or i8 when it is baked",
    ),
    (
        "TreeEnsembleClassifier",
        "trees are no network: train an MLPClassifier",
    ),
    ("SVMClassifier", "train a linear model or an MLPClassifier"),
];

/// Operation sets that are read: the first, and the last that was looked at.
const SETS: (i64, i64) = (7, 26);

/// True if the bytes are an ONNX model, as far as its frame goes.
pub(super) fn is_model(bytes: &[u8]) -> bool {
    Model::parse(bytes).is_ok_and(|m| m.model.graph.is_some_and(|graph| !graph.node.is_empty()))
}

/// Reads an ONNX model.
pub(super) fn read(
    source: &Source<'_>,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<Read> {
    beside::read(
        source,
        "Sigmoid",
        files,
        mistakes,
        |place, files, mistakes| match Model::parse(source.bytes) {
            Ok(model) => lower(&model, place, files, mistakes),
            Err(e) => {
                mistakes.add(place.file, e);
                None
            }
        },
    )
}

/// What becomes of a model. All mistakes are reported.
fn lower(
    model: &Model,
    place: &Place<'_>,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<Lowered> {
    let Place {
        file,
        folder,
        values,
        ..
    } = *place;
    let before = mistakes.lines.len();
    let Some(graph) = &model.model.graph else {
        mistakes.add(file, "not an ONNX model: it has no graph");
        return None;
    };
    let sets = sets(model, file, mistakes);
    if model.rest.functions > 0 {
        mistakes.add(
            file,
            "functions of the model's own are not supported: inline them (onnx.inliner)",
        );
    }
    if model.rest.graph.sparse > 0 {
        mistakes.add(
            file,
            "sparse initialisers are not supported: store them densely",
        );
    }
    let mut tensors = Tensors {
        folder,
        files,
        data: HashMap::new(),
    };
    let mut known: HashMap<&str, Value> = HashMap::new();
    for (i, initializer) in graph.initializer.iter().enumerate() {
        let name = initializer.name.as_deref().unwrap_or("");
        let place = format!("{file}: initialiser {name}");
        let none = TensorRest::default();
        let rest = model.rest.graph.initializers.get(i).unwrap_or(&none);
        let constant = tensors.read(initializer, rest, &place, mistakes);
        let value = constant.map_or(Value::Unknown, |c| Value::Constant(Rc::new(c)));
        if known.insert(name, value).is_some() {
            mistakes.add(
                place,
                "expected one initialiser of this name, found another",
            );
        }
    }
    let given = graph.output.iter().map(|o| o.name.as_deref().unwrap_or(""));
    let wanted = match place.wanted(given.map(|name| (name, name.to_string()))) {
        Ok(wanted) => wanted,
        Err(e) => {
            mistakes.add(file, e);
            return None;
        }
    };
    given_once(graph, file, mistakes);
    // Weights that are stored quantised may become as many again.
    let stored = known
        .values()
        .map(|v| {
            if let Value::Constant(c) = v {
                c.len()
            } else {
                0
            }
        })
        .sum::<usize>();
    let mut left = FOLDED.saturating_add(stored.saturating_mul(4));
    let needed = needed(graph, wanted.iter().map(|w| w.0));
    let mut builder = inputs(graph, file, &mut known, mistakes);
    for (i, proto) in graph
        .node
        .iter()
        .enumerate()
        .filter(|(i, _)| needed.contains(i))
    {
        let place = format!("{file}: {}", described(i, proto));
        let outputs = check(proto, &place, mistakes)
            .then(|| operands(proto, &known, &place, mistakes))
            .flatten()
            .and_then(|inputs| {
                let none = NodeRest::default();
                let rest = model.rest.graph.nodes.get(i).unwrap_or(&none);
                let node = Node {
                    proto,
                    name: title(i, proto),
                    inputs,
                    version: sets.get(set(proto)).copied().unwrap_or(SETS.1),
                    tensors: attributes(proto, rest, &place, &mut tensors, mistakes)?,
                };
                compute(&mut builder, &node, &mut left)
                    .map_err(|e| mistakes.add(&place, e))
                    .ok()
            })
            .unwrap_or_default();
        let mut outputs = outputs.into_iter();
        // An output without a name is left out; it keeps its place.
        for name in &proto.output {
            let given = outputs.next();
            if name.is_empty() {
                continue;
            }
            // Behind a mistake, which no network is made of.
            let wrong = mistakes.lines.len() > before;
            let assumed = || {
                assumed(
                    builder.as_mut().filter(|_| wrong)?,
                    graph,
                    (proto, name),
                    &known,
                )
            };
            let value = given.or_else(assumed).unwrap_or(Value::Unknown);
            known.insert(name, value);
        }
    }
    let outputs: Vec<(String, Value)> = wanted
        .into_iter()
        .map(|(name, own)| (own, known.get(name).cloned().unwrap_or(Value::Unknown)))
        .collect();
    for (info, (name, value)) in graph.output.iter().filter_map(|info| {
        let name = info.name.as_deref().unwrap_or("");
        outputs.iter().find(|o| o.0 == name).map(|o| (info, o))
    }) {
        if let Err(e) = declared(info, value) {
            mistakes.add(format_args!("{file}: output {name}"), e);
        }
    }
    if mistakes.lines.len() > before {
        return None;
    }
    let Builder {
        mut draft,
        numbers,
        inputs,
        ..
    } = builder?;
    // A class of a regressor's numbers is a class.
    let numbers = |tail: &Tail| tail.output.is_none() && numbers.contains(&tail.value);
    let tail = match tail::tail(&mut draft, &outputs, values) {
        Ok(tail) if numbers(&tail) => Tail {
            output: Some(tail::NUMBERS),
            ..tail
        },
        Ok(tail) => tail,
        Err(e) => {
            mistakes.add(file, e);
            return None;
        }
    };
    draft.graph.outputs = vec![tail.value].into();
    match beside::finished(draft, InputOrder::Chw, tail, inputs) {
        Ok(made) => Some(made),
        Err(e) => {
            mistakes.add(file, e);
            None
        }
    }
}

/// The versions of the operation sets by their names: `""` and `ai.onnx.ml`.
fn sets<'m>(model: &'m Model, file: &str, mistakes: &mut Mistakes) -> HashMap<&'m str, i64> {
    let mut sets = HashMap::new();
    if model.model.opset_import.is_empty() {
        mistakes.add(file, "not an ONNX model: it names no operation set");
    }
    for set in &model.model.opset_import {
        let name = match set.domain.as_deref().unwrap_or("") {
            "ai.onnx" => "",
            name => name,
        };
        let version = set.version.unwrap_or(0);
        if name.is_empty() && !(SETS.0..=SETS.1).contains(&version) {
            mistakes.add(
                file,
                format_args!(
                    "expected operation set {} to {}, found {version}: onnx.version_converter \
                     makes another of it",
                    SETS.0, SETS.1
                ),
            );
        }
        sets.insert(name, version);
    }
    sets
}

/// The set of a node's operation.
fn set(proto: &NodeProto) -> &str {
    match proto.domain.as_deref().unwrap_or("") {
        "ai.onnx" => "",
        name => name,
    }
}

/// The nodes that the outputs of these names need.
fn needed<'g>(graph: &'g GraphProto, outputs: impl Iterator<Item = &'g str>) -> HashSet<usize> {
    let mut names: HashSet<&str> = outputs.collect();
    let mut needed = HashSet::new();
    for (i, node) in graph.node.iter().enumerate().rev() {
        if node.output.iter().any(|o| names.contains(&**o)) {
            needed.insert(i);
            // An input without a name is left out.
            names.extend(
                node.input
                    .iter()
                    .map(String::as_str)
                    .filter(|n| !n.is_empty()),
            );
        }
    }
    needed
}

/// Elements that the constants computed of others may have together, besides four for each that the
/// file holds.
const FOLDED: usize = 1 << 24;

/// Reports names that are given by several nodes, or by a node and something before it.
fn given_once(graph: &GraphProto, file: &str, mistakes: &mut Mistakes) {
    let inputs = graph.input.iter().filter_map(|i| i.name.as_deref());
    let initializers = graph.initializer.iter().filter_map(|i| i.name.as_deref());
    let mut names: HashSet<&str> = inputs.chain(initializers).collect();
    for (i, node) in graph.node.iter().enumerate() {
        for name in node.output.iter().filter(|n| !n.is_empty()) {
            if !names.insert(name) {
                let place = format!("{file}: {}", described(i, node));
                mistakes.add(
                    place,
                    format_args!("it gives {name}, which something before it gives already"),
                );
            }
        }
    }
}

/// Compares what the model declares of an output with what is computed.
///
/// # Errors
/// Of other sizes.
fn declared(info: &ValueInfoProto, value: &Value) -> Result<(), String> {
    let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let (Some(shape), Value::Live(live)) = (tensor.and_then(|t| t.shape.as_ref()), value) else {
        return Ok(());
    };
    // Exporters write no sizes where they know none.
    let Some((_, rest)) = shape.dim.split_first() else {
        return Ok(());
    };
    let stated: Vec<Option<i64>> = rest
        .iter()
        .map(|d| d.dim_value.filter(|&n| n > 0))
        .collect();
    let differs = |(s, &d): (&Option<i64>, &usize)| s.is_some_and(|s| usize::try_from(s) != Ok(d));
    if stated.len() != live.dims.len() || stated.iter().zip(&live.dims).any(differs) {
        let size = |s: &Option<i64>| s.map_or("?".into(), |n| n.to_string());
        let sizes: Vec<String> = std::iter::once("N".into())
            .chain(stated.iter().map(size))
            .collect();
        return Err(format!(
            "the model declares [{}], its nodes give {}: export it anew",
            sizes.join(", "),
            live.shown()
        ));
    }
    Ok(())
}

/// An input of the model.
struct Input {
    /// The first size, where it is stated.
    records: Option<usize>,
    /// Sizes behind it.
    dims: Vec<usize>,
    /// The type of its elements.
    kind: Element,
}

/// The builder with the model's inputs. The first axis of each is that of the records.
fn inputs<'g>(
    graph: &'g GraphProto,
    file: &str,
    known: &mut HashMap<&'g str, Value>,
    mistakes: &mut Mistakes,
) -> Option<Builder> {
    let names: Vec<(&str, &ValueInfoProto)> = graph
        .input
        .iter()
        .map(|i| (i.name.as_deref().unwrap_or(""), i))
        .filter(|i| !known.contains_key(i.0))
        .collect();
    if names.is_empty() {
        mistakes.add(file, "expected an input, found none");
    }
    let mut inputs = Vec::new();
    for &(name, info) in &names {
        if known.insert(name, Value::Unknown).is_some() {
            mistakes.add(file, format_args!("two inputs are called {name}"));
        }
        inputs.extend(input(info, &format!("{file}: input {name}"), mistakes));
    }
    if inputs.is_empty() || inputs.len() < names.len() {
        return None;
    }
    let records = inputs[0].records;
    if let Some(other) = inputs.iter().position(|i| i.records != records) {
        let shown = |i: usize| {
            let size = inputs[i].records.map_or("N".into(), |n| n.to_string());
            let sizes = inputs[i].dims.iter().map(usize::to_string);
            let sizes: Vec<String> = std::iter::once(size).chain(sizes).collect();
            format!("{} [{}]", names[i].0, sizes.join(", "))
        };
        mistakes.add(
            file,
            format_args!(
                "expected inputs of as many records, found {} and {}: a record has a part of \
                 every input; export the model \
                 with one first size of all",
                shown(0),
                shown(other)
            ),
        );
        return None;
    }
    let values = names
        .iter()
        .zip(&inputs)
        .map(|(&(name, _), i)| graph::Value {
            name: name.to_string().into(),
            shape: standard(&i.dims),
        });
    let (builder, values) = Builder::new(values.collect(), records)
        .map_err(|e| mistakes.add(file, e))
        .ok()?;
    for ((&(name, _), input), value) in names.iter().zip(inputs).zip(values) {
        known.insert(
            name,
            Value::Live(Live {
                value,
                dims: input.dims,
                kind: input.kind,
            }),
        );
    }
    Some(builder)
}

/// What the model says of an input.
fn input(info: &ValueInfoProto, place: &str, mistakes: &mut Mistakes) -> Option<Input> {
    let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let kind = tensor.and_then(|t| t.elem_type).unwrap_or(DataType::FLOAT);
    let float = matches!(
        kind,
        DataType::FLOAT | DataType::DOUBLE | DataType::FLOAT16 | DataType::BFLOAT16
    );
    if !float && !(2..=7).contains(&kind.0) && kind != DataType::UINT32 && kind != DataType::UINT64
    {
        mistakes.add(place, format_args!("expected numbers, found type {kind}"));
        return None;
    }
    let shape = tensor.and_then(|t| t.shape.as_ref());
    let sizes = shape.map_or(&[][..], |s| &s.dim);
    let shown = || {
        let size = |(i, d): (usize, &rten_onnx::onnx::Dimension)| match (d.dim_value, &d.dim_param)
        {
            (Some(n), _) => n.to_string(),
            (None, Some(name)) if !name.is_empty() => name.clone(),
            _ if i == 0 => "N".into(),
            _ => "?".into(),
        };
        format!(
            "[{}]",
            sizes
                .iter()
                .enumerate()
                .map(size)
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    let Some((first, rest)) = sizes.split_first() else {
        mistakes.add(
            place,
            "expected sizes, the first that of the records, found none: export the model with them",
        );
        return None;
    };
    let size = |d: &rten_onnx::onnx::Dimension| {
        d.dim_value
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&n| n > 0)
    };
    let dims: Option<Vec<usize>> = rest.iter().map(size).collect();
    let Some(dims) = dims.filter(|d| constant::elements(d).is_some()) else {
        mistakes.add(
            place,
            format_args!(
                "expected sizes that are known at build time behind that of the records, found \
                 {}: export the model \
                 with a fixed size of its input",
                shown()
            ),
        );
        return None;
    };
    Some(Input {
        records: size(first),
        dims,
        kind: tensor::element(kind.0.into()).unwrap_or(Element::F32),
    })
}

/// How messages name a node: by its name, or its output.
fn described(i: usize, proto: &NodeProto) -> String {
    format!(
        "node {} ({})",
        title(i, proto),
        proto.op_type.as_deref().unwrap_or("?")
    )
}

fn title(i: usize, proto: &NodeProto) -> String {
    let named = |n: &&str| !n.is_empty();
    let name = proto.name.as_deref().filter(named).or(proto
        .output
        .first()
        .map(|o| &**o)
        .filter(named));
    name.map_or_else(|| i.to_string(), String::from)
}

/// Whether an operation with its attributes is known; else it is reported.
fn check(proto: &NodeProto, place: &str, mistakes: &mut Mistakes) -> bool {
    let (op, set) = (proto.op_type.as_deref().unwrap_or(""), set(proto));
    let ml = ML.contains(&op);
    let known = OPS
        .iter()
        .chain(&OF_CONSTANTS)
        .find(|o| o.0 == op)
        .map(|o| o.1)
        .filter(|_| set == if ml { "ai.onnx.ml" } else { "" });
    let Some(known) = known else {
        match INSTEAD.iter().find(|o| o.0 == op) {
            Some((_, instead)) => {
                mistakes.add(place, format_args!("it is not supported: {instead}"))
            }
            None if !set.is_empty() && set != "ai.onnx.ml" => {
                mistakes.add(
                    place,
                    format_args!("it is not supported: its domain is {set}"),
                );
            }
            None => mistakes.add(place, "it is not supported: docs/ONNX.md lists what is"),
        }
        return false;
    };
    let mut good = true;
    for name in proto
        .attribute
        .iter()
        .filter_map(|a| a.name.as_deref())
        .filter(|n| !known.contains(n))
    {
        mistakes.add(place, format_args!("the attribute {name} is not supported"));
        good = false;
    }
    for (i, attribute) in proto.attribute.iter().enumerate() {
        let name = attribute.name.as_deref().unwrap_or("");
        let wants = type_of(op, name);
        // Files of the first versions do not say it.
        let found = attribute.r#type.unwrap_or(AttributeType::UNDEFINED);
        if found != wants && found != AttributeType::UNDEFINED {
            let (wants, found) = (type_name(wants), type_name(found));
            mistakes.add(
                place,
                format_args!("{name}: expected an attribute of type {wants}, found {found}"),
            );
            good = false;
        }
        if proto.attribute[..i]
            .iter()
            .any(|a| a.name == attribute.name)
        {
            mistakes.add(place, format_args!("it has the attribute {name} twice"));
            good = false;
        }
    }
    good
}

/// The type of an attribute that is supported.
fn type_of(op: &str, name: &str) -> AttributeType {
    match name {
        "value" if op == "Pad" => AttributeType::FLOAT,
        "alpha" | "beta" | "gamma" | "epsilon" | "momentum" | "ratio" | "threshold" | "max"
        | "min" | "value_float" | "default_float" => AttributeType::FLOAT,
        "value_floats" | "coefficients" | "intercepts" | "offset" | "scale" => {
            AttributeType::FLOATS
        }
        "approximate" | "auto_pad" | "mode" | "norm" | "post_transform" | "value_string"
        | "default_string" | "round_mode" => AttributeType::STRING,
        "classes_strings"
        | "keys_strings"
        | "values_strings"
        | "classlabels_strings"
        | "value_strings" => AttributeType::STRINGS,
        "axes" | "dilations" | "kernel_shape" | "pads" | "strides" | "perm" | "shape"
        | "starts" | "ends" | "steps" | "split" | "keys_int64s" | "values_int64s"
        | "classlabels_ints" | "classlabels_int64s" | "value_ints" => AttributeType::INTS,
        "value" | "default_tensor" | "keys_tensor" | "values_tensor" => AttributeType::TENSOR,
        _ => AttributeType::INT,
    }
}

fn type_name(kind: AttributeType) -> &'static str {
    match kind {
        AttributeType::FLOAT => "FLOAT",
        AttributeType::INT => "INT",
        AttributeType::STRING => "STRING",
        AttributeType::TENSOR => "TENSOR",
        AttributeType::FLOATS => "FLOATS",
        AttributeType::INTS => "INTS",
        AttributeType::STRINGS => "STRINGS",
        _ => "another",
    }
}

/// What the inputs of a node are; `None` where one is not known for reasons that are reported.
fn operands(
    proto: &NodeProto,
    known: &HashMap<&str, Value>,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<Vec<Option<Value>>> {
    let mut inputs = Vec::new();
    let mut complete = true;
    for name in &proto.input {
        match known.get(&**name) {
            _ if name.is_empty() => inputs.push(None),
            Some(Value::Unknown) => complete = false,
            Some(value) => inputs.push(Some(value.clone())),
            None => {
                mistakes.add(
                    place,
                    format_args!("it reads {name}, which nothing before it gives"),
                );
                complete = false;
            }
        }
    }
    complete.then_some(inputs)
}

/// Operations that are not supported and whose value has the sizes of what they read.
const KEEP_SIZES: [&str; 9] = [
    "Erf",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "LayerNormalization",
    "Mish",
    "Softplus",
    "Softsign",
    "Swish",
];

/// A value in place of an output that a mistake has left out, if its sizes are known: the model
/// states them, or the operation keeps those of its operand.
fn assumed(
    builder: &mut Builder,
    graph: &GraphProto,
    (proto, name): (&NodeProto, &str),
    known: &HashMap<&str, Value>,
) -> Option<Value> {
    let mut infos = graph.value_info.iter().chain(&graph.output);
    let stated = infos
        .find(|i| i.name.as_deref() == Some(name))
        .and_then(|info| {
            let sizes = &info
                .r#type
                .as_ref()?
                .tensor_type
                .as_ref()?
                .shape
                .as_ref()?
                .dim;
            let size = |d: &rten_onnx::onnx::Dimension| usize::try_from(d.dim_value?).ok();
            sizes
                .split_first()?
                .1
                .iter()
                .map(size)
                .collect::<Option<Vec<usize>>>()
        });
    let same = || match known.get(&**proto.input.first()?) {
        Some(Value::Live(live)) if KEEP_SIZES.contains(&proto.op_type.as_deref()?) => {
            Some(live.dims.clone())
        }
        _ => None,
    };
    builder
        .assumed(name, stated.or_else(same)?)
        .map(Value::Live)
}

/// The tensors among the attributes of a node.
fn attributes(
    proto: &NodeProto,
    rest: &NodeRest,
    place: &str,
    tensors: &mut Tensors<'_, '_>,
    mistakes: &mut Mistakes,
) -> Option<Vec<(String, Rc<Constant>)>> {
    let mut found = Vec::new();
    for (i, attribute) in proto.attribute.iter().enumerate() {
        let Some(tensor) = &attribute.t else { continue };
        let name = attribute.name.clone().unwrap_or_default();
        let none = TensorRest::default();
        let rest = rest.attributes.get(i).unwrap_or(&none);
        let constant = tensors.read(tensor, rest, &format!("{place}: {name}"), mistakes)?;
        found.push((name, Rc::new(constant)));
    }
    Some(found)
}

/// What a node gives.
fn compute(builder: &mut Option<Builder>, node: &Node<'_>, left: &mut usize) -> ops::Given {
    let constants: Option<Vec<Option<Rc<Constant>>>> = node
        .inputs
        .iter()
        .map(|i| match i {
            None => Some(None),
            Some(Value::Constant(c)) => Some(Some(c.clone())),
            Some(_) => None,
        })
        .collect();
    match (constants, builder) {
        (Some(constants), _) => {
            let folded = fold::fold(node, &constants, *left)?;
            *left = left.saturating_sub(folded.iter().map(Constant::len).sum());
            Ok(folded
                .into_iter()
                .map(|c| Value::Constant(Rc::new(c)))
                .collect())
        }
        (None, Some(builder)) if set(node.proto) == "ai.onnx.ml" => classify::apply(builder, node),
        (None, Some(builder)) => ops::apply(builder, node),
        (None, None) => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
