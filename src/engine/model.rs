//! A network ready for an engine: its plan, and its constants in the plan's layouts.

use crate::baked;
use crate::cl::{Access, Channel, ClError, Image2d, Queue, bytes_of};
use crate::ir::graph::Graph;
use crate::ir::network::Network;
use crate::ir::plan::{Constant, Plan};
use crate::ir::values;
pub(crate) use crate::ir::values::Values;
use crate::planner;
use crate::planner::whole::{Layers, WholePlan};
use crate::registry::{EngineKind, Library, PlanRecipe};
use std::borrow::Cow;

pub(crate) fn bytes(values: &Values) -> &[u8] {
    match values {
        Values::F32(values) => bytes_of(&values[..]),
        Values::F16(halves) => bytes_of(&halves[..]),
        Values::I8(numbers) => bytes_of(&numbers[..]),
    }
}

/// Creates an image of `width`×`height` pixels. Each pixel holds four numbers of `values`.
///
/// # Errors
/// Returns the driver's error.
pub(crate) fn image(
    queue: &Queue,
    name: &str,
    (width, height): (usize, usize),
    values: &Values,
) -> Result<Image2d, ClError> {
    let channel = match values {
        Values::F32(_) => Channel::Float,
        Values::F16(_) => Channel::Half,
        Values::I8(_) => Channel::Byte,
    };
    let image = Image2d::new(queue, name, width, height, channel, Access::ReadOnly)?;
    match values {
        Values::F32(values) => image.upload(&values[..])?,
        Values::F16(halves) => image.upload(&halves[..])?,
        Values::I8(numbers) => image.upload(&numbers[..])?,
    }
    Ok(image)
}

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) network: Network,
    /// The recipe that the plan was made from.
    pub(crate) recipe: PlanRecipe,
    pub(crate) plan: Plan,
    /// The plan's constants, padded and in their layouts.
    pub(crate) constants: Vec<Values>,
    /// The number of constants that were repacked, because the plan needs other layouts than the
    /// baked ones.
    pub(crate) laid_out_again: usize,
}

impl Model {
    /// Makes the model of the baked network under `recipe`. The baked recipe needs no planning, and
    /// its constants are used in place. Other recipes repack only the constants whose layout
    /// differs from the baked one.
    pub(crate) fn baked(recipe: &PlanRecipe, batch: Option<usize>) -> Result<Model, String> {
        let network = baked::network().clone();
        if batch.is_none_or(|n| n == baked::plan().batch) && is_baked(recipe) {
            let plan = baked::plan().clone();
            let constants = (0..plan.constants.len()).map(baked::constant).collect();
            return Ok(Model {
                network,
                recipe: recipe.clone(),
                plan,
                constants,
                laid_out_again: 0,
            });
        }
        let plan = planned(&network, recipe, baked::library(), batch)?;
        let (constants, laid_out_again) =
            laid_out(&network.graph, &plan, baked::plan(), &baked::constant)?;
        Ok(Model {
            network,
            recipe: recipe.clone(),
            plan,
            constants,
            laid_out_again,
        })
    }

    /// Returns the model with kernels for whole numbers in `layers`, for a device that multiplies
    /// bytes. `None` if the recipe has no such kernels, or the network no such layers.
    pub(crate) fn whole(&self, library: &Library, layers: Layers) -> Result<Option<Model>, String> {
        let Model {
            network,
            recipe,
            plan,
            constants,
            ..
        } = self;
        let whole = planner::whole::whole(network, recipe, library, plan, (constants, layers))?;
        Ok(whole.map(|WholePlan { plan, constants }| Model {
            network: network.clone(),
            recipe: recipe.clone(),
            plan,
            constants,
            laid_out_again: self.laid_out_again,
        }))
    }

