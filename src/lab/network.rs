//! `bench network`: the baked network, or any shape with generated weights, with resident input or
//! from host to host.

use super::live::{Progress, STOPPED, stopped};
use super::reference;
use super::render::{OutputFormat, json_string};
use super::shapes::generated;
use super::table::{Cell, Measured, Plot, Row, Section};
use super::{Budget, KernelBench, Target, too_long};
use crate::baked::{library, network};
use crate::cl::Device;
use crate::engine::Engine;
use crate::engine::host::HostEngine;
use crate::engine::model::{Model, baked_tensors};
use crate::engine::opencl::{self, OpenClEngine, Wanted};
use crate::engine::select::{DeviceWish, threads};
use crate::engine::sources::Sources;
use crate::error::Error;
use crate::ir::graph::Shape;
use crate::ir::network::{Kind, Network, Precision};
use crate::ir::op::Op;
use crate::ir::values;
use crate::observe::profile::Phases;
use crate::ops::bound::excess;
use crate::registry::{EngineKind, Operation, PlanRecipe};
use crate::simd;
use crate::sys::thread::cpu_time;
use std::time::Instant;

/// Records of a batch where nothing else is said: the thesis's.
pub(crate) const BATCH: usize = 100;

/// What measures a network: it runs on a device and is fed random records.
pub(crate) struct Harness {
    /// The engine.
    pub(crate) engine: Box<dyn Engine>,
    /// The model's plan name and launches of a batch.
    pub(crate) plan: String,
    /// Launches (or host steps) of a batch.
    pub(crate) launches: usize,
    /// Flop of a record.
    pub(crate) flop: u64,
    records: Vec<f32>,
    /// As found when the scores were checked.
    classes: Vec<Option<u32>>,
    width: usize,
    batch: usize,
}

/// Why a batch is left out of whose longest launch, in microseconds, and of which as a whole, in
/// seconds, so much is known.
pub(crate) type Refuses<'r> = &'r dyn Fn(f64, f64) -> Option<String>;

/// Nothing is left out: it was asked for by its name.
const ANYTHING: Refuses = &|_, _| None;

/// Records out of a batch that tell how long it takes, one part of so many.
const PART: usize = 8;

impl Harness {
    /// Starts `recipe` for the network on `device` (`None`: the host), and checks the answers of a
    /// batch against float64. `refuses` is asked before a whole batch runs on a device. `classes`
    /// adds the arg-max.
    pub(crate) fn new(
        (network, weights): (&Network, &[Vec<f32>]),
        device: Option<&Device>,
        recipe: &PlanRecipe,
        (batch, timed): (usize, bool),
        sources: &Sources,
        refuses: Refuses,
    ) -> Result<Harness, Error> {
        let model = Model::new(network.clone(), weights, recipe, library(), Some(batch))
            .map_err(Error::device)?;
        let (plan, launches) = (model.plan.name.to_string(), model.plan.full().len());
        let wanted = Wanted {
            scores: true,
            classes: network.output.kind == Kind::Classes,
        };
        // Variants come and go: their programs would push those of the network out of the cache.
        let sources = sources.uncached();
        let start = |wanted| -> Result<(Box<dyn Engine>, usize), Error> {
            Ok(match device {
                Some(d) => {
                    let engine = OpenClEngine::new(
                        d,
                        &model,
                        wanted,
                        timed,
                        &sources,
                        &mut Phases::default(),
                    )?;
                    let launches = engine.plan().variant(batch).0.len();
                    (Box::new(engine), launches)
                }
                None => (
                    Box::new(HostEngine::new(model.clone(), threads(), timed)?),
                    launches,
                ),
            })
        };
        let (engine, launches) = start(wanted)?;
        let mut random = reference::fresh();
        let records = (0..batch * network.width).map(|_| random.float()).collect();
        let width = network.width;
        let mut harness = Harness {
            engine,
            plan,
            launches,
            flop: network.flop(),
            records,
            classes: Vec::new(),
            width,
            batch,
        };
        if device.is_some() {
            let (longest, all) = harness.predict(&model)?;
            refuses(longest, all / 1e6).map_or(Ok(()), |why| Err(Error::device(why)))?;
        }
        harness.check(network, weights)?;
        harness.classes = (0..batch)
            .map(|n| harness.engine.answer(0, n).class)
            .collect();
        if device.is_some() && wanted.classes {
            // From host to host the classes are all that is wanted: scores stay where they are.
            (harness.engine, harness.launches) = start(Wanted {
                scores: false,
                classes: true,
            })?;
        }
        Ok(harness)
    }

    fn fill(&mut self) -> Result<(), Error> {
        for (n, values) in self.records.chunks_exact(self.width).enumerate() {
            self.engine.record(0, n)?.fill(values);
        }
        Ok(())
    }

