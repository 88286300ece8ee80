//! Finds numbers that are rounded to whole ones, and that are so close to a tie (n + 0.5) that two
//! engines may round them in different directions. Engines may differ in the last digit of a float.

use crate::ir::network::Network;
use crate::ir::op::{Activation, Math, Op};
use crate::ir::whole_numbers::ranges;

/// The largest error that f32 may cause in a number that is then rounded to a whole number. It is a
/// share of the largest such number of the value, and eight times the error of one operation.
pub(crate) const MARGIN: f64 = 1.0 / (1u64 << 21) as f64;

const ROUND: Op = Op::Activation(Activation::Math(Math::Round));

/// The values of a graph that are rounded to whole numbers, and that engines do not compute to the
/// same floats.
pub(crate) struct Ties {
    /// True for each such value.
    values: Vec<bool>,
}

impl Ties {
    pub(crate) fn of(network: &Network) -> Ties {
        let graph = &network.graph;
        let exact = exact(network);
        let rounds = |value: usize| graph.consumers(value).any(|i| graph.nodes[i].op == ROUND);
        Ties {
            values: (0..graph.values.len())
                .map(|value| !exact[value] && rounds(value))
                .collect(),
        }
    }

    /// True if the graph has such a value.
    pub(crate) fn any(&self) -> bool {
        self.values.contains(&true)
    }

    /// Returns the least distance of a number from a tie, as a share of the largest number of its
    /// value. `record` has raw inputs.
    pub(crate) fn distance(&self, network: &Network, tensors: &[Vec<f32>], record: &[f32]) -> f64 {
        let mut least = f64::INFINITY;
        let raw: Vec<f64> = record.iter().map(|&x| x.into()).collect();
        let input = network.graph_input(&raw);
        network.graph.evaluate(tensors, input, |value, numbers| {
            if self.values[value] {
                let largest = numbers.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
                let off = |x: &f64| (x - x.floor() - 0.5).abs() / largest;
                least = numbers.iter().map(off).fold(least, f64::min);
            }
        });
        least
    }
}

/// Returns, for each value of the graph, true if all engines compute exactly the same floats.
fn exact(network: &Network) -> Vec<bool> {
    let graph = &network.graph;
    let whole: Vec<bool> = ranges(graph).iter().map(Option::is_some).collect();
    let mut exact = vec![false; graph.values.len()];
    exact[graph.inputs[0]] = true;
    for node in graph.nodes.iter() {
        let all = |of: &[bool]| node.inputs.iter().all(|&v| of[v]);
        let layer = matches!(node.op, Op::Affine | Op::Convolution { .. });
        let sum = matches!(node.op, Op::Combine(arithmetic) if arithmetic.rounds());
        // A scaling counts as exact, because its summand is 0. All engines round the product to the
        // same float.
        exact[node.output] = match node.op {
            Op::Scale => all(&exact),
            _ if layer || sum => all(&whole),
            op => (op.moves() || op == ROUND) && all(&exact),
        };
    }
    exact
}
