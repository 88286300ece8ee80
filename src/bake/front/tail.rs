//! The end of a model: the value that the program puts out, and its meaning.

use super::constant::texts;
use super::value::{Live, ModelValue, standard};
use crate::bake::draft::Draft;
use crate::ir::graph::{self, Shape};
use crate::ir::network::{FinalActivation, Kind, Output};
use crate::ir::op::{Activation, Arithmetic, Axis, OfChannels, Op};

/// The output of a model, with its final function and its meaning.
#[derive(Debug, PartialEq)]
pub(super) struct Tail {
    /// The index of the value that the draft computes for output, in front of the final function.
    pub(super) value: usize,
    /// The final function (softmax, sigmoid, tanh) to apply to that value, if there is one.
    pub(super) last: Option<FinalActivation>,
    /// The kind, activation and threshold of the output, if the model states them.
    pub(super) output: Option<Output>,
    /// The names of the model's classes. Empty if the model has none.
    pub(super) labels: Vec<String>,
    /// The names and shapes of a model's several outputs, which `value` joins into one vector.
    /// Empty if there is only one output.
    pub(super) outputs: Vec<graph::Value>,
}

/// The meaning of an output that is plain numbers, such as a regressor's.
pub(super) const NUMBERS: Output = Output {
    kind: Kind::Values,
    activation: FinalActivation::None,
    threshold: 0.5,
};

/// A model's outputs, sorted by kind.
#[derive(Default)]
struct Sorted {
    /// The outputs that are numbers, including probabilities.
    scores: Vec<Live>,
    /// The indices of the values from which the class outputs take their arg-max.
    classes: Vec<usize>,
    flags: Vec<(Live, f64)>,
    labels: Option<Vec<String>>,
    /// True if an output is a map from class names to probabilities.
    map: bool,
}

impl Sorted {
    fn of(outputs: &[(String, ModelValue)]) -> Result<Sorted, String> {
        let mut sorted = Sorted::default();
        for (name, value) in outputs {
            match value {
                ModelValue::Live(live) => sorted.scores.push(live.clone()),
                ModelValue::Map(live, names) => {
                    (sorted.map, sorted.labels) = (true, Some(texts(names)));
                    sorted.scores.push(live.clone());
                }
                ModelValue::Class(class) => {
                    if let Some(names) = &class.labels {
                        sorted.labels = Some(texts(names));
                    }
                    sorted.classes.push(class.scores);
                }
                ModelValue::Flags(live, threshold) => sorted.flags.push((live.clone(), *threshold)),
                ModelValue::Constant(_) => return Err(format!("output {name} is a constant")),
                ModelValue::Unknown => return Err(format!("output {name} cannot be computed")),
            }
        }
        Ok(sorted)
    }

    /// Returns true if the outputs are several results, not several forms of one result.
    /// Probabilities and a map of the same probabilities to class names are one result.
    fn several(&mut self, outputs: &[(String, ModelValue)]) -> bool {
        let live = |(_, value): &&(String, ModelValue)| matches!(value, ModelValue::Live(_));
        let (classes, flags) = (self.classes.len(), self.flags.len());
        if outputs.iter().filter(live).count() > 1 && classes + flags == 0 && !self.map {
            return true;
        }
        self.scores.dedup();
        self.scores.len() > 1 || classes + flags > 1
    }
}

