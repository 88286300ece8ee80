//! Host steps that copy rows, or that multiply rows by factors and add summands. Each step runs as
//! nested loops. If possible, the innermost loop covers contiguous rows.

use super::buffers::{LINE, Operands};
use super::micro::{Bounds, Kernels, Scaling};
use crate::ir::view::{Moved, RowMap};
use std::ops::Range;

/// Nested loops, outermost first, that advance `N` indices together. Index 0 is the row that is
/// written. The others are rows, or elements of arrays, that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loops<const N: usize> {
    /// The value of each index before the first turn.
    first: [usize; N],
    loops: Vec<Loop<N>>,
}

/// A loop with fewer turns than this costs more than its body. If the innermost loop is so short
/// and the loop around it has more turns, both are swapped.
const SHORT: usize = 8;

/// A loop that advances `N` indices together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop<const N: usize> {
    turns: usize,
    /// The amount by which each index grows from one turn to the next.
    steps: [usize; N],
}

impl<const N: usize> Loops<N> {
    /// Merges the loops of several maps of the same length, so that written rows ascend. Returns
    /// `None` if these loops have no common split.
    fn of(maps: &[RowMap; N]) -> Option<Loops<N>> {
        let mut rest = maps.map(|m| m.loops.to_vec());
        rest.iter_mut()
            .for_each(|loops| loops.retain(|&(turns, _)| turns > 1));
        // The loops are collected from the innermost outwards. They are sorted below.
        let mut loops: Vec<Loop<N>> = Vec::new();
        while rest.iter().any(|r| !r.is_empty()) {
            let count = rest
                .iter()
                .fold(0, |n, r| gcd(n, r.last().map_or(1, |&(turns, _)| turns)));
            if count < 2 {
                return None;
            }
            let mut steps = [0; N];
            for (step, rest) in steps.iter_mut().zip(&mut rest) {
                let (n, s) = rest.pop()?;
                *step = s;
                if n > count {
                    rest.push((n / count, s * count));
                }
            }
            let turns = count;
            loops.push(Loop { turns, steps });
        }
        loops.sort_by_key(|l| std::cmp::Reverse(l.steps[0]));
        let mut merged: Vec<Loop<N>> = Vec::new();
        for inner in loops {
            match merged.last_mut() {
                Some(outer) if outer.steps == inner.steps.map(|s| inner.turns * s) => {
                    outer.turns *= inner.turns;
                    outer.steps = inner.steps;
                }
                _ => merged.push(inner),
            }
        }
        Some(Loops {
            first: maps.map(|m| m.first),
            loops: merged,
        })
    }

    /// Returns the end of each index, which is its largest value plus one.
    fn ends(&self) -> [usize; N] {
        let mut ends = self.first;
        self.loops.iter().for_each(|Loop { turns, steps }| {
            ends.iter_mut()
                .zip(steps)
                .for_each(|(end, step)| *end += (turns - 1) * step);
        });
        ends.map(|end| end + 1)
    }

    /// Returns the number of turns of the outermost loop.
    fn turns(&self) -> usize {
        self.loops.first().map_or(1, |outermost| outermost.turns)
    }

    /// Returns the number of rows that the loops write.
    fn len(&self) -> usize {
        self.loops.iter().map(|l| l.turns).product()
    }

    /// Calls `work` for each iteration of all loops around the two innermost ones. `work` gets the
    /// indices at the start of the two innermost loops, and these loops. They are swapped if the
    /// inner one has fewer turns than [`SHORT`] and than the other. The outermost loop only makes
    /// `turns`.
    fn each(&self, turns: Range<usize>, work: &mut impl FnMut([usize; N], [Loop<N>; 2])) {
        let none = Loop {
            turns: 1,
            steps: [0; N],
        };
        let Some((&outermost, loops)) = self.loops.split_first() else {
            return work(self.first, [none, none]);
        };
        let mut first = self.first;
        first
            .iter_mut()
            .zip(outermost.steps)
            .for_each(|(at, step)| *at += turns.start * step);
        let some = Loop {
            turns: turns.len(),
            ..outermost
        };
        let pair = |middle: Loop<N>, inner: Loop<N>| {
            let swapped = inner.turns < SHORT && middle.turns > inner.turns;
            if swapped {
                [inner, middle]
            } else {
                [middle, inner]
            }
        };
        match *loops {
            [] => work(first, [none, some]),
            [inner] => work(first, pair(some, inner)),
            [ref between @ .., middle, inner] => {
                let last = pair(middle, inner);
                nested(&[some], first, &mut |at| {
                    nested(between, at, &mut |at| work(at, last));
                });
            }
        }
    }
}

