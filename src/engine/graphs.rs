//! Tests of networks that are not chains of layers, on every engine and plan, against float64
//! scores. The networks are single nodes with extreme options, and random graphs.

use super::Engine;
use super::host::HostEngine;
use super::opencl::{OpenClEngine, Wanted};
use crate::baked::library;
use crate::cl;
use crate::engine::model::Model;
use crate::engine::sources::Sources;
use crate::ir::graph::{Role, Shape};
use crate::ir::network::{InputOrder, Kind, Network, Output, Precision, Transform};
use crate::ir::op::{Activation, Arithmetic, Axis, Border, Float, Math, Op, Padding, Pool, Window};
use crate::ir::values;
use crate::observe::profile::Phases;
use crate::ops::edges::{EdgeGraph, random, single, whole};
use crate::ops::random::Random;
use crate::planner::whole::Layers;
use crate::registry::EngineKind;
use crate::simd::{BandLimits, JOINED, JOINS, LIMITS, MOST_LANES};

fn network(b: EdgeGraph, kind: Kind, order: InputOrder) -> Case {
    let width = b.graph.values[0].shape.len();
    let baked = crate::baked::network().clone();
    let network = Network {
        width,
        order,
        graph: b.graph,
        labels: Vec::new().into(),
        features: Vec::new().into(),
        transform: Transform::Identity,
        output: Output {
            kind,
            ..baked.output
        },
        ..baked
    };
    Case {
        network,
        tensors: b.tensors,
        random: b.random,
    }
}

struct Case {
    network: Network,
    tensors: Vec<Vec<f32>>,
    random: Random,
}

impl Case {
    /// Runs batches of several sizes in alternating slots, and compares the answers with float64
    /// scores.
    fn run(&mut self, engine: &mut dyn Engine, what: &str) {
        let most = engine.batch();
        let describe = || {
            let nodes = self.network.graph.nodes.iter();
            let shape = |v: usize| self.network.graph.values[v].shape;
            let node = |n: &crate::ir::graph::Node| {
                format!("{} {:?} -> {}", n.name, n.op, shape(n.output))
            };
            format!(
                "{what}: {}: {}",
                self.network.input(),
                nodes.map(node).collect::<Vec<_>>().join("; ")
            )
        };
        let text = describe();
        for (turn, records) in [1, 3, most.min(11), 2].into_iter().enumerate() {
            let (records, slot) = (records.min(most), turn % super::SLOTS);
            let all: Vec<Vec<f32>> = (0..records)
                .map(|_| {
                    (0..self.network.width)
                        .map(|_| self.random.float())
                        .collect()
                })
                .collect();
            for (n, record) in all.iter().enumerate() {
                engine.record(slot, n).unwrap().fill(record);
            }
            engine.submit(slot, records).unwrap();
            engine.collect(slot).unwrap();
            for (n, record) in all.iter().enumerate() {
                let raw: Vec<f64> = record.iter().map(|&v| f64::from(v)).collect();
                let expected = self.network.scores(&self.tensors, &raw);
                let answer = engine.answer(slot, n);
                let found: Vec<f32> = answer.scores.iter().collect();
                assert_eq!(found.len(), expected.len(), "{text}");
                let most = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
                for (i, (&f, &e)) in found.iter().zip(&expected).enumerate() {
                    let near = (f64::from(f) - e).abs() <= 1e-4 * most;
                    assert!(
                        near,
                        "{text}: {records} records, record {n}, value {i}: {f}, not {e}"
                    );
                }
                if let Some(class) = answer
                    .class
                    .filter(|_| !crate::ops::bound::too_close(&expected))
                {
                    assert_eq!(Some(class), self.network.class(&expected), "{text}");
                }
            }
        }
    }

