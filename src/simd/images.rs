//! Steps on images, one record at a time: convolutions, pooling, and element-wise steps.
//!
//! A convolution is a matrix product. The micro-kernel of affine layers takes the windows of some
//! pixels as its records. A window consists of runs, which are contiguous values of the image. Most
//! runs are not copied, and a table has the address of each. Runs in the border point to zeros.
//! Only runs across an edge are copied. A window of one pixel is used in place.
//!
//! Where runs are short, windows are copied into strips. A strip has the values below each other
//! that a column of windows covers. Each window is then one run, and windows above each other share
//! lines.

use super::micro::winograd::{ELEMENTS, Pixels, Transforms};
use super::micro::{
    Affine, Kernels, Line, Runs, Subproblem, WindowOp, activate_each, bounds, together,
};
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::Arithmetic;
use crate::ir::view::{Geometry, Image};
use std::ops::Range;

/// The number of run addresses at a time. The first-level cache holds them beside the values.
const ADDRESSES: usize = 1024;

/// The number of strip values at a time. They take as many bytes as the addresses.
const STRIPS: usize = 2048;

/// The largest number of windows at a time.
const MOST: usize = 256;

/// A multiple of the lanes of every instruction set.
const LANES: usize = 16;

/// Windows with runs shorter than this are copied into strips. Changing to the next run costs more
/// than copying it.
const SHORT: usize = 8;

/// The number of windows of a convolution at a time, a multiple of `tile`.
fn at_a_time(geometry: &Geometry, tile: usize) -> usize {
    let (to, (runs, length)) = (geometry.output.1, runs(geometry));
    // Values and addresses take the same space in the cache.
    let most = if length >= SHORT {
        ADDRESSES / runs
    } else {
        // Each further line of windows adds as many image lines as the vertical stride.
        let further = strip(geometry, 2) - strip(geometry, 1);
        let more = (STRIPS / to.w).saturating_sub(strip(geometry, 1)) / further.max(1);
        if more > 0 {
            (1 + more) * to.w
        } else {
            STRIPS / strip(geometry, 1)
        }
    };
    most.clamp(1, MOST).next_multiple_of(tile)
}

/// The number of image lines that `lines` lines of windows cover, including those between them.
fn strip_lines(geometry: &Geometry, lines: usize) -> usize {
    let window = &geometry.window;
    ((lines - 1) * window.stride.0 + (window.size.0 - 1) * window.dilation.0 + 1)
        .next_multiple_of(window.dilation.0)
}

/// The number of values in a strip, which is the copy of one column of `lines` windows.
fn strip(geometry: &Geometry, lines: usize) -> usize {
    strip_lines(geometry, lines) * geometry.window.size.1 * geometry.input.1.c
}

/// Returns true if a line of a window is one run: its pixels and their channels are contiguous.
fn in_lines(geometry: &Geometry) -> bool {
    geometry.input.1.c == geometry.input.0.pixel && geometry.window.dilation.1 == 1
}

/// The number of runs of a window, and the length of each.
pub(super) fn runs(geometry: &Geometry) -> (usize, usize) {
    let (c, (rows, columns)) = (geometry.input.1.c, geometry.window.size);
    if in_lines(geometry) {
        (rows, columns * c)
    } else {
        (rows * columns, c)
    }
}

/// The scratch memory of [`convolve`] in values, for the address table and the copied runs or
/// strips.
pub(super) fn scratch(geometry: &Geometry, tile: usize) -> usize {
    if stands(geometry) {
        return 0;
    }
    let ((runs, length), most) = (runs(geometry), at_a_time(geometry, tile));
    if length < SHORT {
        let (w, h) = (geometry.output.1.w, geometry.output.1.h);
        // With less than a line at a time, no part continues on the next line.
        let lines = if most < w {
            1
        } else {
            h.min(most.div_ceil(w) + 1)
        };
        return table(1, most) + w.min(most) * strip(geometry, lines);
    }
    let ((_, from), (_, to), window) = (geometry.input, geometry.output, &geometry.window);
    let columns = window.size.1;
    let across = |x: &usize| {
        let turns = inside(x * window.stride.1, window.border.left, 1, columns, from.w).len();
        in_lines(geometry) && (1..columns).contains(&turns)
    };
    let (across, lines) = ((0..to.w).filter(across).count(), to.h.min(most / to.w + 2));
    table(runs, most) + most.min(across * lines) * runs * length
}

