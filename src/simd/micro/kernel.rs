//! The micro-kernels, written once for all instruction sets.
//!
//! A tile is M records by N vectors of rows. Its sums stay in registers while k runs. A load of
//! weights serves M multiply-adds, and a broadcast value N. In every tile, a sum begins with the
//! bias and adds its products in the order of k. With weights stored as bytes it begins with 0, and
//! the scale and the bias come last. A value of another step is added to the complete sum. So a
//! record's scores do not depend on the other records of its batch, nor on how the work is split.

use super::vector::{Stored, Vector, clamp};
use super::{Activation, Affine, Bounds};
use crate::ir::op::Math;
use crate::ir::scale::BESIDE;
use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// Some rows of a layer for some records. The kernels add products and biases, and apply
/// activations that only clamp. [`Kernels::complete`](super::Kernels::complete) applies all others
/// afterwards.
///
/// Safety of its computation: the layer's slices have their stated sizes, `V::LANES` divides the
/// panel, and `rows` are whole vectors of the layer. `x`, or each address in the table, is valid
/// for its values. With a distance of runs it is valid for those of all runs. The length of runs
/// divides `layer.inputs`. `result` is valid for `records` records of `rows.end` values, and no
/// other thread touches `rows` of them. `added` is valid for its values, and none of them is in
/// `result`.
pub(crate) struct Subproblem<'a, E> {
    pub(crate) layer: &'a Affine<'a, E>,
    pub(crate) rows: Range<usize>,
    pub(crate) records: usize,
    /// Value k of record n is `x[n · x_stride + k]`, if there are no runs. With runs but without a
    /// table, the record's first run is there.
    pub(crate) x: *const f32,
    /// The distance of two records in `x`, in values.
    pub(crate) x_stride: usize,
    /// The addresses of the values, for records that are not contiguous.
    pub(crate) runs: Option<Runs>,
    /// Row r of record n is written to `result[n · result_stride + r]`.
    pub(crate) result: *mut f32,
    /// The distance of two records in `result`, in values.
    pub(crate) result_stride: usize,
    /// The values that are added to the sums before the activation. `None` if there are none. A CPU
    /// without [`Kernels::adds`](super::Kernels::adds) takes none.
    pub(crate) added: Option<Added>,
}

/// Values of another step that a layer adds to its sums.
#[derive(Clone, Copy)]
pub(crate) struct Added {
    /// The sum of row r of record n gets `values[n · stride + r]`.
    pub(crate) values: *const f32,
    /// The distance of two records, in values.
    pub(crate) stride: usize,
    /// The number of rows with such a value, a multiple of the lanes. Later rows get 0.
    pub(crate) rows: usize,
}

impl Added {
    /// Returns the values of the records behind the first `n`.
    #[inline(always)]
    fn behind(self, n: usize) -> Added {
        Added {
            values: self.values.wrapping_add(n * self.stride),
            ..self
        }
    }
}

/// The values that rows without an added value get.
static ZEROS: [f32; 16] = [0.0; 16];

/// Records in pieces: the values of a record are runs of equal length at any address.
#[derive(Clone, Copy)]
pub(crate) struct Runs {
    /// If `apart` is 0, the address of run r of record n is `table[r · records + n]`. Otherwise
    /// `table` has only the address of each record's first run. If it is null, record n begins at
    /// `x[n · x_stride]`.
    pub(crate) table: *const *const f32,
    /// The distance of the runs of a record, in values, if all are equally far apart.
    pub(crate) apart: usize,
    /// The number of values in a run, at least 1.
    pub(crate) length: usize,
}

