//! A plan: the steps that compute a batch, the buffers between the steps, and the constants that
//! the steps read.
//!
//! A step is one launch of one kernel with all its arguments. It may compute one layer of the
//! network, several, or a part of one. The planner makes all decisions. The engines only execute
//! the steps.

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

/// An array of the network, stored in the layout that a kernel reads and padded with zeros.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    /// The name of the graph node that owns the array, such as `layers[2]`.
    pub(crate) name: Cow<'static, str>,
    /// The index of the array in `Graph::tensors`.
    pub(crate) tensor: usize,
    /// Only set for the biases of a layer whose weights are stored as bytes. It is the index of the
    /// weights in `Graph::tensors`. The second column of this constant has the scales of the
    /// weights' rows.
    pub(crate) scales: Option<usize>,
    /// Set for the biases of a layer whose kernel also computes the scaling behind the layer. The
    /// factors and the summands of the rows are the last two columns of this constant.
    pub(crate) rescale: Option<Rescaling>,
    pub(crate) role: Role,
    pub(crate) placing: Placing,
    /// The rows and columns of the array, before [`Placing`] and padding change them.
    pub(crate) size: (usize, usize),
    /// The rows and columns of the constant as it is stored, padding included.
    pub(crate) padded: (usize, usize),
    pub(crate) layout: Layout,
    /// The number format that the constant is stored in.
    pub(crate) precision: Precision,
    /// True if a device holds the constant as an OpenCL image instead of a buffer. Kernels whose
    /// argument is a buffer cannot read it.
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
    /// The constant has the same columns as the array.
    Plain,
    /// Column j of the array becomes column `map.row(j)` of the constant. A column of the array
    /// belongs to an element of a value. A column of the constant belongs to a row of that value's
    /// matrix.
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

    /// Returns the number format of the weights that the constant belongs to. It is `I8` for biases
    /// with scales, and the constant's own format otherwise.
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

/// The number of batches in flight. The stream fills one slot while the engine computes the other.
pub(crate) const SLOTS: usize = 2;

/// Stands for the class of a record whose scores contain a NaN or an infinity. Callers report an
/// error for such a record.
pub(crate) const NAN_CLASS: u32 = u32::MAX;

/// The bytes that the host engine reserves for each number of a slot, if records arrive as text.
/// Eight bytes hold a separator, six digits and a decimal point. Whole numbers are usually shorter.
pub(crate) const TEXT_BYTES: usize = 8;

/// The largest number of records in a batch. It keeps the sizes and offsets of every plan far below
/// 2³².
pub(crate) const MOST_RECORDS: usize = 1 << 16;

/// The use of a buffer: the records, values between steps, or results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferRole {
    /// The records, one in each column. The stream writes this buffer. Each slot has its own.
    Input,
    /// Values between steps, in the arena. Only steps write and read this buffer.
    Hidden,
    /// The network's scores for each record. Each slot has its own buffer.
    Scores,
    /// The predicted class of each record as a u32. Each slot has its own buffer.
    Classes,
}

/// A buffer of the plan: a matrix of values with a column for each record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Buffer {
    /// The name of the buffer for messages and profiles.
    pub(crate) name: Cow<'static, str>,
    pub(crate) role: BufferRole,
    /// The number of rows of the matrix, without the padding rows at its end.
    pub(crate) rows: usize,
    /// Maps each element of the buffer's value to its row in the matrix.
    pub(crate) map: RowMap,
    /// The number of rows of the matrix, padding rows included. Padding rows have arbitrary, but
    /// finite contents where a step reads them.
    pub(crate) padded_rows: usize,
    /// The layout of the buffer's matrix, which has `padded_rows` rows and [`Plan::padded_batch`]
    /// columns.
    pub(crate) layout: Layout,
    /// The offset of a hidden buffer in the arena, in bytes. It is a multiple of [`ARENA_ALIGN`].
    pub(crate) arena: usize,
}

impl Buffer {
    /// Returns the number of elements of a matrix with `columns` columns, padding rows included.
    pub(crate) fn len(&self, columns: usize) -> usize {
        self.padded_rows * columns
    }
}

/// The alignment of buffers in the arena, in bytes. It is at least CL_DEVICE_MEM_BASE_ADDR_ALIGN of
/// every device.
pub(crate) const ARENA_ALIGN: usize = 4096;

