//! Which engine, device and plan run the network: what was asked for, or the estimate of `auto`.

use super::Engine;
use super::host::HostEngine;
use super::opencl::{self, OpenClEngine, Wanted};
use crate::baked;
use crate::cl::{self, Device, DeviceKind, Devices, Library};
use crate::error::Error;
use crate::model::{Model, recipe};
use crate::profile::Phases;
use crate::sources::Sources;
use crate::spec::library::{DeviceClass, EngineKind, PlanRecipe};
use crate::spec::lower::lower;
use crate::spec::plan::Plan;
use crate::tune::{self, Record};
use std::fmt::Write;

/// What `--device` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceWish {
    /// The faster of host and GPU by the estimate.
    Auto,
    /// The host engine.
    Host,
    /// Any OpenCL device: the first GPU, else the first accelerator, else the first CPU.
    OpenCl,
    /// The OpenCL device with this index.
    Index(usize),
    /// The OpenCL device whose name contains this, ignoring case.
    Name(String),
}

impl DeviceWish {
    /// Reads the value of `--device`.
    pub fn parse(text: &str) -> DeviceWish {
        match text {
            "auto" => DeviceWish::Auto,
            "host" => DeviceWish::Host,
            "opencl" => DeviceWish::OpenCl,
            _ => text.parse().map_or_else(|_| DeviceWish::Name(text.to_string()), DeviceWish::Index),
        }
    }
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// `--device`
    pub device: DeviceWish,
    /// `--compute-units`
    pub compute_units: Option<u32>,
    /// `--plan`; `baked` is the baked one.
    pub plan: Option<String>,
    /// `--batch`
    pub batch: Option<usize>,
    /// What the host reads of a batch.
    pub wanted: Wanted,
    /// Whether steps are timed.
    pub timed: bool,
    /// Where kernel sources come from.
    pub sources: Sources,
}

/// A running engine and how it came about.
pub struct Running {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// The device in words.
    pub device: String,
    /// The plan.
    pub plan: Plan,
    /// Constants that were laid out again at start.
    pub laid_out_again: usize,
    /// Why this device and this plan, a line each.
    pub why: Vec<String>,
    /// A start-up failure that `auto` lived with.
    pub warning: Option<String>,
    /// Start-up times.
    pub phases: Phases,
}

/// A decision, before anything is created.
#[derive(Debug)]
pub struct Decision {
    /// The OpenCL device; `None` is the host.
    pub device: Option<Device>,
    /// The plan.
    pub recipe: PlanRecipe,
    /// Why, a line each.
    pub why: Vec<String>,
    /// A start-up failure that `auto` lived with.
    pub warning: Option<String>,
}

/// Decides and starts.
pub fn start(request: &Request) -> Result<Running, Error> {
    let mut phases = Phases::default();
    let decision = decide(request, &mut phases)?;
    match run(request, &decision, &mut phases) {
        Ok((engine, device, plan, laid_out_again)) => {
            let Decision { why, warning, .. } = decision;
            Ok(Running { engine, device, plan, laid_out_again, why, warning, phases })
        }
        // What fails only after the decision, under `auto`: the host serves.
        Err(e) if is_auto(request) && decision.device.is_some() => {
            let host = on_host(request, vec![format!("host: the OpenCL device failed at start: {e}")], None)?;
            let (engine, device, plan, laid_out_again) = run(request, &host, &mut phases)?;
            let warning = Some(format!("{e}; running on the host instead"));
            Ok(Running { engine, device, plan, laid_out_again, why: host.why, warning, phases })
        }
        Err(e) => Err(e),
    }
}

type Started = (Box<dyn Engine>, String, Plan, usize);

fn run(request: &Request, decision: &Decision, phases: &mut Phases) -> Result<Started, Error> {
    let model =
        phases.time("layout", || Model::baked(&decision.recipe, request.batch)).map_err(Error::Device)?;
    let (plan, again) = (model.plan.clone(), model.laid_out_again);
    match &decision.device {
        Some(device) => {
            let engine =
                OpenClEngine::new(device, &model, request.wanted, request.timed, &request.sources, phases)?;
            Ok((Box::new(engine), format!("opencl {}", line(device)), plan, again))
        }
        None => {
            let engine = phases.time("threads", || HostEngine::new(model, threads(), request.timed))?;
            let device = format!("host, {} threads, {}", engine.threads(), engine.instruction_set());
            Ok((Box::new(engine), device, plan, again))
        }
    }
}

