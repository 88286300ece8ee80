//! The documents say what the program does: flags, kernels, plans, the README's length.

use super::support::{DIGITS, root, run};
use std::fs;

#[test]
fn the_readme_agrees_with_the_program() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 250);
    let help = run(DIGITS, &["--help"], "");
    for line in help.lines().iter().take_while(|l| !l.starts_with("Examples")) {
        assert!(readme.contains(line), "the README does not have this line of --help: {line}");
    }
    let library = fs::read_to_string(root().join("kernels/library.json")).unwrap();
    let library: serde_json::Value = serde_json::from_str(&library).unwrap();
    let kernels = fs::read_to_string(root().join("docs/KERNELS.md")).unwrap();
    for (list, key, document) in [("sources", "codename", &kernels), ("plans", "name", &readme)] {
        for entry in library[list].as_array().unwrap() {
            let name = format!("`{}`", entry[key].as_str().unwrap());
            assert!(document.contains(&name), "the README or docs/KERNELS.md does not have {name}");
        }
    }
}

/// docs/KERNELS.md has a row for each plan: the kernels of each kind of operation, in the plan's order.
#[test]
fn the_table_of_operations_and_plans_is_that_of_the_library() {
    let library = fs::read_to_string(root().join("kernels/library.json")).unwrap();
    let library: serde_json::Value = serde_json::from_str(&library).unwrap();
    let document = fs::read_to_string(root().join("docs/KERNELS.md")).unwrap();
    let kinds: [&[&str]; 6] = [
        &["affine", "layers", "pair", "reduce", "matmul", "bias"],
        &["convolution"],
        &["pool"],
        &["activation", "sigmoid", "relu"],
        &["gather", "repack"],
        &["argmax"],
    ];
    for plan in library["plans"].as_array().unwrap() {
        let kernels: Vec<&str> =
            plan["kernels"].as_array().unwrap().iter().map(|k| k.as_str().unwrap()).collect();
        let of = |kinds: &[&str]| {
            let mine = kernels.iter().filter(|k| kinds.contains(&k.split('_').next().unwrap()));
            mine.map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ")
        };
        let mut cells: Vec<String> = kinds.iter().map(|kinds| of(kinds)).collect();
        // All of them are of affine layers.
        if let Some(few) = plan["few"]["kernels"].as_array() {
            let few: Vec<String> = few.iter().map(|k| format!("`{}`", k.as_str().unwrap())).collect();
            cells[0] = format!("few records: {}; {}", few.join(", "), cells[0]);
        }
        let row = format!("| `{}` | {} |\n", plan["name"].as_str().unwrap(), cells.join(" | "));
        assert!(document.contains(&row), "docs/KERNELS.md does not have this row: {row}");
        for kind in ["scale_", "combine_", "softmax_"] {
            assert!(kernels.iter().any(|k| k.starts_with(kind)), "{row}: no kernel {kind}…");
        }
    }
}

/// Every table says how it was made, and on which machine.
#[test]
fn measured_tables_name_their_command() {
    let text = fs::read_to_string(root().join("docs/MEASURED.md")).unwrap();
    for section in text.split("\n## ").skip(1) {
        assert!(section.contains('`') && section.contains("Machine "), "{}", section.lines().next().unwrap());
    }
}
