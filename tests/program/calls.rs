//! Drivers that fail or answer nonsense: every call of a run, once each.

use super::support::{DIGITS, Folder, ICD_LOADER, Run, Witness, bounded, command, on, run, shim};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const RECORDS: usize = 25;

/// The first records, in batches of 10, on PoCL through a library that does what is set.
fn device(folder: &Folder, shim: &Path) -> Command {
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_SHIM_REAL", ICD_LOADER).env("MORTONNET_OPENCL", shim);
    c.env("POCL_DEVICES", "basic").args(["-d", "0", "-b", "10", "--plan", "mali-midgard"]);
    c
}

fn records() -> String {
    let all = fs::read_to_string("model/digits/test.csv").unwrap();
    all.lines().take(RECORDS).map(|l| format!("{l}\n")).collect()
}

/// Runs it; whatever the driver does, it must end soon and by itself.
fn ends(c: &mut Command, what: &str) -> Run {
    let r = bounded(c, records(), Duration::from_secs(60), 2 << 30);
    assert!(matches!(r.code, Some(0 | 1)), "{what}: {:?}\n{}", r.code, r.err);
    r
}

/// What was answered is right, and nothing is lost without an error.
fn right(r: &Run, expected: &str, what: &str) {
    assert!(expected.starts_with(&r.out), "{what}: {}", r.out);
    assert!(r.code == Some(1) || r.out == expected, "{what}: {}", r.out);
    assert!(r.code == Some(0) || !r.err.is_empty(), "{what}");
}

/// How often a run makes each call.
fn calls(folder: &Folder, shim: &Path) -> BTreeMap<String, usize> {
    let log = folder.path("calls");
    ends(device(folder, shim).env("MORTONNET_SHIM_LOG", &log), "no failure");
    let mut calls = BTreeMap::new();
    for name in fs::read_to_string(log).unwrap().lines() {
        *calls.entry(name.to_string()).or_default() += 1;
    }
    calls
}

/// Each call fails once, wherever it is: the first three and the last of its kind, as all between are made by the same lines.
#[test]
fn every_call_may_fail() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let expected = run(DIGITS, &["-d", "host"], records()).out;
    let calls = calls(&folder, &shim);
    assert!(calls.len() > 25 && expected.lines().count() == RECORDS, "{calls:?}");
    let mut errors = 0;
    for (name, count) in &calls {
        let mut places: Vec<usize> = (1..=*count).filter(|n| *n <= 3 || n == count).collect();
        places.push(0);
        for n in places {
            let fail = format!("{name}:{n}:-5");
            let r = ends(device(&folder, &shim).env("MORTONNET_SHIM_FAIL", &fail), &fail);
            right(&r, &expected, &fail);
            if r.code == Some(1) {
                errors += 1;
                assert!(r.err.contains(name.as_str()) && r.err.contains("(-5)"), "{fail}: {}", r.err);
            }
        }
    }
    assert!(errors > 40, "{errors}");
}

/// Objects that are not there although the driver says that all is well; sizes and counts that cannot be.
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
            let r = ends(device(&folder, &shim).env("MORTONNET_SHIM_FAIL", &fail), &fail);
            right(&r, &expected, &fail);
            if n <= 1 {
                assert!(r.code == Some(1) && r.err.contains(name.as_str()), "{fail}: {:?} {}", r.code, r.err);
            }
        }
    }
    let asks = |name: &&String| name.starts_with("clGet");
    for name in calls.keys().filter(asks) {
        for size in ["0", "1", "7", "300", "65536", "1099511627776", "18446744073709551615"] {
            let told = format!("{name}:{size}");
            let r = ends(device(&folder, &shim).env("MORTONNET_SHIM_SIZE", &told), &told);
            right(&r, &expected, &told);
        }
    }
    // A store in the cache is optional.
    for size in ["0", "1", "1099511627776"] {
        let cache = folder.path(&format!("cache {size}"));
        let mut c = device(&folder, &shim);
        let r = ends(c.env("MORTONNET_SHIM_BINARY", size).env("MORTONNET_CACHE", cache), size);
        assert_eq!((r.code, &r.out), (Some(0), &expected), "{size}: {}", r.err);
    }
}
