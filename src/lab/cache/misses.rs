//! Counts the cache misses of matrix products by simulation.

use super::lru::{Caches, Count};
use super::pattern::Pattern;
use super::shape::{CacheShape, Sample};
use super::walk::Walk;
use crate::lab::table::{Cell, Measured};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The cache misses of a whole matrix product. They are extrapolated if only a sample of its
/// work-groups was simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Misses {
    /// L1 misses, summed over all cores.
    pub(super) l1: f64,
    /// Misses of the L2, which all cores share.
    pub(super) l2: f64,
    /// Half the interquartile range of the misses over the sampled places, for `l1` and `l2`. It is
    /// 0 if the whole product was simulated.
    pub(super) spread: [f64; 2],
    /// The number of multiply-adds of the whole product.
    pub(super) madds: f64,
    /// The number of iterations of the k loop, summed over all work-groups of the product.
    pub(super) iterations: f64,
    /// The number of work-groups of the whole product.
    pub(super) groups: usize,
    /// The number of work-groups that were simulated and counted; equal to `groups` without
    /// sampling.
    pub(super) counted: usize,
    /// The number of places in the grid of work-groups that were sampled; 1 if the whole product
    /// was simulated.
    pub(super) places: usize,
}

/// The misses of one kernel's pattern, one item for each matrix size. An error is the reason why
/// that size was not simulated.
pub(super) type MissesBySize = Vec<Result<Misses, String>>;

impl Misses {
    /// Returns a cell with the misses of L1 (`level` 0) or L2 (1) and their spread, divided by
    /// `unit`.
    pub(super) fn cell(&self, level: usize, unit: f64) -> Cell {
        let value = [self.l1, self.l2][level] / unit;
        Cell::Measured(Measured {
            value,
            spread: (self.places > 1).then(|| self.spread[level] / unit),
            runs: self.places as u32,
            ..Measured::default()
        })
    }
}

/// The part of a matrix product that is simulated, in waves. A wave is all work-groups that the
/// cores hold at once.
struct Coverage {
    /// The number of waves of the whole product.
    waves: usize,
    /// The number of sampled places in the grid of work-groups; 1 if the whole product is
    /// simulated.
    places: usize,
    /// The number of waves whose misses are counted at each place.
    counted: usize,
    /// The number of waves before each place that only warm up the caches. Their misses do not
    /// count.
    before: usize,
    /// The iteration of the k loop at which the first wave of a warm-up starts. It is not 0 if a
    /// warm-up needs less than a whole wave.
    from: usize,
}

impl Coverage {
    /// Chooses to simulate the whole product if it is small, else a sample of it. Returns an error
    /// if even the sample has more cache accesses than `sample.most`.
    fn new(
        walk: &Walk,
        pattern: &Pattern,
        shape: &CacheShape,
        sample: Sample,
    ) -> Result<Coverage, String> {
        let per_wave = shape.cores * shape.resident(pattern);
        let waves = walk.groups().div_ceil(per_wave);
        let sweeps = walk.sweeps(0..1, 0);
        let once = sweeps
            .iter()
            .map(|s| s.starts.len() as u64 * s.repeat.min(2))
            .sum::<u64>();
        let accesses = once * walk.iterations.len() as u64 * walk.groups() as u64;
        let warm = walk.warm(shape);
        let before = (warm.ceil() as usize).max(1);
        // A matrix that fits into the L2 is fetched only at the start. No part of the grid is then
        // representative, so the whole product is simulated.
        let small = walk.l * walk.l <= shape.l2_lines * (shape.line / 4);
        let sampled = sample.waves.saturating_mul(sample.places);
        let enough = sampled.saturating_add(before) <= waves;
        let full = accesses <= sample.full as u64 || small || !enough;
        let simulated = if full {
            waves
        } else {
            sample.places * (sample.waves + before)
        };
        let needed = accesses as f64 * simulated as f64 / waves as f64;
        if needed > sample.most as f64 {
            return Err(format!(
                "{:.0} million accesses had to be simulated, more than {}, with an L2 of {} KiB to \
                 fill; smaller --sizes or --cache l2_lines=N take less",
                needed / 1e6,
                sample.most / 1_000_000,
                shape.l2_lines * shape.line / 1024
            ));
        }
        Ok(match full {
            true => Coverage {
                waves,
                places: 1,
                counted: waves,
                before: 0,
                from: 0,
            },
            false => Coverage {
                waves,
                places: sample.places,
                counted: sample.waves,
                before,
                from: ((before as f64 - warm) * walk.iterations.len() as f64) as usize,
            },
        })
    }

