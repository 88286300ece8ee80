//! Finds input records whose sums overflow f32 inside the network. With them `--selftest` checks
//! that a device refuses such records.
//!
//! To find a record, the signs of one row's weights are traced back to the network's inputs. The
//! inputs are made just so large that the sum of this row leaves the range of f32 in any order of
//! its terms. A record tests most if no other sum overflows. A device that loses this one infinity
//! would answer with an ordinary class.

use crate::ir::graph::{Graph, Node, Shape};
use crate::ir::network::Network;
use crate::ir::op::{Activation, Arithmetic, Axis, Float, Math, OfChannels, Op, Pool};
use crate::planner::tiles::{SUM_GROWTH, VALUE_GROWTH};
use std::borrow::Cow;

/// The largest finite f32.
const LARGEST: f64 = f32::MAX as f64;

/// The largest input of the network that the search uses. It stays finite after any rounding.
const MOST: f64 = LARGEST * 0.999;

/// The size to which the search raises the sum of a row. It exceeds the range of f32 by more than
/// rounding errors.
const BEYOND: f64 = 1.01 * LARGEST;

/// The number of rows of a layer that the search tries, beginning with the rows with the largest
/// weights.
const ROWS: usize = 8;

/// The most steps that the search takes for one row. Each step changes the inputs so that the sums
/// of other rows become smaller.
const STEPS: usize = 60;

/// The most multiply-adds that the whole search for records may take.
const BUDGET: usize = 1 << 31;

/// The effect of an input record on the sums of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Verdict {
    /// True if at least one sum overflows f32 in every order of its terms.
    overflows: bool,
    /// True if a sum overflows, but activations turn all infinities into finite numbers. The scores
    /// then look ordinary, so the device must notice the overflow before it applies the activation.
    by_activation_only: bool,
}

/// Returns raw input records that overflow, one after the other. At most one per affine layer is
/// returned, and activations hide its overflow
/// ([`by_activation_only`](Verdict::by_activation_only)). If there are none, at most one record
/// that overflows in another way is returned. Only networks that are chains of affine layers and
/// activations are searched. For others the result is empty.
pub(crate) fn records(network: &Network, tensors: &[Vec<f32>]) -> Vec<f32> {
    let Some(layers) = layers(network, tensors) else {
        return Vec::new();
    };
    let macs = (network.flop() / 2).max(1) as usize;
    // One step of the search costs about as much as computing four records.
    let mut search = Search {
        network,
        layers,
        left: (BUDGET / (4 * macs)).max(ROWS),
        second_best: Vec::new(),
    };
    let mut found = Vec::new();
    for layer in 0..search.layers.len() {
        match search.layers[layer] {
            ChainLayer::Affine { .. } => found.extend(search.layer(layer).into_iter().flatten()),
            ChainLayer::Activation(a) if a.bounded() => break,
            ChainLayer::Activation(_) => {}
        }
    }
    if found.is_empty() {
        search.second_best
    } else {
        found
    }
}

/// A layer of a network without branches, with its weights. Activations count as layers.
#[derive(Clone, Copy)]
enum ChainLayer<'a> {
    Affine {
        inputs: usize,
        weights: &'a [f32],
        biases: &'a [f32],
    },
    Activation(Activation),
}

impl ChainLayer<'_> {
    /// Computes the layer's result in float64. `values` is its input.
    fn step(self, values: &[f64]) -> Vec<f64> {
        let input = [(values, Shape::vector(values.len()))];
        match self {
            ChainLayer::Affine {
                weights, biases, ..
            } => Op::Affine.reference(&input, &[weights, biases], Shape::vector(biases.len())),
            ChainLayer::Activation(a) => Op::Activation(a).reference(&input, &[], input[0].1),
        }
    }
}

/// Returns the layers of a network. `None` if they are not a chain of affine layers and
/// activations.
fn layers<'a>(network: &Network, tensors: &'a [Vec<f32>]) -> Option<Vec<ChainLayer<'a>>> {
    let graph = &network.graph;
    let chain =
        (1..graph.nodes.len()).all(|i| graph.only_consumer(graph.nodes[i - 1].output) == Some(i));
    let layer = |node: &Node| match node.op {
        Op::Affine => Some(ChainLayer::Affine {
            inputs: graph.tensors[node.tensors[0]].cols,
            weights: &tensors[node.tensors[0]],
            biases: &tensors[node.tensors[1]],
        }),
        Op::Activation(a) => Some(ChainLayer::Activation(a)),
        _ => None,
    };
    if chain {
        graph.nodes.iter().map(layer).collect()
    } else {
        None
    }
}

