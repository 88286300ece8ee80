//! Several devices as one engine that shares a stream among them. The host engine may be one of
//! them.
//!
//! ```text
//! stream ─▶ slot 0 ┐                     ┌─▶ member 0: decode · submit · collect ─┐
//!           slot 1 ┘ ─ chunks in order ──┼─▶ member 1                             ├─▶ answers
//!                                        └─▶ …                                    ┘
//! ```
//!
//! A member is a device with its engine and its thread. A slot holds several batches of all
//! members. Its records stay in the host's memory until they are answered, as bytes or as numbers
//! in plain order. A free member takes the next chunk of the oldest slot, decodes it into its own
//! device's buffer, and copies the answers to their places. This keeps the order of the stream.
//! When a member fails, its chunks are still in the slot and go back to the queue.
//!
//! Three ways to choose the size of a chunk were compared. Fixed shares by measured speed need no
//! queue, but each slot then waits for the member whose speed was overestimated most. Equal chunks
//! for any free member adapt by themselves. But at the end all wait for the slowest member's last
//! chunk, and a lone record goes to any member. The way used here gives a free member a full batch
//! unless that would end last. Chunks are bounded by what the member can do until the whole queue
//! can be done (`pace`). A slow member therefore takes less at the end, or nothing. A lone record
//! goes to the member that answers it first. The stream refills a slot only when all of it is
//! answered. So a chunk may take no longer than the rest of its slot and half of the next, and
//! other members never wait for it.
//!
//! Members may slow each other down, for example the host engine and a driver that uses the same
//! cores. If the stream keeps all members busy and they are not clearly faster than the best one
//! alone, both ways are timed. Slots shared by all are compared with slots of the fastest member
//! alone, and the faster way stays (`pace::Party`). So several devices are not slower than the best
//! of them.
//!
//! A member has two chunks in flight: its device computes one while its thread decodes the other.
//! There is only one chunk where submitting takes most of a chunk's time, as with PoCL's basic
//! device, which computes in the call. A second chunk would then only delay the answers.
//!
//! The thread of a member builds, uses and drops its engine, because drivers and simulators keep
//! thread-local data. Engines are built one after the other, because drivers lock their compilers.
//! The second of two equal devices then finds the first one's compiled programs. Speeds are
//! measured while the stream starts, with two small batches for one member after the other. A
//! warm-up run precedes them, because a driver's first launches are slow. Later every chunk updates
//! the speed.
//!
//! Nothing is allocated after start-up, and threads without work sleep.

mod pace;
#[cfg(test)]
mod tests;

use super::kept::KeptRecords;
use super::{Answer, Engine, NAN_CLASS, Record, RecordMut, SLOTS};
use crate::error::{Error, ErrorKind, say};
use crate::observe::profile::MemberTimes;
use crate::observe::report::MemberMeasurements;
use crate::observe::trace::{Name, Track};
use crate::simd::deferred::{Decode, Refusal};
use crate::sys::thread::{Serve, Thread};
use crate::sys::watchdog;
use pace::{Pace, Party};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The number of full batches of each member that one slot has room for.
const BATCHES: usize = 4;

/// The limit in bytes for the numbers of a slot's records. A slot still holds at least one batch of
/// each member.
const SLOT_BYTES: usize = 64 << 20;

/// A device that takes part in a run of several devices, with the thread that runs its engine.
pub(crate) struct Member {
    control: Arc<WorkerControl>,
    thread: Option<Thread>,
    facts: MemberFacts,
}

/// The time since a member's driver last gave a sign of life, in ticks of the watchdog.
#[derive(Default)]
struct Silence {
    signs: u64,
    ticks: u32,
}

impl Silence {
    /// Updates the silence once a tick. `signs` counts the driver's signs of life so far. Returns
    /// true if the silence exceeds the limit, which grows with `slowest`, the time of the slowest
    /// batch.
    fn lasts(&mut self, signs: u64, slowest: Option<Duration>) -> bool {
        self.ticks = if self.signs == signs {
            self.ticks + 1
        } else {
            0
        };
        self.signs = signs;
        let Some(tick) = watchdog::tick() else {
            return false;
        };
        self.ticks > watchdog::allowed(slowest.map(|slowest| slowest.div_duration_f64(tick) as u32))
    }

    fn text(&self) -> String {
        watchdog::silence(self.ticks)
    }
}

