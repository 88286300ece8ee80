//! Checks shared by the build's readers, and checks of readers for files other than models.

use super::Input;
use crate::bake::matrix::{self, FileMatrix, Files};
use crate::bake::{Mistakes, kernels};
use crate::baked::{library, network};
use crate::engine::model;
use crate::ir::wire::{self, Wire};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Checks that a failed read has mistakes and a successful one has none. Each is one line.
pub(crate) fn told(read: bool, mistakes: &Mistakes) {
    assert_eq!(read, mistakes.lines.is_empty(), "{:?}", mistakes.lines);
    for line in mistakes.lines.iter().chain(&mistakes.notes) {
        assert!(
            line.contains(": ") && !line.contains(char::is_control),
            "{line:?}"
        );
        assert!(line.chars().count() <= 2001, "{} bytes: {line}", line.len());
    }
}

/// Checks that a value has one form as bytes, and that reading it gives the same value.
pub(crate) fn canonical<T: Wire>(value: &T) {
    let bytes = wire::bytes(value);
    super::kept(bytes.clone(), wire::value::<T>, |again| {
        // Compares bytes, because a NaN is not equal to itself.
        assert_eq!(
            wire::bytes(&again.expect("what was written can be read")),
            bytes
        );
    });
}

/// Changes members of a JSON value, as the fuzzer chooses, and returns its text.
pub(crate) fn edited(mut root: Value, input: &mut Input<'_>) -> Vec<u8> {
    while !input.0.is_empty() {
        let depth = 1 + input.below(6);
        change(&mut root, depth, input);
    }
    serde_json::to_vec(&root).expect("it can be written")
}

/// Changes, removes or duplicates a member at most `depth` below `at`.
fn change(at: &mut Value, depth: usize, input: &mut Input<'_>) {
    let choice = usize::from(input.byte());
    let taken = depth == 1 && choice % 4 == 0;
    match at {
        Value::Object(map) if depth > 0 && !map.is_empty() => {
            let key = map
                .keys()
                .nth(choice / 4 % map.len())
                .cloned()
                .expect("there are so many");
            if !taken {
                return change(map.get_mut(&key).expect("it is there"), depth - 1, input);
            }
            let value = map.remove(&key).expect("it is there");
            if input.flag() {
                map.insert(text(input), value);
            }
        }
        Value::Array(list) if depth > 0 && !list.is_empty() => {
            // Long lists have more members than a byte has values.
            let i = (choice / 4 + 64 * input.below(8)) % list.len();
            if !taken {
                return change(&mut list[i], depth - 1, input);
            }
            let value = list.remove(i);
            if input.flag() {
                list.extend([value.clone(), value]);
            }
        }
        _ => *at = other(at.take(), input),
    }
}

/// Returns a replacement for a member.
fn other(value: Value, input: &mut Input<'_>) -> Value {
    match input.below(12) {
        0 => Value::Null,
        1 => input.flag().into(),
        2 => input.byte().into(),
        3 => u64::MAX.into(),
        4 => (i64::from(input.byte()) - 128).into(),
        5 => (1u64 << input.below(64)).into(),
        6 => (f64::from(input.byte()) / 8.0 - 4.0).into(),
        7 => f64::from_bits(u64::from(input.byte()) << 56 | u64::from(input.byte()) << 48).into(),
        8 | 9 => text(input).into(),
        10 => Value::Array(vec![value; input.below(4)]),
        _ => serde_json::json!({ text(input): value }),
    }
}

/// Returns a word that some reader knows, or any text.
fn text(input: &mut Input<'_>) -> String {
    const WORDS: [&str; 24] = [
        "relu", "none", "host", "opencl", "affine", "C_16_4_R", "R_4_1_C", "name", "file",
        "weights", "softmax", "values", "classes", "binary", "C", "R", "1_w.json", "valid", "same",
        "hwc", "scale", "*", "rows", "",
    ];
    match input.flag() {
        true => WORDS[input.below(WORDS.len())].into(),
        false => {
            let length = input.below(16);
            String::from_utf8_lossy(input.bytes(length)).into_owned()
        }
    }
}

/// A folder of this process, which is in memory if TMPDIR is.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("mortonnet-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for files");
    folder
});

pub(crate) fn folder() -> &'static Path {
    &FOLDER
}

