//! docs/TUTORIAL.md: its training script and its commands for this machine print what it shows.

use super::support::{Folder, bake, command, feed, root};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A command of the page, and the lines that the page shows behind it.
struct Shown {
    command: String,
    lines: Vec<String>,
}

/// The text between the page's headings `## 2` and `## 5`: training, the build, and first runs.
fn steps_for_this_machine(page: &str) -> &str {
    let from = page.find("\n## 2. ").unwrap();
    let to = page.find("\n## 5. ").unwrap();
    &page[from..to]
}

/// The commands of all console blocks, in order. A backslash joins lines.
fn commands(text: &str) -> Vec<Shown> {
    let text = text.replace("\\\n    ", "");
    let blocks = text.split("```console\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
    let mut all: Vec<Shown> = Vec::new();
    for line in lines {
        match line.strip_prefix("$ ") {
            Some(command) => all.push(Shown {
                command: command.into(),
                lines: Vec::new(),
            }),
            None => all.last_mut().unwrap().lines.push(line.into()),
        }
    }
    all
}

/// True if `line` is `pattern`, whose `…` stand for any text.
fn alike(pattern: &str, line: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('…') else {
        return pattern == line;
    };
    let Some(mut line) = line.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let end = parts.pop().unwrap();
    for part in parts {
        match line.split_once(part) {
            Some((_, behind)) => line = behind,
            None => return false,
        }
    }
    line.ends_with(end)
}

/// Compares what a command printed with what the page shows.
fn check(shown: &Shown, printed: &str) {
    let printed: Vec<&str> = printed.lines().collect();
    let same = printed.len() == shown.lines.len()
        && shown.lines.iter().zip(&printed).all(|(p, l)| alike(p, l));
    let (command, lines) = (&shown.command, &shown.lines);
    assert!(same, "{command}: expected {lines:#?}, found {printed:#?}");
}

#[test]
fn alike_takes_dots_for_any_text() {
    assert!(alike("a", "a") && alike("a…", "abc") && alike("…c…e", "abcde") && alike("a…", "a"));
    assert!(!alike("a", "ab") && !alike("a…c", "ab") && !alike("b…", "ab") && !alike("a…b…", "ac"));
}

/// `mortonnet-bake` stands in for the build, which takes minutes: both print the same of a network.
#[test]
fn the_tutorial_prints_what_it_shows() {
    let page = fs::read_to_string(root().join("docs/TUTORIAL.md")).unwrap();
    let (folder, python) = (Folder::new(), std::env::var("MORTONNET_TEST_PYTHON"));
    let python = python.expect("MORTONNET_TEST_PYTHON is set by tests/run");
    let environment = Path::new(&python).ancestors().nth(2).unwrap();
    for name in ["target/wine", "target/release"] {
        fs::create_dir_all(folder.path(name)).unwrap();
    }
    symlink(environment, folder.path("target/python")).unwrap();
    symlink(root().join("python"), folder.path("python")).unwrap();
    let steps = steps_for_this_machine(&page);
    let script = steps.split("```python\n").nth(1).unwrap();
    folder.put("target/wine/train.py", script.split("```").next().unwrap());
    let commands = commands(steps);
    assert!(commands.len() >= 8, "{}", commands.len());
    for shown in &commands {
        if shown.command.contains("cargo build") {
            let baked = bake(&folder.path("target/wine/model"), Some("host"), &folder).unwrap();
            fs::rename(baked, folder.path("target/release/mortonnet")).unwrap();
            continue;
        }
        let mut shell = command("sh");
        shell
            .args(["-c", &format!("{{ {}; }} 2>&1", shown.command)])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(&folder.0);
        check(shown, &feed(&mut shell, "").out);
    }
    // The line that the build prints of this network.
    let mut version = command(folder.path("target/release/mortonnet"));
    let info = feed(version.arg("--info"), "").out;
    let constants = info.lines().find_map(|l| l.strip_prefix("constants "));
    let built = format!(
        "baked wine: layers 13-16-3 relu, {} of weights, for the CPU\n  (plan host)\n",
        constants.unwrap()
    );
    assert!(steps.contains(&built), "{built}");
}
