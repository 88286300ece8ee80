//! What the build and the running program agree on: layouts, kernels and their restrictions, networks, plans.
//!
//! Pure code (std only, no I/O, no unsafe), mounted by `build.rs` and by the library under the same name.

pub mod half;
pub mod layout;
pub mod library;
pub mod network;
pub mod npy;
pub mod plan;
pub mod reference;
pub mod wire;
