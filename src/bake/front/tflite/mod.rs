//! TensorFlow Lite models: the operators of one subgraph, in order. Every tensor is a constant, or
//! a value of the graph whose first axis is that of the records. Sizes are inferred operator by
//! operator.
//!
//! Images are pixel by pixel in the file, channel by channel in the graph: each value knows which
//! of the tensor's axes its own are, and is turned only where an operation asks for another order.

mod flat;
mod ops;
mod tensor;

use super::Source;
use super::beside::{self, Lowered, Place};
use super::builder::Builder;
use super::constant::{Constant, Element, elements};
use super::tail;
use super::value::{self, Class, Live, standard};
use crate::bake::Mistakes;
use crate::bake::matrix::Files;
use crate::bake::model::Read;
use crate::ir::graph::{Shape, Value};
use crate::ir::network::InputOrder;
use flat::Table;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use tensor::Tensor;

/// Operators of values that are computed, by their codes in the schema: name, number of the table
/// of its options (0: they do not matter).
const OPS: [(i32, &str, u8); 48] = [
    (0, "ADD", 11),
    (1, "AVERAGE_POOL_2D", 5),
    (2, "CONCATENATION", 10),
    (3, "CONV_2D", 1),
    (4, "DEPTHWISE_CONV_2D", 2),
    (6, "DEQUANTIZE", 0),
    (9, "FULLY_CONNECTED", 8),
    (14, "LOGISTIC", 0),
    (17, "MAX_POOL_2D", 5),
    (18, "MUL", 21),
    (19, "RELU", 0),
    (20, "RELU_N1_TO_1", 0),
    (21, "RELU6", 0),
    (22, "RESHAPE", 17),
    (25, "SOFTMAX", 9),
    (28, "TANH", 0),
    (34, "PAD", 0),
    (36, "GATHER", 23),
    (39, "TRANSPOSE", 0),
    (40, "MEAN", 27),
    (41, "SUB", 28),
    (42, "DIV", 29),
    (43, "SQUEEZE", 30),
    (45, "STRIDED_SLICE", 32),
    (49, "SPLIT", 35),
    (50, "LOG_SOFTMAX", 0),
    (53, "CAST", 37),
    (54, "PRELU", 0),
    (55, "MAXIMUM", 0),
    (56, "ARG_MAX", 0),
    (57, "MINIMUM", 0),
    (59, "NEG", 0),
    (60, "PADV2", 0),
    (65, "SLICE", 48),
    (70, "EXPAND_DIMS", 0),
    (74, "SUM", 27),
    (77, "SHAPE", 0),
    (81, "REDUCE_PROD", 27),
    (82, "REDUCE_MAX", 27),
    (83, "PACK", 59),
    (88, "UNPACK", 64),
    (98, "LEAKY_RELU", 75),
    (102, "SPLIT_V", 79),
    (111, "ELU", 0),
    (114, "QUANTIZE", 0),
    (117, "HARD_SWISH", 0),
    (150, "GELU", 116),
    (152, "RELU_0_TO_1", 0),
];

/// Those of them that are computed of constants only.
const OF_CONSTANTS: [&str; 3] = ["GATHER", "PACK", "REDUCE_PROD"];

