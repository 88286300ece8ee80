//! Steps on images, for one record at a time: convolutions, pooling, and what moves or combines elements.
//!
//! A convolution is a product: the windows of some pixels are laid side by side, and the micro-kernel of affine layers
//! takes them for records. A window of one pixel is taken where it stands.

use super::micro::{Kernels, Line, Made, activate_each};
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::Arithmetic;
use crate::ir::view::{Geometry, Image};
use std::ops::Range;

/// Bytes of windows that are laid side by side at a time: a core's first-level cache keeps them.
const SIDE_BY_SIDE: usize = 24 << 10;

/// Most windows at a time.
const MOST: usize = 64;

/// What the lanes of every instruction set divide.
const LANES: usize = 16;

/// Windows of a convolution that are laid side by side at a time, whole tiles of `tile`.
pub(super) fn at_a_time(taps: usize, tile: usize) -> usize {
    (SIDE_BY_SIDE / (4 * taps.max(1))).clamp(1, MOST).next_multiple_of(tile)
}

/// Whether windows can be taken where they stand: single pixels, one after the other.
pub(super) fn stands(geometry: &Geometry) -> bool {
    let ((input, from), window) = (geometry.input, &geometry.window);
    let one = window.size == (1, 1) && window.stride == (1, 1) && geometry.output.1.w == from.w;
    one && geometry.output.1.h == from.h && input.line == from.w * input.pixel
}

/// Some pixels of a convolution. `product` takes so many windows of `taps` values, at an address, so far apart, and
/// writes the results of as many pixels from another on. `scratch` has room for [`at_a_time`] windows of tiles of `tile`.
///
/// SAFETY: `x` is good for the image that `geometry` reads, and `taps` are the elements of its window.
pub(super) unsafe fn convolve(
    geometry: &Geometry,
    (taps, tile): (usize, usize),
    pixels: Range<usize>,
    (x, result, scratch): (*const f32, *mut f32, *mut f32),
    product: &dyn Fn(usize, (*const f32, usize), *mut f32),
) {
    let ((input, _), (output, to)) = (geometry.input, geometry.output);
    let run = |first: usize, count: usize, x: *const f32, x_stride: usize| {
        product(count, (x, x_stride), result.wrapping_add(output.first + first * output.pixel));
    };
    // Results of lines stand one after the other.
    debug_assert_eq!(output.line, to.w * output.pixel);
    if stands(geometry) {
        return run(
            pixels.start,
            pixels.len(),
            x.wrapping_add(input.first + pixels.start * input.pixel),
            input.pixel,
        );
    }
    let most = at_a_time(taps, tile);
    let mut first = pixels.start;
    while first < pixels.end {
        let count = most.min(pixels.end - first);
        for i in 0..count {
            let (y, column) = ((first + i) / to.w, (first + i) % to.w);
            // SAFETY: the caller's promise; a window has `taps` elements.
            unsafe { lay(geometry, (y, column), x, scratch.wrapping_add(i * taps)) };
        }
        run(first, count, scratch, taps);
        first += count;
    }
}

/// Lays the window at pixel (y, x) of the result down in the order of the weights' columns.
///
/// SAFETY: as `convolve`.
unsafe fn lay(geometry: &Geometry, (y, column): (usize, usize), x: *const f32, mut to: *mut f32) {
    let ((image, from), window) = (geometry.input, &geometry.window);
    let (rows, columns) = window.size;
    let (top, left) = (y * window.stride.0, column * window.stride.1);
    let whole = from.c == image.pixel && window.dilation.1 == 1;
    let inside_x = inside(left, window.border.left, window.dilation.1, columns, from.w);
    let inside_y = inside(top, window.border.top, window.dilation.0, rows, from.h);
    // SAFETY: turns inside are pixels of the image.
    unsafe {
        for ky in 0..rows {
            if !inside_y.contains(&ky) || inside_x.is_empty() {
                to.write_bytes(0, columns * from.c);
                to = to.add(columns * from.c);
                continue;
            }
            let line = image.first + (top + ky * window.dilation.0 - window.border.top) * image.line;
            let pixel =
                |kx: usize| x.add(line + (left + kx * window.dilation.1 - window.border.left) * image.pixel);
            to.write_bytes(0, inside_x.start * from.c);
            if whole {
                // The pixels of a line stand one after the other, and so do their channels.
                let count = inside_x.len() * from.c;
                std::ptr::copy_nonoverlapping(pixel(inside_x.start), to.add(inside_x.start * from.c), count);
            } else {
                for kx in inside_x.clone() {
                    std::ptr::copy_nonoverlapping(pixel(kx), to.add(kx * from.c), from.c);
                }
            }
            to.add(inside_x.end * from.c).write_bytes(0, (columns - inside_x.end) * from.c);
            to = to.add(columns * from.c);
        }
    }
}

