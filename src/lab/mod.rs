//! The commands `bench` and `tune`. `mortonnet bench` checks each kernel of the library on the
//! device at hand, then times it. Its report has the tables of the documents that the kernels come
//! from.

pub(crate) mod against;
pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod case;
pub(crate) mod host;
pub(crate) mod html;
pub(crate) mod json;
mod layers;
pub(crate) mod layout;
pub(crate) mod library;
pub(crate) mod live;
pub(crate) mod network;
pub(crate) mod reference;
pub(crate) mod render;
pub(crate) mod shapes;
mod summary;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod tune;

use crate::baked::library;
use crate::cl::{self, ClLibrary, Device};
use crate::engine::select::{self, DeviceWish};
use crate::engine::sources::Sources;
use crate::error::{Error, say};
use crate::escape;
use crate::registry::{Kernel, Operation};
use crate::sys::signal;
use case::{Lab, Trouble};
use layout::Drawing;
use live::{LiveReport, Progress, stopped};
use network::NetworkBench;
use render::ReportFormat;
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use table::{Cell, Report, Section};

/// One form of the command `mortonnet bench`.
#[derive(Debug)]
pub(crate) enum Bench {
    /// Checks kernels, then times them in the documents' tables.
    Kernels(KernelBench),
    Network(NetworkBench),
    CacheModel(CacheModel),
    Layout(Drawing),
}

/// The options that choose the device to measure.
#[derive(Clone, Debug)]
pub(crate) struct BenchTarget {
    pub(crate) device: DeviceWish,
    /// The number of compute units that the device must have, if given. Some boards have two GPUs
    /// of one name.
    pub(crate) compute_units: Option<u32>,
}

/// The options of a report: its format on stdout, the file to write, and the report to compare
/// with.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Format of the text on stdout.
    pub(crate) output: ReportFormat,
    /// The file that `--report` writes at the end of the run.
    pub(crate) file: Option<PathBuf>,
    /// The file of `--against`, with another device's report in JSON.
    pub(crate) against: Option<PathBuf>,
}

/// The options of `bench` for kernels, which are checked and then timed.
#[derive(Clone, Debug)]
pub(crate) struct KernelBench {
    /// The names of operations, tables and kernels on the command line. If there are none, all
    /// kernels of the `--library` file run. Without such a file, all kernels of the program run.
    pub(crate) names: Vec<String>,
    pub(crate) target: BenchTarget,
    /// The kernels' sources: the files in the folder of `--kernels`, else those in the program.
    pub(crate) sources: Sources,
    /// The file of `--library`, which has more kernels.
    pub(crate) library: Option<PathBuf>,
    /// Matrix sizes that replace those of the documents' tables.
    pub(crate) sizes: Vec<usize>,
    /// The number of timed launches of each case. One launch before them is reported apart.
    pub(crate) repeat: usize,
    /// True if the kernels are only checked and not timed.
    pub(crate) check: bool,
    /// True if the run only prints a hash of each check's inputs and launches nothing.
    pub(crate) inputs: bool,
    /// The time limit of the whole run. `None` with `--full`.
    pub(crate) time_limit: Option<Duration>,
    /// The name of the plan that runs the documents' networks. With `None` it is the plan of the
    /// device's class.
    pub(crate) plan: Option<String>,
    pub(crate) page: Page,
}

/// The options of `bench --cache-model`.
#[derive(Clone, Debug)]
pub(crate) struct CacheModel {
    /// The value of `--cache`, such as `line=64,cores=4`. Its numbers replace those of the modelled
    /// caches.
    pub(crate) described: String,
    /// Chooses the device whose caches are modelled, if the user asked for one.
    pub(crate) target: BenchTarget,
    /// The sizes of the modelled matrix products. If empty, [`tables::CACHE_SIZES`] is used.
    pub(crate) sizes: Vec<usize>,
    pub(crate) page: Page,
}

/// The longest launch that `bench` runs for its tables without `--full`, and that `tune` runs for a
/// variant. Drivers of small GPUs kill programs that block the screen for longer.
pub(crate) const LONGEST_LAUNCH: Duration = Duration::from_secs(1);

