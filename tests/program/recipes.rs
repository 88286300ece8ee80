//! Runs the commands of docs/RECIPES.md, with another port, host and folder.

use super::service::{units, values};
use super::signals::{Lines, Process, end, until};
use super::support::{DIGITS, Folder, Run, command, feed, root, run};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The document's commands that begin with `word`, and hold `part`. A backslash joins lines.
fn commands(word: &str, part: &str) -> Vec<String> {
    let document = fs::read_to_string(root().join("docs/RECIPES.md")).unwrap();
    let document = document.replace("\\\n  ", "");
    let lines = document.lines().filter_map(|l| l.strip_prefix("$ "));
    let lines: Vec<_> = lines
        .filter(|l| l.starts_with(word) && l.contains(part))
        .map(String::from)
        .collect();
    assert!(
        !lines.is_empty(),
        "docs/RECIPES.md: no command {word}… {part}"
    );
    lines
}

/// Makes a shell command in a folder whose `bin` has the program as `mortonnet`. Debian has the
/// broker in /usr/sbin.
fn shell(folder: &Folder, line: &str) -> Command {
    let bin = folder.path("bin");
    fs::create_dir_all(&bin).unwrap();
    let _ = symlink(DIGITS, bin.join("mortonnet"));
    let mut c = command("sh");
    c.args(["-c", line])
        .current_dir(&folder.0)
        .env("HOME", &folder.0);
    c.env(
        "PATH",
        format!(
            "{}:{}:/usr/sbin",
            bin.display(),
            std::env::var("PATH").unwrap()
        ),
    );
    c
}

/// A process group that is killed at the end of the test.
struct Group(Process);

