//! Winograd's F(2×2, 3×3) and F(4×4, 3×3). They compute a 3 × 3 convolution from fewer products per
//! channel: 16 instead of 36 for four pixels, or 36 instead of 144 for sixteen.
//! (S. Winograd, "Arithmetic Complexity of Computations", 1980; A. Lavin and S. Gray, "Fast
//! Algorithms for Convolutional Neural Networks", 2015.) A tile d has 4 × 4 or 6 × 6 pixels. With a
//! filter g, the tile's results are Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A. G, B and A are constant matrices.
//! For each element of a tile, the products over all channels and many tiles are a matrix product.
//!
//! The matrices follow from the points at which polynomials are multiplied. F(2×2) has 0, 1, -1 and
//! infinity. F(4×4) has 0, ±√½, ±√2 and infinity. With the usual 0, ±1, ±2 its errors are twice as
//! large (`docs/measured/accuracy.md`).

use super::Bounds;
use super::vector::Vector;
use crate::ir::view::Image;
use crate::planner::tiles::TileSize;
use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

/// The largest number of elements along a side of a tile, rounded up to the limit of `unrolled!`.
const MOST: usize = 8;

/// Returns factors f for the elements along a side of a tile, with Aᵀ f = 1. The bias times f fᵀ is
/// added to the elements' sums, so each pixel gets the bias. For F(4×4) these are the smallest such
/// factors.
pub(crate) fn bias_factors(size: TileSize) -> &'static [f32] {
    match size {
        TileSize::Two => &[0.0, 1.0, 0.0, 0.0],
        TileSize::Four => &[
            0.2,
            0.2 + SQRT_2 / 4.0,
            0.2 - SQRT_2 / 4.0,
            0.2 + SQRT_2 / 8.0,
            0.2 - SQRT_2 / 8.0,
            -0.25,
        ],
    }
}

/// The transforms before and after the products, for one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Transforms {
    pub(crate) size: TileSize,
    /// Computes G g Gᵀ for filters that are side by side. The arguments are the address of the
    /// filters' first taps, the distance between taps, the result, the distance between its
    /// elements, and the number of filters. That number must be a multiple of the lanes.
    ///
    /// SAFETY: nine taps and the room for the elements exist, and the CPU has the instruction set.
    pub(crate) filters: unsafe fn(*const f32, usize, *mut f32, usize, usize),
    /// Computes Bᵀ d B for one tile. The arguments are the address of the tile's first pixel, the
    /// distances between lines and between pixels, the number of channels, the result, and the
    /// distance between its elements. The number of channels must be a multiple of the lanes.
    ///
    /// SAFETY: the pixels and the room for the elements exist, and the CPU has the instruction set.
    pub(crate) spread: unsafe fn(*const f32, Steps, usize, *mut f32, usize),
    /// Computes Aᵀ m A from the sums m of a tile's elements, and clamps the result. The arguments
    /// are the address of element 0, the distance between elements, the number of channels, the
    /// pixels, and the bounds.
    ///
    /// SAFETY: as `spread`. The pixels exist.
    pub(crate) gather: unsafe fn(*const f32, usize, usize, Pixels, Bounds),
}

/// The distances between two lines and between two pixels of an image, in floats.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) line: usize,
    pub(crate) pixel: usize,
}

impl From<Image> for Steps {
    fn from(Image { line, pixel, .. }: Image) -> Steps {
        Steps { line, pixel }
    }
}

/// The place in the result image where a tile's pixels are written.
#[derive(Clone, Copy)]
pub(crate) struct Pixels {
    /// The address of the tile's first pixel in the result.
    pub(crate) first: *mut f32,
    pub(crate) steps: Steps,
    /// The number of the tile's lines inside the image, at least 1. `columns` is that of its
    /// columns.
    pub(crate) lines: usize,
    pub(crate) columns: usize,
}

