//! Several devices, the host engine among them if that is wanted, as one engine that shares a
//! stream among them.
//!
//! ```text
//!   stream ─▶ slot 0 ┐                       ┌─▶ member 0 (a thread): decode · submit · collect ─┐
//!             slot 1 ┘ ── chunks, in order ──┼─▶ member 1 (a thread)                             ├─▶ answers, in place
//!                                            └─▶ …                                               ┘
//! ```
//!
//! A slot is large: several batches of all members. It stays in the host's memory, as bytes or as
//! numbers in plain order, until it is answered. Whoever is free takes the next chunk of the oldest
//! slot, decodes it into its own device's buffer and copies the answers to their places, so that
//! the order of the stream is kept whoever is first. When a member fails, its chunks are still
//! there and go back to the queue.
//!
//! How large is a chunk? Three ways were weighed. Fixed shares by measured speed need no queue, but
//! each slot then lasts as long as the member whose speed was estimated worst. Equal chunks for
//! whoever is free adapt by themselves, but at the end everybody waits for the slowest one's last
//! chunk; a lone record goes to anybody. Here whoever is free takes a full batch, as long as it
//! will not be the last to end: chunks are bounded by what the member gets done until all of what
//! is queued can be done (`pace`). So a slow member takes less at the end, or nothing, and a lone
//! record goes where it is answered first. Since the stream refills a slot only when all of it is
//! answered, a chunk may take no longer than the rest of its slot and half of the next one: the
//! others never wait for it.
//!
//! Members may be in each other's way: the host engine and a driver that computes on the same
//! cores, or whose thread takes one of them. So where the stream keeps everybody busy and all
//! together are not clearly faster than the best of them was by itself at its start, slots that all
//! share are timed against slots that the fastest member does alone, and what was faster stays
//! (`pace::Party`): several are not slower than the best of them.
//!
//! A member has two chunks in flight, so that its device computes one while the other is decoded;
//! but where submitting takes most of a chunk's time (PoCL's basic device computes there) a second
//! one would only make the answers late.
//!
//! An engine is built, used and dropped by one thread, its member's: drivers and simulators keep
//! things of their own for each thread. Engines are built one after the other, because drivers lock
//! their compilers, and the second of two equal devices finds what the first one has compiled.
//! Speeds are measured with two small batches on each member's own thread while the stream starts,
//! one member after the other, after a first one, because the first launches of a driver say
//! nothing; then with every chunk.
//!
//! Nothing is allocated after start-up, and threads without work sleep.

mod pace;
#[cfg(test)]
mod tests;

use super::deferred::{Decode, Deferred, Refusal};
use super::{Answer, Engine, NAN_CLASS, Record, RecordMut, RecordRows, SLOTS};
use crate::error::{Error, ErrorKind, say};
use crate::observe::profile::MemberTimes;
use crate::observe::report::MemberMeasurements;
use crate::observe::trace::{Name, Track};
use crate::sys::thread::{Serve, Thread};
use crate::sys::watchdog;
use pace::{Pace, Party};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Full batches of all members that a slot holds.
const BATCHES: usize = 4;

/// Bytes of numbers that a slot need not exceed, as long as it holds a batch of each member.
const SLOT_BYTES: usize = 64 << 20;

/// An engine that takes part, built on its own thread.
pub(crate) struct Member {
    control: Arc<WorkerControl>,
    thread: Option<Thread>,
    facts: MemberFacts,
}

/// For how long somebody has given no sign of life, in ticks of the watchdog.
#[derive(Default)]
struct Silence {
    signs: u64,
    ticks: u32,
}

