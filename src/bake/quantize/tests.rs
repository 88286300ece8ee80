//! Tests of the grids of whole numbers, and of graphs with quantized layers.

use super::grid::{Grid, Samples};
use super::layer::Layer;
use super::rewrite::{Integers, rewrite};
use super::*;
use crate::bake::draft::Array;
use crate::ir::graph::Shape;
use crate::ir::op::{Activation, Arithmetic, Window};

fn samples(numbers: &[f64]) -> Samples {
    let mut samples = Samples::default();
    samples.add(numbers, 1, &mut Random::new(1));
    samples
}

#[test]
fn grids_have_256_numbers_and_zero() {
    let bytes: Vec<f64> = (0..256).map(|i| f64::from(i) / 255.0).collect();
    let grid = samples(&bytes).grid();
    assert_eq!((grid.low, grid.high, grid.scale), (0, 255, 1.0 / 255.0));
    assert!(
        bytes
            .iter()
            .zip(0..)
            .all(|(&x, i)| grid.whole(x) == f64::from(i))
    );
    let both = samples(&[-1.0, 0.5, 3.0]).grid();
    assert_eq!(both.high - both.low, 255);
    assert!(both.low < 0 && both.high > 0, "{both:?}");
    // The next samples are only zeros, and then only negative numbers.
    assert_eq!(samples(&[0.0]).grid().whole(0.0), 0.0);
    assert_eq!(samples(&[-2.0, -1.0]).grid().high, 0);
    // The grid cuts off a single large number, so that it can represent many small numbers better.
    let mut many: Vec<f64> = (0..300_000).map(|i| f64::from(i) / 300_000.0).collect();
    many.push(4.0);
    assert!(samples(&many).grid().scale < 2.0 / 255.0);
}

#[test]
fn limits_of_activations_are_limits_of_grids() {
    let grid = Grid {
        scale: 0.1,
        low: -100,
        high: 155,
    };
    let limits = |low, high| {
        let limited = grid.limited(low, high);
        (limited.low, limited.high)
    };
    assert_eq!(limits(0.0, f32::INFINITY), (0, 155));
    assert_eq!(limits(-1.0, 6.0), (-10, 60));
    assert_eq!(limits(20.0, 30.0), (155, 155));
}

/// Quantizes node `i` of the draft, a layer. `grid` has the whole numbers of the layer's input.
fn layer(draft: &Draft, i: usize, grid: Grid) -> Layer {
    let node = &draft.graph.nodes[i];
    let numbers: Tensors = draft.rounded();
    let values = draft.graph.values.iter();
    let means: Vec<Vec<f32>> = values.map(|v| vec![1.0; v.shape.len()]).collect();
    let columns = Columns::of(&draft.graph, node, &means);
    let [weights, biases] = [0, 1].map(|n| &numbers[node.tensors[n]][..]);
    Layer::new(grid, weights, biases, &columns)
}

fn arrays(rows: usize, columns: usize, random: &mut Random) -> Vec<Array> {
    let mut some = |n: usize| (0..n).map(|_| random.float().into()).collect::<Vec<f64>>();
    let weights = some(rows * columns);
    Array::of_layer(weights, some(rows))
}

fn relu() -> Op {
    Op::Activation(Activation::Relu)
}

