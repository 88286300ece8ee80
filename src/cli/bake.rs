//! The program `mortonnet-bake`, which puts a model into a finished program and needs no compiler.
//! It reads the same model files as the build, with the same code and messages. The kernel library
//! comes from the block that `mortonnet-bake` itself contains.

use super::arguments::{Arguments, unknown, usage};
use super::help;
use super::print;
use crate::bake::sizes::Sizes;
use crate::bake::{self, Arithmetic, Baked, Mistakes, Names, Settings};
use crate::baked;
use crate::block::BlockSlot;
use crate::engine::model::Model;
use crate::engine::verify;
use crate::error::Error;
use crate::escape;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const NAME: &str = "mortonnet-bake";

pub(super) const HELP: &str = "\
mortonnet-bake [OPTIONS] MODEL -o FILE      write a program that runs the network of MODEL

MODEL is an ONNX or TensorFlow Lite model, a network JSON, or a folder with network.json.

Output:
  -o, --output FILE       program to write; an existing file is replaced
  -t, --target TARGET     CPU of the program: x86_64 | aarch64 | armv7  [this, or that of --program]

Network:
      --plan PLAN         plan of the library, or a plan file (.json)  [host; on ARM mali-midgard]
      --sizes SIZES       sizes that the model leaves open, such as x:1,3,320,320, and numbers of
                          inputs that become constants, such as rate=16000  [none]
      --arithmetic KIND   how 8-bit integers of a model are computed: as its integers, or as the
                          real numbers that they stand for: model | float  [model]
      --quantize FILE     quantize a network of floats to 8 bits, with records of FILE (.npy, .csv)
      --weights KIND      how weights are stored: f32 | f16 | i8 | i8:PERCENT  [f32]
      --program FILE      finished program to copy  [mortonnet-TARGET, see below]

Information:
  -h, --help              show this page
  -V, --version           show the version, which the written programs have, too

SIZES are of inputs or of named dimensions, separated by semicolons. N is the number of records.
With i8:PERCENT, at most that many of 100 classes may change by the smaller weights.
The FILE of --quantize has 100 or more typical records. It stores weights as i8, unless --weights
names another kind, and PERCENT is its limit too.
The file mortonnet-TARGET is looked for beside mortonnet-bake and in ../lib/mortonnet.
The network stands behind the program in the same file, which can be copied as any other. strip and
UPX remove the network; the program reports that when it starts.
Exit codes: 0 success, 1 a mistake in the model or an I/O error, 2 wrong command line.
";

/// A kind of CPU for which `mortonnet-bake` has finished programs.
struct TargetCpu {
    name: &'static str,
    /// Rust's name for the CPU (`target_arch`).
    arch: &'static str,
    /// The value of `e_machine` in the ELF header of programs for this CPU.
    machine: u16,
}

static TARGETS: [TargetCpu; 3] = [
    TargetCpu::new("x86_64", "x86_64", 62),
    TargetCpu::new("aarch64", "aarch64", 183),
    TargetCpu::new("armv7", "arm", 40),
];

impl TargetCpu {
    const fn new(name: &'static str, arch: &'static str, machine: u16) -> TargetCpu {
        TargetCpu {
            name,
            arch,
            machine,
        }
    }
}

#[derive(Debug)]
pub(super) struct BakeOptions {
    model: PathBuf,
    output: PathBuf,
    /// The index of the CPU in [`TARGETS`] that `--target` names. `None` without `--target`.
    target: Option<usize>,
    plan: Option<String>,
    sizes: Option<String>,
    arithmetic: Option<String>,
    quantize: Option<PathBuf>,
    weights: Option<String>,
    program: Option<PathBuf>,
}

pub(super) enum BakeCommand {
    Page(String),
    Bake(BakeOptions),
}

