//! Records in, answers out: readers, writers, and a pipeline that has two batches at a time.
//!
//! While the engine computes one batch, the next one is parsed into the other slot. A batch ends
//! early if no further record can be read without waiting. Then the stream answers all records
//! before it waits for input. So a pipe with plenty of input gets full batches, and a co-process
//! gets each answer at once.

mod binary;
mod buffer;
mod csv;
mod decimal;
mod detect;
mod expect;
#[cfg(fuzzing)]
#[path = "../../tests/fuzz/checks/stream.rs"]
pub(crate) mod fuzzing;
mod number;
mod output;
mod reader;
mod series;
mod source;
mod stdout;
#[cfg(test)]
mod tests;
mod text;
mod writer;

pub(crate) use expect::{ExpectedClasses, ExpectedScores};
pub(crate) use output::{
    AnswerFormat, ERROR, OutputSpec, check, check_mark, needs_argmax, needs_scores,
};
pub(crate) use reader::{Format, InputShape, Next, Position, RecordReader};
pub(crate) use series::SeriesRows;
#[cfg(test)]
pub(crate) use source::MemorySource;
pub(crate) use source::{FileSource, Source};
pub(crate) use stdout::Stdout;
pub(crate) use writer::{Prediction, ResultWriter};

use crate::engine::{Engine, SLOTS};
use crate::error::{Error, ErrorKind};
use crate::observe::times::StreamTimes;
pub(crate) use crate::observe::times::Summary;
use crate::observe::trace::{Name, Track};
use crate::sys::{memory, signal, watchdog};
use std::io::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Everything that a run needs, except its inputs and its engine.
pub(crate) struct Stream<'a, 'w, W> {
    /// The format of the inputs. If it is `None`, the first bytes of each input tell the input's
    /// format.
    pub(crate) format: Option<Format>,
    pub(crate) shape: InputShape<'a>,
    pub(crate) writer: &'a mut ResultWriter<'w, W>,
    /// Called for each bad record, which is one that cannot be read or whose scores are not finite.
    /// The record's answer is [`ERROR`], and the run goes on. A mistake that makes all later
    /// records doubtful still ends the run: a header with wrong names, or an input that ends inside
    /// a binary record. If `bad` is `None`, the first bad record ends the run.
    pub(crate) bad: Option<&'a mut OnBadRecord<'a>>,
    /// Called at the end of an input of a time series, if rows were kept for a record that the
    /// input's end leaves incomplete.
    pub(crate) left: Option<&'a mut OnRowsLeft<'a>>,
    /// The classes of `--expect`, which the predicted classes are compared with.
    pub(crate) expected: Option<&'a mut ExpectedClasses>,
    /// The scores of `--expect-scores`, which the computed scores are compared with. The engine
    /// must have been started for scores.
    pub(crate) expected_scores: Option<&'a mut ExpectedScores>,
    /// The sums of the run's times by kind of work. `None` if no times are taken.
    pub(crate) times: Option<&'a mut StreamTimes>,
    /// Called when SIGUSR1 has asked for the progress. By then all records read before are
    /// answered.
    pub(crate) asked: Option<&'a mut OnProgress<'a>>,
}

/// A function that takes the reason why a record is bad.
pub(crate) type OnBadRecord<'a> = dyn FnMut(&Error) + Send + 'a;

/// A function that takes the name of an input of a time series. Its second argument is the number
/// of last rows kept for a record that stayed incomplete.
pub(crate) type OnRowsLeft<'a> = dyn FnMut(&str, usize) + Send + 'a;

/// A function that takes the progress of a run: its engine, its times if they are taken, and its
/// counts.
pub(crate) type OnProgress<'a> =
    dyn FnMut(&mut dyn Engine, Option<&StreamTimes>, Summary) + Send + 'a;

impl<'a, 'w, W: Write> Stream<'a, 'w, W> {
    /// Makes a run over all records of `inputs`. Each input is a name and a source. An input is
    /// opened when the previous one has ended. Records of several inputs share batches.
    pub(crate) fn over<S: Source, I: Iterator<Item = Result<(String, S), Error>>>(
        self,
        inputs: I,
    ) -> Pipeline<'a, 'w, W, S, I> {
        let feed = Feed {
            inputs,
            reader: None,
            open: false,
            names: Vec::new(),
            format: self.format,
            shape: self.shape,
            mark: self.bad.is_some(),
            timed: self.times.is_some(),
            track: self.times.as_ref().and_then(|times| times.track),
        };
        let slots = [(); SLOTS].map(|()| BatchSlot {
            places: Vec::new(),
            keys: RecordKeys {
                fields: self.shape.keys,
                bytes: Vec::new(),
                ends: Vec::new(),
            },
            bad: Vec::new(),
            started: None,
        });
        Pipeline {
            stream: self,
            feed,
            slots,
            next: 0,
            stop: None,
            newest: None,
            flying: None,
            submitted: 0,
            largest: 0,
            summary: Summary::default(),
        }
    }

