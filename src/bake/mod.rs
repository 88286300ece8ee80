//! The build-time half. It reads and checks the network and the kernel library, arranges the
//! weights for the plan's kernels, and writes the block of bytes that the program contains. Mounted
//! by `build.rs`, and by the library for its tests and for `mortonnet-bake`.
//!
//! Nothing here panics on a user's file: mistakes are collected in [`Mistakes`], and all of them
//! are reported.

mod draft;
pub(crate) mod front;
pub(crate) mod golden;
pub(crate) mod interpreter;
pub(crate) mod json;
pub(crate) mod kernels;
pub(crate) mod matrix;
mod meaning;
pub(crate) mod model;
pub(crate) mod overflow;
mod passes;
mod quantize;
mod report;
mod rounding;
mod same;
pub(crate) mod sizes;

use crate::block::{self, NetworkSection, PAGE, PlanSection};
use crate::ir::graph::{self, Tensors};
use crate::ir::network::{Network, Precision};
use crate::ir::plan::{Constant, Plan, Role};
use crate::ir::values::Values;
use crate::ir::wire;
use crate::planner;
pub(crate) use crate::registry::mistakes::Mistakes;
use crate::registry::{KernelSources, Library, PlanRecipe};
use golden::GoldenVectors;
use interpreter::Subject;
use model::ReadModel;
use quantize::Quantized;
use rounding::Rounding;
use sizes::Sizes;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The way in which settings are given. Messages name the settings accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// By variables of `cargo build`.
    Variables,
    /// By options of `mortonnet-bake`.
    Options,
}

impl Names {
    /// Returns the setting that names the model at `path`, for messages.
    pub(crate) fn model(self, path: &Path) -> String {
        match self {
            Names::Variables => format!("MORTONNET_MODEL={}", path.display()),
            Names::Options => path.display().to_string(),
        }
    }

    pub(crate) fn plan(self) -> &'static str {
        match self {
            Names::Variables => "MORTONNET_PLAN",
            Names::Options => "--plan",
        }
    }

    pub(crate) fn sizes(self) -> &'static str {
        match self {
            Names::Variables => "MORTONNET_SIZES",
            Names::Options => "--sizes",
        }
    }

    pub(crate) fn arithmetic(self) -> &'static str {
        match self {
            Names::Variables => "MORTONNET_ARITHMETIC",
            Names::Options => "--arithmetic",
        }
    }

    pub(crate) fn quantize(self) -> &'static str {
        match self {
            Names::Variables => "MORTONNET_QUANTIZE",
            Names::Options => "--quantize",
        }
    }

    pub(crate) fn weights(self) -> &'static str {
        match self {
            Names::Variables => "MORTONNET_WEIGHTS",
            Names::Options => "--weights",
        }
    }
}

/// How networks of 8-bit integers are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Arithmetic {
    /// The integers that the model states are computed.
    #[default]
    Model,
    /// The real numbers that the integers stand for are computed. Nothing is rounded to integers.
    Float,
}

impl Arithmetic {
    /// Parses MORTONNET_ARITHMETIC.
    ///
    /// # Errors
    /// Another text.
    pub(crate) fn parse(text: &str) -> Result<Arithmetic, String> {
        match text {
            "model" => Ok(Arithmetic::Model),
            "float" => Ok(Arithmetic::Float),
            _ => Err(format!("expected model or float, found \"{text}\"")),
        }
    }
}

/// The settings of a bake. Relative paths count from `root`.
pub(crate) struct Settings {
    pub(crate) names: Names,
    /// The folder of the package.
    pub(crate) root: PathBuf,
    /// A network JSON, an ONNX or TensorFlow Lite model, or a folder with `network.json`.
    pub(crate) model: PathBuf,
    /// Sizes that the model leaves open.
    pub(crate) sizes: Sizes,
    /// How networks of 8-bit integers are computed.
    pub(crate) arithmetic: Arithmetic,
    /// The file of records that a network of floats is quantized with.
    pub(crate) quantize: Option<PathBuf>,
    /// The type that weights are stored as. `None`: f32, or bytes for a network that the build
    /// quantizes.
    pub(crate) weights: Option<Precision>,
    /// The percentage of classes that weights as bytes, or a quantization, may change.
    pub(crate) changes: f64,
    /// The name of a plan, or a plan file (`.json`).
    pub(crate) plan: String,
    /// True if the program has the lab, which measures kernels that no plan uses.
    pub(crate) lab: bool,
}

