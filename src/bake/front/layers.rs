//! The layers of a network JSON, as a graph.
//!
//! First every layer is read, whatever stands around it; then shapes go from layer to layer. What
//! is not known, because it could not be read, causes no further mistakes.

use crate::bake::Mistakes;
use crate::bake::draft::{self, Draft};
use crate::bake::json::{Json, Object, found};
use crate::bake::matrix::{self, Files};
use crate::ir::graph::{self, Role, Shape};
use crate::ir::network::FinalActivation;
use crate::ir::op::{Activation, Arithmetic, Axis, Border, Float, Op, Pool, SoftmaxOf, Window};
use std::path::Path;

/// A layer by its name in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Affine,
    Convolution,
    Depthwise,
    Pool(Pool),
    GlobalPool(Pool),
    BatchNorm,
    Scale,
    PRelu,
    Activation(Activation),
    LeakyRelu,
    Clip,
    Elu,
    Gelu,
    HardSigmoid,
    Combine(Arithmetic),
    Concat,
    Flatten,
    Reshape,
    Transpose,
    Pad,
    Softmax,
}

const RELU6: Activation = Activation::Clip {
    low: Float::new(0.0),
    high: Float::new(6.0),
};

/// α and γ as in Klambauer et al., Self-Normalizing Neural Networks, 2017.
const SELU: Activation = Activation::Elu {
    alpha: Float::new(1.673_263_2),
    gamma: Float::new(1.050_701),
};

const LAYERS: [(&str, Form); 31] = [
    ("AffineLayer", Form::Affine),
    ("SigmoidLayer", Form::Activation(Activation::Sigmoid)),
    ("ReLULayer", Form::Activation(Activation::Relu)),
    ("TanhLayer", Form::Activation(Activation::Tanh)),
    ("LeakyReLULayer", Form::LeakyRelu),
    ("PReLULayer", Form::PRelu),
    ("ReLU6Layer", Form::Activation(RELU6)),
    ("ClipLayer", Form::Clip),
    ("ELULayer", Form::Elu),
    ("SELULayer", Form::Activation(SELU)),
    ("GELULayer", Form::Gelu),
    ("HardSigmoidLayer", Form::HardSigmoid),
    ("HardSwishLayer", Form::Activation(Activation::HardSwish)),
    ("SoftmaxLayer", Form::Softmax),
    ("ConvLayer", Form::Convolution),
    ("DepthwiseConvLayer", Form::Depthwise),
    ("MaxPoolLayer", Form::Pool(Pool::Max)),
    ("AveragePoolLayer", Form::Pool(Pool::Mean)),
    ("GlobalMaxPoolLayer", Form::GlobalPool(Pool::Max)),
    ("GlobalAveragePoolLayer", Form::GlobalPool(Pool::Mean)),
    ("BatchNormLayer", Form::BatchNorm),
    ("ScaleLayer", Form::Scale),
    ("AddLayer", Form::Combine(Arithmetic::Add)),
    ("SubtractLayer", Form::Combine(Arithmetic::Subtract)),
    ("MultiplyLayer", Form::Combine(Arithmetic::Multiply)),
    ("DivideLayer", Form::Combine(Arithmetic::Divide)),
    ("ConcatLayer", Form::Concat),
    ("FlattenLayer", Form::Flatten),
    ("ReshapeLayer", Form::Reshape),
    ("TransposeLayer", Form::Transpose),
    ("PadLayer", Form::Pad),
];

const AXES: [(&str, Axis); 3] = [
    ("channels", Axis::C),
    ("rows", Axis::Y),
    ("columns", Axis::X),
];

/// The name of the network's input among the layers' inputs.
const INPUT: &str = "input";

/// Most rows and columns of an image, and the largest parameter of a window.
const MOST_SIDE: usize = 1 << 16;

impl Form {
    /// The keys of its own, beside `layer`, `name` and `input` or `inputs`.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Form::Affine => &["weights", "biases"],
            Form::Convolution => &[
                "weights", "biases", "kernel", "stride", "pad", "dilation", "groups",
            ],
            Form::Depthwise => &["weights", "biases", "kernel", "stride", "pad", "dilation"],
            Form::Pool(Pool::Max) => &["kernel", "stride", "pad", "dilation", "ceil"],
            Form::Pool(_) => &[
                "kernel",
                "stride",
                "pad",
                "dilation",
                "ceil",
                "countIncludePad",
            ],
            Form::BatchNorm => &["mean", "variance", "scale", "offset", "epsilon"],
            Form::Scale => &["scale", "offset"],
            Form::PRelu => &["slopes"],
            Form::LeakyRelu => &["slope"],
            Form::Clip => &["low", "high"],
            Form::Elu => &["alpha"],
            Form::Gelu => &["approximate"],
            Form::HardSigmoid => &["alpha", "beta"],
            Form::Concat => &["axis"],
            Form::Reshape => &["shape"],
            Form::Transpose => &["axes"],
            Form::Pad => &["pad", "value"],
            Form::GlobalPool(_)
            | Form::Activation(_)
            | Form::Combine(_)
            | Form::Flatten
            | Form::Softmax => &[],
        }
    }

    /// How many inputs it takes at least and at most.
    fn inputs(self) -> (usize, usize) {
        match self {
            Form::Combine(_) => (2, 2),
            Form::Concat => (2, usize::MAX),
            _ => (1, 1),
        }
    }
}

/// What a layer computes, as far as it is known without the shapes around it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// One node.
    Op(Op),
    /// A convolution; groups of `None` are the channels.
    Convolution(Window, Option<usize>),
    /// A pooling whose window is the image.
    GlobalPool(Pool),
    /// A vector of all elements.
    Flatten,
    /// The end of a classifier, which is no node.
    Softmax,
}

