//! Malformed input and wrong headers: one error with its position, in bounded time and memory.

use super::support::{DIGITS, bounded, command, feed, root};
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The memory limit, for the program with its threads, batches and a buffer of one mebibyte.
const MOST: u64 = 128 << 20;

/// Runs the program with an input that is written in pieces. Returns the exit code, stdout and
/// stderr, and checks the peak memory.
fn stream(
    command: &mut Command,
    write: impl FnOnce(&mut dyn Write) + Send + 'static,
) -> (Option<i32>, String, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let status = format!("/proc/{}/status", child.id());
    // The memory is read while the writer still holds the input open.
    let (done, told) = std::sync::mpsc::channel::<()>();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        write(&mut stdin);
        let _ = done.send(());
        let _ = wait.recv_timeout(Duration::from_secs(10));
    });
    let _ = told.recv_timeout(Duration::from_secs(100));
    let about = fs::read_to_string(status).unwrap_or_default();
    drop(go);
    writer.join().unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    let code = child.wait().unwrap().code();
    let peak = about.lines().find_map(|l| {
        l.strip_prefix("VmHWM:")?
            .trim()
            .strip_suffix(" kB")?
            .parse()
            .ok()
    });
    // A program that has already ended has no memory to read.
    let peak = peak.unwrap_or(0u64) << 10;
    assert!(peak < MOST, "{peak} bytes: {err}");
    (code, out, err)
}

fn record() -> String {
    fs::read_to_string(root().join("model/digits/test.csv"))
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_string()
}

fn host() -> Command {
    let mut c = command(DIGITS);
    c.args(["-d", "host"]);
    c
}

/// Writes `size` bytes of repeated `text`. The reader may close the pipe early.
fn repeat(to: &mut dyn Write, text: &str, size: u64) {
    let piece = text.repeat((1 << 20) / text.len());
    let mut left = size;
    while left > 0 {
        let n = left.min(piece.len() as u64);
        if to.write_all(&piece.as_bytes()[..n as usize]).is_err() {
            return;
        }
        left -= n;
    }
}

#[test]
fn a_line_of_a_gigabyte() {
    for text in ["0,", "x", "\"", " ", "1e"] {
        let start = Instant::now();
        let (good, after) = (record(), record());
        let write = move |to: &mut dyn Write| {
            let _ = to.write_all((good + "\n").as_bytes());
            repeat(to, text, 1 << 30);
            let _ = to.write_all(format!("\n{after}\n").as_bytes());
        };
        let (code, out, err) = stream(&mut host(), write);
        let why = "expected a line of at most 1048575 bytes, found a longer one\n";
        assert_eq!((code, &*out), (Some(1), "1\n"), "{err}");
        assert_eq!(err, format!("mortonnet: stdin:2: {why}"));
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}

/// The program reads a long bad line to its end, so that it can answer the next line.
#[test]
fn a_line_of_a_gigabyte_is_marked() {
    let good = record();
    let write = move |to: &mut dyn Write| {
        repeat(to, "0,", 1 << 30);
        let _ = to.write_all(format!("\n{good}\n").as_bytes());
    };
    let (code, out, err) = stream(host().args(["--on-error", "mark"]), write);
    assert_eq!((code, &*out), (Some(1), "error\n1\n"), "{err}");
    let line = "mortonnet: stdin:1: expected a line of at most 1048575 bytes, found a longer one\n";
    assert!(err.starts_with(line), "{err}");
}

#[test]
#[ignore = "long: tests/long.py; 4 GB through a pipe"]
fn a_line_of_2_to_31_fields() {
    let good = record();
    let write = move |to: &mut dyn Write| {
        repeat(to, "0,", 1 << 32);
        let _ = to.write_all(format!("\n{good}\n").as_bytes());
    };
    let (code, out, err) = stream(host().args(["--on-error", "mark"]), write);
    assert_eq!((code, &*out), (Some(1), "error\n1\n"), "{err}");
    assert_eq!(err.matches("stdin:1: ").count(), 1, "{err}");
}

/// A line that fits the buffer, with as many fields as possible.
#[test]
fn a_line_of_half_a_million_fields() {
    let r = feed(&mut host(), ",".repeat((1 << 19) - 1) + "\n");
    assert_eq!((r.code, &*r.out), (Some(1), ""));
    assert_eq!(
        r.err,
        "mortonnet: stdin:1:1: expected a number, found \"\"\n"
    );
}

#[test]
fn headers_that_lie() {
    let run = |input: Vec<u8>| bounded(&mut host(), input, Duration::from_secs(20), MOST);
    let npy = |version: u8, length: &[u8], shape: &str| {
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        bytes.extend(if length.is_empty() {
            (header.len() as u16).to_le_bytes().to_vec()
        } else {
            length.to_vec()
        });
        bytes.extend(header.bytes());
        bytes.extend([0; 64]);
        bytes
    };
    let idx = |sizes: &[u32]| {
        let mut bytes = vec![0, 0, 8, sizes.len() as u8];
        bytes.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
        bytes.extend([0; 64]);
        bytes
    };
    // The existing records are answered. Then the end of input is the error.
    let many = 1u64 << 40;
    for (input, count) in [
        (npy(1, &[], &format!("({many}, 64)")), many.to_string()),
        (
            npy(1, &[], &format!("({}, 8, 8)", u64::MAX)),
            u64::MAX.to_string(),
        ),
        (idx(&[u32::MAX, 8, 8]), u32::MAX.to_string()),
    ] {
        let r = run(input);
        assert_eq!((r.code, r.out.lines().count()), (Some(1), 1), "{}", r.err);
        let end = format!("stdin: record 2: expected {count} records, the input ends after 1\n");
        assert_eq!(r.err, format!("mortonnet: {end}"));
    }
    // Sizes whose product wraps to 0 or to 64.
    for (input, why) in [
        (
            npy(1, &[], "(1, 4294967296, 4294967296)"),
            "expected an array of shape (N, 64), found (1, 4294967296, 4294967296)",
        ),
        (
            npy(1, &[], "(1, 18446744073709551616)"),
            "expected an npy header with descr, fortran_order and shape",
        ),
        (
            npy(2, &[255; 4], "(1, 64)"),
            "expected an npy header of at most 65536 bytes, found 4294967295",
        ),
        (
            npy(1, &[255; 2], "(1, 64)"),
            "expected an npy header, the input ends after",
        ),
        (
            idx(&[1, 1 << 31, 1 << 31, 4]),
            "expected records of 64 numbers, found too many",
        ),
        (idx(&[1; 255]), "expected records of 64 numbers, found 1 ("),
        (
            vec![0, 0, 8, 255, 0],
            "expected an idx header, the input ends after 5 bytes",
        ),
    ] {
        let r = run(input);
        assert_eq!(
            (r.code, &*r.out, r.err.lines().count()),
            (Some(1), "", 1),
            "{}",
            r.err
        );
        assert!(
            r.err.starts_with(&format!("mortonnet: stdin: {why}")),
            "{}",
            r.err
        );
    }
}
