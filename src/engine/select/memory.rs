//! The batch sizes that the memory limit (`--max-memory`) allows.

use super::decide::Decision;
use super::wish::Request;
use crate::baked;
use crate::engine::model::{Model, planned};
use crate::error::Error;
use crate::ir::plan::Plan;
use crate::planner::fit::{self, Memory};

/// Makes the model that a decision runs, in batches that `--max-memory` allows. A host with many
/// threads may get larger batches than its plan states.
pub(crate) fn model(request: &Request, decision: &Decision) -> Result<Model, Error> {
    let mut model = within_memory(request, decision)?;
    if request.grows && request.batch.is_none() && decision.device.is_none() {
        let flop = model.network.flop();
        fit::grow(&mut model.plan, flop, threads(), request.max_memory);
    }
    Ok(model)
}

/// Makes the model with the plan's own batch size, or with a smaller one that `--max-memory`
/// allows. It is an error if no batch fits, or if the user set a batch size that does not fit.
fn within_memory(request: &Request, decision: &Decision) -> Result<Model, Error> {
    let (recipe, network, library) = (&decision.recipe, baked::network(), baked::library());
    let model = Model::baked(recipe, request.batch).map_err(Error::device)?;
    let Some(most) = request.max_memory else {
        return Ok(model);
    };
    let apart = decision.device.as_ref().is_some_and(|d| !d.unified_memory);
    let needed = Memory::of(&model.plan, apart).total();
    if needed <= most {
        return Ok(model);
    }
    let batch = fit::bounded(network, (recipe, library), &model.plan, most, apart);
    match (batch, request.batch) {
        (0, _) => {
            let least = planned(network, recipe, library, Some(1)).map_err(Error::device)?;
            let needed = Memory::of(&least, apart).total();
            Err(Error::limit(too_large(&least, needed, most)))
        }
        (batch, None) => Model::baked(recipe, Some(batch)).map_err(Error::device),
        (batch, Some(_)) => Err(Error::usage(format!(
            "{}: at most --batch {batch}, or none, which takes as many as fit",
            too_large(&model.plan, needed, most)
        ))),
    }
}

/// Returns the message that a plan needs more memory than `--max-memory` allows.
pub(super) fn too_large(plan: &Plan, needed: u64, most: u64) -> String {
    let records = if plan.batch == 1 { "record" } else { "records" };
    format!(
        "plan {} needs {needed} bytes for batches of {} {records}, {} of them for constants; \
         --max-memory allows {most}",
        plan.name,
        plan.batch,
        plan.constant_bytes()
    )
}

/// Returns the number of threads of the host engine, which is the number of cores that this process
/// may use.
pub(crate) fn threads() -> usize {
    crate::sys::io::cores()
}
