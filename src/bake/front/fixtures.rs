//! Test models of `tests/onnx` and `tests/tflite`, with records and the outputs that other programs
//! computed for them.

use super::ReadModel;
use crate::bake::{Arithmetic, Mistakes, Names, Settings};
use crate::ir::network::{FinalActivation, Kind, Network, Precision};
use crate::ir::npy;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder with the test models of a format, `tests/onnx` or `tests/tflite`.
pub(super) fn folder(format: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(format)
}

/// The result of reading a model.
pub(super) struct Outcome {
    pub(super) read: Option<ReadModel>,
    /// The files that the build read for this model.
    pub(super) files: Vec<PathBuf>,
    pub(super) mistakes: Mistakes,
}

/// Reads a model as the build does. Any mistake makes it return all mistakes.
pub(crate) fn read(path: &Path) -> Result<ReadModel, Vec<String>> {
    let outcome = outcome(path);
    match outcome.read {
        Some(read) if outcome.mistakes.lines.is_empty() => Ok(read),
        _ => Err(outcome.mistakes.lines),
    }
}

/// Reads a model as the build does. Returns also the list of files that were read, and the
/// mistakes.
pub(super) fn outcome(path: &Path) -> Outcome {
    outcome_in(Arithmetic::Model, path)
}

/// Reads a model as [`outcome`] does, but computes 8-bit integers as `arithmetic` says.
pub(super) fn outcome_in(arithmetic: Arithmetic, path: &Path) -> Outcome {
    let settings = Settings {
        names: Names::Variables,
        root: path.parent().unwrap().into(),
        model: path.into(),
        weights: Some(Precision::F32),
        sizes: Default::default(),
        arithmetic,
        quantize: None,
        changes: 1.0,
        plan: "host".into(),
        lab: true,
    };
    let (mut files, mut mistakes) = (Vec::new(), Mistakes::default());
    let read = super::read(&settings, &mut files, &mut mistakes);
    Outcome {
        read,
        files,
        mistakes,
    }
}

/// Returns the rows of a matrix in an .npy file.
pub(crate) fn rows(path: &Path) -> Vec<Vec<f64>> {
    let bytes = std::fs::read(path).unwrap();
    let header = npy::parse_header(&bytes).unwrap().unwrap();
    let body = bytes[header.data_offset..].chunks_exact(header.dtype.size());
    let values: Vec<f64> = body.map(|b| header.decode(b)).collect();
    values
        .chunks(header.shape[1])
        .map(<[f64]>::to_vec)
        .collect()
}

/// The relation of the original model's outputs to the scores of the network that is made from it.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Outputs {
    /// The outputs are the scores.
    Scores,
    /// The outputs are the scores after the network's final function.
    Activated,
    /// The outputs are the logarithms of the scores after the final function.
    Logarithms,
    /// The outputs are 1 − p and p, where p is the network's only score after the final function.
    Pair,
    /// The output is the class index.
    Class,
}

fn outputs(network: &Network, mut scores: Vec<f64>, how: Outputs) -> Vec<f64> {
    if how == Outputs::Class {
        return vec![f64::from(network.class(&scores).unwrap())];
    }
    if how != Outputs::Scores {
        network.output.activation.apply(&mut scores);
    }
    match how {
        Outputs::Logarithms => scores.iter().map(|p| p.ln()).collect(),
        Outputs::Pair => vec![1.0 - scores[0], scores[0]],
        _ => scores,
    }
}

/// Checks a model's shape, the operations of its graph, the meaning of its output, and its outputs.
/// An output may be off by `bound` times the larger of 1 and the expected number.
pub(super) fn check(
    path: &Path,
    (shape, ops): (&str, &str),
    (kind, last): (Kind, FinalActivation),
    how: Outputs,
    bound: f64,
) -> Network {
    let name = path.file_stem().unwrap().to_str().unwrap();
    // Models with integer arithmetic have tests of their own, so this check computes in floats.
    let Outcome { read, mistakes, .. } = outcome_in(Arithmetic::Float, path);
    assert!(mistakes.lines.is_empty(), "{:?}", mistakes.lines);
    let ReadModel {
        network,
        tensors,
        golden,
        ..
    } = read.unwrap();
    assert_eq!(
        (network.output.kind, network.output.activation),
        (kind, last),
        "{name}"
    );
    let (inputs, expected) = (
        rows(&path.with_extension("inputs.npy")),
        rows(&path.with_extension("outputs.npy")),
    );
    assert!(inputs.len() >= 4 && inputs.len() == expected.len());
    for (record, (x, expected)) in inputs.iter().zip(&expected).enumerate() {
        let found = outputs(&network, network.scores(&tensors, x), how);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (f, e) in found.iter().zip(expected) {
            assert!(
                (f - e).abs() <= bound * e.abs().max(1.0),
                "{name}, record {record}: {found:?} {expected:?}"
            );
        }
    }
    assert!(golden.count > 0 && golden.scores.iter().any(|s| *s != golden.scores[0]));
    let found: Vec<&str> = network.graph.nodes.iter().map(|n| n.op.name()).collect();
    assert_eq!(
        (network.shape().as_str(), found.join(" ").as_str()),
        (shape, ops),
        "{name}"
    );
    network
}

/// A temporary folder for a model file `net`. Dropping this deletes the folder.
pub(super) struct ModelFolder {
    pub(super) path: PathBuf,
    format: &'static str,
}

static FOLDERS: AtomicU32 = AtomicU32::new(0);

impl ModelFolder {
    /// Makes an empty folder that no other test uses.
    pub(super) fn new(format: &'static str) -> ModelFolder {
        let n = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("mortonnet-{format}-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        ModelFolder { path, format }
    }

    pub(super) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path.join(name), bytes).unwrap();
        self
    }

    /// Copies a test model of the format to the file `net`.
    pub(super) fn copy(&self, name: &str) -> &Self {
        let model =
            std::fs::read(folder(self.format).join(format!("{name}.{}", self.format))).unwrap();
        self.put(&format!("net.{}", self.format), model)
    }

    /// Reads the model file `net` as the build does.
    pub(super) fn read(&self) -> Result<ReadModel, Vec<String>> {
        read(&self.net())
    }

    /// Lists the files that the build reads for this model: `net` itself and the files beside it.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        outcome(&self.net()).files
    }

    fn net(&self) -> PathBuf {
        self.path.join(format!("net.{}", self.format))
    }

    /// Returns the mistakes in reading `net`, without the path of the folder. Panics if there are
    /// none.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let own = format!("{}/", self.path.display());
        let list = self.read().map(|_| ()).expect_err("it is accepted");
        list.into_iter().map(|m| m.replace(&own, "")).collect()
    }
}

impl Drop for ModelFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
