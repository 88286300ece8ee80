//! Models of 8-bit integers, whose values are whole numbers. The scaling behind a layer becomes
//! part of the layer's step. Layers whose values and weights are small whole numbers get kernels
//! for them. The values are floats, or bytes in the buffers that [`bytes`] chooses.

use super::buffers::LINE;
use super::bytes;
use super::check::BufferRows;
use super::dense::Dense;
use super::images;
use super::micro::{
    Aligned, Bounds, Bytes, Kernels, ROOM, Rescale, SumNumbers, WholeKernels, WholeWeights,
    WholeWindows, interleave,
};
use super::steps::{Action, Finish, HostStep, Place};
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::{Arithmetic, Window};
use std::ops::Range;

#[cfg(test)]
mod tests;

/// A layer as the kernels for whole numbers take it.
pub(crate) struct WholeLayer {
    pub(super) kernels: WholeKernels,
    pub(super) weights: WholeWeights,
    /// Changes no sum but clamps it to the bounds of the layer's activation, if the activation has
    /// any. For layers without a scaling.
    pub(super) unscaled: Rescale,
    /// True if the operand has bytes, counted from the weights' `low`. False for floats.
    pub(super) reads_bytes: bool,
    /// How results are stored as bytes. `None` for floats.
    pub(super) bytes: Option<Bytes>,
}

/// Biases are below this number, positive or negative. With the products of [`ROOM`] groups
/// it stays below 2³¹.
pub(super) const MOST_BIAS: f32 = (1 << 30) as f32;

/// Adds scalings to the layers before them, and gives layers of whole numbers their kernels.
/// Networks of floats have no step that rounds, and stay as they are.
pub(super) fn prepare(steps: &mut [HostStep], rows: BufferRows<'_>, floats: &Kernels) {
    let rounds = |s: &HostStep| match &s.action {
        Action::Scale { finish, .. } => finish.rounds,
        Action::Combine { arithmetic, .. } => arithmetic.rounds(),
        _ => false,
    };
    if !steps.iter().any(rounds) {
        return;
    }
    for i in 1..steps.len() {
        join(steps, i, rows);
    }
    // Threads share rows in whole vectors of the kernels for floats.
    let fits = |k: &WholeKernels| floats.lanes % k.lanes == 0;
    let kernels: Vec<WholeKernels> = WholeKernels::all().filter(fits).collect();
    let mut contents = Contents::default();
    for step in &mut *steps {
        sum(step);
        let read = contents.of(step.from);
        let (dense, window) = match &mut step.action {
            Action::Affine(dense) => (dense, Window::of((1, 1))),
            Action::Convolution(dense, geometry) => (dense, geometry.window),
            _ => {
                contents.write(step);
                continue;
            }
        };
        let mut fitting = kernels.iter();
        dense.whole = read.and_then(|v| fitting.find_map(|k| layer(dense, &window, k, &v)));
        contents.write(step);
    }
    bytes::choose(steps, rows);
}

/// Makes the scaling in step `i` part of the layer in the step before. Step `i` then does nothing.
fn join(steps: &mut [HostStep], i: usize, rows: BufferRows<'_>) {
    let between = steps[i].from;
    let others = steps.iter().enumerate();
    let mut others = others.filter(|&(n, s)| n != i && n + 1 != i && s.touches(between));
    let (layer, to) = (&steps[i - 1], steps[i].to);
    let alone = matches!(between, Place::Hidden(_)) && others.next().is_none();
    if !alone || layer.to != between || layer.from == to || to == between {
        return;
    }
    let Some((rescale, end)) = scaling(&layer.action, &steps[i].action) else {
        return;
    };
    if end > rows.of(to) {
        return;
    }
    match &mut steps[i - 1].action {
        Action::Affine(dense) | Action::Convolution(dense, _) => dense.rescale = Some(rescale),
        Action::Windows { rescale: of, .. } => *of = Some(rescale),
        _ => return,
    }
    steps[i - 1].to = to;
    steps[i].from = to;
    steps[i].action = Action::Activate(Activation::None);
}

/// Gives a rounded sum of two values that are laid out alike the step for it. The others stay as
/// they are.
fn sum(step: &mut HostStep) {
    let &mut Action::Combine {
        arithmetic: Arithmetic::RoundedSum { a, b },
        other,
        finish,
        geometry,
    } = &mut step.action
    else {
        return;
    };
    let ((second, _), (output, to)) = (geometry.input, geometry.output);
    // Padding of zeros has to stay 0.
    let keeps_zero = |b: &Bounds| (b.least..=b.largest).contains(&0.0);
    let bounds = Bounds::of(finish.activation).filter(keeps_zero);
    let dense = output.line == to.w * output.pixel && output.first % LINE == 0;
    if let Some(bounds) = bounds.filter(|_| dense && second == output) {
        step.action = Action::Sum {
            other,
            numbers: SumNumbers::of([a, b], bounds),
            first: output.first,
            count: output.line * to.h,
            bytes: None,
        };
    }
}

