//! Micro-kernels of images, written once for every instruction set: a vector holds neighbouring channels of a pixel.

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

/// Windows of one line of an image's pixels.
///
/// What makes it sound to compute: for each turn of the window that is inside the image, `x` is good for the channels of
/// that pixel rounded up to whole vectors; `weights` and `biases` are for as many (of [`Made::Products`]); `result` for
/// the pixels with their channels rounded up, which nobody else touches meanwhile.
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
    /// Channels with those of padding that are written: whole vectors.
    pub(crate) channels: usize,
    /// Channels that count; zeros are written behind them.
    pub(crate) real: usize,
    /// Columns of the result, the first and the one behind the last.
    pub(crate) pixels: (usize, usize),
    /// Pixel 0 of the line of the result.
    pub(crate) result: *mut f32,
    /// Values from a pixel of the result to the next.
    pub(crate) result_step: usize,
    /// Of padded means: elements of a column of the window inside the image with its border, and pixels of a line with
    /// its border.
    pub(crate) bordered: (usize, usize),
}

impl Line {
    /// Turns of the window at column `at` of the result that are inside the line, first and behind the last.
    #[inline(always)]
    fn inside(&self, at: usize) -> (usize, usize) {
        let (from, step) = (at * self.stride, self.dilation.1);
        let first = if from < self.left { (self.left - from).div_ceil(step) } else { 0 };
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
        let (first, end) = line.pixels;
        for at in first..end {
            let to = line.result.add(at * line.result_step);
            for c in line.real..line.channels {
                *to.add(c) = 0.0;
            }
        }
    }
}

/// SAFETY: as `line`.
#[inline(always)]
unsafe fn windows<V: Vector, const PRODUCTS: bool>(line: &Line) {
    let max = line.made == Made::Max;
    let Line { x_steps: (pixel, across), columns, channels, .. } = *line;
    let (first, end) = line.turns;
    let steps = (line.dilation.0 * across, line.dilation.1 * pixel);
    for at in line.pixels.0..line.pixels.1 {
        let (from, to) = line.inside(at);
        let start = (at * line.stride + from * line.dilation.1).wrapping_sub(line.left);
        let result = line.result.wrapping_add(at * line.result_step);
        // SAFETY: the line's promise: turns from `first` to `end` and `from` to `to` are inside the image.
        unsafe {
            let x = line.x.wrapping_add(line.top * across + start.wrapping_mul(pixel));
            let elements = if PRODUCTS || max { 1 } else { line.elements(at) };
            let scale = V::splat(1.0 / elements as f32);
            for c in (0..channels).step_by(V::LANES) {
                let zero = V::splat(0.0);
                let mut sum = match PRODUCTS {
                    true => V::load(line.biases.add(c)),
                    false => V::splat(if max { f32::NEG_INFINITY } else { 0.0 }),
                };
                let mut lost = zero;
                for ky in first..end {
                    let mut x = x.add((ky - first) * steps.0 + c);
                    let mut w = line.weights.wrapping_add((ky * columns + from) * channels + c);
                    for _ in from..to {
                        let value = V::load(x);
                        if PRODUCTS {
                            sum = sum.fma(V::load(w), value);
                        } else if max {
                            sum = sum.max(value);
                            lost = lost.fma(value, zero);
                        } else {
                            sum = sum.fma(value, V::splat(1.0));
                        }
                        x = x.wrapping_add(steps.1);
                        w = w.wrapping_add(channels);
                    }
                }
                // NaN where there was one.
                lost.fma(sum, scale).store(result.add(c));
            }
        }
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