/// Waits on a condition for at most one tick of the watchdog, or without a limit if there is no
/// watchdog. The returned flag is true if the whole tick passed without a signal.
fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> (MutexGuard<'a, T>, bool) {
    let Some(tick) = watchdog::tick() else {
        return (
            condition.wait(guard).unwrap_or_else(|e| e.into_inner()),
            false,
        );
    };
    let (guard, waited) = condition
        .wait_timeout(guard, tick)
        .unwrap_or_else(|e| e.into_inner());
    (guard, waited.timed_out())
}

/// The description of a member's engine.
#[derive(Clone, Debug)]
pub(crate) struct MemberFacts {
    pub(crate) name: String,
    /// The largest number of records in a batch.
    pub(crate) batch: usize,
    /// A partial batch costs as much as the next multiple of this number of records.
    pub(crate) granule: usize,
    /// True for a CPU device. Its driver compiles in this process and shares compiled programs
    /// among devices.
    pub(crate) in_process: bool,
    /// The track of the member's trace, shared with its engine.
    pub(crate) track: Option<Track>,
}

/// A function that builds an engine on the thread that will use it.
pub(crate) type Build =
    Box<dyn FnOnce() -> Result<(Box<dyn Engine + Send>, MemberFacts), Error> + Send>;

/// The state of a member's thread. Other threads use it to start and end the thread.
struct WorkerControl {
    build: Mutex<Option<Build>>,
    state: Mutex<WorkerState>,
    changed: Condvar,
}

enum WorkerState {
    Building,
    Built(Result<MemberFacts, Error>),
    /// The thread waits until it is told to work or to end.
    Waiting,
    /// The thread works as the member with this index in [`Shared`].
    Working(Arc<Shared>, usize),
    Ended,
}

impl Member {
    /// Starts a thread that builds an engine, and waits until it is built.
    pub(crate) fn start(build: Build) -> Result<Member, Error> {
        let (state, changed) = (Mutex::new(WorkerState::Building), Condvar::new());
        let control = Arc::new(WorkerControl {
            build: Mutex::new(Some(build)),
            state,
            changed,
        });
        let thread = Thread::start(Arc::clone(&control))
            .map_err(|e| Error::caused("cannot start a thread", e))?;
        let built = control.built();
        let facts = MemberFacts {
            name: String::new(),
            batch: 0,
            granule: 0,
            in_process: false,
            track: None,
        };
        let mut member = Member {
            control,
            thread: Some(thread),
            facts,
        };
        match built {
            Ok(WorkerState::Built(facts)) => member.facts = facts?,
            Ok(_) => {}
            Err(hangs) => {
                member.abandon();
                return Err(hangs);
            }
        }
        Ok(member)
    }

    /// Gives up a member whose thread hangs in a driver, without joining the thread.
    fn abandon(&mut self) {
        self.thread = None;
        watchdog::abandon();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // `MultiEngine` has told a working thread to quit before it drops its members.
        self.control.set(WorkerState::Ended);
        self.thread.take().into_iter().for_each(Thread::join);
    }
}

impl WorkerControl {
    fn state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn set(&self, state: WorkerState) {
        *self.state() = state;
        self.changed.notify_all();
    }

    /// Waits for a state that `wanted` accepts and returns it. Leaves the state `Waiting`.
    fn wait_for(&self, wanted: impl Fn(&WorkerState) -> bool) -> WorkerState {
        let mut state = self.state();
        while !wanted(&state) {
            state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        std::mem::replace(&mut *state, WorkerState::Waiting)
    }

    /// Waits until the member's engine is built. Fails if its driver gives no sign of life for too
    /// long.
    fn built(&self) -> Result<WorkerState, Error> {
        let mut silence = Silence::default();
        let mut state = self.state();
        while matches!(*state, WorkerState::Building) {
            let tick;
            (state, tick) = wait(&self.changed, state);
            watchdog::alive();
            if tick && silence.lasts(watchdog::beats(), None) {
                let what = format!("{} at start ({})", silence.text(), watchdog::work());
                return Err(Error::device(what));
            }
        }
        Ok(std::mem::replace(&mut *state, WorkerState::Waiting))
    }
}

impl Serve for WorkerControl {
    fn serve(&self) {
        let Some(build) = self.build.lock().unwrap_or_else(|e| e.into_inner()).take() else {
            return;
        };
        let (engine, facts) = match build() {
            Ok((engine, facts)) => (Some(engine), Ok(facts)),
            Err(e) => (None, Err(e)),
        };
        let mut state = self.state();
        if matches!(*state, WorkerState::Ended) {
            // The build took so long that the member was abandoned.
            return;
        }
        *state = WorkerState::Built(facts);
        drop(state);
        self.changed.notify_all();
        let Some(engine) = engine else { return };
        let work = |s: &WorkerState| matches!(s, WorkerState::Working(..) | WorkerState::Ended);
        if let WorkerState::Working(shared, who) = self.wait_for(work) {
            let worker = Worker { shared, who };
            worker.local().engine = Some(engine);
            if let Err(e) = worker.run() {
                worker.shared.fail(who, e);
                // The engine stays alive, because its times are read at the end.
                worker.shared.sleep_on(who);
            }
            worker.local().engine = None;
        }
    }
}

/// The sizes of a record, and the kinds of results that the stream wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSizes {
    /// The number of values in a record.
    pub(crate) width: usize,
    /// The number of scores of a record; 0 if the stream does not want them.
    pub(crate) scores: usize,
    /// True if the stream wants classes.
    pub(crate) classes: bool,
}