/// Operators that are not supported: code, name, what to use instead.
const INSTEAD: [(i32, &str, &str); 67] = [
    (5, "DEPTH_TO_SPACE", END),
    (7, "EMBEDDING_LOOKUP", TEXTS),
    (8, "FLOOR", ""),
    (11, "L2_NORMALIZATION", "use batch normalisation instead"),
    (
        12,
        "L2_POOL_2D",
        "use AVERAGE_POOL_2D or MAX_POOL_2D instead",
    ),
    (
        13,
        "LOCAL_RESPONSE_NORMALIZATION",
        "use batch normalisation instead",
    ),
    (16, "LSTM", TIME),
    (23, "RESIZE_BILINEAR", RESIZE),
    (24, "RNN", TIME),
    (
        26,
        "SPACE_TO_DEPTH",
        "use a convolution with a stride instead",
    ),
    (27, "SVDF", TIME),
    (35, "UNIDIRECTIONAL_SEQUENCE_RNN", TIME),
    (37, "BATCH_TO_SPACE_ND", DILATED),
    (38, "SPACE_TO_BATCH_ND", DILATED),
    (44, "UNIDIRECTIONAL_SEQUENCE_LSTM", TIME),
    (46, "BIDIRECTIONAL_SEQUENCE_RNN", TIME),
    (47, "EXP", ""),
    (
        48,
        "TOPK_V2",
        "let the network end before it: `-o top=K` gives the K most probable classes",
    ),
    (51, "DELEGATE", "convert the model for no particular device"),
    (52, "BIDIRECTIONAL_SEQUENCE_LSTM", TIME),
    (58, "LESS", ""),
    (61, "GREATER", ""),
    (62, "GREATER_EQUAL", ""),
    (63, "LESS_EQUAL", ""),
    (64, "SELECT", ""),
    (66, "SIN", ""),
    (67, "TRANSPOSE_CONV", END),
    (69, "TILE", ""),
    (71, "EQUAL", ""),
    (72, "NOT_EQUAL", ""),
    (73, "LOG", ""),
    (75, "SQRT", ""),
    (76, "RSQRT", NORM),
    (78, "POW", ""),
    (79, "ARG_MIN", "use ARG_MAX of the negative"),
    (
        80,
        "FAKE_QUANT",
        "convert the model to integers or to floats",
    ),
    (85, "ONE_HOT", ""),
    (89, "REDUCE_MIN", "use REDUCE_MAX of the negative"),
    (90, "FLOOR_DIV", ""),
    (92, "SQUARE", "use MUL instead"),
    (94, "FILL", ""),
    (97, "RESIZE_NEAREST_NEIGHBOR", RESIZE),
    (99, "SQUARED_DIFFERENCE", NORM),
    (100, "MIRROR_PAD", "use PAD instead"),
    (101, "ABS", ""),
    (104, "CEIL", ""),
    (106, "ADD_N", "use ADD instead"),
    (107, "GATHER_ND", ""),
    (108, "COS", ""),
    (109, "WHERE", ""),
    (116, "ROUND", ""),
    (118, "IF", "convert the model without a choice"),
    (119, "WHILE", "convert the model with the loop unrolled"),
    (120, "NON_MAX_SUPPRESSION_V4", END),
    (121, "NON_MAX_SUPPRESSION_V5", END),
    (123, "SELECT_V2", ""),
    (124, "DENSIFY", "convert the model without sparsity"),
    (
        126,
        "BATCH_MATMUL",
        "use FULLY_CONNECTED instead; products of two computed values are not supported",
    ),
    (128, "CUMSUM", ""),
    (130, "BROADCAST_TO", ""),
    (
        131,
        "RFFT2D",
        "compute the spectrum before the records are read",
    ),
    (132, "CONV_3D", "use CONV_2D instead"),
    (
        133,
        "IMAG",
        "compute the spectrum before the records are read",
    ),
    (
        135,
        "COMPLEX_ABS",
        "compute the spectrum before the records are read",
    ),
    (142, "VAR_HANDLE", TIME),
    (143, "READ_VARIABLE", TIME),
    (144, "ASSIGN_VARIABLE", TIME),
];

const NORM: &str = "use batch normalisation instead of normalising each record";
const END: &str = "let the network end before it";
const TEXTS: &str = "texts and indices are no records";
const TIME: &str = "use convolutions over a window of time instead";
const RESIZE: &str = "resize images before they are read, or let the network end before it";
const DILATED: &str = "convert the model with one record (`keras.Input(…, batch_size=1)`), then \
    convolutions keep their \
    dilation";

/// The code of operators that a program brings along.
const CUSTOM: i32 = 32;

/// A value that is computed, and its tensor.
#[derive(Clone, Debug, PartialEq)]
struct Turned {
    /// The value. Its sizes are those of the tensor behind the records, in another order.
    live: Live,
    /// Which of the tensor's axes behind the records each axis of the value is.
    order: Vec<usize>,
}

/// What a tensor of the model is.
#[derive(Clone, Debug, PartialEq)]
enum Held {
    /// Known at build time.
    Constant(Rc<Constant>),
    /// Computed of each record.
    Live(Turned),
    /// The class of each record.
    Class(Class),
    /// What cannot be known, for reasons that are reported.
    Unknown,
}

