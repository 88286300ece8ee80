//! The list `tests/checked.txt` of kernels that a witness has found right.
//!
//! A check on a simulator gives the same result for the same inputs. It takes up to eight minutes
//! per kernel, so it is not repeated while the hash of its inputs is in the list. Only the tests
//! write the list, and only if `MORTONNET_RECORD` is set, as `tests/all` does.
//!
//! A line is `WITNESS KERNEL HASH SECONDS`. The hash covers the inputs of `bench --check --inputs`,
//! the code that judges results, and the witness's settings and version. The inputs are sources
//! without comments, options, arguments, ranges and expected scores.

use super::support::{Witness, root};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const LIST: &str = "tests/checked.txt";

/// The code that judges results. Code that makes inputs is missing here, because the inputs are
/// hashed.
const JUDGES: [&str; 4] = [
    "src/lab/case",
    "src/lab/reference.rs",
    "src/ops/activation.rs",
    "src/ops/bound.rs",
];

/// A kernel with the settings and the hash of its check.
pub struct Kernel {
    pub name: String,
    pub settings: Vec<(&'static str, &'static str)>,
    hash: String,
}

/// Returns the version of a witness's package.
fn version(witness: Witness) -> String {
    let package = match witness {
        Witness::Oclgrind => "oclgrind",
        Witness::Pocl => "libpocl2",
    };
    let said = Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", package])
        .output();
    let said = said.ok().filter(|o| o.status.success());
    // Without a version, each process has a hash of its own, so all checks run.
    let unknown = || format!("unknown, process {}", std::process::id());
    said.map_or_else(unknown, |o| String::from_utf8_lossy(&o.stdout).into_owned())
}

/// Collects all files at or below `path`, in order.
fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_file() {
        return found.push(path.to_path_buf());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    entries.sort();
    entries.iter().for_each(|entry| files(entry, found));
}

/// Adds all files at or below `path` to `hash`, without Rust comments and tests.
fn add(hash: &mut Sha256, path: &str) {
    let mut found = Vec::new();
    files(&root().join(path), &mut found);
    for file in found.iter().filter(|f| !f.ends_with("tests.rs")) {
        let text = fs::read_to_string(file).unwrap();
        let rust = file.extension().is_some_and(|e| e == "rs");
        let code = if rust {
            text.split("\n#[cfg(test)]\nmod tests {").next().unwrap()
        } else {
            &text
        };
        for line in code
            .lines()
            .filter(|l| !rust || !l.trim_start().starts_with("//"))
        {
            hash.update(line);
            hash.update("\n");
        }
    }
}

/// Returns a witness's settings for a kernel.
pub type Settings = fn(&str) -> Vec<(&'static str, &'static str)>;

/// Returns the kernels of the library that have a source, as `witness` checks them.
pub fn kernels(witness: Witness, settings: Settings) -> Vec<Kernel> {
    let library = fs::read(root().join("kernels/library.json")).unwrap();
    let library: serde_json::Value = serde_json::from_slice(&library).unwrap();
    let all = library["sources"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|k| k["source"].is_string());
    let mut alike: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for name in all.map(|k| k["codename"].as_str().unwrap()) {
        alike.entry(settings(name)).or_default().push(name);
    }
    let mut judges = Sha256::new();
    judges.update(format!("{witness:?} {}\n", version(witness)));
    JUDGES.iter().for_each(|path| add(&mut judges, path));
    let of_settings = |(settings, names): (Vec<_>, Vec<&str>)| {
        let judges = judges.clone();
        let inputs = super::benching::inputs(witness, &settings, &names);
        assert_eq!(inputs.len(), names.len(), "{inputs:?}");
        inputs.into_iter().map(move |(name, inputs)| {
            let hash = judges
                .clone()
                .chain_update(format!("{settings:?} {inputs}"));
            let hash = hash
                .finalize()
                .iter()
                .take(10)
                .fold(String::new(), |mut text, byte| {
                    let _ = write!(text, "{byte:02x}");
                    text
                });
            Kernel {
                name,
                settings: settings.clone(),
                hash,
            }
        })
    };
    alike.into_iter().flat_map(of_settings).collect()
}

