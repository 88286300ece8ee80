//! Devices and drivers with low limits: OpenCL 1.1, small work-groups, no library.

use super::support::{
    DIGITS, Folder, ICD_LOADER, Run, Witness, command, feed, on, root, run, shim,
};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the digits on PoCL through a shim.
fn through(library: &Path, folder: &Folder, settings: &[(&str, &str)], args: &[&str]) -> Run {
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_OPENCL", library)
        .env("MORTONNET_SHIM_REAL", ICD_LOADER)
        .envs(settings.iter().copied());
    feed(
        c.args(["-d", "opencl"])
            .args(args)
            .arg("model/digits/test.csv"),
        "",
    )
}

fn host() -> Run {
    run(DIGITS, &["-d", "host", "model/digits/test.csv"], "")
}

#[test]
fn plans_for_boards_run_on_a_library_of_opencl_1_1() {
    let folder = Folder::new();
    let library = shim(&folder, &["-DSHIM_ONLY_1_1"]);
    // The library exports no newer function.
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library)
        .output()
        .unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let names: Vec<&str> = symbols
        .lines()
        .filter_map(|l| l.rsplit(' ').next())
        .collect();
    assert!(
        names.contains(&"clCreateImage2D") && names.contains(&"clCreateProgramWithBinary"),
        "{names:?}"
    );
    for newer in [
        "clCreateImage",
        "clEnqueueFillBuffer",
        "clCreateSubDevices",
        "clReleaseDevice",
        "clRetainDevice",
        "clCompileProgram",
        "clLinkProgram",
        "clGetKernelArgInfo",
        "clEnqueueMigrateMemObjects",
        "clCreateCommandQueueWithProperties",
    ] {
        assert!(!names.contains(&newer), "{newer}");
    }
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_OPENCL", &library)
        .env("MORTONNET_SHIM_REAL", ICD_LOADER);
    let listing = feed(c.arg("--list-devices"), "");
    assert!(
        listing
            .lines()
            .iter()
            .any(|l| l.contains(", OpenCL 1.1 shim, ")),
        "{}",
        listing.out
    );
    let log = folder.put("calls", "");
    let settings = [("MORTONNET_SHIM_LOG", log.to_str().unwrap())];
    for plan in [
        "mali-midgard",
        "mali-bifrost",
        "mali-valhall",
        "thesis-morton",
        "adreno",
    ] {
        fs::write(&log, "").unwrap();
        let found = through(&library, &folder, &settings, &["--plan", plan]);
        assert_eq!(found.lines(), host().lines(), "{plan}");
        let calls = fs::read_to_string(&log).unwrap();
        let images = calls.lines().filter(|c| *c == "clCreateImage2D").count();
        assert_eq!(
            images,
            if plan == "adreno" { 2 } else { 0 },
            "{plan}: an image for each layer's weights"
        );
    }
}

#[test]
fn a_work_group_shrinks_to_what_a_kernel_may_have() {
    let folder = Folder::new();
    let library = shim(&folder, &[]);
    let profile = folder.path("profile");
    let json = format!("--profile=json:{}", profile.display());
    for (plan, most, found) in [
        ("mali-midgard", "32", None),
        (
            "mali-midgard",
            "16",
            Some("affine_packed_4x4: work-groups of 4×4, not 4×8: the device allows 16 work-items"),
        ),
        (
            "mali-bifrost",
            "1",
            Some("affine_packed_4x4_k4: work-groups of 1×1, not 4×8"),
        ),
        (
            "thesis-morton",
            "32",
            Some("matmul_morton_4_2: work-groups of 4×8, not 4×16"),
        ),
        (
            "thesis-morton",
            "12",
            Some("bias_morton_4_2_grouped: work-groups of 1×8, not 1×16"),
        ),
    ] {
        let settings = [("MORTONNET_SHIM_WORK_GROUP", most)];
        let r = through(&library, &folder, &settings, &["--plan", plan, &json]);
        assert_eq!(r.lines(), host().lines(), "{plan} {most}: {}", r.err);
        let said = fs::read_to_string(&profile).unwrap();
        match found {
            Some(text) => assert!(said.contains(text), "{plan} {most}: {said}"),
            None => assert!(!said.contains("work-groups of"), "{plan} {most}: {said}"),
        }
    }
    // Tiles in local memory need their work-group.
    let r = through(
        &library,
        &folder,
        &[("MORTONNET_SHIM_WORK_GROUP", "64")],
        &["--plan", "nvidia"],
    );
    assert_eq!((r.code, &*r.out), (Some(1), ""));
    let text = "wants work-groups of 256 work-items, this device allows this kernel 64";
    assert!(
        r.err.contains("plan nvidia cannot run on") && r.err.contains(text),
        "{}",
        r.err
    );
}

