//! Runs the steps of a phase for one tile, the work that a thread takes at a time.

use super::bands::{self, Band, HeldLines, MOST_STEPS};
use super::buffers::{Activations, LINE, Operands, Scratch, Undecoded, Workspaces, value_at};
use super::bytes;
use super::check::{BufferRows, check, right};
use super::dense::{Dense, Part};
use super::images;
use super::micro::{Bounds, ByteSum, Kernels, SumNumbers, WholeSum};
use super::moves::{self, Block, Moves, Numbers, Share};
use super::phases::{Phase, Split};
use super::product;
use super::schedule::{Schedule, Tile, Work};
use super::steps::{Action, Finish, HostStep, Place, SumBytes};
use super::windows;
use crate::ir::network::Activation;
use crate::ir::plan::{NAN_CLASS, SLOTS};
use crate::ir::view::Geometry;
use crate::observe::profile::StepClock;
use crate::observe::trace::{Name, Track};
use crate::planner::tiles::TileSize;
use crate::sys::thread::Serve;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The kind of memory that holds a hidden buffer's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// A buffer with room for all records of the batch.
    Batch,
    /// A workspace of the thread. The number is the index of the buffer's first float in a record's
    /// part of the workspace's arena.
    Workspace(usize),
    /// The rolling window of a band, which holds only some lines at a time. Buffers that no step
    /// touches also have this home.
    Window,
}

/// How the steps are divided for a job.
pub(super) struct Course {
    pub(super) bands: Vec<Band>,
    pub(super) phases: Vec<Phase>,
    /// For each hidden buffer, the kind of memory that holds it.
    pub(super) homes: Vec<Home>,
    /// True if several threads may compute the same record. Workspace n then holds the hidden
    /// values of record n of the leg.
    pub(super) shares: bool,
}

/// Some records of a job that take the same course, at one of its phases. A job has one leg or two.
struct Leg<'a> {
    course: &'a Course,
    /// The index of the phase in the course.
    index: usize,
    records: Range<usize>,
}

impl Leg<'_> {
    fn phase(&self) -> &Phase {
        &self.course.phases[self.index]
    }
}

/// The tile that a thread computes, and its memory.
struct TileContext<'a> {
    slot: usize,
    records: Range<usize>,
    /// The rows of the layer to compute, if the phase is split by rows. `None` means all rows.
    rows: Option<Range<usize>>,
    /// The share of each record's pixels or lines that the tile computes.
    share: Share,
    /// The number of the thread, which has the workspace and the tile input of this number.
    thread: usize,
    /// True if the tile input has the tile's records. Otherwise they are in the slot's input.
    decoded: bool,
    leg: &'a Leg<'a>,
}

/// The state that the threads of the host engine share. Only the contents of buffers change.
pub(super) struct TeamState {
    pub(super) schedule: Schedule,
    pub(super) kernels: Kernels,
    pub(super) steps: Vec<HostStep>,
    /// For each step, its number in the plan, under which its time is recorded.
    pub(super) numbers: Vec<usize>,
    /// The course of records that are computed by one thread each.
    pub(super) alone: Course,
    /// The course of a few records that all threads share. `None` if there is one thread, or if the
    /// network has no images.
    pub(super) together: Option<Course>,
    pub(super) workspaces: Workspaces,
    /// For each step, the number of rows of the buffer that the step writes.
    pub(super) rows: Vec<usize>,
    pub(super) inputs: [Activations; SLOTS],
    /// For each slot, the records that arrive as bytes. The first phase decodes them.
    pub(super) deferred: [Undecoded; SLOTS],
    /// The number of values in a record of the input.
    pub(super) width: usize,
    /// For each thread, a buffer for the decoded records of a tile, which stays in the cache of the
    /// thread's core. The buffer of a slot's input would move from core to core. Empty if the
    /// network has images, or if a later phase also reads the input.
    pub(super) tile_inputs: Vec<Activations>,
    pub(super) scores: [Activations; SLOTS],
    /// The rows of the scores without padding.
    pub(super) outputs: Vec<u32>,
    pub(super) hidden: Vec<Activations>,
    /// For each record, true if a step that writes bytes has read a value that is NaN or infinite.
    /// The owner then makes its scores NaN.
    pub(super) lost: [Vec<AtomicBool>; SLOTS],
    pub(super) classes: [Vec<AtomicU32>; SLOTS],
    /// The number of threads, including the calling thread.
    pub(super) threads: usize,
    /// The measured times of steps. `None` if times are not measured.
    pub(super) clock: Option<Mutex<Clock>>,
}

