//! Network JSON: a chain of layers (the thesis, fig. 5.3, extended), their weights in files of their own.

use super::{Source, default_name};
use crate::bake::Mistakes;
use crate::bake::draft::Draft;
use crate::bake::json::{self, Object, found};
use crate::bake::matrix::{self, Files, Matrix, Unreadable};
use crate::bake::model::{self, Given, Read};
use crate::ir::graph::{Role, Shape};
use crate::ir::network::{Activation, FinalActivation};
use crate::ir::op::{Float, Op};
use serde_json::Value;
use std::path::Path;

/// A layer as the file has it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FileLayer {
    Affine,
    Activation(Activation),
    Softmax,
}

/// A layer that is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layer {
    Affine { outputs: usize, inputs: usize },
    Activation(Activation),
}

/// Weights and biases of an affine layer, row major; empty for other layers.
#[derive(Debug, Default)]
struct Weights {
    weights: Vec<f32>,
    biases: Vec<f32>,
}

const LAYERS: [(&str, FileLayer); 6] = [
    ("AffineLayer", FileLayer::Affine),
    ("SigmoidLayer", FileLayer::Activation(Activation::Sigmoid)),
    ("ReLULayer", FileLayer::Activation(Activation::Relu)),
    ("TanhLayer", FileLayer::Activation(Activation::Tanh)),
    // The slope is the file's.
    ("LeakyReLULayer", FileLayer::Activation(Activation::LeakyRelu(Float::new(0.0)))),
    ("SoftmaxLayer", FileLayer::Softmax),
];

/// Reads a network JSON.
pub(super) fn read(source: &Source<'_>, files: &mut Files<'_>, mistakes: &mut Mistakes) -> Option<Read> {
    let before = mistakes.0.len();
    let file = files.shown(source.path);
    let text = matrix::utf8(source.bytes, &file, mistakes)?;
    let value = json::parse(text, &file, mistakes)?;
    let keys: Vec<&str> = ["layers", "size"].into_iter().chain(model::KEYS).collect();
    let o = Object::new(&value, file.clone(), &keys, mistakes)?;

    let folder = source.path.parent().unwrap_or(Path::new("")).to_path_buf();
    let (mut layers, mut weights) = read_layers(&o, &folder, files, mistakes);
    let width = check_chain(&file, &layers, mistakes);
    let outputs =
        layers.iter().rev().find(|(_, l)| !matches!(l, Some(Layer::Activation(_)))).and_then(|l| l.1);
    let outputs = outputs.and_then(|l| match l {
        Layer::Affine { outputs, .. } => Some(outputs),
        Layer::Activation(_) => None,
    });
    let last = final_activation(&o, &mut layers, &mut weights, mistakes);
    let complete = mistakes.0.len() == before;
    let layers: Option<Vec<(usize, Layer)>> = layers.into_iter().map(|(i, l)| Some((i, l?))).collect();
    let draft = match (width, layers) {
        (Some(width), Some(layers)) if complete => {
            draft(width, layers, weights).map_err(|e| mistakes.add(o.place(), e)).ok()
        }
        _ => None,
    };
    let given = Given {
        folder,
        name: default_name(source.path),
        input: width.map(Shape::vector),
        outputs: outputs.map(Shape::vector),
        last,
        draft,
        sigmoid: "SigmoidLayer",
        ..Given::default()
    };
    model::finish(source.settings, given, &o, before, files, mistakes)
}

/// The layers of a file as a graph, a node each.
fn draft(width: usize, layers: Vec<(usize, Layer)>, weights: Vec<Weights>) -> Result<Draft, String> {
    let mut draft = Draft::new(Shape::vector(width));
    let mut value = 0;
    let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect();
    for ((i, layer), w) in layers.into_iter().zip(weights) {
        let name = format!("layers[{i}]");
        value = match layer {
            Layer::Affine { outputs, inputs } => {
                let arrays = vec![
                    (Role::Weights, outputs, inputs, wide(w.weights)),
                    (Role::Biases, outputs, 1, wide(w.biases)),
                ];
                draft.push(name, Op::Affine, &[value], arrays)?
            }
            Layer::Activation(a) => draft.push(name, Op::Activation(a), &[value], Vec::new())?,
        };
    }
    Ok(draft)
}

/// A layer and its index in the file; `None` is one that cannot be read, which is reported: what it takes and gives is
/// not known.
type Indexed = (usize, Option<Layer>);

