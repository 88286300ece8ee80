//! The command line, a stable interface for scripts. A command line asks for one command, and may
//! only have options that this command uses.

mod arguments;
#[cfg(feature = "bake")]
pub(crate) mod bake;
mod classify;
mod help;
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
use crate::error::{Error, ErrorKind, say};
use crate::escape;
use crate::sys::io::was_open;
use crate::sys::{signal, watchdog};
use arguments::{Arguments, CommandSpec, usage};
pub(crate) use classify::Classify;
use help::OptionSpec;
pub(crate) use selftest::SelfTest;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

const SYNOPSIS: &str = "\
mortonnet [OPTIONS] [FILE]...       classify the records of the FILEs, or of stdin
";

/// The page of `--help`, without the lines at its top that list the commands.
const HELP: &str = "
Input:
  -f, --format FMT        input format: csv | f32 | u8 | i8 | idx | npy  [detected, else csv]
      --window N          time series: one record is N successive rows (CSV lines)
      --hop M             time series: start a record every M rows  [N of --window]
      --key N             copy the first N fields of a line (time, name) to its answer
      --on-error ACTION   stop at a bad record, or answer \"error\" and go on: stop | mark  [stop]

Output:
  -o, --output KIND       answer to a record: class | label | scores | probs | top=K | json
      --profile[=FMT]     report times on stderr, with =FMT:FILE in a file: table | json | trace
  -v, --verbose           report on stderr which device and plan run, and why

Device:
  -d, --device DEV        device to use: auto | host | opencl | all | INDEX | NAME  [auto]
      --compute-units N   use the OpenCL device with N compute units
      --plan NAME         plan to run: baked, tuned, or one that --info lists
  -b, --batch N           run at most N records per launch  [the plan's batch]
      --max-memory BYTES  limit memory; smaller batches are used to fit (for example 64M)
      --kernels DIR       compile the kernel sources in DIR instead of the baked ones
      --timeout SECONDS   give up a device that hangs; start-up may take 6 times as long  [10]

Checking:
      --expect FILE       compare classes with FILE; print the number of correct ones on stderr
      --min-accuracy A    with --expect: exit 1 if accuracy is below A (0.97 or 97%)
      --expect-scores F   compare scores with file F (csv, npy, idx); exit 1 beyond --tolerance
      --tolerance T       allowed error of a score, relative to max(1, |expected|)  [0.0001]
      --verify N          compare every N-th batch of a device with the host; stop if they differ
      --selftest          run the baked golden vectors on the device; exit 1 if a result is wrong

Information:
      --list-devices      list the OpenCL devices, or why there are none; -v adds details
      --info[=KIND]       show network, device and plans, or all baked data: page | block
  -h, --help              show this page
  -V, --version           show the version of the program and the name of the network

Examples:
  mortonnet vectors.csv                       print a class per line
  sensor | mortonnet -o json | jq .label      answer each record as soon as it is read
  gunzip -c t10k-images-idx3-ubyte.gz | mortonnet --expect t10k-labels-idx1-ubyte
  mortonnet -d opencl --selftest && mortonnet -d opencl --profile < vectors.csv > classes.txt

Device NAME is any part of a device's name. A list such as host,0 shares the records.
Results go to stdout, everything else to stderr.
Exit codes: 0 success, 1 input, device or I/O error or a failed check, 2 wrong command line.
SIGINT and SIGTERM: answer the records that were read, then exit. SIGUSR1: print a profile so far.
MORTONNET_OPENCL names the OpenCL library to load.
MORTONNET_CACHE names the cache folder; the default is CACHE_DIRECTORY, XDG_CACHE_HOME/mortonnet or
~/.cache/mortonnet.
";

/// A parsed command line.
#[derive(Debug)]
pub(crate) enum Command {
    Classify(Box<Classify>),
    SelfTest(SelfTest),
    ListDevices {
        /// True to also list all device properties that plans depend on.
        verbose: bool,
    },
    Info {
        request: Request,
        json: bool,
    },
    /// The command `--info=block`, which prints the baked data as text.
    #[cfg(feature = "lab")]
    Block,
    #[cfg(feature = "lab")]
    Bench(crate::lab::Bench),
    #[cfg(feature = "lab")]
    Tune(crate::lab::tune::Tune),
    /// Prints this page of help.
    Help(String),
    Version,
}

/// The commands outside the lab. An option with a command's name selects that command. Without such
/// an option, the first command of this list runs.
static COMMANDS: [CommandSpec; 5] = [
    CommandSpec::new("classifying records", classify::take),
    CommandSpec::new("--selftest", selftest::take),
    CommandSpec::new("--list-devices", take_list_devices),
    CommandSpec::new("--info=block", lab::take_block),
    CommandSpec::new("--info", take_info),
];

/// Returns the options of all commands, those of the lab included.
fn options() -> impl Iterator<Item = OptionSpec> {
    help::options(HELP).chain(lab::options())
}

/// Returns all commands, in the order in which error messages list them.
fn commands() -> Vec<&'static CommandSpec> {
    COMMANDS.iter().chain(&lab::COMMANDS).collect()
}

