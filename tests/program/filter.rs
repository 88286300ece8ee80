//! The stdin-to-stdout filter: formats, outputs, use as a co-process, closed and full outputs,
//! errors.

use super::support::{DIGITS, Folder, bake, command, feed, npy, root, run};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn test_csv() -> String {
    fs::read_to_string(root().join("model/digits/test.csv")).unwrap()
}

#[test]
fn the_first_command_of_the_readme() {
    let r = run(DIGITS, &["model/digits/test.csv"], "");
    assert_eq!(r.lines().len(), 597);
    assert!(
        r.lines()
            .iter()
            .all(|l| l.len() == 1 && l.as_bytes()[0].is_ascii_digit())
    );
    assert_eq!(r.err, "");
    let labels = [
        "--expect",
        "model/digits/test_labels.csv",
        "--min-accuracy",
        "97%",
    ];
    let e = run(
        DIGITS,
        &[&["model/digits/test.csv"], &labels[..]].concat(),
        "",
    );
    assert_eq!(e.out, r.out);
    let right: u32 = e
        .err
        .trim()
        .strip_prefix("mortonnet: ")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(e.err.contains("of 597") && right >= 580, "{}", e.err);
    let all = run(
        DIGITS,
        &[
            "model/digits/test.csv",
            "--expect",
            "model/digits/test_labels.csv",
            "--min-accuracy",
            "1",
        ],
        "",
    );
    assert_eq!(all.code, Some(1));
    assert!(all.err.contains("is below 1"), "{}", all.err);
}

#[test]
fn every_format_gives_the_same_answers() {
    let csv = test_csv();
    let values: Vec<u8> = csv
        .lines()
        .flat_map(|l| l.split(',').map(|v| v.parse::<u8>().unwrap()))
        .collect();
    let f32s: Vec<u8> = values
        .iter()
        .flat_map(|&v| f32::from(v).to_le_bytes())
        .collect();
    let mut idx = vec![0, 0, 8, 3, 0, 0, 2, 85, 0, 0, 0, 8, 0, 0, 0, 8];
    idx.extend(&values);
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (597, 64), }";
    let mut npy = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    npy.extend(format!("{header:<117}\n").bytes());
    npy.extend(&values);
    let expected = run(DIGITS, &[], csv.clone()).out;
    for (args, input) in [
        (&["-f", "u8"][..], values),
        (&["-f", "f32"], f32s),
        (&[], idx),
        (&[], npy),
        (
            &["-f", "csv"],
            csv.replace(',', " , ").replace('\n', "\r\n").into_bytes(),
        ),
        (&["--batch", "1"], csv.trim_end().into()),
        (&["-b", "7", "-v"], csv.clone().into_bytes()),
    ] {
        let r = run(DIGITS, args, input);
        assert_eq!(r.lines().join("\n") + "\n", expected, "{args:?}");
    }
    let twice = run(
        DIGITS,
        &["model/digits/test.csv", "-", "model/digits/test.csv"],
        "",
    );
    assert_eq!(twice.out, format!("{expected}{expected}"));
}

