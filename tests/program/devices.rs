//! Tests on two OpenCL witnesses, PoCL and oclgrind, under every plan. The classes are the host's,
//! and the scores are within the bound.

use super::support::{
    DIGITS, Folder, ICD_LOADER, Reference, Run, Witness, bake, command, feed, npy, on,
    random_bytes, root, run, shim,
};
use std::fs;
use std::path::Path;

/// The OpenCL plans of a program without the lab.
pub fn plans() -> Vec<String> {
    plans_where(|plan| plan["withoutLab"].is_null())
}

/// The OpenCL plans of the library for which `take` returns true.
fn plans_where(take: impl Fn(&serde_json::Value) -> bool) -> Vec<String> {
    let library = fs::read(root().join("kernels/library.json")).unwrap();
    let library: serde_json::Value = serde_json::from_slice(&library).unwrap();
    let plans = library["plans"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|p| p["engine"] == "opencl");
    let names: Vec<String> = plans
        .filter(|p| take(p))
        .map(|p| p["name"].as_str().unwrap().into())
        .collect();
    assert!(names.len() >= 8, "{names:?}");
    names
}

/// Returns the simulator's settings for a plan. It wrongly reports each read of an image as
/// uninitialised. Plans with tiles in local memory are for GPUs with 48 KiB of it.
pub fn simulated(args: &[&str]) -> Vec<(&'static str, &'static str)> {
    let plan = |name: &str| args.contains(&name);
    match () {
        _ if plan("adreno") => vec![("OCLGRIND_UNINITIALIZED", "0")],
        _ if plan("nvidia") || plan("nvidia-mma") => vec![("OCLGRIND_LOCAL_MEM_SIZE", "49152")],
        _ => Vec::new(),
    }
}

/// Runs on a witness and checks that oclgrind reports nothing.
fn on_device(
    witness: Witness,
    program: &Path,
    args: &[&str],
    input: impl Into<Vec<u8>>,
) -> Vec<String> {
    let folder = Folder::new();
    let log = folder.path("oclgrind.log");
    let mut c = command(program);
    on(witness, &mut c, &log);
    let r = feed(
        c.envs(simulated(args))
            .args(["--device", "opencl"])
            .args(args),
        input,
    );
    let lines: Vec<String> = r.lines().iter().map(|s| s.to_string()).collect();
    let said = fs::read_to_string(&log).unwrap_or_default();
    assert!(said.is_empty(), "{args:?}: {said}");
    lines
}

#[test]
fn digits_on_pocl_under_every_plan() {
    digits(Witness::Pocl, &plans_where(|_| true));
}

/// One plan has a single launch for all layers, the other has three launches for each.
#[test]
fn digits_on_oclgrind_under_chosen_plans() {
    digits(
        Witness::Oclgrind,
        &["mali-midgard".into(), "thesis-morton".into()],
    );
}

#[test]
#[ignore = "long: tests/long.py"]
fn digits_on_oclgrind_under_every_plan() {
    digits(Witness::Oclgrind, &plans_where(|_| true));
}

/// Runs the whole test set. The classes must be the host's, and the scores within the bound.
fn digits(witness: Witness, plans: &[String]) {
    let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
    let vectors: Vec<Vec<f64>> = csv
        .lines()
        .map(|l| l.split(',').map(|v| v.parse().unwrap()).collect())
        .collect();
    let reference = Reference::read(&root().join("model/digits"));
    let host = run(DIGITS, &["-o", "json"], csv.clone());
    let host = parts(&host.lines());
    reference.check(
        &vectors,
        &host.1.iter().map(|s| &**s).collect::<Vec<_>>(),
        "host",
    );
    for plan in plans {
        let lines = on_device(
            witness,
            Path::new(DIGITS),
            &["--plan", plan, "-o", "json"],
            csv.clone(),
        );
        let found = parts(&lines);
        assert_eq!(found.0, host.0, "{witness:?} {plan}");
        let scores: Vec<&str> = found.1.iter().map(|s| &**s).collect();
        reference.check(&vectors, &scores, &format!("{witness:?} {plan}"));
    }
}

/// Splits JSON results into classes and lines of scores.
fn parts(lines: &[impl AsRef<str>]) -> (Vec<String>, Vec<String>) {
    lines
        .iter()
        .map(|line| {
            let v: serde_json::Value = serde_json::from_str(line.as_ref()).unwrap();
            let scores = v["scores"]
                .as_array()
                .unwrap()
                .iter()
                .map(|s| s.to_string())
                .collect::<Vec<_>>()
                .join(",");
            (v["class"].to_string(), scores)
        })
        .unzip()
}

