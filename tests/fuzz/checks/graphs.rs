//! Random graphs, which are planned and checked, and run on the host and by OpenCL against float64.

use super::{Input, canonical};
use crate::baked::library;
use crate::cl;
use crate::engine::host::HostEngine;
use crate::engine::model::Model;
use crate::engine::opencl::{OpenClEngine, Wanted};
use crate::engine::sources::Sources;
use crate::engine::{Engine, SLOTS};
use crate::ir::graph::{Graph, Role, Shape};
use crate::ir::network::{InputOrder, Kind, Network, Output, Precision, Transform};
use crate::ir::op::{
    Activation, Arithmetic, Axis, Border, Float, OfChannels, Op, Padding, Pool, Window,
};
use crate::ir::values;
use crate::observe::profile::Phases;
use crate::ops::bound::{score_bound, too_close};
use crate::ops::edges::EdgeGraph;
use crate::ops::random::Random;
use crate::planner;
use crate::registry::{EngineKind, PlanRecipe};

/// The largest number of elements in a value. It limits the time of the reference.
const MOST: usize = 2000;

/// A network whose graph the fuzzer chooses, with every operation on any earlier values. Its
/// weights are random.
struct Case {
    network: Network,
    tensors: Vec<Vec<f32>>,
    random: Random,
}

impl Case {
    /// Returns `None` if the choices give no graph.
    fn new(input: &mut Input<'_>) -> Option<Case> {
        let (c, h, w) = match input.below(4) {
            0 => (1 + input.below(70), 1, 1),
            _ => (1 + input.below(20), 1 + input.below(9), 1 + input.below(9)),
        };
        let mut b = EdgeGraph::new(Shape { c, h, w }, u64::from(input.byte()));
        for _ in 0..1 + input.below(12) {
            // An operation that does not fit is left out.
            let _ = add(&mut b, input);
        }
        if b.graph.nodes.is_empty() {
            return None;
        }
        if input.flag() {
            let value = b.graph.values.len() - 1;
            let _ = affine(&mut b, value, 2 + input.below(20));
        }
        let (graph, mut tensors) = needed(&b.graph, &b.tensors);
        let kind = if input.flag() {
            Kind::Classes
        } else {
            Kind::Values
        };
        let baked = crate::baked::network().clone();
        let network = Network {
            width: c * h * w,
            order: if input.flag() {
                InputOrder::Chw
            } else {
                InputOrder::Hwc
            },
            graph,
            labels: Vec::new().into(),
            features: Vec::new().into(),
            transform: Transform::Identity,
            output: Output {
                kind,
                ..baked.output
            },
            weights: [
                Precision::F16,
                Precision::I8,
                Precision::F32,
                Precision::F32,
            ][input.below(4)],
            ..baked
        };
        values::round(network.weights, &network.graph, &mut tensors);
        Some(Case {
            network,
            tensors,
            random: b.random,
        })
    }

    fn text(&self) -> String {
        let shape = |v: usize| self.network.graph.values[v].shape;
        let node = |n: &crate::ir::graph::Node| {
            format!(
                "{} {:?} {:?} -> {}",
                n.name,
                n.op,
                n.inputs,
                shape(n.output)
            )
        };
        let nodes: Vec<String> = self.network.graph.nodes.iter().map(node).collect();
        let Network {
            order,
            weights,
            output,
            ..
        } = &self.network;
        format!(
            "{} {order:?} {weights:?} {:?}: {}",
            self.network.input(),
            output.kind,
            nodes.join("; ")
        )
    }

    /// Returns a record and its scores, each with its largest allowed error. That is the bound plus
    /// the effect of f32 in a network that amplifies small changes. The effect is estimated by
    /// changing each input and weight by up to 2⁻²² of it.
    fn record(&mut self) -> (Vec<f32>, Vec<(f64, f64)>) {
        let record: Vec<f32> = (0..self.network.width)
            .map(|_| self.random.float())
            .collect();
        let raw: Vec<f64> = record.iter().map(|&x| x.into()).collect();
        let scores = self.network.scores(&self.tensors, &raw);
        let mut change = 0.0f64;
        for _ in 0..3 {
            let mut near = |x: f32| x * (1.0 + self.random.float() * (-22f32).exp2());
            let raw: Vec<f64> = record.iter().map(|&x| near(x).into()).collect();
            let tensors: Vec<Vec<f32>> = self
                .tensors
                .iter()
                .map(|numbers| numbers.iter().map(|&x| near(x)).collect())
                .collect();
            let others = self.network.scores(&tensors, &raw);
            change = scores
                .iter()
                .zip(others)
                .fold(change, |most, (score, other)| {
                    most.max((score - other).abs())
                });
        }
        let most = scores
            .iter()
            .fold(1.0, |most: f64, score| most.max(score.abs()));
        // A sum of n terms has n roundings in f32. The operations of these graphs have up to some
        // thousands.
        (
            record,
            scores
                .into_iter()
                .map(|score| (score, score_bound(most) + 64.0 * change))
                .collect(),
        )
    }

