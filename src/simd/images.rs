//! Steps on images, one record at a time: convolutions, pooling, resampling, softmax and
//! element-wise steps.
//!
//! A convolution runs as a matrix product. The micro-kernel of affine layers takes the windows of
//! some pixels as its records. A window consists of runs, which are contiguous values of the image.
//! Most runs are not copied. A table has the address of each, and runs in the border point to
//! zeros. Only runs across an edge of the image are copied. Windows of one pixel at stride 1 are
//! used in place, without a table.
//!
//! If runs are short, windows are copied into strips. A strip has the image values that a column of
//! windows covers, one line below the other. Each window is then a single run, and windows above
//! each other share lines of the strip.

use super::buffers::{Operands, Scratch, value_at};
use super::micro::winograd::{Pixels, Steps, Transforms, bias_factors};
use super::micro::{
    Affine, Bounds, ChannelWeights, ChannelWindows, Kernels, Line, PAIR, Rescale, Runs, Subproblem,
    WholeWindows, WindowOp, activate_each, takes_pairs, together,
};
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::{Arithmetic, SoftmaxOf};
use crate::ir::taps::{MOST_TAPS, Taps};
use crate::ir::view::{Geometry, Image};
use crate::planner::tiles::TileSize;
use std::ops::Range;

/// The largest number of run addresses in the table, before rounding up to whole micro-tiles. The
/// first-level cache holds these addresses beside the values.
const ADDRESSES: usize = 1024;

/// The largest number of values in strips. On a 64-bit CPU they take as many bytes as the
/// addresses.
const STRIPS: usize = 2048;

/// The largest number of windows computed at a time, before rounding up to whole micro-tiles.
const MOST: usize = 256;

/// A number of floats that the lanes of every instruction set divide.
const LANES: usize = 16;

/// Windows with runs of fewer values than this are copied into strips. For such a run, going to the
/// next run costs more than copying it.
const SHORT: usize = 8;

/// Returns the number of windows of a convolution to compute at a time. It is a multiple of `tile`.
fn at_a_time(geometry: &Geometry, tile: usize) -> usize {
    let (_, to) = geometry.output;
    let WindowRuns { runs, length, .. } = runs(geometry);
    // The number of windows is limited by the addresses of their runs, or by the values of their
    // strips. Either may use the same space in the cache.
    let most = if length >= SHORT {
        ADDRESSES / runs
    } else {
        // Each further line of windows needs as many more image lines as the vertical stride.
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

/// Returns the number of image lines that `lines` lines of windows span. The number is rounded up
/// to a multiple of the vertical dilation.
fn strip_lines(geometry: &Geometry, lines: usize) -> usize {
    let window = &geometry.window;
    let ((rows, _), (stride, _), (dilation, _)) = (window.size, window.stride, window.dilation);
    ((lines - 1) * stride + (rows - 1) * dilation + 1).next_multiple_of(dilation)
}

/// Returns the number of values in a strip, the copy of one column of `lines` windows.
fn strip(geometry: &Geometry, lines: usize) -> usize {
    let ((_, from), (_, columns)) = (geometry.input, geometry.window.size);
    strip_lines(geometry, lines) * columns * from.c
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

/// Returns the number of floats in the scratch memory of [`convolve`]. The memory holds the address
/// table and the copied runs or strips.
pub(super) fn scratch(geometry: &Geometry, tile: usize) -> usize {
    if stands(geometry) {
        return 0;
    }
    let (WindowRuns { runs, length, .. }, most) = (runs(geometry), at_a_time(geometry, tile));
    let ((_, from), (_, to), window) = (geometry.input, geometry.output, &geometry.window);
    if length < SHORT {
        let (w, h) = (to.w, to.h);
        // If fewer windows are computed at a time than a line has, they are all in one line.
        let lines = if most < w {
            1
        } else {
            h.min(most.div_ceil(w) + 1)
        };
        return table(1, most) + w.min(most) * strip(geometry, lines);
    }
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
    (runs * count * size_of::<*const f32>() / size_of::<f32>()).next_multiple_of(LANES)
}

/// Returns true if windows can be used in place, because each is a single pixel at stride 1.
pub(super) fn stands(geometry: &Geometry) -> bool {
    let ((input, from), (_, to), window) = (geometry.input, geometry.output, &geometry.window);
    let one = window.size == (1, 1) && window.stride == (1, 1) && to.w == from.w;
    one && to.h == from.h && input.line == from.w * input.pixel
}

/// Windows as the micro-kernel reads them. `x` is the address of the first and `x_stride` their
/// distance, unless `runs` has the addresses of their runs.
pub(super) struct Windows {
    pub(super) x: *const f32,
    pub(super) x_stride: usize,
    pub(super) runs: Option<Runs>,
}

/// Computes some pixels of a convolution. `product` multiplies the windows of a range of pixels,
/// and writes these pixels from an address on. `room` has the size that [`scratch`] returns.
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
    product: &dyn Fn(Range<usize>, Windows, *mut f32),
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
        return product(pixels, windows, first);
    }
    let (most, parts) = (at_a_time(geometry, tile), runs(geometry));
    let WindowRuns { runs, length, .. } = parts;
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
                let strips = room.wrapping_add(self::table(1, most));
                lay(geometry, first..end, x, strips, table);
                runs * length
            } else {
                let spare = room.wrapping_add(self::table(runs, most));
                let scratch = Scratch { zeros, room: spare };
                point(geometry, &parts, first..end, x, scratch, table);
                length
            }
        };
        let windows = Windows {
            x,
            x_stride: 0,
            runs: Some(Runs { table, length }),
        };
        product(first..end, windows, result(first));
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