    /// Microseconds of the longest launch of a batch, and of all, out of a part of its records:
    /// launches are as long as their shares of the work.
    fn predict(&mut self, model: &Model) -> Result<(f64, f64), Error> {
        // Few records may have kernels of their own.
        let part = (self.batch / PART)
            .max(self.engine.few() + 1)
            .min(self.batch);
        self.fill()?;
        let mut all = f64::INFINITY;
        // Drivers compile at the first launch, which is enough where it was short.
        for _ in 0..2 {
            let start = Instant::now();
            self.engine.resident(part)?;
            let us = start.elapsed().as_secs_f64() * 1e6;
            all = all
                .min(us * model.plan.columns(self.batch) as f64 / model.plan.columns(part) as f64);
            if too_long(all).is_none() {
                break;
            }
        }
        let steps = &model.plan.steps[model.plan.variant(self.batch).0];
        let work: u64 = steps.iter().map(|s| s.flop).sum();
        let most = steps.iter().map(|s| s.flop).max().unwrap_or(0);
        Ok((
            all * if work > 0 {
                most as f64 / work as f64
            } else {
                1.0
            },
            all,
        ))
    }

    /// Runs a batch: the scores of its first and last record against float64.
    fn check(&mut self, network: &Network, weights: &[Vec<f32>]) -> Result<(), Error> {
        self.fill()?;
        self.engine.submit(0, self.batch)?;
        self.engine.collect(0)?;
        for n in [0, self.batch - 1] {
            let raw: Vec<f64> = self.records[n * self.width..(n + 1) * self.width]
                .iter()
                .map(|&v| f64::from(v))
                .collect();
            let expected = network.scores(weights, &raw);
            let e = excess(&expected, self.engine.answer(0, n).scores.iter());
            if e > 1.0 {
                let text = format!(
                    "{} under plan {}: record {n} is {e:.2} times the bound off",
                    network.name, self.plan
                );
                return Err(Error::check(text));
            }
        }
        Ok(())
    }

    /// Microseconds of `runs` batches with resident input, from the first enqueue to the end of the
    /// last step.
    pub(crate) fn resident(&mut self, runs: usize) -> Result<Vec<f64>, Error> {
        (0..=runs)
            .map(|_| {
                let start = Instant::now();
                self.engine.resident(self.batch)?;
                Ok(start.elapsed().as_secs_f64() * 1e6)
            })
            .skip(1)
            .collect()
    }

    /// The share of the cores' measured peak that a batch with resident input reaches: its flop
    /// over those that one core could have done in the CPU time that all threads took. The median
    /// of twenty batches, each beside a measurement of the peak.
    fn share_of_peak(&mut self) -> Result<f64, Error> {
        let shares: Result<Vec<f64>, Error> = (0..20)
            .map(|_| {
                let peak = simd::peak();
                let start = cpu_time();
                self.engine.resident(self.batch)?;
                let seconds = (cpu_time() - start).as_secs_f64();
                Ok((self.flop * self.batch as u64) as f64 / (seconds * peak))
            })
            .collect();
        Ok(quantile(&shares?, 0.5))
    }

    /// Microseconds of `runs` batches to classes on the host: from records in plain order in any
    /// memory, and from records in the engine's slot (where the stream's readers put them). The
    /// last classes are compared with those that were found when the scores were checked.
    pub(crate) fn host_to_host(&mut self, runs: usize) -> Result<(Vec<f64>, Vec<f64>), Error> {
        let mut sum = 0u64;
        let times: Result<_, Error> = (0..=runs)
            .map(|_| {
                let start = Instant::now();
                self.fill()?;
                let filled = Instant::now();
                self.engine.submit(0, self.batch)?;
                self.engine.collect(0)?;
                sum += (0..self.batch)
                    .map(|n| u64::from(self.engine.answer(0, n).class.unwrap_or(0)))
                    .sum::<u64>();
                Ok((
                    start.elapsed().as_secs_f64() * 1e6,
                    filled.elapsed().as_secs_f64() * 1e6,
                ))
            })
            .skip(1)
            .collect();
        std::hint::black_box(sum);
        if self
            .classes
            .iter()
            .enumerate()
            .any(|(n, &c)| self.engine.answer(0, n).class != c)
        {
            return Err(Error::check(format!(
                "plan {}: other classes than with scores",
                self.plan
            )));
        }
        times
    }
}

/// The value below which `share` of the sorted times lie.
pub(crate) fn quantile(times: &[f64], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(f64::NAN)
}

/// The plan for a device: the one that was asked for, or that of its class.
pub(crate) fn recipe_for(
    device: Option<&Device>,
    name: Option<&str>,
) -> Result<&'static PlanRecipe, Error> {
    let kind = if device.is_some() {
        EngineKind::OpenCl
    } else {
        EngineKind::Host
    };
    let class = match device {
        Some(d) => opencl::class(d),
        None => library().host_class(std::env::consts::ARCH),
    };
    let name = match name {
        Some("baked") => &*crate::baked::plan().name,
        Some(name) => name,
        None => class.map_or("", |c| &*c.plan),
    };
    crate::engine::model::recipe(name, kind).map_err(|e| Error::usage(format!("--plan: {e}")))
}

