//! The taps of a resampling. They say which rows and columns of the operand each row and each
//! column of the result reads, and with which weights.
//!
//! The array of a resampling has a position and a weight for each tap. First come the taps of the
//! result's rows, `down` for each row. Then come those of its columns, `along` for each column. A
//! position is the index of a row or column of the operand, as an exact float. A tap of weight 0 is
//! skipped, so an infinity or NaN at its position has no effect. Rows and columns with fewer taps
//! are filled up with taps of weight 0.

use super::graph::Shape;
use super::op::Op;

/// The most taps that a row or a column of a resampling's result may have.
pub(crate) const MOST_TAPS: usize = 8;

/// A row or column of the operand of a resampling, and the weight that it is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tap {
    pub(crate) position: usize,
    pub(crate) weight: f32,
}

/// The taps of a resampling, for the rows and for the columns of its result. Taps of weight 0 are
/// left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Taps {
    /// The taps of each row of the result.
    pub(crate) rows: Vec<Vec<Tap>>,
    /// The taps of each column of the result.
    pub(crate) columns: Vec<Vec<Tap>>,
}

impl Taps {
    /// Parses the array of a resampling that turns an image of shape `from` into one of shape `to`.
    /// The array has `down` taps for each row and `along` taps for each column of the result.
    ///
    /// # Errors
    /// The array has the wrong length, a position is outside of the image, or a weight is not
    /// finite.
    pub(crate) fn read(
        array: &[f32],
        (from, to): (Shape, Shape),
        (down, along): (usize, usize),
    ) -> Result<Taps, String> {
        let (rows, columns) = (2 * to.h * down, 2 * to.w * along);
        if down * along == 0 || array.len() != rows + columns {
            return Err(format!(
                "expected {} numbers of taps, found {}",
                rows + columns,
                array.len()
            ));
        }
        let (rows, columns) = array.split_at(rows);
        Ok(Taps {
            rows: axis(rows, down, (from.h, "rows"))?,
            columns: axis(columns, along, (from.w, "columns"))?,
        })
    }

    /// Returns the resampling operation with these taps, and its array. The array has a position
    /// and a weight for each tap.
    pub(crate) fn node(&self) -> (Op, Vec<f32>) {
        let most = |axis: &[Vec<Tap>]| axis.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let (down, along) = (most(&self.rows), most(&self.columns));
        let axes = [(&self.rows, down), (&self.columns, along)];
        let none = Tap {
            position: 0,
            weight: 0.0,
        };
        let filled = |taps: &Vec<Tap>, n| {
            let spare = std::iter::repeat_n(none, n - taps.len());
            taps.iter().copied().chain(spare).collect::<Vec<_>>()
        };
        let all = axes
            .into_iter()
            .flat_map(|(axis, n)| axis.iter().flat_map(move |taps| filled(taps, n)));
        let op = Op::Resample {
            height: self.rows.len(),
            width: self.columns.len(),
            taps: (down, along),
        };
        (
            op,
            all.flat_map(|tap| [tap.position as f32, tap.weight])
                .collect(),
        )
    }
}

/// Parses the taps along one axis: `taps` for each row or column of the result. Drops taps of
/// weight 0. The operand has `size` rows or columns.
fn axis(
    numbers: &[f32],
    taps: usize,
    (size, unit): (usize, &str),
) -> Result<Vec<Vec<Tap>>, String> {
    let tap = |pair: &[f32]| {
        let [at, weight] = [pair[0], pair[1]];
        let position = at as usize;
        if position as f32 != at || position >= size {
            return Err(format!("a tap reads position {at} of {size} {unit}"));
        }
        if !weight.is_finite() {
            return Err(format!("a tap has weight {weight}"));
        }
        Ok(Tap { position, weight })
    };
    let place = |numbers: &[f32]| {
        let all = numbers.chunks_exact(2).map(tap);
        let counts = |t: &Result<Tap, String>| t.as_ref().map_or(true, |t| t.weight != 0.0);
        all.filter(counts).collect()
    };
    numbers.chunks_exact(2 * taps).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Shape = Shape { c: 3, h: 4, w: 2 };

    fn tap(position: usize, weight: f32) -> Tap {
        Tap { position, weight }
    }

    #[test]
    fn taps_come_back_from_their_array() {
        let taps = Taps {
            rows: vec![vec![tap(3, 0.5), tap(0, -2.0)], vec![], vec![tap(1, 1.0)]],
            columns: vec![vec![tap(1, 1.0)], vec![tap(0, 0.25)]],
        };
        let (op, array) = taps.node();
        let to = Shape { c: 3, h: 3, w: 2 };
        let (height, width, count) = (3, 2, (2, 1));
        let expected = Op::Resample {
            height,
            width,
            taps: count,
        };
        assert_eq!(op, expected);
        let rows = [3.0, 0.5, 0.0, -2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0];
        assert_eq!(array, [&rows[..], &[1.0, 1.0, 0.0, 0.25]].concat());
        assert_eq!(Taps::read(&array, (FROM, to), count), Ok(taps));
    }

    #[test]
    fn wrong_arrays_are_refused() {
        let to = Shape { c: 3, h: 1, w: 1 };
        let read = |array: &[f32], taps| Taps::read(array, (FROM, to), taps).unwrap_err();
        assert_eq!(
            read(&[0.0; 5], (1, 1)),
            "expected 4 numbers of taps, found 5"
        );
        assert_eq!(read(&[], (0, 0)), "expected 0 numbers of taps, found 0");
        let outside = read(&[4.0, 1.0, 0.0, 1.0], (1, 1));
        assert_eq!(outside, "a tap reads position 4 of 4 rows");
        // The position of a tap must be inside the image even if the tap has weight 0.
        let outside = read(&[3.0, 1.0, 2.0, 0.0], (1, 1));
        assert_eq!(outside, "a tap reads position 2 of 2 columns");
        for (at, text) in [(-1.0, "-1"), (0.5, "0.5"), (f32::NAN, "NaN")] {
            let found = read(&[at, 1.0, 0.0, 1.0], (1, 1));
            assert_eq!(found, format!("a tap reads position {text} of 4 rows"));
        }
        let infinite = read(&[0.0, f32::INFINITY, 0.0, 1.0], (1, 1));
        assert_eq!(infinite, "a tap has weight inf");
    }
}
