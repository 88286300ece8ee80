//! The build-time half: reads the network and the kernel library, checks them, lays the weights out
//! for the plan's kernels, and writes what the program is compiled from. Mounted by `build.rs`, and
//! by the library for its tests.
//!
//! Nothing here panics on a user's file: every mistake becomes a line in [`Mistakes`], all of them
//! are reported.

mod draft;
pub(crate) mod front;
pub(crate) mod golden;
pub(crate) mod interpreter;
pub(crate) mod json;
pub(crate) mod kernels;
pub(crate) mod matrix;
pub(crate) mod model;
pub(crate) mod overflow;
mod passes;
mod rounding;

use crate::block::{self, NetworkSection, PAGE, PlanSection};
use crate::ir::graph;
use crate::ir::network::{Network, Precision, named};
use crate::ir::plan::{Constant, Plan, Role};
use crate::ir::values::Values;
use crate::ir::wire;
use crate::planner;
use crate::planner::fit::{self, Fit};
pub(crate) use crate::registry::mistakes::Mistakes;
use crate::registry::{EngineKind, KernelSources, Library, PlanRecipe};
use golden::Golden;
use interpreter::Subject;
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

/// How settings are given, which is how messages call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// By variables of `cargo build`.
    Variables,
    /// By options of `mortonnet-bake`.
    Options,
}

impl Names {
    /// The model of this path.
    pub(crate) fn model(self, path: &Path) -> String {
        match self {
            Names::Variables => format!("MORTONNET_MODEL={}", path.display()),
            Names::Options => path.display().to_string(),
        }
    }

    /// The plan.
    pub(crate) fn plan(self) -> &'static str {
        match self {
            Names::Variables => "MORTONNET_PLAN",
            Names::Options => "--plan",
        }
    }

    /// How weights are stored.
    pub(crate) fn weights(self) -> &'static str {
        match self {
            Names::Variables => "MORTONNET_WEIGHTS",
            Names::Options => "--weights",
        }
    }
}

/// What to bake.
pub(crate) struct Settings {
    /// How messages call the settings.
    pub(crate) names: Names,
    /// The package's folder.
    pub(crate) root: PathBuf,
    /// MORTONNET_MODEL: a network JSON, an ONNX or TensorFlow Lite model, or a folder with
    /// `network.json`; relative paths count from `root`.
    pub(crate) model: PathBuf,
    /// MORTONNET_WEIGHTS: how weights are stored.
    pub(crate) weights: Precision,
    /// MORTONNET_WEIGHTS: of how many of 100 classes weights stored as bytes may change.
    pub(crate) changes: f64,
    /// MORTONNET_PLAN: a plan's name, or a plan file (`.json`; relative paths count from `root`).
    pub(crate) plan: String,
    /// Whether the program has the lab, which measures kernels that no plan uses.
    pub(crate) lab: bool,
}

/// Everything that goes into the binary.
pub(crate) struct Baked {
    /// The network.
    pub(crate) network: Network,
    /// The kernel library.
    pub(crate) library: Library,
    /// Kernel sources: path below `kernels/`, text.
    pub(crate) sources: KernelSources,
    /// The plan.
    pub(crate) plan: Plan,
    /// Steps of each plan of the library for this network.
    pub(crate) steps: Vec<(String, usize)>,
    /// The fewest and the most programs of the library's OpenCL plans for device classes.
    pub(crate) programs: (usize, usize),
    /// Constants in their layouts, each from a page on.
    pub(crate) constants: Vec<u8>,
    /// Byte offset of each of the plan's constants in `constants`.
    pub(crate) offsets: Vec<usize>,
    /// Number of golden vectors and where they come from.
    pub(crate) golden: Golden,
    /// What rounding the weights did.
    pub(crate) rounding: Option<Rounding>,
    /// What whoever builds should know of the model.
    pub(crate) notes: Vec<String>,
    /// Files that were read.
    pub(crate) files: Vec<PathBuf>,
}