/// Measured times of the steps, as sums and as a trace.
pub(super) struct Clock {
    pub(super) sums: StepClock,
    /// The track of the trace, to which each time is added as a span. `None` without a trace.
    pub(super) track: Option<Track>,
}

impl Serve for TeamState {
    fn serve(&self) {
        self.schedule.serve(self);
    }
}

impl Work for TeamState {
    fn phases(&self, records: usize) -> usize {
        let alone = self.records_alone(records);
        let shared = self.together.as_ref().filter(|_| alone < records);
        self.phases_alone(alone) + shared.map_or(0, |course| course.phases.len())
    }

    fn tiles(&self, phase: usize, records: usize) -> usize {
        let leg = self.leg(phase, records);
        match &leg.phase().split {
            Split::Records => self.groups(&leg),
            Split::Parts(parts) => leg.records.len() * parts,
            Split::Rows(bounds) => bounds.len() - 1,
        }
    }

    fn ordered(&self, phase: usize, records: usize) -> bool {
        matches!(self.leg(phase, records).phase().split, Split::Rows(_))
    }

    unsafe fn run(&self, tile: Tile, thread: usize) {
        let leg = self.leg(tile.phase, tile.records);
        let (course, phase, of_leg) = (leg.course, leg.phase(), leg.records.clone());
        let (mut records, mut rows, mut share) = (of_leg.clone(), None, Share::WHOLE);
        match &phase.split {
            Split::Records => {
                let (part, parts) = (tile.tile, self.groups(&leg));
                let Range { start, end } = Share { part, parts }.of(of_leg.len());
                records = of_leg.start + start..of_leg.start + end;
            }
            Split::Parts(parts) => {
                let record = of_leg.start + tile.tile / parts;
                records = record..record + 1;
                share = Share {
                    part: tile.tile % parts,
                    parts: *parts,
                };
            }
            Split::Rows(bounds) => rows = Some(bounds[tile.tile]..bounds[tile.tile + 1]),
        }
        let mut context = TileContext {
            slot: tile.slot,
            records,
            rows,
            share,
            thread,
            decoded: false,
            leg: &leg,
        };
        if leg.index == 0 {
            // SAFETY: the caller's promise is passed on; the first phase is split by records.
            unsafe { self.decode(&mut context) };
        }
        let mut i = phase.steps.start;
        while i < phase.steps.end {
            if let Some(band) = course.bands.iter().find(|band| band.steps.start == i) {
                // SAFETY: the caller's promise is passed on. No phase ends within a band.
                unsafe { self.band(band, &context) };
                i = band.steps.end;
                continue;
            }
            let start = self.clock.is_some().then(Instant::now);
            // SAFETY: the caller's promise is passed on.
            unsafe { self.step(i, &context) };
            let number = self.numbers[i];
            let what = (tile.slot, context.records.len(), Name::Step(number));
            self.timed(start, what, |clock, took| clock.record(number, took));
            i += 1;
        }
    }
}

impl TeamState {
    /// # Panics
    /// If sizes of steps and buffers do not fit together. The unsafe code relies on them.
    pub(super) fn check(&self, rows: BufferRows<'_>) {
        right(self.width <= rows.input);
        for course in [Some(&self.alone), self.together.as_ref()]
            .into_iter()
            .flatten()
        {
            right(matches!(course.phases[0].split, Split::Records));
            for (i, (home, rows)) in course.homes.iter().zip(rows.hidden).enumerate() {
                let size = bytes::value_size(&self.steps, Place::Hidden(i));
                let floats = (rows * size).div_ceil(size_of::<f32>());
                right(!matches!(home, Home::Workspace(at) if at + floats > self.workspaces.stride));
            }
        }
        bytes::check(&self.steps, rows);
        self.steps
            .iter()
            .for_each(|step| check(step, rows, &self.kernels));
    }

