//! A device engine backed by the host engine. The host computes every N-th batch too and compares
//! the answers (`--verify N`). Under `auto` the host takes over when the device fails.
//!
//! This engine keeps the input of a batch in plain order until the batch is answered, so that the
//! host can read it too. Therefore the reading thread decodes the records, and they are copied once
//! more. docs/measured/stream.md has the cost of the copy and of the comparison.

use super::kept::KeptRecords;
use super::select::Diagnose;
use super::{Answer, Engine, RecordMut, SLOTS};
use crate::error::{Error, ErrorKind, say};
use crate::observe::profile::StepClock;
use crate::observe::report::{Measurements, MemberMeasurements};
use crate::observe::trace::Track;
use crate::ops::bound::excess;
use crate::sys::{memory, watchdog};
use std::sync::{Arc, Mutex};

/// The largest accepted difference between the scores of device and host, in units of one engine's
/// error bound. Each of the two engines may be off by one unit.
pub(super) const MOST: f64 = 2.0;

/// A function that starts the host engine. Its argument is the number of records in a batch, which
/// is the same as on the device.
pub(crate) type StartHost = Box<dyn Fn(usize) -> Result<Box<dyn Engine>, Error> + Send + Sync>;

/// The duties of the host engine beside a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duties {
    /// The host computes and compares every `verify`-th batch, beginning with the first. 0 turns
    /// this off.
    pub(crate) verify: u64,
    /// True if the host takes over when the device fails.
    pub(crate) take_over: bool,
    /// The network's own factor, by which the allowed differences between scores are multiplied.
    pub(crate) tolerance: f32,
}

impl Duties {
    /// Returns the largest accepted difference between the scores of device and host, in units of
    /// the error bound.
    fn most(&self) -> f64 {
        MOST * f64::from(self.tolerance)
    }
}

#[derive(Clone, Copy, Default)]
struct Batch {
    records: usize,
    /// The number of the batch's first record in the run, counted from 1.
    first: u64,
    /// True if the host checks this batch.
    compared: bool,
    /// True if the host computes this batch instead of the device. The answers are then the host's.
    on_host: bool,
}

/// The inputs of the submitted batches in plain order. If the device hangs, another thread computes
/// these batches on the host. A batch stays here until its slot is filled again, after its answers
/// were read.
pub(crate) struct Kept {
    batch: usize,
    start_host: StartHost,
    slots: Mutex<[Option<Arc<KeptRecords>>; SLOTS]>,
}

impl Kept {
    fn set(&self, slot: usize, kept: Option<Arc<KeptRecords>>) {
        self.slots.lock().unwrap_or_else(|e| e.into_inner())[slot] = kept;
    }

    pub(crate) fn host(&self) -> Result<Box<dyn Engine>, Error> {
        (self.start_host)(self.batch)
    }

    /// Copies the first `records` records that were submitted in a slot into the same slot of
    /// `engine`.
    pub(crate) fn fill(
        &self,
        engine: &mut dyn Engine,
        slot: usize,
        records: usize,
    ) -> Result<(), Error> {
        match &self.slots.lock().unwrap_or_else(|e| e.into_inner())[slot] {
            Some(input) => input.copy(0..records, engine, slot, &mut []),
            None => Err(Error::device(format!("slot {slot} was not kept"))),
        }
    }
}

/// An engine whose answers the host checks, or replaces after a failure.
pub(crate) struct BackedEngine {
    engine: Box<dyn Engine>,
    device: String,
    host: Option<Box<dyn Engine>>,
    kept: Arc<Kept>,
    diagnose: Diagnose,
    duties: Duties,
    /// True after the device has failed. All later batches go to the host.
    failed: bool,
    /// The input of each slot. `submit` shares it with `kept`, which drops its reference before the
    /// slot is filled again.
    inputs: [Arc<KeptRecords>; SLOTS],
    submitted: [Batch; SLOTS],
    batches: u64,
    records: u64,
    /// A reusable buffer for the host's scores of one record.
    expected: Vec<f64>,
}

