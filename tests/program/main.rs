//! Tests of the program as users run it: the real binary as a subprocess.
#![allow(unreachable_pub)]

mod appended;
mod baking;
mod benching;
mod binary;
mod block;
mod cache;
mod calls;
mod checked;
mod checks;
mod devices;
mod differential;
mod docs;
mod examples;
mod filter;
mod hangs;
mod images;
mod limits;
// The tests of boards use this module, too.
#[allow(dead_code)]
mod loops;
mod malformed;
mod messages;
mod multi;
mod networks;
mod opens;
mod overflow;
mod python;
mod recipes;
mod reproducible;
mod rooms;
mod service;
mod signals;
mod speed;
mod support;
mod trace;
mod trial;
mod tuning;
mod tutorial;
mod without_lab;
mod world;