/// Threads of the host engine: the cores this process may use.
pub fn threads() -> usize {
    crate::sys::io::cores()
}

/// Nobody asked for a device or for a plan that only one engine runs.
fn is_auto(request: &Request) -> bool {
    request.device == DeviceWish::Auto && request.compute_units.is_none() && wished_engine(request).is_none()
}

/// The engine of `--plan`, if that decides it.
fn wished_engine(request: &Request) -> Option<EngineKind> {
    match request.plan.as_deref()? {
        "baked" => Some(baked::PLAN.engine),
        "tuned" => None,
        name => baked::library().plan(name).ok().map(|r| r.engine),
    }
}

/// Decides what runs the network. Loads OpenCL only where an OpenCL device can be the answer.
pub fn decide(request: &Request, phases: &mut Phases) -> Result<Decision, Error> {
    if let Some(name) = request.plan.as_deref().filter(|n| !matches!(*n, "baked" | "tuned")) {
        baked::library().plan(name).map_err(|e| Error::Usage(format!("--plan: {e}")))?;
    }
    if is_auto(request) {
        return auto(request, phases);
    }
    let host = request.device == DeviceWish::Host
        || (request.device == DeviceWish::Auto
            && request.compute_units.is_none()
            && wished_engine(request) == Some(EngineKind::Host));
    if host {
        if request.compute_units.is_some() {
            return Err(Error::Usage(
                "--compute-units chooses an OpenCL device, --device host has none".into(),
            ));
        }
        return on_host(request, vec!["host: asked for".into()], None);
    }
    let library = phases.time("library", Library::open)?;
    let devices = phases.time("devices", || cl::devices(library)).map_err(Error::from)?;
    let device = choose(&devices, &request.device, request.compute_units, library)?;
    let why = vec![format!("{}: asked for", line(&device))];
    on_device(request, device, why)
}

fn on_host(request: &Request, mut why: Vec<String>, warning: Option<String>) -> Result<Decision, Error> {
    let class = host_class();
    if let Some(record) = tuned(request, None)? {
        why.push(tuned_reason(&record));
        return Ok(Decision { device: None, recipe: record.recipe, why, warning });
    }
    let recipe = match request.plan.as_deref() {
        Some("baked") => recipe(&baked::PLAN.name, EngineKind::Host),
        Some(name) => recipe(name, EngineKind::Host),
        None if baked::PLAN.engine == EngineKind::Host => recipe(&baked::PLAN.name, EngineKind::Host),
        None => recipe(class.map_or("host", |c| &c.plan), EngineKind::Host),
    }
    .map_err(|e| Error::Usage(format!("--plan: {e}")))?;
    why.push(plan_reason(request, recipe, class));
    Ok(Decision { device: None, recipe: recipe.clone(), why, warning })
}

/// What tuning found for a device (`None`: the host), unless another plan is asked for.
fn tuned(request: &Request, device: Option<&Device>) -> Result<Option<Record>, Error> {
    match request.plan.as_deref() {
        None => Ok(tune::record(device)),
        Some("tuned") => tune::record(device).map(Some).ok_or_else(|| {
            let (name, driver) = tune::identity(device);
            Error::Usage(format!(
                "--plan tuned: nothing is remembered for {name} ({driver}) with this network and these kernels; run \
                 mortonnet tune first"
            ))
        }),
        Some(_) => Ok(None),
    }
}

fn tuned_reason(record: &Record) -> String {
    let Record { recipe, median_us, file, .. } = record;
    let batch = recipe.batch;
    format!("plan {}: tuned, {median_us:.0} µs for a batch of {batch} ({})", recipe.name, file.display())
}

