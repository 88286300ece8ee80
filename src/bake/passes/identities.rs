//! Removes nodes that change nothing, and transpositions and reshapes that cancel each other.

use crate::bake::draft::Draft;
use crate::ir::graph::{Node, Shape};
use crate::ir::op::{Activation, Axis, Op, Padding, Pool, Window};

/// Removes one node whose result equals its operand.
pub(super) fn remove(draft: &mut Draft) -> bool {
    let same = |n: &&Node| {
        let (from, to) = (draft.shape(n.inputs[0]), draft.shape(n.output));
        from == to
            && match n.op {
                Op::Activation(Activation::None) | Op::Reshape(_) | Op::Slice { .. } => true,
                Op::Pad { padding, .. } => padding == Padding::default(),
                Op::Concat(_) => n.inputs.len() == 1,
                Op::Transpose(axes) => keeps(from, axes),
                Op::Pool { window, .. } => window == Window::of((1, 1)),
                Op::Resample { taps, .. } => {
                    // Every row and column has a single tap: the same row or column of the operand,
                    // with weight 1.
                    let places = (0..from.h).chain(0..from.w);
                    let own = |(tap, at): (&[f64], usize)| *tap == [at as f64, 1.0];
                    let array = draft.arrays(n)[0];
                    taps == (1, 1) && array.chunks_exact(2).zip(places).all(own)
                }
                Op::Scale => {
                    let [factors, summands] = draft.arrays(n)[..] else {
                        return false;
                    };
                    factors.iter().all(|&f| f == 1.0) && summands.iter().all(|&s| s == 0.0)
                }
                _ => false,
            }
    };
    let Some((from, to)) = draft
        .graph
        .nodes
        .iter()
        .find(same)
        .map(|n| (n.inputs[0], n.output))
    else {
        return false;
    };
    draft.redirect(to, from);
    true
}

/// Returns true if a transposition does not change the order of the elements, because it moves only
/// axes of size 1.
fn keeps(shape: Shape, axes: [Axis; 3]) -> bool {
    let long: Vec<usize> = axes
        .into_iter()
        .filter(|&a| shape.along(a) > 1)
        .map(|a| a as usize)
        .collect();
    long.is_sorted()
}

/// Lets a node skip the reshape or transposition in front of it and read its input directly.
/// Reshapes and affine layers skip a reshape. Two transpositions are joined into one. An affine
/// layer skips a transposition by permuting the columns of its weights.
pub(super) fn reroute(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let node = draft.graph.nodes[i].clone();
        let Some(before) = draft.producer(node.inputs[0]).cloned() else {
            continue;
        };
        let from = before.inputs[0];
        match (node.op, before.op) {
            (Op::Reshape(_) | Op::Affine, Op::Reshape(_)) => {
                draft.graph.nodes.to_mut()[i].inputs = vec![from].into();
            }
            // A transposition that keeps the order of the elements is only a reshape, so the affine
            // layer can skip it.
            (_, Op::Transpose(axes)) if keeps(draft.shape(from), axes) && node.op == Op::Affine => {
                draft.graph.nodes.to_mut()[i].inputs = vec![from].into();
            }
            (Op::Transpose(second), Op::Transpose(first)) => {
                draft.graph.nodes.to_mut()[i].inputs = vec![from].into();
                draft.graph.nodes.to_mut()[i].op = Op::Transpose(second.map(|a| first[a as usize]));
            }
            (Op::Affine, Op::Transpose(axes)) => {
                let (source, turned) = (draft.shape(from), draft.shape(before.output));
                let to: Vec<usize> = (0..turned.len())
                    .map(|j| self::source(source, turned, axes, j))
                    .collect();
                let weights = &mut draft.numbers[node.tensors[0]];
                for row in weights.chunks_exact_mut(to.len()) {
                    let old = row.to_vec();
                    to.iter().zip(old).for_each(|(&to, w)| row[to] = w);
                }
                draft.graph.nodes.to_mut()[i].inputs = vec![from].into();
            }
            _ => continue,
        }
        return true;
    }
    false
}

/// Moves a transposition behind the element-wise node that reads it, if no other node reads it.
/// There other passes may join it with another transposition or with weights.
pub(super) fn sink(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let node = draft.graph.nodes[i].clone();
        let Op::Transpose(axes) = node.op else {
            continue;
        };
        let Some(j) = draft.graph.only_consumer(node.output) else {
            continue;
        };
        let reader = draft.graph.nodes[j].clone();
        let (from, to) = (draft.shape(node.inputs[0]), draft.shape(node.output));
        match reader.op {
            Op::Activation(_) => {}
            Op::Scale => {
                // The factors and summands of the scaling are permuted as the elements are.
                let turned = |numbers: Vec<f64>| {
                    let mut result = vec![0.0; numbers.len()];
                    numbers
                        .into_iter()
                        .enumerate()
                        .for_each(|(k, v)| result[source(from, to, axes, k)] = v);
                    result
                };
                let (factors, summands) = (draft.spread(&reader, 0), draft.spread(&reader, 1));
                let arrays = super::scaling::scale_arrays(turned(factors), turned(summands), from);
                draft.change(j, Op::Scale, arrays);
            }
            _ => continue,
        }
        let tensors = draft.graph.nodes[j].tensors.clone();
        let nodes = draft.graph.nodes.to_mut();
        (nodes[i].op, nodes[i].tensors, nodes[i].name) = (reader.op, tensors, reader.name);
        (nodes[j].op, nodes[j].tensors, nodes[j].name) = (node.op, Vec::new().into(), node.name);
        return true;
    }
    false
}

/// Finds where a transposition from shape `from` to shape `to` takes an element from. `k` is the
/// index of the element in the result. Returns its index in the operand.
fn source(from: Shape, to: Shape, axes: [Axis; 3], k: usize) -> usize {
    let at = [k / (to.h * to.w), k / to.w % to.h, k % to.w];
    let mut element = [0; 3];
    axes.into_iter()
        .zip(at)
        .for_each(|(axis, i)| element[axis as usize] = i);
    from.index(element[0], element[1], element[2])
}

/// Returns true if no element of `value` can be below 0, judging by the node that computes it.
pub(super) fn not_negative(draft: &Draft, value: usize) -> bool {
    let Some(node) = draft.producer(value) else {
        return false;
    };
    match node.op {
        Op::Activation(Activation::Relu | Activation::Sigmoid | Activation::HardSigmoid { .. }) => {
            true
        }
        Op::Activation(Activation::Clip { low, .. }) => low.get() >= 0.0,
        Op::Pool {
            kind: Pool::Max, ..
        }
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Slice { .. } => not_negative(draft, node.inputs[0]),
        _ => false,
    }
}
