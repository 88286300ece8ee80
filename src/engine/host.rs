//! The host engine: the network's steps on the CPU, by a team of threads.
//!
//! This file reads the plan; `simd` computes.

use super::deferred::{Decode, Refusal};
use super::simd::{Action, Place, Step, Team, Weights};
use super::{Answer, Engine, Record, RecordMut};
use crate::error::Error;
use crate::model::{Model, Values};
use crate::profile::StepClock;
use crate::spec::half;
use crate::spec::library::Operation;
use crate::spec::plan::{Arg, BufferRole};
use crate::trace::Track;
use std::borrow::Cow;
use std::sync::Arc;

/// The host engine.
pub struct HostEngine {
    team: Team,
    rows: Vec<u32>,
    score_rows: Vec<u32>,
    has_classes: bool,
}

impl HostEngine {
    /// Starts the engine with at most `threads` threads in all (the caller's is one of them). `timed` keeps the time of
    /// every step.
    pub fn new(mut model: Model, threads: usize, timed: bool) -> Result<HostEngine, Error> {
        let steps = steps(&mut model)?;
        let plan = &model.plan;
        let rows = |role| plan.buffer(role).map_or(0, |i| plan.buffers[i].padded_rows);
        // Places are those of the plan, so that steps know them by the same numbers.
        let hidden: Vec<usize> = plan
            .buffers
            .iter()
            .map(|b| if b.role == BufferRole::Hidden { b.padded_rows } else { 0 })
            .collect();
        let width = model.network.width;
        let rows = (rows(BufferRole::Input), &hidden[..], rows(BufferRole::Scores));
        Ok(HostEngine {
            team: Team::new(steps, rows, width, plan.batch, model.network.flop(), threads, timed)?,
            rows: (0..width as u32).collect(),
            score_rows: (0..model.network.outputs() as u32).collect(),
            has_classes: plan.buffer(BufferRole::Classes).is_some(),
        })
    }

    /// Name of the instruction set in use.
    pub fn instruction_set(&self) -> &'static str {
        self.team.instruction_set()
    }

    /// Threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }
}

impl Engine for HostEngine {
    fn batch(&self) -> usize {
        self.team.batch()
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        let (stride, input) = self.team.input(slot);
        Ok(RecordMut::new(input, &self.rows, index * stride))
    }

    fn defer(&mut self, slot: usize, index: usize, decode: &Arc<dyn Decode>, bytes: &[u8]) -> bool {
        self.team.deferred(slot).push(index, decode, bytes)
    }

    fn refused(&self, slot: usize) -> Option<(usize, Refusal)> {
        self.team.refused(slot)
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        self.team.submit(slot, records);
        Ok(())
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        self.team.collect(slot);
        Ok(())
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        let (stride, scores) = self.team.scores(slot);
        Answer {
            class: self.has_classes.then(|| self.team.class(slot, index)),
            scores: Record::new(scores, &self.score_rows, index * stride),
        }
    }

    fn step_times(&mut self) -> Option<StepClock> {
        self.team.times()
    }

    fn forget_times(&mut self) {
        self.team.forget_times();
    }

    fn trace(&mut self, track: Track) -> Result<(), Error> {
        self.team.trace(track);
        Ok(())
    }
}

/// Biases are floats always.
fn floats(values: Values) -> Cow<'static, [f32]> {
    match values {
        Values::F32(values) => values,
        Values::F16(halves) => halves.iter().map(|&h| half::to_f32(h)).collect(),
    }
}

/// The plan's steps; takes the model's constants.
fn steps(model: &mut Model) -> Result<Vec<Step>, Error> {
    let plan = &model.plan;
    let place = |i: usize| match plan.buffers[i].role {
        BufferRole::Input => Place::Input,
        BufferRole::Hidden => Place::Hidden(i),
        BufferRole::Scores | BufferRole::Classes => Place::Scores,
    };
    let mut steps = Vec::new();
    for step in plan.steps.iter() {
        let read = |i: usize| match step.args[i] {
            Arg::Buffer(b) => b,
            _ => unreachable!("operands of host kernels are in the order of their operation"),
        };
        let mut constant = |i: usize| match step.args[i] {
            Arg::Constant(c) => std::mem::take(&mut model.constants[c]),
            _ => unreachable!("operands of host kernels are in the order of their operation"),
        };
        let (action, from, to) = match step.operation {
            Operation::Affine => {
                let Arg::Constant(weights) = step.args[0] else { unreachable!("a is a constant") };
                let layout = &plan.constants[weights].layout;
                let panel = layout.panel_rows().ok_or_else(|| {
                    Error::Device(format!("host engine: {}: layout {layout} is not R_P_1_C", step.kernel))
                })?;
                let action = Action::Affine {
                    weights: Weights::new(constant(0))?,
                    biases: floats(constant(2)),
                    panel,
                    columns: step.problem.l,
                    // Padding rows may hold NaN where a record overflowed: they are not summed.
                    inputs: plan.buffers[read(1)].rows,
                    activation: step.activation,
                };
                (action, read(1), read(3))
            }
            Operation::Sigmoid | Operation::Relu | Operation::Tanh => {
                let activation = step.operation.activation().unwrap_or(step.activation);
                (Action::Activate(activation), read(0), read(0))
            }
            Operation::ArgMax => (Action::ArgMax(plan.buffers[read(0)].rows), read(0), read(0)),
            Operation::Matmul
            | Operation::Bias
            | Operation::Reduce
            | Operation::Pair
            | Operation::Layers
            | Operation::Sobel
            | Operation::Order
            | Operation::Probe => {
                return Err(Error::Device(format!("host engine: no kernel for {}", step.kernel)));
            }
        };
        steps.push(Step { action, from: place(from), to: place(to) });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::library::EngineKind;
    use crate::spec::network::{Activation, Layer, Network};
    use crate::spec::reference::Weights;

    /// A record that overflows in a hidden layer is refused, behind whatever activation; its neighbours are not.
    #[test]
    fn an_overflow_in_a_hidden_layer_arrives_as_nan() {
        for activation in [Activation::Relu, Activation::Sigmoid, Activation::Tanh] {
            for sign in [1.0, -1.0] {
                let affine = |outputs| Layer::Affine { outputs, inputs: 1 };
                let network = Network {
                    width: 1,
                    layers: vec![affine(1), Layer::Activation(activation), affine(2)].into(),
                    labels: Vec::new().into(),
                    ..crate::baked::NETWORK.clone()
                };
                let layer = |rows: usize, w| Weights { weights: vec![w; rows], biases: vec![0.0; rows] };
                let weights = [layer(1, sign * 1e30), Weights::default(), layer(2, 1.0)];
                let recipe = crate::model::recipe("host", EngineKind::Host).unwrap();
                let model = Model::new(network, &weights, recipe, crate::baked::library(), None).unwrap();
                let mut engine = HostEngine::new(model, 1, false).unwrap();
                for (n, x) in [1e-30, 1e10, -1e-30].into_iter().enumerate() {
                    engine.record(0, n).unwrap().set(0, x);
                }
                engine.submit(0, 3).unwrap();
                engine.collect(0).unwrap();
                for n in 0..3 {
                    let answer = engine.answer(0, n);
                    let scores: Vec<f32> = answer.scores.iter().collect();
                    assert_eq!(answer.overflowed(), n == 1, "{activation:?} {sign}: {scores:?}");
                    assert_eq!(answer.class, Some(if n == 1 { crate::engine::NAN_CLASS } else { 0 }));
                }
            }
        }
    }
}