/// Numbers of a layer.
struct Array {
    role: Role,
    /// `None`: not known, which is reported.
    size: Option<(usize, usize)>,
    data: Vec<f64>,
}

impl Array {
    /// One column of numbers.
    fn column(role: Role, data: Vec<f64>) -> Array {
        Array {
            role,
            size: Some((data.len(), 1)),
            data,
        }
    }
}

/// A layer of the file.
struct Layer {
    /// How messages call it: `layers[2]`, or `layers[2] (name)`.
    shown: String,
    /// How its node is called, and other layers call it: its name, or `layers[2]`.
    name: String,
    /// `None`: it cannot be read, which is reported.
    kind: Option<Kind>,
    /// Values that it reads: 0 is the input, i + 1 what layer i gives. `None`: not known, which is
    /// reported.
    inputs: Option<Vec<usize>>,
    arrays: Vec<Array>,
}

/// The layers of a file.
pub(super) struct Layers {
    layers: Vec<Layer>,
    /// What each computes; `None`: nothing (a vector flattened), or it is not known.
    ops: Vec<Option<Op>>,
    /// The values that go out, one behind the other.
    ends: Vec<usize>,
    /// The inputs and the outputs by their names, where there are several.
    pub(super) several: (Vec<graph::Value>, Vec<graph::Value>),
    /// The shape of a record, if it is known.
    pub(super) input: Option<Shape>,
    /// The shape of what goes out, if it is known.
    pub(super) output: Option<Shape>,
    /// The last layer, where it belongs to the meaning of the output: classes are the arg-max of
    /// the values before it, because a sigmoid in f32 saturates. (ReLU does not saturate and
    /// stays.)
    pub(super) last: Option<FinalActivation>,
}

impl Layers {
    /// Reads the layers of network `o`; records have the shape `image` where the file says so.
    pub(super) fn read(
        o: &Object<'_>,
        image: Option<Shape>,
        folder: &Path,
        files: &mut Files<'_>,
        mistakes: &mut Mistakes,
    ) -> Layers {
        let before = mistakes.lines.len();
        o.require("layers", mistakes);
        let list = o.list("layers", mistakes).map_or(&[][..], |l| l);
        if let Some(size) = o.count("size", mistakes) {
            if size != list.len() {
                let n = list.len();
                mistakes.add(
                    o.at("size"),
                    format_args!("expected {n}, the number of layers, found {size}"),
                );
            }
        } else {
            o.require("size", mistakes);
        }
        let inputs = named_inputs(o, mistakes);
        let mut layers: Vec<Layer> = parts(&inputs);
        let several = o.get("outputs").is_some();
        let own = layers.len();
        for (i, value) in list.iter().enumerate() {
            let last = several || i + 1 == list.len();
            let mut layer = layer(
                value,
                o.place(),
                (&layers, own),
                last,
                (folder, files),
                mistakes,
            );
            // Each of several outputs has a final function of its own.
            if layer.kind == Some(Kind::Softmax) && several {
                layer.kind = Some(Kind::Op(Op::Softmax(SoftmaxOf::Linear)));
            }
            layers.push(layer);
        }
        let outputs = named_outputs(o, &layers[own..], mistakes);
        let weights = |l: &Layer| {
            matches!(
                l.kind,
                None | Some(Kind::Op(Op::Affine) | Kind::Convolution(..))
            )
        };
        if !layers.iter().any(weights) && mistakes.lines.len() == before {
            let message = "expected at least one AffineLayer or ConvLayer, found none";
            mistakes.add(format_args!("{}: layers", o.place()), message);
        }
        let total = inputs.iter().map(|i| i.shape.len()).sum();
        let input = match o.get("inputs") {
            Some(_) => Some(Shape::vector(total)).filter(|_| total > 0),
            None => image.or_else(|| width(&layers).map(Shape::vector)),
        };
        let said = o
            .get("input")
            .is_some_and(|i| !i.is_object() || i.get("shape").is_some());
        if mistakes.lines.len() == before && !said && inputs.is_empty() {
            report_missing_shape(o.place(), &layers, input, mistakes);
        }
        let (ops, shapes) = follow(o.place(), &layers, input, mistakes);
        let (last, end) = match layers.last().map(|l| (l.kind, l.inputs.as_deref())) {
            _ if several => (None, layers.len()),
            Some((Some(Kind::Softmax), Some(&[end]))) => (Some(FinalActivation::Softmax), end),
            Some((Some(Kind::Op(Op::Activation(Activation::Sigmoid))), Some(&[end]))) => {
                (Some(FinalActivation::Sigmoid), end)
            }
            Some((Some(Kind::Op(Op::Activation(Activation::Tanh))), Some(&[end]))) => {
                (Some(FinalActivation::Tanh), end)
            }
            _ => (None, layers.len()),
        };
        let ends = if several {
            outputs.iter().map(|&i| own + i + 1).collect()
        } else {
            vec![end]
        };
        if mistakes.lines.len() == before {
            report_unread(o.place(), &layers, (&ends, several), mistakes);
        }
        let shapes: Option<Vec<Shape>> = ends
            .iter()
            .map(|&end| shapes.get(end).copied().flatten())
            .collect();
        let output = match shapes.as_deref() {
            Some(&[one]) if !several => Some(one),
            shapes => shapes.map(|all| Shape::vector(all.iter().map(|s| s.len()).sum())),
        };
        let value = |(&end, shape): (&usize, Shape)| graph::Value {
            name: layers[end - 1].name.clone().into(),
            shape,
        };
        let outputs = match several {
            true => ends
                .iter()
                .zip(shapes.unwrap_or_default())
                .map(value)
                .collect(),
            false => Vec::new(),
        };
        Layers {
            ops,
            ends,
            several: (inputs, outputs),
            input,
            output,
            last,
            layers,
        }
    }

