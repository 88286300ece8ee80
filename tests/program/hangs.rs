//! Drivers that hang, once in each kind of call, with a short time limit.

use super::calls::{auto, calls, counted, device, prefer_device, records, right};
use super::multi::two;
use super::support::{DIGITS, Folder, Run, bounded, command, run, shim};
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// The time limit of a call in seconds. At start and in the first batch it is six times as long,
/// and twenty times for compilation.
const LIMIT: &str = "1";

/// Runs the command, which must end within 60 s for any behaviour of the driver.
fn ends(c: &mut Command, input: &str) -> Run {
    bounded(
        c.args(["--timeout", LIMIT]),
        input,
        Duration::from_secs(60),
        2 << 30,
    )
}

/// Runs `work` on `items`, twelve at a time, because most of the time they wait.
fn beside<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                loop {
                    let Some(item) = items.lock().unwrap().pop() else {
                        return;
                    };
                    work(item);
                }
            });
        }
    });
}

/// The run ends with an error that names the device, after the finished answers were printed.
#[test]
fn a_named_device_that_hangs_ends_the_run() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let expected = run(DIGITS, &["-d", "host"], records()).out;
    let calls = calls(&folder, &shim);
    let places = calls.iter().flat_map(|(name, &count)| {
        let last = (count > 1).then_some(count);
        [Some(1), last]
            .into_iter()
            .flatten()
            .map(move |n| format!("{name}:{n}:-9998"))
    });
    let (places, hung) = (places.collect::<Vec<_>>(), Mutex::new((0, 0)));
    assert!(places.len() > 40, "{places:?}");
    beside(places, |hang| {
        let r = ends(
            device(&folder, &shim).env("MORTONNET_SHIM_FAIL", &hang),
            &records(),
        );
        right(&r, &expected, &hang);
        // Releasing calls hang only after all records were answered, and the run succeeds.
        assert!(
            r.err.contains("no answer for "),
            "{hang}: {:?} {}",
            r.code,
            r.err
        );
        let mut hung = hung.lock().unwrap();
        match r.code {
            Some(0) => {
                assert!(
                    r.err.contains(" at its end, after all results"),
                    "{hang}: {}",
                    r.err
                );
                hung.0 += 1;
            }
            _ => {
                assert!(r.err.contains("--timeout allows more"), "{hang}: {}", r.err);
                hung.1 += 1;
            }
        }
    });
    let hung = hung.into_inner().unwrap();
    assert!(hung.0 >= 5 && hung.1 >= 30, "{hung:?}");
}

/// Under `auto` the host takes over, at start and in the stream, and no record is lost.
#[test]
fn the_host_goes_on_where_a_device_hangs() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let input = fs::read_to_string("model/digits/test.csv")
        .unwrap()
        .repeat(20);
    let expected = run(DIGITS, &["-d", "host"], input.clone()).out;
    // The first start, in which calls may hang as well.
    let first = folder.path("first");
    let mut c = auto(&folder, &shim);
    assert_eq!(
        bounded(
            c.env("MORTONNET_SHIM_LOG", &first),
            input.clone(),
            Duration::from_secs(60),
            2 << 30
        )
        .out,
        expected
    );
    prefer_device(&folder);
    let log = folder.path("calls");
    let mut c = auto(&folder, &shim);
    assert_eq!(
        ends(c.env("MORTONNET_SHIM_LOG", &log), &input).out,
        expected
    );
    let (calls, trial) = (counted(&log), counted(&first));
    let places = calls.iter().flat_map(|(name, &count)| {
        let places = [
            1,
            2,
            count.saturating_sub(3),
            count.saturating_sub(1),
            count,
        ];
        let mut places: Vec<usize> = places
            .into_iter()
            .filter(|n| (1..=count).contains(n))
            .collect();
        places.dedup();
        places
            .into_iter()
            .map(move |n| (format!("{name}:{n}:-9998"), false))
    });
    let mut places: Vec<_> = places.collect();
    // Calls in the middle of the first start's trial. The last launches belong to its timing.
    for name in ["clEnqueueNDRangeKernel", "clWaitForEvents"] {
        places.push((format!("{name}:{}:-9998", trial[name] / 2), true));
    }
    let seen = Mutex::new((0, 0, 0));
    beside(places, |(hang, first)| {
        let mut c = auto(&folder, &shim);
        if first {
            c.env("MORTONNET_CACHE", folder.path(&format!("cache {hang}")));
        }
        let r = ends(c.env("MORTONNET_SHIM_FAIL", &hang), &input);
        assert_eq!((r.code, &r.out), (Some(0), &expected), "{hang}: {}", r.err);
        let mut seen = seen.lock().unwrap();
        seen.0 += usize::from(r.err.contains("; running on the host instead"));
        seen.1 += usize::from(r.err.contains(" the host computes"));
        seen.2 += usize::from(r.err.contains(" at its end, after all results"));
    });
    let seen = seen.into_inner().unwrap();
    assert!(seen.0 >= 30 && seen.1 >= 5 && seen.2 >= 5, "{seen:?}");
}

