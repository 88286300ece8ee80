//! Rows without data. A layer's weights are padded to whole panels of 16 rows, but an instruction
//! set may have shorter vectors. Vectors of padding are not computed, and the results keep old
//! values there. Only some sums read them: [`sums`](super::sums) adds zeros behind the channels of
//! an image.

use super::micro::Kernels;
use super::steps::{Action, HostStep, Place};

/// Reduces the rows that layers compute to whole vectors with data. Layers whose padding is read
/// keep all rows.
pub(super) fn leave_out(steps: &mut [HostStep], kernels: &Kernels) {
    let mut read: Vec<Place> = Vec::new();
    for step in steps.iter_mut().rev() {
        let is_read = read.contains(&step.to);
        if let Action::Affine(dense) | Action::Convolution(dense, _) = &mut step.action {
            let rows = dense.rows.next_multiple_of(dense.lanes(kernels));
            if let Some(addend) = &dense.addend {
                if is_read || addend.widened {
                    read.push(addend.place);
                }
            }
            dense.rows = if is_read { dense.biases.len() } else { rows };
        }
    }
}
