//! `mortonnet-bake`: a model into a finished program, without a compiler. It reads what the build
//! reads, with the same code and messages; the kernel library is that of its own block.

use super::given::{Given, unknown, usage};
use super::print;
use crate::bake::{self, Baked, Mistakes, Names, Settings};
use crate::baked;
use crate::block::Slot;
use crate::engine::model::Model;
use crate::engine::verify;
use crate::error::Error;
use crate::escape;
use crate::ir::values::Values;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const NAME: &str = "mortonnet-bake";

const HELP: &str = "\
mortonnet-bake [OPTIONS] MODEL -o FILE      write a program that runs the network of MODEL

MODEL is an ONNX or TensorFlow Lite model, a network JSON, or a folder with network.json.

  -o, --output FILE       the program; one of that name is replaced
  -t, --target TARGET     x86_64 | aarch64 | armv7: the CPU that it is for  [this one, or FILE's]
      --plan PLAN         a plan of the library, or a plan file (.json)
                          [host; for aarch64 and armv7 mali-midgard]
      --weights KIND      f32 | f16 | i8 | i8:PERCENT: how weights are stored, and how many of 100
                          classes may change by that                        [f32]
      --program FILE      the finished program that is copied
                          [mortonnet-TARGET beside mortonnet-bake, or in ../lib/mortonnet]
  -h, --help              this page
  -V, --version           the version; programs are of the same one

The network stands behind the program in the same file: copy it as any other. strip and UPX remove
it, which the program says when it starts.
Exit codes: 0 fine, 1 a mistake in the model or an I/O error, 2 usage.
";

/// Names of targets, their architecture as Rust calls it, and their machine in an ELF header.
const TARGETS: [(&str, &str, u16); 3] = [
    ("x86_64", "x86_64", 62),
    ("aarch64", "aarch64", 183),
    ("armv7", "arm", 40),
];

/// What a line asks for.
#[derive(Debug)]
struct Line {
    model: PathBuf,
    output: PathBuf,
    target: Option<usize>,
    plan: Option<String>,
    weights: Option<String>,
    program: Option<PathBuf>,
}

/// A page, or what to bake.
enum Asked {
    Page(String),
    Bake(Line),
}

fn read(args: impl IntoIterator<Item = OsString>) -> Result<Asked, Error> {
    use lexopt::prelude::*;
    const OPTIONS: [(&str, Option<char>); 5] = [
        ("output", Some('o')),
        ("target", Some('t')),
        ("plan", None),
        ("weights", None),
        ("program", None),
    ];
    let mut parser = lexopt::Parser::from_args(args);
    let mut given = Given::default();
    while let Some(arg) = parser.next().map_err(usage)? {
        let option = OPTIONS.iter().find(|(long, letter)| match arg {
            Long(name) => name == *long,
            Short(short) => Some(short) == *letter,
            Value(_) => false,
        });
        match (arg, option) {
            (Short('h') | Long("help"), _) => return Ok(Asked::Page(HELP.into())),
            (Short('V') | Long("version"), _) => {
                return Ok(Asked::Page(format!(
                    "{NAME} {}\n",
                    env!("CARGO_PKG_VERSION")
                )));
            }
            (Value(model), _) if given.values.is_empty() => given.values.push(model),
            (_, Some((option, _))) => given.options.push((option, parser.value().map_err(usage)?)),
            (Long(name), None) => return Err(unknown(name, OPTIONS.iter().map(|o| o.0))),
            (arg, None) => return Err(usage(arg.unexpected())),
        }
    }
    given.repeated().iter().for_each(|note| say(note));
    let target = given.parse("target", |name| {
        let expected = || {
            format!(
                "expected one of {}, found \"{name}\"",
                TARGETS.map(|t| t.0).join(", ")
            )
        };
        TARGETS
            .iter()
            .position(|t| t.0 == name)
            .ok_or_else(expected)
    })?;
    let (Some(model), Some(output)) = (given.values().pop(), given.path("output")) else {
        return Err(Error::usage(format!(
            "expected a model and -o FILE; {NAME} --help has all"
        )));
    };
    Ok(Asked::Bake(Line {
        model: model.into(),
        output,
        target,
        plan: given.text("plan")?,
        weights: given.text("weights")?,
        program: given.path("program"),
    }))
}

/// The finished program of a target, where it was not named.
fn program_of(target: usize) -> Result<PathBuf, Error> {
    let name = format!("mortonnet-{}", TARGETS[target].0);
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

/// The target of a program's file.
fn target_of(program: &[u8]) -> Option<usize> {
    let machine = program
        .get(18..20)
        .filter(|_| program.starts_with(b"\x7fELF"))?;
    TARGETS.iter().position(|t| t.2.to_le_bytes() == *machine)
}

/// True if both paths are one file now, by whatever names and links.
fn same_file(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|about| (about.dev(), about.ino()));
    matches!((id(a), id(b)), (Ok(a), Ok(b)) if a == b)
}

/// Writes a program: all of it or nothing, and not into one that runs.
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
    let line = match read(args)? {
        Asked::Page(page) => return print(&page),
        Asked::Bake(line) => line,
    };
    let (model, output) = (line.model, line.output);
    let own_file = std::env::current_exe().map_err(|e| Error::io(NAME, e))?;
    let own = || TARGETS.iter().position(|t| t.1 == std::env::consts::ARCH);
    let path = match (line.program, line.target.or_else(own)) {
        (Some(program), _) => program,
        (None, Some(target)) => program_of(target)?,
        (None, None) => {
            return Err(Error::usage(
                "there is no program for this CPU: --target names another",
            ));
        }
    };
    let shown = path.display().to_string();
    let program = fs::read(&path).map_err(|e| Error::io(&shown, e))?;
    let (_, slot) = Slot::find(&program).map_err(|e| Error::check(format!("{shown}: {e}")))?;
    let found = target_of(&program)
        .ok_or_else(|| Error::check(format!("{shown}: it is for no CPU known here")))?;
    if let Some(asked) = line.target.filter(|&asked| asked != found) {
        return Err(Error::check(format!(
            "{shown}: expected a program for {}, found one for {}",
            TARGETS[asked].0, TARGETS[found].0
        )));
    }
    let (name, arch, _) = TARGETS[found];
    let stored = line.weights.unwrap_or("f32".into());
    let (weights, changes) =
        bake::stored(&stored).map_err(|e| Error::usage(format!("--weights: {e}")))?;
    let settings = Settings {
        names: Names::Options,
        root: std::env::current_dir().map_err(|e| Error::io("the current folder", e))?,
        model,
        weights,
        changes,
        plan: line.plan.unwrap_or(
            if arch == "x86_64" {
                "host"
            } else {
                "mali-midgard"
            }
            .into(),
        ),
        lab: slot.lab(),
    };
    let library = (baked::library().clone(), baked::sources()?.clone());
    let made = bake::bake_with(&settings, Some(library), Mistakes::default(), Vec::new());
    let made = made.map_err(|(mistakes, _)| {
        mistakes.0.iter().for_each(|mistake| say(mistake));
        Error::check(format!(
            "nothing was written: mistakes: {}",
            mistakes.0.len()
        ))
    })?;
    for read in made.files.iter().chain([&path, &own_file]) {
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
    let file = Slot::fill(&program, &block).map_err(|e| Error::check(format!("{shown}: {e}")))?;
    write(&output, &file).map_err(|e| Error::io(output.display().to_string(), e))?;
    made.report("", arch, block.len())
        .iter()
        .for_each(|note| say(note));
    say(&format!(
        "{}: {} bytes, for {name}",
        output.display(),
        file.len()
    ));
    Ok(())
}

/// Runs the golden vectors through what has been baked.
fn verify(made: &Baked) -> Result<(), Error> {
    let constant = |i: usize| {
        let (c, offset) = (&made.plan.constants[i], made.offsets[i]);
        Values::read(c, &made.constants[offset..offset + c.bytes()])
    };
    let nothing = |e: String| Error::check(format!("nothing was written: {e}"));
    let model =
        Model::for_host(&made.network, &made.library, &made.plan, &constant).map_err(nothing)?;
    let bake::golden::Golden {
        count,
        inputs,
        scores,
        ..
    } = &made.golden;
    // Records that overflow are the self-test's.
    let golden = baked::Golden {
        count: *count,
        inputs,
        scores,
        overflow: &[],
    };
    verify::verify(&model, &golden).map_err(|e| nothing(e.to_string()))
}

/// A message on stderr.
fn say(message: &str) {
    let _ = writeln!(io::stderr(), "{NAME}: {}", escape::lines(message));
}

/// The program.
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