    /// A graph of them, a node for each that computes something.
    ///
    /// # Errors
    /// Shapes that do not meet; they are reported before.
    pub(super) fn draft(self, input: Shape) -> Result<Draft, String> {
        let mut draft = Draft::new(input);
        let mut values = vec![0];
        // What only gives the output its meaning is no node.
        let nodes = self.layers.len() - usize::from(self.last.is_some());
        for (layer, op) in self.layers.into_iter().zip(self.ops).take(nodes) {
            let inputs: Vec<usize> = layer.inputs.iter().flatten().map(|&v| values[v]).collect();
            let Some(op) = op else {
                values.extend(inputs.first());
                continue;
            };
            let array = |a: Array| {
                a.size.map(|size| draft::Array {
                    role: a.role,
                    size,
                    numbers: a.data,
                    map: None,
                })
            };
            let arrays = layer.arrays.into_iter().filter_map(array).collect();
            values.push(draft.push(layer.name, op, &inputs, arrays)?);
        }
        let mut parts = Vec::new();
        for &end in &self.ends {
            let (value, shape) = (values[end], Shape::vector(draft.shape(values[end]).len()));
            parts.push(match self.ends.len() > 1 && draft.shape(value) != shape {
                true => {
                    let name = draft.graph.values[value].name.to_string();
                    draft.push(name, Op::Reshape(shape), &[value], Vec::new())?
                }
                false => value,
            });
        }
        if parts.len() > 1 {
            parts = vec![draft.push("outputs", Op::Concat(Axis::C), &parts, Vec::new())?];
        }
        draft.graph.outputs = parts.into();
        Ok(draft)
    }
}

/// `inputs`: the network's inputs by their names, one behind the other in a record.
fn named_inputs(o: &Object<'_>, mistakes: &mut Mistakes) -> Vec<graph::Value> {
    let Some(list) = o.list("inputs", mistakes) else {
        return Vec::new();
    };
    if o.get("input").is_some_and(|i| i.get("shape").is_some()) {
        mistakes.add(
            o.at("input"),
            "expected no shape, as each of \"inputs\" has one",
        );
    }
    if list.len() < 2 {
        let message = format!(
            "expected at least two, found {}; of one input \"input\" says the shape",
            list.len()
        );
        mistakes.add(o.at("inputs"), message);
    }
    let mut inputs: Vec<graph::Value> = Vec::new();
    for (i, value) in list.iter().enumerate() {
        let place = format!("{}[{i}]", o.at("inputs"));
        let Some(input) = Object::new(value, place, &["name", "shape"], mistakes) else {
            continue;
        };
        for key in ["name", "shape"] {
            input.require(key, mistakes);
        }
        let (name, shape) = (input.text("name", mistakes), shape(&input, mistakes));
        if let Some(name) = name {
            check_name(&input, name, mistakes);
            if inputs.iter().any(|other| other.name == name) {
                mistakes.add(input.at("name"), format_args!("\"{name}\" is there twice"));
            }
        }
        if let (Some(name), Some(shape)) = (name, shape) {
            inputs.push(graph::Value {
                name: name.to_string().into(),
                shape,
            });
        }
    }
    if let Err(e) = bounded(Shape::vector(
        inputs.iter().map(|i| i.shape.len()).sum::<usize>().max(1),
    )) {
        mistakes.add(o.at("inputs"), e);
    }
    inputs
}

/// What gives each input its part of the record.
fn parts(inputs: &[graph::Value]) -> Vec<Layer> {
    let (mut layers, mut first) = (Vec::new(), 0);
    for (i, graph::Value { name, shape }) in inputs.iter().enumerate() {
        let size = shape.len();
        let mut part = |name: String, op: Op, from: usize| {
            let shown = format!("inputs[{i}] ({name})");
            let (kind, inputs) = (Some(Kind::Op(op)), Some(vec![from]));
            layers.push(Layer {
                shown,
                name,
                kind,
                inputs,
                arrays: Vec::new(),
            });
            layers.len()
        };
        let slice = Op::Slice {
            axis: Axis::C,
            first,
            size,
        };
        if *shape == Shape::vector(size) {
            part(name.to_string(), slice, 0);
        } else {
            let from = part(format!("inputs[{i}]"), slice, 0);
            part(name.to_string(), Op::Reshape(*shape), from);
        }
        first += size;
    }
    layers
}

/// `outputs`: the layers whose values go out, one behind the other.
fn named_outputs(o: &Object<'_>, layers: &[Layer], mistakes: &mut Mistakes) -> Vec<usize> {
    let Some(names) = o.texts("outputs", mistakes) else {
        return Vec::new();
    };
    if names.len() < 2 {
        let message = "expected the names of at least two layers (the last layer is the output of \
            a network with one)";
        mistakes.add(
            o.at("outputs"),
            format_args!("{message}, found {}", names.len()),
        );
    }
    let mut outputs = Vec::new();
    for name in &names {
        match layers.iter().position(|l| l.name == *name) {
            Some(i) if outputs.contains(&i) => {
                mistakes.add(o.at("outputs"), format_args!("\"{name}\" is there twice"));
            }
            Some(i) => outputs.push(i),
            None => mistakes.add(
                o.at("outputs"),
                format_args!("expected names of layers, found \"{name}\""),
            ),
        }
    }
    outputs
}

