//! Operations that move or mix elements along axes: resizing, padding with pixels of the image,
//! depth to space and back, transposed convolutions.

use super::builder::Builder;
use super::operations::{self, Around};
use super::value::Live;
use crate::bake::draft::Array;
use crate::ir::op::{Axis, Border, Window};
use crate::ir::taps::{self, MOST_TAPS};

/// The rows of a sparse matrix. For each element of the result they list the source elements and
/// their weights.
pub(super) type Taps = Vec<Vec<Tap>>;

/// A source element of a weighted sum: its index along an axis, and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tap {
    pub(super) at: usize,
    pub(super) weight: f64,
}

/// Makes a tap whose index may lie outside of `n` elements. Then it takes the nearest element.
pub(super) fn tap(at: i64, n: usize, weight: f64) -> Tap {
    Tap {
        at: at.clamp(0, n as i64 - 1) as usize,
        weight,
    }
}

/// Builds weighted sums of the elements along axis `a`. Each list of taps gives one sum.
pub(super) fn along(
    b: &mut Builder,
    name: &str,
    x: &Live,
    a: usize,
    taps: &[Vec<Tap>],
) -> Result<Live, String> {
    let whole = |taps: &Vec<Tap>| match taps[..] {
        [one] if one.weight == 1.0 => Some(one.at),
        _ => None,
    };
    let at: Option<Vec<usize>> = taps.iter().map(whole).collect();
    if let Some(at) = at {
        return operations::along(b, name, x, a, &at);
    }
    if let Some(value) = on_axis(b, name, x, a, taps)? {
        return Ok(x.spliced(a, &[taps.len()]).with_value(value));
    }
    let n = x.dims[a];
    let mut weights = vec![0.0; taps.len() * n];
    for (row, taps) in taps.iter().enumerate() {
        for tap in taps {
            weights[row * n + tap.at] += tap.weight;
        }
    }
    operations::mixed(b, name, x, a, weights, taps.len())
}

/// The size (outputs × inputs) from which a resampling matrix is stored as taps, on any axis.
const LARGE: usize = 1 << 16;

/// Builds weighted sums along an axis from taps, without a matrix. It handles the rows and columns
/// of an image, and any axis whose matrix would be large. `None` for other axes, and if a sum has
/// more than [`MOST_TAPS`] taps.
pub(super) fn on_axis(
    b: &mut Builder,
    name: &str,
    x: &Live,
    a: usize,
    taps: &[Vec<Tap>],
) -> Result<Option<usize>, String> {
    let (axis, shape) = match operations::image_axis(x, a) {
        Some(axis @ (Axis::Y | Axis::X)) => (axis, x.standard()),
        _ if taps.len() * x.dims[a] >= LARGE => (Axis::Y, Builder::around(x, a)),
        _ => return Ok(None),
    };
    if taps.iter().any(|taps| taps.len() > MOST_TAPS) {
        return Ok(None);
    }
    let changed = taps.iter().map(|taps| {
        let tap = |t: &Tap| taps::Tap {
            position: t.at,
            weight: t.weight as f32,
        };
        taps.iter().map(tap).collect()
    });
    let same = |n: usize| {
        let one = |position| {
            vec![taps::Tap {
                position,
                weight: 1.0,
            }]
        };
        (0..n).map(one).collect()
    };
    let all = match axis {
        Axis::Y => taps::Taps {
            rows: changed.collect(),
            columns: same(shape.w),
        },
        _ => taps::Taps {
            rows: same(shape.h),
            columns: changed.collect(),
        },
    };
    let (op, array) = all.node();
    let from = b.shaped(name, x.value, shape)?;
    b.push(name, op, &[from], vec![Array::taps(array)])
        .map(Some)
}

/// An axis below this size is gathered together with its border in one selection. For a longer axis
/// only the border is gathered, and then concatenated with the axis.
const FEW: usize = 256;

/// The elements of an image that its border repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continued {
    /// The border repeats the outermost elements.
    Edge,
    /// The border is mirrored at the outermost elements, which are not repeated.
    Reflect,
    /// The border is mirrored behind the outermost elements, which are repeated.
    Symmetric,
    /// The border has the elements of the opposite end.
    Wrap,
}

