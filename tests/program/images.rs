//! A convolutional network with all formats, outputs and devices, compared with the framework that
//! trained it.

use super::support::{Folder, Witness, bake, command, feed, needs, on, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const RECORDS: usize = 48;

/// Returns the data after the header of an .npy file of version 1.
fn body(file: &Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    bytes[10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))..].to_vec()
}

fn floats(bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()).into())
        .collect()
}

/// A program under test, with a folder for its files.
struct Tested {
    program: PathBuf,
    folder: Folder,
}

impl Tested {
    /// Runs on `device` and returns the lines of stdout, and stderr. OpenCL devices are two of
    /// PoCL's.
    fn run(&self, device: &str, args: &[&str], input: &[u8]) -> (Vec<String>, String) {
        let mut c = command(&self.program);
        if device != "host" {
            on(Witness::Pocl, &mut c, &self.folder.path("log"));
            c.env("POCL_DEVICES", "basic basic")
                .env("MORTONNET_CACHE", self.folder.path("cache"));
        }
        let r = feed(c.args(["-d", device]).args(args), input);
        assert_eq!(r.code, Some(0), "{device} {args:?}: {}", r.err);
        (r.out.lines().map(str::to_string).collect(), r.err)
    }
}

/// Batches of fewer records than threads, with more threads than this machine has cores. The scores
/// are those of the framework that trained the network.
#[test]
fn a_few_records_on_many_threads_have_the_same_scores() {
    let folder = Folder::new();
    let model = root().join("model/mnist-conv");
    let program = bake(&model, None, &folder).unwrap();
    let cores = folder.path("libcores.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
    let source = root().join("tests/shim/cores.c");
    assert!(cc.arg(&cores).arg(source).status().unwrap().success());
    let pixels = body(&model.join("check_inputs.npy"));
    let expected = floats(&body(&model.join("check_scores.npy")));
    for threads in 1..=6 {
        for batch in 1..=7 {
            let what = format!("{threads} threads, batches of {batch}");
            let mut c = command(&program);
            c.env("LD_PRELOAD", &cores)
                .env("CORES", threads.to_string());
            let args = ["-d", "host", "-f", "u8", "-o", "scores", "--profile", "-b"];
            let r = feed(c.args(args).arg(batch.to_string()), &*pixels);
            assert_eq!(r.code, Some(0), "{what}: {}", r.err);
            // Small batches have fewer threads.
            let of_7 = batch < 7 || r.err.contains(&format!(" {threads} threads,"));
            assert!(of_7, "{what}: {}", r.err);
            assert_eq!(r.lines().len(), RECORDS, "{what}");
            for (n, (line, scores)) in r.lines().iter().zip(expected.chunks(10)).enumerate() {
                close(&numbers(line), scores, &format!("{what}: record {n}"));
            }
        }
    }
}

/// Parses numbers separated by commas.
fn numbers(line: &str) -> Vec<f64> {
    line.split(',')
        .map(|s| s.parse::<f32>().unwrap().into())
        .collect()
}

fn close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (f, e) in found.iter().zip(expected) {
        assert!(
            (f - e).abs() <= 1e-4 * e.abs().max(1.0),
            "{what}: {found:?}, expected {expected:?}"
        );
    }
}

