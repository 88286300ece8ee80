//! The commands of the lab, as forms of a line.

use super::Command;
use super::given::{Follows, Form, Given, Spec, named, number, usage};
use crate::baked;
use crate::error::Error;
use crate::ir::layout::Layout;
use crate::ir::network::Precision;
use crate::lab::cache::CacheShape;
use crate::lab::layout::{self, Drawing};
use crate::lab::network::NetworkBench;
use crate::lab::render::OutputFormat;
use crate::lab::tune::Tune;
use crate::lab::{Bench, CacheModel, KernelBench, Page, Target};
use std::ffi::OsStr;
use std::time::Duration;

/// Its lines of `--help`.
pub(super) const SYNOPSIS: &str = "\
mortonnet bench [NAME]...           check and time kernels and networks; bench --help
mortonnet tune                      find the fastest plan for this device, remember it; tune --help
";

const BENCH_HELP: &str = "\
mortonnet bench [OPTIONS] [NAME]...     check kernels on a device, then time them

NAME is an operation (matmul, bias, sobel, ...), a kernel (matmul_morton_4_2), a table of the
documents (thesis_6, thesis_7_1, thesis_10, arm_1_3, sdk, ...), or network; without names all tables
of the documents are measured. Kernels that are named stand in a table of their own. Each table
but JSON is printed when it is finished, sizes that were asked for first; SIGINT and SIGTERM end
with what is done by then.

  -d, --device DEV        opencl | INDEX | part of a name (network: also host)     [the first GPU]
      --compute-units N   the OpenCL device with N compute units
      --sizes LIST        sizes of square products and images instead of the tables': 96,1000,1024
      --repeat N          timed launches of each case, after one that is reported apart     [10]
      --check             verify only
      --inputs            with --check: launch nothing, print a hash of what each check launches
      --time-limit S      skip what would not end within S seconds, half of them for the checks, and
                          launches above 1 s                                               [180]
      --full              skip nothing: on a small board what the documents' own rows need
      --kernels DIR       kernel sources from a folder instead of the baked ones
      --library FILE      kernels of a file like kernels/library.json, which needs only \
      \"format\" and
                          \"sources\", besides the baked ones or, of the same name, in their place;
                          without NAME they are what runs
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
                          partial-mnist, partial-cifar, full-mnist, full-cifar, autoencoder,
                          ds-cnn, resnet-8, mobilenet-v1-0.25, mobilenet-v1-1.0
      --weights W         f32 | f16 | i8: how weights are stored                        [as baked]
      --host              from f32 records on the host to classes on the host

Exit code 1 if a kernel computes something else than it should: it is named and not timed.
";

const TUNE_HELP: &str = "\
mortonnet tune [OPTIONS]       time what could run the baked network here, remember the fastest