/// The rows of the images, one after the other, are the series.
#[test]
fn records_are_windows_of_a_series() {
    let csv = test_csv();
    let expected = run(DIGITS, &[], csv.clone()).out;
    let values: Vec<&str> = csv.split([',', '\n']).filter(|v| !v.is_empty()).collect();
    let rows: Vec<String> = values.chunks(8).map(|row| row.join(",") + "\n").collect();
    let bytes: Vec<u8> = values.iter().map(|v| v.parse().unwrap()).collect();
    for (args, input) in [
        (&["--window", "8"][..], rows.concat().into_bytes()),
        (
            &["--window=8", "--hop=8", "-b", "7"],
            rows.concat().into_bytes(),
        ),
        (
            &[
                "--window",
                "4",
                "-f",
                "u8",
                "--expect",
                "model/digits/test_labels.csv",
            ],
            bytes.clone(),
        ),
        (&["--window", "64", "-f", "u8"], bytes),
    ] {
        let r = run(DIGITS, args, input);
        assert_eq!(
            (r.code, &*r.out),
            (Some(0), &*expected),
            "{args:?}: {}",
            r.err
        );
        assert_eq!(
            r.err.contains("of 597"),
            args.contains(&"--expect"),
            "{}",
            r.err
        );
    }
    // Every second image, and a rest that is too short for another one.
    let expected: Vec<&str> = expected.lines().step_by(2).collect();
    let r = run(
        DIGITS,
        &["--window", "8", "--hop", "16", "-o", "label"],
        rows[..8 * 596 + 6].concat(),
    );
    assert_eq!(
        (r.lines(), &*r.err),
        (
            expected[..298].to_vec(),
            "mortonnet: stdin: the last 6 rows are part of no record\n"
        )
    );
    let mut bad = rows.clone();
    bad[12] = "1,2,3\n".into();
    let r = run(
        DIGITS,
        &["--window", "8", "--hop", "4", "--on-error", "mark"],
        bad[..24].concat(),
    );
    let lines: Vec<&str> = r.out.lines().collect();
    // The records have rows 0 to 7, 4 to 11, and so on. Row 12 is in the third and fourth record.
    let marked: Vec<bool> = lines.iter().map(|line| *line == "error").collect();
    assert_eq!(
        (r.code, &marked[..]),
        (Some(1), &[false, false, true, true, false][..])
    );
    assert!(
        r.err
            .contains("stdin:13:4: expected 8 numbers, the line has 3 (--window 8: "),
        "{}",
        r.err
    );
    let r = run(DIGITS, &["--window", "7"], "");
    assert_eq!((r.code, &*r.out), (Some(2), ""), "{}", r.err);
    assert!(
        r.err.contains("--window 7: expected a divisor of 64"),
        "{}",
        r.err
    );
}

#[test]
fn every_output_says_the_same() {
    let csv = test_csv();
    let classes = run(DIGITS, &[], csv.clone());
    let classes = classes.lines();
    let lines = |kind: &str| -> Vec<String> {
        run(DIGITS, &["-o", kind], csv.clone())
            .lines()
            .iter()
            .map(|s| s.to_string())
            .collect()
    };
    assert_eq!(lines("label"), classes);
    let best = |line: &String| {
        let v: Vec<f32> = line.split(',').map(|s| s.parse().unwrap()).collect();
        assert_eq!(v.len(), 10);
        let first = v.iter().copied().fold(f32::MIN, f32::max);
        v.iter().position(|&x| x == first).unwrap().to_string()
    };
    assert_eq!(
        lines("scores").iter().map(best).collect::<Vec<_>>(),
        classes
    );
    assert_eq!(lines("probs").iter().map(best).collect::<Vec<_>>(), classes);
    for (line, class) in lines("top=3").iter().zip(&classes) {
        assert!(
            line.starts_with(&format!("{class}:")) && line.split(',').count() == 3,
            "{line}"
        );
    }
    for (n, (line, class)) in lines("json").iter().zip(&classes).enumerate() {
        let v: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (v["record"].as_u64(), v["class"].to_string()),
            (Some(n as u64), class.to_string())
        );
        assert_eq!(
            (v["label"].as_str(), v["scores"].as_array().unwrap().len()),
            (Some(&**class), 10)
        );
        assert!(v["probability"].as_f64().unwrap() > 0.1);
    }
}

