//! Front end for ONNX models (operation sets 7 and later). Each tensor is either a constant, which
//! is computed at build time, or a value of the graph.
//!
//! Values have an axis of the records (the batch axis), unless the model computes one record at a
//! time. Sizes are inferred node by node.

mod attention;
mod branches;
mod classify;
mod file;
mod fold;
mod images;
mod integers;
mod node;
mod ops;
mod picking;
mod quantised;
mod recurrence;
mod signals;
mod tensor;
mod values;
mod window;

use super::beside::{self, Lowered, ModelPlace};
use super::builder::Builder;
use super::constant::{ConstantTensor, Element};
use super::inputs::{self, Arranged, AxisSize, DeclaredInput};
use super::value::{Live, ModelValue};
use super::{Source, listed};
use super::{elementwise, functions, tail};
use crate::bake::Mistakes;
use crate::bake::matrix::Files;
use crate::bake::model::ReadModel;
use crate::ir::graph;
use crate::ir::network::InputOrder;
use file::{GraphRest, NodeRest, OnnxModel, TensorRest};
use node::OnnxNode;
use quantised::Parts;
use rten_onnx::onnx::{AttributeType, DataType, GraphProto, NodeProto, ValueInfoProto};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use tensor::Tensors;

/// The supported ONNX operations on tensors that are computed from the record. An entry has the
/// operation's name and the names of its supported attributes.
const OPS: [(&str, &str); 133] = [
    ("Acos", ""),
    ("Acosh", ""),
    ("Add", ""),
    ("AffineGrid", "align_corners"),
    ("And", ""),
    ("ArgMax", "axis keepdims select_last_index"),
    ("ArgMin", "axis keepdims select_last_index"),
    ("ArrayFeatureExtractor", ""),
    ("Asin", ""),
    ("Asinh", ""),
    ("Atan", ""),
    ("Atanh", ""),
    (
        "Attention",
        "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision",
    ),
    (
        "AveragePool",
        "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides",
    ),
    (
        "BatchNormalization",
        "epsilon is_test momentum spatial training_mode",
    ),
    ("Binarizer", "threshold"),
    ("Cast", "saturate to round_mode"),
    ("CastLike", "saturate round_mode"),
    ("Ceil", ""),
    ("Celu", "alpha"),
    ("CenterCropPad", "axes"),
    ("Clip", "max min"),
    ("Compress", "axis"),
    ("Concat", "axis"),
    ("Conv", "auto_pad dilations group kernel_shape pads strides"),
    (
        "ConvTranspose",
        "auto_pad dilations group kernel_shape output_padding output_shape pads strides",
    ),
    ("Cosh", ""),
    ("CumSum", "exclusive reverse"),
    ("DFT", "axis inverse onesided"),
    ("DepthToSpace", "blocksize mode"),
    ("DequantizeLinear", "axis block_size output_dtype"),
    ("Div", ""),
    ("Dropout", "is_test ratio seed"),
    ("Einsum", "equation"),
    ("Elu", "alpha"),
    ("Equal", ""),
    ("Expand", ""),
    ("EyeLike", "dtype k"),
    ("Flatten", "axis"),
    (
        "FusedConv",
        "activation activation_params auto_pad dilations group kernel_shape pads strides",
    ),
    (
        "GRU",
        "activations direction hidden_size layout linear_before_reset clip activation_alpha \
         activation_beta",
    ),
    ("Gather", "axis"),
    ("GatherElements", "axis"),
    ("GatherND", "batch_dims"),
    ("Gelu", "approximate"),
    ("Gemm", "alpha beta transA transB broadcast"),
    ("GlobalAveragePool", ""),
    ("GlobalMaxPool", ""),
    ("Greater", ""),
    ("GreaterOrEqual", ""),
    ("GroupNormalization", "epsilon num_groups stash_type"),
    ("HardSigmoid", "alpha beta"),
    ("Hardmax", "axis"),
    ("Identity", ""),
    ("If", "else_branch then_branch"),
    ("InstanceNormalization", "epsilon"),
    (
        "LSTM",
        "activations direction hidden_size input_forget layout clip activation_alpha \
         activation_beta",
    ),
    ("LRN", "alpha beta bias size"),
    (
        "LabelEncoder",
        "classes_strings default_float default_int64 default_string default_tensor \
         keys_int64s keys_strings keys_tensor values_int64s values_strings values_tensor",
    ),
    ("LayerNormalization", "axis epsilon stash_type"),
    ("LeakyRelu", "alpha"),
    ("Less", ""),
    ("LessOrEqual", ""),
    (
        "LinearClassifier",
        "classlabels_ints classlabels_strings coefficients intercepts multi_class post_transform",
    ),
    (
        "LinearRegressor",
        "coefficients intercepts post_transform targets",
    ),
    ("LogSoftmax", "axis"),
    ("LpNormalization", "axis p"),
    (
        "LpPool",
        "auto_pad ceil_mode dilations kernel_shape p pads strides",
    ),
    ("MatMul", ""),
    ("Max", ""),
    (
        "MaxPool",
        "auto_pad ceil_mode dilations kernel_shape pads storage_order strides",
    ),
    ("Mean", ""),
    ("MeanVarianceNormalization", "axes"),
    ("Min", ""),
    ("Mod", "fmod"),
    ("Mul", ""),
    ("Neg", ""),
    ("NegativeLogLikelihoodLoss", "ignore_index reduction"),
    ("Normalizer", "norm"),
    ("Not", ""),
    ("OneHot", "axis"),
    ("Or", ""),
    ("PRelu", ""),
    ("Pad", "mode pads value"),
    ("Pow", ""),
    (
        "QuantizeLinear",
        "axis block_size output_dtype precision saturate",
    ),
    ("RMSNormalization", "axis epsilon stash_type"),
    (
        "RNN",
        "activations direction hidden_size layout clip activation_alpha activation_beta",
    ),
    ("ReduceL1", "axes keepdims noop_with_empty_axes"),
    ("ReduceL2", "axes keepdims noop_with_empty_axes"),
    ("ReduceLogSum", "axes keepdims noop_with_empty_axes"),
    ("ReduceLogSumExp", "axes keepdims noop_with_empty_axes"),
    ("ReduceMax", "axes keepdims noop_with_empty_axes"),
    ("ReduceMean", "axes keepdims noop_with_empty_axes"),
    ("ReduceMin", "axes keepdims noop_with_empty_axes"),
    ("ReduceProd", "axes keepdims noop_with_empty_axes"),
    ("ReduceSum", "axes keepdims noop_with_empty_axes"),
    ("ReduceSumSquare", "axes keepdims noop_with_empty_axes"),
    ("Reshape", "allowzero shape"),
    (
        "Resize",
        "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside \
         extrapolation_value keep_aspect_ratio_policy mode nearest_mode scales",
    ),
    (
        "RotaryEmbedding",
        "interleaved num_heads rotary_embedding_dim",
    ),
    ("STFT", "onesided"),
    ("Scaler", "offset scale"),
    ("Scatter", "axis"),
    ("ScatterElements", "axis reduction"),
    ("ScatterND", "reduction"),
    ("Selu", "alpha gamma"),
    ("Shape", "end start"),
    ("Shrink", "bias lambd"),
    ("Sign", ""),
    ("Sinh", ""),
    ("Size", ""),
    ("Slice", "axes ends starts steps"),
    ("Softmax", "axis"),
    ("SoftmaxCrossEntropyLoss", "ignore_index reduction"),
    ("Softsign", ""),
    ("SpaceToDepth", "blocksize"),
    ("Split", "axis num_outputs split"),
    ("Squeeze", "axes"),
    ("Sub", ""),
    ("Sum", ""),
    ("Swish", "alpha"),
    ("Tan", ""),
    ("ThresholdedRelu", "alpha"),
    ("Tile", "axis"),
    ("TopK", "axis k largest sorted"),
    ("Transpose", "perm"),
    ("Trilu", "upper"),
    ("Unsqueeze", "axes"),
    ("Upsample", "mode scales"),
    ("Where", ""),
    ("Xor", ""),
    ("ZipMap", "classlabels_int64s classlabels_strings"),
];

