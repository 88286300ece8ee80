//! Reads the JSON keys that say what a model's input and output mean: names, labels, order, scaling
//! and kind of output.

use super::Mistakes;
use super::json::Object;
use super::model::ModelFacts;
use crate::ir::graph::Shape;
use crate::ir::network::{ByteInput, FinalActivation, InputOrder, Kind, Output, Transform};
use std::collections::HashSet;

/// The keys that give the meaning of input and output. They are allowed in a network JSON and in
/// the JSON file beside a model of another format.
pub(crate) const KEYS: [&str; 7] = [
    "name", "labels", "features", "input", "output", "check", "quantize",
];

/// All keys that are allowed in the JSON file beside an ONNX or TensorFlow Lite model.
pub(crate) const BESIDE: [&str; 8] = [
    "name", "labels", "features", "input", "output", "check", "quantize", "sizes",
];

/// The keys that are allowed in `input`. The first, `shape`, is only for network JSONs, which state
/// the shape of the input there.
const INPUT_KEYS: [&str; 6] = ["shape", "order", "scale", "offset", "mean", "std"];

/// The keys that are allowed in `output`. The first, `name`, is only for a JSON file beside a
/// model, which may select one of several outputs.
const OUTPUT_KEYS: [&str; 4] = ["name", "kind", "activation", "threshold"];

/// The meaning of a model's input and output, from its JSON keys or from the model itself.
pub(super) struct Meaning {
    pub(super) name: String,
    pub(super) labels: Vec<String>,
    pub(super) features: Vec<String>,
    pub(super) output: Output,
    pub(super) order: InputOrder,
    pub(super) transform: Transform,
    pub(super) bytes: Option<ByteInput>,
}

impl Meaning {
    /// Reads the keys of the JSON object `o`. If a key is missing, `facts` of the model file are
    /// used. `None` after a mistake.
    pub(super) fn read(
        o: &Object<'_>,
        facts: &ModelFacts,
        mistakes: &mut Mistakes,
    ) -> Option<Meaning> {
        let name = o.text("name", mistakes).unwrap_or(&facts.name).to_string();
        let labels = o.texts("labels", mistakes);
        let labels = labels.unwrap_or_else(|| facts.labels.clone());
        let features = o.texts("features", mistakes).unwrap_or_default();
        let mut reader = MeaningReader { o, facts, mistakes };
        let output = reader.output();
        let input = reader.input();
        reader.check_counts(&labels, &features, output);
        reader.check_names(&name, &labels, &features);
        let (order, transform) = input?;
        Some(Meaning {
            name,
            labels,
            features,
            output: output?,
            order,
            bytes: facts.bytes.filter(|_| transform == Transform::Identity),
            transform,
        })
    }
}

/// Reads keys of a JSON object, and reports mistakes in them.
struct MeaningReader<'m, 'v> {
    o: &'m Object<'v>,
    facts: &'m ModelFacts,
    mistakes: &'m mut Mistakes,
}

impl MeaningReader<'_, '_> {
    /// Checks that `features` has as many names as the network has inputs. `labels` must have as
    /// many names as there are classes or outputs.
    fn check_counts(&mut self, labels: &[String], features: &[String], output: Option<Output>) {
        let mut check = |key: &str, names: &[String], expected: usize| {
            if !names.is_empty() && names.len() != expected {
                self.mistakes.add(
                    self.o.at(key),
                    format_args!("expected {expected} names, found {}", names.len()),
                );
            }
        };
        if let Some(shape) = self.facts.input_shape {
            check("features", features, shape.len());
        }
        if let (Some(output), Some(shape)) = (output, self.facts.output_shape) {
            let binary = output.kind == Kind::Binary;
            check("labels", labels, if binary { 2 } else { shape.len() });
        }
    }

    /// Checks the names of the network, of its classes or outputs, and of its input values.
    fn check_names(&mut self, name: &String, labels: &[String], features: &[String]) {
        for (key, names) in [
            ("name", std::slice::from_ref(name)),
            ("labels", labels),
            ("features", features),
        ] {
            if let Some(bad) = names
                .iter()
                .find(|n| n.is_empty() || n.contains(|c: char| c.is_control()))
            {
                self.mistakes.add(
                    self.o.at(key),
                    format_args!(
                        "{bad:?}: expected a name without line breaks and control characters"
                    ),
                );
            }
        }
        // The program takes the first line of a CSV for a header if it has a feature's name that is
        // not a number. So names that are all numbers are refused.
        if let (Some(first), true) = (
            features.first(),
            features.iter().all(|f| f.trim().parse::<f64>().is_ok()),
        ) {
            self.mistakes.add(
                self.o.at("features"),
                format_args!(
                    "expected names that are not all numbers, found \"{first}\" and the like: a \
                     CSV header of them cannot be told from a record; give names, or leave out \
                     both the key and the header"
                ),
            );
        }
        for (key, names) in [("labels", labels), ("features", features)] {
            // Labels are compared without the blanks around them, because files of expected labels
            // may have other blanks.
            let mut seen = HashSet::new();
            if let Some(twice) = names.iter().find(|name| !seen.insert(name.trim())) {
                let blanks =
                    if *twice == twice.trim() && names.iter().filter(|n| *n == twice).count() > 1 {
                        ""
                    } else {
                        ", with other blanks"
                    };
                self.mistakes.add(
                    self.o.at(key),
                    format_args!("\"{twice}\" appears twice{blanks}"),
                );
            }
        }
        let number =
            |(i, label): &(usize, &String)| label.trim().parse::<usize>().is_ok_and(|n| n != *i);
        if let Some((i, label)) = labels.iter().enumerate().find(number) {
            self.mistakes.note(
                self.o.at("labels"),
                format_args!(
                    "class {i} is called \"{label}\": -o class prints the index {i}, -o label the \
                     label {label}; --expect reads numbers as labels if all labels are numbers, \
                     and says so"
                ),
            );
        }
    }

