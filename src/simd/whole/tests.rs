//! Tests of the kernels for whole numbers against 64-bit integers, on each instruction set of this
//! CPU, and of the scalings that become part of layers.

use super::*;
use crate::ir::graph::Shape;
use crate::ir::op::Float;
use crate::ir::values::Values;
use crate::ir::view::{Geometry, Image, Moved, RowMap};
use crate::simd::dense::Weights;
use crate::simd::micro::Kernels;
use crate::simd::moves::Moves;
use crate::simd::steps::Finish;
use crate::simd::{Team, TeamSizes};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Returns a random whole number in a range.
fn draw(seed: &mut u32, from: Range<i32>) -> i32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    from.start + ((*seed >> 8) as usize % from.len()) as i32
}

/// The windows of a convolution.
#[derive(Clone, Copy, Debug)]
struct Windows {
    window: Window,
    channels: usize,
    /// The distance of two pixels of the image, in values.
    pixel: usize,
    width: usize,
    height: usize,
    /// The first line and column of windows, and the number of lines and columns.
    first: (usize, usize),
    count: (usize, usize),
}

impl Windows {
    /// Windows of one pixel: the records of an affine layer.
    fn records(records: usize, inputs: usize) -> Windows {
        Windows {
            window: Window::of((1, 1)),
            channels: inputs,
            pixel: inputs + 1,
            width: records,
            height: 1,
            first: (0, 0),
            count: (1, records),
        }
    }

    fn draw(seed: &mut u32) -> Windows {
        let mut pair = |from: Range<i32>| [0; 2].map(|_| draw(seed, from.clone()) as usize);
        let [size, stride, dilation] = [1..5, 1..4, 1..3].map(|r| pair(r).into());
        let [top, left] = pair(0..3);
        let [height, width] = pair(1..12);
        let [channels, more] = pair(1..25);
        let mut window = Window::of(size);
        (window.stride, window.dilation) = (stride, dilation);
        (window.border.top, window.border.left) = (top, left);
        Windows {
            window,
            channels,
            pixel: channels + if more > 12 { more } else { 0 },
            width,
            height,
            first: pair(0..3).into(),
            count: pair(1..8).into(),
        }
    }

    /// The value of column `k` of window `n` in the image `x`, or 0 in the border.
    fn value(&self, x: &[f32], n: usize, k: usize) -> f32 {
        let Window {
            size,
            stride,
            dilation,
            border,
            ..
        } = self.window;
        let (element, channel) = (k / self.channels, k % self.channels);
        let (down, along) = (element / size.1, element % size.1);
        let (line, column) = (n / self.count.1, n % self.count.1);
        let y = (self.first.0 + line) * stride.0 + down * dilation.0;
        let x_at = (self.first.1 + column) * stride.1 + along * dilation.1;
        let (y, x_at) = (y.wrapping_sub(border.top), x_at.wrapping_sub(border.left));
        match y < self.height && x_at < self.width {
            true => x[(y * self.width + x_at) * self.pixel + channel],
            false => 0.0,
        }
    }
}

/// A layer with random weights in panels of 16 rows.
struct Case {
    rows: usize,
    windows: Windows,
    values: Range<i32>,
    weights: Range<i32>,
}