    /// Runs batches of several sizes, alternating the slots.
    fn run(&mut self, engine: &mut dyn Engine, what: &str) {
        let most = engine.batch();
        for (turn, records) in [1, most.min(7), 2].into_iter().enumerate() {
            let (records, slot) = (records.min(most), turn % SLOTS);
            let all: Vec<_> = (0..records).map(|_| self.record()).collect();
            for (n, (record, _)) in all.iter().enumerate() {
                engine.record(slot, n).expect("a slot").fill(record);
            }
            engine
                .submit(slot, records)
                .unwrap_or_else(|e| panic!("{what}: {}: {e}", self.text()));
            engine
                .collect(slot)
                .unwrap_or_else(|e| panic!("{what}: {}: {e}", self.text()));
            for (n, (_, expected)) in all.iter().enumerate() {
                let answer = engine.answer(slot, n);
                let found: Vec<f32> = answer.scores.iter().collect();
                assert_eq!(found.len(), expected.len(), "{what}: {}", self.text());
                // Engines may refuse values that f32 cannot hold.
                if expected
                    .iter()
                    .any(|(score, bound)| !(score.abs() < 1e30) || !bound.is_finite())
                {
                    continue;
                }
                for (i, (&found, &(score, bound))) in found.iter().zip(expected).enumerate() {
                    let near = (f64::from(found) - score).abs() <= bound;
                    assert!(
                        near,
                        "{what}: record {n} of {records}, value {i}: {found}, not {score} ± \
                         {bound}: {}",
                        self.text()
                    );
                }
                let scores: Vec<f64> = expected.iter().map(|s| s.0).collect();
                let certain = expected
                    .iter()
                    .all(|(_, bound)| *bound <= 2.0 * score_bound(1.0));
                if let Some(class) = answer.class.filter(|_| certain && !too_close(&scores)) {
                    assert_eq!(
                        Some(class),
                        self.network.class(&scores),
                        "{what}: {}",
                        self.text()
                    );
                }
            }
        }
    }

    fn model(&self, recipe: &PlanRecipe, batch: usize) -> Model {
        let model = Model::new(
            self.network.clone(),
            &self.tensors,
            recipe,
            library(),
            Some(batch),
        );
        model.unwrap_or_else(|why| panic!("{}: {why}: {}", recipe.name, self.text()))
    }
}

