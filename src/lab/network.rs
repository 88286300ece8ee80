//! Times whole networks. `bench network` runs the baked network, or a network of any shape with
//! generated weights. It times batches with resident input, or from host to host. The networks of
//! the documents' tables are timed here, too.

use super::layers::Layers;
use super::live::{Progress, STOPPED, stopped};
use super::reference;
use super::render::{ReportFormat, json_string};
use super::shapes::generated;
use super::table::{Cell, Measured, Plot, Section};
use super::{BenchTarget, Budget, KernelBench, too_long};
use crate::baked::{library, network};
use crate::cl::Device;
use crate::engine::Engine;
use crate::engine::host::HostEngine;
use crate::engine::model::{Model, baked_tensors};
use crate::engine::opencl::{self, OpenClEngine, Wanted};
use crate::engine::select::{DeviceWish, threads};
use crate::engine::sources::Sources;
use crate::error::Error;
use crate::ir::graph::{Node, Shape, Tensors};
use crate::ir::network::{Kind, Network, Precision};
use crate::ir::op::Op;
use crate::ir::plan::Step;
use crate::ir::values;
use crate::observe::profile::Phases;
use crate::ops::bound::excess;
use crate::registry::{EngineKind, Operation, PlanRecipe};
use crate::simd;
use crate::sys::thread::cpu_time;
use std::time::Instant;

/// The number of records in a batch, as in the thesis. `bench network --batch` replaces it.
pub(crate) const BATCH: usize = 100;

/// An engine that runs a network on a device or the host, with random records for timing it.
pub(crate) struct Harness {
    pub(crate) engine: Box<dyn Engine>,
    /// The name of the plan that the engine runs.
    pub(crate) plan: String,
    /// The number of kernel launches for a batch, or of steps on the host.
    pub(crate) launches: usize,
    /// The number of floating-point operations for one record.
    pub(crate) flop: u64,
    records: Vec<f32>,
    /// The class of each record, from the batch whose scores were checked.
    classes: Vec<Option<u32>>,
    width: usize,
    pub(super) batch: usize,
}

/// A network to measure and how it runs: the device, the plan and the size of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) network: &'a Network,
    pub(crate) weights: &'a [Vec<f32>],
    /// The OpenCL device, or `None` for the host engine.
    pub(crate) device: Option<&'a Device>,
    pub(crate) recipe: &'a PlanRecipe,
    pub(crate) batch: usize,
    /// True if the engine times each step.
    pub(crate) timed: bool,
    pub(crate) sources: &'a Sources,
}

/// The times that a batch is predicted to take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchPrediction {
    /// Predicted microseconds of the batch's longest launch.
    pub(crate) longest: f64,
    /// Predicted seconds of the whole batch.
    pub(crate) all: f64,
}

/// A function that returns the reason to skip a batch with these predicted times, or `None` to run
/// it.
pub(crate) type Refuses<'r> = &'r dyn Fn(BatchPrediction) -> Option<String>;

/// Skips no batch, because the user asked for this one network.
const ANYTHING: Refuses = &|_| None;

/// The time of a batch is predicted by running one `PART`th of its records.
const PART: usize = 8;

impl Setting<'_> {
    pub(super) fn model(&self) -> Result<Model, Error> {
        let (network, batch) = (self.network.clone(), Some(self.batch));
        Model::new(network, self.weights, self.recipe, library(), batch).map_err(Error::device)
    }

    /// Starts an engine. Returns it and the number of launches (or host steps) for a batch.
    fn start(&self, model: &Model, wanted: Wanted) -> Result<(Box<dyn Engine>, usize), Error> {
        let Some(device) = self.device else {
            let engine = HostEngine::new(model.clone(), threads(), self.timed)?;
            return Ok((Box::new(engine), model.plan.full().len()));
        };
        // Benchmarks start many variants of a plan. Their compiled programs are not cached on disk,
        // where they would displace those of the baked network.
        let sources = self.sources.uncached();
        let mut phases = Phases::default();
        let engine = OpenClEngine::new(device, model, wanted, self.timed, &sources, &mut phases)?;
        let (steps, _) = engine.plan().variant(self.batch);
        Ok((Box::new(engine), steps.len()))
    }
}

impl Harness {
    /// Starts an engine, and checks the scores of a batch's first and last record against float64.
    /// Before a device runs a whole batch, `refuses` may end the start with an error. The plan has
    /// an arg-max step if the network's output is classes.
    pub(crate) fn new(setting: Setting, refuses: Refuses) -> Result<Harness, Error> {
        let Setting {
            network,
            weights,
            device,
            batch,
            ..
        } = setting;
        let model = setting.model()?;
        let wanted = Wanted {
            scores: true,
            classes: network.output.kind == Kind::Classes,
        };
        let (engine, launches) = setting.start(&model, wanted)?;
        let mut random = reference::fresh();
        let mut harness = Harness {
            engine,
            plan: model.plan.name.to_string(),
            launches,
            flop: network.flop(),
            records: (0..batch * network.width).map(|_| random.float()).collect(),
            classes: Vec::new(),
            width: network.width,
            batch,
        };
        if device.is_some() {
            let refused = refuses(harness.predict(&model)?);
            refused.map_or(Ok(()), |why| Err(Error::device(why)))?;
        }
        harness.check(network, weights)?;
        harness.classes = (0..batch)
            .map(|n| harness.engine.answer(0, n).class)
            .collect();
        if device.is_some() && wanted.classes {
            // The engine that is timed returns only classes, so that the scores stay on the device.
            let classes = Wanted {
                scores: false,
                classes: true,
            };
            (harness.engine, harness.launches) = setting.start(&model, classes)?;
        }
        Ok(harness)
    }

