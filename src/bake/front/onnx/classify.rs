//! The operations of ONNX's machine learning set `ai.onnx.ml`: linear models, and the operations
//! that scikit-learn's converter puts around networks.

use super::node::{OnnxNode, live};
use super::ops::NodeOutputs;
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Element};
use crate::bake::front::tail;
use crate::bake::front::value::{Class, Live, ModelValue, axes, shape_of};
use crate::ir::op::{Activation, Arithmetic, Axis, OfChannels, Op};
use std::rc::Rc;

/// Computes the outputs of a node of the set `ai.onnx.ml`. At least one input of the node is
/// computed from the record.
pub(super) fn apply(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    match node.op() {
        "Scaler" => scaler(b, node).map(|l| vec![ModelValue::Live(l)]),
        "Normalizer" => normalizer(b, node).map(|l| vec![ModelValue::Live(l)]),
        "Binarizer" => Ok(vec![ModelValue::Flags(
            live(node, 0)?.clone(),
            node.float("threshold", 0.0),
        )]),
        "ArrayFeatureExtractor" => extract(b, node),
        "LabelEncoder" => encode(node),
        "ZipMap" => zip(node),
        "LinearClassifier" => classifier(b, node),
        "LinearRegressor" => regressor(b, node).map(|l| vec![ModelValue::Live(l)]),
        _ => Err("it is not supported".into()),
    }
}

/// Returns input 0 of the node, which must be a vector [N, C] or a number [N], as floats.
fn vector(node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    match x.dims.len() {
        // These operations convert integers to floats.
        0 | 1 => Ok(Live {
            kind: Element::F32,
            ..x.clone()
        }),
        _ => Err(format!("expected [N, C], found {}", x.shown())),
    }
}

/// `Scaler`: (x − offset) · scale.
fn scaler(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = vector(node)?;
    let list = |name: &str, default: f64| {
        let numbers = node.floats(name).unwrap_or_else(|| vec![default]);
        match numbers.len() {
            1 => Ok(vec![numbers[0]; x.len()]),
            n if n == x.len() => Ok(numbers),
            n => Err(format!(
                "{name}: expected 1 number or {}, found {n}",
                x.len()
            )),
        }
    };
    let (offset, scale) = (list("offset", 0.0)?, list("scale", 1.0)?);
    let summands: Vec<f64> = offset.iter().zip(&scale).map(|(o, s)| -o * s).collect();
    b.scale(&node.name, &x, &scale, &summands)
}

/// `Normalizer`: divides elements that are never negative by their sum (L1 norm).
fn normalizer(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = vector(node)?;
    let norm = node.text("norm", "MAX");
    if norm != "L1" {
        return Err(format!(
            "norm: expected L1 (of probabilities), found {norm}"
        ));
    }
    if sums_to_one(b, x.value) {
        return Ok(x);
    }
    if !tail::from_probabilities(&b.draft, x.value) {
        return Err(
            "norm L1: expected values that are never below 0 (behind a sigmoid or a softmax)"
                .into(),
        );
    }
    let n = x.len();
    let sum = b.affine(&node.name, &x, vec![1.0; n], vec![0.0])?;
    divided(b, node, &x, &sum)
}

/// Divides a vector by one number that is computed from the record.
fn divided(b: &mut Builder, node: &OnnxNode<'_>, x: &Live, by: &Live) -> Result<Live, String> {
    let row = shape_of(1, 1, x.len());
    let from = b.shaped(&node.name, x.value, row)?;
    let value = b.push(
        &node.name,
        Op::Combine(Arithmetic::Divide),
        &[from, by.value],
        Vec::new(),
    )?;
    Ok(x.with_value(value))
}

/// Returns true if a value is known to be probabilities whose sum is 1.
fn sums_to_one(b: &Builder, value: usize) -> bool {
    let Some(node) = b.draft.producer(value) else {
        return false;
    };
    match node.op {
        Op::OfChannels(OfChannels::Softmax) => b.draft.shape(value).h * b.draft.shape(value).w == 1,
        Op::Reshape(_) => sums_to_one(b, node.inputs[0]),
        Op::Concat(_) => tail::complement(&b.draft, value).is_some(),
        _ => false,
    }
}

