//! `mortonnet tune`: times what could run the baked network here, host included, and remembers the fastest.
//!
//! A variant is a plan of the library, with one of its kernels for layers alone (of two: one launch for all layers, and
//! one for each), or with another work-group out of a kernel's `sweep`. Each is checked first (a random batch and the
//! golden vectors), then timed from records in plain order to classes; the fastest few once more, in turns. A record
//! holds for this model, kernel library, device and driver, as lines `key value` with a checksum in the cache folder;
//! later runs use it unless `--plan baked`.
//!
//! A record is a hint: it must name a variant that this file could have tried, of a plan that lowers for the network and
//! that the device admits. One that does not is ignored, and a line under `-v` says why.

use crate::baked::{self, NETWORK, library};
use crate::bench::network::{Rig, measured, quantile};
use crate::bench::render::{self, OutputFormat};
use crate::bench::table::{Cell, Plot, Report, Row, Section};
use crate::cache::{self, Folder};
use crate::cl::{self, Device, Library};
use crate::cli::MOST_RECORDS;
use crate::engine::select::{self, DeviceWish};
use crate::engine::{host, opencl};
use crate::error::Error;
use crate::escape;
use crate::model::{Model, baked_tensors};
use crate::planner;
use crate::selftest;
use crate::sources::Sources;
use crate::spec::library::{EngineKind, Groups, Kernel, Operation, PlanRecipe};
use crate::spec::plan::Plan;
use std::borrow::Cow;
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// `--device`
    pub device: DeviceWish,
    /// `--compute-units`
    pub compute_units: Option<u32>,
    /// `--batch`; else each plan's.
    pub batch: Option<usize>,
    /// `--time-limit`
    pub time_limit: Duration,
    /// How the table is printed.
    pub output: OutputFormat,
    /// `--save`: a plan file for MORTONNET_PLAN.
    pub save: Option<PathBuf>,
    /// Where kernel sources come from.
    pub sources: Sources,
}

/// The fastest variant of an engine, as the cache folder has it.
#[derive(Clone, Debug)]
pub struct Record {
    /// Where it stands, for messages.
    pub file: String,
    /// The plan.
    pub recipe: PlanRecipe,
    /// Name and driver of the device; `host` and its CPU architecture for the host engine.
    pub device: (String, String),
    /// Microseconds of a full batch, from records to classes.
    pub median_us: f64,
}

impl Record {
    /// Microseconds for each record of a full batch.
    pub fn us_per_record(&self) -> f64 {
        self.median_us / self.recipe.batch as f64
    }
}

/// The name of the host among devices; those of OpenCL devices are longer.
const HOST: &str = "host";

/// What identifies a device: name and compute units, driver. `None` is the host.
pub fn identity(device: Option<&Device>) -> (String, String) {
    match device {
        Some(d) => (format!("{}, {} compute units", d.name, d.compute_units), d.driver.clone()),
        None => (HOST.into(), format!("{} threads, {}", select::threads(), std::env::consts::ARCH)),
    }
}

fn file_name((device, driver): &(String, String)) -> String {
    let model = &NETWORK.hash[..NETWORK.hash.len().min(16)];
    format!("tune-{model}-{:016x}", cache::hash(&[&library().hash, device, driver]))
}

/// The record for a device (`None`: the host), if there is one for this model, library and driver, whose plan can run
/// there in batches of `batch` (else its own). What is ignored is a line of `notes`.
pub fn record(device: Option<&Device>, batch: Option<usize>, notes: &mut Vec<String>) -> Option<Record> {
    let folder = folder(notes)?;
    let name = file_name(&identity(device));
    let found = read(&folder, &name).and_then(|record| {
        let Some(record) = record else { return Ok(None) };
        let plan = planner::plan(&NETWORK, &record.recipe, library(), batch).map_err(|e| e.join("; "))?;
        let admitted = device.map_or_else(|| host::admits(&plan), |d| opencl::admits(d, &plan));
        admitted.map(|()| Some(record)).map_err(|e| e.to_string())
    });
    unless_ignored(&folder, &name, found, notes)
}

