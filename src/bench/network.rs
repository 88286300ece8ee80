//! `bench network`: the baked network, or any shape with generated weights, with resident input or from host to host.

use super::BenchOptions;
use super::reference::Random;
use super::render::OutputFormat;
use super::table::{Cell, Measured, Plot, Row, Section};
use crate::baked::{NETWORK, library};
use crate::cl::Device;
use crate::engine::Engine;
use crate::engine::host::HostEngine;
use crate::engine::opencl::{self, OpenClEngine, Wanted};
use crate::engine::select::{DeviceWish, threads};
use crate::error::Error;
use crate::model::{Model, baked_weights};
use crate::profile::Phases;
use crate::sources::Sources;
use crate::spec::half;
use crate::spec::library::{EngineKind, PlanRecipe};
use crate::spec::network::{Activation, FinalActivation, Kind, Layer, Network, Output, Precision, Transform};
use crate::spec::reference::{Weights, excess, forward};
use std::time::Instant;

/// The networks of the thesis (§6.4 and §10), and their shapes.
pub const NAMED: [(&str, &str); 5] = [
    ("baseline", "784-100-100-10:sigmoid"),
    ("partial-mnist", "640-150-10:relu"),
    ("partial-cifar", "256-128-10:relu"),
    ("full-mnist", "784-2500-2000-10:relu"),
    ("full-cifar", "3072-4096-3072-10:relu"),
];

/// Records of a batch where nothing else is said: the thesis's.
pub const BATCH: usize = 100;

/// A network of the given shape with random weights, scaled so that values keep their size from layer to layer.
pub fn generated(shape: &str, kind: Kind) -> Result<(Network, Vec<Weights>), String> {
    let name = shape;
    let shape = NAMED.iter().find(|n| n.0 == shape).map_or(shape, |n| n.1);
    let (sizes, activation) = shape.split_once(':').unwrap_or((shape, "relu"));
    let all = [Activation::None, Activation::Sigmoid, Activation::Relu, Activation::Tanh];
    let activation = all
        .into_iter()
        .find(|a| a.name() == activation)
        .ok_or_else(|| format!("expected :relu, :sigmoid, :tanh or :none, found \":{activation}\""))?;
    let sizes: Option<Vec<usize>> =
        sizes.split('-').map(|s| s.parse().ok().filter(|n| (1..=1 << 16).contains(n))).collect();
    let sizes = sizes.filter(|s| s.len() >= 2).ok_or_else(|| {
        let names: Vec<&str> = NAMED.iter().map(|n| n.0).collect();
        format!("expected sizes like 784-100-10:relu, or {}; found \"{shape}\"", names.join(", "))
    })?;
    let mut random = Random::new(sizes.iter().sum::<usize>() as u64);
    let (mut layers, mut weights) = (Vec::new(), Vec::new());
    for (i, pair) in sizes.windows(2).enumerate() {
        let (inputs, outputs) = (pair[0], pair[1]);
        let scale = (3.0 / inputs as f32).sqrt();
        layers.push(Layer::Affine { outputs, inputs });
        weights.push(Weights {
            weights: (0..inputs * outputs).map(|_| random.float() * scale).collect(),
            biases: (0..outputs).map(|_| random.float() * 0.1).collect(),
        });
        if i + 2 < sizes.len() && activation != Activation::None {
            layers.push(Layer::Activation(activation));
            weights.push(Weights::default());
        }
    }
    let network = Network {
        name: name.to_string().into(),
        hash: "generated".into(),
        width: sizes[0],
        layers: layers.into(),
        output: Output { kind, activation: FinalActivation::None, threshold: 0.5 },
        labels: Vec::new().into(),
        features: Vec::new().into(),
        transform: Transform::Identity,
        folded: false,
        weights: Precision::F32,
    };
    Ok((network, weights))
}