fn put(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

/// Reads matrices in each format. Compares with a reader that accepts only valid ones, and checks
/// that writing and reading gives the same.
pub fn matrix(data: &[u8]) {
    let mut input = Input(data);
    let (kind, rows, cols) = (input.below(4), 1 + input.below(8), 1 + input.below(8));
    let (name, definition) = match kind {
        // The fuzzer chooses the definition.
        3 => {
            let length = 2 * usize::from(input.byte());
            ("data.f32", input.bytes(length).to_vec())
        }
        _ => {
            let (name, kind) = [
                ("data.csv", "csv"),
                ("data.npy", "npy"),
                ("data.f32", "f32"),
            ][kind];
            (
                name,
                format!(r#"{{"rows":{rows},"cols":{cols},"data_type":"{kind}","file":"{name}"}}"#)
                    .into_bytes(),
            )
        }
    };
    put(name, input.0);
    let definition = put("matrix.json", &definition);
    let read = |path: &Path| {
        let (mut files, mut mistakes) = (Vec::new(), Mistakes::default());
        let found = matrix::read(
            path,
            "layers[0]",
            &mut Files {
                root: folder(),
                read: &mut files,
            },
            &mut mistakes,
        );
        told(found.is_ok(), &mistakes);
        found.ok()
    };
    let found = read(&definition);
    if kind == 0 {
        assert_eq!(
            found.as_ref().map(|m| bits(m)),
            plain_csv(input.0, rows, cols)
        );
    }
    if kind == 2 {
        let numbers = input
            .0
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let whole = input.0.len() == rows * cols * 4 && numbers.clone().all(f32::is_finite);
        assert_eq!(
            found.as_ref().map(|m| bits(m)),
            whole.then(|| numbers.map(f32::to_bits).collect())
        );
    }
    let Some(matrix) = found else { return };
    assert_eq!(matrix.data.len(), matrix.rows * matrix.cols);
    assert!(matrix.data.iter().all(|x| x.is_finite()));
    for (kind, bytes) in written(&matrix) {
        let FileMatrix { rows, cols, .. } = matrix;
        put("again", &bytes);
        let text =
            format!(r#"{{"rows":{rows},"cols":{cols},"data_type":"{kind}","file":"again"}}"#);
        let again = read(&put("again.json", text.as_bytes()))
            .unwrap_or_else(|| panic!("{kind} of {rows} × {cols}"));
        assert_eq!(bits(&again), bits(&matrix), "{kind}");
    }
}

fn bits(matrix: &FileMatrix) -> Vec<u32> {
    matrix.data.iter().map(|x| x.to_bits()).collect()
}

/// Returns the numbers of a CSV file without mistakes.
fn plain_csv(bytes: &[u8], rows: usize, cols: usize) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(bytes)
        .ok()?
        .trim_start_matches('\u{feff}');
    let lines: Vec<&str> = text
        .split('\n')
        .filter(|line| !line.trim().is_empty())
        .collect();
    let number = |field: &str| {
        field
            .trim()
            .parse::<f32>()
            .ok()
            .filter(|x| x.is_finite())
            .map(f32::to_bits)
    };
    let numbers: Vec<u32> = lines
        .iter()
        .flat_map(|line| line.split(','))
        .map(number)
        .collect::<Option<_>>()?;
    (lines.len() == rows && lines.iter().all(|line| line.split(',').count() == cols))
        .then_some(numbers)
}

/// A matrix in each format.
fn written(matrix: &FileMatrix) -> [(&'static str, Vec<u8>); 3] {
    let FileMatrix { rows, cols, data } = matrix;
    let raw: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
    let line = |row: &[f32]| row.iter().map(f32::to_string).collect::<Vec<_>>().join(",") + "\n";
    let csv: String = data.chunks(*cols).map(line).collect();
    let header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}\n");
    let mut npy = b"\x93NUMPY\x01\0".to_vec();
    npy.extend((header.len() as u16).to_le_bytes());
    npy.extend(header.into_bytes());
    npy.extend(&raw);
    [("csv", csv.into_bytes()), ("npy", npy), ("f32", raw)]
}

/// The program's kernel library, which the fuzzer changes.
static LIBRARY: LazyLock<Value> = LazyLock::new(|| {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    fs::create_dir(folder().join("kernels")).expect("a folder for the library");
    for entry in fs::read_dir(&from)
        .expect("the kernels are there")
        .flatten()
    {
        let to = folder().join("kernels").join(entry.file_name());
        if entry.path().is_dir() {
            std::os::unix::fs::symlink(entry.path(), to).expect("a link to kernels");
        }
    }
    let text = fs::read_to_string(from.join("library.json")).expect("the library is there");
    serde_json::from_str(&text).expect("it is JSON")
});

/// Changes members of the kernel library. A library that passes the build's checks must not give a
/// wrong plan.
pub fn kernel_library(data: &[u8]) {
    let mut input = Input(data);
    let library = LIBRARY.clone();
    let text = match input.below(8) {
        0 => input.0.to_vec(),
        _ => edited(library, &mut input),
    };
    put("kernels/library.json", &text);
    let (mut files, mut mistakes) = (Vec::new(), Mistakes::default());
    let read = kernels::read(folder(), &mut files, &mut mistakes);
    told(read.is_some(), &mistakes);
    let Some((library, sources)) = read else {
        return;
    };
    canonical(&library);
    canonical(&sources);
    for recipe in library.plans.iter() {
        // Refusing to plan is allowed, because the build reports it. A panic is not.
        let _ = model::planned(network(), recipe, &library, Some(recipe.batch.min(64)));
    }
}

/// Reads a plan file of any bytes, or a valid one with changed members.
pub fn plan_file(data: &[u8]) {
    let mut input = Input(data);
    let recipe = &library().plans[input.below(library().plans.len())];
    let text = match input.below(8) {
        0 => input.0.to_vec(),
        _ => {
            let group =
                |(kernel, (rows, cols)): &(std::borrow::Cow<'static, str>, (usize, usize))| {
                    (kernel.to_string(), serde_json::json!([rows, cols]))
                };
            let groups: serde_json::Map<String, Value> = recipe.groups.iter().map(group).collect();
            let file = serde_json::json!({
                "format": 1,
                "name": "fuzzed",
                "engine": recipe.engine.to_string(),
                "batch": recipe.batch,
                "about": "",
                "kernels": recipe.kernels,
                "workGroups": groups,
                "layouts": [{ "node": "layers[0]", "role": "weights", "layout": "R" }],
                "library": library().hash,
            });
            edited(file, &mut input)
        }
    };
    let path = put("plan.json", &text);
    let (mut files, mut mistakes) = (Vec::new(), Mistakes::default());
    let mut files = Files {
        root: folder(),
        read: &mut files,
    };
    let read = kernels::read_plan_file(&path, "plan", library(), &mut files, &mut mistakes);
    if read.is_none() {
        told(false, &mistakes);
    }
    let Some(file) = read.filter(|_| mistakes.lines.is_empty()) else {
        return;
    };
    canonical(&file.recipe);
    let _ = model::planned(network(), &file.recipe, library(), None);
}