/// The record of the fastest OpenCL device that was tuned for this model and library. What is ignored is a line of
/// `notes`.
pub fn fastest_device(notes: &mut Vec<String>) -> Option<Record> {
    let folder = folder(notes)?;
    let host = file_name(&identity(None));
    let names = folder.names(&host[..host.len() - HASH]);
    // Longer names are of files that are being written.
    let names = names.iter().filter(|name| name.len() == host.len() && **name != host);
    let records = names.filter_map(|name| unless_ignored(&folder, name, read(&folder, name), notes));
    records
        .filter(|r| r.recipe.engine == EngineKind::OpenCl)
        .min_by(|a, b| a.us_per_record().total_cmp(&b.us_per_record()))
}

/// The cache folder, if there is one that may be used.
fn folder(notes: &mut Vec<String>) -> Option<Folder> {
    let folder = Folder::named().ok()?;
    match folder.check() {
        Ok(()) => Some(folder),
        Err(why) => {
            note(notes, format!("tuning records: {why}"));
            None
        }
    }
}

fn unless_ignored(
    folder: &Folder,
    name: &str,
    found: Result<Option<Record>, String>,
    notes: &mut Vec<String>,
) -> Option<Record> {
    found.unwrap_or_else(|why| {
        note(notes, format!("tuning record {} is ignored: {why}", escape::path(&folder.at(name))));
        None
    })
}

/// Adds a line, once.
pub fn note(notes: &mut Vec<String>, line: String) {
    if !notes.contains(&line) {
        notes.push(line);
    }
}

/// How a record begins.
const FIRST_LINE: &str = "mortonnet tune 1\n";

/// Most bytes of a record: they have some hundreds.
const MOST_BYTES: u64 = 64 << 10;

/// Digits of the hash that a record's name ends with.
const HASH: usize = 16;

/// The record in a file; `None` where there is none. The error says why it is of no use.
fn read(folder: &Folder, name: &str) -> Result<Option<Record>, String> {
    let Some(text) = folder.text(name, MOST_BYTES)? else { return Ok(None) };
    let (recipe, device, median_us) = parse(&text, name)?;
    planner::plan(&NETWORK, &recipe, library(), None).map_err(|e| e.join("; "))?;
    Ok(Some(Record { file: escape::path(&folder.at(name)), recipe, device, median_us }))
}

/// Plan, device and time of a record, out of the file called `name`.
fn parse(text: &str, name: &str) -> Result<(PlanRecipe, (String, String), f64), String> {
    const OTHER: &str = "it is of another version of the program; run mortonnet tune again";
    if !text.starts_with(FIRST_LINE) {
        return Err(OTHER.into());
    }
    let parts = text.strip_suffix('\n').and_then(|t| t.rsplit_once("\nchecksum "));
    let (lines, _) = parts
        .filter(|(lines, sum)| *sum == format!("{:016x}", cache::hash(&[lines])))
        .filter(|(lines, _)| lines.split('\n').all(|line| escape::line(line) == line))
        .ok_or("it is damaged")?;
    let find = |key: &str| {
        lines.split('\n').find_map(|l| l.split_once(' ').filter(|(k, _)| *k == key)).map(|(_, value)| value)
    };
    let value = |key: &str| find(key).ok_or_else(|| format!("it has no {key}"));
    if value("program")? != env!("CARGO_PKG_VERSION") {
        return Err(OTHER.into());
    }
    if value("model")? != NETWORK.hash || value("library")? != library().hash {
        return Err("it is of another network or other kernels".into());
    }
    let device = (value("device")?.to_string(), value("driver")?.to_string());
    if file_name(&device) != name {
        return Err("it is of another device or driver".into());
    }
    let base = library().plan(value("plan")?)?;
    if (device.0 == HOST) != (base.engine == EngineKind::Host) {
        return Err(format!("plan {} is for the engine {}", base.name, base.engine));
    }
    let number = |key: &str| {
        let found = value(key)?;
        let wrong = || format!("{key}: expected a number from 1 to {MOST_RECORDS}, found {found}");
        found.parse().ok().filter(|n| (1..=MOST_RECORDS).contains(n)).ok_or_else(wrong)
    };
    let found = value("median-us")?;
    let median_us: f64 = found
        .parse()
        .ok()
        .filter(|us: &f64| us.is_finite() && *us > 0.0)
        .ok_or_else(|| format!("median-us: expected a number above 0, found {found}"))?;
    let kernels = kernels(base, value("kernels")?)?;
    let groups = groups(base, &kernels, lines)?;
    let same = *kernels == *base.kernels && groups == base.groups;
    let name = if same { base.name.clone() } else { tuned_name(&base.name).into() };
    let batch = number("batch")?;
    let recipe = PlanRecipe { name, batch, kernels: kernels.into(), groups, ..base.clone() };
    Ok((recipe, device, median_us))
}

