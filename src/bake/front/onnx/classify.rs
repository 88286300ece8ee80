//! The operations of `ai.onnx.ml`: linear models and what scikit-learn's converter puts around
//! networks.

use super::node::{Node, live};
use super::ops::Given;
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{Constant, Element};
use crate::bake::front::tail;
use crate::bake::front::value::{Class, Live, Value, axis};
use crate::ir::op::{Activation, Arithmetic, Axis, Op, SoftmaxOf};
use std::rc::Rc;

/// Computes a node of which at least one input is computed.
pub(super) fn apply(b: &mut Builder, node: &Node<'_>) -> Given {
    match node.op() {
        "Scaler" => scaler(b, node).map(|l| vec![Value::Live(l)]),
        "Normalizer" => normalizer(b, node).map(|l| vec![Value::Live(l)]),
        "Binarizer" => Ok(vec![Value::Flags(
            live(node, 0)?.clone(),
            node.float("threshold", 0.0),
        )]),
        "ArrayFeatureExtractor" => extract(b, node),
        "LabelEncoder" => encode(node),
        "ZipMap" => zip(node),
        "LinearClassifier" => classifier(b, node),
        "LinearRegressor" => regressor(b, node).map(|l| vec![Value::Live(l)]),
        _ => Err("it is not supported".into()),
    }
}

/// A vector [N, C], or [N] of one number.
fn vector(node: &Node<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    match x.dims.len() {
        // Integers become floats.
        0 | 1 => Ok(Live {
            kind: Element::F32,
            ..x.clone()
        }),
        _ => Err(format!("expected [N, C], found {}", x.shown())),
    }
}

/// (x − offset) · scale
fn scaler(b: &mut Builder, node: &Node<'_>) -> Result<Live, String> {
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

/// Division by the sum, of values that are never below 0.
fn normalizer(b: &mut Builder, node: &Node<'_>) -> Result<Live, String> {
    let x = vector(node)?;
    let norm = node.text("norm", "MAX");
    if norm != "L1" {
        return Err(format!(
            "norm: expected L1 (of probabilities), found {norm}: it takes a root or a maximum"
        ));
    }
    if sums_to_one(b, x.value) {
        return Ok(x);
    }
    if !tail::from_probabilities(&b.draft, x.value) {
        return Err(
            "norm L1: only of values that are never below 0 (behind a sigmoid or a softmax)".into(),
        );
    }
    let n = x.len();
    let sum = b.affine(&node.name, &x, vec![1.0; n], vec![0.0])?;
    divided(b, node, &x, &sum)
}

/// A vector divided by one number.
fn divided(b: &mut Builder, node: &Node<'_>, x: &Live, by: &Live) -> Result<Live, String> {
    let row = crate::ir::graph::Shape {
        c: 1,
        h: 1,
        w: x.len(),
    };
    let from = b.shaped(&node.name, x.value, row)?;
    let value = b.push(
        &node.name,
        Op::Combine(Arithmetic::Divide),
        &[from, by.value],
        Vec::new(),
    )?;
    Ok(Live { value, ..x.clone() })
}

/// Whether a value is one of probabilities whose sum is 1.
fn sums_to_one(b: &Builder, value: usize) -> bool {
    match b.draft.producer(value).map(|n| (n.op, n.inputs.to_vec())) {
        Some((Op::Softmax(SoftmaxOf::Linear), _)) => {
            b.draft.shape(value).h * b.draft.shape(value).w == 1
        }
        Some((Op::Reshape(_), inputs)) => sums_to_one(b, inputs[0]),
        Some((Op::Concat(_), _)) => tail::complement(&b.draft, value).is_some(),
        _ => false,
    }
}

/// Columns of a value, or the names of classes.
fn extract(b: &mut Builder, node: &Node<'_>) -> Given {
    if let (Some(Value::Constant(labels)), Some(Value::Class(class))) =
        (node.input(0), node.input(1))
    {
        return Ok(vec![Value::Class(named(class, labels)?)]);
    }
    let x = vector(node)?;
    let c = node.needed(1, "indices")?;
    let at = c
        .integers()?
        .into_iter()
        .map(|i| axis(i, x.len()))
        .collect::<Result<Vec<_>, _>>()?;
    let kind = live(node, 0)?.kind;
    Ok(vec![Value::Live(Live {
        kind,
        ..b.select(&node.name, &x, &at)?
    })])
}

/// Classes with the names that stand at their indices.
pub(super) fn named(class: &Class, labels: &Rc<Constant>) -> Result<Class, String> {
    if class.labels.is_some() {
        return Err("classes that have names already are no indices".into());
    }
    Ok(Class {
        labels: Some(labels.clone()),
        ..class.clone()
    })
}

/// The names of classes: texts, or integers.
fn labels_of(node: &Node<'_>, texts: &str, ints: &str) -> Option<Rc<Constant>> {
    if let Some(texts) = node.texts(texts).filter(|t| !t.is_empty()) {
        return Some(Rc::new(Constant::texts(vec![texts.len()], texts.to_vec())));
    }
    let ints = node.ints(ints).filter(|i| !i.is_empty())?;
    Some(Rc::new(Constant::ints(vec![ints.len()], ints.to_vec())))
}

/// Other names of classes.
fn encode(node: &Node<'_>) -> Given {
    let Some(Value::Class(class)) = node.input(0) else {
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
            Rc::new(Constant::texts(vec![texts.len()], texts.to_vec())),
        ),
        _ => return Err("expected keys and values of texts or integers".into()),
    };
    let Some(keys) = keys else {
        return Ok(vec![Value::Class(named(class, &values)?)]);
    };
    // What stands for class i now: an index where it has no name yet.
    let now = match &class.labels {
        Some(labels) => (**labels).clone(),
        None => Constant::ints(vec![keys.len()], (0..keys.len() as i64).collect()),
    };
    let mut at = Vec::new();
    for i in 0..now.len() {
        let one = now.pick(vec![], &[i]).data;
        let key = (0..keys.len()).find(|&k| keys.pick(vec![], &[k]).data == one);
        at.push(
            key.filter(|&k| k < values.len())
                .ok_or_else(|| format!("no key for class {i}"))?,
        );
    }
    Ok(vec![Value::Class(Class {
        labels: Some(Rc::new(values.pick(vec![at.len()], &at))),
        ..class.clone()
    })])
}

