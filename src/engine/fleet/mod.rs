//! Several devices, the host engine among them if that is wanted, as one engine that shares a stream among them.
//!
//! ```text
//!   stream ─▶ slot 0 ┐                       ┌─▶ member 0 (a thread): decode · submit · collect ─┐
//!             slot 1 ┘ ── chunks, in order ──┼─▶ member 1 (a thread)                             ├─▶ answers, in place
//!                                            └─▶ …                                               ┘
//! ```
//!
//! A slot is large: several batches of all members. It stays in the host's memory, as bytes or as numbers in plain
//! order, until it is answered. Whoever is free takes the next chunk of the oldest slot, decodes it into its own device's
//! buffer and copies the answers to their places, so that the order of the stream is kept whoever is first. When a member
//! fails, its chunks are still there and go back to the queue.
//!
//! How large is a chunk? Three ways were weighed. Fixed shares by measured speed need no queue, but each slot then
//! lasts as long as the member whose speed was estimated worst. Equal chunks for whoever is free adapt by themselves,
//! but at the end everybody waits for the slowest one's last chunk; a lone record goes to anybody. Here whoever is free
//! takes a full batch, as long as it will not be the last to end: chunks are bounded by what the member gets done until
//! all of what is queued can be done (`pace`). So a slow member takes less at the end, or nothing, and a lone record goes
//! where it is answered first. Since the stream refills a slot only when all of it is answered, a chunk may take no
//! longer than the rest of its slot and half of the next one: the others never wait for it.
//!
//! A member has two chunks in flight, so that its device computes one while the other is decoded; but where submitting
//! takes most of a chunk's time (PoCL's basic device computes there) a second one would only make the answers late.
//!
//! An engine is built, used and dropped by one thread, its member's: drivers and simulators keep things of their own for
//! each thread. Engines are built one after the other, because drivers lock their compilers, and the second of two equal
//! devices finds what the first one has compiled. Speeds are measured with two small batches on each member's own thread
//! while the stream starts, after a first one, because the first launches of a driver say nothing; then with every chunk.
//!
//! Nothing is allocated after start-up, and threads without work sleep.

mod pace;
#[cfg(test)]
mod tests;

use super::deferred::{Decode, Deferred, Refusal};
use super::{Answer, Engine, NAN_CLASS, Record, RecordMut, SLOTS};
use crate::error::{Error, say};
use crate::observe::profile::{MemberTimes, StepClock};
use crate::observe::trace::{Name, Track};
use crate::sys::thread::{Serve, Thread};
use pace::Pace;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Full batches of all members that a slot holds.
const BATCHES: usize = 4;

/// Bytes of numbers that a slot need not exceed, as long as it holds a batch of each member.
const SLOT_BYTES: usize = 64 << 20;

/// An engine that takes part, built on its own thread.
pub struct Member {
    seat: Arc<Seat>,
    thread: Option<Thread>,
    facts: Facts,
}

/// What is known of a member's engine.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its device, in words.
    pub name: String,
    /// Most records of a batch.
    pub batch: usize,
    /// Part batches cost as much as the next multiple of this.
    pub granule: usize,
    /// It is a CPU device, whose driver compiles into this process and shares what it has compiled among devices.
    pub in_process: bool,
    /// Where what it does is kept, if somebody wants to know; its engine has the same.
    pub track: Option<Track>,
}

/// What builds an engine, on the thread that will use it.
pub type Build = Box<dyn FnOnce() -> Result<(Box<dyn Engine + Send>, Facts), Error> + Send>;

/// Where a member's thread and the others meet before the stream.
struct Seat {
    build: Mutex<Option<Build>>,
    stage: Mutex<Stage>,
    turn: Condvar,
}

enum Stage {
    Building,
    Built(Result<Facts, Error>),
    /// Not needed, or not yet.
    Waiting,
    /// Member so-and-so of a fleet.
    Taken(Arc<Shared>, usize),
    Leave,
}

impl Member {
    /// Starts a thread that builds an engine, and waits for it.
    pub fn start(build: Build) -> Result<Member, Error> {
        let (stage, turn) = (Mutex::new(Stage::Building), Condvar::new());
        let seat = Arc::new(Seat { build: Mutex::new(Some(build)), stage, turn });
        let thread =
            Thread::start(Arc::clone(&seat)).map_err(|e| Error::caused("cannot start a thread", e))?;
        let built = seat.next(|stage| matches!(stage, Stage::Built(_)));
        let facts = Facts { name: String::new(), batch: 0, granule: 0, in_process: false, track: None };
        let mut member = Member { seat, thread: Some(thread), facts };
        if let Stage::Built(facts) = built {
            member.facts = facts?;
        }
        Ok(member)
    }

