//! The operations that a network is made of, one file each: shape rule, work, float64 reference.
//!
//! `docs/EXTENDING.md`, "A new operation", lists all places that a new one touches.

mod activation;
mod affine;
pub(crate) mod bound;
mod evaluate;
pub(crate) mod random;

use crate::ir::graph::Shape;
use crate::ir::op::Op;

impl Op {
    /// The shape of its value, from those of its inputs and the rows and columns of its weights.
    ///
    /// # Errors
    /// Expected and found, where they do not meet.
    pub(crate) fn shape(self, inputs: &[Shape], tensors: &[(usize, usize)]) -> Result<Shape, String> {
        match self {
            Op::Affine => affine::shape(inputs, tensors),
            Op::Activation(_) => activation::shape(inputs),
        }
    }

    /// Floating-point operations for one record. As in the thesis, those of biases and activations are not counted.
    pub(crate) fn flop(self, inputs: &[Shape], output: Shape) -> u64 {
        match self {
            Op::Affine => affine::flop(inputs, output),
            Op::Activation(_) => 0,
        }
    }

    /// Its value of one record in float64.
    pub(crate) fn reference(self, inputs: &[&[f64]], tensors: &[&[f32]]) -> Vec<f64> {
        match self {
            Op::Affine => affine::reference(inputs[0], tensors[0], tensors[1]),
            Op::Activation(a) => inputs[0].iter().map(|&x| a.apply(x)).collect(),
        }
    }
}
