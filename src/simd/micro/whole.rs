//! The micro-kernels for products of whole numbers, written once for all instruction sets that have
//! them.
//!
//! Values come as floats, which hold the whole numbers of a model of 8-bit integers. They are
//! packed into bytes or 16-bit integers, some thousand at a time. The sums are 32-bit integers, so
//! they are exact. A sum that exceeds 2²⁴ is rounded once, when it becomes a float.

use super::kernel::Runs;
use super::vector::Vector;
use super::{Bounds, Subproblem};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// The number of packed groups of values at a time: 32 KB, for which a thread's stack has room.
/// Layers with more groups in a record have no kernel.
pub(crate) const ROOM: usize = 1 << 13;

/// The number of packed groups that leave half of a first-level cache to the weights.
const KEPT: usize = 1 << 12;

/// The weights of a layer as whole numbers.
pub(crate) struct WholeWeights {
    /// Groups of consecutive columns of a row, in panels of `lanes` rows: the groups of all rows of
    /// a panel for the first columns, then those for the next.
    pub(crate) groups: Vec<u32>,
    /// The start value of each row's sums.
    pub(crate) start: Vec<i32>,
    /// The smallest value of the operand. Packed values are the values less this one.
    pub(crate) low: f32,
}

/// The multiplication of sums behind a layer, before they are rounded and clamped.
#[derive(Clone)]
pub(crate) struct Rescale {
    /// A factor for each row, padding included.
    pub(crate) factors: Vec<f32>,
    /// A summand for each row.
    pub(crate) summands: Vec<f32>,
    /// True if the results are rounded to whole numbers.
    pub(crate) rounds: bool,
    pub(crate) bounds: Bounds,
}

/// Some rows of a layer of whole numbers for some records.
///
/// Safety of its computation: that of [`Subproblem`], whose weights are not used. The rows are
/// whole vectors, and `weights` and `rescale` are for all rows of the layer.
pub(crate) struct WholeSubproblem<'a> {
    pub(crate) sub: Subproblem<'a, f32>,
    pub(crate) weights: &'a WholeWeights,
    pub(crate) rescale: &'a Rescale,
}

/// A set of micro-kernels for whole numbers.
#[derive(Clone, Copy)]
pub(crate) struct WholeKernels {
    pub(crate) name: &'static str,
    /// The number of 32-bit sums in a vector.
    pub(crate) lanes: usize,
    /// The number of values in a group of 32 bits: 4 bytes or 2 16-bit integers.
    pub(crate) group: usize,
    /// Computes a [`WholeSubproblem`].
    ///
    /// SAFETY: the subproblem is sound, and the CPU has the instruction set.
    pub(crate) affine: unsafe fn(&WholeSubproblem<'_>),
}

impl WholeKernels {
    /// The whole numbers that a weight may be.
    pub(crate) fn weights(&self) -> Range<i32> {
        match self.group {
            4 => -128..128,
            _ => -256..256,
        }
    }

    /// Returns the groups of a record with `inputs` values.
    pub(crate) fn groups(&self, inputs: usize) -> usize {
        inputs.div_ceil(self.group)
    }

    /// Returns the number that the packed values of an operand are counted from, if its values are
    /// whole numbers in `values`. `None` if they do not fit.
    pub(crate) fn low(&self, values: &Range<i32>) -> Option<i32> {
        match self.group {
            4 => (values.len() <= 256).then_some(values.start),
            _ => (values.start >= -256 && values.end <= 256).then_some(0),
        }
    }

