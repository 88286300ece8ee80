//! The command line: a contract that scripts rely on.

use crate::bench::BenchOptions;
use crate::bench::cache::CacheShape;
use crate::bench::render::OutputFormat;
use crate::engine::select::DeviceWish;
use crate::error::Error;
use crate::sources::Sources;
use crate::spec::network::Precision;
use crate::stream::{Format, Output};
use crate::tune::TuneOptions;
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
      --profile[=FMT]     table | json | trace, optionally :FILE: timing, to stderr or FILE;
                          trace: the first 65536 spans, for ui.perfetto.dev
      --selftest          run the baked golden vectors on the device, exit 1 if one is wrong
  -v, --verbose           say on stderr what runs the network, and why
      --list-devices      the OpenCL devices, or why there are none
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
      --cache-model       cache misses of each product's accesses, by calculation; no device needed
      --cache SHAPE       line=64,l1_lines=256,l1_ways=4,l2_lines=2048,l2_ways=8,cores=4

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

/// How `--profile` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// Chrome's trace events, for timelines.
    Trace,
}

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

/// Most records of a batch: sizes and offsets of every plan stay far inside 32 bits.
pub const MOST_RECORDS: usize = 1 << 16;

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
            min_accuracy: None,
            profile: None,
            sources: Sources::default(),
            verbose: false,
            bench: None,
            tune: None,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next().map_err(usage)? {
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
                    o.bench = bench(&mut parser, &o)?;
                    o.action = if o.bench.is_some() { Action::Bench } else { Action::BenchHelp };
                }
                Value(name) if name == "tune" && o.files.is_empty() && o.tune.is_none() => {
                    o.tune = tune(&mut parser, &o)?;
                    o.action = if o.tune.is_some() { Action::Tune } else { Action::TuneHelp };
                }
                Value(file) => o.files.push(file.into()),
                other => return Err(usage(other.unexpected())),
            }
            // Help and version win over whatever else the line has, mistakes behind them included.
            if matches!(o.action, Action::Help | Action::Version) {
                return Ok(o);
            }
        }
        if o.action == Action::SelfTest && !o.files.is_empty() {
            return Err(Error::Usage("--selftest runs the baked vectors, it takes no FILE".into()));
        }
        if o.min_accuracy.is_some() && o.expect.is_none() {
            return Err(Error::Usage("--min-accuracy needs --expect FILE".into()));
        }
        Ok(o)
    }
}

/// The arguments behind `bench`; `None` asks for its help.
fn bench(parser: &mut lexopt::Parser, o: &Options) -> Result<Option<BenchOptions>, Error> {
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
        batch: o.batch,
        plan: o.plan.clone(),
        shape: None,
        host: false,
        weights: None,
    };
    while let Some(arg) = parser.next().map_err(usage)? {
        match arg {
            Short('d') | Long("device") => b.device = device(&text(parser)?)?,
            Long("compute-units") => {
                b.compute_units =
                    Some(number(&text(parser)?, "--compute-units", 1..=u64::from(u32::MAX))? as u32);
            }
            Long("sizes") => {
                let list = text(parser)?;
                let sizes =
                    list.split(',').map(|s| number(s.trim(), "--sizes", 1..=1 << 14).map(|n| n as usize));
                b.sizes = sizes.collect::<Result<_, _>>()?;
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
                b.cache = Some(CacheShape::parse(&text(parser)?).map_err(|e| named("--cache", &e))?);
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
            other => return Err(usage(other.unexpected())),
        }
    }
    one_device("bench", &b.device)?;
    Ok(Some(b))
}

/// The arguments behind `tune`; `None` asks for its help.
fn tune(parser: &mut lexopt::Parser, o: &Options) -> Result<Option<TuneOptions>, Error> {
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
            other => return Err(usage(other.unexpected())),
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

    #[test]
    fn help_fits_a_screen() {
        assert!(HELP.lines().count() <= 40 && BENCH_HELP.lines().count() <= 40);
        assert!(
            HELP.lines().chain(BENCH_HELP.lines()).chain(TUNE_HELP.lines()).all(|l| l.chars().count() <= 100)
        );
    }
}