/// Runs the body for each `$i` below the constant `$n`, at most 8, as unrolled code. A loop over
/// registers must not remain a loop, at any optimisation level.
macro_rules! unrolled {
    ($i:ident < $n:expr, $body:block) => {
        const { assert!($n <= 8, "too many turns to write out") };
        unrolled!(@ $i, $n, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $i:ident, $n:expr, $body:block, $($k:literal)*) => {
        $(if $k < $n {
            let $i = $k;
            $body
        })*
    };
}

/// Runs the body for each record `$m` below the constant `$n`, as unrolled code. `$at` is the
/// record's address. It follows from the one before it, because a multiplication for each record
/// would delay the first products of a tile.
macro_rules! records {
    ($m:ident < $n:expr, $at:ident = $first:expr, $apart:expr, $body:block) => {
        let mut $at = $first;
        unrolled!($m < $n, {
            if $m > 0 {
                $at = $at.wrapping_add($apart);
            }
            $body
        });
    };
}

/// The bytes of the records' values that stay in a 1 MB second-level cache while the weights of all
/// rows are read, band by band. The rest of the cache is for weights. With twice this value,
/// full-mnist at batch 100 takes 10 % longer.
const KEPT: usize = 1 << 19;

/// Weights of at least this many bytes do not stay in the second-level cache.
const FAR_BYTES: usize = 1 << 20;

/// A single record waits for such weights. So it prefetches them, this many columns before they are
/// needed. For smaller layers the prefetches take more time than they save.
const FAR_COLUMNS: usize = 32;

/// The bytes of a cache line, which a prefetch loads.
const LINE: usize = 64;

/// The bytes of the records' values at a time, if the weights of all rows stay in the cache.
const PART: usize = KEPT / 4;

/// Computes the products, biases and clamping of a subproblem. A tile has at most M records. It has
/// N vectors of rows, or 2 or 1 at the end of the rows. Four vectors are split 2 + 2, not 3 + 1.
///
/// If the records do not fit the cache but the weights do, as for the many pixels of an image, the
/// records are cut into parts. If neither fits, the common dimension is cut into blocks. The result
/// then holds the sums of a block until the next block continues them. Runs are not cut, because
/// callers with runs pass few records.
///
/// SAFETY: the subproblem is sound, and the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn affine<V: Vector, E: Stored, const M: usize, const N: usize>(
    sub: &Subproblem<'_, E>,
) {
    let inputs = sub.layer.inputs;
    let record = inputs * size_of::<f32>();
    let (mut part, mut blocks) = (sub.records, 1);
    if sub.runs.is_none() && sub.records * record > KEPT {
        if sub.rows.len() * inputs * size_of::<E>() <= KEPT {
            part = (PART / record / M * M).max(M);
        } else {
            blocks = (sub.records * record).div_ceil(KEPT);
        }
    }
    let length = inputs.div_ceil(blocks);
    let mut first = 0;
    while first < sub.records {
        let some = Subproblem {
            rows: sub.rows.clone(),
            records: part.min(sub.records - first),
            x: sub.x.wrapping_add(first * sub.x_stride),
            result: sub.result.wrapping_add(first * sub.result_stride),
            added: sub.added.map(|added| added.behind(first)),
            ..*sub
        };
        let mut block = 0..length;
        // SAFETY: the records are some of the subproblem's; passed on.
        unsafe {
            all_rows::<V, E, M, N>(&some, &block);
            while block.end < inputs {
                block = block.end..inputs.min(block.end + length);
                all_rows::<V, E, M, N>(&some, &block);
            }
        }
        first += part;
    }
}

/// Computes all rows of a subproblem, for all of its records and a block of k.
///
/// SAFETY: as `affine`.
unsafe fn all_rows<V: Vector, E: Stored, const M: usize, const N: usize>(
    sub: &Subproblem<'_, E>,
    block: &Range<usize>,
) {
    let mut row = sub.rows.start;
    let rest = |row: usize| (sub.rows.end - row) / V::LANES;
    let bounds = match block.end == sub.layer.inputs {
        true => Bounds::of(sub.layer.activation).unwrap_or(Bounds::NONE),
        false => Bounds::NONE,
    };
    // SAFETY: the bands are inside the subproblem; passed on.
    unsafe {
        while rest(row) >= N && (N < 3 || rest(row) != N + 1) {
            band::<V, E, M, N>(sub, row, block, bounds);
            row += N * V::LANES;
        }
        while N > 2 && rest(row) >= 2 {
            band::<V, E, M, 2>(sub, row, block, bounds);
            row += 2 * V::LANES;
        }
        while row < sub.rows.end {
            // With fewer sums, those of a single vector would wait for each other.
            band::<V, E, 8, 1>(sub, row, block, bounds);
            row += V::LANES;
        }
    }
}

