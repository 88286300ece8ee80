//! Quantization of a network of floats: layers compute on 8-bit integers, as those of a model that
//! its framework has quantized.
//!
//! It is a pass over the draft, behind all other passes. There, batch norms and scalings are part
//! of the weights, and one pass serves all front ends. A hook in the front ends' builder would
//! quantize layers before the passes have changed them. A quantized model file would need a writer
//! for each format.
//!
//! Records of the user give the range of each value that a layer reads. Weights get a scale for
//! each row, and the mean error of each row's sums is taken out of its bias. Everything between the
//! layers stays in floats. The result has the form that the front ends give to models of integers,
//! so the engines know it already.

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
use crate::ir::graph::{Role, Tensors};
use crate::ir::network::{Kind, Network, Precision};
use crate::ir::op::{Activation, Op};
use crate::ir::scale;
use crate::ops::evaluate::Computed;
use crate::ops::random::Random;
use grid::Samples;
use layer::Layer;
use std::fmt;
use std::path::{Path, PathBuf};

/// The effect of quantizing a network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantized {
    /// The number of quantized layers.
    layers: usize,
    /// The number of records that were computed.
    records: usize,
    /// The records whose class or labels change. `None` for networks of values.
    classes: Option<ClassChanges>,
    /// The change of the scores as a share of their spread (root mean square).
    scores: f64,
    /// The layers that stay in floats.
    floats: Vec<String>,
    /// The layers with the largest errors, and these errors as shares of the layers' sums.
    costly: Vec<(String, f64)>,
}

impl fmt::Display for Quantized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = if self.layers == 1 { "layer" } else { "layers" };
        write!(f, "{} {layers} on 8-bit integers; ", self.layers)?;
        match self.classes {
            Some(ClassChanges { changed, vectors }) => {
                write!(f, "{changed} of {vectors} records change their class")?;
            }
            None => write!(f, "{} records were compared", self.records)?,
        }
        let scores = 100.0 * self.scores;
        write!(f, ", scores change by {scores:.2} % of their spread")?;
        if !self.floats.is_empty() {
            write!(f, "; in floats: {}", self.floats.join(", "))?;
        }
        let each = |(name, error): &(String, f64)| format!("{name} {:.2} %", 100.0 * error);
        let costly: Vec<String> = self.costly.iter().map(each).collect();
        write!(f, "; layers with the largest errors: {}", costly.join(", "))
    }
}

/// The settings of a quantization.
pub(super) struct Request {
    /// The file of records.
    file: PathBuf,
    /// The setting or the key that names the file.
    place: String,
    names: Names,
    /// The percentage of classes that may change.
    changes: f64,
}

impl Request {
    /// `None` if neither the settings nor the key `quantize` of `o` asks for a quantization.
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

/// The least number of records. One of them is the percentage that may change.
const LEAST: usize = 100;

/// The largest number of operations for the scores of all records in floats. It takes about a
/// minute.
const BUDGET: u64 = 1 << 36;

/// The number of records that are computed whatever they cost.
const ALWAYS: usize = 200;

/// The number of records whose sums are compared for the biases.
const COMPARED: usize = 64;

/// The number of layers that a report names.
const NAMED: usize = 3;

/// The largest change of the scores of a network of values, as a share of their spread.
const MOST_CHANGE: f64 = 0.1;

/// A network of floats.
#[derive(Clone, Copy)]
pub(super) struct Floats<'f> {
    pub(super) network: &'f Network,
    /// The numbers of its arrays.
    pub(super) tensors: &'f Tensors,
    /// The network's graph.
    pub(super) draft: &'f Draft,
}

/// A quantized network.
pub(super) struct Made {
    pub(super) network: Network,
    pub(super) tensors: Tensors,
    pub(super) report: Quantized,
}

