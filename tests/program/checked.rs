//! The list of kernels that a witness has found right, `tests/checked.txt`.
//!
//! A check on a simulator gives the same result whenever its inputs are the same. It takes up to eight minutes a kernel,
//! so it is not repeated while the hash of its inputs stands in the list. Only the tests write the list, and only where
//! `MORTONNET_RECORD` is set (`tests/all` sets it).
//!
//! A line is `WITNESS KERNEL HASH SECONDS`. The hash is of the kernel's sources and entry, of the code that makes its
//! data and judges its results, of the witness's settings and of the witness's version. Lines of Rust that are comments
//! do not count.

use super::support::{Witness, root};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const LIST: &str = "tests/checked.txt";

/// Code that makes the data of a check and judges its results.
const HARNESS: [&str; 8] = [
    "src/lab/case.rs",
    "src/lab/reference.rs",
    "src/lab/shapes.rs",
    "src/planner/bind.rs",
    "src/ir",
    "src/ops",
    "src/registry",
    "src/cl",
];

/// Further code for kernels that are checked as a planned graph of one node, or as a whole network.
const PLANNED: [&str; 3] = ["src/lab/case", "src/planner", "src/engine/model.rs"];

/// Folders of kernels that the planner places when they are checked. All others are bound to a problem directly.
const PLACED: [&str; 7] = ["combine", "convolution", "gather", "layers", "pool", "scale", "softmax"];

/// A kernel and what its check depends on.
pub struct Kernel {
    pub name: String,
    pub settings: Vec<(&'static str, &'static str)>,
    hash: String,
}

/// The version of the package that has a witness.
fn version(witness: Witness) -> String {
    let package = match witness {
        Witness::Oclgrind => "oclgrind",
        Witness::Pocl => "libpocl2",
    };
    let said = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
    let said = said.ok().filter(|o| o.status.success());
    // Without a version no check is known to be the same one.
    let unknown = || format!("unknown, process {}", std::process::id());
    said.map_or_else(unknown, |o| String::from_utf8_lossy(&o.stdout).into_owned())
}

/// All files at or below `path`, in order.
fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_file() {
        return found.push(path.to_path_buf());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    entries.iter().for_each(|entry| files(entry, found));
}

/// Puts the text of all files at or below `path` into `hash`, without the comments of Rust and without its tests.
fn add(hash: &mut Sha256, path: &str) {
    let mut found = Vec::new();
    files(&root().join(path), &mut found);
    for file in found.iter().filter(|f| !f.ends_with("tests.rs")) {
        let text = fs::read_to_string(file).unwrap();
        let rust = file.extension().is_some_and(|e| e == "rs");
        let code = if rust { text.split("\n#[cfg(test)]\nmod tests {").next().unwrap() } else { &text };
        for line in code.lines().filter(|l| !rust || !l.trim_start().starts_with("//")) {
            hash.update(line);
            hash.update("\n");
        }
    }
}

/// The kernels of the library that have a source, as `witness` checks them.
pub fn kernels(
    witness: Witness,
    settings: impl Fn(&str) -> Vec<(&'static str, &'static str)>,
) -> Vec<Kernel> {
    let library = fs::read(root().join("kernels/library.json")).unwrap();
    let library: serde_json::Value = serde_json::from_slice(&library).unwrap();
    let mut common = Sha256::new();
    common.update(format!("{witness:?} {}\n", version(witness)));
    HARNESS.iter().chain(&["kernels/common"]).for_each(|path| add(&mut common, path));
    let mut planned = common.clone();
    PLANNED.iter().for_each(|path| add(&mut planned, path));
    let all = library["sources"].as_array().unwrap().iter().filter(|k| k["source"].is_string());
    let kernel = |entry: &serde_json::Value| {
        let text = |key: &str| entry[key].as_str().unwrap().to_string();
        let settings = settings(&text("codename"));
        let source = text("source");
        let placed = PLACED.iter().any(|folder| source.starts_with(&format!("{folder}/")));
        let mut hash = if placed { planned.clone() } else { common.clone() };
        hash.update(format!("{settings:?}\n{entry}\n"));
        add(&mut hash, &format!("kernels/{source}"));
        let hash = hash.finalize().iter().take(10).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Kernel { name: text("codename"), settings, hash }
    };
    all.map(kernel).collect()
}

/// Checks that stand in the list.
type Lines = BTreeMap<(String, String), (String, f64)>;

