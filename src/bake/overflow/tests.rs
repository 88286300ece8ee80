use super::*;
use crate::bake::draft::{Array, Draft};
use crate::bake::passes;
use crate::baked::library;
use crate::engine::host::HostEngine;
use crate::engine::model::{Model, recipe};
use crate::engine::{Answer, Engine, Record, RecordMut, selftest};
use crate::error::Error;
use crate::ir::graph::{Graph, Role, Shape};
use crate::ir::network::{InputOrder, Kind, Output, Transform};
use crate::ir::op::Window;
use crate::ir::taps::{Tap, Taps};
use crate::ops::random::Random;
use crate::registry::EngineKind;

fn network(layers: &[(usize, usize)], activation: Activation) -> Network {
    let mut graph = Graph::new(Shape::vector(layers[0].1));
    let mut value = 0;
    for (i, &(outputs, inputs)) in layers.iter().enumerate() {
        if i > 0 {
            value = graph
                .push("activation", Op::Activation(activation), &[value], &[])
                .unwrap();
        }
        let arrays = [(Role::Weights, outputs, inputs), (Role::Biases, outputs, 1)];
        value = graph.push("affine", Op::Affine, &[value], &arrays).unwrap();
    }
    Network {
        width: layers[0].1,
        graph,
        transform: Transform::Identity,
        ..crate::baked::network().clone()
    }
}

fn constants(layers: &[&[&[f32]]]) -> Vec<Vec<f32>> {
    layers
        .iter()
        .flat_map(|rows| [rows.concat(), vec![0.0; rows.len()]])
        .collect()
}

/// A record that overflows, and its effect on the sums of the network.
#[derive(Debug, PartialEq)]
struct Found {
    record: Vec<f32>,
    verdict: Verdict,
}

fn found(network: &Network, tensors: &[Vec<f32>]) -> Vec<Found> {
    let all = records(network, tensors);
    let layers = layers(network, tensors).unwrap();
    let judged = |record: &[f32]| Found {
        record: record.to_vec(),
        verdict: judge(network, &layers, record),
    };
    all.chunks_exact(network.width).map(judged).collect()
}

#[test]
fn a_record_overflows_where_only_the_activation_shows_it() {
    for activation in [Activation::Relu, Activation::Sigmoid, Activation::Tanh] {
        let n = network(&[(2, 2), (3, 2)], activation);
        let w = constants(&[
            &[&[10.0, 10.0], &[0.1, -0.1]],
            &[&[1.0, 0.1], &[2.0, 0.1], &[3.0, 0.1]],
        ]);
        let found = found(&n, &w);
        assert_eq!(found.len(), 1, "{activation:?}");
        assert_eq!(
            found[0].verdict,
            Verdict {
                overflows: true,
                by_activation_only: true
            }
        );
        let sum = found[0]
            .record
            .iter()
            .map(|&x| 10.0 * f64::from(x))
            .sum::<f64>();
        assert!(sum < -LARGEST && sum > -1.02 * LARGEST, "{sum:e}");
    }
}

#[test]
fn deeper_layers_are_reached_through_relu_only() {
    // The first layer cannot overflow, because its weights are small.
    let w = constants(&[
        &[&[0.3, 0.3], &[0.4, -0.4]],
        &[&[-4.0, 1.0], &[0.5, 0.5]],
        &[&[1.0, 1.0]],
    ]);
    let relu = network(&[(2, 2), (2, 2), (1, 2)], Activation::Relu);
    let records = found(&relu, &w);
    assert!(
        records.len() == 1 && records[0].verdict.by_activation_only,
        "{records:?}"
    );
    for bounded in [Activation::Sigmoid, Activation::Tanh] {
        assert_eq!(found(&network(&[(2, 2), (2, 2), (1, 2)], bounded), &w), []);
    }
}