/// Computes N vectors of rows from `row` on, for all records and a block of k. Weights come from
/// memory once. Meanwhile the weights of the next band are prefetched evenly, so that its first
/// tile does not wait for them. This saves 8 % of the time of large layers.
///
/// SAFETY: as `affine`. The vectors are inside the subproblem.
#[inline(always)]
unsafe fn band<V: Vector, E: Stored, const M: usize, const N: usize>(
    sub: &Subproblem<'_, E>,
    row: usize,
    block: &Range<usize>,
    bounds: Bounds,
) {
    let (layer, height) = (sub.layer, N * V::LANES);
    const { assert!(M <= 8) };
    let parts = evenly(sub.records, M);
    let [(larger, most), (smaller, _)] = parts;
    let tiles = larger + smaller;
    // The next band begins where this one ends, in the same block or the next.
    let (next, k) = match row + 2 * height <= sub.rows.end {
        true => (row + height, block.start),
        false => (sub.rows.start, block.end),
    };
    let mut prefetch = match prefetches(most, N) {
        true => Prefetch::of(layer, next, k, (height, block.len(), tiles)),
        false => Prefetch::NONE,
    };
    let mut weights = [layer.weights.as_ptr(); N];
    let mut in_panel = row % layer.panel;
    let mut at = (row - in_panel) * layer.columns + block.start * layer.panel;
    unrolled!(i < N, {
        if i > 0 {
            in_panel += V::LANES;
            if in_panel == layer.panel {
                (in_panel, at) = (0, at + layer.panel * layer.columns);
            }
        }
        weights[i] = weights[i].wrapping_add(at + in_panel);
    });
    let far = V::PREFETCHES && size_of_val(layer.weights) >= FAR_BYTES;
    let mut n = 0;
    for (tiles, records) in parts {
        if tiles * records == 0 {
            continue;
        }
        let mut place = TilePlace {
            tiles,
            n,
            row,
            block,
            weights,
            prefetch: &mut prefetch,
            bounds,
        };
        macro_rules! tiles {
            ($($count:literal)*) => {
                $(if $count <= M && records == $count {
                    // SAFETY: the tiles have the next records of the subproblem, with the weights
                    // of its rows.
                    unsafe {
                        match far && $count == 1 {
                            true => V::tiles::<E, 1, N, true>(sub, &mut place),
                            false => V::tiles::<E, $count, N, false>(sub, &mut place),
                        }
                    }
                })*
            };
        }
        tiles!(1 2 3 4 5 6 7 8);
        n += tiles * records;
    }
}

/// Cuts `count` records or windows into as few tiles of at most `most` as possible. Returns two
/// numbers of tiles, each with the size of these tiles. Either number may be 0. The sizes differ by
/// one. A last tile of few would wait for loads of weights.
#[inline(always)]
pub(super) fn evenly(count: usize, most: usize) -> [(usize, usize); 2] {
    let tiles = count.div_ceil(most);
    if tiles == 0 {
        return [(0, 0); 2];
    }
    let (size, larger) = (count.div_ceil(tiles), (count - 1) % tiles + 1);
    [(larger, size), (tiles - larger, size - 1)]
}

/// The next address to prefetch, and the step in bytes from one k to the next.
pub(super) struct Ahead {
    at: *const u8,
    step: usize,
}

impl Ahead {
    const NONE: Ahead = Ahead {
        at: std::ptr::null(),
        step: 0,
    };
}

/// The prefetch of a band's weights, of which each tile of the band before it does a part. Nothing
/// is divided for a tile, because a division takes as long as many multiply-adds.
struct Prefetch {
    /// The address of the part of the next tile.
    at: *const u8,
    /// The end of the layer's weights.
    end: *const u8,
    /// The number of bytes of a tile's part, and of one of its columns.
    part: usize,
    step: usize,
    /// The number of tiles that prefetch a panel together, and of those left for this panel.
    share: usize,
    tiles: usize,
    /// The number of panels left, and the bytes from the end of a panel's parts to the next panel.
    panels: usize,
    gap: usize,
}

