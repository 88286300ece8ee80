//! The host engine: threads that carry blocks of records through all layers.
//!
//! A batch is cut into blocks of [`BLOCK`] records. Records are independent, so a block goes through the whole network
//! on one thread, its activations stay in that core's cache, and threads meet only when a block is handed over. A
//! block moves between the stream (which fills it), a thread (which computes it) and back: no two threads ever see it
//! at once.

use super::deferred::{Decode, Deferred, Refusal};
use super::simd::{self, Affine, Kernels, Records};
use super::{Answer, Engine, NAN_CLASS, Record, RecordMut, SLOTS};
use crate::error::Error;
use crate::model::Model;
use crate::profile::StepClock;
use crate::spec::library::Operation;
use crate::spec::network::Activation;
use crate::spec::plan::{Arg, BufferRole};
use std::borrow::Cow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Records of a block.
const BLOCK: usize = 16;

/// Part of a batch.
struct Block {
    slot: usize,
    index: usize,
    records: usize,
    /// Records one after the other, `input_stride` apart.
    input: Vec<f32>,
    /// Records of it that are still bytes.
    deferred: Deferred,
    /// Last values, `output_stride` apart.
    scores: Vec<f32>,
    classes: Vec<u32>,
}

/// Where a step reads or writes.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Input,
    Hidden(usize),
    Scores,
}

enum Action {
    Affine {
        weights: Cow<'static, [f32]>,
        biases: Cow<'static, [f32]>,
        panel: usize,
        columns: usize,
        inputs: usize,
    },
    Activate,
    ArgMax {
        outputs: usize,
    },
}

struct HostStep {
    action: Action,
    activation: Activation,
    from: Place,
    to: Place,
    /// Padded rows of both buffers.
    from_stride: usize,
    to_stride: usize,
}

/// The network as the threads run it; never changes.
struct Program {
    kernels: Kernels,
    steps: Vec<HostStep>,
    /// Padded rows of each hidden buffer.
    hidden: Vec<usize>,
    /// Features of a record.
    width: usize,
    input_stride: usize,
    output_stride: usize,
    timed: bool,
}

/// What one thread works in.
struct Workspace {
    /// Where blocks are decoded, as large as their `input`.
    input: Vec<f32>,
    hidden: Vec<Vec<f32>>,
    /// Nanoseconds in each step, and blocks.
    clock: StepClock,
}

struct Queue {
    waiting: Vec<Block>,
    finished: Vec<Block>,
    /// Clocks of threads are added here after each block.
    clock: StepClock,
    /// Threads that have everything they need.
    ready: usize,
    quit: bool,
}

struct Shared {
    program: Program,
    queue: Mutex<Queue>,
    /// Signalled when blocks are waiting, or at the end.
    work: Condvar,
    /// Signalled when a block is finished.
    done: Condvar,
}

/// The host engine.
pub struct HostEngine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Blocks of each slot; `None` while a thread has it.
    slots: [Vec<Option<Block>>; SLOTS],
    outstanding: [usize; SLOTS],
    workspace: Workspace,
    batch: usize,
    rows: Vec<u32>,
    score_rows: Vec<u32>,
    has_classes: bool,
}

