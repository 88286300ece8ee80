//! The examples run as a user runs them, and print the lines that their README quotes.

use super::support::{Folder, Run, command, feed, root};
use std::fs;
use std::process::Command;
use std::sync::Mutex;

/// Runs an example in a folder below `target`, which keeps compiled files. The build is not
/// optimised, to save time.
fn example(name: &str) -> Run {
    // The examples build in the same folder, one network after the other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let python =
        std::env::var("MORTONNET_TEST_PYTHON").expect("MORTONNET_TEST_PYTHON is set by tests/run");
    let mut c = command(root().join("examples").join(name).join("run"));
    c.arg("target/tests-examples")
        .env("PYTHON", python)
        .env_remove("MORTONNET_WEIGHTS")
        .env_remove("RUSTFLAGS");
    for (key, value) in [
        ("OPT_LEVEL", "0"),
        ("LTO", "off"),
        ("CODEGEN_UNITS", "16"),
        ("BUILD_OVERRIDE_OPT_LEVEL", "0"),
    ] {
        c.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
    }
    let r = feed(c.env("CARGO_NET_OFFLINE", "true"), "");
    assert_eq!(r.code, Some(0), "{name}: {}{}", r.out, r.err);
    r
}

/// Checks that each line of output in the README is printed, in that order. `…` stands for any
/// text.
fn shown_in_the_readme(name: &str, run: &Run) {
    let readme = fs::read_to_string(root().join("examples").join(name).join("README.md")).unwrap();
    let block = readme
        .split("```console\n")
        .find(|b| b.starts_with(&format!("$ examples/{name}/run\n")))
        .unwrap();
    let shown = block.split("```").next().unwrap().lines().skip(1);
    let said = format!("{}{}", run.out, run.err);
    let mut printed = said.lines();
    for line in shown {
        let mut parts = line.split('…');
        let start = parts.next().unwrap();
        let rest: Vec<&str> = parts.collect();
        let like = |l: &&str| l.starts_with(start) && rest.iter().all(|p| l.contains(p));
        // stderr follows stdout in `said`, so its lines may be in any position.
        assert!(
            printed.by_ref().any(|l| like(&l)) || run.err.lines().any(|l| like(&l)),
            "{name}: {line:?} is not in {said}"
        );
    }
}

#[test]
#[ignore = "long: tests/long.py"]
fn breast_cancer() {
    let run = example("breast-cancer");
    shown_in_the_readme("breast-cancer", &run);
}

#[test]
#[ignore = "long: tests/long.py"]
fn camera() {
    let run = example("camera");
    shown_in_the_readme("camera", &run);
}

#[test]
#[ignore = "long: tests/long.py"]
fn sensor() {
    let run = example("sensor");
    shown_in_the_readme("sensor", &run);
    let answers =
        fs::read_to_string(root().join("target/tests-examples/sensor/answers.csv")).unwrap();
    assert_eq!(answers.lines().count(), 79);
    assert!(!answers.contains("error"), "{answers}");
}

/// systemd must know every key of the units. It also checks that the commands exist, so they are
/// replaced.
#[test]
fn systemd_knows_every_key_of_the_sensor() {
    let (folder, mut verify) = (Folder::new(), Command::new("systemd-analyze"));
    verify.arg("verify");
    for name in ["motor.socket", "motor.service"] {
        let text = fs::read_to_string(root().join("examples/sensor").join(name)).unwrap();
        verify.arg(folder.put(
            name,
            text.replace("/usr/local/bin/motor", super::support::DIGITS),
        ));
    }
    let said = verify
        .output()
        .expect("systemd-analyze is missing: tests/run installs it");
    let said = String::from_utf8(said.stderr).unwrap();
    assert_eq!(
        said.lines()
            .filter(|l| l.contains("motor"))
            .collect::<Vec<_>>(),
        [""; 0]
    );
}