    /// Runs the case with all weights, and with short vectors, too. They leave out more padding.
    fn on_the_host(&mut self, what: &str) {
        let recipe = crate::engine::model::recipe("host", EngineKind::Host).unwrap();
        for (threads, weights, lanes) in [
            (1, Precision::F32, 16),
            (3, Precision::F32, 8),
            (1, Precision::F32, 4),
            (2, Precision::F16, 16),
            (2, Precision::I8, 16),
        ] {
            MOST_LANES.set(lanes);
            self.network.weights = weights;
            values::round(weights, &self.network.graph, &mut self.tensors);
            let model = Model::new(self.network.clone(), &self.tensors, recipe, library(), None);
            let model = model.unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut engine = HostEngine::new(model, threads, false).unwrap();
            self.run(
                &mut engine,
                &format!("{what}, {threads} threads, {weights:?}, {lanes} lanes"),
            );
        }
        MOST_LANES.set(usize::MAX);
    }

    /// Runs the case on the first OpenCL device under the given `plans`, or under every plan if
    /// `plans` is empty.
    fn on_opencl(&mut self, what: &str, plans: &[&str]) {
        let all = cl::devices(cl::ClLibrary::open().expect("the tests need OpenCL")).unwrap();
        let device = &all.devices[0];
        let recipes = library()
            .plans
            .iter()
            .filter(|p| p.engine == EngineKind::OpenCl);
        for recipe in recipes.filter(|p| plans.is_empty() || plans.contains(&&*p.name)) {
            let weights = Precision::ALL[what.len() % 3];
            let what = format!("{what}, {}, {weights:?}", recipe.name);
            self.network.weights = weights;
            values::round(weights, &self.network.graph, &mut self.tensors);
            let model = Model::new(
                self.network.clone(),
                &self.tensors,
                recipe,
                library(),
                Some(20),
            );
            let model = model.unwrap_or_else(|e| panic!("{what}: {e}"));
            let whole = model.whole(library(), Layers::All);
            let model = whole.unwrap().unwrap_or(model);
            let wanted = Wanted {
                scores: true,
                classes: true,
            };
            let sources = Sources::default().uncached();
            let engine = OpenClEngine::new(
                device,
                &model,
                wanted,
                false,
                &sources,
                &mut Phases::default(),
            );
            self.run(&mut engine.unwrap_or_else(|e| panic!("{what}: {e}")), &what);
        }
    }
}

#[test]
fn single_nodes_are_right_on_the_host() {
    for (name, builder) in single() {
        let order = if name.len() % 2 == 0 {
            InputOrder::Chw
        } else {
            InputOrder::Hwc
        };
        network(builder, Kind::Values, order).on_the_host(name);
    }
}

/// Runs each single node on OpenCL under these plans.
fn single_nodes(plans: &[&str]) {
    for (name, builder) in single() {
        let order = if name.len() % 2 == 0 {
            InputOrder::Chw
        } else {
            InputOrder::Hwc
        };
        network(builder, Kind::Values, order).on_opencl(name, plans);
    }
}

#[test]
fn single_nodes_are_right_on_opencl() {
    single_nodes(&["mali-midgard"]);
}

/// Some of the layers of whole numbers, with the kernels that multiply bytes.
#[test]
fn whole_numbers_are_right_on_opencl() {
    for (name, builder) in whole().into_iter().skip(3).step_by(3) {
        network(builder, Kind::Values, InputOrder::Chw).on_opencl(name, &["nvidia"]);
    }
}

#[test]
#[ignore = "long: tests/long.py"]
fn single_nodes_are_right_on_opencl_under_other_plans() {
    single_nodes(&["cpu-simd", "thesis-morton"]);
}

/// An element-wise step takes the layout of its operand. If a later step needs more rows for each
/// pixel, the step that first produced the value must add them as padding.
#[test]
fn pixels_are_widened_where_they_are_made() {
    for arithmetic in [Arithmetic::Add, Arithmetic::Multiply] {
        let mut b = EdgeGraph::new(Shape { c: 3, h: 3, w: 3 }, 5);
        let scaled = b
            .of_channels(Op::Scale, 0, &[Role::Factors, Role::Biases])
            .unwrap();
        let again = b
            .of_channels(Op::Scale, scaled, &[Role::Factors, Role::Biases])
            .unwrap();
        b.push(Op::Combine(arithmetic), &[again, scaled], &[])
            .unwrap();
        network(b, Kind::Values, InputOrder::Chw).on_opencl("scaled twice", &[]);
    }
}