/// Everything that goes into the program.
pub(crate) struct Baked {
    pub(crate) network: Network,
    pub(crate) library: Library,
    pub(crate) sources: KernelSources,
    pub(crate) plan: Plan,
    /// The number of steps that each plan of the library has for this network.
    pub(crate) steps: Vec<PlanSteps>,
    pub(crate) constants: Constants,
    pub(crate) golden: GoldenVectors,
    /// The effect of rounding the weights; `None` for weights in f32.
    pub(crate) rounding: Option<Rounding>,
    /// The effect of quantizing the network; `None` if the build quantized nothing.
    pub(crate) quantized: Option<Quantized>,
    /// Remarks on the model for whoever builds.
    pub(crate) notes: Vec<String>,
    /// The files that were read.
    pub(crate) files: Vec<PathBuf>,
}

/// The number of steps of a plan.
pub(crate) struct PlanSteps {
    pub(crate) plan: String,
    pub(crate) steps: usize,
}

/// The constants of a plan in their layouts.
pub(crate) struct Constants {
    /// The bytes of all constants. Each constant begins at a page boundary.
    pub(crate) bytes: Vec<u8>,
    /// The offset of each of the plan's constants.
    pub(crate) offsets: Vec<usize>,
}

impl Constants {
    fn pack(plan: &Plan, tensors: &Tensors) -> Constants {
        let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
        for constant in plan.constants.iter() {
            bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
            offsets.push(bytes.len());
            let values = Values::pack(constant, &|t| Cow::Borrowed(&tensors[t][..]));
            bytes.extend(values.bytes());
        }
        Constants { bytes, offsets }
    }

    /// Reads constant `i` of `plan` as the program will.
    pub(crate) fn read(&self, plan: &Plan, i: usize) -> Values {
        let (constant, offset) = (&plan.constants[i], self.offsets[i]);
        Values::read(constant, &self.bytes[offset..offset + constant.bytes()])
    }
}

/// The reasons why nothing is baked.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) mistakes: Mistakes,
    /// The files that were read before: changing one of them starts the build again.
    #[allow(dead_code)] // Only the build script reads it.
    pub(crate) files: Vec<PathBuf>,
}

/// The percentage of classes that may change, unless a setting allows more.
const CHANGES: f64 = 1.0;

/// Parses MORTONNET_WEIGHTS, which may be missing. Returns the type that weights are stored as, and
/// the percentage of classes that storing them may change.
///
/// # Errors
/// A text in another form.
pub(crate) fn stored(text: Option<&str>) -> Result<(Option<Precision>, f64), String> {
    let Some(text) = text else {
        return Ok((None, CHANGES));
    };
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
        (Some(weights), None) => Ok((Some(weights), CHANGES)),
        (Some(Precision::I8), Some(most)) if percent(most).is_some() => {
            Ok((Some(Precision::I8), percent(most).unwrap_or_default()))
        }
        _ => Err(format!(
            "expected f32, f16, i8, or i8:PERCENT (the percentage of classes that may change), \
             found \"{text}\""
        )),
    }
}

/// Reads, checks and lays out everything.
///
/// # Errors
/// All mistakes of the network, the library and the plan.
pub(crate) fn bake(settings: &Settings) -> Result<Baked, Failed> {
    let (mut mistakes, mut files) = Default::default();
    let library = kernels::read(&settings.root, &mut files, &mut mistakes);
    bake_with(settings, library, mistakes, files)
}

/// Bakes with the given library and its sources; `None` if they have mistakes. `files` were read so
/// far.
///
/// # Errors
/// All mistakes of the network and the plan, behind those of the library.
pub(crate) fn bake_with(
    settings: &Settings,
    library: Option<(Library, KernelSources)>,
    mut mistakes: Mistakes,
    mut files: Vec<PathBuf>,
) -> Result<Baked, Failed> {
    let model = front::read(settings, &mut files, &mut mistakes);
    let (Some((mut library, mut sources)), Some(model)) = (library, model) else {
        return Err(Failed { mistakes, files });
    };
    let ReadModel {
        mut network,
        tensors,
        golden,
        rounding,
        quantized,
    } = model;
    for (tensor, numbers) in network.graph.tensors.to_mut().iter_mut().zip(&tensors) {
        if tensor.role == Role::Weights {
            tensor.spread = graph::spread(numbers, tensor.cols);
        }
    }
    if !settings.lab {
        kernels::drop_plans_of_the_lab(&mut library, &settings.plan);
    }
    let steps = try_all_plans(&network, &library, &mut mistakes);
    let plan = chosen_plan(settings, &network, &mut library, &mut files, &mut mistakes);
    if let Some(plan) = &plan {
        check_precision(settings, network.weights, plan, &library, &mut mistakes);
    }
    let Some(plan) = plan.filter(|_| mistakes.lines.is_empty()) else {
        return Err(Failed { mistakes, files });
    };
    if !settings.lab {
        kernels::keep_those_of_plans(&mut library, &mut sources);
    }
    let constants = Constants::pack(&plan, &tensors);
    let stored: Vec<Values> = (0..plan.constants.len())
        .map(|i| constants.read(&plan, i))
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
        return Err(Failed { mistakes, files });
    }
    Ok(Baked {
        network,
        library,
        sources,
        plan,
        steps,
        constants,
        golden,
        rounding,
        quantized,
        notes: mistakes.notes,
        files,
    })
}

