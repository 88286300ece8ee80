//! Random networks, baked by `mortonnet-bake`. Each passes its own self-test. Networks that
//! overflow for ordinary inputs are reported.

use super::support::{Folder, Run, Tools, command, feed, run};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

#[path = "../../src/ops/random.rs"]
#[allow(dead_code)]
mod random;
use random::Random;

/// A network JSON under construction, in its own folder.
struct Draft<'r> {
    folder: PathBuf,
    layers: Vec<String>,
    random: &'r mut Random,
    /// The factor for all weights and biases.
    size: f32,
}

impl Draft<'_> {
    /// Adds a layer with rows × cols weights and biases. Apart from the factor, the sums are as
    /// large as their terms.
    fn weighted(&mut self, kind: &str, rows: usize, cols: usize, more: &str) {
        let n = self.layers.len();
        let scale =
            self.size * (0.3 + 2.0 * self.random.float().abs()) * (3.0 / cols as f32).sqrt();
        for (name, cols, scale) in [("w", cols, scale), ("b", 1, 0.2 * self.size)] {
            let numbers = (0..rows * cols).map(|_| self.random.float() * scale);
            let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
            let json =
                format!(r#"{{"rows":{rows},"cols":{cols},"data_type":"f32","file":"{n}{name}"}}"#);
            fs::write(self.folder.join(format!("{n}{name}")), bytes).unwrap();
            fs::write(self.folder.join(format!("{n}{name}.json")), json).unwrap();
        }
        self.layers.push(format!(
            r#"{{"layer":"{kind}","weights":"{n}w.json","biases":"{n}b.json"{more}}}"#
        ));
    }

    fn plain(&mut self, kind: &str, more: &str) {
        self.layers.push(format!(r#"{{"layer":"{kind}"{more}}}"#));
    }

    fn activation(&mut self) {
        let all = [
            ("ReLULayer", ""),
            ("ReLULayer", ""),
            ("LeakyReLULayer", r#","slope":0.1"#),
            ("TanhLayer", ""),
            ("SigmoidLayer", ""),
        ];
        let (kind, more) = all[self.random.below(all.len())];
        self.plain(kind, more);
    }
}

/// Writes a random network of fully-connected layers into `folder`. For images, it begins with
/// convolutions and poolings. Returns the width of its records.
fn network(folder: PathBuf, random: &mut Random, images: bool, size: f32) -> usize {
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut draft = Draft {
        folder,
        layers: Vec::new(),
        random,
        size,
    };
    let (mut values, mut input) = (1 + draft.random.below(40), String::new());
    let width = if images {
        let (mut c, mut side) = (1 + draft.random.below(3), 4 + draft.random.below(7));
        let width = c * side * side;
        input = format!(r#""input":{{"shape":[{c},{side},{side}]}},"#);
        for _ in 0..1 + draft.random.below(2) {
            let (outputs, kernel) = (
                1 + draft.random.below(8),
                1 + draft.random.below(side.min(3)),
            );
            let pad = if kernel == 3 {
                draft.random.below(2)
            } else {
                0
            };
            draft.weighted(
                "ConvLayer",
                outputs,
                c * kernel * kernel,
                &format!(r#","kernel":{kernel},"pad":{pad}"#),
            );
            (c, side) = (outputs, side + 2 * pad - kernel + 1);
            draft.activation();
            if side >= 2 && draft.random.below(2) == 0 {
                let kind = ["MaxPoolLayer", "AveragePoolLayer"][draft.random.below(2)];
                draft.plain(kind, r#","kernel":2"#);
                side /= 2;
            }
        }
        draft.plain("FlattenLayer", "");
        values = c * side * side;
        width
    } else {
        values
    };
    for layer in 0..1 + draft.random.below(if images { 2 } else { 4 }) {
        if layer > 0 {
            draft.activation();
        }
        let outputs = 2 + draft.random.below(24);
        draft.weighted("AffineLayer", outputs, values, "");
        values = outputs;
    }
    let Draft { folder, layers, .. } = draft;
    let mut text = format!(
        r#"{{{input}"size":{},"output":{{"kind":"classes"}},"layers":["#,
        layers.len()
    );
    let _ = write!(text, "{}]}}", layers.join(","));
    fs::write(folder.join("network.json"), text).unwrap();
    width
}

fn baked(model: &PathBuf, program: &PathBuf) -> Run {
    feed(
        command(Tools::get().bake())
            .arg(model)
            .arg("-o")
            .arg(program),
        "",
    )
}

/// Runs `work` for the numbers below `count` in two threads, each with its own folder.
fn each(count: usize, work: impl Fn(usize, &Folder) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let folder = Folder::new();
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        n if n < count => work(n, &folder),
                        _ => break,
                    }
                }
            });
        }
    });
}