/// The layers in order with their weights.
fn read_layers(
    o: &Object<'_>,
    folder: &Path,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> (Vec<Indexed>, Vec<Weights>) {
    let (mut layers, mut weights) = (Vec::new(), Vec::new());
    o.require("layers", mistakes);
    let list = o.list("layers", mistakes).map_or(&[][..], |l| l);
    if let Some(size) = o.count("size", mistakes) {
        if size != list.len() {
            let n = list.len();
            mistakes.add(o.at("size"), format_args!("expected {n}, the number of layers, found {size}"));
        }
    } else {
        o.require("size", mistakes);
    }
    for (i, value) in list.iter().enumerate() {
        let place = format!("{}: layers[{i}]", o.place());
        let kind = value.get("layer").and_then(Value::as_str);
        let known = LAYERS.iter().find(|l| Some(l.0) == kind).map(|l| l.1);
        let Some(layer) = known else {
            let names: Vec<&str> = LAYERS.iter().map(|l| l.0).collect();
            let what = value.get("layer").unwrap_or(value);
            mistakes
                .add(place, format_args!("expected a layer ({}), found {}", names.join(", "), found(what)));
            layers.push((i, None));
            weights.push(Weights::default());
            continue;
        };
        let keys: &[&str] = match layer {
            FileLayer::Affine => &["layer", "weights", "biases"],
            FileLayer::Activation(Activation::LeakyRelu(_)) => &["layer", "slope"],
            FileLayer::Activation(_) | FileLayer::Softmax => &["layer"],
        };
        let Some(l) = Object::new(value, place, keys, mistakes) else { continue };
        match layer {
            FileLayer::Affine => {
                let (size, w) = read_affine(&l, folder, files, mistakes);
                layers.push((i, size));
                weights.push(w);
            }
            FileLayer::Activation(a) => {
                let a = if let Activation::LeakyRelu(_) = a { leaky_relu(&l, mistakes) } else { Some(a) };
                layers.push((i, a.map(Layer::Activation)));
                weights.push(Weights::default());
            }
            FileLayer::Softmax if i + 1 == list.len() => {}
            FileLayer::Softmax => mistakes.add(l.place(), "a SoftmaxLayer can only be the last layer"),
        }
    }
    (layers, weights)
}

/// A leaky ReLU with its slope, if that is given.
fn leaky_relu(l: &Object<'_>, mistakes: &mut Mistakes) -> Option<Activation> {
    l.require("slope", mistakes);
    let slope = l.number("slope", mistakes)? as f32;
    if !slope.is_finite() {
        mistakes.add(l.at("slope"), "expected a number that a float holds");
        return None;
    }
    Some(Activation::LeakyRelu(Float::new(slope)))
}

/// An affine layer, if the size of its weights is known, and its weights, if they can be read.
fn read_affine(
    l: &Object<'_>,
    folder: &Path,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> (Option<Layer>, Weights) {
    let mut matrix = |key: &str| {
        if !l.require(key, mistakes) {
            return Err(None);
        }
        let path = folder.join(l.text(key, mistakes).ok_or(None)?);
        matrix::read(&path, &l.at(key), files, mistakes)
    };
    let (w, b) = (matrix("weights"), matrix("biases"));
    let size = |m: &Result<Matrix, Unreadable>| m.as_ref().map_or_else(|e| *e, |m| Some((m.rows, m.cols)));
    if let (Some((outputs, _)), Some((rows, cols))) = (size(&w), size(&b)) {
        if (rows, cols) != (outputs, 1) {
            let transposed = if (cols, rows) == (outputs, 1) { " (it would fit transposed)" } else { "" };
            mistakes.add(
                l.at("biases"),
                format_args!(
                    "expected {outputs} × 1, as the weights have {outputs} rows, found {rows} × {cols}{transposed}"
                ),
            );
        }
    }
    let layer = size(&w).map(|(outputs, inputs)| Layer::Affine { outputs, inputs });
    let data = |m: Result<Matrix, Unreadable>| m.map_or(Vec::new(), |m| m.data);
    (layer, Weights { weights: data(w), biases: data(b) })
}

/// Checks that each affine layer takes what the one before gives, where both are known; returns the width of the input.
fn check_chain(file: &str, layers: &[Indexed], mistakes: &mut Mistakes) -> Option<usize> {
    let first = layers.iter().find(|(_, l)| !matches!(l, Some(Layer::Activation(_))));
    if first.is_none() && mistakes.0.is_empty() {
        mistakes.add(format_args!("{file}: layers"), "expected at least one AffineLayer, found none");
    }
    let mut previous: Option<(usize, usize)> = None; // layer index, outputs
    for &(i, layer) in layers {
        let (outputs, inputs) = match layer {
            Some(Layer::Affine { outputs, inputs }) => (outputs, inputs),
            Some(Layer::Activation(_)) => continue,
            None => {
                previous = None;
                continue;
            }
        };
        if let Some((j, given)) = previous.filter(|p| p.1 != inputs) {
            let transposed = if outputs == given { " (its weights would fit transposed)" } else { "" };
            mistakes.add(
                format_args!("{file}: layers[{i}]"),
                format_args!("takes {inputs} inputs, layers[{j}] gives {given}{transposed}"),
            );
        }
        previous = Some((i, outputs));
    }
    match first?.1? {
        Layer::Affine { inputs, .. } => Some(inputs),
        Layer::Activation(_) => None,
    }
}

/// Takes the final sigmoid or tanh away from the layers: classes are the arg-max of the values before it, because a
/// sigmoid in f32 saturates. (A final softmax never was among them. ReLU does not saturate and stays.)
fn final_activation(
    o: &Object<'_>,
    layers: &mut Vec<Indexed>,
    weights: &mut Vec<Weights>,
    mistakes: &mut Mistakes,
) -> Option<FinalActivation> {
    let softmax = o
        .list("layers", mistakes)
        .and_then(|l| l.last()?.get("layer")?.as_str())
        .is_some_and(|name| name == "SoftmaxLayer");
    let last = match layers.last() {
        _ if softmax => return Some(FinalActivation::Softmax),
        Some((_, Some(Layer::Activation(Activation::Sigmoid)))) => FinalActivation::Sigmoid,
        Some((_, Some(Layer::Activation(Activation::Tanh)))) => FinalActivation::Tanh,
        _ => return None,
    };
    layers.pop();
    weights.pop();
    Some(last)
}
