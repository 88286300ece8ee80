//! Tests of the kernels for whole numbers against 64-bit integers, on each instruction set of this
//! CPU, and of the scalings that become part of layers.

use super::*;
use crate::ir::values::Values;
use crate::simd::dense::{Part, Weights};
use crate::simd::micro::{Kernels, Runs};
use std::borrow::Cow;

/// Returns a random whole number in a range.
fn draw(seed: &mut u32, from: Range<i32>) -> i32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    from.start + ((*seed >> 8) as usize % from.len()) as i32
}

/// How the values of a record stand in memory.
#[derive(Clone, Copy, Debug)]
enum Windows {
    Contiguous,
    /// Runs of this length. Runs of neighbouring records overlap by all but the second number of
    /// values, and the last run of each record is shared by all, like a border.
    Runs(usize, usize),
}

/// A layer with random weights in panels of 16 rows.
struct Case {
    rows: usize,
    inputs: usize,
    records: usize,
    windows: Windows,
    values: Range<i32>,
    weights: Range<i32>,
}

impl Case {
    /// Computes the case with some kernels, and compares the results with those of 64-bit integers.
    /// Some records have a value that is no whole number in range.
    fn check(&self, kernels: &WholeKernels, mut seed: u32) {
        let &Case {
            rows,
            inputs,
            records,
            ..
        } = self;
        let columns = inputs + 3;
        let weights: Vec<i32> = (0..rows * inputs)
            .map(|_| draw(&mut seed, self.weights.clone()))
            .collect();
        let biases: Vec<i32> = (0..rows)
            .map(|_| draw(&mut seed, -1 << 22..1 << 22))
            .collect();
        let mut panels = vec![f32::NAN; rows * columns];
        for (i, &w) in weights.iter().enumerate() {
            let (row, k) = (i / inputs, i % inputs);
            panels[row / 16 * 16 * columns + k * 16 + row % 16] = w as f32;
        }
        let mut dense = Dense {
            weights: Weights::new(Values::F32(Cow::Owned(panels))).unwrap(),
            biases: biases.iter().map(|&b| b as f32).collect(),
            scales: Vec::new(),
            panel: 16,
            columns,
            inputs,
            activation: [Activation::None, Activation::Relu][draw(&mut seed, 0..2) as usize],
            rescale: None,
            whole: None,
        };
        dense.whole = layer(&dense, kernels, &self.values);
        assert!(dense.whole.is_some(), "{} {rows}×{inputs}", kernels.name);
        let bounds = Bounds {
            least: -128.0,
            largest: 127.0,
        };
        let factors = (0..rows)
            .map(|_| draw(&mut seed, 1..500) as f32 / 1e6)
            .collect();
        let scaled = draw(&mut seed, 0..2) == 1;
        if scaled {
            dense.activation = Activation::None;
            dense.rescale = Some(Rescale {
                factors,
                summands: vec![0.25; rows],
                rounds: true,
                bounds,
            });
        }
        dense.check();
        // The address of each run: run r of record n is at `places[r * records + n]`.
        let (length, step) = match self.windows {
            Windows::Contiguous => (inputs, inputs + 1),
            Windows::Runs(length, step) => (length, step),
        };
        let runs = inputs / length;
        let line = records * step + length;
        let place = |r: usize, n: usize| match runs > 1 && r + 1 == runs {
            true => (runs - 1) * line,
            false => r * line + n * step,
        };
        let mut x: Vec<f32> = (0..runs * line + length)
            .map(|_| draw(&mut seed, self.values.clone()) as f32)
            .collect();
        // The first value of some records. With overlapping runs, others have it too.
        for (n, wrong) in [(1, f32::NAN), (5, f32::INFINITY), (8, -1e30), (9, 70_000.0)] {
            if n < records && draw(&mut seed, 0..2) == 1 {
                x[place(0, n)] = wrong;
            }
        }
        let table: Vec<*const f32> = (0..runs)
            .flat_map(|r| (0..records).map(move |n| (r, n)))
            .map(|(r, n)| x[place(r, n)..].as_ptr())
            .collect();
        let stride = rows + 7;
        let mut result = vec![77.0; records * stride + 16];
        let part = Part {
            rows: 0..rows,
            records,
            x: x.as_ptr(),
            x_stride: step,
            runs: match self.windows {
                Windows::Contiguous => None,
                Windows::Runs(..) => Some(Runs {
                    table: table.as_ptr(),
                    length,
                }),
            },
            result: result.as_mut_ptr(),
            result_stride: stride,
        };
        let floats = Kernels::all().find(|k| 16 % k.lanes == 0).unwrap();
        // SAFETY: the sizes are right by construction, and the CPU can run these kernels.
        unsafe { dense.product(&floats, part) };
        for n in 0..records {
            let value = |k: usize| x[place(k / length, n) + k % length];
            let wrong = (0..inputs).any(|k| !value(k).is_finite() || value(k).abs() > 256.0);
            for row in 0..rows {
                let products = (0..inputs)
                    .map(|k| i64::from(value(k) as i32) * i64::from(weights[row * inputs + k]));
                let sum = (i64::from(biases[row]) + products.sum::<i64>()) as f32;
                let expected = match &dense.rescale {
                    Some(r) => sum
                        .mul_add(r.factors[row], 0.25)
                        .round_ties_even()
                        .clamp(-128.0, 127.0),
                    None if dense.activation == Activation::Relu => sum.max(0.0),
                    None => sum,
                };
                let found = result[n * stride + row];
                let what = format!(
                    "{} {rows}×{inputs} {:?}: record {n}, row {row}: {found}, expected {expected}",
                    kernels.name, self.windows
                );
                assert!(
                    if wrong {
                        found.is_nan()
                    } else {
                        found == expected
                    },
                    "{what}"
                );
            }
            let behind = &result[n * stride + rows..][..stride - rows];
            assert!(
                behind.iter().all(|&v| v == 77.0),
                "written behind record {n}"
            );
        }
    }
}

