//! The block: all that the build leaves in a program, as bytes. The build writes it, the program
//! reads it where it stands; constants and golden vectors are not copied.
//!
//! ```text
//! header     magic (8 bytes) · version (u32) · number of sections (u32) · bytes of the block (u64)
//!            for each section: offset (u64) · bytes (u64) · SHA-256
//!            SHA-256 of the header so far: the hash of the block, since it covers those of the sections
//! network    network with graph; whether the golden vectors came with it
//! plan       plan; where each constant starts in its section; steps of each plan of the library
//! library    kernels, recipes, device classes
//! sources    kernel sources: path, text; as a block of LZ4 behind its size (u32), a third of the bytes
//! constants  each in its plan's layout, at a multiple of a page
//! golden     inputs, scores, inputs that overflow: f32 each
//! ```
//!
//! Everything is little-endian and of fixed width ([`crate::ir::wire`]). A start checks the header
//! and the sections that it parses, [`Block::verify`] all of them.

use crate::ir::network::{Network, Range};
use crate::ir::plan::Plan;
use crate::ir::wire::{self, Wire};
use crate::registry::KernelSources;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The first bytes.
const MAGIC: [u8; 8] = *b"mortonnt";

/// The version of the format: another one is not read.
pub(crate) const VERSION: u32 = 8;

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
    /// [`KernelSources`], compressed
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

/// The network; true if its golden vectors came with it (else the build computed them); how large
/// inputs may be.
pub(crate) type NetworkSection = (Network, (bool, Range));

/// The plan, where each of its constants starts in their section, and the steps of each plan of the
/// library for the network.
pub(crate) type PlanSection = (
    Plan,
    (
        Cow<'static, [usize]>,
        Cow<'static, [(Cow<'static, str>, usize)]>,
    ),
);

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
            bytes
                .len()
                .next_multiple_of(if section == Section::Constants {
                    PAGE
                } else {
                    ALIGN
                }),
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

/// What the bytes of a section say.
fn parsed<T: Wire>(section: Section, bytes: &'static [u8]) -> Result<T, String> {
    wire::value(bytes).map_err(|_| format!("its {} cannot be read", section.name()))
}

/// What the section of sources holds.
pub(crate) fn compressed(sources: &KernelSources) -> Vec<u8> {
    lz4_flex::block::compress_prepend_size(&wire::bytes(sources))
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
        let head = bytes
            .get(..HEADER)
            .ok_or_else(|| format!("it has {} bytes only", bytes.len()))?;
        if head[..8] != MAGIC {
            return Err("it does not begin as a block does".into());
        }
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if number(8) != VERSION || number(12) as usize != Section::ALL.len() {
            return Err(format!(
                "it is of version {}, this program reads {VERSION}",
                number(8)
            ));
        }
        if head[HEADER - HASH..] != *Sha256::digest(&head[..HEADER - HASH]) {
            return Err("its header is not as it was written".into());
        }
        if u64_at(head, 16) != bytes.len() as u64 {
            return Err(format!(
                "it has {} bytes, its header says {}",
                bytes.len(),
                u64_at(head, 16)
            ));
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
        (
            u64_at(self.0, at) as usize,
            u64_at(self.0, at + 8) as usize,
            &self.0[at + 16..at + ENTRY],
        )
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
            false => Err(format!(
                "its {} are not as they were written",
                section.name()
            )),
        }
    }

    /// What a section holds, after its hash was checked.
    ///
    /// # Errors
    /// It is not as it was written.
    pub(crate) fn read<T: Wire>(self, section: Section) -> Result<T, String> {
        self.check(section)?;
        parsed(section, self.section(section))
    }

    /// The kernel sources.
    ///
    /// # Errors
    /// Their section is not as it was written.
    pub(crate) fn sources(self) -> Result<KernelSources, String> {
        self.check(Section::Sources)?;
        let bytes = lz4_flex::block::decompress_size_prepended(self.section(Section::Sources));
        // No bytes are no sources, either.
        parsed(Section::Sources, bytes.unwrap_or_default().leak())
    }

    /// Checks every section.
    ///
    /// # Errors
    /// The first that is not as it was written.
    pub(crate) fn verify(self) -> Result<(), String> {
        Section::ALL
            .into_iter()
            .try_for_each(|section| self.check(section))
    }
}

/// Begins a slot.
const SLOT_MAGIC: [u8; 8] = *b"mortslot";

/// Bytes of a slot.
const SLOT: usize = 80;

/// An appended block starts at a multiple of this many bytes of the file: the largest page that
/// Linux has on ARM.
const FILE_PAGE: usize = 65536;

/// Which package a program and mortonnet-bake are of: one writes what the other reads.
const PACKAGE: &str = env!("CARGO_PKG_VERSION");

/// What stands in a program in place of a block: where a block was appended to its file, if one
/// was.
///
/// ```text
/// magic (8 bytes) · version (u32) · 1 with the lab (u32) · version of the package (16 bytes, padded with 0)
/// offset of the block in the file, 0 for none (u64) · bytes of the block (u64) · hash of the block (32 bytes)
/// ```
///
/// Behind the block the slot stands once more, the end of the file: what was cut or added shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    bytes: [u8; SLOT],
}

impl Slot {
    /// The slot of a program without a network.
    pub(crate) fn empty(lab: bool) -> Vec<u8> {
        let mut bytes = SLOT_MAGIC.to_vec();
        VERSION.put(&mut bytes);
        u32::from(lab).put(&mut bytes);
        bytes.extend_from_slice(PACKAGE.as_bytes());
        bytes.resize(SLOT, 0);
        bytes
    }