/// A quantized graph computes the same numbers as 64-bit integers with the same scales.
#[test]
fn quantized_layers_are_sums_of_integers() {
    let mut random = Random::new(3);
    let mut draft = Draft::new(Shape::vector(7));
    let first = draft
        .push("a", Op::Affine, &[0], arrays(5, 7, &mut random))
        .unwrap();
    let positive = draft.push("r", relu(), &[first], Vec::new()).unwrap();
    draft
        .push("b", Op::Affine, &[positive], arrays(3, 5, &mut random))
        .unwrap();
    let (of_input, of_hidden) = (samples(&[-1.0, 1.0]).grid(), samples(&[0.0, 2.0]).grid());
    let (a, b) = (&layer(&draft, 0, of_input), &layer(&draft, 2, of_hidden));
    let integers = [a, b].map(|layer| Some(Integers::Layer(layer.clone())));
    let [first_layer, second_layer] = integers;
    let quantized = rewrite(&draft, &[first_layer, None, second_layer]).unwrap();
    let tensors = quantized.rounded();
    let sums = |layer: &Layer, numbers: &[i64]| -> Vec<i64> {
        let rows = layer.weights.chunks(numbers.len()).zip(layer.biases());
        rows.map(|(row, bias)| {
            let products = row.iter().zip(numbers).map(|(&w, n)| w as i64 * n);
            assert!(row.iter().all(|w| w.fract() == 0.0 && w.abs() <= 127.0));
            products.sum::<i64>() + bias as i64
        })
        .collect()
    };
    let whole =
        |x: f32, low: i32, high: i32| (libm::rint(x.into()) as i64).clamp(low.into(), high.into());
    for _ in 0..50 {
        let input: Vec<f64> = (0..7).map(|_| random.float().into()).collect();
        let factor = 1.0 / of_input.scale;
        let of = |&x: &f64| whole(x as f32 * factor, of_input.low, of_input.high);
        let numbers: Vec<i64> = input.iter().map(of).collect();
        let hidden = sums(a, &numbers)
            .into_iter()
            .zip(&a.units)
            .map(|(s, unit)| {
                let factor = (unit / f64::from(of_hidden.scale)) as f32;
                whole(s as f32 * factor, 0, of_hidden.high)
            });
        let hidden: Vec<i64> = hidden.collect();
        let scores = sums(b, &hidden).into_iter().zip(&b.units);
        let scores: Vec<f64> = scores
            .map(|(s, &unit)| f64::from(s as f32 * unit as f32))
            .collect();
        let found = quantized.graph.evaluate(&tensors, input, |_, _| {});
        assert_eq!(found[quantized.graph.outputs[0]], scores);
    }
}

fn names(draft: &Draft) -> Vec<&'static str> {
    draft.graph.nodes.iter().map(|n| n.op.name()).collect()
}

/// A value is rounded once, directly behind the layer that computes it, if the functions in between
/// commute with rounding. If another node reads the value too, the value stays a real number.
#[test]
fn values_are_rounded_once() {
    let mut random = Random::new(5);
    let mut draft = Draft::new(Shape { c: 2, h: 4, w: 4 });
    let conv = Op::Convolution {
        window: Window::of((1, 1)),
        groups: 1,
    };
    let mut push = |op, inputs: &[usize], arrays| draft.push("n", op, inputs, arrays).unwrap();
    let first = push(conv, &[0], arrays(2, 2, &mut random));
    let positive = push(relu(), &[first], Vec::new());
    let pool = Op::Pool {
        kind: crate::ir::op::Pool::Max,
        window: Window {
            stride: (2, 2),
            ..Window::of((2, 2))
        },
    };
    let small = push(pool, &[positive], Vec::new());
    let second = push(conv, &[small], arrays(2, 2, &mut random));
    let third = push(conv, &[second], arrays(2, 2, &mut random));
    push(Op::Combine(Arithmetic::Add), &[third, second], Vec::new());
    let grid = samples(&[-1.0, 1.0]).grid();
    let of = |i: usize| {
        let layer = matches!(draft.graph.nodes[i].op, Op::Convolution { .. });
        layer.then(|| Integers::Layer(self::layer(&draft, i, grid)))
    };
    let mut layers: Vec<Option<Integers>> = (0..6).map(of).collect();
    let quantized = rewrite(&draft, &layers).unwrap();
    let whole = ["scale", "round", "clip"];
    let expected = [
        &whole[..],
        &["convolution"],
        &whole,
        &["max_pool", "convolution"],
    ]
    .concat();
    let names_of = names(&quantized);
    assert_eq!(names_of[..expected.len()], expected);
    // The value in front of the last convolution is needed twice: as real numbers for the sum, and
    // rounded for the convolution.
    let behind = [&["scale"][..], &whole, &["convolution", "scale", "add"]].concat();
    assert_eq!(names_of[expected.len()..], behind);
    // If the last convolution is not quantized, nothing behind the second convolution is rounded.
    layers[4] = None;
    let quantized = rewrite(&draft, &layers).unwrap();
    let behind = ["scale", "convolution", "add"];
    assert_eq!(names(&quantized)[expected.len()..], behind);
}

