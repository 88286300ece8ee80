//! The command line: a contract that scripts rely on. A line is one command, with just the options
//! that it uses.

#[cfg(feature = "bake")]
pub(crate) mod bake;
mod classify;
mod given;
pub(crate) mod info;
#[cfg(feature = "lab")]
mod lab;
#[cfg(not(feature = "lab"))]
#[path = "without_lab.rs"]
mod lab;
mod selftest;
mod session;

use crate::baked;
use crate::cl;
use crate::engine::opencl::Wanted;
use crate::engine::select::{self, Request, Running};
use crate::engine::sources::Sources;
use crate::error::{Error, Kind, say};
use crate::escape;
use crate::sys::io::was_open;
use crate::sys::{signal, watchdog};
pub(crate) use classify::Classify;
use given::{Follows, Form, Given, Spec, usage};
pub(crate) use selftest::SelfTest;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// The begin of `--help`; what the lab has comes behind it.
const SYNOPSIS: &str = "\
mortonnet [OPTIONS] [FILE]...       classify the records of the FILEs, or of stdin
";

/// The rest of `--help`.
const HELP: &str = "
  -f, --format FMT        csv | f32 | u8 | idx | npy   (magic bytes tell npy and idx; else csv)
      --window N          time series: a record is the last N rows of the input (lines of CSV),
      --hop M             one every M rows                                            [N]
      --key N             the first N fields of a line (time, name) stand in front of its answer
  -o, --output KIND       class | label | scores | probs | top=K | json   a line per record
  -b, --batch N           most records per launch                         [the plan's]
      --max-memory BYTES  fewer, if constants, arena, input and results would need more: 64M
  -d, --device DEV        auto | host | opencl | all | INDEX | part of a name, or several
                          separated by commas, which share the records    [auto]
      --compute-units N   the OpenCL device with N compute units
      --plan NAME         baked | tuned | a plan of the library (see --info)
      --kernels DIR       kernel sources from a folder instead of the baked ones
      --expect FILE       compare with the classes in FILE, print \"586 of 597\" to stderr
      --min-accuracy A    with --expect: exit 1 below A (0.97 or 97%)
      --expect-scores F   compare with the scores in F (csv, npy, idx), exit 1 if one is further off
      --tolerance T       than T times the larger of 1 and the expected score     [0.0001]
      --on-error WHAT     stop | mark: answer bad records with \"error\", exit 1 at the end   [stop]
      --verify N          compare every N-th batch of a device with the host, stop where they differ
      --timeout SECONDS   give up a device that takes longer (at start 6 times, compiling 20)  [10]
      --profile[=FMT]     table | json | trace (ui.perfetto.dev), each with :FILE or not: timing
      --selftest          run the baked golden vectors on the device, exit 1 if one is wrong
  -v, --verbose           say on stderr what runs the network, and why
      --list-devices      the OpenCL devices, or why there are none; with -v all about them
      --info[=block]      what is baked, what runs it, what plans take; -o json; block: all as text
  -h, --help              this page
  -V, --version           the program's version, and what is baked

Examples:
  mortonnet vectors.csv                       a class per line
  sensor | mortonnet -o json | jq .label      answers each record as soon as it is read
  gunzip -c t10k-images-idx3-ubyte.gz | mortonnet --expect t10k-labels-idx1-ubyte
  mortonnet -d opencl --selftest && mortonnet -d opencl --profile < vectors.csv > classes.txt

stdout carries results only. Exit codes: 0 fine, 1 input, device or I/O error, 2 usage.
SIGINT and SIGTERM answer what was read, then end the program; SIGUSR1 prints the profile so far.
MORTONNET_OPENCL: library. MORTONNET_CACHE (else CACHE_DIRECTORY, XDG_CACHE_HOME, HOME): its cache.
";

/// What a line asks for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Classify records.
    Classify(Box<Classify>),
    /// Run the golden vectors.
    SelfTest(SelfTest),
    /// List the OpenCL devices.
    ListDevices {
        /// With all that plans depend on.
        verbose: bool,
    },
    /// Print what is baked, and what would run it.
    Info {
        /// Where it would run.
        request: Request,
        /// As JSON.
        json: bool,
    },
    /// Print all that is baked.
    #[cfg(feature = "lab")]
    Block,
    /// Benchmarks.
    #[cfg(feature = "lab")]
    Bench(crate::lab::Bench),
    /// Find the fastest variant.
    #[cfg(feature = "lab")]
    Tune(crate::lab::tune::Tune),
    /// Print a page of help.
    Help(String),
    /// Print the version.
    Version,
}

