//! The end of a model: which value goes out, and what it means.

use super::constant::{Element, texts};
use super::value::{Live, Value, standard};
use crate::bake::draft::Draft;
use crate::ir::graph::{self, Shape};
use crate::ir::network::{FinalActivation, Kind, Output};
use crate::ir::op::{Activation, Arithmetic, Axis, Op, SoftmaxOf};

/// What a model gives.
#[derive(Debug, PartialEq)]
pub(super) struct Tail {
    /// The value that goes out: what stands before a final monotone function.
    pub(super) value: usize,
    /// That function.
    pub(super) last: Option<FinalActivation>,
    /// What the model says of its meaning.
    pub(super) output: Option<Output>,
    /// Names of the classes.
    pub(super) labels: Vec<String>,
    /// The outputs that the value is one behind the other, where they are several.
    pub(super) outputs: Vec<graph::Value>,
}

/// What a regressor's output means.
pub(super) const NUMBERS: Output = Output {
    kind: Kind::Values,
    activation: FinalActivation::None,
    threshold: 0.5,
};

/// What the outputs of a model, with their names, mean together. `values`: numbers are asked for,
/// not classes.
///
/// # Errors
/// Of outputs that are neither one result nor numbers each.
pub(super) fn tail(
    draft: &mut Draft,
    outputs: &[(String, Value)],
    values: bool,
) -> Result<Tail, String> {
    let names = || {
        outputs
            .iter()
            .map(|o| o.0.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (mut scores, mut class, mut flags) = (Vec::new(), Vec::new(), Vec::new());
    let mut labels: Option<Vec<String>> = None;
    let mut map = false;
    for (name, value) in outputs {
        match value {
            Value::Live(live) => scores.push(live.clone()),
            Value::Map(live, names) => {
                (map, labels) = (true, Some(texts(names)));
                scores.push(live.clone());
            }
            Value::Class(c) => {
                if let Some(names) = &c.labels {
                    labels = Some(texts(names));
                }
                class.push(c.scores);
            }
            Value::Flags(live, threshold) => flags.push((live.clone(), *threshold)),
            Value::Constant(_) => return Err(format!("output {name} is a constant")),
            Value::Unknown => return Err(format!("output {name} cannot be computed")),
        }
    }
    // Probabilities may stand beside the map that names them; two outputs of one value are two all
    // the same.
    let several = outputs
        .iter()
        .filter(|o| matches!(o.1, Value::Live(_)))
        .count()
        > 1;
    if several && class.is_empty() && flags.is_empty() && !map {
        return joined(draft, outputs);
    }
    scores.dedup();
    if scores.len() > 1 || class.len() > 1 || flags.len() > 1 || class.len() + flags.len() > 1 {
        return joined(draft, outputs);
    }
    let draft = &*draft;
    let of = |value: usize| Live {
        value,
        dims: vec![draft.shape(value).len()],
        kind: Element::F32,
    };
    let live = match (scores.pop(), class.first(), flags.first()) {
        (Some(live), ..) => live,
        (None, Some(&value), _) => of(value),
        (None, None, Some((live, _))) => live.clone(),
        (None, None, None) => return Err("expected an output, found none".into()),
    };
    if class
        .iter()
        .chain(flags.iter().map(|f| &f.0.value))
        .any(|&v| base(draft, v) != base(draft, live.value))
    {
        return Err(format!(
            "the class and the scores ({}) are not of the same values",
            names()
        ));
    }
    let stated = !class.is_empty() || map;
    let output = |kind, activation, threshold| {
        Some(Output {
            kind,
            activation,
            threshold,
        })
    };
    if let Some(p) = complement(draft, live.value) {
        let (value, last) = strip(draft, p);
        if last == Some(FinalActivation::Sigmoid) {
            return Ok(Tail {
                value,
                last,
                output: output(Kind::Binary, FinalActivation::Sigmoid, 0.5),
                labels: labels.unwrap_or_default(),
                outputs: Vec::new(),
            });
        }
    }
    let logarithm = match draft.producer(live.value) {
        Some(n) if n.op == Op::Softmax(SoftmaxOf::Logarithm) && !values => Some(n.inputs[0]),
        _ => None,
    };
    let (value, last) = match logarithm.filter(|_| vector(draft, live.value)) {
        // The largest is the same, and the softmax of logarithms of probabilities is that of what
        // they are of.
        Some(before) => (before, Some(FinalActivation::Softmax)),
        None => strip(draft, live.value),
    };
    let output = match flags.first() {
        Some((_, threshold)) => {
            let activation = last.unwrap_or(FinalActivation::None);
            match draft.shape(value).len() {
                1 => output(Kind::Binary, activation, *threshold),
                _ => output(Kind::Multilabel, activation, *threshold),
            }
        }
        None if stated && draft.shape(value).len() > 1 => {
            let scores = outputs
                .iter()
                .any(|o| matches!(o.1, Value::Live(_) | Value::Map(..)));
            let default = if scores {
                FinalActivation::None
            } else {
                FinalActivation::Softmax
            };
            output(Kind::Classes, last.unwrap_or(default), 0.5)
        }
        None => None,
    };
    Ok(Tail {
        value,
        last,
        output,
        labels: labels.unwrap_or_default(),
        outputs: Vec::new(),
    })
}

/// The numbers of several outputs, one behind the other.
fn joined(draft: &mut Draft, outputs: &[(String, Value)]) -> Result<Tail, String> {
    let (mut parts, mut named, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in outputs {
        let (Value::Live(live) | Value::Map(live, _)) = value else {
            classes.push(name.as_str());
            continue;
        };
        if outputs.iter().any(|o| o.0 == *name && o.1 != *value) {
            return Err(format!(
                "two outputs are called {name}: their values could not be told apart"
            ));
        }
        // An output that the model names again is told apart by a number.
        let again = outputs[..named.len()]
            .iter()
            .filter(|o| o.0 == *name)
            .count();
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
            "expected numbers of each of {} outputs, or a label and its probabilities; found \
             classes ({}): \"output\": \
             {{\"name\": …}} in the JSON beside the model takes one output alone",
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

/// Whether a value has no pixels.
fn vector(draft: &Draft, value: usize) -> bool {
    draft.shape(value).h * draft.shape(value).w == 1
}

/// The value before a final softmax, sigmoid or tanh, which it is too.
fn strip(draft: &Draft, value: usize) -> (usize, Option<FinalActivation>) {
    let Some(node) = draft.producer(value) else {
        return (value, None);
    };
    let before = node.inputs[0];
    match node.op {
        Op::Softmax(SoftmaxOf::Linear) if vector(draft, value) => {
            (before, Some(FinalActivation::Softmax))
        }
        Op::Activation(Activation::Sigmoid) => (before, Some(FinalActivation::Sigmoid)),
        Op::Activation(Activation::Tanh) => (before, Some(FinalActivation::Tanh)),
        // Other sizes of the same.
        Op::Reshape(_) => match strip(draft, before) {
            (_, None) => (value, None),
            found => found,
        },
        _ => (value, None),
    }
}

/// Of the values 1 − p and p side by side, p.
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

/// What a value is computed of by functions that keep its order: softmax and the like, and a
/// division by one number that is above 0.
fn base(draft: &Draft, value: usize) -> usize {
    let Some(node) = draft.producer(value) else {
        return value;
    };
    match node.op {
        Op::Softmax(_)
        | Op::Activation(Activation::Sigmoid | Activation::Tanh)
        | Op::Reshape(_) => base(draft, node.inputs[0]),
        Op::Combine(Arithmetic::Divide) if sum_of(draft, node.inputs[1], node.inputs[0]) => {
            base(draft, node.inputs[0])
        }
        _ => value,
    }
}

/// Whether a value is the sum (or the mean, times their number) of values that are above 0, and
/// `of` one of them.
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

/// Whether a value is of numbers from 0 to 1.
pub(super) fn from_probabilities(draft: &Draft, value: usize) -> bool {
    let Some(node) = draft.producer(value) else {
        return false;
    };
    match node.op {
        Op::Softmax(SoftmaxOf::Linear) | Op::Activation(Activation::Sigmoid) => true,
        Op::Reshape(_) | Op::Concat(_) => node.inputs.iter().all(|&i| from_probabilities(draft, i)),
        // One of the values.
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

/// Whether a value is 1 − p of a probability p.
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