impl HostEngine {
    /// Starts the engine with `threads` threads in all (the caller's is one of them). `timed` keeps the time of every
    /// step.
    pub fn new(model: Model, threads: usize, timed: bool) -> Result<HostEngine, Error> {
        let batch = model.plan.batch;
        let has_classes = model.plan.buffer(BufferRole::Classes).is_some();
        let outputs = model.network.outputs();
        let width = model.network.width;
        let program = Program::new(model, timed)?;
        let blocks = batch.div_ceil(BLOCK);
        let mut slots: [Vec<Option<Block>>; SLOTS] = Default::default();
        for (slot, blocks_of) in slots.iter_mut().enumerate() {
            for index in 0..blocks {
                let records = BLOCK.min(batch - index * BLOCK);
                blocks_of.push(Some(Block {
                    slot,
                    index,
                    records: 0,
                    input: zeros(records * program.input_stride)?,
                    deferred: Deferred::new(records, width),
                    scores: zeros(records * program.output_stride)?,
                    classes: vec![0; records],
                }));
            }
        }
        let clock = StepClock::new(program.steps.len());
        let workspace = Workspace::new(&program);
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                waiting: Vec::with_capacity(SLOTS * blocks),
                finished: Vec::with_capacity(SLOTS * blocks),
                clock,
                ready: 0,
                quit: false,
            }),
            program,
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let threads = (1..threads)
            .map(|i| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("mortonnet-{i}"))
                    .spawn(move || shared.serve())
                    .map_err(|e| Error::Device(format!("host engine: cannot start thread {i}: {e}")))
            })
            .collect::<Result<Vec<JoinHandle<()>>, Error>>()?;
        // Start-up ends here: a thread that began later would allocate its buffers in the hot loop.
        let mut queue = shared.lock();
        while queue.ready < threads.len() {
            queue = shared.done.wait(queue).unwrap_or_else(|e| e.into_inner());
        }
        drop(queue);
        Ok(HostEngine {
            shared,
            threads,
            slots,
            outstanding: [0; SLOTS],
            workspace,
            batch,
            rows: (0..width as u32).collect(),
            score_rows: (0..outputs as u32).collect(),
            has_classes,
        })
    }

    /// Name of the instruction set in use.
    pub fn instruction_set(&self) -> &'static str {
        self.shared.program.kernels.name
    }

    /// Threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    fn block(&self, slot: usize, index: usize) -> &Block {
        self.slots[slot][index / BLOCK].as_ref().expect("the slot was collected")
    }

    /// Takes finished blocks back and computes waiting ones, until `slot` is complete.
    fn finish(&mut self, slot: usize) {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.lock();
        loop {
            while let Some(block) = queue.finished.pop() {
                self.outstanding[block.slot] -= 1;
                let (slot, index) = (block.slot, block.index);
                self.slots[slot][index] = Some(block);
            }
            if self.outstanding[slot] == 0 {
                return;
            }
            // Blocks are taken from the end: prefer this slot's, so that the older batch is complete first.
            let at = queue.waiting.iter().rposition(|b| b.slot == slot);
            if let Some(mut block) = at.map(|i| queue.waiting.swap_remove(i)) {
                drop(queue);
                shared.program.run(&mut block, &mut self.workspace);
                queue = shared.lock();
                queue.finished.push(block);
            } else {
                queue = shared.done.wait(queue).unwrap_or_else(|e| e.into_inner());
            }
        }
    }
}

/// Zeros, or an error instead of an abort where memory is short.
fn zeros(count: usize) -> Result<Vec<f32>, Error> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| {
        Error::Device("host engine: not enough memory for batches of this size; use a smaller --batch".into())
    })?;
    values.resize(count, 0.0);
    Ok(values)
}

impl Engine for HostEngine {
    fn batch(&self) -> usize {
        self.batch
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        let block = self.slots[slot][index / BLOCK].as_mut().expect("the slot is free");
        let stride = self.shared.program.input_stride;
        Ok(RecordMut::new(&mut block.input, &self.rows, index % BLOCK * stride))
    }

    fn defer(&mut self, slot: usize, index: usize, decode: &Arc<dyn Decode>, bytes: &[u8]) -> bool {
        let block = self.slots[slot][index / BLOCK].as_mut().expect("the slot is free");
        block.deferred.push(index % BLOCK, decode, bytes)
    }

    fn refused(&self, slot: usize) -> Option<(usize, Refusal)> {
        let mut blocks = self.slots[slot].iter().flatten();
        blocks.find_map(|b| {
            let (place, why) = b.deferred.refused(self.rows.len())?;
            Some((b.index * BLOCK + place, why))
        })
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        let blocks = records.div_ceil(BLOCK);
        if blocks == 1 {
            // Nothing to share: handing over would cost more than computing.
            let mut block = self.slots[slot][0].take().expect("the slot is free");
            block.records = records;
            self.shared.program.run(&mut block, &mut self.workspace);
            self.slots[slot][0] = Some(block);
            return Ok(());
        }
        let mut queue = self.shared.lock();
        for index in (0..blocks).rev() {
            let mut block = self.slots[slot][index].take().expect("the slot is free");
            block.records = BLOCK.min(records - index * BLOCK);
            queue.waiting.push(block);
        }
        self.outstanding[slot] = blocks;
        drop(queue);
        self.shared.work.notify_all();
        Ok(())
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        self.finish(slot);
        Ok(())
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        let block = self.block(slot, index);
        let offset = index % BLOCK * self.shared.program.output_stride;
        Answer {
            class: self.has_classes.then(|| block.classes[index % BLOCK]),
            scores: Record::new(&block.scores, &self.score_rows, offset),
        }
    }