/// The kernels of a record: those of the plan, or some of them, in its order.
fn kernels(base: &PlanRecipe, text: &str) -> Result<Vec<Cow<'static, str>>, String> {
    let index = |name: &str| library().kernel(name).map(|k| k.0);
    let mut of_plan = base.kernels.iter();
    text.split(' ')
        .map(|name| match of_plan.find(|k| index(k).is_some() && index(k) == index(name)) {
            Some(kernel) => Ok(kernel.clone()),
            None => Err(format!("{name} is no kernel of plan {}, or not in its order", base.name)),
        })
        .collect()
}

/// The work-groups of a record: of its kernels, once each, and one of those that tuning tries.
fn groups(base: &PlanRecipe, kernels: &[Cow<'static, str>], lines: &str) -> Result<Groups, String> {
    let mut groups: Vec<(Cow<'static, str>, (usize, usize))> = Vec::new();
    for line in lines.split('\n').filter_map(|l| l.strip_prefix("work-group ")) {
        let mut words = line.split(' ');
        let kernel = words.next().and_then(|name| kernels.iter().find(|k| **k == name));
        let kernel = kernel.and_then(|name| Some((name, library().kernel(name)?.1)));
        let sizes: Vec<usize> = words.map(str::parse).collect::<Result<_, _>>().unwrap_or_default();
        match (kernel, sizes.as_slice()) {
            (Some((name, kernel)), &[rows, cols])
                if groups.iter().all(|g| g.0 != *name)
                    && (kernel.restrictions.sweep.contains(&(rows, cols))
                        || base.group(kernel) == Some((rows, cols))) =>
            {
                groups.push((name.clone(), (rows, cols)));
            }
            _ => return Err(format!("work-group {line} is none that tuning tries for plan {}", base.name)),
        }
    }
    Ok(groups.into())
}

/// The name of a variant of a plan.
fn tuned_name(plan: &str) -> String {
    format!("{}-tuned", plan.strip_suffix("-tuned").unwrap_or(plan))
}

/// A variant with its times in microseconds.
struct Timed {
    variant: Variant,
    rig: Option<Rig>,
    times: Vec<f64>,
    /// Why it was not timed.
    trouble: Option<Trouble>,
}

/// Why a variant was not timed.
enum Trouble {
    /// The time was over.
    Late(u64),
    /// Its answers are wrong.
    Wrong(String),
    /// It did not start or did not run.
    Failed(Error),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Late(seconds) => write!(f, "not tried in the {seconds} s (--time-limit)"),
            Trouble::Wrong(m) => write!(f, "WRONG: {m}"),
            Trouble::Failed(e) => e.fmt(f),
        }
    }
}

impl Timed {
    fn per_record(&self) -> f64 {
        quantile(&self.times, 0.5) / self.variant.recipe.batch as f64
    }
}

