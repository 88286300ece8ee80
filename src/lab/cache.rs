//! A small trace-driven cache model of the matrix products: what the documents derive on paper,
//! counted.
//!
//! The model of execution, after ARM §1.2.3 and §1.4.6:
//!
//! - Work-groups are numbered with dimension 0 of the group grid fastest, and a core holds `max(1,
//!   threads / group size)` of them at a time. A *wave* is what all cores hold together: core 0
//!   takes the first groups of the wave, core 1 the next, and so on.
//! - Within a core the threads run in step: for each iteration of the k loop every thread issues
//!   its first load (group by group, dimension 0 fastest), then every thread its second, … The
//!   cores take turns iteration by iteration. After the loop every thread writes its results; a
//!   write fetches the line as a read does.
//! - Each core has an L1, all share an L2, both set-associative with LRU replacement. A matrix
//!   starts at a multiple of 4096 bytes behind the one before it.
//!
//! What it leaves out: threads that drift apart (with them gone, the barriers of the cache-blocked
//! kernels change nothing), prefetching, page tables (addresses are contiguous), and the time that
//! a miss takes.
//!
//! What a kernel reads follows from its entry in the library ([`Pattern::of`]). Kernels that stage
//! their operands in local memory are modelled as work-groups that read each element once; a
//! texture path as the cache of the rest.
//!
//! Two things keep it fast. A load that sweeps the same addresses again (the rows of a tile under
//! each of its columns) is simulated three times at most: LRU is in the same state after each
//! further sweep, so each further one misses exactly as the third did. And large products are
//! sampled: whole waves, with the whole k loop, at several places of the grid, each after a warm-up
//! long enough to fill the L2 twice.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::baked::library;
use crate::cl::Device;
use crate::ir::layout::{Layout, Offsets};
use crate::lab::table::{Cell, Measured, Plot, Row, Section};
use crate::registry::{Kernel, Most, Operand, Operation, lcm};

/// Largest size: three matrices in 2³² elements.
pub(crate) const MAX_SIZE: usize = 32768;

const MOST_CORES: usize = 1024;
const MOST_LINES: usize = 1 << 24;

/// The caches of a device, and how it runs threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheShape {
    /// Bytes of a line, a power of two from 16.
    pub(crate) line: usize,
    /// Lines of each core's L1.
    pub(crate) l1_lines: usize,
    /// Ways of the L1: how many lines of one set it holds.
    pub(crate) l1_ways: usize,
    /// Lines of the shared L2.
    pub(crate) l2_lines: usize,
    /// Ways of the L2.
    pub(crate) l2_ways: usize,
    /// Cores.
    pub(crate) cores: usize,
    /// Work-items that a core holds at a time.
    pub(crate) threads: usize,
    /// Bytes of a page of the address space, a power of two from a line on.
    pub(crate) page: usize,
}

impl Default for CacheShape {
    /// The Mali-T628: 256 L1 lines a core (ARM §1.4.6), 128 KiB of 64-byte lines behind them
    /// (thesis, table 2.1), 128 threads a core (ARM). The documents do not name the ways.
    fn default() -> CacheShape {
        CacheShape {
            line: 64,
            l1_lines: 256,
            l1_ways: 4,
            l2_lines: 2048,
            l2_ways: 8,
            cores: 4,
            threads: 128,
            page: 4096,
        }
    }
}

impl CacheShape {
    /// Line, shared cache and cores as `device` tells them. OpenCL has no question for the rest:
    /// that stays the default's, the L1 with as many bytes. `None` where it does not tell line and
    /// cache.
    pub(crate) fn of(device: &Device) -> Option<CacheShape> {
        let details = device.details();
        CacheShape::told(details.cache_line?, details.cache?, device.compute_units)
    }

    fn told(line: u32, bytes: u64, cores: u32) -> Option<CacheShape> {
        let (mut s, line) = (CacheShape::default(), line as usize);
        if !line.is_power_of_two() || !(16..=4096).contains(&line) {
            return None;
        }
        s.l1_lines = s.l1_lines * s.line / line;
        s.line = line;
        s.l2_lines = usize::try_from(bytes)
            .ok()
            .map(|b| b / line)
            .filter(|n| *n > 0)?
            .min(MOST_LINES);
        // As many ways as the default, or the next number down that divides the lines.
        s.l2_ways = (1..=s.l2_ways).rev().find(|ways| s.l2_lines % ways == 0)?;
        s.cores = (cores as usize).clamp(1, MOST_CORES);
        Some(s)
    }

    /// Sets what
    /// `line=64,l1_lines=256,l1_ways=4,l2_lines=2048,l2_ways=8,cores=4,threads=128,page=4096`
    /// names.
    pub(crate) fn set(&mut self, text: &str) -> Result<(), String> {
        assign(
            "cache",
            text,
            &mut [
                ("line", &mut self.line),
                ("l1_lines", &mut self.l1_lines),
                ("l1_ways", &mut self.l1_ways),
                ("l2_lines", &mut self.l2_lines),
                ("l2_ways", &mut self.l2_ways),
                ("cores", &mut self.cores),
                ("threads", &mut self.threads),
                ("page", &mut self.page),
            ],
        )
    }

    /// Whether there can be such caches.
    pub(crate) fn check(&self) -> Result<(), String> {
        let s = self;
        if !s.line.is_power_of_two() || !(16..=4096).contains(&s.line) {
            return Err(format!(
                "cache: line={}: expected a power of two from 16 to 4096",
                s.line
            ));
        }
        if !s.page.is_power_of_two() || s.page < s.line {
            return Err(format!(
                "cache: page={}: expected a power of two from line={} on",
                s.page, s.line
            ));
        }
        for (level, lines, ways) in [("l1", s.l1_lines, s.l1_ways), ("l2", s.l2_lines, s.l2_ways)] {
            if lines % ways != 0 {
                return Err(format!(
                    "cache: {level}_ways={ways} does not divide {level}_lines={lines}"
                ));
            }
        }
        if s.cores > MOST_CORES
            || s.threads > 4096
            || s.l1_lines > 1 << 16
            || s.l2_lines > MOST_LINES
        {
            return Err(format!(
                "cache: expected at most {MOST_CORES} cores, 4096 threads, 65536 L1 lines and \
                 {MOST_LINES} L2 lines"
            ));
        }
        Ok(())
    }

    /// log2 of the floats in a line.
    fn shift(&self) -> u32 {
        self.line.trailing_zeros() - 2
    }

    /// Groups of `pattern` that a core holds at a time.
    fn resident(&self, pattern: &Pattern) -> usize {
        (self.threads / pattern.items).max(1)
    }
}

/// How much of a product is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// A product with at most this many cache accesses (estimated) is simulated in full.
    pub(crate) full: usize,
    /// Otherwise: places of the grid that are looked at,
    pub(crate) places: usize,
    /// and how many waves are counted at each.
    pub(crate) waves: usize,
    /// A product of more accesses than this, as sampled, is left out.
    pub(crate) most: usize,
}

impl Default for Sample {
    /// All of 192 and below, and 5 waves above, but for products whose work-items load little:
    /// those of 384 too.
    fn default() -> Sample {
        Sample {
            full: 20_000_000,
            places: 5,
            waves: 1,
            most: 250_000_000,
        }
    }
}

/// Reads `name=value,…` into the fields.
fn assign(what: &str, text: &str, fields: &mut [(&str, &mut usize)]) -> Result<(), String> {
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let Some((_, field)) = fields.iter_mut().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = fields.iter().map(|(known, _)| *known).collect();
            return Err(format!(
                "{what}: expected one of {}, found \"{name}\"",
                known.join(", ")
            ));
        };
        match value.parse::<usize>() {
            Ok(n) if (1..=1 << 30).contains(&n) => **field = n,
            _ => {
                return Err(format!(
                    "{what}: {name}: expected a number from 1 to 2^30, found \"{value}\""
                ));
            }
        }
    }
    Ok(())
}

/// How a kernel walks through its matrices. The unit is what computes a tile: a work-item, or a
/// work-group that stages its operands in local memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    /// Its name.
    pub(crate) codename: String,
    /// Layouts of the left operand, the right operand and the result.
    pub(crate) layouts: [Layout; 3],
    /// What height, common dimension and width are multiples of.
    pub(crate) align: [usize; 3],
    /// The largest problem that it is for.
    pub(crate) most: Most,
    /// Rows and columns of the result that a unit computes at a time.
    pub(crate) tile: [usize; 2],
    /// Work-group: units along dimension 0, which runs fastest, and along dimension 1.
    pub(crate) group: [usize; 2],
    /// Work-items of a work-group, of the threads that a core holds at a time.
    pub(crate) items: usize,
    /// Which dimension runs over the rows of the result.
    pub(crate) row_dimension: usize,
    /// Terms of the sum that an iteration of the k loop takes.
    pub(crate) k_step: usize,
    /// Tiles that a unit takes in turn, along rows and columns, those of the group between one and
    /// the next,
    pub(crate) turns: [usize; 2],
    /// each for so many terms of the sum before it goes on.
    pub(crate) block: usize,
}

/// All there are.
const WHOLE: usize = usize::MAX;

/// Terms that `panel.cl` of matmul and affine takes of a panel before it goes to its next tile
/// (BLOCK there).
const PANEL_BLOCK: usize = 512;

