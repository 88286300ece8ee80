//! Where the elements of a value stand among the rows of its matrix.
//!
//! A matrix has a column for each record. The elements of an image stand pixel by pixel, the
//! channels of a pixel side by side, with rows of padding behind them where kernels want that: row
//! `first + y · line + x · pixel + c`. Then a flattened image is the same rows in another order, a
//! part of it is a view with another first row, and channels behind one another are a wider pixel.

use super::graph::Shape;
use super::op::Window;
use std::fmt;

/// Rows for the elements of a value in their order (c, y, x): nested loops over them, from the
/// outermost in. Loops that turn once stand in front. The same type says which number of an array
/// belongs to each element: there a step of 0 repeats a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowMap {
    /// The row of the first element.
    pub(crate) first: usize,
    /// How often each loop turns, and rows from a turn to the next.
    pub(crate) loops: [(usize, usize); 3],
}

/// `2+28×448+16×1`: the first row, then turns and step of each loop.
impl fmt::Debug for RowMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.loops
            .iter()
            .filter(|l| l.0 != 1)
            .try_for_each(|(n, step)| write!(f, "+{n}×{step}"))
    }
}

impl Default for RowMap {
    fn default() -> RowMap {
        RowMap::vector(1)
    }
}

impl RowMap {
    /// `n` rows one after the other.
    pub(crate) const fn vector(n: usize) -> RowMap {
        let last = if n == 1 { (1, 0) } else { (n, 1) };
        RowMap {
            first: 0,
            loops: [(1, 0), (1, 0), last],
        }
    }

    /// The map of these loops with as few of them as possible; `None` where three are too few.
    pub(crate) fn of(first: usize, loops: &[(usize, usize)]) -> Option<RowMap> {
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for &(n, step) in loops.iter().filter(|l| l.0 != 1) {
            match merged.last_mut() {
                // The outer loop steps over whole inner ones.
                Some(outer) if outer.1 == n * step => *outer = (outer.0 * n, step),
                _ => merged.push((n, step)),
            }
        }
        let mut map = RowMap {
            first,
            loops: [(1, 0); 3],
        };
        let unused = map.loops.len().checked_sub(merged.len())?;
        map.loops[unused..].copy_from_slice(&merged);
        Some(map)
    }

    /// The map of one loop an axis, which three loops always suffice for.
    fn of_axes(first: usize, loops: [(usize, usize); 3]) -> RowMap {
        RowMap::of(first, &loops).unwrap_or(RowMap { first, loops })
    }

    /// An image of `shape`.
    pub(crate) fn image(image: Image, shape: Shape) -> RowMap {
        RowMap::of_axes(
            image.first,
            [(shape.c, 1), (shape.h, image.line), (shape.w, image.pixel)],
        )
    }

    /// The numbers of an array that has one for each channel of `shape`.
    pub(crate) fn of_channels(shape: Shape) -> RowMap {
        RowMap::of_axes(0, [(shape.c, 1), (shape.h, 0), (shape.w, 0)])
    }

    /// The one number of an array for all of `n` elements.
    pub(crate) fn of_all(n: usize) -> RowMap {
        RowMap::of_axes(0, [(1, 0), (1, 0), (n, 0)])
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.loops.iter().map(|l| l.0).product()
    }

    /// The row of element `i`.
    pub(crate) fn row(&self, i: usize) -> usize {
        let [_, (middle, b), (inner, c)] = self.loops;
        let (rest, last) = (i / inner, i % inner);
        self.first + rest / middle * self.loops[0].1 + rest % middle * b + last * c
    }