    fn step_times(&mut self) -> Option<StepClock> {
        if !self.shared.program.timed {
            return None;
        }
        let mut all = self.shared.lock().clock.clone();
        all.add(&self.workspace.clock);
        Some(all)
    }
}

impl Drop for HostEngine {
    fn drop(&mut self) {
        self.shared.lock().quit = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A thread's life: take a block, compute it, give it back.
    fn serve(&self) {
        let mut workspace = Workspace::new(&self.program);
        let mut queue = self.lock();
        queue.ready += 1;
        self.done.notify_one();
        loop {
            if queue.quit {
                return;
            }
            if let Some(mut block) = queue.waiting.pop() {
                drop(queue);
                self.program.run(&mut block, &mut workspace);
                queue = self.lock();
                queue.finished.push(block);
                if self.program.timed {
                    queue.clock.add(&workspace.clock);
                    workspace.clock.clear();
                }
                self.done.notify_one();
            } else {
                queue = self.work.wait(queue).unwrap_or_else(|e| e.into_inner());
            }
        }
    }
}

impl Workspace {
    fn new(program: &Program) -> Workspace {
        Workspace {
            input: vec![0.0; program.input_stride * BLOCK],
            hidden: program.hidden.iter().map(|rows| vec![0.0; rows * BLOCK]).collect(),
            clock: StepClock::new(program.steps.len()),
        }
    }
}

impl Program {
    fn new(mut model: Model, timed: bool) -> Result<Program, Error> {
        let plan = &model.plan;
        let place = |i: usize| match plan.buffers[i].role {
            BufferRole::Input => Place::Input,
            BufferRole::Hidden => Place::Hidden(i),
            BufferRole::Scores | BufferRole::Classes => Place::Scores,
        };
        let buffers: Vec<usize> = plan.buffers.iter().map(|b| b.padded_rows).collect();
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
                    let (weights, biases) = (constant(0), constant(2));
                    // Padding rows may hold NaN where a record overflowed: they are not summed.
                    let (columns, inputs) = (step.problem.l, plan.buffers[read(1)].rows);
                    (Action::Affine { weights, biases, panel, columns, inputs }, read(1), read(3))
                }
                Operation::Sigmoid | Operation::Relu | Operation::Tanh => {
                    (Action::Activate, read(0), read(0))
                }
                Operation::ArgMax => {
                    let b = read(0);
                    (Action::ArgMax { outputs: plan.buffers[b].rows }, b, b)
                }
                Operation::Matmul
                | Operation::Bias
                | Operation::Sobel
                | Operation::Order
                | Operation::Probe => {
                    return Err(Error::Device(format!("host engine: no kernel for {}", step.kernel)));
                }
            };
            steps.push(HostStep {
                action,
                activation: step.operation.activation().unwrap_or(step.activation),
                from: place(from),
                to: place(to),
                from_stride: buffers[from],
                to_stride: buffers[to],
            });
        }
        let stride = |role| plan.buffer(role).map_or(0, |i| buffers[i]);
        Ok(Program {
            kernels: Kernels::detect(),
            steps,
            width: model.network.width,
            input_stride: stride(BufferRole::Input),
            output_stride: stride(BufferRole::Scores),
            hidden: plan
                .buffers
                .iter()
                .map(|b| if b.role == BufferRole::Hidden { b.padded_rows } else { 0 })
                .collect(),
            timed,
        })
    }

    /// Carries a block through all steps.
    fn run(&self, block: &mut Block, workspace: &mut Workspace) {
        let Workspace { input, hidden, clock } = workspace;
        // The numbers of a block that is all bytes stay in the cache of this core.
        let inside = block.deferred.len() == block.records;
        if inside {
            std::mem::swap(&mut block.input, input);
        }
        if !block.deferred.is_empty() {
            let start = self.timed.then(Instant::now);
            block.deferred.decode(&mut block.input, self.input_stride, self.width);
            clock.decode += start.map_or(Duration::ZERO, |s| s.elapsed());
        }
        for (i, step) in self.steps.iter().enumerate() {
            let start = self.timed.then(Instant::now);
            step.run(&self.kernels, block, hidden);
            if let Some(start) = start {
                clock.record(i, start.elapsed());
            }
        }
        if inside {
            std::mem::swap(&mut block.input, input);
        }
    }
}

