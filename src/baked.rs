//! What the build baked: network, plan, kernel library and sources out of the block; constants and
//! golden vectors as slices of it.

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

/// What every start reads.
struct Head {
    block: Block,
    network: Network,
    golden_given: bool,
    range: Range,
    plan: Plan,
    /// Where each constant of the plan starts in the section of constants.
    offsets: Cow<'static, [usize]>,
    /// Steps of each plan of the library.
    steps: Cow<'static, [(Cow<'static, str>, usize)]>,
    library: Library,
}

/// The block that the linker put into the program.
#[cfg(not(feature = "appended"))]
fn bytes() -> Result<&'static [u8], String> {
    Ok(linked::block())
}

/// The block behind the program.
#[cfg(feature = "appended")]
fn bytes() -> Result<&'static [u8], String> {
    use crate::block::Slot;
    use crate::sys::appended;
    let slot = Slot::parse(linked::block()).ok_or("it has no slot")?;
    let (offset, bytes) = slot.place().ok_or(EMPTY)?;
    let unread = |e| format!("its file cannot be read: {e}");
    let file = appended::file().map_err(unread)?;
    let (found, whole) = (
        file.metadata().map_err(unread)?.len(),
        Slot::file_bytes((offset, bytes)),
    );
    if found != whole {
        return Err(format!("its file has {found} bytes of {whole}; {REMOVED}"));
    }
    let end = appended::map(&file, offset, whole - offset).map_err(unread)?;
    slot.block(end).map_err(|e| format!("{e}; {REMOVED}"))
}

/// What a program says that nobody gave a network.
#[cfg(feature = "appended")]
const EMPTY: &str =
    "this program holds no network: `mortonnet-bake MODEL -o FILE` writes one that does";

/// What takes a network away.
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

/// Whether what every start needs is as the build left it. `main` asks before anything else does.
///
/// # Errors
/// What is not.
pub(crate) fn check() -> Result<(), Error> {
    HEAD.as_ref().map(drop).map_err(|why| damaged(why))
}

/// Whether everything is as the build left it, constants and golden vectors included.
///
/// # Errors
/// What is not.
pub(crate) fn verify() -> Result<(), Error> {
    block().verify().map_err(|why| damaged(&why))
}

/// What a program says whose block is not as the build left it.
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

/// The block.
pub(crate) fn block() -> Block {
    head().block
}

/// The network.
pub(crate) fn network() -> &'static Network {
    &head().network
}

/// The plan that its constants are laid out for.
pub(crate) fn plan() -> &'static Plan {
    &head().plan
}

/// What stands in for the block's library and sources: `bench --library`.
#[cfg(feature = "lab")]
static OTHER: OnceLock<(Library, KernelSources)> = OnceLock::new();

/// Puts a library in the place of the block's. To be called once, before a device is looked for.
#[cfg(feature = "lab")]
pub(crate) fn put_library(library: Library, sources: KernelSources) {
    let _ = OTHER.set((library, sources));
}

/// The kernel library.
pub(crate) fn library() -> &'static Library {
    #[cfg(feature = "lab")]
    if let Some((library, _)) = OTHER.get() {
        return library;
    }
    &head().library
}

/// Whether the golden vectors came with the network.
pub(crate) fn golden_given() -> bool {
    head().golden_given
}

/// How large inputs may be before sums overflow.
pub(crate) fn range() -> Range {
    head().range
}

/// Steps of the library's plan `name` for the network.
pub(crate) fn steps(name: &str) -> Option<usize> {
    head().steps.iter().find(|s| s.0 == name).map(|s| s.1)
}

/// The kernel sources, comments stripped.
///
/// # Errors
/// They are not as the build left them.
pub(crate) fn sources() -> Result<&'static KernelSources, Error> {
    #[cfg(feature = "lab")]
    if let Some((_, sources)) = OTHER.get() {
        return Ok(sources);
    }
    SOURCES.as_ref().map_err(|why| damaged(why))
}

/// Constant `i` of [`plan`], padded and in its layout.
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
    /// Number of vectors.
    pub(crate) count: usize,
    /// Raw inputs, `count` × width.
    pub(crate) inputs: &'g [f32],
    /// Scores, `count` × outputs.
    pub(crate) scores: &'g [f32],
    /// Raw inputs of records that overflow, each of width.
    pub(crate) overflow: &'g [f32],
}

/// The golden vectors of [`network`].
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
