//! The host engine: it runs the network's steps on the CPU, by a team of threads.
//!
//! This file turns the plan's steps into host steps. The module `simd` computes them.

use super::{Answer, Engine, Record, RecordMut, RecordRows};
use crate::baked::library;
use crate::engine::model::{Model, Values};
use crate::error::Error;
use crate::ir::half;
use crate::ir::op::Pool;
use crate::ir::options::Function;
use crate::ir::plan::{self, Arg, BufferRole, Constant, Plan};
use crate::ir::taps::Taps;
use crate::observe::profile::StepClock;
use crate::observe::trace::Track;
use crate::registry::{Kernel, Operation};
#[cfg(feature = "lab")]
use crate::simd::TeamWork;
use crate::simd::deferred::{Decode, Refusal};
use crate::simd::{
    Action, BufferRows, Dense, Finish, HostStep, Moves, Place, Team, TeamSizes, Weights, WindowOp,
};
use std::borrow::Cow;
use std::sync::Arc;

pub(crate) struct HostEngine {
    team: Team,
    rows: RecordRows,
    score_rows: Vec<u32>,
    has_classes: bool,
}

impl HostEngine {
    /// Starts the engine with at most `threads` threads, the caller's thread included. If `timed`,
    /// the engine measures the time of every step.
    pub(crate) fn new(mut model: Model, threads: usize, timed: bool) -> Result<HostEngine, Error> {
        let steps = steps(&mut model)?;
        let plan = &model.plan;
        let rows = |role| plan.buffer(role).map_or(0, |i| plan.buffers[i].padded_rows);
        // `hidden` has an entry for each buffer of the plan, so that `Place::Hidden` can use the
        // plan's numbers. An entry is the buffer's padded rows, or 0 if the buffer is not hidden.
        let of_hidden = |b: &plan::Buffer| match b.role {
            BufferRole::Hidden => b.padded_rows,
            _ => 0,
        };
        let hidden: Vec<usize> = plan.buffers.iter().map(of_hidden).collect();
        let width = model.network.width;
        let (rows_of_input, order) = (record_rows(plan, BufferRole::Input), model.network.order);
        let element = |i| order.element(model.network.input(), i);
        let input: Vec<u32> = (0..width).map(|i| rows_of_input[element(i)]).collect();
        let score_rows = record_rows(plan, BufferRole::Scores);
        let sizes = TeamSizes {
            rows: BufferRows {
                input: rows(BufferRole::Input),
                hidden: &hidden,
                scores: rows(BufferRole::Scores),
            },
            width,
            outputs: &score_rows,
            arena: plan.arena_bytes / size_of::<f32>(),
            batch: plan.batch,
            flop: model.network.flop(),
        };
        Ok(HostEngine {
            team: Team::new(steps, sizes, threads, timed)?,
            rows: RecordRows::new(input),
            score_rows,
            has_classes: plan.buffer(BufferRole::Classes).is_some(),
        })
    }

    pub(crate) fn instruction_set(&self) -> String {
        self.team.instruction_set()
    }

    /// The number of steps that copy rows.
    #[cfg(test)]
    pub(super) fn copies(&self) -> usize {
        self.team.copies()
    }

    /// Returns the number of threads, the caller's thread included.
    pub(crate) fn threads(&self) -> usize {
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
        // A decoder writes a record's numbers one after the other, so the features must be
        // contiguous.
        self.rows.are_neighbours() && self.team.deferred(slot).push(index, decode, bytes)
    }

    fn refused(&self, slot: usize, from: usize) -> Option<(usize, Refusal)> {
        self.team.refused(slot, from)
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

    #[cfg(feature = "lab")]
    fn work(&self) -> Option<TeamWork> {
        Some(self.team.work())
    }

    #[cfg(feature = "lab")]
    fn step_totals(&self) -> Vec<f64> {
        self.team.step_totals()
    }

    fn trace(&mut self, track: Track) -> Result<(), Error> {
        self.team.trace(track);
        Ok(())
    }
}

/// Returns the row of each element of a record, in the plan's buffer with this role. Empty if the
/// plan has no such buffer.
fn record_rows(plan: &Plan, role: BufferRole) -> Vec<u32> {
    plan.buffer(role).map_or(Vec::new(), |i| {
        plan.buffers[i].map.rows().map(|row| row as u32).collect()
    })
}

fn floats(values: Values) -> Cow<'static, [f32]> {
    match values {
        Values::F32(values) => values,
        Values::F16(halves) => halves.iter().map(|&h| half::to_f32(h)).collect(),
        Values::I8(numbers) => numbers.iter().map(|&n| n.into()).collect(),
    }
}