Every admissible plan, kernel and work-group is checked, then timed, on the device and on the host.
The fastest is used from then on, on this device with this driver, unless --plan says otherwise. How
sure that is stands below the table: where times do not tell it from the baked plan, that is kept,
else the first of those that they do not tell apart. It is remembered in the folder MORTONNET_CACHE,
else CACHE_DIRECTORY, XDG_CACHE_HOME/mortonnet, ~/.cache/mortonnet.

  -d, --device DEV        auto | host | opencl | INDEX | part of a name            [the first GPU]
      --compute-units N   the OpenCL device with N compute units
  -b, --batch N           records in a batch                                        [each plan's]
      --time-limit S      seconds it may take                                                [20]
      --save FILE.json    also write the plan: MORTONNET_PLAN=FILE.json bakes it into a build
      --kernels DIR       kernel sources from a folder instead of the baked ones
  -o, --output FMT        table | md | csv | json                                       [table]
";

/// The options that its commands alone have.
pub(super) const OPTIONS: &[Spec] = {
    use Follows::{Nothing, Value};
    &[
        ("library", None, Value),
        ("sizes", None, Value),
        ("repeat", None, Value),
        ("check", None, Nothing),
        ("inputs", None, Nothing),
        ("time-limit", None, Value),
        ("full", None, Nothing),
        ("report", None, Value),
        ("against", None, Value),
        ("cache-model", None, Nothing),
        ("cache", None, Value),
        ("layout", None, Value),
        ("shape", None, Value),
        ("host", None, Nothing),
        ("weights", None, Value),
        ("save", None, Value),
    ]
};

/// The words that ask for them.
#[derive(Clone, Copy)]
pub(super) enum Word {
    Bench,
    Tune,
}

/// The commands.
pub(super) static FORMS: [Form; 7] = [
    Form {
        name: "bench",
        take: all_kernels,
    },
    Form {
        name: "bench NAME",
        take: named_kernels,
    },
    Form {
        name: "bench --check",
        take: check,
    },
    Form {
        name: "bench network",
        take: network,
    },
    Form {
        name: "bench --cache-model",
        take: cache_model,
    },
    Form {
        name: "bench --layout",
        take: drawing,
    },
    Form {
        name: "tune",
        take: tune,
    },
];

/// The word that this is, if it is one.
pub(super) fn word(value: &OsStr) -> Result<Option<Word>, Error> {
    Ok(match value.to_str() {
        Some("bench") => Some(Word::Bench),
        Some("tune") => Some(Word::Tune),
        _ => None,
    })
}

/// The help of a word.
pub(super) fn help(word: Word) -> String {
    match word {
        Word::Bench => BENCH_HELP.into(),
        Word::Tune => TUNE_HELP.into(),
    }
}

/// What a word asks for together with the options.
pub(super) fn form(word: Word, given: &Given) -> &'static Form {
    let [all, names, check, network, cache, layout, tune] = &FORMS;
    match word {
        Word::Tune => tune,
        Word::Bench if given.has("layout") => layout,
        Word::Bench if given.has("cache-model") || given.has("cache") => cache,
        Word::Bench if given.values.iter().any(|name| name == "network") => network,
        Word::Bench if given.has("check") => check,
        Word::Bench if given.values.is_empty() => all,
        Word::Bench => names,
    }
}

fn all_kernels(given: &mut Given) -> Result<Command, Error> {
    let plan = given.text("plan")?;
    if plan.is_some() && given.has("library") {
        return Err(Error::usage(
            "--plan is for networks, which bench --library leaves out",
        ));
    }
    Ok(Command::Bench(Bench::Kernels(KernelBench {
        plan,
        ..timed(given)?
    })))
}

fn named_kernels(given: &mut Given) -> Result<Command, Error> {
    Ok(Command::Bench(Bench::Kernels(timed(given)?)))
}

