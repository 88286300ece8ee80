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
//! cli       the command line
//! ```

#[cfg(test)]
#[allow(unreachable_pub, dead_code)]
mod bake;
pub mod baked;
pub mod block;
pub mod cl;
pub mod cli;
pub mod engine;
pub mod error;
pub mod escape;
pub mod ir;
#[cfg(feature = "lab")]
pub mod lab;
pub mod observe;
pub mod ops;
pub mod planner;
pub mod registry;
pub mod stream;
pub mod sys;