/// A hanging call returns just when the device is abandoned. Each record is answered once and
/// correctly.
#[test]
fn a_call_may_come_back_too_late() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let input = fs::read_to_string("model/digits/test.csv")
        .unwrap()
        .repeat(100);
    let expected = run(DIGITS, &["-d", "host"], input.clone()).out;
    let mut c = auto(&folder, &shim);
    assert_eq!(
        bounded(&mut c, input.clone(), Duration::from_secs(60), 2 << 30).out,
        expected
    );
    prefer_device(&folder);
    let calls = [
        "clWaitForEvents:20",
        "clWaitForEvents:21",
        "clEnqueueNDRangeKernel:30",
        "clFlush:9",
    ];
    let delays = (0..8).map(|i| 970 + 20 * i).chain([1300, 2500]);
    let late = delays.flat_map(|ms| calls.map(|call| format!("{call}:{}", -10000 - ms)));
    let taken = Mutex::new(0);
    beside(late.collect(), |late| {
        let r = ends(
            auto(&folder, &shim).env("MORTONNET_SHIM_FAIL", &late),
            &input,
        );
        assert!(
            r.code == Some(0) && r.out == expected,
            "{late}: {:?} {}",
            r.code,
            r.err
        );
        *taken.lock().unwrap() += usize::from(r.err.contains(" the host computes"));
    });
    assert!(
        (8..40).contains(&*taken.lock().unwrap()),
        "{taken:?} of 40 were given up"
    );
    // For one of two devices: answers that come too late are discarded.
    let records = fs::read_to_string("model/digits/test.csv")
        .unwrap()
        .repeat(5);
    let expected = run(DIGITS, &["-d", "host"], records.clone()).out;
    let slow = ("MORTONNET_SHIM_SLOW", "0:1:2000:1,1:1:2000:1");
    beside((0..12).map(|i| -10950 - 30 * i).collect(), |late| {
        let folder = Folder::new();
        let fail = (
            "MORTONNET_SHIM_FAIL",
            &*format!("clWaitForEvents:60:{late}"),
        );
        let r = ends(
            &mut two(&folder, &[slow, fail], &["-d", "0,1", "-b", "20"]),
            &records,
        );
        assert!(
            r.code == Some(0) && r.out == expected,
            "{late}: {:?} {}",
            r.code,
            r.err
        );
    });
}

