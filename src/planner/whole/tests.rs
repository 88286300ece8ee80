//! Tests that only layers of whole numbers get kernels for bytes.

use super::{Layers, start};
use crate::baked::{library, network};
use crate::engine::model::Model;
use crate::ir::graph::{Graph, Role, Shape};
use crate::ir::layout::Layout;
use crate::ir::network::{InputOrder, Kind, Network, Precision};
use crate::ir::op::{Activation, Float, Math, Op, Pool, Window};
use crate::ir::plan::{Arg, Plan};
use crate::ir::values::Values;

const ROUND: Op = Op::Activation(Activation::Math(Math::Round));

fn clip(low: f32, high: f32) -> Op {
    let [low, high] = [low, high].map(Float::new);
    Op::Activation(Activation::Clip { low, high })
}

/// The weights and biases of each layer.
type Arrays = Vec<Vec<f32>>;

/// The channels that [`layer`] reads.
const CHANNELS: usize = 192;

/// Returns a network of a 1 × 1 convolution from [`CHANNELS`] to 64 channels, whose operand has
/// whole numbers from `low` to `high`.
fn layer(low: f32, high: f32) -> (Network, Arrays) {
    let mut graph = Graph::new(Shape {
        c: CHANNELS,
        h: 12,
        w: 10,
    });
    let rounded = graph.push("rounded", ROUND, &[0], &[]).unwrap();
    let value = graph.push("limited", clip(low, high), &[rounded], &[]);
    let op = Op::Convolution {
        window: Window::of((1, 1)),
        groups: 1,
    };
    let arrays = [(Role::Weights, 64, CHANNELS), (Role::Biases, 64, 1)];
    graph.push("layer", op, &[value.unwrap()], &arrays).unwrap();
    let mut of = Network {
        width: graph.values[0].shape.len(),
        order: InputOrder::Chw,
        graph,
        labels: Vec::new().into(),
        features: Vec::new().into(),
        ..network().clone()
    };
    of.output.kind = Kind::Values;
    of.weights = Precision::F32;
    let weights = (0..64 * CHANNELS).map(|i| (i * 37 % 251) as f32 - 128.0);
    let biases = (0..64).map(|i| 100.0 * i as f32 - 3000.0);
    (of, vec![weights.collect(), biases.collect()])
}

/// Returns the plans of a network for full batches, before and after the change.
fn planned((network, arrays): (Network, Arrays)) -> (Model, Option<Model>) {
    let recipe = library().plan("nvidia").unwrap();
    let model = Model::new(network, &arrays, recipe, library(), Some(100)).unwrap();
    let whole = model.whole(library(), Layers::Faster).unwrap();
    (model, whole)
}

fn kernels(plan: &Plan) -> Vec<&str> {
    let kernels = plan.steps.iter().map(|s| &*s.kernel);
    kernels.filter(|k| k.starts_with("convolution")).collect()
}

#[test]
fn layers_of_whole_numbers_get_kernels_of_bytes() {
    let (model, whole) = planned(layer(-100.0, 155.0));
    assert!(kernels(&model.plan).iter().all(|k| k.contains("records")));
    let Model {
        plan, constants, ..
    } = whole.unwrap();
    // The variant for few records has smaller tiles.
    assert_eq!(
        kernels(&plan),
        ["convolution_whole_64x64", "convolution_whole_16x32"]
    );
    for (kernel, panel) in kernels(&plan).into_iter().zip(["R_64_4_R", "R_16_4_R"]) {
        let step = plan.steps.iter().find(|s| s.kernel == kernel).unwrap();
        let of: Vec<usize> = step.constants().collect();
        let (weights, biases) = (&plan.constants[of[0]], &constants[of[1]]);
        assert_eq!(weights.layout, Layout::parse(panel).unwrap());
        let bytes = 64 * CHANNELS;
        assert_eq!((weights.precision, weights.bytes()), (Precision::I8, bytes));
        // The first four weights of a row are neighbours, and so are those of the next row.
        let Values::I8(bytes) = &constants[of[0]] else {
            panic!("{weights:?}")
        };
        let (_, arrays) = layer(0.0, 0.0);
        let rows = [0, 1, 2, 3, CHANNELS, CHANNELS + 1].map(|i| arrays[0][i] as i8);
        assert_eq!(bytes[..6], rows);
        assert!(step.args.contains(&Arg::Scalar(-100.0)));
        let sums = arrays[0]
            .chunks(CHANNELS)
            .map(|row| row.iter().sum::<f32>());
        let expected = sums
            .zip(&arrays[1])
            .map(|(sum, bias)| bias + (128.0 - 100.0) * sum);
        let Values::F32(biases) = biases else {
            panic!("{biases:?}")
        };
        let found = biases.iter().map(|bits| bits.to_bits() as i32 as f32);
        assert!(found.eq(expected));
    }
    // No constant is left that no step reads. Both steps have the same biases.
    assert_eq!(plan.constants.len(), 3);
}

