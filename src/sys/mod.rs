//! What needs the system or the linker: the linked constants, readiness of a file descriptor, signals, threads. Safe
//! faces over the unsafe calls.
#![allow(unsafe_code)]

pub mod io;
pub mod linked;
pub mod signal;
pub mod thread;
