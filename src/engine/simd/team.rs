//! A team of threads that runs the network's steps over buffers that all of it shares.
//!
//! Steps are grouped into phases. A layer whose weights are too many for a core's cache is a phase
//! of its own, split by rows: every thread reads other weights, each once for the whole batch. All
//! others are split by records: a few records go through all of a phase's steps on one thread, and
//! their activations stay in its cache.

use super::super::deferred::{Deferred, Refusal};
use super::super::{NAN_CLASS, SLOTS};
use super::images;
use super::micro::winograd;
use super::micro::{Affine, Byte, Half, Kernels, Made, Subproblem};
use super::moves::{self, Moves};
use super::schedule::{MOST_PHASES, MOST_TILES, Schedule, Tile, Work};
use crate::engine::model::Values;
use crate::error::Error;
use crate::ir::graph::Shape;
use crate::ir::half;
use crate::ir::network::Activation;
use crate::ir::op::Arithmetic;
use crate::ir::view::{Geometry, Image};
use crate::observe::profile::StepClock;
use crate::observe::trace::{Name, Track};
use crate::planner::fit::{self, LARGE};
use crate::sys::thread::{Serve, Thread};

use std::alloc::{alloc_zeroed, dealloc};
use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A batch that takes a thread less than this is computed where it is submitted: nothing to share.
const INLINE_US: u64 = 3;

/// A batch that takes a thread less than this wakes nobody; where no batch takes more, threads are
/// not even started.
const WAKE_US: u64 = 30;

/// Floats of a cache line.
const LINE: usize = 16;

/// The weights of a layer, on a cache line's boundary: a vector that crosses lines costs two
/// accesses (8 % of the time of large layers).
pub(crate) struct Weights(Source);

