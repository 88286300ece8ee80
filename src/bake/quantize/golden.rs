//! The golden vectors of a network that the build has quantized.

use crate::bake::golden::{self, GoldenVectors};
use crate::ir::graph::Tensors;
use crate::ir::network::Network;
use crate::ir::op::{Activation, Math, Op};
use crate::ir::whole_numbers::ranges;

/// The largest error that f32 may cause in a number that is then rounded to a whole number. It is a
/// share of the largest such number of the value, and eight times the error of one operation.
const MARGIN: f64 = 1.0 / (1u64 << 21) as f64;

/// Computes the scores of the golden vectors anew. If the user gave no golden vectors, some of
/// `records` become the golden vectors.
///
/// Engines may differ in the last digit of a float. If the float is then rounded to a whole number,
/// this may change the result by a whole step. So vectors with a float close to such a tie are left
/// out. If fewer than two vectors would remain, the two that are farthest from ties are taken.
pub(super) fn of_records(
    golden: &mut GoldenVectors,
    network: &Network,
    tensors: &Tensors,
    records: &[f32],
) {
    let width = network.width;
    let most = golden::most(network).min(golden::MOST);
    let given = golden.given;
    if !given {
        golden.inputs = super::some(records, width, most);
        golden.all = records.to_vec();
        golden.given = true;
    }
    let exact = exact(network);
    let measured = |inputs: &[f32]| -> Vec<Vector> {
        let vector = |record: &[f32]| Vector {
            distance: distance(network, tensors, &exact, record),
            record: record.to_vec(),
        };
        inputs.chunks_exact(width).map(vector).collect()
    };
    let sure = |v: &Vector| v.distance >= MARGIN;
    let enough = |vectors: &[Vector]| vectors.iter().filter(|v| sure(v)).count() >= 2;
    let mut vectors = measured(&golden.inputs);
    if !enough(&vectors) && !given {
        vectors = measured(records);
    }
    if enough(&vectors) {
        vectors.retain(sure);
        vectors.truncate(most);
    } else {
        vectors.sort_by(|a, b| b.distance.total_cmp(&a.distance));
        vectors.truncate(2);
    }
    golden.inputs = vectors.into_iter().flat_map(|v| v.record).collect();
    golden.count = golden.inputs.len() / width;
    golden.scores = golden::scores_of(network, tensors, &golden.inputs);
}

/// A record that may become a golden vector.
struct Vector {
    /// The least distance of its numbers from a tie, as [`distance`] gives it.
    distance: f64,
    record: Vec<f32>,
}

/// Returns, for each value of the graph, true if all engines compute exactly the same floats.
fn exact(network: &Network) -> Vec<bool> {
    let graph = &network.graph;
    let whole: Vec<bool> = ranges(graph).iter().map(Option::is_some).collect();
    let mut exact = vec![false; graph.values.len()];
    exact[graph.inputs[0]] = true;
    for node in graph.nodes.iter() {
        let all = |of: &[bool]| node.inputs.iter().all(|&v| of[v]);
        let round = node.op == Op::Activation(Activation::Math(Math::Round));
        let layer = matches!(node.op, Op::Affine | Op::Convolution { .. });
        let sum = matches!(node.op, Op::Combine(arithmetic) if arithmetic.rounds());
        // A scaling counts as exact, because its summand is 0. All engines round the product to the
        // same float.
        exact[node.output] = match node.op {
            Op::Scale => all(&exact),
            _ if layer || sum => all(&whole),
            _ => (node.op.moves() || round) && all(&exact),
        };
    }
    exact
}

/// Returns the least distance of a number that is rounded to a whole number from a tie (n + 0.5),
/// as a share of the largest such number of its value. Near a tie, two engines may round the number
/// in different directions.
fn distance(network: &Network, tensors: &Tensors, exact: &[bool], record: &[f32]) -> f64 {
    let graph = &network.graph;
    let rounds = |value: usize| {
        let mut readers = graph.consumers(value).map(|i| graph.nodes[i].op);
        readers.any(|op| op == Op::Activation(Activation::Math(Math::Round)))
    };
    let mut least = f64::INFINITY;
    let raw: Vec<f64> = record.iter().map(|&x| x.into()).collect();
    graph.evaluate(tensors, network.graph_input(&raw), |value, numbers| {
        if !exact[value] && rounds(value) {
            let largest = numbers.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
            let off = |x: &f64| (x - x.floor() - 0.5).abs() / largest;
            least = numbers.iter().map(off).fold(least, f64::min);
        }
    });
    least
}
