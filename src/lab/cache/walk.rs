//! A kernel's access pattern on matrices of one size: the addresses that its work-groups load and
//! write.

use super::lru::{Caches, Count};
use super::pattern::{Pattern, WHOLE};
use super::shape::{CacheShape, MAX_SIZE};
use crate::ir::layout::Offsets;
use std::collections::BTreeSet;
use std::ops::Range;

/// One load instruction in the k loop of a kernel. It fetches up to four neighbouring floats.
pub(super) struct Load {
    /// True if it reads the right operand b, false if it reads the left operand a.
    pub(super) right: bool,
    /// The row of a, or the column of b, that is loaded, counted from the start of the tile.
    pub(super) tile: usize,
    /// The term of the dot product that is loaded, counted from the first term of the iteration.
    pub(super) k: usize,
}

/// An iteration of the k loop, which all units (work-items or one staging group) of a work-group
/// execute together.
#[derive(Clone, Copy)]
pub(super) struct Iteration {
    /// The index of the tile that each unit computes, among the tiles that it takes one after the
    /// other.
    turn: usize,
    /// The index of the first term of the dot products that the iteration adds.
    pub(super) k: usize,
    /// True if the units write their results after this iteration.
    last: bool,
}

/// The addresses that one load instruction reads, without the part that depends on k. Neighbouring
/// groups of a core share a sweep if they load from the same addresses. The core loads from all
/// `starts` in order, `repeat` times.
#[derive(PartialEq)]
pub(super) struct Sweep {
    load: usize,
    pub(super) starts: Vec<u32>,
    pub(super) repeat: u64,
}

/// The addresses that a kernel's pattern accesses on matrices of one size.
pub(super) struct Walk<'a> {
    pattern: &'a Pattern,
    /// The number of multiply-adds of the product without padding.
    pub(super) madds: f64,
    /// The common dimension of the product, with padding.
    pub(super) l: usize,
    /// The rows and columns of a tile, limited to those of the padded matrices.
    pub(super) tile: [usize; 2],
    /// The number of tiles of the result along each dimension of the work-groups.
    pub(super) range: [usize; 2],
    /// The number of tiles that a unit (work-item or staging work-group) computes one after the
    /// other, along each dimension.
    pub(super) turns: [usize; 2],
    /// The number of work-groups along each dimension.
    grid: [usize; 2],
    pub(super) iterations: Vec<Iteration>,
    /// Offsets of the elements of a, b and r, in floats. The row parts of a, the column parts of b
    /// and the row parts of r include the start of their matrix. Tiles that extend beyond a matrix
    /// read its last row or column again.
    pub(super) at: [Offsets; 3],
    pub(super) loads: Vec<Load>,
    /// log2 of the number of floats in a cache line.
    pub(super) shift: u32,
}

