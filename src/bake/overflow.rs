//! Records that overflow f32 inside a network, for `--selftest`: a device must refuse them.
//!
//! Inputs take the signs of a row's weights, traced back to the network's inputs, and are just so
//! large that the row's sum leaves the range of f32 in whatever order it is added up. Such a record
//! is worth most where nothing else leaves the range: a device that loses this one infinity gives
//! an ordinary class.

use crate::ir::graph::{Node, Shape};
use crate::ir::network::Network;
use crate::ir::op::{Activation, Arithmetic, Axis, Float, Op, Pool, SoftmaxOf};

/// What f32 holds at most.
const LARGEST: f64 = f32::MAX as f64;

/// Network inputs stay below this, so that they are finite after any rounding.
const MOST: f64 = LARGEST * 0.999;

/// The sum of the row goes so far beyond the range, more than rounding takes back.
const BEYOND: f64 = 1.01 * LARGEST;

/// Rows of a layer that are tried, those of the largest weights first.
const ROWS: usize = 8;

/// Steps that make the other values of a record smaller.
const STEPS: usize = 60;

/// Multiply-adds that the search takes at most.
const BUDGET: usize = 1 << 31;

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Verdict {
    /// Some sum overflows, in every order of its terms.
    overflows: bool,
    /// Where activations turn the infinities into finite numbers, all scores are finite: nothing
    /// but the activations shows that it overflows.
    by_activation_only: bool,
}

/// Records of raw inputs that overflow, one after the other; empty where none was found. One for
/// each affine layer that has one whose overflow only the activation behind it shows, else at most
/// one. Only chains of affine layers and activations are searched.
pub(crate) fn records(network: &Network, tensors: &[Vec<f32>]) -> Vec<f32> {
    let Some(layers) = layers(network, tensors) else {
        return Vec::new();
    };
    let macs = (network.flop() / 2).max(1) as usize;
    // A step takes about four passes.
    let mut search = Search {
        network,
        layers,
        left: (BUDGET / (4 * macs)).max(ROWS),
        second_best: Vec::new(),
    };
    let mut found = Vec::new();
    for layer in 0..search.layers.len() {
        match search.layers[layer] {
            Layer::Affine { .. } => found.extend(search.layer(layer).into_iter().flatten()),
            Layer::Activation(a) if a.bounded() => break,
            Layer::Activation(_) => {}
        }
    }
    if found.is_empty() {
        search.second_best
    } else {
        found
    }
}

/// A layer of a chain.
#[derive(Clone, Copy)]
enum Layer<'a> {
    Affine {
        inputs: usize,
        weights: &'a [f32],
        biases: &'a [f32],
    },
    Activation(Activation),
}

impl Layer<'_> {
    /// The values behind it in float64.
    fn step(self, values: &[f64]) -> Vec<f64> {
        let input = [(values, Shape::vector(values.len()))];
        match self {
            Layer::Affine {
                weights, biases, ..
            } => Op::Affine.reference(&input, &[weights, biases], Shape::vector(biases.len())),
            Layer::Activation(a) => Op::Activation(a).reference(&input, &[], input[0].1),
        }
    }
}

/// The layers of a network that is a chain.
fn layers<'a>(network: &Network, tensors: &'a [Vec<f32>]) -> Option<Vec<Layer<'a>>> {
    let graph = &network.graph;
    let chain =
        (1..graph.nodes.len()).all(|i| graph.only_consumer(graph.nodes[i - 1].output) == Some(i));
    let layer = |node: &Node| match node.op {
        Op::Affine => Some(Layer::Affine {
            inputs: graph.tensors[node.tensors[0]].cols,
            weights: &tensors[node.tensors[0]],
            biases: &tensors[node.tensors[1]],
        }),
        Op::Activation(a) => Some(Layer::Activation(a)),
        _ => None,
    };
    if chain {
        graph.nodes.iter().map(layer).collect()
    } else {
        None
    }
}

/// The most by which rounding makes a sum larger.
const ROUNDING: f64 = 1.03;

/// Weights that [`reach`] reads, but for three passes through the network.
const REACH_BUDGET: usize = 1 << 26;

/// The size of raw inputs up to which no sum leaves the range of f32, in whatever order it is added
/// up: two digits, rounded down. `f32::MAX` if no finite input makes one leave it, 0 if no such
/// size is known.
///
/// Sizes go through the network as intervals around 0, so behind several layers the true limit may
/// be larger.
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
        // Where sums grow as their inputs do, the second pass is at the limit.
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