/// True if a tile prefetches weights of the next band. For a single record or vector, loads are the
/// bottleneck.
#[inline(always)]
fn prefetches(records: usize, vectors: usize) -> bool {
    records > 1 && vectors > 1
}

impl Prefetch {
    const NONE: Prefetch = Prefetch {
        at: std::ptr::null(),
        end: std::ptr::null(),
        part: 0,
        step: 0,
        share: 0,
        tiles: 0,
        panels: 0,
        gap: 0,
    };

    /// The prefetch of `height` rows from `row` on and `length` columns from k on, by some tiles.
    #[inline(always)]
    fn of<E>(
        layer: &Affine<'_, E>,
        row: usize,
        k: usize,
        (height, length, tiles): (usize, usize, usize),
    ) -> Prefetch {
        let (panels, bytes) = (height.div_ceil(layer.panel), layer.panel * size_of::<E>());
        let (share, panel) = ((tiles / panels).max(1), layer.columns * bytes);
        let (first, part) = (layer.weights.as_ptr().cast::<u8>(), length * bytes / share);
        Prefetch {
            at: first.wrapping_add(row / layer.panel * panel + k * bytes),
            end: first.wrapping_add(size_of_val(layer.weights)),
            part,
            step: bytes / share,
            share,
            tiles: share,
            panels,
            gap: panel - part * share,
        }
    }

    /// Returns the part of the next tile.
    #[inline(always)]
    fn tile(&mut self) -> Ahead {
        if self.panels == 0 || self.at >= self.end {
            let at = self.end.wrapping_sub(1);
            return Ahead { at, step: 0 };
        }
        let ahead = Ahead {
            at: self.at,
            step: self.step,
        };
        self.at = self.at.wrapping_add(self.part);
        self.tiles -= 1;
        if self.tiles == 0 {
            self.at = self.at.wrapping_add(self.gap);
            (self.tiles, self.panels) = (self.share, self.panels - 1);
        }
        ahead
    }
}

/// The position of some tiles in a subproblem, which have as many records each.
pub(super) struct TilePlace<'a, E, const N: usize> {
    /// The number of tiles.
    tiles: usize,
    /// The first record.
    n: usize,
    row: usize,
    /// The block of k in the common dimension.
    block: &'a Range<usize>,
    /// The address of the block's first weights, for each vector.
    weights: [*const E; N],
    prefetch: &'a mut Prefetch,
    /// The bounds of the results. A block that another one continues has none.
    bounds: Bounds,
}

/// Computes some tiles of M records by N vectors of rows, for a block of k. With FAR they prefetch
/// their own weights.
///
/// [`Vector::tiles`] compiles each kind of tile as a separate function, so that the code around it
/// takes no registers. A call computes all tiles of a band, because for few inputs a call takes as
/// long as the products. Three things keep the sums in registers, and `tests/program/speed.rs`
/// checks the result:
/// - The array of sums is indexed with constants only.
/// - The array begins as zero bytes. An initialiser that repeats a value is a loop over the array.
/// - A fence ends each record's multiply-adds. Without it the compiler loads the values of all
///   records first. 24 sums, three vectors of weights and eight values exceed 32 registers.
///
/// SAFETY: as `affine`. The place is inside the subproblem.
#[inline(always)]
pub(super) unsafe fn tiles<
    V: Vector,
    E: Stored,
    const M: usize,
    const N: usize,
    const FAR: bool,
>(
    sub: &Subproblem<'_, E>,
    place: &mut TilePlace<'_, E, N>,
) {
    for _ in 0..place.tiles {
        // SAFETY: passed on.
        unsafe { tile::<V, E, M, N, FAR>(sub, place) }
        place.n += M;
    }
}