impl HostStep {
    fn run(&self, kernels: &Kernels, block: &mut Block, hidden: &mut [Vec<f32>]) {
        let count = block.records;
        match &self.action {
            Action::Affine { weights, biases, panel, columns, inputs } => {
                let layer = Affine {
                    weights,
                    biases,
                    panel: *panel,
                    columns: *columns,
                    inputs: *inputs,
                    activation: self.activation,
                };
                // The result leaves its place while it is written, so that both can be borrowed.
                let mut result = match self.to {
                    Place::Hidden(i) => std::mem::take(&mut hidden[i]),
                    _ => std::mem::take(&mut block.scores),
                };
                let data: &[f32] = match self.from {
                    Place::Input => &block.input,
                    Place::Hidden(i) => &hidden[i],
                    Place::Scores => &block.scores,
                };
                kernels.affine(
                    &layer,
                    Records { data, stride: self.from_stride, count },
                    &mut result,
                    self.to_stride,
                );
                match self.to {
                    Place::Hidden(i) => hidden[i] = result,
                    _ => block.scores = result,
                }
            }
            Action::Activate => {
                let data = match self.to {
                    Place::Input => &mut block.input,
                    Place::Hidden(i) => &mut hidden[i],
                    Place::Scores => &mut block.scores,
                };
                simd::activate(self.activation, &mut data[..count * self.to_stride]);
            }
            Action::ArgMax { outputs } => {
                for (n, class) in block.classes[..count].iter_mut().enumerate() {
                    *class = argmax(&block.scores[n * self.from_stride..][..*outputs]);
                }
            }
        }
    }
}

/// Index of the largest value, the lowest of equal ones; [`NAN_CLASS`] if one is NaN.
fn argmax(values: &[f32]) -> u32 {
    let (mut best, mut nan) = (0, false);
    for (i, v) in values.iter().enumerate() {
        nan |= v.is_nan();
        if *v > values[best] {
            best = i;
        }
    }
    if nan { NAN_CLASS } else { best as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::network::{Layer, Network};
    use crate::spec::reference::Weights;

    #[test]
    fn argmax_is_the_lowest_of_equal_values_and_never_hides_nan() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[-0.0, 0.0]), 0);
        assert_eq!(argmax(&[f32::NEG_INFINITY; 3]), 0);
        assert_eq!(argmax(&[1.0, f32::NAN, 3.0]), NAN_CLASS);
        assert_eq!(argmax(&[f32::NAN, 3.0]), NAN_CLASS);
    }

    /// A record that overflows to infinity in a hidden layer: padding rows do not turn it into NaN.
    #[test]
    fn infinity_in_a_hidden_layer_is_not_nan() {
        let affine = |outputs| Layer::Affine { outputs, inputs: 1 };
        let relu = Layer::Activation(Activation::Relu);
        let sigmoid = Layer::Activation(Activation::Sigmoid);
        let network = Network {
            width: 1,
            layers: vec![affine(1), relu, affine(1), sigmoid, affine(2)].into(),
            labels: Vec::new().into(),
            ..crate::baked::NETWORK.clone()
        };
        let layer = |rows: usize, w| Weights { weights: vec![w; rows], biases: vec![0.0; rows] };
        let none = Weights::default;
        let weights = [layer(1, 1e30), none(), layer(1, 1.0), none(), layer(2, 1.0)];
        let recipe = crate::model::recipe("host", crate::spec::library::EngineKind::Host).unwrap();
        let model = Model::new(network, &weights, recipe, &crate::baked::LIBRARY, None).unwrap();
        let mut engine = HostEngine::new(model, 1, false).unwrap();
        engine.record(0, 0).unwrap().set(0, 1e10);
        engine.submit(0, 1).unwrap();
        engine.collect(0).unwrap();
        let answer = engine.answer(0, 0);
        assert_eq!(answer.scores.iter().collect::<Vec<_>>(), [1.0, 1.0]);
        assert_eq!(answer.class, Some(0));
    }
}