    /// The rows in the order of the elements.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + use<> {
        let RowMap {
            first,
            loops: [(outer, a), (middle, b), (inner, c)],
        } = *self;
        (0..outer).flat_map(move |i| {
            (0..middle).flat_map(move |j| (0..inner).map(move |k| first + i * a + j * b + k * c))
        })
    }

    /// The row behind the last one that it uses.
    pub(crate) fn end(&self) -> usize {
        self.first
            + self
                .loops
                .iter()
                .map(|&(n, step)| (n - 1) * step)
                .sum::<usize>()
            + 1
    }

    /// True if element i is row i.
    pub(crate) fn is_plain(&self) -> bool {
        *self == RowMap::vector(self.len())
    }

    /// True if no row belongs to two elements, and each loop steps over all rows of those with
    /// smaller steps. Then the element of a row is found by division.
    pub(crate) fn is_nested(&self) -> bool {
        let mut loops = self.loops;
        loops.sort_by_key(|l| l.1);
        let mut covered = 1;
        loops.iter().filter(|l| l.0 > 1).all(|&(n, step)| {
            let above = step >= covered;
            covered += (n - 1) * step;
            above
        })
    }

    /// The rows from one element to the next along c, y and x of `shape`; `None` where it has no
    /// such loops.
    pub(crate) fn steps(&self, shape: Shape) -> Option<[usize; 3]> {
        let mut loops: Vec<(usize, usize)> =
            self.loops.iter().copied().filter(|l| l.0 > 1).collect();
        // From the innermost axis out, each takes whole loops, or a part of one.
        let mut axis = |n: usize| -> Option<usize> {
            let (mut left, mut steps) = (n, None);
            while left > 1 {
                let (turns, step) = loops.pop()?;
                if left % turns == 0 {
                    match steps {
                        None => steps = Some(step),
                        // A second loop goes on where the first ends.
                        Some(first) if step == first * (n / left) => {}
                        Some(_) => return None,
                    }
                    left /= turns;
                } else if turns % left == 0 {
                    match steps {
                        None => steps = Some(step),
                        Some(first) if step == first * (n / left) => {}
                        Some(_) => return None,
                    }
                    loops.push((turns / left, step * left));
                    left = 1;
                } else {
                    return None;
                }
            }
            Some(steps.unwrap_or(0))
        };
        let (x, y) = (axis(shape.w)?, axis(shape.h)?);
        Some([axis(shape.c)?, y, x])
    }

    /// It as an image of `shape`, if the channels of a pixel are neighbours.
    pub(crate) fn as_image(&self, shape: Shape) -> Option<Image> {
        let [c, y, x] = self.steps(shape)?;
        // An axis of one element has any step.
        let pixel = if shape.w > 1 {
            x
        } else if shape.h > 1 {
            y
        } else {
            shape.c
        };
        let line = if shape.h > 1 { y } else { pixel * shape.w };
        (c == 1 || shape.c == 1).then_some(Image {
            first: self.first,
            pixel,
            line,
        })
    }

    /// The map of the value with its axes in another order; `None` where its loops do not follow
    /// the axes.
    pub(crate) fn transposed(&self, shape: Shape, axes: [super::op::Axis; 3]) -> Option<RowMap> {
        let steps = self.steps(shape)?;
        let turn = |axis: super::op::Axis| (shape.along(axis), steps[axis as usize]);
        Some(RowMap::of_axes(self.first, axes.map(turn)))
    }

    /// The map of a part of the value, of shape `part` from element (c, y, x) on; `None` where its
    /// loops do not follow the axes.
    pub(crate) fn sliced(&self, shape: Shape, at: [usize; 3], part: Shape) -> Option<RowMap> {
        let steps = self.steps(shape)?;
        let first = (0..3).fold(self.first, |first, axis| first + at[axis] * steps[axis]);
        Some(RowMap::of_axes(
            first,
            [(part.c, steps[0]), (part.h, steps[1]), (part.w, steps[2])],
        ))
    }
}

/// Elements that a step takes from one place for another: element i is read at `from`(i) and
/// belongs to row `to`(i).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Rows of a matrix that are read, or numbers of an array.
    pub(crate) from: RowMap,
    /// Rows of the result. See [`RowMap::is_nested`].
    pub(crate) to: RowMap,
    /// The step writes the rows of the result below this one, those of no element too. 0: the rows
    /// of elements alone.
    pub(crate) filled: usize,
}

impl Moved {
    /// Work-items that carry it out: one for each row that is written.
    pub(crate) fn items(&self) -> usize {
        if self.filled > 0 {
            self.filled
        } else {
            self.to.len()
        }
    }

