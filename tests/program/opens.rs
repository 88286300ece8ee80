//! Checks with strace which files the program opens: its arguments, its libraries, its cache, and
//! the places of GPUs.

use super::support::{DIGITS, Folder, command, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The files that the GNU C library reads in programs with threads. Older versions also read the
/// number of processors. `free` asks for the system's overcommit setting before it gives a thread's
/// heap back. Libraries are allowed by name, in any folder.
const START: [&str; 5] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/proc/self/maps",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu/online",
];
const LIBRARIES: [&str; 6] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
];

/// The places where the program looks for GPUs to report what is missing, if there is no OpenCL
/// device. docs/THREATS.md has the list.
const NODES: [&str; 3] = ["/dev", "/etc/group", "/sys/class/drm"];

/// A call with a path. `changes` is true if it modifies the file.
struct Call {
    line: String,
    path: PathBuf,
    changes: bool,
}

/// Runs the program under strace with the digits on stdin, and returns its calls with a path. A
/// network call or another program fails the test.
fn calls(args: &[&str], settings: &[(&str, &Path)], code: i32) -> Vec<Call> {
    let folder = Folder::new();
    let log = folder.path("strace");
    let plain = command(DIGITS);
    let mut c = Command::new("strace");
    c.args([
        "-f",
        "-qq",
        "-s",
        "4096",
        "--trace=%file,%network,%process",
        "-o",
    ])
    .arg(&log)
    .arg(DIGITS)
    .args(args);
    c.envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    // cargo sets this variable for tests, and the dynamic loader would search its folders.
    c.env_remove("LD_LIBRARY_PATH")
        .env_remove("RUST_BACKTRACE")
        .envs(settings.iter().copied());
    let input = fs::File::open(root().join("model/digits/test.csv")).unwrap();
    let output = c
        .current_dir(root())
        .stdin(input)
        .stderr(Stdio::piped())
        .output();
    let output = output.expect("strace is missing: tests/run installs it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    let mut calls = Vec::new();
    for line in fs::read_to_string(&log).unwrap().lines() {
        let call = line.split_once(' ').unwrap().1.trim_start();
        let name = call.split('(').next().unwrap();
        let about_files = call.contains('"');
        match name {
            "execve" if calls.is_empty() => continue,
            "clone" | "clone3" | "exit" | "exit_group" => assert!(
                !name.starts_with("clone")
                    || call.contains("CLONE_THREAD")
                    || call.contains("<unfinished"),
                "a process is started: {line}"
            ),
            _ if call.starts_with("<...") || call.starts_with("+++") || call.starts_with("---") => {
            }
            // The thread ended before strace knew its next call, so the call was not made.
            "???" => {}
            // The standard library checks in this way that the call exists.
            "statx" if call.starts_with("statx(0, NULL, ") => {}
            _ => assert!(
                about_files,
                "{args:?}: neither about files nor threads: {line}"
            ),
        }
        // fstat is a call with an empty path.
        let Some(path) = call
            .split('"')
            .nth(1)
            .filter(|path| !path.is_empty() && about_files)
        else {
            continue;
        };
        let opens = name == "openat" || name == "open";
        let looks = [
            "access",
            "faccessat",
            "faccessat2",
            "stat",
            "lstat",
            "newfstatat",
            "statx",
            "readlink",
        ];
        let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"]
            .iter()
            .any(|flag| call.contains(flag));
        let changes = if opens {
            writes
        } else {
            !looks.contains(&name)
        };
        calls.push(Call {
            line: line.to_string(),
            path: root().join(path),
            changes,
        });
    }
    assert!(
        calls.iter().any(|c| c.path.ends_with("libc.so.6")),
        "{args:?}: strace saw nothing"
    );
    calls
}

/// Fails on a call that concerns anything but the system's libraries, the files and folders in
/// `read`, and those in `changed`, which may be modified.
fn only(calls: &[Call], what: &str, read: &[&Path], changed: &[&Path]) {
    let within = |path: &Path, all: &[&Path]| all.iter().any(|a| path.starts_with(a));
    for Call {
        line,
        path,
        changes,
    } in calls
    {
        let library = LIBRARIES.iter().any(|name| path.ends_with(name));
        let start = library || START.iter().any(|s| path == Path::new(s));
        let fine = within(path, changed) || !changes && (start || within(path, read));
        assert!(fine, "{what}: {line}");
    }
}

#[test]
fn a_stream_on_the_host_opens_what_it_was_told_and_its_cache() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    let settings: [(&str, &Path); 2] = [
        ("MORTONNET_CACHE", &cache),
        ("MORTONNET_OPENCL", Path::new("")),
    ];
    let labels = root().join("model/digits/test_labels.csv");
    let records = root().join("model/digits/test.csv");
    let trace = folder.path("trace.json");
    let profile = format!("--profile=trace:{}", trace.display());
    let (names, said) = (
        [
            "model/digits/test.csv",
            "--expect",
            "model/digits/test_labels.csv",
        ],
        &*profile,
    );
    let cases: [(&[&str], &[&Path], &[&Path]); 7] = [
        (&["-d", "host"], &[], &[]),
        // The network is so small that no device is searched.
        (&[], &[], &[]),
        (&names, &[&records, &labels], &[]),
        (
            &[names[0], names[1], names[2], said],
            &[&records, &labels],
            &[&trace],
        ),
        (&["-d", "host", "--selftest"], &[], &[]),
        (&["-d", "host", "--info"], &[], &[]),
        (
            &[
                "-d", "host", "-v", "--output", "json", "--window", "64", "-f", "u8",
            ],
            &[],
            &[],
        ),
    ];
    for (args, read, changed) in cases {
        only(
            &calls(args, &settings, 0),
            &format!("{args:?}"),
            &[read, &[&cache]].concat(),
            changed,
        );
    }
    assert!(!cache.exists(), "nothing to remember: no folder is made");
    let off = [("MORTONNET_CACHE", Path::new("")), settings[1]];
    only(
        &calls(&["-d", "host"], &off, 0),
        "without a cache",
        &[],
        &[],
    );
}