/// Reports a name that none can have.
fn check_name(o: &Object<'_>, name: &str, mistakes: &mut Mistakes) {
    if name.is_empty() || name.contains(|c: char| c.is_control()) {
        mistakes.add(
            o.at("name"),
            "expected a name without line breaks and control characters",
        );
    } else if name == INPUT {
        mistakes.add(
            o.at("name"),
            "\"input\" is the network's input; give another name",
        );
    }
}

/// Reads the layer behind `earlier`, of which the first `own` are the network's inputs.
fn layer(
    value: &Json,
    file: &str,
    (earlier, own): (&[Layer], usize),
    last: bool,
    (folder, files): (&Path, &mut Files<'_>),
    mistakes: &mut Mistakes,
) -> Layer {
    let i = earlier.len() - own;
    let mut layer = Layer {
        shown: format!("layers[{i}]"),
        name: format!("layers[{i}]"),
        kind: None,
        inputs: None,
        arrays: Vec::new(),
    };
    if let Some(name) = value.get("name").and_then(Json::as_str) {
        layer.shown = format!("layers[{i}] ({name})");
        layer.name = name.to_string();
    }
    let place = format!("{file}: {}", layer.shown);
    let kind = value.get("layer").and_then(Json::as_str);
    let Some(form) = LAYERS.iter().find(|l| Some(l.0) == kind).map(|l| l.1) else {
        let names: Vec<&str> = LAYERS.iter().map(|l| l.0).collect();
        let what = value.get("layer").unwrap_or(value);
        mistakes.add(
            place,
            format_args!(
                "expected a layer ({}), found {}",
                names.join(", "),
                found(what)
            ),
        );
        return layer;
    };
    let from = if form.inputs() == (1, 1) {
        "input"
    } else {
        "inputs"
    };
    let keys = [&["layer", "name", from], form.keys()].concat();
    let Some(l) = Object::new(value, place, &keys, mistakes) else {
        return layer;
    };
    if l.text("name", mistakes).is_some() {
        check_name(&l, &layer.name, mistakes);
    }
    if let Some(twice) = earlier.iter().find(|e| e.name == layer.name) {
        mistakes.add(l.place(), format_args!("{} has the same name", twice.shown));
    }
    layer.inputs = inputs(&l, form, (earlier, own), mistakes);
    if form == Form::Softmax && !last {
        mistakes.add(l.place(), "a SoftmaxLayer can only be the last layer");
        return layer;
    }
    let mut reader = Reader {
        l: &l,
        folder,
        files,
        mistakes,
    };
    (layer.kind, layer.arrays) = reader.form(form);
    layer
}

/// The values that a layer reads: those that it names, or that of the layer before.
fn inputs(
    l: &Object<'_>,
    form: Form,
    (earlier, own): (&[Layer], usize),
    mistakes: &mut Mistakes,
) -> Option<Vec<usize>> {
    let (least, most) = form.inputs();
    let (key, names) = if most == 1 {
        let Some(name) = l.get("input") else {
            if own > 0 && earlier.len() == own {
                mistakes.add(
                    l.place(),
                    "expected the key \"input\" with the name of one of the network's inputs",
                );
                return None;
            }
            return Some(vec![earlier.len()]);
        };
        l.text("input", mistakes)?;
        (
            "input",
            name.as_str().into_iter().map(String::from).collect(),
        )
    } else {
        if !l.require("inputs", mistakes) {
            return None;
        }
        ("inputs", l.texts("inputs", mistakes)?)
    };
    if names.len() < least || names.len() > most {
        let expected = if least == most {
            format!("{least}")
        } else {
            format!("at least {least}")
        };
        mistakes.add(
            l.at(key),
            format_args!("expected {expected} names, found {}", names.len()),
        );
        return None;
    }
    let value = |name: &String| {
        let of_layer = || earlier.iter().position(|e| e.name == *name).map(|i| i + 1);
        let value = if name == INPUT && own == 0 {
            Some(0)
        } else {
            of_layer()
        };
        if value.is_none() {
            let message = match own {
                0 => "expected \"input\" or the name of a layer before this one",
                _ => "expected the name of an input or of a layer before this one",
            };
            mistakes.add(l.at(key), format_args!("{message}, found \"{name}\""));
        }
        value
    };
    let values: Vec<Option<usize>> = names.iter().map(value).collect();
    values.into_iter().collect()
}

/// Reads the members of one layer.
struct Reader<'r, 'v, 'f> {
    l: &'r Object<'v>,
    folder: &'r Path,
    files: &'r mut Files<'f>,
    mistakes: &'r mut Mistakes,
}

