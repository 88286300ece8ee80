//! Running the binary, baking networks, and an independent float64 reader of network folders.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The binary with the default network.
pub const DIGITS: &str = env!("CARGO_BIN_EXE_mortonnet");

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the files that `tests/needs` makes for `name`.
pub fn needs(name: &str) -> PathBuf {
    let made = Command::new(root().join("tests/needs"))
        .arg(name)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end())
}

/// A folder that is deleted at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mortonnet-test-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// Writes an executable file with another process. If this process had it open for writing, a
    /// concurrently forked child would inherit the open file until its exec. The kernel refuses to
    /// run a file that is open for writing.
    pub fn executable(&self, name: &str, bytes: impl Into<Vec<u8>>) -> PathBuf {
        let path = self.path(name);
        let mut write = Command::new("sh");
        write
            .args(["-c", "rm -f \"$0\" && cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&path);
        let written = feed(&mut write, bytes);
        assert_eq!(written.code, Some(0), "{}", written.err);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    /// Returns the lines of stdout. The run must have succeeded.
    pub fn lines(&self) -> Vec<&str> {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out.lines().collect()
    }
}

impl From<Output> for Run {
    fn from(o: Output) -> Run {
        Run {
            code: o.status.code(),
            out: String::from_utf8(o.stdout).unwrap(),
            err: String::from_utf8(o.stderr).unwrap(),
        }
    }
}

/// Makes a command without the user's settings. OpenCL is found only if the test sets a device.
pub fn command(program: impl AsRef<Path>) -> Command {
    let mut c = Command::new(program.as_ref());
    for name in ["MORTONNET_MODEL", "MORTONNET_PLAN", "RUST_BACKTRACE"] {
        c.env_remove(name);
    }
    c.env("MORTONNET_CACHE", "")
        .env("MORTONNET_OPENCL", "/nonexistent/libOpenCL.so")
        .current_dir(root());
    c
}

/// The OpenCL loader for the shim. The dynamic loader finds it on this machine.
pub const ICD_LOADER: &str = "libOpenCL.so.1";

/// Returns oclgrind's OpenCL library, from its package or its installation.
fn oclgrind() -> PathBuf {
    let folders = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/local/lib64",
    ]
    .map(PathBuf::from);
    let multiarch = fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut files = folders
        .into_iter()
        .chain(multiarch)
        .map(|f| f.join("oclgrind/liboclgrind-rt.so"));
    files
        .find(|f| f.exists())
        .expect("oclgrind is missing: tests/run installs it")
}

pub fn run(program: impl AsRef<Path>, args: &[&str], input: impl Into<Vec<u8>>) -> Run {
    feed(command(program).args(args), input)
}

/// Runs a command with input from a thread.
pub fn feed(command: &mut Command, input: impl Into<Vec<u8>>) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.into();
    let feeder = std::thread::spawn(move || {
        // The program may stop reading early.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output.into()
}

/// Like `feed`, for a command that must end within `limit` and use less than `most` bytes of
/// memory. Otherwise it is killed and the test fails.
pub fn bounded(
    command: &mut Command,
    input: impl Into<Vec<u8>>,
    limit: Duration,
    most: u64,
) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.into());
    let all = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).unwrap();
            bytes
        })
    };
    let out = all(Box::new(child.stdout.take().unwrap()));
    let err = all(Box::new(child.stderr.take().unwrap()));
    std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // The file is missing if the process has just ended.
        let about = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = about.lines().find_map(|l| {
            l.strip_prefix("VmHWM:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        });
        let peak = peak.unwrap_or(0u64) << 10;
        if start.elapsed() > limit || peak > most {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!(
                "after {:?}, with {peak} bytes: {command:?}",
                start.elapsed()
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Output {
        status,
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    }
    .into()
}

/// Returns the 64-bit FNV-1a hash, the checksum of files in the cache folder.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Makes a FIFO without a writer, on which a reader blocks.
pub fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    Pocl,
    Oclgrind,
}

/// Sets up `command` for an OpenCL device. oclgrind writes its findings to `log`. A missing device
/// is a failure.
pub fn on(witness: Witness, command: &mut Command, log: &Path) {
    match witness {
        Witness::Pocl => {
            let icd = Path::new("/etc/OpenCL/vendors/pocl.icd");
            assert!(icd.exists(), "PoCL is missing: tests/run installs it");
            command
                .env_remove("MORTONNET_OPENCL")
                .env("OCL_ICD_VENDORS", icd);
        }
        Witness::Oclgrind => {
            command
                .env("MORTONNET_OPENCL", oclgrind())
                .env("OCLGRIND_LOG", log)
                .env("OCLGRIND_DATA_RACES", "1")
                .env("OCLGRIND_UNINITIALIZED", "1")
                .env("OCLGRIND_MAX_WGSIZE", "256")
                .env("OCLGRIND_LOCAL_MEM_SIZE", "32768");
        }
    }
}

/// Compiles the shim, an OpenCL library that counts, logs and fails calls, with these options.
pub fn shim(folder: &Folder, options: &[&str]) -> PathBuf {
    let library = folder.path("libshim.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror"])
        .args(options)
        .arg("-o")
        .arg(&library);
    cc.arg(root().join("tests/shim/opencl_shim.c"))
        .args(["-ldl", "-lpthread"]);
    assert!(cc.status().unwrap().success());
    library
}

/// `mortonnet-bake`, and beside it the program without a network that it copies.
pub struct Tools(Folder);

impl Tools {
    /// Returns the tools, which are made once for all tests. `mortonnet-bake` was compiled with the
    /// tests.
    pub fn get() -> &'static Tools {
        static TOOLS: OnceLock<Tools> = OnceLock::new();
        TOOLS.get_or_init(|| {
            let tools = Tools(Folder::new());
            if cfg!(not(feature = "bake")) {
                panic!("mortonnet-bake is missing: tests/run tests with --features bake");
            }
            // The program is beside the other one. Cargo's variable has a name that shell wrappers
            // do not pass on.
            let bake = Path::new(DIGITS).with_file_name("mortonnet-bake");
            tools
                .0
                .executable("mortonnet-bake", fs::read(bake).unwrap());
            // This build bakes nothing, so its build script needs no optimisation.
            let settings = [("CARGO_PROFILE_DEV_BUILD_OVERRIDE_OPT_LEVEL", "0")];
            let args = ["--features", "appended", "--bin", "mortonnet"];
            let built = build_into("target/tests-appended", &args, &settings).unwrap();
            tools.0.executable(
                &Tools::program_name(),
                fs::read(built.join("mortonnet")).unwrap(),
            );
            tools
        })
    }

    pub fn bake(&self) -> PathBuf {
        self.0.path("mortonnet-bake")
    }

    pub fn program(&self) -> PathBuf {
        self.0.path(&Tools::program_name())
    }

    fn program_name() -> String {
        let arch = if std::env::consts::ARCH == "arm" {
            "armv7"
        } else {
            std::env::consts::ARCH
        };
        format!("mortonnet-{arch}")
    }
}

/// Bakes a network with `mortonnet-bake`. Returns the program or the error. Takes 0.1 s, while a
/// cargo build (`link`) takes seconds.
pub fn bake(model: &Path, plan: Option<&str>, folder: &Folder) -> Result<PathBuf, String> {
    let plan: Vec<_> = plan.iter().flat_map(|p| ["--plan", *p]).collect();
    bake_with(model, &plan, folder)
}

/// Like `bake`, with these options.
pub fn bake_with(model: &Path, options: &[&str], folder: &Folder) -> Result<PathBuf, String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let path = folder.path(&format!(
        "mortonnet-{}",
        COUNT.fetch_add(1, Ordering::Relaxed)
    ));
    let mut c = command(Tools::get().bake());
    let r = feed(c.arg(model).arg("-o").arg(&path).args(options), "");
    if r.code == Some(0) {
        Ok(path)
    } else {
        Err(r.err)
    }
}

