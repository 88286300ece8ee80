//! Tests of the command line: each parses a line and checks the command or the error.

use super::classify::ProfileOption;
use super::*;
use crate::engine::select::DeviceWish;
use crate::lab::Bench;
use crate::observe::report::ProfileFormat;
use crate::stream::SeriesRows;
use std::path::PathBuf;

fn parse(line: &str) -> Result<Command, String> {
    Command::parse(line.split_whitespace().map(OsString::from)).map_err(|e| {
        assert_eq!(e.exit_code(), 2);
        e.to_string()
    })
}

fn classify(line: &str) -> Classify {
    match parse(line) {
        Ok(Command::Classify(classify)) => *classify,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn an_unknown_option_resembles_a_known_one() {
    for (line, meant) in [
        ("--ouput scores", "did you mean --output?"),
        ("--expected e", "did you mean --expect?"),
        ("--prof", "did you mean --profile?"),
        (
            "--device-list",
            "there is no option --device-list; see --help",
        ),
        ("--max-mem 3", "did you mean --max-memory?"),
        ("--verison", "did you mean --version?"),
        ("--x", "there is no option --x; see --help"),
        ("--zzzzzz", "there is no option --zzzzzz; see --help"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(
            error.contains(meant) && error.contains(" no option --"),
            "{line}: {error}"
        );
    }
}

#[test]
fn an_option_with_several_values_is_named() {
    let given = |options: &[(&'static str, &str)]| {
        let mut given = Arguments::default();
        for (name, value) in options {
            given.add(name, OsString::from(value));
        }
        given
    };
    let last = given(&[
        ("output", "class"),
        ("batch", "3"),
        ("output", "class"),
        ("output", "scores"),
    ]);
    assert_eq!(
        last.repeated(),
        ["--output is there more than once: the last one holds, scores"]
    );
    assert_eq!(
        given(&[
            ("batch", "3"),
            ("batch", "3"),
            ("verbose", ""),
            ("verbose", "")
        ])
        .repeated(),
        [""; 0]
    );
}

#[test]
fn the_contract_is_read() {
    let c = classify("-f u8 -o top=3 -b 50 -d 1 --compute-units=4 --plan baked a.bin - --expect e");
    assert_eq!(c.files, [PathBuf::from("a.bin"), PathBuf::from("-")]);
    let r = c.request;
    assert_eq!(
        (r.batch, r.device, r.compute_units),
        (Some(50), DeviceWish::Index(1), Some(4))
    );
    assert_eq!(
        (r.plan.as_deref(), c.expect),
        (Some("baked"), Some("e".into()))
    );
    let device = |line| classify(line).request.device;
    assert_eq!(device("-d Mali"), DeviceWish::Name("Mali".into()));
    let list = DeviceWish::List(vec![
        DeviceWish::Host,
        DeviceWish::Index(0),
        DeviceWish::Name("g52".into()),
    ]);
    assert_eq!(device("-d host,0,g52"), list);
    assert_eq!(device("--device=all"), DeviceWish::All);
    assert_eq!(
        device("-d host,all"),
        DeviceWish::List(vec![DeviceWish::Host, DeviceWish::All])
    );
    let profile = |line| classify(line).profile;
    for (line, format, file) in [
        ("--profile", ProfileFormat::Table, None),
        ("--profile=json:x", ProfileFormat::Json, Some("x".into())),
        ("--profile=trace:x", ProfileFormat::Trace, Some("x".into())),
    ] {
        assert_eq!(profile(line), Some(ProfileOption { format, file }));
    }
    assert_eq!(
        classify("--expect e --min-accuracy 97%").min_accuracy,
        Some(0.97)
    );
    let c = classify("--expect-scores s --on-error mark");
    assert_eq!((c.tolerance, c.mark), (None, true));
    assert_eq!(
        classify("--expect-scores s --tolerance 1e-3").tolerance,
        Some(1e-3)
    );
    let memory = |line| classify(line).request.max_memory;
    assert_eq!((memory("--max-memory 5"), memory("")), (Some(5), None));
    assert_eq!(
        ["3k", "3K", "3M", "3G"].map(|n| arguments::bytes(n).unwrap()),
        [3 << 10, 3 << 10, 3 << 20, 3 << 30]
    );
    let rows = |line| classify(line).rows;
    assert_eq!(
        rows("--window 16"),
        Some(SeriesRows {
            window: 16,
            hop: 16
        })
    );
    assert_eq!(
        (rows("--hop 1 --window 16"), rows("")),
        (Some(SeriesRows { window: 16, hop: 1 }), None)
    );
    assert!(!classify("").mark && !classify("--on-error mark --on-error stop").mark);
    assert!(
        matches!(parse("--help --nonsense"), Ok(Command::Help(page)) if page.contains("--selftest"))
    );
    assert!(matches!(parse("-V bench"), Ok(Command::Version)));
}

#[test]
fn mistakes_are_usage_errors_that_name_the_flag() {
    for (line, part) in [
        ("--nonsense", "--nonsense"),
        (
            "-b 0",
            "--batch: expected a number from 1 to 65536, found \"0\"",
        ),
        ("-b", "-b"),
        ("-f png", "--format"),
        ("-o klass", "--output"),
        ("-o top=0", "--output"),
        (
            "--profile=svg",
            "--profile: expected table, json or trace, found \"svg\"",
        ),
        ("--profile=json:", "a file name is missing"),
        ("--min-accuracy 0.5", "needs --expect"),
        ("--expect e --min-accuracy 2", "expected 0 to 1"),
        (
            "--max-memory 0",
            "--max-memory: expected bytes, with k, M or G behind them or without, found \"0\"",
        ),
        ("--max-memory 5T", "--max-memory: expected bytes"),
        ("--max-memory M", "--max-memory: expected bytes"),
        ("--max-memory 99999999999G", "--max-memory: expected bytes"),
        ("--hop 4", "--hop needs --window N"),
        (
            "--window 0",
            "--window: expected a number from 1 to 4294967295, found \"0\"",
        ),
        ("--window 4 --hop 0", "--hop: expected a number from 1"),
        (
            "--window 4 --selftest",
            "--selftest does not use --window, which is for classifying records",
        ),
        (
            "--hop 4 tune",
            "tune does not use --hop, which is for classifying records",
        ),
        ("--tolerance 0.1", "--tolerance needs --expect-scores FILE"),
        (
            "--expect-scores e --tolerance -1",
            "--tolerance: expected a number from 0 on, found \"-1\"",
        ),
        (
            "--expect-scores e --tolerance nan",
            "--tolerance: expected a number from 0 on",
        ),
        (
            "--on-error skip",
            "--on-error: expected stop or mark, found \"skip\"",
        ),
        ("--selftest=1", "--selftest"),
        ("--selftest file", "takes no FILE"),
        ("-d=", "--device: expected auto"),
        ("-d 0,", "--device: expected auto"),
        ("-d 0,auto", "--device: auto stands alone"),
        ("-d all,all", "--device: a device can take part once"),
        ("-d 0,1,0", "--device: a device can take part once"),
        (
            "-d 0,1 bench",
            "--device: bench measures one device: name one",
        ),
        (
            "bench -d all",
            "--device: bench measures one device: name one",
        ),
        (
            "tune -d host,0",
            "--device: tune measures one device: name one",
        ),
    ] {
        let e = parse(line).expect_err(line);
        assert!(e.contains(part), "{line}: {e}");
    }
}

/// A table of every option with every command, written by hand from what the commands do. An `x`
/// marks each option that a command uses. Other options must be refused.
#[test]
fn what_a_command_ignores_is_refused() {
    const COMMANDS: [(&str, &str); 11] = [
        ("", "classifying records"),
        ("--selftest", "--selftest"),
        ("--info", "--info"),
        ("--list-devices", "--list-devices"),
        ("bench", "bench"),
        ("bench matmul", "bench NAME"),
        ("bench --check", "bench --check"),
        ("bench network", "bench network"),
        ("bench --cache-model", "bench --cache-model"),
        ("bench --layout=C_4_2_C", "bench --layout"),
        ("tune", "tune"),
    ];
    let expected = "
        --format=u8            x . . .  . . . . . .  .
        --window=4             x . . .  . . . . . .  .
        --output=scores        x . . .  . . . . . .  .
        --output=md            . . . .  x x x x x x  x
        --batch=7              x x x .  . . . x . .  x
        --max-memory=1M        x x x .  . . . . . .  .
        --device=0             x x x .  x x x x x .  x
        --compute-units=4      x x x .  x x x x x .  x
        --plan=nvidia          x x x .  x . . x . .  .
        --kernels=folder       x x . .  x x x x . .  x
        --timeout=9            x x . .  . . . . . .  .
        --expect=file          x . . .  . . . . . .  .
        --expect-scores=file   x . . .  . . . . . .  .
        --on-error=mark        x . . .  . . . . . .  .
        --profile              x . . .  . . . . . .  .
        --profile=json:file    x . . .  . . . . . .  .
        --verbose              x x . x  . . . . . .  .
        --sizes=32             . . . .  x x . . x x  .
        --repeat=3             . . . .  x x . x . .  .
        --time-limit=9         . . . .  x x . . . .  x
        --full                 . . . .  x x . . . .  .
        --report=page.html     . . . .  x x x . x x  .
        --against=other.json   . . . .  x x . . x .  .
        --shape=4-3            . . . .  . . . x . .  .
        --weights=f16          . . . .  . . . x . .  .
        --host                 . . . .  . . . x . .  .
        --layers               . . . .  . . . x . .  .
        --save=plan.json       . . . .  . . . . . .  x
        --selftest             x x . .  . . . . . .  .
        --info                 x . x .  . . . . . .  .
        --list-devices         x . . x  . . . . . .  .
        --check                . . . .  x . x . . .  .
        --inputs               . . . .  . . x . . .  .
        --cache-model          . . . .  x . . . x .  .
        --cache=line=64        . . . .  x . . . x .  .
        --layout=R             . . . .  x . . . . x  .
        file                   x . . .  . . . . . .  .";
    let mut pairs = 0;
    for row in expected.lines().filter(|l| !l.trim().is_empty()) {
        let mut words = row.split_whitespace();
        let option = words.next().unwrap();
        let marks: Vec<bool> = words.map(|w| w == "x").collect();
        assert_eq!(marks.len(), COMMANDS.len(), "{option}");
        for ((line, name), used) in COMMANDS.into_iter().zip(marks) {
            let bench = line.starts_with("bench") || line == "tune";
            // A name after the word `bench` is a kernel's. A name before it is a file's.
            if bench && option == "file" {
                continue;
            }
            // These options turn `bench` into another of its commands.
            let name = match option {
                "--check" if line == "bench matmul" => continue,
                "--check" | "--cache-model" | "--cache=line=64" | "--layout=R"
                    if line == "bench" =>
                {
                    continue;
                }
                "--layout=R" if line != "tune" && bench => "bench --layout",
                _ if line.starts_with("bench --layout") => name,
                "--cache-model" | "--cache=line=64" if line != "tune" && bench => {
                    "bench --cache-model"
                }
                _ => name,
            };
            pairs += 1;
            let found = parse(&format!("{line} {option}"));
            let long = option.split('=').next().unwrap();
            match found {
                Ok(_) => assert!(used, "{line} {option} is accepted"),
                Err(e) if long == "file" => {
                    assert!(!used && e.contains(name), "{line} {option}: {e}")
                }
                // The value of --output is parsed before the command can refuse the option.
                Err(e) if long == "--output" => {
                    assert!(!used && e.contains(long), "{line} {option}: {e}")
                }
                Err(e) => {
                    assert!(!used && e.contains(long), "{line} {option}: {e}");
                    // Messages call the command `bench` until the names after that word are read.
                    assert!(
                        e.contains(name) || (bench && e.starts_with("bench ")),
                        "{line} {option}: {e}"
                    );
                }
            }
            // An option may also come before the subcommand.
            let before = [
                "batch",
                "device",
                "compute-units",
                "plan",
                "kernels",
                "verbose",
                "expect",
                "profile",
                "format",
            ];
            if bench && before.iter().any(|o| long == format!("--{o}")) {
                assert_eq!(
                    parse(&format!("{option} {line}")).is_ok(),
                    used,
                    "{option} {line}"
                );
            }
        }
    }
    assert!(pairs > 250, "{pairs}");
}

/// Every option of the help pages is used by some command. Otherwise all commands would refuse it.
#[test]
fn every_option_has_a_user() {
    for option in options() {
        let users = arguments::users(option.name(), &commands());
        assert!(!users.is_empty(), "{}", option.name());
    }
    // An option may come before the subcommand or after it.
    for line in [
        "bench --check -d 0",
        "-d 0 --check bench",
        "--check bench -d 0",
    ] {
        let found = parse(line);
        let Ok(Command::Bench(Bench::Kernels(kernels))) = found else {
            panic!("{line}: {found:?}")
        };
        assert!(
            kernels.check && kernels.target.device == DeviceWish::Index(0),
            "{line}"
        );
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    for (line, part) in [
        ("-o json bench", "bench has an --output of its own"),
        ("-o scores tune", "tune has an --output of its own"),
        (
            "-v bench",
            "bench does not use --verbose, which is for classifying records, --selftest, \
             --list-devices",
        ),
        (
            "--selftest --info",
            "--info does not go together with --selftest",
        ),
        (
            "--selftest tune",
            "tune does not go together with --selftest",
        ),
        (
            "--selftest --expect e",
            "--selftest does not use --expect, which is for classifying records",
        ),
        (
            "--info --kernels d",
            "--info does not use --kernels, which is for classifying records, --selftest",
        ),
        ("--info x", "--info takes no FILE"),
        (
            "bench network --report p.html",
            "bench network does not use --report, which is for bench, bench NAME",
        ),
        (
            "bench network --against p.json",
            "bench network does not use --against",
        ),
        (
            "bench matmul --cache-model",
            "bench --cache-model takes no NAME",
        ),
        ("bench matmul --layout R", "bench --layout takes no NAME"),
        (
            "bench --layout Q",
            "--layout: layout \"Q\": expected the order R or C",
        ),
        (
            "bench --layout C_4_2_C --sizes 10x4",
            "--sizes: layout C_4_2_C: chunks of 4 rows × 2 columns do not",
        ),
        (
            "bench --layout R --sizes 8,9",
            "--sizes: a layout is drawn in one size, for example 8x8",
        ),
        (
            "bench --layout R --sizes 8x",
            "--sizes: expected a number from 1 to 16384, found \"\"",
        ),
        (
            "bench --layout R --sizes 300x2",
            "--sizes: 300 × 2: at most 256 rows and columns are drawn",
        ),
        ("bench --sizes 8x8", "--sizes: ROWSxCOLS is for --layout"),
        (
            "bench --cache-model --layout R",
            "bench --layout does not use --cache-model",
        ),
        (
            "bench --layout R -d 0",
            "bench --layout does not use --device",
        ),
        ("bench --full --time-limit 3", "--full has no time limit"),
        (
            "bench -f u8",
            "bench does not use --format, which is for classifying records",
        ),
        (
            "--repeat 3",
            "classifying records does not use --repeat, which is for bench, bench NAME",
        ),
        (
            "-d host --kernels d",
            "--kernels is for OpenCL devices, --device host is none",
        ),
        (
            "-d 0 --kernels d -d host",
            "--kernels is for OpenCL devices, --device host is none",
        ),
        (
            "-d host --compute-units 4 x",
            "--compute-units is for OpenCL devices, --device host is none",
        ),
        (
            "tune -d host --kernels d",
            "--kernels is for OpenCL devices",
        ),
        (
            "bench network -d host --kernels d",
            "--kernels is for OpenCL devices",
        ),
        (
            "bench network -d host --compute-units 1",
            "--compute-units is for OpenCL devices",
        ),
    ] {
        let e = parse(line).expect_err(line);
        assert!(e.contains(part), "{line}: {e}");
    }
    assert!(matches!(
        parse("--list-devices -v"),
        Ok(Command::ListDevices { verbose: true })
    ));
    assert!(parse("-d 0 -b 7 --kernels d bench network").is_ok());
    let help = parse("-v bench --help");
    assert!(matches!(help, Ok(Command::Help(page)) if page.contains("--cache-model")));
}

#[test]
fn lines_of_help_are_short() {
    for page in [HELP, lab::BENCH_HELP, lab::TUNE_HELP] {
        for line in page.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

/// Examples in `docs/CLI.md`. Together they use every option.
const EXAMPLES: &[&str] = &[
    "mortonnet -f u8 images.bin",
    "mortonnet --window 16 --hop 4 sensor.csv",
    "mortonnet --key 1 log.csv",
    "mortonnet --on-error mark vectors.csv",
    "mortonnet -o top=3 vectors.csv",
    "mortonnet --profile=trace:run.json vectors.csv",
    "mortonnet -v vectors.csv",
    "mortonnet -d host,0 vectors.csv",
    "mortonnet -d opencl --compute-units 4 vectors.csv",
    "mortonnet --plan mali-midgard -b 32 vectors.csv",
    "mortonnet --max-memory 64M vectors.csv",
    "mortonnet -d 0 --kernels kernels vectors.csv",
    "mortonnet -d 0 --timeout 30 --verify 100 vectors.csv",
    "mortonnet --expect labels.csv --min-accuracy 97% vectors.csv",
    "mortonnet --expect-scores scores.npy --tolerance 0.001 vectors.csv",
    "mortonnet -d opencl --selftest",
    "mortonnet -v --list-devices",
    "mortonnet --info -o json",
    "mortonnet --help",
    "mortonnet --version",
    "mortonnet bench matmul --sizes 96,1000,1024 --repeat 50",
    "mortonnet bench matmul --kernels kernels --library mine.json",
    "mortonnet bench -d opencl --compute-units 4",
    "mortonnet bench --time-limit 600 --report board.html",
    "mortonnet bench thesis_6 --full -o md",
    "mortonnet bench --against other.json",
    "mortonnet bench --check --inputs",
    "mortonnet bench --cache-model --cache line=64,cores=4",
    "mortonnet bench --layout C_4_2_C --sizes 8x8",
    "mortonnet bench network --batch 256 --plan nvidia",
    "mortonnet bench network --shape 784-100-10:relu --weights f16 --host",
    "mortonnet bench network --batch 1 --layers -o csv",
    "mortonnet tune -d opencl --compute-units 4",
    "mortonnet tune --batch 1 --time-limit 60 -o json",
    "mortonnet tune --kernels kernels --save plan.json",
    "mortonnet-bake net.onnx -o net --target aarch64",
    "mortonnet-bake net.onnx -o net --sizes x:1,3,320,320",
    "mortonnet-bake net.tflite -o net --arithmetic float",
    "mortonnet-bake net.onnx -o net --quantize inputs.npy",
    "mortonnet-bake net.onnx -o net --plan host --weights i8:1",
    "mortonnet-bake net.onnx -o net --program mortonnet-armv7",
    "mortonnet-bake --help",
    "mortonnet-bake --version",
];

/// Returns the options of a help page as Markdown tables, with an example for each option.
#[cfg(feature = "bake")]
fn markdown(command: &str, page: &'static str) -> String {
    let own_command = |line: &&&str| {
        let mut words = line.split(' ');
        let program = words.next().unwrap();
        match words.next() {
            Some(word @ ("bench" | "tune")) => command == format!("{program} {word}"),
            _ => command == program,
        }
    };
    let uses = |line: &str, option: OptionSpec| {
        let mut parser = lexopt::Parser::from_args(line.split(' ').skip(1));
        while let Ok(Some(arg)) = parser.next() {
            if option.is(&arg) {
                return true;
            }
            if let Some(other) = help::find(help::options(page), &arg) {
                other.value(&mut parser).unwrap();
            }
        }
        false
    };
    let mut text = String::new();
    let mut title = "";
    for line in page.lines() {
        let Some(option) = OptionSpec::of_line(line) else {
            title = line;
            continue;
        };
        if !title.is_empty() {
            text += &format!(
                "\n{title}\n\n| option | meaning | default | example |\n|---|---|---|---|\n"
            );
            title = "";
        }
        let mut examples = EXAMPLES.iter().filter(own_command);
        let example = examples.find(|line| uses(line, option));
        let example = example.unwrap_or_else(|| panic!("no example of {}", option.name()));
        let (about, values, default) = option.parts();
        let values = values.map_or(String::new(), |v| {
            format!(": `{}`", v.replace(" | ", "`, `"))
        });
        let about = about.replace('|', "\\|");
        let syntax = option.syntax();
        text += &format!("| `{syntax}` | {about}{values} | {default} | `{example}` |\n");
    }
    text
}

/// `docs/CLI.md` lists the options of every help page. `MORTONNET_BLESS=1` writes the lists anew.
#[cfg(feature = "bake")]
#[test]
fn the_document_of_the_command_line_lists_every_option() {
    for example in EXAMPLES {
        let mut words = example.split(' ');
        let program = words.next().unwrap();
        let words = words.map(OsString::from);
        let read = match program {
            "mortonnet" => Command::parse(words).map(drop),
            _ => bake::parse(words).map(drop),
        };
        read.unwrap_or_else(|e| panic!("{example}: {e}"));
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/CLI.md");
    let old = std::fs::read_to_string(&path).unwrap();
    let mut new = old.clone();
    for (command, page) in [
        ("mortonnet", HELP),
        ("mortonnet bench", lab::BENCH_HELP),
        ("mortonnet tune", lab::TUNE_HELP),
        ("mortonnet-bake", bake::HELP),
    ] {
        let begin = format!("<!-- options of {command}, from src/cli -->\n");
        let end = "\n<!-- end of options -->";
        let at = new.find(&begin).expect("a place for the options") + begin.len();
        let length = new[at..].find(end).expect("an end of the options");
        new.replace_range(at..at + length, &markdown(command, page));
    }
    if std::env::var_os("MORTONNET_BLESS").is_some() {
        std::fs::write(&path, &new).unwrap();
    } else {
        assert!(
            old == new,
            "{} differs; MORTONNET_BLESS=1 writes it anew, then read the change",
            path.display()
        );
    }
}
