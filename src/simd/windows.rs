//! The windows of a convolution, as the micro-kernel of affine layers reads them.
//!
//! A convolution runs as a matrix product. The micro-kernel takes the windows of some pixels as its
//! records. A window consists of runs, which are contiguous values of the image. Most runs are not
//! copied. A table has the address of each, and runs in the border point to zeros. Only runs across
//! an edge of the image are copied. Windows of one pixel at stride 1 are used in place, without a
//! table.
//!
//! If the lines of windows are short, such a table would cost too much. The lines of a window are
//! equally far apart, and so are the windows next to each other. So their distances are enough, and
//! for windows in several image lines the address of each. Windows that reach into the border are
//! read from a patch, a copy of the pixels that they cover, with zeros for the border.

use super::buffers::{LINE, Operands, Scratch, value_at};
use super::micro::{Runs, WholeWindows};
use crate::ir::view::Geometry;
use std::ops::Range;

/// The largest number of run addresses in the table, before rounding up to whole micro-tiles. The
/// first-level cache holds these addresses beside the values.
const ADDRESSES: usize = 1024;

/// The largest number of values in a patch, unless a micro-tile of windows needs more. On a 64-bit
/// CPU they take as many bytes as the addresses.
const PATCH: usize = 2048;

/// The largest number of values in a patch for [`MOST_TILE`] windows. Windows with large strides or
/// dilations exceed it. They have a table, because most values of a patch would not be used.
const LARGEST_PATCH: usize = 8192;

/// The largest number of windows in a micro-tile.
const MOST_TILE: usize = 8;

/// The largest number of windows computed at a time, before rounding up to whole micro-tiles. Their
/// results are still in the cache when an activation needs them. A table of windows without the
/// addresses of all runs has as many entries.
const MOST: usize = 256;

/// Windows with lines of fewer values than this are read without a table. With one, the first layer
/// of a network of colour images takes 1.05 to 1.08 times as long.
const SHORT: usize = 32;

/// Returns the number of windows of a convolution to compute at a time, if a table has their runs.
/// It is a multiple of `tile`.
fn at_a_time(geometry: &Geometry, tile: usize) -> usize {
    let most = ADDRESSES / runs(geometry).runs;
    most.clamp(1, MOST).next_multiple_of(tile)
}

/// Returns true if the lines of windows are so short that they are read without a table.
fn short(geometry: &Geometry) -> bool {
    let ((_, from), window) = (geometry.input, &geometry.window);
    let most = patch(geometry, 1, MOST_TILE).max(patch(geometry, MOST_TILE, 1));
    window.dilation.1 == 1 && window.size.1 * from.c < SHORT && most <= LARGEST_PATCH
}

/// Windows of a convolution that are computed together: those in some lines and columns. They are
/// in a single line or column, or have all columns.
struct Piece {
    lines: Range<usize>,
    columns: Range<usize>,
    /// True if the windows are read from the image itself. Then none reaches into the border, and
    /// each line of a window is contiguous.
    in_place: bool,
}

impl Piece {
    /// Windows that are read from a patch.
    fn patch(lines: Range<usize>, columns: Range<usize>) -> Piece {
        Piece {
            lines,
            columns,
            in_place: false,
        }
    }
}

/// Lines of fewer micro-tiles than this are computed together with others, because the last
/// micro-tile of a line is often not full.
const FEW_TILES: usize = 4;

/// How windows without a table are cut into pieces. A patch has at most [`PATCH`] values, unless a
/// micro-tile of windows needs more.
struct Cuts {
    /// The columns and the lines whose windows are inside the image.
    inside_x: Range<usize>,
    inside_y: Range<usize>,
    /// The most windows of a line, and of a column, that are read from a patch.
    across: usize,
    below: usize,
    /// The number of whole lines in a piece, or 1 if lines have enough micro-tiles.
    together: usize,
}

