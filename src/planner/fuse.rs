//! Finds the nodes of a graph that one launch of a kernel can compute together.

use crate::ir::graph::Graph;
use crate::ir::op::{Activation, Arithmetic, Math, Op};
use crate::registry::{Covered, Kernel};

/// The nodes of a graph that one launch of a kernel computes.
#[derive(Default)]
pub(super) struct Chain {
    /// All nodes that the launch computes, in order.
    pub(crate) nodes: Vec<usize>,
    /// The nodes that have weights or other arrays, each with the activation that follows it.
    pub(crate) weighted: Vec<(usize, Activation)>,
    /// The addition node that the launch also computes, and the value that is added to the launch's
    /// sums.
    pub(crate) added: Option<(usize, usize)>,
    /// The `Scale` node behind a layer that the launch also computes.
    pub(crate) rescaled: Option<usize>,
    /// True if the launch rounds to whole numbers before the activation.
    pub(crate) rounds: bool,
}

/// Returns the node that a launch may compute together with `node`. It must be the only reader of
/// `node`'s value, which must be no output. A reader of two values must be an addition of equal
/// shapes that `may_add(addition, other value)` permits. The other value is then returned, too.
fn fusible(
    graph: &Graph,
    node: usize,
    may_add: impl Fn(usize, usize) -> bool,
) -> Option<(usize, Option<usize>)> {
    let value = graph.nodes[node].output;
    let next = graph.only_consumer(value)?;
    let reader = &graph.nodes[next];
    let &[first, second] = &*reader.inputs else {
        return (reader.inputs.len() == 1).then_some((next, None));
    };
    let other = if first == value { second } else { first };
    let adds = reader.op == Op::Combine(Arithmetic::Add)
        && graph.values[other].shape == graph.values[value].shape
        && may_add(next, other);
    adds.then_some((next, Some(other)))
}

/// Returns the nodes that `kernel` computes from node `first` on. Returns `None` if the graph does
/// not match the nodes that the kernel covers. A kernel for whole networks must not leave out a
/// node.
pub(super) fn chain(
    graph: &Graph,
    kernel: &Kernel,
    first: usize,
    may_add: impl Fn(usize, usize) -> bool,
) -> Option<Chain> {
    let (mut chain, mut next) = (Chain::default(), Some((first, None)));
    let mut take = |what: Covered, behind: bool| {
        // A mathematical function gets its own step, unless the kernel's entry names the function.
        let own_step = |n: usize| matches!(graph.nodes[n].op, Op::Activation(Activation::Math(_)));
        let named = matches!(what, Covered::Only(_));
        let fits =
            |n: usize| what.fits(graph, &graph.nodes[n]) && (named || !(behind && own_step(n)));
        let Some((node, other)) = next.filter(|&(n, _)| fits(n)) else {
            return false;
        };
        next = fusible(graph, node, &may_add);
        chain.added = chain.added.or(other.map(|value| (node, value)));
        chain.nodes.push(node);
        match (graph.nodes[node].op, chain.weighted.last_mut()) {
            (Op::Scale, _) if what == Covered::Rescale => chain.rescaled = Some(node),
            (
                Op::Affine | Op::Convolution { .. } | Op::Scale | Op::PRelu | Op::Resample { .. },
                _,
            ) => chain.weighted.push((node, Activation::None)),
            (Op::Activation(Activation::Math(Math::Round)), _) if behind => chain.rounds = true,
            (Op::Activation(a), Some((_, behind))) => *behind = a,
            _ => {}
        }
        true
    };
    let mut whole = || {
        kernel.covers.chain.iter().try_for_each(|covered| {
            let taken = take(covered.node, false);
            (taken || covered.optional).then_some(())
        })
    };
    whole().filter(|()| !kernel.covers.chain.is_empty())?;
    while kernel.covers.repeated && whole().is_some() {}
    kernel.epilogue.iter().for_each(|&what| {
        take(what, true);
    });
    let all = chain.nodes.len() == graph.nodes.len();
    (all || !kernel.takes_all()).then_some(chain)
}
