//! mortonnet: a trained network as one executable.
//!
//! The data flows one way: `bake` (at build time, `build.rs`) → [`spec::plan`] → [`engine`] → [`stream`].

#[cfg(test)]
#[allow(unreachable_pub, dead_code)]
mod bake;
pub mod baked;
pub mod bench;
pub mod cache;
pub mod cl;
pub mod cli;
pub mod engine;
pub mod error;
pub mod escape;
pub mod info;
pub mod ir;
pub mod model;
pub mod ops;
pub mod planner;
pub mod profile;
pub mod report;
pub mod selftest;
pub mod sources;
pub mod spec;
pub mod stream;
pub mod sys;
pub mod trace;
pub mod tune;
