//! Drivers that fail or return nonsense, once for each call of a run.

use super::support::{
    DIGITS, Folder, ICD_LOADER, Run, Witness, bounded, checksum, command, on, run, shim,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const RECORDS: usize = 25;

/// Makes a command for the first records in batches of 10, on PoCL through the shim.
pub fn device(folder: &Folder, shim: &Path) -> Command {
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_SHIM_REAL", ICD_LOADER)
        .env("MORTONNET_OPENCL", shim);
    c.env("POCL_DEVICES", "basic")
        .args(["-d", "0", "-b", "10", "--plan", "mali-midgard"]);
    c
}

pub fn records() -> String {
    let all = fs::read_to_string("model/digits/test.csv").unwrap();
    all.lines()
        .take(RECORDS)
        .map(|l| format!("{l}\n"))
        .collect()
}

/// Runs the command. It must end by itself within 60 s, for any behaviour of the driver.
fn ends(c: &mut Command, what: &str) -> Run {
    let r = bounded(c, records(), Duration::from_secs(60), 2 << 30);
    assert!(
        matches!(r.code, Some(0 | 1)),
        "{what}: {:?}\n{}",
        r.code,
        r.err
    );
    r
}

/// Checks that all answers are right and that missing ones come with an error.
pub fn right(r: &Run, expected: &str, what: &str) {
    assert!(expected.starts_with(&r.out), "{what}: {}", r.out);
    assert!(r.code == Some(1) || r.out == expected, "{what}: {}", r.out);
    assert!(r.code == Some(0) || !r.err.is_empty(), "{what}");
}

/// Returns how often a run makes each call.
pub fn calls(folder: &Folder, shim: &Path) -> BTreeMap<String, usize> {
    let log = folder.path("calls");
    ends(
        device(folder, shim).env("MORTONNET_SHIM_LOG", &log),
        "no failure",
    );
    counted(&log)
}

/// Counts the calls in a log.
pub fn counted(log: &Path) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for name in fs::read_to_string(log).unwrap().lines() {
        *calls.entry(name.to_string()).or_default() += 1;
    }
    calls
}

/// Makes a command under `auto` on PoCL through the shim, where PoCL reports a GPU.
pub fn auto(folder: &Folder, shim: &Path) -> Command {
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_SHIM_REAL", ICD_LOADER)
        .env("MORTONNET_OPENCL", shim)
        .env("POCL_DEVICES", "basic");
    c.env("MORTONNET_SHIM_ANSWER", "*:1000=4")
        .env("MORTONNET_CACHE", folder.path("cache"));
    c.args(["-v", "-b", "4096"]);
    c
}

/// Changes the record of the first start so that the device is faster than the host.
pub fn prefer_device(folder: &Folder) {
    for entry in fs::read_dir(folder.path("cache")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("trial-")
        {
            let text = fs::read_to_string(&path).unwrap();
            let text = format!(
                "{}\nright 0.001 1000",
                text.split_once("\nright ").unwrap().0
            );
            let sum = checksum(format!("{text}\0").as_bytes());
            fs::write(&path, format!("{text}\nchecksum {sum:016x}\n")).unwrap();
        }
    }
}

/// For each kind of call, fails one of the first three, the last, or all. The calls between are
/// made by the same lines.
#[test]
fn every_call_may_fail() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let expected = run(DIGITS, &["-d", "host"], records()).out;
    let calls = calls(&folder, &shim);
    assert!(
        calls.len() > 25 && expected.lines().count() == RECORDS,
        "{calls:?}"
    );
    let mut errors = 0;
    for (name, count) in &calls {
        let mut places: Vec<usize> = (1..=*count).filter(|n| *n <= 3 || n == count).collect();
        places.push(0);
        for n in places {
            let fail = format!("{name}:{n}:-5");
            let r = ends(
                device(&folder, &shim).env("MORTONNET_SHIM_FAIL", &fail),
                &fail,
            );
            right(&r, &expected, &fail);
            if r.code == Some(1) {
                errors += 1;
                assert!(
                    r.err.contains(name.as_str()) && r.err.contains("(-5)"),
                    "{fail}: {}",
                    r.err
                );
            }
        }
    }
    assert!(errors > 40, "{errors}");
}

