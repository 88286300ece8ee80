//! Which engine, device and plan run the network: what was asked for, or the estimate of `auto`.

use super::Engine;
#[cfg(feature = "lab")]
use super::diagnosis;
use super::host::HostEngine;
use super::multi::{Build, Member, MemberFacts, MultiEngine, RecordSizes};
use super::opencl::{self, OpenClEngine, Wanted};
use super::trial::{self, Subject, Trial};
use super::tuning::{self, TuningRecord};
use crate::baked;
use crate::cl::{self, Device, DeviceKind, Devices, Library, LocalMemory};
use crate::engine::model::{Model, planned, recipe};
use crate::engine::sources::Sources;
use crate::error::{Error, Kind};
use crate::ir::plan::{BufferRole, Plan};
use crate::observe;
use crate::observe::profile::Phases;
use crate::observe::trace::Track;
use crate::planner::fit::{self, Memory};
use crate::registry::{DeviceClass, EngineKind, PlanRecipe};
use crate::sys::watchdog;
use std::fmt::{Display, Write};
use std::sync::{Arc, Mutex};

/// What `--device` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceWish {
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
    /// All GPUs and accelerators; where there is none, all devices of the best kind.
    All,
    /// Several, each of them one device or `All`.
    List(Vec<DeviceWish>),
}

impl DeviceWish {
    /// Reads the value of `--device`. The error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<DeviceWish, String> {
        let one = |text: &str| match text.trim() {
            "" => Err("expected auto, host, opencl, all, an index or part of a name".to_string()),
            "auto" => Ok(DeviceWish::Auto),
            "host" => Ok(DeviceWish::Host),
            "opencl" => Ok(DeviceWish::OpenCl),
            "all" => Ok(DeviceWish::All),
            _ => Ok(text
                .trim()
                .parse()
                .map_or_else(|_| DeviceWish::Name(text.to_string()), DeviceWish::Index)),
        };
        if !text.contains(',') {
            return one(text);
        }
        let list: Vec<DeviceWish> = text
            .split(',')
            .map(|t| one(t.trim()))
            .collect::<Result<_, _>>()?;
        if list.contains(&DeviceWish::Auto) {
            return Err(format!("auto stands alone, found \"{text}\""));
        }
        if list
            .iter()
            .enumerate()
            .any(|(i, wish)| list[..i].contains(wish))
        {
            return Err(format!("a device can take part once, found \"{text}\""));
        }
        Ok(DeviceWish::List(list))
    }

    /// Whether it may be several devices.
    pub(crate) fn is_several(&self) -> bool {
        matches!(self, DeviceWish::All | DeviceWish::List(_))
    }

    /// What it is a list of.
    fn each(&self) -> &[DeviceWish] {
        match self {
            DeviceWish::List(list) => list,
            one => std::slice::from_ref(one),
        }
    }
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `--device`
    pub(crate) device: DeviceWish,
    /// `--compute-units`
    pub(crate) compute_units: Option<u32>,
    /// `--plan`; `baked` is the baked one.
    pub(crate) plan: Option<String>,
    /// `--batch`
    pub(crate) batch: Option<usize>,
    /// `--max-memory`, in bytes.
    pub(crate) max_memory: Option<u64>,
    /// What the host reads of a batch.
    pub(crate) wanted: Wanted,
    /// Whether steps are timed.
    pub(crate) timed: bool,
    /// Where everything that is timed is kept by itself, if somebody wants to know.
    pub(crate) track: Option<Track>,
    /// Where kernel sources come from.
    pub(crate) sources: Sources,
    /// Whether `auto` tries a device at its first start; else it goes by its estimate.
    pub(crate) tries: bool,
    /// Whether a host of many threads may take more records at once than the plan says.
    pub(crate) grows: bool,
}

/// A running engine and how it came about.
pub(crate) struct Running {
    /// The engine.
    pub(crate) engine: Box<dyn Engine>,
    /// The device in words.
    pub(crate) device: String,
    /// The plan.
    pub(crate) plan: Plan,
    /// Constants that were laid out again at start.
    pub(crate) laid_out_again: usize,
    /// Why this device and this plan, a line each.
    pub(crate) why: Vec<String>,
    /// Start-up failures that `auto` and `all` lived with.
    pub(crate) warnings: Vec<String>,
    /// Start-up times.
    pub(crate) phases: Phases,
    /// The devices, where several share the records. `plan` is then the first one's,
    /// `laid_out_again` the sum.
    pub(crate) members: Vec<observe::report::Member>,
    /// Which step computes these records wrongly, as the end of a message; says nothing where that
    /// cannot be found out.
    pub(crate) diagnose: Diagnose,
}

