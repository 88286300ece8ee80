//! The micro-kernels for images, written once for all instruction sets but 32-bit ARM's (`neon.c`).
//! A vector has contiguous channels of a pixel.

use super::Bounds;
use super::vector::{Vector, clamp};
use crate::ir::op::{Arithmetic, Float, Window};
use std::ops::Range;

/// The operation on each window of a line. `neon.c` numbers the operations in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowOp {
    Max,
    /// The mean of the window's elements inside the image.
    Mean,
    /// The mean with zeros for the border.
    PaddedMean,
    /// The sum of products with the channel's weights, plus its bias.
    Products,
}

/// The windows of one line of pixels, or of several lines below each other.
///
/// Safety of its computation: for each window element inside the image, `x` is valid for the
/// pixel's channels rounded up to whole vectors. `weights` and `biases` are valid for as many, if
/// `operation` is [`WindowOp::Products`], and `factors` and `summands` if they are not null.
/// `result` is valid for the pixels with their channels rounded up, and no other thread touches
/// them.
pub(crate) struct Line {
    pub(crate) operation: WindowOp,
    /// The address of the image's pixel (0, 0).
    pub(crate) x: *const f32,
    /// The distances of two pixels and of two lines of the image, in values.
    pub(crate) x_pixel: usize,
    pub(crate) x_line: usize,
    /// The number of pixels in a line of the image.
    pub(crate) width: usize,
    /// The first line of the image that the windows cover.
    pub(crate) top: usize,
    /// The window rows inside the image. For [`PAIR`] lines, the rows that the windows of both
    /// lines cover together, from the first row of the first line's windows on.
    pub(crate) turns: Range<usize>,
    /// The number of window columns.
    pub(crate) columns: usize,
    /// The distance of windows, in pixels.
    pub(crate) stride: usize,
    /// The dilation in lines and in pixels.
    pub(crate) dilation: (usize, usize),
    /// The pixels of the left border.
    pub(crate) left: usize,
    /// The weights of all channels for each window element; null without weights.
    pub(crate) weights: *const f32,
    /// The bias of each channel; null without biases.
    pub(crate) biases: *const f32,
    /// The number of lines. It is 1, or for products the value of [`together`], or [`PAIR`] where
    /// [`takes_pairs`] is true. With the value of `together`, the windows of all lines must have
    /// the same rows inside the image.
    pub(crate) lines: usize,
    /// The distance of the windows of two lines, and of two lines of the result, in values.
    pub(crate) next_windows: usize,
    pub(crate) next_result: usize,
    /// The result columns whose windows are inside the line with all elements.
    pub(crate) whole: Range<usize>,
    /// The number of channels with padding, a multiple of the lanes and of 8.
    pub(crate) channels: usize,
    /// The number of channels without padding. Whole vectors of them are computed.
    pub(crate) real: usize,
    /// True if the kernel sets the padding channels to 0.
    pub(crate) pads: bool,
    /// The number of result columns.
    pub(crate) pixels: usize,
    /// The address of the result line's pixel 0.
    pub(crate) result: *mut f32,
    /// The distance of two pixels of the result, in values.
    pub(crate) result_step: usize,
    /// The factor and the summand of each channel that the sums are scaled by, before they are
    /// rounded and clamped; null for sums that are not scaled. Only for products.
    pub(crate) factors: *const f32,
    pub(crate) summands: *const f32,
    /// True if scaled sums are rounded to whole numbers.
    pub(crate) rounds: bool,
    /// The bounds that the written values are clamped to.
    pub(crate) bounds: Bounds,
    /// For padded means: the window rows inside the image with its border, and the pixels of a line
    /// with its border.
    pub(crate) bordered_rows: usize,
    pub(crate) bordered_width: usize,
}

impl Line {
    /// Returns the address of channel `c` of the pixel that is `at` columns behind the left end of
    /// the border, in the first row of [`PAIR`] lines. It may be outside the image.
    #[inline(always)]
    fn first(&self, at: usize, c: usize) -> *const f32 {
        let above = self
            .top
            .wrapping_sub(self.turns.start)
            .wrapping_mul(self.x_line);
        let start = at.wrapping_sub(self.left).wrapping_mul(self.x_pixel);
        self.x
            .wrapping_add(above.wrapping_add(start).wrapping_add(c))
    }

    /// Returns the number of channels that are computed, in whole vectors of `lanes`.
    #[inline(always)]
    pub(super) fn computed(&self, lanes: usize) -> usize {
        self.real.next_multiple_of(lanes)
    }

    /// Returns the window columns inside the line, for result column `at`.
    #[inline(always)]
    fn inside(&self, at: usize) -> Range<usize> {
        self.covered(at, self.columns)
    }

    /// Returns those of the first `columns` columns from the window of result column `at` on that
    /// are inside the line.
    #[inline(always)]
    fn covered(&self, at: usize, columns: usize) -> Range<usize> {
        let (from, (_, step)) = (at * self.stride, self.dilation);
        let first = if from < self.left {
            (self.left - from).div_ceil(step)
        } else {
            0
        };
        let room = (self.left + self.width).saturating_sub(from).div_ceil(step);
        first..columns.min(room)
    }

