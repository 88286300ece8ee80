//! Which nodes one launch may compute: the chain that a kernel covers, as far as the graph allows it.

use crate::ir::graph::Graph;
use crate::ir::op::{Activation, Arithmetic, Op};
use crate::registry::{Covered, Kernel};

/// Nodes that one launch computes.
#[derive(Default)]
pub(super) struct Chain {
    /// Every one, in order.
    pub(crate) nodes: Vec<usize>,
    /// Those with arrays, with the activation behind each.
    pub(crate) weighted: Vec<(usize, Activation)>,
    /// The node of an addition behind the sums, and the value that it adds to them.
    pub(crate) added: Option<(usize, usize)>,
}

/// Whether a launch that computes a node may add a value, in place of a node that reads both.
pub(super) type MayAdd<'a> = dyn Fn(usize, usize) -> bool + 'a;

/// The node that a launch may compute together with `node`: the only reader of its value, which does not go out. Where that
/// reads another value, too, it adds one of the same shape, that [`MayAdd`] allows.
fn fusible(graph: &Graph, node: usize, may_add: &MayAdd<'_>) -> Option<usize> {
    let value = graph.nodes[node].output;
    let next = graph.only_consumer(value)?;
    let reader = &graph.nodes[next];
    let alike = |&other: &usize| graph.values[other].shape == graph.values[value].shape;
    let allowed = reader.inputs.len() == 1
        || reader.op == Op::Combine(Arithmetic::Add)
            && reader.inputs.iter().all(alike)
            && other(graph, next, value).is_some_and(|other| may_add(next, other));
    allowed.then_some(next)
}

/// What `node` reads beside `value`.
fn other(graph: &Graph, node: usize, value: usize) -> Option<usize> {
    graph.nodes[node].inputs.iter().copied().find(|&v| v != value)
}

/// What `kernel` computes of `graph` from node `first` on; `None` where it does not cover what stands there.
pub(super) fn chain(graph: &Graph, kernel: &Kernel, first: usize, may_add: &MayAdd<'_>) -> Option<Chain> {
    let (mut chain, mut next) = (Chain::default(), Some(first));
    let mut take = |what: Covered| {
        let Some(node) = next.filter(|&n| what.fits(graph, &graph.nodes[n])) else { return false };
        next = fusible(graph, node, may_add);
        if let (Covered::Add, Some(&before)) = (what, chain.nodes.last()) {
            chain.added = other(graph, node, graph.nodes[before].output).map(|value| (node, value));
        }
        chain.nodes.push(node);
        match (graph.nodes[node].op, chain.weighted.last_mut()) {
            (Op::Affine | Op::Convolution { .. } | Op::Scale | Op::PRelu, _) => {
                chain.weighted.push((node, Activation::None))
            }
            (Op::Activation(a), Some((_, behind))) => *behind = a,
            _ => {}
        }
        true
    };
    let mut whole = || {
        kernel.covers.chain.iter().try_for_each(|&(what, optional)| {
            let taken = take(what);
            (taken || optional).then_some(())
        })
    };
    whole().filter(|()| !kernel.covers.chain.is_empty())?;
    while kernel.covers.repeated && whole().is_some() {}
    kernel.epilogue.iter().for_each(|&what| {
        take(what);
    });
    let all = chain.nodes.len() == graph.nodes.len();
    (all || !kernel.takes_all()).then_some(chain)
}