/// Computes the next tile.
///
/// SAFETY: as `tiles`.
#[inline(always)]
unsafe fn tile<V: Vector, E: Stored, const M: usize, const N: usize, const FAR: bool>(
    sub: &Subproblem<'_, E>,
    place: &mut TilePlace<'_, E, N>,
) {
    let layer = sub.layer;
    let panel = layer.panel;
    let Ahead { mut at, step } = match prefetches(M, N) {
        true => place.prefetch.tile(),
        false => Ahead::NONE,
    };
    let &mut TilePlace {
        n,
        row,
        block,
        mut weights,
        bounds,
        ..
    } = place;
    // SAFETY: each pointer stays inside its array. Each vector has LANES biases and results, and
    // its weights are `panel` apart. Vectors of zero bytes are zeros.
    unsafe {
        let mut x = [sub.x; M];
        let null = std::ptr::null();
        let (mut table, apart, length, inputs) = match sub.runs {
            Some(runs) => (runs.table, runs.apart, runs.length, layer.inputs),
            None => (null, 0, block.len(), block.len()),
        };
        if table.is_null() {
            let first = sub.x.add(n * sub.x_stride + block.start);
            records!(m < M, at = first, sub.x_stride, { x[m] = at });
        } else {
            table = table.add(n);
            unrolled!(m < M, { x[m] = *table.add(m) });
        }
        // Sums begin with the bias or with the result of the previous block. Sums with a scale
        // begin with 0.
        let first = block.start == 0;
        let (begin, stride) = if first {
            (layer.biases.as_ptr(), 0)
        } else {
            (sub.result.cast_const(), sub.result_stride)
        };
        let mut sums: [[V; N]; M] = std::mem::zeroed();
        if !(E::SCALED && first) {
            records!(m < M, from = begin.add(n * stride + row), stride, {
                unrolled!(i < N, {
                    sums[m][i] = V::load(from.wrapping_add(i * V::LANES))
                });
            });
        }
        // With three or more vectors of weights, addresses that advance would exceed the registers.
        // So `shared` addresses stay, and add one offset for k. Multiply-adds of lanes with M > 2
        // exclude this, because a compiler would keep an address for each of four columns.
        let shared = N > 2 && !(V::FMA_OF_LANES && M > 2);
        // Most layers have panels of 16 rows. If all vectors are in one of these, the distances of
        // their weights are constants, so several columns need a single address. The counting and
        // the address then cost once for all of them, and a prefetch once for two: 22 instructions
        // for twelve multiply-adds, not 26. A prefetch loads one cache line, so two columns may
        // not prefetch more.
        let together = V::COLUMNS > 1
            && !FAR
            && N * V::LANES <= BESIDE
            && panel == BESIDE
            && (N == 1 || weights[1] == weights[0].wrapping_add(V::LANES))
            && step * 2 <= LINE;
        let mut done = 0;
        loop {
            // Adds the products of weights w. `fma` adds those of a record m to a sum.
            macro_rules! products {
                ($w:ident, $m:ident, $fma:expr) => {
                    unrolled!($m < M, {
                        let fma = $fma;
                        unrolled!(i < N, { sums[$m][i] = fma(sums[$m][i], $w[i]) });
                        compiler_fence(Ordering::SeqCst);
                    });
                };
            }
            // Adds the products of column k, and advances to the next.
            macro_rules! column {
                ($k:expr, $m:ident, $fma:expr) => {
                    let mut w: [V; N] = std::mem::zeroed();
                    unrolled!(i < N, {
                        w[i] = E::load(weights[i].add(if shared { $k * panel } else { 0 }))
                    });
                    if !shared {
                        unrolled!(i < N, { weights[i] = weights[i].wrapping_add(panel) });
                    }
                    products!(w, $m, $fma);
                    if FAR {
                        let ahead = panel * (FAR_COLUMNS + if shared { $k } else { 0 });
                        unrolled!(i < N, {
                            V::prefetch(weights[i].wrapping_add(ahead).cast())
                        });
                    }
                };
            }
            macro_rules! prefetch {
                ($columns:expr) => {
                    if prefetches(M, N) {
                        V::prefetch(at.cast());
                        at = at.wrapping_add($columns * step);
                    }
                };
            }
            let mut k = 0;
            if V::FMA_OF_LANES {
                while k + V::LANES <= length {
                    let mut values: [V; M] = std::mem::zeroed();
                    unrolled!(m < M, { values[m] = V::load(x[m].add(k)) });
                    unrolled!(lane < { if V::FMA_OF_LANES { V::LANES } else { 0 } }, {
                        column!(k + lane, m, |sum: V, w| sum.fma_of_lane(w, values[m], lane));
                        prefetch!(1);
                    });
                    k += V::LANES;
                }
            } else if together {
                while k + V::COLUMNS <= length {
                    unrolled!(c < V::COLUMNS, {
                        let mut w: [V; N] = std::mem::zeroed();
                        let first = c * BESIDE;
                        unrolled!(i < N, {
                            w[i] = E::load(weights[0].add(first + i * V::LANES))
                        });
                        products!(w, m, {
                            let value = V::splat(*x[m].add(k + c));
                            move |sum: V, w| sum.fma(w, value)
                        });
                        if c % 2 == 1 {
                            prefetch!(2);
                        }
                    });
                    let advance = V::COLUMNS * BESIDE;
                    unrolled!(i < N, { weights[i] = weights[i].wrapping_add(advance) });
                    k += V::COLUMNS;
                }
            }
            while k < length {
                column!(k, m, {
                    let value = V::splat(*x[m].add(k));
                    move |sum: V, w| sum.fma(w, value)
                });
                prefetch!(1);
                k += 1;
            }
            done += length;
            if done >= inputs {
                break;
            }
            if shared {
                unrolled!(i < N, { weights[i] = weights[i].add(length * panel) });
            }
            if apart > 0 {
                unrolled!(m < M, { x[m] = x[m].wrapping_add(apart) });
            } else {
                table = table.add(sub.records);
                unrolled!(m < M, { x[m] = *table.add(m) });
            }
        }
        if E::SCALED && block.end == layer.inputs {
            unrolled!(i < N, {
                let at = row + i * V::LANES;
                let (bias, scale) = (
                    V::load(layer.biases.as_ptr().add(at)),
                    V::load(layer.scales.as_ptr().add(at)),
                );
                unrolled!(m < M, { sums[m][i] = bias.fma(sums[m][i], scale) });
            });
        }
        // All products are in the sums. A block that another one continues adds nothing yet.
        match &sub.added {
            Some(added) if block.end == layer.inputs => {
                let one = V::splat(1.0);
                unrolled!(i < N, {
                    let row = row + i * V::LANES;
                    let (values, stride) = if row < added.rows {
                        (added.values.wrapping_add(row), added.stride)
                    } else {
                        (ZEROS.as_ptr(), 0)
                    };
                    records!(m < M, value = values.wrapping_add(n * stride), stride, {
                        sums[m][i] = sums[m][i].fma(V::load(value), one);
                    });
                });
            }
            _ => {}
        }
        macro_rules! finish {
            ($largest:literal) => {
                let first = sub.result.add(n * sub.result_stride + row);
                records!(m < M, to = first, sub.result_stride, {
                    unrolled!(i < N, {
                        let value = clamp::<V, $largest>(sums[m][i], sums[m][i], bounds);
                        value.store(to.wrapping_add(i * V::LANES));
                    });
                });
            };
        }
        if bounds.largest == f32::INFINITY {
            finish!(false);
        } else {
            finish!(true);
        }
    }
}