/// A graph of layers and a sum, as residual networks have it: a, b = f(a), r = ReLU(a + b), and two
/// readers of r. The first is a layer. The second is another sum.
fn residual(random: &mut Random) -> Draft {
    let mut draft = Draft::new(Shape::vector(6));
    let mut push = |op, inputs: &[usize], arrays| draft.push("n", op, inputs, arrays).unwrap();
    let a = push(Op::Affine, &[0], arrays(4, 6, random));
    let b = push(Op::Affine, &[a], arrays(4, 4, random));
    let sum = push(Op::Combine(Arithmetic::Subtract), &[a, b], Vec::new());
    let r = push(relu(), &[sum], Vec::new());
    let c = push(Op::Affine, &[r], arrays(4, 4, random));
    push(Op::Combine(Arithmetic::Add), &[c, r], Vec::new());
    draft
}

/// A sum in front of a layer is one step on integers, with the limits of the ReLU behind it. The
/// last sum stays in floats. Its operand is the number that the first sum's integers represent.
#[test]
fn sums_are_rounded_once() {
    let mut random = Random::new(11);
    let draft = residual(&mut random);
    let grids = [samples(&[-3.0, 4.0]).grid(), samples(&[-2.0, 2.0]).grid()];
    let of_sum = samples(&[0.0, 5.0]).grid();
    let of_layer = |i: usize, grid| Some(Integers::Layer(layer(&draft, i, grid)));
    let layers = [
        of_layer(0, samples(&[-1.0, 1.0]).grid()),
        of_layer(1, grids[0]),
        Some(Integers::Sum(grids)),
        None,
        of_layer(4, of_sum),
        Some(Integers::Sum([grids[0], of_sum])),
    ];
    let quantized = rewrite(&draft, &layers).unwrap();
    let whole = ["scale", "round", "clip"];
    let layer = [&["affine"][..], &whole].concat();
    let sum = ["rounded_sum", "clip", "scale", "affine", "scale", "add"];
    assert_eq!(
        names(&quantized),
        [&whole, &layer[..], &layer, &sum].concat()
    );
    let (tensors, graph) = (quantized.rounded(), &quantized.graph);
    let at = graph
        .nodes
        .iter()
        .position(|n| n.op.name() == "rounded_sum");
    let (sum, clip) = (&graph.nodes[at.unwrap()], &graph.nodes[at.unwrap() + 1]);
    let (ratio_a, ratio_b) = (
        f64::from(grids[0].scale) / f64::from(of_sum.scale),
        f64::from(grids[1].scale) / f64::from(of_sum.scale),
    );
    for _ in 0..50 {
        let input: Vec<f64> = (0..6).map(|_| random.float().into()).collect();
        let mut seen = vec![Vec::new(); graph.values.len()];
        graph.evaluate(&tensors, input, |value, x| seen[value] = x.to_vec());
        let operands = seen[sum.inputs[0]].iter().zip(&seen[sum.inputs[1]]);
        for ((a, b), r) in operands.zip(&seen[clip.output]) {
            assert!(a.fract() == 0.0 && b.fract() == 0.0);
            let exact = (a * ratio_a - b * ratio_b).clamp(0.0, 255.0);
            assert!((exact - r).abs() < 0.501 && r.fract() == 0.0, "{a} {b} {r}");
        }
    }
    // Without a layer that reads the sum, both sums stay in floats.
    let mut without = layers.to_vec();
    without[4] = None;
    let quantized = rewrite(&draft, &without).unwrap();
    let found = names(&quantized);
    assert!(!found.contains(&"rounded_sum") && found.contains(&"subtract"));
}

