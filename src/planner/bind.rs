//! Binds the arguments and computes the work-items of a launch. Plans and the checks of `bench`
//! share this code, so `bench` verifies exactly what an engine launches.

use crate::ir::op::Float;
use crate::ir::plan::{Arg, Extent, Plan, Step, places};
use crate::ir::product::Product;
use crate::ir::scale::BESIDE;
use crate::ir::view::{Geometry, Moved};
use crate::registry::{
    Dim, Kernel, LeadingArgument, Library, Operation, Parameter, Problem, operands,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Rows and columns of the result, and the common dimension. For a `reduce`, `l` is the number
    /// of parts.
    pub(crate) problem: Problem,
    /// Rows of the operand that the launch reads, without padding.
    pub(crate) rows: usize,
    /// Padded rows of the first layer's result, if the kernel computes a pair of layers, else 0.
    pub(crate) middle: usize,
    /// The number of work-groups that share the common dimension. Each writes a partial result. For
    /// a `reducepair` it is the number of parts that the previous step wrote.
    pub(crate) parts: usize,
    /// Rows and columns of a convolution's weights or of a resampling's taps, else 0.
    pub(crate) weights: (usize, usize),
    /// Padded rows of the second operand if the launch has two, else 0.
    pub(crate) second: usize,
    /// True if operands and result have the same layout and size, so that one index addresses all
    /// of them.
    pub(crate) alike: bool,
    /// The maps of the factors and of the summands of a `Scale` step. A `Gather` step has its map
    /// twice.
    pub(crate) moved: [Moved; 2],
    /// The images that the kernel reads and writes, and its window. `None` for kernels without
    /// images.
    pub(crate) geometry: Option<Geometry>,
    /// The sizes and operand rows of a product of two computed values, else `None`.
    pub(crate) product: Option<Product>,
    /// The factors of both operands of a rounded sum; 0 for other operations.
    pub(crate) factors: [Float; 2],
}

impl Sizes {
    /// Returns the sizes of a launch with one operand and without images. Its work-groups do not
    /// share the common dimension.
    pub(crate) fn of(problem: Problem) -> Sizes {
        let (rows, weights) = (problem.l, (0, 0));
        Sizes {
            problem,
            rows,
            middle: 0,
            parts: 1,
            weights,
            second: 0,
            alike: false,
            moved: [Moved::default(); 2],
            geometry: None,
            product: None,
            factors: [Float::new(0.0); 2],
        }
    }

    /// Returns the padded rows and columns of an operand. A dimension [`Dim::Plan`] gives 0,
    /// because only a plan knows it.
    pub(crate) fn of_operand(&self, operation: Operation, operand: &Parameter) -> (usize, usize) {
        let parts = if operation == Operation::Reduce {
            self.problem.l
        } else {
            self.parts
        };
        let size = |dim| match dim {
            Dim::One => 1,
            Dim::H => self.problem.h,
            Dim::W => self.problem.w,
            Dim::L => self.problem.l,
            Dim::M => self.middle,
            Dim::Parts => self.problem.h * parts,
            Dim::PartsOfL => self.problem.l * parts,
            Dim::Outputs => self.weights.0,
            Dim::Taps => self.weights.1,
            Dim::Second => self.second,
            Dim::Factors => self.moved[0].from.end(),
            Dim::Summands => self.moved[1].from.end(),
            Dim::Plan => 0,
        };
        (size(operand.rows), size(operand.cols))
    }
}

/// A kernel with the work-group, sizes and scalar arguments of one launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'k> {
    pub(crate) kernel: &'k Kernel,
    /// Rows and columns of work-items in a work-group. With `None` the driver chooses them.
    pub(crate) group: Option<(usize, usize)>,
    pub(crate) sizes: Sizes,
    /// The factors alpha and beta of a scaled product.
    pub(crate) factors: (f32, f32),
    /// The two parameters of the activation; 0 for a parameter that it does not have.
    pub(crate) params: [f32; 2],
    /// The constant that a gather kernel writes into result rows without a source row. For a kernel
    /// of whole numbers, the number that its operand is counted from.
    pub(crate) value: f32,
    /// A part of a batch is rounded up to a multiple of this number of records. Each multiple adds
    /// work-items.
    pub(crate) granule: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    /// Arguments in the order of the kernel's parameters.
    pub(crate) args: Vec<Arg>,
    /// The number of work-items in dimensions 0 and 1.
    pub(crate) global: (Extent, Extent),
    /// The work-group's size in dimensions 0 and 1. With `None` the driver chooses it.
    pub(crate) local: Option<(usize, usize)>,
}