/// Calls `work` with the indices at each iteration of nested loops.
fn nested<const N: usize>(loops: &[Loop<N>], mut at: [usize; N], work: &mut dyn FnMut([usize; N])) {
    let Some((Loop { turns, steps }, inner)) = loops.split_first() else {
        return work(at);
    };
    for _ in 0..*turns {
        nested(inner, at, work);
        at.iter_mut().zip(steps).for_each(|(at, step)| *at += step);
    }
}

/// Returns the greatest common divisor.
pub(super) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The loops over the rows that a step copies or computes. Also lists those rows of the result that
/// get no element and that the step fills with a value.
#[derive(Clone, Debug)]
pub(crate) struct Moves<const N: usize> {
    pieces: Vec<Loops<N>>,
    fills: Vec<Fills>,
    /// The step writes all result rows before this one. From this row on, it only writes rows of
    /// elements.
    filled: usize,
    /// True if filling also overwrites the rows of elements. It must then come before them, so the
    /// step cannot be split into parts.
    fills_all: bool,
    /// Ranges of result rows to be written one after the other ([`Moves::blocks`]).
    blocks: Vec<Block>,
}

/// Threads split rows at multiples of this number, so that no two threads write the same cache
/// line.
pub(super) const SHARED_ROWS: usize = 1024;

/// The share of a step that one thread computes if several threads split the step. It is part
/// number `part` of `parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) part: usize,
    pub(super) parts: usize,
}

impl Share {
    pub(super) const WHOLE: Share = Share { part: 0, parts: 1 };

    /// Returns this part's range if `n` lines, pixels or the like are split into `parts`.
    pub(super) fn of(self, n: usize) -> Range<usize> {
        n * self.part / self.parts..n * (self.part + 1) / self.parts
    }

    /// Returns this part's rows if `n` rows are split at multiples of [`SHARED_ROWS`].
    pub(super) fn of_rows(self, n: usize) -> Range<usize> {
        let Range { start, end } = self.of(n.div_ceil(SHARED_ROWS));
        start * SHARED_ROWS..n.min(end * SHARED_ROWS)
    }
}

/// Some turns of the outermost loop, and the result rows that they complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The turns of the outermost loop. `None` means all turns of all loops.
    pub(super) turns: Option<Range<usize>>,
    pub(super) rows: Range<usize>,
}

/// The smallest number of rows in a block.
const BLOCK_ROWS: usize = 1024;

/// Ranges of rows to fill, of equal length and at equal distances, such as the padding of each
/// pixel.
#[derive(Clone, Copy, Debug)]
struct Fills {
    first: usize,
    count: usize,
    ranges: usize,
    step: usize,
}

impl Fills {
    fn one(first: usize, count: usize) -> Fills {
        Fills {
            first,
            count,
            ranges: 1,
            step: 0,
        }
    }
}

/// The largest number of [`Fills`] of a step. If more would be needed, the step first fills all
/// rows, and then writes the elements.
const MOST_FILLS: usize = 64;

impl Moves<2> {
    /// Returns the loops of a step that copies rows.
    pub(crate) fn of_rows(moved: &Moved) -> Moves<2> {
        Moves::new([moved.to, moved.from], moved.filled)
    }
}

