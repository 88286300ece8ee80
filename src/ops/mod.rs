//! The definition of each graph operation: the shape of its result, its number of floating-point
//! operations, and its result in float64.
//!
//! The elements of a value are in the order c, y, x. The columns of a convolution's weights are in
//! the order ky, kx, c. `docs/EXTENDING.md`, "A new operation", lists all places that a new
//! operation touches.

mod activation;
mod affine;
pub(crate) mod bound;
mod convolution;
#[cfg(any(test, feature = "lab"))]
pub(crate) mod edges;
pub(crate) mod elements;
pub(crate) mod evaluate;
mod moves;
pub(crate) mod noise;
mod pool;
mod product;
pub(crate) mod products;
pub(crate) mod random;
mod resample;
mod slack;
#[cfg(test)]
mod tests;
pub(crate) mod ties;
mod window;

use crate::ir::graph::Shape;
use crate::ir::op::Op;

impl Op {
    /// Returns the shape of the operation's result. `tensors` has the rows and columns of each
    /// constant array.
    ///
    /// # Errors
    /// The shapes do not fit each other. The message says what was expected and found.
    pub(crate) fn shape(
        self,
        inputs: &[Shape],
        tensors: &[(usize, usize)],
    ) -> Result<Shape, String> {
        let one = || match inputs {
            &[input] => Ok(input),
            _ => Err("it has one input".to_string()),
        };
        let shape = match self {
            Op::Affine => affine::shape(inputs, tensors),
            Op::Convolution { window, groups } => {
                convolution::shape(inputs, tensors, &window, groups)
            }
            Op::Pool { window, .. } => pool::shape(inputs, &window),
            Op::Activation(_) => activation::shape(inputs),
            Op::PRelu => elements::scaled(inputs, tensors, 1),
            Op::Scale => elements::scaled(inputs, tensors, 2),
            Op::Combine(_) => elements::combined(inputs),
            Op::Concat(axis) => moves::concatenated(inputs, axis),
            Op::Slice { axis, first, size } => moves::sliced(one()?, axis, first, size),
            Op::Pad { padding, .. } => Ok(moves::padded(one()?, padding)),
            Op::Resample {
                height,
                width,
                taps,
            } => resample::shape(inputs, tensors, (height, width), taps),
            Op::Product { transposed } => product::shape(inputs, transposed),
            Op::OfChannels(_) => one(),
            Op::Reshape(shape) => moves::reshaped(one()?, shape),
            Op::Transpose(axes) => moves::transposed(one()?, axes),
        }?;
        if shape.is_empty() {
            Err("its value is empty".into())
        } else {
            Ok(shape)
        }
    }

    /// The floating-point operations for one record. As in the thesis, biases, activations and
    /// other element-wise operations do not count.
    pub(crate) fn flop(self, inputs: &[Shape], output: Shape) -> u64 {
        match self {
            Op::Affine => affine::flop(inputs, output),
            Op::Convolution { window, groups } => {
                convolution::flop(inputs[0], output, &window, groups)
            }
            Op::Pool { window, .. } => pool::flop(output, &window),
            Op::Resample { taps, .. } => resample::flop(output, taps),
            Op::Product { .. } => product::flop(inputs[0], output),
            Op::Activation(_)
            | Op::PRelu
            | Op::Scale
            | Op::Combine(_)
            | Op::Concat(_)
            | Op::Slice { .. }
            | Op::Pad { .. }
            | Op::OfChannels(_)
            | Op::Reshape(_)
            | Op::Transpose(_) => 0,
        }
    }

    /// Computes the results for several records in float64. Each record has the operation's inputs
    /// with their shapes. `output` is the shape of the result. The weights are read once for all
    /// records.
    pub(crate) fn references(
        self,
        records: &[Vec<(&[f64], Shape)>],
        tensors: &[&[f32]],
        output: Shape,
    ) -> Vec<Vec<f64>> {
        let first = || -> Vec<&[f64]> {
            let first = records.iter().map(|inputs| inputs[0]);
            first.map(|(values, _)| values).collect()
        };
        match (self, records.first().map(|inputs| inputs[0])) {
            (Op::Affine, Some(_)) => affine::reference(&first(), tensors[0], tensors[1]),
            (Op::Convolution { window, groups }, Some((_, shape))) => convolution::reference(
                &first(),
                shape,
                (tensors[0], tensors[1]),
                output,
                &window,
                groups,
            ),
            _ => records
                .iter()
                .map(|inputs| self.reference(inputs, tensors, output))
                .collect(),
        }
    }

    /// Computes the result for one record in float64. `output` is the shape of the result.
    pub(crate) fn reference(
        self,
        inputs: &[(&[f64], Shape)],
        tensors: &[&[f32]],
        output: Shape,
    ) -> Vec<f64> {
        let (values, shape) = inputs[0];
        match self {
            Op::Affine | Op::Convolution { .. } => self
                .references(&[inputs.to_vec()], tensors, output)
                .swap_remove(0),
            Op::Pool { kind, window } => pool::reference(inputs[0], output, kind, &window),
            Op::Activation(a) => {
                let mut values = values.to_vec();
                a.apply_all(&mut values);
                values
            }
            Op::PRelu => elements::prelu(values, shape, tensors[0]),
            Op::Scale => elements::scale(values, shape, (tensors[0], tensors[1])),
            Op::Combine(arithmetic) => {
                let (other, _) = inputs[1];
                elements::combine(arithmetic, inputs[0], other)
            }
            Op::Concat(axis) => moves::concat(inputs, axis, output),
            Op::Slice { axis, first, .. } => moves::slice(inputs[0], axis, first, output),
            Op::Pad { padding, value } => moves::pad(inputs[0], padding, value.get(), output),
            Op::Resample { taps, .. } => resample::reference(inputs[0], tensors[0], output, taps),
            Op::Product { transposed } => product::reference([inputs[0], inputs[1]], transposed),
            Op::OfChannels(of) => elements::of_channels(values, shape, of),
            Op::Reshape(_) => values.to_vec(),
            Op::Transpose(axes) => moves::transpose(inputs[0], axes, output),
        }
    }
}

/// Computes a value of this shape element by element, in the order c, y, x. `element` returns the
/// element at (c, y, x).
fn shaped(shape: Shape, element: impl Fn(usize, usize, usize) -> f64) -> Vec<f64> {
    let Shape { h, w, .. } = shape;
    (0..shape.len())
        .map(|i| element(i / (h * w), i / w % h, i % w))
        .collect()
}
