//! The host's threads and what they compute with.
//!
//! | file       | what                                                                     |
//! |------------|--------------------------------------------------------------------------|
//! | `micro`    | the micro-kernels, for each instruction set                              |
//! | `schedule` | who computes which tile when: claiming, waiting, sleeping                |
//! | `team`     | the network's steps over buffers that all threads share                  |
#![allow(unsafe_code)]

mod micro;
mod schedule;
mod team;
#[cfg(test)]
mod tests;

pub(crate) use micro::decode;
pub(crate) use team::{Action, Place, Step, Team, Weights};
