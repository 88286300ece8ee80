//! Tests that the interpreter's check accepts every plan of the library, and finds changes in
//! plans.

use super::*;
use crate::baked::{self, library};
use crate::ir::graph::{Graph, Role, Shape, Tensor};
use crate::ir::layout::Layout;
use crate::ir::network::{InputOrder, Kind, Output, Precision, Transform};
use crate::ir::op::{Activation, Arithmetic, Axis, Float, Op, Pool, Window};
use crate::ir::options::{Function, LayerOptions, LayersOptions};
use crate::ir::plan::{BufferRole, Constant, Extent, Placing, Step};
use crate::ir::product::Product;
use crate::ir::taps::{Tap, Taps};
use crate::ir::values;
use crate::ir::view::{Geometry, Moved};
use crate::ops::edges::{EdgeGraph, random, single};
use crate::planner;
use crate::planner::bind::fault::{self, Fault};
use crate::registry::{EngineKind, Operation};
use std::borrow::Cow;

/// A network with the numbers of its arrays, and with golden vectors.
struct Case {
    network: Network,
    tensors: Vec<Vec<f32>>,
    inputs: Vec<f32>,
    scores: Vec<f32>,
}

impl Case {
    fn new(b: EdgeGraph, kind: Kind, weights: Precision) -> Case {
        let baked = baked::network().clone();
        let network = Network {
            width: b.graph.values[0].shape.len(),
            order: InputOrder::Hwc,
            graph: b.graph,
            labels: Vec::new().into(),
            features: Vec::new().into(),
            transform: Transform::Identity,
            output: Output {
                kind,
                ..baked.output
            },
            weights,
            ..baked
        };
        let (mut tensors, mut random) = (b.tensors, b.random);
        values::round(weights, &network.graph, &mut tensors);
        let inputs: Vec<f32> = (0..5 * network.width).map(|_| random.float()).collect();
        let scores = network
            .scores_of_all(&tensors, &inputs)
            .into_iter()
            .flatten();
        let scores = scores.map(|s| s as f32).collect();
        Case {
            network,
            tensors,
            inputs,
            scores,
        }
    }

    /// Returns a case for a graph, with random numbers in its arrays. The array of a resampling has
    /// the taps of [`taps`].
    fn of(graph: Graph, kind: Kind) -> Case {
        let mut b = EdgeGraph::new(graph.values[0].shape, 3);
        let mut numbers = |t: &Tensor| match t.role {
            Role::Taps => taps().node().1,
            _ => {
                let all = 0..t.rows * t.cols;
                all.map(|_| b.random.float()).collect()
            }
        };
        b.tensors = graph.tensors.iter().map(&mut numbers).collect();
        b.graph = graph;
        Case::new(b, kind, Precision::F32)
    }

    fn plan(&self, name: &str, batch: Option<usize>) -> Plan {
        let recipe = library().plan(name).unwrap();
        planner::plan(&self.network, recipe, library(), batch).unwrap()
    }

    fn constants(&self, plan: &Plan) -> Vec<Values> {
        let pack = |c: &Constant| Values::pack(c, &|t| Cow::Borrowed(&self.tensors[t][..]));
        plan.constants.iter().map(pack).collect()
    }

    fn judge(&self, plan: &Plan, constants: &[Values]) -> Result<(), String> {
        let Case {
            network,
            tensors,
            inputs,
            scores,
        } = self;
        let subject = Subject {
            network,
            tensors,
            library: library(),
            plan,
            constants,
        };
        judge(&subject, inputs, scores)
    }
}

/// The batch sizes to test: the plan's own, a single record, and a size that no granule divides.
const BATCHES: [Option<usize>; 3] = [None, Some(1), Some(19)];

