//! OpenCL on two witnesses, PoCL and oclgrind: classes of the host, scores within the bound, every plan.

use super::support::{
    DIGITS, Folder, Reference, Witness, bake, command, feed, on, random_bytes, root, run, shim,
};
use std::fs;
use std::path::Path;

/// Every OpenCL plan of the library.
pub fn plans() -> Vec<String> {
    let library = fs::read(root().join("kernels/library.json")).unwrap();
    let library: serde_json::Value = serde_json::from_slice(&library).unwrap();
    let plans = library["plans"].as_array().unwrap().iter().filter(|p| p["engine"] == "opencl");
    let names: Vec<String> = plans.map(|p| p["name"].as_str().unwrap().into()).collect();
    assert!(names.len() >= 8, "{names:?}");
    names
}

/// What the simulator must be told for a plan: it reports every read of an image as uninitialised, and GPUs for which
/// tiles in local memory are made have 48 KiB of it.
pub fn simulated(args: &[&str]) -> Vec<(&'static str, &'static str)> {
    let plan = |name: &str| args.contains(&name);
    match () {
        _ if plan("adreno") => vec![("OCLGRIND_UNINITIALIZED", "0")],
        _ if plan("nvidia") => vec![("OCLGRIND_LOCAL_MEM_SIZE", "49152")],
        _ => Vec::new(),
    }
}

/// Runs on a witness; oclgrind must have nothing to say.
fn on_device(witness: Witness, program: &Path, args: &[&str], input: impl Into<Vec<u8>>) -> Vec<String> {
    let folder = Folder::new();
    let log = folder.path("oclgrind.log");
    let mut c = command(program);
    on(witness, &mut c, &log);
    let r = feed(c.envs(simulated(args)).args(["--device", "opencl"]).args(args), input);
    let lines: Vec<String> = r.lines().iter().map(|s| s.to_string()).collect();
    let said = fs::read_to_string(&log).unwrap_or_default();
    assert!(said.is_empty(), "{args:?}: {said}");
    lines
}

#[test]
fn digits_on_pocl_under_every_plan() {
    digits(Witness::Pocl);
}

#[test]
fn digits_on_oclgrind_under_every_plan() {
    digits(Witness::Oclgrind);
}

/// The whole test set: the host's classes, and scores within the bound.
fn digits(witness: Witness) {
    let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
    let vectors: Vec<Vec<f64>> =
        csv.lines().map(|l| l.split(',').map(|v| v.parse().unwrap()).collect()).collect();
    let reference = Reference::read(&root().join("model/digits"));
    let host = run(DIGITS, &["-o", "json"], csv.clone());
    let host = parts(&host.lines());
    reference.check(&vectors, &host.1.iter().map(|s| &**s).collect::<Vec<_>>(), "host");
    for plan in &plans() {
        let lines = on_device(witness, Path::new(DIGITS), &["--plan", plan, "-o", "json"], csv.clone());
        let found = parts(&lines);
        assert_eq!(found.0, host.0, "{witness:?} {plan}");
        let scores: Vec<&str> = found.1.iter().map(|s| &**s).collect();
        reference.check(&vectors, &scores, &format!("{witness:?} {plan}"));
    }
}

/// Classes, and scores as a line of numbers, of JSON results.
fn parts(lines: &[impl AsRef<str>]) -> (Vec<String>, Vec<String>) {
    lines
        .iter()
        .map(|line| {
            let v: serde_json::Value = serde_json::from_str(line.as_ref()).unwrap();
            let scores =
                v["scores"].as_array().unwrap().iter().map(|s| s.to_string()).collect::<Vec<_>>().join(",");
            (v["class"].to_string(), scores)
        })
        .unzip()
}

