//! Tests of the kernels for bytes against 64-bit integers, and of networks whose buffers hold
//! bytes.

use super::*;
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::{Border, Float, Window};
use crate::ir::plan::NAN_CLASS;
use crate::ir::values::Values;
use crate::ir::view::{Image, Moved, RowMap};
use crate::simd::buffers::Operands;
use crate::simd::check::BufferRows;
use crate::simd::dense::Weights;
use crate::simd::images;
use crate::simd::micro::{Bounds, ByteSum, SumNumbers};
use crate::simd::moves::Moves;
use crate::simd::steps::Finish;
use crate::simd::{BandLimits, LIMITS, MADE, MOST_LANES, Team, TeamSizes};

/// Returns a random whole number in a range.
fn draw(seed: &mut u32, from: std::ops::Range<i32>) -> i32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    from.start + ((*seed >> 8) as usize % from.len()) as i32
}

/// A byte that no kernel may overwrite.
const CANARY: u8 = 0xa5;

/// Bytes of random limits, and 0 among them. They are `signed` or not.
fn some_bytes(seed: &mut u32, signed: bool) -> Bytes {
    let first = if signed { -128 } else { 0 };
    let low = draw(seed, -255..1) - first;
    let zero = -low;
    Bytes {
        low: low as i16,
        least: draw(seed, first..zero + 1) as i16,
        largest: draw(seed, zero..first + 256) as i16,
    }
}

/// The byte of a scaled sum.
fn byte_of(value: f32, bytes: Bytes) -> u8 {
    let low = f32::from(bytes.low);
    let (least, largest) = (f32::from(bytes.least), f32::from(bytes.largest));
    (value.round_ties_even() - low).clamp(least, largest) as i16 as u8
}

/// The number that a byte holds.
fn number(byte: u8, bytes: Bytes, signed: bool) -> i64 {
    let byte = if signed {
        i64::from(byte as i8)
    } else {
        i64::from(byte)
    };
    byte + i64::from(bytes.low)
}

fn bounds_of(bytes: Bytes) -> Bounds {
    let number = |byte: i16| f32::from(bytes.low) + f32::from(byte);
    Bounds {
        least: number(bytes.least),
        largest: number(bytes.largest),
    }
}

/// The kernels for bytes of this CPU.
fn kernels() -> Vec<WholeKernels> {
    WholeKernels::all().collect()
}

/// A depthwise convolution of 3 × 3 elements.
#[derive(Clone, Debug)]
struct Depthwise {
    shape: Shape,
    window: Window,
    /// The bytes of a pixel of the operand and of the result.
    pixels: [usize; 2],
    /// The bytes behind each line of the operand.
    gap: usize,
}

impl Depthwise {
    fn geometry(&self) -> Geometry {
        let (h, w) = self.window.output(self.shape).unwrap();
        let [input, output] = self.pixels;
        let image = |pixel: usize, line: usize, first: usize| Image { first, line, pixel };
        let to = Shape { h, w, ..self.shape };
        Geometry {
            input: (
                image(input, self.shape.w * input + self.gap, 32),
                self.shape,
            ),
            output: (image(output, w * output, 16), to),
            window: self.window,
            ..Geometry::default()
        }
    }

