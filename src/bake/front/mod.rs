//! Front ends: each reads a kind of file into a [`Draft`](super::draft::Draft) and says what it knows of its meaning.

mod beside;
#[cfg(test)]
#[path = "broadcasts/tests.rs"]
mod broadcasts;
mod builder;
mod constant;
#[cfg(test)]
pub(crate) mod fixtures;
mod fold;
#[cfg(fuzzing)]
#[path = "../../../tests/fuzz/checks/front.rs"]
pub(crate) mod fuzzing;
mod layers;
mod onnx;
mod operations;
mod tail;
mod tflite;
mod thesis;
mod value;

use super::matrix::Files;
use super::model::Read;
use super::{Mistakes, Settings};
use std::path::{Path, PathBuf};

/// A model's file.
struct Source<'s> {
    /// What to bake.
    settings: &'s Settings,
    /// Where it is.
    path: &'s Path,
    /// What is in it.
    bytes: &'s [u8],
}

/// Endings of files that no front end reads, and the way from them.
const OTHERS: [(&str, &str, &str); 6] = [
    ("keras", "a Keras model", "`model.export(\"net.onnx\", format=\"onnx\")` in Keras makes ONNX of it"),
    ("h5", "a Keras model", "`model.export(\"net.onnx\", format=\"onnx\")` in Keras makes ONNX of it"),
    ("pt", "a PyTorch model", "`torch.onnx.export(model, example, \"net.onnx\")` makes ONNX of it"),
    ("pth", "a PyTorch model", "`torch.onnx.export(model, example, \"net.onnx\")` makes ONNX of it"),
    (
        "pkl",
        "a pickled model",
        "`skl2onnx.to_onnx` makes ONNX of scikit-learn's, mortonnet.export (python/mortonnet) a network JSON",
    ),
    (
        "joblib",
        "a pickled model",
        "`skl2onnx.to_onnx` makes ONNX of scikit-learn's, mortonnet.export (python/mortonnet) a network JSON",
    ),
];

/// Reads and checks the network of `settings`, with the front end that its file's ending asks for.
pub(crate) fn read(settings: &Settings, read: &mut Vec<PathBuf>, mistakes: &mut Mistakes) -> Option<Read> {
    let mut files = Files { root: &settings.root, read };
    let mut path = settings.root.join(&settings.model);
    if path.is_dir() {
        path.push("network.json");
    }
    let asked = format!("MORTONNET_MODEL={}", settings.model.display());
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    if let Some((_, what, way)) = OTHERS.iter().find(|o| o.0 == ending) {
        mistakes.add(
            asked,
            format_args!("expected a network JSON, an ONNX or a TensorFlow Lite model, found {what}; {way}"),
        );
        return None;
    }
    // A network that lies outside is asked for by an absolute path, so that the message says what was tried.
    if std::fs::metadata(&path).is_ok_and(|m| !m.is_file()) {
        mistakes.add(asked, format_args!("{} is not a regular file", path.display()));
        return None;
    }
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) => {
            mistakes.add(asked, format_args!("cannot read {}: {e}", path.display()));
            return None;
        }
    };
    files.read.push(path.clone());
    let source = Source { settings, path: &path, bytes: &bytes };
    match &*ending {
        "onnx" => onnx::read(&source, &mut files, mistakes),
        "tflite" => tflite::read(&source, &mut files, mistakes),
        _ => thesis::read(&source, &mut files, mistakes),
    }
}

/// The name of a network without one: its folder's, or its file's.
fn default_name(path: &Path) -> String {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("network");
    let folder = path.parent().and_then(Path::file_name).and_then(|s| s.to_str());
    match (stem, folder) {
        ("network", Some(folder)) => folder.to_string(),
        _ => stem.to_string(),
    }
}