#[test]
fn mnist_network_on_every_engine_and_plan() {
    let folder = Folder::new();
    let model = root().join("model/mnist");
    let program = bake(&model, Some("thesis-morton"), &folder).unwrap();
    let reference = Reference::read(&model);
    let bytes = random_bytes(7, 300 * 784);
    let vectors: Vec<Vec<f64>> =
        bytes.chunks(784).map(|r| r.iter().map(|&v| f64::from(v)).collect()).collect();
    let host = run(&program, &["-d", "host", "-f", "u8"], bytes.clone());
    let host_scores = run(&program, &["-d", "host", "-f", "u8", "-o", "scores"], bytes.clone());
    reference.check(&vectors, &host_scores.lines(), "host");
    // Its scaled inputs are so small, and the values behind its sigmoids, that nothing can overflow.
    let info = run(&program, &["-d", "host", "--info"], "");
    assert!(info.out.contains("no finite input is known to overflow f32 in this network"), "{}", info.out);
    // Under the plan that was baked nothing is laid out at start.
    let file = folder.path("profile");
    let args = ["-f", "u8", "--plan", "baked", &format!("--profile=json:{}", file.display())];
    on_device(Witness::Pocl, &program, &args, bytes.clone());
    let profile: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(
        (profile["plan"].as_str(), profile["laid_out_again"].as_u64()),
        (Some("thesis-morton"), Some(0))
    );
    for (witness, records) in [(Witness::Pocl, 300), (Witness::Oclgrind, 5)] {
        let input = bytes[..records * 784].to_vec();
        for plan in &plans() {
            // The simulator is slow: as few records in a batch as the plan allows.
            let args =
                ["-f", "u8", "--plan", plan, "-b", if witness == Witness::Oclgrind { "5" } else { "100" }];
            if witness == Witness::Pocl {
                assert_eq!(
                    on_device(witness, &program, &args, input.clone()),
                    host.lines()[..records],
                    "{plan}"
                );
            }
            let scores =
                on_device(witness, &program, &[&args[..], &["-o", "scores"]].concat(), input.clone());
            let scores: Vec<&str> = scores.iter().map(|s| &**s).collect();
            reference.check(&vectors[..records], &scores, &format!("{witness:?} {plan}"));
        }
    }
}

#[test]
fn self_test_and_profile_on_both_witnesses() {
    let program = Path::new(DIGITS);
    for plan in &plans() {
        let lines = on_device(Witness::Pocl, program, &["--selftest", "--plan", plan], "");
        assert!(lines[0].starts_with("passed: opencl"), "{lines:?}");
    }
    let lines = on_device(Witness::Oclgrind, program, &["--selftest", "-b", "33"], "");
    assert!(lines[0].starts_with("passed: opencl"), "{lines:?}");
    let folder = Folder::new();
    let file = folder.path("p.json");
    let arg = format!("--profile=json:{}", file.display());
    // The host's panels are the packed kernels' too: baked for the host, nothing is laid out again for them.
    let profiled = |plan: &str| -> serde_json::Value {
        on_device(Witness::Pocl, program, &[&arg, "--plan", plan, "model/digits/test.csv"], "");
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap()
    };
    assert_eq!(profiled("mali-midgard")["laid_out_again"].as_u64(), Some(0));
    let p = profiled("thesis-morton");
    assert!(
        p["laid_out_again"].as_u64() >= Some(2) && p["startup_phases_us"]["build"].as_f64().unwrap() > 0.0
    );
    for step in p["steps"].as_array().unwrap() {
        assert!(step["run_us"]["total"].as_f64().unwrap() > 0.0, "{step}");
    }
}

