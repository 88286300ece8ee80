//! The threads of the host engine, as seen by the thread that submits batches.

use super::bands::{self, Band};
use super::buffers::{Activations, LINE, Room, TileInputs, Undecoded, Workspaces};
use super::check::BufferRows;
use super::deferred::{Deferred, Refusal};
use super::images;
use super::micro::{Kernels, winograd};
use super::moves::gcd;
use super::phases::{self, Phase};
use super::product;
use super::run::{Clock, Home, TeamState};
use super::schedule::{MOST_PHASES, MOST_TILES, Schedule, Tile, Work};
use super::steps::{Action, HostStep, Place};
use crate::error::Error;
use crate::ir::plan::{ARENA_ALIGN, NAN_CLASS, SLOTS};
use crate::observe::profile::StepClock;
use crate::observe::trace::Track;
use crate::planner::arena::{Life, offsets};
use crate::sys::thread::Thread;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A batch that takes a thread less than this many microseconds is computed where it is submitted:
/// there is nothing to share.
const INLINE_US: u64 = 3;

/// A batch that takes a thread less than this many microseconds wakes nobody. Where no batch takes
/// more, threads are not even started.
const WAKE_US: u64 = 30;

/// Bytes between steps of a thread's tile: what its own caches hold.
const TILE_BYTES: usize = 1 << 19;

/// The threads, seen from the one that submits batches.
pub(crate) struct Team {
    shared: Arc<TeamState>,
    workers: Vec<Thread>,
    /// The job of each slot that is under way.
    flying: [Option<u32>; SLOTS],
    /// Records from which on a batch is shared.
    share_from: usize,
    /// Records from which on sleeping threads are woken for a batch.
    wake_from: usize,
    batch: usize,
}

/// Sizes of a network and of its batches.
#[derive(Clone, Copy)]
pub(crate) struct TeamSizes<'a> {
    /// Rows of the buffers.
    pub(crate) rows: BufferRows<'a>,
    /// Values of the input without padding.
    pub(crate) width: usize,
    /// Most values of an arena for the hidden buffers of a record.
    pub(crate) arena: usize,
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
        steps: Vec<HostStep>,
        sizes: TeamSizes<'_>,
        threads: usize,
        timed: bool,
    ) -> Result<Team, Error> {
        let (steps, kernels) = with_kernels(steps)?;
        // Records that keep one thread busy for so many microseconds.
        let records = |us: u64| {
            let records = us * u64::from(kernels.gflops) * 1000 / sizes.flop.max(1) + 1;
            usize::try_from(records).unwrap_or(usize::MAX)
        };
        let images = steps.iter().any(|s| s.action.of_image());
        let most = if images { Workspaces::MOST } else { usize::MAX };
        let small = sizes.batch < records(WAKE_US);
        let threads = if small { 1 } else { threads.clamp(1, most) };
        let shared = Arc::new(shared(steps, kernels, sizes, threads, timed)?);
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
            batch: sizes.batch,
        };
        // If one thread cannot start, dropping the team ends the others.
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
        let TeamState {
            inputs,
            scores,
            hidden,
            ..
        } = &*self.shared;
        let all = inputs.iter().chain(scores).chain(hidden);
        deferred + all.map(|a| a.floats.len).sum::<usize>() * size_of::<f32>()
    }

    /// Most records of a batch.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// The input of a slot: floats from a record to the next, and the values. Waits if a job reads
    /// it.
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
        unsafe { &mut *self.shared.deferred[slot].records.get() }
    }

    /// The first record of a collected slot, from record `from` on, whose bytes were refused, and
    /// why.
    ///
    /// # Panics
    /// If the slot was submitted and not collected.
    pub(crate) fn refused(&self, slot: usize, from: usize) -> Option<(usize, Refusal)> {
        assert!(self.flying[slot].is_none(), "slot {slot} was not collected");
        // SAFETY: only `&mut self` writes to it.
        unsafe { &*self.shared.deferred[slot].records.get() }.refused(self.shared.width, from)
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
        // Jobs share the hidden buffers: earlier jobs come first.
        (0..SLOTS).for_each(|s| self.collect(s));
        for phase in 0..self.shared.phases(records) {
            for tile in 0..self.shared.tiles(phase, records) {
                let tile = Tile {
                    slot,
                    records,
                    phase,
                    tile,
                };
                // SAFETY: each tile once, in order, and no other job is under way.
                unsafe { self.shared.run(tile) };
            }
        }
    }

    /// Waits for a slot's job, and works at it.
    pub(crate) fn collect(&mut self, slot: usize) {
        if let Some(job) = self.flying[slot].take() {
            self.shared.schedule.complete(job, &*self.shared);
        }
    }

    /// The scores of a slot: floats from a record to the next, and the values.
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

    /// From now on times are kept on `track` too.
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

/// Chooses micro-kernels that serve all steps, and turns convolutions into those by tiles.
fn with_kernels(mut steps: Vec<HostStep>) -> Result<(Vec<HostStep>, Kernels), Error> {
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
    Ok((steps, kernels))
}

