//! The threads of the host engine, as seen by the thread that submits batches.

use super::bands::{self, Band};
use super::buffers::{Activations, LINE, Room, Undecoded, Workspaces};
use super::check::BufferRows;
use super::deferred::{Deferred, Refusal};
use super::images;
use super::joins;
use super::micro::Kernels;
use super::moves::gcd;
use super::padding;
use super::phases::{self, Phase, SharedRecord};
use super::product;
use super::run::{Clock, Course, Home, TeamState};
use super::schedule::{MOST_PHASES, MOST_TILES, Schedule, Tile, Work};
use super::steps::{Action, HostStep, Place};
use super::sums;
use super::whole;
use super::windows;
#[cfg(feature = "lab")]
use super::work::TeamWork;
use crate::error::Error;
use crate::ir::plan::{ARENA_ALIGN, NAN_CLASS, SLOTS};
use crate::observe::profile::StepClock;
use crate::observe::trace::Track;
use crate::planner::arena::{Life, offsets};
use crate::sys::thread::Thread;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A batch that takes one thread less than this many microseconds is not shared. The submitting
/// thread computes it alone.
const INLINE_US: u64 = 3;

/// A batch that takes one thread less than this many microseconds wakes no sleeping thread. If even
/// the largest batch takes less, the team has no workers.
const WAKE_US: u64 = 30;

/// The most bytes that a tile's values between steps take, unless a single record takes more, or
/// a micro-tile in a network without images. The caches of one core hold them.
const TILE_BYTES: usize = 1 << 19;

/// The most micro-tiles of records in a tile of a network without images. Each tile reads all
/// weights, which may come from a cache that cores share. A thread that finishes early takes a tile
/// of another, so tiles may not be too large.
const MICRO_TILES: usize = 4;

/// The threads of the host engine. The owner is one of them. It submits batches, and computes tiles
/// while it waits for them.
pub(crate) struct Team {
    shared: Arc<TeamState>,
    workers: Vec<Thread>,
    /// The job of each slot that was left to `schedule` and not collected yet. `None` also after a
    /// batch that `submit` has computed.
    flying: [Option<u32>; SLOTS],
    /// The number of records of each slot's batch whose marks of lost values [`Team::collect`] has
    /// not looked at yet.
    unchecked: [usize; SLOTS],
    /// Batches with at least this many records are shared with the workers.
    share_from: usize,
    /// Batches with at least this many records wake sleeping workers.
    wake_from: usize,
    batch: usize,
}

/// Sizes of a network and of its batches.
#[derive(Clone, Copy)]
pub(crate) struct TeamSizes<'a> {
    /// The rows of each buffer.
    pub(crate) rows: BufferRows<'a>,
    /// The numbers of a record: the rows of the input without padding.
    pub(crate) width: usize,
    /// The rows of the scores without padding.
    pub(crate) outputs: &'a [u32],
    /// The size in values that the plan counts for the arena, which holds the hidden buffers of a
    /// record.
    pub(crate) arena: usize,
    /// The largest number of records in a batch.
    pub(crate) batch: usize,
    /// The floating-point operations that a record takes.
    pub(crate) flop: u64,
}