/// Finds the value that the program puts out and its meaning, from all named outputs of a model.
/// `values` is true if the user asks for numbers, not classes.
pub(super) fn tail(
    draft: &mut Draft,
    outputs: &[(String, ModelValue)],
    values: bool,
) -> Result<Tail, String> {
    let mut sorted = Sorted::of(outputs)?;
    if sorted.several(outputs) {
        return joined(draft, outputs);
    }
    let draft = &*draft;
    let (class, flags) = (sorted.classes.first(), sorted.flags.first());
    let value = match (sorted.scores.first(), class, flags) {
        (Some(live), ..) | (None, None, Some((live, _))) => live.value,
        (None, Some(&value), _) => value,
        (None, None, None) => return Err("expected an output, found none".into()),
    };
    let decided_by = class.copied().or(flags.map(|(live, _)| live.value));
    if decided_by.is_some_and(|v| base(draft, v) != base(draft, value)) {
        let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
        return Err(format!(
            "outputs {}: the class is computed from other values than the scores",
            names.join(", ")
        ));
    }
    let labels = sorted.labels.clone().unwrap_or_default();
    if let Some(p) = complement(draft, value) {
        let (value, last) = strip(draft, p);
        if last == Some(FinalActivation::Sigmoid) {
            return Ok(Tail {
                value,
                last,
                output: Some(Output {
                    kind: Kind::Binary,
                    activation: FinalActivation::Sigmoid,
                    threshold: 0.5,
                }),
                labels,
                outputs: Vec::new(),
            });
        }
    }
    // A threshold is compared with the logarithms of a log-softmax themselves. So the program must
    // compute them.
    let whole = values || flags.is_some();
    let rounded = behind_function(draft, value);
    let (value, last) = match before_log_softmax(draft, value).filter(|_| !whole) {
        Some(before) => (before, Some(FinalActivation::Softmax)),
        None if rounded.is_some() => (value, Some(FinalActivation::None)),
        None => strip(draft, value),
    };
    let count = draft.shape(value).len();
    let binary = count == 1 && rounded == Some(FinalActivation::Sigmoid);
    Ok(Tail {
        value,
        last,
        output: meaning(&sorted, count, last).or(binary.then_some(Output {
            kind: Kind::Binary,
            activation: FinalActivation::None,
            threshold: 0.5,
        })),
        labels,
        outputs: Vec::new(),
    })
}

/// Returns the operand of a log-softmax over a vector, if `value` is one. Operand and logarithms
/// have the same arg-max and the same softmax, so the operand can replace them.
fn before_log_softmax(draft: &Draft, value: usize) -> Option<usize> {
    let node = draft.producer(value)?;
    let is = node.op == Op::OfChannels(OfChannels::LogSoftmax) && vector(draft, value);
    is.then_some(node.inputs[0])
}

/// Returns the meaning of an output of `count` numbers in front of the final function `last`.
/// `None` if the model has no output of classes, of flags or of named probabilities.
fn meaning(sorted: &Sorted, count: usize, last: Option<FinalActivation>) -> Option<Output> {
    if let Some((_, threshold)) = sorted.flags.first() {
        return Some(Output {
            kind: if count == 1 {
                Kind::Binary
            } else {
                Kind::Multilabel
            },
            activation: last.unwrap_or(FinalActivation::None),
            threshold: *threshold,
        });
    }
    let stated = !sorted.classes.is_empty() || sorted.map;
    let default = match sorted.scores.is_empty() {
        true => FinalActivation::Softmax,
        false => FinalActivation::None,
    };
    (stated && count > 1).then(|| Output {
        kind: Kind::Classes,
        activation: last.unwrap_or(default),
        threshold: 0.5,
    })
}