impl Moves<2> {
    /// Returns where the step writes the first of some pixels, and the distance of two of them
    /// there. The step must copy exactly these pixels: `count` of `channels` rows each, one behind
    /// the other from row `first` on. `None` if it copies others, or changes their order.
    pub(super) fn spread(
        &self,
        first: usize,
        count: usize,
        channels: usize,
    ) -> Option<(usize, usize)> {
        let [all] = &self.pieces[..] else {
            return None;
        };
        let [to, from] = all.first;
        let distance = match all.loops[..] {
            [
                Loop {
                    turns,
                    steps: [1, 1],
                },
            ] if turns == count * channels => channels,
            [
                outer,
                Loop {
                    turns,
                    steps: [1, 1],
                },
            ] if turns == channels && outer.turns == count && outer.steps[1] == channels => {
                outer.steps[0]
            }
            _ => return None,
        };
        (from == first && distance >= channels).then_some((to, distance))
    }

    /// Returns where the step reads the first of some pixels, the distance of two of them there,
    /// and their channels. The step must write `count` pixels, which are `pixel` rows apart from
    /// row `first` on. `None` if it copies others, or changes the order of channels.
    pub(super) fn widened(
        &self,
        first: usize,
        count: usize,
        pixel: usize,
    ) -> Option<(usize, usize, usize)> {
        let [all] = &self.pieces[..] else {
            return None;
        };
        let ([to, from], &[pixels, channels]) = (all.first, all.loops.first_chunk()?);
        let same = all.loops.len() == 2 && channels.steps == [1, 1];
        let written = to == first && pixels.turns == count && pixels.steps[0] == pixel;
        (same && written).then_some((from, pixels.steps[1], channels.turns))
    }

    /// Leaves rows without a source as they are.
    pub(super) fn fill_nothing(&mut self) {
        self.fills.clear();
        (self.filled, self.fills_all) = (0, false);
    }
}

impl Moves<3> {
    /// Returns the loops of a step that multiplies rows by their factors and adds their summands.
    pub(crate) fn of_numbers([factors, summands]: [&Moved; 2]) -> Moves<3> {
        Moves::new([factors.to, factors.from, summands.from], factors.filled)
    }

    /// Returns the index of the first factor and of the first summand, each with its step from one
    /// channel to the next. `None` unless row `first` is channel 0, and all pixels have the same
    /// factors and summands.
    pub(super) fn of_channels(&self, first: usize, channels: usize) -> Option<[(usize, usize); 2]> {
        let [all] = &self.pieces[..] else {
            return None;
        };
        let [row, factor, summand] = all.first;
        let mut steps = [0, 0];
        for Loop {
            turns,
            steps: [across, a, b],
        } in &all.loops
        {
            if [*a, *b] == [0, 0] {
                continue;
            }
            if *across != 1 || *turns != channels {
                return None;
            }
            steps = [*a, *b];
        }
        (row == first).then_some([(factor, steps[0]), (summand, steps[1])])
    }
}

impl<const N: usize> Moves<N> {
    fn new(maps: [RowMap; N], filled: usize) -> Moves<N> {
        let pieces = Loops::of(&maps).map_or_else(|| runs(&maps), |all| vec![all]);
        let mut rest = vec![true; filled];
        if filled > 0 {
            maps[0]
                .rows()
                .filter(|&row| row < filled)
                .for_each(|row| rest[row] = false);
        }
        let (mut fills, mut row) = (Vec::<Fills>::new(), 0);
        for run in rest.chunk_by(|a, b| a == b) {
            let count = run.len();
            if run[0] {
                match fills.last_mut().filter(|f| f.count == count) {
                    Some(f) if f.ranges == 1 => (f.step, f.ranges) = (row - f.first, 2),
                    Some(f) if f.first + f.ranges * f.step == row => f.ranges += 1,
                    _ => fills.push(Fills::one(row, count)),
                }
            }
            row += count;
        }
        let fills_all = fills.len() > MOST_FILLS;
        if fills_all {
            fills = vec![Fills::one(0, filled)];
        }
        Moves {
            blocks: blocks(&pieces, filled),
            pieces,
            fills,
            filled,
            fills_all,
        }
    }

    /// Returns the number of parts that can be computed in any order.
    pub(super) fn parts(&self) -> usize {
        match &self.pieces[..] {
            _ if self.fills_all => 1,
            [all] => all.turns(),
            pieces => pieces.len(),
        }
    }