    fn fill(&mut self) -> Result<(), Error> {
        for (n, values) in self.records.chunks_exact(self.width).enumerate() {
            self.engine.record(0, n)?.fill(values);
        }
        Ok(())
    }

    /// Predicts the times of a batch from a run with a part of its records. The longest launch is
    /// assumed to have the same share of the time as of the floating-point operations.
    fn predict(&mut self, model: &Model) -> Result<BatchPrediction, Error> {
        // Batches of at most `few()` records may run other kernels than a full batch. So the
        // predicting run has more records than that.
        let part = (self.batch / PART)
            .max(self.engine.few() + 1)
            .min(self.batch);
        self.fill()?;
        let mut all = f64::INFINITY;
        // The first run may include compiling in the driver. A second run follows only if the first
        // predicts a batch that takes too long for a launch.
        for _ in 0..2 {
            let start = Instant::now();
            self.engine.resident(part)?;
            let us = start.elapsed().as_secs_f64() * 1e6;
            let columns = |records| model.plan.columns(records) as f64;
            all = all.min(us * columns(self.batch) / columns(part));
            if too_long(all).is_none() {
                break;
            }
        }
        let (steps, _) = model.plan.variant(self.batch);
        let flop = || model.plan.steps[steps.clone()].iter().map(|s| s.flop);
        let share = match flop().sum::<u64>() {
            0 => 1.0,
            work => flop().max().unwrap_or(0) as f64 / work as f64,
        };
        Ok(BatchPrediction {
            longest: all * share,
            all: all / 1e6,
        })
    }

    /// Runs a batch, and compares the scores of its first and last record with float64.
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
            let e = e / f64::from(network.tolerance);
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

    /// Times `runs` batches with resident input, after one batch that does not count. Returns the
    /// microseconds of each batch, from the first enqueue to the end of the last step.
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

    /// Returns the share of the cores' measured peak that a batch with resident input reaches. The
    /// batch's flop are divided by the flop that a core at its peak does in the CPU time of all
    /// threads. The result is the median of twenty batches. The peak is measured again before each.
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

    /// Times `runs` batches from records on the host to classes on the host. The classes of the
    /// last batch must be those of the batch whose scores were checked.
    pub(crate) fn host_to_host(&mut self, runs: usize) -> Result<HostToHost, Error> {
        let (mut sum, mut times) = (0u64, HostToHost::default());
        for run in 0..=runs {
            let start = Instant::now();
            self.fill()?;
            let filled = Instant::now();
            self.engine.submit(0, self.batch)?;
            self.engine.collect(0)?;
            sum += (0..self.batch)
                .map(|n| u64::from(self.engine.answer(0, n).class.unwrap_or(0)))
                .sum::<u64>();
            if run > 0 {
                times.all.push(start.elapsed().as_secs_f64() * 1e6);
                times.from_slot.push(filled.elapsed().as_secs_f64() * 1e6);
            }
        }
        std::hint::black_box(sum);
        let differs = |(n, &class): (usize, &Option<u32>)| self.engine.answer(0, n).class != class;
        if self.classes.iter().enumerate().any(differs) {
            return Err(Error::check(format!(
                "plan {}: other classes than with scores",
                self.plan
            )));
        }
        Ok(times)
    }
}

/// Microseconds that batches take from records on the host to classes on the host.
#[derive(Default)]
pub(crate) struct HostToHost {
    /// Times that include copying records in plain order into the engine's slot.
    pub(crate) all: Vec<f64>,
    /// Times that begin with the records in the engine's slot, where the stream's readers put them.
    from_slot: Vec<f64>,
}

/// Returns a quantile: the smallest time that is at least as large as `share` of all times. NaN if
/// there are no times.
pub(crate) fn quantile(times: &[f64], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(f64::NAN)
}

/// Returns the recipe of a plan for `device`, or for the host if `device` is `None`. `name` is a
/// plan of the library or `baked`. Without a name, the device's class chooses the plan.
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

