//! A safe interface to OpenCL. The library is found at run time, objects are released by drop, and
//! errors name the call, the code and the object. OpenCL 1.1 is enough. Newer calls are used if the
//! library has them.
//!
//! ```text
//! ClLibrary::open → devices() → Context → Queue ─┬─ ClBuffer ── MappedBuffer
//!                                └── Program ── ClKernel ── BoundKernel ──┘ Queue::launch
//! ```
//!
//! # Who may touch a buffer
//!
//! Memory belongs to one in-order queue, so all accesses of device and host have one order. The
//! host sees the memory through a map:
//!
//! ```text
//!               enqueue_map                wait
//!   Unmapped ───────────────▶ Pending ──────────────▶ Mapped ──▶ slice(), slice_mut()
//!       ▲                        │ the map failed        │
//!       ├────────────────────────┘                       │
//!       └────────────────────────────────────────────────┘
//!                          enqueue_unmap
//! ```
//!
//! - Unmapped: commands may use the buffer. The host has no view of it.
//! - Pending: the map is enqueued behind all earlier commands. Nothing may use the buffer.
//! - Mapped: the host may use the buffer. The unmap gives up the pointer for good.
//!
//! In the states Pending and Mapped, `Queue::launch` refuses a kernel that has the buffer as an
//! argument. A second map, a read and a write are refused too. A sub-buffer counts as mapped while
//! any part of its parent is. Therefore the two slots, which host and device use at the same time,
//! need separate buffers. A batch makes these calls:
//!
//! ```text
//!   results.enqueue_unmap, input.enqueue_unmap, launch…,
//!   results.enqueue_map, input.enqueue_map, flush
//!   …later…  results.wait, results.slice, input.wait, input.slice_mut
//! ```
//!
//! None of these calls allocates. They create events only, and release each of them once.
//!
//! # What is trusted
//!
//! With these rules safe code cannot reach freed, foreign or concurrently written memory through
//! this module. Only a `BoundKernel` can be launched. It has all the arguments that its function
//! takes and keeps their memory alive. Each buffer is at least as large as the part that the kernel
//! may touch. The caller of `bind` states that size; for the kernels of the registry it is the size
//! of the operand, not that of the buffer made for it. A program binary comes from a driver in this
//! process, or from a file that only this user and root could write.
//!
//! Two conditions remain that no wrapper can check:
//!
//! - The OpenCL library keeps to the specification.
//! - Kernels stay within their arguments, which on a CPU device are memory of this process. The
//!   kernels of this crate are tested under a simulator that checks bounds, and their parameters
//!   are compared with the registry by the build and under `--kernels`. A kernel or a library that
//!   the user names is the user's own code, like any program that the user starts.
#![allow(unsafe_code)]

mod device;
mod error;
mod image;
mod loader;
mod memory;
mod nodes;
mod program;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use device::{Device, DeviceKind, Devices, LocalMemory, devices};
pub(crate) use error::ClError;
pub(crate) use image::{Channel, Image2d};
pub(crate) use loader::ClLibrary;
pub(crate) use memory::{Access, BufferHome, ClBuffer, Element, MapMode, MappedBuffer, bytes_of};
pub(crate) use nodes::nodes;
pub(crate) use program::{Argument, BoundKernel, ClKernel, Program, ProgramBinary};
pub(crate) use queue::{Context, Event, Queue, Times};
