//! Steps on images that a thread carries out together, some lines at a time.
//!
//! The values of a large image leave the cache before the next step reads them. A band of steps
//! computes some lines of its last result at a time, and before them those lines of each value in
//! between that they need. A value in between is never whole: a window of its lines slides over it,
//! in memory of the thread that stays in its cache. A line is computed once, and moves to the
//! window's start as long as it is needed.
//!
//! Without bands the first steps of a network of 224 × 224 pixels wait for memory most of their
//! time. Another way is to compute each step's lines in turn in whole buffers. That saves reading
//! them, but not writing them.

use super::buffers::LINE;
use super::steps::{Action, HostStep, Place};
use crate::ir::graph::Shape;
use crate::ir::view::Image;
use std::ops::Range;

/// The most steps of a band.
pub(super) const MOST_STEPS: usize = 16;

/// Limits of the bands that a team makes. Tests have smaller ones, so that small images make some.
#[derive(Clone, Copy)]
pub(crate) struct BandLimits {
    /// The most bytes of the windows of a band.
    windows: usize,
    /// The most bytes of the weights of a band, which are read again for each few lines.
    weights: usize,
    /// Values with fewer bytes stay in the cache as they are.
    least: usize,
    /// The values by which a team may exceed the arena of the plan.
    pub(super) spare: usize,
}

impl BandLimits {
    /// A quarter each of a second-level cache of 1 MB. On a Xeon with such a cache windows of 384
    /// and of 512 KB were not faster.
    const OF_CACHE: BandLimits = BandLimits {
        windows: 1 << 18,
        weights: 1 << 18,
        least: 1 << 18,
        spare: 0,
    };

    /// All values of small images, in windows of a few lines.
    #[cfg(test)]
    pub(crate) const OF_TESTS: BandLimits = BandLimits {
        windows: 1 << 16,
        weights: 1 << 18,
        least: 0,
        spare: 1 << 20,
    };

    /// No bands.
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
    /// The number of bands of teams that this thread has made.
    pub(crate) static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(super) fn limits() -> BandLimits {
    #[cfg(test)]
    return LIMITS.get();
    #[cfg(not(test))]
    BandLimits::OF_CACHE
}

/// The fewest and the most lines of the last result at a time.
const LINES: (usize, usize) = (2, 16);

/// Steps of which each but the first reads the result of the one before.
#[derive(Clone)]
pub(super) struct Band {
    pub(super) steps: Range<usize>,
    /// The number of lines of the last result at a time, a multiple of its unit.
    pub(super) lines: usize,
    /// The window of each value in between.
    pub(super) windows: Vec<LineWindow>,
}

/// The place of a value's lines in the memory of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineWindow {
    /// The first value.
    pub(super) start: usize,
    /// The number of lines that there is room for.
    pub(super) lines: usize,
    /// The place of the whole image in its buffer.
    pub(super) image: Image,
}

/// The lines of a value that a window holds.
#[derive(Clone, Copy, Default)]
pub(super) struct HeldLines {
    pub(super) first: usize,
    pub(super) end: usize,
}