    /// Returns the kernels that this CPU can run, fastest first.
    pub(crate) fn all() -> impl Iterator<Item = WholeKernels> {
        #[cfg(target_arch = "x86_64")]
        let special = match super::ANY_WEIGHTS || cfg!(mortonnet_whole) {
            true => super::x86::whole(),
            false => [None; 3],
        };
        #[cfg(not(target_arch = "x86_64"))]
        let special = [None; 0];
        special.into_iter().flatten()
    }
}

/// A vector of 32-bit sums, and the instructions that add products to them.
///
/// SAFETY of all functions: the CPU has the instruction set, and pointers are valid for `LANES`
/// values.
pub(super) trait Dot: Copy {
    const LANES: usize;
    /// The number of values in a group.
    const GROUP: usize;
    type Float: Vector;
    unsafe fn splat(group: u32) -> Self;
    unsafe fn load(from: *const u32) -> Self;
    /// Adds the sum of a group's products to each lane.
    unsafe fn dot(self, values: Self, weights: Self) -> Self;
    /// The sums as floats, rounded to the nearest.
    unsafe fn floats(self) -> Self::Float;
    /// Loads `count` floats, fewer than `LANES`. The other lanes are 0.
    unsafe fn load_first(from: *const f32, count: usize) -> Self::Float;
    /// Packs `LANES` floats, whose bits are those of [`ONE`] plus the number to pack. Returns bits
    /// of which those in [`packed_bits`] are allowed.
    unsafe fn pack(floats: Self::Float, to: *mut u8) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    /// The bits that are set in any lane.
    unsafe fn any(self) -> u32;
    /// [`tile`], compiled as a separate function for each M and N.
    unsafe fn tile<const M: usize, const N: usize>(place: &WholePlace<'_>);
    /// [`pack_records`], compiled as a separate function.
    unsafe fn pack_records(
        whole: &WholeSubproblem<'_>,
        records: Range<usize>,
        to: &mut Packed,
    ) -> (PackedRuns, u32);
}

/// A float from which on floats are whole numbers. The bits of this float plus a whole number are
/// its bits plus the number.
pub(super) const ONE: f32 = (3 << 22) as f32;

/// The bits that a packed number of a group of `group` values may have, if 256 was added to each
/// 16-bit one.
const fn packed_bits(group: usize) -> u32 {
    match group {
        4 => 0xff,
        _ => 0x1ff,
    }
}

/// Packs `count` floats, at least 1, less `low`. Adds their bits to `bits`: some beyond
/// [`packed_bits`] say that one was NaN, infinite or out of range. Writes up to a vector of further
/// values behind them.
///
/// SAFETY: `from` is valid for `count` floats and `to` for `count` packed ones and a vector, and
/// the CPU has the instruction set.
#[inline(always)]
unsafe fn pack<D: Dot>(bits: D, from: *const f32, to: *mut u8, count: usize, low: f32) -> D {
    let (size, mut bits) = (4 / D::GROUP, bits);
    // SAFETY: the caller's promise.
    unsafe {
        let (one, shift) = (D::Float::splat(1.0), D::Float::splat(ONE - low));
        let mut k = 0;
        while k + D::LANES <= count {
            let floats = shift.fma(D::Float::load(from.add(k)), one);
            bits = bits.or(D::pack(floats, to.add(k * size)));
            k += D::LANES;
        }
        if k < count {
            let floats = shift.fma(D::load_first(from.add(k), count - k), one);
            bits = bits.or(D::pack(floats, to.add(k * size)));
        }
        bits
    }
}

/// Packed values of some records, on the stack of a thread.
pub(super) struct Packed {
    groups: MaybeUninit<[u32; ROOM + SPARE]>,
    /// For each run of each record, the index of its first group: that of run r of record n is
    /// `offsets[r * records + n]`.
    offsets: MaybeUninit<[u16; ROOM]>,
}

/// The groups that [`pack`] may write behind the last record.
const SPARE: usize = 16;

/// The runs of packed records.
#[derive(Clone, Copy)]
pub(super) struct PackedRuns {
    groups: *const u32,
    offsets: *const u16,
    /// The number of records.
    records: usize,
    /// The runs of a record, and the groups of a run.
    runs: usize,
    length: usize,
}

/// Packs some records, and returns their bits as [`pack`] does.
///
/// SAFETY: as [`affine`]. The records have at most [`ROOM`] groups.
#[inline(always)]
pub(super) unsafe fn pack_records<D: Dot>(
    whole: &WholeSubproblem<'_>,
    records: Range<usize>,
    to: &mut Packed,
) -> (PackedRuns, u32) {
    let (sub, low, size) = (&whole.sub, whole.weights.low, 4 / D::GROUP);
    let inputs = sub.layer.inputs;
    let packed = PackedRuns {
        groups: to.groups.as_mut_ptr().cast(),
        offsets: to.offsets.as_mut_ptr().cast(),
        records: records.len(),
        runs: 1,
        length: inputs.div_ceil(D::GROUP),
    };
    // SAFETY: the caller's promise.
    unsafe {
        let mut bits = D::splat(0);
        match sub.runs {
            Some(runs) if runs.length % D::GROUP == 0 => {
                bits = pack_runs(bits, whole, &runs, records, to);
                let packed = PackedRuns {
                    runs: inputs / runs.length,
                    length: runs.length / D::GROUP,
                    ..packed
                };
                return (packed, bits.any());
            }
            _ => {}
        }
        for (i, n) in records.enumerate() {
            let first = i * packed.length;
            to.offsets
                .as_mut_ptr()
                .cast::<u16>()
                .add(i)
                .write(first as u16);
            let to = to.groups.as_mut_ptr().cast::<u32>().add(first).cast::<u8>();
            match sub.runs {
                None => {
                    let from = sub.x.add(n * sub.x_stride);
                    bits = pack(bits, from, to, inputs, low);
                }
                Some(Runs { table, length }) => {
                    for run in 0..inputs / length {
                        let from = *table.add(run * sub.records + n);
                        bits = pack(bits, from, to.add(run * length * size), length, low);
                    }
                }
            }
        }
        (packed, bits.any())
    }
}

/// Packs runs of whole groups, and adds their bits to `bits` as [`pack`] does. If runs overlap, as
/// those of neighbouring windows do, their values are packed once.
///
/// SAFETY: as [`pack_records`].
#[inline(always)]
unsafe fn pack_runs<D: Dot>(
    mut bits: D,
    whole: &WholeSubproblem<'_>,
    &Runs { table, length }: &Runs,
    records: Range<usize>,
    to: &mut Packed,
) -> D {
    let (sub, low) = (&whole.sub, whole.weights.low);
    let (groups, mut offset) = (
        to.groups.as_mut_ptr().cast::<u32>(),
        to.offsets.as_mut_ptr().cast::<u16>(),
    );
    // The next free group, and the values that are packed before it.
    let (mut free, mut start, mut end) = (0, std::ptr::null(), std::ptr::null());
    let floats = |from: *const f32, to: *const f32| (to as usize - from as usize) / 4;
    for run in 0..sub.layer.inputs / length {
        for n in records.clone() {
            // SAFETY: the caller's promise. No run takes more groups than it has.
            unsafe {
                let from: *const f32 = *table.add(run * sub.records + n);
                let last = from.wrapping_add(length);
                // A run that continues the packed values must do so with whole groups.
                if from < start || from > end || floats(start, last) % 4 != 0 {
                    (start, end) = (from, from);
                }
                if last > end {
                    let count = floats(end, last);
                    bits = pack(bits, end, groups.add(free).cast(), count, low);
                    free += count / D::GROUP;
                    end = last;
                }
                *offset = (free - floats(from, end) / D::GROUP) as u16;
                offset = offset.add(1);
            }
        }
    }
    bits
}

/// The vectors of rows in a tile of a single record.
const WIDE: usize = 8;

/// The position of a tile.
pub(super) struct WholePlace<'a> {
    whole: &'a WholeSubproblem<'a>,
    x: PackedRuns,
    /// The first record, counted from the first packed one, and its number in the subproblem.
    at: usize,
    n: usize,
    /// The first row.
    row: usize,
}

/// Computes a subproblem. A tile has M records, or H or 1 at the end, and N vectors of rows, or 1
/// at the end. Results of records with a value that is NaN or infinite are NaN.
///
/// SAFETY: the subproblem is sound, its rows are whole vectors, a record has at most [`ROOM`]
/// groups, and the CPU has the instruction set.
pub(super) unsafe fn affine<D: Dot, const M: usize, const H: usize, const N: usize>(
    whole: &WholeSubproblem<'_>,
) {
    let sub = &whole.sub;
    let groups = sub.layer.inputs.div_ceil(D::GROUP);
    let mut packed = Packed {
        groups: MaybeUninit::uninit(),
        offsets: MaybeUninit::uninit(),
    };
    let most = (KEPT / groups / M * M).max((ROOM / groups).clamp(1, M));
    let mut first = 0;
    while first < sub.records {
        let some = first..sub.records.min(first + most);
        // SAFETY: `most` records have at most ROOM groups; passed on.
        unsafe {
            let (x, bits) = D::pack_records(whole, some.clone(), &mut packed);
            let mut row = sub.rows.start;
            // The few sums of a single record would wait for each other.
            while some.len() == 1 && row + WIDE * D::LANES <= sub.rows.end {
                D::tile::<1, WIDE>(&WholePlace {
                    whole,
                    x,
                    at: 0,
                    n: first,
                    row,
                });
                row += WIDE * D::LANES;
            }
            while row < sub.rows.end {
                let wide = row + N * D::LANES <= sub.rows.end;
                let place = |n: usize| WholePlace {
                    whole,
                    x,
                    at: n - first,
                    n,
                    row,
                };
                macro_rules! tile {
                    ($m:expr, $n:expr) => {
                        if wide {
                            D::tile::<$m, N>(&place($n))
                        } else {
                            D::tile::<$m, 1>(&place($n))
                        }
                    };
                }
                let mut n = some.start;
                while n + M <= some.end {
                    tile!(M, n);
                    n += M;
                }
                while n + H <= some.end {
                    tile!(H, n);
                    n += H;
                }
                while n < some.end {
                    tile!(1, n);
                    n += 1;
                }
                row += if wide { N * D::LANES } else { D::LANES };
            }
            if bits & !packed_bits(D::GROUP) != 0 {
                refuse::<D>(whole, some.clone(), &mut packed);
            }
        }
        first = some.end;
    }
}

/// Sets the results of records with a value that is no whole number in range to NaN.
///
/// SAFETY: as [`affine`].
#[cold]
unsafe fn refuse<D: Dot>(whole: &WholeSubproblem<'_>, records: Range<usize>, packed: &mut Packed) {
    let sub = &whole.sub;
    for n in records {
        // SAFETY: the caller's promise.
        unsafe {
            let (_, bits) = D::pack_records(whole, n..n + 1, packed);
            if bits & !packed_bits(D::GROUP) != 0 {
                for row in sub.rows.clone() {
                    *sub.result.add(n * sub.result_stride + row) = f32::NAN;
                }
            }
        }
    }
}

/// Computes M records by N vectors of rows.
///
/// SAFETY: as [`affine`]. The place is inside the subproblem.
#[inline(always)]
pub(super) unsafe fn tile<D: Dot, const M: usize, const N: usize>(place: &WholePlace<'_>) {
    let &WholePlace {
        whole,
        x: packed,
        at,
        n,
        row,
    } = place;
    let (sub, rescale) = (&whole.sub, whole.rescale);
    // SAFETY: each pointer stays inside its array. Vectors of zero bytes are zeros.
    unsafe {
        let mut weights = [whole.weights.groups.as_ptr(); N];
        let mut sums: [[D; N]; M] = std::mem::zeroed();
        unrolled!(i < N, {
            let at = row + i * D::LANES;
            weights[i] = weights[i].add(at * packed.runs * packed.length);
            let start = D::load(whole.weights.start.as_ptr().add(at).cast());
            unrolled!(m < M, { sums[m][i] = start });
        });
        let mut offsets = packed.offsets.add(at);
        for _ in 0..packed.runs {
            let mut x = [packed.groups; M];
            unrolled!(m < M, { x[m] = x[m].add(usize::from(*offsets.add(m))) });
            for g in 0..packed.length {
                let mut w: [D; N] = std::mem::zeroed();
                unrolled!(i < N, { w[i] = D::load(weights[i].add(g * D::LANES)) });
                unrolled!(m < M, {
                    let values = D::splat(*x[m].add(g));
                    unrolled!(i < N, { sums[m][i] = sums[m][i].dot(values, w[i]) });
                    compiler_fence(Ordering::SeqCst);
                });
            }
            unrolled!(i < N, {
                weights[i] = weights[i].add(packed.length * D::LANES)
            });
            offsets = offsets.wrapping_add(packed.records);
        }
        let least = D::Float::splat(rescale.bounds.least);
        let largest = D::Float::splat(rescale.bounds.largest);
        unrolled!(i < N, {
            let at = row + i * D::LANES;
            let factor = D::Float::load(rescale.factors.as_ptr().add(at));
            let summand = D::Float::load(rescale.summands.as_ptr().add(at));
            unrolled!(m < M, {
                let mut value = summand.fma(sums[m][i].floats(), factor);
                if rescale.rounds {
                    value = value.round();
                }
                let to = sub.result.add((n + m) * sub.result_stride + at);
                largest.min(least.max(value)).store(to);
            });
        });
    }
}