/// Returns the weights with each row multiplied by its quantization scale. Without scales, returns
/// them unchanged.
fn scaled(c: &Constant, weights: Cow<'static, [f32]>, scales: &[f32]) -> Cow<'static, [f32]> {
    if scales.is_empty() {
        return weights;
    }
    let (mut rows, (_, columns)) = (c.layout.unpack(&weights, c.padded, c.padded), c.padded);
    let each = rows.chunks_exact_mut(columns).zip(scales);
    each.for_each(|(row, scale)| row.iter_mut().for_each(|w| *w *= scale));
    c.layout.pack(&rows, c.padded, c.padded, 0.0).into()
}

/// Checks that the engine can run each step of a plan.
///
/// # Errors
/// Names the first step that the engine cannot run.
pub(crate) fn admits(plan: &Plan) -> Result<(), Error> {
    plan.steps
        .iter()
        .try_for_each(|s| step(plan, s, &mut |_| Values::default()).map(drop))
}

/// Makes the host's steps from the plan. Moves the constants out of the model.
fn steps(model: &mut Model) -> Result<Vec<HostStep>, Error> {
    let Model {
        plan, constants, ..
    } = model;
    // Steps may share a constant. The last step that uses the constant moves it, earlier steps
    // clone it.
    let later = |i: usize, c: usize| {
        plan.steps[i + 1..]
            .iter()
            .any(|s| s.args.contains(&Arg::Constant(c)))
    };
    let mut values = |i, c| {
        if later(i, c) {
            constants[c].clone()
        } else {
            std::mem::take(&mut constants[c])
        }
    };
    plan.steps
        .iter()
        .enumerate()
        .map(|(i, s)| step(plan, s, &mut |c| values(i, c)))
        .collect()
}

/// Makes the host's step for `step` of the plan. `constant` returns the values of the plan's
/// constant with a given index.
fn step(
    plan: &Plan,
    step: &plan::Step,
    constant: &mut dyn FnMut(usize) -> Values,
) -> Result<HostStep, Error> {
    let place = |i: usize| match plan.buffers[i].role {
        BufferRole::Input => Place::Input,
        BufferRole::Hidden => Place::Hidden(i),
        BufferRole::Scores | BufferRole::Classes => Place::Scores,
    };
    // The last arguments of a step are its operands, in the order that its operation states.
    let operands = step.operation.parameters().len().min(step.args.len());
    let (sizes, operands) = step.args.split_at(step.args.len() - operands);
    let mut reading = Reading {
        plan,
        step,
        sizes,
        operands,
        constant,
    };
    let serves = |k: &Kernel| k.restrictions.needs.host;
    if !library()
        .kernel(&step.kernel)
        .is_some_and(|(_, k)| serves(k))
    {
        return Err(reading.refused("it has no such kernel"));
    }
    let (action, from, to) = reading.action(&place)?;
    Ok(HostStep {
        action,
        from: place(from),
        to: place(to),
    })
}

/// An action of the host engine, with the index of the plan's buffer that it reads and of the one
/// that it writes.
type Read = Result<(Action, usize, usize), Error>;

/// A plan's step that is being turned into a host step.
struct Reading<'a> {
    plan: &'a Plan,
    step: &'a plan::Step,
    /// The step's arguments before its operands, such as sizes.
    sizes: &'a [Arg],
    operands: &'a [Arg],
    /// Returns the values of the plan's constant with the given index.
    constant: &'a mut dyn FnMut(usize) -> Values,
}

