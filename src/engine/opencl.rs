//! The OpenCL engine. It creates everything at start, and each batch is the same sequence of
//! commands.
//!
//! Two slots alternate on one in-order queue:
//!
//! ```text
//! submit:   unmap results · unmap input · launch… · map results · map input · flush   (no waiting)
//! collect:  wait for the maps, check how each launch ended; answers are read in place
//! ```
//!
//! Some drivers do not report a failed kernel through later commands. Therefore each launch has an
//! event whose status is checked. An event costs 1 to 2 µs, a launch 5 µs. Device classes whose
//! drivers refuse all calls after a failure have no events (`stopsAfterFailure` in the library).
//! Results are set to [`UNWRITTEN`] before a batch, so that a result that no kernel wrote is an
//! error. The host writes that value through the map. Into the device's own memory it is copied
//! after the previous batch.
//!
//! The host writes input in the plan's layout straight into mapped memory. With unified memory
//! nothing is copied. Each slot has kernel objects of its own, whose arguments are set once. Hidden
//! buffers are shared, because the queue runs one batch after the other.
//!
//! A device with memory of its own gets staged buffers ([`MappedBuffer::staged`]). A batch is then
//! a copy to the device, the launches, and a copy back. The host computes the arg-max of few
//! scores. Reading them takes as long as reading classes, and a launch costs more than the host's
//! work.

use super::programs::{self, Programs};
use super::{Answer, Engine, Record, RecordMut, RecordRows, SLOTS};
use crate::baked::library;
use crate::cl::{
    Access, Argument, BoundKernel, BufferHome, ClBuffer, ClError, ClKernel, Context, Device,
    DeviceKind, Event, Image2d, MapMode, MappedBuffer, Queue, Times,
};
use crate::engine::model::{self, Model};
use crate::engine::sources::Sources;
use crate::error::{Error, ErrorKind};
use crate::ir::layout::Offsets;
use crate::ir::network::Network;
use crate::ir::plan::{ARENA_ALIGN, Arg, BufferRole, Extent, Plan, Step, places};
use crate::observe::clocks::{Clocks, HostTimes};
use crate::observe::profile::{Phases, StepClock};
use crate::observe::trace::{CLOCK, Name, Track};
use crate::planner::bind::touched;
use crate::planner::whole::Layers;
use crate::registry::{DeviceClass, DeviceLimits, Operation, Traits};
use std::time::Duration;

/// The kinds of results that the host reads back from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// True for the network's output values.
    pub(crate) scores: bool,
    /// True for the index of the largest score.
    pub(crate) classes: bool,
}

struct Slot {
    input: MappedBuffer,
    scores: Option<MappedBuffer>,
    classes: Option<MappedBuffer>,
    kernels: Vec<BoundKernel>,
    /// One event for the launch of each step, to check how the launch ended. The events are unused
    /// if launches are not checked.
    events: Vec<Event>,
    /// The event of the command that unmaps the input and so gives it to the device. Staged input
    /// is copied instead, so it has no such event.
    handed: Event,
    /// The number of records of the last launched batch.
    records: usize,
}

/// The largest number of scores whose arg-max the host computes instead of a kernel. The host does
/// so only for a device with memory of its own.
const FEW_SCORES: usize = 64;

/// A step's launch, with the size of its work-group in the order of the OpenCL dimensions.
struct StepLaunch {
    step: Step,
    local: Option<[usize; 2]>,
}

pub(crate) struct OpenClEngine {
    queue: Queue,
    plan: Plan,
    slots: Vec<Slot>,
    launches: Vec<StepLaunch>,
    input: InputPlaces,
    scores: ScorePlaces,
    /// A buffer of [`UNWRITTEN`] values, as large as the largest result. `None` unless the device
    /// has memory of its own.
    unwritten: Option<ClBuffer>,
    /// True if the host computes the arg-max of the scores, instead of a kernel.
    host_classes: bool,
    /// True if each launch has an event, because launches are checked or timed.
    asks: bool,
    /// Keeps the constants alive for the kernels.
    _constants: Vec<Resident>,
    instead: Option<String>,
    clock: Option<StepClock>,
    /// Adds each command of the queue to the trace. `None` if the run has no trace.
    timeline: Option<Timeline>,
}

/// Offsets in the input buffer of a slot, counted in floats.
struct InputPlaces {
    records: Vec<u32>,
    /// The offset of each feature from that of its record.
    features: RecordRows,
    /// The offsets of the padding rows, which hold no feature, from the offset of their record.
    padding: Vec<u32>,
}

