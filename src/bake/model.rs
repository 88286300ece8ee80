//! Turns a front end's draft into a network: the meaning of input and output, passes, golden
//! vectors, quantization and rounding. All front ends share this module.

use super::draft::Draft;
use super::golden::{self, GoldenVectors};
use super::json::Object;
use super::matrix::Files;
use super::meaning::Meaning;
use super::passes;
use super::quantize::{self, Floats, Quantized, Request};
use super::rounding::{self, Rounding};
use super::same;
use super::{Mistakes, Settings, overflow};
use crate::block::hex;
use crate::ir::graph::{Shape, Tensors, Value};
use crate::ir::network::{
    ByteInput, FinalActivation, InputOrder, Network, Output, Precision, Range, Transform,
};
use crate::ops::bound::score_bound;
use crate::ops::random::Random;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// A network that is ready to be baked, with all data that belongs to it.
pub(crate) struct ReadModel {
    pub(crate) network: Network,
    /// The numbers of the network's constant arrays, already rounded to their stored format.
    pub(crate) tensors: Tensors,
    pub(crate) golden: GoldenVectors,
    /// The effect of rounding the weights. `None` for weights in f32 and for a network that the
    /// build quantized.
    pub(crate) rounding: Option<Rounding>,
    /// The effect of quantizing the network. `None` if the build did not quantize it.
    pub(crate) quantized: Option<Quantized>,
}

/// The facts that a front end has read from a model file. Shapes and draft are `None` after a
/// mistake.
#[derive(Debug, Default)]
pub(crate) struct ModelFacts {
    /// The folder that relative paths in the model's JSON keys are relative to.
    pub(crate) folder: PathBuf,
    /// The name of the network. The JSON key `name` replaces it.
    pub(crate) name: String,
    pub(crate) input_shape: Option<Shape>,
    /// True if the JSON key `input` states the shape of the input.
    pub(crate) shaped: bool,
    /// The 8-bit integers of the model's input, if it is a single one of such integers.
    pub(crate) bytes: Option<ByteInput>,
    /// The order of the values in a record. The JSON key `input` may give another order.
    pub(crate) order: InputOrder,
    pub(crate) output_shape: Option<Shape>,
    /// The final activation. It is not part of the draft, because scores are the values before it.
    pub(crate) last: Option<FinalActivation>,
    /// The meaning of the output, if the model file itself states it.
    pub(crate) output: Option<Output>,
    /// The labels that the model file itself contains.
    pub(crate) labels: Vec<String>,
    /// The names and shapes of the inputs of a model with several inputs. Empty for one input.
    pub(crate) inputs: Vec<Value>,
    /// The names and shapes of the outputs of a model with several outputs. Empty for one output.
    pub(crate) outputs: Vec<Value>,
    /// The graph exactly as the model file has it, before passes change it.
    pub(crate) draft: Option<Draft>,
    /// The word that the model's format uses for a final sigmoid, for messages.
    pub(crate) sigmoid: &'static str,
    /// Says in messages where a key belongs that the model file itself cannot hold, for example `,
    /// in net.json beside the model`.
    pub(crate) keys_in: String,
}

/// The factor between the golden vectors and inputs that are surely mistakes. Inputs this many
/// times as large cannot be measurements.
const NEAR: f32 = 1e6;

/// Returns true if a score of the network overflows for inputs [`NEAR`] times as large as the
/// golden vectors. Tries some golden vectors times ±[`NEAR`]. Also tries records whose inputs all
/// have the same size, with equal or random signs.
fn overflows_near(
    network: &Network,
    tensors: &[Vec<f32>],
    golden: &GoldenVectors,
    largest: f32,
) -> bool {
    let (width, mut random) = (network.width, Random::new(1));
    let some = &golden.inputs[..golden.count.min(4) * width];
    let mut larger: Vec<f32> = some.iter().map(|v| v * NEAR).collect();
    larger.extend((0..3 * width).map(|i| {
        let positive = i < width || random.below(2) == 0;
        if positive {
            NEAR * largest
        } else {
            -NEAR * largest
        }
    }));
    let turned: Vec<f32> = larger.iter().map(|v| -v).collect();
    larger.extend(turned);
    network
        .scores_of_all(tensors, &larger)
        .iter()
        .flatten()
        .any(|score| !score.is_finite())
}