/// `mortonnet bench network`
#[derive(Clone, Debug)]
pub(crate) struct NetworkBench {
    /// Device.
    pub(crate) target: Target,
    /// `--kernels`
    pub(crate) sources: Sources,
    /// Least number of timed batches.
    pub(crate) repeat: usize,
    /// How the row is printed.
    pub(crate) output: OutputFormat,
    /// Records of a batch.
    pub(crate) batch: Option<usize>,
    /// Plan.
    pub(crate) plan: Option<String>,
    /// `784-100-10:relu`, or the name of one of the thesis's networks; `None` is the baked one.
    pub(crate) shape: Option<String>,
    /// How weights are stored, else as they were baked (`--shape`: f32).
    pub(crate) weights: Option<Precision>,
    /// From records on the host to classes on the host.
    pub(crate) host: bool,
}

impl NetworkBench {
    /// Prints one row.
    pub(crate) fn run(
        &self,
        print: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let device = match self.target.device {
            DeviceWish::Host => None,
            // Nothing asked for: the device of the plan, else the host.
            DeviceWish::Auto if self.target.compute_units.is_none() => {
                let plan = self.plan.as_deref().map(|p| {
                    if p == "baked" {
                        &*crate::baked::plan().name
                    } else {
                        p
                    }
                });
                match plan
                    .map(|p| library().plan(p).map_err(Error::usage))
                    .transpose()?
                {
                    Some(p) if p.engine == EngineKind::OpenCl => Some(self.target.device()?),
                    _ => None,
                }
            }
            _ => Some(self.target.device()?),
        };
        if let (None, Some(folder)) = (&device, &self.sources.folder) {
            return Err(Error::usage(format!(
                "--kernels {}: bench network runs on the host here, and the host no OpenCL \
                 kernel: add --device opencl",
                crate::escape::path(folder)
            )));
        }
        self.sources.check()?;
        let kind = if self.host {
            Kind::Classes
        } else {
            Kind::Values
        };
        let (network, weights) = match &self.shape {
            Some(shape) => {
                generated(shape, kind).map_err(|e| Error::usage(format!("--shape: {e}")))?
            }
            None => {
                let mut network = network().clone();
                network.output.kind = kind;
                (network, baked_tensors())
            }
        };
        let (mut network, mut weights) = (network, weights);
        if let Some(precision) = self.weights {
            network.weights = precision;
        }
        // What the plan stores is what float64 is compared with.
        values::round(network.weights, &network.graph, &mut weights);
        let recipe = recipe_for(device.as_ref(), self.plan.as_deref())?;
        let batch = self.batch.unwrap_or(BATCH);
        let mut harness = Harness::new(
            (&network, &weights),
            device.as_ref(),
            recipe,
            (batch, false),
            &self.sources,
            ANYTHING,
        )?;
        self.sources.check_read(&format!("plan {}", harness.plan))?;
        let runs = runs_for(&mut harness, self.repeat)?;
        let (times, from_slot) = if self.host {
            harness.host_to_host(runs)?
        } else {
            (harness.resident(runs)?, Vec::new())
        };
        if !self.host {
            harness.check(&network, &weights)?;
        }
        let median = quantile(&times, 0.5);
        let name = device
            .as_ref()
            .map_or(format!("host {} threads", threads()), |d| d.name.clone());
        let mut values = vec![
            ("network", network.name.to_string()),
            ("device", name.replace(',', " ")),
            ("plan", harness.plan.clone()),
            ("batch", batch.to_string()),
            ("launches", harness.launches.to_string()),
            ("median_us", format!("{median:.2}")),
            ("p95_us", format!("{:.2}", quantile(&times, 0.95))),
            (
                "gflops",
                format!("{:.3}", harness.flop as f64 * batch as f64 / median / 1e3),
            ),
        ];
        if device.is_none() && !self.host {
            values.push(("peak_share", format!("{:.3}", harness.share_of_peak()?)));
        }
        if self.host {
            values.push(("from_slot_us", format!("{:.2}", quantile(&from_slot, 0.5))));
        }
        let names: Vec<&str> = values.iter().map(|v| v.0).collect();
        let row: Vec<&str> = values.iter().map(|v| &*v.1).collect();
        let text = match self.output {
            OutputFormat::Json => {
                let pairs: Vec<String> = values
                    .iter()
                    .map(|(n, v)| format!("\"{n}\":{}", json(n, v)))
                    .collect();
                format!("{{{}}}\n", pairs.join(","))
            }
            OutputFormat::Md => {
                let line = vec!["---"; names.len()].join(" | ");
                format!(
                    "| {} |\n| {line} |\n| {} |\n",
                    names.join(" | "),
                    row.join(" | ")
                )
            }
            OutputFormat::Csv | OutputFormat::Table => {
                format!("{}\n{}\n", names.join(","), row.join(","))
            }
        };
        print(&text)
    }
}

/// A value of the row as JSON: whatever they look like, names are texts; numbers that JSON does not
/// have are null.
fn json(name: &str, value: &str) -> String {
    let mut text = String::new();
    match value.parse::<f64>() {
        _ if ["network", "device", "plan"].contains(&name) => json_string(&mut text, value),
        Ok(number) if number.is_finite() => text.push_str(value),
        _ => text.push_str("null"),
    }
    text
}

/// As many runs as fit into about two seconds, at least `--repeat`.
fn runs_for(harness: &mut Harness, repeat: usize) -> Result<usize, Error> {
    let one = harness
        .resident(3)?
        .into_iter()
        .fold(f64::INFINITY, f64::min);
    let least = repeat.max(1);
    Ok(((2e6 / one.max(1.0)) as usize).clamp(least, least.max(2000)))
}