/// The operations that are supported only if all inputs are constants. An entry has the operation's
/// name and the names of its supported attributes.
const OF_CONSTANTS: [(&str, &str); 6] = [
    ("BlackmanWindow", "output_datatype periodic"),
    (
        "Constant",
        "value value_float value_floats value_int value_ints value_string value_strings",
    ),
    ("ConstantOfShape", "value"),
    ("HammingWindow", "output_datatype periodic"),
    ("HannWindow", "output_datatype periodic"),
    ("Range", ""),
];

/// The supported operations of ONNX's machine learning set `ai.onnx.ml`.
const ML: &str = "ArrayFeatureExtractor Binarizer LabelEncoder LinearClassifier LinearRegressor \
                  Normalizer Scaler ZipMap";

/// The supported operations of the set `com.microsoft`, which ONNX Runtime's optimizer writes.
const MICROSOFT: &str = "FusedConv Gelu";

/// Operations that are not supported, with advice on a replacement.
const INSTEAD: [(&str, &str); 6] = [
    ("Loop", LOOP),
    ("Scan", LOOP),
    ("DynamicQuantizeLSTM", QUANTISED),
    ("QAttention", QUANTISED),
    (
        "TreeEnsembleClassifier",
        "trees are no network: train an MLPClassifier",
    ),
    ("SVMClassifier", "train a linear model or an MLPClassifier"),
];