/// Copies the strips for the windows of `pixels`, column by column, and writes the address of each
/// window to `table`. With vertical dilation d, a window has every d-th image line. The strip has
/// these lines one behind the other.
///
/// SAFETY: as `convolve`.
unsafe fn lay(
    geometry: &Geometry,
    pixels: Range<usize>,
    x: *const f32,
    strips: *mut f32,
    table: *mut *const f32,
) {
    let ((image, from), (_, to), window) = (geometry.input, geometry.output, &geometry.window);
    let ((_, width), (stride_y, stride_x), border) = (window.size, window.stride, window.border);
    let (dilation_y, dilation_x) = window.dilation;
    let (y, end) = (pixels.start / to.w, (pixels.end - 1) / to.w + 1);
    let (first, last) = (pixels.start - y * to.w, pixels.end - (end - 1) * to.w);
    let columns = if end - y == 1 { first..last } else { 0..to.w };
    let (lines, size) = (strip_lines(geometry, end - y), strip(geometry, end - y));
    let (length, apart) = (size / lines, lines / dilation_y);
    let strip = |column: usize| strips.wrapping_add((column - columns.start) * size);
    let top = (y * stride_y).wrapping_sub(border.top);
    let in_lines = in_lines(geometry);
    for column in columns.clone() {
        let left = column * stride_x;
        let covered = inside(left, border.left, dilation_x, width, from.w);
        let (before, behind) = (covered.start * from.c, (width - covered.end) * from.c);
        let at = (left + covered.start * dilation_x).wrapping_sub(border.left);
        let address = x.wrapping_add(image.first.wrapping_add(at.wrapping_mul(image.pixel)));
        let mut to = strip(column);
        for n in (0..dilation_y).flat_map(|n| (n..lines).step_by(dilation_y)) {
            let line = top.wrapping_add(n);
            let address = address.wrapping_add(line.wrapping_mul(image.line));
            // SAFETY: `scratch` has counted the strips; what is covered is inside the image.
            unsafe {
                if line >= from.h {
                    zero(to, length);
                } else if in_lines && before + behind == 0 {
                    copy(address, to, length);
                } else {
                    zero(to, before);
                    if in_lines {
                        copy(address, to.add(before), length - before - behind);
                    } else {
                        for k in 0..covered.len() {
                            let address = address.wrapping_add(k * dilation_x * image.pixel);
                            copy(address, to.add(before + k * from.c), from.c);
                        }
                    }
                    zero(to.add(length - behind), behind);
                }
            }
            to = to.wrapping_add(length);
        }
    }
    // A division for each window would take longer than the copies.
    let (mut entry, mut line, mut part) = (table, 0, 0);
    for i in y..end {
        let from = if i == y { first } else { 0 };
        let behind = if i + 1 == end { last } else { to.w };
        for column in from..behind {
            // SAFETY: the table has an entry for each pixel.
            unsafe {
                *entry = strip(column).wrapping_add((part * apart + line) * length);
                entry = entry.add(1);
            }
        }
        // The next windows are `stride_y` image lines below. A part of the strip has every
        // `dilation_y`-th line.
        part += stride_y;
        while part >= dilation_y {
            (line, part) = (line + 1, part - dilation_y);
        }
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

/// The largest number of floats for transformed values and sums of tiles that are computed at a
/// time. They fill a first-level cache twice, so that one call of the micro-kernel serves many
/// tiles.
const TILES: usize = 1 << 14;

/// Returns the number of Winograd tiles in the smallest share of a thread. Shares are whole
/// micro-tiles with `tile` records. An image of few tiles has shares of half a micro-tile, so that
/// more threads get one.
pub(super) fn tile_unit(geometry: &Geometry, size: TileSize, tile: usize) -> usize {
    if size.count(geometry) < 8 * tile {
        tile.div_ceil(2)
    } else {
        tile
    }
}

/// Returns the number of shares of [`tile_unit`] tiles in an image.
pub(super) fn tile_units(geometry: &Geometry, size: TileSize, tile: usize) -> usize {
    size.count(geometry)
        .div_ceil(tile_unit(geometry, size, tile))
}

/// The smallest number of tiles at a time, unless the image has fewer. Each loaded weight serves
/// all tiles of that time.
const FEWEST_TILES: usize = 16;

/// Returns the number of tiles to compute at a time. It is a multiple of `tile`, the records of a
/// micro-tile. `rows` is the number of channels of the result.
fn tiles_at_a_time(geometry: &Geometry, size: TileSize, rows: usize, tile: usize) -> usize {
    let (_, from) = geometry.input;
    let most = TILES / size.elements() / (from.c + rows);
    most.max(FEWEST_TILES)
        .min(size.count(geometry))
        .next_multiple_of(tile)
}

/// Transforms the weights of a convolution for Winograd tiles. The filters are in panels of `panel`
/// rows with `columns` columns. The result has all rows for the first element of a tile, then all
/// rows for the next.
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

/// Returns the biases of a tile's elements that add `biases` to each pixel. The result has those of
/// all rows for the first element of a tile, then those for the next.
pub(super) fn biases_of_tiles(size: TileSize, biases: &[f32]) -> Vec<f32> {
    let factors = bias_factors(size);
    let products = factors
        .iter()
        .flat_map(|down| factors.iter().map(move |along| down * along));
    products
        .flat_map(|factor| biases.iter().map(move |bias| factor * bias))
        .collect()
}

/// Returns the distance between two elements of `tiles` tiles with `channels` channels, in floats.
/// With a line of the cache between them, the elements of a tile are in different sets of the
/// cache. Without it, for example, all elements of 16 tiles with 64 channels are in one set.
fn element_distance(tiles: usize, channels: usize) -> usize {
    tiles * channels + LANES
}

/// Returns the number of floats in the scratch memory of [`convolve_tiles`].
pub(super) fn tiles_scratch(
    geometry: &Geometry,
    size: TileSize,
    rows: usize,
    tile: usize,
) -> usize {
    let ((_, from), most) = (geometry.input, tiles_at_a_time(geometry, size, rows, tile));
    size.elements() * (element_distance(most, from.c) + element_distance(most, rows) + from.c)
}

/// The matrix products of a convolution by Winograd tiles, as one affine layer without activation.
/// The layer has all rows for the first element of a tile, then all rows for the next.
pub(super) struct TileLayer<'a> {
    pub(super) kernels: &'a Kernels,
    pub(super) transforms: &'a Transforms,
    pub(super) layer: &'a Affine<'a>,
    /// The activation of the convolution. It is applied after the last transform.
    pub(super) activation: Activation,
}

/// Computes some Winograd tiles of a 3 × 3 convolution. `room` has the size that [`tiles_scratch`]
/// returns. The other arguments are those of `convolve`.
///
/// SAFETY: as `convolve`. The layer's rows are the number of a tile's elements times at most the
/// result's channels, and its inputs are the image's channels.
pub(super) unsafe fn convolve_tiles(
    layer: &TileLayer<'_>,
    geometry: &Geometry,
    tiles: Range<usize>,
    Operands { x, result }: Operands,
    room: *mut f32,
) {
    let (size, (_, from)) = (layer.transforms.size, geometry.input);
    let rows = layer.layer.biases.len() / size.elements();
    let most = tiles_at_a_time(geometry, size, rows, layer.kernels.tile_records);
    let mut first = tiles.start;
    while first < tiles.end {
        let count = most.min(tiles.end - first);
        let apart = element_distance(count, from.c);
        let sums_apart = element_distance(count, rows);
        let sums = room.wrapping_add(size.elements() * apart);
        let some = SomeTiles {
            geometry,
            size,
            first,
            count,
            rows,
            elements: room,
            apart,
            sums,
            sums_apart,
            edge: sums.wrapping_add(size.elements() * sums_apart),
        };
        // SAFETY: the caller's promise. `tiles_scratch` has counted the elements, the sums and one
        // tile.
        unsafe {
            some.spread(layer.transforms, x);
            some.multiply(layer);
            some.gather(layer, result);
        }
        first += count;
    }
}

/// The Winograd tiles that are computed at a time, and their scratch memory. A block of the memory
/// has one element of all these tiles.
struct SomeTiles<'a> {
    geometry: &'a Geometry,
    size: TileSize,
    first: usize,
    count: usize,
    /// The number of channels of the result. Each element of a tile has a sum for each channel.
    rows: usize,
    /// The transformed image, in one block for each element of a tile.
    elements: *mut f32,
    /// The distance between blocks in `elements`, in floats.
    apart: usize,
    /// The sums over the input channels. Each element of a tile has a block, with the sums of all
    /// tiles and result channels.
    sums: *mut f32,
    /// The distance between blocks in `sums`, in floats.
    sums_apart: usize,
    /// Memory for the pixels of a tile that reaches outside the image.
    edge: *mut f32,
}