/// An operator.
struct Operator<'b> {
    /// Its code in the schema.
    code: i32,
    /// Its name where the schema has none.
    custom: String,
    /// Its tensors; -1 for one that is left out.
    inputs: Vec<i32>,
    outputs: Vec<i32>,
    /// Its options, and the number of their table.
    options: Table<'b>,
    kind: u8,
}

/// A model's one subgraph.
struct Graph<'b> {
    tensors: Vec<Tensor<'b>>,
    inputs: Vec<i32>,
    outputs: Vec<i32>,
    operators: Vec<Operator<'b>>,
    /// What the model's signature calls inputs and outputs.
    signature: HashMap<i32, String>,
}

impl<'b> Graph<'b> {
    /// Reads a model.
    ///
    /// # Errors
    /// What is wrong with its bytes, or that it is more than one subgraph.
    fn read(bytes: &'b [u8], left: &'b Cell<usize>) -> Result<Graph<'b>, String> {
        let model = Table::root(bytes, b"TFL3", left)?;
        // Model: version 0, operator_codes 1, subgraphs 2, buffers 4.
        let version = model.unsigned(0)?;
        if version != 3 {
            return Err(format!("expected version 3 of the schema, found {version}"));
        }
        let (codes, subgraphs, buffers) = (model.tables(1)?, model.tables(2)?, model.tables(4)?);
        let [subgraph] = subgraphs[..] else {
            return Err(format!(
                "expected one subgraph, found {}: convert a model of one function (one \
                 signature), without choices and \
                 loops",
                subgraphs.len()
            ));
        };
        // SubGraph: tensors 0, inputs 1, outputs 2, operators 3.
        let tensors = subgraph.tables(0)?;
        let tensors = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| Tensor::read(i, t, &buffers, bytes));
        let operators = subgraph
            .tables(3)?
            .iter()
            .map(|o| Operator::read(o, &codes))
            .collect::<Result<_, _>>()?;
        Ok(Graph {
            tensors: tensors.collect::<Result<_, _>>()?,
            inputs: subgraph.ints(1)?,
            outputs: subgraph.ints(2)?,
            operators,
            signature: signature(&model)?,
        })
    }

    /// A tensor by its number.
    fn tensor(&self, i: i32) -> Option<&Tensor<'b>> {
        usize::try_from(i).ok().and_then(|i| self.tensors.get(i))
    }

    /// The name of a tensor by its number.
    fn name(&self, i: i32) -> String {
        self.tensor(i)
            .map_or_else(|| format!("tensor {i}"), |t| t.name.clone())
    }

    /// What an input or an output is called: by the signature, or as its tensor.
    fn called(&self, i: i32) -> String {
        self.signature
            .get(&i)
            .cloned()
            .unwrap_or_else(|| self.name(i))
    }

    /// The operators that these outputs need.
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

/// The names of a signature, where there is one.
fn signature(model: &Table<'_>) -> Result<HashMap<i32, String>, String> {
    // Model: signature_defs 7. SignatureDef: inputs 0, outputs 1. TensorMap: name 0, tensor_index
    // 1.
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
        // Operator: opcode_index 0, inputs 1, outputs 2, builtin_options_type 3, builtin_options 4.
        // OperatorCode: deprecated_builtin_code 0 (up to 127), custom_code 1, builtin_code 3.
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
            kind: table.byte(3)?,
        })
    }

    /// Its name.
    fn name(&self) -> String {
        let known = OPS
            .iter()
            .map(|o| (o.0, o.1))
            .chain(INSTEAD.iter().map(|o| (o.0, o.1)));
        match known.into_iter().find(|o| o.0 == self.code) {
            Some((_, name)) => name.into(),
            None if self.code == CUSTOM => format!("custom {}", self.custom),
            None => format!("operator code {}", self.code),
        }
    }
}

/// An operator with what its inputs are, as operations see it.
struct Node<'n> {
    /// Its operation.
    op: &'static str,
    /// Its name in the graph: that of its output.
    name: String,
    /// Its inputs; `None` where one is left out.
    inputs: Vec<Option<Held>>,
    /// Its options.
    options: Table<'n>,
    /// Its output.
    output: &'n Tensor<'n>,
}