    /// Returns the blocks of the result's rows, in whole cache lines. They are written one after
    /// the other.
    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The number of rows that the step fills or writes from row 0 on. It may also write others.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the number of elements that the step writes.
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Loops::len).sum()
    }

    /// Calls `work` like [`Loops::each`], for this share of the elements.
    fn each(&self, share: Share, mut work: impl FnMut([usize; N], [Loop<N>; 2])) {
        match &self.pieces[..] {
            [all] => all.each(share.of(all.turns()), &mut work),
            pieces => pieces[share.of(pieces.len())]
                .iter()
                .for_each(|piece| piece.each(0..piece.turns(), &mut work)),
        }
    }

    /// Calls `work` like [`Loops::each`], for the given turns of the outermost loop. `None` means
    /// all turns.
    fn some(&self, turns: Option<&Range<usize>>, mut work: impl FnMut([usize; N], [Loop<N>; 2])) {
        match (turns, &self.pieces[..]) {
            (Some(turns), [all]) => all.each(turns.clone(), &mut work),
            _ => self.each(Share::WHOLE, work),
        }
    }

    /// Returns the largest index plus one, for the written rows and for each array that is read.
    pub(super) fn ends(&self) -> [usize; N] {
        let mut ends = [0; N];
        ends[0] = self.filled;
        for piece in &self.pieces {
            ends.iter_mut()
                .zip(piece.ends())
                .for_each(|(end, other)| *end = other.max(*end));
        }
        ends
    }

    /// Fills those rows of the share that get no element with `value`. If `fills_all`, it also
    /// fills the rows of elements.
    ///
    /// SAFETY: `result` is valid for the filled rows. No other thread touches those of the part.
    unsafe fn fill(&self, value: f32, share: Share, result: *mut f32) {
        for f in &self.fills {
            for range in share.of(f.ranges) {
                let first = result.wrapping_add(f.first + range * f.step);
                // SAFETY: the caller's promise.
                unsafe {
                    if f.count < BLOCK {
                        (0..f.count).for_each(|k| *first.add(k) = value);
                    } else {
                        std::slice::from_raw_parts_mut(first, f.count).fill(value);
                    }
                }
            }
        }
    }
}

/// Splits rows into blocks of whole cache lines, to be written one after the other. If the rows of
/// different turns of the outermost loop interleave, all rows are one block.
fn blocks<const N: usize>(pieces: &[Loops<N>], filled: usize) -> Vec<Block> {
    let end = filled.next_multiple_of(LINE);
    let whole = vec![Block {
        turns: None,
        rows: 0..end,
    }];
    let [all] = pieces else {
        return whole;
    };
    let Some((outermost, inner)) = all.loops.split_first() else {
        return whole;
    };
    let (step, from) = (outermost.steps[0], all.first[0]);
    let extent: usize = inner.iter().map(|l| (l.turns - 1) * l.steps[0]).sum();
    if step == 0 || extent >= step || from % LINE != 0 {
        return whole;
    }
    // The fewest turns that write whole cache lines, repeated until a block has enough rows.
    let turns = LINE / gcd(LINE, step);
    let turns = turns * BLOCK_ROWS.div_ceil(turns * step);
    let firsts = (0..outermost.turns).step_by(turns);
    let block = |first: usize| {
        let last = first + turns >= outermost.turns;
        let rows = |turn: usize| match turn {
            0 => 0,
            turn => from + turn * step,
        };
        Block {
            turns: Some(first..outermost.turns.min(first + turns)),
            rows: rows(first)..if last { end } else { rows(first + turns) },
        }
    };
    firsts.map(block).collect()
}

/// Cuts the elements into runs of equal length, so that every map has a constant step within a run.
/// Returns the loops of each run: one loop, or none if a run has one element.
fn runs<const N: usize>(maps: &[RowMap; N]) -> Vec<Loops<N>> {
    let innermost = maps.map(|m| m.loops[2]);
    let common = innermost.iter().fold(0, |n, &(turns, _)| gcd(n, turns));
    let turns = common.max(1);
    let steps = innermost.map(|(_, step)| step);
    let run = |i: usize| Loops {
        first: maps.map(|m| m.row(i)),
        loops: if turns > 1 {
            vec![Loop { turns, steps }]
        } else {
            Vec::new()
        },
    };
    (0..maps[0].len()).step_by(turns).map(run).collect()
}

