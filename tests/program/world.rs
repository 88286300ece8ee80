//! What a program meets outside: descriptors that are closed, files that may not grow, files without an end.

use super::support::{DIGITS, Folder, command, fifo, root, run};
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A line of a shell; the program is `$PROGRAM`. It must end soon.
fn shell(line: &str) -> (Option<i32>, String, String) {
    let mut c = Command::new("sh");
    let plain = command(DIGITS);
    c.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(root());
    let begin = Instant::now();
    let o = c.env("PROGRAM", DIGITS).arg("-c").arg(line).output().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20), "{line}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (o.status.code(), text(o.stdout), text(o.stderr))
}

#[test]
fn closed_descriptors_are_no_empty_files() {
    let bad = "Bad file descriptor";
    let (code, out, err) = shell("$PROGRAM -d host <&-");
    assert!(
        code == Some(1) && out.is_empty() && err.starts_with("mortonnet: stdin: ") && err.contains(bad),
        "{err}"
    );
    let (code, _, err) = shell("$PROGRAM -d host model/digits/test.csv >&-");
    assert!(code == Some(1) && err.starts_with("mortonnet: stdout: ") && err.contains(bad), "{err}");
    // With a file nobody needs stdin, and nobody need hear what is said.
    let (code, out, err) = shell("$PROGRAM -d host model/digits/test.csv <&- 2>&-");
    assert_eq!((code, out.lines().count(), &*err), (Some(0), 597, ""));
    // An empty input is one without records.
    assert_eq!(shell("$PROGRAM -d host < /dev/null").0, Some(0));
    assert_eq!(shell("$PROGRAM -d host <> /dev/null").0, Some(0));
}

#[test]
fn a_file_that_may_not_grow_is_an_error() {
    let folder = Folder::new();
    let file = folder.path("out");
    let line = format!("ulimit -f 2; $PROGRAM -d host -o json model/digits/test.csv > {}", file.display());
    let (code, _, err) = shell(&line);
    assert!(code == Some(1) && err.starts_with("mortonnet: stdout: File too large"), "{code:?} {err}");
    assert!(fs::metadata(file).unwrap().len() <= 2048);
}

/// Files that never end, or that nobody writes.
#[test]
fn files_without_an_end_are_refused() {
    for option in ["--expect", "--expect-scores"] {
        let (code, _, err) = shell(&format!("$PROGRAM -d host {option} /dev/zero model/digits/test.csv"));
        assert!(code == Some(1) && err.contains("/dev/zero"), "{code:?} {err}");
    }
    let folder = Folder::new();
    let pipe = folder.path("fifo");
    fifo(&pipe);
    let (code, _, err) = shell(&format!("MORTONNET_OPENCL={} $PROGRAM -d opencl", pipe.display()));
    assert!(code == Some(1) && err.contains("it is no plain file"), "{code:?} {err}");
    // More labels than an idx file says.
    let mut labels = vec![0, 0, 8, 1, 0, 0, 0, 2];
    labels.extend([1; 1 << 17]);
    let file = folder.put("labels", labels);
    let (code, _, err) =
        shell(&format!("$PROGRAM -d host --expect {} model/digits/test.csv", file.display()));
    assert!(code == Some(1) && err.contains("expected 2 labels, found "), "{code:?} {err}");
}

/// A question that comes before anything was read is answered, and ends nothing.
#[test]
fn questions_may_come_at_any_time() {
    let expected = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    for pause in 0..40 {
        let mut c = command(DIGITS);
        c.args(["-d", "host"]).stdin(File::open(root().join("model/digits/test.csv")).unwrap());
        let child = c.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // From the moment on at which its own code runs: its first call.
        let handles = |child: u32| {
            let about = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
            let caught = about.lines().find_map(|l| l.strip_prefix("SigCgt:")).map(|l| l.trim().to_string());
            caught.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).is_some_and(|mask| mask >> 9 & 1 == 1)
        };
        let begin = Instant::now();
        while !handles(child.id()) && begin.elapsed() < Duration::from_millis(200) {}
        std::thread::sleep(Duration::from_micros(50 * pause));
        let _ = Command::new("kill").arg("-USR1").arg(child.id().to_string()).stderr(Stdio::null()).status();
        let o = child.wait_with_output().unwrap();
        assert_eq!((o.status.code(), String::from_utf8(o.stdout).unwrap()), (Some(0), expected.clone()));
    }
}
