//! Programs for boards, armv7 hard-float and aarch64. They are built as a user builds them,
//! examined, and run under emulation.
//!
//! `tests/boards/run` fetches what this needs (`tests/boards/setup`) and runs it. A plain `cargo
//! test` does not. A missing tool is a failure.
#![allow(unreachable_pub)]

#[path = "../program/loops.rs"]
#[allow(dead_code)]
mod loops;
#[path = "../program/support.rs"]
#[allow(dead_code)]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use support::{DIGITS, Folder, Reference, Run, command, feed, random_bytes, root, run};

struct Board {
    name: &'static str,
    target: &'static str,
    /// The newest version of the C library whose symbols the program may need.
    newest: (u32, u32),
    /// Cores that qemu emulates, each with the instruction set that the host engine must choose.
    cores: &'static [(&'static str, &'static str)],
}

/// The C library that programs are linked for, which is that of Ubuntu 14.04.
const GLIBC: &str = "2.19";

static BOARDS: [Board; 2] = [
    Board {
        name: "armv7",
        target: "armv7-unknown-linux-gnueabihf",
        // 2.18 is for the standard library's weak symbol __cxa_thread_atexit_impl, on both boards.
        newest: (2, 18),
        // The Odroid-XU3 has Cortex-A15 cores.
        cores: &[
            ("cortex-a15", "neon-vfpv4"),
            ("cortex-a9", "neon"),
            ("cortex-a9,neon=off", "portable"),
        ],
    },
    Board {
        name: "aarch64",
        target: "aarch64-unknown-linux-gnu",
        newest: (2, 18),
        cores: &[("cortex-a53", "neon")],
    },
];

/// The libraries of a board on which nothing was installed.
const ALLOWED: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "ld-linux-armhf.so.3",
    "ld-linux-aarch64.so.1",
];

/// Returns the path of a tool or system that `tests/boards/setup` has fetched.
fn fetched(name: &str) -> PathBuf {
    let path = root().join("target/boards").join(name);
    assert!(
        path.exists(),
        "{} is missing: tests/boards/setup makes it",
        path.display()
    );
    path
}

/// Returns the output of a tool.
fn text(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn readelf(options: &[&str], program: &Path) -> String {
    text(Command::new("readelf").args(options).arg(program))
}

/// Runs cargo-zigbuild for both boards with some settings, and returns its output.
fn zigbuild(arguments: &[&str], settings: &[(&str, &str)]) -> String {
    // One build at a time, because each uses all cores.
    static ONE: Mutex<()> = Mutex::new(());
    let _guard = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let mut cargo = Command::new(fetched("zigbuild"));
    cargo
        .args(arguments)
        .args(["--offline", "--quiet"])
        .current_dir(root());
    for board in &BOARDS {
        cargo.args(["--target", &format!("{}.{GLIBC}", board.target)]);
    }
    for name in [
        "MORTONNET_MODEL",
        "MORTONNET_PLAN",
        "MORTONNET_WEIGHTS",
        "RUSTFLAGS",
        "LD_LIBRARY_PATH",
    ] {
        cargo.env_remove(name);
    }
    // Build scripts take longer to optimise than to run, and nobody debugs these programs.
    for profile in ["RELEASE", "DEV"] {
        cargo.env(
            format!("CARGO_PROFILE_{profile}_BUILD_OVERRIDE_OPT_LEVEL"),
            "0",
        );
    }
    cargo
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0");
    text(cargo.envs(settings.iter().copied()))
}

/// The release programs for both boards.
type Pair = [PathBuf; 2];

fn release(target_dir: &Path, copies: &str, settings: &[(&str, &str)]) -> Pair {
    zigbuild(
        &[
            "zigbuild",
            "--release",
            "--target-dir",
            target_dir.to_str().unwrap(),
        ],
        settings,
    );
    [0, 1].map(|i| {
        let board = &BOARDS[i];
        let copy = target_dir.join(format!("{copies}-{}", board.name));
        fs::copy(
            target_dir.join(board.target).join("release/mortonnet"),
            &copy,
        )
        .unwrap();
        copy
    })
}

/// Returns an empty target folder. Cargo would keep packages that another compiler wrapper has
/// built.
fn fresh(name: &str) -> PathBuf {
    let folder = root().join("target/boards").join(name);
    drop(fs::remove_dir_all(&folder));
    folder
}

fn copied_digits() -> Folder {
    let model = Folder::new();
    for entry in fs::read_dir(root().join("model/digits")).unwrap().flatten() {
        fs::copy(
            entry.path(),
            model.path(entry.file_name().to_str().unwrap()),
        )
        .unwrap();
    }
    model
}

/// The target folder of all release builds except those that are compared with it.
fn first() -> &'static Path {
    static FIRST: OnceLock<PathBuf> = OnceLock::new();
    FIRST.get_or_init(|| fresh("first"))
}