impl BackedEngine {
    /// Backs `engine` on `device` with the host. Records have `width` numbers and `outputs` scores.
    /// If batches are compared, both engines must be started for scores, and the host starts here.
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        device: String,
        diagnose: Diagnose,
        start_host: StartHost,
        duties: Duties,
        (width, outputs): (usize, usize),
    ) -> Result<BackedEngine, Error> {
        let batch = engine.batch();
        memory::check(
            SLOTS * batch * width * size_of::<f32>(),
            "the inputs of two batches",
        )?;
        // Records are kept as numbers, never as undecoded bytes, because `compare` reads the
        // numbers.
        let inputs = [(); SLOTS].map(|()| Arc::new(KeptRecords::new(batch, width, 0)));
        let host = (duties.verify > 0).then(|| start_host(batch)).transpose()?;
        let kept = Arc::new(Kept {
            batch,
            start_host,
            slots: Mutex::default(),
        });
        Ok(BackedEngine {
            engine,
            device,
            host,
            kept,
            diagnose,
            duties,
            failed: false,
            inputs,
            submitted: [Batch::default(); SLOTS],
            batches: 0,
            records: 0,
            expected: Vec::with_capacity(outputs),
        })
    }

    /// Returns the submitted inputs, for the thread that takes over if this engine hangs.
    pub(crate) fn kept(&self) -> Arc<Kept> {
        Arc::clone(&self.kept)
    }

    /// Starts the batch of a slot on the host engine. The first call also starts the host engine,
    /// unless `new` has started it.
    fn begin_on_host(&mut self, slot: usize) -> Result<(), Error> {
        let host = match &mut self.host {
            Some(host) => host,
            none => none.insert(self.kept.host()?),
        };
        // The host may take long, so the watchdog does not count its time as the device's.
        let records = self.submitted[slot].records;
        watchdog::outside(|| begin(host.as_mut(), &self.inputs[slot], slot, records))
    }

    fn collect_from_host(&mut self, slot: usize) -> Result<(), Error> {
        self.host
            .as_mut()
            .map_or(Ok(()), |host| watchdog::outside(|| host.collect(slot)))
    }

    /// Hands the batch of a slot to the host after the device has failed, if [`Duties::take_over`]
    /// is set. Otherwise returns the device's error.
    #[cold]
    fn take_over(&mut self, slot: usize, error: Error) -> Result<(), Error> {
        if !self.duties.take_over || !matches!(error.kind(), ErrorKind::Device { .. }) {
            return Err(error);
        }
        if !self.failed {
            let first = self.submitted[slot].first;
            let what = format!(
                "{}: {error}; from record {first} of the run on the host computes",
                self.device
            );
            watchdog::outside(|| say(&what));
        }
        self.begin_on_host(slot)
            .map_err(|e| Error::from(ErrorKind::Both([error, e])))?;
        // Set only now that the host has started. If the host could not start, the device would
        // still answer the batches that it has computed.
        self.failed = true;
        self.submitted[slot].on_host = true;
        Ok(())
    }

    /// Computes the batch of a collected slot on the host too, and compares the host's answers with
    /// the device's.
    fn compare(&mut self, slot: usize) -> Result<(), Error> {
        let Batch { records, first, .. } = self.submitted[slot];
        self.begin_on_host(slot)?;
        self.collect_from_host(slot)?;
        let Some(host) = &self.host else {
            return Ok(());
        };
        for i in 0..records {
            let (expected, found) = (host.answer(slot, i), self.engine.answer(slot, i));
            self.expected.clear();
            self.expected.extend(expected.scores.iter().map(f64::from));
            let input = self.inputs[slot].values(i..i + 1);
            if !agree(&self.expected, &expected, &found, input, self.duties.most()) {
                let step = (self.diagnose)(self.inputs[slot].values(0..records));
                return Err(self.differ(first + i as u64, &found, &step));
            }
        }
        Ok(())
    }

    #[cold]
    fn differ(&self, record: u64, found: &Answer<'_>, step: &str) -> Error {
        let off = |(i, score): &(usize, f32)| {
            excess(&self.expected[*i..=*i], std::iter::once(*score)) > self.duties.most()
        };
        let what = match found.scores.iter().enumerate().find(off) {
            Some((i, score)) => {
                format!(
                    "score {i} is {score} on {}, {} on the host",
                    self.device, self.expected[i]
                )
            }
            None => format!(
                "{} gives class {:?} for scores whose largest is that of class {}",
                self.device,
                found.class.unwrap_or_default(),
                found.scores.argmax()
            ),
        };
        Error::check(format!(
            "--verify: record {record} of the run: {what}{step}: the device, its memory or its \
             driver computes wrongly, or \
             the record's sums cancel almost wholly; --selftest checks the device, --device host \
             does without it"
        ))
    }

    /// Returns the engine that has the answers of a slot: the host if it computed the batch, else
    /// the device.
    fn answering(&self, slot: usize) -> &dyn Engine {
        match &self.host {
            Some(host) if self.submitted[slot].on_host => host.as_ref(),
            _ => self.engine.as_ref(),
        }
    }
}