#[test]
fn products_of_whole_numbers_are_exact() {
    let mut seed = 1;
    for kernels in WholeKernels::all() {
        for turn in 0..600 {
            let length = draw(&mut seed, 1..70) as usize;
            let runs = draw(&mut seed, 1..6) as usize;
            let (inputs, windows) = match turn % 3 {
                0 => (draw(&mut seed, 1..400) as usize, Windows::Contiguous),
                1 => (
                    runs * length,
                    Windows::Runs(length, draw(&mut seed, 1..90) as usize),
                ),
                _ => {
                    let step = 4 * draw(&mut seed, 1..20) as usize;
                    (runs * 4 * length, Windows::Runs(4 * length, step))
                }
            };
            let low = draw(&mut seed, -255..1);
            let case = Case {
                rows: 16 * draw(&mut seed, 1..11) as usize,
                inputs,
                records: draw(&mut seed, 1..30) as usize,
                windows,
                values: low..low + 256,
                weights: kernels.weights().start..kernels.weights().end,
            };
            case.check(&kernels, turn);
        }
        // A record that fills the packed values, and one record more than they have room for.
        for records in [1, 3] {
            let case = Case {
                rows: 32,
                inputs: ROOM * kernels.group,
                records,
                windows: Windows::Contiguous,
                values: -128..128,
                weights: -7..8,
            };
            case.check(&kernels, 3);
        }
    }
}

#[test]
fn layers_of_other_numbers_have_no_whole_kernels() {
    for kernels in WholeKernels::all() {
        let dense = |weight: f32, bias: f32, inputs: usize| Dense {
            weights: Weights::new(Values::F32(vec![weight; 16 * inputs].into())).unwrap(),
            biases: vec![bias; 16].into(),
            scales: Vec::new(),
            panel: 16,
            columns: inputs,
            inputs,
            activation: Activation::None,
            rescale: None,
            whole: None,
        };
        let taken = |dense: Dense, values| layer(&dense, &kernels, &values).is_some();
        assert!(taken(dense(127.0, 3.0, 9), -128..128));
        assert!(!taken(dense(0.5, 3.0, 9), -128..128), "a fraction");
        assert!(!taken(dense(300.0, 3.0, 9), -128..128), "a large weight");
        assert!(
            !taken(dense(1.0, 0.5, 9), -128..128),
            "a bias that is no whole number"
        );
        assert!(!taken(dense(1.0, 1e12, 9), -128..128), "a large bias");
        assert!(!taken(dense(1.0, 0.0, 9), -300..300), "large values");
        let inputs = (ROOM + 1) * kernels.group;
        assert!(
            !taken(dense(1.0, 0.0, inputs), -128..128),
            "more than the room for a record"
        );
    }
}