#[test]
fn none_where_none_can_overflow_and_a_plain_one_where_it_shows_anyway() {
    let small = constants(&[&[&[0.5, 0.4]], &[&[0.5]]]);
    assert_eq!(
        found(&network(&[(1, 2), (1, 1)], Activation::Relu), &small),
        []
    );
    // In this network only the scores can overflow, so activations cannot hide the overflow.
    let n = network(&[(1, 2), (1, 1)], Activation::Relu);
    let records = found(&n, &constants(&[&[&[0.5, 0.4]], &[&[3.0]]]));
    assert_eq!(records.len(), 1);
    assert_eq!(
        records[0].verdict,
        Verdict {
            overflows: true,
            by_activation_only: false
        }
    );
    // The search includes the scaling of the input. It decides if this network can overflow.
    for (scale, some) in [(1e-3, false), (1e3, true)] {
        let transform = Transform::ScaleOffset {
            scale: vec![scale].into(),
            offset: vec![1.0].into(),
        };
        let n = Network {
            transform,
            ..network(&[(1, 2), (1, 1)], Activation::Relu)
        };
        let records = found(&n, &constants(&[&[&[5.0, 4.0]], &[&[1.0]]]));
        assert_eq!(records.len(), usize::from(some), "{scale}");
        assert!(records.iter().all(|r| r.verdict.by_activation_only));
    }
}

/// Returns a random chain of layers with weights of usual size, after the passes. If `images` is
/// true, it begins with one or two convolutions. A convolution as large as the image becomes an
/// affine layer.
fn ordinary(random: &mut Random, images: bool) -> (Network, Vec<Vec<f32>>) {
    let size = 1 + random.below(6);
    let input = if images {
        Shape {
            c: 1 + random.below(3),
            h: size,
            w: size,
        }
    } else {
        Shape::vector(1 + random.below(40))
    };
    let (mut draft, mut value) = (Draft::new(input), 0);
    let activations = [
        Activation::Relu,
        Activation::Relu,
        Activation::LeakyRelu(Float::new(0.1)),
        Activation::Tanh,
        Activation::Sigmoid,
    ];
    let activation = activations[random.below(activations.len())];
    let (layers, spread) = (
        1 + random.below(4),
        0.3 + 2.0 * f64::from(random.float()).abs(),
    );
    for layer in 0..layers {
        if layer > 0 {
            value = draft
                .push(
                    "activation",
                    Op::Activation(activation),
                    &[value],
                    Vec::new(),
                )
                .unwrap();
        }
        let (shape, outputs) = (draft.shape(value), 1 + random.below(24));
        let convolves = images && layer < 2 && shape.h > 1 && random.below(4) > 0;
        let side = if random.below(2) == 0 {
            shape.h
        } else {
            1 + random.below(shape.h)
        };
        let window = Window::of((side, side.min(shape.w)));
        let (op, inputs) = match convolves {
            true => (
                Op::Convolution { window, groups: 1 },
                shape.c * window.size.0 * window.size.1,
            ),
            false => (Op::Affine, shape.len()),
        };
        let scale = spread * (3.0 / inputs as f64).sqrt();
        let mut numbers = |n: usize, scale: f64| {
            (0..n)
                .map(|_| f64::from(random.float()) * scale)
                .collect::<Vec<f64>>()
        };
        let arrays = Array::of_layer(numbers(outputs * inputs, scale), numbers(outputs, 0.2));
        value = draft.push("layer", op, &[value], arrays).unwrap();
    }
    let (draft, transform) = passes::run(draft, Transform::Identity, InputOrder::Chw).unwrap();
    let tensors = draft.rounded();
    let baked = crate::baked::network().clone();
    let output = Output {
        kind: Kind::Classes,
        ..baked.output
    };
    let none = || Vec::new().into();
    let network = Network {
        width: input.len(),
        graph: draft.graph,
        transform,
        output,
        order: InputOrder::Chw,
        labels: none(),
        features: none(),
        ..baked
    };
    (network, tensors)
}

/// An engine that answers with ordinary scores where records overflow, like a device without
/// infinities.
struct Forgets {
    engine: HostEngine,
    scores: Vec<f32>,
    rows: Vec<u32>,
}

impl Engine for Forgets {
    fn batch(&self) -> usize {
        self.engine.batch()
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        self.engine.record(slot, index)
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        self.engine.submit(slot, records)
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        self.engine.collect(slot)
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        match self.engine.answer(slot, index) {
            lost if lost.overflowed() => Answer {
                class: Some(0),
                scores: Record::new(&self.scores, &self.rows, 0),
            },
            answer => answer,
        }
    }
}