/// The thesis's table 10.5: the network, ms on the board's GPU, ms of NumPy on its CPU.
const TABLE_10_5: [(&str, f64, f64); 4] = [
    ("partial-mnist", 1.99, 38.14),
    ("partial-cifar", 0.66, 11.20),
    ("full-mnist", 129.33, 3705.50),
    ("full-cifar", 506.15, 19673.92),
];

/// What bounds the documents' networks.
pub(crate) struct Guard<'g> {
    /// The time that is left, and of a launch.
    pub(crate) budget: &'g Budget,
    /// Where it is said what runs.
    pub(crate) progress: Progress,
}

/// Batches of a network that are timed at most, and those that tell how long they take and check
/// them.
const BATCHES: f64 = 56.0;

impl Guard<'_> {
    /// Why a batch is left out of whose longest launch and of which as a whole so much is known.
    fn refuses(&self, longest: f64, all: f64) -> Option<String> {
        // Batches are timed for two seconds, or as many as are asked for.
        self.budget
            .refuses(longest, (all * BATCHES).min(2.0).max(all * 4.0))
    }

    /// Says what runs next, unless the run was stopped or its time is over.
    fn goes_on(&self, what: &str) -> Result<(), Error> {
        self.progress.show(what);
        match stopped() {
            true => Err(Error::device(STOPPED)),
            false => self
                .budget
                .refuses(0.0, 0.0)
                .map_or(Ok(()), |why| Err(Error::device(why))),
        }
    }
}

/// Figures 6.1 and 6.2 (the baseline, kernel by kernel) of the thesis, and its figure 10.1 and
/// table 10.5 (four networks).
pub(crate) fn sections(
    device: &Device,
    peaks: (Option<f64>, Option<f64>),
    (options, [ten, six]): (&KernelBench, [bool; 2]),
    guard: &Guard,
    put: &mut dyn FnMut(Section) -> Result<(), Error>,
) -> Result<(), Error> {
    if ten {
        put(four(device, peaks, options, guard, &TABLE_10_5)?)?;
    }
    if six {
        put(breakdown(device, options, guard, 1000)?)?;
    }
    Ok(())
}

fn section(id: &str, title: &str, rows_are: &str, plot: Plot) -> Section {
    Section {
        id: id.into(),
        title: title.into(),
        rows_are: rows_are.into(),
        unit: "ms".into(),
        larger_is_better: false,
        columns: Vec::new(),
        rows: Vec::new(),
        notes: Vec::new(),
        plot,
    }
}

/// The networks of `document` under the thesis's last plan, under the plan of the device's class,
/// and on the host.
fn four(
    device: &Device,
    (peak, nominal): (Option<f64>, Option<f64>),
    options: &KernelBench,
    guard: &Guard,
    document: &[(&str, f64, f64)],
) -> Result<Section, Error> {
    let title = "Four networks, batches of 100 (thesis, fig. 10.1 and table 10.5)";
    let mut s = section("thesis_10", title, "network", Plot::None);
    let mut recipes = vec![recipe_for(Some(device), Some("thesis-morton"))?];
    let own = recipe_for(Some(device), options.plan.as_deref())?;
    if own.name != recipes[0].name {
        recipes.push(own);
    }
    for recipe in &recipes {
        s.columns.push(recipe.name.to_string());
        s.columns.push(format!("{}, kernels alone", recipe.name));
        s.columns.push(format!("{}, of nominal peak", recipe.name));
    }
    s.columns
        .extend(["host engine".into(), format!("host engine / {}", own.name)]);
    let document_columns = [
        "Mali-T628, document",
        "NumPy on the board, document",
        "times faster, document",
    ];
    s.columns.extend(document_columns.map(String::from));
    for &(name, on_device, numpy) in document {
        let (network, weights) = generated(name, Kind::Values).map_err(Error::usage)?;
        let flop = network.flop() as f64 * BATCH as f64;
        let measure = |device: Option<&Device>, recipe: &PlanRecipe| -> Result<Measured, Error> {
            guard.goes_on(&format!("{name}, plan {}", recipe.name))?;
            let refuses = |longest, all| guard.refuses(longest, all);
            let (of, sources) = ((&network, &*weights), &options.sources);
            let mut harness = Harness::new(of, device, recipe, (BATCH, false), sources, &refuses)?;
            let runs = runs_for(&mut harness, options.repeat)?.min(50);
            let ms: Vec<f64> = harness.resident(runs)?.iter().map(|us| us / 1e3).collect();
            let m = measured(&ms);
            let percent = peak
                .filter(|_| device.is_some())
                .map(|peak| flop / m.value / 1e4 / peak);
            Ok(Measured { percent, ..m })
        };
        // Device time of all steps, by batch.
        let kernels_alone = |recipe: &PlanRecipe| -> Result<Measured, Error> {
            guard.goes_on(&format!("{name}, plan {}, kernels alone", recipe.name))?;
            let refuses = |longest, all| guard.refuses(longest, all);
            let (of, sources) = ((&network, &*weights), &options.sources);
            let mut harness =
                Harness::new(of, Some(device), recipe, (BATCH, true), sources, &refuses)?;
            let (each, _) = steps(&mut harness, &network, &weights, recipe, options)?;
            let runs = each.first().map_or(0, |(_, ms)| ms.len());
            let sums: Vec<f64> = (0..runs)
                .map(|run| each.iter().map(|(_, ms)| ms[run]).sum())
                .collect();
            Ok(measured(&sums))
        };
        let cell = |found: &Result<Measured, Error>| match found {
            Ok(m) => Cell::Measured(*m),
            Err(e) => Cell::Skipped(e.to_string()),
        };
        let (mut cells, mut last) = (Vec::new(), None);
        for recipe in &recipes {
            let found = measure(Some(device), recipe);
            last = found.as_ref().ok().map(|m| m.value);
            cells.push(cell(&found));
            cells.push(cell(&kernels_alone(recipe)));
            let share = last
                .zip(nominal)
                .map(|(ms, peak)| format!("{:.1} %", flop / ms / 1e4 / peak));
            cells.push(share.map_or(Cell::Empty, Cell::Text));
        }
        let host = measure(None, recipe_for(None, None)?);
        cells.push(cell(&host));
        let ratio = last
            .zip(host.ok())
            .map(|(ms, host)| format!("{:.2}", host.value / ms));
        cells.push(ratio.map_or(Cell::Empty, Cell::Text));
        cells.extend([on_device, numpy, numpy / on_device].map(Cell::Document));
        s.rows.push(Row {
            label: name.into(),
            cells,
        });
    }
    s.notes =
        vec![
        "Resident input, from the first enqueue to the end of the last step, arg-max left out. \
         Percent: flop (2 a \
         multiply-add, padding not counted) in this time, of the measured peak."
            .into(),
        "Kernels alone: device time of all steps of a batch, added up; what the plan's own column \
         has beyond it are launches \
         and the gaps between kernels."
            .into(),
        format!("Columns are plans; the document's system is thesis-morton. Host engine: {} \
            threads.", threads()),
    ];
    Ok(s)
}