#[derive(Clone)]
struct Variant {
    on_host: bool,
    label: String,
    /// The plan of the library that it is one of.
    plan: Cow<'static, str>,
    recipe: PlanRecipe,
}

/// Variants of one engine, the plan for the device first.
fn variants(device: Option<&Device>, batch: Option<usize>) -> Vec<Variant> {
    let engine = if device.is_some() { EngineKind::OpenCl } else { EngineKind::Host };
    let class = match device {
        Some(d) => opencl::class(d),
        None => library().host_class(std::env::consts::ARCH),
    };
    let admits = |plan: &Plan| device.is_none_or(|d| opencl::admits(d, plan).is_ok());
    variants_of(engine, class.map_or("", |c| &*c.plan), batch, &admits)
}

/// The variants of one engine that `admits` lets through, those of the plan called `plan` first.
fn variants_of(
    engine: EngineKind,
    plan: &str,
    batch: Option<usize>,
    admits: &dyn Fn(&Plan) -> bool,
) -> Vec<Variant> {
    let mut plans: Vec<&PlanRecipe> = library().plans.iter().filter(|p| p.engine == engine).collect();
    if let Some(first) = plans.iter().position(|p| p.name == plan) {
        plans[..=first].rotate_right(1);
    }
    let mut found: Vec<Variant> = Vec::new();
    let mut seen: Vec<Plan> = Vec::new();
    for plan in plans {
        let base = PlanRecipe { batch: batch.unwrap_or(plan.batch), ..plan.clone() };
        let kernels = |recipe: &PlanRecipe| -> Vec<&'static Kernel> {
            recipe.kernels.iter().filter_map(|k| library().kernel(k)).map(|k| k.1).collect()
        };
        let mut recipes = vec![(plan.name.to_string(), base.clone())];
        let chosen = |k: &&Kernel| matches!(k.operation, Operation::Affine | Operation::Layers);
        let products: Vec<&Kernel> = kernels(&base).into_iter().filter(chosen).collect();
        for one in products.iter().filter(|_| products.len() > 1) {
            let others = |k: &&Kernel| !chosen(k) || k.codename == one.codename;
            let kept: Vec<_> =
                kernels(&base).into_iter().filter(others).map(|k| k.codename.clone()).collect();
            let name = format!("{}: {} alone", plan.name, one.codename);
            let groups: Vec<_> = base.groups.iter().filter(|g| kept.contains(&g.0)).cloned().collect();
            recipes.push((name, PlanRecipe { kernels: kept.into(), groups: groups.into(), ..base.clone() }));
        }
        for (name, recipe) in recipes.clone() {
            for kernel in kernels(&recipe) {
                let groups = kernel.restrictions.sweep.iter().filter(|g| Some(**g) != recipe.group(kernel));
                recipes.extend(groups.map(|&group| {
                    let name = format!("{name}, {} in groups of {}×{}", kernel.codename, group.0, group.1);
                    let mut groups = recipe.groups.to_vec();
                    groups.retain(|g| g.0 != kernel.codename);
                    groups.push((kernel.codename.clone(), group));
                    (name, PlanRecipe { groups: groups.into(), ..recipe.clone() })
                }));
            }
        }
        for (label, mut recipe) in recipes {
            let Ok(lowered) = planner::plan(&NETWORK, &recipe, library(), None) else { continue };
            let same = |p: &Plan| (&p.steps, p.batch) == (&lowered.steps, lowered.batch);
            if seen.iter().any(same) || !admits(&lowered) {
                continue;
            }
            seen.push(lowered);
            if label != recipe.name {
                recipe.name = tuned_name(&recipe.name).into();
            }
            found.push(Variant {
                on_host: engine == EngineKind::Host,
                label,
                plan: plan.name.clone(),
                recipe,
            });
        }
    }
    found
}

/// How many of a device's variants are timed again in turns.
const FINALISTS: usize = 3;

