//! A plan: the steps that compute a batch, the buffers between them and the constants they read.
//!
//! A step is one launch of one kernel with all its arguments, not a layer of the network. The
//! planner decides everything. The engines only execute the steps.

use super::layout::Layout;
use super::network::Precision;
use super::op::{Activation, Operation};
use super::options::StepOptions;
use super::product::Product;
use super::view::{Geometry, Moved, RowMap};
pub(crate) use crate::ir::graph::Role;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// An array of the network in the layout that its kernel reads, padded with zeros.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    /// The name of the graph node that owns the array, such as `layers[2]`.
    pub(crate) name: Cow<'static, str>,
    /// Index of the array in the graph's tensors.
    pub(crate) tensor: usize,
    /// Set for the biases of a layer whose weights are stored as bytes: the index of the weights.
    /// The scales of their rows are the second column of this constant.
    pub(crate) scales: Option<usize>,
    /// Set for the biases of a layer whose kernel also computes the scaling behind the layer. The
    /// factors and the summands of the rows are the last two columns of this constant.
    pub(crate) rescale: Option<Rescaling>,
    pub(crate) role: Role,
    pub(crate) placing: Placing,
    /// Rows and columns of the array, before [`Placing`] and padding.
    pub(crate) size: (usize, usize),
    /// Rows and columns of the constant, padding included.
    pub(crate) padded: (usize, usize),
    pub(crate) layout: Layout,
    /// The number format of the stored elements.
    pub(crate) precision: Precision,
    /// True if a device holds the constant as an OpenCL image. Kernels that take a buffer cannot
    /// read it.
    pub(crate) image: bool,
}

/// The arrays of a scaling behind a layer, as indices of the graph's tensors. Each array has a
/// number for each row of the layer, or one number for all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rescaling {
    pub(crate) factors: usize,
    pub(crate) summands: usize,
}

/// The map from the columns of an array to the columns of its constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Placing {
    /// The constant has the columns of the array.
    Plain,
    /// Column j of the array is column `map.row(j)` of the constant. The columns of the array count
    /// the elements of a value. The columns of the constant count the rows of the value's matrix.
    Columns(RowMap),
}

impl Constant {
    /// Returns the number of elements of the constant, padding included.
    pub(crate) fn len(&self) -> usize {
        self.padded.0 * self.padded.1
    }

    /// Returns the columns of a constant with biases: the biases, then the numbers beside them.
    pub(crate) fn columns_of_biases(&self) -> usize {
        columns_of_biases(self.scales, self.rescale)
    }

    /// Returns true if the constant has biases and other numbers beside them.
    pub(crate) fn has_columns(&self) -> bool {
        self.columns_of_biases() > 1
    }

    /// Returns the bytes of the constant as it is stored, padding included.
    pub(crate) fn bytes(&self) -> usize {
        self.len() * self.precision.bytes()
    }

    /// Returns `I8` for biases with scales, because they belong to weights stored as bytes. Returns
    /// the constant's own format otherwise.
    pub(crate) fn weights(&self) -> Precision {
        if self.scales.is_some() {
            Precision::I8
        } else {
            self.precision
        }
    }
}

/// Returns the number of columns of biases with these scales and this scaling beside them.
pub(crate) fn columns_of_biases(scales: Option<usize>, rescale: Option<Rescaling>) -> usize {
    1 + usize::from(scales.is_some()) + 2 * usize::from(rescale.is_some())
}

/// Returns the start of each constant in one buffer that holds all of them, and the size of that
/// buffer. Both are in bytes and multiples of [`ARENA_ALIGN`].
pub(crate) fn places(constants: &[Constant]) -> (Vec<usize>, usize) {
    let mut end = 0;
    let place = |c: &Constant| {
        let start = end;
        end += c.bytes().next_multiple_of(ARENA_ALIGN);
        start
    };
    (constants.iter().map(place).collect(), end)
}

/// Batches in flight. The stream fills one slot while the engine computes the other.
pub(crate) const SLOTS: usize = 2;

/// The class of a record with a NaN or an infinity among its scores. Callers report an error for
/// it.
pub(crate) const NAN_CLASS: u32 = u32::MAX;

/// Bytes that the host engine reserves for each number of a slot that arrives as text. Eight bytes
/// hold a separator, six digits and a decimal point. Whole numbers are usually shorter.
pub(crate) const TEXT_BYTES: usize = 8;

