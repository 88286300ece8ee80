//! The choice of a method for 3 × 3 convolutions on the host engine: directly, or by Winograd tiles
//! of 2 × 2 or of 4 × 4 pixels. The engine and the planner's memory estimate both ask here.

use super::fit::LARGE;
use crate::ir::view::Geometry;

/// The size of Winograd tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TileSize {
    /// F(2×2, 3×3): 16 products per channel for 4 pixels. The direct method needs 36.
    Two,
    /// F(4×4, 3×3): 36 products per channel for 16 pixels. The direct method needs 144.
    Four,
}

impl TileSize {
    pub(crate) const ALL: [TileSize; 2] = [TileSize::Two, TileSize::Four];

    /// The lines of a tile's pixels in the result, and the pixels of such a line.
    pub(crate) const fn pixels(self) -> usize {
        match self {
            TileSize::Two => 2,
            TileSize::Four => 4,
        }
    }

    /// The lines of the image that a tile reads, and the pixels of such a line.
    pub(crate) const fn side(self) -> usize {
        self.pixels() + 2
    }

    /// The elements of a transformed tile, which is the number of its products per channel.
    pub(crate) const fn elements(self) -> usize {
        self.side() * self.side()
    }

    /// The tiles of the convolution's result. The last ones of a line and of a column may reach
    /// over its edge.
    pub(crate) fn count(self, geometry: &Geometry) -> usize {
        let (_, to) = geometry.output;
        to.h.div_ceil(self.pixels()) * to.w.div_ceil(self.pixels())
    }

    /// The bytes of the transformed weights of a convolution with `outputs` channels.
    pub(crate) fn weight_bytes(self, geometry: &Geometry, outputs: usize) -> usize {
        self.elements() * geometry.input.1.c * outputs * size_of::<f32>()
    }
}

/// The largest factor by which the transform of a tile increases the size of the image's values.
/// It holds for both sizes of tiles. It is the square of the largest sum of absolute values in a
/// row of Bᵀ.
#[cfg_attr(not(any(test, feature = "bake")), allow(dead_code))]
pub(crate) const VALUE_GROWTH: f64 = 26.3;

/// The largest factor by which sums within a tile exceed the sum of the absolute values of all
/// terms of a pixel. It holds for both sizes of tiles. It is the square of the largest sum of
/// |Aᵀ| · Σ |Bᵀ| · max |G| over the elements along a side. It includes 3 % for rounding.
#[cfg_attr(not(any(test, feature = "bake")), allow(dead_code))]
pub(crate) const SUM_GROWTH: f64 = 195.0;

/// Returns true if Winograd tiles can compute the convolution. The window must be 3 × 3 with stride
/// 1, and channels must fill whole vectors.
pub(crate) fn possible(geometry: &Geometry, outputs: usize) -> bool {
    let Geometry {
        input: (_, from),
        window,
        groups,
        ..
    } = *geometry;
    let each = window.stride == (1, 1) && window.dilation == (1, 1);
    let whole = from.c % 16 == 0 && outputs % 16 == 0;
    window.size == (3, 3) && each && groups == 1 && whole
}

/// Returns the size of the Winograd tiles with which the host engine computes a convolution with
/// `outputs` channels. `sizes` are those that its instruction set has. Returns `None` if the direct
/// method is faster.
pub(crate) fn by_tiles(
    geometry: &Geometry,
    outputs: usize,
    sizes: impl IntoIterator<Item = TileSize>,
) -> Option<TileSize> {
    if !possible(geometry, outputs) {
        return None;
    }
    let pays = |size: &TileSize| match size {
        TileSize::Two => two_pays(geometry, outputs),
        TileSize::Four => four_pays(geometry, outputs),
    };
    sizes
        .into_iter()
        .filter(pays)
        .max_by_key(|size| size.pixels())
}

/// Returns true if tiles of 2 × 2 pixels need at least a quarter fewer multiplications than the
/// direct method, and their weights fit a core's second-level cache.
fn two_pays(geometry: &Geometry, outputs: usize) -> bool {
    let (_, to) = geometry.output;
    let few = 16 * TileSize::Two.count(geometry) * 4 <= 9 * to.h * to.w * 3;
    few && TileSize::Two.weight_bytes(geometry, outputs) <= LARGE
}

/// Returns true if tiles of 4 × 4 pixels are expected to need at most ten elevenths of the time of
/// the method without them, and their weights are not too large. The start takes about 1 ms for
/// each MB of these weights.
fn four_pays(geometry: &Geometry, outputs: usize) -> bool {
    let before = match two_pays(geometry, outputs) {
        true => cost(geometry, outputs, Some(TileSize::Two)),
        false => cost(geometry, outputs, None),
    };
    let with_four = cost(geometry, outputs, Some(TileSize::Four));
    11 * with_four <= 10 * before
        && TileSize::Four.weight_bytes(geometry, outputs) <= MOST_WEIGHT_BYTES
}

/// The largest number of bytes of a layer's weights for tiles of 4 × 4 pixels.
const MOST_WEIGHT_BYTES: usize = 16 << 20;

/// Multiply-adds that a core computes while it reads a weight that is not in its second-level
/// cache. Other layers of a network evict the weights. An EPYC core computed 50e9 multiply-adds and
/// read 20 GB in a second.
const MISS: usize = 10;

/// Multiply-adds in the time that the transforms need for an element of a tile and a channel.
/// Measured were 3 for tiles of 2 × 2 pixels, and 4 for 4 × 4.
const TRANSFORM: usize = 4;

/// Returns the time of a convolution for one record on one core, in multiply-adds. `size` is that
/// of its tiles, or `None` for the direct method.
fn cost(geometry: &Geometry, outputs: usize, size: Option<TileSize>) -> usize {
    let (c, (_, to)) = (geometry.input.1.c, geometry.output);
    match size {
        None => 9 * (to.h * to.w + MISS) * c * outputs,
        Some(size) => {
            let each = c * outputs + TRANSFORM * (c + outputs);
            size.elements() * (size.count(geometry) * each + MISS * c * outputs)
        }
    }
}
