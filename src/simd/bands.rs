//! Steps on images that a thread carries out together, some lines at a time.
//!
//! The values of a large image leave the cache before the next step reads them. A band of steps
//! computes some lines of its last result at a time. Before them it computes the lines of each
//! value in between that they need. A value in between is never whole: a window of its lines slides
//! over it, in memory of the thread that stays in its cache. A line is computed once, and moves to
//! the window's start as long as it is needed. Only threads that share one record compute some
//! lines twice.
//!
//! Without bands the first steps of a network of 224 × 224 pixels wait for memory most of their
//! time. Another way is to compute each step's lines in turn in whole buffers. That saves reading
//! them, but not writing them.

use super::buffers::LINE;
use super::moves::Share;
use super::steps::{Action, HostStep, Place};
use crate::ir::graph::Shape;
use crate::ir::view::{Geometry, Image};
use std::ops::Range;

/// The most steps of a band.
pub(super) const MOST_STEPS: usize = 16;

/// Limits of the bands that a team makes. Tests use other limits, with which small images have
/// bands too.
#[derive(Clone, Copy)]
pub(crate) struct BandLimits {
    /// The most bytes of the windows of a band.
    windows: usize,
    /// The most bytes of the weights of a band, which are read again for each few lines.
    weights: usize,
    /// The fewest bytes of a value between steps for which a band pays. Smaller values stay in the
    /// cache without one.
    least: usize,
    /// The plan counts a number of values for the arena. Arena and windows together may have this
    /// many more.
    pub(super) spare: usize,
    /// `spare` for records that threads share. 65,536 values are 256 KB, the most that windows
    /// take.
    pub(super) spare_shared: usize,
}

impl BandLimits {
    /// The limits of the program. Each number of bytes is a quarter of a second-level cache of
    /// 1 MB. On a Xeon with such a cache windows of 384 and of 512 KB were not faster.
    const OF_CACHE: BandLimits = BandLimits {
        windows: 1 << 18,
        weights: 1 << 18,
        least: 1 << 18,
        spare: 0,
        spare_shared: 1 << 16,
    };

    /// Limits with which small images have bands, with windows of a few lines.
    #[cfg(test)]
    pub(crate) const OF_TESTS: BandLimits = BandLimits {
        windows: 1 << 16,
        weights: 1 << 18,
        least: 0,
        spare: 1 << 20,
        spare_shared: 1 << 20,
    };

    /// Limits with which there are no bands.
    #[cfg(test)]
    pub(crate) const NONE: BandLimits = BandLimits {
        windows: 0,
        ..BandLimits::OF_CACHE
    };
}

#[cfg(test)]
thread_local! {
    /// The limits of teams that this thread makes.
    pub(crate) static LIMITS: std::cell::Cell<BandLimits> =
        const { std::cell::Cell::new(BandLimits::OF_TESTS) };
    /// This thread makes teams, and each team has bands. This counts the bands of all of them, for
    /// tests.
    pub(crate) static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(super) fn limits() -> BandLimits {
    #[cfg(test)]
    return LIMITS.get();
    #[cfg(not(test))]
    BandLimits::OF_CACHE
}

/// The parts of its last result that a band computes at a time: the fewest lines, and the most
/// units. [`unit()`] gives the lines of a unit.
const LINES: (usize, usize) = (2, 16);

/// Consecutive steps that are computed together, some lines at a time. Each step but the first
/// reads the result of the step before.
#[derive(Clone)]
pub(super) struct Band {
    pub(super) steps: Range<usize>,
    /// The number of lines of the last result that are computed at a time. It is a multiple of the
    /// last step's [`unit()`].
    pub(super) lines: usize,
    /// The window of each value between two steps.
    pub(super) windows: Vec<LineWindow>,
}

/// The place of some lines of a value in the memory of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineWindow {
    /// The first byte of the window in that memory, on a cache line's boundary.
    pub(super) start: usize,
    /// The number of lines that there is room for.
    pub(super) lines: usize,
    /// The place of the whole image in its buffer.
    pub(super) image: Image,
    /// The bytes of a value.
    pub(super) size: usize,
}

/// The lines of a value that a window holds.
#[derive(Clone, Copy, Default)]
pub(super) struct HeldLines {
    pub(super) first: usize,
    pub(super) end: usize,
}

