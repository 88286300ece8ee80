//! A network ready for an engine: its plan, and its constants in the layouts of that plan.

use crate::baked;
use crate::spec::library::{EngineKind, Library, PlanRecipe};
use crate::spec::lower::lower;
use crate::spec::network::Network;
use crate::spec::plan::TensorRole;
use crate::spec::plan::{Constant, Plan};
use crate::spec::reference::Weights;
use std::borrow::Cow;

/// A plan with its constants.
#[derive(Clone)]
pub struct Model {
    /// The network.
    pub network: Network,
    /// The plan.
    pub plan: Plan,
    /// `plan.constants`, padded, in their layouts.
    pub constants: Vec<Cow<'static, [f32]>>,
    /// How many constants had to be laid out again because the plan is not the baked one.
    pub laid_out_again: usize,
}

impl Model {
    /// The baked network under `recipe`: constants whose layout is the baked one are used where they are, the others
    /// are laid out again.
    pub fn baked(recipe: &PlanRecipe, batch: Option<usize>) -> Result<Model, String> {
        let network = baked::NETWORK.clone();
        let plan = lower(&network, recipe, baked::library(), batch).map_err(|e| e.join("; "))?;
        let mut laid_out_again = 0;
        let constants = plan
            .constants
            .iter()
            .map(|c| {
                let i = baked_index(c);
                let found = &baked::PLAN.constants[i];
                if found.layout == c.layout && found.padded == c.padded {
                    return Cow::Borrowed(baked::constant(i));
                }
                laid_out_again += 1;
                let plain = found.layout.unpack(baked::constant(i), found.size, found.padded);
                Cow::Owned(c.layout.pack(&plain, c.size, c.padded, 0.0))
            })
            .collect();
        Ok(Model { network, plan, constants, laid_out_again })
    }

    /// Any network with the given weights (`weights[i]` belongs to `network.layers[i]`) under `recipe`.
    pub fn new(
        network: Network,
        weights: &[Weights],
        recipe: &PlanRecipe,
        library: &Library,
        batch: Option<usize>,
    ) -> Result<Model, String> {
        let plan = lower(&network, recipe, library, batch).map_err(|e| e.join("; "))?;
        let constants = plan
            .constants
            .iter()
            .map(|c| {
                let w = &weights[c.tensor.layer];
                let plain = match c.tensor.role {
                    TensorRole::Weights => &w.weights,
                    TensorRole::Biases => &w.biases,
                };
                Cow::Owned(c.layout.pack(plain, c.size, c.padded, 0.0))
            })
            .collect();
        Ok(Model { network, plan, constants, laid_out_again: 0 })
    }
}

/// Where the baked plan has the array of `wanted`. Every plan has every array of the network.
fn baked_index(wanted: &Constant) -> usize {
    let same = |c: &Constant| c.tensor == wanted.tensor;
    baked::PLAN.constants.iter().position(same).expect("every plan bakes every array")
}

/// The baked weights, row major without padding, in the order of the network's layers.
pub fn baked_weights() -> Vec<Weights> {
    let mut weights = vec![Weights::default(); baked::NETWORK.layers.len()];
    for (i, c) in baked::PLAN.constants.iter().enumerate() {
        let plain = c.layout.unpack(baked::constant(i), c.size, c.padded);
        match c.tensor.role {
            TensorRole::Weights => weights[c.tensor.layer].weights = plain,
            TensorRole::Biases => weights[c.tensor.layer].biases = plain,
        }
    }
    weights
}

/// The recipe called `name`, which must be one of `engine`'s.
pub fn recipe(name: &str, engine: EngineKind) -> Result<&'static PlanRecipe, String> {
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
