//! The golden vectors that `--selftest` computes. The user gives them with the scores of the
//! framework that trained the network. Otherwise the build makes random inputs and computes their
//! scores in float64.

use super::Mistakes;
use super::json::{Json, Object};
use super::matrix::{self, FileMatrix, Files};
use crate::ir::network::{Kind, Network, Range, Transform};
use crate::ops::bound::score_bound;
use crate::ops::ties::{MARGIN, Ties};
use std::path::Path;

/// Records of raw inputs, and the scores that the baked network has for them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GoldenVectors {
    /// The number of golden vectors that are baked.
    pub(crate) count: usize,
    /// The raw inputs, a matrix of `count` × width.
    pub(crate) inputs: Vec<f32>,
    /// The scores, a matrix of `count` × outputs. They are computed in float64 and rounded to f32.
    pub(crate) scores: Vec<f32>,
    /// True if the user gave the inputs, false if the build made them at random.
    pub(crate) given: bool,
    /// The raw inputs of all vectors that the user gave. Only some of them are baked. Empty if the
    /// user gave none.
    pub(crate) all: Vec<f32>,
    /// Records of raw inputs whose sums overflow f32, one after the other. A device must refuse
    /// them.
    pub(crate) overflow: Vec<f32>,
    /// The size of raw inputs up to which no sum overflows f32.
    pub(crate) range: Range,
}

impl GoldenVectors {
    /// Leaves out golden vectors with a number so close to a tie that engines may round it in
    /// different directions, and computes the scores of the others. If fewer than two would remain,
    /// at most `most` of the records in `others` become golden vectors instead. If these are too
    /// few too, the two that are farthest from ties are taken.
    pub(super) fn leave_ties(
        &mut self,
        network: &Network,
        tensors: &[Vec<f32>],
        others: &[f32],
        most: usize,
    ) {
        struct Vector<'r> {
            distance: f64,
            record: &'r [f32],
        }
        let ties = Ties::of(network);
        let vector = |record| Vector {
            distance: ties.distance(network, tensors, record),
            record,
        };
        let sure = |v: &Vector<'_>| v.distance >= MARGIN;
        let enough = |vectors: &[Vector<'_>]| vectors.iter().filter(|v| sure(v)).count() >= 2;
        let given = self.inputs.chunks_exact(network.width);
        let mut vectors: Vec<Vector<'_>> = given.map(vector).collect();
        if !enough(&vectors) && !others.is_empty() {
            vectors = others.chunks_exact(network.width).map(vector).collect();
        }
        if enough(&vectors) {
            vectors.retain(sure);
            vectors.truncate(most);
        } else {
            vectors.sort_by(|a, b| b.distance.total_cmp(&a.distance));
            vectors.truncate(2);
        }
        let records = vectors.iter().map(|v| v.record);
        self.inputs = records.collect::<Vec<_>>().concat();
        self.count = self.inputs.len() / network.width;
        self.scores = scores_of(network, tensors, &self.inputs);
    }
}

/// The most golden vectors that the build makes at random, for a network without the key `check`.
const SYNTHETIC: usize = 32;

/// The most bytes that the inputs of golden vectors may take in the program. Two vectors are always
/// baked. The limit keeps the program small if a small network reads large images.
const MOST_BYTES: usize = 1 << 19;

/// The most golden vectors from the user that are baked. The build verifies all that the user gave.
pub(super) const MOST: usize = 64;

/// The most wrong scores in the files of the key `check` that get a message each.
const MOST_REPORTED: usize = 5;

/// The most multiply-adds and values that computing the scores of random vectors may take. Large
/// networks get fewer vectors, but at least two, so that a bake takes about a second.
const BUDGET: u64 = 1 << 29;

/// Makes golden vectors from random inputs with a fixed seed. After scaling, the inputs are from 0
/// to 1, or from −2 to 2 for a scaling with mean and std. `scaling` is the input scaling before it
/// is folded into the first layer.
pub(crate) fn synthetic(
    network: &Network,
    weights: &[Vec<f32>],
    scaling: &Transform,
) -> GoldenVectors {
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
    let mut golden = GoldenVectors {
        count,
        scores: scores_of(network, weights, &inputs),
        inputs,
        given: false,
        all: Vec::new(),
        overflow: Vec::new(),
        range: Range::default(),
    };
    if Ties::of(network).any() {
        golden.leave_ties(network, weights, &[], count);
    }
    golden
}

/// Reads the golden vectors that `"check": {"inputs": FILE, "scores": FILE}` names, and verifies
/// every record in float64.
///
/// The scores must be those that `-o scores` prints. These are the values before a final softmax,
/// sigmoid or tanh, or the outputs themselves for the kind `values`.
pub(crate) fn read(
    check: &Json,
    place: &str,
    folder: &Path,
    network: &Network,
    weights: &[Vec<f32>],
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<GoldenVectors> {
    let o = Object::new(check, place.to_string(), &["inputs", "scores"], mistakes)?;
    let mut records = |key: &str, cols| {
        if !o.require(key, mistakes) {
            return None;
        }
        let path = folder.join(o.text(key, mistakes)?);
        matrix::read_records(&path, cols, &o.at(key), files, mistakes)
    };
    let (inputs, scores) = (
        records("inputs", (network.width, network.bytes)),
        records("scores", (network.outputs(), None)),
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
    verify(
        &inputs,
        &scores,
        &o.at("scores"),
        network,
        weights,
        mistakes,
    )?;
    let count = inputs.rows.min(MOST).min(most(network));
    let all = inputs.data.clone();
    inputs.data.truncate(count * inputs.cols);
    let scores = scores_of(network, weights, &inputs.data);
    Some(GoldenVectors {
        count,
        inputs: inputs.data,
        scores,
        given: true,
        all,
        overflow: Vec::new(),
        range: Range::default(),
    })
}

/// Reports the given scores that differ from those of the network. Returns `None` if there are any.
fn verify(
    inputs: &FileMatrix,
    scores: &FileMatrix,
    place: &str,
    network: &Network,
    weights: &[Vec<f32>],
    mistakes: &mut Mistakes,
) -> Option<()> {
    let mut bad = 0;
    let all = network.scores_of_all(weights, &inputs.data);
    let slack = network.slack(weights, &inputs.data);
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
            if difference <= slack * score_bound(computed) {
                continue;
            }
            bad += 1;
            if bad <= MOST_REPORTED {
                mistakes.add(
                    place,
                    format_args!(
                        "record {}, output {output}: the network gives {computed:.6}, the file \
                         says {given}; they may differ by {:.0e} of the score",
                        record + 1,
                        1e-4 * slack
                    ),
                );
            }
        }
    }
    if bad > MOST_REPORTED {
        mistakes.add(
            place,
            format_args!("and {} more such scores", bad - MOST_REPORTED),
        );
    }
    (bad == 0).then_some(())
}

/// Returns the number of golden vectors whose inputs fit in [`MOST_BYTES`], but at least 2.
pub(super) fn most(network: &Network) -> usize {
    (MOST_BYTES / (size_of::<f32>() * network.width)).max(2)
}

/// Returns the next random number of the generator splitmix64, from 0 to 1.
fn uniform(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Computes the scores of all records of raw inputs in float64, and rounds them to f32.
pub(crate) fn scores_of(network: &Network, weights: &[Vec<f32>], inputs: &[f32]) -> Vec<f32> {
    network
        .scores_of_all(weights, inputs)
        .into_iter()
        .flatten()
        .map(|s| s as f32)
        .collect()
}
