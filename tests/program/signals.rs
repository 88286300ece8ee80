//! SIGINT, SIGTERM and SIGUSR1 on the host and on PoCL. Records that were read are answered, and
//! the exit status has the signal.

use super::support::{DIGITS, Folder, Witness, command, on, random_bytes, root, run};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

const INT: i32 = 2;
const USR1: i32 = 10;
pub const TERM: i32 = 15;

/// The interval of polling, and the longest wait.
const TICK: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(30);

/// Makes a command on the host or on PoCL, with all three streams piped.
fn program(pocl: bool) -> Command {
    let mut c = command(DIGITS);
    if pocl {
        on(Witness::Pocl, &mut c, Path::new("/dev/null"));
    }
    c.args(["-d", if pocl { "opencl" } else { "host" }]);
    c.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    c
}

pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONGEST, "{what} never happened");
        sleep(TICK);
    }
}

/// Returns true if line `key` of the process's status has `signal` in its set.
fn has(child: &Child, key: &str, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let set = status.lines().find_map(|l| l.strip_prefix(key)).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

/// Returns true if the process has the file open.
fn opened(child: &Child, path: &Path) -> bool {
    let mut files = fs::read_dir(format!("/proc/{}/fd", child.id()))
        .unwrap()
        .flatten();
    files.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path))
}

/// A process that is killed at the end of the test.
pub struct Process(pub Child);

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines of a stream. Waiting for a line is limited in time.
pub struct Lines(Receiver<String>);

impl Lines {
    pub fn of(stream: Option<impl Read + Send + 'static>) -> Lines {
        let (sender, receiver) = channel();
        let stream = BufReader::new(stream.unwrap());
        std::thread::spawn(move || stream.lines().try_for_each(|l| sender.send(l.unwrap())));
        Lines(receiver)
    }

    pub fn next(&self) -> String {
        self.0.recv_timeout(LONGEST).expect("no line came")
    }

    /// Returns the remaining lines up to the end of the stream.
    pub fn rest(&self) -> Vec<String> {
        let next = || match self.0.recv_timeout(LONGEST) {
            Err(RecvTimeoutError::Timeout) => panic!("the stream is not closed"),
            line => line.ok(),
        };
        std::iter::from_fn(next).collect()
    }

    /// Returns the text up to the last line of a profile's table.
    fn table(&self) -> String {
        let mut text = String::new();
        while !text.contains("end to end") {
            text += &(self.next() + "\n");
        }
        text
    }
}

pub fn started(c: &mut Command, signal: i32) -> Process {
    let child = Process(c.spawn().unwrap());
    until("the handler", || has(&child, "SigCgt:", signal));
    child
}

