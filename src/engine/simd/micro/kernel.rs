//! The micro-kernels, written once for every instruction set.
//!
//! A tile is M records by N vectors of rows. Its sums stay in registers while k runs: a load of
//! weights serves M multiply-adds, a broadcast value N. Each sum begins with the bias and adds its
//! products in the order of k, whatever the tile, so a record's scores do not depend on the records
//! beside it, nor on how the work is split.

use super::vector::{Stored, Vector};
use super::{Activation, Affine};
use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// Some rows of a layer for some records. The kernels add products and biases up, and apply a ReLU;
/// every other activation is applied afterwards, where
/// [`Kernels::complete`](super::Kernels::complete) does.
///
/// What makes it sound to compute: the layer's slices have the sizes it says, `V::LANES` divides
/// the panel, `rows` are whole vectors of the layer; `x`, or every address of the table, is good
/// for the values that begin there, the length of runs divides `layer.inputs`; `result` is good for
/// `records` records of `rows.end` values, `rows` of which nobody else touches meanwhile.
pub(crate) struct Subproblem<'a, E> {
    /// The layer.
    pub(crate) layer: &'a Affine<'a, E>,
    /// Rows to compute.
    pub(crate) rows: Range<usize>,
    /// Number of records.
    pub(crate) records: usize,
    /// Value k of record n is `x[n · x_stride + k]`, unless there are runs.
    pub(crate) x: *const f32,
    /// In values.
    pub(crate) x_stride: usize,
    /// Where the values of a record do not stand in one piece.
    pub(crate) runs: Option<Runs>,
    /// Row r for record n goes to `result[n · result_stride + r]`.
    pub(crate) result: *mut f32,
    /// In values.
    pub(crate) result_stride: usize,
}

/// Records in pieces: the values of each are runs of equal length, wherever they stand.
#[derive(Clone, Copy)]
pub(crate) struct Runs {
    /// Run r of record n begins at `table[r · records + n]`.
    pub(crate) table: *const *const f32,
    /// Values of a run, at least 1.
    pub(crate) length: usize,
}

