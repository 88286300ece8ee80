//! The engines: what turns a batch of records into scores and classes.
//!
//! A batch lives in one of [`SLOTS`] slots. The stream fills one slot with [`Engine::record`] while
//! the other is computed: `record`×n → `submit` → `collect` → `answer`×n, then the slot is free
//! again. After construction no engine allocates.

pub(crate) mod backed;
pub(crate) mod cache;
pub(crate) mod deferred;
#[cfg(feature = "lab")]
pub(crate) mod diagnosis;
#[cfg(test)]
mod graphs;
pub(crate) mod host;
pub(crate) mod model;
pub(crate) mod multi;
pub(crate) mod opencl;
#[cfg(test)]
mod overflow;
mod programs;
pub(crate) mod select;
pub(crate) mod selftest;
pub(crate) mod simd;
pub(crate) mod sources;
pub(crate) mod trial;
pub(crate) mod tuning;
#[cfg(any(test, feature = "bake"))]
pub(crate) mod verify;

use crate::error::Error;
use crate::observe::profile::StepClock;
use crate::observe::report::{Measurements, MemberMeasurements};
use crate::observe::trace::Track;
use deferred::{Decode, Refusal};
use std::sync::Arc;

pub(crate) use crate::ir::plan::SLOTS;

/// Where the features of a record stand in its batch buffer, from the record's own place on.
pub(crate) struct RecordRows {
    rows: Vec<u32>,
    neighbours: bool,
}

impl RecordRows {
    /// `rows[i]` is the place of feature `i`.
    pub(crate) fn new(rows: Vec<u32>) -> RecordRows {
        let neighbours = rows.windows(2).all(|w| w[1] == w[0] + 1);
        RecordRows { rows, neighbours }
    }

    /// `n` features one after the other.
    pub(crate) fn first(n: usize) -> RecordRows {
        RecordRows::new((0..n as u32).collect())
    }

    /// Whether they stand one after the other.
    pub(crate) fn are_neighbours(&self) -> bool {
        self.neighbours
    }
}

/// A record of a batch buffer, to be written: feature `i` lives at `data[offset + rows[i]]`.
///
/// This holds for every layout of the grammar, because an index is the sum of a part that depends
/// on the row only and a part that depends on the column only (`spec::layout::Layout::offsets`).
pub(crate) struct RecordMut<'a> {
    data: &'a mut [f32],
    rows: &'a RecordRows,
    offset: usize,
}

impl<'a> RecordMut<'a> {
    /// The record whose column part is `offset` and whose row parts are `rows`.
    pub(crate) fn new(data: &'a mut [f32], rows: &'a RecordRows, offset: usize) -> Self {
        RecordMut { data, rows, offset }
    }

    /// Sets all features, `values.len() == len()`.
    #[inline]
    pub(crate) fn fill(&mut self, values: &[f32]) {
        match self.contiguous() {
            Some(to) => to.copy_from_slice(values),
            None => self.scatter(values),
        }
    }

    /// Number of features.
    #[allow(clippy::len_without_is_empty)]
    pub(crate) fn len(&self) -> usize {
        self.rows.rows.len()
    }

    /// All features in order, where they are neighbours in memory.
    pub(crate) fn contiguous(&mut self) -> Option<&mut [f32]> {
        let first = self.offset + *self.rows.rows.first()? as usize;
        self.rows
            .neighbours
            .then(|| &mut self.data[first..][..self.rows.rows.len()])
    }

    /// Sets all features, wherever they are.
    ///
    /// # Panics
    /// If there are more values than features.
    pub(crate) fn scatter(&mut self, values: &[f32]) {
        values.iter().enumerate().for_each(|(i, &v)| self.set(i, v));
    }

    /// Sets all features to zero.
    pub(crate) fn clear(&mut self) {
        (0..self.len()).for_each(|i| self.set(i, 0.0));
    }

    /// Sets feature `i`, `i < len()`.
    #[inline(always)]
    pub(crate) fn set(&mut self, i: usize, value: f32) {
        self.data[self.offset + self.rows.rows[i] as usize] = value;
    }
}

/// A record of a result buffer: score `i` lives at `data[offset + rows[i]]`.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    data: &'a [f32],
    rows: &'a [u32],
    offset: usize,
}

