//! `mortonnet tune` times every variant that can run the baked network on this machine, on the
//! device and on the host. It stores the choice for later runs.
//!
//! A variant is a plan of the library, either unchanged or with changes. One change keeps only one
//! of the plan's kernels for layers: the kernel that computes all layers in a launch, or the kernel
//! that computes one layer. Another change runs one kernel in another work-group of its `sweep`.
//!
//! Each variant is first checked with a random batch and the golden vectors. It is then timed from
//! records in plain order to classes. The fastest few are timed once more, in turns. Later runs use
//! the stored choice ([`tuning`]) unless `--plan baked` is given.

use crate::baked::{self, library, network};
use crate::cl::{self, ClLibrary, Device};
use crate::engine::model::{Model, baked_tensors};
use crate::engine::opencl;
use crate::engine::select::{self, DeviceWish};
use crate::engine::selftest;
use crate::engine::sources::Sources;
use crate::engine::tuning::{self, identity, tuned_name};
use crate::error::{Error, ErrorKind};
use crate::escape;
use crate::ir::plan::Plan;
use crate::lab::live::Progress;
use crate::lab::network::{Harness, Setting, measured, quantile};
use crate::lab::render::{self, ReportFormat, json_string};
use crate::lab::table::{Cell, Report, Section};
use crate::lab::{BenchTarget, too_long};
use crate::planner;
use crate::registry::{DRIVERS_CHOICE, EngineKind, Kernel, Operation, PlanRecipe};
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The options of `mortonnet tune`.
#[derive(Clone, Debug)]
pub(crate) struct Tune {
    pub(crate) target: BenchTarget,
    /// The value of `--batch`. With `None` each plan uses its own batch size.
    pub(crate) batch: Option<usize>,
    /// The limit of the whole run. The last third is for timing the fastest variants again.
    pub(crate) time_limit: Duration,
    /// The format of the printed table of variants.
    pub(crate) output: ReportFormat,
    /// The file of `--save`. The chosen plan is written to it, and MORTONNET_PLAN can name it
    /// later.
    pub(crate) save: Option<PathBuf>,
    /// The kernels' sources: the files in the folder of `--kernels`, else those in the program.
    pub(crate) sources: Sources,
}

/// A variant that was tried, with the times of its batches in microseconds.
struct Timed {
    variant: Variant,
    /// The variant's running engine. `None` if the variant failed, or is too slow to be timed
    /// again.
    harness: Option<Harness>,
    times: Vec<f64>,
    not_timed: Option<NotTimed>,
}

/// The reason why `tune` did not time a variant.
enum NotTimed {
    /// Too little of the time limit was left. The limit is given in seconds.
    Late(u64),
    /// The variant's answers are wrong.
    Wrong(String),
    /// The variant did not start or did not run.
    Failed(Error),
}

impl std::fmt::Display for NotTimed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotTimed::Late(seconds) => write!(f, "not tried in the {seconds} s (--time-limit)"),
            NotTimed::Wrong(m) => write!(f, "WRONG: {m}"),
            NotTimed::Failed(e) => e.fmt(f),
        }
    }
}

impl Timed {
    fn per_record(&self) -> f64 {
        quantile(&self.times, 0.5) / self.variant.recipe.batch as f64
    }
}

/// A plan that `tune` tries on the device or on the host.
#[derive(Clone)]
struct Variant {
    on_host: bool,
    label: String,
    /// The name of the library's plan that the recipe comes from.
    plan: Cow<'static, str>,
    recipe: PlanRecipe,
}

/// Returns the variants for `device`, or for the host if `device` is `None`. The plan of the
/// device's class comes first.
fn variants(device: Option<&Device>, batch: Option<usize>) -> Vec<Variant> {
    let engine = if device.is_some() {
        EngineKind::OpenCl
    } else {
        EngineKind::Host
    };
    let class = match device {
        Some(d) => opencl::class(d),
        None => library().host_class(std::env::consts::ARCH),
    };
    let admits = |plan: &Plan| device.is_none_or(|d| opencl::admits(d, plan).is_ok());
    variants_of(engine, class.map_or("", |c| &*c.plan), batch, &admits)
}