/// One of several devices hangs, and the others do its part. If all hang, the run ends with an
/// error after the finished answers.
#[test]
fn the_other_devices_go_on() {
    let folder = Folder::new();
    let records = fs::read_to_string("model/digits/test.csv")
        .unwrap()
        .repeat(20);
    let expected = run(DIGITS, &["-d", "host"], records.clone()).out;
    let slow = ("MORTONNET_SHIM_SLOW", "0:1:100:1,1:1:100:1");
    for (setting, value, part) in [
        ("MORTONNET_SHIM_DIE", "1:60:-9998", "opencl 1: "),
        ("MORTONNET_SHIM_DIE", "0:80:-9998", "opencl 0: "),
        // The hang is in the measurement of the device's speed.
        ("MORTONNET_SHIM_DIE", "1:1:-9998", "opencl 1: "),
        ("MORTONNET_SHIM_FAIL", "clWaitForEvents:60:-9998", "opencl "),
    ] {
        let r = ends(
            &mut two(
                &folder,
                &[slow, (setting, value)],
                &["-d", "0,1", "-b", "20", "--profile"],
            ),
            &records,
        );
        assert_eq!(r.code, Some(0), "{value}: {}", r.err);
        assert!(r.out == expected, "{value}: other classes than the host's");
        assert!(
            r.err.contains(part) && r.err.contains("no answer for "),
            "{value}: {}",
            r.err
        );
        // The other device may do all records before this one's speed is measured.
        let late = r.err.contains(" at its end, after all results");
        let said = r.err.matches("the other devices do its part").count();
        assert_eq!(said, usize::from(!late), "{value}: {}", r.err);
    }
    let all = [slow, ("MORTONNET_SHIM_DIE", "0:80:-9998,1:200:-9998")];
    let r = ends(
        &mut two(&folder, &all, &["-d", "all", "-b", "20"]),
        &records,
    );
    assert!(
        r.code == Some(1) && r.err.contains("no other device is left"),
        "{:?} {}",
        r.code,
        r.err
    );
    assert!(
        expected.starts_with(&r.out) && r.out.lines().count() > 100,
        "{}",
        r.out.lines().count()
    );
    // At start, `all` goes on with the device that has started. Two named devices are both
    // required.
    let start = [
        slow,
        ("MORTONNET_SHIM_FAIL", "clCreateCommandQueue:2:-9998"),
    ];
    let r = ends(
        &mut two(&folder, &start, &["-d", "all", "-b", "20"]),
        &records,
    );
    assert_eq!((r.code, &r.out), (Some(0), &expected), "{}", r.err);
    assert!(
        r.err.contains("at start (context)") && r.err.contains("; running without it"),
        "{}",
        r.err
    );
    let r = ends(
        &mut two(&folder, &start, &["-d", "0,1", "-b", "20"]),
        &records,
    );
    assert!(
        r.code == Some(1) && r.out.is_empty() && r.err.contains("at start (context)"),
        "{}",
        r.err
    );
}

/// Commands without records, and invalid time limits.
#[test]
fn other_commands_end_and_limits_are_checked() {
    let r = run(DIGITS, &["--timeout", "x"], "");
    assert!(
        r.code == Some(2) && r.err.contains("expected seconds from 0"),
        "{}",
        r.err
    );
    let r = run(DIGITS, &["--timeout", "0", "-d", "host"], records());
    assert_eq!(r.out.lines().count(), 25);
    let r = run(DIGITS, &["--info", "--timeout", "1"], "");
    assert!(
        r.code == Some(2) && r.err.contains("--timeout"),
        "{}",
        r.err
    );
    // A slow batch is no hang: 0.8 s with a limit of 1 s.
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let mut c = device(&folder, &shim);
    let r = ends(c.env("MORTONNET_SHIM_SLEEP", "clFlush:800"), &records());
    assert_eq!((r.code, r.out.lines().count()), (Some(0), 25), "{}", r.err);
    // The self-test has the same limit, and says how to change it.
    let mut c = device(&folder, &shim);
    c.env("MORTONNET_SHIM_SLEEP", "clFlush:60000")
        .arg("--selftest");
    let r = ends(&mut c, "");
    assert!(
        r.code == Some(1) && r.err.contains("--timeout allows more"),
        "{:?} {}",
        r.code,
        r.err
    );
    // The limit for compilation is longer than for other calls.
    let mut c = device(&folder, &shim);
    let r = ends(
        c.env("MORTONNET_SHIM_SLEEP", "clBuildProgram:8000"),
        &records(),
    );
    assert_eq!((r.code, r.out.lines().count()), (Some(0), 25), "{}", r.err);
    let mut c = command(DIGITS);
    c.args(["--help"]);
    assert!(
        bounded(&mut c, "", Duration::from_secs(60), 2 << 30)
            .out
            .contains("--timeout SECONDS")
    );
}