/// The folder from which the digits are baked. All builds use this folder, because the program
/// contains its name.
fn model() -> PathBuf {
    root().join("target/boards/first/model")
}

fn digits() -> &'static Pair {
    static DIGITS: OnceLock<Pair> = OnceLock::new();
    DIGITS.get_or_init(|| {
        let (first, model) = (first(), model());
        fs::create_dir_all(&model).unwrap();
        for entry in fs::read_dir(root().join("model/digits")).unwrap().flatten() {
            fs::copy(entry.path(), model.join(entry.file_name())).unwrap();
        }
        release(
            first,
            "digits",
            &[("MORTONNET_MODEL", model.to_str().unwrap())],
        )
    })
}

/// The digits with a slightly changed weight.
fn changed() -> &'static Pair {
    static CHANGED: OnceLock<Pair> = OnceLock::new();
    CHANGED.get_or_init(|| {
        digits();
        // The change is so small that the golden vectors stay right. The weight is in the last
        // layer, whose inputs are all in use.
        let model = model();
        let weights = fs::read_to_string(model.join("2_w.csv")).unwrap();
        let (at, old) = weights
            .split(['\n', ','])
            .map(|w| (w.as_ptr() as usize - weights.as_ptr() as usize, w.trim()))
            .find(|(_, w)| w.parse::<f32>().unwrap().abs() > 0.1)
            .unwrap();
        let new = format!("{}", old.parse::<f32>().unwrap() * 1.000_02);
        fs::write(
            model.join("2_w.csv"),
            format!("{}{new}{}", &weights[..at], &weights[at + old.len()..]),
        )
        .unwrap();
        release(
            first(),
            "changed",
            &[("MORTONNET_MODEL", model.to_str().unwrap())],
        )
    })
}

/// MNIST's network, with symbols.
fn mnist() -> &'static Pair {
    static MNIST: OnceLock<Pair> = OnceLock::new();
    MNIST.get_or_init(|| {
        let strip = [
            ("MORTONNET_MODEL", "model/mnist"),
            ("CARGO_PROFILE_RELEASE_STRIP", "false"),
            // Symbols with the tile of each kernel.
            ("RUSTFLAGS", "-C symbol-mangling-version=v0"),
        ];
        release(first(), "mnist", &strip)
    })
}

/// Runs a board's program under qemu, without OpenCL.
fn emulated(board: &Board, program: &Path) -> Command {
    let mut c = command(fetched(&format!("run-{}", board.name)));
    c.arg(program).env_remove("LD_LIBRARY_PATH");
    c
}

/// Runs a board's program under qemu, on PoCL.
fn on_pocl(board: &Board, program: &Path, cache: &Folder) -> Command {
    let mut c = emulated(board, program);
    c.env_remove("MORTONNET_OPENCL")
        .env("POCL_CACHE_DIR", &cache.0)
        .args(["-d", "opencl"]);
    c
}