/// The size of the address table for `count` windows in values, rounded up to whole cache lines.
fn table(runs: usize, count: usize) -> usize {
    (runs * count * size_of::<*const f32>() / size_of::<f32>()).next_multiple_of(LANES)
}

/// Returns true if windows can be used in place: they are single contiguous pixels.
pub(super) fn stands(geometry: &Geometry) -> bool {
    let ((input, from), window) = (geometry.input, &geometry.window);
    let one = window.size == (1, 1) && window.stride == (1, 1) && geometry.output.1.w == from.w;
    one && geometry.output.1.h == from.h && input.line == from.w * input.pixel
}

/// Windows for the micro-kernel: the address of the first one and their stride, or their runs.
pub(super) type Windows = (*const f32, usize, Option<Runs>);

/// Computes some pixels of a convolution. `product` multiplies a number of windows and writes as
/// many pixels from an address on. `room` has the size that [`scratch`] returns. `zeros` has the
/// length of a run. `tile` is the number of windows in a micro-tile.
///
/// SAFETY: `x` is valid for the image that `geometry` reads, and no other thread touches the pixels
/// that are written.
pub(super) unsafe fn convolve(
    geometry: &Geometry,
    tile: usize,
    pixels: Range<usize>,
    (x, result): (*const f32, *mut f32),
    (zeros, room): (*const f32, *mut f32),
    product: &dyn Fn(usize, Windows, *mut f32),
) {
    let ((input, _), (output, to)) = (geometry.input, geometry.output);
    let result = |first: usize| result.wrapping_add(output.first + first * output.pixel);
    // The lines of the result are contiguous.
    debug_assert_eq!(output.line, to.w * output.pixel);
    if stands(geometry) {
        let x = x.wrapping_add(input.first + pixels.start * input.pixel);
        return product(pixels.len(), (x, input.pixel, None), result(pixels.start));
    }
    let (most, (runs, length)) = (at_a_time(geometry, tile), runs(geometry));
    let table = room.cast::<*const f32>();
    let mut first = pixels.start;
    while first < pixels.end {
        let mut end = pixels.end.min(first + most);
        // SAFETY: the caller's promise.
        let length = unsafe {
            if length < SHORT {
                if most < to.w {
                    end = end.min((first / to.w + 1) * to.w);
                }
                lay(
                    geometry,
                    first..end,
                    x,
                    room.wrapping_add(self::table(1, most)),
                    table,
                );
                runs * length
            } else {
                let spare = room.wrapping_add(self::table(runs, most));
                point(geometry, first..end, x, (zeros, spare), table);
                length
            }
        };
        product(
            end - first,
            (x, 0, Some(Runs { table, length })),
            result(first),
        );
        first = end;
    }
}

/// Copies the strips of some pixels' windows, column by column, and writes the address of each
/// window. Consecutive lines of a window become contiguous; with dilation d these are every d-th
/// line.
///
/// SAFETY: as `convolve`.
unsafe fn lay(
    geometry: &Geometry,
    pixels: Range<usize>,
    x: *const f32,
    strips: *mut f32,
    table: *mut *const f32,
) {
    let ((image, from), to, window) = (geometry.input, geometry.output.1, &geometry.window);
    let (y, end) = (pixels.start / to.w, (pixels.end - 1) / to.w + 1);
    let columns = if end - y == 1 {
        pixels.start % to.w..(pixels.end - 1) % to.w + 1
    } else {
        0..to.w
    };
    let (lines, size) = (strip_lines(geometry, end - y), strip(geometry, end - y));
    let ((length, dilation), apart) =
        ((size / lines, window.dilation.0), lines / window.dilation.0);
    let place = |line: usize| (line % dilation * apart + line / dilation) * length;
    let strip = |column: usize| strips.wrapping_add((column - columns.start) * size);
    let top = (y * window.stride.0).wrapping_sub(window.border.top);
    let in_lines = in_lines(geometry);
    for column in columns.clone() {
        let left = column * window.stride.1;
        let covered = inside(
            left,
            window.border.left,
            window.dilation.1,
            window.size.1,
            from.w,
        );
        let (before, behind) = (
            covered.start * from.c,
            (window.size.1 - covered.end) * from.c,
        );
        let at = (left + covered.start * window.dilation.1).wrapping_sub(window.border.left);
        let address = x.wrapping_add(image.first.wrapping_add(at.wrapping_mul(image.pixel)));
        let strip = strip(column);
        for n in 0..lines {
            let (line, to) = (top.wrapping_add(n), strip.wrapping_add(place(n)));
            // SAFETY: `scratch` has counted the strips; what is covered is inside the image.
            unsafe {
                if line >= from.h {
                    zero(to, length);
                    continue;
                }
                zero(to, before);
                let address = address.wrapping_add(line * image.line);
                if in_lines {
                    copy(address, to.add(before), length - before - behind);
                } else {
                    for k in 0..covered.len() {
                        let address = address.wrapping_add(k * window.dilation.1 * image.pixel);
                        copy(address, to.add(before + k * from.c), from.c);
                    }
                }
                zero(to.add(length - behind), behind);
            }
        }
    }
    for (i, pixel) in pixels.enumerate() {
        let window = strip(pixel % to.w).wrapping_add(place((pixel / to.w - y) * window.stride.0));
        // SAFETY: the table has an entry for each pixel.
        unsafe { *table.add(i) = window };
    }
}