impl SomeTiles<'_> {
    /// Returns the line and column of the first result pixel of tile `n`, counted from `first`.
    #[inline(always)]
    fn position(&self, n: usize) -> (usize, usize) {
        let ((_, to), n) = (self.geometry.output, self.first + n);
        let pixels = self.size.pixels();
        let columns = to.w.div_ceil(pixels);
        (n / columns * pixels, n % columns * pixels)
    }

    /// Transforms the image pixels of each tile into its elements. If a tile reaches outside the
    /// image, its pixels are first copied to `edge`, with zeros for pixels outside.
    ///
    /// SAFETY: as `convolve_tiles`.
    #[inline(always)]
    unsafe fn spread(&self, transforms: &Transforms, x: *const f32) {
        let ((image, from), border) = (self.geometry.input, self.geometry.window.border);
        let side = self.size.side();
        for n in 0..self.count {
            let position = self.position(n);
            let (y, column) = (
                position.0.wrapping_sub(border.top),
                position.1.wrapping_sub(border.left),
            );
            let start = image.first.wrapping_add(y.wrapping_mul(image.line));
            let start = x.wrapping_add(start.wrapping_add(column.wrapping_mul(image.pixel)));
            let to = self.elements.wrapping_add(n * from.c);
            let whole = |at: usize, n: usize| at < n.saturating_sub(side - 1);
            // SAFETY: the pixels are in the image, or were copied to `edge`.
            unsafe {
                if whole(y, from.h) && whole(column, from.w) {
                    (transforms.spread)(start, image.into(), from.c, to, self.apart);
                    continue;
                }
                self.copy_pixels(position, start);
                let steps = Steps {
                    line: side * from.c,
                    pixel: from.c,
                };
                (transforms.spread)(self.edge, steps, from.c, to, self.apart);
            }
        }
    }

    /// Copies the pixels of the tile at a position to `edge`, with zeros for pixels outside the
    /// image. `start` is the address at which the first pixel is or would be.
    ///
    /// SAFETY: as `convolve_tiles`.
    #[inline(always)]
    unsafe fn copy_pixels(&self, (y, x): (usize, usize), start: *const f32) {
        let ((image, from), border) = (self.geometry.input, self.geometry.window.border);
        let side = self.size.side();
        let lines = inside(y, border.top, 1, side, from.h);
        let columns = inside(x, border.left, 1, side, from.w);
        for i in 0..side {
            let to = self.edge.wrapping_add(i * side * from.c);
            // SAFETY: `edge` has room for all pixels, and those that are read are in the image.
            unsafe {
                if !lines.contains(&i) || columns.is_empty() {
                    to.write_bytes(0, side * from.c);
                    continue;
                }
                to.write_bytes(0, columns.start * from.c);
                let line = start.wrapping_add(i * image.line);
                if image.pixel == from.c {
                    let first = columns.start * from.c;
                    let pixels = line.wrapping_add(first);
                    std::ptr::copy_nonoverlapping(pixels, to.add(first), columns.len() * from.c);
                } else {
                    for j in columns.clone() {
                        let pixel = line.wrapping_add(j * image.pixel);
                        std::ptr::copy_nonoverlapping(pixel, to.add(j * from.c), from.c);
                    }
                }
                let behind = to.add(columns.end * from.c);
                behind.write_bytes(0, (side - columns.end) * from.c);
            }
        }
    }

    /// Computes the sums. For each element they are the matrix product of all tiles with the
    /// transformed weights.
    ///
    /// SAFETY: as `convolve_tiles`.
    #[inline(always)]
    unsafe fn multiply(&self, layer: &TileLayer<'_>) {
        let ((_, from), rows) = (self.geometry.input, self.rows);
        for e in 0..self.size.elements() {
            let sums = self.sums.wrapping_add(e * self.sums_apart);
            let sub = Subproblem {
                layer: layer.layer,
                rows: e * rows..(e + 1) * rows,
                records: self.count,
                x: self.elements.wrapping_add(e * self.apart),
                x_stride: from.c,
                runs: None,
                // The kernel adds its row number to the result's address, so the first row of this
                // element is subtracted here.
                result: sums.wrapping_sub(e * rows),
                result_stride: rows,
                added: None,
            };
            // SAFETY: the caller's promise; there is room for the sums.
            unsafe { (layer.kernels.affine)(&sub) };
        }
    }

    /// Transforms the sums of each tile into pixels of the result, and applies the activation.
    ///
    /// SAFETY: as `convolve_tiles`.
    #[inline(always)]
    unsafe fn gather(&self, layer: &TileLayer<'_>, result: *mut f32) {
        let ((output, to), rows) = (self.geometry.output, self.rows);
        let bounds = Bounds::of(layer.activation);
        for n in 0..self.count {
            let (y, column) = self.position(n);
            let pixels = Pixels {
                first: result.wrapping_add(output.first + y * output.line + column * output.pixel),
                steps: output.into(),
                lines: (to.h - y).min(self.size.pixels()),
                columns: (to.w - column).min(self.size.pixels()),
            };
            let sums = self.sums.wrapping_add(n * rows);
            // SAFETY: the pixels are in the result, and have as many channels as there are rows.
            // The sums were computed.
            unsafe {
                let limits = bounds.unwrap_or(Bounds::NONE);
                (layer.transforms.gather)(sums, self.sums_apart, rows, pixels, limits);
                if bounds.is_none() {
                    for i in 0..pixels.lines * pixels.columns {
                        let (line, column) = (i / pixels.columns, i % pixels.columns);
                        let at = line * output.line + column * output.pixel;
                        let values = pixels.first.wrapping_add(at);
                        (layer.kernels.activate)(layer.activation, values, rows);
                    }
                }
            }
        }
    }
}