impl InputPlaces {
    fn new(plan: &Plan, network: &Network) -> InputPlaces {
        let (offsets, elements) = offsets(plan, BufferRole::Input);
        let features = (0..network.width)
            .map(|i| elements[network.order.element(network.input(), i)])
            .collect();
        let end = offsets.rows.iter().max().map_or(0, |&row| row as usize + 1);
        let mut taken = vec![false; end];
        elements.iter().for_each(|&row| taken[row as usize] = true);
        let unused = |row: &u32| !taken[*row as usize];
        InputPlaces {
            padding: offsets.rows.iter().copied().filter(unused).collect(),
            records: offsets.cols,
            features: RecordRows::new(features),
        }
    }
}

/// Offsets in the score buffer of a slot, counted in floats.
struct ScorePlaces {
    records: Vec<u32>,
    /// The offset of each score from that of its record.
    rows: Vec<u32>,
}

impl ScorePlaces {
    fn new(plan: &Plan) -> ScorePlaces {
        let (offsets, rows) = offsets(plan, BufferRole::Scores);
        let records = offsets.cols;
        ScorePlaces { records, rows }
    }
}

/// Returns the offsets of the rows and columns of the buffer with this role, counted in floats.
/// Also returns the offset of each element from that of its record. All lists are empty if the plan
/// has no such buffer.
fn offsets(plan: &Plan, role: BufferRole) -> (Offsets, Vec<u32>) {
    let Some(i) = plan.buffer(role) else {
        let (rows, cols) = (Vec::new(), Vec::new());
        return (Offsets { rows, cols }, Vec::new());
    };
    let b = &plan.buffers[i];
    let offsets = b.layout.offsets(b.padded_rows, plan.padded_batch);
    let elements = b.map.rows().map(|row| offsets.rows[row]).collect();
    (offsets, elements)
}

/// Adds the queue's commands to the trace, with their times converted to the host's clock.
struct Timeline {
    track: Track,
    clocks: Clocks,
    /// The last submitted batch of each slot: its number of records, and the host's times before
    /// and after the calls that enqueued the batch.
    flying: [(usize, u64, u64); SLOTS],
}

/// The number of measurements that compare the device's clock with the host's.
const EXCHANGES: usize = 16;

