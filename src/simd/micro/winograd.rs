//! Winograd's F(2×2, 3×3). It computes four pixels of a 3 × 3 convolution from 16 products per
//! channel instead of 36. (S. Winograd, "Arithmetic Complexity of Computations", 1980; A. Lavin and
//! S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.) A tile d has 4 × 4 pixels.
//! With a filter g, the four results of the tile are Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A. G, B and A are
//! constant matrices. For each of the 16 elements, the products over all channels and many tiles
//! are a matrix product.

use super::Bounds;
use super::vector::Vector;
use crate::ir::view::Image;

/// The number of elements in a tile's transform, and of its products per channel.
pub(crate) const ELEMENTS: usize = 16;

/// The index of the element that contributes equally to all four pixels of a tile. The bias is
/// added to this element.
pub(crate) const SHARED: usize = 5;

/// The transforms before and after the products, for one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Transforms {
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
    /// Computes Aᵀ m A from the 16 sums m of a tile, and clamps the result. The arguments are the
    /// address of element 0, the distance between elements, the number of channels, the pixels, and
    /// the bounds.
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
    /// The number of the tile's lines inside the image, 1 or 2. `columns` is that of its columns.
    pub(crate) lines: usize,
    pub(crate) columns: usize,
}

/// SAFETY: as declared for [`Transforms::spread`].
#[inline(always)]
pub(super) unsafe fn spread<V: Vector>(
    first: *const f32,
    Steps { line, pixel }: Steps,
    channels: usize,
    to: *mut f32,
    apart: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (one, minus) = (V::splat(1.0), V::splat(-1.0));
        for c in (0..channels).step_by(V::LANES) {
            let mut d = [[one; 4]; 4];
            unrolled!(j < 4, {
                let mut x = [one; 4];
                unrolled!(i < 4, {
                    x[i] = V::load(first.add(i * line + j * pixel + c))
                });
                d[0][j] = x[0].fma(x[2], minus);
                d[1][j] = x[1].fma(x[2], one);
                d[2][j] = x[2].fma(x[1], minus);
                d[3][j] = x[1].fma(x[3], minus);
            });
            unrolled!(i < 4, {
                let (x, to) = (d[i], to.add(4 * i * apart + c));
                x[0].fma(x[2], minus).store(to);
                x[1].fma(x[2], one).store(to.add(apart));
                x[2].fma(x[1], minus).store(to.add(2 * apart));
                x[1].fma(x[3], minus).store(to.add(3 * apart));
            });
        }
    }
}

/// SAFETY: as declared for [`Transforms::gather`].
#[inline(always)]
pub(super) unsafe fn gather<V: Vector>(
    from: *const f32,
    apart: usize,
    channels: usize,
    pixels: Pixels,
    Bounds { least, largest }: Bounds,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (zero, one, minus) = (V::splat(0.0), V::splat(1.0), V::splat(-1.0));
        let (least, largest) = (V::splat(least), V::splat(largest));
        // Adding 0 · y makes the result NaN if y is NaN or infinite. Clamping alone would hide such
        // values.
        let bounded = |y: V| largest.min(least.max(y)).fma(y, zero);
        for c in (0..channels).step_by(V::LANES) {
            let mut s = [[zero; 4]; 2];
            unrolled!(j < 4, {
                let mut m = [zero; 4];
                unrolled!(i < 4, { m[i] = V::load(from.add((4 * i + j) * apart + c)) });
                s[0][j] = m[0].fma(m[1], one).fma(m[2], one);
                s[1][j] = m[1].fma(m[2], minus).fma(m[3], minus);
            });
            unrolled!(i < 2, {
                let (s, to) = (s[i], pixels.first.wrapping_add(i * pixels.steps.line + c));
                if i < pixels.lines {
                    bounded(s[0].fma(s[1], one).fma(s[2], one)).store(to);
                    if pixels.columns > 1 {
                        bounded(s[1].fma(s[2], minus).fma(s[3], minus))
                            .store(to.add(pixels.steps.pixel));
                    }
                }
            });
        }
    }
}

/// SAFETY: as declared for [`Transforms::filters`].
#[inline(always)]
pub(super) unsafe fn filters<V: Vector>(
    from: *const f32,
    apart: usize,
    to: *mut f32,
    apart_to: usize,
    count: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (zero, one, half) = (V::splat(0.0), V::splat(1.0), V::splat(0.5));
        let minus = V::splat(-0.5);
        for i in (0..count).step_by(V::LANES) {
            let mut lines = [[zero; 3]; 4];
            unrolled!(j < 3, {
                let mut g = [zero; 3];
                unrolled!(k < 3, { g[k] = V::load(from.add((3 * k + j) * apart + i)) });
                let ends = zero.fma(g[0].fma(g[2], one), half);
                lines[0][j] = g[0];
                lines[1][j] = ends.fma(g[1], half);
                lines[2][j] = ends.fma(g[1], minus);
                lines[3][j] = g[2];
            });
            unrolled!(k < 4, {
                let (g, to) = (lines[k], to.add(4 * k * apart_to + i));
                let ends = zero.fma(g[0].fma(g[2], one), half);
                g[0].store(to);
                ends.fma(g[1], half).store(to.add(apart_to));
                ends.fma(g[1], minus).store(to.add(2 * apart_to));
                g[2].store(to.add(3 * apart_to));
            });
        }
    }
}
