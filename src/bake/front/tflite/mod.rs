//! Front end for TensorFlow Lite models. It converts the operators of a subgraph in their order.
//! Each tensor is either a constant, or a value of the draft that is computed for each record.
//!
//! A value has an axis of the records as its first axis, unless the model computes one record at a
//! time. Sizes are inferred operator by operator.
//!
//! Images are pixel by pixel in the file, and channel by channel in the draft. For each axis of a
//! value the front end keeps the index of the tensor's axis. So it transposes a value only where an
//! operator needs another order.

mod branches;
mod dynamic;
mod flat;
mod integers;
mod ops;
mod sparse;
mod tensor;
mod values;

use super::Source;
use super::beside::{self, Lowered, ModelPlace};
use super::builder::Builder;
use super::constant::{ConstantTensor, Element};
use super::inputs::{self, Arranged, AxisSize, DeclaredInput};
use super::value::{Class, Live, ModelValue};
use super::{elementwise, tail};
use crate::bake::Mistakes;
use crate::bake::matrix::Files;
use crate::bake::model::ReadModel;
use crate::ir::graph::{Shape, Value};
use crate::ir::network::{ByteInput, InputOrder};
use flat::Table;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use tensor::{Conversion, TfliteTensor};

/// The supported operators of TensorFlow Lite. An entry has the operator's code in the schema, its
/// name, and the number of its options table. Number 0 allows any options table.
const OPS: [(i32, &str, u8); 90] = [
    (0, "ADD", 11),
    (1, "AVERAGE_POOL_2D", 5),
    (2, "CONCATENATION", 10),
    (3, "CONV_2D", 1),
    (4, "DEPTHWISE_CONV_2D", 2),
    (5, "DEPTH_TO_SPACE", 94),
    (6, "DEQUANTIZE", 0),
    (8, "FLOOR", 0),
    (9, "FULLY_CONNECTED", 8),
    (11, "L2_NORMALIZATION", 12),
    (14, "LOGISTIC", 0),
    (17, "MAX_POOL_2D", 5),
    (18, "MUL", 21),
    (19, "RELU", 0),
    (20, "RELU_N1_TO_1", 0),
    (21, "RELU6", 0),
    (22, "RESHAPE", 17),
    (23, "RESIZE_BILINEAR", 15),
    (25, "SOFTMAX", 9),
    (26, "SPACE_TO_DEPTH", 19),
    (28, "TANH", 0),
    (34, "PAD", 0),
    (36, "GATHER", 23),
    (39, "TRANSPOSE", 0),
    (40, "MEAN", 27),
    (41, "SUB", 28),
    (42, "DIV", 29),
    (43, "SQUEEZE", 30),
    (45, "STRIDED_SLICE", 32),
    (47, "EXP", 0),
    (49, "SPLIT", 35),
    (50, "LOG_SOFTMAX", 0),
    (53, "CAST", 37),
    (54, "PRELU", 0),
    (55, "MAXIMUM", 0),
    (56, "ARG_MAX", 0),
    (57, "MINIMUM", 0),
    (58, "LESS", 0),
    (59, "NEG", 0),
    (60, "PADV2", 0),
    (61, "GREATER", 0),
    (62, "GREATER_EQUAL", 0),
    (63, "LESS_EQUAL", 0),
    (64, "SELECT", 0),
    (65, "SLICE", 48),
    (66, "SIN", 0),
    (67, "TRANSPOSE_CONV", 49),
    (69, "TILE", 0),
    (70, "EXPAND_DIMS", 0),
    (71, "EQUAL", 0),
    (72, "NOT_EQUAL", 0),
    (73, "LOG", 0),
    (74, "SUM", 27),
    (75, "SQRT", 0),
    (76, "RSQRT", 0),
    (77, "SHAPE", 0),
    (78, "POW", 0),
    (81, "REDUCE_PROD", 27),
    (82, "REDUCE_MAX", 27),
    (83, "PACK", 59),
    (84, "LOGICAL_OR", 0),
    (85, "ONE_HOT", 61),
    (86, "LOGICAL_AND", 0),
    (87, "LOGICAL_NOT", 0),
    (88, "UNPACK", 64),
    (89, "REDUCE_MIN", 27),
    (92, "SQUARE", 0),
    (97, "RESIZE_NEAREST_NEIGHBOR", 74),
    (98, "LEAKY_RELU", 75),
    (99, "SQUARED_DIFFERENCE", 0),
    (100, "MIRROR_PAD", 77),
    (101, "ABS", 0),
    (102, "SPLIT_V", 79),
    (104, "CEIL", 0),
    (105, "REVERSE_V2", 0),
    (106, "ADD_N", 0),
    (108, "COS", 0),
    (111, "ELU", 0),
    (114, "QUANTIZE", 0),
    (116, "ROUND", 0),
    (117, "HARD_SWISH", 0),
    (118, "IF", 92),
    (123, "SELECT_V2", 0),
    (124, "DENSIFY", 0),
    (126, "BATCH_MATMUL", 101),
    (128, "CUMSUM", 102),
    (130, "BROADCAST_TO", 0),
    (150, "GELU", 116),
    (152, "RELU_0_TO_1", 0),
    (158, "SIGN", 0),
];