/// Writes the addresses of the runs of some pixels' windows. Run r of pixel n is at index r ·
/// pixels + n. Runs across an edge are copied into `spare`.
///
/// SAFETY: as `convolve`.
unsafe fn point(
    geometry: &Geometry,
    pixels: Range<usize>,
    x: *const f32,
    (zeros, mut spare): (*const f32, *mut f32),
    table: *mut *const f32,
) {
    let ((image, from), to, window) = (geometry.input, geometry.output.1, &geometry.window);
    let (rows, columns) = window.size;
    let (_, length) = runs(geometry);
    // The number of runs in a line of the window, and the pixels of a run.
    let (turns, span) = if in_lines(geometry) {
        (1, columns)
    } else {
        (columns, 1)
    };
    let step = window.stride.1;
    let mut first = pixels.start;
    while first < pixels.end {
        let (y, column) = (first / to.w, first % to.w);
        let count = (to.w - column).min(pixels.end - first);
        let top = y * window.stride.0;
        let inside_y = inside(top, window.border.top, window.dilation.0, rows, from.h);
        for ky in 0..rows {
            let within = inside_y.contains(&ky);
            let line = (top + ky * window.dilation.0)
                .wrapping_sub(window.border.top)
                .wrapping_mul(image.line);
            let line = x.wrapping_add(image.first.wrapping_add(line));
            // Runs that begin at a column below `whole` are inside the image.
            let whole = if within {
                (from.w + 1).saturating_sub(span)
            } else {
                0
            };
            let left = column * step;
            for kx in 0..turns {
                let run = ky * turns + kx;
                // The table entry of the next pixel.
                let mut entry = table.wrapping_add(run * pixels.len() + first - pixels.start);
                let mut at = (left + kx * window.dilation.1).wrapping_sub(window.border.left);
                let mut address = line.wrapping_add(at.wrapping_mul(image.pixel));
                let mut i = 0;
                while i < count {
                    let inside_x = if at < whole {
                        ((whole - 1 - at) / step + 1).min(count - i)
                    } else {
                        0
                    };
                    for _ in 0..inside_x {
                        // SAFETY: the table has an entry for each run of each pixel; the run is
                        // inside the image.
                        unsafe {
                            *entry = address;
                            entry = entry.add(1);
                        }
                        address = address.wrapping_add(step * image.pixel);
                    }
                    i += inside_x;
                    if i == count {
                        break;
                    }
                    at = at.wrapping_add(inside_x * step);
                    let covered = inside(left + i * step, window.border.left, 1, columns, from.w);
                    let nothing = !within || span == 1 || covered.is_empty();
                    // SAFETY: `scratch` has counted these runs; what is covered is inside the
                    // image.
                    unsafe {
                        if !nothing {
                            let (before, count) = (covered.start * from.c, covered.len() * from.c);
                            spare.write_bytes(0, before);
                            let inside = address.wrapping_add(before);
                            std::ptr::copy_nonoverlapping(inside, spare.add(before), count);
                            spare
                                .add(before + count)
                                .write_bytes(0, length - before - count);
                        }
                        *entry = if nothing { zeros } else { spare };
                        entry = entry.add(1);
                        spare = spare.wrapping_add(if nothing { 0 } else { length });
                    }
                    (i, at) = (i + 1, at.wrapping_add(step));
                    address = address.wrapping_add(step * image.pixel);
                }
            }
        }
        first += count;
    }
}

/// Clears a short run.
///
/// SAFETY: `to` is valid for `count` values.
#[inline(always)]
unsafe fn zero(to: *mut f32, count: usize) {
    // SAFETY: the caller's promise.
    (0..count).for_each(|i| unsafe { *to.add(i) = 0.0 });
}