#[test]
fn a_record_is_answered_while_the_pipe_stays_open() {
    let mut child = command(DIGITS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let csv = test_csv();
    let expected = run(DIGITS, &[], csv.clone()).out;
    for (line, class) in csv.lines().zip(expected.lines()).take(20) {
        // The first half of a record must not be answered.
        let (a, b) = line.split_at(line.len() / 2);
        stdin.write_all(a.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        let start = Instant::now();
        stdin.write_all(format!("{b}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end(), class);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_closed_output_ends_silently() {
    let mut child = command(DIGITS)
        .arg("model/digits/test.csv")
        .args(["-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 1];
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert_eq!((child.wait().unwrap().code(), &*err), (Some(0), ""));
    for flag in ["--help", "--info", "--version"] {
        let mut c = command(DIGITS);
        let (reader, writer) = UnixStream::pair().unwrap();
        drop(reader);
        let status = c.arg(flag).stdout(OwnedFd::from(writer)).status().unwrap();
        assert_eq!(status.code(), Some(0), "{flag}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    for args in [&["model/digits/test.csv"][..], &["--help"], &["--info"]] {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let r = command(DIGITS).args(args).stdout(full).output().unwrap();
        assert_eq!(r.status.code(), Some(1), "{args:?}");
        let err = String::from_utf8(r.stderr).unwrap();
        assert!(
            err.contains("stdout") && err.contains("No space left"),
            "{err}"
        );
    }
}

#[test]
fn a_bad_record_is_named_after_all_earlier_results() {
    let csv = test_csv();
    let good: Vec<&str> = csv.lines().collect();
    let expected = run(DIGITS, &[], csv.clone());
    let expected = expected.lines();
    for at in [0, 1, 16, 300, 596] {
        let mut lines: Vec<String> = good.iter().map(|l| l.to_string()).collect();
        let mut fields: Vec<&str> = good[at].split(',').collect();
        fields[2] = "1.x";
        lines[at] = fields.join(",");
        let r = run(DIGITS, &[], lines.join("\n"));
        assert_eq!(r.code, Some(1));
        assert_eq!(
            r.err,
            format!(
                "mortonnet: stdin:{}:3: expected a number, found \"1.x\"\n",
                at + 1
            )
        );
        assert_eq!(r.out.lines().collect::<Vec<_>>(), &expected[..at]);
    }
    let r = run(DIGITS, &["model/digits/test.csv", "no/such/file"], "");
    assert_eq!((r.code, r.out.lines().count()), (Some(1), 597));
    assert!(r.err.contains("no/such/file: No such file"), "{}", r.err);
    let r = run(DIGITS, &[], format!("{}\n1,2,3", good[0]));
    assert_eq!(
        r.err,
        "mortonnet: stdin:2:4: expected 64 numbers, the line has 3\n"
    );
    assert_eq!(r.out.lines().count(), 1);
    let r = run(DIGITS, &["-f", "u8"], vec![1; 100]);
    assert!(
        r.err
            .contains("stdin: record 2: expected 64 bytes, the input ends after 36"),
        "{}",
        r.err
    );
    let r = run(
        DIGITS,
        &["-f", "f32"],
        [f32::NAN.to_le_bytes(); 64].concat(),
    );
    assert!(
        r.code == Some(1)
            && r.err
                .contains("record 1, value 1: expected a finite number, found NaN"),
        "{}",
        r.err
    );
}

#[test]
fn usage_errors_exit_with_2() {
    for args in [
        &["--nonsense"][..],
        &["-o", "klass"],
        &["--plan", "fastest"],
        &["-d", "host", "--plan", "mali-midgard"],
    ] {
        let r = run(DIGITS, args, "");
        assert_eq!((r.code, &*r.out), (Some(2), ""), "{args:?}: {}", r.err);
        assert!(r.err.starts_with("mortonnet: "), "{}", r.err);
    }
}

#[test]
fn pages() {
    let help = run(DIGITS, &["--help"], "");
    assert!(help.lines()[0].starts_with("mortonnet [OPTIONS] [FILE]..."));
    let info = run(DIGITS, &["--info"], "");
    for part in [
        "model     digits, hash ",
        "64 numbers a record",
        "10 classes",
        "64 → 32 relu → 10",
        "affine_host_panel",
        "R_16_1_C",
        "runs on   host",
    ] {
        assert!(info.out.contains(part), "{part} is not in\n{}", info.out);
    }
    let v = run(DIGITS, &["--version"], "");
    assert!(
        v.out
            .starts_with(&format!("mortonnet {}, digits ", env!("CARGO_PKG_VERSION"))),
        "{}",
        v.out
    );
    let d = run(DIGITS, &["--list-devices"], "");
    assert_eq!(d.code, Some(1));
    assert!(d.out.contains("/nonexistent/libOpenCL.so"), "{}", d.out);
}

/// `--max-memory` counts the memory that `--info` reports.
#[test]
fn batches_fit_into_the_memory_that_is_allowed() {
    let info = |args: &[&str]| {
        let r = run(DIGITS, &[args, &["--info", "-o", "json"]].concat(), "");
        serde_json::from_str::<serde_json::Value>(r.lines()[0]).unwrap()
    };
    let memory = |batch: &str| {
        let found = info(&["-b", batch]);
        assert_eq!(
            (&found["model"], &found["plan"]),
            (&"digits".into(), &"host".into())
        );
        let fits = found["fits"].as_array().unwrap().clone();
        let host: Vec<_> = fits.iter().filter(|f| f["plan"] == "host").collect();
        assert_eq!(
            (host[0]["batch"].as_u64(), host[0]["programs"].as_u64()),
            (Some(1), Some(0))
        );
        let midgard: Vec<_> = fits
            .iter()
            .filter(|f| f["plan"] == "mali-midgard")
            .collect();
        let midgard = midgard[midgard.len() - 1];
        assert_eq!(midgard["programs"].as_u64(), Some(1));
        let least = midgard["arena_bound"].as_u64().unwrap();
        assert!(least > 0 && least <= midgard["arena"].as_u64().unwrap());
        host[host.len() - 1]["memory"].as_u64().unwrap()
    };
    let needed = memory("40");
    assert!(needed < memory("41"));
    let line = |args: &[&str]| {
        let r = run(DIGITS, &[args, &["-d", "host", "--info"]].concat(), "");
        r.lines()
            .iter()
            .find(|l| l.starts_with("plan "))
            .unwrap()
            .to_string()
    };
    assert!(line(&["--max-memory", &needed.to_string()]).contains("batches of 40 records"));
    assert!(line(&["--max-memory", &(needed - 1).to_string()]).contains("batches of 39 records"));
    // The host's batches of a small network grow with its threads.
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let most = if cores < 4 { 256 } else { 1024 };
    assert!(line(&["--max-memory", "1G"]).contains(&format!("batches of {most} records")));
    let file = "model/digits/test.csv";
    let expected = run(DIGITS, &[file], "").out;
    let few = ["-d", "host", "--max-memory", &needed.to_string()];
    assert_eq!(run(DIGITS, &[&few[..], &[file]].concat(), "").out, expected);
    assert!(
        run(DIGITS, &[&few[..], &["--selftest"]].concat(), "").lines()[0]
            .starts_with("passed: host")
    );
    // An explicit batch is not changed. The smallest batch is one record.
    let r = run(DIGITS, &[&few[..], &["-b", "41", file]].concat(), "");
    assert_eq!((r.code, &*r.out), (Some(2), ""));
    assert!(
        r.err.contains(&format!(
            "--max-memory allows {needed}: at most --batch 40, "
        )),
        "{}",
        r.err
    );
    let r = run(DIGITS, &["-d", "host", "--max-memory", "4k", file], "");
    assert_eq!((r.code, &*r.out), (Some(1), ""));
    let least = format!(
        "plan host needs {} bytes for batches of 1 record, 10432 of them",
        memory("1")
    );
    assert!(r.err.contains(&least), "{} {least}", r.err);
}

#[test]
fn profiles_are_measured() {
    let folder = Folder::new();
    let file = folder.path("profile.json");
    let arg = format!("--profile=json:{}", file.display());
    let r = run(DIGITS, &[&arg, "-b", "100", "model/digits/test.csv"], "");
    assert_eq!((r.lines().len(), &*r.err), (597, ""));
    let p: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(
        (p["records"].as_u64(), p["batches"].as_u64()),
        (Some(597), Some(6))
    );
    assert_eq!(p["steps"].as_array().unwrap().len(), 3);
    let total: f64 = p["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["run_us"]["total"].as_f64().unwrap())
        .sum();
    assert!(total > 0.0 && p["elapsed_us"].as_f64().unwrap() > p["startup_us"].as_f64().unwrap());
    let r = run(DIGITS, &["--profile", "model/digits/test.csv"], "");
    for part in [
        "profile of digits on host",
        "start-up",
        "affine_host_panel",
        "records/s",
        "latency",
    ] {
        assert!(r.err.contains(part), "{part} is not in\n{}", r.err);
    }
}

#[test]
fn self_test_passes_and_expectations_are_compared() {
    let r = run(DIGITS, &["--selftest"], "");
    assert!(r.lines()[0].starts_with("passed: host"), "{}", r.out);
    let folder = Folder::new();
    let short = folder.put("short", "1\n2\n");
    let r = run(
        DIGITS,
        &["--expect", short.to_str().unwrap(), "model/digits/test.csv"],
        "",
    );
    assert_eq!((r.code, r.out.lines().count()), (Some(1), 597), "{}", r.err);
}

#[test]
fn junk_is_refused_without_a_panic() {
    for seed in 0..30 {
        let junk = super::support::random_bytes(seed, 5000);
        for format in [&[][..], &["-f", "csv"], &["-f", "idx"], &["-f", "npy"]] {
            let mut c = command(DIGITS);
            let r = feed(c.args(format), junk.clone());
            assert_eq!(r.code, Some(1), "seed {seed} {format:?}: {}", r.err);
            assert!(r.err.starts_with("mortonnet: stdin"), "{}", r.err);
        }
    }
}

/// Bytes are the integers of a model's input, with signs and without. The scores are those of
/// LiteRT for the same integers.
#[test]
fn bytes_are_the_integers_of_a_models_input() {
    let folder = Folder::new();
    for (model, name, smallest) in [
        ("cnn_uint8_ends", "uint8", 0),
        ("cnn_int8_ends", "int8", -128),
    ] {
        let fixture = |what: &str| format!("tests/tflite/{model}.{what}");
        let program = bake(&root().join(fixture("tflite")), None, &folder).unwrap();
        let info = run(&program, &["--info"], "").out;
        let stated = info
            .split(&format!("bytes are the model's {name} (scale "))
            .nth(1);
        let (scale, rest) = stated.unwrap_or(&info).split_once(", zero point ").unwrap();
        let scale: f32 = scale.parse().unwrap();
        let zero: i32 = rest.split(')').next().unwrap().parse().unwrap();
        assert!(info.contains("4 of 4 layers compute on integers"), "{info}");
        let real = npy(&fixture("inputs.npy"));
        let step = |x: &f32| (x / scale).round() as i32 + zero - smallest;
        let unsigned: Vec<u8> = real.iter().map(|x| step(x).try_into().unwrap()).collect();
        let signed: Vec<u8> = unsigned.iter().map(|b| b ^ 0x80).collect();
        let floats: Vec<u8> = real.iter().flat_map(|x| x.to_le_bytes()).collect();
        let scores = |format: &str, input: &[u8]| {
            let r = run(
                &program,
                &["-d", "host", "-f", format, "-o", "scores"],
                input,
            );
            assert_eq!(r.err, "");
            r.out
        };
        let expected = scores("f32", &floats);
        assert_eq!(scores("u8", &unsigned), expected, "{model}");
        assert_eq!(scores("i8", &signed), expected, "{model}");
        let found = expected.split_whitespace().flat_map(|line| line.split(','));
        let found: Vec<f32> = found.map(|x| x.parse().unwrap()).collect();
        let litert = npy(&fixture("integers.npy"));
        assert_eq!(found.len(), litert.len());
        let mut pairs = found.iter().zip(&litert);
        assert!(
            pairs.all(|(a, b)| (a - b).abs() < 1e-6),
            "{found:?} {litert:?}"
        );
    }
}
