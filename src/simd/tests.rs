//! Tests of the micro-kernels against float64, on each instruction set of this CPU. Also tests the
//! team of threads with different numbers of threads and records.

use super::buffers::{Operands, Scratch};
use super::images;
use super::micro::winograd::{Pixels, Steps, Transforms};
use super::micro::{Added, Affine, Bounds, Byte, Half, Kernels, Runs, Subproblem};
use super::moves::Moves;
use super::product;
use super::steps::Finish;
use super::windows;
use super::*;
use crate::ir::graph::Shape;
use crate::ir::half;
use crate::ir::layout::Layout;
use crate::ir::network::Activation;
use crate::ir::op::{Arithmetic, Border, Float, Math, Window};
use crate::ir::plan::{NAN_CLASS, SLOTS};
use crate::ir::product::{Product, Strides};
use crate::ir::scale;
use crate::ir::taps::{Tap, Taps};
use crate::ir::values::Values;
use crate::ir::view::{Geometry, Image, Moved, RowMap};
use crate::planner::tiles::{self, TileSize};
use proptest::prelude::*;
use std::borrow::Cow;

fn activations() -> impl Iterator<Item = Activation> {
    std::iter::once(Activation::None).chain(Activation::BEHIND_LAYERS)
}

/// Returns a random number from −0.5 to 0.5.
fn random(seed: &mut u32) -> f32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*seed >> 8) as f32 / (1 << 24) as f32 - 0.5
}

/// An affine layer with random weights in panels, and records for it. The padding of the common
/// dimension is NaN, so that reading it shows.
struct Case {
    panel: usize,
    inputs: usize,
    columns: usize,
    plain: Vec<f32>,
    weights: Vec<f32>,
    biases: Vec<f32>,
    x: Vec<f32>,
    x_stride: usize,
    /// The weights in half precision, if they were rounded to it.
    halves: Option<Vec<Half>>,
    /// The weights as bytes, with a quantization scale for each row, if they were rounded to bytes.
    bytes: Option<(Vec<Byte>, Vec<f32>)>,
    /// The length of the runs into which each record's values are scattered in memory, and how
    /// these are found.
    run: Option<(usize, Found)>,
    /// The values that are added to the sums, and the number of rows that have one. The values of
    /// two records are `result_stride` apart.
    added: Option<(Vec<f32>, usize)>,
}

/// How a kernel finds the runs of records: by the address of each, by the address of each record's
/// first, or by the distance of two records.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    Each,
    First,
    Distance,
}

impl Case {
    fn new(panel: usize, outputs: usize, inputs: usize, records: usize, mut seed: u32) -> Case {
        let padded = outputs.next_multiple_of(panel);
        let plain: Vec<f32> = (0..outputs * inputs).map(|_| random(&mut seed)).collect();
        let columns = inputs + 2;
        let layout = Layout::parse(&format!("R_{panel}_1_C")).unwrap();
        // Padding rows are zero. Padding columns are NaN, so that a kernel that reads them fails
        // the test.
        let mut rows = vec![f32::NAN; padded * columns];
        for (o, row) in rows.chunks_exact_mut(columns).enumerate() {
            row[..inputs].fill(0.0);
            if o < outputs {
                row[..inputs].copy_from_slice(&plain[o * inputs..][..inputs]);
            }
        }
        let weights = layout.pack(&rows, (padded, columns), (padded, columns), 0.0);
        let mut biases: Vec<f32> = (0..outputs).map(|_| random(&mut seed)).collect();
        biases.resize(padded, 0.0);
        let x_stride = inputs + 3;
        let x = (0..records * x_stride).map(|_| random(&mut seed)).collect();
        Case {
            panel,
            inputs,
            columns,
            plain,
            weights,
            biases,
            x,
            x_stride,
            halves: None,
            bytes: None,
            run: None,
            added: None,
        }
    }

    /// Rounds the weights to half precision, and also stores them as halves.
    fn halved(mut self) -> Case {
        let round = |w: &mut f32| *w = half::to_f32(half::from_f32(*w));
        self.plain.iter_mut().for_each(round);
        // The NaN in the padding columns becomes 1, because kernels expect finite halves.
        self.weights
            .iter_mut()
            .filter(|w| w.is_nan())
            .for_each(|w| *w = 1.0);
        self.weights.iter_mut().for_each(round);
        self.halves = Some(
            self.weights
                .iter()
                .map(|&w| Half(half::from_f32(w)))
                .collect(),
        );
        self
    }

    /// Rounds the weights to bytes, and also stores them as bytes with scales.
    fn in_bytes(mut self) -> Case {
        let alike = vec![1.0; self.inputs];
        self.plain
            .chunks_exact_mut(self.inputs)
            .for_each(|row| scale::round(row, &alike));
        let (padded, rows) = (self.biases.len(), self.plain.chunks_exact(self.inputs));
        let mut scales: Vec<f32> = rows.clone().map(scale::of_row).collect();
        let mut numbers = vec![1; padded * self.columns];
        for ((to, row), &scale) in numbers
            .chunks_exact_mut(self.columns)
            .zip(rows)
            .zip(&scales)
        {
            to.iter_mut()
                .zip(row)
                .for_each(|(n, &w)| *n = scale::number(w, scale));
        }
        scales.resize(padded, 0.0);
        let size = (padded, self.columns);
        let packed = Layout::panels(self.panel).pack(&numbers, size, size, 0);
        self.bytes = Some((packed.into_iter().map(Byte).collect(), scales));
        self
    }

    /// Computes the rows `rows` of the layer, for `records` records from `first` on. The result is
    /// NaN at first, and has unused rows after each record.
    fn run(
        &self,
        kernels: &Kernels,
        activation: Activation,
        rows: std::ops::Range<usize>,
        (first, records): (usize, usize),
    ) -> Vec<f32> {
        assert!(rows.end <= self.biases.len() && self.panel % kernels.lanes == 0);
        assert!(self.x.len() >= (first + records - 1) * self.x_stride + self.inputs);
        let stride = self.result_stride();
        let mut result = vec![f32::NAN; records * stride];
        // The runs are scattered in memory in another order, with NaN between them.
        let (length, by) = self.run.unwrap_or((self.inputs, Found::Each));
        let runs = self.inputs / length;
        let mut scattered = vec![f32::NAN; records * runs * (length + 1)];
        let place = |n: usize, r: usize| {
            let at = match by {
                Found::Each => records * runs - 1 - (r + n * runs),
                Found::First => (records - 1 - n) * runs + r,
                Found::Distance => n * runs + r,
            };
            at * (length + 1)
        };
        for (n, r) in (0..records).flat_map(|n| (0..runs).map(move |r| (n, r))) {
            let values = &self.x[(first + n) * self.x_stride + r * length..][..length];
            scattered[place(n, r)..][..length].copy_from_slice(values);
        }
        let table: Vec<*const f32> = (0..runs * records)
            .map(|i| scattered[place(i % records, i / records)..].as_ptr())
            .collect();
        let added = self.added.as_ref().map(|(values, rows)| Added {
            values: values[first * stride..].as_ptr(),
            stride,
            rows: *rows,
        });
        macro_rules! compute {
            ($kernel:expr, $weights:expr) => {{
                let layer = Affine {
                    weights: $weights,
                    biases: &self.biases,
                    scales: self.bytes.as_ref().map_or(&[], |(_, scales)| scales),
                    panel: self.panel,
                    columns: self.columns,
                    inputs: self.inputs,
                    activation,
                };
                layer.check();
                let (x, x_stride) = match by {
                    Found::Distance => (scattered.as_ptr(), runs * (length + 1)),
                    _ => (self.x[first * self.x_stride..].as_ptr(), self.x_stride),
                };
                let sub = Subproblem {
                    layer: &layer,
                    rows,
                    records,
                    x,
                    x_stride,
                    runs: self.run.map(|(length, by)| Runs {
                        table: match by {
                            Found::Distance => std::ptr::null(),
                            Found::Each | Found::First => table.as_ptr(),
                        },
                        apart: if by == Found::Each { 0 } else { length + 1 },
                        length,
                    }),
                    result: result.as_mut_ptr(),
                    result_stride: stride,
                    added,
                };
                // SAFETY: the sizes are right by construction, and `Kernels::all` returns only
                // kernels that the CPU can run.
                unsafe {
                    $kernel(&sub);
                    kernels.complete(&sub);
                }
            }};
        }
        match (&self.halves, &self.bytes) {
            (Some(halves), _) => compute!((kernels.affine_of_halves.unwrap()), halves),
            (None, Some((bytes, _))) => compute!((kernels.affine_of_bytes.unwrap()), bytes),
            (None, None) => compute!((kernels.affine), &self.weights),
        }
        result
    }

    fn result_stride(&self) -> usize {
        self.biases.len() + 5
    }

    /// Returns element `o` of record `n` in float64, and the error bound for a sum of `inputs`
    /// products.
    fn expected(&self, activation: Activation, n: usize, o: usize) -> (f64, f64) {
        let products = (0..self.inputs).map(|k| {
            f64::from(self.plain[o * self.inputs + k]) * f64::from(self.x[n * self.x_stride + k])
        });
        let (sum, size) = products.fold((0.0, 0.0), |(s, a), p| (s + p, a + p.abs()));
        let bound = (2 * self.inputs + 2) as f64 * 2f64.powi(-24) * (size + 1.0) + 3e-7;
        (activation.apply(sum + f64::from(self.biases[o])), bound)
    }
}