/// The rows that a layer writes.
struct Written {
    activation: Activation,
    /// The first row of the first pixel.
    first: usize,
    /// The channels of a pixel, without padding and with it. An affine layer has no channels, and
    /// one pixel.
    channels: Option<usize>,
    padded: usize,
    pixels: usize,
    /// The end of the rows.
    end: usize,
}

impl Written {
    /// `None` for steps that no scaling joins.
    fn by(layer: &Action) -> Option<Written> {
        let (activation, geometry, rows) = match layer {
            Action::Affine(dense) => {
                let rows = dense.biases.len();
                return Some(Written {
                    activation: dense.activation,
                    first: 0,
                    channels: None,
                    padded: rows,
                    pixels: 1,
                    end: rows,
                });
            }
            Action::Convolution(dense, geometry) => {
                (dense.activation, geometry, Some(dense.biases.len()))
            }
            Action::Windows {
                weights: Some(_),
                activation,
                geometry,
                ..
            } => (*activation, geometry, None),
            _ => return None,
        };
        let (image, shape) = geometry.output;
        let all = Shape {
            c: image.pixel,
            ..shape
        };
        let written = Written {
            activation,
            first: image.first,
            channels: Some(shape.c),
            padded: image.pixel,
            pixels: shape.w * shape.h,
            end: images::end(image, all),
        };
        rows.is_none_or(|rows| rows == image.pixel)
            .then_some(written)
    }
}

/// Returns the scaling of a layer's sums by the step behind it, and the end of the rows that the
/// layer writes. `None` if the steps cannot be one.
fn scaling(layer: &Action, step: &Action) -> Option<(Rescale, usize)> {
    let Action::Scale {
        factors,
        biases: Some(summands),
        moves,
        finish,
    } = step
    else {
        return None;
    };
    let written = Written::by(layer)?;
    let channels = written.channels.unwrap_or(moves.len());
    let bounds = Bounds::of(finish.activation)?;
    // Padding of zeros has to stay 0.
    let keeps_zero = (bounds.least..=bounds.largest).contains(&0.0);
    let fits = channels <= written.padded && moves.len() == channels * written.pixels;
    if written.activation != Activation::None || !keeps_zero || !fits {
        return None;
    }
    let [of_factors, of_summands] = moves.of_channels(written.first, channels)?;
    let spread = |values: &[f32], (first, step): (usize, usize)| {
        let mut all = vec![0.0; written.padded];
        let channels = all[..channels].iter_mut().enumerate();
        channels.for_each(|(c, to)| *to = values[first + c * step]);
        all
    };
    let rescale = Rescale {
        factors: spread(factors, of_factors),
        summands: spread(summands, of_summands),
        rounds: finish.rounds,
        bounds,
    };
    Some((rescale, written.end))
}

/// Returns the layer for kernels of whole numbers, if its operand has whole numbers in `values`.
/// `window` is that of a convolution, or one pixel for an affine layer. `None` if weights, biases
/// or sizes do not fit the kernels.
fn layer(
    dense: &Dense,
    window: &Window,
    kernels: &WholeKernels,
    values: &Range<i32>,
) -> Option<WholeLayer> {
    let (rows, lanes) = (dense.biases.len(), kernels.lanes);
    let channels = dense.inputs / (window.size.0 * window.size.1);
    let run = WholeWindows::run(window, channels);
    let groups = kernels.groups(dense.inputs, run);
    let covered = WholeWindows::covered(window, channels);
    let low = kernels.low(values)?;
    let whole = |x: f32| is_whole(x) && x.abs() < MOST_BIAS;
    if covered > ROOM * kernels.group
        || dense.panel % lanes != 0
        || !dense.biases.iter().copied().all(whole)
    {
        return None;
    }
    let mut weights = WholeWeights {
        groups: Aligned::zeros(rows * groups * kernels.group * kernels.weight_size()),
        run,
        start: dense.biases.iter().map(|&b| b as i32).collect(),
        low: low as f32,
    };
    if !pack(dense, kernels, low, &mut weights) {
        return None;
    }
    let unscaled = Rescale {
        factors: vec![1.0; rows],
        summands: vec![0.0; rows],
        rounds: false,
        bounds: Bounds::of(dense.activation).unwrap_or(Bounds::NONE),
    };
    Some(WholeLayer {
        kernels: *kernels,
        weights,
        unscaled,
        reads_bytes: false,
        bytes: None,
    })
}

