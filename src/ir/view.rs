//! Where the elements of a value stand among the rows of its matrix.
//!
//! A matrix has a column for each record. The elements of an image stand pixel by pixel, the channels of a pixel side by
//! side, with rows of padding behind them where kernels want that: row `first + y · line + x · pixel + c`. Then a
//! flattened image is the same rows in another order, a part of it is a view with another first row, and channels behind
//! one another are a wider pixel.

use super::graph::Shape;
use super::op::Window;
use std::borrow::Cow;

/// Rows for the elements of a value in their order (c, y, x): nested loops over them, from the outermost in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowMap {
    /// The row of the first element.
    pub(crate) first: usize,
    /// How often each loop turns, and rows from a turn to the next.
    pub(crate) loops: Cow<'static, [(usize, usize)]>,
}

impl RowMap {
    /// `n` rows one after the other.
    pub(crate) fn vector(n: usize) -> RowMap {
        RowMap { first: 0, loops: vec![(n, 1)].into() }
    }

    /// An image of `shape`.
    pub(crate) fn image(image: Image, shape: Shape) -> RowMap {
        let loops = [(shape.c, 1), (shape.h, image.line), (shape.w, image.pixel)];
        RowMap { first: image.first, loops: loops.to_vec().into() }.simple()
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.loops.iter().map(|l| l.0).product()
    }

    /// The rows in the order of the elements.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        let row = |i: usize| {
            let (mut rest, mut row) = (i, self.first);
            for &(n, step) in self.loops.iter().rev() {
                row += rest % n * step;
                rest /= n;
            }
            row
        };
        (0..self.len()).map(row)
    }

    /// The row behind the last one that it uses.
    pub(crate) fn end(&self) -> usize {
        self.first + self.loops.iter().map(|&(n, step)| (n - 1) * step).sum::<usize>() + 1
    }

    /// Whether element i is row i.
    pub(crate) fn is_plain(&self) -> bool {
        self.first == 0 && self.loops.iter().all(|l| l.1 == 1) && self.loops.len() <= 1
    }

    /// The same rows with as few loops as possible, so that equal maps are equal.
    fn simple(self) -> RowMap {
        let mut loops: Vec<(usize, usize)> = Vec::new();
        for &(n, step) in self.loops.iter().filter(|l| l.0 > 1) {
            match loops.last_mut() {
                // The outer loop steps over whole inner ones.
                Some(outer) if outer.1 == n * step => *outer = (outer.0 * n, step),
                _ => loops.push((n, step)),
            }
        }
        RowMap { first: self.first, loops: loops.into() }
    }

    /// The rows from one element to the next along c, y and x of `shape`; `None` where it has no such loops.
    pub(crate) fn steps(&self, shape: Shape) -> Option<[usize; 3]> {
        let mut loops: Vec<(usize, usize)> = self.loops.to_vec();
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
        (c == 1 || shape.c == 1).then_some(Image { first: self.first, pixel, line })
    }

    /// The map of the value with its axes in another order; `None` where its loops do not follow the axes.
    pub(crate) fn transposed(&self, shape: Shape, axes: [super::op::Axis; 3]) -> Option<RowMap> {
        let steps = self.steps(shape)?;
        let turn = |axis: super::op::Axis| (shape.along(axis), steps[axis as usize]);
        Some(RowMap { first: self.first, loops: axes.map(turn).to_vec().into() }.simple())
    }

    /// The map of a part of the value, of shape `part` from element (c, y, x) on; `None` where its loops do not follow the
    /// axes.
    pub(crate) fn sliced(&self, shape: Shape, at: [usize; 3], part: Shape) -> Option<RowMap> {
        let steps = self.steps(shape)?;
        let first = (0..3).fold(self.first, |first, axis| first + at[axis] * steps[axis]);
        let loops = vec![(part.c, steps[0]), (part.h, steps[1]), (part.w, steps[2])];
        Some(RowMap { first, loops: loops.into() }.simple())
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
        Image { first: 0, pixel, line: shape.w * pixel }
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
        let Window { size, stride, dilation, border, .. } = self.window;
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
        let Window { size, stride, dilation, border, .. } = self.window;
        let pairs = [(from.h, from.w), (to.h, to.w), size, stride, dilation];
        let borders = [(border.top, border.left), (border.bottom, border.right)];
        pairs.into_iter().chain(borders).all(|(a, b)| a.max(b) < 1 << 15)
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
        /// An image is found again in its map, in every shape that keeps its axes; its rows are those of the formula.
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
            input: (Image { first: 1, pixel: 2, line: 3 }, pixels(8, 4, 5)),
            output: (Image { first: 6, pixel: 7, line: 8 }, pixels(6, 9, 10)),
            window: Window {
                size: (11, 12),
                stride: (13, 14),
                dilation: (15, 16),
                border: super::super::op::Border { top: 17, left: 18, bottom: 19, right: 20 },
                ceil: false,
            },
            groups: 2,
        };
        let two = |low: u32, high: u32| low + (high << 16);
        let sizes = [two(4, 5), two(9, 10), two(11, 12), two(13, 14), two(15, 16), two(17, 18), two(19, 20)];
        let [from, to, size, stride, dilation, before, behind] = sizes;
        let words = [1, 2, 3, from, 6, 7, 8, to, size, stride, dilation, before, behind, 4, 3, 6];
        assert_eq!(geometry.words(), words);
        assert_eq!(Geometry { groups: 0, ..geometry }.words()[13..], [8, 6, 6]);
        let wide = |w: usize| Geometry { output: (Image::default(), pixels(1, 1, w)), ..geometry };
        let dilated = |n: usize| Window { dilation: (n, 1), ..geometry.window };
        let most = (1 << 15) - 1;
        assert!(geometry.fits() && wide(most).fits() && !wide(most + 1).fits());
        assert!(Geometry { window: dilated(most), ..geometry }.fits());
        assert!(!Geometry { window: dilated(most + 1), ..geometry }.fits());
    }
}