/// Turns of a loop over a window that are inside `n` pixels: it begins at pixel `at` − `border`.
fn inside(at: usize, border: usize, dilation: usize, size: usize, n: usize) -> Range<usize> {
    let first = if at < border { (border - at).div_ceil(dilation) } else { 0 };
    let end = size.min((border + n).saturating_sub(at).div_ceil(dilation));
    first.min(end)..end
}

/// Some lines of what is made of windows channel by channel: pooling, and convolutions of single channels.
///
/// SAFETY: as `convolve`; weights of every turn and biases are there for all channels that are written.
pub(super) unsafe fn windows(
    kernels: &Kernels,
    made: Made,
    (weights, biases): (*const f32, *const f32),
    geometry: &Geometry,
    activation: Activation,
    lines: Range<usize>,
    (x, result): (*const f32, *mut f32),
) {
    let ((input, from), (output, to), window) = (geometry.input, geometry.output, &geometry.window);
    let border = window.border;
    for y in lines {
        let top = y * window.stride.0;
        let turns = inside(top, border.top, window.dilation.0, window.size.0, from.h);
        let room = (border.top + from.h + border.bottom - top).div_ceil(window.dilation.0);
        let line = Line {
            made,
            x: x.wrapping_add(input.first),
            x_steps: (input.pixel, input.line),
            width: from.w,
            top: (top + turns.start * window.dilation.0).saturating_sub(border.top),
            turns: (turns.start, turns.end),
            columns: window.size.1,
            stride: window.stride.1,
            dilation: window.dilation,
            left: border.left,
            weights,
            biases,
            channels: output.pixel,
            real: to.c,
            pixels: (0, to.w),
            result: result.wrapping_add(output.first + y * output.line),
            result_step: output.pixel,
            bordered: (window.size.0.min(room), border.left + from.w + border.right),
        };
        // SAFETY: the caller's promise; the pixels of a line are whole vectors, one after the other.
        unsafe {
            (kernels.line)(&line);
            (kernels.activate)(activation, line.result, to.w * output.pixel);
        }
    }
}

/// Two values, element by element, at some lines: of the second each pixel may be the same.
///
/// SAFETY: as `convolve`.
pub(super) unsafe fn combine(
    kernels: &Kernels,
    arithmetic: Arithmetic,
    geometry: &Geometry,
    lines: Range<usize>,
    (x, other, result): (*const f32, *const f32, *mut f32),
) {
    let ((second, _), (output, to)) = (geometry.input, geometry.output);
    let one = |a: usize, b: usize| {
        // SAFETY: the caller's promise.
        unsafe {
            let (p, q) = (*x.add(a), *other.add(b));
            *result.add(a) = match arithmetic {
                Arithmetic::Add => p + q,
                Arithmetic::Subtract => p - q,
                Arithmetic::Multiply => p * q,
                Arithmetic::Divide => p / q,
            };
        }
    };
    // Padding may be divided by zero.
    if second == output && arithmetic != Arithmetic::Divide {
        let (first, end) = (lines.start * output.line, lines.end * output.line);
        let vectors = (end - first) / LANES * LANES;
        let at = output.first + first;
        // SAFETY: the caller's promise.
        unsafe { (kernels.combine)(arithmetic, x.add(at), other.add(at), result.add(at), vectors) };
        return (first + vectors..end).for_each(|i| one(output.first + i, output.first + i));
    }
    for (y, column) in lines.flat_map(|y| (0..to.w).map(move |column| (y, column))) {
        let at = output.first + y * output.line + column * output.pixel;
        let b = second.first + y * second.line + column * second.pixel;
        (0..to.c).for_each(|c| one(at + c, b + c));
        // SAFETY: the caller's promise.
        (to.c..output.pixel).for_each(|c| unsafe { *result.add(at + c) = 0.0 });
    }
}