    /// Returns the number of tiles of a phase that is split by records. Each thread gets as many as
    /// the others, and all have nearly as many records.
    fn groups(&self, leg: &Leg) -> usize {
        let records = leg.records.len();
        if leg.course.shares {
            return records;
        }
        let tiles = records
            .div_ceil(self.workspaces.records)
            .next_multiple_of(self.threads);
        tiles.min(records)
    }

    /// Returns how many of a job's records are computed by one thread each. Threads share the
    /// others, if these would keep at most half of the threads busy.
    fn records_alone(&self, records: usize) -> usize {
        if self.together.is_none() {
            return records;
        }
        let rest = match records < self.threads {
            true => records,
            false => records % self.threads,
        };
        match 2 * rest <= self.threads {
            true => records - rest,
            false => records,
        }
    }

    /// Returns the number of phases in which `alone` records are computed by one thread each.
    fn phases_alone(&self, alone: usize) -> usize {
        if alone > 0 {
            self.alone.phases.len()
        } else {
            0
        }
    }

    /// Returns the leg of a phase of a job. The records that are computed by one thread each come
    /// first.
    fn leg(&self, phase: usize, records: usize) -> Leg<'_> {
        let alone = self.records_alone(records);
        let phases = self.phases_alone(alone);
        match &self.together {
            Some(together) if phase >= phases => Leg {
                course: together,
                index: phase - phases,
                records: alone..records,
            },
            _ => Leg {
                course: &self.alone,
                index: phase,
                records: 0..alone,
            },
        }
    }

    fn buffer(&self, place: Place, slot: usize) -> &Activations {
        match place {
            Place::Input => &self.inputs[slot],
            Place::Hidden(i) => &self.hidden[i],
            Place::Scores => &self.scores[slot],
        }
    }

    /// Decodes those of a tile's records that arrived as bytes. If all of them did, their values go
    /// to the thread's tile input, if there is one. Otherwise they go to the slot's input.
    ///
    /// SAFETY: as `step`.
    unsafe fn decode(&self, context: &mut TileContext) {
        let (slot, records) = (context.slot, context.records.clone());
        // SAFETY: nobody writes to the undecoded records as long as the job is under way.
        let deferred = unsafe { &*self.deferred[slot].records.get() };
        if deferred.is_empty() {
            return;
        }
        let start = self.clock.is_some().then(Instant::now);
        context.decoded = !self.tile_inputs.is_empty() && deferred.has_all(records.clone());
        for n in records.clone() {
            let to = self.record(Place::Input, context, n);
            // SAFETY: a record of the input has `width` values at least; nobody else touches it.
            deferred.decode(n, unsafe { std::slice::from_raw_parts_mut(to, self.width) });
        }
        let what = (slot, records.len(), Name::Text("decode"));
        self.timed(start, what, |clock, took| clock.decode += took);
    }

    pub(super) fn clock(&self) -> Option<MutexGuard<'_, Clock>> {
        self.clock
            .as_ref()
            .map(|clock| clock.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// If times are measured, adds the time since `start` to the sums and to the trace.
    #[inline(always)]
    fn timed(
        &self,
        start: Option<Instant>,
        (slot, records, name): (usize, usize, Name),
        add: impl FnOnce(&mut StepClock, Duration),
    ) {
        let took = start.map_or(Duration::ZERO, |start| start.elapsed());
        self.add_time(start, took, (slot, records, name), add);
    }

    /// If times are measured, adds the time `took`, which began at `start`, to the sums and to the
    /// trace.
    #[inline(always)]
    fn add_time(
        &self,
        start: Option<Instant>,
        took: Duration,
        (slot, records, name): (usize, usize, Name),
        add: impl FnOnce(&mut StepClock, Duration),
    ) {
        let (Some(start), Some(mut clock)) = (start, self.clock()) else {
            return;
        };
        add(&mut clock.sums, took);
        let track = clock.track;
        drop(clock);
        track
            .into_iter()
            .for_each(|track| track.span(name, slot, records, start, took));
    }

    /// Returns the address of record `n`'s values in buffer `place`, in the memory that holds them
    /// for this tile. Returns null if only the window of a band holds some of them.
    fn record(&self, place: Place, context: &TileContext, n: usize) -> *mut f32 {
        let first = context.records.start;
        match place {
            Place::Input if context.decoded => self.tile_inputs[context.thread].record(n - first),
            Place::Hidden(i) => match context.leg.course.homes[i] {
                Home::Batch => self.buffer(place, context.slot).record(n),
                Home::Window => std::ptr::null_mut(),
                Home::Workspace(at) => {
                    let (arenas, stride) = (&self.workspaces.arenas, self.workspaces.stride);
                    let (arena, record) = if context.leg.course.shares {
                        (n - context.leg.records.start, 0)
                    } else {
                        (context.thread, n - first)
                    };
                    arenas[arena].start.wrapping_add(record * stride + at)
                }
            },
            _ => self.buffer(place, context.slot).record(n),
        }
    }

    /// Returns the distance between two records of a tile in buffer `place`, in floats.
    fn stride(&self, place: Place, context: &TileContext) -> usize {
        match place {
            Place::Hidden(i) if context.leg.course.homes[i] != Home::Batch => {
                self.workspaces.stride
            }
            _ => self.buffer(place, context.slot).stride,
        }
    }

    /// Computes step `i` for the records of a tile, and for the tile's share of the layer's rows or
    /// of the image.
    ///
    /// SAFETY: as `Work::run`. Then nobody else touches what it writes: tiles of a phase are
    /// different records, different rows or different pixels. What it reads was written by an
    /// earlier phase, or for the same records by this tile. `check` has compared all sizes.
    unsafe fn step(&self, i: usize, context: &TileContext) {
        let step = &self.steps[i];
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match &step.action {
                Action::Affine(dense) => self.affine(step, dense, context),
                Action::Convolution(dense, geometry) => {
                    self.convolution(step, (dense, geometry), context);
                }
                Action::Tiles(dense, geometry, size) => {
                    self.tiles_of_image(step, (dense, geometry, *size), context);
                }
                Action::Activate(activation) => self.activation(i, *activation, context),
                Action::ArgMax(outputs) => {
                    for n in context.records.clone() {
                        let scores = self.record(step.from, context, n);
                        let scores = std::slice::from_raw_parts(scores, *outputs);
                        self.classes[context.slot][n].store(argmax(scores), Relaxed);
                    }
                }
                Action::Windows { .. }
                | Action::Combine { .. }
                | Action::Resample { .. }
                | Action::Product { .. }
                | Action::Scale { .. }
                | Action::Sum { .. }
                | Action::OfChannels { .. }
                | Action::Gather { .. } => {
                    for n in context.records.clone() {
                        self.of_record(step, context, n);
                    }
                }
            }
        }
    }

    /// SAFETY: as declared for `step`.
    unsafe fn affine(&self, step: &HostStep, dense: &Dense, context: &TileContext) {
        // Records that threads share have a workspace each. So they are not equally far
        // from each other.
        let apart = if context.leg.course.shares {
            1
        } else {
            context.records.len().max(1)
        };
        for first in context.records.clone().step_by(apart) {
            let part = Part {
                rows: context.rows.clone().unwrap_or(0..dense.rows),
                records: apart,
                x: self.record(step.from, context, first),
                x_stride: self.stride(step.from, context),
                runs: None,
                result: self.record(step.to, context, first),
                result_stride: self.stride(step.to, context),
                added: None,
            };
            let lost = &self.lost[context.slot][first..first + apart];
            // SAFETY: `check` has compared the sizes.
            unsafe { dense.product(&self.kernels, part, lost) }
        }
    }

    /// SAFETY: as declared for `step`.
    unsafe fn convolution(
        &self,
        step: &HostStep,
        (dense, geometry): (&Dense, &Geometry),
        context: &TileContext,
    ) {
        // The share is cut so that each part has whole micro-tiles of pixels.
        let (tile, (_, to)) = (self.kernels.tile_records, geometry.output);
        let tiles = context.share.of((to.h * to.w).div_ceil(tile));
        let pixels = tiles.start * tile..(to.h * to.w).min(tiles.end * tile);
        let rows = context.rows.clone().unwrap_or(0..dense.rows);
        for n in context.records.clone() {
            let both = (
                self.operands(step, context, n),
                self.other(step, context, n),
            );
            let (rows, pixels) = (rows.clone(), pixels.clone());
            let with = (self.scratch(context), &self.lost[context.slot][n]);
            // SAFETY: passed on.
            unsafe { self.convolve(dense, geometry, rows, pixels, both, with) };
        }
    }

    /// Computes some channels of some pixels of a convolution. A channel is a row of the weights.
    /// `other` is the address of the buffer with the value that the convolution adds. `lost` is the
    /// mark of the record.
    ///
    /// SAFETY: as declared for `step`.
    unsafe fn convolve(
        &self,
        dense: &Dense,
        geometry: &Geometry,
        rows: Range<usize>,
        pixels: Range<usize>,
        (operands, other): (Operands, *const f32),
        (scratch, lost): (Scratch, &AtomicBool),
    ) {
        let (output, _) = geometry.output;
        if let Some(whole) = &dense.whole {
            let product = |windows, result| {
                let (rows, result) = (rows.clone(), (result, output.pixel));
                let lost = std::slice::from_ref(lost);
                // SAFETY: `check` has compared the sizes.
                unsafe { dense.whole_product(&self.kernels, whole, rows, windows, result, lost) }
            };
            let bytes = [whole.reads_bytes, whole.bytes.is_some()];
            // SAFETY: `check` has compared the sizes.
            return unsafe { windows::convolve_whole(geometry, bytes, pixels, operands, &product) };
        }
        let product = |pixels: windows::Pixels, windows: windows::Windows, result| {
            let addend = dense.addend.as_ref();
            let part = Part {
                rows: rows.clone(),
                records: pixels.count,
                x: windows.x,
                x_stride: windows.x_stride,
                runs: windows.runs,
                result,
                result_stride: pixels.apart * output.pixel,
                added: addend.map(|a| a.values_of(other, pixels)),
            };
            // SAFETY: `check` has compared the sizes.
            unsafe { dense.product(&self.kernels, part, &[]) }
        };
        let tile = self.kernels.tile_records;
        // SAFETY: `check` has compared the sizes.
        unsafe { windows::convolve(geometry, tile, pixels, operands, scratch, &product) }
    }

    /// SAFETY: as declared for `step`.
    unsafe fn tiles_of_image(
        &self,
        step: &HostStep,
        (dense, geometry, size): (&Dense, &Geometry, TileSize),
        context: &TileContext,
    ) {
        let (tile, count) = (self.kernels.tile_records, size.count(geometry));
        let tiles = context.share.of(images::tile_units(geometry, size, tile));
        let unit = images::tile_unit(geometry, size, tile);
        let tiles = tiles.start * unit..count.min(tiles.end * unit);
        for n in context.records.clone() {
            let (operands, scratch) = (self.operands(step, context, n), self.scratch(context));
            // SAFETY: passed on.
            unsafe {
                self.convolve_tiles((dense, geometry, size), tiles.clone(), operands, scratch)
            }
        }
    }

    /// Computes some Winograd tiles.
    ///
    /// SAFETY: as declared for `step`.
    unsafe fn convolve_tiles(
        &self,
        (dense, geometry, size): (&Dense, &Geometry, TileSize),
        tiles: Range<usize>,
        operands: Operands,
        scratch: Scratch,
    ) {
        let Some(transforms) = self.kernels.transforms_of(size) else {
            return;
        };
        let mut layer = dense.layer(dense.weights.floats());
        layer.activation = Activation::None;
        let layer = images::TileLayer {
            kernels: &self.kernels,
            transforms,
            layer: &layer,
            activation: dense.activation,
        };
        // SAFETY: `check` has compared the sizes.
        unsafe { images::convolve_tiles(&layer, geometry, tiles, operands, scratch.room) }
    }

    /// Runs the steps of a band for the tile's records, or for its share of the lines of the band's
    /// result.
    ///
    /// SAFETY: as declared for `step`.
    unsafe fn band(&self, band: &Band, context: &TileContext) {
        for n in context.records.clone() {
            let mut took = [Duration::ZERO; MOST_STEPS];
            let start = self.clock.is_some().then(Instant::now);
            // SAFETY: passed on.
            unsafe { self.band_of_record(band, context, n, &mut took) };
            for (&number, took) in self.numbers[band.steps.clone()].iter().zip(took) {
                let what = (context.slot, 1, Name::Step(number));
                self.add_time(start, took, what, |clock, took| clock.record(number, took));
            }
        }
    }

    /// Computes the lines of a band's result for record `n` from top to bottom, a few at a time. If
    /// times are measured, adds the time of each step to `took`.
    ///
    /// SAFETY: as declared for `step`.
    unsafe fn band_of_record(
        &self,
        band: &Band,
        context: &TileContext,
        n: usize,
        took: &mut [Duration; MOST_STEPS],
    ) {
        let (steps, last) = (&self.steps[band.steps.clone()], band.steps.len() - 1);
        let room = self.workspaces.bands[context.thread].start;
        // Threads split the result between whole units. A unit is the number of lines that a step
        // computes at once.
        let (unit, height) = (bands::unit(&steps[last]), bands::height(&steps[last]));
        let units = context.share.of(height.div_ceil(unit));
        let (mut line, end) = (units.start * unit, height.min(units.end * unit));
        let mut held = [HeldLines::default(); MOST_STEPS];
        while line < end {
            let turn = line..end.min(line + band.lines);
            line = turn.end;
            // SAFETY: nobody else has this workspace.
            let lines = unsafe { band.turn(steps, turn, &mut held, room) };
            for (i, step) in steps.iter().enumerate() {
                if lines[i].is_empty() {
                    continue;
                }
                let Operands { mut x, mut result } = self.operands(step, context, n);
                let mut other = self.other(step, context, n);
                if i > 0 {
                    let read = band.windows[i - 1].image_at(room, held[i - 1].first);
                    match step.from == steps[i - 1].to {
                        true => x = read.cast_const(),
                        false => other = read.cast_const(),
                    }
                }
                if i < last {
                    result = band.windows[i].image_at(room, held[i].first);
                    held[i].end = lines[i].end;
                }
                let start = self.clock.is_some().then(Instant::now);
                let operands = Operands { x, result };
                let with = (self.scratch(context), &self.lost[context.slot][n]);
                // SAFETY: passed on. The windows hold the lines that the step reads and writes.
                unsafe { self.lines(step, operands, other, lines[i].clone(), with) };
                took[i] += start.map_or(Duration::ZERO, |start| start.elapsed());
            }
        }
    }

    /// Returns the address of a step's second operand for record `n`. Null if the step has one
    /// operand.
    fn other(&self, step: &HostStep, context: &TileContext, n: usize) -> *const f32 {
        match step.action.other() {
            Some(other) => self.record(other, context, n).cast_const(),
            None => std::ptr::null(),
        }
    }

    /// Computes some lines of the result of a step on images. The range must consist of whole units
    /// ([`bands::unit`]). `lost` is the mark of the record.
    ///
    /// SAFETY: as declared for `step`, for the lines that the step reads and writes.
    unsafe fn lines(
        &self,
        step: &HostStep,
        operands: Operands,
        second: *const f32,
        lines: Range<usize>,
        (scratch, lost): (Scratch, &AtomicBool),
    ) {
        // SAFETY: passed on.
        unsafe {
            match &step.action {
                Action::Convolution(dense, geometry) => {
                    let (_, to) = geometry.output;
                    let pixels = lines.start * to.w..lines.end * to.w;
                    let rows = 0..dense.rows;
                    let both = (operands, second);
                    self.convolve(dense, geometry, rows, pixels, both, (scratch, lost));
                }
                Action::Tiles(dense, geometry, size) => {
                    let (_, to) = geometry.output;
                    let (side, columns) = (size.pixels(), to.w.div_ceil(size.pixels()));
                    let tiles = lines.start / side * columns..lines.end.div_ceil(side) * columns;
                    self.convolve_tiles((dense, geometry, *size), tiles, operands, scratch);
                }
                Action::Windows {
                    bytes: Some(weights),
                    geometry,
                    ..
                } => images::channels(weights, geometry, lines, operands),
                Action::Windows {
                    operation,
                    weights,
                    activation,
                    rescale,
                    geometry,
                    pads,
                    bytes: None,
                } => {
                    let null = (std::ptr::null(), std::ptr::null());
                    let arrays = weights.as_ref();
                    let arrays = arrays.map_or(null, |(w, b)| (w.floats().as_ptr(), b.as_ptr()));
                    let (kernels, op) = (&self.kernels, *operation);
                    let finish = (*activation, rescale.as_ref(), *pads);
                    images::windows(kernels, op, arrays, geometry, finish, lines, operands);
                }
                Action::Combine {
                    arithmetic,
                    finish,
                    geometry,
                    ..
                } => {
                    let (kernels, result) = (&self.kernels, operands.result);
                    // Lines are computed one by one, so that the activation finds each in the
                    // first-level cache.
                    for line in lines.map(|y| y..y + 1) {
                        let lines = line.clone();
                        images::combine(kernels, *arithmetic, geometry, lines, operands, second);
                        for activation in finish.activations() {
                            images::activate(kernels, geometry, activation, line.clone(), result);
                        }
                    }
                }
                Action::Resample { taps, geometry } => {
                    images::resample(taps, geometry, lines, operands);
                }
                _ => {}
            }
        }
    }

    /// SAFETY: as declared for `step`.
    unsafe fn activation(&self, i: usize, activation: Activation, context: &TileContext) {
        let (place, records) = (self.steps[i].to, context.records.clone());
        if self.workspaces.arenas.is_empty() {
            let values = self.record(place, context, records.start);
            let count = records.len() * self.stride(place, context);
            // SAFETY: whole records, whose stride is a multiple of all lanes.
            unsafe { (self.kernels.activate)(activation, values, count) }
            return;
        }
        let rows = self.rows[i].next_multiple_of(LINE);
        for n in records {
            // SAFETY: the place of a record is whole cache lines, which all lanes divide.
            unsafe { (self.kernels.activate)(activation, self.record(place, context, n), rows) }
        }
    }

    /// Computes a step on an image or on rows, for record `n` and for the tile's share of it.
    ///
    /// SAFETY: as `step`.
    unsafe fn of_record(&self, step: &HostStep, context: &TileContext, n: usize) {
        let operands = self.operands(step, context, n);
        // SAFETY: `check` has compared the sizes.
        unsafe {
            match &step.action {
                Action::Windows { geometry, .. }
                | Action::Combine { geometry, .. }
                | Action::Resample { geometry, .. } => {
                    let ((_, to), other) = (geometry.output, self.other(step, context, n));
                    let lines = context.share.of(to.h);
                    let with = (self.scratch(context), &self.lost[context.slot][n]);
                    self.lines(step, operands, other, lines, with);
                }
                Action::Product { product, rows, .. } => {
                    let units = context.share.of(product::units(product));
                    let (both, scratch) = (
                        (operands, self.other(step, context, n)),
                        self.scratch(context),
                    );
                    product::compute(&self.kernels, product, units, both, scratch, *rows);
                }
                Action::Scale {
                    factors,
                    biases,
                    moves,
                    finish,
                } => self.scale((factors, biases.as_deref()), moves, *finish, operands),
                Action::Sum {
                    numbers,
                    first,
                    count,
                    bytes,
                    ..
                } => {
                    let both = (operands, self.other(step, context, n));
                    let rows = context.share.of_rows(*count);
                    self.sum(both, (numbers, bytes.as_ref()), *first, rows);
                }
                Action::OfChannels { geometry, of } => {
                    let (_, to) = geometry.output;
                    images::of_channels(geometry, *of, context.share.of(to.h), operands);
                }
                Action::Gather { moves, value } => {
                    moves::gather(moves, *value, context.share, operands);
                }
                Action::Affine(_)
                | Action::Convolution(..)
                | Action::Tiles(..)
                | Action::Activate(_)
                | Action::ArgMax(_) => {}
            }
        }
    }

    /// Multiplies rows by factors, and adds summands if there are any.
    ///
    /// SAFETY: as `step`.
    unsafe fn scale(
        &self,
        (factors, summands): (&[f32], Option<&[f32]>),
        moves: &Moves<3>,
        finish: Finish,
        operands: Operands,
    ) {
        // If the step has summands, the bounds are applied together with the rounding.
        let bounds = Bounds::of(finish.activation).filter(|_| summands.is_some());
        let with = Numbers {
            factors,
            summands,
            rounds: finish.rounds,
            bounds: bounds.unwrap_or(Bounds::NONE),
        };
        let left = finish.activations();
        let left = left.skip(usize::from(finish.rounds && summands.is_some()));
        // Rows are computed block by block, so that the activations find a block in the first-level
        // cache.
        for Block { turns, rows } in moves.blocks() {
            // SAFETY: `check` has compared the sizes.
            unsafe {
                moves::scale(&self.kernels, moves, &with, turns.as_ref(), operands);
                for activation in left.clone().filter(|_| bounds.is_none()) {
                    let first = operands.result.add(rows.start);
                    (self.kernels.activate)(activation, first, rows.len());
                }
            }
        }
    }

    /// Computes a sum of integers for the rows `rows`, counted from row `first` on.
    ///
    /// SAFETY: as `step`.
    unsafe fn sum(
        &self,
        (Operands { x, result }, y): (Operands, *const f32),
        (numbers, bytes): (&SumNumbers, Option<&SumBytes>),
        first: usize,
        rows: Range<usize>,
    ) {
        let start = first + rows.start;
        if let Some(bytes) = bytes {
            let sum = ByteSum {
                x: x.cast::<u8>().wrapping_add(start),
                y: y.cast::<u8>().wrapping_add(start),
                result: value_at(result, start, bytes.result.is_some()),
                bytes: bytes.result,
                count: rows.len().next_multiple_of(LINE),
                integers: bytes.integers,
                bounds: numbers.bounds,
            };
            // SAFETY: as below.
            return unsafe { (bytes.kernel)(&sum) };
        }
        // SAFETY: `check` has compared the sizes. The place of a record is whole cache lines, which
        // all lanes divide.
        unsafe {
            (self.kernels.sum)(&WholeSum {
                x: x.add(start),
                y: y.add(start),
                result: result.add(start),
                count: rows.len().next_multiple_of(LINE),
                numbers: *numbers,
            });
        }
    }

    /// Returns the addresses of the values of record `n` that a step reads and writes.
    fn operands(&self, step: &HostStep, context: &TileContext, n: usize) -> Operands {
        Operands {
            x: self.record(step.from, context, n).cast_const(),
            result: self.record(step.to, context, n),
        }
    }

    /// Returns the scratch memory of the tile's thread.
    fn scratch(&self, context: &TileContext) -> Scratch {
        let room = &self.workspaces.scratch[context.thread];
        Scratch {
            zeros: self.workspaces.zeros.start.cast_const(),
            room: room.start,
        }
    }
}

