//! Turns convolutions that have a single position into affine layers.

use crate::bake::draft::{Array, Draft};
use crate::ir::op::Op;

/// Turns a convolution with one group and a result of one pixel into an affine layer, unless the
/// affine layer needs more weights.
pub(super) fn of_convolution(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[i];
        let Op::Convolution { window, groups: 1 } = node.op else {
            continue;
        };
        let (from, to) = (draft.shape(node.inputs[0]), draft.shape(node.output));
        let [weights, biases] = draft.arrays(node)[..] else {
            continue;
        };
        let columns = weights.len() / to.c;
        if to.h * to.w != 1 || from.len() > columns {
            continue;
        }
        let mut rows = vec![0.0; to.c * from.len()];
        for (row, w) in rows
            .chunks_exact_mut(from.len())
            .zip(weights.chunks_exact(columns))
        {
            for (j, &w) in w.iter().enumerate() {
                let (p, c) = (j / from.c, j % from.c);
                let (_, width) = window.size;
                let (dilation_y, dilation_x) = window.dilation;
                let y = (p / width * dilation_y)
                    .checked_sub(window.border.top)
                    .filter(|&y| y < from.h);
                let x = (p % width * dilation_x)
                    .checked_sub(window.border.left)
                    .filter(|&x| x < from.w);
                if let (Some(y), Some(x)) = (y, x) {
                    row[from.index(c, y, x)] = w;
                }
            }
        }
        let arrays = Array::of_layer(rows, biases.to_vec());
        draft.change(i, Op::Affine, arrays);
        return true;
    }
    false
}