/// Returns the arguments and work-items of a launch. `place` must return the argument for an
/// operand.
pub(crate) fn bind(call: &Call<'_>, mut place: impl FnMut(&'static Parameter) -> Arg) -> Launch {
    let Call { kernel, sizes, .. } = call;
    let Problem { h, w, l } = sizes.problem;
    let mut args: Vec<Arg> = Vec::new();
    for argument in kernel.restrictions.args.iter() {
        args.push(match argument {
            LeadingArgument::Depth => Arg::Size(l as u32),
            LeadingArgument::Width => Arg::Size(w as u32),
            LeadingArgument::Height => Arg::Size(h as u32),
            LeadingArgument::Middle => Arg::Size(sizes.middle as u32),
            LeadingArgument::Parts => Arg::Size(sizes.parts as u32),
            LeadingArgument::Params => Arg::Pair(call.params.into()),
            LeadingArgument::Value => Arg::Scalar(call.value),
            LeadingArgument::Second => Arg::Size(sizes.second as u32),
            LeadingArgument::Rows => Arg::Size(sizes.rows as u32),
            LeadingArgument::Moved => Arg::Moved(sizes.moved[0]),
            LeadingArgument::Added => Arg::Moved(sizes.moved[1]),
            LeadingArgument::Geometry => Arg::Geometry(sizes.geometry.unwrap_or_default()),
            LeadingArgument::Factors => Arg::Pair(sizes.factors.map(Float::get).into()),
            LeadingArgument::Product => Arg::Product(sizes.product.unwrap_or_default()),
        });
    }
    if kernel.restrictions.scaled {
        args.extend([Arg::Scalar(call.factors.0), Arg::Scalar(call.factors.1)]);
    }
    args.extend(
        kernel
            .operation
            .operands(sizes.second > 0 || kernel.takes_hidden())
            .iter()
            .map(&mut place),
    );
    let launch = Launch {
        args,
        global: global(call),
        local: call
            .group
            .map(|group| kernel.restrictions.dimensions(group)),
    };
    #[cfg(test)]
    let launch = fault::apply(launch);
    launch
}

/// Returns the number of work-items in both dimensions. A kernel with tiles gets a work-group for
/// each tile. An element-wise kernel gets a work-item for each element, an arg-max kernel one for
/// each column. Most other kernels get a work-item for each micro-tile.
fn global(call: &Call<'_>) -> (Extent, Extent) {
    let (r, p, granule) = (&call.kernel.restrictions, call.sizes.problem, call.granule);
    let per_granule = |items| Extent::Records {
        records: granule,
        items,
    };
    let pixels = call
        .sizes
        .geometry
        .map_or(1, |g| g.output.1.h * g.output.1.w);
    let (sy, sx) = (r.scale.0.max(1), r.scale.1.max(1));
    if let (Some((y, tile)), Some(group), Some(g)) = (r.tile, call.group, call.sizes.geometry) {
        let rows = Extent::Fixed(g.output.0.pixel.div_ceil(y) * group.0);
        // A kernel for few records gets whole tiles for each record. So no work-group spans two
        // records and touches unwritten columns.
        let columns = if call.kernel.of_few() {
            pixels.next_multiple_of(tile)
        } else {
            pixels
        };
        return r.dimensions((
            rows,
            Extent::Columns {
                columns,
                tile,
                group: group.1,
            },
        ));
    }
    if let (Some((y, x)), Some(group)) = (r.tile, call.group) {
        let shares = if call.kernel.operation == Operation::ReducePair {
            1
        } else {
            call.sizes.parts
        };
        let rows = Extent::Fixed(p.h.div_ceil(y) * group.0 * shares);
        return r.dimensions((rows, per_granule(granule.div_ceil(x) * group.1)));
    }
    match call.kernel.operation {
        Operation::ArgMax => (per_granule(granule), Extent::Fixed(1)),
        Operation::Sobel => {
            let inner = |size: usize, tile: usize| size.saturating_sub(2).div_ceil(tile).max(1);
            r.dimensions((Extent::Fixed(inner(p.h, sy)), Extent::Fixed(inner(p.w, sx))))
        }
        _ if r.elementwise() => (per_granule(granule * p.h), Extent::Fixed(1)),
        Operation::Combine | Operation::Scale if call.sizes.alike => {
            (per_granule(granule * p.h), Extent::Fixed(1))
        }
        Operation::Softmax => (Extent::Fixed(1), per_granule(granule * pixels)),
        Operation::Gather => (
            Extent::Fixed(call.sizes.moved[0].items()),
            per_granule(granule),
        ),
        _ => {
            // Rounding up to whole work-groups may exceed the rows of the matrix. The kernel skips
            // the excess.
            let rows = call.sizes.geometry.map_or(p.h, |g| g.output.0.pixel);
            let rows = rows
                .div_ceil(sy)
                .next_multiple_of(call.group.map_or(1, |g| g.0));
            r.dimensions((
                Extent::Fixed(rows),
                per_granule(granule.div_ceil(sx) * pixels),
            ))
        }
    }
}