/// Reads MORTONNET_WEIGHTS: what weights are stored as, and of how many of 100 classes that may
/// change.
///
/// # Errors
/// What was expected.
pub(crate) fn stored(text: &str) -> Result<(Precision, f64), String> {
    let (name, changes) = text
        .split_once(':')
        .map_or((text, None), |(name, most)| (name, Some(most)));
    let weights = Precision::parse(name);
    let percent = |text: &str| {
        text.parse()
            .ok()
            .filter(|most: &f64| (0.0..=100.0).contains(most))
    };
    match (weights, changes) {
        (Some(weights), None) => Ok((weights, 1.0)),
        (Some(Precision::I8), Some(most)) if percent(most).is_some() => {
            Ok((Precision::I8, percent(most).unwrap_or_default()))
        }
        _ => Err(format!(
            "expected f32, f16, i8, or i8:PERCENT, of how many of 100 classes may change, found \
             \"{text}\""
        )),
    }
}

/// What storing weights as less than floats changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rounding {
    /// How the weights differ.
    pub(crate) weights: String,
    /// Largest change of a score.
    pub(crate) score: f64,
    /// Vectors whose class changes, of how many; none where they are too few to say.
    pub(crate) classes: Option<(usize, usize)>,
}

impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; scores change by at most {:.2e}",
            self.weights, self.score
        )?;
        let Some((changed, of)) = self.classes else {
            return Ok(());
        };
        write!(f, ", {changed} of {of} classes")
    }
}

/// Reads, checks and lays out everything.
///
/// # Errors
/// Every mistake of the network, the library and the plan, and the files read so far (so that
/// mending one of them starts the build again).
pub(crate) fn bake(settings: &Settings) -> Result<Baked, (Mistakes, Vec<PathBuf>)> {
    let (mut mistakes, mut files) = Default::default();
    let library = kernels::read(&settings.root, &mut files, &mut mistakes);
    bake_with(settings, library, mistakes, files)
}

