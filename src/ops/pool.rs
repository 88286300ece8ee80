//! Pooling: the maximum or the mean of each window of an image, channel by channel.

use super::shaped;
use crate::ir::graph::Shape;
use crate::ir::op::{Pool, Window};

pub(super) fn shape(inputs: &[Shape], window: &Window) -> Result<Shape, String> {
    let &[input] = inputs else {
        return Err("a pooling has one input".into());
    };
    let (h, w) = window.output(input)?;
    let output = Shape { h, w, ..input };
    // A window is empty if all its pixels are outside of the image. Windows side by side cover the
    // same rows, and windows below each other the same columns. So checking the first row and the
    // first column of windows is enough.
    let empty = |&(y, x): &(usize, usize)| window.inside(input, (y, x)).next().is_none();
    let mut all = (0..h).map(|y| (y, 0)).chain((0..w).map(|x| (0, x)));
    match all.find(empty) {
        Some((y, x)) => Err(format!(
            "the window at row {y}, column {x} is outside of the image"
        )),
        None => Ok(output),
    }
}

/// The floating-point operations of a pooling for one record. Each element of a window counts as
/// one maximum or one addition.
pub(super) fn flop(output: Shape, window: &Window) -> u64 {
    (output.len() * window.elements()) as u64
}

pub(super) fn reference(
    (values, from): (&[f64], Shape),
    output: Shape,
    kind: Pool,
    window: &Window,
) -> Vec<f64> {
    shaped(output, |c, y, x| {
        let inside = window
            .inside(from, (y, x))
            .map(|(_, (row, column))| values[from.index(c, row, column)]);
        match kind {
            Pool::Max => inside.fold(
                f64::NEG_INFINITY,
                |a, b| if a > b || a.is_nan() { a } else { b },
            ),
            Pool::Mean => {
                let (sum, count) = inside.fold((0.0, 0), |(sum, count), v| (sum + v, count + 1));
                sum / f64::from(count)
            }
            Pool::PaddedMean => inside.sum::<f64>() / window.inside_border(from, (y, x)) as f64,
        }
    })
}
