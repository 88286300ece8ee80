//! Which nodes of a graph a kernel computes in one launch, as its entry states it: `covers` and `epilogue`.

use super::{Holds, Kernel, Operation};
use crate::ir::op::{Activation, Op};
use std::borrow::Cow;

/// What a node must be for a kernel to compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covered {
    /// An affine layer.
    Affine,
    /// Any activation.
    Activation,
    /// This activation.
    Only(Activation),
}

impl Covered {
    /// Every one, as `library.json` calls them.
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, Covered)> {
        let activations = Activation::ALL.into_iter().map(|a| (a.name(), Covered::Only(a)));
        [("affine", Covered::Affine), ("activation", Covered::Activation)].into_iter().chain(activations)
    }

    /// Whether a node that computes `op` is one.
    pub(crate) fn fits(self, op: Op) -> bool {
        match self {
            Covered::Affine => op == Op::Affine,
            Covered::Activation => matches!(op, Op::Activation(_)),
            Covered::Only(only) => matches!(op, Op::Activation(a) if a.code() == only.code()),
        }
    }
}

/// A chain of nodes, each the only reader of the one before it, that a kernel computes in one launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Covers {
    /// The nodes in order, and whether a network may do without (`"activation?"`).
    pub(crate) chain: Cow<'static, [(Covered, bool)]>,
    /// The chain stands as often as the network has it (`"..."` at its end).
    pub(crate) repeated: bool,
}

impl Covers {
    /// What kernels of an operation cover that do not say it: the node of the same name. Those of the others compute a
    /// part of a node, or none.
    pub(crate) fn of(operation: Operation) -> Covers {
        let own = Covered::all().find(|c| c.0 == operation.name());
        Covers { chain: own.map(|c| (c.1, false)).into_iter().collect(), repeated: false }
    }

    /// Affine layers of the chain.
    pub(crate) fn affine(&self) -> usize {
        self.chain.iter().filter(|c| c.0 == Covered::Affine).count()
    }

    /// Most nodes that it covers; as good as no bound where the chain is repeated.
    pub(crate) fn most_nodes(&self) -> usize {
        if self.repeated { usize::MAX } else { self.chain.len() }
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
            .any(|c| c != Covered::Affine)
    }

    /// Whether it is compiled for an activation that is fused into it.
    pub(crate) fn fuses(&self) -> bool {
        self.activates() && self.operation.activation().is_none() && !self.covers.repeated
    }

    /// The file below `kernels/` that stands in front of its source.
    pub(crate) fn common(&self) -> Option<&'static str> {
        self.activates().then_some("common/activation.cl")
    }

    /// Whether it takes all constants of a network at once, and so computes all its nodes or none.
    pub(crate) fn takes_all(&self) -> bool {
        self.operation.parameters().iter().any(|p| p.holds == Holds::Constants)
    }

    /// What its entry says to cover and its operands do not fit, or its source could not be compiled for.
    pub(crate) fn check_covers(&self) -> Result<(), String> {
        let (covers, operands) = (&self.covers, self.operation.parameters());
        let weights = operands.iter().filter(|p| p.holds == Holds::Weights).count();
        let name = self.operation.name();
        if covers.repeated != self.takes_all() {
            return Err(match covers.repeated {
                true => {
                    format!("{name} has operands for its layers, so it covers no repeated chain (\"...\")")
                }
                false => {
                    format!("{name} takes all constants at once, so it covers a repeated chain (\"...\")")
                }
            });
        }
        // A matmul computes its node with a bias, a reduce with an affine kernel.
        let expected = match self.operation {
            Operation::Affine | Operation::Pair => weights,
            Operation::Layers => 1,
            _ => 0,
        };
        if covers.affine() != expected {
            let found = covers.affine();
            return Err(format!("{name} has weights of {expected} affine nodes, its chain has {found}"));
        }
        let own = Covers::of(self.operation);
        if expected == 0
            && (*covers != own || !(self.epilogue.is_empty() || self.operation == Operation::Reduce))
        {
            return Err(format!("{name} covers no other node and has no epilogue"));
        }
        if expected > 0 && covers.chain[0] != (Covered::Affine, false) {
            return Err("the chain begins with an affine node".into());
        }
        let activations = covers.chain.len() - covers.affine() + self.epilogue.len();
        if self.epilogue.contains(&Covered::Affine) {
            return Err("an epilogue is an activation".into());
        }
        if activations > 1 {
            return Err(
                "covers and epilogue have one activation at most, which the kernel is compiled for".into()
            );
        }
        Ok(())
    }
}