impl Cuts {
    /// The cuts of a convolution that is [`short`], so that no product exceeds a usize of 32 bits.
    fn of(geometry: &Geometry, tile: usize) -> Cuts {
        let ((_, from), (_, to), window) = (geometry.input, geometry.output, &geometry.window);
        let ((rows, columns), (stride_y, stride_x)) = (window.size, window.stride);
        let (border, reach_y) = (window.border, (rows - 1) * window.dilation.0);
        let spare = PATCH.saturating_sub(patch(geometry, 1, 1));
        let across = 1 + spare / (rows_of_patch(geometry, 1) * stride_x * from.c);
        let below = 1 + spare / (stride_y * patch_line(geometry, 1));
        let (line, row) = (patch(geometry, 1, to.w), patch_line(geometry, to.w));
        let lines = 1 + PATCH.saturating_sub(line) / row.saturating_mul(stride_y);
        let narrow = to.w < FEW_TILES * tile && line <= PATCH;
        Cuts {
            inside_x: whole(border.left, from.w, columns - 1, stride_x, to.w),
            inside_y: whole(border.top, from.h, reach_y, stride_y, to.h),
            across: across.max(tile),
            below: below.max(tile),
            together: if narrow { lines.min(MOST / to.w) } else { 1 },
        }
    }
}

/// Cuts windows without a table into pieces.
///
/// Windows inside the image are read in place, line by line. Columns at the edges of the image are
/// pieces of their own, so that the micro-tiles of a line are full. If a line has few micro-tiles,
/// several lines are a piece. Its windows are read in place too, if none reaches into the border.
fn pieces(geometry: &Geometry, tile: usize, pixels: &Range<usize>, compute: impl Fn(Piece)) {
    let (_, to) = geometry.output;
    let Cuts {
        inside_x,
        inside_y,
        across,
        below,
        together,
    } = Cuts::of(geometry, tile);
    let (start, end) = (pixels.start / to.w, pixels.end / to.w);
    let (begin, rest) = (pixels.start - start * to.w, pixels.end - end * to.w);
    let columns_of = |y: usize| {
        let first = if y == start { begin } else { 0 };
        first..if y == end { rest } else { to.w }
    };
    let lines = start..end + usize::from(rest > 0);
    let edges = (0..inside_x.start).chain(inside_x.end..to.w);
    // A column of few lines would be a product of few windows.
    let high = lines.start.max(inside_y.start)..lines.end.min(inside_y.end);
    let in_place = together == 1
        && !inside_x.is_empty()
        && in_lines(geometry)
        && edges.clone().count() <= high.len().max(1);
    let mut y = lines.start;
    while y < lines.end {
        let columns = columns_of(y);
        let mut lines = y..y + 1;
        if together > 1 && columns == (0..to.w) {
            lines.end = end.min(y + together);
            let inside = y >= inside_y.start && lines.end <= inside_y.end;
            y = lines.end;
            compute(Piece {
                lines,
                columns,
                in_place: inside && inside_x == (0..to.w) && in_lines(geometry),
            });
            continue;
        }
        y += 1;
        if in_place && inside_y.contains(&lines.start) {
            let columns = columns.start.max(inside_x.start)..columns.end.min(inside_x.end);
            for first in columns.clone().step_by(MOST) {
                compute(Piece {
                    lines: lines.clone(),
                    columns: first..columns.end.min(first + MOST),
                    in_place,
                });
            }
            continue;
        }
        for first in columns.clone().step_by(across) {
            let columns = first..columns.end.min(first + across);
            compute(Piece::patch(lines.clone(), columns));
        }
    }
    for column in edges.filter(|_| in_place) {
        // The range begins and ends within a line. So its first or last line may not have the
        // column.
        let from = start + usize::from(column < begin);
        let behind = end + usize::from(column < rest);
        let lines = from.max(inside_y.start)..behind.min(inside_y.end);
        for first in lines.clone().step_by(below) {
            let lines = first..lines.end.min(first + below);
            compute(Piece::patch(lines, column..column + 1));
        }
    }
}

/// Returns the number of image lines that a patch for `lines` lines of windows has.
fn rows_of_patch(geometry: &Geometry, lines: usize) -> usize {
    let window = &geometry.window;
    let ((rows, _), (stride, _), (dilation, _)) = (window.size, window.stride, window.dilation);
    (lines - 1).saturating_mul(stride) + (rows - 1) * dilation + 1
}

