//! A network ready for an engine: its plan, and its constants in the layouts of that plan.

use crate::baked;
use crate::spec::half;
use crate::spec::library::{EngineKind, Library, PlanRecipe};
use crate::spec::lower::lower;
use crate::spec::network::{Network, Precision};
use crate::spec::plan::TensorRole;
use crate::spec::plan::{Constant, Plan, places};
use crate::spec::reference::Weights;
use std::borrow::Cow;

/// The values of a constant, as stored.
#[derive(Clone, Debug)]
pub enum Values {
    /// Floats.
    F32(Cow<'static, [f32]>),
    /// Halves, as bits.
    F16(Cow<'static, [u16]>),
}

impl Default for Values {
    fn default() -> Self {
        Values::F32(Cow::Borrowed(&[]))
    }
}

impl Values {
    /// A plain matrix in the layout of `c`, as what it is stored as.
    fn pack(c: &Constant, plain: &[f32]) -> Values {
        match c.precision {
            Precision::F32 => Values::F32(Cow::Owned(c.layout.pack(plain, c.size, c.padded, 0.0))),
            Precision::F16 => {
                let halves: Vec<u16> = plain.iter().map(|&w| half::from_f32(w)).collect();
                Values::F16(Cow::Owned(c.layout.pack(&halves, c.size, c.padded, 0)))
            }
        }
    }

    /// The plain matrix of `c`.
    fn unpack(&self, c: &Constant) -> Vec<f32> {
        match self {
            Values::F32(values) => c.layout.unpack(values, c.size, c.padded),
            Values::F16(halves) => {
                let halves = c.layout.unpack(halves, c.size, c.padded);
                halves.into_iter().map(half::to_f32).collect()
            }
        }
    }
}

/// A plan with its constants.
#[derive(Clone)]
pub struct Model {
    /// The network.
    pub network: Network,
    /// What the plan was made of.
    pub recipe: PlanRecipe,
    /// The plan.
    pub plan: Plan,
    /// `plan.constants`, padded, in their layouts.
    pub constants: Vec<Values>,
    /// How many constants had to be laid out again because the plan is not the baked one.
    pub laid_out_again: usize,
}

impl Model {
    /// The baked network under `recipe`: constants whose layout is the baked one are used where they are, the others
    /// are laid out again.
    pub fn baked(recipe: &PlanRecipe, batch: Option<usize>) -> Result<Model, String> {
        let network = baked::NETWORK.clone();
        let plan = lower(&network, recipe, baked::library(), batch).map_err(|e| e.join("; "))?;
        let (constants, laid_out_again) = laid_out(&plan, &baked::PLAN, baked::constant)?;
        Ok(Model { network, recipe: recipe.clone(), plan, constants, laid_out_again })
    }

    /// All constants as they stand in one buffer ([`places`]), each 32 bits a float or two halves.
    pub fn constants_together(&self) -> Vec<u32> {
        let (starts, bytes) = places(&self.plan.constants);
        let mut all = vec![0u32; bytes / 4];
        for (values, start) in self.constants.iter().zip(starts) {
            let to = all[start / 4..].iter_mut();
            match values {
                Values::F32(values) => to.zip(values.iter()).for_each(|(to, v)| *to = v.to_bits()),
                Values::F16(halves) => to.zip(halves.chunks_exact(2)).for_each(|(to, h)| {
                    *to = u32::from(h[0]) | u32::from(h[1]) << 16;
                }),
            }
        }
        all
    }

    /// The same with a launch for each layer; `None` where that is no other plan.
    pub fn layer_by_layer(&self) -> Option<Model> {
        let library = baked::library();
        let recipe = library.layer_by_layer(&self.recipe)?;
        let plan = lower(&self.network, &recipe, library, Some(self.plan.batch)).ok()?;
        if plan.steps == self.plan.steps {
            return None;
        }
        let (constants, again) = laid_out(&plan, &self.plan, |i| self.constants[i].clone()).ok()?;
        let laid_out_again = self.laid_out_again + again;
        Some(Model { network: self.network.clone(), recipe, plan, constants, laid_out_again })
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
                Values::pack(c, plain)
            })
            .collect();
        Ok(Model { network, recipe: recipe.clone(), plan, constants, laid_out_again: 0 })
    }
}

/// The constants of `plan` out of those of `from`, and how many had to be laid out again.
fn laid_out(
    plan: &Plan,
    from: &Plan,
    values: impl Fn(usize) -> Values,
) -> Result<(Vec<Values>, usize), String> {
    let mut again = 0;
    let mut constants = Vec::with_capacity(plan.constants.len());
    for c in plan.constants.iter() {
        let same = |f: &Constant| f.tensor == c.tensor;
        let i = from.constants.iter().position(same).ok_or_else(|| {
            let (layer, role) = (c.tensor.layer, c.tensor.role);
            format!("plan {}: layers[{layer}]: plan {} has no {role:?}", plan.name, from.name)
        })?;
        let found = &from.constants[i];
        constants.push(match (&found.layout, found.padded, found.precision) {
            same if same == (&c.layout, c.padded, c.precision) => values(i),
            _ => {
                again += 1;
                Values::pack(c, &values(i).unpack(found))
            }
        });
    }
    Ok((constants, again))
}

/// The baked weights, row major without padding, in the order of the network's layers.
pub fn baked_weights() -> Vec<Weights> {
    let mut weights = vec![Weights::default(); baked::NETWORK.layers.len()];
    for (i, c) in baked::PLAN.constants.iter().enumerate() {
        let plain = baked::constant(i).unpack(c);
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