#[test]
#[ignore = "long: tests/long.py"]
fn mnist_network_on_every_engine_and_plan() {
    let folder = Folder::new();
    let model = root().join("model/mnist");
    let program = bake(&model, Some("thesis-morton"), &folder).unwrap();
    let reference = Reference::read(&model);
    let bytes = random_bytes(7, 300 * 784);
    let vectors: Vec<Vec<f64>> = bytes
        .chunks(784)
        .map(|r| r.iter().map(|&v| f64::from(v)).collect())
        .collect();
    let host = run(&program, &["-d", "host", "-f", "u8"], bytes.clone());
    let host_scores = run(
        &program,
        &["-d", "host", "-f", "u8", "-o", "scores"],
        bytes.clone(),
    );
    reference.check(&vectors, &host_scores.lines(), "host");
    // The scaled inputs and the outputs of sigmoids are so small that nothing can overflow.
    let info = run(&program, &["-d", "host", "--info"], "");
    assert!(
        info.out
            .contains("no finite input makes a sum overflow f32"),
        "{}",
        info.out
    );
    // Under the baked plan no constant is repacked.
    let file = folder.path("profile");
    let args = [
        "-f",
        "u8",
        "--plan",
        "baked",
        &format!("--profile=json:{}", file.display()),
    ];
    on_device(Witness::Pocl, &program, &args, bytes.clone());
    let profile: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(
        (profile["plan"].as_str(), profile["laid_out_again"].as_u64()),
        (Some("thesis-morton"), Some(0))
    );
    for (witness, records) in [(Witness::Pocl, 300), (Witness::Oclgrind, 5)] {
        let input = bytes[..records * 784].to_vec();
        for plan in &plans() {
            // The simulator is slow, so the batch is as small as the plan allows.
            let args = [
                "-f",
                "u8",
                "--plan",
                plan,
                "-b",
                if witness == Witness::Oclgrind {
                    "5"
                } else {
                    "100"
                },
            ];
            if witness == Witness::Pocl {
                assert_eq!(
                    on_device(witness, &program, &args, input.clone()),
                    host.lines()[..records],
                    "{plan}"
                );
            }
            let scores = on_device(
                witness,
                &program,
                &[&args[..], &["-o", "scores"]].concat(),
                input.clone(),
            );
            let scores: Vec<&str> = scores.iter().map(|s| &**s).collect();
            reference.check(&vectors[..records], &scores, &format!("{witness:?} {plan}"));
        }
    }
}