/// The mean of an image in front of a layer is computed on integers. It is the sum of the integers
/// times one factor, rounded.
#[test]
fn means_are_sums_of_integers() {
    let mut random = Random::new(12);
    let mut draft = Draft::new(Shape { c: 2, h: 3, w: 5 });
    let mut push = |op, inputs: &[usize], arrays| draft.push("n", op, inputs, arrays).unwrap();
    let conv = Op::Convolution {
        window: Window::of((1, 1)),
        groups: 1,
    };
    let first = push(conv, &[0], arrays(2, 2, &mut random));
    let mean = Op::Pool {
        kind: crate::ir::op::Pool::Mean,
        window: Window::of((3, 5)),
    };
    let mean = push(mean, &[first], Vec::new());
    let flat = push(Op::Reshape(Shape::vector(2)), &[mean], Vec::new());
    push(Op::Affine, &[flat], arrays(3, 2, &mut random));
    let of_image = samples(&[-1.5, 1.5]).grid();
    let of_mean = samples(&[-0.75, 0.75]).grid();
    let layers = [
        Some(Integers::Layer(layer(
            &draft,
            0,
            samples(&[-1.0, 1.0]).grid(),
        ))),
        Some(Integers::Mean(of_image, 15)),
        None,
        Some(Integers::Layer(layer(&draft, 3, of_mean))),
    ];
    let quantized = rewrite(&draft, &layers).unwrap();
    let whole = ["scale", "round", "clip"];
    let mean = ["average_pool", "scale", "round", "scale", "round", "clip"];
    let layer = [&["convolution"][..], &whole, &mean];
    let end = ["reshape", "affine", "scale"];
    let expected = [&whole, &layer.concat()[..], &end].concat();
    assert_eq!(names(&quantized), expected);
    let (tensors, graph) = (quantized.rounded(), &quantized.graph);
    let at = expected.iter().position(|&name| name == "average_pool");
    let (pool, clip) = (&graph.nodes[at.unwrap()], &graph.nodes[at.unwrap() + 5]);
    let unit = f64::from(of_image.scale) / 15.0 / f64::from(of_mean.scale);
    for _ in 0..50 {
        let input: Vec<f64> = (0..30).map(|_| random.float().into()).collect();
        let mut seen = vec![Vec::new(); graph.values.len()];
        graph.evaluate(&tensors, input, |value, x| seen[value] = x.to_vec());
        for (image, found) in seen[pool.inputs[0]].chunks(15).zip(&seen[clip.output]) {
            let sum = image.iter().map(|&x| x as i64).sum::<i64>() as f32;
            let expected = libm::rint((sum * unit as f32).into());
            let limits = (of_mean.low.into(), of_mean.high.into());
            assert_eq!(*found, expected.clamp(limits.0, limits.1));
        }
    }
}

/// A bias that is much larger than the products keeps its value. The correction removes a mean
/// error.
#[test]
fn biases_stay_and_are_corrected() {
    let mut draft = Draft::new(Shape::vector(2));
    let arrays = Array::of_layer(vec![1e-9, 0.0, 1.0, 0.5], vec![100.0, 0.25]);
    draft.push("a", Op::Affine, &[0], arrays).unwrap();
    let grid = samples(&[0.0, 1.0]).grid();
    let mut layer = layer(&draft, 0, grid);
    let shape = Shape::vector(2);
    let real = |layer: &Layer| layer.biases()[0] * layer.units[0];
    assert!((real(&layer) - 100.0).abs() < 1e-4);
    let input = [0.5, 0.25];
    let compare = |layer: &mut Layer, off: f64| {
        let mut numbers = [100.0 + off, 0.875 + off];
        let computed = Computed {
            record: 0,
            value: 1,
            node: Some(0),
            numbers: &mut numbers,
            operands: &[(&input, shape)],
            arrays: &[],
        };
        layer.compare(Op::Affine, &computed, shape);
        layer.correct()
    };
    let before = layer.biases()[1] * layer.units[1];
    compare(&mut layer, 0.1);
    assert!((real(&layer) - 100.1).abs() < 1e-3, "{}", real(&layer));
    let after = layer.biases()[1] * layer.units[1];
    assert!((after - before - 0.1).abs() < 0.01, "{before} {after}");
    assert!(compare(&mut layer, 0.1) < 1e-3);
}