    /// Computes random numbers, in random shares of the lines.
    fn check(&self, kernels: &WholeKernels, seed: &mut u32) {
        let geometry = self.geometry();
        let ((input, from), (output, to)) = (geometry.input, geometry.output);
        let (pixel, channels) = (output.pixel, from.c);
        let [read, written] = [(); 2].map(|()| some_bytes(seed, kernels.signed));
        let [least, largest] = kernels.bytes.weights;
        let weights: Vec<f32> = (0..9 * pixel)
            .map(|_| draw(seed, least..largest + 1) as f32)
            .collect();
        let biases: Vec<f32> = (0..pixel)
            .map(|_| draw(seed, -1 << 16..1 << 16) as f32)
            .collect();
        // Some results exceed 16 bits before they become bytes.
        let most = [4000, 400_000][draw(seed, 0..2) as usize];
        let factors: Vec<f32> = (0..pixel)
            .map(|_| draw(seed, 1..most) as f32 / 1e6)
            .collect();
        let action = Action::Windows {
            operation: WindowOp::Products,
            weights: Some((
                Weights::new(Values::F32(weights.clone().into())).unwrap(),
                biases.clone().into(),
            )),
            activation: Activation::None,
            rescale: Some(Rescale {
                factors: factors.clone(),
                summands: vec![0.5; pixel],
                rounds: true,
                bounds: bounds_of(written),
            }),
            geometry,
            pads: true,
            bytes: None,
        };
        let layer = super::channels(&action, kernels, read, written).expect("a fitting layer");
        let length = images::end(
            input,
            Shape {
                c: input.pixel,
                ..from
            },
        );
        let x: Vec<u8> = (0..length).map(|_| draw(seed, 0..256) as u8).collect();
        let size = images::end(output, Shape { c: pixel, ..to });
        let mut result = vec![CANARY; size + 64];
        let mut first = 0;
        while first < to.h {
            let end = draw(seed, first as i32 + 1..to.h as i32 + 1) as usize;
            let operands = Operands {
                x: x.as_ptr().cast(),
                result: result.as_mut_ptr().cast(),
            };
            // SAFETY: the sizes are right by construction, and the CPU can run these kernels.
            unsafe { images::channels(&layer, &geometry, first..end, operands) };
            let below = &result[output.first + end * output.line..];
            assert!(
                below.iter().all(|&b| b == CANARY),
                "{self:?}: behind line {end}"
            );
            first = end;
        }
        assert!(
            result[..output.first].iter().all(|&b| b == CANARY),
            "{self:?}"
        );
        let Window {
            stride,
            dilation,
            border,
            ..
        } = self.window;
        for (y, column) in (0..to.h).flat_map(|y| (0..to.w).map(move |x| (y, x))) {
            let at = output.first + y * output.line + column * pixel;
            for c in 0..pixel {
                let mut sum = biases[c] as i64;
                for k in 0..9 {
                    let line = (y * stride.0 + k / 3 * dilation.0).wrapping_sub(border.top);
                    let across = (column * stride.1 + k % 3 * dilation.1).wrapping_sub(border.left);
                    if line < from.h && across < from.w {
                        let at = input.first + line * input.line + across * input.pixel + c;
                        let value = number(x[at], read, kernels.signed);
                        sum += value * weights[k * pixel + c] as i64;
                    }
                }
                let expected = match c < channels {
                    true => byte_of((sum as f32).mul_add(factors[c], 0.5), written),
                    false => written.zero(),
                };
                assert_eq!(result[at + c], expected, "{self:?}: {y}, {column}, {c}");
            }
        }
    }
}

#[test]
fn depthwise_convolutions_of_bytes_are_exact() {
    let mut seed = 5;
    for kernels in kernels() {
        let mut checked = 0;
        while checked < 800 {
            let mut few = |from: i32, to: i32| draw(&mut seed, from..to) as usize;
            let channels = [1, 3, 8, 15, 16, 17, 31, 32, 48, 64, 65, 80, 128, 130];
            let c = channels[few(0, channels.len() as i32)];
            let shape = Shape {
                c,
                h: few(1, 9),
                w: few(1, 21),
            };
            let mut window = Window::of((3, 3));
            window.stride = (few(1, 4), few(1, 4));
            if few(0, 2) == 0 {
                window.stride = (1, 1);
            }
            if few(0, 4) == 0 {
                window.dilation = (few(1, 3), few(1, 3));
            }
            window.border = Border {
                top: few(0, 3),
                left: few(0, 3),
                bottom: few(0, 3),
                right: few(0, 3),
            };
            let pixel = c.next_multiple_of(16);
            let case = Depthwise {
                shape,
                window,
                pixels: [pixel + 16 * few(0, 2), pixel],
                gap: 16 * few(0, 2),
            };
            if window.output(shape).is_ok() {
                case.check(&kernels, &mut seed);
                checked += 1;
            }
        }
    }
}