/// The baseline network kernel by kernel: under the two plans of the thesis, on the host, and by
/// plain loops.
fn breakdown(
    device: &Device,
    options: &KernelBench,
    guard: &Guard,
    records: usize,
) -> Result<Section, Error> {
    let title = format!(
        "The baseline network, {records} records, kernel by kernel (thesis, fig. 6.1 and 6.2)"
    );
    let mut s = section("thesis_6", &title, "step", Plot::Bars);
    let (network, weights) = generated("baseline", Kind::Values).map_err(Error::usage)?;
    let sides = [
        ("thesis-baseline", Some(device)),
        ("thesis-morton", Some(device)),
        ("host", None),
    ];
    // For each side: milliseconds of each step, in order, and from the first enqueue to the end of
    // the last step.
    let mut found: Vec<(String, Result<Steps, Error>)> = Vec::new();
    for (plan, device) in sides {
        let recipe = recipe_for(device, Some(plan))?;
        let name = if device.is_some() {
            plan.to_string()
        } else {
            "host engine".into()
        };
        let refuses = |longest, all| guard.refuses(longest, all);
        let (of, sources) = ((&network, &*weights), &options.sources);
        let harness = guard
            .goes_on(&format!("baseline, plan {plan}"))
            .and_then(|()| Harness::new(of, device, recipe, (records, true), sources, &refuses));
        found.push((
            name,
            harness
                .and_then(|mut harness| steps(&mut harness, &network, &weights, recipe, options)),
        ));
    }
    let sequential = guard.goes_on("baseline, by plain loops").and_then(|()| {
        // A part of the records tells how long all of them take.
        let part = records.div_ceil(PART * PART);
        let start = Instant::now();
        sequential_steps(&network, &weights, part, 1);
        let all = start.elapsed().as_secs_f64() * (SEQUENTIAL * records / part) as f64;
        let refused = guard.budget.refuses(0.0, all).map(Error::device);
        refused.map_or_else(
            || Ok(sequential_steps(&network, &weights, records, SEQUENTIAL)),
            Err,
        )
    });
    found.push(("sequential CPU".into(), sequential));
    for (column, (_, side)) in found.iter().enumerate() {
        for (label, _) in side.iter().flat_map(|side| &side.0) {
            if !s.rows.iter().any(|r| r.label == *label) {
                s.rows.push(Row {
                    label: label.clone(),
                    cells: vec![Cell::Empty; found.len()],
                });
            }
        }
        for row in &mut s.rows {
            if let Ok((steps, _)) = side {
                if let Some((_, ms)) = steps.iter().find(|step| step.0 == row.label) {
                    row.cells[column] = Cell::Measured(measured(ms));
                }
            }
        }
    }
    let total = found.iter().map(|(_, side)| match side {
        Ok((_, ms)) => Cell::Measured(measured(ms)),
        Err(e) => Cell::Skipped(e.to_string()),
    });
    s.rows.push(Row {
        label: "total".into(),
        cells: total.collect(),
    });
    s.columns = found.into_iter().map(|(name, _)| name).collect();
    s.notes = vec![
        "Steps: device time. Total: from the first enqueue to the end of the last step, so \
         launches and the gaps between \
         kernels count. The host engine's steps are fused, and the times of its threads are added \
         up; its total is \
         wall time."
            .into(),
        "Sequential CPU: plain loops over row-major floats on one thread, as the thesis-baseline \
         kernels compute."
            .into(),
        "The document has these times as bars without numbers.".into(),
    ];
    Ok(s)
}

