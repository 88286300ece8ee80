//! Reads the layers of a network JSON.
//!
//! First each layer is read on its own. Then one pass from the input to the outputs infers the
//! shapes and builds the draft. A layer that cannot be read causes no mistakes in later layers.

mod arrays;
mod entry;
mod form;
mod lower;
mod members;

use crate::bake::Mistakes;
use crate::bake::draft::Draft;
use crate::bake::json::{Json, Object};
use crate::bake::matrix::{Files, MatrixSize};
use crate::ir::graph::{self, Role, Shape};
use crate::ir::network::FinalActivation;
use crate::ir::op::{Activation, Axis, OfChannels, Op, Pool, Window};
use entry::{Earlier, check_name};
use std::path::Path;

/// The name by which layers refer to the network's only input.
const INPUT: &str = "input";

/// The most rows or columns of an image, and the largest parameter of a window.
const MOST_SIDE: usize = 1 << 16;

/// The operation of a layer, as far as it is known before shapes are inferred.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LayerKind {
    /// The layer becomes a node with this operation.
    Op(Op),
    Convolution {
        window: Window,
        /// The number of groups. `None` for a depthwise convolution, which has one group for each
        /// input channel.
        groups: Option<usize>,
    },
    /// A pooling layer whose window is the whole image.
    GlobalPool(Pool),
    Flatten,
    /// A final softmax. It states the meaning of the output and becomes no node.
    Softmax,
}

impl LayerKind {
    /// True if the layer's output always has the shape of its input.
    fn keeps_shape(self) -> bool {
        matches!(
            self,
            LayerKind::Op(Op::Activation(_) | Op::PRelu | Op::Scale) | LayerKind::Softmax
        )
    }

    /// True for layers that have a matrix of weights.
    fn has_weights(self) -> bool {
        matches!(
            self,
            LayerKind::Op(Op::Affine) | LayerKind::Convolution { .. }
        )
    }
}

/// An array of a layer (weights, biases and the like), as the file states it.
struct FileArray {
    role: Role,
    /// The rows and columns of the array. `None` after a mistake.
    size: Option<MatrixSize>,
    /// The elements of the array, row-major. Empty after a mistake.
    numbers: Vec<f64>,
}

impl FileArray {
    /// Makes an array of one column.
    fn column(role: Role, numbers: Vec<f64>) -> FileArray {
        FileArray {
            role,
            size: Some(MatrixSize::column(numbers.len())),
            numbers,
        }
    }
}

/// A layer as the file states it, before shapes are inferred.
struct FileLayer {
    /// The layer's name in messages, such as `layers[2]` or `layers[2] (name)`.
    shown: String,
    /// The name of the layer's node, by which other layers refer to the layer. Without a name it is
    /// `layers[2]` or the like.
    name: String,
    /// The layer's operation. `None` after a mistake.
    kind: Option<LayerKind>,
    /// The indices of the values that the layer reads. Index 0 is the network's input, and i + 1 is
    /// the output of layer i. `None` after a mistake.
    inputs: Option<Vec<usize>>,
    arrays: Vec<FileArray>,
}

impl FileLayer {
    /// Returns the size of the layer's first array. In a layer with weights, that is the weights.
    fn weights_size(&self) -> Option<MatrixSize> {
        self.arrays.first()?.size
    }

    /// Returns the index of the value that the layer reads. `None` if it reads several.
    fn only_input(&self) -> Option<usize> {
        match self.inputs.as_deref() {
            Some(&[input]) => Some(input),
            _ => None,
        }
    }

    /// Returns the function that this layer computes, if it can be the network's final function. A
    /// ReLU is not one. It does not saturate as a sigmoid does, so classes can be taken from its
    /// result.
    fn final_activation(&self) -> Option<FinalActivation> {
        self.only_input()?;
        match self.kind? {
            LayerKind::Softmax => Some(FinalActivation::Softmax),
            LayerKind::Op(Op::Activation(Activation::Sigmoid)) => Some(FinalActivation::Sigmoid),
            LayerKind::Op(Op::Activation(Activation::Tanh)) => Some(FinalActivation::Tanh),
            _ => None,
        }
    }
}

/// The layers of a network JSON, converted to a draft. Fields are `None` after a mistake.
pub(super) struct Layers {
    pub(super) draft: Option<Draft>,
    /// The named inputs if there are several. A record has them one behind the other.
    pub(super) inputs: Vec<graph::Value>,
    /// The named outputs if there are several. Else empty.
    pub(super) outputs: Vec<graph::Value>,
    /// The shape of one record.
    pub(super) input_shape: Option<Shape>,
    /// The shape of all outputs together.
    pub(super) output_shape: Option<Shape>,
    /// The last layer, if it is a final function. Classes are the arg-max of the values in front of
    /// it, because a sigmoid saturates in f32.
    pub(super) last: Option<FinalActivation>,
}

