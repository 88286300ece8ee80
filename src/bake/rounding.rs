//! Weights rounded to what they are stored as, and what that changes.

use super::golden::{self, Golden};
use super::{Mistakes, Rounding, Settings};
use crate::ir::graph::{Graph, Node, Role, Shape};
use crate::ir::network::{Network, Precision};
use crate::ir::op::Op;
use crate::ir::{half, scale};

/// So many given vectors say of how many classes rounding changes.
const ENOUGH: usize = 200;

/// Rounds the weights, and computes the golden scores anew: they are of the weights as baked.
/// `None` behind mistakes.
pub(super) fn round(
    settings: &Settings,
    network: &Network,
    tensors: &mut [Vec<f32>],
    golden: &mut Golden,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<Option<Rounding>> {
    let before = tensors.to_vec();
    let weights = match settings.weights {
        Precision::F32 => return Some(None),
        Precision::F16 => halves(settings, network, tensors, place, mistakes)?,
        Precision::I8 => bytes(network, tensors, golden),
    };
    let outputs = network.outputs();
    let enough = golden.all.len() >= ENOUGH * network.width;
    // Halves change next to nothing: the vectors that are baked are enough.
    let all = enough && settings.weights == Precision::I8;
    let inputs = if all { &golden.all } else { &golden.inputs };
    let old = golden::scores_of(network, &before, inputs);
    let new = golden::scores_of(network, tensors, inputs);
    let wide = |s: &[f32]| s.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let (mut score, mut changed) = (0.0f64, 0);
    for (old, new) in old.chunks(outputs).zip(new.chunks(outputs)) {
        let (old, new) = (wide(old), wide(new));
        score = old
            .iter()
            .zip(&new)
            .map(|(a, b)| (a - b).abs())
            .fold(score, f64::max);
        changed += usize::from(network.class(&old) != network.class(&new));
    }
    let count = old.len() / outputs;
    let bound = settings.changes * count as f64 / 100.0;
    if all && changed as f64 > bound {
        let (most, weights) = (settings.changes, settings.names.weights());
        mistakes.add(
            format_args!("{place}: weights"),
            format_args!(
                "as i8 they change {changed} of {count} classes, at most {most} % are allowed; \
                 {weights}=f16 bakes \
                 them with more digits, {weights}=i8:{} allows so many",
                (100.0 * changed as f64 / count as f64).ceil()
            ),
        );
        return None;
    }
    golden.scores = golden::scores_of(network, tensors, &golden.inputs);
    let classes = (all || settings.weights == Precision::F16).then_some((changed, count));
    Some(Some(Rounding {
        weights,
        score,
        classes,
    }))
}

/// To the nearest halves.
fn halves(
    settings: &Settings,
    network: &Network,
    tensors: &mut [Vec<f32>],
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<String> {
    /// The smallest half with eleven digits.
    const NORMAL: f32 = 1.0 / (1 << 14) as f32;
    let (mut relative, mut absolute) = (0.0f64, 0.0f64);
    for (tensor, values) in network.graph.tensors.iter().zip(tensors.iter_mut()) {
        if tensor.role != Role::Weights {
            continue;
        }
        for value in values {
            let rounded = half::to_f32(half::from_f32(*value));
            if rounded.is_infinite() {
                mistakes.add(
                    format_args!("{place}: {}: weights", tensor.name),
                    format_args!(
                        "a half holds up to 65504, found {value}; {}=f32 bakes it",
                        settings.names.weights()
                    ),
                );
                return None;
            }
            let error = f64::from((rounded - *value).abs());
            if value.abs() >= NORMAL {
                relative = relative.max(error / f64::from(value.abs()));
            } else {
                absolute = absolute.max(error);
            }
            *value = rounded;
        }
    }
    Some(format!(
        "rounded by at most {relative:.2e} of their value, those below 2^-14 by {absolute:.2e}"
    ))
}

/// To whole numbers times a scale for each row, with the least error where the inputs of the golden
/// vectors are large.
fn bytes(network: &Network, tensors: &mut [Vec<f32>], golden: &Golden) -> String {
    let means = means(network, tensors, &golden.inputs);
    let (mut squares, mut of) = (0.0f64, 0.0f64);
    for node in network.graph.nodes.iter() {
        let Some(&weights) = node.tensors.first() else {
            continue;
        };
        let tensor = &network.graph.tensors[weights];
        if tensor.role != Role::Weights {
            continue;
        }
        let sizes = Columns::of(&network.graph, node, &means);
        for (row, weights) in tensors[weights].chunks_exact_mut(tensor.cols).enumerate() {
            let before = weights.to_vec();
            scale::round(weights, &sizes.of_row(row, tensor.rows));
            let errors = weights
                .iter()
                .zip(&before)
                .map(|(a, b)| f64::from(a - b).powi(2));
            squares += errors.sum::<f64>();
            of += before.iter().map(|&w| f64::from(w).powi(2)).sum::<f64>();
        }
    }
    format!(
        "rounded by {:.2} % of their size (root mean square)",
        100.0 * (squares / of.max(f64::MIN_POSITIVE)).sqrt()
    )
}

/// Mean sizes of the elements of every value over the golden vectors.
fn means(network: &Network, tensors: &[Vec<f32>], inputs: &[f32]) -> Vec<Vec<f32>> {
    let graph = &network.graph;
    let mut sums: Vec<Vec<f64>> = graph
        .values
        .iter()
        .map(|v| vec![0.0; v.shape.len()])
        .collect();
    for raw in inputs.chunks_exact(network.width) {
        let raw: Vec<f64> = raw.iter().map(|&x| x.into()).collect();
        graph.evaluate(tensors, network.graph_input(&raw), |value, numbers| {
            sums[value]
                .iter_mut()
                .zip(numbers)
                .for_each(|(sum, x)| *sum += x.abs());
        });
    }
    let count = (inputs.len() / network.width).max(1) as f64;
    sums.iter()
        .map(|v| v.iter().map(|sum| (sum / count) as f32).collect())
        .collect()
}

/// How large what a layer's weights are multiplied with is.
struct Columns {
    /// Of an affine layer for each column; of a convolution for each channel of its input.
    sizes: Vec<f32>,
    /// Elements of a window, and groups; none of an affine layer.
    window: Option<(usize, usize)>,
}

impl Columns {
    fn of(graph: &Graph, node: &Node, means: &[Vec<f32>]) -> Columns {
        let (value, shape) = (&means[node.inputs[0]], graph.values[node.inputs[0]].shape);
        let sizes = match node.op {
            Op::Convolution { .. } => channels(value, shape),
            _ => value.clone(),
        };
        // Records in the field may have something where golden vectors have next to nothing.
        let least = sizes.iter().sum::<f32>() / sizes.len().max(1) as f32 / 8.0;
        let sizes = sizes.into_iter().map(|size| size.max(least)).collect();
        let window = match node.op {
            Op::Convolution { window, groups } => Some((window.size.0 * window.size.1, groups)),
            _ => None,
        };
        Columns { sizes, window }
    }

    /// Of the columns of one of `rows` rows.
    fn of_row(&self, row: usize, rows: usize) -> Vec<f32> {
        let Some((taps, groups)) = self.window else {
            return self.sizes.clone();
        };
        let channels = self.sizes.len() / groups;
        let first = row / (rows / groups) * channels;
        (0..taps)
            .flat_map(|_| &self.sizes[first..first + channels])
            .copied()
            .collect()
    }
}

/// Mean of each channel over its pixels.
fn channels(value: &[f32], shape: Shape) -> Vec<f32> {
    let pixels = shape.h * shape.w;
    let of = |c: usize| (0..pixels).map(move |p| shape.index(c, p / shape.w, p % shape.w));
    (0..shape.c)
        .map(|c| of(c).map(|i| value[i]).sum::<f32>() / pixels as f32)
        .collect()
}