/// Pads axes with elements of the tensor itself.
pub(super) fn continued(
    b: &mut Builder,
    name: &str,
    x: &Live,
    around: &[Around],
    how: Continued,
) -> Result<Live, String> {
    let mut result = x.clone();
    for (a, p) in around.iter().enumerate() {
        if *p == Around::NONE {
            continue;
        }
        let n = x.dims[a] as i64;
        let (least, what) = match how {
            Continued::Reflect => (n - 1, "mirrored"),
            Continued::Symmetric | Continued::Wrap => (n, "repeated"),
            Continued::Edge => (i64::MAX, ""),
        };
        if p.before.max(p.behind) as i64 > least {
            return Err(format!(
                "a border of {} and {} is larger than what can be {what} of {n} elements",
                p.before, p.behind
            ));
        }
        let place = |i: i64| match how {
            Continued::Edge => i.clamp(0, n - 1),
            Continued::Reflect if i < 0 => -i,
            Continued::Reflect if i >= n => 2 * (n - 1) - i,
            Continued::Symmetric if i < 0 => -i - 1,
            Continued::Symmetric if i >= n => 2 * n - 1 - i,
            Continued::Wrap => i.rem_euclid(n),
            _ => i,
        };
        let of = |from: i64, to: i64| (from..to).map(|i| place(i) as usize).collect::<Vec<_>>();
        let (before, end) = (-(p.before as i64), n + p.behind as i64);
        if (n as usize) < FEW {
            result = operations::along(b, name, &result, a, &of(before, end))?;
            continue;
        }
        // Only the borders of a long axis are gathered.
        let mut parts = Vec::new();
        for at in [of(before, 0), of(0, n), of(n, end)] {
            if !at.is_empty() {
                parts.push(operations::along(b, name, &result, a, &at)?);
            }
        }
        result = operations::concat(b, name, &parts, a)?;
    }
    Ok(result)
}

/// The order of the channels that depth-to-space turns into blocks of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockOrder {
    /// The pixel's place in the block varies slowest, the result's channel fastest.
    PlacesFirst,
    /// The result's channel varies slowest, the pixel's place in the block fastest.
    ChannelsFirst,
}

/// Depth to space: turns channels of an image [c, h, w] into blocks of pixels. `block` is the
/// number of rows and columns of a block.
pub(super) fn depth_to_space(
    b: &mut Builder,
    name: &str,
    x: &Live,
    block: (usize, usize),
    order: BlockOrder,
) -> Result<Live, String> {
    let (&[c, h, w], (rows, cols)) = (&x.dims[..], block) else {
        return Err(format!(
            "expected an image [N, C, H, W], found {}",
            x.shown()
        ));
    };
    let area = rows * cols;
    if area == 0 || c % area != 0 {
        return Err(format!(
            "{c} channels cannot become blocks of {rows} × {cols}"
        ));
    }
    let (dims, axes) = match order {
        BlockOrder::PlacesFirst => (vec![rows, cols, c / area, h, w], [2, 3, 0, 4, 1]),
        BlockOrder::ChannelsFirst => (vec![c / area, rows, cols, h, w], [0, 3, 1, 4, 2]),
    };
    let turned = b.transpose(name, &x.with_dims(dims), &axes)?;
    Ok(turned.with_dims(vec![c / area, h * rows, w * cols]))
}

/// Space to depth: turns blocks of pixels of an image [c, h, w] into channels. The place in the
/// block varies slowest, the old channel fastest.
pub(super) fn space_to_depth(
    b: &mut Builder,
    name: &str,
    x: &Live,
    block: usize,
) -> Result<Live, String> {
    let &[c, h, w] = &x.dims[..] else {
        return Err(format!(
            "expected an image [N, C, H, W], found {}",
            x.shown()
        ));
    };
    if block == 0 || h % block != 0 || w % block != 0 {
        return Err(format!(
            "{} has no whole blocks of {block} × {block}",
            x.shown()
        ));
    }
    let dims = vec![c, h / block, block, w / block, block];
    let turned = b.transpose(name, &x.with_dims(dims), &[2, 4, 0, 1, 3])?;
    Ok(turned.with_dims(vec![c * block * block, h / block, w / block]))
}

/// A transposed convolution, which enlarges an image.
pub(super) struct Enlarging {
    /// The weights in the order input channel, output channel of the group, row, column.
    pub(super) weights: Vec<f64>,
    pub(super) biases: Vec<f64>,
    /// The rows and columns of the window, with the gaps of a dilation. The weights have zeros in
    /// these gaps.
    pub(super) size: (usize, usize),
    pub(super) stride: (usize, usize),
    pub(super) groups: usize,
    /// The rows and columns to cut off at the top and left of the enlarged image.
    pub(super) before: (usize, usize),
    /// The rows and columns of the result.
    pub(super) to: (usize, usize),
}

