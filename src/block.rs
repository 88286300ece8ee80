//! The block: all baked data as bytes. The build writes the block, and the finished program reads
//! it. The program uses constants and golden vectors in place, without a copy.
//!
//! ```text
//! header     magic (8 bytes) · version (u32) · number of sections (u32) · bytes of the block (u64)
//!            for each section: offset (u64) · bytes (u64) · SHA-256
//!            SHA-256 of the header so far. It covers the sections, so it is the hash of the block.
//! network    network with graph; whether the golden vectors came with it; bound of inputs
//! plan       plan; where each constant starts in its section; steps of each plan of the library
//! library    kernels, recipes, device classes
//! sources    kernel sources: path, text
//! constants  each in its plan's layout, at a multiple of a page
//! golden     inputs, scores, inputs that overflow: f32 each
//! ```
//!
//! [`crate::ir::wire`] defines the encoding. At start the program checks the header and only those
//! sections that it decodes. [`Block::verify`] checks all sections.

use crate::ir::network::{Network, Range};
use crate::ir::plan::Plan;
use crate::ir::wire::{self, Wire};
use crate::registry::KernelSources;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The first bytes of every block.
const MAGIC: [u8; 8] = *b"mortonnt";

/// The version of the block's format. The program reads no other version.
pub(crate) const VERSION: u32 = 17;

/// The block and each of its constants start at a multiple of this many bytes.
pub(crate) const PAGE: usize = 4096;

/// Every section except the constants starts at a multiple of this many bytes.
const ALIGN: usize = 64;

/// A section of the block. Network, plan and library are encoded as [`NetworkSection`],
/// [`PlanSection`] and [`crate::registry::Library`]. The sources are encoded as [`KernelSources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Network,
    Plan,
    Library,
    Sources,
    /// The constants in the layouts of the plan. Each begins at a multiple of [`PAGE`].
    Constants,
    /// The raw inputs of the golden vectors as f32, a matrix of records × width.
    GoldenInputs,
    /// The scores of the golden vectors as f32, a matrix of records × outputs.
    GoldenScores,
    /// The raw inputs of records whose sums overflow f32, as f32, a matrix of records × width.
    GoldenOverflow,
}

impl Section {
    /// All sections, in the order in which the block holds them.
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

    /// Returns the name of the section for messages.
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

/// The content of [`Section::Network`]: the network, a flag, and the size of inputs up to which no
/// sum overflows. The flag is true if the user gave the golden vectors, false if the build made
/// them from random inputs.
pub(crate) type NetworkSection = (Network, (bool, Range));

/// The content of [`Section::Plan`]: the plan, the offsets of its constants, and a list. Offsets
/// count bytes from the start of the section of constants. The list has, for each plan that the
/// build tried, its name and its number of steps.
pub(crate) type PlanSection = (
    Plan,
    (
        Cow<'static, [usize]>,
        Cow<'static, [(Cow<'static, str>, usize)]>,
    ),
);

/// The size in bytes of a section's entry in the header: offset, length and SHA-256.
const ENTRY: usize = 8 + 8 + HASH;

/// The size of a SHA-256 in bytes.
const HASH: usize = 32;

/// The size of a block's header in bytes.
const HEADER: usize = 24 + Section::ALL.len() * ENTRY + HASH;

/// Returns a block that has the given sections, in the order of [`Section::ALL`].
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

fn parsed<T: Wire>(section: Section, bytes: &'static [u8]) -> Result<T, String> {
    wire::value(bytes).map_err(|_| format!("its {} cannot be read", section.name()))
}

/// The entry of a section in the block's header.
pub(crate) struct SectionEntry {
    pub(crate) offset: usize,
    /// The length of the section in bytes.
    pub(crate) bytes: usize,
    /// The SHA-256 of the section.
    pub(crate) hash: &'static [u8],
}

/// A block whose header is valid. Its sections may still be damaged, until [`Block::verify`] has
/// checked them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block(&'static [u8]);

impl Block {
    /// Opens a block. Checks its magic, version and length, and the hash of its header.
    ///
    /// # Errors
    /// The magic, the version, the length or the hash is wrong.
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

