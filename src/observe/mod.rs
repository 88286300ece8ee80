//! Measures a run: the times of its parts, its trace, a device's clock, and the text of all of
//! them.

pub(crate) mod clocks;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod times;
pub(crate) mod trace;