const LOOP: &str = "export the model with the loop unrolled (torch.onnx.export traces it)";
const QUANTISED: &str =
    "export the model before quantisation: weights can be stored as f16 or i8 when it is baked";

/// The oldest supported version of the standard operation set.
const FIRST_SET: i64 = 7;

/// The newest supported version of the standard operation set.
const LAST_SET: i64 = 26;

/// True if the bytes are an ONNX model with at least one node, whether its nodes are supported or
/// not.
pub(super) fn is_model(bytes: &[u8]) -> bool {
    OnnxModel::parse(bytes).is_ok_and(|m| m.model.graph.is_some_and(|graph| !graph.node.is_empty()))
}

/// Reads an ONNX model.
pub(super) fn read(
    source: &Source<'_>,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<ReadModel> {
    beside::read(
        source,
        "Sigmoid",
        files,
        mistakes,
        |place, files, mistakes| match OnnxModel::parse(source.bytes) {
            Ok(model) => lower(&model, place, files, mistakes),
            Err(e) => {
                mistakes.add(place.file, e);
                None
            }
        },
    )
}

/// Converts a model to a draft, and reports all mistakes. A fixed first size is first taken as the
/// number of records. If that gives mistakes, the whole input is one record.
fn lower(
    model: &OnnxModel,
    place: &ModelPlace<'_>,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<Lowered> {
    let Some(graph) = &model.model.graph else {
        mistakes.add(place.file, "not an ONNX model: it has no graph");
        return None;
    };
    let before = mistakes.lines.len();
    let first = lower_graph(model, graph, place, false, files, mistakes);
    if !first.supposed {
        return first.lowered;
    }
    if mistakes.lines.len() == before {
        return first.lowered;
    }
    mistakes.lines.truncate(before);
    lower_graph(model, graph, place, true, files, mistakes).lowered
}

/// The result of one attempt to convert a model to a draft.
#[derive(Default)]
struct Attempt {
    lowered: Option<Lowered>,
    /// True if this attempt took a fixed first size as the number of records.
    supposed: bool,
}

/// Converts a model's graph to a draft. If `single` is true, a fixed first size is not taken as the
/// number of records.
fn lower_graph(
    model: &OnnxModel,
    graph: &GraphProto,
    place: &ModelPlace<'_>,
    single: bool,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Attempt {
    let (before, file) = (mistakes.lines.len(), place.file);
    let sets = sets(model, file, mistakes);
    check_parts(model, file, mistakes);
    let mut tensors = Tensors {
        folder: place.folder,
        files,
        data: HashMap::new(),
    };
    let mut known = initializers(graph, &model.rest.graph, file, &mut tensors, mistakes);
    let names = graph.output.iter().map(|o| o.name.as_deref().unwrap_or(""));
    let inner = graph.node.iter().flat_map(|n| &n.output).map(|o| &**o);
    let wanted = place.wanted(
        names.map(|name| (name, name.to_string())),
        inner.map(|name| (name, name.to_string())),
    );
    let Ok(wanted) = wanted.map_err(|e| mistakes.add(file, e)) else {
        return Attempt::default();
    };
    check_names(graph, file, mistakes);
    let constants = known.values().map(|v| match v {
        ModelValue::Constant(c) => c.len(),
        _ => 0,
    });
    // A stored constant, such as quantized weights, may lead to several computed constants of its
    // size.
    let left = FOLDED.saturating_add(constants.sum::<usize>().saturating_mul(4));
    let opened = inputs(graph, place, single, &mut known, mistakes);
    let supposed = opened.as_ref().is_some_and(|o| o.supposed);
    let mut lowering = Lowering {
        file,
        sizes_by: place.sizes_by,
        before,
        sets,
        left,
        builder: opened.map(|o| o.builder),
        known,
        tensors,
    };
    let all = GraphPart {
        graph,
        rest: &model.rest.graph,
    };
    lowering.nodes(all, wanted.iter().map(|(name, _)| *name), mistakes);
    let Lowering { known, builder, .. } = lowering;
    let outputs: Vec<(String, ModelValue)> = wanted
        .into_iter()
        .map(|(name, own)| (own, known.get(name).cloned().unwrap_or(ModelValue::Unknown)))
        .collect();
    check_outputs(graph, &outputs, file, mistakes);
    let good = mistakes.lines.len() == before;
    let finished = |builder: Builder| {
        finish(builder, outputs, place.values)
            .map_err(|e| mistakes.add(file, e))
            .ok()
    };
    Attempt {
        lowered: builder.filter(|_| good).and_then(finished),
        supposed,
    }
}

/// Reports functions and sparse initializers, which are not supported.
fn check_parts(model: &OnnxModel, file: &str, mistakes: &mut Mistakes) {
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
}

/// Completes the draft of a model after all its nodes are converted. `values` is true if the user
/// asks for numbers, not classes.
fn finish(
    mut builder: Builder,
    mut outputs: Vec<(String, ModelValue)>,
    values: bool,
) -> Result<Lowered, String> {
    elementwise::completed(&mut builder, &mut outputs)?;
    let Builder {
        mut draft,
        numbers,
        inputs,
        ..
    } = builder;
    let mut tail = tail::tail(&mut draft, &outputs, values)?;
    // A regressor's output is numbers, unless the model computes a class from it.
    if tail.output.is_none() && numbers.contains(&tail.value) {
        tail.output = Some(tail::NUMBERS);
    }
    draft.graph.outputs = vec![tail.value].into();
    beside::finished(draft, InputOrder::Chw, tail, inputs)
}

/// The model's main graph, or a graph in an attribute of an `If` node.
#[derive(Clone, Copy)]
struct GraphPart<'m> {
    graph: &'m GraphProto,
    /// The fields of the graph that the crate `rten-onnx` does not read.
    rest: &'m GraphRest,
}

