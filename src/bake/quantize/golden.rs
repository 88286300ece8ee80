//! The golden vectors of a network that the build has quantized.

use crate::bake::golden::{self, GoldenVectors};
use crate::ir::graph::Tensors;
use crate::ir::network::Network;
use crate::ir::op::{Activation, Math, Op, Pool};

/// The largest error that f32 may cause in a number that is then rounded to a whole number. It is a
/// share of the largest such number of the value, and eight times the error of one operation.
const MARGIN: f64 = 1.0 / (1u64 << 21) as f64;

/// Computes the scores of the golden vectors anew. If the user gave no golden vectors, some of
/// `records` become the golden vectors.
///
/// Engines may differ in the last digit of a float. If the float is then rounded to a whole number,
/// this may change the result by a whole step. So vectors with a float close to such a tie are left
/// out, unless fewer than two vectors would remain.
pub(super) fn of_records(
    golden: &mut GoldenVectors,
    network: &Network,
    tensors: &Tensors,
    records: &[f32],
) {
    let width = network.width;
    if !golden.given {
        let most = golden::most(network).min(golden::MOST);
        golden.inputs = super::some(records, width, most);
        golden.all = records.to_vec();
        golden.given = true;
    }
    let exact = exact(network);
    let sure = |record: &&[f32]| is_sure(network, tensors, &exact, record);
    let kept: Vec<&[f32]> = golden.inputs.chunks_exact(width).filter(sure).collect();
    if kept.len() >= 2 {
        golden.inputs = kept.concat();
    }
    golden.count = golden.inputs.len() / width;
    golden.scores = golden::scores_of(network, tensors, &golden.inputs);
}

/// Returns, for each value of the graph, true if all engines compute exactly the same floats.
fn exact(network: &Network) -> Vec<bool> {
    let graph = &network.graph;
    let mut exact = vec![false; graph.values.len()];
    // For each value of the graph, true if all its elements are whole numbers.
    let mut whole = exact.clone();
    exact[graph.inputs[0]] = true;
    for node in graph.nodes.iter() {
        let all = |of: &[bool]| node.inputs.iter().all(|&v| of[v]);
        let moves = match node.op {
            Op::Concat(_) | Op::Slice { .. } | Op::Pad { .. } => true,
            Op::Reshape(_) | Op::Transpose(_) => true,
            Op::Activation(Activation::Relu | Activation::Clip { .. }) => true,
            Op::Activation(Activation::Math(Math::Round)) => true,
            Op::Pool { kind, .. } => kind == Pool::Max,
            _ => false,
        };
        let layer = matches!(node.op, Op::Affine | Op::Convolution { .. });
        let sum = matches!(node.op, Op::Combine(arithmetic) if arithmetic.rounds());
        // A scaling counts as exact, because its summand is 0. All engines round the product to the
        // same float.
        exact[node.output] = match node.op {
            Op::Scale => all(&exact),
            _ if layer || sum => all(&whole),
            _ => moves && all(&exact),
        };
        whole[node.output] = node.op.rounds() || (moves && all(&whole));
    }
    exact
}

/// Returns true if every number that is rounded to a whole number is far enough from a tie (n +
/// 0.5). Otherwise two engines may round it in different directions.
fn is_sure(network: &Network, tensors: &Tensors, exact: &[bool], record: &[f32]) -> bool {
    let graph = &network.graph;
    let rounds = |value: usize| {
        let mut readers = graph.consumers(value).map(|i| graph.nodes[i].op);
        readers.any(|op| op == Op::Activation(Activation::Math(Math::Round)))
    };
    let mut sure = true;
    let raw: Vec<f64> = record.iter().map(|&x| x.into()).collect();
    graph.evaluate(tensors, network.graph_input(&raw), |value, numbers| {
        if !exact[value] && rounds(value) {
            let largest = numbers.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
            let far = |x: &f64| (x - x.floor() - 0.5).abs() > largest * MARGIN;
            sure &= numbers.iter().all(far);
        }
    });
    sure
}