/// The number of values that one copy of [`copy_run`] moves.
const BLOCK: usize = 16;

/// Copies the rows of a share. Fills its rows that get no element with `value`.
///
/// SAFETY: `x` and `result` are valid for the rows of `moves`, and no other thread touches the
/// written rows of the part. There are at most [`Moves::parts`] parts.
pub(super) unsafe fn gather(
    moves: &Moves<2>,
    value: f32,
    share: Share,
    Operands { x, result }: Operands,
) {
    // SAFETY: the caller's promise.
    unsafe { moves.fill(value, share, result) };
    let copy = |[to, from]: [usize; 2], [outer, inner]: [Loop<2>; 2]| {
        let (n, [to_step, from_step]) = (inner.turns, inner.steps);
        if outer.turns == 2 && outer.steps[0] == 1 && inner.steps == [2, 1] {
            let from = [x.wrapping_add(from), x.wrapping_add(from + outer.steps[1])];
            // SAFETY: the caller's promise.
            return unsafe { interleave(from, result.add(to), n) };
        }
        for i in 0..outer.turns {
            // SAFETY: the caller's promise.
            unsafe {
                let to = result.add(to + i * outer.steps[0]);
                let from = x.add(from + i * outer.steps[1]);
                match (to_step, from_step) {
                    (1, 1) => copy_run(from, to, n),
                    // Every other row is written or read, as with interleaved channels. A constant
                    // step of 2 saves a multiplication per row.
                    (2, 1) => (0..n).for_each(|k| *to.add(2 * k) = *from.add(k)),
                    (1, 2) => (0..n).for_each(|k| *to.add(k) = *from.add(2 * k)),
                    _ => (0..n).for_each(|k| *to.add(k * to_step) = *from.add(k * from_step)),
                }
            }
        }
    };
    moves.each(share, copy);
}

/// Writes the values of two runs of `n` values in turn, as a shuffle of channels in two groups
/// does.
///
/// SAFETY: the runs are valid for `n` values and the result for 2 `n`. They do not overlap.
unsafe fn interleave([a, b]: [*const f32; 2], to: *mut f32, n: usize) {
    const SOME: usize = 4;
    let whole = n / SOME * SOME;
    // SAFETY: the caller's promise.
    unsafe {
        for k in (0..whole).step_by(SOME) {
            let a = a.add(k).cast::<[f32; SOME]>().read_unaligned();
            let b = b.add(k).cast::<[f32; SOME]>().read_unaligned();
            let both = [a[0], b[0], a[1], b[1], a[2], b[2], a[3], b[3]];
            to.add(2 * k)
                .cast::<[f32; 2 * SOME]>()
                .write_unaligned(both);
        }
        for k in whole..n {
            (*to.add(2 * k), *to.add(2 * k + 1)) = (*a.add(k), *b.add(k));
        }
    }
}

/// Copies `n` values. Most runs are so short that a call of `memcpy` would take longer.
///
/// SAFETY: both are valid for `n` values, and do not overlap.
#[inline(always)]
unsafe fn copy_run(mut from: *const f32, mut to: *mut f32, n: usize) {
    macro_rules! some {
        ($count:expr) => {
            to.cast::<[f32; $count]>()
                .write_unaligned(from.cast::<[f32; $count]>().read_unaligned());
            (from, to) = (from.add($count), to.add($count));
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        for _ in 0..n / BLOCK {
            some!(BLOCK);
        }
        if n & 8 != 0 {
            some!(8);
        }
        if n & 4 != 0 {
            some!(4);
        }
        for _ in 0..n % 4 {
            some!(1);
        }
    }
}

/// The arrays of a `Scale` step, and what the step does with its results.
pub(super) struct Numbers<'n> {
    pub(super) factors: &'n [f32],
    /// The summands. With `None` only negative values are multiplied, as in a PReLU.
    pub(super) summands: Option<&'n [f32]>,
    pub(super) rounds: bool,
    /// The bounds that results are clamped to, if the activation only clamps.
    pub(super) bounds: Bounds,
}

