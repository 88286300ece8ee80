//! The intermediate representation that the build and the running program share: plain data, no I/O, no unsafe.

pub mod graph;
