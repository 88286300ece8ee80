//! Any user's build gives the same bytes, and needs only the sources and the registry's cache.

use super::support::{Folder, root};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the Cargo folder of the user who runs the test. Its cache has every package, so nothing
/// is downloaded.
fn cargo_home() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

/// Runs `cp -R` into `to`.
fn copy(from: &[PathBuf], to: &Path) {
    fs::create_dir_all(to).unwrap();
    assert!(
        Command::new("cp")
            .arg("-R")
            .args(from)
            .arg(to)
            .status()
            .unwrap()
            .success()
    );
}

/// A user who builds, with a home that has its own Cargo folder and the sources.
struct Builder {
    home: PathBuf,
    sources: PathBuf,
    /// The arguments of `unshare`, for another user id and no network.
    namespace: &'static [&'static str],
    settings: Vec<(&'static str, PathBuf)>,
    umask: &'static str,
    /// A command that runs cargo, such as strace.
    under: Vec<String>,
}

impl Builder {
    fn new(folder: &Folder, name: &str, sources: &str) -> Builder {
        let home = folder.path(name);
        let registry = home.join(".cargo/registry");
        fs::create_dir_all(&registry).unwrap();
        for part in ["cache", "index"] {
            symlink(
                cargo_home().join("registry").join(part),
                registry.join(part),
            )
            .unwrap();
        }
        // The configured source of packages, if it is not crates.io.
        for config in ["config.toml", "config"].map(|name| cargo_home().join(name)) {
            if config.exists() {
                copy(&[config], &home.join(".cargo"));
            }
        }
        let all = fs::read_dir(root()).unwrap().flatten();
        let wanted = all.filter(|e| {
            let name = e.file_name().into_string().unwrap();
            name != ".git" && !name.starts_with("target")
        });
        let sources = home.join(sources);
        copy(&wanted.map(|e| e.path()).collect::<Vec<_>>(), &sources);
        Builder {
            home,
            sources,
            namespace: &[],
            settings: Vec::new(),
            umask: "022",
            under: Vec::new(),
        }
    }