/// The options of `mortonnet bench network`.
#[derive(Clone, Debug)]
pub(crate) struct NetworkBench {
    pub(crate) target: BenchTarget,
    /// The kernels' sources: the files in the folder of `--kernels`, else those in the program.
    pub(crate) sources: Sources,
    /// The smallest number of batches that are timed.
    pub(crate) repeat: usize,
    /// Format of the printed row.
    pub(crate) output: ReportFormat,
    /// The number of records in a batch; `None` for [`BATCH`].
    pub(crate) batch: Option<usize>,
    /// The value of `--plan`, the name of a plan. `None` for the plan of the device's class.
    pub(crate) plan: Option<String>,
    /// The value of `--shape`: sizes like `784-100-10:relu`, or the name of a network in
    /// [`shapes`](super::shapes). `None` is the baked network.
    pub(crate) shape: Option<String>,
    /// The type that weights are stored as. `None` for that of the baked network, or f32 with
    /// `--shape`.
    pub(crate) weights: Option<Precision>,
    /// True if times go from records on the host to classes on the host (`--host`).
    pub(crate) host: bool,
    /// True if each step is timed and compared with its bound (`--layers`).
    pub(crate) layers: bool,
}

impl NetworkBench {
    /// Times the network, and prints one row.
    pub(crate) fn run(
        &self,
        print: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let device = self.device()?;
        if let (None, Some(folder)) = (&device, &self.sources.folder) {
            return Err(Error::usage(format!(
                "--kernels {}: bench network runs on the host here, and the host no OpenCL kernel: \
                 add --device opencl",
                crate::escape::path(folder)
            )));
        }
        if self.layers {
            self.check_layers(device.as_ref())?;
        }
        self.sources.check()?;
        let (network, weights) = self.network()?;
        let batch = self.batch.unwrap_or(BATCH);
        let setting = Setting {
            network: &network,
            weights: &weights,
            device: device.as_ref(),
            recipe: recipe_for(device.as_ref(), self.plan.as_deref())?,
            batch,
            timed: self.layers,
            sources: &self.sources,
        };
        let mut harness = Harness::new(setting, ANYTHING)?;
        self.sources.check_read(&format!("plan {}", harness.plan))?;
        let runs = runs_for(&mut harness, self.repeat)?;
        if self.layers {
            return print(&self.timed_layers(&mut harness, setting, runs)?);
        }
        let times = match self.host {
            true => harness.host_to_host(runs)?,
            false => HostToHost {
                all: harness.resident(runs)?,
                from_slot: Vec::new(),
            },
        };
        if !self.host {
            harness.check(&network, &weights)?;
        }
        let median = quantile(&times.all, 0.5);
        let gflops = harness.flop as f64 * batch as f64 / median / 1e3;
        let mut values = vec![
            ("network", network.name.to_string()),
            ("device", name_of(device.as_ref())),
            ("plan", harness.plan.clone()),
            ("batch", batch.to_string()),
            ("launches", harness.launches.to_string()),
            ("median_us", format!("{median:.2}")),
            ("p95_us", format!("{:.2}", quantile(&times.all, 0.95))),
            ("gflops", format!("{gflops:.3}")),
        ];
        if device.is_none() && !self.host {
            values.push(("peak_share", format!("{:.3}", harness.share_of_peak()?)));
        }
        if self.host {
            let from_slot = quantile(&times.from_slot, 0.5);
            values.push(("from_slot_us", format!("{from_slot:.2}")));
        }
        print(&self.row(&values))
    }

    /// Returns the times and the bounds of all steps as text.
    fn timed_layers(
        &self,
        harness: &mut Harness,
        setting: Setting<'_>,
        runs: usize,
    ) -> Result<String, Error> {
        let (network, model) = (setting.network, setting.model()?);
        let layers = Layers::measure(harness, network, &model.plan, runs)?;
        harness.check(network, setting.weights)?;
        let head = [
            ("network", network.name.to_string()),
            ("device", name_of(setting.device)),
            ("plan", harness.plan.clone()),
            ("batch", setting.batch.to_string()),
        ];
        Ok(layers.text(&head, self.output))
    }

    /// # Errors
    /// If the steps cannot be timed on this device, or together with the other options.
    fn check_layers(&self, device: Option<&Device>) -> Result<(), Error> {
        if let Some(device) = device {
            return Err(Error::usage(format!(
                "--layers: expected the host engine, found the OpenCL device {}: add --device host",
                device.name
            )));
        }
        match self.host {
            true => Err(Error::usage(
                "--layers times steps on resident input: give it or --host",
            )),
            false => Ok(()),
        }
    }

    /// Returns the device to measure, or `None` for the host. If the user asked for no device, the
    /// engine of the plan in `--plan` decides. Without `--plan` it is the host.
    fn device(&self) -> Result<Option<Device>, Error> {
        match self.target.device {
            DeviceWish::Host => Ok(None),
            DeviceWish::Auto if self.target.compute_units.is_none() => {
                let name = match self.plan.as_deref() {
                    None => return Ok(None),
                    Some("baked") => &*crate::baked::plan().name,
                    Some(name) => name,
                };
                let plan = library().plan(name).map_err(Error::usage)?;
                (plan.engine == EngineKind::OpenCl)
                    .then(|| self.target.device())
                    .transpose()
            }
            _ => self.target.device().map(Some),
        }
    }