impl Command {
    /// Parses the command-line arguments, which do not include the program's name.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Error> {
        use lexopt::prelude::*;
        let mut parser = lexopt::Parser::from_args(args);
        let mut arguments = Arguments::default();
        let mut subcommand = None;
        while let Some(arg) = parser.next().map_err(usage)? {
            let spec = help::find(options(), &arg);
            match (arg, spec) {
                (Value(value), _) if subcommand.is_none() && arguments.values.is_empty() => {
                    subcommand = lab::subcommand(&value)?;
                    if subcommand.is_none() {
                        arguments.values.push(value);
                    } else if arguments.has("output") {
                        let word = value.to_string_lossy();
                        return Err(Error::usage(format!(
                            "{word} has an --output of its own: write it behind the word {word}"
                        )));
                    }
                }
                (Value(value), _) => arguments.values.push(value),
                // Help and version end the parsing, so mistakes in later arguments do not matter.
                (Short('h') | Long("help"), _) => {
                    let page = subcommand.map(lab::help).map(String::from);
                    let own = || format!("{SYNOPSIS}{}{HELP}", lab::SYNOPSIS);
                    return Ok(Command::Help(page.unwrap_or_else(own)));
                }
                (Short('V') | Long("version"), _) if subcommand.is_none() => {
                    return Ok(Command::Version);
                }
                (_, Some(spec)) => {
                    let value = spec.value(&mut parser).map_err(usage)?;
                    arguments.add(spec.name(), value);
                }
                (Long(name), None) => {
                    return Err(arguments::unknown(name, options().map(|o| o.name())));
                }
                (arg, None) => return Err(usage(arg.unexpected())),
            }
        }
        arguments.repeated().iter().for_each(|note| say(note));
        let command = match subcommand {
            Some(subcommand) => lab::command(subcommand, &arguments),
            None => selected(&arguments),
        };
        arguments.command(command, &commands())
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
            Command::SelfTest(test) => {
                test.timeout.into_iter().for_each(watchdog::set_limit);
                watched("; --timeout allows more", &|| test.run())
            }
            Command::ListDevices { verbose } => watched("", &|| list_devices(verbose)),
            Command::Info {
                request,
                json: false,
            } => watched("", &|| {
                info::page(&request).and_then(|page| print(&escape::lines(&page)))
            }),
            Command::Info {
                request,
                json: true,
            } => watched("", &|| info::json(&request).and_then(|page| print(&page))),
        }
    }
}

