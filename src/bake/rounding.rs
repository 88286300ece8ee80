//! Rounds weights to the number format that they are stored in, and measures how the scores change.

use super::Settings;
use super::golden::{self, GoldenVectors};
use crate::ir::graph::{Graph, Node, Role, Shape};
use crate::ir::network::{Network, Precision};
use crate::ir::op::Op;
use crate::ir::{half, scale};
use std::fmt;

/// The effect on the network of storing its weights in fewer bits than f32.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rounding {
    /// A text about the rounding errors of the weights, for the build's report.
    pub(crate) weights: String,
    /// The largest change of any score.
    pub(crate) score: f64,
    /// The golden vectors whose predicted class changes. `None` for weights as bytes if the user
    /// gave fewer than [`ENOUGH`] vectors, because so few say too little.
    pub(crate) classes: Option<ClassChanges>,
}

/// The number of records whose predicted class changes, and the number of all compared records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClassChanges {
    pub(crate) changed: usize,
    pub(crate) vectors: usize,
}

impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rounding { weights, score, .. } = self;
        write!(f, "{weights}; scores change by at most {score:.2e}")?;
        match self.classes {
            None => Ok(()),
            Some(ClassChanges { changed, vectors }) => {
                write!(f, ", {changed} of {vectors} classes")
            }
        }
    }
}

/// The least number of golden vectors from the user for which class changes say something about
/// other records.
const ENOUGH: usize = 200;

/// Rounds the weights to their stored format, and computes the golden scores anew with the rounded
/// weights. `None` for weights in f32, which are not rounded.
///
/// # Errors
/// A weight is too large for half precision, or more predicted classes change than the settings
/// allow.
pub(super) fn round(
    settings: &Settings,
    network: &Network,
    tensors: &mut [Vec<f32>],
    golden: &mut GoldenVectors,
) -> Result<Option<Rounding>, String> {
    let before = tensors.to_vec();
    let weights = match network.weights {
        Precision::F32 => return Ok(None),
        Precision::F16 => halves(settings, network, tensors)?,
        Precision::I8 => bytes(network, tensors, golden),
    };
    let outputs = network.outputs();
    let enough = golden.all.len() >= ENOUGH * network.width;
    // Rounding to half precision changes scores very little, so comparing the baked golden vectors
    // is enough.
    let all = enough && network.weights == Precision::I8;
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
        return Err(format!(
            "weights: as i8 they change {changed} of {count} classes, at most {most} % are \
             allowed; {weights}=f16 stores more digits, {weights}=i8:{} allows that many changes",
            (100.0 * changed as f64 / count as f64).ceil()
        ));
    }
    golden.scores = golden::scores_of(network, tensors, &golden.inputs);
    let classes = ClassChanges {
        changed,
        vectors: count,
    };
    let classes = Some(classes).filter(|_| all || network.weights == Precision::F16);
    Ok(Some(Rounding {
        weights,
        score,
        classes,
    }))
}

/// Rounds weights to the nearest half-precision numbers. Returns a text with the largest rounding
/// errors.
fn halves(
    settings: &Settings,
    network: &Network,
    tensors: &mut [Vec<f32>],
) -> Result<String, String> {
    /// The smallest half-precision number whose significand has all eleven bits.
    const NORMAL: f32 = 1.0 / (1 << 14) as f32;
    let (mut relative, mut absolute) = (0.0f64, 0.0f64);
    for (tensor, values) in network.graph.tensors.iter().zip(tensors.iter_mut()) {
        if tensor.role != Role::Weights {
            continue;
        }
        for value in values {
            let rounded = half::to_f32(half::from_f32(*value));
            if rounded.is_infinite() {
                return Err(format!(
                    "{}: weights: a half holds up to 65504, found {value}; {}=f32 stores it",
                    tensor.name,
                    settings.names.weights()
                ));
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
    Ok(format!(
        "rounded by at most {relative:.2e} of their value, those below 2^-14 by {absolute:.2e}"
    ))
}

/// Rounds each row of weights to whole numbers times a scale. The errors are smallest in columns
/// whose inputs are large in the golden vectors. Returns a text with the rounding errors.
fn bytes(network: &Network, tensors: &mut [Vec<f32>], golden: &GoldenVectors) -> String {
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

/// Returns the mean absolute value of each element of each value of the graph, over the raw records
/// in `inputs`.
pub(super) fn means(network: &Network, tensors: &[Vec<f32>], inputs: &[f32]) -> Vec<Vec<f32>> {
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

/// The mean absolute values of the inputs that a layer's weights are multiplied by.
pub(super) struct Columns {
    /// The mean absolute values: one for each column of an affine layer's weights, or one for each
    /// input channel of a convolution.
    sizes: Vec<f32>,
    /// The window and groups of a convolution. `None` for an affine layer.
    window: Option<GroupedWindow>,
}

/// The window size and the groups of a convolution. They decide which input channel each weight
/// multiplies.
struct GroupedWindow {
    /// The number of elements in the window.
    taps: usize,
    groups: usize,
}

impl Columns {
    pub(super) fn of(graph: &Graph, node: &Node, means: &[Vec<f32>]) -> Columns {
        let (value, shape) = (&means[node.inputs[0]], graph.values[node.inputs[0]].shape);
        let sizes = match node.op {
            Op::Convolution { .. } => channels(value, shape),
            _ => value.clone(),
        };
        // Each entry is raised to at least an eighth of the mean of all entries. Inputs that are
        // almost zero in the golden vectors may be large in other records.
        let least = sizes.iter().sum::<f32>() / sizes.len().max(1) as f32 / 8.0;
        let sizes = sizes.into_iter().map(|size| size.max(least)).collect();
        let window = match node.op {
            Op::Convolution { window, groups } => {
                let (height, width) = window.size;
                Some(GroupedWindow {
                    taps: height * width,
                    groups,
                })
            }
            _ => None,
        };
        Columns { sizes, window }
    }

    /// Returns, for each weight of row `row`, the mean absolute value of the input that it
    /// multiplies. The layer has `rows` rows.
    pub(super) fn of_row(&self, row: usize, rows: usize) -> Vec<f32> {
        let Some(GroupedWindow { taps, groups }) = self.window else {
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

/// Returns the mean of each channel over all pixels.
fn channels(value: &[f32], shape: Shape) -> Vec<f32> {
    let pixels = shape.h * shape.w;
    let of = |c: usize| (0..pixels).map(move |p| shape.index(c, p / shape.w, p % shape.w));
    (0..shape.c)
        .map(|c| of(c).map(|i| value[i]).sum::<f32>() / pixels as f32)
        .collect()
}