#[test]
fn devices_are_chosen_by_index_name_and_compute_units() {
    let folder = Folder::new();
    let ask = |args: &[&str]| {
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        feed(c.env("POCL_DEVICES", "basic pthread").args(args), "")
    };
    let listing = ask(&["--list-devices"]);
    let first = listing.lines()[1];
    // PoCL calls them basic-CPU and pthread-CPU.
    let name = first.strip_prefix("0: basic-").unwrap().split(" (").next().unwrap();
    assert!(listing.out.contains("\n1: "), "{}", listing.out);
    assert!(ask(&["-d", "1", "-v"]).err.contains("opencl 1: "));
    let several = ask(&["-d", name]);
    assert_eq!(several.code, Some(1));
    assert!(
        several.err.contains("several OpenCL devices fit") && several.err.contains("\n1: "),
        "{}",
        several.err
    );
    let none = ask(&["-d", "no-such-gpu"]);
    assert!(
        none.code == Some(1) && none.err.contains("no OpenCL device fits a name with \"no-such-gpu\""),
        "{}",
        none.err
    );
    assert_eq!(ask(&["-d", "7"]).code, Some(1));
    let units = ask(&["--compute-units", "1", "-v"]);
    assert!(units.code == Some(0) || units.err.contains("several OpenCL devices fit"), "{}", units.err);
    assert!(ask(&["--compute-units", "999"]).err.contains("and 999 compute units"));
    assert_eq!(ask(&["-d", "host", "--compute-units", "1"]).code, Some(2));
}

#[test]
fn a_missing_library_is_explained_and_auto_lives_without() {
    let r = run(DIGITS, &["-d", "opencl"], "");
    assert_eq!((r.code, &*r.out), (Some(1), ""));
    assert!(r.err.contains("/nonexistent/libOpenCL.so"), "{}", r.err);
    assert_eq!(run(DIGITS, &["-d", "auto", "model/digits/test.csv"], "").lines().len(), 597);
}

#[test]
fn a_device_that_cannot_run_a_plan_says_why() {
    let folder = Folder::new();
    let mut c = command(DIGITS);
    on(Witness::Oclgrind, &mut c, &folder.path("log"));
    let r = feed(c.env("OCLGRIND_MAX_WGSIZE", "128").args(["-d", "opencl", "--plan", "nvidia"]), "");
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("work-groups of 256×1 work-items, the device allows 128"), "{}", r.err);
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    let r =
        feed(c.env("POCL_MAX_WORK_GROUP_SIZE", "256").args(["-d", "opencl", "model/digits/test.csv"]), "");
    assert_eq!(r.lines().len(), 597);
}

/// Where the one launch for all layers does not fit the device, or fails, each layer has its own, and `-v` says why. Its
/// constants are the same.
#[test]
fn one_launch_gives_way_to_a_launch_for_each_layer() {
    let folder = Folder::new();
    let host = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    let shim = shim(&folder, &[]);
    let digits = |plan: &str, settings: &[(&str, &str)]| {
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        let profile = format!("--profile=json:{}", folder.path("p.json").display());
        let args = ["-d", "opencl", "--plan", plan, "-v", &profile, "model/digits/test.csv"];
        let r = feed(c.envs(settings.iter().copied()).args(args), "");
        assert_eq!(r.out, host, "{plan} {settings:?}: {}", r.err);
        let p = fs::read_to_string(folder.path("p.json")).unwrap();
        let p: serde_json::Value = serde_json::from_str(&p).unwrap();
        assert_eq!(p["laid_out_again"].as_u64(), Some(0), "{plan} {settings:?}");
        (p["steps"].as_array().unwrap().len(), r.err)
    };
    for plan in ["mali-midgard", "mali-bifrost", "mali-valhall", "generic"] {
        let (steps, said) = digits(plan, &[("POCL_MAX_WORK_GROUP_SIZE", "256")]);
        assert!(steps == 1 && !said.contains("a launch for each layer"), "{plan}: {said}");
    }
    let (steps, said) = digits("mali-midgard", &[("POCL_MAX_WORK_GROUP_SIZE", "32")]);
    assert!(
        steps == 3 && said.contains("a launch for each layer: plan mali-midgard cannot run on "),
        "{steps}: {said}"
    );
    assert!(said.contains("work-groups of 64×1 work-items, the device allows 32"), "{said}");
    let (steps, said) = digits(
        "mali-bifrost",
        &[
            ("MORTONNET_OPENCL", shim.to_str().unwrap()),
            ("MORTONNET_SHIM_REAL", "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1"),
            ("MORTONNET_SHIM_FAIL", "clGetKernelWorkGroupInfo:1:-5"),
        ],
    );
    assert!(
        steps == 3 && said.contains("a launch for each layer: ") && said.contains("CL_OUT_OF_RESOURCES"),
        "{said}"
    );
}