    /// Makes the release build. Returns the program and cargo's messages.
    fn build(&self, jobs: &str) -> (Vec<u8>, String) {
        let cargo = Path::new(env!("CARGO"));
        // Uses the rustc beside cargo, because rustup's wrapper needs the home of the user who
        // installed it.
        let path = format!(
            "{}:{}",
            cargo.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let mut line = vec![
            "sh".into(),
            "-c".into(),
            format!("umask {} && exec \"$@\"", self.umask),
            "sh".into(),
        ];
        line.extend(self.under.iter().cloned());
        line.extend([
            cargo.display().to_string(),
            "build".into(),
            "--release".into(),
            "--offline".into(),
        ]);
        line.extend(["--locked".into(), "--jobs".into(), jobs.into()]);
        let mut c = match permitted(self.namespace) {
            true => Command::new("unshare"),
            false => {
                eprintln!(
                    "unshare {:?} is not permitted here: built without",
                    self.namespace
                );
                Command::new("env")
            }
        };
        if permitted(self.namespace) {
            c.args(self.namespace);
        }
        c.args(line).env_clear().current_dir(&self.sources);
        c.env("PATH", path)
            .env("HOME", &self.home)
            .env("CARGO_HOME", self.home.join(".cargo"));
        c.env("CARGO_PROFILE_RELEASE_BUILD_OVERRIDE_OPT_LEVEL", "0");
        let output = c.envs(self.settings.iter().cloned()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        (
            fs::read(self.sources.join("target/release/mortonnet")).unwrap(),
            said,
        )
    }
}

/// Builds a library that advances the clock by 3000 days. libfaketime hangs in rustc's allocator.
fn clock(folder: &Folder) -> PathBuf {
    let source = folder.put(
        "clock.c",
        "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <sys/time.h>\n#include \
         <time.h>\n#include <unistd.h>\n\
         int clock_gettime(clockid_t id, struct timespec *t) {\n\
             int r = syscall(SYS_clock_gettime, id, t);\n\
             if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += \
             3000 * 86400;\n\
             return r;\n\
         }\n\
         int gettimeofday(struct timeval *restrict v, void *restrict z) {\n\
             struct timespec t;\n\
             int r = clock_gettime(CLOCK_REALTIME, &t);\n\
             if (r == 0) v->tv_sec = t.tv_sec, v->tv_usec = t.tv_nsec / 1000;\n\
             return r;\n\
         }\n\
         time_t time(time_t *to) {\n\
             struct timespec t;\n\
             clock_gettime(CLOCK_REALTIME, &t);\n\
             return to ? *to = t.tv_sec : t.tv_sec;\n\
         }\n",
    );
    let library = folder.path("libclock.so");
    let mut cc = Command::new("cc");
    assert!(
        cc.args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(source)
            .status()
            .unwrap()
            .success()
    );
    let day = |preload: Option<&Path>| -> u64 {
        let mut c = Command::new("date");
        c.arg("+%s").env_remove("LD_PRELOAD");
        if let Some(library) = preload {
            c.env("LD_PRELOAD", library);
        }
        let seconds: u64 = String::from_utf8(c.output().unwrap().stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        seconds / 86400
    };
    assert!(
        day(Some(&library)) - day(None) >= 2999,
        "the clock was not moved"
    );
    library
}

/// Returns true if this user may make such namespaces. In some containers nobody may.
fn permitted(namespace: &[&str]) -> bool {
    Command::new("unshare")
        .args(namespace)
        .arg("true")
        .output()
        .is_ok_and(|o| o.status.success())
}

/// Returns the offset of `part` in `all`.
fn place(all: &[u8], part: &[u8]) -> Option<usize> {
    all.windows(part.len()).position(|w| w == part)
}

/// Returns printable text around a byte.
fn around(bytes: &[u8], at: usize) -> String {
    String::from_utf8_lossy(&bytes[at.saturating_sub(80)..(at + 80).min(bytes.len())])
        .escape_default()
        .to_string()
}

/// The second user builds the same network from another folder, at a later date, with another user
/// id, language, time zone and permissions. The path has a blank, and there is one job at a time.
#[test]
#[ignore = "long: tests/long.py"]
fn two_users_in_two_folders_on_two_days_build_the_same_bytes() {
    let folder = Folder::new();
    let trace = folder.path("trace");
    let mut first = Builder::new(&folder, "ann", "mortonnet");
    first.namespace = &["--user", "--map-root-user", "--net"];
    first.settings = vec![
        ("USER", "ann".into()),
        ("LANG", "C".into()),
        ("TZ", "UTC".into()),
    ];
    let calls = "--trace=openat,open,creat,execve,%network";
    // One file for each process, because calls of several processes in one file can break each
    // other's lines.
    fs::create_dir(&trace).unwrap();
    let files = trace.join("calls");
    let strace = [
        "strace",
        "-ff",
        "--seccomp-bpf",
        "-qq",
        "-s",
        "4096",
        calls,
        "-o",
        files.to_str().unwrap(),
    ];
    first.under = strace.map(String::from).to_vec();

    let mut second = Builder::new(&folder, "bert", "some where/else");
    second.namespace = &["--user", "--map-user=4711", "--map-group=4711", "--net"];
    copy(
        &[root().join("model/digits")],
        &second.home.join("networks"),
    );
    second.settings = vec![
        ("USER", "bert".into()),
        ("LANG", "tr_TR.UTF-8".into()),
        ("LC_ALL", "C.UTF-8".into()),
        ("TZ", "Asia/Kathmandu".into()),
        ("TMPDIR", second.home.clone()),
        ("MORTONNET_MODEL", second.home.join("networks/digits")),
        ("LD_PRELOAD", clock(&folder)),
    ];
    second.umask = "077";

    let ((a, _), (b, said)) = (first.build("2"), second.build("1"));
    let baked = "baked digits: layers 64-32-10 relu";
    assert!(said.contains(baked), "{said}");
    // Paths are the likely cause, so they are checked first. A build identifier would differ as
    // well.
    for path in [folder.0.as_path(), &cargo_home(), &root()] {
        for program in [&a, &b] {
            if let Some(at) = place(program, path.to_str().unwrap().as_bytes()) {
                panic!(
                    "the program has a path of this machine: {}",
                    around(program, at)
                );
            }
        }
    }
    let differs = a.iter().zip(&b).position(|(a, b)| a != b);
    if let Some(at) = differs {
        panic!("byte {at} differs:\n{}\n{}", around(&a, at), around(&b, at));
    }
    assert_eq!(a.len(), b.len());
    only_the_sources_are_read(&trace, &first);
}

/// No process of the build uses a network. The build script reads only the sources and writes only
/// into its own folder.
fn only_the_sources_are_read(trace: &Path, builder: &Builder) {
    let mut scripts = 0;
    let (mut read, mut written) = (0, 0);
    for file in fs::read_dir(trace).unwrap() {
        let calls = fs::read_to_string(file.unwrap().path()).unwrap();
        let mut of_script = false;
        for call in calls.lines() {
            let network = ["AF_INET", "AF_NETLINK", "AF_PACKET"]
                .iter()
                .any(|family| call.contains(family));
            assert!(!network, "the build asks for a network: {call}");
            let path = Path::new(call.split('"').nth(1).unwrap_or_default());
            if call.starts_with("execve(")
                && path.ends_with("build-script-build")
                && path.to_string_lossy().contains("/build/mortonnet-")
            {
                of_script = true;
                scripts += 1;
                continue;
            }
            if !of_script || !call.starts_with("open") || call.contains(" = -1 ") {
                continue;
            }
            let writes = ["O_WRONLY", "O_RDWR", "O_CREAT"]
                .iter()
                .any(|flag| call.contains(flag));
            let out = builder.sources.join("target/release/build");
            let system = [
                "/lib",
                "/lib64",
                "/usr/lib",
                "/usr/lib64",
                "/etc/ld.so.cache",
                "/proc/self",
                "/dev/null",
            ];
            let of_the_system = system.iter().any(|start| path.starts_with(start));
            match writes {
                true => assert!(
                    path.starts_with(&out) || path == Path::new("/dev/null"),
                    "the build script writes {call}"
                ),
                false => assert!(
                    path.is_relative() || path.starts_with(&builder.sources) || of_the_system,
                    "the build script reads {call}"
                ),
            }
            *(if writes { &mut written } else { &mut read }) += 1;
        }
    }
    assert_eq!(scripts, 1, "there is one build script");
    assert!(
        read > 10 && written > 1,
        "{read} files read, {written} written: the build script was not seen"
    );
}
