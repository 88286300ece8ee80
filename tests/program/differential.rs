//! Comparisons with other people's software: random graphs, and graphs on which mortonnet was once
//! wrong.

use crate::support::{Folder, Tools, Witness, bake, command, feed, on, root};
use std::fs;
use std::process::Command;

/// Each folder of tests/differential/found has a model, records, and the answers of ONNX Runtime or
/// LiteRT.
#[test]
fn graphs_that_were_wrong_stay_right() {
    let folder = Folder::new();
    let mut cases: Vec<_> = fs::read_dir(root().join("tests/differential/found"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    for case in cases {
        let model = ["model.onnx", "model.tflite"]
            .map(|n| case.join(n))
            .into_iter()
            .find(|m| m.exists());
        let program = bake(&model.unwrap(), None, &folder)
            .unwrap_or_else(|e| panic!("{}: {e}", case.display()));
        let (scores, classes) = (case.join("expected.csv"), case.join("classes.csv"));
        for device in ["host", "opencl"] {
            let mut c = command(&program);
            if device == "opencl" {
                on(Witness::Pocl, &mut c, &folder.path("log"));
            }
            c.args(["-d", device, "-f", "npy"]).arg(case.join("in.npy"));
            if scores.exists() {
                c.args(["-o", "scores", "--expect-scores"]).arg(&scores);
            } else {
                c.args(["--min-accuracy", "1", "--expect"]).arg(&classes);
            }
            let run = feed(&mut c, "");
            assert_eq!(
                run.code,
                Some(0),
                "{}, {device}: {}",
                case.display(),
                run.err
            );
        }
    }
}

/// Draws 300 graphs from the commit, 30 of them for PoCL too.
#[test]
#[ignore = "long: tests/long.py"]
fn random_graphs_of_this_commit() {
    let head = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root())
        .output()
        .unwrap();
    let commit = String::from_utf8(head.stdout).unwrap();
    // A source tree without a history has a fixed seed.
    let seed = u32::from_str_radix(commit.get(..8).unwrap_or("1"), 16).unwrap();
    let mut c = command(root().join("tests/differential/run"));
    c.env("BAKE", Tools::get().bake())
        .env("PROGRAM", Tools::get().program())
        .env_remove("MORTONNET_OPENCL");
    c.args([
        "--graphs",
        "300",
        "--opencl",
        "30",
        "--seed",
        &seed.to_string(),
    ]);
    let run = feed(&mut c, "");
    assert_eq!(
        run.code,
        Some(0),
        "tests/differential/run --seed {seed}\n{}\n{}",
        run.out,
        run.err
    );
    println!("{}", run.out);
}