/// Returns the variants of one engine whose plans `admits` accepts, equal ones only once. Unchanged
/// plans come first, so that a short run compares at least these. Among them the plan named `plan`
/// comes first, then the baked plan. Changed plans follow in the same order.
fn variants_of(
    engine: EngineKind,
    plan: &str,
    batch: Option<usize>,
    admits: &dyn Fn(&Plan) -> bool,
) -> Vec<Variant> {
    let plans = library().plans.iter();
    let mut plans: Vec<&PlanRecipe> = plans.filter(|p| p.engine == engine).collect();
    plans.sort_by_key(|p| (p.name != plan, p.name != baked::plan().name));
    let mut all: Vec<Variant> = plans
        .into_iter()
        .flat_map(|p| candidates(p, batch))
        .collect();
    all.sort_by_key(|v| *v.label != *v.plan);
    let mut found: Vec<Variant> = Vec::new();
    let mut seen: Vec<Plan> = Vec::new();
    for mut variant in all {
        let Ok(lowered) = planner::plan(network(), &variant.recipe, library(), None) else {
            continue;
        };
        let same = |p: &Plan| (&p.steps, p.batch) == (&lowered.steps, lowered.batch);
        if seen.iter().any(same) || !admits(&lowered) {
            continue;
        }
        seen.push(lowered);
        if variant.label != variant.recipe.name {
            variant.recipe.name = tuned_name(&variant.recipe.name).into();
        }
        found.push(variant);
    }
    found
}

/// Returns the variants of one plan: first the plan itself, then the plan with only one of its
/// kernels for layers. After them come all these with one kernel in another work-group.
fn candidates(plan: &PlanRecipe, batch: Option<usize>) -> Vec<Variant> {
    let variant = |label: String, recipe: PlanRecipe| Variant {
        on_host: plan.engine == EngineKind::Host,
        label,
        plan: plan.name.clone(),
        recipe,
    };
    let base = PlanRecipe {
        batch: batch.unwrap_or(plan.batch),
        ..plan.clone()
    };
    let of_layers = |k: &&Kernel| matches!(k.operation, Operation::Affine | Operation::Layers);
    let kernels = kernels_of(&base);
    let products: Vec<&Kernel> = kernels.iter().copied().filter(of_layers).collect();
    let mut all = vec![variant(plan.name.to_string(), base.clone())];
    for one in products.iter().filter(|_| products.len() > 1) {
        let stays = |k: &&&Kernel| !of_layers(k) || k.codename == one.codename;
        let kept: Vec<_> = kernels
            .iter()
            .filter(stays)
            .map(|k| k.codename.clone())
            .collect();
        let mut groups = base.groups.to_vec();
        groups.retain(|(kernel, _)| kept.contains(kernel));
        let recipe = PlanRecipe {
            kernels: kept.into(),
            groups: groups.into(),
            ..base.clone()
        };
        let label = format!("{}: {} alone", plan.name, one.codename);
        all.push(variant(label, recipe));
    }
    for Variant { label, recipe, .. } in all.clone() {
        for kernel in kernels_of(&recipe) {
            for &group in kernel.restrictions.sweep.iter() {
                if Some(group) == recipe.group(kernel) {
                    continue;
                }
                let (name, (rows, cols)) = (&kernel.codename, group);
                let mut groups = recipe.groups.to_vec();
                groups.retain(|(kernel, _)| kernel != name);
                groups.push((name.clone(), group));
                let recipe = PlanRecipe {
                    groups: groups.into(),
                    ..recipe.clone()
                };
                let label = format!("{label}, {name} in groups of {rows}×{cols}");
                all.push(variant(label, recipe));
            }
        }
    }
    all
}