/// Calls that the OpenCL library sees, through a shim that writes them down.
#[test]
fn between_first_and_last_batch_nothing_is_created_or_released_but_events() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
    let records = csv.repeat(17); // 10 149 records
    for (plan, profile, discrete) in [
        ("mali-midgard", false, false),
        ("thesis-morton", true, false),
        ("thesis-baseline", false, false),
        ("thesis-morton", false, true),
        ("mali-midgard", true, true),
    ] {
        let log = folder.put("calls", "");
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        c.env("MORTONNET_OPENCL", &shim)
            .env("MORTONNET_SHIM_REAL", "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1")
            .env("MORTONNET_SHIM_LOG", &log)
            .args(["-d", "opencl", "--plan", plan, "-o", "scores"]);
        if profile {
            c.arg("--profile");
        }
        if discrete {
            // Scores are read, and the classes are taken of them.
            c.env("MORTONNET_SHIM_DISCRETE", "1").args(["-o", "class"]);
        }
        let found = feed(&mut c, records.clone());
        assert_eq!(found.lines().len(), 10_149);
        if discrete {
            assert_eq!(found.out, run(DIGITS, &["-d", "host"], records.clone()).out, "{plan}");
        }
        let calls = fs::read_to_string(&log).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        // From the first launch to the last flush: all batches.
        let first = calls.iter().position(|c| *c == "clEnqueueNDRangeKernel").unwrap();
        let last = calls.iter().rposition(|c| *c == "clFlush").unwrap();
        let count = |name: &str| calls[first..].iter().filter(|c| **c == name).count();
        for call in &calls[first..=last] {
            let allowed = ["clEnqueue", "clFlush", "clWaitForEvents", "clReleaseEvent", "clGetEvent"];
            assert!(
                allowed.iter().any(|a| call.starts_with(a)),
                "{plan}: {call} between the first and the last batch"
            );
        }
        // The first copy of a batch stands before its first launch.
        let copies =
            calls.iter().filter(|c| ["clEnqueueReadBuffer", "clEnqueueWriteBuffer"].contains(c)).count();
        assert_eq!(count("clEnqueueMapBuffer") == 0, discrete, "{plan}");
        assert_eq!(copies > 0, discrete, "{plan}");
        let events =
            count("clEnqueueMapBuffer") + copies + if profile { count("clEnqueueNDRangeKernel") } else { 0 };
        assert_eq!(count("clReleaseEvent"), events, "{plan}: every event is released once");
        assert!(count("clFlush") >= 39, "{plan}");
    }
}

/// A failing call ends the run with its name, after the earlier results.
#[test]
fn failures_of_the_driver_are_reported() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    for (fail, part) in [
        ("clEnqueueNDRangeKernel:10:-5", "CL_OUT_OF_RESOURCES"),
        ("clBuildProgram:1:-11", "CL_BUILD_PROGRAM_FAILURE"),
        ("clCreateBuffer:2:-4", "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
        ("clWaitForEvents:5:-14", "CL_EXEC_STATUS_ERROR"),
        ("clGetDeviceIDs:1:-1", "CL_DEVICE_NOT_FOUND"),
    ] {
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        c.env("MORTONNET_OPENCL", &shim)
            .env("MORTONNET_SHIM_REAL", "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1")
            .env("MORTONNET_SHIM_FAIL", fail)
            .args(["-d", "opencl", "-b", "100", "model/digits/test.csv"]);
        let r = feed(&mut c, "");
        assert_eq!(r.code, Some(1), "{fail}: {}", r.err);
        assert!(r.err.contains(part), "{fail}: {}", r.err);
        assert!(r.out.lines().count() < 597 && r.out.lines().all(|l| l.len() == 1), "{fail}");
    }
}