/// Adds one or a few operations on existing values.
fn add(b: &mut EdgeGraph, input: &mut Input<'_>) -> Result<usize, String> {
    let count = b.graph.values.len();
    // The last value in most cases, so that chains are longer.
    let pick = |input: &mut Input<'_>| {
        if input.below(4) != 0 {
            count - 1
        } else {
            input.below(count)
        }
    };
    let value = pick(input);
    let shape = b.graph.values[value].shape;
    let axis = |input: &mut Input<'_>| [Axis::C, Axis::Y, Axis::X][input.below(3)];
    match input.below(16) {
        choice @ 0..=3 => {
            let (outputs, window) = (1 + input.below(36), window(shape, input));
            // Other group counts are expanded before planning.
            let (groups, outputs) = if choice == 3 {
                (shape.c, shape.c)
            } else {
                (1, outputs)
            };
            let taps = window.size.0 * window.size.1 * (shape.c / groups);
            let arrays = [(Role::Weights, outputs, taps), (Role::Biases, outputs, 1)];
            push(b, Op::Convolution { window, groups }, &[value], &arrays)
        }
        4 => affine(b, value, 1 + input.below(60)),
        5 => {
            let kind = [Pool::Max, Pool::Mean, Pool::PaddedMean][input.below(3)];
            let ceil = input.flag();
            let window = Window {
                ceil,
                dilation: (1, 1),
                ..window(shape, input)
            };
            push(b, Op::Pool { kind, window }, &[value], &[])
        }
        6 | 7 => push(
            b,
            Op::Activation(Activation::ALL[input.below(Activation::ALL.len())]),
            &[value],
            &[],
        ),
        8 => {
            let n = if input.flag() { shape.c } else { shape.len() };
            match input.flag() {
                true => push(
                    b,
                    Op::Scale,
                    &[value],
                    &[(Role::Factors, n, 1), (Role::Biases, n, 1)],
                ),
                false => push(b, Op::PRelu, &[value], &[(Role::Factors, n, 1)]),
            }
        }
        9 | 10 => {
            let arithmetic = Arithmetic::ALL[input.below(4)];
            // A value of the same shape, or with one number per channel.
            let fits = |v: &usize| {
                let other = b.graph.values[*v].shape;
                other == shape
                    || other
                        == Shape {
                            c: shape.c,
                            h: 1,
                            w: 1,
                        }
            };
            let others: Vec<usize> = (0..count).filter(fits).collect();
            let mut other = others[input.below(others.len())];
            if arithmetic == Arithmetic::Divide {
                // Keeps the divisor away from zero.
                let gentle = Activation::Clip {
                    low: Float::new(0.5),
                    high: Float::new(2.0),
                };
                other = push(b, Op::Activation(gentle), &[other], &[])?;
            }
            push(b, Op::Combine(arithmetic), &[value, other], &[])
        }
        11 => {
            let axis = axis(input);
            let values: Vec<usize> = (0..1 + input.below(4))
                .map(|_| pick(input))
                .chain([value])
                .collect();
            push(b, Op::Concat(axis), &values, &[])
        }
        12 => {
            let axis = axis(input);
            let all = shape.along(axis);
            let first = input.below(all.min(256));
            push(
                b,
                Op::Slice {
                    axis,
                    first,
                    size: 1 + input.below((all - first).min(256)),
                },
                &[value],
                &[],
            )
        }
        13 => {
            let mut border = || input.below(3);
            let border = Border {
                top: border(),
                left: border(),
                bottom: border(),
                right: border(),
            };
            let value_of = [0.0, 0.25, -1.0][input.below(3)];
            push(
                b,
                Op::Pad {
                    padding: Padding::of_border(border),
                    value: Float::new(value_of),
                },
                &[value],
                &[],
            )
        }
        14 => {
            let n = shape.len();
            let c = (1..=n)
                .filter(|c| n % c == 0)
                .nth(input.below(8))
                .unwrap_or(n);
            let h = (1..=n / c)
                .filter(|h| (n / c) % h == 0)
                .nth(input.below(4))
                .unwrap_or(1);
            push(b, Op::Reshape(Shape { c, h, w: n / c / h }), &[value], &[])
        }
        _ => match input.below(8) {
            0 => push(b, Op::OfChannels(OfChannels::Softmax), &[value], &[]),
            1 => push(b, Op::OfChannels(OfChannels::LogSoftmax), &[value], &[]),
            n => {
                let (c, y, x) = (Axis::C, Axis::Y, Axis::X);
                let axes = [
                    [c, y, x],
                    [c, x, y],
                    [y, c, x],
                    [y, x, c],
                    [x, c, y],
                    [x, y, c],
                ][n - 2];
                push(b, Op::Transpose(axes), &[value], &[])
            }
        },
    }
}

/// Adds an operation and returns its value, unless it is too large.
fn push(
    b: &mut EdgeGraph,
    op: Op,
    inputs: &[usize],
    arrays: &[(Role, usize, usize)],
) -> Result<usize, String> {
    let shapes: Vec<Shape> = inputs.iter().map(|&v| b.graph.values[v].shape).collect();
    let sizes: Vec<(usize, usize)> = arrays.iter().map(|a| (a.1, a.2)).collect();
    let weights: usize = sizes.iter().map(|(rows, cols)| rows * cols).sum();
    if op.shape(&shapes, &sizes)?.len() > MOST || weights > 10 * MOST {
        return Err("too large".into());
    }
    b.push(op, inputs, arrays)
}

fn affine(b: &mut EdgeGraph, value: usize, outputs: usize) -> Result<usize, String> {
    let inputs = b.graph.values[value].shape.len();
    push(
        b,
        Op::Affine,
        &[value],
        &[(Role::Weights, outputs, inputs), (Role::Biases, outputs, 1)],
    )
}