pub(crate) struct MultiEngine {
    shared: Arc<Shared>,
    members: Vec<Member>,
    /// The input of each slot. The members' threads share it while the slot is submitted.
    inputs: [Arc<KeptRecords>; SLOTS],
    /// The answers of the collected slots.
    answers: [Answers; SLOTS],
    batch: usize,
    /// The offset of each score from the first score of its record.
    score_rows: Vec<u32>,
}

struct Answers {
    scores: Vec<f32>,
    classes: Vec<u32>,
}

/// The state that the stream's thread and the members' threads share.
struct Shared {
    workers: Vec<WorkerShared>,
    state: Mutex<QueueState>,
    /// Signals the stream's thread that all records of a slot are answered, or that the last member
    /// has failed.
    done: Condvar,
    /// The answers that members write for the submitted slots. The stream reads them after
    /// `collect`.
    answers: [Mutex<Answers>; SLOTS],
    sizes: RecordSizes,
    timed: bool,
    /// The stream's track of the trace, which has the number of the batch in each slot.
    track: Option<Track>,
}

/// The data of one member in `Shared`.
struct WorkerShared {
    name: String,
    granule: usize,
    batch: usize,
    in_process: bool,
    track: Option<Track>,
    local: Mutex<WorkerLocal>,
    /// Signals the member's thread that there may be work for it.
    wake: Condvar,
}

impl WorkerShared {
    fn new(facts: &MemberFacts, width: usize) -> WorkerShared {
        WorkerShared {
            name: facts.name.clone(),
            granule: facts.granule,
            batch: facts.batch,
            in_process: facts.in_process,
            track: facts.track,
            local: Mutex::new(WorkerLocal {
                engine: None,
                record: vec![0.0; width],
            }),
            wake: Condvar::new(),
        }
    }
}

