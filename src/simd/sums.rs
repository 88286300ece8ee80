//! Sums without steps of their own: a convolution adds the other operand of a sum to its result
//! while that is in registers. A step of its own would read the convolution's result again. In
//! BlazeFace such steps took an eighth of the time.
//!
//! The other operand may be an image with more channels of zeros. If the image has zeros behind its
//! channels anyway, the convolution reads the image itself, and nothing copies it.

use super::dense::{Addend, Dense};
use super::images;
use super::micro::{Bounds, Kernels, WindowOp};
use super::steps::{Action, HostStep, Place};
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::Arithmetic;
use crate::ir::view::Image;
use std::mem::replace;

/// Lets convolutions add the other operand of a sum, where that gives the same bits for finite
/// values. An infinite sum becomes NaN, as that of a convolution does. The sums then
/// do nothing. An operand may take memory for longer, so `fits` says whether the buffers of some
/// steps still fit their memory. Returns the number of each step in the plan, because some steps
/// change places.
pub(super) fn join(
    steps: &mut [HostStep],
    kernels: &Kernels,
    fits: impl Fn(&[HostStep]) -> bool,
) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..steps.len()).collect();
    if !kernels.adds || !enabled() {
        return numbers;
    }
    for sum in 0..steps.len() {
        // The first way that fits is taken. Steps that stay where they are can be in a band.
        let (here, later): (Vec<Joined>, Vec<Joined>) = joins(steps, sum, kernels)
            .into_iter()
            .partition(|j| j.at == j.layer);
        for joined in here.into_iter().chain(later) {
            let (layer, at) = (joined.layer, joined.at);
            if joined.join(steps, &fits) {
                numbers.swap(layer, at);
                #[cfg(test)]
                JOINED.set(JOINED.get() + 1);
                break;
            }
        }
    }
    numbers
}