impl Reader<'_, '_, '_> {
    /// What it computes, if its members can be read, and its numbers.
    fn form(&mut self, form: Form) -> (Option<Kind>, Vec<Array>) {
        let op = |op: Op| Some(Kind::Op(op));
        match form {
            Form::Affine => (op(Op::Affine), self.weights_and_biases(true)),
            Form::Convolution => {
                let (window, groups) = (self.window(false), self.groups());
                let kind = window
                    .zip(groups)
                    .map(|(w, g)| Kind::Convolution(w, Some(g)));
                (kind, self.weights_and_biases(false))
            }
            Form::Depthwise => {
                let kind = self.window(false).map(|w| Kind::Convolution(w, None));
                (kind, self.weights_and_biases(false))
            }
            Form::Pool(kind) => (self.pool(kind), Vec::new()),
            Form::GlobalPool(kind) => (Some(Kind::GlobalPool(kind)), Vec::new()),
            Form::BatchNorm => (op(Op::Scale), self.batch_norm()),
            Form::Scale => (op(Op::Scale), self.scale()),
            Form::PRelu => (op(Op::PRelu), vec![self.column("slopes", Role::Factors)]),
            Form::Combine(arithmetic) => (op(Op::Combine(arithmetic)), Vec::new()),
            Form::Concat => {
                let axis = if self.l.get("axis").is_some() {
                    self.l
                        .text("axis", self.mistakes)
                        .and_then(|name| self.axis("axis", name))
                } else {
                    Some(Axis::C)
                };
                (axis.and_then(|a| op(Op::Concat(a))), Vec::new())
            }
            Form::Flatten => (Some(Kind::Flatten), Vec::new()),
            Form::Reshape => {
                self.l.require("shape", self.mistakes);
                (
                    shape(self.l, self.mistakes).and_then(|s| op(Op::Reshape(s))),
                    Vec::new(),
                )
            }
            Form::Transpose => (self.transpose().and_then(op), Vec::new()),
            Form::Pad => {
                self.l.require("pad", self.mistakes);
                let (border, value) = (self.border(), self.float("value", Some(0.0)));
                let pad = border
                    .zip(value)
                    .map(|(border, value)| Op::Pad { border, value });
                (pad.and_then(op), Vec::new())
            }
            Form::Softmax => (Some(Kind::Softmax), Vec::new()),
            _ => (
                self.activation(form).and_then(|a| op(Op::Activation(a))),
                Vec::new(),
            ),
        }
    }

    /// An element-wise function with its parameters.
    fn activation(&mut self, form: Form) -> Option<Activation> {
        match form {
            Form::Activation(a) => Some(a),
            Form::LeakyRelu => self.float("slope", None).map(Activation::LeakyRelu),
            Form::Clip => {
                let (low, high) = (self.l.get("low").is_some(), self.l.get("high").is_some());
                if !low && !high {
                    self.mistakes
                        .add(self.l.place(), "expected low, high or both");
                }
                let low = self.float("low", Some(f32::NEG_INFINITY));
                let high = self.float("high", Some(f32::INFINITY));
                let (low, high) = (low?, high?);
                if low.get() > high.get() {
                    let (low, high) = (low.get(), high.get());
                    self.mistakes.add(
                        self.l.at("low"),
                        format_args!("expected at most high, {high}, found {low}"),
                    );
                }
                Some(Activation::Clip { low, high })
            }
            Form::Elu => {
                let alpha = self.float("alpha", Some(1.0))?;
                Some(Activation::Elu {
                    alpha,
                    gamma: Float::new(1.0),
                })
            }
            Form::Gelu => {
                match self
                    .l
                    .get("approximate")
                    .map(|_| self.l.text("approximate", self.mistakes))
                {
                    None | Some(Some("none")) => Some(Activation::Gelu),
                    Some(Some("tanh")) => Some(Activation::GeluTanh),
                    Some(Some(other)) => {
                        let place = self.l.at("approximate");
                        self.mistakes.add(
                            place,
                            format_args!("expected none or tanh, found \"{other}\""),
                        );
                        None
                    }
                    Some(None) => None,
                }
            }
            // Frameworks do not agree on α, so there is no default.
            Form::HardSigmoid => {
                let (alpha, beta) = (self.float("alpha", None), self.float("beta", None));
                Some(Activation::HardSigmoid {
                    alpha: alpha?,
                    beta: beta?,
                })
            }
            _ => None,
        }
    }

    fn pool(&mut self, kind: Pool) -> Option<Kind> {
        let window = self.window(true);
        let mut flag = |key: &str| match self.l.get(key) {
            Some(_) => self.l.flag(key, self.mistakes),
            None => Some(false),
        };
        let (ceil, padded) = (flag("ceil"), flag("countIncludePad"));
        let kind = if padded? && kind == Pool::Mean {
            Pool::PaddedMean
        } else {
            kind
        };
        Some(Kind::Op(Op::Pool {
            kind,
            window: Window {
                ceil: ceil?,
                ..window?
            },
        }))
    }

    fn transpose(&mut self) -> Option<Op> {
        self.l.require("axes", self.mistakes);
        let names = self.l.texts("axes", self.mistakes)?;
        let axes: Vec<Option<Axis>> = names.iter().map(|name| self.axis("axes", name)).collect();
        let axes: Vec<Axis> = axes.into_iter().collect::<Option<_>>()?;
        let axes: Option<[Axis; 3]> = axes.try_into().ok();
        if axes.is_none_or(|axes| AXES.iter().any(|a| !axes.contains(&a.1))) {
            let place = self.l.at("axes");
            self.mistakes.add(
                place,
                "expected channels, rows and columns once each, in the new order",
            );
            return None;
        }
        axes.map(Op::Transpose)
    }

    fn axis(&mut self, key: &str, name: &str) -> Option<Axis> {
        let axis = AXES.iter().find(|a| a.0 == name).map(|a| a.1);
        if axis.is_none() {
            let message = format!("expected channels, rows or columns, found \"{name}\"");
            self.mistakes.add(self.l.at(key), message);
        }
        axis
    }

    /// A number that a float holds; without a default it must be there.
    fn float(&mut self, key: &str, default: Option<f32>) -> Option<Float> {
        if self.l.get(key).is_none() {
            if default.is_none() {
                self.l.require(key, self.mistakes);
            }
            return default.map(Float::new);
        }
        let x = self.l.number(key, self.mistakes)? as f32;
        if !x.is_finite() {
            self.mistakes
                .add(self.l.at(key), "expected a number that a float holds");
            return None;
        }
        Some(Float::new(x))
    }

    /// Whole numbers from `least` to [`MOST_SIDE`]: one for all, or as many as one of `lengths`.
    fn counts(
        &mut self,
        key: &str,
        least: usize,
        lengths: &[usize],
        what: &str,
    ) -> Option<Vec<usize>> {
        let list = self.l.counts(key, self.mistakes)?;
        if !lengths.contains(&list.len()) && list.len() != 1 {
            let message = format!("expected a number or {what}, found {} numbers", list.len());
            self.mistakes.add(self.l.at(key), message);
            return None;
        }
        if let Some(n) = list.iter().find(|n| !(least..=MOST_SIDE).contains(n)) {
            let message = format!("expected {least} to {MOST_SIDE}, found {n}");
            self.mistakes.add(self.l.at(key), message);
            return None;
        }
        Some(list)
    }

    /// Height and width; without a default they must be there.
    fn pair(&mut self, key: &str, default: Option<(usize, usize)>) -> Option<(usize, usize)> {
        if self.l.get(key).is_none() {
            if default.is_none() {
                self.l.require(key, self.mistakes);
            }
            return default;
        }
        match self.counts(key, 1, &[2], "[height, width]")?[..] {
            [n] => Some((n, n)),
            [h, w] => Some((h, w)),
            _ => None,
        }
    }

    /// `pad`: one number, [rows, columns], or [top, left, bottom, right].
    fn border(&mut self) -> Option<Border> {
        if self.l.get("pad").is_none() {
            return Some(Border::default());
        }
        match self.counts(
            "pad",
            0,
            &[2, 4],
            "[rows, columns] or [top, left, bottom, right]",
        )?[..]
        {
            [n] => Some(Border {
                top: n,
                left: n,
                bottom: n,
                right: n,
            }),
            [y, x] => Some(Border {
                top: y,
                left: x,
                bottom: y,
                right: x,
            }),
            [top, left, bottom, right] => Some(Border {
                top,
                left,
                bottom,
                right,
            }),
            _ => None,
        }
    }

    /// A window. Where the file does not say otherwise they stand side by side, or one element
    /// apart.
    fn window(&mut self, side_by_side: bool) -> Option<Window> {
        let size = self.pair("kernel", None);
        let step = size.filter(|_| side_by_side).unwrap_or((1, 1));
        let (stride, dilation) = (
            self.pair("stride", Some(step)),
            self.pair("dilation", Some((1, 1))),
        );
        let border = self.border();
        Some(Window {
            size: size?,
            stride: stride?,
            dilation: dilation?,
            border: border?,
            ceil: false,
        })
    }

    fn groups(&mut self) -> Option<usize> {
        if self.l.get("groups").is_none() {
            return Some(1);
        }
        let groups = self.l.count("groups", self.mistakes)?;
        if groups == 0 {
            self.mistakes
                .add(self.l.at("groups"), "expected at least 1, found 0");
            return None;
        }
        Some(groups)
    }

    /// The matrix that a member names.
    fn matrix(&mut self, key: &str, role: Role) -> Array {
        let unknown = Array {
            role,
            size: None,
            data: Vec::new(),
        };
        if !self.l.require(key, self.mistakes) {
            return unknown;
        }
        let Some(path) = self.l.text(key, self.mistakes) else {
            return unknown;
        };
        match matrix::read(
            &self.folder.join(path),
            &self.l.at(key),
            self.files,
            self.mistakes,
        ) {
            Ok(m) => {
                let data = m.data.into_iter().map(f64::from).collect();
                Array {
                    size: Some((m.rows, m.cols)),
                    data,
                    ..unknown
                }
            }
            Err(size) => Array { size, ..unknown },
        }
    }

    /// A matrix of one column.
    fn column(&mut self, key: &str, role: Role) -> Array {
        let array = self.matrix(key, role);
        match array.size {
            Some((rows, cols)) if cols != 1 => {
                let transposed = if rows == 1 {
                    " (it would fit transposed)"
                } else {
                    ""
                };
                let message = format!("expected N × 1, found {rows} × {cols}{transposed}");
                self.mistakes.add(self.l.at(key), message);
                Array {
                    size: None,
                    ..array
                }
            }
            _ => array,
        }
    }

    /// Weights, and as many biases as they have rows: zeros where they may be left out and are.
    fn weights_and_biases(&mut self, must: bool) -> Vec<Array> {
        let weights = self.matrix("weights", Role::Weights);
        let outputs = weights.size.map(|s| s.0);
        if !must && self.l.get("biases").is_none() {
            let zeros = Array::column(Role::Biases, vec![0.0; outputs.unwrap_or(0)]);
            return vec![weights, zeros];
        }
        let biases = self.matrix("biases", Role::Biases);
        if let (Some(outputs), Some((rows, cols))) = (outputs, biases.size) {
            if (rows, cols) != (outputs, 1) {
                let transposed = if (cols, rows) == (outputs, 1) {
                    " (it would fit transposed)"
                } else {
                    ""
                };
                self.mistakes.add(
                    self.l.at("biases"),
                    format_args!(
                        "expected {outputs} × 1, as the weights have {outputs} rows, found {rows} \
                         × {cols}{transposed}"
                    ),
                );
            }
        }
        // Whatever is wrong with them is reported: nothing else follows from it.
        vec![
            weights,
            Array {
                size: outputs.map(|n| (n, 1)),
                ..biases
            },
        ]
    }

    /// Factors and summands of a layer that has both or one of them.
    fn scale(&mut self) -> Vec<Array> {
        let keys = ["scale", "offset"].map(|key| self.l.get(key).is_some());
        if keys == [false, false] {
            self.mistakes
                .add(self.l.place(), "expected scale, offset or both");
        }
        let [scale, offset] = [
            ("scale", keys[0], Role::Factors),
            ("offset", keys[1], Role::Biases),
        ]
        .map(|(key, there, role)| there.then(|| self.column(key, role)));
        let size = |a: &Option<Array>| a.as_ref().and_then(|a| a.size);
        let of = |other: &Option<Array>, role, value| Array {
            role,
            size: size(other),
            data: vec![value; size(other).map_or(0, |s| s.0)],
        };
        let (filled, zeros) = (
            of(&offset, Role::Factors, 1.0),
            of(&scale, Role::Biases, 0.0),
        );
        vec![scale.unwrap_or(filled), offset.unwrap_or(zeros)]
    }

    /// (x − mean) / √(variance + ε) · scale + offset, as one factor and one summand.
    fn batch_norm(&mut self) -> Vec<Array> {
        let before = self.mistakes.lines.len();
        let epsilon = if self.l.get("epsilon").is_some() {
            self.l.number("epsilon", self.mistakes)
        } else {
            Some(1e-5)
        };
        if epsilon.is_some_and(|e| e < 0.0) {
            self.mistakes
                .add(self.l.at("epsilon"), "expected 0 or more");
        }
        let (mean, variance) = (
            self.column("mean", Role::Factors),
            self.column("variance", Role::Factors),
        );
        let [scale, offset] = ["scale", "offset"].map(|key| {
            self.l
                .get(key)
                .is_some()
                .then(|| self.column(key, Role::Factors))
        });
        for (key, array) in [
            ("variance", Some(&variance)),
            ("scale", scale.as_ref()),
            ("offset", offset.as_ref()),
        ] {
            if let (Some((n, _)), Some((rows, _))) = (mean.size, array.and_then(|a| a.size)) {
                if rows != n {
                    let message =
                        format!("expected {n} × 1, as the mean has {n} rows, found {rows} × 1");
                    self.mistakes.add(self.l.at(key), message);
                }
            }
        }
        if let Some((row, v)) = variance.data.iter().enumerate().find(|(_, v)| **v < 0.0) {
            let message = format!("row {}: expected 0 or more, found {v}", row + 1);
            self.mistakes.add(self.l.at("variance"), message);
        }
        let unknown = |role| Array {
            role,
            size: mean.size,
            data: Vec::new(),
        };
        let (Some(epsilon), true) = (epsilon, self.mistakes.lines.len() == before) else {
            return vec![unknown(Role::Factors), unknown(Role::Biases)];
        };
        let at = |a: &Option<Array>, i: usize, none: f64| a.as_ref().map_or(none, |a| a.data[i]);
        let (mut factors, mut summands) = (Vec::new(), Vec::new());
        for (i, (&mean, &variance)) in mean.data.iter().zip(&variance.data).enumerate() {
            let factor = at(&scale, i, 1.0) / (variance + epsilon).sqrt();
            let summand = at(&offset, i, 0.0) - mean * factor;
            factors.push(factor);
            summands.push(summand);
        }
        let infinite = |(&f, &s): (&f64, &f64)| !(f as f32).is_finite() || !(s as f32).is_finite();
        if let Some(i) = factors.iter().zip(&summands).position(infinite) {
            let message = format!(
                "row {}: with variance {} and epsilon {epsilon} the factor or the summand leaves \
                 the range of a float",
                i + 1,
                variance.data[i]
            );
            self.mistakes.add(self.l.at("variance"), message);
        }
        vec![
            Array::column(Role::Factors, factors),
            Array::column(Role::Biases, summands),
        ]
    }
}