/// Returns the kernels of the library that a recipe names.
fn kernels_of(recipe: &PlanRecipe) -> Vec<&'static Kernel> {
    let known = recipe.kernels.iter().filter_map(|k| library().kernel(k));
    known.map(|(_, kernel)| kernel).collect()
}

/// The number of the device's variants that are timed again in turns, and of the host's.
const FINALISTS: usize = 3;

impl Tune {
    /// Times the variants, prints their table, and stores the fastest for later runs.
    pub(crate) fn run(
        &self,
        print: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = Instant::now() + self.time_limit;
        self.sources.check()?;
        let (device, without) = self.device()?;
        let mut all = variants(None, self.batch);
        all.extend(device.iter().flat_map(|d| variants(Some(d), self.batch)));
        if let (None, Some(folder), Some(why)) = (&device, &self.sources.folder, &without) {
            return Err(Error::device(format!(
                "--kernels {} cannot be tried. {why}",
                folder.display()
            )));
        }
        self.check_sources(&all)?;
        let mut timed = self.first_looks(all, device.as_ref(), end);
        finals(&mut timed, end)?;
        let mut notes = vec![format!(
            "Microseconds of a full batch, from f32 records on the host to classes; each variant \
             checked first. At most {} s.",
            self.time_limit.as_secs()
        )];
        notes.extend(without);
        let Some((best, identity)) = self.remember(&timed, device.as_ref(), &mut notes) else {
            return Err(Error::device(
                "no plan of the library could run this network here",
            ));
        };
        if let Some(file) = &self.save {
            let text = plan_file(&best.variant.recipe, &identity, quantile(&best.times, 0.5))?;
            let name = escape::path(file);
            std::fs::write(file, text).map_err(|e| Error::io(&*name, e))?;
            notes.push(format!(
                "{name}: MORTONNET_PLAN={name} bakes {}",
                best.variant.label
            ));
        }
        let wrong = |t: &&Timed| matches!(t.not_timed, Some(NotTimed::Wrong(_)));
        let wrong = timed.iter().filter(wrong).count();
        print(&render::text(
            &table(&timed, device.as_ref(), notes),
            self.output,
        ))?;
        match wrong {
            0 => Ok(()),
            n => Err(Error::check(format!(
                "{n} variants give wrong answers here; they were not timed"
            ))),
        }
    }

    /// Returns an error if the folder of `--kernels` has no source of a kernel that `variants` run.
    /// Sources of some of these kernels are enough.
    fn check_sources(&self, variants: &[Variant]) -> Result<(), Error> {
        let plan = |v: &Variant| planner::plan(network(), &v.recipe, library(), None).ok();
        let plans: Vec<Plan> = variants.iter().filter_map(plan).collect();
        let steps = plans.iter().flat_map(|p| p.steps.iter());
        let kernels = steps.filter_map(|s| library().kernel(&s.kernel));
        self.sources.check_for("tune", kernels.map(|(_, k)| k))
    }

    /// Starts, checks and times all variants. Only the engines of the fastest variants stay
    /// running.
    fn first_looks(&self, all: Vec<Variant>, device: Option<&Device>, end: Instant) -> Vec<Timed> {
        let weights = baked_tensors();
        let mut timed: Vec<Timed> = Vec::new();
        let progress = Progress::new();
        let count = all.len();
        for (n, variant) in all.into_iter().enumerate() {
            progress.show(&format!("{}/{count} {}", n + 1, variant.label));
            let left = end.saturating_duration_since(Instant::now());
            let mut t = Timed {
                variant,
                harness: None,
                times: Vec::new(),
                not_timed: None,
            };
            // A third of the time limit is kept for timing the fastest variants again.
            if n > 1 && left < self.time_limit / 3 {
                t.not_timed = Some(NotTimed::Late(self.time_limit.as_secs()));
            } else if let Err(e) = first_look(&mut t, device, &weights, &self.sources, left / 4) {
                let why = match e.into_kind() {
                    ErrorKind::Check(m) => NotTimed::Wrong(m),
                    other => NotTimed::Failed(other.into()),
                };
                (t.harness, t.not_timed) = (None, Some(why));
            }
            timed.push(t);
            keep_the_fastest(&mut timed);
        }
        progress.clear();
        timed
    }

