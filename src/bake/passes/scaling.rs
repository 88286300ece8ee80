//! Moves scalings (x · factor + summand) into the weights of neighbouring layers. A scaling of the
//! network's input moves into the reading of records or into the first layer.

use crate::bake::draft::{Array, Draft};
use crate::ir::graph::{Node, Role, Shape};
use crate::ir::network::{InputOrder, Transform};
use crate::ir::op::{Activation, Border, Op};

/// The largest error that folding the input scaling into the first layer may add, relative to the
/// size of the layer's results. Later layers whose sums cancel can increase the error 50 times
/// before a score is wrong.
pub(crate) const FOLD_BOUND: f64 = 2e-6;

/// The largest summand of a scaling that may move into the reading of records.
const LARGEST_SUMMAND: f64 = 1e30;

/// Returns true if all numbers are finite after rounding to f32.
fn finite(numbers: &[f64]) -> bool {
    numbers.iter().all(|&v| (v as f32).is_finite())
}

/// The scaling of one element: x · factor + summand.
#[derive(Clone, Copy, PartialEq)]
struct Linear {
    factor: f64,
    summand: f64,
}

/// Returns true if the result of a node is rounded to whole numbers. A scaling in front of the
/// rounding is then not moved into weights. There it would give slightly different floats, some of
/// which would be rounded to other whole numbers.
fn becomes_whole(draft: &Draft, node: &Node) -> bool {
    let rounds = |op: Op| matches!(op, Op::Activation(Activation::Math(f)) if f.rounds());
    let mut readers = draft
        .graph
        .nodes
        .iter()
        .filter(|n| n.inputs.contains(&node.output));
    readers.any(|n| rounds(n.op))
}

/// Returns the scaling that a `Scale` node applies to each element. `None` for other nodes, and for
/// a scaling that must not move.
fn linear_of(draft: &Draft, node: &Node) -> Option<Vec<Linear>> {
    (node.op == Op::Scale && !becomes_whole(draft, node)).then(|| {
        draft
            .spread(node, 0)
            .into_iter()
            .zip(draft.spread(node, 1))
            .map(|(factor, summand)| Linear { factor, summand })
            .collect()
    })
}

/// Removes a scaling of the network's input from the draft. The program then computes it in float64
/// while it reads records. Returns `transform` followed by this scaling. `None` if there is no such
/// scaling.
pub(super) fn lift(
    draft: &mut Draft,
    order: InputOrder,
    transform: &Transform,
) -> Option<Transform> {
    let input = draft.graph.inputs[0];
    let node = &draft.graph.nodes[draft.graph.only_consumer(input)?];
    let linear = linear_of(draft, node)?;
    // A factor of 0 would make the input constant, and cannot be inverted. A very large summand, as
    // in masks, would erase all digits of the input.
    if linear.iter().any(|l| {
        l.factor == 0.0 || !(1.0 / l.factor).is_finite() || l.summand.abs() > LARGEST_SUMMAND
    }) {
        return None;
    }
    let shape = draft.shape(input);
    let of_record = |f: &dyn Fn(usize, Linear) -> f64| -> Vec<f64> {
        let list: Vec<f64> = (0..shape.len())
            .map(|i| f(i, linear[order.element(shape, i)]))
            .collect();
        if list.iter().all(|v| *v == list[0]) {
            vec![list[0]]
        } else {
            list
        }
    };
    let to = node.output;
    let lifted = if *transform == Transform::Identity && linear.iter().any(|l| l.summand != 0.0) {
        let (mean, std) = (
            of_record(&|_, l| -l.summand / l.factor),
            of_record(&|_, l| 1.0 / l.factor),
        );
        Transform::MeanStd {
            mean: mean.into(),
            std: std.into(),
        }
    } else {
        let scale = of_record(&|i, l| {
            let (factor, _) = transform.linear(i);
            factor * l.factor
        });
        let offset = of_record(&|i, l| {
            let (_, summand) = transform.linear(i);
            summand * l.factor + l.summand
        });
        Transform::ScaleOffset {
            scale: scale.into(),
            offset: offset.into(),
        }
    };
    draft.redirect(to, input);
    Some(lifted)
}