impl Team {
    /// Makes a team of `threads` threads, the caller's included. The caller stays alone if a thread
    /// computes the largest batch in less than [`WAKE_US`] microseconds. `timed` says that the time
    /// of each step is measured.
    ///
    /// # Panics
    /// If sizes of steps and buffers do not fit together.
    pub(crate) fn new(
        steps: Vec<HostStep>,
        sizes: TeamSizes<'_>,
        threads: usize,
        timed: bool,
    ) -> Result<Team, Error> {
        let of_plan = steps.len();
        let (mut steps, kernels) = with_kernels(steps, sizes.rows)?;
        let fits =
            |steps: &[HostStep]| Arena::of(steps, &[], sizes.rows.hidden).values <= sizes.arena;
        // A convolution with a sum may then write to its place in a concatenation. A sum cannot.
        let numbers = sums::join(&mut steps, &kernels, fits);
        joins::write_in_place(&mut steps, sizes.rows, fits);
        padding::leave_out(&mut steps, &kernels);
        // Bands are made of neighbours, so steps that do nothing are left out.
        let (numbers, steps): (Vec<usize>, Vec<HostStep>) = (numbers.into_iter().zip(steps))
            .filter(|(_, step)| !step.action.is_nothing())
            .unzip();
        let clock = timed.then(|| StepClock::new(of_plan));
        // Returns the number of records that keep one thread busy for `us` microseconds.
        let records = |us: u64| {
            let records = us * u64::from(kernels.gflops) * 1000 / sizes.flop.max(1) + 1;
            usize::try_from(records).unwrap_or(usize::MAX)
        };
        let small = sizes.batch < records(WAKE_US);
        let threads = if small { 1 } else { threads.max(1) };
        let shared = Arc::new(state((steps, numbers), kernels, sizes, threads, clock)?);
        let workers = (1..threads).map(|i| {
            Thread::start(Arc::clone(&shared))
                .map_err(|e| Error::caused(&format!("host engine: cannot start thread {i}"), e))
        });
        let mut team = Team {
            shared: Arc::clone(&shared),
            workers: Vec::with_capacity(threads - 1),
            flying: [None; SLOTS],
            unchecked: [0; SLOTS],
            share_from: if threads > 1 {
                records(INLINE_US)
            } else {
                usize::MAX
            },
            wake_from: records(WAKE_US),
            batch: sizes.batch,
        };
        // If one thread cannot start, dropping the team ends the others.
        for worker in workers {
            team.workers.push(worker?);
        }
        Ok(team)
    }

    /// The name of the instruction set in use. If layers have kernels for whole numbers, their
    /// number and the instruction set of these kernels.
    pub(crate) fn instruction_set(&self) -> String {
        let layers = self.shared.steps.iter().filter_map(|s| s.action.dense());
        let whole: Vec<&str> = layers
            .filter_map(|dense| Some(dense.whole.as_ref()?.kernels.name))
            .collect();
        match whole[..] {
            [] => self.shared.kernels.name.into(),
            [first, ..] => format!(
                "{}, {} layers in integers ({first})",
                self.shared.kernels.name,
                whole.len()
            ),
        }
    }

    /// The number of threads, the caller's included.
    pub(crate) fn threads(&self) -> usize {
        self.shared.threads
    }

    /// The bytes of the inputs, undecoded records and scores of all slots, and of the hidden
    /// buffers. Workspaces and tile inputs are not counted.
    #[cfg(test)]
    pub(crate) fn bytes(&mut self) -> usize {
        let deferred: usize = (0..SLOTS).map(|slot| self.deferred(slot).room()).sum();
        let TeamState {
            inputs,
            scores,
            hidden,
            ..
        } = &*self.shared;
        let all = inputs.iter().chain(scores).chain(hidden);
        deferred + all.map(|a| a.floats.len).sum::<usize>() * size_of::<f32>()
    }

    /// The number of steps that copy rows.
    #[cfg(test)]
    pub(crate) fn copies(&self) -> usize {
        let steps = self.shared.steps.iter();
        steps
            .filter(|s| matches!(s.action, Action::Gather { .. }))
            .count()
    }

    /// The largest number of records in a batch.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// Returns the distance of two records of a slot's input in floats, and the values. First
    /// completes the slot's job, which reads them.
    pub(crate) fn input(&mut self, slot: usize) -> (usize, &mut [f32]) {
        self.collect(slot);
        let buffer = &self.shared.inputs[slot];
        // SAFETY: the slot's job is complete, and another one needs `&mut self`.
        (buffer.stride, unsafe { buffer.floats.slice_mut() })
    }

    /// Returns the records of a slot that come as bytes. First completes the slot's job, which
    /// reads them.
    pub(crate) fn deferred(&mut self, slot: usize) -> &mut Deferred {
        self.collect(slot);
        // SAFETY: the slot's job is complete, and another one needs `&mut self`.
        unsafe { &mut *self.shared.deferred[slot].records.get() }
    }