/// Covers all panels, 1 to 19 records and odd sizes. The kernels write nothing else. A record's
/// results are the same to the bit, whatever the other records and the split of the rows.
#[test]
fn affine_agrees_with_float64() {
    for kernels in Kernels::all() {
        for (panel, outputs, inputs) in [
            (4, 10, 7),
            (8, 17, 33),
            (12, 25, 5),
            (16, 10, 64),
            (16, 65, 67),
            (16, 127, 1),
            (32, 31, 100),
            (48, 100, 3),
        ] {
            if panel % kernels.lanes != 0 {
                continue;
            }
            let case = || Case::new(panel, outputs, inputs, 19, 1);
            for case in [case(), case().halved(), case().in_bytes()] {
                let (padded, stride) = (case.biases.len(), case.result_stride());
                for activation in activations() {
                    let whole = case.run(&kernels, activation, 0..padded, (0, 19));
                    for n in 0..19 {
                        for o in 0..outputs {
                            let (expected, bound) = case.expected(activation, n, o);
                            let found = f64::from(whole[n * stride + o]);
                            assert!(
                                (found - expected).abs() < bound,
                                "{} {panel} {n} {o}",
                                kernels.name
                            );
                        }
                        assert!(whole[n * stride..][..padded].iter().all(|v| !v.is_nan()));
                        assert!(
                            whole[n * stride + padded..(n + 1) * stride]
                                .iter()
                                .all(|v| v.is_nan())
                        );
                    }
                    for count in 1..19 {
                        let first = count % 4;
                        let some = case.run(
                            &kernels,
                            activation,
                            0..padded,
                            (first, count.min(19 - first)),
                        );
                        for (n, record) in some.chunks_exact(stride).enumerate() {
                            assert_eq!(
                                record[..padded],
                                whole[(first + n) * stride..][..padded],
                                "{} {panel} {count} {activation:?}: depends on its batch",
                                kernels.name
                            );
                        }
                    }
                    for cut in (0..padded).step_by(kernels.lanes) {
                        let lower = case.run(&kernels, activation, 0..cut, (0, 19));
                        let upper = case.run(&kernels, activation, cut..padded, (0, 19));
                        for n in 0..19 {
                            let (l, u, w) = (
                                &lower[n * stride..],
                                &upper[n * stride..],
                                &whole[n * stride..],
                            );
                            assert_eq!((&l[..cut], &u[cut..padded]), (&w[..cut], &w[cut..padded]));
                            assert!(l[cut..padded].iter().chain(&u[..cut]).all(|v| v.is_nan()));
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_size_agrees_with_float64(
        panel in 1..5usize,
        outputs in 1..200usize,
        inputs in 1..300usize,
        records in 1..40usize,
        activation in 0..activations().count(),
        seed: u32,
    ) {
        for kernels in Kernels::all() {
            let case = Case::new(panel * kernels.lanes, outputs, inputs, records, seed);
            let activation = activations().nth(activation).unwrap();
            let result = case.run(&kernels, activation, 0..case.biases.len(), (0, records));
            for n in 0..records {
                for o in 0..outputs {
                    let (expected, bound) = case.expected(activation, n, o);
                    let found = f64::from(result[n * case.result_stride() + o]);
                    prop_assert!(
                        (found - expected).abs() < bound,
                        "{}: {found} {expected}", kernels.name
                    );
                }
            }
        }
    }
}

#[test]
fn runs_give_what_one_piece_gives() {
    for kernels in Kernels::all() {
        for (outputs, length, runs) in [
            (10, 1, 1),
            (16, 1, 9),
            (17, 3, 3),
            (33, 16, 2),
            (48, 5, 7),
            (65, 9, 3),
            (130, 37, 3),
        ] {
            for records in 1..19 {
                let case = || Case::new(16, outputs, length * runs, records, 7);
                for mut case in [case(), case().halved(), case().in_bytes()] {
                    let rows = 0..case.biases.len();
                    let whole = case.run(&kernels, Activation::Relu, rows.clone(), (0, records));
                    for by in [Found::Each, Found::First, Found::Distance] {
                        case.run = Some((length, by));
                        let found =
                            case.run(&kernels, Activation::Relu, rows.clone(), (0, records));
                        let what = format!(
                            "{} {outputs} {runs} of {length} by {by:?}, {records}",
                            kernels.name
                        );
                        for record in (0..records).map(|n| n * case.result_stride()) {
                            let rows = record..record + rows.end;
                            assert_eq!(found[rows.clone()], whole[rows], "{what}");
                        }
                    }
                }
            }
        }
    }
}

/// If a batch exceeds the cache, it is computed in blocks of the common dimension. Each record's
/// results equal, to the bit, those of the record alone.
#[test]
fn blocks_give_what_one_piece_gives() {
    const RECORDS: usize = 66;
    for kernels in Kernels::all() {
        let case = || Case::new(48, 90, 4001, RECORDS, 3);
        for case in [case(), case().halved(), case().in_bytes()] {
            let (rows, stride) = (case.biases.len(), case.result_stride());
            let all = case.run(&kernels, Activation::Relu, 0..rows, (0, RECORDS));
            for n in [0, 7, 40, RECORDS - 1] {
                let one = case.run(&kernels, Activation::Relu, 0..rows, (n, 1));
                assert_eq!(
                    all[n * stride..][..rows],
                    one[..rows],
                    "{}, record {n}",
                    kernels.name
                );
            }
        }
    }
}

/// A value that is added to the sums gives, to the bit, what a sum of its own gives, in whole
/// layers and in blocks of the common dimension. Rows behind the last one with a value get 0. The
/// memory behind it is NaN and must not be read.
#[test]
fn values_are_added_before_the_activation() {
    for kernels in Kernels::all().filter(|k| k.adds) {
        for (outputs, inputs, records) in [(10, 7, 1), (40, 1, 7), (90, 33, 19), (90, 4001, 66)] {
            let case = || Case::new(48, outputs, inputs, records, 3);
            let stored = |n: usize| match n {
                0 => case(),
                1 => case().halved(),
                _ => case().in_bytes(),
            };
            for (stored, few) in (0..3).flat_map(|n| [(stored(n), false), (stored(n), true)]) {
                let mut case = stored;
                let (rows, stride) = (case.biases.len(), case.result_stride());
                let sums = case.run(&kernels, Activation::None, 0..rows, (0, records));
                let count = if few { 16 } else { rows };
                let mut values = vec![f32::NAN; records * stride];
                let mut seed = 77;
                for record in values.chunks_exact_mut(stride) {
                    record[..count].fill_with(|| 3.0 * random(&mut seed));
                }
                let numbers = values.clone();
                let of = |n: usize, o: usize| match o < count {
                    true => numbers[n * stride + o],
                    false => 0.0,
                };
                case.added = Some((values, count));
                let what = format!("{} {outputs} {inputs} {records} {count}", kernels.name);
                for activation in activations() {
                    let found = case.run(&kernels, activation, 0..rows, (0, records));
                    let mut expected = sums.clone();
                    for (n, record) in expected.chunks_exact_mut(stride).enumerate() {
                        for (o, sum) in record[..rows].iter_mut().enumerate() {
                            *sum += of(n, o);
                        }
                        let to = record.as_mut_ptr();
                        // SAFETY: the rows are whole vectors of the CPU.
                        unsafe { (kernels.activate)(activation, to, rows) };
                    }
                    for n in 0..records {
                        let record = n * stride..n * stride + rows;
                        let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                        assert_eq!(
                            bits(&found[record.clone()]),
                            bits(&expected[record]),
                            "{what}: {activation:?}"
                        );
                        assert!(found[n * stride + rows..][..5].iter().all(|v| v.is_nan()));
                    }
                }
            }
        }
    }
}

/// NaN in an added value stays, and infinities become NaN.
#[test]
fn added_values_that_are_not_finite_stay_visible() {
    for kernels in Kernels::all().filter(|k| k.adds) {
        let mut case = Case::new(16, 32, 5, 3, 9);
        let (rows, stride) = (case.biases.len(), case.result_stride());
        for lost in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for activation in activations() {
                let mut values = vec![0.5; 3 * stride];
                values[stride + 17] = lost;
                case.added = Some((values, rows));
                let found = case.run(&kernels, activation, 0..rows, (0, 3));
                for (i, v) in found.iter().enumerate().filter(|(i, _)| i % stride < rows) {
                    let what = format!("{} {activation:?} {lost} {i}", kernels.name);
                    assert_eq!(v.is_nan(), i == stride + 17, "{what}");
                }
            }
        }
    }
}

/// An image surrounded by NaN, and weights for the windows of a convolution or depthwise step.
struct Windowed {
    geometry: Geometry,
    /// The image's values, with NaN before, after and between its lines.
    image: Vec<f32>,
    outputs: usize,
    /// The weights: for each output by (ky, kx, c), or in a depthwise step (ky, kx) by channel.
    weights: Vec<f32>,
    biases: Vec<f32>,
}

impl Windowed {
    /// Draws sizes from `random`. Returns `None` if the window does not fit the image. `outputs` 0
    /// means a depthwise step.
    fn new(random: &mut dyn FnMut(usize) -> usize, outputs: usize) -> Option<Windowed> {
        // Some lines and columns are long enough for several micro-tiles and patches.
        let most = |random: &mut dyn FnMut(usize) -> usize| [14, 14, 90][random(3)];
        let (highest, widest) = (most(random), most(random));
        let from = Shape {
            c: [1, 2, 3, 5, 16, 19, 80][random(7)],
            h: 1 + random(highest),
            w: 1 + random(widest),
        };
        let size @ (rows, columns) = (1 + random(4), 1 + random(5));
        let mut border = || Border {
            top: random(rows.max(2)),
            left: random(columns + 1),
            bottom: random(rows),
            right: random(columns + 1),
        };
        let border = border();
        let (stride, dilation) = (
            (1 + random(3), 1 + random(3)),
            (1 + random(2), 1 + random(2)),
        );
        Windowed::of(
            from,
            Window {
                size,
                stride,
                dilation,
                border,
                ceil: false,
            },
            random,
            (outputs, 16),
        )
    }

    /// Makes an image of shape `from` with these windows. Pixels of the result consist of whole
    /// vectors of `lanes` channels. In a depthwise step, so do the image's pixels.
    fn of(
        from: Shape,
        window: Window,
        random: &mut dyn FnMut(usize) -> usize,
        (outputs, lanes): (usize, usize),
    ) -> Option<Windowed> {
        let (h, w) = window.output(from).ok()?;
        let alone = outputs == 0;
        let to = Shape {
            c: if alone { from.c } else { outputs },
            h,
            w,
        };
        let pixel = if alone {
            from.c.next_multiple_of(lanes)
        } else {
            from.c + [0, 0, 3][random(3)]
        };
        let input = Image {
            first: random(5),
            pixel,
            line: from.w * pixel + [0, 7][random(2)],
        };
        let output = Image::dense(to, to.c.next_multiple_of(lanes));
        let groups = if alone { from.c } else { 1 };
        let mut seed = random(1 << 16) as u32;
        let mut image = vec![f32::NAN; images::end(input, Shape { c: pixel, ..from }) + 16];
        for (y, x, c) in
            (0..from.h).flat_map(|y| (0..from.w * from.c).map(move |i| (y, i / from.c, i % from.c)))
        {
            image[input.first + y * input.line + x * input.pixel + c] = self::random(&mut seed);
        }
        let (rows, columns) = window.size;
        let taps = rows * columns;
        let count = if alone {
            taps * output.pixel
        } else {
            to.c * taps * from.c
        };
        let weights = (0..count).map(|_| self::random(&mut seed)).collect();
        let mut biases = vec![0.0; output.pixel];
        biases[..to.c].fill_with(|| self::random(&mut seed));
        let geometry = Geometry {
            input: (input, from),
            output: (output, to),
            window,
            groups,
        };
        Some(Windowed {
            geometry,
            image,
            outputs,
            weights,
            biases,
        })
    }

    /// Returns the terms of channel `o` of a result pixel, as pairs of a value and its weight. Also
    /// returns the number of window elements inside the image and its border.
    fn terms(&self, o: usize, (y, x): (usize, usize)) -> (Vec<(f64, f64)>, usize) {
        let ((image, from), window) = (self.geometry.input, &self.geometry.window);
        let ((rows, columns), border) = (window.size, window.border);
        let ((stride_y, stride_x), (dilation_y, dilation_x)) = (window.stride, window.dilation);
        let (mut terms, mut bordered) = (Vec::new(), 0);
        for (ky, kx) in (0..rows).flat_map(|ky| (0..columns).map(move |kx| (ky, kx))) {
            let iy = y * stride_y + ky * dilation_y;
            let ix = x * stride_x + kx * dilation_x;
            let (height, width) = (
                border.top + from.h + border.bottom,
                border.left + from.w + border.right,
            );
            bordered += usize::from(iy < height && ix < width);
            let (iy, ix) = (iy.wrapping_sub(border.top), ix.wrapping_sub(border.left));
            if iy >= from.h || ix >= from.w {
                continue;
            }
            let tap = ky * columns + kx;
            let pixel = image.first + iy * image.line + ix * image.pixel;
            let mut push = |c: usize, weight: usize| {
                terms.push((
                    f64::from(self.image[pixel + c]),
                    f64::from(self.weights[weight]),
                ))
            };
            match self.outputs {
                0 => push(o, tap * self.biases.len() + o),
                _ => (0..from.c).for_each(|c| push(c, (o * rows * columns + tap) * from.c + c)),
            }
        }
        (terms, bordered)
    }

    /// Compares all results with `expected`, and the padding channels with 0.
    fn compare(&self, found: &[f32], what: &str, expected: impl Fn(usize, (usize, usize)) -> f64) {
        let (output, to) = self.geometry.output;
        for (y, x) in (0..to.h).flat_map(|y| (0..to.w).map(move |x| (y, x))) {
            for c in 0..output.pixel {
                let found = f64::from(found[y * output.line + x * output.pixel + c]);
                let expected = if c < to.c { expected(c, (y, x)) } else { 0.0 };
                let near = found == expected || (found - expected).abs() < 1e-4;
                assert!(
                    near,
                    "{what}: {:?}: {y}, {x}, {c}: {found}, not {expected}",
                    self.geometry
                );
            }
        }
    }
}

/// Returns a generator of random integers that are below its argument.
fn below(seed: u32) -> impl FnMut(usize) -> usize {
    let mut seed = seed;
    move |n| {
        random(&mut seed);
        (seed >> 8) as usize % n
    }
}

/// Computes convolutions of random sizes, each in three parts of its pixels. They must not touch
/// more scratch memory than `scratch` returns.
#[test]
fn convolutions_agree_with_float64() {
    for (seed, kernels) in (0..400).flat_map(|seed| Kernels::all().map(move |k| (seed, k))) {
        let mut draw = below(seed * 977 + 5);
        let outputs = 1 + draw(40);
        let Some(case) = Windowed::new(&mut draw, outputs) else {
            continue;
        };
        let (geometry, (output, to)) = (&case.geometry, case.geometry.output);
        let inputs = case.weights.len() / outputs;
        let layout = Layout::parse("R_16_1_C").unwrap();
        let weights = layout.pack(
            &case.weights,
            (outputs, inputs),
            (output.pixel, inputs),
            0.0,
        );
        let layer = Affine {
            weights: &weights,
            biases: &case.biases,
            scales: &[],
            panel: 16,
            columns: inputs,
            inputs,
            activation: Activation::None,
        };
        layer.check();
        let mut result = vec![f32::NAN; to.h * to.w * output.pixel];
        let zeros = vec![0.0f32; windows::runs(geometry).length];
        let tile = kernels.tile_records;
        let room = windows::scratch(geometry, tile);
        // The table of addresses in the scratch memory needs an alignment of 8 bytes.
        let mut scratch = vec![0u64; room / 2 + 9];
        let canary = 0xfedc_ba98_7654_3210;
        scratch[room.div_ceil(2)..].fill(canary);
        let product = |pixels: windows::Pixels, windows: windows::Windows, result: *mut f32| {
            let sub = Subproblem {
                layer: &layer,
                rows: 0..output.pixel,
                records: pixels.count,
                x: windows.x,
                x_stride: windows.x_stride,
                runs: windows.runs,
                result,
                result_stride: pixels.apart * output.pixel,
                added: None,
            };
            // SAFETY: the sizes are right by construction, and `Kernels::all` returns only kernels
            // that the CPU can run.
            unsafe { (kernels.affine)(&sub) };
        };
        let pixels = to.h * to.w;
        let mut cuts = [draw(pixels + 1), draw(pixels + 1)];
        cuts.sort();
        for part in [0..cuts[0], cuts[0]..cuts[1], cuts[1]..pixels] {
            let mut some = vec![f32::NAN; result.len()];
            let operands = Operands::of(&case.image, &mut some);
            let scratch = Scratch {
                zeros: zeros.as_ptr(),
                room: scratch.as_mut_ptr().cast(),
            };
            // SAFETY: as above.
            unsafe { windows::convolve(geometry, tile, part.clone(), operands, scratch, &product) };
            let values = part.start * output.pixel..part.end * output.pixel;
            result[values.clone()].copy_from_slice(&some[values.clone()]);
            // Other threads write the other pixels.
            some[values].fill(f32::NAN);
            assert!(some.iter().all(|v| v.is_nan()), "{geometry:?}: {part:?}");
        }
        assert!(
            scratch[room.div_ceil(2)..].iter().all(|&v| v == canary),
            "{geometry:?}"
        );
        assert!(zeros.iter().all(|&v| v == 0.0));
        case.compare(&result, kernels.name, |o, at| {
            let (terms, _) = case.terms(o, at);
            let sum: f64 = terms.iter().map(|(value, weight)| value * weight).sum();
            sum + f64::from(case.biases[o])
        });
    }
}

/// Returns each instruction set of this CPU with each size of tiles that it has.
fn all_transforms() -> impl Iterator<Item = (Kernels, &'static Transforms)> {
    Kernels::all().flat_map(|k| k.transforms.iter().map(move |t| (k, t)))
}

/// Computes a convolution by Winograd tiles in two parts, the first with `cut` tiles. Panics if it
/// touches more scratch memory than `tiles_scratch` returns.
fn convolved_by_tiles(
    (kernels, transforms): (&Kernels, &Transforms),
    case: &Windowed,
    activation: Activation,
    cut: usize,
) -> Vec<f32> {
    let (geometry, (output, to)) = (&case.geometry, case.geometry.output);
    let (size, channels) = (transforms.size, geometry.input.1.c);
    let outputs = case.weights.len() / (9 * channels);
    let rows = size.elements() * outputs;
    let (layout, taps) = (Layout::parse("R_16_1_C").unwrap(), (outputs, 9 * channels));
    let packed = layout.pack(&case.weights, taps, taps, 0.0);
    let mut weights = vec![f32::NAN; rows * channels];
    let places = (&*packed, &mut *weights);
    // SAFETY: the CPU can run these kernels, and their lanes divide the panel of 16 rows. The
    // weights and the result have the sizes that are passed.
    unsafe {
        images::weights_of_tiles(transforms, places, (outputs, channels), (16, 9 * channels))
    };
    let biases = images::biases_of_tiles(size, &case.biases[..outputs]);
    let layer = Affine {
        weights: &weights,
        biases: &biases,
        scales: &[],
        panel: 16,
        columns: channels,
        inputs: channels,
        activation: Activation::None,
    };
    layer.check();
    let mut result = vec![f32::NAN; to.h * to.w * output.pixel];
    let room = images::tiles_scratch(geometry, size, outputs, kernels.tile_records);
    let mut scratch = vec![f32::NAN; room + 16];
    let canary = 123.456;
    scratch[room..].fill(canary);
    for part in [0..cut, cut..size.count(geometry)] {
        let layer = images::TileLayer {
            kernels,
            transforms,
            layer: &layer,
            activation,
        };
        let operands = Operands::of(&case.image, &mut result);
        let room = scratch.as_mut_ptr();
        // SAFETY: the sizes are right by construction, and the CPU can run these kernels.
        unsafe { images::convolve_tiles(&layer, geometry, part, operands, room) };
    }
    assert!(scratch[room..].iter().all(|&v| v == canary), "{geometry:?}");
    result
}

/// Returns a random 3 × 3 convolution that tiles can compute, or `None` if the window does not fit
/// the image. The image has up to 13 × 13 pixels and a border.
fn tileable(draw: &mut impl FnMut(usize) -> usize) -> Option<Windowed> {
    let (channels, outputs) = (16 * (1 + draw(4)), 16 * (1 + draw(4)));
    let from = Shape {
        c: channels,
        h: 1 + draw(13),
        w: 1 + draw(13),
    };
    let border = Border {
        top: draw(4),
        left: draw(4),
        bottom: draw(4),
        right: draw(4),
    };
    let window = Window {
        border,
        ..Window::of((3, 3))
    };
    Windowed::of(from, window, draw, (outputs, 16))
}

/// Computes convolutions of random sizes and borders by Winograd tiles, each in two parts.
#[test]
fn convolutions_by_tiles_agree_with_float64() {
    let clip = activations()
        .find(|a| matches!(a, Activation::Clip { .. }))
        .unwrap();
    for (seed, which) in (0..300).flat_map(|seed| all_transforms().map(move |k| (seed, k))) {
        let mut draw = below(seed * 769 + 11);
        let Some(case) = tileable(&mut draw) else {
            continue;
        };
        let (kernels, transforms) = (&which.0, which.1);
        let activation = [
            Activation::None,
            Activation::Relu,
            clip,
            Activation::Sigmoid,
        ][draw(4)];
        let cut = draw(transforms.size.count(&case.geometry) + 1);
        let result = convolved_by_tiles((kernels, transforms), &case, activation, cut);
        let what = format!("{} {:?}", kernels.name, transforms.size);
        case.compare(&result, &what, |o, at| {
            let (terms, _) = case.terms(o, at);
            let sum: f64 = terms.iter().map(|(value, weight)| value * weight).sum();
            activation.apply(sum + f64::from(case.biases[o]))
        });
    }
}

/// A value that is not finite, or so large that sums overflow, is visible as NaN in each pixel that
/// it contributes to. ReLU does not hide it.
#[test]
fn tiles_show_numbers_that_are_not_finite() {
    let mut shown = 0;
    for (seed, which) in (0..100).flat_map(|seed| all_transforms().map(move |k| (seed, k))) {
        let mut draw = below(seed * 331 + 5);
        let Some(mut case) = tileable(&mut draw) else {
            continue;
        };
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX][draw(4)];
        // Weights of this size make the sum of the largest number overflow in each result channel.
        if special == f32::MAX {
            case.weights
                .iter_mut()
                .for_each(|w| *w += 2.0f32.copysign(*w));
        }
        let (image, from) = case.geometry.input;
        let at =
            image.first + draw(from.h) * image.line + draw(from.w) * image.pixel + draw(from.c);
        case.image[at] = special;
        let (kernels, transforms) = (&which.0, which.1);
        let result = convolved_by_tiles((kernels, transforms), &case, Activation::Relu, 0);
        let (output, to) = case.geometry.output;
        for (y, x) in (0..to.h).flat_map(|y| (0..to.w).map(move |x| (y, x))) {
            for o in 0..to.c {
                let (terms, _) = case.terms(o, (y, x));
                let special = terms
                    .iter()
                    .any(|(value, _)| !value.is_finite() || *value > 1e38);
                if special {
                    let found = result[y * output.line + x * output.pixel + o];
                    let what = format!("{} {:?}", kernels.name, transforms.size);
                    assert!(found.is_nan(), "{what}: {y}, {x}, {o}: {found}");
                    shown += 1;
                }
            }
        }
    }
    assert!(shown > 1000 || all_transforms().next().is_none());
}

/// Transforms of single ones give the largest growth of values and sums. The bound of inputs that
/// cause no overflow rests on these numbers.
#[test]
fn sums_of_tiles_grow_as_stated() {
    for (kernels, transforms) in all_transforms() {
        let (side, pixels) = (transforms.size.side(), transforms.size.pixels());
        let (elements, lanes) = (transforms.size.elements(), kernels.lanes);
        let ones = |count: usize, at: usize| {
            let mut values = vec![0.0f32; count * lanes];
            values[at * lanes..][..lanes].fill(1.0);
            values
        };
        // The sum of |coefficients| of each element in the transform of the image, and the largest
        // one in that of the filter.
        let (mut sums, mut largest) = (vec![0.0f64; elements], vec![0.0f64; elements]);
        let mut found = vec![0.0f32; elements * lanes];
        for at in 0..elements {
            let values = ones(elements, at);
            let steps = Steps {
                line: side * lanes,
                pixel: lanes,
            };
            let to = found.as_mut_ptr();
            // SAFETY: the sizes are right, and the CPU can run these kernels.
            unsafe { (transforms.spread)(values.as_ptr(), steps, lanes, to, lanes) };
            (0..elements).for_each(|e| sums[e] += f64::from(found[e * lanes].abs()));
        }
        for at in 0..9 {
            let values = ones(9, at);
            let to = found.as_mut_ptr();
            // SAFETY: as above.
            unsafe { (transforms.filters)(values.as_ptr(), lanes, to, lanes, lanes) };
            let each = |e: usize| f64::from(found[e * lanes].abs());
            (0..elements).for_each(|e| largest[e] = largest[e].max(each(e)));
        }
        let mut growth = vec![0.0f64; pixels * pixels];
        for e in 0..elements {
            let (values, mut result) = (ones(elements, e), vec![0.0f32; pixels * pixels * lanes]);
            let place = Pixels {
                first: result.as_mut_ptr(),
                steps: Steps {
                    line: pixels * lanes,
                    pixel: lanes,
                },
                lines: pixels,
                columns: pixels,
            };
            // SAFETY: as above.
            unsafe { (transforms.gather)(values.as_ptr(), lanes, lanes, place, Bounds::NONE) };
            for (pixel, growth) in growth.iter_mut().enumerate() {
                *growth += f64::from(result[pixel * lanes].abs()) * sums[e] * largest[e];
            }
        }
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let (value, sum) = (most(&sums), most(&growth) * 1.03);
        let what = format!("{} {:?}: {value} {sum}", kernels.name, transforms.size);
        assert!(
            value <= tiles::VALUE_GROWTH && sum <= tiles::SUM_GROWTH,
            "{what}"
        );
        if transforms.size == TileSize::Four {
            let near = value > 0.99 * tiles::VALUE_GROWTH && sum > 0.99 * tiles::SUM_GROWTH;
            assert!(near, "{what}");
        }
    }
}

/// The errors of tiles, relative to the root of the mean square of the results. The bounds are
/// about 2.3 times the errors in `docs/measured/accuracy.md`. With the points 0, ±1, ±2 and
/// infinity, F(4×4, 3×3) exceeds its bounds.
#[test]
fn tiles_have_small_errors() {
    for (channels, two, four) in [
        (64, 2.5e-6, 1.2e-5),
        (256, 5e-6, 2.2e-5),
        (512, 8e-6, 3.2e-5),
    ] {
        for (kernels, transforms) in all_transforms() {
            let mut draw = below(channels as u32);
            let window = Window {
                border: Border {
                    top: 1,
                    left: 1,
                    bottom: 1,
                    right: 1,
                },
                ..Window::of((3, 3))
            };
            let from = Shape {
                c: channels,
                h: 16,
                w: 16,
            };
            let case = Windowed::of(from, window, &mut draw, (16, 16)).unwrap();
            let which = (&kernels, transforms);
            let result = convolved_by_tiles(which, &case, Activation::None, 0);
            let (output, to) = case.geometry.output;
            let (mut squares, mut errors, mut largest) = (0.0, 0.0, 0.0f64);
            for (y, x) in (0..to.h).flat_map(|y| (0..to.w).map(move |x| (y, x))) {
                for o in 0..to.c {
                    let (terms, _) = case.terms(o, (y, x));
                    let sum: f64 = terms.iter().map(|(value, weight)| value * weight).sum();
                    let sum = sum + f64::from(case.biases[o]);
                    let found = result[y * output.line + x * output.pixel + o];
                    let error = f64::from(found) - sum;
                    squares += sum * sum;
                    errors += error * error;
                    largest = largest.max(error.abs());
                }
            }
            let unit = (squares / (to.h * to.w * to.c) as f64).sqrt();
            let (rms, largest) = ((errors / squares).sqrt(), largest / unit);
            let what = format!("{} {:?} {channels}", kernels.name, transforms.size);
            println!("{what}: rms {rms:.2e}, largest {largest:.2e}");
            let bound = match transforms.size {
                TileSize::Two => two,
                TileSize::Four => four,
            };
            assert!(
                largest < bound,
                "{what}: rms {rms:.2e}, largest {largest:.2e}"
            );
        }
    }
}

/// Computes depthwise steps of random sizes. NaN in the padding channels of the image must not
/// change a result.
#[test]
fn windows_agree_with_float64() {
    use WindowOp::{Max, Mean, PaddedMean, Products};
    let clip = activations()
        .find(|a| matches!(a, Activation::Clip { .. }))
        .unwrap();
    for (seed, kernels) in (0..400).flat_map(|seed| Kernels::all().map(move |k| (seed, k))) {
        let mut draw = below(seed * 613 + 7);
        let Some(case) = Windowed::new(&mut draw, 0) else {
            continue;
        };
        let (geometry, (output, to)) = (&case.geometry, case.geometry.output);
        let activation = [
            Activation::None,
            Activation::Relu,
            clip,
            Activation::Sigmoid,
        ][draw(4)];
        let pads = draw(2) == 1;
        for op in [Products, Max, Mean, PaddedMean] {
            let mut result = vec![f32::NAN; to.h * to.w * output.pixel];
            let cut = draw(to.h + 1);
            for lines in [0..cut, cut..to.h] {
                let arrays = (case.weights.as_ptr(), case.biases.as_ptr());
                let operands = Operands::of(&case.image, &mut result);
                // SAFETY: the sizes are right by construction, and the CPU can run these kernels.
                unsafe {
                    let finish = (activation, None, pads);
                    images::windows(&kernels, op, arrays, geometry, finish, lines, operands)
                };
            }
            // Padding channels are zero if they are set and the activation of zero is zero. Else
            // the test clears them.
            if !pads || activation.apply(0.0) != 0.0 {
                let pixels = result.chunks_exact_mut(output.pixel);
                pixels.for_each(|p| p[to.c..].fill(0.0));
            }
            // For a window with no element inside the image, the mean is NaN and the maximum −∞.
            let empty = |at| matches!(case.terms(0, at), (terms, _) if terms.is_empty());
            let pixels = (0..to.h).flat_map(|y| (0..to.w).map(move |x| (y, x)));
            if op != Products && pixels.clone().any(empty) {
                continue;
            }
            case.compare(
                &result,
                &format!("{} {op:?} {activation:?}", kernels.name),
                |c, at| {
                    let (terms, bordered) = case.terms(c, at);
                    let values = terms.iter().map(|&(value, _)| value);
                    let sum: f64 = values.clone().sum();
                    activation.apply(match op {
                        Max => values.fold(f64::NEG_INFINITY, f64::max),
                        Mean => sum / terms.len() as f64,
                        PaddedMean => sum / bordered as f64,
                        Products => {
                            let products = terms.iter().map(|(value, weight)| value * weight);
                            products.sum::<f64>() + f64::from(case.biases[c])
                        }
                    })
                },
            );
        }
    }
}

/// A window's sum adds its products by rows, then by columns, on every instruction set. A mean adds
/// up the sums of its rows. So no result depends on how many pixels or lines are computed together.
/// Overflows, infinities and NaN in a window must give NaN. The widths cover lines that share
/// weights along the line, and narrow images that share them across lines.
#[test]
fn windows_add_in_order() {
    use WindowOp::{Max, Mean, PaddedMean, Products};
    let clip = activations()
        .find(|a| matches!(a, Activation::Clip { .. }))
        .unwrap();
    for (seed, kernels) in (0..240).flat_map(|seed| Kernels::all().map(move |k| (seed, k))) {
        let mut draw = below(seed * 431 + 3);
        let from = Shape {
            c: 1 + draw(40),
            h: 1 + draw(16),
            w: [1 + draw(8), 8 + draw(14)][draw(2)],
        };
        let size @ (rows, columns) = [(3, 3), (5, 5), (1 + draw(4), 1 + draw(6))][draw(3)];
        let window = Window {
            size,
            stride: [(1, 1), (2, 2), (1 + draw(3), 1 + draw(3))][draw(3)],
            dilation: [(1, 1), (1, 1), (1 + draw(2), 1 + draw(2))][draw(3)],
            border: Border {
                top: draw(rows.min(2)),
                left: draw(columns.min(3)),
                bottom: draw(rows.min(3)),
                right: draw(columns.min(2)),
            },
            ceil: false,
        };
        let lanes = kernels.lanes.max(8);
        let Some(mut case) = Windowed::of(from, window, &mut draw, (0, lanes)) else {
            continue;
        };
        let (geometry, (input, _)) = (case.geometry, case.geometry.input);
        let (output, to) = geometry.output;
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38] {
            let (y, x, c) = (draw(from.h), draw(from.w), draw(from.c));
            case.image[input.first + y * input.line + x * input.pixel + c] = special;
        }
        let activation = [Activation::None, Activation::Relu, clip][draw(3)];
        let plain =
            kernels.name == "portable" || cfg!(target_arch = "arm") && kernels.name == "neon";
        let (fused, pads) = (!plain, draw(2) == 1);
        let operations = [Products, Max, Mean, PaddedMean];
        let mut results = operations.map(|_| vec![-7.0f32; to.h * to.w * output.pixel]);
        let cut = draw(to.h + 1);
        for (op, result) in operations.into_iter().zip(&mut results) {
            for lines in [0..cut, cut..to.h] {
                let arrays = (case.weights.as_ptr(), case.biases.as_ptr());
                let operands = Operands::of(&case.image, result);
                // SAFETY: the sizes are right by construction, and the CPU can run these kernels.
                unsafe {
                    images::windows(
                        &kernels,
                        op,
                        arrays,
                        &geometry,
                        (activation, None, pads),
                        lines,
                        operands,
                    )
                };
            }
        }
        for (y, x) in (0..to.h).flat_map(|y| (0..to.w).map(move |x| (y, x))) {
            let at = y * output.line + x * output.pixel;
            let column = |k: &usize| x * window.stride.1 + k * window.dilation.1;
            let is_inside = |k: &usize| column(k).wrapping_sub(window.border.left) < from.w;
            let inside = (0..columns).filter(is_inside).count();
            // Vectors of padding are zeros, or are not touched.
            let (first, padding) = match pads {
                true => (to.c, 0.0),
                false => (to.c.next_multiple_of(kernels.lanes), -7.0),
            };
            for result in &results {
                let mut padded = result[at..][..output.pixel].iter().skip(first);
                assert!(padded.all(|&v| v == padding));
            }
            for c in 0..to.c {
                let (terms, bordered) = case.terms(c, (y, x));
                let terms = || terms.iter().map(|&(v, w)| (v as f32, w as f32));
                let values: Vec<f32> = terms().map(|(v, _)| v).collect();
                let lines = values
                    .chunks(inside.max(1))
                    .map(|line| line.iter().sum::<f32>());
                let sum = lines.fold(0.0f32, |sum, line| sum + line);
                for (op, result) in operations.into_iter().zip(&results) {
                    let value = match op {
                        Products => terms().fold(case.biases[c], |sum, (v, w)| match fused {
                            true => v.mul_add(w, sum),
                            false => sum + v * w,
                        }),
                        Max if terms().any(|(v, _)| !v.is_finite()) => f32::NAN,
                        Max => terms().fold(f32::NEG_INFINITY, |most, (v, _)| most.max(v)),
                        Mean => sum * (1.0 / terms().len() as f32),
                        PaddedMean => sum * (1.0 / bordered as f32),
                    };
                    let found = result[at + c];
                    let right = match value.is_finite() {
                        true => f64::from(found) == activation.apply(f64::from(value)),
                        false => found.is_nan(),
                    };
                    let name = kernels.name;
                    assert!(
                        right,
                        "{name} {op:?} {activation:?} {geometry:?}: {y}, {x}, {c}: {found}, {value}"
                    );
                }
            }
        }
    }
}

/// Element-wise operations on vectors give the results of single floats, also in place.
#[test]
fn values_are_combined_one_by_one() {
    for kernels in Kernels::all() {
        let sum = Arithmetic::RoundedSum {
            a: Float::new(0.75),
            b: Float::new(-1.0 / 1024.0),
        };
        let all = Arithmetic::ALL.into_iter().chain([sum]);
        for (count, arithmetic) in (0..12).flat_map(|n| all.clone().map(move |a| (n, a))) {
            let (count, mut seed) = (count * kernels.lanes, 5);
            let mut a: Vec<f32> = (0..count + 1).map(|_| random(&mut seed)).collect();
            let mut b: Vec<f32> = (0..count + 1).map(|_| random(&mut seed) + 0.75).collect();
            let mut specials = &[f32::NAN, f32::INFINITY, f32::MAX, f32::MIN][..];
            if arithmetic.rounds() {
                let values = a.iter_mut().chain(&mut b);
                values.for_each(|x| *x = (*x * 128.0).round());
                specials = &specials[..1];
            }
            let last = count.saturating_sub(specials.len());
            a[last..count].copy_from_slice(&specials[..count - last]);
            let expected: Vec<f32> = (a.iter().zip(&b))
                .map(|(a, b)| match arithmetic {
                    Arithmetic::Add => a + b,
                    Arithmetic::Subtract => a - b,
                    Arithmetic::Multiply => a * b,
                    Arithmetic::Divide => a / b,
                    Arithmetic::Maximum => a.max(*b) + 0.0 * a + 0.0 * b,
                    Arithmetic::Minimum => a.min(*b) + 0.0 * a + 0.0 * b,
                    Arithmetic::RoundedSum { .. } => {
                        arithmetic.apply((*a).into(), (*b).into()) as f32
                    }
                })
                .collect();
            let rest = a[count];
            let x = a.as_mut_ptr();
            // SAFETY: whole vectors, and the CPU can run these kernels.
            unsafe { (kernels.combine)(arithmetic, x, b.as_ptr(), x, count) };
            let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
            let what = format!("{} {arithmetic:?} {count}", kernels.name);
            assert!(a.iter().zip(&expected[..count]).all(same), "{what}");
            assert_eq!(a[count], rest, "{what}");
        }
    }
}

/// Resampled pixels are sums over taps, to the bit in this order. A single tap of weight 1 copies
/// any number, and padding becomes 0. Lines outside the range are not written.
#[test]
fn pixels_are_resampled_by_their_taps() {
    let tap = |position, weight| Tap { position, weight };
    let taps = Taps {
        rows: vec![vec![tap(2, 1.0)], vec![tap(0, 0.5), tap(1, -2.0)], vec![]],
        columns: vec![vec![tap(1, 1.0)], vec![tap(0, 0.25), tap(1, 3.0)]],
    };
    for channels in [1, 15, 16, 37] {
        let shape = |h| Shape {
            c: channels,
            h,
            w: 2,
        };
        let image = |first, pixel| Image {
            first,
            pixel,
            line: 2 * pixel,
        };
        let (from, to) = (image(3, channels + 1), image(2, channels + 5));
        let geometry = Geometry {
            input: (from, shape(3)),
            output: (to, shape(3)),
            window: Window::of((2, 2)),
            groups: 1,
        };
        let (mut seed, line) = (channels as u32, to.line);
        let mut x: Vec<f32> = (0..3 + 3 * from.line).map(|_| random(&mut seed)).collect();
        x[from.first + 2 * from.line + from.pixel] = f32::NEG_INFINITY;
        let mut found = vec![7.0; 2 + 3 * line];
        let operands = Operands {
            x: x.as_ptr(),
            result: found.as_mut_ptr(),
        };
        // SAFETY: both images are inside their vectors.
        unsafe { images::resample(&taps, &geometry, 1..3, operands) };
        assert!(found[..2 + line].iter().all(|&v| v == 7.0));
        // SAFETY: as before.
        unsafe { images::resample(&taps, &geometry, 0..1, operands) };
        for (y, column) in (0..3).flat_map(|y| (0..2).map(move |column| (y, column))) {
            let pixel = &found[2 + y * line + column * to.pixel..][..to.pixel];
            assert!(pixel[channels..].iter().all(|&v| v == 0.0));
            for (c, &v) in pixel[..channels].iter().enumerate() {
                let mut sum = 0.0;
                for (row, along) in taps.rows[y]
                    .iter()
                    .flat_map(|row| taps.columns[column].iter().map(move |along| (row, along)))
                {
                    let at = from.first + row.position * from.line + along.position * from.pixel;
                    sum += row.weight * along.weight * x[at + c];
                }
                assert_eq!(v, sum, "{channels} channels: {y}, {column}, {c}");
            }
        }
    }
}

/// Returns one of the two products in attention between `tokens` tokens: of queries and keys if
/// `scores`, else of shares and values. In memory, the heads of a token are side by side, and so
/// are its queries, keys and values.
fn of_heads(heads: usize, tokens: usize, size: usize, scores: bool) -> Product {
    let all = heads * size;
    let parts = |first, token| Strides {
        first,
        steps: [size, token, 1],
    };
    let (queries, mut other) = (parts(0, 3 * all), parts(all, 3 * all));
    let rows = Strides {
        first: 0,
        steps: [tokens, heads * tokens, 1],
    };
    if scores {
        other.steps.swap(1, 2);
    }
    Product {
        groups: heads,
        rows: tokens,
        columns: if scores { tokens } else { size },
        terms: if scores { size } else { tokens },
        a: if scores { queries } else { rows },
        b: other,
    }
}

/// The operands of a product, its result, and the scratch memory for computing it.
struct ProductCase {
    product: Product,
    a: Vec<f32>,
    b: Vec<f32>,
    room: Vec<f32>,
    zeros: Vec<f32>,
    result: Vec<f32>,
    rows: usize,
}

impl ProductCase {
    fn new(product: Product, lanes: usize) -> ProductCase {
        let mut seed = product.rows as u32;
        let mut numbers = |n| (0..n).map(|_| random(&mut seed)).collect();
        let [first, second] = product.ends();
        let rows = product.len() + 5;
        ProductCase {
            product,
            a: numbers(first),
            b: numbers(second),
            // Neither the packed group nor the rows behind it begin at an aligned address.
            room: vec![f32::NAN; product::scratch(&product, lanes)],
            zeros: vec![0.0; product::padded_columns(&product, lanes)],
            result: vec![7.0; rows + 16],
            rows,
        }
    }

    fn run(&mut self, kernels: &Kernels, units: std::ops::Range<usize>) {
        let operands = Operands::of(&self.a, &mut self.result);
        let scratch = Scratch {
            zeros: self.zeros.as_ptr(),
            room: self.room.as_mut_ptr(),
        };
        let both = (operands, self.b.as_ptr());
        // SAFETY: the vectors have the sizes that the product names.
        unsafe { product::compute(kernels, &self.product, units, both, scratch, self.rows) };
    }

    fn expected(&self, g: usize, i: usize, j: usize) -> f64 {
        let Product { a, b, terms, .. } = &self.product;
        let term = |k| {
            let (x, y) = (self.a[a.row([g, i, k])], self.b[b.row([g, k, j])]);
            f64::from(x) * f64::from(y)
        };
        (0..*terms).map(term).sum()
    }
}

/// Products of two values agree with float64 for various strides and sizes, computed in two parts.
#[test]
fn products_of_values_agree_with_float64() {
    let plain = |of: [usize; 3], first| Strides {
        first,
        steps: [of[1] * of[2], of[2], 1],
    };
    let sizes = [
        [1, 1, 1, 1],
        [3, 2, 5, 7],
        [2, 49, 3, 16],
        [1, 97, 17, 33],
        [2, 5, 64, 31],
    ];
    let of_sizes = sizes.map(|[groups, rows, terms, columns]| Product {
        groups,
        rows,
        columns,
        terms,
        a: plain([groups, rows, terms], 3),
        b: plain([groups, terms, columns], 2),
    });
    let turned = of_sizes.map(|mut product| {
        let Product { rows, terms, .. } = product;
        product.a.steps = [rows * terms, 1, rows];
        product
    });
    let heads = [true, false].map(|scores| of_heads(3, 50, 20, scores));
    for kernels in Kernels::all() {
        for product in of_sizes.into_iter().chain(turned).chain(heads) {
            let mut case = ProductCase::new(product, kernels.lanes);
            let units = product::units(&product);
            case.run(&kernels, 1..units);
            case.run(&kernels, 0..1);
            let rows = case.rows;
            assert!(case.result[product.len()..rows].iter().all(|&x| x == 0.0));
            assert!(case.result[rows..].iter().all(|&x| x == 7.0));
            let map = product.result();
            for (n, row) in map.rows().enumerate() {
                let (rest, j) = (n / product.columns, n % product.columns);
                let (g, i) = (rest / product.rows, rest % product.rows);
                let (found, expected) = (case.result[row], case.expected(g, i, j));
                let bound = 1e-6 * product.terms as f64;
                let near = (f64::from(found) - expected).abs() <= bound;
                assert!(near, "{}: {product:?}: {found} {expected}", kernels.name);
            }
        }
    }
}

/// The transforms of F(2×2, 3×3) give the results of single floats, and write nothing else. The C
/// version for 32-bit ARM passes this test too. A value that is not finite makes all pixels NaN
/// that it contributes to.
#[test]
fn transforms_add_in_order() {
    let spread = |x: [f32; 4]| [x[0] - x[2], x[1] + x[2], x[2] - x[1], x[1] - x[3]];
    let gather = |m: [f32; 4]| [m[0] + m[1] + m[2], m[1] - m[2] - m[3]];
    let filter = |g: [f32; 3]| {
        let ends = (g[0] + g[2]) * 0.5;
        [g[0], ends + g[1] * 0.5, ends - g[1] * 0.5, g[2]]
    };
    let able = || all_transforms().filter(|(_, t)| t.size == TileSize::Two);
    for (seed, (kernels, transforms)) in (0..48).flat_map(|seed| able().map(move |k| (seed, k))) {
        let mut draw = below(seed * 37 + 1);
        let mut seed = seed;
        let channels = kernels.lanes * (1 + draw(4));
        let (pixel, apart) = (channels + draw(3), channels + draw(5));
        let line = 4 * pixel + draw(9);
        // Sums of random numbers would be exact. Sums of their products are rounded.
        let mut value = || random(&mut seed) * random(&mut seed);
        let mut values: Vec<f32> = (0..16 * line).map(|_| value()).collect();
        let mut found = vec![123.0f32; 16 * apart];
        let steps = Steps { line, pixel };
        // SAFETY: the sizes are right by construction, and the CPU can run these kernels.
        unsafe { (transforms.spread)(values.as_ptr(), steps, channels, found.as_mut_ptr(), apart) };
        for c in 0..apart {
            let d = [0, 1, 2, 3]
                .map(|j| spread([0, 1, 2, 3].map(|i| values[i * line + j * pixel + c])));
            for i in 0..4 {
                let expected = spread([0, 1, 2, 3].map(|j| d[j][i]));
                for (j, expected) in expected.into_iter().enumerate() {
                    let expected = if c < channels { expected } else { 123.0 };
                    assert_eq!(found[(4 * i + j) * apart + c], expected, "{}", kernels.name);
                }
            }
        }
        found.fill(123.0);
        // SAFETY: as above.
        unsafe {
            (transforms.filters)(values.as_ptr(), pixel, found.as_mut_ptr(), apart, channels)
        };
        for c in 0..apart {
            let g = [0, 1, 2].map(|j| filter([0, 1, 2].map(|k| values[(3 * k + j) * pixel + c])));
            for k in 0..4 {
                let expected = filter([0, 1, 2].map(|j| g[j][k]));
                for (j, expected) in expected.into_iter().enumerate() {
                    let expected = if c < channels { expected } else { 123.0 };
                    assert_eq!(found[(4 * k + j) * apart + c], expected, "{}", kernels.name);
                }
            }
        }
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38] {
            values[draw(16) * apart + draw(channels)] = special;
        }
        let activation = [Activation::None, Activation::Relu][draw(2)];
        let (lines, columns) = (1 + draw(2), 1 + draw(2));
        let mut pixels = vec![123.0f32; 2 * line];
        let place = Pixels {
            first: pixels.as_mut_ptr(),
            steps,
            lines,
            columns,
        };
        let bounds = Bounds::of(activation).unwrap();
        // SAFETY: as above.
        unsafe { (transforms.gather)(values.as_ptr(), apart, channels, place, bounds) };
        for (at, &found) in pixels.iter().enumerate() {
            let (y, x, c) = (at / line, at % line / pixel, at % line % pixel);
            if y >= lines || x >= columns || c >= channels {
                assert_eq!(found, 123.0, "{}", kernels.name);
                continue;
            }
            let element = |i: usize, j: usize| values[(4 * i + j) * apart + c];
            let s = [0, 1, 2, 3].map(|j| gather([0, 1, 2, 3].map(|i| element(i, j)))[y]);
            let expected = gather(s)[x];
            if expected.is_finite() {
                let expected = activation.apply(f64::from(expected));
                assert_eq!(f64::from(found), expected, "{}", kernels.name);
            } else {
                assert!(found.is_nan(), "{}: {found}", kernels.name);
            }
        }
    }
}

/// The product of a matrix A with the identity is A, to the bit.
#[test]
fn the_identity_gives_the_weights() {
    for kernels in Kernels::all() {
        for size in [1, 15, 16, 63, 65, 67] {
            let mut case = Case::new(16, size, size, size, 9);
            case.biases.fill(0.0);
            case.x.fill(0.0);
            (0..size).for_each(|n| case.x[n * case.x_stride + n] = 1.0);
            let result = case.run(&kernels, Activation::None, 0..case.biases.len(), (0, size));
            for (n, record) in result.chunks_exact(case.result_stride()).enumerate() {
                (0..size).for_each(|o| {
                    assert_eq!(record[o], case.plain[o * size + n], "{}", kernels.name)
                });
            }
        }
    }
}

fn activate(kernels: &Kernels, activation: Activation, values: &[f32]) -> Vec<f32> {
    let mut padded = values.to_vec();
    padded.resize(values.len().next_multiple_of(kernels.lanes), 0.0);
    // SAFETY: whole vectors, and the CPU can run these kernels.
    unsafe { (kernels.activate)(activation, padded.as_mut_ptr(), padded.len()) };
    padded.truncate(values.len());
    padded
}

#[test]
fn activations_are_within_their_bound() {
    let values: Vec<f32> = (-400_000..400_000)
        .map(|i| i as f32 * 3e-4)
        .chain((-40..=38).flat_map(|e| [10f32.powi(e), -(10f32.powi(e))]))
        .chain([0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE])
        .collect();
    // NEON on 32-bit ARM flushes subnormal numbers to zero.
    let exact = if cfg!(target_arch = "arm") {
        f64::from(f32::MIN_POSITIVE)
    } else {
        0.0
    };
    for kernels in Kernels::all() {
        for (activation, bound) in [
            (Activation::None, 0.0),
            (Activation::Sigmoid, 2e-7),
            (Activation::Relu, exact),
            (Activation::Tanh, 2e-7),
            // A quarter of a subnormal number (LeakyReLU) is rounded.
            (Activation::ALL[3], exact.max(1e-45)),
            (Activation::ALL[4], exact),
            (Activation::ALL[5], 2e-7),
            (Activation::ALL[8], 2e-7),
            (Activation::Gelu, 2e-6),
            (Activation::GeluTanh, 2e-6),
            (Activation::HardSwish, 1e-6),
            (Activation::Silu, 2e-6),
            (Activation::Mish, 2e-6),
            (Activation::Softplus, 5e-7),
        ] {
            let found = activate(&kernels, activation, &values);
            let worst = values.iter().zip(&found).map(|(&x, &y)| {
                let expected = activation.apply(f64::from(x));
                // Errors of large results are relative to the result, because all floats are
                // rounded.
                let size = if activation.own_error() > 0.0 {
                    expected.abs().max(1.0)
                } else {
                    1.0
                };
                if f64::from(y) == expected {
                    0.0
                } else {
                    (f64::from(y) - expected).abs() / size
                }
            });
            let worst = worst.fold(
                0.0,
                |a: f64, e| if e.is_nan() { f64::INFINITY } else { a.max(e) },
            );
            assert!(worst <= bound, "{} {activation:?}: {worst:e}", kernels.name);
        }
    }
}

/// A graph may divide by a small result, so its digits count.
#[test]
fn small_results_have_all_their_digits() {
    let exponents = (-37..=0).map(|e| 10f32.powi(e));
    let values: Vec<f32> = exponents
        .flat_map(|size| (1..100).map(move |i| size * (i as f32 / 99.0)))
        .flat_map(|x| [x, -x])
        .filter(|x| x.abs() > 2.0 * f32::MIN_POSITIVE)
        .collect();
    for kernels in Kernels::all() {
        for activation in [Activation::Tanh, Activation::ALL[5]] {
            for (&x, y) in values.iter().zip(activate(&kernels, activation, &values)) {
                let expected = activation.apply(f64::from(x));
                let error = (f64::from(y) / expected - 1.0).abs();
                let what = format!("{} {activation:?} of {x:e}", kernels.name);
                assert!(error <= 4e-7, "{what}: {y:e}, not {expected:e}");
            }
        }
    }
}

/// Mathematical functions give the float64 result, rounded to f32 once. Infinities become NaN.
#[test]
fn functions_of_mathematics_are_rounded_once() {
    let values = [
        0.0,
        0.25,
        -0.75,
        1.5,
        -2.5,
        3.0,
        1e-30,
        80.0,
        f32::INFINITY,
        f32::NAN,
    ];
    for kernels in Kernels::all() {
        for function in Math::ALL.map(Activation::Math) {
            let found = activate(&kernels, function, &values);
            for (&x, y) in values.iter().zip(found) {
                let expected = function.apply(f64::from(x)) as f32 + 0.0 * x;
                let what = format!("{} {function:?} of {x}", kernels.name);
                assert!(
                    y == expected || y.is_nan() && expected.is_nan(),
                    "{what}: {y}"
                );
                assert!(
                    x.is_finite() || y.is_nan() || y.is_infinite(),
                    "{what}: {y}"
                );
            }
        }
    }
}

/// No activation turns an overflow into a finite value, not even if the last term of a sum
/// overflows.
#[test]
fn an_overflow_stays_visible() {
    for kernels in Kernels::all() {
        for a in activations() {
            let values = [
                f32::INFINITY,
                1.0,
                f32::NEG_INFINITY,
                -1.0,
                f32::NAN,
                f32::MAX,
                f32::MIN,
            ];
            let found = activate(&kernels, a, &values);
            let finite: Vec<bool> = found.iter().map(|v| v.is_finite()).collect();
            assert_eq!(finite, values.map(f32::is_finite), "{} {a:?}", kernels.name);
            for sign in [1.0, -1.0] {
                let mut case = Case::new(16, 20, 9, 10, 3);
                // The sum in row 7 of record 4 is ±8e38, which overflows. All other sums are
                // finite.
                for k in 0..9 {
                    case.weights[k * 16 + 7] = 2.0;
                    case.x[4 * case.x_stride + k] = sign * 4.5e37;
                }
                let result = case.run(&kernels, a, 0..32, (0, 10));
                for (n, record) in result.chunks_exact(case.result_stride()).enumerate() {
                    let finite = |o: usize| record[o].is_finite();
                    assert!(
                        (0..20).all(|o| finite(o) == ((n, o) != (4, 7))),
                        "{} {a:?} {n}",
                        kernels.name
                    );
                }
            }
        }
    }
}

#[test]
fn nan_stays_nan() {
    for kernels in Kernels::all() {
        for a in activations() {
            let values = [f32::NAN, -f32::NAN, 1.0, f32::NAN, -1.0];
            let found = activate(&kernels, a, &values);
            let nan: Vec<bool> = found.iter().map(|v| v.is_nan()).collect();
            assert_eq!(nan, values.map(f32::is_nan), "{} {a:?}", kernels.name);
            let mut case = Case::new(16, 20, 9, 10, 3);
            case.x[4 * case.x_stride + 5] = f32::NAN;
            let result = case.run(&kernels, a, 0..32, (0, 10));
            for (n, record) in result.chunks_exact(case.result_stride()).enumerate() {
                assert!(
                    record[..20].iter().all(|v| v.is_nan() == (n == 4)),
                    "{} {a:?} {n}",
                    kernels.name
                );
            }
        }
    }
}

/// A record's scores and class are the same to the bit with any number of threads. They depend
/// neither on the batch, nor on the slot, nor on a batch in the other slot.
#[test]
fn threads_and_batches_do_not_change_a_record() {
    records_are_alike([300, 1100, 900, 40, 10], false);
    // With a step on images, threads share the rows of an affine layer of a few records. Values lie
    // in workspaces.
    records_are_alike([300, 576, 256, 40, 10], true);
}

/// Computes records with affine layers of the `sizes`, behind a step on images if there is an
/// `image`.
fn records_are_alike(sizes: [usize; 5], image: bool) {
    let padded: Vec<usize> = sizes.iter().map(|s| s.next_multiple_of(16)).collect();
    let cases: Vec<Case> = (0..4)
        .map(|i| Case::new(16, sizes[i + 1], sizes[i], 1, i as u32))
        .collect();
    let places = [
        if image {
            Place::Hidden(3)
        } else {
            Place::Input
        },
        Place::Hidden(0),
        Place::Hidden(1),
        Place::Hidden(2),
        Place::Scores,
    ];
    let hidden = [padded[1], padded[2], padded[3], padded[0]];
    let team = |threads: usize, batch: usize, timed: bool| {
        let mut steps: Vec<HostStep> = Vec::new();
        if image {
            let moved = Moved {
                from: RowMap::of_all(300),
                to: RowMap::of(0, &[(300, 1)]).unwrap(),
                filled: 300,
            };
            steps.push(HostStep {
                action: Action::Scale {
                    factors: vec![1.0].into(),
                    biases: None,
                    moves: Moves::of_numbers([&moved, &moved]),
                    finish: Finish {
                        rounds: false,
                        activation: Activation::None,
                    },
                },
                from: Place::Input,
                to: places[0],
            });
        }
        for (i, case) in cases.iter().enumerate() {
            steps.push(HostStep {
                action: Action::Affine(Dense {
                    weights: Weights::new(Values::F32(Cow::Owned(case.weights.clone()))).unwrap(),
                    biases: Cow::Owned(case.biases.clone()),
                    scales: Vec::new(),
                    panel: 16,
                    data: case.biases.len(),
                    rows: case.biases.len(),
                    columns: case.columns,
                    inputs: case.inputs,
                    activation: activations().nth(i).unwrap(),
                    rescale: None,
                    addend: None,
                    whole: None,
                }),
                from: places[i],
                to: places[i + 1],
            });
            if i == 2 {
                steps.push(HostStep {
                    action: Action::Activate(Activation::Relu),
                    from: places[3],
                    to: places[3],
                });
            }
        }
        steps.push(HostStep {
            action: Action::ArgMax(10),
            from: Place::Scores,
            to: Place::Scores,
        });
        let flop = cases.iter().map(|c| 2 * c.plain.len() as u64).sum();
        let rows = BufferRows {
            input: 300,
            hidden: &hidden,
            scores: 16,
        };
        let sizes = TeamSizes {
            rows,
            width: 300,
            outputs: &[],
            arena: 0,
            batch,
            flop,
        };
        Team::new(steps, sizes, threads, timed).unwrap()
    };
    let value = |record: usize, k: usize| {
        if (record, k) == (5, 7) {
            f32::NAN
        } else {
            ((record * 7 + k) % 19) as f32 - 9.0
        }
    };
    let mut expected: Vec<(Vec<u32>, u32)> = Vec::new();
    for (threads, batch, timed) in [
        (1, 1, false),
        (1, 50, true),
        (2, 50, false),
        (3, 23, true),
        (4, 7, false),
    ] {
        let mut team = team(threads, batch, timed);
        assert!(
            team.threads() <= threads && (threads < 2 || batch < 23 || team.threads() == threads)
        );
        let mut found = vec![(Vec::new(), 0); 100];
        let mut flying: Option<(usize, usize, usize)> = None;
        let (mut first, mut slot) = (0, 0);
        while first < 100 || flying.is_some() {
            // Submits partial batches of many sizes.
            let records = (100 - first).min(1 + (first * 5 + batch - 1) % batch);
            let next = (records > 0).then_some((slot, first, records));
            if records > 0 {
                let (stride, input) = team.input(slot);
                for n in 0..records {
                    (0..300).for_each(|k| input[n * stride + k] = value(first + n, k));
                }
                team.submit(slot, records);
            }
            if let Some((slot, first, records)) = std::mem::replace(&mut flying, next) {
                team.collect(slot);
                let (stride, scores) = team.scores(slot);
                for n in 0..records {
                    let bits = scores[n * stride..][..10]
                        .iter()
                        .map(|v| v.to_bits())
                        .collect();
                    found[first + n] = (bits, team.class(slot, n));
                }
            }
            (first, slot) = (first + records, (slot + 1) % SLOTS);
        }
        for (n, &(_, class)) in found.iter().enumerate() {
            assert!(class < 10 || (n, class) == (5, NAN_CLASS));
        }
        assert_eq!(
            found
                .iter()
                .filter(|(_, class)| *class == NAN_CLASS)
                .count(),
            1
        );
        assert_eq!(team.times().is_some(), timed);
        if expected.is_empty() {
            expected = found;
        } else {
            assert_eq!(found, expected, "{threads} threads, batches of {batch}");
        }
    }
}

#[test]
fn argmax_is_the_lowest_of_equal_values_and_never_hides_nan_or_infinity() {
    use super::run::argmax;
    assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
    assert_eq!(argmax(&[-0.0, 0.0]), 0);
    assert_eq!(argmax(&[f32::MIN, f32::MAX]), 1);
    assert_eq!(argmax(&[f32::NEG_INFINITY; 3]), NAN_CLASS);
    assert_eq!(argmax(&[1.0, f32::NEG_INFINITY]), NAN_CLASS);
    assert_eq!(argmax(&[1.0, f32::INFINITY]), NAN_CLASS);
    assert_eq!(argmax(&[1.0, f32::NAN, 3.0]), NAN_CLASS);
    assert_eq!(argmax(&[f32::NAN, 3.0]), NAN_CLASS);
}
