//! Estimates how much the scores of a network change because f32 rounds every sum. Long sums whose
//! terms cancel lose many digits, and so do functions such as a softmax of large numbers.
//!
//! The method is stochastic arithmetic (Vignes, A stochastic arithmetic for reliable scientific
//! computation, 1993). The network is computed in float64. Each intermediate value is changed at
//! random by as much as f32 may have rounded it.

use super::bound::excess;
use super::evaluate::Computed;
use super::random::Random;
use crate::ir::graph::Shape;
use crate::ir::network::Network;
use crate::ir::op::Op;

/// Half the distance from 1 to the next f32: the largest relative error of rounding to f32.
const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// The number of records that the estimate computes with random rounding, at most.
const RECORDS: usize = 4;

/// The factor by which an engine's error may exceed the error of a random trial.
const SPREAD: f64 = 4.0;

impl Network {
    /// Estimates the largest error that f32 rounding causes in the scores of the first records. The
    /// result is a multiple of [`score_bound`](super::bound::score_bound). `raw` has raw inputs,
    /// and `scores` the scores in float64.
    pub(crate) fn noise(&self, tensors: &[Vec<f32>], raw: &[f32], scores: &[f32]) -> f64 {
        let records = (raw.len() / self.width.max(1)).min(RECORDS);
        let inputs = raw.chunks_exact(self.width.max(1)).take(records);
        let wide = |raw: &[f32]| raw.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let inputs = inputs.map(|raw| self.graph_input(&wide(raw))).collect();
        let mut random = Random::new(1993);
        let values = self.graph.evaluate_all(tensors, inputs, |computed| {
            if let Some(node) = computed.node {
                self.disturb(node, computed, &mut random);
            }
        });
        let outputs = self.outputs().max(1);
        let off = values
            .iter()
            .zip(scores.chunks_exact(outputs))
            .map(|(values, expected)| {
                let output = self
                    .graph
                    .outputs
                    .first()
                    .map_or(self.graph.inputs[0], |&v| v);
                let expected: Vec<f64> = expected.iter().map(|&s| f64::from(s)).collect();
                excess(&expected, values[output].iter().map(|&x| x as f32))
            });
        SPREAD * off.fold(0.0, f64::max)
    }

    /// Changes the numbers that a node has computed at random. A number changes by a few of its own
    /// f32 roundings, and by the roundings of its sum. Numbers that f32 represents exactly stay,
    /// for example whole numbers before a `Floor`.
    fn disturb(&self, node: usize, computed: Computed<'_>, random: &mut Random) {
        let (op, shape) = (
            self.graph.nodes[node].op,
            self.graph.values[computed.value].shape,
        );
        let sums = match op {
            Op::Concat(_)
            | Op::Slice { .. }
            | Op::Pad { .. }
            | Op::Reshape(_)
            | Op::Transpose(_) => {
                return;
            }
            Op::Affine | Op::Convolution { .. } | Op::Product { .. } => {
                let terms = self.graph.flop(node) as f64 / 2.0 / shape.len().max(1) as f64;
                squares(op, &computed, shape).map(|of| (terms / 2.0, of))
            }
            _ => None,
        };
        for (i, x) in computed.numbers.iter_mut().enumerate() {
            let of_sum = sums
                .as_ref()
                .map_or(0.0, |(terms, squares)| (terms * squares[i]).sqrt());
            let most = UNIT * (4.0 * x.abs() + of_sum);
            let exact = f64::from(*x as f32) == *x;
            if most.is_finite() && !exact {
                *x += most * f64::from(random.float());
            }
        }
    }
}

/// For an operation that adds up products, returns the sum of the squared terms of each result. A
/// sum of n terms with random signs is off by about √(n / 2 · sum of squares) roundings.
fn squares(op: Op, computed: &Computed<'_>, shape: Shape) -> Option<Vec<f64>> {
    let squared = |numbers: &[f64]| numbers.iter().map(|x| x * x).collect::<Vec<f64>>();
    let operands: Vec<Vec<f64>> = computed.operands.iter().map(|(x, _)| squared(x)).collect();
    let operands = operands
        .iter()
        .zip(computed.operands)
        .map(|(x, (_, shape))| (&**x, *shape));
    let arrays = computed
        .arrays
        .iter()
        .map(|a| a.iter().map(|x| x * x).collect());
    let arrays: Vec<Vec<f32>> = arrays.collect();
    let arrays: Vec<&[f32]> = arrays.iter().map(|a| &**a).collect();
    op.references(&[operands.collect()], &arrays, shape).pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baked;
    use crate::ir::graph::{Graph, Role};

    /// Returns the noise of a network with two affine layers. The second layer subtracts two equal
    /// numbers, whose size is proportional to `size`.
    fn noise(size: f32) -> f64 {
        let mut graph = Graph::new(Shape::vector(1));
        let arrays = [(Role::Weights, 2, 1), (Role::Biases, 2, 1)];
        let hidden = graph.push("one", Op::Affine, &[0], &arrays).unwrap();
        let arrays = [(Role::Weights, 1, 2), (Role::Biases, 1, 1)];
        graph.push("two", Op::Affine, &[hidden], &arrays).unwrap();
        let network = Network {
            width: 1,
            graph,
            transform: crate::ir::network::Transform::Identity,
            ..baked::network().clone()
        };
        let third = size / 3.0;
        let tensors = [vec![third; 2], vec![0.0; 2], vec![1.0, -1.0], vec![0.0]];
        network.noise(&tensors, &[0.7, 0.6], &[0.0, 0.0])
    }

    #[test]
    fn sums_that_cancel_are_noisy() {
        assert!(noise(1.0) < 0.1, "{}", noise(1.0));
        assert!(noise(1e4) > 1.0, "{}", noise(1e4));
    }
}
