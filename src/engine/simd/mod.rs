//! The host's micro-kernels: one affine layer for a few records, with the widest vectors the CPU has.
//!
//! Weights are in panels of P rows (`R_P_1_C`): for each k, P weights are neighbours. A micro-tile is one panel by up
//! to [`TILE`] records; its sums stay in registers, each sum adds its products in the order of k, so a record's scores
//! do not depend on the records beside it.
#![allow(unsafe_code)]

use crate::spec::network::Activation;

/// Records of a micro-tile.
pub const TILE: usize = 8;

/// One affine layer on a block of records.
pub struct Affine<'a> {
    /// Weights, `rows`/P panels of `inputs` × P.
    pub weights: &'a [f32],
    /// Biases, `rows`.
    pub biases: &'a [f32],
    /// Rows of a panel, a multiple of 4.
    pub panel: usize,
    /// Common dimension.
    pub inputs: usize,
    /// Applied to each sum.
    pub activation: Activation,
}

/// The micro-kernels for one instruction set.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// Name of the instruction set.
    pub name: &'static str,
    affine: fn(&Affine<'_>, Records<'_>, &mut [f32], usize),
}

/// Records, one after the other, `stride` apart.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    /// Values.
    pub data: &'a [f32],
    /// Distance between the first values of neighbours.
    pub stride: usize,
    /// Number of records.
    pub count: usize,
}

impl Kernels {
    /// The best for this CPU, asked at run time: the binary runs on every CPU of its architecture.
    pub fn detect() -> Kernels {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                // SAFETY: the CPU has what the function is compiled for.
                return Kernels { name: "avx512", affine: |a, x, r, s| unsafe { x86::avx512(a, x, r, s) } };
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: the CPU has what the function is compiled for.
                return Kernels { name: "avx2", affine: |a, x, r, s| unsafe { x86::avx2(a, x, r, s) } };
            }
        }
        Kernels::portable()
    }

    /// What every CPU of the architecture runs.
    pub fn portable() -> Kernels {
        if cfg!(target_arch = "aarch64") {
            // NEON with fused multiply-add is part of the architecture.
            Kernels { name: "neon", affine: affine::<true> }
        } else {
            Kernels { name: "portable", affine: affine::<false> }
        }
    }

    /// `result[n · result_stride + row] = activation(Σₖ W[row, k] · x[n, k] + b[row])` for every record n and every row
    /// (padding rows included).
    pub fn affine(&self, layer: &Affine<'_>, x: Records<'_>, result: &mut [f32], result_stride: usize) {
        (self.affine)(layer, x, result, result_stride);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Affine, Records, affine};

    /// SAFETY: the CPU has the features of the attribute.
    #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
    pub(super) unsafe fn avx512(layer: &Affine<'_>, x: Records<'_>, result: &mut [f32], stride: usize) {
        affine::<true>(layer, x, result, stride);
    }

    /// SAFETY: the CPU has the features of the attribute.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(layer: &Affine<'_>, x: Records<'_>, result: &mut [f32], stride: usize) {
        affine::<true>(layer, x, result, stride);
    }
}

/// Goes through the panels with the widest tile that divides them. Compiled once for each instruction set.
#[inline(always)]
fn affine<const FMA: bool>(layer: &Affine<'_>, x: Records<'_>, result: &mut [f32], stride: usize) {
    match layer.panel {
        p if p % 32 == 0 => panels::<FMA, 32>(layer, x, result, stride),
        p if p % 16 == 0 => panels::<FMA, 16>(layer, x, result, stride),
        p if p % 8 == 0 => panels::<FMA, 8>(layer, x, result, stride),
        _ => panels::<FMA, 4>(layer, x, result, stride),
    }
}

/// All panels, P rows of a panel at a time: P divides the panel.
#[inline(always)]
fn panels<const FMA: bool, const P: usize>(
    layer: &Affine<'_>,
    x: Records<'_>,
    result: &mut [f32],
    stride: usize,
) {
    let panel = layer.panel;
    for (index, weights) in layer.weights.chunks_exact(layer.inputs * panel).enumerate() {
        for part in (0..panel).step_by(P) {
            let row = index * panel + part;
            let mut biases = [0.0; P];
            biases.copy_from_slice(&layer.biases[row..row + P]);
            let strip = Strip { weights: &weights[part..], panel, biases };
            let mut n = 0;
            while n + TILE <= x.count {
                tile::<FMA, P, TILE>(&strip, layer, x, n, &mut result[row..], stride);
                n += TILE;
            }
            while n + 2 <= x.count {
                tile::<FMA, P, 2>(&strip, layer, x, n, &mut result[row..], stride);
                n += 2;
            }
            if n < x.count {
                tile::<FMA, P, 1>(&strip, layer, x, n, &mut result[row..], stride);
            }
        }
    }
}