    /// The scalings of the lines, for the kernels of `neon.c`, which do not scale.
    #[cfg(target_arch = "arm")]
    pub(super) fn scalings(&self) -> impl Iterator<Item = Scaling> + '_ {
        let lines = if self.factors.is_null() {
            0
        } else {
            self.lines
        };
        (0..lines).map(|n| {
            let result = self.result.wrapping_add(n * self.next_result);
            Scaling {
                x: result.cast_const(),
                result,
                numbers: [self.factors, self.summands],
                count: self.computed(4),
                steps: [1, 1],
                turns: self.pixels,
                apart: [self.result_step, 0, 0],
                rounds: self.rounds,
                bounds: self.bounds,
            }
        })
    }

    /// Returns the number of elements in the mean at result column `at`.
    #[inline(always)]
    fn elements(&self, at: usize) -> usize {
        let (inside, (_, step)) = (self.inside(at), self.dilation);
        match self.operation {
            WindowOp::PaddedMean => {
                let room = (self.bordered_width - at * self.stride).div_ceil(step);
                self.bordered_rows * self.columns.min(room)
            }
            _ => (inside.end - inside.start) * (self.turns.end - self.turns.start),
        }
    }
}

/// Computes the result pixels of a line, and sets their padding channels to 0 if it pads.
///
/// SAFETY: the line is sound, and the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn line<V: Vector>(line: &Line) {
    // SAFETY: passed on.
    unsafe {
        match line.operation {
            WindowOp::Products if V::REGISTERS && line.lines == PAIR => pairs::<V>(line),
            WindowOp::Products => windows::<V, true>(line),
            WindowOp::Max | WindowOp::Mean | WindowOp::PaddedMean => windows::<V, false>(line),
        }
        let padded = match line.pads && line.real < line.channels {
            true => line.lines,
            false => 0,
        };
        for y in 0..padded {
            for at in 0..line.pixels {
                let to = line
                    .result
                    .add(y * line.next_result + at * line.result_step);
                let mut c = line.real;
                while c % 8 != 0 {
                    *to.add(c) = 0.0;
                    c += 1;
                }
                while c < line.channels {
                    to.add(c).cast::<[f32; 8]>().write_unaligned([0.0; 8]);
                    c += 8;
                }
            }
        }
    }
}

/// The largest number of pixels that share loaded weights. They are side by side or below each
/// other, and have the same window elements inside the image.
pub(super) const TOGETHER: usize = 8;

/// The number of lines that are computed together if [`takes_pairs`] says so.
pub(crate) const PAIR: usize = 2;

/// Returns true if the kernels in this file can compute two lines of such windows together. A
/// loaded pixel is then used for all windows that cover it, in both lines. `width` is the number of
/// columns of the image, and `columns` that of the result.
///
/// Windows of 3 × 3 may reach only one column beyond each end of a line, because [`block`] relies
/// on that.
pub(crate) fn takes_pairs(window: &Window, width: usize, columns: usize) -> bool {
    let Window {
        size,
        stride,
        dilation,
        border,
        ..
    } = *window;
    let known = matches!(size, (3, 3) | (5, 5)) && matches!(stride, (1, 1) | (2, 2));
    let end = columns.saturating_sub(1) * stride.1 + size.1;
    let narrow = border.left <= 1 && end <= border.left + width + 1;
    known && dilation == (1, 1) && columns >= BLOCK && (size == (5, 5) || narrow)
}

/// The most elements of a mean that are added up one by one. One sum of 512 × 512 equal elements
/// would be off by 2.5e-3 of its size, because all roundings go the same way.
const PART: usize = 64;

/// The number of vectors of a pixel's channels computed together.
const VECTORS: usize = 4;

/// Returns how many pixels (or lines) are computed next, if `left` of `all` remain. All have the
/// same window elements inside the image. If the result exceeds `left`, the caller goes back and
/// computes some pixels twice. The result is 1 if `all` is too small for that.
#[inline(always)]
pub(crate) fn together(left: usize, all: usize) -> usize {
    match left {
        2.. if all >= TOGETHER && left > TOGETHER / 2 => TOGETHER,
        2.. if all >= TOGETHER / 2 => TOGETHER / 2,
        _ => 1,
    }
}