/// The first node of which a sum leaves the range of f32 in some order of its terms, and the size
/// that the sum may have, for a record of raw inputs.
pub(crate) fn partial(
    network: &Network,
    tensors: &[Vec<f32>],
    raw: &[f32],
) -> Option<(String, f64)> {
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
            Op::Affine | Op::Convolution { .. } | Op::Scale | Op::Combine(Add | Subtract)
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
            let size = largest_sum(network, tensors, node, &inputs).1;
            (size > LARGEST).then(|| (node.name.to_string(), size))
        })
}

/// The largest sizes of a node's values, from those of its inputs, and that of a sum on the way to
/// them.
fn largest_sum(
    network: &Network,
    tensors: &[Vec<f32>],
    node: &Node,
    inputs: &[(&[f64], Shape)],
) -> (Vec<f64>, f64) {
    let graph = &network.graph;
    let arrays: Vec<Vec<f32>> = graph
        .arrays(node, tensors)
        .iter()
        .map(|a| a.iter().map(|v| v.abs()).collect())
        .collect();
    let found = size_of(node.op, inputs, &arrays, graph.values[node.output].shape);
    let most = largest(&found) * rounding(node.op);
    (found, most)
}

/// How much larger than its value a sum on the way to it may be, where all its terms have one sign.
fn rounding(op: Op) -> f64 {
    match op {
        Op::Pool {
            kind: Pool::Mean | Pool::PaddedMean,
            window,
        } => ROUNDING * (window.size.0 * window.size.1) as f64,
        Op::Affine | Op::Convolution { .. } | Op::PRelu | Op::Scale | Op::Combine(_) => ROUNDING,
        _ => 1.0,
    }
}

/// The largest number; NaN where there is one.
fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0f64, |most, &v| if v <= most { most } else { v })
}

/// The largest size that a value or a sum on the way to it may have, where no raw input is larger
/// than `raw`. Infinite where there is no limit.
///
/// Sizes are known by channel, not by pixel: a pass through a network of images costs what its
/// weights cost.
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
        let (found, size) = channels(network, tensors, node, &sizes);
        most = most.max(size);
        if !most.is_finite() {
            return f64::INFINITY;
        }
        sizes[node.output] = found;
    }
    most
}

/// The largest sizes of a node's values by channel, from those of its inputs, and that of a sum on
/// the way to them: for a network of images the cost of [`largest_sum`] without its pixels.
fn channels(
    network: &Network,
    tensors: &[Vec<f32>],
    node: &Node,
    sizes: &[Vec<f64>],
) -> (Vec<f64>, f64) {
    let graph = &network.graph;
    let shape = graph.values[node.output].shape;
    let shape_of = |&i: &usize| graph.values[i].shape;
    let found: Vec<f64> = match node.op {
        Op::Convolution { groups, .. } => {
            let (&[input], &[weights, biases]) = (&node.inputs[..], &node.tensors[..]) else {
                return (Vec::new(), f64::INFINITY);
            };
            // The sum of a pixel that has its whole window inside the image.
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
        Op::Activation(_) | Op::Combine(_) | Op::Softmax(_) | Op::Concat(Axis::C) => {
            let vector = |i: &usize| (&*sizes[*i], Shape::vector(sizes[*i].len()));
            let inputs: Vec<(&[f64], Shape)> = node.inputs.iter().map(vector).collect();
            size_of(node.op, &inputs, &[], Shape::vector(shape.c))
        }
        Op::Pool { .. } => sizes[node.inputs[0]].clone(),
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
            by_channel(&largest_sum(network, tensors, node, &inputs).0, shape)
        }
    };
    let most = largest(&found) * rounding(node.op);
    (found, most)
}

/// The largest number of each channel.
fn by_channel(values: &[f64], shape: Shape) -> Vec<f64> {
    values
        .chunks_exact((shape.h * shape.w).max(1))
        .map(largest)
        .collect()
}