/// Largest batch. Sizes and offsets of every plan then stay far below 2³².
pub(crate) const MOST_RECORDS: usize = 1 << 16;

/// The use of a buffer of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferRole {
    /// The stream writes it, one record in each column. Each slot has one.
    Input,
    /// A buffer of the arena that only steps write and read.
    Hidden,
    /// The network's output values. Each slot has one.
    Scores,
    /// The class of each record as a u32. Each slot has one.
    Classes,
}

/// A buffer of the plan: a matrix of values with a column for each record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Buffer {
    /// Name for messages and profiles.
    pub(crate) name: Cow<'static, str>,
    pub(crate) role: BufferRole,
    /// Rows of the matrix without the padding rows behind them.
    pub(crate) rows: usize,
    /// Maps each element of the value that the buffer holds to its row of the matrix.
    pub(crate) map: RowMap,
    /// Rows of the matrix, padding rows included. The contents of padding rows are arbitrary but
    /// finite.
    pub(crate) padded_rows: usize,
    /// Layout of the matrix of `padded_rows` rows and [`Plan::padded_batch`] columns.
    pub(crate) layout: Layout,
    /// Offset of a hidden buffer in the arena, in bytes. It is a multiple of [`ARENA_ALIGN`].
    pub(crate) arena: usize,
}

impl Buffer {
    /// Returns the number of elements for `columns` records, padding rows included.
    pub(crate) fn len(&self, columns: usize) -> usize {
        self.padded_rows * columns
    }
}

/// Alignment of buffers in the arena, in bytes: at least CL_DEVICE_MEM_BASE_ADDR_ALIGN.
pub(crate) const ARENA_ALIGN: usize = 4096;

/// The number of work-items in one dimension of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The number does not depend on the batch.
    Fixed(usize),
    /// Each whole or partial group of `records` records adds `items` work-items.
    Records {
        /// Records that share `items` work-items.
        records: usize,
        /// Work-items for each group of records.
        items: usize,
    },
    /// The launch covers `columns` columns of each record, such as pixels, with the records side by
    /// side. Each whole or partial tile of `tile` columns gets a work-group.
    Columns {
        /// Columns that each record has in the launch.
        columns: usize,
        /// Columns that a work-group computes.
        tile: usize,
        /// Work-items of a work-group in this dimension.
        group: usize,
    },
}

impl Extent {
    /// Returns the number of work-items for a batch of `n` records.
    pub(crate) fn items(self, n: usize) -> usize {
        match self {
            Extent::Fixed(items) => items,
            Extent::Records { records, items } => n.div_ceil(records) * items,
            Extent::Columns {
                columns,
                tile,
                group,
            } => (n * columns).div_ceil(tile) * group,
        }
    }

    /// Returns the number of records that the work-groups for `n` records touch. It exceeds `n` if
    /// the last tile ends behind the last record.
    fn reach(self, n: usize) -> usize {
        match self {
            Extent::Fixed(_) | Extent::Records { .. } => n,
            Extent::Columns { columns, tile, .. } => {
                (n * columns).next_multiple_of(tile).div_ceil(columns)
            }
        }
    }
}

/// An argument of a kernel. The engine sets each argument once, at start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arg {
    Size(u32),
    /// A float: alpha or beta of a scaled product, or the constant that a gather kernel writes into
    /// rows without a source.
    Scalar(f32),
    /// The two parameters of an activation.
    Pair((f32, f32)),
    Geometry(Geometry),
    /// The source row, or the index of a number in an array, for each row that the kernel writes.
    Moved(Moved),
    Product(Product),
    /// Index in [`Plan::constants`].
    Constant(usize),
    /// Index in [`Plan::buffers`].
    Buffer(usize),
    /// One buffer with all constants, at the starts that [`places`] returns.
    Constants,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// Index of the last graph node that the step computes. The arg-max is no node, so its step has
    /// the number of nodes here.
    pub(crate) node: usize,
    pub(crate) operation: Operation,
    pub(crate) kernel: Cow<'static, str>,
    /// Activation that the kernel applies to its result.
    pub(crate) activation: Activation,
    /// Facts that the engine compiles the kernel for.
    pub(crate) options: StepOptions,
    /// Arguments in the kernel's order.
    pub(crate) args: Cow<'static, [Arg]>,
    /// Work-items in dimensions 0 and 1.
    pub(crate) global: (Extent, Extent),
    /// Work-group size in dimensions 0 and 1. With `None` the driver chooses.
    pub(crate) local: Option<(usize, usize)>,
    /// Sizes of the launch for a batch of [`Plan::batch`] records, with padding.
    pub(crate) problem: Problem,
    /// Floating-point operations for one record, without padding.
    pub(crate) flop: u64,
}

