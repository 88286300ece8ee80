//! Micro-kernels of images, written once for every instruction set: a vector holds neighbouring
//! channels of a pixel.

use super::vector::Vector;
use crate::ir::op::Arithmetic;

/// What is made of the windows of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// The largest value.
    Max,
    /// The mean of what is inside the image.
    Mean,
    /// The mean with zeros in the border.
    PaddedMean,
    /// The sum of products with weights of the channel, plus its bias.
    Products,
}

/// Windows of one line of an image's pixels, or of some lines one below the other.
///
/// What makes it sound to compute: for each turn of the window that is inside the image, `x` is
/// good for the channels of that pixel rounded up to whole vectors; `weights` and `biases` are for
/// as many (of [`Made::Products`]); `result` for the pixels with their channels rounded up, which
/// nobody else touches meanwhile.
pub(crate) struct Line {
    /// What is made of them.
    pub(crate) made: Made,
    /// The pixel (0, 0) of the image.
    pub(crate) x: *const f32,
    /// Values from a pixel to the next, and from a line to the next.
    pub(crate) x_steps: (usize, usize),
    /// Pixels of a line of the image.
    pub(crate) width: usize,
    /// The first line of the image that the window covers.
    pub(crate) top: usize,
    /// Turns of the window's rows that are inside the image, the first and the one behind the last.
    pub(crate) turns: (usize, usize),
    /// Columns of the window.
    pub(crate) columns: usize,
    /// Pixels from a window to the next.
    pub(crate) stride: usize,
    /// Lines and pixels from one turn to the next.
    pub(crate) dilation: (usize, usize),
    /// Pixels of border on the left.
    pub(crate) left: usize,
    /// Weights of a turn for all channels, turn after turn; null where there are none.
    pub(crate) weights: *const f32,
    /// A summand for each channel; null where there are none.
    pub(crate) biases: *const f32,
    /// Lines, whose windows are inside the image alike: 1, or of products as many as [`together`]
    /// says.
    pub(crate) lines: usize,
    /// Values from a window to that of the next line, and from a line of the result to the next.
    pub(crate) line_steps: (usize, usize),
    /// Columns of the result whose windows are inside the line with all their turns.
    pub(crate) whole: (usize, usize),
    /// Channels with those of padding that are written: whole vectors.
    pub(crate) channels: usize,
    /// Channels that count; zeros are written behind them.
    pub(crate) real: usize,
    /// Columns of the result.
    pub(crate) pixels: usize,
    /// Pixel 0 of the line of the result.
    pub(crate) result: *mut f32,
    /// Values from a pixel of the result to the next.
    pub(crate) result_step: usize,
    /// The least and the largest value that is written.
    pub(crate) bounds: (f32, f32),
    /// Of padded means: elements of a column of the window inside the image with its border, and
    /// pixels of a line with its border.
    pub(crate) bordered: (usize, usize),
}

impl Line {
    /// Turns of the window at column `at` of the result that are inside the line, first and behind
    /// the last.
    #[inline(always)]
    fn inside(&self, at: usize) -> (usize, usize) {
        let (from, step) = (at * self.stride, self.dilation.1);
        let first = if from < self.left {
            (self.left - from).div_ceil(step)
        } else {
            0
        };
        let room = (self.left + self.width).saturating_sub(from).div_ceil(step);
        (first, self.columns.min(room))
    }

    /// Elements of the window at column `at` that a mean is of.
    #[inline(always)]
    fn elements(&self, at: usize) -> usize {
        let (first, end) = self.inside(at);
        match self.made {
            Made::PaddedMean => {
                let room = (self.bordered.1 - at * self.stride).div_ceil(self.dilation.1);
                self.bordered.0 * self.columns.min(room)
            }
            _ => (end - first) * (self.turns.1 - self.turns.0),
        }
    }
}