    /// Makes a stream that ends at the first bad record and compares its answers with nothing.
    #[cfg(test)]
    pub(crate) fn new(shape: InputShape<'a>, writer: &'a mut ResultWriter<'w, W>) -> Self {
        Stream {
            format: None,
            shape,
            writer,
            bad: None,
            left: None,
            expected: None,
            expected_scores: None,
            times: None,
            asked: None,
        }
    }

    /// Answers all records of `inputs`.
    #[cfg(test)]
    pub(crate) fn run<S: Source>(
        self,
        engine: &mut dyn Engine,
        inputs: impl Iterator<Item = Result<(String, S), Error>>,
    ) -> Result<Summary, Error> {
        run(&Mutex::new(self.over(inputs)), engine)
    }
}

/// The records of all inputs, one after the other.
struct Feed<'a, S, I> {
    inputs: I,
    /// The reader of the current input. Its buffer serves all inputs, one after the other. `None`
    /// before the first input.
    reader: Option<RecordReader<'a, S>>,
    /// True if the current input may have records left.
    open: bool,
    /// The names of the inputs opened so far.
    names: Vec<String>,
    format: Option<Format>,
    shape: InputShape<'a>,
    mark: bool,
    timed: bool,
    track: Option<Track>,
}

impl<'a, S: Source, I: Iterator<Item = Result<(String, S), Error>>> Feed<'a, S, I> {
    /// Returns the reader of the current input. If that input has ended, opens the next one. `None`
    /// if there is no further input.
    fn reader(&mut self) -> Result<Option<&mut RecordReader<'a, S>>, Error> {
        if !self.open {
            let Some(input) = self.inputs.next() else {
                return Ok(None);
            };
            let (place, source) = input?;
            self.names.push(place.clone());
            self.open = true;
            match &mut self.reader {
                Some(reader) => reader.reopen(source, place),
                None => {
                    memory::check(RecordReader::<S>::bytes(self.shape.width), "the input")?;
                    let mut reader = RecordReader::new(source, place, self.format, self.shape);
                    reader.set_timed(self.timed, self.track);
                    reader.set_mark(self.mark);
                    self.reader = Some(reader);
                }
            }
        }
        Ok(self.reader.as_mut())
    }
}

/// The place of a record, for messages.
#[derive(Clone, Copy)]
struct RecordPlace {
    /// The number of the input that has the record, from 0.
    input: usize,
    position: Position,
}

/// The key fields of a slot's records, which are copied to the answers. The key fields of a record
/// are the first fields of its line (`--key`).
struct RecordKeys {
    /// The number of key fields of a record.
    fields: usize,
    bytes: Vec<u8>,
    /// The position in `bytes` where each record's key fields end.
    ends: Vec<usize>,
}

impl RecordKeys {
    /// A batch whose keys have this many bytes takes no further record.
    const MOST: usize = 1 << 20;