/// SAFETY: as declared for `line`.
#[inline(always)]
unsafe fn windows<V: Vector, const PRODUCTS: bool>(line: &Line) {
    let Range { start: first, end } = line.whole;
    // Pools have two or three vectors for each pixel, so registers hold fewer pixels.
    let most = if PRODUCTS { TOGETHER } else { TOGETHER / 2 };
    let channels = line.computed(V::LANES);
    let mut at = 0;
    while at < line.pixels {
        let (mut count, mut turns, mut next) = (line.lines, line.inside(at), at + 1);
        if V::REGISTERS && count == 1 && (first..end).contains(&at) {
            count = together(end - at, end - first).min(most);
            at = at.min(end - count);
            (turns, next) = (0..line.columns, at + count);
        }
        let mut c = 0;
        while c < channels {
            // SAFETY: passed on; the pixels are of the line, the channels whole vectors.
            unsafe {
                if PRODUCTS && V::REGISTERS && count == TOGETHER {
                    some::<V, PRODUCTS, TOGETHER, 1>(line, at, c, &turns);
                } else if V::REGISTERS && count > 1 {
                    some::<V, PRODUCTS, { TOGETHER / 2 }, 1>(line, at, c, &turns);
                } else if V::REGISTERS && c + VECTORS * V::LANES <= channels {
                    some::<V, PRODUCTS, 1, VECTORS>(line, at, c, &turns);
                    c += (VECTORS - 1) * V::LANES;
                } else {
                    some::<V, PRODUCTS, 1, 1>(line, at, c, &turns);
                }
            }
            c += V::LANES;
        }
        at = next;
    }
}

/// The number of pixels of each of two lines that are computed together.
pub(crate) const BLOCK: usize = 4;

/// The most columns that the windows of a block cover, those of windows of five columns that are
/// two apart, as an even number.
const MOST_COLUMNS: usize = 2 * (BLOCK - 1) + 6;

/// Stands for the pixels outside the image.
static ZEROS: [f32; 16] = [0.0; 16];

/// The addresses of the columns that some windows cover, row by row. Columns outside the image have
/// the address of zeros in all rows.
struct Walk {
    places: [*const f32; MOST_COLUMNS],
    /// The distances to the next row.
    steps: [usize; MOST_COLUMNS],
}

impl Walk {
    #[inline(always)]
    fn none(first: *const f32) -> Walk {
        Walk {
            places: [first; MOST_COLUMNS],
            steps: [0; MOST_COLUMNS],
        }
    }

    /// Places the columns below `count` in the first row, whose first column has its address
    /// already.
    #[inline(always)]
    fn begin(&mut self, row: usize, inside: &Range<usize>, count: usize, columns: Columns) {
        let first = self.places[0];
        unrolled!(half < 2, {
            unrolled!(i < { MOST_COLUMNS / 2 }, {
                let j = half * (MOST_COLUMNS / 2) + i;
                if j < count {
                    (self.places[j], self.steps[j]) = match inside.contains(&j) {
                        true => (first.wrapping_add(columns.at(j)), row),
                        false => (ZEROS.as_ptr(), 0),
                    };
                }
            });
        });
    }

    /// Goes on to the next row.
    #[inline(always)]
    fn step(&mut self) {
        unrolled!(half < 2, {
            unrolled!(i < { MOST_COLUMNS / 2 }, {
                let j = half * (MOST_COLUMNS / 2) + i;
                self.places[j] = self.places[j].wrapping_add(self.steps[j]);
            });
        });
    }
}

/// The addresses of the first and the last column that some windows cover, row by row. A column
/// outside the image has the address of zeros in all rows.
struct Ends {
    places: [*const f32; 2],
    /// The distances to the next row.
    steps: [usize; 2],
}

impl Ends {
    /// The ends in the first row. `place` has the address of column 0 and the distance of column
    /// `last`, and `row` is the distance of rows.
    #[inline(always)]
    fn of(row: usize, place: (*const f32, usize), inside: &Range<usize>, last: usize) -> Ends {
        let mut ends = Ends {
            places: [ZEROS.as_ptr(); 2],
            steps: [0; 2],
        };
        if inside.start == 0 {
            (ends.places[0], ends.steps[0]) = (place.0, row);
        }
        if inside.end > last {
            (ends.places[1], ends.steps[1]) = (place.0.wrapping_add(place.1), row);
        }
        ends
    }

    /// Goes on to the next row.
    #[inline(always)]
    fn step(&mut self) {
        unrolled!(i < 2, {
            self.places[i] = self.places[i].wrapping_add(self.steps[i]);
        });
    }
}

/// Loads the weights of a window of 3 × 3 elements, which are `apart` floats from each other.
///
/// SAFETY: they exist, and the CPU has V's instruction set.
#[inline(always)]
unsafe fn load_nine<V: Vector>(nine: &mut [V; 9], weights: *const f32, apart: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        unrolled!(ky < 3, {
            unrolled!(kx < 3, {
                let element = 3 * ky + kx;
                nine[element] = V::load(weights.add(element * apart));
            });
        });
    }
}

