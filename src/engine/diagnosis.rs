//! Finds the first step of a network that a device computes wrongly.
//!
//! The network is cut off after each node in turn, and each part runs by itself. The last value of
//! a part is then a readable result, and no later step reuses its memory. The values that the host
//! computes for the same records count as right.

use super::backed::MOST;
use super::host::HostEngine;
use super::model::{Model, baked_tensors, recipe};
use super::opencl::{OpenClEngine, Wanted};
use super::sources::Sources;
use super::{Engine, selftest};
use crate::baked::{self, golden};
use crate::cl::Device;
use crate::error::Error;
use crate::ir::network::{Kind, Network};
use crate::observe::profile::Phases;
use crate::ops::bound::excess;
use crate::registry::{EngineKind, PlanRecipe};
use crate::sys::watchdog;

/// Returns a sentence that names the first node that `device` computes wrongly under `plan`, with a
/// wrong value. Both engines compute `records`, or the golden vectors if `records` is empty. Starts
/// both engines once for each node.
pub(crate) fn first_wrong(
    device: &Device,
    plan: &PlanRecipe,
    sources: &Sources,
    records: &[f32],
) -> Result<String, Error> {
    let (network, tensors) = (baked::network(), baked_tensors());
    let host = recipe("host", EngineKind::Host).map_err(Error::device)?;
    for (i, node) in network.graph.nodes.iter().enumerate() {
        let mut part = network.clone();
        part.graph.nodes = network.graph.nodes[..=i].to_vec().into();
        part.graph.outputs = vec![node.output].into();
        part.output.kind = Kind::Values;
        part.labels = Default::default();
        part.outputs = Default::default();
        let model = |recipe, batch| {
            Model::new(part.clone(), &tensors, recipe, baked::library(), batch)
                .map_err(Error::device)
        };
        let on_device = model(plan, None)?;
        let on_host = model(host, Some(on_device.plan.batch))?;
        let wanted = Wanted {
            scores: true,
            classes: false,
        };
        let mut phases = Phases::default();
        let mut device =
            OpenClEngine::new(device, &on_device, wanted, false, sources, &mut phases)?;
        if let Some(wrong) = difference(
            &mut device,
            &mut HostEngine::new(on_host, 1, false)?,
            &part,
            records,
        )? {
            let step = on_device
                .plan
                .full()
                .last()
                .map_or("", |step| &*step.kernel);
            return Ok(format!(
                "{} ({}, by {step}) is the first that is wrong: {wrong}",
                node.name,
                node.op.name()
            ));
        }
    }
    Ok("each step is right by itself: memory that steps share, the arg-max, or chance".into())
}

/// Runs a full batch on both engines and describes the first score on which they differ. Returns
/// `None` if they agree. The batch repeats the records `given`, or the golden vectors if `given` is
/// empty.
fn difference(
    device: &mut dyn Engine,
    host: &mut dyn Engine,
    part: &Network,
    given: &[f32],
) -> Result<Option<String>, Error> {
    let (golden, records) = (golden(), device.batch());
    let run = |engine: &mut dyn Engine| {
        watchdog::beat("diagnosis");
        if given.is_empty() {
            selftest::fill(engine, part, &golden, 0, records)?;
        }
        let mut given = given
            .chunks_exact(part.width)
            .cycle()
            .take(records)
            .enumerate();
        given.try_for_each(|(i, record)| engine.record(0, i).map(|mut to| to.fill(record)))?;
        engine.submit(0, records)?;
        engine.collect(0)
    };
    // A device that fails to run this part of the network counts as wrong.
    if let Err(failed) = run(device) {
        return Ok(Some(failed.to_string()));
    }
    run(host)?;
    let most = MOST * f64::from(part.tolerance);
    for record in 0..records {
        let (found, expected) = (
            device.answer(0, record).scores,
            host.answer(0, record).scores,
        );
        for (i, (found, expected)) in found.iter().zip(expected.iter()).enumerate() {
            if excess(&[expected.into()], std::iter::once(found)) > most {
                return Ok(Some(format!(
                    "value {i} of record {record} is {found:?}, {expected:?} on the host"
                )));
            }
        }
    }
    Ok(None)
}