    /// What is known of its engine.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // A fleet's members have been told already.
        self.seat.enter(Stage::Leave);
        self.thread.take().into_iter().for_each(Thread::join);
    }
}

impl Seat {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn enter(&self, stage: Stage) {
        *self.stage() = stage;
        self.turn.notify_all();
    }

    /// Waits for a stage, and leaves `Waiting` behind.
    fn next(&self, wanted: impl Fn(&Stage) -> bool) -> Stage {
        let mut stage = self.stage();
        while !wanted(&stage) {
            stage = self.turn.wait(stage).unwrap_or_else(|e| e.into_inner());
        }
        std::mem::replace(&mut *stage, Stage::Waiting)
    }
}

impl Serve for Seat {
    fn serve(&self) {
        let Some(build) = self.build.lock().unwrap_or_else(|e| e.into_inner()).take() else { return };
        let (engine, facts) = match build() {
            Ok((engine, facts)) => (Some(engine), Ok(facts)),
            Err(e) => (None, Err(e)),
        };
        self.enter(Stage::Built(facts));
        let Some(engine) = engine else { return };
        if let Stage::Taken(shared, who) = self.next(|s| matches!(s, Stage::Taken(..) | Stage::Leave)) {
            let worker = Worker { shared, who };
            worker.desk().engine = Some(engine);
            if let Err(e) = worker.run() {
                worker.shared.fail(who, e);
                // Its times are asked for at the end.
                worker.shared.sleep_on(who);
            }
            worker.desk().engine = None;
        }
    }
}

/// What of a record the stream wants.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Numbers of a record.
    pub width: usize,
    /// Scores of a record; 0 where they are not wanted.
    pub scores: usize,
    /// Whether there are classes.
    pub classes: bool,
}

/// Several engines as one.
pub struct Fleet {
    shared: Arc<Shared>,
    members: Vec<Member>,
    /// The input of each slot. Members have it while the slot is submitted.
    inputs: [Arc<Input>; SLOTS],
    /// The answers of collected slots.
    answers: [Answers; SLOTS],
    batch: usize,
    /// Place of each number and score of a record.
    rows: Vec<u32>,
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
    crew: Vec<Crew>,
    state: Mutex<State>,
    /// A slot is done, or the last member has failed.
    done: Condvar,
    /// Whoever in this process runs for the first time.
    first: Mutex<()>,
    /// The answers of submitted slots.
    answers: [Mutex<Answers>; SLOTS],
    sizes: Sizes,
    timed: bool,
    /// The stream's: it knows the batch in each slot.
    track: Option<Track>,
}

/// A member, for its thread.
struct Crew {
    name: String,
    granule: usize,
    batch: usize,
    in_process: bool,
    track: Option<Track>,
    desk: Mutex<Desk>,
    /// There may be work for it.
    bell: Condvar,
}

/// What only the member's thread uses, but for times.
struct Desk {
    engine: Option<Box<dyn Engine + Send>>,
    /// A record whose place is not one piece.
    record: Vec<f32>,
}

struct State {
    slots: [Order; SLOTS],
    /// The slot that was submitted last.
    newest: usize,
    members: Vec<Standing>,
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
        Error::Device { what: self.what.clone(), source: Some(source) }
    }
}

/// A submitted slot.
struct Order {
    input: Option<Arc<Input>>,
    /// Records that nobody has taken.
    open: Range<usize>,
    /// Those that a failed member had.
    returned: Vec<Range<usize>>,
    /// Records without an answer.
    left: usize,
}

impl Order {
    /// Records that wait for a member.
    fn waiting(&self) -> usize {
        self.open.len() + self.returned.iter().map(Range::len).sum::<usize>()
    }
}

/// How a member is doing.
struct Standing {
    /// Its speed, once it was measured.
    pace: Option<Pace>,
    /// Its chunks: place in its engine is place here.
    chunks: [Option<Chunk>; SLOTS],
    /// When they should be done.
    ends: Instant,
    asleep: bool,
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

impl Standing {
    /// Microseconds until it is free. Where it is late, as long again.
    fn pending(&self, now: Instant) -> f64 {
        if self.chunks.iter().all(Option::is_none) {
            return 0.0;
        }
        us(self.ends.saturating_duration_since(now)) + us(now.saturating_duration_since(self.ends))
    }
}

impl State {
    /// The slot whose records come next.
    fn oldest(&self) -> Option<usize> {
        let order = [(self.newest + 1) % SLOTS, self.newest];
        order.into_iter().find(|&slot| self.slots[slot].waiting() > 0)
    }

