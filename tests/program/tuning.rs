//! `mortonnet tune`: its result is right, is used from then on, and can be baked.

use super::support::{
    DIGITS, Folder, Run, Witness, bake, bake_with, bounded, checksum, command, feed, fifo, on,
    root, run,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

/// Runs the program on PoCL with its own cache folder.
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
    let r = tuned(
        DIGITS,
        &cache,
        &[
            "tune",
            "-d",
            "0",
            "--time-limit",
            "6",
            "--save",
            save,
            "-o",
            "csv",
        ],
    );
    assert_eq!(r.code, Some(0), "{}", r.err);
    let fastest = r.lines()[1].split(',').nth(1).unwrap().to_string();
    assert!(
        r.out.contains("thesis-morton") && r.out.contains("host"),
        "{fastest}: {}",
        r.out
    );
    for one in [
        "mali-midgard: affine_packed_4x4 alone",
        "mali-midgard, layers_packed_4x4 in groups of 128×1",
    ] {
        assert!(r.out.contains(one), "{one}: {}", r.out);
    }
    assert_eq!(
        fs::read_dir(&cache).unwrap().count(),
        2,
        "a record of the device and one of the host"
    );

    let info = |args: &[&str]| tuned(DIGITS, &cache, &[args, &["--info"]].concat()).out;
    assert!(
        info(&["-d", "0"]).contains(": tuned, "),
        "{}",
        info(&["-d", "0"])
    );
    assert!(info(&["-d", "host"]).contains(": tuned, "));
    assert!(!info(&["-d", "host", "--plan", "baked"]).contains(": tuned, "));
    assert!(info(&["-d", "0", "--plan", "tuned"]).contains(": tuned, "));
    assert_eq!(
        tuned(DIGITS, &cache, &["-d", "0", "--selftest"]).code,
        Some(0)
    );

    // The plan file can be baked. The constants then have the tuned plan's layouts, and none is
    // repacked.
    let baked = bake(&root().join("model/digits"), Some(save), &folder).unwrap();
    let r = tuned(
        baked.to_str().unwrap(),
        &folder.path("none"),
        &["-d", "0", "--info"],
    );
    assert!(
        r.out.contains("-tuned: the baked one") && !r.out.contains("laid out again"),
        "{}",
        r.out
    );
    let r = tuned(
        baked.to_str().unwrap(),
        &folder.path("none"),
        &["-d", "0", "--selftest"],
    );
    assert_eq!(r.code, Some(0), "{}", r.err);
    let text = fs::read_to_string(&plan).unwrap();
    fs::write(
        &plan,
        text.replacen("\"layout\": \"", "\"layout\": \"C_8_1_", 1),
    )
    .unwrap();
    let mistake = bake(&root().join("model/digits"), Some(save), &folder).unwrap_err();
    assert!(mistake.contains("tune again"), "{mistake}");
}

/// Gives a record the right checksum.
fn whole(text: &str) -> String {
    let lines = text
        .trim_end()
        .rsplit_once("\nchecksum ")
        .map_or(text, |(lines, _)| lines);
    // The program's checksum ends each of its parts with a zero byte.
    format!(
        "{lines}\nchecksum {:016x}\n",
        checksum(&[lines.as_bytes(), b"\0"].concat())
    )
}