impl Silence {
    /// Called once a tick with the number of signs so far: whether it lasts for too long, measured
    /// by the slowest batch.
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

/// Waits on a condition; whether for a whole tick.
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

/// What is known of a member's engine.
#[derive(Clone, Debug)]
pub(crate) struct MemberFacts {
    /// Its device, in words.
    pub(crate) name: String,
    /// Most records of a batch.
    pub(crate) batch: usize,
    /// Part batches cost as much as the next multiple of this.
    pub(crate) granule: usize,
    /// It is a CPU device, whose driver compiles into this process and shares what it has compiled
    /// among devices.
    pub(crate) in_process: bool,
    /// Where what it does is kept, if somebody wants to know; its engine has the same.
    pub(crate) track: Option<Track>,
}

/// What builds an engine, on the thread that will use it.
pub(crate) type Build =
    Box<dyn FnOnce() -> Result<(Box<dyn Engine + Send>, MemberFacts), Error> + Send>;

/// What a member's thread and the others share before the stream.
struct WorkerControl {
    build: Mutex<Option<Build>>,
    state: Mutex<WorkerState>,
    changed: Condvar,
}

/// What a member's thread is about.
enum WorkerState {
    Building,
    Built(Result<MemberFacts, Error>),
    /// Not needed, or not yet.
    Waiting,
    /// Works as member so-and-so.
    Working(Arc<Shared>, usize),
    Ended,
}

impl Member {
    /// Starts a thread that builds an engine, and waits for it.
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

    /// Its thread hangs in a driver: nobody waits for its end.
    fn abandon(&mut self) {
        self.thread = None;
        watchdog::abandon();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Those that work have been told already.
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

    /// Waits for a state, and leaves `Waiting` behind.
    fn wait_for(&self, wanted: impl Fn(&WorkerState) -> bool) -> WorkerState {
        let mut state = self.state();
        while !wanted(&state) {
            state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        std::mem::replace(&mut *state, WorkerState::Waiting)
    }

    /// Waits until the engine is built. An error where its driver gives no sign of life for too
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
            // It took so long that nobody waits for it.
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
                // Its times are asked for at the end.
                worker.shared.sleep_on(who);
            }
            worker.local().engine = None;
        }
    }
}

/// What of a record the stream wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSizes {
    /// Numbers of a record.
    pub(crate) width: usize,
    /// Scores of a record; 0 where they are not wanted.
    pub(crate) scores: usize,
    /// Whether there are classes.
    pub(crate) classes: bool,
}

/// Several engines as one.
pub(crate) struct MultiEngine {
    shared: Arc<Shared>,
    members: Vec<Member>,
    /// The input of each slot. Members have it while the slot is submitted.
    inputs: [Arc<Input>; SLOTS],
    /// The answers of collected slots.
    answers: [Answers; SLOTS],
    batch: usize,
    /// Place of each number and score of a record.
    rows: (RecordRows, Vec<u32>),
}

/// The records of a slot, as bytes or as numbers in plain order.
struct Input {
    deferred: Deferred,
    values: Vec<f32>,
}

struct Answers {
    scores: Vec<f32>,
    classes: Vec<u32>,
}

/// What the threads share.
struct Shared {
    workers: Vec<WorkerShared>,
    state: Mutex<QueueState>,
    /// A slot is done, or the last member has failed.
    done: Condvar,
    /// The answers of submitted slots.
    answers: [Mutex<Answers>; SLOTS],
    sizes: RecordSizes,
    timed: bool,
    /// The stream's: it knows the batch in each slot.
    track: Option<Track>,
}

/// What a member's thread shares with the others.
struct WorkerShared {
    name: String,
    granule: usize,
    batch: usize,
    in_process: bool,
    track: Option<Track>,
    local: Mutex<WorkerLocal>,
    /// There may be work for it.
    wake: Condvar,
}