impl Reading<'_> {
    fn refused(&self, what: &str) -> Error {
        Error::device(format!("host engine: {}: {what}", self.step.kernel))
    }

    /// Returns the error for a step whose arguments do not fit its operation.
    fn other_arguments(&self) -> Error {
        self.refused("it takes other arguments")
    }

    fn action(&mut self, place: &dyn Fn(usize) -> Place) -> Read {
        match self.step.operation {
            Operation::Affine => self.affine(),
            Operation::Sigmoid | Operation::Relu | Operation::Activation => {
                let &[Arg::Buffer(at)] = self.operands else {
                    return Err(self.other_arguments());
                };
                Ok((Action::Activate(self.step.activation), at, at))
            }
            Operation::Convolution => self.convolution(),
            Operation::Pool => self.pool(),
            Operation::Scale => self.scale(),
            Operation::Combine => self.combine(place),
            Operation::Resample => self.resample(),
            Operation::Product => self.product(place),
            Operation::Softmax => self.softmax(),
            Operation::Gather => self.gather(),
            Operation::ArgMax => {
                let &[Arg::Buffer(at), _] = self.operands else {
                    return Err(self.other_arguments());
                };
                Ok((Action::ArgMax(self.plan.buffers[at].rows), at, at))
            }
            Operation::Matmul
            | Operation::Bias
            | Operation::Reduce
            | Operation::Pair
            | Operation::ReducePair
            | Operation::Layers
            | Operation::Repack
            | Operation::Sobel
            | Operation::Order
            | Operation::Probe => Err(self.refused("it has no such kernel")),
        }
    }

    fn pool(&self) -> Read {
        let (
            &[Arg::Geometry(geometry)],
            &[Arg::Buffer(from), Arg::Buffer(to)],
            Function::Pool(kind),
        ) = (self.sizes, self.operands, self.step.options.function)
        else {
            return Err(self.other_arguments());
        };
        let operation = match kind {
            Pool::Max => WindowOp::Max,
            Pool::Mean => WindowOp::Mean,
            Pool::PaddedMean => WindowOp::PaddedMean,
        };
        let (weights, activation) = (None, self.step.activation);
        Ok((
            Action::Windows {
                operation,
                weights,
                activation,
                rescale: None,
                geometry,
                pads: true,
                bytes: None,
            },
            from,
            to,
        ))
    }

    fn combine(&self, place: &dyn Fn(usize) -> Place) -> Read {
        let (
            &[Arg::Geometry(geometry)],
            &[Arg::Buffer(from), Arg::Buffer(other), Arg::Buffer(to)],
            Function::Combine(arithmetic),
        ) = (self.sizes, self.operands, self.step.options.function)
        else {
            return Err(self.other_arguments());
        };
        let other = place(other);
        Ok((
            Action::Combine {
                arithmetic,
                other,
                finish: self.finish(),
                geometry,
            },
            from,
            to,
        ))
    }

    fn resample(&mut self) -> Read {
        let (
            &[Arg::Geometry(geometry)],
            &[Arg::Constant(taps), Arg::Buffer(from), Arg::Buffer(to)],
        ) = (self.sizes, self.operands)
        else {
            return Err(self.other_arguments());
        };
        let array = floats((self.constant)(taps));
        let ((_, read), (_, written)) = (geometry.input, geometry.output);
        // `admits` checks a plan with empty constants, which hold no taps to read.
        let taps = match array.is_empty() {
            true => Taps::default(),
            false => Taps::read(&array, (read, written), geometry.window.size)
                .map_err(|e| self.refused(&e))?,
        };
        Ok((Action::Resample { taps, geometry }, from, to))
    }

    fn product(&self, place: &dyn Fn(usize) -> Place) -> Read {
        let (&[Arg::Product(product)], &[Arg::Buffer(from), Arg::Buffer(other), Arg::Buffer(to)]) =
            (self.sizes, self.operands)
        else {
            return Err(self.other_arguments());
        };
        let action = Action::Product {
            product,
            other: place(other),
            rows: self.step.problem.h,
        };
        Ok((action, from, to))
    }

    fn softmax(&self) -> Read {
        let (
            &[Arg::Geometry(geometry)],
            &[Arg::Buffer(from), Arg::Buffer(to)],
            Function::OfChannels(of),
        ) = (self.sizes, self.operands, self.step.options.function)
        else {
            return Err(self.other_arguments());
        };
        Ok((Action::OfChannels { geometry, of }, from, to))
    }

    fn gather(&self) -> Read {
        let (&[Arg::Scalar(value), Arg::Moved(moved)], &[Arg::Buffer(from), Arg::Buffer(to)]) =
            (self.sizes, self.operands)
        else {
            return Err(self.other_arguments());
        };
        let moves = Moves::of_rows(&moved);
        Ok((Action::Gather { moves, value }, from, to))
    }

    fn affine(&mut self) -> Read {
        let &[
            Arg::Constant(weights),
            Arg::Buffer(from),
            Arg::Constant(biases),
            Arg::Buffer(to),
        ] = self.operands
        else {
            return Err(self.other_arguments());
        };
        let of = &self.plan.constants[weights];
        let layout = &of.layout;
        let panel = layout
            .panel_rows()
            .ok_or_else(|| self.refused(&format!("layout {layout} is not R_P_1_C")))?;
        let weights = Weights::new((self.constant)(weights))?;
        let (rows, _) = of.padded;
        let (biases, scales) = self.biases(biases, rows);
        let dense = Dense {
            weights,
            biases,
            scales,
            panel,
            data: of.size.0,
            rows,
            columns: self.step.problem.l,
            // Only the input's rows with data are summed. Padding rows may hold NaN if a record
            // overflowed.
            inputs: self.plan.buffers[from].rows,
            activation: self.step.activation,
            rescale: None,
            addend: None,
            whole: None,
        };
        Ok((Action::Affine(dense), from, to))
    }

    fn convolution(&mut self) -> Read {
        let (
            &[Arg::Geometry(geometry)],
            &[
                Arg::Constant(weights),
                Arg::Buffer(from),
                Arg::Constant(biases),
                Arg::Buffer(to),
            ],
        ) = (self.sizes, self.operands)
        else {
            return Err(self.other_arguments());
        };
        let of = &self.plan.constants[weights];
        let weights = (self.constant)(weights);
        let ((rows, columns), (_, inputs)) = (of.padded, of.size);
        let (biases, scales) = self.biases(biases, rows);
        let activation = self.step.activation;
        let action = match of.layout.panel_rows() {
            Some(panel) => {
                let weights = Weights::new(weights)?;
                let dense = Dense {
                    weights,
                    biases,
                    scales,
                    panel,
                    data: of.size.0,
                    rows,
                    columns,
                    inputs,
                    activation,
                    rescale: None,
                    addend: None,
                    whole: None,
                };
                Action::Convolution(dense, geometry)
            }
            // Weights that are not in panels are those of a depthwise convolution. They hold one
            // window element after the other, each with all channels side by side.
            None => {
                let weights = scaled(of, floats(weights), &scales);
                let weights = Some((Weights::new(Values::F32(weights))?, biases));
                Action::Windows {
                    operation: WindowOp::Products,
                    weights,
                    activation,
                    rescale: None,
                    geometry,
                    pads: true,
                    bytes: None,
                }
            }
        };
        Ok((action, from, to))
    }

    fn scale(&mut self) -> Read {
        let (
            [Arg::Moved(factor), Arg::Moved(summand)],
            &[
                Arg::Constant(factors),
                Arg::Buffer(from),
                Arg::Constant(biases),
                Arg::Buffer(to),
            ],
        ) = (self.sizes, self.operands)
        else {
            return Err(self.other_arguments());
        };
        let moves = Moves::of_numbers([factor, summand]);
        let factors = floats((self.constant)(factors));
        let slopes = self.step.options.function == Function::PRelu;
        let biases = (!slopes).then(|| floats((self.constant)(biases)));
        let finish = self.finish();
        Ok((
            Action::Scale {
                factors,
                biases,
                moves,
                finish,
            },
            from,
            to,
        ))
    }

    fn finish(&self) -> Finish {
        Finish {
            rounds: self.step.options.rounds,
            activation: self.step.activation,
        }
    }

    /// Returns the biases of `rows` rows, and the quantization scales that the plan stored beside
    /// them. If the plan stored no scales, the second list is empty.
    fn biases(&mut self, constant: usize, rows: usize) -> (Cow<'static, [f32]>, Vec<f32>) {
        let c = &self.plan.constants[constant];
        let values = floats((self.constant)(constant));
        if c.scales.is_none() || values.is_empty() {
            return (values, Vec::new());
        }
        let both = c.layout.unpack(&values, (rows, 2), c.padded);
        let (biases, scales): (Vec<f32>, _) =
            both.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
        (biases.into(), scales)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::graph::{Graph, Role, Shape};
    use crate::ir::network::Network;
    use crate::ir::op::{Activation, Border, Op, Window};
    use crate::planner::fit::Memory;
    use crate::registry::EngineKind;
    use crate::simd::{BandLimits, LIMITS, MADE};

    /// A record that overflows in a hidden layer is refused, whichever activation follows the
    /// layer. Its neighbours in the batch are answered.
    #[test]
    fn an_overflow_in_a_hidden_layer_arrives_as_nan() {
        for activation in Activation::BEHIND_LAYERS {
            for sign in [1.0, -1.0] {
                let mut graph = Graph::new(Shape::vector(1));
                let arrays = |outputs| [(Role::Weights, outputs, 1), (Role::Biases, outputs, 1)];
                let hidden = graph.push("affine", Op::Affine, &[0], &arrays(1)).unwrap();
                let hidden = graph
                    .push("activation", Op::Activation(activation), &[hidden], &[])
                    .unwrap();
                graph
                    .push("affine", Op::Affine, &[hidden], &arrays(2))
                    .unwrap();
                let tensors = [vec![sign * 1e30], vec![0.0], vec![1.0; 2], vec![0.0; 2]];
                let network = Network {
                    width: 1,
                    graph,
                    labels: Vec::new().into(),
                    ..crate::baked::network().clone()
                };
                let recipe = crate::engine::model::recipe("host", EngineKind::Host).unwrap();
                let model =
                    Model::new(network, &tensors, recipe, crate::baked::library(), None).unwrap();
                let mut engine = HostEngine::new(model, 1, false).unwrap();
                for (n, x) in [1e-30, 1e10, -1e-30].into_iter().enumerate() {
                    engine.record(0, n).unwrap().set(0, x);
                }
                engine.submit(0, 3).unwrap();
                engine.collect(0).unwrap();
                for n in 0..3 {
                    let answer = engine.answer(0, n);
                    let scores: Vec<f32> = answer.scores.iter().collect();
                    assert_eq!(
                        answer.overflowed(),
                        n == 1,
                        "{activation:?} {sign}: {scores:?}"
                    );
                    assert_eq!(
                        answer.class,
                        Some(if n == 1 { crate::engine::NAN_CLASS } else { 0 })
                    );
                }
            }
        }
    }

    /// `--max-memory` counts at least as much memory as the engine allocates, and not much more.
    #[test]
    fn memory_is_counted_as_it_is_allocated() {
        let baked = crate::baked::network();
        for sizes in [
            &[64, 32, 10][..],
            &[5, 3],
            &[100, 300, 256, 700, 40, 3],
            &[1024, 2000, 1000, 10],
        ] {
            let mut graph = Graph::new(Shape::vector(sizes[0]));
            let (mut value, mut tensors) = (0, Vec::new());
            for pair in sizes.windows(2) {
                let arrays = [
                    (Role::Weights, pair[1], pair[0]),
                    (Role::Biases, pair[1], 1),
                ];
                value = graph.push("affine", Op::Affine, &[value], &arrays).unwrap();
                value = graph
                    .push(
                        "activation",
                        Op::Activation(Activation::Tanh),
                        &[value],
                        &[],
                    )
                    .unwrap();
                tensors.extend([vec![0.0; pair[0] * pair[1]], vec![0.0; pair[1]]]);
            }
            let network = Network {
                width: sizes[0],
                graph,
                labels: Vec::new().into(),
                ..baked.clone()
            };
            let recipe = crate::engine::model::recipe("host", EngineKind::Host).unwrap();
            for batch in [1, 7, 256] {
                let library = crate::baked::library();
                let model =
                    Model::new(network.clone(), &tensors, recipe, library, Some(batch)).unwrap();
                let memory = Memory::of(&model.plan, false);
                let found = HostEngine::new(model, 2, false).unwrap().team.bytes() as u64;
                let counted = memory.arena + memory.batch;
                assert!(
                    found <= counted && counted <= found + found / 2 + 1000 * batch as u64,
                    "{sizes:?} {batch}: {counted}, {found}"
                );
            }
        }
    }

    /// Threads that share a record's pixels, lines and channels give the same scores as one thread,
    /// to the bit. The same is true for bands of steps.
    #[test]
    fn threads_that_share_a_record_do_not_change_it() {
        let image = Shape { c: 3, h: 23, w: 25 };
        let mut graph = Graph::new(image);
        let window = |size: usize, stride: usize, border: usize| Window {
            stride: (stride, stride),
            border: Border {
                top: border,
                left: border,
                bottom: border,
                right: border,
            },
            ..Window::of((size, size))
        };
        let mut value = 0;
        let mut push = |graph: &mut Graph, op: Op, arrays: &[(Role, usize, usize)]| {
            value = graph.push(format!("{op:?}"), op, &[value], arrays).unwrap();
        };
        let mut channels = 3;
        for (outputs, window, activation) in [
            (20, window(3, 1, 1), Activation::Relu),
            (0, window(3, 1, 1), Activation::HardSwish),
            (32, window(1, 1, 0), Activation::Sigmoid),
            (48, window(3, 1, 1), Activation::Tanh),
            (70, window(3, 2, 1), Activation::Relu),
            (130, window(3, 2, 1), Activation::Tanh),
            (0, window(5, 1, 2), Activation::Relu),
            (200, window(3, 2, 1), Activation::Sigmoid),
        ] {
            let groups = if outputs == 0 { channels } else { 1 };
            let (height, width) = window.size;
            let taps = height * width * channels / groups;
            channels = if outputs == 0 { channels } else { outputs };
            let arrays = [(Role::Weights, channels, taps), (Role::Biases, channels, 1)];
            push(&mut graph, Op::Convolution { window, groups }, &arrays);
            push(&mut graph, Op::Activation(activation), &[]);
        }
        push(
            &mut graph,
            Op::Pool {
                kind: Pool::Mean,
                window: Window::of((3, 4)),
            },
            &[],
        );
        push(&mut graph, Op::Reshape(Shape::vector(200)), &[]);
        push(
            &mut graph,
            Op::Affine,
            &[(Role::Weights, 10, 200), (Role::Biases, 10, 1)],
        );
        graph.outputs = vec![value].into();
        let random = |seed: usize| {
            move |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.5
        };
        let tensors: Vec<Vec<f32>> = graph
            .tensors
            .iter()
            .enumerate()
            .map(|(seed, t)| {
                let size = if t.role == Role::Weights {
                    (3.0 / t.cols as f32).sqrt()
                } else {
                    0.5
                };
                (0..t.rows * t.cols)
                    .map(random(seed))
                    .map(|v| v * size)
                    .collect()
            })
            .collect();
        let width = image.len();
        let network = Network {
            width,
            graph,
            labels: Vec::new().into(),
            ..crate::baked::network().clone()
        };
        let recipe = crate::engine::model::recipe("host", EngineKind::Host).unwrap();
        let run = |threads: usize, records: usize| -> Vec<Vec<u32>> {
            let model = Model::new(
                network.clone(),
                &tensors,
                recipe,
                crate::baked::library(),
                None,
            )
            .unwrap();
            let mut engine = HostEngine::new(model, threads, false).unwrap();
            assert_eq!(engine.threads(), threads);
            for n in 0..records {
                let record: Vec<f32> = (0..width).map(random(50 + n)).collect();
                engine.record(0, n).unwrap().fill(&record);
            }
            engine.submit(0, records).unwrap();
            engine.collect(0).unwrap();
            (0..records)
                .map(|n| {
                    engine
                        .answer(0, n)
                        .scores
                        .iter()
                        .map(f32::to_bits)
                        .collect()
                })
                .collect()
        };
        LIMITS.set(BandLimits::NONE);
        let expected = run(1, 7);
        assert_eq!(MADE.get(), 0);
        LIMITS.set(BandLimits::OF_TESTS);
        assert_eq!(run(1, 7), expected);
        assert!(MADE.get() > 0, "nothing was tested");
        assert!(
            expected[0] != expected[1]
                && expected
                    .iter()
                    .flatten()
                    .all(|&b| f32::from_bits(b).is_finite())
        );
        for (threads, records) in [(2, 1), (3, 1), (3, 2), (4, 2), (4, 6), (2, 7)] {
            assert_eq!(
                run(threads, records),
                expected[..records],
                "{threads} threads, {records} records"
            );
        }
    }

    /// Makes a network of a convolution of 3 × 3, a scaling that rounds and clamps, and a
    /// convolution of 1 × 1.
    fn rounding_network(c: usize, side: usize) -> Graph {
        use crate::ir::op::{Float, Math};
        let mut graph = Graph::new(Shape {
            c,
            h: side,
            w: side,
        });
        let clip = Activation::Clip {
            low: Float::new(-20.0),
            high: Float::new(20.0),
        };
        let one = Border {
            top: 1,
            left: 1,
            bottom: 1,
            right: 1,
        };
        let window = Window {
            border: one,
            ..Window::of((3, 3))
        };
        let scale = [(Role::Factors, c, 1), (Role::Biases, c, 1)];
        let mut value = 0;
        let mut push = |op: Op, arrays: &[(Role, usize, usize)]| {
            value = graph.push(format!("{op:?}"), op, &[value], arrays).unwrap();
        };
        push(
            Op::Convolution { window, groups: 1 },
            &[(Role::Weights, c, 9 * c), (Role::Biases, c, 1)],
        );
        push(Op::Scale, &scale);
        push(Op::Activation(Activation::Math(Math::Round)), &[]);
        push(Op::Activation(clip), &[]);
        push(
            Op::Convolution {
                window: Window::of((1, 1)),
                groups: 1,
            },
            &[(Role::Weights, c, c), (Role::Biases, c, 1)],
        );
        graph.outputs = vec![value].into();
        graph
    }

    /// Returns the scores of one record on the host engine.
    fn scores_of(network: Network, tensors: &[Vec<f32>], record: &[f32]) -> Vec<f32> {
        let recipe = crate::engine::model::recipe("host", EngineKind::Host).unwrap();
        let library = crate::baked::library();
        let model = Model::new(network, tensors, recipe, library, None).unwrap();
        let mut engine = HostEngine::new(model, 1, false).unwrap();
        engine.record(0, 0).unwrap().fill(record);
        engine.submit(0, 1).unwrap();
        engine.collect(0).unwrap();
        engine.answer(0, 0).scores.iter().collect()
    }

    /// The scaling that rounds must not become part of the convolution with fractional weights,
    /// which may be computed in tiles. The next layer, of whole numbers, must read the rounded
    /// values.
    #[test]
    fn rounding_stays_behind_a_convolution_of_fractions() {
        const C: usize = 16;
        const SIDE: usize = 8;
        let graph = rounding_network(C, SIDE);
        let number = |i: usize, n: usize| (i * 7919 % 1009 % n) as f32 - (n / 2) as f32;
        let first: Vec<f32> = (0..9 * C * C).map(|i| number(i, 7) / 4.0).collect();
        let second: Vec<f32> = (0..C * C).map(|i| number(i, 9)).collect();
        let (none, x) = (vec![0.0; C], (0..C * SIDE * SIDE).map(|i| number(i + 3, 5)));
        let x: Vec<f32> = x.collect();
        let tensors = [
            first.clone(),
            none.clone(),
            vec![0.125; C],
            none.clone(),
            second.clone(),
            none,
        ];
        let network = Network {
            width: C * SIDE * SIDE,
            graph,
            labels: Vec::new().into(),
            ..crate::baked::network().clone()
        };
        let found = scores_of(network, &tensors, &x);
        // The record's elements stand channel by channel. All sums are exact, whatever their order.
        let rounded = |c: usize, y: usize, column: usize| {
            let taps = (0..9 * C).map(|k| {
                let (row, of) = (y + k / C / 3, column + k / C % 3);
                match (1..=SIDE).contains(&row) && (1..=SIDE).contains(&of) {
                    true => first[c * 9 * C + k] * x[(k % C * SIDE + row - 1) * SIDE + of - 1],
                    false => 0.0,
                }
            });
            (taps.sum::<f32>() * 0.125)
                .round_ties_even()
                .clamp(-20.0, 20.0)
        };
        for (i, found) in found.iter().enumerate() {
            let (c, y, column) = (i / SIDE / SIDE, i / SIDE % SIDE, i % SIDE);
            let sum: f32 = (0..C)
                .map(|k| second[c * C + k] * rounded(k, y, column))
                .sum();
            assert_eq!(*found, sum, "channel {c}, line {y}, column {column}");
        }
    }
}
