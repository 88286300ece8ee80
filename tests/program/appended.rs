//! Programs with their network appended to the file. A program that `mortonnet-bake` writes runs
//! like one that cargo builds.

use super::support::{Folder, Run, Tools, command, feed, link, link_with, root, run};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn bake(args: &[&str], folder: &Folder) -> Run {
    feed(
        Command::new(Tools::get().bake())
            .args(args)
            .current_dir(&folder.0),
        "",
    )
}

/// Bakes the network of `model` and returns the program.
fn program(model: &Path, folder: &Folder) -> PathBuf {
    let r = bake(&[model.to_str().unwrap(), "-o", "net"], folder);
    assert_eq!((r.code, &*r.out), (Some(0), ""), "{}", r.err);
    folder.path("net")
}

fn digits() -> PathBuf {
    root().join("model/digits")
}

/// Checks that each command fails with this error and without output.
fn says(program: &Path, what: &str) {
    for args in [&[][..], &["--info"], &["--selftest"], &["--version"]] {
        let r = run(program, args, "1,2,3\n");
        assert!(
            r.code == Some(1) && r.out.is_empty() && r.err.contains(what),
            "{args:?}: {}{}",
            r.out,
            r.err
        );
    }
}

#[test]
fn baked_without_cargo_it_is_the_same_program() {
    let folder = Folder::new();
    for (model, weights) in [
        ("model/digits", "f32"),
        ("model/digits", "i8:100"),
        ("model/mnist-conv", "f32"),
    ] {
        let model = root().join(model);
        let linked = link_with(&model, &[("MORTONNET_WEIGHTS", weights)], &folder).unwrap();
        let args = [
            model.to_str().unwrap(),
            "-o",
            "appended",
            "--weights",
            weights,
            "--plan",
            "host",
        ];
        let r = bake(&args, &folder);
        assert_eq!(r.code, Some(0), "{}", r.err);
        assert!(r.err.starts_with("mortonnet-bake: baked "), "{}", r.err);
        let appended = folder.path("appended");
        // `--info` of the two programs differs in one word.
        let info = |program: &Path| run(program, &["--info", "-d", "host"], "").out;
        assert!(
            info(&appended).contains("bytes, appended, SHA-256 "),
            "{}",
            info(&appended)
        );
        assert_eq!(
            info(&appended).replace(" appended,", " linked,"),
            info(&linked)
        );
        let json = |program: &Path| run(program, &["--info", "-d", "host", "-o", "json"], "").out;
        assert_eq!(json(&appended), json(&linked));
        assert_eq!(
            run(&appended, &["--selftest", "-d", "host"], "").code,
            Some(0)
        );
        let width = if model.ends_with("digits") { 64 } else { 784 };
        let records: String = (0..100)
            .map(|i| {
                (0..width)
                    .map(|k| ((i * 31 + k * 7) % 17).to_string())
                    .collect::<Vec<_>>()
                    .join(",")
                    + "\n"
            })
            .collect();
        let scores = |program: &Path| run(program, &["-d", "host", "-o", "scores"], &*records).out;
        assert_eq!(scores(&appended), scores(&linked));
        assert_eq!(scores(&linked).lines().count(), 100);
    }
}

#[test]
fn a_program_without_its_network_says_so() {
    let folder = Folder::new();
    says(
        &Tools::get().program(),
        "this program holds no network: `mortonnet-bake MODEL -o FILE` writes one",
    );
    let whole = fs::read(program(&digits(), &folder)).unwrap();
    let alone = fs::metadata(Tools::get().program()).unwrap().len() as usize;
    let block = alone.next_multiple_of(65536);
    assert!(whole[block..].starts_with(b"mortonnt"));
    let removed = "strip, UPX and copies that end early remove the network; copy the program anew";
    // A program after strip, truncated copies, and one with additional bytes.
    for bytes in [alone, block, block + 1000, whole.len() - 1] {
        let cut = folder.executable(&format!("cut-{bytes}"), whole[..bytes].to_vec());
        says(
            &cut,
            &format!("its file has {bytes} bytes of {}; {removed}", whole.len()),
        );
    }
    let longer = folder.executable("longer", [&whole[..], b"more"].concat());
    says(
        &longer,
        &format!(
            "its file has {} bytes of {}; {removed}",
            whole.len() + 4,
            whole.len()
        ),
    );
    // Files of the right length with a changed byte: in the end mark, in the header, and in data
    // that each start reads.
    for (at, what) in [
        (
            whole.len() - 1,
            "what stands behind the program is not what mortonnet-bake put there",
        ),
        (block + 8, "it is of version"),
        (block + 30, "its header is not as it was written"),
        (block + 520, "its network are not as they were written"),
    ] {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        says(&folder.executable(&format!("changed-{at}"), changed), what);
    }
    // A changed weight is found only by commands that check all data.
    let mut changed = whole.clone();
    let golden = whole.len() - 80 - 64;
    changed[golden - 5000] ^= 1;
    let program = folder.executable("weight", changed);
    for args in [["--info"], ["--selftest"]] {
        let r = run(&program, &args, "");
        assert!(
            r.code == Some(1) && r.err.contains("not as they were written"),
            "{}",
            r.err
        );
    }
}

