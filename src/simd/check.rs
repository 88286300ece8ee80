//! Checks the facts about steps and buffers that the unsafe code relies on.

use super::buffers::LINE;
use super::dense::Dense;
use super::images;
use super::micro::{Kernels, Rescale, WindowOp};
use super::steps::{Action, HostStep, Place};
use crate::ir::graph::Shape;
use crate::ir::taps::{MOST_TAPS, Tap};
use crate::ir::view::{Geometry, Image};
use crate::planner::tiles;

/// Rows of the buffers of a network.
#[derive(Clone, Copy)]
pub(crate) struct BufferRows<'a> {
    /// Rows of the input.
    pub(crate) input: usize,
    /// Rows of each buffer between steps.
    pub(crate) hidden: &'a [usize],
    /// Rows of the scores.
    pub(crate) scores: usize,
}

impl BufferRows<'_> {
    /// The rows of a buffer.
    pub(super) fn of(&self, place: Place) -> usize {
        match place {
            Place::Input => self.input,
            Place::Hidden(i) => self.hidden[i],
            Place::Scores => self.scores,
        }
    }
}

/// # Panics
/// If the condition does not hold.
#[track_caller]
pub(super) fn right(condition: bool) {
    assert!(condition, "steps and buffers do not fit together");
}

/// # Panics
/// If a step would read or write outside its buffers, or breaks another condition of its unsafe
/// code. For example, a convolution must not work in place.
pub(super) fn check(step: &HostStep, rows: BufferRows<'_>, kernels: &Kernels) {
    let (read, written) = (rows.of(step.from), rows.of(step.to));
    let in_place = step.from == step.to;
    match &step.action {
        Action::Affine(dense) => {
            dense.check();
            right(dense.panel % kernels.lanes == 0 && !in_place);
            right(dense.inputs <= read && dense.biases.len() <= written);
            right(rows_fit(dense, kernels));
        }
        Action::Convolution(dense, geometry) => {
            dense.check();
            let ((_, from), (output, to)) = (geometry.input, geometry.output);
            let (height, width) = geometry.window.size;
            right(dense.panel % kernels.lanes == 0 && geometry.groups == 1);
            right(dense.inputs == height * width * from.c);
            right(dense.biases.len() <= output.pixel && output.line == to.w * output.pixel);
            right(rows_fit(dense, kernels));
            image(step, geometry, dense.biases.len(), rows);
            if let Some(addend) = &dense.addend {
                let (count, read) = (dense.biases.len().min(addend.channels), addend.image);
                let all = Shape { c: count, ..to };
                right(kernels.adds && dense.whole.is_none() && dense.rescale.is_none());
                right(addend.channels % kernels.lanes == 0 && addend.place != step.to);
                right(read.line == to.w * read.pixel);
                right(images::end(read, all) <= rows.of(addend.place));
            }
        }
        Action::Tiles(dense, geometry, size) => {
            dense.check();
            let ((_, from), (output, _)) = (geometry.input, geometry.output);
            let rows_of_tile = Action::rows_of_tile(dense, *size);
            right(dense.panel % kernels.lanes == 0 && rows_of_tile % dense.panel == 0);
            right(dense.columns == from.c && dense.inputs == from.c && dense.scales.is_empty());
            right(dense.addend.is_none());
            right(tiles::possible(geometry, rows_of_tile) && from.c % kernels.lanes == 0);
            right(dense.biases.len() == size.elements() * rows_of_tile);
            right(kernels.transforms_of(*size).is_some());
            right(rows_of_tile <= output.pixel && !dense.weights.floats().is_empty());
            image(step, geometry, rows_of_tile, rows);
        }
        Action::Windows {
            operation,
            weights,
            rescale,
            geometry,
            ..
        } => {
            let ((_, from), (output, to)) = (geometry.input, geometry.output);
            let ((height, width), channels) = (geometry.window.size, output.pixel);
            right(channels % LINE == 0 && from.c == to.c);
            let sizes = weights.as_ref().map(|(w, b)| (w.floats().len(), b.len()));
            let expected = (height * width * channels, channels);
            right(sizes == (*operation == WindowOp::Products).then_some(expected));
            let all = |r: &Rescale| {
                [&r.factors, &r.summands]
                    .iter()
                    .all(|n| n.len() == channels)
            };
            let scales = rescale.is_none() || *operation == WindowOp::Products;
            right(rescale.as_ref().is_none_or(all) && scales);
            image(step, geometry, channels, rows);
        }
        Action::Combine {
            other, geometry, ..
        } => {
            let ((second, _), (output, to)) = (geometry.input, geometry.output);
            right(whole(output, to) <= written.min(read));
            right(!in_place && step.to != *other && images::end(second, to) <= rows.of(*other));
            // If both operands are laid out alike, the step also combines their padding. So the
            // buffers must contain the padding.
            let all = Shape {
                c: output.pixel,
                ..to
            };
            right(second != output || images::end(second, all) <= rows.of(*other));
        }
        Action::Scale {
            factors,
            biases,
            moves,
            ..
        } => {
            let [end, first, second] = moves.ends();
            right(end <= read.min(written) && !in_place);
            right(first <= factors.len() && second <= biases.as_ref().unwrap_or(factors).len());
        }
        Action::Sum {
            other,
            first,
            count,
            ..
        } => {
            // The step also writes the rows behind the last up to a whole cache line, which belong
            // to no value.
            let least = rows.of(*other).min(read).min(written);
            right(first % LINE == 0 && first + count <= least);
            right(!in_place && step.to != *other);
        }
        Action::Resample { taps, geometry } => {
            let ((input, from), (output, to)) = (geometry.input, geometry.output);
            let inside = |axis: &[Vec<Tap>], size: usize| {
                let few = axis.iter().all(|taps| taps.len() <= MOST_TAPS);
                few && axis.iter().flatten().all(|tap| tap.position < size)
            };
            right(taps.rows.len() == to.h && taps.columns.len() == to.w);
            right(inside(&taps.rows, from.h) && inside(&taps.columns, from.w));
            right(from.c == to.c && to.c <= output.pixel && !in_place);
            right(images::end(input, from) <= read && whole(output, to) <= written);
        }
        Action::Product {
            product,
            other,
            rows: filled,
        } => {
            let [first, second] = product.ends();
            right(first <= read && second <= rows.of(*other) && *filled <= written);
            right(product.len() <= *filled && !in_place && step.to != *other);
        }
        Action::OfChannels { geometry, .. } => {
            let ((input, from), (output, to)) = (geometry.input, geometry.output);
            right(from == to && !in_place);
            right(images::end(input, from) <= read && whole(output, to) <= written);
        }
        Action::Gather { moves, .. } => {
            let [to, from] = moves.ends();
            right(from <= read && to <= written && !in_place);
        }
        Action::Activate(_) => right(in_place),
        Action::ArgMax(outputs) => right((1..=read).contains(outputs)),
    }
}

/// Returns true if the rows that are computed are whole vectors of the layer's rows.
fn rows_fit(dense: &Dense, kernels: &Kernels) -> bool {
    dense.rows % kernels.lanes == 0 && dense.rows <= dense.biases.len()
}

/// # Panics
/// If a step with a window would read or write outside its buffers, or works in place. It writes
/// `written` rows of each pixel.
fn image(step: &HostStep, geometry: &Geometry, written: usize, rows: BufferRows<'_>) {
    let ((input, from), (output, to)) = (geometry.input, geometry.output);
    let all = Shape { c: written, ..to };
    right(step.from != step.to && geometry.window.output(from) == Ok((to.h, to.w)));
    right(images::end(input, from) <= rows.of(step.from));
    right(images::end(output, all) <= rows.of(step.to));
}

/// Returns the end of an image in its buffer, if the pixels are written with their padding.
fn whole(image: Image, shape: Shape) -> usize {
    images::end(
        image,
        Shape {
            c: image.pixel,
            ..shape
        },
    )
}
