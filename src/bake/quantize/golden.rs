//! The golden vectors of a network that the build has quantized.

use crate::bake::golden::{self, GoldenVectors};
use crate::ir::graph::Tensors;
use crate::ir::network::Network;

/// Computes the scores of the golden vectors anew, and leaves out those close to ties. If the user
/// gave no golden vectors, some of `records` become the golden vectors.
pub(super) fn of_records(
    golden: &mut GoldenVectors,
    network: &Network,
    tensors: &Tensors,
    records: &[f32],
) {
    let most = golden::most(network).min(golden::MOST);
    let given = golden.given;
    if !given {
        golden.inputs = super::some(records, network.width, most);
        golden.all = records.to_vec();
        golden.given = true;
    }
    let others = if given { &[] } else { records };
    golden.leave_ties(network, tensors, others, most);
}
