//! Tests that plans of many graphs are correct under every recipe, and that the checker finds
//! changes to them.

use super::bind;
use super::check::check;
use super::fit::{LARGE, Memory, grow, modelled_us};
use super::tiles::{self, TileSize};
use super::{DEVICE_BYTES, HOST_BYTES, plan};
use crate::baked::{library, network};
use crate::ir::graph::{COLUMN_OF_ZEROS, Graph, MOST_VALUES, Role, Shape};
use crate::ir::layout::Layout;
use crate::ir::network::{InputOrder, Kind, Network, Precision};
use crate::ir::op::{
    Activation, Arithmetic, Axis, Float, Math, OfChannels, Op, Padding, Pool, Window,
};
use crate::ir::options::{Function, Places};
use crate::ir::plan::{Arg, BufferRole, Extent, Placing, Plan, SLOTS, Step};
use crate::ir::view::{Geometry, Image, Moved, RowMap};
use crate::ops::edges::{random, single};
use crate::registry::{EngineKind, Kernel, Operation, PlanRecipe, Problem};

fn of(graph: Graph, kind: Kind) -> Network {
    let mut network = Network {
        width: graph.values[0].shape.len(),
        order: InputOrder::Chw,
        graph,
        labels: Vec::new().into(),
        features: Vec::new().into(),
        ..network().clone()
    };
    network.output.kind = kind;
    network
}

/// Returns a network of one 3 × 3 convolution with a border, from `c` to `c` channels, on an image
/// of `size` × `size` pixels.
fn convolution(c: usize, size: usize) -> Network {
    let mut graph = Graph::new(Shape {
        c,
        h: size,
        w: size,
    });
    let mut window = Window::of((3, 3));
    (
        window.border.top,
        window.border.left,
        window.border.bottom,
        window.border.right,
    ) = (1, 1, 1, 1);
    let arrays = [(Role::Weights, c, 9 * c), (Role::Biases, c, 1)];
    graph
        .push(
            "convolution",
            Op::Convolution { window, groups: 1 },
            &[0],
            &arrays,
        )
        .unwrap();
    of(graph, Kind::Values)
}

/// The checker finds no mistake in the plans. Batch, arena and number of operations have the
/// expected size.
#[test]
fn graphs_have_right_plans_under_every_recipe() {
    let mut graphs: Vec<Graph> = single()
        .into_iter()
        .map(|(_, builder)| builder.graph)
        .collect();
    graphs.extend((0..20).map(|seed| random(seed).graph));
    for (i, graph) in graphs.into_iter().enumerate() {
        let network = of(
            graph,
            if i % 2 == 0 {
                Kind::Classes
            } else {
                Kind::Values
            },
        );
        for recipe in library().plans.iter() {
            let found = plan(&network, recipe, library(), None);
            let found = found.unwrap_or_else(|e| panic!("graph {i}, {}: {e:?}", recipe.name));
            assert_eq!(
                check(&found, &network, library()),
                Vec::<String>::new(),
                "graph {i}, {}",
                recipe.name
            );
            assert_eq!(found.batch, recipe.batch, "graph {i}, {}", recipe.name);
            assert!(
                found.arena_bound <= found.arena_bytes,
                "graph {i}, {}",
                recipe.name
            );
            // Steps may add floating-point operations for single elements, but none to the sums of
            // products.
            let flop: u64 = found.full().iter().map(|s| s.flop).sum();
            assert!(
                flop >= of_products(&network.graph),
                "graph {i}, {}",
                recipe.name
            );
        }
    }
}

/// Only the first step that writes to a matrix may fill rows without a source. A later step would
/// erase rows of earlier ones.
#[test]
fn moved_rows_do_not_drive_out_others() {
    let mut later = 0;
    for (name, builder) in single() {
        let network = of(builder.graph, Kind::Values);
        for recipe in library().plans.iter() {
            let plan = plan(&network, recipe, library(), Some(24)).unwrap();
            let mut written: Vec<Arg> = Vec::new();
            for step in plan
                .full()
                .iter()
                .filter(|s| s.operation == Operation::Gather)
            {
                let moved = |a: &Arg| {
                    if let Arg::Moved(m) = *a {
                        Some(m)
                    } else {
                        None
                    }
                };
                let moved = step.args.iter().find_map(moved).unwrap();
                let result = *step.args.last().unwrap();
                if written.contains(&result) {
                    later += 1;
                    assert_eq!(moved.filled, 0, "{name}, {}", recipe.name);
                }
                written.push(result);
            }
        }
    }
    assert!(later > 20, "{later}");
}

/// Different operations compile to different programs.
#[test]
fn operations_that_differ_have_other_programs() {
    let shape = Shape { c: 5, h: 4, w: 6 };
    let (window, arrays) = (
        Window::of((2, 2)),
        [(Role::Factors, 5, 1), (Role::Biases, 5, 1)],
    );
    let pool = |kind| (Op::Pool { kind, window }, &[0][..], &[][..]);
    let combine = |arithmetic| (Op::Combine(arithmetic), &[0, 1][..], &[][..]);
    let softmax = |of| (Op::OfChannels(of), &[0][..], &[][..]);
    let groups = [
        [Pool::Max, Pool::Mean, Pool::PaddedMean].map(pool).to_vec(),
        Arithmetic::ALL.map(combine).to_vec(),
        [OfChannels::Softmax, OfChannels::LogSoftmax]
            .map(softmax)
            .to_vec(),
        vec![
            (Op::Scale, &[0][..], &arrays[..]),
            (Op::PRelu, &[0], &arrays[..1]),
        ],
    ];
    for group in groups {
        for recipe in library()
            .plans
            .iter()
            .filter(|p| p.engine == EngineKind::OpenCl)
        {
            let mut found = Vec::new();
            for (op, inputs, arrays) in &group {
                let mut graph = Graph::new(shape);
                // No kernel fuses a GELU with the operation behind it.
                graph
                    .push("before", Op::Activation(Activation::Gelu), &[0], &[])
                    .unwrap();
                graph.push("it", *op, inputs, arrays).unwrap();
                let plan = plan(&of(graph, Kind::Values), recipe, library(), Some(24)).unwrap();
                // An element-wise division would also divide the padding by 0.
                let alike = plan.steps.iter().any(|s| s.options.places == Places::Alike);
                assert!(
                    !alike || *op != Op::Combine(Arithmetic::Divide),
                    "{}",
                    recipe.name
                );
                let programs: Vec<(String, String)> = plan
                    .steps
                    .iter()
                    .map(|s| super::fit::program(&plan, s, library()))
                    .collect();
                assert!(!found.contains(&programs), "{op:?}, {}", recipe.name);
                found.push(programs);
            }
        }
    }
}