/// The program needs only the libraries of a board, with symbols that old systems have.
#[test]
fn old_systems_have_what_is_needed() {
    for (board, program) in BOARDS.iter().zip(digits()) {
        let headers = readelf(&["-hlW"], program);
        let dynamic = readelf(&["-dW"], program);
        let line = |text: &str, words: &[&str]| {
            text.lines()
                .any(|l| words.iter().all(|word| l.contains(word)))
        };
        assert!(
            line(&headers, &["Type:", "DYN"]),
            "{}: fixed addresses",
            board.name
        );
        let read_only = line(&headers, &["GNU_RELRO"]) && line(&dynamic, &["BIND_NOW"]);
        assert!(read_only, "{}: partial RELRO", board.name);
        assert!(
            line(&headers, &["GNU_STACK", "RW "]),
            "{}: an executable stack",
            board.name
        );
        let needed: Vec<&str> = dynamic
            .lines()
            .filter(|l| l.contains("(NEEDED)"))
            .map(|l| l.split('[').nth(1).unwrap().trim_end_matches(']'))
            .collect();
        assert!(!needed.is_empty(), "{dynamic}");
        for library in needed {
            assert!(
                ALLOWED.contains(&library),
                "{}: needs {library}",
                board.name
            );
        }
        let versions = readelf(&["-VW"], program);
        let versions: Vec<(u32, u32)> = versions
            .split("GLIBC_")
            .skip(1)
            .map(|v| {
                let v = v.split([' ', '\n']).next().unwrap();
                let mut numbers = v
                    .split('.')
                    .map(|n| n.trim_end_matches(')').parse::<u32>().unwrap());
                (numbers.next().unwrap(), numbers.next().unwrap())
            })
            .collect();
        let newest = versions.iter().max().unwrap();
        assert!(
            *newest <= board.newest,
            "{}: needs GLIBC_{}.{}",
            board.name,
            newest.0,
            newest.1
        );
        println!("{}: needs GLIBC_{}.{}", board.name, newest.0, newest.1);
    }
}

/// The stripped file is at most 4 MB without the network's data.
#[test]
#[ignore = "long: tests/boards/run --all"]
fn code_is_small() {
    for (board, program) in BOARDS.iter().zip(digits()) {
        let text = feed(emulated(board, program).arg("--info=block"), "");
        let lines = text.lines();
        let sections = lines
            .iter()
            .filter_map(|l| l.strip_prefix("section ")?.split_once(": "));
        let network = |name: &str| name == "constants" || name.starts_with("golden");
        let data: Vec<u64> = sections
            .filter(|(name, _)| network(name))
            .map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(data.len(), 4);
        let code = fs::metadata(program).unwrap().len() - data.iter().sum::<u64>();
        assert!(code <= 4_000_000, "{}: {code} bytes of code", board.name);
        println!("{}: {code} bytes of code", board.name);
    }
}

/// Two builds of the same inputs in different folders give the same file.
#[test]
#[ignore = "long: tests/boards/run --all"]
fn builds_are_reproducible() {
    let model = copied_digits();
    let again = release(
        &fresh("second"),
        "again",
        &[("MORTONNET_MODEL", model.0.to_str().unwrap())],
    );
    for (i, board) in BOARDS.iter().enumerate() {
        assert!(
            fs::read(&digits()[i]).unwrap() == fs::read(&again[i]).unwrap(),
            "{}: two builds differ",
            board.name
        );
    }
}

/// Another weight gives another file with that weight. zig's cache does not notice changes in a
/// file of `.incbin`.
#[test]
#[ignore = "long: tests/boards/run --all"]
fn another_weight_is_in_the_program() {
    let (digits, changed) = (digits(), changed());
    for (i, board) in BOARDS.iter().enumerate() {
        let read = |pair: &Pair| fs::read(&pair[i]).unwrap();
        assert!(
            read(digits) != read(changed),
            "{}: another weight, the same file",
            board.name
        );
        let scores = |pair: &Pair| {
            feed(
                emulated(board, &pair[i]).args([
                    "-d",
                    "host",
                    "-o",
                    "scores",
                    "model/digits/test.csv",
                ]),
                "",
            )
            .out
        };
        let (before, after) = (scores(digits), scores(changed));
        assert_eq!(before.lines().count(), 597);
        assert!(
            before != after,
            "{}: another weight, the same scores",
            board.name
        );
    }
}

