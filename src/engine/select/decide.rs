//! Decides which engine, device and plan run the network.

use super::devices::{chosen, line, serves};
use super::memory::threads;
use super::wish::{DeviceWish, Request, is_auto, wished_engine};
use crate::baked;
use crate::cl::{self, ClLibrary, Device, DeviceKind, Devices};
use crate::engine::model::recipe;
use crate::engine::opencl;
use crate::engine::trial::{Trial, TrialKey};
use crate::engine::tuning::{self, TuningRecord};
use crate::error::Error;
use crate::observe::profile::Phases;
use crate::planner::fit;
use crate::registry::{DeviceClass, EngineKind, PlanRecipe};

/// The choice of device and plan, made before anything is created on the device.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    /// The OpenCL device, or `None` for the host.
    pub(crate) device: Option<Device>,
    pub(crate) recipe: PlanRecipe,
    /// The reasons for this device and plan, one line each.
    pub(crate) why: Vec<String>,
    /// A failure at start that made `auto` choose the host.
    pub(crate) warning: Option<String>,
    /// `Some` if this is the device's first start, which needs a trial against the host. Holds the
    /// key of the trial record, and the decision for the host, which runs if the host wins.
    pub(crate) first: Option<(TrialKey, Box<Decision>)>,
}

/// Decides what runs the network: one device, or several. Loads OpenCL only if an OpenCL device may
/// be chosen.
pub(crate) fn decide(request: &Request, phases: &mut Phases) -> Result<Vec<Decision>, Error> {
    if let Some(name) = request
        .plan
        .as_deref()
        .filter(|n| !matches!(*n, "baked" | "tuned"))
    {
        baked::library()
            .plan(name)
            .map_err(|e| Error::usage(format!("--plan: {e}")))?;
    }
    let decisions = several(request, phases)?;
    if let (Some(folder), true) = (
        &request.sources.folder,
        decisions.iter().all(|d| d.device.is_none()),
    ) {
        let advice = match wished_engine(request) {
            Some(EngineKind::Host) => "name a plan of the opencl engine",
            _ => "add --device opencl",
        };
        let reasons = decisions
            .into_iter()
            .flat_map(|d| d.why.into_iter().chain(d.warning));
        return Err(Error::usage(format!(
            "--kernels {}: the host runs this, and no OpenCL kernel: {advice}\n{}",
            folder.display(),
            reasons.collect::<Vec<_>>().join("\n")
        )));
    }
    Ok(decisions)
}

fn several(request: &Request, phases: &mut Phases) -> Result<Vec<Decision>, Error> {
    if is_auto(request) {
        return Ok(vec![auto(request, phases)?]);
    }
    let host = request.device == DeviceWish::Host
        || (request.device == DeviceWish::Auto
            && request.compute_units.is_none()
            && wished_engine(request) == Some(EngineKind::Host));
    if host {
        return Ok(vec![on_host(
            request,
            vec!["host: asked for".into()],
            None,
        )?]);
    }
    let library = phases.time("library", ClLibrary::open)?;
    let devices = phases
        .time("devices", || cl::devices(library))
        .map_err(Error::from)?;
    let mut decisions = Vec::new();
    for device in chosen(request, &devices, library)? {
        decisions.push(match device {
            None => on_host(request, vec!["host: asked for".into()], None)?,
            Some(device) => {
                let why = vec![format!("{}: asked for", line(&device))];
                on_device(request, device, why)?
            }
        });
    }
    Ok(decisions)
}

pub(super) fn on_host(
    request: &Request,
    mut why: Vec<String>,
    warning: Option<String>,
) -> Result<Decision, Error> {
    let class = host_class();
    if let Some(record) = tuned(request, None, &mut why)? {
        why.push(tuned_reason(&record));
        return Ok(Decision {
            device: None,
            recipe: record.recipe,
            why,
            warning,
            first: None,
        });
    }
    let recipe = match request.plan.as_deref() {
        Some("baked") => recipe(&baked::plan().name, EngineKind::Host),
        Some(name) => recipe(name, EngineKind::Host),
        None if baked::plan().engine == EngineKind::Host => {
            recipe(&baked::plan().name, EngineKind::Host)
        }
        None => recipe(class.map_or("host", |c| &c.plan), EngineKind::Host),
    }
    .map_err(|e| Error::usage(format!("--plan: {e}")))?;
    why.push(plan_reason(request, recipe, class));
    Ok(Decision {
        device: None,
        recipe: recipe.clone(),
        why,
        warning,
        first: None,
    })
}