/// Reads a TensorFlow Lite model.
pub(super) fn read(
    source: &Source<'_>,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<Read> {
    let left = flat::most(source.bytes);
    beside::read(
        source,
        "LOGISTIC",
        files,
        mistakes,
        |place, _, mistakes| match Graph::read(source.bytes, &left) {
            Ok(graph) => lower(&graph, place, mistakes),
            Err(e) => {
                mistakes.add(place.file, e);
                None
            }
        },
    )
}

/// What becomes of a model. All mistakes are reported.
fn lower(graph: &Graph<'_>, place: &Place<'_>, mistakes: &mut Mistakes) -> Option<Lowered> {
    let (before, file) = (mistakes.lines.len(), place.file);
    let mut known: HashMap<i32, Held> = HashMap::new();
    let wanted = match place.wanted(graph.outputs.iter().map(|&o| (o, graph.called(o)))) {
        Ok(wanted) => wanted,
        Err(e) => {
            mistakes.add(file, e);
            return None;
        }
    };
    let inputs = inputs(graph, file, &mut known, mistakes);
    let order = inputs.as_ref().map_or(InputOrder::Chw, |i| i.1);
    let mut builder = inputs.map(|i| i.0);
    let needed = graph.needed(wanted.iter().map(|w| w.0));
    for (i, operator) in graph
        .operators
        .iter()
        .enumerate()
        .filter(|(i, _)| needed.contains(i))
    {
        let name = operator
            .outputs
            .first()
            .map_or_else(|| format!("operator {i}"), |&o| graph.name(o));
        let place = format!("{file}: operator {i} ({}), output {name}", operator.name());
        let outputs = check(operator, &place, mistakes)
            .and_then(|op| Some((op, operands(graph, operator, &mut known, &place, mistakes)?)))
            .and_then(|(op, inputs)| {
                let Some(output) = operator.outputs.first().and_then(|&o| graph.tensor(o)) else {
                    mistakes.add(&place, "damaged: it has no output");
                    return None;
                };
                let node = Node {
                    op,
                    name,
                    inputs,
                    options: operator.options,
                    output,
                };
                let builder = builder.as_mut()?;
                ops::compute(builder, &node)
                    .map_err(|e| mistakes.add(&place, hinted(e)))
                    .ok()
            });
        let mut outputs = outputs.unwrap_or_default().into_iter();
        for &o in &operator.outputs {
            // The sizes that the model states stand for what a mistake has left out, so that
            // mistakes behind it are found too.
            let wrong = mistakes.lines.len() > before;
            let assumed = || {
                let tensor = graph.tensor(o)?;
                let sizes = tensor
                    .dims
                    .get(1..)?
                    .iter()
                    .map(|&d| usize::try_from(d).ok());
                let live = builder
                    .as_mut()
                    .filter(|_| wrong)?
                    .assumed(&tensor.name, sizes.collect::<Option<_>>()?)?;
                Some(Held::Live(Turned {
                    order: (0..live.dims.len()).collect(),
                    live,
                }))
            };
            let value = outputs.next().or_else(assumed).unwrap_or(Held::Unknown);
            known.insert(o, value);
        }
    }
    if mistakes.lines.len() > before {
        return None;
    }
    let mut builder = builder?;
    let mut outputs: Vec<(String, value::Value)> = Vec::new();
    for (o, name) in wanted {
        let value = match known.get(&o) {
            Some(Held::Live(t)) => match ops::plain(&mut builder, &name, t) {
                Ok(live) => value::Value::Live(live),
                Err(e) => {
                    mistakes.add(format_args!("{file}: output {name}"), e);
                    return None;
                }
            },
            Some(Held::Class(class)) => value::Value::Class(class.clone()),
            Some(Held::Constant(c)) => value::Value::Constant(c.clone()),
            Some(Held::Unknown) => value::Value::Unknown,
            None if graph.tensor(o).is_some_and(Tensor::known) => {
                value::Value::Constant(Rc::new(Constant::ints(vec![], vec![0])))
            }
            None => value::Value::Unknown,
        };
        outputs.push((name, value));
    }
    let Builder {
        mut draft, inputs, ..
    } = builder;
    let made = tail::tail(&mut draft, &outputs, place.values).and_then(|tail| {
        draft.graph.outputs = vec![tail.value].into();
        beside::finished(draft, order, tail, inputs)
    });
    match made {
        Ok(made) => {
            notes(graph, file, mistakes);
            Some(made)
        }
        Err(e) => {
            mistakes.add(file, e);
            None
        }
    }
}