/// Builds the package with another network by cargo. Returns a copy of the program, or cargo's
/// error.
pub fn link(model: &Path, plan: Option<&str>, folder: &Folder) -> Result<PathBuf, String> {
    let plan: Vec<_> = plan.iter().map(|p| ("MORTONNET_PLAN", *p)).collect();
    link_with(model, &plan, folder)
}

/// Like `link`, with these settings.
pub fn link_with(
    model: &Path,
    settings: &[(&str, &str)],
    folder: &Folder,
) -> Result<PathBuf, String> {
    let _one = BAKING.lock().unwrap_or_else(|e| e.into_inner());
    let model = [("MORTONNET_MODEL", model.to_str().unwrap())];
    build(&[&model, settings].concat())?;
    let name = format!("linked-{}", fs::read_dir(&folder.0).unwrap().count());
    Ok(folder.executable(&name, fs::read(baked()).unwrap()))
}

/// Builds with each of these settings, one after the other into the same file. Returns cargo's
/// messages and the program's `--version` after each.
pub fn bake_in_turn(settings: &[&[(&str, &str)]]) -> Vec<(String, String)> {
    let _one = BAKING.lock().unwrap_or_else(|e| e.into_inner());
    settings
        .iter()
        .map(|s| (build(s).unwrap(), run(baked(), &["--version"], "").out))
        .collect()
}

/// One build at a time, in one target folder, so that dependencies are compiled once.
static BAKING: Mutex<()> = Mutex::new(());

