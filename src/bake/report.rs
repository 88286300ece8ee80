//! The text that a build prints about the program that it has baked.

use super::Baked;
use crate::ir::network::named;
use crate::ir::plan::Plan;
use crate::planner;
use crate::planner::fit::Fit;
use crate::registry::EngineKind;

impl Baked {
    /// Returns the lines that a build prints: the network, its costs, notes, and the effect of
    /// rounding. `why` says why this network is baked, if the user did not name one. `block` is the
    /// number of baked bytes, and `arch` the architecture of the program.
    pub(crate) fn report(&self, why: &str, arch: &str, block: usize) -> Vec<String> {
        let (n, plan) = (&self.network, &self.plan);
        let mut shape = n.shape();
        for (what, values) in [("inputs", &n.inputs), ("outputs", &n.outputs)] {
            if !values.is_empty() {
                shape += &format!(", {what} {}", named(values));
            }
        }
        let engine = match plan.engine {
            EngineKind::Host => "the CPU",
            EngineKind::OpenCl => "OpenCL devices",
        };
        let mut lines = vec![
            format!(
                "baked {}{why}: layers {shape}, {} bytes of weights, for {engine} (plan {})",
                n.name,
                plan.constant_bytes(),
                plan.name
            ),
            self.costs(arch, block),
        ];
        lines.extend(self.notes.iter().cloned());
        lines.extend(self.quantized.iter().map(|q| format!("quantized: {q}")));
        let weights = n.weights.name();
        lines.extend(
            self.rounding
                .iter()
                .map(|r| format!("weights as {weights}: {r}")),
        );
        lines
    }

    /// Returns a line with the memory that the program needs, the expected time, and the bytes in
    /// the program file.
    fn costs(&self, arch: &str, block: usize) -> String {
        let (plan, library) = (&self.plan, &self.library);
        let fit = |plan: &Plan| Fit::of(plan, library, (arch, 1), self.network.flop());
        let full = fit(plan);
        let recipe = library.plan(&plan.name).ok();
        let single = recipe.and_then(|r| planner::plan(&self.network, r, library, Some(1)).ok());
        let single = single.map(|plan| fit(&plan));
        let mut text = format!(
            "memory: {} bytes for {} records at once",
            full.memory.total(),
            full.batch
        );
        if let Some(single) = &single {
            text += &format!(", {} bytes for a single one", single.memory.total());
        }
        if let Some((class, us)) = full.modelled {
            let core = match plan.engine {
                EngineKind::Host => "one core of ",
                EngineKind::OpenCl => "",
            };
            text += &format!("; expected time on {core}{class}: {us:.2} µs a record");
            if let Some((_, us)) = single.and_then(|s| s.modelled) {
                text += &format!(", {us:.2} µs for a single one");
            }
        }
        text + &format!("; {block} bytes of the program file (--info shows all plans)")
    }
}