#[test]
fn a_device_may_have_few_work_items() {
    let folder = Folder::new();
    // oclgrind checks for races and bounds.
    for (most, plan) in [("16", "mali-midgard"), ("12", "thesis-morton")] {
        let log = folder.path("oclgrind.log");
        let mut c = command(DIGITS);
        on(Witness::Oclgrind, &mut c, &log);
        c.env("OCLGRIND_MAX_WGSIZE", most)
            .args(["-d", "opencl", "--plan", plan, "-b", "33"]);
        let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
        let some: String = csv.lines().take(40).map(|l| format!("{l}\n")).collect();
        let r = feed(&mut c, some);
        assert_eq!(r.lines(), host().lines()[..40], "{plan}: {}", r.err);
        assert_eq!(fs::read_to_string(&log).unwrap_or_default(), "", "{plan}");
    }
}

#[test]
fn without_a_library_the_page_says_what_was_tried() {
    let folder = Folder::new();
    let text = folder.put("text.so", "not a library");
    let empty = folder.path("empty.so");
    let c = folder.put("empty.c", "int clGetPlatformInfo(void) { return 0; }\n");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&empty, &c])
        .status()
        .unwrap();
    assert!(made.success());
    let listing = |set: Option<&Path>, vendors: &Path| {
        let mut c = command(DIGITS);
        match set {
            Some(library) => c.env("MORTONNET_OPENCL", library),
            None => c.env_remove("MORTONNET_OPENCL"),
        };
        feed(c.env("OCL_ICD_VENDORS", vendors).arg("--list-devices"), "")
    };
    let nowhere = Path::new("/nonexistent/libOpenCL.so");
    for (library, reason) in [
        (nowhere, "no such file"),
        (&*text, "file too short"),
        (&*empty, "has no function clGetPlatformIDs"),
    ] {
        let r = listing(Some(library), Path::new("/etc/OpenCL/vendors"));
        assert_eq!(r.code, Some(1), "{}", r.out);
        let start = format!("MORTONNET_OPENCL={}: ", library.display());
        assert!(
            r.out.starts_with(&start) && r.out.contains(reason),
            "{}",
            r.out
        );
        assert_eq!(r.err, "mortonnet: no usable OpenCL library\n");
    }
    // An ICD loader without a driver does not end the search in the folders.
    let r = listing(None, &folder.0);
    assert_eq!(r.code, Some(1), "{}", r.out);
    assert!(
        r.out
            .starts_with("no usable OpenCL library (name one in MORTONNET_OPENCL); tried\n  "),
        "{}",
        r.out
    );
    assert!(
        r.out.contains("the OpenCL loader found no driver"),
        "{}",
        r.out
    );
    let names = [
        "libmali.so",
        "libGLES_mali.so",
        "/system/vendor/lib64/egl",
        "/usr/lib/aarch64-linux-gnu/mali-egl",
    ];
    names
        .iter()
        .for_each(|n| assert!(r.out.contains(n), "{n}: {}", r.out));
    // The error of a run has the same text.
    let mut c = command(DIGITS);
    c.env_remove("MORTONNET_OPENCL")
        .env("OCL_ICD_VENDORS", &folder.0)
        .args(["-d", "opencl"]);
    assert_eq!(feed(&mut c, "").err, format!("mortonnet: {}", r.out));
}