/// The state of the conversion of a model to a draft, node by node.
struct Lowering<'m, 't, 'f> {
    /// The path of the model's file, for messages.
    file: &'m str,
    /// The name of the option or variable by which the user states sizes, for messages.
    sizes_by: &'static str,
    /// The number of mistakes that were reported before this conversion.
    before: usize,
    /// The versions of the model's operation sets, by the name of the set.
    sets: HashMap<&'m str, i64>,
    /// The most elements that all constants computed from now on may have together.
    left: usize,
    /// The builder of the draft. `None` if the model's inputs have a mistake.
    builder: Option<Builder>,
    /// All tensors that are known so far, by name.
    known: HashMap<&'m str, ModelValue>,
    tensors: Tensors<'t, 'f>,
}

impl<'m> Lowering<'m, '_, '_> {
    /// Converts the nodes of a graph on which the tensors `wanted` depend, in the order of the
    /// file.
    fn nodes(
        &mut self,
        part: GraphPart<'m>,
        wanted: impl Iterator<Item = &'m str>,
        mistakes: &mut Mistakes,
    ) {
        let needed = needed(part.graph, wanted);
        for (i, proto) in part.graph.node.iter().enumerate() {
            if needed.contains(&i) {
                let place = format!("{}: {}", self.file, described(i, proto));
                let outputs = self.node(part, i, &place, mistakes).unwrap_or_default();
                let wrong = mistakes.lines.len() > self.before;
                self.name_outputs(part.graph, proto, outputs, wrong);
            }
        }
    }

    /// Computes the outputs of node `i` of a graph. Outputs that depend on the record become nodes
    /// of the draft. All others become constants. `None` after a mistake.
    fn node(
        &mut self,
        part: GraphPart<'m>,
        i: usize,
        place: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<ModelValue>> {
        let proto = &part.graph.node[i];
        if !check(proto, place, mistakes) {
            return None;
        }
        let inputs = operands(proto, &self.known, place, mistakes)?;
        let rest = part.rest.nodes.get(i);
        let node = OnnxNode {
            proto,
            name: title(i, proto),
            inputs,
            version: self.sets.get(set(proto)).copied().unwrap_or(LAST_SET),
            tensors: attributes(proto, rest, place, &mut self.tensors, mistakes)?,
        };
        if node.op() == "If" {
            return self.choice(&node, rest, place, mistakes);
        }
        let outputs = match quantised::in_parts(&node) {
            true => Parts {
                builder: &mut self.builder,
                node: &node,
                left: &mut self.left,
                version: self.sets.get("").copied().unwrap_or(LAST_SET),
            }
            .outputs(),
            false => compute(&mut self.builder, &node, &mut self.left),
        };
        outputs.map_err(|e| mistakes.add(place, e)).ok()
    }

    /// Stores the outputs of a node by their names. If an output is missing because of an earlier
    /// mistake (`wrong`), an assumed tensor takes its place, so that more mistakes can be found.
    fn name_outputs(
        &mut self,
        graph: &GraphProto,
        proto: &'m NodeProto,
        outputs: Vec<ModelValue>,
        wrong: bool,
    ) {
        let mut outputs = outputs.into_iter();
        for name in &proto.output {
            let given = outputs.next();
            // An output with an empty name is unused, so its tensor is skipped.
            if name.is_empty() {
                continue;
            }
            let assumed = || {
                let builder = self.builder.as_mut().filter(|_| wrong)?;
                assumed(builder, graph, proto, name, &self.known)
            };
            let value = given.or_else(assumed).unwrap_or(ModelValue::Unknown);
            self.known.insert(name, value);
        }
    }
}

/// Reads the constants that the model's file stores (initializers). Returns them by name.
fn initializers<'m>(
    graph: &'m GraphProto,
    rest: &GraphRest,
    file: &str,
    tensors: &mut Tensors<'_, '_>,
    mistakes: &mut Mistakes,
) -> HashMap<&'m str, ModelValue> {
    let mut known: HashMap<&str, ModelValue> = HashMap::new();
    for (i, initializer) in graph.initializer.iter().enumerate() {
        let name = initializer.name.as_deref().unwrap_or("");
        let place = format!("{file}: initialiser {name}");
        let none = TensorRest::default();
        let rest = rest.initializers.get(i).unwrap_or(&none);
        let constant = tensors.read(initializer, rest, &place, mistakes);
        let value = constant.map_or(ModelValue::Unknown, |c| ModelValue::Constant(Rc::new(c)));
        if known.insert(name, value).is_some() {
            mistakes.add(
                place,
                "expected one initialiser of this name, found another",
            );
        }
    }
    known
}

