//! Quantizes a network of floats. Afterwards its layers compute with 8-bit integers, as in a model
//! that its framework has quantized.
//!
//! Quantization is a pass over the draft, and runs after all other passes. By then batch norms and
//! scalings are part of the weights, and the pass works for the models of all front ends. If front
//! ends quantized instead, later passes would change quantized layers. Writing a quantized model
//! file would need a writer for each format.
//!
//! The user gives calibration records, from which the range of each layer's input is measured. Each
//! row of weights gets its own scale. The mean error of each row's sums is subtracted from the
//! row's bias. Sums of two values between layers are rounded once. Everything else between the
//! layers is computed in floats. The result looks like an integer model that a front end has read,
//! so engines need nothing new.

mod golden;
mod grid;
mod layer;
mod rewrite;
#[cfg(test)]
mod tests;

use super::draft::Draft;
use super::golden::GoldenVectors;
use super::json::Object;
use super::matrix::{self, Files};
use super::rounding::{self, ClassChanges, Columns};
use super::{Mistakes, Names, Settings};
use crate::ir::graph::{Node, Role, Tensors};
use crate::ir::network::{Kind, Network, Precision};
use crate::ir::op::{Arithmetic, Border, Op, Pool};
use crate::ir::scale;
use crate::ops::evaluate::Computed;
use crate::ops::random::Random;
use grid::Samples;
use layer::Layer;
use rewrite::Integers;
use std::fmt;
use std::path::{Path, PathBuf};

/// The effect that quantization has on a network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantized {
    /// The number of layers that were quantized.
    layers: usize,
    /// The number of sums of two values that are computed on integers.
    sums: usize,
    /// The number of calibration records that were computed and compared.
    records: usize,
    /// The calibration records whose predicted class or labels change. `None` for networks that
    /// predict no class or labels.
    classes: Option<ClassChanges>,
    /// The root mean square change of the scores, divided by their spread over the records.
    scores: f64,
    /// The names of the nodes that could be quantized, but stay in floats.
    floats: Vec<String>,
    /// The names of the quantized layers with the largest errors. Each error is a share of the size
    /// of the layer's sums.
    costly: Vec<(String, f64)>,
}

impl fmt::Display for Quantized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        write!(f, "{} layer{}", self.layers, plural(self.layers))?;
        if self.sums > 0 {
            write!(f, " and {} sum{}", self.sums, plural(self.sums))?;
        }
        f.write_str(" on 8-bit integers; ")?;
        match self.classes {
            Some(ClassChanges { changed, vectors }) => {
                write!(f, "{changed} of {vectors} records change their class")?;
            }
            None => write!(f, "{} records were compared", self.records)?,
        }
        let scores = 100.0 * self.scores;
        write!(f, ", scores change by {scores:.2} % of their spread")?;
        if !self.floats.is_empty() {
            let named = &self.floats[..self.floats.len().min(2 * NAMED)];
            write!(f, "; in floats: {}", named.join(", "))?;
            match self.floats.len() - named.len() {
                0 => {}
                more => write!(f, " and {more} more")?,
            }
        }
        let each = |(name, error): &(String, f64)| format!("{name} {:.2} %", 100.0 * error);
        let costly: Vec<String> = self.costly.iter().map(each).collect();
        write!(f, "; layers with the largest errors: {}", costly.join(", "))
    }
}

/// The user's settings for a quantization.
pub(super) struct Request {
    /// The file with the calibration records.
    file: PathBuf,
    /// The setting or the JSON key that names the file, for messages.
    place: String,
    names: Names,
    /// The percentage of calibration records whose predicted class may change.
    changes: f64,
}

impl Request {
    /// Reads the settings. `None` if neither the settings nor the key `quantize` of `o` asks for a
    /// quantization.
    pub(super) fn new(
        settings: &Settings,
        folder: &Path,
        o: &Object<'_>,
        mistakes: &mut Mistakes,
    ) -> Option<Request> {
        let names = settings.names;
        let by_key = o.text("quantize", mistakes);
        let (file, place) = match (&settings.quantize, by_key) {
            (Some(file), _) => (settings.root.join(file), names.quantize().into()),
            (None, Some(file)) => (folder.join(file), o.at("quantize")),
            (None, None) => return None,
        };
        Some(Request {
            file,
            place,
            names,
            changes: settings.changes,
        })
    }
}

/// The least number of calibration records. With 100 of them, one record is 1 %, the share of
/// classes that may change by default.
const LEAST: usize = 100;