#[test]
fn random_graphs_are_right_on_the_host() {
    for seed in 0..150 {
        network(random(seed), Kind::Classes, InputOrder::Chw).on_the_host(&format!("seed {seed}"));
    }
    let bands = crate::simd::MADE.get();
    assert!(bands > 50, "{bands} bands of steps were tested");
}

/// Runs each random graph under one plan, and each plan with one graph.
#[test]
fn random_graphs_are_right_on_opencl() {
    let plans: Vec<_> = library()
        .plans
        .iter()
        .filter(|p| p.engine == EngineKind::OpenCl)
        .collect();
    for (seed, plan) in (100..).zip(plans) {
        let what = format!("seed {seed}");
        network(random(seed), Kind::Classes, InputOrder::Chw).on_opencl(&what, &[&plan.name]);
    }
}

#[test]
#[ignore = "long: tests/long.py"]
fn random_graphs_are_right_on_opencl_under_every_plan() {
    for seed in 0..5 {
        network(random(seed), Kind::Classes, InputOrder::Chw)
            .on_opencl(&format!("seed {seed}"), &[]);
    }
}

/// Runs 1, 3 and 20 equal records under every plan, and compares the scores with float64 scores.
fn right_under_every_plan(case: &Case, record: &[f32], what: &str) {
    let all = cl::devices(cl::ClLibrary::open().expect("the tests need OpenCL")).unwrap();
    let wide: Vec<f64> = record.iter().map(|&x| x.into()).collect();
    let expected = case.network.scores(&case.tensors, &wide);
    for recipe in library().plans.iter() {
        let (network, tensors) = (case.network.clone(), &case.tensors);
        let model = Model::new(network, tensors, recipe, library(), Some(20)).unwrap();
        let mut engine: Box<dyn Engine> = match recipe.engine {
            EngineKind::Host => Box::new(HostEngine::new(model, 1, false).unwrap()),
            EngineKind::OpenCl => {
                let wanted = Wanted {
                    scores: true,
                    classes: false,
                };
                let (sources, mut phases) = (Sources::default().uncached(), Phases::default());
                let device = &all.devices[0];
                let engine =
                    OpenClEngine::new(device, &model, wanted, false, &sources, &mut phases);
                Box::new(engine.unwrap_or_else(|e| panic!("{}: {e}", recipe.name)))
            }
        };
        for records in [1, 3, 20] {
            for n in 0..records {
                engine.record(0, n).unwrap().fill(record);
            }
            engine.submit(0, records).unwrap();
            engine.collect(0).unwrap();
            let answer = engine.answer(0, records - 1);
            for (found, expected) in answer.scores.iter().zip(&expected) {
                assert!(
                    (f64::from(found) - expected).abs() <= 1e-3,
                    "{}: {what} of {records}: {found}, not {expected}",
                    recipe.name
                );
            }
        }
    }
}

/// Padding rows must stay finite after functions that are infinite at 0. The next layer multiplies
/// these rows by weights of 0, and 0 times an infinity is NaN.
#[test]
fn functions_leave_padding_rows_finite() {
    for (function, scaled) in [(Math::Reciprocal, false), (Math::Log, true)] {
        let mut b = EdgeGraph::new(Shape::vector(3), 5);
        let op = Op::Activation(Activation::Math(function));
        let mut value = b.push(op, &[0], &[]).unwrap();
        if scaled {
            let arrays = [(Role::Factors, 3, 1), (Role::Biases, 3, 1)];
            value = b.push(Op::Scale, &[value], &arrays).unwrap();
        }
        let arrays = [(Role::Weights, 21, 3), (Role::Biases, 21, 1)];
        b.push(Op::Affine, &[value], &arrays).unwrap();
        let case = network(b, Kind::Values, InputOrder::Chw);
        right_under_every_plan(&case, &[0.5, 1.0, 2.0], &format!("{function:?}"));
    }
}