    /// The kernels' argument, `kernels/common/moved.cl`.
    pub(crate) fn words(&self) -> [u32; 16] {
        // How many elements a turn of each loop goes on by.
        let within = |map: &RowMap| {
            let inner = map.loops[2].0;
            [map.loops[1].0 * inner, inner, 1]
        };
        // Divisor, turns and weight of each loop over what a work-item's number says: the row, or
        // the element.
        let mut loops = [(u32::MAX, 1, 0); 3];
        for ((to, &(n, step)), elements) in
            loops.iter_mut().zip(&self.to.loops).zip(within(&self.to))
        {
            if n > 1 {
                let (divisor, weight) = if self.filled > 0 {
                    (step, elements)
                } else {
                    (elements, step)
                };
                *to = (divisor as u32, n as u32, weight as u32);
            }
        }
        loops.sort_by_key(|l| std::cmp::Reverse(l.0));
        if self.filled == 0 {
            // Work-items number elements.
            loops[0].1 = 0;
        }
        let [(a, b, c), (d, e, f), (g, h, i)] = loops;
        let ([first, second, _], steps) = (within(&self.from), self.from.loops.map(|l| l.1 as u32));
        let (from, to) = (self.from.first as u32, self.to.first as u32);
        let [x, y, z] = steps;
        [
            from,
            to,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            i,
            first as u32,
            x,
            second as u32,
            y,
            z,
        ]
    }
}

/// An image among the rows of a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// The row of its first element.
    pub(crate) first: usize,
    /// Rows from a pixel to the next.
    pub(crate) pixel: usize,
    /// Rows from a line of pixels to the next.
    pub(crate) line: usize,
}

impl Image {
    /// An image whose pixels take `pixel` rows each, one after the other.
    pub(crate) fn dense(shape: Shape, pixel: usize) -> Image {
        Image {
            first: 0,
            pixel,
            line: shape.w * pixel,
        }
    }
}

/// Where a kernel that knows of images reads and writes, and how its window runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// What it reads; of two operands the second.
    pub(crate) input: (Image, Shape),
    /// What it writes.
    pub(crate) output: (Image, Shape),
    /// Its window: one pixel where it has none.
    pub(crate) window: Window,
    /// Groups of channels; 1 where it has none.
    pub(crate) groups: usize,
}

impl Geometry {
    /// The kernels' argument, `kernels/common/geometry.cl`.
    pub(crate) fn words(&self) -> [u32; 16] {
        let two = |low: usize, high: usize| low as u32 | (high as u32) << 16;
        let ((input, from), (output, to)) = (self.input, self.output);
        let Window {
            size,
            stride,
            dilation,
            border,
            ..
        } = self.window;
        let groups = self.groups.max(1);
        [
            input.first as u32,
            input.pixel as u32,
            input.line as u32,
            two(from.h, from.w),
            output.first as u32,
            output.pixel as u32,
            output.line as u32,
            two(to.h, to.w),
            two(size.0, size.1),
            two(stride.0, stride.1),
            two(dilation.0, dilation.1),
            two(border.top, border.left),
            two(border.bottom, border.right),
            (from.c / groups) as u32,
            (to.c / groups) as u32,
            to.c as u32,
        ]
    }