/// The most floating-point operations for computing the scores of all calibration records in
/// floats. They take about a minute.
const BUDGET: u64 = 1 << 36;

/// The number of calibration records that are computed even if they exceed the budget.
const ALWAYS: usize = 200;

/// The number of calibration records with which the biases are corrected.
const COMPARED: usize = 64;

/// The number of layers with large errors that a report names.
const NAMED: usize = 3;

/// The most elements of a window whose mean is computed on integers. A float has room for their sum
/// and for four more binary digits.
const MOST_ELEMENTS: usize = 1 << 12;

/// For a network without classes or labels, the largest allowed change of the scores, as a share of
/// their spread.
const MOST_CHANGE: f64 = 0.1;

/// The network of floats that is to be quantized.
#[derive(Clone, Copy)]
pub(super) struct Floats<'f> {
    pub(super) network: &'f Network,
    /// The numbers of the network's constant arrays.
    pub(super) tensors: &'f Tensors,
    /// The network's graph as a draft, with its numbers in float64.
    pub(super) draft: &'f Draft,
}

/// A network after quantization.
pub(super) struct Made {
    pub(super) network: Network,
    pub(super) tensors: Tensors,
    pub(super) report: Quantized,
}

/// Quantizes a network, and computes the golden scores anew. If the user gave no golden vectors,
/// some of the calibration records become the golden vectors.
///
/// Returns `None` after a mistake, which is reported.
pub(super) fn run(
    request: &Request,
    of: Floats<'_>,
    golden: &mut GoldenVectors,
    (files, mistakes): (&mut Files<'_>, &mut Mistakes),
) -> Option<Made> {
    let (file, width) = (&request.file, of.network.width);
    let shown = files.shown(file);
    let size = (width, of.network.bytes);
    let records = matrix::read_records(file, size, &request.place, files, mistakes)?;
    if records.rows < LEAST {
        let found = records.rows;
        mistakes.add(
            shown,
            format_args!("expected at least {LEAST} records to quantize with, found {found}"),
        );
        return None;
    }
    let most = (BUDGET / of.network.flop().max(1)).max(ALWAYS as u64) as usize;
    let records = some(&records.data, width, most);
    let calibration = Calibration {
        of,
        records: &records,
    };
    let made = calibration.quantized(request);
    let made = made.map_err(|e| mistakes.add(shown, e)).ok()?;
    golden::of_records(golden, &made.network, &made.tensors, &records);
    Some(made)
}

/// Returns `count` of the records in `raw`, evenly spaced, or all records if there are no more than
/// `count`.
fn some(raw: &[f32], width: usize, count: usize) -> Vec<f32> {
    let records = raw.len() / width;
    let count = count.min(records);
    let chosen = (0..count).map(|i| i * records / count);
    chosen
        .flat_map(|n| &raw[n * width..(n + 1) * width])
        .copied()
        .collect()
}

/// A network of floats, with the calibration records to quantize it with.
struct Calibration<'c> {
    of: Floats<'c>,
    records: &'c [f32],
}

/// A quantized network that is used if the others that were tried are worse.
struct Candidate {
    network: Network,
    tensors: Tensors,
    /// The nodes that could be quantized, but stay in floats.
    floats: Vec<usize>,
    difference: Difference,
}

