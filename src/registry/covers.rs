//! The nodes of a graph that a kernel computes in one launch. The kernel's entry lists them as
//! `covers` and `epilogue`.

use super::{Holds, Kernel, LeadingArgument, Operation, Parameter};
use crate::ir::graph::{Graph, Node};
use crate::ir::op::{Activation, Arithmetic, Math, Op};
use crate::ir::view::RowMap;
use std::borrow::Cow;

/// A kind of graph node, as kernels name it in what they cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covered {
    Affine,
    /// A convolution with any number of groups.
    Convolution,
    /// A convolution of one group.
    Dense,
    /// A convolution in which each channel is a group (depthwise).
    Depthwise,
    Pool,
    /// A node `Op::Scale` or `Op::PRelu`.
    Scale,
    /// A node `Op::Scale` behind a layer, with a factor and a summand for each channel or for all.
    Rescale,
    /// An element-wise operation on two values.
    Combine,
    /// A sum of two values. The kernel computes one of the values and reads the other.
    Add,
    Resample,
    Product,
    Softmax,
    /// One of the activations that kernels fuse ([`Activation::FUSED`]).
    Activation,
    /// An activation of any kind.
    Function,
    /// The given activation, with any parameters.
    Only(Activation),
}

/// The rounding to integers, which may come before an activation in an epilogue.
const ROUNDING: Covered = Covered::Only(Activation::Math(Math::Round));

impl Covered {
    /// Returns all kinds of nodes with their names in `library.json`.
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, Covered)> {
        let activations = Activation::ALL
            .into_iter()
            .map(|a| (a.name(), Covered::Only(a)));
        let nodes = [
            ("affine", Covered::Affine),
            ("convolution", Covered::Convolution),
            ("dense_convolution", Covered::Dense),
            ("depthwise_convolution", Covered::Depthwise),
            ("pool", Covered::Pool),
            ("scale", Covered::Scale),
            ("rescale", Covered::Rescale),
            ("combine", Covered::Combine),
            ("add", Covered::Add),
            ("resample", Covered::Resample),
            ("product", Covered::Product),
            ("softmax", Covered::Softmax),
            ("activation", Covered::Activation),
            ("function", Covered::Function),
        ];
        nodes.into_iter().chain(activations)
    }

    pub(crate) fn named(name: &str) -> Option<Covered> {
        Covered::all()
            .find(|(known, _)| *known == name)
            .map(|(_, covered)| covered)
    }

    /// Returns true if `node` of `graph` is a node of this kind.
    pub(crate) fn fits(self, graph: &Graph, node: &Node) -> bool {
        let groups = if let Op::Convolution { groups, .. } = node.op {
            groups
        } else {
            0
        };
        let channels = |value: usize| graph.values[value].shape.c;
        match self {
            Covered::Affine => node.op == Op::Affine,
            Covered::Convolution => groups > 0,
            Covered::Dense => groups == 1,
            Covered::Depthwise => {
                groups > 1 && groups == channels(node.inputs[0]) && groups == channels(node.output)
            }
            Covered::Pool => matches!(node.op, Op::Pool { .. }),
            Covered::Scale => matches!(node.op, Op::Scale | Op::PRelu),
            Covered::Rescale => node.op == Op::Scale && rescales(graph, node),
            Covered::Combine => matches!(node.op, Op::Combine(_)),
            Covered::Add => node.op == Op::Combine(Arithmetic::Add),
            Covered::Resample => matches!(node.op, Op::Resample { .. }),
            Covered::Product => matches!(node.op, Op::Product { .. }),
            Covered::Softmax => matches!(node.op, Op::OfChannels(_)),
            Covered::Activation => {
                let fused = |a: Activation| Activation::FUSED.iter().any(|f| f.code() == a.code());
                matches!(node.op, Op::Activation(a) if fused(a))
            }
            Covered::Function => matches!(node.op, Op::Activation(_)),
            Covered::Only(only) => matches!(node.op, Op::Activation(a) if a.code() == only.code()),
        }
    }

    /// Returns true if nodes of this kind are activations.
    fn activates(self) -> bool {
        matches!(
            self,
            Covered::Activation | Covered::Function | Covered::Only(_)
        )
    }

    /// Returns true if nodes of this kind have weights and biases.
    fn weighs(self) -> bool {
        matches!(
            self,
            Covered::Affine | Covered::Convolution | Covered::Dense | Covered::Depthwise
        )
    }
}

/// Returns true if a `Scale` node has a factor and a summand for each channel, or one for all
/// channels.
fn rescales(graph: &Graph, node: &Node) -> bool {
    let shape = graph.values[node.inputs[0]].shape;
    let each = [
        (RowMap::of_channels(shape), shape.c),
        (RowMap::of_all(shape.len()), 1),
    ];
    let fits = |&t: &usize| {
        let array = &graph.tensors[t];
        let size = array.rows * array.cols;
        each.iter()
            .any(|(map, numbers)| array.map == Some(*map) && size == *numbers)
    };
    node.tensors.len() == 2 && node.tensors.iter().all(fits)
}