/// Returns the versions of the model's operation sets by name. The standard set has the name `""`.
fn sets<'m>(model: &'m OnnxModel, file: &str, mistakes: &mut Mistakes) -> HashMap<&'m str, i64> {
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
        if name.is_empty() && !(FIRST_SET..=LAST_SET).contains(&version) {
            mistakes.add(
                file,
                format_args!(
                    "expected operation set {FIRST_SET} to {LAST_SET}, found {version}: \
                     onnx.version_converter converts it",
                ),
            );
        }
        sets.insert(name, version);
    }
    sets
}

/// Returns the name of the operation set that a node's operation belongs to.
fn set(proto: &NodeProto) -> &str {
    match proto.domain.as_deref().unwrap_or("") {
        "ai.onnx" => "",
        name => name,
    }
}

/// Returns the indices of the nodes on which the tensors named `outputs` depend.
fn needed<'g>(graph: &'g GraphProto, outputs: impl Iterator<Item = &'g str>) -> HashSet<usize> {
    let mut names: HashSet<&str> = outputs.collect();
    let mut needed = HashSet::new();
    for (i, node) in graph.node.iter().enumerate().rev() {
        if node.output.iter().any(|o| names.contains(&**o)) {
            needed.insert(i);
            add_reads(node, &mut names);
        }
    }
    needed
}

/// Adds the names of all tensors that a node reads, including reads by graphs in its attributes.
fn add_reads<'g>(node: &'g NodeProto, names: &mut HashSet<&'g str>) {
    // An unused input has an empty name, which no tensor has.
    names.extend(
        node.input
            .iter()
            .map(String::as_str)
            .filter(|n| !n.is_empty()),
    );
    for graph in node.attribute.iter().filter_map(|a| a.g.as_ref()) {
        names.extend(graph.output.iter().filter_map(|o| o.name.as_deref()));
        graph.node.iter().for_each(|inner| add_reads(inner, names));
    }
}

/// The most elements that all computed constants may have together. Four more are allowed for each
/// element that the file stores.
const FOLDED: usize = 1 << 24;

/// Reports nodes whose output has the name of an earlier tensor.
fn check_names(graph: &GraphProto, file: &str, mistakes: &mut Mistakes) {
    let inputs = graph.input.iter().filter_map(|i| i.name.as_deref());
    let initializers = graph.initializer.iter().filter_map(|i| i.name.as_deref());
    let mut names: HashSet<&str> = inputs.chain(initializers).collect();
    for (i, node) in graph.node.iter().enumerate() {
        for name in node.output.iter().filter(|n| !n.is_empty()) {
            if !names.insert(name) {
                let place = format!("{file}: {}", described(i, node));
                mistakes.add(
                    place,
                    format_args!(
                        "its output {name} is also an input, an initialiser or the output of an \
                         earlier node"
                    ),
                );
            }
        }
    }
}

/// Reports outputs whose inferred sizes differ from those that the model declares.
fn check_outputs(
    graph: &GraphProto,
    outputs: &[(String, ModelValue)],
    file: &str,
    mistakes: &mut Mistakes,
) {
    for info in &graph.output {
        let name = info.name.as_deref().unwrap_or("");
        if let Some((_, value)) = outputs.iter().find(|(output, _)| output == name) {
            if let Err(e) = check_declared(info, value) {
                mistakes.add(format_args!("{file}: output {name}"), e);
            }
        }
    }
}