/// The number of work-items in one dimension of a kernel launch, as a function of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The number of work-items is the same for every batch.
    Fixed(usize),
    /// Every `records` records of the batch add `items` work-items. A last, incomplete group of
    /// records counts whole.
    Records {
        /// The number of records that share `items` work-items.
        records: usize,
        /// The number of work-items for each group of `records` records.
        items: usize,
    },
    /// Each record has `columns` columns, for example one for each pixel, and the records are side
    /// by side. A work-group computes a tile of `tile` columns. An incomplete last tile gets a
    /// work-group, too.
    Columns {
        /// The number of columns that each record has in the launch.
        columns: usize,
        /// The number of columns that a work-group computes.
        tile: usize,
        /// The number of work-items in a work-group, in this dimension.
        group: usize,
    },
}

impl Extent {
    /// Returns the number of work-items in this dimension for a batch of `n` records.
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

    /// Returns the number of records whose columns the work-groups for `n` records touch. It
    /// exceeds `n` if the last tile ends behind the last record.
    fn reach(self, n: usize) -> usize {
        match self {
            Extent::Fixed(_) | Extent::Records { .. } => n,
            Extent::Columns { columns, tile, .. } => {
                (n * columns).next_multiple_of(tile).div_ceil(columns)
            }
        }
    }
}

/// An argument of a kernel. The engine sets each argument only once, when it starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arg {
    Size(u32),
    /// A float: alpha or beta of a scaled matrix product, or the constant that a gather kernel
    /// writes into rows without a source.
    Scalar(f32),
    /// The two parameters of an activation, 0 if the activation has none.
    Pair((f32, f32)),
    Geometry(Geometry),
    /// For each row that the kernel writes, the row that it copies, or the index of its number in a
    /// constant array.
    Moved(Moved),
    Product(Product),
    /// A constant, as an index into [`Plan::constants`].
    Constant(usize),
    /// A buffer, as an index into [`Plan::buffers`].
    Buffer(usize),
    /// One buffer with all constants of the plan, each at the start that [`places`] returns.
    Constants,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// The index of the last graph node that the step computes. The arg-max is no node, so its step
    /// has the number of nodes instead.
    pub(crate) node: usize,
    pub(crate) operation: Operation,
    pub(crate) kernel: Cow<'static, str>,
    /// The activation that the kernel applies to its result, `None` if it applies none.
    pub(crate) activation: Activation,
    /// The options that the engine compiles the step's kernel with.
    pub(crate) options: StepOptions,
    /// The arguments of the step's kernel, in the order of its parameters.
    pub(crate) args: Cow<'static, [Arg]>,
    /// The number of work-items in dimensions 0 and 1.
    pub(crate) global: (Extent, Extent),
    /// The size of a work-group in dimensions 0 and 1. With `None` the OpenCL driver chooses it.
    pub(crate) local: Option<(usize, usize)>,
    /// The padded sizes of the step's matrices, for a batch of [`Plan::batch`] records.
    pub(crate) problem: Problem,
    /// The floating-point operations of the step for one record, padding not counted.
    pub(crate) flop: u64,
}

/// The steps, buffers and constants with which an engine computes every batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The name of the recipe that the planner made the plan from.
    pub(crate) name: Cow<'static, str>,
    pub(crate) engine: EngineKind,
    /// The largest number of records in a batch of this plan.
    pub(crate) batch: usize,
    /// The number of columns of every buffer: `batch` plus the padding columns that kernels need.
    pub(crate) padded_batch: usize,
    /// A full batch has `batch` records. The size of a smaller batch is rounded up to a multiple of
    /// `granule` records.
    pub(crate) granule: usize,
    pub(crate) constants: Cow<'static, [Constant]>,
    /// All buffers of the plan. The buffers with the role `Hidden` share the arena.
    pub(crate) buffers: Cow<'static, [Buffer]>,
    /// The size of the arena in bytes. On a device it serves a whole batch, on the host engine one
    /// record.
    pub(crate) arena_bytes: usize,
    /// A lower bound of `arena_bytes`. No placement of the hidden buffers needs less.
    pub(crate) arena_bound: usize,
    /// The steps for a full batch, in order. Behind them are the steps of the variant for few
    /// records, if there is one.
    pub(crate) steps: Cow<'static, [Step]>,
    pub(crate) few: Option<Few>,
}

/// The variant of a plan that computes batches of few records with its own steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Few {
    /// The largest batch, in records, that the variant for few records computes.
    pub(crate) records: usize,
    /// The index in [`Plan::steps`] of the first step of the variant for few records.
    pub(crate) first: usize,
    /// The size of a batch of few records is rounded up to a multiple of `granule` records.
    pub(crate) granule: usize,
}