    /// Reserves memory for the keys of `records` records, 32 bytes for each key field. Longer keys
    /// allocate when they first occur.
    fn reserve(&mut self, records: usize) {
        if self.fields > 0 {
            self.bytes
                .reserve((records * 32 * self.fields).min(RecordKeys::MOST));
            self.ends.reserve(records);
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the key of the next record. An empty `key` counts as a key with empty fields.
    fn push(&mut self, key: &[u8]) {
        if self.fields > 0 {
            self.bytes.extend_from_slice(key);
            if key.is_empty() {
                self.bytes.resize(self.bytes.len() + self.fields, b',');
            }
            self.ends.push(self.bytes.len());
        }
    }

    fn get(&self, record: usize) -> &[u8] {
        let end = |record: usize| self.ends.get(record).copied().unwrap_or(0);
        &self.bytes[record.checked_sub(1).map_or(0, end)..end(record)]
    }
}

/// The places, keys and mistakes of the records in one slot of the engine.
struct BatchSlot {
    places: Vec<RecordPlace>,
    keys: RecordKeys,
    /// The index of each record that could not be read, with the reason. The engine gets zeros in
    /// place of such a record.
    bad: Vec<(usize, Error)>,
    /// The time when the slot's filling began, if times are taken.
    started: Option<Instant>,
}

/// The reason why the filling of a slot ended.
enum Stop {
    /// The batch is full.
    Full,
    /// The next record has not arrived yet, or the program was asked to stop.
    Idle,
    /// The last input has ended.
    End,
    Failed(Error),
}

/// The state of a run. It is unlocked while a call hands a batch to the engine or waits for one. If
/// the engine hangs in such a call, another thread can [`resume`] the run.
pub(crate) struct Pipeline<'a, 'w, W, S, I> {
    pub(crate) stream: Stream<'a, 'w, W>,
    feed: Feed<'a, S, I>,
    slots: [BatchSlot; SLOTS],
    /// The slot that the stream fills next.
    next: usize,
    /// The reason why the filling of a slot ended last. `None` once the run has acted on this
    /// reason.
    stop: Option<Stop>,
    /// The slot that is being submitted to the engine. `None` at other times.
    newest: Option<usize>,
    /// The slot that the engine computes: it was submitted, and its answers are not written yet.
    flying: Option<usize>,
    /// The number of batches submitted to the engine so far.
    submitted: u32,
    /// The number of records of the largest batch computed so far.
    largest: usize,
    summary: Summary,
}

/// Answers the records of all inputs with `engine`. Before an error is returned, all records read
/// before the error are answered. [`ErrorKind::Stopped`] is such an error. After SIGINT or SIGTERM
/// nothing more is read, and an incomplete record is dropped.
pub(crate) fn run<W: Write, S: Source, I: Iterator<Item = Result<(String, S), Error>>>(
    pipeline: &Mutex<Pipeline<'_, '_, W, S, I>>,
    engine: &mut dyn Engine,
) -> Result<Summary, Error> {
    for slot in &mut lock(pipeline).slots {
        slot.places.reserve_exact(engine.batch());
        slot.keys.reserve(engine.batch());
    }
    Runner { pipeline, engine }.run()
}

/// Continues a run on another engine, because the run's own engine hangs. `fill(engine, slot,
/// records)` copies an unanswered batch into the same slot of the new engine.
pub(crate) fn resume<W: Write, S: Source, I: Iterator<Item = Result<(String, S), Error>>>(
    pipeline: &Mutex<Pipeline<'_, '_, W, S, I>>,
    engine: &mut dyn Engine,
    fill: impl Fn(&mut dyn Engine, usize, usize) -> Result<(), Error>,
) -> Result<Summary, Error> {
    let mut p = lock(pipeline);
    for slot in [p.flying.take(), p.newest.take()].into_iter().flatten() {
        let records = p.slots[slot].places.len();
        fill(engine, slot, records)?;
        engine.submit(slot, records)?;
        engine.collect(slot)?;
        p.write(slot, engine)?;
        p.answered(Some(slot));
    }
    drop(p);
    Runner { pipeline, engine }.run()
}

fn lock<P>(pipeline: &Mutex<P>) -> MutexGuard<'_, P> {
    pipeline.lock().unwrap_or_else(|e| e.into_inner())
}

type LockedPipeline<'r, 's, 'w, W, S, I> = MutexGuard<'r, Pipeline<'s, 'w, W, S, I>>;

/// A run as one thread executes it: the shared pipeline, and the engine that only this thread uses.
struct Runner<'r, P> {
    pipeline: &'r Mutex<P>,
    engine: &'r mut dyn Engine,
}

