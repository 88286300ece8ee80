//! A plan: the steps that a batch goes through, over named buffers in one arena, with constants
//! laid out for them.
//!
//! A plan is not a list of layers: a step is one launch of one kernel, with all its arguments. What
//! a step needs is here as numbers; the engines only carry it out.

use super::layout::Layout;
use super::network::Precision;
use super::op::{Activation, Operation};
use super::options::StepOptions;
use super::view::{Geometry, Moved, RowMap};
pub(crate) use crate::ir::graph::Role;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// An array of the network in the layout that its kernel wants, padded with zeros.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    /// The name of its node: `layers[2]`.
    pub(crate) name: Cow<'static, str>,
    /// Which array (index in the graph's tensors).
    pub(crate) tensor: usize,
    /// Of biases: the array of weights, stored as bytes, whose rows' scales stand beside them as a
    /// second column.
    pub(crate) scales: Option<usize>,
    /// The part that it plays in its node.
    pub(crate) role: Role,
    /// Where its numbers stand in the padded matrix.
    pub(crate) placing: Placing,
    /// Rows and columns without padding.
    pub(crate) size: (usize, usize),
    /// Rows and columns with padding.
    pub(crate) padded: (usize, usize),
    /// Layout of the padded matrix.
    pub(crate) layout: Layout,
    /// What it is stored as.
    pub(crate) precision: Precision,
    /// On a device it is an image, which no other kernel can read.
    pub(crate) image: bool,
}

/// Where the numbers of an array stand in the padded matrix of a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Placing {
    /// As they do in the array.
    Plain,
    /// Column j of the array is column `.0`(j) of the matrix: the array's columns follow the
    /// elements of a value, the matrix's its rows.
    Columns(RowMap),
}

impl Constant {
    /// Elements, padding included.
    pub(crate) fn len(&self) -> usize {
        self.padded.0 * self.padded.1
    }

    /// Bytes as stored.
    pub(crate) fn bytes(&self) -> usize {
        self.len() * self.precision.bytes()
    }

    /// What the weights are stored as that a kernel reads here, or whose scales it does.
    pub(crate) fn weights(&self) -> Precision {
        if self.scales.is_some() {
            Precision::I8
        } else {
            self.precision
        }
    }
}

/// Where each constant starts in a buffer that holds all of them, in bytes (multiples of
/// [`ARENA_ALIGN`]), and the bytes of that buffer.
pub(crate) fn places(constants: &[Constant]) -> (Vec<usize>, usize) {
    let mut end = 0;
    let place = |c: &Constant| {
        let start = end;
        end += c.bytes().next_multiple_of(ARENA_ALIGN);
        start
    };
    (constants.iter().map(place).collect(), end)
}

/// Batches in flight: one is filled while the other is computed.
pub(crate) const SLOTS: usize = 2;

/// Bytes that the host engine keeps room for of each number of a slot's records that come as text:
/// more than whole numbers need, and as much as six digits and a point.
pub(crate) const TEXT_BYTES: usize = 8;

/// Most records of a batch: sizes and offsets of every plan stay far inside 32 bits.
pub(crate) const MOST_RECORDS: usize = 1 << 16;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferRole {
    /// Written by the stream, one record a column. One for each slot.
    Input,
    /// Between steps, in the arena.
    Hidden,
    /// The network's last values. One for each slot.
    Scores,
    /// One u32 for each record. One for each slot.
    Classes,
}

/// A matrix of activations: a row for each value, a column for each record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Buffer {
    /// Name for messages and profiles.
    pub(crate) name: Cow<'static, str>,
    /// What it is for.
    pub(crate) role: BufferRole,
    /// Rows of a record.
    pub(crate) rows: usize,
    /// Where the elements of its value stand among them.
    pub(crate) map: RowMap,
    /// Rows with padding. Padding rows hold anything finite.
    pub(crate) padded_rows: usize,
    /// Layout of the `padded_rows` × `Plan::padded_batch` matrix.
    pub(crate) layout: Layout,
    /// Where a hidden buffer starts in the arena, in bytes (a multiple of [`ARENA_ALIGN`]).
    pub(crate) arena: usize,
}