/// Returns the reason why a launch of `us` microseconds is skipped, or `None` if it may run.
pub(crate) fn too_long(us: f64) -> Option<String> {
    let seconds = us / 1e6;
    let long = seconds > LONGEST_LAUNCH.as_secs_f64();
    long.then(|| format!("a launch would take about {seconds:.1} s, more than 1 s"))
}

/// The deadlines of a benchmark's run. They are `None` for a run without limit.
pub(crate) struct Budget {
    end: Option<Instant>,
    /// The time at which the checks of kernels end. It is half of the limit, the rest is for
    /// tables.
    half: Option<Instant>,
}

impl Budget {
    /// Returns a budget whose time starts now. With `None` as the limit, the run is never too long.
    pub(crate) fn new(limit: Option<Duration>) -> Budget {
        let now = Instant::now();
        Budget {
            end: limit.map(|l| now + l),
            half: limit.map(|l| now + l / 2),
        }
    }

    /// Returns the reason to skip a case, or `None` to run it. A launch of the case is predicted to
    /// take `us` microseconds, and the whole case `all` seconds.
    pub(crate) fn refuses(&self, us: f64, all: f64) -> Option<String> {
        let left = self.left()?.as_secs_f64();
        if let Some(why) = too_long(us) {
            return Some(format!("{why} (--full runs it)"));
        }
        if left == 0.0 {
            return Some("the time is over (--time-limit, --full)".into());
        }
        (all > left).then(|| {
            format!(
                "would take about {all:.0} s of the {left:.0} s that are left (--time-limit, \
                --full)"
            )
        })
    }

    /// Returns the time that is left of the run, or `None` without a limit.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.end
            .map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Returns the longest time that a launch may take. `None` means no limit.
    pub(crate) fn longest(&self) -> Option<Duration> {
        self.end.map(|_| LONGEST_LAUNCH)
    }
}

/// A kernel that is not timed, or no longer timed, because its result was wrong or it failed.
#[derive(Debug)]
pub(crate) struct Unsound {
    pub(crate) kernel: String,
    /// [`Trouble::Wrong`], or the reason why the kernel could not be checked.
    pub(crate) trouble: Trouble,
}

impl Bench {
    /// Runs the command and hands its text to `print`. If kernels were wrong or failed, it returns
    /// an error at the end.
    pub(crate) fn run(
        &self,
        print: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Bench::Kernels(kernels) => kernels.run(print),
            Bench::Network(network) => network.run(print),
            Bench::CacheModel(model) => model.run(print),
            Bench::Layout(drawing) => drawing.run(print),
        }
    }
}

impl KernelBench {
    fn run(&self, print: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
        let own = match &self.library {
            Some(file) => library::install(file, &self.sources)?,
            None => Vec::new(),
        };
        let kernels = chosen(&self.names, &own)?;
        let named = self.names.join(" ");
        if let Some(file) = self
            .library
            .as_ref()
            .filter(|_| !kernels.iter().any(|k| own.contains(&k.codename)))
        {
            return Err(Error::usage(format!(
                "--library {}: bench {named} runs none of its kernels ({})",
                escape::path(file),
                own.join(", ")
            )));
        }
        let sized = |k: &&Kernel| {
            matches!(
                k.operation,
                Operation::Matmul | Operation::Affine | Operation::Sobel
            )
        };
        if !self.sizes.is_empty() && !kernels.iter().any(sized) {
            let what = "--sizes is for matmul, affine, sobel and their kernels";
            return Err(Error::usage(format!("bench {named}: {what}")));
        }
        self.sources.check()?;
        self.sources
            .check_for(&format!("bench {named}"), kernels.iter().copied())?;
        let mut live = LiveReport::new(&self.page, print)?;
        // The program's signal handlers are installed first, since drivers may install their own.
        signal::serve_stops();
        let device = self.target.device()?;
        let mut lab = Lab::new(&device, self.sources.clone())?;
        live.head(host::head(&device))?;
        if self.inputs {
            live.section(inputs_of_all(&mut lab, &kernels)?)?;
            return live.end(&device.name);
        }
        let budget = Budget::new(self.time_limit.filter(|_| !self.check));
        let Checks {
            section,
            checked,
            mut unsound,
        } = check_all(&mut lab, &kernels, &budget, live.progress);
        live.section(section)?;
        if !self.check && !stopped() {
            let sound: Vec<&Kernel> = kernels
                .into_iter()
                .take(checked)
                .filter(|k| !unsound.iter().any(|u| u.kernel == *k.codename))
                .collect();
            let wrong = tables::Tables::new(&mut lab, sound, self, budget, &mut live).run()?;
            unsound.extend(wrong);
            live.head(host::temperatures("after"))?;
        }
        if stopped() {
            let what = "a signal ended the run before everything was checked and timed";
            live.head(vec![("incomplete".into(), what.into())])?;
            say(&format!("incomplete: {what}"));
        }
        live.end(&device.name)?;
        if unsound.is_empty() {
            Ok(())
        } else {
            Err(Error::check(verdict(&unsound)))
        }
    }
}

