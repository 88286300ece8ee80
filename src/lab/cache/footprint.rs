//! The cache lines and pages that a core's work-groups need at a time. ARM's guide and the thesis
//! derive these figures by hand.

use super::pattern::{Pattern, pattern};
use super::shape::CacheShape;
use super::walk::Walk;

/// The terms of each dot product that ARM's cache-blocked kernels add between two barriers. They
/// are 32 iterations of four terms.
pub(super) const ARM_BARRIER: usize = 4 * 32;

/// The number of cache lines that loads touch, and the number of lines that the loaded bytes would
/// fill without gaps.
#[derive(Debug, PartialEq)]
pub(super) struct LoadedLines {
    pub(super) lines: usize,
    pub(super) full: f64,
}

/// The cache lines that one work-group misses together, and the iterations from one such bulk of
/// misses to the next (thesis, §8).
#[derive(Debug, PartialEq)]
pub(super) struct Bulk {
    pub(super) lines: usize,
    pub(super) period: usize,
}

/// Returns two numbers of memory pages that the first work-groups of a core load from. The first
/// counts the whole k loop, the second only its first [`ARM_BARRIER`] terms. Groups that drift
/// apart in time may need all pages of the first number at once. Groups that run in step need only
/// those of the second.
pub(super) fn pages(pattern: &Pattern, size: usize, shape: &CacheShape) -> [f64; 2] {
    let shift = shape.page.trailing_zeros() - 2;
    let walk = Walk::new(pattern, size, shift);
    let groups = 0..shape.resident(pattern).min(walk.groups());
    let all = walk.iterations.len();
    let close = ARM_BARRIER.div_ceil(pattern.k_step).min(all);
    [all, close].map(|n| walk.lines(groups.clone(), 0..n, shift).len() as f64)
}

/// Returns the average number of cache lines that one work-group loads per iteration, if it fetches
/// each line once. These are its misses in a cache that keeps every line that is used again.
pub(super) fn alone(pattern: &Pattern, shape: &CacheShape) -> f64 {
    let walk = Walk::new(pattern, 1024, shape.shift());
    // After as many iterations as a line has floats, lines are read to their ends for any k step.
    let n = (shape.line / 4).min(walk.iterations.len());
    walk.lines(0..1, 0..n, walk.shift).len() as f64 / n as f64
}

/// Returns the cache lines that one work-group loads in its first iteration, and the number of
/// iterations until it loads another line. In a cache that keeps everything, these lines miss
/// together.
pub(super) fn bulk_and_period(pattern: &Pattern, shape: &CacheShape) -> Bulk {
    let walk = Walk::new(pattern, 1024, shape.shift());
    let lines = |i: usize| walk.lines(0..1, i..i + 1, walk.shift);
    let seen = lines(0);
    let new = |i: &usize| lines(*i).iter().any(|l| seen.binary_search(l).is_err());
    let all = walk.iterations.len();
    Bulk {
        lines: seen.len(),
        period: (1..all).find(new).unwrap_or(all),
    }
}

/// Returns the cache lines that all work-groups of a core load in the first four iterations.
pub(super) fn four_iterations(pattern: &Pattern, shape: &CacheShape) -> LoadedLines {
    let size = (4 * shape.threads).next_multiple_of(1024);
    let walk = Walk::new(pattern, size, shape.shift());
    let groups = 0..shape.resident(pattern);
    let vectors = walk.lines(groups.clone(), 0..4, 2).len();
    LoadedLines {
        lines: walk.lines(groups, 0..4, walk.shift).len(),
        full: vectors as f64 * 16.0 / shape.line as f64,
    }
}

/// Returns the pattern of one of ARM's blocked kernels. Its work-groups have `dimension_1`
/// work-items along dimension 1 and up to 4 along dimension 0. `None` if a core has fewer than
/// `dimension_1` threads.
pub(super) fn arm(codename: &str, dimension_1: usize, shape: &CacheShape) -> Option<Pattern> {
    let mut pattern = pattern(codename)?;
    pattern.group = [(shape.threads / dimension_1).min(4), dimension_1];
    pattern.items = pattern.group[0] * dimension_1;
    (pattern.group[0] > 0).then_some(pattern)
}

/// Returns the cache misses of a work-group per iteration, by a formula of ARM or of the thesis.
/// `None` for kernels without a formula.
pub(super) fn document(pattern: &Pattern) -> Option<f64> {
    let [g0, g1] = pattern.group.map(|g| g as f64);
    let groups = 128.0 / (g0 * g1);
    match pattern.codename.strip_prefix("matmul_")? {
        "blocked_rmcm" | "morton_4_2" | "morton_4_4" => Some(2.0 * (g0 + g1) / 4.0),
        "blocked_nn" => Some((g1 + 512.0 / g1) / 4.0 / groups),
        "blocked_nt" => Some((2.0 * g1 + 256.0 / g1) / 4.0 / groups),
        _ => None,
    }
}