impl Pattern {
    /// How `kernel` reads and writes its matrices, by its entry in the library; of a kernel for
    /// several layers, its first. `None` where it is no product, or one of the host engine, whose
    /// loops depend on the processor.
    ///
    /// Where an entry leaves the work-group to the driver, that has to choose one that divides the
    /// range: 32 × 1 is taken. Kernels that are measured with many are compared at one, 4 × 16,
    /// which ARM's table 1.2 and the thesis end at.
    pub(crate) fn of(kernel: &Kernel) -> Option<Pattern> {
        let r = &kernel.restrictions;
        let (Some(a), Some(b), Some(to), true) = (&r.a, &r.b, &r.r, kernel.operation.is_product())
        else {
            return None;
        };
        let source = kernel.source.as_deref()?;
        let operands = [a, b, to];
        // Kernels of few records, which take any layout, go together in plans by records one after
        // the other.
        let layout = |o: &&Operand| {
            o.representation
                .clone()
                .or(kernel.of_few().then_some(Layout::C))
        };
        let layouts = operands.iter().map(layout).collect::<Option<Vec<_>>>()?;
        let define = |name: &str| kernel.define(name);
        let group = match r.work_group {
            _ if !r.sweep.is_empty() => (4, 16),
            Some(group) => r.dimensions(group),
            None => (32, 1),
        };
        let (items, scale) = (group.0 * group.1, [r.scale.0, r.scale.1]);
        let mut p = Pattern {
            codename: kernel.codename.to_string(),
            layouts: layouts.try_into().ok()?,
            align: [
                lcm(a.row_align, to.row_align),
                lcm(a.col_align, b.row_align),
                lcm(b.col_align, to.col_align),
            ],
            most: r.most,
            tile: scale,
            group: [group.0, group.1],
            items,
            row_dimension: usize::from(r.columns_first),
            k_step: a.col_align,
            turns: [1, 1],
            block: WHOLE,
        };
        match (r.tile, kernel.operation) {
            // A work-group that stages its operands reads each element once: BK, TILE or SLICES
            // terms at a time, all of a record, or as many as there are work-items to share them.
            (tile, operation) if r.needs.local_bytes > 0 => {
                let whole = r.dimensions(group);
                p.tile = tile.map_or([scale[0] * whole.0, scale[1] * whole.1], |t| [t.0, t.1]);
                p.group = [1, 1];
                let of_record = matches!(operation, Operation::Pair | Operation::Layers);
                let all = if of_record { WHOLE } else { items };
                p.k_step = define("BK")
                    .or(define("TILE"))
                    .or(define("SLICES"))
                    .unwrap_or(all);
            }
            // A work-group has the records of its tile, and goes down all rows.
            (Some(tile), Operation::Layers) => {
                p.group = [items * scale[1] / tile.1, tile.1 / scale[1]];
                p.turns = [WHOLE, 1];
            }
            // For CPUs, whose cores hold one work-item: they number themselves anew, records first,
            // and take as many tiles as a group has panels.
            (Some(tile), _) if source.ends_with("panel.cl") => {
                p.items = WHOLE;
                p.row_dimension = 1;
                p.turns = [1, tile.0 / scale[0]];
                p.block = PANEL_BLOCK;
            }
            _ => {}
        }
        Some(p)
    }

    /// Height, common dimension and width of the product that stands for a size: square, as far as
    /// the kernel is for it.
    fn sizes(&self, size: usize) -> [usize; 3] {
        let within = |n: usize, most: usize| if most == 0 { n } else { n.min(most) };
        let l = within(size, self.most.l);
        let h = within(within(size, self.most.h), self.most.weights / l);
        [
            if h < size {
                h / self.align[0] * self.align[0]
            } else {
                h
            },
            l,
            size,
        ]
    }
}

/// Morton 4-2 with four of its chunks side by side, for sizes with many factors 2: a layout that no
/// kernel has.
const MORTON_8_2: &str = "(morton_8_2)";

/// The pattern of a kernel, or of [`MORTON_8_2`].
pub(crate) fn pattern(codename: &str) -> Option<Pattern> {
    if codename == MORTON_8_2 {
        let mut p = pattern("matmul_morton_4_2")?;
        p.codename = codename.to_string();
        p.layouts[0] = Layout::parse("R_8_4_R_2_4_R").ok()?;
        p.layouts[1] = Layout::parse("C_4_8_C_4_2_C").ok()?;
        p.align = [8, 4, 8];
        return Some(p);
    }
    Pattern::of(library().kernel(codename)?.1)
}

/// Every product of the library, in its order, and [`MORTON_8_2`].
pub(crate) fn patterns() -> Vec<Pattern> {
    library()
        .kernels
        .iter()
        .filter_map(Pattern::of)
        .chain(pattern(MORTON_8_2))
        .collect()
}

/// A set-associative cache with LRU replacement. Each set lists its lines from the last used to the
/// first to go.
struct Cache {
    ways: usize,
    sets: u32,
    lines: Vec<u32>,
}

impl Cache {
    fn new(lines: usize, ways: usize) -> Cache {
        Cache {
            ways,
            sets: (lines / ways) as u32,
            lines: vec![u32::MAX; lines],
        }
    }

    /// Uses a line, and says whether it was there.
    fn hit(&mut self, line: u32) -> bool {
        let set = if self.sets.is_power_of_two() {
            line & (self.sets - 1)
        } else {
            line % self.sets
        } as usize;
        let mut moved = line;
        for place in &mut self.lines[set * self.ways..][..self.ways] {
            std::mem::swap(place, &mut moved);
            if moved == line {
                return true;
            }
        }
        false
    }
}

/// Misses of both levels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    l1: u64,
    l2: u64,
}

impl Count {
    fn add(&mut self, more: Count, times: u64) {
        self.l1 += more.l1 * times;
        self.l2 += more.l2 * times;
    }
}

/// The caches of a device.
struct Caches {
    l1: Vec<Cache>,
    l2: Cache,
}

impl Caches {
    fn new(shape: &CacheShape) -> Caches {
        Caches {
            l1: (0..shape.cores)
                .map(|_| Cache::new(shape.l1_lines, shape.l1_ways))
                .collect(),
            l2: Cache::new(shape.l2_lines, shape.l2_ways),
        }
    }

    /// Uses a line on a core.
    fn use_line(&mut self, core: usize, line: u32, count: &mut Count) {
        if !self.l1[core].hit(line) {
            count.l1 += 1;
            count.l2 += u64::from(!self.l2.hit(line));
        }
    }
}

/// One load instruction of the k loop, of neighbouring floats.
struct Load {
    /// Of b, rather than of a.
    right: bool,
    /// Row of a, or column of b, in the tile.
    tile: usize,
    /// Term of the sum in the k step.
    k: usize,
}

/// An iteration of the k loop.
#[derive(Clone, Copy)]
struct Step {
    /// Which of its tiles a unit is at.
    turn: usize,
    /// The first term of the sum.
    k: usize,
    /// The results are written after it.
    last: bool,
}

/// The addresses that one load has in the groups of a core, less their part that k decides:
/// `starts` in turn, and that `repeat` times.
#[derive(PartialEq)]
struct Sweep {
    load: usize,
    starts: Vec<u32>,
    repeat: u64,
}

/// A pattern on matrices of a size.
struct Walk<'a> {
    pattern: &'a Pattern,
    /// Multiply-adds, without padding.
    madds: f64,
    /// Common dimension, padded.
    l: usize,
    /// Rows and columns of a tile: of the pattern's, as many as the matrices have.
    tile: [usize; 2],
    /// Units along each dimension.
    range: [usize; 2],
    /// Tiles that a unit takes in turn along each dimension.
    turns: [usize; 2],
    /// Groups along each dimension.
    grid: [usize; 2],
    /// Iterations of the k loop.
    steps: Vec<Step>,
    /// Where the elements of a, b and r stand, in floats. The row parts of a, the column parts of b
    /// and the row parts of r hold the start of their matrix. Tiles that hang over the end stay at
    /// the last row or column.
    at: [Offsets; 3],
    loads: Vec<Load>,
    shift: u32,
}

