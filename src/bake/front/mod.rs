//! Front ends. Each reads one kind of file into a [`Draft`](super::draft::Draft), with the facts
//! that the file states about input and output.

mod attention;
mod beside;
#[cfg(test)]
#[path = "broadcasts/tests.rs"]
mod broadcasts;
mod builder;
mod constant;
mod elementwise;
#[cfg(test)]
pub(crate) mod fixtures;
mod fold;
mod functions;
#[cfg(fuzzing)]
#[path = "../../../tests/fuzz/checks/front.rs"]
pub(crate) mod fuzzing;
mod inputs;
mod integers;
mod layers;
mod normalise;
mod onnx;
mod operations;
mod products;
mod ranking;
mod resample;
mod tail;
mod tflite;
mod thesis;
mod value;

use super::matrix::Files;
use super::model::ReadModel;
use super::{Mistakes, Settings};
use std::path::{Path, PathBuf};

/// The model file that a front end parses: its path, its bytes, and the settings of the build.
struct Source<'s> {
    settings: &'s Settings,
    path: &'s Path,
    bytes: &'s [u8],
}

const EXPECTED: &str =
    "expected a network JSON, an ONNX (.onnx) or a TensorFlow Lite model (.tflite)";

/// File name endings that no front end reads. An entry has the ending, the kind of file, and advice
/// for the user.
const OTHERS: [(&str, &str, &str); 8] = [
    ("py", "a Python program", RUN),
    ("ipynb", "a notebook", RUN),
    ("keras", "a Keras model", KERAS),
    ("h5", "a Keras model", KERAS),
    ("pt", "a PyTorch model", TORCH),
    ("pth", "a PyTorch model", TORCH),
    ("pkl", "a pickled model", PICKLE),
    ("joblib", "a pickled model", PICKLE),
];

/// The first bytes of files that no front end reads. An entry has the bytes, the kind of file, and
/// advice for the user.
const MAGIC: [(&[u8], &str, &str); 9] = [
    (
        b"PK\x03\x04",
        "a zip archive (as of PyTorch, Keras and NumPy)",
        EXPORT,
    ),
    (b"\x89HDF", "an HDF5 file (as of Keras)", EXPORT),
    (b"\x80\x02", "a pickle", EXPORT),
    (b"\x80\x03", "a pickle", EXPORT),
    (b"\x80\x04", "a pickle", EXPORT),
    (b"\x80\x05", "a pickle", EXPORT),
    (b"\x93NUMPY", "a NumPy array", EXPORT),
    (b"\x1f\x8b\x08", "a gzip file", "gunzip it"),
    (
        b"version https://git-lfs",
        "a pointer of Git LFS",
        "`git lfs pull` fetches the file itself",
    ),
];

const RUN: &str = "run it, and let it export its model as ONNX or with mortonnet.export";
const KERAS: &str = "`model.export(\"net.onnx\", format=\"onnx\")` in Keras makes ONNX of it";
const TORCH: &str = "`torch.onnx.export(model, example, \"net.onnx\")` makes ONNX of it";
const PICKLE: &str = "`skl2onnx.to_onnx` makes ONNX of scikit-learn's, mortonnet.export \
                      (python/mortonnet) a network JSON";
const EXPORT: &str = "export the model as ONNX";

/// Returns the kind of file and advice for the user, if no front end can read the file. A model
/// whose name has the wrong `ending` for its content counts as unreadable.
fn unlike(bytes: &[u8], ending: &str) -> Option<(&'static str, &'static str)> {
    if let Some((_, found, way)) = MAGIC.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
        return Some((found, way));
    }
    let begin = bytes
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(bytes)
        .trim_ascii_start()
        .first();
    let text = std::str::from_utf8(bytes).is_ok();
    let tflite = bytes.get(4..8) == Some(b"TFL3");
    match (ending, begin) {
        (_, None) => Some(("an empty file", EXPORT)),
        (_, Some(b'<')) if text => Some(("a web page", "download the file itself")),
        (_, _) if tflite => Some((
            "a TensorFlow Lite model",
            "give it a name that ends in .tflite",
        ))
        .filter(|_| ending != "tflite"),
        ("onnx", _) => None,
        // A JSON is accepted here. Its front end reports mistakes with line and column.
        (_, Some(b'{')) if ending != "tflite" => None,
        _ if onnx::is_model(bytes) => Some(("an ONNX model", "give it a name that ends in .onnx")),
        ("tflite", _) => None,
        ("json", _) if text => None,
        _ if text => Some(("a text that does not begin with {", EXPORT)),
        _ => Some(("a file of another kind", EXPORT)),
    }
}

/// Lists the names of up to five models (`.onnx`, `.tflite`) in a folder, for the message that the
/// folder has no network.json.
fn found_in(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.retain(|name| {
        [".onnx", ".tflite"]
            .iter()
            .any(|ending| name.ends_with(ending))
    });
    names.sort();
    names.truncate(5);
    match names.len() {
        0 => "no model".into(),
        1 => format!("{}: name that file", names[0]),
        _ => format!("{}: name one of them", names.join(", ")),
    }
}

/// Reads the model file that the settings name. If they name a folder, reads its `network.json`.
/// The ending of the file name selects the front end. The path of each file that is read is
/// appended to `read`.
pub(crate) fn read(
    settings: &Settings,
    read: &mut Vec<PathBuf>,
    mistakes: &mut Mistakes,
) -> Option<ReadModel> {
    let mut files = Files {
        root: &settings.root,
        read,
    };
    let mut path = settings.root.join(&settings.model);
    let asked = settings.names.model(&settings.model);
    if path.is_dir() {
        let file = path.join("network.json");
        if !file.exists() {
            mistakes.add(
                asked,
                format_args!(
                    "expected network.json in this folder, found {}",
                    found_in(&path)
                ),
            );
            return None;
        }
        path = file;
    }
    let ending = path
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or("")
        .to_ascii_lowercase();
    if let Some((_, what, way)) = OTHERS.iter().find(|(other, ..)| *other == ending) {
        mistakes.add(asked, format_args!("{EXPECTED}, found {what}; {way}"));
        return None;
    }
    // The next two messages show the absolute path, because the program opened that path.
    if std::fs::metadata(&path).is_ok_and(|m| !m.is_file()) {
        mistakes.add(
            asked,
            format_args!("{} is not a regular file", path.display()),
        );
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
    if let Some((what, way)) = unlike(&bytes, &ending) {
        mistakes.add(
            files.shown(&path),
            format_args!("{EXPECTED}, found {what}; {way}"),
        );
        return None;
    }
    let source = Source {
        settings,
        path: &path,
        bytes: &bytes,
    };
    match &*ending {
        "onnx" => onnx::read(&source, &mut files, mistakes),
        "tflite" => tflite::read(&source, &mut files, mistakes),
        _ => thesis::read(&source, &mut files, mistakes),
    }
}

/// Returns the name for a network whose model states none: the file name without its ending. For
/// `network.json` that is the name of its folder.
fn default_name(path: &Path) -> String {
    let stem = path
        .file_stem()
        .and_then(|s| s.to_str())
        .unwrap_or("network");
    let folder = path
        .parent()
        .and_then(Path::file_name)
        .and_then(|s| s.to_str());
    match (stem, folder) {
        ("network", Some(folder)) => folder.to_string(),
        _ => stem.to_string(),
    }
}

/// Returns true if `name` is one of the names in `list`, which spaces separate.
fn listed(list: &str, name: &str) -> bool {
    !name.is_empty() && list.split(' ').any(|listed| listed == name)
}