/// `shape`: [channels, height, width], or the one number of a vector.
pub(super) fn shape(o: &Object<'_>, mistakes: &mut Mistakes) -> Option<Shape> {
    let list = o.counts("shape", mistakes)?;
    let shape = match list[..] {
        [c] => Shape::vector(c),
        [c, h, w] => Shape { c, h, w },
        _ => {
            let message = "expected [channels, height, width], or the length of a vector";
            mistakes.add(
                o.at("shape"),
                format_args!("{message}, found {} numbers", list.len()),
            );
            return None;
        }
    };
    match bounded(shape) {
        Ok(()) => Some(shape),
        Err(e) => {
            mistakes.add(o.at("shape"), e);
            None
        }
    }
}

/// Refuses what is empty or too large for further arithmetic.
fn bounded(shape: Shape) -> Result<(), String> {
    let Shape { c, h, w } = shape;
    if h > MOST_SIDE || w > MOST_SIDE {
        return Err(format!(
            "expected at most {MOST_SIDE} rows and columns, found {shape}"
        ));
    }
    match [c, h, w].contains(&0) {
        true => Err(format!("expected at least one value, found {shape}")),
        false => shape.bounded().map(drop),
    }
}

/// Whether the shape of its value is that of its input, whatever that is.
fn keeps_shape(kind: Option<Kind>) -> bool {
    matches!(
        kind,
        Some(Kind::Op(Op::Activation(_) | Op::PRelu | Op::Scale) | Kind::Softmax)
    )
}