/// The result of a step that goes by lines.
pub(super) fn result(step: &HostStep) -> Option<(Image, Shape)> {
    match &step.action {
        Action::Convolution(_, geometry)
        | Action::Tiles(_, geometry)
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

/// The operand of a step in place `from`. A resampling reads lines in any order, so its operand is
/// no value in between.
fn operand(step: &HostStep, from: Place) -> Option<(Image, Shape)> {
    match &step.action {
        Action::Convolution(_, geometry)
        | Action::Tiles(_, geometry)
        | Action::Windows { geometry, .. } => (step.from == from).then_some(geometry.input),
        Action::Combine {
            other, geometry, ..
        } => match (step.from == from, *other == from) {
            (true, false) => Some(geometry.output),
            // A pixel for all pixels has no lines.
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

/// Convolutions by tiles compute two lines at once.
pub(super) fn unit(step: &HostStep) -> usize {
    match step.action {
        Action::Tiles(..) => 2,
        _ => 1,
    }
}

/// The lines of its operand that a step needs for some lines of its result.
fn needed(step: &HostStep, lines: &Range<usize>) -> Range<usize> {
    let (Action::Convolution(_, geometry)
    | Action::Tiles(_, geometry)
    | Action::Windows { geometry, .. }) = &step.action
    else {
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
        Action::Convolution(dense, _) | Action::Tiles(dense, _) => dense.weights.bytes(),
        _ => 0,
    }
}

/// Returns the bands of some steps. Steps that pay alone are in none.
pub(super) fn bands(steps: &[HostStep]) -> Vec<Band> {
    let (mut bands, mut first) = (Vec::new(), 0);
    while first < steps.len() {
        let mut found = None;
        for end in first + 2..=steps.len().min(first + MOST_STEPS) {
            if !chained(steps, end - 1) {
                break;
            }
            match Band::of(steps, first..end) {
                Some(band) => found = Some(band),
                None => break,
            }
        }
        first = found.as_ref().map_or(first + 1, |b: &Band| b.steps.end);
        bands.extend(found);
    }
    bands
}

/// Returns true if step `i` alone reads the result of the step before, as an image of its place.
/// The value must be large enough to leave the cache.
fn chained(steps: &[HostStep], i: usize) -> bool {
    let (before, step) = (&steps[i - 1], &steps[i]);
    let Place::Hidden(_) = before.to else {
        return false;
    };
    let (Some(made), Some(read)) = (result(before), operand(step, before.to)) else {
        return false;
    };
    let (image, shape) = made;
    result(step).is_some()
        && made == read
        && step.to != before.to
        && steps.iter().filter(|s| s.touches(before.to)).count() == 2
        && image.line * shape.h * size_of::<f32>() >= limits().least
}

impl Band {
    /// Returns the band of these steps with as many lines at a time as fit. `None` if a line is too
    /// much, or the weights are.
    fn of(steps: &[HostStep], range: Range<usize>) -> Option<Band> {
        let weights: usize = steps[range.clone()].iter().map(weight_bytes).sum();
        let last = &steps[range.end - 1];
        let (_, Shape { h, .. }) = result(last)?;
        let fits = |lines: &usize| {
            let windows = windows(&steps[range.clone()], *lines)?;
            let room: usize = windows.last().map_or(0, LineWindow::end);
            (room * size_of::<f32>() <= limits().windows).then_some((*lines, windows))
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

    /// Returns the lines of each result that a turn computes, for some lines of the last one.
    /// Slides the windows to the lines that are needed.
    ///
    /// # Panics
    /// If a window has too little room. The unsafe code relies on it.
    ///
    /// SAFETY: `room` has the windows' values, and nobody else touches them.
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
            let unit = unit(&steps[i]);
            let needed = needed(&steps[i + 1], &lines[i + 1]);
            let until = needed.end.next_multiple_of(unit).min(height(&steps[i]));
            // SAFETY: the caller's promise.
            unsafe { window.slide(room, value, needed.start / unit * unit) };
            lines[i] = value.end..until.max(value.end);
            assert!(lines[i].end - value.first <= window.lines);
        }
        lines
    }

    /// The number of values of its windows.
    pub(super) fn room(&self) -> usize {
        self.windows.last().map_or(0, LineWindow::end)
    }
}

/// Returns the windows of the values between some steps, for `lines` lines of the last result at a
/// time.
fn windows(steps: &[HostStep], lines: usize) -> Option<Vec<LineWindow>> {
    let mut counts = vec![lines; steps.len()];
    for i in (1..steps.len()).rev() {
        let (_, shape) = result(&steps[i - 1])?;
        let (Action::Convolution(_, geometry)
        | Action::Tiles(_, geometry)
        | Action::Windows { geometry, .. }) = &steps[i].action
        else {
            counts[i - 1] = counts[i] + unit(&steps[i - 1]);
            continue;
        };
        let window = &geometry.window;
        let ((size, _), (stride, _), (dilation, _)) = (window.size, window.stride, window.dilation);
        // The units of the step before may begin earlier and end later than what is needed.
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
        };
        start = window.end();
        windows.push(window);
    }
    Some(windows)
}

impl LineWindow {
    /// The value behind the window, on a cache line's boundary. A vector may read behind the last
    /// value.
    fn end(&self) -> usize {
        (self.start + self.lines * self.image.line).next_multiple_of(LINE) + LINE
    }

    /// The address of the whole image's row 0, if line `first` were at the window's start.
    pub(super) fn image_at(&self, room: *mut f32, first: usize) -> *mut f32 {
        let start = room.wrapping_add(self.start);
        start.wrapping_sub(self.image.first + first * self.image.line)
    }

    /// Slides the window to line `first`, and keeps the lines that it holds from there on.
    ///
    /// SAFETY: `room` has the window's values, and nobody else touches them.
    pub(super) unsafe fn slide(&self, room: *mut f32, held: &mut HeldLines, first: usize) {
        let kept = held.end.saturating_sub(first);
        if kept > 0 && first > held.first {
            let (start, line) = (room.wrapping_add(self.start), self.image.line);
            let from = start.wrapping_add((first - held.first) * line);
            // SAFETY: these lines are in the window.
            unsafe { std::ptr::copy(from, start, kept * line) };
        }
        held.end = held.end.max(first);
        held.first = first;
    }
}