/// A network on a device, filled with random records.
pub struct Rig {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// The model's plan name and launches of a batch.
    pub plan: String,
    /// Launches (or host steps) of a batch.
    pub launches: usize,
    /// Flop of a record.
    pub flop: u64,
    records: Vec<f32>,
    /// As found when the scores were checked.
    classes: Vec<Option<u32>>,
    width: usize,
    batch: usize,
}

impl Rig {
    /// Starts `recipe` for the network on `device` (`None`: the host), and checks the answers of a batch against
    /// float64. `classes` adds the arg-max.
    pub fn new(
        (network, weights): (&Network, &[Weights]),
        device: Option<&Device>,
        recipe: &PlanRecipe,
        batch: usize,
        timed: bool,
        sources: &Sources,
    ) -> Result<Rig, Error> {
        let model =
            Model::new(network.clone(), weights, recipe, library(), Some(batch)).map_err(Error::Device)?;
        let (plan, launches) = (model.plan.name.to_string(), model.plan.steps.len());
        let wanted = Wanted { scores: true, classes: network.output.kind == Kind::Classes };
        // Variants come and go: their programs would push those of the network out of the cache.
        let sources = sources.uncached();
        let start = |wanted| -> Result<(Box<dyn Engine>, usize), Error> {
            Ok(match device {
                Some(d) => {
                    let engine =
                        OpenClEngine::new(d, &model, wanted, timed, &sources, &mut Phases::default())?;
                    let launches = engine.plan().steps.len();
                    (Box::new(engine), launches)
                }
                None => (Box::new(HostEngine::new(model.clone(), threads(), timed)?), launches),
            })
        };
        let (engine, launches) = start(wanted)?;
        let mut random = Random::new(Instant::now().elapsed().as_nanos() as u64 ^ batch as u64);
        let records = (0..batch * network.width).map(|_| random.float()).collect();
        let width = network.width;
        let mut rig =
            Rig { engine, plan, launches, flop: network.flop(), records, classes: Vec::new(), width, batch };
        rig.check(network, weights)?;
        rig.classes = (0..batch).map(|n| rig.engine.answer(0, n).class).collect();
        if device.is_some() && wanted.classes {
            // From host to host the classes are all that is wanted: scores stay where they are.
            (rig.engine, rig.launches) = start(Wanted { scores: false, classes: true })?;
        }
        Ok(rig)
    }

    fn fill(&mut self) -> Result<(), Error> {
        for (n, values) in self.records.chunks_exact(self.width).enumerate() {
            self.engine.record(0, n)?.fill(values);
        }
        Ok(())
    }

    /// Runs a batch: the scores of its first and last record against float64.
    fn check(&mut self, network: &Network, weights: &[Weights]) -> Result<(), Error> {
        self.fill()?;
        self.engine.submit(0, self.batch)?;
        self.engine.collect(0)?;
        for n in [0, self.batch - 1] {
            let raw: Vec<f64> =
                self.records[n * self.width..(n + 1) * self.width].iter().map(|&v| f64::from(v)).collect();
            let expected = forward(network, weights, &raw);
            let e = excess(&expected, self.engine.answer(0, n).scores.iter());
            if e > 1.0 {
                let text = format!(
                    "{} under plan {}: record {n} is {e:.2} times the bound off",
                    network.name, self.plan
                );
                return Err(Error::Check(text));
            }
        }
        Ok(())
    }

    /// Microseconds of `runs` batches with resident input, from the first enqueue to the end of the last step.
    pub fn resident(&mut self, runs: usize) -> Result<Vec<f64>, Error> {
        (0..=runs)
            .map(|_| {
                let start = Instant::now();
                self.engine.resident(self.batch)?;
                Ok(start.elapsed().as_secs_f64() * 1e6)
            })
            .skip(1)
            .collect()
    }