/// A convolution adds the residual in its own step. The host combines the two in another step and
/// gets the same.
#[test]
#[ignore = "long: tests/long.py"]
fn residual_networks_on_every_engine_and_plan() {
    const RECORDS: usize = 12;
    let numbers = |line: &str| {
        line.split(',')
            .map(|s| s.parse().unwrap())
            .collect::<Vec<f64>>()
    };
    for (model, width) in [
        ("tests/fixtures/layers/residual", 3 * 9 * 8),
        ("tests/onnx/residual.onnx", 3 * 8 * 8),
    ] {
        let folder = Folder::new();
        let program = bake(&root().join(model), None, &folder).unwrap();
        let bytes = random_bytes(3, RECORDS * width);
        let args = ["-f", "u8", "-o", "scores", "-b", "12"];
        let host = run(
            &program,
            &[&["-d", "host"], &args[..]].concat(),
            bytes.clone(),
        );
        let expected: Vec<Vec<f64>> = host.lines().iter().map(|line| numbers(line)).collect();
        assert_eq!(expected.len(), RECORDS);
        let pocl = plans()
            .into_iter()
            .map(|plan| (Witness::Pocl, plan, RECORDS));
        for (witness, plan, records) in pocl.chain([(Witness::Oclgrind, "mali-midgard".into(), 3)])
        {
            let found = on_device(
                witness,
                &program,
                &[&args[..], &["--plan", &plan]].concat(),
                bytes[..records * width].to_vec(),
            );
            assert_eq!(found.len(), records, "{plan}");
            for (found, expected) in found.iter().zip(&expected) {
                let most = expected.iter().fold(1.0f64, |most, v| most.max(v.abs()));
                let near = numbers(found)
                    .iter()
                    .zip(expected)
                    .all(|(f, e)| (f - e).abs() <= 1e-4 * most);
                assert!(near, "{witness:?} {plan}: {found}, expected {expected:?}");
            }
            let info = on_device(witness, &program, &["--info", "--plan", &plan], "").join("\n");
            assert!(
                info.contains(" + add + relu ") && !info.contains("combine_"),
                "{plan}: {info}"
            );
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
    // The host and the packed kernels have the same panels. So constants baked for the host are not
    // repacked for these kernels.
    let profiled = |plan: &str| -> serde_json::Value {
        on_device(
            Witness::Pocl,
            program,
            &[&arg, "--plan", plan, "model/digits/test.csv"],
            "",
        );
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap()
    };
    assert_eq!(profiled("mali-midgard")["laid_out_again"].as_u64(), Some(0));
    let p = profiled("thesis-morton");
    assert!(
        p["laid_out_again"].as_u64() >= Some(2)
            && p["startup_phases_us"]["build"].as_f64().unwrap() > 0.0
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
    // PoCL calls its devices basic-CPU and pthread-CPU.
    let name = first
        .strip_prefix("0: basic-")
        .unwrap()
        .split(" (")
        .next()
        .unwrap();
    assert!(listing.out.contains("\n1: "), "{}", listing.out);
    assert!(ask(&["-d", "1", "-v"]).err.contains("opencl 1: "));
    let several = ask(&["-d", name]);
    assert_eq!(several.code, Some(1));
    assert!(
        several.err.contains("more than one OpenCL device has") && several.err.contains("\n1: "),
        "{}",
        several.err
    );
    let none = ask(&["-d", "no-such-gpu"]);
    assert!(
        none.code == Some(1)
            && none
                .err
                .contains("no OpenCL device has a name with \"no-such-gpu\""),
        "{}",
        none.err
    );
    assert_eq!(ask(&["-d", "7"]).code, Some(1));
    let units = ask(&["--compute-units", "1", "-v"]);
    assert!(
        units.code == Some(0) || units.err.contains("more than one OpenCL device has"),
        "{}",
        units.err
    );
    assert!(
        ask(&["--compute-units", "999"])
            .err
            .contains("no OpenCL device has 999 compute units")
    );
    assert_eq!(ask(&["-d", "host", "--compute-units", "1"]).code, Some(2));
}

/// Runs on PoCL's basic device `count` times, with other answers to some queries.
fn answering(folder: &Folder, shim: &Path, count: usize, answers: &[&str], args: &[&str]) -> Run {
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_OPENCL", shim)
        .env("MORTONNET_SHIM_REAL", "libOpenCL.so.1")
        .env("MORTONNET_SHIM_ANSWER", answers.join(";"))
        .env("POCL_DEVICES", vec!["basic"; count].join(" "));
    feed(c.args(args), "")
}

/// The class of an NVIDIA GPU follows from its compute capability, which is queried if the driver
/// offers the query.
#[test]
fn the_compute_capability_decides_the_class() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let gpu = [
        "0:102B=GeForce RTX 3050",
        "0:102C=NVIDIA Corporation",
        "0:1000=4",
    ];
    let ask = |answers: &[&str], args: &[&str]| {
        answering(
            &folder,
            &shim,
            1,
            &[&gpu[..], answers].concat(),
            &[&["-d", "0"], args].concat(),
        )
    };
    let listing = |answers: &[&str]| {
        let r = answering(
            &folder,
            &shim,
            1,
            &[&gpu[..], answers].concat(),
            &["--list-devices", "-v"],
        );
        assert_eq!(r.code, Some(0), "{}", r.err);
        r.out
    };
    const OFFERED: &str = "0:1030=cl_khr_fp64 cl_nv_device_attribute_query";
    for (answers, class, plan, told) in [
        (
            &[OFFERED, "0:4000=8", "0:4001=6"][..],
            "nvidia",
            "nvidia",
            Some("8.6"),
        ),
        (
            &[OFFERED, "0:4000=9", "0:4001=0"],
            "nvidia-9",
            "nvidia-mma",
            Some("9.0"),
        ),
        (
            &[OFFERED, "0:4000=12", "0:4001=0"],
            "nvidia-10",
            "nvidia",
            Some("12.0"),
        ),
        (
            &[OFFERED, "0:4000=8", "0:4001=0"],
            "nvidia-a100",
            "nvidia",
            Some("8.0"),
        ),
        (
            &[OFFERED, "0:4000=7", "0:4001=5"],
            "desktop",
            "desktop",
            Some("7.5"),
        ),
        // The query is offered but fails, or works but is not offered.
        (&[OFFERED], "desktop", "desktop", None),
        (&["0:4000=9", "0:4001=0"], "desktop", "desktop", None),
    ] {
        let info = ask(answers, &["--info"]);
        let line = format!("plan {plan}: the one for devices of the class {class}\n");
        assert!(info.out.contains(&line), "{answers:?}: {}", info.out);
        let page = listing(answers);
        let row = |name: &str| {
            let found = page
                .lines()
                .find_map(|l| l.trim().strip_prefix(name))
                .map(str::trim);
            found.map(str::to_string)
        };
        assert_eq!(row("compute capability").as_deref(), told, "{page}");
        assert_eq!(
            row("class"),
            Some(format!("{class}, plan {plan}")),
            "{page}"
        );
    }
}

/// The listing has the rows of table 2.1 of the thesis, with the answers of its Mali.
#[test]
fn the_listing_has_what_the_thesis_has() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let mali = [
        ("102B", "Mali-T628", "0: Mali-T628 (GPU, 4 compute units)"),
        (
            "1000",
            "4",
            "class                   mali-midgard, plan mali-midgard",
        ),
        (
            "101F",
            "2091724800",
            "global memory           2091724800 bytes",
        ),
        (
            "101E",
            "131072",
            "  cache                 131072 bytes, of reads and writes",
        ),
        ("101C", "2", ""),
        ("101D", "64", "  cache line            64 bytes"),
        (
            "1010",
            "522931200",
            "  largest buffer        522931200 bytes",
        ),
        (
            "1019",
            "1024",
            "  sub-buffers start at  multiples of 128 bytes",
        ),
        (
            "1023",
            "32768",
            "local memory            32768 bytes, in global memory",
        ),
        ("1022", "2", ""),
        (
            "1006",
            "16",
            "vectors of char         16 preferred, 11 native",
        ),
        ("1036", "11", ""),
        (
            "1007",
            "8",
            "vectors of short        8 preferred, 12 native",
        ),
        ("1037", "12", ""),
        (
            "1008",
            "4",
            "vectors of int          4 preferred, 13 native",
        ),
        ("1038", "13", ""),
        (
            "1009",
            "2",
            "vectors of long         2 preferred, 14 native",
        ),
        ("1039", "14", ""),
        (
            "100A",
            "4",
            "vectors of float        4 preferred, 15 native",
        ),
        ("103A", "15", ""),
        (
            "100B",
            "2",
            "vectors of double       2 preferred, 16 native",
        ),
        ("103B", "16", ""),
        (
            "1034",
            "8",
            "vectors of half         8 preferred, 17 native",
        ),
        ("103C", "17", ""),
        ("100C", "600", "clock                   600 MHz at most"),
        ("1002", "4", "compute units           4"),
        (
            "1004",
            "256",
            "work-group              256 work-items at most",
        ),
        (
            "1011",
            "65536",
            "images                  2D, 65536 × 32768 pixels at most",
        ),
        ("1012", "32768", ""),
        (
            "1030",
            "cl_khr_fp64 cl_khr_fp16",
            "half precision          yes",
        ),
        ("101E", "131072", "  cache lines           2048"),
        ("1026", "1", "low byte first          yes"),
    ];
    let answers: Vec<String> = mali.iter().map(|(q, a, _)| format!("0:{q}={a}")).collect();
    let answers: Vec<&str> = answers.iter().map(|a| &**a).collect();
    let r = answering(&folder, &shim, 1, &answers, &["--list-devices", "-v"]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    for (question, _, line) in mali.iter().filter(|m| !m.2.is_empty()) {
        let found = r
            .out
            .lines()
            .any(|l| l == *line || l.strip_prefix("   ") == Some(line));
        assert!(found, "{question}: {line} is not in\n{}", r.out);
    }
    for name in [
        "in each dimension ",
        "double precision ",
        "timer ",
        "compiler ",
        "platform ",
        "extensions ",
    ] {
        assert!(r.out.contains(name), "{name} is not in\n{}", r.out);
    }
    let short = answering(&folder, &shim, 1, &answers, &["--list-devices"]);
    assert!(
        !short.out.contains("cache line") && short.out.contains("0: Mali-T628"),
        "{}",
        short.out
    );
}

/// `opencl` skips devices that cannot be used. For a named device the reason is an error.
#[test]
fn devices_that_cannot_be_used_are_passed_over_or_named() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let input = "model/digits/test.csv";
    for (answer, part) in [
        (
            "0:1027=0",
            "it is in use or switched off (CL_DEVICE_AVAILABLE is false)",
        ),
        (
            "0:1026=0",
            "it stores numbers with the high byte first (CL_DEVICE_ENDIAN_LITTLE is false)",
        ),
    ] {
        let ask = |args: &[&str]| answering(&folder, &shim, 2, &["*:1000=4", answer], args);
        for device in ["opencl", "all"] {
            let r = ask(&["-d", device, "-v", input]);
            assert!(
                r.lines().len() == 597 && r.err.contains("opencl 1: "),
                "{answer}: {}",
                r.err
            );
        }
        for args in [
            &["-d", "0", input][..],
            &["-d", "0,1", input],
            &["bench", "-d", "0", "relu", "--check"],
        ] {
            let r = ask(args);
            assert_eq!((r.code, &*r.out), (Some(1), ""), "{args:?}: {}", r.err);
            assert!(
                r.err.contains(part) && r.err.contains("mortonnet: 0: "),
                "{args:?}: {}",
                r.err
            );
        }
        assert!(
            ask(&["--list-devices"])
                .out
                .contains(&format!("\n   cannot be used: {part}")),
            "{answer}"
        );
        let both = answering(&folder, &shim, 1, &[answer], &["-d", "opencl", input]);
        assert!(
            both.code == Some(1) && both.err.contains(part),
            "{answer}: {}",
            both.err
        );
    }
}

/// A folder for `--kernels` of which no file is read is a mistake, not a passed test.
#[test]
fn kernels_that_nothing_runs_are_refused() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("matmul")).unwrap();
    fs::copy(
        root().join("kernels/matmul/naive.cl"),
        folder.path("matmul/naive.cl"),
    )
    .unwrap();
    let dir = folder.0.to_str().unwrap();
    let ask = |args: &[&str]| {
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        feed(
            c.env("POCL_DEVICES", "basic")
                .args(args)
                .args(["--kernels", dir]),
            "",
        )
    };
    for (args, part) in [
        (
            &["--selftest"][..],
            "the host runs this, and no OpenCL kernel: add --device opencl",
        ),
        (
            &[],
            "the host runs this, and no OpenCL kernel: add --device opencl",
        ),
        (
            &["--selftest", "--plan", "host"],
            "name a plan of the opencl engine",
        ),
        (
            &["-d", "host", "--selftest"],
            "--kernels is for OpenCL devices",
        ),
        (
            &["-d", "0", "--selftest", "--plan", "thesis-morton"],
            "plan thesis-morton runs none of its kernels",
        ),
        (
            &["-d", "0", "--plan", "generic"],
            "plan generic runs none of its kernels (matmul/naive.cl)",
        ),
        (
            &["-d", "host,0", "--selftest", "--plan", "baked"],
            "plan host",
        ),
        (
            &["bench", "relu", "--check"],
            "bench relu runs none of its kernels (matmul/naive.cl)",
        ),
        (&["bench", "network"], "bench network runs on the host here"),
        (
            &["bench", "network", "-d", "0"],
            "plan cpu-simd runs none of its kernels",
        ),
    ] {
        let r = ask(args);
        assert_eq!((r.code, &*r.out), (Some(2), ""), "{args:?}: {}", r.err);
        assert!(r.err.contains(part), "{args:?}: {}", r.err);
    }
    // `auto` does not hide the failure of the device.
    let mut c = command(DIGITS);
    let r = feed(
        c.args(["--selftest", "--plan", "thesis-baseline", "--kernels", dir]),
        "",
    );
    assert!(
        r.code == Some(1) && r.err.contains("/nonexistent/libOpenCL.so"),
        "{}",
        r.err
    );
    let r = ask(&["-d", "0", "--selftest", "--plan", "thesis-baseline"]);
    assert!(r.lines()[0].starts_with("passed: opencl"), "{}", r.out);
}