/// The largest factor by which rounding can increase the size of a sum.
const ROUNDING: f64 = 1.03;

/// The most weights that all passes of [`reach`] together may read. At least three passes are made
/// even if they read more.
const REACH_BUDGET: usize = 1 << 26;

/// Returns the size of raw inputs up to which no sum leaves the range of f32, in any order of its
/// terms. The size has two digits and is rounded down. It is `f32::MAX` if no finite input makes a
/// sum overflow, and 0 if no such size is known.
///
/// The network is computed with intervals around 0 instead of numbers. For a network of several
/// layers the true limit may be larger.
pub(crate) fn reach(network: &Network, tensors: &[Vec<f32>]) -> f32 {
    let weights: usize = tensors.iter().map(Vec::len).sum();
    let passes = (REACH_BUDGET / weights.max(1)).clamp(3, 24);
    let (mut low, mut high, mut size) = (0.0, f64::INFINITY, 1.0);
    for pass in 0..passes {
        let most = most(network, tensors, size);
        match most <= LARGEST {
            true => low = size,
            false => high = size,
        }
        if low >= LARGEST {
            return f32::MAX;
        }
        // If the sums are proportional to the inputs, this limit is exact and the second pass
        // confirms it.
        let limit = size * LARGEST / most * 0.999;
        if low > 0.0 && (high < 1.001 * low || (size == low && most > 0.998 * LARGEST)) {
            break;
        }
        size = if limit > 0.99 * LARGEST && high.is_infinite() {
            LARGEST
        } else if pass < 4 && limit > low && limit < high {
            limit
        } else {
            (low.max(f64::from(f32::MIN_POSITIVE)) * high.min(LARGEST)).sqrt()
        };
    }
    if low == 0.0 {
        return 0.0;
    }
    let digit = libm::pow(10.0, libm::log10(low).floor() - 1.0);
    ((low / digit).floor() * digit) as f32
}

/// A sum that leaves the range of f32 if its terms are added in some order.
#[derive(Debug, PartialEq)]
pub(crate) struct PartialSum {
    /// The name of the graph node that computes the sum.
    pub(crate) node: String,
    /// The largest absolute value that a partial sum can have in any order of the terms, rounding
    /// included.
    pub(crate) size: f64,
}

/// Returns the first sum of the network that leaves the range of f32 in some order of its terms,
/// for one record of raw inputs. `None` if there is no such sum.
pub(crate) fn partial(network: &Network, tensors: &[Vec<f32>], raw: &[f32]) -> Option<PartialSum> {
    let graph = &network.graph;
    let wide: Vec<f64> = raw.iter().map(|&x| x.into()).collect();
    let mut values = vec![Vec::new(); graph.values.len()];
    graph.evaluate(tensors, network.graph_input(&wide), |value, numbers| {
        values[value] = numbers.iter().map(|x| x.abs()).collect();
    });
    let adds = |op| {
        use Arithmetic::{Add, Subtract};
        let mean = matches!(
            op,
            Op::Pool {
                kind: Pool::Mean | Pool::PaddedMean,
                ..
            }
        );
        mean || matches!(
            op,
            Op::Affine
                | Op::Convolution { .. }
                | Op::Resample { .. }
                | Op::Product { .. }
                | Op::Scale
                | Op::Combine(Add | Subtract)
        )
    };
    graph
        .nodes
        .iter()
        .filter(|node| adds(node.op))
        .find_map(|node| {
            let inputs: Vec<(&[f64], Shape)> = node
                .inputs
                .iter()
                .map(|&i| (&*values[i], graph.values[i].shape))
                .collect();
            let size = largest_sum(network, tensors, node, &inputs).sum;
            (size > LARGEST).then(|| PartialSum {
                node: node.name.to_string(),
                size,
            })
        })
}

/// Upper bounds for the absolute values of the numbers that a node computes.
struct Sizes {
    values: Vec<f64>,
    /// The bound for all partial sums while the values are computed.
    sum: f64,
}