/// Compares the sizes that the model declares for an output with the inferred sizes.
fn check_declared(info: &ValueInfoProto, value: &ModelValue) -> Result<(), String> {
    let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let (Some(shape), ModelValue::Live(live)) = (tensor.and_then(|t| t.shape.as_ref()), value)
    else {
        return Ok(());
    };
    // Exporters may leave out a shape that they do not know.
    if shape.dim.is_empty() {
        return Ok(());
    }
    let mut stated: Vec<Option<i64>> = shape
        .dim
        .iter()
        .map(|d| d.dim_value.filter(|&n| n > 0))
        .collect();
    if let Some(r) = live.records.filter(|&r| r < stated.len()) {
        stated[r] = None;
    }
    let differs = |(i, s): (usize, &Option<i64>)| {
        let own = (live.records != Some(i)).then_some(live.whole()[i]);
        s.is_some_and(|s| own.is_some_and(|own| usize::try_from(s) != Ok(own)))
    };
    if stated.len() != live.rank() || stated.iter().enumerate().any(differs) {
        let size = |(i, s): (usize, &Option<i64>)| match s {
            _ if live.records == Some(i) => "N".into(),
            s => s.map_or("?".into(), |n| n.to_string()),
        };
        let sizes: Vec<String> = stated.iter().enumerate().map(size).collect();
        return Err(format!(
            "the model declares [{}], its nodes give {}: export it anew",
            sizes.join(", "),
            live.shown()
        ));
    }
    Ok(())
}

/// A builder with the model's inputs.
struct Opened {
    builder: Builder,
    /// True if a fixed first size of the inputs was taken as the number of records.
    supposed: bool,
}

/// Makes a builder with the model's inputs, and adds the inputs to `known`. If `single` is true, a
/// fixed first size is not taken as the number of records.
fn inputs<'g>(
    graph: &'g GraphProto,
    place: &ModelPlace<'_>,
    single: bool,
    known: &mut HashMap<&'g str, ModelValue>,
    mistakes: &mut Mistakes,
) -> Option<Opened> {
    let file = place.file;
    let names: Vec<(&str, &ValueInfoProto)> = graph
        .input
        .iter()
        .map(|i| (i.name.as_deref().unwrap_or(""), i))
        .filter(|(name, _)| !known.contains_key(name))
        .collect();
    if names.is_empty() {
        mistakes.add(file, "expected an input, found none");
    }
    let mut declared = Vec::new();
    for &(name, info) in &names {
        if known.insert(name, ModelValue::Unknown).is_some() {
            mistakes.add(file, format_args!("two inputs are called {name}"));
        }
        declared.extend(input(
            name,
            info,
            &format!("{file}: input {name}"),
            mistakes,
        ));
    }
    let complete = !declared.is_empty() && declared.len() == names.len();
    let arranged = inputs::arrange(declared, place.sizes, place.sizes_by, single);
    let Arranged {
        values: lives,
        constants,
        records,
        supposed,
    } = arranged
        .map_err(|list| inputs::report(list, file, mistakes))
        .ok()
        .filter(|_| complete)?;
    let mut left = Vec::new();
    for ((name, _), constant) in names.into_iter().zip(constants) {
        match constant {
            Some(constant) => {
                known.insert(name, ModelValue::Constant(Rc::new(constant)));
            }
            None => left.push(name),
        }
    }
    let values = left.iter().zip(&lives).map(|(&name, live)| graph::Value {
        name: name.to_string().into(),
        shape: live.standard(),
    });
    let (mut builder, values) = Builder::new(values.collect(), records)
        .map_err(|e| mistakes.add(file, e))
        .ok()?;
    builder.known.on = place.integers;
    for ((&name, live), value) in left.iter().zip(lives).zip(values) {
        known.insert(name, ModelValue::Live(live.with_value(value)));
    }
    Some(Opened { builder, supposed })
}