/// The largest sizes of an operation's values, from those of its inputs and of its arrays.
fn size_of(op: Op, inputs: &[(&[f64], Shape)], arrays: &[Vec<f32>], shape: Shape) -> Vec<f64> {
    let values = inputs[0].0;
    let arrays: Vec<&[f32]> = arrays.iter().map(|a| &**a).collect();
    let of = |op: Op| op.reference(inputs, &arrays, shape);
    match op {
        Op::Activation(a) => {
            // Between the two ends only GELUs and HardSwish turn back, and never beyond their
            // argument.
            let size = |&x: &f64| a.apply(x).abs().max(a.apply(-x).abs()).max(x.min(0.5));
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
        Op::Pad { border, value } => of(Op::Pad {
            border,
            value: Float::new(value.get().abs()),
        }),
        Op::Softmax(SoftmaxOf::Linear) => vec![1.0; shape.len()],
        Op::Softmax(SoftmaxOf::Logarithm) => {
            let most = values.iter().fold(0.0, |most: f64, &v| most.max(v));
            vec![2.0 * most + libm::log(inputs[0].1.c as f64); shape.len()]
        }
        Op::Affine
        | Op::Convolution { .. }
        | Op::Pool { .. }
        | Op::Scale
        | Op::Combine(Arithmetic::Add | Arithmetic::Multiply)
        | Op::Concat(_)
        | Op::Slice { .. }
        | Op::Reshape(_)
        | Op::Transpose(_) => of(op),
    }
}

struct Search<'a> {
    network: &'a Network,
    layers: Vec<Layer<'a>>,
    /// Steps that may still be taken.
    left: usize,
    /// The first record that overflows in another way.
    second_best: Vec<f32>,
}

/// Values of each layer that are above 0.
type Masks = Vec<Vec<bool>>;

