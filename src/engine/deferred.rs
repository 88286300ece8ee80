//! Records that reach an engine as bytes. Its threads decode them: text is parsed by all cores, and the core that
//! computes a record has written its numbers itself.

use std::fmt;
use std::sync::Arc;

/// How the bytes of a record become its numbers, on any thread.
pub trait Decode: Send + Sync {
    /// Writes the numbers of the record `bytes`; `false` where they are none.
    fn decode(&self, bytes: &[u8], values: &mut [f32]) -> bool;

    /// What is wrong with `bytes` that `decode` refused for a record of `width` numbers.
    fn explain(&self, bytes: &[u8], width: usize) -> Refusal;
}

/// Why the bytes of a record are none.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The number that is wrong, from 1.
    pub number: usize,
    /// What was expected there, and what was found.
    pub message: String,
}

/// Records of a block that are still bytes. Does not allocate after construction.
pub struct Deferred {
    decode: Option<Arc<dyn Decode>>,
    bytes: Vec<u8>,
    /// The records' places in the block, and the ends of their bytes.
    records: Vec<(usize, usize)>,
    /// The place and the bytes of the first record that was refused.
    refused: Option<(usize, std::ops::Range<usize>)>,
}

/// Bytes a number that are kept room for: more than whole numbers need, and as much as seven digits and a point. What
/// finds no room is decoded where it was read.
const BYTES: usize = 8;

impl Deferred {
    /// Room for `records` records of `width` numbers. (For none of them where memory is short.)
    pub fn new(records: usize, width: usize) -> Self {
        let mut bytes = Vec::new();
        let _ = bytes.try_reserve_exact(records.saturating_mul(width).saturating_mul(BYTES));
        Deferred { decode: None, bytes, records: Vec::with_capacity(records), refused: None }
    }

    /// Takes the bytes of the record at `place`, if there is room. All records of a block are decoded the same way.
    pub fn push(&mut self, place: usize, decode: &Arc<dyn Decode>, bytes: &[u8]) -> bool {
        if self.records.is_empty() {
            self.bytes.clear();
            self.decode = Some(Arc::clone(decode));
        } else if !self.decode.as_ref().is_some_and(|d| Arc::ptr_eq(d, decode)) {
            return false;
        }
        let room = bytes.len() <= self.bytes.capacity() - self.bytes.len()
            && self.records.len() < self.records.capacity();
        if room {
            self.bytes.extend_from_slice(bytes);
            self.records.push((place, self.bytes.len()));
        }
        room
    }

    /// Records to decode.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is nothing to decode.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Decodes all records: `width` numbers each, the one at place `i` from `i · stride` on. It stops at the first that
    /// is refused.
    pub fn decode(&mut self, data: &mut [f32], stride: usize, width: usize) {
        self.refused = None;
        let mut start = 0;
        for &(place, end) in &self.records {
            let values = &mut data[place * stride..][..width];
            if !self.decode.as_ref().is_some_and(|d| d.decode(&self.bytes[start..end], values)) {
                self.refused = Some((place, start..end));
                break;
            }
            start = end;
        }
        self.records.clear();
    }

    /// The place of the first record that the last `decode` refused, and why.
    pub fn refused(&self, width: usize) -> Option<(usize, Refusal)> {
        let (place, bytes) = self.refused.clone()?;
        Some((place, self.decode.as_ref()?.explain(&self.bytes[bytes], width)))
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} deferred records", self.records.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes below 100, as they are.
    struct Small;

    impl Decode for Small {
        fn decode(&self, bytes: &[u8], values: &mut [f32]) -> bool {
            bytes.iter().zip(values).all(|(&b, v)| {
                *v = b.into();
                b < 100
            })
        }

        fn explain(&self, bytes: &[u8], width: usize) -> Refusal {
            Refusal { number: width, message: format!("{bytes:?}") }
        }
    }

    #[test]
    fn records_are_decoded_where_they_belong() {
        let decode: Arc<dyn Decode> = Arc::new(Small);
        let mut block = Deferred::new(4, 2);
        let room = block.bytes.capacity();
        for _ in 0..3 {
            assert!(block.push(0, &decode, &[1, 2]) && block.push(2, &decode, &[3, 4]));
            let mut data = [-1.0; 12];
            block.decode(&mut data, 3, 2);
            assert_eq!(data[..8], [1.0, 2.0, -1.0, -1.0, -1.0, -1.0, 3.0, 4.0]);
            assert!(block.is_empty() && block.refused(2).is_none());
        }
        assert!(block.push(0, &decode, &vec![0; room - 1]) && !block.push(1, &decode, &[5, 6]));
        assert!(block.push(1, &decode, &[5]));
        let other: Arc<dyn Decode> = Arc::new(Small);
        assert!(!block.push(2, &other, &[]));
        assert!(block.push(2, &decode, &[]) && block.push(3, &decode, &[]) && !block.push(4, &decode, &[]));
        assert_eq!(block.bytes.capacity(), room);
    }

    #[test]
    fn the_first_refused_record_is_named_until_the_next_block() {
        let decode: Arc<dyn Decode> = Arc::new(Small);
        let mut block = Deferred::new(4, 2);
        for (place, bytes) in [(0, [1, 2]), (1, [3, 200]), (3, [4, 250])] {
            assert!(block.push(place, &decode, &bytes));
        }
        block.decode(&mut [0.0; 8], 2, 2);
        let expected = Refusal { number: 2, message: "[3, 200]".into() };
        assert_eq!(block.refused(2), Some((1, expected)));
        block.decode(&mut [], 2, 2);
        assert_eq!(block.refused(2), None);
    }
}