    /// Returns the network and its weights, rounded to the type that the plan stores. The float64
    /// reference then computes with the same weights.
    fn network(&self) -> Result<(Network, Tensors), Error> {
        let kind = match self.host {
            true => Kind::Classes,
            false => Kind::Values,
        };
        let (mut network, mut weights) = match &self.shape {
            Some(shape) => {
                generated(shape, kind).map_err(|e| Error::usage(format!("--shape: {e}")))?
            }
            None => (network().clone(), baked_tensors()),
        };
        network.output.kind = kind;
        if let Some(precision) = self.weights {
            network.weights = precision;
        }
        values::round(network.weights, &network.graph, &mut weights);
        Ok((network, weights))
    }

    /// Returns the names and values of the result as text, in the format of `output`.
    fn row(&self, values: &[(&str, String)]) -> String {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        let row: Vec<&str> = values.iter().map(|(_, value)| &**value).collect();
        match self.output {
            ReportFormat::Json => {
                let pair = |(n, v): &(&str, String)| format!("\"{n}\":{}", json(n, v));
                let pairs: Vec<String> = values.iter().map(pair).collect();
                format!("{{{}}}\n", pairs.join(","))
            }
            ReportFormat::Md => {
                let line = vec!["---"; names.len()].join(" | ");
                let (names, row) = (names.join(" | "), row.join(" | "));
                format!("| {names} |\n| {line} |\n| {row} |\n")
            }
            ReportFormat::Csv | ReportFormat::Table => {
                format!("{}\n{}\n", names.join(","), row.join(","))
            }
        }
    }
}

/// Returns the name of the device, or of the host with its number of threads. It has no comma.
fn name_of(device: Option<&Device>) -> String {
    match device {
        Some(device) => device.name.replace(',', " "),
        None => format!("host {} threads", threads()),
    }
}

/// Returns one value of the printed row as JSON. Names are strings even if they look like numbers.
/// Infinite numbers and NaN become null, because JSON lacks them.
pub(super) fn json(name: &str, value: &str) -> String {
    match value.parse::<f64>() {
        _ if ["network", "device", "plan"].contains(&name) => json_string(value),
        Ok(number) if number.is_finite() => value.into(),
        _ => "null".into(),
    }
}

/// Returns how many batches with resident input fit into about two seconds, but at least `repeat`.
fn runs_for(harness: &mut Harness, repeat: usize) -> Result<usize, Error> {
    let one = harness
        .resident(3)?
        .into_iter()
        .fold(f64::INFINITY, f64::min);
    let least = repeat.max(1);
    Ok(((2e6 / one.max(1.0)) as usize).clamp(least, least.max(2000)))
}

/// Decides if the next network of the tables still runs, and shows its name on the terminal.
pub(crate) struct Guard<'g> {
    pub(crate) budget: &'g Budget,
    /// The progress line on the terminal, which names the running network.
    pub(crate) progress: Progress,
}

/// The most batches that a network of the tables runs. 50 are timed. Before them, five warm up or
/// find the number to time, and one checks the scores.
const BATCHES: f64 = 56.0;

impl Guard<'_> {
    /// Returns the reason to skip a batch with these predicted times, or `None` to run the batch.
    fn refuses(&self, BatchPrediction { longest, all }: BatchPrediction) -> Option<String> {
        // Timing ends after about two seconds. Fast networks finish their `BATCHES` earlier. Slow
        // networks run at least four batches, even if these take longer.
        self.budget
            .refuses(longest, (all * BATCHES).min(2.0).max(all * 4.0))
    }

    /// Shows `what` in the progress line. Returns an error after a signal to stop, or if the time
    /// is over.
    fn goes_on(&self, what: &str) -> Result<(), Error> {
        self.progress.show(what);
        let why = match stopped() {
            true => Some(STOPPED.into()),
            false => self.budget.refuses(0.0, 0.0),
        };
        why.map_or(Ok(()), |why| Err(Error::device(why)))
    }
}

/// The measured and the nominal peak of a device in GFLOPS, as far as they are known.
#[derive(Clone, Copy, Default)]
pub(crate) struct Peaks {
    pub(crate) measured: Option<f64>,
    pub(crate) nominal: Option<f64>,
}

/// Measures the tables of the thesis's networks on one device.
pub(crate) struct NetworkTables<'a> {
    pub(crate) device: &'a Device,
    pub(crate) peaks: Peaks,
    pub(crate) options: &'a KernelBench,
    pub(crate) guard: Guard<'a>,
}

/// A network's row in table 10.5 of the thesis.
struct DocumentRow {
    network: &'static str,
    /// Milliseconds of a batch on the board's GPU, as the thesis gives them.
    device: f64,
    /// Milliseconds of a batch with NumPy on the board's CPU, as the thesis gives them.
    numpy: f64,
}

const fn document_row(network: &'static str, device: f64, numpy: f64) -> DocumentRow {
    DocumentRow {
        network,
        device,
        numpy,
    }
}