/// Computes the pixels of two lines, [`BLOCK`] at a time. For windows of 3 × 3 at stride 1, the
/// last block has up to three more, so that no pixel is computed twice. Others go back at the end
/// of the lines: larger blocks for them would make programs larger, for few layers.
///
/// SAFETY: as `line`.
#[inline(always)]
unsafe fn pairs<V: Vector>(line: &Line) {
    let Range { start, end } = line.whole;
    let exact = (line.columns, line.stride) == (3, 1);
    let mut at = 0;
    while at < line.pixels {
        let left = line.pixels - at;
        let size = if exact && left < 2 * BLOCK {
            left
        } else {
            BLOCK
        };
        at = at.min(line.pixels - size);
        let whole = at >= start && at + size <= end;
        // Blocks of the same kind side by side. The last one of an exact line is larger.
        let ordinary = (line.pixels - at) / BLOCK - usize::from(exact);
        let count = match whole {
            true => ordinary.min((end - at) / BLOCK).max(1),
            false => 1,
        };
        // SAFETY: passed on.
        unsafe {
            match (line.columns, line.stride, size - BLOCK, whole) {
                (3, 1, 0, true) => V::blocks::<3, 1, BLOCK, false>(line, at, count),
                (3, 1, 0, false) => V::blocks::<3, 1, BLOCK, true>(line, at, count),
                (3, 1, 1, true) => V::blocks::<3, 1, { BLOCK + 1 }, false>(line, at, count),
                (3, 1, 1, false) => V::blocks::<3, 1, { BLOCK + 1 }, true>(line, at, count),
                (3, 1, 2, true) => V::blocks::<3, 1, { BLOCK + 2 }, false>(line, at, count),
                (3, 1, 2, false) => V::blocks::<3, 1, { BLOCK + 2 }, true>(line, at, count),
                (3, 1, _, true) => V::blocks::<3, 1, { BLOCK + 3 }, false>(line, at, count),
                (3, 1, _, false) => V::blocks::<3, 1, { BLOCK + 3 }, true>(line, at, count),
                (5, 1, _, true) => V::blocks::<5, 1, BLOCK, false>(line, at, count),
                (5, 1, _, false) => V::blocks::<5, 1, BLOCK, true>(line, at, count),
                (5, _, _, true) => V::blocks::<5, 2, BLOCK, false>(line, at, count),
                (5, _, _, false) => V::blocks::<5, 2, BLOCK, true>(line, at, count),
                (_, _, _, true) if V::MANY => V::blocks::<3, 2, BLOCK, false>(line, at, count),
                (_, _, _, false) if V::MANY => V::blocks::<3, 2, BLOCK, true>(line, at, count),
                // The nine columns of four windows do not fit 16 registers beside the sums.
                (_, _, _, true) => V::blocks::<3, 2, HALF, false>(line, at, 2 * count),
                (_, _, _, false) => V::blocks::<3, 2, HALF, true>(line, at, 2 * count),
            }
        }
        at += size * count;
    }
}

/// The pixels of half a block.
const HALF: usize = BLOCK / 2;

/// Computes `count` blocks side by side from pixel `at` on, with all their channels.
///
/// SAFETY: as `line`. The pixels are in the line, and the block is one of [`block`].
#[inline(always)]
pub(super) unsafe fn blocks<
    V: Vector,
    const K: usize,
    const S: usize,
    const P: usize,
    const BORDER: bool,
>(
    line: &Line,
    at: usize,
    count: usize,
) {
    for n in 0..count {
        for c in (0..line.computed(V::LANES)).step_by(V::LANES) {
            // SAFETY: passed on.
            unsafe { block::<V, K, S, P, BORDER>(line, at + n * P, c) }
        }
    }
}