/// Runs the body for each `$i` below `$n` (a constant, at most 8), written out: a loop over
/// registers must not stay a loop, whatever the optimisation.
macro_rules! unrolled {
    ($i:ident < $n:expr, $body:block) => {
        unrolled!(@ $i, $n, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $i:ident, $n:expr, $body:block, $($k:literal)*) => {
        $(if $k < $n {
            let $i = $k;
            $body
        })*
    };
}

/// Records' values in bytes that a second-level cache of 1 MB keeps while bands of rows pass by. A
/// band's weights take a third of it: with twice as many values full-mnist at batch 100 takes a
/// tenth longer.
const KEPT: usize = 1 << 19;

/// Bias, product and activation of a sub, with tiles of M (at the end of the batch H or 1) records
/// by N (at the end of the rows 2 or 1: four vectors are twice two rather than three and one)
/// vectors.
///
/// Where the records are too many or too long to stay in the cache, the common dimension is cut
/// into blocks, and the sums of a block wait in the result for the next: no sum changes by this.
/// Runs are not cut: who has them takes so few records at a time that they stay there.
///
/// SAFETY: the subproblem is sound, the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn affine<
    V: Vector,
    E: Stored,
    const M: usize,
    const H: usize,
    const N: usize,
>(
    sub: &Subproblem<'_, E>,
) {
    let inputs = sub.layer.inputs;
    let bytes = sub.records * inputs * size_of::<f32>();
    let blocks = if sub.runs.is_some() {
        1
    } else {
        bytes.div_ceil(KEPT)
    };
    let length = inputs.div_ceil(blocks.max(1));
    let mut block = 0..length;
    // SAFETY: the bands are inside the subproblem; passed on.
    unsafe {
        loop {
            let mut row = sub.rows.start;
            let rest = |row: usize| (sub.rows.end - row) / V::LANES;
            while rest(row) >= N && (N < 3 || rest(row) != N + 1) {
                band::<V, E, M, H, N>(sub, row, &block);
                row += N * V::LANES;
            }
            while N > 2 && rest(row) >= 2 {
                band::<V, E, M, H, 2>(sub, row, &block);
                row += 2 * V::LANES;
            }
            while row < sub.rows.end {
                band::<V, E, M, H, 1>(sub, row, &block);
                row += V::LANES;
            }
            if block.end == inputs {
                break;
            }
            block = block.end..inputs.min(block.end + length);
        }
    }
}

/// N vectors of rows from `row` on, for all records of the subproblem and a block of k. Weights
/// come from memory once; meanwhile those of the next band are asked for, spread evenly, so that
/// its first tile does not wait for them (8 % of the time of large layers).
///
/// SAFETY: as `affine`; the vectors are inside the sub.
#[inline(always)]
unsafe fn band<V: Vector, E: Stored, const M: usize, const H: usize, const N: usize>(
    sub: &Subproblem<'_, E>,
    row: usize,
    block: &Range<usize>,
) {
    let (layer, height) = (sub.layer, N * V::LANES);
    // The next band begins a block where this one ends it.
    let (next, k) = if row + 2 * height <= sub.rows.end {
        (row + height, block.start)
    } else {
        (sub.rows.start, block.end)
    };
    let panels = height.div_ceil(layer.panel);
    // So many tiles share a panel of it.
    let share = (sub.records.div_ceil(M) / panels).max(1);
    let bytes = layer.panel * size_of::<E>();
    let ahead = |tile: usize| {
        let panel = next / layer.panel + tile / share;
        let k = panel * layer.columns + k + tile % share * block.len() / share;
        let step = if tile / share < panels && k < layer.weights.len() / layer.panel {
            bytes / share
        } else {
            0
        };
        Ahead {
            at: layer.weights.as_ptr().cast::<u8>().wrapping_add(k * bytes),
            step,
        }
    };
    let mut weights = [layer.weights.as_ptr(); N];
    unrolled!(i < N, {
        let r = row + i * V::LANES;
        let at = r / layer.panel * layer.panel * layer.columns
            + r % layer.panel
            + block.start * layer.panel;
        weights[i] = weights[i].wrapping_add(at);
    });
    // A single vector is short of loads, not of weights.
    let ahead = |n: usize| {
        if N > 1 {
            ahead(n / M)
        } else {
            Ahead {
                at: std::ptr::null(),
                step: 0,
            }
        }
    };
    let mut n = 0;
    // SAFETY: `tile` writes records n to n + M that are in the sub; these are the weights of its
    // rows.
    unsafe {
        // Tiles that are the same are compiled once.
        let (rest, halves) = (if H < M { H } else { M.min(2) - 1 }, 1 < H && H < M);
        let place = |n: usize| Place {
            n,
            row,
            block,
            weights,
            ahead: ahead(n),
        };
        while sub.records > n + rest {
            V::tile::<E, M, N>(sub, &place(n));
            n += M;
        }
        if halves && sub.records > n + 1 {
            V::tile::<E, H, N>(sub, &place(n));
        } else if M > 1 && sub.records > n {
            V::tile::<E, 1, N>(sub, &place(n));
        }
    }
}

/// Weights to be asked for: the address and how many bytes further at the next k.
pub(super) struct Ahead {
    at: *const u8,
    step: usize,
}

/// Where a tile stands in a subproblem.
pub(super) struct Place<'a, E, const N: usize> {
    /// The first record. Those behind the last one of the subproblem are the last one again.
    n: usize,
    /// The first row.
    row: usize,
    /// The block of k, inside the common dimension.
    block: &'a Range<usize>,
    /// The block's first weights of each vector.
    weights: [*const E; N],
    ahead: Ahead,
}