/// Copies a short run inline, which is faster than a call.
///
/// SAFETY: `from` and `to` are valid for `count` values and do not overlap.
#[inline(always)]
unsafe fn copy(from: *const f32, to: *mut f32, count: usize) {
    const FOUR: usize = 4;
    // SAFETY: the caller's promise; the last four may be copied in part again.
    unsafe {
        let four = |i: usize| {
            let values = from.add(i).cast::<[f32; FOUR]>().read_unaligned();
            to.add(i).cast::<[f32; FOUR]>().write_unaligned(values);
        };
        if count < FOUR {
            (0..count).for_each(|i| *to.add(i) = *from.add(i));
            return;
        }
        let mut i = 0;
        while i + FOUR < count {
            four(i);
            i += FOUR;
        }
        four(count - FOUR);
    }
}

/// The number of tile values at a time. They fill a first-level cache twice, so that a call serves
/// many tiles.
const TILES: usize = 1 << 14;

/// The number of tiles in an image. A tile has 2 × 2 pixels of the result.
pub(super) fn tiles(geometry: &Geometry) -> usize {
    let to = geometry.output.1;
    to.h.div_ceil(2) * to.w.div_ceil(2)
}

/// The least number of tiles at a time, which each loaded weight serves.
const FEWEST_TILES: usize = 16;

/// The number of tiles at a time, a multiple of the micro-kernel's `tile` records. `rows` is the
/// number of channels of the result.
fn tiles_at_a_time(geometry: &Geometry, rows: usize, tile: usize) -> usize {
    let most = TILES / ELEMENTS / (geometry.input.1.c + rows);
    most.max(FEWEST_TILES)
        .min(tiles(geometry))
        .next_multiple_of(tile)
}

/// Transforms the weights of a convolution for computation by tiles. The filters are in panels of
/// `panel` rows with `columns` columns. The result has all rows of the first element, then those of
/// the next.
///
/// SAFETY: the CPU has the instruction set, its lanes divide the panel, and weights and result have
/// these sizes.
pub(super) unsafe fn weights_of_tiles(
    transforms: &Transforms,
    (weights, result): (&[f32], &mut [f32]),
    (rows, channels): (usize, usize),
    (panel, columns): (usize, usize),
) {
    for (row, c) in (0..rows)
        .step_by(panel)
        .flat_map(|row| (0..channels).map(move |c| (row, c)))
    {
        let from = weights[row * columns + c * panel..].as_ptr();
        let to = result[row * channels + c * panel..].as_mut_ptr();
        // SAFETY: the caller's promise.
        unsafe { (transforms.filters)(from, channels * panel, to, rows * channels, panel) };
    }
}

/// The scratch memory of [`convolve_tiles`] in values.
pub(super) fn tiles_scratch(geometry: &Geometry, rows: usize, tile: usize) -> usize {
    let channels = geometry.input.1.c;
    ELEMENTS * (tiles_at_a_time(geometry, rows, tile) * (channels + rows) + channels)
}