impl CacheModel {
    fn run(&self, print: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
        let mut head = Vec::new();
        let mut shape = cache::CacheShape::default();
        if self.target.device != DeviceWish::Auto || self.target.compute_units.is_some() {
            let device = self.target.device()?;
            let told = cache::CacheShape::of(&device);
            let note = if told.is_none() {
                ", which tells no cache: the Mali-T628's"
            } else {
                ""
            };
            shape = told.unwrap_or_default();
            head.push((
                "line, L2 and cores of".to_string(),
                format!("{}{note}", device.name),
            ));
        }
        shape
            .set(&self.described)
            .and_then(|()| shape.check())
            .map_err(Error::usage)?;
        let s = &shape;
        let text = format!(
            "{} cores of {} work-items; L1 {} lines in {} ways each, L2 {} lines in {} ways, \
             lines of {} bytes, pages of {}",
            s.cores, s.threads, s.l1_lines, s.l1_ways, s.l2_lines, s.l2_ways, s.line, s.page
        );
        head.push(("cache model".to_string(), text));
        let sizes = if self.sizes.is_empty() {
            tables::CACHE_SIZES
        } else {
            &self.sizes
        };
        let sections = cache::report(s, sizes, cache::Sample::default());
        self.page
            .put(Report { head, sections }, "cache model", print)
    }
}