    /// Returns the index of the first wave that is counted at a place. The golden section spreads
    /// the places, so that their distances share no power of two.
    fn start(&self, place: usize) -> usize {
        let free = (self.waves - self.counted - self.before) as f64;
        self.before + (free * (place as f64 * 0.618_034).fract()) as usize
    }
}

/// Counts the cache misses of a product of `size` × `size` matrices, padded to the kernel's
/// multiples. The matrices are smaller if the kernel takes only smaller problems
/// ([`Pattern::sizes`]). The size is 1 to [`MAX_SIZE`](super::shape::MAX_SIZE). An error is the
/// reason why the product is not simulated.
pub(super) fn misses(
    pattern: &Pattern,
    size: usize,
    shape: &CacheShape,
    sample: Sample,
) -> Result<Misses, String> {
    let walk = Walk::new(pattern, size, shape.shift());
    let coverage = Coverage::new(&walk, pattern, shape, sample)?;
    let tiles = |groups: &[Range<usize>]| walk.count(groups.iter().flat_map(|g| g.clone())) as f64;
    let mut caches = Caches::new(shape);
    let (mut rates, mut counted) = (Vec::new(), 0);
    for place in 0..coverage.places {
        let start = coverage.start(place);
        let mut from = coverage.from;
        for w in start - coverage.before..start {
            walk.run(&mut caches, &walk.wave(w, shape), from);
            from = 0;
        }
        let (mut total, mut done) = (Count::default(), 0.0);
        for w in start..start + coverage.counted {
            let wave = walk.wave(w, shape);
            total.add(walk.run(&mut caches, &wave, 0), 1);
            done += tiles(&wave);
            counted += wave.iter().map(|groups| groups.len()).sum::<usize>();
        }
        rates.push([total.l1 as f64, total.l2 as f64].map(|misses| misses / done));
    }
    let all = (walk.range[0] * walk.range[1]) as f64;
    let total =
        |level: usize| rates.iter().map(|r| r[level]).sum::<f64>() / rates.len() as f64 * all;
    let spread = |level: usize| {
        let mut sorted: Vec<f64> = rates.iter().map(|r| r[level]).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let quartile = |q: usize| sorted[((sorted.len() - 1) * q + 2) / 4];
        (quartile(3) - quartile(1)) / 2.0 * all
    };
    Ok(Misses {
        l1: total(0),
        l2: total(1),
        spread: [spread(0), spread(1)],
        madds: walk.madds,
        iterations: walk.groups() as f64 * walk.iterations.len() as f64,
        groups: walk.groups(),
        counted,
        places: rates.len(),
    })
}

/// Counts the cache misses of all patterns at all sizes, on one thread per processor. Patterns that
/// differ only in their codename are simulated once.
pub(super) fn all_misses(
    known: &[Pattern],
    sizes: &[usize],
    shape: &CacheShape,
    sample: Sample,
) -> Vec<MissesBySize> {
    let same = |p: &Pattern, q: &Pattern| {
        *p == Pattern {
            codename: p.codename.clone(),
            ..q.clone()
        }
    };
    let first: Vec<usize> = known
        .iter()
        .map(|p| known.iter().position(|q| same(p, q)).unwrap_or_default())
        .collect();
    let mut work: Vec<(usize, usize)> = (0..sizes.len())
        .flat_map(|s| (0..known.len()).map(move |p| (p, s)))
        .filter(|&(p, _)| first[p] == p)
        .collect();
    // Threads take work from the end of the list, where the large sizes are. So the last products
    // to run are short.
    work.sort_by_key(|&(_, s)| sizes[s]);
    let (left, done) = (AtomicUsize::new(work.len()), Mutex::new(Vec::new()));
    let take = || {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .ok()
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some(n) = take() {
                    let (p, s) = work[n - 1];
                    let one = misses(&known[p], sizes[s], shape, sample);
                    let mut done = done.lock().unwrap_or_else(|e| e.into_inner());
                    done.push(((p, s), one));
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    let done: HashMap<_, _> = done.into_iter().collect();
    first
        .iter()
        .map(|&p| (0..sizes.len()).map(|s| done[&(p, s)].clone()).collect())
        .collect()
}
