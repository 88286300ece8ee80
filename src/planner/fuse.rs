//! Which nodes one launch may compute: the chain that a kernel covers, as far as the graph allows it.

use crate::ir::graph::Graph;
use crate::ir::op::{Activation, Op};
use crate::registry::{Covered, Kernel};

/// Nodes that one launch computes.
#[derive(Default)]
pub(super) struct Chain {
    /// Every one, in order.
    pub(crate) nodes: Vec<usize>,
    /// Those with arrays, with the activation behind each.
    pub(crate) weighted: Vec<(usize, Activation)>,
}

/// The node that a launch may compute together with `node`: the only reader of its value, which does not go out.
fn fusible(graph: &Graph, node: usize) -> Option<usize> {
    graph.only_consumer(graph.nodes[node].output).filter(|&n| graph.nodes[n].inputs.len() == 1)
}

/// What `kernel` computes of `graph` from node `first` on; `None` where it does not cover what stands there.
pub(super) fn chain(graph: &Graph, kernel: &Kernel, first: usize) -> Option<Chain> {
    let (mut chain, mut next) = (Chain::default(), Some(first));
    let mut take = |what: Covered| {
        let Some(node) = next.filter(|&n| what.fits(graph, &graph.nodes[n])) else { return false };
        next = fusible(graph, node);
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