#[test]
fn other_depthwise_convolutions_keep_floats() {
    let mut seed = 5;
    for kernels in kernels() {
        let [read, written] = [(); 2].map(|()| some_bytes(&mut seed, kernels.signed));
        let taken = |size: usize, weight: f32, bias: f32, pixel: usize| {
            let shape = Shape { c: 16, h: 6, w: 6 };
            let case = Depthwise {
                shape,
                window: Window::of((size, size)),
                pixels: [pixel, pixel],
                gap: 0,
            };
            let action = Action::Windows {
                operation: WindowOp::Products,
                weights: Some((
                    Weights::new(Values::F32(vec![weight; size * size * pixel].into())).unwrap(),
                    vec![bias; pixel].into(),
                )),
                activation: Activation::None,
                rescale: Some(Rescale {
                    factors: vec![0.01; pixel],
                    summands: vec![0.0; pixel],
                    rounds: true,
                    bounds: bounds_of(written),
                }),
                geometry: case.geometry(),
                pads: true,
                bytes: None,
            };
            super::channels(&action, &kernels, read, written).is_some()
        };
        assert!(taken(3, 127.0, 3.0, 16));
        assert!(!taken(5, 127.0, 3.0, 16), "a large window");
        let [least, most] = kernels.bytes.weights.map(|w| w as f32);
        assert!(taken(3, least, 3.0, 16) && taken(3, most, 3.0, 16));
        assert!(!taken(3, least - 1.0, 3.0, 16), "a small weight");
        assert!(!taken(3, most + 1.0, 3.0, 16), "a large weight");
        assert!(!taken(3, 0.5, 3.0, 16), "a fraction");
        assert!(!taken(3, 1.0, 0.5, 16), "a bias that is no whole number");
        assert!(!taken(3, 1.0, 1e12, 16), "a large bias");
        assert!(
            !taken(3, 1.0, 1.0, 24),
            "channels that are not whole vectors"
        );
    }
}

/// The numbers of a sum with multipliers of 21 binary digits and a shift.
fn sum_numbers(multipliers: [i64; 2], shift: u32, bounds: Bounds) -> SumNumbers {
    let unit = 0.5f32.powi(shift as i32);
    SumNumbers::of(multipliers.map(|m| Float::new(m as f32 * unit)), bounds)
}

#[test]
fn sums_of_bytes_are_exact() {
    let mut seed = 11;
    for kernels in kernels() {
        for turn in 0..400u32 {
            let multipliers = [0; 2].map(|_| i64::from(draw(&mut seed, -1 << 20..1 << 21)));
            let shift = 20 + turn % 3;
            let [x_bytes, y_bytes, written] =
                [(); 3].map(|()| some_bytes(&mut seed, kernels.signed));
            let bounds = bounds_of(written);
            let numbers = sum_numbers(multipliers, shift, bounds);
            let Some(integers) = SumIntegers::of(&numbers) else {
                panic!("{multipliers:?} {shift}");
            };
            let given = multipliers.map(|m| m >> (shift - integers.shift));
            assert_eq!(integers.multipliers.map(i64::from), given);
            let count = 16 * draw(&mut seed, 1..20) as usize;
            let mut some =
                || -> Vec<u8> { (0..count).map(|_| draw(&mut seed, 0..256) as u8).collect() };
            let (x, y) = (some(), some());
            let mut result = vec![CANARY; count + 64];
            let mut floats = vec![77.0f32; count + 16];
            let mut sum = ByteSum {
                x: x.as_ptr(),
                y: y.as_ptr(),
                result: result.as_mut_ptr().cast(),
                bytes: Some(written),
                count,
                integers: of_bytes(integers, [x_bytes, y_bytes]),
                bounds,
            };
            // SAFETY: the sizes are right by construction, and the CPU can run these kernels.
            unsafe {
                let kernel = kernels.bytes.sum;
                kernel(&sum);
                (sum.bytes, sum.result) = (None, floats.as_mut_ptr());
                kernel(&sum);
            }
            for i in 0..count {
                let [a, b] = multipliers;
                let p = number(x[i], x_bytes, kernels.signed);
                let q = number(y[i], y_bytes, kernels.signed);
                let all = (p * a + q * b + (1 << (shift - 1))) >> shift;
                let expected = (all as f32).clamp(bounds.least, bounds.largest);
                assert_eq!(floats[i], expected, "{multipliers:?} {shift}: {p}, {q}");
                assert_eq!(result[i], byte_of(expected, written));
            }
            assert!(result[count..].iter().all(|&b| b == CANARY));
            assert!(floats[count..].iter().all(|&v| v == 77.0));
        }
    }
}

