//! Maps from the elements of a value to the rows of its matrix.
//!
//! A matrix has a column for each record. Element (c, y, x) of an image is in row
//! `first + y · line + x · pixel + c`. A pixel may have padding rows behind its channels. If an
//! image is flattened, its elements keep their rows, and only their order changes. The map of a
//! slice has another first row. Concatenated channels make a pixel with more rows.

use super::graph::Shape;
use super::op::Window;
use std::fmt;

/// Maps each element of a value to a row of its matrix, by nested loops over the elements in the
/// order (c, y, x). A `RowMap` may also map each element to an index in a constant array. A loop
/// with a step of 0 then uses the same number of the array for several elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowMap {
    /// The row of the first element.
    pub(crate) first: usize,
    /// For each of the map's three nested loops, outermost first: its number of turns, and the rows
    /// from one turn to the next. Unused loops have one turn and come first.
    pub(crate) loops: [(usize, usize); 3],
}

/// Writes the first row, then the turns and the step of each loop with more than one turn. For
/// example `2+28×448+16×1`.
impl fmt::Debug for RowMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.loops
            .iter()
            .filter(|(turns, _)| *turns != 1)
            .try_for_each(|(n, step)| write!(f, "+{n}×{step}"))
    }
}

impl Default for RowMap {
    fn default() -> RowMap {
        RowMap::vector(1)
    }
}

impl RowMap {
    /// The map of a vector of `n` elements to the first `n` rows.
    pub(crate) const fn vector(n: usize) -> RowMap {
        let last = if n == 1 { (1, 0) } else { (n, 1) };
        RowMap {
            first: 0,
            loops: [(1, 0), (1, 0), last],
        }
    }