/// Milliseconds of each step and of all of them, by run.
type Steps = (Vec<(String, Vec<f64>)>, Vec<f64>);

/// `layer 2 matmul`
fn label(layer: usize, operation: &str) -> String {
    format!("layer {layer} {operation}")
}

/// Times of the steps of a timed network.
fn steps(
    harness: &mut Harness,
    network: &Network,
    weights: &[Vec<f32>],
    recipe: &PlanRecipe,
    options: &KernelBench,
) -> Result<Steps, Error> {
    let model = Model::new(
        network.clone(),
        weights,
        recipe,
        library(),
        Some(harness.batch),
    )
    .map_err(Error::device)?;
    let names = model
        .plan
        .steps
        .iter()
        .map(|s| label(s.node, s.operation.name()));
    let mut all: Vec<(String, Vec<f64>)> = names.map(|name| (name, Vec::new())).collect();
    harness.resident(1)?;
    let mut total = Vec::new();
    for _ in 0..options.repeat.max(3) {
        harness.engine.forget_times();
        let start = Instant::now();
        harness.engine.resident(harness.batch)?;
        total.push(start.elapsed().as_secs_f64() * 1e3);
        let clock = harness.engine.step_times();
        for ((_, ms), times) in all.iter_mut().zip(clock.iter().flat_map(|c| &c.steps)) {
            ms.push(times.run.total_us() / 1e3);
        }
    }
    Ok((all, total))
}

/// Runs of [`sequential`].
const SEQUENTIAL: usize = 3;

/// The same by [`sequential`].
fn sequential_steps(network: &Network, weights: &[Vec<f32>], records: usize, runs: usize) -> Steps {
    let mut random = reference::Random::new(records as u64);
    let input: Vec<f32> = (0..network.width * records)
        .map(|_| random.float())
        .collect();
    let mut all: Vec<(String, Vec<f64>)> = Vec::new();
    let mut total = Vec::new();
    for run in 0..runs {
        let start = Instant::now();
        let (scores, steps) = sequential(network, weights, &input, records);
        total.push(start.elapsed().as_secs_f64() * 1e3);
        std::hint::black_box(scores);
        for (i, (name, ms)) in steps.into_iter().enumerate() {
            if run == 0 {
                all.push((name, Vec::new()));
            }
            all[i].1.push(ms);
        }
    }
    (all, total)
}

/// A network by plain loops on one thread: matrices row major, records as columns. The scores, and
/// milliseconds of each step.
fn sequential(
    network: &Network,
    weights: &[Vec<f32>],
    input: &[f32],
    records: usize,
) -> (Vec<f32>, Vec<(String, f64)>) {
    let graph = &network.graph;
    let (mut all, mut steps) = (vec![Vec::new(); graph.values.len()], Vec::new());
    all[graph.inputs[0]] = input.to_vec();
    let mut timed = |layer: usize, operation: &str, work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        steps.push((label(layer, operation), start.elapsed().as_secs_f64() * 1e3));
    };
    for (i, node) in graph.nodes.iter().enumerate() {
        let values: &Vec<f32> = &all[node.inputs[0]];
        let result = match node.op {
            Op::Affine => {
                let (w, biases) = (&weights[node.tensors[0]], &weights[node.tensors[1]]);
                let (outputs, inputs) = (biases.len(), w.len() / biases.len().max(1));
                let mut result = vec![0.0f32; outputs * records];
                timed(i, Operation::Matmul.name(), &mut || {
                    for (row, results) in result.chunks_exact_mut(records).enumerate() {
                        for (col, r) in results.iter_mut().enumerate() {
                            let mut sum = 0.0;
                            for k in 0..inputs {
                                sum += w[row * inputs + k] * values[k * records + col];
                            }
                            *r = sum;
                        }
                    }
                });
                timed(i, Operation::Bias.name(), &mut || {
                    for (results, bias) in result.chunks_exact_mut(records).zip(biases) {
                        results.iter_mut().for_each(|r| *r += bias);
                    }
                });
                result
            }
            Op::Activation(a) => {
                let mut result = values.clone();
                timed(i, a.name(), &mut || {
                    result
                        .iter_mut()
                        .for_each(|v| *v = a.apply(f64::from(*v)) as f32);
                });
                result
            }
            op => {
                let shape = graph.values[node.output].shape;
                let mut result = vec![0.0f32; shape.len() * records];
                let column = |value: usize, col: usize| -> Vec<f64> {
                    all[value]
                        .iter()
                        .skip(col)
                        .step_by(records)
                        .map(|&v| f64::from(v))
                        .collect()
                };
                let arrays = graph.arrays(node, weights);
                let arrays: Vec<&[f32]> = arrays.iter().map(|a| &**a).collect();
                timed(i, op.name(), &mut || {
                    for col in 0..records {
                        let inputs: Vec<Vec<f64>> =
                            node.inputs.iter().map(|&v| column(v, col)).collect();
                        let inputs: Vec<(&[f64], Shape)> = inputs
                            .iter()
                            .zip(&*node.inputs)
                            .map(|(x, &v)| (&x[..], graph.values[v].shape))
                            .collect();
                        let of = op.reference(&inputs, &arrays, shape);
                        result
                            .iter_mut()
                            .skip(col)
                            .step_by(records)
                            .zip(of)
                            .for_each(|(r, x)| *r = x as f32);
                    }
                });
                result
            }
        };
        all[node.output] = result;
    }
    (
        graph
            .outputs
            .first()
            .map(|&v| std::mem::take(&mut all[v]))
            .unwrap_or_default(),
        steps,
    )
}