#[test]
fn sums_beyond_32_bits_have_no_integers() {
    let bounds = Bounds {
        least: -128.0,
        largest: 127.0,
    };
    let most = (1 << 22) - 1;
    let taken = |multipliers| {
        let numbers = sum_numbers(multipliers, 22, bounds);
        SumIntegers::of(&numbers).is_some()
    };
    assert!(taken([most, 1 << 21]));
    assert!(!taken([most, most]));
    assert!(!taken([most, -most]));
    assert!(taken([most - 1, most - 1]), "a digit less");
}

/// A network of whole numbers, whose images have whole vectors of channels.
struct Net {
    seed: u32,
    steps: Vec<HostStep>,
    hidden: Vec<usize>,
    /// The value that the next layer reads.
    last: (Place, Shape),
    /// The limits of rounded values.
    bounds: Bounds,
}

impl Net {
    /// A network that rounds its input first.
    fn new(seed: u32, shape: Shape) -> Net {
        let mut net = Net {
            seed,
            steps: Vec::new(),
            hidden: Vec::new(),
            last: (Place::Input, shape),
            bounds: Bounds {
                least: -128.0,
                largest: 127.0,
            },
        };
        let to = net.add(shape);
        let count = shape.c * shape.w * shape.h;
        let moved = Moved {
            from: RowMap::of_all(count),
            to: RowMap::image(net.image(shape), shape),
            filled: count,
        };
        let action = Action::Scale {
            factors: vec![1.0].into(),
            biases: Some(vec![0.0].into()),
            moves: Moves::of_numbers([&moved, &moved]),
            finish: Finish {
                rounds: true,
                activation: Activation::Clip {
                    low: Float::new(-128.0),
                    high: Float::new(127.0),
                },
            },
        };
        net.push(action, to, shape);
        net
    }

    fn image(&self, shape: Shape) -> Image {
        Image::dense(shape, shape.c)
    }

    fn draw(&mut self, from: std::ops::Range<i32>) -> usize {
        draw(&mut self.seed, from) as usize
    }

    fn add(&mut self, shape: Shape) -> Place {
        self.hidden.push(shape.c * shape.w * shape.h);
        Place::Hidden(self.hidden.len() - 1)
    }

    fn push(&mut self, action: Action, to: Place, shape: Shape) {
        let from = self.last.0;
        self.steps.push(HostStep { action, from, to });
        self.last = (to, shape);
    }

    fn rescale(&mut self, rows: usize, inputs: usize) -> Option<Rescale> {
        let factor = 0.1 / (inputs as f32).sqrt();
        Some(Rescale {
            factors: vec![factor; rows],
            summands: vec![draw(&mut self.seed, -9..10) as f32; rows],
            rounds: true,
            bounds: self.bounds,
        })
    }

    fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|_| draw(&mut self.seed, -20..21) as f32)
            .collect()
    }

    fn geometry(&self, window: Window, channels: usize) -> Geometry {
        let (_, from) = self.last;
        let (h, w) = window.output(from).unwrap();
        let to = Shape { c: channels, h, w };
        Geometry {
            input: (self.image(from), from),
            output: (self.image(to), to),
            window,
            groups: 1,
        }
    }

    /// A window whose neighbours leave out no pixel.
    fn window(&mut self, size: usize) -> Window {
        let mut window = Window::of((size, size));
        if size == 3 {
            window.border = Border {
                top: 1,
                left: 1,
                bottom: 1,
                right: 1,
            };
            let stride = 1 + usize::from(self.draw(0..4) == 0);
            window.stride = (stride, stride);
        }
        window
    }

    fn convolution(&mut self, size: usize, channels: usize, to: Option<Place>) {
        let window = self.window(size);
        let geometry = self.geometry(window, channels);
        let ((_, from), (_, shape)) = (geometry.input, geometry.output);
        let inputs = size * size * from.c;
        let dense = Dense {
            weights: Weights::new(Values::F32(self.numbers(inputs * channels).into())).unwrap(),
            biases: self.numbers(channels).into(),
            scales: Vec::new(),
            panel: 16,
            data: channels,
            rows: channels,
            columns: inputs,
            inputs,
            activation: Activation::None,
            rescale: self.rescale(channels, inputs),
            addend: None,
            whole: None,
        };
        let to = to.unwrap_or_else(|| self.add(shape));
        self.push(Action::Convolution(dense, geometry), to, shape);
    }

    fn depthwise(&mut self) {
        let window = self.window(3);
        let (_, Shape { c, .. }) = self.last;
        let geometry = self.geometry(window, c);
        let (_, shape) = geometry.output;
        let weights = Weights::new(Values::F32(self.numbers(9 * c).into())).unwrap();
        let action = Action::Windows {
            operation: WindowOp::Products,
            weights: Some((weights, self.numbers(c).into())),
            activation: Activation::None,
            rescale: self.rescale(c, 9),
            geometry,
            pads: true,
            bytes: None,
        };
        let to = self.add(shape);
        self.push(action, to, shape);
    }

    /// A convolution, and the sum of its result and its operand.
    fn sum(&mut self) {
        let (other, shape) = self.last;
        self.convolution(1, shape.c, None);
        let numbers = sum_numbers([700_001, 900_003], 20, self.bounds);
        let to = self.add(shape);
        let action = Action::Sum {
            other,
            numbers,
            first: 0,
            count: shape.c * shape.w * shape.h,
            bytes: None,
        };
        self.push(action, to, shape);
    }

    /// A random network, which ends with an arg-max if `ends`. All else depends on `seed` alone.
    fn random(seed: u32, ends: bool) -> Net {
        let shape = Shape {
            c: [16, 32, 48][seed as usize % 3],
            h: 5 + seed as usize % 20,
            w: 4 + seed as usize % 17,
        };
        let mut net = Net::new(seed, shape);
        net.convolution(3, shape.c, None);
        for _ in 0..6 {
            let channels = [16, 32, 64, 80][net.draw(0..4)];
            match net.draw(0..5) {
                0 => net.convolution(1, channels, None),
                1 => net.convolution(3, channels, None),
                2 => net.sum(),
                _ => net.depthwise(),
            }
        }
        net.convolution(1, 16, Some(Place::Scores));
        let (_, Shape { c, h, w }) = net.last;
        if ends {
            net.push(Action::ArgMax(c * h * w), Place::Scores, net.last.1);
        }
        net
    }

    fn team(self, records: usize, threads: usize) -> (Team, usize) {
        let input = self.hidden[0];
        let (_, Shape { c, h, w }) = self.last;
        let rows = BufferRows {
            input,
            hidden: &self.hidden,
            scores: c * h * w,
        };
        let outputs: Vec<u32> = (0..(c * h * w) as u32).collect();
        let sizes = TeamSizes {
            rows,
            width: input,
            outputs: &outputs,
            arena: 0,
            batch: records,
            flop: 1 << 40,
        };
        (
            Team::new(self.steps, sizes, threads, false).unwrap(),
            c * h * w,
        )
    }
}

/// Computes some records, and returns the scores of each.
fn scores(team: &mut Team, x: &[Vec<f32>], count: usize) -> Vec<Vec<f32>> {
    let (stride, input) = team.input(0);
    for (n, record) in x.iter().enumerate() {
        input[n * stride..][..record.len()].copy_from_slice(record);
    }
    team.submit(0, x.len());
    team.collect(0);
    let (stride, scores) = team.scores(0);
    let of = |n: usize| scores[n * stride..][..count].to_vec();
    (0..x.len()).map(of).collect()
}

