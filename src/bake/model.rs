//! What all front ends share: the meaning of input and output, labels, golden vectors, rounding.

use super::draft::Draft;
use super::golden::{self, Golden};
use super::json::Object;
use super::matrix::Files;
use super::passes;
use super::{Mistakes, Rounding, Settings, overflow, rounding};
use crate::block::hex;
use crate::ir::graph::{Shape, Tensors, Value};
use crate::ir::network::{
    FinalActivation, InputOrder, Kind, Network, Output, Precision, Range, Transform,
};
use crate::ops::bound::score_bound;
use crate::ops::random::Random;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::PathBuf;

/// A network with its weights as they will be baked, its golden vectors, and what rounding them
/// did.
pub(crate) type Read = (Network, Tensors, Golden, Option<Rounding>);

/// Keys that a network JSON, and the JSON beside a model of another format, may have.
pub(crate) const KEYS: [&str; 6] = ["name", "labels", "features", "input", "output", "check"];

/// Keys of `input`; the first is of files that say the shape there.
const INPUT_KEYS: [&str; 6] = ["shape", "order", "scale", "offset", "mean", "std"];

/// Keys of `output`; the first is of files beside a model that may have several.
const OUTPUT_KEYS: [&str; 4] = ["name", "kind", "activation", "threshold"];

/// What a front end knows of a model. `None` is what mistakes, which are reported, keep it from
/// knowing.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// The folder that paths count from.
    pub(crate) folder: PathBuf,
    /// Its name where no key gives another.
    pub(crate) name: String,
    /// The shape of its input.
    pub(crate) input: Option<Shape>,
    /// Whether the front end takes the shape from the key `input`, where it is.
    pub(crate) shaped: bool,
    /// The order of a record's values where no key gives another.
    pub(crate) order: InputOrder,
    /// The shape of its output.
    pub(crate) outputs: Option<Shape>,
    /// The function behind the last values, which is not in the draft.
    pub(crate) last: Option<FinalActivation>,
    /// What the model itself says of its output.
    pub(crate) output: Option<Output>,
    /// Labels that the model itself has.
    pub(crate) labels: Vec<String>,
    /// Its inputs and its outputs by their names, where it has several.
    pub(crate) several: (Vec<Value>, Vec<Value>),
    /// What is computed, as the file has it.
    pub(crate) draft: Option<Draft>,
    /// What the format calls a final sigmoid.
    pub(crate) sigmoid: &'static str,
    /// Where keys stand that the file itself cannot have: ` in net.json beside the model`.
    pub(crate) keys_in: String,
}

/// Inputs that are so many times as large as the golden vectors are no measurements.
const NEAR: f32 = 1e6;

/// True if a record overflows whose numbers are [`NEAR`] times as large as those of the golden
/// vectors: some of them, with either sign, and records of one size, whose signs are all the same
/// or random.
fn overflows_near(network: &Network, tensors: &[Vec<f32>], golden: &Golden, largest: f32) -> bool {
    let (width, mut random) = (network.width, Random::new(1));
    let some = &golden.inputs[..golden.count.min(4) * width];
    let mut larger: Vec<f32> = some.iter().map(|v| v * NEAR).collect();
    larger.extend(
        (0..3 * width).map(|i| if i < width || random.below(2) == 0 { NEAR } else { -NEAR } * largest),
    );
    let turned: Vec<f32> = larger.iter().map(|v| -v).collect();
    larger.extend(turned);
    network
        .scores_of_all(tensors, &larger)
        .iter()
        .flatten()
        .any(|score| !score.is_finite())
}