#[test]
fn records_of_others_and_damaged_ones_are_ignored() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    // Each start must end soon and use little memory.
    let soon = |args: &[&str]| {
        let mut c = command(DIGITS);
        bounded(
            c.env("MORTONNET_CACHE", &cache).args(args),
            "",
            Duration::from_secs(60),
            1 << 30,
        )
    };
    let of_host = |args: &[&str]| soon(&[&["-d", "host"], args].concat());
    let r = of_host(&["--plan", "tuned"]);
    assert!(
        r.code == Some(2) && r.err.contains("run mortonnet tune first"),
        "{}",
        r.err
    );
    let tune = |args: &[&str]| {
        tuned(
            DIGITS,
            &cache,
            &[&["tune", "-d", "host", "--time-limit", "1"], args].concat(),
        )
    };
    assert_eq!(tune(&[]).code, Some(0));
    let record = fs::read_dir(&cache)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let text = fs::read_to_string(&record).unwrap();
    assert_eq!(
        whole(&text),
        text,
        "the format of the test is the program's"
    );
    let used = || of_host(&["--info"]).out.contains(": tuned, ");
    assert!(used());
    let answers = run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").out;
    // Each start, also the default one, reports the error and answers as usual.
    let ignored = |what: &str, why: &str| {
        assert!(!used(), "{what}");
        for device in ["host", "auto"] {
            let r = soon(&["-d", device, "-v", "model/digits/test.csv"]);
            assert!(r.code == Some(0) && r.out == answers, "{what}: {}", r.err);
            let line = format!("mortonnet: tuning record {} is ignored: ", record.display());
            let said: Vec<&str> = r
                .err
                .lines()
                .filter_map(|l| l.strip_prefix(&line))
                .collect();
            assert!(
                said.len() == 1 && said[0].contains(why),
                "{what}: {why}: {}",
                r.err
            );
        }
        let r = of_host(&["--plan", "tuned", "--info"]);
        assert!(
            r.out.contains("is ignored: ") && r.out.contains(why),
            "{what}: {}",
            r.out
        );
    };
    let line = |start: &str, other: &str| {
        let lines = text
            .lines()
            .map(|l| if l.starts_with(start) { other } else { l });
        whole(&lines.map(|l| format!("{l}\n")).collect::<String>())
    };
    let mali = "kernels layers_packed_4x4 affine_packed_4x4 activation_unbound argmax_packed";
    let matmul =
        "kernels matmul_naive bias_rm sigmoid_unbound relu_unbound activation_unbound argmax_rm";
    for (what, content, why) in [
        (
            "another library",
            line("library ", "library 0"),
            "of another network or other kernels",
        ),
        (
            "another network",
            line("model ", "model 0"),
            "of another network or other kernels",
        ),
        (
            "another version",
            line("program ", "program 0.0.0"),
            "of another version of the program",
        ),
        (
            "another device",
            line("device ", "device Mali-T628, 4 compute units"),
            "of another device",
        ),
        (
            "another driver",
            line("driver ", "driver 1.r12p0"),
            "of another device or driver",
        ),
        (
            "no plan",
            line("plan ", "plan no_such_plan"),
            "no plan is called \"no_such_plan\"",
        ),
        (
            "a plan of the other engine",
            line("plan ", "plan mali-midgard"),
            "plan mali-midgard is for the engine opencl",
        ),
        (
            "no kernel",
            line("kernels ", "kernels no_such_kernel"),
            "no_such_kernel is no kernel of plan host",
        ),
        (
            "kernels of another plan",
            line("kernels ", mali),
            "layers_packed_4x4 is no kernel of plan host",
        ),
        (
            "products without a fused bias",
            line("kernels ", matmul),
            "matmul_naive is no kernel of plan host",
        ),
        (
            "a kernel twice",
            line("kernels ", "kernels argmax_host argmax_host"),
            "argmax_host is no kernel",
        ),
        (
            "another order",
            line("kernels ", "kernels argmax_host affine_host_panel"),
            "or not in its order",
        ),
        (
            "too few kernels",
            line("kernels ", "kernels argmax_host"),
            "needs an affine or matmul kernel",
        ),
        (
            "a work-group",
            line("batch ", "work-group affine_host_panel 3 5\nbatch 256"),
            "is none that tuning tries",
        ),
        (
            "no work-group",
            line("batch ", "work-group 4\nbatch 256"),
            "is none that tuning tries",
        ),
        (
            "batches of nothing",
            line("batch ", "batch 0"),
            "expected a number from 1 to 65536, found 0",
        ),
        (
            "endless batches",
            line("batch ", "batch 18446744073709551615"),
            "expected a number from 1 to 65536",
        ),
        (
            "no time",
            line("median-us ", "median-us NaN"),
            "median-us: expected a number above 0, found NaN",
        ),
        (
            "half a record",
            line("median-us ", "spread-us 1"),
            "it has no median-us",
        ),
        (
            "what a terminal obeys",
            line("spread-us ", "spread-us \u{1b}[2J"),
            "it is damaged",
        ),
        (
            "a changed digit",
            text.replacen("batch 2", "batch 1", 1),
            "it is damaged",
        ),
        (
            "no checksum",
            text.rsplit_once("checksum").unwrap().0.into(),
            "it is damaged",
        ),
        ("half", text[..text.len() / 2].into(), "it is damaged"),
        (
            "an older version's",
            text.split_once('\n').unwrap().1.into(),
            "of another version of the program",
        ),
        (
            "no text",
            "\u{0}\u{1}".into(),
            "of another version of the program",
        ),
        (
            "too much",
            text.repeat(1000),
            "it has more than 65536 bytes",
        ),
    ] {
        fs::write(&record, &content).unwrap();
        ignored(what, why);
    }
    assert_eq!(of_host(&["--selftest"]).code, Some(0));
    // The record is not a plain file, or belongs to another user.
    type Attack = (&'static str, fn(&Path), &'static str);
    let attacks: [Attack; 4] = [
        ("a FIFO", fifo, "it is no plain file"),
        (
            "a link to bytes without end",
            |p| symlink("/dev/zero", p).unwrap(),
            "it is a link",
        ),
        (
            "3 GB without a block",
            |p| fs::File::create(p).unwrap().set_len(3 << 30).unwrap(),
            "more than 65536 bytes",
        ),
        (
            "a folder",
            |p| fs::create_dir(p).unwrap(),
            "it is no plain file",
        ),
    ];
    for (what, attack, why) in attacks {
        fs::remove_file(&record).unwrap();
        attack(&record);
        ignored(what, why);
    }
    fs::remove_dir(&record).unwrap();
    fs::write(&record, &text).unwrap();
    assert!(used());
    fs::set_permissions(&record, fs::Permissions::from_mode(0o666)).unwrap();
    ignored(
        "a file that all may write",
        "others may write to it (mode 666)",
    );
    fs::set_permissions(&record, fs::Permissions::from_mode(0o644)).unwrap();
    if fs::metadata(&record).unwrap().uid() == 0 {
        chown(&record, Some(65534), None).unwrap();
        ignored(
            "another user's",
            "it belongs to another user (65534, this is 0)",
        );
        chown(&record, Some(0), None).unwrap();
    }
    assert!(used());
    // A file for a device that does not exist. `auto` chooses without it.
    let name = record.file_name().unwrap().to_str().unwrap();
    let other = record.with_file_name(format!("{}{:016x}", &name[..name.len() - 16], 1));
    for attack in [
        |p: &Path| fifo(p),
        |p: &Path| symlink("/dev/zero", p).unwrap(),
    ] {
        attack(&other);
        let r = soon(&["-v", "model/digits/test.csv"]);
        assert!(r.code == Some(0) && r.out == answers, "{}", r.err);
        assert!(
            r.err.contains(&format!(
                "tuning record {} is ignored: it is ",
                other.display()
            )),
            "{}",
            r.err
        );
        fs::remove_file(&other).unwrap();
    }
    // Without a cache folder, the result is printed all the same.
    let r = feed(
        command(DIGITS).env("MORTONNET_CACHE", "").args([
            "tune",
            "-d",
            "host",
            "--time-limit",
            "1",
        ]),
        "",
    );
    assert!(
        r.code == Some(0) && r.out.contains("no cache folder"),
        "{}{}",
        r.out,
        r.err
    );
    let r = feed(command(DIGITS).args(["tune", "--save", "plan.txt"]), "");
    assert_eq!(r.code, Some(2));
}

