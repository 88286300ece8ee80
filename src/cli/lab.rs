//! The command line of the lab: the commands `bench` and `tune`.

use super::Command;
use super::arguments::{Arguments, CommandSpec, named, number, usage};
use super::help::{self, OptionSpec};
use crate::baked;
use crate::error::Error;
use crate::ir::layout::Layout;
use crate::ir::network::Precision;
use crate::lab::cache::CacheShape;
use crate::lab::layout::{self, Drawing};
use crate::lab::network::NetworkBench;
use crate::lab::render::ReportFormat;
use crate::lab::tune::Tune;
use crate::lab::{Bench, BenchTarget, CacheModel, KernelBench, Page};
use std::ffi::OsStr;
use std::time::Duration;

pub(super) const SYNOPSIS: &str = "\
mortonnet bench [NAME]...           check and time kernels and networks (bench --help)
mortonnet tune                      find and remember the fastest plan for a device (tune --help)
";

pub(super) const BENCH_HELP: &str = "\
mortonnet bench [OPTIONS] [NAME]...     check kernels on a device, then time them

NAME is an operation (matmul, bias, sobel, ...), a kernel (matmul_morton_4_2), a table of the
documents (thesis_6, thesis_7_1, thesis_10, arm_1_3, sdk, ...), or network. Named kernels get a
table of their own. Without a name, all tables of the documents are measured. A kernel that computes
a wrong result is named, is not timed, and makes the exit code 1. SIGINT and SIGTERM end the run
and print what is done by then. Except in JSON, each table is printed when it is finished.

Input:
      --sizes LIST        sizes of square products and images (96,1000,1024)  [each table's]
      --kernels DIR       compile the kernel sources in DIR instead of the baked ones
      --library FILE      add the kernels of FILE, a file like kernels/library.json

Device:
  -d, --device DEV        device; also host for network: opencl | INDEX | NAME  [the first GPU]
      --compute-units N   use the OpenCL device with N compute units

Time:
      --repeat N          timed launches of each case, after a first one that counts apart  [10]
      --time-limit S      leave out cases that would not end within S seconds  [180]
      --full              leave out no case, however long it takes

Output:
  -o, --output FMT        output format: table | md | csv | json  [table]
      --report FILE.html  also write a page with tables and plots
      --against FILE.json add ratios to another run, which -o json has written

Checking:
      --check             check the kernels and do not time them
      --inputs            with --check: launch nothing, print a hash of each check's inputs

Calculation without a launch:
      --cache-model       calculate the cache misses and pages of products [Mali-T628, or -d]
      --cache SHAPE       caches of the model, for example line=64,cores=4; see below
      --layout LAYOUT     draw a layout such as C_4_2_C with index numbers; --sizes 8x8

bench network (inputs stay on the device, arg-max is left out):
      --batch N           records per batch  [100]
      --plan NAME         plan to run: baked, or one that --info lists  [that of the device class]
      --shape SHAPE       network with generated weights; see below  [the baked network]
      --weights W         how weights are stored: f32 | f16 | i8  [as baked]
      --host              time from f32 records on the host to classes on the host
      --layers            time each step of the host engine, compare it with the cores' limits

A network SHAPE is like 784-2500-2000-10:relu, or one of baseline, partial-mnist, partial-cifar,
full-mnist, full-cifar, autoencoder, ds-cnn, resnet-8, mobilenet-v1-0.25, mobilenet-v1-1.0.
The cache SHAPE of a Mali-T628 is
line=64,l1_lines=256,l1_ways=4,l2_lines=2048,l2_ways=8,cores=4,page=4096.
";

pub(super) const TUNE_HELP: &str = "\
mortonnet tune [OPTIONS]       time what could run the baked network here, remember the fastest

Checks and times every admissible plan, kernel and work-group on the device and on the host. Later
runs on this device with this driver use the fastest one, unless --plan says otherwise. The lines
below the table say how sure the result is. If the times do not tell plans apart, the baked plan is
kept, or else the first of them. MORTONNET_CACHE names the folder that remembers the result; the
default is CACHE_DIRECTORY, XDG_CACHE_HOME/mortonnet or ~/.cache/mortonnet.

Device:
  -d, --device DEV        device: auto | host | opencl | INDEX | NAME  [the first GPU]
      --compute-units N   use the OpenCL device with N compute units
  -b, --batch N           records per batch  [each plan's]
      --kernels DIR       compile the kernel sources in DIR instead of the baked ones
      --time-limit S      stop after S seconds  [20]

Output:
  -o, --output FMT        output format: table | md | csv | json  [table]
      --save FILE.json    also write the plan; MORTONNET_PLAN=FILE.json bakes it into a build

Example:
  mortonnet tune -d 0 --save plan.json
";

/// Returns the options of `bench` and `tune`.
pub(super) fn options() -> impl Iterator<Item = OptionSpec> {
    help::options(BENCH_HELP).chain(help::options(TUNE_HELP))
}

#[derive(Clone, Copy)]
pub(super) enum Subcommand {
    Bench,
    Tune,
}

pub(super) static COMMANDS: [CommandSpec; 7] = [
    CommandSpec::new("bench", all_kernels),
    CommandSpec::new("bench NAME", named_kernels),
    CommandSpec::new("bench --check", check),
    CommandSpec::new("bench network", network),
    CommandSpec::new("bench --cache-model", cache_model),
    CommandSpec::new("bench --layout", drawing),
    CommandSpec::new("tune", tune),
];

/// Returns the subcommand that `value` names. `None` if the word is no subcommand, for example a
/// file.
pub(super) fn subcommand(value: &OsStr) -> Result<Option<Subcommand>, Error> {
    Ok(match value.to_str() {
        Some("bench") => Some(Subcommand::Bench),
        Some("tune") => Some(Subcommand::Tune),
        _ => None,
    })
}

pub(super) fn help(subcommand: Subcommand) -> &'static str {
    match subcommand {
        Subcommand::Bench => BENCH_HELP,
        Subcommand::Tune => TUNE_HELP,
    }
}

/// Returns the command that a subcommand and its arguments select.
pub(super) fn command(subcommand: Subcommand, arguments: &Arguments) -> &'static CommandSpec {
    let [all, names, check, network, cache, layout, tune] = &COMMANDS;
    match subcommand {
        Subcommand::Tune => tune,
        Subcommand::Bench if arguments.has("layout") => layout,
        Subcommand::Bench if arguments.has("cache-model") || arguments.has("cache") => cache,
        Subcommand::Bench if arguments.values.iter().any(|name| name == "network") => network,
        Subcommand::Bench if arguments.has("check") => check,
        Subcommand::Bench if arguments.values.is_empty() => all,
        Subcommand::Bench => names,
    }
}

