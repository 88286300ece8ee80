//! What needs the system or the linker: the linked constants, readiness of a file descriptor, who may have
//! written a file, signals, threads. Safe
//! faces over the unsafe calls.
#![allow(unsafe_code)]

pub mod io;
pub mod linked;
pub mod own;
pub mod signal;
pub mod thread;