fn read() -> Lines {
    let text = fs::read_to_string(root().join(LIST)).unwrap_or_default();
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [witness, kernel, hash, seconds] = words[..] else { panic!("{LIST}: {line}") };
        ((witness.into(), kernel.into()), (hash.into(), seconds.parse().unwrap()))
    };
    text.lines().filter(|l| !l.starts_with('#')).map(line).collect()
}

/// Seconds of listed checks that are made all the same.
const SAMPLE: f64 = 30.0;

/// The kernels that `witness` has to check: those whose hash is not in the list, and some of the others, which the commit
/// draws.
pub fn due(witness: Witness, all: Vec<Kernel>) -> Vec<Kernel> {
    let list = read();
    let key = |k: &Kernel| (format!("{witness:?}"), k.name.clone());
    let listed = |k: &Kernel| list.get(&key(k)).filter(|(hash, _)| *hash == k.hash).map(|l| l.1);
    let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output();
    let commit = head.map_or(Vec::new(), |o| o.stdout);
    let (known, mut due): (Vec<_>, Vec<_>) = all.into_iter().partition(|k| listed(k).is_some());
    let mut drawn: Vec<Kernel> = known;
    drawn.sort_by_key(|k| Sha256::digest([&commit, k.name.as_bytes()].concat()));
    let (listed_ones, new_ones) = (drawn.len(), due.len());
    let mut left = SAMPLE;
    for kernel in drawn {
        let seconds = listed(&kernel).unwrap_or_default();
        if seconds <= left {
            left -= seconds;
            due.push(kernel);
        }
    }
    println!(
        "{witness:?}: {} kernels to check: {new_ones} not in {LIST}, {} of {listed_ones} in it",
        due.len(),
        due.len() - new_ones
    );
    due
}

/// Runs the check of a kernel, and puts it into the list where the list is to be written.
pub fn record(witness: Witness, kernel: &Kernel, check: impl FnOnce()) {
    let start = Instant::now();
    check();
    if std::env::var_os("MORTONNET_RECORD").is_none() {
        return;
    }
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let mut list = read();
    let seconds = start.elapsed().as_secs_f64();
    list.insert((format!("{witness:?}"), kernel.name.clone()), (kernel.hash.clone(), seconds));
    let mut text = String::from(
        "# Kernels that a witness has found right: witness, kernel, hash of the check's inputs, seconds.\n\
         # Written by tests/all; never by hand (tests/program/checked.rs).\n",
    );
    for ((witness, kernel), (hash, seconds)) in list {
        let _ = writeln!(text, "{witness} {kernel} {hash} {seconds:.1}");
    }
    fs::write(root().join(LIST), text).unwrap();
}

/// A changed source, entry or setting is another check; a comment of Rust is not.
#[test]
fn a_check_is_known_by_its_inputs() {
    let hash = |settings: &'static str| {
        let all = kernels(Witness::Pocl, |_| vec![("A", settings)]);
        all.into_iter().map(|k| (k.name, k.hash)).collect::<BTreeMap<_, _>>()
    };
    let (one, again, other) = (hash("1"), hash("1"), hash("2"));
    assert_eq!(one, again);
    assert!(one.len() > 50 && one.iter().all(|(name, hash)| other[name] != *hash));
    let all: std::collections::BTreeSet<&String> = one.values().collect();
    assert_eq!(all.len(), one.len(), "two kernels have the same hash");
    let folder = super::support::Folder::new();
    let code = |text: &str| {
        let mut hash = Sha256::new();
        add(&mut hash, folder.put("code.rs", text).to_str().unwrap());
        hash.finalize()
    };
    assert_eq!(code("fn a() {}\n"), code("// Reason.\nfn a() {}\n"));
    assert_ne!(code("fn a() {}\n"), code("fn b() {}\n"));
    // Every folder that the harness gives to the planner is named, and exists.
    let nodes = fs::read_to_string(root().join("src/lab/case/nodes.rs")).unwrap();
    let of_image = nodes.split("fn of_image").nth(1).unwrap().split("}\n").next().unwrap().to_lowercase();
    for folder in PLACED {
        assert!(root().join("kernels").join(folder).is_dir(), "{folder}");
        assert!(folder == "layers" || of_image.contains(folder), "{folder}");
    }
    let named = of_image.split("use operation::{").nth(1).unwrap().split('}').next().unwrap();
    assert!(named.split(", ").all(|name| PLACED.contains(&name)), "{named}");
}