/// The options outside the lab.
const OPTIONS: &[Spec] = {
    use Follows::{Nothing, Value, ValueOr};
    &[
        ("format", Some('f'), Value),
        ("output", Some('o'), Value),
        ("max-memory", None, Value),
        ("window", None, Value),
        ("hop", None, Value),
        ("key", None, Value),
        ("batch", Some('b'), Value),
        ("device", Some('d'), Value),
        ("compute-units", None, Value),
        ("plan", None, Value),
        ("kernels", None, Value),
        ("expect", None, Value),
        ("min-accuracy", None, Value),
        ("expect-scores", None, Value),
        ("tolerance", None, Value),
        ("on-error", None, Value),
        ("verify", None, Value),
        ("timeout", None, Value),
        ("profile", None, ValueOr("table")),
        ("verbose", Some('v'), Nothing),
        ("selftest", None, Nothing),
        ("list-devices", None, Nothing),
        ("info", None, ValueOr("page")),
    ]
};

/// The commands outside the lab. Those that are called like an option are asked for by it.
static FORMS: [Form; 5] = [
    Form {
        name: "classifying records",
        take: classify::take,
    },
    Form {
        name: "--selftest",
        take: selftest::take,
    },
    Form {
        name: "--list-devices",
        take: take_list_devices,
    },
    Form {
        name: "--info=block",
        take: lab::take_block,
    },
    Form {
        name: "--info",
        take: take_info,
    },
];

impl Command {
    /// Reads the arguments (without the program's name).
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Error> {
        use lexopt::prelude::*;
        let mut parser = lexopt::Parser::from_args(args);
        let mut given = Given::default();
        let mut word = None;
        while let Some(arg) = parser.next().map_err(usage)? {
            let spec = OPTIONS
                .iter()
                .chain(lab::OPTIONS)
                .find(|(long, letter, _)| match arg {
                    Long(name) => name == *long,
                    Short(short) => Some(short) == *letter,
                    Value(_) => false,
                });
            match (arg, spec) {
                (Value(value), _) if word.is_none() && given.values.is_empty() => {
                    match lab::word(&value)? {
                        Some(_) if given.has("output") => {
                            let word = value.to_string_lossy();
                            let e = format!(
                                "{word} has an --output of its own: write it behind the word {word}"
                            );
                            return Err(Error::usage(e));
                        }
                        None => given.values.push(value),
                        found => word = found,
                    }
                }
                (Value(value), _) => given.values.push(value),
                // Help and version win over whatever else the line has, mistakes behind them
                // included.
                (Short('h') | Long("help"), _) => {
                    let help = || format!("{SYNOPSIS}{}{HELP}", lab::SYNOPSIS);
                    return Ok(Command::Help(word.map_or_else(help, lab::help)));
                }
                (Short('V') | Long("version"), _) if word.is_none() => return Ok(Command::Version),
                (_, Some(&(option, _, follows))) => {
                    let value = match follows {
                        Follows::Nothing => None,
                        Follows::ValueOr(default) => {
                            parser.optional_value().or(Some(default.into()))
                        }
                        Follows::Value => Some(parser.value().map_err(usage)?),
                    };
                    given.options.push((option, value.unwrap_or_default()));
                }
                (Long(name), None) => {
                    let all = OPTIONS.iter().chain(lab::OPTIONS).map(|o| o.0);
                    return Err(given::unknown(name, all));
                }
                (arg, None) => return Err(usage(arg.unexpected())),
            }
        }
        given.repeated().iter().for_each(|note| say(note));
        let asks = |(option, value): &(&str, OsString)| {
            let whole = format!("--{option}={}", value.to_string_lossy());
            FORMS
                .iter()
                .find(|form| form.name == whole || form.name.strip_prefix("--") == Some(option))
        };
        let form = match word {
            Some(word) => lab::form(word, &given),
            None => given
                .options
                .iter()
                .rev()
                .find_map(asks)
                .unwrap_or(&FORMS[0]),
        };
        given.command(form, &forms())
    }

    fn run(self, start: Instant) -> Result<(), Error> {
        match self {
            Command::Classify(classify) => classify.run(start),
            Command::Help(page) => print(&page),
            Command::Version => print(&format!("{}\n", info::version())),
            #[cfg(feature = "lab")]
            Command::Block => lab::block().and_then(|text| print(&escape::lines(&text))),
            #[cfg(feature = "lab")]
            Command::Bench(bench) => bench.run(&mut print),
            #[cfg(feature = "lab")]
            Command::Tune(tune) => tune.run(&mut print),
            Command::SelfTest(test) => watched(&|| test.run()),
            Command::ListDevices { verbose } => watched(&|| list_devices(verbose)),
            Command::Info {
                request,
                json: false,
            } => watched(&|| info::page(&request).and_then(|page| print(&escape::lines(&page)))),
            Command::Info {
                request,
                json: true,
            } => watched(&|| info::json(&request).and_then(|page| print(&page))),
        }
    }
}