pub fn send(child: &Child, signal: i32) {
    let kill = format!("kill -{signal} {}", child.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
}

/// Waits for the end of a process, for a limited time.
pub fn end(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until("the end", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn test_csv() -> String {
    fs::read_to_string(root().join("model/digits/test.csv")).unwrap()
}

/// A FIFO that the test opens for reading and writing, non-blocking. It has no end of input, and
/// the bytes left in it can be counted.
pub fn fifo(folder: &Folder) -> (std::path::PathBuf, File) {
    let path = folder.path("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let both = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .unwrap();
    (path, both)
}

#[test]
fn a_waiting_program_dies_by_the_signal_and_drops_part_of_a_record() {
    let csv = test_csv();
    let lines: Vec<&str> = csv.lines().take(21).collect();
    let expected = run(DIGITS, &[], lines[..20].join("\n")).out;
    for (pocl, signal) in [(false, INT), (false, TERM), (true, INT), (true, TERM)] {
        let mut child = started(program(pocl).arg("--profile"), TERM);
        let mut stdin = child.stdin.take().unwrap();
        // The last line is incomplete, so it would be a record with other numbers.
        let text = lines.join("\n");
        stdin.write_all(&text.as_bytes()[..text.len() - 1]).unwrap();
        let stdout = Lines::of(child.stdout.take());
        let mut answers: Vec<String> = (0..20).map(|_| stdout.next()).collect();
        send(&child, signal);
        assert_eq!(end(&mut child).signal(), Some(signal), "pocl {pocl}");
        answers.extend(stdout.rest());
        assert_eq!(answers, expected.lines().collect::<Vec<_>>(), "pocl {pocl}");
        let err = Lines::of(child.stderr.take()).rest().join("\n");
        assert!(
            err.contains("stream     20 records in ") && !err.contains("mortonnet: "),
            "{err}"
        );
        drop(stdin);
    }
}

/// Starts a program that waits for its reader, with a part of its input read.
fn blocked(pocl: bool, fifo: &Path, feed: &mut File) -> (Process, Vec<u8>) {
    let input = test_csv().repeat(40).into_bytes();
    let stdin = File::open(fifo).unwrap();
    let mut child = started(program(pocl).args(["-o", "json"]).stdin(stdin), TERM);
    let (mut written, mut still) = (0, 0);
    // The pipe to the reader is full once more input was taken than a FIFO holds, and none is taken
    // for a while.
    while still < 60 || written <= 1 << 20 {
        match feed.write(&input[written..]) {
            Ok(n) => (written, still) = (written + n, 0),
            Err(e) if e.kind() == ErrorKind::WouldBlock => still += 1,
            Err(e) => panic!("{e}"),
        }
        assert!(still < 6000, "the program reads nothing");
        assert!(
            written < input.len(),
            "the program reads on, though nobody reads its answers"
        );
        assert!(child.try_wait().unwrap().is_none());
        sleep(TICK);
    }
    (child, input[..written].into())
}

#[test]
fn every_record_that_was_read_is_answered_before_the_end() {
    for (pocl, signal) in [(false, TERM), (true, INT)] {
        let folder = Folder::new();
        let (path, mut feed) = fifo(&folder);
        let (mut child, written) = blocked(pocl, &path, &mut feed);
        send(&child, signal);
        sleep(Duration::from_millis(100));
        assert!(
            child.try_wait().unwrap().is_none(),
            "it waits for its reader"
        );
        let out = Lines::of(child.stdout.take()).rest();
        assert_eq!(end(&mut child).signal(), Some(signal));
        let mut left = Vec::new();
        let rest = feed.read_to_end(&mut left).unwrap_err();
        assert_eq!(rest.kind(), ErrorKind::WouldBlock);
        let read = &written[..written.len() - left.len()];
        let records = read.iter().filter(|&&b| b == b'\n').count();
        assert!(
            records > 400 && !left.is_empty(),
            "pocl {pocl}: {records} records, {} of {} bytes left",
            left.len(),
            written.len()
        );
        let whole = read.iter().rposition(|&b| b == b'\n').unwrap() + 1;
        let expected = run(DIGITS, &["-d", "host", "-o", "class"], &read[..whole]).out;
        let classes: Vec<String> = out
            .iter()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["class"].to_string())
            .collect();
        assert_eq!(classes.len(), records, "pocl {pocl}");
        assert_eq!(classes, expected.lines().collect::<Vec<_>>(), "pocl {pocl}");
    }
}

#[test]
fn the_second_signal_kills_at_once() {
    for (first, second) in [(TERM, TERM), (TERM, INT)] {
        let folder = Folder::new();
        let (path, mut feed) = fifo(&folder);
        let (mut child, _) = blocked(false, &path, &mut feed);
        // timeout(1) sends its signal twice in a row, which counts as one.
        send(&child, first);
        sleep(Duration::from_millis(10));
        send(&child, first);
        sleep(Duration::from_millis(390));
        assert!(child.try_wait().unwrap().is_none());
        send(&child, second);
        assert_eq!(end(&mut child).signal(), Some(second));
    }
}

#[test]
fn a_fifo_without_a_writer_can_be_left_and_waited_for() {
    let folder = Folder::new();
    let path = folder.path("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let mut child = started(program(false).arg(&path), TERM);
    sleep(Duration::from_millis(50));
    send(&child, TERM);
    assert_eq!(end(&mut child).signal(), Some(TERM));
    let mut child = started(program(false).arg(&path).arg("model/digits/test.csv"), TERM);
    sleep(Duration::from_millis(50));
    assert!(
        child.try_wait().unwrap().is_none(),
        "a FIFO whose writer has not come yet has not ended"
    );
    let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
    for line in test_csv().split_inclusive('\n').take(3) {
        writer.write_all(line.as_bytes()).unwrap();
        sleep(Duration::from_millis(10));
    }
    drop(writer);
    let out = Lines::of(child.stdout.take()).rest();
    assert_eq!((end(&mut child).code(), out.len()), (Some(0), 600));
}

#[test]
fn a_question_is_answered_and_the_stream_goes_on() {
    for (pocl, profile) in [
        (false, None),
        (false, Some("--profile")),
        (false, Some("--profile=trace")),
        (true, Some("--profile=json")),
    ] {
        let mut child = started(program(pocl).args(profile), TERM);
        let mut stdin = child.stdin.take().unwrap();
        let (stdout, stderr) = (
            Lines::of(child.stdout.take()),
            Lines::of(child.stderr.take()),
        );
        let csv = test_csv();
        for (n, line) in csv.split_inclusive('\n').take(3).enumerate() {
            stdin.write_all(line.as_bytes()).unwrap();
            stdout.next();
            send(&child, USR1);
            if profile == Some("--profile=json") {
                let p: serde_json::Value = serde_json::from_str(&stderr.next()).unwrap();
                assert_eq!(p["records"].as_u64(), Some(n as u64 + 1));
                assert!(
                    p["steps"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .all(|s| s["run_us"]["total"].as_f64() > Some(0.0))
                );
                continue;
            }
            let text = stderr.table();
            assert!(
                text.contains(&format!("stream     {} records in {0} batches", n + 1)),
                "{text}"
            );
            assert!(
                text.starts_with("profile of digits on host") && text.contains("start-up"),
                "{text}"
            );
            assert_eq!(
                text.contains("is measured with --profile"),
                profile.is_none(),
                "{text}"
            );
            assert_eq!(
                text.contains("affine_host_panel"),
                profile.is_some(),
                "{text}"
            );
        }
        drop(stdin);
        assert!(end(&mut child).success());
        if profile == Some("--profile=trace") {
            // The table was printed on request. The trace comes at the end.
            let trace: serde_json::Value = serde_json::from_str(&stderr.rest().join("\n")).unwrap();
            assert!(
                trace["traceEvents"].as_array().unwrap().len() > 3 * 8,
                "{trace}"
            );
        }
    }
}

#[test]
fn input_without_end_can_be_asked_about_and_stopped() {
    for pocl in [false, true] {
        let mut child = started(program(pocl).args(["-f", "u8", "/dev/zero"]), TERM);
        let mut stdout = child.stdout.take().unwrap();
        // PoCL's compiler sets its own signal handler while the program starts, so the test waits
        // for the first answer.
        stdout.read_exact(&mut [0; 2]).unwrap();
        let lines = std::thread::spawn(move || {
            let (mut buffer, mut lines) = (vec![0; 1 << 16], 1u64);
            loop {
                match stdout.read(&mut buffer).unwrap() {
                    0 => return lines,
                    n => lines += buffer[..n].iter().filter(|&&b| b == b'\n').count() as u64,
                }
            }
        });
        let stderr = Lines::of(child.stderr.take());
        let mut seen = 0;
        for _ in 0..3 {
            send(&child, USR1);
            let text = stderr.table();
            let stream = text
                .lines()
                .find_map(|l| l.strip_prefix("stream     "))
                .unwrap();
            let records: u64 = stream.split(' ').next().unwrap().parse().unwrap();
            assert!(records > seen || seen == 0, "{text}");
            seen = records;
            sleep(Duration::from_millis(20));
        }
        send(&child, INT);
        assert_eq!(end(&mut child).signal(), Some(INT));
        let lines = lines.join().unwrap();
        assert!(
            lines >= seen && seen > 0,
            "{lines} lines, {seen} records when asked"
        );
    }
}

/// The program reads `--expect` before any record, so a FIFO stops it there.
#[test]
fn while_it_starts_a_stop_ends_it_at_once_and_a_question_waits() {
    let folder = Folder::new();
    let (path, mut both) = fifo(&folder);
    let starting = || started(program(false).arg("--expect").arg(&path), USR1);
    let mut child = starting();
    assert!(!has(&child, "SigCgt:", TERM) && !has(&child, "SigCgt:", INT));
    send(&child, TERM);
    assert_eq!(end(&mut child).signal(), Some(TERM));
    let mut child = starting();
    send(&child, USR1);
    // When the last user closes a FIFO, its content is lost.
    until("the open FIFO", || opened(&child, &path));
    both.write_all(b"1\n").unwrap();
    drop(both);
    let text = Lines::of(child.stderr.take()).table();
    assert!(text.contains("stream     0 records"), "{text}");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(test_csv().lines().next().unwrap().as_bytes())
        .unwrap();
    assert!(end(&mut child).success());
}

/// nohup, and shells for background jobs, ignore signals. The program does not change that.
#[test]
fn ignored_signals_stay_ignored() {
    let mut c = Command::new("sh");
    c.args(["-c", "trap '' INT; exec \"$0\" -d host", DIGITS])
        .current_dir(root());
    let mut child = started(c.stdin(Stdio::piped()).stdout(Stdio::piped()), TERM);
    assert!(has(&child, "SigIgn:", INT) && !has(&child, "SigCgt:", INT));
    send(&child, INT);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(test_csv().as_bytes())
        .unwrap();
    assert_eq!(Lines::of(child.stdout.take()).rest().len(), 597);
    assert!(end(&mut child).success());
}

/// If the reader died of the same signal, that is not reported. A full disk is.
#[test]
fn a_closed_or_full_output_while_stopping() {
    let folder = Folder::new();
    let (path, mut feed) = fifo(&folder);
    let (mut child, _) = blocked(false, &path, &mut feed);
    send(&child, INT);
    sleep(Duration::from_millis(50));
    drop(child.stdout.take());
    assert_eq!(end(&mut child).signal(), Some(INT));
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = started(program(false).arg("--profile=json").stdout(full), TERM);
    send(&child, USR1);
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(test_csv().lines().next().unwrap().as_bytes())
        .unwrap();
    stdin.write_all(b"\n").unwrap();
    assert_eq!(end(&mut child).code(), Some(1));
    let err = Lines::of(child.stderr.take()).rest().join("\n");
    assert!(err.contains("mortonnet: stdout: No space left"), "{err}");
}

/// Signals at any moment of the start, the stream and the end. Records that were read are answered
/// in order and correctly, and the other bytes are still in the FIFO. `MORTONNET_SIGNALS` is the
/// number of trials of a kind. docs/RELIABILITY.md has the figures of a thousand.
#[test]
fn at_any_time_what_was_read_is_answered() {
    const RECORDS: usize = 400;
    let trials: u64 = std::env::var("MORTONNET_SIGNALS").map_or(20, |n| n.parse().unwrap());
    let input: String = test_csv().split_inclusive('\n').take(RECORDS).collect();
    let expected = run(DIGITS, &["-d", "host"], &*input).out;
    let folder = Folder::new();
    let path = fifo(&folder).0;
    let kinds = [false, true]
        .into_iter()
        .flat_map(|pocl| [INT, TERM, USR1].map(|signal| (pocl, signal)));
    for (kind, (pocl, signal)) in kinds.enumerate() {
        let (mut takes, mut none, mut part, mut whole) = ([LONGEST; 2], 0, 0, 0);
        for trial in 0..trials {
            let what = format!("pocl {pocl}, signal {signal}, trial {trial}");
            let random = random_bytes(1000 * kind as u64 + trial, 64);
            // Open for both directions, so that neither end waits for the other.
            let both = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap();
            let (mut left, stdin) = (File::open(&path).unwrap(), File::open(&path).unwrap());
            let writer = OpenOptions::new().write(true).open(&path).unwrap();
            drop(both);
            let begin = Instant::now();
            let mut child = Process(program(pocl).stdin(stdin).spawn().unwrap());
            let (out, err) = (
                Lines::of(child.stdout.take()),
                Lines::of(child.stderr.take()),
            );
            // Every second trial measures from the first answer on.
            let (mut answers, in_stream) = (Vec::new(), trial % 2 == 1);
            let feeder = feed_in_pieces(writer, &input, in_stream, &random[8..]);
            if in_stream {
                answers.push(out.next());
            }
            let begin = if in_stream { Instant::now() } else { begin };
            // The first trials run to their end, which gives the shortest time.
            let takes = &mut takes[usize::from(in_stream)];
            if trial >= 4 {
                let share = f64::from(u16::from_le_bytes([random[0], random[1]])) / 65536.0;
                sleep(takes.mul_f64(share).saturating_sub(begin.elapsed()));
                // The program may have ended already.
                let kill = format!("kill -{signal} {} 2> /dev/null", child.id());
                let _ = Command::new("sh").args(["-c", &kill]).status();
            }
            let status = end(&mut child);
            if trial < 4 {
                *takes = begin.elapsed().min(*takes);
            }
            let mut rest = Vec::new();
            left.read_to_end(&mut rest).unwrap();
            feeder.join().unwrap();
            let read = &input.as_bytes()[..input.len() - rest.len()];
            let lines = read.iter().filter(|&&b| b == b'\n').count();
            let right: Vec<&str> = expected.lines().take(lines).collect();
            answers.extend(out.rest());
            let err = err.rest().join("\n");
            assert_eq!(answers, right, "{what}: {err}");
            match status.signal() {
                None => assert_eq!((status.code(), lines), (Some(0), RECORDS), "{what}: {err}"),
                // SIGUSR1 before its handler is set ends a program, which has read nothing yet.
                Some(s) => assert!(
                    s == signal && (s != USR1 || lines == 0),
                    "{what}: {status}: {err}"
                ),
            }
            assert!(!err.contains("panicked"), "{what}: {err}");
            let count = match lines {
                0 => &mut none,
                RECORDS => &mut whole,
                _ => &mut part,
            };
            *count += 1;
        }
        println!(
            "pocl {pocl}, signal {signal}: {trials} trials: {none} read nothing, {part} a part, \
             {whole} all"
        );
    }
}

/// Writes `text` in pieces of these sizes, with pauses if `slowly`.
fn feed_in_pieces(
    mut writer: File,
    text: &str,
    slowly: bool,
    sizes: &[u8],
) -> std::thread::JoinHandle<()> {
    let (text, sizes) = (text.to_string(), sizes.to_vec());
    std::thread::spawn(move || {
        let mut rest = text.as_bytes();
        if slowly {
            let line = text.find('\n').unwrap() + 1;
            writer.write_all(&rest[..line]).unwrap();
            rest = &rest[line..];
        }
        for size in sizes.iter().cycle() {
            let (piece, behind) = rest.split_at((16 * usize::from(*size)).min(rest.len()));
            writer.write_all(piece).unwrap();
            rest = behind;
            if rest.is_empty() {
                return;
            }
            if slowly {
                sleep(Duration::from_micros(u64::from(*size)));
            }
        }
    })
}