impl<'a> Walk<'a> {
    fn new(pattern: &'a Pattern, size: usize, shift: u32) -> Walk<'a> {
        assert!(
            (1..=MAX_SIZE).contains(&size),
            "cache model: a size from 1 to {MAX_SIZE}"
        );
        let sizes = pattern.sizes(size);
        let [h, l, w] = [0, 1, 2].map(|i| sizes[i].next_multiple_of(pattern.align[i]));
        let start = |floats: usize| floats.next_multiple_of(1024) as u32;
        let shapes = [(h, l), (l, w), (h, w)];
        let mut at = [0, 1, 2].map(|i| pattern.layouts[i].offsets(shapes[i].0, shapes[i].1));
        at[1].cols.iter_mut().for_each(|c| *c += start(h * l));
        at[2]
            .rows
            .iter_mut()
            .for_each(|r| *r += start(h * l) + start(l * w));
        let tile = [pattern.tile[0].min(h), pattern.tile[1].min(w)];
        let units = [h.div_ceil(tile[0]), w.div_ceil(tile[1])];
        let [a, b, r] = &mut at;
        for (parts, d) in [
            (&mut a.rows, 0),
            (&mut b.cols, 1),
            (&mut r.rows, 0),
            (&mut r.cols, 1),
        ] {
            let last = parts[parts.len() - 1];
            parts.resize(units[d] * tile[d], last);
        }
        let row = pattern.row_dimension;
        let (mut range, mut turns) = (units, pattern.turns);
        if row == 1 {
            range.swap(0, 1);
            turns.swap(0, 1);
        }
        let turns = [0, 1].map(|d| turns[d].min(range[d].div_ceil(pattern.group[d])));
        let grid = [0, 1].map(|d| range[d].div_ceil(pattern.group[d] * turns[d]));
        let k_step = pattern.k_step.min(l);
        let mut steps = Vec::new();
        for block in (0..l).step_by(pattern.block.min(l)) {
            let end = l.min(block.saturating_add(pattern.block));
            for turn in 0..turns[0] * turns[1] {
                steps.extend((block..end).step_by(k_step).map(|k| Step {
                    turn,
                    k,
                    last: k + k_step >= end,
                }));
            }
        }
        let mut loads = Vec::new();
        for right in [false, true] {
            let (tile, ks) = if right {
                (&at[1].cols[..tile[1]], &at[1].rows[..k_step])
            } else {
                (&at[0].rows[..tile[0]], &at[0].cols[..k_step])
            };
            let (wide, deep) = (vector(tile), vector(ks));
            if deep >= wide {
                for tile in 0..tile.len() {
                    loads.extend((0..ks.len()).step_by(deep).map(|k| Load { right, tile, k }));
                }
            } else {
                for k in 0..ks.len() {
                    loads.extend(
                        (0..tile.len())
                            .step_by(wide)
                            .map(|tile| Load { right, tile, k }),
                    );
                }
            }
        }
        let madds = sizes.iter().map(|&n| n as f64).product();
        Walk {
            pattern,
            madds,
            l,
            tile,
            range,
            turns,
            grid,
            steps,
            at,
            loads,
            shift,
        }
    }

    fn groups(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// The tiles of a group along a dimension in a turn, less those beyond the range.
    fn tiles(&self, group: usize, turn: usize, dimension: usize) -> Range<usize> {
        let (place, turn) = if dimension == 0 {
            (group % self.grid[0], turn % self.turns[0])
        } else {
            (group / self.grid[0], turn / self.turns[0])
        };
        let wide = self.pattern.group[dimension];
        let start = self.range[dimension].min((place * self.turns[dimension] + turn) * wide);
        start..self.range[dimension].min(start + wide)
    }

    /// What the groups of a core load in an iteration of a turn, in order.
    fn sweeps(&self, groups: Range<usize>, turn: usize) -> Vec<Sweep> {
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
                // Dimension 1 varies slowest: an address of it is used by neighbours, and only the
                // first can miss.
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

    /// Lines that the results of the first group take.
    fn result_lines(&self) -> usize {
        let [rows, cols] = {
            let of = |dimension: usize| self.tiles(0, 0, dimension);
            let row = self.pattern.row_dimension;
            [(of(row), self.tile[0]), (of(1 - row), self.tile[1])]
                .map(|(t, n)| t.start * n..t.end * n)
        };
        let r = &self.at[2];
        let lines = rows.flat_map(|i| {
            cols.clone()
                .map(move |j| (r.rows[i] + r.cols[j]) >> self.shift)
        });
        lines.collect::<std::collections::BTreeSet<_>>().len()
    }

    /// The part of a load's addresses that the iteration decides; `None` behind the last term.
    fn k_part(&self, load: &Load, step: Step) -> Option<u32> {
        let k = step.k + load.k;
        let part = || {
            if load.right {
                self.at[1].rows[k]
            } else {
                self.at[0].cols[k]
            }
        };
        (k < self.l).then(part)
    }

    /// Calls `each` with the address of every load that the groups of a core make in the
    /// iterations, of those that repeat once.
    fn addresses(&self, groups: Range<usize>, steps: Range<usize>, mut each: impl FnMut(u32)) {
        let mut held = (WHOLE, Vec::new());
        for &step in &self.steps[steps] {
            if held.0 != step.turn {
                held = (step.turn, self.sweeps(groups.clone(), step.turn));
            }
            for sweep in &held.1 {
                if let Some(k) = self.k_part(&self.loads[sweep.load], step) {
                    sweep.starts.iter().for_each(|start| each(start + k));
                }
            }
        }
    }

    /// The distinct lines (of 2^`shift` floats) that the groups of a core load in the iterations,
    /// in ascending order.
    fn lines(&self, groups: Range<usize>, steps: Range<usize>, shift: u32) -> Vec<u32> {
        let mut seen = Vec::new();
        self.addresses(groups, steps, |address| {
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

    /// The groups of a wave, core by core.
    fn wave(&self, wave: usize, shape: &CacheShape) -> Vec<Range<usize>> {
        let resident = shape.resident(self.pattern);
        let end = |group: usize| group.min(self.groups());
        let core = |core: usize| (wave * shape.cores + core) * resident;
        (0..shape.cores)
            .map(|c| end(core(c))..end(core(c) + resident))
            .collect()
    }

    /// Runs a wave from iteration `from` on, and counts its misses.
    fn run(&self, caches: &mut Caches, wave: &[Range<usize>], from: usize) -> Count {
        let mut total = Count::default();
        let mut held = (WHOLE, Vec::new());
        for &step in &self.steps[from..] {
            if held.0 != step.turn {
                held.0 = step.turn;
                held.1 = wave
                    .iter()
                    .map(|groups| self.sweeps(groups.clone(), step.turn))
                    .collect();
            }
            let sweeps: &Vec<Vec<Sweep>> = &held.1;
            for (core, sweep) in sweeps
                .iter()
                .enumerate()
                .flat_map(|(c, s)| s.iter().map(move |s| (c, s)))
            {
                let Some(k) = self.k_part(&self.loads[sweep.load], step) else {
                    continue;
                };
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
            for (core, groups) in wave.iter().enumerate().filter(|_| step.last) {
                self.results(groups.clone(), step.turn, |line| {
                    caches.use_line(core, line, &mut total)
                });
            }
        }
        total
    }

    /// The lines that the groups of a core write after a turn, in order.
    fn results(&self, groups: Range<usize>, turn: usize, mut write: impl FnMut(u32)) {
        let tile = self.tile;
        for element in 0..tile[0] * tile[1] {
            for group in groups.clone() {
                for y in self.tiles(group, turn, 1) {
                    for x in self.tiles(group, turn, 0) {
                        let (row, col) = if self.pattern.row_dimension == 0 {
                            (x, y)
                        } else {
                            (y, x)
                        };
                        let row = self.at[2].rows[row * tile[0] + element / tile[1]];
                        write(
                            (row + self.at[2].cols[col * tile[1] + element % tile[1]])
                                >> self.shift,
                        );
                    }
                }
            }
        }
    }

    /// Tiles of some groups.
    fn count(&self, groups: impl Iterator<Item = usize>) -> usize {
        let turns = self.turns[0] * self.turns[1];
        let tiles = |g: usize, t: usize| self.tiles(g, t, 0).len() * self.tiles(g, t, 1).len();
        groups
            .map(|g| (0..turns).map(|t| tiles(g, t)).sum::<usize>())
            .sum()
    }

    /// Waves of warm-up that fill the L2 twice, if each of their lines is fetched once.
    fn warm(&self, shape: &CacheShape) -> f64 {
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

/// Floats that one load fetches along a direction: as many, up to 4, as stand side by side.
fn vector(parts: &[u32]) -> usize {
    [4, 2]
        .into_iter()
        .find(|&w| parts.len() >= w && (1..w).all(|i| parts[i] == parts[0] + i as u32))
        .unwrap_or(1)
}

/// Misses of a product, of all groups (extrapolated, if not all were simulated).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Misses {
    /// Misses of all L1 together.
    pub(crate) l1: f64,
    /// Misses of the L2.
    pub(crate) l2: f64,
    /// Half the distance between the quartiles of the sampled places, for `l1` and `l2`; 0 where
    /// nothing was sampled.
    pub(crate) spread: [f64; 2],
    /// Multiply-adds.
    pub(crate) madds: f64,
    /// Iterations of the k loop, summed over the groups.
    pub(crate) iterations: f64,
    /// Groups.
    pub(crate) groups: usize,
    /// Groups that were simulated and counted; equal to `groups` where nothing was sampled.
    pub(crate) counted: usize,
    /// Places of the grid that were sampled; 1 where all was simulated.
    pub(crate) places: usize,
}

impl Misses {
    /// Misses of L1 (`level` 0) or L2 (1), and their spread, for each `unit` (of `madds`, of
    /// `iterations`, or 1).
    fn cell(&self, level: usize, unit: f64) -> Cell {
        let value = [self.l1, self.l2][level] / unit;
        Cell::Measured(Measured {
            value,
            spread: (self.places > 1).then(|| self.spread[level] / unit),
            runs: self.places as u32,
            ..Measured::default()
        })
    }
}

/// Counts the misses of a product of `size` × `size` matrices (1 to [`MAX_SIZE`], padded as the
/// kernel demands); the error says why it is not.
pub(crate) fn misses(
    pattern: &Pattern,
    size: usize,
    shape: &CacheShape,
    sample: Sample,
) -> Result<Misses, String> {
    let walk = Walk::new(pattern, size, shape.shift());
    let per_wave = shape.cores * shape.resident(pattern);
    let waves = walk.groups().div_ceil(per_wave);
    let once = walk
        .sweeps(0..1, 0)
        .iter()
        .map(|s| s.starts.len() as u64 * s.repeat.min(2))
        .sum::<u64>();
    let accesses = once * walk.steps.len() as u64 * walk.groups() as u64;
    let warm = walk.warm(shape);
    let before = (warm.ceil() as usize).max(1);
    // A matrix that fits into the L2 is fetched at the start only: no part of the grid stands for
    // the rest.
    let small = walk.l * walk.l <= shape.l2_lines * (shape.line / 4);
    let enough = sample
        .waves
        .saturating_mul(sample.places)
        .saturating_add(before)
        <= waves;
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
             fill; smaller --sizes \
             or --cache l2_lines=N take less",
            needed / 1e6,
            sample.most / 1_000_000,
            shape.l2_lines * shape.line / 1024
        ));
    }

    let tiles = |groups: &[Range<usize>]| walk.count(groups.iter().flat_map(|g| g.clone())) as f64;
    let mut caches = Caches::new(shape);
    let (mut counts, mut counted) = (Vec::new(), 0);
    for place in 0..if full { 1 } else { sample.places } {
        let mut total = Count::default();
        let range = if full {
            0..waves
        } else {
            // Golden section: places that no power of two has in common.
            let start = before
                + ((waves - sample.waves - before) as f64 * (place as f64 * 0.618_034).fract())
                    as usize;
            // The warm-up is no whole number of waves: the first starts within its k loop.
            let mut from = ((before as f64 - warm) * walk.steps.len() as f64) as usize;
            for w in start - before..start {
                walk.run(&mut caches, &walk.wave(w, shape), from);
                from = 0;
            }
            start..start + sample.waves
        };
        let mut done = 0.0;
        for w in range {
            let wave = walk.wave(w, shape);
            total.add(walk.run(&mut caches, &wave, 0), 1);
            done += tiles(&wave);
            counted += wave.iter().map(|groups| groups.len()).sum::<usize>();
        }
        counts.push([total.l1 as f64, total.l2 as f64].map(|misses| misses / done));
    }
    let all = (walk.range[0] * walk.range[1]) as f64;
    let total =
        |level: usize| counts.iter().map(|c| c[level]).sum::<f64>() / counts.len() as f64 * all;
    let spread = |level: usize| {
        let mut sorted: Vec<f64> = counts.iter().map(|c| c[level]).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let quartile = |q: usize| sorted[((sorted.len() - 1) * q + 2) / 4];
        (quartile(3) - quartile(1)) / 2.0 * all
    };
    Ok(Misses {
        l1: total(0),
        l2: total(1),
        spread: [spread(0), spread(1)],
        madds: walk.madds,
        iterations: walk.groups() as f64 * walk.steps.len() as f64,
        groups: walk.groups(),
        counted,
        places: counts.len(),
    })
}

/// Pages that the groups which a core holds at a time load from, in the first groups of the grid:
/// in all of the k loop, which is what they may need together once they drift apart, and at most in
/// `ARM_BARRIER` terms of it in step.
fn pages(pattern: &Pattern, size: usize, shape: &CacheShape) -> [f64; 2] {
    let shift = shape.page.trailing_zeros() - 2;
    let walk = Walk::new(pattern, size, shift);
    let groups = 0..shape.resident(pattern).min(walk.groups());
    let all = walk.lines(groups.clone(), 0..walk.steps.len(), shift).len();
    let close = ARM_BARRIER.div_ceil(pattern.k_step).min(walk.steps.len());
    [all, walk.lines(groups, 0..close, shift).len()].map(|n| n as f64)
}

/// Iterations of four terms between two barriers of ARM's cache-blocked kernels, in terms.
const ARM_BARRIER: usize = 4 * 32;

/// Lines that one group fetches in an iteration, on average, if each is fetched once: its own cache
/// misses in a cache that keeps all that will be used again.
fn alone(pattern: &Pattern, shape: &CacheShape) -> f64 {
    let walk = Walk::new(pattern, 1024, shape.shift());
    // As many iterations as cover whole lines, whatever the k step.
    let steps = (shape.line / 4).min(walk.steps.len());
    walk.lines(0..1, 0..steps, walk.shift).len() as f64 / steps as f64
}

/// Cache misses that come together and the iterations from one such bulk to the next (thesis, §8):
/// one group, and a cache that keeps all that will be used again.
fn bulk_and_period(pattern: &Pattern, shape: &CacheShape) -> (usize, usize) {
    let walk = Walk::new(pattern, 1024, shape.shift());
    let lines = |step: usize| walk.lines(0..1, step..step + 1, walk.shift);
    let seen = lines(0);
    let period =
        (1..walk.steps.len()).find(|&s| lines(s).iter().any(|l| seen.binary_search(l).is_err()));
    (seen.len(), period.unwrap_or(walk.steps.len()))
}

/// Lines that the threads of a core load in four iterations: how many lines, and how many their
/// bytes would fill.
fn four_iterations(pattern: &Pattern, shape: &CacheShape) -> (usize, f64) {
    let walk = Walk::new(
        pattern,
        (4 * shape.threads).next_multiple_of(1024),
        shape.shift(),
    );
    let groups = 0..shape.resident(pattern);
    let vectors = walk.lines(groups.clone(), 0..4, 2).len();
    (
        walk.lines(groups, 0..4, walk.shift).len(),
        vectors as f64 * 16.0 / shape.line as f64,
    )
}

/// ARM's blocked kernel with a group of the given dimension 1, and of dimension 0 up to 4.
fn arm(codename: &str, dimension_1: usize, shape: &CacheShape) -> Option<Pattern> {
    let mut pattern = pattern(codename)?;
    pattern.group = [(shape.threads / dimension_1).min(4), dimension_1];
    pattern.items = pattern.group[0] * dimension_1;
    (pattern.group[0] > 0).then_some(pattern)
}

/// Misses of a group in an iteration, by the documents' formulas.
fn document(pattern: &Pattern) -> Option<f64> {
    let [g0, g1] = pattern.group.map(|g| g as f64);
    let groups = 128.0 / (g0 * g1);
    match pattern.codename.strip_prefix("matmul_")? {
        "blocked_rmcm" | "morton_4_2" | "morton_4_4" => Some(2.0 * (g0 + g1) / 4.0),
        "blocked_nn" => Some((g1 + 512.0 / g1) / 4.0 / groups),
        "blocked_nt" => Some((2.0 * g1 + 256.0 / g1) / 4.0 / groups),
        _ => None,
    }
}

fn number(value: f64) -> Cell {
    Cell::Measured(Measured {
        value,
        runs: 1,
        ..Measured::default()
    })
}

fn words(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| t.to_string()).collect()
}

/// A section that is not drawn, and in which less is better.
fn section(id: String, title: String, rows_are: &str, unit: &str, columns: Vec<String>) -> Section {
    Section {
        id,
        title,
        rows_are: rows_are.to_string(),
        unit: unit.to_string(),
        larger_is_better: false,
        columns,
        rows: Vec::new(),
        notes: Vec::new(),
        plot: Plot::None,
    }
}

/// What [`misses`] found of a pattern, by size.
type Found = Vec<Result<Misses, String>>;

/// The report: ARM's table 1.2, the thesis's table 8.1, the misses and the pages of every product
/// of the library, and Morton 4-2 beside blocked.
pub(crate) fn report(shape: &CacheShape, sizes: &[usize], sample: Sample) -> Vec<Section> {
    let known = patterns();
    let found = all_misses(&known, sizes, shape, sample);
    let mut sections = vec![arm_1_2(shape), arm_loads(shape), thesis_8_1(shape)];
    sections.extend(by_variant(shape, sizes, sample, &known, &found));
    sections.extend(by_page(shape, sizes, &known));
    sections.extend(morton_vs_blocked(sizes, &known, &found));
    sections
}

/// The misses of every pattern, those that differ in nothing but the name computed once, on all
/// processors.
fn all_misses(
    known: &[Pattern],
    sizes: &[usize],
    shape: &CacheShape,
    sample: Sample,
) -> Vec<Found> {
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
    // Large sizes first: the last ones to be done are short.
    let mut work: Vec<(usize, usize)> = (0..sizes.len())
        .flat_map(|s| (0..known.len()).map(move |p| (p, s)))
        .filter(|w| first[w.0] == w.0)
        .collect();
    work.sort_by_key(|w| sizes[w.1]);
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
                    done.lock()
                        .unwrap_or_else(|e| e.into_inner())
                        .push((work[n - 1], one));
                }
            });
        }
    });
    let done: HashMap<_, _> = done
        .into_inner()
        .unwrap_or_else(|e| e.into_inner())
        .into_iter()
        .collect();
    first
        .iter()
        .map(|&p| (0..sizes.len()).map(|s| done[&(p, s)].clone()).collect())
        .collect()
}