/// Multiplies rows by factors and adds summands, for the given turns of the outermost loop, or for
/// all. Rows that get no element become 0 before the first turn.
///
/// SAFETY: `x` and `result` are valid for the rows of `moves`, and the arrays for its indices. No
/// other thread touches the written rows.
pub(super) unsafe fn scale(
    kernels: &Kernels,
    moves: &Moves<3>,
    with: &Numbers<'_>,
    turns: Option<&Range<usize>>,
    operands: Operands,
) {
    if turns.is_none_or(|t| t.start == 0) {
        // SAFETY: the caller's promise.
        unsafe { moves.fill(0.0, Share::WHOLE, operands.result) };
    }
    let Some(summands) = with.summands else {
        let arrays = [with.factors, with.factors];
        // SAFETY: the caller's promise.
        unsafe {
            numbers(moves, arrays, turns, operands, |x, f, _| {
                if x < 0.0 { x * f } else { x }
            })
        }
        return;
    };
    let Bounds { least, largest } = with.bounds;
    let one = |x: f32, f: f32, s: f32| {
        let sum = x * f + s;
        let whole = if with.rounds {
            sum.round_ties_even()
        } else {
            sum
        };
        whole.max(least).min(largest) + 0.0 * sum
    };
    let line = |[row, i, j]: [usize; 3], [outer, inner]: [Loop<3>; 2]| {
        let [1, factor @ 0..=1, summand @ 0..=1] = inner.steps else {
            let lines = [outer, inner];
            // SAFETY: the caller's promise.
            return unsafe { each([with.factors, summands], [row, i, j], lines, operands, one) };
        };
        // SAFETY: the caller's promise.
        unsafe {
            (kernels.scale)(&Scaling {
                x: operands.x.add(row),
                result: operands.result.add(row),
                numbers: [with.factors.as_ptr().add(i), summands.as_ptr().add(j)],
                count: inner.turns,
                steps: [factor, summand],
                turns: outer.turns,
                apart: outer.steps,
                rounds: with.rounds,
                bounds: with.bounds,
            });
        }
    };
    moves.some(turns, line);
}

/// Computes each row of `moves` from its value, its factor and its summand.
///
/// SAFETY: as [`scale`].
#[inline(always)]
unsafe fn numbers(
    moves: &Moves<3>,
    arrays: [&[f32]; 2],
    turns: Option<&Range<usize>>,
    operands: Operands,
    compute: impl Fn(f32, f32, f32) -> f32,
) {
    // SAFETY: the caller's promise.
    moves.some(turns, |at, loops| unsafe {
        each(arrays, at, loops, operands, &compute)
    });
}