impl<'a> Record<'a> {
    /// The record whose column part is `offset` and whose row parts are `rows`.
    pub(crate) fn new(data: &'a [f32], rows: &'a [u32], offset: usize) -> Self {
        Record { data, rows, offset }
    }

    /// Number of scores (0 where the engine was not asked for scores).
    #[allow(clippy::len_without_is_empty)]
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Score `i`, `i < len()`.
    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> f32 {
        self.data[self.offset + self.rows[i] as usize]
    }

    /// Index of the largest score, the lowest of equal ones; [`NAN_CLASS`] if one is NaN or
    /// infinite.
    pub(crate) fn argmax(&self) -> u32 {
        let mut best = (0, f32::NEG_INFINITY);
        for (i, v) in (0..).zip(self.iter()) {
            if v > best.1 {
                best = (i, v);
            }
        }
        if self.is_finite() { best.0 } else { NAN_CLASS }
    }

    /// Whether no score is NaN or infinite: one that is tells of a sum that has left the range of
    /// f32 on the way.
    pub(crate) fn is_finite(&self) -> bool {
        self.iter().fold(true, |all, v| all & v.is_finite())
    }

    /// All scores in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = f32> + 'a {
        let Record { data, rows, offset } = *self;
        rows.iter().map(move |&r| data[offset + r as usize])
    }
}

/// What an engine says about one record.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    /// The arg-max of the scores ([`NAN_CLASS`] where one is NaN or infinite); `None` where the
    /// plan has no arg-max step.
    pub(crate) class: Option<u32>,
    /// The network's last values; there whenever the engine was built with `scores`.
    pub(crate) scores: Record<'a>,
}

/// The class of a record with a NaN or an infinity among its scores: an error, never a class.
pub(crate) const NAN_CLASS: u32 = u32::MAX;

impl Answer<'_> {
    /// Whether the record has overflowed: it must be refused.
    pub(crate) fn overflowed(&self) -> bool {
        self.class == Some(NAN_CLASS) || !self.scores.is_finite()
    }
}

/// A network on a device, ready to run batches.
pub(crate) trait Engine {
    /// Most records in a slot.
    fn batch(&self) -> usize;

    /// Most records of the batches that a variant of the plan computes, whose sums are in another
    /// order; 0 where there is none.
    fn few(&self) -> usize {
        0
    }

    /// The input of record `index` (`< batch()`) of a free slot. Every feature must be set before
    /// `submit`.
    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error>;

    /// Takes record `index` of a free slot as bytes, instead of [`Engine::record`]: they are
    /// decoded before it is computed, on a thread of the engine. `false` where the engine does not
    /// do this, or has no room left.
    fn defer(
        &mut self,
        _slot: usize,
        _index: usize,
        _decode: &Arc<dyn Decode>,
        _bytes: &[u8],
    ) -> bool {
        false
    }

    /// The first record of a collected slot, from record `from` on, whose bytes were refused, and
    /// why. Its answer means nothing; those behind it have theirs.
    fn refused(&self, _slot: usize, _from: usize) -> Option<(usize, Refusal)> {
        None
    }

    /// Starts the first `records` (1 to `batch()`) records of `slot`; does not wait.
    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error>;

    /// Waits for a submitted slot. Its answers stay readable until its next `record`.
    fn collect(&mut self, slot: usize) -> Result<(), Error>;

    /// The answer for record `index` of a collected slot.
    fn answer(&self, slot: usize, index: usize) -> Answer<'_>;

    /// Runs the steps on the input that slot 0 holds, once, and waits; nothing is transferred. For
    /// benchmarks.
    fn resident(&mut self, records: usize) -> Result<(), Error> {
        self.submit(0, records)?;
        self.collect(0)
    }

    /// The measured times of the plan's steps, where the engine was built to measure them.
    fn step_times(&mut self) -> Option<StepClock> {
        None
    }

    /// Forgets the times of the steps so far.
    fn forget_times(&mut self) {}

    /// From now on the engine keeps what it does on `track`. Needs times of the steps.
    fn trace(&mut self, _track: Track) -> Result<(), Error> {
        Ok(())
    }

    /// Everything it measured.
    fn measured(&mut self) -> Measurements {
        Measurements {
            clock: self.step_times(),
            members: self.members(),
        }
    }

    /// What each device has done, where several share the records, and the times of its plan's
    /// steps.
    fn members(&mut self) -> Vec<MemberMeasurements> {
        Vec::new()
    }
}
