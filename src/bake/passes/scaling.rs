//! Factors and summands as part of the weights around them; the input's as part of the reader or of
//! the first layer.

use crate::bake::draft::{Array, Draft, compressed};
use crate::ir::graph::{Node, Role, Shape};
use crate::ir::network::{InputOrder, Transform};
use crate::ir::op::{Border, Op};

/// Folding the input scaling into the first layer may add this much error, relative to the layer's
/// own magnitude. Layers behind it whose sums cancel can make the error 50 times as large before a
/// score is wrong.
pub(crate) const FOLD_BOUND: f64 = 2e-6;

/// Whether f32 holds all of them: products of its numbers may be beyond it.
fn finite(numbers: &[f64]) -> bool {
    numbers.iter().all(|&v| (v as f32).is_finite())
}

/// Factors and summands of a node that scales, for each element.
fn linear_of(draft: &Draft, node: &Node) -> Option<Vec<(f64, f64)>> {
    (node.op == Op::Scale).then(|| {
        draft
            .spread(node, 0)
            .into_iter()
            .zip(draft.spread(node, 1))
            .collect()
    })
}

/// Takes a scaling of the input out of the draft, so that the reader does it in float64: it comes
/// back, with `transform` before it.
pub(super) fn lift(
    draft: &mut Draft,
    order: InputOrder,
    transform: &Transform,
) -> Option<Transform> {
    let input = draft.graph.inputs[0];
    let node = &draft.graph.nodes[draft.graph.only_consumer(input)?];
    let linear = linear_of(draft, node)?;
    // A constant input is none that a reader can scale back.
    if linear
        .iter()
        .any(|l| l.0 == 0.0 || !(1.0 / l.0).is_finite())
    {
        return None;
    }
    let shape = draft.shape(input);
    let of_record = |f: &dyn Fn(usize, (f64, f64)) -> f64| -> Vec<f64> {
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
    let lifted = if *transform == Transform::Identity && linear.iter().any(|l| l.1 != 0.0) {
        let (mean, std) = (
            of_record(&|_, (f, s)| -s / f),
            of_record(&|_, (f, _)| 1.0 / f),
        );
        Transform::MeanStd {
            mean: mean.into(),
            std: std.into(),
        }
    } else {
        let scale = of_record(&|i, (f, _)| transform.linear(i).0 * f);
        let offset = of_record(&|i, (f, s)| transform.linear(i).1 * f + s);
        Transform::ScaleOffset {
            scale: scale.into(),
            offset: offset.into(),
        }
    };
    draft.redirect(to, input);
    Some(lifted)
}

/// Makes one scaling of two, one behind the other.
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
        let factors: Vec<f64> = both().map(|(a, b)| a.0 * b.0).collect();
        let summands: Vec<f64> = both().map(|(a, b)| a.1 * b.0 + b.1).collect();
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

/// The arrays of a node that scales, from the numbers of each element.
pub(super) fn scale_arrays(factors: Vec<f64>, summands: Vec<f64>, shape: Shape) -> Vec<Array> {
    let Shape { c, h, w } = shape;
    let array = |role, numbers| Array::mapped(role, compressed(numbers, &[c, h, w]));
    vec![array(Role::Factors, factors), array(Role::Biases, summands)]
}

/// Folds a scaling into the layer with weights before it: into the rows of its weights.
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
        if scale.op != Op::Scale {
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
        let arrays = vec![
            Array::weights(rows, scaled),
            Array::column(Role::Biases, shifted),
        ];
        draft.change(i, layer.op, arrays);
        draft.redirect(scale.output, layer.output);
        return true;
    }
    false
}

/// Folds a scaling into the layer with weights that alone reads it: into the columns of its
/// weights.
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
        let Some((weights, biases)) = folded(draft, j, &linear) else {
            continue;
        };
        let node = draft.graph.nodes[j].clone();
        let arrays = vec![
            Array::weights(biases.len(), weights),
            Array::column(Role::Biases, biases),
        ];
        draft.change(j, node.op, arrays);
        draft.graph.nodes.to_mut()[j].inputs = scale.inputs.clone();
        return true;
    }
    false
}