    /// Returns the first record of a collected slot, from record `from` on, whose bytes were not
    /// valid, and the reason. `None` if there is none.
    ///
    /// # Panics
    /// If the slot was submitted and not collected.
    pub(crate) fn refused(&self, slot: usize, from: usize) -> Option<(usize, Refusal)> {
        assert!(self.flying[slot].is_none(), "slot {slot} was not collected");
        // SAFETY: the slot was collected, so no job marks records, and only `&mut self` writes to
        // the rest.
        unsafe { &*self.shared.deferred[slot].records.get() }.refused(self.shared.width, from)
    }

    /// Submits the first `records` records of a slot, 1 to [`Team::batch()`]. A batch of fewer than
    /// `share_from` records is computed before this returns. A larger one is left to the workers
    /// and to `collect`.
    pub(crate) fn submit(&mut self, slot: usize, records: usize) {
        assert!((1..=self.batch).contains(&records), "{records} records");
        self.deferred(slot).submit();
        if records >= self.share_from {
            self.unchecked[slot] = records;
            let wake = records >= self.wake_from;
            self.flying[slot] = Some(self.shared.schedule.submit(slot, records, wake));
            return;
        }
        // Jobs share the hidden buffers, so all earlier jobs are completed first.
        (0..SLOTS).for_each(|s| self.collect(s));
        self.unchecked[slot] = records;
        for phase in 0..self.shared.phases(records) {
            for tile in 0..self.shared.tiles(phase, records) {
                let tile = Tile {
                    slot,
                    records,
                    phase,
                    tile,
                };
                // SAFETY: each tile runs once, in order, and no other job is under way.
                unsafe { self.shared.run(tile, 0) };
            }
        }
    }

    /// Completes a slot's job, if there is one. The caller computes tiles until then.
    pub(crate) fn collect(&mut self, slot: usize) {
        if let Some(job) = self.flying[slot].take() {
            self.shared.schedule.complete(job, &*self.shared);
        }
        let records = std::mem::take(&mut self.unchecked[slot]);
        self.refuse_lost(slot, records);
    }

    /// Makes the results of records NaN that lost a value which was NaN or infinite, because bytes
    /// cannot hold it.
    fn refuse_lost(&mut self, slot: usize, records: usize) {
        let TeamState {
            lost,
            classes,
            scores,
            outputs,
            ..
        } = &*self.shared;
        for (n, lost) in lost[slot][..records].iter().enumerate() {
            if !lost.load(Relaxed) {
                continue;
            }
            lost.store(false, Relaxed);
            classes[slot][n].store(NAN_CLASS, Relaxed);
            // SAFETY: the slot's job is complete, and another one needs `&mut self`.
            let record = unsafe { &mut scores[slot].floats.slice_mut()[n * scores[slot].stride..] };
            outputs
                .iter()
                .for_each(|&row| record[row as usize] = f32::NAN);
        }
    }

    /// Returns the distance of two records of a slot's scores in floats, and the scores.
    ///
    /// # Panics
    /// If the slot was submitted and not collected.
    pub(crate) fn scores(&self, slot: usize) -> (usize, &[f32]) {
        assert!(self.unchecked[slot] == 0, "slot {slot} was not collected");
        let buffer = &self.shared.scores[slot];
        // SAFETY: no job writes to the scores, and another job needs `&mut self`.
        (buffer.stride, unsafe { buffer.floats.slice() })
    }

    /// Returns the class of a record of a collected slot, if the network ends with an arg-max. It
    /// is [`NAN_CLASS`] if a score is NaN or infinite.
    pub(crate) fn class(&self, slot: usize, record: usize) -> u32 {
        assert!(self.unchecked[slot] == 0, "slot {slot} was not collected");
        self.shared.classes[slot][record].load(Relaxed)
    }

    /// Forgets the times of the steps so far.
    pub(crate) fn forget_times(&self) {
        self.shared
            .clock()
            .into_iter()
            .for_each(|mut clock| clock.sums.clear());
    }

    /// From now on each measured time is also recorded on `track`.
    pub(crate) fn trace(&self, track: Track) {
        self.shared
            .clock()
            .into_iter()
            .for_each(|mut clock| clock.track = Some(track));
    }

    /// The measured times of the steps. `None` if the team does not measure them.
    pub(crate) fn times(&self) -> Option<StepClock> {
        self.shared.clock().map(|clock| clock.sums.clone())
    }
}

