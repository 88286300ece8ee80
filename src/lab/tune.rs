//! `mortonnet tune`: times what could run the baked network here, host included, and remembers the
//! fastest.
//!
//! A variant is a plan of the library, with one of its kernels for layers alone (of two: one launch
//! for all layers, and one for each), or with another work-group out of a kernel's `sweep`. Each is
//! checked first (a random batch and the golden vectors), then timed from records in plain order to
//! classes; the fastest few once more, in turns. Later runs use the record of the fastest
//! ([`tuning`]) unless `--plan baked`.

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
use crate::lab::network::{Harness, measured, quantile};
use crate::lab::render::{self, OutputFormat};
use crate::lab::table::{Cell, Plot, Report, Row, Section};
use crate::lab::{Target, too_long};
use crate::planner;
use crate::registry::{DRIVERS_CHOICE, EngineKind, Kernel, Operation, PlanRecipe};
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// `mortonnet tune`
#[derive(Clone, Debug)]
pub(crate) struct Tune {
    /// Device.
    pub(crate) target: Target,
    /// `--batch`; else each plan's.
    pub(crate) batch: Option<usize>,
    /// `--time-limit`
    pub(crate) time_limit: Duration,
    /// How the table is printed.
    pub(crate) output: OutputFormat,
    /// `--save`: a plan file for MORTONNET_PLAN.
    pub(crate) save: Option<PathBuf>,
    /// Where kernel sources come from.
    pub(crate) sources: Sources,
}