/// Computes the rows of two nested loops, each from its value, its factor and its summand.
///
/// SAFETY: as [`scale`].
#[inline(always)]
unsafe fn each(
    [a, b]: [&[f32]; 2],
    [row, i, j]: [usize; 3],
    [outer, inner]: [Loop<3>; 2],
    Operands { x, result }: Operands,
    compute: impl Fn(f32, f32, f32) -> f32,
) {
    let Loop { turns: n, steps } = inner;
    for turn in 0..outer.turns {
        let [row, i, j] = [
            row + turn * outer.steps[0],
            i + turn * outer.steps[1],
            j + turn * outer.steps[2],
        ];
        // SAFETY: the caller's promise.
        unsafe {
            let (x, result) = (x.add(row), result.add(row));
            let (a, b) = (a.as_ptr().add(i), b.as_ptr().add(j));
            // The compiler vectorizes loops over contiguous rows.
            macro_rules! neighbours {
                ($a:expr, $b:expr) => {{
                    let (a, b) = ($a, $b);
                    for k in 0..n {
                        *result.add(k) = compute(*x.add(k), a(k), b(k));
                    }
                }};
            }
            let (first, second) = (*a, *b);
            match steps {
                [1, 0, 0] => neighbours!(|_: usize| first, |_: usize| second),
                [1, 1, 0] => neighbours!(|k: usize| *a.add(k), |_: usize| second),
                [1, 0, 1] => neighbours!(|_: usize| first, |k: usize| *b.add(k)),
                [1, 1, 1] => neighbours!(|k: usize| *a.add(k), |k: usize| *b.add(k)),
                [row, i, j] => (0..n).for_each(|k| {
                    *result.add(k * row) = compute(*x.add(k * row), *a.add(k * i), *b.add(k * j));
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::graph::Shape;
    use crate::ir::op::{Activation, Axis, Float};
    use crate::ir::view::Image;

    /// Returns maps from all elements of a shape to rows of images and vectors.
    fn maps(shape: Shape) -> Vec<RowMap> {
        let image = |pixel: usize| RowMap::image(Image::dense(shape, pixel), shape);
        let other = Shape {
            c: shape.h,
            h: shape.w,
            w: shape.c,
        };
        let turned = RowMap::image(Image::dense(other, other.c), other)
            .transposed(other, [Axis::X, Axis::C, Axis::Y]);
        let mut all = vec![
            image(shape.c),
            image(shape.c + 3),
            RowMap::vector(shape.len()),
            turned.unwrap(),
        ];
        // A map of as many elements with another shape. Its loops often have no common split with
        // those of the other maps. `Moves` then has to cut the elements into runs.
        let flat = Shape {
            c: shape.h * shape.w,
            h: 1,
            w: shape.c,
        };
        all.push(RowMap::image(
            Image {
                first: 2,
                pixel: flat.c + 1,
                line: 0,
            },
            flat,
        ));
        all
    }

    const SHAPES: [(usize, usize, usize); 6] = [
        (1, 1, 1),
        (3, 4, 5),
        (16, 3, 2),
        (40, 1, 1),
        (1, 7, 6),
        (6, 2, 1),
    ];

    /// Each row that the map names gets its element. The other rows are filled or unchanged.
    #[test]
    fn rows_are_copied_as_maps_say() {
        for (c, h, w) in SHAPES {
            let all = maps(Shape { c, h, w });
            for (from, to) in all
                .iter()
                .flat_map(|from| all.iter().map(move |to| (*from, *to)))
            {
                for filled in [0, to.end(), to.end() + 5] {
                    let x: Vec<f32> = (0..from.end()).map(|i| i as f32).collect();
                    let mut expected = vec![-1.0; to.end() + 9];
                    expected[..filled].fill(0.25);
                    from.rows()
                        .zip(to.rows())
                        .for_each(|(from, to)| expected[to] = x[from]);
                    let moves = Moves::of_rows(&Moved { from, to, filled });
                    assert_eq!(moves.ends(), [to.end().max(filled), from.end()]);
                    // Parts may be computed in any order.
                    for parts in [1, 2, 3, moves.parts()] {
                        let parts = parts.min(moves.parts());
                        let mut found = vec![-1.0; expected.len()];
                        for part in (0..parts).rev() {
                            let operands = Operands::of(&x, &mut found);
                            // SAFETY: `x` and `found` have all rows of the maps.
                            unsafe { gather(&moves, 0.25, Share { part, parts }, operands) };
                        }
                        assert_eq!(found, expected, "{from:?} {to:?} {filled} {parts}");
                    }
                }
            }
        }
    }

    const CLIP: Activation = Activation::Clip {
        low: Float::new(-20.0),
        high: Float::new(90.0),
    };

    /// Blocks are whole cache lines, follow each other, and end at the last filled row. No turn is
    /// in two blocks.
    #[test]
    fn blocks_follow_each_other() {
        for (c, h, w) in [
            (24, 30, 7),
            (16, 9, 9),
            (5, 40, 50),
            (3000, 1, 1),
            (64, 2, 2),
        ] {
            let shape = Shape { c, h, w };
            for to in maps(shape) {
                let of = Moved {
                    from: RowMap::of_channels(shape),
                    to,
                    filled: to.end(),
                };
                let moves = Moves::of_numbers([&of, &of]);
                let (mut row, mut turn) = (0, 0);
                for Block { turns, rows } in moves.blocks() {
                    assert_eq!(rows.start, row);
                    assert!(rows.start % LINE == 0 && rows.end % LINE == 0);
                    assert_eq!(turns.as_ref().map_or(0, |t| t.start), turn);
                    (row, turn) = (rows.end, turns.as_ref().map_or(0, |t| t.end));
                }
                assert_eq!(row, to.end().next_multiple_of(LINE));
            }
        }
    }

    /// Checks that the kernels of all instruction sets compute `expected`. If `rounds` is true,
    /// results are rounded and limited.
    fn is_scaled(
        moves: &Moves<3>,
        (factors, summands): (&[f32], Option<&[f32]>),
        x: &[f32],
        expected: &[f32],
        rounds: bool,
    ) {
        let bounds = [Bounds::NONE, Bounds::of(CLIP).unwrap()];
        let with = Numbers {
            factors,
            summands,
            rounds,
            bounds: bounds[usize::from(rounds)],
        };
        for kernels in Kernels::all() {
            let mut found = vec![f32::NAN; expected.len()];
            for block in moves.blocks() {
                let operands = Operands::of(x, &mut found);
                // SAFETY: all have as many rows and numbers as the maps say.
                unsafe { scale(&kernels, moves, &with, block.turns.as_ref(), operands) };
            }
            assert_eq!(found, expected, "{} {moves:?} {rounds}", kernels.name);
        }
    }

    /// Each row uses the factor and the summand of its element.
    #[test]
    fn rows_have_the_numbers_of_their_elements() {
        for (c, h, w) in SHAPES {
            let shape = Shape { c, h, w };
            let arrays = [
                RowMap::of_all(shape.len()),
                RowMap::of_channels(shape),
                RowMap::vector(shape.len()),
                RowMap::of(0, &[(c, 0), (h, w), (w, 1)]).unwrap(),
                RowMap::of(0, &[(c, w), (h, 0), (w, 1)]).unwrap(),
                RowMap::of(0, &[(c, 0), (h, 1), (w, 0)]).unwrap(),
            ];
            for to in maps(shape) {
                for (a, b) in arrays
                    .iter()
                    .flat_map(|a| arrays.iter().map(move |b| (*a, *b)))
                {
                    let rows = to.end() + 2;
                    let x: Vec<f32> = (0..rows).map(|i| i as f32 - 7.5).collect();
                    let factors: Vec<f32> = (0..a.end()).map(|i| i as f32 * 0.5 - 3.0).collect();
                    let summands: Vec<f32> = (0..b.end()).map(|i| 100.0 - i as f32).collect();
                    for prelu in [false, true] {
                        let mut expected = vec![0.0; rows];
                        for ((row, i), j) in to.rows().zip(a.rows()).zip(b.rows()) {
                            let scaled = x[row] * factors[i];
                            expected[row] = match prelu {
                                false => scaled + summands[j],
                                true => {
                                    if x[row] < 0.0 {
                                        scaled
                                    } else {
                                        x[row]
                                    }
                                }
                            };
                        }
                        let moved = |from: RowMap| Moved {
                            from,
                            to,
                            filled: rows,
                        };
                        let moves =
                            Moves::of_numbers([&moved(a), &moved(if prelu { a } else { b })]);
                        let arrays = (&factors[..], (!prelu).then_some(&summands[..]));
                        let (x, rounds) = (&x[..], !prelu);
                        is_scaled(&moves, arrays, x, &expected, false);
                        if rounds {
                            let whole = |(row, x): (usize, &f32)| match to.rows().any(|r| r == row)
                            {
                                true => x.round_ties_even().clamp(-20.0, 90.0),
                                false => *x,
                            };
                            let expected: Vec<f32> =
                                expected.iter().enumerate().map(whole).collect();
                            is_scaled(&moves, arrays, x, &expected, true);
                        }
                    }
                }
            }
        }
    }
}
