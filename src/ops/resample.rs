//! Linear resamplings of the rows and the columns of an image, such as bilinear resizing. Each axis
//! has its own few weights.

use super::shaped;
use crate::ir::graph::Shape;
use crate::ir::taps::{MOST_TAPS, Tap, Taps};

/// Returns the shape of a resampling to `height` rows and `width` columns, or an error if its taps
/// do not fit.
pub(super) fn shape(
    inputs: &[Shape],
    tensors: &[(usize, usize)],
    (height, width): (usize, usize),
    (down, along): (usize, usize),
) -> Result<Shape, String> {
    let &[input] = inputs else {
        return Err("a resampling has one input".into());
    };
    let most = 1..=MOST_TAPS;
    if !most.contains(&down) || !most.contains(&along) {
        return Err(format!(
            "expected 1 to {MOST_TAPS} taps along an axis, found {down} and {along}"
        ));
    }
    let output = Shape {
        h: height,
        w: width,
        ..input
    }
    .bounded()?;
    let taps = (height.saturating_mul(down)).saturating_add(width.saturating_mul(along));
    if tensors != [(taps, 2)] {
        return Err(format!(
            "expected an array of {taps} × 2 numbers, a position and a weight for each tap; found \
             {tensors:?}"
        ));
    }
    Ok(output)
}

/// The floating-point operations of a resampling for one record: two for each tap of each element,
/// a multiplication and an addition.
pub(super) fn flop(output: Shape, (down, along): (usize, usize)) -> u64 {
    2 * (output.len() * down * along) as u64
}

/// Computes a resampling in float64. All results are NaN if [`Taps::read`] refuses the array.
pub(super) fn reference(
    (values, from): (&[f64], Shape),
    array: &[f32],
    output: Shape,
    taps: (usize, usize),
) -> Vec<f64> {
    let Ok(Taps { rows, columns }) = Taps::read(array, (from, output), taps) else {
        return vec![f64::NAN; output.len()];
    };
    shaped(output, |c, y, x| {
        let line = |row: &Tap| {
            let term = |column: &Tap| {
                let value = values[from.index(c, row.position, column.position)];
                f64::from(column.weight) * value
            };
            f64::from(row.weight) * columns[x].iter().map(term).sum::<f64>()
        };
        rows[y].iter().map(line).sum()
    })
}
