//! `--verify N`: while the stream runs, every N-th batch is computed by the host engine as well, and compared.
//!
//! The input stays here, in plain order, until both have it; so records are decoded where they are read, and copied once
//! more. What that and the host's work cost is measured in docs/MEASURED.md.

use super::{Answer, Engine, RecordMut, RecordRows, SLOTS};
use crate::error::Error;
use crate::observe::profile::{MemberTimes, StepClock};
use crate::observe::report::Measured;
use crate::observe::trace::Track;
use crate::ops::bound::excess;

/// How far device and host may be apart, in units of what each may be off.
const MOST: f64 = 2.0;

/// An engine whose answers are compared with the host's.
pub(crate) struct VerifyingEngine {
    engine: Box<dyn Engine>,
    host: Box<dyn Engine>,
    /// The engine's device, for messages.
    device: String,
    every: u64,
    width: usize,
    rows: RecordRows,
    inputs: [Box<[f32]>; SLOTS],
    /// Of a submitted slot: its records, and the number of the first in the run.
    submitted: [(usize, u64); SLOTS],
    /// Whether a submitted slot is to be compared.
    compared: [bool; SLOTS],
    batches: u64,
    records: u64,
    /// Scores of the host of one record.
    expected: Vec<f64>,
}

impl VerifyingEngine {
    /// `engine` on `device`, every `every`-th batch of which, the first among them, is compared with `host`. Both hand out
    /// the scores of records of `width` numbers.
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        host: Box<dyn Engine>,
        device: String,
        every: u64,
        (width, outputs): (usize, usize),
    ) -> VerifyingEngine {
        let inputs = [(); SLOTS].map(|()| vec![0.0; engine.batch() * width].into());
        VerifyingEngine {
            engine,
            host,
            device,
            every,
            width,
            rows: RecordRows::first(width),
            inputs,
            submitted: [(0, 0); SLOTS],
            compared: [false; SLOTS],
            batches: 0,
            records: 0,
            expected: Vec::with_capacity(outputs),
        }
    }

    /// Computes a collected slot on the host, and compares.
    fn compare(&mut self, slot: usize) -> Result<(), Error> {
        let (records, first) = self.submitted[slot];
        for begin in (0..records).step_by(self.host.batch()) {
            let some = self.host.batch().min(records - begin);
            let inputs = self.inputs[slot][begin * self.width..].chunks_exact(self.width);
            for (i, input) in inputs.take(some).enumerate() {
                self.host.record(0, i)?.fill(input);
            }
            self.host.submit(0, some)?;
            self.host.collect(0)?;
            for i in 0..some {
                self.expected.clear();
                let expected = self.host.answer(0, i);
                self.expected.extend(expected.scores.iter().map(f64::from));
                let found = self.engine.answer(slot, begin + i);
                if !self.agree(&expected, &found) {
                    return Err(self.differ(first + (begin + i) as u64, &found));
                }
            }
        }
        Ok(())
    }

    /// Whether an answer is the host's, whose scores are `expected`. One that is refused needs no other.
    fn agree(&self, host: &Answer<'_>, found: &Answer<'_>) -> bool {
        let class = found.class.is_none_or(|class| class == found.scores.argmax());
        let scores = || excess(&self.expected, found.scores.iter()) <= MOST;
        class && (found.overflowed() || !host.overflowed() && scores())
    }

    #[cold]
    fn differ(&self, record: u64, found: &Answer<'_>) -> Error {
        let off = |(i, score): &(usize, f32)| excess(&self.expected[*i..=*i], std::iter::once(*score)) > MOST;
        let what = match found.scores.iter().enumerate().find(off) {
            Some((i, score)) => {
                format!("score {i} is {score} on {}, {} on the host", self.device, self.expected[i])
            }
            None => format!(
                "{} gives class {:?} for scores whose largest is that of class {}",
                self.device,
                found.class.unwrap_or_default(),
                found.scores.argmax()
            ),
        };
        Error::device(format!(
            "--verify: record {record} of the run: {what}: the device, its memory or its driver computes wrongly; \
             --selftest checks it, --device host does without it"
        ))
    }
}

impl Engine for VerifyingEngine {
    fn batch(&self) -> usize {
        self.engine.batch()
    }

    fn few(&self) -> usize {
        self.engine.few()
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        Ok(RecordMut::new(&mut self.inputs[slot], &self.rows, index * self.width))
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        for (i, input) in self.inputs[slot].chunks_exact(self.width).take(records).enumerate() {
            self.engine.record(slot, i)?.fill(input);
        }
        self.submitted[slot] = (records, self.records + 1);
        self.compared[slot] = self.batches % self.every == 0;
        self.batches += 1;
        self.records += records as u64;
        self.engine.submit(slot, records)
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        self.engine.collect(slot)?;
        if self.compared[slot] { self.compare(slot) } else { Ok(()) }
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        self.engine.answer(slot, index)
    }

    fn step_times(&mut self) -> Option<StepClock> {
        self.engine.step_times()
    }

    fn forget_times(&mut self) {
        self.engine.forget_times();
    }

    fn trace(&mut self, track: Track) -> Result<(), Error> {
        self.engine.trace(track)
    }

    fn measured(&mut self) -> Measured {
        self.engine.measured()
    }

    fn members(&mut self) -> Vec<(MemberTimes, Option<StepClock>)> {
        self.engine.members()
    }
}
