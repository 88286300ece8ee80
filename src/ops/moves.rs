//! What moves elements and computes nothing: concatenation, borders, other shapes, other orders of the axes.

use super::shaped;
use crate::ir::graph::Shape;
use crate::ir::op::{Axis, Border};

impl Shape {
    /// Its size along an axis.
    pub(crate) fn along(self, axis: Axis) -> usize {
        match axis {
            Axis::C => self.c,
            Axis::Y => self.h,
            Axis::X => self.w,
        }
    }

    /// The same with another size along an axis.
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
    let Some(&first) = inputs.first() else { return Err("it has no inputs".into()) };
    if let Some(other) = inputs.iter().find(|i| i.with(axis, 0) != first.with(axis, 0)) {
        return Err(format!("expected values that differ along {axis:?} only, found {first} and {other}"));
    }
    Ok(first.with(axis, inputs.iter().map(|i| i.along(axis)).sum()))
}

pub(super) fn padded(input: Shape, border: Border) -> Shape {
    Shape { h: border.top + input.h + border.bottom, w: border.left + input.w + border.right, ..input }
}

pub(super) fn reshaped(input: Shape, shape: Shape) -> Result<Shape, String> {
    if input.len() != shape.len() {
        return Err(format!("{input} has {} values, {shape} has {}", input.len(), shape.len()));
    }
    Ok(shape)
}

pub(super) fn transposed(input: Shape, axes: [Axis; 3]) -> Result<Shape, String> {
    if [Axis::C, Axis::Y, Axis::X].iter().any(|a| !axes.contains(a)) {
        return Err(format!("expected every axis once, found {axes:?}"));
    }
    let [c, h, w] = axes.map(|a| input.along(a));
    Ok(Shape { c, h, w })
}

pub(super) fn concat(inputs: &[(&[f64], Shape)], axis: Axis, output: Shape) -> Vec<f64> {
    shaped(output, |c, y, x| {
        let (mut at, mut i) = ([c, y, x], 0);
        let along = axis as usize;
        while at[along] >= inputs[i].1.along(axis) {
            at[along] -= inputs[i].1.along(axis);
            i += 1;
        }
        inputs[i].0[inputs[i].1.index(at[0], at[1], at[2])]
    })
}

pub(super) fn pad((values, from): (&[f64], Shape), border: Border, value: f32, output: Shape) -> Vec<f64> {
    shaped(output, |c, y, x| {
        let inside = y.checked_sub(border.top).zip(x.checked_sub(border.left));
        match inside.filter(|&(y, x)| y < from.h && x < from.w) {
            Some((y, x)) => values[from.index(c, y, x)],
            None => f64::from(value),
        }
    })
}

pub(super) fn transpose((values, from): (&[f64], Shape), axes: [Axis; 3], output: Shape) -> Vec<f64> {
    shaped(output, |c, y, x| {
        let mut at = [0; 3];
        axes.into_iter().zip([c, y, x]).for_each(|(axis, i)| at[axis as usize] = i);
        values[from.index(at[0], at[1], at[2])]
    })
}
