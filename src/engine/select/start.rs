//! Starts the decided engine, or several engines that share the records.

use super::decide::{Decision, by_trial, decide, on_host};
use super::devices::line;
use super::diagnose::{diagnosis, diagnosis_of_each};
use super::memory::{model, threads, too_large};
use super::wish::{DeviceWish, Request, is_auto};
use crate::baked;
use crate::cl::{self, DeviceKind};
use crate::engine::Engine;
use crate::engine::host::HostEngine;
use crate::engine::multi::{Build, Member, MemberFacts, MultiEngine, RecordSizes};
use crate::engine::opencl::{OpenClEngine, Wanted};
use crate::engine::trial::{self, Trial};
use crate::engine::tuning;
use crate::error::{Error, ErrorKind};
use crate::ir::plan::{BufferRole, Plan};
use crate::observe;
use crate::observe::profile::Phases;
use crate::planner::fit::Memory;
use crate::sys::watchdog;
use std::sync::{Arc, Mutex};

/// A started engine, with the reasons why it was chosen.
pub(crate) struct Running {
    pub(crate) engine: Box<dyn Engine>,
    /// A text that describes the device.
    pub(crate) device: String,
    pub(crate) plan: Plan,
    /// The number of constants that were repacked at start, because the plan needs other layouts
    /// than the baked ones.
    pub(crate) laid_out_again: usize,
    /// The reasons for this device and this plan, one line each.
    pub(crate) why: Vec<String>,
    /// Messages about devices that failed at start without ending the program, and about changes to
    /// the plan that a device's limits demanded.
    pub(crate) warnings: Vec<String>,
    /// The times of the phases of start-up.
    pub(crate) phases: Phases,
    /// The devices that share the records, if there are several, else empty. With several, `plan`
    /// is that of the first device, and `laid_out_again` is the sum over all devices.
    pub(crate) members: Vec<observe::report::RunningMember>,
    /// A function that names the step of the plan that computes given records wrongly.
    pub(crate) diagnose: Diagnose,
}

/// A function that names the step that computes records wrongly, as the end of a message. It takes
/// the records' inputs one after the other. It returns an empty text if it finds no step.
pub(crate) type Diagnose = Box<dyn Fn(&[f32]) -> String + Send>;

/// Decides what runs the network, and starts it.
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

/// Decides what runs the network, and starts each device alone, one after the other. Calls `visit`
/// with each started engine, or with the error of its start.
pub(crate) fn each(
    request: &Request,
    mut visit: impl FnMut(Result<Running, Error>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut phases = Phases::default();
    // No device has a trial against the host, because the caller judges each device itself.
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
            // Several devices may run different plans. After the last one, at least one of them
            // must have read a file of the folder of `--kernels`.
            if let (true, Ok(running)) = (i == last, &running) {
                request
                    .sources
                    .check_read(&format!("plan {}", running.plan.name))?;
            }
            visit(running)
        })
}