impl OpenClEngine {
    /// Creates the engine on `device`. `timed` measures each launch. `phases` receives the times of
    /// start-up. If a limit of the device forbids a single launch for all layers, or the variant
    /// for few records, the engine does without. [`OpenClEngine::instead`] then names the limit. A
    /// kernel that does not compile or a failing driver is an error.
    pub(crate) fn new(
        device: &Device,
        model: &Model,
        wanted: Wanted,
        timed: bool,
        sources: &Sources,
        phases: &mut Phases,
    ) -> Result<OpenClEngine, Error> {
        let found = OpenClEngine::with(device, model, wanted, timed, sources, phases);
        let limit = |e: &Error| matches!(e.kind(), ErrorKind::Limit(_));
        let Err(why) = found else { return found };
        if !limit(&why) {
            return Err(why);
        }
        for (what, other) in model.simpler() {
            match OpenClEngine::with(device, &other, wanted, timed, sources, phases) {
                Err(e) if limit(&e) => {}
                made => {
                    let mut engine = made?;
                    engine.instead = Some(format!("{what}: {why}"));
                    return Ok(engine);
                }
            }
        }
        Err(why)
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns a text with the part of the model's plan that the engine leaves out, and the
    /// device's limit that forbids this part. `None` if the engine runs the whole plan.
    pub(crate) fn instead(&self) -> Option<&str> {
        self.instead.as_deref()
    }

    /// Creates the engine, with kernels for bytes if they are of use and work. Few devices were
    /// tried, so a compiler may refuse these kernels, or a limit forbid them.
    fn with(
        device: &Device,
        model: &Model,
        wanted: Wanted,
        timed: bool,
        sources: &Sources,
        phases: &mut Phases,
    ) -> Result<OpenClEngine, Error> {
        let Some(whole) = with_bytes(device, model)? else {
            return OpenClEngine::of(device, model, wanted, timed, sources, phases);
        };
        match OpenClEngine::of(device, &whole, wanted, timed, sources, phases) {
            Err(why) => {
                let made = OpenClEngine::of(device, model, wanted, timed, sources, phases);
                let mut engine = made?;
                engine.instead = Some(format!("products of floats instead of bytes: {why}"));
                Ok(engine)
            }
            made => made,
        }
    }

    /// Creates the engine with the kernels of `model`.
    fn of(
        device: &Device,
        model: &Model,
        wanted: Wanted,
        timed: bool,
        sources: &Sources,
        phases: &mut Phases,
    ) -> Result<OpenClEngine, Error> {
        let mut plan = model.plan.clone();
        admits(device, &plan)?;
        let last = plan.full().last().map(|s| s.operation);
        let few = !device.unified_memory && model.network.outputs() <= FEW_SCORES;
        let host_classes = few && wanted.classes && last == Some(Operation::ArgMax);
        let mut read = wanted;
        if host_classes {
            plan = without_argmax(plan);
            (read.scores, read.classes) = (true, false);
        }
        let (queue, context) = phases.time("context", || {
            let context = Context::new(device)?;
            Ok::<_, Error>((Queue::new(&context, timed)?, context))
        })?;
        let mut programs = Programs::build(&context, &mut plan, sources, phases)?;
        let constants = phases.time("upload", || upload(&queue, model))?;
        let hidden = phases.time("buffers", || hidden(&queue, &plan))?;
        let unwritten = phases.time("buffers", || unwritten(&queue, &plan))?;
        let mut slots = Vec::with_capacity(SLOTS);
        for _ in 0..SLOTS {
            let kernels = phases.time("kernels", || programs.kernels(&plan))?;
            slots.push(phases.time("buffers", || {
                Slot::new(
                    &queue,
                    &plan,
                    kernels,
                    &constants,
                    &hidden,
                    unwritten.as_ref(),
                    read,
                )
            })?);
        }
        let launch = |step: &Step| StepLaunch {
            step: step.clone(),
            local: step.local.map(|(y, x)| [y, x]),
        };
        let asks = timed || !class(device).is_some_and(|class| class.stops_after_failure);
        let mut engine = OpenClEngine {
            asks,
            clock: timed.then(|| StepClock::new(plan.steps.len())),
            timeline: None,
            queue,
            slots,
            launches: plan.steps.iter().map(launch).collect(),
            input: InputPlaces::new(&plan, &model.network),
            scores: ScorePlaces::new(&plan),
            unwritten,
            host_classes,
            _constants: constants,
            instead: None,
            plan,
        };
        if programs.new_for_cache() {
            phases.time("rehearsal", || engine.rehearse())?;
            programs.store(phases);
        }
        Ok(engine)
    }
}

impl OpenClEngine {
    /// Gives a slot's input and results to the device. Before that, clears the input columns after
    /// the last record, and resets results that the host has mapped to [`UNWRITTEN`].
    fn hand_over(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        let Slot {
            input,
            scores,
            classes,
            handed,
            ..
        } = &mut self.slots[slot];
        let data = input.slice_mut::<f32>();
        let places = &self.input;
        for &col in &places.records[records..self.plan.columns(records)] {
            RecordMut::new(data, &places.features, col as usize).clear();
            places
                .padding
                .iter()
                .for_each(|&r| data[(col + r) as usize] = 0.0);
        }
        if let Some(scores) = scores {
            let ScorePlaces {
                records: cols,
                rows,
            } = &self.scores;
            give_back(scores, |values| {
                for &col in &cols[..records] {
                    rows.iter()
                        .for_each(|&row| values[(col + row) as usize] = UNWRITTEN);
                }
            })?;
        }
        if let Some(classes) = classes {
            give_back(classes, |values| values[..records].fill(UNWRITTEN))?;
        }
        let event = (!input.is_staged()).then_some(handed);
        Ok(input.enqueue_unmap(event)?)
    }

    /// Resets results in the device's own memory to [`UNWRITTEN`] after a batch. Copies whole
    /// buffers, because oclgrind treats the rest of a partly copied buffer as uninitialised.
    fn clear_results(&mut self, slot: usize) -> Result<(), Error> {
        let Some(unwritten) = &self.unwritten else {
            return Ok(());
        };
        let Slot {
            scores, classes, ..
        } = &mut self.slots[slot];
        for results in [scores.as_mut(), classes.as_mut()].into_iter().flatten() {
            let bytes = results.bytes();
            results.enqueue_copy_of(unwritten, bytes)?;
        }
        Ok(())
    }

    /// Returns an error if no kernel has written the class or the first score of a record. Other
    /// unwritten scores show up as NaN.
    fn written(&self, slot: usize) -> Result<(), Error> {
        let Slot {
            scores,
            classes,
            records,
            ..
        } = &self.slots[slot];
        let ScorePlaces {
            records: cols,
            rows,
        } = &self.scores;
        let first = |col: u32| {
            scores
                .as_ref()
                .map(|s| s.slice::<u32>()[(col + rows[0]) as usize])
        };
        let class = |index: usize| {
            classes
                .as_ref()
                .map(|classes| classes.slice::<u32>()[index])
        };
        let unwritten = |index: &usize| {
            class(*index) == Some(UNWRITTEN)
                || cols
                    .get(*index)
                    .is_some_and(|&col| first(col) == Some(UNWRITTEN))
        };
        match (0..*records).find(unwritten) {
            None => Ok(()),
            Some(index) => Err(Error::device(format!(
                "record {} of a batch of {records} has no result, although every launch ended \
                 without an error",
                index + 1
            ))),
        }
    }

