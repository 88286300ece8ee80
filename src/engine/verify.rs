//! Before a network's data are baked, runs the golden vectors with these data on the host engine.

use super::Engine;
use super::host::HostEngine;
use super::model::Model;
use super::selftest::{fill, put};
use crate::baked::Golden;
use crate::error::Error;
use crate::ir::plan::{Arg, BufferRole, Plan};
use crate::ir::values;
use crate::ops::bound::score_bound;
use crate::planner::contents::BufferContents;

/// The limit for the multiply-adds that one batch of [`verify`] computes.
const MOST: u64 = 1_000_000_000;

/// A batch size that no instruction set's tile divides, so both full tiles and a partial tile run.
const TILES_AND_REST: usize = 13;

/// Returns the batch sizes that [`verify`] runs: one record, [`TILES_AND_REST`], and the largest
/// size whose multiply-adds are within [`MOST`].
fn batches(model: &Model) -> Vec<usize> {
    let macs = (model.network.flop() / 2).max(1);
    let most = usize::try_from(MOST / macs)
        .unwrap_or(usize::MAX)
        .clamp(1, model.plan.batch);
    let mut sizes = vec![1, TILES_AND_REST.min(most), most];
    sizes.dedup();
    sizes
}

/// Runs the golden vectors on the host engine with `model` and checks the scores.
///
/// # Errors
/// The first wrong score, with the step that made the first wrong value, or an error of the engine.
pub(crate) fn verify(model: &Model, golden: &Golden<'_>) -> Result<(), Error> {
    let (network, outputs) = (&model.network, model.network.outputs());
    let bound = |score: f64| f64::from(network.tolerance) * score_bound(score);
    let mut engine = HostEngine::new(model.clone(), 1, false)?;
    for records in batches(model) {
        for start in (0..golden.count).step_by(records) {
            fill(&mut engine, network, golden, start, records)?;
            engine.submit(0, records)?;
            engine.collect(0)?;
            for index in 0..records {
                let n = (start + index) % golden.count;
                let expected = &golden.scores[n * outputs..][..outputs];
                let answer = engine.answer(0, index);
                let mut pairs = answer
                    .scores
                    .iter()
                    .zip(expected.iter().map(|&e| f64::from(e)))
                    .enumerate();
                let wrong = |&(_, (found, e)): &(usize, (f32, f64))| {
                    let near = (f64::from(found) - e).abs() <= bound(e);
                    !near
                };
                let Some((output, (found, expected))) = pairs.find(wrong) else {
                    continue;
                };
                let step =
                    first_wrong(model, &golden.inputs[n * network.width..][..network.width])?;
                return Err(Error::check(format!(
                    "the host engine does not give the network's answers: golden vector {}, \
                     output {output}: expected \
                     {expected}, found {found} in a batch of {records}; {}",
                    n + 1,
                    blamed(step, records)
                )));
            }
        }
    }
    Ok(())
}

/// Returns the end of a message about a wrong score in a batch of `records` records. `step`
/// describes the first step that goes wrong when the record runs alone. It is `None` if no step
/// does.
fn blamed(step: Option<String>, records: usize) -> String {
    const OURS: &str = "This is a mistake of mortonnet, unless a note says that f32 rounds too \
                        much away: please report it";
    match step {
        Some(step) => format!("{step}. {OURS}"),
        None if records > 1 => format!("alone the record is right. {OURS}"),
        None => "every step is right to 1e-4 of its largest value, but digits are lost where \
            large numbers cancel: scale \
                 the network's inputs or outputs"
            .into(),
    }
}