/// A kernel for PReLU gets its slopes twice, because a PReLU has no summands. In a variant for few
/// records, the slopes are already among the constants of the full plan.
#[test]
fn arguments_are_as_large_as_kernels_take_them() {
    for recipe in library()
        .plans
        .iter()
        .filter(|p| p.engine == EngineKind::OpenCl)
    {
        let mut graph = Graph::new(Shape::vector(39));
        let value = graph
            .push("prelu", Op::PRelu, &[0], &[(Role::Factors, 39, 1)])
            .unwrap();
        graph
            .push(
                "affine",
                Op::Affine,
                &[value],
                &[(Role::Weights, 2, 39), (Role::Biases, 2, 1)],
            )
            .unwrap();
        let network = of(graph, Kind::Values);
        let plan = plan(&network, recipe, library(), Some(24)).unwrap();
        assert_eq!(check(&plan, &network, library()), Vec::<String>::new());
        for step in plan
            .steps
            .iter()
            .filter(|s| s.operation == Operation::Scale)
        {
            let constants = step.args.iter().filter_map(|a| match *a {
                Arg::Constant(i) => Some(&*plan.constants[i].name),
                _ => None,
            });
            assert_eq!(
                constants.collect::<Vec<_>>(),
                ["prelu"; 2],
                "{}",
                recipe.name
            );
        }
    }
}

/// Operands with the same layout as the result are combined element by element.
#[test]
fn sums_of_values_that_stand_alike() {
    let mut alike = 0;
    for recipe in library()
        .plans
        .iter()
        .filter(|p| p.engine == EngineKind::OpenCl)
    {
        let mut graph = Graph::new(Shape { c: 4, h: 2, w: 4 });
        let gelu = Op::Activation(Activation::Gelu);
        let first = graph.push("first", gelu, &[0], &[]).unwrap();
        let second = graph.push("second", gelu, &[first], &[]).unwrap();
        graph
            .push(
                "sum",
                Op::Combine(Arithmetic::Multiply),
                &[second, first],
                &[],
            )
            .unwrap();
        let plan = plan(&of(graph, Kind::Values), recipe, library(), Some(24)).unwrap();
        alike += usize::from(plan.steps.iter().any(|s| s.options.places == Places::Alike));
    }
    assert!(alike > 5, "{alike}");
}

fn affine(outputs: usize, inputs: usize) -> Network {
    let mut graph = Graph::new(Shape::vector(inputs));
    let arrays = [(Role::Weights, outputs, inputs), (Role::Biases, outputs, 1)];
    graph.push("affine", Op::Affine, &[0], &arrays).unwrap();
    of(graph, Kind::Values)
}

/// Each layer gets a kernel for its size if the recipe has one. Small networks get a kernel for all
/// layers.
#[test]
fn kernels_serve_the_sizes_that_they_are_for() {
    let mut whole = 0;
    for recipe in library().plans.iter() {
        let kernels = || {
            recipe
                .kernels
                .iter()
                .filter_map(|name| library().kernel(name))
                .map(|(_, k)| k)
        };
        for (outputs, inputs) in [(3, 5), (10, 64), (100, 784), (2500, 784), (40, 4096)] {
            let plan = plan(&affine(outputs, inputs), recipe, library(), None).unwrap();
            let admits = |k: &Kernel| {
                let r = &k.restrictions;
                inputs >= r.least_l && r.most.admits(outputs, inputs, outputs * inputs)
            };
            for step in plan
                .full()
                .iter()
                .filter(|s| s.operation == Operation::Affine)
            {
                let used = library().kernel(&step.kernel).unwrap().1;
                let other = kernels().any(|k| k.operation == Operation::Affine && admits(k));
                assert!(
                    admits(used) || !other,
                    "{}: {} for {outputs} × {inputs}",
                    recipe.name,
                    step.kernel
                );
            }
        }
        if kernels().any(|k| k.operation == Operation::Layers) {
            let digits = plan(network(), recipe, library(), None).unwrap();
            assert_eq!(digits.full().len(), 1, "{}", recipe.name);
            whole += 1;
        }
    }
    assert!(whole > 3, "{whole}");
}

/// The host's batch only grows with many threads, a small network and enough memory.
#[test]
fn batches_grow_with_the_threads_of_a_host() {
    let host = library().plan("host").unwrap();
    let grown = |network: &Network, threads: usize, most: Option<u64>| {
        let mut found = plan(network, host, library(), None).unwrap();
        let before = found.batch;
        grow(&mut found, network.flop(), threads, most);
        assert!(most.is_none_or(|most| Memory::of(&found, false).total() <= most));
        found.batch / before
    };
    let small = affine(10, 784);
    assert_eq!(
        [1, 3, 4, 64].map(|threads| grown(&small, threads, None)),
        [1, 1, 4, 4]
    );
    let bytes = Memory::of(&plan(&small, host, library(), None).unwrap(), false).total();
    assert_eq!(
        [bytes, 5 * bytes].map(|most| grown(&small, 4, Some(most))),
        [1, 4]
    );
    // The first network already gives each thread enough work. The second has records that are too
    // large.
    assert_eq!(grown(&affine(2000, 1000), 8, None), 1);
    assert_eq!(grown(&affine(1, 4096), 8, None), 1);
}

