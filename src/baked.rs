//! Reads the block of this program: network, plan, kernel library and sources. Constants and golden
//! vectors are slices of the block.

use crate::block::{Block, NetworkSection, PlanSection, Section};
use crate::error::Error;
use crate::ir::network::{Network, Precision, Range};
use crate::ir::plan::Plan;
use crate::ir::values::Values;
use crate::registry::{KernelSources, Library};
use crate::sys::linked;
use std::borrow::Cow;
use std::sync::LazyLock;
#[cfg(feature = "lab")]
use std::sync::OnceLock;

/// The sections that every start reads.
struct Head {
    block: Block,
    network: Network,
    golden_given: bool,
    range: Range,
    plan: Plan,
    /// The offset of each constant of the plan in the section of constants.
    offsets: Cow<'static, [usize]>,
    /// The number of steps of each plan of the library.
    steps: Cow<'static, [(Cow<'static, str>, usize)]>,
    library: Library,
}

/// Returns the block that the linker put into the program.
#[cfg(not(feature = "appended"))]
fn bytes() -> Result<&'static [u8], String> {
    Ok(linked::block())
}

/// Maps the block that was appended to the program's file.
#[cfg(feature = "appended")]
fn bytes() -> Result<&'static [u8], String> {
    use crate::block::BlockSlot;
    use crate::sys::appended;
    let slot = BlockSlot::parse(linked::block()).ok_or("it has no slot")?;
    let (offset, bytes) = slot.place().ok_or(EMPTY)?;
    let unread = |e| format!("its file cannot be read: {e}");
    let file = appended::file().map_err(unread)?;
    let found = file.metadata().map_err(unread)?.len();
    let whole = BlockSlot::file_bytes((offset, bytes));
    if found != whole {
        return Err(format!("its file has {found} bytes of {whole}; {REMOVED}"));
    }
    let end = appended::map(&file, offset, whole - offset).map_err(unread)?;
    slot.block(end).map_err(|e| format!("{e}; {REMOVED}"))
}

/// The message of a program without a network.
#[cfg(feature = "appended")]
const EMPTY: &str =
    "this program holds no network: `mortonnet-bake MODEL -o FILE` writes one that does";

/// The advice for a network that is missing or damaged.
#[cfg(feature = "appended")]
const REMOVED: &str = "strip, UPX and copies that end early remove the network";

fn read() -> Result<Head, String> {
    let block = Block::open(bytes()?)?;
    let (network, (golden_given, range)): NetworkSection = block.read(Section::Network)?;
    let (plan, (offsets, steps)): PlanSection = block.read(Section::Plan)?;
    Ok(Head {
        block,
        network,
        golden_given,
        range,
        plan,
        offsets,
        steps,
        library: block.read(Section::Library)?,
    })
}

static HEAD: LazyLock<Result<Head, String>> = LazyLock::new(read);

static SOURCES: LazyLock<Result<KernelSources, String>> = LazyLock::new(|| block().sources());

/// Checks the sections that every start needs. `main` calls this first.
///
/// # Errors
/// The block is damaged or missing.
pub(crate) fn check() -> Result<(), Error> {
    HEAD.as_ref().map(drop).map_err(|why| damaged(why))
}

/// Checks all sections, constants and golden vectors included.
///
/// # Errors
/// A section is damaged.
pub(crate) fn verify() -> Result<(), Error> {
    block().verify().map_err(|why| damaged(&why))
}

/// The error for a damaged or missing block.
pub(crate) fn damaged(why: &str) -> Error {
    #[cfg(feature = "appended")]
    if why == EMPTY {
        return Error::check(EMPTY);
    }
    Error::check(format!(
        "the network in this program is damaged: {why}; copy the program anew"
    ))
}

fn head() -> &'static Head {
    HEAD.as_ref()
        .unwrap_or_else(|why| panic!("{}", damaged(why)))
}

pub(crate) fn block() -> Block {
    head().block
}

pub(crate) fn network() -> &'static Network {
    &head().network
}

/// The plan that the constants are laid out for.
pub(crate) fn plan() -> &'static Plan {
    &head().plan
}

/// The library and sources of `bench --library`, which replace those of the block.
#[cfg(feature = "lab")]
static OTHER: OnceLock<(Library, KernelSources)> = OnceLock::new();

/// Replaces the library of the block. Must be called once, before any device is opened.
#[cfg(feature = "lab")]
pub(crate) fn put_library(library: Library, sources: KernelSources) {
    let _ = OTHER.set((library, sources));
}

pub(crate) fn library() -> &'static Library {
    #[cfg(feature = "lab")]
    if let Some((library, _)) = OTHER.get() {
        return library;
    }
    &head().library
}

/// Returns true if the golden vectors came with the network, false if the build computed them.
pub(crate) fn golden_given() -> bool {
    head().golden_given
}

/// The size of inputs up to which no sum overflows.
pub(crate) fn range() -> Range {
    head().range
}

/// The number of steps of the library's plan `name` for the network.
pub(crate) fn steps(name: &str) -> Option<usize> {
    let mut plans = head().steps.iter();
    plans
        .find(|(plan, _)| plan == name)
        .map(|(_, steps)| *steps)
}

/// The kernel sources without comments.
///
/// # Errors
/// Their section is damaged.
pub(crate) fn sources() -> Result<&'static KernelSources, Error> {
    #[cfg(feature = "lab")]
    if let Some((_, sources)) = OTHER.get() {
        return Ok(sources);
    }
    SOURCES.as_ref().map_err(|why| damaged(why))
}

/// Constant `i` of [`plan`], padded and in the layout of the plan.
pub(crate) fn constant(i: usize) -> Values {
    let (offset, constant) = (head().offsets[i], &plan().constants[i]);
    let bytes = &block().section(Section::Constants)[offset..offset + constant.bytes()];
    match constant.precision {
        Precision::F32 => Values::F32(Cow::Borrowed(linked::floats(bytes))),
        Precision::F16 => Values::F16(Cow::Borrowed(linked::halves(bytes))),
        Precision::I8 => Values::I8(Cow::Borrowed(linked::signed(bytes))),
    }
}

/// The golden vectors of `--selftest`.
pub(crate) struct Golden<'g> {
    /// The number of vectors.
    pub(crate) count: usize,
    /// Raw inputs, `count` × width.
    pub(crate) inputs: &'g [f32],
    /// Scores, `count` × outputs.
    pub(crate) scores: &'g [f32],
    /// Raw inputs of records that overflow, records × width.
    pub(crate) overflow: &'g [f32],
}

pub(crate) fn golden() -> Golden<'static> {
    let [inputs, scores, overflow] = [
        Section::GoldenInputs,
        Section::GoldenScores,
        Section::GoldenOverflow,
    ]
    .map(|section| linked::floats(block().section(section)));
    Golden {
        count: inputs.len() / network().width,
        inputs,
        scores,
        overflow,
    }
}
