//! Random inputs for checks: of no use for secrets.

/// A small random generator (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    /// One of 2^64 − 1 sequences.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Another sequence, which this one decides.
    pub(crate) fn split(&mut self) -> Random {
        let (high, low) = (u64::from(self.next()), u64::from(self.next()));
        Random::new(high << 32 | low)
    }

    /// From −1 to 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    /// 0 to 255.
    pub(crate) fn byte(&mut self) -> u8 {
        (self.next() >> 24) as u8
    }

    /// 0 to `n` − 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_differ() {
        let mut random = Random::new(7);
        let mut first: Vec<f32> = (0..50).map(|_| random.split().float()).collect();
        first.sort_unstable_by(f32::total_cmp);
        first.dedup();
        assert_eq!(first.len(), 50);
    }
}