/// `ArrayFeatureExtractor`: selects columns of a tensor, or looks up the names of predicted
/// classes.
fn extract(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    if let (Some(ModelValue::Constant(labels)), Some(ModelValue::Class(class))) =
        (node.input(0), node.input(1))
    {
        return Ok(vec![ModelValue::Class(named(class, labels)?)]);
    }
    let x = vector(node)?;
    let c = node.needed(1, "indices")?;
    let at = axes(&c.integers()?, x.len())?;
    let kind = live(node, 0)?.kind;
    Ok(vec![ModelValue::Live(Live {
        kind,
        ..b.select(&node.name, &x, &at)?
    })])
}

/// Gives names to a predicted class that is known by its index only.
pub(super) fn named(class: &Class, labels: &Rc<ConstantTensor>) -> Result<Class, String> {
    if class.labels.is_some() {
        return Err("expected class indices, found classes that have names already".into());
    }
    Ok(Class {
        labels: Some(labels.clone()),
        ..class.clone()
    })
}

/// Returns the class names that a node states in an attribute of texts or in one of integers.
/// `None` if both attributes are empty.
fn labels_of(node: &OnnxNode<'_>, texts: &str, ints: &str) -> Option<Rc<ConstantTensor>> {
    if let Some(texts) = node.texts(texts).filter(|t| !t.is_empty()) {
        return Some(Rc::new(ConstantTensor::texts(
            vec![texts.len()],
            texts.to_vec(),
        )));
    }
    let ints = node.ints(ints).filter(|i| !i.is_empty())?;
    Some(Rc::new(ConstantTensor::ints(
        vec![ints.len()],
        ints.to_vec(),
    )))
}

/// `LabelEncoder`: replaces the names of the classes by other names.
fn encode(node: &OnnxNode<'_>) -> NodeOutputs {
    let Some(ModelValue::Class(class)) = node.input(0) else {
        return Err(
            "expected classes (behind ArgMax or LinearClassifier), found other values".into(),
        );
    };
    let tensor = |name: &str| node.tensor(name);
    let keys = labels_of(node, "keys_strings", "keys_int64s").or_else(|| tensor("keys_tensor"));
    let values =
        labels_of(node, "values_strings", "values_int64s").or_else(|| tensor("values_tensor"));
    let (keys, values) = match (keys, values, node.texts("classes_strings")) {
        (Some(keys), Some(values), _) => (Some(keys), values),
        (None, None, Some(texts)) => (
            None,
            Rc::new(ConstantTensor::texts(vec![texts.len()], texts.to_vec())),
        ),
        _ => return Err("expected keys and values of texts or integers".into()),
    };
    let Some(keys) = keys else {
        return Ok(vec![ModelValue::Class(named(class, &values)?)]);
    };
    // The present names of the classes. Classes without names have their indices as names.
    let now = match &class.labels {
        Some(labels) => (**labels).clone(),
        None => ConstantTensor::ints(vec![keys.len()], (0..keys.len() as i64).collect()),
    };
    let mut at = Vec::new();
    for i in 0..now.len() {
        let one = now.pick(vec![], &[i]).data;
        let key = (0..keys.len()).find(|&k| keys.pick(vec![], &[k]).data == one);
        at.push(
            key.filter(|&k| k < values.len()).ok_or_else(|| {
                format!("expected a key for every class, found none for class {i}")
            })?,
        );
    }
    Ok(vec![ModelValue::Class(Class {
        labels: Some(Rc::new(values.pick(vec![at.len()], &at))),
        ..class.clone()
    })])
}

/// `ZipMap`: attaches class names to probabilities.
fn zip(node: &OnnxNode<'_>) -> NodeOutputs {
    let x = vector(node)?;
    let labels = labels_of(node, "classlabels_strings", "classlabels_int64s")
        .ok_or("expected classlabels_strings or classlabels_int64s, found nothing")?;
    if labels.len() != x.len() {
        return Err(format!(
            "expected {} class labels, found {}",
            x.len(),
            labels.len()
        ));
    }
    Ok(vec![ModelValue::Map(x, labels)])
}

/// Reads the weights and biases of a linear model from a node. `rows` is the number of outputs, if
/// it is known.
fn linear(node: &OnnxNode<'_>, x: &Live, rows: Option<usize>) -> Result<Linear, String> {
    let weights = node.floats("coefficients").unwrap_or_default();
    let inputs = x.len();
    let found = weights.len() / inputs.max(1);
    if weights.is_empty() || weights.len() % inputs != 0 || rows.is_some_and(|r| r != found) {
        let rows = rows.map_or("a multiple of".to_string(), |r| format!("{r} ×"));
        return Err(format!(
            "coefficients: expected {rows} {inputs} numbers, found {}",
            weights.len()
        ));
    }
    let biases = node
        .floats("intercepts")
        .filter(|i| !i.is_empty())
        .unwrap_or_else(|| vec![0.0; found]);
    if biases.len() != found {
        return Err(format!(
            "intercepts: expected {found} numbers, found {}",
            biases.len()
        ));
    }
    Ok(Linear { weights, biases })
}

