//! Affine layers: R = W·I + b.

use super::products::{self, Panels};
use crate::ir::graph::Shape;

pub(super) fn shape(inputs: &[Shape], tensors: &[(usize, usize)]) -> Result<Shape, String> {
    let (&[input], &[(outputs, takes), (rows, cols)]) = (inputs, tensors) else {
        return Err("an affine layer has one input, weights and biases".into());
    };
    if input.len() != takes {
        return Err(format!(
            "expected {takes} inputs, as the weights have columns, found {}",
            input.len()
        ));
    }
    if (rows, cols) != (outputs, 1) {
        return Err(format!(
            "expected {outputs} × 1 biases, found {rows} × {cols}"
        ));
    }
    Ok(Shape::vector(outputs))
}

pub(super) fn flop(inputs: &[Shape], output: Shape) -> u64 {
    2 * output.len() as u64 * inputs.iter().map(|i| i.len() as u64).sum::<u64>()
}

pub(super) fn reference(inputs: &[&[f64]], weights: &[f32], biases: &[f32]) -> Vec<Vec<f64>> {
    let biased = |sums: Vec<f64>| {
        sums.into_iter()
            .zip(biases)
            .map(|(sum, &b)| f64::from(b) + sum)
            .collect()
    };
    if let &[input] = inputs {
        return vec![biased(products::with_one(weights, input))];
    }
    let (count, depth) = (inputs.len(), inputs.first().map_or(0, |x| x.len()));
    let mut sums = vec![0.0; biases.len() * count];
    Panels::new(weights, depth).add(count, &mut sums, |columns, width, laid| {
        for (j, x) in inputs[columns].iter().enumerate() {
            laid.iter_mut()
                .skip(j)
                .step_by(width)
                .zip(*x)
                .for_each(|(to, &x)| *to = x);
        }
    });
    (0..count)
        .map(|n| biased(sums.iter().skip(n).step_by(count).copied().collect()))
        .collect()
}