/// Reads what the keys of `o` say, and makes a network of it all. Mistakes beyond the first
/// `before` are this model's.
pub(crate) fn finish(
    settings: &Settings,
    given: Given,
    o: &Object<'_>,
    before: usize,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<Read> {
    let name = o
        .text("name", mistakes)
        .map_or(given.name.clone(), String::from);
    let labels = o.texts("labels", mistakes).unwrap_or(given.labels.clone());
    let features = o.texts("features", mistakes).unwrap_or_default();
    let output = read_output(o, &given, mistakes);
    let input = read_input(o, &given, mistakes);
    check_names(o, &given, (&name, &labels, &features), output, mistakes);
    if mistakes.lines.len() > before {
        return None;
    }
    let (draft, output, (order, transform)) = (given.draft?, output?, input?);
    let owned = |v: Vec<String>| v.into_iter().map(Into::into).collect::<Vec<_>>().into();
    // The network as the file has it: golden vectors are what this one computes.
    let mut network = Network {
        name: name.into(),
        hash: "".into(),
        width: draft.shape(draft.graph.inputs[0]).len(),
        order,
        graph: draft.graph.clone(),
        output,
        labels: owned(labels),
        features: owned(features),
        transform,
        folded: false,
        weights: settings.weights,
        inputs: given.several.0.into(),
        outputs: given.several.1.into(),
    };
    let as_given = draft.rounded();
    let (mut draft, transform) = match passes::run(draft, network.transform.clone(), order) {
        Ok(changed) => changed,
        Err(e) => {
            mistakes.add(o.place(), e);
            return None;
        }
    };
    if draft.graph.nodes.is_empty() {
        mistakes.add(
            o.place(),
            "it has no layers: scaling its input and a final function are all that it does",
        );
        return None;
    }
    let mut golden = match o.get("check") {
        Some(check) => golden::read(
            check,
            &o.at("check"),
            &given.folder,
            &network,
            &as_given,
            files,
            mistakes,
        )?,
        None => golden::synthetic(&network, &as_given, &transform),
    };
    if golden
        .inputs
        .iter()
        .chain(&golden.scores)
        .any(|v| !v.is_finite())
    {
        let record = |x: &[f32]| {
            let raw: Vec<f64> = x.iter().map(|&v| v.into()).collect();
            network
                .overflow(&as_given, &raw)
                .map(|(node, value)| format!("{node} reaches {value:.1e}"))
        };
        let node = golden.inputs.chunks_exact(network.width).find_map(record);
        let node = node.map_or(String::new(), |node| {
            format!(" ({node}, f32 holds up to {:.1e})", f32::MAX)
        });
        let what = "inputs that the scaling maps to its usual range leave the range of f32, or \
            values computed of them do";
        mistakes.add(
            o.place(),
            format_args!("{what}{node}; check the scaling and the weights"),
        );
        return None;
    }
    let mut tensors = draft.rounded();
    let changed =
        draft.graph != network.graph || tensors != as_given || transform != network.transform;
    (network.graph, network.transform) = (draft.graph.clone(), transform.clone());
    if changed {
        let scores = golden::scores_of(&network, &tensors, &golden.inputs);
        if let Some((record, output, given, found)) = differ(&network, &golden.scores, &scores) {
            mistakes.add(
                o.place(),
                format_args!(
                    "golden vector {}, output {output}: {given} as given, {found} with batch \
                     norm, scaling and borders \
                     folded into the weights; weights of such sizes lose too many digits in f32",
                    record + 1
                ),
            );
            return None;
        }
        golden.scores = scores;
    }
    // Folding makes weights of 8-bit images so small that halves would lose digits: then the reader
    // scales.
    if settings.weights == Precision::F32 {
        let (folded, done) = passes::scaling::fold(&mut draft, order, transform);
        if done {
            let with = Network {
                transform: folded,
                folded: done,
                ..network.clone()
            };
            let rounded = draft.rounded();
            let scores = golden::scores_of(&with, &rounded, &golden.inputs);
            if differ(&network, &golden.scores, &scores).is_none() {
                (network, tensors, golden.scores) = (with, rounded, scores);
            }
        }
    }
    let rounding = rounding::round(
        settings,
        &network,
        &mut tensors,
        &mut golden,
        o.place(),
        mistakes,
    )?;
    golden.overflow = overflow::records(&network, &tensors);
    let largest = golden
        .inputs
        .iter()
        .fold(0.0f32, |most, v| most.max(v.abs()));
    let mut up_to = overflow::reach(&network, &tensors);
    if up_to < largest {
        // Whether a sum leaves the range must not depend on the order in which a device adds it up.
        let partial = |record: &[f32]| overflow::partial(&network, &tensors, record);
        if let Some((node, size)) = golden.inputs.chunks_exact(network.width).find_map(partial) {
            mistakes.add(
                o.place(),
                format_args!(
                    "sums of its golden vectors leave the range of f32 on the way ({node} reaches \
                     {size:.1e} before terms of \
                     other signs are added, f32 holds up to {:.1e}); check the scaling and the \
                     weights",
                    f32::MAX
                ),
            );
            return None;
        }
        // A bound below inputs that are known to be fine says nothing: deep networks have such
        // bounds.
        up_to = 0.0;
    }
    let near = up_to < NEAR * largest && overflows_near(&network, &tensors, &golden, largest);
    golden.range = Range { up_to, near };
    if near {
        let said = golden.range;
        mistakes.note(
            o.place(),
            format_args!("{said}; the golden vectors have numbers up to {largest}"),
        );
    }
    network.hash = hash(&network, &tensors, &golden).into();
    Some((network, tensors, golden, rounding))
}

/// The first score that is not the same: record, output, the two.
fn differ(network: &Network, given: &[f32], found: &[f32]) -> Option<(usize, usize, f32, f32)> {
    let close = |a: f32, b: f32| f64::from((a - b).abs()) <= score_bound(a.into());
    let i = given.iter().zip(found).position(|(&a, &b)| !close(a, b))?;
    Some((
        i / network.outputs(),
        i % network.outputs(),
        given[i],
        found[i],
    ))
}

/// Checks names: of the network, of its classes or outputs, of its inputs.
fn check_names(
    o: &Object<'_>,
    given: &Given,
    (name, labels, features): (&String, &[String], &[String]),
    output: Option<Output>,
    mistakes: &mut Mistakes,
) {
    if let (Some(width), false) = (given.input.map(Shape::len), features.is_empty()) {
        if features.len() != width {
            mistakes.add(
                o.at("features"),
                format_args!("expected {width} names, found {}", features.len()),
            );
        }
    }
    if let (Some(output), Some(n), false) =
        (output, given.outputs.map(Shape::len), labels.is_empty())
    {
        let expected = if output.kind == Kind::Binary { 2 } else { n };
        if labels.len() != expected {
            mistakes.add(
                o.at("labels"),
                format_args!("expected {expected} names, found {}", labels.len()),
            );
        }
    }
    for (key, names) in [
        ("name", std::slice::from_ref(name)),
        ("labels", labels),
        ("features", features),
    ] {
        if let Some(bad) = names
            .iter()
            .find(|n| n.is_empty() || n.contains(|c: char| c.is_control()))
        {
            mistakes.add(
                o.at(key),
                format_args!("{bad:?}: expected a name without line breaks and control characters"),
            );
        }
    }
    // The reader takes a first line with a feature's name in it for a header, unless that name is a
    // number.
    if let (Some(first), true) = (
        features.first(),
        features.iter().all(|f| f.trim().parse::<f64>().is_ok()),
    ) {
        mistakes.add(
            o.at("features"),
            format_args!(
                "expected names that are not all numbers, found \"{first}\" and the like: a CSV \
                 header of them cannot be \
                 told from a record; give names, or leave the key out and the header away"
            ),
        );
    }
    for (key, names) in [("labels", labels), ("features", features)] {
        // Files name them with blanks around or without.
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(name.trim())) {
            let blanks =
                if *twice == twice.trim() && names.iter().filter(|n| *n == twice).count() > 1 {
                    ""
                } else {
                    ", with other blanks"
                };
            mistakes.add(
                o.at(key),
                format_args!("\"{twice}\" is there twice{blanks}"),
            );
        }
    }
    let number =
        |(i, label): &(usize, &String)| label.trim().parse::<usize>().is_ok_and(|n| n != *i);
    if let Some((i, label)) = labels.iter().enumerate().find(number) {
        mistakes.note(
            o.at("labels"),
            format_args!(
                "class {i} is called \"{label}\": -o class prints the index {i}, -o label the \
                 label {label}; --expect takes \
                 numbers for labels where all of them are, and says so"
            ),
        );
    }
}

