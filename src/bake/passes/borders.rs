//! Joins padding with the window of the convolution or pooling that reads it.

use super::identities::not_negative;
use crate::bake::draft::Draft;
use crate::ir::op::{Border, Float, Op, Pool, Window};

/// Swaps a padding with infinite numbers and an element-wise function that makes them finite, as
/// ReLU does with −∞. Otherwise the function would read infinities, which engines take for an
/// overflow.
pub(super) fn finite(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let pad = draft.graph.nodes[i].clone();
        let Op::Pad { padding, value } = pad.op else {
            continue;
        };
        let Some(j) = draft.graph.only_consumer(pad.output) else {
            continue;
        };
        let Op::Activation(activation) = draft.graph.nodes[j].op else {
            continue;
        };
        let behind = activation.apply(value.get().into()) as f32;
        if value.get().is_finite() || !behind.is_finite() {
            continue;
        }
        let nodes = draft.graph.nodes.to_mut();
        nodes[i].op = Op::Activation(activation);
        nodes[j].op = Op::Pad {
            padding,
            value: Float::new(behind),
        };
        let name = std::mem::take(&mut nodes[j].name);
        nodes[j].name = std::mem::replace(&mut nodes[i].name, name);
        return true;
    }
    false
}

/// Joins a padding with the convolution or pooling that reads it, if the result does not change.
pub(super) fn join(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[i];
        let Some(pad) = draft.producer(node.inputs[0]) else {
            continue;
        };
        let Op::Pad { padding, value } = pad.op else {
            continue;
        };
        let Some(border) = padding.border() else {
            continue;
        };
        let (from, value) = (pad.inputs[0], value.get());
        let with = |window: Window| {
            let own = window.border;
            let border = Border {
                top: border.top + own.top,
                left: border.left + own.left,
                bottom: border.bottom + own.bottom,
                right: border.right + own.right,
            };
            Window { border, ..window }
        };
        let op = match node.op {
            Op::Convolution { window, groups } if value == 0.0 => Op::Convolution {
                window: with(window),
                groups,
            },
            Op::Pool {
                kind: Pool::PaddedMean,
                window,
            } if value == 0.0 => Op::Pool {
                kind: Pool::PaddedMean,
                window: with(window),
            },
            // Mean pooling without a border counts all padding elements, as `PaddedMean` does.
            Op::Pool {
                kind: Pool::Mean,
                window,
            } if value == 0.0 && window.border == Border::default() => Op::Pool {
                kind: Pool::PaddedMean,
                window: with(window),
            },
            // No image element is below such padding, so it never changes the maximum.
            Op::Pool {
                kind: Pool::Max,
                window,
            } if value == f32::NEG_INFINITY || (value == 0.0 && not_negative(draft, from)) => {
                Op::Pool {
                    kind: Pool::Max,
                    window: with(window),
                }
            }
            _ => continue,
        };
        let sizes: Vec<(usize, usize)> = node
            .tensors
            .iter()
            .map(|&t| (draft.graph.tensors[t].rows, draft.graph.tensors[t].cols))
            .collect();
        // The padding stays if joining changes the number of windows or leaves one empty.
        if op.shape(&[draft.shape(from)], &sizes) != Ok(draft.shape(node.output)) {
            continue;
        }
        let node = &mut draft.graph.nodes.to_mut()[i];
        (node.op, node.inputs) = (op, vec![from].into());
        return true;
    }
    false
}