    /// Runs a full batch and a batch of one record, all zeros. Some drivers compile when a kernel
    /// first runs (PoCL, for each batch size), and only compiled code can be cached. The full batch
    /// comes first, as in the measurement of `engine::multi`.
    fn rehearse(&mut self) -> Result<(), Error> {
        for records in [self.plan.batch, 1] {
            self.record(0, 0)?;
            self.slots[0].input.slice_mut::<f32>().fill(0.0);
            self.resident(records)?;
        }
        self.record(0, 0)?;
        self.clock.as_mut().map(StepClock::clear);
        Ok(())
    }

    fn launch(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        let Slot {
            kernels,
            events,
            records: launched,
            ..
        } = &mut self.slots[slot];
        *launched = records;
        let (steps, _) = self.plan.variant(records);
        let launches = self.launches.iter().zip(kernels.iter()).zip(events);
        for ((launch, kernel), event) in launches.take(steps.end).skip(steps.start) {
            let (x, y) = launch.step.global;
            let global = [x.items(records), y.items(records)];
            let local = launch.local.as_ref().map(<[usize; 2]>::as_slice);
            self.queue
                .launch(kernel, &global, local, self.asks.then_some(event))?;
        }
        Ok(())
    }

    /// Checks how each command of a batch ended. `waited` is the result of the wait for the batch.
    /// Keeps the launches' times if they are measured, and releases the events. If a launch and the
    /// wait both failed, returns the error of the launch.
    fn end(&mut self, slot: usize, waited: Result<(), Error>) -> Result<(), Error> {
        let Slot {
            events,
            handed,
            records,
            kernels,
            ..
        } = &mut self.slots[slot];
        if waited.is_err() {
            // The wait may have failed for a command that never ran. Waiting for the events could
            // then take forever, so only their status is read.
            let failed = |(event, kernel): (&Event, &BoundKernel)| event.failed(kernel.name());
            return events
                .iter()
                .zip(kernels.iter())
                .try_for_each(failed)
                .map_err(Error::from)
                .and(waited);
        }
        if handed.is_held() {
            handed.ended("input")?;
            handed.release();
        }
        for (i, (event, kernel)) in events.iter_mut().zip(kernels.iter()).enumerate() {
            let clock = self.clock.as_mut().map(|clock| &mut clock.steps[i]);
            if !event.is_held() {
                clock
                    .into_iter()
                    .for_each(|times| times.missed += *records as u64);
                continue;
            }
            event.ended(kernel.name())?;
            if let Some(times) = clock {
                let t = event.times()?;
                self.timeline
                    .iter_mut()
                    .for_each(|timeline| timeline.keep(Name::Step(i), slot, t));
                times
                    .queued
                    .record(Duration::from_nanos(t.submit.saturating_sub(t.queued)));
                times
                    .wait
                    .record(Duration::from_nanos(t.start.saturating_sub(t.submit)));
                times
                    .run
                    .record(Duration::from_nanos(t.end.saturating_sub(t.start)));
            }
            event.release();
        }
        Ok(())
    }
}

/// The value of a result that no kernel has written. As a float it is a NaN with bits that
/// arithmetic does not produce. As a class it is larger than any class index.
const UNWRITTEN: u32 = 0xFFFF_FFFE;

/// Gives a slot's results to the device. `clear` first resets them through the host's map. `clear`
/// is not called for staged results, because [`OpenClEngine::clear_results`] resets those by a
/// copy.
fn give_back(results: &mut MappedBuffer, clear: impl FnOnce(&mut [u32])) -> Result<(), ClError> {
    if results.is_staged() {
        return if results.is_mapped() {
            results.enqueue_unmap(None)
        } else {
            Ok(())
        };
    }
    if !results.is_mapped() {
        // Results are unmapped at this point only before the first batch and after `resident`.
        results.enqueue_map()?;
        results.wait()?;
    }
    clear(results.slice_mut::<u32>());
    results.enqueue_unmap(None)
}

/// Makes the buffer of [`UNWRITTEN`] values, which is copied to reset results in the device's own
/// memory. `None` for unified memory, where the host resets results.
fn unwritten(queue: &Queue, plan: &Plan) -> Result<Option<ClBuffer>, Error> {
    if queue.device().unified_memory {
        return Ok(None);
    }
    let results = [BufferRole::Scores, BufferRole::Classes]
        .into_iter()
        .filter_map(|role| plan.buffer(role));
    let values = results
        .map(|i| plan.buffers[i].len(plan.padded_batch))
        .max()
        .unwrap_or(1);
    let bytes = values * size_of_val(&UNWRITTEN);
    let buffer = ClBuffer::new(
        queue,
        "unwritten results",
        bytes,
        Access::ReadWrite,
        BufferHome::Device,
    )?;
    buffer.fill_with(|all: &mut [u32]| all.fill(UNWRITTEN))?;
    Ok(Some(buffer))
}

impl Timeline {
    /// Adds a finished command of the batch in a slot to the trace.
    fn keep(&mut self, name: Name, slot: usize, t: Times) {
        let (records, before, after) = self.flying[slot];
        let host = HostTimes {
            before,
            after,
            done: self.track.now(),
        };
        if let Some(times) = self.clocks.host(host, t) {
            self.track
                .command(name, slot, records, times, t.start.saturating_sub(t.queued));
        }
    }
}

pub(crate) fn class(device: &Device) -> Option<&'static DeviceClass> {
    let (cpu, compute_capability) = (device.kind == DeviceKind::Cpu, device.compute_capability);
    library().device_class(Traits {
        vendor: &device.vendor,
        name: &device.name,
        cpu,
        compute_capability,
    })
}