/// If a layer is split into parts, the reduce step may also compute a narrow layer behind it. It
/// does not if that layer is too wide, or if an activation follows that the kernel cannot compute.
#[test]
fn a_narrow_layer_is_computed_where_parts_are_added_up() {
    let Ok(recipe) = library().plan("nvidia-mma") else {
        return;
    };
    let relu = Op::Activation(Activation::Relu);
    let layers = |between: Op, outputs: usize, behind: Option<Op>| {
        let mut network = affine(2000, 784);
        let (graph, arrays) = (
            &mut network.graph,
            [(Role::Weights, outputs, 2000), (Role::Biases, outputs, 1)],
        );
        let wide = graph.nodes[0].output;
        let between = graph.push("between", between, &[wide], &[]).unwrap();
        let narrow = graph
            .push("narrow", Op::Affine, &[between], &arrays)
            .unwrap();
        behind.iter().for_each(|&op| {
            graph.push("behind", op, &[narrow], &[]).unwrap();
        });
        let network = of(network.graph, Kind::Values);
        let plan = plan(&network, recipe, library(), None).unwrap();
        assert_eq!(check(&plan, &network, library()), Vec::<String>::new());
        let flop: u64 = plan.full().iter().map(|s| s.flop).sum();
        assert!(flop >= 2 * (784 * 2000 + 2000 * outputs as u64), "{flop}");
        plan.full()
            .iter()
            .map(|s| s.kernel.to_string())
            .collect::<Vec<_>>()
    };
    let together = ["affine_mma_128x104", "reducepair_cm"];
    assert_eq!(layers(relu, 10, None), together);
    assert_eq!(layers(Op::Activation(Activation::Tanh), 16, None), together);
    let apart = ["affine_mma_128x104", "reduce_cm", "affine_narrow_records"];
    assert_eq!(layers(relu, 17, None), apart);
    assert_eq!(layers(relu, 10, Some(relu)), apart);
    // No kernel for layers fuses a GELU, so the layers stay separate.
    assert_eq!(
        layers(Op::Activation(Activation::Gelu), 10, None)[1],
        "reduce_cm"
    );
}

/// Weights whose columns differ by more than a factor of 2⁸ get a kernel that computes with floats,
/// not halves.
#[test]
fn a_kernel_of_halves_is_not_for_weights_that_differ_much() {
    let Ok(recipe) = library().plan("nvidia-mma") else {
        return;
    };
    for (spread, halves) in [(0, true), (8, true), (9, false), (COLUMN_OF_ZEROS, false)] {
        let mut network = affine(2500, 784);
        network.graph.tensors.to_mut()[0].spread = spread;
        let plan = plan(&network, recipe, library(), None).unwrap();
        let used = plan.full().iter().any(|s| s.kernel == "affine_mma_128x104");
        assert_eq!(used, halves, "{spread}");
    }
}

/// If the device's last-level cache cannot hold all weights, a share of the work-groups asks it to
/// keep theirs.
#[test]
fn as_many_weights_stay_in_the_cache_as_have_room() {
    let recipe = library()
        .plans
        .iter()
        .find(|p| p.name == "nvidia-mma")
        .unwrap();
    let kept = |weights: Precision, outputs: usize| {
        let mut network = affine(outputs, 4096);
        network.weights = weights;
        let plan = plan(&network, recipe, library(), None).unwrap();
        let few = plan
            .steps
            .iter()
            .find(|s| s.kernel == "affine_few")
            .expect("a step for few records");
        few.options.kept
    };
    // The device's cache holds 24 MB. The weights take 64 MB as F32, 32 MB as F16 and 16 MB as I8.
    assert_eq!(kept(Precision::F32, 4096), Some(5));
    assert_eq!(kept(Precision::F16, 4096), Some(11));
    assert_eq!(kept(Precision::I8, 4096), None);
    assert_eq!(kept(Precision::F32, 1000), None);
}

/// Consecutive layers of any sizes agree on the layout between them.
#[test]
fn layers_of_all_sizes_follow_each_other() {
    let sizes = [3, 10, 64, 130, 160, 300, 784, 2500];
    for recipe in library().plans.iter() {
        for (i, &inputs) in sizes.iter().enumerate() {
            for &hidden in &sizes {
                let outputs = sizes[(i + 3) % sizes.len()];
                let mut network = affine(hidden, inputs);
                let value = network.graph.nodes[0].output;
                // No kernel for layers fuses a GELU, so it separates the two layers.
                let gelu = network
                    .graph
                    .push("gelu", Op::Activation(Activation::Gelu), &[value], &[])
                    .unwrap();
                let arrays = [(Role::Weights, outputs, hidden), (Role::Biases, outputs, 1)];
                let value = if i % 2 == 0 { gelu } else { value };
                network
                    .graph
                    .push("last", Op::Affine, &[value], &arrays)
                    .unwrap();
                let what = format!("{}: {inputs}-{hidden}-{outputs}", recipe.name);
                let found = plan(&network, recipe, library(), None)
                    .unwrap_or_else(|e| panic!("{what}: {e:?}"));
                assert_eq!(
                    check(&found, &network, library()),
                    Vec::<String>::new(),
                    "{what}"
                );
            }
        }
    }
}

/// A Sobel filter computes only pixels inside the image's border, with a work-item for each tile.
#[test]
fn filters_of_images_leave_the_border() {
    let kernels = library()
        .kernels
        .iter()
        .filter(|k| k.operation == Operation::Sobel);
    for kernel in kernels {
        for (h, w) in [(3, 3), (10, 34), (17, 100), (64, 64)] {
            let call = bind::Call {
                kernel,
                group: None,
                sizes: bind::Sizes::of(Problem { h, w, l: 0 }),
                factors: (1.0, 0.0),
                params: [0.0; 2],
                value: 0.0,
                granule: 1,
            };
            let launch = bind::bind(&call, |_| Arg::Buffer(0));
            let (down, along) = kernel
                .restrictions
                .dimensions((launch.global.0.items(1), launch.global.1.items(1)));
            let (y, x) = kernel.restrictions.scale;
            let tiles = ((h - 2).div_ceil(y), (w - 2).div_ceil(x));
            assert_eq!((down, along), tiles, "{}: {h}×{w}", kernel.codename);
        }
    }
}