/// Finds the step that computes records wrongly: their inputs, one behind the other.
pub(crate) type Diagnose = Box<dyn Fn(&[f32]) -> String + Send>;

/// A decision, before anything is created.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    /// The OpenCL device; `None` is the host.
    pub(crate) device: Option<Device>,
    /// The plan.
    pub(crate) recipe: PlanRecipe,
    /// Why, a line each.
    pub(crate) why: Vec<String>,
    /// A start-up failure that `auto` lived with.
    pub(crate) warning: Option<String>,
    /// The device was never started before: what its trial is called, and the host, which it has to
    /// be better than.
    pub(crate) first: Option<(Subject, Box<Decision>)>,
}

/// Decides and starts.
pub(crate) fn start(request: &Request) -> Result<Running, Error> {
    let mut phases = Phases {
        track: request.track,
        ..Phases::default()
    };
    let mut decisions = decide(request, &mut phases)?;
    let running = match decisions.pop() {
        Some(decision) if decisions.is_empty() => alone(request, decision, phases),
        Some(last) => {
            decisions.push(last);
            together(request, decisions, phases)
        }
        None => Err(Error::device("no device")),
    }?;
    request
        .sources
        .check_read(&format!("plan {}", running.plan.name))?;
    Ok(running)
}

/// Decides, and starts each device alone, one after the other.
pub(crate) fn each(
    request: &Request,
    mut visit: impl FnMut(Result<Running, Error>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut phases = Phases::default();
    // Whoever wants each device by itself judges it, too.
    let request = &Request {
        tries: false,
        ..request.clone()
    };
    let decisions = decide(request, &mut phases)?;
    let last = decisions.len().saturating_sub(1);
    decisions
        .into_iter()
        .enumerate()
        .try_for_each(|(i, decision)| {
            let device = decision
                .device
                .as_ref()
                .map(line)
                .filter(|_| request.device.is_several());
            let running = alone(request, decision, phases.clone())
                .map_err(|e| of_device(device.as_deref(), e));
            // Of several devices one may run another plan: one of them must have read the folder.
            if let (true, Ok(running)) = (i == last, &running) {
                request
                    .sources
                    .check_read(&format!("plan {}", running.plan.name))?;
            }
            visit(running)
        })
}

/// One of several devices: its error says which.
fn of_device(device: Option<&str>, e: Error) -> Error {
    let Some(device) = device else { return e };
    match e.into_kind() {
        Kind::Device { what, source } => Kind::Device {
            what: format!("opencl {device}: {what}"),
            source,
        },
        Kind::Limit(e) => Kind::Limit(format!("opencl {device}: {e}")),
        other => other,
    }
    .into()
}

fn alone(request: &Request, decision: Decision, mut phases: Phases) -> Result<Running, Error> {
    let running = |started: Started, decision: Decision, phases| {
        let (why, warning) = (decision.why.clone(), decision.warning.clone());
        let asked = Request {
            track: None,
            ..request.clone()
        };
        Running {
            engine: started.engine,
            device: started.device,
            plan: started.plan,
            laid_out_again: started.laid_out_again,
            why,
            warnings: warning.into_iter().chain(started.instead).collect(),
            phases,
            members: Vec::new(),
            diagnose: Box::new(move |records| diagnosis(&asked, &decision, records)),
        }
    };
    let decision = tried(request, decision, &mut phases);
    let request = &Request {
        grows: true,
        ..request.clone()
    };
    match run(request, &decision, threads(), &mut phases) {
        Ok(started) => Ok(running(started, decision, phases)),
        // What fails only after the decision, under `auto`: the host serves.
        Err(e)
            if is_auto(request)
                && decision.device.is_some()
                && request.sources.folder.is_none() =>
        {
            let why = vec![format!("host: the OpenCL device failed at start: {e}")];
            let host = on_host(
                request,
                why,
                Some(format!("{e}; running on the host instead")),
            )?;
            let started = run(request, &host, threads(), &mut phases)?;
            Ok(running(started, host, phases))
        }
        Err(e) => Err(e),
    }
}

/// The same decision, or after a first start what came of that.
fn tried(request: &Request, mut decision: Decision, phases: &mut Phases) -> Decision {
    let Some((subject, mut host)) = decision.first.take() else {
        return decision;
    };
    let wanted = Wanted {
        scores: true,
        classes: true,
    };
    let request = Request {
        wanted,
        timed: false,
        track: None,
        ..request.clone()
    };
    let start = |decision| run(&request, decision, threads(), &mut Phases::default());
    // Where there is no host the device has nothing to be better than.
    let Ok(mut other) = start(&host) else {
        return decision;
    };
    let trial = phases.time("trial", || {
        trial::run(start(&decision)?.engine.as_mut(), other.engine.as_mut())
    });
    match trial {
        Ok(trial) => {
            let trial = match trial {
                Trial::Wrong(why) => {
                    let step = phases.time("diagnosis", || diagnosis(&request, &decision, &[]));
                    Trial::Wrong(format!("{why}{step}"))
                }
                right => right,
            };
            // Not by a thread that was given up.
            watchdog::beat("trial");
            subject.remember(&trial);
            by_trial(&trial, &subject, decision, *host)
        }
        Err(e) => {
            host.warning = Some(format!("{e}; running on the host instead"));
            host.why.insert(
                0,
                format!("host: the OpenCL device failed at its first start: {e}"),
            );
            *host
        }
    }
}

/// Which step is wrong, as the end of a message: for programs with a lab; it says nothing where
/// there is no device.
#[cfg(feature = "lab")]
fn diagnosis(request: &Request, decision: &Decision, records: &[f32]) -> String {
    first_wrong(request, decision, records).map_or_else(String::new, |found| format!("; {found}"))
}

/// The same of several devices, of which nobody knows any more who computed the records: what each
/// makes of these.
#[cfg(feature = "lab")]
fn diagnosis_of_each(request: &Request, decisions: &[Decision]) -> Diagnose {
    let (request, decisions) = (
        Request {
            track: None,
            ..request.clone()
        },
        decisions.to_vec(),
    );
    Box::new(move |records| {
        let of = |d: &Decision| {
            Some(format!(
                "; {}: {}",
                line(d.device.as_ref()?),
                first_wrong(&request, d, records)?
            ))
        };
        decisions.iter().filter_map(of).collect()
    })
}

#[cfg(feature = "lab")]
fn first_wrong(request: &Request, decision: &Decision, records: &[f32]) -> Option<String> {
    let device = decision.device.as_ref()?;
    let found = diagnosis::first_wrong(device, &decision.recipe, &request.sources, records);
    Some(found.unwrap_or_else(|e| e.to_string()))
}

#[cfg(not(feature = "lab"))]
fn diagnosis(_: &Request, _: &Decision, _: &[f32]) -> String {
    String::new()
}

#[cfg(not(feature = "lab"))]
fn diagnosis_of_each(_: &Request, _: &[Decision]) -> Diagnose {
    Box::new(|_| String::new())
}

/// The device where its first start was right and faster than the host's, else the host. What was
/// estimated of it, the first reason for it, gives way to what was measured.
fn by_trial(
    trial: &Trial,
    subject: &Subject,
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
                subject.file()
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

/// Several devices that share the records.
fn together(
    request: &Request,
    decisions: Vec<Decision>,
    mut phases: Phases,
) -> Result<Running, Error> {
    // A device's thread waits most of the time: the host engine has all cores, and where it is in
    // the way of others it is measured (`engine::multi`).
    let threads = threads();
    let (mut all, mut parts, mut reasons, mut warnings) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut laid_out_again, mut limits) = (0, Vec::new());
    let diagnose = diagnosis_of_each(request, &decisions);
    for (group, mut decision) in decisions.into_iter().enumerate() {
        let name = decision.device.as_ref().map(line);
        let why = std::mem::take(&mut decision.why);
        // Its thread tells in what is shared with it what else came of it.
        let told = Arc::new(Mutex::new(None));
        let (tell, request_there) = (Arc::clone(&told), request.clone());
        let track = request.track.map(|track| track.member(group));
        let build: Build = Box::new(move || {
            let mut phases = Phases {
                track,
                ..Phases::default()
            };
            let started = run(&request_there, &decision, threads, &mut phases)?;
            let Started {
                engine,
                device,
                plan,
                laid_out_again,
                instead,
            } = started;
            let in_process = decision
                .device
                .as_ref()
                .is_some_and(|d| d.kind == DeviceKind::Cpu);
            let facts = MemberFacts {
                name: device.clone(),
                batch: plan.batch,
                granule: plan.granule,
                in_process,
                track,
            };
            *tell.lock().unwrap_or_else(|e| e.into_inner()) = Some((
                observe::report::Member {
                    device,
                    plan,
                    group,
                },
                laid_out_again,
                instead,
                phases,
            ));
            Ok((engine, facts))
        });
        match Member::start(build).map_err(|e| of_device(name.as_deref(), e)) {
            Ok(member) => {
                all.push(member);
                why.into_iter()
                    .for_each(|line| tuning::note(&mut reasons, line));
                if let Some((part, again, instead, took)) =
                    told.lock().unwrap_or_else(|e| e.into_inner()).take()
                {
                    laid_out_again += again;
                    limits.extend(instead);
                    phases.join(took);
                    parts.push(part);
                }
            }
            Err(e)
                if matches!(e.kind(), Kind::Device { .. } | Kind::Limit(_))
                    && request.device.each().contains(&DeviceWish::All) =>
            {
                warnings.push(e.to_string())
            }
            Err(e) => return Err(e),
        }
    }
    let Some(first) = parts.first() else {
        return Err(Error::device(warnings.join("\n")));
    };
    warnings
        .iter_mut()
        .for_each(|w| w.push_str("; running without it"));
    warnings.extend(limits);
    let plan = first.plan.clone();
    let network = baked::network();
    let Wanted { scores, classes } = request.wanted;
    let sizes = RecordSizes {
        width: network.width,
        scores: if scores { network.outputs() } else { 0 },
        classes: classes && plan.buffer(BufferRole::Classes).is_some(),
    };
    let names: Vec<&str> = parts.iter().map(|p| &*p.device).collect();
    let device = names.join(" + ");
    let engine = Box::new(MultiEngine::new(all, sizes, request.timed, request.track));
    Ok(Running {
        engine,
        device,
        plan,
        laid_out_again,
        why: reasons,
        warnings,
        phases,
        members: parts,
        diagnose,
    })
}

/// A started engine.
struct Started {
    engine: Box<dyn Engine + Send>,
    device: String,
    plan: Plan,
    laid_out_again: usize,
    /// Why the plan is another one than decided.
    instead: Option<String>,
}

/// Starts an engine. Where a device has too little memory it gets smaller batches, unless they were
/// asked for.
fn run(
    request: &Request,
    decision: &Decision,
    threads: usize,
    phases: &mut Phases,
) -> Result<Started, Error> {
    let mut request = request.clone();
    let (asked, mut smaller, mut tried) = (request.batch.is_some(), None, 0);
    loop {
        let mut result = run_once(&request, decision, threads, phases, &mut tried);
        match &mut result {
            Err(e) if tried > 1 && !asked && out_of_memory(e) => {
                let batch = tried / 2;
                request.batch = Some(batch);
                smaller = Some(format!("{e}; batches of {batch} instead"));
                continue;
            }
            Err(_) => {}
            Ok(started) => started.instead = smaller.or(started.instead.take()),
        }
        return result;
    }
}

/// Whether a device has too little memory: its driver's word for it, or, where memory is made or
/// used, for what may be that.
fn out_of_memory(e: &Error) -> bool {
    const MEMORY: [i32; 2] = [-4, -61];
    const RESOURCES: [i32; 2] = [-5, -6];
    let Kind::Device {
        source: Some(source),
        ..
    } = e.kind()
    else {
        return false;
    };
    source.downcast_ref::<cl::ClError>().is_some_and(|e| {
        let uses = ["clEnqueue", "clCreateBuffer", "clCreateImage"]
            .iter()
            .any(|c| e.call.starts_with(c));
        MEMORY.contains(&e.code) || uses && RESOURCES.contains(&e.code)
    })
}

/// The same in batches as they are; `tried` becomes their size.
fn run_once(
    request: &Request,
    decision: &Decision,
    threads: usize,
    phases: &mut Phases,
    tried: &mut usize,
) -> Result<Started, Error> {
    let model = phases.time("layout", || model(request, decision))?;
    *tried = model.plan.batch;
    let (plan, laid_out_again) = (model.plan.clone(), model.laid_out_again);
    match &decision.device {
        Some(device) => {
            let mut engine = OpenClEngine::new(
                device,
                &model,
                request.wanted,
                request.timed,
                &request.sources,
                phases,
            )?;
            if let Some(track) = phases.track {
                phases.time("clock", || engine.trace(track))?;
            }
            let (plan, instead) = (engine.plan().clone(), engine.instead().map(str::to_string));
            // A launch for each layer needs more.
            let needed = Memory::of(&plan, !device.unified_memory).total();
            if let Some(most) = request.max_memory.filter(|&most| most < needed) {
                return Err(Error::limit(format!(
                    "{}; --batch asks for a smaller one",
                    too_large(&plan, needed, most)
                )));
            }
            let device = format!("opencl {}", line(device));
            Ok(Started {
                engine: Box::new(engine),
                device,
                plan,
                laid_out_again,
                instead,
            })
        }
        None => {
            let mut engine =
                phases.time("threads", || HostEngine::new(model, threads, request.timed))?;
            phases.track.map_or(Ok(()), |track| engine.trace(track))?;
            let device = format!(
                "host, {} threads, {}",
                engine.threads(),
                engine.instruction_set()
            );
            Ok(Started {
                engine: Box::new(engine),
                device,
                plan,
                laid_out_again,
                instead: None,
            })
        }
    }
}

/// The host engine, in batches of `batch`, beside others that `request` asks for. What it takes is
/// not bounded: it is there so that nothing is lost.
pub(crate) fn beside(request: &Request, batch: usize) -> Result<Box<dyn Engine>, Error> {
    let request = Request {
        plan: None,
        batch: Some(batch),
        max_memory: None,
        timed: false,
        track: None,
        ..request.clone()
    };
    let decision = on_host(&request, Vec::new(), None)?;
    Ok(run(&request, &decision, threads(), &mut Phases::default())?.engine)
}

/// The plan of a decision with its constants, in batches that `--max-memory` allows; those of a
/// host of many threads grow.
pub(crate) fn model(request: &Request, decision: &Decision) -> Result<Model, Error> {
    let mut model = within_memory(request, decision)?;
    if request.grows && request.batch.is_none() && decision.device.is_none() {
        let flop = model.network.flop();
        fit::grow(&mut model.plan, flop, threads(), request.max_memory);
    }
    Ok(model)
}

/// The same in batches as the plan has them, or smaller ones.
fn within_memory(request: &Request, decision: &Decision) -> Result<Model, Error> {
    let (recipe, network, library) = (&decision.recipe, baked::network(), baked::library());
    let model = Model::baked(recipe, request.batch).map_err(Error::device)?;
    let Some(most) = request.max_memory else {
        return Ok(model);
    };
    let apart = decision.device.as_ref().is_some_and(|d| !d.unified_memory);
    let needed = Memory::of(&model.plan, apart).total();
    if needed <= most {
        return Ok(model);
    }
    let batch = fit::bounded(network, (recipe, library), &model.plan, most, apart);
    match (batch, request.batch) {
        (0, _) => {
            let least = planned(network, recipe, library, Some(1)).map_err(Error::device)?;
            let needed = Memory::of(&least, apart).total();
            Err(Error::limit(too_large(&least, needed, most)))
        }
        (batch, None) => Model::baked(recipe, Some(batch)).map_err(Error::device),
        (batch, Some(_)) => Err(Error::usage(format!(
            "{}: at most --batch {batch}, or none, which takes as many as fit",
            too_large(&model.plan, needed, most)
        ))),
    }
}

/// A plan needs more memory than `--max-memory` allows.
fn too_large(plan: &Plan, needed: u64, most: u64) -> String {
    let records = if plan.batch == 1 { "record" } else { "records" };
    format!(
        "plan {} needs {needed} bytes for batches of {} {records}, {} of them for constants; \
         --max-memory allows {most}",
        plan.name,
        plan.batch,
        plan.constant_bytes()
    )
}

/// Threads of the host engine: the cores this process may use.
pub(crate) fn threads() -> usize {
    crate::sys::io::cores()
}

/// Nobody asked for a device or for a plan that only one engine runs.
pub(crate) fn is_auto(request: &Request) -> bool {
    request.device == DeviceWish::Auto
        && request.compute_units.is_none()
        && wished_engine(request).is_none()
}

/// The engine of `--plan`, if that decides it.
fn wished_engine(request: &Request) -> Option<EngineKind> {
    match request.plan.as_deref()? {
        "baked" => Some(baked::plan().engine),
        "tuned" => None,
        name => baked::library().plan(name).ok().map(|r| r.engine),
    }
}

/// Decides what runs the network: one device, or several. Loads OpenCL only where an OpenCL device
/// can be the answer.
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
    let library = phases.time("library", Library::open)?;
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

/// The devices that were asked for; `None` is the host.
fn chosen(
    request: &Request,
    devices: &Devices,
    library: &Library,
) -> Result<Vec<Option<Device>>, Error> {
    let (mut found, units) = (Vec::new(), request.compute_units);
    let named = |wish: &DeviceWish| !matches!(wish, DeviceWish::Host | DeviceWish::All);
    if units.is_some() && request.device.is_several() && request.device.each().iter().any(named) {
        return Err(Error::usage(
            "--compute-units chooses one device, or some of --device all; a list names its devices",
        ));
    }
    for wish in request.device.each() {
        match wish {
            DeviceWish::Host => found.push(None),
            DeviceWish::All => found.extend(all(devices, units, library)?.into_iter().map(Some)),
            wish => found.push(Some(choose(devices, wish, units, library)?)),
        }
    }
    for (i, device) in found.iter().enumerate() {
        let Some(device) = device else { continue };
        if found[..i]
            .iter()
            .flatten()
            .any(|d: &Device| d.index == device.index)
        {
            return Err(Error::usage(format!(
                "--device: a device can take part once, the list has {} twice",
                line(device)
            )));
        }
    }
    Ok(found)
}

/// All GPUs and accelerators, with so many compute units; where there is none, all devices of the
/// best kind.
fn all(devices: &Devices, units: Option<u32>, library: &Library) -> Result<Vec<Device>, Error> {
    let fits = |d: &&Device| d.unusable().is_none() && units.is_none_or(|n| n == d.compute_units);
    let kind = |d: &&Device| rank(d).max(1);
    let best = devices.devices.iter().filter(fits).map(|d| kind(&d)).min();
    let all = devices
        .devices
        .iter()
        .filter(fits)
        .filter(|d| Some(kind(d)) == best);
    match best {
        Some(_) => Ok(all.cloned().collect()),
        None => Err(unfit(
            "no OpenCL device",
            &DeviceWish::All,
            units,
            devices,
            library,
        )),
    }
}

/// The better kind has the lower one.
fn rank(d: &Device) -> u32 {
    match d.kind {
        DeviceKind::Gpu => 0,
        DeviceKind::Accelerator => 1,
        DeviceKind::Cpu => 2,
        DeviceKind::Custom => 3,
    }
}

fn on_host(
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

/// What tuning found for a device (`None`: the host), unless another plan is asked for. `why` gets
/// a line for what is ignored.
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

/// Expected time of a full batch in microseconds, for as many records as the host takes at once.
fn estimate(class: &DeviceClass, threads: usize, records: usize) -> Option<f64> {
    let recipe = baked::library().plan(&class.plan).ok()?;
    let steps = baked::steps(&recipe.name)?;
    let work = (records, baked::network().flop());
    Some(fit::modelled_us(class, recipe.engine, threads, steps, work))
}

/// Whether `auto` may choose it: CPUs are chosen by name only.
fn serves(d: &Device) -> bool {
    matches!(d.kind, DeviceKind::Gpu | DeviceKind::Accelerator) && d.unusable().is_none()
}

/// The decision of tuning records, where both sides have one; else none.
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
    let found = phases.time("library", Library::open).map_err(Error::from);
    let devices = found.and_then(|l| {
        phases
            .time("devices", || cl::devices(l))
            .map_err(Error::from)
    });
    let device = devices.ok().and_then(|all| {
        all.devices
            .into_iter()
            .find(|d| tuning::identity(Some(d)) == best.device && serves(d))
    });
    // Another driver, a device that is gone, or a CPU, which must be named: the estimate decides.
    device
        .map(|d| on_device(request, d.clone(), vec![format!("{}: {rates}", line(&d))]))
        .transpose()
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
    let found = phases
        .time("library", Library::open)
        .map_err(Error::from)
        .and_then(|library| {
            phases
                .time("devices", || cl::devices(library))
                .map_err(Error::from)
        });
    let devices = match found {
        Ok(devices) => devices.devices,
        Err(e) => {
            let why = vec![format!(
                "host: {batch} might be faster on a GPU, but OpenCL cannot be used"
            )];
            return on_host(
                request,
                why,
                Some(format!(
                    "{e}\nrunning on the host instead; --device host says so"
                )),
            );
        }
    };
    let unusable = devices.iter().filter(|d| d.kind != DeviceKind::Cpu);
    let unusable: Vec<String> = unusable
        .filter_map(|d| d.unusable().map(|why| format!("{}: {why}", line(d))))
        .collect();
    let best = devices
        .into_iter()
        .filter(serves)
        .filter_map(|d| {
            let class = opencl::class(&d)?;
            Some((estimate(class, 1, records)?, d))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        // Who brings kernels wants to run them.
        Some((us, device)) if request.tries && request.sources.folder.is_none() => {
            let why = format!(
                "{}: to be tried: {batch} should take {us:.0} µs on it, {on_host_us}",
                line(&device)
            );
            let on_it = on_device(request, device.clone(), vec![why])?;
            let on_host = on_host(request, Vec::new(), None)?;
            let bounds = (request.batch, request.max_memory);
            let subject = Subject::new(&device, &on_it.recipe, &on_host.recipe, bounds);
            Ok(match subject.known() {
                Some(trial) => by_trial(&trial, &subject, on_it, on_host),
                None => Decision {
                    first: Some((subject, Box::new(on_host))),
                    ..on_it
                },
            })
        }
        Some((us, device)) if us < host => {
            let why = format!(
                "{}: {batch} should take {us:.0} µs on it, {on_host_us}",
                line(&device)
            );
            on_device(request, device, vec![why])
        }
        Some((us, device)) => {
            let why = format!(
                "host: {batch} should take {on_host_us}, {us:.0} µs on {}",
                line(&device)
            );
            on_host(request, vec![why], None)
        }
        None if unusable.is_empty() => {
            on_host(request, vec!["host: OpenCL offers no GPU".into()], None)
        }
        None => on_host(
            request,
            vec![format!("host: no GPU can be used: {}", unusable.join("; "))],
            None,
        ),
    }
}

/// The one device that was asked for; none or several are an error that lists what there is.
pub(crate) fn choose(
    devices: &Devices,
    wish: &DeviceWish,
    compute_units: Option<u32>,
    library: &Library,
) -> Result<Device, Error> {
    let units = |d: &&Device| compute_units.is_none_or(|n| n == d.compute_units);
    let matching: Vec<&Device> = match wish {
        DeviceWish::Index(i) => devices
            .devices
            .iter()
            .filter(|d| d.index == *i)
            .filter(units)
            .collect(),
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
            let usable = |d: &&Device| d.unusable().is_none();
            let mut all: Vec<&Device> = devices
                .devices
                .iter()
                .filter(units)
                .filter(usable)
                .collect();
            // The best kind only; with --compute-units all of that kind must be one.
            let best = all.iter().map(|d| rank(d)).min();
            all.retain(|d| Some(rank(d)) == best);
            if compute_units.is_none() {
                all.truncate(1);
            }
            all
        }
    };
    if let [one] = matching.as_slice() {
        return match one.unusable() {
            None => Ok((*one).clone()),
            Some(why) => Err(Error::device(format!("{}: {why}", line(one)))),
        };
    }
    let count = if matching.is_empty() {
        "no OpenCL device"
    } else {
        "more than one OpenCL device"
    };
    Err(unfit(count, wish, compute_units, devices, library))
}

fn unfit(
    count: &str,
    wish: &DeviceWish,
    compute_units: Option<u32>,
    devices: &Devices,
    library: &Library,
) -> Error {
    let mut wishes = match wish {
        DeviceWish::Index(i) => vec![format!("index {i}")],
        DeviceWish::Name(part) => vec![format!("a name with \"{part}\"")],
        _ => Vec::new(),
    };
    wishes.extend(compute_units.map(|n| format!("{n} compute units")));
    let wishes = if wishes.is_empty() {
        "can be used".into()
    } else {
        format!("has {}", wishes.join(" and "))
    };
    Error::device(format!(
        "{count} {wishes}; {} offers\n{}",
        library.path(),
        listing(devices, false)
    ))
}

/// What a device is and can do, a line each: table 2.1 of the thesis, and what else plans depend
/// on.
fn facts(d: &Device) -> String {
    let details = d.details();
    let mut text = String::new();
    let mut row = |name: &str, value: &dyn Display| {
        let _ = writeln!(text, "   {name:<24}{value}");
    };
    fn told<T: Display>(value: Option<T>, unit: &str) -> String {
        let value = value.as_ref().map(|value| value as &dyn Display);
        value.map_or("not told".into(), |v| format!("{v}{unit}"))
    }
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    row("global memory", &format_args!("{} bytes", d.global_mem));
    row(
        "  cache",
        &format_args!(
            "{}, {}",
            told(details.cache, " bytes"),
            told(details.cache_kind, "")
        ),
    );
    row("  cache line", &told(details.cache_line, " bytes"));
    let lines = details
        .cache
        .zip(details.cache_line.filter(|&line| line > 0));
    row(
        "  cache lines",
        &told(lines.map(|(cache, line)| cache / u64::from(line)), ""),
    );
    row("  largest buffer", &format_args!("{} bytes", d.max_alloc));
    row(
        "  sub-buffers start at",
        &format_args!("multiples of {} bytes", d.mem_align),
    );
    row("  shared with the host", &yes(d.unified_memory));
    let place = match d.local_mem_kind {
        LocalMemory::Dedicated => "of its own",
        LocalMemory::Global => "in global memory",
        LocalMemory::None => "none",
    };
    row(
        "local memory",
        &format_args!("{} bytes, {place}", d.local_mem),
    );
    for (name, preferred, native) in details.vectors {
        let widths = format!(
            "{} preferred, {} native",
            told(preferred, ""),
            told(native, "")
        );
        row(&format!("vectors of {name}"), &widths);
    }
    row("clock", &format_args!("{} MHz at most", d.max_clock));
    row("compute units", &d.compute_units);
    row(
        "work-group",
        &format_args!("{} work-items at most", d.max_work_group),
    );
    let sizes: Vec<String> = d.max_work_items.iter().map(usize::to_string).collect();
    row("  in each dimension", &sizes.join(", "));
    row("timer", &format_args!("{} ns", d.timer_resolution));
    row(
        "images",
        &match d.images {
            true => format!(
                "2D, {} × {} pixels at most",
                d.image2d_max.0, d.image2d_max.1
            ),
            false => "no".into(),
        },
    );
    row("floats", &d.float_rules());
    row("half precision", &yes(d.fp16));
    row(
        "double precision",
        &yes(d.offers("cl_khr_fp64") || d.offers("cl_amd_fp64")),
    );
    row("low byte first", &yes(d.little_endian));
    row(
        "compiler",
        &if d.compiler_available {
            d.c_version.clone()
        } else {
            "none".into()
        },
    );
    if let Some((major, minor)) = d.compute_capability {
        row("compute capability", &format_args!("{major}.{minor}"));
    }
    if let Some(class) = opencl::class(d) {
        row(
            "class",
            &format_args!("{}, plan {}", class.name, class.plan),
        );
    }
    row(
        "platform",
        &format_args!("{}, {}", d.platform_name, d.platform_version),
    );
    row(
        "extensions",
        &d.extensions
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    );
    text
}

/// One device on one line: index, name, compute units.
pub(crate) fn line(d: &Device) -> String {
    format!(
        "{}: {} ({}, {} compute units)",
        d.index, d.name, d.kind, d.compute_units
    )
}

/// All devices, two lines each; with `all` everything that plans depend on.
pub(crate) fn listing(devices: &Devices, all: bool) -> String {
    let mut text = String::new();
    for d in &devices.devices {
        let _ = writeln!(text, "{}", line(d));
        let _ = writeln!(text, "   {}, {}, driver {}", d.vendor, d.version, d.driver);
        if let Some(why) = d.unusable() {
            let _ = writeln!(text, "   cannot be used: {why}");
        }
        if all {
            text.push_str(&facts(d));
        }
    }
    for e in &devices.errors {
        let _ = writeln!(text, "   a platform failed: {e}");
    }
    if devices.devices.is_empty() {
        text.push_str("no devices\n");
    }
    let served = devices.devices.iter().any(|d| d.kind == DeviceKind::Gpu);
    cl::nodes(served)
        .iter()
        .for_each(|line| text.extend([line, "\n"]));
    text.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::Values;
    use crate::planner::CALLS;
    use std::borrow::Cow;

    #[test]
    fn an_error_of_one_of_several_devices_keeps_its_call_and_code() {
        let failed = cl::ClError::new("clFinish", -5, "queue");
        let text = format!("opencl 1: {failed}");
        let error = of_device(Some("1"), failed.clone().into());
        assert_eq!(error.to_string(), text);
        assert_eq!(
            std::error::Error::source(&error).and_then(|e| e.downcast_ref()),
            Some(&failed)
        );
    }

    /// What was baked is what runs: nothing is planned at start, no constant is copied.
    #[test]
    fn the_baked_plan_runs_as_it_was_baked() {
        let request = Request {
            device: DeviceWish::Auto,
            compute_units: None,
            plan: Some("baked".into()),
            batch: None,
            max_memory: None,
            wanted: Wanted {
                scores: true,
                classes: true,
            },
            timed: false,
            track: None,
            sources: Sources::default(),
            tries: true,
            grows: false,
        };
        for device in [DeviceWish::Auto, DeviceWish::Host] {
            for plan in [None, Some("baked".to_string())] {
                let request = Request {
                    device: device.clone(),
                    plan,
                    ..request.clone()
                };
                let before = CALLS.get();
                let running = start(&request).unwrap();
                assert_eq!(
                    CALLS.get(),
                    before,
                    "{:?} {:?}",
                    request.device,
                    request.plan
                );
                assert_eq!(
                    (running.plan, running.laid_out_again),
                    (baked::plan().clone(), 0)
                );
            }
        }
        let model =
            Model::baked(baked::library().plan(&baked::plan().name).unwrap(), None).unwrap();
        let borrowed = |v: &Values| {
            matches!(
                v,
                Values::F32(Cow::Borrowed(_))
                    | Values::F16(Cow::Borrowed(_))
                    | Values::I8(Cow::Borrowed(_))
            )
        };
        assert!(model.constants.iter().all(borrowed));
        // Another batch is another plan.
        let before = CALLS.get();
        start(&Request {
            batch: Some(7),
            ..request
        })
        .unwrap();
        assert_eq!(CALLS.get(), before + 1);
    }
}