#[test]
fn a_missing_library_is_explained_and_auto_lives_without() {
    let r = run(DIGITS, &["-d", "opencl"], "");
    assert_eq!((r.code, &*r.out), (Some(1), ""));
    assert!(r.err.contains("/nonexistent/libOpenCL.so"), "{}", r.err);
    assert_eq!(
        run(DIGITS, &["-d", "auto", "model/digits/test.csv"], "")
            .lines()
            .len(),
        597
    );
}

#[test]
fn a_device_that_cannot_run_a_plan_says_why() {
    let folder = Folder::new();
    let mut c = command(DIGITS);
    on(Witness::Oclgrind, &mut c, &folder.path("log"));
    let r = feed(
        c.env("OCLGRIND_MAX_WGSIZE", "128")
            .args(["-d", "opencl", "--plan", "nvidia"]),
        "",
    );
    assert_eq!(r.code, Some(1));
    assert!(
        r.err
            .contains("work-groups of 256×1 work-items, the device allows 128"),
        "{}",
        r.err
    );
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    let r = feed(
        c.env("POCL_MAX_WORK_GROUP_SIZE", "256")
            .args(["-d", "opencl", "model/digits/test.csv"]),
        "",
    );
    assert_eq!(r.lines().len(), 597);
}

/// If a limit of the device forbids the one launch for all layers, each layer has its own launch,
/// with a warning. The constants are the same.
#[test]
fn one_launch_gives_way_to_a_launch_for_each_layer() {
    let folder = Folder::new();
    let host = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    let digits = |plan: &str, settings: &[(&str, &str)]| {
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        let profile = format!("--profile=json:{}", folder.path("p.json").display());
        let args = [
            "-d",
            "opencl",
            "--plan",
            plan,
            "-v",
            &profile,
            "model/digits/test.csv",
        ];
        let r = feed(c.envs(settings.iter().copied()).args(args), "");
        assert_eq!(r.out, host, "{plan} {settings:?}: {}", r.err);
        let p = fs::read_to_string(folder.path("p.json")).unwrap();
        let p: serde_json::Value = serde_json::from_str(&p).unwrap();
        assert_eq!(p["laid_out_again"].as_u64(), Some(0), "{plan} {settings:?}");
        (p["steps"].as_array().unwrap().len(), r.err)
    };
    for plan in ["mali-midgard", "mali-bifrost", "mali-valhall", "generic"] {
        let (steps, said) = digits(plan, &[("POCL_MAX_WORK_GROUP_SIZE", "256")]);
        assert!(
            steps == 1 && !said.contains("a launch for each layer"),
            "{plan}: {said}"
        );
    }
    let (steps, said) = digits("mali-midgard", &[("POCL_MAX_WORK_GROUP_SIZE", "32")]);
    assert!(
        steps == 3 && said.contains("a launch for each layer: plan mali-midgard cannot run on "),
        "{steps}: {said}"
    );
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("POCL_MAX_WORK_GROUP_SIZE", "32").args([
        "-d",
        "opencl",
        "--plan",
        "mali-midgard",
        "--selftest",
    ]);
    let r = feed(&mut c, "");
    assert!(
        r.out
            .contains("plan mali-midgard (a launch for each layer): "),
        "{}",
        r.out
    );
    assert!(
        r.err
            .contains("a launch for each layer: plan mali-midgard cannot run on "),
        "{}",
        r.err
    );
    assert!(
        said.contains("work-groups of 64×1 work-items, the device allows 32"),
        "{said}"
    );
}