/// A layer and an element-wise sum both read the input, an image. The host engine must write the
/// input where the plan says, even if the layer reads a copy of it.
#[test]
fn an_image_that_a_layer_and_a_sum_read() {
    let shape = Shape { c: 3, h: 3, w: 5 };
    let mut b = EdgeGraph::new(shape, 5);
    let arrays = [(Role::Weights, 4, 45), (Role::Biases, 4, 1)];
    let layer = b.push(Op::Affine, &[0], &arrays).unwrap();
    let sum = b.push(Op::Combine(Arithmetic::Add), &[0, 0], &[]).unwrap();
    let flat = b.push(Op::Reshape(Shape::vector(45)), &[sum], &[]).unwrap();
    b.push(Op::Concat(Axis::C), &[layer, flat], &[]).unwrap();
    let case = network(b, Kind::Values, InputOrder::Chw);
    let record: Vec<f32> = (0..45).map(|i| i as f32 / 50.0 - 0.3).collect();
    right_under_every_plan(&case, &record, "layer and sum");
}

/// A concatenation whose parts convolutions write in place, of which one is by tiles, beside a part
/// that is copied.
#[test]
fn convolutions_write_parts_of_a_concatenation() {
    let size = |c: usize| Shape { c, h: 9, w: 10 };
    for (parts, copies) in [
        ([32, 48, 16], 1),
        // The layer of 47 channels also writes one of padding, so its result is copied.
        ([32, 47, 16], 2),
    ] {
        let mut b = EdgeGraph::new(size(16), 7);
        let layer = |b: &mut EdgeGraph, value: usize, outputs, side: usize, activation| {
            let border = (side - 1) / 2;
            let window = Window {
                border: Border {
                    top: border,
                    left: border,
                    bottom: border,
                    right: border,
                },
                ..Window::of((side, side))
            };
            let inputs = b.graph.values[value].shape.c;
            let arrays = [
                (Role::Weights, outputs, side * side * inputs),
                (Role::Biases, outputs, 1),
            ];
            let op = Op::Convolution { window, groups: 1 };
            let sums = b.push(op, &[value], &arrays).unwrap();
            b.push(Op::Activation(activation), &[sums], &[]).unwrap()
        };
        let one = layer(&mut b, 0, parts[0], 1, Activation::Silu);
        let tiles = layer(&mut b, 0, parts[1], 3, Activation::Relu);
        let pool = Op::Pool {
            kind: Pool::Max,
            window: Window::of((1, 1)),
        };
        let pooled = b.push(pool, &[0], &[]).unwrap();
        let all = [one, pooled, tiles];
        let all = b.push(Op::Concat(Axis::C), &all, &[]).unwrap();
        layer(&mut b, all, 8, 3, Activation::Tanh);
        let mut case = network(b, Kind::Values, InputOrder::Chw);
        case.on_the_host("convolutions and a concatenation");
        let recipe = crate::engine::model::recipe("host", EngineKind::Host).unwrap();
        let model = Model::new(case.network, &case.tensors, recipe, library(), None).unwrap();
        let engine = HostEngine::new(model, 1, false).unwrap();
        assert_eq!(engine.copies(), copies, "{parts:?}");
    }
}

/// Steps of residual networks.
impl EdgeGraph {
    /// Adds a convolution of windows of `side` × `side` pixels, which keeps height and width.
    fn layer(&mut self, value: usize, outputs: usize, side: usize, groups: usize) -> usize {
        self.strided(value, outputs, (side, 1), groups)
    }

    /// Adds a convolution with windows of a size and a stride.
    fn strided(
        &mut self,
        value: usize,
        outputs: usize,
        (side, stride): (usize, usize),
        groups: usize,
    ) -> usize {
        let border = (side - 1) / 2;
        let window = Window {
            border: Border {
                top: border,
                left: border,
                bottom: border,
                right: border,
            },
            stride: (stride, stride),
            ..Window::of((side, side))
        };
        let taps = side * side * self.graph.values[value].shape.c / groups;
        let arrays = [(Role::Weights, outputs, taps), (Role::Biases, outputs, 1)];
        let op = Op::Convolution { window, groups };
        self.push(op, &[value], &arrays).unwrap()
    }

    /// Adds a depthwise convolution and one of single pixels.
    fn separable(&mut self, value: usize, outputs: usize) -> usize {
        let c = self.graph.values[value].shape.c;
        let value = self.layer(value, c, 3, c);
        self.layer(value, outputs, 1, 1)
    }