/// A node of [`Covers::chain`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CoveredNode {
    pub(crate) node: Covered,
    /// True if the kernel also runs for a network without this node (`"activation?"`).
    pub(crate) optional: bool,
}

/// A chain of nodes that a kernel computes in one launch. Each node must be the only reader of the
/// value of the node before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Covers {
    pub(crate) chain: Cow<'static, [CoveredNode]>,
    /// True if one launch computes the chain as often as it repeats in sequence. In `library.json`
    /// it then ends in `"..."`.
    pub(crate) repeated: bool,
}

impl Covers {
    /// Returns the default chain for kernels of an operation: the node with the operation's name.
    /// The chain is empty if the operation computes only a part of a node, or no node.
    pub(crate) fn of(operation: Operation) -> Covers {
        let own = Covered::named(operation.name()).map(|node| CoveredNode {
            node,
            optional: false,
        });
        Covers {
            chain: own.into_iter().collect(),
            repeated: false,
        }
    }

    /// Returns how many nodes of the chain have weights and biases.
    pub(crate) fn weighted(&self) -> usize {
        self.chain.iter().filter(|c| c.node.weighs()).count()
    }

    /// Returns the largest number of nodes that one launch computes. It is `usize::MAX` for a
    /// repeated chain.
    pub(crate) fn most_nodes(&self) -> usize {
        if self.repeated {
            usize::MAX
        } else {
            self.chain.len()
        }
    }
}

impl Kernel {
    /// Returns the nodes of the kernel's chain, followed by those of its epilogue.
    fn nodes(&self) -> impl Iterator<Item = Covered> {
        let chain = self.covers.chain.iter().map(|c| c.node);
        chain.chain(self.epilogue.iter().copied())
    }

    fn activates(&self) -> bool {
        self.nodes().any(Covered::activates)
    }

    /// True if the kernel can also compute a scaling behind its layer.
    pub(crate) fn rescales(&self) -> bool {
        self.epilogue.contains(&Covered::Rescale)
    }

    /// True if the kernel can round to whole numbers, before an activation that may follow.
    pub(crate) fn rounds(&self) -> bool {
        self.epilogue.contains(&ROUNDING)
    }

    /// Returns true if the kernel's source is compiled separately for each fused activation.
    pub(crate) fn fuses(&self) -> bool {
        self.activates() && self.operation.activation().is_none() && !self.covers.repeated
    }