/// Returns the number of values in each line of a patch for `columns` columns of windows.
fn patch_line(geometry: &Geometry, columns: usize) -> usize {
    let ((_, from), window) = (geometry.input, &geometry.window);
    ((columns - 1) * window.stride.1 + window.size.1).saturating_mul(from.c)
}

/// Returns the number of values in a patch for `lines` lines and `columns` columns of windows.
fn patch(geometry: &Geometry, lines: usize, columns: usize) -> usize {
    // The sizes of a network may exceed a usize of 32 bits.
    rows_of_patch(geometry, lines).saturating_mul(patch_line(geometry, columns))
}

/// Returns true if a line of a window is one run, so its pixels and channels are contiguous.
fn in_lines(geometry: &Geometry) -> bool {
    let ((input, from), (_, dilation)) = (geometry.input, geometry.window.dilation);
    from.c == input.pixel && dilation == 1
}

/// The number and length of the runs that a window consists of. All windows of a convolution have
/// the same.
pub(super) struct WindowRuns {
    runs: usize,
    /// The number of pixels in each run.
    span: usize,
    /// The number of values in each run.
    pub(super) length: usize,
}

/// Returns the number and length of the runs of each window.
pub(super) fn runs(geometry: &Geometry) -> WindowRuns {
    let ((_, from), (rows, columns)) = (geometry.input, geometry.window.size);
    let span = if in_lines(geometry) { columns } else { 1 };
    WindowRuns {
        runs: rows * (columns / span),
        span,
        length: span * from.c,
    }
}

/// Returns the number of floats in the scratch memory of [`convolve`]. The memory holds an address
/// table, and copied runs or a patch.
pub(super) fn scratch(geometry: &Geometry, tile: usize) -> usize {
    if stands(geometry) {
        return 0;
    }
    let ((_, from), (_, to), window) = (geometry.input, geometry.output, &geometry.window);
    if short(geometry) {
        let across = patch(geometry, 1, tile.min(to.w));
        let below = patch(geometry, tile.min(to.h), 1);
        let all = patch(geometry, to.h, to.w);
        return table(1, MOST) + all.min(across.max(below).max(PATCH));
    }
    let (WindowRuns { runs, length, .. }, most) = (runs(geometry), at_a_time(geometry, tile));
    let ((_, columns), (_, stride)) = (window.size, window.stride);
    let across = |x: &usize| {
        let turns = inside(x * stride, window.border.left, 1, columns, from.w).len();
        in_lines(geometry) && (1..columns).contains(&turns)
    };
    let (across, lines) = ((0..to.w).filter(across).count(), to.h.min(most / to.w + 2));
    table(runs, most) + most.min(across * lines) * runs * length
}

/// Returns the size of the address table for `count` windows, in floats. It is rounded up to whole
/// cache lines.
fn table(runs: usize, count: usize) -> usize {
    (runs * count * size_of::<*const f32>() / size_of::<f32>()).next_multiple_of(LINE)
}

/// Returns true if windows can be used in place, because each is a single pixel at stride 1.
pub(super) fn stands(geometry: &Geometry) -> bool {
    let ((input, from), (_, to), window) = (geometry.input, geometry.output, &geometry.window);
    let one = window.size == (1, 1) && window.stride == (1, 1) && to.w == from.w;
    one && to.h == from.h && input.line == from.w * input.pixel
}

/// Windows as the micro-kernel reads them. `x` is the address of the first and `x_stride` their
/// distance, unless the table of `runs` has the address of each.
pub(super) struct Windows {
    pub(super) x: *const f32,
    pub(super) x_stride: usize,
    pub(super) runs: Option<Runs>,
}

/// Some pixels of a result: `count` from pixel `first` on, `apart` from each other.
#[derive(Clone, Copy)]
pub(super) struct Pixels {
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) apart: usize,
}

impl Pixels {
    fn of(range: Range<usize>) -> Pixels {
        Pixels {
            first: range.start,
            count: range.len(),
            apart: 1,
        }
    }
}