/// Returns the model as a device runs it whose instructions sum products of bytes. `None` for other
/// devices, and for networks without layers of whole numbers. Without such an instruction the
/// kernels for bytes are slower than those for floats: 5 to 14 times on a CPU under PoCL.
pub(crate) fn with_bytes(device: &Device, model: &Model) -> Result<Option<Model>, Error> {
    if device.multiplies_bytes {
        model
            .whole(library(), Layers::Faster)
            .map_err(Error::device)
    } else {
        Ok(None)
    }
}

pub(crate) fn limits(device: &Device) -> DeviceLimits {
    let items = |i: usize| device.max_work_items.get(i).copied().unwrap_or(1);
    DeviceLimits {
        work_group: device.max_work_group,
        work_items: (items(0), items(1)),
        local_bytes: device.local_mem as usize,
        images: device.images,
        max_alloc: device.max_alloc,
    }
}

/// Checks that the device can run the plan. The error names every restriction that the device does
/// not meet.
pub(crate) fn admits(device: &Device, plan: &Plan) -> Result<(), Error> {
    let limits = limits(device);
    let mut failed = refused_kernels(plan, &limits);
    failed.extend(refused_memory(device, plan, &limits));
    if !device.compiler_available {
        failed.push("its driver has no OpenCL C compiler".into());
    }
    for i in (1..failed.len()).rev() {
        if failed[..i].contains(&failed[i]) {
            failed.remove(i);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::limit(format!(
        "plan {} cannot run on {}: {}",
        plan.name,
        device.name,
        failed.join("; ")
    )))
}

/// Returns a message for each restriction of the plan's kernels that the device does not meet.
fn refused_kernels(plan: &Plan, limits: &DeviceLimits) -> Vec<String> {
    let mut failed: Vec<String> = Vec::new();
    for step in plan.steps.iter() {
        if let Some((_, kernel)) = library().kernel(&step.kernel) {
            let mut kernel = kernel.clone();
            let local = step
                .local
                .map(|local| programs::shrunk(&kernel, local, limits.work_group, limits));
            kernel.restrictions.work_group =
                local.map(|local| kernel.restrictions.dimensions(local));
            let refused = kernel.admits(step.problem, Some(limits)).err();
            failed.extend(refused.unwrap_or_default());
        }
    }
    failed
}

/// Returns a message for each image or buffer of the plan that the device does not allow.
fn refused_memory(device: &Device, plan: &Plan, limits: &DeviceLimits) -> Vec<String> {
    let mut failed = Vec::new();
    for c in plan.constants.iter().filter(|c| c.image) {
        let ((width, height), (most_wide, most_high)) = (pixels(c.padded), device.image2d_max);
        if width > most_wide || height > most_high {
            failed.push(format!(
                "{} as an image of {width}×{height} pixels, the device allows \
                 {most_wide}×{most_high}",
                c.name
            ));
        }
    }
    let constants = plan.constants.iter().map(|c| ("a constant", c.bytes()));
    let buffers = plan
        .buffers
        .iter()
        .map(|b| ("a buffer", b.len(plan.padded_batch) * 4));
    let (_, all) = places(&plan.constants);
    let others = [
        ("the arena", plan.arena_bytes),
        (
            "the constants together",
            if takes_all(plan) { all } else { 0 },
        ),
    ];
    for (what, bytes) in constants.chain(buffers).chain(others) {
        if bytes as u64 > limits.max_alloc {
            failed.push(format!(
                "{what} of {bytes} bytes, the device allows {} in one buffer",
                limits.max_alloc
            ));
        }
    }
    if device.mem_align > 0 && ARENA_ALIGN % device.mem_align != 0 {
        failed.push(format!(
            "buffers aligned to {} bytes, the plan has {ARENA_ALIGN}",
            device.mem_align
        ));
    }
    failed
}

enum Resident {
    Buffer(ClBuffer),
    Image(Image2d),
}

/// Returns the width and height in pixels of an image that holds a matrix. A pixel has four rows of
/// a column, and a line of pixels is one column.
fn pixels((rows, cols): (usize, usize)) -> (usize, usize) {
    (rows / 4, cols)
}

/// Uploads the constants into buffers or images through a map. With unified memory the host can
/// reach the buffers too, else they are in the device's own memory. If a kernel takes all
/// constants, they are parts of one buffer.
fn upload(queue: &Queue, model: &Model) -> Result<Vec<Resident>, Error> {
    let home = if queue.device().unified_memory {
        BufferHome::Shared
    } else {
        BufferHome::Device
    };
    if takes_all(&model.plan) {
        let (starts, bytes) = places(&model.plan.constants);
        let all = ClBuffer::new(queue, "constants", bytes, Access::ReadOnly, home)?;
        all.upload_parts(
            starts
                .iter()
                .copied()
                .zip(model.constants.iter().map(model::bytes)),
        )?;
        // Steps that do not take the buffer of all constants take sub-buffers of it, one for each
        // constant.
        let parts = starts.iter().zip(model.plan.constants.iter());
        let parts = parts.map(|(&start, c)| {
            Ok(Resident::Buffer(all.sub_buffer(
                &c.name,
                start,
                c.bytes(),
            )?))
        });
        let mut residents = parts.collect::<Result<Vec<_>, Error>>()?;
        residents.push(Resident::Buffer(all));
        return Ok(residents);
    }
    model
        .plan
        .constants
        .iter()
        .zip(&model.constants)
        .map(|(c, values)| {
            let name = format!("{} {}", c.name, c.role.name());
            if c.image {
                let image = model::image(queue, &name, pixels(c.padded), values)?;
                return Ok(Resident::Image(image));
            }
            let buffer = ClBuffer::new(queue, &name, c.bytes(), Access::ReadOnly, home)?;
            buffer.upload(model::bytes(values))?;
            Ok(Resident::Buffer(buffer))
        })
        .collect()
}

fn without_argmax(mut plan: Plan) -> Plan {
    let others = |s: &Step| s.operation != Operation::ArgMax;
    if let Some(few) = &mut plan.few {
        few.first = plan.steps[..few.first].iter().filter(|s| others(s)).count();
    }
    plan.steps.to_mut().retain(others);
    plan
}

/// Returns true if a kernel of the plan takes all constants as one buffer.
fn takes_all(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| s.args.contains(&Arg::Constants))
}