/// Concatenates the numbers of several outputs into one vector. An output of classes is an error.
fn joined(draft: &mut Draft, outputs: &[(String, ModelValue)]) -> Result<Tail, String> {
    let (mut parts, mut named, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in outputs {
        let (ModelValue::Live(live) | ModelValue::Map(live, _)) = value else {
            classes.push(name.as_str());
            continue;
        };
        let same_name = |(other, _): &&(String, ModelValue)| other == name;
        if outputs
            .iter()
            .filter(same_name)
            .any(|(_, other)| other != value)
        {
            return Err(format!(
                "two outputs are called {name}: their values could not be told apart"
            ));
        }
        // An output that is listed again gets a number behind its name, as in `name:2`.
        let again = outputs[..named.len()].iter().filter(same_name).count();
        let name = if again == 0 {
            name.clone()
        } else {
            format!("{name}:{}", again + 1)
        };
        let shape = Shape::vector(live.len());
        parts.push(match draft.shape(live.value) == shape {
            true => live.value,
            false => draft.push(&*name, Op::Reshape(shape), &[live.value], Vec::new())?,
        });
        named.push(graph::Value {
            name: name.into(),
            shape: standard(&live.dims),
        });
    }
    if !classes.is_empty() {
        return Err(format!(
            "expected {} outputs of numbers, or a label and its probabilities, found classes \
             ({}); \"output\": {{\"name\": …}} in the JSON beside the model selects one output",
            outputs.len(),
            classes.join(", ")
        ));
    }
    let value = draft.push("outputs", Op::Concat(Axis::C), &parts, Vec::new())?;
    Ok(Tail {
        value,
        last: None,
        output: Some(NUMBERS),
        labels: Vec::new(),
        outputs: named,
    })
}

/// Returns true if a value is a vector: one row and one column of channels.
fn vector(draft: &Draft, value: usize) -> bool {
    draft.shape(value).h * draft.shape(value).w == 1
}

/// Splits off a final softmax, sigmoid or tanh. Returns the value in front of that function, and
/// the function. A value without such a function is returned itself.
fn strip(draft: &Draft, value: usize) -> (usize, Option<FinalActivation>) {
    let Some(node) = draft.producer(value) else {
        return (value, None);
    };
    let before = node.inputs[0];
    match node.op {
        Op::OfChannels(OfChannels::Softmax) if vector(draft, value) => {
            (before, Some(FinalActivation::Softmax))
        }
        Op::Activation(Activation::Sigmoid) => (before, Some(FinalActivation::Sigmoid)),
        Op::Activation(Activation::Tanh) => (before, Some(FinalActivation::Tanh)),
        Op::Reshape(_) => match strip(draft, before) {
            (_, None) => (value, None),
            found => found,
        },
        _ => (value, None),
    }
}

/// Finds a final softmax, sigmoid or tanh whose results the model rounds to integers. The program
/// must compute such a function, so it is not split off. `None` if there is none.
fn behind_function(draft: &Draft, value: usize) -> Option<FinalActivation> {
    let before = |value: usize, is: &dyn Fn(Op) -> bool| {
        let node = draft.producer(value).filter(|n| is(n.op))?;
        Some(node.inputs[0])
    };
    let scaled = |op: Op| op == Op::Scale;
    let limited = |op: Op| matches!(op, Op::Activation(Activation::Clip { .. }));
    let rounded = |op: Op| matches!(op, Op::Activation(Activation::Math(f)) if f.rounds());
    let moved = |op: Op| matches!(op, Op::Reshape(_));
    let corrected = |op: Op| op == Op::Combine(Arithmetic::Add);
    let integers = |op: Op| matches!(op, Op::OfChannels(OfChannels::IntegerSoftmax(_)));
    let mut value = before(value, &scaled)?;
    while let Some(other) = before(value, &moved) {
        value = other;
    }
    // The integers may be requantized several times, from one scale to the next.
    loop {
        if vector(draft, value) && before(value, &integers).is_some() {
            return Some(FinalActivation::Softmax);
        }
        value = before(before(value, &limited)?, &rounded)?;
        while let Some(other) = before(value, &corrected) {
            value = other;
        }
        value = before(value, &scaled)?;
        if let Some(function) = strip(draft, value).1 {
            return Some(function);
        }
    }
}

/// Returns the value p if `value` concatenates 1 − p and p, and p is one number. This is the output
/// of a binary classifier.
pub(super) fn complement(draft: &Draft, value: usize) -> Option<usize> {
    let node = draft.producer(value)?;
    if let Op::Reshape(_) = node.op {
        return complement(draft, node.inputs[0]);
    }
    let (Op::Concat(_), &[q, p]) = (node.op, &*node.inputs) else {
        return None;
    };
    let whole = |v: usize| match draft.producer(v) {
        Some(n) if matches!(n.op, Op::Reshape(_)) => n.inputs[0],
        _ => v,
    };
    let (q, p) = (whole(q), whole(p));
    let other = draft.producer(q)?;
    let [factors, summands] = draft.arrays(other)[..] else {
        return None;
    };
    let is = other.op == Op::Scale
        && whole(other.inputs[0]) == p
        && factors == [-1.0]
        && summands == [1.0];
    (is && draft.shape(p).len() == 1).then_some(p)
}

/// Follows a value back through operations that keep the order of its elements: softmax, sigmoid,
/// tanh, reshapes, and scaling by one positive number. Returns the index of the first value.
fn base(draft: &Draft, value: usize) -> usize {
    let Some(node) = draft.producer(value) else {
        return value;
    };
    match node.op {
        Op::OfChannels(_)
        | Op::Activation(Activation::Sigmoid | Activation::Tanh)
        | Op::Reshape(_) => base(draft, node.inputs[0]),
        Op::Combine(Arithmetic::Divide) if sum_of(draft, node.inputs[1], node.inputs[0]) => {
            base(draft, node.inputs[0])
        }
        Op::Scale => match draft.arrays(node)[..] {
            [factors, summands] if factors.iter().all(|&f| f == factors[0] && f > 0.0) => {
                match summands.iter().all(|&s| s == 0.0) {
                    true => base(draft, node.inputs[0]),
                    false => value,
                }
            }
            _ => value,
        },
        _ => value,
    }
}

/// Returns true if a value is one number that is a weighted sum or a pooling of probabilities,
/// without negative weights. The probabilities must come from the same scores as `of`.
fn sum_of(draft: &Draft, value: usize, of: usize) -> bool {
    if draft.shape(value).len() != 1 {
        return false;
    }
    let Some(node) = draft.producer(value) else {
        return false;
    };
    let from = node.inputs[0];
    match node.op {
        Op::Affine => {
            let [weights, biases] = draft.arrays(node)[..] else {
                return false;
            };
            let positive = weights.iter().chain(biases).all(|&w| w >= 0.0);
            positive && base(draft, from) == base(draft, of) && from_probabilities(draft, from)
        }
        Op::Scale => {
            let [factors, summands] = draft.arrays(node)[..] else {
                return false;
            };
            factors.iter().all(|&f| f > 0.0)
                && summands.iter().all(|&s| s >= 0.0)
                && sum_of(draft, from, of)
        }
        Op::Pool { .. } => base(draft, from) == base(draft, of) && from_probabilities(draft, from),
        Op::Reshape(_) => sum_of(draft, from, of),
        _ => false,
    }
}

/// Returns true if all elements of a value are probabilities: results p of softmax or sigmoid, or 1
/// − p.
pub(super) fn from_probabilities(draft: &Draft, value: usize) -> bool {
    let Some(node) = draft.producer(value) else {
        return false;
    };
    match node.op {
        Op::OfChannels(OfChannels::Softmax) | Op::Activation(Activation::Sigmoid) => true,
        Op::Reshape(_) | Op::Concat(_) => node.inputs.iter().all(|&i| from_probabilities(draft, i)),
        // A matrix of zeros and ones selects elements. Rows that sum several elements are accepted
        // too.
        Op::Affine => match draft.arrays(node)[..] {
            [weights, biases] => {
                weights.iter().all(|&w| w == 0.0 || w == 1.0)
                    && biases.iter().all(|&b| b == 0.0)
                    && from_probabilities(draft, node.inputs[0])
            }
            _ => false,
        },
        Op::Scale => complemented(draft, value),
        _ => false,
    }
}

/// Returns true if a value is 1 − p for probabilities p.
fn complemented(draft: &Draft, value: usize) -> bool {
    let Some(node) = draft.producer(value) else {
        return false;
    };
    match draft.arrays(node)[..] {
        [factors, summands] => {
            factors.iter().all(|&f| f == -1.0)
                && summands.iter().all(|&s| s == 1.0)
                && from_probabilities(draft, node.inputs[0])
        }
        _ => false,
    }
}