/// Returns place and shape of a step's result. `None` for a step that cannot be in a band.
pub(super) fn result(step: &HostStep) -> Option<(Image, Shape)> {
    match &step.action {
        Action::Convolution(_, geometry)
        | Action::Tiles(_, geometry, _)
        | Action::Windows { geometry, .. }
        | Action::Combine { geometry, .. }
        | Action::Resample { geometry, .. } => Some(geometry.output),
        _ => None,
    }
}

/// The number of lines of a step's result.
pub(super) fn height(step: &HostStep) -> usize {
    result(step).map_or(0, |(_, shape)| shape.h)
}

/// Returns place and shape of the image that a step reads from buffer `from`. `None` if the step
/// does not read an image there line by line. A resampling reads lines in any order, so it needs
/// the whole image.
fn operand(step: &HostStep, from: Place) -> Option<(Image, Shape)> {
    match &step.action {
        Action::Convolution(dense, geometry) => {
            let addend = dense.addend.as_ref().filter(|a| a.place == from);
            let (_, to) = geometry.output;
            match (step.from == from, addend) {
                (true, None) => Some(geometry.input),
                (false, Some(addend)) => Some((addend.image, to)),
                _ => None,
            }
        }
        Action::Tiles(_, geometry, _) | Action::Windows { geometry, .. } => {
            (step.from == from).then_some(geometry.input)
        }
        Action::Combine {
            other, geometry, ..
        } => match (step.from == from, *other == from) {
            (true, false) => Some(geometry.output),
            // A second operand of one pixel, or of one for each line, is not an image of the
            // result's shape.
            (false, true) => {
                let (second, shape) = geometry.input;
                let whole = second.line > 0 && second.pixel > 0;
                whole.then_some((second, shape))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The number of lines that a step computes at once: those of a tile for a convolution by tiles,
/// else one.
pub(super) fn unit(step: &HostStep) -> usize {
    match step.action {
        Action::Tiles(_, _, size) => size.pixels(),
        _ => 1,
    }
}

/// Returns the geometry of a step that reads the image in buffer `from` through windows. `None` for
/// a step that reads the lines of its result there.
fn windowed(step: &HostStep, from: Place) -> Option<&Geometry> {
    match &step.action {
        Action::Convolution(_, geometry)
        | Action::Tiles(_, geometry, _)
        | Action::Windows { geometry, .. } => (step.from == from).then_some(geometry),
        _ => None,
    }
}

/// The lines of the operand in buffer `from` that a step needs for some lines of its result.
fn needed(step: &HostStep, from: Place, lines: &Range<usize>) -> Range<usize> {
    let Some(geometry) = windowed(step, from) else {
        return lines.clone();
    };
    let ((_, from), window) = (geometry.input, &geometry.window);
    let ((size, _), (stride, _), (dilation, _)) = (window.size, window.stride, window.dilation);
    let first = (lines.start * stride).saturating_sub(window.border.top);
    let end = (lines.end - 1) * stride + (size - 1) * dilation + 1;
    let end = end.saturating_sub(window.border.top).min(from.h);
    first.min(end)..end
}

fn weight_bytes(step: &HostStep) -> usize {
    match &step.action {
        Action::Convolution(dense, _) | Action::Tiles(dense, _, _) => dense.weights.bytes(),
        _ => 0,
    }
}

/// Returns the bands of jobs in which a thread computes whole records. Of all ways to divide the
/// steps into bands, the one is taken whose values between bands have the fewest bytes. Only values
/// that are large enough to leave the cache count.
pub(super) fn of_batch(steps: &[HostStep]) -> Vec<Band> {
    let least = limits().least;
    let bytes: Vec<usize> = (1..=steps.len())
        .map(|end| match chained(steps, end, least) {
            true => value_bytes(&steps[end - 1]),
            false => 0,
        })
        .collect();
    divided(steps, least, |range| bytes[range.end - 1])
}

/// Returns the bands of jobs in which threads share a record. `cost` gives the time that a range of
/// steps takes as a band, or that of a single step, in any unit. The bands with the least time are
/// taken.
pub(super) fn of_record(steps: &[HostStep], cost: impl Fn(&[HostStep]) -> usize) -> Vec<Band> {
    divided(steps, 0, |range| cost(&steps[range]))
}

/// Divides the steps of a network into bands and single steps, whose costs have the least sum. Of
/// several such ways the one with the longest first band is taken. A step that fits no neighbour is
/// in no band. Values between the steps of a band have at least `least` bytes.
fn divided(steps: &[HostStep], least: usize, cost: impl Fn(Range<usize>) -> usize) -> Vec<Band> {
    let follows: Vec<bool> = (0..=steps.len())
        .map(|i| chained(steps, i, least))
        .collect();
    let mut best = vec![Division { cost: 0, end: 0 }; steps.len() + 1];
    for first in (0..steps.len()).rev() {
        let until = |end: usize| Division {
            cost: cost(first..end) + best[end].cost,
            end,
        };
        let mut end = first + 1;
        let mut found = until(end);
        while end < first + MOST_STEPS && follows[end] {
            end += 1;
            if Band::of(steps, first..end).is_none() {
                break;
            }
            let other = until(end);
            if other.cost <= found.cost {
                found = other;
            }
        }
        best[first] = found;
    }
    let (mut bands, mut first) = (Vec::new(), 0);
    while first < steps.len() {
        let end = best[first].end;
        if end - first > 1 {
            bands.extend(Band::of(steps, first..end));
        }
        first = end;
    }
    bands
}

/// The best division of the steps from one on into bands.
#[derive(Clone, Copy)]
struct Division {
    cost: usize,
    /// The end of the first band, or of the first step if it is in none.
    end: usize,
}

/// The number of bytes of a step's result with its padding. 0 for a step that cannot be in a band.
pub(super) fn value_bytes(step: &HostStep) -> usize {
    result(step).map_or(0, |(image, shape)| image.line * shape.h * step.value_size())
}

/// Returns true if step `i` can be in a band with the step before. Only step `i` may read the
/// result of the step before, as an image of the same place and shape. This result must have at
/// least `least` bytes.
fn chained(steps: &[HostStep], i: usize, least: usize) -> bool {
    let Some([before, step]) = i.checked_sub(1).and_then(|first| steps.get(first..=i)) else {
        return false;
    };
    let Place::Hidden(_) = before.to else {
        return false;
    };
    let (Some(made), Some(read)) = (result(before), operand(step, before.to)) else {
        return false;
    };
    result(step).is_some()
        && made == read
        && step.to != before.to
        && steps.iter().filter(|s| s.touches(before.to)).count() == 2
        && value_bytes(before) >= least
}

impl Band {
    /// Returns the band of the steps in `range`, with as many lines at a time as fit the limits.
    /// `None` if the windows of the fewest lines exceed the limits, or the weights do.
    fn of(steps: &[HostStep], range: Range<usize>) -> Option<Band> {
        let weights: usize = steps[range.clone()].iter().map(weight_bytes).sum();
        let last = &steps[range.end - 1];
        let (_, Shape { h, .. }) = result(last)?;
        let fits = |lines: &usize| {
            let windows = windows(&steps[range.clone()], *lines)?;
            let room: usize = windows.last().map_or(0, LineWindow::end);
            (room <= limits().windows).then_some((*lines, windows))
        };
        let unit = unit(last);
        let units = h.div_ceil(unit);
        let (least, most) = (LINES.0.div_ceil(unit).min(units), LINES.1.min(units));
        let (lines, windows) = (least..=most)
            .rev()
            .map(|n| n * unit)
            .find_map(|n| fits(&n))?;
        (weights <= limits().weights).then_some(Band {
            steps: range,
            lines,
            windows,
        })
    }

    /// Returns the lines that each step computes, so that the last step can compute its lines
    /// `last`. Lines that a window in `room` holds are not computed again. Slides each window to
    /// the first line that is needed, and updates `held`.
    ///
    /// # Panics
    /// If a window has too little room. The unsafe code relies on this check.
    ///
    /// SAFETY: `room` has room for all windows, and nobody else touches it.
    pub(super) unsafe fn turn(
        &self,
        steps: &[HostStep],
        last: Range<usize>,
        held: &mut [HeldLines; MOST_STEPS],
        room: *mut f32,
    ) -> [Range<usize>; MOST_STEPS] {
        let mut lines = [const { 0..0 }; MOST_STEPS];
        lines[steps.len() - 1] = last;
        for i in (0..steps.len() - 1).rev() {
            let (value, window) = (&mut held[i], &self.windows[i]);
            if lines[i + 1].is_empty() {
                lines[i] = value.end..value.end;
                continue;
            }
            let units = units_before(&steps[i..], &lines[i + 1]);
            // SAFETY: the caller's promise.
            unsafe { window.slide(room, value, units.start) };
            lines[i] = value.end..units.end.max(value.end);
            assert!(lines[i].end - value.first <= window.lines);
        }
        lines
    }

    /// Returns the length of the memory that holds the line windows of this band, in floats.
    pub(super) fn room(&self) -> usize {
        self.windows.last().map_or(0, LineWindow::end) / size_of::<f32>()
    }
}

/// Returns the number of lines that each of some steps computes, if one of `parts` threads computes
/// its part of the lines of the last result.
pub(super) fn lines_of_part(steps: &[HostStep], parts: usize) -> Vec<usize> {
    let last = &steps[steps.len() - 1];
    let (unit, height) = (unit(last), height(last));
    // A part in the middle has neighbours above and below.
    let middle = Share {
        part: parts / 2,
        parts,
    };
    let units = middle.of(height.div_ceil(unit));
    let mut lines = units.start * unit..height.min(units.end * unit);
    let mut counts = vec![lines.len(); steps.len()];
    for i in (0..steps.len() - 1).rev() {
        if !lines.is_empty() {
            lines = units_before(&steps[i..], &lines);
        }
        counts[i] = lines.len();
    }
    counts
}

/// Returns the lines of whole units that the first of some steps computes, so that the second can
/// compute its lines `lines`.
fn units_before(steps: &[HostStep], lines: &Range<usize>) -> Range<usize> {
    let (before, unit) = (&steps[0], unit(&steps[0]));
    let needed = needed(&steps[1], before.to, lines);
    let end = needed.end.next_multiple_of(unit).min(height(before));
    needed.start / unit * unit..end
}

/// Returns the windows of the values between some steps, for `lines` lines of the last result at a
/// time.
fn windows(steps: &[HostStep], lines: usize) -> Option<Vec<LineWindow>> {
    let mut counts = vec![lines; steps.len()];
    for i in (1..steps.len()).rev() {
        let (_, shape) = result(&steps[i - 1])?;
        let Some(geometry) = windowed(&steps[i], steps[i - 1].to) else {
            let spare = 2 * (unit(&steps[i - 1]) - 1);
            counts[i - 1] = (counts[i] + spare).min(shape.h);
            continue;
        };
        let window = &geometry.window;
        let ((size, _), (stride, _), (dilation, _)) = (window.size, window.stride, window.dilation);
        // The step before computes whole units, which may exceed the needed lines at both ends.
        let reach = (counts[i] - 1) * stride + (size - 1) * dilation + 1;
        let spare = 2 * (unit(&steps[i - 1]) - 1);
        counts[i - 1] = (reach + spare).min(shape.h);
    }
    let mut start = 0;
    let mut windows = Vec::with_capacity(steps.len() - 1);
    for (step, &lines) in steps[..steps.len() - 1].iter().zip(&counts) {
        let (image, _) = result(step)?;
        let window = LineWindow {
            start,
            lines,
            image,
            size: step.value_size(),
        };
        start = window.end();
        windows.push(window);
    }
    Some(windows)
}

impl LineWindow {
    /// The end of the window in bytes, rounded up to a cache line, and a line more. A vector may
    /// read behind the last value.
    fn end(&self) -> usize {
        const BYTES: usize = LINE * size_of::<f32>();
        (self.start + self.lines * self.image.line * self.size).next_multiple_of(BYTES) + BYTES
    }

    /// The address to pass as the start of the value's whole buffer, when line `first` of the image
    /// is at the window's start. It may be outside of `room`. Only lines of the window may be
    /// touched.
    pub(super) fn image_at(&self, room: *mut f32, first: usize) -> *mut f32 {
        let start = room.cast::<u8>().wrapping_add(self.start);
        let before = self.image.first + first * self.image.line;
        start.wrapping_sub(before * self.size).cast()
    }

    /// Slides the window to line `first`, and keeps the lines that it holds from there on.
    ///
    /// SAFETY: `room` has room for the window, and nobody else touches it.
    pub(super) unsafe fn slide(&self, room: *mut f32, held: &mut HeldLines, first: usize) {
        let kept = held.end.saturating_sub(first);
        if kept > 0 && first > held.first {
            let start = room.cast::<u8>().wrapping_add(self.start);
            let line = self.image.line * self.size;
            let from = start.wrapping_add((first - held.first) * line);
            // SAFETY: these lines are in the window.
            unsafe { std::ptr::copy(from, start, kept * line) };
        }
        held.end = held.end.max(first);
        held.first = first;
    }
}