/// Reads the keys of the JSON object `o` and makes a network from the facts of the model. `before`
/// is the number of mistakes that were reported before this model was read. If there are more by
/// now, it returns `None`.
pub(crate) fn finish(
    settings: &Settings,
    facts: ModelFacts,
    o: &Object<'_>,
    before: usize,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<ReadModel> {
    let meaning = Meaning::read(o, &facts, mistakes);
    if mistakes.lines.len() > before {
        return None;
    }
    let (draft, meaning) = (facts.draft?, meaning?);
    let order = meaning.order;
    let request = Request::new(settings, &facts.folder, o, mistakes);
    // The weights of a quantized network are whole numbers that fit in bytes.
    let whole = request.is_some().then_some(Precision::I8);
    let weights = settings.weights.or(whole).unwrap_or_default();
    // The golden scores are those of the network exactly as the file has it, before any pass.
    let mut network = as_given(weights, &draft, meaning, facts.inputs, facts.outputs);
    let given = draft.rounded();
    let passed = passes::run(draft, network.transform.clone(), order);
    let (draft, transform) = passed.map_err(|e| mistakes.add(o.place(), e)).ok()?;
    if draft.graph.nodes.is_empty() {
        mistakes.add(
            o.place(),
            "it has no layers: scaling its input and a final function are all that it does",
        );
        return None;
    }
    let mut golden = match o.get("check") {
        Some(check) => golden::read(
            check,
            &o.at("check"),
            &facts.folder,
            &network,
            &given,
            files,
            mistakes,
        )?,
        None => golden::synthetic(&network, &given, &transform),
    };
    let made = check_finite(&network, &given, &golden)
        .and_then(|()| replace(&mut network, &mut golden, &draft, transform, &given));
    let mut tensors = made.map_err(|e| mistakes.add(o.place(), e)).ok()?;
    let mut quantized = None;
    if let Some(request) = request {
        let floats = Floats {
            network: &network,
            tensors: &tensors,
            draft: &draft,
        };
        let made = quantize::run(&request, floats, &mut golden, (files, mistakes))?;
        (network, tensors) = (made.network, made.tensors);
        quantized = Some(made.report);
    } else if weights == Precision::F32 {
        // Folding the input scaling of images makes weights so small that halves lose digits. If
        // weights are halves or bytes, the program scales each record instead.
        fold_scaling(&mut network, &mut tensors, &mut golden, draft);
    }
    same::share(&mut network, &mut tensors);
    let read = ReadModel {
        network,
        tensors,
        golden,
        rounding: None,
        quantized,
    };
    rounded(settings, read, o.place(), mistakes)
}

/// Rounds the weights to their stored format. Then finds the input range without overflow and the
/// tolerance of the scores.
fn rounded(
    settings: &Settings,
    read: ReadModel,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<ReadModel> {
    let ReadModel {
        mut network,
        mut tensors,
        mut golden,
        quantized,
        ..
    } = read;
    // If the build has quantized the network, its weights are already rounded to bytes.
    let rounding = match (&quantized, network.weights) {
        (Some(_), Precision::I8) => None,
        _ => rounding::round(settings, &network, &mut tensors, &mut golden)
            .map_err(|e| mistakes.add(place, e))
            .ok()?,
    };
    golden.overflow = overflow::records(&network, &tensors);
    let largest = largest(&golden.inputs);
    golden.range = range(&network, &tensors, &golden, largest)
        .map_err(|e| mistakes.add(place, e))
        .ok()?;
    if golden.range.near {
        let range = golden.range;
        let note = format!("{range}; the golden vectors have numbers up to {largest}");
        mistakes.note(place, note);
    }
    network.tolerance = tolerance(&network, &tensors, &golden, place, mistakes);
    network.hash = hash(&network, &tensors, &golden).into();
    Some(ReadModel {
        network,
        tensors,
        golden,
        rounding,
        quantized,
    })
}

/// Makes a network from the graph exactly as the file has it, before any pass.
fn as_given(
    weights: Precision,
    draft: &Draft,
    meaning: Meaning,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
) -> Network {
    let owned = |v: Vec<String>| v.into_iter().map(Into::into).collect::<Vec<_>>().into();
    Network {
        name: meaning.name.into(),
        hash: "".into(),
        width: draft.shape(draft.graph.inputs[0]).len(),
        order: meaning.order,
        graph: draft.graph.clone(),
        output: meaning.output,
        labels: owned(meaning.labels),
        features: owned(meaning.features),
        transform: meaning.transform,
        bytes: meaning.bytes,
        folded: false,
        weights,
        tolerance: 1.0,
        inputs: inputs.into(),
        outputs: outputs.into(),
    }
}

/// Checks that the golden vectors and their scores are finite. The error names the first node that
/// overflows f32.
fn check_finite(
    network: &Network,
    tensors: &Tensors,
    golden: &GoldenVectors,
) -> Result<(), String> {
    let mut numbers = golden.inputs.iter().chain(&golden.scores);
    if numbers.all(|v| v.is_finite()) {
        return Ok(());
    }
    let node = golden.inputs.chunks_exact(network.width).find_map(|x| {
        let raw: Vec<f64> = x.iter().map(|&v| v.into()).collect();
        network.overflow(tensors, &raw)
    });
    let node = node.map_or(String::new(), |(node, value)| {
        let most = f32::MAX;
        format!(" ({node} reaches {value:.1e}, f32 holds up to {most:.1e})")
    });
    Err(format!(
        "golden vectors, or values computed from them, leave the range of f32{node}; check the \
         scaling and the weights"
    ))
}

/// Replaces the network's graph with that of `draft`, which the passes have changed, and computes
/// the golden scores anew. Returns the numbers of the new graph's arrays in f32.
///
/// # Errors
/// A score differs from that of the original graph by more than rounding can explain.
fn replace(
    network: &mut Network,
    golden: &mut GoldenVectors,
    draft: &Draft,
    transform: Transform,
    given: &Tensors,
) -> Result<Tensors, String> {
    let tensors = draft.rounded();
    let changed =
        draft.graph != network.graph || tensors != *given || transform != network.transform;
    (network.graph, network.transform) = (draft.graph.clone(), transform);
    if !changed {
        return Ok(tensors);
    }
    let scores = golden::scores_of(network, &tensors, &golden.inputs);
    let slack = network.slack(&tensors, &golden.inputs);
    if let Some(i) = first_difference(&golden.scores, &scores, slack) {
        let (record, output) = (i / network.outputs(), i % network.outputs());
        return Err(format!(
            "golden vector {}, output {output}: {} as given, {} with batch norm, scaling and \
             borders folded into the weights; weights of such sizes lose too many digits in f32",
            record + 1,
            golden.scores[i],
            scores[i]
        ));
    }
    golden.scores = scores;
    Ok(tensors)
}

/// Returns the index of the first score that differs by more than rounding can explain. `slack` is
/// that of the network ([`Network::slack`]).
fn first_difference(given: &[f32], found: &[f32], slack: f64) -> Option<usize> {
    let close = |a: f32, b: f32| f64::from((a - b).abs()) <= slack * score_bound(a.into());
    given.iter().zip(found).position(|(&a, &b)| !close(a, b))
}

/// Folds the scaling of the input into the first layer. Keeps the network as it was if rounding
/// would change a golden score by more than its bound.
fn fold_scaling(
    network: &mut Network,
    tensors: &mut Tensors,
    golden: &mut GoldenVectors,
    mut draft: Draft,
) {
    let transform = network.transform.clone();
    let (transform, folded) = passes::scaling::fold(&mut draft, network.order, transform);
    if !folded {
        return;
    }
    let with = Network {
        transform,
        folded,
        ..network.clone()
    };
    let rounded = draft.rounded();
    let scores = golden::scores_of(&with, &rounded, &golden.inputs);
    let slack = with.slack(&rounded, &golden.inputs);
    if first_difference(&golden.scores, &scores, slack).is_none() {
        (*network, *tensors, golden.scores) = (with, rounded, scores);
    }
}

/// The largest tolerance of a score, as a multiple of the error bound. If the estimated rounding
/// errors are larger, the tolerance is 1 instead. A note then warns that checks may fail.
const MOST_TOLERANCE: f64 = 100.0;

/// Returns the allowed error of scores as a multiple of the error bound. It is 1, or more if
/// rounding to f32 causes larger errors. A note to the user then says so.
fn tolerance(
    network: &Network,
    tensors: &Tensors,
    golden: &GoldenVectors,
    place: &str,
    mistakes: &mut Mistakes,
) -> f32 {
    let noise = network.noise(tensors, &golden.inputs, &golden.scores);
    let share = 1e-4 * noise;
    let slack = network.slack(tensors, &golden.inputs);
    if slack > 1.0 {
        let share = 1e-4 * slack;
        let note = format!(
            "values near the middle of two integers may be rounded to either: checks allow \
             {share:.1e} of a score"
        );
        mistakes.note(place, note);
        return slack.max(noise.min(MOST_TOLERANCE)) as f32;
    }
    if noise > MOST_TOLERANCE {
        let note = format!(
            "rounding to f32 may change scores by {share:.0e} of their size: checks, which allow \
             1e-4, may fail"
        );
        mistakes.note(place, note);
        return 1.0;
    }
    if noise > 1.0 {
        let note = format!(
            "rounding to f32 may change scores by more than 1e-4: checks allow {share:.1e} of a \
             score"
        );
        mistakes.note(place, note);
    }
    noise.max(1.0) as f32
}

/// Returns the largest magnitude of `numbers`.
fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0f32, |most, v| most.max(v.abs()))
}