/// A linear model. `weights` has a row for each output.
struct Linear {
    weights: Vec<f64>,
    biases: Vec<f64>,
}

impl Linear {
    /// Returns true if the model has two rows and the second is the negative of the first.
    fn opposite(&self) -> bool {
        let (first, second) = self.weights.split_at(self.weights.len() / 2);
        match self.biases[..] {
            [a, b] => first.iter().zip(second).all(|(v, w)| *v == -*w) && a == -b,
            _ => false,
        }
    }

    /// Builds the scores of all classes. A model with one row gets its negative as a first row.
    fn scores(self, b: &mut Builder, name: &str, x: &Live) -> Result<Live, String> {
        let Linear { weights, biases } = self;
        if let [bias] = biases[..] {
            let negative = weights.iter().map(|w| -w);
            let both = negative.chain(weights.iter().copied()).collect();
            return b.affine(name, x, both, vec![-bias, bias]);
        }
        b.affine(name, x, weights, biases)
    }

    /// Builds the probabilities 1 − p and p of two classes. p is the sigmoid of the last row's
    /// score.
    fn pair(&self, b: &mut Builder, name: &str, x: &Live) -> Result<Live, String> {
        let last = self.biases.len() - 1;
        let weights = self.weights[last * x.len()..].to_vec();
        let score = b.affine(name, x, weights, vec![self.biases[last]])?;
        let p = b.activation(name, &score, Activation::Sigmoid)?;
        let other = b.scale(name, &p, &[-1.0], &[1.0])?;
        let parts = [other.value, p.value];
        Ok(Live::new(
            b.push(name, Op::Concat(Axis::C), &parts, Vec::new())?,
            vec![2],
            Element::F32,
        ))
    }
}

/// `LinearClassifier`: returns the class, and the scores or probabilities of all classes.
fn classifier(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let (x, name) = (vector(node)?, &node.name);
    let labels = labels_of(node, "classlabels_strings", "classlabels_ints")
        .ok_or("expected classlabels_strings or classlabels_ints, found nothing")?;
    let linear = linear(node, &x, None)?;
    let rows = linear.biases.len();
    // Two classes share a single score if there is one row, or if one of two rows is the negative
    // of the other.
    let single = labels.len() == 2 && (rows == 1 || linear.opposite());
    if !single && labels.len() != rows {
        return Err(format!(
            "expected a row of coefficients for each of {} classes, found {rows}",
            labels.len()
        ));
    }
    let transform = node.text("post_transform", "NONE");
    let (scores, class) = match transform {
        "LOGISTIC" if single => {
            let pair = linear.pair(b, name, &x)?;
            let class = pair.value;
            (pair, class)
        }
        "NONE" | "SOFTMAX" | "LOGISTIC" => {
            let y = linear.scores(b, name, &x)?;
            let class = y.value;
            let scores = match transform {
                "SOFTMAX" => y.with_value(b.push(
                    name,
                    Op::OfChannels(OfChannels::Softmax),
                    &[class],
                    Vec::new(),
                )?),
                "LOGISTIC" => b.activation(name, &y, Activation::Sigmoid)?,
                _ => y,
            };
            (scores, class)
        }
        other => {
            return Err(format!(
                "post_transform: expected NONE, SOFTMAX or LOGISTIC, found {other}"
            ));
        }
    };
    Ok(vec![
        ModelValue::Class(Class {
            scores: class,
            labels: Some(labels),
        }),
        ModelValue::Live(scores),
    ])
}

/// `LinearRegressor`. Its results are marked as numbers, so that the build does not take them for
/// scores of classes.
fn regressor(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = vector(node)?;
    let transform = node.text("post_transform", "NONE");
    if transform != "NONE" {
        return Err(format!("post_transform: expected NONE, found {transform}"));
    }
    let targets =
        usize::try_from(node.int("targets", 1)).map_err(|_| "targets: expected 1 or more")?;
    let Linear { weights, biases } = linear(node, &x, Some(targets))?;
    let y = b.affine(&node.name, &x, weights, biases)?;
    b.numbers.push(y.value);
    Ok(y)
}
