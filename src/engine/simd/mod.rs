//! The host's threads and what they compute with.
//!
//! | file       | what                                                                     |
//! |------------|--------------------------------------------------------------------------|
//! | `micro`    | the micro-kernels, for each instruction set                              |
//! | `images`   | steps on images, a record at a time                                      |
//! | `peak`     | the most multiply-adds that a core can do                                |
//! | `schedule` | who computes which tile when: claiming, waiting, sleeping                |
//! | `team`     | the network's steps over buffers that all threads share                  |
#![allow(unsafe_code)]

pub(crate) mod images;
mod micro;
mod moves;
#[cfg(feature = "lab")]
mod peak;
mod schedule;
mod team;
#[cfg(test)]
mod tests;

pub(crate) use micro::{Made, decode};
pub(crate) use moves::Moves;
#[cfg(feature = "lab")]
pub(crate) use peak::peak;
pub(crate) use team::{Action, Place, Sizes, Step, Team, Weights};