    /// Returns the activations that the kernel can compute, with sample parameters. Tests and
    /// checks compile the kernel for each of these.
    pub(crate) fn activations(&self) -> &'static [Activation] {
        let rounding = usize::from(self.rounds());
        match self.nodes().filter(|c| c.activates()).nth(rounding) {
            Some(Covered::Function) if self.operation == Operation::Activation => &Activation::ALL,
            Some(Covered::Function) => &Activation::BEHIND_LAYERS,
            Some(_) => &Activation::FUSED,
            None => &[],
        }
    }

    /// Returns the shared source files below `kernels/` that are put before the kernel's own
    /// source.
    pub(crate) fn common(&self) -> impl Iterator<Item = &'static str> + use<> {
        let moves = self.restrictions.args.contains(&LeadingArgument::Geometry);
        let mapped = self.restrictions.args.contains(&LeadingArgument::Moved);
        let fours = self.restrictions.half && self.restrictions.needs.local_bytes > 0 && !moves;
        let warp = self.restrictions.needs.warp;
        let cache = warp || self.restrictions.keeps > 0;
        let files = [
            (self.activates(), "common/activation.cl"),
            (self.restrictions.bytes || self.whole(), "common/bias.cl"),
            (moves, "common/geometry.cl"),
            (mapped, "common/moved.cl"),
            (fours || warp, "common/weights.cl"),
            (cache, "common/cache.cl"),
            (warp, "common/warp.cl"),
            (warp, "common/products.cl"),
            (self.whole(), "common/dot.cl"),
        ];
        let any = self.options_of_layouts().then_some("common/place.cl");
        let needed = files
            .into_iter()
            .filter_map(|(needed, file)| needed.then_some(file));
        needed.chain(any)
    }

    /// Returns true if the kernel's source is compiled for the layouts of its operands.
    pub(crate) fn options_of_layouts(&self) -> bool {
        let any =
            |o: &Option<super::Operand>| o.as_ref().is_some_and(|o| o.representation.is_none());
        // A repack is named separately, because the lab's checks give its operands fixed layouts.
        let moves = any(&self.restrictions.b) && any(&self.restrictions.r);
        self.source.is_some() && (moves || self.operation == Operation::Repack || self.of_few())
    }

    /// Returns true if the kernel multiplies whole numbers as bytes. Its weights are bytes without
    /// scales. The planner does not choose such a kernel. `planner::whole` puts it into the plans
    /// of networks of integers.
    pub(crate) fn whole(&self) -> bool {
        self.define("WHOLE").is_some()
    }

    /// Returns true for a kernel for few records. Such a kernel shares its weights with a kernel
    /// for full batches.
    pub(crate) fn of_few(&self) -> bool {
        self.restrictions.a.as_ref().is_some_and(|a| a.panels)
    }

    /// Returns true if the kernel's arguments include all constants of a network. Such a kernel
    /// computes all nodes of a network or none.
    pub(crate) fn takes_all(&self) -> bool {
        self.operation
            .parameters()
            .iter()
            .any(|p| p.holds == Holds::Constants)
    }

    /// Checks that `covers` and `epilogue` match the operands of the operation, and can be
    /// compiled.
    pub(crate) fn check_covers(&self) -> Result<(), String> {
        let name = self.operation.name();
        if self.covers.repeated != self.takes_all() {
            return Err(match self.covers.repeated {
                true => format!(
                    "{name} has operands for its layers, so it covers no repeated chain (\"...\")"
                ),
                false => format!(
                    "{name} takes all constants at once, so it covers a repeated chain (\"...\")"
                ),
            });
        }
        let expected = self.weighted_nodes();
        let found = self.covers.weighted();
        if found != expected {
            return Err(format!(
                "{name} has weights of {expected} nodes, its chain has {found}"
            ));
        }
        self.check_chain(expected)?;
        self.check_epilogue(expected)
    }

    /// Returns how many nodes with weights the chain must have for the operation's operands.
    fn weighted_nodes(&self) -> usize {
        let weights = |p: &&Parameter| p.holds == Holds::Weights;
        let weights = self.operation.parameters().iter().filter(weights).count();
        match self.operation {
            Operation::Affine | Operation::Pair | Operation::Convolution => weights,
            // A reducepair kernel finishes two nodes. It needs the weights of the second only,
            // since the affine kernel before it used those of the first.
            Operation::ReducePair => weights + 1,
            Operation::Layers => 1,
            // The other operations compute a part of a node, or a node without weights. A matmul
            // and a bias kernel compute a node together, as do an affine and a reduce kernel.
            _ => 0,
        }
    }

    fn check_chain(&self, weighted: usize) -> Result<(), String> {
        let chain = &self.covers.chain;
        let first = chain.first().map(|c| c.node);
        let own = match self.operation {
            Operation::Affine | Operation::Pair | Operation::ReducePair | Operation::Layers => {
                first == Some(Covered::Affine)
            }
            Operation::Convolution => {
                first.is_some_and(Covered::weighs) && first != Some(Covered::Affine)
            }
            Operation::Activation => first == Some(Covered::Function),
            other => self.covers == Covers::of(other),
        };
        let required = chain.first().is_none_or(|c| !c.optional);
        if own && required && (weighted > 0 || chain.len() <= 1) {
            return Ok(());
        }
        Err(match self.operation {
            Operation::Convolution => "the chain begins with a convolution".into(),
            _ if weighted > 0 => "the chain begins with an affine node".into(),
            other => format!("{} covers no other node and has no epilogue", other.name()),
        })
    }

    fn check_epilogue(&self, weighted: usize) -> Result<(), String> {
        let name = self.operation.name();
        let ends = matches!(
            self.operation,
            Operation::Reduce | Operation::Pool | Operation::Scale | Operation::Combine
        );
        if weighted == 0 && !self.epilogue.is_empty() && !ends {
            return Err(format!("{name} covers no other node and has no epilogue"));
        }
        let order = |c: &Covered| match c {
            Covered::Rescale => Some(0),
            &ROUNDING => Some(1),
            Covered::Add => Some(2),
            c if c.activates() => Some(3),
            _ => None,
        };
        let places: Option<Vec<u8>> = self.epilogue.iter().map(order).collect();
        if !places.is_some_and(|p| p.is_sorted_by(|a, b| a < b || (a, b) == (&3, &3))) {
            return Err(
                "an epilogue may have \"rescale\", \"round\", \"add\" and an activation, in this \
                 order"
                    .into(),
            );
        }
        if self.rescales() && !self.restrictions.bytes && !self.whole() {
            return Err(
                "only kernels that take weights as bytes find a scaling beside their biases".into(),
            );
        }
        let operands = self.operation.parameters();
        let no_operand = operands.len() == self.parameters().len() || self.takes_hidden();
        let in_chain = self.covers.chain.iter().any(|c| c.node == Covered::Add);
        if self.adds() && no_operand || in_chain {
            return Err(format!("{name} has no operand for what it adds"));
        }
        let rounding = usize::from(self.rounds());
        if self.nodes().filter(|c| c.activates()).count() > 1 + rounding {
            return Err(
                "covers and epilogue have one activation at most, which the kernel is compiled for"
                    .into(),
            );
        }
        Ok(())
    }
}
