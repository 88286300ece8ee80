//! The block of baked data: it is read in place, printed as text, and refused when damaged.

use super::support::{DIGITS, Folder, root, run};
use std::fs;
use std::path::PathBuf;

/// Returns the offset of the block in the program, and the name, offset in the block and size of
/// each section.
fn sections(program: &[u8]) -> (usize, Vec<(String, usize, usize)>) {
    let starts = (0..program.len())
        .step_by(4096)
        .filter(|&i| program[i..].starts_with(b"mortonnt"));
    let starts: Vec<usize> = starts.collect();
    let text = run(DIGITS, &["--info=block"], "");
    let lines = text.lines();
    let found = lines
        .iter()
        .filter_map(|l| l.strip_prefix("section "))
        .map(|line| {
            let (name, rest) = line.split_once(": ").unwrap();
            let words: Vec<&str> = rest.split([' ', ',']).collect();
            assert_eq!((words[1], words[2]), ("bytes", "at"), "{line}");
            (
                name.to_string(),
                words[3].parse().unwrap(),
                words[0].parse().unwrap(),
            )
        });
    (starts[0], found.collect())
}

#[test]
fn it_is_printed_as_text() {
    let page = run(DIGITS, &["--info=block"], "");
    let lines = page.lines();
    assert!(lines[0].starts_with("block version 17, "), "{}", lines[0]);
    for start in [
        "network \"digits\"",
        "value 0 ",
        "node 0 ",
        "constant 0 ",
        "step 0 ",
        "kernel ",
        "recipe",
        "source ",
    ] {
        assert!(lines.iter().any(|l| l.starts_with(start)), "{start}");
    }
    assert_eq!(run(DIGITS, &["--info=lines"], "").code, Some(2));
}

/// A changed byte in data that each start reads ends the program. A changed constant is found by
/// `--selftest` and `--info`.
#[test]
fn a_damaged_program_says_so() {
    let folder = Folder::new();
    let bytes = fs::read(DIGITS).unwrap();
    let (start, sections) = sections(&bytes);
    assert_eq!(sections.len(), 8);
    let changed = |at: usize| -> PathBuf {
        let mut bytes = bytes.clone();
        bytes[start + at] ^= 4;
        folder.executable("changed", bytes)
    };
    let test = root().join("model/digits/test.csv");
    let test = test.to_str().unwrap();
    let damaged = "mortonnet: the network in this program is damaged: ";
    for (at, why) in [
        (8, "it is of version"),
        (30, "its header is not"),
        (444, ""),
    ] {
        let found = run(changed(at), &[test], "");
        match why {
            // The bytes between the header and the first section are padding.
            "" => assert_eq!(
                (found.code, found.out.lines().count()),
                (Some(0), 597),
                "{}",
                found.err
            ),
            _ => {
                assert_eq!((found.code, &*found.out), (Some(1), ""));
                assert!(
                    found.err.starts_with(&format!("{damaged}{why}")),
                    "{}",
                    found.err
                );
            }
        }
    }
    for (name, offset, bytes) in sections.iter().filter(|s| s.2 > 0) {
        let program = changed(offset + bytes / 2);
        let read_by_every_start = ["network", "plan", "library"].contains(&&**name);
        let found = run(&program, &[test], "");
        assert_eq!(
            found.code,
            Some(i32::from(read_by_every_start)),
            "{name}: {}",
            found.err
        );
        for option in ["--selftest", "--info", "--info=block"] {
            let found = run(&program, &[option], "");
            let expected = format!(
                "{damaged}its {name} are not as they were written; copy the program anew\n"
            );
            assert_eq!(
                (found.code, &*found.out, &*found.err),
                (Some(1), "", &*expected),
                "{option}"
            );
        }
    }
}
