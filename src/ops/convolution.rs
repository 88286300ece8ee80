//! R[o, y, x] = Σ W[o, (ky, kx, c)] · I[c of the group of o, y·stride + ky·dilation − top, …] + b[o]; what lies outside of
//! the image is 0.

use super::shaped;
use crate::ir::graph::Shape;
use crate::ir::op::Window;

pub(super) fn shape(
    inputs: &[Shape],
    tensors: &[(usize, usize)],
    window: &Window,
    groups: usize,
) -> Result<Shape, String> {
    let (&[input], &[(outputs, columns), biases]) = (inputs, tensors) else {
        return Err("a convolution has one input, weights and biases".into());
    };
    if groups == 0 || input.c % groups != 0 || outputs % groups != 0 {
        return Err(format!("{groups} groups do not divide {} channels and {outputs} outputs", input.c));
    }
    let expected = window.size.0 * window.size.1 * (input.c / groups);
    if columns != expected {
        return Err(format!(
            "expected {expected} weights of an output ({}×{} of {} channels), found {columns}",
            window.size.0,
            window.size.1,
            input.c / groups
        ));
    }
    if biases != (outputs, 1) {
        return Err(format!("expected {outputs} × 1 biases, found {} × {}", biases.0, biases.1));
    }
    let (h, w) = window.output(input)?;
    Ok(Shape { c: outputs, h, w })
}

/// Every element of a window counts, inside the image or not.
pub(super) fn flop(input: Shape, output: Shape, window: &Window, groups: usize) -> u64 {
    2 * output.len() as u64 * (window.size.0 * window.size.1 * (input.c / groups.max(1))) as u64
}

pub(super) fn reference(
    input: (&[f64], Shape),
    (weights, biases): (&[f32], &[f32]),
    output: Shape,
    window: &Window,
    groups: usize,
) -> Vec<f64> {
    let (values, from) = input;
    let (group, outputs) = (from.c / groups, output.c / groups);
    let columns = window.size.0 * window.size.1 * group;
    shaped(output, |o, y, x| {
        let first = o / outputs * group;
        let mut sum = f64::from(biases[o]);
        for ((ky, kx), (iy, ix)) in window.inside(from, (y, x)) {
            let row = &weights[o * columns + (ky * window.size.1 + kx) * group..][..group];
            for (c, &w) in row.iter().enumerate() {
                sum += f64::from(w) * values[from.index(first + c, iy, ix)];
            }
        }
        sum
    })
}
