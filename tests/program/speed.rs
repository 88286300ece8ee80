//! Tests of speed: the loops of the program, read from its machine code, and their share of a
//! core's peak.

use super::loops::{X86_64, check_kernels};
use super::support::root;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Builds the release program with symbols whose names have the tile of a kernel.
fn with_symbols() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--release",
            "--offline",
            "--quiet",
            "--target-dir",
            "target/symbols",
        ]);
        for name in ["MORTONNET_MODEL", "MORTONNET_PLAN", "MORTONNET_WEIGHTS"] {
            cargo.env_remove(name);
        }
        cargo.env("RUSTFLAGS", "-C symbol-mangling-version=v0");
        cargo.env("CARGO_PROFILE_RELEASE_STRIP", "false");
        cargo
            .env("CARGO_PROFILE_RELEASE_BUILD_OVERRIDE_OPT_LEVEL", "0")
            .env("CARGO_INCREMENTAL", "0");
        assert!(cargo.current_dir(root()).status().unwrap().success());
        root().join("target/symbols/release/mortonnet")
    })
}

#[test]
#[ignore = "long: tests/speed/run"]
fn kernels_keep_their_sums_in_registers() {
    check_kernels(&X86_64, with_symbols(), &["avx2", "avx512", "whole"]);
}

/// Measures CPU time on one core, so that other work does not count. The best of several runs
/// counts.
#[test]
#[ignore = "long: tests/speed/run"]
fn a_core_reaches_its_share_of_the_peak() {
    const WANTED: f64 = 0.6;
    let mut best = 0f64;
    for _ in 0..6 {
        let mut c = Command::new("taskset");
        c.args(["-c", &core()]).arg(with_symbols());
        c.args(
            "bench network -d host --shape full-mnist --batch 100 --repeat 10 -o json".split(' '),
        );
        let output = c.env_remove("MORTONNET_THREADS").output().unwrap();
        let row: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
        best = best.max(row["peak_share"].as_f64().unwrap());
        if best >= WANTED {
            println!("share of the peak: {best}");
            return;
        }
    }
    panic!(
        "784-2500-2000-10 at batch 100: expected {WANTED} of the multiply-adds of one core, found \
         {best}"
    );
}

/// Returns the last core that this process may use.
fn core() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    list.trim().rsplit([',', '-']).next().unwrap().into()
}
