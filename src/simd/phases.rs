//! Groups the steps of the host engine into phases, and splits each phase into tiles.
//!
//! A layer whose weights do not fit a core's cache is a separate phase, split by rows. Each thread
//! then reads different weights, once for the whole batch. All other steps are split by records. A
//! few records go through all steps of a phase on one thread, so their values stay in that core's
//! cache. If a few records are left over for all threads, threads split the pixels or lines of a
//! record.

use super::bands::{self, Band};
use super::images;
use super::micro::Kernels;
use super::steps::{Action, HostStep, Place};
use crate::planner::fit::LARGE;
use std::ops::Range;

/// The largest number of parts of a record per thread. Parts of a band are at most one per thread.
/// More parts would shorten the threads' idle
/// time at the end. But handing out the parts would take longer than this saves.
const PARTS: usize = 2;

/// The least expected microseconds for a part of a record. They are many times the cost of handing
/// out the part.
const PART_US: usize = 2;

/// The microseconds that threads need to hand out the parts of a phase, and to wait for the last.
const PHASE_US: usize = 1;

/// The GB a second in which a thread writes the result of a phase and another one reads it.
const MOVED_GB: usize = 32;

/// Consecutive steps that are split into tiles in the same way. A thread that takes a tile runs all
/// steps on it.
pub(super) struct Phase {
    pub(super) steps: Range<usize>,
    pub(super) split: Split,
}

/// How a phase is split into tiles.
pub(super) enum Split {
    Records,
    /// By parts of each record's pixels or lines. The number is that of parts per record.
    Parts(usize),
    /// By rows of the layer. Tile i has the rows from element i to element i + 1 of the list.
    Rows(Vec<usize>),
}

/// Returns the phases of a batch. Each large affine layer is a phase, and so is each run of steps
/// between them.
pub(super) fn of_batch(steps: &[HostStep], kernels: &Kernels, threads: usize) -> Vec<Phase> {
    group(steps, &[], |some| match &some[0].action {
        Action::Affine(dense) => {
            let (vectors, band) = (dense.rows / kernels.lanes, kernels.tile_vectors);
            let large = dense.weights.bytes() >= LARGE && vectors / band >= threads;
            large.then(|| Split::Rows(bounds(vectors, band, threads, kernels.lanes)))
        }
        _ => None,
    })
}

/// Records that all threads share.
pub(super) struct SharedRecord<'a> {
    pub(super) kernels: &'a Kernels,
    pub(super) threads: usize,
}