/// Returns the command whose name is the last such option on the command line. Without one it is
/// the command that classifies records.
fn selected(arguments: &Arguments) -> &'static CommandSpec {
    let named = arguments.options.iter().rev().find_map(|given| {
        let whole = format!("--{}={}", given.name, given.value.to_string_lossy());
        COMMANDS.iter().find(|command| {
            command.name == whole || command.name.strip_prefix("--") == Some(given.name)
        })
    });
    named.unwrap_or(&COMMANDS[0])
}

/// Runs a command that calls drivers but answers no records. If a driver hangs, no results need
/// saving. The program then ends with an error, to which `advice` is appended.
fn watched(advice: &'static str, work: &dyn Fn() -> Result<(), Error>) -> Result<(), Error> {
    watch(move |ticks| {
        let (silence, work) = (watchdog::silence(ticks), watchdog::work());
        end(Err(Error::device(format!(
            "OpenCL: {silence} ({work}): a device or its driver hangs{advice}"
        ))))
    })?;
    watchdog::call(work)
}

/// Runs the program and returns its exit code.
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

/// Prints the error that ended the program, if it has a message. Returns the program's exit code.
fn end(result: Result<(), Error>) -> u8 {
    match (result, signal::stop()) {
        // The program kills itself with the signal that stopped it, so its exit status names the
        // signal. A shell then ends its loop, and systemd counts the exit as clean.
        (Ok(()), Some(stop)) => signal::die(stop),
        (Err(e), Some(stop)) if e.is_silent() => signal::die(stop),
        (Ok(()), None) => 0,
        (Err(e), _) => {
            if !matches!(e.kind(), ErrorKind::ClosedOutput) {
                say(&e.to_string());
            }
            e.exit_code()
        }
    }
}

/// Starts the watchdog. If a call into a driver hangs, the watchdog calls `hung` and exits the
/// program with the code that `hung` returns.
fn watch(hung: impl Fn(u32) -> u8 + Send + Sync + 'static) -> Result<(), Error> {
    watchdog::watch(hung).map_err(|e| Error::caused("cannot start a thread", e))
}

fn take_list_devices(arguments: &mut Arguments) -> Result<Command, Error> {
    arguments.flag("list-devices");
    Ok(Command::ListDevices {
        verbose: arguments.flag("verbose"),
    })
}

fn take_info(arguments: &mut Arguments) -> Result<Command, Error> {
    arguments.parse("info", |value| match value {
        "page" => Ok(()),
        _ => Err(format!("expected nothing or block, found \"{value}\"")),
    })?;
    let json = arguments.parse("output", |kind| match kind {
        "json" => Ok(true),
        _ => Err(format!("--info has a page, or json, found \"{kind}\"")),
    })?;
    Ok(Command::Info {
        request: request(arguments)?,
        json: json.unwrap_or(false),
    })
}

/// Takes the options that select device, plan and batch size, and returns them as a request.
fn request(arguments: &mut Arguments) -> Result<Request, Error> {
    let (device, compute_units) = arguments.device()?;
    Ok(Request {
        device,
        compute_units,
        plan: arguments.text("plan")?,
        batch: arguments.batch()?,
        max_memory: arguments.parse("max-memory", arguments::bytes)?,
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

/// Prints the OpenCL devices. With `all` it also prints all their properties that plans depend on.
///
/// # Errors
/// There is no device. The printed page says why.
pub(crate) fn list_devices(all: bool) -> Result<(), Error> {
    let (page, failed) = match cl::ClLibrary::open() {
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

/// Prints the warnings of start-up on stderr. With `verbose` it also prints the device, the reasons
/// for choosing it, and where the kernels come from.
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

/// Writes `text` to stdout.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    was_open(1).map_err(|e| Error::io("stdout", e))?;
    let written = watchdog::outside(|| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    });
    written.map_err(|e| match e.kind() {
        std::io::ErrorKind::BrokenPipe => ErrorKind::ClosedOutput.into(),
        _ => Error::io("stdout", e),
    })
}

#[cfg(all(test, feature = "lab"))]
mod tests;