/// Joins two scalings in succession into one.
pub(super) fn merge(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let first = draft.graph.nodes[i].clone();
        let Some(j) = draft.graph.only_consumer(first.output) else {
            continue;
        };
        if first.op != Op::Scale || draft.graph.nodes[j].op != Op::Scale {
            continue;
        }
        let (a, b) = (
            linear_of(draft, &first),
            linear_of(draft, &draft.graph.nodes[j]),
        );
        let (Some(a), Some(b)) = (a, b) else { continue };
        let both = || a.iter().zip(&b);
        let factors: Vec<f64> = both().map(|(a, b)| a.factor * b.factor).collect();
        let summands: Vec<f64> = both()
            .map(|(a, b)| a.summand * b.factor + b.summand)
            .collect();
        if !finite(&factors) || !finite(&summands) {
            continue;
        }
        draft.change(
            j,
            Op::Scale,
            scale_arrays(factors, summands, draft.shape(first.output)),
        );
        draft.graph.nodes.to_mut()[j].inputs = first.inputs.clone();
        return true;
    }
    false
}

/// Returns the arrays of a `Scale` node, from a factor and a summand for each element.
pub(crate) fn scale_arrays(factors: Vec<f64>, summands: Vec<f64>, shape: Shape) -> Vec<Array> {
    let dims = [shape.c, shape.h, shape.w];
    vec![
        Array::compressed(Role::Factors, factors, &dims),
        Array::compressed(Role::Biases, summands, &dims),
    ]
}

/// Folds a scaling by channel into the layer in front of it: into the rows of its weights, and into
/// its biases.
pub(super) fn behind(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let layer = draft.graph.nodes[i].clone();
        if !matches!(layer.op, Op::Affine | Op::Convolution { .. }) {
            continue;
        }
        let Some(j) = draft.graph.only_consumer(layer.output) else {
            continue;
        };
        let scale = draft.graph.nodes[j].clone();
        if scale.op != Op::Scale || becomes_whole(draft, &scale) {
            continue;
        }
        let (Some(factors), Some(summands)) =
            (draft.of_channels(&scale, 0), draft.of_channels(&scale, 1))
        else {
            continue;
        };
        let [weights, biases] = draft.arrays(&layer)[..] else {
            continue;
        };
        let rows = biases.len();
        if factors.len() != rows {
            continue;
        }
        let columns = weights.len() / rows;
        let scaled: Vec<f64> = weights
            .iter()
            .enumerate()
            .map(|(k, w)| w * factors[k / columns])
            .collect();
        let shifted: Vec<f64> = (0..rows)
            .map(|k| biases[k] * factors[k] + summands[k])
            .collect();
        if !finite(&scaled) || !finite(&shifted) {
            continue;
        }
        let arrays = Array::of_layer(scaled, shifted);
        draft.change(i, layer.op, arrays);
        draft.redirect(scale.output, layer.output);
        return true;
    }
    false
}

/// Folds a scaling into the layer behind it, if no other node reads the scaling. It goes into the
/// columns of the layer's weights, and into its biases.
pub(super) fn before(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let scale = draft.graph.nodes[i].clone();
        let Some(j) = draft
            .graph
            .only_consumer(scale.output)
            .filter(|_| scale.op == Op::Scale)
        else {
            continue;
        };
        let Some(linear) = linear_of(draft, &scale) else {
            continue;
        };
        let Some(Folded { weights, biases }) = folded(draft, j, &linear) else {
            continue;
        };
        let node = draft.graph.nodes[j].clone();
        let arrays = Array::of_layer(weights, biases);
        draft.change(j, node.op, arrays);
        draft.graph.nodes.to_mut()[j].inputs = scale.inputs.clone();
        return true;
    }
    false
}