/// Computes Bᵀ x for one line or column of a tile with P pixels a side. Only the first P + 2
/// vectors have a meaning.
///
/// SAFETY: the CPU has the instruction set.
#[inline(always)]
unsafe fn spread_line<V: Vector, const P: usize>(x: [V; MOST]) -> [V; MOST] {
    // SAFETY: the caller's promise.
    unsafe {
        let (one, minus) = (V::splat(1.0), V::splat(-1.0));
        let mut d = x;
        if P == 2 {
            d[0] = x[0].fma(x[2], minus);
            d[1] = x[1].fma(x[2], one);
            d[2] = x[2].fma(x[1], minus);
            d[3] = x[1].fma(x[3], minus);
        } else {
            let (minus_two, minus_half) = (V::splat(-2.0), V::splat(-0.5));
            let both = V::splat(-2.5);
            let (even, odd) = (x[4].fma(x[2], minus_two), x[3].fma(x[1], minus_two));
            d[0] = x[0].fma(x[2], both).fma(x[4], one);
            d[1] = even.fma(odd, V::splat(FRAC_1_SQRT_2));
            d[2] = even.fma(odd, V::splat(-FRAC_1_SQRT_2));
            let (even, odd) = (x[4].fma(x[2], minus_half), x[3].fma(x[1], minus_half));
            d[3] = even.fma(odd, V::splat(SQRT_2));
            d[4] = even.fma(odd, V::splat(-SQRT_2));
            d[5] = x[1].fma(x[3], both).fma(x[5], one);
        }
        d
    }
}

/// Computes Aᵀ m for one line or column of a tile. Only the first P vectors have a meaning.
///
/// SAFETY: the CPU has the instruction set.
#[inline(always)]
unsafe fn gather_line<V: Vector, const P: usize>(m: [V; MOST]) -> [V; MOST] {
    // SAFETY: the caller's promise.
    unsafe {
        let (zero, one, minus) = (V::splat(0.0), V::splat(1.0), V::splat(-1.0));
        let mut y = m;
        if P == 2 {
            y[0] = m[0].fma(m[1], one).fma(m[2], one);
            y[1] = m[1].fma(m[2], minus).fma(m[3], minus);
        } else {
            let (sum_a, difference_a) = (m[1].fma(m[2], one), m[1].fma(m[2], minus));
            let (sum_b, difference_b) = (m[3].fma(m[4], one), m[3].fma(m[4], minus));
            y[0] = m[0].fma(sum_a, one).fma(sum_b, one);
            y[1] = zero
                .fma(difference_a, V::splat(FRAC_1_SQRT_2))
                .fma(difference_b, V::splat(SQRT_2));
            y[2] = zero.fma(sum_a, V::splat(0.5)).fma(sum_b, V::splat(2.0));
            y[3] = m[5]
                .fma(difference_a, V::splat(FRAC_1_SQRT_2 / 2.0))
                .fma(difference_b, V::splat(2.0 * SQRT_2));
        }
        y
    }
}

/// Computes G g for one line or column of a filter. Only the first three vectors of `g` have a
/// meaning, and the first P + 2 of the result.
///
/// SAFETY: the CPU has the instruction set.
#[inline(always)]
unsafe fn filter_line<V: Vector, const P: usize>(g: [V; MOST]) -> [V; MOST] {
    // SAFETY: the caller's promise.
    unsafe {
        let (zero, one, half) = (V::splat(0.0), V::splat(1.0), V::splat(0.5));
        let mut u = g;
        if P == 2 {
            let ends = zero.fma(g[0].fma(g[2], one), half);
            u[1] = ends.fma(g[1], half);
            u[2] = ends.fma(g[1], V::splat(-0.5));
            u[3] = g[2];
        } else {
            let ends = zero.fma(g[0].fma(g[2], half), V::splat(-2.0 / 3.0));
            u[1] = ends.fma(g[1], V::splat(-2.0 / 3.0 * FRAC_1_SQRT_2));
            u[2] = ends.fma(g[1], V::splat(2.0 / 3.0 * FRAC_1_SQRT_2));
            let ends = zero.fma(g[0].fma(g[2], V::splat(2.0)), V::splat(1.0 / 6.0));
            u[3] = ends.fma(g[1], V::splat(SQRT_2 / 6.0));
            u[4] = ends.fma(g[1], V::splat(-SQRT_2 / 6.0));
            u[5] = g[2];
        }
        u
    }
}