/// Returns the values in descending order, with their indices.
fn ranked(values: &[f64]) -> Vec<(usize, f64)> {
    let mut all: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

#[test]
fn a_convolutional_network_in_every_format_and_output_on_every_device() {
    let folder = Folder::new();
    let model = root().join("model/mnist-conv");
    let program = bake(&model, None, &folder).unwrap();
    let pixels = body(&model.join("check_inputs.npy"));
    assert_eq!(pixels.len(), RECORDS * 784);
    let floats = floats(&body(&model.join("check_scores.npy")));
    let scores: Vec<&[f64]> = floats.chunks(10).collect();
    let probabilities: Vec<Vec<f64>> = scores
        .iter()
        .map(|s| {
            let sum: f64 = s.iter().map(|v| v.exp()).sum();
            s.iter().map(|v| v.exp() / sum).collect()
        })
        .collect();
    let classes: Vec<String> = scores.iter().map(|s| ranked(s)[0].0.to_string()).collect();
    assert_eq!(scores.len(), RECORDS);
    assert!(
        (0..10)
            .filter(|class| classes.contains(&class.to_string()))
            .count()
            > 7
    );

    // All formats, and the rows of the images as a series.
    let rows = |width: usize| {
        let line = |row: &[u8]| row.iter().map(u8::to_string).collect::<Vec<_>>().join(",") + "\n";
        pixels
            .chunks(width)
            .map(line)
            .collect::<String>()
            .into_bytes()
    };
    let f32s: Vec<u8> = pixels
        .iter()
        .flat_map(|&v| f32::from(v).to_le_bytes())
        .collect();
    let idx = [
        &[0, 0, 8, 3, 0, 0, 0, RECORDS as u8, 0, 0, 0, 28, 0, 0, 0, 28][..],
        &pixels,
    ]
    .concat();
    let npy = fs::read(model.join("check_inputs.npy")).unwrap();
    let inputs: [(&[&str], &[u8]); 8] = [
        (&[], &rows(784)),
        (&["-f", "u8"], &pixels),
        (&["-f", "f32"], &f32s),
        (&["-f", "npy"], &npy),
        (&[], &idx),
        (&["--window", "28"], &rows(28)),
        (&["--window", "28", "-f", "u8", "--hop", "28"], &pixels),
        (&["--window", "14", "-f", "f32"], &f32s),
    ];
    let labels = folder.put("labels", classes.join("\n"));
    let expect = folder.put(
        "scores",
        scores
            .iter()
            .map(|s| s.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n")
            .collect::<String>(),
    );
    let t = Tested { program, folder };
    // A hop of half an image: every second record is an image. The others have the last half of an
    // image and the first of the next.
    let (halves, said) = t.run(
        "host",
        &["--window", "28", "--hop", "14", "-f", "u8"],
        &pixels[..3 * 784],
    );
    assert_eq!(
        halves.iter().step_by(2).collect::<Vec<_>>(),
        classes[..3].iter().collect::<Vec<_>>()
    );
    assert_eq!((halves.len(), &*said), (5, ""));

    for device in ["host", "0", "0,1", "host,1"] {
        for (args, input) in inputs {
            // Each format runs on one device. The default format also runs on several devices.
            if device == "0" && args.contains(&"--window") || device == "host,1" && !args.is_empty()
            {
                continue;
            }
            let batch = ["-b", "7"];
            let (lines, said) = t.run(device, &[args, &batch].concat(), input);
            assert_eq!((&lines, &*said), (&classes, ""), "{device} {args:?}");
        }
        let output = |kind: &str| {
            t.run(device, &["-f", "u8", "-b", "5", "-o", kind], &pixels)
                .0
        };
        assert_eq!(output("label"), classes, "{device}");
        let (all, likely, best, objects) = (
            output("scores"),
            output("probs"),
            output("top=3"),
            output("json"),
        );
        for n in 0..RECORDS {
            let what = format!("{device}, record {n}");
            close(&numbers(&all[n]), scores[n], &what);
            close(&numbers(&likely[n]), &probabilities[n], &what);
            let object: serde_json::Value = serde_json::from_str(&objects[n]).unwrap();
            let field = |name: &str| object[name].clone();
            assert_eq!(
                (field("record").as_u64(), field("class").to_string()),
                (Some(n as u64), classes[n].clone())
            );
            assert_eq!(field("label").as_str(), Some(&*classes[n]));
            let listed: Vec<f64> = field("scores")
                .as_array()
                .unwrap()
                .iter()
                .map(|v| v.as_f64().unwrap())
                .collect();
            close(&listed, scores[n], &what);
            let expected = ranked(&probabilities[n]);
            close(
                &[field("probability").as_f64().unwrap()],
                &[expected[0].1],
                &what,
            );
            // Probabilities that differ less than the last digit may be in any order.
            let found: Vec<(usize, f64)> = best[n]
                .split(',')
                .map(|part| part.split_once(':').unwrap())
                .map(|(class, p)| (class.parse().unwrap(), p.parse().unwrap()))
                .collect();
            assert_eq!(
                (found.len(), found[0].0),
                (3, expected[0].0),
                "{what}: {found:?}"
            );
            for (place, (class, p)) in found.into_iter().enumerate() {
                close(
                    &[p, p],
                    &[probabilities[n][class], expected[place].1],
                    &what,
                );
            }
        }
        let args = [
            "-f",
            "u8",
            "--expect",
            labels.to_str().unwrap(),
            "--min-accuracy",
            "100%",
        ];
        assert_eq!(
            t.run(device, &args, &pixels).1,
            "mortonnet: 48 of 48\n",
            "{device}"
        );
        let args = ["-f", "u8", "--expect-scores", expect.to_str().unwrap()];
        let said = t.run(device, &args, &pixels).1;
        assert!(
            said.starts_with("mortonnet: scores: 48 of 48 within 0.0001; "),
            "{device}: {said}"
        );
        let passed = t.run(device, &["--selftest"], &[]).0;
        assert_eq!(
            passed.len(),
            if device.contains(',') { 2 } else { 1 },
            "{passed:?}"
        );
        assert!(
            passed.iter().all(|line| line.starts_with("passed: ")),
            "{passed:?}"
        );
    }
}

/// Runs a record of the autoencoder in `tests/zoo` on the simulated GPU of a board. There must be
/// no wrong access, race or uninitialised value, and the error is at most 1e-4 of ONNX Runtime's
/// largest score. The other networks would take the simulator more than two minutes each.
#[test]
#[ignore = "long: tests/long.py"]
fn the_autoencoder_of_the_zoo_on_oclgrind() {
    let zoo = needs("zoo");
    let folder = Folder::new();
    let program = bake(&zoo.join("autoencoder.onnx"), Some("mali-midgard"), &folder).unwrap();
    let record = &body(&zoo.join("autoencoder_inputs.npy"))[..640 * 4];
    let expected = &floats(&body(&zoo.join("autoencoder_scores.npy")))[..640];
    let log = folder.path("oclgrind.log");
    let mut c = command(&program);
    on(Witness::Oclgrind, &mut c, &log);
    let r = feed(
        c.args([
            "-d",
            "opencl",
            "--plan",
            "mali-midgard",
            "-b",
            "1",
            "-f",
            "f32",
            "-o",
            "scores",
        ]),
        record,
    );
    let lines = r.lines();
    let said = fs::read_to_string(&log).unwrap_or_default();
    assert!(said.is_empty(), "{said}");
    let found = numbers(lines[0]);
    assert_eq!((lines.len(), found.len()), (1, expected.len()));
    let most = expected.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    let error = found
        .iter()
        .zip(expected)
        .map(|(f, e)| (f - e).abs())
        .fold(0.0, f64::max);
    assert!(error <= 1e-4 * most, "{error} of {most}");
}