    /// Returns simpler versions of this model for a device whose limits forbid it, smallest change
    /// first, each with its description. The first version lacks the variant for few records. The
    /// second launches each layer separately. The third does both. Versions with the same steps as
    /// this model are left out.
    pub(crate) fn simpler(&self) -> impl Iterator<Item = (&'static str, Model)> + use<'_> {
        let separate = baked::library().layer_by_layer(&self.recipe);
        let alone = |recipe: &PlanRecipe| PlanRecipe {
            few: None,
            ..recipe.clone()
        };
        // If the whole batch fits in the variant for few records, a recipe with `few` gives a plan
        // of that variant alone. So `few` is removed from the recipe to get the full plan.
        let (full, last) = (
            self.recipe.few.as_ref().map(|_| alone(&self.recipe)),
            separate.as_ref().map(alone),
        );
        let separately = "a launch for each layer";
        let all = [
            ("nothing of its own for few records", full),
            (separately, separate),
            (separately, last),
        ];
        all.into_iter().filter_map(|(what, recipe)| {
            let recipe = recipe?;
            let plan = planned(
                &self.network,
                &recipe,
                baked::library(),
                Some(self.plan.batch),
            )
            .ok()?;
            (plan.steps != self.plan.steps).then_some(())?;
            let (constants, again) = laid_out(&self.network.graph, &plan, &self.plan, &|i| {
                self.constants[i].clone()
            })
            .ok()?;
            let laid_out_again = self.laid_out_again + again;
            Some((
                what,
                Model {
                    network: self.network.clone(),
                    recipe,
                    plan,
                    constants,
                    laid_out_again,
                },
            ))
        })
    }

    /// Makes a model for the host engine from a plan and its constants. A plan for the host engine
    /// is used as it is. If the plan is for OpenCL, the network is planned again for the host, and
    /// the constants are repacked.
    #[cfg(any(test, feature = "bake"))]
    pub(crate) fn for_host(
        network: &Network,
        library: &Library,
        plan: &Plan,
        constants: &dyn Fn(usize) -> Values,
    ) -> Result<Model, String> {
        let name = if plan.engine == EngineKind::Host {
            &*plan.name
        } else {
            "host"
        };
        let recipe = library.plan(name)?.clone();
        let network = network.clone();
        if plan.engine == EngineKind::Host {
            let constants = (0..plan.constants.len()).map(constants).collect();
            return Ok(Model {
                network,
                recipe,
                plan: plan.clone(),
                constants,
                laid_out_again: 0,
            });
        }
        let own = planned(&network, &recipe, library, None)?;
        let (constants, laid_out_again) = laid_out(&network.graph, &own, plan, constants)?;
        Ok(Model {
            network,
            recipe,
            plan: own,
            constants,
            laid_out_again,
        })
    }

    /// Makes the model of any network under `recipe`. `tensors` has the numbers of each array of
    /// the graph.
    pub(crate) fn new(
        network: Network,
        tensors: &[Vec<f32>],
        recipe: &PlanRecipe,
        library: &Library,
        batch: Option<usize>,
    ) -> Result<Model, String> {
        let plan = planned(&network, recipe, library, batch)?;
        let pack = |c: &Constant| Values::pack(c, &|t| Cow::Borrowed(&tensors[t][..]));
        let constants = plan.constants.iter().map(pack).collect();
        Ok(Model {
            network,
            recipe: recipe.clone(),
            plan,
            constants,
            laid_out_again: 0,
        })
    }
}

/// Makes a plan at run time. The recipe may come from a tuning record or `--plan`. So the plan must
/// pass the same check as at build time.
pub(crate) fn planned(
    network: &Network,
    recipe: &PlanRecipe,
    library: &Library,
    batch: Option<usize>,
) -> Result<Plan, String> {
    let plan = planner::plan(network, recipe, library, batch).map_err(|e| e.join("; "))?;
    let wrong = planner::check::check(&plan, network, library);
    if wrong.is_empty() {
        Ok(plan)
    } else {
        Err(wrong.join("; "))
    }
}

/// Returns true if the baked plan was made from `recipe`.
fn is_baked(recipe: &PlanRecipe) -> bool {
    recipe.name == baked::plan().name
        && baked::library()
            .plan(&recipe.name)
            .is_ok_and(|r| r == recipe)
}

/// Returns the constants of `plan`, made from the constants of the plan `from`. Equal constants are
/// copied, the others are repacked. Also returns the number of repacked constants.
fn laid_out(
    graph: &Graph,
    plan: &Plan,
    from: &Plan,
    values: &dyn Fn(usize) -> Values,
) -> Result<(Vec<Values>, usize), String> {
    let mut again = 0;
    let mut constants = Vec::with_capacity(plan.constants.len());
    for c in plan.constants.iter() {
        if let Some(equal) = from.constants.iter().position(|f| f == c) {
            constants.push(values(equal));
            continue;
        }
        let beside = c.rescale.iter().flat_map(|r| [r.factors, r.summands]);
        let mut needed = std::iter::once(c.tensor).chain(c.scales).chain(beside);
        if needed.any(|t| !values::has_array(&from.constants, t)) {
            let (name, role) = (&c.name, c.role.name());
            return Err(format!(
                "plan {}: {name}: plan {} has no {role}",
                plan.name, from.name
            ));
        }
        again += 1;
        let array = |t| values::array(graph, t, &from.constants, values);
        constants.push(Values::pack(c, &|t| array(t).into()));
    }
    Ok((constants, again))
}

/// Returns the arrays of the baked graph, row-major and without padding.
pub(crate) fn baked_tensors() -> Vec<Vec<f32>> {
    let (graph, constants) = (&baked::network().graph, &baked::plan().constants);
    values::arrays(graph, constants, &baked::constant)
}

/// Returns the plan recipe called `name`. A recipe for another engine than `engine` is an error.
pub(crate) fn recipe(name: &str, engine: EngineKind) -> Result<&'static PlanRecipe, String> {
    let recipe = baked::library().plan(name)?;
    if recipe.engine == engine {
        return Ok(recipe);
    }
    Err(match engine {
        EngineKind::Host => {
            format!("plan {name} is for OpenCL devices; choose one with --device, or --plan baked")
        }
        EngineKind::OpenCl => format!("plan {name} is for the host engine; --device host runs it"),
    })
}