impl Group {
    fn of(c: &mut Command) -> Group {
        Group(Process(c.process_group(0).spawn().unwrap()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let kill = format!("kill -KILL -{}", self.0.id());
        let _ = Command::new("sh")
            .args(["-c", &kill])
            .stderr(Stdio::null())
            .status();
    }
}

fn vectors() -> String {
    fs::read_to_string(root().join("model/digits/test.csv")).unwrap()
}

fn classes() -> Vec<String> {
    run(DIGITS, &["model/digits/test.csv"], "")
        .out
        .lines()
        .map(String::from)
        .collect()
}

/// Returns a port that is most likely free, because it could be bound.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

// ---- a serial port

/// A pseudo-terminal in place of the port. It receives the text written to `sensor`, and its echo
/// arrives in `heard`.
struct Port {
    sensor: std::process::ChildStdin,
    heard: Lines,
    path: String,
    /// Kept open, because the terminal ends when its last user closes it.
    _open: fs::File,
    _socat: Process,
}

impl Port {
    fn new(folder: &Folder) -> Port {
        let path = folder.path("port");
        let mut c = Command::new("socat");
        c.arg("STDIO")
            .arg(format!("PTY,link={}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut socat = Process(c.spawn().expect("socat is missing: tests/run installs it"));
        until("the pseudo-terminal", || path.exists());
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        let open = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&path)
            .unwrap();
        let (sensor, heard) = (socat.stdin.take().unwrap(), Lines::of(socat.stdout.take()));
        Port {
            sensor,
            heard,
            path: path.to_str().unwrap().into(),
            _open: open,
            _socat: socat,
        }
    }

    /// Returns true if the line discipline has this setting.
    fn is(&self, setting: &str) -> bool {
        let said = Command::new("stty")
            .args(["-F", &self.path, "-a"])
            .output()
            .unwrap();
        String::from_utf8(said.stdout)
            .unwrap()
            .split_whitespace()
            .any(|s| s == setting)
    }

    fn write(&mut self, text: &str) {
        self.sensor.write_all(text.as_bytes()).unwrap();
    }
}

/// Returns a record that is longer than a terminal's line buffer. Blanks around numbers are
/// allowed.
fn long_line(line: &str) -> String {
    line.replace(',', &format!(",{}", " ".repeat(70)))
}

#[test]
fn a_serial_port_carries_every_record() {
    let folder = Folder::new();
    let mut port = Port::new(&folder);
    let line = commands("stty ", "mortonnet")[0].replace("/dev/ttyUSB0", &port.path);
    let mut c = shell(&folder, &line);
    c.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut reader = Group::of(&mut c);
    let answers = Lines::of(reader.0.stdout.take());
    until("stty", || port.is("-icanon") && port.is("-echo"));
    assert!(port.is("115200"));
    let (csv, expected) = (vectors(), classes());
    // The sensor begins in the middle of a line. Each record is answered before the next one is
    // sent.
    port.write(",3,0,0\r\n");
    for (line, class) in csv.lines().zip(&expected).take(20) {
        port.write(&format!("{line}\r\n"));
        assert_eq!(answers.next(), *class);
    }
    // A record that is too long for a terminal's line, then the codes of Ctrl-C, end and stop, then
    // a burst.
    let rest: Vec<&str> = csv.lines().skip(20).collect();
    port.write(&format!("{}\r\n\u{3}\u{4}\u{13}\r\n", long_line(rest[0])));
    rest[1..]
        .iter()
        .for_each(|line| port.write(&format!("{line}\n")));
    assert_eq!(answers.next(), expected[20]);
    assert_eq!(answers.next(), "error");
    assert_eq!(
        (21..597).map(|_| answers.next()).collect::<Vec<_>>(),
        expected[21..]
    );
    // The sensor received no echo.
    drop(reader);
    drop((port.sensor, port._open));
    assert_eq!(port.heard.rest(), [""; 0]);
}

/// The document describes this behaviour of a port without `stty`.
#[test]
fn a_serial_port_without_stty_echoes_cuts_and_ends() {
    let folder = Folder::new();
    let mut port = Port::new(&folder);
    let mut c = shell(
        &folder,
        &format!("exec mortonnet --on-error mark < {}", port.path),
    );
    let mut reader = Process(
        c.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let answers = Lines::of(reader.stdout.take());
    let (csv, expected) = (vectors(), classes());
    let lines: Vec<&str> = csv.lines().collect();
    // CR LF becomes LF LF, which does no harm, but the sensor receives an echo of its line.
    for (line, class) in lines.iter().zip(&expected).take(3) {
        port.write(&format!("{line}\r\n"));
        assert_eq!(answers.next(), *class);
        assert_eq!(port.heard.next(), *line);
        assert_eq!(port.heard.next(), "");
    }
    port.write(&format!("{}\n", long_line(lines[3])));
    assert_eq!(answers.next(), "error");
    // The rest of the long line is lost. Byte 4 at the start of a line ends the input.
    port.write(&format!("{}\n\u{4}{}\n", lines[4], lines[5]));
    assert_eq!(answers.next(), expected[4]);
    assert_eq!(end(&mut reader).code(), Some(1));
    assert_eq!(answers.rest(), [""; 0]);
}

// ---- MQTT

/// A mosquitto broker with its own port.
struct Broker {
    port: u16,
    _process: Process,
}

impl Broker {
    fn new(folder: &Folder) -> Broker {
        let port = free_port();
        let config = folder.put(
            "broker.conf",
            format!("listener {port} 127.0.0.1\nallow_anonymous true\n"),
        );
        // If root starts the broker, it becomes another user, who must be able to read this folder.
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        let mut c = shell(folder, "exec mosquitto -c \"$0\"");
        let process = Process(
            c.arg(config)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        until("the broker (mosquitto: tests/run installs it)", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Broker {
            port,
            _process: process,
        }
    }

    /// Redirects a command of the document to this broker.
    fn here(&self, line: &str) -> String {
        assert!(line.contains("-h broker"), "{line}");
        line.replace("-h broker", &format!("-h 127.0.0.1 -p {}", self.port))
    }

    /// Runs a command to its end with this input.
    fn run(&self, folder: &Folder, line: &str, input: &str) {
        let r = feed(&mut shell(folder, &self.here(line)), input);
        assert_eq!(
            r.code,
            Some(0),
            "{line} (mosquitto-clients: tests/run installs it): {}",
            r.err
        );
    }
}

#[test]
fn mqtt_messages_are_answered_in_order() {
    let folder = Folder::new();
    let broker = Broker::new(&folder);
    let registers = commands("mosquitto_sub ", " -E");
    let pipelines = commands("mosquitto_sub ", "| mortonnet ");
    let ([register], [pipeline]) = (&registers[..], &pipelines[..]) else {
        panic!("{pipelines:?}")
    };
    broker.run(&folder, register, "");
    let listen = "mosquitto_sub -h broker -i listener -c -q 1 -t classes";
    broker.run(&folder, &format!("{listen} -E"), "");
    let mut c = shell(&folder, &broker.here(listen));
    let mut listener = Group::of(c.stdin(Stdio::null()).stdout(Stdio::piped()));
    let answers = Lines::of(listener.0.stdout.take());

    let (csv, expected) = (vectors(), classes());
    let lines: Vec<&str> = csv.split_inclusive('\n').collect();
    let send = |sensor: &str, how: &str, input: &str| {
        broker.run(
            &folder,
            &format!("mosquitto_pub -h broker -q 1 -t sensors/{sensor}/vector {how}"),
            input,
        );
    };
    // The broker keeps messages that arrive before the service starts.
    send("hall", "-l", &lines[..300].concat());
    let mut c = shell(&folder, &broker.here(pipeline));
    let _service = Group::of(c.stdin(Stdio::null()).stderr(Stdio::null()));
    for class in &expected[..300] {
        assert_eq!(answers.next(), format!("sensors/hall/vector,{class}"));
    }
    // Single messages are answered at once, without waiting in a buffer.
    for at in 300..303 {
        send("yard", "-s", lines[at]);
        assert_eq!(
            answers.next(),
            format!("sensors/yard/vector,{}", expected[at])
        );
    }
    for (how, input) in [("-m 1,x", ""), ("-n", ""), ("-s", lines[0])] {
        send("hall", how, input);
        let class = if how == "-s" { &expected[0] } else { "error" };
        assert_eq!(answers.next(), format!("sensors/hall/vector,{class}"));
    }
    // In a message of two lines, the second line has no topic.
    send("hall", "-s", &lines[..2].concat());
    assert_eq!(
        answers.next(),
        format!("sensors/hall/vector,{}", expected[0])
    );
    assert_eq!(
        answers.next(),
        format!("{},error", lines[1].split(',').next().unwrap())
    );
    send("hall", "-l", &lines[303..].concat());
    for class in &expected[303..] {
        assert_eq!(answers.next(), format!("sensors/hall/vector,{class}"));
    }
}

// ---- HTTP

/// Writes the document's script beside the program.
fn handler(folder: &Folder) {
    let document = fs::read_to_string(root().join("docs/RECIPES.md")).unwrap();
    let script = document
        .split("```sh\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    assert!(
        script.starts_with("#!/bin/sh\n# /usr/local/bin/mortonnet-http\n"),
        "{script}"
    );
    fs::create_dir_all(folder.path("bin")).unwrap();
    folder.executable("bin/mortonnet-http", script);
}

/// Sends a request, and closes the sending side if `ends`. Returns the status line and the body.
fn ask(port: u16, request: &[u8], ends: bool) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request).unwrap();
    if ends {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer:?}"));
    let length = head
        .lines()
        .find_map(|l| l.strip_prefix("Content-Length: "))
        .unwrap();
    assert_eq!(length, body.len().to_string(), "{head}");
    (head.lines().next().unwrap().into(), body.into())
}

fn post(port: u16, body: &str) -> (String, String) {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: here\r\ncontent-length:{}\r\n\r\n",
        body.len()
    );
    ask(port, (head + body).as_bytes(), false)
}

fn json_classes(body: &str) -> Vec<String> {
    let class = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        if object.get("error").is_some() {
            "error".into()
        } else {
            object["class"].to_string()
        }
    };
    body.lines().map(class).collect()
}

/// Checks the behaviour of both servers. `curl` is the document's command.
fn serves(folder: &Folder, port: u16, curl: &str) {
    until("the server", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let (csv, expected) = (vectors(), classes());
    folder.put("vectors.csv", &csv);
    let r: Run = feed(
        &mut shell(folder, &curl.replace(":8080", &format!(":{port}"))),
        "",
    );
    assert_eq!(
        r.code,
        Some(0),
        "curl is missing: tests/run installs it: {}",
        r.err
    );
    assert_eq!(json_classes(&r.out), expected);

    let (status, body) = post(port, &csv);
    assert_eq!(
        (&*status, json_classes(&body)),
        ("HTTP/1.1 200 OK", expected.clone())
    );
    let (bad, first) = ("HTTP/1.1 400 Bad Request", csv.lines().next().unwrap());
    let (status, body) = post(port, &format!("1,x\n{first}"));
    assert_eq!(
        (&*status, json_classes(&body)),
        (bad, vec!["error".into(), expected[0].clone()])
    );
    let (status, body) = post(port, &format!("a,b\n{first}"));
    assert_eq!(
        (&*status, json_classes(&body)),
        (bad, vec!["error".into(), expected[0].clone()])
    );
    // A body with only the magic bytes of idx.
    let (status, body) = post(port, "\0\0\u{8}\u{1}");
    assert!(
        status == bad && body.starts_with("mortonnet: stdin"),
        "{status} {body}"
    );
    for (request, ends, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", false, "405 Method Not Allowed"),
        (
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            false,
            "411 Length Required",
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: $(id)\r\n\r\n",
            false,
            "411 Length Required",
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: 1000001\r\n\r\n",
            false,
            "413 Content Too Large",
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            false,
            "413 Content Too Large",
        ),
        // The sender stops early, so the last number may be cut off.
        (
            "POST / HTTP/1.1\r\nContent-Length: 200\r\n\r\n1,2,3",
            true,
            "400 Bad Request",
        ),
    ] {
        assert_eq!(
            ask(port, request.as_bytes(), ends).0,
            format!("HTTP/1.1 {expected}"),
            "{request}"
        );
    }
}

#[test]
fn http_requests_are_answered_by_socat() {
    let folder = Folder::new();
    handler(&folder);
    let port = free_port();
    let socat = commands("socat ", "mortonnet-http")[0].replace(":8080", &format!(":{port}"));
    let temporary = folder.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut c = shell(&folder, &format!("exec {socat}"));
    let server = Group::of(
        c.env("TMPDIR", &temporary)
            .stdin(Stdio::null())
            .stderr(Stdio::null()),
    );
    serves(&folder, port, &commands("curl ", "vectors.csv")[0]);
    until("an empty folder", || {
        fs::read_dir(&temporary).unwrap().next().is_none()
    });
    drop(server);
}

#[test]
fn http_requests_are_answered_under_systemd() {
    let units = units("docs/RECIPES.md");
    assert_eq!(
        (values(&units, "Accept"), values(&units, "StandardInput")),
        (vec!["yes"], vec!["socket"])
    );
    let name = Path::new(values(&units, "ExecStart")[0])
        .strip_prefix("/usr/local/bin")
        .unwrap();
    let folder = Folder::new();
    handler(&folder);
    let port = free_port();
    let mut c = shell(
        &folder,
        "exec systemd-socket-activate --accept --inetd -E PATH -E MORTONNET_CACHE= -l \"$@\"",
    );
    c.args(["sh", &format!("127.0.0.1:{port}")])
        .arg(folder.path("bin").join(name));
    let _server = Group::of(
        c.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    serves(&folder, port, &commands("curl ", "vectors.csv")[0]);
}