/// A layer with too few tiles to fill the device is split into as many parts as possible, if each
/// part is long enough.
#[test]
fn layers_are_split_where_there_are_few_tiles() {
    let mut split = 0;
    for recipe in library()
        .plans
        .iter()
        .filter(|p| p.few.is_none() || p.engine == EngineKind::OpenCl)
    {
        let kernels = recipe
            .kernels
            .iter()
            .filter_map(|name| library().kernel(name));
        if !kernels
            .clone()
            .any(|(_, k)| k.operation == Operation::Reduce)
        {
            continue;
        }
        for (outputs, inputs) in [(10, 4096), (128, 784), (300, 100), (1000, 1000)] {
            for batch in [16, 256] {
                let plan = plan(&affine(outputs, inputs), recipe, library(), Some(batch)).unwrap();
                let what = format!("{}, {outputs} × {inputs}, {batch} records", recipe.name);
                let steps = plan.full();
                let Some(step) = steps.iter().find(|s| s.operation == Operation::Affine) else {
                    continue;
                };
                let kernel = library().kernel(&step.kernel).unwrap().1;
                let Some((y, x)) = kernel.restrictions.tile else {
                    continue;
                };
                let Some(&Arg::Buffer(result)) = step.args.last() else {
                    panic!("{what}")
                };
                let parts = plan.buffers[result].padded_rows / step.problem.h;
                let tiles = outputs.div_ceil(y) * batch.div_ceil(x);
                let fits = |parts: usize| {
                    tiles * parts <= kernel.restrictions.split && inputs / parts >= 48
                };
                assert!(parts == 1 || fits(parts), "{what}: {parts}");
                // More parts would not be shorter and would leave some parts empty.
                let stages = inputs.div_ceil(kernel.stage());
                let most = (1..).find(|&parts| !fits(parts + 1)).unwrap();
                assert_eq!(
                    stages.div_ceil(parts),
                    stages.div_ceil(most),
                    "{what}: {parts}"
                );
                assert!(
                    (parts - 1) * stages.div_ceil(parts) < stages,
                    "{what}: {parts}"
                );
                let summed: Vec<usize> = steps
                    .iter()
                    .filter(|s| s.operation == Operation::Reduce)
                    .map(|s| s.problem.l)
                    .collect();
                let expected = if parts > 1 { vec![parts] } else { Vec::new() };
                assert_eq!(summed, expected, "{what}");
                split += summed.len();
            }
        }
    }
    assert!(split > 3, "{split}");
}

/// Rows are copied only if a kernel needs them elsewhere. The border of a `Pad` gets its constant.
#[test]
fn nothing_is_copied_that_stands_as_it_is_needed() {
    let copies = |network: &Network, recipe: &PlanRecipe| {
        let plan = plan(network, recipe, library(), Some(24)).unwrap();
        let copies = plan
            .full()
            .iter()
            .filter(|s| s.operation == Operation::Gather);
        copies.map(|s| s.args.to_vec()).collect::<Vec<_>>()
    };
    for recipe in library().plans.iter() {
        for kind in [Kind::Classes, Kind::Values] {
            let mut vector = affine(10, 64);
            vector.output.kind = kind;
            assert!(copies(&vector, recipe).is_empty(), "{}", recipe.name);
        }
        let mut images = convolution(16, 4);
        let first = images.graph.nodes[0].output;
        let arrays = [(Role::Factors, 16, 1), (Role::Biases, 16, 1)];
        let scaled = images
            .graph
            .push("scaled", Op::Scale, &[first], &arrays)
            .unwrap();
        images
            .graph
            .push(
                "both",
                Op::Combine(Arithmetic::Multiply),
                &[scaled, first],
                &[],
            )
            .unwrap();
        assert!(copies(&images, recipe).is_empty(), "{}", recipe.name);
        // An arg-max needs the elements in consecutive rows, so a copy is needed.
        images.output.kind = Kind::Classes;
        assert_eq!(copies(&images, recipe).len(), 1, "{}", recipe.name);
        let mut bordered = convolution(3, 4);
        let padding = Padding {
            before: [0, 1, 0],
            behind: [1, 2, 1],
        };
        let pad = Op::Pad {
            padding,
            value: Float::new(0.25),
        };
        bordered
            .graph
            .push("border", pad, &[bordered.graph.nodes[0].output], &[])
            .unwrap();
        let [step] = &copies(&bordered, recipe)[..] else {
            panic!("{}", recipe.name)
        };
        assert!(step.contains(&Arg::Scalar(0.25)), "{}", recipe.name);
        // A step that would overwrite the network's input works on a copy.
        let mut changed = of(Graph::new(Shape::vector(9)), Kind::Values);
        changed
            .graph
            .push("gelu", Op::Activation(Activation::Gelu), &[0], &[])
            .unwrap();
        assert_eq!(copies(&changed, recipe).len(), 1, "{}", recipe.name);
    }
}

/// Only the columns of the first layer's weights follow the rows of the input image.
#[test]
fn weights_of_an_image_have_columns_for_its_rows() {
    let mut graph = Graph::new(Shape { c: 3, h: 4, w: 5 });
    let arrays = |rows, cols| [(Role::Weights, rows, cols), (Role::Biases, rows, 1)];
    let hidden = graph
        .push("first", Op::Affine, &[0], &arrays(60, 60))
        .unwrap();
    graph
        .push("second", Op::Affine, &[hidden], &arrays(7, 60))
        .unwrap();
    let network = of(graph, Kind::Classes);
    for recipe in library().plans.iter() {
        let plan = plan(&network, recipe, library(), Some(24)).unwrap();
        for c in plan.constants.iter() {
            let first = c.role == Role::Weights && c.name == "first";
            assert_eq!(
                matches!(c.placing, Placing::Columns(_)),
                first,
                "{}: {c:?}",
                recipe.name
            );
            assert!(
                first || c.placing == Placing::Plain,
                "{}: {c:?}",
                recipe.name
            );
        }
    }
}

/// A layer that reads a part of a value has weights of 0 for the value's other rows. If these rows
/// are many, a step copies the part first.
#[test]
fn parts_of_many_rows_are_copied() {
    for recipe in library().plans.iter() {
        for (rows, copies) in [(5, 0), (68, 0), (69, 1), (200, 1)] {
            let mut graph = Graph::new(Shape::vector(rows));
            let slice = Op::Slice {
                axis: Axis::C,
                first: 1,
                size: 4,
            };
            let part = graph.push("part", slice, &[0], &[]).unwrap();
            let arrays = [(Role::Weights, 3, 4), (Role::Biases, 3, 1)];
            graph.push("affine", Op::Affine, &[part], &arrays).unwrap();
            let plan = plan(&of(graph, Kind::Values), recipe, library(), Some(24)).unwrap();
            let found = plan
                .full()
                .iter()
                .filter(|s| s.operation == Operation::Gather)
                .count();
            assert_eq!(found, copies, "{}, {rows} rows", recipe.name);
        }
    }
}

fn of_products(graph: &Graph) -> u64 {
    let products = |i: &usize| matches!(graph.nodes[*i].op, Op::Affine | Op::Convolution { .. });
    (0..graph.nodes.len())
        .filter(products)
        .map(|i| graph.flop(i))
        .sum()
}

