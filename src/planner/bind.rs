//! Arguments and ranges of a launch: the one place that makes them, for the engines' plans and for the checks of
//! `bench` alike. What `bench` verifies is therefore what an engine launches.

use crate::spec::layout::Layout;
use crate::spec::library::{Kernel, Operation, Problem};
use crate::spec::plan::{Arg, Extent};

/// What an operand of a kernel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Weights: a constant that may be stored as halves, or an image.
    Weights,
    /// Summands of rows: a constant of floats.
    Biases,
    /// Every constant of the network, one after the other.
    Constants,
    /// A matrix of floats, a column for each record.
    Values,
    /// A u32 for each column.
    Classes,
    /// A byte for each element.
    Bytes,
    /// A u32 for each element.
    Words,
}

/// A number of rows or columns of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// 1
    One,
    /// Rows of the result.
    H,
    /// Columns of the result: records.
    W,
    /// Common dimension.
    L,
    /// Rows of a pair's first layer.
    M,
    /// Rows of the result, once for each part of the common dimension.
    Parts,
    /// What the plan gives it: values between layers.
    Plan,
}

/// An operand of a kernel: its name in the source, what it holds, its rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Name in the source.
    pub name: &'static str,
    /// What it holds.
    pub holds: Holds,
    /// Rows.
    pub rows: Dim,
    /// Columns.
    pub cols: Dim,
}

const fn operand(name: &'static str, holds: Holds, rows: Dim, cols: Dim) -> Operand {
    Operand { name, holds, rows, cols }
}

const A: Operand = operand("a", Holds::Weights, Dim::H, Dim::L);
const B: Operand = operand("b", Holds::Values, Dim::L, Dim::W);
const R: Operand = operand("r", Holds::Values, Dim::H, Dim::W);
const BIAS: Operand = operand("bias", Holds::Biases, Dim::H, Dim::One);
const CLASSES: Operand = operand("classes", Holds::Classes, Dim::One, Dim::W);

impl Operation {
    /// The operands a kernel of this operation takes after its sizes, in order.
    pub fn operands(self) -> &'static [Operand] {
        match self {
            Operation::Matmul => const { &[A, B, R] },
            Operation::Bias => const { &[R, BIAS] },
            Operation::Affine => const { &[A, B, BIAS, operand("r", Holds::Values, Dim::Parts, Dim::W)] },
            Operation::Reduce => const { &[operand("b", Holds::Values, Dim::Parts, Dim::W), BIAS, R] },
            Operation::Pair => {
                const {
                    &[
                        operand("a", Holds::Weights, Dim::M, Dim::L),
                        operand("bias", Holds::Biases, Dim::M, Dim::One),
                        operand("a2", Holds::Weights, Dim::H, Dim::M),
                        operand("bias2", Holds::Biases, Dim::H, Dim::One),
                        B,
                        R,
                    ]
                }
            }
            Operation::Layers => {
                const {
                    &[
                        operand("a", Holds::Constants, Dim::Plan, Dim::One),
                        B,
                        operand("hidden", Holds::Values, Dim::Plan, Dim::W),
                        R,
                        CLASSES,
                    ]
                }
            }
            Operation::Sigmoid | Operation::Relu | Operation::Tanh => const { &[R] },
            Operation::ArgMax => const { &[B, CLASSES] },
            Operation::Sobel => {
                const {
                    &[
                        operand("image", Holds::Bytes, Dim::H, Dim::W),
                        operand("dx", Holds::Bytes, Dim::H, Dim::W),
                        operand("dy", Holds::Bytes, Dim::H, Dim::W),
                    ]
                }
            }
            Operation::Order => {
                const {
                    &[
                        operand("counter", Holds::Words, Dim::One, Dim::One),
                        operand("r", Holds::Words, Dim::H, Dim::W),
                    ]
                }
            }
            Operation::Probe => const { &[operand("a", Holds::Values, Dim::H, Dim::W), R] },
        }
    }
}

/// Sizes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Result and common dimension. Of a `reduce`, `l` is the number of parts.
    pub problem: Problem,
    /// Rows of the operand that is read, without padding.
    pub rows: usize,
    /// Rows of a pair's first layer; else 0.
    pub middle: usize,
    /// Work-groups that share the common dimension, each with a result of its own.
    pub parts: usize,
}

impl Sizes {
    /// A launch whose work-groups share nothing.
    pub fn of(problem: Problem) -> Sizes {
        Sizes { problem, rows: problem.l, middle: 0, parts: 1 }
    }

    /// Rows and columns of an operand.
    pub fn of_operand(&self, operation: Operation, operand: &Operand) -> (usize, usize) {
        let parts = if operation == Operation::Reduce { self.problem.l } else { self.parts };
        let size = |dim| match dim {
            Dim::One => 1,
            Dim::H => self.problem.h,
            Dim::W => self.problem.w,
            Dim::L => self.problem.l,
            Dim::M => self.middle,
            Dim::Parts => self.problem.h * parts,
            Dim::Plan => 0,
        };
        (size(operand.rows), size(operand.cols))
    }
}

impl Kernel {
    /// The layout in which the kernel takes `operand`; row major where it does not say.
    pub fn layout(&self, operand: &Operand) -> Layout {
        let r = &self.restrictions;
        let of = match operand.name {
            "a" => &r.a,
            "b" => &r.b,
            "r" => &r.r,
            _ => &None,
        };
        of.as_ref().and_then(|o| o.representation.clone()).unwrap_or(Layout::R)
    }

