//! The input's scaling as part of the first layer.

use crate::bake::draft::Draft;
use crate::ir::network::{InputOrder, Transform};
use crate::ir::op::{Border, Op};

/// Folding the input scaling into the first layer may add this much error, relative to the layer's own magnitude.
pub(crate) const FOLD_BOUND: f64 = 1e-5;

/// Folds the input scaling into the first layer where that costs no precision: W'ᵢ = Wᵢ·fᵢ, b' = b + Σ Wᵢ·sᵢ for
/// z = x·f + s.
///
/// The bound: rounding W', b' and the sum to f32 loses 2⁻²³·(Σ|W'ᵢ|·|xᵢ| + |b'|), and |xᵢ| ≤ (1 + |sᵢ|)/|fᵢ| for
/// |zᵢ| ≤ 1. Relative to the layer's own magnitude, Σ|Wᵢ| + |b|, it must stay under [`FOLD_BOUND`]: far from zero
/// (a barometer at 101325 ± 300 Pa), x·f and s cancel and the fold would lose three digits.
pub(crate) fn fold(draft: &mut Draft, order: InputOrder, transform: Transform) -> (Transform, bool) {
    let graph = &draft.graph;
    let input = graph.inputs[0];
    let shape = draft.shape(input);
    // All that reads the input must be one layer with weights.
    let first = graph.only_consumer(input).map(|i| &graph.nodes[i]);
    let (Some(node), false) = (first, transform == Transform::Identity) else { return (transform, false) };
    let &[w, b] = &*node.tensors else { return (transform, false) };
    let mut linear = vec![(0.0, 0.0); shape.len()];
    for i in 0..shape.len() {
        linear[order.element(shape, i)] = transform.linear(i);
    }
    let (rows, columns) = (graph.tensors[w].rows, graph.tensors[w].cols);
    // Factor and summand of each column of a row.
    let of_row: Box<dyn Fn(usize) -> Vec<(f64, f64)>> = match node.op {
        Op::Affine => Box::new(|_| linear.clone()),
        Op::Convolution { window, groups } => {
            let pixels = shape.h * shape.w;
            let alike = |c: &[(f64, f64)]| c.iter().all(|l| *l == c[0]);
            // A border of zeros stays one only where nothing is added.
            let border = window.border != Border::default() && linear.iter().any(|l| l.1 != 0.0);
            if border || !linear.chunks(pixels).all(alike) {
                return (transform, false);
            }
            let (group, outputs) = (shape.c / groups, rows / groups);
            let linear = &linear;
            Box::new(move |row| {
                let channel = |i: usize| linear[(row / outputs * group + i % group) * pixels];
                (0..columns).map(channel).collect()
            })
        }
        _ => return (transform, false),
    };
    let (mut weights, mut biases) = (Vec::with_capacity(rows * columns), Vec::with_capacity(rows));
    for (i, (row, &b)) in draft.numbers[w].chunks_exact(columns).zip(&draft.numbers[b]).enumerate() {
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
            return (transform, false);
        }
    }
    // A factor so small that a weight leaves the normal range of f32 loses digits too. (Weights that training has
    // driven to nothing, 1e-30 and less, lose nothing that matters.)
    let lost = |(&w, &before): (&f64, &f64)| {
        let w = w as f32;
        !w.is_finite() || (w.abs() < f32::MIN_POSITIVE && before.abs() > 1e-30)
    };
    if weights.iter().zip(&draft.numbers[w]).any(lost) || biases.iter().any(|&b| !(b as f32).is_finite()) {
        return (transform, false);
    }
    (draft.numbers[w], draft.numbers[b]) = (weights, biases);
    (Transform::Identity, true)
}