/// Returns the address of a symbol.
fn address(program: &Path, symbol: &str) -> u64 {
    let symbols = readelf(&["-sW"], program);
    let line = symbols
        .lines()
        .find(|l| l.split_whitespace().last() == Some(symbol))
        .expect(symbol);
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

#[test]
#[ignore = "long: tests/boards/run --all"]
fn weights_begin_on_a_page() {
    for program in mnist() {
        assert_eq!(address(program, "mortonnet_block") % 4096, 0);
    }
}

/// Only the functions of `neon.c` and `whole.c` use instructions and registers that some armv7 CPUs
/// lack. Only those compiled for VFPv4 use its instructions.
#[test]
#[ignore = "long: tests/boards/run --all"]
fn neon_stands_in_its_own_functions() {
    let program = &mnist()[0];
    let code = text(
        Command::new("arm-linux-gnueabihf-objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(program),
    );
    let (mut function, mut neon, mut fused) = ("", 0, 0);
    for line in code.lines() {
        if let Some(name) = line.strip_suffix(">:") {
            function = name.split_once('<').unwrap().1;
        }
        let Some((_, instruction)) = line.split_once(":\t") else {
            continue;
        };
        let instruction = instruction.split(['@', ';', '<']).next().unwrap();
        let mut words = instruction.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        let operation = words.next().unwrap();
        if operation.starts_with('.') {
            continue; // data
        }
        let is_fused = ["vfma", "vfms", "vcvt.f32.f16"]
            .iter()
            .any(|f| operation.starts_with(f));
        let is_neon = words.any(|w| {
            // The range tells registers from addresses that look like them.
            let number = |prefix| {
                w.strip_prefix(prefix)
                    .and_then(|n: &str| n.parse::<u32>().ok())
            };
            number('q').is_some() || number('d').is_some_and(|n| (16..32).contains(&n))
        });
        // The unwinder saves all registers, but only for programs that use them.
        let unwinder = function.contains("libunwind") && function.contains("VFPv3");
        let of = |unit: &str| function.starts_with(&format!("mortonnet_{unit}_"));
        assert!(
            !is_neon || of("neon") || of("vfpv4") || unwinder,
            "{function}: {instruction}"
        );
        assert!(!is_fused || of("vfpv4"), "{function}: {instruction}");
        neon += u32::from(is_neon && of("neon"));
        fused += u32::from(is_fused);
    }
    assert!(neon > 100 && fused > 50, "{neon} {fused}");
}

#[test]
#[ignore = "long: tests/boards/run --all"]
fn kernels_keep_their_sums_in_registers() {
    loops::check_kernels(&loops::ARMV7, &mnist()[0], &["neon", "vfpv4"]);
    loops::check_kernels(
        &loops::AARCH64,
        &mnist()[1],
        &["aarch64", "dotprod", "i8mm"],
    );
    loops::check_tiles_of_floats(&mnist()[1]);
}

/// The results of x86-64: the same classes, and scores within the bound.
struct Expected<'a> {
    reference: Reference,
    vectors: &'a [Vec<f64>],
    classes: Vec<String>,
}

impl Expected<'_> {
    /// Checks a program. `run` runs it with additional arguments.
    fn check(&self, what: &str, run: impl Fn(&[&str]) -> Run) {
        assert_eq!(run(&[]).lines(), self.classes, "{what}");
        self.reference
            .check(self.vectors, &run(&["-o", "scores"]).lines(), what);
    }

    /// Checks the host engine on every core, and PoCL.
    fn check_board(&self, board: &Board, program: &Path, arguments: &[&str], input: &[u8]) {
        for (core, instructions) in board.cores {
            self.check(&format!("{} {core}", board.name), |more| {
                let mut c = emulated(board, program);
                c.env("QEMU_CPU", core)
                    .args(["-v", "-d", "host"])
                    .args(arguments)
                    .args(more);
                let run = feed(&mut c, input);
                let line = format!(" threads, {instructions}\n");
                assert!(
                    run.err.contains(&line),
                    "{core}: expected {instructions}, found {}",
                    run.err
                );
                run
            });
        }
        let cache = Folder::new();
        self.check(&format!("{} on PoCL", board.name), |more| {
            // On a busy machine, PoCL may take minutes to compile under emulation.
            let mut c = on_pocl(board, program, &cache);
            let run = feed(
                c.args(["-v", "--timeout", "60"]).args(arguments).args(more),
                input,
            );
            assert!(run.err.contains("plan mali-midgard"), "{}", run.err);
            run
        });
        let output = feed(on_pocl(board, program, &cache).arg("--selftest"), "");
        assert!(
            output.lines()[0].starts_with("passed: opencl"),
            "{}",
            output.out
        );
    }
}