impl WorkerShared {
    /// What is the thread's own, when it is done with it: that may measure its speed still. `None`
    /// where it hangs.
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

/// What only the member's thread uses, but for times.
struct WorkerLocal {
    engine: Option<Box<dyn Engine + Send>>,
    /// A record whose place is not one piece.
    record: Vec<f32>,
}

/// The records that wait, and who computes which.
struct QueueState {
    slots: [SubmittedSlot; SLOTS],
    /// The slot that was submitted last.
    newest: usize,
    members: Vec<MemberState>,
    /// Who takes part where the stream keeps everybody busy, and whether that is so now.
    party: Party,
    full: bool,
    /// When the last full slot was done.
    done: Option<Instant>,
    /// Who measures its speed, while no other member runs.
    measuring: Option<usize>,
    quit: bool,
    /// Why the last member failed.
    failure: Option<Failure>,
}

/// The end of the last member.
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

/// A submitted slot.
struct SubmittedSlot {
    input: Option<Arc<Input>>,
    /// Records that nobody has taken.
    open: Range<usize>,
    /// Those that a failed member had.
    returned: Vec<Range<usize>>,
    /// Records without an answer.
    left: usize,
}

impl SubmittedSlot {
    /// Records that wait for a member.
    fn waiting(&self) -> usize {
        self.open.len() + self.returned.iter().map(Range::len).sum::<usize>()
    }
}

/// How a member is doing.
struct MemberState {
    /// Its speed, once it was measured.
    pace: Option<Pace>,
    /// Its chunks: place in its engine is place here.
    chunks: [Option<Chunk>; SLOTS],
    /// When they should be done.
    ends: Instant,
    asleep: bool,
    /// Signs of life: what it has begun and ended.
    signs: u64,
    silence: Silence,
    /// Its slowest chunk.
    slowest: Option<Duration>,
    /// What it has done.
    times: MemberTimes,
}

/// Records of a slot that a member computes.
#[derive(Clone)]
struct Chunk {
    slot: usize,
    records: Range<usize>,
    taken: Instant,
}

fn us(d: Duration) -> f64 {
    d.as_secs_f64() * 1e6
}

impl MemberState {
    /// Microseconds until it is free. Where it is late, as long again.
    fn pending(&self, now: Instant) -> f64 {
        if self.chunks.iter().all(Option::is_none) {
            return 0.0;
        }
        us(self.ends.saturating_duration_since(now)) + us(now.saturating_duration_since(self.ends))
    }
}

impl QueueState {
    /// The slot whose records come next.
    fn oldest(&self) -> Option<usize> {
        let by_age = [(self.newest + 1) % SLOTS, self.newest];
        by_age
            .into_iter()
            .find(|&slot| self.slots[slot].waiting() > 0)
    }

    /// The member that is fastest in full batches.
    fn fastest(&self) -> Option<usize> {
        let rates = self
            .members
            .iter()
            .enumerate()
            .filter_map(|(i, m)| Some((i, m.pace.as_ref()?.rate())));
        rates.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
    }

