//! Random numbers for the inputs of tests and checks. The generator is not fit for secrets.

/// A small generator of random numbers (xorshift64*).
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed | 1 }
    }

    fn next(&mut self) -> u32 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Returns a new generator for another sequence of numbers. Its seed comes from this generator.
    pub(crate) fn split(&mut self) -> Random {
        let (high, low) = (u64::from(self.next()), u64::from(self.next()));
        Random::new(high << 32 | low)
    }

    /// Returns a number from −1 to 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn byte(&mut self) -> u8 {
        (self.next() >> 24) as u8
    }

    /// Returns a whole number from 0 to `n` − 1.
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