/// A kernel that does not compile or a failing driver is an error. No other plan replaces it
/// silently.
#[test]
fn a_broken_launch_for_all_layers_is_an_error() {
    let folder = Folder::new();
    let kernels = folder.path("kernels");
    fs::create_dir_all(kernels.join("layers")).unwrap();
    let text = fs::read_to_string(root().join("kernels/layers/packed_4x4.cl")).unwrap();
    fs::write(
        kernels.join("layers/packed_4x4.cl"),
        text + "\nnot_a_name;\n",
    )
    .unwrap();
    let shim = shim(&folder, &[]);
    let with_kernels = ["--kernels", kernels.to_str().unwrap()];
    let failing = [
        ("MORTONNET_OPENCL", shim.to_str().unwrap()),
        ("MORTONNET_SHIM_REAL", ICD_LOADER),
        ("MORTONNET_SHIM_FAIL", "clGetKernelWorkGroupInfo:1:-5"),
    ];
    for (arguments, settings, expected) in [
        (&with_kernels[..], &[][..], "CL_BUILD_PROGRAM_FAILURE"),
        (&[], &failing, "CL_OUT_OF_RESOURCES"),
    ] {
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        c.env("POCL_MAX_WORK_GROUP_SIZE", "256")
            .envs(settings.iter().copied());
        c.args(["-d", "opencl", "--plan", "mali-midgard", "--selftest"])
            .args(arguments);
        let r = feed(&mut c, "");
        assert_eq!((r.code, &*r.out), (Some(1), ""), "{}", r.err);
        assert!(r.err.contains(expected), "{expected}: {}", r.err);
    }
}