/// Weights as halves and bytes, on the host, under plans that read them on a device, and under one
/// that does not.
#[test]
fn networks_of_halves_and_bytes_are_right_everywhere() {
    for (weights, most) in [("f16", 6), ("i8", 4)] {
        rounded_weights_are_right_everywhere(weights, most);
    }
}

fn rounded_weights_are_right_everywhere(weights: &str, most: usize) {
    let folder = Folder::new();
    let program = bake_with(
        &root().join("model/digits"),
        &["--weights", weights],
        &folder,
    )
    .unwrap();
    let constants = |p: &Path| -> usize {
        let info = run(p, &["-d", "host", "--info"], "").out;
        let line = info
            .lines()
            .find_map(|l| l.strip_prefix("constants "))
            .unwrap();
        line.split(' ').next().unwrap().parse().unwrap()
    };
    assert!(
        constants(&program) < constants(Path::new(DIGITS)) * most / 10,
        "the constants are smaller"
    );
    for plan in [
        "host",
        "mali-midgard",
        "mali-valhall",
        "adreno",
        "cpu-simd",
        "nvidia",
        "thesis-baseline",
    ] {
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
        assert!(
            r.code == Some(0) && r.err.contains("587 of 597"),
            "{plan}: {}",
            r.err
        );
        let r = tuned(
            program.to_str().unwrap(),
            &folder.path("none"),
            &[&args[..4], &["--selftest"]].concat(),
        );
        assert_eq!(r.code, Some(0), "{plan}: {}{}", r.out, r.err);
    }
}