#[cfg(feature = "lab")]
impl Team {
    /// Describes the steps.
    pub(crate) fn work(&self) -> TeamWork {
        let TeamState {
            steps,
            numbers,
            rows,
            threads,
            ..
        } = &*self.shared;
        let steps = steps.iter().zip(numbers).zip(rows);
        TeamWork {
            threads: *threads,
            steps: steps
                .map(|((step, &number), &rows)| step.work(number, rows))
                .collect(),
        }
    }

    /// Returns the time that each step of the plan took since the start, in all threads together.
    /// Empty if the team does not measure times.
    pub(crate) fn step_totals(&self) -> Vec<f64> {
        let clock = self.shared.clock();
        let steps = clock.iter().flat_map(|clock| &clock.sums.steps);
        steps.map(|step| step.run.total_us()).collect()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.schedule.quit();
        self.workers.drain(..).for_each(Thread::join);
    }
}

/// Chooses the fastest micro-kernels whose vectors divide all panels. Turns convolutions into
/// convolutions by tiles where these are faster, and prepares layers of whole numbers.
fn with_kernels(
    mut steps: Vec<HostStep>,
    rows: BufferRows<'_>,
) -> Result<(Vec<HostStep>, Kernels), Error> {
    let panels = steps
        .iter()
        .filter_map(|s| s.action.dense().map(|dense| dense.panel));
    let kernels = Kernels::detect(panels.fold(0, gcd));
    for step in &mut steps {
        step.action.by_tiles(&kernels)?;
        if step
            .action
            .dense()
            .is_some_and(|dense| !dense.weights.served(&kernels))
        {
            return Err(Error::device("host engine: no kernels for such weights"));
        }
    }
    // After the tiles, whose weights are fractions: a scaling that joins a convolution would not
    // reach its tiles.
    whole::prepare(&mut steps, rows, &kernels);
    Ok((steps, kernels))
}

/// Makes the state that `threads` threads share. `numbers` has the number of each step in the plan.
fn state(
    (steps, numbers): (Vec<HostStep>, Vec<usize>),
    kernels: Kernels,
    sizes: TeamSizes<'_>,
    threads: usize,
    clock: Option<StepClock>,
) -> Result<TeamState, Error> {
    let TeamSizes {
        rows, width, batch, ..
    } = sizes;
    let images = steps.iter().any(|s| s.action.of_image());
    let (alone, mut arena) = course_alone(&steps, sizes, &kernels, threads);
    let together = (images && threads > 1).then(|| {
        let (course, values) = course_together(&steps, sizes, &kernels, threads);
        arena = arena.max(values);
        course
    });
    let courses = [Some(&alone), together.as_ref()].into_iter().flatten();
    let rooms = courses.flat_map(|course| &course.bands).map(Band::room);
    let windows = rooms.max().unwrap_or(0);
    let later = &steps[alone.phases[0].steps.end..];
    let pooled = !images && !later.iter().any(|s| s.from == Place::Input);
    let pooled = if pooled { threads } else { 0 };
    let slots = |rows: usize| -> Result<[Activations; SLOTS], Error> {
        let slot = || Activations::new(rows, batch);
        Ok([slot()?, slot()?])
    };
    let clock = clock.map(|sums| Mutex::new(Clock { sums, track: None }));
    let hidden = hidden(rows.hidden, &alone.homes, batch)?;
    let room = room(&steps, rows, &kernels, (arena, windows));
    let state = TeamState {
        schedule: Schedule::new(threads),
        tile_inputs: (0..pooled)
            .map(|_| Activations::new(rows.input, room.records.min(batch)))
            .collect::<Result<_, Error>>()?,
        workspaces: Workspaces::new(if images { threads } else { 0 }, room)?,
        alone,
        together,
        rows: steps.iter().map(|s| rows.of(s.to)).collect(),
        clock,
        numbers,
        kernels,
        inputs: slots(rows.input)?,
        deferred: [(); SLOTS].map(|()| Undecoded {
            records: UnsafeCell::new(Deferred::new(batch, width)),
        }),
        width,
        outputs: sizes.outputs.into(),
        scores: slots(rows.scores)?,
        hidden,
        lost: [(); SLOTS].map(|()| (0..batch).map(|_| AtomicBool::new(false)).collect()),
        classes: [(); SLOTS].map(|()| (0..batch).map(|_| AtomicU32::new(NAN_CLASS)).collect()),
        threads,
        steps,
    };
    let phases = |course: &Course| course.phases.len();
    let all = phases(&state.alone) + state.together.as_ref().map_or(0, phases);
    if all > MOST_PHASES || batch > MOST_TILES {
        return Err(Error::device(
            "host engine: too many layers, or records of a batch",
        ));
    }
    state.check(rows);
    Ok(state)
}

