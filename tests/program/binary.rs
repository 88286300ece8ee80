//! Checks of the binary: its libraries, its size, and the modules with unsafe code.

use super::support::{DIGITS, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries of a board on which nothing was installed.
const ALLOWED: [&str; 7] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
];

#[test]
fn only_system_libraries_are_needed() {
    let output = Command::new("readelf")
        .args(["-d", DIGITS])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let needed: Vec<&str> = text
        .lines()
        .filter(|l| l.contains("(NEEDED)"))
        .map(|l| l.split('[').nth(1).unwrap().trim_end_matches(']'))
        .collect();
    assert!(!needed.is_empty(), "{text}");
    for library in needed {
        assert!(ALLOWED.contains(&library), "the binary needs {library}");
    }
}

/// The system may load the program at any address, the tables that the loader fills are read-only
/// after start, and the stack is not executable.
#[test]
fn the_program_is_hardened() {
    let output = Command::new("readelf")
        .args(["-hldW", DIGITS])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |words: &[&str]| {
        text.lines()
            .any(|l| words.iter().all(|word| l.contains(word)))
    };
    assert!(line(&["Type:", "DYN"]), "fixed addresses: {text}");
    assert!(
        line(&["GNU_RELRO"]) && line(&["BIND_NOW"]),
        "partial RELRO: {text}"
    );
    assert!(line(&["GNU_STACK", "RW "]), "an executable stack: {text}");
}

/// Makes the release build in `folder` with these arguments.
pub fn release(folder: &str, args: &[&str]) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--release",
            "--offline",
            "--quiet",
            "--target-dir",
            folder,
        ])
        .args(args);
    for name in [
        "MORTONNET_MODEL",
        "MORTONNET_PLAN",
        "MORTONNET_WEIGHTS",
        "RUSTFLAGS",
    ] {
        cargo.env_remove(name);
    }
    assert!(cargo.current_dir(root()).status().unwrap().success());
    root().join(folder).join("release/mortonnet")
}

/// Returns the size of a program without the baked constants and golden vectors, which belong to
/// the network. `shows` is a program with the lab, network and plan of `program`. Only the lab
/// prints the block.
pub fn code_bytes(program: &Path, shows: &Path) -> u64 {
    let text = Command::new(shows).arg("--info=block").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let sections = text
        .lines()
        .filter_map(|l| l.strip_prefix("section ")?.split_once(": "));
    let data: Vec<u64> = sections
        .filter(|(name, _)| *name == "constants" || name.starts_with("golden"))
        .map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(data.len(), 4, "{text}");
    fs::metadata(program).unwrap().len() - data.iter().sum::<u64>()
}

#[test]
#[ignore = "long: tests/long.py"]
fn the_release_binary_is_small() {
    let program = release("target", &[]);
    let code = code_bytes(&program, &program);
    assert!(code < 4_000_000, "{code} bytes of code");
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The compiler denies `unsafe_code`, and only these modules may allow it.
#[test]
fn unsafe_code_stands_where_the_design_allows_it() {
    let mut files = vec![root().join("build.rs")];
    rust_files(&root().join("src"), &mut files);
    let mut allowing = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        if text.contains("allow(unsafe_code)") {
            allowing.push(file.strip_prefix(root()).unwrap().display().to_string());
        }
    }
    allowing.sort();
    assert_eq!(
        allowing,
        [
            "src/cl/mod.rs",
            "src/simd/mod.rs",
            "src/simd/wide.rs",
            "src/sys/mod.rs"
        ]
    );
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"deny\""));
}