fn on_device(request: &Request, device: Device, mut why: Vec<String>) -> Result<Decision, Error> {
    if let Some(record) = tuned(request, Some(&device), &mut why)? {
        why.push(tuned_reason(&record));
        return Ok(Decision {
            device: Some(device),
            recipe: record.recipe,
            why,
            warning: None,
            first: None,
        });
    }
    let class = opencl::class(&device);
    let recipe = match request.plan.as_deref() {
        Some("baked") => recipe(&baked::plan().name, EngineKind::OpenCl),
        Some(name) => recipe(name, EngineKind::OpenCl),
        None if baked::plan().engine == EngineKind::OpenCl => {
            recipe(&baked::plan().name, EngineKind::OpenCl)
        }
        None => recipe(class.map_or("", |c| &c.plan), EngineKind::OpenCl),
    }
    .map_err(|e| Error::usage(format!("--plan: {e}")))?;
    why.push(plan_reason(request, recipe, class));
    Ok(Decision {
        device: Some(device),
        recipe: recipe.clone(),
        why,
        warning: None,
        first: None,
    })
}

/// Returns the tuning record of a device (`None`: the host), unless the user asks for another plan.
/// Adds a line to `why` for each record that is ignored. Under `--plan tuned`, a missing or
/// unusable record is an error.
fn tuned(
    request: &Request,
    device: Option<&Device>,
    why: &mut Vec<String>,
) -> Result<Option<TuningRecord>, Error> {
    match request.plan.as_deref() {
        None => Ok(tuning::record(device, request.batch, why)),
        Some("tuned") => {
            let mut notes = Vec::new();
            tuning::record(device, request.batch, &mut notes)
                .map(Some)
                .ok_or_else(|| {
                    let (name, driver) = tuning::identity(device);
                    notes.insert(0, format!(
                    "--plan tuned: nothing is remembered for {name} ({driver}) with this network \
                     and these kernels; \
                     run mortonnet tune first"
                ));
                    Error::usage(notes.join("\n"))
                })
        }
        Some(_) => Ok(None),
    }
}

fn tuned_reason(record: &TuningRecord) -> String {
    let TuningRecord {
        recipe,
        median_us,
        file,
        ..
    } = record;
    let batch = recipe.batch;
    format!(
        "plan {}: tuned, {median_us:.0} µs for a batch of {batch} ({file})",
        recipe.name
    )
}

fn plan_reason(request: &Request, recipe: &PlanRecipe, class: Option<&DeviceClass>) -> String {
    let reason = match (&request.plan, class) {
        (Some(_), _) => "asked for".to_string(),
        (None, _) if recipe.name == baked::plan().name => "the baked one".to_string(),
        (None, Some(class)) => format!("the one for devices of the class {}", class.name),
        (None, None) => "the only one".to_string(),
    };
    format!("plan {}: {reason}", recipe.name)
}

fn host_class() -> Option<&'static DeviceClass> {
    baked::library().host_class(std::env::consts::ARCH)
}

/// Returns the modelled time in microseconds of a batch of `records` records on a device of
/// `class`. `None` if the program lacks the plan of this class, or does not know the plan's number
/// of steps.
fn estimate(class: &DeviceClass, threads: usize, records: usize) -> Option<f64> {
    let recipe = baked::library().plan(&class.plan).ok()?;
    let steps = baked::steps(&recipe.name)?;
    let work = (records, baked::network().flop());
    Some(fit::modelled_us(class, recipe.engine, threads, steps, work))
}

fn auto(request: &Request, phases: &mut Phases) -> Result<Decision, Error> {
    let mut notes = Vec::new();
    let mut decision = match by_records(request, phases, &mut notes)? {
        Some(decision) => decision,
        None => by_estimate(request, phases)?,
    };
    notes
        .into_iter()
        .for_each(|line| tuning::note(&mut decision.why, line));
    Ok(decision)
}

/// Decides by tuning records. Returns `None` if host or devices have no record, or if the device
/// with the best record is not there or may not be used.
fn by_records(
    request: &Request,
    phases: &mut Phases,
    notes: &mut Vec<String>,
) -> Result<Option<Decision>, Error> {
    let host = tuning::record(None, request.batch, notes);
    let (Some(host), Some(best)) = (host, tuning::fastest_device(notes)) else {
        return Ok(None);
    };
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
    let device = opened(phases).ok().and_then(|all| {
        let is_best = |d: &Device| tuning::identity(Some(d)) == best.device && serves(d);
        all.devices.into_iter().find(is_best)
    });
    // If the driver has changed, if the device is gone, or if it is a CPU, the estimate decides. A
    // CPU is used only if the user names it.
    device
        .map(|d| on_device(request, d.clone(), vec![format!("{}: {rates}", line(&d))]))
        .transpose()
}