/// The operators that are supported only if all inputs are constants.
const OF_CONSTANTS: [&str; 1] = ["REDUCE_PROD"];

/// Operators that are not supported. An entry has the code in the schema, the name, and advice for
/// the user.
const INSTEAD: [(i32, &str, &str); 30] = [
    (7, "EMBEDDING_LOOKUP", TEXTS),
    (12, "L2_POOL_2D", OTHER_POOL),
    (13, "LOCAL_RESPONSE_NORMALIZATION", BATCH_NORM),
    (16, "LSTM", TIME),
    (24, "RNN", TIME),
    (27, "SVDF", TIME),
    (35, "UNIDIRECTIONAL_SEQUENCE_RNN", TIME),
    (37, "BATCH_TO_SPACE_ND", DILATED),
    (38, "SPACE_TO_BATCH_ND", DILATED),
    (44, "UNIDIRECTIONAL_SEQUENCE_LSTM", TIME),
    (46, "BIDIRECTIONAL_SEQUENCE_RNN", TIME),
    (48, "TOPK_V2", TOP),
    (51, "DELEGATE", "convert the model for no particular device"),
    (52, "BIDIRECTIONAL_SEQUENCE_LSTM", TIME),
    (79, "ARG_MIN", "use ARG_MAX of the negative"),
    (80, "FAKE_QUANT", WITHOUT_FAKES),
    (90, "FLOOR_DIV", ""),
    (94, "FILL", ""),
    (107, "GATHER_ND", ""),
    (109, "WHERE", ""),
    (119, "WHILE", "convert the model with the loop unrolled"),
    (120, "NON_MAX_SUPPRESSION_V4", END),
    (121, "NON_MAX_SUPPRESSION_V5", END),
    (131, "RFFT2D", SPECTRUM),
    (132, "CONV_3D", "use CONV_2D instead"),
    (133, "IMAG", SPECTRUM),
    (135, "COMPLEX_ABS", SPECTRUM),
    (142, "VAR_HANDLE", TIME),
    (143, "READ_VARIABLE", TIME),
    (144, "ASSIGN_VARIABLE", TIME),
];

const SPECTRUM: &str = "compute the spectrum before the records are read";
const BATCH_NORM: &str = "use batch normalisation instead";
const OTHER_POOL: &str = "use AVERAGE_POOL_2D or MAX_POOL_2D instead";
const TOP: &str = "let the network end before it: `-o top=K` gives the K most probable classes";
const WITHOUT_FAKES: &str = "convert the model to integers or to floats";
const END: &str = "let the network end before it";
const TEXTS: &str = "texts and indices are no records";
const TIME: &str = "use convolutions over a window of time instead";
const DILATED: &str = "convert the model with one record (`keras.Input(…, batch_size=1)`), then \
                       convolutions keep their dilation";

/// The schema's codes of the operators with weights.
const CONV_2D: i32 = 3;
const DEPTHWISE_CONV_2D: i32 = 4;
const FULLY_CONNECTED: i32 = 9;

/// The schema's code for custom operators, which are not part of TensorFlow Lite.
const CUSTOM: i32 = 32;

/// A value of the draft whose axes may have another order than the axes of its tensor in the file.
#[derive(Clone, Debug, PartialEq)]
struct Turned {
    /// The value of the draft. Its sizes are those of the tensor in another order. If there is an
    /// axis of the records, it is the tensor's first axis.
    live: Live,
    /// For each axis of the value, the index of the matching axis of the tensor. The axis of the
    /// records is not counted.
    order: Vec<usize>,
}

impl Turned {
    /// Returns `live` as a value whose axes have the same order as the axes of this value.
    fn with(&self, live: Live) -> Turned {
        let order = self.order.clone();
        Turned { live, order }
    }
}

/// All that the front end knows about a tensor of the model.
#[derive(Clone, Debug, PartialEq)]
enum TfliteValue {
    /// A tensor that is known at build time.
    Constant(Rc<ConstantTensor>),
    /// A tensor that is computed from each record.
    Live(Turned),
    /// The class of each record.
    Class(Class),
    /// A tensor that is not known, because of a mistake that is already reported.
    Unknown,
}

/// An operator of the model, as the file states it.
struct Operator<'b> {
    /// The operator's code in the schema.
    code: i32,
    /// The name of a custom operator, which the schema does not know. Empty for other operators.
    custom: String,
    /// The tensor number of each input. -1 stands for an input that is left out.
    inputs: Vec<i32>,
    outputs: Vec<i32>,
    options: Table<'b>,
    /// The options of a custom operator, as raw bytes.
    custom_options: &'b [u8],
    /// The number that the schema gives to the options' table. 0 if there are no options.
    kind: u8,
}

