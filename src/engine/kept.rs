//! Records that are kept in plain order until they are answered. They serve engines that hand their
//! records to other engines.

use super::{Decode, Engine, RecordMut, RecordRows, Refusal};
use crate::error::Error;
use crate::simd::deferred::Deferred;
use std::ops::Range;
use std::sync::Arc;

/// The records of a slot. Each is kept as numbers, or as bytes that are not decoded yet.
pub(super) struct KeptRecords {
    width: usize,
    rows: RecordRows,
    values: Vec<f32>,
    deferred: Deferred,
}

impl KeptRecords {
    /// Allocates room for `records` records of `width` numbers. [`KeptRecords::defer`] can take the
    /// bytes of at most `deferred` of these records.
    pub(super) fn new(records: usize, width: usize, deferred: usize) -> KeptRecords {
        KeptRecords {
            width,
            rows: RecordRows::first(width),
            values: vec![0.0; records * width],
            deferred: Deferred::new(deferred, width),
        }
    }

    /// Gives access to a slot's records, for the caller to write the next batch.
    ///
    /// # Errors
    /// If another engine still reads the records.
    pub(super) fn exclusive(of: &mut Arc<KeptRecords>, slot: usize) -> Result<&mut Self, Error> {
        Arc::get_mut(of).ok_or_else(|| Error::device(format!("slot {slot} was not collected")))
    }

    pub(super) fn record(&mut self, index: usize) -> RecordMut<'_> {
        RecordMut::new(&mut self.values, &self.rows, index * self.width)
    }

    /// Takes record `index` as bytes. Returns false if there is no room for the bytes.
    pub(super) fn defer(&mut self, index: usize, decode: &Arc<dyn Decode>, bytes: &[u8]) -> bool {
        self.deferred.push(index, decode, bytes)
    }

    /// Ends the batch: from now on, the records that were given as bytes can be decoded. If none
    /// was given since the last call, no record needs decoding.
    pub(super) fn submit(&mut self) {
        self.deferred.submit();
    }

    /// Returns the first record, from record `from` on, whose bytes the decoder refused, with the
    /// reason.
    pub(super) fn refused(&self, from: usize) -> Option<(usize, Refusal)> {
        self.deferred.refused(self.width, from)
    }

    /// Returns the numbers of `records`, which must have been given as numbers, not as bytes.
    pub(super) fn values(&self, records: Range<usize>) -> &[f32] {
        &self.values[records.start * self.width..records.end * self.width]
    }

    /// Copies or decodes the range `records` into a slot of `engine`, from record 0 of that slot
    /// on. `buffer` has room for the numbers of one record, if any record was given as bytes.
    pub(super) fn copy(
        &self,
        records: Range<usize>,
        engine: &mut dyn Engine,
        slot: usize,
        buffer: &mut [f32],
    ) -> Result<(), Error> {
        for (i, n) in records.enumerate() {
            let mut to = engine.record(slot, i)?;
            if !self.deferred.has_all(n..n + 1) {
                to.fill(self.values(n..n + 1));
            } else if let Some(values) = to.contiguous() {
                self.deferred.decode(n, values);
            } else {
                self.deferred.decode(n, buffer);
                to.scatter(buffer);
            }
        }
        Ok(())
    }
}