/// The width of a record that no shape is given of: what the first affine layer behind the input
/// takes.
fn width(layers: &[Layer]) -> Option<usize> {
    let mut same = vec![true];
    for layer in layers {
        let of_input = layer
            .inputs
            .as_ref()
            .is_some_and(|i| i.iter().all(|&v| same[v]));
        if of_input && layer.kind == Some(Kind::Op(Op::Affine)) {
            return layer.arrays.first()?.size.map(|s| s.1);
        }
        same.push(of_input && keeps_shape(layer.kind));
    }
    None
}

/// Reports that the shape of the input must be known, where nothing says it.
fn report_missing_shape(
    file: &str,
    layers: &[Layer],
    input: Option<Shape>,
    mistakes: &mut Mistakes,
) {
    if let (None, Some(layer)) = (input, layers.iter().find(|l| !keeps_shape(l.kind))) {
        let message = "the shape of the network's input is not known; expected \"input\": \
            {\"shape\": [channels, \
                       height, width]} beside the layers";
        mistakes.add(format_args!("{file}: {}", layer.shown), message);
    }
}

/// Reports inputs and layers whose value nobody reads and that are none of the values that go out.
fn report_unread(
    file: &str,
    layers: &[Layer],
    (ends, several): (&[usize], bool),
    mistakes: &mut Mistakes,
) {
    let read = |value: usize| {
        layers
            .iter()
            .any(|l| l.inputs.iter().flatten().any(|&v| v == value))
    };
    for (i, layer) in layers.iter().enumerate() {
        let end = if several {
            ends.contains(&(i + 1))
        } else {
            i + 1 == layers.len()
        };
        if !end && !read(i + 1) {
            let message = match several {
                true => {
                    "no layer reads what it gives; leave it out, or name it as an input or in \
                     \"outputs\""
                }
                false => {
                    "no layer reads what it gives; leave it out, or name it as an input (the last \
                     layer is the output)"
                }
            };
            mistakes.add(format_args!("{file}: {}", layer.shown), message);
        }
    }
}