#[test]
fn a_program_is_copied_moved_and_replaced_while_it_runs() {
    let folder = Folder::new();
    let program = program(&digits(), &folder);
    let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
    let classes = run(&program, &["-d", "host"], &*csv).out;
    assert_eq!(classes.lines().count(), 597);
    let pipes = || std::process::Stdio::piped();
    let mut child = command(&program)
        .args(["-d", "host"])
        .stdin(pipes())
        .stdout(pipes())
        .spawn()
        .unwrap();
    // A bake replaces the file by another network. Then the file is renamed.
    let r = bake(
        &[
            root().join("model/mnist-conv").to_str().unwrap(),
            "-o",
            "net",
        ],
        &folder,
    );
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert!(run(&program, &["--version"], "").out.contains("mnist"));
    fs::rename(&program, folder.path("moved")).unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), csv.as_bytes()).unwrap();
    assert_eq!(
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(),
        classes
    );
    let left: Vec<_> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["moved"], "nothing else is left");
}

/// Without /proc, as in a chroot, the program finds its file by the name it was started with.
#[test]
fn a_program_finds_itself_without_proc() {
    let folder = Folder::new();
    let program = program(&digits(), &folder);
    let namespace = ["--user", "--map-root-user", "--mount", "sh", "-c"];
    let script =
        "mount -t tmpfs none /proc && test ! -e /proc/self && cd \"$1\" && exec ./net --version";
    let r = feed(
        Command::new("unshare")
            .args(namespace)
            .args([script, "sh"])
            .arg(&folder.0),
        "",
    );
    if r.err.contains("unshare") {
        return eprintln!("namespaces are not permitted here: not tried");
    }
    assert_eq!(
        (r.code, &*r.out),
        (Some(0), &*run(&program, &["--version"], "").out),
        "{}",
        r.err
    );
}

/// The output must not be an input file, neither by its name nor through a link.
#[test]
fn no_file_that_was_read_is_overwritten() {
    let folder = Folder::new();
    let own = folder.executable("program", fs::read(Tools::get().program()).unwrap());
    for entry in fs::read_dir(digits()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(
            &path,
            folder.path(path.file_name().unwrap().to_str().unwrap()),
        )
        .unwrap();
    }
    fs::copy(root().join("tests/onnx/mlp.onnx"), folder.path("net.onnx")).unwrap();
    std::os::unix::fs::symlink("net.onnx", folder.path("link.onnx")).unwrap();
    fs::hard_link(folder.path("net.onnx"), folder.path("hard")).unwrap();
    fs::create_dir(folder.path("sub")).unwrap();
    let names = || {
        let files = fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().path());
        files
            .filter(|p| p.is_file())
            .map(|p| (p.clone(), fs::read(p).unwrap()))
            .collect::<BTreeMap<_, _>>()
    };
    let before = names();
    for (model, output) in [
        ("net.onnx", "net.onnx"),
        ("net.onnx", "./sub/../net.onnx"),
        ("net.onnx", "link.onnx"),
        ("link.onnx", "net.onnx"),
        ("net.onnx", "hard"),
        ("net.onnx", "program"),
        (".", "network.json"),
        ("network.json", "1_w.csv"),
    ] {
        let program = own.to_str().unwrap();
        let r = bake(&[model, "-o", output, "--program", program], &folder);
        assert_eq!(
            (r.code, &*r.out),
            (Some(2), ""),
            "{model} {output}: {}",
            r.err
        );
        assert!(
            r.err.contains(", which was read; name another file"),
            "{model} {output}: {}",
            r.err
        );
        assert!(names() == before, "{model} {output}: files changed");
    }
    let r = bake(
        &["net.onnx", "-o", Tools::get().bake().to_str().unwrap()],
        &folder,
    );
    assert!(
        r.code == Some(2) && r.err.contains("name another file"),
        "{}",
        r.err
    );
    assert_eq!(bake(&["net.onnx", "-o", "net"], &folder).code, Some(0));
}

