//! Reads choices from a fuzzer's bytes.

/// Bytes that are taken from the front. After the end, each byte is 0.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// Returns 0 to `n` − 1, for `n` up to 256.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// Returns up to `n` bytes.
    pub(crate) fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(n.min(self.0.len()));
        self.0 = tail;
        head
    }
}