impl Calibration<'_> {
    /// Quantizes the layers of the network.
    fn quantized(&self, request: &Request) -> Result<Made, String> {
        let graph = &self.of.draft.graph;
        let rounds = |op: Op| op.rounds() || op.rounds_to_steps();
        if let Some(node) = graph.nodes.iter().find(|n| rounds(n.op)) {
            let (quantize, arithmetic) = (request.names.quantize(), request.names.arithmetic());
            return Err(format!(
                "only networks of floats are quantized, and {} rounds to integers; leave out \
                 {quantize}, or set {arithmetic}=float",
                node.name
            ));
        }
        let layers = (0..graph.nodes.len()).filter(|&i| self.quantizes(i));
        let layers: Vec<usize> = layers.collect();
        if layers.is_empty() {
            return Err("the network has no affine layer or convolution to quantize".into());
        }
        let (samples, scores) = self.samples()?;
        let (integers, mut errors) = self.integers(&samples);
        let bound = request.changes * scores.len() as f64 / 100.0;
        let best = self.best(&layers, &integers, &scores, bound)?;
        errors.sort_by(|a, b| b.1.total_cmp(&a.1));
        let name = |i: usize| graph.nodes[i].name.to_string();
        let costly = errors.iter().filter(|(i, _)| !best.floats.contains(i));
        let rounded = |n: &&Node| matches!(n.op, Op::Combine(arithmetic) if arithmetic.rounds());
        let report = Quantized {
            layers: layers.iter().filter(|i| !best.floats.contains(i)).count(),
            sums: best.network.graph.nodes.iter().filter(rounded).count(),
            records: scores.len(),
            classes: best.difference.classes,
            scores: best.difference.scores,
            floats: best.floats.iter().map(|&i| name(i)).collect(),
            costly: costly.take(NAMED).map(|&(i, e)| (name(i), e)).collect(),
        };
        match best.difference.fits(bound) {
            true => Ok(Made {
                network: best.network,
                tensors: best.tensors,
                report,
            }),
            false => Err(refused(request, &report)),
        }
    }

    /// Returns the first network that changes the classes of at most `bound` records, or else the
    /// best one. All nodes are quantized at first. Then some stay in floats: the last layer, then
    /// depthwise convolutions, sums of two values and means, then the first layer too.
    fn best(
        &self,
        layers: &[usize],
        integers: &[Option<Integers>],
        scores: &[Vec<f64>],
        bound: f64,
    ) -> Result<Candidate, String> {
        let (first, last) = (layers[..1].to_vec(), layers[layers.len() - 1..].to_vec());
        let mut delicate: Vec<usize> = (0..integers.len()).collect();
        delicate.retain(|&i| match integers[i] {
            Some(Integers::Layer(_)) => self.is_depthwise(i),
            Some(_) => true,
            None => false,
        });
        let mut tried: Vec<Vec<usize>> = Vec::new();
        let mut best: Option<Candidate> = None;
        for parts in [
            vec![],
            vec![&last],
            vec![&delicate],
            vec![&delicate, &last],
            vec![&delicate, &first],
            vec![&delicate, &first, &last],
        ] {
            let mut floats: Vec<usize> = parts.into_iter().flatten().copied().collect();
            floats.sort_unstable();
            floats.dedup();
            if layers.iter().all(|i| floats.contains(i)) || tried.contains(&floats) {
                continue;
            }
            tried.push(floats.clone());
            let made = self.candidate(integers, floats, scores)?;
            if made.difference.fits(bound) {
                return Ok(made);
            }
            let better = |b: &Candidate| made.difference.below(&b.difference);
            if best.as_ref().is_none_or(better) {
                best = Some(made);
            }
        }
        best.ok_or_else(|| "the network has no layer to quantize".into())
    }

    /// Returns true if the first constant array of node `i` has the role of weights.
    fn has_weights(&self, i: usize) -> bool {
        let graph = &self.of.draft.graph;
        let first = graph.nodes[i].tensors.first();
        first.is_some_and(|&t| graph.tensors[t].role == Role::Weights)
    }

    /// Returns true if node `i` is a layer that can be quantized. A depthwise convolution is
    /// quantized if its operand is rounded behind the layer or sum that computes it. Otherwise the
    /// rounding would be a step of its own, and floats are faster.
    fn quantizes(&self, i: usize) -> bool {
        let op = self.of.draft.graph.nodes[i].op;
        let layer = matches!(op, Op::Affine | Op::Convolution { .. });
        layer && self.has_weights(i) && (!self.is_depthwise(i) || self.reads_rounded(i))
    }

    /// Returns true if node `i` is a convolution with one input channel in each group.
    fn is_depthwise(&self, i: usize) -> bool {
        let graph = &self.of.draft.graph;
        let node = &graph.nodes[i];
        let channels = graph.values[node.inputs[0]].shape.c;
        matches!(node.op, Op::Convolution { groups, .. } if groups > 1 && groups == channels)
    }

    /// Returns true if node `i` reads a layer that can be quantized or a sum, perhaps through
    /// functions that commute with rounding.
    fn reads_rounded(&self, i: usize) -> bool {
        let graph = &self.of.draft.graph;
        let Some(before) = graph.producer(graph.nodes[i].inputs[0]) else {
            return false;
        };
        let passes = || graph.nodes[before].inputs.len() == 1 && self.reads_rounded(before);
        self.quantizes(before)
            || self.adds(before)
            || rewrite::passes(graph.nodes[before].op) && passes()
    }

    /// Returns true if node `i` adds or subtracts two values.
    fn adds(&self, i: usize) -> bool {
        let op = self.of.draft.graph.nodes[i].op;
        matches!(
            op,
            Op::Combine(Arithmetic::Add) | Op::Combine(Arithmetic::Subtract)
        )
    }

    /// Returns the number of elements in a window if node `i` can compute means of windows on
    /// integers. The operand has to be rounded anyway, and nothing else may read it.
    fn averages(&self, i: usize) -> Option<usize> {
        let graph = &self.of.draft.graph;
        let node = &graph.nodes[i];
        let Op::Pool { kind, window } = node.op else {
            return None;
        };
        let count = window.size.0 * window.size.1;
        // With a border, windows may have different numbers of elements.
        let alike = window.border == Border::default() && !window.ceil;
        let alone = graph.only_consumer(node.inputs[0]) == Some(i);
        let fits = kind != Pool::Max && alike && alone && count <= MOST_ELEMENTS;
        (fits && self.reads_rounded(i)).then_some(count)
    }

    /// Computes all calibration records in floats. Returns samples of each value that a quantizable
    /// layer, a sum or a mean reads, and the scores.
    fn samples(&self) -> Result<(Vec<Samples>, Vec<Vec<f64>>), String> {
        let graph = &self.of.draft.graph;
        let mut samples = vec![Samples::default(); graph.values.len()];
        let reads = |i: usize| self.quantizes(i) || self.adds(i) || self.averages(i).is_some();
        let read = |value: usize| graph.consumers(value).any(reads);
        let read: Vec<bool> = (0..graph.values.len()).map(read).collect();
        let mut random = Random::new(8);
        let count = self.records.len() / self.of.network.width;
        let mut see = |computed: &Computed<'_>| {
            if read[computed.value] {
                samples[computed.value].add(computed.numbers, count, &mut random);
            }
        };
        let scores = self
            .of
            .network
            .scores_and_values(self.of.tensors, self.records, &mut see);
        let wrong = scores.iter().position(|s| !s.iter().all(|v| v.is_finite()));
        match wrong {
            None => Ok((samples, scores)),
            Some(n) => Err(format!(
                "record {} of {count} makes numbers that leave the range of f32; check the scaling",
                n + 1
            )),
        }
    }

    /// Quantizes every layer, sum and mean that can be quantized. Corrects the biases of layers.
    /// Returns an entry for each node, `None` for other nodes. Also returns the node and the
    /// remaining error of each quantized layer.
    fn integers(&self, samples: &[Samples]) -> (Vec<Option<Integers>>, Vec<(usize, f64)>) {
        let graph = &self.of.draft.graph;
        let width = self.of.network.width;
        let records = some(self.records, width, COMPARED);
        let means = rounding::means(self.of.network, self.of.tensors, &records);
        let layer = |i: usize| {
            let node = &graph.nodes[i];
            let columns = Columns::of(graph, node, &means);
            let [weights, biases] = [0, 1].map(|n| &self.of.tensors[node.tensors[n]][..]);
            let grid = samples[node.inputs[0]].grid();
            Layer::new(grid, weights, biases, &columns)
        };
        let of_node = |i: usize| match (self.quantizes(i), &*graph.nodes[i].inputs) {
            (true, _) => Some(Integers::Layer(layer(i))),
            (_, &[a, b]) if self.adds(i) => Some(Integers::Sum([a, b].map(|v| samples[v].grid()))),
            (_, &[v]) => {
                let mean = |count| Integers::Mean(samples[v].grid(), count);
                self.averages(i).map(mean)
            }
            _ => None,
        };
        let mut integers: Vec<Option<Integers>> = (0..graph.nodes.len()).map(of_node).collect();
        let mut see = |computed: &Computed<'_>| {
            let at = computed.node.map(|i| (i, &mut integers[i]));
            if let Some((i, Some(Integers::Layer(layer)))) = at {
                let shape = graph.values[computed.value].shape;
                layer.compare(graph.nodes[i].op, computed, shape);
            }
        };
        self.of
            .network
            .scores_and_values(self.of.tensors, &records, &mut see);
        let corrected = integers.iter_mut().enumerate();
        let errors = corrected.filter_map(|(i, of)| match of {
            Some(Integers::Layer(layer)) => Some((i, layer.correct())),
            _ => None,
        });
        let errors = errors.collect();
        (integers, errors)
    }

    /// Rounds the weights of a layer that stays in floats to bytes with scales.
    fn round_weights(draft: &mut Draft, i: usize) {
        let weights = draft.graph.nodes[i].tensors[0];
        let columns = draft.graph.tensors[weights].cols;
        for row in draft.numbers[weights].chunks_exact_mut(columns) {
            let mut floats: Vec<f32> = row.iter().map(|&w| w as f32).collect();
            scale::round(&mut floats, &vec![1.0; columns]);
            row.iter_mut().zip(floats).for_each(|(w, f)| *w = f.into());
        }
    }

    /// Returns the network with all quantizable layers and sums quantized, except the nodes
    /// `floats`.
    fn candidate(
        &self,
        integers: &[Option<Integers>],
        floats: Vec<usize>,
        scores: &[Vec<f64>],
    ) -> Result<Candidate, String> {
        let mut integers = integers.to_vec();
        floats.iter().for_each(|&i| integers[i] = None);
        let mut draft = self.of.draft.clone();
        if self.of.network.weights == Precision::I8 {
            let in_floats = |&i: &usize| integers[i].is_none() && self.has_weights(i);
            let nodes = (0..integers.len()).filter(in_floats);
            nodes.for_each(|i| Self::round_weights(&mut draft, i));
        }
        let draft = rewrite::rewrite(&draft, &integers)?;
        let tensors = draft.rounded();
        let network = Network {
            graph: draft.graph,
            ..self.of.network.clone()
        };
        let found = network.scores_of_all(&tensors, self.records);
        Ok(Candidate {
            difference: Difference::of(&network, scores, &found),
            network,
            tensors,
            floats,
        })
    }
}

