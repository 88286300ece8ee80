//! R = W·I + b.

use crate::ir::graph::Shape;

pub(super) fn shape(inputs: &[Shape], tensors: &[(usize, usize)]) -> Result<Shape, String> {
    let (&[input], &[(outputs, takes), biases]) = (inputs, tensors) else {
        return Err("an affine layer has one input, weights and biases".into());
    };
    if input.len() != takes {
        return Err(format!("expected {takes} inputs, as the weights have columns, found {}", input.len()));
    }
    if biases != (outputs, 1) {
        return Err(format!("expected {outputs} × 1 biases, found {} × {}", biases.0, biases.1));
    }
    Ok(Shape::vector(outputs))
}

pub(super) fn flop(inputs: &[Shape], output: Shape) -> u64 {
    2 * output.len() as u64 * inputs.iter().map(|i| i.len() as u64).sum::<u64>()
}

pub(super) fn reference(input: &[f64], weights: &[f32], biases: &[f32]) -> Vec<f64> {
    let row = |(row, &b): (&[f32], &f32)| {
        f64::from(b) + row.iter().zip(input).map(|(&w, x)| f64::from(w) * x).sum::<f64>()
    };
    weights.chunks_exact(input.len().max(1)).zip(biases).map(row).collect()
}
