//! The list of modules that the program shares with its build script. `lib.rs` and `build.rs` both
//! include this file. Each of them uses only some of the modules' code.

#[path = "block.rs"]
pub(crate) mod block;
#[path = "ir/mod.rs"]
pub(crate) mod ir;
#[path = "ops/mod.rs"]
pub(crate) mod ops;
#[path = "planner/mod.rs"]
pub(crate) mod planner;
#[path = "registry/mod.rs"]
pub(crate) mod registry;
#[path = "simd/wide.rs"]
pub(crate) mod wide;
