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

/// Every table says how it was made, and on which machine.
#[test]
fn measured_tables_name_their_command() {
    let text = fs::read_to_string(root().join("docs/MEASURED.md")).unwrap();
    for section in text.split("\n## ").skip(1) {
        assert!(section.contains('`') && section.contains("Machine "), "{}", section.lines().next().unwrap());
    }
}