/// Returns bounds for the absolute values of a node's results and partial sums. `inputs` has bounds
/// for the absolute values of its operands.
fn largest_sum(
    network: &Network,
    tensors: &[Vec<f32>],
    node: &Node,
    inputs: &[(&[f64], Shape)],
) -> Sizes {
    let graph = &network.graph;
    let arrays = magnitudes(graph, tensors, node);
    let values = size_of(node.op, inputs, &arrays, graph.values[node.output].shape);
    let sum = largest(&values) * partial_sum_ratio(node.op);
    Sizes { values, sum }
}

/// Returns the absolute values of the numbers in a node's constant arrays.
fn magnitudes(graph: &Graph, tensors: &[Vec<f32>], node: &Node) -> Vec<Vec<f32>> {
    let arrays = graph.arrays(node, tensors);
    let magnitudes = |a: &Cow<'_, [f32]>| a.iter().map(|v| v.abs()).collect();
    arrays.iter().map(magnitudes).collect()
}

/// Returns how much larger a partial sum can be than the final value, if all terms have the same
/// sign. Rounding makes the ratio larger than 1. For a mean it is also multiplied by the number of
/// elements, because the sum is divided last.
fn partial_sum_ratio(op: Op) -> f64 {
    match op {
        Op::Pool {
            kind: Pool::Mean | Pool::PaddedMean,
            window,
        } => {
            let (height, width) = window.size;
            ROUNDING * (height * width) as f64
        }
        Op::Affine
        | Op::Convolution { .. }
        | Op::PRelu
        | Op::Resample { .. }
        | Op::Product { .. }
        | Op::Scale
        | Op::Combine(_) => ROUNDING,
        _ => 1.0,
    }
}

/// Returns the largest number. Returns NaN if one of the numbers is NaN.
fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0f64, |most, &v| if v <= most { most } else { v })
}

/// Returns the largest absolute value that any value or partial sum of the network can have, if raw
/// inputs are at most `raw` in size. Infinite if there is no limit.
///
/// Bounds are kept for channels instead of pixels. So a pass costs little more than reading the
/// weights.
fn most(network: &Network, tensors: &[Vec<f32>], raw: f64) -> f64 {
    let graph = &network.graph;
    let [above, below] = [raw, -raw].map(|x| network.graph_input(&vec![x; network.width]));
    let input: Vec<f64> = above
        .iter()
        .zip(&below)
        .map(|(a, b)| a.abs().max(b.abs()))
        .collect();
    let mut most = largest(&input);
    let mut sizes = vec![Vec::new(); graph.values.len()];
    sizes[graph.inputs[0]] = by_channel(&input, graph.values[graph.inputs[0]].shape);
    for node in graph.nodes.iter() {
        let found = channels(network, tensors, node, &sizes);
        most = most.max(found.sum);
        if !most.is_finite() {
            return f64::INFINITY;
        }
        sizes[node.output] = found.values;
    }
    most
}