/// Networks with large records get smaller batches: of whole granules, of a part of one, or of a
/// single record.
#[test]
fn networks_of_many_values_have_smaller_batches() {
    for values in [10_000, 300_000, 1_500_000, 20_000_000, MOST_VALUES] {
        let mut graph = Graph::new(Shape::vector(values));
        graph
            .push("relu", Op::Activation(Activation::Relu), &[0], &[])
            .unwrap();
        let network = of(graph, Kind::Values);
        for recipe in library().plans.iter() {
            let bytes = if recipe.engine == EngineKind::Host {
                HOST_BYTES
            } else {
                DEVICE_BYTES
            };
            let found = match plan(&network, recipe, library(), None) {
                Ok(found) => found,
                // Planning may fail only if a single record has no plan either. A device's
                // work-groups may cover many records, so that even one record is too large.
                Err(mistakes) => {
                    let alone = plan(&network, recipe, library(), Some(1));
                    assert!(
                        recipe.engine == EngineKind::OpenCl && alone.is_err(),
                        "{mistakes:?}"
                    );
                    continue;
                }
            };
            let what = format!("{values} values, {}: {}", recipe.name, found.batch);
            let of_record = found.record_bytes();
            assert!(
                found.batch == 1 || found.batch * of_record <= bytes,
                "{what}"
            );
            let more = found.batch
                + if found.batch < found.granule {
                    1
                } else {
                    found.granule
                };
            assert!(
                found.batch == recipe.batch || more * of_record > bytes,
                "{what}"
            );
            // Kernels compute offsets in a buffer in 32 bits, so larger buffers are refused.
            let too_large =
                plan(&network, recipe, library(), Some((1 << 29) / values + 1)).unwrap_err();
            assert!(
                too_large[0].contains("use a smaller batch"),
                "{what}: {too_large:?}"
            );
            // A batch size that the caller sets is not reduced.
            if let Ok(asked) = plan(&network, recipe, library(), Some(found.batch + 1)) {
                assert_eq!(asked.batch, found.batch + 1, "{what}");
            }
        }
    }
}

/// The checker finds every change that makes a plan wrong.
#[test]
fn changed_plans_are_found_to_be_wrong() {
    type Change = dyn Fn(&mut Plan, usize) -> bool;
    fn step(plan: &mut Plan, i: usize) -> &mut Step {
        &mut plan.steps.to_mut()[i]
    }
    fn buffer_of(step: &Step) -> Option<usize> {
        step.args.iter().find_map(|a| {
            if let Arg::Buffer(b) = *a {
                Some(b)
            } else {
                None
            }
        })
    }
    // Each function changes step `i` of a plan, and returns true if the change makes the plan
    // wrong.
    let changes: [(&str, &Change); 17] = [
        ("no such kernel", &|p, i| {
            step(p, i).kernel = "none".into();
            true
        }),
        ("no such buffer", &|p, i| {
            let n = p.buffers.len();
            let found = step(p, i)
                .args
                .to_mut()
                .iter_mut()
                .find(|a| matches!(a, Arg::Buffer(_)));
            found.map(|a| *a = Arg::Buffer(n)).is_some()
        }),
        ("no such constant", &|p, i| {
            let n = p.constants.len();
            let found = step(p, i)
                .args
                .to_mut()
                .iter_mut()
                .find(|a| matches!(a, Arg::Constant(_)));
            found.map(|a| *a = Arg::Constant(n)).is_some()
        }),
        ("a smaller arena", &|p, _| {
            p.arena_bytes = p.arena_bytes.saturating_sub(4096);
            p.arena_bytes > 0 || p.buffers.iter().any(|b| b.role == BufferRole::Hidden)
        }),
        ("all in one place", &|p, i| {
            // Two hidden buffers that the same step uses would overlap.
            let hidden = |b: &usize| p.buffers[*b].role == BufferRole::Hidden;
            let args = p.steps[i].args.iter();
            let used: Vec<usize> = args
                .filter_map(|a| {
                    if let Arg::Buffer(b) = *a {
                        Some(b)
                    } else {
                        None
                    }
                })
                .filter(hidden)
                .collect();
            let apart = used
                .iter()
                .any(|&b| p.buffers[b].arena != p.buffers[used[0]].arena);
            p.buffers.to_mut().iter_mut().for_each(|b| b.arena = 0);
            apart
        }),
        ("no work-items", &|p, i| {
            let nothing = Extent::Fixed(0);
            step(p, i).global = (nothing, nothing);
            p.engine == EngineKind::OpenCl && p.steps[i].operation != Operation::Layers
        }),
        ("work-groups that do not divide", &|p, i| {
            let large = Some((1 << 20, 1 << 20));
            step(p, i).local = large;
            p.engine == EngineKind::OpenCl
        }),
        ("fewer rows of weights", &|p, i| {
            let constant = |a: &Arg| {
                if let Arg::Constant(c) = *a {
                    Some(c)
                } else {
                    None
                }
            };
            let Some(c) = p.steps[i].args.iter().find_map(constant) else {
                return false;
            };
            let c = &mut p.constants.to_mut()[c];
            c.padded.0 = c.size.0.saturating_sub(1);
            true
        }),
        ("columns that nobody reads", &|p, i| {
            let constant = |a: &Arg| {
                if let Arg::Constant(c) = *a {
                    Some(c)
                } else {
                    None
                }
            };
            let Some(c) = p.steps[i].args.iter().find_map(constant) else {
                return false;
            };
            let operation = p.steps[i].operation;
            let takes = library()
                .kernel(&p.steps[i].kernel)
                .and_then(|(_, k)| k.restrictions.a.as_ref());
            let takes = takes.is_some_and(|a| a.representation.is_some());
            let c = &mut p.constants.to_mut()[c];
            let x = c.layout.granularity().1;
            c.padded.1 += x;
            takes && c.role == Role::Weights && operation != Operation::Convolution
        }),
        ("weights in another layout", &|p, i| {
            let constant = |a: &Arg| {
                if let Arg::Constant(c) = *a {
                    Some(c)
                } else {
                    None
                }
            };
            let Some(c) = p.steps[i].args.iter().find_map(constant) else {
                return false;
            };
            let takes = library()
                .kernel(&p.steps[i].kernel)
                .and_then(|(_, k)| k.restrictions.a.as_ref());
            let takes = takes.is_some_and(|a| a.representation.is_some());
            let c = &mut p.constants.to_mut()[c];
            let before = c.layout.clone();
            c.layout = if before == Layout::R {
                Layout::C
            } else {
                Layout::R
            };
            takes && c.role == Role::Weights
        }),
        ("values in another layout", &|p, i| {
            let Some(b) = buffer_of(&p.steps[i]) else {
                return false;
            };
            let kernel = library()
                .kernel(&p.steps[i].kernel)
                .map(|(_, k)| &k.restrictions);
            let takes =
                kernel.is_some_and(|r| r.b.as_ref().is_some_and(|b| b.representation.is_some()));
            let (rows, columns) = (p.buffers[b].padded_rows, p.padded_batch);
            let before = p.buffers[b].layout.clone();
            let other = if before.same_placement(&Layout::R, rows, columns) {
                Layout::C
            } else {
                Layout::R
            };
            p.buffers.to_mut()[b].layout = other.clone();
            takes && !before.same_placement(&other, rows, columns)
        }),
        ("results in another layout", &|p, i| {
            let Some(Arg::Buffer(b)) = p.steps[i].args.last().copied() else {
                return false;
            };
            let kernel = library()
                .kernel(&p.steps[i].kernel)
                .map(|(_, k)| &k.restrictions);
            let gives =
                kernel.is_some_and(|r| r.r.as_ref().is_some_and(|r| r.representation.is_some()));
            let (rows, columns) = (p.buffers[b].padded_rows, p.padded_batch);
            let before = p.buffers[b].layout.clone();
            let other = if before.same_placement(&Layout::R, rows, columns) {
                Layout::C
            } else {
                Layout::R
            };
            p.buffers.to_mut()[b].layout = other.clone();
            let written = p.steps[i].operation != Operation::ArgMax;
            written && gives && !before.same_placement(&other, rows, columns)
        }),
        ("half of the work-items", &|p, i| {
            let Some((_, kernel)) = library().kernel(&p.steps[i].kernel) else {
                return false;
            };
            let r = &kernel.restrictions;
            let each =
                r.tile.is_none() && r.scale.0.max(r.scale.1) <= 1 && p.engine == EngineKind::OpenCl;
            let (batch, mut halved) = (p.batch, false);
            let (first, second) = &mut step(p, i).global;
            for extent in [first, second] {
                if let Extent::Records { records, items } = extent {
                    // If a batch has fewer records than the granule, half of the work-items would
                    // be enough.
                    halved |= *items > 1 && *records <= batch;
                    *items /= 2;
                }
            }
            each && halved
        }),
        ("an image behind its buffer", &|p, i| {
            let found = step(p, i).args.to_mut().iter_mut().find_map(|a| match a {
                Arg::Geometry(g) => Some(g),
                _ => None,
            });
            found.map(|g| g.output.0.first += 1 << 20).is_some() && p.engine == EngineKind::OpenCl
        }),
        ("numbers of other elements", &|p, i| {
            let scales = p.steps[i].operation == Operation::Scale;
            let found = step(p, i)
                .args
                .to_mut()
                .iter_mut()
                .rev()
                .find_map(|a| match a {
                    Arg::Moved(m) if m.from.len() > 1 => Some(m),
                    _ => None,
                });
            let turned = |m: &mut Moved| {
                let before = m.from;
                // An array element for all becomes one for each, and the reverse.
                let other = if before.end() > 1 {
                    RowMap::of_all
                } else {
                    RowMap::vector
                };
                m.from = other(before.len());
            };
            found.map(turned).is_some() && scales
        }),
        ("rows of other elements", &|p, i| {
            let scales = p.steps[i].operation == Operation::Scale;
            let found = step(p, i).args.to_mut().iter_mut().find_map(|a| match a {
                Arg::Moved(m) => Some(m),
                _ => None,
            });
            found.map(|m| m.to.first += 1).is_some() && scales
        }),
        ("rows behind a buffer", &|p, i| {
            let found = step(p, i).args.to_mut().iter_mut().find_map(|a| match a {
                Arg::Moved(m) => Some(m),
                _ => None,
            });
            found
                .map(|m| (m.from.first, m.to.first) = (1 << 20, 1 << 20))
                .is_some()
        }),
    ];
    let mut made = [0; 17];
    for (i, (_, builder)) in single().into_iter().enumerate().step_by(3) {
        let network = of(
            builder.graph,
            if i % 2 == 0 {
                Kind::Classes
            } else {
                Kind::Values
            },
        );
        for recipe in library().plans.iter() {
            let right = plan(&network, recipe, library(), Some(24)).unwrap();
            for (what, (made, (name, change))) in made.iter_mut().zip(&changes).enumerate() {
                for i in 0..right.steps.len() {
                    let mut wrong = right.clone();
                    if change(&mut wrong, i) {
                        assert!(
                            !check(&wrong, &network, library()).is_empty(),
                            "{what}, {name}: {wrong:?}"
                        );
                        *made += 1;
                    }
                }
            }
        }
    }
    assert!(made.iter().all(|&n| n > 20), "{made:?}");
}