/// Returns the message for a network whose classes or scores change more than allowed.
fn refused(request: &Request, report: &Quantized) -> String {
    let weights = request.names.weights();
    let Some(ClassChanges { changed, vectors }) = report.classes else {
        return format!(
            "quantized, the scores change by {:.1} % of their spread, at most {:.0} % are allowed",
            100.0 * report.scores,
            100.0 * MOST_CHANGE
        );
    };
    format!(
        "quantized, {changed} of {vectors} records change their class, at most {} % are allowed; \
         {weights}=i8:{} allows that many; layers with the largest errors: {}",
        request.changes,
        (100.0 * changed as f64 / vectors as f64).ceil(),
        report
            .costly
            .iter()
            .map(|(name, error)| format!("{name} {:.1} %", 100.0 * error))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// The difference between the scores of a quantized network and those of the network of floats.
struct Difference {
    /// The records whose predicted class or labels change. `None` for networks that predict no
    /// class or labels.
    classes: Option<ClassChanges>,
    /// The root mean square change of the scores, divided by their spread over the records.
    scores: f64,
}

impl Difference {
    fn of(network: &Network, before: &[Vec<f64>], after: &[Vec<f64>]) -> Difference {
        let pairs = || before.iter().zip(after);
        let changed = pairs().filter(|(a, b)| answer(network, a) != answer(network, b));
        let classes = ClassChanges {
            changed: changed.count(),
            vectors: before.len(),
        };
        let outputs = network.outputs();
        let mean = |i: usize| before.iter().map(|s| s[i]).sum::<f64>() / before.len() as f64;
        let means: Vec<f64> = (0..outputs).map(mean).collect();
        let square =
            |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum() };
        let spread: f64 = before.iter().map(|a| square(a, &means)).sum();
        let off: f64 = pairs().map(|(a, b)| square(a, b)).sum();
        Difference {
            classes: (network.output.kind != Kind::Values).then_some(classes),
            scores: (off / spread.max(f64::MIN_POSITIVE)).sqrt(),
        }
    }

    /// Returns true if at most `bound` records change their class or labels. Without classes or
    /// labels, the scores may change by at most [`MOST_CHANGE`].
    fn fits(&self, bound: f64) -> bool {
        match self.classes {
            Some(of) => of.changed as f64 <= bound,
            None => self.scores <= MOST_CHANGE,
        }
    }

    fn below(&self, other: &Difference) -> bool {
        match (self.classes, other.classes) {
            (Some(a), Some(b)) => a.changed < b.changed,
            _ => self.scores < other.scores,
        }
    }
}

/// Returns the predicted class of a record, or for each label a 1 if it applies and a 0 otherwise.
/// Empty for networks that predict neither.
fn answer(network: &Network, scores: &[f64]) -> Vec<u32> {
    if network.output.kind == Kind::Multilabel {
        let mut chances = scores.to_vec();
        network.output.activation.apply(&mut chances);
        let applies = |p: &f64| u32::from(*p > network.output.threshold);
        return chances.iter().map(applies).collect();
    }
    network.class(scores).into_iter().collect()
}