/// Returns an address, without letting the compiler know what it is. It can then not compute an
/// address for each column and row before a loop. These were more than the registers, so it stored
/// them all and advanced each in memory, which took longer than the products of a block.
#[inline(always)]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(unused_mut)
)]
// The lint expects that assembly with an address also reads memory.
#[allow(unknown_lints, clippy::pointers_in_nomem_asm_block)]
fn hidden(mut address: *const f32) -> *const f32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: no instruction.
    unsafe {
        std::arch::asm!(
            "/* {} */",
            inout(reg) address,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    address
}

/// Returns the addresses of the rows of a window's weights, which are `apart` floats from each
/// other.
#[inline(always)]
fn weights_of_rows<const K: usize>(first: *const f32, apart: usize) -> [*const f32; K] {
    let mut rows = [first; K];
    unrolled!(ky < K, {
        rows[ky] = hidden(first.wrapping_add(ky * apart))
    });
    rows
}

/// The distances of the columns that some windows cover, in values.
#[derive(Clone, Copy)]
struct Columns {
    pixel: usize,
    /// The distances of columns 3, 5 and 7. With these three, the address of each column is a
    /// single operand of a load. The compiler would compute and store an address for each.
    odd: [usize; 3],
}

impl Columns {
    #[inline(always)]
    fn of(pixel: usize) -> Columns {
        let odd = [3 * pixel, 5 * pixel, 7 * pixel];
        Columns { pixel, odd }
    }

    /// Returns the distance of column `j` from column 0.
    #[inline(always)]
    fn at(&self, j: usize) -> usize {
        match j {
            3 | 5 | 7 => self.odd[j / 2 - 1],
            6 | 10 => 2 * self.odd[j / 4 - 1],
            _ => j * self.pixel,
        }
    }
}

/// Computes P pixels of two lines from `at` on, for a vector of channels from `c` on. Windows have
/// K × K elements and stride S. Each pixel that they cover is loaded once. Without `BORDER` all
/// columns are inside the image. With it, windows of 3 × 3 may have the first and the last covered
/// column outside, and others any columns.
///
/// SAFETY: as `line`.
#[inline(always)]
unsafe fn block<V: Vector, const K: usize, const S: usize, const P: usize, const BORDER: bool>(
    line: &Line,
    at: usize,
    c: usize,
) {
    let (columns, channels) = (Columns::of(line.x_pixel), line.channels);
    let inside = match BORDER {
        true => line.covered(at, (P - 1) * S + K),
        false => 0..usize::MAX,
    };
    // SAFETY: the line's promise. Outside the image zeros are loaded, and rows are left out.
    unsafe {
        let bias = V::load(line.biases.add(c));
        let mut sums = [[bias; P]; PAIR];
        let first = line.first(at * S, c);
        let weights = line.weights.add(c);
        let of_rows = weights_of_rows::<K>(weights, K * channels);
        // Windows of 3 × 3 keep their weights in registers, where there are enough of them.
        let kept = K == 3 && V::MANY;
        let mut nine = [bias; 9];
        if kept {
            load_nine(&mut nine, weights, channels);
        }
        let walks = BORDER && V::WALKS;
        let (at_ends, last) = (BORDER && K == 3 && !walks, (P - 1) * S + K - 1);
        let mut ends = Ends::of(line.x_line, (first, columns.at(last)), &inside, last);
        let mut walk = Walk::none(first);
        let mut x = first;
        if walks {
            walk.begin(line.x_line, &inside, (P - 1) * S + K, columns);
        }
        unrolled!(row < 7, {
            if row > 0 {
                walk.step();
                ends.step();
                x = hidden(x.wrapping_add(line.x_line));
            }
            if row < K + S && line.turns.contains(&row) {
                unrolled!(l < PAIR, {
                    if row >= l * S && row - l * S < K {
                        unrolled!(k < K, {
                            let ky = row - l * S;
                            let weight = match kept {
                                true => nine[ky * K + k],
                                false => V::load(of_rows[ky].add(k * channels)),
                            };
                            unrolled!(p < P, {
                                let j = p * S + k;
                                let value = match inside.contains(&j) {
                                    _ if walks => walk.places[j],
                                    _ if at_ends && j % last == 0 => ends.places[j / last],
                                    false if !at_ends => ZEROS.as_ptr(),
                                    _ => x.wrapping_add(columns.at(j)),
                                };
                                sums[l][p] = sums[l][p].fma(weight, V::load(value));
                            });
                        });
                    }
                });
            }
        });
        store_block(line, at, c, &sums);
    }
}

/// Scales, clamps and stores the sums of [`block`].
///
/// SAFETY: as `line`.
#[inline(always)]
unsafe fn store_block<V: Vector, const P: usize>(
    line: &Line,
    at: usize,
    c: usize,
    sums: &[[V; P]; PAIR],
) {
    // SAFETY: passed on.
    unsafe {
        let scaling = scaling(line, c);
        let to = line.result.add(at * line.result_step + c);
        macro_rules! finish {
            ($largest:literal) => {
                unrolled!(l < PAIR, {
                    unrolled!(p < P, {
                        let to = to.wrapping_add(l * line.next_result + p * line.result_step);
                        finish::<V, $largest>(line, sums[l][p], scaling).store(to);
                    });
                })
            };
        }
        if line.bounds.largest == f32::INFINITY {
            finish!(false);
        } else {
            finish!(true);
        }
    }
}

/// Computes P pixels from `at` on by N vectors of channels from `c` on. The windows of all pixels
/// have the given columns inside the image. The sums stay in registers.
///
/// SAFETY: as `line`. The pixels and channels are in the line.
#[inline(always)]
unsafe fn some<V: Vector, const PRODUCTS: bool, const P: usize, const N: usize>(
    line: &Line,
    at: usize,
    c: usize,
    &Range {
        start: from,
        end: to,
    }: &Range<usize>,
) {
    let max = line.operation == WindowOp::Max;
    let Line {
        x_pixel: pixel,
        x_line: across,
        columns,
        channels,
        dilation: (dilation_y, dilation_x),
        turns: Range { start: first, end },
        ..
    } = *line;
    let (next_row, next_column) = (dilation_y * across, dilation_x * pixel);
    let start = (at * line.stride + from * dilation_x).wrapping_sub(line.left);
    let (apart, result_apart) = if line.lines > 1 {
        (line.next_windows, line.next_result)
    } else {
        (line.stride * pixel, line.result_step)
    };
    // SAFETY: the line's promise. Window rows `first` to `end` and columns `from` to `to` are
    // inside the image.
    unsafe {
        let mut top = line
            .x
            .wrapping_add(line.top * across + start.wrapping_mul(pixel) + c);
        let mut weights = line
            .weights
            .wrapping_add((first * columns + from) * channels + c);
        let zero = V::splat(0.0);
        let mut sums = [[V::splat(if max { f32::NEG_INFINITY } else { 0.0 }); N]; P];
        let mut lost = [[zero; N]; P];
        // For means: the total of all parts of at most PART elements that are already summed.
        let mut means = [[zero; N]; P];
        if PRODUCTS {
            unrolled!(i < N, {
                let bias = V::load(line.biases.add(c + i * V::LANES));
                unrolled!(p < P, { sums[p][i] = bias });
            });
        }
        for _ in first..end {
            let (mut x, mut w) = (top, weights);
            macro_rules! add {
                ($elements:expr) => {
                    for _ in $elements {
                        unrolled!(i < N, {
                            let weight = if PRODUCTS {
                                V::load(w.wrapping_add(i * V::LANES))
                            } else {
                                V::splat(1.0)
                            };
                            unrolled!(p < P, {
                                let value = V::load(x.wrapping_add(p * apart + i * V::LANES));
                                if max && !PRODUCTS {
                                    sums[p][i] = sums[p][i].max(value);
                                    lost[p][i] = lost[p][i].fma(value, zero);
                                } else {
                                    sums[p][i] = sums[p][i].fma(weight, value);
                                }
                            });
                        });
                        x = x.wrapping_add(next_column);
                        w = w.wrapping_add(channels);
                    }
                };
            }
            // Only means are added up in parts. Products in parts took 1.15 to 1.45 times as long
            // for windows of 3 × 3.
            if PRODUCTS || max {
                add!(from..to);
            } else {
                // All columns of a window may be in the border, with `to` below `from`.
                let mut left = to.saturating_sub(from);
                while left > 0 {
                    let count = left.min(PART);
                    left -= count;
                    add!(0..count);
                    unrolled!(p < P, {
                        unrolled!(i < N, {
                            means[p][i] = means[p][i].fma(sums[p][i], V::splat(1.0));
                            sums[p][i] = zero;
                        });
                    });
                }
            }
            top = top.wrapping_add(next_row);
            weights = weights.wrapping_add(columns * channels);
        }
        let elements = if PRODUCTS || max {
            1
        } else {
            line.elements(at)
        };
        let scale = V::splat(1.0 / elements as f32);
        let sums = if PRODUCTS || max { sums } else { means };
        macro_rules! finish {
            ($largest:literal) => {
                unrolled!(i < N, {
                    let channel = c + i * V::LANES;
                    let scaling = if PRODUCTS {
                        scaling(line, channel)
                    } else {
                        None
                    };
                    unrolled!(p < P, {
                        let value = match PRODUCTS {
                            true => sums[p][i],
                            false => lost[p][i].fma(sums[p][i], scale),
                        };
                        let to = line
                            .result
                            .wrapping_add(at * line.result_step + p * result_apart + channel);
                        finish::<V, $largest>(line, value, scaling).store(to);
                    });
                })
            };
        }
        if line.bounds.largest == f32::INFINITY {
            finish!(false);
        } else {
            finish!(true);
        }
    }
}

/// Loads the factors and the summands of a vector of channels from `c` on. `None` if sums are not
/// scaled.
///
/// SAFETY: as `line`.
#[inline(always)]
unsafe fn scaling<V: Vector>(line: &Line, c: usize) -> Option<[V; 2]> {
    if line.factors.is_null() {
        return None;
    }
    // SAFETY: the line's promise.
    Some(unsafe { [V::load(line.factors.add(c)), V::load(line.summands.add(c))] })
}

/// Scales and rounds values of a result, if the line has that, and clamps them ([`clamp`]).
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
unsafe fn finish<V: Vector, const LARGEST: bool>(
    line: &Line,
    sum: V,
    scaling: Option<[V; 2]>,
) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let Some([factor, summand]) = scaling else {
            return clamp::<V, LARGEST>(sum, sum, line.bounds);
        };
        let sum = summand.fma(sum, factor);
        let value = if line.rounds { sum.round() } else { sum };
        clamp::<V, LARGEST>(value, sum, line.bounds)
    }
}

