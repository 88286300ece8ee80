//! Fourier transforms of signals whose sizes are known at build time. They become products with
//! constant matrices.

use super::node::{OnnxNode, live};
use super::tensor;
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Element};
use crate::bake::front::operations;
use crate::bake::front::value::{Live, inner_axis};
use crate::ir::op::Window;
use std::f64::consts::TAU;

/// Returns input `i`, which must be a constant of one integer. `None` if the input is left out.
fn integer(node: &OnnxNode<'_>, i: usize, what: &str) -> Result<Option<i64>, String> {
    let Some(c) = node.constant(i, what)? else {
        return Ok(None);
    };
    match c.integers()?[..] {
        [n] => Ok(Some(n)),
        _ => Err(format!("expected {what} of one number")),
    }
}

/// The most samples in a Fourier transform. The number of weights grows with the square of this
/// length.
const LONGEST: usize = 4096;

/// Returns the real and imaginary part of sample `i`'s factor for bin `k` in a Fourier transform of
/// `n` samples. Factors of an inverse transform are divided by `n`.
fn factor(k: usize, i: usize, n: usize, inverse: bool) -> [f64; 2] {
    // `k * i` is reduced modulo `n` first, because an angle of many turns loses digits.
    let angle = TAU * (k * i % n) as f64 / n as f64;
    match inverse {
        true => [angle.cos() / n as f64, angle.sin() / n as f64],
        false => [angle.cos(), -angle.sin()],
    }
}

/// `DFT`: the discrete Fourier transform along an axis. The last axis of `x` has the real and the
/// imaginary part.
pub(super) fn fourier(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let along = match integer(node, 2, "an axis")? {
        Some(axis) => axis,
        None => node.int("axis", if node.version < 20 { 1 } else { -2 }),
    };
    let a = inner_axis(along, x)?;
    let last = x.dims.len() - 1;
    let parts = x.dims[last];
    if a == last || parts > 2 || x.records.is_some_and(|r| r > a) {
        return Err(format!(
            "expected a last axis of real and imaginary part, found {}",
            x.shown()
        ));
    }
    let (inverse, half) = (node.int("inverse", 0) != 0, node.int("onesided", 0) != 0);
    let n = match integer(node, 1, "a length")? {
        Some(n) => usize::try_from(n).unwrap_or(0),
        None => x.dims[a],
    };
    if n == 0 || n > LONGEST || (inverse && half) {
        return Err(format!(
            "expected a length from 1 to {LONGEST}, not one-sided if it is inverse, found {n}"
        ));
    }
    let bins = if half { n / 2 + 1 } else { n };
    let samples = x.dims[a];
    // There is a row of weights for each part (real, imaginary) of each bin, and a column for each
    // part of each sample.
    let mut weights = Vec::with_capacity(2 * bins * samples * parts);
    for (k, imaginary) in (0..bins).flat_map(|k| [(k, false), (k, true)]) {
        for i in 0..samples {
            let [re, im] = match i < n {
                true => factor(k, i, n, inverse),
                false => [0.0, 0.0],
            };
            weights.push(if imaginary { im } else { re });
            if parts == 2 {
                weights.push(if imaginary { re } else { -im });
            }
        }
    }
    let others: Vec<usize> = (0..last).filter(|&i| i != a).collect();
    let there = [&others[..], &[a, last]].concat();
    let back: Vec<usize> = (0..=last)
        .map(|i| there.iter().position(|&t| t == i).unwrap_or(i))
        .collect();
    let turned = b.transpose(&node.name, x, &there)?;
    let ahead: Vec<usize> = others.iter().map(|&i| x.dims[i]).collect();
    let flat = turned.with_dims([&ahead[..], &[samples * parts]].concat());
    let y = operations::product(b, &node.name, &flat, weights, 2 * bins)?;
    let y = y.with_dims([&ahead[..], &[bins, 2]].concat());
    b.transpose(&node.name, &y, &back)
}

/// `STFT`: the Fourier transform of each frame of a real signal, computed as a convolution.
pub(super) fn short_time(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let step = integer(node, 1, "a step")?.and_then(|n| usize::try_from(n).ok());
    let window = node.constant(2, "a window")?;
    let stated = integer(node, 3, "a length of a frame")?.and_then(|n| usize::try_from(n).ok());
    let n = stated.or(window.as_ref().map(|w| w.len())).unwrap_or(0);
    let window = window.map_or_else(|| Ok(vec![1.0; n]), |w| w.numbers())?;
    let signal = x.per_record()?;
    let samples = match signal.dims[..] {
        [samples] | [samples, 1] => samples,
        _ => return Err(format!("expected a real signal, found {}", x.shown())),
    };
    let step = step
        .filter(|&s| s > 0 && s <= operations::MOST)
        .unwrap_or(0);
    if step == 0 || n == 0 || n > LONGEST.min(samples) || window.len() != n {
        return Err(format!(
            "expected a step above 0, frames of 1 to {} samples and as long a window, found \
             {step}, {n} and {}",
            LONGEST.min(samples),
            window.len()
        ));
    }
    let bins = match node.int("onesided", 1) {
        0 => n,
        _ => n / 2 + 1,
    };
    let rows = (0..bins).flat_map(|k| [(k, 0), (k, 1)]);
    let row = |(k, part): (usize, usize)| {
        let window = &window;
        (0..n).map(move |i| factor(k, i, n, false)[part] * window[i])
    };
    let weights: Vec<f64> = rows.flat_map(row).collect();
    let from = signal.with_dims(vec![1, samples]);
    let over = Window {
        stride: (1, step),
        ..Window::of((1, n))
    };
    let biases = vec![0.0; 2 * bins];
    let y = operations::convolution(b, &node.name, &from, weights, biases, over, 1)?;
    let frames = y.dims[1];
    let y = b.transpose(&node.name, &y, &[1, 0])?;
    Ok(y.with_dims(vec![frames, bins, 2]).like(x.records))
}

/// Builds `HannWindow`, `HammingWindow` or `BlackmanWindow`, a constant of `size` numbers.
pub(super) fn window(node: &OnnxNode<'_>, size: &ConstantTensor) -> Result<ConstantTensor, String> {
    let size = size.number()?;
    if !(1.0..=1048576.0).contains(&size) {
        return Err(format!("expected a size from 1 to 1048576, found {size}"));
    }
    let terms: &[f64] = match node.op() {
        "HannWindow" => &[0.5, -0.5],
        "HammingWindow" => &[25.0 / 46.0, -21.0 / 46.0],
        _ => &[0.42, -0.5, 0.08],
    };
    let period = match node.int("periodic", 1) {
        0 => size - 1.0,
        _ => size,
    };
    let number = |i: usize| {
        let angle = TAU * i as f64 / period.max(1.0);
        let parts = terms.iter().enumerate();
        parts
            .map(|(k, t)| t * (angle * k as f64).cos())
            .sum::<f64>()
    };
    let count = size as usize;
    let kind = match node.int("output_datatype", 1) {
        1 => Element::F32,
        code => tensor::element(code)
            .filter(|kind| kind.float())
            .ok_or("output_datatype: expected a type of floats")?,
    };
    let numbers = (0..count).map(number);
    Ok(ConstantTensor::rounded(kind, vec![count], numbers))
}