/// The shim logs the calls that reach the OpenCL library.
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
            .env("MORTONNET_SHIM_REAL", ICD_LOADER)
            .env("MORTONNET_SHIM_LOG", &log)
            .args(["-d", "opencl", "--plan", plan, "-o", "scores"]);
        if profile {
            c.arg("--profile");
        }
        if discrete {
            // The host reads scores and computes the classes.
            c.env("MORTONNET_SHIM_DISCRETE", "1").args(["-o", "class"]);
        }
        let found = feed(&mut c, records.clone());
        assert_eq!(found.lines().len(), 10_149);
        if discrete {
            assert_eq!(
                found.out,
                run(DIGITS, &["-d", "host"], records.clone()).out,
                "{plan}"
            );
        }
        let calls = fs::read_to_string(&log).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        // From the first launch to the last flush, for all batches.
        let first = calls
            .iter()
            .position(|c| *c == "clEnqueueNDRangeKernel")
            .unwrap();
        let last = calls.iter().rposition(|c| *c == "clFlush").unwrap();
        let count = |name: &str| calls[first..].iter().filter(|c| **c == name).count();
        for call in &calls[first..=last] {
            let allowed = [
                "clEnqueue",
                "clFlush",
                "clWaitForEvents",
                "clReleaseEvent",
                "clGetEvent",
            ];
            assert!(
                allowed.iter().any(|a| call.starts_with(a)),
                "{plan}: {call} between the first and the last batch"
            );
        }
        // The first copy of a batch comes before its first launch.
        let copies = calls
            .iter()
            .filter(|c| ["clEnqueueReadBuffer", "clEnqueueWriteBuffer"].contains(c))
            .count();
        assert_eq!(count("clEnqueueMapBuffer") == 0, discrete, "{plan}");
        assert_eq!(copies > 0, discrete, "{plan}");
        // The program checks how each launch and each unmapping of the input ended. It waits for
        // copies of the input.
        let handed = if discrete { 0 } else { count("clFlush") };
        let events =
            count("clEnqueueMapBuffer") + copies + count("clEnqueueNDRangeKernel") + handed;
        assert_eq!(count("clEnqueueCopyBuffer") > 0, discrete, "{plan}");
        assert_eq!(
            count("clReleaseEvent"),
            events,
            "{plan}: every event is released once"
        );
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
            .env("MORTONNET_SHIM_REAL", ICD_LOADER)
            .env("MORTONNET_SHIM_FAIL", fail)
            .args(["-d", "opencl", "-b", "100", "model/digits/test.csv"]);
        let r = feed(&mut c, "");
        assert_eq!(r.code, Some(1), "{fail}: {}", r.err);
        assert!(r.err.contains(part), "{fail}: {}", r.err);
        assert!(
            r.out.lines().count() < 597 && r.out.lines().all(|l| l.len() == 1),
            "{fail}"
        );
    }
}