/// Decides by the modelled times. Loads OpenCL only if some GPU could be faster than the host.
fn by_estimate(request: &Request, phases: &mut Phases) -> Result<Decision, Error> {
    let records = request.batch.unwrap_or(baked::plan().batch);
    let threads = threads();
    let host = host_class()
        .and_then(|c| estimate(c, threads, records))
        .unwrap_or(f64::MAX);
    let on_host_us = format!("{host:.0} µs on {threads} host threads");
    let classes = baked::library().devices.iter().filter(|c| !c.cpu);
    let gpu = classes
        .filter_map(|c| estimate(c, 1, records))
        .fold(f64::INFINITY, f64::min);
    let batch = format!("a batch of {records}");
    if host <= gpu {
        let why = format!(
            "host: {batch} should take {on_host_us}, {gpu:.0} µs or more on a GPU; OpenCL was not \
             loaded"
        );
        return on_host(request, vec![why], None);
    }
    let devices = match opened(phases) {
        Ok(devices) => devices.devices,
        Err(e) => {
            let why = format!("host: {batch} might be faster on a GPU, but OpenCL cannot be used");
            let warning = format!("{e}\nrunning on the host instead; --device host says so");
            return on_host(request, vec![why], Some(warning));
        }
    };
    let Some((us, device)) = fastest(&devices, records) else {
        let others = devices.iter().filter(|d| d.kind != DeviceKind::Cpu);
        let unusable = |d| Device::unusable(d).map(|why| format!("{}: {why}", line(d)));
        let unusable: Vec<String> = others.filter_map(unusable).collect();
        let why = match unusable.is_empty() {
            true => "host: OpenCL offers no GPU".to_string(),
            false => format!("host: no GPU can be used: {}", unusable.join("; ")),
        };
        return on_host(request, vec![why], None);
    };
    let name = line(&device);
    // A user who names kernel sources (`--kernels`) wants to run them. So no trial may choose the
    // host instead.
    if request.tries && request.sources.folder.is_none() {
        let why =
            format!("{name}: to be tried: {batch} should take {us:.0} µs on it, {on_host_us}");
        return by_first_start(request, device, why);
    }
    if us < host {
        let why = format!("{name}: {batch} should take {us:.0} µs on it, {on_host_us}");
        return on_device(request, device, vec![why]);
    }
    let why = format!("host: {batch} should take {on_host_us}, {us:.0} µs on {name}");
    on_host(request, vec![why], None)
}

/// Loads OpenCL and lists its devices.
fn opened(phases: &mut Phases) -> Result<Devices, Error> {
    let library = phases
        .time("library", ClLibrary::open)
        .map_err(Error::from)?;
    phases
        .time("devices", || cl::devices(library))
        .map_err(Error::from)
}

/// Returns the device with the least modelled time, and that time in microseconds. `None` if there
/// is no device that `auto` may choose.
fn fastest(devices: &[Device], records: usize) -> Option<(f64, Device)> {
    let modelled = |d: &&Device| estimate(opencl::class(d)?, 1, records);
    let all = devices.iter().filter(|d| serves(d));
    let all = all.filter_map(|d| Some((modelled(&d)?, d)));
    all.min_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(us, d)| (us, d.clone()))
}

/// Decides by the stored result of the device's first start, if the cache folder has one. Otherwise
/// the returned decision asks for a trial.
fn by_first_start(request: &Request, device: Device, why: String) -> Result<Decision, Error> {
    let on_it = on_device(request, device.clone(), vec![why])?;
    let on_host = on_host(request, Vec::new(), None)?;
    let bounds = (request.batch, request.max_memory);
    let key = TrialKey::new(&device, &on_it.recipe, &on_host.recipe, bounds);
    Ok(match key.known() {
        Some(trial) => by_trial(&trial, &key, on_it, on_host),
        None => Decision {
            first: Some((key, Box::new(on_host))),
            ..on_it
        },
    })
}

/// Chooses the device if its trial gave right answers and was faster than the host, else the host.
/// The first reason then states the measured times instead of the estimate.
pub(super) fn by_trial(
    trial: &Trial,
    key: &TrialKey,
    mut device: Decision,
    mut host: Decision,
) -> Decision {
    let name = device.device.as_ref().map_or(String::new(), line);
    match trial {
        Trial::Wrong(why) => {
            host.warning = Some(format!(
                "{name}: wrong answers at its first start: {why}; running on the host instead; it \
                 is tried again with \
                 another driver, or without the file {}; --device runs it all the same",
                key.file()
            ));
            host.why.insert(
                0,
                format!("host: {name} gave wrong answers at its first start"),
            );
            host
        }
        Trial::Right {
            device: on_it,
            host: on_host,
        } => {
            let rates = format!(
                "{name}: the first start measured {on_it:.3} µs a record on it, {on_host:.3} on \
                 the host"
            );
            if on_it < on_host {
                device.why[0] = rates;
                return device;
            }
            host.why.insert(0, format!("host: {rates}"));
            host
        }
    }
}
