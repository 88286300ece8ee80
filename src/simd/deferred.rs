//! Records that reach an engine as undecoded bytes, such as text. The engine's threads decode them,
//! so all cores share the parsing. A record's values are then already in the cache of the core that
//! computes with them.

use crate::ir::plan::TEXT_BYTES;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A decoder that turns the bytes of a record into numbers. It may run on any thread.
pub(crate) trait Decode: Send + Sync {
    /// Writes the numbers of the record `bytes` to `values`. Returns false if the bytes are not
    /// valid.
    fn decode(&self, bytes: &[u8], values: &mut [f32]) -> bool;

    /// Returns the reason why `decode` refuses `bytes`, for a record of `width` numbers.
    fn explain(&self, bytes: &[u8], width: usize) -> Refusal;
}

/// The reason why a decoder refused the bytes of a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The position in the record of the number that is wrong, counted from 1.
    pub(crate) number: usize,
    /// A message with the expected and the found text.
    pub(crate) message: String,
}

/// The undecoded records of a batch. It never allocates memory after its construction.
pub(crate) struct Deferred {
    decode: Option<Arc<dyn Decode>>,
    bytes: Vec<u8>,
    /// For each record, its start and end in `bytes`. `None` for a record that was given as
    /// numbers.
    records: Vec<Option<(usize, usize)>>,
    /// True if `records` belong to a batch that was already submitted. The next push clears them.
    submitted: bool,
    /// For each record, true if the decoder refused it.
    refused: Box<[AtomicBool]>,
    /// True if any record was refused.
    any: AtomicBool,
}

impl Deferred {
    /// Allocates memory for `records` records of `width` numbers. If memory is short there is no
    /// room, and the reading thread decodes the records instead.
    pub(crate) fn new(records: usize, width: usize) -> Self {
        let mut bytes = Vec::new();
        let _ = bytes.try_reserve_exact(records.saturating_mul(width).saturating_mul(TEXT_BYTES));
        Deferred {
            decode: None,
            bytes,
            records: Vec::with_capacity(records),
            submitted: false,
            refused: (0..records).map(|_| AtomicBool::new(false)).collect(),
            any: AtomicBool::new(false),
        }
    }

    /// Stores the bytes of record `index`. Returns false if there is no room left, or if the
    /// batch's other records have another decoder. Records must come in ascending order.
    pub(crate) fn push(&mut self, index: usize, decode: &Arc<dyn Decode>, bytes: &[u8]) -> bool {
        if self.submitted || index == 0 {
            self.clear();
        }
        if self.records.is_empty() {
            self.decode = Some(Arc::clone(decode));
        }
        let room = index < self.refused.len()
            && bytes.len() <= self.bytes.capacity() - self.bytes.len()
            && self.decode.as_ref().is_some_and(|d| Arc::ptr_eq(d, decode));
        if room {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(bytes);
            self.records.resize(index, None);
            self.records.push(Some((start, self.bytes.len())));
        }
        room
    }

