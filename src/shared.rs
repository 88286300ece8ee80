//! The modules that the program shares with its build. `lib.rs` and `build.rs` both mount this
//! list, and each uses a part of the modules.

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