/// Computes `result[i] = a[i] ∘ b[i]` for `count` values, a multiple of the lanes.
///
/// SAFETY: the arrays are valid for `count` values, and the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn combine<V: Vector>(
    arithmetic: Arithmetic,
    a: *const f32,
    b: *const f32,
    result: *mut f32,
    count: usize,
) {
    for i in (0..count).step_by(V::LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let (x, y) = (V::load(a.add(i)), V::load(b.add(i)));
            let zero = V::splat(0.0);
            let value = match arithmetic {
                Arithmetic::Add => x.fma(y, V::splat(1.0)),
                Arithmetic::Subtract => x.fma(y, V::splat(-1.0)),
                Arithmetic::Multiply => V::splat(0.0).fma(x, y),
                Arithmetic::Divide => x.div(y),
                Arithmetic::Maximum => x.max(y).fma(x, zero).fma(y, zero),
                Arithmetic::Minimum => x.min(y).fma(x, zero).fma(y, zero),
                Arithmetic::RoundedSum { a, b } => {
                    rounded_sum(x, y, &SumNumbers::of([a, b], Bounds::NONE))
                }
            };
            value.store(result.add(i));
        }
    }
}

/// A sum of two values of whole numbers, which are multiplied by whole numbers. The products have
/// more digits than a float. So those with the lower digits of the multipliers are added up apart
/// from those with the upper digits.
///
/// Safety of its computation: `x`, `y` and `result` are valid for `count` values, a multiple of the
/// lanes, and nobody else touches `result`.
pub(crate) struct WholeSum {
    pub(crate) x: *const f32,
    pub(crate) y: *const f32,
    pub(crate) result: *mut f32,
    pub(crate) count: usize,
    pub(crate) numbers: SumNumbers,
}

