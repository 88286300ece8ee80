//! Whole numbers that stay bytes between steps.
//!
//! A hidden buffer holds bytes if one step writes it, and this step and all that read it can. The
//! value with index i is then the byte with index i of the buffer, so images and rows have the same
//! places as with floats. A byte is the value less a number of the buffer ([`Bytes`]). Padding has
//! any bytes.
//!
//! Bytes have no NaN. A layer that reads floats and writes bytes marks the record if a window has a
//! value that is NaN or infinite. At the end of the batch, the scores of such records become NaN.

use super::check::{BufferRows, right};
use super::dense::Dense;
use super::images;
use super::micro::{
    Aligned, Bytes, ChannelWeights, Rescale, SumIntegers, WholeKernels, WindowOp, scales_to_numbers,
};
use super::steps::{Action, HostStep, Place, SumBytes};
use super::whole::{MOST_BIAS, is_whole, range};
use crate::ir::graph::Shape;
use crate::ir::view::{Geometry, Image};

#[cfg(test)]
mod tests;

/// A number of bytes that a vector of each instruction set's sums has, or a multiple of it.
const LANES: usize = 16;

#[cfg(test)]
thread_local! {
    /// False where tests compare bytes with floats.
    static ALLOWED: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
}

/// Returns the number of bytes of each value in a buffer.
pub(super) fn value_size(steps: &[HostStep], place: Place) -> usize {
    let writers = steps.iter().filter(|s| s.to == place);
    writers
        .map(HostStep::value_size)
        .max()
        .unwrap_or(size_of::<f32>())
}

/// Chooses the buffers that hold bytes, and prepares the steps that touch them.
pub(super) fn choose(steps: &mut [HostStep], rows: BufferRows<'_>) {
    #[cfg(test)]
    if !ALLOWED.get() {
        return;
    }
    let kernels = steps
        .iter()
        .filter_map(|s| Some(s.action.dense()?.whole.as_ref()?.kernels));
    // The products of an instruction say which are the fastest.
    let Some(kernels) = kernels.max_by_key(|k| k.lanes * k.group) else {
        return;
    };
    let mut chosen = Chosen::all(steps, &kernels);
    while let Some(wrong) = chosen.wrong(steps, &kernels, rows) {
        chosen.buffers.retain(|(place, _)| *place != wrong);
    }
    for step in steps.iter_mut().filter(|s| !s.action.is_nothing()) {
        let (read, written) = (chosen.of(step.from), chosen.of(step.to));
        let other = step.action.other().and_then(|other| chosen.of(other));
        match &mut step.action {
            Action::Affine(Dense { whole, .. }) | Action::Convolution(Dense { whole, .. }, _) => {
                if let Some(whole) = whole {
                    (whole.reads_bytes, whole.bytes) = (read.is_some(), written);
                }
            }
            Action::Windows { .. } => {
                let weights = read.zip(written);
                let weights = weights.and_then(|(a, b)| channels(&step.action, &kernels, a, b));
                if let Action::Windows { bytes, .. } = &mut step.action {
                    *bytes = weights;
                }
            }
            Action::Sum { bytes, numbers, .. } => {
                let with = read.zip(other).zip(SumIntegers::of(numbers));
                *bytes = with.map(|((x, y), integers)| SumBytes {
                    kernel: kernels.bytes.sum,
                    integers: of_bytes(integers, [x, y]),
                    result: written,
                });
            }
            _ => {}
        }
    }
}

/// Returns the integers of a sum for operands as they are stored.
fn of_bytes(integers: SumIntegers, operands: [Bytes; 2]) -> SumIntegers {
    let all = integers.multipliers.iter().zip(operands);
    // Sums of 32 bits may wrap on the way. The result is right, because it has 32 bits.
    let summand = all.fold(integers.summand, |sum, (m, operand)| {
        sum.wrapping_add(m.wrapping_mul(i32::from(operand.low)))
    });
    SumIntegers {
        summand,
        ..integers
    }
}

/// The buffers that hold bytes.
struct Chosen {
    buffers: Vec<(Place, Bytes)>,
}