    /// Microseconds of `runs` batches to classes on the host: from records in plain order in any memory, and from
    /// records in the engine's slot (where the stream's readers put them). The last classes are compared with those
    /// that were found when the scores were checked.
    pub fn host_to_host(&mut self, runs: usize) -> Result<(Vec<f64>, Vec<f64>), Error> {
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
                Ok((start.elapsed().as_secs_f64() * 1e6, filled.elapsed().as_secs_f64() * 1e6))
            })
            .skip(1)
            .collect();
        std::hint::black_box(sum);
        if self.classes.iter().enumerate().any(|(n, &c)| self.engine.answer(0, n).class != c) {
            return Err(Error::Check(format!("plan {}: other classes than with scores", self.plan)));
        }
        times
    }
}

/// The value below which `share` of the sorted times lie.
pub fn quantile(times: &[f64], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    crate::profile::sort(&mut sorted);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

/// The plan for a device: the one that was asked for, or that of its class.
pub fn recipe_for(device: Option<&Device>, name: Option<&str>) -> Result<&'static PlanRecipe, Error> {
    let kind = if device.is_some() { EngineKind::OpenCl } else { EngineKind::Host };
    let class = match device {
        Some(d) => opencl::class(d),
        None => library().host_class(std::env::consts::ARCH),
    };
    let name = match name {
        Some("baked") => &*crate::baked::PLAN.name,
        Some(name) => name,
        None => class.map_or("", |c| &*c.plan),
    };
    crate::model::recipe(name, kind).map_err(|e| Error::Usage(format!("--plan: {e}")))
}

/// `mortonnet bench network`: one row.
pub fn run(options: &BenchOptions, print: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
    if options.names.len() > 1 {
        return Err(Error::Usage("bench network stands alone".into()));
    }
    let device = match options.device {
        DeviceWish::Host => None,
        // Nothing asked for: the device of the plan, else the host.
        DeviceWish::Auto if options.compute_units.is_none() => {
            let plan =
                options.plan.as_deref().map(|p| if p == "baked" { &*crate::baked::PLAN.name } else { p });
            match plan.map(|p| library().plan(p).map_err(Error::Usage)).transpose()? {
                Some(p) if p.engine == EngineKind::OpenCl => Some(super::device(options)?),
                _ => None,
            }
        }
        _ => Some(super::device(options)?),
    };
    if let (None, Some(folder)) = (&device, &options.sources.folder) {
        return Err(Error::Usage(format!(
            "--kernels {}: bench network runs on the host here, and the host no OpenCL kernel: add --device opencl",
            folder.display()
        )));
    }
    options.sources.check()?;
    let kind = if options.host { Kind::Classes } else { Kind::Values };
    let (network, weights) = match &options.shape {
        Some(shape) => generated(shape, kind).map_err(|e| Error::Usage(format!("--shape: {e}")))?,
        None => {
            let mut network = NETWORK.clone();
            network.output.kind = kind;
            (network, baked_weights())
        }
    };
    let (mut network, mut weights) = (network, weights);
    if let Some(precision) = options.weights {
        network.weights = precision;
    }
    if network.weights == Precision::F16 {
        // What the plan stores as halves is what float64 is compared with.
        let rounded = |w: &mut f32| *w = half::to_f32(half::from_f32(*w));
        weights.iter_mut().for_each(|w| w.weights.iter_mut().for_each(rounded));
    }
    let recipe = recipe_for(device.as_ref(), options.plan.as_deref())?;
    let batch = options.batch.unwrap_or(BATCH);
    let mut rig = Rig::new((&network, &weights), device.as_ref(), recipe, batch, false, &options.sources)?;
    options.sources.check_read(&format!("plan {}", rig.plan))?;
    let runs = runs_for(&mut rig, options)?;
    let (times, from_slot) =
        if options.host { rig.host_to_host(runs)? } else { (rig.resident(runs)?, Vec::new()) };
    if !options.host {
        rig.check(&network, &weights)?;
    }
    let median = quantile(&times, 0.5);
    let name = device.as_ref().map_or(format!("host {} threads", threads()), |d| d.name.clone());
    let mut values = vec![
        ("network", network.name.to_string()),
        ("device", name.replace(',', " ")),
        ("plan", rig.plan.clone()),
        ("batch", batch.to_string()),
        ("launches", rig.launches.to_string()),
        ("median_us", format!("{median:.2}")),
        ("p95_us", format!("{:.2}", quantile(&times, 0.95))),
        ("gflops", format!("{:.3}", rig.flop as f64 * batch as f64 / median / 1e3)),
    ];
    if options.host {
        values.push(("from_slot_us", format!("{:.2}", quantile(&from_slot, 0.5))));
    }
    let names: Vec<&str> = values.iter().map(|v| v.0).collect();
    let row: Vec<&str> = values.iter().map(|v| &*v.1).collect();
    let text = match options.output {
        OutputFormat::Json => {
            let quoted = |s: &str| format!("\"{}\"", s.replace(['"', '\\'], " "));
            let pairs: Vec<String> = values
                .iter()
                .map(|(n, v)| {
                    format!("\"{n}\":{}", if v.parse::<f64>().is_ok() { v.clone() } else { quoted(v) })
                })
                .collect();
            format!("{{{}}}\n", pairs.join(","))
        }
        OutputFormat::Md => {
            let line = vec!["---"; names.len()].join(" | ");
            format!("| {} |\n| {line} |\n| {} |\n", names.join(" | "), row.join(" | "))
        }
        OutputFormat::Csv | OutputFormat::Table => format!("{}\n{}\n", names.join(","), row.join(",")),
    };
    print(&text)
}