/// Returns a bound for the absolute values of each channel of a node's result. `sizes` has the
/// bounds of all earlier values. [`largest_sum`] has a bound for each element instead, which is
/// more precise and much slower for images.
fn channels(network: &Network, tensors: &[Vec<f32>], node: &Node, sizes: &[Vec<f64>]) -> Sizes {
    let graph = &network.graph;
    let shape = graph.values[node.output].shape;
    let shape_of = |&i: &usize| graph.values[i].shape;
    let values: Vec<f64> = match node.op {
        Op::Convolution { groups, .. } => {
            let (&[input], &[weights, biases]) = (&node.inputs[..], &node.tensors[..]) else {
                let (values, sum) = (Vec::new(), f64::INFINITY);
                return Sizes { values, sum };
            };
            // The bound is for pixels whose window is completely inside the image, because their
            // sums have the most terms.
            let (group, outputs) = (shape_of(&input).c / groups, shape.c / groups);
            let depth = tensors[weights].len() / shape.c.max(1);
            let rows = tensors[weights]
                .chunks_exact(depth.max(1))
                .zip(&tensors[biases]);
            let sum = |(o, (row, &bias)): (usize, (&[f32], &f32))| {
                let values = &sizes[input][o / outputs * group..][..group];
                let terms = row.iter().zip(values.iter().cycle());
                terms.fold(f64::from(bias).abs(), |sum, (&w, x)| {
                    sum + f64::from(w).abs() * x
                })
            };
            rows.enumerate().map(sum).collect()
        }
        Op::Activation(_) | Op::Combine(_) | Op::OfChannels(_) | Op::Concat(Axis::C) => {
            let vector = |i: &usize| (&*sizes[*i], Shape::vector(sizes[*i].len()));
            let inputs: Vec<(&[f64], Shape)> = node.inputs.iter().map(vector).collect();
            size_of(node.op, &inputs, &[], Shape::vector(shape.c))
        }
        Op::Pool { .. } => sizes[node.inputs[0]].clone(),
        Op::Resample { .. } => {
            // A resampling increases the bound of each channel as much as it increases a channel of
            // ones.
            let one = |shape| Shape { c: 1, ..shape };
            let (from, to) = (one(shape_of(&node.inputs[0])), one(shape));
            let arrays = magnitudes(graph, tensors, node);
            let grown = size_of(node.op, &[(&vec![1.0; from.len()], from)], &arrays, to);
            let factor = largest(&grown);
            sizes[node.inputs[0]].iter().map(|x| x * factor).collect()
        }
        Op::Product { .. } => {
            let terms = shape_of(&node.inputs[0]).w as f64;
            let (a, b) = (&sizes[node.inputs[0]], &sizes[node.inputs[1]]);
            a.iter().zip(b).map(|(a, b)| terms * a * b).collect()
        }
        _ => {
            let each = |i: &usize| {
                let (sizes, shape) = (&sizes[*i], shape_of(i));
                sizes
                    .iter()
                    .flat_map(|&x| std::iter::repeat_n(x, shape.h * shape.w))
                    .collect()
            };
            let inputs: Vec<Vec<f64>> = node.inputs.iter().map(each).collect();
            let inputs: Vec<(&[f64], Shape)> = inputs
                .iter()
                .map(|x| &**x)
                .zip(node.inputs.iter().map(shape_of))
                .collect();
            by_channel(&largest_sum(network, tensors, node, &inputs).values, shape)
        }
    };
    let mut sum = largest(&values) * partial_sum_ratio(node.op);
    if by_tiles(graph, node) {
        sum = (sum * SUM_GROWTH).max(largest(&sizes[node.inputs[0]]) * VALUE_GROWTH);
    }
    Sizes { values, sum }
}

/// Returns true if the host engine may compute a node by Winograd tiles.
fn by_tiles(graph: &Graph, node: &Node) -> bool {
    let Op::Convolution { window, groups } = node.op else {
        return false;
    };
    let each = window.stride == (1, 1) && window.dilation == (1, 1);
    let whole = graph.values[node.inputs[0]].shape.c % 16 == 0;
    window.size == (3, 3) && each && groups == 1 && whole
}

/// Returns the largest number of each channel.
fn by_channel(values: &[f64], shape: Shape) -> Vec<f64> {
    values
        .chunks_exact((shape.h * shape.w).max(1))
        .map(largest)
        .collect()
}

/// Returns bounds for the absolute values of an operation's results. `inputs` has bounds for its
/// operands, and `arrays` the absolute values of its constant arrays.
fn size_of(op: Op, inputs: &[(&[f64], Shape)], arrays: &[Vec<f32>], shape: Shape) -> Vec<f64> {
    let (values, input) = inputs[0];
    let arrays: Vec<&[f32]> = arrays.iter().map(|a| &**a).collect();
    let of = |op: Op| op.reference(inputs, &arrays, shape);
    match op {
        Op::Activation(a) => {
            // Close to 0 a logarithm has a large absolute value, and a reciprocal has no bound.
            let low = match a {
                Activation::Math(Math::Reciprocal) => f64::INFINITY,
                Activation::Math(Math::Log) => 104.0,
                Activation::Math(Math::Cos | Math::NotBelow) => 1.0,
                _ => 0.0,
            };
            // Most functions have their largest absolute value over the range from −x to x at one
            // of its ends. Exceptions are the sine (at most 1), GELU, HardSwish, SiLU and Mish.
            // Between the ends, these four are at most 0.5 in size, and never larger than their
            // argument.
            let size = |&x: &f64| {
                let ends = a.apply(x).abs().max(a.apply(-x).abs());
                ends.max(x.min(1.0)).max(low)
            };
            values.iter().map(size).collect()
        }
        Op::PRelu => of(op)
            .iter()
            .zip(values)
            .zip(arrays[0])
            .map(|((&y, &x), &s)| y.max(x * f64::from(s)))
            .collect(),
        Op::Combine(Arithmetic::Subtract) => of(Op::Combine(Arithmetic::Add)),
        Op::Combine(Arithmetic::Divide) => vec![f64::INFINITY; shape.len()],
        Op::Combine(Arithmetic::Minimum) => of(Op::Combine(Arithmetic::Maximum)),
        Op::Combine(Arithmetic::RoundedSum { a, b }) => {
            let [a, b] = [a, b].map(|x| Float::new(x.get().abs()));
            of(Op::Combine(Arithmetic::RoundedSum { a, b }))
        }
        Op::Pad { padding, value } => of(Op::Pad {
            padding,
            value: Float::new(value.get().abs()),
        }),
        Op::OfChannels(OfChannels::Softmax) => vec![1.0; shape.len()],
        Op::OfChannels(OfChannels::IntegerSoftmax(_)) => vec![255.0; shape.len()],
        Op::OfChannels(OfChannels::ByteSteps) => {
            // The ends of the range are rounded too.
            let most = values.iter().fold(0.0, |most: f64, &v| most.max(v));
            vec![most * (1.0 + 1.0 / 255.0); shape.len()]
        }
        Op::OfChannels(OfChannels::LogSoftmax) => {
            let most = values.iter().fold(0.0, |most: f64, &v| most.max(v));
            vec![2.0 * most + libm::log(input.c as f64); shape.len()]
        }
        Op::Affine
        | Op::Convolution { .. }
        | Op::Pool { .. }
        | Op::Scale
        | Op::Combine(Arithmetic::Add | Arithmetic::Multiply | Arithmetic::Maximum)
        | Op::Concat(_)
        | Op::Resample { .. }
        | Op::Product { .. }
        | Op::Slice { .. }
        | Op::Reshape(_)
        | Op::Transpose(_) => of(op),
    }
}