/// Returns the columns (or rows) of a window that are inside an image of `n` pixels along that
/// axis. The window begins at pixel `at` − `border`.
fn inside(at: usize, border: usize, dilation: usize, size: usize, n: usize) -> Range<usize> {
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
fn whole(border: usize, n: usize, reach: usize, stride: usize, count: usize) -> Range<usize> {
    let end = (border + n + stride).saturating_sub(reach + 1) / stride;
    border.div_ceil(stride)..end.min(count)
}

/// Returns those of `lines` that can be computed together, so that they share loaded weights. All
/// rows of their windows are inside the image. The range is empty if a line has 8 pixels or more,
/// because these share weights among themselves. It is also empty if lines are whole pages (1024
/// floats) apart, because such lines compete for the same cache set.
fn lines_alike(geometry: &Geometry, lines: &Range<usize>) -> Range<usize> {
    let ((input, from), (_, to), window) = (geometry.input, geometry.output, &geometry.window);
    let ((rows, _), (stride, _), (dilation, _)) = (window.size, window.stride, window.dilation);
    let reach = (rows - 1) * dilation;
    if to.w >= 8 || input.line % 1024 == 0 {
        return 0..0;
    }
    let alike = whole(window.border.top, from.h, reach, stride, to.h);
    lines.start.max(alike.start)..lines.end.min(alike.end)
}

/// Returns the first line and the number of lines that are computed next, if `left` are not yet
/// computed. `pairs` says that two lines can be computed together, and `alike` which share weights.
fn next_lines(left: Range<usize>, pairs: bool, alike: &Range<usize>) -> (usize, usize) {
    if pairs && left.len() >= PAIR {
        return (left.start, PAIR);
    }
    if !alike.contains(&left.start) {
        return (left.start, 1);
    }
    let count = together(alike.end - left.start, alike.len());
    (left.start.min(alike.end - count), count)
}

/// Computes some lines of a step that handles each channel separately: a pooling or a depthwise
/// convolution.
///
/// SAFETY: as `convolve`. Weights of each window element and biases exist for all written channels.
pub(super) unsafe fn windows(
    kernels: &Kernels,
    operation: WindowOp,
    (weights, biases): (*const f32, *const f32),
    geometry: &Geometry,
    (activation, rescale): (Activation, Option<&Rescale>),
    lines: Range<usize>,
    Operands { x, result }: Operands,
) {
    let ((input, from), (output, to), window) = (geometry.input, geometry.output, &geometry.window);
    let ((rows, columns), (stride_y, stride_x)) = (window.size, window.stride);
    let ((dilation_y, dilation_x), border) = (window.dilation, window.border);
    let (null, reach) = (std::ptr::null(), (columns - 1) * dilation_x);
    let columns_inside = whole(border.left, from.w, reach, stride_x, to.w);
    let products = operation == WindowOp::Products;
    let pairs = products && kernels.pairs && takes_pairs(window, to.w);
    let alike = if products && kernels.takes_lines {
        lines_alike(geometry, &lines)
    } else {
        0..0
    };
    let mut y = lines.start;
    while y < lines.end {
        let count;
        (y, count) = next_lines(y..lines.end, pairs, &alike);
        let (top, further) = (y * stride_y, if count == PAIR { stride_y } else { 0 });
        let turns = inside(top, border.top, dilation_y, rows + further, from.h);
        let room = (border.top + from.h + border.bottom - top).div_ceil(dilation_y);
        let line = Line {
            operation,
            x: x.wrapping_add(input.first),
            x_pixel: input.pixel,
            x_line: input.line,
            width: from.w,
            top: (top + turns.start * dilation_y).saturating_sub(border.top),
            turns,
            columns,
            stride: stride_x,
            dilation: window.dilation,
            left: border.left,
            weights,
            biases,
            lines: count,
            next_windows: stride_y * input.line,
            next_result: output.line,
            whole: columns_inside.clone(),
            channels: output.pixel,
            real: to.c,
            pixels: to.w,
            result: result.wrapping_add(output.first + y * output.line),
            result_step: output.pixel,
            factors: rescale.map_or(null, |r| r.factors.as_ptr()),
            summands: rescale.map_or(null, |r| r.summands.as_ptr()),
            rounds: rescale.is_some_and(|r| r.rounds),
            bounds: rescale.map_or(Bounds::of(activation).unwrap_or(Bounds::NONE), |r| r.bounds),
            bordered_rows: rows.min(room),
            bordered_width: border.left + from.w + border.right,
        };
        // SAFETY: the caller's promise; the pixels of a line are whole vectors, one after the
        // other.
        unsafe {
            (kernels.line)(&line);
            if Bounds::of(activation).is_none() {
                activate_lines(kernels, &line, activation);
            }
        }
        y += count;
    }
}

/// Computes some lines of a depthwise convolution of bytes.
///
/// SAFETY: as `convolve`. The weights are those of [`bytes::check`](super::bytes::check).
pub(super) unsafe fn channels(
    weights: &ChannelWeights,
    geometry: &Geometry,
    lines: Range<usize>,
    Operands { x, result }: Operands,
) {
    let ((input, from), (output, to)) = (geometry.input, geometry.output);
    let windows = ChannelWindows {
        weights,
        x: x.cast::<u8>().wrapping_add(input.first),
        x_pixel: input.pixel,
        x_line: input.line,
        width: from.w,
        height: from.h,
        window: geometry.window,
        result: result.cast::<u8>().wrapping_add(output.first),
        pixel: output.pixel,
        line: output.line,
        columns: to.w,
        lines,
    };
    // SAFETY: the caller's promise.
    unsafe { (weights.kernel)(&windows) }
}

/// Applies an activation in place to lines of the result.
///
/// SAFETY: as [`windows`], for the lines.
unsafe fn activate_lines(kernels: &Kernels, line: &Line, activation: Activation) {
    for n in 0..line.lines {
        let values = line.result.wrapping_add(n * line.next_result);
        // SAFETY: the caller's promise. The pixels of a line follow each other without a gap.
        unsafe { (kernels.activate)(activation, values, line.pixels * line.result_step) }
    }
}

/// Combines two values element by element, for some lines. The second value may have one pixel for
/// all pixels, or one pixel for each line.
///
/// SAFETY: as `convolve`.
pub(super) unsafe fn combine(
    kernels: &Kernels,
    arithmetic: Arithmetic,
    geometry: &Geometry,
    lines: Range<usize>,
    Operands { x, result }: Operands,
    other: *const f32,
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
                // Adding 0 · p and 0 · q makes the result NaN if p or q is NaN or infinite. `max`
                // and `min` alone would hide such values.
                Arithmetic::Maximum => p.max(q) + 0.0 * p + 0.0 * q,
                Arithmetic::Minimum => p.min(q) + 0.0 * p + 0.0 * q,
                Arithmetic::RoundedSum { .. } => arithmetic.apply(p.into(), q.into()) as f32,
            };
        }
    };
    // This fast path also computes padding. A division cannot use it, since 0 / 0 in padding would
    // be NaN.
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