/// What each layer computes, and the shape of each value, the input's first; `None` where it is not
/// known. Reports what does not meet.
fn follow(
    file: &str,
    layers: &[Layer],
    input: Option<Shape>,
    mistakes: &mut Mistakes,
) -> (Vec<Option<Op>>, Vec<Option<Shape>>) {
    let (mut ops, mut shapes) = (Vec::new(), vec![input]);
    // The layer that gave a value its shape.
    let mut givers = vec!["the input"];
    for layer in layers {
        let giver = layer
            .inputs
            .as_ref()
            .and_then(|i| i.first())
            .map_or("", |&v| givers[v]);
        let inputs: Option<Vec<Shape>> = layer
            .inputs
            .as_ref()
            .and_then(|i| i.iter().map(|&v| shapes[v]).collect());
        let sizes: Option<Vec<(usize, usize)>> = layer.arrays.iter().map(|a| a.size).collect();
        let (op, shape) = match (layer.kind, inputs.as_deref(), sizes.as_deref()) {
            (Some(kind), Some(inputs), Some(sizes)) => match step(kind, inputs, sizes, giver) {
                Ok((op, shape)) => (op, Some(shape)),
                Err(e) => {
                    mistakes.add(format_args!("{file}: {}", layer.shown), e);
                    (None, assumed(layer, Some(inputs)))
                }
            },
            (_, inputs, _) => (None, assumed(layer, inputs)),
        };
        ops.push(op);
        shapes.push(shape);
        givers.push(if keeps_shape(layer.kind) {
            giver
        } else {
            &layer.shown
        });
    }
    (ops, shapes)
}

/// The shape that a layer's value must have all the same, where something is wrong or not known.
fn assumed(layer: &Layer, inputs: Option<&[Shape]>) -> Option<Shape> {
    let outputs = layer.arrays.first().and_then(|a| a.size).map(|s| s.0);
    let input = inputs.and_then(|i| i.first()).copied();
    let shape = match layer.kind? {
        Kind::Op(Op::Affine) => Shape::vector(outputs?),
        Kind::Convolution(window, _) => {
            let (h, w) = window.output(input?).ok()?;
            Shape { c: outputs?, h, w }
        }
        Kind::Op(Op::Combine(_)) => input?,
        kind if keeps_shape(Some(kind)) => input?,
        _ => return None,
    };
    bounded(shape).ok().map(|()| shape)
}

/// What a layer computes of inputs of these shapes, with arrays of these sizes, and the shape of
/// that; `giver` gave the first input its shape. `None`: it computes nothing.
fn step(
    kind: Kind,
    inputs: &[Shape],
    sizes: &[(usize, usize)],
    giver: &str,
) -> Result<(Option<Op>, Shape), String> {
    let input = inputs[0];
    let op = match kind {
        Kind::Softmax if (input.h, input.w) != (1, 1) => {
            return Err(format!(
                "expected a vector, a value for each class, found {input}; a \
                 GlobalAveragePoolLayer or a FlattenLayer \
                 before it gives one"
            ));
        }
        Kind::Softmax => return Ok((None, input)),
        Kind::Flatten if (input.h, input.w) == (1, 1) => return Ok((None, input)),
        Kind::Flatten => Op::Reshape(Shape::vector(input.len())),
        Kind::GlobalPool(kind) => Op::Pool {
            kind,
            window: Window::of((input.h, input.w)),
        },
        Kind::Convolution(window, groups) => Op::Convolution {
            window,
            groups: groups.unwrap_or(input.c),
        },
        Kind::Op(op) => op,
    };
    // Whether weights of this size would fit if they were turned.
    let mut transposed = false;
    let shape = match (op, sizes) {
        (Op::Affine, &[(outputs, takes), _]) if takes != input.len() => {
            transposed = outputs == input.len();
            Err(format!(
                "takes {takes} inputs, {giver} gives {}",
                input.len()
            ))
        }
        (Op::Convolution { window, groups }, &[(outputs, columns), _]) => {
            let expected = window.size.0 * window.size.1 * (input.c / groups);
            transposed = outputs == expected && columns != expected;
            op.shape(inputs, sizes)
        }
        _ => op.shape(inputs, sizes),
    };
    let shape = shape.map_err(|e| {
        if transposed {
            e + " (its weights would fit transposed)"
        } else {
            e
        }
    })?;
    bounded(shape)?;
    Ok((Some(op), shape))
}
