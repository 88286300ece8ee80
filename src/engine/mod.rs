//! The engines, which turn a batch of records into scores and classes.
//!
//! A batch lives in one of [`SLOTS`] slots. The stream fills one slot while the engine computes the
//! other. The calls for a batch are `record` for each record, `submit`, `collect`, and `answer` for
//! each record. Then the slot is free again. An engine allocates the memory for batches when it is
//! constructed.

pub(crate) mod backed;
pub(crate) mod cache;
#[cfg(feature = "lab")]
pub(crate) mod diagnosis;
#[cfg(test)]
mod graphs;
pub(crate) mod host;
mod kept;
pub(crate) mod model;
pub(crate) mod multi;
pub(crate) mod opencl;
#[cfg(test)]
mod overflow;
mod programs;
pub(crate) mod select;
pub(crate) mod selftest;
pub(crate) mod sources;
pub(crate) mod trial;
pub(crate) mod tuning;
#[cfg(any(test, feature = "bake"))]
pub(crate) mod verify;

use crate::error::Error;
use crate::observe::profile::StepClock;
use crate::observe::report::{Measurements, MemberMeasurements};
use crate::observe::trace::Track;
#[cfg(feature = "lab")]
use crate::simd::TeamWork;
use crate::simd::deferred::{Decode, Refusal};
use std::sync::Arc;

pub(crate) use crate::ir::plan::{NAN_CLASS, SLOTS};

/// Offsets of a record's features in a batch buffer, in floats, counted from the offset of the
/// record itself.
pub(crate) struct RecordRows {
    rows: Vec<u32>,
    neighbours: bool,
}

impl RecordRows {
    /// Takes the offset of each feature: feature `i` is at `rows[i]`.
    pub(crate) fn new(rows: Vec<u32>) -> RecordRows {
        let neighbours = rows.windows(2).all(|w| w[1] == w[0] + 1);
        RecordRows { rows, neighbours }
    }

    /// Returns the offsets of `n` contiguous features.
    pub(crate) fn first(n: usize) -> RecordRows {
        RecordRows::new((0..n as u32).collect())
    }

    /// Returns true if the features are contiguous.
    pub(crate) fn are_neighbours(&self) -> bool {
        self.neighbours
    }
}

/// A writable record of a batch buffer: feature `i` is at `data[offset + rows[i]]`.
///
/// Every layout allows this. The index of a matrix element is the sum of two parts, of which one
/// depends only on the row, the other only on the column (`ir::layout::Layout::offsets`).
pub(crate) struct RecordMut<'a> {
    data: &'a mut [f32],
    rows: &'a RecordRows,
    offset: usize,
}

impl<'a> RecordMut<'a> {
    /// Makes the record at column offset `offset` of `data`. `rows` has the offsets of its
    /// features.
    pub(crate) fn new(data: &'a mut [f32], rows: &'a RecordRows, offset: usize) -> Self {
        RecordMut { data, rows, offset }
    }

    /// Sets all features of the record. Requires `values.len() == len()`.
    #[inline]
    pub(crate) fn fill(&mut self, values: &[f32]) {
        match self.contiguous() {
            Some(to) => to.copy_from_slice(values),
            None => self.scatter(values),
        }
    }

    #[allow(clippy::len_without_is_empty)]
    pub(crate) fn len(&self) -> usize {
        self.rows.rows.len()
    }

    /// Returns the record's features as a slice, if they are contiguous.
    pub(crate) fn contiguous(&mut self) -> Option<&mut [f32]> {
        let first = self.offset + *self.rows.rows.first()? as usize;
        self.rows
            .neighbours
            .then(|| &mut self.data[first..][..self.rows.rows.len()])
    }

    /// Sets the first `values.len()` features, which need not be contiguous.
    ///
    /// # Panics
    /// If there are more values than features.
    pub(crate) fn scatter(&mut self, values: &[f32]) {
        let (data, rows) = (
            &mut self.data[self.offset..],
            &self.rows.rows[..values.len()],
        );
        for (&row, &value) in rows.iter().zip(values) {
            data[row as usize] = value;
        }
    }

    pub(crate) fn clear(&mut self) {
        (0..self.len()).for_each(|i| self.set(i, 0.0));
    }

    /// Sets feature `i`. Requires `i < len()`.
    #[inline(always)]
    pub(crate) fn set(&mut self, i: usize, value: f32) {
        self.data[self.offset + self.rows.rows[i] as usize] = value;
    }
}

/// A record of a result buffer: score `i` is at `data[offset + rows[i]]`.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    data: &'a [f32],
    rows: &'a [u32],
    offset: usize,
}

impl<'a> Record<'a> {
    /// Makes the record at column offset `offset` of `data`. `rows` has the offsets of its scores.
    pub(crate) fn new(data: &'a [f32], rows: &'a [u32], offset: usize) -> Self {
        Record { data, rows, offset }
    }

