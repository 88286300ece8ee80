//! The program as its users run it: the real binary as a subprocess.
#![allow(unreachable_pub)]

mod baking;
mod benching;
mod binary;
mod devices;
mod docs;
mod filter;
mod support;
mod tuning;
