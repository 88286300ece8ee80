//! Messages about users' mistakes: the expected and found values, and the remedy.

use super::support::{DIGITS, Folder, Run, Tools, Witness, bake, command, feed, on, root, run};
use std::fs;
use std::path::Path;

/// Returns the error of `mortonnet-bake` in `folder` for arguments that must fail.
fn refused(folder: &Folder, args: &[&str]) -> String {
    let mut c = command(Tools::get().bake());
    let r = feed(
        c.current_dir(&folder.0).args(args).args(["-o", "program"]),
        "",
    );
    assert!(
        r.code != Some(0) && !folder.path("program").exists(),
        "{args:?}: {}",
        r.err
    );
    r.err
}

const EXPECTED: &str =
    "expected a network JSON, an ONNX (.onnx) or a TensorFlow Lite model (.tflite), found ";

#[test]
fn files_that_are_no_model_are_called_what_they_are() {
    let folder = Folder::new();
    let onnx = fs::read(root().join("tests/onnx/mlp.onnx")).unwrap();
    let tflite = fs::read(root().join("tests/tflite/line.tflite")).unwrap();
    for (name, bytes, found) in [
        (
            "train.py",
            &b"import torch\n"[..],
            "a Python program; run it",
        ),
        ("train.ipynb", b"{\"cells\": []}", "a notebook; run it"),
        (
            "data.csv",
            b"a,b\n1,2\n",
            "a text that does not begin with {; export",
        ),
        ("empty.json", b" \n", "an empty file"),
        (
            "model",
            &onnx,
            "an ONNX model; give it a name that ends in .onnx",
        ),
        (
            "net.tflite",
            &onnx,
            "an ONNX model; give it a name that ends in .onnx",
        ),
        (
            "net.json",
            &tflite,
            "a TensorFlow Lite model; give it a name that ends in .tflite",
        ),
        (
            "net.onnx",
            &tflite,
            "a TensorFlow Lite model; give it a name that ends in .tflite",
        ),
        ("weights.bin", b"\xff\x00\x01\x02", "a file of another kind"),
        ("net", b"PK\x03\x04\x14", "a zip archive"),
        ("saved.onnx", b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        ("net.bin", b"\x80\x04\x95", "a pickle"),
        (
            "web.onnx",
            b"<!DOCTYPE html>",
            "a web page; download the file itself",
        ),
        (
            "lfs.tflite",
            b"version https://git-lfs.github.com/spec/v1\n",
            "a pointer of Git LFS; `git lfs pull`",
        ),
    ] {
        folder.put(name, bytes);
        let said = refused(&folder, &[name]);
        assert!(
            said.starts_with(&format!("mortonnet-bake: {name}: {EXPECTED}{found}")),
            "{name}: {said}"
        );
    }
    // A JSON file with a syntax error is still taken for JSON. The error has the line and column,
    // or the byte.
    for (name, bytes, said) in [
        (
            "a.json",
            &b"{\"layers\": [}"[..],
            "a.json:1:13: not valid JSON: ",
        ),
        (
            "b.json",
            b"{\"n\xfcme\": 1}",
            "b.json: expected text in UTF-8, byte 3 is not",
        ),
    ] {
        folder.put(name, bytes);
        assert!(refused(&folder, &[name]).contains(said), "{name}");
    }
}

/// Without a variable the message names none, and begins with the argument.
#[test]
fn a_folder_without_a_network_says_which_models_it_has() {
    let folder = Folder::new();
    let onnx = fs::read(root().join("tests/onnx/mlp.onnx")).unwrap();
    let begin = "mortonnet-bake: .: expected network.json in this folder, found ";
    assert!(refused(&folder, &["."]).starts_with(&format!("{begin}no model\n")));
    folder.put("net.onnx", &onnx);
    assert!(refused(&folder, &["."]).starts_with(&format!("{begin}net.onnx: name that file\n")));
    folder.put("a.onnx", &onnx);
    assert!(
        refused(&folder, &["."])
            .starts_with(&format!("{begin}a.onnx, net.onnx: name one of them\n"))
    );
    for args in [
        &["none.onnx"][..],
        &["net.onnx", "--plan", "fast"],
        &["net.onnx", "--plan", "fast.json"],
    ] {
        let said = refused(&folder, args);
        let last = args.iter().rev().find(|a| !a.starts_with("fast")).unwrap();
        assert!(
            said.starts_with(&format!("mortonnet-bake: {last}: ")) && !said.contains("MORTONNET_"),
            "{said}"
        );
    }
}

#[test]
fn options_that_are_misspelt_or_repeated_are_named() {
    let folder = Folder::new();
    folder.put(
        "net.onnx",
        fs::read(root().join("tests/onnx/mlp.onnx")).unwrap(),
    );
    assert!(
        refused(&folder, &["net.onnx", "--traget", "armv7"]).contains("did you mean --target?")
    );
    let mut c = command(Tools::get().bake());
    c.current_dir(&folder.0).args([
        "net.onnx", "--plan", "host", "-o", "one", "--plan", "desktop", "-o", "two",
    ]);
    let r = feed(&mut c, "");
    for (option, value) in [("plan", "desktop"), ("output", "two")] {
        let said = format!(
            "mortonnet-bake: --{option} is there more than once: the last one holds, {value}\n"
        );
        assert!(r.err.contains(&said), "{}", r.err);
    }
    assert!(folder.path("two").exists() && !folder.path("one").exists());
    let r = run(DIGITS, &["--formt", "csv"], "");
    assert!(
        r.code == Some(2)
            && r.err
                .contains("there is no option --formt; did you mean --format?"),
        "{}",
        r.err
    );
    let r = run(DIGITS, &["-d", "host", "-o", "class", "-o", "label"], "");
    assert!(
        r.err
            .contains("--output is there more than once: the last one holds, label"),
        "{}",
        r.err
    );
}

/// Bakes a model of two named columns. `labels` is JSON text.
fn columns(folder: &Folder, labels: &str) -> Result<std::path::PathBuf, String> {
    folder.put("w.csv", "1,2\n3,4\n");
    folder.put("b.csv", "0\n0\n");
    for (name, cols) in [("w", 2), ("b", 1)] {
        let json = format!(r#"{{"rows":2,"cols":{cols},"data_type":"csv","file":"{name}.csv"}}"#);
        folder.put(&format!("{name}.json"), json);
    }
    let text = format!(
        r#"{{"layers":[{{"layer":"AffineLayer","weights":"w.json","biases":"b.json"}}],
            "size":1,"features":["alcohol","ash"],
            "output":{{"kind":"classes"}},"labels":{labels}}}"#
    );
    folder.put("network.json", text);
    bake(&folder.0, None, folder)
}