impl Layers {
    /// Reads the layers of the network JSON `o`. `image` is the shape of a record, if the file
    /// states it.
    pub(super) fn read(
        o: &Object<'_>,
        image: Option<Shape>,
        folder: &Path,
        files: &mut Files<'_>,
        mistakes: &mut Mistakes,
    ) -> Layers {
        let before = mistakes.lines.len();
        let list = list_of_layers(o, mistakes);
        let inputs = named_inputs(o, mistakes);
        let several = o.get("outputs").is_some();
        let own = input_parts(&inputs).len();
        let mut layers = read_layers(o, list, &inputs, several, folder, files, mistakes);
        let named_outputs = named_outputs(o, &layers[own..], mistakes);
        if mistakes.lines.len() == before {
            check_weights(o.place(), &layers, mistakes);
        }
        let input_shape = match o.get("inputs") {
            Some(_) => Some(Shape::vector(total(&inputs))).filter(|shape| !shape.is_empty()),
            None => image.or_else(|| width(&layers).map(Shape::vector)),
        };
        let stated = o
            .get("input")
            .is_some_and(|i| !i.is_object() || i.get("shape").is_some());
        if mistakes.lines.len() == before && !stated && inputs.is_empty() && input_shape.is_none() {
            report_missing_shape(o.place(), &layers, mistakes);
        }
        let last = match layers.last() {
            Some(layer) if !several => layer.final_activation(),
            _ => None,
        };
        let lowered = lower::lower(o.place(), &mut layers, input_shape, last, mistakes);
        let ends: Vec<usize> = match layers.last().filter(|_| last.is_some()) {
            _ if several => named_outputs.iter().map(|&i| own + i + 1).collect(),
            Some(layer) => layer.only_input().into_iter().collect(),
            None => vec![layers.len()],
        };
        if mistakes.lines.len() == before {
            report_unread(o.place(), &layers, several.then_some(&ends), mistakes);
        }
        let shapes: Option<Vec<Shape>> = ends.iter().map(|&end| lowered.shape(end)).collect();
        let output_shape = match shapes.as_deref() {
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
        let draft = (mistakes.lines.len() == before).then(|| lowered.finish(&ends));
        let draft = draft.and_then(|made| made.map_err(|e| mistakes.add(o.place(), e)).ok());
        Layers {
            draft,
            inputs,
            outputs,
            input_shape,
            output_shape,
            last,
        }
    }
}

/// Reads each layer of a network JSON. The result begins with layers that cut the record into the
/// network's named inputs.
fn read_layers(
    o: &Object<'_>,
    list: &[Json],
    inputs: &[graph::Value],
    several: bool,
    folder: &Path,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Vec<FileLayer> {
    let mut layers = input_parts(inputs);
    let own = layers.len();
    for (i, value) in list.iter().enumerate() {
        let earlier = Earlier {
            layers: &layers,
            inputs: own,
        };
        let last = several || i + 1 == list.len();
        let mut layer = entry::read(value, o.place(), &earlier, last, folder, files, mistakes);
        // With several outputs a softmax becomes a node, because `last` can state only one
        // function.
        if layer.kind == Some(LayerKind::Softmax) && several {
            layer.kind = Some(LayerKind::Op(Op::OfChannels(OfChannels::Softmax)));
        }
        layers.push(layer);
    }
    layers
}

/// Returns the list `layers` of a network JSON, and checks that `size` is its length.
fn list_of_layers<'v>(o: &Object<'v>, mistakes: &mut Mistakes) -> &'v [Json] {
    o.require("layers", mistakes);
    let list = o.list("layers", mistakes).map_or(&[][..], |l| l);
    match o.count("size", mistakes) {
        Some(size) if size != list.len() => mistakes.add(
            o.at("size"),
            format_args!(
                "expected {}, the number of layers, found {size}",
                list.len()
            ),
        ),
        Some(_) => {}
        None => {
            o.require("size", mistakes);
        }
    }
    list
}

/// Reports a network in which no layer has weights.
fn check_weights(file: &str, layers: &[FileLayer], mistakes: &mut Mistakes) {
    let has_weights = |l: &FileLayer| l.kind.is_none_or(LayerKind::has_weights);
    if !layers.iter().any(has_weights) {
        mistakes.add(
            format_args!("{file}: layers"),
            "expected at least one AffineLayer or ConvLayer, found none",
        );
    }
}

