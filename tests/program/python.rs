//! The Python package as users call it: python/test_running.py with this program and with programs
//! that it bakes.

use super::support::{DIGITS, Tools, root};
use std::process::Command;

#[test]
fn the_python_package_gives_the_answers_to_the_array_at_hand() {
    let python = std::env::var("MORTONNET_TEST_PYTHON");
    let python = python.unwrap_or_else(|_| {
        root()
            .join("target/python/bin/python")
            .to_str()
            .unwrap()
            .into()
    });
    let path = format!(
        "{}:{}",
        Tools::get().bake().parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut tests = Command::new(python);
    tests
        .args(["-B", "-m", "unittest", "python/test_running.py"])
        .current_dir(root());
    tests
        .env("PATH", path)
        .env("MORTONNET_TEST_PROGRAM", DIGITS)
        .env("MORTONNET_CACHE", "");
    let done = tests.output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
