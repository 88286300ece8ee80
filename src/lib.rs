//! mortonnet: a trained network as one executable.
//!
//! The rooms, each of which imports those above it only (`tests/program/rooms.rs` checks that):
//!
//! ```text
//! ir        shapes, layouts, graph, plan: plain data       shared with the build, as are the next four
//! ops       what the operations mean, in float64
//! registry  kernels, recipes, device classes
//! planner   graph + recipe → plan
//! block     what the build leaves in the program, as bytes
//! error, escape, sys, cl     what the rest stands on
//! baked     what the build left in this program
//! observe   clocks, profile, trace, report
//! engine    runs a plan: host, opencl, several devices, selection
//! stream    bytes ↔ records
//! lab       bench, tune, cache model, pages               cargo feature `lab`, on by default
//! bake      the build's half, for `mortonnet-bake` too     cargo feature `bake`
//! cli       the command line
//! ```

// What only the lab uses is dead without it.
#![cfg_attr(not(feature = "lab"), allow(dead_code, unused_imports))]

#[cfg(all(test, feature = "lab"))]
mod allocations;
#[cfg(any(test, fuzzing, feature = "bake"))]
#[allow(dead_code)]
mod bake;
mod baked;
#[allow(dead_code)] // The build uses the rest.
mod block;
mod cl;
mod cli;
mod engine;
mod error;
mod escape;
#[cfg(fuzzing)]
#[path = "../tests/fuzz/checks/mod.rs"]
pub mod fuzzing;
#[allow(dead_code)] // The build uses the rest.
mod ir;
#[cfg(feature = "lab")]
mod lab;
#[cfg(test)]
mod models;
mod observe;
#[allow(dead_code)] // The build uses the rest.
mod ops;
#[allow(dead_code)] // The build uses the rest.
mod planner;
#[allow(dead_code)] // The build uses the rest.
mod registry;
mod simd;
mod stream;
mod sys;

#[cfg(feature = "bake")]
pub use cli::bake::main as bake;
pub use cli::main;