/// The number of vectors in an iteration of [`peak`], enough that no multiply-add waits for the
/// previous one.
pub(crate) const INDEPENDENT: usize = 12;

/// Computes only multiply-adds in registers: `turns` times [`INDEPENDENT`] vectors.
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn peak<V: Vector>(turns: usize) {
    // SAFETY: vectors of zero bytes are zeros.
    unsafe {
        let mut sums: [[V; INDEPENDENT / 2]; 2] = std::mem::zeroed();
        let (a, b) = (V::splat(black_box(0.5)), V::splat(black_box(0.25)));
        for _ in 0..turns {
            unrolled!(m < 2, {
                unrolled!(i < INDEPENDENT / 2, { sums[m][i] = sums[m][i].fma(a, b) });
            });
        }
        black_box(sums);
    }
}

/// The number of vectors in an iteration of [`read`], enough that no maximum waits for the previous
/// one.
pub(crate) const READ_AT_ONCE: usize = 8;

/// Only reads `count` values, `turns` times. `count` is a multiple of [`READ_AT_ONCE`] vectors.
///
/// SAFETY: `values` is valid for `count` values, and the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn read<V: Vector>(values: *const f32, count: usize, turns: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut largest = [V::splat(0.0); READ_AT_ONCE];
        for _ in 0..turns {
            let values = black_box(values);
            for at in (0..count).step_by(READ_AT_ONCE * V::LANES) {
                unrolled!(i < READ_AT_ONCE, {
                    largest[i] = largest[i].max(V::load(values.add(at + i * V::LANES)));
                });
            }
        }
        black_box(largest);
    }
}

