//! Which nodes of a graph a kernel computes in one launch, as its entry states it: `covers` and
//! `epilogue`.

use super::{Holds, Kernel, Operation};
use crate::ir::graph::{Graph, Node};
use crate::ir::op::{Activation, Arithmetic, Op};
use std::borrow::Cow;

/// What a node must be for a kernel to compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covered {
    /// An affine layer.
    Affine,
    /// Any convolution.
    Convolution,
    /// A convolution of one group.
    Dense,
    /// A convolution of one channel each.
    Depthwise,
    /// A maximum or a mean of windows.
    Pool,
    /// Factors of channels or elements, with or without summands.
    Scale,
    /// Two values, element by element.
    Combine,
    /// The sum of two values, one of which the kernel computes.
    Add,
    /// Softmax of channels.
    Softmax,
    /// An activation that kernels fuse ([`Activation::FUSED`]).
    Activation,
    /// Any activation.
    Function,
    /// This activation.
    Only(Activation),
}

impl Covered {
    /// Every one, as `library.json` calls them.
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
            ("combine", Covered::Combine),
            ("add", Covered::Add),
            ("softmax", Covered::Softmax),
            ("activation", Covered::Activation),
            ("function", Covered::Function),
        ];
        nodes.into_iter().chain(activations)
    }

    /// Whether `node` of `graph` is one.
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
            Covered::Combine => matches!(node.op, Op::Combine(_)),
            Covered::Add => node.op == Op::Combine(Arithmetic::Add),
            Covered::Softmax => matches!(node.op, Op::Softmax(_)),
            Covered::Activation => {
                let fused = |a: Activation| Activation::FUSED.iter().any(|f| f.code() == a.code());
                matches!(node.op, Op::Activation(a) if fused(a))
            }
            Covered::Function => matches!(node.op, Op::Activation(_)),
            Covered::Only(only) => matches!(node.op, Op::Activation(a) if a.code() == only.code()),
        }
    }

    /// Whether it is an activation.
    fn activates(self) -> bool {
        matches!(
            self,
            Covered::Activation | Covered::Function | Covered::Only(_)
        )
    }

    /// Whether it is what sums of products begin with: it has weights and biases.
    fn weighs(self) -> bool {
        matches!(
            self,
            Covered::Affine | Covered::Convolution | Covered::Dense | Covered::Depthwise
        )
    }
}

/// A chain of nodes, each the only reader of the one before it, that a kernel computes in one
/// launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Covers {
    /// The nodes in order, and whether a network may do without (`"activation?"`).
    pub(crate) chain: Cow<'static, [(Covered, bool)]>,
    /// The chain stands as often as the network has it (`"..."` at its end).
    pub(crate) repeated: bool,
}

impl Covers {
    /// What kernels of an operation cover that do not say it: the node of the same name. Those of
    /// the others compute a part of a node, or none.
    pub(crate) fn of(operation: Operation) -> Covers {
        let own = Covered::all().find(|c| c.0 == operation.name());
        Covers {
            chain: own.map(|c| (c.1, false)).into_iter().collect(),
            repeated: false,
        }
    }

    /// Nodes of the chain that have weights and biases.
    pub(crate) fn weighted(&self) -> usize {
        self.chain.iter().filter(|c| c.0.weighs()).count()
    }

    /// Most nodes that it covers; as good as no bound where the chain is repeated.
    pub(crate) fn most_nodes(&self) -> usize {
        if self.repeated {
            usize::MAX
        } else {
            self.chain.len()
        }
    }
}

impl Kernel {
    /// Whether an activation can be part of it.
    fn activates(&self) -> bool {
        self.covers
            .chain
            .iter()
            .map(|c| c.0)
            .chain(self.epilogue.iter().copied())
            .any(Covered::activates)
    }

    /// Whether it is compiled for an activation that is fused into it.
    pub(crate) fn fuses(&self) -> bool {
        self.activates() && self.operation.activation().is_none() && !self.covers.repeated
    }