/// Returns a 3 × 3 convolution with `c` channels whose image has `size` × `size` pixels.
fn three_by_three(c: usize, size: usize) -> Geometry {
    let shape = Shape {
        c,
        h: size,
        w: size,
    };
    let image = (Image::dense(shape, c), shape);
    Geometry {
        input: image,
        output: image,
        window: Window::of((3, 3)),
        groups: 1,
    }
}

/// The host engine uses Winograd tiles only if they save work and their weights fit the cache.
#[test]
fn convolutions_that_are_computed_by_tiles() {
    let by_tiles = |geometry: &Geometry, outputs: usize| {
        tiles::by_tiles(geometry, outputs, [TileSize::Two]).is_some()
    };
    let right = three_by_three(16, 8);
    assert!(by_tiles(&right, 16) && by_tiles(&right, 48) && !by_tiles(&right, 24));
    assert!(!by_tiles(&three_by_three(24, 8), 16));
    // Tiles for a 3 × 3 image cover 16 pixels, which wastes too much work.
    let sizes: Vec<usize> = (1..9)
        .filter(|&n| by_tiles(&three_by_three(16, n), 16))
        .collect();
    assert_eq!(sizes, [2, 4, 5, 6, 7, 8]);
    assert!(by_tiles(&three_by_three(128, 8), 128) && !by_tiles(&three_by_three(128, 8), 144));
    let window = |window: Window| by_tiles(&Geometry { window, ..right }, 16);
    let plain = Window::of((3, 3));
    assert!(!window(Window::of((3, 1))) && !window(Window::of((5, 5))));
    assert!(
        !window(Window {
            stride: (2, 1),
            ..plain
        }) && !window(Window {
            dilation: (1, 2),
            ..plain
        })
    );
    assert!(!by_tiles(
        &Geometry {
            groups: 16,
            ..right
        },
        16
    ));
}

