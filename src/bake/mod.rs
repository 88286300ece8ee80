//! The part of the package that runs at build time. It reads and checks the network and the kernel
//! library, packs the weights for the plan's kernels, and writes the block. The block is the data
//! that the program contains. `build.rs` includes this module, and so does the library, for its
//! tests and for `mortonnet-bake`.
//!
//! Nothing here panics on a mistake in a user's file. All mistakes are collected in [`Mistakes`]
//! and reported together.

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

/// The form in which the user gives settings. Messages name a setting in the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// The user sets environment variables of `cargo build`.
    Variables,
    /// The user gives command-line options to `mortonnet-bake`.
    Options,
}

impl Names {
    /// Returns the setting that gives the model at `path`, as messages show it.
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

/// The way in which networks of 8-bit integers are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Arithmetic {
    /// The program computes with the integers that the model states.
    #[default]
    Model,
    /// The program computes with the real numbers that the integers represent, and rounds nothing
    /// to integers.
    Float,
}

impl Arithmetic {
    /// Parses the text of MORTONNET_ARITHMETIC.
    ///
    /// # Errors
    /// The text is neither `model` nor `float`.
    pub(crate) fn parse(text: &str) -> Result<Arithmetic, String> {
        match text {
            "model" => Ok(Arithmetic::Model),
            "float" => Ok(Arithmetic::Float),
            _ => Err(format!("expected model or float, found \"{text}\"")),
        }
    }
}

/// The settings of a bake. Relative paths are relative to `root`.
pub(crate) struct Settings {
    pub(crate) names: Names,
    /// The folder of this package.
    pub(crate) root: PathBuf,
    /// The model: a network JSON, an ONNX or TensorFlow Lite file, or a folder with `network.json`.
    pub(crate) model: PathBuf,
    /// The sizes that the user states for axes that the model leaves open.
    pub(crate) sizes: Sizes,
    /// The way in which networks of 8-bit integers are computed.
    pub(crate) arithmetic: Arithmetic,
    /// The file of calibration records, if a network of floats is to be quantized.
    pub(crate) quantize: Option<PathBuf>,
    /// The number format that weights are stored in. With `None` it is f32, or bytes for a network
    /// that the build quantizes.
    pub(crate) weights: Option<Precision>,
    /// The percentage of records whose predicted class may change when weights become bytes, or
    /// when the build quantizes the network.
    pub(crate) changes: f64,
    /// The name of a plan of the library, or the path of a plan file (`.json`).
    pub(crate) plan: String,
    /// True if the program includes the lab. It measures all kernels, so even kernels that no plan
    /// uses are baked.
    pub(crate) lab: bool,
}

/// All data that the build puts into the program.
pub(crate) struct Baked {
    pub(crate) network: Network,
    pub(crate) library: Library,
    pub(crate) sources: KernelSources,
    pub(crate) plan: Plan,
    /// For each plan of the library, the number of steps that it has for this network.
    pub(crate) steps: Vec<PlanSteps>,
    pub(crate) constants: Constants,
    pub(crate) golden: GoldenVectors,
    /// The effect of rounding the weights. `None` for weights in f32 and for a network that the
    /// build quantized.
    pub(crate) rounding: Option<Rounding>,
    /// The effect of quantizing the network. `None` if the build did not quantize it.
    pub(crate) quantized: Option<Quantized>,
    /// Remarks on the model for the user who builds.
    pub(crate) notes: Vec<String>,
    /// All files that the build has read.
    pub(crate) files: Vec<PathBuf>,
}

/// The name of a plan, and its number of steps for the network.
pub(crate) struct PlanSteps {
    pub(crate) plan: String,
    pub(crate) steps: usize,
}

/// The packed constants of a plan, in the layouts of the plan.
pub(crate) struct Constants {
    /// The bytes of all constants. Each constant begins at a multiple of a page.
    pub(crate) bytes: Vec<u8>,
    /// The offset of each constant in `bytes`.
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

    /// Reads constant `i` of `plan` from its packed bytes, as the program will.
    pub(crate) fn read(&self, plan: &Plan, i: usize) -> Values {
        let (constant, offset) = (&plan.constants[i], self.offsets[i]);
        Values::read(constant, &self.bytes[offset..offset + constant.bytes()])
    }
}

/// The result of a bake that failed: the mistakes that were found.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) mistakes: Mistakes,
    /// The files that were read until then. If one of them changes, cargo builds again.
    #[allow(dead_code)] // Only the build script reads it.
    pub(crate) files: Vec<PathBuf>,
}

/// The percentage of records whose predicted class may change by default.
const CHANGES: f64 = 1.0;

/// Parses the text of MORTONNET_WEIGHTS, or `None` if the variable is not set. Returns the number
/// format of stored weights, and the percentage of records whose predicted class may change.
///
/// # Errors
/// The text has another form.
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

/// Reads and checks the kernel library and the model that the settings name, plans the network and
/// packs its weights.
///
/// # Errors
/// Returns all mistakes in the network, the library and the plan.
pub(crate) fn bake(settings: &Settings) -> Result<Baked, Failed> {
    let (mut mistakes, mut files) = Default::default();
    let library = kernels::read(&settings.root, &mut files, &mut mistakes);
    bake_with(settings, library, mistakes, files)
}

/// Bakes with the given kernel library and kernel sources. They are `None` if they have mistakes,
/// which are in `mistakes`. `files` are the files that were read so far.
///
/// # Errors
/// Returns all mistakes in the network and the plan, after the given ones of the library.
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

/// Plans the network with every plan of the library, because users can choose any of them at run
/// time. Reports plans that fail, and returns the number of steps of the others.
fn try_all_plans(network: &Network, library: &Library, mistakes: &mut Mistakes) -> Vec<PlanSteps> {
    let mut steps = Vec::new();
    for recipe in library.plans.iter() {
        // Some devices cannot run all layers in one launch. They use this variant of the plan, so
        // it is planned, too.
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

/// Returns the plan that the settings ask for. `None` after a mistake.
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

/// Reports a mistake if the settings store weights in fewer bits, but kernels of the plan read them
/// as f32.
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
        // Kernels for whole numbers get bytes of any weights.
        kernels
            .filter(|(_, kernel)| !kernel.whole())
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

/// Reads a plan file, adds its recipe to the library, and plans the network with it. If the file
/// lists the layouts of constants, the plan must have the same layouts. Otherwise the network or
/// the library has changed since `tune` wrote the file.
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
    /// Returns the block of bytes that the program contains. It contains no paths of the build
    /// machine, so the same inputs always give the same bytes.
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

/// Returns the path in the form that messages show: relative to `root` if it is inside `root`.
pub(crate) fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string()
}

#[cfg(test)]
pub(crate) mod tests;
