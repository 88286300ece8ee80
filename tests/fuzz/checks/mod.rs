//! The checks of the fuzz targets, one function each. The crate includes them if `cfg(fuzzing)` is
//! set, which only `tests/fuzz` does. So they reach private items. Some files in this folder are
//! included by the modules whose private items they call.
//!
//! The alternatives are worse: a public interface only for tests, or copies of modules, whose
//! `crate::` paths are wrong in another crate.

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

/// Passes bytes to `read` as `&'static`, like those of the program's block, and frees them
/// afterwards.
#[allow(unsafe_code)]
pub(crate) fn kept<T>(
    bytes: Vec<u8>,
    read: impl FnOnce(&'static [u8]) -> T,
    use_of: impl FnOnce(T),
) {
    let kept = std::ptr::from_mut(Box::leak(bytes.into_boxed_slice()));
    // SAFETY: the bytes live until the end of this function, and `use_of` drops what borrows them.
    use_of(read(unsafe { &*kept }));
    // SAFETY: the pointer is from the box.
    drop(unsafe { Box::from_raw(kept) });
}