    /// Whether its sizes fit the halves of the kernels' argument.
    pub(crate) fn fits(&self) -> bool {
        let ((_, from), (_, to)) = (self.input, self.output);
        let Window {
            size,
            stride,
            dilation,
            border,
            ..
        } = self.window;
        let pairs = [(from.h, from.w), (to.h, to.w), size, stride, dilation];
        let borders = [(border.top, border.left), (border.bottom, border.right)];
        pairs
            .into_iter()
            .chain(borders)
            .all(|(a, b)| a.max(b) < 1 << 15)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::op::Axis;
    use proptest::prelude::*;

    fn shape() -> impl Strategy<Value = Shape> {
        (1usize..5, 1usize..5, 1usize..5).prop_map(|(c, h, w)| Shape { c, h, w })
    }

    proptest! {
        /// An image is found again in its map, in every shape that keeps its axes; its rows are
        /// those of the formula.
        #[test]
        fn images_and_maps(shape in shape(), padding in 0usize..3, first in 0usize..9, gap in 0usize..4) {
            let pixel = shape.c + padding;
            let image = Image { first, pixel, line: shape.w * pixel + gap };
            let map = RowMap::image(image, shape);
            let rows: Vec<usize> = map.rows().collect();
            for c in 0..shape.c {
                for y in 0..shape.h {
                    for x in 0..shape.w {
                        let row = image.first + y * image.line + x * image.pixel + c;
                        prop_assert_eq!(rows[shape.index(c, y, x)], row);
                    }
                }
            }
            prop_assert_eq!(map.end(), rows.iter().max().unwrap() + 1);
            prop_assert_eq!(map.is_plain(), rows.iter().copied().eq(0..rows.len()));
            let found = map.as_image(shape).expect("an image");
            prop_assert_eq!(RowMap::image(found, shape), map);
        }

        /// A part has the rows of its elements.
        #[test]
        fn parts_of_maps(shape in shape(), pixel in 5usize..7, from in (0usize..4, 0usize..4, 0usize..4)) {
            let (c, y, x) = (from.0 % shape.c, from.1 % shape.h, from.2 % shape.w);
            let part = Shape { c: shape.c - c, h: (shape.h - y).min(2), w: (shape.w - x).min(2) };
            let map = RowMap::image(Image::dense(shape, pixel), shape);
            let rows: Vec<usize> = map.rows().collect();
            let found: Vec<usize> = map.sliced(shape, [c, y, x], part).expect("loops of axes").rows().collect();
            let element = |i: usize| (i / (part.h * part.w), i / part.w % part.h, i % part.w);
            let expected = (0..part.len()).map(element).map(|e| rows[shape.index(c + e.0, y + e.1, x + e.2)]);
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }

        /// Transposed twice is as before, and rows follow the axes.
        #[test]
        fn transposed_maps(shape in shape(), pixel in 5usize..7) {
            let map = RowMap::image(Image::dense(shape, pixel), shape);
            let rows: Vec<usize> = map.rows().collect();
            let turned = map.transposed(shape, [Axis::X, Axis::C, Axis::Y]).expect("loops of axes");
            let other: Vec<usize> = turned.rows().collect();
            let to = Shape { c: shape.w, h: shape.c, w: shape.h };
            for (c, y, x) in (0..shape.c).flat_map(|c| (0..shape.h).flat_map(move |y| (0..shape.w).map(move |x| (c, y, x)))) {
                prop_assert_eq!(other[to.index(x, c, y)], rows[shape.index(c, y, x)]);
            }
            prop_assert_eq!(turned.transposed(to, [Axis::Y, Axis::X, Axis::C]), Some(map));
        }
    }

    /// The kernels' argument holds two sizes in a word.
    #[test]
    fn sizes_of_a_geometry_fit_halves_of_words() {
        let pixels = |c: usize, h: usize, w: usize| Shape { c, h, w };
        let geometry = Geometry {
            input: (
                Image {
                    first: 1,
                    pixel: 2,
                    line: 3,
                },
                pixels(8, 4, 5),
            ),
            output: (
                Image {
                    first: 6,
                    pixel: 7,
                    line: 8,
                },
                pixels(6, 9, 10),
            ),
            window: Window {
                size: (11, 12),
                stride: (13, 14),
                dilation: (15, 16),
                border: super::super::op::Border {
                    top: 17,
                    left: 18,
                    bottom: 19,
                    right: 20,
                },
                ceil: false,
            },
            groups: 2,
        };
        let two = |low: u32, high: u32| low + (high << 16);
        let sizes = [
            two(4, 5),
            two(9, 10),
            two(11, 12),
            two(13, 14),
            two(15, 16),
            two(17, 18),
            two(19, 20),
        ];
        let [from, to, size, stride, dilation, before, behind] = sizes;
        let words = [
            1, 2, 3, from, 6, 7, 8, to, size, stride, dilation, before, behind, 4, 3, 6,
        ];
        assert_eq!(geometry.words(), words);
        assert_eq!(
            Geometry {
                groups: 0,
                ..geometry
            }
            .words()[13..],
            [8, 6, 6]
        );
        let wide = |w: usize| Geometry {
            output: (Image::default(), pixels(1, 1, w)),
            ..geometry
        };
        let dilated = |n: usize| Window {
            dilation: (n, 1),
            ..geometry.window
        };
        let most = (1 << 15) - 1;
        assert!(geometry.fits() && wide(most).fits() && !wide(most + 1).fits());
        assert!(
            Geometry {
                window: dilated(most),
                ..geometry
            }
            .fits()
        );
        assert!(
            !Geometry {
                window: dilated(most + 1),
                ..geometry
            }
            .fits()
        );
    }
}