/// The checks in the list: hash and seconds by witness and kernel.
type Lines = BTreeMap<(String, String), (String, f64)>;

fn read() -> Lines {
    let text = fs::read_to_string(root().join(LIST)).unwrap_or_default();
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [witness, kernel, hash, seconds] = words[..] else {
            panic!("{LIST}: {line}")
        };
        (
            (witness.into(), kernel.into()),
            (hash.into(), seconds.parse().unwrap()),
        )
    };
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .map(line)
        .collect()
}

/// The seconds of listed checks that are repeated.
const SAMPLE: f64 = 30.0;

/// Returns the kernels that `witness` has to check. These are the kernels whose hash is not in the
/// list, and a sample of the others, drawn by the commit.
pub fn due(witness: Witness, all: Vec<Kernel>) -> Vec<Kernel> {
    let list = read();
    let key = |k: &Kernel| (format!("{witness:?}"), k.name.clone());
    let listed = |k: &Kernel| {
        list.get(&key(k))
            .filter(|(hash, _)| *hash == k.hash)
            .map(|l| l.1)
    };
    let head = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root())
        .output();
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

/// Runs the check of a kernel and adds it to the list if `MORTONNET_RECORD` is set.
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
    list.insert(
        (format!("{witness:?}"), kernel.name.clone()),
        (kernel.hash.clone(), seconds),
    );
    let mut text = String::from(
        "# Kernels that a witness has found right: witness, kernel, hash of the check's inputs, \
         seconds.\n\
         # Written by tests/all; never by hand (tests/program/checked.rs).\n",
    );
    for ((witness, kernel), (hash, seconds)) in list {
        let _ = writeln!(text, "{witness} {kernel} {hash} {seconds:.1}");
    }
    fs::write(root().join(LIST), text).unwrap();
}

/// The hash is the same in every run, and changes with the source or the settings.
#[test]
fn a_check_is_known_by_its_inputs() {
    let hash = |settings: Settings| {
        let all = kernels(Witness::Pocl, settings);
        all.into_iter()
            .map(|k| (k.name, k.hash))
            .collect::<BTreeMap<_, _>>()
    };
    let one = hash(|_| Vec::new());
    let again = hash(|_| Vec::new());
    let other = hash(|_| vec![("POCL_MAX_WORK_GROUP_SIZE", "4096")]);
    assert_eq!(one, again);
    assert!(one.len() > 50 && one.iter().all(|(name, hash)| other[name] != *hash));
    let all: std::collections::BTreeSet<&String> = one.values().collect();
    assert_eq!(all.len(), one.len(), "two kernels have the same hash");

    let folder = super::support::Folder::new();
    fs::create_dir(folder.path("bias")).unwrap();
    let source = fs::read_to_string(root().join("kernels/bias/rm.cl")).unwrap();
    let of = |text: String| {
        folder.put("bias/rm.cl", text);
        let kernels = ["--kernels", folder.0.to_str().unwrap(), "bias_rm"];
        super::benching::inputs(Witness::Pocl, &[], &kernels)
            .remove(0)
            .1
    };
    let same = of(source.clone());
    assert_eq!(same, of(format!("// Another comment.\n{source}")));
    assert_ne!(same, of(source.replacen("+=", "-=", 1)));

    let code = |text: &str| {
        let mut hash = Sha256::new();
        add(&mut hash, folder.put("code.rs", text).to_str().unwrap());
        hash.finalize()
    };
    assert_eq!(code("fn a() {}\n"), code("// Reason.\nfn a() {}\n"));
    assert_ne!(code("fn a() {}\n"), code("fn b() {}\n"));
}