/// Checks the plans that all recipes of the library make for a network.
fn judge_all(what: &str, b: EdgeGraph, turn: usize, batches: &[Option<usize>]) {
    let kind = if turn % 2 == 0 {
        Kind::Values
    } else {
        Kind::Classes
    };
    let case = Case::new(b, kind, Precision::ALL[turn % 3]);
    for recipe in library().plans.iter() {
        let separate = library().layer_by_layer(recipe);
        for recipe in [Some(recipe.clone()), separate].iter().flatten() {
            for &batch in batches {
                let plan = planner::plan(&case.network, recipe, library(), batch);
                let plan = plan.unwrap_or_else(|e| panic!("{what}, {}: {e:?}", recipe.name));
                let found = case.judge(&plan, &case.constants(&plan));
                found.unwrap_or_else(|e| panic!("{what}, {}, batch {batch:?}: {e}", recipe.name));
            }
        }
    }
}

#[test]
fn single_nodes_are_right_under_every_plan() {
    for (turn, (name, builder)) in single().into_iter().enumerate() {
        judge_all(name, builder, turn, &BATCHES);
    }
}

#[test]
fn random_graphs_are_right_under_every_plan() {
    for seed in 0..24 {
        judge_all(
            &format!("seed {seed}"),
            random(seed),
            seed as usize,
            &BATCHES,
        );
    }
}

/// The sizes include layers whose sums several work-groups share, pairs of layers in one launch,
/// and whole networks in one launch.
#[test]
fn chains_of_layers_are_right_under_every_plan() {
    let sizes: [&[usize]; 5] = [
        &[64, 32, 10],
        &[784, 1500, 1300, 10],
        &[7, 3],
        &[300, 20, 30, 40, 5],
        &[2000, 33, 17],
    ];
    for (turn, sizes) in sizes.into_iter().enumerate() {
        let build = || {
            let mut b = EdgeGraph::new(Shape::vector(sizes[0]), 5);
            let mut value = 0;
            for (n, pair) in sizes.windows(2).enumerate() {
                let arrays = [
                    (Role::Weights, pair[1], pair[0]),
                    (Role::Biases, pair[1], 1),
                ];
                value = b.push(Op::Affine, &[value], &arrays).unwrap();
                let activation = Activation::FUSED[(n + turn) % 5];
                value = b.push(Op::Activation(activation), &[value], &[]).unwrap();
            }
            b
        };
        // This network is large, so it is checked with fewer weight formats and batches.
        let (precisions, batches) = if turn == 1 {
            (2..3, &BATCHES[..1])
        } else {
            (0..3, &BATCHES[..])
        };
        for precision in precisions {
            judge_all(&format!("{sizes:?}"), build(), turn + precision, batches);
        }
    }
}

const SHAPE: Shape = Shape { c: 3, h: 6, w: 8 };

/// Returns the taps of the resampling in [`images`], which turns 5 × 2 pixels into 4 × 3.
fn taps() -> Taps {
    let axis = |places: &[&[(usize, f32)]]| -> Vec<Vec<Tap>> {
        let tap = |&(position, weight): &(usize, f32)| Tap { position, weight };
        let place = |taps: &&[(usize, f32)]| taps.iter().map(tap).collect();
        places.iter().map(place).collect()
    };
    Taps {
        rows: axis(&[
            &[(4, 0.5), (1, 0.75)],
            &[(2, 1.0)],
            &[(0, -0.5), (3, 2.0)],
            &[(1, 1.0)],
        ]),
        columns: axis(&[&[(1, 1.0)], &[(0, 0.5), (1, 0.25)], &[(0, 1.0)]]),
    }
}

