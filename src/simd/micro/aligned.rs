//! Arrays for vectors.

use std::ops::{Deref, DerefMut};

/// The bytes of a cache line, and of the longest vector.
const LINE: usize = 64;

/// An array that starts on a cache line's boundary. A vector then lies in one line if its place is
/// a multiple of its size. The allocator aligns to 16 bytes only, and loading a vector from two
/// lines takes twice as long.
pub(crate) struct Aligned<T> {
    all: Vec<T>,
    start: usize,
}

impl<T: Copy + Default> Aligned<T> {
    /// Returns an array of `len` zeros.
    pub(crate) fn zeros(len: usize) -> Aligned<T> {
        let more = LINE / size_of::<T>();
        let mut all = vec![T::default(); len + more];
        // The elements stay where they are until the array is dropped, as it never grows.
        let start = all.as_ptr().align_offset(LINE).min(more);
        all.truncate(start + len);
        Aligned { all, start }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all[self.start..]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.all[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_start_on_a_line() {
        for len in [0, 1, 15, 16, 1000, 100_000] {
            let mut array = Aligned::<u32>::zeros(len);
            assert_eq!((array.len(), array.as_ptr() as usize % LINE), (len, 0));
            array.fill(7);
            assert!(array.iter().all(|&x| x == 7), "{len}");
        }
    }
}