/// A device with too little memory gets smaller batches by default. Explicit batches are refused
/// with advice.
#[test]
fn too_little_memory_makes_batches_smaller() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
    let expected = run(DIGITS, &["-d", "host"], csv.clone()).out;
    let on_device = |bytes: &str, args: &[&str]| {
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        c.env("MORTONNET_OPENCL", &shim)
            .env("MORTONNET_SHIM_REAL", ICD_LOADER)
            .env("POCL_DEVICES", "basic");
        c.env("MORTONNET_SHIM_LARGEST", bytes).args(args);
        feed(&mut c, csv.clone())
    };
    let r = on_device("20000", &["-d", "0", "--profile=json"]);
    assert_eq!((r.code, &r.out), (Some(0), &expected), "{}", r.err);
    assert!(
        r.err.contains("CL_MEM_OBJECT_ALLOCATION_FAILURE") && r.err.contains(" instead\n"),
        "{}",
        r.err
    );
    let batch = r
        .err
        .split("; batches of ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    assert!(
        (2..256).contains(&batch.parse::<usize>().unwrap()),
        "{batch}"
    );
    let r = on_device("20000", &["-d", "0", "-b", "250"]);
    assert!(
        r.code == Some(1) && r.err.contains("a smaller batch may fit"),
        "{}",
        r.err
    );
    // There is not enough memory for a single record.
    let r = on_device("200", &["-d", "0"]);
    assert!(
        r.code == Some(1) && r.err.contains("CL_MEM_OBJECT_ALLOCATION_FAILURE"),
        "{}",
        r.err
    );
    assert!(!r.err.contains("batches of"), "{}", r.err);
}

/// VideoCore IV with VC4CL. It reports the number of platforms only if there is room for them. Its
/// work-groups have twelve work-items, and its floats have no infinity or NaN.
#[test]
fn a_driver_as_vc4cl_is_asked_and_refused_with_the_reason() {
    let folder = Folder::new();
    let library = shim(&folder, &[]);
    let on_it = |answers: &str, args: &[&str]| {
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        c.env("MORTONNET_OPENCL", &library)
            .env("MORTONNET_SHIM_REAL", ICD_LOADER)
            .env("MORTONNET_SHIM_SHY", "1");
        feed(c.env("MORTONNET_SHIM_ANSWER", answers).args(args), "")
    };
    let classes = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    // Batches of few records, for which the plan has other kernels, and larger ones.
    for batch in ["4", "5"] {
        let r = on_it(
            "*:1004=12",
            &[
                "-d",
                "0",
                "--plan",
                "desktop",
                "-b",
                batch,
                "model/digits/test.csv",
            ],
        );
        assert_eq!((r.code, &r.out), (Some(0), &classes), "{batch}: {}", r.err);
        assert!(
            r.err.contains("nothing of its own for few records: "),
            "{batch}: {}",
            r.err
        );
    }
    let reason = "its floats have neither infinities nor NaN (CL_DEVICE_SINGLE_FP_CONFIG)";
    let floats = "*:101B=8;*:1000=4";
    let list = on_it(floats, &["--list-devices", "-v"]);
    assert!(
        list.out.contains(&format!("   cannot be used: {reason}")),
        "{}",
        list.out
    );
    assert!(
        list.out
            .contains("rounded to zero, neither infinities nor NaN, no denormal numbers"),
        "{}",
        list.out
    );
    for args in [
        &["-d", "0", "model/digits/test.csv"][..],
        &["-d", "0", "--selftest"],
    ] {
        let r = on_it(floats, args);
        assert!(
            r.code == Some(1) && r.out.is_empty() && r.err.contains(reason),
            "{args:?}: {}",
            r.err
        );
    }
    let r = on_it(floats, &["-v", "-b", "4096", "model/digits/test.csv"]);
    assert_eq!((r.code, &r.out), (Some(0), &classes), "{}", r.err);
    assert!(
        r.err.contains("host: no GPU can be used: ") && r.err.contains(reason),
        "{}",
        r.err
    );
}