#[cfg(test)]
thread_local! {
    /// True if teams that this thread makes join sums.
    pub(crate) static JOINS: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
    /// The number of sums that have become part of convolutions, in all teams of this thread.
    pub(crate) static JOINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn enabled() -> bool {
    #[cfg(test)]
    return JOINS.get();
    #[cfg(not(test))]
    true
}

/// A sum that can become part of a convolution.
struct Joined {
    /// The indices of the sum and of the convolution.
    sum: usize,
    layer: usize,
    /// The index of the step that copies the other operand to an image of more channels. Its copy
    /// is not needed. `None` if there is no such step.
    pad: Option<usize>,
    /// The index that the convolution gets: its own, or that of the sum if the other operand is not
    /// ready before.
    at: usize,
    addend: Addend,
    activation: Activation,
}

/// Returns the ways in which step `sum` can become part of a convolution. There are none for a step
/// that is no such sum.
fn joins(steps: &[HostStep], sum: usize, kernels: &Kernels) -> Vec<Joined> {
    let HostStep { action, from, to } = &steps[sum];
    let Action::Combine {
        arithmetic: Arithmetic::Add,
        other,
        finish,
        geometry,
    } = action
    else {
        return Vec::new();
    };
    // An operand of another layout may be broadcast, or have other values in its padding.
    if finish.rounds || geometry.input != geometry.output || from == other {
        return Vec::new();
    }
    let (image, _) = geometry.output;
    let mut all = Vec::new();
    for (made, kept) in [(*from, *other), (*other, *from)] {
        let Some(layer) = layer(steps, sum, made, geometry.output) else {
            continue;
        };
        let copied = Addend {
            place: kept,
            image,
            channels: image.pixel,
            widened: false,
        };
        let padded = padded(steps, sum, kept, geometry.output, kernels);
        let padded = padded.map(|(pad, addend)| (Some(pad), addend));
        for (pad, addend) in padded.into_iter().chain([(None, copied)]) {
            let between = &steps[layer + 1..sum];
            let writes = |s: &HostStep, place| s.to == place && s.touches(place);
            let late = |s: &HostStep| writes(s, addend.place) || s.touches(*to);
            let late = between.iter().any(late);
            let at = if late { sum } else { layer };
            let lost = late && between.iter().any(|s| writes(s, steps[layer].from));
            if !lost && addend.place != *to && steps[layer].from != *to {
                all.push(Joined {
                    sum,
                    layer,
                    pad,
                    at,
                    addend,
                    activation: finish.activation,
                });
            }
        }
    }
    all
}

/// Returns the first of two steps that touch a buffer. `None` unless they are two, and the second
/// is step `last`.
fn first_of_two(steps: &[HostStep], last: usize, buffer: Place) -> Option<usize> {
    let touching = (0..steps.len()).filter(|&i| steps[i].touches(buffer));
    match (buffer, &touching.collect::<Vec<_>>()[..]) {
        (Place::Hidden(_), &[first, second]) if second == last => Some(first),
        _ => None,
    }
}

/// Returns the convolution of floats that makes the value in buffer `made`, which only step `sum`
/// reads. `None` if there is none, if it does not write the image `output`, or if something follows
/// its sums.
fn layer(steps: &[HostStep], sum: usize, made: Place, output: (Image, Shape)) -> Option<usize> {
    let layer = first_of_two(steps, sum, made)?;
    let Action::Convolution(dense, geometry) = &steps[layer].action else {
        return None;
    };
    let (image, shape) = output;
    let plain = dense.activation == Activation::None && dense.rescale.is_none();
    let free = dense.addend.is_none() && dense.whole.is_none();
    // A convolution that does not write the padding of pixels would leave it as it was.
    let all = dense.biases.len() == image.pixel && image.line == shape.w * image.pixel;
    let written = steps[layer].to == made && geometry.output == output;
    (plain && free && all && written).then_some(layer)
}

/// Returns the step that makes the value in buffer `kept` for step `sum` by adding channels of
/// zeros to an image, and that image. `None` if there is none, or if the image itself does not have
/// zeros behind its channels.
fn padded(
    steps: &[HostStep],
    sum: usize,
    kept: Place,
    (image, shape): (Image, Shape),
    kernels: &Kernels,
) -> Option<(usize, Addend)> {
    let pad = first_of_two(steps, sum, kept)?;
    let Action::Gather { moves, value } = &steps[pad].action else {
        return None;
    };
    let pixels = shape.h * shape.w;
    let (first, pixel, c) = moves.widened(image.first, pixels, image.pixel)?;
    let from = Image {
        first,
        pixel,
        line: shape.w * pixel,
    };
    let filled = value.to_bits() == 0 && moves.filled() >= images::end(image, shape);
    let place = steps[pad].from;
    let zeros = ends_with_zeros(&steps[..sum], place, from, Shape { c, ..shape });
    let vectors = pixel % kernels.lanes == 0 && c <= pixel;
    let addend = Addend {
        place,
        image: from,
        channels: pixel,
        widened: true,
    };
    (filled && zeros && vectors).then_some((pad, addend))
}

/// Returns true if all pixels of the image in a buffer surely have zeros behind their first `c`
/// channels, as long as all values are finite. A value that is not finite may turn such a zero into
/// NaN, but hides nothing.
fn ends_with_zeros(steps: &[HostStep], place: Place, image: Image, shape: Shape) -> bool {
    let mut writers = steps.iter().filter(|s| s.to == place && s.touches(place));
    let (Some(step), None) = (writers.next(), writers.next()) else {
        return false;
    };
    // True if a step with this result writes the image, with at most so many channels.
    let writes = |(written, to): (Image, Shape)| {
        written == image && (to.h, to.w) == (shape.h, shape.w) && to.c <= shape.c
    };
    match &step.action {
        Action::Convolution(dense, geometry) => {
            let floats = dense.whole.is_none() && dense.rescale.is_none();
            let all = dense.biases.len() == image.pixel && writes(geometry.output);
            let added = dense.addend.as_ref();
            floats
                && all
                && keeps_zero(dense.activation)
                && has_zeros(dense, shape.c)
                && added.is_none_or(|a| ends_with_zeros(steps, a.place, a.image, shape))
        }
        // A pooling of zeros is zero. One with a border may have windows without pixels.
        Action::Windows {
            operation: WindowOp::Max | WindowOp::Mean,
            activation,
            rescale: None,
            geometry,
            bytes: None,
            ..
        } => {
            let ((input, from), border) = (geometry.input, geometry.window.border);
            let inside = [border.top, border.left, border.bottom, border.right] == [0; 4];
            let same = input.pixel == image.pixel && writes(geometry.output);
            let from = Shape { c: shape.c, ..from };
            inside
                && same
                && keeps_zero(*activation)
                && ends_with_zeros(steps, step.from, input, from)
        }
        _ => false,
    }
}

/// Returns true if an activation of 0 is 0.
fn keeps_zero(activation: Activation) -> bool {
    Bounds::of(activation).is_some_and(|b| (b.least..=b.largest).contains(&0.0))
}

/// Returns true if weights and biases are 0 from row `first` on.
fn has_zeros(dense: &Dense, first: usize) -> bool {
    let panel = dense.panel * dense.columns;
    let weights = dense.scaled_weights();
    let zero = |row: usize| {
        let panel = &weights[row / dense.panel * panel..][..panel];
        let mut weights = panel.iter().skip(row % dense.panel).step_by(dense.panel);
        dense.biases[row].to_bits() == 0 && weights.all(|&w| w == 0.0)
    };
    (first..dense.biases.len()).all(zero)
}

impl Joined {
    /// Makes the sum a part of the convolution, if the buffers still fit their memory. Returns true
    /// if they do.
    fn join(self, steps: &mut [HostStep], fits: &impl Fn(&[HostStep]) -> bool) -> bool {
        let mut take = |i: usize| {
            let place = steps[i].to;
            replace(&mut steps[i], HostStep::nothing(place))
        };
        let (mut layer, sum) = (take(self.layer), take(self.sum));
        let pad = self.pad.map(|i| (i, take(i)));
        let made = replace(&mut layer.to, sum.to);
        set(&mut layer, Some(self.addend), self.activation);
        steps[self.at] = layer;
        if fits(steps) {
            return true;
        }
        let mut layer = replace(&mut steps[self.at], HostStep::nothing(made));
        set(&mut layer, None, Activation::None);
        layer.to = made;
        for (i, step) in [(self.layer, layer), (self.sum, sum)]
            .into_iter()
            .chain(pad)
        {
            steps[i] = step;
        }
        false
    }
}

/// Sets what follows the sums of a convolution.
fn set(step: &mut HostStep, addend: Option<Addend>, activation: Activation) {
    if let Action::Convolution(dense, _) = &mut step.action {
        (dense.addend, dense.activation) = (addend, activation);
    }
}