    /// The slot that stands where a block would, if there is none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Slot> {
        let slot = Slot {
            bytes: bytes.get(..SLOT)?.try_into().ok()?,
        };
        (slot.bytes[..8] == SLOT_MAGIC).then_some(slot)
    }

    /// The slot in the file of a program, and where it stands.
    ///
    /// # Errors
    /// There is none, or of another version of this package.
    pub(crate) fn find(program: &[u8]) -> Result<(usize, Slot), String> {
        let places = program
            .windows(SLOT_MAGIC.len())
            .enumerate()
            .filter(|(_, w)| **w == SLOT_MAGIC);
        let slots: Vec<(usize, Slot)> = places
            .filter_map(|(i, _)| Some((i, Slot::parse(&program[i..])?)))
            .collect();
        // The program's code holds the magic, too.
        let like = |s: &&(usize, Slot)| s.1.version() == VERSION && s.1.package() == PACKAGE;
        match slots.iter().find(like) {
            Some(&found) => Ok(found),
            None => match slots
                .iter()
                .find(|s| s.1.package().starts_with(|c: char| c.is_ascii_digit()))
            {
                Some((_, other)) => Err(format!(
                    "it is of mortonnet {}, this is mortonnet-bake {PACKAGE}: take both from one \
                     release",
                    other.package()
                )),
                None => Err("it is no program of mortonnet that takes a network".into()),
            },
        }
    }

    fn version(&self) -> u32 {
        u64_at(&self.bytes, 8) as u32
    }

    fn package(&self) -> String {
        let name = self.bytes[16..32]
            .split(|&b| b == 0)
            .next()
            .unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Whether the program has the lab.
    pub(crate) fn lab(&self) -> bool {
        self.bytes[12] == 1
    }

    /// Offset and bytes of the block in the file; none was appended where there is none.
    pub(crate) fn place(&self) -> Option<(u64, u64)> {
        let place = (u64_at(&self.bytes, 32), u64_at(&self.bytes, 40));
        (place.0 > 0).then_some(place)
    }

    /// Bytes of a file with the block.
    pub(crate) fn file_bytes((offset, bytes): (u64, u64)) -> u64 {
        offset + bytes.next_multiple_of(ALIGN as u64) + SLOT as u64
    }

    /// The block out of `end`, the file from its offset on.
    ///
    /// # Errors
    /// What stands there is something else.
    pub(crate) fn block<'b>(&self, end: &'b [u8]) -> Result<&'b [u8], String> {
        let bytes = u64_at(&self.bytes, 40) as usize;
        let there = end.len() >= bytes
            && end.ends_with(&self.bytes)
            && end.get(HEADER - HASH..HEADER) == self.bytes.get(48..);
        match there {
            true => Ok(&end[..bytes]),
            false => {
                Err("what stands behind the program is not what mortonnet-bake put there".into())
            }
        }
    }

    /// The file of `program` with this block.
    ///
    /// # Errors
    /// It has no slot, or one that is taken.
    pub(crate) fn fill(program: &[u8], block: &[u8]) -> Result<Vec<u8>, String> {
        let (at, slot) = Slot::find(program)?;
        if slot.place().is_some() {
            return Err("it has a network: take a program without one".into());
        }
        let mut file = program.to_vec();
        file.resize(file.len().next_multiple_of(FILE_PAGE), 0);
        let mut filled = slot.bytes[..32].to_vec();
        (file.len() as u64).put(&mut filled);
        (block.len() as u64).put(&mut filled);
        filled.extend_from_slice(&block[HEADER - HASH..HEADER]);
        file[at..at + SLOT].copy_from_slice(&filled);
        file.extend_from_slice(block);
        file.resize(file.len().next_multiple_of(ALIGN), 0);
        file.extend_from_slice(&filled);
        Ok(file)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .rev()
        .fold(0, |n, &b| n << 8 | u64::from(b))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Vec<u8> {
        let sections: Vec<Vec<u8>> = (0..Section::ALL.len())
            .map(|i| vec![i as u8; 5 * i + 1])
            .collect();
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
            let align = if section == Section::Constants {
                PAGE
            } else {
                ALIGN
            };
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

    #[test]
    fn a_block_is_appended_to_a_program_once() {
        let block = small();
        let program = [
            &b"code mortslot"[..],
            &[7; 200],
            &Slot::empty(true),
            &[9; 100],
        ]
        .concat();
        let (at, slot) = Slot::find(&program).unwrap();
        assert_eq!((at, slot.place(), slot.lab()), (213, None, true));
        let file = Slot::fill(&program, &block).unwrap();
        let filled = Slot::parse(&file[at..]).unwrap();
        let place = filled.place().unwrap();
        assert_eq!(place, (FILE_PAGE as u64, block.len() as u64));
        assert_eq!(Slot::file_bytes(place), file.len() as u64);
        assert_eq!(filled.block(&file[FILE_PAGE..]), Ok(&block[..]));
        // Nothing else of the program changes.
        let outside = |f: &[u8]| [&f[..at], &f[at + SLOT..program.len()]].concat();
        assert_eq!(outside(&file), outside(&program));
        for wrong in [
            &file[FILE_PAGE..file.len() - 1],
            &file[FILE_PAGE + 1..],
            &[],
            &[&file[..], &[0]].concat(),
        ] {
            assert!(filled.block(wrong).is_err());
        }
        assert!(
            Slot::fill(&file, &block)
                .unwrap_err()
                .starts_with("it has a network")
        );
        assert!(
            Slot::fill(&program[..200], &block)
                .unwrap_err()
                .starts_with("it is no program")
        );
        let mut other = program.clone();
        other[at + 16] = b'7';
        assert!(
            Slot::fill(&other, &block)
                .unwrap_err()
                .starts_with("it is of mortonnet 7.1.0, this is")
        );
    }
}
