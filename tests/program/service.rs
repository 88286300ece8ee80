//! The documented systemd units as far as they run without systemd, replacing the program, and
//! spreading a stream with GNU parallel.

use super::signals::{Lines, Process, TERM, end, fifo, send, started};
use super::support::{DIGITS, Folder, command, feed, root, run};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the units in a document, by name. In a block, a unit begins with a line `#
/// /etc/systemd/system/NAME`.
pub fn units(document: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let blocks = text
        .split("```ini\n")
        .skip(1)
        .map(|b| b.split("```").next().unwrap());
    let units = blocks.flat_map(|b| b.split("# /etc/systemd/system/").skip(1));
    let units: Vec<_> = units.map(|u| u.split_once('\n').unwrap()).collect();
    assert!(units.len() >= 2, "{document}: {units:?}");
    units
        .iter()
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .collect()
}

/// Returns the values of `key` in the units.
pub fn values<'a>(units: &'a [(String, String)], key: &str) -> Vec<&'a str> {
    let lines = units.iter().flat_map(|u| u.1.lines());
    lines
        .filter_map(|l| l.split_once('='))
        .filter(|(k, _)| *k == key)
        .map(|(_, v)| v)
        .collect()
}

/// Returns the arguments of a unit's command, which must be the program's.
fn arguments(line: &str) -> Vec<&str> {
    line.strip_prefix("/usr/local/bin/mortonnet")
        .expect(line)
        .split_whitespace()
        .collect()
}

fn test_csv() -> String {
    fs::read_to_string(root().join("model/digits/test.csv")).unwrap()
}

fn classes() -> String {
    run(DIGITS, &["model/digits/test.csv"], "").out
}

/// Replaces the unit's commands by existing ones, because systemd checks that they exist.
fn installed_here(unit: &str) -> String {
    unit.replace("/usr/local/bin/mortonnet-http", DIGITS)
        .replace("/usr/local/bin/mortonnet", DIGITS)
}

#[test]
fn systemd_knows_every_key_of_the_units() {
    for document in ["docs/SERVICE.md", "docs/RECIPES.md", "docs/TUTORIAL.md"] {
        let (folder, mut verify) = (Folder::new(), Command::new("systemd-analyze"));
        verify.arg("verify");
        for (name, text) in units(document) {
            verify.arg(folder.put(&name, installed_here(&text)));
        }
        let said = verify
            .output()
            .expect("systemd-analyze is missing: tests/run installs it");
        let said = String::from_utf8(said.stderr).unwrap();
        let ours = |l: &&str| l.contains("mortonnet");
        assert_eq!(
            said.lines().filter(ours).collect::<Vec<_>>(),
            [""; 0],
            "{document}"
        );
    }
}

/// The units of docs/SERVICE.md whose names begin with `name`.
fn units_of_services(name: &str) -> Vec<(String, String)> {
    let mut units = units("docs/SERVICE.md");
    units.retain(|unit| unit.0.starts_with(name));
    units
}

/// docs/TUTORIAL.md has the units with a FIFO, without the groups of a GPU.
#[test]
fn the_units_of_the_tutorial_are_those_of_the_page() {
    let of_a_gpu = |line: &&str| !line.starts_with("SupplementaryGroups=");
    let mut of_the_page = units_of_services("mortonnet.");
    for (_, text) in &mut of_the_page {
        let lines: Vec<&str> = text.lines().filter(of_a_gpu).collect();
        *text = lines.join("\n") + "\n";
    }
    assert_eq!(units("docs/TUTORIAL.md"), of_the_page);
}