impl Search<'_> {
    /// A record whose overflow in layer `target` only the activation behind it shows.
    fn layer(&mut self, target: usize) -> Option<Vec<f32>> {
        let Layer::Affine {
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
        let mut rows: Vec<(f64, usize)> = (0..biases.len()).map(|row| (size(row), row)).collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        rows.truncate(ROWS);
        // ReLU hides −∞ only.
        let tries = [-1.0, 1.0]
            .into_iter()
            .flat_map(|sign| rows.iter().map(move |r| (r.1, sign)));
        tries
            .into_iter()
            .find_map(|(row, sign)| self.row(target, row, sign))
    }

    /// The same for a row whose sum becomes `sign` · ∞. From the inputs that take it farthest,
    /// scaled so that it is just beyond the range, steps lead downhill on the sizes of all that the
    /// other rows add to later sums.
    fn row(&mut self, target: usize, row: usize, sign: f64) -> Option<Vec<f32>> {
        let (network, transform) = (self.network, &self.network.transform);
        let most: Vec<f64> = (0..network.width)
            .map(|i| {
                let reach = |raw: f64| transform.apply(i, raw).abs();
                reach(LARGEST).min(reach(-LARGEST)).min(MOST)
            })
            .collect();
        let Layer::Affine { biases, .. } = self.layers[target] else {
            return None;
        };
        let height = biases.len();
        let unit: Vec<f64> = (0..height)
            .map(|i| if i == row { sign } else { 0.0 })
            .collect();
        let shares = self.shares(target);
        let mut masks = Masks::new();
        let mut input = vec![0.0; network.width];
        let mut values = Vec::new();
        let deep = self.layers[..target]
            .iter()
            .any(|l| matches!(l, Layer::Affine { .. }));
        // The direction depends on which ReLUs are open, and these on the direction.
        for _ in 0..if deep { 3 } else { 1 } {
            let slopes = self.slopes(target, unit.clone(), &masks);
            let farthest = |(s, &m): (&f64, &f64)| if *s == 0.0 { 0.0 } else { s.signum() * m };
            input = slopes.iter().zip(&most).map(farthest).collect();
            (values, masks) = self.forward(target, &input);
        }
        if values[row] * sign <= BEYOND {
            return None;
        }
        let scale = BEYOND / values[row].abs();
        input.iter_mut().for_each(|z| *z *= scale);
        for turn in 0..STEPS {
            if self.left == 0 {
                return None;
            }
            self.left -= 1;
            let raw =
                |(i, &z): (usize, &f64)| transform.invert(i, z).clamp(-LARGEST, LARGEST) as f32;
            let record: Vec<f32> = input.iter().enumerate().map(raw).collect();
            let verdict = judge(network, &self.layers, &record);
            if verdict.by_activation_only {
                return Some(record);
            } else if verdict.overflows && self.second_best.is_empty() {
                self.second_best = record;
            }
            (values, masks) = self.forward(target, &input);
            let open = |i: usize| {
                if i == row || values[i] <= 0.0 {
                    0.0
                } else {
                    shares[i]
                }
            };
            let uphill = self.slopes(target, (0..height).map(open).collect(), &masks);
            let steepest = uphill.iter().fold(0.0f64, |a, s| a.max(s.abs()));
            if steepest == 0.0 {
                return None;
            }
            let length = 0.3 / (turn as f64 + 1.0).sqrt() / steepest;
            let downhill =
                |((z, s), m): ((&mut f64, &f64), &f64)| *z = (*z - length * m * s).clamp(-m, *m);
            input.iter_mut().zip(&uphill).zip(&most).for_each(downhill);
            // Back to where the row overflows.
            let slopes = self.slopes(target, unit.clone(), &masks);
            let square: f64 = slopes.iter().map(|s| s * s).sum();
            for _ in 0..20 {
                let short = BEYOND - input.iter().zip(&slopes).map(|(z, s)| z * s).sum::<f64>();
                if short <= 0.0 || square == 0.0 {
                    break;
                }
                let back = |((z, s), m): ((&mut f64, &f64), &f64)| {
                    *z = (*z + short / square * s).clamp(-m, *m)
                };
                input.iter_mut().zip(&slopes).zip(&most).for_each(back);
            }
        }
        None
    }

    /// What a unit of each value of layer `target` adds at most to the sums of the last layer.
    fn shares(&self, target: usize) -> Vec<f64> {
        let mut shares = vec![1.0; self.network.outputs()];
        for layer in self.layers.iter().skip(target + 1).rev() {
            if let Layer::Affine {
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

    /// Slopes in the network's inputs of a sum of layer `target`'s values, with the ReLUs before it
    /// as in `masks` (without them all open).
    fn slopes(&self, target: usize, factors: Vec<f64>, masks: &Masks) -> Vec<f64> {
        let mut slopes = factors;
        for (i, layer) in self.layers[..=target].iter().enumerate().rev() {
            match *layer {
                Layer::Affine {
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
                Layer::Activation(_) => {
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

    /// The sums of layer `target`, and the masks of the layers before it.
    fn forward(&self, target: usize, input: &[f64]) -> (Vec<f64>, Masks) {
        let (mut values, mut masks) = (input.to_vec(), Masks::new());
        for layer in &self.layers[..=target] {
            if let Layer::Activation(a) = layer {
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

/// What becomes of a record of raw inputs, whatever the order of its sums: every value has a bound
/// of its error.
fn judge(network: &Network, layers: &[Layer<'_>], raw: &[f32]) -> Verdict {
    let read = |(i, &x): (usize, &f32)| f64::from(network.transform.apply(i, x.into()) as f32);
    let mut values: Vec<(f64, f64)> = raw.iter().enumerate().map(read).map(|z| (z, 0.0)).collect();
    let mut verdict = Verdict {
        overflows: false,
        by_activation_only: false,
    };
    if !raw.iter().all(|x| x.is_finite()) || values.iter().any(|v| v.0.is_infinite()) {
        return verdict;
    }
    for layer in layers {
        match *layer {
            Layer::Affine {
                inputs,
                weights,
                biases,
            } => {
                if values.iter().any(|v| v.0.is_infinite()) {
                    return verdict;
                }
                let rounding = (inputs + 2) as f64 * 2f64.powi(-23);
                let mut unknown = false;
                values = weights
                    .chunks_exact(inputs)
                    .zip(biases)
                    .map(|(row, &b)| {
                        let (mut up, mut down, mut error) =
                            (f64::from(b).max(0.0), f64::from(-b).max(0.0), 0.0);
                        for (&w, &(x, e)) in row.iter().zip(&values) {
                            let product = f64::from(w) * x;
                            up += product.max(0.0);
                            down -= product.min(0.0);
                            error += f64::from(w).abs() * e;
                        }
                        error += rounding * (up + down);
                        let sum = up - down;
                        let against = if sum > 0.0 { down } else { up };
                        let overflows = sum.abs() - error > LARGEST;
                        verdict.overflows |= overflows;
                        match overflows {
                            true if against + error < LARGEST => {
                                (sum.signum() * f64::INFINITY, 0.0)
                            }
                            false if up.max(down) + error < LARGEST => (sum, error),
                            // ∞ − ∞, or in some orders only.
                            _ => {
                                unknown = true;
                                (0.0, 0.0)
                            }
                        }
                    })
                    .collect();
                if unknown {
                    return verdict;
                }
            }
            Layer::Activation(a) => {
                for (value, error) in &mut values {
                    *value = a.apply(*value);
                    *error = a.error(*error);
                }
            }
        }
    }
    // A record that overflows nowhere has finite scores as well.
    verdict.by_activation_only = verdict.overflows && values.iter().all(|v| v.0.is_finite());
    verdict
}

#[cfg(test)]
mod tests {
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

    fn found(network: &Network, tensors: &[Vec<f32>]) -> Vec<(Vec<f32>, Verdict)> {
        let all = records(network, tensors);
        let layers = layers(network, tensors).unwrap();
        let judged = |r: &[f32]| (r.to_vec(), judge(network, &layers, r));
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
                found[0].1,
                Verdict {
                    overflows: true,
                    by_activation_only: true
                }
            );
            let sum = found[0].0.iter().map(|&x| 10.0 * f64::from(x)).sum::<f64>();
            assert!(sum < -LARGEST && sum > -1.02 * LARGEST, "{sum:e}");
        }
    }

    #[test]
    fn deeper_layers_are_reached_through_relu_only() {
        // The first layer cannot overflow.
        let w = constants(&[
            &[&[0.3, 0.3], &[0.4, -0.4]],
            &[&[-4.0, 1.0], &[0.5, 0.5]],
            &[&[1.0, 1.0]],
        ]);
        let relu = network(&[(2, 2), (2, 2), (1, 2)], Activation::Relu);
        let records = found(&relu, &w);
        assert!(
            records.len() == 1 && records[0].1.by_activation_only,
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
        // Only the scores overflow.
        let n = network(&[(1, 2), (1, 1)], Activation::Relu);
        let records = found(&n, &constants(&[&[&[0.5, 0.4]], &[&[3.0]]]));
        assert_eq!(records.len(), 1);
        assert_eq!(
            records[0].1,
            Verdict {
                overflows: true,
                by_activation_only: false
            }
        );
        // Values that the reader scales.
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
            assert!(records.iter().all(|r| r.1.by_activation_only));
        }
    }

    /// A network as the build makes it: a random chain of layers with ordinary weights, after the
    /// passes. Images get a convolution or two first; one as large as the image becomes an affine
    /// layer.
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
            let arrays = vec![
                Array::weights(outputs, numbers(outputs * inputs, scale)),
                Array::column(Role::Biases, numbers(outputs, 0.2)),
            ];
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

    /// Answers that overflow as ordinary ones, as a device does that knows no infinity.
    struct Forgets(HostEngine, Vec<f32>, Vec<u32>);

    impl Engine for Forgets {
        fn batch(&self) -> usize {
            self.0.batch()
        }

        fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
            self.0.record(slot, index)
        }

        fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
            self.0.submit(slot, records)
        }

        fn collect(&mut self, slot: usize) -> Result<(), Error> {
            self.0.collect(slot)
        }

        fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
            match self.0.answer(slot, index) {
                lost if lost.overflowed() => Answer {
                    class: Some(0),
                    scores: Record::new(&self.1, &self.2, 0),
                },
                answer => answer,
            }
        }
    }

    /// True if some sum leaves the range of f32, added up from the first or from the last term on.
    fn leaves_the_range(layers: &[Layer<'_>], raw: &[f32], backwards: bool) -> bool {
        let mut values = raw.to_vec();
        for layer in layers {
            match *layer {
                Layer::Affine {
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
                Layer::Activation(a) => values
                    .iter_mut()
                    .for_each(|x| *x = a.apply(f64::from(*x)) as f32),
            }
            if values.iter().any(|x| !x.is_finite()) {
                return true;
            }
        }
        false
    }

    /// Networks pass their own self-test, and one that has a record that overflows fails it on a
    /// device that loses that. Gives how many had one.
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
                let model =
                    Model::new(network.clone(), &tensors, recipe, library(), Some(9)).unwrap();
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
            let mut forgets = Forgets(engine(), vec![0.0; outputs], (0..outputs as u32).collect());
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

    /// Up to the size that is given no record overflows, whatever its signs; for a single layer
    /// twice as large ones do.
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
        // A layer behind another, a bias, scaling of the reader.
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
        // Sums that overflow whatever comes in.
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

    /// The sum is small, but its terms are not: whether it overflows depends on their order.
    #[test]
    fn sums_that_overflow_on_the_way_are_found() {
        let n = network(&[(1, 2), (1, 1)], Activation::Relu);
        let tensors = constants(&[&[&[2e38, -2e38]], &[&[1.0]]]);
        assert_eq!(partial(&n, &tensors, &[0.5, 0.5]), None);
        let (node, size) = partial(&n, &tensors, &[1.0, 1.0]).unwrap();
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
}