fn arm_1_2(shape: &CacheShape) -> Section {
    let columns = words(&[
        "NN formula",
        "NN lines",
        "NN bytes/line",
        "NN share of L1",
        "NT formula",
        "NT lines",
        "NT bytes/line",
        "NT share of L1",
    ]);
    let title = "L1 lines that a core's threads need for four iterations (ARM, table 1.2)";
    let mut s = section(
        "cache_arm_1_2".into(),
        title.into(),
        "group dimension 1",
        "lines",
        columns,
    );
    for dimension_1 in (0..8).map(|p| 1 << p) {
        let mut cells = Vec::new();
        for (codename, rows) in [("matmul_blocked_nn", 1), ("matmul_blocked_nt", 2)] {
            // λ1 + 512/λ1 and 2·λ1 + 256/λ1: at 128 threads.
            cells.push(Cell::Document(
                (rows * dimension_1 + 512 / (rows * dimension_1)) as f64,
            ));
            let Some(pattern) = arm(codename, dimension_1, shape) else {
                cells.resize(cells.len() + 3, Cell::Empty);
                continue;
            };
            let (lines, full) = four_iterations(&pattern, shape);
            cells.extend([lines as f64, full, full / shape.l1_lines as f64].map(number));
        }
        s.rows.push(Row {
            label: dimension_1.to_string(),
            cells,
        });
    }
    s.notes = words(&[
        "formula: λ1 + 512/λ1 for 1×4×4 NN, 2·λ1 + 256/λ1 for 2×4×2 NT, for 128 threads and \
         64-byte lines.",
        "lines: distinct lines, dimension 0 of the group being 4, or 2 and 1 where λ1 leaves no \
         more threads. \
         bytes/line: the bytes loaded, in full lines; the formula counts these. They differ for \
         NN at λ1 = 64 and 128, \
         where a group is too narrow to use the lines of B in full: 80 and 144 lines instead of \
         72 and 132.",
    ]);
    s
}

/// What ARM derives of a kernel's blocking: elements loaded (§1.4.5), iterations whose lines
/// outlast a group (§1.4.6), and the least number of iterations between two barriers (§1.4.8).
fn arm_loads(shape: &CacheShape) -> Section {
    let columns = words(&[
        "1/ΔI + 1/ΔJ",
        "elements a multiply-add",
        "loads an iteration",
        "iterations kept in L1, formula",
        "ΔK of barriers, more than",
        "ΔK here",
    ]);
    let title = "Loads, reuse and barriers by blocking (ARM, §1.4.5, §1.4.6 and §1.4.8)";
    let mut s = section(
        "cache_arm_loads".into(),
        title.into(),
        "kernel",
        "",
        columns,
    );
    for (codename, barriers) in [
        ("matmul_scalar_nn", None),
        ("matmul_scalar_nt", None),
        ("matmul_blocked_nn", Some("matmul_cacheblocked_nn")),
        ("matmul_blocked_nt", Some("matmul_cacheblocked_nt")),
        (
            "matmul_blocked_nt_1x4x4",
            Some("matmul_cacheblocked_nt_1x4x4"),
        ),
    ] {
        let Some(pattern) = pattern(codename) else {
            continue;
        };
        let [rows, cols] = pattern.tile.map(|n| n as f64);
        let walk = Walk::new(&pattern, 1024, shape.shift());
        let k_step = pattern.k_step as f64;
        let elements = (rows + cols) * k_step;
        // Of groups of 4 × 32: the lines of four iterations, and those that the results take.
        let wide = Pattern {
            group: [4, 32],
            items: 128,
            ..pattern.clone()
        };
        let (lines, _) = four_iterations(&wide, shape);
        let results = Walk::new(&wide, 1024, shape.shift()).result_lines();
        let kept = 4 * (shape.l1_lines.saturating_sub(results) / lines);
        let mut cells = vec![Cell::Document(1.0 / rows + 1.0 / cols)];
        cells.push(number(elements / (rows * cols * k_step)));
        cells.push(number(walk.loads.len() as f64));
        cells.push(number(kept as f64));
        let own = barriers.and_then(|name| library().kernel(name)?.1.define("DELTA_K"));
        cells.push(number(2.0 * shape.threads as f64 / elements));
        cells.push(own.map_or(Cell::Empty, |own| number(own as f64)));
        s.rows.push(Row {
            label: codename.to_string(),
            cells,
        });
    }
    s.notes = words(&[
        "Iterations kept: 4 · ⌊(L1 lines − lines of the results) / lines of four iterations⌋, for \
         one group of 4×32 on a \
         core. ARM has 16 for 1×4×4 NN: (256 − 32) / 48. Its next sentence has 64 iterations and \
         a matrix of 256×256; 16 \
         iterations of four terms are one of 64×64.",
        "ΔK of barriers: 2·λ0·λ1 / (ΔI·K + K·ΔJ) with all threads of a core in one group, K terms \
         an iteration. ARM has 16 \
         for 2×4×2, and takes 32.",
    ]);
    s
}

fn thesis_8_1(shape: &CacheShape) -> Section {
    let columns = words(&[
        "bulk in thesis",
        "bulk",
        "period in thesis",
        "period",
        "per iteration",
    ]);
    let title = "Misses of one 4×16 group that come together, and iterations between them \
        (thesis, table 8.1)";
    let mut s = section(
        "cache_thesis_8_1".into(),
        title.into(),
        "kernel",
        "lines, iterations",
        columns,
    );
    for (codename, bulk, period) in [
        ("matmul_blocked_rmcm", 40.0, 4.0),
        ("matmul_morton_4_2", 20.0, 2.0),
        ("matmul_morton_4_4", 10.0, 1.0),
    ] {
        let Some(pattern) = pattern(codename) else {
            continue;
        };
        let found = bulk_and_period(&pattern, shape);
        let rate = number(alone(&pattern, shape));
        let (bulks, periods) = (number(found.0 as f64), number(found.1 as f64));
        let cells = vec![
            Cell::Document(bulk),
            bulks,
            Cell::Document(period),
            periods,
            rate,
        ];
        s.rows.push(Row {
            label: codename.to_string(),
            cells,
        });
    }
    s.notes = words(&[
        "bulk / period is the same for all three: without conflicts between rows, the layouts \
         change \
         when the misses come, not how many there are.",
    ]);
    s
}