impl<'r, 's, 'w, W: Write, S: Source, I: Iterator<Item = Result<(String, S), Error>>>
    Runner<'r, Pipeline<'s, 'w, W, S, I>>
{
    fn run(&mut self) -> Result<Summary, Error> {
        let result = self.turns();
        let mut p = lock(self.pipeline);
        p.settle();
        if result
            .as_ref()
            .is_err_and(|e| !matches!(e.kind(), ErrorKind::ClosedOutput))
        {
            // Writes the answers that are still buffered, because the caller prints the error. An
            // error of this write is not reported.
            let _ = p.stream.writer.flush();
        }
        result.map(|()| p.summary)
    }

    fn turns(&mut self) -> Result<(), Error> {
        let mut p = lock(self.pipeline);
        loop {
            if p.stop.is_none() {
                p.stop = Some(p.fill(self.engine));
                let slot = p.next;
                let records = p.slots[slot].places.len();
                if records > 0 {
                    let start = p.now();
                    p.newest = Some(slot);
                    watchdog::batch(records <= p.largest);
                    let submitted;
                    (p, submitted) = self.call(p, |engine| engine.submit(slot, records));
                    p.submitted = p.submitted.saturating_add(1);
                    p.add(start, "submit", slot, |t| &mut t.engine);
                    if let Err(e) = submitted {
                        p.newest = None;
                        // The engine still has the previous batch, whose answers are written now.
                        drop(self.answer(p, true)?);
                        return Err(e);
                    }
                }
                p = self.answer(p, false)?;
                if records > 0 {
                    p.flying = p.newest.take();
                    p.next = (slot + 1) % SLOTS;
                }
                // A driver may replace the signal handlers when it first compiles. They are
                // restored whenever the number of batches is a power of two. That is often at the
                // beginning, and later so rarely that it costs almost nothing.
                if p.summary.batches.is_power_of_two() {
                    signal::keep();
                }
            }
            let asked = signal::asked();
            // All answers are written before the stream waits for input.
            if asked || !matches!(p.stop, Some(Stop::Full)) {
                p = self.answer(p, true)?;
            }
            if asked {
                p.tell(self.engine);
            }
            match p.stop.take() {
                Some(Stop::Idle) if signal::stop().is_some() => {
                    return Err(ErrorKind::Stopped.into());
                }
                Some(Stop::Idle) => p.wait()?,
                Some(Stop::End) => return Ok(()),
                Some(Stop::Failed(e)) => return Err(e),
                Some(Stop::Full) | None => {}
            }
        }
    }

    /// Waits for the batch that the engine computes, if there is one, and writes its answers. If
    /// `flush`, hands all buffered answers to the system.
    fn answer(
        &mut self,
        mut p: LockedPipeline<'r, 's, 'w, W, S, I>,
        flush: bool,
    ) -> Result<LockedPipeline<'r, 's, 'w, W, S, I>, Error> {
        let flying = p.flying;
        if let Some(slot) = flying {
            let start = p.now();
            let collected;
            (p, collected) = self.call(p, |engine| engine.collect(slot));
            p.flying = None;
            collected?;
            p.add(start, "wait for the engine", slot, |t| &mut t.engine);
        }
        let start = p.now();
        if let Some(slot) = flying {
            p.largest = p.largest.max(p.slots[slot].places.len());
            p.write(slot, self.engine)?;
        }
        if flush {
            p.stream.writer.flush()?;
        }
        if let Some(slot) = flying {
            p.add(start, "write", slot, |t| &mut t.write);
        } else if flush {
            p.add(start, "flush", SLOTS, |t| &mut t.write);
        }
        p.answered(flying);
        Ok(p)
    }

    /// Runs a call of the engine that may hang. The pipeline is unlocked meanwhile.
    fn call<T>(
        &mut self,
        p: LockedPipeline<'r, 's, 'w, W, S, I>,
        work: impl FnOnce(&mut dyn Engine) -> T,
    ) -> (LockedPipeline<'r, 's, 'w, W, S, I>, T) {
        drop(p);
        let result = watchdog::call(|| work(self.engine));
        (lock(self.pipeline), result)
    }
}

