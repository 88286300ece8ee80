//! A small trace-driven cache model of the matrix products. It counts the misses that the documents
//! derive on paper.
//!
//! The model of execution, after ARM §1.2.3 and §1.4.6:
//!
//! - Work-groups are numbered with dimension 0 of the group grid fastest, and a core holds `max(1,
//!   threads / group size)` of them at a time. The groups that all cores hold together are a
//!   *wave*: core 0 takes the first groups of the wave, core 1 the next, and so on.
//! - Within a core the threads run in step: for each iteration of the k loop every thread issues
//!   its first load (group by group, dimension 0 fastest), then every thread its second, … The
//!   cores take turns iteration by iteration. After the loop every thread writes its results; a
//!   write fetches the line as a read does.
//! - Each core has an L1, all share an L2, both set-associative with LRU replacement. A matrix
//!   starts at a multiple of 4096 bytes behind the one before it.
//!
//! The model leaves out threads that drift apart, prefetching, page tables (addresses are
//! contiguous), and the time that a miss takes. Without drift the barriers of the cache-blocked
//! kernels change nothing.
//!
//! The addresses that a kernel reads follow from its entry in the library
//! ([`Pattern::of`](pattern::Pattern::of)). Kernels that stage their operands in local memory are
//! modelled as work-groups that read each element once. A texture path is modelled as the cache of
//! the other loads.
//!
//! Two things keep the model fast. A load that sweeps the same addresses again (the rows of a tile
//! under each of its columns) is simulated at most three times: LRU is in the same state after each
//! further sweep, so each further one misses exactly as the third did. Large products are sampled:
//! whole waves, with the whole k loop, at several places of the grid, each after a warm-up long
//! enough to fill the L2 twice.

mod footprint;
mod lru;
mod misses;
mod pattern;
mod report;
mod shape;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use report::report;
pub(crate) use shape::{CacheShape, Sample};