    /// Adds a sum of two values and an activation.
    fn sum(&mut self, values: [usize; 2], activation: Activation) -> usize {
        let op = Op::Combine(Arithmetic::Add);
        let sum = self.push(op, &values, &[]).unwrap();
        match activation {
            Activation::None => sum,
            _ => self.push(Op::Activation(activation), &[sum], &[]).unwrap(),
        }
    }

    /// Adds channels behind those of a value.
    fn widened(&mut self, value: usize, channels: usize, filling: f32) -> usize {
        let more = channels - self.graph.values[value].shape.c;
        let padding = Padding {
            before: [0; 3],
            behind: [more, 0, 0],
        };
        let op = Op::Pad {
            padding,
            value: Float::new(filling),
        };
        self.push(op, &[value], &[]).unwrap()
    }
}

impl Case {
    fn host(&self, threads: usize) -> HostEngine {
        let recipe = crate::engine::model::recipe("host", EngineKind::Host).unwrap();
        let model = Model::new(self.network.clone(), &self.tensors, recipe, library(), None);
        HostEngine::new(model.unwrap(), threads, false).unwrap()
    }

    /// Returns the bits of the scores of some records. NaN has the same bits everywhere.
    fn bits(&self, threads: usize, records: &[Vec<f32>]) -> Vec<Vec<u32>> {
        let mut engine = self.host(threads);
        assert_eq!(engine.threads(), threads);
        for (n, record) in records.iter().enumerate() {
            engine.record(0, n).unwrap().fill(record);
        }
        engine.submit(0, records.len()).unwrap();
        engine.collect(0).unwrap();
        let bits = |v: f32| if v.is_nan() { f32::NAN } else { v }.to_bits();
        let scores = |n: usize| engine.answer(0, n).scores.iter().map(bits).collect();
        (0..records.len()).map(scores).collect()
    }

    /// Checks that `joined` sums of the network become part of convolutions, and that `spared`
    /// copies are then not needed. Scores must be the same to the bit as those of separate steps,
    /// with any number of threads and with and without bands. They must be near those in float64.
    fn joins_sums(&mut self, joined: usize, spared: usize, what: &str) {
        for lanes in [16, 8, 4] {
            MOST_LANES.set(lanes);
            self.joins_sums_of_lanes(joined, spared, &format!("{what}, {lanes} lanes"));
        }
        MOST_LANES.set(usize::MAX);
        self.on_the_host(what);
    }

    fn joins_sums_of_lanes(&mut self, joined: usize, spared: usize, what: &str) {
        let mut draw = {
            let mut seed = 5u32;
            move || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
            }
        };
        let mut records: Vec<Vec<f32>> = (0..7)
            .map(|_| (0..self.network.width).map(|_| draw()).collect())
            .collect();
        records[3][self.network.width / 2] = f32::NAN;
        JOINS.set(false);
        LIMITS.set(BandLimits::NONE);
        let (expected, copies) = (self.bits(1, &records), self.host(1).copies());
        JOINS.set(true);
        assert!(expected[3].contains(&f32::NAN.to_bits()), "{what}: no NaN");
        for limits in [BandLimits::NONE, BandLimits::OF_TESTS] {
            LIMITS.set(limits);
            let before = JOINED.get();
            assert_eq!(self.host(1).copies() + spared, copies, "{what}: copies");
            assert_eq!(JOINED.get() - before, joined, "{what}: sums");
            // A record on two threads and two on four are shared, and so are the last of 7 and 6.
            for (threads, count) in [(1, 7), (1, 1), (2, 1), (3, 2), (4, 2), (2, 7), (4, 6)] {
                let found = self.bits(threads, &records[..count]);
                for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let what = format!("{what}: {threads} threads, record {n} of {count}");
                    // Channels of zeros that are not copied may also show that a value is NaN.
                    let same =
                        |(f, e): (&u32, &u32)| f == e || n == 3 && f32::from_bits(*f).is_nan();
                    assert!(found.iter().zip(expected).all(same), "{what}");
                    assert!(n == 3 || found.iter().all(|&b| f32::from_bits(b).is_finite()));
                }
            }
        }
    }
}