impl Enlarging {
    /// Returns the rows and columns of the window that computes one pixel of each output block. It
    /// is large enough to reach every row and column of the result.
    fn window(&self, h: usize, w: usize) -> (usize, usize) {
        let taps = |size: usize, stride: usize, n: usize, kept: usize| {
            let covered = kept.saturating_sub(stride * (n - 1));
            size.max(covered).div_ceil(stride)
        };
        let kept = (self.before.0 + self.to.0, self.before.1 + self.to.1);
        (
            taps(self.size.0, self.stride.0, h, kept.0),
            taps(self.size.1, self.stride.1, w, kept.1),
        )
    }

    /// Returns the weights of a plain convolution that has an output channel for each pixel of a
    /// block. `group` is the number of input channels of a group.
    ///
    /// Each pixel uses every stride-th element of the transposed window, in reverse order.
    fn of_places(&self, (high, wide): (usize, usize), group: usize) -> Vec<f64> {
        let of_group = self.biases.len() / self.groups.max(1);
        let pairs =
            |rows: usize, cols: usize| (0..rows).flat_map(move |y| (0..cols).map(move |x| (y, x)));
        let mut weights = Vec::new();
        for output in 0..self.biases.len() {
            let (g, o) = (output / of_group, output % of_group);
            for (down, right) in pairs(self.stride.0, self.stride.1) {
                for (up, left) in pairs(high, wide) {
                    let y = down + (high - 1 - up) * self.stride.0;
                    let x = right + (wide - 1 - left) * self.stride.1;
                    let inside = y < self.size.0 && x < self.size.1;
                    weights.extend((0..group).map(|c| match inside {
                        true => {
                            let row = (g * group + c) * of_group + o;
                            self.weights[(row * self.size.0 + y) * self.size.1 + x]
                        }
                        false => 0.0,
                    }));
                }
            }
        }
        weights
    }
}

/// Applies a transposed convolution to an image [c, h, w]. The result consists of blocks with a
/// stride's rows and columns. Each pixel of a block is an output channel of one plain convolution.
pub(super) fn enlarged(
    b: &mut Builder,
    name: &str,
    x: &Live,
    e: &Enlarging,
) -> Result<Live, String> {
    let &[channels, h, w] = &x.dims[..] else {
        return Err(format!(
            "expected an image [N, C, H, W], found {}",
            x.shown()
        ));
    };
    let (high, wide) = e.window(h, w);
    let weights = e.of_places((high, wide), channels / e.groups.max(1));
    let places = e.stride.0 * e.stride.1;
    let biases = e.biases.iter();
    let biases = biases.flat_map(|&bias| std::iter::repeat_n(bias, places));
    let window = Window {
        border: Border {
            top: high - 1,
            left: wide - 1,
            bottom: high - 1,
            right: wide - 1,
        },
        ..Window::of((high, wide))
    };
    let biases = biases.collect();
    let blocks = operations::convolution(b, name, x, weights, biases, window, e.groups)?;
    let all = depth_to_space(b, name, &blocks, e.stride, BlockOrder::ChannelsFirst)?;
    let rows: Vec<usize> = (e.before.0..e.before.0 + e.to.0).collect();
    let cols: Vec<usize> = (e.before.1..e.before.1 + e.to.1).collect();
    let cut = operations::along(b, name, &all, 1, &rows)?;
    operations::along(b, name, &cut, 2, &cols)
}

/// The rule by which a resize maps an index of the result to a position on the original axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    /// Like `HalfPixel`, but the position is 0 if the result has one element.
    HalfPixelTorch,
    /// Like `HalfPixel`, but shifted by half an original element.
    HalfPixelShifted,
    Asymmetric,
    AlignCorners,
}

impl Coordinates {
    /// Returns the position on an axis of `from` elements for element `i` of `to` elements. It
    /// computes in f32 as other runtimes do.
    pub(super) fn place(self, i: usize, scale: f32, from: usize, to: usize) -> f32 {
        let x = i as f32;
        match self {
            Coordinates::Asymmetric => x / scale,
            Coordinates::HalfPixelTorch if to <= 1 => 0.0,
            Coordinates::HalfPixel | Coordinates::HalfPixelTorch => (x + 0.5) / scale - 0.5,
            Coordinates::HalfPixelShifted => (x + 0.5) / scale,
            Coordinates::HalfPixelSymmetric => {
                let adjustment = to as f32 / (scale * from as f32);
                let offset = from as f32 / 2.0 * (1.0 - adjustment);
                // ONNX Runtime computes this formula in f64, and rounds the position to f32.
                let place = (f64::from(x) + 0.5) / f64::from(scale) - 0.5;
                (f64::from(offset) + place) as f32
            }
            Coordinates::AlignCorners if to <= 1 => 0.0,
            Coordinates::AlignCorners => x * (from - 1) as f32 / (to - 1) as f32,
        }
    }
}

