//! Several devices that share a stream: order, shares, failures. PoCL provides two `basic` devices.
//! A shim makes one slow or fail.

use super::support::{
    DIGITS, Folder, ICD_LOADER, Run, Witness, command, feed, on, root, run, shim,
};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

fn csv() -> String {
    fs::read_to_string(root().join("model/digits/test.csv")).unwrap()
}

/// Makes a command for two devices of equal name, behind the shim.
pub fn two(folder: &Folder, settings: &[(&str, &str)], args: &[&str]) -> Command {
    let library = folder.path("libshim.so");
    if !library.exists() {
        shim(folder, &[]);
    }
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_OPENCL", library)
        .env("MORTONNET_SHIM_REAL", ICD_LOADER)
        .env("POCL_DEVICES", "basic basic")
        .envs(settings.iter().copied())
        .args(args);
    c
}

/// Returns the part of a profile for each member.
fn members(profile: &serde_json::Value) -> Vec<&serde_json::Value> {
    profile["members"].as_array().unwrap().iter().collect()
}

#[test]
fn devices_share_a_stream_in_order() {
    let folder = Folder::new();
    // Long enough that trials with one device alone are a small part.
    let records = csv().repeat(68); // 40 596 records
    let expected = run(DIGITS, &["-d", "host"], records.clone()).out;
    let file = folder.path("p.json");
    let profile = format!("--profile=json:{}", file.display());
    // Equal devices, a slow second device, a device that becomes slow, the host as a third device,
    // and partial batches of different sizes.
    for (devices, slow, args) in [
        ("all", None, &["-b", "20"][..]),
        ("0,1", Some("1:1:1000:1,0:1:200:1"), &["-b", "20"]),
        (
            "1,0",
            Some("0:1:2000:150,0:1:100:1,1:1:100:1"),
            &["-b", "33", "--plan", "mali-midgard"],
        ),
        ("host,1,0", Some("0:1:500:1"), &["-b", "7"]),
        ("host,all", None, &["-b", "20"]),
        ("host,opencl", None, &["-f", "csv"]),
    ] {
        let settings: Vec<(&str, &str)> = slow
            .map(|s| ("MORTONNET_SHIM_SLOW", s))
            .into_iter()
            .collect();
        let r = feed(
            two(&folder, &settings, &["-d", devices, &profile]).args(args),
            records.clone(),
        );
        assert_eq!(r.code, Some(0), "{devices}: {}", r.err);
        assert!(
            r.out == expected,
            "{devices}: other classes than the host's"
        );
        let p: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let done: Vec<u64> = members(&p)
            .iter()
            .map(|m| m["records"].as_u64().unwrap())
            .collect();
        assert_eq!(done.iter().sum::<u64>(), 40_596, "{p}");
        let named = devices
            .split(',')
            .map(|name| if name == "all" { 2 } else { 1 });
        assert_eq!(done.len(), named.sum::<usize>());
        let share: f64 = members(&p)
            .iter()
            .map(|m| m["share"].as_f64().unwrap())
            .sum();
        assert!((share - 1.0).abs() < 0.01, "{p}");
        if let Some(slow) = slow.filter(|_| devices != "host,1,0") {
            let slow: usize = slow[..1].parse().unwrap();
            assert!(done[slow] > 0 && done[slow] < done[1 - slow], "{done:?}");
        }
        // Each device has its own steps, as in a run on one device.
        let steps = p["steps"].as_array().unwrap();
        for (i, member) in members(&p).iter().enumerate() {
            let own: Vec<_> = steps
                .iter()
                .filter(|s| s["member"].as_u64() == Some(i as u64))
                .collect();
            // Either one launch for all layers, or a launch for each layer and one for the arg-max.
            let least = if args.contains(&"mali-midgard") { 1 } else { 3 };
            assert!(own.len() >= least, "{p}");
            let calls = |s: &serde_json::Value| s["run_us"]["count"].as_u64().unwrap() + 1;
            if !member["device"].as_str().unwrap().starts_with("host") {
                assert!(
                    own.iter()
                        .all(|s| calls(s) >= member["batches"].as_u64().unwrap()),
                    "{p}"
                );
            }
        }
        assert_eq!(p["records"].as_u64(), Some(40_596));
    }
    let p: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(p["plan"].as_str(), Some("host + cpu-simd"));
    let table = feed(
        &mut two(&folder, &[], &["-d", "0,1", "-v", "--profile"]),
        csv(),
    );
    assert!(
        table.err.contains("\nopencl 1: basic-") && table.err.contains("plan cpu-simd: "),
        "{}",
        table.err
    );
    assert!(
        table.err.contains(" + opencl 1: ") && table.err.contains("1: basic-"),
        "{}",
        table.err
    );
}

