//! Matrix products in float64, computed in tiles that stay in registers. Every sum adds its terms
//! in the same order, so all machines compute the same bits.

use crate::wide::{WideWork, widest};

/// The number of rows in a tile of the result and in a panel of weights.
const ROWS: usize = 4;

/// The number of columns in a tile of the result. The sums of its four rows fill half of AVX's
/// registers.
const COLUMNS: usize = 8;

/// The most numbers of the right operand that are packed at a time, so that they fit a core's
/// second-level cache. If [`COLUMNS`] columns have more numbers, they are still packed together.
const LAID_DOWN: usize = 1 << 14;

/// A matrix of weights in panels of [`ROWS`] rows. Each column of a panel is contiguous. The last
/// panel is padded with rows of zeros.
pub(crate) struct Panels {
    depth: usize,
    numbers: Vec<f64>,
}

impl Panels {
    /// Packs a row-major matrix whose rows have `depth` numbers.
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

    /// Multiplies the weights by a matrix of `count` columns and adds the result to `sums`, which
    /// is row-major. `lay` writes a range of that matrix's columns into a row-major buffer. The
    /// second argument of `lay` is the length of the buffer's rows.
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

/// The work of multiplying all panels of weights by a range of columns.
struct ColumnBlock<'b> {
    panels: &'b Panels,
    /// The columns of the range in groups of [`COLUMNS`]. Each group is a row-major matrix.
    blocks: &'b [f64],
    /// The range of columns, counted among all `count` columns of the matrix.
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

/// Adds the product of a panel of weights and a group of columns to a tile of sums.
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

/// Multiplies a row-major matrix by one column. Eight rows are summed side by side, so that no
/// addition waits for the one before it.
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