/// Creates the plan's hidden buffers. The result has an entry for each buffer of the plan, `None`
/// if the buffer is not hidden. With unified memory hidden buffers are parts of one arena. On a
/// device with memory of its own each is separate. NVIDIA's driver would wait 6 µs between kernels
/// with overlapping sub-buffers (measured on an H200).
fn hidden(queue: &Queue, plan: &Plan) -> Result<Vec<Option<ClBuffer>>, Error> {
    let new = |name: &str, bytes| {
        ClBuffer::new(queue, name, bytes, Access::ReadWrite, BufferHome::Device)
    };
    let shared = queue.device().unified_memory && plan.arena_bytes > 0;
    let arena = shared.then(|| new("arena", plan.arena_bytes)).transpose()?;
    plan.buffers
        .iter()
        .enumerate()
        .map(|(i, b)| {
            let bytes = b.len(plan.padded_batch) * 4;
            let buffer = match &arena {
                _ if b.role != BufferRole::Hidden => return Ok(None),
                Some(arena) => arena.sub_buffer(&b.name, b.arena, bytes)?,
                None => new(&b.name, bytes)?,
            };
            buffer.write(0, &vec![0.0f32; b.len(partly_written(plan, i))])?;
            Ok(Some(buffer))
        })
        .collect()
}

/// Returns the number of columns of buffer `i` that are filled with zeros at start. A step for few
/// records writes only the columns of its records, but the next step reads whole granules of
/// columns.
fn partly_written(plan: &Plan, i: usize) -> usize {
    let (steps, granule) = plan.variant(1);
    let records = plan.few.map_or(plan.batch, |few| few.records);
    let some = |s: &Step| {
        let (_, columns) = s.global;
        matches!(columns, Extent::Columns { .. }) && s.args.last() == Some(&Arg::Buffer(i))
    };
    if records <= granule && plan.steps[steps].iter().any(some) {
        granule
    } else {
        0
    }
}

