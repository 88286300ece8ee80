//! Checks of the documents: options, kernels and plans are complete, links resolve, and the README
//! is short.

use super::support::root;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The limits are 1,200 words and 100 columns (tables excepted).
#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.split_whitespace().count() <= 1200,
        "{} words",
        readme.split_whitespace().count()
    );
    for line in readme.lines().filter(|l| !l.starts_with('|')) {
        assert!(
            line.chars().count() <= 100,
            "README.md has a line of more than 100 columns: {line}"
        );
    }
}

/// The README names every plan, and docs/KERNELS.md every kernel.
#[test]
fn the_documents_name_every_plan_and_kernel() {
    let [library, readme, kernels] = ["kernels/library.json", "README.md", "docs/KERNELS.md"]
        .map(|name| fs::read_to_string(root().join(name)).unwrap());
    let library: serde_json::Value = serde_json::from_str(&library).unwrap();
    for (list, key, document) in [
        ("sources", "codename", &kernels),
        ("plans", "name", &readme),
    ] {
        for entry in library[list].as_array().unwrap() {
            let name = format!("`{}`", entry[key].as_str().unwrap());
            assert!(
                document.contains(&name),
                "the README or docs/KERNELS.md does not have {name}"
            );
        }
    }
}

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The pages of a folder.
fn pages(folder: &str) -> Vec<String> {
    let names = fs::read_dir(root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = names.filter(|name| name.ends_with(".md"));
    pages.map(|name| format!("{folder}/{name}")).collect()
}

/// Relative links lead to files that exist, and to headings that these files have.
#[test]
fn links_lead_somewhere() {
    let mut all = vec!["README.md".to_string(), "CONTRIBUTING.md".to_string()];
    for folder in [
        "docs",
        "docs/measured",
        "benches",
        "benches/arm",
        "benches/mali",
        "tests",
    ] {
        all.extend(pages(folder));
    }
    for page in &all {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap())
        {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let path = root().join(page);
            let target = if file.is_empty() {
                path
            } else {
                path.with_file_name(file)
            };
            assert!(
                target.exists(),
                "{page}: the link to {link} leads to no file"
            );
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let mut headings = text.lines().filter(|l| l.starts_with('#'));
                let found = headings.any(|l| anchor(l.trim_start_matches('#')) == heading);
                assert!(found, "{page}: {link} names no heading of that file");
            }
        }
    }
}

