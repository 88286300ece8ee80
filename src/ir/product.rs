//! The product of two computed values, as attention needs it: its sizes, and the rows of its
//! operands and of its result.
//!
//! An operand may have any row map that follows its axes. So a product reads the heads of attention
//! where a layer has written them, without a copy. Element (g, i, j) of the result is in row (i ·
//! groups + g) · columns + j of its matrix. The columns of one group are neighbours, and all groups
//! of one result row follow each other. So the heads of attention become the channels of a pixel,
//! again without a copy.

use super::graph::Shape;
use super::view::RowMap;

/// The rows that an operand's elements occupy in its matrix. `first` is the row of the first
/// element, and `steps` has the distance in rows between neighbours along each axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) first: usize,
    pub(crate) steps: [usize; 3],
}

impl Strides {
    /// Returns the strides of a value of this shape whose elements are in the rows that `map`
    /// gives. `None` if the loops of `map` do not follow the axes.
    pub(crate) fn of(map: &RowMap, shape: Shape) -> Option<Strides> {
        Some(Strides {
            first: map.first,
            steps: map.steps(shape)?,
        })
    }

    /// Returns the row of the element that has the index `at[i]` along axis i.
    pub(crate) fn row(&self, at: [usize; 3]) -> usize {
        self.first
            + (0..3)
                .map(|axis| at[axis] * self.steps[axis])
                .sum::<usize>()
    }
}

/// The sizes of a product of two computed values, made of independent groups, and the rows of both
/// operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) groups: usize,
    /// The rows and the columns of each group of the result.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The common dimension: the number of terms that each sum adds.
    pub(crate) terms: usize,
    /// The strides of the first operand along its axes: groups, rows and terms.
    pub(crate) a: Strides,
    /// The strides of the second operand along its axes: groups, terms and columns.
    pub(crate) b: Strides,
}

impl Product {
    /// Returns the product of an operand of shape `of` and strides `a`, and one of strides `b`. The
    /// result has `columns` columns. `transposed` is true if the axes of the second operand are
    /// groups, columns and terms.
    pub(crate) fn new(
        of: Shape,
        columns: usize,
        (a, mut b): (Strides, Strides),
        transposed: bool,
    ) -> Product {
        if transposed {
            b.steps.swap(1, 2);
        }
        Product {
            groups: of.c,
            rows: of.h,
            columns,
            terms: of.w,
            a,
            b,
        }
    }

    /// Returns the map from the elements of the result to the rows of its matrix.
    pub(crate) fn result(&self) -> RowMap {
        let row = self.groups * self.columns;
        let loops = [
            (self.groups, self.columns),
            (self.rows, row),
            (self.columns, 1),
        ];
        RowMap::of_axes(0, loops)
    }

    /// Returns the row in its matrix of the first element of row `row` of group `group` of the
    /// result.
    pub(crate) fn row_of_result(&self, group: usize, row: usize) -> usize {
        (row * self.groups + group) * self.columns
    }

    /// The number of elements of the result. The result's matrix has as many rows for each record.
    pub(crate) fn len(&self) -> usize {
        self.groups * self.rows * self.columns
    }

    /// Returns, for each of both operands, one more than the largest row that the product reads.
    pub(crate) fn ends(&self) -> [usize; 2] {
        let (g, i, j, k) = (
            self.groups - 1,
            self.rows - 1,
            self.columns - 1,
            self.terms - 1,
        );
        [self.a.row([g, i, k]) + 1, self.b.row([g, k, j]) + 1]
    }

    /// Returns the kernel argument that describes the product, as 16 words.
    /// `kernels/product/any.cl` reads it.
    pub(crate) fn words(&self) -> [u32; 16] {
        let Strides { first, steps } = self.a;
        let [group, row, term] = steps;
        let second = self.b.first;
        let [other_group, other_term, column] = self.b.steps;
        [
            first,
            group,
            row,
            term,
            second,
            other_group,
            other_term,
            column,
            self.groups,
            self.rows,
            self.columns,
            self.terms,
            0,
            0,
            0,
            0,
        ]
        .map(|n| n as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_the_channels_of_a_pixel() {
        // Three heads of five values for each of four tokens. The heads of a token are in
        // neighbouring rows.
        let heads = RowMap {
            first: 7,
            loops: [(3, 5), (4, 15), (5, 1)],
        };
        let shape = Shape { c: 3, h: 4, w: 5 };
        let strides = Strides::of(&heads, shape).unwrap();
        assert_eq!(strides.steps, [5, 15, 1]);
        let scores = Product::new(shape, 4, (strides, strides), true);
        assert_eq!(scores.b.steps, [5, 1, 15]);
        assert_eq!(scores.ends(), [67, 67]);
        assert_eq!(scores.result().row(4 * 4 * 2 + 4 + 3), 12 + 2 * 4 + 3);
        assert_eq!(scores.len(), 48);
        let words = [7, 5, 15, 1, 7, 5, 1, 15, 3, 4, 4, 5, 0, 0, 0, 0];
        assert_eq!(scores.words(), words);
        let none = RowMap {
            first: 0,
            loops: [(1, 0), (10, 7), (6, 1)],
        };
        assert_eq!(Strides::of(&none, shape), None);
    }
}