impl Case {
    /// Computes the case with some kernels, and compares the results with those of 64-bit integers.
    /// Some records have a value that is no whole number in range.
    fn check(&self, kernels: &WholeKernels, mut seed: u32) {
        let &Case { rows, windows, .. } = self;
        let Windows {
            window, channels, ..
        } = windows;
        let inputs = window.size.0 * window.size.1 * channels;
        let records = windows.count.0 * windows.count.1;
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
            data: rows,
            rows,
            columns,
            inputs,
            activation: [Activation::None, Activation::Relu][draw(&mut seed, 0..2) as usize],
            rescale: None,
            addend: None,
            whole: None,
        };
        dense.whole = layer(&dense, &window, kernels, &self.values);
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
        let mut x: Vec<f32> = (0..windows.width * windows.height * windows.pixel)
            .map(|_| draw(&mut seed, self.values.clone()) as f32)
            .collect();
        // Values between pixels are not read. Those of some pixels are no whole numbers in range.
        let pixels = windows.width * windows.height;
        for (n, pixel) in x.chunks_exact_mut(windows.pixel).enumerate() {
            pixel[channels..].fill(f32::NAN);
            let wrong = [f32::NAN, f32::INFINITY, -1e30, 70_000.0];
            if draw(&mut seed, 0..pixels as i32 + 3) == 0 {
                pixel[n % channels] = wrong[n % 4];
            }
        }
        // Records without a gap may be stored together.
        let stride = rows + 7 * draw(&mut seed, 0..2) as usize;
        let mut result = vec![77.0; records * stride + 16];
        let result_of = (result.as_mut_ptr(), stride);
        let of_kernel = WholeWindows {
            x: x.as_ptr(),
            bytes: false,
            pixel: windows.pixel,
            line: windows.width * windows.pixel,
            channels,
            width: windows.width,
            height: windows.height,
            window,
            lines: windows.first.0..windows.first.0 + windows.count.0,
            columns: windows.first.1..windows.first.1 + windows.count.1,
        };
        let floats = Kernels::all().find(|k| 16 % k.lanes == 0).unwrap();
        // SAFETY: the sizes are right by construction, and the CPU can run these kernels.
        unsafe {
            let whole = dense.whole.as_ref().unwrap();
            dense.whole_product(&floats, whole, 0..rows, of_kernel.clone(), result_of, &[]);
        }
        for n in 0..records {
            let value = |k: usize| windows.value(&x, n, k);
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
            let end = match n + 1 == records {
                true => result.len(),
                false => (n + 1) * stride,
            };
            let behind = &result[n * stride + rows..end];
            assert!(behind.iter().all(|&v| v == 77.0), "behind record {n}");
        }
        if scaled {
            self.check_bytes(&mut dense, &x, (of_kernel, &result, stride));
        }
    }
}

impl Case {
    /// Computes the case again with results in bytes, and with an operand in bytes too. `result`
    /// has the right results, `stride` floats apart.
    fn check_bytes(
        &self,
        dense: &mut Dense,
        x: &[f32],
        (windows, result, stride): (WholeWindows, &[f32], usize),
    ) {
        const CANARY: u8 = 0xa5;
        let (rows, records) = (self.rows, self.windows.count.0 * self.windows.count.1);
        let Windows {
            channels, pixel, ..
        } = self.windows;
        let first = if dense.whole.as_ref().unwrap().kernels.signed {
            -128
        } else {
            0
        };
        let stored = Bytes {
            low: -128 - first,
            least: first,
            largest: first + 255,
        };
        let low = dense.whole.as_ref().unwrap().weights.low;
        // Pixels as far from each other as those of floats, or at a multiple of four bytes.
        for apart in [None, Some(pixel), Some(pixel.next_multiple_of(4))] {
            let whole = dense.whole.as_mut().unwrap();
            whole.bytes = Some(stored);
            whole.reads_bytes = apart.is_some();
            dense.check();
            let mut windows = windows.clone();
            let mut bytes = Vec::new();
            if let Some(apart) = apart {
                for pixel in x.chunks_exact(pixel) {
                    let values = pixel[..channels].iter().map(|v| (v - low) as i16 as u8);
                    bytes.extend(values.chain(std::iter::repeat_n(CANARY, apart - channels)));
                }
                windows.x = bytes.as_ptr().cast();
                windows.bytes = true;
                (windows.pixel, windows.line) = (apart, windows.width * apart);
            }
            let lost = [const { AtomicBool::new(false) }];
            let mut found = vec![CANARY; records * stride + 64];
            let floats = Kernels::all().find(|k| 16 % k.lanes == 0).unwrap();
            // SAFETY: the sizes are right by construction, and the CPU can run these kernels.
            unsafe {
                let whole = dense.whole.as_ref().unwrap();
                let result = (found.as_mut_ptr().cast(), stride);
                dense.whole_product(&floats, whole, 0..rows, windows, result, &lost);
            }
            let mut wrong = false;
            for (n, (found, right)) in (found.chunks(stride).zip(result.chunks(stride)))
                .take(records)
                .enumerate()
            {
                let what = format!("{:?} {rows} rows, {apart:?}: record {n}", self.windows);
                let (values, behind) = found.split_at(rows);
                assert!(behind.iter().all(|&b| b == CANARY), "{what}: behind");
                wrong |= right[0].is_nan();
                let same = |(&found, &right): (&u8, &f32)| {
                    right.is_nan() || (right as i16 - stored.low) as u8 == found
                };
                assert!(values.iter().zip(right).all(same), "{what}");
            }
            let behind = &found[records * stride..];
            assert!(behind.iter().all(|&b| b == CANARY), "behind all records");
            if apart.is_none() {
                assert_eq!(lost[0].load(Relaxed), wrong, "{:?}", self.windows);
            }
        }
    }
}