/// A subgraph of a model: the main network, or one branch of an `IF`.
struct Subgraph<'b> {
    tensors: Vec<TfliteTensor<'b>>,
    inputs: Vec<i32>,
    outputs: Vec<i32>,
    operators: Vec<Operator<'b>>,
    /// The names of inputs and outputs in the model's signature, by tensor number.
    signature: HashMap<i32, String>,
}

impl<'b> Subgraph<'b> {
    /// Reads the subgraphs of a model. The first one is the network. `left` is the memory in bytes
    /// that all vectors of the file may still take ([`flat::most`]). If `whole` is true, tensors of
    /// 8-bit integers are computed as integers.
    fn read(
        bytes: &'b [u8],
        left: &'b Cell<usize>,
        whole: bool,
    ) -> Result<Vec<Subgraph<'b>>, String> {
        let model = Table::root(bytes, b"TFL3", left)?;
        // Field numbers of the schema's table `Model`: 0 version, 1 operator_codes, 2 subgraphs, 4
        // buffers.
        let version = model.unsigned(0)?;
        if version != 3 {
            return Err(format!("expected version 3 of the schema, found {version}"));
        }
        let (codes, subgraphs, buffers) = (model.tables(1)?, model.tables(2)?, model.tables(4)?);
        // Field numbers of the schema's table `SubGraph`: 0 tensors, 1 inputs, 2 outputs, 3
        // operators.
        let read = |(number, subgraph): (usize, &Table<'b>)| {
            let tensors = subgraph.tables(0)?;
            let tensors = tensors
                .iter()
                .enumerate()
                .map(|(i, t)| TfliteTensor::read(i, t, &buffers, bytes, whole));
            let operators = subgraph
                .tables(3)?
                .iter()
                .map(|o| Operator::read(o, &codes))
                .collect::<Result<_, _>>()?;
            Ok(Subgraph {
                tensors: tensors.collect::<Result<_, _>>()?,
                inputs: subgraph.ints(1)?,
                outputs: subgraph.ints(2)?,
                operators,
                signature: match number {
                    0 => signature(&model)?,
                    _ => HashMap::new(),
                },
            })
        };
        let graphs: Vec<Subgraph<'b>> = subgraphs
            .iter()
            .enumerate()
            .map(read)
            .collect::<Result<_, String>>()?;
        match &graphs[..] {
            [_] => Ok(graphs),
            [network, ..] if branches::chooses(&network.operators) => Ok(graphs),
            _ => Err(format!(
                "expected one subgraph, or branches of IF behind it, found {}: convert a model of \
                 one function (one signature), without loops",
                graphs.len()
            )),
        }
    }

    /// Returns tensor number `i`. `None` if the subgraph has no such tensor.
    fn tensor(&self, i: i32) -> Option<&TfliteTensor<'b>> {
        usize::try_from(i).ok().and_then(|i| self.tensors.get(i))
    }

    /// Returns the name of tensor number `i`, or `tensor i` if there is none.
    fn name(&self, i: i32) -> String {
        self.tensor(i)
            .map_or_else(|| format!("tensor {i}"), |t| t.name.clone())
    }

    /// Returns the name of an input or output of the model. That is its name in the signature, or
    /// else the name of its tensor.
    fn called(&self, i: i32) -> String {
        self.signature
            .get(&i)
            .cloned()
            .unwrap_or_else(|| self.name(i))
    }

    /// Returns the indices of the operators on which the tensors numbered `outputs` depend.
    fn needed(&self, outputs: impl Iterator<Item = i32>) -> HashSet<usize> {
        let mut tensors: HashSet<i32> = outputs.collect();
        let mut needed = HashSet::new();
        for (i, operator) in self.operators.iter().enumerate().rev() {
            if operator.outputs.iter().any(|o| tensors.contains(o)) {
                needed.insert(i);
                tensors.extend(&operator.inputs);
            }
        }
        needed
    }
}

/// Reads the names of inputs and outputs in the model's signature, by tensor number. Empty if the
/// model does not have exactly one signature.
fn signature(model: &Table<'_>) -> Result<HashMap<i32, String>, String> {
    // Field numbers of the schema's table `Model`: 7 signature_defs. Field numbers of
    // `SignatureDef`: 0 inputs, 1 outputs. Field numbers of `TensorMap`: 0 name, 1 tensor_index.
    let signatures = model.tables(7)?;
    let [signature] = &signatures[..] else {
        return Ok(HashMap::new());
    };
    let maps = [signature.tables(0)?, signature.tables(1)?].concat();
    let named = |map: &Table<'_>| Ok((i32::try_from(map.unsigned(1)?).unwrap_or(-1), map.text(0)?));
    maps.iter().map(named).collect()
}