pub(super) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<BakeCommand, Error> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(args);
    let mut given = Arguments::default();
    while let Some(arg) = parser.next().map_err(usage)? {
        let spec = help::find(help::options(HELP), &arg);
        match (arg, spec) {
            (Short('h') | Long("help"), _) => return Ok(BakeCommand::Page(HELP.into())),
            (Short('V') | Long("version"), _) => {
                let version = env!("CARGO_PKG_VERSION");
                return Ok(BakeCommand::Page(format!("{NAME} {version}\n")));
            }
            (Value(model), _) if given.values.is_empty() => given.values.push(model),
            (_, Some(spec)) => given.add(spec.name(), spec.value(&mut parser).map_err(usage)?),
            (Long(name), None) => return Err(unknown(name, help::options(HELP).map(|o| o.name()))),
            (arg, None) => return Err(usage(arg.unexpected())),
        }
    }
    given.repeated().iter().for_each(|note| say(note));
    let target = given.parse("target", |name| {
        let found = TARGETS.iter().position(|t| t.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
            format!("expected one of {}, found \"{name}\"", names.join(", "))
        })
    })?;
    let (Some(model), Some(output)) = (given.values().pop(), given.path("output")) else {
        return Err(Error::usage(format!(
            "expected a model and -o FILE; {NAME} --help has all"
        )));
    };
    Ok(BakeCommand::Bake(BakeOptions {
        model: model.into(),
        output,
        target,
        plan: given.text("plan")?,
        sizes: given.text("sizes")?,
        arithmetic: given.text("arithmetic")?,
        quantize: given.path("quantize"),
        weights: given.text("weights")?,
        program: given.path("program"),
    }))
}

/// Returns the path of the finished program for a target. It lies in the folder of this program or
/// in `../lib/mortonnet`.
fn program_of(target: usize) -> Result<PathBuf, Error> {
    let name = format!("mortonnet-{}", TARGETS[target].name);
    let own = std::env::current_exe().map_err(|e| Error::io(NAME, e))?;
    let folder = own.parent().unwrap_or(Path::new("."));
    let places = [
        folder.join(&name),
        folder.join("../lib/mortonnet").join(&name),
    ];
    let found = places.iter().find(|p| p.exists()).cloned();
    found.ok_or_else(|| {
        let places = places.map(|p| p.display().to_string()).join(" nor ");
        Error::check(format!(
            "there is neither {places}: --program names the finished program to copy"
        ))
    })
}

/// Returns the index in [`TARGETS`] of the CPU that an ELF file is for. `None` for other files and
/// other CPUs.
fn target_of(program: &[u8]) -> Option<usize> {
    let machine = program
        .get(18..20)
        .filter(|_| program.starts_with(b"\x7fELF"))?;
    TARGETS
        .iter()
        .position(|t| t.machine.to_le_bytes() == *machine)
}

/// Returns true if both paths lead to the same existing file, even through links.
fn same_file(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|about| (about.dev(), about.ino()));
    matches!((id(a), id(b)), (Ok(a), Ok(b)) if a == b)
}

/// Writes an executable file atomically, under a temporary name that is then renamed. A program
/// that runs from the old file is not disturbed.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("expected the name of a file"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(hidden);
    let made = File::options()
        .write(true)
        .create_new(true)
        .open(&beside)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.set_permissions(Permissions::from_mode(0o755))?;
            file.sync_all()
        });
    made.and_then(|()| fs::rename(&beside, path))
        .inspect_err(|_| drop(fs::remove_file(&beside)))
}

fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), Error> {
    match parse(args)? {
        BakeCommand::Page(page) => print(&page),
        BakeCommand::Bake(options) => write_program(options),
    }
}

/// A finished program with a slot for the baked data. `mortonnet-bake` writes a network into a copy
/// of it.
struct FinishedProgram {
    path: PathBuf,
    bytes: Vec<u8>,
    target: &'static TargetCpu,
    lab: bool,
}

impl FinishedProgram {
    fn read(named: Option<PathBuf>, target: Option<usize>) -> Result<FinishedProgram, Error> {
        let own = || {
            TARGETS
                .iter()
                .position(|t| t.arch == std::env::consts::ARCH)
        };
        let path = match (named, target.or_else(own)) {
            (Some(program), _) => program,
            (None, Some(target)) => program_of(target)?,
            (None, None) => {
                return Err(Error::usage(
                    "there is no program for this CPU: --target names another",
                ));
            }
        };
        let shown = path.display();
        let bytes = fs::read(&path).map_err(|e| Error::io(shown.to_string(), e))?;
        let (_, slot) =
            BlockSlot::find(&bytes).map_err(|e| Error::check(format!("{shown}: {e}")))?;
        let found = target_of(&bytes)
            .ok_or_else(|| Error::check(format!("{shown}: it is for no CPU known here")))?;
        if let Some(asked) = target.filter(|&asked| asked != found) {
            return Err(Error::check(format!(
                "{shown}: expected a program for {}, found one for {}",
                TARGETS[asked].name, TARGETS[found].name
            )));
        }
        Ok(FinishedProgram {
            bytes,
            target: &TARGETS[found],
            lab: slot.lab(),
            path,
        })
    }
}