impl Chosen {
    /// Returns all hidden buffers that one step writes, as a step that can write bytes.
    fn all(steps: &[HostStep], kernels: &WholeKernels) -> Chosen {
        let mut buffers = Vec::new();
        for step in steps.iter().filter(|s| !s.action.is_nothing()) {
            let writers = steps
                .iter()
                .filter(|s| !s.action.is_nothing() && s.to == step.to);
            let alone = matches!(step.to, Place::Hidden(_)) && writers.count() == 1;
            let bytes = written(&step.action, kernels).filter(|_| alone);
            buffers.extend(bytes.map(|bytes| (step.to, bytes)));
        }
        Chosen { buffers }
    }

    fn of(&self, place: Place) -> Option<Bytes> {
        let found = self.buffers.iter().find(|(p, _)| *p == place);
        found.map(|&(_, bytes)| bytes)
    }

    /// Returns a buffer that a step cannot read or write as bytes as things are.
    fn wrong(
        &self,
        steps: &[HostStep],
        kernels: &WholeKernels,
        rows: BufferRows<'_>,
    ) -> Option<Place> {
        let steps = steps.iter().filter(|s| !s.action.is_nothing());
        for step in steps {
            let (from, to) = (self.of(step.from), self.of(step.to));
            let other = step.action.other();
            let of_other = other.and_then(|other| self.of(other));
            // The buffers of this step that have to hold floats.
            let (reads, writes);
            match &step.action {
                Action::Affine(dense) | Action::Convolution(dense, _) => {
                    let whole = dense.whole.as_ref();
                    let same = |b: Bytes| whole.is_some_and(|w| w.weights.low == f32::from(b.low));
                    let inside = reads_inside(step, rows);
                    (reads, writes) = (from.is_none_or(|b| same(b) && inside), true);
                }
                Action::Windows { .. } => {
                    let fits = from
                        .zip(to)
                        .and_then(|(a, b)| channels(&step.action, kernels, a, b));
                    let fits = fits.is_some() && reads_inside(step, rows);
                    (reads, writes) = (fits, fits);
                }
                Action::Sum { numbers, .. } => {
                    let both = from.and(of_other).and(SumIntegers::of(numbers)).is_some();
                    (reads, writes) = (both, both);
                }
                _ => (reads, writes) = (false, true),
            }
            let read = [Some(step.from), other]
                .into_iter()
                .flatten()
                .find(|&p| self.of(p).is_some());
            let wrong = read
                .filter(|_| !reads)
                .or(to.map(|_| step.to).filter(|_| !writes));
            if wrong.is_some() {
                return wrong;
            }
        }
        None
    }
}

/// True if a step that reads an image of bytes reads nothing behind its buffer. Other bytes of the
/// buffer may be read, since nobody writes them at that time.
fn reads_inside(step: &HostStep, rows: BufferRows<'_>) -> bool {
    let (image, shape, read) = match &step.action {
        Action::Convolution(_, geometry) => {
            let (image, shape) = geometry.input;
            // A pixel is read in groups of four bytes if it has room for them.
            let groups = shape.c.next_multiple_of(4);
            (
                image,
                shape,
                if groups <= image.pixel {
                    groups
                } else {
                    shape.c
                },
            )
        }
        Action::Windows { geometry, .. } => {
            let ((image, shape), (output, _)) = (geometry.input, geometry.output);
            (image, shape, output.pixel)
        }
        _ => return true,
    };
    images::end(image, Shape { c: read, ..shape }) <= rows.of(step.from)
}

/// Returns how a step can write bytes. `None` if it writes floats only.
fn written(action: &Action, kernels: &WholeKernels) -> Option<Bytes> {
    let (rescale, bounds) = match action {
        Action::Affine(dense) | Action::Convolution(dense, _) => {
            dense.whole.as_ref()?;
            let rescale = dense.rescale.as_ref()?;
            (Some(rescale), rescale.bounds)
        }
        Action::Windows {
            operation: WindowOp::Products,
            rescale: Some(rescale),
            ..
        } => (Some(rescale), rescale.bounds),
        Action::Sum { numbers, .. } => (None, numbers.bounds),
        _ => return None,
    };
    let scales = |r: &Rescale| r.rounds && scales_to_numbers(r);
    let low = kernels.low(&range(bounds)?)?;
    Bytes::of(bounds, low, kernels.signed).filter(|_| rescale.is_none_or(scales))
}