/// Sums of residual networks become part of convolutions. The other operand is the value that the
/// convolution reads, one that is made before the convolution, or one that is made after it.
#[test]
fn sums_are_part_of_convolutions() {
    for (c, h, w) in [(24, 19, 21), (16, 8, 8), (40, 5, 1), (3, 13, 7)] {
        for activation in [
            Activation::None,
            Activation::Relu,
            Activation::Silu,
            Activation::LeakyRelu(Float::new(0.1)),
        ] {
            let mut b = EdgeGraph::new(Shape { c, h, w }, 5);
            let first = b.layer(0, 24, 1, 1);
            let first = b
                .push(Op::Activation(Activation::Relu), &[first], &[])
                .unwrap();
            let before = b.separable(first, 24);
            let before = b.sum([before, first], activation);
            let read = b.layer(before, 24, 1, 1);
            let read = b.sum([before, read], activation);
            let main = b.strided(read, 24, (3, 2), 24);
            let main = b.layer(main, 40, 1, 1);
            let shortcut = b.strided(read, 40, (5, 2), 1);
            let both = b.sum([main, shortcut], activation);
            let later = b.layer(both, 40, 1, 1);
            let pool = Op::Pool {
                kind: Pool::Max,
                window: Window::of((1, 1)),
            };
            let pooled = b.push(pool, &[both], &[]).unwrap();
            let later = b.sum([pooled, later], activation);
            // This convolution has an activation of its own, so its sum is a step.
            let own = b.layer(later, 40, 1, 1);
            let own = b
                .push(Op::Activation(Activation::Tanh), &[own], &[])
                .unwrap();
            b.sum([own, later], activation);
            let what = format!("{c}×{h}×{w}, {activation:?}");
            network(b, Kind::Values, InputOrder::Chw).joins_sums(4, 0, &what);
        }
    }
}

/// Threads that share a record begin their part of a band at any line, also in the middle of a line
/// of tiles. The windows then have room for the lines that whole tiles compute.
#[test]
fn parts_of_bands_begin_within_tiles() {
    for (h, threads) in [(56, 2), (58, 2), (60, 4), (62, 4)] {
        let mut b = EdgeGraph::new(Shape { c: 16, h, w: 8 }, 5);
        let tiles = b.layer(0, 16, 3, 1);
        let tiles = b.sum([0, tiles], Activation::Relu);
        let depthwise = b.layer(tiles, 16, 3, 16);
        let tiles = b.layer(depthwise, 16, 3, 1);
        let tiles = b.sum([depthwise, tiles], Activation::None);
        b.layer(tiles, 16, 3, 1);
        let case = network(b, Kind::Values, InputOrder::Chw);
        let record: Vec<f32> = (0..case.network.width).map(|i| (i % 13) as f32).collect();
        LIMITS.set(BandLimits::NONE);
        let expected = case.bits(1, std::slice::from_ref(&record));
        LIMITS.set(BandLimits::OF_TESTS);
        let before = crate::simd::MADE.get();
        assert_eq!(case.bits(threads, &[record]), expected, "{h} lines");
        assert!(crate::simd::MADE.get() > before, "no bands");
    }
}

/// A sum reads an image with fewer channels, if there are zeros behind them.
#[test]
fn channels_of_zeros_are_not_copied() {
    let relu = Activation::Relu;
    let mut b = EdgeGraph::new(Shape { c: 3, h: 19, w: 21 }, 5);
    let first = b.layer(0, 24, 1, 1);
    let mut value = b.push(Op::Activation(relu), &[first], &[]).unwrap();
    // Pixels of 24 and 28 channels have 32 floats, those of 40 have 48.
    for channels in [28, 40] {
        let main = b.separable(value, channels);
        let wide = b.widened(value, channels, 0.0);
        value = b.sum([main, wide], relu);
    }
    let main = b.layer(value, 72, 2, 1);
    let pool = Op::Pool {
        kind: Pool::Max,
        window: Window::of((2, 2)),
    };
    let pooled = b.push(pool, &[value], &[]).unwrap();
    let wide = b.widened(pooled, 72, 0.0);
    b.sum([wide, main], Activation::Silu);
    network(b, Kind::Values, InputOrder::Chw).joins_sums(3, 3, "channels of zeros");
    // The sigmoid of the padding is not zero, and neither is a filling of 0.5.
    for (activation, filling) in [(Activation::Sigmoid, 0.0), (relu, 0.5)] {
        let mut b = EdgeGraph::new(Shape { c: 3, h: 9, w: 11 }, 5);
        let first = b.layer(0, 24, 1, 1);
        let op = Op::Activation(activation);
        let value = b.push(op, &[first], &[]).unwrap();
        let main = b.layer(value, 28, 1, 1);
        let wide = b.widened(value, 28, filling);
        b.sum([main, wide], relu);
        let mut case = network(b, Kind::Values, InputOrder::Chw);
        case.joins_sums(1, 0, &format!("{activation:?}, filled with {filling}"));
    }
}