/// SAFETY: as declared for [`Transforms::spread`].
#[inline(always)]
pub(super) unsafe fn spread<V: Vector, const P: usize>(
    first: *const f32,
    Steps { line, pixel }: Steps,
    channels: usize,
    to: *mut f32,
    apart: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = V::splat(0.0);
        for c in (0..channels).step_by(V::LANES) {
            let mut d = [[zero; MOST]; MOST];
            unrolled!(j < P + 2, {
                let mut x = [zero; MOST];
                unrolled!(i < P + 2, {
                    x[i] = V::load(first.add(i * line + j * pixel + c))
                });
                let x = spread_line::<V, P>(x);
                unrolled!(i < P + 2, { d[i][j] = x[i] });
            });
            unrolled!(i < P + 2, {
                let (x, to) = (spread_line::<V, P>(d[i]), to.add((P + 2) * i * apart + c));
                unrolled!(j < P + 2, { x[j].store(to.add(j * apart)) });
            });
        }
    }
}

/// SAFETY: as declared for [`Transforms::gather`].
#[inline(always)]
pub(super) unsafe fn gather<V: Vector, const P: usize>(
    from: *const f32,
    apart: usize,
    channels: usize,
    pixels: Pixels,
    Bounds { least, largest }: Bounds,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = V::splat(0.0);
        let (least, largest) = (V::splat(least), V::splat(largest));
        // Adding 0 · y makes the result NaN if y is NaN or infinite. Clamping alone would hide such
        // values.
        let bounded = |y: V| largest.min(least.max(y)).fma(y, zero);
        for c in (0..channels).step_by(V::LANES) {
            let mut s = [[zero; MOST]; MOST];
            unrolled!(j < P + 2, {
                let mut m = [zero; MOST];
                unrolled!(i < P + 2, {
                    m[i] = V::load(from.add(((P + 2) * i + j) * apart + c))
                });
                let m = gather_line::<V, P>(m);
                unrolled!(i < P, { s[i][j] = m[i] });
            });
            unrolled!(i < P, {
                let to = pixels.first.wrapping_add(i * pixels.steps.line + c);
                if i < pixels.lines {
                    let y = gather_line::<V, P>(s[i]);
                    unrolled!(j < P, {
                        if j < pixels.columns {
                            bounded(y[j]).store(to.add(j * pixels.steps.pixel));
                        }
                    });
                }
            });
        }
    }
}

/// SAFETY: as declared for [`Transforms::filters`].
#[inline(always)]
pub(super) unsafe fn filters<V: Vector, const P: usize>(
    from: *const f32,
    apart: usize,
    to: *mut f32,
    apart_to: usize,
    count: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = V::splat(0.0);
        for i in (0..count).step_by(V::LANES) {
            let mut lines = [[zero; MOST]; MOST];
            unrolled!(j < 3, {
                let mut g = [zero; MOST];
                unrolled!(k < 3, { g[k] = V::load(from.add((3 * k + j) * apart + i)) });
                let g = filter_line::<V, P>(g);
                unrolled!(k < P + 2, { lines[k][j] = g[k] });
            });
            unrolled!(k < P + 2, {
                let (g, to) = (
                    filter_line::<V, P>(lines[k]),
                    to.add((P + 2) * k * apart_to + i),
                );
                unrolled!(j < P + 2, { g[j].store(to.add(j * apart_to)) });
            });
        }
    }
}