/// The unit with a FIFO runs the self-test, then answers records. The FIFO is open for reading and
/// writing, as systemd opens it.
#[test]
fn the_unit_with_a_fifo_answers_what_arrives() {
    let units = units_of_services("mortonnet.");
    for (key, value) in [
        ("StandardInput", "socket"),
        ("DynamicUser", "yes"),
        ("CacheDirectory", "mortonnet"),
    ] {
        assert_eq!(values(&units, key), [value]);
    }
    assert_eq!(
        (
            values(&units, "ListenFIFO").len(),
            values(&units, "SupplementaryGroups").len()
        ),
        (1, 1)
    );
    // The service restarts after a pause without a limit. systemd ignores the limit in another
    // section.
    let unit = &units.iter().find(|u| u.0 == "mortonnet.service").unwrap().1;
    let section = |name: &str| {
        unit.split('[')
            .find_map(|s| s.strip_prefix(&format!("{name}]\n")))
            .unwrap()
    };
    assert!(
        section("Unit")
            .lines()
            .any(|l| l == "StartLimitIntervalSec=0"),
        "{unit}"
    );
    for line in ["Restart=on-failure", "RestartSec=5"] {
        assert!(section("Service").lines().any(|l| l == line), "{unit}");
    }
    let folder = Folder::new();
    let (path, mut sensor) = fifo(&folder);
    let service = |line: &str, flags| {
        let both = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&path)
            .unwrap();
        let mut c = command(DIGITS);
        c.args(arguments(line))
            .env_remove("MORTONNET_CACHE")
            .env("CACHE_DIRECTORY", folder.path("cache"));
        c.env_remove("HOME")
            .stdin(both)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        c
    };
    let csv = test_csv();
    let mut lines: Vec<&str> = csv.split_inclusive('\n').take(30).collect();
    // One of the records is bad.
    lines[13] = "1,x\n";
    // Records that arrive before the service starts or while it is stopped wait in the FIFO.
    lines[..10]
        .iter()
        .for_each(|l| sensor.write_all(l.as_bytes()).unwrap());
    let expected = classes();
    let mut expected: Vec<&str> = expected.lines().take(30).collect();
    expected[13] = "error";
    let mut answers = Vec::new();
    // systemd opens the FIFO non-blocking, and may change that before it passes it on.
    for (part, flags) in [(10..20, libc::O_NONBLOCK), (20..30, 0)] {
        for line in values(&units, "ExecStartPre") {
            let test = service(line, flags).output().unwrap();
            assert!(
                test.status.success() && test.stdout.starts_with(b"passed: "),
                "{test:?}"
            );
        }
        let mut child = started(&mut service(values(&units, "ExecStart")[0], flags), TERM);
        let out = Lines::of(child.stdout.take());
        lines[part.clone()]
            .iter()
            .for_each(|l| sensor.write_all(l.as_bytes()).unwrap());
        let before = if part.start == 10 { 0 } else { part.start };
        answers.extend((before..part.end).map(|_| out.next()));
        send(&child, TERM);
        assert_eq!(end(&mut child).signal(), Some(TERM));
        assert_eq!(out.rest(), [""; 0]);
    }
    assert_eq!(answers, expected);
}

/// The unit with a process per connection runs under systemd's program for testing sockets.
#[test]
fn the_unit_with_a_socket_serves_connections() {
    let units = units_of_services("mortonnet-tcp");
    assert_eq!(
        (values(&units, "Accept"), values(&units, "StandardInput")),
        (vec!["yes"], vec!["socket"])
    );
    // The port is most likely free, because it could be bound.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut c = Command::new("systemd-socket-activate");
    c.args([
        "--accept",
        "--inetd",
        "-E",
        "MORTONNET_CACHE=",
        "-l",
        &format!("127.0.0.1:{port}"),
        DIGITS,
    ]);
    c.args(arguments(values(&units, "ExecStart")[0]))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _server = Process(
        c.spawn()
            .expect("systemd-socket-activate is missing: tests/run installs it"),
    );
    let expected = classes();
    let start = Instant::now();
    let connect = || loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(e) => assert!(start.elapsed() < Duration::from_secs(20), "{e}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut streams = [connect(), connect()];
    for stream in &mut streams {
        stream.write_all(test_csv().as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    }
    for mut stream in streams {
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers, expected);
    }
}

/// The unit with a camera, whose ffmpeg is a script that writes frames: of the digits, raw.
#[test]
fn the_unit_with_a_camera_answers_each_frame() {
    let units = units_of_services("mortonnet-camera");
    let unit = installed_here(&units[0].1.replace("\\\n  ", ""));
    let script = unit.lines().find_map(|line| {
        line.strip_prefix("ExecStart=/bin/sh -c '")?
            .strip_suffix('\'')
    });
    let folder = Folder::new();
    let pixels = test_csv().replace('\n', ",");
    let pixels = pixels.split(',').filter(|pixel| !pixel.is_empty());
    let frames: Vec<u8> = pixels.map(|pixel| pixel.parse().unwrap()).collect();
    let frames = folder.put("frames", frames);
    folder.executable("ffmpeg", format!("#!/bin/sh\ncat {}\n", frames.display()));
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap());
    let mut shell = command("/bin/sh");
    let run = feed(shell.args(["-c", script.unwrap()]).env("PATH", path), "");
    assert_eq!((run.code, run.out), (Some(0), classes()), "{}", run.err);
}