/// P rows of a panel: row p at k is `weights[k · panel + p]`.
struct Strip<'a, const P: usize> {
    weights: &'a [f32],
    panel: usize,
    biases: [f32; P],
}

/// M records from record `n` on.
#[inline(always)]
fn tile<const FMA: bool, const P: usize, const M: usize>(
    strip: &Strip<'_, P>,
    layer: &Affine<'_>,
    x: Records<'_>,
    n: usize,
    result: &mut [f32],
    stride: usize,
) {
    let k = layer.inputs;
    let records: [&[f32]; M] = std::array::from_fn(|m| &x.data[(n + m) * x.stride..][..k]);
    let mut sums = [[0.0f32; P]; M];
    for (i, weights) in strip.weights.chunks(strip.panel).enumerate().take(k) {
        let weights: &[f32; P] = weights[..P].try_into().expect("a panel has P rows");
        for m in 0..M {
            let value = records[m][i];
            for p in 0..P {
                sums[m][p] =
                    if FMA { weights[p].mul_add(value, sums[m][p]) } else { sums[m][p] + weights[p] * value };
            }
        }
    }
    for (m, sums) in sums.iter_mut().enumerate() {
        sums.iter_mut().zip(&strip.biases).for_each(|(sum, bias)| *sum += bias);
        let out = &mut result[(n + m) * stride..][..P];
        out.copy_from_slice(sums);
        activate(layer.activation, out);
    }
}

/// Applies an activation in place. NaN stays NaN.
#[inline(always)]
pub fn activate(activation: Activation, values: &mut [f32]) {
    match activation {
        Activation::None => {}
        Activation::Sigmoid => values.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp())),
        Activation::Relu => values.iter_mut().for_each(|v| *v = if *v < 0.0 { 0.0 } else { *v }),
        Activation::Tanh => values.iter_mut().for_each(|v| *v = v.tanh()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::layout::Layout;

    /// Every panel, every count of records to 19, odd sizes: against float64, and independent of the records beside.
    #[test]
    fn affine_agrees_with_float64() {
        let mut seed = 1u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        for kernels in [Kernels::detect(), Kernels::portable()] {
            for (panel, outputs, inputs) in
                [(4, 10, 7), (8, 17, 33), (12, 25, 5), (16, 10, 64), (32, 31, 100), (48, 100, 3)]
            {
                let padded = usize::next_multiple_of(outputs, panel);
                let w: Vec<f32> = (0..outputs * inputs).map(|_| random()).collect();
                let layout = Layout::parse(&format!("R_{panel}_1_C")).unwrap();
                let packed = layout.pack(&w, (outputs, inputs), (padded, inputs), 0.0);
                let mut biases: Vec<f32> = (0..outputs).map(|_| random()).collect();
                biases.resize(padded, 0.0);
                let (x_stride, r_stride) = (inputs + 3, padded + 5);
                let x: Vec<f32> = (0..19 * x_stride).map(|_| random()).collect();
                let mut first: Vec<f32> = Vec::new();
                for count in 1..=19 {
                    for activation in
                        [Activation::None, Activation::Sigmoid, Activation::Relu, Activation::Tanh]
                    {
                        let layer = Affine { weights: &packed, biases: &biases, panel, inputs, activation };
                        let mut result = vec![f32::NAN; 19 * r_stride];
                        let records = Records { data: &x, stride: x_stride, count };
                        kernels.affine(&layer, records, &mut result, r_stride);
                        for n in 0..count {
                            for o in 0..outputs {
                                let sum: f64 = (0..inputs)
                                    .map(|k| f64::from(w[o * inputs + k]) * f64::from(x[n * x_stride + k]))
                                    .sum();
                                let expected = activation.apply(sum + f64::from(biases[o]));
                                let found = f64::from(result[n * r_stride + o]);
                                assert!((found - expected).abs() < 1e-5, "{} {panel} {count}", kernels.name);
                            }
                        }
                        for n in 0..19 {
                            let from = if n < count { padded } else { 0 };
                            assert!(
                                result[n * r_stride + from..(n + 1) * r_stride].iter().all(|v| v.is_nan())
                            );
                        }
                        if activation == Activation::None {
                            match first.is_empty() {
                                true => first = result[..padded].to_vec(),
                                false => assert_eq!(first, result[..padded], "record 0 depends on its batch"),
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn nan_stays_nan() {
        for a in [Activation::None, Activation::Sigmoid, Activation::Relu, Activation::Tanh] {
            let mut v = [f32::NAN];
            activate(a, &mut v);
            assert!(v[0].is_nan(), "{a:?}");
        }
    }
}