/// Records n to n + M by N vectors of rows, for a block of k.
///
/// [`Vector::tile`] makes a function of its own of each tile, so that the code around it takes no
/// registers. Three things keep the sums in registers, and `tests/program/speed.rs` checks the
/// result:
/// - The array of sums is indexed with constants only.
/// - The array begins as zero bytes. An initialiser that repeats a value is a loop over the array.
/// - A fence ends each record's multiply-adds. Without it the compiler loads the values of all
///   records first, and 24 sums, three vectors of weights and eight values are more than 32
///   registers.
///
/// SAFETY: as `affine`; the place is inside the subproblem.
#[inline(always)]
pub(super) unsafe fn tile<V: Vector, E: Stored, const M: usize, const N: usize>(
    sub: &Subproblem<'_, E>,
    place: &Place<'_, E, N>,
) {
    let layer = sub.layer;
    let panel = layer.panel;
    let &Place {
        n,
        row,
        block,
        mut weights,
        ahead: Ahead { mut at, step },
    } = place;
    let record = |m: usize| (n + m).min(sub.records - 1);
    // SAFETY: every pointer stays inside its array: the block of a record's values; of the weights,
    // vectors that are `panel` apart, as many; LANES biases and results per vector. Vectors of zero
    // bytes are zeros.
    unsafe {
        let mut x = [sub.x; M];
        let (mut table, length, inputs) = match sub.runs {
            Some(runs) => {
                unrolled!(m < M, { x[m] = *runs.table.add(record(m)) });
                (runs.table, runs.length, layer.inputs)
            }
            None => {
                unrolled!(m < M, {
                    x[m] = sub.x.add(record(m) * sub.x_stride + block.start)
                });
                (std::ptr::null(), block.len(), block.len())
            }
        };
        // Sums begin with the bias (those that are multiplied with a scale: with 0), or with what
        // the block before has left.
        let first = block.start == 0;
        let (begin, stride) = if first {
            (layer.biases.as_ptr(), 0)
        } else {
            (sub.result.cast_const(), sub.result_stride)
        };
        let mut sums: [[V; N]; M] = std::mem::zeroed();
        if !(E::SCALED && first) {
            unrolled!(m < M, {
                unrolled!(i < N, {
                    sums[m][i] = V::load(begin.add(record(m) * stride + row + i * V::LANES))
                });
            });
        }
        let mut done = 0;
        loop {
            for k in 0..length {
                let mut w: [V; N] = std::mem::zeroed();
                // Three and more addresses beside those of the records are too many to step each by
                // itself.
                unrolled!(i < N, {
                    w[i] = E::load(weights[i].add(if N > 2 { k * panel } else { 0 }))
                });
                if N <= 2 {
                    unrolled!(i < N, { weights[i] = weights[i].wrapping_add(panel) });
                }
                unrolled!(m < M, {
                    let value = V::splat(*x[m].add(k));
                    unrolled!(i < N, { sums[m][i] = sums[m][i].fma(w[i], value) });
                    compiler_fence(Ordering::SeqCst);
                });
                if M > 1 && N > 1 {
                    V::prefetch(at.cast());
                    at = at.wrapping_add(step);
                }
            }
            done += length;
            if done >= inputs {
                break;
            }
            if N > 2 {
                unrolled!(i < N, { weights[i] = weights[i].add(length * panel) });
            }
            table = table.add(sub.records);
            unrolled!(m < M, { x[m] = *table.add(record(m)) });
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
        // NaN is neither below zero nor below −∞: it stays. 0 · x makes NaN of an overflow, which
        // would be gone where −∞ became zero, and changes no other value.
        let relu = layer.activation == Activation::Relu && block.end == layer.inputs;
        let floor = V::splat(if relu { 0.0 } else { f32::NEG_INFINITY });
        unrolled!(m < M, {
            unrolled!(i < N, {
                let to = sub
                    .result
                    .add(record(m) * sub.result_stride + row + i * V::LANES);
                floor
                    .max(sums[m][i])
                    .fma(sums[m][i], V::splat(0.0))
                    .store(to);
            });
        });
    }
}

/// Multiply-adds of each lane in a turn of [`peak`]: enough that none waits for the one before.
pub(crate) const INDEPENDENT: usize = 12;

/// Does nothing but multiply-adds in registers, `turns` times [`INDEPENDENT`] vectors: the most
/// that a core can.
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn peak<V: Vector>(turns: usize) {
    // SAFETY: vectors of zero bytes are zeros; passed on.
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

/// Applies an activation to `count` values, a multiple of the lanes, in place. Those with
/// exponentials are within 2·10⁻⁷ of the exact value (GELU: times |x|). NaN stays NaN, and 0 · x
/// makes NaN of the infinities that an overflow leaves.
///
/// SAFETY: the values are there, the CPU has V's instruction set.
#[inline(always)]
pub(super) unsafe fn activate<V: Vector>(activation: Activation, values: *mut f32, count: usize) {
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
            // What e is raised to, where an exponential is needed.
            let power = match activation {
                Activation::Sigmoid => times(x, -1.0),
                Activation::Tanh => times(x, -2.0),
                Activation::Elu { .. } => zero.min(x),
                Activation::Gelu => zero.fma(x, times(x, -0.5)),
                // x and its cube.
                Activation::GeluTanh => {
                    times(x.fma(zero.fma(x, x), times(x, 0.044_715)), -1.595_769)
                }
                _ => zero,
            };
            let e = if exponential { exp(power) } else { zero };
            // 1 / (1 + e)
            let logistic = || one.div(one.fma(e, one));
            let between = |x: V, low: V, high: V| high.min(low.max(x));
            let y = match activation {
                Activation::None => x,
                Activation::Sigmoid => logistic(),
                Activation::Relu => zero.max(x),
                // tanh x = 2 / (1 + e^−2x) − 1
                Activation::Tanh => V::splat(-1.0).fma(logistic(), V::splat(2.0)),
                Activation::LeakyRelu(_) => zero.max(x).fma(zero.min(x), a),
                Activation::Clip { .. } => between(x, a, b),
                Activation::Elu { .. } => {
                    zero.fma(zero.max(x).fma(a, V::splat(-1.0).fma(e, one)), b)
                }
                Activation::Gelu => {
                    let size = x.max(times(x, -1.0));
                    zero.max(x).fma(times(size, -0.5), zero.fma(tail(size), e))
                }
                // `exp` stops at e⁸⁸, so the logistic function never falls below 6·10⁻³⁹, and times
                // x = −10³⁸ that would be −0.6. GELU is zero in f32 from −16 on, so x need not be
                // smaller.
                Activation::GeluTanh => zero.fma(V::splat(-16.0).max(x), logistic()),
                Activation::HardSigmoid { .. } => between(b.fma(a, x), zero, one),
                Activation::HardSwish => zero.fma(
                    x,
                    between(V::splat(0.5).fma(x, V::splat(1.0 / 6.0)), zero, one),
                ),
            };
            y.fma(x, zero).store(values.add(i));
        }
    }
}