/// As many runs as fit into about two seconds, at least `--repeat`.
fn runs_for(rig: &mut Rig, options: &BenchOptions) -> Result<usize, Error> {
    let one = rig.resident(3)?.into_iter().fold(f64::INFINITY, f64::min);
    let least = options.repeat.max(1);
    Ok(((2e6 / one.max(1.0)) as usize).clamp(least, least.max(2000)))
}

/// Tables 10.1 and 10.5 (four networks) and 6.1/6.2 (the baseline, layer by layer) of the thesis.
pub fn sections(
    device: &Device,
    peak_gflops: Option<f64>,
    nominal_gflops: Option<f64>,
    options: &BenchOptions,
) -> Result<Vec<Section>, Error> {
    let mut networks = Section {
        id: "thesis_10".into(),
        title: "Four networks, batches of 100 (thesis, fig. 10.1 and table 10.5)".into(),
        rows_are: "network".into(),
        unit: "ms".into(),
        larger_is_better: false,
        columns: [
            "device",
            "of nominal peak",
            "host engine",
            "host / device",
            "device, document",
            "NumPy on the board, document",
        ]
        .map(String::from)
        .to_vec(),
        rows: Vec::new(),
        notes: vec![
            "Resident input, from the first enqueue to the end of the last step, arg-max left out. Percent: flop (2 a \
             multiply-add, padding not counted) in this time, of the measured peak."
                .into(),
            format!("Host engine: {} threads.", threads()),
        ],
        plot: Plot::None,
    };
    let document = [
        ("partial-mnist", 1.99, 38.14),
        ("partial-cifar", 0.66, 11.20),
        ("full-mnist", 129.33, 3705.50),
        ("full-cifar", 506.15, 19673.92),
    ];
    let mut breakdown = Section {
        id: "thesis_6".into(),
        title: "The baseline network, 1000 records, kernel by kernel (thesis, fig. 6.1 and 6.2)".into(),
        rows_are: "step".into(),
        unit: "ms".into(),
        columns: vec![
            "thesis-baseline on the device".into(),
            "thesis-morton on the device".into(),
            "host engine".into(),
        ],
        plot: Plot::Bars,
        ..networks.clone()
    };
    breakdown.notes = vec![
        "Median time of a step; the host's steps are fused, and its threads' times are added up.".into(),
    ];
    for (name, on_device, numpy) in document {
        let (network, weights) = generated(name, Kind::Values).map_err(Error::Usage)?;
        let recipe = recipe_for(Some(device), options.plan.as_deref())?;
        let measure = |device: Option<&Device>, recipe: &PlanRecipe| -> Result<Cell, Error> {
            let mut rig = Rig::new((&network, &weights), device, recipe, BATCH, false, &options.sources)?;
            let runs = runs_for(&mut rig, options)?.min(50);
            let ms: Vec<f64> = rig.resident(runs)?.iter().map(|us| us / 1e3).collect();
            let mut cell = measured(&ms);
            if let (Some(peak), Some(_)) = (peak_gflops, device) {
                cell.percent = Some(100.0 * rig.flop as f64 * BATCH as f64 / (cell.value * 1e6) / peak);
            }
            Ok(Cell::Measured(cell))
        };
        let device_cell = measure(Some(device), recipe).unwrap_or_else(|e| Cell::Skipped(e.to_string()));
        let host_cell =
            measure(None, recipe_for(None, None)?).unwrap_or_else(|e| Cell::Skipped(e.to_string()));
        let nominal = match (&device_cell, nominal_gflops) {
            (Cell::Measured(d), Some(peak)) => {
                Cell::Text(format!("{:.1} %", network.flop() as f64 * BATCH as f64 / d.value / 1e4 / peak))
            }
            _ => Cell::Empty,
        };
        let ratio = match (&device_cell, &host_cell) {
            (Cell::Measured(d), Cell::Measured(h)) => Cell::Text(format!("{:.2}", h.value / d.value)),
            _ => Cell::Empty,
        };
        let cells =
            vec![device_cell, nominal, host_cell, ratio, Cell::Document(on_device), Cell::Document(numpy)];
        networks.rows.push(Row { label: name.into(), cells });
    }
    breakdown.rows = baseline_rows(device, options)?;
    Ok(vec![breakdown, networks])
}