/// Returns the index of the largest value, or the lowest such index if several values are equal.
/// Returns [`NAN_CLASS`] if any value is NaN or infinite.
pub(super) fn argmax(values: &[f32]) -> u32 {
    // So many that no sum or maximum waits for the one before.
    const LANES: usize = 32;
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    // The product of 0 and a value is NaN if the value is NaN or infinite.
    let (mut best, mut lost) = ([f32::NEG_INFINITY; LANES], [0.0f32; LANES]);
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..LANES {
            best[i] = larger(best[i], chunk[i]);
            lost[i] += 0.0 * chunk[i];
        }
    }
    let rest_lost: f32 = rest.iter().map(|v| 0.0 * v).sum();
    if lost.iter().sum::<f32>() + rest_lost != 0.0 {
        return NAN_CLASS;
    }
    let best = best
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, larger);
    // Whole chunks are compared, because a compiler has no vectors for a search.
    let has = |chunk: &[f32]| chunk.iter().fold(false, |found, &v| found | (v == best));
    let mut chunks = values.chunks(LANES).enumerate().filter(|(_, c)| has(c));
    let first = chunks.next().and_then(|(n, chunk)| {
        let place = chunk.iter().position(|&v| v == best)?;
        Some(n * LANES + place)
    });
    first.map_or(NAN_CLASS, |i| i as u32)
}