/// Packs the weights of a layer into groups, and counts the operand from `low`. Returns false if a
/// weight does not fit the kernels.
fn pack(dense: &Dense, kernels: &WholeKernels, low: i32, to: &mut WholeWeights) -> bool {
    let (rows, panel, lanes) = (dense.biases.len(), dense.panel, kernels.lanes);
    let (groups, [least, most]) = (kernels.groups(dense.inputs, to.run), kernels.weights);
    let (size, stored) = (kernels.weight_size(), dense.scaled_weights());
    let of_run = to.run.div_ceil(kernels.group);
    let of_group = kernels.group * size;
    let mut fit = true;
    for first in (0..rows).step_by(lanes) {
        let from = first / panel * panel * dense.columns + first % panel;
        let of_lanes = &mut to.groups[first * groups * of_group..][..lanes * groups * of_group];
        let start = &mut to.start[first..][..lanes];
        for (g, group) in of_lanes.chunks_exact_mut(lanes * of_group).enumerate() {
            let (run, column) = (g / of_run * to.run, g % of_run * kernels.group);
            let columns = run + column..run + to.run.min(column + kernels.group);
            for (k, at) in columns.zip((0..).step_by(size)) {
                let column = stored[from + k * panel..][..lanes].iter();
                let group = group.chunks_exact_mut(of_group);
                for ((&weight, group), start) in column.zip(group).zip(&mut *start) {
                    let number = weight as i32;
                    fit &= number as f32 == weight && (least..=most).contains(&number);
                    *start = start.wrapping_add(number.wrapping_mul(low));
                    group[at..][..size].copy_from_slice(&number.to_le_bytes()[..size]);
                }
            }
        }
        if kernels.matrices {
            let runs = of_lanes.chunks_exact_mut(of_run * lanes * of_group);
            runs.for_each(interleave);
        }
    }
    fit
}

/// True for whole numbers of 32 bits. A conversion is faster than the function `fract` of most
/// targets.
pub(super) fn is_whole(x: f32) -> bool {
    x as i32 as f32 == x
}

/// The whole numbers in the buffers.
#[derive(Default)]
struct Contents {
    /// The buffers that steps have written. `None` for values that may be no whole numbers.
    written: Vec<(Place, Option<Range<i32>>)>,
}

impl Contents {
    /// Returns the whole numbers that may be in a buffer, 0 among them. `None` if there may be
    /// other values.
    fn of(&self, place: Place) -> Option<Range<i32>> {
        let found = self.written.iter().find(|(p, _)| *p == place);
        found.and_then(|(_, values)| values.clone())
    }

    /// Takes note of what a step writes. Several steps may write rows of one buffer.
    fn write(&mut self, step: &HostStep) {
        let limited = |rounds: bool, activation| {
            let bounds = Bounds::of(activation).filter(|_| rounds)?;
            range(bounds)
        };
        let values = match &step.action {
            Action::ArgMax(_) | Action::Activate(Activation::None) => return,
            Action::Affine(Dense { rescale, .. })
            | Action::Convolution(Dense { rescale, .. }, _)
            | Action::Windows {
                weights: Some(_),
                rescale,
                ..
            } => rescale
                .as_ref()
                .filter(|r| r.rounds)
                .and_then(|r| range(r.bounds)),
            Action::Windows {
                operation: super::WindowOp::Max,
                activation: Activation::None,
                ..
            } => self.of(step.from),
            &Action::Scale {
                finish: Finish { rounds, activation },
                ..
            } => limited(rounds, activation),
            &Action::Combine {
                arithmetic,
                finish: Finish { rounds, activation },
                ..
            } => limited(rounds || arithmetic.rounds(), activation),
            Action::Sum { numbers, .. } => range(numbers.bounds),
            &Action::Gather { value, .. } => {
                let filled = range(Bounds::both(value));
                self.of(step.from).zip(filled).map(|(a, b)| union(a, b))
            }
            _ => None,
        };
        match self.written.iter_mut().find(|(place, _)| *place == step.to) {
            Some((_, before)) => *before = before.take().zip(values).map(|(a, b)| union(a, b)),
            None => self.written.push((step.to, values)),
        }
    }
}

fn union(a: Range<i32>, b: Range<i32>) -> Range<i32> {
    a.start.min(b.start)..a.end.max(b.end)
}

/// Returns the range of the whole numbers in bounds, and of 0. `None` for other bounds than small
/// whole numbers.
pub(super) fn range(bounds: Bounds) -> Option<Range<i32>> {
    let small = |x: f32| (is_whole(x) && x.abs() < 65536.0).then_some(x as i32);
    let (least, largest) = (small(bounds.least)?, small(bounds.largest)?);
    Some(least.min(0)..largest.max(0) + 1)
}