/// The steps, buffers and constants that an engine uses for every batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Name of the recipe that the plan was made from.
    pub(crate) name: Cow<'static, str>,
    pub(crate) engine: EngineKind,
    /// Most records of a batch of this plan.
    pub(crate) batch: usize,
    /// Columns of every buffer: `batch` with the padding columns that kernels need.
    pub(crate) padded_batch: usize,
    /// A smaller batch is rounded up to a multiple of this number of records.
    pub(crate) granule: usize,
    pub(crate) constants: Cow<'static, [Constant]>,
    /// All buffers. Hidden ones share the arena.
    pub(crate) buffers: Cow<'static, [Buffer]>,
    /// Bytes of the arena for a batch, or on the host engine for a record.
    pub(crate) arena_bytes: usize,
    /// Lower bound of `arena_bytes`: no arrangement of the hidden buffers takes less.
    pub(crate) arena_bound: usize,
    /// Steps for a full batch in order, followed by the steps of the variant for few records.
    pub(crate) steps: Cow<'static, [Step]>,
    pub(crate) few: Option<Few>,
}

/// The variant of a plan for batches of few records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Few {
    /// Largest batch, in records, that uses the variant for few records.
    pub(crate) records: usize,
    /// Index in [`Plan::steps`] of the first step for few records.
    pub(crate) first: usize,
    /// A batch of few records is rounded up to a multiple of this number of records.
    pub(crate) granule: usize,
}

impl Step {
    /// Returns the indices of the buffers among the arguments, in order.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = usize> {
        self.args.iter().filter_map(|a| match *a {
            Arg::Buffer(i) => Some(i),
            _ => None,
        })
    }

    /// Returns the indices of the constants among the arguments, in order.
    pub(crate) fn constants(&self) -> impl Iterator<Item = usize> {
        self.args.iter().filter_map(|a| match *a {
            Arg::Constant(i) => Some(i),
            _ => None,
        })
    }

    /// Returns the maps of moved rows among the arguments, in order.
    pub(crate) fn maps(&self) -> impl Iterator<Item = Moved> {
        self.args.iter().filter_map(|a| match *a {
            Arg::Moved(m) => Some(m),
            _ => None,
        })
    }

    /// Returns the sizes and operand rows of a product. `None` if the step computes no product of
    /// two values.
    pub(crate) fn product(&self) -> Option<Product> {
        self.args.iter().find_map(|a| match *a {
            Arg::Product(p) => Some(p),
            _ => None,
        })
    }

    /// Returns the images and the window among the arguments. `None` if the step has none.
    pub(crate) fn geometry(&self) -> Option<Geometry> {
        self.args.iter().find_map(|a| match *a {
            Arg::Geometry(g) => Some(g),
            _ => None,
        })
    }
}

impl Plan {
    /// Returns the constants that a step reads. An index that the plan does not have is left out.
    pub(crate) fn constants_of(&self, step: &Step) -> impl Iterator<Item = &Constant> {
        step.args.iter().flat_map(|a| match *a {
            Arg::Constant(i) => self.constants.get(i..i + 1).unwrap_or_default(),
            Arg::Constants => &self.constants[..],
            _ => &[],
        })
    }

    /// Returns the range of the steps for a batch of `n` records, and the granule: such a batch is
    /// rounded up to a multiple of so many records.
    pub(crate) fn variant(&self, n: usize) -> (Range<usize>, usize) {
        match self.few {
            Some(few) if n <= few.records => (few.first..self.steps.len(), few.granule),
            few => (
                0..few.map_or(self.steps.len(), |few| few.first),
                self.granule,
            ),
        }
    }

    /// Returns the steps for a full batch.
    pub(crate) fn full(&self) -> &[Step] {
        &self.steps[self.variant(usize::MAX).0]
    }

    /// Returns the index of the first buffer with this role, if the plan has one.
    pub(crate) fn buffer(&self, role: BufferRole) -> Option<usize> {
        self.buffers.iter().position(|b| b.role == role)
    }