/// A step must not read the padding rows of its input as data. They hold values of other records or
/// of earlier batches.
#[test]
fn rows_of_padding_hold_nothing_of_other_records() {
    let all = cl::devices(cl::ClLibrary::open().expect("the tests need OpenCL")).unwrap();
    for recipe in library()
        .plans
        .iter()
        .filter(|p| p.engine == EngineKind::OpenCl)
    {
        let mut b = EdgeGraph::new(Shape::vector(3), 5);
        let value = b.push(Op::PRelu, &[0], &[(Role::Factors, 3, 1)]).unwrap();
        b.push(
            Op::Affine,
            &[value],
            &[(Role::Weights, 21, 3), (Role::Biases, 21, 1)],
        )
        .unwrap();
        let case = network(b, Kind::Values, InputOrder::Chw);
        let model = Model::new(
            case.network.clone(),
            &case.tensors,
            recipe,
            library(),
            Some(20),
        )
        .unwrap();
        let (wanted, sources) = (
            Wanted {
                scores: true,
                classes: false,
            },
            Sources::default().uncached(),
        );
        let device = &all.devices[0];
        let engine = OpenClEngine::new(
            device,
            &model,
            wanted,
            false,
            &sources,
            &mut Phases::default(),
        );
        let mut engine = engine.unwrap_or_else(|e| panic!("{}: {e}", recipe.name));
        // The first batch has infinite records beside finite ones. A single record then runs in the
        // same memory.
        for records in [20, 1] {
            for n in 0..records {
                let value = if n < 16 { 0.5 } else { f32::INFINITY };
                engine.record(0, n).unwrap().fill(&[value; 3]);
            }
            engine.submit(0, records).unwrap();
            engine.collect(0).unwrap();
            let expected = case.network.scores(&case.tensors, &[0.5; 3]);
            for n in 0..records.min(16) {
                let answer = engine.answer(0, n);
                for (found, expected) in answer.scores.iter().zip(&expected) {
                    let near = (f64::from(found) - expected).abs() <= 1e-4;
                    assert!(
                        near,
                        "{}: record {n} of {records}: {found}, not {expected}",
                        recipe.name
                    );
                }
            }
        }
    }
}

