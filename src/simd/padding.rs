//! Rows without data. A layer's weights are padded to whole panels of 16 rows, but an instruction
//! set may have shorter vectors. Vectors of padding are not computed, and the result keeps old
//! values there, which may be NaN. Two kinds of steps read padding, and layers before them compute
//! all rows. An affine layer that reads an image multiplies it by weights of 0, so it must be
//! finite. A sum may add the zeros behind the channels of an image ([`sums`](super::sums)).
//! Poolings and depthwise convolutions set padding to 0 for such readers only.

use super::micro::Kernels;
use super::steps::{Action, HostStep, Place};

/// Reduces the rows that layers compute to whole vectors with data, unless their padding is read.
pub(super) fn leave_out(steps: &mut [HostStep], kernels: &Kernels) {
    let mut read: Vec<Place> = Vec::new();
    for step in steps.iter_mut().rev() {
        let is_read = read.contains(&step.to);
        match &mut step.action {
            Action::Affine(dense) => {
                // If the operand is the result of an affine layer, only its data are read.
                read.push(step.from);
                dense.reduce(kernels);
            }
            Action::Convolution(dense, _) => {
                if let Some(addend) = &dense.addend {
                    if is_read || addend.widened {
                        read.push(addend.place);
                    }
                }
                if !is_read {
                    dense.reduce(kernels);
                }
            }
            Action::Windows {
                bytes: None, pads, ..
            } => *pads = is_read,
            action if is_read => {
                read.extend([Some(step.from), action.other()].into_iter().flatten())
            }
            _ => {}
        }
    }
}