/// The same with this library and its sources; none is there if it has mistakes. `files` were read
/// so far.
///
/// # Errors
/// As [`bake`].
pub(crate) fn bake_with(
    settings: &Settings,
    library: Option<(Library, KernelSources)>,
    mut mistakes: Mistakes,
    mut files: Vec<PathBuf>,
) -> Result<Baked, (Mistakes, Vec<PathBuf>)> {
    let model = front::read(settings, &mut files, &mut mistakes);
    let (Some((mut library, mut sources)), Some((mut network, tensors, golden, rounding))) =
        (library, model)
    else {
        return Err((mistakes, files));
    };
    let arrays = network.graph.tensors.to_mut().iter_mut().zip(&tensors);
    arrays
        .filter(|(tensor, _)| tensor.role == Role::Weights)
        .for_each(|(tensor, numbers)| tensor.spread = graph::spread(numbers, tensor.cols));
    if !settings.lab {
        kernels::drop_plans_of_the_lab(&mut library, &settings.plan);
    }
    let (mut steps, mut programs) = (Vec::new(), (usize::MAX, 0));
    // Every plan of the library must serve this network: they can all be chosen at run time.
    for recipe in library.plans.iter() {
        // With a launch for each layer too, which serves where one for all cannot run.
        for recipe in [Some(recipe.clone()), library.layer_by_layer(recipe)]
            .iter()
            .flatten()
        {
            match planner::plan(&network, recipe, &library, None) {
                Ok(plan) => {
                    let wrong = planner::check::check(&plan, &network, &library);
                    wrong
                        .iter()
                        .for_each(|w| mistakes.add("kernels/library.json", w));
                    steps.push((recipe.name.to_string(), plan.full().len()));
                    if library.devices.iter().any(|c| c.plan == recipe.name) {
                        let count = fit::programs(&plan, &library);
                        programs = (programs.0.min(count), programs.1.max(count));
                    }
                }
                Err(failed) => failed
                    .iter()
                    .for_each(|f| mistakes.add("kernels/library.json", f)),
            }
        }
    }
    let plan = if settings.plan.ends_with(".json") {
        plan_of_file(settings, &network, &mut library, &mut files, &mut mistakes)
    } else {
        match library.plan(&settings.plan) {
            Ok(recipe) => planner::plan(&network, recipe, &library, None).ok(),
            Err(e) => {
                mistakes.add(
                    settings.names.plan(),
                    format_args!("{e}; a plan file ends in .json"),
                );
                None
            }
        }
    };
    let stored = settings.weights;
    if let (Some(plan), true) = (&plan, stored != Precision::F32) {
        let whole = |c: &&Constant| c.role == Role::Weights && c.precision == Precision::F32;
        if plan.constants.iter().any(|c| whole(&c)) {
            let reads = |p: &&PlanRecipe| {
                let mut kernels = p
                    .kernels
                    .iter()
                    .filter_map(|k| library.kernel(k))
                    .map(|k| &k.1.restrictions);
                kernels.all(|r| r.a.is_none() || r.weights(stored) == stored)
            };
            let names: Vec<&str> = library
                .plans
                .iter()
                .filter(reads)
                .map(|p| &*p.name)
                .collect();
            mistakes.add(
                settings.names.weights(),
                format_args!(
                    "plan {} does not read {}; {} do",
                    plan.name,
                    stored.name(),
                    names.join(", ")
                ),
            );
        }
    }
    let Some(plan) = plan.filter(|_| mistakes.lines.is_empty()) else {
        return Err((mistakes, files));
    };
    if !settings.lab {
        kernels::keep_those_of_plans(&mut library, &mut sources);
    }

    let (mut constants, mut offsets) = (Vec::new(), Vec::new());
    for c in plan.constants.iter() {
        constants.resize(constants.len().next_multiple_of(PAGE), 0);
        offsets.push(constants.len());
        constants.extend(Values::pack(c, &|t| Cow::Borrowed(&tensors[t][..])).bytes());
    }
    // As the program will read them.
    let stored = plan.constants.iter().zip(&offsets);
    let stored: Vec<Values> = stored
        .map(|(c, &at)| Values::read(c, &constants[at..at + c.bytes()]))
        .collect();
    let subject = Subject {
        network: &network,
        tensors: &tensors,
        library: &library,
        plan: &plan,
        constants: &stored,
    };
    if let Err(wrong) = interpreter::judge(&subject, &golden.inputs, &golden.scores) {
        mistakes.add(&network.name, wrong);
        return Err((mistakes, files));
    }
    Ok(Baked {
        network,
        library,
        sources,
        plan,
        steps,
        programs,
        constants,
        offsets,
        golden,
        rounding,
        notes: mistakes.notes,
        files,
    })
}

fn floats(values: &[f32]) -> impl Iterator<Item = u8> {
    values.iter().flat_map(|v| v.to_le_bytes())
}

impl Baked {
    /// What whoever builds wants to know, a line each: what was baked (`why` it was where nobody
    /// asked for it), what it takes of this architecture with a block of so many bytes, notes, what
    /// rounding changed.
    pub(crate) fn report(&self, why: &str, arch: &str, block: usize) -> Vec<String> {
        let (n, plan) = (&self.network, &self.plan);
        let (mut shape, bytes) = (n.shape(), plan.constant_bytes());
        for (what, values) in [("inputs", &n.inputs), ("outputs", &n.outputs)] {
            if !values.is_empty() {
                shape += &format!(", {what} {}", named(values));
            }
        }
        let mut lines = vec![
            format!(
                "baked {}{why}: {shape}, plan {}, {bytes} bytes",
                n.name, plan.name
            ),
            self.fits(arch, block),
        ];
        lines.extend(self.notes.iter().cloned());
        lines.extend(
            self.rounding
                .iter()
                .map(|r| format!("weights as {}: {r}", n.weights.name())),
        );
        lines
    }