/// The host engine uses tiles of 4 × 4 pixels where they were measured to be faster on one core of
/// an EPYC with a second-level cache of 1 MB.
#[test]
fn convolutions_that_are_computed_by_large_tiles() {
    use TileSize::{Four, Two};
    let choice = |c: usize, size: usize, outputs: usize| {
        tiles::by_tiles(&three_by_three(c, size), outputs, TileSize::ALL)
    };
    for (c, size, outputs) in [
        (16, 28, 16),
        (16, 80, 16),
        (16, 160, 32),
        (16, 56, 64),
        (32, 40, 32),
        (32, 28, 128),
        (64, 20, 64),
        (128, 20, 128),
        (256, 14, 256),
        (128, 56, 128),
    ] {
        assert_eq!(choice(c, size, outputs), Some(Four), "{c} {size} {outputs}");
    }
    // The weights of large tiles take too long to read for so few pixels.
    for (c, size, outputs) in [(16, 7, 16), (64, 7, 128), (128, 10, 128), (48, 14, 192)] {
        assert_eq!(choice(c, size, outputs), Some(Two), "{c} {size} {outputs}");
    }
    assert_eq!(choice(128, 7, 256), None);
    // The weights would take 37 MB.
    assert_eq!(choice(512, 56, 512), None);
    assert_eq!(choice(24, 80, 32), None);
    // An instruction set without large tiles uses small ones, or none.
    let small = |c: usize| tiles::by_tiles(&three_by_three(c, 20), c, [Two]);
    assert_eq!((small(64), small(256)), (Some(Two), None));
}

/// The host engine adds weights for Winograd tiles at start. A device needs buffers for whole
/// batches.
#[test]
fn memory_is_that_of_constants_and_batches() {
    let host = library()
        .plans
        .iter()
        .find(|p| p.engine == EngineKind::Host)
        .unwrap();
    for (c, size, tiles) in [(16, 8, 16 * 16 * 16 * 4), (16, 3, 0), (8, 8, 0)] {
        let found = plan(&convolution(c, size), host, library(), Some(5)).unwrap();
        let memory = Memory::of(&found, false);
        assert_eq!(
            memory.constants,
            (found.constant_bytes() + tiles) as u64,
            "{c} {size}"
        );
        assert_eq!(
            memory.total(),
            memory.constants + memory.arena + memory.batch
        );
        // The host engine keeps no buffer between steps for the whole batch. A slot has the input,
        // its text and the scores.
        assert_eq!(memory.arena, (found.arena_bytes * 5) as u64);
        let line = |rows: usize| (rows.next_multiple_of(16) + 16) * 4;
        let [input, scores] = [BufferRole::Input, BufferRole::Scores]
            .map(|r| &found.buffers[found.buffer(r).unwrap()]);
        let of_slot = line(input.padded_rows) + input.rows * 8 + line(scores.padded_rows);
        assert_eq!(memory.batch, (SLOTS * of_slot * 5) as u64, "{c} {size}");
    }
    for recipe in library()
        .plans
        .iter()
        .filter(|p| p.engine == EngineKind::OpenCl)
    {
        let found = plan(network(), recipe, library(), Some(64)).unwrap();
        let [together, apart] = [false, true].map(|apart| Memory::of(&found, apart));
        assert_eq!(
            (together.constants, together.batch),
            (apart.constants, apart.batch)
        );
        assert_eq!(together.arena, found.arena_bytes as u64);
        let bytes = |hidden: bool| {
            let of_role = found
                .buffers
                .iter()
                .filter(|b| (b.role == BufferRole::Hidden) == hidden);
            of_role
                .map(|b| b.padded_rows * found.padded_batch * 4)
                .sum::<usize>() as u64
        };
        assert_eq!(
            (apart.arena, apart.batch),
            (bytes(true), SLOTS as u64 * bytes(false)),
            "{}",
            recipe.name
        );
    }
}

/// In a network with images, the host engine keeps values for the whole batch only if a large
/// affine layer reads or writes them.
#[test]
fn values_of_large_layers_are_kept_for_the_batch() {
    let host = library()
        .plans
        .iter()
        .find(|p| p.engine == EngineKind::Host)
        .unwrap();
    let arena = |outputs: usize| {
        let mut network = convolution(16, 8);
        let value = network.graph.nodes[0].output;
        let arrays = |rows, cols| [(Role::Weights, rows, cols), (Role::Biases, rows, 1)];
        let large = network
            .graph
            .push("large", Op::Affine, &[value], &arrays(outputs, 1024))
            .unwrap();
        network
            .graph
            .push("last", Op::Affine, &[large], &arrays(3, outputs))
            .unwrap();
        let found = plan(&network, host, library(), Some(4)).unwrap();
        let weights = found.constants.iter().map(|c| c.bytes()).max().unwrap();
        (
            Memory::of(&found, false).arena - 4 * found.arena_bytes as u64,
            weights >= LARGE,
        )
    };
    assert_eq!(arena(200), (0, false));
    // The convolution has 1024 values and the layer 256. Each gets one more cache line of 16
    // floats.
    assert_eq!(arena(256), (4 * 4 * (1024 + 16 + 256 + 16), true));
}

/// The modelled time is that of the launches plus that of the work. Threads of the host share the
/// work.
#[test]
fn modelled_times_are_those_of_launches_and_work() {
    let class = &library().devices[0];
    let us = |engine, threads, steps, records, flop| {
        modelled_us(class, engine, threads, steps, (records, flop))
    };
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
    let launch = class.launch_us;
    assert!(near(us(EngineKind::OpenCl, 1, 5, 10, 0), 7.0 * launch));
    assert!(near(us(EngineKind::Host, 4, 5, 10, 0), launch));
    // A thousand records with a million operations each need 10⁹ operations.
    let work = us(EngineKind::OpenCl, 1, 5, 1000, 1_000_000) - 7.0 * launch;
    assert!((work - 1e6 / class.gflops).abs() < 1e-6 * work, "{work}");
    let shared = us(EngineKind::Host, 4, 5, 1000, 1_000_000) - launch;
    assert!((shared - work / 4.0).abs() < 1e-6 * work, "{shared}");
}