/// Makes the state that `threads` threads share.
fn shared(
    steps: Vec<HostStep>,
    kernels: Kernels,
    sizes: TeamSizes<'_>,
    threads: usize,
    timed: bool,
) -> Result<TeamState, Error> {
    let TeamSizes {
        rows, width, batch, ..
    } = sizes;
    let images = steps.iter().any(|s| s.action.of_image());
    let (bands, arena) = within(bands::bands(&steps), &steps, sizes);
    let phases = phases::of_batch(&steps, &kernels, threads);
    let homes = homes(&steps, &phases, &arena.places);
    let few = if images && threads > 1 {
        phases::of_record(&steps, &bands, &kernels, threads)
    } else {
        Vec::new()
    };
    let later = &steps[phases[0].steps.end..];
    let alone = !images && !later.iter().any(|s| s.from == Place::Input);
    let pooled = if alone { threads } else { 0 };
    let slots = |rows: usize| -> Result<[Activations; SLOTS], Error> {
        let slot = || Activations::new(rows, batch);
        Ok([slot()?, slot()?])
    };
    let clock = || {
        Mutex::new(Clock {
            sums: StepClock::new(steps.len()),
            track: None,
        })
    };
    let hidden = hidden(rows.hidden, &homes, batch)?;
    let shared = TeamState {
        schedule: Schedule::new(),
        tile_inputs: TileInputs::new(pooled, rows.input, kernels.tile_records)?,
        workspaces: Workspaces::new(
            if images { threads } else { 0 },
            room(&steps, &bands, &kernels, arena.values),
        )?,
        bands,
        phases,
        few,
        homes,
        rows: steps.iter().map(|s| rows.of(s.to)).collect(),
        clock: timed.then(clock),
        kernels,
        inputs: slots(rows.input)?,
        deferred: [(); SLOTS].map(|()| Undecoded {
            records: UnsafeCell::new(Deferred::new(batch, width)),
        }),
        width,
        scores: slots(rows.scores)?,
        hidden,
        classes: [(); SLOTS].map(|()| (0..batch).map(|_| AtomicU32::new(NAN_CLASS)).collect()),
        threads,
        steps,
    };
    if shared.phases.len().max(shared.few.len()) > MOST_PHASES || batch > MOST_TILES {
        return Err(Error::device(
            "host engine: too many layers, or records of a batch",
        ));
    }
    shared.check(rows);
    Ok(shared)
}

/// The home of each hidden buffer: a workspace where all of its values are read by the thread that
/// wrote them.
fn homes(steps: &[HostStep], phases: &[Phase], places: &[Option<usize>]) -> Vec<Home> {
    let images = steps.iter().any(|s| s.action.of_image());
    let home = |(i, &place): (usize, &Option<usize>)| match place {
        None => Home::Window,
        Some(place) if images && phases::within_one(steps, phases, i) => Home::Workspace(place),
        Some(_) => Home::Batch,
    };
    places.iter().enumerate().map(home).collect()
}

/// The hidden buffers of the whole batch.
fn hidden(rows: &[usize], homes: &[Home], batch: usize) -> Result<Vec<Activations>, Error> {
    let buffer = |(&rows, home): (&usize, &Home)| {
        let rows = if *home == Home::Batch { rows } else { 0 };
        Activations::new(rows, batch)
    };
    rows.iter().zip(homes).map(buffer).collect()
}

/// An arena for the hidden buffers of a record.
struct Arena {
    /// The first value of each buffer; `None` for values between the steps of a band.
    places: Vec<Option<usize>>,
    values: usize,
}

impl Arena {
    /// Places the hidden buffers. The steps of a band are one: it reads its first operand until it
    /// has written its last result.
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
            // The result of a band's last step is in no window. In the first part of a plan, which
            // the search for a wrong step carries out, nothing may read it.
            let inside = |band: &Band| {
                first >= band.steps.start && last < band.steps.end && first + 1 < band.steps.end
            };
            if bands.iter().any(inside) {
                places[buffer] = None;
                continue;
            }
            lives.push(Life {
                buffer,
                first: band_of(first).map_or(first, |band| band.steps.start),
                last: band_of(last).map_or(last, |band| band.steps.end - 1),
                bytes: (rows * size_of::<f32>()).next_multiple_of(ARENA_ALIGN),
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

/// Leaves out bands until the arena and the windows of the others need no more memory than the plan
/// counts. Returns them with the arena.
fn within(mut bands: Vec<Band>, steps: &[HostStep], sizes: TeamSizes<'_>) -> (Vec<Band>, Arena) {
    let most = sizes.arena + bands::limits().spare;
    loop {
        let arena = Arena::of(steps, &bands, sizes.rows.hidden);
        let windows = bands.iter().map(Band::room).max().unwrap_or(0);
        if bands.is_empty() || arena.values + windows <= most {
            #[cfg(test)]
            bands::MADE.set(bands::MADE.get() + bands.len());
            return (bands, arena);
        }
        // The band without which the arena is smallest.
        let without = |i: usize| {
            let others = bands.iter().enumerate().filter(|(n, _)| *n != i);
            let others: Vec<Band> = others.map(|(_, band)| band.clone()).collect();
            Arena::of(steps, &others, sizes.rows.hidden).values
        };
        let worst = (0..bands.len()).min_by_key(|&i| without(i));
        worst.into_iter().for_each(|i| drop(bands.remove(i)));
    }
}

/// Room that a thread needs for a tile, `arena` being the values of a record between steps; none
/// where there are no images.
fn room(steps: &[HostStep], bands: &[Band], kernels: &Kernels, arena: usize) -> Room {
    let windows = steps.iter().map(|s| match &s.action {
        Action::Convolution(_, geometry) => [
            images::scratch(geometry, kernels.tile_records),
            images::runs(geometry).length,
        ],
        Action::Tiles(dense, geometry) => {
            let (rows, (_, from)) = (dense.biases.len() / winograd::ELEMENTS, geometry.input);
            [
                images::tiles_scratch(geometry, rows, kernels.tile_records),
                from.c,
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
    let stride = if images {
        (arena + LINE).next_multiple_of(LINE)
    } else {
        0
    };
    let records = (TILE_BYTES / (4 * stride.max(1))).clamp(1, kernels.tile_records);
    Room {
        stride,
        records,
        scratch,
        bands: bands.iter().map(Band::room).max().unwrap_or(0),
        zeros,
    }
}