    /// Makes a map from nested loops, given as (turns, rows per turn), outermost first. Merges
    /// loops where possible. Returns `None` if more than three loops remain.
    pub(crate) fn of(first: usize, loops: &[(usize, usize)]) -> Option<RowMap> {
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for &(n, step) in loops.iter().filter(|(turns, _)| *turns != 1) {
            match merged.last_mut() {
                // One turn of the outer loop steps over exactly all turns of the inner loop, so
                // both become one loop.
                Some((turns, rows)) if *rows == n * step => (*turns, *rows) = (*turns * n, step),
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

    /// Makes a map of three loops, one for each of the axes c, y and x, given as (turns, rows per
    /// turn). Loops are merged where possible.
    pub(super) fn of_axes(first: usize, loops: [(usize, usize); 3]) -> RowMap {
        RowMap::of(first, &loops).unwrap_or(RowMap { first, loops })
    }

    /// The map from the elements of an image of this shape to the rows that `image` describes.
    pub(crate) fn image(image: Image, shape: Shape) -> RowMap {
        RowMap::of_axes(
            image.first,
            [(shape.c, 1), (shape.h, image.line), (shape.w, image.pixel)],
        )
    }

    /// Maps each element of a value of this shape to the index of its channel. It serves arrays
    /// that have one number per channel.
    pub(crate) fn of_channels(shape: Shape) -> RowMap {
        RowMap::of_axes(0, [(shape.c, 1), (shape.h, 0), (shape.w, 0)])
    }

    /// Maps each of `n` elements to index 0, for an array that has only one number.
    pub(crate) fn of_all(n: usize) -> RowMap {
        RowMap::of_axes(0, [(1, 0), (1, 0), (n, 0)])
    }

    /// The number of elements that the map covers.
    pub(crate) fn len(&self) -> usize {
        self.loops.iter().map(|(turns, _)| turns).product()
    }

    /// The row of element `i`.
    pub(crate) fn row(&self, i: usize) -> usize {
        let [(_, a), (middle, b), (inner, c)] = self.loops;
        let (rest, last) = (i / inner, i % inner);
        self.first + rest / middle * a + rest % middle * b + last * c
    }

    /// Returns the rows of all elements, in the order of the elements.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + use<> {
        let RowMap {
            first,
            loops: [(outer, a), (middle, b), (inner, c)],
        } = *self;
        (0..outer).flat_map(move |i| {
            (0..middle).flat_map(move |j| (0..inner).map(move |k| first + i * a + j * b + k * c))
        })
    }

    /// One more than the largest row or index that the map gives.
    pub(crate) fn end(&self) -> usize {
        let loops = self.loops.iter().map(|&(n, step)| (n - 1) * step);
        self.first + loops.sum::<usize>() + 1
    }

    /// Returns true if every element i is in row i.
    pub(crate) fn is_plain(&self) -> bool {
        *self == RowMap::vector(self.len())
    }

    /// Returns true if each loop steps over all rows of the loops with smaller steps. Then no two
    /// elements share a row, and kernels find the element of a row by division.
    pub(crate) fn is_nested(&self) -> bool {
        let mut loops = self.loops;
        loops.sort_by_key(|&(_, step)| step);
        let mut covered = 1;
        let mut turning = loops.iter().filter(|(turns, _)| *turns > 1);
        turning.all(|&(n, step)| {
            let above = step >= covered;
            covered += (n - 1) * step;
            above
        })
    }

    /// Returns the distance in rows between neighbouring elements along c, y and x of a value of
    /// shape `shape`. `None` if the map's loops do not follow these axes.
    pub(crate) fn steps(&self, shape: Shape) -> Option<[usize; 3]> {
        let turning = |l: &(usize, usize)| l.0 > 1;
        let mut loops: Vec<(usize, usize)> = self.loops.into_iter().filter(turning).collect();
        // The axes are handled from the innermost (x) out. Each axis takes whole loops or a part of
        // a loop.
        let mut axis = |n: usize| -> Option<usize> {
            let (mut left, mut steps) = (n, None);
            while left > 1 {
                let (turns, step) = loops.pop()?;
                if left % turns == 0 {
                    match steps {
                        None => steps = Some(step),
                        // An axis may span several loops if each loop continues where the loops
                        // inside it end.
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

    /// Returns the map as an image of shape `shape`. `None` if the channels of a pixel are not in
    /// neighbouring rows, or if the map's loops do not follow the axes.
    pub(crate) fn as_image(&self, shape: Shape) -> Option<Image> {
        let [c, y, x] = self.steps(shape)?;
        // Along an axis with one element any distance is right. Such an axis gets the distance that
        // an image without gaps has.
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

    /// Returns the map of the transposed value, whose elements stay in the same rows. Axis i of the
    /// transposed value is axis `axes[i]` of the value with shape `shape`. `None` if the map's
    /// loops do not follow the axes.
    pub(crate) fn transposed(&self, shape: Shape, axes: [super::op::Axis; 3]) -> Option<RowMap> {
        let steps = self.steps(shape)?;
        let turn = |axis: super::op::Axis| (shape.along(axis), steps[axis as usize]);
        Some(RowMap::of_axes(self.first, axes.map(turn)))
    }

    /// Returns the map of a slice of a value. The value has shape `shape`, the slice has shape
    /// `part` and begins at element `at` (c, y, x). `None` if the map's loops do not follow the
    /// axes.
    pub(crate) fn sliced(&self, shape: Shape, at: [usize; 3], part: Shape) -> Option<RowMap> {
        let steps = self.steps(shape)?;
        let first = (0..3).fold(self.first, |first, axis| first + at[axis] * steps[axis]);
        Some(RowMap::of_axes(
            first,
            [(part.c, steps[0]), (part.h, steps[1]), (part.w, steps[2])],
        ))
    }
}

/// The elements that a step copies. Element i is read from row `from.row(i)` and written to row
/// `to.row(i)`. In a `Scale` step `from.row(i)` is instead the index of the number in a constant
/// array that element i uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Gives the row of the source matrix that each element is read from. In a `Scale` step it
    /// gives an index in a constant array.
    pub(crate) from: RowMap,
    /// Gives the row of the result's matrix that each element is written to. [`RowMap::is_nested`]
    /// holds for this map.
    pub(crate) to: RowMap,
    /// The number of rows of the result that the step writes, counted from row 0. Rows that belong
    /// to no element are written, too. With 0 the step writes only the rows of elements.
    pub(crate) filled: usize,
}

impl Moved {
    /// The number of work-items for a record, one for each row that the step writes.
    pub(crate) fn items(&self) -> usize {
        if self.filled > 0 {
            self.filled
        } else {
            self.to.len()
        }
    }

    /// Returns the kernel argument that describes the copied rows, as 16 words.
    /// `kernels/common/moved.cl` reads it.
    pub(crate) fn words(&self) -> [u32; 16] {
        // For each loop of a row map, the number of elements that one turn of the loop covers.
        let within = |map: &RowMap| {
            let [_, (middle, _), (inner, _)] = map.loops;
            [middle * inner, inner, 1]
        };
        // For each loop: divisor, number of turns, and weight. A kernel divides the index of its
        // work-item by each divisor, and sums the quotients times their weights. The index is a row
        // if `filled` is above 0, and an element otherwise.
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
        loops.sort_by_key(|&(divisor, ..)| std::cmp::Reverse(divisor));
        let [(a, mut b, c), (d, e, f), (g, h, i)] = loops;
        if self.filled == 0 {
            // Zero turns of the first loop tell the kernel that its work-items count elements, not
            // rows.
            b = 0;
        }
        let [first, second, _] = within(&self.from).map(|elements| elements as u32);
        let [x, y, z] = self.from.loops.map(|(_, step)| step as u32);
        let (from, to) = (self.from.first as u32, self.to.first as u32);
        [from, to, a, b, c, d, e, f, g, h, i, first, x, second, y, z]
    }
}

/// The rows of a matrix that an image occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// The row of the first element of the image.
    pub(crate) first: usize,
    /// The number of rows from one pixel to the next in the same line.
    pub(crate) pixel: usize,
    /// The number of rows from the start of one line of pixels to the start of the next.
    pub(crate) line: usize,
}

impl Image {
    /// An image without gaps between pixels or lines. Each pixel has `pixel` rows.
    pub(crate) fn dense(shape: Shape, pixel: usize) -> Image {
        Image {
            first: 0,
            pixel,
            line: shape.w * pixel,
        }
    }
}

/// The largest height, width, stride, dilation or border of images and windows. Kernel arguments
/// pack two such numbers into a 32-bit word.
pub(crate) const MOST_SIDE: usize = (1 << 16) - 1;

/// The images that a kernel reads and writes, and its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// The image that the kernel reads, and its shape. A kernel that combines two values reads two
    /// images, and this is the second.
    pub(crate) input: (Image, Shape),
    /// The image that the kernel writes, and its shape.
    pub(crate) output: (Image, Shape),
    /// The window that moves over the input image. A kernel without a window has a window of one
    /// pixel.
    pub(crate) window: Window,
    /// The number of groups of channels in a convolution, 1 for a kernel without groups.
    pub(crate) groups: usize,
}

impl Geometry {
    /// Returns the kernel argument that describes the images and the window, as 16 words.
    /// `kernels/common/geometry.cl` reads it.
    pub(crate) fn words(&self) -> [u32; 16] {
        let two = |(low, high): (usize, usize)| low as u32 | (high as u32) << 16;
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
            two((from.h, from.w)),
            output.first as u32,
            output.pixel as u32,
            output.line as u32,
            two((to.h, to.w)),
            two(size),
            two(stride),
            two(dilation),
            two((border.top, border.left)),
            two((border.bottom, border.right)),
            (from.c / groups) as u32,
            (to.c / groups) as u32,
            to.c as u32,
        ]
    }

    /// Returns true if all heights, widths, strides, dilations and borders are below 2^16. The
    /// kernels' argument packs two of these numbers into a 32-bit word.
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
            .all(|(a, b)| a.max(b) <= MOST_SIDE)
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
        /// Each element of an image has the row that the formula `first + y · line + x · pixel + c`
        /// gives. `as_image` turns the map back into the image.
        #[test]
        fn images_and_maps(
            shape in shape(),
            padding in 0usize..3,
            first in 0usize..9,
            gap in 0usize..4,
        ) {
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

        #[test]
        fn parts_of_maps(
            shape in shape(),
            pixel in 5usize..7,
            (c, y, x) in (0usize..4, 0usize..4, 0usize..4),
        ) {
            let (c, y, x) = (c % shape.c, y % shape.h, x % shape.w);
            let part = Shape { c: shape.c - c, h: (shape.h - y).min(2), w: (shape.w - x).min(2) };
            let map = RowMap::image(Image::dense(shape, pixel), shape);
            let rows: Vec<usize> = map.rows().collect();
            let found = map.sliced(shape, [c, y, x], part).expect("loops of axes");
            let found: Vec<usize> = found.rows().collect();
            let element = |i: usize| (i / (part.h * part.w), i / part.w % part.h, i % part.w);
            let expected = (0..part.len())
                .map(element)
                .map(|(dc, dy, dx)| rows[shape.index(c + dc, y + dy, x + dx)]);
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }

        /// A transposed map gives each element the row that the original map gives it. Only the
        /// order of the axes c, y and x changes. Transposing back gives the original map.
        #[test]
        fn transposed_maps(shape in shape(), pixel in 5usize..7) {
            let map = RowMap::image(Image::dense(shape, pixel), shape);
            let rows: Vec<usize> = map.rows().collect();
            let turned = map.transposed(shape, [Axis::X, Axis::C, Axis::Y]).expect("loops of axes");
            let other: Vec<usize> = turned.rows().collect();
            let to = Shape { c: shape.w, h: shape.c, w: shape.h };
            let lines = (0..shape.c).flat_map(|c| (0..shape.h).map(move |y| (c, y)));
            for (c, y, x) in lines.flat_map(|(c, y)| (0..shape.w).map(move |x| (c, y, x))) {
                prop_assert_eq!(other[to.index(x, c, y)], rows[shape.index(c, y, x)]);
            }
            prop_assert_eq!(turned.transposed(to, [Axis::Y, Axis::X, Axis::C]), Some(map));
        }
    }

    const fn image(first: usize, pixel: usize, line: usize) -> Image {
        Image { first, pixel, line }
    }

    const fn pixels(c: usize, h: usize, w: usize) -> Shape {
        Shape { c, h, w }
    }

    const GEOMETRY: Geometry = Geometry {
        input: (image(1, 2, 3), pixels(8, 4, 5)),
        output: (image(6, 7, 8), pixels(6, 9, 10)),
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

    /// Two sizes share a 32-bit word of the kernels' argument, so each must be below 2^16.
    #[test]
    fn sizes_of_a_geometry_fit_halves_of_words() {
        let geometry = GEOMETRY;
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
        let ungrouped = Geometry {
            groups: 0,
            ..geometry
        };
        assert_eq!(ungrouped.words()[13..], [8, 6, 6]);
        let wide = |w: usize| Geometry {
            output: (Image::default(), pixels(1, 1, w)),
            ..geometry
        };
        let dilated = |n: usize| Geometry {
            window: Window {
                dilation: (n, 1),
                ..geometry.window
            },
            ..geometry
        };
        let most = (1 << 16) - 1;
        assert!(geometry.fits() && wide(most).fits() && !wide(most + 1).fits());
        assert!(dilated(most).fits() && !dilated(most + 1).fits());
    }
}