/// True if sizes, weights and biases of a depthwise convolution fit the kernels.
fn fits(geometry: &Geometry, weights: &[f32], biases: &[f32], range: [i32; 2]) -> bool {
    let ((input, from), (output, to)) = (geometry.input, geometry.output);
    let whole = |x: f32| is_whole(x) && x.abs() < MOST_BIAS;
    let byte = |x: f32| is_whole(x) && (range[0]..=range[1]).contains(&(x as i32));
    geometry.window.size == (3, 3)
        && from.c == to.c
        && input.pixel >= output.pixel
        && output.pixel % LANES == 0
        && weights.len() == 9 * output.pixel
        && biases.iter().copied().all(whole)
        && weights.iter().copied().all(byte)
}

/// Returns the weights of a depthwise convolution that reads and writes bytes. `None` for other
/// steps, and if sizes or weights do not fit the kernels.
fn channels(
    action: &Action,
    kernels: &WholeKernels,
    read: Bytes,
    written: Bytes,
) -> Option<ChannelWeights> {
    let Action::Windows {
        operation: WindowOp::Products,
        weights: Some((weights, biases)),
        rescale: Some(rescale),
        geometry,
        ..
    } = action
    else {
        return None;
    };
    let kernels = kernels.bytes;
    let (block, weights) = (kernels.block, weights.floats());
    let (Image { pixel, .. }, to) = geometry.output;
    let sizes = [biases.len(), rescale.factors.len(), rescale.summands.len()] == [pixel; 3];
    if !sizes || !fits(geometry, weights, biases, kernels.weights) {
        return None;
    }
    let pixels = match pixel {
        16 | 32 => (block / pixel).max(1),
        _ => 1,
    };
    let count = pixel.next_multiple_of(block);
    let words = kernels.order.words();
    let mut all = ChannelWeights {
        groups: Aligned::zeros(3 * words * count),
        start: vec![0; count],
        factors: vec![0.0; count],
        summands: vec![0.0; count],
        order: kernels.order,
        kernel: kernels.channels,
        block,
        pixels,
        zero: read.zero(),
        bytes: written,
    };
    for place in 0..count {
        let (first, place_in) = (place / block * block, place % block);
        let mut channel = kernels.order.channel(place, block);
        if pixels > 1 {
            channel %= pixel;
        }
        // Padding stays 0.
        if channel >= to.c {
            continue;
        }
        let mut start = biases[channel] as i32;
        for line in 0..3 {
            let groups = &mut all.groups[words * (3 * first + line * block)..][..words * block];
            for column in 0..3 {
                let weight = weights[(3 * line + column) * pixel + channel] as i32;
                kernels.order.write(weight, place_in, column, groups);
                start = start.wrapping_add(weight.wrapping_mul(i32::from(read.low)));
            }
        }
        all.start[place] = start;
        all.factors[place] = rescale.factors[channel];
        all.summands[place] = rescale.summands[channel];
    }
    Some(all)
}

/// # Panics
/// If a step takes a buffer of bytes for one of floats or the other way round, or breaks another
/// condition of the kernels for bytes.
pub(super) fn check(steps: &[HostStep], rows: BufferRows<'_>) {
    for step in steps {
        let other = step.action.other().unwrap_or(step.from);
        for place in [step.from, other] {
            right((value_size(steps, place) == 1) == step.reads_bytes());
        }
        right(!step.reads_bytes() || reads_inside(step, rows));
        // The size of a buffer is that of all its writers.
        right(value_size(steps, step.to) == step.value_size());
        let Some(written) = step.written_bytes() else {
            continue;
        };
        right(matches!(step.to, Place::Hidden(_)));
        right(written.least <= written.largest);
        match &step.action {
            Action::Convolution(dense, Geometry { output, .. }) => {
                let (output, _) = output;
                right(dense.biases.len() <= output.pixel);
            }
            Action::Windows {
                geometry,
                bytes: Some(weights),
                ..
            } => {
                let ((input, _), (output, _)) = (geometry.input, geometry.output);
                let count = output.pixel.next_multiple_of(weights.block.max(1));
                let numbers = [
                    weights.start.len(),
                    weights.factors.len(),
                    weights.summands.len(),
                ];
                let words = 3 * weights.order.words() * count;
                right(numbers == [count; 3] && weights.groups.len() == words);
                right(geometry.window.size == (3, 3) && output.pixel % LANES == 0);
                right(input.pixel >= output.pixel && weights.pixels > 0);
                right(weights.pixels == 1 || weights.pixels * output.pixel == weights.block);
                right(weights.pixels == 1 || [16, 32].contains(&output.pixel));
            }
            _ => {}
        }
    }
}
