//! What the fuzz targets check, a function each. Mounted by the crate where `cfg(fuzzing)` is set,
//! which only `tests/fuzz` does, so that it reaches what is private to the crate; some files beside
//! this one are mounted by the modules whose private items they call.
//!
//! The other ways leave more behind: a public interface for tests alone, or copies of modules,
//! whose `crate::` paths lead nowhere in another crate.

mod bake;
mod block;
mod graphs;
mod input;

pub use crate::bake::front::fuzzing::{network, onnx, tflite};
pub use crate::engine::cache::fuzzing::programs;
pub use crate::engine::trial::fuzzing::trial;
pub use crate::engine::tuning::fuzzing::tuning;
pub use crate::stream::fuzzing::{csv, expect, idx, line, npy, number, raw};
pub(crate) use bake::{canonical, edited, folder, told};
pub use bake::{kernel_library, matrix, plan_file};
pub use block::{block, wire};
pub use graphs::{host, opencl, planner};
pub(crate) use input::Input;

/// Gives `read` bytes as the program has those of its block, which stay for ever, and frees them.
#[allow(unsafe_code)]
pub(crate) fn kept<T>(
    bytes: Vec<u8>,
    read: impl FnOnce(&'static [u8]) -> T,
    use_of: impl FnOnce(T),
) {
    let kept = std::ptr::from_mut(Box::leak(bytes.into_boxed_slice()));
    // SAFETY: they are there until the end of this function; what borrows them is dropped before.
    use_of(read(unsafe { &*kept }));
    // SAFETY: it is the pointer of the box.
    drop(unsafe { Box::from_raw(kept) });
}