/// Runs one record of raw inputs, each time up to a later step. Returns a description of the first
/// step whose value is wrong. `None` if no value is wrong.
fn first_wrong(model: &Model, raw: &[f32]) -> Result<Option<String>, Error> {
    let Model { network, plan, .. } = model;
    let stored = |i: usize| model.constants[i].clone();
    let tensors = values::arrays(&network.graph, &plan.constants, &stored);
    let mut expected = vec![Vec::new(); network.graph.values.len()];
    let wide: Vec<f64> = raw.iter().map(|&x| x.into()).collect();
    let input = network.graph_input(&wide);
    network.graph.evaluate(&tensors, input, |value, numbers| {
        expected[value] = numbers.to_vec()
    });
    let mut contents = BufferContents::of_input(plan, network);
    for (i, step) in plan.full().iter().enumerate() {
        contents.follow(step);
        let (Some(node), Some(&Arg::Buffer(buffer))) =
            (network.graph.nodes.get(step.node), step.args.last())
        else {
            continue;
        };
        let Some(map) = contents.rows(buffer, node.output) else {
            continue;
        };
        // `part` is a plan that ends with this step and has the step's value as its scores.
        let mut steps = plan.full().to_vec();
        steps.truncate(i + 1);
        let mut part = Plan {
            few: None,
            steps: steps.into(),
            ..plan.clone()
        };
        for (n, b) in part.buffers.to_mut().iter_mut().enumerate() {
            match b.role {
                _ if n == buffer => (b.role, b.map) = (BufferRole::Scores, map),
                BufferRole::Scores => b.role = BufferRole::Classes,
                _ => {}
            }
        }
        let mut engine = HostEngine::new(
            Model {
                plan: part,
                ..model.clone()
            },
            1,
            false,
        )?;
        put(&mut engine, network, 0, raw)?;
        engine.submit(0, 1)?;
        engine.collect(0)?;
        let answer = engine.answer(0, 0);
        let all = &expected[node.output];
        let bound = f64::from(network.tolerance)
            * score_bound(all.iter().fold(0.0, |most, v| v.abs().max(most)));
        for (value, (found, &e)) in answer.scores.iter().zip(all).enumerate() {
            let near = (f64::from(found) - e).abs() <= bound;
            if !near {
                return Ok(Some(format!(
                    "the first wrong value is number {value} of node {}: expected {e}, found \
                     {found} (step {i}, {})",
                    node.name, step.kernel
                )));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baked;
    use crate::engine::model::recipe;
    use crate::ir::graph::{Graph, Role, Shape};
    use crate::ir::network::{InputOrder, Kind, Network, Output, Transform};
    use crate::ir::op::{Activation, Op, Window};
    use crate::ir::view::RowMap;
    use crate::ops::random::Random;
    use crate::registry::EngineKind;

    /// Makes an image network whose scaling has a summand for each element, with inputs and scores
    /// of its golden vectors.
    fn scaled() -> (Model, Vec<f32>, Vec<f32>) {
        let shape = Shape { c: 3, h: 4, w: 5 };
        let mut graph = Graph::new(shape);
        let op = Op::Convolution {
            window: Window::of((1, 1)),
            groups: 1,
        };
        let arrays = [(Role::Weights, 6, 3), (Role::Biases, 6, 1)];
        let value = graph.push("conv", op, &[0], &arrays).unwrap();
        let value = graph
            .push("tanh", Op::Activation(Activation::Tanh), &[value], &[])
            .unwrap();
        let arrays = [(Role::Factors, 6, 1), (Role::Biases, 120, 1)];
        let value = graph.push("sum", Op::Scale, &[value], &arrays).unwrap();
        graph
            .push("last", Op::Activation(Activation::Gelu), &[value], &[])
            .unwrap();
        let mut random = Random::new(3);
        let sizes = graph.tensors.iter().map(|t| t.rows * t.cols);
        let tensors: Vec<Vec<f32>> = sizes
            .map(|n| (0..n).map(|_| random.float()).collect())
            .collect();
        let baked = baked::network().clone();
        let network = Network {
            width: shape.len(),
            order: InputOrder::Chw,
            graph,
            labels: Vec::new().into(),
            features: Vec::new().into(),
            transform: Transform::Identity,
            output: Output {
                kind: Kind::Values,
                ..baked.output
            },
            ..baked
        };
        let inputs: Vec<f32> = (0..5 * shape.len()).map(|_| random.float()).collect();
        let scores = network
            .scores_of_all(&tensors, &inputs)
            .concat()
            .into_iter()
            .map(|s| s as f32)
            .collect();
        let recipe = recipe("host", EngineKind::Host).unwrap();
        (
            Model::new(network, &tensors, recipe, baked::library(), None).unwrap(),
            inputs,
            scores,
        )
    }

    /// The test makes a scale step read its summands by a wrong map, as if there were one for each
    /// channel. The error names the node, value and step.
    #[test]
    fn numbers_of_other_elements_are_found() {
        let (right, inputs, scores) = scaled();
        let golden = Golden {
            count: 5,
            inputs: &inputs,
            scores: &scores,
            overflow: &[],
        };
        verify(&right, &golden).unwrap();
        let mut wrong = right.clone();
        let maps = wrong
            .plan
            .steps
            .to_mut()
            .iter_mut()
            .flat_map(|s| s.args.to_mut());
        let summands = maps
            .filter_map(|a| if let Arg::Moved(m) = a { Some(m) } else { None })
            .nth(1)
            .unwrap();
        summands.from = RowMap::of_channels(Shape { c: 6, h: 4, w: 5 });
        let said = verify(&wrong, &golden).unwrap_err().to_string();
        assert!(
            said.contains("of node last") && said.contains("scale_host"),
            "{said}"
        );
        assert!(
            said.contains("golden vector 1, output") && said.contains("expected"),
            "{said}"
        );
    }

    /// A single changed bias makes the golden vectors fail.
    #[test]
    fn wrong_weights_are_found() {
        let (mut model, inputs, scores) = scaled();
        let golden = Golden {
            count: 5,
            inputs: &inputs,
            scores: &scores,
            overflow: &[],
        };
        let weights = model
            .plan
            .constants
            .iter()
            .position(|c| c.role == Role::Biases)
            .unwrap();
        let crate::ir::values::Values::F32(numbers) = &mut model.constants[weights] else {
            panic!("floats")
        };
        numbers.to_mut()[3] += 0.5;
        let said = verify(&model, &golden).unwrap_err().to_string();
        assert!(said.contains("golden vector 1"), "{said}");
    }

    /// A device's plan is verified as the host's plan, with its constants repacked.
    #[test]
    fn plans_for_devices_are_run_too() {
        let (model, inputs, scores) = scaled();
        let stored = |i: usize| model.constants[i].clone();
        let tensors = values::arrays(&model.network.graph, &model.plan.constants, &stored);
        let recipe = recipe("mali-midgard", EngineKind::OpenCl).unwrap();
        let device = Model::new(
            model.network.clone(),
            &tensors,
            recipe,
            baked::library(),
            None,
        )
        .unwrap();
        let golden = Golden {
            count: 5,
            inputs: &inputs,
            scores: &scores,
            overflow: &[],
        };
        for (factor, right) in [(1.0, true), (1.5, false)] {
            let constant = |i: usize| match &device.constants[i] {
                crate::ir::values::Values::F32(v) => {
                    crate::ir::values::Values::F32(v.iter().map(|x| x * factor).collect())
                }
                other => other.clone(),
            };
            let host = Model::for_host(&device.network, baked::library(), &device.plan, &constant)
                .unwrap();
            assert_eq!(verify(&host, &golden).is_ok(), right);
        }
    }

    #[test]
    fn batches_are_as_large_as_they_may_cost() {
        let (model, ..) = scaled();
        assert_eq!(batches(&model), [1, 13, model.plan.batch]);
    }
}
