//! Safe faces over calls of the system and of the linker: the linked block, the one behind the
//! program, readiness of a file descriptor, who may have written a file, signals, threads, memory,
//! calls that do not come back.
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