impl<'b> Operator<'b> {
    fn read(table: &Table<'b>, codes: &[Table<'b>]) -> Result<Operator<'b>, String> {
        // Field numbers of the schema's table `Operator`: 0 opcode_index, 1 inputs, 2 outputs, 3
        // builtin_options_type, 4 builtin_options, 5 custom_options. Field numbers of
        // `OperatorCode`: 0 deprecated_builtin_code (up to 127), 1 custom_code, 3 builtin_code.
        let index = table.unsigned(0)?;
        let code = codes
            .get(index as usize)
            .ok_or_else(|| format!("damaged: it has no operator code {index}"))?;
        Ok(Operator {
            code: code.int(3, 0)?.max(i32::from(code.byte(0)? as i8)),
            custom: code.text(1)?,
            inputs: table.ints(1)?,
            outputs: table.ints(2)?,
            options: table.table(4)?.unwrap_or(Table::EMPTY),
            custom_options: table.bytes(5)?.unwrap_or(&[]),
            kind: table.byte(3)?,
        })
    }

    /// Returns the operator's name, for messages.
    fn name(&self) -> String {
        let supported = OPS.iter().map(|&(code, name, _)| (code, name));
        let others = INSTEAD.iter().map(|&(code, name, _)| (code, name));
        match supported.chain(others).find(|(code, _)| *code == self.code) {
            Some((_, name)) => name.into(),
            None if self.code == CUSTOM => format!("custom {}", self.custom),
            None => format!("operator code {}", self.code),
        }
    }
}

/// An operator with the tensors of its inputs.
struct OperatorNode<'n> {
    op: &'static str,
    /// The name for the draft's nodes that compute this operator. It is the name of the operator's
    /// first output.
    name: String,
    /// The values of the operator's inputs. `None` stands for an input that is left out.
    inputs: Vec<Option<TfliteValue>>,
    options: Table<'n>,
    custom_options: &'n [u8],
    /// The declaration of the operator's first output.
    output: &'n TfliteTensor<'n>,
    /// The declarations of the operator's inputs. `None` stands for an input that is left out.
    tensors: Vec<Option<&'n TfliteTensor<'n>>>,
    /// The rule by which the result becomes integers. `None` for an operator on real numbers.
    rule: Option<integers::Rule>,
}