    /// How many records of which slot member `who` should take now, and when all that counts should
    /// be done.
    fn offer(&self, who: usize, granule: usize, now: Instant) -> Option<(usize, usize, f64)> {
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
        Some((slot, records.min(waiting), horizon))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Wakes the sleepers that should take something.
    fn wake(&self, state: &QueueState) {
        if state.members.iter().any(|m| m.asleep) && state.oldest().is_some() {
            let now = Instant::now();
            let asleep = |(who, _): &(usize, &WorkerShared)| state.members[*who].asleep;
            for (who, worker) in self.workers.iter().enumerate().filter(asleep) {
                if state
                    .offer(who, worker.granule, now)
                    .is_some_and(|o| o.1 > 0)
                {
                    worker.wake.notify_one();
                }
            }
        }
    }

    /// A member that has failed waits for the end.
    fn sleep_on(&self, who: usize) {
        let mut state = self.state();
        while !state.quit {
            state = self.workers[who]
                .wake
                .wait(state)
                .unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Lets member `who` be the only one that runs. One that hangs there is not waited for.
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

    /// The next one may measure its speed.
    fn end_measuring(&self, who: usize) {
        let mut state = self.state();
        // Unless it was given up, and another one runs.
        state.measuring = state.measuring.filter(|&other| other != who);
        drop(state);
        self.workers.iter().for_each(|w| w.wake.notify_one());
    }

    /// Takes a chunk for `place` of member `who`. If it has nothing else to do it waits for one
    /// until the end.
    fn take(&self, who: usize, place: usize, wait: bool) -> Option<(Chunk, Arc<Input>)> {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if state.quit || state.members[who].times.failed.is_some() {
                return None;
            }
            state.members[who].signs += 1;
            let offer = state.offer(who, self.workers[who].granule, now);
            if let Some((slot, records @ 1.., _)) = offer {
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
                let chunk = Chunk {
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
                // The others should have done it by then; if they are late this one helps.
                Some((_, _, horizon)) => {
                    let until = Duration::from_micros(horizon.clamp(1e3, 1e7) as u64);
                    wake.wait_timeout(state, until)
                        .map_or_else(|e| e.into_inner().0, |s| s.0)
                }
                None => wake.wait(state).unwrap_or_else(|e| e.into_inner()),
            };
            state.members[who].asleep = false;
        }
    }

    /// The answers of a chunk are where they belong; the member was busy with it for `busy`.
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

    /// Once a tick: the member whose driver does not come back, and for how long.
    fn silent(&self, state: &mut QueueState) -> Option<(usize, String)> {
        let members = state.members.iter_mut().enumerate();
        let mut busy = members.filter(|(_, m)| !m.asleep && m.times.failed.is_none());
        busy.find_map(|(who, m)| {
            m.silence
                .lasts(m.signs, m.slowest)
                .then(|| (who, m.silence.text()))
        })
    }

    /// Member `who` has failed: the others get its chunks. The last one's error ends the stream.
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
            // Those that wait for its first run, too.
            self.workers.iter().for_each(|w| w.wake.notify_one());
        }
    }
}

/// What a member says that was given up meanwhile; nobody hears it.
fn too_late() -> Error {
    Error::device("too late")
}

/// A member's thread.
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

    /// Work on the engine and a record that is not one piece.
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
        let mut chunks: [Option<Chunk>; SLOTS] = [const { None }; SLOTS];
        let mut place = 0;
        // When the device became free of what came before.
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
                    // Before the slot can be answered: the stream wants its input back.
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

    /// The time, if there is a trace.
    fn now(&self) -> Option<Instant> {
        self.track().map(|_| Instant::now())
    }

    /// Keeps what was done since `start`.
    fn keep(&self, name: &'static str, place: usize, records: usize, start: Option<Instant>) {
        if let (Some(track), Some(start)) = (self.track(), start) {
            track.span(Name::Text(name), place, records, start, start.elapsed());
        }
    }