/// The steps of the baseline network under the two plans of the thesis, and on the host.
fn baseline_rows(device: &Device, options: &BenchOptions) -> Result<Vec<Row>, Error> {
    let (network, weights) = generated("baseline", Kind::Values).map_err(Error::Usage)?;
    let mut rows: Vec<Row> = Vec::new();
    let plans = [("thesis-baseline", Some(device)), ("thesis-morton", Some(device)), ("host", None)];
    for (column, (plan, device)) in plans.into_iter().enumerate() {
        let recipe = recipe_for(device, Some(plan))?;
        let mut rig = Rig::new((&network, &weights), device, recipe, 1000, true, &options.sources)?;
        rig.resident(options.repeat.max(3))?;
        let Some(clock) = rig.engine.step_times() else { continue };
        let model =
            Model::new(network.clone(), &weights, recipe, library(), Some(1000)).map_err(Error::Device)?;
        for (step, times) in model.plan.steps.iter().zip(&clock.steps) {
            // The host's blocks are parts of a batch: their times add up to it.
            let batches = options.repeat.max(3) as f64 + 2.0;
            let us = match device {
                Some(_) => times.run.percentile_us(0.5),
                None => Some(times.run.total_us() / batches),
            };
            let label = format!("layer {} {}", step.layer, step.operation.name());
            let cell = us.map_or(Cell::Empty, |us| {
                Cell::Measured(Measured {
                    value: us / 1e3,
                    runs: times.run.count() as u32,
                    ..Measured::default()
                })
            });
            match rows.iter_mut().find(|r| r.label == label) {
                Some(row) => row.cells[column] = cell,
                None => {
                    let mut cells = vec![Cell::Empty; plans.len()];
                    cells[column] = cell;
                    rows.push(Row { label, cells });
                }
            }
        }
    }
    Ok(rows)
}

/// Median and half the distance between the quartiles.
pub fn measured(values: &[f64]) -> Measured {
    Measured {
        value: quantile(values, 0.5),
        spread: (quantile(values, 0.75) - quantile(values, 0.25)) / 2.0,
        runs: values.len() as u32,
        ..Measured::default()
    }
}