#[test]
fn tune_writes_into_the_cache_and_bench_where_it_was_told() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    let settings: [(&str, &Path); 2] = [
        ("MORTONNET_CACHE", &cache),
        ("MORTONNET_OPENCL", Path::new("")),
    ];
    let tune = calls(&["tune", "-d", "host", "--time-limit", "2"], &settings, 0);
    only(&tune, "tune", &[], &[&cache]);
    assert!(
        tune.iter().any(|c| c.changes && c.path.starts_with(&cache)),
        "tune remembers what it found"
    );
    let plan = folder.path("plan.json");
    let saves = calls(
        &[
            "tune",
            "-d",
            "host",
            "--time-limit",
            "2",
            "--save",
            plan.to_str().unwrap(),
        ],
        &settings,
        0,
    );
    only(&saves, "tune --save", &[], &[&cache, &plan]);
    only(
        &calls(
            &["bench", "network", "-d", "host", "--shape", "8-4"],
            &settings,
            0,
        ),
        "bench",
        &[&cache],
        &[],
    );
    let page = folder.path("page.html");
    let model = [
        "bench",
        "--cache-model",
        "--sizes",
        "8",
        "--report",
        page.to_str().unwrap(),
    ];
    // The standard library reads the control group to count the cores.
    let cores = [
        "/proc/self/cgroup",
        "/proc/self/mountinfo",
        "/sys/fs/cgroup",
    ]
    .map(Path::new);
    only(
        &calls(&model, &settings, 0),
        "bench --report",
        &cores,
        &[&page],
    );
    assert!(plan.exists() && page.exists());
}

/// The program loads the named library, which has no OpenCL, and nothing else. Then it looks for
/// GPUs.
#[test]
fn without_a_device_it_looks_where_gpus_would_be() {
    let folder = Folder::new();
    let library = folder.path("libnothing.so");
    let source = folder.put("nothing.c", "int nothing;\n");
    let cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    assert!(cc.unwrap().success());
    let settings: [(&str, &Path); 2] = [
        ("MORTONNET_OPENCL", &library),
        ("MORTONNET_CACHE", Path::new("")),
    ];
    let nodes = NODES.map(Path::new);
    for args in [&["--list-devices"][..], &["-d", "opencl"]] {
        let found = calls(args, &settings, 1);
        assert!(found.iter().any(|c| c.path == library), "{args:?}");
        // A GPU's node is opened for writing to find out if that is permitted.
        let (asked, rest): (Vec<Call>, Vec<Call>) = found.into_iter().partition(|c| {
            c.path.starts_with("/dev")
                && c.line.contains("O_RDWR|O_NONBLOCK")
                && !c.line.contains("O_CREAT")
        });
        only(
            &rest,
            &format!("{args:?}"),
            &[&nodes[..], &[&library]].concat(),
            &[],
        );
        for call in asked {
            let name = call.path.file_name().unwrap().to_str().unwrap().to_string();
            let gpus = [
                "mali",
                "kgsl",
                "nvidia",
                "nvhost-gpu",
                "galcore",
                "vchiq",
                "pvr",
                "kfd",
                "renderD",
            ];
            assert!(
                gpus.iter().any(|gpu| name.starts_with(gpu)),
                "{}",
                call.line
            );
        }
    }
    // Under `auto`, a network that is large enough for a device makes the same calls before the
    // host takes over.
    let missing = folder.path("missing.so");
    let settings: [(&str, &Path); 2] = [
        ("MORTONNET_OPENCL", &missing),
        ("MORTONNET_CACHE", Path::new("")),
    ];
    let found = calls(&["--list-devices"], &settings, 1);
    let (_, rest): (Vec<Call>, Vec<Call>) = found
        .into_iter()
        .partition(|c| c.path.starts_with("/dev") && c.line.contains("O_RDWR"));
    only(
        &rest,
        "a missing library",
        &[&nodes[..], &[&missing]].concat(),
        &[],
    );
}