/// Reads what the model declares about an input: its name, sizes and type.
fn input(
    name: &str,
    info: &ValueInfoProto,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<DeclaredInput> {
    let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let kind = tensor.and_then(|t| t.elem_type).unwrap_or(DataType::FLOAT);
    let float = matches!(
        kind,
        DataType::FLOAT | DataType::DOUBLE | DataType::FLOAT16 | DataType::BFLOAT16
    );
    let whole = matches!(kind.0, 2..=7 | 9) || matches!(kind, DataType::UINT32 | DataType::UINT64);
    if !float && !whole {
        mistakes.add(place, format_args!("expected numbers, found type {kind}"));
        return None;
    }
    let size = |d: &rten_onnx::onnx::Dimension| {
        let known = d.dim_value.and_then(|n| usize::try_from(n).ok());
        match known.filter(|&n| n > 0) {
            Some(n) => AxisSize::Known(n),
            None => AxisSize::Open(d.dim_param.clone().unwrap_or_default()),
        }
    };
    let shape = tensor.and_then(|t| t.shape.as_ref());
    Some(DeclaredInput {
        name: name.into(),
        also: None,
        axes: shape.map(|s| s.dim.iter().map(size).collect()),
        kind: tensor::element(kind.0.into()).unwrap_or(Element::F32),
    })
}

/// Describes a node for messages: its name and its operation.
fn described(i: usize, proto: &NodeProto) -> String {
    format!(
        "node {} ({})",
        title(i, proto),
        proto.op_type.as_deref().unwrap_or("?")
    )
}

/// Returns a node's name. A node without a name gets the name of its first output, or else its
/// index `i`.
fn title(i: usize, proto: &NodeProto) -> String {
    let named = |n: &&str| !n.is_empty();
    let name = proto.name.as_deref().filter(named).or(proto
        .output
        .first()
        .map(|o| &**o)
        .filter(named));
    name.map_or_else(|| i.to_string(), String::from)
}

/// Reports a node's operation or attributes if they are not supported. Returns true if all are.
fn check(proto: &NodeProto, place: &str, mistakes: &mut Mistakes) -> bool {
    let (op, set) = (proto.op_type.as_deref().unwrap_or(""), set(proto));
    let ml = listed(ML, op);
    let of_microsoft = set == "com.microsoft" && listed(MICROSOFT, op);
    let mut all = OPS.iter().chain(&OF_CONSTANTS);
    let mut quantised = quantised::OPS.iter();
    let known = all
        .find(|(name, _)| *name == op)
        .map(|(_, attributes)| *attributes)
        .or(functions::of_onnx(op).map(|_| ""))
        .filter(|_| set == if ml { "ai.onnx.ml" } else { "" } || of_microsoft)
        .or(quantised
            .find(|(name, of, _)| (*name, *of) == (op, set))
            .map(|(_, _, attributes)| *attributes));
    let Some(known) = known else {
        match INSTEAD.iter().find(|(name, _)| *name == op) {
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
        .filter(|n| !listed(known, n))
    {
        mistakes.add(place, format_args!("the attribute {name} is not supported"));
        good = false;
    }
    for (i, attribute) in proto.attribute.iter().enumerate() {
        let name = attribute.name.as_deref().unwrap_or("");
        let wants = type_of(op, name);
        // Files of the first ONNX versions leave the attribute type out.
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

/// Returns the type that a supported attribute must have.
fn type_of(op: &str, name: &str) -> AttributeType {
    match name {
        "value" if op == "Pad" => AttributeType::FLOAT,
        "scale" | "softcap" if op == "Attention" => AttributeType::FLOAT,
        "alpha"
        | "beta"
        | "gamma"
        | "epsilon"
        | "momentum"
        | "ratio"
        | "threshold"
        | "max"
        | "min"
        | "value_float"
        | "default_float"
        | "bias"
        | "lambd"
        | "cubic_coeff_a"
        | "clip"
        | "extrapolation_value" => AttributeType::FLOAT,
        "activation_alpha" | "activation_beta" | "value_floats" | "coefficients" | "intercepts"
        | "offset" | "scale" | "scales" | "activation_params" => AttributeType::FLOATS,
        "approximate"
        | "auto_pad"
        | "mode"
        | "norm"
        | "post_transform"
        | "value_string"
        | "default_string"
        | "round_mode"
        | "activation"
        | "equation"
        | "reduction"
        | "direction"
        | "nearest_mode"
        | "coordinate_transformation_mode"
        | "keep_aspect_ratio_policy" => AttributeType::STRING,
        "classes_strings"
        | "keys_strings"
        | "values_strings"
        | "classlabels_strings"
        | "activations"
        | "value_strings" => AttributeType::STRINGS,
        "output_padding" | "output_shape" | "axes" | "dilations" | "kernel_shape" | "pads"
        | "strides" | "perm" | "shape" | "starts" | "ends" | "steps" | "split" | "keys_int64s"
        | "values_int64s" | "classlabels_ints" | "classlabels_int64s" | "value_ints" => {
            AttributeType::INTS
        }
        "value" | "default_tensor" | "keys_tensor" | "values_tensor" => AttributeType::TENSOR,
        "then_branch" | "else_branch" => AttributeType::GRAPH,
        _ => AttributeType::INT,
    }
}

fn type_name(kind: AttributeType) -> &'static str {
    match kind {
        AttributeType::FLOAT => "FLOAT",
        AttributeType::INT => "INT",
        AttributeType::STRING => "STRING",
        AttributeType::TENSOR => "TENSOR",
        AttributeType::GRAPH => "GRAPH",
        AttributeType::FLOATS => "FLOATS",
        AttributeType::INTS => "INTS",
        AttributeType::STRINGS => "STRINGS",
        _ => "another",
    }
}

/// Looks up the tensors of a node's inputs. `None` after a mistake.
fn operands(
    proto: &NodeProto,
    known: &HashMap<&str, ModelValue>,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<Vec<Option<ModelValue>>> {
    let mut inputs = Vec::new();
    let mut complete = true;
    for name in &proto.input {
        match known.get(&**name) {
            _ if name.is_empty() => inputs.push(None),
            Some(ModelValue::Unknown) => complete = false,
            Some(value) => inputs.push(Some(value.clone())),
            None => {
                mistakes.add(
                    place,
                    format_args!(
                        "its input {name} is no input, no initialiser and no output of an earlier \
                         node"
                    ),
                );
                complete = false;
            }
        }
    }
    complete.then_some(inputs)
}

/// Operations that are not supported, but whose output has the sizes of their first input.
const KEEP_SIZES: &str = "IsInf IsNaN";

/// Makes a tensor for an output that is missing because of a mistake. Its sizes are those that the
/// model states, or those of the input if the operation keeps sizes. `None` otherwise.
fn assumed(
    builder: &mut Builder,
    graph: &GraphProto,
    proto: &NodeProto,
    name: &str,
    known: &HashMap<&str, ModelValue>,
) -> Option<ModelValue> {
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
            Some(sizes.iter().map(size).collect::<Vec<_>>())
        });
    let same = || match known.get(&**proto.input.first()?) {
        Some(ModelValue::Live(live)) if listed(KEEP_SIZES, proto.op_type.as_deref()?) => {
            Some(live.clone())
        }
        _ => None,
    };
    let like = known.values().find_map(|v| match v {
        ModelValue::Live(live) => Some(live.records),
        _ => None,
    });
    let stated = stated.and_then(|sizes| {
        let behind = sizes
            .get(1..)?
            .iter()
            .copied()
            .collect::<Option<Vec<usize>>>()?;
        let live = Live::new(0, behind, Element::F32);
        Some(live.like(like.flatten()))
    });
    let live = stated.or_else(same)?;
    let assumed = builder.assumed(name, &live)?;
    Some(ModelValue::Live(assumed))
}

/// Converts a node's tensor attributes to constants. Returns each with the attribute's name. `None`
/// after a mistake.
fn attributes(
    proto: &NodeProto,
    rest: Option<&NodeRest>,
    place: &str,
    tensors: &mut Tensors<'_, '_>,
    mistakes: &mut Mistakes,
) -> Option<Vec<(String, Rc<ConstantTensor>)>> {
    let mut found = Vec::new();
    for (i, attribute) in proto.attribute.iter().enumerate() {
        let Some(tensor) = &attribute.t else { continue };
        let name = attribute.name.clone().unwrap_or_default();
        let none = TensorRest::default();
        let rest = rest.and_then(|r| r.attributes.get(i));
        let rest = rest.map_or(&none, |r| &r.tensor);
        let constant = tensors.read(tensor, rest, &format!("{place}: {name}"), mistakes)?;
        found.push((name, Rc::new(constant)));
    }
    Some(found)
}

/// Computes the outputs of a node. If all inputs are constants, the outputs are constants too.
/// Otherwise the node is added to the builder's draft.
fn compute(
    builder: &mut Option<Builder>,
    node: &OnnxNode<'_>,
    left: &mut usize,
) -> ops::NodeOutputs {
    let constants: Option<Vec<Option<Rc<ConstantTensor>>>> = node
        .inputs
        .iter()
        .map(|i| match i {
            None => Some(None),
            Some(ModelValue::Constant(c)) => Some(Some(c.clone())),
            Some(_) => None,
        })
        .collect();
    match (constants, builder) {
        (Some(constants), _) => {
            let folded = fold::fold(node, &constants, *left)?;
            *left = left.saturating_sub(folded.iter().map(ConstantTensor::len).sum());
            Ok(folded
                .into_iter()
                .map(|c| ModelValue::Constant(Rc::new(c)))
                .collect())
        }
        (None, Some(builder)) if set(node.proto) == "ai.onnx.ml" => {
            ops::by_records(node, |node| classify::apply(builder, node))
        }
        (None, Some(builder)) => ops::apply(builder, node),
        (None, None) => Ok(Vec::new()),
    }
}

#[cfg(test)]
#[path = "nodes/tests.rs"]
mod nodes;
#[cfg(test)]
mod tests;
