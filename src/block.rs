//! The block: all that the build leaves in a program, as bytes. The build writes it, the program reads it where it
//! stands; constants and golden vectors are not copied.
//!
//! ```text
//! header     magic (8 bytes) · version (u32) · number of sections (u32) · bytes of the block (u64)
//!            for each section: offset (u64) · bytes (u64) · SHA-256
//!            SHA-256 of the header so far: the hash of the block, since it covers those of the sections
//! network    network with graph; whether the golden vectors came with it
//! plan       plan; where each constant starts in its section; steps of each plan of the library
//! library    kernels, recipes, device classes
//! sources    kernel sources: path, text
//! constants  each in its plan's layout, at a multiple of a page
//! golden     inputs, scores, inputs that overflow: f32 each
//! ```
//!
//! Everything is little-endian and of fixed width ([`crate::ir::wire`]). A start checks the header and the sections that
//! it parses, [`Block::verify`] all of them.

use crate::ir::network::Network;
use crate::ir::plan::Plan;
use crate::ir::wire::{self, Wire};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The first bytes.
const MAGIC: [u8; 8] = *b"mortonnt";

/// The version of the format: another one is not read.
pub(crate) const VERSION: u32 = 1;

/// The block and its constants start at multiples of this many bytes.
pub(crate) const PAGE: usize = 4096;

/// Other sections start at multiples of this many bytes.
const ALIGN: usize = 64;

/// A section of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// [`NetworkSection`]
    Network,
    /// [`PlanSection`]
    Plan,
    /// [`crate::registry::Library`]
    Library,
    /// [`crate::registry::KernelSources`]
    Sources,
    /// Constants, each from a page on.
    Constants,
    /// Golden inputs: records × width.
    GoldenInputs,
    /// Golden scores: records × outputs.
    GoldenScores,
    /// Inputs that overflow: records × width.
    GoldenOverflow,
}

impl Section {
    /// All, in the order in which they stand.
    pub(crate) const ALL: [Section; 8] = [
        Section::Network,
        Section::Plan,
        Section::Library,
        Section::Sources,
        Section::Constants,
        Section::GoldenInputs,
        Section::GoldenScores,
        Section::GoldenOverflow,
    ];

    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Section::Network => "network",
            Section::Plan => "plan",
            Section::Library => "library",
            Section::Sources => "sources",
            Section::Constants => "constants",
            Section::GoldenInputs => "golden inputs",
            Section::GoldenScores => "golden scores",
            Section::GoldenOverflow => "golden overflow",
        }
    }
}

/// The network, and whether its golden vectors came with it (else the build computed them).
pub(crate) type NetworkSection = (Network, bool);