const TABLE_10_5: [DocumentRow; 4] = [
    document_row("partial-mnist", 1.99, 38.14),
    document_row("partial-cifar", 0.66, 11.20),
    document_row("full-mnist", 129.33, 3705.50),
    document_row("full-cifar", 506.15, 19673.92),
];

fn cell(found: &Result<Measured, Error>) -> Cell {
    match found {
        Ok(m) => Cell::Measured(*m),
        Err(e) => Cell::Skipped(e.to_string()),
    }
}

impl NetworkTables<'_> {
    /// Returns the thesis's figure 10.1 and table 10.5, measured here: the times of four networks.
    pub(crate) fn thesis_10(&self) -> Result<Section, Error> {
        self.four(&TABLE_10_5)
    }

    /// Returns the thesis's figures 6.1 and 6.2, measured here: the times of the baseline network,
    /// kernel by kernel.
    pub(crate) fn thesis_6(&self) -> Result<Section, Error> {
        self.breakdown(1000)
    }

    fn setting<'s>(
        &'s self,
        (network, weights): &'s (Network, Tensors),
        device: Option<&'s Device>,
        recipe: &'s PlanRecipe,
        batch: usize,
        timed: bool,
    ) -> Setting<'s> {
        Setting {
            network,
            weights,
            device,
            recipe,
            batch,
            timed,
            sources: &self.options.sources,
        }
    }

    /// Measures the networks of `document`, a table of the thesis. They run under the thesis's last
    /// plan, under the plan of the device's class, and on the host.
    fn four(&self, document: &[DocumentRow]) -> Result<Section, Error> {
        let title = "Four networks, batches of 100 (thesis, fig. 10.1 and table 10.5)";
        let mut s = Section::new("thesis_10", title, "network", "ms");
        let mut recipes = vec![recipe_for(Some(self.device), Some("thesis-morton"))?];
        let own = recipe_for(Some(self.device), self.options.plan.as_deref())?;
        if own.name != recipes[0].name {
            recipes.push(own);
        }
        for recipe in &recipes {
            s.columns.push(recipe.name.to_string());
            s.columns.push(format!("{}, kernels alone", recipe.name));
            s.columns.push(format!("{}, of nominal peak", recipe.name));
        }
        s.columns.extend([
            "host engine".into(),
            format!("host engine / {}", own.name),
            "Mali-T628, document".into(),
            "NumPy on the board, document".into(),
            "times faster, document".into(),
        ]);
        for row in document {
            s.row(row.network, self.network_cells(row, &recipes)?);
        }
        s.note(
            "Resident input, from the first enqueue to the end of the last step, arg-max left out. \
             Percent: flop (2 a multiply-add, padding not counted) in this time, of the measured \
             peak.",
        );
        s.note(
            "Kernels alone: device time of all steps of a batch, added up; what the plan's own \
             column has beyond it are launches and the gaps between kernels.",
        );
        s.note(format!(
            "Columns are plans; the document's system is thesis-morton. Host engine: {} threads.",
            threads()
        ));
        Ok(s)
    }

    /// Measures a network and returns its row of the table: the cells of each plan and of the host
    /// engine, and the thesis's times.
    fn network_cells(
        &self,
        row: &DocumentRow,
        recipes: &[&PlanRecipe],
    ) -> Result<Vec<Cell>, Error> {
        let network @ (one, _) = &generated(row.network, Kind::Values).map_err(Error::usage)?;
        let flop = one.flop() as f64 * BATCH as f64;
        let (mut cells, mut last) = (Vec::new(), None);
        for recipe in recipes {
            let setting = self.setting(network, Some(self.device), recipe, BATCH, false);
            let found = self.batch_time(setting);
            last = found.as_ref().ok().map(|m| m.value);
            cells.push(cell(&found));
            let timed = Setting {
                timed: true,
                ..setting
            };
            cells.push(cell(&self.kernels_alone(timed)));
            let share = last
                .zip(self.peaks.nominal)
                .map(|(ms, peak)| format!("{:.1} %", flop / ms / 1e4 / peak));
            cells.push(share.map_or(Cell::Empty, Cell::Text));
        }
        let recipe = recipe_for(None, None)?;
        let host = self.batch_time(self.setting(network, None, recipe, BATCH, false));
        cells.push(cell(&host));
        let ratio = last
            .zip(host.ok())
            .map(|(ms, host)| format!("{:.2}", host.value / ms));
        cells.push(ratio.map_or(Cell::Empty, Cell::Text));
        cells.extend([row.device, row.numpy, row.numpy / row.device].map(Cell::Document));
        Ok(cells)
    }

    /// Measures the milliseconds of a batch with resident input. For a device it adds the
    /// percentage of the device's measured peak.
    fn batch_time(&self, setting: Setting) -> Result<Measured, Error> {
        let (name, plan) = (&setting.network.name, &setting.recipe.name);
        self.guard.goes_on(&format!("{name}, plan {plan}"))?;
        let mut harness = Harness::new(setting, &|times| self.guard.refuses(times))?;
        let runs = runs_for(&mut harness, self.options.repeat)?.min(50);
        let ms: Vec<f64> = harness.resident(runs)?.iter().map(|us| us / 1e3).collect();
        let m = measured(&ms);
        let flop = harness.flop as f64 * BATCH as f64;
        let peak = self.peaks.measured.filter(|_| setting.device.is_some());
        Ok(Measured {
            percent: peak.map(|peak| flop / m.value / 1e4 / peak),
            ..m
        })
    }

    /// Measures the milliseconds of a batch's steps by the device's clock. Returns their sum.
    fn kernels_alone(&self, setting: Setting) -> Result<Measured, Error> {
        let (name, plan) = (&setting.network.name, &setting.recipe.name);
        self.guard
            .goes_on(&format!("{name}, plan {plan}, kernels alone"))?;
        let steps = self.step_times(setting)?.steps;
        let runs = steps.first().map_or(0, |step| step.ms.len());
        let sums: Vec<f64> = (0..runs)
            .map(|run| steps.iter().map(|step| step.ms[run]).sum())
            .collect();
        Ok(measured(&sums))
    }

    /// Measures the baseline network kernel by kernel: under the two plans of the thesis, on the
    /// host, and by plain loops.
    fn breakdown(&self, records: usize) -> Result<Section, Error> {
        let title = format!(
            "The baseline network, {records} records, kernel by kernel (thesis, fig. 6.1 and 6.2)"
        );
        let mut s = Section {
            plot: Plot::Bars,
            ..Section::new("thesis_6", &title, "step", "ms")
        };
        let network = generated("baseline", Kind::Values).map_err(Error::usage)?;
        let mut found: Vec<Result<NetworkTimes, Error>> = Vec::new();
        for (column, plan, device) in [
            ("thesis-baseline", "thesis-baseline", Some(self.device)),
            ("thesis-morton", "thesis-morton", Some(self.device)),
            ("host engine", "host", None),
        ] {
            let recipe = recipe_for(device, Some(plan))?;
            let setting = self.setting(&network, device, recipe, records, true);
            let times = self.guard.goes_on(&format!("baseline, plan {plan}"));
            found.push(times.and_then(|()| self.step_times(setting)));
            s.columns.push(column.into());
        }
        found.push(self.plain_loops(&network, records));
        s.columns.push("sequential CPU".into());
        for (column, side) in found.iter().enumerate() {
            for step in side.iter().flat_map(|side| &side.steps) {
                let known = s.rows.iter().position(|r| r.label == step.label);
                let at = known.unwrap_or_else(|| {
                    s.row(&step.label, vec![Cell::Empty; found.len()]);
                    s.rows.len() - 1
                });
                if s.rows[at].cells[column] == Cell::Empty {
                    s.rows[at].cells[column] = Cell::Measured(measured(&step.ms));
                }
            }
        }
        let total = |side: &Result<NetworkTimes, Error>| match side {
            Ok(times) => Cell::Measured(measured(&times.total)),
            Err(e) => Cell::Skipped(e.to_string()),
        };
        s.row("total", found.iter().map(total).collect());
        s.note(
            "Steps: device time. Total: from the first enqueue to the end of the last step, so \
             launches and the gaps between kernels count. The host engine's steps are fused, and \
             the times of its threads are added up; its total is wall time.",
        );
        s.note(
            "Sequential CPU: plain loops over row-major floats on one thread, as the \
             thesis-baseline kernels compute.",
        );
        s.note("The document has these times as bars without numbers.");
        Ok(s)
    }

    /// Measures the baseline network by plain loops, if they fit into the budget.
    fn plain_loops(
        &self,
        network: &(Network, Tensors),
        records: usize,
    ) -> Result<NetworkTimes, Error> {
        self.guard.goes_on("baseline, by plain loops")?;
        // One in 64 of the records predicts the time for all records.
        let part = records.div_ceil(PART * PART);
        let start = Instant::now();
        sequential_steps(network, part, 1);
        let all = start.elapsed().as_secs_f64() * (SEQUENTIAL * records / part) as f64;
        match self.guard.budget.refuses(0.0, all) {
            Some(why) => Err(Error::device(why)),
            None => Ok(sequential_steps(network, records, SEQUENTIAL)),
        }
    }

    /// Runs several batches of a network. Returns the times of each step and of whole batches.
    fn step_times(&self, setting: Setting) -> Result<NetworkTimes, Error> {
        let mut harness = Harness::new(setting, &|times| self.guard.refuses(times))?;
        let model = setting.model()?;
        let step = |s: &Step| OneStep::new(s.node, s.operation.name());
        let mut times = NetworkTimes {
            steps: model.plan.steps.iter().map(step).collect(),
            total: Vec::new(),
        };
        harness.resident(1)?;
        for _ in 0..self.options.repeat.max(3) {
            harness.engine.forget_times();
            let start = Instant::now();
            harness.engine.resident(harness.batch)?;
            times.total.push(start.elapsed().as_secs_f64() * 1e3);
            let clock = harness.engine.step_times();
            let clocks = clock.iter().flat_map(|c| &c.steps);
            for (step, clock) in times.steps.iter_mut().zip(clocks) {
                step.ms.push(clock.run.total_us() / 1e3);
            }
        }
        Ok(times)
    }
}

