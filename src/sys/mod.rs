//! Safe interfaces to the system and the linker: the baked block (linked or appended), readiness of
//! file descriptors, owners of files, signals, threads, memory, and a watchdog over calls that
//! hang.
#![allow(unsafe_code)]

#[cfg(feature = "appended")]
pub(crate) mod appended;
#[cfg(test)]
pub(crate) mod counting;
pub(crate) mod io;
pub(crate) mod linked;
pub(crate) mod memory;
pub(crate) mod own;
pub(crate) mod signal;
pub(crate) mod thread;
pub(crate) mod watchdog;
