//! Lines and pages that work-groups need at a time: the figures that the documents derive by hand.

use super::pattern::{Pattern, pattern};
use super::shape::CacheShape;
use super::walk::Walk;

/// Terms of the sum between two barriers of ARM's cache-blocked kernels: 32 iterations of four.
pub(super) const ARM_BARRIER: usize = 4 * 32;

/// Lines that are loaded, and the lines that their bytes would fill.
#[derive(Debug, PartialEq)]
pub(super) struct LoadedLines {
    pub(super) lines: usize,
    pub(super) full: f64,
}

/// Cache misses that come together, and the iterations from one such bulk to the next (thesis, §8).
#[derive(Debug, PartialEq)]
pub(super) struct Bulk {
    pub(super) lines: usize,
    pub(super) period: usize,
}

/// Pages that the first groups of a core load from: in the whole k loop, and at most in
/// [`ARM_BARRIER`] terms of it. Groups that drift apart may need all the former at a time, groups
/// that run in step the latter.
pub(super) fn pages(pattern: &Pattern, size: usize, shape: &CacheShape) -> [f64; 2] {
    let shift = shape.page.trailing_zeros() - 2;
    let walk = Walk::new(pattern, size, shift);
    let groups = 0..shape.resident(pattern).min(walk.groups());
    let all = walk.iterations.len();
    let close = ARM_BARRIER.div_ceil(pattern.k_step).min(all);
    [all, close].map(|n| walk.lines(groups.clone(), 0..n, shift).len() as f64)
}

/// Average lines that one group fetches in an iteration if each is fetched once: its misses in a
/// cache that keeps everything that is used again.
pub(super) fn alone(pattern: &Pattern, shape: &CacheShape) -> f64 {
    let walk = Walk::new(pattern, 1024, shape.shift());
    // These iterations cover whole lines, whatever the k step.
    let n = (shape.line / 4).min(walk.iterations.len());
    walk.lines(0..1, 0..n, walk.shift).len() as f64 / n as f64
}

/// The bulks of misses of one group, in a cache that keeps everything that is used again.
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

/// Lines that the threads of a core load in four iterations.
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

/// ARM's blocked kernel with groups of the given dimension 1, and of dimension 0 up to 4.
pub(super) fn arm(codename: &str, dimension_1: usize, shape: &CacheShape) -> Option<Pattern> {
    let mut pattern = pattern(codename)?;
    pattern.group = [(shape.threads / dimension_1).min(4), dimension_1];
    pattern.items = pattern.group[0] * dimension_1;
    (pattern.group[0] > 0).then_some(pattern)
}

/// Misses of a group in an iteration, by the documents' formulas.
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
