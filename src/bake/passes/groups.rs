//! Turns convolutions with several groups of channels into convolutions with one group.

use crate::bake::draft::{Array, Draft};
use crate::ir::op::Op;

/// Turns a convolution with several groups into one with a single group, whose weights are 0
/// between channels of different groups. Kernels support only one group, or depthwise convolutions.
/// There each group has one input channel and one output.
pub(super) fn dense(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[i];
        let Op::Convolution { window, groups } = node.op else {
            continue;
        };
        let (inputs, outputs) = (draft.shape(node.inputs[0]).c, draft.shape(node.output).c);
        if groups == 1 || (groups == inputs && groups == outputs) {
            continue;
        }
        let [weights, biases] = draft.arrays(node)[..] else {
            continue;
        };
        let (height, width) = window.size;
        let (group, pixels) = (inputs / groups, height * width);
        let mut wide = vec![0.0; outputs * pixels * inputs];
        for (row, w) in weights.chunks_exact(pixels * group).enumerate() {
            let first = row / (outputs / groups) * group;
            for (p, w) in w.chunks_exact(group).enumerate() {
                wide[(row * pixels + p) * inputs + first..][..group].copy_from_slice(w);
            }
        }
        let arrays = Array::of_layer(wide, biases.to_vec());
        draft.change(i, Op::Convolution { window, groups: 1 }, arrays);
        return true;
    }
    false
}