fn on_device(request: &Request, device: Device, mut why: Vec<String>) -> Result<Decision, Error> {
    if let Some(record) = tuned(request, Some(&device))? {
        why.push(tuned_reason(&record));
        return Ok(Decision { device: Some(device), recipe: record.recipe, why, warning: None });
    }
    let class = opencl::class(&device);
    let recipe = match request.plan.as_deref() {
        Some("baked") => recipe(&baked::PLAN.name, EngineKind::OpenCl),
        Some(name) => recipe(name, EngineKind::OpenCl),
        None if baked::PLAN.engine == EngineKind::OpenCl => recipe(&baked::PLAN.name, EngineKind::OpenCl),
        None => recipe(class.map_or("", |c| &c.plan), EngineKind::OpenCl),
    }
    .map_err(|e| Error::Usage(format!("--plan: {e}")))?;
    why.push(plan_reason(request, recipe, class));
    Ok(Decision { device: Some(device), recipe: recipe.clone(), why, warning: None })
}

fn plan_reason(request: &Request, recipe: &PlanRecipe, class: Option<&DeviceClass>) -> String {
    let reason = match (&request.plan, class) {
        (Some(_), _) => "asked for".to_string(),
        (None, _) if recipe.name == baked::PLAN.name => "the baked one".to_string(),
        (None, Some(class)) => format!("the one for devices of the class {}", class.name),
        (None, None) => "the only one".to_string(),
    };
    format!("plan {}: {reason}", recipe.name)
}

fn host_class() -> Option<&'static DeviceClass> {
    baked::library().host_class(std::env::consts::ARCH)
}

/// Expected time of a full batch in microseconds, for as many records as the host takes at once.
fn estimate(class: &DeviceClass, rate: f64, records: usize) -> Option<f64> {
    let recipe = baked::library().plan(&class.plan).ok()?;
    let plan = lower(&baked::NETWORK, recipe, baked::library(), Some(records)).ok()?;
    let launches = if plan.engine == EngineKind::Host { 1 } else { plan.steps.len() };
    let flop = baked::NETWORK.flop() as f64 * records as f64;
    Some(launches as f64 * class.launch_us + flop / (class.gflops * rate) / 1e3)
}

/// Whether `auto` may choose it: CPUs are chosen by name only.
fn serves(d: &Device) -> bool {
    matches!(d.kind, DeviceKind::Gpu | DeviceKind::Accelerator) && d.available
}

/// The decision of tuning records, where both sides have one; else none.
fn by_records(request: &Request, phases: &mut Phases) -> Result<Option<Decision>, Error> {
    let (Some(host), Some(best)) = (tune::record(None), tune::fastest_device()) else { return Ok(None) };
    let rates = format!(
        "tuning measured {:.2} µs a record on the host, {:.2} on {}",
        host.us_per_record(),
        best.us_per_record(),
        best.device.0
    );
    if host.us_per_record() <= best.us_per_record() {
        let why = format!("host: {rates}; OpenCL was not loaded");
        return on_host(request, vec![why], None).map(Some);
    }
    let found = phases.time("library", Library::open).map_err(Error::from);
    let devices = found.and_then(|l| phases.time("devices", || cl::devices(l)).map_err(Error::from));
    let device = devices.ok().and_then(|all| {
        all.devices.into_iter().find(|d| tune::identity(Some(d)) == best.device && serves(d))
    });
    // Another driver, a device that is gone, or a CPU, which must be named: the estimate decides.
    device.map(|d| on_device(request, d.clone(), vec![format!("{}: {rates}", line(&d))])).transpose()
}