/// Binds a step's arguments to its kernel.
fn bind(
    plan: &Plan,
    step: &Step,
    kernel: ClKernel,
    constants: &[Resident],
    buffers: &[ClBuffer],
) -> Result<BoundKernel, Error> {
    let argument = |(arg, bytes): (&Arg, usize)| match *arg {
        Arg::Size(n) => Argument::U32(n),
        Arg::Scalar(x) => Argument::F32(x),
        Arg::Pair((x, y)) => Argument::F32x2([x, y]),
        Arg::Geometry(geometry) => Argument::U32x16(geometry.words()),
        Arg::Moved(moved) => Argument::U32x16(moved.words()),
        Arg::Product(product) => Argument::U32x16(product.words()),
        Arg::Constant(_) | Arg::Constants => {
            // The buffer with all constants is the last entry of `constants`.
            let i = if let Arg::Constant(i) = *arg {
                i
            } else {
                constants.len() - 1
            };
            match &constants[i] {
                Resident::Buffer(buffer) => Argument::Buffer { buffer, bytes },
                Resident::Image(image) => Argument::Image(image),
            }
        }
        Arg::Buffer(i) => Argument::Buffer {
            buffer: &buffers[i],
            bytes,
        },
    };
    let touched = touched(plan, step, library());
    let arguments: Vec<Argument<'_>> = step.args.iter().zip(touched).map(argument).collect();
    Ok(kernel.bind(&arguments)?)
}

impl Slot {
    fn new(
        queue: &Queue,
        plan: &Plan,
        kernels: Vec<ClKernel>,
        constants: &[Resident],
        hidden: &[Option<ClBuffer>],
        unwritten: Option<&ClBuffer>,
        wanted: Wanted,
    ) -> Result<Slot, Error> {
        let unified = queue.device().unified_memory;
        let home = if unified {
            BufferHome::Shared
        } else {
            BufferHome::Device
        };
        let buffers: Vec<ClBuffer> = plan
            .buffers
            .iter()
            .zip(hidden)
            .map(|(b, hidden)| match hidden {
                Some(buffer) => Ok(buffer.clone()),
                None => ClBuffer::new(
                    queue,
                    &b.name,
                    b.len(plan.padded_batch) * 4,
                    Access::ReadWrite,
                    home,
                ),
            })
            .collect::<Result<_, _>>()?;
        let kernels = plan
            .steps
            .iter()
            .zip(kernels)
            .map(|(step, kernel)| bind(plan, step, kernel, constants, &buffers))
            .collect::<Result<_, _>>()?;
        let mapped = |i: usize, mode| match unified {
            true => Ok(MappedBuffer::new(buffers[i].clone(), mode)),
            false => MappedBuffer::staged(buffers[i].clone(), mode),
        };
        let result = |role, wanted: bool| {
            plan.buffer(role)
                .filter(|_| wanted)
                .map(|i| mapped(i, MapMode::ReadWrite))
                .transpose()
        };
        let Some(input) = plan.buffer(BufferRole::Input) else {
            return Err(Error::device(format!("plan {} has no input", plan.name)));
        };
        let mut slot = Slot {
            input: mapped(input, MapMode::Overwrite)?,
            scores: result(BufferRole::Scores, wanted.scores)?,
            classes: result(BufferRole::Classes, wanted.classes)?,
            kernels,
            events: plan.steps.iter().map(|_| Event::new()).collect(),
            handed: Event::new(),
            records: 0,
        };
        for results in [&mut slot.scores, &mut slot.classes].into_iter().flatten() {
            if let Some(unwritten) = unwritten {
                results.enqueue_copy_of(unwritten, results.bytes())?;
            }
        }
        slot.input.enqueue_map()?;
        slot.input.wait()?;
        Ok(slot)
    }
}

impl Engine for OpenClEngine {
    fn batch(&self) -> usize {
        self.plan.batch
    }