fn timed(given: &mut Given) -> Result<KernelBench, Error> {
    let kernels = kernels(given)?;
    let sizes = square(given)?;
    let repeat = repeat(given)?;
    let (limit, full) = (time_limit(given)?, given.flag("full"));
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
        against: given.path("against"),
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

fn check(given: &mut Given) -> Result<Command, Error> {
    let check = given.flag("check");
    let inputs = given.flag("inputs");
    Ok(Command::Bench(Bench::Kernels(KernelBench {
        check,
        inputs,
        ..kernels(given)?
    })))
}

/// What all that run kernels have.
fn kernels(given: &mut Given) -> Result<KernelBench, Error> {
    Ok(KernelBench {
        names: names(given)?,
        target: target(given, "bench")?,
        sources: given.sources(),
        library: given.path("library"),
        sizes: Vec::new(),
        repeat: REPEAT,
        check: false,
        inputs: false,
        time_limit: Some(Duration::from_secs(180)),
        plan: None,
        page: page(given)?,
    })
}

fn network(given: &mut Given) -> Result<Command, Error> {
    let network = NetworkBench {
        target: target(given, "bench")?,
        sources: given.sources(),
        repeat: repeat(given)?,
        output: output(given)?,
        batch: given.batch()?,
        plan: given.text("plan")?,
        shape: given.text("shape")?,
        weights: given.parse("weights", |name| {
            Precision::parse(name)
                .ok_or_else(|| format!("expected f32, f16 or i8, found \"{name}\""))
        })?,
        host: given.flag("host"),
    };
    match names(given)?.len() {
        0 | 1 => Ok(Command::Bench(Bench::Network(network))),
        _ => Err(Error::usage("bench network stands alone")),
    }
}

fn cache_model(given: &mut Given) -> Result<Command, Error> {
    given.flag("cache-model");
    let described = |text: &str| CacheShape::default().set(text).map(|()| text.to_string());
    Ok(Command::Bench(Bench::CacheModel(CacheModel {
        described: given.parse("cache", described)?.unwrap_or_default(),
        target: target(given, "bench")?,
        sizes: square(given)?,
        page: Page {
            against: given.path("against"),
            ..page(given)?
        },
    })))
}

fn drawing(given: &mut Given) -> Result<Command, Error> {
    let (sizes, page) = (sizes(given)?, page(given)?);
    let layout = given.parse("layout", Layout::parse)?;
    let layout = layout.ok_or_else(|| named("layout", "expected a layout, for example C_4_2_C"))?;
    let size = match sizes {
        Some(Sizes::Rectangle(size)) => size,
        Some(Sizes::Squares(sizes)) => match sizes[..] {
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

fn tune(given: &mut Given) -> Result<Command, Error> {
    let tune = Tune {
        target: target(given, "tune")?,
        batch: given.batch()?,
        time_limit: time_limit(given)?.unwrap_or(Duration::from_secs(20)),
        output: output(given)?,
        save: given.path("save"),
        sources: given.sources(),
    };
    match &tune.save {
        Some(file) if file.extension().is_none_or(|e| e != "json") => Err(named(
            "save",
            "expected a file name that ends in .json, as MORTONNET_PLAN takes it",
        )),
        _ => Ok(Command::Tune(tune)),
    }
}

/// Timed launches where `--repeat` says nothing.
const REPEAT: usize = 10;

fn names(given: &mut Given) -> Result<Vec<String>, Error> {
    given
        .values()
        .into_iter()
        .map(|name| lexopt::ValueExt::string(name).map_err(usage))
        .collect()
}

/// One device: a list shares records among devices, which is not what is measured.
fn target(given: &mut Given, action: &str) -> Result<Target, Error> {
    let (device, compute_units) = given.device()?;
    match device.is_several() {
        true => Err(named(
            "device",
            &format!("{action} measures one device: name one"),
        )),
        false => Ok(Target {
            device,
            compute_units,
        }),
    }
}

fn repeat(given: &mut Given) -> Result<usize, Error> {
    Ok(given
        .number("repeat", 1..=10_000)?
        .map_or(REPEAT, |n| n as usize))
}

fn time_limit(given: &mut Given) -> Result<Option<Duration>, Error> {
    Ok(given
        .number("time-limit", 1..=1 << 20)?
        .map(Duration::from_secs))
}

fn output(given: &mut Given) -> Result<OutputFormat, Error> {
    let read = |text: &str| {
        OutputFormat::parse(text)
            .ok_or_else(|| format!("expected table, md, csv or json, found \"{text}\""))
    };
    Ok(given.parse("output", read)?.unwrap_or(OutputFormat::Table))
}

fn page(given: &mut Given) -> Result<Page, Error> {
    Ok(Page {
        output: output(given)?,
        file: given.path("report"),
        against: None,
    })
}

/// The value of `--sizes`.
enum Sizes {
    /// `96,1000`
    Squares(Vec<usize>),
    /// `8x4`
    Rectangle((usize, usize)),
}

fn sizes(given: &mut Given) -> Result<Option<Sizes>, Error> {
    let size = |s: &str| number(s.trim(), &(1..=1 << 14)).map(|n| n as usize);
    given.parse("sizes", |list| match list.split_once('x') {
        Some((rows, cols)) => Ok(Sizes::Rectangle((size(rows)?, size(cols)?))),
        None => list
            .split(',')
            .map(size)
            .collect::<Result<_, _>>()
            .map(Sizes::Squares),
    })
}

/// Sizes of products and images.
fn square(given: &mut Given) -> Result<Vec<usize>, Error> {
    match sizes(given)? {
        Some(Sizes::Rectangle(_)) => Err(named(
            "sizes",
            "ROWSxCOLS is for --layout, products are square",
        )),
        Some(Sizes::Squares(sizes)) => Ok(sizes),
        None => Ok(Vec::new()),
    }
}

pub(super) fn take_block(given: &mut Given) -> Result<Command, Error> {
    given.flag("info");
    Ok(Command::Block)
}

/// All that is baked, as text.
pub(super) fn block() -> Result<String, Error> {
    crate::lab::block::text(baked::block()).map_err(|why| baked::damaged(&why))
}