    /// Those it is compiled for in turn in tests and checks: every one that is fused into it, with
    /// some parameters.
    pub(crate) fn activations(&self) -> &'static [Activation] {
        let chain = self
            .covers
            .chain
            .iter()
            .map(|c| c.0)
            .chain(self.epilogue.iter().copied());
        match chain.into_iter().find(|c| c.activates()) {
            Some(Covered::Function) => &Activation::ALL,
            Some(_) => &Activation::FUSED,
            None => &[],
        }
    }

    /// The files below `kernels/` that stand in front of its source.
    pub(crate) fn common(&self) -> impl Iterator<Item = &'static str> + use<> {
        let moves = self.restrictions.arglist.contains('g');
        let mapped = self.restrictions.arglist.contains('f');
        let fours = self.restrictions.half && self.restrictions.needs.local_bytes > 0 && !moves;
        let warp = self.restrictions.needs.warp;
        let cache = warp || self.restrictions.keeps > 0;
        let files = [
            (self.activates(), "common/activation.cl"),
            (self.restrictions.bytes, "common/bias.cl"),
            (moves, "common/geometry.cl"),
            (mapped, "common/moved.cl"),
            (fours || warp, "common/weights.cl"),
            (cache, "common/cache.cl"),
            (warp, "common/warp.cl"),
            (warp, "common/products.cl"),
        ];
        let any = self.options_of_layouts().then_some("common/place.cl");
        files.into_iter().filter(|f| f.0).map(|f| f.1).chain(any)
    }

    /// Whether it is compiled for the layouts of its operands.
    pub(crate) fn options_of_layouts(&self) -> bool {
        let any =
            |o: &Option<super::Operand>| o.as_ref().is_some_and(|o| o.representation.is_none());
        // Checks of a repack fix its layouts.
        let moves = any(&self.restrictions.b) && any(&self.restrictions.r);
        self.source.is_some() && (moves || self.operation == Operation::Repack || self.of_few())
    }

    /// Whether it is for few records: it takes its weights as those for full batches have them.
    pub(crate) fn of_few(&self) -> bool {
        self.restrictions.a.as_ref().is_some_and(|a| a.panels)
    }

    /// Whether it takes all constants of a network at once, and so computes all its nodes or none.
    pub(crate) fn takes_all(&self) -> bool {
        self.operation
            .parameters()
            .iter()
            .any(|p| p.holds == Holds::Constants)
    }

    /// What its entry says to cover and its operands do not fit, or its source could not be
    /// compiled for.
    pub(crate) fn check_covers(&self) -> Result<(), String> {
        let (covers, operands) = (&self.covers, self.operation.parameters());
        let weights = operands
            .iter()
            .filter(|p| p.holds == Holds::Weights)
            .count();
        let name = self.operation.name();
        if covers.repeated != self.takes_all() {
            return Err(match covers.repeated {
                true => {
                    format!(
                        "{name} has operands for its layers, so it covers no repeated chain \
                         (\"...\")"
                    )
                }
                false => {
                    format!(
                        "{name} takes all constants at once, so it covers a repeated chain \
                         (\"...\")"
                    )
                }
            });
        }
        // A matmul computes its node with a bias, a reduce with an affine kernel; so does a
        // reducepair with the first of two.
        let expected = match self.operation {
            Operation::Affine | Operation::Pair | Operation::Convolution => weights,
            Operation::ReducePair => weights + 1,
            Operation::Layers => 1,
            _ => 0,
        };
        if covers.weighted() != expected {
            let found = covers.weighted();
            return Err(format!(
                "{name} has weights of {expected} nodes, its chain has {found}"
            ));
        }
        let first = covers.chain.first().map(|c| c.0);
        let own = match self.operation {
            Operation::Affine | Operation::Pair | Operation::ReducePair | Operation::Layers => {
                first == Some(Covered::Affine)
            }
            Operation::Convolution => {
                first.is_some_and(Covered::weighs) && first != Some(Covered::Affine)
            }
            Operation::Activation => first == Some(Covered::Function),
            other => *covers == Covers::of(other),
        };
        let chain =
            covers.chain.first().is_none_or(|c| !c.1) && (expected > 0 || covers.chain.len() <= 1);
        if !own || !chain {
            return Err(match self.operation {
                Operation::Convolution => "the chain begins with a convolution".into(),
                _ if expected > 0 => "the chain begins with an affine node".into(),
                _ => format!("{name} covers no other node and has no epilogue"),
            });
        }
        let ends = [
            Operation::Reduce,
            Operation::Pool,
            Operation::Scale,
            Operation::Combine,
        ];
        if expected == 0 && !self.epilogue.is_empty() && !ends.contains(&self.operation) {
            return Err(format!("{name} covers no other node and has no epilogue"));
        }
        let epilogue = self.epilogue.iter();
        if !epilogue
            .skip(usize::from(self.adds()))
            .all(|c| c.activates())
        {
            return Err("an epilogue is an activation, or \"add\" and an activation".into());
        }
        if self.adds() && (operands.len() == self.parameters().len() || self.takes_hidden())
            || covers.chain.iter().any(|c| c.0 == Covered::Add)
        {
            return Err(format!("{name} has no operand for what it adds"));
        }
        let chain = covers.chain.iter().map(|c| c.0);
        if chain
            .chain(self.epilogue.iter().copied())
            .filter(|c| c.activates())
            .count()
            > 1
        {
            return Err(
                "covers and epilogue have one activation at most, which the kernel is compiled for"
                    .into(),
            );
        }
        Ok(())
    }
}