/// Plans the network with every plan of the library, because each can be chosen at run time.
/// Reports those that fail, and returns the number of steps of the others.
fn try_all_plans(network: &Network, library: &Library, mistakes: &mut Mistakes) -> Vec<PlanSteps> {
    let mut steps = Vec::new();
    for recipe in library.plans.iter() {
        // Devices that cannot run all layers in one launch need this variant, so it is planned too.
        let layer_by_layer = library.layer_by_layer(recipe);
        for recipe in [Some(recipe), layer_by_layer.as_ref()]
            .into_iter()
            .flatten()
        {
            let wrong = match planner::plan(network, recipe, library, None) {
                Ok(plan) => {
                    steps.push(PlanSteps {
                        plan: recipe.name.to_string(),
                        steps: plan.full().len(),
                    });
                    planner::check::check(&plan, network, library)
                }
                Err(failed) => failed,
            };
            wrong
                .iter()
                .for_each(|w| mistakes.add("kernels/library.json", w));
        }
    }
    steps
}

/// The plan that the settings ask for; `None` after a mistake.
fn chosen_plan(
    settings: &Settings,
    network: &Network,
    library: &mut Library,
    files: &mut Vec<PathBuf>,
    mistakes: &mut Mistakes,
) -> Option<Plan> {
    if settings.plan.ends_with(".json") {
        return plan_of_file(settings, network, library, files, mistakes);
    }
    match library.plan(&settings.plan) {
        Ok(recipe) => planner::plan(network, recipe, library, None).ok(),
        Err(e) => {
            mistakes.add(
                settings.names.plan(),
                format_args!("{e}; a plan file ends in .json"),
            );
            None
        }
    }
}

/// Reports a plan that does not read weights as they are stored.
fn check_precision(
    settings: &Settings,
    stored: Precision,
    plan: &Plan,
    library: &Library,
    mistakes: &mut Mistakes,
) {
    let whole = |c: &Constant| c.role == Role::Weights && c.precision == Precision::F32;
    if stored == Precision::F32 || !plan.constants.iter().any(whole) {
        return;
    }
    let reads = |p: &&PlanRecipe| {
        let kernels = p.kernels.iter().filter_map(|k| library.kernel(k));
        kernels
            .map(|(_, kernel)| &kernel.restrictions)
            .all(|r| r.a.is_none() || r.weights(stored) == stored)
    };
    let plans = library.plans.iter().filter(reads);
    let names: Vec<&str> = plans.map(|p| &*p.name).collect();
    mistakes.add(
        settings.names.weights(),
        format_args!(
            "plan {} does not read weights in {}; plans that do: {}",
            plan.name,
            stored.name(),
            names.join(", ")
        ),
    );
}

/// Reads a plan file, plans the network by its recipe and returns the plan. The recipe joins the
/// library's. If the file names layouts, the plan must have the same. Else the network or the
/// library has changed since tuning.
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
    let file =
        kernels::read_plan_file(&path, settings.names.plan(), library, &mut files, mistakes)?;
    let plan = match planner::plan(network, &file.recipe, library, None) {
        Ok(plan) => plan,
        Err(failed) => {
            failed.iter().for_each(|f| mistakes.add(&settings.plan, f));
            return None;
        }
    };
    let found: Vec<(String, String, String)> = plan.layouts().collect();
    if !file.layouts.is_empty() && file.layouts != found {
        let say = |list: &[(String, String, String)]| {
            let each = list
                .iter()
                .map(|(node, role, layout)| format!("{node} {role} {layout}"));
            each.collect::<Vec<_>>().join(", ")
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

impl Baked {
    /// The block of bytes that the program contains. It has no path of the machine that builds, so
    /// that the same inputs give the same bytes.
    pub(crate) fn block(&self) -> Vec<u8> {
        let network: NetworkSection =
            (self.network.clone(), (self.golden.given, self.golden.range));
        let steps = self
            .steps
            .iter()
            .map(|p| (p.plan.clone().into(), p.steps))
            .collect();
        let plan: PlanSection = (
            self.plan.clone(),
            (self.constants.offsets.clone().into(), steps),
        );
        let [inputs, scores, overflow] = [
            &self.golden.inputs,
            &self.golden.scores,
            &self.golden.overflow,
        ]
        .map(|values| {
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<u8>>()
        });
        block::write([
            &wire::bytes(&network),
            &wire::bytes(&plan),
            &wire::bytes(&self.library),
            &wire::bytes(&self.sources),
            &self.constants.bytes,
            &inputs,
            &scores,
            &overflow,
        ])
    }
}

/// The path as messages show it: relative to `root` where it lies inside.
pub(crate) fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string()
}

#[cfg(test)]
pub(crate) mod tests;