#[test]
fn columns_and_labels_are_explained() {
    let folder = Folder::new();
    let program = columns(&folder, r#"["a","b"]"#).unwrap();
    let said = |text: &str| run(&program, &["-d", "host"], text).err;
    let index = "expected the feature \"alcohol\", found \"\" (one more column stands before the \
        features, perhaps an \
                 index: --key 1 puts it in front of the answers)";
    assert!(
        said(",alcohol,ash\n0,1,2\n").contains(index),
        "{}",
        said(",alcohol,ash\n0,1,2\n")
    );
    let r = run(
        &program,
        &["-d", "host", "--key", "1"],
        ",alcohol,ash\n7,1,2\n",
    );
    assert_eq!(r.lines(), ["7,1"]);
    let swapped = "expected the feature \"alcohol\", found \"ash\" (the header has all \
        features, but in another order: ";
    assert!(said("ash,alcohol\n1,2\n").contains(swapped));
    let numbers = columns(&folder, "[1,2]").unwrap_err();
    let expected = "labels: expected a list of strings (numbers in quotes: \"1\"), found [1,2]";
    assert!(numbers.contains(expected), "{numbers}");
}

/// Runs the program on PoCL with these variables.
fn pocl(args: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut c = command(Path::new(DIGITS));
    let folder = Folder::new();
    on(Witness::Pocl, &mut c, &folder.path("log"));
    for name in ["HOME", "XDG_CACHE_HOME", "POCL_CACHE_DIR"] {
        c.env_remove(name);
    }
    feed(c.envs(variables.iter().copied()).args(args), "")
}

/// Nobody can write to /proc, not even root.
#[test]
fn pocl_without_a_folder_for_its_cache_says_so() {
    let said = "PoCL works only where it can write its cache: POCL_CACHE_DIR, else \
        XDG_CACHE_HOME/pocl, else HOME/.cache/pocl; \
                set POCL_CACHE_DIR to a folder that this user may write to";
    for variables in [
        &[("HOME", "/proc")][..],
        &[("XDG_CACHE_HOME", "/proc/none")],
        &[("POCL_CACHE_DIR", "/proc")],
    ] {
        let r = pocl(&["-d", "opencl", "--selftest"], variables);
        assert!(
            r.code == Some(1) && r.err.contains(said),
            "{variables:?}: {}",
            r.err
        );
        assert!(
            !r.err.contains("GPU's device file"),
            "{variables:?}: {}",
            r.err
        );
    }
    let folder = Folder::new();
    let r = pocl(
        &["-d", "opencl", "--selftest"],
        &[("POCL_CACHE_DIR", folder.0.to_str().unwrap())],
    );
    assert_eq!(r.code, Some(0), "{}", r.err);
}

#[test]
fn a_device_that_is_not_there_is_named_by_what_was_asked_for() {
    let folder = Folder::new();
    let cache = [("POCL_CACHE_DIR", folder.0.to_str().unwrap())];
    let r = pocl(&["-d", "opencl", "--compute-units", "999"], &cache);
    assert!(
        r.err.contains("no OpenCL device has 999 compute units; "),
        "{}",
        r.err
    );
    let r = pocl(&["-d", "7", "--compute-units", "999"], &cache);
    assert!(
        r.err
            .contains("no OpenCL device has index 7 and 999 compute units; "),
        "{}",
        r.err
    );
}
