//! Baking other networks, as a user of the package does.

use super::support::{
    Folder, Reference, Witness, bake, bake_in_turn, command, feed, link, on, root, run,
};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes a matrix definition with its CSV, as in the thesis.
fn matrix(
    folder: &Folder,
    name: &str,
    rows: usize,
    cols: usize,
    value: impl Fn(usize, usize) -> f32,
) {
    let line = |r| {
        (0..cols)
            .map(|c| value(r, c).to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    folder.put(
        &format!("{name}.csv"),
        (0..rows).map(|r| line(r) + "\n").collect::<String>(),
    );
    let json = format!(
        "{{\"rows\": {rows}, \"data_type\": \"csv\", \"file\": \"{name}.csv\", \"cols\": {cols}}}"
    );
    folder.put(&format!("{name}.json"), json);
}

/// Writes the network of the thesis's figure 5.3 with small sizes and without optional keys.
fn thesis(folder: &Folder) {
    let value =
        |seed: usize| move |r: usize, c: usize| ((r * 31 + c * 17 + seed) % 23) as f32 / 11.0 - 1.0;
    for (i, (rows, cols)) in [(5, 7), (6, 5), (3, 6)].into_iter().enumerate() {
        matrix(folder, &format!("{}_w", i + 1), rows, cols, value(i));
        matrix(folder, &format!("{}_b", i + 1), rows, 1, value(i + 5));
    }
    let affine = |i: u32| {
        format!(
            "{{\"layer\": \"AffineLayer\", \"weights\": \"{i}_w.json\", \"biases\": \
             \"{i}_b.json\"}}"
        )
    };
    let sigmoid = "{\"layer\": \"SigmoidLayer\"}";
    let layers = [
        affine(1),
        sigmoid.into(),
        affine(2),
        sigmoid.into(),
        affine(3),
    ]
    .join(",");
    folder.put(
        "network.json",
        format!("{{\"layers\": [{layers}], \"size\": 5}}"),
    );
}

#[test]
fn the_thesis_own_files_and_a_changed_weight() {
    let model = Folder::new();
    let out = Folder::new();
    thesis(&model);
    let program = link(&model.0, None, &out).unwrap();
    let reference = Reference::read(&model.0);
    let vectors: Vec<Vec<f64>> = (0..9)
        .map(|n| (0..7).map(|i| f64::from((n * 7 + i) % 5) / 4.0).collect())
        .collect();
    let csv: String = vectors
        .iter()
        .map(|v| v.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n")
        .collect();
    reference.check(
        &vectors,
        &run(&program, &["-o", "scores"], csv.clone()).lines(),
        "thesis",
    );
    assert!(run(&program, &["--selftest"], "").lines()[0].contains("0 wrong classes"));

    // A changed weight of the same length changes the program and its answers.
    let text = fs::read_to_string(model.path("1_w.csv")).unwrap();
    let first = text.split(',').next().unwrap();
    let changed = first.replace(['1', '2', '3'], "9");
    assert!(changed != first && changed.len() == first.len(), "{first}");
    fs::write(model.path("1_w.csv"), text.replacen(first, &changed, 1)).unwrap();
    let other = link(&model.0, None, &out).unwrap();
    let (a, b) = (fs::read(&program).unwrap(), fs::read(&other).unwrap());
    assert!(a != b);
    let hash = |p: &Path| run(p, &["--version"], "").out;
    assert_ne!(hash(&program), hash(&other));
    Reference::read(&model.0).check(
        &vectors,
        &run(&other, &["-o", "scores"], csv).lines(),
        "changed",
    );

    fs::write(model.path("1_w.csv"), text).unwrap();
    let again = link(&model.0, None, &out).unwrap();
    assert!(
        fs::read(&again).unwrap() == a,
        "the same inputs gave other bytes"
    );
}

/// All builds write the same file. Each says which network it has baked, even if cargo had nothing
/// to do.
#[test]
fn every_build_says_what_it_baked() {
    let model = Folder::new();
    thesis(&model);
    let named = [("MORTONNET_MODEL", model.0.to_str().unwrap())];
    let builds = bake_in_turn(&[&named, &named, &[], &[]]);
    let name = model.0.file_name().unwrap().to_str().unwrap();
    let other = (name, format!("baked {name}: layers 7-5-6-3 sigmoid, "));
    let default =
        "baked digits (the example network: MORTONNET_MODEL is not set): layers 64-32-10 relu, ";
    let default = ("digits", default.to_string());
    let expected = [&other, &other, &default, &default];
    for (i, ((said, version), (name, line))) in builds.iter().zip(expected).enumerate() {
        assert_eq!(said.matches(": baked ").count(), 1, "build {i}: {said}");
        assert_eq!(said.matches(": memory: ").count(), 1, "build {i}: {said}");
        assert!(said.contains(line), "build {i}: {line:?} is not in {said}");
        assert!(version.contains(name), "build {i}: {version}");
    }
}

#[test]
fn every_mistake_fails_the_build_with_its_place() {
    let model = Folder::new();
    thesis(&model);
    model.put("1_b.csv", "1\n2\nx\n4\n5\n");
    model.put(
        "3_w.json",
        "{\"rows\": 3, \"cols\": 6, \"data_type\": \"csv\"}",
    );
    let said = link(&model.0, Some("fastest"), &Folder::new()).unwrap_err();
    for part in [
        "1_b.csv:3:1: expected a finite number, found \"x\"",
        "3_w.json: the key \"file\" is missing",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    let said = link(Path::new("/no/such/model"), None, &Folder::new()).unwrap_err();
    assert!(
        said.contains("MORTONNET_MODEL=/no/such/model: cannot read /no/such/model"),
        "{said}"
    );
}

/// scikit-learn's breast-cancer data: one logistic output, standardised inputs, named features.
#[test]
fn a_binary_classifier_from_scikit_learn() {
    let python =
        std::env::var("MORTONNET_TEST_PYTHON").expect("MORTONNET_TEST_PYTHON is set by tests/run");
    let model = Folder::new();
    let status = Command::new(python)
        .arg(root().join("examples/breast-cancer/train.py"))
        .arg(&model.0)
        .env("PYTHONPATH", root().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(
        status.status.success(),
        "{}",
        String::from_utf8_lossy(&status.stderr)
    );
    let out = Folder::new();
    let program = bake(&model.0, None, &out).unwrap();
    let csv = fs::read(model.path("test.csv")).unwrap();
    let expected = fs::read_to_string(model.path("test_classes.csv")).unwrap();
    let r = run(&program, &[], csv.clone());
    assert_eq!(r.lines(), expected.lines().collect::<Vec<_>>());
    let file = model.path("test_classes.csv");
    let all = run(
        &program,
        &["--expect", file.to_str().unwrap(), "--min-accuracy", "100%"],
        csv.clone(),
    );
    assert_eq!(all.code, Some(0), "{}", all.err);
    // `probs` has both classes. A header in another order is refused.
    for line in run(&program, &["-o", "probs"], csv.clone()).lines() {
        let p: Vec<f32> = line.split(',').map(|v| v.parse().unwrap()).collect();
        assert!(p.len() == 2 && (p[0] + p[1] - 1.0).abs() < 1e-6);
    }
    let text = String::from_utf8(csv).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let mut names: Vec<&str> = header.split(',').collect();
    names.swap(0, 1);
    let r = run(&program, &[], format!("{}\n{rest}", names.join(",")));
    assert_eq!((r.code, &*r.out), (Some(1), ""));
    assert!(
        r.err.contains("stdin:1:1: expected the feature"),
        "{}",
        r.err
    );
}

/// A torch network with tanh, exported with `check` vectors that torch computed.
#[test]
fn a_network_from_torch() {
    let model = root().join("tests/fixtures/torch_values");
    let out = Folder::new();
    let program = bake(&model, None, &out).unwrap();
    let inputs = fs::read(model.join("check_inputs.csv")).unwrap();
    let expected = fs::read_to_string(model.join("check_scores.csv")).unwrap();
    let r = feed(&mut command(&program), inputs);
    assert_eq!(r.lines().len(), expected.lines().count());
    for (found, expected) in r.lines().iter().zip(expected.lines()) {
        for (f, e) in found.split(',').zip(expected.split(',')) {
            let (f, e): (f64, f64) = (f.parse().unwrap(), e.parse().unwrap());
            assert!(
                (f - e).abs() <= 1e-4 * e.abs().max(1.0),
                "{found} {expected}"
            );
        }
    }
}

/// Reads an .npy file of floats with a record per row.
fn rows(path: &Path) -> Vec<Vec<f64>> {
    let bytes = fs::read(path).unwrap();
    let body = 10 + usize::from(bytes[8]) + 256 * usize::from(bytes[9]);
    let header = String::from_utf8_lossy(&bytes[..body]).into_owned();
    let shape = header.split_once("'shape': (").unwrap().1;
    let columns: usize = shape
        .split([',', ')'])
        .nth(1)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let float = |b: &[u8]| f64::from(f32::from_le_bytes(b.try_into().unwrap()));
    bytes[body..]
        .chunks_exact(4 * columns)
        .map(|r| r.chunks_exact(4).map(float).collect())
        .collect()
}

/// In models of several inputs and outputs, a record has the inputs one after the other. JSON has
/// the outputs by name.
#[test]
fn several_inputs_and_outputs() {
    let fusion = (
        "onnx",
        "fusion",
        "120 numbers a record: near 3×6×5, far 1×6×5",
        {
            (
                "63 values, activation none: sigmoid7 2×6×5, gemm10 3",
                vec![("sigmoid7", 60), ("gemm10", 3)],
            )
        },
    );
    let several = (
        "tflite",
        "several",
        "64 numbers a record: state 4, camera 6×5×2",
        {
            let outputs = vec![("action", 3), ("mask", 60), ("features", 90)];
            (
                "153 values, activation none: action 3, mask 6×5×2, features 6×5×3",
                outputs,
            )
        },
    );
    for (ending, model, inputs, (shown, outputs)) in [fusion, several] {
        let model = root().join("tests").join(ending).join(model);
        let expected = rows(&model.with_extension("outputs.npy"));
        let records = fs::read(model.with_extension("inputs.npy")).unwrap();
        let folder = Folder::new();
        let program = bake(&model.with_extension(ending), None, &folder).unwrap();
        let info = run(&program, &["--info"], "").out;
        assert!(info.contains(inputs) && info.contains(shown), "{info}");
        for plan in ["host", "mali-midgard", "thesis-morton"] {
            let mut command = command(&program);
            command.args(["--plan", plan, "-o", "json"]);
            if plan != "host" {
                on(
                    Witness::Pocl,
                    command.args(["-d", "opencl"]),
                    &folder.path("log"),
                );
            }
            let r = feed(&mut command, records.clone());
            assert_eq!(
                (r.code, r.lines().len()),
                (Some(0), expected.len()),
                "{plan}: {}",
                r.err
            );
            for (line, expected) in r.lines().into_iter().zip(&expected) {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(line["outputs"].as_object().unwrap().len(), outputs.len());
                let mut first = 0;
                for &(name, size) in &outputs {
                    let found = line["outputs"][name].as_array().unwrap();
                    assert_eq!(found.len(), size, "{name}");
                    assert_eq!(
                        found[..],
                        line["scores"].as_array().unwrap()[first..first + size]
                    );
                    for (f, e) in found.iter().zip(&expected[first..]) {
                        assert!(
                            (f.as_f64().unwrap() - e).abs() <= 1e-4 * e.abs().max(1.0),
                            "{plan}: {name}: {line}"
                        );
                    }
                    first += size;
                }
            }
        }
        let scores = run(&program, &["-o", "scores"], records);
        assert_eq!(scores.lines()[0].split(',').count(), expected[0].len());
        let class = run(&program, &["-o", "class"], "");
        assert_eq!(class.code, Some(2));
    }
}