/// Returns an image network. It has different strides in both directions, a scale with two arrays,
/// a concatenation, a residual sum and a resampling.
fn images() -> Case {
    let mut graph = Graph::new(SHAPE);
    let mut window = Window {
        stride: (1, 2),
        ..Window::of((3, 3))
    };
    (
        window.border.top,
        window.border.left,
        window.border.bottom,
        window.border.right,
    ) = (1, 1, 1, 1);
    let convolution = |window: Window| Op::Convolution { window, groups: 1 };
    let arrays = |channels: usize| [(Role::Weights, 5, 9 * channels), (Role::Biases, 5, 1)];
    let value = graph
        .push("first", convolution(window), &[0], &arrays(3))
        .unwrap();
    let value = graph
        .push("bend", Op::Activation(Activation::Tanh), &[value], &[])
        .unwrap();
    let scales = [(Role::Factors, 5, 1), (Role::Biases, 120, 1)];
    let scaled = graph.push("scaled", Op::Scale, &[value], &scales).unwrap();
    window.stride = (1, 1);
    let value = graph
        .push("second", convolution(window), &[scaled], &arrays(5))
        .unwrap();
    let sum = graph
        .push(
            "residual",
            Op::Combine(Arithmetic::Add),
            &[value, scaled],
            &[],
        )
        .unwrap();
    let both = graph
        .push("both", Op::Concat(Axis::Y), &[sum, scaled], &[])
        .unwrap();
    let pool = Op::Pool {
        kind: Pool::Mean,
        window: Window {
            stride: (2, 2),
            ..Window::of((3, 2))
        },
    };
    let value = graph.push("means", pool, &[both], &[]).unwrap();
    let (resample, array) = taps().node();
    let arrays = [(Role::Taps, array.len() / 2, 2)];
    let value = graph.push("resized", resample, &[value], &arrays).unwrap();
    let tanh = Op::Activation(Activation::Tanh);
    let other = graph.push("turned", tanh, &[value], &[]).unwrap();
    let product = Op::Product { transposed: true };
    let value = graph
        .push("product", product, &[value, other], &[])
        .unwrap();
    let n = graph.values[value].shape.len();
    let value = graph
        .push("flat", Op::Reshape(Shape::vector(n)), &[value], &[])
        .unwrap();
    let arrays = [(Role::Weights, 6, n), (Role::Biases, 6, 1)];
    let value = graph.push("last", Op::Affine, &[value], &arrays).unwrap();
    let leaky = Activation::LeakyRelu(Float::new(0.25));
    graph
        .push("leaky", Op::Activation(leaky), &[value], &[])
        .unwrap();
    Case::of(graph, Kind::Values)
}

/// Returns a network of two affine layers that predicts classes.
fn layers() -> Case {
    let mut graph = Graph::new(Shape::vector(20));
    let arrays = [(Role::Weights, 30, 20), (Role::Biases, 30, 1)];
    let value = graph.push("hidden", Op::Affine, &[0], &arrays).unwrap();
    let value = graph
        .push("relu", Op::Activation(Activation::Relu), &[value], &[])
        .unwrap();
    graph
        .push(
            "top",
            Op::Affine,
            &[value],
            &[(Role::Weights, 7, 30), (Role::Biases, 7, 1)],
        )
        .unwrap();
    Case::of(graph, Kind::Classes)
}

/// Returns the first step of the plan with this operation.
fn step(plan: &mut Plan, operation: Operation) -> &mut Step {
    plan.steps
        .to_mut()
        .iter_mut()
        .find(|s| s.operation == operation)
        .unwrap()
}

/// Applies `change` to the arguments of a step in turn, until it accepts one and returns true.
fn argument(step: &mut Step, change: impl Fn(&mut Arg) -> bool) {
    assert!(
        step.args.to_mut().iter_mut().any(change),
        "no such argument"
    );
}