    /// Returns the number of bytes that a batch has room for.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.bytes.capacity()
    }

    fn clear(&mut self) {
        self.submitted = false;
        self.records.clear();
        self.bytes.clear();
        if std::mem::take(self.any.get_mut()) {
            self.refused
                .iter_mut()
                .for_each(|refused| *refused.get_mut() = false);
        }
    }

    /// Ends the batch. Its records are decoded from now on. If nothing was pushed since the last
    /// call, no record of this batch needs decoding.
    pub(crate) fn submit(&mut self) {
        if self.submitted {
            self.clear();
        }
        self.submitted = true;
    }

    /// Returns true if no record of the batch needs decoding.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns true if all records in the range need decoding.
    pub(crate) fn has_all(&self, records: Range<usize>) -> bool {
        self.records
            .get(records)
            .is_some_and(|r| r.iter().all(Option::is_some))
    }

    /// Writes the numbers of record `index` to `values`, if that record needs decoding. If its
    /// bytes are not valid, writes zeros and marks the record as refused.
    pub(crate) fn decode(&self, index: usize, values: &mut [f32]) {
        if let (Some(&Some((start, end))), Some(decode)) = (self.records.get(index), &self.decode) {
            if !decode.decode(&self.bytes[start..end], values) {
                values.fill(0.0);
                self.refused[index].store(true, Relaxed);
                self.any.store(true, Relaxed);
            }
        }
    }

    /// Returns the first refused record with an index of at least `from`, and the reason.
    pub(crate) fn refused(&self, width: usize, from: usize) -> Option<(usize, Refusal)> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let index = from
            + self
                .refused
                .get(from..)?
                .iter()
                .position(|refused| refused.load(Relaxed))?;
        let (start, end) = (*self.records.get(index)?)?;
        Some((
            index,
            self.decode
                .as_ref()?
                .explain(&self.bytes[start..end], width),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decoder for tests: each byte is a number, and bytes from 100 on are not valid.
    struct Small;

    impl Decode for Small {
        fn decode(&self, bytes: &[u8], values: &mut [f32]) -> bool {
            bytes.iter().zip(values).all(|(&b, v)| {
                *v = b.into();
                b < 100
            })
        }

        fn explain(&self, bytes: &[u8], width: usize) -> Refusal {
            Refusal {
                number: width,
                message: format!("{bytes:?}"),
            }
        }
    }

    fn decoded(batch: &Deferred, records: usize) -> Vec<[f32; 2]> {
        let mut data = vec![[-1.0; 2]; records];
        data.iter_mut()
            .enumerate()
            .for_each(|(i, values)| batch.decode(i, values));
        data
    }

    #[test]
    fn records_are_decoded_where_they_belong() {
        let decode: Arc<dyn Decode> = Arc::new(Small);
        let mut batch = Deferred::new(4, 2);
        let room = batch.bytes.capacity();
        for _ in 0..3 {
            assert!(batch.push(0, &decode, &[1, 2]) && batch.push(2, &decode, &[3, 4]));
            batch.submit();
            assert_eq!(
                decoded(&batch, 4),
                [[1.0, 2.0], [-1.0; 2], [3.0, 4.0], [-1.0; 2]]
            );
            assert!(!batch.is_empty() && batch.refused(2, 0).is_none());
        }
        // In the next batch all records are given as numbers, so none needs decoding.
        batch.submit();
        assert!(batch.is_empty());
        assert_eq!(decoded(&batch, 4), [[-1.0; 2]; 4]);
        assert!(batch.push(0, &decode, &vec![0; room - 1]) && !batch.push(1, &decode, &[5, 6]));
        assert!(batch.push(1, &decode, &[5]));
        let other: Arc<dyn Decode> = Arc::new(Small);
        assert!(!batch.push(2, &other, &[]));
        assert!(
            batch.push(2, &decode, &[])
                && batch.push(3, &decode, &[])
                && !batch.push(4, &decode, &[])
        );
        // Record 0 begins a new batch, although the last batch was never submitted. In the batch
        // after that, record 0 is given as numbers.
        assert!(batch.push(0, &other, &[7, 8]));
        batch.submit();
        assert!(batch.push(1, &decode, &[9, 9]));
        batch.submit();
        assert_eq!(decoded(&batch, 2), [[-1.0; 2], [9.0; 2]]);
        assert_eq!(batch.bytes.capacity(), room);
    }

    #[test]
    fn refused_records_are_named_until_the_next_batch() {
        let decode: Arc<dyn Decode> = Arc::new(Small);
        let mut batch = Deferred::new(4, 2);
        for (place, bytes) in [(0, [1, 2]), (1, [3, 200]), (3, [4, 250])] {
            assert!(batch.push(place, &decode, &bytes));
        }
        batch.submit();
        for (i, expected) in [(3, [0.0; 2]), (1, [0.0; 2]), (0, [1.0, 2.0])] {
            let mut values = [-1.0; 2];
            batch.decode(i, &mut values);
            assert_eq!(values, expected, "no numbers of another record are left");
        }
        let refused = |message: &str| Refusal {
            number: 2,
            message: message.into(),
        };
        assert_eq!(batch.refused(2, 0), Some((1, refused("[3, 200]"))));
        assert_eq!(batch.refused(2, 2), Some((3, refused("[4, 250]"))));
        assert_eq!((batch.refused(2, 4), batch.refused(2, 9)), (None, None));
        batch.submit();
        assert_eq!(batch.refused(2, 0), None);
    }
}