    /// Returns node, role (`weights`, `biases`) and layout of each constant.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = (String, String, String)> + '_ {
        self.constants.iter().map(|c| {
            (
                c.name.to_string(),
                c.role.name().to_string(),
                c.layout.to_string(),
            )
        })
    }

    /// Returns the bytes that each record adds to the buffers of all slots and to the arena.
    pub(crate) fn record_bytes(&self) -> usize {
        let of_slots = self
            .buffers
            .iter()
            .filter(|b| b.role != BufferRole::Hidden)
            .map(|b| b.padded_rows * 4);
        let columns = self.engine.arena_columns(self.padded_batch);
        SLOTS * of_slots.sum::<usize>() + self.arena_bytes / columns.max(1)
    }

    /// Returns the bytes of all constants as stored.
    pub(crate) fn constant_bytes(&self) -> usize {
        self.constants.iter().map(Constant::bytes).sum()
    }

    /// Returns the number of columns of each buffer that a batch of `n` records occupies. It
    /// includes columns that the last work-groups touch, and is rounded up to whole granules.
    pub(crate) fn columns(&self, n: usize) -> usize {
        let (steps, granule) = self.variant(n);
        let extents = self.steps[steps]
            .iter()
            .flat_map(|s| [s.global.0, s.global.1]);
        let most = extents.map(|e| e.reach(n)).max().unwrap_or(n);
        most.next_multiple_of(granule).min(self.padded_batch)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Host,
    OpenCl,
}

impl EngineKind {
    /// Returns the number of columns of each buffer in the arena. `padded` is the number of columns
    /// of a batch. The host engine gives each record that a thread computes its own copy of the
    /// arena, so one column is enough.
    pub(crate) fn arena_columns(self, padded: usize) -> usize {
        match self {
            EngineKind::Host => 1,
            EngineKind::OpenCl => padded,
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EngineKind::Host => "host",
            EngineKind::OpenCl => "opencl",
        })
    }
}