fn all_kernels(arguments: &mut Arguments) -> Result<Command, Error> {
    let plan = arguments.text("plan")?;
    if plan.is_some() && arguments.has("library") {
        return Err(Error::usage(
            "--plan is for networks, which bench --library leaves out",
        ));
    }
    Ok(Command::Bench(Bench::Kernels(KernelBench {
        plan,
        ..timed(arguments)?
    })))
}

fn named_kernels(arguments: &mut Arguments) -> Result<Command, Error> {
    Ok(Command::Bench(Bench::Kernels(timed(arguments)?)))
}

fn timed(arguments: &mut Arguments) -> Result<KernelBench, Error> {
    let kernels = kernels(arguments)?;
    let sizes = square(arguments)?;
    let repeat = repeat(arguments)?;
    let (limit, full) = (time_limit(arguments)?, arguments.flag("full"));
    let time_limit = match (limit, full) {
        (Some(_), true) => {
            return Err(Error::usage(
                "--full has no time limit: give it or --time-limit",
            ));
        }
        (limit, false) => limit.or(kernels.time_limit),
        (None, true) => None,
    };
    let page = Page {
        against: arguments.path("against"),
        ..kernels.page
    };
    Ok(KernelBench {
        sizes,
        repeat,
        time_limit,
        page,
        ..kernels
    })
}

fn check(arguments: &mut Arguments) -> Result<Command, Error> {
    let check = arguments.flag("check");
    let inputs = arguments.flag("inputs");
    Ok(Command::Bench(Bench::Kernels(KernelBench {
        check,
        inputs,
        ..kernels(arguments)?
    })))
}

/// Takes the options that are common to all forms of `bench` for kernels.
fn kernels(arguments: &mut Arguments) -> Result<KernelBench, Error> {
    Ok(KernelBench {
        names: names(arguments)?,
        target: target(arguments, "bench")?,
        sources: arguments.sources(),
        library: arguments.path("library"),
        sizes: Vec::new(),
        repeat: REPEAT,
        check: false,
        inputs: false,
        time_limit: Some(Duration::from_secs(180)),
        plan: None,
        page: page(arguments)?,
    })
}

fn network(arguments: &mut Arguments) -> Result<Command, Error> {
    let network = NetworkBench {
        target: target(arguments, "bench")?,
        sources: arguments.sources(),
        repeat: repeat(arguments)?,
        output: output(arguments)?,
        batch: arguments.batch()?,
        plan: arguments.text("plan")?,
        shape: arguments.text("shape")?,
        weights: arguments.parse("weights", |name| {
            Precision::parse(name)
                .ok_or_else(|| format!("expected f32, f16 or i8, found \"{name}\""))
        })?,
        host: arguments.flag("host"),
        layers: arguments.flag("layers"),
    };
    match names(arguments)?.len() {
        0 | 1 => Ok(Command::Bench(Bench::Network(network))),
        _ => Err(Error::usage("bench network stands alone")),
    }
}

fn cache_model(arguments: &mut Arguments) -> Result<Command, Error> {
    arguments.flag("cache-model");
    let described = |text: &str| CacheShape::default().set(text).map(|()| text.to_string());
    Ok(Command::Bench(Bench::CacheModel(CacheModel {
        described: arguments.parse("cache", described)?.unwrap_or_default(),
        target: target(arguments, "bench")?,
        sizes: square(arguments)?,
        page: Page {
            against: arguments.path("against"),
            ..page(arguments)?
        },
    })))
}

