//! Reads the block of baked data in this program. Network, plan, kernel library and kernel sources
//! are decoded once. Constants and golden vectors are used in place, as slices of the block.

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

/// The parts of the block that every start of the program needs, decoded.
struct Head {
    block: Block,
    network: Network,
    golden_given: bool,
    range: Range,
    plan: Plan,
    /// For each constant of the plan, its offset in the block's section of constants, in bytes.
    offsets: Cow<'static, [usize]>,
    /// For each plan that the build tried, its name and the number of steps it has for the network.
    steps: Cow<'static, [(Cow<'static, str>, usize)]>,
    library: Library,
}

/// Returns the block that the linker put into the program.
#[cfg(not(feature = "appended"))]
fn bytes() -> Result<&'static [u8], String> {
    Ok(linked::block())
}

/// Maps the block that `mortonnet-bake` appended to the program's file. Returns an error if the
/// file was cut or extended since then.
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

/// The message for a finished program that `mortonnet-bake` has not given a network yet.
#[cfg(feature = "appended")]
const EMPTY: &str =
    "this program holds no network: `mortonnet-bake MODEL -o FILE` writes one that does";

/// The advice to the user if the appended network is missing or damaged.
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

/// Decodes the parts of the block that every start needs. `main` calls this before it parses the
/// command line.
///
/// # Errors
/// The block is damaged or missing.
pub(crate) fn check() -> Result<(), Error> {
    HEAD.as_ref().map(drop).map_err(|why| damaged(why))
}

/// Checks the hash of every section of the block, constants and golden vectors included.
///
/// # Errors
/// A section is damaged.
pub(crate) fn verify() -> Result<(), Error> {
    block().verify().map_err(|why| damaged(&why))
}

/// Returns the error for a block that is damaged or missing. `why` names the reason.
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

/// Returns the plan that was baked with the network. The block holds the constants in this plan's
/// layouts.
pub(crate) fn plan() -> &'static Plan {
    &head().plan
}

/// The kernel library and kernel sources that `bench --library` loaded. They replace those of the
/// block.
#[cfg(feature = "lab")]
static OTHER: OnceLock<(Library, KernelSources)> = OnceLock::new();

/// Uses `library` and `sources` instead of those in the block. Must be called at most once, before
/// any device is opened.
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

/// Returns true if the user gave the golden vectors, false if the build made them from random
/// inputs.
pub(crate) fn golden_given() -> bool {
    head().golden_given
}

/// Returns the size of raw inputs up to which no sum in the network overflows f32.
pub(crate) fn range() -> Range {
    head().range
}

/// Returns the number of steps that the plan named `name` has for the network. `None` if the build
/// tried no plan of that name.
pub(crate) fn steps(name: &str) -> Option<usize> {
    let mut plans = head().steps.iter();
    plans
        .find(|(plan, _)| plan == name)
        .map(|(_, steps)| *steps)
}

/// Returns the kernel source files as paths and texts, without comments. They come from `bench
/// --library` if it was given, otherwise from the block.
///
/// # Errors
/// The section of kernel sources is damaged.
pub(crate) fn sources() -> Result<&'static KernelSources, Error> {
    #[cfg(feature = "lab")]
    if let Some((_, sources)) = OTHER.get() {
        return Ok(sources);
    }
    SOURCES.as_ref().map_err(|why| damaged(why))
}

/// Returns constant `i` of [`plan`] in the plan's layout, padding included. It is a slice of the
/// block, not a copy.
pub(crate) fn constant(i: usize) -> Values {
    let (offset, constant) = (head().offsets[i], &plan().constants[i]);
    let bytes = &block().section(Section::Constants)[offset..offset + constant.bytes()];
    match constant.precision {
        Precision::F32 => Values::F32(Cow::Borrowed(linked::floats(bytes))),
        Precision::F16 => Values::F16(Cow::Borrowed(linked::halves(bytes))),
        Precision::I8 => Values::I8(Cow::Borrowed(linked::signed(bytes))),
    }
}

/// The golden vectors that `--selftest` computes.
pub(crate) struct Golden<'g> {
    /// The number of golden vectors.
    pub(crate) count: usize,
    /// The inputs before scaling, as a matrix of `count` × width.
    pub(crate) inputs: &'g [f32],
    /// The expected scores, as a matrix of `count` × outputs.
    pub(crate) scores: &'g [f32],
    /// The inputs before scaling of additional records, as a matrix of records × width. Their sums
    /// overflow f32, so a device must refuse these records.
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
