//! The intermediate representation that the build and the running program share: plain data, no I/O, no unsafe.

pub mod graph;
pub mod half;
pub mod layout;
pub mod network;
pub mod npy;
pub mod op;
pub mod plan;
pub mod values;
pub mod wire;