    /// Whether it reads `operand` as an image.
    pub fn reads_image(&self, operand: &Operand) -> bool {
        let of = match operand.name {
            "a" => &self.restrictions.a,
            "b" => &self.restrictions.b,
            _ => &None,
        };
        of.as_ref().is_some_and(|o| o.image)
    }
}

/// A kernel about to be launched.
#[derive(Clone, Copy, Debug)]
pub struct Call<'k> {
    /// The kernel.
    pub kernel: &'k Kernel,
    /// Rows and columns of work-items of a work-group; the driver chooses where it is `None`.
    pub group: Option<(usize, usize)>,
    /// Padded sizes.
    pub sizes: Sizes,
    /// alpha and beta of a scaled product.
    pub factors: (f32, f32),
    /// Columns of the result that a launch's second size grows by: a part batch is a multiple of it.
    pub granule: usize,
}

/// Arguments and ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Arguments in order.
    pub args: Vec<Arg>,
    /// Work-items in dimensions 0 and 1.
    pub global: (Extent, Extent),
    /// Work-group size in dimensions 0 and 1.
    pub local: Option<(usize, usize)>,
}

/// Makes arguments and ranges of a launch; `place` says where an operand is.
pub fn bind(call: &Call<'_>, mut place: impl FnMut(&'static Operand) -> Arg) -> Launch {
    let Call { kernel, sizes, .. } = call;
    let Problem { h, w, l } = sizes.problem;
    let mut args: Vec<Arg> = Vec::new();
    for letter in kernel.restrictions.arglist.chars() {
        args.push(Arg::Size(match letter {
            'l' => l,
            'w' => w,
            'h' => h,
            'm' => sizes.middle,
            _ => sizes.rows,
        } as u32));
    }
    if kernel.restrictions.scaled {
        args.extend([Arg::Scalar(call.factors.0), Arg::Scalar(call.factors.1)]);
    }
    args.extend(kernel.operation.operands().iter().map(&mut place));
    let launch = Launch {
        args,
        global: global(call),
        local: call.group.map(|group| kernel.restrictions.dimensions(group)),
    };
    #[cfg(test)]
    let launch = fault::apply(launch);
    launch
}

/// Work-items: one per tile, one per element for kernels that take any layout, one per column for the arg-max; or whole
/// work-groups over tiles.
fn global(call: &Call<'_>) -> (Extent, Extent) {
    let (r, p, granule) = (&call.kernel.restrictions, call.sizes.problem, call.granule);
    let per_granule = |items| Extent::Records { records: granule, items };
    let (sy, sx) = (r.scale.0.max(1), r.scale.1.max(1));
    if let (Some((y, x)), Some(group)) = (r.tile, call.group) {
        let rows = Extent::Fixed(p.h.div_ceil(y) * group.0 * call.sizes.parts);
        return r.dimensions((rows, per_granule(granule.div_ceil(x) * group.1)));
    }
    match call.kernel.operation {
        Operation::ArgMax => (per_granule(granule), Extent::Fixed(1)),
        Operation::Sobel => {
            let inner = |size: usize, tile: usize| size.saturating_sub(2).div_ceil(tile).max(1);
            r.dimensions((Extent::Fixed(inner(p.h, sy)), Extent::Fixed(inner(p.w, sx))))
        }
        _ if r.r.as_ref().is_some_and(|o| o.representation.is_none()) => {
            (per_granule(granule * p.h), Extent::Fixed(1))
        }
        _ => {
            // Rows may be fewer than those of whole work-groups.
            let rows = p.h.div_ceil(sy).next_multiple_of(call.group.map_or(1, |g| g.0));
            r.dimensions((Extent::Fixed(rows), per_granule(granule.div_ceil(sx))))
        }
    }
}

/// Mistakes that a test makes in [`bind`], to see that the checks of `bench` find them.
#[cfg(test)]
pub mod fault {
    use super::{Arg, Extent, Launch};
    use std::cell::Cell;

    /// A mistake.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// The first size is one more.
        Size,
        /// The last two operands are each other's.
        Operands,
        /// One work-item of dimension 0 (or group of them) less than the result needs.
        Short,
    }

    thread_local! {
        static MADE: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Runs `work` with the mistake in every launch that this thread binds.
    pub fn with<T>(fault: Fault, work: impl FnOnce() -> T) -> T {
        MADE.set(Some(fault));
        let result = work();
        MADE.set(None);
        result
    }

    pub(super) fn apply(mut launch: Launch) -> Launch {
        match MADE.get() {
            None => {}
            Some(Fault::Size) => {
                if let Some(Arg::Size(n)) = launch.args.first_mut() {
                    *n += 1;
                }
            }
            Some(Fault::Operands) => {
                let n = launch.args.len();
                launch.args.swap(n - 1, n - 2);
            }
            Some(Fault::Short) => {
                let less = launch.local.map_or(1, |l| l.0);
                let (Extent::Fixed(items) | Extent::Records { items, .. }) = &mut launch.global.0;
                *items = items.saturating_sub(less).max(less);
            }
        }
        launch
    }
}
