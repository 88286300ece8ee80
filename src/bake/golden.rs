//! Golden vectors for `--selftest`: given by the framework that trained the network, or computed
//! here in float64.

use super::Mistakes;
use super::json::{Json, Object};
use super::matrix::{self, Files};
use crate::ir::network::{Kind, Network, Range, Transform};
use crate::ops::bound::score_bound;
use std::path::Path;

/// Inputs in the raw range with the scores of the network as baked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Golden {
    /// Number of vectors.
    pub(crate) count: usize,
    /// `count` × width, raw.
    pub(crate) inputs: Vec<f32>,
    /// `count` × outputs: the last values in float64, rounded.
    pub(crate) scores: Vec<f32>,
    /// Whether the inputs came with the network.
    pub(crate) given: bool,
    /// Raw inputs of all given vectors, those that are not baked too; empty where none were given.
    pub(crate) all: Vec<f32>,
    /// Records of `width` raw inputs that overflow: a device must refuse them.
    pub(crate) overflow: Vec<f32>,
    /// How large inputs may be before sums overflow.
    pub(crate) range: Range,
}

/// Most vectors of a network without `check`.
const SYNTHETIC: usize = 32;

/// Bytes of the inputs that are baked at most, where two vectors do not have more: a small network
/// of images is not made large by them.
const MOST_BYTES: usize = 1 << 19;

/// Most given vectors that are baked; all are verified.
const MOST: usize = 64;

/// Most records of `check` that are reported one by one.
const MOST_REPORTED: usize = 5;

/// Multiply-adds and values that the scores of the vectors may take: a network that takes more of
/// them gets fewer vectors, so that a bake takes a second.
const BUDGET: u64 = 1 << 29;

/// Seeded vectors spread over the raw range that the input scaling implies: network inputs 0 to 1
/// without scaling or with scale and offset, −2 to 2 with mean and std. `scaling` is the network's
/// before any folding.
pub(crate) fn synthetic(network: &Network, weights: &[Vec<f32>], scaling: &Transform) -> Golden {
    let (low, high) = if matches!(scaling, Transform::MeanStd { .. }) {
        (-2.0, 2.0)
    } else {
        (0.0, 1.0)
    };
    let mut seed = 0x6d6f_7274_6f6e_6e65u64;
    let values: usize = network.graph.values.iter().map(|v| v.shape.len()).sum();
    let count = (BUDGET / (network.flop() / 2 + values as u64)).clamp(2, SYNTHETIC as u64) as usize;
    let count = count.min(most(network));
    let inputs: Vec<f32> = (0..count * network.width)
        .map(|i| scaling.invert(i % network.width, low + (high - low) * uniform(&mut seed)) as f32)
        .collect();
    let scores = scores_of(network, weights, &inputs);
    Golden {
        count,
        inputs,
        scores,
        given: false,
        all: Vec::new(),
        overflow: Vec::new(),
        range: Range::default(),
    }
}

/// Reads `"check": {"inputs": file, "scores": file}` and verifies every record in float64 against
/// the network as baked.
///
/// The scores are what `-o scores` prints: the values before a final softmax, sigmoid or tanh,
/// except for the kind `values`, where they are the outputs.
pub(crate) fn read(
    check: &Json,
    place: &str,
    folder: &Path,
    network: &Network,
    weights: &[Vec<f32>],
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<Golden> {
    let o = Object::new(check, place.to_string(), &["inputs", "scores"], mistakes)?;
    let mut records = |key: &str, cols: usize| {
        if !o.require(key, mistakes) {
            return None;
        }
        let path = folder.join(o.text(key, mistakes)?);
        matrix::read_records(&path, cols, &o.at(key), files, mistakes)
    };
    let (inputs, scores) = (
        records("inputs", network.width),
        records("scores", network.outputs()),
    );
    let (mut inputs, scores) = (inputs?, scores?);
    if inputs.rows != scores.rows || inputs.rows == 0 {
        let (i, s) = (inputs.rows, scores.rows);
        mistakes.add(
            place,
            format_args!("expected as many inputs as scores, at least one; found {i} and {s}"),
        );
        return None;
    }
    let mut bad = 0;
    let all = network.scores_of_all(weights, &inputs.data);
    for (record, (mut computed, given)) in all
        .into_iter()
        .zip(scores.data.chunks_exact(scores.cols))
        .enumerate()
    {
        if network.output.kind == Kind::Values {
            network.output.activation.apply(&mut computed);
        }
        for (output, (&given, &computed)) in given.iter().zip(&computed).enumerate() {
            let difference = (f64::from(given) - computed).abs();
            if difference <= score_bound(computed) {
                continue;
            }
            bad += 1;
            if bad <= MOST_REPORTED {
                mistakes.add(
                    o.at("scores"),
                    format_args!(
                        "record {}, output {output}: the network gives {computed:.6}, the file \
                         says {given}; they may \
                         differ by 1e-4 of the score",
                        record + 1
                    ),
                );
            }
        }
    }
    if bad > MOST_REPORTED {
        mistakes.add(
            o.at("scores"),
            format_args!("and {} more such scores", bad - MOST_REPORTED),
        );
    }
    if bad > 0 {
        return None;
    }
    let count = inputs.rows.min(MOST).min(most(network));
    let all = inputs.data.clone();
    inputs.data.truncate(count * inputs.cols);
    let scores = scores_of(network, weights, &inputs.data);
    Some(Golden {
        count,
        inputs: inputs.data,
        scores,
        given: true,
        all,
        overflow: Vec::new(),
        range: Range::default(),
    })
}

/// Vectors that fit in [`MOST_BYTES`], two at least.
fn most(network: &Network) -> usize {
    (MOST_BYTES / (size_of::<f32>() * network.width)).max(2)
}

/// splitmix64, as a number from 0 to 1.
fn uniform(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

pub(crate) fn scores_of(network: &Network, weights: &[Vec<f32>], inputs: &[f32]) -> Vec<f32> {
    network
        .scores_of_all(weights, inputs)
        .into_iter()
        .flatten()
        .map(|s| s as f32)
        .collect()
}