impl Step {
    /// Returns the indices of the buffers that the kernel gets as arguments, in order.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = usize> {
        self.args.iter().filter_map(|a| match *a {
            Arg::Buffer(i) => Some(i),
            _ => None,
        })
    }

    /// Returns the indices of the constants that the kernel gets as arguments, in order.
    pub(crate) fn constants(&self) -> impl Iterator<Item = usize> {
        self.args.iter().filter_map(|a| match *a {
            Arg::Constant(i) => Some(i),
            _ => None,
        })
    }

    /// Returns the arguments that describe copied rows, in order.
    pub(crate) fn maps(&self) -> impl Iterator<Item = Moved> {
        self.args.iter().filter_map(|a| match *a {
            Arg::Moved(m) => Some(m),
            _ => None,
        })
    }

    /// Returns the argument with the sizes and strides of a product of two values. `None` if the
    /// step computes no such product.
    pub(crate) fn product(&self) -> Option<Product> {
        self.args.iter().find_map(|a| match *a {
            Arg::Product(p) => Some(p),
            _ => None,
        })
    }

    /// Returns the argument with the step's images and window. `None` if the step has none.
    pub(crate) fn geometry(&self) -> Option<Geometry> {
        self.args.iter().find_map(|a| match *a {
            Arg::Geometry(g) => Some(g),
            _ => None,
        })
    }
}

impl Plan {
    /// Returns the constants that a step reads. Skips indices that the plan does not have.
    pub(crate) fn constants_of(&self, step: &Step) -> impl Iterator<Item = &Constant> {
        step.args.iter().flat_map(|a| match *a {
            Arg::Constant(i) => self.constants.get(i..i + 1).unwrap_or_default(),
            Arg::Constants => &self.constants[..],
            _ => &[],
        })
    }

    /// Returns the range of the steps that compute a batch of `n` records, and the granule. The
    /// size of the batch is rounded up to a multiple of the granule.
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

    /// Returns the index of the first buffer with this role. `None` if the plan has no such buffer.
    pub(crate) fn buffer(&self, role: BufferRole) -> Option<usize> {
        self.buffers.iter().position(|b| b.role == role)
    }

    /// Returns for each constant the name of its node, its role (`weights`, `biases`) and its
    /// layout.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = (String, String, String)> + '_ {
        self.constants.iter().map(|c| {
            (
                c.name.to_string(),
                c.role.name().to_string(),
                c.layout.to_string(),
            )
        })
    }

    /// Returns the bytes of memory that each further record of a batch needs: in the buffers of all
    /// slots, and in the arena.
    pub(crate) fn record_bytes(&self) -> usize {
        let of_slots = self
            .buffers
            .iter()
            .filter(|b| b.role != BufferRole::Hidden)
            .map(|b| b.padded_rows * 4);
        let columns = self.engine.arena_columns(self.padded_batch);
        SLOTS * of_slots.sum::<usize>() + self.arena_bytes / columns.max(1)
    }

    /// Returns the size of all constants as they are stored, in bytes.
    pub(crate) fn constant_bytes(&self) -> usize {
        self.constants.iter().map(Constant::bytes).sum()
    }

    /// Returns the number of columns of each buffer that a batch of `n` records uses. Columns that
    /// the last work-groups touch count, too. The result is a multiple of the granule, but at most
    /// [`Plan::padded_batch`].
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
    /// Returns the number of columns that a buffer in the arena has. `padded` is the number of
    /// columns of a batch. In the host engine a thread computes one record at a time in its own
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

/// The padded sizes of the matrices of one kernel launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Problem {
    /// The number of rows of the result.
    pub(crate) h: usize,
    /// The number of columns of the result.
    pub(crate) w: usize,
    /// The common dimension of the product, or 0 if the operation has none.
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

    /// A plan with two steps for full batches and one for few records. A tile of the second step
    /// has 24 columns. Each record has 3 columns, so a tile serves 8 records.
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
        /// A launch has work-items for each granule or tile that its records begin, and for no
        /// other. `reach` counts all records that the tiles touch.
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

    /// A batch that the variant for few records computes uses one column for each record. A batch
    /// of the full plan uses whole granules and tiles, but never more columns than the buffers
    /// have.
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

    /// Input, scores and classes count once for each slot. The OpenCL engine divides the arena by
    /// the padded columns of a batch. The host engine counts the whole arena for each record.
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
