//! What the fuzz targets check, a function each. Mounted by the crate where `cfg(fuzzing)` is set, which only
//! `tests/fuzz` does, so that it reaches what is private to the crate; the files beside this one are mounted by the modules
//! whose private items they call.
//!
//! The other ways leave more behind: a public interface for tests alone, or copies of modules, whose `crate::` paths
//! lead nowhere in another crate.

mod input;

pub use crate::stream::fuzzing::*;
pub(crate) use input::Input;