/// Returns the kernels that `names` ask for, in the library's order. Without names these are the
/// `own` kernels of `--library`, or without such a file all kernels.
fn chosen(names: &[String], own: &[Cow<'static, str>]) -> Result<Vec<&'static Kernel>, Error> {
    let device_kernels = || library().kernels.iter().filter(|k| k.source.is_some());
    for name in names {
        if !device_kernels().any(|k| is(k, name)) && tables::kernels_of(name).is_none() {
            let operations: Vec<&str> = Operation::ALL.iter().map(|o| o.name()).collect();
            return Err(Error::usage(format!(
                "bench {name}: expected network, an operation ({}), a table ({}) or a kernel of \
                 the library",
                operations.join(", "),
                tables::names().join(", ")
            )));
        }
    }
    let asked = |k: &&Kernel| match names {
        [] => own.is_empty() || own.contains(&k.codename),
        names => names.iter().any(|n| {
            is(k, n)
                || tables::kernels_of(n)
                    .is_some_and(|of| of.iter().any(|t| t.codename == k.codename))
        }),
    };
    Ok(device_kernels().filter(asked).collect())
}

/// Returns true if `name` is the kernel's operation, codename or alias.
fn is(kernel: &Kernel, name: &str) -> bool {
    kernel.operation.name() == name
        || kernel.codename == name
        || kernel.aliases.iter().any(|a| a == name)
}

impl BenchTarget {
    /// Returns the OpenCL device that the user asked for. `auto` and `opencl` choose the first GPU,
    /// or the first device if there is no GPU.
    fn device(&self) -> Result<Device, Error> {
        if self.device == DeviceWish::Host {
            return Err(Error::usage(
                "bench runs OpenCL kernels: --device host is for bench network",
            ));
        }
        let library = ClLibrary::open()?;
        let devices = cl::devices(library)?;
        select::choose(&devices, &self.device, self.compute_units, library)
    }
}

/// Returns a table with a hash for each kernel. The hash covers all data that the kernel's checks
/// would hand to the device. Nothing is launched.
fn inputs_of_all(lab: &mut Lab, kernels: &[&Kernel]) -> Result<Section, Error> {
    let mut section = Section::new("inputs", "Inputs of the checks", "kernel", "");
    section.columns.push("hash".into());
    section.note(
        "Sources without comments, options, arguments, ranges, expected scores; nothing was \
         launched.",
    );
    for kernel in kernels {
        let hash = lab
            .inputs(kernel, &groups(kernel))
            .map_err(|trouble| Error::device(format!("{}: {trouble}", kernel.codename)))?;
        section.row(&*kernel.codename, vec![Cell::Text(hash)]);
    }
    Ok(section)
}

/// The results of checking the chosen kernels.
struct Checks {
    section: Section,
    /// The number of kernels that were checked, from the start of the list. Checking ends when half
    /// of the run's time is over, or at a signal.
    checked: usize,
    unsound: Vec<Unsound>,
}

/// Checks every kernel in every work-group of its sweep, until half of the run's time is over.
fn check_all(lab: &mut Lab, kernels: &[&Kernel], budget: &Budget, progress: Progress) -> Checks {
    let mut section = Section::new("check", "Checked against float64", "kernel", "");
    section.columns = vec!["result".into(), "what it adds".into()];
    section.note(format!(
        "Sizes around every tile, {}, results poisoned with NaN; bound for products: \
         2·k·2⁻²⁴·(|α|·(|A|·|B|)) + 4 ulp per element.",
        match lab.simulated {
            true => "buffers of exactly their size",
            false => "canaries around every buffer",
        }
    ));
    let (mut checked, mut unsound) = (0, Vec::new());
    for (n, kernel) in kernels.iter().enumerate() {
        if stopped() {
            break;
        }
        let name = kernel.codename.to_string();
        if budget.half.is_some_and(|half| Instant::now() >= half) {
            let why = "neither checked nor timed: half of the time is over (--time-limit, --full)";
            section.row(
                name,
                vec![Cell::Skipped(why.into()), Cell::text(&*kernel.about)],
            );
            continue;
        }
        checked = n + 1;
        progress.show(&format!("checking {}/{} {name}", n + 1, kernels.len()));
        let cell = check_groups(lab, kernel).unwrap_or_else(|trouble| {
            // The table's cell shows only the first line. The error at the end of the run has the
            // whole text, which may include a compiler's log.
            let text = trouble.to_string();
            let first = text.lines().next().unwrap_or_default();
            let kernel = name.clone();
            unsound.push(Unsound { kernel, trouble });
            Cell::text(first)
        });
        let between = if kernel.document.is_empty() { "" } else { "; " };
        let about = format!("{}{between}{}", kernel.about, kernel.document);
        section.row(name, vec![cell, Cell::Text(about)]);
    }
    Checks {
        section,
        checked,
        unsound,
    }
}

/// Checks a kernel in every work-group of its sweep. Returns the cell with its largest error, or
/// the reason why the device refuses all of these work-groups.
fn check_groups(lab: &mut Lab, kernel: &Kernel) -> Result<Cell, Trouble> {
    let groups = groups(kernel);
    let (mut worst, mut trouble, mut refused) = (0.0f64, None::<Trouble>, Vec::new());
    for &group in &groups {
        match lab.check(kernel, group) {
            Ok(error) => worst = worst.max(error),
            Err(Trouble::Refused(why)) => refused.push(why),
            // A wrong result in one work-group is reported rather than a failure in another.
            Err(wrong @ Trouble::Wrong(_)) if !matches!(trouble, Some(Trouble::Wrong(_))) => {
                trouble = Some(wrong);
            }
            Err(other) => trouble = trouble.or(Some(other)),
        }
    }
    match trouble {
        Some(trouble) => Err(trouble),
        None if refused.len() == groups.len() => Ok(Cell::Skipped(refused.swap_remove(0))),
        None => Ok(Cell::Text(format!(
            "right, largest error {worst:.3} of the bound"
        ))),
    }
}

/// Returns the work-groups that a kernel is tried with: those of its sweep, else its own.
pub(crate) fn groups(kernel: &Kernel) -> Vec<case::WorkGroup> {
    let r = &kernel.restrictions;
    if r.sweep.is_empty() {
        vec![r.work_group]
    } else {
        r.sweep.iter().map(|&g| Some(g)).collect()
    }
}

impl Page {
    /// Prints the report, and writes the file of `--report` if one is given.
    fn put(
        &self,
        report: Report,
        subject: &str,
        print: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut live = LiveReport::new(self, print)?;
        live.head(report.head)?;
        report
            .sections
            .into_iter()
            .try_for_each(|section| live.section(section))?;
        live.end(subject)
    }
}

/// Returns the message about kernels whose check failed, in three groups: wrong results, kernels
/// that the driver refused, and other failures.
fn verdict(unsound: &[Unsound]) -> String {
    let group = |trouble: &Trouble| match trouble {
        Trouble::Wrong(_) => "computing something else",
        Trouble::Driver(_) => "refused by the driver",
        Trouble::Refused(_) | Trouble::Failed(_) | Trouble::Slow(_) => "failing before they ran",
    };
    let mut texts = Vec::new();
    for what in [
        "computing something else",
        "refused by the driver",
        "failing before they ran",
    ] {
        let list: Vec<String> = unsound
            .iter()
            .filter(|u| group(&u.trouble) == what)
            .map(|u| format!("\n{}: {}", u.kernel, u.trouble))
            .collect();
        if !list.is_empty() {
            let (count, list) = (list.len(), list.concat());
            texts.push(format!("kernels {what} here, not timed: {count}{list}"));
        }
    }
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::bind::fault::{self, Fault};

    /// When half of the run's time is over, the checks end. Kernels that were not checked are
    /// reported as skipped.
    #[test]
    fn a_kernel_that_was_not_checked_is_said() {
        let library = ClLibrary::open().expect("the tests need OpenCL");
        let devices = cl::devices(library).expect("platforms can be listed");
        let mut lab = Lab::new(&devices.devices[0], Sources::default()).unwrap();
        let kernels = chosen(&["bias".into()], &[]).unwrap();
        for (limit, expected) in [(Some(Duration::ZERO), 0), (None, kernels.len())] {
            let Checks {
                section,
                checked,
                unsound,
            } = check_all(&mut lab, &kernels, &Budget::new(limit), Progress::new());
            assert_eq!(
                (checked, section.rows.len(), unsound.len()),
                (expected, kernels.len(), 0)
            );
            let results = section.rows.iter().map(|row| &row.cells[0]);
            let skipped = results.filter(
                |cell| matches!(cell, Cell::Skipped(why) if why.contains("half of the time")),
            );
            assert_eq!(skipped.count(), kernels.len() - expected);
        }
    }

    /// The checks bind arguments and ranges with the code of the engines. So they find a mistake in
    /// that code.
    #[test]
    fn a_mistake_in_bind_is_found_by_the_check() {
        let library = ClLibrary::open().expect("the tests need OpenCL");
        let devices = cl::devices(library).expect("platforms can be listed");
        let device = devices
            .devices
            .first()
            .expect("the tests need an OpenCL device");
        let mut lab = Lab::new(device, Sources::default()).unwrap();
        for name in [
            "matmul_naive",
            "affine_packed_4x4",
            "repack_any",
            "convolution_any",
            "pool_packed",
        ] {
            let kernel = self::library().kernel(name).unwrap().1;
            let group = kernel.restrictions.work_group;
            for fault in [Fault::Size, Fault::Operands, Fault::Short] {
                let found = fault::with(fault, || lab.check(kernel, group));
                // The operands of convolutions differ in size. So binding itself may refuse an
                // operand that is too small.
                let found = found.expect_err(name);
                let seen = matches!(found, Trouble::Wrong(_)) || name.contains("convolution");
                assert!(seen, "{name}: {fault:?}: {found:?}");
            }
            let without = lab.check(kernel, group);
            assert!(without.is_ok(), "{name}: {without:?}");
        }
    }
}