/// Names of a driver, a folder and a file have terminal control sequences, which clear the screen,
/// set the title or overwrite lines.
#[test]
fn names_from_outside_reach_the_terminal_escaped() {
    const NAME: &str = "Evil\u{1b}]0;title\u{7}\u{1b}[2J\r\u{9b}31m\u{202e}GPU";
    const SHOWN: &str = "Evil\\u{1b}]0;title\\u{7}\\u{1b}[2J\\r\\u{9b}31m\\u{202e}GPU";
    let folder = Folder::new();
    let library = shim(&folder, &[]);
    let ask = |args: &[&str]| {
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        c.env("MORTONNET_OPENCL", &library)
            .env("MORTONNET_SHIM_REAL", "libOpenCL.so.1")
            .env("MORTONNET_SHIM_NAME", NAME)
            .env("MORTONNET_SHIM_DRIVER", "1.0\u{1b}[1A\n2.0");
        let r = feed(c.args(args), "");
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(
            !r.out.contains(bad) && !r.err.contains(bad),
            "{args:?}: {:?} {:?}",
            r.out,
            r.err
        );
        r.out + &r.err
    };
    let broken = folder.path("k\u{1b}[2J");
    fs::create_dir_all(broken.join("matmul")).unwrap();
    let source = fs::read_to_string(root().join("kernels/matmul/naive.cl")).unwrap();
    fs::write(
        broken.join("matmul/naive.cl"),
        source.replacen('{', "{ no_such_thing(\u{1b});", 1),
    )
    .unwrap();
    let broken = broken.to_str().unwrap();
    let digits = "model/digits/test.csv";
    let profile = ["-d", "0", "-v", "--profile", digits];
    let json = ["-d", "0", "--profile=json", digits];
    let bench = ["bench", "network", "-d", "0", "--time-limit", "2", "-o"];
    let tables: Vec<Vec<&str>> = ["table", "md", "json"]
        .map(|o| [&bench[..], &[o]].concat())
        .into();
    for args in [
        &["--list-devices"][..],
        &["-d", "0", "--info"],
        &profile,
        &["-d", "0", "--selftest"],
        &["-d", "nothing"],
    ] {
        assert!(ask(args).contains(SHOWN), "{args:?}");
    }
    assert!(ask(&["--list-devices"]).contains("driver 1.0\\u{1b}[1A 2.0\n"));
    tables.iter().for_each(|args| {
        ask(args);
    });
    let text = ask(&json);
    let json: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(json["device"].as_str().unwrap().contains(SHOWN));
    // A build log keeps its lines.
    let log = ask(&[
        "-d",
        "0",
        "--plan",
        "thesis-baseline",
        "--kernels",
        broken,
        digits,
    ]);
    assert!(
        log.contains("no_such_thing")
            && log.lines().count() > 2
            && log.contains("k_u{1b}[2J/matmul"),
        "{log}"
    );
    let missing = ask(&["-d", "host", "no\u{1b}[2J\nmortonnet: all is well"]);
    assert!(
        missing.starts_with("mortonnet: no\\u{1b}[2J\\nmortonnet: all is well: "),
        "{missing}"
    );
    let named = run(DIGITS, &["-d", "host", "--expect", "no\u{1b}[2J"], "").err;
    assert!(named.starts_with("mortonnet: no\\u{1b}[2J: "), "{named}");
}