/// Returns how many bytes of each argument the step's kernel may touch for a full batch. The sizes
/// come from the registry's operands, not from the plan's buffers, so they can verify these.
pub(crate) fn touched(plan: &Plan, step: &Step, library: &Library) -> Vec<usize> {
    let leading = library
        .kernel(&step.kernel)
        .map_or(&[][..], |k| &k.1.restrictions.args);
    let (operands, args) = operands(step);
    let sizes = step.args.len() - args.len();
    let found = |argument| {
        let at = leading.iter().position(|&a| a == argument)?;
        Some(&step.args[at])
    };
    let size = |argument| match found(argument) {
        Some(&Arg::Size(n)) => n as usize,
        _ => 0,
    };
    let parts = size(LeadingArgument::Parts).max(1);
    let mut of = Sizes {
        middle: size(LeadingArgument::Middle),
        second: size(LeadingArgument::Second),
        parts,
        ..Sizes::of(step.problem)
    };
    let moved = |argument| match found(argument) {
        Some(&Arg::Moved(moved)) => moved,
        _ => Moved::default(),
    };
    of.moved = [LeadingArgument::Moved, LeadingArgument::Added].map(moved);
    // The first constant of a convolution is its weights. The first of a resampling is its taps.
    if let Some(c) = step.constants().next().map(|i| &plan.constants[i]) {
        of.weights = c.padded;
    }
    let bytes = |(operand, arg): (&Parameter, &Arg)| {
        let (rows, cols) = of.of_operand(step.operation, operand);
        let size = match *arg {
            Arg::Constants => return places(&plan.constants).1,
            Arg::Constant(i) => plan.constants[i].precision.bytes(),
            _ => 4,
        };
        match *arg {
            // The constant holds the biases and the numbers beside them.
            Arg::Constant(i) if plan.constants[i].has_columns() => {
                rows.next_multiple_of(BESIDE) * plan.constants[i].columns_of_biases() * size
            }
            _ => rows * cols * size,
        }
    };
    vec![0; sizes]
        .into_iter()
        .chain(operands.iter().zip(args).map(bytes))
        .collect()
}

/// Faults that tests insert into [`bind`], to prove that the checks of `bench` find such mistakes.
#[cfg(test)]
pub(crate) mod fault {
    use super::{Arg, Extent, Launch};
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// The first argument is too large by one, if it is a size.
        Size,
        /// The last two operands are swapped.
        Operands,
        /// Dimension 0 of the launch lacks one work-item or one work-group.
        Short,
        /// The two parameters of an activation are swapped.
        Parameters,
    }

    thread_local! {
        static MADE: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Runs `work` with `fault` in every launch that this thread binds meanwhile.
    pub(crate) fn with<T>(fault: Fault, work: impl FnOnce() -> T) -> T {
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
                if let [.., a, b] = &mut launch.args[..] {
                    std::mem::swap(a, b);
                }
            }
            Some(Fault::Parameters) => {
                let pairs = launch
                    .args
                    .iter_mut()
                    .filter_map(|a| if let Arg::Pair(p) = a { Some(p) } else { None });
                pairs.for_each(|pair| *pair = (pair.1, pair.0));
            }
            Some(Fault::Short) => {
                let less = launch.local.map_or(1, |l| l.0);
                if let Extent::Fixed(items) | Extent::Records { items, .. } = &mut launch.global.0 {
                    *items = items.saturating_sub(less).max(less);
                }
            }
        }
        launch
    }
}