/// With what helps where a model computes with the number of its records.
fn hinted(mistake: String) -> String {
    match mistake.contains("number of records") || mistake.contains("must stay that of the records")
    {
        true => {
            format!("{mistake}; convert the model with one record (`keras.Input(…, batch_size=1)`)")
        }
        false => mistake,
    }
}

/// What whoever builds should know of quantisation.
fn notes(graph: &Graph<'_>, file: &str, mistakes: &mut Mistakes) {
    if graph
        .tensors
        .iter()
        .any(|t| t.quantised.is_some() && !t.float())
    {
        mistakes.note(
            file,
            "quantised: computed in f32 with the weights that its integers stand for; classes may \
             differ from the integer \
             interpreter's in close cases",
        );
    }
    let transform = |i: i32| {
        graph
            .tensor(i)
            .filter(|t| !t.float())
            .and_then(Tensor::transform)
    };
    let quantised: Vec<_> = graph
        .inputs
        .iter()
        .filter_map(|&i| Some((graph.called(i), transform(i)?)))
        .collect();
    if let (true, [_, ..]) = (graph.inputs.len() > 1, &quantised[..]) {
        let each = quantised
            .iter()
            .map(|(name, (scale, summand))| format!("{name} · {scale} + {summand}"));
        mistakes.note(
            file,
            format_args!(
                "a record's values are the real numbers that the integers of its inputs stand \
                 for: {}",
                each.collect::<Vec<_>>().join(", ")
            ),
        );
    } else if let [(_, (scale, summand))] = quantised[..] {
        mistakes.note(
            file,
            format_args!(
                "a record's values are the real numbers that the integers of its input stand for; \
                 with \
                 {{\"input\": {{\"scale\": {scale}, \"offset\": {summand}}}}} in the JSON beside \
                 it they are those integers"
            ),
        );
    }
}

/// The builder with the model's inputs, whose first axis is that of the records, and the order of a
/// record's values. The channels of the one input, if it is an image, come last in the file and
/// first in the graph.
fn inputs(
    graph: &Graph<'_>,
    file: &str,
    known: &mut HashMap<i32, Held>,
    mistakes: &mut Mistakes,
) -> Option<(Builder, InputOrder)> {
    if graph.inputs.is_empty() {
        mistakes.add(file, "expected an input, found none");
    }
    let mut inputs: Vec<Input> = Vec::new();
    for (k, &i) in graph.inputs.iter().enumerate() {
        known.insert(i, Held::Unknown);
        let (place, name) = (format!("{file}: input {}", graph.name(i)), graph.called(i));
        let twice = graph.inputs[..k]
            .iter()
            .any(|&other| graph.called(other) == name);
        if twice {
            mistakes.add(file, format_args!("two inputs are called {name}"));
        }
        inputs.extend(input(graph, i, &place, mistakes).filter(|_| !twice));
    }
    if inputs.is_empty() || inputs.len() < graph.inputs.len() {
        return None;
    }
    let names = || graph.inputs.iter().map(|&i| graph.called(i));
    let records = inputs[0].records;
    if inputs.iter().any(|i| i.records != records) {
        let shown = |i: &Input| {
            i.records
                .map_or("any number".to_string(), |n| n.to_string())
        };
        let sizes = names()
            .zip(&inputs)
            .map(|(name, i)| format!("{name} has {}", shown(i)));
        mistakes.add(
            file,
            format_args!(
                "expected inputs of as many records ({}): a record has a part of every input; \
                 convert the model with one \
                 first size of all",
                sizes.collect::<Vec<_>>().join(", ")
            ),
        );
        return None;
    }
    let (values, order) = match &inputs[..] {
        [one] => {
            let (shape, order) = match one.dims[..] {
                [h, w, c] if c == 1 || h * w == 1 => (Shape { c, h, w }, InputOrder::Chw),
                [h, w, c] => (Shape { c, h, w }, InputOrder::Hwc),
                _ => (standard(&one.dims), InputOrder::Chw),
            };
            (
                vec![Value {
                    name: "input".into(),
                    shape,
                }],
                order,
            )
        }
        _ => {
            let value = |(name, i): (String, &Input)| Value {
                name: name.into(),
                shape: standard(&i.dims),
            };
            (names().zip(&inputs).map(value).collect(), InputOrder::Chw)
        }
    };
    let alone = inputs.len() == 1;
    let (builder, values) = Builder::new(values, records)
        .map_err(|e| mistakes.add(file, e))
        .ok()?;
    for ((&i, Input { dims, kind, .. }), value) in graph.inputs.iter().zip(inputs).zip(values) {
        let (dims, order) = match dims[..] {
            [h, w, c] if alone => (vec![c, h, w], vec![2, 0, 1]),
            _ => (dims.clone(), (0..dims.len()).collect()),
        };
        known.insert(
            i,
            Held::Live(Turned {
                live: Live { value, dims, kind },
                order,
            }),
        );
    }
    Some((builder, order))
}