/// Probabilities by the names of their classes.
fn zip(node: &Node<'_>) -> Given {
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
    Ok(vec![Value::Map(x, labels)])
}

/// Weights with biases of a linear model, a row for each output.
fn linear(node: &Node<'_>, x: &Live, rows: Option<usize>) -> Result<(Vec<f64>, Vec<f64>), String> {
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
    Ok((weights, biases))
}

fn classifier(b: &mut Builder, node: &Node<'_>) -> Given {
    let x = vector(node)?;
    let labels = labels_of(node, "classlabels_strings", "classlabels_ints")
        .ok_or("expected classlabels_strings or classlabels_ints, found nothing")?;
    let (weights, biases) = linear(node, &x, None)?;
    let (rows, n) = (biases.len(), x.len());
    let transform = node.text("post_transform", "NONE").to_string();
    // Two rows that say the same, or one row for two classes, are one score.
    let opposite = rows == 2
        && weights[..n]
            .iter()
            .zip(&weights[n..])
            .all(|(a, b)| *a == -*b)
        && biases[0] == -biases[1];
    let single = labels.len() == 2 && (rows == 1 || opposite);
    if !single && labels.len() != rows {
        return Err(format!(
            "expected a row of coefficients for each of {} classes, found {rows}",
            labels.len()
        ));
    }
    let last = rows.saturating_sub(1);
    let score = |b: &mut Builder| {
        b.affine(
            &node.name,
            &x,
            weights[last * n..].to_vec(),
            vec![biases[last]],
        )
    };
    let (scores, class) = match &*transform {
        "LOGISTIC" if single => {
            let score = score(b)?;
            let p = b.activation(&node.name, &score, Activation::Sigmoid)?;
            let other = b.scale(&node.name, &p, &[-1.0], &[1.0])?;
            let value = b.push(
                &node.name,
                Op::Concat(Axis::C),
                &[other.value, p.value],
                Vec::new(),
            )?;
            (
                Live {
                    value,
                    dims: vec![2],
                    kind: Element::F32,
                },
                value,
            )
        }
        "NONE" | "SOFTMAX" | "LOGISTIC" => {
            let y = if rows == 1 {
                let negative = weights.iter().map(|w| -w);
                let both = negative.chain(weights.iter().copied()).collect();
                b.affine(&node.name, &x, both, vec![-biases[0], biases[0]])?
            } else {
                b.affine(&node.name, &x, weights.clone(), biases.clone())?
            };
            let class = y.value;
            let y = match &*transform {
                "SOFTMAX" => {
                    let op = Op::Softmax(SoftmaxOf::Linear);
                    Live {
                        value: b.push(&node.name, op, &[y.value], Vec::new())?,
                        ..y
                    }
                }
                "LOGISTIC" => b.activation(&node.name, &y, Activation::Sigmoid)?,
                _ => y,
            };
            (y, class)
        }
        other => {
            return Err(format!(
                "post_transform: expected NONE, SOFTMAX or LOGISTIC, found {other}"
            ));
        }
    };
    Ok(vec![
        Value::Class(Class {
            scores: class,
            labels: Some(labels),
        }),
        Value::Live(scores),
    ])
}

fn regressor(b: &mut Builder, node: &Node<'_>) -> Result<Live, String> {
    let x = vector(node)?;
    let transform = node.text("post_transform", "NONE");
    if transform != "NONE" {
        return Err(format!("post_transform: expected NONE, found {transform}"));
    }
    let targets =
        usize::try_from(node.int("targets", 1)).map_err(|_| "targets: expected 1 or more")?;
    let (weights, biases) = linear(node, &x, Some(targets))?;
    let y = b.affine(&node.name, &x, weights, biases)?;
    b.numbers.push(y.value);
    Ok(y)
}