/// The rule by which a resize rounds a position between two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nearest {
    PreferFloor,
    PreferCeil,
    Floor,
    Ceil,
    /// Rounds down where an axis becomes larger, and up where it becomes smaller. ONNX Runtime does
    /// so in operation set 10.
    BySize,
}

/// The interpolation of a resize.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Between {
    Nearest(Nearest),
    Linear,
    /// Cubic interpolation with the coefficient a of Keys, Cubic Convolution Interpolation, 1981.
    Cubic {
        a: f32,
        exclude_outside: bool,
    },
}

/// The distance from a half within which ONNX Runtime treats a position as the half.
const NEAR_HALF: f64 = 1e-6;

/// Returns the whole number that is nearest to x + `moved`, a tiny shift. Halves round up.
fn rounded(x: f32, moved: f64) -> f32 {
    (f64::from(x) + 0.5 + moved).floor() as f32
}

/// Returns the taps that resize an axis of `from` elements to `to` elements.
pub(super) fn resized(
    from: usize,
    to: usize,
    scale: f32,
    coordinates: Coordinates,
    between: Between,
) -> Taps {
    let place = |i: usize| coordinates.place(i, scale, from, to);
    let of = |i: usize| match between {
        Between::Nearest(nearest) => {
            let x = place(i);
            let floor = x.floor();
            let at = match nearest {
                Nearest::Floor => floor,
                Nearest::Ceil => x.ceil(),
                Nearest::BySize if scale < 1.0 => x.ceil(),
                Nearest::BySize => floor,
                Nearest::PreferFloor => rounded(x, -NEAR_HALF),
                Nearest::PreferCeil => rounded(x, NEAR_HALF),
            };
            vec![tap(at as i64, from, 1.0)]
        }
        Between::Linear => {
            let x = place(i).clamp(0.0, (from - 1) as f32);
            let share = f64::from(x - x.floor());
            let first = x.floor() as i64;
            match share {
                0.0 => vec![tap(first, from, 1.0)],
                _ => vec![tap(first, from, 1.0 - share), tap(first + 1, from, share)],
            }
        }
        Between::Cubic { a, exclude_outside } => {
            let x = place(i);
            let share = x - x.floor();
            let first = x.floor() as i64 - 1;
            let mut taps: Vec<(i64, f64)> = (first..).zip(cubic(a, share)).collect();
            if exclude_outside {
                taps.retain(|(at, _)| (0..from as i64).contains(at));
                let sum: f64 = taps.iter().map(|(_, weight)| weight).sum();
                taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
            }
            taps.into_iter()
                .map(|(at, weight)| tap(at, from, weight))
                .collect()
        }
    };
    (0..to).map(of).collect()
}

/// Returns the cubic weights of four neighbouring elements. The position lies `share` of an element
/// behind the second one. `a` is the coefficient of [`Between::Cubic`].
fn cubic(a: f32, share: f32) -> [f64; 4] {
    let (a, s) = (f64::from(a), f64::from(share));
    let far = |d: f64| ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
    let near = |d: f64| ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    [far(s + 1.0), near(s), near(1.0 - s), far(2.0 - s)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(taps: &Taps) -> Vec<Vec<(usize, f64)>> {
        let pairs = |taps: &Vec<Tap>| taps.iter().map(|t| (t.at, t.weight)).collect();
        taps.iter().map(pairs).collect()
    }

    #[test]
    fn places_of_a_resized_axis() {
        let linear = |coordinates| resized(2, 4, 2.0, coordinates, Between::Linear);
        let expected = vec![
            vec![(0, 1.0)],
            vec![(0, 0.75), (1, 0.25)],
            vec![(0, 0.25), (1, 0.75)],
            vec![(1, 1.0)],
        ];
        assert_eq!(at(&linear(Coordinates::HalfPixel)), expected);
        let asymmetric = linear(Coordinates::Asymmetric);
        assert_eq!(asymmetric[1].len(), 2);
        assert_eq!(at(&asymmetric)[3], [(1, 1.0)]);
        let nearest = |nearest| {
            let taps = resized(
                3,
                2,
                2.0 / 3.0,
                Coordinates::AlignCorners,
                Between::Nearest(nearest),
            );
            taps.iter().map(|t| t[0].at).collect::<Vec<_>>()
        };
        assert_eq!(nearest(Nearest::Floor), [0, 2]);
        let a = cubic(-0.75, 0.0);
        assert_eq!(a, [0.0, 1.0, 0.0, 0.0]);
        let sum: f64 = cubic(-0.5, 0.3).iter().sum();
        assert!((sum - 1.0).abs() < 1e-12);
    }
}