/// Computes a line.
///
/// SAFETY: the line is sound, the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn line<V: Vector>(line: &Line) {
    // SAFETY: passed on.
    unsafe {
        match line.made {
            Made::Products => windows::<V, true>(line),
            Made::Max | Made::Mean | Made::PaddedMean => windows::<V, false>(line),
        }
        let padded = if line.real < line.channels {
            line.lines
        } else {
            0
        };
        for y in 0..padded {
            for at in 0..line.pixels {
                let to = line
                    .result
                    .add(y * line.line_steps.1 + at * line.result_step);
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

/// Pixels whose windows are inside alike and that share what is loaded of the weights, side by side
/// or one below the other.
pub(super) const TOGETHER: usize = 8;

/// Vectors of channels of one pixel that are computed together.
const VECTORS: usize = 4;

/// How many of `left` pixels (or lines) that are inside alike, of `all`, are computed next: 1 where
/// they are too few. The last ones may be computed again.
#[inline(always)]
pub(crate) fn together(left: usize, all: usize) -> usize {
    match left {
        2.. if all >= TOGETHER && left > TOGETHER / 2 => TOGETHER,
        2.. if all >= TOGETHER / 2 => TOGETHER / 2,
        _ => 1,
    }
}

/// SAFETY: as `line`.
#[inline(always)]
unsafe fn windows<V: Vector, const PRODUCTS: bool>(line: &Line) {
    let (first, end) = line.whole;
    let some_at_once = PRODUCTS && V::REGISTERS;
    let mut at = 0;
    while at < line.pixels {
        let (mut count, mut turns, mut next) = (line.lines, line.inside(at), at + 1);
        if some_at_once && count == 1 && (first..end).contains(&at) {
            count = together(end - at, end - first);
            at = at.min(end - count);
            (turns, next) = ((0, line.columns), at + count);
        }
        let mut c = 0;
        while c < line.channels {
            // SAFETY: passed on; the pixels are of the line, the channels whole vectors.
            unsafe {
                if some_at_once && count == TOGETHER {
                    some::<V, PRODUCTS, TOGETHER, 1>(line, at, c, turns);
                } else if some_at_once && count > 1 {
                    some::<V, PRODUCTS, { TOGETHER / 2 }, 1>(line, at, c, turns);
                } else if some_at_once && c + VECTORS * V::LANES <= line.channels {
                    some::<V, PRODUCTS, 1, VECTORS>(line, at, c, turns);
                    c += (VECTORS - 1) * V::LANES;
                } else {
                    some::<V, PRODUCTS, 1, 1>(line, at, c, turns);
                }
            }
            c += V::LANES;
        }
        at = next;
    }
}

/// P pixels from `at` on, whose windows are inside for the same turns, by N vectors of channels
/// from `c` on. Sums stay in registers.
///
/// SAFETY: as `line`; the pixels and the channels are of the line.
#[inline(always)]
unsafe fn some<V: Vector, const PRODUCTS: bool, const P: usize, const N: usize>(
    line: &Line,
    at: usize,
    c: usize,
    (from, to): (usize, usize),
) {
    let max = line.made == Made::Max;
    let Line {
        x_steps: (pixel, across),
        columns,
        channels,
        ..
    } = *line;
    let (first, end) = line.turns;
    let steps = (line.dilation.0 * across, line.dilation.1 * pixel);
    let start = (at * line.stride + from * line.dilation.1).wrapping_sub(line.left);
    let (apart, result_apart) = if line.lines > 1 {
        line.line_steps
    } else {
        (line.stride * pixel, line.result_step)
    };
    // SAFETY: the line's promise: turns from `first` to `end` and `from` to `to` are inside the
    // image.
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
        if PRODUCTS {
            unrolled!(i < N, {
                let bias = V::load(line.biases.add(c + i * V::LANES));
                unrolled!(p < P, { sums[p][i] = bias });
            });
        }
        for _ in first..end {
            let (mut x, mut w) = (top, weights);
            for _ in from..to {
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
                x = x.wrapping_add(steps.1);
                w = w.wrapping_add(channels);
            }
            top = top.wrapping_add(steps.0);
            weights = weights.wrapping_add(columns * channels);
        }
        let elements = if PRODUCTS || max {
            1
        } else {
            line.elements(at)
        };
        let scale = V::splat(1.0 / elements as f32);
        let (least, largest) = (V::splat(line.bounds.0), V::splat(line.bounds.1));
        unrolled!(p < P, {
            unrolled!(i < N, {
                // NaN where there was one, or where the sum overflowed.
                let value = lost[p][i].fma(sums[p][i], scale);
                let to = line
                    .result
                    .wrapping_add(at * line.result_step + p * result_apart + c + i * V::LANES);
                largest.min(least.max(value)).fma(value, zero).store(to);
            });
        });
    }
}

/// `result[i] = a[i] ∘ b[i]`, `count` values, a multiple of the lanes.
///
/// SAFETY: the values are there, the CPU has V's instruction set.
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
            let value = match arithmetic {
                Arithmetic::Add => x.fma(y, V::splat(1.0)),
                Arithmetic::Subtract => x.fma(y, V::splat(-1.0)),
                Arithmetic::Multiply => V::splat(0.0).fma(x, y),
                Arithmetic::Divide => x.div(y),
            };
            value.store(result.add(i));
        }
    }
}