/// The numbers of a [`WholeSum`]. A part p of x and y is x · p.factors\[0\] + y · p.factors\[1\] +
/// p.summand. The result is (round(lower) + upper) · factor + summand, rounded and clamped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumNumbers {
    pub(crate) lower: SumPart,
    pub(crate) upper: SumPart,
    pub(crate) factor: f32,
    pub(crate) summand: f32,
    pub(crate) bounds: Bounds,
}

impl SumNumbers {
    /// Returns the numbers of a sum with two factors ([`Arithmetic::RoundedSum`]), which is then
    /// clamped. All sums of small whole numbers are exact.
    pub(crate) fn of(factors: [Float; 2], bounds: Bounds) -> SumNumbers {
        // As in the OpenCL kernel, the upper part has the first ten digits of the larger factor.
        // The lower part has the other twelve, and is rounded down.
        let factors = factors.map(Float::get);
        let largest = factors[0].abs().max(factors[1].abs());
        let factor = libm::exp2f((libm::ilogbf(largest) - 9) as f32);
        let upper = factors.map(|f| libm::rintf(f / factor));
        SumNumbers {
            lower: SumPart {
                factors: [0, 1].map(|i| factors[i] / factor - upper[i]),
                summand: 0.5 / 4096.0 - 0.5,
            },
            upper: SumPart {
                factors: upper,
                summand: 0.0,
            },
            factor,
            summand: factor / 2.0,
            bounds,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SumPart {
    pub(crate) factors: [f32; 2],
    pub(crate) summand: f32,
}

/// Computes a [`WholeSum`]. NaN and infinity become NaN.
///
/// SAFETY: the sum is sound, and the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn sum<V: Vector>(s: &WholeSum) {
    let numbers = s.numbers;
    for i in (0..s.count).step_by(V::LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let (x, y) = (V::load(s.x.add(i)), V::load(s.y.add(i)));
            rounded_sum(x, y, &numbers).store(s.result.add(i));
        }
    }
}

/// Computes a vector of results.
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
unsafe fn rounded_sum<V: Vector>(x: V, y: V, numbers: &SumNumbers) -> V {
    // SAFETY: the caller's promise. A closure would be a call in the loop, as it has not V's
    // instruction set.
    unsafe {
        let SumNumbers { lower, upper, .. } = numbers;
        let units = V::splat(lower.summand)
            .fma(x, V::splat(lower.factors[0]))
            .fma(y, V::splat(lower.factors[1]));
        let all = V::splat(upper.summand)
            .fma(x, V::splat(upper.factors[0]))
            .fma(y, V::splat(upper.factors[1]))
            .fma(units.round(), V::splat(1.0));
        let value = V::splat(numbers.summand).fma(all, V::splat(numbers.factor));
        let least = V::splat(numbers.bounds.least);
        let clamped = V::splat(numbers.bounds.largest).min(least.max(value.round()));
        clamped.fma(value, V::splat(0.0))
    }
}

/// Rows that are multiplied by factors, with summands: some turns of `count` contiguous rows.
pub(crate) struct Scaling {
    pub(crate) x: *const f32,
    pub(crate) result: *mut f32,
    /// The factor and the summand of the first row.
    pub(crate) numbers: [*const f32; 2],
    pub(crate) count: usize,
    /// The distances from a row to the next of its factor and of its summand: 0 or 1.
    pub(crate) steps: [usize; 2],
    pub(crate) turns: usize,
    /// The distances from a turn to the next of rows, of factors and of summands.
    pub(crate) apart: [usize; 3],
    /// True if the results are rounded to whole numbers, before they are clamped.
    pub(crate) rounds: bool,
    pub(crate) bounds: Bounds,
}

/// Computes `x · factor + summand` for each row of a [`Scaling`]. NaN stays NaN, and the infinities
/// of an overflow become NaN.
///
/// SAFETY: the pointers are valid for all rows and their numbers, nobody else touches the results,
/// and the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn scale<V: Vector>(s: &Scaling) {
    let whole = s.count / V::LANES * V::LANES;
    // SAFETY: the caller's promise.
    unsafe {
        match (s.rounds, s.steps) {
            (true, [0, 0]) => scale_lines::<V, true>(s, whole),
            (false, [0, 0]) => scale_lines::<V, false>(s, whole),
            (true, _) => scale_channels::<V, true>(s, whole),
            (false, _) => scale_channels::<V, false>(s, whole),
        }
        if whole < s.count {
            scale_rest::<V>(s, whole);
        }
    }
}