/// Applies an activation to `count` values in place, a multiple of the lanes. Activations with
/// exponentials have an error below 2·10⁻⁷ (GELU: times |x|). NaN stays NaN. Adding 0 · x turns the
/// infinities of an overflow into NaN.
///
/// SAFETY: `values` is valid for `count` values, and the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn activate<V: Vector>(activation: Activation, values: *mut f32, count: usize) {
    if activation.computed_each() {
        // SAFETY: the caller's promise.
        return unsafe { super::activate_each(activation, values, count) };
    }
    if activation == Activation::None {
        return;
    }
    let parameters = activation.parameters();
    let exponential = activation.own_error() > 0.0;
    for i in (0..count).step_by(V::LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let x = V::load(values.add(i));
            let (zero, one) = (V::splat(0.0), V::splat(1.0));
            let (a, b) = (V::splat(parameters[0]), V::splat(parameters[1]));
            let times = |x: V, factor: f32| zero.fma(x, V::splat(factor));
            let (power, rest) = if exponential {
                exp(exponent(activation, x))
            } else {
                (zero, zero)
            };
            let e = power.fma(power, rest);
            let e_less_one = || V::splat(-1.0).fma(power, one).fma(power, rest);
            // The logistic function, 1 / (1 + e).
            let logistic = || one.div(one.fma(e, one));
            let between = |x: V, low: V, high: V| high.min(low.max(x));
            let y = match activation {
                Activation::None => x,
                Activation::Sigmoid => logistic(),
                Activation::Relu => zero.max(x),
                // With m = e^−2x − 1, tanh x is −m / (m + 2). Near 0, a quotient of e^−2x itself
                // would lose the digits of x.
                Activation::Tanh => {
                    times(e_less_one(), -1.0).div(V::splat(2.0).fma(e_less_one(), one))
                }
                Activation::LeakyRelu(_) => zero.max(x).fma(zero.min(x), a),
                Activation::Clip { .. } => between(x, a, b),
                Activation::Elu { .. } => zero.fma(zero.max(x).fma(a, e_less_one()), b),
                Activation::Gelu => {
                    let size = x.max(times(x, -1.0));
                    zero.max(x).fma(times(size, -0.5), zero.fma(tail(size), e))
                }
                // `exp` stops at e⁸⁸, so the logistic function never falls below 6·10⁻³⁹. With x =
                // −10³⁸ the product would be −0.6. GELU is zero in f32 below −16, so x is bounded
                // there.
                Activation::GeluTanh => zero.fma(V::splat(-16.0).max(x), logistic()),
                Activation::HardSigmoid { .. } => between(b.fma(a, x), zero, one),
                Activation::HardSwish => zero.fma(
                    x,
                    between(V::splat(0.5).fma(x, V::splat(1.0 / 6.0)), zero, one),
                ),
                // x is bounded as for GELU by tanh: below −88, `exp` no longer changes.
                Activation::Silu => zero.fma(V::splat(-88.0).max(x), logistic()),
                // With w = 1 + eˣ, tanh(ln w) is (w² − 1) / (w² + 1).
                Activation::Mish => {
                    let square = zero.fma(e, V::splat(2.0).fma(e, one));
                    let tanh = square.div(V::splat(2.0).fma(square, one));
                    zero.fma(V::splat(-88.0).max(x), tanh)
                }
                Activation::Softplus => log1p(e).fma(zero.max(x), one),
                Activation::Math(Math::Round) => x.round(),
                Activation::Math(Math::Floor) => x.floor(),
                Activation::Math(_) => x,
            };
            y.fma(x, zero).store(values.add(i));
        }
    }
}

