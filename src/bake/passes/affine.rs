//! Affine layers of what is one.

use crate::bake::draft::Draft;
use crate::ir::graph::Role;
use crate::ir::op::Op;

/// Makes an affine layer of a convolution with one place, where it has no more weights.
pub(super) fn of_convolution(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[i];
        let Op::Convolution { window, groups: 1 } = node.op else { continue };
        let (from, to) = (draft.shape(node.inputs[0]), draft.shape(node.output));
        let [weights, biases] = draft.arrays(node)[..] else { continue };
        let columns = weights.len() / to.c;
        if to.h * to.w != 1 || from.len() > columns {
            continue;
        }
        let mut rows = vec![0.0; to.c * from.len()];
        for (row, w) in rows.chunks_exact_mut(from.len()).zip(weights.chunks_exact(columns)) {
            for (j, &w) in w.iter().enumerate() {
                let (p, c) = (j / from.c, j % from.c);
                let (ky, kx) = (p / window.size.1, p % window.size.1);
                let y = (ky * window.dilation.0).checked_sub(window.border.top).filter(|&y| y < from.h);
                let x = (kx * window.dilation.1).checked_sub(window.border.left).filter(|&x| x < from.w);
                if let (Some(y), Some(x)) = (y, x) {
                    row[from.index(c, y, x)] = w;
                }
            }
        }
        let arrays = vec![(Role::Weights, to.c, from.len(), rows), (Role::Biases, to.c, 1, biases.to_vec())];
        draft.change(i, Op::Affine, arrays);
        return true;
    }
    false
}

/// Makes one affine layer of two, one behind the other, where it has no more weights than both.
pub(super) fn product(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let first = draft.graph.nodes[i].clone();
        let Some(j) = draft.graph.only_consumer(first.output) else { continue };
        let second = draft.graph.nodes[j].clone();
        if first.op != Op::Affine || second.op != Op::Affine {
            continue;
        }
        let ([w1, b1], [w2, b2]) = (&draft.arrays(&first)[..], &draft.arrays(&second)[..]) else { continue };
        let (inner, outputs) = (b1.len(), b2.len());
        let inputs = w1.len() / inner;
        if outputs * inputs > w1.len() + w2.len() {
            continue;
        }
        let (mut weights, mut biases) = (vec![0.0; outputs * inputs], b2.to_vec());
        for (o, row) in w2.chunks_exact(inner).enumerate() {
            for (k, &w) in row.iter().enumerate() {
                biases[o] += w * b1[k];
                let to = &mut weights[o * inputs..][..inputs];
                to.iter_mut().zip(&w1[k * inputs..][..inputs]).for_each(|(t, v)| *t += w * v);
            }
        }
        let arrays = vec![(Role::Weights, outputs, inputs, weights), (Role::Biases, outputs, 1, biases)];
        draft.change(j, Op::Affine, arrays);
        draft.graph.nodes.to_mut()[j].inputs = first.inputs.clone();
        return true;
    }
    false
}