/// Applies an activation in place to some lines of the result.
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
    let (output, _) = geometry.output;
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

/// Resamples some lines. Each result pixel is the weighted sum of the pixels at its row's and
/// column's taps, channel by channel. A pixel with a single tap of weight 1 is copied.
///
/// SAFETY: as `convolve`. The taps are inside the image that is read.
pub(super) unsafe fn resample(
    taps: &Taps,
    geometry: &Geometry,
    lines: Range<usize>,
    Operands { x, result }: Operands,
) {
    let ((input, _), (output, to)) = (geometry.input, geometry.output);
    // For each pixel that is read, its index in `x` and its weight.
    let mut terms = [(0, 0.0); MOST_TAPS * MOST_TAPS];
    for (y, column) in lines.flat_map(|y| (0..to.w).map(move |column| (y, column))) {
        let mut count = 0;
        for row in &taps.rows[y] {
            let line = input.first + row.position * input.line;
            for along in &taps.columns[column] {
                let place = line + along.position * input.pixel;
                terms[count] = (place, row.weight * along.weight);
                count += 1;
            }
        }
        let at = output.first + y * output.line + column * output.pixel;
        // SAFETY: the caller's promise.
        let pixel = unsafe { std::slice::from_raw_parts_mut(result.add(at), output.pixel) };
        let (pixel, padding) = pixel.split_at_mut(to.c);
        padding.fill(0.0);
        // SAFETY: the caller's promise.
        let read = |place: usize| unsafe { std::slice::from_raw_parts(x.add(place), to.c) };
        match terms[..count] {
            [(place, 1.0)] => pixel.copy_from_slice(read(place)),
            ref terms => weighted_sum(pixel, terms, read),
        }
    }
}

