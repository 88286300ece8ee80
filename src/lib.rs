//! mortonnet puts a trained network into one executable.
//!
//! The modules, each of which imports only modules above it (`tests/program/rooms.rs` checks that):
//!
//! ```text
//! ir        shapes, layouts, graph, plan: plain data       shared with the build (src/shared.rs)
//! ops       the operations in float64                      shared
//! registry  kernels, recipes, device classes               shared
//! planner   graph + recipe → plan                          shared
//! block     the baked data as bytes                        shared
//! error, escape, sys, cl     errors, the system, OpenCL
//! baked     reads the block of this program
//! observe   clocks, profile, trace, report
//! simd      vector code and the host's threads
//! engine    runs a plan: host, opencl, several devices, selection
//! stream    bytes ↔ records
//! lab       bench, tune, cache model, pages                cargo feature `lab`, on by default
//! bake      the build's half, for `mortonnet-bake` too     cargo feature `bake`
//! cli       the command line
//! ```

// Only the lab uses some of the code and imports. A build without the lab does not warn about them.
#![cfg_attr(not(feature = "lab"), allow(dead_code, unused_imports))]

#[cfg(all(test, feature = "lab"))]
mod allocations;
#[cfg(any(test, fuzzing, feature = "bake"))]
#[cfg_attr(not(test), allow(dead_code))] // The build or tests use the rest.
mod bake;
mod baked;
mod cl;
mod cli;
mod engine;
mod error;
mod escape;
#[cfg(fuzzing)]
#[path = "../tests/fuzz/checks/mod.rs"]
pub mod fuzzing;
#[cfg(feature = "lab")]
mod lab;
#[cfg(test)]
mod models;
mod observe;
#[cfg_attr(not(test), allow(dead_code))] // The build or tests use the rest.
mod shared;
mod simd;
mod stream;
mod sys;

use shared::*;

#[cfg(feature = "bake")]
pub use cli::bake::main as bake;
pub use cli::main;