/// Reads the key `inputs`, the network's named inputs. Empty if the file has no such list.
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
        mistakes.add(
            o.at("inputs"),
            format_args!(
                "expected at least two, found {}; the shape of a single input belongs in \"input\"",
                list.len()
            ),
        );
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
                mistakes.add(input.at("name"), format_args!("\"{name}\" appears twice"));
            }
        }
        if let (Some(name), Some(shape)) = (name, shape) {
            inputs.push(graph::Value {
                name: name.to_string().into(),
                shape,
            });
        }
    }
    if let Err(e) = bounded(Shape::vector(total(&inputs).max(1))) {
        mistakes.add(o.at("inputs"), e);
    }
    inputs
}

/// Returns the number of values of all inputs together, the length of a record.
fn total(inputs: &[graph::Value]) -> usize {
    inputs.iter().map(|i| i.shape.len()).sum()
}

/// Makes the layers that cut the record into the named inputs. Each input is a slice of the record.
/// A slice that is an image is also reshaped.
fn input_parts(inputs: &[graph::Value]) -> Vec<FileLayer> {
    let (mut layers, mut first) = (Vec::new(), 0);
    for (i, graph::Value { name, shape }) in inputs.iter().enumerate() {
        let size = shape.len();
        let mut part = |name: String, op: Op, from: usize| {
            layers.push(FileLayer {
                shown: format!("inputs[{i}] ({name})"),
                name,
                kind: Some(LayerKind::Op(op)),
                inputs: Some(vec![from]),
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

/// Reads the key `outputs`. Returns the indices of the layers that it names.
fn named_outputs(o: &Object<'_>, layers: &[FileLayer], mistakes: &mut Mistakes) -> Vec<usize> {
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
                mistakes.add(o.at("outputs"), format_args!("\"{name}\" appears twice"));
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

/// Reads the key `shape`: [channels, height, width], or the length of a vector.
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
    bounded(shape)
        .map_err(|e| mistakes.add(o.at("shape"), e))
        .ok()
}

/// Returns an error for a shape that is empty, or too large for the arithmetic on sizes.
fn bounded(shape: Shape) -> Result<Shape, String> {
    let Shape { c, h, w } = shape;
    if h > MOST_SIDE || w > MOST_SIDE {
        return Err(format!(
            "expected at most {MOST_SIDE} rows and columns, found {shape}"
        ));
    }
    match [c, h, w].contains(&0) {
        true => Err(format!("expected at least one value, found {shape}")),
        false => shape.bounded(),
    }
}

/// Returns the length of a record if the file states no shape. That is the number of columns of the
/// first affine layer behind the input.
fn width(layers: &[FileLayer]) -> Option<usize> {
    // For each value, true if it has the shape of the network's input.
    let mut like_input = vec![true];
    for layer in layers {
        let reads = layer
            .inputs
            .as_ref()
            .is_some_and(|i| i.iter().all(|&v| like_input[v]));
        if reads && layer.kind == Some(LayerKind::Op(Op::Affine)) {
            return layer.weights_size().map(|size| size.cols);
        }
        like_input.push(reads && layer.kind.is_some_and(LayerKind::keeps_shape));
    }
    None
}

/// Reports the first layer that depends on the shape of the network's input, which the file does
/// not state.
fn report_missing_shape(file: &str, layers: &[FileLayer], mistakes: &mut Mistakes) {
    let depends = |l: &&FileLayer| !l.kind.is_some_and(LayerKind::keeps_shape);
    if let Some(layer) = layers.iter().find(depends) {
        mistakes.add(
            format_args!("{file}: {}", layer.shown),
            "the shape of the network's input is not known; expected \"input\": {\"shape\": \
             [channels, height, width]} beside the layers",
        );
    }
}

/// Reports inputs and layers whose value no layer reads and that are no output. `outputs` has the
/// indices of the named outputs' values. If it is `None`, the last layer is the output.
fn report_unread(
    file: &str,
    layers: &[FileLayer],
    outputs: Option<&Vec<usize>>,
    mistakes: &mut Mistakes,
) {
    let read = |value: usize| {
        layers
            .iter()
            .any(|l| l.inputs.iter().flatten().any(|&v| v == value))
    };
    let way = match outputs {
        Some(_) => "or in \"outputs\"",
        None => "(the last layer is the output)",
    };
    for (i, layer) in layers.iter().enumerate() {
        let value = i + 1;
        let output = match outputs {
            Some(outputs) => outputs.contains(&value),
            None => value == layers.len(),
        };
        if !output && !read(value) {
            mistakes.add(
                format_args!("{file}: {}", layer.shown),
                format_args!(
                    "no layer reads its output; leave the layer out, or name it as an input {way}"
                ),
            );
        }
    }
}