    /// Returns the meaning of the output, from the JSON key `output` or else from the model itself.
    /// `None` after a mistake.
    fn output(&mut self) -> Option<Output> {
        let Some(value) = self.o.get("output") else {
            return self.facts.output.or_else(|| self.default_output());
        };
        let keys = &OUTPUT_KEYS[usize::from(self.facts.shaped)..];
        let out = Object::new(value, self.o.at("output"), keys, self.mistakes)?;
        if out.text("name", self.mistakes).is_some() && out.get("kind").is_none() {
            for key in ["activation", "threshold"] {
                if out.get(key).is_some() {
                    self.mistakes
                        .add(out.at(key), "expected the key \"kind\" beside it");
                }
            }
            return self.facts.output.or_else(|| self.default_output());
        }
        out.require("kind", self.mistakes);
        let kinds = [Kind::Classes, Kind::Binary, Kind::Multilabel, Kind::Values];
        let kind = out.text("kind", self.mistakes).and_then(|t| {
            let kind = kinds.into_iter().find(|k| k.name() == t);
            if kind.is_none() {
                self.mistakes.add(
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
        let activation = out.text("activation", self.mistakes).and_then(|t| {
            let activation = named.into_iter().find(|a| a.name() == t);
            if activation.is_none() {
                self.mistakes.add(
                    out.at("activation"),
                    format_args!("expected softmax, sigmoid or none, found \"{t}\""),
                );
            }
            activation
        });
        let threshold = out.number("threshold", self.mistakes);
        let kind = kind?;
        self.check_kind(&out, kind, activation);
        self.check_threshold(&out, kind, activation, threshold);
        let default = match kind {
            Kind::Classes => FinalActivation::Softmax,
            Kind::Binary | Kind::Multilabel => FinalActivation::Sigmoid,
            Kind::Values => FinalActivation::None,
        };
        let activation = self.facts.last.or(activation).unwrap_or(default);
        if activation == FinalActivation::Softmax && matches!(kind, Kind::Binary | Kind::Multilabel)
        {
            self.mistakes.add(
                out.at("activation"),
                format_args!(
                    "expected sigmoid or none for {} outputs, found softmax",
                    kind.name()
                ),
            );
        }
        Some(Output {
            kind,
            activation,
            threshold: threshold.unwrap_or(0.5),
        })
    }

    /// Checks that the kind of output that the key `output` states fits the model.
    fn check_kind(&mut self, out: &Object<'_>, kind: Kind, activation: Option<FinalActivation>) {
        if kind != Kind::Values && !self.facts.outputs.is_empty() {
            let way = match self.facts.shaped {
                true => "",
                false => "; \"name\" beside it selects one of them",
            };
            self.mistakes.add(
                out.at("kind"),
                format_args!(
                    "expected values, as the network has {} outputs, found {}{way}",
                    self.facts.outputs.len(),
                    kind.name()
                ),
            );
        }
        if let (Some(last), Some(activation)) = (self.facts.last, activation) {
            if last != activation {
                self.mistakes.add(
                    out.at("activation"),
                    format_args!(
                        "the layers end in {}, this says {}; keep one of them",
                        last.name(),
                        activation.name()
                    ),
                );
            }
        }
        match (kind, self.facts.output_shape.map(Shape::len)) {
            (Kind::Binary, Some(outputs)) if outputs != 1 => self.mistakes.add(
                out.at("kind"),
                format_args!(
                    "binary takes 1 output, the last layer has {outputs}; two or more are \
                     \"classes\" or \"multilabel\""
                ),
            ),
            (Kind::Classes, Some(1)) => self.mistakes.add(
                out.at("kind"),
                "expected at least 2 outputs for classes, found 1; use \"binary\" or \"values\"",
            ),
            _ => {}
        }
    }

    /// Checks a threshold that the JSON states. Only some kinds of output may have a threshold. It
    /// must be a probability, unless the JSON states that there is no activation.
    fn check_threshold(
        &mut self,
        out: &Object<'_>,
        kind: Kind,
        activation: Option<FinalActivation>,
        threshold: Option<f64>,
    ) {
        let Some(threshold) = threshold else { return };
        if !matches!(kind, Kind::Binary | Kind::Multilabel) {
            self.mistakes.add(
                out.at("threshold"),
                "only binary and multilabel outputs have a threshold",
            );
        }
        if !(0.0..=1.0).contains(&threshold) && activation != Some(FinalActivation::None) {
            self.mistakes.add(
                out.at("threshold"),
                format_args!("expected a probability from 0 to 1, found {threshold}"),
            );
        }
    }

    /// Returns the meaning of the output if no key states it. It follows from the output's shape
    /// and the final activation. `None` after a mistake.
    fn default_output(&mut self) -> Option<Output> {
        let output = |kind, activation| {
            Some(Output {
                kind,
                activation,
                threshold: 0.5,
            })
        };
        match (self.facts.output_shape?, self.facts.last) {
            (Shape { c: 1, h: 1, w: 1 }, Some(FinalActivation::Sigmoid)) => {
                output(Kind::Binary, FinalActivation::Sigmoid)
            }
            (Shape { c: 1, h: 1, w: 1 }, _) => {
                self.mistakes.add(
                    self.o.place(),
                    format_args!(
                        "one output without a final {}: say what it means with \"output\": \
                         {{\"kind\": \"binary\"}} (a score, class 1 above the threshold) or \
                         \"output\": {{\"kind\": \"values\"}} (a number){}",
                        self.facts.sigmoid, self.facts.keys_in
                    ),
                );
                None
            }
            (Shape { h: 1, w: 1, .. }, last) => {
                output(Kind::Classes, last.unwrap_or(FinalActivation::Softmax))
            }
            // An image as output gets the kind `values`, because its pixels are numbers, not
            // classes.
            (_, last) => output(Kind::Values, last.unwrap_or(FinalActivation::None)),
        }
    }

    /// Returns the order of a record's values and their scaling, from the JSON key `input`. `None`
    /// after a mistake.
    fn input(&mut self) -> Option<(InputOrder, Transform)> {
        let Some(value) = self.o.get("input") else {
            return Some((self.facts.order, Transform::Identity));
        };
        let keys = &INPUT_KEYS[usize::from(!self.facts.shaped)..];
        let i = Object::new(value, self.o.at("input"), keys, self.mistakes)?;
        let order = match i.text("order", self.mistakes) {
            None => self.facts.order,
            Some("chw") => InputOrder::Chw,
            Some("hwc") => InputOrder::Hwc,
            Some(name) => {
                self.mistakes.add(
                    i.at("order"),
                    format_args!("expected chw or hwc, found \"{name}\""),
                );
                return None;
            }
        };
        let mut numbers = |key: &str, default: f64| {
            let list = i
                .numbers(key, self.mistakes)
                .unwrap_or_else(|| vec![default]);
            self.per_value(&i, key, list, order)
        };
        let (scale, offset) = (numbers("scale", 1.0), numbers("offset", 0.0));
        let (mean, std) = (numbers("mean", 0.0), numbers("std", 1.0));
        let has = |key| i.get(key).is_some();
        let transform = match (has("scale") || has("offset"), has("mean") || has("std")) {
            (true, true) => {
                self.mistakes.add(
                    i.place(),
                    "expected scale and offset, or mean and std, found some of both",
                );
                return None;
            }
            (false, false) if has("order") || has("shape") => Transform::Identity,
            (false, false) => {
                self.mistakes
                    .add(i.place(), "expected scale and offset, or mean and std");
                return None;
            }
            (true, false) => {
                self.check_nonzero(&i, "scale", &scale);
                Transform::ScaleOffset {
                    scale: scale.into(),
                    offset: offset.into(),
                }
            }
            (false, true) => {
                self.check_nonzero(&i, "std", &std);
                Transform::MeanStd {
                    mean: mean.into(),
                    std: std.into(),
                }
            }
        };
        Some((order, transform))
    }

    /// Expands `list` to one number for each value of a record, if it has one for each channel. A
    /// list with one number for all values stays as it is. A list of any other length is reported
    /// and returned unchanged.
    fn per_value(
        &mut self,
        i: &Object<'_>,
        key: &str,
        list: Vec<f64>,
        order: InputOrder,
    ) -> Vec<f64> {
        let Some(shape) = self.facts.input_shape else {
            return list;
        };
        if list.len() == 1 || list.len() == shape.len() {
            return list;
        }
        if list.len() == shape.c {
            let channel = |i| order.element(shape, i) / (shape.h * shape.w);
            return (0..shape.len()).map(|i| list[channel(i)]).collect();
        }
        let channels = match shape.len() == shape.c || shape.c == 1 {
            true => String::new(),
            false => format!(", or {}, one per channel", shape.c),
        };
        self.mistakes.add(
            i.at(key),
            format_args!(
                "expected one number or {}, one per input{channels}, found {}",
                shape.len(),
                list.len()
            ),
        );
        list
    }

    fn check_nonzero(&mut self, i: &Object<'_>, key: &str, list: &[f64]) {
        if let Some(at) = list.iter().position(|&v| v == 0.0) {
            self.mistakes.add(
                i.at(key),
                format_args!("entry {at} is 0; leave a constant input out of the network instead"),
            );
        }
    }
}