impl WorkerShared {
    /// Waits until the member's thread has unlocked its engine, which may still run a measurement.
    /// Returns `None` if the thread hangs.
    fn at_rest(&self) -> Option<MutexGuard<'_, WorkerLocal>> {
        let begun = Instant::now();
        let most = watchdog::tick().map(|tick| tick * watchdog::allowed(Some(0)));
        loop {
            match self.local.try_lock() {
                Ok(local) => return Some(local),
                Err(_) if most.is_some_and(|most| begun.elapsed() > most) => return None,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// The data that a member's thread locks while it works. From here, other threads read only the
/// times of the member's engine.
struct WorkerLocal {
    engine: Option<Box<dyn Engine + Send>>,
    /// A buffer for one record, used if records are not contiguous in the engine's layout.
    record: Vec<f32>,
}

/// The records that wait for a member, and the state of each member's work.
struct QueueState {
    slots: [SubmittedSlot; SLOTS],
    /// The slot that was submitted last.
    newest: usize,
    members: Vec<MemberState>,
    /// `party` chooses the members that compute full slots: all, or one alone. `full` is true if
    /// the last submitted slot was full. Only then the choice counts.
    party: Party,
    full: bool,
    /// The time when the last full slot was completely answered.
    done: Option<Instant>,
    /// The member that measures its speed at the start. Other members wait until it is done before
    /// they measure theirs.
    measuring: Option<usize>,
    quit: bool,
    /// The failure of the last member that still ran. It ends the stream.
    failure: Option<Failure>,
}

struct Failure {
    what: String,
    source: Arc<Error>,
}

impl Failure {
    fn error(&self) -> Error {
        let source: Arc<dyn std::error::Error + Send + Sync> = self.source.clone();
        ErrorKind::Device {
            what: self.what.clone(),
            source: Some(source),
        }
        .into()
    }
}

struct SubmittedSlot {
    input: Option<Arc<KeptRecords>>,
    /// The records of the slot that no member has taken yet.
    open: Range<usize>,
    /// The slot's records that failed members had taken without answering them. They wait for
    /// another member.
    returned: Vec<Range<usize>>,
    /// The number of the slot's records without an answer.
    left: usize,
}

impl SubmittedSlot {
    /// Returns the number of the slot's records that wait for a member.
    fn waiting(&self) -> usize {
        self.open.len() + self.returned.iter().map(Range::len).sum::<usize>()
    }
}

/// The progress of a member.
struct MemberState {
    /// The member's speed. `None` until it is measured and after a failure.
    pace: Option<Pace>,
    /// The chunks that the member computes now, indexed by the slot of its own engine.
    chunks: [Option<RecordChunk>; SLOTS],
    /// The time when the member is expected to have computed its chunks.
    ends: Instant,
    asleep: bool,
    /// The number of signs of life, which are calls that the member has begun or ended.
    signs: u64,
    silence: Silence,
    /// The time that the member's slowest chunk took.
    slowest: Option<Duration>,
    times: MemberTimes,
}

/// An offer of records to a member: the slot that holds them, and their number, which may be 0.
struct Offer {
    slot: usize,
    records: usize,
    /// The microseconds from now until the waiting records of the slot, and half of those of the
    /// next slot, should be done.
    horizon: f64,
}

/// Consecutive records of a slot that one member computes.
#[derive(Clone)]
struct RecordChunk {
    slot: usize,
    records: Range<usize>,
    taken: Instant,
}

fn us(d: Duration) -> f64 {
    d.as_secs_f64() * 1e6
}

impl MemberState {
    fn new(now: Instant) -> MemberState {
        MemberState {
            pace: None,
            chunks: [const { None }; SLOTS],
            ends: now,
            asleep: false,
            signs: 0,
            silence: Silence::default(),
            slowest: None,
            times: MemberTimes::default(),
        }
    }

    /// Estimates the microseconds until the member has computed its chunks. A member that is late
    /// by some time is assumed to need the same time again.
    fn pending(&self, now: Instant) -> f64 {
        if self.chunks.iter().all(Option::is_none) {
            return 0.0;
        }
        us(self.ends.saturating_duration_since(now)) + us(now.saturating_duration_since(self.ends))
    }
}

impl QueueState {
    /// Returns the oldest slot with records that wait for a member.
    fn oldest(&self) -> Option<usize> {
        let by_age = [(self.newest + 1) % SLOTS, self.newest];
        by_age
            .into_iter()
            .find(|&slot| self.slots[slot].waiting() > 0)
    }

    /// Returns the member that computes the most records per second in full batches.
    fn fastest(&self) -> Option<usize> {
        let rates = self
            .members
            .iter()
            .enumerate()
            .filter_map(|(i, m)| Some((i, m.pace.as_ref()?.rate())));
        let fastest = rates.max_by(|(_, a), (_, b)| a.total_cmp(b));
        fastest.map(|(i, _)| i)
    }

    /// Returns the number of records that member `who` should take now, and their slot. `None` if
    /// no record waits, if another member computes alone, or before the speed of `who` is known.
    fn offer(&self, who: usize, granule: usize, now: Instant) -> Option<Offer> {
        let slot = self.oldest()?;
        let waiting = self.slots[slot].waiting();
        let next = if slot == self.newest {
            0
        } else {
            self.slots[self.newest].waiting()
        };
        let alone = self.party.alone().filter(|_| self.full);
        if alone.is_some_and(|only| only != who) {
            return None;
        }
        let parts = self
            .members
            .iter()
            .enumerate()
            .filter(|(other, _)| alone.is_none_or(|only| only == *other));
        let paces = parts.filter_map(|(_, m)| Some((m.pace.as_ref()?, m.pending(now))));
        let horizon = pace::horizon(paces, waiting + next / 2);
        let me = &self.members[who];
        let records = pace::share(me.pace.as_ref()?, me.pending(now), horizon, granule);
        Some(Offer {
            slot,
            records: records.min(waiting),
            horizon,
        })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Wakes each sleeping member that should take records now.
    fn wake(&self, state: &QueueState) {
        if state.members.iter().any(|m| m.asleep) && state.oldest().is_some() {
            let now = Instant::now();
            let asleep = |(who, _): &(usize, &WorkerShared)| state.members[*who].asleep;
            for (who, worker) in self.workers.iter().enumerate().filter(asleep) {
                let offer = state.offer(who, worker.granule, now);
                if offer.is_some_and(|offer| offer.records > 0) {
                    worker.wake.notify_one();
                }
            }
        }
    }

    /// Lets the thread of a failed member sleep until the engine is dropped.
    fn sleep_on(&self, who: usize) {
        let mut state = self.state();
        while !state.quit {
            state = self.workers[who]
                .wake
                .wait(state)
                .unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Waits until no other member measures its speed, then marks `who` as the member that
    /// measures. A member that failed during its measurement does not count.
    fn begin_measuring(&self, who: usize) {
        let mut state = self.state();
        let runs = |state: &QueueState| {
            state
                .measuring
                .is_some_and(|m| state.members[m].times.failed.is_none())
        };
        while runs(&state) && !state.quit {
            state.members[who].asleep = true;
            state = self.workers[who]
                .wake
                .wait(state)
                .unwrap_or_else(|e| e.into_inner());
        }
        state.members[who].asleep = false;
        state.measuring = Some(who);
    }

    /// Lets the next member measure its speed.
    fn end_measuring(&self, who: usize) {
        let mut state = self.state();
        // If this member was abandoned, another member is measuring already.
        state.measuring = state.measuring.filter(|&other| other != who);
        drop(state);
        self.workers.iter().for_each(|w| w.wake.notify_one());
    }

    /// Takes a chunk of the stream's records, to be computed in slot `place` of member `who`'s
    /// engine. If `wait`, waits for a chunk until the engine is dropped. Returns `None` if there is
    /// no chunk to take.
    fn take(
        &self,
        who: usize,
        place: usize,
        wait: bool,
    ) -> Option<(RecordChunk, Arc<KeptRecords>)> {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if state.quit || state.members[who].times.failed.is_some() {
                return None;
            }
            state.members[who].signs += 1;
            let offer = state.offer(who, self.workers[who].granule, now);
            if let Some(Offer {
                slot,
                records: records @ 1..,
                ..
            }) = offer
            {
                let submitted = &mut state.slots[slot];
                let source = submitted.returned.last_mut().unwrap_or(&mut submitted.open);
                let records = source.start..source.end.min(source.start + records);
                source.start = records.end;
                if submitted.returned.last().is_some_and(Range::is_empty) {
                    submitted.returned.pop();
                }
                let input = submitted.input.clone()?;
                let member = &mut state.members[who];
                let time = member.pace.as_ref().map_or(0.0, |p| p.time(records.len()));
                let free = if member.pending(now) > 0.0 {
                    member.ends.max(now)
                } else {
                    now
                };
                member.ends = free + Duration::from_nanos((time * 1e3) as u64);
                let chunk = RecordChunk {
                    slot,
                    records,
                    taken: now,
                };
                member.chunks[place] = Some(chunk.clone());
                return Some((chunk, input));
            }
            if !wait {
                return None;
            }
            state.members[who].asleep = true;
            let wake = &self.workers[who].wake;
            state = match offer {
                // By the offer's horizon the other members should be done. If they are late, this
                // member wakes up and helps.
                Some(Offer { horizon, .. }) => {
                    let until = Duration::from_micros(horizon.clamp(1e3, 1e7) as u64);
                    let woken = wake.wait_timeout(state, until);
                    let (state, _) = woken.unwrap_or_else(|e| e.into_inner());
                    state
                }
                None => wake.wait(state).unwrap_or_else(|e| e.into_inner()),
            };
            state.members[who].asleep = false;
        }
    }

    /// Marks the chunk in slot `place` of member `who`'s engine as answered. The member was busy
    /// with that chunk for `busy`.
    fn complete(&self, who: usize, place: usize, busy: Duration) {
        let mut guard = self.state();
        let state = &mut *guard;
        let member = &mut state.members[who];
        let Some(chunk) = member.chunks[place].take() else {
            return;
        };
        let records = chunk.records.len();
        member.times.records += records as u64;
        member.times.batches += 1;
        member.times.busy += busy;
        member.signs += 1;
        member.slowest = member.slowest.max(Some(busy));
        if let Some(pace) = &mut member.pace {
            pace.observe(records, us(busy));
            let rest: f64 = member
                .chunks
                .iter()
                .flatten()
                .map(|c| pace.time(c.records.len()))
                .sum();
            member.ends = Instant::now() + Duration::from_nanos((rest * 1e3) as u64);
        }
        let submitted = &mut state.slots[chunk.slot];
        submitted.left -= records;
        if submitted.left == 0 {
            self.done.notify_all();
        }
        self.wake(state);
    }

    /// Returns a member whose driver hangs, and the length of its silence. Called once a tick.
    fn silent(&self, state: &mut QueueState) -> Option<(usize, String)> {
        let members = state.members.iter_mut().enumerate();
        let mut busy = members.filter(|(_, m)| !m.asleep && m.times.failed.is_none());
        busy.find_map(|(who, m)| {
            m.silence
                .lasts(m.signs, m.slowest)
                .then(|| (who, m.silence.text()))
        })
    }

    /// Gives the chunks of the failed member `who` to the other members. If no other member is
    /// left, `error` ends the stream.
    fn fail(&self, who: usize, error: Error) {
        let name = &self.workers[who].name;
        let mut guard = self.state();
        let state = &mut *guard;
        if state.quit || state.members[who].times.failed.is_some() {
            return;
        }
        let member = &mut state.members[who];
        member.pace = None;
        state.party.begin_again();
        let member = &mut state.members[who];
        member.times.failed = Some(error.to_string());
        for chunk in member.chunks.iter_mut().filter_map(Option::take) {
            state.slots[chunk.slot].returned.push(chunk.records);
        }
        if state.members.iter().all(|m| m.times.failed.is_some()) {
            let what = format!("{name}: {error}; no other device is left");
            state.failure = Some(Failure {
                what,
                source: Arc::new(error),
            });
            self.done.notify_all();
        } else {
            say(&format!("{name}: {error}; the other devices do its part"));
            // Members that wait for their turn to measure their speed wake up too.
            self.workers.iter().for_each(|w| w.wake.notify_one());
        }
    }
}

/// Returns the error of a member that answers after it was abandoned. Nobody reports this error.
fn too_late() -> Error {
    Error::device("too late")
}

struct Worker {
    shared: Arc<Shared>,
    who: usize,
}

impl Worker {
    fn local(&self) -> MutexGuard<'_, WorkerLocal> {
        self.shared.workers[self.who]
            .local
            .lock()
            .unwrap_or_else(|e| e.into_inner())
    }

    /// Runs `work` with the member's engine and with the buffer for a record.
    fn with_engine<T>(
        &self,
        work: impl FnOnce(&mut dyn Engine, &mut [f32]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut local = self.local();
        let WorkerLocal { engine, record } = &mut *local;
        match engine {
            Some(engine) => work(engine.as_mut(), record),
            None => Err(Error::device("its engine is gone")),
        }
    }

    fn run(&self) -> Result<(), Error> {
        let Some((pace, at_once)) = self.measure()? else {
            return Ok(());
        };
        let mut state = self.shared.state();
        if state.members[self.who].times.failed.is_some() {
            return Err(too_late());
        }
        state.party.can_do(pace.rate());
        state.members[self.who].pace = Some(pace);
        drop(state);
        let mut chunks: [Option<RecordChunk>; SLOTS] = [const { None }; SLOTS];
        let mut place = 0;
        // The time when the device became free for the current chunk.
        let mut free = Instant::now();
        loop {
            let idle = chunks.iter().all(Option::is_none);
            let other = (place + 1) % SLOTS;
            match self.shared.take(self.who, place, idle) {
                Some((chunk, input)) => {
                    let records = chunk.records.len();
                    if let (Some(stream), Some(own)) = (self.shared.track, self.track()) {
                        own.begin(place, stream.batch(chunk.slot));
                    }
                    self.prepare(&chunk, place, &input)?;
                    // The stream needs exclusive access to the slot's input as soon as the slot is
                    // answered. So this reference is dropped before the chunk is submitted.
                    drop(input);
                    let start = self.now();
                    self.with_engine(|engine, _| engine.submit(place, records))?;
                    self.keep("submit", place, records, start);
                    chunks[place] = Some(chunk);
                    if !at_once {
                        place = other;
                        if idle {
                            continue;
                        }
                    }
                }
                None if idle => return Ok(()),
                None => {
                    place = if chunks[place].is_some() {
                        place
                    } else {
                        other
                    }
                }
            }
            self.finish(place, &mut chunks, &mut free)?;
        }
    }

    fn track(&self) -> Option<Track> {
        self.shared.workers[self.who].track
    }

    /// Returns the current time, or `None` if there is no trace.
    fn now(&self) -> Option<Instant> {
        self.track().map(|_| Instant::now())
    }

    /// Adds a span from `start` to now to the member's track of the trace.
    fn keep(&self, name: &'static str, place: usize, records: usize, start: Option<Instant>) {
        if let (Some(track), Some(start)) = (self.track(), start) {
            track.span(Name::Text(name), place, records, start, start.elapsed());
        }
    }

    /// Measures the member's speed on records of zeros. The returned flag is true if the device
    /// computes during `submit`. Returns `None` if the stream has ended meanwhile.
    fn measure(&self) -> Result<Option<(Pace, bool)>, Error> {
        let worker = &self.shared.workers[self.who];
        let few = worker.batch.div_ceil(4);
        let begun = self.now();
        let (mut times, mut submitting) = ([0.0; 3], 0.0);
        // The first run is a warm-up, in which drivers compile or page in memory. For a driver in
        // this process it is a full batch. PoCL 3.1 stores a compiled kernel with the largest grid
        // that it has seen, and a larger grid adds a second entry. If both fit, several devices
        // release each other's entries and an assertion ends the program. Only one member measures
        // at a time, because `Party` needs the speed of each one alone.
        self.shared.begin_measuring(self.who);
        let first = if worker.in_process { worker.batch } else { 1 };
        for (run, records) in [first, 1, few].into_iter().enumerate() {
            if self.shared.state().quit {
                return Ok(None);
            }
            (submitting, times[run]) = self.with_engine(|engine, record| {
                for i in 0..records {
                    engine.record(0, i)?.fill(record);
                }
                let start = Instant::now();
                engine.submit(0, records)?;
                let submitting = us(start.elapsed());
                engine.collect(0)?;
                engine.forget_times();
                Ok((submitting, us(start.elapsed())))
            })?;
        }
        self.shared.end_measuring(self.who);
        self.keep("measure", 0, 0, begun);
        let pace = Pace::new(worker.batch, times[1], few, times[2]);
        Ok(Some((pace, submitting > times[2] / 2.0)))
    }

    /// Decodes or copies a chunk into slot `place` of the member's engine.
    fn prepare(&self, chunk: &RecordChunk, place: usize, input: &KeptRecords) -> Result<(), Error> {
        let start = self.shared.timed.then(Instant::now);
        self.with_engine(|engine, record| {
            input.copy(chunk.records.clone(), engine, place, record)
        })?;
        if let Some(start) = start {
            let elapsed = start.elapsed();
            self.shared.state().members[self.who].times.decode += elapsed;
            self.keep("decode", place, chunk.records.len(), Some(start));
        }
        Ok(())
    }

    /// Waits for the chunk in slot `place` of the member's engine, and copies its answers to the
    /// stream's slot.
    fn finish(
        &self,
        place: usize,
        chunks: &mut [Option<RecordChunk>; SLOTS],
        free: &mut Instant,
    ) -> Result<(), Error> {
        let Some(chunk) = chunks[place].take() else {
            return Ok(());
        };
        let RecordSizes {
            scores, classes, ..
        } = self.shared.sizes;
        let (records, start) = (chunk.records.len(), self.now());
        self.with_engine(|engine, _| {
            engine.collect(place)?;
            self.keep("wait for the engine", place, records, start);
            let start = self.now();
            let mut answers = self.shared.answers[chunk.slot]
                .lock()
                .unwrap_or_else(|e| e.into_inner());
            // A member that was abandoned writes no answers: other members have its chunks now.
            if self.shared.state().members[self.who].times.failed.is_some() {
                return Err(too_late());
            }
            for (i, n) in chunk.records.clone().enumerate() {
                let answer = engine.answer(place, i);
                let to = &mut answers.scores[n * scores..(n + 1) * scores];
                to.iter_mut()
                    .zip(answer.scores.iter())
                    .for_each(|(to, score)| *to = score);
                if classes {
                    answers.classes[n] = answer.class.unwrap_or(NAN_CLASS);
                }
            }
            self.keep("answers", place, records, start);
            Ok(())
        })?;
        let now = Instant::now();
        let busy = now - chunk.taken.max(*free);
        *free = now;
        self.shared.complete(self.who, place, busy);
        Ok(())
    }
}

impl MultiEngine {
    /// Starts the `members`, which all run the same network. `timed` measures the time for
    /// decoding. `track` is the stream's track of the trace.
    pub(crate) fn new(
        members: Vec<Member>,
        sizes: RecordSizes,
        timed: bool,
        track: Option<Track>,
    ) -> MultiEngine {
        let all: usize = members.iter().map(|m| m.facts.batch).sum();
        let most = SLOT_BYTES / (4 * sizes.width).max(1);
        let batch = (BATCHES * all).min(most.max(all));
        let (now, count) = (Instant::now(), members.len());
        let answers = || Answers {
            scores: vec![0.0; batch * sizes.scores],
            classes: vec![0; if sizes.classes { batch } else { 0 }],
        };
        let submitted = || SubmittedSlot {
            input: None,
            open: 0..0,
            returned: Vec::with_capacity(SLOTS * count),
            left: 0,
        };
        let input = || Arc::new(KeptRecords::new(batch, sizes.width, batch));
        let state = QueueState {
            slots: [(); SLOTS].map(|()| submitted()),
            newest: 0,
            members: (0..count).map(|_| MemberState::new(now)).collect(),
            party: Party::new(),
            full: false,
            done: None,
            measuring: None,
            quit: false,
            failure: None,
        };
        let worker = |m: &Member| WorkerShared::new(&m.facts, sizes.width);
        let shared = Arc::new(Shared {
            workers: members.iter().map(worker).collect(),
            state: Mutex::new(state),
            done: Condvar::new(),
            answers: [(); SLOTS].map(|()| Mutex::new(answers())),
            sizes,
            timed,
            track,
        });
        for (who, member) in members.iter().enumerate() {
            member
                .control
                .set(WorkerState::Working(Arc::clone(&shared), who));
        }
        MultiEngine {
            shared,
            members,
            inputs: [(); SLOTS].map(|()| input()),
            answers: [(); SLOTS].map(|()| answers()),
            batch,
            score_rows: (0..sizes.scores as u32).collect(),
        }
    }
}

impl Engine for MultiEngine {
    fn batch(&self) -> usize {
        self.batch
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        Ok(KeptRecords::exclusive(&mut self.inputs[slot], slot)?.record(index))
    }

    fn defer(&mut self, slot: usize, index: usize, decode: &Arc<dyn Decode>, bytes: &[u8]) -> bool {
        KeptRecords::exclusive(&mut self.inputs[slot], slot)
            .is_ok_and(|input| input.defer(index, decode, bytes))
    }

    fn refused(&self, slot: usize, from: usize) -> Option<(usize, Refusal)> {
        self.inputs[slot].refused(from)
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        KeptRecords::exclusive(&mut self.inputs[slot], slot)?.submit();
        let mut state = self.shared.state();
        if let Some(failure) = &state.failure {
            return Err(failure.error());
        }
        let submitted = &mut state.slots[slot];
        submitted.input = Some(Arc::clone(&self.inputs[slot]));
        submitted.open = 0..records;
        submitted.left = records;
        state.newest = slot;
        state.full = records == self.batch;
        if !state.full {
            state.done = None;
        }
        self.shared.wake(&state);
        Ok(())
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        let mut state = self.shared.state();
        if state.slots[slot].input.is_none() {
            return Ok(());
        }
        while state.slots[slot].left > 0 {
            if let Some(failure) = state.failure.as_ref().map(Failure::error) {
                let submitted = &mut state.slots[slot];
                (submitted.input, submitted.open) = (None, 0..0);
                submitted.returned.clear();
                return Err(failure);
            }
            let tick;
            (state, tick) = wait(&self.shared.done, state);
            watchdog::alive();
            if let Some((who, silence)) = tick.then(|| self.shared.silent(&mut state)).flatten() {
                drop(state);
                self.members[who].abandon();
                self.shared.fail(who, Error::device(silence));
                state = self.shared.state();
            }
        }
        state.slots[slot].input = None;
        if state.full && self.members.len() > 1 {
            let (now, fastest) = (Instant::now(), state.fastest());
            if let Some(before) = state.done.replace(now) {
                state.party.observe(self.batch, us(now - before), fastest);
            }
        }
        drop(state);
        let mut answers = self.shared.answers[slot]
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        std::mem::swap(&mut *answers, &mut self.answers[slot]);
        Ok(())
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        let RecordSizes {
            scores, classes, ..
        } = self.shared.sizes;
        let answers = &self.answers[slot];
        Answer {
            class: classes.then(|| answers.classes[index]),
            scores: Record::new(&answers.scores, &self.score_rows, index * scores),
        }
    }

    fn members(&mut self) -> Vec<MemberMeasurements> {
        let mut members = Vec::with_capacity(self.members.len());
        for (who, worker) in self.shared.workers.iter().enumerate() {
            let clock = worker
                .at_rest()
                .and_then(|mut local| local.engine.as_mut()?.step_times());
            let times = self.shared.state().members[who].times.clone();
            members.push(MemberMeasurements { times, clock });
        }
        members
    }
}

impl Drop for MultiEngine {
    fn drop(&mut self) {
        self.shared.state().quit = true;
        self.shared.workers.iter().for_each(|w| w.wake.notify_one());
        self.members.clear();
    }
}