/// Padded sizes of the matrices of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Problem {
    /// Rows of the result.
    pub(crate) h: usize,
    /// Columns of the result.
    pub(crate) w: usize,
    /// Common dimension, 0 if the operation has none.
    pub(crate) l: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn constant(rows: usize, cols: usize, precision: Precision) -> Constant {
        Constant {
            name: "layers[1]".into(),
            tensor: 0,
            scales: None,
            rescale: None,
            role: Role::Weights,
            placing: Placing::Plain,
            size: (rows, cols),
            padded: (rows, cols),
            layout: Layout::R,
            precision,
            image: false,
        }
    }

    fn buffer(role: BufferRole, padded_rows: usize) -> Buffer {
        let map = RowMap::vector(padded_rows);
        Buffer {
            name: "".into(),
            role,
            rows: padded_rows,
            map,
            padded_rows,
            layout: Layout::C,
            arena: 0,
        }
    }

    fn step(global: Extent) -> Step {
        Step {
            node: 0,
            operation: Operation::Affine,
            kernel: "".into(),
            activation: Activation::None,
            options: StepOptions::default(),
            args: Vec::new().into(),
            global: (global, Extent::Fixed(1)),
            local: None,
            problem: Problem::default(),
            flop: 0,
        }
    }

    /// A plan of two steps for full batches and one for few records. The second step handles tiles
    /// of 24 columns, which are the 3 columns of each of 8 records.
    fn plan(engine: EngineKind) -> Plan {
        let granules = Extent::Records {
            records: 2,
            items: 5,
        };
        Plan {
            name: "".into(),
            engine,
            batch: 60,
            padded_batch: 64,
            granule: 2,
            constants: vec![
                constant(4, 3, Precision::F16),
                constant(5, 2, Precision::F32),
            ]
            .into(),
            buffers: vec![
                buffer(BufferRole::Input, 7),
                buffer(BufferRole::Hidden, 100),
                buffer(BufferRole::Scores, 3),
                buffer(BufferRole::Classes, 1),
            ]
            .into(),
            arena_bytes: 6400,
            arena_bound: 6400,
            steps: vec![
                step(granules),
                step(Extent::Columns {
                    columns: 3,
                    tile: 24,
                    group: 4,
                }),
                step(granules),
            ]
            .into(),
            few: Some(Few {
                records: 4,
                first: 2,
                granule: 1,
            }),
        }
    }

    proptest! {
        /// A launch has the work-items of each granule or tile that its records begin, and no more.
        /// The records that it reaches contain all its tiles.
        #[test]
        fn launches_cover_their_records(
            n in 1usize..300, size in 1usize..40, tile in 1usize..70, group in 1usize..9,
        ) {
            prop_assert_eq!(Extent::Fixed(group).items(n), group);
            let granules = Extent::Records { records: size, items: group };
            prop_assert_eq!(granules.items(n) % group, 0);
            let begun = granules.items(n) / group;
            prop_assert!(begun * size >= n && (begun - 1) * size < n);
            prop_assert_eq!((granules.reach(n), Extent::Fixed(group).reach(n)), (n, n));
            let columns = Extent::Columns { columns: size, tile, group };
            prop_assert_eq!(columns.items(n) % group, 0);
            let tiles = columns.items(n) / group;
            prop_assert!(tiles * tile >= n * size && (tiles - 1) * tile < n * size);
            let reach = columns.reach(n);
            prop_assert!(
                reach >= n && reach * size >= tiles * tile && (reach - 1) * size < tiles * tile
            );
        }

        /// Constants follow each other without overlap, each at an aligned start.
        #[test]
        fn constants_do_not_overlap(
            sizes in prop::collection::vec((1usize..90, 1usize..90, any::<bool>()), 1..9),
        ) {
            let halves = |half| if half { Precision::F16 } else { Precision::F32 };
            let all: Vec<Constant> =
                sizes.iter().map(|&(r, c, half)| constant(r, c, halves(half))).collect();
            let (starts, end) = places(&all);
            let mut free = 0;
            for ((&(rows, cols, half), c), start) in sizes.iter().zip(&all).zip(starts) {
                prop_assert_eq!(c.bytes(), rows * cols * if half { 2 } else { 4 });
                prop_assert!(
                    start >= free && start < free + ARENA_ALIGN && start % ARENA_ALIGN == 0
                );
                free = start + c.bytes();
            }
            prop_assert!(end >= free && end < free + ARENA_ALIGN && end % ARENA_ALIGN == 0);
        }
    }

    #[test]
    fn few_records_have_steps_of_their_own() {
        let plan = plan(EngineKind::OpenCl);
        assert_eq!([1, 4].map(|n| plan.variant(n)), [(2..3, 1), (2..3, 1)]);
        assert_eq!([5, 60].map(|n| plan.variant(n)), [(0..2, 2), (0..2, 2)]);
        assert_eq!(plan.full(), &plan.steps[..2]);
        let alone = Plan { few: None, ..plan };
        assert_eq!([1, 60].map(|n| alone.variant(n)), [(0..3, 2), (0..3, 2)]);
        assert_eq!(alone.full().len(), 3);
    }

    /// A batch of few records occupies one column for each. A batch of the full plan occupies whole
    /// granules and tiles, but never more columns than the buffers have.
    #[test]
    fn columns_that_batches_use() {
        let plan = plan(EngineKind::OpenCl);
        assert_eq!([1, 3, 4].map(|n| plan.columns(n)), [1, 3, 4]);
        assert_eq!([5, 8, 9, 60].map(|n| plan.columns(n)), [8, 8, 16, 64]);
        let small = Plan {
            padded_batch: 12,
            ..plan
        };
        assert_eq!(small.columns(9), 12);
    }

    /// Both slots count for input, scores and classes. The OpenCL engine spreads the arena over the
    /// records of a batch, and the host engine counts it whole for each record.
    #[test]
    fn bytes_that_a_record_adds() {
        let slots = 2 * 4 * (7 + 3 + 1);
        assert_eq!(plan(EngineKind::OpenCl).record_bytes(), slots + 100);
        assert_eq!(plan(EngineKind::Host).record_bytes(), slots + 6400);
        assert_eq!(
            plan(EngineKind::Host).constant_bytes(),
            4 * 3 * 2 + 5 * 2 * 4
        );
    }

    #[test]
    fn layouts_are_named_by_node_and_role() {
        let mut plan = plan(EngineKind::Host);
        plan.constants.to_mut()[1].role = Role::Biases;
        plan.constants.to_mut()[1].layout = Layout::C;
        let text = |(node, role, layout)| format!("{node} {role} {layout}");
        let found: Vec<String> = plan.layouts().map(text).collect();
        assert_eq!(found, ["layers[1] weights R", "layers[1] biases C"]);
        assert_eq!(
            [EngineKind::Host, EngineKind::OpenCl].map(|e| e.to_string()),
            ["host", "opencl"]
        );
        assert_eq!(plan.buffer(BufferRole::Scores), Some(2));
    }
}