#[test]
fn networks_of_bytes_give_the_scores_of_floats() {
    if kernels().is_empty() {
        return;
    }
    let bands = MADE.get();
    for turn in 0..60u32 {
        let (records, threads) = (1 + turn as usize % 4, 1 + turn as usize / 4 % 3);
        LIMITS.set([BandLimits::OF_TESTS, BandLimits::NONE][turn as usize / 12 % 2]);
        // With short vectors, CPUs with VNNI take the kernels for AVX2.
        MOST_LANES.set([16, 8][turn as usize / 6 % 2]);
        let ends = turn % 3 != 2;
        let net = Net::random(turn, ends);
        let (input, steps) = (net.hidden[0], net.steps.len());
        let (mut team, count) = net.team(records, threads);
        ALLOWED.set(false);
        let (mut floats, _) = Net::random(turn, ends).team(records, threads);
        ALLOWED.set(true);
        let mut seed = turn;
        // The second batch has no wrong values, so the marks of the first one must be gone.
        for wrong in [true, false] {
            let mut x: Vec<Vec<f32>> = (0..records)
                .map(|_| {
                    (0..input)
                        .map(|_| draw(&mut seed, -128..128) as f32)
                        .collect()
                })
                .collect();
            let lost = draw(&mut seed, 0..records as i32) as usize;
            if wrong {
                x[lost][draw(&mut seed, 0..input as i32) as usize] =
                    [f32::NAN, f32::INFINITY][turn as usize % 2];
            }
            let expected = scores(&mut floats, &x, count);
            let found = scores(&mut team, &x, count);
            for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let what = format!("turn {turn}, {steps} steps, record {n}");
                let nan = expected.iter().any(|v| v.is_nan());
                assert_eq!(nan, wrong && n == lost, "{what}");
                if nan {
                    assert!(found.iter().all(|v| v.is_nan()), "{what}");
                    assert_eq!(team.class(0, n), NAN_CLASS, "{what}");
                } else {
                    assert!(found == expected, "{what}");
                }
                if !nan && ends {
                    let most = expected.iter().copied().fold(f32::MIN, f32::max);
                    let class = expected.iter().position(|&v| v == most).unwrap();
                    assert_eq!(team.class(0, n) as usize, class, "{what}");
                }
            }
        }
    }
    LIMITS.set(BandLimits::OF_TESTS);
    MOST_LANES.set(usize::MAX);
    assert!(MADE.get() > bands, "bands of bytes");
}

#[test]
fn all_hidden_buffers_of_layers_are_bytes() {
    if kernels().is_empty() {
        return;
    }
    let mut seen = 0;
    for turn in 0..30 {
        for ends in [false, true] {
            let Net {
                mut steps, hidden, ..
            } = Net::random(turn, ends);
            let rows = BufferRows {
                input: hidden[0],
                hidden: &hidden,
                scores: 1 << 20,
            };
            let floats = crate::simd::micro::Kernels::detect(16);
            crate::simd::whole::prepare(&mut steps, rows, &floats);
            check(&steps, rows);
            let bytes = steps.iter().filter(|s| s.written_bytes().is_some());
            let bytes = bytes.count();
            // The rounding, the last convolution and the arg-max write none.
            assert_eq!(bytes, steps.len() - 2 - usize::from(ends), "turn {turn}");
            seen += bytes;
        }
    }
    assert!(seen > 200);
}

#[test]
fn bytes_behind_a_buffer_are_not_read() {
    if kernels().is_empty() {
        return;
    }
    let mut seen = 0;
    for turn in 0..30 {
        let Net {
            mut steps, hidden, ..
        } = Net::random(turn, true);
        let rows = |hidden| BufferRows {
            input: 1 << 20,
            hidden,
            scores: 1 << 20,
        };
        let floats = crate::simd::micro::Kernels::detect(16);
        crate::simd::whole::prepare(&mut steps, rows(&hidden), &floats);
        let reader = steps.iter().find_map(|s| match (&s.action, s.from) {
            (Action::Windows { bytes: Some(_), .. }, Place::Hidden(i)) => Some(i),
            _ => None,
        });
        let Some(read) = reader else {
            continue;
        };
        let mut short = hidden.clone();
        short[read] -= 1;
        choose(&mut steps, rows(&short));
        check(&steps, rows(&short));
        assert_eq!(value_size(&steps, Place::Hidden(read)), size_of::<f32>());
        seen += 1;
    }
    assert!(seen > 5);
}