fn read_output(o: &Object<'_>, given: &Given, mistakes: &mut Mistakes) -> Option<Output> {
    let (last, outputs) = (given.last, given.outputs.map(Shape::len));
    let Some(value) = o.get("output") else {
        return given.output.or_else(|| default_output(o, given, mistakes));
    };
    let out = Object::new(
        value,
        o.at("output"),
        &OUTPUT_KEYS[usize::from(given.shaped)..],
        mistakes,
    )?;
    let kinds = [Kind::Classes, Kind::Binary, Kind::Multilabel, Kind::Values];
    if out.text("name", mistakes).is_some() && out.get("kind").is_none() {
        for key in ["activation", "threshold"]
            .into_iter()
            .filter(|key| out.get(key).is_some())
        {
            mistakes.add(out.at(key), "expected the key \"kind\" beside it");
        }
        return given.output.or_else(|| default_output(o, given, mistakes));
    }
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
    let named = [
        FinalActivation::Softmax,
        FinalActivation::Sigmoid,
        FinalActivation::None,
    ];
    let activation = out.text("activation", mistakes).and_then(|t| {
        let activation = named.iter().copied().find(|a| a.name() == t);
        if activation.is_none() {
            mistakes.add(
                out.at("activation"),
                format_args!("expected softmax, sigmoid or none, found \"{t}\""),
            );
        }
        activation
    });
    let threshold = out.number("threshold", mistakes);
    let kind = kind?;
    if kind != Kind::Values && !given.several.1.is_empty() {
        let way = if given.shaped {
            ""
        } else {
            "; \"name\" beside it takes one of them alone"
        };
        mistakes.add(
            out.at("kind"),
            format_args!(
                "expected values, as the network has {} outputs, found {}{way}",
                given.several.1.len(),
                kind.name()
            ),
        );
    }
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
            format_args!(
                "binary takes 1 output, the last layer has {outputs}; two or more are \
                \"classes\" or \"multilabel\""
            ),
        );
    }
    if kind == Kind::Classes && outputs == Some(1) {
        mistakes.add(
            out.at("kind"),
            "1 output is never more than one class; use \"binary\" or \"values\"",
        );
    }
    if threshold.is_some() && !matches!(kind, Kind::Binary | Kind::Multilabel) {
        mistakes.add(
            out.at("threshold"),
            format_args!("only binary and multilabel outputs have a threshold"),
        );
    }
    if let Some(t) =
        threshold.filter(|t| !(0.0..=1.0).contains(t) && activation != Some(FinalActivation::None))
    {
        mistakes.add(
            out.at("threshold"),
            format_args!("expected a probability from 0 to 1, found {t}"),
        );
    }
    let default = match kind {
        Kind::Classes => FinalActivation::Softmax,
        Kind::Binary | Kind::Multilabel => FinalActivation::Sigmoid,
        Kind::Values => FinalActivation::None,
    };
    let activation = last.or(activation).unwrap_or(default);
    if activation == FinalActivation::Softmax && matches!(kind, Kind::Binary | Kind::Multilabel) {
        mistakes.add(
            out.at("activation"),
            format_args!("softmax does not go with {}", kind.name()),
        );
    }
    Some(Output {
        kind,
        activation,
        threshold: threshold.unwrap_or(0.5),
    })
}