impl Buffer {
    /// Elements for a batch of `columns` records.
    pub(crate) fn len(&self, columns: usize) -> usize {
        self.padded_rows * columns
    }
}

/// Alignment of buffers in the arena, in bytes: no less than any device's
/// CL_DEVICE_MEM_BASE_ADDR_ALIGN.
pub(crate) const ARENA_ALIGN: usize = 4096;

/// Work-items of one dimension of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The same for every batch.
    Fixed(usize),
    /// `items` for every started `records` records.
    Records {
        /// Records of a granule.
        records: usize,
        /// Work-items for a granule.
        items: usize,
    },
    /// Whole work-groups over so many columns of each record, one record after the other.
    Columns {
        /// Columns of a record.
        columns: usize,
        /// Columns of a work-group.
        tile: usize,
        /// Work-items of a work-group.
        group: usize,
    },
}

impl Extent {
    /// Work-items for a batch of `n` records.
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

    /// Records that the work-groups for `n` reach, where there are more: the last tile ends behind
    /// the last of them.
    fn reach(self, n: usize) -> usize {
        match self {
            Extent::Fixed(_) | Extent::Records { .. } => n,
            Extent::Columns { columns, tile, .. } => {
                (n * columns).next_multiple_of(tile).div_ceil(columns)
            }
        }
    }
}

/// An argument of a kernel. All are set once, at start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arg {
    /// A size.
    Size(u32),
    /// A factor, or a constant.
    Scalar(f32),
    /// The parameters of an activation.
    Pair((f32, f32)),
    /// Images and a window.
    Geometry(Geometry),
    /// Which rows, or which numbers of an array, are read for the rows that are written.
    Moved(Moved),
    /// `Plan::constants[i]`
    Constant(usize),
    /// `Plan::buffers[i]`
    Buffer(usize),
    /// All constants in one buffer, each where [`places`] has it.
    Constants,
}

/// One launch of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// Node of the graph that it (last) computes; the number of nodes for the arg-max.
    pub(crate) node: usize,
    /// What it computes.
    pub(crate) operation: Operation,
    /// The kernel's codename.
    pub(crate) kernel: Cow<'static, str>,
    /// Activation fused into it.
    pub(crate) activation: Activation,
    /// Facts that its kernel is compiled for.
    pub(crate) options: StepOptions,
    /// Arguments in order.
    pub(crate) args: Cow<'static, [Arg]>,
    /// Work-items in dimensions 0 and 1.
    pub(crate) global: (Extent, Extent),
    /// Work-group size; the driver chooses where it is `None`.
    pub(crate) local: Option<(usize, usize)>,
    /// Sizes for a full batch.
    pub(crate) problem: Problem,
    /// Floating-point operations for one record, padding not counted.
    pub(crate) flop: u64,
}

/// What an engine runs for every batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The recipe's name.
    pub(crate) name: Cow<'static, str>,
    /// Which engine runs it.
    pub(crate) engine: EngineKind,
    /// Most records of a batch.
    pub(crate) batch: usize,
    /// Columns of every buffer: `batch` rounded up to `granule`.
    pub(crate) padded_batch: usize,
    /// Part batches are rounded up to a multiple of this.
    pub(crate) granule: usize,
    /// Constants.
    pub(crate) constants: Cow<'static, [Constant]>,
    /// Buffers; hidden ones share the arena.
    pub(crate) buffers: Cow<'static, [Buffer]>,
    /// Bytes of the arena: for a batch, or of the host engine for a record.
    pub(crate) arena_bytes: usize,
    /// The least that any arrangement of its buffers would need.
    pub(crate) arena_bound: usize,
    /// Steps of a full batch in order, behind them those of the variant for few records.
    pub(crate) steps: Cow<'static, [Step]>,
    /// The variant for few records.
    pub(crate) few: Option<Few>,
}

/// A variant of a plan for batches of few records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Few {
    /// Most records of such a batch.
    pub(crate) records: usize,
    /// Its first step.
    pub(crate) first: usize,
    /// Such batches are rounded up to a multiple of this.
    pub(crate) granule: usize,
}