/// Computes some pixels of a convolution. `product` multiplies the windows of some pixels, and
/// writes these pixels from an address on. `room` has the size that [`scratch`] returns.
/// `zeros` has the length of a run. `tile` is the number of windows in a micro-tile.
///
/// SAFETY: `x` is valid for the image that `geometry` reads, and no other thread touches the pixels
/// that are written.
pub(super) unsafe fn convolve(
    geometry: &Geometry,
    tile: usize,
    pixels: Range<usize>,
    Operands { x, result }: Operands,
    Scratch { zeros, room }: Scratch,
    product: &dyn Fn(Pixels, Windows, *mut f32),
) {
    let ((input, _), (output, to)) = (geometry.input, geometry.output);
    let result = |first: usize| result.wrapping_add(output.first + first * output.pixel);
    // The lines of the result follow each other without a gap. So the closure `result` only needs
    // the number of a pixel.
    debug_assert_eq!(output.line, to.w * output.pixel);
    if stands(geometry) {
        let windows = Windows {
            x: x.wrapping_add(input.first + pixels.start * input.pixel),
            x_stride: input.pixel,
            runs: None,
        };
        let first = result(pixels.start);
        return product(Pixels::of(pixels), windows, first);
    }
    let table = room.cast::<*const f32>();
    if short(geometry) {
        let place = room.wrapping_add(self::table(1, MOST));
        return pieces(geometry, tile, &pixels, |piece| {
            // SAFETY: the caller's promise.
            let windows = unsafe { read(geometry, &piece, x, place, table) };
            let pixels = Pixels {
                first: piece.lines.start * to.w + piece.columns.start,
                count: piece.lines.len() * piece.columns.len(),
                apart: if piece.columns.len() == 1 { to.w } else { 1 },
            };
            product(pixels, windows, result(pixels.first));
        });
    }
    let mut first = pixels.start;
    let (most, parts) = (at_a_time(geometry, tile), runs(geometry));
    while first < pixels.end {
        let end = pixels.end.min(first + most);
        let spare = room.wrapping_add(self::table(parts.runs, most));
        let scratch = Scratch { zeros, room: spare };
        // SAFETY: the caller's promise.
        unsafe { point(geometry, &parts, first..end, x, scratch, table) };
        let windows = Windows {
            x,
            x_stride: 0,
            runs: Some(Runs {
                table,
                apart: 0,
                length: parts.length,
            }),
        };
        product(Pixels::of(first..end), windows, result(first));
        first = end;
    }
}

/// Computes some pixels of a convolution of integers. `product` multiplies the windows of some
/// whole lines, or of a part of one line. It writes their pixels from an address on. `bytes` says
/// of the operand and of the result if they have bytes.
///
/// SAFETY: as [`convolve`].
pub(super) unsafe fn convolve_whole(
    geometry: &Geometry,
    bytes: [bool; 2],
    pixels: Range<usize>,
    Operands { x, result }: Operands,
    product: &dyn Fn(WholeWindows, *mut f32),
) {
    let ((input, from), (output, to)) = (geometry.input, geometry.output);
    debug_assert_eq!(output.line, to.w * output.pixel);
    let mut first = pixels.start;
    while first < pixels.end {
        let (y, column) = (first / to.w, first % to.w);
        let lines = match column {
            0 => ((pixels.end - first) / to.w).max(1),
            _ => 1,
        };
        let columns = column..to.w.min(column + pixels.end - first);
        let count = lines * columns.len();
        let windows = WholeWindows {
            x: value_at(x.cast_mut(), input.first, bytes[0]).cast_const(),
            bytes: bytes[0],
            pixel: input.pixel,
            line: input.line,
            channels: from.c,
            width: from.w,
            height: from.h,
            window: geometry.window,
            lines: y..y + lines,
            columns,
        };
        let at = output.first + first * output.pixel;
        product(windows, value_at(result, at, bytes[1]));
        first += count;
    }
}

