//! Bad records that are marked, answers that are compared with expected ones, and several errors in
//! a run.

use super::signals::{Lines, TERM, end, send, started};
use super::support::{DIGITS, Folder, bake, command, feed, root, run};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

const TEST: &str = "model/digits/test.csv";
const LABELS: &str = "model/digits/test_labels.csv";

/// The first hundred records with their line ends, and their classes.
fn hundred() -> (Vec<String>, Vec<String>) {
    let csv = fs::read_to_string(root().join(TEST)).unwrap();
    let lines = csv
        .split_inclusive('\n')
        .take(100)
        .map(str::to_string)
        .collect();
    let classes = run(DIGITS, &[TEST], "")
        .lines()
        .iter()
        .take(100)
        .map(|c| c.to_string())
        .collect();
    (lines, classes)
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// One record in a batch is bad. All others are answered, and the stream goes on.
#[test]
fn a_bad_record_is_marked_and_the_stream_goes_on() {
    let (mut lines, mut classes) = hundred();
    lines[4] = "1,x\n".into();
    classes[4] = "error".into();
    let why = "mortonnet: stdin:5:2: expected a number, found \"x\"\n";
    let count = "mortonnet: bad records: 1 of 100, answered with \"error\"\n";
    let args = ["--on-error", "mark"];
    let mut c = command(DIGITS);
    let c = c
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = started(c, TERM);
    let (mut stdin, out) = (child.stdin.take().unwrap(), Lines::of(child.stdout.take()));
    stdin.write_all(lines.concat().as_bytes()).unwrap();
    // All answers come while the pipe is still open.
    assert_eq!((0..100).map(|_| out.next()).collect::<Vec<_>>(), classes);
    stdin.write_all(lines[0].as_bytes()).unwrap();
    assert_eq!(out.next(), classes[0]);
    // A stopped service has not failed if every record has its answer.
    send(&child, TERM);
    assert_eq!(end(&mut child).signal(), Some(TERM));
    drop(stdin);
    for batch in ["1", "3", "100"] {
        let r = run(DIGITS, &["--on-error=mark", "-b", batch], lines.concat());
        assert_eq!((r.code, r.err), (Some(1), format!("{why}{count}")));
        assert_eq!(r.out.lines().collect::<Vec<_>>(), classes);
    }
    let r = run(
        DIGITS,
        &[&args[..], &["-o", "json"]].concat(),
        lines.concat(),
    );
    let line: serde_json::Value = serde_json::from_str(r.out.lines().nth(4).unwrap()).unwrap();
    let reason = "stdin:5:2: expected a number, found \"x\"";
    assert_eq!(line, serde_json::json!({"record": 4, "error": reason}));
    // `stop` is the default.
    for stop in [&[][..], &["--on-error", "stop"]] {
        let r = run(DIGITS, stop, lines.concat());
        assert_eq!(
            (r.code, r.err.as_str(), r.out.lines().count()),
            (Some(1), why, 4)
        );
    }
    let r = run(DIGITS, &[&args[..], &[TEST]].concat(), "");
    assert_eq!((r.lines().len(), &*r.err), (597, ""));
}

#[test]
fn bad_records_are_counted_and_count_as_wrong() {
    let (mut lines, _) = hundred();
    (lines[7], lines[70]) = ("nan\n".into(), "1,2\n".into());
    let folder = Folder::new();
    let (file, labels) = (
        folder.path("p.json"),
        fs::read_to_string(root().join(LABELS)).unwrap(),
    );
    let labels: String = labels.split_inclusive('\n').take(100).collect();
    let labels = folder.put("labels", labels);
    let expect = ["--on-error", "mark", "--expect", labels.to_str().unwrap()];
    let good = run(DIGITS, &expect, hundred().0.concat());
    let right = |err: &str| -> u32 {
        let line = err.lines().find(|l| l.ends_with(" of 100")).expect(err);
        line.strip_prefix("mortonnet: ")
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    assert_eq!(good.code, Some(0));
    let profile = format!("--profile=json:{}", file.display());
    let r = run(
        DIGITS,
        &[&expect[..], &[&profile, "--min-accuracy", "99%"]].concat(),
        lines.concat(),
    );
    assert_eq!(
        (r.code, right(&r.err)),
        (Some(1), right(&good.err) - 2),
        "{}",
        r.err
    );
    let p = json(&file);
    assert_eq!((&p["records"], &p["marked"]), (&100.into(), &2.into()));
    // Both errors are reported.
    assert!(
        r.err.contains("mortonnet: bad records: 2 of 100")
            && r.err.contains("mortonnet: accuracy ")
    );
    let r = run(DIGITS, &["--on-error=mark", "--profile"], lines.concat());
    assert!(
        r.err
            .contains("\n           2 of the records are bad: answered with \"error\"\n"),
        "{}",
        r.err
    );
    run(DIGITS, &[&profile], hundred().0.concat()).lines();
    assert_eq!(json(&file)["marked"], 0);
}

/// A profile that cannot be written does not hide the error of a bad record, nor the other way
/// round.
#[test]
fn the_first_error_counts_and_the_second_is_said() {
    let full = "mortonnet: /dev/full: No space left on device (os error 28)\n";
    let r = run(DIGITS, &["--profile=table:/dev/full"], "1,x\n");
    assert_eq!(
        (r.code, r.err),
        (
            Some(1),
            format!("mortonnet: stdin:1:2: expected a number, found \"x\"\n{full}")
        )
    );
    let r = run(DIGITS, &["--profile=table:/dev/full", TEST], "");
    assert_eq!(
        (r.code, &*r.err, r.out.lines().count()),
        (Some(1), full, 597)
    );
}

#[test]
fn scores_are_compared_with_a_file() {
    let folder = Folder::new();
    let scores = run(DIGITS, &["-o", "scores", TEST], "").out;
    let classes = run(DIGITS, &[TEST], "").out;
    let compare = |text: &str, args: &[&str]| {
        let file = folder.put("scores.csv", text);
        run(
            DIGITS,
            &[&["--expect-scores", file.to_str().unwrap(), TEST], args].concat(),
            "",
        )
    };
    let r = compare(&scores, &["--tolerance", "0"]);
    assert_eq!((r.code, &r.out), (Some(0), &classes));
    let line = "mortonnet: scores: 597 of 597 within 0; largest error 0.00e0, record 1, output 1: \
        expected ";
    assert!(r.err.starts_with(line), "{}", r.err);
    // One score of one record is off by a thousandth.
    let mut lines: Vec<String> = scores.lines().map(str::to_string).collect();
    let mut record: Vec<f32> = lines[16].split(',').map(|s| s.parse().unwrap()).collect();
    let found = record[2];
    record[2] += 1e-3 * found.abs().max(1.0);
    lines[16] = record
        .iter()
        .map(f32::to_string)
        .collect::<Vec<_>>()
        .join(",");
    let other = lines.join("\n");
    let r = compare(&other, &[]);
    assert_eq!((r.code, &r.out), (Some(1), &classes));
    let part = format!(
        "record 17, output 3: expected {}, found {found}\n",
        record[2]
    );
    assert!(
        r.err
            .starts_with("mortonnet: scores: 596 of 597 within 0.0001; ")
            && r.err.ends_with(&part),
        "{}",
        r.err
    );
    assert_eq!(compare(&other, &["--tolerance", "0.01"]).code, Some(0));
    for (text, why) in [
        (
            "1,2\n",
            "scores.csv:1:3: expected 10 numbers, the line has 2",
        ),
        (
            lines[0].as_str(),
            "scores.csv: this file lists 1 record, the input has 597",
        ),
    ] {
        let r = compare(text, &[]);
        assert!(r.code == Some(1) && r.err.contains(why), "{}", r.err);
    }
}

/// A network of two inputs whose outputs are the inputs.
fn identity(output: &str) -> Folder {
    let model = Folder::new();
    for (name, cols, text) in [("w", 2, "1,0\n0,1\n"), ("b", 1, "0\n0\n")] {
        model.put(&format!("{name}.csv"), text);
        let json = format!(
            "{{\"rows\": 2, \"cols\": {cols}, \"data_type\": \"csv\", \"file\": \"{name}.csv\"}}"
        );
        model.put(&format!("{name}.json"), json);
    }
    let layer = "{\"layer\": \"AffineLayer\", \"weights\": \"w.json\", \"biases\": \"b.json\"}";
    model.put(
        "network.json",
        format!("{{\"layers\": [{layer}], \"size\": 1, {output}}}"),
    );
    model
}

/// Networks that do not output a single class can be compared as well.
#[test]
fn values_and_sets_of_labels_are_compared() {
    let out = Folder::new();
    let values = bake(
        &identity("\"output\": {\"kind\": \"values\"}").0,
        None,
        &out,
    )
    .unwrap();
    let input = "1000,0.5\n1x,2\n3,4\n";
    let expected = out.put("values.csv", "1000.05,0.5\n0,0\n3,4.5\n");
    let args = [
        "--on-error",
        "mark",
        "--expect-scores",
        expected.to_str().unwrap(),
    ];
    let r = feed(command(&values).args(args), input);
    assert_eq!((r.code, &*r.out), (Some(1), "1000,0.5\nerror\n3,4\n"));
    // The error of 0.5 in 4.5 is 0.111 of it. The error of 0.05 in 1000 is within the limit.
    let said = "scores: 1 of 3 within 0.0001; largest error 1.11e-1, record 3, output 2: expected \
        4.5, found 4\n";
    assert!(
        r.err.contains("mortonnet: bad records: 1 of 3") && r.err.ends_with(said),
        "{}",
        r.err
    );
    let r = run(&values, &["--expect", expected.to_str().unwrap()], input);
    assert!(
        r.code == Some(2) && r.err.contains("use --expect-scores"),
        "{}",
        r.err
    );

    let kind = "\"output\": {\"kind\": \"multilabel\", \"activation\": \"sigmoid\"}, \"labels\": \
        [\"wet\", \"cold\"]";
    let sets = bake(&identity(kind).0, None, &out).unwrap();
    let compare = |text: &str| {
        let file = out.put("sets", text);
        run(
            &sets,
            &["--expect", file.to_str().unwrap()],
            "1,1\n-1,1\n-1,-1\n",
        )
    };
    for text in ["1,0\n1\n\n", "cold, wet\ncold\n\n"] {
        let r = compare(text);
        assert_eq!(
            (r.code, &*r.out, &*r.err),
            (Some(0), "0,1\n1\n\n", "mortonnet: 3 of 3\n")
        );
    }
    let r = compare("0,1\nhello\n\n");
    assert_eq!((r.code, &*r.out), (Some(1), ""));
    assert!(
        r.err
            .ends_with("sets:2: expected a class from 0 to 1 or a label, found \"hello\"\n"),
        "{}",
        r.err
    );
    // The line `error` would be ambiguous with a label of that name. These labels have none.
    let r = run(&sets, &["--on-error", "mark", "-o", "label"], "1,1\n");
    assert_eq!((r.code, &*r.out), (Some(0), "wet,cold\n"), "{}", r.err);
}