/// Times, prints, remembers.
pub fn run(options: &TuneOptions, print: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
    let end = Instant::now() + options.time_limit;
    options.sources.check()?;
    let (device, without) = device(options)?;
    let mut all = variants(None, options.batch);
    all.extend(device.iter().flat_map(|d| variants(Some(d), options.batch)));
    if let (None, Some(folder), Some(why)) = (&device, &options.sources.folder, &without) {
        return Err(Error::Device(format!("--kernels {} cannot be tried. {why}", folder.display())));
    }
    let plans = all.iter().filter_map(|v| planner::plan(&NETWORK, &v.recipe, library(), None).ok());
    let kernels: Vec<&Kernel> = plans
        .flat_map(|p| {
            p.steps.iter().filter_map(|s| library().kernel(&s.kernel)).map(|k| k.1).collect::<Vec<_>>()
        })
        .collect();
    options.sources.check_for("tune", kernels)?;
    let weights = baked_tensors();
    let mut timed: Vec<Timed> = Vec::new();
    let progress = std::io::stderr().is_terminal();
    let count = all.len();
    for (n, variant) in all.into_iter().enumerate() {
        if progress {
            eprint!("\r{}/{count} {:<70}", n + 1, variant.label);
        }
        // The finalists need a third of the time.
        let left = end.saturating_duration_since(Instant::now());
        let mut t = Timed { variant, rig: None, times: Vec::new(), trouble: None };
        if n > 1 && left < options.time_limit / 3 {
            t.trouble = Some(Trouble::Late(options.time_limit.as_secs()));
        } else if let Err(e) = first_look(&mut t, device.as_ref(), &weights, &options.sources, left / 4) {
            let trouble = match e {
                Error::Check(m) => Trouble::Wrong(m),
                other => Trouble::Failed(other),
            };
            (t.rig, t.trouble) = (None, Some(trouble));
        }
        timed.push(t);
        keep_the_fastest(&mut timed);
    }
    if progress {
        eprint!("\r{:<80}\r", "");
    }
    finals(&mut timed, end)?;
    let mut notes = vec![format!(
        "Microseconds of a full batch, from f32 records on the host to classes; each variant checked first. At most {} s.",
        options.time_limit.as_secs()
    )];
    notes.extend(without);
    let mut saved = None;
    for on_host in [true, false] {
        let Some(best) = fastest(&timed, on_host) else { continue };
        let identity = identity(device.as_ref().filter(|_| !on_host));
        let times = (quantile(&best.times, 0.5), measured(&best.times).spread.unwrap_or_default());
        notes.push(match remember(&best.variant, &identity, times) {
            Ok(file) => format!("{}: {} from now on ({file})", identity.0, best.variant.label),
            Err(why) => format!("{}: {} is the fastest, but {why}", identity.0, best.variant.label),
        });
        let faster = saved.as_ref().is_none_or(|(b, _): &(&Timed, _)| best.per_record() < b.per_record());
        // What is asked for is saved: the named device's, under `auto` the fastest.
        if faster || (!on_host && options.device != DeviceWish::Auto) {
            saved = Some((best, identity));
        }
    }
    let Some((best, identity)) = saved else {
        return Err(Error::Device("no plan of the library could run this network here".into()));
    };
    if let Some(file) = &options.save {
        let text = plan_file(&best.variant.recipe, &identity, quantile(&best.times, 0.5))?;
        let name = escape::path(file);
        std::fs::write(file, text).map_err(|e| Error::io(&*name, e))?;
        notes.push(format!("{name}: MORTONNET_PLAN={name} bakes {}", best.variant.label));
    }
    let wrong = timed.iter().filter(|t| matches!(t.trouble, Some(Trouble::Wrong(_)))).count();
    print(&render::text(&table(&timed, device.as_ref(), notes), options.output))?;
    match wrong {
        0 => Ok(()),
        n => Err(Error::Check(format!("{n} variants give wrong answers here; they were not timed"))),
    }
}