    /// The member's speed, by runs on records of zeros, and whether it computes while it is
    /// submitted to; `None` if the stream has ended meanwhile.
    fn measure(&self) -> Result<Option<(Pace, bool)>, Error> {
        let worker = &self.shared.workers[self.who];
        let few = worker.batch.div_ceil(4);
        let begun = self.now();
        let (mut times, mut submitting) = ([0.0; 3], 0.0);
        // The first run counts for nothing: drivers compile, or page memory in. In this process it
        // is a full batch, and one member's at a time: PoCL 3.1 keeps what it has compiled with the
        // largest grid it has seen, a larger one makes a second entry, and where both fit, runs on
        // several devices give back each other's and end the program (an assertion). The others by
        // themselves, too: how fast each is alone is what all are to be better than (`Party`).
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

    /// Decodes a chunk into the engine's slot.
    fn prepare(&self, chunk: &Chunk, place: usize, input: &Input) -> Result<(), Error> {
        let start = self.shared.timed.then(Instant::now);
        let width = self.shared.sizes.width;
        self.with_engine(|engine, record| {
            for (i, n) in chunk.records.clone().enumerate() {
                let mut to = engine.record(place, i)?;
                let plain = &input.values[n * width..(n + 1) * width];
                let bytes = input.deferred.has_all(n..n + 1);
                match to.contiguous() {
                    Some(values) if bytes => input.deferred.decode(n, values),
                    Some(values) => values.copy_from_slice(plain),
                    None if bytes => {
                        input.deferred.decode(n, record);
                        to.scatter(record);
                    }
                    None => to.scatter(plain),
                }
            }
            Ok(())
        })?;
        if let Some(start) = start {
            let elapsed = start.elapsed();
            self.shared.state().members[self.who].times.decode += elapsed;
            self.keep("decode", place, chunk.records.len(), Some(start));
        }
        Ok(())
    }

    /// Waits for the chunk at `place` and copies its answers to where they belong.
    fn finish(
        &self,
        place: usize,
        chunks: &mut [Option<Chunk>; SLOTS],
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
            // Who comes back too late has lost its chunk to another.
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
    /// Puts the `members`, all of which run the same network, to work. `timed`: keep the time that
    /// they decode. `sizes`: those of a record. `track` is the stream's.
    pub(crate) fn new(
        members: Vec<Member>,
        sizes: RecordSizes,
        timed: bool,
        track: Option<Track>,
    ) -> MultiEngine {
        let all: usize = members.iter().map(|m| m.facts.batch).sum();
        let most = SLOT_BYTES / (4 * sizes.width).max(1);
        let batch = (BATCHES * all).min(most.max(all));
        let now = Instant::now();
        let member = |_| MemberState {
            pace: None,
            chunks: [const { None }; SLOTS],
            ends: now,
            asleep: false,
            signs: 0,
            silence: Silence::default(),
            slowest: None,
            times: MemberTimes::default(),
        };
        let answers = || Answers {
            scores: vec![0.0; batch * sizes.scores],
            classes: vec![0; if sizes.classes { batch } else { 0 }],
        };
        let count = members.len();
        let submitted = || SubmittedSlot {
            input: None,
            open: 0..0,
            returned: Vec::with_capacity(SLOTS * count),
            left: 0,
        };
        let input = || {
            let deferred = Deferred::new(batch, sizes.width);
            Arc::new(Input {
                deferred,
                values: vec![0.0; batch * sizes.width],
            })
        };
        let state = QueueState {
            slots: [(); SLOTS].map(|()| submitted()),
            newest: 0,
            members: (0..count).map(member).collect(),
            party: Party::new(),
            full: false,
            done: None,
            measuring: None,
            quit: false,
            failure: None,
        };
        let worker = |m: &Member| WorkerShared {
            name: m.facts.name.clone(),
            granule: m.facts.granule,
            batch: m.facts.batch,
            in_process: m.facts.in_process,
            track: m.facts.track,
            local: Mutex::new(WorkerLocal {
                engine: None,
                record: vec![0.0; sizes.width],
            }),
            wake: Condvar::new(),
        };
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
            rows: (
                RecordRows::first(sizes.width),
                (0..sizes.scores as u32).collect(),
            ),
        }
    }

    /// The input of a slot that is not submitted.
    fn input(&mut self, slot: usize) -> Result<&mut Input, Error> {
        Arc::get_mut(&mut self.inputs[slot])
            .ok_or_else(|| Error::device(format!("slot {slot} was not collected")))
    }
}

impl Engine for MultiEngine {
    fn batch(&self) -> usize {
        self.batch
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        let width = self.shared.sizes.width;
        let input = Arc::get_mut(&mut self.inputs[slot])
            .ok_or_else(|| Error::device(format!("slot {slot} was not collected")))?;
        Ok(RecordMut::new(
            &mut input.values,
            &self.rows.0,
            index * width,
        ))
    }

    fn defer(&mut self, slot: usize, index: usize, decode: &Arc<dyn Decode>, bytes: &[u8]) -> bool {
        self.input(slot)
            .is_ok_and(|input| input.deferred.push(index, decode, bytes))
    }

    fn refused(&self, slot: usize, from: usize) -> Option<(usize, Refusal)> {
        self.inputs[slot]
            .deferred
            .refused(self.shared.sizes.width, from)
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        self.input(slot)?.deferred.submit();
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
            scores: Record::new(&answers.scores, &self.rows.1, index * scores),
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