    /// How many records of which slot member `who` should take now, and when all that counts should be done.
    fn offer(&self, who: usize, granule: usize, now: Instant) -> Option<(usize, usize, f64)> {
        let slot = self.oldest()?;
        let waiting = self.slots[slot].waiting();
        let next = if slot == self.newest { 0 } else { self.slots[self.newest].waiting() };
        let paces = self.members.iter().filter_map(|m| Some((m.pace.as_ref()?, m.pending(now))));
        let horizon = pace::horizon(paces, waiting + next / 2);
        let me = &self.members[who];
        let records = pace::share(me.pace.as_ref()?, me.pending(now), horizon, granule);
        Some((slot, records.min(waiting), horizon))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Wakes the sleepers that should take something.
    fn rouse(&self, state: &State) {
        if state.members.iter().any(|m| m.asleep) && state.oldest().is_some() {
            let now = Instant::now();
            for (who, crew) in self.crew.iter().enumerate().filter(|(who, _)| state.members[*who].asleep) {
                if state.offer(who, crew.granule, now).is_some_and(|o| o.1 > 0) {
                    crew.bell.notify_one();
                }
            }
        }
    }

    /// A member that has failed waits for the end.
    fn sleep_on(&self, who: usize) {
        let mut state = self.state();
        while !state.quit {
            state = self.crew[who].bell.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Takes a chunk for `place` of member `who`. If it has nothing else to do it waits for one until the end.
    fn take(&self, who: usize, place: usize, wait: bool) -> Option<(Chunk, Arc<Input>)> {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if state.quit {
                return None;
            }
            let offer = state.offer(who, self.crew[who].granule, now);
            if let Some((slot, records @ 1.., _)) = offer {
                let order = &mut state.slots[slot];
                let source = order.returned.last_mut().unwrap_or(&mut order.open);
                let records = source.start..source.end.min(source.start + records);
                source.start = records.end;
                if order.returned.last().is_some_and(Range::is_empty) {
                    order.returned.pop();
                }
                let input = order.input.clone()?;
                let member = &mut state.members[who];
                let time = member.pace.as_ref().map_or(0.0, |p| p.time(records.len()));
                let free = if member.pending(now) > 0.0 { member.ends.max(now) } else { now };
                member.ends = free + Duration::from_nanos((time * 1e3) as u64);
                let chunk = Chunk { slot, records, taken: now };
                member.chunks[place] = Some(chunk.clone());
                return Some((chunk, input));
            }
            if !wait {
                return None;
            }
            state.members[who].asleep = true;
            let bell = &self.crew[who].bell;
            state = match offer {
                // The others should have done it by then; if they are late this one helps.
                Some((_, _, horizon)) => {
                    let until = Duration::from_micros(horizon.clamp(1e3, 1e7) as u64);
                    bell.wait_timeout(state, until).map_or_else(|e| e.into_inner().0, |s| s.0)
                }
                None => bell.wait(state).unwrap_or_else(|e| e.into_inner()),
            };
            state.members[who].asleep = false;
        }
    }

    /// The answers of a chunk are where they belong; the member was busy with it for `busy`.
    fn complete(&self, who: usize, place: usize, busy: Duration) {
        let mut guard = self.state();
        let state = &mut *guard;
        let member = &mut state.members[who];
        let Some(chunk) = member.chunks[place].take() else { return };
        let records = chunk.records.len();
        member.times.records += records as u64;
        member.times.batches += 1;
        member.times.busy += busy;
        if let Some(pace) = &mut member.pace {
            pace.observe(records, us(busy));
            let rest: f64 = member.chunks.iter().flatten().map(|c| pace.time(c.records.len())).sum();
            member.ends = Instant::now() + Duration::from_nanos((rest * 1e3) as u64);
        }
        let order = &mut state.slots[chunk.slot];
        order.left -= records;
        if order.left == 0 {
            self.done.notify_all();
        }
        self.rouse(state);
    }

    /// Member `who` has failed: the others get its chunks. The last one's error ends the stream.
    fn fail(&self, who: usize, error: Error) {
        let name = &self.crew[who].name;
        let mut guard = self.state();
        let state = &mut *guard;
        if state.quit {
            return;
        }
        let member = &mut state.members[who];
        member.pace = None;
        member.times.failed = Some(error.to_string());
        for chunk in member.chunks.iter_mut().filter_map(Option::take) {
            state.slots[chunk.slot].returned.push(chunk.records);
        }
        if state.members.iter().all(|m| m.times.failed.is_some()) {
            let what = format!("{name}: {error}; no other device is left");
            state.failure = Some(Failure { what, source: Arc::new(error) });
            self.done.notify_all();
        } else {
            say(&format!("{name}: {error}; the other devices do its part"));
            self.rouse(state);
        }
    }
}

/// A member's thread.
struct Worker {
    shared: Arc<Shared>,
    who: usize,
}

impl Worker {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.shared.crew[self.who].desk.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Work on the engine and a record that is not one piece.
    fn at_desk<T>(
        &self,
        work: impl FnOnce(&mut dyn Engine, &mut [f32]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut desk = self.desk();
        let Desk { engine, record } = &mut *desk;
        match engine {
            Some(engine) => work(engine.as_mut(), record),
            None => Err(Error::device("its engine is gone")),
        }
    }

    fn run(&self) -> Result<(), Error> {
        let Some((pace, at_once)) = self.measure()? else { return Ok(()) };
        let mut state = self.shared.state();
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
                    self.at_desk(|engine, _| engine.submit(place, records))?;
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
                None => place = if chunks[place].is_some() { place } else { other },
            }
            self.finish(place, &mut chunks, &mut free)?;
        }
    }

    fn track(&self) -> Option<Track> {
        self.shared.crew[self.who].track
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

    /// The member's speed, by runs on records of zeros, and whether it computes while it is submitted to; `None` if the
    /// stream has ended meanwhile.
    fn measure(&self) -> Result<Option<(Pace, bool)>, Error> {
        let crew = &self.shared.crew[self.who];
        let few = crew.batch.div_ceil(4);
        let begun = self.now();
        let (mut times, mut submitting) = ([0.0; 3], 0.0);
        // The first run counts for nothing: drivers compile, or page memory in. In this process it is a full batch, and
        // one member's at a time: PoCL 3.1 keeps what it has compiled with the largest grid it has seen, a larger one
        // makes a second entry, and where both fit, runs on several devices give back each other's and end the program
        // (an assertion).
        let mut alone = crew.in_process.then(|| self.shared.first.lock().unwrap_or_else(|e| e.into_inner()));
        let first = if crew.in_process { crew.batch } else { 1 };
        for (time, records) in times.iter_mut().zip([first, 1, few]) {
            if self.shared.state().quit {
                return Ok(None);
            }
            (submitting, *time) = self.at_desk(|engine, record| {
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
            drop(alone.take());
        }
        self.keep("measure", 0, 0, begun);
        let pace = Pace::new(crew.batch, times[1], few, times[2]);
        Ok(Some((pace, submitting > times[2] / 2.0)))
    }

    /// Decodes a chunk into the engine's slot.
    fn prepare(&self, chunk: &Chunk, place: usize, input: &Input) -> Result<(), Error> {
        let start = self.shared.timed.then(Instant::now);
        let width = self.shared.sizes.width;
        self.at_desk(|engine, record| {
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
        let Some(chunk) = chunks[place].take() else { return Ok(()) };
        let Sizes { scores, classes, .. } = self.shared.sizes;
        let (records, start) = (chunk.records.len(), self.now());
        self.at_desk(|engine, _| {
            engine.collect(place)?;
            self.keep("wait for the engine", place, records, start);
            let start = self.now();
            let mut answers = self.shared.answers[chunk.slot].lock().unwrap_or_else(|e| e.into_inner());
            for (i, n) in chunk.records.clone().enumerate() {
                let answer = engine.answer(place, i);
                let to = &mut answers.scores[n * scores..(n + 1) * scores];
                to.iter_mut().zip(answer.scores.iter()).for_each(|(to, score)| *to = score);
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

impl Fleet {
    /// Puts the `members`, all of which run the same network, to work. `timed`: keep the time that they decode. `sizes`:
    /// those of a record. `track` is the stream's.
    pub fn new(members: Vec<Member>, sizes: Sizes, timed: bool, track: Option<Track>) -> Fleet {
        let all: usize = members.iter().map(|m| m.facts.batch).sum();
        let most = SLOT_BYTES / (4 * sizes.width).max(1);
        let batch = (BATCHES * all).min(most.max(all));
        let now = Instant::now();
        let standing = |_| Standing {
            pace: None,
            chunks: [const { None }; SLOTS],
            ends: now,
            asleep: false,
            times: MemberTimes::default(),
        };
        let answers = || Answers {
            scores: vec![0.0; batch * sizes.scores],
            classes: vec![0; if sizes.classes { batch } else { 0 }],
        };
        let count = members.len();
        let order =
            || Order { input: None, open: 0..0, returned: Vec::with_capacity(SLOTS * count), left: 0 };
        let input = || {
            let deferred = Deferred::new(batch, sizes.width);
            Arc::new(Input { deferred, values: vec![0.0; batch * sizes.width] })
        };
        let state = State {
            slots: [(); SLOTS].map(|()| order()),
            newest: 0,
            members: (0..count).map(standing).collect(),
            quit: false,
            failure: None,
        };
        let crew = |m: &Member| Crew {
            name: m.facts.name.clone(),
            granule: m.facts.granule,
            batch: m.facts.batch,
            in_process: m.facts.in_process,
            track: m.facts.track,
            desk: Mutex::new(Desk { engine: None, record: vec![0.0; sizes.width] }),
            bell: Condvar::new(),
        };
        let shared = Arc::new(Shared {
            crew: members.iter().map(crew).collect(),
            state: Mutex::new(state),
            done: Condvar::new(),
            first: Mutex::new(()),
            answers: [(); SLOTS].map(|()| Mutex::new(answers())),
            sizes,
            timed,
            track,
        });
        for (who, member) in members.iter().enumerate() {
            member.seat.enter(Stage::Taken(Arc::clone(&shared), who));
        }
        Fleet {
            shared,
            members,
            inputs: [(); SLOTS].map(|()| input()),
            answers: [(); SLOTS].map(|()| answers()),
            batch,
            rows: (0..sizes.width.max(sizes.scores) as u32).collect(),
        }
    }

    /// The input of a slot that is not submitted.
    fn input(&mut self, slot: usize) -> Result<&mut Input, Error> {
        Arc::get_mut(&mut self.inputs[slot])
            .ok_or_else(|| Error::device(format!("slot {slot} was not collected")))
    }
}

impl Engine for Fleet {
    fn batch(&self) -> usize {
        self.batch
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        let width = self.shared.sizes.width;
        let input = Arc::get_mut(&mut self.inputs[slot])
            .ok_or_else(|| Error::device(format!("slot {slot} was not collected")))?;
        Ok(RecordMut::new(&mut input.values, &self.rows[..width], index * width))
    }

    fn defer(&mut self, slot: usize, index: usize, decode: &Arc<dyn Decode>, bytes: &[u8]) -> bool {
        self.input(slot).is_ok_and(|input| input.deferred.push(index, decode, bytes))
    }

    fn refused(&self, slot: usize, from: usize) -> Option<(usize, Refusal)> {
        self.inputs[slot].deferred.refused(self.shared.sizes.width, from)
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        self.input(slot)?.deferred.submit();
        let mut state = self.shared.state();
        if let Some(failure) = &state.failure {
            return Err(failure.error());
        }
        let order = &mut state.slots[slot];
        order.input = Some(Arc::clone(&self.inputs[slot]));
        order.open = 0..records;
        order.left = records;
        state.newest = slot;
        self.shared.rouse(&state);
        Ok(())
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        let mut state = self.shared.state();
        if state.slots[slot].input.is_none() {
            return Ok(());
        }
        while state.slots[slot].left > 0 {
            if let Some(failure) = state.failure.as_ref().map(Failure::error) {
                let order = &mut state.slots[slot];
                (order.input, order.open) = (None, 0..0);
                order.returned.clear();
                return Err(failure);
            }
            state = self.shared.done.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        state.slots[slot].input = None;
        drop(state);
        let mut answers = self.shared.answers[slot].lock().unwrap_or_else(|e| e.into_inner());
        std::mem::swap(&mut *answers, &mut self.answers[slot]);
        Ok(())
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        let Sizes { scores, classes, .. } = self.shared.sizes;
        let answers = &self.answers[slot];
        Answer {
            class: classes.then(|| answers.classes[index]),
            scores: Record::new(&answers.scores, &self.rows[..scores], index * scores),
        }
    }

    fn members(&mut self) -> Vec<(MemberTimes, Option<StepClock>)> {
        let mut members = Vec::with_capacity(self.members.len());
        for (who, crew) in self.shared.crew.iter().enumerate() {
            let mut desk = crew.desk.lock().unwrap_or_else(|e| e.into_inner());
            let clock = desk.engine.as_mut().and_then(|e| e.step_times());
            drop(desk);
            members.push((self.shared.state().members[who].times.clone(), clock));
        }
        members
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.shared.state().quit = true;
        self.shared.crew.iter().for_each(|c| c.bell.notify_one());
        self.members.clear();
    }
}