/// The device to tune; without an OpenCL library `auto` tunes the host alone, and the note says why.
fn device(options: &TuneOptions) -> Result<(Option<Device>, Option<String>), Error> {
    if options.device == DeviceWish::Host {
        return Ok((None, None));
    }
    let found = Library::open().map_err(Error::from).and_then(|library| {
        let devices = cl::devices(library)?;
        select::choose(&devices, &options.device, options.compute_units, library)
    });
    match found {
        Ok(device) => Ok((Some(device), None)),
        Err(e) if options.device == DeviceWish::Auto && options.compute_units.is_none() => {
            Ok((None, Some(format!("The host alone: {e}"))))
        }
        Err(e) => Err(e),
    }
}

/// Starts a variant, checks it, and times a few batches.
fn first_look(
    t: &mut Timed,
    device: Option<&Device>,
    weights: &[Vec<f32>],
    sources: &Sources,
    most: Duration,
) -> Result<(), Error> {
    let device = device.filter(|_| !t.variant.on_host);
    let recipe = &t.variant.recipe;
    let start = Instant::now();
    let mut rig = Rig::new((&NETWORK, weights), device, recipe, recipe.batch, false, sources)?;
    let report = selftest::run(rig.engine.as_mut(), &NETWORK, &baked::golden())?;
    if !report.passed() {
        return Err(Error::Check(report.to_string()));
    }
    while t.times.len() < 3 || (t.times.len() < 20 && start.elapsed() < most) {
        t.times.extend(rig.host_to_host(1)?.0);
        if start.elapsed() > most {
            break;
        }
    }
    t.rig = Some(rig);
    Ok(())
}

/// Ends the engines of all but each side's fastest.
fn keep_the_fastest(timed: &mut [Timed]) {
    for on_host in [true, false] {
        let rates: Vec<f64> = {
            let running = timed.iter().filter(|t| t.variant.on_host == on_host && t.rig.is_some());
            let mut rates: Vec<f64> = running.map(Timed::per_record).collect();
            rates.sort_unstable_by(f64::total_cmp);
            rates
        };
        if let Some(&last) = rates.get(FINALISTS - 1) {
            let slower = |t: &&mut Timed| t.variant.on_host == on_host && t.per_record() > last;
            timed.iter_mut().filter(slower).for_each(|t| t.rig = None);
        }
    }
}

/// Times the finalists in turns until the end, or 200 batches each.
fn finals(timed: &mut [Timed], end: Instant) -> Result<(), Error> {
    timed.iter_mut().filter(|t| t.rig.is_some()).for_each(|t| t.times.clear());
    for _ in 0..200 {
        for t in timed.iter_mut() {
            if let Some(rig) = &mut t.rig {
                t.times.extend(rig.host_to_host(1)?.0);
            }
        }
        if Instant::now() >= end {
            break;
        }
    }
    Ok(())
}

fn fastest(timed: &[Timed], on_host: bool) -> Option<&Timed> {
    let running = timed.iter().filter(|t| t.rig.is_some() && t.variant.on_host == on_host);
    running.min_by(|a, b| a.per_record().total_cmp(&b.per_record()))
}

/// Writes the record; the error says why not. Gives the file's name, for messages.
fn remember(variant: &Variant, identity: &(String, String), times: (f64, f64)) -> Result<String, String> {
    let text = record_text(&variant.plan, &variant.recipe, identity, times);
    let folder = Folder::named()
        .map_err(|why| format!("there is no cache folder to remember it in (MORTONNET_CACHE): {why}"))?;
    let written = folder.write(&file_name(identity), text.as_bytes());
    written
        .map(|file| escape::path(&file))
        .map_err(|e| format!("it cannot be remembered in {}: {e}", folder.name()))
}