/// Computes some tiles of a 3 × 3 convolution. The layer has the rows of each element of a tile,
/// one element after the other, and no activation. The other arguments are those of `convolve`, but
/// `zeros` has the length of a pixel.
///
/// SAFETY: as `convolve`. The layer's rows are ELEMENTS times at most the result's channels, and
/// its inputs are the image's channels.
pub(super) unsafe fn convolve_tiles(
    (kernels, transforms): (&Kernels, &Transforms),
    geometry: &Geometry,
    (layer, activation): (&Affine<'_>, Activation),
    tiles: Range<usize>,
    (x, result): (*const f32, *mut f32),
    (zeros, room): (*const f32, *mut f32),
) {
    let rows = layer.biases.len() / ELEMENTS;
    let ((image, from), (output, to)) = (geometry.input, geometry.output);
    let (columns, border) = (to.w.div_ceil(2), geometry.window.border);
    let most = tiles_at_a_time(geometry, rows, kernels.tile.0);
    let bounded = bounds(activation);
    let mut first = tiles.start;
    while first < tiles.end {
        let count = most.min(tiles.end - first);
        // The distance of the blocks of two elements, in values: for the image and for the sums. A
        // block has one element of all tiles.
        let (apart, apart_result) = (count * from.c, count * rows);
        let sums = room.wrapping_add(ELEMENTS * apart);
        let edge = sums.wrapping_add(ELEMENTS * apart_result);
        for n in 0..count {
            let (y, column) = ((first + n) / columns * 2, (first + n) % columns * 2);
            let (y, column) = (y.wrapping_sub(border.top), column.wrapping_sub(border.left));
            let start = image.first.wrapping_add(y.wrapping_mul(image.line));
            let start = x.wrapping_add(start.wrapping_add(column.wrapping_mul(image.pixel)));
            let to = room.wrapping_add(n * from.c);
            // SAFETY: pixels of the image, or laid down; `tiles_scratch` has counted the elements
            // and one tile.
            unsafe {
                if y < from.h.saturating_sub(3) && column < from.w.saturating_sub(3) {
                    (transforms.spread)(start, (image.line, image.pixel), from.c, to, apart);
                    continue;
                }
                for e in 0..ELEMENTS {
                    let inside =
                        y.wrapping_add(e / 4) < from.h && column.wrapping_add(e % 4) < from.w;
                    let pixel = start.wrapping_add(e / 4 * image.line + e % 4 * image.pixel);
                    let pixel = if inside { pixel } else { zeros };
                    std::ptr::copy_nonoverlapping(pixel, edge.add(e * from.c), from.c);
                }
                (transforms.spread)(edge, (4 * from.c, from.c), from.c, to, apart);
            }
        }
        for e in 0..ELEMENTS {
            let sub = Subproblem {
                layer,
                rows: e * rows..(e + 1) * rows,
                records: count,
                x: room.wrapping_add(e * apart),
                x_stride: from.c,
                runs: None,
                // The kernel adds the row to the address, so the first row of the element is
                // subtracted.
                result: sums.wrapping_add(e * apart_result).wrapping_sub(e * rows),
                result_stride: rows,
            };
            // SAFETY: the caller's promise; there is room for the sums.
            unsafe { (kernels.affine)(&sub) };
        }
        for n in 0..count {
            let (y, column) = ((first + n) / columns * 2, (first + n) % columns * 2);
            let at = result.wrapping_add(output.first + y * output.line + column * output.pixel);
            let size = ((to.h - y).min(2), (to.w - column).min(2));
            let steps = (output.line, output.pixel);
            // SAFETY: pixels of the result, as many channels as it has rows; the sums are there.
            unsafe {
                let limits = bounded.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
                let pixels = Pixels {
                    first: at,
                    steps,
                    size,
                };
                (transforms.gather)(
                    sums.wrapping_add(n * rows),
                    apart_result,
                    rows,
                    pixels,
                    limits,
                );
                for i in 0..if bounded.is_none() {
                    size.0 * size.1
                } else {
                    0
                } {
                    let at = at.wrapping_add(i / size.1 * steps.0 + i % size.1 * steps.1);
                    (kernels.activate)(activation, at, rows);
                }
            }
        }
        first += count;
    }
}

/// The range of window columns (or rows) inside an image of `n` pixels, for a window that begins at
/// pixel `at` − `border`.
fn inside(at: usize, border: usize, dilation: usize, size: usize, n: usize) -> Range<usize> {
    let first = if at < border {
        (border - at).div_ceil(dilation)
    } else {
        0
    };
    let end = size.min((border + n).saturating_sub(at).div_ceil(dilation));
    first.min(end)..end
}

/// Computes some lines of a step that treats each channel by itself: pooling and depthwise
/// convolutions.
///
/// SAFETY: as `convolve`. Weights of each window element and biases exist for all written channels.
pub(super) unsafe fn windows(
    kernels: &Kernels,
    operation: WindowOp,
    (weights, biases): (*const f32, *const f32),
    geometry: &Geometry,
    activation: Activation,
    lines: Range<usize>,
    (x, result): (*const f32, *mut f32),
) {
    let ((input, from), (output, to), window) = (geometry.input, geometry.output, &geometry.window);
    let (border, size, stride) = (window.border, window.size, window.stride);
    let whole =
        |border: usize, n: usize, (size, dilation): (usize, usize), stride: usize, count: usize| {
            let end = (border + n + stride).saturating_sub((size - 1) * dilation + 1) / stride;
            (border.div_ceil(stride), end.min(count))
        };
    let columns = whole(
        border.left,
        from.w,
        (size.1, window.dilation.1),
        stride.1,
        to.w,
    );
    // Lines whose windows are inside the image with all their rows share loaded weights, if a line
    // has too few pixels to share them. Lines at distances of whole pages (1024 values) are
    // excluded, because they would compete for one set of the cache.
    let alike = whole(
        border.top,
        from.h,
        (size.0, window.dilation.0),
        stride.0,
        to.h,
    );
    let alike = if operation == WindowOp::Products
        && kernels.takes_lines
        && to.w < 8
        && input.line % 1024 != 0
    {
        lines.start.max(alike.0)..lines.end.min(alike.1)
    } else {
        0..0
    };
    let mut y = lines.start;
    while y < lines.end {
        let mut count = 1;
        if alike.contains(&y) {
            count = together(alike.end - y, alike.len());
            y = y.min(alike.end - count);
        }
        let top = y * stride.0;
        let turns = inside(top, border.top, window.dilation.0, size.0, from.h);
        let room = (border.top + from.h + border.bottom - top).div_ceil(window.dilation.0);
        let line = Line {
            operation,
            x: x.wrapping_add(input.first),
            x_steps: (input.pixel, input.line),
            width: from.w,
            top: (top + turns.start * window.dilation.0).saturating_sub(border.top),
            turns: (turns.start, turns.end),
            columns: size.1,
            stride: stride.1,
            dilation: window.dilation,
            left: border.left,
            weights,
            biases,
            lines: count,
            line_steps: (stride.0 * input.line, output.line),
            whole: columns,
            channels: output.pixel,
            real: to.c,
            pixels: to.w,
            result: result.wrapping_add(output.first + y * output.line),
            result_step: output.pixel,
            bounds: bounds(activation).unwrap_or((f32::NEG_INFINITY, f32::INFINITY)),
            bordered: (size.0.min(room), border.left + from.w + border.right),
        };
        // SAFETY: the caller's promise; the pixels of a line are whole vectors, one after the
        // other.
        unsafe {
            (kernels.line)(&line);
            if bounds(activation).is_none() {
                for n in 0..count {
                    let values = line.result.wrapping_add(n * output.line);
                    (kernels.activate)(activation, values, to.w * output.pixel);
                }
            }
        }
        y += count;
    }
}

/// Combines two values element by element, for some lines. The second value may have one pixel for
/// all pixels or for a line.
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
    // Padding may be divided by zero, so it is not computed.
    if second == output && arithmetic != Arithmetic::Divide {
        let (first, end) = (lines.start * output.line, lines.end * output.line);
        let vectors = (end - first) / LANES * LANES;
        let at = output.first + first;
        // SAFETY: the caller's promise.
        unsafe {
            (kernels.combine)(
                arithmetic,
                x.add(at),
                other.add(at),
                result.add(at),
                vectors,
            )
        };
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

/// Applies an activation in place to some lines.
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
    let (first, end) = (
        output.first + lines.start * output.line,
        output.first + lines.end * output.line,
    );
    let vectors = (end - first) / LANES * LANES;
    // SAFETY: the caller's promise.
    unsafe {
        (kernels.activate)(activation, result.add(first), vectors);
        activate_each(
            activation,
            result.add(first + vectors),
            end - first - vectors,
        );
    }
}

/// Computes the softmax over the channels of each pixel, or its logarithm.
///
/// SAFETY: as `convolve`.
pub(super) unsafe fn softmax(
    geometry: &Geometry,
    logarithm: bool,
    lines: Range<usize>,
    (x, result): (*const f32, *mut f32),
) {
    let ((input, _), (output, to)) = (geometry.input, geometry.output);
    let pixel =
        |image: Image, y: usize, column: usize| image.first + y * image.line + column * image.pixel;
    for (y, column) in lines.flat_map(|y| (0..to.w).map(move |column| (y, column))) {
        // SAFETY: the caller's promise.
        let (from, to_pixel) = unsafe {
            let from = std::slice::from_raw_parts(x.add(pixel(input, y, column)), to.c);
            (
                from,
                std::slice::from_raw_parts_mut(result.add(pixel(output, y, column)), output.pixel),
            )
        };
        let most = from.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = from.iter().map(|v| libm::expf(v - most)).sum();
        to_pixel.fill(0.0);
        for (to, &v) in to_pixel.iter_mut().zip(from) {
            let value = if logarithm {
                v - most - libm::logf(sum)
            } else {
                libm::expf(v - most) / sum
            };
            // Adding 0 · v yields NaN after an overflow.
            *to = value + 0.0 * v;
        }
    }
}

/// The end of an image: the row after its last one.
pub(super) fn end(image: Image, shape: Shape) -> usize {
    image.first + (shape.h - 1) * image.line + (shape.w - 1) * image.pixel + shape.c
}
