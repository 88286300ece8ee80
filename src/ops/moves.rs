//! Operations that move elements: concatenation, slices, borders, reshaping and transposition.

use super::shaped;
use crate::ir::graph::Shape;
use crate::ir::op::{Axis, Padding};

impl Shape {
    /// The number of elements of the shape along an axis.
    pub(crate) fn along(self, axis: Axis) -> usize {
        match axis {
            Axis::C => self.c,
            Axis::Y => self.h,
            Axis::X => self.w,
        }
    }

    /// The distance, in elements, between neighbours along c, y and x in a value of this shape.
    fn steps(self) -> [usize; 3] {
        [self.h * self.w, self.w, 1]
    }

    /// Returns the shape with `n` elements along an axis.
    pub(crate) fn with(mut self, axis: Axis, n: usize) -> Shape {
        match axis {
            Axis::C => self.c = n,
            Axis::Y => self.h = n,
            Axis::X => self.w = n,
        }
        self
    }
}

pub(super) fn concatenated(inputs: &[Shape], axis: Axis) -> Result<Shape, String> {
    let Some(&first) = inputs.first() else {
        return Err("it has no inputs".into());
    };
    if let Some(other) = inputs
        .iter()
        .find(|i| i.with(axis, 0) != first.with(axis, 0))
    {
        return Err(format!(
            "expected values that differ along {axis:?} only, found {first} and {other}"
        ));
    }
    Ok(first.with(axis, inputs.iter().map(|i| i.along(axis)).sum()))
}

pub(super) fn sliced(input: Shape, axis: Axis, first: usize, size: usize) -> Result<Shape, String> {
    if first
        .checked_add(size)
        .is_none_or(|end| end > input.along(axis))
    {
        return Err(format!(
            "{size} elements from {first} on along {axis:?} are not in {input}"
        ));
    }
    Ok(input.with(axis, size))
}

pub(super) fn padded(input: Shape, Padding { before, behind }: Padding) -> Shape {
    Shape {
        c: before[0] + input.c + behind[0],
        h: before[1] + input.h + behind[1],
        w: before[2] + input.w + behind[2],
    }
}

pub(super) fn reshaped(input: Shape, shape: Shape) -> Result<Shape, String> {
    if input.len() != shape.len() {
        return Err(format!(
            "{input} has {} values, {shape} has {}",
            input.len(),
            shape.len()
        ));
    }
    Ok(shape)
}

pub(super) fn transposed(input: Shape, axes: [Axis; 3]) -> Result<Shape, String> {
    if [Axis::C, Axis::Y, Axis::X]
        .iter()
        .any(|a| !axes.contains(a))
    {
        return Err(format!("expected every axis once, found {axes:?}"));
    }
    let [c, h, w] = axes.map(|a| input.along(a));
    Ok(Shape { c, h, w })
}

pub(super) fn concat(inputs: &[(&[f64], Shape)], axis: Axis, output: Shape) -> Vec<f64> {
    let mut result = Vec::with_capacity(output.len());
    // The elements along the axis and along all axes inside it are contiguous, so they are copied
    // as one piece.
    let piece = |shape: Shape| shape.along(axis) * output.steps()[axis as usize];
    for i in 0..output.len() / piece(output) {
        for &(values, shape) in inputs {
            let n = piece(shape);
            result.extend_from_slice(&values[i * n..][..n]);
        }
    }
    result
}

pub(super) fn slice(input: (&[f64], Shape), axis: Axis, first: usize, output: Shape) -> Vec<f64> {
    let (values, shape) = input;
    let steps = shape.steps();
    stepped(&values[first * steps[axis as usize]..], steps, output)
}

pub(super) fn pad(
    (values, from): (&[f64], Shape),
    padding: Padding,
    value: f32,
    output: Shape,
) -> Vec<f64> {
    let [channels, top, left] = padding.before;
    shaped(output, |c, y, x| {
        // Indices in the border before the value wrap around to huge numbers. So one comparison
        // recognizes elements in the border on either side of the value.
        let (c, y, x) = (
            c.wrapping_sub(channels),
            y.wrapping_sub(top),
            x.wrapping_sub(left),
        );
        if c < from.c && y < from.h && x < from.w {
            values[from.index(c, y, x)]
        } else {
            f64::from(value)
        }
    })
}

pub(super) fn transpose(
    (values, from): (&[f64], Shape),
    axes: [Axis; 3],
    output: Shape,
) -> Vec<f64> {
    stepped(values, axes.map(|a| from.steps()[a as usize]), output)
}

/// Returns a value of shape `output` whose elements are read from `values`. Neighbours along c, y
/// and x are `steps` elements apart in `values`.
fn stepped(values: &[f64], steps: [usize; 3], output: Shape) -> Vec<f64> {
    shaped(output, |c, y, x| {
        values[c * steps[0] + y * steps[1] + x * steps[2]]
    })
}