#[test]
fn digits_are_those_of_x86() {
    let csv = fs::read(root().join("model/digits/test.csv")).unwrap();
    let vectors: Vec<Vec<f64>> = std::str::from_utf8(&csv)
        .unwrap()
        .lines()
        .map(|l| l.split(',').map(|v| v.parse().unwrap()).collect())
        .collect();
    let expected = Expected {
        reference: Reference::read(&root().join("model/digits")),
        vectors: &vectors,
        classes: run(DIGITS, &[], csv.clone())
            .lines()
            .iter()
            .map(|l| l.to_string())
            .collect(),
    };
    for (board, program) in BOARDS.iter().zip(digits()) {
        expected.check_board(board, program, &[], &csv);
    }
}

/// Random images as bytes: 25 single records, and full batches.
#[test]
#[ignore = "long: tests/boards/run --all"]
fn mnist_is_that_of_x86() {
    const RECORDS: usize = 300;
    let bytes = random_bytes(7, RECORDS * 784);
    let vectors: Vec<Vec<f64>> = bytes
        .chunks(784)
        .map(|image| image.iter().map(|&b| f64::from(b)).collect())
        .collect();
    let folder = Folder::new();
    let model = root().join("model/mnist");
    let x86 = support::bake(&model, None, &folder).unwrap();
    let expected = Expected {
        reference: Reference::read(&model),
        vectors: &vectors,
        classes: run(&x86, &["-f", "u8"], bytes.clone())
            .lines()
            .iter()
            .map(|l| l.to_string())
            .collect(),
    };
    for (board, program) in BOARDS.iter().zip(mnist()) {
        expected.check_board(board, program, &["-f", "u8"], &bytes);
        // Single records use other tiles.
        let few = Expected {
            reference: Reference::read(&model),
            vectors: &vectors[..25],
            classes: expected.classes[..25].to_vec(),
        };
        for (core, _) in board.cores {
            few.check(&format!("{} {core}, single records", board.name), |more| {
                let mut c = emulated(board, program);
                c.env("QEMU_CPU", core)
                    .args(["-d", "host", "-b", "1", "-f", "u8"])
                    .args(more);
                feed(&mut c, &bytes[..25 * 784])
            });
        }
    }
}

/// Runs the unit tests of the micro-kernels with each instruction set of a core.
#[test]
#[ignore = "long: tests/boards/run --all"]
fn micro_kernels_pass_their_tests() {
    let dir = root().join("target/boards/tests");
    let messages = zigbuild(
        &[
            "test",
            "--lib",
            "--no-run",
            "--message-format",
            "json",
            "--target-dir",
            dir.to_str().unwrap(),
        ],
        &[],
    );
    let programs: Vec<String> = messages
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap())
        .filter_map(|m| m["executable"].as_str().map(String::from))
        .collect();
    for board in &BOARDS {
        let program = programs
            .iter()
            .find(|p| p.contains(board.target))
            .expect(board.target);
        for (core, _) in board.cores.iter().take(2) {
            let mut c = emulated(board, Path::new(program));
            // Emulation is slow, so there are fewer random cases.
            let run = feed(
                c.env("QEMU_CPU", core)
                    .env("PROPTEST_CASES", "20")
                    .arg("simd::"),
                "",
            );
            assert!(
                run.code == Some(0) && run.out.contains("test result: ok. "),
                "{core}: {}{}",
                run.out,
                run.err
            );
            assert!(
                run.out.contains("affine_agrees_with_float64 ... ok"),
                "{}",
                run.out
            );
        }
    }
}
