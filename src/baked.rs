//! What the build baked: network, plan, kernel library and sources as data; constants and golden vectors as slices of
//! the linked symbol.

use crate::ir::graph::{Graph, Node, Role, Shape, Tensor, Value};
use crate::ir::layout::{Chunk, Layout, Order};
use crate::ir::network::{Activation, FinalActivation, Kind, Network, Output, Precision, Transform};
use crate::ir::op::Op;
use crate::ir::plan::{Arg, Buffer, BufferRole, Constant, Extent, Plan, Step};
use crate::ir::values::Values;
use crate::registry::wire::{Reader, Wire};
use crate::registry::{EngineKind, KernelSources, Library, Operation, Problem};
use std::borrow::Cow;
use std::sync::LazyLock;

/// The generated data.
#[allow(missing_docs, unused_imports)]
mod generated {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/baked.rs"));
}

pub use generated::{BLOB_HASH, GOLDEN_GIVEN, NETWORK, PLAN, STEPS};

static PARSED: LazyLock<(Library, KernelSources)> =
    LazyLock::new(|| Wire::take(&mut Reader(generated::LIBRARY)));

/// The kernel library, read at its first use.
pub fn library() -> &'static Library {
    &PARSED.0
}

/// The kernel sources, comments stripped.
pub fn sources() -> &'static KernelSources {
    &PARSED.1
}

/// Constant `i` of [`PLAN`], padded and in its layout.
pub fn constant(i: usize) -> Values {
    let (offset, constant) = (generated::CONSTANT_OFFSETS[i], &PLAN.constants[i]);
    match constant.precision {
        Precision::F32 => Values::F32(Cow::Borrowed(slice(offset, constant.len()))),
        Precision::F16 => {
            let halves = crate::sys::linked::halves();
            Values::F16(Cow::Borrowed(&halves[offset / 2..offset / 2 + constant.len()]))
        }
    }
}

/// The golden vectors of `--selftest`.
pub struct Golden {
    /// Number of vectors.
    pub count: usize,
    /// Raw inputs, `count` × width.
    pub inputs: &'static [f32],
    /// Scores, `count` × outputs.
    pub scores: &'static [f32],
    /// Raw inputs of records that overflow, each of width.
    pub overflow: &'static [f32],
}

/// The golden vectors of [`NETWORK`].
pub fn golden() -> Golden {
    let count = generated::GOLDEN_COUNT;
    let [inputs, scores, overflow] = generated::GOLDEN_OFFSETS;
    Golden {
        count,
        inputs: slice(inputs, count * NETWORK.width),
        scores: slice(scores, count * NETWORK.outputs()),
        overflow: slice(overflow, generated::GOLDEN_OVERFLOWS * NETWORK.width),
    }
}

/// Bytes of all baked data: constants and golden vectors, page by page.
pub fn data_bytes() -> usize {
    generated::BLOB_BYTES
}

/// The text of the kernel source `path` (below `kernels/`).
pub fn source(path: &str) -> Option<&'static str> {
    sources().iter().find(|s| s.0 == path).map(|s| &*s.1)
}

fn slice(offset: usize, len: usize) -> &'static [f32] {
    &crate::sys::linked::weights()[offset / 4..offset / 4 + len]
}