/// Adds up weighted pixels. The sums of [`LANES`] channels at a time stay in registers.
#[inline(always)]
fn weighted_sum<'x>(pixel: &mut [f32], terms: &[(usize, f32)], read: impl Fn(usize) -> &'x [f32]) {
    let mut vectors = pixel.chunks_exact_mut(LANES);
    let mut first = 0;
    for to in &mut vectors {
        let mut sums = [0.0; LANES];
        for &(place, weight) in terms {
            let from = &read(place)[first..first + LANES];
            for (sum, v) in sums.iter_mut().zip(from) {
                *sum += weight * v;
            }
        }
        to.copy_from_slice(&sums);
        first += LANES;
    }
    for (c, to) in vectors.into_remainder().iter_mut().enumerate() {
        let term = |&(place, weight): &(usize, f32)| weight * read(place)[first + c];
        *to = terms.iter().map(term).sum();
    }
}

/// Computes the softmax over the channels of each pixel, for some lines.
///
/// SAFETY: as `convolve`.
pub(super) unsafe fn softmax(
    geometry: &Geometry,
    of: SoftmaxOf,
    lines: Range<usize>,
    Operands { x, result }: Operands,
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
        to_pixel.fill(0.0);
        if let SoftmaxOf::Integers(factor) = of {
            integer_softmax(from, most, factor.get(), to_pixel);
            continue;
        }
        // The sum is an f64. An f32 sum over thousands of classes would be wrong by 1e-4 or more.
        let mut sum = 0.0;
        for (to, v) in to_pixel.iter_mut().zip(from) {
            *to = libm::expf(v - most);
            sum += f64::from(*to);
        }
        let (factor, log) = ((1.0 / sum) as f32, libm::log(sum) as f32);
        for (to, v) in to_pixel.iter_mut().zip(from) {
            let value = match of {
                SoftmaxOf::Logarithm => v - most - log,
                SoftmaxOf::Linear | SoftmaxOf::Integers(_) => *to * factor,
            };
            // If v is infinite because of an overflow, adding 0 · v makes the result NaN.
            *to = value + 0.0 * v;
        }
    }
}

/// Computes the softmax of values times a factor, as whole numbers of 1/256. `most` is the largest
/// value. Every operation is rounded as LiteRT rounds it ([`SoftmaxOf::Integers`]).
fn integer_softmax(values: &[f32], most: f32, factor: f32, to: &mut [f32]) {
    let mut sum = 0.0;
    for (to, v) in to.iter_mut().zip(values) {
        *to = libm::exp(f64::from(factor * (v - most))) as f32;
        sum += *to;
    }
    let reciprocal = 1.0 / sum;
    for (to, v) in to.iter_mut().zip(values) {
        let value = (256.0 * (*to * reciprocal) + 0.5).floor();
        // `min` would make 255 of NaN. If v is infinite because of an overflow, adding 0 · v makes
        // the result NaN.
        let limited = if value > 255.0 { 255.0 } else { value };
        *to = limited + 0.0 * v;
    }
}

/// Returns the end of an image in its buffer: the index after its last value, without padding.
pub(super) fn end(image: Image, shape: Shape) -> usize {
    image.first + (shape.h - 1) * image.line + (shape.w - 1) * image.pixel + shape.c
}