/// The plan, where each of its constants starts in their section, and the steps of each plan of the library for the
/// network.
pub(crate) type PlanSection = (Plan, (Cow<'static, [usize]>, Cow<'static, [(Cow<'static, str>, usize)]>));

/// Bytes of a section's entry in the header.
const ENTRY: usize = 8 + 8 + HASH;

/// Bytes of a SHA-256.
const HASH: usize = 32;

/// Bytes of the header.
const HEADER: usize = 24 + Section::ALL.len() * ENTRY + HASH;

/// The block of these sections, in the order of [`Section::ALL`].
pub(crate) fn write(sections: [&[u8]; Section::ALL.len()]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    let mut entries = Vec::new();
    for (section, content) in Section::ALL.into_iter().zip(sections) {
        bytes.resize(
            bytes.len().next_multiple_of(if section == Section::Constants { PAGE } else { ALIGN }),
            0,
        );
        (bytes.len() as u64).put(&mut entries);
        (content.len() as u64).put(&mut entries);
        entries.extend(Sha256::digest(content));
        bytes.extend_from_slice(content);
    }
    let mut header = MAGIC.to_vec();
    VERSION.put(&mut header);
    (Section::ALL.len() as u32).put(&mut header);
    (bytes.len() as u64).put(&mut header);
    header.extend(entries);
    header.extend(Sha256::digest(&header));
    bytes[..HEADER].copy_from_slice(&header);
    bytes
}

/// A block whose header is as it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block(&'static [u8]);

impl Block {
    /// Checks magic, version, length and the header's hash.
    ///
    /// # Errors
    /// Which of them is wrong.
    pub(crate) fn open(bytes: &'static [u8]) -> Result<Block, String> {
        let head = bytes.get(..HEADER).ok_or_else(|| format!("it has {} bytes only", bytes.len()))?;
        if head[..8] != MAGIC {
            return Err("it does not begin as a block does".into());
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if number(8) != VERSION || number(12) as usize != Section::ALL.len() {
            return Err(format!("it is of version {}, this program reads {VERSION}", number(8)));
        }
        if head[HEADER - HASH..] != *Sha256::digest(&head[..HEADER - HASH]) {
            return Err("its header is not as it was written".into());
        }
        if u64_at(head, 16) != bytes.len() as u64 {
            return Err(format!("it has {} bytes, its header says {}", bytes.len(), u64_at(head, 16)));
        }
        Ok(Block(bytes))
    }

    /// The hash of the block, in hexadecimal.
    pub(crate) fn hash(self) -> String {
        hex(&self.0[HEADER - HASH..HEADER])
    }

    /// Bytes of the block.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Offset, bytes and hash of a section.
    pub(crate) fn entry(self, section: Section) -> (usize, usize, &'static [u8]) {
        let at = 24 + section as usize * ENTRY;
        (u64_at(self.0, at) as usize, u64_at(self.0, at + 8) as usize, &self.0[at + 16..at + ENTRY])
    }

    /// The bytes of a section. (The header's hash holds: its offsets are those that were written.)
    pub(crate) fn section(self, section: Section) -> &'static [u8] {
        let (offset, bytes, _) = self.entry(section);
        &self.0[offset..offset + bytes]
    }

    /// Whether a section is as it was written.
    fn check(self, section: Section) -> Result<(), String> {
        match *Sha256::digest(self.section(section)) == *self.entry(section).2 {
            true => Ok(()),
            false => Err(format!("its {} are not as they were written", section.name())),
        }
    }

    /// What a section holds, after its hash was checked.
    ///
    /// # Errors
    /// It is not as it was written.
    pub(crate) fn read<T: Wire>(self, section: Section) -> Result<T, String> {
        self.check(section)?;
        wire::value(self.section(section)).map_err(|_| format!("its {} cannot be read", section.name()))
    }

    /// Checks every section.
    ///
    /// # Errors
    /// The first that is not as it was written.
    pub(crate) fn verify(self) -> Result<(), String> {
        Section::ALL.into_iter().try_for_each(|section| self.check(section))
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Vec<u8> {
        let sections: Vec<Vec<u8>> = (0..Section::ALL.len()).map(|i| vec![i as u8; 5 * i + 1]).collect();
        let mut borrowed = [&[][..]; Section::ALL.len()];
        borrowed.iter_mut().zip(&sections).for_each(|(b, s)| *b = s);
        write(borrowed)
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = small();
        let block = Block::open(bytes.clone().leak()).unwrap();
        block.verify().unwrap();
        for (i, section) in Section::ALL.into_iter().enumerate() {
            assert_eq!(block.section(section), vec![i as u8; 5 * i + 1]);
            let align = if section == Section::Constants { PAGE } else { ALIGN };
            assert_eq!(block.entry(section).0 % align, 0, "{}", section.name());
        }
        assert_eq!(block.len(), bytes.len());
    }

    #[test]
    fn every_changed_byte_and_every_length_is_seen() {
        let bytes = small();
        let whole: &'static [u8] = bytes.clone().leak();
        for n in 0..whole.len() {
            assert!(Block::open(&whole[..n]).is_err(), "{n} bytes");
        }
        let filled: Vec<usize> = Section::ALL
            .iter()
            .flat_map(|&s| {
                let (offset, bytes, _) = Block(whole).entry(s);
                offset..offset + bytes
            })
            .collect();
        for i in (0..HEADER).chain(filled) {
            let mut changed = bytes.clone();
            changed[i] ^= 0x10;
            let found = Block::open(changed.leak()).and_then(Block::verify);
            assert!(found.is_err(), "byte {i}");
        }
    }
}
