//! Drivers that compute wrongly: the first start under `auto`, and `--verify` in the stream.

use super::support::{DIGITS, Folder, ICD_LOADER, Run, Witness, command, feed, on, run, shim};
use std::fs;
use std::path::Path;

/// Runs on PoCL through the shim, with these settings, where PoCL reports a GPU.
fn gpu(folder: &Folder, shim: &Path, settings: &[(&str, &str)], args: &[&str]) -> Run {
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_SHIM_REAL", ICD_LOADER)
        .env("MORTONNET_OPENCL", shim);
    c.env("MORTONNET_SHIM_ANSWER", "*:1000=4")
        .env("MORTONNET_CACHE", folder.path("cache"));
    feed(
        c.envs(settings.iter().copied())
            .args(args)
            .arg("model/digits/test.csv"),
        "",
    )
}

/// Batches so large that a GPU pays off.
const AUTO: [&str; 3] = ["-v", "-b", "4096"];

fn trials(folder: &Folder) -> usize {
    let names = fs::read_dir(folder.path("cache"))
        .unwrap()
        .map(|e| e.unwrap().file_name());
    names
        .filter(|n| n.to_str().unwrap().starts_with("trial-"))
        .count()
}

#[test]
fn the_first_start_measures_both_sides_and_the_next_one_knows() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let host = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    let measured = |r: &Run| -> String {
        assert_eq!((r.code, &r.out), (Some(0), &host), "{}", r.err);
        let line = r
            .err
            .lines()
            .find(|l| l.contains(": the first start measured "))
            .map(String::from);
        line.unwrap_or_else(|| panic!("{}", r.err))
    };
    let first = measured(&gpu(&folder, &shim, &[], &AUTO));
    assert!(
        first.contains(" µs a record on it, ") && first.ends_with(" on the host"),
        "{first}"
    );
    assert_eq!(trials(&folder), 1);
    // The next start has the same figures, for either choice.
    assert_eq!(measured(&gpu(&folder, &shim, &[], &AUTO)), first);
    let info = gpu(&folder, &shim, &[], &["--selftest", "-b", "4096"]);
    assert!(
        info.code == Some(2),
        "a file is no argument of --selftest: {}",
        info.err
    );
    assert_eq!(trials(&folder), 1);
    // Another driver or batch has a new trial. A damaged file is made again.
    measured(&gpu(
        &folder,
        &shim,
        &[("MORTONNET_SHIM_DRIVER", "2")],
        &AUTO,
    ));
    assert_eq!(trials(&folder), 2);
    measured(&gpu(&folder, &shim, &[], &["-v", "-b", "4000"]));
    assert_eq!(trials(&folder), 3);
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
            fs::write(&path, text.replace("right ", "right 0")).unwrap();
        }
    }
    measured(&gpu(&folder, &shim, &[], &AUTO));
    // Without a cache folder each start has a trial.
    measured(&gpu(&folder, &shim, &[("MORTONNET_CACHE", "")], &AUTO));
}

#[test]
fn a_driver_that_computes_wrongly_is_not_used() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let host = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    // The first of three launches does nothing: from the first batch on, or after some batches of
    // the trial.
    for (driver, idle) in [("1", "0:1:3"), ("2", "0:19:3"), ("3", "0:91:3")] {
        for start in ["first", "next"] {
            let settings = [
                ("MORTONNET_SHIM_IDLE", idle),
                ("MORTONNET_SHIM_DRIVER", driver),
            ];
            let r = gpu(&folder, &shim, &settings, &AUTO);
            assert_eq!((r.code, &r.out), (Some(0), &host), "{}", r.err);
            let warning = r.err.lines().next().unwrap();
            assert!(
                warning.contains(": wrong answers at its first start: ")
                    && warning.contains("; running on the host instead; "),
                "{start}: {}",
                r.err
            );
        }
    }
    // `--selftest` finds the error regardless of the stored trial.
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_SHIM_REAL", ICD_LOADER)
        .env("MORTONNET_OPENCL", &shim)
        .env("MORTONNET_SHIM_DRIVER", "1");
    c.env("MORTONNET_SHIM_ANSWER", "*:1000=4")
        .env("MORTONNET_CACHE", folder.path("cache"));
    let r = feed(
        c.env("MORTONNET_SHIM_IDLE", "0:1:3")
            .args(["--selftest", "-b", "65536"]),
        "",
    );
    assert!(
        r.code == Some(1) && !r.out.contains("passed"),
        "{}{}",
        r.out,
        r.err
    );
    // A device that fails is not stored as wrong. It is tried again.
    let settings = [
        ("MORTONNET_SHIM_DIE", "0:3:-5"),
        ("MORTONNET_SHIM_DRIVER", "4"),
    ];
    let before = trials(&folder);
    for _ in 0..2 {
        let r = gpu(&folder, &shim, &settings, &AUTO);
        assert_eq!((r.code, &r.out), (Some(0), &host), "{}", r.err);
        assert!(
            r.err.contains("clEnqueueNDRangeKernel")
                && r.err.contains("running on the host instead"),
            "{}",
            r.err
        );
    }
    assert_eq!(trials(&folder), before);
}

