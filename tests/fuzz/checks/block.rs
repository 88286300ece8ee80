//! Checks of the block and its sections.

use super::{Input, kept};
use crate::block::{self, Block, NetworkSection, PlanSection, Section};
use crate::ir::wire::{self, Wire};
use crate::registry::{KernelSources, Library, PlanRecipe};

/// A block with sections of any bytes reads back. A changed or truncated block is refused, unless
/// the change is in the padding between sections. Bytes that are not a block are refused.
pub fn block(data: &[u8]) {
    let mut input = Input(data);
    if input.flag() {
        kept(input.0.to_vec(), Block::open, |found| {
            assert!(found.is_err(), "any bytes are a block")
        });
    }
    let (at, change) = (
        usize::from(input.byte()) << 8 | usize::from(input.byte()),
        input.byte(),
    );
    let sections = Section::ALL.map(|_| {
        let length = input.below(40);
        input.bytes(length)
    });
    let mut bytes = block::write(sections);
    let mut fills = true;
    kept(bytes.clone(), Block::open, |found| {
        let found = found.expect("what was written can be opened");
        found.verify().expect("nothing was changed");
        for (section, content) in Section::ALL.into_iter().zip(sections) {
            assert_eq!(found.section(section), content, "{}", section.name());
            let entry = found.entry(section);
            fills &= !(entry.offset..entry.offset + entry.bytes).contains(&(at % bytes.len()));
        }
    });
    let at = at % bytes.len();
    let cut = bytes[..at].to_vec();
    kept(cut, Block::open, |found| {
        assert!(found.is_err(), "{at} bytes of it are a block")
    });
    if change != 0 {
        bytes[at] ^= change;
        kept(bytes, Block::open, |found| {
            let header = 24 + Section::ALL.len() * 48 + 32;
            match found.and_then(Block::verify) {
                Ok(()) => assert!(
                    fills && at >= header,
                    "byte {at} is changed, and nobody sees it"
                ),
                Err(_) => assert!(!fills || at < header, "byte {at} belongs to nothing"),
            }
        });
    }
}

/// Reads bytes as each type of data. A value that can be read has only these bytes.
pub fn wire(data: &[u8]) {
    fn read<T: Wire>(bytes: &[u8]) {
        kept(bytes.to_vec(), wire::value::<T>, |found| {
            if let Ok(value) = found {
                assert_eq!(wire::bytes(&value), bytes, "another form of the same");
            }
        });
    }
    let mut input = Input(data);
    match input.below(5) {
        0 => read::<NetworkSection>(input.0),
        1 => read::<PlanSection>(input.0),
        2 => read::<Library>(input.0),
        3 => read::<KernelSources>(input.0),
        _ => read::<PlanRecipe>(input.0),
    }
}