fn by_variant(
    shape: &CacheShape,
    sizes: &[usize],
    sample: Sample,
    known: &[Pattern],
    found: &[Found],
) -> Vec<Section> {
    let mut sections = Vec::new();
    for (level, name) in ["L1", "L2"].into_iter().enumerate() {
        for (id, what, unit) in [
            ("cache_misses", "per multiply-add", "per 1000 multiply-adds"),
            (
                "cache_iteration",
                "per iteration of a group",
                "per iteration of a group",
            ),
            ("cache_total", "in total", "millions"),
        ] {
            let iteration = id == "cache_iteration";
            let mut columns = words(if iteration {
                &["document", "one group alone"]
            } else {
                &[]
            });
            columns.extend(sizes.iter().map(|n| n.to_string()));
            let id = format!("{id}_{}", name.to_ascii_lowercase());
            let mut s = section(id, format!("{name} misses {what}"), "kernel", unit, columns);
            for (pattern, misses) in known.iter().zip(found) {
                let mut cells = Vec::new();
                if iteration {
                    cells.push(document(pattern).map_or(Cell::Empty, Cell::Document));
                    cells.push(number(alone(pattern, shape)));
                }
                cells.extend(misses.iter().map(|m| match m {
                    Err(why) => Cell::Skipped(why.clone()),
                    Ok(m) if iteration => m.cell(level, m.iterations),
                    Ok(m) => m.cell(
                        level,
                        if unit == "millions" {
                            1e6
                        } else {
                            m.madds / 1e3
                        },
                    ),
                }));
                s.rows.push(Row {
                    label: pattern.codename.clone(),
                    cells,
                });
            }
            sections.push(s);
        }
    }
    sections[0].notes = words(&[
        "Threads run in step, groups are dealt to the cores in order, dimension 0 first; LRU. \
         Drift and prefetching are \
         left out, and with drift the barriers of the cache-blocked kernels.",
        &sampled(sizes, sample, found),
        "An iteration is one of the k loop: of all work-items of a group, or of the group where \
         it stages its operands in \
         local memory. A kernel that leaves its work-group to the driver has 32×1, or 4×16 where \
         it is measured with \
         many. Of pair and layers kernels: the first layer. Height and common dimension are at \
         most what the kernel is \
         for. Texture paths are modelled as the other loads, work-groups that share the common \
         dimension as one.",
        "(morton_8_2) is no kernel: matmul_morton_4_2 in the layouts R_8_4_R_2_4_R and \
         C_4_8_C_4_2_C.",
    ]);
    sections[1].notes = words(&[
        "document: (2·λ0 + 2·λ1)/4 in the thesis, (λ1 + 512/λ1)/4 and (2·λ1 + 256/λ1)/4 over \
         the groups of a core in ARM. one group alone: each line fetched once. The thesis counts \
         one group; where a core \
         holds two groups, they share an operand, and 10 become 6.",
    ]);
    sections
}

/// Pages, as ARM's §1.4.9 argues with them.
fn by_page(shape: &CacheShape, sizes: &[usize], known: &[Pattern]) -> [Section; 2] {
    let heading = format!(
        "of {} bytes that the groups of a core load from",
        shape.page
    );
    let new = |id: &str, what: &str| {
        let columns = sizes.iter().map(|n| n.to_string()).collect();
        section(
            id.to_string(),
            format!("Pages {heading}{what} (ARM, §1.4.9)"),
            "kernel",
            "pages",
            columns,
        )
    };
    let mut sections = [
        new("cache_pages", ", in all of the k loop"),
        new(
            "cache_pages_barrier",
            &format!(", in {ARM_BARRIER} terms of the sum"),
        ),
    ];
    for pattern in known {
        let found: Vec<[f64; 2]> = sizes.iter().map(|&n| pages(pattern, n, shape)).collect();
        for (i, s) in sections.iter_mut().enumerate() {
            let cells = found.iter().map(|pages| number(pages[i])).collect();
            s.rows.push(Row {
                label: pattern.codename.clone(),
                cells,
            });
        }
    }
    sections[0].notes = words(&[
        "Each page needs a look-up in the page tables before its first use. Groups that drift \
         apart may need all of these \
         at a time: a row-major B (NN) costs a page for every one or few of its rows, a \
         column-major one (NT) for its \
         columns alone. Counted: loads of the groups that core 0 holds first; results are not.",
    ]);
    sections[1].notes = words(&[
        "What threads in step need between two of the barriers of ARM's cache-blocked kernels: 32 \
         iterations of four \
         terms.",
    ]);
    sections
}

/// Says what was simulated.
fn sampled(sizes: &[usize], sample: Sample, found: &[Found]) -> String {
    let share = |i: usize| {
        let all = found.iter().filter_map(|f| f[i].as_ref().ok());
        all.map(|m| m.counted as f64 / m.groups as f64)
            .fold(1.0, f64::min)
    };
    let shares = sizes.iter().enumerate().map(|(i, n)| match share(i) {
        all if all >= 1.0 => format!("{n} in full"),
        part => format!("{n} by 1 group in {:.0}", 1.0 / part),
    });
    format!(
        "Simulated, by size, for the variant with the smallest share: {}. Places of the grid in a \
         sample: {}; at each, \
         waves (what all cores hold): {}, with the whole k loop, after a warm-up that could fill \
         the L2 twice. Totals \
         are the mean over the places, times all groups.",
        shares.collect::<Vec<_>>().join(", "),
        sample.places,
        sample.waves
    )
}

/// Speed of Morton 4-2 against the blocked kernel in the thesis, table 8.2.
const THESIS_8_2: [(usize, f64); 6] = [
    (96, 13.04 / 11.65),
    (192, 14.86 / 13.65),
    (384, 14.19 / 13.08),
    (768, 13.67 / 12.90),
    (1440, 13.61 / 12.98),
    (2880, 13.65 / 2.14),
];