    /// Stores the choices for the host and for the device. Returns the choice that `--save` writes:
    /// the device's if the user named a device, else the faster one. `None` if no variant ran.
    fn remember<'t>(
        &self,
        timed: &'t [Timed],
        device: Option<&Device>,
        notes: &mut Vec<String>,
    ) -> Option<(&'t Timed, (String, String))> {
        let mut saved: Option<(&Timed, _)> = None;
        for on_host in [true, false] {
            let Some((best, how_sure)) = choice(timed, on_host) else {
                continue;
            };
            let identity = identity(device.filter(|_| !on_host));
            let spread = measured(&best.times).spread.unwrap_or_default();
            let times = (quantile(&best.times, 0.5), spread);
            let Variant {
                plan,
                recipe,
                label,
                ..
            } = &best.variant;
            let (name, _) = &identity;
            notes.push(match tuning::remember(plan, recipe, &identity, times) {
                Ok(file) => format!("{name}: {label} from now on, {how_sure} ({file})"),
                Err(why) => format!("{name}: {label}, {how_sure}; but {why}"),
            });
            let faster = match &saved {
                Some((other, _)) => best.per_record() < other.per_record(),
                None => true,
            };
            if faster || (!on_host && self.target.device != DeviceWish::Auto) {
                saved = Some((best, identity));
            }
        }
        saved
    }

    /// Returns the OpenCL device to tune, or `None` to tune only the host. If `auto` finds no
    /// device, a note for the report gives the reason.
    fn device(&self) -> Result<(Option<Device>, Option<String>), Error> {
        if self.target.device == DeviceWish::Host {
            return Ok((None, None));
        }
        let found = ClLibrary::open().map_err(Error::from).and_then(|library| {
            let devices = cl::devices(library)?;
            select::choose(
                &devices,
                &self.target.device,
                self.target.compute_units,
                library,
            )
        });
        match found {
            Ok(device) => Ok((Some(device), None)),
            Err(e)
                if self.target.device == DeviceWish::Auto
                    && self.target.compute_units.is_none() =>
            {
                Ok((None, Some(format!("The host alone: {e}"))))
            }
            Err(e) => Err(e),
        }
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
    let start = Instant::now();
    let setting = Setting {
        network: network(),
        weights,
        device: device.filter(|_| !t.variant.on_host),
        recipe: &t.variant.recipe,
        batch: t.variant.recipe.batch,
        timed: false,
        sources,
    };
    let mut harness = Harness::new(setting, &|times| {
        too_long(times.longest).map(|why| format!("{why} (-b: fewer records in a batch)"))
    })?;
    let report = selftest::run(harness.engine.as_mut(), network(), &baked::golden())?;
    if !report.passed() {
        return Err(Error::check(report.to_string()));
    }
    while t.times.len() < 3 || (t.times.len() < 20 && start.elapsed() < most) {
        t.times.extend(harness.host_to_host(1)?.all);
        if start.elapsed() > most {
            break;
        }
    }
    t.harness = Some(harness);
    Ok(())
}

/// The baked plan and the plan of the device's (or host's) class are timed again even if they are
/// not among the [`FINALISTS`]. But their records must take at most this many times as long as the
/// slowest finalist's.
const CLOSE: f64 = 2.0;

