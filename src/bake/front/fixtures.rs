//! Models of `tests/onnx` and `tests/tflite` with records and what other programs make of them, for
//! the tests of front ends.

use super::Read;
use crate::bake::{Mistakes, Names, Settings};
use crate::ir::network::{FinalActivation, Kind, Network, Precision};
use crate::ir::npy;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder of the models of a format.
pub(super) fn folder(format: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(format)
}

/// A model as the build reads it, and the files that it read.
pub(crate) fn read(path: &Path) -> Result<(Read, Vec<PathBuf>), Vec<String>> {
    let (read, files, mistakes) = read_with_notes(path);
    match read {
        Some(read) if mistakes.lines.is_empty() => Ok((read, files)),
        _ => Err(mistakes.lines),
    }
}

/// The same with what it says.
pub(super) fn read_with_notes(path: &Path) -> (Option<Read>, Vec<PathBuf>, Mistakes) {
    let settings = Settings {
        names: Names::Variables,
        root: path.parent().unwrap().into(),
        model: path.into(),
        weights: Precision::F32,
        changes: 1.0,
        plan: "host".into(),
        lab: true,
    };
    let (mut files, mut mistakes) = (Vec::new(), Mistakes::default());
    let read = super::read(&settings, &mut files, &mut mistakes);
    (read, files, mistakes)
}

/// The rows of an .npy.
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

/// How the outputs of a model follow from the scores of the network that it became.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Outputs {
    /// They are its scores.
    Scores,
    /// They are its scores behind the final function.
    Activated,
    /// The logarithms of those.
    Logarithms,
    /// 1 − p and p.
    Pair,
    /// The class.
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

/// Checks a model: its shape and the operations of its graph in words, what its output means, its
/// outputs, off by at most `bound` of the largest of them, or of 1.
pub(super) fn check(
    path: &Path,
    (shape, ops): (&str, &str),
    (kind, last): (Kind, FinalActivation),
    how: Outputs,
    bound: f64,
) -> Network {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let ((network, tensors, golden, _), _) = read(path).unwrap();
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

/// A folder that goes away with the test, for a model `net` of a format.
pub(super) struct Folder {
    /// Where it is.
    pub(super) path: PathBuf,
    format: &'static str,
}

static FOLDERS: AtomicU32 = AtomicU32::new(0);

impl Folder {
    /// An empty one.
    pub(super) fn new(format: &'static str) -> Folder {
        let n = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("mortonnet-{format}-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder { path, format }
    }

    /// Writes a file.
    pub(super) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path.join(name), bytes).unwrap();
        self
    }

    /// A model of the format's folder as `net`.
    pub(super) fn copy(&self, name: &str) -> &Self {
        let model =
            std::fs::read(folder(self.format).join(format!("{name}.{}", self.format))).unwrap();
        self.put(&format!("net.{}", self.format), model)
    }

    /// What the build reads of `net`.
    pub(super) fn read(&self) -> Result<(Read, Vec<PathBuf>), Vec<String>> {
        read(&self.path.join(format!("net.{}", self.format)))
    }

    /// The mistakes, without the folder's own path.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let own = format!("{}/", self.path.display());
        let list = self.read().map(|_| ()).expect_err("it is accepted");
        list.into_iter().map(|m| m.replace(&own, "")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
