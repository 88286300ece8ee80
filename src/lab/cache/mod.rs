//! A small trace-driven cache model of the matrix-product kernels. It counts the cache misses that
//! ARM's guide and the thesis derive on paper.
//!
//! The model of execution follows ARM §1.2.3 and §1.4.6:
//!
//! - Work-groups are numbered with dimension 0 of the group grid fastest. A core holds `max(1,
//!   threads / group size)` of them at a time. The groups that all cores hold together are a
//!   *wave*. Core 0 takes the first groups of the wave, core 1 the next, and so on.
//! - Within a core the threads run in step. In each iteration of the k loop (the loop over the
//!   common dimension), every thread issues its first load, then every thread its second, and so
//!   on. Threads are in order of their groups, dimension 0 fastest. The cores take turns iteration
//!   by iteration. After the loop every thread writes its results. A write fetches the line as a
//!   read does.
//! - Each core has an L1, and all cores share an L2. Both are set-associative with LRU replacement.
//!   Each matrix starts at a multiple of 4096 bytes, behind the previous matrix.
//!
//! The model leaves out threads that drift apart, prefetching, page tables (addresses are
//! contiguous), and the time that a miss takes. Without drift, the barriers of the cache-blocked
//! kernels change nothing.
//!
//! The addresses that a kernel reads follow from its entry in the library
//! ([`Pattern::of`](pattern::Pattern::of)). Kernels that stage their operands in local memory are
//! modelled as work-groups that read each element once. Loads through the texture path are
//! modelled as if they used the same cache as other loads.
//!
//! Two shortcuts keep the model fast. Some loads sweep the same addresses repeatedly, for example
//! the rows of a tile for each of its columns. Such a sweep is simulated at most three times. LRU
//! is in the same state after each further sweep, so each misses exactly as the third did. Large
//! products are sampled: whole waves, with the whole k loop, at several places of the grid. Before
//! each place, a warm-up is simulated that is long enough to fill the L2 twice.

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