/// What the last layer alone says about the output.
fn default_output(o: &Object<'_>, given: &Given, mistakes: &mut Mistakes) -> Option<Output> {
    let output = |kind, activation| {
        Some(Output {
            kind,
            activation,
            threshold: 0.5,
        })
    };
    match (given.outputs?, given.last) {
        (Shape { c: 1, h: 1, w: 1 }, Some(FinalActivation::Sigmoid)) => {
            output(Kind::Binary, FinalActivation::Sigmoid)
        }
        (Shape { c: 1, h: 1, w: 1 }, _) => {
            mistakes.add(
                o.place(),
                format_args!(
                    "one output without a final {}: say what it means with \"output\": \
                     {{\"kind\": \"binary\"}} \
                     (a score, class 1 above the threshold) or \"output\": {{\"kind\": \
                     \"values\"}} (a number){}",
                    given.sigmoid, given.keys_in
                ),
            );
            None
        }
        (Shape { h: 1, w: 1, .. }, last) => {
            output(Kind::Classes, last.unwrap_or(FinalActivation::Softmax))
        }
        // Pixels are no classes.
        (_, last) => output(Kind::Values, last.unwrap_or(FinalActivation::None)),
    }
}

/// How a record's values are ordered and scaled.
fn read_input(
    o: &Object<'_>,
    given: &Given,
    mistakes: &mut Mistakes,
) -> Option<(InputOrder, Transform)> {
    let Some(value) = o.get("input") else {
        return Some((given.order, Transform::Identity));
    };
    let i = Object::new(
        value,
        o.at("input"),
        &INPUT_KEYS[usize::from(!given.shaped)..],
        mistakes,
    )?;
    let orders = [("chw", InputOrder::Chw), ("hwc", InputOrder::Hwc)];
    let order = match i.text("order", mistakes) {
        None => given.order,
        Some(name) => match orders.iter().find(|o| o.0 == name) {
            Some(order) => order.1,
            None => {
                mistakes.add(
                    i.at("order"),
                    format_args!("expected chw or hwc, found \"{name}\""),
                );
                return None;
            }
        },
    };
    let mut numbers = |key: &str, default: f64| {
        let list = i.numbers(key, mistakes).unwrap_or_else(|| vec![default]);
        match given.input {
            Some(shape) if list.len() != 1 && list.len() != shape.len() => {
                let channels = if shape.len() == shape.c || shape.c == 1 {
                    String::new()
                } else {
                    format!(", or {}, one per channel", shape.c)
                };
                if list.len() == shape.c {
                    let channel = |i| order.element(shape, i) / (shape.h * shape.w);
                    return (0..shape.len()).map(|i| list[channel(i)]).collect();
                }
                mistakes.add(
                    i.at(key),
                    format_args!(
                        "expected one number or {}, one per input{channels}, found {}",
                        shape.len(),
                        list.len()
                    ),
                );
                list
            }
            _ => list,
        }
    };
    let (scale, offset) = (numbers("scale", 1.0), numbers("offset", 0.0));
    let (mean, std) = (numbers("mean", 0.0), numbers("std", 1.0));
    let has = |key| i.get(key).is_some();
    match (has("scale") || has("offset"), has("mean") || has("std")) {
        (true, true) => {
            mistakes.add(
                i.place(),
                "expected scale and offset, or mean and std, found some of both",
            );
            None
        }
        (false, false) if has("order") || has("shape") => Some((order, Transform::Identity)),
        (false, false) => {
            mistakes.add(i.place(), "expected scale and offset, or mean and std");
            None
        }
        (true, false) => {
            nonzero(&i, "scale", &scale, mistakes);
            Some((
                order,
                Transform::ScaleOffset {
                    scale: scale.into(),
                    offset: offset.into(),
                },
            ))
        }
        (false, true) => {
            nonzero(&i, "std", &std, mistakes);
            Some((
                order,
                Transform::MeanStd {
                    mean: mean.into(),
                    std: std.into(),
                },
            ))
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

/// Identifies a network whatever the plan: its description, its weights as baked, its golden
/// vectors.
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