#[test]
fn a_new_program_is_moved_over_one_that_runs() {
    let folder = Folder::new();
    let program = folder.executable("mortonnet", fs::read(DIGITS).unwrap());
    let mut c = command(&program);
    let mut child = started(c.stdin(Stdio::piped()).stdout(Stdio::piped()), TERM);
    let (mut stdin, out) = (child.stdin.take().unwrap(), Lines::of(child.stdout.take()));
    let csv = test_csv();
    let mut lines = csv.split_inclusive('\n');
    let mut ask = |n| {
        lines
            .by_ref()
            .take(n)
            .for_each(|l| stdin.write_all(l.as_bytes()).unwrap());
        (0..n).map(|_| out.next()).collect::<Vec<_>>()
    };
    let mut answers = ask(100);
    let new = folder.executable("mortonnet.new", "#!/bin/sh\necho new\n");
    let copied = Command::new("cp").arg(&new).arg(&program).output().unwrap();
    assert!(
        String::from_utf8(copied.stderr)
            .unwrap()
            .contains("Text file busy")
    );
    assert!(
        Command::new("mv")
            .arg(&new)
            .arg(&program)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(run(&program, &[], "").out, "new\n");
    answers.extend(ask(497));
    drop(stdin);
    assert!(end(&mut child).success());
    assert_eq!(answers, classes().lines().collect::<Vec<_>>());
}

/// Runs the documented `parallel` commands on "boards", where `ssh` is a script that runs the
/// command locally. The first block on the first board is answered in part, and then lost with the
/// board. The script sets `SHELL` as sshd does: without it, parallel runs nothing on the board and
/// prints no error.
fn spread(
    folder: &Folder,
    arguments: &[&str],
    program: &[&str],
    input: &[u8],
) -> std::process::Output {
    let script = |name: &str, text: &str| folder.executable(name, format!("#!/bin/sh\n{text}\n"));
    let here = folder.0.display();
    let board = format!(
        "mkdir {here}/used-$1 2> /dev/null\n\
         [ $1 = board1 ] && mkdir {here}/dead 2> /dev/null && {{ echo 7; echo 7; kill -9 $$; }}\n\
         shift; [ \"$1\" = -- ] && shift; SHELL=/bin/sh exec sh -c \"$*\""
    );
    let mut c = Command::new("parallel");
    c.arg("--ssh").arg(script("ssh", &board)).args(arguments);
    c.args(program)
        .env("HOME", &folder.0)
        .env("MORTONNET_CACHE", "");
    c.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = c
        .spawn()
        .expect("GNU parallel is missing: tests/run installs it");
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    output
}

#[test]
fn parallel_keeps_the_order_and_loses_no_record_of_a_board_that_dies() {
    let csv = test_csv().repeat(4);
    let values: Vec<u8> = csv
        .lines()
        .flat_map(|l| l.split(',').map(|v| v.parse::<u8>().unwrap()))
        .collect();
    let floats: Vec<u8> = values
        .iter()
        .flat_map(|&v| f32::from(v).to_le_bytes())
        .collect();
    let expected = classes().repeat(4);
    // The documented commands, with smaller blocks and two boards.
    let document = fs::read_to_string(root().join("docs/SERVICE.md")).unwrap();
    // A backslash joins lines.
    let document = document.replace("\\\n  ", "");
    let commands: Vec<&str> = document
        .lines()
        .filter(|l| l.starts_with("$ parallel "))
        .collect();
    let [text, binary] = commands[..] else {
        panic!("{commands:?}")
    };
    for (line, block, format, input) in [
        (text, "40k", &[][..], csv.as_bytes()),
        (binary, "32000", &["-f", "u8"], &values),
        (binary, "128000", &["-f", "f32"], &floats),
    ] {
        let mut arguments: Vec<&str> = line
            .split(' ')
            .skip(2)
            .take_while(|a| *a != "./mortonnet")
            .collect();
        // The shell's value of ''.
        arguments
            .iter_mut()
            .filter(|a| **a == "''")
            .for_each(|a| *a = "");
        for (key, value) in [("--block", block), ("--sshlogin", "1/board1,1/board2")] {
            let at = arguments.iter().position(|a| *a == key).unwrap();
            arguments[at + 1] = value;
        }
        let folder = Folder::new();
        let program = [&[DIGITS, "-d", "host"], format].concat();
        let found = spread(&folder, &arguments, &program, input);
        let err = String::from_utf8(found.stderr).unwrap();
        assert!(found.status.success(), "{arguments:?}: {err}");
        assert_eq!(
            String::from_utf8(found.stdout).unwrap(),
            expected,
            "{arguments:?}: {err}"
        );
        for name in ["dead", "used-board1", "used-board2"] {
            assert!(Path::exists(&folder.path(name)), "{arguments:?}: {name}");
        }
    }
    // Without a retry the records of the block are lost, and parallel reports that.
    let folder = Folder::new();
    let once = [
        "--pipe",
        "--keep-order",
        "--block",
        "40k",
        "--sshlogin",
        "1/board1,1/board2",
    ];
    let found = spread(&folder, &once, &[DIGITS, "-d", "host"], csv.as_bytes());
    assert!(!found.status.success() && found.stdout.len() < expected.len());
}