/// Returns the windows of a piece as the micro-kernel reads them: from the image or from a patch,
/// which is made at address `place`. If they are in several lines, their addresses are written to
/// `table`.
///
/// SAFETY: as `convolve`.
unsafe fn read(
    geometry: &Geometry,
    piece: &Piece,
    x: *const f32,
    place: *mut f32,
    table: *mut *const f32,
) -> Windows {
    let ((image, from), window) = (geometry.input, &geometry.window);
    let ((_, columns), (stride_y, stride_x), border) = (window.size, window.stride, window.border);
    let (top, left) = (piece.lines.start * stride_y, piece.columns.start * stride_x);
    let (start, line) = if piece.in_place {
        let at = (top - border.top) * image.line + (left - border.left) * image.pixel;
        (x.wrapping_add(image.first + at), image.line)
    } else {
        // SAFETY: the caller's promise.
        unsafe { fill(geometry, piece, x, place) };
        (
            place.cast_const(),
            patch_line(geometry, piece.columns.len()),
        )
    };
    let (lines, across) = (piece.lines.len(), stride_x * from.c);
    let column = piece.columns.len() == 1;
    let several = lines > 1 && !column;
    if several {
        let mut entry = table;
        for y in 0..lines {
            let line = start.wrapping_add(y * stride_y * line);
            for column in 0..piece.columns.len() {
                // SAFETY: the table has an entry for each window.
                unsafe {
                    *entry = line.wrapping_add(column * across);
                    entry = entry.add(1);
                }
            }
        }
    }
    Windows {
        x: start,
        x_stride: if column { stride_y * line } else { across },
        runs: Some(Runs {
            table: if several { table } else { std::ptr::null() },
            apart: window.dilation.0 * line,
            length: columns * from.c,
        }),
    }
}

/// Copies the image pixels that the windows of a piece cover to `patch`, without gaps, and writes
/// zeros for those in the border.
///
/// SAFETY: as `convolve`. The patch is as large as [`patch`] says.
unsafe fn fill(geometry: &Geometry, piece: &Piece, x: *const f32, patch: *mut f32) {
    let ((image, from), window) = (geometry.input, &geometry.window);
    let ((stride_y, stride_x), border) = (window.stride, window.border);
    let (rows, length) = (
        rows_of_patch(geometry, piece.lines.len()),
        patch_line(geometry, piece.columns.len()),
    );
    let (left, pixels) = (piece.columns.start * stride_x, length / from.c);
    let covered = inside(left, border.left, 1, pixels, from.w);
    let (before, behind) = (covered.start * from.c, (pixels - covered.end) * from.c);
    let column = (left + covered.start).wrapping_sub(border.left);
    let top = (piece.lines.start * stride_y).wrapping_sub(border.top);
    let mut to = patch;
    for n in 0..rows {
        let y = top.wrapping_add(n);
        // SAFETY: the patch has this line; what is covered is inside the image.
        unsafe {
            if y >= from.h {
                zero(to, length);
            } else {
                let at = image.first + y * image.line;
                let line = x.wrapping_add(at.wrapping_add(column.wrapping_mul(image.pixel)));
                zero(to, before);
                if image.pixel == from.c {
                    copy(line, to.add(before), length - before - behind);
                } else {
                    for k in 0..covered.len() {
                        let pixel = line.wrapping_add(k * image.pixel);
                        copy(pixel, to.add(before + k * from.c), from.c);
                    }
                }
                zero(to.add(length - behind), behind);
            }
        }
        to = to.wrapping_add(length);
    }
}