/// Returns true if a sum leaves the range of f32. The terms are added from the first on, or with
/// `backwards` from the last on.
fn leaves_the_range(layers: &[ChainLayer<'_>], raw: &[f32], backwards: bool) -> bool {
    let mut values = raw.to_vec();
    for layer in layers {
        match *layer {
            ChainLayer::Affine {
                inputs,
                weights,
                biases,
            } => {
                let sum = |(row, &b): (&[f32], &f32)| {
                    let terms: Vec<f32> = row.iter().zip(&values).map(|(w, x)| w * x).collect();
                    let add = |sum: f32, x: &f32| sum + x;
                    if backwards {
                        terms.iter().rev().fold(b, add)
                    } else {
                        terms.iter().fold(b, add)
                    }
                };
                values = weights.chunks_exact(inputs).zip(biases).map(sum).collect();
            }
            ChainLayer::Activation(a) => values
                .iter_mut()
                .for_each(|x| *x = a.apply(f64::from(*x)) as f32),
        }
        if values.iter().any(|x| !x.is_finite()) {
            return true;
        }
    }
    false
}

/// Checks that random networks pass their own self-test. A network with a record that overflows
/// must fail it on a device that loses the overflow. Returns the number of networks with such a
/// record.
fn self_tests(seed: u64, count: usize) -> usize {
    let (mut random, mut with) = (Random::new(seed), 0);
    for n in 0..count {
        let (network, tensors) = ordinary(&mut random, n % 3 == 0);
        let inputs: Vec<f32> = (0..4 * network.width).map(|_| random.float()).collect();
        let overflow = records(&network, &tensors);
        if let Some(layers) = layers(&network, &tensors) {
            for record in overflow.chunks_exact(network.width) {
                for backwards in [false, true] {
                    assert!(
                        leaves_the_range(&layers, record, backwards),
                        "seed {seed}, network {n}: {record:?}"
                    );
                }
            }
        }
        let scores = crate::bake::golden::scores_of(&network, &tensors, &inputs);
        let golden = crate::baked::Golden {
            count: 4,
            inputs: inputs.leak(),
            scores: scores.leak(),
            overflow: overflow.leak(),
        };
        let engine = || {
            let recipe = recipe("host", EngineKind::Host).unwrap();
            let model = Model::new(network.clone(), &tensors, recipe, library(), Some(9)).unwrap();
            HostEngine::new(model, 1, false).unwrap()
        };
        let report = selftest::run(&mut engine(), &network, &golden).unwrap();
        assert!(
            report.passed(),
            "seed {seed}, network {n} of {}: {report}",
            network.shape()
        );
        if golden.overflow.is_empty() {
            continue;
        }
        with += 1;
        let outputs = network.outputs();
        let mut forgets = Forgets {
            engine: engine(),
            scores: vec![0.0; outputs],
            rows: (0..outputs as u32).collect(),
        };
        let report = selftest::run(&mut forgets, &network, &golden).unwrap();
        let all = 2 * golden.overflow.len() / network.width;
        assert!(
            !report.passed() && report.lost == all,
            "seed {seed}, network {n}: {report}"
        );
        assert!(
            report
                .to_string()
                .contains(&format!("lost an overflow: {all} of {all} ")),
            "{report}"
        );
    }
    with
}

/// Inputs whose size is at most the result of `reach` cause no overflow, whatever their signs.
#[test]
fn sums_stay_in_range_up_to_the_size_that_is_given() {
    for (weights, expected) in [
        ([0.5, 0.25], f32::MAX),
        ([1.0, -1.0], 1.6e38),
        ([-2e38, 1.0], 1.6),
        ([3e38, 3e38], 0.55),
    ] {
        let tensors = constants(&[&[&weights]]);
        let n = network(&[(1, 2)], Activation::Relu);
        assert_eq!(reach(&n, &tensors), expected, "{weights:?}");
    }
    // The next networks have two layers, a bias, or a scaling of the input.
    let n = network(&[(1, 1), (1, 1)], Activation::Relu);
    assert_eq!(reach(&n, &constants(&[&[&[1e20]], &[&[1e15]]])), 3300.0);
    let mut biased = constants(&[&[&[1.0]]]);
    biased[1] = vec![1.55e38];
    assert_eq!(
        reach(&network(&[(1, 1)], Activation::Relu), &biased),
        1.7e38
    );
    let transform = Transform::ScaleOffset {
        scale: vec![1e-3].into(),
        offset: vec![0.0].into(),
    };
    let n = Network {
        transform,
        ..network(&[(1, 1)], Activation::Relu)
    };
    assert_eq!(reach(&n, &constants(&[&[&[1e30]]])), 3.3e11);
    // In this network a sum overflows for any input, so no bound is known.
    let mut never = constants(&[&[&[1.0, 1.0]]]);
    never[0] = vec![f32::MAX, f32::MAX];
    never[1] = vec![f32::MAX];
    assert_eq!(reach(&network(&[(1, 2)], Activation::Relu), &never), 0.0);
    let (mut random, mut some) = (Random::new(7), 0);
    for i in 0..200 {
        let (network, tensors) = ordinary(&mut random, i % 2 == 0);
        let reach = reach(&network, &tensors);
        assert!(reach > 1.0, "{reach}");
        some += usize::from(reach < f32::MAX);
        for _ in 0..4 {
            let sign = |x: f32| if x < 0.0 { -reach } else { reach };
            let record: Vec<f32> = (0..network.width).map(|_| sign(random.float())).collect();
            let scores = network.scores_of_all(&tensors, &record);
            assert!(
                scores.iter().flatten().all(|s| s.is_finite()),
                "{i}: {reach}"
            );
        }
    }
    assert!(some > 100, "{some}");
}

/// A resampling can increase the size of its operand by the factor Σ |weight|.
#[test]
fn sums_of_resamplings_stay_in_range() {
    let taps = |all: &[f32]| -> Vec<Vec<Tap>> {
        let tap = |(position, &weight)| Tap { position, weight };
        vec![all.iter().enumerate().map(tap).collect()]
    };
    let (op, array) = Taps {
        rows: taps(&[2.0]),
        columns: taps(&[1.5, -0.5]),
    }
    .node();
    let mut draft = Draft::new(Shape { c: 2, h: 1, w: 2 });
    let tensors = [array.clone()];
    let arrays = vec![Array::taps(array)];
    draft.push("resized", op, &[0], arrays).unwrap();
    let n = Network {
        width: 4,
        graph: draft.graph,
        transform: Transform::Identity,
        ..crate::baked::network().clone()
    };
    // The largest sum is four times as large as the inputs: 2 · (1.5 + 0.5).
    assert_eq!(reach(&n, &tensors), 8.2e37);
    assert_eq!(partial(&n, &tensors, &[8e37; 4]), None);
    let PartialSum { node, .. } = partial(&n, &tensors, &[9e37; 4]).unwrap();
    assert_eq!(node, "resized");
}

/// Each term of a product of two values is the product of two inputs, so its size grows with the
/// square of the inputs.
#[test]
fn sums_of_products_stay_in_range() {
    let mut draft = Draft::new(Shape { c: 2, h: 2, w: 3 });
    let product = Op::Product { transposed: true };
    draft.push("scores", product, &[0, 0], Vec::new()).unwrap();
    let n = Network {
        width: 12,
        graph: draft.graph,
        transform: Transform::Identity,
        ..crate::baked::network().clone()
    };
    // The sum of three squares of 1.04e19, increased by 3 % for rounding, reaches the limit of f32.
    assert_eq!(reach(&n, &[]), 1.0e19);
    assert_eq!(partial(&n, &[], &[1e19; 12]), None);
    let PartialSum { node, .. } = partial(&n, &[], &[1.1e19; 12]).unwrap();
    assert_eq!(node, "scores");
}

/// A sum that is small in the end overflows on the way if its terms are large and are added in some
/// order.
#[test]
fn sums_that_overflow_on_the_way_are_found() {
    let n = network(&[(1, 2), (1, 1)], Activation::Relu);
    let tensors = constants(&[&[&[2e38, -2e38]], &[&[1.0]]]);
    assert_eq!(partial(&n, &tensors, &[0.5, 0.5]), None);
    let PartialSum { node, size } = partial(&n, &tensors, &[1.0, 1.0]).unwrap();
    assert!(
        node == "affine" && (4.0e38..4.2e38).contains(&size),
        "{node} {size}"
    );
}

#[test]
fn networks_with_ordinary_weights_pass_their_self_test() {
    assert!(self_tests(1, 300) > 50);
}

#[test]
#[ignore = "long: 1200 networks"]
fn a_thousand_networks_pass_their_self_test() {
    let with: usize = (2..10).map(|seed| self_tests(seed, 150)).sum();
    assert!(with > 200, "{with}");
}
