//! The host's threads and what they compute with.
//!
//! | file       | what                                                                     |
//! |------------|--------------------------------------------------------------------------|
//! | `micro`    | the micro-kernels, a crate of its own: it is compiled for speed          |
//! | `schedule` | who computes which tile when: claiming, waiting, sleeping                |
//! | `team`     | the network's steps over buffers that all threads share                  |
#![allow(unsafe_code)]

mod schedule;
mod team;
#[cfg(test)]
mod tests;

pub use mortonnet_micro::decode;
pub use team::{Action, Place, Step, Team, Weights};

use crate::ir::network::Activation;

/// The micro-kernels' name of an activation.
fn epilogue(activation: Activation) -> mortonnet_micro::Activation {
    match activation {
        Activation::None => mortonnet_micro::Activation::None,
        Activation::Sigmoid => mortonnet_micro::Activation::Sigmoid,
        Activation::Relu => mortonnet_micro::Activation::Relu,
        Activation::Tanh => mortonnet_micro::Activation::Tanh,
    }
}