/// A change of a plan: its name, the change itself, and the words that the check's message must
/// contain.
type Change = (&'static str, fn(&mut Plan), &'static [&'static str]);

/// Makes each change in the plan `name`, and tests that the check finds it with the right message.
fn changed(case: &Case, name: &str, batch: Option<usize>, changes: &[Change]) {
    let right = case.plan(name, batch);
    case.judge(&right, &case.constants(&right)).unwrap();
    for (what, change, named) in changes {
        let mut plan = right.clone();
        change(&mut plan);
        assert_ne!(plan, right, "{what}: nothing is changed");
        let said = case
            .judge(&plan, &case.constants(&right))
            .expect_err(&format!("{what}, {name}"));
        for part in *named {
            assert!(
                said.contains(part),
                "{what}, {name}: \"{part}\" is not in: {said}"
            );
        }
        assert!(
            said.contains("golden vector") && said.contains("step "),
            "{what}, {name}: {said}"
        );
    }
}

fn geometry(step: &mut Step, change: impl Fn(&mut Geometry)) {
    argument(step, |a| match a {
        Arg::Geometry(geometry) => {
            change(geometry);
            true
        }
        _ => false,
    });
}

/// Gives the second array of a scale the map of the first array. An earlier planner made this
/// mistake.
fn first_map_for_both(plan: &mut Plan) {
    let scale = step(plan, Operation::Scale);
    let mut maps: Vec<&mut Moved> = Vec::new();
    maps.extend(scale.args.to_mut().iter_mut().filter_map(|a| match a {
        Arg::Moved(m) => Some(m),
        _ => None,
    }));
    maps[1].from = maps[0].from;
}

/// Changes of plans for image networks. They apply to the host engine and to OpenCL devices.
const OF_IMAGES: [Change; 10] = [
    (
        "one map for both arrays",
        first_map_for_both,
        &["scale", "of scaled", "number ", "expected"],
    ),
    (
        "strides of the window in the other order",
        |plan| {
            geometry(step(plan, Operation::Convolution), |g| {
                g.window.stride = (g.window.stride.1, g.window.stride.0);
            });
        },
        &["convolution", "step 0"],
    ),
    (
        "lines as far apart as pixels",
        |plan| {
            geometry(step(plan, Operation::Convolution), |g| {
                g.input.0.line = g.input.0.pixel
            })
        },
        &["convolution", "value bend", "number "],
    ),
    (
        "a window without its border",
        |plan| {
            geometry(step(plan, Operation::Convolution), |g| {
                g.window.border.left = 0
            })
        },
        &["convolution", "value bend", "number "],
    ),
    (
        "another kind of pooling",
        |plan| {
            step(plan, Operation::Pool).options.function = Function::Pool(Pool::Max);
        },
        &["pool", "value means", "number "],
    ),
    (
        "rows moved from elsewhere",
        |plan| {
            argument(step(plan, Operation::Gather), |a| match a {
                Arg::Moved(m) => {
                    m.from.first += 1;
                    true
                }
                _ => false,
            });
        },
        &["gather", "of both"],
    ),
    (
        "two steps in the other order",
        |plan| plan.steps.to_mut().swap(0, 1),
        &["step 0", "of scaled"],
    ),
    (
        "a buffer of another layout",
        |plan| {
            let hidden = plan
                .buffers
                .iter()
                .position(|b| b.role == BufferRole::Hidden)
                .unwrap();
            plan.buffers.to_mut()[hidden].layout = Layout::parse("R_2_2_R").unwrap();
        },
        &["stands as R_2_2_R, the kernel takes"],
    ),
    (
        "two values in the same place",
        |plan| {
            let mut buffers = plan
                .buffers
                .to_mut()
                .iter_mut()
                .filter(|b| b.role == BufferRole::Hidden);
            let first = buffers.next().unwrap().arena;
            let scaled = buffers.next().unwrap();
            assert_ne!(scaled.arena, first);
            scaled.arena = first;
        },
        &["over"],
    ),
    (
        "weights in the place of biases",
        |plan| {
            let affine = step(plan, Operation::Affine);
            let constants: Vec<usize> = (0..affine.args.len())
                .filter(|&i| matches!(affine.args[i], Arg::Constant(_)))
                .collect();
            affine.args.to_mut().swap(constants[0], constants[1]);
        },
        &["affine", "of leaky"],
    ),
];

#[test]
fn changed_steps_of_images_are_found() {
    for plan in ["host", "mali-midgard", "cpu-simd", "adreno"] {
        changed(&images(), plan, Some(24), &OF_IMAGES);
    }
}

/// The check finds wrong offsets, sizes or activations of layers, for a kernel that computes the
/// whole network.
#[test]
fn changed_places_of_constants_are_found() {
    fn options(plan: &mut Plan) -> &mut LayersOptions {
        step(plan, Operation::Layers)
            .options
            .layers
            .as_mut()
            .unwrap()
    }
    fn layer(plan: &mut Plan, n: usize) -> &mut LayerOptions {
        &mut options(plan).each.to_mut()[n]
    }
    let changes: [Change; 6] = [
        (
            "weights",
            |p| layer(p, 1).weights += 1024,
            &["layers", "of top: layer 1"],
        ),
        (
            "biases",
            |p| layer(p, 0).biases += 1024,
            &["layers", "of top: layer 0"],
        ),
        (
            "another activation",
            |p| layer(p, 0).activation = Activation::None,
            &["layers", "value top", "number "],
        ),
        (
            "fewer terms",
            |p| layer(p, 1).terms -= 10,
            &["layers", "value top", "number "],
        ),
        (
            "other columns",
            |p| layer(p, 0).columns += 20,
            &["layers", "of top"],
        ),
        (
            "no classes",
            |p| options(p).classes -= 1,
            &["the class is", "expected"],
        ),
    ];
    for plan in ["mali-midgard", "nvidia-mma"] {
        changed(&layers(), plan, Some(24), &changes[..5]);
    }
    let case = layers();
    let mut plan = case.plan("mali-midgard", Some(24));
    let right = plan.clone();
    // With this change the seventh score gets no class. The check finds it only if a golden vector
    // has that class.
    changes[5].1(&mut plan);
    let sevenths = case
        .scores
        .chunks(7)
        .filter(|s| case.network.class(&wide(s)) == Some(6))
        .count();
    assert_eq!(
        case.judge(&plan, &case.constants(&right)).is_err(),
        sevenths > 0
    );
}

/// The check finds constants that are packed in another layout or order than the plan declares.
#[test]
fn changed_constants_are_found() {
    let case = images();
    for name in ["host", "mali-midgard", "thesis-morton", "nvidia"] {
        let plan = case.plan(name, Some(24));
        let pack = |c: &Constant| Values::pack(c, &|t| Cow::Borrowed(&case.tensors[t][..]));
        for (i, c) in plan.constants.iter().enumerate() {
            let mut constants = case.constants(&plan);
            let mut other = c.clone();
            match (c.role, c.placing) {
                // The columns of the weights are in the order of the value's elements, not of its
                // rows.
                (Role::Weights, Placing::Columns(_)) => other.placing = Placing::Plain,
                (Role::Weights, _) if c.layout != Layout::R => other.layout = Layout::R,
                _ => {}
            }
            constants[i] = pack(&other);
            if let (true, Values::F32(numbers)) = (other == *c, &mut constants[i]) {
                // A tap has a position and a weight, so both are moved together.
                let by = if c.role == Role::Taps { 2 } else { 1 };
                numbers.to_mut().rotate_right(by);
            }
            let said = case
                .judge(&plan, &constants)
                .expect_err(&format!("{name}: {c:?}"));
            let node = &case.network.graph.nodes;
            let node = node.iter().find(|n| n.tensors.contains(&c.tensor)).unwrap();
            let next = case
                .network
                .graph
                .only_consumer(node.output)
                .map(|n| node_name(&case, n));
            let names = [Some(&*node.name), next, Some("residual")];
            let named = names
                .into_iter()
                .flatten()
                .any(|name| said.contains(&format!("value {name} ")));
            assert!(named, "{name}, {} {}: {said}", c.name, c.role.name());
        }
    }
}

fn node_name(case: &Case, node: usize) -> &str {
    &case.network.graph.nodes[node].name
}

/// The scale of a row of byte weights affects only that row's output. The check finds a wrong scale
/// there.
#[test]
fn changed_scales_are_found() {
    for plan in ["host", "mali-midgard", "nvidia-mma", "cpu-simd"] {
        let mut b = EdgeGraph::new(Shape::vector(40), 5);
        b.push(
            Op::Affine,
            &[0],
            &[(Role::Weights, 20, 40), (Role::Biases, 20, 1)],
        )
        .unwrap();
        let case = Case::new(b, Kind::Values, Precision::I8);
        let plan = case.plan(plan, Some(24));
        let mut constants = case.constants(&plan);
        case.judge(&plan, &constants).unwrap();
        let scales = plan
            .constants
            .iter()
            .position(|c| c.scales.is_some())
            .unwrap();
        let Values::F32(numbers) = &mut constants[scales] else {
            panic!("floats")
        };
        // A constant with biases and scales has panels of 16 rows: 16 biases, then 16 scales. This
        // number is the scale of row 17.
        numbers.to_mut()[32 + 16 + 1] *= 1.25;
        let said = case.judge(&plan, &constants).unwrap_err();
        assert!(said.contains("number 17 of value affine[0]"), "{said}");
    }
}

/// The check finds wrong arguments and wrong work-items in every plan for OpenCL devices.
#[test]
fn mistakes_in_binding_are_found() {
    let mut found = [0; 2];
    for case in [images(), layers()] {
        for recipe in library()
            .plans
            .iter()
            .filter(|p| p.engine == EngineKind::OpenCl)
        {
            for made in [Fault::Size, Fault::Operands, Fault::Short] {
                let plan = fault::with(made, || case.plan(&recipe.name, None));
                if plan == case.plan(&recipe.name, None) {
                    continue;
                }
                match case.judge(&plan, &case.constants(&plan)) {
                    Err(said) => {
                        found[usize::from(made == Fault::Short)] += 1;
                        assert!(
                            said.contains("step ") && said.contains("golden vector"),
                            "{said}"
                        );
                    }
                    // The check may pass if the missing work-items compute only padding rows, which
                    // no step reads.
                    Ok(()) => assert_eq!(made, Fault::Short, "{}", recipe.name),
                }
            }
        }
    }
    assert!(found[0] > 35 && found[1] > 8, "{found:?}");
}

/// The check includes the steps for few records, and the last record of each batch.
#[test]
fn steps_for_few_records_are_judged() {
    let case = images();
    let changes: [Change; 2] = [
        (
            "a step for few records",
            |plan| {
                let first = plan.few.unwrap().first;
                geometry(&mut plan.steps.to_mut()[first], |g| {
                    g.window.stride = (1, 1)
                });
            },
            &["convolution_few", "value bend", "of a batch of 4"],
        ),
        (
            "work-items for 20 records",
            |plan| {
                let pool = step(plan, Operation::Pool);
                let Extent::Records { items, .. } = pool.global.1 else {
                    panic!("no records")
                };
                pool.global.1 = Extent::Fixed(items);
            },
            &["pool_packed", "value means", "column 39 of a batch of 40"],
        ),
    ];
    changed(&case, "mali-midgard", Some(40), &changes);
}

/// A large network is checked with one record for each variant of its plan, a small network with
/// several.
#[test]
fn records_are_as_many_as_they_may_cost() {
    let case = images();
    let plan = case.plan("mali-midgard", Some(40));
    let run = |records: usize, columns: &[usize], apart: bool| Run {
        records,
        columns: columns.into(),
        apart,
    };
    assert_eq!(
        runs(&plan, 1 << 30),
        [run(40, &[39], false), run(4, &[3], false)]
    );
    let all = [
        run(40, &[0, 20, 39], false),
        run(4, &[0, 3], false),
        run(5, &[0], true),
        run(1, &[0], true),
    ];
    assert_eq!(runs(&plan, 1000), all);
    let host = case.plan("host", Some(1));
    assert_eq!(runs(&host, 1000), [run(1, &[0], false), run(1, &[0], true)]);
}

/// Returns other arguments to replace `arg` with, and the kind of each change.
fn others(plan: &Plan, arg: Arg) -> Vec<(&'static str, Arg)> {
    let indices = |n: usize, own: usize| (0..n).filter(move |&other| other != own);
    match arg {
        Arg::Size(n) => vec![("size", Arg::Size(n + 4))],
        Arg::Scalar(x) => vec![("scalar", Arg::Scalar(x + 1.0))],
        Arg::Pair((x, y)) => vec![("pair", Arg::Pair((x + 0.25, y - 0.5)))],
        Arg::Buffer(i) => indices(plan.buffers.len(), i)
            .map(|i| ("buffer", Arg::Buffer(i)))
            .collect(),
        Arg::Constant(i) => indices(plan.constants.len(), i)
            .map(|i| ("constant", Arg::Constant(i)))
            .collect(),
        Arg::Geometry(geometry) => {
            let changes: [fn(&mut Geometry); 14] = [
                |g| g.input.0.first += 1,
                |g| g.input.0.pixel += 1,
                |g| g.input.0.line += 1,
                |g| g.output.0.first += 1,
                |g| g.output.0.pixel += 1,
                |g| g.output.0.line += 1,
                |g| g.window.stride.0 += 1,
                |g| g.window.stride.1 += 1,
                |g| g.window.size.0 -= 1,
                |g| g.window.border.top += 1,
                |g| g.input.1.h -= 1,
                |g| g.input.1.w -= 1,
                |g| g.output.1.c -= 1,
                |g| g.input.1.c -= 1,
            ];
            let changed = |change: &fn(&mut Geometry)| {
                let mut other = geometry;
                change(&mut other);
                ("geometry", Arg::Geometry(other))
            };
            changes
                .iter()
                .map(changed)
                .filter(|other| other.1 != arg)
                .collect()
        }
        Arg::Moved(moved) => {
            let changes: [fn(&mut Moved); 4] = [
                |m| m.from.first += 1,
                |m| m.to.first += 1,
                |m| m.from.loops[2].1 += 1,
                |m| m.to.loops[2].1 += 1,
            ];
            let changed = |change: &fn(&mut Moved)| {
                let mut other = moved;
                change(&mut other);
                ("moved", Arg::Moved(other))
            };
            changes.iter().map(changed).collect()
        }
        Arg::Product(product) => {
            let changes: [fn(&mut Product); 12] = [
                |p| p.a.first += 1,
                |p| p.a.steps[0] += 1,
                |p| p.a.steps[1] += 1,
                |p| p.a.steps[2] += 1,
                |p| p.b.first += 1,
                |p| p.b.steps[0] += 1,
                |p| p.b.steps[1] += 1,
                |p| p.b.steps[2] += 1,
                |p| p.groups -= 1,
                |p| p.rows -= 1,
                |p| p.columns -= 1,
                |p| p.terms -= 1,
            ];
            let changed = |change: &fn(&mut Product)| {
                let mut other = product;
                change(&mut other);
                ("product", Arg::Product(other))
            };
            changes.iter().map(changed).collect()
        }
        Arg::Constants => Vec::new(),
    }
}

/// Changes every argument of every step in every plan. The check finds each change, unless the
/// kernel does not use the argument. Examples are the width of a matrix with contiguous columns, or
/// parameters of an activation that has none.
#[test]
fn every_argument_of_a_step_counts() {
    let (mut tried, mut passed) = (0, Vec::new());
    for case in [images(), layers()] {
        for recipe in library().plans.iter() {
            let right = case.plan(&recipe.name, Some(24));
            let constants = case.constants(&right);
            for (i, step) in right.steps.iter().enumerate() {
                for (a, &arg) in step.args.iter().enumerate() {
                    for (what, other) in others(&right, arg) {
                        let mut plan = right.clone();
                        plan.steps.to_mut()[i].args.to_mut()[a] = other;
                        tried += 1;
                        match case.judge(&plan, &constants) {
                            Err(said) => assert!(said.contains("step "), "{said}"),
                            Ok(()) => passed.push((what, recipe, step.clone(), arg, other)),
                        }
                    }
                }
            }
        }
    }
    assert!(
        tried > 6000 && passed.len() < tried / 18,
        "{} of {tried}",
        passed.len()
    );
    for (what, recipe, step, arg, other) in passed {
        let host = recipe.engine == EngineKind::Host;
        let harmless = match what {
            "pair" => step.activation.parameters() == [0.0; 2],
            // The number that a gather kernel fills in goes only to padding rows.
            "scalar" => step.operation == Operation::Gather,
            "geometry" => matches!(
                step.operation,
                Operation::Combine | Operation::Pool | Operation::Resample
            ),
            "moved" => step.operation == Operation::Scale,
            "size" => true,
            // Two buffers in the arena of the host engine may have the same offset.
            "buffer" => host,
            _ => false,
        };
        assert!(
            harmless,
            "{}, {}: {other:?} for {arg:?}",
            recipe.name, step.kernel
        );
    }
}
