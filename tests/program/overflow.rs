//! Records that overflow f32 inside the network are refused on every engine and plan. A device that
//! hides an overflow fails the self-test.

use super::devices::{plans, simulated};
use super::support::{DIGITS, Folder, Run, Witness, bake, command, feed, on, root, run};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes a network of two inputs, two hidden values behind a ReLU, and three classes.
fn network(folder: &Folder, name: &str, first: [[f32; 2]; 2]) -> PathBuf {
    let model = folder.path(name);
    fs::create_dir_all(&model).unwrap();
    let matrix = |name: &str, rows: &[&[f32]]| {
        let text = |r: &&[f32]| r.iter().map(f32::to_string).collect::<Vec<_>>().join(",") + "\n";
        fs::write(
            model.join(format!("{name}.csv")),
            rows.iter().map(text).collect::<String>(),
        )
        .unwrap();
        let (h, w) = (rows.len(), rows[0].len());
        let json = format!(r#"{{"rows":{h},"cols":{w},"data_type":"csv","file":"{name}.csv"}}"#);
        fs::write(model.join(format!("{name}.json")), json).unwrap();
    };
    matrix("w1", &[&first[0], &first[1]]);
    matrix("b1", &[&[0.0], &[0.0]]);
    matrix("w2", &[&[1.0, 0.1], &[2.0, 0.1], &[3.0, 0.1]]);
    matrix("b2", &[&[1.0], &[0.0], &[0.0]]);
    let text = r#"{"layers":[{"layer":"AffineLayer","weights":"w1.json","biases":"b1.json"},
        {"layer":"ReLULayer"},
        {"layer":"AffineLayer","weights":"w2.json","biases":"b2.json"}],"size":3}"#;
    fs::write(model.join("network.json"), text).unwrap();
    model
}

fn on_device(witness: Witness, program: &Path, args: &[&str], input: &str) -> Run {
    let folder = Folder::new();
    let mut c = command(program);
    on(witness, &mut c, &folder.path("log"));
    feed(
        c.envs(simulated(args))
            .args(["--device", "opencl"])
            .args(args),
        input,
    )
}

/// Two networks whose answers were wrong once. In the first, a hidden value and so all scores
/// become ∞, and the first of equal scores won. In the second, a partial sum becomes −∞, which ReLU
/// turned into 0. Its scores were finite but wrong. In an order of the sum without overflow the
/// class is 2.
#[test]
fn records_that_overflow_are_refused_on_every_engine_and_plan() {
    let folder = Folder::new();
    for (name, first, record, right) in [
        ("scores", [[10.0, 10.0], [0.1, -0.1]], "1e38,0", None),
        (
            "hidden",
            [[-2.0, 2.1], [0.1, -0.1]],
            "2e38,2e38",
            Some("0\n2\n2\n"),
        ),
    ] {
        let program = bake(&network(&folder, name, first), None, &folder).unwrap();
        // The record before is answered, and the record after is not reached.
        let input = format!("0.5,-0.5\n{record}\n1,2\n");
        let refused = |r: Run, what: &str| {
            assert_eq!(
                (r.code, r.out.lines().count()),
                (Some(1), 1),
                "{name} {what}: {}{}",
                r.out,
                r.err
            );
            let start = "mortonnet: stdin:2: record 2 of the run: overflow in f32: expected \
                finite scores, found ";
            assert!(r.err.starts_with(start), "{name} {what}: {}", r.err);
        };
        for output in ["class", "label", "scores", "probs", "top=2", "json"] {
            refused(
                run(&program, &["-d", "host", "-o", output], input.clone()),
                output,
            );
        }
        let on = |witness, args: &[&str]| {
            let r = on_device(witness, &program, args, &input);
            if (r.code, Some(&*r.out)) != (Some(0), right) {
                refused(r, &format!("{witness:?} {args:?}"));
            }
        };
        for plan in &plans() {
            on(Witness::Pocl, &["--plan", plan]);
        }
        on(Witness::Pocl, &["--plan", "mali-midgard", "-o", "json"]);
        for plan in ["mali-midgard", "thesis-morton", "adreno"] {
            on(Witness::Oclgrind, &["--plan", plan, "-b", "16"]);
        }
        let test = run(&program, &["-d", "host", "--selftest"], "");
        assert!(
            test.lines()[0].ends_with(" that overflow f32 refused"),
            "{}",
            test.out
        );
    }
}

/// `--selftest` has records that overflow. Kernels whose activations turn infinities into ordinary
/// numbers answer them, and the self-test reports this. A compiler that assumes finite numbers
/// makes such kernels.
#[test]
fn a_device_that_loses_an_overflow_fails_the_self_test() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("common")).unwrap();
    let source = fs::read_to_string(root().join("kernels/common/activation.cl")).unwrap();
    let dir = folder.0.to_str().unwrap();
    for plan in ["mali-midgard", "cpu-simd", "adreno", "thesis-baseline"] {
        let test = || {
            on_device(
                Witness::Pocl,
                Path::new(DIGITS),
                &["--selftest", "--plan", plan, "--kernels", dir],
                "",
            )
        };
        folder.put("common/activation.cl", &source);
        let r = test();
        assert!(
            r.lines()[0].ends_with(" that overflow f32 refused"),
            "{plan}: {}",
            r.out
        );
        folder.put("common/activation.cl", source.replace(" + 0.0f * (x)", ""));
        let r = test();
        assert_eq!(r.code, Some(1), "{plan}: {}", r.out);
        assert!(r.err.contains(", lost an overflow: "), "{plan}: {}", r.err);
        assert!(
            r.err
                .trim_end()
                .ends_with("; do not trust this device with this plan"),
            "{plan}: {}",
            r.err
        );
    }
    let info = run(DIGITS, &["--info", "-d", "host"], "");
    assert!(
        info.out
            .contains(" more overflow f32: a device must refuse them"),
        "{}",
        info.out
    );
}

/// `bench` reports such kernels by name.
#[test]
fn a_kernel_that_loses_an_overflow_is_wrong() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("common")).unwrap();
    let source = fs::read_to_string(root().join("kernels/common/activation.cl")).unwrap();
    folder.put("common/activation.cl", source.replace(" + 0.0f * (x)", ""));
    let names = [
        "affine_packed_4x4",
        "relu_unbound",
        "sigmoid_cm",
        "activation_unbound",
        "reduce_rm",
        "layers_packed_4x4",
    ];
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.args(["bench", "--check", "--kernels", folder.0.to_str().unwrap()])
        .args(names);
    let r = feed(&mut c, "");
    assert_eq!(r.code, Some(1), "{}", r.out);
    for name in names {
        assert!(
            r.err.contains(&format!("{name}: WRONG")),
            "{name}: {}",
            r.err
        );
    }
}
