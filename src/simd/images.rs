//! Steps on images, one record at a time: convolutions by Winograd tiles, depthwise convolutions,
//! pooling, resampling, softmax and element-wise steps. `windows.rs` has the other convolutions.

use super::buffers::Operands;
use super::micro::winograd::{Pixels, Steps, Transforms, bias_factors};
use super::micro::{
    Affine, Bounds, ChannelWeights, ChannelWindows, Kernels, Line, PAIR, Rescale, Subproblem,
    WindowOp, activate_each, takes_pairs, together,
};
use super::windows::{inside, whole};
use crate::ir::byte_steps::ByteSteps;
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::{Arithmetic, OfChannels};
use crate::ir::taps::{MOST_TAPS, Taps};
use crate::ir::view::{Geometry, Image};
use crate::planner::tiles::TileSize;
use std::ops::Range;

/// A number of floats that the lanes of every instruction set divide.
const LANES: usize = 16;

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
    (activation, rescale, pads): (Activation, Option<&Rescale>, bool),
    lines: Range<usize>,
    Operands { x, result }: Operands,
) {
    let ((input, from), (output, to), window) = (geometry.input, geometry.output, &geometry.window);
    let ((rows, columns), (stride_y, stride_x)) = (window.size, window.stride);
    let ((dilation_y, dilation_x), border) = (window.dilation, window.border);
    let (null, reach) = (std::ptr::null(), (columns - 1) * dilation_x);
    let columns_inside = whole(border.left, from.w, reach, stride_x, to.w);
    let products = operation == WindowOp::Products;
    let pairs = products && kernels.pairs && takes_pairs(window, from.w, to.w);
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
            pads,
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

/// Computes a function of all channels of each pixel, for some lines.
///
/// SAFETY: as `convolve`.
pub(super) unsafe fn of_channels(
    geometry: &Geometry,
    of: OfChannels,
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
        to_pixel.fill(0.0);
        match of {
            OfChannels::Softmax | OfChannels::LogSoftmax => softmax(from, of, to_pixel),
            OfChannels::IntegerSoftmax(factor) => integer_softmax(from, factor.get(), to_pixel),
            OfChannels::ByteSteps => byte_steps(from, to_pixel),
        }
    }
}

/// Computes the softmax of values, or its logarithm.
fn softmax(values: &[f32], of: OfChannels, to: &mut [f32]) {
    let most = largest(values);
    // The sum is an f64. An f32 sum over thousands of classes would be wrong by 1e-4 or more.
    let mut sum = 0.0;
    for (to, v) in to.iter_mut().zip(values) {
        *to = libm::expf(v - most);
        sum += f64::from(*to);
    }
    let (factor, log) = ((1.0 / sum) as f32, libm::log(sum) as f32);
    for (to, v) in to.iter_mut().zip(values) {
        let value = match of == OfChannels::LogSoftmax {
            true => v - most - log,
            false => *to * factor,
        };
        // If v is infinite because of an overflow, adding 0 · v makes the result NaN.
        *to = value + 0.0 * v;
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Rounds values to 8-bit integers, and stores the real numbers that these stand for.
fn byte_steps(values: &[f32], to: &mut [f32]) {
    /// The parts of the values whose ends are found side by side, so that the ends are vectors.
    const PARTS: usize = 16;
    // `f32::min` is no instruction of x86-64, because it returns the other number for NaN.
    let less = |x: f32, y: f32| if x < y { x } else { y };
    let more = |x: f32, y: f32| if x > y { x } else { y };
    let (mut least, mut most) = ([0.0f32; PARTS], [0.0f32; PARTS]);
    let parts = values.chunks_exact(PARTS);
    for (i, &x) in parts.remainder().iter().enumerate() {
        (least[i], most[i]) = (less(x, least[i]), more(x, most[i]));
    }
    for part in parts {
        for i in 0..PARTS {
            (least[i], most[i]) = (less(part[i], least[i]), more(part[i], most[i]));
        }
    }
    for width in [PARTS / 2, PARTS / 4, PARTS / 8, PARTS / 16] {
        for i in 0..width {
            least[i] = less(least[i], least[i + width]);
            most[i] = more(most[i], most[i + width]);
        }
    }
    let steps = ByteSteps::between(least[0], most[0]);
    for (to, &x) in to.iter_mut().zip(values) {
        *to = steps.rounded(x);
    }
}

/// Computes the softmax of values times a factor, as whole numbers of 1/256. Every operation is
/// rounded as LiteRT rounds it ([`OfChannels::IntegerSoftmax`]).
fn integer_softmax(values: &[f32], factor: f32, to: &mut [f32]) {
    let (most, mut sum) = (largest(values), 0.0);
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