/// Returns the argument of the exponential function that the activation contains. It is 0 for
/// activations without one.
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
unsafe fn exponent<V: Vector>(activation: Activation, x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = V::splat(0.0);
        let times = |x: V, factor: f32| zero.fma(x, V::splat(factor));
        match activation {
            Activation::Sigmoid | Activation::Silu => times(x, -1.0),
            Activation::Tanh => times(x, -2.0),
            Activation::Elu { .. } => zero.min(x),
            Activation::Gelu => zero.fma(x, times(x, -0.5)),
            // The argument is a multiple of x + 0.044715 x³.
            Activation::GeluTanh => times(x.fma(zero.fma(x, x), times(x, 0.044_715)), -1.595_769),
            // From 20 on, tanh(ln(1 + eˣ)) is 1 in f32. The square of a much larger eˣ would
            // overflow.
            Activation::Mish => V::splat(20.0).min(x),
            // The argument is −|x|.
            Activation::Softplus => zero.min(x).fma(zero.max(x), V::splat(-1.0)),
            Activation::None
            | Activation::Relu
            | Activation::LeakyRelu(_)
            | Activation::Clip { .. }
            | Activation::HardSigmoid { .. }
            | Activation::HardSwish
            | Activation::Math(_) => zero,
        }
    }
}

/// Returns twice the tail of the normal distribution above x ≥ 0, divided by e^(−x²/2), with an
/// error below 2·10⁻⁷ (Abramowitz and Stegun, 7.1.26).
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
unsafe fn tail<V: Vector>(x: V) -> V {
    const SERIES: [f32; 5] = [
        1.061_405_4,
        -1.453_152,
        1.421_413_7,
        -0.284_496_74,
        0.254_829_6,
    ];
    // SAFETY: the caller's promise.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        let t = one.div(one.fma(x, V::splat(0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2)));
        let mut y = zero;
        unrolled!(i < 5, { y = V::splat(SERIES[i]).fma(y, t) });
        zero.fma(y, t)
    }
}

/// Returns ln(1 + x) for x from 0 to 1, with an error below 2·10⁻⁷.
///
/// ln(1 + x) is 2·artanh(s) with s = x / (2 + x), at most 1/3. The rest of the series is below
/// 10⁻⁸.
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
unsafe fn log1p<V: Vector>(x: V) -> V {
    const SERIES: [f32; 6] = [2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 2.0];
    // SAFETY: the caller's promise.
    unsafe {
        let zero = V::splat(0.0);
        let s = x.div(V::splat(2.0).fma(x, V::splat(1.0)));
        let square = zero.fma(s, s);
        let mut y = V::splat(2.0 / 13.0);
        unrolled!(i < 6, { y = V::splat(SERIES[i]).fma(y, square) });
        zero.fma(y, s)
    }
}

/// Returns p and q so that eˣ is p + p·q, with a relative error below 2·10⁻⁷. x is clamped to −87 …
/// 88. p is a power of two, and 1 near 0. So eˣ − 1 is (p − 1) + p·q with as small an error.
///
/// Uses x = n·ln 2 + r with |r| ≤ ln 2 / 2, and the series of eʳ to the seventh power with a rest
/// below 6·10⁻⁹. ln 2 has two parts, and the product of n and the first part is exact.
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
unsafe fn exp<V: Vector>(x: V) -> (V, V) {
    /// Floats from 2²³ on are whole numbers. Adding this rounds, and leaves n + 127 in the last
    /// bits.
    const ROUND: f32 = (3 << 22) as f32 + 127.0;
    const SERIES: [f32; 6] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0];
    // SAFETY: the caller's promise.
    unsafe {
        let x = V::splat(88.0).min(V::splat(-87.0).max(x));
        let rounded = V::splat(ROUND).fma(x, V::splat(std::f32::consts::LOG2_E));
        let n = V::splat(-ROUND).fma(rounded, V::splat(1.0));
        let r = x
            .fma(n, V::splat(-0.693_359_4))
            .fma(n, V::splat(2.121_944_4e-4));
        let mut y = V::splat(1.0 / 5040.0);
        unrolled!(i < 6, { y = V::splat(SERIES[i]).fma(y, r) });
        (rounded.power_of_two(), V::splat(0.0).fma(y, r))
    }
}