/// Stops the engines of all variants, except the fastest of the host and of the device. Plans that
/// are within [`CLOSE`] also keep their engines.
fn keep_the_fastest(timed: &mut [Timed]) {
    for on_host in [true, false] {
        let rates: Vec<f64> = {
            let running = timed
                .iter()
                .filter(|t| t.variant.on_host == on_host && t.harness.is_some());
            let mut rates: Vec<f64> = running.map(Timed::per_record).collect();
            rates.sort_unstable_by(f64::total_cmp);
            rates
        };
        if let Some(&last) = rates.get(FINALISTS - 1) {
            // The plan of the class comes first in the list, and other variants are compared with
            // it. So it stays even if noise made a few of them look faster.
            let itself = timed.iter().position(|t| t.variant.on_host == on_host);
            for (i, t) in timed
                .iter_mut()
                .enumerate()
                .filter(|(_, t)| t.variant.on_host == on_host)
            {
                let stays = Some(i) == itself || t.variant.label == baked::plan().name;
                let most = if stays { last * CLOSE } else { last };
                if t.per_record() > most {
                    t.harness = None;
                }
            }
        }
    }
}

/// Times the variants with running engines once more, in turns, until `end` or for 200 batches
/// each. Their earlier times are discarded.
fn finals(timed: &mut [Timed], end: Instant) -> Result<(), Error> {
    timed
        .iter_mut()
        .filter(|t| t.harness.is_some())
        .for_each(|t| t.times.clear());
    for _ in 0..200 {
        for t in timed.iter_mut() {
            if let Some(harness) = &mut t.harness {
                t.times.extend(harness.host_to_host(1)?.all);
            }
        }
        if Instant::now() >= end {
            break;
        }
    }
    Ok(())
}

fn fastest(timed: &[Timed], on_host: bool) -> Option<&Timed> {
    let running = timed
        .iter()
        .filter(|t| t.harness.is_some() && t.variant.on_host == on_host);
    running.min_by(|a, b| a.per_record().total_cmp(&b.per_record()))
}

/// The smallest number of runs whose measured spread is trusted. With fewer runs the spread counts
/// as at least a quarter of the median.
const ENOUGH: usize = 5;

/// The time of a record under a variant, in microseconds, and its spread.
#[derive(Clone, Copy)]
struct Candidate {
    time: f64,
    spread: f64,
    baked: bool,
}

/// The index of the candidate that [`choose`] keeps, and how sure this choice is.
#[derive(Debug, PartialEq)]
struct Choice {
    kept: usize,
    /// The index of the candidate that the kept one is compared with. It is the fastest candidate,
    /// or the second fastest if the fastest is kept.
    next: Option<usize>,
    /// True if the fastest candidate differs from each other candidate by more than both spreads.
    sure: bool,
}

/// Chooses the fastest candidate if it differs from all others by more than both spreads. Otherwise
/// it keeps the baked plan if that is within the spreads, else the first candidate within them. So
/// another run makes the same choice. `None` without candidates.
fn choose(all: &[Candidate]) -> Option<Choice> {
    let order = |a: &usize, b: &usize| all[*a].time.total_cmp(&all[*b].time);
    let fastest = (0..all.len()).min_by(order)?;
    let near = |&i: &usize| all[i].time - all[fastest].time <= all[i].spread + all[fastest].spread;
    let kept = (0..all.len())
        .filter(near)
        .find(|&i| all[i].baked)
        .or_else(|| (0..all.len()).find(near))?;
    let next = (0..all.len()).filter(|&i| i != fastest).min_by(order);
    Some(Choice {
        kept,
        next: if kept == fastest { next } else { Some(fastest) },
        sure: (0..all.len()).all(|i| i == fastest || !near(&i)),
    })
}

