//! OpenCL, behind a safe face: the library is found at run time, objects are released by drop,
//! errors name the call, the code and the object. Only OpenCL 1.1 is required; what is newer is
//! used where it is there.
//!
//! ```text
//! ClLibrary::open → devices() → Context → Queue ─┬─ ClBuffer ── MappedBuffer
//!                                └── Program ── ClKernel ── BoundKernel ──┘ Queue::launch
//! ```
//!
//! # Who may touch a buffer
//!
//! Memory belongs to one in-order queue, so everything that devices and host do to it has one
//! order. The host sees it through a map:
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
//! - Unmapped: commands may use the buffer, the host has no view of it.
//! - Pending: the map is enqueued behind all earlier commands. Nobody may use the buffer.
//! - Mapped: the host may use it. The pointer is given up with the unmap and never used again.
//!
//! In the last two states a buffer is *mapped*: `Queue::launch` refuses a kernel that has it as an
//! argument, and a second map, a read or a write of it is refused. A sub-buffer is mapped while any
//! part of its parent is; what the host and the device use at the same time (two slots) must be
//! separate buffers. A batch is therefore
//!
//! ```text
//!   results.enqueue_unmap, input.enqueue_unmap, launch…, results.enqueue_map, input.enqueue_map, flush
//!   …later…  results.wait, results.slice, input.wait, input.slice_mut
//! ```
//!
//! None of these allocates or creates anything but events, each of which is released once.
//!
//! # What is trusted
//!
//! With that, safe code cannot reach freed, foreign or concurrently written memory through this
//! module. What can be launched is a `BoundKernel`: it has all the arguments that its function
//! takes, keeps their memory alive, and each buffer is as large as what the kernel may touch of it,
//! as far as whoever binds it knows (for the kernels of the registry: the sizes of their operands,
//! not those of the buffers that were made for them). What is handed to a driver as a binary came
//! from a driver in this process, or out of a file that only this user and root could write.
//!
//! Two conditions are left that no wrapper can check. The OpenCL library keeps to the
//! specification. And kernels stay within their arguments, which on a CPU device are memory of this
//! process: the kernels of this crate are tested for that under a simulator that checks bounds,
//! their parameters are compared with the registry by the build and under `--kernels`; a kernel or
//! a library that the user names is the user's own code, as with any program that they start.
// The one place, with `sys` and `engine::simd`, where `unsafe` is allowed.
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