    fn few(&self) -> usize {
        self.plan.few.map_or(0, |few| few.records)
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        let input = &mut self.slots[slot].input;
        if !input.is_mapped() {
            // The input is unmapped at this point only after `resident`. A batch ends with its
            // input mapped again.
            input.enqueue_map()?;
            input.wait()?;
        }
        let data = input.slice_mut::<f32>();
        let places = &self.input;
        let offset = places.records[index] as usize;
        // The map may have lost the buffer's old contents, so padding is written again with each
        // record.
        for &row in &places.padding {
            data[offset + row as usize] = 0.0;
        }
        Ok(RecordMut::new(data, &places.features, offset))
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        let before = self.timeline.as_ref().map(|t| t.track.now());
        self.hand_over(slot, records)?;
        self.launch(slot, records)?;
        let Slot {
            input,
            scores,
            classes,
            ..
        } = &mut self.slots[slot];
        for results in [scores.as_mut(), classes.as_mut()].into_iter().flatten() {
            results.enqueue_map()?;
        }
        input.enqueue_map()?;
        if let (Some(timeline), Some(before)) = (&mut self.timeline, before) {
            timeline.flying[slot] = (records, before, timeline.track.now());
        }
        self.queue.flush()?;
        // The copy that resets the results in the device's own memory is enqueued while the device
        // works on this batch. The next batch's flush submits the copy.
        self.clear_results(slot)
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        let Slot {
            input,
            scores,
            classes,
            ..
        } = &mut self.slots[slot];
        let buffers = [scores.as_mut(), classes.as_mut(), Some(input)];
        // In unified memory the input was mapped again for the next batch. Otherwise the command is
        // the copy of this batch's input to the device.
        let third = if self.queue.device().unified_memory {
            "map input"
        } else {
            "write input"
        };
        let mut waited = Ok(());
        for (buffer, name) in buffers
            .into_iter()
            .zip(["read scores", "read classes", third])
        {
            let (Some(buffer), Ok(())) = (buffer, &waited) else {
                continue;
            };
            waited = match &mut self.timeline {
                None => buffer.wait(),
                Some(timeline) => buffer
                    .wait_timed()
                    .map(|t| timeline.keep(Name::Text(name), slot, t)),
            };
        }
        self.end(slot, waited.map_err(Error::from))?;
        self.written(slot)
    }

    fn resident(&mut self, records: usize) -> Result<(), Error> {
        if self.slots[0].input.is_mapped() {
            self.hand_over(0, records)?;
        }
        self.launch(0, records)?;
        let finished = self.queue.finish().map_err(Error::from);
        self.end(0, finished)
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        let slot = &self.slots[slot];
        let scores = match &slot.scores {
            Some(scores) => {
                let ScorePlaces { records, rows } = &self.scores;
                Record::new(scores.slice::<f32>(), rows, records[index] as usize)
            }
            None => Record::new(&[], &[], 0),
        };
        let class = match &slot.classes {
            Some(classes) => Some(classes.slice::<u32>()[index]),
            None => self.host_classes.then(|| scores.argmax()),
        };
        Answer { class, scores }
    }

    fn step_times(&mut self) -> Option<StepClock> {
        self.clock.clone()
    }

    fn forget_times(&mut self) {
        self.clock.iter_mut().for_each(StepClock::clear);
    }

    fn trace(&mut self, track: Track) -> Result<(), Error> {
        let (begun, mut clocks) = (track.now(), Clocks::default());
        for _ in 0..EXCHANGES {
            let input = &mut self.slots[0].input;
            let before = track.now();
            input.enqueue_unmap(None)?;
            input.enqueue_map()?;
            let after = track.now();
            let times = input.wait_timed()?;
            let host = HostTimes {
                before,
                after,
                done: track.now(),
            };
            clocks.compare(host, times);
        }
        if let Some(error) = clocks.error() {
            track.command(CLOCK, 0, 0, begun..track.now(), error);
        }
        self.timeline = Some(Timeline {
            track,
            clocks,
            flying: Default::default(),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::EngineKind;

    /// No kernel touches more bytes of a buffer or constant than it has. For many matrices the two
    /// numbers are equal.
    #[test]
    fn kernels_touch_all_of_their_operands_and_nothing_behind() {
        let mut exact = 0;
        for recipe in library()
            .plans
            .iter()
            .filter(|p| p.engine == EngineKind::OpenCl)
        {
            let Ok(Model { plan, .. }) = Model::baked(recipe, None) else {
                continue;
            };
            for step in plan.steps.iter() {
                for (arg, touched) in step.args.iter().zip(touched(&plan, step, library())) {
                    let has = match *arg {
                        Arg::Buffer(i) => plan.buffers[i].len(plan.padded_batch) * 4,
                        Arg::Constant(i) => plan.constants[i].bytes(),
                        Arg::Constants => {
                            let (_, bytes) = places(&plan.constants);
                            bytes
                        }
                        Arg::Size(_)
                        | Arg::Scalar(_)
                        | Arg::Pair(_)
                        | Arg::Geometry(_)
                        | Arg::Moved(_)
                        | Arg::Product(_) => 0,
                    };
                    assert!(
                        touched <= has,
                        "{}: {}: {arg:?}: {touched} of {has}",
                        plan.name,
                        step.kernel
                    );
                    exact += usize::from(touched == has && has > 0);
                }
            }
        }
        assert!(exact > 50, "{exact}");
    }
}