/// Returns the variant that the host (or the device) uses from now on, and words that say how sure
/// the choice is. `None` if no variant ran there.
fn choice(timed: &[Timed], on_host: bool) -> Option<(&Timed, String)> {
    let side = || timed.iter().filter(move |t| t.variant.on_host == on_host);
    let running: Vec<&Timed> = side().filter(|t| t.harness.is_some()).collect();
    let candidate = |t: &&Timed| {
        let median = quantile(&t.times, 0.5);
        let spread = measured(&t.times).spread.unwrap_or_default() / median;
        let spread = if t.times.len() < ENOUGH {
            spread.max(0.25)
        } else {
            spread
        };
        let baked = t.variant.label == baked::plan().name;
        Candidate {
            time: t.per_record(),
            spread: spread * t.per_record(),
            baked,
        }
    };
    let all: Vec<Candidate> = running.iter().map(candidate).collect();
    let Choice { kept, next, sure } = choose(&all)?;
    let mut text = match next {
        None => "nothing else ran".to_string(),
        Some(next) => {
            let percent = |part: f64| 100.0 * part / all[kept].time;
            let gap = percent((all[next].time - all[kept].time).abs());
            let spread = percent(all[kept].spread + all[next].spread);
            let name = &running[next].variant.label;
            let baked = if all[kept].baked {
                "the baked plan"
            } else {
                "the first of them"
            };
            match sure {
                true => format!("{gap:.1} % faster than \"{name}\", both spread by ±{spread:.1} %"),
                false => {
                    let not_told = format!("{gap:.1} % apart, both spread by ±{spread:.1} %");
                    format!("{baked}: it cannot be told from \"{name}\", {not_told}")
                }
            }
        }
    };
    let late = side()
        .filter(|t| matches!(t.not_timed, Some(NotTimed::Late(_))))
        .count();
    if late > 0 {
        let count = side().count();
        text += &format!("; cannot tell about {late} of {count} variants, not tried in this time");
    }
    Some((running[kept], text))
}

/// Returns the text of a plan file that MORTONNET_PLAN can name.
fn plan_file(
    recipe: &PlanRecipe,
    (device, driver): &(String, String),
    median: f64,
) -> Result<String, Error> {
    let model = Model::baked(recipe, None).map_err(Error::device)?;
    let name = tuned_name(&recipe.name);
    let kernels: Vec<String> = recipe.kernels.iter().map(|k| json_string(k)).collect();
    let group = |&(rows, cols): &(usize, usize)| match (rows, cols) {
        DRIVERS_CHOICE => "null".to_string(),
        _ => format!("[{rows}, {cols}]"),
    };
    let groups: Vec<String> = recipe
        .groups
        .iter()
        .map(|(k, g)| format!("{}: {}", json_string(k), group(g)))
        .collect();
    let layouts: Vec<String> = model
        .plan
        .layouts()
        .map(|(node, role, layout)| {
            format!(
                "{{\"node\": {}, \"role\": \"{role}\", \"layout\": \"{layout}\"}}",
                json_string(&node)
            )
        })
        .collect();
    let few = recipe.few.as_ref().map_or(String::new(), |few| {
        let kernels: Vec<String> = few.kernels.iter().map(|k| json_string(k)).collect();
        let kernels = kernels.join(", ");
        format!(
            "  \"few\": {{\"records\": {}, \"kernels\": [{kernels}]}},\n",
            few.records
        )
    });
    Ok(format!(
        "{{\n  \"format\": 1,\n  \"name\": {},\n  \"engine\": \"{}\",\n  \"batch\": {},\n  \
         \"about\": {},\n  \"kernels\": [{}],\n{few}  \"workGroups\": {{{}}},\n  \
         \"layouts\": [\n    {}\n  ],\n  \"library\": \"{}\",\n  \"model\": \"{}\",\n  \
         \"device\": {},\n  \"driver\": {},\n  \"medianUs\": {median:.2}\n}}\n",
        json_string(&name),
        recipe.engine,
        recipe.batch,
        json_string(&format!("Tuned for {} on {device}.", network().name)),
        kernels.join(", "),
        groups.join(", "),
        layouts.join(",\n    "),
        library().hash,
        network().hash,
        json_string(device),
        json_string(driver),
    ))
}

