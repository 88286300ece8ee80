//! The network in float64: the answer that every engine is measured against.

use super::network::{Layer, Network};

/// Weights and biases of one affine layer as baked, row major without padding; empty for other layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    /// W, outputs × inputs.
    pub weights: Vec<f32>,
    /// b, outputs.
    pub biases: Vec<f32>,
}

/// Largest difference that a score may have: 1e-4 · max(1, |score|).
pub fn score_bound(score: f64) -> f64 {
    1e-4 * score.abs().max(1.0)
}

/// The last values of one record, from raw inputs; `weights[i]` belongs to `network.layers[i]`.
pub fn forward(network: &Network, weights: &[Weights], raw: &[f64]) -> Vec<f64> {
    let mut values: Vec<f64> = raw.iter().enumerate().map(|(i, &x)| network.transform.apply(i, x)).collect();
    for (layer, w) in network.layers.iter().zip(weights) {
        values = step(layer, w, &values);
    }
    values
}

/// The values behind one layer.
pub fn step(layer: &Layer, w: &Weights, values: &[f64]) -> Vec<f64> {
    match layer {
        Layer::Affine { inputs, .. } => w
            .weights
            .chunks_exact(*inputs)
            .zip(&w.biases)
            .map(|(row, &b)| {
                f64::from(b) + row.iter().zip(values).map(|(&w, x)| f64::from(w) * x).sum::<f64>()
            })
            .collect(),
        Layer::Activation(a) => values.iter().map(|&v| a.apply(v)).collect(),
    }
}

/// How far `found` is from `expected` in units of the bound, over all scores of a record; NaN counts as infinite.
pub fn excess(expected: &[f64], found: impl Iterator<Item = f32>) -> f64 {
    expected
        .iter()
        .zip(found)
        .map(|(&e, f)| (f64::from(f) - e).abs() / score_bound(e))
        .map(|x| if x.is_nan() { f64::INFINITY } else { x })
        .fold(0.0, f64::max)
}

/// Whether the two largest scores are so close that rounding may swap them: classes are compared only where they are
/// not.
pub fn too_close(scores: &[f64]) -> bool {
    let (mut first, mut second) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for &s in scores {
        if s > first {
            (first, second) = (s, first);
        } else if s > second {
            second = s;
        }
    }
    first - second <= 2.0 * score_bound(first)
}