fn baked() -> PathBuf {
    root().join("target/tests-baked/debug/mortonnet")
}

const FAST: [(&str, &str); 3] = [
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    // Optimised, because this build script bakes many networks with convolutions.
    ("CARGO_PROFILE_DEV_BUILD_OVERRIDE_OPT_LEVEL", "2"),
];

/// Builds the package with these settings only. Returns cargo's messages. Without optimisation,
/// debug information and the lab, a build takes 1.5 s instead of 26 s.
fn build(settings: &[(&str, &str)]) -> Result<String, String> {
    build_in("target/tests-baked", &[], settings)
}

/// Builds into this folder with these arguments. Returns the folder of the programs.
pub fn build_into(
    target: &str,
    args: &[&str],
    settings: &[(&str, &str)],
) -> Result<PathBuf, String> {
    build_in(target, args, settings).map(|_| root().join(target).join("debug"))
}

fn build_in(target: &str, args: &[&str], settings: &[(&str, &str)]) -> Result<String, String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--offline",
        "--message-format",
        "short",
        "--target-dir",
        target,
    ]);
    cargo.arg("--no-default-features").args(args).envs(FAST);
    for name in [
        "MORTONNET_MODEL",
        "MORTONNET_PLAN",
        "MORTONNET_WEIGHTS",
        "RUSTFLAGS",
    ] {
        cargo.env_remove(name);
    }
    let output = cargo
        .current_dir(root())
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(said)
    } else {
        Err(said)
    }
}

/// The network of a folder in float64, read without any of the program's code.
pub struct Reference {
    layers: Vec<(Vec<Vec<f64>>, Vec<f64>)>,
    activation: String,
    scale: f64,
}

impl Reference {
    pub fn read(folder: &Path) -> Reference {
        let json = |name: &str| -> serde_json::Value {
            serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
        };
        let matrix = |name: &str| -> Vec<Vec<f64>> {
            let text =
                fs::read_to_string(folder.join(json(name)["file"].as_str().unwrap())).unwrap();
            // Weights are f32, so they are rounded to f32. The computation is in float64.
            text.lines()
                .map(|l| {
                    l.split(',')
                        .map(|x| x.trim().parse::<f32>().unwrap().into())
                        .collect()
                })
                .collect()
        };
        let network = json("network.json");
        let mut layers = Vec::new();
        let mut activation = String::new();
        for layer in network["layers"].as_array().unwrap() {
            match layer["layer"].as_str().unwrap() {
                "AffineLayer" => layers.push((
                    matrix(layer["weights"].as_str().unwrap()),
                    matrix(layer["biases"].as_str().unwrap()).concat(),
                )),
                "SoftmaxLayer" => {}
                hidden => activation = hidden.to_string(),
            }
        }
        Reference {
            layers,
            activation,
            scale: network["input"]["scale"].as_f64().unwrap_or(1.0),
        }
    }

    pub fn scores(&self, raw: &[f64]) -> Vec<f64> {
        let mut x: Vec<f64> = raw.iter().map(|v| v * self.scale).collect();
        for (i, (w, b)) in self.layers.iter().enumerate() {
            let sum = |(row, b): (&Vec<f64>, &f64)| {
                row.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>() + b
            };
            let y: Vec<f64> = w.iter().zip(b).map(sum).collect();
            let hidden = |v: f64| match &*self.activation {
                "SigmoidLayer" => 1.0 / (1.0 + (-v).exp()),
                "ReLULayer" => v.max(0.0),
                other => panic!("{other}"),
            };
            x = if i + 1 < self.layers.len() {
                y.into_iter().map(hidden).collect()
            } else {
                y
            };
        }
        x
    }

    /// Checks printed scores against the bound of src/ops/bound.rs. `what` names the run.
    pub fn check(&self, records: &[Vec<f64>], scores: &[&str], what: &str) {
        assert_eq!(records.len(), scores.len(), "{what}");
        for (n, (raw, line)) in records.iter().zip(scores).enumerate() {
            let found: Vec<f64> = line
                .split(',')
                .map(|s| s.parse::<f32>().unwrap().into())
                .collect();
            let expected = self.scores(raw);
            assert_eq!(found.len(), expected.len(), "{what}");
            for (f, e) in found.iter().zip(&expected) {
                assert!(
                    (f - e).abs() <= 1e-4 * e.abs().max(1.0),
                    "{what}: record {n}: {f}, expected {e}"
                );
            }
        }
    }
}

pub fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut s = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s >> 32) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Returns the numbers of a NumPy file of f32.
pub fn npy(path: &str) -> Vec<f32> {
    let bytes = fs::read(root().join(path)).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let numbers = bytes[header..].chunks_exact(4);
    numbers
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}
