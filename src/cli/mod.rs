//! The command line: a contract that scripts rely on.

pub mod info;

use crate::engine::select::DeviceWish;
use crate::engine::sources::Sources;
use crate::error::Error;
use crate::ir::layout::Layout;
use crate::ir::network::Precision;
use crate::ir::plan::MOST_RECORDS;
use crate::lab::BenchOptions;
use crate::lab::cache::CacheShape;
use crate::lab::layout;
use crate::lab::render::OutputFormat;
use crate::lab::tune::TuneOptions;
pub use crate::observe::report::ProfileFormat;
use crate::stream::{ExpectedScores, Format, Output};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// `--help`.
pub const HELP: &str = "\
mortonnet [OPTIONS] [FILE]...       classify the records of the FILEs, or of stdin
mortonnet bench [NAME]...           check and time kernels and networks; bench --help
mortonnet tune                      find the fastest plan for this device, remember it; tune --help

  -f, --format FMT        csv | f32 | u8 | idx | npy   (magic bytes tell npy and idx; else csv)
  -o, --output KIND       class | label | scores | probs | top=K | json   a line per record
  -b, --batch N           most records per launch                         [the plan's]
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
      --profile[=FMT]     table | json | trace, optionally :FILE: timing, to stderr or FILE;
                          trace: the first 65536 spans, for ui.perfetto.dev
      --selftest          run the baked golden vectors on the device, exit 1 if one is wrong
  -v, --verbose           say on stderr what runs the network, and why
      --list-devices      the OpenCL devices, or why there are none; with -v all about them
      --info              what is baked, and what would run it
  -h, --help              this page
  -V, --version           the program's version, and what is baked

Examples:
  mortonnet vectors.csv                       a class per line
  sensor | mortonnet -o json | jq .label      answers each record as soon as it is read
  gunzip -c t10k-images-idx3-ubyte.gz | mortonnet --expect t10k-labels-idx1-ubyte
  mortonnet -d opencl --selftest && mortonnet -d opencl --profile < vectors.csv > classes.txt

stdout carries results only. Exit codes: 0 fine, 1 input, device or I/O error, 2 usage.
SIGINT and SIGTERM answer what was read, then end the program; SIGUSR1 prints the profile so far.
MORTONNET_OPENCL names the OpenCL library to load.
";

/// `bench --help`.
pub const BENCH_HELP: &str = "\
mortonnet bench [OPTIONS] [NAME]...     check kernels on a device, then time them

NAME is an operation (matmul, bias, sobel, ...), a kernel (matmul_morton_4_2), or network; without
names everything runs, in the tables of the documents that the kernels come from.

  -d, --device DEV        opencl | INDEX | part of a name (network: also host)     [the first GPU]
      --compute-units N   the OpenCL device with N compute units
      --sizes LIST        sizes of square products and images instead of the tables': 96,1000,1024
      --repeat N          timed launches of each case, after one that is reported apart     [10]
      --check             verify only
      --time-limit S      after the checks, skip what would not end within S seconds, and launches
                          above 1 s                                                        [180]
      --full              skip nothing
      --kernels DIR       kernel sources from a folder instead of the baked ones
  -o, --output FMT        table | md | csv | json                                       [table]
      --report FILE.html  also write a page with tables and plots
      --against FILE.json add ratios to somebody else's run (-o json)
      --cache-model       cache misses and pages of each product's accesses, by calculation, in the
                          caches of a Mali-T628, or with -d in those that the device tells of
      --cache SHAPE       line=64,l1_lines=256,l1_ways=4,l2_lines=2048,l2_ways=8,cores=4,page=4096
      --layout LAYOUT     draw a layout, for example C_4_2_C, with its index numbers; --sizes 8x8

bench network: the baked network or any shape, input resident on the device, arg-max left out
      --batch N           records                                                          [100]
      --plan NAME         baked | a plan of the library                    [the device class's]
      --shape SHAPE       784-2500-2000-10:relu with generated weights, or one of baseline,
                          partial-mnist, partial-cifar, full-mnist, full-cifar
      --weights W         f32 | f16: how weights are stored                             [as baked]
      --host              from f32 records on the host to classes on the host

Exit code 1 if a kernel computes something else than it should: it is named and not timed.
";

/// `tune --help`.
pub const TUNE_HELP: &str = "\
mortonnet tune [OPTIONS]       time what could run the baked network here, remember the fastest

Every admissible plan, kernel and work-group is checked, then timed, on the device and on the host.
The fastest is used from then on, on this device with this driver, unless --plan says otherwise. It
is remembered in the folder MORTONNET_CACHE, else CACHE_DIRECTORY, XDG_CACHE_HOME/mortonnet,
~/.cache/mortonnet.

  -d, --device DEV        auto | host | opencl | INDEX | part of a name            [the first GPU]
      --compute-units N   the OpenCL device with N compute units
  -b, --batch N           records in a batch                                        [each plan's]
      --time-limit S      seconds it may take                                                [20]
      --save FILE.json    also write the plan: MORTONNET_PLAN=FILE.json bakes it into a build
      --kernels DIR       kernel sources from a folder instead of the baked ones
  -o, --output FMT        table | md | csv | json                                       [table]
";

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Classify records.
    Classify,
    /// Run the golden vectors.
    SelfTest,
    /// List the OpenCL devices.
    ListDevices,
    /// Print what is baked.
    Info,
    /// Benchmarks.
    Bench,
    /// Print the help of the benchmarks.
    BenchHelp,
    /// Find the fastest variant.
    Tune,
    /// Print the help of `tune`.
    TuneHelp,
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// The command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to do.
    pub action: Action,
    /// Input files; none is stdin, as is `-`.
    pub files: Vec<PathBuf>,
    /// Input format, where it is not to be detected.
    pub format: Option<Format>,
    /// Output, where it is not the network's default.
    pub output: Option<Output>,
    /// Most records per launch.
    pub batch: Option<usize>,
    /// Device.
    pub device: DeviceWish,
    /// Compute units of the device.
    pub compute_units: Option<u32>,
    /// Plan.
    pub plan: Option<String>,
    /// File of expected classes.
    pub expect: Option<PathBuf>,
    /// Share of right classes below which the exit code is 1.
    pub min_accuracy: Option<f64>,
    /// Scores to compare with.
    pub expect_scores: Option<PathBuf>,
    /// How far they may be off.
    pub tolerance: Option<f64>,
    /// Mark bad records and go on.
    pub mark: bool,
    /// Timing: format, and file unless stderr.
    pub profile: Option<(ProfileFormat, Option<PathBuf>)>,
    /// Where kernel sources come from.
    pub sources: Sources,
    /// Say what runs.
    pub verbose: bool,
    /// What to measure.
    pub bench: Option<BenchOptions>,
    /// How to tune.
    pub tune: Option<TuneOptions>,
}

/// What is done, as far as it decides which options are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Classify,
    SelfTest,
    ListDevices,
    Info,
    Bench,
    BenchNames,
    BenchCheck,
    BenchNetwork,
    BenchCache,
    BenchLayout,
    Tune,
}

impl Command {
    /// What will be done; `None` prints a help page.
    fn of(o: &Options) -> Option<Command> {
        Some(match (o.action, &o.bench) {
            (Action::Classify, _) => Command::Classify,
            (Action::SelfTest, _) => Command::SelfTest,
            (Action::ListDevices, _) => Command::ListDevices,
            (Action::Info, _) => Command::Info,
            (Action::Tune, _) => Command::Tune,
            (Action::Bench, Some(b)) => match () {
                _ if b.layout.is_some() => Command::BenchLayout,
                _ if b.cache.is_some() => Command::BenchCache,
                _ if b.names.iter().any(|n| n == "network") => Command::BenchNetwork,
                _ if b.check => Command::BenchCheck,
                _ if b.names.is_empty() => Command::Bench,
                _ => Command::BenchNames,
            },
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Command::Classify => "classifying records",
            Command::SelfTest => "--selftest",
            Command::ListDevices => "--list-devices",
            Command::Info => "--info",
            Command::Bench => "bench",
            Command::BenchNames => "bench NAME",
            Command::BenchCheck => "bench --check",
            Command::BenchNetwork => "bench network",
            Command::BenchCache => "bench --cache-model",
            Command::BenchLayout => "bench --layout",
            Command::Tune => "tune",
        }
    }
}

/// Each option with the commands that use it; with every other one it is refused. The commands that have names like
/// options are their own; help and version win over everything.
const USED_BY: [(&str, Option<char>, &[Command]); 31] = {
    use Command::*;
    const OPENCL: &[Command] = &[Classify, SelfTest, Bench, BenchNames, BenchCheck, BenchNetwork, Tune];
    const DEVICE: &[Command] =
        &[Classify, SelfTest, Info, Bench, BenchNames, BenchCheck, BenchNetwork, BenchCache, Tune];
    const OUTPUT: &[Command] =
        &[Classify, Bench, BenchNames, BenchCheck, BenchNetwork, BenchCache, BenchLayout, Tune];
    [
        ("format", Some('f'), &[Classify]),
        ("output", Some('o'), OUTPUT),
        ("batch", Some('b'), &[Classify, SelfTest, Info, BenchNetwork, Tune]),
        ("device", Some('d'), DEVICE),
        ("compute-units", None, DEVICE),
        ("plan", None, &[Classify, SelfTest, Info, Bench, BenchNetwork]),
        ("kernels", None, OPENCL),
        ("expect", None, &[Classify]),
        ("min-accuracy", None, &[Classify]),
        ("expect-scores", None, &[Classify]),
        ("tolerance", None, &[Classify]),
        ("on-error", None, &[Classify]),
        ("profile", None, &[Classify]),
        ("verbose", Some('v'), &[Classify, SelfTest, ListDevices]),
        ("selftest", None, &[SelfTest]),
        ("list-devices", None, &[ListDevices]),
        ("info", None, &[Info]),
        ("sizes", None, &[Bench, BenchNames, BenchCache, BenchLayout]),
        ("repeat", None, &[Bench, BenchNames, BenchNetwork]),
        ("check", None, &[BenchCheck]),
        ("time-limit", None, &[Bench, BenchNames, Tune]),
        ("full", None, &[Bench, BenchNames]),
        ("report", None, &[Bench, BenchNames, BenchCheck, BenchCache, BenchLayout]),
        ("against", None, &[Bench, BenchNames, BenchCache]),
        ("cache-model", None, &[BenchCache]),
        ("cache", None, &[BenchCache]),
        ("layout", None, &[BenchLayout]),
        ("shape", None, &[BenchNetwork]),
        ("host", None, &[BenchNetwork]),
        ("weights", None, &[BenchNetwork]),
        ("save", None, &[Tune]),
    ]
};

/// The options of a command line, in order, by their long names.
#[derive(Default)]
struct Given(Vec<&'static str>);

impl Given {
    /// Takes note of an option.
    fn note(&mut self, arg: &lexopt::Arg<'_>) {
        let known = USED_BY.iter().find(|(long, short, _)| match arg {
            lexopt::Arg::Long(name) => name == long,
            lexopt::Arg::Short(letter) => Some(*letter) == *short,
            lexopt::Arg::Value(_) => false,
        });
        self.0.extend(known.map(|option| option.0));
    }

    fn has(&self, option: &str) -> bool {
        self.0.contains(&option)
    }

    /// Refuses what `command` would ignore.
    fn check(&self, command: Command) -> Result<(), Error> {
        let used = |name: &str| USED_BY.iter().any(|o| o.0 == name && o.2.contains(&command));
        self.0.iter().find(|name| !used(name)).map_or(Ok(()), |name| Err(unused(name, command.name())))
    }
}

/// `command` has no use for an option.
fn unused(option: &str, command: &str) -> Error {
    let users = USED_BY.iter().find(|o| o.0 == option).map_or(&[][..], |o| o.2);
    let users: Vec<&str> =
        users.iter().map(|c| c.name()).filter(|user| *user != format!("--{option}")).collect();
    Error::Usage(match users.is_empty() {
        true => format!("{command} does not go together with --{option}"),
        false => format!("{command} does not use --{option}, which is for {}", users.join(", ")),
    })
}

impl Options {
    /// Reads the arguments (without the program's name).
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Options, Error> {
        use lexopt::prelude::*;
        let mut o = Options {
            action: Action::Classify,
            files: Vec::new(),
            format: None,
            output: None,
            batch: None,
            device: DeviceWish::Auto,
            compute_units: None,
            plan: None,
            expect: None,
            expect_scores: None,
            tolerance: None,
            mark: false,
            min_accuracy: None,
            profile: None,
            sources: Sources::default(),
            verbose: false,
            bench: None,
            tune: None,
        };
        let mut parser = lexopt::Parser::from_args(args);
        let mut given = Given::default();
        while let Some(arg) = parser.next().map_err(usage)? {
            given.note(&arg);
            match arg {
                Short('f') | Long("format") => {
                    o.format = Some(Format::parse(&text(&mut parser)?).map_err(|e| named("--format", &e))?);
                }
                Short('o') | Long("output") => {
                    o.output = Some(Output::parse(&text(&mut parser)?).map_err(|e| named("--output", &e))?);
                }
                Short('b') | Long("batch") => {
                    o.batch = Some(number(&text(&mut parser)?, "--batch", 1..=MOST_RECORDS as u64)? as usize);
                }
                Short('d') | Long("device") => o.device = device(&text(&mut parser)?)?,
                Long("compute-units") => {
                    let n = number(&text(&mut parser)?, "--compute-units", 1..=u64::from(u32::MAX))?;
                    o.compute_units = Some(n as u32);
                }
                Long("plan") => o.plan = Some(text(&mut parser)?),
                Long("kernels") => o.sources.folder = Some(parser.value().map_err(usage)?.into()),
                Long("expect") => o.expect = Some(parser.value().map_err(usage)?.into()),
                Long("expect-scores") => o.expect_scores = Some(parser.value().map_err(usage)?.into()),
                Long("tolerance") => o.tolerance = Some(tolerance(&text(&mut parser)?)?),
                Long("on-error") => {
                    o.mark = match &*text(&mut parser)? {
                        "stop" => false,
                        "mark" => true,
                        other => {
                            let e = format!("expected stop or mark, found \"{other}\"");
                            return Err(named("--on-error", &e));
                        }
                    };
                }
                Long("min-accuracy") => o.min_accuracy = Some(share(&text(&mut parser)?)?),
                Long("profile") => {
                    let value = parser.optional_value().map(|v| v.string()).transpose().map_err(usage)?;
                    o.profile = Some(profile(value.as_deref().unwrap_or("table"))?);
                }
                Long("selftest") => o.action = Action::SelfTest,
                Short('v') | Long("verbose") => o.verbose = true,
                Long("list-devices") => o.action = Action::ListDevices,
                Long("info") => o.action = Action::Info,
                Short('h') | Long("help") => o.action = Action::Help,
                Short('V') | Long("version") => o.action = Action::Version,
                Value(name) if name == "bench" && o.files.is_empty() && o.bench.is_none() => {
                    before("bench", &given)?;
                    o.bench = bench(&mut parser, &o, &mut given)?;
                    o.action = if o.bench.is_some() { Action::Bench } else { Action::BenchHelp };
                }
                Value(name) if name == "tune" && o.files.is_empty() && o.tune.is_none() => {
                    before("tune", &given)?;
                    o.tune = tune(&mut parser, &o, &mut given)?;
                    o.action = if o.tune.is_some() { Action::Tune } else { Action::TuneHelp };
                }
                Value(file) => o.files.push(file.into()),
                other => return Err(unexpected(other, Command::of(&o).map_or("", Command::name))),
            }
            // Help and version win over whatever else the line has, mistakes behind them included.
            if matches!(o.action, Action::Help | Action::Version) {
                return Ok(o);
            }
        }
        let Some(command) = Command::of(&o) else { return Ok(o) };
        given.check(command)?;
        match command {
            Command::Classify => {}
            Command::BenchCache | Command::BenchLayout
                if o.bench.as_ref().is_some_and(|b| !b.names.is_empty()) =>
            {
                return Err(Error::Usage(format!("{} takes no NAME", command.name())));
            }
            _ if !o.files.is_empty() => {
                return Err(Error::Usage(format!("{} takes no FILE", command.name())));
            }
            _ => {}
        }
        if given.has("time-limit") && given.has("full") {
            return Err(Error::Usage("--full has no time limit: give it or --time-limit".into()));
        }
        let (device, units, sources) = match (&o.bench, &o.tune) {
            (Some(b), _) => (&b.device, b.compute_units, &b.sources),
            (_, Some(t)) => (&t.device, t.compute_units, &t.sources),
            _ => (&o.device, o.compute_units, &o.sources),
        };
        if *device == DeviceWish::Host {
            let useless = [(units.is_some(), "--compute-units"), (sources.folder.is_some(), "--kernels")];
            if let Some((_, option)) = useless.iter().find(|u| u.0) {
                return Err(Error::Usage(format!(
                    "{option} is for OpenCL devices, --device host is none: name one, for example -d opencl"
                )));
            }
        }
        if o.min_accuracy.is_some() && o.expect.is_none() {
            return Err(Error::Usage("--min-accuracy needs --expect FILE".into()));
        }
        if o.tolerance.is_some() && o.expect_scores.is_none() {
            return Err(Error::Usage("--tolerance needs --expect-scores FILE".into()));
        }
        Ok(o)
    }

    /// How far scores may be from expected ones, in units of the larger of 1 and the expected score.
    pub fn tolerance(&self) -> f64 {
        self.tolerance.unwrap_or(ExpectedScores::TOLERANCE)
    }
}

/// The arguments behind `bench`; `None` asks for its help.
fn bench(parser: &mut lexopt::Parser, o: &Options, given: &mut Given) -> Result<Option<BenchOptions>, Error> {
    use lexopt::prelude::*;
    let mut b = BenchOptions {
        names: Vec::new(),
        device: o.device.clone(),
        compute_units: o.compute_units,
        sizes: Vec::new(),
        repeat: 10,
        output: OutputFormat::Table,
        check: false,
        time_limit: Some(Duration::from_secs(180)),
        sources: o.sources.clone(),
        report: None,
        against: None,
        cache: None,
        layout: None,
        drawn: None,
        batch: o.batch,
        plan: o.plan.clone(),
        shape: None,
        host: false,
        weights: None,
    };
    while let Some(arg) = parser.next().map_err(usage)? {
        given.note(&arg);
        match arg {
            Short('d') | Long("device") => b.device = device(&text(parser)?)?,
            Long("compute-units") => {
                b.compute_units =
                    Some(number(&text(parser)?, "--compute-units", 1..=u64::from(u32::MAX))? as u32);
            }
            Long("sizes") => {
                let list = text(parser)?;
                let size = |s: &str| number(s.trim(), "--sizes", 1..=1 << 14).map(|n| n as usize);
                (b.sizes, b.drawn) = match list.split_once('x') {
                    Some((rows, cols)) => (Vec::new(), Some((size(rows)?, size(cols)?))),
                    None => (list.split(',').map(size).collect::<Result<_, _>>()?, None),
                };
            }
            Long("repeat") => b.repeat = number(&text(parser)?, "--repeat", 1..=10_000)? as usize,
            Long("check") => b.check = true,
            Long("time-limit") => {
                b.time_limit =
                    Some(Duration::from_secs(number(&text(parser)?, "--time-limit", 1..=1 << 20)?));
            }
            Long("full") => b.time_limit = None,
            Long("kernels") => b.sources.folder = Some(parser.value().map_err(usage)?.into()),
            Short('o') | Long("output") => {
                b.output = output_format(&text(parser)?)?;
            }
            Long("report") => b.report = Some(parser.value().map_err(usage)?.into()),
            Long("against") => b.against = Some(parser.value().map_err(usage)?.into()),
            Long("cache-model") => b.cache = Some(b.cache.take().unwrap_or_default()),
            Long("cache") => {
                let described = text(parser)?;
                CacheShape::default().set(&described).map_err(|e| named("--cache", &e))?;
                b.cache = Some(described);
            }
            Long("layout") => {
                b.layout = Some(Layout::parse(&text(parser)?).map_err(|e| named("--layout", &e))?);
            }
            Short('b') | Long("batch") => {
                b.batch = Some(number(&text(parser)?, "--batch", 1..=MOST_RECORDS as u64)? as usize);
            }
            Long("plan") => b.plan = Some(text(parser)?),
            Long("shape") => b.shape = Some(text(parser)?),
            Long("host") => b.host = true,
            Long("weights") => {
                let name = text(parser)?;
                let found = Precision::parse(&name);
                let wrong = || named("--weights", &format!("expected f32 or f16, found \"{name}\""));
                b.weights = Some(found.ok_or_else(wrong)?);
            }
            Short('h') | Long("help") => return Ok(None),
            Value(name) => b.names.push(name.string().map_err(usage)?),
            other => return Err(unexpected(other, "bench")),
        }
    }
    one_device("bench", &b.device)?;
    match (&b.layout, b.drawn, &b.sizes[..]) {
        (Some(layout), drawn, sizes) => {
            let size = match (drawn, sizes) {
                (Some(size), _) => size,
                (None, []) => layout::usual(layout),
                (None, &[n]) => (n, n),
                _ => return Err(named("--sizes", "a layout is drawn in one size, for example 8x8")),
            };
            layout::check(layout, size).map_err(|e| named("--sizes", &e))?;
            b.drawn = Some(size);
        }
        (None, Some(_), _) => return Err(named("--sizes", "ROWSxCOLS is for --layout, products are square")),
        (None, None, _) => {}
    }
    Ok(Some(b))
}

/// The arguments behind `tune`; `None` asks for its help.
fn tune(parser: &mut lexopt::Parser, o: &Options, given: &mut Given) -> Result<Option<TuneOptions>, Error> {
    use lexopt::prelude::*;
    let mut t = TuneOptions {
        device: o.device.clone(),
        compute_units: o.compute_units,
        batch: o.batch,
        time_limit: Duration::from_secs(20),
        output: OutputFormat::Table,
        save: None,
        sources: o.sources.clone(),
    };
    while let Some(arg) = parser.next().map_err(usage)? {
        given.note(&arg);
        match arg {
            Short('d') | Long("device") => t.device = device(&text(parser)?)?,
            Long("compute-units") => {
                let n = number(&text(parser)?, "--compute-units", 1..=u64::from(u32::MAX))?;
                t.compute_units = Some(n as u32);
            }
            Short('b') | Long("batch") => {
                t.batch = Some(number(&text(parser)?, "--batch", 1..=MOST_RECORDS as u64)? as usize);
            }
            Long("time-limit") => {
                t.time_limit = Duration::from_secs(number(&text(parser)?, "--time-limit", 1..=1 << 20)?);
            }
            Long("save") => {
                let file: PathBuf = parser.value().map_err(usage)?.into();
                if file.extension().is_none_or(|e| e != "json") {
                    return Err(named(
                        "--save",
                        "expected a file name that ends in .json, as MORTONNET_PLAN takes it",
                    ));
                }
                t.save = Some(file);
            }
            Long("kernels") => t.sources.folder = Some(parser.value().map_err(usage)?.into()),
            Short('o') | Long("output") => {
                t.output = output_format(&text(parser)?)?;
            }
            Short('h') | Long("help") => return Ok(None),
            other => return Err(unexpected(other, "tune")),
        }
    }
    one_device("tune", &t.device)?;
    Ok(Some(t))
}

fn device(text: &str) -> Result<DeviceWish, Error> {
    DeviceWish::parse(text).map_err(|e| named("--device", &e))
}

fn one_device(action: &str, device: &DeviceWish) -> Result<(), Error> {
    match device.is_several() {
        true => Err(named("--device", &format!("{action} measures one device: name one"))),
        false => Ok(()),
    }
}

fn output_format(text: &str) -> Result<OutputFormat, Error> {
    OutputFormat::parse(text)
        .ok_or_else(|| named("--output", &format!("expected table, md, csv or json, found \"{text}\"")))
}

/// The word behind which options mean something else.
fn before(word: &str, given: &Given) -> Result<(), Error> {
    match given.has("output") {
        true => {
            Err(Error::Usage(format!("{word} has an --output of its own: write it behind the word {word}")))
        }
        false => Ok(()),
    }
}

/// An option that `command` does not have, and perhaps another one has.
fn unexpected(arg: lexopt::Arg<'_>, command: &str) -> Error {
    let mut found = Given::default();
    found.note(&arg);
    match found.0.first() {
        Some(option) => unused(option, command),
        None => usage(arg.unexpected()),
    }
}

fn usage(e: lexopt::Error) -> Error {
    Error::Usage(format!("{e}; see --help"))
}

fn named(flag: &str, e: &str) -> Error {
    Error::Usage(format!("{flag}: {e}"))
}

fn text(parser: &mut lexopt::Parser) -> Result<String, Error> {
    use lexopt::ValueExt;
    parser.value().and_then(|v| v.string()).map_err(usage)
}

fn number(text: &str, flag: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, Error> {
    text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
        Error::Usage(format!(
            "{flag}: expected a number from {} to {}, found \"{text}\"",
            range.start(),
            range.end()
        ))
    })
}

/// `0.97` or `97%`.
fn share(text: &str) -> Result<f64, Error> {
    let (digits, unit) = text.strip_suffix('%').map_or((text, 1.0), |t| (t, 100.0));
    digits.parse::<f64>().ok().map(|v| v / unit).filter(|v| (0.0..=1.0).contains(v)).ok_or_else(|| {
        Error::Usage(format!("--min-accuracy: expected 0 to 1 or 0% to 100%, found \"{text}\""))
    })
}

fn tolerance(text: &str) -> Result<f64, Error> {
    let tolerance = text.parse().ok().filter(|t: &f64| t.is_finite() && *t >= 0.0);
    tolerance.ok_or_else(|| named("--tolerance", &format!("expected a number from 0 on, found \"{text}\"")))
}

/// `table`, `json` or `trace`, each with `:FILE` or without.
fn profile(text: &str) -> Result<(ProfileFormat, Option<PathBuf>), Error> {
    let (format, file) = text.split_once(':').map_or((text, None), |(format, file)| (format, Some(file)));
    let format = match format {
        "table" => ProfileFormat::Table,
        "json" => ProfileFormat::Json,
        "trace" => ProfileFormat::Trace,
        other => {
            return Err(named("--profile", &format!("expected table, json or trace, found \"{other}\"")));
        }
    };
    match file {
        Some("") => Err(named("--profile", "a file name is missing after the colon")),
        file => Ok((format, file.map(PathBuf::from))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(OsString::from)).map_err(|e| {
            assert_eq!(e.exit_code(), 2);
            e.to_string()
        })
    }

    #[test]
    fn the_contract_is_read() {
        let o = parse("-f u8 -o top=3 -b 50 -d 1 --compute-units=4 --plan baked a.bin - --expect e").unwrap();
        assert_eq!(o.files, [PathBuf::from("a.bin"), PathBuf::from("-")]);
        assert_eq!((o.batch, o.device, o.compute_units), (Some(50), DeviceWish::Index(1), Some(4)));
        assert_eq!((o.plan.as_deref(), o.expect), (Some("baked"), Some("e".into())));
        assert_eq!(parse("-d Mali").unwrap().device, DeviceWish::Name("Mali".into()));
        let list =
            DeviceWish::List(vec![DeviceWish::Host, DeviceWish::Index(0), DeviceWish::Name("g52".into())]);
        assert_eq!(parse("-d host,0,g52").unwrap().device, list);
        assert_eq!(parse("--device=all").unwrap().device, DeviceWish::All);
        assert_eq!(parse("--profile").unwrap().profile, Some((ProfileFormat::Table, None)));
        assert_eq!(parse("--profile=json:x").unwrap().profile, Some((ProfileFormat::Json, Some("x".into()))));
        assert_eq!(
            parse("--profile=trace:x").unwrap().profile,
            Some((ProfileFormat::Trace, Some("x".into())))
        );
        assert_eq!(parse("--expect e --min-accuracy 97%").unwrap().min_accuracy, Some(0.97));
        let o = parse("--expect-scores s --on-error mark").unwrap();
        assert_eq!((o.tolerance(), o.mark), (1e-4, true));
        assert_eq!(parse("--expect-scores s --tolerance 1e-3").unwrap().tolerance(), 1e-3);
        assert!(!parse("").unwrap().mark && !parse("--on-error mark --on-error stop").unwrap().mark);
        assert_eq!(parse("--help --nonsense").unwrap().action, Action::Help);
    }

    #[test]
    fn mistakes_are_usage_errors_that_name_the_flag() {
        for (line, part) in [
            ("--nonsense", "--nonsense"),
            ("-b 0", "--batch: expected a number from 1 to 65536, found \"0\""),
            ("-b", "-b"),
            ("-f png", "--format"),
            ("-o klass", "--output"),
            ("-o top=0", "--output"),
            ("--profile=svg", "--profile: expected table, json or trace, found \"svg\""),
            ("--profile=json:", "a file name is missing"),
            ("--min-accuracy 0.5", "needs --expect"),
            ("--expect e --min-accuracy 2", "expected 0 to 1"),
            ("--tolerance 0.1", "--tolerance needs --expect-scores FILE"),
            ("--expect-scores e --tolerance -1", "--tolerance: expected a number from 0 on, found \"-1\""),
            ("--expect-scores e --tolerance nan", "--tolerance: expected a number from 0 on"),
            ("--on-error skip", "--on-error: expected stop or mark, found \"skip\""),
            ("--selftest=1", "--selftest"),
            ("--selftest file", "takes no FILE"),
            ("-d=", "--device: expected auto"),
            ("-d 0,", "--device: expected auto"),
            ("-d 0,all", "--device: auto and all stand alone"),
            ("-d 0,1,0", "--device: a device can take part once"),
            ("-d 0,1 bench", "--device: bench measures one device: name one"),
            ("bench -d all", "--device: bench measures one device: name one"),
            ("tune -d host,0", "--device: tune measures one device: name one"),
        ] {
            let e = parse(line).expect_err(line);
            assert!(e.contains(part), "{line}: {e}");
        }
    }

    /// Every option with every command: an `x` where it is used. Written from what the commands do, not from the table
    /// that the parser has.
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
            --output=scores        x . . .  . . . . . .  .
            --output=md            . . . .  x x x x x x  x
            --batch=7              x x x .  . . . x . .  x
            --device=0             x x x .  x x x x x .  x
            --compute-units=4      x x x .  x x x x x .  x
            --plan=nvidia          x x x .  x . . x . .  .
            --kernels=folder       x x . .  x x x x . .  x
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
            --save=plan.json       . . . .  . . . . . .  x
            --selftest             x x . .  . . . . . .  .
            --info                 x . x .  . . . . . .  .
            --list-devices         x . . x  . . . . . .  .
            --check                . . . .  x . x . . .  .
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
                // A name behind bench is a kernel's, before it that of a file called so.
                if bench && option == "file" {
                    continue;
                }
                // With these two, bench is another command.
                let name = match option {
                    "--check" if line == "bench matmul" => continue,
                    "--check" | "--cache-model" | "--cache=line=64" | "--layout=R" if line == "bench" => {
                        continue;
                    }
                    "--layout=R" if line != "tune" && bench => "bench --layout",
                    _ if line.starts_with("bench --layout") => name,
                    "--cache-model" | "--cache=line=64" if line != "tune" && bench => "bench --cache-model",
                    _ => name,
                };
                pairs += 1;
                let found = parse(&format!("{line} {option}"));
                let long = option.split('=').next().unwrap();
                match found {
                    Ok(_) => assert!(used, "{line} {option} is accepted"),
                    Err(e) if long == "file" => assert!(!used && e.contains(name), "{line} {option}: {e}"),
                    // Both --output options read their values before they are compared with the command.
                    Err(e) if long == "--output" => {
                        assert!(!used && e.contains(long), "{line} {option}: {e}")
                    }
                    Err(e) => {
                        assert!(!used && e.contains(long), "{line} {option}: {e}");
                        // While the names behind bench are not read, it is just bench.
                        assert!(
                            e.contains(name) || (bench && e.starts_with("bench ")),
                            "{line} {option}: {e}"
                        );
                    }
                }
                // Before bench and tune as well, where the options of classifying stand.
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
                    assert_eq!(parse(&format!("{option} {line}")).is_ok(), used, "{option} {line}");
                }
            }
        }
        assert!(pairs > 250, "{pairs}");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (line, part) in [
            ("-o json bench", "bench has an --output of its own"),
            ("-o scores tune", "tune has an --output of its own"),
            (
                "-v bench",
                "bench does not use --verbose, which is for classifying records, --selftest, --list-devices",
            ),
            ("--selftest --info", "--info does not go together with --selftest"),
            ("--selftest tune", "tune does not go together with --selftest"),
            ("--selftest --expect e", "--selftest does not use --expect, which is for classifying records"),
            (
                "--info --kernels d",
                "--info does not use --kernels, which is for classifying records, --selftest",
            ),
            ("--info x", "--info takes no FILE"),
            (
                "bench network --report p.html",
                "bench network does not use --report, which is for bench, bench NAME",
            ),
            ("bench network --against p.json", "bench network does not use --against"),
            ("bench matmul --cache-model", "bench --cache-model takes no NAME"),
            ("bench matmul --layout R", "bench --layout takes no NAME"),
            ("bench --layout Q", "--layout: layout \"Q\": expected the order R or C"),
            (
                "bench --layout C_4_2_C --sizes 10x4",
                "--sizes: layout C_4_2_C: chunks of 4 rows × 2 columns do not",
            ),
            ("bench --layout R --sizes 8,9", "--sizes: a layout is drawn in one size, for example 8x8"),
            ("bench --layout R --sizes 8x", "--sizes: expected a number from 1 to 16384, found \"\""),
            ("bench --layout R --sizes 300x2", "--sizes: 300 × 2: at most 256 rows and columns are drawn"),
            ("bench --sizes 8x8", "--sizes: ROWSxCOLS is for --layout"),
            ("bench --cache-model --layout R", "bench --layout does not use --cache-model"),
            ("bench --layout R -d 0", "bench --layout does not use --device"),
            ("bench --full --time-limit 3", "--full has no time limit"),
            ("bench -f u8", "bench does not use --format, which is for classifying records"),
            ("--repeat 3", "classifying records does not use --repeat, which is for bench, bench NAME"),
            ("-d host --kernels d", "--kernels is for OpenCL devices, --device host is none"),
            ("-d host --compute-units 4 x", "--compute-units is for OpenCL devices, --device host is none"),
            ("tune -d host --kernels d", "--kernels is for OpenCL devices"),
            ("bench network -d host --kernels d", "--kernels is for OpenCL devices"),
            ("bench network -d host --compute-units 1", "--compute-units is for OpenCL devices"),
        ] {
            let e = parse(line).expect_err(line);
            assert!(e.contains(part), "{line}: {e}");
        }
        assert!(parse("--list-devices -v").is_ok_and(|o| o.verbose));
        assert!(parse("-d 0 -b 7 --kernels d bench network").is_ok());
        assert!(parse("-v bench --help").is_ok_and(|o| o.action == Action::BenchHelp));
    }

    #[test]
    fn help_fits_a_screen() {
        assert!(HELP.lines().count() <= 40 && BENCH_HELP.lines().count() <= 40);
        assert!(
            HELP.lines().chain(BENCH_HELP.lines()).chain(TUNE_HELP.lines()).all(|l| l.chars().count() <= 100)
        );
    }
}