/// The member that decodes a record finds its error, and the message has the record's position.
#[test]
fn a_wrong_record_ends_the_stream_where_it_stands() {
    let folder = Folder::new();
    let mut records: Vec<String> = csv().lines().map(str::to_string).collect();
    records[500] = records[500].replacen(',', ",x", 1);
    let r = feed(
        &mut two(&folder, &[], &["-d", "all", "-b", "16"]),
        records.join("\n"),
    );
    assert_eq!((r.code, r.out.lines().count()), (Some(1), 500), "{}", r.err);
    assert!(
        r.err.contains("stdin:501:2: expected a number"),
        "{}",
        r.err
    );
    // Marked records do not move the following ones. Several bad records are in a batch, and one
    // batch has only bad records.
    let host = run(DIGITS, &["-d", "host"], csv());
    let mut expected: Vec<&str> = host.lines();
    for i in [0, 9, 10, 500].into_iter().chain(100..140) {
        (records[i], expected[i]) = ("1,x".into(), "error");
    }
    let args = ["-d", "0,1,host", "-b", "16", "--on-error", "mark"];
    let r = feed(&mut two(&folder, &[], &args), records.join("\n"));
    assert_eq!(r.out.lines().collect::<Vec<_>>(), expected, "{}", r.err);
    assert_eq!(
        (r.code, r.err.matches("expected a number").count()),
        (Some(1), 44)
    );
}