/// The state of the search for records that overflow.
struct Search<'a> {
    network: &'a Network,
    layers: Vec<ChainLayer<'a>>,
    /// The number of steps that the search may still take, for all remaining rows together.
    left: usize,
    /// The first record that was found whose overflow shows in the scores, so that it is not
    /// [`by_activation_only`](Verdict::by_activation_only). It is used if no better record is
    /// found.
    second_best: Vec<f32>,
}

/// A mask for each layer up to the one that is searched. The mask of an activation tells which of
/// its arguments are above 0, which a ReLU lets pass. The mask of an affine layer is empty.
type Masks = Vec<Vec<bool>>;

impl Search<'_> {
    /// Searches for a record that makes a sum of layer `target` overflow, while activations make
    /// the infinity finite, so that no score shows it. `None` if the search finds no such record.
    fn layer(&mut self, target: usize) -> Option<Vec<f32>> {
        let ChainLayer::Affine {
            inputs,
            weights,
            biases,
        } = self.layers[target]
        else {
            return None;
        };
        let size = |row: usize| -> f64 {
            weights[row * inputs..][..inputs]
                .iter()
                .map(|&v| f64::from(v).abs())
                .sum()
        };
        let sizes: Vec<f64> = (0..biases.len()).map(size).collect();
        let mut rows: Vec<usize> = (0..biases.len()).collect();
        rows.sort_by(|&a, &b| sizes[b].total_cmp(&sizes[a]).then(a.cmp(&b)));
        rows.truncate(ROWS);
        // A sum of −∞ is tried before +∞, because ReLU turns only −∞ into a finite number.
        [-1.0, 1.0]
            .into_iter()
            .find_map(|sign| rows.iter().find_map(|&row| self.row(target, row, sign)))
    }

    /// Searches for a record as [`Search::layer`] does, where row `row` of the layer has a sum of
    /// `sign` · ∞. The search begins with the inputs that make the sum largest, scaled so that it
    /// just overflows. Each step then reduces the effect of the layer's other rows on later sums.
    fn row(&mut self, target: usize, row: usize, sign: f64) -> Option<Vec<f32>> {
        let (network, transform) = (self.network, &self.network.transform);
        let most: Vec<f64> = (0..network.width)
            .map(|i| {
                let reach = |raw: f64| transform.apply(i, raw).abs();
                reach(LARGEST).min(reach(-LARGEST)).min(MOST)
            })
            .collect();
        let ChainLayer::Affine { biases, .. } = self.layers[target] else {
            return None;
        };
        let height = biases.len();
        let mut unit = vec![0.0; height];
        unit[row] = sign;
        let shares = self.shares(target);
        let mut input = self.start(target, row, &unit, &most)?;
        for turn in 0..STEPS {
            self.left = self.left.checked_sub(1)?;
            let raw =
                |(i, &z): (usize, &f64)| transform.invert(i, z).clamp(-LARGEST, LARGEST) as f32;
            let record: Vec<f32> = input.iter().enumerate().map(raw).collect();
            let verdict = judge(network, &self.layers, &record);
            if verdict.by_activation_only {
                return Some(record);
            } else if verdict.overflows && self.second_best.is_empty() {
                self.second_best = record;
            }
            let (values, masks) = self.forward(target, &input);
            let open = |i: usize| match i == row || values[i] <= 0.0 {
                true => 0.0,
                false => shares[i],
            };
            let uphill = self.slopes(target, (0..height).map(open).collect(), &masks);
            let steepest = uphill.iter().fold(0.0f64, |a, s| a.max(s.abs()));
            if steepest == 0.0 {
                return None;
            }
            let length = 0.3 / (turn as f64 + 1.0).sqrt() / steepest;
            for ((z, s), m) in input.iter_mut().zip(&uphill).zip(&most) {
                *z = (*z - length * m * s).clamp(-m, *m);
            }
            let slopes = self.slopes(target, unit.clone(), &masks);
            push_beyond(&mut input, &slopes, &most);
        }
        None
    }

    /// Returns the inputs with which the search for a row begins. `None` if the sum of the row
    /// cannot overflow.
    fn start(&self, target: usize, row: usize, unit: &[f64], most: &[f64]) -> Option<Vec<f64>> {
        let mut masks = Masks::new();
        let (mut input, mut values) = (vec![0.0; self.network.width], Vec::new());
        let affine = |l: &ChainLayer<'_>| matches!(l, ChainLayer::Affine { .. });
        let deep = self.layers[..target].iter().any(affine);
        // The best signs of the inputs depend on which ReLUs are open (let values pass), and these
        // depend on the inputs. So the signs are computed repeatedly with the ReLUs that the last
        // inputs open.
        for _ in 0..if deep { 3 } else { 1 } {
            let slopes = self.slopes(target, unit.to_vec(), &masks);
            let farthest = |(s, &m): (&f64, &f64)| if *s == 0.0 { 0.0 } else { s.signum() * m };
            input = slopes.iter().zip(most).map(farthest).collect();
            (values, masks) = self.forward(target, &input);
        }
        if values[row] * unit[row] <= BEYOND {
            return None;
        }
        let scale = BEYOND / values[row].abs();
        input.iter_mut().for_each(|z| *z *= scale);
        Some(input)
    }

    /// Returns a weight for each value of layer `target`. It bounds how much a change of the value
    /// by 1 changes the sums of the last layer, all added up.
    fn shares(&self, target: usize) -> Vec<f64> {
        let mut shares = vec![1.0; self.network.outputs()];
        for layer in self.layers.iter().skip(target + 1).rev() {
            if let ChainLayer::Affine {
                inputs, weights, ..
            } = *layer
            {
                let mut before = vec![0.0; inputs];
                for (row, share) in weights.chunks_exact(inputs).zip(&shares) {
                    before
                        .iter_mut()
                        .zip(row)
                        .for_each(|(b, &w)| *b += share * f64::from(w).abs());
                }
                shares = before;
            }
        }
        shares
    }

    /// Returns the derivatives by the network's inputs of a weighted sum. It adds layer `target`'s
    /// values times `factors`. `masks` tells which ReLUs are open. If `masks` is empty, all are
    /// open.
    fn slopes(&self, target: usize, factors: Vec<f64>, masks: &Masks) -> Vec<f64> {
        let mut slopes = factors;
        for (i, layer) in self.layers[..=target].iter().enumerate().rev() {
            match *layer {
                ChainLayer::Affine {
                    inputs, weights, ..
                } => {
                    let mut before = vec![0.0; inputs];
                    let rows = weights.chunks_exact(inputs).zip(&slopes);
                    for (row, slope) in rows.filter(|(_, s)| **s != 0.0) {
                        before
                            .iter_mut()
                            .zip(row)
                            .for_each(|(b, &w)| *b += slope * f64::from(w));
                    }
                    slopes = before;
                }
                ChainLayer::Activation(_) => {
                    let open = masks.get(i).into_iter().flatten();
                    slopes
                        .iter_mut()
                        .zip(open)
                        .filter(|(_, open)| !**open)
                        .for_each(|(s, _)| *s = 0.0);
                }
            }
        }
        slopes
    }

    /// Computes the sums of layer `target` for this input, and the masks of the layers before it.
    fn forward(&self, target: usize, input: &[f64]) -> (Vec<f64>, Masks) {
        let (mut values, mut masks) = (input.to_vec(), Masks::new());
        for layer in &self.layers[..=target] {
            if let ChainLayer::Activation(a) = layer {
                masks.push(
                    values
                        .iter()
                        .map(|&v| v > 0.0 || *a == Activation::None)
                        .collect(),
                );
            } else {
                masks.push(Vec::new());
            }
            values = layer.step(&values);
        }
        (values, masks)
    }
}