/// Twice the part of the normal distribution above x ≥ 0, over e^(−x²/2), within 2·10⁻⁷ (Abramowitz
/// and Stegun, 7.1.26).
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

/// eˣ with a relative error below 2·10⁻⁷, for x from −87 to 88; what is outside counts as the
/// nearer end.
///
/// x = n·ln 2 + r with |r| ≤ ln 2 / 2 (ln 2 in two parts, the first so short that its product with
/// n is exact), and the series of eʳ to the seventh power, whose rest is below 6·10⁻⁹.
///
/// SAFETY: the CPU has V's instruction set.
#[inline(always)]
unsafe fn exp<V: Vector>(x: V) -> V {
    /// Floats from 2²³ on are whole numbers: adding this rounds, and leaves n + 127 in the last
    /// bits.
    const ROUND: f32 = (3 << 22) as f32 + 127.0;
    const SERIES: [f32; 7] = [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    // SAFETY: the caller's promise.
    unsafe {
        let x = V::splat(88.0).min(V::splat(-87.0).max(x));
        let rounded = V::splat(ROUND).fma(x, V::splat(std::f32::consts::LOG2_E));
        let n = V::splat(-ROUND).fma(rounded, V::splat(1.0));
        let r = x
            .fma(n, V::splat(-0.693_359_4))
            .fma(n, V::splat(2.121_944_4e-4));
        let mut y = V::splat(1.0 / 5040.0);
        unrolled!(i < 7, { y = V::splat(SERIES[i]).fma(y, r) });
        V::splat(0.0).fma(y, rounded.power_of_two())
    }
}