/// Returns the report of `tune`, with a row for each variant, the fastest first.
fn table(timed: &[Timed], device: Option<&Device>, notes: Vec<String>) -> Report {
    let best = [true, false]
        .into_iter()
        .filter_map(|h| fastest(timed, h))
        .map(Timed::per_record)
        .fold(f64::INFINITY, f64::min);
    let mut section = Section::new("tune", "Variants, the fastest first", "variant", "µs");
    section.columns = ["on", "batch", "records/s", "times the fastest"]
        .map(String::from)
        .to_vec();
    section.notes = notes;
    let rate = |t: &&Timed| match t.times.is_empty() {
        true => f64::INFINITY,
        false => t.per_record(),
    };
    let mut sorted: Vec<&Timed> = timed.iter().collect();
    sorted.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    for t in sorted {
        let side = if t.variant.on_host { "host" } else { "device" };
        let mut cells = vec![Cell::text(side)];
        cells.extend(match &t.not_timed {
            Some(why) => [Cell::Skipped(why.to_string()), Cell::Empty, Cell::Empty],
            None => [
                Cell::Measured(measured(&t.times)),
                Cell::Text(format!("{:.0}", 1e6 / t.per_record())),
                Cell::Text(format!("{:.2}", t.per_record() / best)),
            ],
        });
        section.row(&t.variant.label, cells);
    }
    let about = format!("{}, {}", network().name, network().shape());
    let mut head = vec![("network".to_string(), about)];
    for (name, device) in [("device", device), ("host", None)] {
        if device.is_some() || name == "host" {
            let (identity, driver) = identity(device);
            head.push((name.into(), format!("{identity}: {driver}")));
        }
    }
    Report {
        head,
        sections: vec![section],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fastest candidate wins if it differs from the next by more than both spreads. Otherwise
    /// every run keeps the same candidate.
    #[test]
    fn the_same_one_is_kept_where_times_do_not_tell() {
        let of = |all: &[(f64, f64, bool)]| {
            let candidate = |&(time, spread, baked): &_| Candidate {
                time,
                spread,
                baked,
            };
            choose(&all.iter().map(candidate).collect::<Vec<_>>())
        };
        let choice = |kept, next, sure| Some(Choice { kept, next, sure });
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(5.0, 0.1, false)]), choice(0, None, true));
        // The times differ by 1, which is more than the sum 0.3 of the spreads.
        assert_eq!(
            of(&[(5.0, 0.1, true), (4.0, 0.2, false)]),
            choice(1, Some(0), true)
        );
        // The times differ by less than both spreads. The baked candidate is kept, else the first
        // one. It does not matter which was faster.
        for (a, b) in [(5.0, 4.9), (4.9, 5.0)] {
            let of = |baked| of(&[(a, 0.1, false), (b, 0.1, baked), (9.0, 0.1, false)]).unwrap();
            assert_eq!((of(true).kept, of(true).sure), (1, false));
            assert_eq!((of(false).kept, of(false).sure), (0, false));
        }
        // The fastest candidate is within the spreads of one candidate, but not of the baked one.
        assert_eq!(
            of(&[(5.0, 0.1, true), (4.0, 0.1, false), (4.1, 0.1, false)]),
            choice(1, Some(2), false)
        );
    }

    #[test]
    fn the_plan_itself_comes_first_and_groups_are_those_of_sweeps() {
        for (engine, plan) in [
            (EngineKind::Host, "host"),
            (EngineKind::OpenCl, "mali-midgard"),
        ] {
            let all = variants_of(engine, plan, None, &|_| true);
            assert!(
                all[0].plan == plan
                    && all.iter().any(|v| !v.recipe.groups.is_empty()) == (plan != "host")
            );
            for Variant {
                plan,
                recipe,
                label,
                ..
            } in all
            {
                assert_eq!(
                    tuning::read_back(&plan, &recipe),
                    Ok(recipe.clone()),
                    "{label}"
                );
            }
        }
    }
}