/// Changes the inputs along the slopes of a row's sum until the sum overflows again. Inputs stay
/// within ±`most`.
fn push_beyond(input: &mut [f64], slopes: &[f64], most: &[f64]) {
    let square: f64 = slopes.iter().map(|s| s * s).sum();
    for _ in 0..20 {
        let short = BEYOND - input.iter().zip(slopes).map(|(z, s)| z * s).sum::<f64>();
        if short <= 0.0 || square == 0.0 {
            break;
        }
        for ((z, s), m) in input.iter_mut().zip(slopes).zip(most) {
            *z = (*z + short / square * s).clamp(-m, *m);
        }
    }
}

/// A number, and a bound for its error in f32.
#[derive(Clone, Copy)]
struct Bounded {
    value: f64,
    error: f64,
}

impl Bounded {
    fn exact(value: f64) -> Bounded {
        Bounded { value, error: 0.0 }
    }

    /// Returns the sum of a row, or `None` if its f32 result depends on the order of the terms. A
    /// sum that overflows becomes an infinity and sets `overflows`.
    fn sum(row: &[f32], bias: f32, values: &[Bounded], overflows: &mut bool) -> Option<Bounded> {
        let rounding = (row.len() + 2) as f64 * 2f64.powi(-23);
        let (mut up, mut down) = (f64::from(bias).max(0.0), f64::from(-bias).max(0.0));
        let mut error = 0.0;
        for (&w, x) in row.iter().zip(values) {
            let product = f64::from(w) * x.value;
            up += product.max(0.0);
            down -= product.min(0.0);
            error += f64::from(w).abs() * x.error;
        }
        error += rounding * (up + down);
        let value = up - down;
        let against = if value > 0.0 { down } else { up };
        let overflowed = value.abs() - error > LARGEST;
        *overflows |= overflowed;
        match overflowed {
            true if against + error < LARGEST => {
                Some(Bounded::exact(value.signum() * f64::INFINITY))
            }
            false if up.max(down) + error < LARGEST => Some(Bounded { value, error }),
            // The result depends on the order of the terms, because partial sums of only some
            // orders overflow.
            _ => None,
        }
    }
}