/// The times of one step in milliseconds, one for each run.
struct OneStep {
    label: String,
    ms: Vec<f64>,
}

impl OneStep {
    /// Returns a step with a label like `layer 2 matmul` and no times yet.
    fn new(layer: usize, operation: &str) -> OneStep {
        OneStep {
            label: format!("layer {layer} {operation}"),
            ms: Vec::new(),
        }
    }
}

/// The times in milliseconds of each step of a network and of whole batches. Each has one time per
/// run.
struct NetworkTimes {
    steps: Vec<OneStep>,
    total: Vec<f64>,
}

/// How often the plain loops run the network.
const SEQUENTIAL: usize = 3;

/// Runs a network `runs` times by plain loops on random records. Returns the times of its steps.
fn sequential_steps(network: &(Network, Tensors), records: usize, runs: usize) -> NetworkTimes {
    let mut random = reference::Random::new(records as u64);
    let (network, weights) = network;
    let input: Vec<f32> = (0..network.width * records)
        .map(|_| random.float())
        .collect();
    let mut times = NetworkTimes {
        steps: Vec::new(),
        total: Vec::new(),
    };
    for _ in 0..runs {
        let start = Instant::now();
        let mut loops = PlainLoops::new(network, weights, records);
        std::hint::black_box(loops.run(&input));
        times.total.push(start.elapsed().as_secs_f64() * 1e3);
        if times.steps.is_empty() {
            times.steps = loops.steps;
        } else {
            for (step, new) in times.steps.iter_mut().zip(loops.steps) {
                step.ms.extend(new.ms);
            }
        }
    }
    times
}