/// Returns the size of raw inputs up to which no sum overflows. `largest` is the largest absolute
/// value in the golden vectors.
///
/// # Errors
/// A golden vector has a sum that overflows in some order of its terms. The result would depend on
/// the order in which a device adds.
fn range(
    network: &Network,
    tensors: &Tensors,
    golden: &GoldenVectors,
    largest: f32,
) -> Result<Range, String> {
    let mut up_to = overflow::reach(network, tensors);
    if up_to < largest {
        let partial = |record: &[f32]| overflow::partial(network, tensors, record);
        if let Some(sum) = golden.inputs.chunks_exact(network.width).find_map(partial) {
            return Err(format!(
                "partial sums of golden vectors leave the range of f32 ({} reaches {:.1e} before \
                 terms of the other sign are added, f32 holds up to {:.1e}); check the scaling \
                 and the weights",
                sum.node,
                sum.size,
                f32::MAX
            ));
        }
        // The bound for a deep network is an estimate, and may be smaller than golden vectors that
        // do not overflow. Such a bound is useless, so it becomes 0, which means unknown.
        up_to = 0.0;
    }
    let near = up_to < NEAR * largest && overflows_near(network, tensors, golden, largest);
    Ok(Range { up_to, near })
}

/// Returns a hash of the network that does not depend on its plan. It covers the description, the
/// weights as baked and the golden vectors.
fn hash(network: &Network, tensors: &[Vec<f32>], golden: &GoldenVectors) -> String {
    let mut sha = Sha256::new();
    sha.update(format!("{network:?}"));
    let mut update = |values: &[f32]| {
        sha.update((values.len() as u64).to_le_bytes());
        values.iter().for_each(|v| sha.update(v.to_le_bytes()));
    };
    tensors.iter().for_each(|values| update(values));
    update(&golden.inputs);
    update(&golden.scores);
    hex(&sha.finalize()[..8])
}