/// Plans of packed operands have kernels of bytes for few records alone. The layer is not the last
/// one here, because the network's output has the layout of the full plan.
#[test]
fn kernels_of_bytes_need_their_layouts() {
    let of = |recipe, batch| {
        let (mut network, arrays) = layer(-100.0, 155.0);
        let last = network.graph.outputs[0];
        let mean = Op::Pool {
            kind: Pool::Mean,
            window: Window::of((12, 10)),
        };
        network.graph.push("mean", mean, &[last], &[]).unwrap();
        let recipe = library().plan(recipe).unwrap();
        let model = Model::new(network, &arrays, recipe, library(), Some(batch)).unwrap();
        let whole = model.whole(library(), Layers::Faster).unwrap();
        kernels(&whole.unwrap().plan).join(" ")
    };
    let bytes = "convolution_whole_16x32";
    for recipe in ["mali-bifrost", "mali-valhall", "generic", "desktop"] {
        assert_eq!(of(recipe, 1), bytes, "{recipe}");
        let many = of(recipe, 100);
        let packed = many.starts_with("convolution_packed_4x4 ");
        assert!(packed && many.ends_with(bytes), "{recipe}: {many}");
    }
    assert_eq!(of("adreno", 1), bytes);
}

#[test]
fn other_layers_keep_their_kernels() {
    let unchanged = |made| planned(made).1.is_none();
    // Values that need more than a byte, have no end, or are no whole numbers.
    assert!(unchanged(layer(-128.0, 128.0)) && unchanged(layer(1.0, 256.0)));
    assert!(unchanged(layer(0.0, f32::INFINITY)) && unchanged(layer(0.0, 2.5)));
    // A weight or a bias that is none.
    for (array, wrong) in [(0, 0.5), (0, 128.0), (0, f32::NAN), (1, 0.25), (1, 4e9)] {
        let (network, mut arrays) = layer(0.0, 255.0);
        arrays[array][7] = wrong;
        assert!(unchanged((network, arrays)), "{wrong} in {array}");
    }
    // A recipe without such kernels.
    let (network, arrays) = layer(0.0, 255.0);
    let recipe = library().plan("mali-midgard").unwrap();
    let model = Model::new(network, &arrays, recipe, library(), None).unwrap();
    let changed = model.whole(library(), Layers::All);
    assert!(changed.unwrap().is_none());
}

/// A launch of few short sums keeps its kernel, except in checks.
#[test]
fn small_launches_keep_their_kernels() {
    let (network, arrays) = layer(0.0, 255.0);
    let mut graph = network.graph.clone();
    let narrow = |size: usize| if size == CHANNELS { 64 } else { size };
    for value in graph.values.to_mut() {
        value.shape.c = narrow(value.shape.c);
    }
    for tensor in graph.tensors.to_mut() {
        tensor.cols = narrow(tensor.cols);
    }
    let width = graph.values[0].shape.len();
    let network = Network {
        graph,
        width,
        ..network
    };
    let arrays = [arrays[0][..64 * 64].to_vec(), arrays[1].clone()];
    let recipe = library().plan("nvidia").unwrap();
    let model = Model::new(network, &arrays, recipe, library(), Some(100)).unwrap();
    let of = |layers| {
        let whole = model.whole(library(), layers).unwrap().unwrap();
        let names = kernels(&whole.plan).into_iter().map(str::to_string);
        names.collect::<Vec<_>>()
    };
    let few = "convolution_records_16x32";
    assert_eq!(of(Layers::Faster), ["convolution_whole_64x64", few]);
    assert!(of(Layers::All).iter().all(|k| k.contains("whole")));
}

#[test]
fn sums_begin_with_what_the_least_value_adds() {
    assert_eq!(start(&[3.0, -5.0], 7.0, -128.0), Some(7));
    assert_eq!(start(&[3.0, -5.0], 7.0, 0.0), Some(7 - 256));
    let all = -1_000_000_000 - 100 * 128 * 128;
    assert_eq!(start(&[-128.0; 100], -1e9, 0.0), Some(all));
    // 70 000 products of 127 and 255 exceed 31 bits, half of them do not.
    assert_eq!(start(&vec![127.0; 70_000], 0.0, 0.0), None);
    assert_eq!(
        start(&vec![127.0; 35_000], 0.0, 0.0),
        Some(127 * 128 * 35_000)
    );
    assert_eq!(start(&[127.5], 0.0, 0.0), None);
    assert_eq!(start(&[1.0], 2147483648.0, 0.0), None);
}