enum Source {
    /// As the build has laid them out.
    Baked(&'static [f32]),
    /// Laid out by this program.
    Copied(Floats),
    /// Halves, by whomever.
    Halves(Cow<'static, [u16]>),
    /// Numbers that scales belong to, by whomever.
    Bytes(Cow<'static, [i8]>),
}

impl Weights {
    /// Takes them as they are, or copies what the allocator has placed.
    pub(crate) fn new(weights: Values) -> Result<Weights, Error> {
        Ok(Weights(match weights {
            Values::F16(halves) => Source::Halves(halves),
            Values::I8(numbers) => Source::Bytes(numbers),
            Values::F32(Cow::Borrowed(baked)) => Source::Baked(baked),
            Values::F32(Cow::Owned(values)) => {
                let copy = Floats::new(values.len())?;
                // SAFETY: nobody else has it yet.
                unsafe { copy.slice_mut() }.copy_from_slice(&values);
                Source::Copied(copy)
            }
        }))
    }

    /// Whether there are kernels for what they are stored as.
    fn served(&self, kernels: &Kernels) -> bool {
        match self.0 {
            Source::Baked(_) | Source::Copied(_) => true,
            Source::Halves(_) => kernels.affine_of_halves.is_some(),
            Source::Bytes(_) => kernels.affine_of_bytes.is_some(),
        }
    }

    /// Those that are floats.
    fn floats(&self) -> &[f32] {
        match self.stored() {
            StoredAs::Floats(w) => w,
            StoredAs::Halves(_) | StoredAs::Bytes(_) => &[],
        }
    }

    fn stored(&self) -> StoredAs<'_> {
        match &self.0 {
            Source::Baked(values) => StoredAs::Floats(values),
            // SAFETY: nobody writes to it any more.
            Source::Copied(floats) => StoredAs::Floats(unsafe { floats.slice() }),
            Source::Halves(h) => {
                // SAFETY: a Half is a u16 in another name.
                StoredAs::Halves(unsafe { std::slice::from_raw_parts(h.as_ptr().cast(), h.len()) })
            }
            Source::Bytes(b) => {
                // SAFETY: a Byte is an i8 in another name.
                StoredAs::Bytes(unsafe { std::slice::from_raw_parts(b.as_ptr().cast(), b.len()) })
            }
        }
    }
}

impl Weights {
    /// # Panics
    /// If there are not as many as the rows of biases in panels, `columns` wide, need, fewer
    /// columns than inputs, or not a scale for each row where they are bytes.
    fn check(
        &self,
        (biases, scales): (&[f32], &[f32]),
        panel: usize,
        columns: usize,
        inputs: usize,
    ) {
        let count = match self.stored() {
            StoredAs::Floats(w) => w.len(),
            StoredAs::Halves(w) => w.len(),
            StoredAs::Bytes(w) => w.len(),
        };
        let scaled = matches!(self.0, Source::Bytes(_));
        assert!(
            scales.len() == if scaled { biases.len() } else { 0 },
            "a scale for each row"
        );
        Affine::<f32>::fits(count, biases.len(), panel, columns, inputs);
    }
}

/// Weights as the kernels take them.
enum StoredAs<'a> {
    Floats(&'a [f32]),
    Halves(&'a [Half]),
    Bytes(&'a [Byte]),
}

impl StoredAs<'_> {
    fn bytes(&self) -> usize {
        match self {
            StoredAs::Floats(w) => size_of_val(*w),
            StoredAs::Halves(w) => size_of_val(*w),
            StoredAs::Bytes(w) => size_of_val(*w),
        }
    }
}

/// Where a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The batch.
    Input,
    /// A buffer between steps.
    Hidden(usize),
    /// The last values.
    Scores,
}

/// What a step does.
pub(crate) enum Action {
    /// A layer, from one place to another.
    Affine {
        /// Panels of `panel` × `columns`.
        weights: Weights,
        /// As many as there are rows.
        biases: Cow<'static, [f32]>,
        /// As many, where the weights are bytes; else none.
        scales: Vec<f32>,
        /// Rows of a panel, a multiple of 4.
        panel: usize,
        /// Columns of the weights.
        columns: usize,
        /// Columns that are read.
        inputs: usize,
        /// Fused.
        activation: Activation,
    },
    /// A convolution of all channels.
    Convolution {
        /// Panels of `panel` × `taps`.
        weights: Weights,
        /// As many as there are rows.
        biases: Cow<'static, [f32]>,
        /// As many, where the weights are bytes; else none.
        scales: Vec<f32>,
        /// Rows of a panel, a multiple of 4.
        panel: usize,
        /// Columns of the weights with padding, and the elements of a window.
        columns: (usize, usize),
        /// Fused.
        activation: Activation,
        /// Where it reads and writes.
        geometry: Geometry,
    },
    /// A convolution of all channels by 3 × 3, by tiles of 2 × 2 pixels.
    Tiles {
        /// Panels of `panel` × `from.c`: the rows of each element of a tile, one after the other.
        weights: Weights,
        /// As many.
        biases: Vec<f32>,
        /// Rows of a panel, a multiple of 4.
        panel: usize,
        /// Fused.
        activation: Activation,
        /// Where it reads and writes.
        geometry: Geometry,
    },
    /// What is made of windows channel by channel.
    Windows {
        /// What.
        made: Made,
        /// Of products: weights (floats) of all channels, element by element of the window, and a
        /// bias for each channel.
        weights: Option<(Weights, Cow<'static, [f32]>)>,
        /// Fused.
        activation: Activation,
        /// Where it reads and writes.
        geometry: Geometry,
    },
    /// Two values, element by element.
    Combine {
        /// How.
        arithmetic: Arithmetic,
        /// The second one.
        other: Place,
        /// Fused.
        activation: Activation,
        /// Where the second one and the result stand.
        geometry: Geometry,
    },
    /// Factors and summands of rows; without summands the factors are for values below 0.
    Scale {
        /// Factors.
        factors: Cow<'static, [f32]>,
        /// Summands.
        biases: Option<Cow<'static, [f32]>>,
        /// Which of them belong to each row.
        moves: Moves<3>,
        /// Fused.
        activation: Activation,
    },
    /// Softmax of each pixel, or its logarithm.
    Softmax {
        /// Where it reads and writes.
        geometry: Geometry,
        /// The logarithm.
        logarithm: bool,
    },
    /// Copies of rows.
    Gather {
        /// Which.
        moves: Moves<2>,
        /// What is written where nothing is read.
        value: f32,
    },
    /// In place.
    Activate(Activation),
    /// The class from so many scores.
    ArgMax(usize),
}

impl Action {
    /// A convolution goes by tiles, where it can and the instruction set has what it takes.
    fn by_tiles(&mut self, kernels: &Kernels) -> Result<(), Error> {
        let Action::Convolution {
            weights,
            biases,
            scales,
            panel,
            columns,
            activation,
            geometry,
        } = self
        else {
            return Ok(());
        };
        let (rows, channels, panel) = (biases.len(), geometry.input.1.c, *panel);
        let Some(transforms) = kernels
            .transforms
            .as_ref()
            .filter(|_| fit::by_tiles(geometry, rows))
        else {
            return Ok(());
        };
        weights.check((biases, scales), panel, columns.0, columns.1);
        assert!(columns.1 == 9 * channels && panel % kernels.lanes == 0);
        let tiles = Floats::new(winograd::ELEMENTS * rows * channels)?;
        let floats = match weights.stored() {
            StoredAs::Floats(w) => Cow::Borrowed(w),
            StoredAs::Halves(w) => w.iter().map(|w| half::to_f32(w.0)).collect(),
            StoredAs::Bytes(w) => {
                let row = |i: usize| i / (panel * columns.0) * panel + i % panel;
                w.iter()
                    .enumerate()
                    .map(|(i, w)| f32::from(w.0) * scales[row(i)])
                    .collect()
            }
        };
        // SAFETY: nobody else has the result yet; the sizes are those that were checked.
        unsafe {
            let places = (&*floats, tiles.slice_mut());
            images::weights_of_tiles(transforms, places, (rows, channels), (panel, columns.0));
        }
        let mut of_tiles = vec![0.0; winograd::ELEMENTS * rows];
        of_tiles[winograd::SHARED * rows..][..rows].copy_from_slice(biases);
        let (activation, geometry) = (*activation, *geometry);
        let weights = Weights(Source::Copied(tiles));
        *self = Action::Tiles {
            weights,
            biases: of_tiles,
            panel,
            activation,
            geometry,
        };
        Ok(())
    }

    /// Pixels, tiles or lines of its result that can be computed one by one; 1 where it knows of
    /// none.
    fn parts(&self) -> usize {
        match self {
            Action::Tiles { geometry, .. } => images::tiles(geometry),
            Action::Convolution { geometry, .. } => geometry.output.1.h * geometry.output.1.w,
            Action::Windows { geometry, .. }
            | Action::Combine { geometry, .. }
            | Action::Softmax { geometry, .. } => geometry.output.1.h,
            Action::Affine { .. }
            | Action::Scale { .. }
            | Action::Gather { .. }
            | Action::Activate(_)
            | Action::ArgMax(_) => 1,
        }
    }

    /// Floating-point operations of what has parts, with padding; more where they are slower than
    /// those of products.
    fn flop(&self) -> usize {
        let image = |(image, shape): (Image, Shape)| image.pixel * shape.w * shape.h;
        match self {
            Action::Convolution {
                columns, geometry, ..
            } => 2 * columns.1 * image(geometry.output),
            Action::Tiles { geometry, .. } => {
                let (rows, channels) = (geometry.output.0.pixel, geometry.input.1.c);
                2 * winograd::ELEMENTS
                    * images::tiles(geometry)
                    * (rows * channels + 4 * (rows + channels))
            }
            Action::Windows { geometry, .. } => {
                let (rows, columns) = geometry.window.size;
                8 * rows * columns * image(geometry.output)
            }
            Action::Combine { geometry, .. } => 20 * image(geometry.output),
            Action::Softmax { geometry, .. } => 500 * image(geometry.output),
            Action::Affine { .. }
            | Action::Scale { .. }
            | Action::Gather { .. }
            | Action::Activate(_)
            | Action::ArgMax(_) => 0,
        }
    }

    /// Whether it knows of images, or moves rows.
    fn of_image(&self) -> bool {
        !matches!(
            self,
            Action::Affine { .. } | Action::Activate(_) | Action::ArgMax(_)
        )
    }
}

/// A step of the network.
pub(crate) struct Step {
    /// What it does.
    pub(crate) action: Action,
    /// What it reads.
    pub(crate) from: Place,
    /// What it writes.
    pub(crate) to: Place,
}

/// Floats on a cache line's boundary that several threads read and write. Zero at first, and memory
/// only where something was written.
struct Floats {
    memory: *mut u8,
    start: *mut f32,
    len: usize,
}

// SAFETY: it is memory; who may touch what when is the affair of those who use the pointer.
unsafe impl Send for Floats {}
// SAFETY: as above.
unsafe impl Sync for Floats {}

impl Floats {
    fn layout(len: usize) -> Option<std::alloc::Layout> {
        // Small alignments get pages that the system has zeroed; the start is aligned here.
        std::alloc::Layout::array::<f32>(len.checked_add(LINE)?).ok()
    }

    fn new(len: usize) -> Result<Floats, Error> {
        // SAFETY: the size is not zero.
        let memory =
            Floats::layout(len).map_or(std::ptr::null_mut(), |l| unsafe { alloc_zeroed(l) });
        if memory.is_null() {
            return Err(Error::device(
                "host engine: not enough memory for batches of this size; use a smaller --batch",
            ));
        }
        let start = memory.wrapping_add(memory.align_offset(4 * LINE)).cast();
        Ok(Floats { memory, start, len })
    }

    /// SAFETY: nobody writes to it as long as the slice lives.
    unsafe fn slice(&self) -> &[f32] {
        // SAFETY: `start` has `len` floats behind it; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// SAFETY: nobody else touches it as long as the slice lives.
    #[allow(clippy::mut_from_ref)]
    unsafe fn slice_mut(&self) -> &mut [f32] {
        // SAFETY: `start` has `len` floats behind it; the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Floats {
    fn drop(&mut self) {
        if let Some(layout) = Floats::layout(self.len) {
            // SAFETY: allocated with this layout in `new`.
            unsafe { dealloc(self.memory, layout) };
        }
    }
}

/// A matrix of activations, records one after the other.
struct Activations {
    floats: Floats,
    /// From a record to the next.
    stride: usize,
}

impl Activations {
    fn new(rows: usize, batch: usize) -> Result<Activations, Error> {
        let mut stride = rows.next_multiple_of(LINE);
        if stride % 256 == 0 {
            // Records a multiple of a page apart would share the few ways of the same set of the
            // cache.
            stride += LINE;
        }
        let len = stride.saturating_mul(batch);
        Ok(Activations {
            floats: Floats::new(len)?,
            stride,
        })
    }

    fn record(&self, n: usize) -> *mut f32 {
        debug_assert!((n + 1) * self.stride <= self.floats.len);
        self.floats.start.wrapping_add(n * self.stride)
    }
}

/// The records of a slot that are still bytes.
struct Bytes(UnsafeCell<Deferred>);

// SAFETY: nobody writes to it while a job of the slot is under way, and only the team has `&mut`
// outside of jobs.
unsafe impl Sync for Bytes {}

/// A pool of buffers for the input of a tile. Whoever decodes a tile of records borrows one: a
/// core's own cache holds it, where the slots' inputs go from core to core.
struct TileInputs {
    buffers: Vec<Activations>,
    /// A bit for each that is free.
    free: AtomicU64,
}

impl TileInputs {
    fn new(count: usize, rows: usize, records: usize) -> Result<TileInputs, Error> {
        let count = count.min(64);
        let buffers: Result<_, _> = (0..count)
            .map(|_| Activations::new(rows, records))
            .collect();
        let free = (0..count).fold(0, |free, i| free | 1 << i);
        Ok(TileInputs {
            buffers: buffers?,
            free: AtomicU64::new(free),
        })
    }

    /// Nobody else has it until it is given back.
    fn borrow(&self) -> Option<usize> {
        // The lowest one: a thread gets the one that it had before, as long as no other takes it in
        // between.
        self.free
            .fetch_update(Acquire, Relaxed, |free| {
                (free > 0).then(|| free & (free - 1))
            })
            .ok()
            .map(lowest)
    }

    fn give_back(&self, buffer: usize) {
        self.free.fetch_or(1 << buffer, Release);
    }
}

fn lowest(bits: u64) -> usize {
    bits.trailing_zeros() as usize
}

/// What each thread has for a tile of a network with images: its values between steps, and room for
/// windows.
struct Workspaces {
    /// Values of the records of a tile, one after the other.
    arenas: Vec<Floats>,
    /// Where the runs of windows begin, and runs across an edge.
    scratch: Vec<Floats>,
    /// What runs in the border are; nobody writes to it.
    zeros: Floats,
    /// From a record of a tile to the next.
    stride: usize,
    /// Most records of a tile.
    records: usize,
    /// A bit for each that is free.
    free: AtomicU64,
}

impl Workspaces {
    /// `count` of them, for records of `stride` values between steps, runs of `zeros` values and so
    /// much room for windows.
    fn new(
        count: usize,
        (stride, records): (usize, usize),
        (scratch, zeros): (usize, usize),
    ) -> Result<Workspaces, Error> {
        let floats = |n: usize| {
            (0..count)
                .map(|_| Floats::new(n))
                .collect::<Result<Vec<Floats>, Error>>()
        };
        let free = (0..count).fold(0, |free, i| free | 1 << i);
        // What a vector may read behind the last value.
        let (arenas, scratch) = (floats(stride * records + LINE)?, floats(scratch + LINE)?);
        let zeros = Floats::new(zeros)?;
        Ok(Workspaces {
            arenas,
            scratch,
            zeros,
            stride,
            records,
            free: AtomicU64::new(free),
        })
    }

    /// Nobody else has it until it is given back. There are as many as threads.
    fn borrow(&self) -> usize {
        loop {
            let taken = self.free.fetch_update(Acquire, Relaxed, |free| {
                (free > 0).then(|| free & (free - 1))
            });
            match taken {
                Ok(free) => return lowest(free),
                Err(_) => std::hint::spin_loop(),
            }
        }
    }

    fn give_back(&self, workspace: usize) {
        self.free.fetch_or(1 << workspace, Release);
    }
}

/// Most threads of a network with images.
const MOST_WORKSPACES: usize = 64;

/// Bytes between steps that a thread's tile has: what its own caches hold.
const TILE_BYTES: usize = 1 << 19;

/// Where the values of a hidden buffer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// In a buffer of the whole batch.
    Batch,
    /// In the workspace of whoever computes the record, from this value on.
    Workspace(usize),
}

/// What a thread knows of the tile that it computes.
#[derive(Clone)]
struct Context {
    slot: usize,
    records: Range<usize>,
    /// Of a layer: rows.
    rows: Option<Range<usize>>,
    /// Which part of a record's pixels or lines, of how many.
    part: (usize, usize),
    /// The buffer of the pool that its input is in.
    pooled: Option<usize>,
    workspace: Option<usize>,
    /// The values of record n are in workspace n, for several threads.
    few: bool,
}

/// How a phase is cut into tiles.
enum Split {
    /// By records.
    Records,
    /// By parts of each record's pixels or lines, so many.
    Parts(usize),
    /// By rows: tile i is rows `[i]` to `[i + 1]`.
    Rows(Vec<usize>),
}

struct Phase {
    steps: Range<usize>,
    split: Split,
}

/// What the threads share; it does not change but for the contents of the buffers.
struct Shared {
    schedule: Schedule,
    kernels: Kernels,
    steps: Vec<Step>,
    phases: Vec<Phase>,
    /// For jobs of fewer records than threads, of a network with images.
    few: Vec<Phase>,
    workspaces: Workspaces,
    /// Of each hidden buffer.
    homes: Vec<Home>,
    /// Values of a record that each step writes.
    rows: Vec<usize>,
    inputs: [Activations; SLOTS],
    /// What the first phase decodes into `inputs`, so many numbers a record.
    deferred: [Bytes; SLOTS],
    width: usize,
    /// For tiles of the first phase, if no other phase needs their input.
    tile_inputs: TileInputs,
    scores: [Activations; SLOTS],
    hidden: Vec<Activations>,
    classes: [Vec<AtomicU32>; SLOTS],
    /// Threads, the caller's included.
    threads: usize,
    /// Measured times, if anybody wants to know.
    clock: Option<Mutex<Clock>>,
}

struct Clock {
    sums: StepClock,
    /// Where each time is kept by itself, if anybody wants to know.
    track: Option<Track>,
}

/// The threads, seen from the one that submits batches.
pub(crate) struct Team {
    shared: Arc<Shared>,
    workers: Vec<Thread>,
    /// The job of each slot that is under way.
    flying: [Option<u32>; SLOTS],
    /// Records from which on a batch is shared, and from which on sleepers are woken for it.
    share_from: usize,
    wake_from: usize,
    batch: usize,
}

/// Values of a record, and records.
#[derive(Clone, Copy)]
pub(crate) struct Sizes<'a> {
    /// Rows of the input, of each hidden buffer and of the scores.
    pub(crate) rows: (usize, &'a [usize], usize),
    /// Values of the input without padding.
    pub(crate) width: usize,
    /// Where each hidden buffer begins in an arena for the values of a record, and the arena's
    /// values.
    pub(crate) arena: (&'a [usize], usize),
    /// Most records of a batch.
    pub(crate) batch: usize,
    /// Floating-point operations of a record.
    pub(crate) flop: u64,
}

impl Team {
    /// Starts at most `threads` threads, the caller's being one of them: no more than the largest
    /// batch keeps busy.
    ///
    /// # Panics
    /// If sizes of steps and buffers do not fit together.
    pub(crate) fn new(
        mut steps: Vec<Step>,
        sizes: Sizes<'_>,
        threads: usize,
        timed: bool,
    ) -> Result<Team, Error> {
        let Sizes {
            rows,
            width,
            arena: (places, arena),
            batch,
            flop,
        } = sizes;
        let panels = steps.iter().filter_map(|s| match s.action {
            Action::Affine { panel, .. } | Action::Convolution { panel, .. } => Some(panel),
            _ => None,
        });
        let kernels = Kernels::detect(panels.fold(0, gcd));
        for step in &mut steps {
            step.action.by_tiles(&kernels)?;
            let (Action::Affine { weights, .. } | Action::Convolution { weights, .. }) =
                &step.action
            else {
                continue;
            };
            if !weights.served(&kernels) {
                return Err(Error::device("host engine: no kernels for such weights"));
            }
        }
        // Records that keep one thread busy for so many microseconds.
        let records = |us: u64| {
            let records = us * u64::from(kernels.gflops) * 1000 / flop.max(1) + 1;
            usize::try_from(records).unwrap_or(usize::MAX)
        };
        let images = steps.iter().any(|s| s.action.of_image());
        let most = if images { MOST_WORKSPACES } else { usize::MAX };
        let threads = if batch < records(WAKE_US) {
            1
        } else {
            threads.clamp(1, most)
        };
        let buffers = |rows: usize| -> Result<[Activations; SLOTS], Error> {
            Ok([
                Activations::new(rows, batch)?,
                Activations::new(rows, batch)?,
            ])
        };
        let phases = phases(&steps, &kernels, threads);
        let homes: Vec<Home> = (0..rows.1.len())
            .map(|i| {
                if images && within_one(&steps, &phases, i) {
                    Home::Workspace(places[i])
                } else {
                    Home::Batch
                }
            })
            .collect();
        let hidden: Result<Vec<Activations>, Error> = rows
            .1
            .iter()
            .zip(&homes)
            .map(|(&r, home)| Activations::new(if *home == Home::Batch { r } else { 0 }, batch))
            .collect();
        let stride = if images {
            (arena + LINE).next_multiple_of(LINE)
        } else {
            0
        };
        let of_tile = (TILE_BYTES / (4 * stride.max(1))).clamp(1, kernels.tile.0);
        let windows = steps.iter().map(|s| match &s.action {
            Action::Convolution { geometry, .. } => (
                images::scratch(geometry, kernels.tile.0),
                images::runs(geometry).1,
            ),
            Action::Tiles {
                geometry, biases, ..
            } => {
                let rows = biases.len() / winograd::ELEMENTS;
                (
                    images::tiles_scratch(geometry, rows, kernels.tile.0),
                    geometry.input.1.c,
                )
            }
            _ => (0, 0),
        });
        let room = windows.fold((0, 0), |most, of| (most.0.max(of.0), most.1.max(of.1)));
        let workspaces =
            Workspaces::new(if images { threads } else { 0 }, (stride, of_tile), room)?;
        let step_rows = steps.iter().map(|s| match s.to {
            Place::Input => rows.0,
            Place::Hidden(i) => rows.1[i],
            Place::Scores => rows.2,
        });
        let step_rows = step_rows.collect();
        let few = if images && threads > 1 {
            single(&steps, &kernels, threads)
        } else {
            Vec::new()
        };
        let alone = !images
            && !steps[phases[0].steps.end..]
                .iter()
                .any(|s| s.from == Place::Input);
        let shared = Shared {
            schedule: Schedule::new(),
            tile_inputs: TileInputs::new(if alone { threads } else { 0 }, rows.0, kernels.tile.0)?,
            phases,
            few,
            workspaces,
            homes,
            rows: step_rows,
            clock: timed.then(|| {
                Mutex::new(Clock {
                    sums: StepClock::new(steps.len()),
                    track: None,
                })
            }),
            kernels,
            inputs: buffers(rows.0)?,
            deferred: [(); SLOTS].map(|()| Bytes(UnsafeCell::new(Deferred::new(batch, width)))),
            width,
            scores: buffers(rows.2)?,
            hidden: hidden?,
            classes: [(); SLOTS].map(|()| (0..batch).map(|_| AtomicU32::new(NAN_CLASS)).collect()),
            threads,
            steps,
        };
        if shared.phases.len().max(shared.few.len()) > MOST_PHASES || batch > MOST_TILES {
            return Err(Error::device(
                "host engine: too many layers, or records of a batch",
            ));
        }
        shared.check((rows.0, rows.1, rows.2));
        let shared = Arc::new(shared);
        let workers = (1..threads).map(|i| {
            Thread::start(Arc::clone(&shared))
                .map_err(|e| Error::caused(&format!("host engine: cannot start thread {i}"), e))
        });
        let mut team = Team {
            shared: Arc::clone(&shared),
            workers: Vec::with_capacity(threads - 1),
            flying: [None; SLOTS],
            share_from: if threads > 1 {
                records(INLINE_US)
            } else {
                usize::MAX
            },
            wake_from: records(WAKE_US),
            batch,
        };
        // Those that did start are ended with the team.
        for worker in workers {
            team.workers.push(worker?);
        }
        Ok(team)
    }

    /// Name of the instruction set in use.
    pub(crate) fn instruction_set(&self) -> &'static str {
        self.shared.kernels.name
    }

    /// Threads, the caller's included.
    pub(crate) fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Bytes of the buffers that a batch has, workspaces left out.
    #[cfg(test)]
    pub(crate) fn bytes(&mut self) -> usize {
        let deferred: usize = (0..SLOTS).map(|slot| self.deferred(slot).room()).sum();
        let Shared {
            inputs,
            scores,
            hidden,
            ..
        } = &*self.shared;
        let floats: usize = inputs
            .iter()
            .chain(scores)
            .chain(hidden)
            .map(|a| a.floats.len)
            .sum();
        deferred + floats * size_of::<f32>()
    }

    /// Most records of a batch.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// The input of a slot: from a record to the next, and the values. Waits if a job reads it.
    pub(crate) fn input(&mut self, slot: usize) -> (usize, &mut [f32]) {
        self.collect(slot);
        let buffer = &self.shared.inputs[slot];
        // SAFETY: the slot's job is complete, and another one needs `&mut self`.
        (buffer.stride, unsafe { buffer.floats.slice_mut() })
    }

    /// The records of a slot that come as bytes. Waits if a job reads them.
    pub(crate) fn deferred(&mut self, slot: usize) -> &mut Deferred {
        self.collect(slot);
        // SAFETY: the slot's job is complete, and another one needs `&mut self`.
        unsafe { &mut *self.shared.deferred[slot].0.get() }
    }

    /// The first record of a collected slot, from record `from` on, whose bytes were refused, and
    /// why.
    ///
    /// # Panics
    /// If the slot was submitted and not collected.
    pub(crate) fn refused(&self, slot: usize, from: usize) -> Option<(usize, Refusal)> {
        assert!(self.flying[slot].is_none(), "slot {slot} was not collected");
        // SAFETY: only `&mut self` writes to it.
        unsafe { &*self.shared.deferred[slot].0.get() }.refused(self.shared.width, from)
    }

    /// Starts the first `records` records of a slot, 1 to the batch; does not wait for large ones.
    pub(crate) fn submit(&mut self, slot: usize, records: usize) {
        assert!((1..=self.batch).contains(&records), "{records} records");
        self.deferred(slot).submit();
        if records >= self.share_from {
            let wake = records >= self.wake_from;
            self.flying[slot] = Some(self.shared.schedule.submit(slot, records, wake));
            return;
        }
        // Jobs share the hidden buffers: those before this one come first.
        (0..SLOTS).for_each(|s| self.collect(s));
        for phase in 0..self.shared.phases(records) {
            for tile in 0..self.shared.tiles(phase, records) {
                // SAFETY: each tile once, in order, and no other job is under way.
                unsafe {
                    self.shared.run(Tile {
                        slot,
                        records,
                        phase,
                        tile,
                    })
                };
            }
        }
    }

    /// Waits for a slot's job, and works at it.
    pub(crate) fn collect(&mut self, slot: usize) {
        if let Some(job) = self.flying[slot].take() {
            self.shared.schedule.complete(job, &*self.shared);
        }
    }

    /// The scores of a slot: from a record to the next, and the values.
    ///
    /// # Panics
    /// If the slot was submitted and not collected.
    pub(crate) fn scores(&self, slot: usize) -> (usize, &[f32]) {
        assert!(self.flying[slot].is_none(), "slot {slot} was not collected");
        let buffer = &self.shared.scores[slot];
        // SAFETY: no job writes to it, and another one needs `&mut self`.
        (buffer.stride, unsafe { buffer.floats.slice() })
    }

    /// The class of a record of a collected slot, where the network ends with an arg-max.
    pub(crate) fn class(&self, slot: usize, record: usize) -> u32 {
        self.shared.classes[slot][record].load(Relaxed)
    }

    /// Forgets the times of the steps so far.
    pub(crate) fn forget_times(&self) {
        self.shared
            .clock()
            .into_iter()
            .for_each(|mut clock| clock.sums.clear());
    }

    /// From now on what is timed is kept on `track` too.
    pub(crate) fn trace(&self, track: Track) {
        self.shared
            .clock()
            .into_iter()
            .for_each(|mut clock| clock.track = Some(track));
    }

    /// The measured times of the steps.
    pub(crate) fn times(&self) -> Option<StepClock> {
        self.shared.clock().map(|clock| clock.sums.clone())
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.schedule.quit();
        self.workers.drain(..).for_each(Thread::join);
    }
}

impl Serve for Shared {
    fn serve(&self) {
        self.schedule.serve(self);
    }
}

impl Work for Shared {
    fn phases(&self, records: usize) -> usize {
        self.of(records).len()
    }

    fn tiles(&self, phase: usize, records: usize) -> usize {
        match &self.of(records)[phase].split {
            Split::Records => records.div_ceil(self.chunk(records)),
            Split::Parts(parts) => records * parts,
            Split::Rows(bounds) => bounds.len() - 1,
        }
    }

    unsafe fn run(&self, tile: Tile) {
        let phase = &self.of(tile.records)[tile.phase];
        let (mut records, mut rows, mut part) = (0..tile.records, None, (0, 1));
        match &phase.split {
            Split::Records => {
                let chunk = self.chunk(tile.records);
                records = tile.tile * chunk..tile.records.min((tile.tile + 1) * chunk);
            }
            Split::Parts(parts) => {
                records = tile.tile / parts..tile.tile / parts + 1;
                part = (tile.tile % parts, *parts);
            }
            Split::Rows(bounds) => rows = Some(bounds[tile.tile]..bounds[tile.tile + 1]),
        }
        // SAFETY: the caller's promise is passed on; the first phase is split by records.
        let pooled = if tile.phase == 0 {
            unsafe { self.decode(tile.slot, records.clone()) }
        } else {
            None
        };
        let workspace = (!self.workspaces.arenas.is_empty()).then(|| self.workspaces.borrow());
        let few = self.is_few(tile.records);
        let context = Context {
            slot: tile.slot,
            records,
            rows,
            part,
            pooled,
            workspace,
            few,
        };
        for i in phase.steps.clone() {
            let start = self.clock.is_some().then(Instant::now);
            // SAFETY: the caller's promise is passed on.
            unsafe { self.step(i, &context) };
            let what = (tile.slot, context.records.len(), Name::Step(i));
            self.timed(start, what, |clock, took| clock.record(i, took));
        }
        workspace.inspect(|&workspace| self.workspaces.give_back(workspace));
        pooled.inspect(|&buffer| self.tile_inputs.give_back(buffer));
    }
}

impl Shared {
    /// Records of a tile: those of a micro-tile, fewer where the batch is too small for all
    /// threads, or where their values between steps are many.
    fn chunk(&self, records: usize) -> usize {
        let most = if self.workspaces.arenas.is_empty() {
            self.kernels.tile.0
        } else {
            self.workspaces.records
        };
        if self.is_few(records) {
            1
        } else {
            records.div_ceil(self.threads).clamp(1, most)
        }
    }

    /// Whether threads share the pixels of a record, not records.
    fn is_few(&self, records: usize) -> bool {
        !self.few.is_empty() && records < self.threads
    }

    /// The phases of a job.
    fn of(&self, records: usize) -> &[Phase] {
        if self.is_few(records) {
            &self.few
        } else {
            &self.phases
        }
    }

    fn buffer(&self, place: Place, slot: usize) -> &Activations {
        match place {
            Place::Input => &self.inputs[slot],
            Place::Hidden(i) => &self.hidden[i],
            Place::Scores => &self.scores[slot],
        }
    }

    /// Decodes those of some records that are bytes; where all are, into a buffer of the pool,
    /// which it gives.
    ///
    /// SAFETY: as `step`.
    unsafe fn decode(&self, slot: usize, records: Range<usize>) -> Option<usize> {
        // SAFETY: nobody writes to it as long as the job is under way.
        let deferred = unsafe { &*self.deferred[slot].0.get() };
        if deferred.is_empty() {
            return None;
        }
        let start = self.clock.is_some().then(Instant::now);
        let pooled = if deferred.has_all(records.clone()) {
            self.tile_inputs.borrow()
        } else {
            None
        };
        let context = Context {
            slot,
            records: records.clone(),
            rows: None,
            part: (0, 1),
            pooled,
            workspace: None,
            few: false,
        };
        for n in records.clone() {
            let to = self.record(Place::Input, &context, n);
            // SAFETY: a record of the input has `width` values at least; nobody else touches it.
            deferred.decode(n, unsafe { std::slice::from_raw_parts_mut(to, self.width) });
        }
        let what = (slot, records.len(), Name::Text("decode"));
        self.timed(start, what, |clock, took| clock.decode += took);
        pooled
    }

    fn clock(&self) -> Option<MutexGuard<'_, Clock>> {
        self.clock
            .as_ref()
            .map(|clock| clock.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// Where times are taken: adds the one since `start`, of some records of a slot.
    #[inline(always)]
    fn timed(
        &self,
        start: Option<Instant>,
        (slot, records, name): (usize, usize, Name),
        add: impl FnOnce(&mut StepClock, Duration),
    ) {
        let Some(start) = start else { return };
        let took = start.elapsed();
        let Some(mut clock) = self.clock() else {
            return;
        };
        add(&mut clock.sums, took);
        let track = clock.track;
        drop(clock);
        track
            .into_iter()
            .for_each(|track| track.span(name, slot, records, start, took));
    }

    /// Where record `n` of a tile stands.
    fn record(&self, place: Place, context: &Context, n: usize) -> *mut f32 {
        let first = context.records.start;
        match (place, context.pooled, context.workspace) {
            (Place::Input, Some(pooled), _) => self.tile_inputs.buffers[pooled].record(n - first),
            (Place::Hidden(i), _, Some(own)) => match self.homes[i] {
                Home::Batch => self.buffer(place, context.slot).record(n),
                Home::Workspace(at) => {
                    let (arenas, stride) = (&self.workspaces.arenas, self.workspaces.stride);
                    let (arena, record) = if context.few {
                        (n, 0)
                    } else {
                        (own, n - first)
                    };
                    arenas[arena].start.wrapping_add(record * stride + at)
                }
            },
            _ => self.buffer(place, context.slot).record(n),
        }
    }

    /// From a record of a tile to the next.
    fn stride(&self, place: Place, slot: usize) -> usize {
        match place {
            Place::Hidden(i) if self.homes[i] != Home::Batch => self.workspaces.stride,
            _ => self.buffer(place, slot).stride,
        }
    }

    /// One step for some records, and of a layer for some rows or all, of an image for some pixels
    /// or all.
    ///
    /// SAFETY: as `Work::run`. Then nobody else touches what it writes: tiles of a phase are
    /// different records, different rows or different pixels. What it reads was written by an
    /// earlier phase, or for the same records by this tile.
    unsafe fn step(&self, i: usize, context: &Context) {
        let step = &self.steps[i];
        let (records, slot) = (context.records.clone(), context.slot);
        let (x_stride, result_stride) = (self.stride(step.from, slot), self.stride(step.to, slot));
        let at = |place| self.record(place, context, records.start);
        let (x, result) = (at(step.from), at(step.to));
        // Of the pixels or lines of a record those of this tile.
        let (part, parts) = context.part;
        let share = |n: usize| n * part / parts..n * (part + 1) / parts;
        match &step.action {
            Action::Affine {
                weights,
                biases,
                scales,
                panel,
                columns,
                inputs,
                activation,
            } => {
                // Once for each way of storing weights.
                macro_rules! compute {
                    ($kernel:expr, $weights:expr) => {{
                        let layer = Affine {
                            weights: $weights,
                            biases,
                            scales,
                            panel: *panel,
                            columns: *columns,
                            inputs: *inputs,
                            activation: *activation,
                        };
                        let sub = Subproblem {
                            rows: context.rows.clone().unwrap_or(0..biases.len()),
                            layer: &layer,
                            records: records.len(),
                            x,
                            x_stride,
                            runs: None,
                            result,
                            result_stride,
                        };
                        // SAFETY: `check` has compared the sizes; see above.
                        unsafe {
                            $kernel(&sub);
                            self.kernels.complete(&sub);
                        }
                    }};
                }
                match weights.stored() {
                    StoredAs::Floats(w) => compute!((self.kernels.affine), w),
                    StoredAs::Halves(w) => self
                        .kernels
                        .affine_of_halves
                        .into_iter()
                        .for_each(|kernel| compute!(kernel, w)),
                    StoredAs::Bytes(w) => self
                        .kernels
                        .affine_of_bytes
                        .into_iter()
                        .for_each(|kernel| compute!(kernel, w)),
                }
            }
            Action::Convolution {
                weights,
                biases,
                scales,
                panel,
                columns,
                activation,
                geometry,
            } => {
                // Whole tiles.
                let (tile, count) = (
                    self.kernels.tile.0,
                    geometry.output.1.h * geometry.output.1.w,
                );
                let tiles = share(count.div_ceil(tile));
                let pixels = tiles.start * tile..count.min(tiles.end * tile);
                let scratch = &self.workspaces.scratch[context.workspace.unwrap_or(0)];
                let convolve = |product: &dyn Fn(usize, images::Windows, *mut f32)| {
                    for n in records.clone() {
                        let x = self.record(step.from, context, n).cast_const();
                        let places = (x, self.record(step.to, context, n));
                        let room = (self.workspaces.zeros.start.cast_const(), scratch.start);
                        let pixels = pixels.clone();
                        // SAFETY: `check` has compared the sizes; see above.
                        unsafe { images::convolve(geometry, tile, pixels, places, room, product) }
                    }
                };
                macro_rules! compute {
                    ($kernel:expr, $weights:expr) => {{
                        let layer = Affine {
                            weights: $weights,
                            biases,
                            scales,
                            panel: *panel,
                            columns: columns.0,
                            inputs: columns.1,
                            activation: *activation,
                        };
                        let product =
                            |records: usize, (x, x_stride, runs): images::Windows, result| {
                                let rows = context.rows.clone().unwrap_or(0..biases.len());
                                let result_stride = geometry.output.0.pixel;
                                let sub = Subproblem {
                                    layer: &layer,
                                    rows,
                                    records,
                                    x,
                                    x_stride,
                                    runs,
                                    result,
                                    result_stride,
                                };
                                // SAFETY: `check` has compared the sizes; see above.
                                unsafe {
                                    $kernel(&sub);
                                    self.kernels.complete(&sub);
                                }
                            };
                        convolve(&product);
                    }};
                }
                match weights.stored() {
                    StoredAs::Floats(w) => compute!(self.kernels.affine, w),
                    StoredAs::Halves(w) => self
                        .kernels
                        .affine_of_halves
                        .into_iter()
                        .for_each(|kernel| compute!(kernel, w)),
                    StoredAs::Bytes(w) => self
                        .kernels
                        .affine_of_bytes
                        .into_iter()
                        .for_each(|kernel| compute!(kernel, w)),
                }
            }
            Action::Tiles {
                weights,
                biases,
                panel,
                activation,
                geometry,
            } => {
                let channels = geometry.input.1.c;
                let Some(transforms) = &self.kernels.transforms else {
                    return;
                };
                let layer = Affine {
                    weights: weights.floats(),
                    biases,
                    scales: &[],
                    panel: *panel,
                    columns: channels,
                    inputs: channels,
                    activation: Activation::None,
                };
                // Whole tiles of records.
                let (tile, count) = (self.kernels.tile.0, images::tiles(geometry));
                let tiles = share(count.div_ceil(tile));
                let tiles = tiles.start * tile..count.min(tiles.end * tile);
                let scratch = &self.workspaces.scratch[context.workspace.unwrap_or(0)];
                let room = (self.workspaces.zeros.start.cast_const(), scratch.start);
                for n in records.clone() {
                    let x = self.record(step.from, context, n).cast_const();
                    let places = (x, self.record(step.to, context, n));
                    let (with, layer) = ((&self.kernels, transforms), (&layer, *activation));
                    // SAFETY: `check` has compared the sizes; see above.
                    unsafe {
                        images::convolve_tiles(with, geometry, layer, tiles.clone(), places, room)
                    }
                }
            }
            Action::Windows {
                made,
                weights,
                activation,
                geometry,
            } => {
                let null = (std::ptr::null(), std::ptr::null());
                let arrays = weights
                    .as_ref()
                    .map_or(null, |(w, b)| (w.floats().as_ptr(), b.as_ptr()));
                for n in records.clone() {
                    let x = self.record(step.from, context, n).cast_const();
                    let (places, lines) = (
                        (x, self.record(step.to, context, n)),
                        share(geometry.output.1.h),
                    );
                    // SAFETY: `check` has compared the sizes; see above.
                    unsafe {
                        images::windows(
                            &self.kernels,
                            *made,
                            arrays,
                            geometry,
                            *activation,
                            lines,
                            places,
                        )
                    }
                }
            }
            Action::Combine {
                arithmetic,
                other,
                activation,
                geometry,
            } => {
                let lines = share(geometry.output.1.h);
                for n in records.clone() {
                    let x = self.record(step.from, context, n).cast_const();
                    let other = self.record(*other, context, n).cast_const();
                    let result = self.record(step.to, context, n);
                    // Line by line: the activation finds it in the first-level cache.
                    for line in lines.clone().map(|y| y..y + 1) {
                        // SAFETY: `check` has compared the sizes; see above.
                        unsafe {
                            let places = (x, other, result);
                            images::combine(
                                &self.kernels,
                                *arithmetic,
                                geometry,
                                line.clone(),
                                places,
                            );
                            images::activate(&self.kernels, geometry, *activation, line, result);
                        }
                    }
                }
            }
            Action::Scale {
                factors,
                biases,
                moves,
                activation,
            } => {
                for n in records.clone() {
                    let x = self.record(step.from, context, n).cast_const();
                    let result = self.record(step.to, context, n);
                    // SAFETY: `check` has compared the sizes; see above.
                    unsafe {
                        moves::scale(moves, (factors, biases.as_deref()), (x, result));
                        (self.kernels.activate)(
                            *activation,
                            result,
                            moves.filled().next_multiple_of(LINE),
                        );
                    }
                }
            }
            Action::Softmax {
                geometry,
                logarithm,
            } => {
                for n in records.clone() {
                    let x = self.record(step.from, context, n).cast_const();
                    let places = (x, self.record(step.to, context, n));
                    // SAFETY: `check` has compared the sizes; see above.
                    unsafe {
                        images::softmax(geometry, *logarithm, share(geometry.output.1.h), places)
                    }
                }
            }
            Action::Gather { moves, value } => {
                for n in records.clone() {
                    let x = self.record(step.from, context, n).cast_const();
                    // SAFETY: `check` has compared the sizes; see above.
                    unsafe { moves::gather(moves, *value, (x, self.record(step.to, context, n))) }
                }
            }
            Action::Activate(activation) if self.workspaces.arenas.is_empty() => {
                // SAFETY: whole records, whose stride is a multiple of all lanes; see above.
                unsafe {
                    (self.kernels.activate)(*activation, result, records.len() * result_stride)
                }
            }
            Action::Activate(activation) => {
                let rows = self.rows[i].next_multiple_of(LINE);
                for n in records.clone() {
                    // SAFETY: places are whole lines, which all lanes divide; see above.
                    unsafe {
                        (self.kernels.activate)(*activation, self.record(step.to, context, n), rows)
                    }
                }
            }
            Action::ArgMax(outputs) => {
                for n in records.clone() {
                    let scores = self.record(step.from, context, n);
                    // SAFETY: `check` has compared the sizes; see above.
                    let scores = unsafe { std::slice::from_raw_parts(scores, *outputs) };
                    self.classes[slot][n].store(argmax(scores), Relaxed);
                }
            }
        }
    }

    /// What the unsafe code relies on.
    fn check(&self, (input, hidden, scores): (usize, &[usize], usize)) {
        #[track_caller]
        fn right(is: bool) {
            assert!(is, "steps and buffers do not fit together");
        }
        right(self.width <= input && matches!(self.phases[0].split, Split::Records));
        right(
            self.few
                .first()
                .is_none_or(|p| matches!(p.split, Split::Records)),
        );
        for (home, rows) in self.homes.iter().zip(hidden) {
            right(!matches!(home, Home::Workspace(at) if at + rows > self.workspaces.stride));
        }
        let rows_of = |place| match place {
            Place::Input => input,
            Place::Hidden(i) => hidden[i],
            Place::Scores => scores,
        };
        for s in &self.steps {
            match &s.action {
                Action::Affine {
                    weights,
                    biases,
                    scales,
                    panel,
                    columns,
                    inputs,
                    ..
                } => {
                    let (panel, columns, inputs) = (*panel, *columns, *inputs);
                    weights.check((biases, scales), panel, columns, inputs);
                    right(panel % self.kernels.lanes == 0 && s.from != s.to);
                    right(inputs <= rows_of(s.from) && biases.len() <= rows_of(s.to));
                }
                Action::Convolution {
                    weights,
                    biases,
                    scales,
                    panel,
                    columns,
                    geometry,
                    ..
                } => {
                    let (panel, (columns, inputs)) = (*panel, *columns);
                    weights.check((biases, scales), panel, columns, inputs);
                    let ((input, from), (output, to)) = (geometry.input, geometry.output);
                    let window = geometry.window.size;
                    right(
                        panel % self.kernels.lanes == 0 && s.from != s.to && geometry.groups == 1,
                    );
                    right(inputs == window.0 * window.1 * from.c);
                    right(biases.len() <= output.pixel);
                    right(output.line == to.w * output.pixel && window_fits(geometry));
                    right(images::end(input, from) <= rows_of(s.from));
                    right(
                        images::end(
                            output,
                            Shape {
                                c: output.pixel,
                                ..to
                            },
                        ) <= rows_of(s.to),
                    );
                }
                Action::Tiles {
                    weights,
                    biases,
                    panel,
                    geometry,
                    ..
                } => {
                    let ((input, from), (output, to)) = (geometry.input, geometry.output);
                    let rows = biases.len() / winograd::ELEMENTS;
                    weights.check((biases, &[]), *panel, from.c, from.c);
                    right(panel % self.kernels.lanes == 0 && rows % panel == 0 && s.from != s.to);
                    right(fit::by_tiles(geometry, rows) && from.c % self.kernels.lanes == 0);
                    right(
                        rows <= output.pixel
                            && window_fits(geometry)
                            && !weights.floats().is_empty(),
                    );
                    right(images::end(input, from) <= rows_of(s.from));
                    right(
                        images::end(
                            output,
                            Shape {
                                c: output.pixel,
                                ..to
                            },
                        ) <= rows_of(s.to),
                    );
                }
                Action::Windows {
                    made,
                    weights,
                    geometry,
                    ..
                } => {
                    let ((input, from), (output, to)) = (geometry.input, geometry.output);
                    let window = geometry.window.size;
                    let channels = output.pixel;
                    right(
                        channels % LINE == 0
                            && s.from != s.to
                            && from.c == to.c
                            && window_fits(geometry),
                    );
                    right(images::end(input, from) <= rows_of(s.from));
                    right(images::end(output, Shape { c: channels, ..to }) <= rows_of(s.to));
                    let sizes = weights.as_ref().map(|(w, b)| (w.floats().len(), b.len()));
                    let expected = (window.0 * window.1 * channels, channels);
                    right(sizes == (*made == Made::Products).then_some(expected));
                }
                Action::Combine {
                    other, geometry, ..
                } => {
                    let ((second, _), (output, to)) = (geometry.input, geometry.output);
                    let all = Shape {
                        c: output.pixel,
                        ..to
                    };
                    right(images::end(output, all) <= rows_of(s.to).min(rows_of(s.from)));
                    right(
                        s.to != s.from
                            && s.to != *other
                            && images::end(second, to) <= rows_of(*other),
                    );
                    // Those that stand alike are combined whole, padding included.
                    right(second != output || images::end(second, all) <= rows_of(*other));
                }
                Action::Scale {
                    factors,
                    biases,
                    moves,
                    ..
                } => {
                    let [rows, first, second] = moves.ends();
                    right(rows <= rows_of(s.from).min(rows_of(s.to)) && s.from != s.to);
                    right(
                        first <= factors.len()
                            && second <= biases.as_ref().unwrap_or(factors).len(),
                    );
                }
                Action::Softmax { geometry, .. } => {
                    let ((input, from), (output, to)) = (geometry.input, geometry.output);
                    right(
                        from == to && images::end(input, from) <= rows_of(s.from) && s.from != s.to,
                    );
                    right(
                        images::end(
                            output,
                            Shape {
                                c: output.pixel,
                                ..to
                            },
                        ) <= rows_of(s.to),
                    );
                }
                Action::Gather { moves, .. } => {
                    let [to, from] = moves.ends();
                    right(from <= rows_of(s.from) && to <= rows_of(s.to) && s.from != s.to);
                }
                Action::Activate(_) => right(s.from == s.to),
                Action::ArgMax(outputs) => right((1..=rows_of(s.from)).contains(outputs)),
            }
        }
    }
}

/// Whether the result of a geometry is as large as its window makes it.
fn window_fits(geometry: &Geometry) -> bool {
    let (from, to) = (geometry.input.1, geometry.output.1);
    geometry.window.output(from) == Ok((to.h, to.w))
}

/// Whether all steps that touch hidden buffer `i` are in one phase that is split by records.
fn within_one(steps: &[Step], phases: &[Phase], i: usize) -> bool {
    let touches = |s: &Step| {
        let other = if let Action::Combine { other, .. } = &s.action {
            Some(*other)
        } else {
            None
        };
        [Some(s.from), Some(s.to), other].contains(&Some(Place::Hidden(i)))
    };
    let mut of = phases
        .iter()
        .filter(|p| steps[p.steps.clone()].iter().any(touches));
    let first = of.next();
    first.is_none_or(|p| matches!(p.split, Split::Records)) && of.next().is_none()
}

/// For a single record: steps that all threads have a part of, and between them those that are not
/// worth sharing.
fn single(steps: &[Step], kernels: &Kernels, threads: usize) -> Vec<Phase> {
    group(steps, |step| {
        let parts =
            (step.action.flop() / (PART_US * 1000 * kernels.gflops as usize)).min(PARTS * threads);
        let by_rows = |vectors: usize, band: usize| {
            (vectors / band >= threads)
                .then(|| Split::Rows(bounds(vectors, band, threads, kernels.lanes)))
        };
        match (&step.action, step.action.parts()) {
            (
                Action::Affine {
                    weights, biases, ..
                },
                _,
            ) if weights.stored().bytes() >= LARGE / 8 => {
                by_rows(biases.len() / kernels.lanes, kernels.tile.1)
            }
            (Action::Convolution { biases, .. }, pixels) if parts > 1 => {
                let tiles = pixels.div_ceil(kernels.tile.0);
                // Few tiles do not come out even, and each thread would read all of the weights.
                let rows = if tiles < PARTS * threads {
                    by_rows(biases.len() / kernels.lanes, 2)
                } else {
                    None
                };
                rows.or((tiles > 1).then(|| Split::Parts(parts.min(tiles))))
            }
            (Action::Tiles { .. }, tiles) => {
                let parts = parts.min(tiles.div_ceil(kernels.tile.0));
                (parts > 1).then_some(Split::Parts(parts))
            }
            (_, lines) => (parts.min(lines) > 1).then(|| Split::Parts(parts.min(lines))),
        }
    })
}

/// Parts of a record for each thread at most: more would not end more evenly than handing them out
/// takes.
const PARTS: usize = 2;

/// What a part of a record takes at least, in microseconds: many times what handing it out costs.
const PART_US: usize = 2;

/// Groups the steps: large layers alone, the rest together.
fn phases(steps: &[Step], kernels: &Kernels, threads: usize) -> Vec<Phase> {
    group(steps, |step| match &step.action {
        Action::Affine {
            weights, biases, ..
        } => {
            let vectors = biases.len() / kernels.lanes;
            let large = weights.stored().bytes() >= LARGE && vectors / kernels.tile.1 >= threads;
            large.then(|| Split::Rows(bounds(vectors, kernels.tile.1, threads, kernels.lanes)))
        }
        _ => None,
    })
}

/// Phases of steps: one for each that `split` splits, one for those between, which are split by
/// records.
fn group(steps: &[Step], split: impl Fn(&Step) -> Option<Split>) -> Vec<Phase> {
    // The first phase decodes: records are split before parts of them may be.
    let mut phases = vec![Phase {
        steps: 0..0,
        split: Split::Records,
    }];
    for (i, step) in steps.iter().enumerate() {
        match (split(step), phases.last_mut()) {
            (Some(split), _) => phases.push(Phase {
                steps: i..i + 1,
                split,
            }),
            (
                None,
                Some(Phase {
                    steps,
                    split: Split::Records,
                }),
            ) => steps.end = i + 1,
            (None, _) => phases.push(Phase {
                steps: i..i + 1,
                split: Split::Records,
            }),
        }
    }
    phases
}

/// Cuts `vectors` vectors of rows into tiles of whole bands of `band` vectors: large ones first,
/// which read weights without a break, then smaller and smaller ones, so that all threads end
/// together (guided self-scheduling).
fn bounds(vectors: usize, band: usize, threads: usize, lanes: usize) -> Vec<usize> {
    let (mut at, mut bounds) = (0, vec![0]);
    while at < vectors {
        let share = (vectors - at) / (2 * threads) / band * band;
        at = vectors.min(
            at + if threads > 1 {
                share.max(band)
            } else {
                vectors
            },
        );
        bounds.push(at * lanes);
    }
    bounds
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Index of the largest value, the lowest of equal ones; [`NAN_CLASS`] if one is NaN or infinite.
pub(super) fn argmax(values: &[f32]) -> u32 {
    let (mut best, mut finite) = (0, true);
    for (i, v) in values.iter().enumerate() {
        finite &= v.is_finite();
        if *v > values[best] {
            best = i;
        }
    }
    if finite { best as u32 } else { NAN_CLASS }
}