/// Writes the addresses of the runs of all windows of `pixels` to `table`. Run r of pixel n is at
/// index r · pixels + n. Runs across an edge of the image are copied into `scratch`.
///
/// SAFETY: as `convolve`.
unsafe fn point(
    geometry: &Geometry,
    runs: &WindowRuns,
    pixels: Range<usize>,
    x: *const f32,
    mut scratch: Scratch,
    table: *mut *const f32,
) {
    let ((image, from), (_, to), window) = (geometry.input, geometry.output, &geometry.window);
    let ((rows, columns), (stride, _), (dilation, _)) =
        (window.size, window.stride, window.dilation);
    let turns = columns / runs.span;
    let mut first = pixels.start;
    while first < pixels.end {
        let (y, column) = (first / to.w, first % to.w);
        let count = (to.w - column).min(pixels.end - first);
        let top = y * stride;
        let inside_y = inside(top, window.border.top, dilation, rows, from.h);
        for ky in 0..rows {
            let line = (top + ky * dilation)
                .wrapping_sub(window.border.top)
                .wrapping_mul(image.line);
            let line = x.wrapping_add(image.first.wrapping_add(line));
            let line = inside_y.contains(&ky).then_some(line);
            for kx in 0..turns {
                let run = ky * turns + kx;
                let entry = table.wrapping_add(run * pixels.len() + first - pixels.start);
                let columns = column..column + count;
                // SAFETY: the caller's promise.
                scratch.room =
                    unsafe { point_line(geometry, runs, line, kx, columns, scratch, entry) };
            }
        }
        first += count;
    }
}

/// Writes the addresses of one run for the windows in some columns, from `entry` on. The run begins
/// at column `kx` of the window. It is in the image line at address `line`, or in the border if
/// `line` is `None`. Returns the end of the runs that were copied into `spare`.
///
/// SAFETY: as `convolve`.
#[inline(always)]
unsafe fn point_line(
    geometry: &Geometry,
    &WindowRuns { span, length, .. }: &WindowRuns,
    line: Option<*const f32>,
    kx: usize,
    columns: Range<usize>,
    Scratch {
        zeros,
        room: mut spare,
    }: Scratch,
    mut entry: *mut *const f32,
) -> *mut f32 {
    let ((image, from), window) = (geometry.input, &geometry.window);
    let ((_, size), (_, step), (_, dilation)) = (window.size, window.stride, window.dilation);
    // The number of columns at which a run fits into the line, or 0 if the line is in the border.
    // If a run begins left of the image, `at` wraps to a large number, which is never below
    // `whole`. So one comparison tests both edges.
    let whole = line.map_or(0, |_| (from.w + 1).saturating_sub(span));
    let (left, count) = (columns.start * step, columns.end - columns.start);
    let mut at = (left + kx * dilation).wrapping_sub(window.border.left);
    let start = line.unwrap_or(std::ptr::null());
    let mut address = start.wrapping_add(at.wrapping_mul(image.pixel));
    let mut i = 0;
    while i < count {
        let inside_x = if at < whole {
            ((whole - 1 - at) / step + 1).min(count - i)
        } else {
            0
        };
        for _ in 0..inside_x {
            // SAFETY: the table has an entry for each run of each pixel; the run is inside the
            // image.
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
        let covered = inside(left + i * step, window.border.left, 1, size, from.w);
        let nothing = line.is_none() || span == 1 || covered.is_empty();
        // SAFETY: `scratch` has counted these runs; what is covered is inside the image.
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
    spare
}

/// Sets a short run of values to 0. Inline code is faster than a call here.
///
/// SAFETY: `to` is valid for `count` values.
#[inline(always)]
unsafe fn zero(to: *mut f32, count: usize) {
    // SAFETY: the caller's promise.
    (0..count).for_each(|i| unsafe { *to.add(i) = 0.0 });
}

/// Copies a short run of values. Inline code is faster than a call here.
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

/// Returns the columns (or rows) of a window that are inside an image of `n` pixels along that
/// axis. The window begins at pixel `at` − `border`.
pub(super) fn inside(
    at: usize,
    border: usize,
    dilation: usize,
    size: usize,
    n: usize,
) -> Range<usize> {
    let first = if at < border {
        (border - at).div_ceil(dilation)
    } else {
        0
    };
    let end = size.min((border + n).saturating_sub(at).div_ceil(dilation));
    first.min(end)..end
}

/// Returns the windows, among the first `count` along one axis, that are completely inside an image
/// of `n` pixels. `reach` is the distance from the first to the last element of a window.
pub(super) fn whole(
    border: usize,
    n: usize,
    reach: usize,
    stride: usize,
    count: usize,
) -> Range<usize> {
    let end = (border + n + stride).saturating_sub(reach + 1) / stride;
    border.div_ceil(stride)..end.min(count)
}