impl SharedRecord<'_> {
    /// Returns the phases. A step or band that is worth splitting is a separate phase, in which
    /// each thread computes a part of a record. The steps between such phases are split by records.
    pub(super) fn phases(&self, steps: &[HostStep], bands: &[Band]) -> Vec<Phase> {
        group(steps, bands, |some| self.split(some))
    }

    /// Returns the expected time of a band, or of a single step, as the number of floating-point
    /// operations of one thread that take as long.
    pub(super) fn cost(&self, some: &[HostStep]) -> usize {
        let (threads, gflops) = (self.threads, self.kernels.gflops as usize);
        let flop = || some.iter().map(|s| s.action.flop()).sum::<usize>();
        let computed = match self.split(some) {
            None => flop(),
            // Parts of a band compute some lines twice.
            Some(Split::Parts(parts)) if some.len() > 1 => {
                let lines = bands::lines_of_part(some, parts);
                let each = some.iter().zip(lines);
                each.map(|(s, lines)| s.action.flop() * lines / bands::height(s).max(1))
                    .sum()
            }
            Some(Split::Parts(parts)) => flop() / parts.min(threads),
            Some(_) => flop() / threads,
        };
        let moved = some.last().map_or(0, bands::value_bytes) / threads;
        computed + moved * gflops / MOVED_GB + PHASE_US * gflops * 1000
    }

    /// Returns how a band or a single step is split. `None` if that is not worth its while.
    fn split(&self, some: &[HostStep]) -> Option<Split> {
        let (kernels, threads) = (self.kernels, self.threads);
        let flop: usize = some.iter().map(|s| s.action.flop()).sum();
        let parts = (flop / (PART_US * 1000 * kernels.gflops as usize)).min(PARTS * threads);
        let by_rows = |vectors: usize, band: usize| {
            (vectors / band >= threads)
                .then(|| Split::Rows(bounds(vectors, band, threads, kernels.lanes)))
        };
        let step = some.last()?;
        match (&step.action, step.action.parts()) {
            // Neighbouring parts of a band both compute the lines that both need. So a band gets at
            // most one part per thread.
            _ if some.len() > 1 => {
                let parts = parts
                    .min(threads)
                    .min(bands::height(step) / bands::unit(step));
                (parts > 1).then_some(Split::Parts(parts))
            }
            (Action::Affine(dense), _) if dense.weights.bytes() >= LARGE / 8 => {
                by_rows(dense.rows / kernels.lanes, kernels.tile_vectors)
            }
            (Action::Convolution(dense, _), pixels) if parts > 1 => {
                let tiles = pixels.div_ceil(kernels.tile_records);
                // If there are few micro-tiles of pixels, the split is by rows. Few micro-tiles
                // cannot be divided evenly, and each thread would read all weights.
                let rows = if tiles < PARTS * threads {
                    by_rows(dense.rows / kernels.lanes, 2)
                } else {
                    None
                };
                rows.or((tiles > 1).then(|| Split::Parts(parts.min(tiles))))
            }
            (Action::Tiles(_, geometry, size), _) => {
                let tile = kernels.tile_records;
                let units = images::tile_units(geometry, *size, tile);
                let whole = size.count(geometry).div_ceil(tile);
                // Each part reads all weights, so parts of less than a micro-tile pay only for
                // threads that had no part otherwise.
                let parts = parts.min(whole.max(units.min(threads)));
                (parts > 1).then_some(Split::Parts(parts))
            }
            (_, lines) => (parts.min(lines) > 1).then(|| Split::Parts(parts.min(lines))),
        }
    }
}

/// Returns a phase for each step or band that `split` splits. Runs of steps between them are phases
/// that are split by records.
fn group(
    steps: &[HostStep],
    bands: &[Band],
    split: impl Fn(&[HostStep]) -> Option<Split>,
) -> Vec<Phase> {
    // The first phase decodes the records, so it is split by records. If the first step is split in
    // another way, the first phase has no steps.
    let mut phases = vec![Phase {
        steps: 0..0,
        split: Split::Records,
    }];
    let mut first = 0;
    while first < steps.len() {
        let band = bands.iter().find(|band| band.steps.start == first);
        let end = band.map_or(first + 1, |band| band.steps.end);
        let own = |split| Phase {
            steps: first..end,
            split,
        };
        match (split(&steps[first..end]), phases.last_mut()) {
            (Some(split), _) => phases.push(own(split)),
            (
                None,
                Some(Phase {
                    steps,
                    split: Split::Records,
                }),
            ) => steps.end = end,
            (None, _) => phases.push(own(Split::Records)),
        }
        first = end;
    }
    phases
}

/// Splits `vectors` vectors of rows into tiles of whole bands of `band` vectors. Returns the first
/// row of each tile, and the end of the last. The first tiles are large, so that threads read
/// weights without a break. Later tiles get smaller, so that all threads end together (guided
/// self-scheduling).
fn bounds(vectors: usize, band: usize, threads: usize, lanes: usize) -> Vec<usize> {
    let (mut at, mut bounds) = (0, vec![0]);
    while at < vectors {
        let share = (vectors - at) / (2 * threads) / band * band;
        let size = if threads > 1 {
            share.max(band)
        } else {
            vectors
        };
        at = vectors.min(at + size);
        bounds.push(at * lanes);
    }
    bounds
}

/// Returns true if one phase has all steps that touch hidden buffer `i`, and is split by records.
pub(super) fn within_one(steps: &[HostStep], phases: &[Phase], i: usize) -> bool {
    let mut of = phases.iter().filter(|p| {
        steps[p.steps.clone()]
            .iter()
            .any(|s| s.touches(Place::Hidden(i)))
    });
    let first = of.next();
    first.is_none_or(|p| matches!(p.split, Split::Records)) && of.next().is_none()
}