/// A record as [`parse`] reads it.
fn record_text(
    plan: &str,
    recipe: &PlanRecipe,
    identity: &(String, String),
    (median, spread): (f64, f64),
) -> String {
    let mut text = format!(
        "{FIRST_LINE}program {}\nmodel {}\nlibrary {}\ndevice {}\ndriver {}\nplan {plan}\nkernels {}\n",
        env!("CARGO_PKG_VERSION"),
        NETWORK.hash,
        library().hash,
        identity.0,
        identity.1,
        recipe.kernels.join(" ")
    );
    for (kernel, (rows, cols)) in recipe.groups.iter() {
        let _ = writeln!(text, "work-group {kernel} {rows} {cols}");
    }
    let _ = write!(text, "batch {}\nmedian-us {median:.2}\nspread-us {spread:.2}", recipe.batch);
    let sum = cache::hash(&[&text]);
    let _ = writeln!(text, "\nchecksum {sum:016x}");
    text
}

/// The plan as a file for MORTONNET_PLAN.
fn plan_file(recipe: &PlanRecipe, identity: &(String, String), median: f64) -> Result<String, Error> {
    let model = Model::baked(recipe, None).map_err(Error::Device)?;
    let name = tuned_name(&recipe.name);
    let text = |s: &str| {
        let mut quoted = String::new();
        render::json_string(&mut quoted, s);
        quoted
    };
    let kernels: Vec<String> = recipe.kernels.iter().map(|k| text(k)).collect();
    let groups: Vec<String> =
        recipe.groups.iter().map(|(k, (rows, cols))| format!("{}: [{rows}, {cols}]", text(k))).collect();
    let layouts: Vec<String> = model
        .plan
        .layouts()
        .map(|(node, role, layout)| {
            format!("{{\"node\": {}, \"role\": \"{role}\", \"layout\": \"{layout}\"}}", text(&node))
        })
        .collect();
    Ok(format!(
        "{{\n  \"format\": 1,\n  \"name\": {},\n  \"engine\": \"{}\",\n  \"batch\": {},\n  \"about\": {},\n  \
         \"kernels\": [{}],\n  \"workGroups\": {{{}}},\n  \"layouts\": [\n    {}\n  ],\n  \"library\": \"{}\",\n  \
         \"model\": \"{}\",\n  \"device\": {},\n  \"driver\": {},\n  \"medianUs\": {median:.2}\n}}\n",
        text(&name),
        recipe.engine,
        recipe.batch,
        text(&format!("Tuned for {} on {}.", NETWORK.name, identity.0)),
        kernels.join(", "),
        groups.join(", "),
        layouts.join(",\n    "),
        library().hash,
        NETWORK.hash,
        text(&identity.0),
        text(&identity.1),
    ))
}