impl Plan {
    /// The steps for a batch of `n` records, and what such batches are rounded up to a multiple of.
    pub(crate) fn variant(&self, n: usize) -> (Range<usize>, usize) {
        match self.few {
            Some(few) if n <= few.records => (few.first..self.steps.len(), few.granule),
            few => (
                0..few.map_or(self.steps.len(), |few| few.first),
                self.granule,
            ),
        }
    }

    /// Steps of a full batch.
    pub(crate) fn full(&self) -> &[Step] {
        &self.steps[self.variant(usize::MAX).0]
    }

    /// Index of the one buffer with this role, if the plan has one.
    pub(crate) fn buffer(&self, role: BufferRole) -> Option<usize> {
        self.buffers.iter().position(|b| b.role == role)
    }

    /// Node, role (`weights`, `biases`) and layout of each constant.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = (String, String, String)> + '_ {
        self.constants.iter().map(|c| {
            (
                c.name.to_string(),
                c.role.name().to_string(),
                c.layout.to_string(),
            )
        })
    }

    /// Bytes of the buffers that a record adds to: those of every slot, and its part of the arena.
    pub(crate) fn record_bytes(&self) -> usize {
        let of_slots = self
            .buffers
            .iter()
            .filter(|b| b.role != BufferRole::Hidden)
            .map(|b| b.padded_rows * 4);
        let columns = self.engine.arena_columns(self.padded_batch);
        SLOTS * of_slots.sum::<usize>() + self.arena_bytes / columns.max(1)
    }

    /// Bytes of all constants as stored.
    pub(crate) fn constant_bytes(&self) -> usize {
        self.constants.iter().map(Constant::bytes).sum()
    }

    /// Columns that a batch of `n` records uses: whole granules, and what the last work-groups
    /// reach.
    pub(crate) fn columns(&self, n: usize) -> usize {
        let (steps, granule) = self.variant(n);
        let extents = self.steps[steps]
            .iter()
            .flat_map(|s| [s.global.0, s.global.1]);
        let most = extents.map(|e| e.reach(n)).max().unwrap_or(n);
        most.next_multiple_of(granule).min(self.padded_batch)
    }
}

/// Which engine runs a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineKind {
    /// The host engine.
    Host,
    /// The OpenCL engine.
    OpenCl,
}

impl EngineKind {
    /// Columns of the buffers in a plan's arena, of `padded` that a batch has: the host's threads
    /// take the records one by one through the steps, each with an arena for one of them.
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

/// Padded sizes of one launch: result `h` × `w`, common dimension `l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Problem {
    /// Rows of the result.
    pub(crate) h: usize,
    /// Columns of the result.
    pub(crate) w: usize,
    /// Common dimension; 0 where there is none.
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

    /// Two steps, of which the second reaches 3 columns of each of 8 records at a time, and one
    /// step for few records.
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
        /// A launch has the granules or tiles that its records begin, and no more; what they reach
        /// are whole records.
        #[test]
        fn launches_cover_their_records(n in 1usize..300, size in 1usize..40, tile in 1usize..70, group in 1usize..9) {
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
            prop_assert!(reach >= n && reach * size >= tiles * tile && (reach - 1) * size < tiles * tile);
        }

        /// Constants stand one behind the other, each aligned.
        #[test]
        fn constants_do_not_overlap(sizes in prop::collection::vec((1usize..90, 1usize..90, any::<bool>()), 1..9)) {
            let halves = |half| if half { Precision::F16 } else { Precision::F32 };
            let all: Vec<Constant> = sizes.iter().map(|&(r, c, half)| constant(r, c, halves(half))).collect();
            let (starts, end) = places(&all);
            let mut free = 0;
            for ((&(rows, cols, half), c), start) in sizes.iter().zip(&all).zip(starts) {
                prop_assert_eq!(c.bytes(), rows * cols * if half { 2 } else { 4 });
                prop_assert!(start >= free && start < free + ARENA_ALIGN && start % ARENA_ALIGN == 0);
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

    /// Batches of few records take what they are; others whole granules and whole tiles, as far as
    /// there are columns.
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

    /// Input, scores and classes are there for both slots. The arena is that of a batch, or of a
    /// thread's record.
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
