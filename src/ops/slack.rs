//! The differences that correct engines may have in networks of dynamic range. Such a network
//! rounds its values to 8-bit integers. If a value is near the middle of two integers, the last
//! digit of a float decides between them, and all values behind it change a little. The more values
//! a network has, the more records have such a value, so no choice of records avoids that.

use super::bound::excess;
use crate::ir::network::Network;
use crate::ir::op::{Activation, Op};

/// The most records that the estimate computes.
const RECORDS: usize = 8;

/// The factor by which a difference may exceed the largest one of the computed records.
const SPREAD: f64 = 4.0;

impl Network {
    /// Returns the largest allowed difference of a score, as a multiple of
    /// [`score_bound`](super::bound::score_bound). It is 1 for networks without values that are
    /// rounded to steps. For others it follows from the change of the scores if nothing is rounded,
    /// because a few values that are rounded otherwise change them less. `raw` has raw inputs.
    pub(crate) fn slack(&self, tensors: &[Vec<f32>], raw: &[f32]) -> f64 {
        if !self.graph.rounds_to_steps() {
            return 1.0;
        }
        let mut unrounded = self.clone();
        for node in unrounded.graph.nodes.to_mut() {
            if node.op.rounds_to_steps() {
                node.op = Op::Activation(Activation::None);
            }
        }
        let records = raw.chunks_exact(self.width.max(1)).take(RECORDS);
        let raw = records.collect::<Vec<_>>().concat();
        let with = self.scores_of_all(tensors, &raw);
        let without = unrounded.scores_of_all(tensors, &raw);
        let changed = with
            .iter()
            .zip(&without)
            .map(|(with, without)| excess(with, without.iter().map(|&x| x as f32)))
            .filter(|x| x.is_finite());
        (SPREAD * changed.fold(0.0, f64::max)).max(1.0)
    }
}
