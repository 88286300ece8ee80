//! The host engine's threads and vector code.
//!
//! | file       | what                                                                     |
//! |------------|--------------------------------------------------------------------------|
//! | `micro`    | the micro-kernels, for each instruction set                              |
//! | `images`   | steps on images, a record at a time                                      |
//! | `windows`  | convolutions: their windows as records of a product                      |
//! | `moves`    | steps that copy or scale rows                                            |
//! | `peak`     | the rates of multiply-adds and of reading of cores, measured             |
//! | `work`     | the data that steps move, and their shapes in words                      |
//! | `dense`    | weights, and products with them                                          |
//! | `joins`    | concatenations without copies                                            |
//! | `padding`  | rows without data, which are not computed                                |
//! | `sums`     | sums of two values as part of convolutions                               |
//! | `whole`    | models of 8-bit integers: scalings as part of layers, kernels for them   |
//! | `bytes`    | whole numbers that stay bytes between steps                              |
//! | `product`  | products of two computed values, with the kernels of dense steps         |
//! | `steps`    | the steps of a network                                                   |
//! | `bands`    | steps on images that a thread carries out together                       |
//! | `phases`   | groups of steps, cut into tiles                                          |
//! | `deferred` | records that reach an engine as bytes                                    |
//! | `buffers`  | memory that threads share                                                |
//! | `check`    | the sizes that the unsafe code relies on                                 |
//! | `run`      | the interpreter of steps, a tile at a time                               |
//! | `schedule` | claiming tiles, waiting, sleeping                                        |
//! | `team`     | the threads, seen from the one that submits batches                      |
#![allow(unsafe_code)]

mod bands;
mod buffers;
mod bytes;
mod check;
pub(crate) mod deferred;
mod dense;
pub(crate) mod images;
mod joins;
mod micro;
mod moves;
mod padding;
#[cfg(feature = "lab")]
mod peak;
mod phases;
mod product;
mod run;
mod schedule;
mod steps;
mod sums;
mod team;
#[cfg(test)]
mod tests;
mod whole;
mod windows;
#[cfg(feature = "lab")]
mod work;

#[cfg(test)]
pub(crate) use bands::{BandLimits, LIMITS, MADE};
pub(crate) use check::BufferRows;
pub(crate) use dense::{Dense, Weights};
#[cfg(test)]
pub(crate) use micro::MOST_LANES;
pub(crate) use micro::{WindowOp, decode};
pub(crate) use moves::Moves;
#[cfg(feature = "lab")]
pub(crate) use peak::{LEAST_BYTES, bandwidth, peak, peak_of};
pub(crate) use steps::{Action, Finish, HostStep, Place};
#[cfg(test)]
pub(crate) use sums::{JOINED, JOINS};
pub(crate) use team::{Team, TeamSizes};
#[cfg(feature = "lab")]
pub(crate) use work::{StepWork, TeamWork};