/// An activation, in place, at some lines.
///
/// SAFETY: as `convolve`.
pub(super) unsafe fn activate(
    kernels: &Kernels,
    geometry: &Geometry,
    activation: Activation,
    lines: Range<usize>,
    result: *mut f32,
) {
    if activation == Activation::None {
        return;
    }
    let output = geometry.output.0;
    let (first, end) = (output.first + lines.start * output.line, output.first + lines.end * output.line);
    let vectors = (end - first) / LANES * LANES;
    // SAFETY: the caller's promise.
    unsafe {
        (kernels.activate)(activation, result.add(first), vectors);
        activate_each(activation, result.add(first + vectors), end - first - vectors);
    }
}

/// Softmax over the channels of each pixel, or its logarithm.
///
/// SAFETY: as `convolve`.
pub(super) unsafe fn softmax(
    geometry: &Geometry,
    logarithm: bool,
    lines: Range<usize>,
    (x, result): (*const f32, *mut f32),
) {
    let ((input, _), (output, to)) = (geometry.input, geometry.output);
    let pixel = |image: Image, y: usize, column: usize| image.first + y * image.line + column * image.pixel;
    for (y, column) in lines.flat_map(|y| (0..to.w).map(move |column| (y, column))) {
        // SAFETY: the caller's promise.
        let (from, to_pixel) = unsafe {
            let from = std::slice::from_raw_parts(x.add(pixel(input, y, column)), to.c);
            (from, std::slice::from_raw_parts_mut(result.add(pixel(output, y, column)), output.pixel))
        };
        let most = from.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = from.iter().map(|v| libm::expf(v - most)).sum();
        to_pixel.fill(0.0);
        for (to, &v) in to_pixel.iter_mut().zip(from) {
            let value = if logarithm { v - most - libm::logf(sum) } else { libm::expf(v - most) / sum };
            // NaN where something has overflowed.
            *to = value + 0.0 * v;
        }
    }
}

/// Rows that are neighbours where they are read and where they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first row that is read; `None`: the constant is written.
    from: Option<usize>,
    /// The first row that is written.
    to: usize,
    /// How many.
    count: usize,
}

impl Run {
    /// Pairs of rows, two numbers each, as few runs.
    pub(crate) fn of(pairs: &[u32]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for pair in pairs.chunks_exact(2) {
            let from = (pair[0] != crate::ir::plan::NO_ROW).then_some(pair[0] as usize);
            let to = pair[1] as usize;
            match runs.last_mut() {
                Some(run) if run.to + run.count == to && run.from.map(|f| f + run.count) == from => {
                    run.count += 1
                }
                _ => runs.push(Run { from, to, count: 1 }),
            }
        }
        runs
    }

    /// The row behind the last one that it reads, and that it writes.
    pub(crate) fn ends(&self) -> (usize, usize) {
        (self.from.map_or(0, |f| f + self.count), self.to + self.count)
    }
}

/// Copies rows.
///
/// SAFETY: `x` and `result` are good for the rows of the runs, nobody else touches those that are written.
pub(super) unsafe fn gather(runs: &[Run], value: f32, (x, result): (*const f32, *mut f32)) {
    for run in runs {
        // SAFETY: the caller's promise.
        unsafe {
            match run.from {
                Some(from) => std::ptr::copy_nonoverlapping(x.add(from), result.add(run.to), run.count),
                None => (0..run.count).for_each(|i| *result.add(run.to + i) = value),
            }
        }
    }
}

/// Rows times factors plus summands; without summands: times factors where they are below 0.
///
/// SAFETY: as `gather`, of as many rows as there are factors.
pub(super) unsafe fn scale(factors: &[f32], biases: Option<&[f32]>, (x, result): (*const f32, *mut f32)) {
    // SAFETY: the caller's promise.
    let (x, result) = unsafe {
        let n = factors.len();
        (std::slice::from_raw_parts(x, n), std::slice::from_raw_parts_mut(result, n))
    };
    let rows = result.iter_mut().zip(x).zip(factors);
    match biases {
        Some(biases) => rows.zip(biases).for_each(|(((r, &x), &f), &b)| *r = x * f + b),
        None => rows.for_each(|((r, &x), &f)| *r = if x < 0.0 { x * f } else { x }),
    }
}

/// The row behind the last one of an image.
pub(super) fn end(image: Image, shape: Shape) -> usize {
    image.first + (shape.h - 1) * image.line + (shape.w - 1) * image.pixel + shape.c
}
