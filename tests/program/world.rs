//! Unusual environments: closed descriptors, files that may not grow, files without an end.

use super::support::{DIGITS, Folder, Witness, command, feed, fifo, on, root, run};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a line in a shell, where the program is `$PROGRAM`, and fails if it does not end soon.
fn shell(line: &str) -> (Option<i32>, String, String) {
    let mut c = Command::new("sh");
    let plain = command(DIGITS);
    c.envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    )
    .current_dir(root());
    let begin = Instant::now();
    let o = c
        .env("PROGRAM", DIGITS)
        .arg("-c")
        .arg(line)
        .output()
        .unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20), "{line}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (o.status.code(), text(o.stdout), text(o.stderr))
}

#[test]
fn closed_descriptors_are_no_empty_files() {
    let bad = "Bad file descriptor";
    let (code, out, err) = shell("$PROGRAM -d host <&-");
    assert!(
        code == Some(1)
            && out.is_empty()
            && err.starts_with("mortonnet: stdin: ")
            && err.contains(bad),
        "{err}"
    );
    let (code, _, err) = shell("$PROGRAM -d host model/digits/test.csv >&-");
    assert!(
        code == Some(1) && err.starts_with("mortonnet: stdout: ") && err.contains(bad),
        "{err}"
    );
    // With a file as input, the program needs neither stdin nor stderr.
    let (code, out, err) = shell("$PROGRAM -d host model/digits/test.csv <&- 2>&-");
    assert_eq!((code, out.lines().count(), &*err), (Some(0), 597, ""));
    // An empty input has no records.
    assert_eq!(shell("$PROGRAM -d host < /dev/null").0, Some(0));
    assert_eq!(shell("$PROGRAM -d host <> /dev/null").0, Some(0));
}

#[test]
fn a_file_that_may_not_grow_is_an_error() {
    let folder = Folder::new();
    let file = folder.path("out");
    let line = format!(
        "ulimit -f 2; $PROGRAM -d host -o json model/digits/test.csv > {}",
        file.display()
    );
    let (code, _, err) = shell(&line);
    assert!(
        code == Some(1) && err.starts_with("mortonnet: stdout: File too large"),
        "{code:?} {err}"
    );
    assert!(fs::metadata(file).unwrap().len() <= 2048);
}

/// Files that never end, or without a writer.
#[test]
fn files_without_an_end_are_refused() {
    for option in ["--expect", "--expect-scores"] {
        let (code, _, err) = shell(&format!(
            "$PROGRAM -d host {option} /dev/zero model/digits/test.csv"
        ));
        assert!(
            code == Some(1) && err.contains("/dev/zero"),
            "{code:?} {err}"
        );
    }
    let folder = Folder::new();
    let pipe = folder.path("fifo");
    fifo(&pipe);
    let (code, _, err) = shell(&format!(
        "MORTONNET_OPENCL={} $PROGRAM -d opencl",
        pipe.display()
    ));
    assert!(
        code == Some(1) && err.contains("not a regular file"),
        "{code:?} {err}"
    );
    // The file has more labels than its idx header says.
    let mut labels = vec![0, 0, 8, 1, 0, 0, 0, 2];
    labels.extend([1; 1 << 17]);
    let file = folder.put("labels", labels);
    let (code, _, err) = shell(&format!(
        "$PROGRAM -d host --expect {} model/digits/test.csv",
        file.display()
    ));
    assert!(
        code == Some(1) && err.contains("expected 2 labels, found "),
        "{code:?} {err}"
    );
}

/// With too little memory or too few descriptors, a run ends before the first record. It prints one
/// error, or the message of the loader or allocator. Otherwise every record is answered.
#[test]
fn limits_end_a_run_at_its_start_or_not_at_all() {
    let expected = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    let own = |err: &str| err.lines().any(|l| l.starts_with("mortonnet: "));
    let (mut errors, mut complete) = (0, 0);
    for kilobytes in (1000..=16_000).step_by(250) {
        // The default batch size depends on the machine.
        let line =
            format!("ulimit -v {kilobytes}; exec $PROGRAM -d host -b 256 model/digits/test.csv");
        let (code, out, err) = shell(&line);
        let what = format!("{kilobytes} KB: {code:?} {err}");
        match code {
            Some(0) => assert_eq!((&out, &*err), (&expected, ""), "{what}"),
            // After the program has started, only the program itself reports the lack of memory.
            Some(1) => assert!(
                out.is_empty() && own(&err) && err.contains("memory"),
                "{what}"
            ),
            Some(127) => assert!(
                out.is_empty() && err.contains("while loading shared libraries"),
                "{what}"
            ),
            // The system kills a program that it cannot load. Before `main`, Rust's runtime aborts
            // without room for the stack of its signal handlers. The allocator aborts without room
            // for some bytes.
            None => {
                let aborted = [
                    "memory allocation of",
                    "failed to allocate an alternative stack",
                ];
                assert!(
                    out.is_empty()
                        && (err.is_empty() || aborted.iter().any(|reason| err.contains(reason))),
                    "{what}"
                )
            }
            Some(_) => panic!("{what}"),
        }
        errors += u32::from(code == Some(1));
        complete += u32::from(code == Some(0));
    }
    assert!(
        errors >= 3 && complete >= 10,
        "{errors} errors, {complete} whole runs"
    );
    for descriptors in 0..12 {
        let line = format!("ulimit -n {descriptors}; exec $PROGRAM -d host model/digits/test.csv");
        let (code, out, err) = shell(&line);
        let what = format!("{descriptors} descriptors: {code:?} {err}");
        match code {
            Some(0) => assert_eq!((&out, &*err), (&expected, ""), "{what}"),
            // There are too few descriptors for the dynamic loader, the network's file or the
            // input.
            Some(1 | 127) => assert!(out.is_empty() && (own(&err) || descriptors < 4), "{what}"),
            _ => panic!("{what}"),
        }
    }
}