/// Returns the course of records that are computed by one thread each, and the values of a
/// record's arena.
fn course_alone(
    steps: &[HostStep],
    sizes: TeamSizes<'_>,
    kernels: &Kernels,
    threads: usize,
) -> (Course, usize) {
    let (bands, arena) = within(bands::of_batch(steps), steps, sizes, bands::limits().spare);
    let phases = phases::of_batch(steps, kernels, threads);
    let course = Course {
        homes: homes(steps, &phases, &arena.places),
        bands,
        phases,
        shares: false,
    };
    (course, arena.values)
}

/// Returns the course of records that threads share, and the values of a record's
/// arena. The arena holds all hidden buffers, so that those of a record are in one workspace.
fn course_together(
    steps: &[HostStep],
    sizes: TeamSizes<'_>,
    kernels: &Kernels,
    threads: usize,
) -> (Course, usize) {
    let job = SharedRecord { kernels, threads };
    let bands = bands::of_record(steps, |some| job.cost(some));
    let (bands, arena) = within(bands, steps, sizes, bands::limits().spare_shared);
    let homes = arena.places.iter();
    let course = Course {
        phases: job.phases(steps, &bands),
        homes: homes
            .map(|place| place.map_or(Home::Window, Home::Workspace))
            .collect(),
        bands,
        shares: true,
    };
    (course, arena.values)
}

/// Returns the home of each hidden buffer. In a network with images it is a workspace if all steps
/// that touch the buffer are in one phase, split by records. Then the thread that writes a record's
/// values also reads them.
fn homes(steps: &[HostStep], phases: &[Phase], places: &[Option<usize>]) -> Vec<Home> {
    let images = steps.iter().any(|s| s.action.of_image());
    let home = |(i, &place): (usize, &Option<usize>)| match place {
        None => Home::Window,
        Some(place) if images && phases::within_one(steps, phases, i) => Home::Workspace(place),
        Some(_) => Home::Batch,
    };
    places.iter().enumerate().map(home).collect()
}

/// Makes the hidden buffers, one for each entry of `rows`. A buffer has room for the whole batch if
/// its home is [`Home::Batch`]. Otherwise it has no rows, because its values are in a workspace or
/// a window.
fn hidden(rows: &[usize], homes: &[Home], batch: usize) -> Result<Vec<Activations>, Error> {
    let buffer = |(&rows, home): (&usize, &Home)| {
        let rows = if *home == Home::Batch { rows } else { 0 };
        Activations::new(rows, batch)
    };
    rows.iter().zip(homes).map(buffer).collect()
}

/// The arena of one record: the places of its hidden buffers. Buffers that are not in use at the
/// same time share memory.
struct Arena {
    /// The index of each buffer's first value. `None` if no step touches the buffer, or if only the
    /// windows of a band hold its values.
    places: Vec<Option<usize>>,
    values: usize,
}