    /// Returns the number of scores. It is 0 if the engine was not started for scores.
    #[allow(clippy::len_without_is_empty)]
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns score `i`. Requires `i < len()`.
    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> f32 {
        self.data[self.offset + self.rows[i] as usize]
    }

    /// Returns the index of the largest score. Among equal scores the lowest index wins. Returns
    /// [`NAN_CLASS`] if a score is NaN or infinite.
    pub(crate) fn argmax(&self) -> u32 {
        let (mut best, mut largest) = (0, f32::NEG_INFINITY);
        for (i, v) in (0..).zip(self.iter()) {
            if v > largest {
                (best, largest) = (i, v);
            }
        }
        if self.is_finite() { best } else { NAN_CLASS }
    }

    /// Returns true if every score is finite. A NaN or infinity means that a sum left the range of
    /// f32.
    pub(crate) fn is_finite(&self) -> bool {
        self.iter().fold(true, |all, v| all & v.is_finite())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = f32> + 'a {
        let Record { data, rows, offset } = *self;
        rows.iter().map(move |&r| data[offset + r as usize])
    }
}

/// The result of an engine for one record.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    /// The index of the largest score ([`NAN_CLASS`] if a score is NaN or infinite). `None` if the
    /// plan has no arg-max step.
    pub(crate) class: Option<u32>,
    /// The network's output values; empty if the engine was not started for scores.
    pub(crate) scores: Record<'a>,
}

impl Answer<'_> {
    /// Returns true if a score of the record is NaN or infinite. Callers must refuse such a record.
    pub(crate) fn overflowed(&self) -> bool {
        self.class == Some(NAN_CLASS) || !self.scores.is_finite()
    }
}

/// A network on a device, ready to run batches.
pub(crate) trait Engine {
    /// Returns the largest number of records in a batch, which is the room of each slot.
    fn batch(&self) -> usize;

    /// Returns the largest batch that the plan's variant for few records computes; 0 without such a
    /// variant. The variant adds in another order than the full plan, so its scores can differ in
    /// the last bits.
    fn few(&self) -> usize {
        0
    }

    /// Returns the input of record `index` (`< batch()`) of a free slot, for the caller to write.
    /// The caller sets every feature before `submit`.
    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error>;

    /// Takes record `index` of a free slot as bytes, instead of [`Engine::record`]. A thread of the
    /// engine decodes the bytes before it computes the record. Returns false if the engine does not
    /// decode, or has no room left.
    fn defer(
        &mut self,
        _slot: usize,
        _index: usize,
        _decode: &Arc<dyn Decode>,
        _bytes: &[u8],
    ) -> bool {
        false
    }

    /// Returns the first record, from record `from` on, of a collected slot whose bytes could not
    /// be decoded, with the reason. That record has no valid answer; later records have theirs.
    fn refused(&self, _slot: usize, _from: usize) -> Option<(usize, Refusal)> {
        None
    }

    /// Starts the first `records` (1 to `batch()`) records of `slot`, without waiting for them.
    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error>;

    /// Waits for a submitted slot. Its answers stay readable until the slot's next `record`.
    fn collect(&mut self, slot: usize) -> Result<(), Error>;

    /// Returns the answer for record `index` of a collected slot.
    fn answer(&self, slot: usize, index: usize) -> Answer<'_>;

    /// Runs the plan once on the input that slot 0 holds, and waits. After the first call, the
    /// OpenCL engine copies nothing between host and device. So benchmarks time the kernels alone.
    fn resident(&mut self, records: usize) -> Result<(), Error> {
        self.submit(0, records)?;
        self.collect(0)
    }

    /// Returns the measured times of the plan's steps, if the engine was built to measure them.
    fn step_times(&mut self) -> Option<StepClock> {
        None
    }

    /// Discards the step times measured so far.
    fn forget_times(&mut self) {}

    /// Describes the steps of the host engine. `None` for other engines.
    #[cfg(feature = "lab")]
    fn work(&self) -> Option<TeamWork> {
        None
    }

    /// Returns the microseconds that each step of the plan took since the times were forgotten, in
    /// all threads together. Empty if the engine is not the host engine, or measures no times.
    #[cfg(feature = "lab")]
    fn step_totals(&self) -> Vec<f64> {
        Vec::new()
    }

    /// Records the engine's steps and transfers on `track` from now on. Requires an engine that
    /// measures times.
    fn trace(&mut self, _track: Track) -> Result<(), Error> {
        Ok(())
    }

    fn measured(&mut self) -> Measurements {
        Measurements {
            clock: self.step_times(),
            members: self.members(),
        }
    }

    /// Returns the work of each device and the times of its plan's steps, if several devices share
    /// the records.
    fn members(&mut self) -> Vec<MemberMeasurements> {
        Vec::new()
    }
}
