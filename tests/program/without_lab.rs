//! The program without the lab: `cargo build --release --no-default-features`.

use super::binary::{code_bytes, release};
use super::devices::plans;
use super::support::{DIGITS, Folder, Witness, command, feed, on, root, run};
use std::fs;

#[test]
#[ignore = "long: tests/long.py"]
fn without_the_lab_the_stream_is_the_same_and_the_program_is_small() {
    let program = release("target/tests-without-lab", &["--no-default-features"]);
    let bytes = code_bytes(&program, DIGITS.as_ref());
    // Half of what the program with the lab may have (binary.rs).
    assert!(bytes < 2_000_000, "{bytes} bytes of code");

    for args in [
        &["bench"][..],
        &["bench", "matmul"],
        &["tune", "--help"],
        &["-d", "0", "tune"],
        &["--info=block"],
    ] {
        let r = run(&program, args, "");
        assert_eq!((r.code, &*r.out), (Some(2), ""), "{args:?}: {}", r.err);
        assert!(
            r.err.contains("this program was built without the lab: "),
            "{}",
            r.err
        );
    }
    for option in ["--sizes=8", "--check", "--save=plan.json"] {
        let r = run(&program, &[option], "");
        let name = option.split('=').next().unwrap();
        assert_eq!(
            (r.code, r.err),
            (
                Some(2),
                format!("mortonnet: there is no option {name}; see --help\n")
            )
        );
    }
    let help = |program: &str| run(program, &["--help"], "").out;
    let of_the_lab = |line: &&str| {
        ["mortonnet bench", "mortonnet tune"]
            .iter()
            .any(|word| line.starts_with(word))
    };
    let (with, without) = (help(DIGITS), help(program.to_str().unwrap()));
    assert_eq!(with.lines().filter(of_the_lab).count(), 2);
    assert!(
        with.lines().filter(|l| !of_the_lab(l)).eq(without.lines()),
        "{without}"
    );

    let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
    let damaged: String = csv
        .lines()
        .enumerate()
        .map(|(i, l)| {
            if i == 300 {
                "1,2\n".into()
            } else {
                format!("{l}\n")
            }
        })
        .collect();
    let labels = [
        "--expect",
        "model/digits/test_labels.csv",
        "--min-accuracy",
        "97%",
    ];
    let cases = [
        (&labels[..], &csv, 0, 597),
        (&["-o", "json"], &csv, 0, 597),
        (&["-o", "scores", "-b", "7"], &csv, 0, 597),
        (&[], &damaged, 1, 300),
        (&["--on-error", "mark"], &damaged, 1, 597),
        (&["--selftest"], &csv, 0, 1),
    ];
    for (args, input, code, lines) in cases {
        let (with, without) = (
            run(DIGITS, args, input.clone()),
            run(&program, args, input.clone()),
        );
        assert_eq!(
            (with.code, &with.out, &with.err),
            (without.code, &without.out, &without.err),
            "{args:?}"
        );
        assert_eq!(
            (without.code, without.out.lines().count()),
            (Some(code), lines),
            "{args:?}"
        );
    }
    // Every plan has its kernels.
    let folder = Folder::new();
    for plan in &plans() {
        let mut c = command(&program);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        let r = feed(c.args(["-d", "opencl", "--selftest", "--plan", plan]), "");
        assert!(
            r.lines()[0].starts_with("passed: opencl"),
            "{plan}: {}",
            r.out
        );
    }
    let mut c = command(&program);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    let r = feed(c.args(["-d", "opencl"]), csv.clone());
    assert_eq!(r.lines(), run(DIGITS, &[], csv).lines());
}