/// Folds the input scaling into the first layer where that costs no precision: W'ᵢ = Wᵢ·fᵢ, b' = b
/// + Σ Wᵢ·sᵢ for z = x·f + s.
///
/// The bound: rounding W', b' and the sum to f32 loses 2⁻²³·(Σ|W'ᵢ|·|xᵢ| + |b'|), and |xᵢ| ≤ (1 +
/// |sᵢ|)/|fᵢ| for
/// |zᵢ| ≤ 1. Relative to the layer's own magnitude, Σ|Wᵢ| + |b|, it must stay under [`FOLD_BOUND`]: far from zero
/// (a barometer at 101325 ± 300 Pa), x·f and s cancel and the fold would lose three digits.
pub(crate) fn fold(
    draft: &mut Draft,
    order: InputOrder,
    transform: Transform,
) -> (Transform, bool) {
    let input = draft.graph.inputs[0];
    let shape = draft.shape(input);
    // All that reads the input must be one layer with weights.
    let first = draft.graph.only_consumer(input);
    let (Some(i), false) = (first, transform == Transform::Identity) else {
        return (transform, false);
    };
    let mut linear = vec![(0.0, 0.0); shape.len()];
    for i in 0..shape.len() {
        linear[order.element(shape, i)] = transform.linear(i);
    }
    let Some((weights, biases)) = folded(draft, i, &linear) else {
        return (transform, false);
    };
    let tensors = draft.graph.nodes[i].tensors.clone();
    (draft.numbers[tensors[0]], draft.numbers[tensors[1]]) = (weights, biases);
    (Transform::Identity, true)
}

/// Weights and biases of the layer of node `i` that do what its own do behind the factors and
/// summands of its input's elements; `None` where there are none, or digits would be lost.
fn folded(draft: &Draft, i: usize, linear: &[(f64, f64)]) -> Option<(Vec<f64>, Vec<f64>)> {
    let node = &draft.graph.nodes[i];
    let shape = draft.shape(node.inputs[0]);
    let &[w, b] = &*node.tensors else { return None };
    let (rows, columns) = (draft.graph.tensors[w].rows, draft.graph.tensors[w].cols);
    // Factor and summand of each column of a row.
    let of_row: Box<dyn Fn(usize) -> Vec<(f64, f64)>> = match node.op {
        Op::Affine => Box::new(|_| linear.to_vec()),
        Op::Convolution { window, groups } => {
            let pixels = shape.h * shape.w;
            let alike = |c: &[(f64, f64)]| c.iter().all(|l| *l == c[0]);
            // A border of zeros stays one only where nothing is added.
            let border = window.border != Border::default() && linear.iter().any(|l| l.1 != 0.0);
            if border || !linear.chunks(pixels).all(alike) {
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
        for (&w, (f, s)) in row.iter().zip(of_row(i)) {
            bias += w * s;
            loss += w.abs() * (1.0 + s.abs());
            magnitude += w.abs();
            weights.push(w * f);
        }
        loss = (loss + bias.abs()) * 2f64.powi(-23);
        biases.push(bias);
        if loss > FOLD_BOUND * magnitude {
            return None;
        }
    }
    // A factor so small that a weight leaves the normal range of f32 loses digits too. (Weights
    // that training has driven to nothing, 1e-30 and less, lose nothing that matters.)
    let lost =
        |(&w, &before): (&f64, &f64)| (w as f32).abs() < f32::MIN_POSITIVE && before.abs() > 1e-30;
    if weights.iter().zip(&draft.numbers[w]).any(lost) || !finite(&weights) || !finite(&biases) {
        return None;
    }
    Some((weights, biases))
}