#[test]
fn a_wrong_variant_is_named_and_not_timed() {
    let folder = Folder::new();
    let source = fs::read_to_string(root().join("kernels/matmul/naive.cl")).unwrap();
    fs::create_dir_all(folder.path("matmul")).unwrap();
    folder.put(
        "matmul/naive.cl",
        source.replace("float sum = 0.0f", "float sum = 0.25f"),
    );
    let dir = folder.0.to_str().unwrap().to_string();
    let r = tuned(
        DIGITS,
        &folder.path("cache"),
        &["tune", "-d", "0", "--time-limit", "60", "--kernels", &dir],
    );
    assert!(
        r.code == Some(1) && r.out.contains("WRONG") && r.err.contains("wrong answers"),
        "{}{}",
        r.out,
        r.err
    );
}

/// The note states how much faster the chosen plan is than the next, or that the difference is
/// within the spread.
#[test]
fn how_sure_the_choice_is_stands_beside_it() {
    let folder = Folder::new();
    let args = ["tune", "-d", "0", "--time-limit", "4", "-o", "json"];
    let r = tuned(DIGITS, &folder.path("cache"), &args);
    assert_eq!(r.code, Some(0), "{}", r.err);
    let v: serde_json::Value = serde_json::from_str(&r.out).unwrap();
    let notes = v["sections"][0]["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap());
    let chosen: Vec<&str> = notes.filter(|n| n.contains(" from now on, ")).collect();
    assert_eq!(chosen.len(), 2, "{}", r.out);
    // The host has only one plan.
    assert!(chosen[0].contains("nothing else ran"), "{}", chosen[0]);
    let how = chosen[1];
    assert!(
        how.contains(" % faster than ") || how.contains(": it cannot be told from "),
        "{how}"
    );
    assert!(how.contains(", both spread by ±"), "{how}");
    let late = v["sections"][0]["rows"].as_array().unwrap().iter();
    let late = late.filter(|row| {
        row["cells"][1]["skipped"]
            .as_str()
            .is_some_and(|s| s.contains("not tried"))
    });
    assert_eq!(
        how.contains("cannot tell about "),
        late.count() > 0,
        "{how}"
    );
}