fn write_program(options: BakeOptions) -> Result<(), Error> {
    let own_file = std::env::current_exe().map_err(|e| Error::io(NAME, e))?;
    let program = FinishedProgram::read(options.program, options.target)?;
    let (weights, changes) = bake::stored(options.weights.as_deref())
        .map_err(|e| Error::usage(format!("--weights: {e}")))?;
    let sizes = Sizes::parse(&options.sizes.unwrap_or_default())
        .map_err(|e| Error::usage(format!("--sizes: {e}")))?;
    let arithmetic = Arithmetic::parse(&options.arithmetic.unwrap_or("model".into()))
        .map_err(|e| Error::usage(format!("--arithmetic: {e}")))?;
    let default_plan = if program.target.arch == "x86_64" {
        "host"
    } else {
        "mali-midgard"
    };
    let settings = Settings {
        names: Names::Options,
        root: std::env::current_dir().map_err(|e| Error::io("the current folder", e))?,
        model: options.model,
        sizes,
        arithmetic,
        quantize: options.quantize,
        weights,
        changes,
        plan: options.plan.unwrap_or(default_plan.into()),
        lab: program.lab,
    };
    let library = (baked::library().clone(), baked::sources()?.clone());
    let made = bake::bake_with(&settings, Some(library), Mistakes::default(), Vec::new());
    let made = made.map_err(|failed| {
        failed
            .mistakes
            .lines
            .iter()
            .for_each(|mistake| say(mistake));
        Error::check(format!(
            "nothing was written: mistakes: {}",
            failed.mistakes.lines.len()
        ))
    })?;
    let output = options.output;
    for read in made.files.iter().chain([&program.path, &own_file]) {
        if same_file(&output, read) {
            return Err(Error::usage(format!(
                "--output {}: this is {}, which was read; name another file (nothing was written)",
                output.display(),
                read.display()
            )));
        }
    }
    verify(&made)?;
    let block = made.block();
    let file = BlockSlot::fill(&program.bytes, &block)
        .map_err(|e| Error::check(format!("{}: {e}", program.path.display())))?;
    write(&output, &file).map_err(|e| Error::io(output.display().to_string(), e))?;
    made.report("", program.target.arch, block.len())
        .iter()
        .for_each(|note| say(note));
    say(&format!(
        "{}: {} bytes, for {}",
        output.display(),
        file.len(),
        program.target.name
    ));
    Ok(())
}

/// Runs the golden vectors through the baked network, on this machine's host engine. Golden records
/// whose values overflow are not run here, only by `--selftest`.
fn verify(made: &Baked) -> Result<(), Error> {
    let constant = |i: usize| made.constants.read(&made.plan, i);
    let nothing = |e: String| Error::check(format!("nothing was written: {e}"));
    let model =
        Model::for_host(&made.network, &made.library, &made.plan, &constant).map_err(nothing)?;
    let bake::golden::GoldenVectors {
        count,
        inputs,
        scores,
        ..
    } = &made.golden;
    let golden = baked::Golden {
        count: *count,
        inputs,
        scores,
        overflow: &[],
    };
    verify::verify(&model, &golden).map_err(|e| nothing(e.to_string()))
}

/// Writes a message to stderr.
fn say(message: &str) {
    let _ = writeln!(io::stderr(), "{NAME}: {}", escape::lines(message));
}

/// Runs `mortonnet-bake` and returns its exit code.
pub fn main() -> ExitCode {
    match baked::check().and_then(|()| run(std::env::args_os().skip(1))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if !e.is_silent() {
                say(&e.to_string());
            }
            ExitCode::from(e.exit_code())
        }
    }
}