    /// Returns the hash of the block in hexadecimal. It is the hash of the header, which contains
    /// the hashes of all sections.
    pub(crate) fn hash(self) -> String {
        let Block(bytes) = self;
        hex(&bytes[HEADER - HASH..HEADER])
    }

    /// Returns the size of the block in bytes.
    pub(crate) fn len(self) -> usize {
        let Block(bytes) = self;
        bytes.len()
    }

    pub(crate) fn entry(self, section: Section) -> SectionEntry {
        let Block(bytes) = self;
        let at = 24 + section as usize * ENTRY;
        SectionEntry {
            offset: u64_at(bytes, at) as usize,
            bytes: u64_at(bytes, at + 8) as usize,
            hash: &bytes[at + 16..at + ENTRY],
        }
    }

    /// Returns the bytes of a section. The section is inside the block, because `open` has checked
    /// the header's hash.
    pub(crate) fn section(self, section: Section) -> &'static [u8] {
        let Block(block) = self;
        let SectionEntry { offset, bytes, .. } = self.entry(section);
        &block[offset..offset + bytes]
    }

    /// Checks that the bytes of a section have the hash that the header lists.
    fn check(self, section: Section) -> Result<(), String> {
        match *Sha256::digest(self.section(section)) == *self.entry(section).hash {
            true => Ok(()),
            false => Err(format!(
                "its {} are not as they were written",
                section.name()
            )),
        }
    }

    /// Checks the hash of a section and decodes it.
    ///
    /// # Errors
    /// The section is damaged.
    pub(crate) fn read<T: Wire>(self, section: Section) -> Result<T, String> {
        self.check(section)?;
        parsed(section, self.section(section))
    }

    /// Checks the hash of the kernel sources and decodes them.
    ///
    /// # Errors
    /// The section is damaged.
    pub(crate) fn sources(self) -> Result<KernelSources, String> {
        self.read(Section::Sources)
    }

    /// Checks the bytes of every section against the hash that the header lists.
    ///
    /// # Errors
    /// Names the first damaged section.
    pub(crate) fn verify(self) -> Result<(), String> {
        Section::ALL
            .into_iter()
            .try_for_each(|section| self.check(section))
    }
}

/// The first bytes of every [`BlockSlot`].
const SLOT_MAGIC: [u8; 8] = *b"mortslot";

/// The size of a [`BlockSlot`] in bytes.
const SLOT: usize = 80;

/// An appended block starts at a multiple of this many bytes in the program's file. It is the
/// largest page size of Linux on ARM.
const FILE_PAGE: usize = 65536;

/// The version of this package. `mortonnet-bake` must have the same version as the program that it
/// gives a network.
const PACKAGE: &str = env!("CARGO_PKG_VERSION");

/// The bytes that a finished program without a linked block has in the block's place. They say
/// where in the program's file `mortonnet-bake` has appended a block.
///
/// ```text
/// magic (8 bytes) · version (u32) · 1 with the lab (u32)
/// version of the package (16 bytes, padded with 0)
/// offset of the block in the file, 0 for none (u64) · bytes of the block (u64)
/// hash of the block (32 bytes)
/// ```
///
/// A copy of the slot's bytes follows the block at the end of the file. So the program notices if
/// its file was cut or extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockSlot {
    bytes: [u8; SLOT],
}

impl BlockSlot {
    /// Returns the bytes of a slot whose program has no block yet. `lab` is true if the program has
    /// the lab.
    pub(crate) fn empty(lab: bool) -> Vec<u8> {
        let mut bytes = SLOT_MAGIC.to_vec();
        VERSION.put(&mut bytes);
        u32::from(lab).put(&mut bytes);
        bytes.extend_from_slice(PACKAGE.as_bytes());
        bytes.resize(SLOT, 0);
        bytes
    }

    /// Reads the slot at the start of `bytes`. `None` if there is no slot, for example because a
    /// linked block is there.
    pub(crate) fn parse(bytes: &[u8]) -> Option<BlockSlot> {
        let slot = BlockSlot {
            bytes: bytes.get(..SLOT)?.try_into().ok()?,
        };
        (slot.bytes[..8] == SLOT_MAGIC).then_some(slot)
    }