/// docs/KERNELS.md has a row for each plan, with its kernels by kind of operation, in the plan's
/// order.
#[test]
fn the_table_of_operations_and_plans_is_that_of_the_library() {
    let library = fs::read_to_string(root().join("kernels/library.json")).unwrap();
    let library: serde_json::Value = serde_json::from_str(&library).unwrap();
    let document = fs::read_to_string(root().join("docs/KERNELS.md")).unwrap();
    let kinds: [&[&str]; 6] = [
        &[
            "affine",
            "layers",
            "pair",
            "reducepair",
            "reduce",
            "matmul",
            "bias",
        ],
        &["convolution"],
        &["pool"],
        &["activation", "sigmoid", "relu"],
        &["gather", "repack"],
        &["argmax"],
    ];
    for plan in library["plans"].as_array().unwrap() {
        let kernels: Vec<&str> = plan["kernels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|k| k.as_str().unwrap())
            .collect();
        let of = |kinds: &[&str]| {
            let mine = kernels
                .iter()
                .filter(|k| kinds.contains(&k.split('_').next().unwrap()));
            mine.map(|k| format!("`{k}`"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut cells: Vec<String> = kinds.iter().map(|kinds| of(kinds)).collect();
        // All kernels for few records belong to affine layers.
        if let Some(few) = plan["few"]["kernels"].as_array() {
            let few: Vec<String> = few
                .iter()
                .map(|k| format!("`{}`", k.as_str().unwrap()))
                .collect();
            cells[0] = format!("few records: {}; {}", few.join(", "), cells[0]);
        }
        let row = format!(
            "| `{}` | {} |\n",
            plan["name"].as_str().unwrap(),
            cells.join(" | ")
        );
        assert!(
            document.contains(&row),
            "docs/KERNELS.md does not have this row: {row}"
        );
        for kind in ["scale_", "combine_", "resample_", "product_", "softmax_"] {
            assert!(
                kernels.iter().any(|k| k.starts_with(kind)),
                "{row}: no kernel {kind}…"
            );
        }
    }
}

/// Each section has a command and a machine.
#[test]
fn measured_tables_name_their_command() {
    let mut tables = 0;
    for page in pages("docs/measured") {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for section in text.split("\n## ").skip(1) {
            if !section.contains("\n|--") {
                continue;
            }
            tables += 1;
            assert!(
                section.contains('`') && section.contains("Machine "),
                "{page}: {}",
                section.lines().next().unwrap()
            );
        }
    }
    assert!(tables > 20, "{tables}");
}

/// The plots of docs/measured are those of the tables of their pages.
#[test]
fn plots_are_those_of_their_tables() {
    let check = Command::new("python3")
        .args(["-B", "benches/plot.py", "--check"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        check.status.success(),
        "{}",
        String::from_utf8_lossy(&check.stderr)
    );
}

/// A table that is older than the code it measures is marked as old.
#[test]
fn old_tables_are_marked() {
    let check = Command::new("python3")
        .args(["-B", "benches/all", "--check"])
        .current_dir(root())
        .output();
    let check = check.unwrap();
    assert!(
        check.status.success(),
        "{}",
        String::from_utf8_lossy(&check.stderr)
    );
}

/// Counts the unsafe blocks, functions, implementations and other unsafe code of a text, without
/// comments and tests.
fn unsafe_places(text: &str) -> [usize; 4] {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code: Vec<&str> = code
        .lines()
        .map(|l| l.split("//").next().unwrap())
        .collect();
    let code = code.join("\n");
    let mut counts = [0; 4];
    for (at, word) in code.match_indices("unsafe") {
        let (before, behind) = (
            code[..at].chars().next_back(),
            code[at + word.len()..].trim_start(),
        );
        let part_of_a_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if before.is_some_and(part_of_a_word)
            || behind.starts_with(part_of_a_word) && behind == &code[at + word.len()..]
        {
            continue;
        }
        let kinds = ["{", "fn ", "impl "];
        counts[kinds
            .iter()
            .position(|kind| behind.starts_with(kind))
            .unwrap_or(3)] += 1;
    }
    counts
}

/// docs/RELIABILITY.md counts the unsafe code of each folder that has any.
#[test]
fn the_table_of_unsafe_code_is_that_of_the_sources() {
    fn count(folder: &Path, all: &mut BTreeMap<String, [usize; 4]>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                count(&path, all);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
                let name = folder.strip_prefix(root()).unwrap().display().to_string();
                let counts = unsafe_places(&fs::read_to_string(&path).unwrap());
                let sums = all.entry(name).or_default();
                counts.iter().zip(sums).for_each(|(n, sum)| *sum += n);
            }
        }
    }
    let mut all = BTreeMap::new();
    count(&root().join("src"), &mut all);
    assert_eq!(
        unsafe_places(&fs::read_to_string(root().join("build.rs")).unwrap()),
        [0; 4]
    );
    let document = fs::read_to_string(root().join("docs/RELIABILITY.md")).unwrap();
    let section = document
        .split("\n## ")
        .find(|s| s.starts_with("`unsafe`, counted"))
        .unwrap();
    let mut rows = section
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split_once("` | "));
    let mut sums = [0; 4];
    for (folder, counts) in all.iter().filter(|(_, counts)| **counts != [0; 4]) {
        let (named, rest) = rows
            .next()
            .unwrap_or_else(|| panic!("{folder} {counts:?}: no row"));
        assert_eq!(named, folder, "{counts:?}");
        let numbers: Vec<String> = counts.iter().map(|n| n.to_string()).collect();
        assert!(
            rest.starts_with(&format!("{} | ", numbers.join(" | "))),
            "{folder}: {counts:?}"
        );
        counts.iter().zip(&mut sums).for_each(|(n, sum)| *sum += n);
    }
    assert_eq!(rows.next(), None, "a row without unsafe code");
    assert!(
        section.contains(&format!("{} places", sums.iter().sum::<usize>())),
        "{sums:?}"
    );
}