impl<W: Write, S: Source, I: Iterator<Item = Result<(String, S), Error>>>
    Pipeline<'_, '_, W, S, I>
{
    /// Returns the number of records answered so far.
    pub(crate) fn done(&self) -> u64 {
        self.summary.records
    }

    /// Reads records into the next slot, until it is full or no record can be read without waiting.
    fn fill(&mut self, engine: &mut dyn Engine) -> Stop {
        let slot = self.next;
        let start = self.now();
        self.slots[slot].places.clear();
        self.slots[slot].started = start;
        if let Some(StreamTimes {
            track: Some(track), ..
        }) = &self.stream.times
        {
            track.begin(slot, self.submitted.saturating_add(1));
        }
        let stop = self.read_records(slot, engine).unwrap_or_else(Stop::Failed);
        self.add(start, "parse", slot, |t| &mut t.parse);
        stop
    }

    fn read_records(&mut self, slot: usize, engine: &mut dyn Engine) -> Result<Stop, Error> {
        let BatchSlot {
            places, keys, bad, ..
        } = &mut self.slots[slot];
        bad.clear();
        keys.clear();
        while places.len() < engine.batch() && keys.bytes.len() < RecordKeys::MOST {
            let Some(reader) = self.feed.reader()? else {
                return Ok(Stop::End);
            };
            let index = places.len();
            let why = match reader.advance()? {
                Next::Record => {
                    let deferred = reader
                        .record()
                        .is_some_and(|(coding, bytes)| engine.defer(slot, index, coding, bytes));
                    match deferred {
                        true => None,
                        false => reader.decode(&mut engine.record(slot, index)?).err(),
                    }
                }
                Next::Bad(why) => Some(why),
                Next::Idle => return Ok(Stop::Idle),
                Next::End => {
                    let left = reader.left();
                    self.feed.open = false;
                    if let (Some(tell), Some(name), true) =
                        (&mut self.stream.left, self.feed.names.last(), left > 0)
                    {
                        tell(name, left);
                    }
                    continue;
                }
            };
            if let Some(why) = why {
                if self.stream.bad.is_none() {
                    return Err(why);
                }
                engine.record(slot, index)?.clear();
                bad.push((index, why));
            }
            keys.push(reader.key());
            let position = reader.position();
            places.push(RecordPlace {
                input: self.feed.names.len() - 1,
                position,
            });
        }
        Ok(Stop::Full)
    }

    /// Counts the batch in `slot` as answered, if times are taken.
    fn answered(&mut self, slot: Option<usize>) {
        if let (Some(slot), Some(times)) = (slot, &mut self.stream.times) {
            times.answered(self.slots[slot].places.len(), self.slots[slot].started);
        }
    }

    /// Writes the answers of the batch in `slot`, and compares them with the expected ones.
    fn write(&mut self, slot: usize, engine: &dyn Engine) -> Result<(), Error> {
        let Stream {
            writer,
            bad,
            expected,
            expected_scores,
            ..
        } = &mut self.stream;
        let BatchSlot {
            places,
            keys,
            bad: known,
            ..
        } = &mut self.slots[slot];
        let mut known = known.drain(..).peekable();
        let mut refused = engine.refused(slot, 0);
        for (i, place) in places.iter().enumerate() {
            let input = &self.feed.names[place.input];
            let refusal = refused.take_if(|(index, _)| *index == i);
            writer.set_key(keys.get(i));
            let answered = if let Some((_, why)) = known.next_if(|(index, _)| *index == i) {
                Err(why)
            } else if let Some((_, refusal)) = refusal {
                refused = engine.refused(slot, i + 1);
                Err(place.position.refused(input, refusal))
            } else {
                writer.write(engine.answer(slot, i), || place.position.within(input))
            };
            match (answered, &mut *bad) {
                (Ok(prediction), _) => {
                    expected.iter_mut().for_each(|e| e.check(prediction));
                    if let Some(scores) = expected_scores {
                        scores.check(writer.last_scores(&engine.answer(slot, i)));
                    }
                }
                // Only this one record is bad, so the run goes on.
                (Err(why), Some(bad)) if matches!(why.kind(), ErrorKind::Input { .. }) => {
                    bad(&why);
                    writer.mark(&why)?;
                    expected.iter_mut().for_each(|e| e.check(Prediction::None));
                    expected_scores.iter_mut().for_each(|e| e.miss());
                    self.summary.marked += 1;
                }
                (Err(e), _) => return Err(e),
            }
            self.summary.records += 1;
        }
        self.summary.batches += 1;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Error> {
        signal::keep();
        let start = self.now();
        if let Some(reader) = &mut self.feed.reader {
            reader.wait()?;
        }
        self.add(start, "wait for input", SLOTS, |t| &mut t.wait);
        Ok(())
    }

    /// Reports the progress to `asked`. The caller must have answered all batches before.
    #[cold]
    fn tell(&mut self, engine: &mut dyn Engine) {
        self.settle();
        let Stream { times, asked, .. } = &mut self.stream;
        if let Some(asked) = asked {
            asked(engine, times.as_deref(), self.summary);
        }
    }

    /// Moves the time of reads from the sum `parse` to the sum `read`. Reads happen while a slot is
    /// filled, and the whole filling is first counted as `parse`.
    fn settle(&mut self) {
        if let (Some(times), Some(reader)) = (&mut self.stream.times, &mut self.feed.reader) {
            let read = reader.take_read_time();
            times.read += read;
            times.parse = times.parse.saturating_sub(read);
        }
    }

    /// Returns the current time. `None` if no times are taken.
    fn now(&self) -> Option<Instant> {
        self.stream.times.is_some().then(Instant::now)
    }

    /// Adds the time since `start` to a sum, and to the trace under `name`. The time was spent on
    /// the records in `slot`, or on no records if `slot` is [`SLOTS`].
    fn add(
        &mut self,
        start: Option<Instant>,
        name: &'static str,
        slot: usize,
        sum: impl FnOnce(&mut StreamTimes) -> &mut Duration,
    ) {
        if let (Some(times), Some(start)) = (&mut self.stream.times, start) {
            let took = start.elapsed();
            *sum(times) += took;
            if let Some(track) = &times.track {
                let records = self.slots.get(slot).map_or(0, |slot| slot.places.len());
                track.span(Name::Text(name), slot, records, start, took);
            }
        }
    }
}