#[test]
fn mistakes_are_said_and_nothing_is_written() {
    let folder = Folder::new();
    let digits = digits();
    let model = digits.to_str().unwrap();
    let other = if std::env::consts::ARCH == "aarch64" {
        "armv7"
    } else {
        "aarch64"
    };
    let own = Tools::get().program();
    let own = own.to_str().unwrap();
    let full = program(&digits, &folder).display().to_string();
    let bad = folder.put(
        "network.json",
        "{\"layers\":[{\"layer\":\"AffineLayer\"}],\"size\":2}",
    );
    for (args, code, expected) in [
        (&[model][..], 2, "expected a model and -o FILE"),
        (&["-o", "x"], 2, "expected a model and -o FILE"),
        (&[model, model, "-o", "x"], 2, "unexpected argument"),
        (
            &[model, "-o", "x", "--colour"],
            2,
            "there is no option --colour; see --help",
        ),
        (
            &[model, "-o", "x", "--weight", "f16"],
            2,
            "there is no option --weight; did you mean --weights?",
        ),
        (
            &[model, "-o", "x", "-t", "arm"],
            2,
            "--target: expected one of x86_64, aarch64, armv7, found \"arm\"",
        ),
        (
            &[model, "-o", "x", "--weights", "i3"],
            2,
            "--weights: expected f32, f16, i8, or i8:PERCENT",
        ),
        (
            &[model, "-o", "x", "-t", other],
            1,
            "--program names the finished program to copy",
        ),
        (
            &[model, "-o", "x", "-t", other, "--program", own],
            1,
            "found one for",
        ),
        (
            &[model, "-o", "x", "--program", "none"],
            1,
            "none: No such file",
        ),
        (
            &[model, "-o", "x", "--program", "/bin/sh"],
            1,
            "/bin/sh: it is no program of mortonnet that takes a network",
        ),
        (
            &[model, "-o", "x", "--program", &full],
            1,
            "it has a network: take a program without one",
        ),
        (
            &[model, "-o", "x", "--plan", "fast"],
            1,
            "no plan is called \"fast\"",
        ),
        (&["none.onnx", "-o", "x"], 1, "none.onnx"),
        (&[bad.to_str().unwrap(), "-o", "x"], 1, "layers[0]"),
        (&[model, "-o", "none/x"], 1, "none/x: No such file"),
        (&[model, "-o", "/"], 1, "expected the name of a file"),
    ] {
        let r = bake(args, &folder);
        assert_eq!((r.code, &*r.out), (Some(code), ""), "{args:?}: {}", r.err);
        assert!(
            r.err.lines().all(|l| l.starts_with("mortonnet-bake: ")) && r.err.contains(expected),
            "{args:?}: {}",
            r.err
        );
        assert!(!folder.path("x").exists(), "{args:?}");
    }
    let page = bake(&["--help"], &folder);
    assert!(
        page.code == Some(0)
            && page.out.contains("--target")
            && page.out.lines().all(|l| l.len() <= 100)
    );
    assert_eq!(
        bake(&["-V"], &folder).out,
        format!("mortonnet-bake {}\n", env!("CARGO_PKG_VERSION"))
    );
    // The build names the same mistakes.
    let linked = link(&bad, None, &folder).unwrap_err();
    let r = bake(&[bad.to_str().unwrap(), "-o", "x"], &folder);
    let mistakes: Vec<&str> = r
        .err
        .lines()
        .filter_map(|l| l.split_once("layers[0]"))
        .map(|l| l.1)
        .collect();
    assert!(
        !mistakes.is_empty() && mistakes.iter().all(|m| linked.contains(m)),
        "{linked}\n{}",
        r.err
    );
}