impl Arena {
    /// Places the hidden buffers, whose rows are `hidden`. A band counts as one step, because it
    /// reads its first operand until it has written its last result.
    fn of(steps: &[HostStep], bands: &[Band], hidden: &[usize]) -> Arena {
        let band_of = |i: usize| bands.iter().find(|band| band.steps.contains(&i));
        let (mut lives, mut places) = (Vec::new(), vec![Some(0); hidden.len()]);
        for (buffer, &rows) in hidden.iter().enumerate() {
            let uses = |i: &usize| steps[*i].touches(Place::Hidden(buffer));
            let mut all = (0..steps.len()).filter(uses);
            // A buffer that no step touches needs no place.
            let Some(first) = all.next() else {
                places[buffer] = None;
                continue;
            };
            let last = all.next_back().unwrap_or(first);
            // True if only a window of the band holds the buffer's values. The last condition
            // excludes the result of the band's last step, which is in no window. No step reads
            // this result if the search for a wrong step has cut the plan short.
            let inside = |band: &Band| {
                first >= band.steps.start && last < band.steps.end && first + 1 < band.steps.end
            };
            if bands.iter().any(inside) {
                places[buffer] = None;
                continue;
            }
            let size = super::bytes::value_size(steps, Place::Hidden(buffer));
            lives.push(Life {
                buffer,
                first: band_of(first).map_or(first, |band| band.steps.start),
                last: band_of(last).map_or(last, |band| band.steps.end - 1),
                bytes: (rows * size).next_multiple_of(ARENA_ALIGN),
            });
        }
        let (bytes, starts) = offsets(lives);
        starts
            .into_iter()
            .for_each(|(buffer, start)| places[buffer] = Some(start / size_of::<f32>()));
        Arena {
            places,
            values: bytes / size_of::<f32>(),
        }
    }
}

/// Drops bands until the arena and the largest band's windows need no more memory than the plan
/// counts and `spare` values. Returns the bands that remain, and the arena.
fn within(
    mut bands: Vec<Band>,
    steps: &[HostStep],
    sizes: TeamSizes<'_>,
    spare: usize,
) -> (Vec<Band>, Arena) {
    let most = sizes.arena + spare;
    loop {
        let arena = Arena::of(steps, &bands, sizes.rows.hidden);
        let windows = bands.iter().map(Band::room).max().unwrap_or(0);
        if bands.is_empty() || arena.values + windows <= most {
            #[cfg(test)]
            bands::MADE.set(bands::MADE.get() + bands.len());
            return (bands, arena);
        }
        // The values of the arena without band `i`. The band with the smallest number is dropped.
        let without = |i: usize| {
            let others = bands.iter().enumerate().filter(|(n, _)| *n != i);
            let others: Vec<Band> = others.map(|(_, band)| band.clone()).collect();
            Arena::of(steps, &others, sizes.rows.hidden).values
        };
        let worst = (0..bands.len()).min_by_key(|&i| without(i));
        worst.into_iter().for_each(|i| drop(bands.remove(i)));
    }
}

/// Returns the sizes of a thread's workspace. `arena` is the number of values in the arena of a
/// record, `bands` the room of the windows of a band. A network without images only needs the
/// number of records in a tile.
fn room(
    steps: &[HostStep],
    rows: BufferRows<'_>,
    kernels: &Kernels,
    (arena, bands): (usize, usize),
) -> Room {
    let windows = steps.iter().map(|s| match &s.action {
        Action::Convolution(_, geometry) => [
            windows::scratch(geometry, kernels.tile_records),
            windows::runs(geometry).length,
        ],
        Action::Tiles(dense, geometry, size) => {
            let rows = Action::rows_of_tile(dense, *size);
            [
                images::tiles_scratch(geometry, *size, rows, kernels.tile_records),
                0,
            ]
        }
        Action::Product { product, .. } => [
            product::scratch(product, kernels.lanes),
            product::padded_columns(product, kernels.lanes),
        ],
        _ => [0, 0],
    });
    let [scratch, zeros] = windows.fold([0, 0], |[a, b], [c, d]| [a.max(c), b.max(d)]);
    let images = steps.iter().any(|s| s.action.of_image());
    let micro_tile = kernels.tile_records;
    let fit = |values: usize| TILE_BYTES / (4 * values.max(1));
    let (stride, records) = if images {
        let stride = (arena + LINE).next_multiple_of(LINE);
        (stride, fit(stride).clamp(1, micro_tile))
    } else {
        // A step's operand and result are needed at the same time.
        let values = steps.iter().map(|s| rows.of(s.from) + rows.of(s.to));
        let records = fit(values.max().unwrap_or(0));
        (0, records.clamp(micro_tile, MICRO_TILES * micro_tile))
    };
    Room {
        stride,
        records,
        scratch,
        bands,
        zeros,
    }
}