/// A kernel fails on the device, and only the event of its launch shows it. Waiting, mapping and
/// finishing succeed. Another kernel does nothing, without an error. A result that no kernel wrote
/// is never printed.
#[test]
fn a_kernel_that_fails_on_the_device_is_an_error() {
    let folder = Folder::new();
    let expected = run(DIGITS, &["-d", "host"], records()).out;
    for (options, discrete) in [
        (&[][..], false),
        (&[], true),
        (&["-DSHIM_ONLY_1_1"], false),
        (&["-DSHIM_ONLY_1_1"], true),
    ] {
        let shim = shim(&folder, options);
        let log = folder.path("launches");
        let run = |settings: &[(&str, String)], args: &[&str]| {
            let mut c = device(&folder, &shim);
            if discrete {
                c.env("MORTONNET_SHIM_DISCRETE", "1");
            }
            let what = format!("{options:?} {discrete} {settings:?} {args:?}");
            let r = ends(
                c.envs(settings.iter().map(|(name, value)| (name, value)))
                    .args(args),
                &what,
            );
            right(&r, &expected, &what);
            (r, what)
        };
        let _ = fs::remove_file(&log);
        assert_eq!(
            run(&[("MORTONNET_SHIM_LOG", log.to_str().unwrap().into())], &[])
                .0
                .code,
            Some(0)
        );
        let launches = counted(&log)["clEnqueueNDRangeKernel"];
        assert!(launches >= 3, "{launches}");
        for n in 0..=launches {
            for args in [&[][..], &["--profile"]] {
                let (r, what) = run(&[("MORTONNET_SHIM_EVENT", format!("0:{n}:-5"))], args);
                assert_eq!(r.code, Some(1), "{what}: {}", r.err);
                assert!(
                    r.err.contains("clEnqueueNDRangeKernel of ") && r.err.contains("(-5)"),
                    "{what}: {}",
                    r.err
                );
            }
        }
        for n in 1..=launches {
            // The rest of the batch may be right: either the whole batch is idle, or later steps
            // use old data.
            let (r, what) = run(&[("MORTONNET_SHIM_IDLE", format!("0:{n}"))], &[]);
            let none = " has no result, although every launch ended without an error";
            assert!(
                r.code == Some(1) && r.err.contains(none),
                "{what}: {}",
                r.err
            );
        }
    }
}

/// The driver reports success without an object, or impossible sizes and counts.
#[test]
fn every_answer_may_be_nonsense() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let expected = run(DIGITS, &["-d", "host"], records()).out;
    let calls = calls(&folder, &shim);
    let makes = |name: &&String| name.starts_with("clCreate") || name.starts_with("clEnqueueMap");
    let makers: Vec<&String> = calls.keys().filter(makes).collect();
    assert!(makers.len() >= 6, "{makers:?}");
    for name in makers {
        for n in [1, 2, calls[name], 0] {
            let fail = format!("{name}:{n}:-9999");
            let r = ends(
                device(&folder, &shim).env("MORTONNET_SHIM_FAIL", &fail),
                &fail,
            );
            right(&r, &expected, &fail);
            if n <= 1 {
                assert!(
                    r.code == Some(1) && r.err.contains(name.as_str()),
                    "{fail}: {:?} {}",
                    r.code,
                    r.err
                );
            }
        }
    }
    let asks = |name: &&String| name.starts_with("clGet");
    for name in calls.keys().filter(asks) {
        for size in [
            "0",
            "1",
            "7",
            "300",
            "65536",
            "1099511627776",
            "18446744073709551615",
        ] {
            let told = format!("{name}:{size}");
            let r = ends(
                device(&folder, &shim).env("MORTONNET_SHIM_SIZE", &told),
                &told,
            );
            right(&r, &expected, &told);
        }
    }
    // Storing in the cache is optional.
    for size in ["0", "1", "1099511627776"] {
        let cache = folder.path(&format!("cache {size}"));
        let mut c = device(&folder, &shim);
        let r = ends(
            c.env("MORTONNET_SHIM_BINARY", size)
                .env("MORTONNET_CACHE", cache),
            size,
        );
        assert_eq!((r.code, &r.out), (Some(0), &expected), "{size}: {}", r.err);
    }
}