/// Computes a network by plain loops on one thread. Matrices are row major, with a record in each
/// column.
struct PlainLoops<'a> {
    network: &'a Network,
    weights: &'a [Vec<f32>],
    records: usize,
    /// The contents of the graph's values, by index. Values that are not computed yet are empty.
    values: Vec<Vec<f32>>,
    steps: Vec<OneStep>,
}

impl<'a> PlainLoops<'a> {
    fn new(network: &'a Network, weights: &'a [Vec<f32>], records: usize) -> PlainLoops<'a> {
        PlainLoops {
            network,
            weights,
            records,
            values: vec![Vec::new(); network.graph.values.len()],
            steps: Vec::new(),
        }
    }

    /// Computes all nodes of the graph, and returns the scores.
    fn run(&mut self, input: &[f32]) -> Vec<f32> {
        let graph = &self.network.graph;
        self.values[graph.inputs[0]] = input.to_vec();
        for (i, node) in graph.nodes.iter().enumerate() {
            self.values[node.output] = match node.op {
                Op::Affine => self.affine(i, node),
                Op::Activation(a) => {
                    let mut result = self.values[node.inputs[0]].clone();
                    self.timed(i, a.name(), || {
                        for v in &mut result {
                            *v = a.apply(f64::from(*v)) as f32;
                        }
                    });
                    result
                }
                op => self.other(i, node, op),
            };
        }
        let output = graph.outputs.first();
        output.map_or(Vec::new(), |&v| std::mem::take(&mut self.values[v]))
    }

    fn timed(&mut self, layer: usize, operation: &str, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        let mut step = OneStep::new(layer, operation);
        step.ms.push(start.elapsed().as_secs_f64() * 1e3);
        self.steps.push(step);
    }

    fn affine(&mut self, layer: usize, node: &Node) -> Vec<f32> {
        let records = self.records;
        let values = std::mem::take(&mut self.values[node.inputs[0]]);
        let (w, biases) = (
            &self.weights[node.tensors[0]],
            &self.weights[node.tensors[1]],
        );
        let (outputs, inputs) = (biases.len(), w.len() / biases.len().max(1));
        let mut result = vec![0.0f32; outputs * records];
        self.timed(layer, Operation::Matmul.name(), || {
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
        self.timed(layer, Operation::Bias.name(), || {
            for (results, bias) in result.chunks_exact_mut(records).zip(biases) {
                results.iter_mut().for_each(|r| *r += bias);
            }
        });
        self.values[node.inputs[0]] = values;
        result
    }

    /// Computes a node with the float64 reference, record by record, and times it.
    fn other(&mut self, layer: usize, node: &Node, op: Op) -> Vec<f32> {
        let (graph, records) = (&self.network.graph, self.records);
        let values = std::mem::take(&mut self.values);
        let shape = graph.values[node.output].shape;
        let mut result = vec![0.0f32; shape.len() * records];
        let column = |value: usize, col: usize| -> Vec<f64> {
            let column = values[value].iter().skip(col).step_by(records);
            column.map(|&v| f64::from(v)).collect()
        };
        let arrays = graph.arrays(node, self.weights);
        let arrays: Vec<&[f32]> = arrays.iter().map(|a| &**a).collect();
        self.timed(layer, op.name(), || {
            for col in 0..records {
                let inputs: Vec<Vec<f64>> = node.inputs.iter().map(|&v| column(v, col)).collect();
                let shapes = node.inputs.iter().map(|&v| graph.values[v].shape);
                let inputs: Vec<(&[f64], Shape)> =
                    inputs.iter().map(|x| &x[..]).zip(shapes).collect();
                let found = op.reference(&inputs, &arrays, shape);
                for (r, x) in result.iter_mut().skip(col).step_by(records).zip(found) {
                    *r = x as f32;
                }
            }
        });
        self.values = values;
        result
    }
}

/// Returns the median of the values, with half the interquartile range as its spread. A single
/// value has no spread.
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
        // Oclgrind is left out, because the tests would take minutes in this simulator.
        all.into_iter()
            .find(|d| !d.name.contains("clgrind"))
            .expect("the tests need PoCL")
    }

    fn options() -> KernelBench {
        KernelBench {
            names: Vec::new(),
            target: BenchTarget {
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
                output: ReportFormat::Table,
                file: None,
                against: None,
            },
        }
    }

    static FREE: LazyLock<Budget> = LazyLock::new(|| Budget::new(None));

    /// Returns the tables of a device with a measured peak of 100 GFLOPS and a nominal peak of 200.
    fn tables<'a>(
        device: &'a Device,
        options: &'a KernelBench,
        budget: &'a Budget,
    ) -> NetworkTables<'a> {
        NetworkTables {
            device,
            peaks: Peaks {
                measured: Some(100.0),
                nominal: Some(200.0),
            },
            options,
            guard: Guard {
                budget,
                progress: Progress::new(),
            },
        }
    }

    /// A network does not run if a launch is predicted to be too long, or if the time is over.
    #[test]
    fn long_batches_are_left_out() {
        let (network, weights) = generated("100-100-10", Kind::Values).unwrap();
        let device = pocl();
        let recipe = recipe_for(Some(&device), Some("thesis-morton")).unwrap();
        let start = |refuses: Refuses| {
            let setting = Setting {
                network: &network,
                weights: &weights,
                device: Some(&device),
                recipe,
                batch: 40,
                timed: false,
                sources: &Sources::default(),
            };
            Harness::new(setting, refuses)
        };
        let asked = std::cell::Cell::new(BatchPrediction::default());
        let harness = start(&|times| {
            asked.set(times);
            None
        });
        assert!(harness.is_ok());
        let BatchPrediction { longest, all } = asked.get();
        // The longest launch has 100×100 of the network's 11000 multiply-adds, and some padding.
        assert!(
            (0.85..0.95).contains(&(longest / (all * 1e6))),
            "{longest} {all}"
        );
        let Err(e) = start(&|_| too_long(8e6)) else {
            panic!("it runs")
        };
        assert_eq!(
            e.to_string(),
            "a launch would take about 8.0 s, more than 1 s"
        );
        let over = Budget::new(Some(std::time::Duration::ZERO));
        let s = tables(&device, &options(), &over).breakdown(32);
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

    /// Names stay texts in JSON even if they look like numbers. Values that JSON cannot represent
    /// become null.
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

    /// Networks of different shapes get different weights, even if their sizes have the same sum.
    #[test]
    fn generated_networks_differ() {
        let first = |shape| {
            let (_, weights) = generated(shape, Kind::Values).unwrap();
            weights[0][0]
        };
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
        let mut loops = PlainLoops::new(&network, &weights, RECORDS);
        let scores = loops.run(&input);
        let names: Vec<&str> = loops.steps.iter().map(|s| &*s.label).collect();
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

    /// The table has columns for the thesis's plan and for the plan of the device's class, each
    /// under its name. It also has the thesis's figures.
    #[test]
    fn table_10_5_has_the_thesis_plan() {
        let device = pocl();
        let own = &*recipe_for(Some(&device), None).unwrap().name;
        assert_ne!(own, "thesis-morton");
        let s = tables(&device, &options(), &FREE)
            .four(&TABLE_10_5[1..2])
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
        // If the user asks for the thesis's plan, the table has it only once.
        let once = KernelBench {
            plan: Some("thesis-morton".into()),
            ..options()
        };
        let s = tables(&device, &once, &FREE).four(&[]).unwrap();
        assert_eq!(
            s.columns.iter().filter(|c| *c == "thesis-morton").count(),
            1
        );
    }

    #[test]
    fn figure_6_has_totals_a_sequential_cpu_and_real_spreads() {
        let s = tables(&pocl(), &options(), &FREE).breakdown(32).unwrap();
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
            // The sum of the steps may exceed the total. A step's time on the host adds up threads,
            // and a sum of medians is not the median of sums.
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
        let md = text(&report, ReportFormat::Md);
        assert!(md.lines().any(|l| l.starts_with("| total |")), "{md}");
    }
}