/// A record's scores are the same to the bit in any batch and with any number of threads. The
/// exception are batches of few records, for which some plans have other kernels.
#[test]
fn same_scores_in_any_batch_and_with_any_threads() {
    let folder = Folder::new();
    let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
    let scores = |c: &mut std::process::Command, args: &[&str], batch: &str| -> Vec<String> {
        let r = feed(
            c.args(args).args(["-o", "scores", "-b", batch]),
            csv.clone(),
        );
        r.lines().iter().map(|s| s.to_string()).collect()
    };
    let host = |batch| scores(&mut command(DIGITS), &["-d", "host"], batch);
    let expected = host("256");
    for batch in ["1", "3", "100"] {
        assert_eq!(host(batch), expected, "host, batches of {batch}");
    }
    let cores = fs::read_to_string("/proc/self/status").unwrap();
    let first = cores
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
        .unwrap()
        .trim();
    let first = first.split([',', '-']).next().unwrap();
    let mut one = std::process::Command::new("taskset");
    let plain = command(DIGITS);
    one.envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    )
    .args(["-c", first, DIGITS]);
    assert_eq!(
        scores(&mut one, &["-d", "host"], "256"),
        expected,
        "host, one thread"
    );

    let library = fs::read(root().join("kernels/library.json")).unwrap();
    let library: serde_json::Value = serde_json::from_slice(&library).unwrap();
    let entries = library["plans"].as_array().unwrap();
    let (mut others, mut own) = (0, 0);
    for plan in plans() {
        let entry = entries.iter().find(|p| p["name"] == *plan).unwrap();
        let few = entry["few"]["records"].as_u64().unwrap_or(0) as usize;
        assert!(
            few == 0 || few == 4,
            "{plan}: docs/RELIABILITY.md says four"
        );
        let device = |batch| {
            let mut c = command(DIGITS);
            on(Witness::Pocl, &mut c, &folder.path("log"));
            c.env("MORTONNET_CACHE", folder.path("cache"));
            scores(&mut c, &["-d", "opencl", "--plan", &plan], batch)
        };
        // A plan with kernels for few records has additional steps for them in programs for larger
        // batches.
        let steps = |batch: &str| {
            let mut c = command(DIGITS);
            on(Witness::Pocl, &mut c, &folder.path("log"));
            c.env("MORTONNET_CACHE", folder.path("cache"));
            c.args([
                "-d",
                "opencl",
                "--plan",
                &plan,
                "-b",
                batch,
                "--profile=json",
            ]);
            let r = feed(&mut c, csv.clone());
            let profile: serde_json::Value =
                serde_json::from_str(r.err.lines().last().unwrap()).unwrap();
            let steps = profile["steps"].as_array().unwrap().iter();
            steps
                .map(|s| s["kernel"].as_str().unwrap().to_string())
                .collect::<Vec<_>>()
        };
        // With 597 records the last batches have 97, 2 and 1 records.
        let (full, five, four, alone) = (device("100"), device("5"), device("4"), device("1"));
        assert_eq!(alone, four, "{plan}: few records");
        assert_eq!(five[..595], full[..595], "{plan}: full batches");
        let part = if few > 0 { &four } else { &full };
        assert_eq!(five[595..], part[595..], "{plan}: the part batch");
        if few == 0 {
            assert_eq!(four, full, "{plan}: it has no kernels for few records");
        }
        let (all, of_few) = (steps("100"), steps("4"));
        assert!(
            few > 0 || all == of_few,
            "{plan}: {all:?}, few records {of_few:?}"
        );
        others += usize::from(few > 0);
        own += usize::from(all != of_few);
    }
    assert!(
        others >= 4 && own >= 2,
        "{others} plans have kernels for few records, {own} use them"
    );
}

/// Devices that say they sum products of bytes get the kernels for them, where a layer's layouts
/// allow it, and give LiteRT's integers. If the device refuses these kernels, others run.
#[test]
fn devices_that_multiply_bytes_get_kernels_for_them() {
    const BYTES: &str = "convolution_whole_";
    let folder = Folder::new();
    let library = shim(&folder, &[]);
    let program = bake(&root().join("tests/tflite/wide_int8.tflite"), None, &folder).unwrap();
    let on_it = |answers: &str, args: &[&str]| {
        let mut c = command(&program);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        c.env("MORTONNET_OPENCL", &library)
            .env("MORTONNET_SHIM_REAL", ICD_LOADER)
            .env("MORTONNET_SHIM_ANSWER", answers);
        let r = feed(c.args(["-d", "0"]).args(args), "");
        assert_eq!(r.code, Some(0), "{answers}: {}", r.err);
        r
    };
    let litert = npy("tests/tflite/wide_int8.integers.npy");
    let check = |answers: &str, args: &[&str]| {
        let input = root().join("tests/tflite/wide_int8.inputs.npy");
        let input = ["-f", "npy", "-o", "scores", input.to_str().unwrap()];
        let r = on_it(answers, &[&input, args].concat());
        let found = r.out.split_whitespace().flat_map(|line| line.split(','));
        let found: Vec<f32> = found.map(|x| x.parse().unwrap()).collect();
        assert_eq!(found.len(), litert.len());
        let mut pairs = found.iter().zip(&litert);
        assert!(
            pairs.all(|(a, b)| (a - b).abs() < 1e-6),
            "{args:?}: {found:?}"
        );
        r.err
    };
    let arm = "*:1030=cl_khr_fp16 cl_arm_integer_dot_product_int8";
    // Drivers have these functions on every device, and say where they are fast.
    let slow = "*:1030=cl_khr_fp16 cl_khr_integer_dot_product";
    let info = on_it(
        &format!("{slow};*:1075=1"),
        &["--plan", "generic", "--info"],
    )
    .out;
    assert!(info.contains(BYTES), "{info}");
    for plan in [
        "adreno",
        "desktop",
        "generic",
        "mali-bifrost",
        "mali-valhall",
        "nvidia",
    ] {
        for batch in ["1", "100"] {
            let args = ["--plan", plan, "-b", batch];
            let info = on_it(arm, &[&args[..], &["--info"]].concat()).out;
            assert!(info.contains(BYTES), "{plan} {batch}: {info}");
            let said = check(arm, &args);
            assert!(!said.contains("instead of bytes"), "{plan} {batch}: {said}");
            let info = on_it(slow, &[&args[..], &["--info"]].concat()).out;
            assert!(!info.contains(BYTES), "{plan} {batch}: {info}");
        }
    }
    let refused = check(&format!("{arm};*:1004=64"), &["--plan", "generic"]);
    let why = "products of floats instead of bytes: plan generic cannot run on";
    assert!(refused.contains(why), "{refused}");
}