/// Puts the device's name in front of the error's message.
pub(super) fn of_device(device: Option<&str>, e: Error) -> Error {
    let Some(device) = device else { return e };
    match e.into_kind() {
        ErrorKind::Device { what, source } => ErrorKind::Device {
            what: format!("opencl {device}: {what}"),
            source,
        },
        ErrorKind::Limit(e) => ErrorKind::Limit(format!("opencl {device}: {e}")),
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
        // Under `auto` the host replaces a device that fails after the decision.
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

/// Runs the trial of a device at its first start, if the decision asks for one. Returns the
/// decision that the trial leads to.
fn tried(request: &Request, mut decision: Decision, phases: &mut Phases) -> Decision {
    let Some((key, mut host)) = decision.first.take() else {
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
    // Without a host engine there is nothing to compare the device with.
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
            // If the watchdog has abandoned this thread, it stops here and stores no result.
            watchdog::beat("trial");
            key.remember(&trial);
            by_trial(&trial, &key, decision, *host)
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

/// Starts several devices that share the records.
fn together(
    request: &Request,
    decisions: Vec<Decision>,
    mut phases: Phases,
) -> Result<Running, Error> {
    let (mut all, mut reports, mut why, mut warnings) = (vec![], vec![], vec![], vec![]);
    let (mut laid_out_again, mut limits) = (0, Vec::new());
    let diagnose = diagnosis_of_each(request, &decisions);
    for (group, mut decision) in decisions.into_iter().enumerate() {
        let name = decision.device.as_ref().map(line);
        let reasons = std::mem::take(&mut decision.why);
        let told = Arc::new(Mutex::new(None));
        let build = build(request.clone(), decision, group, Arc::clone(&told));
        match Member::start(build).map_err(|e| of_device(name.as_deref(), e)) {
            Ok(member) => all.push(member),
            Err(e) if may_fail(request, &e) => {
                warnings.push(format!("{e}; running without it"));
                continue;
            }
            Err(e) => return Err(e),
        }
        reasons
            .into_iter()
            .for_each(|line| tuning::note(&mut why, line));
        let told = told.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(Told {
            report,
            laid_out_again: again,
            instead,
            phases: took,
        }) = told
        {
            laid_out_again += again;
            limits.extend(instead);
            phases.join(took);
            reports.push(report);
        }
    }
    let Some(first) = reports.first() else {
        let failed = warnings
            .iter()
            .map(|w| w.trim_end_matches("; running without it"));
        return Err(Error::device(failed.collect::<Vec<_>>().join("\n")));
    };
    warnings.extend(limits);
    let plan = first.plan.clone();
    let network = baked::network();
    let Wanted { scores, classes } = request.wanted;
    let sizes = RecordSizes {
        width: network.width,
        scores: if scores { network.outputs() } else { 0 },
        classes: classes && plan.buffer(BufferRole::Classes).is_some(),
    };
    let names: Vec<&str> = reports.iter().map(|p| &*p.device).collect();
    Ok(Running {
        device: names.join(" + "),
        engine: Box::new(MultiEngine::new(all, sizes, request.timed, request.track)),
        plan,
        laid_out_again,
        why,
        warnings,
        phases,
        members: reports,
        diagnose,
    })
}

/// Facts about a started device. Its own thread passes them to the thread that starts it.
struct Told {
    report: observe::report::RunningMember,
    laid_out_again: usize,
    instead: Option<String>,
    phases: Phases,
}

/// Returns true if the run goes on without a device whose start failed with error `e`. This is so
/// under `--device all`.
fn may_fail(request: &Request, e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Device { .. } | ErrorKind::Limit(_))
        && request.device.each().contains(&DeviceWish::All)
}

/// Makes the function that starts a device on the device's own thread, and puts facts about it into
/// `told`.
fn build(
    request: Request,
    decision: Decision,
    group: usize,
    told: Arc<Mutex<Option<Told>>>,
) -> Build {
    // A device's thread waits most of the time, so the host engine may use all cores. If it slows
    // other devices down, `engine::multi` measures that and leaves members out.
    let threads = threads();
    let track = request.track.map(|track| track.member(group));
    Box::new(move || {
        let mut phases = Phases {
            track,
            ..Phases::default()
        };
        let started = run(&request, &decision, threads, &mut phases)?;
        let Started {
            engine,
            device,
            plan,
            laid_out_again,
            instead,
        } = started;
        let facts = MemberFacts {
            name: device.clone(),
            batch: plan.batch,
            granule: plan.granule,
            in_process: decision
                .device
                .as_ref()
                .is_some_and(|d| d.kind == DeviceKind::Cpu),
            track,
        };
        let report = observe::report::RunningMember {
            device,
            plan,
            group,
        };
        *told.lock().unwrap_or_else(|e| e.into_inner()) = Some(Told {
            report,
            laid_out_again,
            instead,
            phases,
        });
        Ok((engine, facts))
    })
}

struct Started {
    engine: Box<dyn Engine + Send>,
    device: String,
    plan: Plan,
    laid_out_again: usize,
    /// The reason why the engine runs another plan or smaller batches than decided. `None` if it
    /// runs as decided.
    instead: Option<String>,
}

/// Starts an engine. If the device has too little memory, halves the batch size and tries again,
/// unless the user set the size.
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

/// Starts an engine once. Sets `tried` to the number of records in a batch before it uses the
/// device.
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
            // A plan with a launch for each layer needs more memory than the decided plan with
            // fewer launches.
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

/// Returns true if an error means that the device has too little memory. Some drivers say "out of
/// resources" instead. That counts for calls that create or use memory.
fn out_of_memory(e: &Error) -> bool {
    const MEMORY: [i32; 2] = [-4, -61];
    const RESOURCES: [i32; 2] = [-5, -6];
    let ErrorKind::Device {
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

/// Starts the host engine beside the devices of `request`, with batches of `batch` records.
/// `--max-memory` does not limit this engine, because it saves records when a device fails.
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