/// Median and half the distance between the quartiles; one value has no such distance.
pub(crate) fn measured(values: &[f64]) -> Measured {
    Measured {
        value: quantile(values, 0.5),
        spread: (values.len() > 1).then(|| (quantile(values, 0.75) - quantile(values, 0.25)) / 2.0),
        runs: values.len() as u32,
        ..Measured::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cl::{self, ClLibrary};
    use crate::lab::Page;
    use crate::lab::render::text;
    use crate::lab::table::Report;
    use std::sync::LazyLock;

    fn pocl() -> Device {
        let library = ClLibrary::open().expect("the tests need OpenCL");
        let all = cl::devices(library).unwrap().devices;
        // A simulator would take minutes.
        all.into_iter()
            .find(|d| !d.name.contains("clgrind"))
            .expect("the tests need PoCL")
    }

    fn options() -> KernelBench {
        KernelBench {
            names: Vec::new(),
            target: Target {
                device: DeviceWish::Auto,
                compute_units: None,
            },
            sources: Sources::default(),
            library: None,
            sizes: Vec::new(),
            repeat: 3,
            check: false,
            inputs: false,
            time_limit: None,
            plan: None,
            page: Page {
                output: OutputFormat::Table,
                file: None,
                against: None,
            },
        }
    }

    static FREE: LazyLock<Budget> = LazyLock::new(|| Budget::new(None));

    fn guard(budget: &Budget) -> Guard<'_> {
        Guard {
            budget,
            progress: Progress::new(),
        }
    }

    /// A network is not run whose launches are predicted to be too long, or where the time is over.
    #[test]
    fn long_batches_are_left_out() {
        let (network, weights) = generated("100-100-10", Kind::Values).unwrap();
        let device = pocl();
        let recipe = recipe_for(Some(&device), Some("thesis-morton")).unwrap();
        let start = |refuses: Refuses| {
            let sources = Sources::default();
            Harness::new(
                (&network, &weights),
                Some(&device),
                recipe,
                (40, false),
                &sources,
                refuses,
            )
        };
        let asked = std::cell::Cell::new((0.0, 0.0));
        let harness = start(&|longest, all| {
            asked.set((longest, all));
            None
        });
        assert!(harness.is_ok());
        let (longest, all) = asked.get();
        // 100×100 of 11000 multiply-adds are in the longest launch, and what is padded.
        assert!(
            (0.85..0.95).contains(&(longest / (all * 1e6))),
            "{longest} {all}"
        );
        let Err(e) = start(&|_, _| too_long(8e6)) else {
            panic!("it runs")
        };
        assert_eq!(
            e.to_string(),
            "a launch would take about 8.0 s, more than 1 s"
        );
        let over = Budget::new(Some(std::time::Duration::ZERO));
        let s = breakdown(&device, &options(), &guard(&over), 32);
        let cells: Vec<Cell> = s.unwrap().rows.into_iter().flat_map(|r| r.cells).collect();
        assert!(
            cells.iter().all(|c| matches!(c, Cell::Skipped(_))),
            "{cells:?}"
        );
    }

    fn column(s: &Section, name: &str) -> usize {
        s.columns
            .iter()
            .position(|c| c == name)
            .unwrap_or_else(|| panic!("{name}: {:?}", s.columns))
    }

    #[test]
    fn one_value_has_no_spread() {
        assert_eq!(measured(&[2.0]).spread, None);
        assert_eq!(measured(&[1.0, 2.0, 3.0, 5.0]).spread, Some(1.0));
    }

    /// A network may be called like a number; what is measured may be none.
    #[test]
    fn names_are_texts_and_numbers_are_json() {
        for name in ["007", "nan", "1e5", "inf", "a \"b\""] {
            let text = json("network", name);
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&text).unwrap(),
                name,
                "{text}"
            );
        }
        assert_eq!(
            (
                &*json("batch", "100"),
                &*json("gflops", "NaN"),
                &*json("gflops", "inf")
            ),
            ("100", "null", "null")
        );
    }

    /// Shapes whose sizes have the same sum have other weights.
    #[test]
    fn generated_networks_differ() {
        let first = |shape| generated(shape, Kind::Values).unwrap().1[0][0];
        let mut found: Vec<f32> = ["8-6-4", "6-8-4", "4-8-6", "9-5-4", "10-8"]
            .map(first)
            .to_vec();
        let scaled = |w: f32, inputs: f32| w / (3.0f32 / inputs).sqrt();
        for (w, inputs) in found.iter_mut().zip([8.0, 6.0, 4.0, 9.0, 10.0]) {
            *w = scaled(*w, inputs);
        }
        found.sort_unstable_by(f32::total_cmp);
        assert!(found.windows(2).all(|w| w[1] - w[0] > 1e-6), "{found:?}");
    }

    #[test]
    fn plain_loops_compute_the_network() {
        let (network, weights) = generated("7-5-3:tanh", Kind::Values).unwrap();
        const RECORDS: usize = 4;
        let input: Vec<f32> = (0..7 * RECORDS).map(|i| (i as f32 * 0.37).sin()).collect();
        let (scores, steps) = sequential(&network, &weights, &input, RECORDS);
        let names: Vec<&str> = steps.iter().map(|s| &*s.0).collect();
        assert_eq!(
            names,
            [
                "layer 0 matmul",
                "layer 0 bias",
                "layer 1 tanh",
                "layer 2 matmul",
                "layer 2 bias"
            ]
        );
        for n in 0..RECORDS {
            let raw: Vec<f64> = (0..7).map(|i| f64::from(input[i * RECORDS + n])).collect();
            let expected = network.scores(&weights, &raw);
            assert!(excess(&expected, (0..3).map(|i| scores[i * RECORDS + n])) <= 1.0);
        }
    }

    /// The thesis's plan stands beside that of the device's class, by name, with the document's
    /// figures.
    #[test]
    fn table_10_5_has_the_thesis_plan() {
        let device = pocl();
        let own = &*recipe_for(Some(&device), None).unwrap().name;
        assert_ne!(own, "thesis-morton");
        let s = four(
            &device,
            (Some(100.0), Some(200.0)),
            &options(),
            &guard(&FREE),
            &TABLE_10_5[1..2],
        )
        .unwrap();
        let row = &s.rows[0];
        assert_eq!(row.label, "partial-cifar");
        for plan in ["thesis-morton", own] {
            let i = column(&s, plan);
            assert!(
                matches!(row.cells[i], Cell::Measured(m) if m.value > 0.0 && m.percent.is_some())
            );
            assert_eq!(s.columns[i + 1], format!("{plan}, kernels alone"));
            assert!(
                matches!(row.cells[i + 1], Cell::Measured(m) if m.value > 0.0),
                "{plan}"
            );
            assert_eq!(s.columns[i + 2], format!("{plan}, of nominal peak"));
            assert!(matches!(&row.cells[i + 2], Cell::Text(t) if t.ends_with(" %")));
        }
        assert!(s.columns.contains(&format!("host engine / {own}")));
        assert_eq!(
            row.cells[column(&s, "Mali-T628, document")],
            Cell::Document(0.66)
        );
        assert_eq!(
            row.cells[column(&s, "NumPy on the board, document")],
            Cell::Document(11.20)
        );
        assert_eq!(
            row.cells[column(&s, "times faster, document")],
            Cell::Document(11.20 / 0.66)
        );
        // Asked for by name, it stands there once.
        let once = KernelBench {
            plan: Some("thesis-morton".into()),
            ..options()
        };
        let s = four(&pocl(), (None, None), &once, &guard(&FREE), &[]).unwrap();
        assert_eq!(
            s.columns.iter().filter(|c| *c == "thesis-morton").count(),
            1
        );
    }

    #[test]
    fn figure_6_has_totals_a_sequential_cpu_and_real_spreads() {
        let s = breakdown(&pocl(), &options(), &guard(&FREE), 32).unwrap();
        assert_eq!(
            s.columns,
            [
                "thesis-baseline",
                "thesis-morton",
                "host engine",
                "sequential CPU"
            ]
        );
        let last = s.rows.last().unwrap();
        assert_eq!(last.label, "total");
        for (i, total) in last.cells.iter().enumerate() {
            let Cell::Measured(total) = total else {
                panic!("{total:?}")
            };
            let steps = s.rows[..s.rows.len() - 1]
                .iter()
                .filter_map(|r| match &r.cells[i] {
                    Cell::Measured(m) => Some(m),
                    _ => None,
                });
            let steps: Vec<&Measured> = steps.collect();
            assert!(!steps.is_empty() && steps.iter().all(|m| m.runs >= 3 && m.spread.is_some()));
            // The host's threads are added up, and a median of sums is no sum of medians.
            let sum: f64 = steps.iter().map(|m| m.value).sum();
            assert!(
                sum > 0.0 && (i == 2 || sum < 1.5 * total.value),
                "{sum} {total:?}"
            );
        }
        for label in [
            "layer 0 matmul",
            "layer 0 bias",
            "layer 1 sigmoid",
            "layer 4 bias",
        ] {
            let row = s.rows.iter().find(|r| r.label == label).unwrap();
            for i in [0, 1, 3] {
                assert!(matches!(row.cells[i], Cell::Measured(_)), "{label} {i}");
            }
        }
        let report = Report {
            head: Vec::new(),
            sections: vec![s],
        };
        let md = text(&report, OutputFormat::Md);
        assert!(md.lines().any(|l| l.starts_with("| total |")), "{md}");
    }
}