/// Copies the first `records` records of `input` into a slot of `engine`, and submits the slot.
fn begin(
    engine: &mut dyn Engine,
    input: &KeptRecords,
    slot: usize,
    records: usize,
) -> Result<(), Error> {
    input.copy(0..records, engine, slot, &mut [])?;
    engine.submit(slot, records)
}

/// Returns true if the device's answer agrees with the host's, whose scores are `expected`. Sums
/// near the limit of f32 may overflow on one engine only, so large numbers excuse an overflow.
fn agree(
    expected: &[f64],
    host: &Answer<'_>,
    found: &Answer<'_>,
    input: &[f32],
    most: f64,
) -> bool {
    const LARGE: f64 = 1e20;
    if found.overflowed() {
        let large = |x: f64| x.abs() > LARGE;
        return host.overflowed()
            || expected.iter().any(|&s| large(s))
            || input.iter().any(|&x| large(x.into()));
    }
    let class = found
        .class
        .is_none_or(|class| class == found.scores.argmax());
    class && !host.overflowed() && excess(expected, found.scores.iter()) <= most
}

impl Engine for BackedEngine {
    fn batch(&self) -> usize {
        self.engine.batch()
    }

    fn few(&self) -> usize {
        self.engine.few()
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        if index == 0 {
            self.kept.set(slot, None);
        }
        Ok(KeptRecords::exclusive(&mut self.inputs[slot], slot)?.record(index))
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        let verify = self.duties.verify;
        self.submitted[slot] = Batch {
            records,
            first: self.records + 1,
            compared: verify > 0 && self.batches % verify == 0 && !self.failed,
            on_host: self.failed,
        };
        self.batches += 1;
        self.records += records as u64;
        self.kept.set(slot, Some(Arc::clone(&self.inputs[slot])));
        if self.failed {
            return self.begin_on_host(slot);
        }
        let input = &self.inputs[slot];
        match begin(self.engine.as_mut(), input, slot, records) {
            Err(e) => self.take_over(slot, e),
            begun => begun,
        }
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        let Batch {
            on_host, compared, ..
        } = self.submitted[slot];
        // A device that failed at one batch may still have computed a batch submitted earlier.
        if !on_host {
            match self.engine.collect(slot) {
                Ok(()) if compared => return self.compare(slot),
                Ok(()) => return Ok(()),
                Err(e) => self.take_over(slot, e)?,
            }
        }
        self.collect_from_host(slot)
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        self.answering(slot).answer(slot, index)
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

    fn measured(&mut self) -> Measurements {
        self.engine.measured()
    }

    fn members(&mut self) -> Vec<MemberMeasurements> {
        self.engine.members()
    }
}