impl<'a> Walk<'a> {
    pub(super) fn new(pattern: &'a Pattern, size: usize, shift: u32) -> Walk<'a> {
        assert!(
            (1..=MAX_SIZE).contains(&size),
            "cache model: a size from 1 to {MAX_SIZE}"
        );
        let sizes = pattern.sizes(size);
        let [h, l, w] = [0, 1, 2].map(|i| sizes[i].next_multiple_of(pattern.align[i]));
        let tile = [pattern.tile[0].min(h), pattern.tile[1].min(w)];
        let units = [h.div_ceil(tile[0]), w.div_ceil(tile[1])];
        let (mut range, mut turns) = (units, pattern.turns);
        if pattern.row_dimension == 1 {
            range.swap(0, 1);
            turns.swap(0, 1);
        }
        let turns = [0, 1].map(|d| turns[d].min(range[d].div_ceil(pattern.group[d])));
        let at = offsets(pattern, [h, l, w], [units[0] * tile[0], units[1] * tile[1]]);
        Walk {
            pattern,
            madds: sizes.iter().map(|&n| n as f64).product(),
            l,
            tile,
            range,
            turns,
            grid: [0, 1].map(|d| range[d].div_ceil(pattern.group[d] * turns[d])),
            iterations: iterations(pattern, l, turns[0] * turns[1]),
            loads: loads(&at, tile, pattern.k_step.min(l)),
            at,
            shift,
        }
    }

    pub(super) fn groups(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// Returns the tiles that a work-group computes along a dimension in one turn, without those
    /// beyond the matrix. In a turn each unit computes one tile.
    pub(super) fn tiles(&self, group: usize, turn: usize, dimension: usize) -> Range<usize> {
        let (place, turn) = if dimension == 0 {
            (group % self.grid[0], turn % self.turns[0])
        } else {
            (group / self.grid[0], turn / self.turns[0])
        };
        let wide = self.pattern.group[dimension];
        let start = self.range[dimension].min((place * self.turns[dimension] + turn) * wide);
        start..self.range[dimension].min(start + wide)
    }

    /// Returns the loads of a core's work-groups in one iteration of a turn, in order.
    pub(super) fn sweeps(&self, groups: Range<usize>, turn: usize) -> Vec<Sweep> {
        let mut sweeps: Vec<Sweep> = Vec::new();
        for (index, load) in self.loads.iter().enumerate() {
            let dimension = self.pattern.row_dimension ^ usize::from(load.right);
            let starts = if load.right {
                &self.at[1].cols
            } else {
                &self.at[0].rows
            };
            let tile = self.tile[usize::from(load.right)];
            for group in groups.clone() {
                let starts = self
                    .tiles(group, turn, dimension)
                    .map(|i| starts[i * tile + load.tile])
                    .collect();
                let across = self.tiles(group, turn, 1 - dimension).len() as u64;
                // A load whose address depends on dimension 1 alone is the same in neighbouring
                // threads. Only the first of these threads can miss, so one load stands for all.
                let repeat = if dimension == 0 {
                    across
                } else {
                    across.min(1)
                };
                match sweeps.last_mut() {
                    Some(last) if last.load == index && last.starts == starts => {
                        last.repeat += repeat
                    }
                    _ => sweeps.push(Sweep {
                        load: index,
                        starts,
                        repeat,
                    }),
                }
            }
        }
        sweeps
    }

    /// Returns the number of cache lines that the results of the first work-group occupy.
    pub(super) fn result_lines(&self) -> usize {
        let row = self.pattern.row_dimension;
        let extent = |dimension: usize, tile: usize| {
            let tiles = self.tiles(0, 0, dimension);
            tiles.start * tile..tiles.end * tile
        };
        let (rows, cols) = (extent(row, self.tile[0]), extent(1 - row, self.tile[1]));
        let r = &self.at[2];
        let lines = rows.flat_map(|i| {
            cols.clone()
                .map(move |j| (r.rows[i] + r.cols[j]) >> self.shift)
        });
        lines.collect::<BTreeSet<_>>().len()
    }

    /// Returns the part of a load's address that depends on the iteration's k. `None` if the load
    /// is beyond the last term of the sum.
    pub(super) fn k_part(&self, load: &Load, iteration: Iteration) -> Option<u32> {
        let k = iteration.k + load.k;
        let part = || {
            if load.right {
                self.at[1].rows[k]
            } else {
                self.at[0].cols[k]
            }
        };
        (k < self.l).then(part)
    }

    /// Calls `each` with the address of every load that a core's work-groups make in the given
    /// iterations. A repeated sweep counts once.
    fn addresses(&self, groups: Range<usize>, iterations: Range<usize>, mut each: impl FnMut(u32)) {
        let (mut turn, mut sweeps) = (WHOLE, Vec::new());
        for &iteration in &self.iterations[iterations] {
            if turn != iteration.turn {
                turn = iteration.turn;
                sweeps = self.sweeps(groups.clone(), turn);
            }
            for sweep in &sweeps {
                if let Some(k) = self.k_part(&self.loads[sweep.load], iteration) {
                    sweep.starts.iter().for_each(|start| each(start + k));
                }
            }
        }
    }

    /// Returns the distinct lines of 2^`shift` floats that a core's work-groups load in the given
    /// iterations, in ascending order.
    pub(super) fn lines(
        &self,
        groups: Range<usize>,
        iterations: Range<usize>,
        shift: u32,
    ) -> Vec<u32> {
        let mut seen = Vec::new();
        self.addresses(groups, iterations, |address| {
            let line = (address >> shift) as usize;
            if seen.len() <= line {
                seen.resize(line + 1, false);
            }
            seen[line] = true;
        });
        (0..seen.len() as u32)
            .filter(|&line| seen[line as usize])
            .collect()
    }

    /// Returns the work-groups that run in wave number `wave`, as a range for each core.
    pub(super) fn wave(&self, wave: usize, shape: &CacheShape) -> Vec<Range<usize>> {
        let resident = shape.resident(self.pattern);
        let end = |group: usize| group.min(self.groups());
        let core = |core: usize| (wave * shape.cores + core) * resident;
        (0..shape.cores)
            .map(|c| end(core(c))..end(core(c) + resident))
            .collect()
    }

    /// Simulates a wave, given as each core's groups, from iteration `from` on. Returns its misses.
    pub(super) fn run(&self, caches: &mut Caches, wave: &[Range<usize>], from: usize) -> Count {
        let mut total = Count::default();
        let mut turn = WHOLE;
        let mut by_core: Vec<Vec<Sweep>> = Vec::new();
        for &iteration in &self.iterations[from..] {
            if turn != iteration.turn {
                turn = iteration.turn;
                by_core = wave.iter().map(|g| self.sweeps(g.clone(), turn)).collect();
            }
            for (core, sweeps) in by_core.iter().enumerate() {
                for sweep in sweeps {
                    if let Some(k) = self.k_part(&self.loads[sweep.load], iteration) {
                        self.sweep(caches, core, sweep, k, &mut total);
                    }
                }
            }
            for (core, groups) in wave.iter().enumerate().filter(|_| iteration.last) {
                self.results(groups.clone(), iteration.turn, |line| {
                    caches.use_line(core, line, &mut total)
                });
            }
        }
        total
    }

    /// Simulates the passes of a sweep on a core. Only three passes are simulated, because all
    /// later ones miss as often as the third.
    fn sweep(&self, caches: &mut Caches, core: usize, sweep: &Sweep, k: u32, total: &mut Count) {
        for pass in 0..sweep.repeat.min(3) {
            let mut count = Count::default();
            for start in &sweep.starts {
                caches.use_line(core, (start + k) >> self.shift, &mut count);
            }
            total.add(count, if pass == 2 { sweep.repeat - 2 } else { 1 });
            if count.l1 == 0 {
                break;
            }
        }
    }

    /// Calls `write` with the cache lines that a core's groups write after a turn, in order.
    fn results(&self, groups: Range<usize>, turn: usize, mut write: impl FnMut(u32)) {
        let [rows, cols] = self.tile;
        let r = &self.at[2];
        for element in 0..rows * cols {
            for group in groups.clone() {
                for y in self.tiles(group, turn, 1) {
                    for x in self.tiles(group, turn, 0) {
                        let (row, col) = if self.pattern.row_dimension == 0 {
                            (x, y)
                        } else {
                            (y, x)
                        };
                        let row = r.rows[row * rows + element / cols];
                        write((row + r.cols[col * cols + element % cols]) >> self.shift);
                    }
                }
            }
        }
    }

    /// Returns the number of tiles that the given work-groups compute.
    pub(super) fn count(&self, groups: impl Iterator<Item = usize>) -> usize {
        let turns = self.turns[0] * self.turns[1];
        let tiles = |g: usize, t: usize| self.tiles(g, t, 0).len() * self.tiles(g, t, 1).len();
        groups
            .map(|g| (0..turns).map(|t| tiles(g, t)).sum::<usize>())
            .sum()
    }

    /// Returns the number of warm-up waves that fill the L2 twice, if each of their lines is
    /// fetched once.
    pub(super) fn warm(&self, shape: &CacheShape) -> f64 {
        let groups = shape.cores * shape.resident(self.pattern);
        let extents = [groups.min(self.grid[0]), groups.div_ceil(self.grid[0])];
        let across = |d: usize| {
            let tile = self.tile[usize::from(d != self.pattern.row_dimension)];
            (extents[d] * self.pattern.group[d] * self.turns[d]).min(self.range[d]) * tile
        };
        (2 * shape.l2_lines * (shape.line / 4)) as f64
            / ((across(0) + across(1)) as f64 * self.l as f64)
    }
}

/// Returns the offsets of the elements of a, b and r in padded matrices of height h, common
/// dimension l and width w. Beyond a matrix, up to `ends`, the last offset of its rows or columns
/// repeats.
fn offsets(pattern: &Pattern, [h, l, w]: [usize; 3], ends: [usize; 2]) -> [Offsets; 3] {
    let start = |floats: usize| floats.next_multiple_of(1024) as u32;
    let [a, b, r] = &pattern.layouts;
    let (mut a, mut b, mut r) = (a.offsets(h, l), b.offsets(l, w), r.offsets(h, w));
    let after_a = start(h * l);
    let after_b = after_a + start(l * w);
    b.cols.iter_mut().for_each(|c| *c += after_a);
    r.rows.iter_mut().for_each(|row| *row += after_b);
    for (parts, end) in [
        (&mut a.rows, ends[0]),
        (&mut b.cols, ends[1]),
        (&mut r.rows, ends[0]),
        (&mut r.cols, ends[1]),
    ] {
        let last = parts[parts.len() - 1];
        parts.resize(end, last);
    }
    [a, b, r]
}

/// Returns the iterations of the k loop over `l` terms. A unit finishes a block of terms for all
/// its `turns` tiles before it begins the next block.
fn iterations(pattern: &Pattern, l: usize, turns: usize) -> Vec<Iteration> {
    let k_step = pattern.k_step.min(l);
    let mut iterations = Vec::new();
    for block in (0..l).step_by(pattern.block.min(l)) {
        let end = l.min(block.saturating_add(pattern.block));
        for turn in 0..turns {
            iterations.extend((block..end).step_by(k_step).map(|k| Iteration {
                turn,
                k,
                last: k + k_step >= end,
            }));
        }
    }
    iterations
}

/// Returns the loads of one unit in an iteration of the k loop, those of a before those of b. Each
/// operand is read along the tile or along k, whichever lets one load fetch more floats. If both
/// fetch equally many, the operand is read along k.
fn loads(at: &[Offsets; 3], [rows, cols]: [usize; 2], k_step: usize) -> Vec<Load> {
    let mut loads = Vec::new();
    for (right, tile, ks) in [
        (false, &at[0].rows[..rows], &at[0].cols[..k_step]),
        (true, &at[1].cols[..cols], &at[1].rows[..k_step]),
    ] {
        let (wide, deep) = (vector(tile), vector(ks));
        if deep >= wide {
            for tile in 0..tile.len() {
                loads.extend((0..k_step).step_by(deep).map(|k| Load { right, tile, k }));
            }
        } else {
            for k in 0..k_step {
                let starts = (0..tile.len()).step_by(wide);
                loads.extend(starts.map(|tile| Load { right, tile, k }));
            }
        }
    }
    loads
}

/// Returns how many floats one load fetches along a direction: as many as are contiguous, up to 4.
pub(super) fn vector(parts: &[u32]) -> usize {
    [4, 2]
        .into_iter()
        .find(|&w| parts.len() >= w && (1..w).all(|i| parts[i] == parts[0] + i as u32))
        .unwrap_or(1)
}