/// Quantizes a network, and computes the golden scores anew. Records of the file become golden
/// vectors, if the network has none of its own.
///
/// `None` after a mistake.
pub(super) fn run(
    request: &Request,
    of: Floats<'_>,
    golden: &mut GoldenVectors,
    (files, mistakes): (&mut Files<'_>, &mut Mistakes),
) -> Option<Made> {
    let (file, width) = (&request.file, of.network.width);
    let shown = files.shown(file);
    let records = matrix::read_records(file, width, &request.place, files, mistakes)?;
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

/// Returns `count` records of `raw`, which are spread evenly, or all if there are fewer.
fn some(raw: &[f32], width: usize, count: usize) -> Vec<f32> {
    let records = raw.len() / width;
    let count = count.min(records);
    let chosen = (0..count).map(|i| i * records / count);
    chosen
        .flat_map(|n| &raw[n * width..(n + 1) * width])
        .copied()
        .collect()
}

/// A network of floats, and records to quantize it with.
struct Calibration<'c> {
    of: Floats<'c>,
    records: &'c [f32],
}

/// A quantized network that may be chosen.
struct Candidate {
    network: Network,
    tensors: Tensors,
    /// The nodes of the layers that stay in floats.
    floats: Vec<usize>,
    difference: Difference,
}

impl Calibration<'_> {
    /// Quantizes the layers. If more classes change than the request allows, the last layer, the
    /// first one, or both stay in floats.
    fn quantized(&self, request: &Request) -> Result<Made, String> {
        let graph = &self.of.draft.graph;
        let rounds = |op: Op| matches!(op, Op::Activation(Activation::Math(f)) if f.rounds());
        if let Some(node) = graph.nodes.iter().find(|n| rounds(n.op)) {
            let (quantize, arithmetic) = (request.names.quantize(), request.names.arithmetic());
            return Err(format!(
                "only networks of floats are quantized, and {} rounds to integers; leave out \
                 {quantize}, or set {arithmetic}=float",
                node.name
            ));
        }
        let nodes: Vec<usize> = (0..graph.nodes.len())
            .filter(|&i| self.quantizes(i))
            .collect();
        let (Some(&first), Some(&last)) = (nodes.first(), nodes.last()) else {
            return Err("the network has no affine layer or convolution to quantize".into());
        };
        let (samples, scores) = self.samples()?;
        let (layers, mut errors) = self.layers(&samples);
        let width = self.of.network.width;
        let count = self.records.len() / width;
        let bound = request.changes * count as f64 / 100.0;
        let mut best: Option<Candidate> = None;
        for floats in [vec![], vec![last], vec![first], vec![first, last]] {
            if floats.len() >= nodes.len() {
                continue;
            }
            let made = self.candidate(&layers, floats, &scores)?;
            let fits = made.difference.fits(bound);
            if fits
                || best
                    .as_ref()
                    .is_none_or(|b| made.difference.below(&b.difference))
            {
                best = Some(made);
            }
            if fits {
                break;
            }
        }
        let best = best.ok_or("the network has no layer to quantize")?;
        errors.sort_by(|a, b| b.1.total_cmp(&a.1));
        let name = |i: usize| graph.nodes[i].name.to_string();
        let costly = errors.iter().filter(|(i, _)| !best.floats.contains(i));
        let report = Quantized {
            layers: nodes.len() - best.floats.len(),
            records: count,
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

    /// True if node `i` has weights.
    fn has_weights(&self, i: usize) -> bool {
        let graph = &self.of.draft.graph;
        let first = graph.nodes[i].tensors.first();
        first.is_some_and(|&t| graph.tensors[t].role == Role::Weights)
    }

    /// True if node `i` is a layer that is quantized. Depthwise convolutions stay in floats: no
    /// engine computes them faster on integers, and they lose most by rounded values.
    fn quantizes(&self, i: usize) -> bool {
        let node = &self.of.draft.graph.nodes[i];
        let layer = match node.op {
            Op::Affine => true,
            Op::Convolution { groups, .. } => {
                groups == 1 || groups < self.of.draft.shape(node.inputs[0]).c
            }
            _ => false,
        };
        layer && self.has_weights(i)
    }

    /// Computes all records. Returns numbers of each value that a layer reads, and the scores.
    fn samples(&self) -> Result<(Vec<Samples>, Vec<Vec<f64>>), String> {
        let graph = &self.of.draft.graph;
        let mut samples = vec![Samples::default(); graph.values.len()];
        let read = |value: usize| graph.consumers(value).any(|i| self.quantizes(i));
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

    /// Quantizes each layer by itself. Returns an entry for each node, and the node and the error
    /// of each layer.
    fn layers(&self, samples: &[Samples]) -> (Vec<Option<Layer>>, Vec<(usize, f64)>) {
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
        let of_node = |i: usize| self.quantizes(i).then(|| layer(i));
        let mut layers: Vec<Option<Layer>> = (0..graph.nodes.len()).map(of_node).collect();
        let mut see = |computed: &Computed<'_>| {
            let at = computed.node.map(|i| (i, &mut layers[i]));
            if let Some((i, Some(layer))) = at {
                let shape = graph.values[computed.value].shape;
                layer.compare(graph.nodes[i].op, computed, shape);
            }
        };
        self.of
            .network
            .scores_and_values(self.of.tensors, &records, &mut see);
        let corrected = layers.iter_mut().enumerate();
        let errors = corrected.filter_map(|(i, layer)| Some((i, layer.as_mut()?.correct())));
        let errors = errors.collect();
        (layers, errors)
    }

    /// Rounds the weights of a layer that stays in floats to bytes.
    fn round_weights(draft: &mut Draft, i: usize) {
        let weights = draft.graph.nodes[i].tensors[0];
        let columns = draft.graph.tensors[weights].cols;
        for row in draft.numbers[weights].chunks_exact_mut(columns) {
            let mut floats: Vec<f32> = row.iter().map(|&w| w as f32).collect();
            scale::round(&mut floats, &vec![1.0; columns]);
            row.iter_mut().zip(floats).for_each(|(w, f)| *w = f.into());
        }
    }

    /// Returns the network with all layers quantized except those of the nodes `floats`.
    fn candidate(
        &self,
        layers: &[Option<Layer>],
        floats: Vec<usize>,
        scores: &[Vec<f64>],
    ) -> Result<Candidate, String> {
        let mut layers = layers.to_vec();
        floats.iter().for_each(|&i| layers[i] = None);
        let mut draft = self.of.draft.clone();
        if self.of.network.weights == Precision::I8 {
            let nodes = (0..layers.len()).filter(|&i| layers[i].is_none() && self.has_weights(i));
            nodes.for_each(|i| Self::round_weights(&mut draft, i));
        }
        let draft = rewrite::rewrite(&draft, &layers)?;
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

/// The message for a network that changes too much.
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

/// The difference of a quantized network's scores from those in floats.
struct Difference {
    /// The records whose class or labels change. `None` for networks of values.
    classes: Option<ClassChanges>,
    /// The change of the scores as a share of their spread (root mean square).
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

    /// True if at most `bound` records change.
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

/// Returns the class of a record, or a number for each label that is 1 if the label applies. Empty
/// for networks of values.
fn answer(network: &Network, scores: &[f64]) -> Vec<u32> {
    if network.output.kind == Kind::Multilabel {
        let mut chances = scores.to_vec();
        network.output.activation.apply(&mut chances);
        let applies = |p: &f64| u32::from(*p > network.output.threshold);
        return chances.iter().map(applies).collect();
    }
    network.class(scores).into_iter().collect()
}
