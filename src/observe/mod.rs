//! What happens and how long it takes: clocks, the profile of a run, its trace, and their text.

pub mod profile;
pub mod report;
pub mod times;
pub mod trace;