/// An affine layer that reads an image multiplies its padding by 0. Nothing of an earlier record
/// may be there, because 0 times NaN is NaN.
#[test]
fn padding_that_a_layer_reads_holds_nothing_of_earlier_records() {
    // The image is the result of a convolution, of a sum that is part of one, or of steps between.
    let ways: [fn(&mut EdgeGraph) -> usize; 4] = [
        |b| b.layer(0, 20, 3, 1),
        |b| {
            let first = b.layer(0, 20, 1, 1);
            let second = b.layer(0, 20, 3, 1);
            b.sum([first, second], Activation::Relu)
        },
        |b| {
            let first = b.layer(0, 20, 3, 1);
            b.sum([first, first], Activation::Tanh)
        },
        |b| {
            let first = b.layer(0, 20, 3, 1);
            let second = b.layer(first, 20, 1, 1);
            let op = Op::Combine(Arithmetic::Multiply);
            b.push(op, &[first, second], &[]).unwrap()
        },
    ];
    for (lanes, (i, way)) in [16, 8, 4]
        .into_iter()
        .flat_map(|lanes| ways.iter().enumerate().map(move |way| (lanes, way)))
    {
        MOST_LANES.set(lanes);
        let mut b = EdgeGraph::new(Shape { c: 3, h: 3, w: 3 }, 5);
        let image = way(&mut b);
        let flat = b
            .push(Op::Reshape(Shape::vector(180)), &[image], &[])
            .unwrap();
        let hidden = b.affine(flat, 30).unwrap();
        // This result gets the place of the image.
        let large = b.affine(hidden, 300).unwrap();
        let hidden = b.affine(large, 600).unwrap();
        b.affine(hidden, 7).unwrap();
        let case = network(b, Kind::Values, InputOrder::Chw);
        let mut engine = case.host(1);
        let mut scores = |value: f32| -> Vec<f32> {
            engine.record(0, 0).unwrap().fill(&[value; 27]);
            engine.submit(0, 1).unwrap();
            engine.collect(0).unwrap();
            engine.answer(0, 0).scores.iter().collect()
        };
        let what = format!("{lanes} lanes, way {i}");
        let expected = scores(0.5);
        assert!(expected.iter().all(|s| s.is_finite()), "{what}");
        assert!(scores(f32::INFINITY).iter().all(|s| s.is_nan()), "{what}");
        assert_eq!(scores(0.5), expected, "{what}");
    }
    MOST_LANES.set(usize::MAX);
}

/// The rows of a layer may end in the middle of a panel, also where threads share them.
#[test]
fn rows_end_in_the_middle_of_a_panel() {
    for (c, outputs) in [(3, 8), (24, 40), (5, 56), (16, 72)] {
        let mut b = EdgeGraph::new(Shape { c, h: 9, w: 7 }, 5);
        let value = b.layer(0, outputs, 3, 1);
        b.layer(value, 24, 1, 1);
        let what = format!("{c} to {outputs} channels");
        network(b, Kind::Values, InputOrder::Chw).on_the_host(&what);
    }
    // Weights of more than 1 MiB are shared by rows, also with one thread.
    let mut b = EdgeGraph::new(Shape::vector(400), 5);
    let value = b.affine(0, 1000).unwrap();
    b.affine(value, 24).unwrap();
    network(b, Kind::Values, InputOrder::Chw).on_the_host("1000 rows");
}

/// The sum's operands are a transposed value, and the result of a second transposition that changes
/// nothing.
#[test]
fn values_that_are_turned_twice() {
    let mut b = EdgeGraph::new(Shape { c: 16, h: 4, w: 4 }, 5);
    let turned = b
        .push(Op::Transpose([Axis::X, Axis::Y, Axis::C]), &[0], &[])
        .unwrap();
    let same = b
        .push(Op::Transpose([Axis::C, Axis::Y, Axis::X]), &[turned], &[])
        .unwrap();
    b.push(Op::Combine(Arithmetic::Add), &[same, turned], &[])
        .unwrap();
    network(b, Kind::Values, InputOrder::Chw).on_the_host("turned twice");
}

/// The network's output is a sum that is copied for its arg-max. The operand of the sum must have
/// the layout of the sum, not the layout of the copy.
#[test]
fn a_residual_that_is_the_output() {
    for shape in [
        Shape { c: 1, h: 5, w: 5 },
        Shape { c: 1, h: 1, w: 2 },
        Shape { c: 3, h: 2, w: 2 },
    ] {
        for plan in library().plans.iter() {
            let mut b = EdgeGraph::new(shape, 5);
            let arrays = [
                (Role::Weights, shape.c, shape.c),
                (Role::Biases, shape.c, 1),
            ];
            let window = Window::of((1, 1));
            let value = b
                .push(Op::Convolution { window, groups: 1 }, &[0], &arrays)
                .unwrap();
            b.push(Op::Combine(Arithmetic::Add), &[value, 0], &[])
                .unwrap();
            let network = network(b, Kind::Classes, InputOrder::Hwc).network;
            for batch in [None, Some(1), Some(5)] {
                let plan = crate::planner::plan(&network, plan, library(), batch).unwrap();
                assert_eq!(
                    crate::planner::check::check(&plan, &network, library()),
                    Vec::<String>::new(),
                    "{shape}"
                );
            }
        }
    }
}
