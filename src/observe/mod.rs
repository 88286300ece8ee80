//! Clocks, the profile of a run, its trace, and their text.

pub(crate) mod clocks;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod times;
pub(crate) mod trace;