fn drawing(arguments: &mut Arguments) -> Result<Command, Error> {
    let (sizes, page) = (sizes(arguments)?, page(arguments)?);
    let layout = arguments.parse("layout", Layout::parse)?;
    let layout = layout.ok_or_else(|| named("layout", "expected a layout, for example C_4_2_C"))?;
    let size = match sizes {
        Some(BenchSizes::Rectangle(rows, cols)) => (rows, cols),
        Some(BenchSizes::Squares(sizes)) => match sizes[..] {
            [n] => (n, n),
            _ => {
                return Err(named(
                    "sizes",
                    "a layout is drawn in one size, for example 8x8",
                ));
            }
        },
        None => layout::usual(&layout),
    };
    layout::check(&layout, size).map_err(|e| named("sizes", &e))?;
    Ok(Command::Bench(Bench::Layout(Drawing {
        layout,
        size,
        page,
    })))
}

fn tune(arguments: &mut Arguments) -> Result<Command, Error> {
    let tune = Tune {
        target: target(arguments, "tune")?,
        batch: arguments.batch()?,
        time_limit: time_limit(arguments)?.unwrap_or(Duration::from_secs(20)),
        output: output(arguments)?,
        save: arguments.path("save"),
        sources: arguments.sources(),
    };
    match &tune.save {
        Some(file) if file.extension().is_none_or(|e| e != "json") => Err(named(
            "save",
            "expected a file name that ends in .json, as MORTONNET_PLAN takes it",
        )),
        _ => Ok(Command::Tune(tune)),
    }
}

/// The number of timed launches or batches if `--repeat` is not given.
const REPEAT: usize = 10;

fn names(arguments: &mut Arguments) -> Result<Vec<String>, Error> {
    arguments
        .values()
        .into_iter()
        .map(|name| lexopt::ValueExt::string(name).map_err(usage))
        .collect()
}

/// Takes the device to measure. A list of devices is an error, because its devices would share the
/// records of one run.
fn target(arguments: &mut Arguments, action: &str) -> Result<BenchTarget, Error> {
    let (device, compute_units) = arguments.device()?;
    match device.is_several() {
        true => Err(named(
            "device",
            &format!("{action} measures one device: name one"),
        )),
        false => Ok(BenchTarget {
            device,
            compute_units,
        }),
    }
}

fn repeat(arguments: &mut Arguments) -> Result<usize, Error> {
    Ok(arguments
        .number("repeat", 1..=10_000)?
        .map_or(REPEAT, |n| n as usize))
}

fn time_limit(arguments: &mut Arguments) -> Result<Option<Duration>, Error> {
    Ok(arguments
        .number("time-limit", 1..=1 << 20)?
        .map(Duration::from_secs))
}

fn output(arguments: &mut Arguments) -> Result<ReportFormat, Error> {
    let read = |text: &str| {
        ReportFormat::parse(text)
            .ok_or_else(|| format!("expected table, md, csv or json, found \"{text}\""))
    };
    Ok(arguments
        .parse("output", read)?
        .unwrap_or(ReportFormat::Table))
}

fn page(arguments: &mut Arguments) -> Result<Page, Error> {
    Ok(Page {
        output: output(arguments)?,
        file: arguments.path("report"),
        against: None,
    })
}

/// The value of `--sizes`.
enum BenchSizes {
    /// A list of sizes of square matrices, such as `96,1000`.
    Squares(Vec<usize>),
    /// Rows and columns of one matrix, such as `8x4`.
    Rectangle(usize, usize),
}

fn sizes(arguments: &mut Arguments) -> Result<Option<BenchSizes>, Error> {
    let size = |s: &str| number(s.trim(), &(1..=1 << 14)).map(|n| n as usize);
    arguments.parse("sizes", |list| match list.split_once('x') {
        Some((rows, cols)) => Ok(BenchSizes::Rectangle(size(rows)?, size(cols)?)),
        None => list
            .split(',')
            .map(size)
            .collect::<Result<_, _>>()
            .map(BenchSizes::Squares),
    })
}

/// Takes `--sizes` for square products and images. The list is empty if the option is not given.
fn square(arguments: &mut Arguments) -> Result<Vec<usize>, Error> {
    match sizes(arguments)? {
        Some(BenchSizes::Rectangle(..)) => Err(named(
            "sizes",
            "ROWSxCOLS is for --layout, products are square",
        )),
        Some(BenchSizes::Squares(sizes)) => Ok(sizes),
        None => Ok(Vec::new()),
    }
}

pub(super) fn take_block(arguments: &mut Arguments) -> Result<Command, Error> {
    arguments.flag("info");
    Ok(Command::Block)
}

/// Returns the baked data as text, for `--info=block`.
pub(super) fn block() -> Result<String, Error> {
    crate::lab::block::text(baked::block()).map_err(|why| baked::damaged(&why))
}
