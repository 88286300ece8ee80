//! The intermediate representation that the build and the finished program share. Its modules have
//! plain data, no I/O and no unsafe code.

pub(crate) mod byte_steps;
pub(crate) mod graph;
pub(crate) mod half;
pub(crate) mod layout;
pub(crate) mod network;
pub(crate) mod npy;
pub(crate) mod op;
pub(crate) mod options;
pub(crate) mod order;
pub(crate) mod plan;
pub(crate) mod product;
pub(crate) mod scale;
pub(crate) mod taps;
pub(crate) mod values;
pub(crate) mod view;
pub(crate) mod whole_numbers;
pub(crate) mod wire;