/// Runs what has to do with devices and has no records to save: where a driver hangs an error is
/// all that is left.
fn watched(work: &dyn Fn() -> Result<(), Error>) -> Result<(), Error> {
    watch(|ticks| {
        let (silence, work) = (watchdog::silence(ticks), watchdog::work());
        end(Err(Error::device(format!(
            "OpenCL: {silence} ({work}): a device or its driver hangs"
        ))))
    })?;
    watchdog::call(work)
}

/// The program: one call for each command.
pub fn main() -> ExitCode {
    let start = Instant::now();
    let signals = signal::serve_questions().map_err(|e| Error::io("signals", e));
    let result = signals
        .and_then(|()| baked::check())
        .and_then(|()| Command::parse(std::env::args_os().skip(1)))
        .and_then(|command| command.run(start));
    let code = end(result);
    watchdog::exit(code);
    ExitCode::from(code)
}

/// What ended the program, said where there is something to say; its exit code.
fn end(result: Result<(), Error>) -> u8 {
    match (result, signal::stop()) {
        // Whoever asked for the end sees that it came of that: a shell ends its loop, systemd
        // counts it as clean.
        (Ok(()), Some(stop)) => signal::die(stop),
        (Err(e), Some(stop)) if e.is_silent() => signal::die(stop),
        (Ok(()), None) => 0,
        (Err(e), _) => {
            if !matches!(e.kind(), Kind::ClosedOutput) {
                say(&e.to_string());
            }
            e.exit_code()
        }
    }
}

/// Watches the calls of drivers; `hung` ends the program where one does not come back.
fn watch(hung: impl Fn(u32) -> u8 + Send + Sync + 'static) -> Result<(), Error> {
    watchdog::watch(hung).map_err(|e| Error::caused("cannot start a thread", e))
}

/// All commands, in the order in which messages list them.
fn forms() -> Vec<&'static Form> {
    FORMS.iter().chain(&lab::FORMS).collect()
}

fn take_list_devices(given: &mut Given) -> Result<Command, Error> {
    given.flag("list-devices");
    Ok(Command::ListDevices {
        verbose: given.flag("verbose"),
    })
}

fn take_info(given: &mut Given) -> Result<Command, Error> {
    given.parse("info", |value| match value {
        "page" => Ok(()),
        _ => Err(format!("expected nothing or block, found \"{value}\"")),
    })?;
    let json = given.parse("output", |kind| match kind {
        "json" => Ok(true),
        _ => Err(format!("--info has a page, or json, found \"{kind}\"")),
    })?;
    Ok(Command::Info {
        request: request(given)?,
        json: json.unwrap_or(false),
    })
}

/// Takes what says where the baked network runs.
fn request(given: &mut Given) -> Result<Request, Error> {
    let (device, compute_units) = given.device()?;
    Ok(Request {
        device,
        compute_units,
        plan: given.text("plan")?,
        batch: given.batch()?,
        max_memory: given.parse("max-memory", given::bytes)?,
        wanted: Wanted {
            scores: true,
            classes: true,
        },
        timed: false,
        track: None,
        sources: Sources::default(),
        tries: true,
        grows: false,
    })
}

/// The OpenCL devices; `all` that plans depend on.
pub(crate) fn list_devices(all: bool) -> Result<(), Error> {
    // Where there is nothing to list, the page says why, and the exit code is 1.
    let (page, failed) = match cl::Library::open() {
        Ok(library) => {
            let devices = cl::devices(library)?;
            let failed = devices.devices.is_empty().then_some("no OpenCL device");
            (
                format!("{}\n{}\n", library.path(), select::listing(&devices, all)),
                failed,
            )
        }
        Err(e) => (format!("{e}\n"), Some("no usable OpenCL library")),
    };
    print(&escape::lines(&page))?;
    failed.map_or(Ok(()), |what| Err(Error::device(what)))
}

/// Warnings, and what runs if that is wanted.
fn introduce(verbose: bool, running: &Running) {
    running.warnings.iter().for_each(|warning| say(warning));
    if verbose {
        say(&running.device);
        running.why.iter().for_each(|line| say(line));
        if running.laid_out_again > 0 {
            let plan = if running.members.is_empty() {
                &*running.plan.name
            } else {
                "of each device"
            };
            say(&format!(
                "{} constants were laid out again for plan {plan}",
                running.laid_out_again
            ));
        }
        if let Some(origins) = &running.phases.origins {
            say(&format!("kernels: {}", origins.line()));
            origins
                .notes
                .iter()
                .for_each(|note| say(&format!("kernels: {note}")));
        }
    }
}

/// Text on stdout.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    was_open(1).map_err(|e| Error::io("stdout", e))?;
    let written = watchdog::outside(|| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    });
    written.map_err(|e| match e.kind() {
        std::io::ErrorKind::BrokenPipe => Kind::ClosedOutput.into(),
        _ => Error::io("stdout", e),
    })
}

#[cfg(all(test, feature = "lab"))]
mod tests;
