//! A hash of everything that a check hands to a device. If a check with the same hash has passed
//! before, it need not run again.

use crate::cl::{Argument, ClError};
use std::fmt;

/// A hash: two sums of 64 bits over all added data, each with its own factor.
pub(super) struct InputHash([u64; 2]);

/// Odd factors that spread a changed bit over the whole sum. They come from the fractions of the
/// golden ratio and of √2.
const FACTORS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0x6A09_E667_F3BC_C909];

impl Default for InputHash {
    fn default() -> InputHash {
        InputHash(FACTORS)
    }
}

impl InputHash {
    /// Adds the number of bytes, and then the bytes, to the hash.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn word(&mut self, word: u64) {
        for (sum, factor) in self.0.iter_mut().zip(FACTORS) {
            *sum = (sum.rotate_left(29) ^ word).wrapping_mul(factor);
        }
    }

    /// Adds the source of a kernel, without the lines that are comments.
    pub(super) fn add_source(&mut self, text: &str) {
        text.lines()
            .filter(|l| !l.trim_start().starts_with("//"))
            .for_each(|line| self.add(line.as_bytes()));
    }

    /// Adds a kernel's argument to the hash. For a buffer it adds the bytes that the kernel may
    /// touch. An image's pixels are added when the image is made.
    pub(super) fn add_argument(&mut self, argument: &Argument) -> Result<(), ClError> {
        match argument {
            Argument::Buffer { buffer, bytes } => {
                let mut held = vec![0u8; *bytes];
                buffer.read(0, &mut held)?;
                self.add(&held);
            }
            Argument::Image(_) => self.add(b"image"),
            number => self.add(format!("{number:?}").as_bytes()),
        }
        Ok(())
    }
}

impl fmt::Display for InputHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The upper bits of the word that was added last have changed only upper bits of the sums.
        // The shifts spread them to the lower bits.
        let [a, b] = self
            .0
            .map(|sum| (sum ^ (sum >> 32)).wrapping_mul(FACTORS[0]));
        write!(f, "{:016x}{:016x}", a ^ (a >> 29), b ^ (b >> 29))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_every_boundary_counts() {
        let hash = |parts: &[&[u8]]| {
            let mut inputs = InputHash::default();
            parts.iter().for_each(|part| inputs.add(part));
            inputs.to_string()
        };
        let all = [
            hash(&[]),
            hash(&[b""]),
            hash(&[b"a"]),
            hash(&[b"a\0"]),
            hash(&[b"ab"]),
            hash(&[b"a", b"b"]),
            hash(&[b"abcdefghi"]),
            hash(&[b"abcdefghj"]),
            hash(&[b"bbcdefghi"]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(one.len() == 32 && !all[..i].contains(one), "{i}: {one}");
        }
    }

    #[test]
    fn a_comment_is_no_input() {
        let hash = |text: &str| {
            let mut inputs = InputHash::default();
            inputs.add_source(text);
            inputs.to_string()
        };
        assert_eq!(hash("a();\n"), hash("// Reason.\n  // Another.\na();\n"));
        assert_ne!(hash("a();\n"), hash("b();\n"));
    }
}