/// A variant with its times in microseconds.
struct Timed {
    variant: Variant,
    harness: Option<Harness>,
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

/// The variants of one engine that `admits` lets through: plans as they are, the one called `plan`
/// and the baked one first; then what can be changed of them, in the same order. So a run that has
/// little time has compared plans.
fn variants_of(
    engine: EngineKind,
    plan: &str,
    batch: Option<usize>,
    admits: &dyn Fn(&Plan) -> bool,
) -> Vec<Variant> {
    let mut plans: Vec<&PlanRecipe> = library()
        .plans
        .iter()
        .filter(|p| p.engine == engine)
        .collect();
    plans.sort_by_key(|p| (p.name != plan, p.name != baked::plan().name));
    let mut all: Vec<(&PlanRecipe, String, PlanRecipe)> = Vec::new();
    for plan in plans {
        let base = PlanRecipe {
            batch: batch.unwrap_or(plan.batch),
            ..plan.clone()
        };
        let kernels = |recipe: &PlanRecipe| -> Vec<&'static Kernel> {
            recipe
                .kernels
                .iter()
                .filter_map(|k| library().kernel(k))
                .map(|k| k.1)
                .collect()
        };
        let mut recipes = vec![(plan.name.to_string(), base.clone())];
        let chosen = |k: &&Kernel| matches!(k.operation, Operation::Affine | Operation::Layers);
        let products: Vec<&Kernel> = kernels(&base).into_iter().filter(chosen).collect();
        for one in products.iter().filter(|_| products.len() > 1) {
            let others = |k: &&Kernel| !chosen(k) || k.codename == one.codename;
            let kept: Vec<_> = kernels(&base)
                .into_iter()
                .filter(others)
                .map(|k| k.codename.clone())
                .collect();
            let name = format!("{}: {} alone", plan.name, one.codename);
            let groups: Vec<_> = base
                .groups
                .iter()
                .filter(|g| kept.contains(&g.0))
                .cloned()
                .collect();
            recipes.push((
                name,
                PlanRecipe {
                    kernels: kept.into(),
                    groups: groups.into(),
                    ..base.clone()
                },
            ));
        }
        for (name, recipe) in recipes.clone() {
            for kernel in kernels(&recipe) {
                let groups = kernel
                    .restrictions
                    .sweep
                    .iter()
                    .filter(|g| Some(**g) != recipe.group(kernel));
                recipes.extend(groups.map(|&group| {
                    let name = format!(
                        "{name}, {} in groups of {}×{}",
                        kernel.codename, group.0, group.1
                    );
                    let mut groups = recipe.groups.to_vec();
                    groups.retain(|g| g.0 != kernel.codename);
                    groups.push((kernel.codename.clone(), group));
                    (
                        name,
                        PlanRecipe {
                            groups: groups.into(),
                            ..recipe.clone()
                        },
                    )
                }));
            }
        }
        all.extend(
            recipes
                .into_iter()
                .map(|(label, recipe)| (plan, label, recipe)),
        );
    }
    all.sort_by_key(|(plan, label, _)| **label != *plan.name);
    let mut found: Vec<Variant> = Vec::new();
    let mut seen: Vec<Plan> = Vec::new();
    for (plan, label, mut recipe) in all {
        let Ok(lowered) = planner::plan(network(), &recipe, library(), None) else {
            continue;
        };
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
    found
}

/// How many of a device's variants are timed again in turns.
const FINALISTS: usize = 3;

impl Tune {
    /// Times, prints, remembers.
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
        let plans = all
            .iter()
            .filter_map(|v| planner::plan(network(), &v.recipe, library(), None).ok());
        let kernels: Vec<&Kernel> = plans
            .flat_map(|p| {
                p.steps
                    .iter()
                    .filter_map(|s| library().kernel(&s.kernel))
                    .map(|k| k.1)
                    .collect::<Vec<_>>()
            })
            .collect();
        self.sources.check_for("tune", kernels)?;
        let weights = baked_tensors();
        let mut timed: Vec<Timed> = Vec::new();
        let progress = Progress::new();
        let count = all.len();
        for (n, variant) in all.into_iter().enumerate() {
            progress.show(&format!("{}/{count} {}", n + 1, variant.label));
            // The finalists need a third of the time.
            let left = end.saturating_duration_since(Instant::now());
            let mut t = Timed {
                variant,
                harness: None,
                times: Vec::new(),
                trouble: None,
            };
            if n > 1 && left < self.time_limit / 3 {
                t.trouble = Some(Trouble::Late(self.time_limit.as_secs()));
            } else if let Err(e) =
                first_look(&mut t, device.as_ref(), &weights, &self.sources, left / 4)
            {
                let trouble = match e.into_kind() {
                    ErrorKind::Check(m) => Trouble::Wrong(m),
                    other => Trouble::Failed(other.into()),
                };
                (t.harness, t.trouble) = (None, Some(trouble));
            }
            timed.push(t);
            keep_the_fastest(&mut timed);
        }
        progress.clear();
        finals(&mut timed, end)?;
        let mut notes = vec![format!(
            "Microseconds of a full batch, from f32 records on the host to classes; each variant \
             checked first. At most {} s.",
            self.time_limit.as_secs()
        )];
        notes.extend(without);
        let mut saved = None;
        for on_host in [true, false] {
            let Some((best, how_sure)) = choice(&timed, on_host) else {
                continue;
            };
            let identity = identity(device.as_ref().filter(|_| !on_host));
            let times = (
                quantile(&best.times, 0.5),
                measured(&best.times).spread.unwrap_or_default(),
            );
            let (name, label) = (&identity.0, &best.variant.label);
            notes.push(
                match tuning::remember(&best.variant.plan, &best.variant.recipe, &identity, times) {
                    Ok(file) => format!("{name}: {label} from now on, {how_sure} ({file})"),
                    Err(why) => format!("{name}: {label}, {how_sure}; but {why}"),
                },
            );
            let faster = saved
                .as_ref()
                .is_none_or(|(b, _): &(&Timed, _)| best.per_record() < b.per_record());
            // What is asked for is saved: the named device's, under `auto` the fastest.
            if faster || (!on_host && self.target.device != DeviceWish::Auto) {
                saved = Some((best, identity));
            }
        }
        let Some((best, identity)) = saved else {
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
        let wrong = timed
            .iter()
            .filter(|t| matches!(t.trouble, Some(Trouble::Wrong(_))))
            .count();
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

    /// The device to tune; without an OpenCL library `auto` tunes the host alone, and the note says
    /// why.
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
    let device = device.filter(|_| !t.variant.on_host);
    let recipe = &t.variant.recipe;
    let start = Instant::now();
    let refuses =
        |longest, _| too_long(longest).map(|why| format!("{why} (-b: fewer records in a batch)"));
    let mut harness = Harness::new(
        (network(), weights),
        device,
        recipe,
        (recipe.batch, false),
        sources,
        &refuses,
    )?;
    let report = selftest::run(harness.engine.as_mut(), network(), &baked::golden())?;
    if !report.passed() {
        return Err(Error::check(report.to_string()));
    }
    while t.times.len() < 3 || (t.times.len() < 20 && start.elapsed() < most) {
        t.times.extend(harness.host_to_host(1)?.0);
        if start.elapsed() > most {
            break;
        }
    }
    t.harness = Some(harness);
    Ok(())
}

/// How much slower than the others a plan may be at the first look to be timed again.
const CLOSE: f64 = 2.0;

/// Ends the engines of all but each side's fastest.
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
            // The plan itself stays where noise may have put others before it: it is what others
            // must be told from.
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

/// Times the finalists in turns until the end, or 200 batches each.
fn finals(timed: &mut [Timed], end: Instant) -> Result<(), Error> {
    timed
        .iter_mut()
        .filter(|t| t.harness.is_some())
        .for_each(|t| t.times.clear());
    for _ in 0..200 {
        for t in timed.iter_mut() {
            if let Some(harness) = &mut t.harness {
                t.times.extend(harness.host_to_host(1)?.0);
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

/// Runs that a spread can be told from; of fewer it is taken for a part of their time.
const ENOUGH: usize = 5;

/// Time of a record, its spread, and whether it is of the baked plan.
#[derive(Clone, Copy)]
struct Candidate {
    time: f64,
    spread: f64,
    baked: bool,
}

/// Which of these to use: the fastest, where it is told from all others. Else of those that are not
/// told from it the baked plan, or the first one: another run must not find another one. The second
/// number is the fastest of the rest, or, where the fastest is not told from others, the one that
/// the kept one is compared with; then whether it is told.
fn choose(all: &[Candidate]) -> Option<(usize, Option<usize>, bool)> {
    let order = |a: &usize, b: &usize| all[*a].time.total_cmp(&all[*b].time);
    let fastest = (0..all.len()).min_by(order)?;
    let near = |&i: &usize| all[i].time - all[fastest].time <= all[i].spread + all[fastest].spread;
    let kept = (0..all.len())
        .filter(near)
        .find(|&i| all[i].baked)
        .or_else(|| (0..all.len()).find(near))?;
    let next = (0..all.len()).filter(|&i| i != fastest).min_by(order);
    let sure = next.is_none_or(|next| !near(&next));
    Some((
        kept,
        if kept == fastest { next } else { Some(fastest) },
        sure,
    ))
}

/// What is used on one side from now on, and how sure that is.
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
    let (kept, next, sure) = choose(&all)?;
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
        .filter(|t| matches!(t.trouble, Some(Trouble::Late(_))))
        .count();
    if late > 0 {
        let count = side().count();
        text += &format!("; cannot tell about {late} of {count} variants, not tried in this time");
    }
    Some((running[kept], text))
}

/// The plan as a file for MORTONNET_PLAN.
fn plan_file(
    recipe: &PlanRecipe,
    identity: &(String, String),
    median: f64,
) -> Result<String, Error> {
    let model = Model::baked(recipe, None).map_err(Error::device)?;
    let name = tuned_name(&recipe.name);
    let text = |s: &str| {
        let mut quoted = String::new();
        render::json_string(&mut quoted, s);
        quoted
    };
    let kernels: Vec<String> = recipe.kernels.iter().map(|k| text(k)).collect();
    let group = |&(rows, cols): &(usize, usize)| match (rows, cols) {
        DRIVERS_CHOICE => "null".to_string(),
        _ => format!("[{rows}, {cols}]"),
    };
    let groups: Vec<String> = recipe
        .groups
        .iter()
        .map(|(k, g)| format!("{}: {}", text(k), group(g)))
        .collect();
    let layouts: Vec<String> = model
        .plan
        .layouts()
        .map(|(node, role, layout)| {
            format!(
                "{{\"node\": {}, \"role\": \"{role}\", \"layout\": \"{layout}\"}}",
                text(&node)
            )
        })
        .collect();
    let few = recipe.few.as_ref().map_or(String::new(), |few| {
        let kernels: Vec<String> = few.kernels.iter().map(|k| text(k)).collect();
        let kernels = kernels.join(", ");
        format!(
            "  \"few\": {{\"records\": {}, \"kernels\": [{kernels}]}},\n",
            few.records
        )
    });
    Ok(format!(
        "{{\n  \"format\": 1,\n  \"name\": {},\n  \"engine\": \"{}\",\n  \"batch\": {},\n  \"about\": {},\n  \
         \"kernels\": [{}],\n{few}  \"workGroups\": {{{}}},\n  \"layouts\": [\n    {}\n  ],\n  \"library\": \"{}\",\n  \
         \"model\": \"{}\",\n  \"device\": {},\n  \"driver\": {},\n  \"medianUs\": \
         {median:.2}\n}}\n",
        text(&name),
        recipe.engine,
        recipe.batch,
        text(&format!("Tuned for {} on {}.", network().name, identity.0)),
        kernels.join(", "),
        groups.join(", "),
        layouts.join(",\n    "),
        library().hash,
        network().hash,
        text(&identity.0),
        text(&identity.1),
    ))
}

fn table(timed: &[Timed], device: Option<&Device>, notes: Vec<String>) -> Report {
    let best = [true, false]
        .into_iter()
        .filter_map(|h| fastest(timed, h))
        .map(Timed::per_record);
    let best = best.fold(f64::INFINITY, f64::min);
    let rate = |t: &Timed| {
        if t.times.is_empty() {
            f64::INFINITY
        } else {
            t.per_record()
        }
    };
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
                    vec![
                        Cell::Text(side.into()),
                        Cell::Skipped(why.to_string()),
                        Cell::Empty,
                        Cell::Empty,
                    ]
                }
                None => vec![
                    Cell::Text(side.into()),
                    Cell::Measured(measured(&t.times)),
                    Cell::Text(format!("{:.0}", 1e6 / t.per_record())),
                    Cell::Text(format!("{:.2}", t.per_record() / best)),
                ],
            };
            Row {
                label: t.variant.label.clone(),
                cells,
            }
        })
        .collect();
    let mut head = vec![(
        "network".to_string(),
        format!("{}, {}", network().name, network().shape()),
    )];
    for d in [device, None]
        .into_iter()
        .take(if device.is_some() { 2 } else { 1 })
    {
        let (name, driver) = identity(d);
        head.push((
            if d.is_some() { "device" } else { "host" }.into(),
            format!("{name}: {driver}"),
        ));
    }
    let section = Section {
        id: "tune".into(),
        title: "Variants, the fastest first".into(),
        rows_are: "variant".into(),
        unit: "µs".into(),
        larger_is_better: false,
        columns: ["on", "batch", "records/s", "times the fastest"]
            .map(String::from)
            .to_vec(),
        rows,
        notes,
        plot: Plot::None,
    };
    Report {
        head,
        sections: vec![section],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A winner is told from the next by more than what both spread; else the same one is kept in
    /// every run.
    #[test]
    fn the_same_one_is_kept_where_times_do_not_tell() {
        let of = |all: &[(f64, f64, bool)]| {
            choose(
                &all.iter()
                    .map(|&(time, spread, baked)| Candidate {
                        time,
                        spread,
                        baked,
                    })
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(5.0, 0.1, false)]), Some((0, None, true)));
        // Told: 1 apart, 0.3 of spread.
        assert_eq!(
            of(&[(5.0, 0.1, true), (4.0, 0.2, false)]),
            Some((1, Some(0), true))
        );
        // Not told: the baked one, or the first, whichever was the fastest this time.
        for (a, b) in [(5.0, 4.9), (4.9, 5.0)] {
            let kept = |baked| of(&[(a, 0.1, false), (b, 0.1, baked), (9.0, 0.1, false)]).unwrap();
            assert_eq!((kept(true).0, kept(true).2), (1, false));
            assert_eq!((kept(false).0, kept(false).2), (0, false));
        }
        // The fastest is not told from one, but from the baked one.
        assert_eq!(
            of(&[(5.0, 0.1, true), (4.0, 0.1, false), (4.1, 0.1, false)]),
            Some((1, Some(2), false))
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