fn morton_vs_blocked(sizes: &[usize], known: &[Pattern], found: &[Found]) -> Option<Section> {
    let of = |codename: &str| Some(&found[known.iter().position(|p| p.codename == codename)?]);
    let (blocked, morton, deeper) = (
        of("matmul_blocked_rmcm")?,
        of("matmul_morton_4_2")?,
        of(MORTON_8_2)?,
    );
    let columns = words(&[
        "L1",
        "L2",
        "speed in thesis 8.2",
        "L1, morton_8_2",
        "L2, morton_8_2",
    ]);
    let title =
        "Misses of blocked_rmcm over those of morton_4_2, and of morton_8_2: above 1, Morton wins";
    let mut s = section(
        "cache_morton_vs_blocked".into(),
        title.into(),
        "size",
        "ratio",
        columns,
    );
    s.larger_is_better = true;
    s.plot = Plot::Lines;
    let mut notes = ["L1", "L2"].map(|level| (level, Vec::new(), Vec::new()));
    for (i, &n) in sizes.iter().enumerate() {
        let (Ok(blocked), Ok(morton), Ok(deeper)) = (&blocked[i], &morton[i], &deeper[i]) else {
            continue;
        };
        let ratios = |m: &Misses| [blocked.l1 / m.l1.max(1.0), blocked.l2 / m.l2.max(1.0)];
        let mut cells = ratios(morton).map(number).to_vec();
        cells.push(
            THESIS_8_2
                .iter()
                .find(|t| t.0 == n)
                .map_or(Cell::Empty, |t| Cell::Document(t.1)),
        );
        cells.extend(ratios(deeper).map(number));
        s.rows.push(Row {
            label: n.to_string(),
            cells,
        });
        for ((_, wins, losses), ratio) in notes.iter_mut().zip(ratios(morton)) {
            let text = format!("{n} ({:+.1} %)", 100.0 * (1.0 / ratio - 1.0));
            if ratio > 1.005 {
                wins.push(text);
            } else if ratio < 0.995 {
                losses.push(text);
            }
        }
    }
    let list = |sizes: Vec<String>| {
        if sizes.is_empty() {
            "no size".to_string()
        } else {
            sizes.join(", ")
        }
    };
    s.notes.extend(notes.map(|(level, wins, losses)| {
        format!(
            "{level}: morton_4_2 misses less than blocked_rmcm at {}; more at {}; the rest are \
             within 0.5 %.",
            list(wins),
            list(losses)
        )
    }));
    s.notes.extend(words(&[
        "Where rows are a power of two apart, all of them fall into a few cache sets. Morton 4-2 \
         halves the lines that \
         compete there, which helps only as far as the ways reach; morton_8_2 (R_8_4_R_2_4_R, \
         C_4_8_C_4_2_C) puts the \
         rows of a group side by side.",
        "The thesis's loss of the blocked kernel at 2880 is not one of cache sets: ARM ascribes \
         it to groups that drift \
         apart, which this model leaves out.",
    ]));
    Some(s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Pseudo-random numbers (xorshift).
    fn random(state: &mut u32) -> u32 {
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        *state
    }

    /// LRU as written in a textbook: each line with the time of its last use.
    struct Naive {
        ways: usize,
        time: u64,
        sets: Vec<Vec<(u32, u64)>>,
    }

    impl Naive {
        fn new(lines: usize, ways: usize) -> Naive {
            Naive {
                ways,
                time: 0,
                sets: vec![Vec::new(); lines / ways],
            }
        }

        fn hit(&mut self, line: u32) -> bool {
            self.time += 1;
            let sets = self.sets.len();
            let set = &mut self.sets[line as usize % sets];
            if let Some(entry) = set.iter_mut().find(|e| e.0 == line) {
                entry.1 = self.time;
                return true;
            }
            if set.len() == self.ways {
                let oldest = (0..set.len()).min_by_key(|&i| set[i].1).unwrap();
                set.remove(oldest);
            }
            set.push((line, self.time));
            false
        }
    }

    #[test]
    fn lru_is_lru() {
        for (lines, ways) in [(16, 1), (16, 4), (24, 8), (12, 4), (16, 16)] {
            let (mut cache, mut naive) = (Cache::new(lines, ways), Naive::new(lines, ways));
            let mut seed = 0x2545_F491;
            for i in 0..20_000 {
                let line = random(&mut seed) % 40;
                assert_eq!(
                    cache.hit(line),
                    naive.hit(line),
                    "{lines} lines, {ways} ways, access {i}"
                );
            }
        }
    }

    #[test]
    fn associativity() {
        let misses = |ways: usize, lines: u32, stride: u32| {
            let mut cache = Cache::new(64, ways);
            (0..10)
                .flat_map(|_| 0..lines)
                .filter(|i| !cache.hit(i * stride))
                .count()
        };
        // 64 neighbours fill any cache of 64 lines; the 65th costs a fully associative one
        // everything.
        assert_eq!(
            [misses(1, 64, 1), misses(4, 64, 1), misses(64, 64, 1)],
            [64; 3]
        );
        assert_eq!([misses(1, 65, 1), misses(64, 65, 1)], [65 + 9 * 2, 650]);
        // 8 lines of one set.
        assert_eq!(
            [
                misses(1, 8, 64),
                misses(4, 8, 64),
                misses(8, 8, 64),
                misses(64, 8, 64)
            ],
            [80, 80, 8, 8]
        );
    }

    /// The model without its shortcuts: every load of every thread, by the layout's own index.
    fn plain(pattern: &Pattern, n: usize, shape: &CacheShape) -> [u64; 2] {
        let mut l1: Vec<Naive> = (0..shape.cores)
            .map(|_| Naive::new(shape.l1_lines, shape.l1_ways))
            .collect();
        let mut l2 = Naive::new(shape.l2_lines, shape.l2_ways);
        let mut count = [0, 0];
        let mut fetch = |core: usize, element: usize| {
            let line = (element * 4 / shape.line) as u32;
            if !l1[core].hit(line) {
                count[0] += 1;
                count[1] += u64::from(!l2.hit(line));
            }
        };
        let sizes = pattern.sizes(n);
        let [h, l, w] = [0, 1, 2].map(|i| sizes[i].next_multiple_of(pattern.align[i]));
        let [a, b, r] = &pattern.layouts;
        let start = [h * l, l * w].map(|floats| floats.next_multiple_of(1024));
        let a = |row: usize, k: usize| a.index(h, l, row.min(h - 1), k);
        let b = |k: usize, col: usize| start[0] + b.index(l, w, k, col.min(w - 1));
        let r = |row: usize, col: usize| {
            start[0] + start[1] + r.index(h, w, row.min(h - 1), col.min(w - 1))
        };

        let Pattern {
            group,
            row_dimension,
            ..
        } = *pattern;
        let (k_step, block) = (pattern.k_step.min(l), pattern.block.min(l));
        let tile = [pattern.tile[0].min(h), pattern.tile[1].min(w)];
        let units = [h.div_ceil(tile[0]), w.div_ceil(tile[1])];
        // Dimension 0 or 1 of what is listed by rows and columns, and back.
        let turned = |pair: [usize; 2]| {
            if row_dimension == 0 {
                pair
            } else {
                [pair[1], pair[0]]
            }
        };
        let range = turned(units);
        let turns = turned(pattern.turns);
        let turns = [0, 1].map(|d| turns[d].min(range[d].div_ceil(group[d])));
        let grid = [0, 1].map(|d| range[d].div_ceil(group[d] * turns[d]));
        let threads = |g: usize, turn: usize| -> Vec<[usize; 2]> {
            let at = |d: usize, place: usize, turn: usize| (place * turns[d] + turn) * group[d];
            let from = [
                at(0, g % grid[0], turn % turns[0]),
                at(1, g / grid[0], turn / turns[0]),
            ];
            let items =
                (0..group[0] * group[1]).map(|i| [from[0] + i % group[0], from[1] + i / group[0]]);
            items
                .filter(|p| p[0] < range[0] && p[1] < range[1])
                .map(turned)
                .collect()
        };
        // Elements of a tile in the order of the kernel's loads; one more use of a line just used
        // hits, so a vector may be fetched float by float where the threads take turns by vector.
        let order = |tile: usize, wide: usize, deep: usize| -> Vec<Vec<(usize, usize)>> {
            let (mut loads, along) = (Vec::new(), deep >= wide);
            let (outer, inner) = if along {
                (tile, k_step)
            } else {
                (k_step, tile)
            };
            for o in 0..outer {
                for i in (0..inner).step_by(wide.max(deep)) {
                    let all = i..i + wide.max(deep);
                    loads.push(all.map(|i| if along { (o, i) } else { (i, o) }).collect());
                }
            }
            loads
        };
        let side = |n: usize, at: &dyn Fn(usize) -> usize| {
            [4, 2]
                .into_iter()
                .find(|&v| n >= v && (1..v).all(|i| at(i) == at(0) + i))
                .unwrap_or(1)
        };
        let order_a = order(
            tile[0],
            side(tile[0], &|i| a(i, 0)),
            side(k_step, &|k| a(0, k)),
        );
        let order_b = order(
            tile[1],
            side(tile[1], &|i| b(0, i)),
            side(k_step, &|k| b(k, 0)),
        );
        let held = shape.resident(pattern);
        let groups: Vec<usize> = (0..grid[0] * grid[1]).collect();
        for wave in groups.chunks(held * shape.cores) {
            for first in (0..l).step_by(block) {
                for turn in 0..turns[0] * turns[1] {
                    for from in (first..l.min(first + block)).step_by(k_step) {
                        for (core, groups) in wave.chunks(held).enumerate() {
                            let all: Vec<_> =
                                groups.iter().flat_map(|&g| threads(g, turn)).collect();
                            for (right, loads) in [(false, &order_a), (true, &order_b)] {
                                for load in loads {
                                    for thread in &all {
                                        for &(t, k) in load.iter().filter(|e| from + e.1 < l) {
                                            fetch(
                                                core,
                                                match right {
                                                    false => a(thread[0] * tile[0] + t, from + k),
                                                    true => b(from + k, thread[1] * tile[1] + t),
                                                },
                                            );
                                        }
                                    }
                                }
                            }
                        }
                    }
                    for (core, groups) in wave.chunks(held).enumerate() {
                        for (i, j) in (0..tile[0]).flat_map(|i| (0..tile[1]).map(move |j| (i, j))) {
                            for thread in groups.iter().flat_map(|&g| threads(g, turn)) {
                                fetch(core, r(thread[0] * tile[0] + i, thread[1] * tile[1] + j));
                            }
                        }
                    }
                }
            }
        }
        count
    }

    #[test]
    fn shortcuts_are_exact() {
        let small = CacheShape {
            l1_lines: 32,
            l1_ways: 2,
            l2_lines: 128,
            l2_ways: 4,
            cores: 3,
            ..CacheShape::default()
        };
        let odd = CacheShape {
            l1_lines: 48,
            l1_ways: 4,
            cores: 2,
            threads: 300,
            line: 32,
            ..small
        };
        for pattern in patterns() {
            for (n, shape) in [(64, small), (80, odd)] {
                let found = misses(&pattern, n, &shape, Sample::default()).unwrap();
                let counted = [found.l1.round(), found.l2.round()];
                assert_eq!(
                    counted,
                    plain(&pattern, n, &shape).map(|c| c as f64),
                    "{} {n}",
                    pattern.codename
                );
                assert_eq!((found.counted, found.spread), (found.groups, [0.0; 2]));
            }
        }
    }

    #[test]
    fn arm_table_1_2() {
        let shape = CacheShape::default();
        let nn = [513, 258, 132, 72, 48, 48, 72, 132];
        let nt = [258, 132, 72, 48, 48, 72, 132, 258];
        // Groups narrower than a line's 4 vectors cannot use the lines of B in full.
        let nn_lines = [513, 258, 132, 72, 48, 48, 80, 144];
        let section = arm_1_2(&shape);
        for (i, row) in section.rows.iter().enumerate() {
            for (codename, table, lines, column) in [
                ("matmul_blocked_nn", nn, nn_lines, 0),
                ("matmul_blocked_nt", nt, nt, 4),
            ] {
                let found = four_iterations(&arm(codename, 1 << i, &shape).unwrap(), &shape);
                assert_eq!(
                    found,
                    (lines[i], table[i] as f64),
                    "{codename} {}",
                    row.label
                );
                assert_eq!(row.cells[column], Cell::Document(table[i] as f64));
            }
        }
        // "This expression is independent of λ0."
        for (codename, table) in [("matmul_blocked_nn", nn), ("matmul_blocked_nt", nt)] {
            for (i, wide) in (0..6).flat_map(|i| [4, 8, 16, 32, 64, 128].map(|w| (i, w))) {
                if (wide << i) <= 128 {
                    let mut p = pattern(codename).unwrap();
                    p.group = [wide, 1 << i];
                    p.items = wide << i;
                    assert_eq!(
                        four_iterations(&p, &shape),
                        (table[i], table[i] as f64),
                        "{codename} {:?}",
                        p.group
                    );
                }
            }
        }
    }

    #[test]
    fn thesis_table_8_1() {
        for (codename, bulk, period) in [
            ("matmul_blocked_rmcm", 40, 4),
            ("matmul_morton_4_2", 20, 2),
            ("matmul_morton_4_4", 10, 1),
        ] {
            let pattern = pattern(codename).unwrap();
            assert_eq!(
                bulk_and_period(&pattern, &CacheShape::default()),
                (bulk, period),
                "{codename}"
            );
            assert_eq!(alone(&pattern, &CacheShape::default()), 10.0);
        }
        for row in &thesis_8_1(&CacheShape::default()).rows {
            let value = |i: usize| match &row.cells[i] {
                Cell::Measured(m) => m.value,
                Cell::Document(d) => *d,
                _ => f64::NAN,
            };
            assert_eq!((value(0), value(2)), (value(1), value(3)), "{}", row.label);
        }
    }

    /// The stated tolerance: 5 % in L1 and 8 % in L2, for these kernels from 192 on (96 is never
    /// sampled).
    #[test]
    fn a_sample_is_like_the_whole() {
        let shape = CacheShape::default();
        let sample = Sample {
            full: 1,
            ..Sample::default()
        };
        for (codename, n) in [
            ("matmul_naive_grouped", 240),
            ("matmul_rmcm_vector", 240),
            ("matmul_blocked_rmcm", 240),
            ("matmul_naive_grouped", 192),
            ("matmul_rmcm_vector", 192),
            ("matmul_blocked_rmrm", 192),
            ("matmul_blocked_rmcm", 192),
            ("matmul_morton_4_2", 192),
            ("matmul_morton_4_4", 192),
        ] {
            let pattern = pattern(codename).unwrap();
            let (part, all) = (
                misses(&pattern, n, &shape, sample),
                misses(&pattern, n, &shape, Sample::default()),
            );
            let (part, all) = (part.unwrap(), all.unwrap());
            assert!(all.counted == all.groups && part.counted < part.groups);
            assert!(
                (part.l1 / all.l1 - 1.0).abs() < 0.05,
                "{codename} {n}: {} of {}",
                part.l1,
                all.l1
            );
            assert!(
                (part.l2 / all.l2 - 1.0).abs() < 0.08,
                "{codename} {n}: {} of {}",
                part.l2,
                all.l2
            );
        }
    }

    /// Rows 16 KiB apart: what 4096 costs over 4000, in L1 and L2.
    #[test]
    fn powers_of_two() {
        let collapse = |codename: &str, shape: &CacheShape| {
            let pattern = pattern(codename).unwrap();
            let sample = Sample {
                places: 1,
                ..Sample::default()
            };
            let [even, odd] = [4096, 4000].map(|n| misses(&pattern, n, shape, sample).unwrap());
            assert!(even.counted < even.groups);
            [even.l1 / odd.l1, even.l2 / odd.l2].map(|r| {
                r * (even.iterations / odd.iterations).recip() * (4096.0f64 / 4000.0).powi(3)
            })
        };
        let mali = CacheShape::default();
        let [l1, l2] = collapse("matmul_blocked_rmcm", &mali);
        assert!(l1 > 5.0 && l2 > 10.0, "blocked: {l1} {l2}");
        // One line in place of two is not enough for 4 ways,
        let [l1, l2] = collapse("matmul_morton_4_2", &mali);
        assert!(l1 > 5.0 && l2 > 10.0, "Morton 4-2: {l1} {l2}");
        // but for 24, which blocked would need twice; and rows side by side need no ways at all.
        let wide = CacheShape {
            l1_ways: 32,
            l2_ways: 32,
            ..mali
        };
        assert!(
            collapse("matmul_morton_4_2", &wide)
                .iter()
                .all(|r| *r < 1.1)
        );
        assert!(
            collapse("matmul_blocked_rmcm", &wide)
                .iter()
                .all(|r| *r > 3.0)
        );
        assert!(collapse("matmul_morton_4_4", &mali)[0] < 3.5);
        assert!(collapse(MORTON_8_2, &mali).iter().all(|r| *r < 1.1));
    }

    /// The packed kernels never miss more often than Morton 4-2, and 4096 costs them no more than
    /// 4000.
    #[test]
    fn packed_operands() {
        let shape = CacheShape::default();
        let sample = Sample {
            places: 1,
            ..Sample::default()
        };
        let per_madd = |codename: &str, n: usize| {
            let m = misses(&pattern(codename).unwrap(), n, &shape, sample).unwrap();
            [m.l1 / m.madds, m.l2 / m.madds]
        };
        for codename in ["matmul_packed_4x4", "matmul_packed_4x4_k4"] {
            for n in [96, 192, 384, 768, 1440, 2880] {
                let (packed, morton) = (per_madd(codename, n), per_madd("matmul_morton_4_2", n));
                assert!(
                    packed[0] < 0.65 * morton[0] && packed[1] <= morton[1],
                    "{n}: {packed:?} {morton:?}"
                );
            }
            let (even, odd) = (per_madd(codename, 4096), per_madd(codename, 4000));
            assert!(
                (0..2).all(|level| even[level] < 1.01 * odd[level]),
                "{even:?} {odd:?}"
            );
        }
    }

    /// Sizes of a product, and what reads: the number of its tile along rows and columns, as the
    /// kernel's ids count it.
    struct At {
        h: usize,
        l: usize,
        w: usize,
        row: usize,
        col: usize,
    }

    /// Elements of a and of b that one unit (a work-item, or a work-group that stages) reads for
    /// the terms from k on, as the kernel of that function computes their addresses.
    fn kernel_reads(kernel: &Kernel, at: &At, k: usize) -> Option<[Vec<usize>; 2]> {
        let &At { h, l, w, row, col } = at;
        let four = |starts: &[usize]| {
            starts
                .iter()
                .flat_map(|s| 4 * s..4 * s + 4)
                .collect::<Vec<_>>()
        };
        let define = |name: &str| {
            kernel
                .defines
                .iter()
                .find(|d| d.name == name)
                .map_or(0, |d| d.value as usize)
        };
        let (l4, w4, k4) = (l / 4, w / 4, k / 4);
        // Of a row of float4 in blocked kernels; w4 apart in b.
        let down = |p: usize| four(&[p, p + w4, p + 2 * w4, p + 3 * w4]);
        Some(match &*kernel.function {
            "matmul_naive" | "matmul_scalar_nn" => [vec![row * l + k], vec![k * w + col]],
            "matmul_rmcm" | "matmul_scalar_nt" => [vec![row * l + k], vec![col * l + k]],
            "matmul_columns" => [vec![row + h * k], vec![k + l * col]],
            "matmul_rmcm_vector" => [four(&[row * l4 + k4]), four(&[col * l4 + k4])],
            "matmul_sgemm" => [
                (row * l + k..row * l + k + 4).collect(),
                (0..4).map(|i| col + k * w + i * w).collect(),
            ],
            "matmul_blocked_rmrm" | "matmul_blocked_nn" | "matmul_cacheblocked_nn" => {
                [four(&[row * l4 + k4]), down(col + 4 * w4 * k4)]
            }
            "matmul_blocked_rmcm" | "matmul_blocked_nt" | "matmul_cacheblocked_nt" => [
                four(&[2 * row * l4 + k4, 2 * row * l4 + k4 + l4]),
                four(&[2 * col * l4 + k4, 2 * col * l4 + k4 + l4]),
            ],
            "matmul_blocked_nt_1x4x4" | "matmul_cacheblocked_nt_1x4x4" => [
                four(&[row * l4 + k4]),
                four(&[0, 1, 2, 3].map(|i| 4 * col * l4 + k4 + i * l4)),
            ],
            "matmul_image" => [
                (0..8)
                    .map(|i| (8 * row + i).min(h - 1) * l + k)
                    .flat_map(|s| s..s + 4)
                    .collect(),
                // Pixel (x, y) is columns 4x to 4x + 3 of row y.
                four(&[0, 1, 2, 3].map(|i| (k + i) * w4 + col)),
            ],
            "affine_image" => [
                four(&[0, 1, 2, 3].map(|i| (k + i) * (h / 4) + row)),
                (0..8)
                    .map(|i| (8 * col + i) * l + k)
                    .flat_map(|s| s..s + 4)
                    .collect(),
            ],
            "matmul_morton_4_2" | "affine_morton_4_2" => {
                let (a, b) = (row * l / 2 + 2 * k4, col * l / 2 + 2 * k4);
                [four(&[a, a + 1]), four(&[b, b + 1])]
            }
            "matmul_morton_4_4" => {
                let place = |i: usize| (i >> 1) * l + (i & 1) * 2 + k;
                [
                    four(&[place(row), place(row) + 1]),
                    four(&[place(col), place(col) + 1]),
                ]
            }
            "matmul_packed_4x4" | "affine_packed_4x4" | "layers_packed_4x4" => {
                let ks = k..k + define("K_STEP");
                let place = |i: usize, k: usize| (i >> 2) * 4 * l + 4 * k + (i & 3);
                let of = |i: usize| four(&ks.clone().map(|k| place(i, k)).collect::<Vec<_>>());
                // Its work-items count down the panel first, then along the records, then the
                // panels.
                let t = row / 4 * 16 + col % 4 * 4 + row % 4;
                let layers = &*kernel.function == "layers_packed_4x4";
                if layers {
                    [of((t >> 4) * 4 + (t & 3)), of(col / 4 * 4 + (t >> 2 & 3))]
                } else {
                    [of(row), of(col)]
                }
            }
            "matmul_panel" | "affine_panel" => {
                let a = |k: usize| 16 * (2 * (row * l) + 2 * k)..16 * (2 * (row * l) + 2 * k + 2);
                let b =
                    |n: usize| 10 * col * l + 10 * k + 16 * n..10 * col * l + 10 * k + 16 * n + 16;
                [
                    (k..k + 16).flat_map(a).collect(),
                    (0..10).flat_map(b).collect(),
                ]
            }
            "matmul_columns_local" | "matmul_columns_local_vector" => {
                let tile = define("TILE");
                let pairs = || (0..tile).flat_map(|j| (0..tile).map(move |i| (i, j)));
                [
                    pairs().map(|(i, j)| row * tile + i + h * (k + j)).collect(),
                    pairs().map(|(i, j)| k + i + l * (col * tile + j)).collect(),
                ]
            }
            "matmul_tiled" | "matmul_mma" | "affine_tiled" | "affine_mma" => {
                let tile = kernel.restrictions.tile?;
                let mma = kernel.restrictions.needs.warp;
                let ks = k..l.min(k + define("BK"));
                // A tile is a panel, or as many as there are warps.
                let panels = define("WARPS").max(1);
                let fours = tile.0 / panels / 4;
                let quads = |panel: usize| {
                    ks.clone()
                        .flat_map(move |k| (0..fours).map(move |i| (panel * l + k) * fours + i))
                };
                let a = (row * panels..(row + 1) * panels)
                    .filter(|p| 4 * p * fours < h)
                    .flat_map(quads);
                let a = four(&a.collect::<Vec<_>>());
                let cols = || (0..tile.1).map(|c| (col * tile.1 + c).min(w - 1));
                let b = if define("RECORDS") == 1 || mma {
                    cols()
                        .flat_map(|c| ks.clone().map(move |k| c * l + k))
                        .collect()
                } else {
                    let quads = (0..tile.1 / 4).map(|q| (col * tile.1 / 4 + q).min(w4 - 1));
                    four(
                        &quads
                            .flat_map(|q| ks.clone().map(move |k| k * w4 + q))
                            .collect::<Vec<_>>(),
                    )
                };
                [a, b]
            }
            "affine_narrow" => {
                let ks = k..l.min(k + 256);
                let b = match define("RECORDS") {
                    1 => (0..4)
                        .flat_map(|c| ks.clone().map(move |k| (4 * col + c) * l + k))
                        .collect(),
                    _ => four(&ks.clone().map(|k| k * w4 + col).collect::<Vec<_>>()),
                };
                [four(&ks.map(|k| k * (h / 4) + row).collect::<Vec<_>>()), b]
            }
            "affine_few" | "affine_few_image" => {
                let (quads, slices) = (define("QUADS"), define("SLICES"));
                let ks = k..l.min(k + slices);
                let rows = row * quads..(h / 4).min((row + 1) * quads);
                let a = rows.flat_map(|quad| ks.clone().map(move |k| k * (h / 4) + quad));
                [
                    four(&a.collect::<Vec<_>>()),
                    ks.clone().map(|k| col * l + k).collect(),
                ]
            }
            "pair_records" | "layers_few" => {
                let a = (0..l).flat_map(|k| (0..h / 4).map(move |quad| quad + k * (h / 4)));
                [
                    four(&a.collect::<Vec<_>>()),
                    (col * l..col * l + l).collect(),
                ]
            }
            _ => return None,
        })
    }

    /// Every product of the library reads what its kernel's formulas say, unit by unit and step by
    /// step.
    #[test]
    fn patterns_read_what_kernels_read() {
        let mut products = 0;
        for kernel in library()
            .kernels
            .iter()
            .filter(|k| k.operation.is_product() && k.source.is_some())
        {
            let name = &kernel.codename;
            let pattern = pattern(name).unwrap_or_else(|| panic!("{name} has no row"));
            products += 1;
            for size in [32, 100, 160] {
                let walk = Walk::new(&pattern, size, 0);
                let [h, l, w] =
                    [0, 1, 2].map(|i| pattern.sizes(size)[i].next_multiple_of(pattern.align[i]));
                let start = (h * l).next_multiple_of(1024);
                let tiles: HashSet<[usize; 2]> = (0..walk.groups())
                    .flat_map(|g| (0..walk.turns[0] * walk.turns[1]).map(move |t| (g, t)))
                    .flat_map(|(g, t)| walk.tiles(g, t, 0).map(move |x| (g, t, x)))
                    .flat_map(|(g, t, x)| walk.tiles(g, t, 1).map(move |y| [x, y]))
                    .collect();
                assert_eq!(
                    tiles.len(),
                    walk.range[0] * walk.range[1],
                    "{name} {size}: each tile once"
                );
                let ends = [
                    [0, 0],
                    [walk.range[0] - 1, walk.range[1] - 1],
                    [walk.range[0] / 2, walk.range[1] / 2],
                ];
                for (tile, step) in ends
                    .iter()
                    .flat_map(|t| walk.steps.iter().map(move |s| (t, s)))
                {
                    let (row, col) = (tile[pattern.row_dimension], tile[1 - pattern.row_dimension]);
                    let kernel_reads = kernel_reads(kernel, &At { h, l, w, row, col }, step.k)
                        .unwrap_or_else(|| {
                            panic!("{name}: its addresses are not written down here")
                        });
                    let mut model = [HashSet::new(), HashSet::new()];
                    let k_step = pattern.k_step.min(walk.l);
                    let wide = |tile: &[u32], ks: &[u32], d: usize| {
                        vector(&tile[..walk.tile[d]]).max(vector(&ks[..k_step]))
                    };
                    let wide = [
                        wide(&walk.at[0].rows, &walk.at[0].cols, 0),
                        wide(&walk.at[1].cols, &walk.at[1].rows, 1),
                    ];
                    for load in &walk.loads {
                        let (parts, unit) = if load.right {
                            (&walk.at[1].cols, col)
                        } else {
                            (&walk.at[0].rows, row)
                        };
                        let place =
                            parts[unit * walk.tile[usize::from(load.right)] + load.tile] as usize;
                        if let Some(k) = walk.k_part(load, *step) {
                            let base = if load.right { start } else { 0 };
                            let first = place + k as usize - base;
                            let operand = usize::from(load.right);
                            // Tiles beyond the end read the last element again.
                            let hangs = unit * walk.tile[operand] + load.tile >= [h, w][operand];
                            model[operand]
                                .extend(first..first + if hangs { 1 } else { wide[operand] });
                        }
                    }
                    for (i, elements) in kernel_reads.iter().enumerate() {
                        let elements: HashSet<usize> = elements.iter().copied().collect();
                        assert!(
                            model[i] == elements,
                            "{name} {size} {tile:?} k {}: operand {i}",
                            step.k
                        );
                    }
                }
            }
        }
        assert_eq!(products + 1, patterns().len());
    }

    /// Dimension 0 is the one that the kernel's source takes its rows or columns from.
    #[test]
    fn dimension_0_is_the_kernels() {
        for (path, text) in library_sources() {
            let ids = |names: &[&str]| {
                names.iter().find_map(|name| {
                    ["get_global_id(", "get_group_id("].iter().find_map(|f| {
                        let rest =
                            &text[text.find(&format!("{name}={f}"))? + name.len() + 1 + f.len()..];
                        rest.chars().next()?.to_digit(10)
                    })
                })
            };
            for kernel in library()
                .kernels
                .iter()
                .filter(|k| k.source.as_deref() == Some(path))
            {
                let Some(p) = Pattern::of(kernel) else {
                    continue;
                };
                let panel = kernel.function.ends_with("_panel");
                // A panel's work-items number themselves anew, and the kernel for all layers has
                // one dimension.
                assert_eq!(
                    p.row_dimension == 1,
                    kernel.restrictions.columns_first || panel,
                    "{path}"
                );
                let found = [
                    ids(&["row", "i", "x", "panel"]),
                    ids(&["col", "j", "first"]),
                ];
                let expected = [p.row_dimension as u32, 1 - p.row_dimension as u32];
                let any = found.iter().any(Option::is_some);
                assert!(
                    any || panel || kernel.operation == Operation::Layers,
                    "{path}: no ids found"
                );
                for (found, expected) in found.iter().zip(expected) {
                    assert!(found.is_none_or(|f| f == expected), "{path}: {found:?}");
                }
            }
        }
        assert_eq!(pattern("matmul_blocked_nt").unwrap().row_dimension, 0);
        assert_eq!(pattern("matmul_cacheblocked_nt").unwrap().row_dimension, 1);
    }

    fn library_sources() -> impl Iterator<Item = (&'static str, &'static str)> {
        crate::baked::sources()
            .unwrap()
            .iter()
            .map(|(path, text)| (&**path, &**text))
    }

    /// NN loads whole columns of a row-major B, NT does not, and a barrier bounds what is needed at
    /// a time (ARM, §1.4.9).
    #[test]
    fn pages_are_arms() {
        let shape = CacheShape::default();
        let of = |codename: &str| pages(&pattern(codename).unwrap(), 1024, &shape);
        // 1024 rows of 4096 bytes, a page each; A adds one for each of the 16 rows of 8 groups of
        // 16 columns.
        assert_eq!(of("matmul_scalar_nn"), [1024.0 + 16.0, 128.0 + 16.0]);
        // 8 columns of B (two groups of 4), 16 rows of A.
        assert_eq!(of("matmul_scalar_nt"), [8.0 + 16.0; 2]);
        let large = CacheShape {
            page: 1 << 16,
            ..shape
        };
        assert_eq!(
            pages(&pattern("matmul_scalar_nt").unwrap(), 1024, &large),
            [2.0; 2]
        );
    }

    #[test]
    fn a_device_tells_line_cache_and_cores() {
        let s = CacheShape::told(64, 128 << 10, 4).unwrap();
        assert_eq!(s, CacheShape::default());
        let s = CacheShape::told(128, 50 << 20, 132).unwrap();
        assert_eq!(
            (s.line, s.l1_lines, s.l2_lines, s.cores),
            (128, 128, 409_600, 132)
        );
        assert_eq!(
            CacheShape::told(64, 3 * 64 * 1024, 2).map(|s| (s.l2_ways, s.check())),
            Some((8, Ok(())))
        );
        assert_eq!(
            CacheShape::told(64, 64 * 7, 2).map(|s| (s.l2_ways, s.check())),
            Some((7, Ok(())))
        );
        for (line, bytes) in [(0, 1 << 20), (64, 0), (48, 1 << 20)] {
            assert_eq!(CacheShape::told(line, bytes, 4), None, "{line} {bytes}");
        }
        // What a large cache keeps cannot be sampled: left out, with a reason.
        let large = CacheShape {
            l2_lines: 1 << 20,
            ..CacheShape::default()
        };
        let sample = Sample {
            most: 1_000_000,
            ..Sample::default()
        };
        let why = misses(&pattern("matmul_naive").unwrap(), 1024, &large, sample).unwrap_err();
        assert!(
            why.contains("an L2 of 65536 KiB") && why.contains("--cache l2_lines"),
            "{why}"
        );
    }

    #[test]
    fn shapes_are_read() {
        let read = |text: &str| {
            let mut s = CacheShape::default();
            s.set(text).and_then(|()| s.check()).map(|()| s)
        };
        let mali =
            "line=64,l1_lines=256,l1_ways=4,l2_lines=2048,l2_ways=8,cores=4,threads=128,page=4096";
        assert_eq!(read(mali), Ok(CacheShape::default()));
        assert_eq!(read(""), Ok(CacheShape::default()));
        assert_eq!(read("cores=2").unwrap().cores, 2);
        for (text, part) in [
            ("l1=3", "expected one of line, l1_lines"),
            ("line=48", "power of two"),
            (
                "page=32",
                "page=32: expected a power of two from line=64 on",
            ),
            ("line", "found \"\""),
            ("cores=0", "found \"0\""),
            ("l1_ways=3", "does not divide l1_lines=256"),
            ("l2_lines=100000000", "at most"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// Barriers change nothing without drift: a cache-blocked kernel misses as its plain one does,
    /// in a like work-group. (The 2×4×2 pair has its dimensions the other way round, as ARM's
    /// listings have.)
    #[test]
    fn barriers_change_no_misses() {
        let shape = CacheShape::default();
        for kind in ["nn", "nt", "nt_1x4x4"] {
            let [plain, barriers] = ["", "cache"].map(|cache| {
                let pattern = pattern(&format!("matmul_{cache}blocked_{kind}")).unwrap();
                misses(&pattern, 192, &shape, Sample::default()).unwrap()
            });
            for (plain, barriers) in [(plain.l1, barriers.l1), (plain.l2, barriers.l2)] {
                let ratio = barriers / plain;
                let near = if kind == "nt" {
                    0.5..2.0
                } else {
                    1.0..1.0 + f64::EPSILON
                };
                assert!(near.contains(&ratio), "{kind}: {ratio}");
            }
        }
    }

    /// ARM's figures: 5 and 4 loads an iteration, 1.25 and 1 elements a multiply-add, 16
    /// iterations, ΔK above 16.
    #[test]
    fn loads_and_barriers_are_arms() {
        let s = arm_loads(&CacheShape::default());
        let cell = |kernel: &str, column: usize| match &s
            .rows
            .iter()
            .find(|r| r.label == kernel)
            .unwrap()
            .cells[column]
        {
            Cell::Measured(m) => m.value,
            Cell::Document(v) => *v,
            _ => f64::NAN,
        };
        for row in &s.rows {
            assert_eq!(cell(&row.label, 0), cell(&row.label, 1), "{}", row.label);
        }
        assert_eq!(
            [0, 2, 3].map(|i| cell("matmul_blocked_nn", i)),
            [1.25, 5.0, 16.0]
        );
        assert_eq!(
            [0, 2, 4, 5].map(|i| cell("matmul_blocked_nt", i)),
            [1.0, 4.0, 16.0, 32.0]
        );
    }

    #[test]
    fn a_report_is_whole() {
        let sections = report(
            &CacheShape::default(),
            &[96, 200],
            Sample {
                full: 1,
                places: 1,
                ..Sample::default()
            },
        );
        let mut ids: Vec<&str> = sections.iter().map(|s| s.id.as_str()).collect();
        for s in &sections {
            assert!(
                !s.rows.is_empty() && s.rows.iter().all(|r| r.cells.len() == s.columns.len()),
                "{}",
                s.id
            );
            for cell in s.rows.iter().flat_map(|r| &r.cells) {
                assert!(
                    !matches!(cell, Cell::Measured(m) if !m.value.is_finite() || m.value <= 0.0),
                    "{}",
                    s.id
                );
            }
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), sections.len());
        let misses = sections.iter().find(|s| s.id == "cache_misses_l1").unwrap();
        assert!(misses.notes.iter().any(|n| n.contains("96 in full")));
    }
}