#[test]
fn a_failing_device_hands_its_part_to_the_others() {
    let folder = Folder::new();
    let records = csv().repeat(5);
    let expected = run(DIGITS, &["-d", "host"], records.clone()).out;
    // Both devices are slow enough to get work.
    let slow = ("MORTONNET_SHIM_SLOW", "0:1:100:1,1:1:100:1");
    for (setting, value, part) in [
        ("MORTONNET_SHIM_DIE", "1:60:-5", "opencl 1: "),
        ("MORTONNET_SHIM_DIE", "0:80:-5", "opencl 0: "),
        // The failure is in the measurement of the device's speed.
        ("MORTONNET_SHIM_DIE", "1:1:-5", "opencl 1: "),
        // One of the devices fails in a command, which only the wait reports.
        (
            "MORTONNET_SHIM_FAIL",
            "clWaitForEvents:60:-14",
            "CL_EXEC_STATUS_ERROR",
        ),
        (
            "MORTONNET_SHIM_FAIL",
            "clEnqueueMapBuffer:70:-4",
            "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        ),
    ] {
        let r = feed(
            &mut two(
                &folder,
                &[slow, (setting, value)],
                &["-d", "0,1", "-b", "20"],
            ),
            records.clone(),
        );
        assert_eq!(r.code, Some(0), "{value}: {}", r.err);
        assert!(r.out == expected, "{value}: other classes than the host's");
        assert!(
            r.err.contains(part) && r.err.contains("CL_"),
            "{value}: {}",
            r.err
        );
        assert_eq!(
            r.err.matches("the other devices do its part").count(),
            1,
            "{value}: {}",
            r.err
        );
    }
    // Both devices fail, one after the other. The answers up to then are printed.
    let dying = [slow, ("MORTONNET_SHIM_DIE", "0:80:-5,1:200:-6")];
    let r: Run = feed(
        &mut two(&folder, &dying, &["-d", "all", "-b", "20"]),
        records.clone(),
    );
    assert_eq!(r.code, Some(1), "{}", r.err);
    assert!(r.err.contains("the other devices do its part"), "{}", r.err);
    assert!(
        r.err.contains("CL_OUT_OF_HOST_MEMORY") && r.err.contains("no other device is left"),
        "{}",
        r.err
    );
    let lines = r.out.lines().count();
    assert!(
        (160..2985).contains(&lines) && expected.starts_with(&r.out),
        "{lines}"
    );
}

#[test]
fn a_lone_record_is_answered_at_once() {
    let folder = Folder::new();
    let slow = [("MORTONNET_SHIM_SLOW", "0:1:20000:1")];
    let file = folder.path("p.json");
    let profile = format!("--profile=json:{}", file.display());
    let mut c = two(&folder, &slow, &["-d", "0,1", &profile]);
    let mut child = c
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let expected = run(DIGITS, &[], csv()).out;
    for (line, class) in csv().lines().zip(expected.lines()).take(60) {
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end(), class);
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    // The records went to the device that answers first.
    let p: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert!(members(&p)[1]["records"].as_u64() > Some(50), "{p}");
}

#[test]
fn devices_that_cannot_start() {
    let folder = Folder::new();
    let broken = [("MORTONNET_SHIM_FAIL", "clCreateCommandQueue:2:-6")];
    let expected = run(DIGITS, &["-d", "host"], csv()).out;
    let all = feed(&mut two(&folder, &broken, &["-d", "all"]), csv());
    assert_eq!((all.code, all.out), (Some(0), expected), "{}", all.err);
    assert!(
        all.err.contains("opencl 1: ") && all.err.contains("; running without it"),
        "{}",
        all.err
    );
    let list = feed(&mut two(&folder, &broken, &["-d", "0,1"]), csv());
    assert_eq!((list.code, &*list.out), (Some(1), ""), "{}", list.err);
    assert!(
        list.err.contains("opencl 1: ") && list.err.contains("clCreateCommandQueue"),
        "{}",
        list.err
    );
    let none = [("MORTONNET_SHIM_FAIL", "clCreateCommandQueue:0:-6")];
    let none = feed(&mut two(&folder, &none, &["-d", "all"]), csv());
    assert!(
        none.code == Some(1) && none.err.contains("opencl 0: ") && none.err.contains("opencl 1: ")
    );
    // The self-test prints a line for each device.
    let each = feed(&mut two(&folder, &[], &["-d", "all", "--selftest"]), "");
    let lines = each.lines();
    assert!(
        lines.len() == 2 && lines.iter().all(|l| l.starts_with("passed: opencl ")),
        "{lines:?}"
    );
    let each = feed(
        &mut two(&folder, &broken, &["-d", "host,0,1", "--selftest"]),
        "",
    );
    assert_eq!(
        (each.code, each.out.lines().count()),
        (Some(1), 2),
        "{}",
        each.err
    );
    assert!(each.err.contains("opencl 1: "), "{}", each.err);
}

#[test]
fn lists_of_devices_are_read_as_the_help_says() {
    let folder = Folder::new();
    let ask = |args: &[&str]| feed(&mut two(&folder, &[], args), "");
    let info = ask(&["--info", "-d", "host,1"]);
    assert!(
        info.lines()
            .iter()
            .any(|l| l.starts_with("plan      cpu-simd on the opencl engine")),
        "{}",
        info.out
    );
    assert!(
        info.out.contains("runs on   1: ") && info.out.contains("plan      host on the host"),
        "{}",
        info.out
    );
    for (args, code, part) in [
        (&["-d", "0,7"][..], 1, "no OpenCL device has index 7"),
        (
            &["-d", "0,basic"],
            1,
            "more than one OpenCL device has a name",
        ),
        (&["-d", "0,opencl"], 2, "a device can take part once"),
        (
            &["-d", "0,1", "--compute-units", "1"],
            2,
            "a list names its devices",
        ),
        (&["-d", "0,all"], 2, "a device can take part once"),
        (
            &["-d", "host,all", "--compute-units", "9"],
            1,
            "no OpenCL device has 9 compute units",
        ),
        (
            &["-d", "all", "--compute-units", "9"],
            1,
            "no OpenCL device has 9 compute units",
        ),
        (
            &["-d", "host,0", "--plan", "host"],
            2,
            "plan host is for the host engine",
        ),
        (&["-d", "0,1", "--plan", "nonsense"], 2, "nonsense"),
    ] {
        let r = ask(args);
        assert!(
            r.code == Some(code) && r.err.contains(part),
            "{args:?}: {:?} {}",
            r.code,
            r.err
        );
    }
    assert!(
        ask(&["-d", "all", "--compute-units", "1", "-v"])
            .err
            .contains("mortonnet: opencl 0: ")
    );
    // A single device is not shared.
    let mut c = two(&folder, &[], &["-d", "all", "-v"]);
    let one = feed(c.env("POCL_DEVICES", "basic"), csv());
    assert!(
        one.lines().len() == 597 && !one.err.contains(" + "),
        "{}",
        one.err
    );
}

/// The simulator beside the host engine reports no access out of bounds and no race.
#[test]
fn the_simulator_shares_with_the_host() {
    let folder = Folder::new();
    let log = folder.path("oclgrind.log");
    let mut c = command(DIGITS);
    on(Witness::Oclgrind, &mut c, &log);
    let records: String = csv().lines().take(200).map(|l| format!("{l}\n")).collect();
    let args = ["-d", "host,opencl", "-b", "8", "--profile=json:"];
    let file = folder.path("p.json");
    let r = feed(
        c.args(&args[..4])
            .arg(format!("{}{}", args[4], file.display())),
        records.repeat(20),
    );
    let expected = run(DIGITS, &["-d", "host"], records.repeat(20));
    assert_eq!(r.lines(), expected.lines());
    assert_eq!(fs::read_to_string(&log).unwrap_or_default(), "");
    assert!(r.err.is_empty(), "{}", r.err);
}

/// No thread creates or releases anything between the first launch of the stream and its end.
#[test]
fn devices_that_share_create_nothing_on_the_way() {
    let folder = Folder::new();
    let log = folder.put("calls", "");
    let settings = [("MORTONNET_SHIM_LOG", log.to_str().unwrap())];
    let r = feed(
        &mut two(&folder, &settings, &["-d", "0,1"]),
        csv().repeat(17),
    );
    assert_eq!(r.lines().len(), 10_149);
    let calls = fs::read_to_string(&log).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    let first = calls
        .iter()
        .position(|c| *c == "clEnqueueNDRangeKernel")
        .unwrap();
    let last = calls.iter().rposition(|c| *c == "clFlush").unwrap();
    let allowed = [
        "clEnqueue",
        "clFlush",
        "clWaitForEvents",
        "clReleaseEvent",
        "clGetEvent",
    ];
    for call in &calls[first..=last] {
        assert!(allowed.iter().any(|a| call.starts_with(a)), "{call}");
    }
    let count = |name: &str| calls[first..].iter().filter(|c| **c == name).count();
    // The program waits for each map. It checks how each launch and each unmapping of the input
    // ended.
    let events = count("clWaitForEvents") + count("clEnqueueNDRangeKernel") + count("clFlush");
    assert_eq!(
        count("clReleaseEvent"),
        events,
        "every event is released once"
    );
}
