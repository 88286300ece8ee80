//! Matrix products in float64, in tiles that stay in registers. Every sum adds its terms in their
//! order, so results are the same to the bit on every machine.

use crate::wide::{WideWork, widest};

/// Rows of a tile, and of a panel of weights.
const ROWS: usize = 4;

/// Columns of a tile. The sums of four rows fill half of AVX's registers.
const COLUMNS: usize = 8;

/// The most numbers that are packed at a time, unless [`COLUMNS`] columns have more. They fit a
/// core's second-level cache.
const LAID_DOWN: usize = 1 << 14;

/// Weights in panels of [`ROWS`] rows. The numbers of a column of a panel are contiguous, and zeros
/// pad the last panel.
pub(crate) struct Panels {
    depth: usize,
    numbers: Vec<f64>,
}

impl Panels {
    /// Packs a matrix with rows of `depth` numbers.
    pub(crate) fn new(weights: &[f32], depth: usize) -> Panels {
        let rows = weights.len() / depth.max(1);
        let mut numbers = vec![0.0; rows.next_multiple_of(ROWS) * depth];
        for (row, weights) in weights.chunks_exact(depth.max(1)).enumerate() {
            let panel = &mut numbers[row / ROWS * ROWS * depth..][..ROWS * depth];
            let places = panel.iter_mut().skip(row % ROWS).step_by(ROWS);
            places.zip(weights).for_each(|(to, &w)| *to = w.into());
        }
        Panels { depth, numbers }
    }

    /// Adds the products with `count` columns to `sums`, which has a row for each row of the
    /// weights. `lay` writes a range of columns into a matrix: number k of each column into row k.
    /// Its second argument is the length of a row.
    pub(crate) fn add(
        &self,
        count: usize,
        sums: &mut [f64],
        lay: impl Fn(std::ops::Range<usize>, usize, &mut [f64]),
    ) {
        let depth = self.depth.max(1);
        let most = (LAID_DOWN / depth).max(COLUMNS) / COLUMNS * COLUMNS;
        let width = most.min(count.next_multiple_of(COLUMNS));
        let (mut laid, mut blocks) = (vec![0.0; depth * width], vec![0.0; depth * width]);
        for first in (0..count).step_by(width) {
            let columns = first..count.min(first + width);
            lay(columns.clone(), width, &mut laid);
            for (block, to) in blocks.chunks_exact_mut(COLUMNS * depth).enumerate() {
                let lines = laid
                    .chunks_exact(width)
                    .map(|line| &line[block * COLUMNS..][..COLUMNS]);
                to.chunks_exact_mut(COLUMNS)
                    .zip(lines)
                    .for_each(|(to, from)| to.copy_from_slice(from));
            }
            let used = columns.len().div_ceil(COLUMNS) * COLUMNS * depth;
            let blocks = &blocks[..used];
            widest(ColumnBlock {
                panels: self,
                blocks,
                columns,
                count,
                sums: &mut *sums,
            });
        }
    }
}

/// The products of all panels with a range of columns.
struct ColumnBlock<'b> {
    panels: &'b Panels,
    /// The columns in groups of [`COLUMNS`]. A group has its rows one after the other.
    blocks: &'b [f64],
    /// The range among all `count` columns.
    columns: std::ops::Range<usize>,
    count: usize,
    sums: &'b mut [f64],
}

impl WideWork for ColumnBlock<'_> {
    #[inline(always)]
    fn run(self) {
        let (depth, count) = (self.panels.depth.max(1), self.count);
        let panels = self.panels.numbers.chunks_exact(ROWS * depth);
        for (panel, sums) in panels.zip(self.sums.chunks_mut(ROWS * count)) {
            for (n, block) in self.blocks.chunks_exact(COLUMNS * depth).enumerate() {
                let at = self.columns.start + n * COLUMNS;
                let real = COLUMNS.min(self.columns.end - at);
                let mut tile = [[0.0; COLUMNS]; ROWS];
                for (to, row) in tile.iter_mut().zip(sums.chunks(count)) {
                    to[..real].copy_from_slice(&row[at..][..real]);
                }
                let tile = sum(panel, block, tile);
                for (from, row) in tile.iter().zip(sums.chunks_mut(count)) {
                    row[at..][..real].copy_from_slice(&from[..real]);
                }
            }
        }
    }
}

/// Adds the products of a panel with a group of columns.
#[inline(always)]
fn sum(panel: &[f64], block: &[f64], mut tile: [[f64; COLUMNS]; ROWS]) -> [[f64; COLUMNS]; ROWS] {
    for (w, x) in panel.chunks_exact(ROWS).zip(block.chunks_exact(COLUMNS)) {
        let (Ok(w), Ok(x)) = (<&[f64; ROWS]>::try_from(w), <&[f64; COLUMNS]>::try_from(x)) else {
            break;
        };
        for i in 0..ROWS {
            for j in 0..COLUMNS {
                tile[i][j] += w[i] * x[j];
            }
        }
    }
    tile
}

/// Multiplies a matrix by one column. Several rows are summed in turn, so that no addition waits
/// for the one before it.
pub(crate) fn with_one(weights: &[f32], column: &[f64]) -> Vec<f64> {
    const SIDE: usize = 8;
    let depth = column.len().max(1);
    let rows = weights.len() / depth;
    let mut sums = vec![0.0; rows];
    for (weights, sums) in weights.chunks(SIDE * depth).zip(sums.chunks_mut(SIDE)) {
        if sums.len() < SIDE {
            for (row, sum) in weights.chunks_exact(depth).zip(sums) {
                *sum = row
                    .iter()
                    .zip(column)
                    .fold(0.0, |sum, (&w, x)| sum + f64::from(w) * x);
            }
            continue;
        }
        let mut all = [0.0; SIDE];
        for (k, x) in column.iter().enumerate() {
            for (i, sum) in all.iter_mut().enumerate() {
                *sum += f64::from(weights[i * depth + k]) * x;
            }
        }
        sums.copy_from_slice(&all);
    }
    sums
}
