//! Convolutions. R[o, y, x] = Σ W[o, (ky, kx, c)] · I[c of the group of o, y·stride + ky·dilation −
//! top, …] + b[o]. I is 0 outside of the image.

use super::products::Panels;
use crate::ir::graph::Shape;
use crate::ir::op::Window;

pub(super) fn shape(
    inputs: &[Shape],
    tensors: &[(usize, usize)],
    window: &Window,
    groups: usize,
) -> Result<Shape, String> {
    let (&[input], &[(outputs, columns), (rows, cols)]) = (inputs, tensors) else {
        return Err("a convolution has one input, weights and biases".into());
    };
    if groups == 0 || input.c % groups != 0 || outputs % groups != 0 {
        return Err(format!(
            "{groups} groups do not divide {} channels and {outputs} outputs",
            input.c
        ));
    }
    let expected = window.elements() * (input.c / groups);
    if columns != expected {
        let (height, width) = window.size;
        return Err(format!(
            "expected {expected} weights of an output ({height}×{width} of {} channels), found \
             {columns}",
            input.c / groups
        ));
    }
    if (rows, cols) != (outputs, 1) {
        return Err(format!(
            "expected {outputs} × 1 biases, found {rows} × {cols}"
        ));
    }
    let (h, w) = window.output(input)?;
    Ok(Shape { c: outputs, h, w })
}

/// The floating-point operations of a convolution for one record. Elements of a window outside of
/// the image count, too.
pub(super) fn flop(input: Shape, output: Shape, window: &Window, groups: usize) -> u64 {
    2 * output.len() as u64 * (window.elements() * (input.c / groups.max(1))) as u64
}

pub(super) fn reference(
    inputs: &[&[f64]],
    from: Shape,
    (weights, biases): (&[f32], &[f32]),
    output: Shape,
    window: &Window,
    groups: usize,
) -> Vec<Vec<f64>> {
    let (group, outputs) = (from.c / groups, output.c / groups);
    let (taps, pixels) = (window.elements(), output.h * output.w);
    let begun = || {
        biases
            .iter()
            .flat_map(|&b| std::iter::repeat_n(f64::from(b), pixels))
            .collect::<Vec<f64>>()
    };
    let mut results: Vec<Vec<f64>> = inputs.iter().map(|_| begun()).collect();
    // In a depthwise convolution only one row of weights uses each channel. A matrix product
    // computes several rows at a time, so it would waste work. Each channel is computed alone
    // instead.
    if (group, outputs) == (1, 1) {
        for (input, result) in inputs.iter().zip(&mut results) {
            let planes = input
                .chunks_exact(from.h * from.w)
                .zip(result.chunks_exact_mut(pixels));
            for ((input, result), weights) in planes.zip(weights.chunks_exact(taps)) {
                plane((input, from), weights, (result, output), window);
            }
        }
        return results;
    }
    let plane = from.h * from.w;
    for g in 0..groups {
        let rows = g * outputs..(g + 1) * outputs;
        let panels = Panels::new(
            &weights[rows.start * taps * group..rows.end * taps * group],
            taps * group,
        );
        for (input, result) in inputs.iter().zip(&mut results) {
            let input = &input[g * group * plane..][..group * plane];
            let sums = &mut result[rows.start * pixels..rows.end * pixels];
            panels.add(pixels, sums, |columns, width, laid| {
                let mut lines = laid.chunks_exact_mut(width);
                for tap in 0..taps {
                    let at: Vec<Option<usize>> = columns
                        .clone()
                        .map(|p| window.pixel(from, (p / output.w, p % output.w), tap))
                        .collect();
                    for channel in input.chunks_exact(plane) {
                        let Some(line) = lines.next() else { return };
                        line.iter_mut()
                            .zip(&at)
                            .for_each(|(to, at)| *to = at.map_or(0.0, |at| channel[at]));
                    }
                }
            });
        }
    }
    results
}

/// Adds the products of one channel's pixels and weights to the channel's result. Only used for
/// depthwise convolutions.
fn plane(
    (input, from): (&[f64], Shape),
    weights: &[f32],
    (result, output): (&mut [f64], Shape),
    window: &Window,
) {
    let (rows, columns) = (window.rows(), window.columns());
    for (y, line) in result.chunks_exact_mut(output.w).enumerate() {
        for (tap, &w) in weights.iter().enumerate() {
            let (ky, kx) = (tap / columns.size, tap % columns.size);
            let Some(row) = rows.place(y, ky, from.h) else {
                continue;
            };
            let input = &input[row * from.w..][..from.w];
            // Column x of the result reads column x · stride + shift − left of the image, if that
            // column exists.
            let (shift, left, stride) = (kx * columns.dilation, columns.before, columns.stride);
            let first = left.saturating_sub(shift).div_ceil(stride);
            let end = (from.w + left)
                .saturating_sub(shift)
                .div_ceil(stride)
                .min(output.w);
            if first >= end {
                continue;
            }
            let (values, w) = (&input[first * stride + shift - left..], f64::from(w));
            if stride == 1 {
                line[first..end]
                    .iter_mut()
                    .zip(values)
                    .for_each(|(sum, x)| *sum += w * x);
            } else {
                let values = values.iter().step_by(stride);
                line[first..end]
                    .iter_mut()
                    .zip(values)
                    .for_each(|(sum, x)| *sum += w * x);
            }
        }
    }
}