    /// Searches the bytes of the program's file for its slot. Returns the slot and its offset in
    /// the file.
    ///
    /// # Errors
    /// There is no slot, or the slots that were found are for other versions of this package.
    pub(crate) fn find(program: &[u8]) -> Result<(usize, BlockSlot), String> {
        let windows = program.windows(SLOT_MAGIC.len()).enumerate();
        let slots: Vec<(usize, BlockSlot)> = windows
            .filter(|(_, window)| **window == SLOT_MAGIC)
            .filter_map(|(at, _)| Some((at, BlockSlot::parse(&program[at..])?)))
            .collect();
        // The magic also occurs as a constant in the program's code, so its first occurrence need
        // not be a slot.
        let fits = |slot: &BlockSlot| slot.version() == VERSION && slot.package() == PACKAGE;
        if let Some(&found) = slots.iter().find(|(_, slot)| fits(slot)) {
            return Ok(found);
        }
        let mut packages = slots.iter().map(|(_, slot)| slot.package());
        match packages.find(|package| package.starts_with(|c: char| c.is_ascii_digit())) {
            Some(other) => Err(format!(
                "it is of mortonnet {other}, this is mortonnet-bake {PACKAGE}: take both from one \
                 release"
            )),
            None => Err("it is no program of mortonnet that takes a network".into()),
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

    /// Returns true if the program with this slot has the lab.
    pub(crate) fn lab(&self) -> bool {
        self.bytes[12] == 1
    }

    /// Returns the offset of the appended block in the program's file, and the size of the block,
    /// both in bytes. `None` if no block was appended.
    pub(crate) fn place(&self) -> Option<(u64, u64)> {
        let (offset, bytes) = (u64_at(&self.bytes, 32), u64_at(&self.bytes, 40));
        (offset > 0).then_some((offset, bytes))
    }

    /// Returns the size in bytes that the program's file must have, if its block has this offset
    /// and size.
    pub(crate) fn file_bytes((offset, bytes): (u64, u64)) -> u64 {
        offset + bytes.next_multiple_of(ALIGN as u64) + SLOT as u64
    }

    /// Returns the block at the start of `end`. `end` is the content of the program's file from the
    /// block's offset on.
    ///
    /// # Errors
    /// `end` is not the block of this slot followed by a copy of the slot.
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

    /// Returns a copy of the program's file with `block` appended and the slot filled in.
    ///
    /// # Errors
    /// The program has no slot, or already has a block.
    pub(crate) fn fill(program: &[u8], block: &[u8]) -> Result<Vec<u8>, String> {
        let (at, slot) = BlockSlot::find(program)?;
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

/// Returns bytes as hexadecimal digits.
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
            assert_eq!(block.entry(section).offset % align, 0, "{}", section.name());
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
                let SectionEntry { offset, bytes, .. } = Block(whole).entry(s);
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
            &BlockSlot::empty(true),
            &[9; 100],
        ]
        .concat();
        let (at, slot) = BlockSlot::find(&program).unwrap();
        assert_eq!((at, slot.place(), slot.lab()), (213, None, true));
        let file = BlockSlot::fill(&program, &block).unwrap();
        let filled = BlockSlot::parse(&file[at..]).unwrap();
        let place = filled.place().unwrap();
        assert_eq!(place, (FILE_PAGE as u64, block.len() as u64));
        assert_eq!(BlockSlot::file_bytes(place), file.len() as u64);
        assert_eq!(filled.block(&file[FILE_PAGE..]), Ok(&block[..]));
        // Filling the slot changes no other byte of the program.
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
            BlockSlot::fill(&file, &block)
                .unwrap_err()
                .starts_with("it has a network")
        );
        assert!(
            BlockSlot::fill(&program[..200], &block)
                .unwrap_err()
                .starts_with("it is no program")
        );
        let mut other = program.clone();
        other[at + 16] = b'7';
        assert!(
            BlockSlot::fill(&other, &block)
                .unwrap_err()
                .starts_with("it is of mortonnet 7.1.0, this is")
        );
    }
}
