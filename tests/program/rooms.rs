//! The rooms (top modules) of the program: each imports only rooms before it.

use super::support::root;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from lowest to highest. `bake` belongs to the build and imports only the first six.
const ROOMS: [&str; 17] = [
    "wide", "ir", "ops", "registry", "planner", "block", "escape", "error", "sys", "cl", "baked",
    "observe", "simd", "engine", "stream", "lab", "cli",
];

/// The number of rooms that the build shares. `build.rs` includes them.
const SHARED: usize = 6;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        match path.extension() {
            _ if path.is_dir() => sources(&path, found),
            Some(e) if e == "rs" => found.push(path),
            _ => {}
        }
    }
}

/// Returns the room of a file below `src`.
fn room(path: &Path) -> String {
    // The build shares this file of the vector code.
    if path == Path::new("simd/wide.rs") {
        return "wide".into();
    }
    let first = path
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap();
    first.trim_end_matches(".rs").to_string()
}

/// Returns the rooms that a file names by `crate::ROOM`, outside its tests.
fn named(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code: Vec<&str> = code
        .lines()
        .filter(|l| !l.trim_start().starts_with("//"))
        .collect();
    let words = code.join("\n");
    let rooms = words.split("crate::").skip(1).map(|rest| {
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next()
            .unwrap_or_default()
            .to_string()
    });
    rooms.collect()
}

/// Returns the imports of higher rooms.
fn upward(path: &Path, text: &str) -> Vec<String> {
    let from = room(path);
    let rank = |name: &str| ROOMS.iter().position(|r| *r == name);
    let most = match (&*from, rank(&from)) {
        ("bake", _) => SHARED - 1,
        (_, Some(rank)) => rank,
        (other, None) => panic!("src/{other} is no room: tests/program/rooms.rs lists them"),
    };
    // mortonnet-bake is a command line for the build's rooms.
    let baking = |name: &str| name == "bake" && path == Path::new("cli/bake.rs");
    let above =
        |name: &String| *name != from && !baking(name) && rank(name).is_none_or(|r| r > most);
    named(text)
        .into_iter()
        .filter(above)
        .map(|to| format!("{}: {from} → {to}", path.display()))
        .collect()
}

#[test]
fn imports_run_one_way() {
    let src = root().join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 60, "{}", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let path = file.strip_prefix(&src).unwrap();
        // Tests may import higher rooms.
        let tests = path.ends_with("tests.rs");
        if !tests
            && room(path) != "bin"
            && ![
                "allocations.rs",
                "lib.rs",
                "main.rs",
                "models.rs",
                "shared.rs",
            ]
            .iter()
            .any(|f| path.ends_with(f) && path.components().count() == 1)
        {
            wrong.extend(upward(path, &fs::read_to_string(&file).unwrap()));
        }
    }
    assert!(
        wrong.is_empty(),
        "a room imports one above it:\n{}",
        wrong.join("\n")
    );
}

/// Every use of the lab is behind its feature.
#[test]
fn the_lab_is_named_behind_its_feature() {
    let src = root().join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    for file in files
        .iter()
        .filter(|f| !f.starts_with(src.join("lab")) && **f != src.join("allocations.rs"))
    {
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines
            .iter()
            .enumerate()
            .filter(|(_, l)| l.contains("crate::lab"))
        {
            let whole = ["src/cli/lab.rs", "src/cli/tests.rs"]
                .iter()
                .any(|f| file.ends_with(f));
            assert!(
                whole || lines[i - 1].contains("feature = \"lab\""),
                "{}: {line}",
                file.display()
            );
        }
    }
}

#[test]
fn an_arrow_upwards_is_seen() {
    let at = |path: &str, text: &str| upward(Path::new(path), text).len();
    assert_eq!(
        at(
            "engine/host.rs",
            "use crate::lab::case;\nuse crate::ir::plan;"
        ),
        1
    );
    assert_eq!(at("ir/plan.rs", "let x = crate::ops::bound::excess;"), 1);
    assert_eq!(
        at(
            "lab/case.rs",
            "use crate::engine::model;\n// crate::cli in words"
        ),
        0
    );
    assert_eq!(
        at("bake/mod.rs", "use crate::planner;\nuse crate::cl::Device;"),
        1
    );
    assert_eq!(
        at(
            "cl/queue.rs",
            "use crate::cl::Device;\n#[cfg(test)]\nmod tests { use crate::lab; }"
        ),
        0
    );
}