#[test]
fn products_of_whole_numbers_are_exact() {
    let mut seed = 1;
    for kernels in WholeKernels::all() {
        for turn in 0..600 {
            let windows = match turn % 3 {
                0 => {
                    let records = draw(&mut seed, 1..30) as usize;
                    Windows::records(records, draw(&mut seed, 1..400) as usize)
                }
                _ => Windows::draw(&mut seed),
            };
            let low = draw(&mut seed, -255..1);
            let case = Case {
                rows: 16 * draw(&mut seed, 1..11) as usize,
                windows,
                values: low..low + 256,
                weights: kernels.weights[0]..kernels.weights[1] + 1,
            };
            case.check(&kernels, turn);
        }
        // A window that fills the packed values, more windows than are computed at a time, and
        // lines that are computed in parts.
        let (large, wide) = (ROOM * kernels.group, Window::of((3, 3)));
        let image = |channels, width, count| Windows {
            window: wide,
            channels,
            pixel: channels,
            width,
            height: 9,
            first: (0, 0),
            count,
        };
        let windows = [
            Windows::records(1, large),
            Windows::records(3, large),
            Windows::records(1500, 1),
            image(5, 900, (7, 898)),
            image(700, 14, (7, 12)),
            image(16, 40, (7, 38)),
        ];
        for windows in windows {
            let case = Case {
                rows: 32,
                windows,
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
            data: 16,
            rows: 16,
            columns: inputs,
            inputs,
            activation: Activation::None,
            rescale: None,
            addend: None,
            whole: None,
        };
        let taken =
            |dense: Dense, values| layer(&dense, &Window::of((1, 1)), &kernels, &values).is_some();
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

/// The rule of a sum: both values times whole numbers of 21 binary digits, added up, divided by a
/// power of two, to the nearest, halves upwards.
struct SumRule {
    multipliers: [i64; 2],
    shift: i32,
}

impl SumRule {
    fn result(&self, x: f32, y: f32) -> f32 {
        if !x.is_finite() || !y.is_finite() {
            return f32::NAN;
        }
        let [a, b] = self.multipliers;
        let sum = x as i64 * a + y as i64 * b + (1 << (self.shift - 1));
        (sum >> self.shift).clamp(-128, 127) as f32
    }

    fn operation(&self) -> Arithmetic {
        let of = |m: i64| Float::new((m as f64 * libm::exp2((-self.shift).into())) as f32);
        let [a, b] = self.multipliers.map(of);
        Arithmetic::RoundedSum { a, b }
    }

    /// The steps of a sum of x, the rounded input, and of 3 − x, in order. The padding of the
    /// second operand's pixels has other rows than the result's if `apart`.
    fn steps(
        &self,
        (image, shape): (Image, Shape),
        clip: Activation,
        apart: bool,
    ) -> Vec<HostStep> {
        let count = shape.c * shape.w * shape.h;
        let second = match apart {
            true => Image::dense(shape, image.pixel + 8),
            false => image,
        };
        let limits = Activation::Clip {
            low: Float::new(-128.0),
            high: Float::new(127.0),
        };
        let scale = |from, to, [factor, summand]: [f32; 2]| {
            let moved = Moved {
                from: RowMap::of_all(count),
                to: RowMap::image(image, shape),
                filled: shape.w * shape.h * image.pixel,
            };
            HostStep {
                action: Action::Scale {
                    factors: vec![factor].into(),
                    biases: Some(vec![summand].into()),
                    moves: Moves::of_numbers([&moved, &moved]),
                    finish: Finish {
                        rounds: true,
                        activation: limits,
                    },
                },
                from,
                to,
            }
        };
        let copy = HostStep {
            action: Action::Gather {
                moves: Moves::of_rows(&Moved {
                    from: RowMap::image(image, shape),
                    to: RowMap::image(second, shape),
                    filled: shape.w * shape.h * second.pixel,
                }),
                value: 0.0,
            },
            from: Place::Hidden(1),
            to: Place::Hidden(2),
        };
        let geometry = Geometry {
            input: (second, shape),
            output: (image, shape),
            ..Geometry::default()
        };
        let [x, y, other] = [0, 1, 2].map(Place::Hidden);
        let sum = HostStep {
            action: Action::Combine {
                arithmetic: self.operation(),
                other,
                finish: Finish {
                    rounds: false,
                    activation: clip,
                },
                geometry,
            },
            from: x,
            to: Place::Scores,
        };
        vec![
            scale(Place::Input, x, [1.0, 0.0]),
            scale(x, y, [-1.0, 3.0]),
            copy,
            sum,
        ]
    }
}

/// Rounded sums get a step of their own if both operands are laid out alike and padding stays 0.
/// The others give the same numbers.
#[test]
fn sums_of_whole_numbers_are_exact() {
    let mut seed = 7;
    for turn in 0..60 {
        let mut few = |to: i32| draw(&mut seed, 1..to) as usize;
        let mut shape = Shape {
            c: few(40),
            h: few(9),
            w: few(30),
        };
        // Large enough that threads share a record.
        if turn % 20 == 0 {
            (shape.c, shape.h, shape.w) = (64, 24, 25);
        }
        let image = Image::dense(shape, shape.c.next_multiple_of(8));
        let apart = turn % 3 == 2;
        // The larger multiplier has 21 binary digits. Halves are frequent with small odd numbers.
        let mut multipliers = [1 << 20, 0].map(|least| match turn % 5 {
            0 => (least + (1 << 18)) * i64::from(draw(&mut seed, 1..3)),
            _ => i64::from(draw(&mut seed, least.max(1) as i32..1 << 21)),
        });
        if turn % 2 == 1 {
            multipliers = [multipliers[1], -multipliers[0]];
        }
        let shift = 13 + turn % 18;
        let rule = SumRule { multipliers, shift };
        let size = image.line * shape.h;
        let padded = shape.w * shape.h * (image.pixel + 8);
        let hidden = [size, size, padded];
        let rows = BufferRows {
            input: size,
            hidden: &hidden,
            scores: size,
        };
        let clip = |low: f32| Activation::Clip {
            low: Float::new(low),
            high: Float::new(127.0),
        };
        let made = |low, apart| {
            let mut prepared = rule.steps((image, shape), clip(low), apart);
            prepare(&mut prepared, rows, &Kernels::detect(16));
            matches!(prepared[3].action, Action::Sum { .. })
        };
        assert!(made(-128.0, false), "{shape:?}");
        assert!(!made(1.0, false) && !made(-128.0, true), "{shape:?}");
        let records = 1 + turn as usize % 3;
        let sizes = TeamSizes {
            rows,
            width: size,
            outputs: &[],
            arena: 0,
            batch: records,
            flop: 1 << 40,
        };
        let steps = rule.steps((image, shape), clip(-128.0), apart);
        let mut team = Team::new(steps, sizes, 1 + turn as usize % 3, false).unwrap();
        let mut x = vec![0.0f32; records * size];
        let wrong = draw(&mut seed, 0..(records * size) as i32) as usize;
        for (i, x) in x
            .iter_mut()
            .enumerate()
            .filter(|(i, _)| i % image.pixel < shape.c)
        {
            *x = draw(&mut seed, -128..128) as f32;
            if i == wrong {
                *x = [f32::NAN, f32::INFINITY][turn as usize % 2];
            }
        }
        let (stride, input) = team.input(0);
        for (n, record) in x.chunks_exact(size).enumerate() {
            input[n * stride..][..size].copy_from_slice(record);
        }
        team.submit(0, records);
        team.collect(0);
        let (stride, scores) = team.scores(0);
        for (i, &x) in x.iter().enumerate() {
            let found = scores[i / size * stride + i % size];
            let y = (3.0 - x).clamp(-128.0, 127.0);
            let y = if i % image.pixel < shape.c { y } else { 0.0 };
            let expected = rule.result(x, y);
            let same = found == expected || found.is_nan() && expected.is_nan();
            assert!(
                same,
                "{shape:?} {i}: {x} + {y}: {found}, expected {expected}"
            );
        }
    }
}