/// Computes a vector of results.
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
unsafe fn scaled<V: Vector, const ROUNDS: bool>(s: &Scaling, x: V, factor: V, summand: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let sum = summand.fma(x, factor);
        let whole = if ROUNDS { sum.round() } else { sum };
        let (least, largest) = (V::splat(s.bounds.least), V::splat(s.bounds.largest));
        largest.min(least.max(whole)).fma(sum, V::splat(0.0))
    }
}

/// Computes whole vectors of rows that share a factor and a summand in each turn.
///
/// SAFETY: as [`scale`].
#[inline(always)]
unsafe fn scale_lines<V: Vector, const ROUNDS: bool>(s: &Scaling, whole: usize) {
    let [rows, factors, summands] = s.apart;
    for turn in 0..s.turns {
        // SAFETY: the caller's promise.
        unsafe {
            let factor = V::splat(*s.numbers[0].add(turn * factors));
            let summand = V::splat(*s.numbers[1].add(turn * summands));
            let (x, result) = (s.x.add(turn * rows), s.result.add(turn * rows));
            // A core that issues in order would wait for each result of a single vector.
            let (fours, mut k) = (whole / (4 * V::LANES), 0);
            for _ in 0..fours {
                let mut four = [factor; 4];
                unrolled!(i < 4, { four[i] = V::load(x.add(k + i * V::LANES)) });
                unrolled!(i < 4, {
                    four[i] = scaled::<V, ROUNDS>(s, four[i], factor, summand)
                });
                unrolled!(i < 4, { four[i].store(result.add(k + i * V::LANES)) });
                k += 4 * V::LANES;
            }
            while k < whole {
                scaled::<V, ROUNDS>(s, V::load(x.add(k)), factor, summand).store(result.add(k));
                k += V::LANES;
            }
        }
    }
}

/// Computes whole vectors of rows that have factors or summands of their own. These are loaded once
/// if all turns have the same.
///
/// SAFETY: as [`scale`].
#[inline(always)]
unsafe fn scale_channels<V: Vector, const ROUNDS: bool>(s: &Scaling, whole: usize) {
    let [rows, factors, summands] = s.apart;
    for k in (0..whole).step_by(V::LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let (first, second) = (
                s.numbers[0].add(k * s.steps[0]),
                s.numbers[1].add(k * s.steps[1]),
            );
            // `V::load` of a single number would read beyond it.
            macro_rules! load {
                ($from:expr, $step:expr) => {
                    if $step == 0 {
                        V::splat(*$from)
                    } else {
                        V::load($from)
                    }
                };
            }
            let (mut factor, mut summand) = (load!(first, s.steps[0]), load!(second, s.steps[1]));
            for turn in 0..s.turns {
                if factors + summands > 0 {
                    factor = load!(first.add(turn * factors), s.steps[0]);
                    summand = load!(second.add(turn * summands), s.steps[1]);
                }
                let (x, result) = (s.x.add(turn * rows + k), s.result.add(turn * rows + k));
                scaled::<V, ROUNDS>(s, V::load(x), factor, summand).store(result);
            }
        }
    }
}

/// Computes the rows from `first` on, which do not fill a vector, through vectors on the stack.
///
/// SAFETY: as [`scale`].
#[inline(always)]
pub(super) unsafe fn scale_rest<V: Vector>(s: &Scaling, first: usize) {
    for turn in 0..s.turns {
        let [rows, factors, summands] = s.apart;
        let mut some = [[0.0f32; 16]; 3];
        // SAFETY: the caller's promise. No vector has more than 16 lanes.
        unsafe {
            for k in first..s.count {
                some[0][k - first] = *s.x.add(turn * rows + k);
                some[1][k - first] = *s.numbers[0].add(turn * factors + k * s.steps[0]);
                some[2][k - first] = *s.numbers[1].add(turn * summands + k * s.steps[1]);
            }
            let [x, factor, summand] = [0, 1, 2].map(|i| some[i].as_ptr());
            let (x, factor, summand) = (V::load(x), V::load(factor), V::load(summand));
            let y = match s.rounds {
                true => scaled::<V, true>(s, x, factor, summand),
                false => scaled::<V, false>(s, x, factor, summand),
            };
            y.store(some[0].as_mut_ptr());
            for k in first..s.count {
                *s.result.add(turn * rows + k) = some[0][k - first];
            }
        }
    }
}