/// Folds the input scaling z = x·f + s into the first layer, if that loses no precision: W'ᵢ =
/// Wᵢ·fᵢ, b' = b + Σ Wᵢ·sᵢ. Returns the scaling that the program still has to compute, and true if
/// it was folded.
///
/// Rounding W', b' and the sum to f32 loses 2⁻²³·(Σ|W'ᵢ|·|xᵢ| + |b'|), and |xᵢ| ≤ (1 + |sᵢ|)/|fᵢ|
/// for |zᵢ| ≤ 1. This error, relative to the size of the layer's results, Σ|Wᵢ| + |b|, must stay
/// below [`FOLD_BOUND`]. Inputs far from zero are not folded. For a barometer at 101325 ± 300 Pa,
/// x·f and s cancel, and folding would lose three digits.
pub(crate) fn fold(
    draft: &mut Draft,
    order: InputOrder,
    transform: Transform,
) -> (Transform, bool) {
    let input = draft.graph.inputs[0];
    let shape = draft.shape(input);
    // Folding requires that a single layer with weights reads the input, and no other node does.
    let first = draft.graph.only_consumer(input);
    let (Some(i), false) = (first, transform == Transform::Identity) else {
        return (transform, false);
    };
    let none = Linear {
        factor: 0.0,
        summand: 0.0,
    };
    let mut linear = vec![none; shape.len()];
    for i in 0..shape.len() {
        let (factor, summand) = transform.linear(i);
        linear[order.element(shape, i)] = Linear { factor, summand };
    }
    let Some(Folded { weights, biases }) = folded(draft, i, &linear) else {
        return (transform, false);
    };
    let tensors = draft.graph.nodes[i].tensors.clone();
    (draft.numbers[tensors[0]], draft.numbers[tensors[1]]) = (weights, biases);
    (Transform::Identity, true)
}

/// The arrays of a layer after a scaling was folded into them.
struct Folded {
    weights: Vec<f64>,
    biases: Vec<f64>,
}

/// Folds a scaling of each input element into the layer of node `i`, and returns the new arrays.
/// `None` if the node is no such layer, or if folding would lose digits.
fn folded(draft: &Draft, i: usize, linear: &[Linear]) -> Option<Folded> {
    let node = &draft.graph.nodes[i];
    let shape = draft.shape(node.inputs[0]);
    let &[w, b] = &*node.tensors else { return None };
    let (rows, columns) = (draft.graph.tensors[w].rows, draft.graph.tensors[w].cols);
    // For each row of the weights, returns the scalings of the elements that its columns are
    // multiplied by.
    let of_row: Box<dyn Fn(usize) -> Vec<Linear>> = match node.op {
        Op::Affine => Box::new(|_| linear.to_vec()),
        Op::Convolution { window, groups } => {
            let pixels = shape.h * shape.w;
            let equal = |c: &[Linear]| c.iter().all(|l| *l == c[0]);
            // Border elements are 0 and are not scaled. This is only right if the scaling adds
            // nothing.
            let added = linear.iter().any(|l| l.summand != 0.0);
            let border = window.border != Border::default() && added;
            if border || !linear.chunks(pixels).all(equal) {
                return None;
            }
            let (group, outputs) = (shape.c / groups, rows / groups);
            Box::new(move |row| {
                let channel = |i: usize| linear[(row / outputs * group + i % group) * pixels];
                (0..columns).map(channel).collect()
            })
        }
        _ => return None,
    };
    let (mut weights, mut biases) = (Vec::with_capacity(rows * columns), Vec::with_capacity(rows));
    for (i, (row, &b)) in draft.numbers[w]
        .chunks_exact(columns)
        .zip(&draft.numbers[b])
        .enumerate()
    {
        let (mut bias, mut loss, mut magnitude) = (b, 0.0, b.abs());
        for (&w, Linear { factor, summand }) in row.iter().zip(of_row(i)) {
            bias += w * summand;
            loss += w.abs() * (1.0 + summand.abs());
            magnitude += w.abs();
            weights.push(w * factor);
        }
        loss = (loss + bias.abs()) * 2f64.powi(-23);
        biases.push(bias);
        if loss > FOLD_BOUND * magnitude {
            return None;
        }
    }
    // A factor may be so small that a weight becomes subnormal in f32 and loses digits. Weights
    // that training has reduced to 1e-30 or less do not matter.
    let lost =
        |(&w, &before): (&f64, &f64)| (w as f32).abs() < f32::MIN_POSITIVE && before.abs() > 1e-30;
    if weights.iter().zip(&draft.numbers[w]).any(lost) || !finite(&weights) || !finite(&biases) {
        return None;
    }
    Some(Folded { weights, biases })
}