/// Determines the effect of a record of raw inputs on the network. The verdict holds whatever the
/// order in which a device adds the terms of each sum.
fn judge(network: &Network, layers: &[ChainLayer<'_>], raw: &[f32]) -> Verdict {
    let read = |(i, &x): (usize, &f32)| f64::from(network.transform.apply(i, x.into()) as f32);
    let read = raw.iter().enumerate().map(read);
    let mut values: Vec<Bounded> = read.map(Bounded::exact).collect();
    let mut verdict = Verdict {
        overflows: false,
        by_activation_only: false,
    };
    let infinite = |values: &[Bounded]| values.iter().any(|v| v.value.is_infinite());
    if !raw.iter().all(|x| x.is_finite()) || infinite(&values) {
        return verdict;
    }
    for layer in layers {
        match *layer {
            ChainLayer::Affine {
                inputs,
                weights,
                biases,
            } => {
                if infinite(&values) {
                    return verdict;
                }
                let rows = weights.chunks_exact(inputs).zip(biases);
                let sums: Vec<Option<Bounded>> = rows
                    .map(|(row, &b)| Bounded::sum(row, b, &values, &mut verdict.overflows))
                    .collect();
                match sums.into_iter().collect() {
                    Some(sums) => values = sums,
                    None => return verdict,
                }
            }
            ChainLayer::Activation(a) => {
                for Bounded { value, error } in &mut values {
                    *value = a.apply(*value);
                    *error = a.error(*error);
                }
            }
        }
    }
    verdict.by_activation_only = verdict.overflows && values.iter().all(|v| v.value.is_finite());
    verdict
}

#[cfg(test)]
mod tests;