    /// What its plan takes of a device, of the host a thread of this architecture, and its block of
    /// the file, in a line.
    pub(crate) fn fits(&self, arch: &str, block: usize) -> String {
        let (plan, library, flop) = (&self.plan, &self.library, self.network.flop());
        let of = |plan: &Plan| Fit::of(plan, library, (arch, 1), flop);
        let full = of(plan);
        let recipe = library.plan(&plan.name).ok();
        let single = recipe.and_then(|r| planner::plan(&self.network, r, library, Some(1)).ok());
        let single = single.map(|plan| of(&plan));
        let (total, batch) = (full.memory.total(), full.batch);
        let mut text = format!("memory: {total} bytes for batches of {batch}");
        if let Some(single) = &single {
            text += &format!(", {} for single records", single.memory.total());
        }
        let ((bound, arena), (fewest, most)) = (full.arena, self.programs);
        let fewest = fewest.min(most);
        let each = if plan.engine == EngineKind::Host {
            " a record"
        } else {
            ""
        };
        text += &format!(" (arena {arena}{each}, at least {bound}); ");
        text += &match (plan.engine, fewest == most) {
            (EngineKind::OpenCl, _) => format!("{} programs", full.programs),
            (EngineKind::Host, true) => format!("on OpenCL {most} programs"),
            (EngineKind::Host, false) => format!("on OpenCL {fewest} to {most} programs"),
        };
        if let Some((class, us)) = full.modelled {
            let alone = single
                .and_then(|s| s.modelled)
                .map_or(String::new(), |(_, us)| format!(", {us:.2} alone"));
            let thread = if plan.engine == EngineKind::Host {
                "a thread of "
            } else {
                ""
            };
            text += &format!("; {us:.2} µs a record{alone} modelled on {thread}{class}");
        }
        text + &format!("; {block} bytes of the file; --info has all plans")
    }

    /// The block: the same for the same inputs, without any path of the machine that builds.
    pub(crate) fn block(&self) -> Vec<u8> {
        let network: NetworkSection =
            (self.network.clone(), (self.golden.given, self.golden.range));
        let steps = self
            .steps
            .iter()
            .map(|(name, n)| (name.clone().into(), *n))
            .collect();
        let plan: PlanSection = (self.plan.clone(), (self.offsets.clone().into(), steps));
        let [inputs, scores, overflow] = [
            &self.golden.inputs,
            &self.golden.scores,
            &self.golden.overflow,
        ]
        .map(|values| floats(values).collect::<Vec<u8>>());
        block::write([
            &wire::bytes(&network),
            &wire::bytes(&plan),
            &wire::bytes(&self.library),
            &block::compressed(&self.sources),
            &self.constants,
            &inputs,
            &scores,
            &overflow,
        ])
    }
}

/// The plan of a plan file, which joins the library's. Where kernels have changed since, its
/// layouts must still hold.
fn plan_of_file(
    settings: &Settings,
    network: &Network,
    library: &mut Library,
    files: &mut Vec<PathBuf>,
    mistakes: &mut Mistakes,
) -> Option<Plan> {
    let path = settings.root.join(&settings.plan);
    let mut files = matrix::Files {
        root: &settings.root,
        read: files,
    };
    let file = kernels::read_plan_file(
        (&path, settings.names.plan()),
        library,
        &mut files,
        mistakes,
    )?;
    let plan = match planner::plan(network, &file.recipe, library, None) {
        Ok(plan) => plan,
        Err(failed) => {
            failed.iter().for_each(|f| mistakes.add(&settings.plan, f));
            return None;
        }
    };
    let found: Vec<(String, String, String)> = plan.layouts().collect();
    if !file.layouts.is_empty() && file.layouts != found {
        let say = |l: &[(String, String, String)]| {
            l.iter()
                .map(|(n, role, layout)| format!("{n} {role} {layout}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        mistakes.add(
            &settings.plan,
            format_args!(
                "tuned with kernel library {} for {}; with library {} the network has {}: tune \
                 again",
                file.library,
                say(&file.layouts),
                library.hash,
                say(&found)
            ),
        );
        return None;
    }
    library.plans.to_mut().push(file.recipe);
    Some(plan)
}

/// How a path is shown: relative to the package where it lies inside.
pub(crate) fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string()
}

#[cfg(test)]
pub(crate) mod tests;