/// A stream allocates nothing: a limit at the memory in use when it begins is enough.
#[test]
fn a_stream_needs_nothing_more() {
    let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
    let (first, rest) = csv.split_at(csv.find('\n').unwrap() + 1);
    let expected = run(DIGITS, &["-d", "host", "-o", "json"], &*csv).out;
    let mut c = command(DIGITS);
    c.args(["-d", "host", "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = c.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(first.as_bytes()).unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut answers = String::new();
    stdout.read_line(&mut answers).unwrap();
    let about = fs::read_to_string(format!("/proc/{}/statm", child.id())).unwrap();
    let pages: u64 = about.split(' ').next().unwrap().parse().unwrap();
    for (limit, most) in [("as", pages * 4096), ("nofile", 0)] {
        let pid = child.id().to_string();
        let prlimit = Command::new("prlimit")
            .args(["--pid", &pid, &format!("--{limit}={most}")])
            .status();
        assert!(prlimit.unwrap().success());
    }
    let feeder = thread::spawn({
        let rest = rest.to_string();
        move || stdin.write_all(rest.as_bytes()).unwrap()
    });
    stdout.read_to_string(&mut answers).unwrap();
    feeder.join().unwrap();
    let o = child.wait_with_output().unwrap();
    assert_eq!(
        (o.status.code(), answers),
        (Some(0), expected),
        "{}",
        String::from_utf8_lossy(&o.stderr)
    );
}

/// Without /proc and HOME the answers are the same, on the host and on a device.
#[test]
fn without_proc_and_without_home() {
    let expected = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    let namespace = ["--user", "--map-root-user", "--mount"];
    let may = Command::new("unshare")
        .args(namespace)
        .arg("true")
        .output()
        .is_ok_and(|o| o.status.success());
    if !may {
        eprintln!("unshare {namespace:?} is not permitted here: /proc stays");
    }
    for device in ["host", "opencl", "auto"] {
        let mut c = match may {
            true => Command::new("unshare"),
            false => Command::new("sh"),
        };
        if may {
            c.args(namespace).args([
                "sh",
                "-c",
                "mount -t tmpfs none /proc && [ ! -e /proc/self ] && exec \"$@\"",
                "sh",
            ]);
        } else {
            c.args(["-c", "exec \"$@\"", "sh"]);
        }
        on(Witness::Pocl, &mut c, Path::new("/dev/null"));
        for name in [
            "HOME",
            "XDG_CACHE_HOME",
            "CACHE_DIRECTORY",
            "MORTONNET_CACHE",
        ] {
            c.env_remove(name);
        }
        let r = feed(
            c.current_dir(root())
                .args([DIGITS, "-d", device, "model/digits/test.csv"]),
            "",
        );
        assert_eq!(
            (r.code, r.out),
            (Some(0), expected.clone()),
            "{device}: {}",
            r.err
        );
    }
}

/// SIGUSR1 before the first record is answered and does not end the run.
#[test]
fn questions_may_come_at_any_time() {
    let expected = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    for pause in 0..40 {
        let mut c = command(DIGITS);
        c.args(["-d", "host"])
            .stdin(File::open(root().join("model/digits/test.csv")).unwrap());
        let child = c
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Waits until the program's own code runs, which first sets a handler.
        let handles = |child: u32| {
            let about = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
            let caught = about
                .lines()
                .find_map(|l| l.strip_prefix("SigCgt:"))
                .map(|l| l.trim().to_string());
            caught
                .and_then(|mask| u64::from_str_radix(&mask, 16).ok())
                .is_some_and(|mask| mask >> 9 & 1 == 1)
        };
        let begin = Instant::now();
        while !handles(child.id()) && begin.elapsed() < Duration::from_millis(200) {}
        thread::sleep(Duration::from_micros(50 * pause));
        let _ = Command::new("kill")
            .arg("-USR1")
            .arg(child.id().to_string())
            .stderr(Stdio::null())
            .status();
        let o = child.wait_with_output().unwrap();
        assert_eq!(
            (o.status.code(), String::from_utf8(o.stdout).unwrap()),
            (Some(0), expected.clone())
        );
    }
}
