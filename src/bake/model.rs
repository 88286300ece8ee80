//! Reads a network: definition (the thesis, fig. 5.3, extended), weights, input scaling, meaning of the output.

use super::golden::{self, Golden};
use super::json::{self, Object, found};
use super::matrix::{self, Files, Matrix, Unreadable};
use super::overflow;
use super::{Mistakes, Rounding, Settings};
use crate::block::hex;
use crate::ir::graph::{Graph, Role, Shape, Tensors};
use crate::ir::half;
use crate::ir::network::{
    Activation, FinalActivation, InputOrder, Kind, Network, Output, Precision, Transform,
};
use crate::ir::op::{Float, Op};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

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

const KEYS: [&str; 8] = ["layers", "size", "name", "labels", "features", "input", "output", "check"];

/// Folding the input scaling into the first layer may add this much error, relative to the layer's own magnitude.
pub(crate) const FOLD_BOUND: f64 = 1e-5;

/// Reads and checks the network of `settings`; its weights come back as they will be baked (f32, scaling folded in).
pub(crate) fn read(
    settings: &Settings,
    read: &mut Vec<PathBuf>,
    mistakes: &mut Mistakes,
) -> Option<(Network, Tensors, Golden, Option<Rounding>)> {
    let mut files = Files { root: &settings.root, read };
    let mut path = settings.root.join(&settings.model);
    if path.is_dir() {
        path.push("network.json");
    }
    // A network that lies outside is asked for by an absolute path, so that the message says what was tried.
    if std::fs::metadata(&path).is_ok_and(|m| !m.is_file()) {
        let asked = format!("MORTONNET_MODEL={}", settings.model.display());
        mistakes.add(asked, format_args!("{} is not a regular file", path.display()));
        return None;
    }
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) => {
            let asked = format!("MORTONNET_MODEL={}", settings.model.display());
            mistakes.add(asked, format_args!("cannot read {}: {e}", path.display()));
            return None;
        }
    };
    files.read.push(path.clone());
    let file = files.shown(&path);
    let value = json::parse(&text, &file, mistakes)?;
    let o = Object::new(&value, file.clone(), &KEYS, mistakes)?;
    let before = mistakes.0.len();

    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let (mut layers, mut weights) = read_layers(&o, &folder, &mut files, mistakes);
    let width = check_chain(&file, &layers, mistakes);
    let name = o.text("name", mistakes).map_or_else(|| default_name(&path), String::from);
    let labels = o.texts("labels", mistakes).unwrap_or_default();
    let features = o.texts("features", mistakes).unwrap_or_default();
    let outputs =
        layers.iter().rev().find(|(_, l)| !matches!(l, Some(Layer::Activation(_)))).and_then(|l| l.1);
    let outputs = outputs.and_then(|l| match l {
        Layer::Affine { outputs, .. } => Some(outputs),
        Layer::Activation(_) => None,
    });
    let last = final_activation(&o, &mut layers, &mut weights, mistakes);
    let output = read_output(&o, last, outputs, mistakes);
    let transform = read_input(&o, width, mistakes);

    if let (Some(width), false) = (width, features.is_empty()) {
        if features.len() != width {
            mistakes.add(o.at("features"), format_args!("expected {width} names, found {}", features.len()));
        }
    }
    if let (Some(output), Some(n), false) = (output, outputs, labels.is_empty()) {
        let expected = if output.kind == Kind::Binary { 2 } else { n };
        if labels.len() != expected {
            mistakes.add(o.at("labels"), format_args!("expected {expected} names, found {}", labels.len()));
        }
    }
    for (key, names) in [("name", std::slice::from_ref(&name)), ("labels", &labels), ("features", &features)]
    {
        if let Some(bad) = names.iter().find(|n| n.is_empty() || n.contains(|c: char| c.is_control())) {
            mistakes.add(
                o.at(key),
                format_args!("{bad:?}: expected a name without line breaks and control characters"),
            );
        }
    }
    // The reader takes a first line with a feature's name in it for a header, unless that name is a number.
    if let (Some(first), true) = (features.first(), features.iter().all(|f| f.trim().parse::<f64>().is_ok()))
    {
        mistakes.add(
            o.at("features"),
            format_args!(
                "expected names that are not all numbers, found \"{first}\" and the like: a CSV header of them cannot be \
                 told from a record; give names, or leave the key out and the header away"
            ),
        );
    }
    for (key, names) in [("labels", &labels), ("features", &features)] {
        if let Some(twice) = names.iter().enumerate().find(|(i, n)| names[..*i].contains(n)) {
            mistakes.add(o.at(key), format_args!("\"{}\" is there twice", twice.1));
        }
    }
    if mistakes.0.len() > before {
        return None;
    }
    let (width, output, transform) = (width?, output?, transform?);
    let layers = layers.into_iter().filter_map(|(i, layer)| Some((i, layer?))).collect();
    let (graph, mut tensors) = match graph(width, layers, weights) {
        Ok(built) => built,
        Err(e) => {
            mistakes.add(o.place(), e);
            return None;
        }
    };
    let scaling = transform.clone();
    // Folding makes weights of 8-bit images so small that halves would lose digits: then the reader scales.
    let (transform, folded) = match settings.weights {
        Precision::F32 => fold(&graph, &mut tensors, transform),
        Precision::F16 => (transform, false),
    };
    let owned = |v: Vec<String>| v.into_iter().map(Into::into).collect::<Vec<_>>().into();
    let mut network = Network {
        name: name.into(),
        hash: "".into(),
        width,
        order: InputOrder::Chw,
        graph,
        output,
        labels: owned(labels),
        features: owned(features),
        transform,
        folded,
        weights: settings.weights,
    };
    let mut golden = match o.get("check") {
        Some(check) => {
            golden::read(check, &o.at("check"), &folder, &network, &tensors, &mut files, mistakes)?
        }
        None => golden::synthetic(&network, &tensors, &scaling),
    };
    if golden.inputs.iter().chain(&golden.scores).any(|v| !v.is_finite()) {
        let what =
            "inputs that the scaling maps to its usual range leave the range of f32, or their scores do";
        mistakes.add(o.place(), format_args!("{what}; check the scaling and the weights"));
        return None;
    }
    let rounding = match settings.weights {
        Precision::F32 => None,
        Precision::F16 => Some(round(&network, &mut tensors, &mut golden, o.place(), mistakes)?),
    };
    golden.overflow = overflow::records(&network, &tensors);
    network.hash = hash(&network, &tensors, &golden).into();
    Some((network, tensors, golden, rounding))
}