/// A device becomes wrong while the stream runs. The right answers before are printed, and the
/// error names the record and score.
#[test]
fn verify_finds_what_goes_wrong_on_the_way() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    let host = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    let on_device = |settings: &[(&str, &str)], args: &[&str]| {
        gpu(
            &folder,
            &shim,
            settings,
            &[&["-d", "0", "-b", "10"], args].concat(),
        )
    };
    for (n, plan) in [
        ("0", "cpu-simd"),
        ("1", "cpu-simd"),
        ("3", "mali-midgard"),
        ("1000", "thesis-baseline"),
    ] {
        let r = on_device(&[], &["--verify", n, "--plan", plan]);
        assert_eq!((r.code, &r.out), (Some(0), &host), "{n} {plan}: {}", r.err);
    }
    // The launches of the start and of earlier batches are right. The first layer's values of the
    // last right batch remain in place of this batch's values.
    let steps = 6;
    for (n, wrong) in [(1, 12), (4, 12), (1, 30), (7, 25)] {
        let from = format!("0:{}:{steps}", 1 + wrong * steps);
        let idle = [("MORTONNET_SHIM_IDLE", from.as_str())];
        let plan = ["--plan", "thesis-baseline", "--verify", &n.to_string()].map(String::from);
        let plan: Vec<&str> = plan.iter().map(String::as_str).collect();
        let r = on_device(&idle, &plan);
        assert_eq!(r.code, Some(1), "{n} {wrong}: {}{}", r.out, r.err);
        let whole = host.starts_with(&r.out) || n > 1;
        let lines = r.out.lines().count();
        assert!(
            whole && lines % 10 == 0 && lines < 597,
            "{n} {wrong}: {lines}"
        );
        let record: usize = r
            .err
            .split("record ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(record > lines && record <= lines + 10, "{}", r.err);
        assert!(
            r.err.contains(" of the run: score ")
                && r.err
                    .contains(" on the host; each step is right by itself: ")
                && r.err.contains(": the device, its memory or its driver"),
            "{}",
            r.err
        );
    }
    // With several devices, and with nothing to compare.
    let r = on_device(
        &[("POCL_DEVICES", "basic basic")],
        &["-d", "0,1", "--verify", "2"],
    );
    assert_eq!((r.code, &r.out), (Some(0), &host), "{}", r.err);
    let r = run(
        DIGITS,
        &["-d", "host", "--verify", "2", "model/digits/test.csv"],
        "",
    );
    assert_eq!((r.code, &*r.out), (Some(2), ""), "{}", r.err);
    let r = run(DIGITS, &["--verify", "2", "model/digits/test.csv"], "");
    assert_eq!((r.code, &r.out), (Some(0), &host), "{}", r.err);
    assert!(r.err.contains("nothing is compared"), "{}", r.err);
}

/// The diagnosis finds the step by running each part of the network by itself, in separate memory.
#[test]
fn the_first_wrong_step_is_named() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    // The plan has 8 work-items for the first layer, 4 for the second, and one per record for the
    // arg-max.
    for (skip, named) in [
        (
            "8",
            "layers[0] (affine, by affine_packed_4x4_k4) is the first that is wrong: record 1 of \
             a batch of 256 has no result",
        ),
        (
            "4",
            " has no result, although every launch ended without an error",
        ),
        (
            "128",
            " has no result, although every launch ended without an error",
        ),
    ] {
        for asked in [
            &["--selftest"][..],
            &["--verify", "1", "-o", "json", "model/digits/test.csv"],
        ] {
            let mut c = command(DIGITS);
            on(Witness::Pocl, &mut c, &folder.path("log"));
            c.env("MORTONNET_SHIM_REAL", ICD_LOADER)
                .env("MORTONNET_OPENCL", &shim)
                .env("MORTONNET_SHIM_SKIP", skip);
            let r = feed(
                c.args(["-d", "0", "--plan", "desktop", "-b", "128"])
                    .args(asked),
                "",
            );
            assert!(
                r.code == Some(1) && r.err.contains(named),
                "{skip}: {:?} {}",
                r.code,
                r.err
            );
            assert!(r.out.is_empty(), "{}", r.out);
        }
    }
    // For two devices the message has the finding of each. Both compute wrongly here.
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_SHIM_REAL", ICD_LOADER)
        .env("MORTONNET_OPENCL", &shim)
        .env("MORTONNET_SHIM_SKIP", "8");
    c.env("POCL_DEVICES", "basic basic");
    let line = [
        "-d", "0,1", "--plan", "desktop", "-b", "128", "--verify", "1", "-o", "json",
    ];
    let r = feed(c.args(line).arg("model/digits/test.csv"), "");
    let named = "layers[0] (affine, by affine_packed_4x4_k4) is the first that is wrong";
    assert!(
        r.code == Some(1) && r.err.matches(named).count() == 2,
        "{:?} {}",
        r.code,
        r.err
    );
    // The first start names the step, too, and stores it with the trial.
    for _ in 0..2 {
        let settings = [("MORTONNET_SHIM_IDLE", "0:19:3")];
        let r = gpu(&folder, &shim, &settings, &AUTO);
        assert!(
            r.code == Some(0) && r.err.contains("each step is right by itself"),
            "{}",
            r.err
        );
    }
}