/// Reads a TensorFlow Lite model.
pub(super) fn read(
    source: &Source<'_>,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<ReadModel> {
    let left = flat::most(source.bytes);
    beside::read(
        source,
        "LOGISTIC",
        files,
        mistakes,
        |place, _, mistakes| match Subgraph::read(source.bytes, &left, place.integers) {
            Ok(graphs) => lower(&graphs, place, mistakes),
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
    graphs: &[Subgraph<'_>],
    place: &ModelPlace<'_>,
    mistakes: &mut Mistakes,
) -> Option<Lowered> {
    let before = mistakes.lines.len();
    let first = lower_graph(graphs, place, false, mistakes);
    let mut lowered = first.lowered;
    if first.supposed && mistakes.lines.len() > before {
        mistakes.lines.truncate(before);
        lowered = lower_graph(graphs, place, true, mistakes).lowered;
    }
    if lowered.is_some() {
        notes(&graphs[0], place, mistakes);
    }
    lowered
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
    graphs: &[Subgraph<'_>],
    place: &ModelPlace<'_>,
    single: bool,
    mistakes: &mut Mistakes,
) -> Attempt {
    let (before, file, graph) = (mistakes.lines.len(), place.file, &graphs[0]);
    let inner = graph.operators.iter().flat_map(|o| &o.outputs);
    let wanted = place.wanted(
        graph.outputs.iter().map(|&o| (o, graph.called(o))),
        inner.map(|&o| (o, graph.name(o))),
    );
    let Ok(wanted) = wanted.map_err(|e| mistakes.add(file, e)) else {
        return Attempt::default();
    };
    let mut known: HashMap<i32, TfliteValue> = HashMap::new();
    let opened = inputs(graph, place, single, &mut known, mistakes);
    let supposed = opened.as_ref().is_some_and(|o| o.supposed);
    let (mut builder, order, bytes) = match opened {
        Some(opened) => (Some(opened.builder), opened.order, opened.bytes),
        None => (None, InputOrder::Chw, None),
    };
    let needed = graph.needed(wanted.iter().map(|(output, _)| *output));
    let lowering = Lowering {
        all: graphs,
        graph,
        file,
        before,
        branches: &Cell::new(0),
    };
    lowering.operators(&needed, &mut builder, &mut known, mistakes);
    let builder = builder.filter(|_| mistakes.lines.len() == before);
    let finished = |builder: Builder| {
        finish(graph, builder, wanted, &known, place.values, order)
            .map(|lowered| Lowered { bytes, ..lowered })
            .map_err(|e| mistakes.add(file, e))
            .ok()
    };
    Attempt {
        lowered: builder.and_then(finished),
        supposed,
    }
}

/// The conversion of one subgraph, operator by operator.
#[derive(Clone, Copy)]
struct Lowering<'g, 'b> {
    /// All subgraphs of the model.
    all: &'g [Subgraph<'b>],
    graph: &'g Subgraph<'b>,
    file: &'g str,
    /// The number of mistakes that were reported before this attempt.
    before: usize,
    /// The number of branches of `IF` that were computed so far.
    branches: &'g Cell<usize>,
}

impl Lowering<'_, '_> {
    /// Computes the operators with the indices `needed`, in order, and adds their outputs to
    /// `known`.
    fn operators(
        &self,
        needed: &HashSet<usize>,
        builder: &mut Option<Builder>,
        known: &mut HashMap<i32, TfliteValue>,
        mistakes: &mut Mistakes,
    ) {
        let graph = self.graph;
        for (i, operator) in graph.operators.iter().enumerate() {
            if !needed.contains(&i) {
                continue;
            }
            let outputs = outputs_of(self, i, builder, known, mistakes);
            let mut outputs = outputs.unwrap_or_default().into_iter();
            let wrong = mistakes.lines.len() > self.before;
            for &o in &operator.outputs {
                let assumed = || {
                    let builder = builder.as_mut().filter(|_| wrong)?;
                    assumed(graph.tensor(o)?, known, builder)
                };
                let value = outputs.next().or_else(assumed);
                known.insert(o, value.unwrap_or(TfliteValue::Unknown));
            }
        }
    }
}

/// Computes the outputs of operator `i`. Outputs that depend on the record become nodes of the
/// draft. All others become constants. `None` after a mistake.
fn outputs_of(
    of: &Lowering<'_, '_>,
    i: usize,
    builder: &mut Option<Builder>,
    known: &mut HashMap<i32, TfliteValue>,
    mistakes: &mut Mistakes,
) -> Option<Vec<TfliteValue>> {
    let (graph, file) = (of.graph, of.file);
    let operator = &graph.operators[i];
    let first = operator.outputs.first();
    let name = first.map_or_else(|| format!("operator {i}"), |&o| graph.name(o));
    let place = format!("{file}: operator {i} ({}), output {name}", operator.name());
    let op = check(operator, &place, mistakes)?;
    let inputs = operands(graph, operator, known, &place, mistakes)?;
    if operator.code == branches::IF {
        return branches::choice(of, operator, &inputs, builder, (&name, &place), mistakes);
    }
    let Some(output) = first.and_then(|&o| graph.tensor(o)) else {
        mistakes.add(&place, "damaged: it has no output");
        return None;
    };
    let node = OperatorNode {
        op,
        name,
        inputs,
        options: operator.options,
        custom_options: operator.custom_options,
        output,
        tensors: operator.inputs.iter().map(|&i| graph.tensor(i)).collect(),
        rule: None,
    };
    integers::compute(builder.as_mut()?, &node)
        .map_err(|e| mistakes.add(&place, hinted(e)))
        .ok()
}

/// Makes a value for an output that is missing because of a mistake. It has the sizes that the
/// model states. So mistakes in later operators are found too.
fn assumed(
    tensor: &TfliteTensor<'_>,
    known: &HashMap<i32, TfliteValue>,
    builder: &mut Builder,
) -> Option<TfliteValue> {
    let sizes = tensor.dims.get(1..)?.iter();
    let dims = sizes
        .map(|&d| usize::try_from(d).ok())
        .collect::<Option<_>>()?;
    let like = known.values().find_map(|v| match v {
        TfliteValue::Live(turned) => Some(turned.live.records),
        _ => None,
    });
    let live = Live::new(0, dims, Element::F32).like(like.flatten());
    let live = builder.assumed(&tensor.name, &live)?;
    Some(TfliteValue::Live(ops::straight(live)))
}

/// Completes the draft of a model whose operators are all computed, with its outputs. `order` is
/// the order of a record's values.
fn finish(
    graph: &Subgraph<'_>,
    mut builder: Builder,
    wanted: Vec<(i32, String)>,
    known: &HashMap<i32, TfliteValue>,
    values: bool,
    order: InputOrder,
) -> Result<Lowered, String> {
    let mut outputs: Vec<(String, ModelValue)> = Vec::new();
    for (o, name) in wanted {
        let value = match known.get(&o) {
            Some(TfliteValue::Live(turned)) => {
                let mut plain = || {
                    let real = integers::real(&mut builder, &name, turned, graph.tensor(o))?;
                    ops::plain(&mut builder, &name, &real)
                };
                ModelValue::Live(plain().map_err(|e| format!("output {name}: {e}"))?)
            }
            Some(TfliteValue::Class(class)) => ModelValue::Class(class.clone()),
            Some(TfliteValue::Constant(c)) => ModelValue::Constant(c.clone()),
            Some(TfliteValue::Unknown) => ModelValue::Unknown,
            None => match graph.tensor(o).filter(|t| t.known()) {
                Some(tensor) => {
                    let constant = tensor.constant();
                    let constant = constant.map_err(|e| format!("output {name}: {e}"))?;
                    ModelValue::Constant(Rc::new(constant))
                }
                None => ModelValue::Unknown,
            },
        };
        outputs.push((name, value));
    }
    elementwise::completed(&mut builder, &mut outputs)?;
    let Builder {
        mut draft, inputs, ..
    } = builder;
    let tail = tail::tail(&mut draft, &outputs, values)?;
    draft.graph.outputs = vec![tail.value].into();
    beside::finished(draft, order, tail, inputs)
}

/// Adds advice to a message about the number of records.
fn hinted(mistake: String) -> String {
    match mistake.contains("number of records") || mistake.contains("must stay the ") {
        true => {
            format!("{mistake}; convert the model with one record (`keras.Input(…, batch_size=1)`)")
        }
        false => mistake,
    }
}

/// Adds notes about the model's quantization to the build's messages.
fn notes(graph: &Subgraph<'_>, place: &ModelPlace<'_>, mistakes: &mut Mistakes) {
    let file = place.file;
    let quantised = |t: &&TfliteTensor<'_>| t.quantised.is_some() && !t.float();
    let whole = |t: &TfliteTensor<'_>| !t.known() && t.steps().is_some();
    if graph.tensors.iter().any(whole) {
        notes_of_integers(graph, place, mistakes);
    } else if notes_of_dynamic_range(graph, place, mistakes) {
        // The note has named all that is rounded, and what is not.
    } else if graph.tensors.iter().any(|t| quantised(&t)) {
        let mut values = graph
            .tensors
            .iter()
            .filter(|t| !t.known())
            .filter(quantised);
        let (what, rounds) = match values.next() {
            Some(value) => (format!("values of {}", value.kind()), "LiteRT rounds them"),
            None => ("weights of integers".into(), "LiteRT also rounds values"),
        };
        mistakes.note(
            file,
            format_args!(
                "{what} are computed as the real numbers that they stand for, in f32; {rounds}, so \
                 scores differ slightly from LiteRT's, and classes may if scores are close"
            ),
        );
    }
    notes_of_inputs(graph, file, mistakes);
}

/// Adds a note about layers of dynamic range. Returns false if there are none.
fn notes_of_dynamic_range(
    graph: &Subgraph<'_>,
    place: &ModelPlace<'_>,
    mistakes: &mut Mistakes,
) -> bool {
    let tensors = |o: &Operator<'_>| -> Vec<_> {
        let inputs = o.inputs.iter();
        inputs.map(|&i| graph.tensor(i)).collect()
    };
    let rounds = |o: &Operator<'_>| dynamic::values(&o.name(), &tensors(o)).is_some();
    let (layers, others): (Vec<_>, Vec<_>) = graph.operators.iter().partition(|o| rounds(o));
    if layers.is_empty() {
        return false;
    }
    let integers = |t: &TfliteTensor<'_>| t.known() && t.quantised.is_some() && !t.float();
    let mut others = others.into_iter().filter(|o| {
        let mut inputs = tensors(o).into_iter().flatten();
        o.name() != "DEQUANTIZE" && inputs.any(integers)
    });
    let real = others.next().map(|o| {
        format!(
            "; the weights of {} are the real numbers that their integers stand for, and nothing \
             is rounded there",
            o.name()
        )
    });
    mistakes.note(
        place.file,
        format_args!(
            "values are rounded to 8-bit integers in front of {} layers, from each record's \
             smallest to its largest value, as LiteRT does; {}=float leaves that out{}",
            layers.len(),
            place.arithmetic_by,
            real.unwrap_or_default()
        ),
    );
    true
}

/// Adds a note about a model with values of 8-bit integers.
fn notes_of_integers(graph: &Subgraph<'_>, place: &ModelPlace<'_>, mistakes: &mut Mistakes) {
    let tensor = |o: &Operator<'_>, i: usize| graph.tensor(*o.inputs.get(i)?);
    let layers = || {
        let layer =
            |o: &&Operator<'_>| matches!(o.code, CONV_2D | DEPTHWISE_CONV_2D | FULLY_CONNECTED);
        graph.operators.iter().filter(layer)
    };
    let long = |o: &&Operator<'_>| {
        integers::long_sums(&o.name(), [0, 1, 2].map(|i| tensor(o, i))) == Some(true)
    };
    let mut more = match layers().filter(long).count() {
        0 => String::new(),
        n => format!("; sums of {n} layers may pass 2^24, where floats lose the last digit"),
    };
    let float = |o: &&Operator<'_>| tensor(o, 0).is_some_and(|t| t.steps().is_none());
    match layers().filter(float).count() {
        0 => {}
        n => {
            more += &format!(
                "; {n} of {} layers read floats in this file, and integers rounded behind them may \
                 differ by one",
                layers().count()
            );
        }
    }
    mistakes.note(
        place.file,
        format_args!(
            "8-bit integers are computed as integers, with the results of LiteRT{more}; {}=float \
             computes the real numbers that they stand for, which may be faster on OpenCL devices",
            place.arithmetic_by
        ),
    );
}

/// Adds a note about inputs that are integers in the file.
fn notes_of_inputs(graph: &Subgraph<'_>, file: &str, mistakes: &mut Mistakes) {
    let of_integers = |i: i32| graph.tensor(i).filter(|t| !t.float());
    let converted: Vec<(String, Conversion)> = graph
        .inputs
        .iter()
        .filter_map(|&i| Some((graph.called(i), of_integers(i)?.transform()?)))
        .collect();
    match &converted[..] {
        [] => {}
        [(_, Conversion { scale, summand })] if graph.inputs.len() == 1 => {
            let tensor = graph.inputs.first().and_then(|&i| graph.tensor(i));
            let bytes = match tensor.and_then(TfliteTensor::byte_input) {
                Some(_) => ", but records of bytes (-f u8, -f i8) are the integers themselves",
                None => "",
            };
            mistakes.note(
                file,
                format_args!(
                    "a record's values are the real numbers that the integers of its input stand \
                 for{bytes}; with {{\"input\": {{\"scale\": {scale}, \"offset\": {summand}}}}} \
                 in the JSON beside it all are those integers"
                ),
            )
        }
        several => {
            let each = several.iter().map(|(name, Conversion { scale, summand })| {
                format!("{name} · {scale} + {summand}")
            });
            mistakes.note(
                file,
                format_args!(
                    "a record's values are the real numbers that the integers of its inputs stand \
                     for: {}",
                    each.collect::<Vec<_>>().join(", ")
                ),
            );
        }
    }
}

/// A builder with the model's inputs, and facts about the model's records.
struct Opened {
    builder: Builder,
    /// The order of a record's values. A single image has its channels last in the file and first
    /// in the draft.
    order: InputOrder,
    /// True if a fixed first size of the inputs was taken as the number of records.
    supposed: bool,
    /// The 8-bit integers of the model's input, if it is a single one of such integers.
    bytes: Option<ByteInput>,
}

/// Makes a builder with the model's inputs, and adds the inputs to `known`. If `single` is true, a
/// fixed first size is not taken as the number of records.
fn inputs(
    graph: &Subgraph<'_>,
    place: &ModelPlace<'_>,
    single: bool,
    known: &mut HashMap<i32, TfliteValue>,
    mistakes: &mut Mistakes,
) -> Option<Opened> {
    let file = place.file;
    let declared = declared_inputs(graph, file, known, mistakes);
    let complete = !declared.is_empty() && declared.len() == graph.inputs.len();
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
    let left = left_inputs(graph, constants, known);
    if let Some(other) = lives.iter().position(|l| l.records.is_some_and(|r| r > 0)) {
        let (name, shown) = (graph.called(left[other]), lives[other].shown());
        let mistake = format!(
            "expected the number of records as the first size, found {shown}: set all sizes by {}",
            place.sizes_by
        );
        mistakes.add(format_args!("{file}: input {name}"), mistake);
        return None;
    }
    let (values, order) = values_of(graph, &left, &lives);
    let alone = lives.len() == 1;
    let single_input = graph.tensor(left[0]).filter(|_| alone);
    let bytes = single_input.and_then(TfliteTensor::byte_input);
    let (mut builder, values) = Builder::new(values, records)
        .map_err(|e| mistakes.add(file, e))
        .ok()?;
    for ((i, live), value) in left.into_iter().zip(lives).zip(values) {
        let live = live.with_value(value);
        let turned = match live.behind_first() {
            Some(&[h, w, c]) if alone => {
                let image = Live::new(value, vec![c, h, w], live.kind);
                ops::of_image(image, live.records)
            }
            _ => ops::straight(live),
        };
        let turned = integers::of_input(&mut builder, &turned, graph.tensor(i));
        let turned = turned.map_err(|e| mistakes.add(file, e)).ok()?;
        known.insert(i, TfliteValue::Live(turned));
    }
    Some(Opened {
        builder,
        order,
        supposed,
        bytes,
    })
}

/// Returns a graph value for each input in `left`, and the order of a record's values. `left` has
/// tensor numbers.
fn values_of(graph: &Subgraph<'_>, left: &[i32], lives: &[Live]) -> (Vec<Value>, InputOrder) {
    match lives {
        [one] => {
            let (shape, order) = match one.behind_first() {
                Some(&[h, w, c]) if c == 1 || h * w == 1 => (Shape { c, h, w }, InputOrder::Chw),
                Some(&[h, w, c]) => (Shape { c, h, w }, InputOrder::Hwc),
                _ => (one.standard(), InputOrder::Chw),
            };
            let name = "input".into();
            (vec![Value { name, shape }], order)
        }
        _ => {
            let value = |(&i, live): (&i32, &Live)| Value {
                name: graph.called(i).into(),
                shape: live.standard(),
            };
            let values = left.iter().zip(lives).map(value);
            (values.collect(), InputOrder::Chw)
        }
    }
}

/// Adds the inputs that the user made constants to `known`. Returns the tensor numbers of all other
/// inputs.
fn left_inputs(
    graph: &Subgraph<'_>,
    constants: Vec<Option<ConstantTensor>>,
    known: &mut HashMap<i32, TfliteValue>,
) -> Vec<i32> {
    let mut left = Vec::new();
    for (&i, constant) in graph.inputs.iter().zip(constants) {
        match constant {
            Some(constant) => {
                known.insert(i, TfliteValue::Constant(Rc::new(constant)));
            }
            None => left.push(i),
        }
    }
    left
}

/// Returns what the model declares about its inputs. Reports mistakes, and leaves out an input that
/// has one.
fn declared_inputs(
    graph: &Subgraph<'_>,
    file: &str,
    known: &mut HashMap<i32, TfliteValue>,
    mistakes: &mut Mistakes,
) -> Vec<DeclaredInput> {
    if graph.inputs.is_empty() {
        mistakes.add(file, "expected an input, found none");
    }
    let mut inputs: Vec<DeclaredInput> = Vec::new();
    for (k, &i) in graph.inputs.iter().enumerate() {
        known.insert(i, TfliteValue::Unknown);
        let (place, name) = (format!("{file}: input {}", graph.name(i)), graph.called(i));
        let twice = graph.inputs[..k]
            .iter()
            .any(|&other| graph.called(other) == name);
        if twice {
            mistakes.add(file, format_args!("two inputs are called {name}"));
        }
        inputs.extend(input(graph, i, &place, mistakes).filter(|_| !twice));
    }
    inputs
}

/// Reads what the model declares about an input: its name, sizes and type.
fn input(
    graph: &Subgraph<'_>,
    i: i32,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<DeclaredInput> {
    let Some(tensor) = graph.tensor(i) else {
        mistakes.add(place, "damaged: the model has no tensor of this number");
        return None;
    };
    if !tensor.readable() || tensor.kind() == "BOOL" {
        mistakes.add(
            place,
            format_args!("expected numbers, found {}", tensor.kind()),
        );
        return None;
    }
    if let Some(refused) = tensor.refused() {
        mistakes.add(place, refused);
        return None;
    }
    let sizes = if tensor.signature.is_empty() {
        &tensor.dims
    } else {
        &tensor.signature
    };
    let differ = |(&stated, &size): (&i32, &i32)| stated >= 0 && stated != size;
    if tensor.dims.len() != sizes.len() || sizes.iter().zip(&tensor.dims).skip(1).any(differ) {
        mistakes.add(
            place,
            format_args!(
                "damaged: its shape is {:?}, its shape signature {sizes:?}",
                tensor.dims
            ),
        );
        return None;
    }
    let size = |&d: &i32| match usize::try_from(d).ok().filter(|&d| d > 0) {
        Some(d) => AxisSize::Known(d),
        None => AxisSize::Open(String::new()),
    };
    Some(DeclaredInput {
        name: graph.called(i),
        also: Some(graph.name(i)),
        axes: Some(sizes.iter().map(size).collect()),
        kind: tensor.computed(),
    })
}

/// Returns the name of an operator if it is supported. Reports other operators, and those with the
/// options table of another operator.
fn check(operator: &Operator<'_>, place: &str, mistakes: &mut Mistakes) -> Option<&'static str> {
    match OPS.iter().find(|(code, ..)| *code == operator.code) {
        Some(&(_, name, kind)) if kind == 0 || operator.kind == 0 || operator.kind == kind => {
            Some(name)
        }
        Some(_) => {
            mistakes.add(place, "damaged: its options are those of another operator");
            None
        }
        None if operator.code == CUSTOM && operator.custom == ops::TRANSPOSE_CONV_BIAS => {
            Some(ops::TRANSPOSE_CONV_BIAS)
        }
        None => {
            let instead = match INSTEAD.iter().find(|(code, ..)| *code == operator.code) {
                Some(&(_, _, instead)) if !instead.is_empty() => instead,
                _ if operator.code == CUSTOM => "convert the model with builtin operators only",
                _ => "docs/TFLITE.md lists what is",
            };
            mistakes.add(place, format_args!("it is not supported: {instead}"));
            None
        }
    }
}

/// Looks up the tensors of an operator's inputs. `None` after a mistake.
fn operands(
    graph: &Subgraph<'_>,
    operator: &Operator<'_>,
    known: &mut HashMap<i32, TfliteValue>,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<Vec<Option<TfliteValue>>> {
    let mut inputs = Vec::new();
    let mut complete = true;
    for &i in &operator.inputs {
        if i == -1 {
            inputs.push(None);
            continue;
        }
        let held = known.get(&i).cloned().or_else(|| {
            let tensor = graph
                .tensor(i)
                .filter(|t| t.known() || t.refused().is_some());
            let Some(tensor) = tensor else {
                mistakes.add(
                    place,
                    format_args!(
                        "its input {} is no input, no constant and no output of an earlier \
                         operator",
                        graph.name(i)
                    ),
                );
                return Some(TfliteValue::Unknown);
            };
            let held = match tensor.constant() {
                Ok(constant) => TfliteValue::Constant(Rc::new(constant)),
                Err(e) => {
                    mistakes.add(format_args!("{place}: input {}", tensor.name), e);
                    TfliteValue::Unknown
                }
            };
            known.insert(i, held.clone());
            Some(held)
        });
        match held {
            Some(TfliteValue::Unknown) | None => complete = false,
            held => inputs.push(held),
        }
    }
    complete.then_some(inputs)
}

#[cfg(test)]
mod tests;