/// A vector viewed as an image may have padding rows behind its last pixel. An element-wise
/// operation on two such images writes those rows, too.
#[test]
fn vectors_as_images_are_written_whole() {
    for recipe in library().plans.iter() {
        for arithmetic in Arithmetic::ALL {
            let mut graph = Graph::new(Shape::vector(46));
            let shape = Shape { c: 1, h: 1, w: 46 };
            let gelu = graph
                .push("gelu", Op::Activation(Activation::Gelu), &[0], &[])
                .unwrap();
            let image = graph
                .push("reshape", Op::Reshape(shape), &[gelu], &[])
                .unwrap();
            let value = graph
                .push("combine", Op::Combine(arithmetic), &[image, image], &[])
                .unwrap();
            graph
                .push(
                    "affine",
                    Op::Affine,
                    &[value],
                    &[(Role::Weights, 17, 46), (Role::Biases, 17, 1)],
                )
                .unwrap();
            let network = of(graph, Kind::Values);
            let plan = plan(&network, recipe, library(), Some(24)).unwrap();
            assert_eq!(check(&plan, &network, library()), Vec::<String>::new());
        }
    }
}

/// In a full batch, each tile has records. An extra work-group along the records would double the
/// time of a layer.
#[test]
fn a_full_batch_has_no_tiles_without_records() {
    let mut tiled = 0;
    for recipe in library()
        .plans
        .iter()
        .filter(|p| p.engine == EngineKind::OpenCl)
    {
        for (outputs, inputs) in [(10, 4096), (100, 784), (2500, 784)] {
            let plan = plan(&affine(outputs, inputs), recipe, library(), None).unwrap();
            for step in plan.full().iter() {
                let r = &library().kernel(&step.kernel).unwrap().1.restrictions;
                let (Some((_, x)), Some(local)) = (r.tile, step.local) else {
                    continue;
                };
                let items = r.dimensions((
                    step.global.0.items(plan.batch),
                    step.global.1.items(plan.batch),
                ));
                let groups = items.1 / r.dimensions(local).1;
                assert_eq!(
                    groups,
                    plan.columns(plan.batch).div_ceil(x),
                    "{}: {}",
                    recipe.name,
                    step.kernel
                );
                tiled += 1;
            }
        }
    }
    assert!(tiled > 10, "{tiled}");
}

/// On OpenCL devices, the step of a convolution also computes the scaling, rounding and clipping
/// behind it. In the host engine's plan they are one step, which the engine joins with the layer's.
#[test]
fn a_scaling_and_its_rounding_are_part_of_a_step() {
    let mut network = convolution(16, 4);
    network.output.kind = Kind::Values;
    let first = network.graph.nodes[0].output;
    let graph = &mut network.graph;
    let shape = graph.values[first].shape;
    let arrays = [
        (Role::Factors, 16, 1, Some(RowMap::of_channels(shape))),
        (Role::Biases, 1, 1, Some(RowMap::of_all(shape.len()))),
    ];
    let scaled = graph.push_mapped("scaled", Op::Scale, &[first], &arrays);
    let scaled = scaled.unwrap();
    let round = Op::Activation(Activation::Math(Math::Round));
    let whole = graph.push("whole", round, &[scaled], &[]).unwrap();
    let clip = Activation::Clip {
        low: Float::new(-5.0),
        high: Float::new(9.0),
    };
    graph
        .push("limited", Op::Activation(clip), &[whole], &[])
        .unwrap();
    for recipe in library().plans.iter() {
        for weights in Precision::ALL {
            network.weights = weights;
            let Ok(plan) = plan(&network, recipe, library(), Some(24)) else {
                assert_ne!(weights, Precision::F32, "{}", recipe.name);
                continue;
            };
            let host = recipe.engine == EngineKind::Host;
            let finishes = |s: &&Step| s.options.rounds;
            let step = plan.full().iter().find(finishes).unwrap();
            let operation = match host {
                true => Operation::Scale,
                false => Operation::Convolution,
            };
            assert_eq!(step.operation, operation, "{}", recipe.name);
            assert_eq!(step.options.rescales, !host, "{}", recipe.name);
            assert_eq!(step.activation, clip, "{}", recipe.name);
            let convolution = |s: &&Step| s.operation == Operation::Convolution;
            let convolution = plan.full().iter().find(convolution).unwrap();
            let constants = plan.constants_of(convolution);
            let columns = constants.map(|c| c.columns_of_biases()).max();
            let scales = usize::from(weights == Precision::I8);
            let rescaled = if host { 0 } else { 2 };
            assert_eq!(columns, Some(1 + scales + rescaled), "{}", recipe.name);
        }
    }
}

/// A rounded sum of two values and its limits are one step. The limits are a step of their own if
/// another node reads the sum.
#[test]
fn a_rounded_sum_is_one_step() {
    let shape = Shape { c: 3, h: 4, w: 4 };
    let factors = [0.5, -0.25].map(Float::new);
    let [a, b] = factors;
    let clip = Activation::Clip {
        low: Float::new(-5.0),
        high: Float::new(9.0),
    };
    let turn = Op::Transpose([Axis::C, Axis::X, Axis::Y]);
    for (turned, read) in [(false, false), (true, false), (false, true)] {
        let mut graph = Graph::new(shape);
        // No kernel fuses a GELU with the operation behind it.
        let mut add = |op: Op, inputs: &[usize]| graph.push("node", op, inputs, &[]).unwrap();
        let x = add(Op::Activation(Activation::Gelu), &[0]);
        let y = add(Op::Activation(Activation::Gelu), &[x]);
        let y = if turned { add(turn, &[y]) } else { y };
        let sum = Op::Combine(Arithmetic::RoundedSum { a, b });
        let sum = add(sum, &[x, y]);
        let limited = add(Op::Activation(clip), &[sum]);
        if read {
            add(Op::Combine(Arithmetic::Multiply), &[limited, sum]);
        }
        let network = of(graph, Kind::Values);
        for recipe in library().plans.iter() {
            let plan = plan(&network, recipe, library(), Some(24)).unwrap();
            let what = format!("{}: {turned}, {read}", recipe.name);
            let sums = |s: &&Step| {
                let function = Function::Combine(Arithmetic::RoundedSum { a, b });
                s.options.function == function
            };
            let found: Vec<&Step> = plan.full().iter().filter(sums).collect();
            assert_eq!(found.len(), 1, "{what}");
            let limits = if read { Activation::None } else { clip };
            assert_eq!(found[0].activation, limits, "{what}");
            if recipe.engine == EngineKind::OpenCl {
                let pair = Arg::Pair(factors.map(Float::get).into());
                assert!(found[0].args.contains(&pair), "{what}");
                assert!(found[0].options.to_string().contains("-DCOMBINE=6"));
                let alike = found[0].options.places == Places::Alike;
                assert_eq!(alike, !turned, "{what}");
            }
        }
    }
}