/// Networks with ordinary weights pass, and none is reported to overflow.
fn ordinary(count: usize) {
    each(count, |n, folder| {
        let (model, program) = (folder.path("model"), folder.path("program"));
        network(
            model.clone(),
            &mut Random::new(2 * n as u64 + 1),
            n % 2 == 1,
            1.0,
        );
        let r = baked(&model, &program);
        assert_eq!(r.code, Some(0), "network {n}: {}", r.err);
        assert!(!r.err.contains("overflow"), "network {n}: {}", r.err);
        let r = run(&program, &["-d", "host", "--selftest"], "");
        assert!(
            r.code == Some(0) && !r.out.contains("larger ones"),
            "network {n}: {}{}",
            r.out,
            r.err
        );
    });
}

/// Networks with weights so large that inputs of some thousands overflow. The bake refuses a
/// network whose golden vectors overflow, and names the node. For all others, the bake and the
/// self-test report the input size from which sums may overflow. Returns the number of refused
/// networks, and of others with refused records.
fn overflowing(count: usize) -> (usize, usize) {
    let (refused, with_records) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each(count, |n, folder| {
        let (model, program) = (folder.path("model"), folder.path("program"));
        let mut random = Random::new(1_000_001 + 2 * n as u64);
        let size = [1e19, 1e32, 1e35, 3e37][random.below(4)];
        let width = network(model.clone(), &mut random, n % 2 == 1, size);
        let r = baked(&model, &program);
        if r.code != Some(0) {
            let overflow = r.err.contains(" leave the range of f32") && r.err.contains(" reaches ");
            let named = overflow || r.err.contains("digits are lost where large numbers cancel");
            assert!(named, "network {n}: {}", r.err);
            refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let test = run(&program, &["-d", "host", "--selftest"], "");
        assert_eq!(test.code, Some(0), "network {n}, {size:e}: {}", test.err);
        // The report is true: a record of that size is refused, or no finite input can overflow.
        let record = |x: f32| vec![x.to_string(); width].join(",") + "\n";
        let sizes = [1e3, -1e3, 1e5, -1e5];
        let overflows = sizes.iter().any(|&x| {
            let r = run(&program, &["-d", "host"], record(x));
            assert!(
                r.code == Some(0) || r.err.contains(": overflow in f32: "),
                "network {n}: {}",
                r.err
            );
            r.code != Some(0)
        });
        if overflows {
            with_records.fetch_add(1, Ordering::Relaxed);
        }
        for (said, place) in [(&r.err, "bake"), (&test.out, "self-test")] {
            let named = said.contains("; larger ones may be refused")
                || said.contains("it is not known from which size of inputs on sums overflow");
            assert!(
                named || !overflows,
                "network {n}, {size:e}, {place}: {said}"
            );
        }
    });
    (refused.into_inner(), with_records.into_inner())
}

#[test]
fn a_few_random_networks_pass_and_those_that_overflow_are_named() {
    ordinary(12);
    let (refused, with_records) = overflowing(24);
    assert!(refused > 0 && with_records > 0, "{refused} {with_records}");
}

#[test]
#[ignore = "long: tests/long.py"]
fn a_thousand_random_networks_pass_their_self_test() {
    ordinary(1000);
}

#[test]
#[ignore = "long: tests/long.py"]
fn two_hundred_networks_that_overflow_are_named() {
    let (refused, with_records) = overflowing(400);
    println!("{refused} refused by name, {with_records} named");
    assert!(refused + with_records >= 200, "{refused} {with_records}");
}
