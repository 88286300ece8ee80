//! What the build baked: network, plan, kernel library and sources as data; constants and golden vectors as slices of
//! the linked symbol.

use crate::spec::layout::{Chunk, Layout, Order};
use crate::spec::library::{
    DeviceClass, EngineKind, Kernel, Library, Most, Needs, Operand, Operation, PlanRecipe, Problem,
    Restrictions,
};
use crate::spec::network::{Activation, FinalActivation, Kind, Layer, Network, Output, Transform};
use crate::spec::plan::{Arg, Buffer, BufferRole, Constant, Extent, Plan, Step, Tensor, TensorRole};
use std::borrow::Cow;

/// The generated data.
#[allow(missing_docs, unused_imports)]
mod generated {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/baked.rs"));
}

pub use generated::{BLOB_HASH, GOLDEN_GIVEN, LIBRARY, NETWORK, PLAN, SOURCES};

/// Constant `i` of [`PLAN`], padded and in its layout.
pub fn constant(i: usize) -> &'static [f32] {
    slice(generated::CONSTANT_OFFSETS[i], PLAN.constants[i].len())
}

/// The golden vectors of `--selftest`.
pub struct Golden {
    /// Number of vectors.
    pub count: usize,
    /// Raw inputs, `count` × width.
    pub inputs: &'static [f32],
    /// Scores, `count` × outputs.
    pub scores: &'static [f32],
}

/// The golden vectors of [`NETWORK`].
pub fn golden() -> Golden {
    let count = generated::GOLDEN_COUNT;
    let (inputs, scores) = generated::GOLDEN_OFFSETS;
    Golden {
        count,
        inputs: slice(inputs, count * NETWORK.width),
        scores: slice(scores, count * NETWORK.outputs()),
    }
}

/// Bytes of all baked data: constants and golden vectors, page by page.
pub fn data_bytes() -> usize {
    generated::BLOB_BYTES
}

/// The text of the kernel source `path` (below `kernels/`).
pub fn source(path: &str) -> Option<&'static str> {
    SOURCES.iter().find(|s| s.0 == path).map(|s| s.1)
}

fn slice(offset: usize, len: usize) -> &'static [f32] {
    &crate::sys::linked::weights(generated::BLOB_BYTES)[offset / 4..offset / 4 + len]
}