fn window(shape: Shape, input: &mut Input<'_>) -> Window {
    let size = (
        1 + input.below(shape.h.min(5)),
        1 + input.below(shape.w.min(5)),
    );
    let mut window = Window {
        stride: (1 + input.below(3), 1 + input.below(3)),
        ..Window::of(size)
    };
    if input.flag() {
        window.dilation = (1 + input.below(2), 1 + input.below(2));
    }
    if input.flag() {
        window.border = Border {
            top: input.below(size.0),
            left: input.below(size.1),
            bottom: input.below(size.0),
            right: input.below(size.1),
        };
    }
    window
}

/// Returns the nodes that the output needs, with their arrays. Front ends drop all others.
fn needed(graph: &Graph, tensors: &[Vec<f32>]) -> (Graph, Vec<Vec<f32>>) {
    let mut wanted = vec![false; graph.values.len()];
    wanted[graph.outputs[0]] = true;
    for node in graph.nodes.iter().rev() {
        if wanted[node.output] {
            node.inputs.iter().for_each(|&v| wanted[v] = true);
        }
    }
    let (mut kept, mut numbers) = (Graph::new(graph.values[0].shape), Vec::new());
    let mut place = vec![0; graph.values.len()];
    for node in graph.nodes.iter().filter(|node| wanted[node.output]) {
        let inputs: Vec<usize> = node.inputs.iter().map(|&v| place[v]).collect();
        let arrays: Vec<(Role, usize, usize)> = node
            .tensors
            .iter()
            .map(|&i| {
                (
                    graph.tensors[i].role,
                    graph.tensors[i].rows,
                    graph.tensors[i].cols,
                )
            })
            .collect();
        let value = kept.push(node.name.clone(), node.op, &inputs, &arrays);
        place[node.output] = value.expect("it was a node before");
        numbers.extend(node.tensors.iter().map(|&i| tensors[i].clone()));
    }
    (kept, numbers)
}

fn recipes(engine: EngineKind) -> Vec<&'static PlanRecipe> {
    library()
        .plans
        .iter()
        .filter(|plan| plan.engine == engine)
        .collect()
}

/// Plans under a plan of the library, in batches of any size. The checker must accept the plan, and
/// it must read back from its bytes.
pub fn planner(data: &[u8]) {
    let mut input = Input(data);
    let recipe = &library().plans[input.below(library().plans.len())];
    let batch = [
        None,
        Some(1),
        Some(2),
        Some(5),
        Some(16),
        Some(17),
        Some(100),
        Some(256),
    ][input.below(8)];
    let Some(case) = Case::new(&mut input) else {
        return;
    };
    match planner::plan(&case.network, recipe, library(), batch) {
        Ok(plan) => {
            let wrong = planner::check::check(&plan, &case.network, library());
            assert!(wrong.is_empty(), "{}: {}", wrong.join("\n"), case.text());
            assert!(plan.arena_bound <= plan.arena_bytes, "{}", case.text());
            canonical(&plan);
        }
        Err(why) => panic!("{}: {}: {}", recipe.name, why.join("\n"), case.text()),
    }
    canonical(&case.network);
}

/// Compares the host engine with float64.
pub fn host(data: &[u8]) {
    let mut input = Input(data);
    let recipes = recipes(EngineKind::Host);
    let recipe = recipes[input.below(recipes.len())];
    let (threads, batch) = (
        if input.below(16) == 0 { 2 } else { 1 },
        1 + input.below(40),
    );
    let Some(mut case) = Case::new(&mut input) else {
        return;
    };
    let model = case.model(recipe, batch);
    let mut engine =
        HostEngine::new(model, threads, false).unwrap_or_else(|e| panic!("{e}: {}", case.text()));
    case.run(&mut engine, &recipe.name);
}

/// Compares the first OpenCL device with float64.
pub fn opencl(data: &[u8]) {
    let mut input = Input(data);
    let recipes = recipes(EngineKind::OpenCl);
    let recipe = recipes[input.below(recipes.len())];
    let batch = 1 + input.below(40);
    let Some(mut case) = Case::new(&mut input) else {
        return;
    };
    let all = cl::devices(cl::ClLibrary::open().expect("an OpenCL library")).expect("devices");
    let model = case.model(recipe, batch);
    let wanted = Wanted {
        scores: true,
        classes: true,
    };
    let sources = Sources::default().uncached();
    let engine = OpenClEngine::new(
        &all.devices[0],
        &model,
        wanted,
        false,
        &sources,
        &mut Phases::default(),
    );
    case.run(
        &mut engine.unwrap_or_else(|e| panic!("{}: {e}: {}", recipe.name, case.text())),
        &recipe.name,
    );
}