/// The layers of a file as a graph, a node each, with the numbers of its arrays.
fn graph(
    width: usize,
    layers: Vec<(usize, Layer)>,
    weights: Vec<Weights>,
) -> Result<(Graph, Tensors), String> {
    let mut graph = Graph::new(Shape::vector(width));
    let (mut tensors, mut value) = (Vec::new(), 0);
    for ((i, layer), w) in layers.into_iter().zip(weights) {
        let name = format!("layers[{i}]");
        value = match layer {
            Layer::Affine { outputs, inputs } => {
                let arrays = [(Role::Weights, outputs, inputs), (Role::Biases, outputs, 1)];
                tensors.extend([w.weights, w.biases]);
                graph.push(name, Op::Affine, &[value], &arrays)?
            }
            Layer::Activation(a) => graph.push(name, Op::Activation(a), &[value], &[])?,
        };
    }
    Ok((graph, tensors))
}

/// The name of a network without one: its folder's, or its file's.
fn default_name(path: &Path) -> String {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("network");
    let folder = path.parent().and_then(Path::file_name).and_then(|s| s.to_str());
    match (stem, folder) {
        ("network", Some(folder)) => folder.to_string(),
        _ => stem.to_string(),
    }
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

fn read_output(
    o: &Object<'_>,
    last: Option<FinalActivation>,
    outputs: Option<usize>,
    mistakes: &mut Mistakes,
) -> Option<Output> {
    let Some(value) = o.get("output") else { return default_output(o, last, outputs?, mistakes) };
    let out = Object::new(value, o.at("output"), &["kind", "activation", "threshold"], mistakes)?;
    let kinds = [Kind::Classes, Kind::Binary, Kind::Multilabel, Kind::Values];
    out.require("kind", mistakes);
    let kind = out.text("kind", mistakes).and_then(|t| {
        let kind = kinds.iter().copied().find(|k| k.name() == t);
        if kind.is_none() {
            mistakes.add(
                out.at("kind"),
                format_args!("expected classes, binary, multilabel or values, found \"{t}\""),
            );
        }
        kind
    });
    let named = [FinalActivation::Softmax, FinalActivation::Sigmoid, FinalActivation::None];
    let activation = out.text("activation", mistakes).and_then(|t| {
        let activation = named.iter().copied().find(|a| a.name() == t);
        if activation.is_none() {
            mistakes
                .add(out.at("activation"), format_args!("expected softmax, sigmoid or none, found \"{t}\""));
        }
        activation
    });
    let threshold = out.number("threshold", mistakes);
    let kind = kind?;
    if let (Some(last), Some(activation)) = (last, activation) {
        if last != activation {
            mistakes.add(
                out.at("activation"),
                format_args!(
                    "the layers end in {}, this says {}; keep one of them",
                    last.name(),
                    activation.name()
                ),
            );
        }
    }
    if let (Kind::Binary, Some(outputs)) = (kind, outputs.filter(|&n| n != 1)) {
        mistakes.add(
            out.at("kind"),
            format_args!("binary takes 1 output, the last layer has {outputs}; two or more are \"classes\" or \"multilabel\""),
        );
    }
    if kind == Kind::Classes && outputs == Some(1) {
        mistakes.add(out.at("kind"), "1 output is never more than one class; use \"binary\" or \"values\"");
    }
    if threshold.is_some() && !matches!(kind, Kind::Binary | Kind::Multilabel) {
        mistakes
            .add(out.at("threshold"), format_args!("only binary and multilabel outputs have a threshold"));
    }
    if let Some(t) =
        threshold.filter(|t| !(0.0..=1.0).contains(t) && activation != Some(FinalActivation::None))
    {
        mistakes.add(out.at("threshold"), format_args!("expected a probability from 0 to 1, found {t}"));
    }
    let default = match kind {
        Kind::Classes => FinalActivation::Softmax,
        Kind::Binary | Kind::Multilabel => FinalActivation::Sigmoid,
        Kind::Values => FinalActivation::None,
    };
    let activation = last.or(activation).unwrap_or(default);
    if activation == FinalActivation::Softmax && matches!(kind, Kind::Binary | Kind::Multilabel) {
        mistakes.add(out.at("activation"), format_args!("softmax does not go with {}", kind.name()));
    }
    Some(Output { kind, activation, threshold: threshold.unwrap_or(0.5) })
}

/// What the last layer alone says about the output.
fn default_output(
    o: &Object<'_>,
    last: Option<FinalActivation>,
    outputs: usize,
    mistakes: &mut Mistakes,
) -> Option<Output> {
    let output = |kind, activation| Some(Output { kind, activation, threshold: 0.5 });
    match (outputs, last) {
        (1, Some(FinalActivation::Sigmoid)) => output(Kind::Binary, FinalActivation::Sigmoid),
        (1, _) => {
            mistakes.add(
                o.place(),
                "one output without a final SigmoidLayer: say what it means with \"output\": {\"kind\": \"binary\"} \
                 (a score, class 1 above the threshold) or \"output\": {\"kind\": \"values\"} (a number)",
            );
            None
        }
        (_, last) => output(Kind::Classes, last.unwrap_or(FinalActivation::Softmax)),
    }
}

fn read_input(o: &Object<'_>, width: Option<usize>, mistakes: &mut Mistakes) -> Option<Transform> {
    let Some(value) = o.get("input") else { return Some(Transform::Identity) };
    let i = Object::new(value, o.at("input"), &["scale", "offset", "mean", "std"], mistakes)?;
    let mut numbers = |key: &str, default: f64| {
        let list = i.numbers(key, mistakes).unwrap_or_else(|| vec![default]);
        if list.len() != 1 && width.is_some_and(|w| w != list.len()) {
            mistakes.add(
                i.at(key),
                format_args!(
                    "expected one number or {}, one per input, found {}",
                    width.unwrap_or(0),
                    list.len()
                ),
            );
        }
        list
    };
    let (scale, offset) = (numbers("scale", 1.0), numbers("offset", 0.0));
    let (mean, std) = (numbers("mean", 0.0), numbers("std", 1.0));
    let has = |key| i.get(key).is_some();
    match (has("scale") || has("offset"), has("mean") || has("std")) {
        (true, true) => {
            mistakes.add(i.place(), "expected scale and offset, or mean and std, found some of both");
            None
        }
        (false, false) => {
            mistakes.add(i.place(), "expected scale and offset, or mean and std");
            None
        }
        (true, false) => {
            nonzero(&i, "scale", &scale, mistakes);
            Some(Transform::ScaleOffset { scale: scale.into(), offset: offset.into() })
        }
        (false, true) => {
            nonzero(&i, "std", &std, mistakes);
            Some(Transform::MeanStd { mean: mean.into(), std: std.into() })
        }
    }
}

fn nonzero(i: &Object<'_>, key: &str, list: &[f64], mistakes: &mut Mistakes) {
    if let Some(at) = list.iter().position(|&v| v == 0.0) {
        mistakes.add(
            i.at(key),
            format_args!("entry {at} is 0; leave a constant input out of the network instead"),
        );
    }
}

/// Folds the input scaling into the first layer where that costs no precision: W'ᵢ = Wᵢ·fᵢ, b' = b + Σ Wᵢ·sᵢ for
/// z = x·f + s.
///
/// The bound: rounding W', b' and the sum to f32 loses 2⁻²³·(Σ|W'ᵢ|·|xᵢ| + |b'|), and |xᵢ| ≤ (1 + |sᵢ|)/|fᵢ| for
/// |zᵢ| ≤ 1. Relative to the layer's own magnitude, Σ|Wᵢ| + |b|, it must stay under [`FOLD_BOUND`]: far from zero
/// (a barometer at 101325 ± 300 Pa), x·f and s cancel and the fold would lose three digits.
fn fold(graph: &Graph, tensors: &mut [Vec<f32>], transform: Transform) -> (Transform, bool) {
    // All that reads the input must be one affine layer.
    let first = graph.only_consumer(0).map(|i| &graph.nodes[i]).filter(|n| n.op == Op::Affine);
    let (Some(&[w, b]), false) = (first.map(|n| &*n.tensors), transform == Transform::Identity) else {
        return (transform, false);
    };
    let inputs = graph.tensors[w].cols;
    let linear: Vec<(f64, f64)> = (0..inputs).map(|i| transform.linear(i)).collect();
    let mut folded = Weights::default();
    for (row, &b) in tensors[w].chunks_exact(inputs).zip(&tensors[b]) {
        let (mut bias, mut loss, mut magnitude) = (f64::from(b), 0.0, f64::from(b).abs());
        for (&w, &(f, s)) in row.iter().zip(&linear) {
            let w = f64::from(w);
            bias += w * s;
            loss += w.abs() * (1.0 + s.abs());
            magnitude += w.abs();
            folded.weights.push((w * f) as f32);
        }
        loss = (loss + bias.abs()) * 2f64.powi(-23);
        folded.biases.push(bias as f32);
        if loss > FOLD_BOUND * magnitude {
            return (transform, false);
        }
    }
    // A factor so small that a weight leaves the normal range of f32 loses digits too. (Weights that training has
    // driven to nothing, 1e-30 and less, lose nothing that matters.)
    let lost =
        |(&w, &before): (&f32, &f32)| !w.is_finite() || (w.abs() < f32::MIN_POSITIVE && before.abs() > 1e-30);
    if folded.weights.iter().zip(&tensors[w]).any(lost) || folded.biases.iter().any(|b| !b.is_finite()) {
        return (transform, false);
    }
    (tensors[w], tensors[b]) = (folded.weights, folded.biases);
    (Transform::Identity, true)
}

/// Rounds the weights to halves, and computes the golden scores anew: they are of the weights as baked.
fn round(
    network: &Network,
    tensors: &mut [Vec<f32>],
    golden: &mut Golden,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<Rounding> {
    /// The smallest half with eleven digits.
    const NORMAL: f32 = 1.0 / (1 << 14) as f32;
    let mut rounding = Rounding { weight: (0.0, 0.0), score: 0.0, classes: 0 };
    for (tensor, values) in network.graph.tensors.iter().zip(tensors.iter_mut()) {
        if tensor.role != Role::Weights {
            continue;
        }
        for value in values {
            let rounded = half::to_f32(half::from_f32(*value));
            if rounded.is_infinite() {
                mistakes.add(
                    format_args!("{place}: {}: weights", tensor.name),
                    format_args!("a half holds up to 65504, found {value}; MORTONNET_WEIGHTS=f32 bakes it"),
                );
                return None;
            }
            let error = f64::from((rounded - *value).abs());
            if value.abs() >= NORMAL {
                rounding.weight.0 = rounding.weight.0.max(error / f64::from(value.abs()));
            } else {
                rounding.weight.1 = rounding.weight.1.max(error);
            }
            *value = rounded;
        }
    }
    let before = std::mem::replace(&mut golden.scores, golden::scores_of(network, tensors, &golden.inputs));
    for (old, new) in before.chunks(network.outputs()).zip(golden.scores.chunks(network.outputs())) {
        let wide = |s: &[f32]| s.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
        let (old, new) = (wide(old), wide(new));
        rounding.score = old.iter().zip(&new).map(|(a, b)| (a - b).abs()).fold(rounding.score, f64::max);
        rounding.classes += usize::from(network.class(&old) != network.class(&new));
    }
    Some(rounding)
}

/// Identifies a network whatever the plan: its description, its weights as baked, its golden vectors.
fn hash(network: &Network, tensors: &[Vec<f32>], golden: &Golden) -> String {
    let mut sha = Sha256::new();
    sha.update(format!("{network:?}"));
    let mut update = |values: &[f32]| {
        sha.update((values.len() as u64).to_le_bytes());
        values.iter().for_each(|v| sha.update(v.to_le_bytes()));
    };
    tensors.iter().for_each(|values| update(values));
    update(&golden.inputs);
    update(&golden.scores);
    hex(&sha.finalize()[..8])
}