/// Under `auto` no failing call ends the stream. The host takes over, and no record is lost.
#[test]
fn the_host_takes_over_under_auto() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let input = fs::read_to_string("model/digits/test.csv")
        .unwrap()
        .repeat(20);
    let expected = run(DIGITS, &["-d", "host"], input.clone()).out;
    let run = |settings: &[(&str, &str)]| {
        let mut c = auto(&folder, &shim);
        bounded(
            c.envs(settings.iter().copied()),
            input.clone(),
            Duration::from_secs(60),
            2 << 30,
        )
    };
    // After this first start, the record is changed so that the device is faster.
    assert_eq!(run(&[]).out, expected);
    prefer_device(&folder);
    let log = folder.path("calls");
    let whole = run(&[("MORTONNET_SHIM_LOG", log.to_str().unwrap())]);
    assert_eq!(
        (whole.code, &whole.out),
        (Some(0), &expected),
        "{}",
        whole.err
    );
    assert!(
        whole
            .err
            .contains("measured 0.001 µs a record on it, 1000.000 on the host"),
        "{}",
        whole.err
    );
    let calls = counted(&log);
    let mut taken_over = 0;
    for (name, &count) in &calls {
        for n in (1..=count).filter(|n| *n <= 2 || count - n < 4).chain([0]) {
            let fail = format!("{name}:{n}:-5");
            let r = run(&[("MORTONNET_SHIM_FAIL", &fail)]);
            assert_eq!((r.code, &r.out), (Some(0), &expected), "{fail}: {}", r.err);
            taken_over += usize::from(r.err.contains(" of the run on the host computes"));
        }
    }
    assert!(taken_over >= 5, "{taken_over} of {calls:?}");
    // The records of a failing batch are computed again, in any batch. The input is a file, because
    // a pause in a pipe ends a batch early.
    let file = folder.path("records.csv");
    fs::write(&file, &input).unwrap();
    let mut batches = std::collections::BTreeSet::new();
    for launch in 1..=12 {
        let mut c = auto(&folder, &shim);
        c.env("MORTONNET_SHIM_DIE", format!("0:{launch}:-36"))
            .arg(&file);
        let r = bounded(&mut c, "", Duration::from_secs(60), 2 << 30);
        assert_eq!(
            (r.code, &r.out),
            (Some(0), &expected),
            "{launch}: {}",
            r.err
        );
        let first = r
            .err
            .split("; from record ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        batches.extend(first.map(str::to_string));
    }
    assert!(
        batches.contains("1") && batches.contains("4097"),
        "{batches:?}"
    );
    for launch in [0, 1, 2, 5] {
        let mut c = auto(&folder, &shim);
        c.env("MORTONNET_SHIM_EVENT", format!("0:{launch}:-5"))
            .arg(&file);
        let r = bounded(&mut c, "", Duration::from_secs(60), 2 << 30);
        assert_eq!(
            (r.code, &r.out),
            (Some(0), &expected),
            "{launch}: {}",
            r.err
        );
        assert!(
            r.err.contains(" of the run on the host computes") && r.err.contains("(-5)"),
            "{launch}: {}",
            r.err
        );
    }
    // A failing device that was named ends the run.
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_SHIM_REAL", ICD_LOADER)
        .env("MORTONNET_OPENCL", &shim)
        .env("MORTONNET_SHIM_DIE", "0:30:-36");
    let r = bounded(
        c.args(["-d", "0", "-b", "10"]),
        input,
        Duration::from_secs(60),
        2 << 30,
    );
    assert!(
        r.code == Some(1) && expected.starts_with(&r.out) && !r.out.is_empty(),
        "{:?} {}",
        r.code,
        r.err
    );
}