fn table(timed: &[Timed], device: Option<&Device>, notes: Vec<String>) -> Report {
    let best = [true, false].into_iter().filter_map(|h| fastest(timed, h)).map(Timed::per_record);
    let best = best.fold(f64::INFINITY, f64::min);
    let rate = |t: &Timed| if t.times.is_empty() { f64::INFINITY } else { t.per_record() };
    let mut rates: Vec<f64> = timed.iter().map(rate).collect();
    rates.sort_unstable_by(f64::total_cmp);
    rates.dedup();
    let rows = rates
        .into_iter()
        .flat_map(|at| timed.iter().filter(move |t| rate(t) == at))
        .map(|t| {
            let side = if t.variant.on_host { "host" } else { "device" };
            let cells = match &t.trouble {
                Some(why) => {
                    vec![Cell::Text(side.into()), Cell::Skipped(why.to_string()), Cell::Empty, Cell::Empty]
                }
                None => vec![
                    Cell::Text(side.into()),
                    Cell::Measured(measured(&t.times)),
                    Cell::Text(format!("{:.0}", 1e6 / t.per_record())),
                    Cell::Text(format!("{:.2}", t.per_record() / best)),
                ],
            };
            Row { label: t.variant.label.clone(), cells }
        })
        .collect();
    let mut head = vec![("network".to_string(), format!("{}, {}", NETWORK.name, NETWORK.shape()))];
    for d in [device, None].into_iter().take(if device.is_some() { 2 } else { 1 }) {
        let (name, driver) = identity(d);
        head.push((if d.is_some() { "device" } else { "host" }.into(), format!("{name}: {driver}")));
    }
    let section = Section {
        id: "tune".into(),
        title: "Variants, the fastest first".into(),
        rows_are: "variant".into(),
        unit: "µs".into(),
        larger_is_better: false,
        columns: ["on", "batch", "records/s", "times the fastest"].map(String::from).to_vec(),
        rows,
        notes,
        plot: Plot::None,
    };
    Report { head, sections: vec![section] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, text and recipe of a record for a plan's engine.
    fn of(plan: &str, recipe: &PlanRecipe) -> (String, String) {
        let host = identity(None);
        let device = ("Mali-T628, 4 compute units".to_string(), "1.1".to_string());
        let identity = if recipe.engine == EngineKind::Host { host } else { device };
        (file_name(&identity), record_text(plan, recipe, &identity, (12.5, 1.0)))
    }

    fn read_back(plan: &str, recipe: &PlanRecipe) -> Result<PlanRecipe, String> {
        let (name, text) = of(plan, recipe);
        parse(&text, &name).map(|found| found.0)
    }

    #[test]
    fn what_tuning_writes_comes_back() {
        for plan in library().plans.iter() {
            assert_eq!(read_back(&plan.name, plan), Ok(plan.clone()));
            let batch = PlanRecipe { batch: 7, ..plan.clone() };
            assert_eq!(
                read_back(&plan.name, &batch),
                Ok(batch.clone()),
                "the name says nothing of the batch"
            );
        }
        for (engine, plan) in [(EngineKind::Host, "host"), (EngineKind::OpenCl, "mali-midgard")] {
            let all = variants_of(engine, plan, None, &|_| true);
            assert!(
                all[0].plan == plan && all.iter().any(|v| !v.recipe.groups.is_empty()) == (plan != "host")
            );
            for Variant { plan, recipe, label, .. } in all {
                assert_eq!(read_back(&plan, &recipe), Ok(recipe.clone()), "{label}");
            }
        }
    }

    /// A plan with the kernels of another is refused, and the host engine, should one reach it, refuses it as well.
    #[test]
    fn kernels_of_another_plan_are_refused() {
        let mut refused = 0;
        for plan in library().plans.iter() {
            for other in library().plans.iter().filter(|other| other.kernels != plan.kernels) {
                let mixed =
                    PlanRecipe { kernels: other.kernels.clone(), groups: Cow::Borrowed(&[]), ..plan.clone() };
                let part_of = other.kernels.iter().all(|k| plan.kernels.contains(k));
                let found = read_back(&plan.name, &mixed);
                assert_eq!(found.is_ok(), part_of, "{} {}: {found:?}", plan.name, other.name);
                let Ok(lowered) = planner::plan(&NETWORK, &mixed, library(), None) else { continue };
                assert_eq!(
                    host::admits(&lowered).is_ok(),
                    other.engine == EngineKind::Host,
                    "{}",
                    other.name
                );
                if plan.engine == EngineKind::Host {
                    let model = Model::baked(&mixed, None).unwrap();
                    let started = host::HostEngine::new(model, 1, false).map(drop);
                    assert!(started.unwrap_err().to_string().starts_with("host engine: "));
                    refused += 1;
                }
            }
        }
        assert!(refused >= 8, "{refused}");
    }

    #[test]
    fn every_changed_byte_is_seen() {
        let (name, text) = of("host", library().plan("host").unwrap());
        parse(&text, &name).unwrap();
        for i in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[i] ^= 1;
            if let Ok(text) = String::from_utf8(bytes) {
                assert!(parse(&text, &name).is_err(), "byte {i}");
            }
            assert!(parse(&text[..i], &name).is_err(), "{i} bytes");
        }
        assert!(parse(&text, "tune-0-0").unwrap_err().contains("of another device or driver"));
    }
}