fn auto(request: &Request, phases: &mut Phases) -> Result<Decision, Error> {
    if let Some(decision) = by_records(request, phases)? {
        return Ok(decision);
    }
    let records = request.batch.unwrap_or(baked::PLAN.batch);
    let threads = threads();
    let host = host_class().and_then(|c| estimate(c, threads as f64, records)).unwrap_or(f64::MAX);
    let on_host_us = format!("{host:.0} µs on {threads} host threads");
    let classes = baked::library().devices.iter().filter(|c| !c.cpu);
    let gpu = classes.filter_map(|c| estimate(c, 1.0, records)).fold(f64::INFINITY, f64::min);
    let batch = format!("a batch of {records}");
    if host <= gpu {
        let why = format!(
            "host: {batch} should take {on_host_us}, {gpu:.0} µs or more on a GPU; OpenCL was not loaded"
        );
        return on_host(request, vec![why], None);
    }
    let found = phases
        .time("library", Library::open)
        .map_err(Error::from)
        .and_then(|library| phases.time("devices", || cl::devices(library)).map_err(Error::from));
    let devices = match found {
        Ok(devices) => devices.devices,
        Err(e) => {
            let why = vec![format!("host: {batch} might be faster on a GPU, but OpenCL cannot be used")];
            return on_host(
                request,
                why,
                Some(format!("{e}\nrunning on the host instead; --device host says so")),
            );
        }
    };
    let best = devices
        .into_iter()
        .filter(serves)
        .filter_map(|d| {
            let class = opencl::class(&d)?;
            Some((estimate(class, 1.0, records)?, d))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((us, device)) if us < host => {
            let why = format!("{}: {batch} should take {us:.0} µs on it, {on_host_us}", line(&device));
            on_device(request, device, vec![why])
        }
        Some((us, device)) => {
            let why = format!("host: {batch} should take {on_host_us}, {us:.0} µs on {}", line(&device));
            on_host(request, vec![why], None)
        }
        None => on_host(request, vec!["host: OpenCL offers no GPU".into()], None),
    }
}

/// The one device that was asked for; none or several are an error that lists what there is.
pub fn choose(
    devices: &Devices,
    wish: &DeviceWish,
    compute_units: Option<u32>,
    library: &Library,
) -> Result<Device, Error> {
    let units = |d: &&Device| compute_units.is_none_or(|n| n == d.compute_units);
    let matching: Vec<&Device> = match wish {
        DeviceWish::Index(i) => devices.devices.iter().filter(|d| d.index == *i).filter(units).collect(),
        DeviceWish::Name(part) => {
            let part = part.to_ascii_lowercase();
            devices
                .devices
                .iter()
                .filter(|d| d.name.to_ascii_lowercase().contains(&part))
                .filter(units)
                .collect()
        }
        _ => {
            let mut all: Vec<&Device> = devices.devices.iter().filter(units).collect();
            // The best kind only; with --compute-units all of that kind must be one.
            let rank = |d: &Device| match d.kind {
                DeviceKind::Gpu => 0,
                DeviceKind::Accelerator => 1,
                DeviceKind::Cpu => 2,
                _ => 3,
            };
            let best = all.iter().map(|d| rank(d)).min();
            all.retain(|d| Some(rank(d)) == best);
            if compute_units.is_none() {
                all.truncate(1);
            }
            all
        }
    };
    if let [one] = matching.as_slice() {
        return Ok((*one).clone());
    }
    let mut text = match wish {
        DeviceWish::Index(i) => format!("index {i}"),
        DeviceWish::Name(part) => format!("a name with \"{part}\""),
        _ => "any kind".to_string(),
    };
    if let Some(n) = compute_units {
        let _ = write!(text, " and {n} compute units");
    }
    let count = if matching.is_empty() { "no OpenCL device fits" } else { "several OpenCL devices fit" };
    Err(Error::Device(format!("{count} {text}; {} offers\n{}", library.path(), listing(devices))))
}

/// One device on one line: index, name, compute units.
pub fn line(d: &Device) -> String {
    format!("{}: {} ({}, {} compute units)", d.index, d.name, d.kind, d.compute_units)
}

/// All devices, a line each.
pub fn listing(devices: &Devices) -> String {
    let mut text = String::new();
    for d in &devices.devices {
        let _ = writeln!(text, "{}", line(d));
        let _ = writeln!(text, "   {}, {}, driver {}", d.vendor, d.version, d.driver);
    }
    for e in &devices.errors {
        let _ = writeln!(text, "   a platform failed: {e}");
    }
    if devices.devices.is_empty() {
        text.push_str("no devices\n");
    }
    text.trim_end().to_string()
}