/// An input of the model.
struct Input {
    /// The first size, where it is stated.
    records: Option<usize>,
    /// Sizes behind it.
    dims: Vec<usize>,
    /// The type that its values are computed in.
    kind: Element,
}

/// What the model says of an input.
fn input(graph: &Graph<'_>, i: i32, place: &str, mistakes: &mut Mistakes) -> Option<Input> {
    let Some(tensor) = graph.tensor(i) else {
        mistakes.add(place, "damaged: there is no such tensor");
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
    let Some((&first, rest)) = sizes.split_first() else {
        mistakes.add(
            place,
            "expected sizes, the first that of the records, found none",
        );
        return None;
    };
    let dims: Option<Vec<usize>> = rest
        .iter()
        .map(|&d| usize::try_from(d).ok().filter(|&d| d > 0))
        .collect();
    let Some(dims) = dims.filter(|d| elements(d).is_some()) else {
        mistakes.add(
            place,
            format_args!(
                "expected sizes that are known at build time behind that of the records, found \
                 {sizes:?}: convert the \
                 model with a fixed size of its input"
            ),
        );
        return None;
    };
    let differ = |(&stated, &size): (&i32, &i32)| stated >= 0 && stated != size;
    if tensor.dims.len() != sizes.len() || sizes.iter().zip(&tensor.dims).skip(1).any(differ) {
        mistakes.add(
            place,
            format_args!(
                "damaged: its sizes are {:?} here and {sizes:?} there",
                tensor.dims
            ),
        );
        return None;
    }
    let records = usize::try_from(first).ok().filter(|&n| n > 0);
    Some(Input {
        records,
        dims,
        kind: tensor.computed(),
    })
}

/// The name of an operator that is known; another is reported.
fn check(operator: &Operator<'_>, place: &str, mistakes: &mut Mistakes) -> Option<&'static str> {
    match OPS.iter().find(|o| o.0 == operator.code) {
        Some(&(_, name, kind)) if kind == 0 || operator.kind == 0 || operator.kind == kind => {
            Some(name)
        }
        Some(_) => {
            mistakes.add(place, "damaged: its options are those of another operator");
            None
        }
        None => {
            let instead = match INSTEAD.iter().find(|o| o.0 == operator.code) {
                Some(&(_, _, instead)) if !instead.is_empty() => instead,
                _ if operator.code == CUSTOM => "convert the model with builtin operators only",
                _ => "docs/TFLITE.md lists what is",
            };
            mistakes.add(place, format_args!("it is not supported: {instead}"));
            None
        }
    }
}

/// What the inputs of an operator are; `None` where one is not known for reasons that are reported.
fn operands(
    graph: &Graph<'_>,
    operator: &Operator<'_>,
    known: &mut HashMap<i32, Held>,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<Vec<Option<Held>>> {
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
                    format_args!("it reads {}, which nothing before it gives", graph.name(i)),
                );
                return Some(Held::Unknown);
            };
            let held = match tensor.constant() {
                Ok(constant) => Held::Constant(Rc::new(constant)),
                Err(e) => {
                    mistakes.add(format_args!("{place}: input {}", tensor.name), e);
                    Held::Unknown
                }
            };
            known.insert(i, held.clone());
            Some(held)
        });
        match held {
            Some(Held::Unknown) | None => complete = false,
            held => inputs.push(held),
        }
    }
    complete.then_some(inputs)
}

#[cfg(test)]
mod tests;
