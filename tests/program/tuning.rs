//! `mortonnet tune`: what it finds is right, is used from then on, and can be baked.

use super::support::{DIGITS, Folder, Run, Witness, bake, bake_with, command, feed, on, root};
use std::fs;
use std::path::Path;

/// The program on PoCL with a cache folder of its own.
fn tuned(program: &str, cache: &Path, args: &[&str]) -> Run {
    let mut c = command(program);
    on(Witness::Pocl, &mut c, &cache.join("log"));
    feed(c.env("MORTONNET_CACHE", cache).args(args), "")
}

#[test]
fn what_tuning_found_is_used_and_can_be_baked() {
    let folder = Folder::new();
    let (cache, plan) = (folder.path("cache"), folder.path("plan.json"));
    let save = plan.to_str().unwrap();
    let r = tuned(DIGITS, &cache, &["tune", "-d", "0", "--time-limit", "6", "--save", save, "-o", "csv"]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    let fastest = r.lines()[1].split(',').nth(1).unwrap().to_string();
    assert!(r.out.contains("thesis-morton") && r.out.contains("host"), "{fastest}: {}", r.out);
    for one in ["mali-midgard: affine_packed_4x4 alone", "mali-midgard, layers_packed_4x4 in groups of 128×1"]
    {
        assert!(r.out.contains(one), "{one}: {}", r.out);
    }
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 2, "a record of the device and one of the host");

    let info = |args: &[&str]| tuned(DIGITS, &cache, &[args, &["--info"]].concat()).out;
    assert!(info(&["-d", "0"]).contains(": tuned, "), "{}", info(&["-d", "0"]));
    assert!(info(&["-d", "host"]).contains(": tuned, "));
    assert!(!info(&["-d", "host", "--plan", "baked"]).contains(": tuned, "));
    assert!(info(&["-d", "0", "--plan", "tuned"]).contains(": tuned, "));
    assert_eq!(tuned(DIGITS, &cache, &["-d", "0", "--selftest"]).code, Some(0));

    // The plan file bakes: its constants are the tuned plan's own, nothing is laid out again.
    let baked = bake(&root().join("model/digits"), Some(save), &folder).unwrap();
    let r = tuned(baked.to_str().unwrap(), &folder.path("none"), &["-d", "0", "--info"]);
    assert!(r.out.contains("-tuned: the baked one") && !r.out.contains("laid out again"), "{}", r.out);
    assert_eq!(
        tuned(baked.to_str().unwrap(), &folder.path("none"), &["-d", "0", "--selftest"]).code,
        Some(0)
    );
    let text = fs::read_to_string(&plan).unwrap();
    fs::write(&plan, text.replacen("\"layout\": \"", "\"layout\": \"C_8_1_", 1)).unwrap();
    let mistake = bake(&root().join("model/digits"), Some(save), &folder).unwrap_err();
    assert!(mistake.contains("tune again"), "{mistake}");
}

#[test]
fn records_of_others_and_damaged_ones_are_ignored() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    let of_host = |args: &[&str]| tuned(DIGITS, &cache, &[&["-d", "host"], args].concat());
    let r = of_host(&["--plan", "tuned"]);
    assert!(r.code == Some(2) && r.err.contains("run mortonnet tune first"), "{}", r.err);
    let tune =
        |args: &[&str]| tuned(DIGITS, &cache, &[&["tune", "-d", "host", "--time-limit", "1"], args].concat());
    assert_eq!(tune(&[]).code, Some(0));
    let record = fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&record).unwrap();
    let used = || of_host(&["--info"]).out.contains(": tuned, ");
    assert!(used());
    for damage in [
        text.replace("library ", "library 0"),
        text.replace("model ", "model 0"),
        text.replace("kernels ", "kernels no_such_kernel "),
        text.replace("batch 256", "batch 0"),
        text[..text.len() / 2].to_string(),
        "\u{0}\u{1}".to_string(),
    ] {
        fs::write(&record, &damage).unwrap();
        assert!(!used(), "{damage}");
        assert_eq!(of_host(&["--selftest"]).code, Some(0));
    }
    // Without a folder to write to, the result is printed all the same.
    let r = feed(
        command(DIGITS).env("MORTONNET_CACHE", "").args(["tune", "-d", "host", "--time-limit", "1"]),
        "",
    );
    assert!(r.code == Some(0) && r.out.contains("no cache folder"), "{}{}", r.out, r.err);
    let r = feed(command(DIGITS).args(["tune", "--save", "plan.txt"]), "");
    assert_eq!(r.code, Some(2));
}

/// Halves on the host, under plans that read them on a device, and under one that does not.
#[test]
fn a_network_of_halves_is_right_everywhere() {
    let folder = Folder::new();
    let program = bake_with(&root().join("model/digits"), &[("MORTONNET_WEIGHTS", "f16")], &folder).unwrap();
    let size = |p: &Path| fs::metadata(p).unwrap().len();
    assert!(size(&program) < size(Path::new(DIGITS)), "the constants are smaller");
    for plan in ["host", "mali-midgard", "mali-valhall", "adreno", "cpu-simd", "nvidia", "thesis-baseline"] {
        let device = if plan == "host" { "host" } else { "0" };
        let args = [
            "-d",
            device,
            "--plan",
            plan,
            "--expect",
            "model/digits/test_labels.csv",
            "model/digits/test.csv",
        ];
        let r = tuned(program.to_str().unwrap(), &folder.path("none"), &args);
        assert!(r.code == Some(0) && r.err.contains("587 of 597"), "{plan}: {}", r.err);
        let r =
            tuned(program.to_str().unwrap(), &folder.path("none"), &[&args[..4], &["--selftest"]].concat());
        assert_eq!(r.code, Some(0), "{plan}: {}{}", r.out, r.err);
    }
}

#[test]
fn a_wrong_variant_is_named_and_not_timed() {
    let folder = Folder::new();
    let source = fs::read_to_string(root().join("kernels/matmul/naive.cl")).unwrap();
    fs::create_dir_all(folder.path("matmul")).unwrap();
    folder.put("matmul/naive.cl", source.replace("float sum = 0.0f", "float sum = 0.25f"));
    let dir = folder.0.to_str().unwrap().to_string();
    let r =
        tuned(DIGITS, &folder.path("cache"), &["tune", "-d", "0", "--time-limit", "60", "--kernels", &dir]);
    assert!(
        r.code == Some(1) && r.out.contains("WRONG") && r.err.contains("wrong answers"),
        "{}{}",
        r.out,
        r.err
    );
}
