//! One kernel on one problem of one device: checked against float64, then timed.

mod inputs;
pub(crate) mod nodes;

use super::live::stopped;
use super::reference::{self, Random};
use super::shapes::generated;
use crate::baked::library;
use crate::cl::{
    Access, Argument, BoundKernel, BufferHome, ClBuffer, ClError, Context, Device, Element, Event,
    Image2d, Program, Queue,
};
use crate::engine::NAN_CLASS;
use crate::engine::model::{self, Model, Values};
use crate::engine::opencl::limits;
use crate::engine::sources::Sources;
use crate::error::Error;
use crate::ir::half;
use crate::ir::layout::{Layout, Order};
use crate::ir::network::{Activation, Kind, Network, Precision};
use crate::ir::options::{Places, StepOptions};
use crate::ir::plan::{Arg, BufferRole, places};
use crate::ir::scale::{self, BESIDE};
use crate::ir::values;
use crate::planner::bind::{Call, Sizes, bind, touched};
use crate::registry::{
    EngineKind, Holds, Kernel as Entry, Operation, Parameter, PlanRecipe, Problem,
};
use inputs::Inputs;
use std::time::{Duration, Instant};

/// Work-group of a launch.
pub(crate) type Group = Option<(usize, usize)>;

/// A device under test: one profiling queue, and the programs built so far.
pub(crate) struct Lab {
    /// The device.
    pub(crate) device: Device,
    queue: Queue,
    /// Whether the device reports every access outside a buffer itself.
    pub(crate) simulated: bool,
    sources: Sources,
    programs: Vec<(String, Program)>,
    random: Random,
    /// The inputs of the case before.
    last: Option<(Operation, Data)>,
    /// Takes in what would be launched, in place of a launch.
    inputs: Option<Inputs>,
}

/// Why a kernel was not run or not believed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The device cannot run it: the restrictions that fail.
    Refused(String),
    /// It computes something else.
    Wrong(String),
    /// The driver does not compile or run it.
    Driver(ClError),
    /// Something else failed: its source cannot be read, or takes other arguments.
    Failed(Error),
    /// Its first launch took so many microseconds, which was too long.
    Slow(f64),
}

impl From<ClError> for Trouble {
    fn from(e: ClError) -> Self {
        Trouble::Driver(e)
    }
}

impl From<Error> for Trouble {
    fn from(e: Error) -> Self {
        Trouble::Failed(e)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Refused(m) => write!(f, "not run: {m}"),
            Trouble::Wrong(m) => write!(f, "WRONG: {m}"),
            Trouble::Driver(e) => write!(f, "refused by the driver: {e}"),
            Trouble::Failed(e) => write!(f, "failed: {e}"),
            Trouble::Slow(us) => {
                write!(
                    f,
                    "the first launch took {:.1} s, more than 1 s: no others (--full runs them)",
                    us / 1e6
                )
            }
        }
    }
}

/// Device times of repeated launches, in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaunchTimes {
    /// The first launch.
    pub(crate) first: f64,
    /// The others.
    pub(crate) run: Vec<f64>,
    /// From enqueueing to handing over, of the others.
    pub(crate) queued: Vec<f64>,
    /// From handing over to the start, of the others.
    pub(crate) wait: Vec<f64>,
}

/// Bytes before and after a guarded buffer.
const CANARY: usize = 4096;

/// A buffer, with canaries around it or exactly as large as its contents, so that a simulator sees
/// every step outside.
struct Guarded {
    view: ClBuffer,
    parent: Option<ClBuffer>,
    bytes: usize,
}

/// Numbers as the bytes of a buffer.
trait Bytes: Element {
    fn put(self, bytes: &mut Vec<u8>);
}

impl Bytes for f32 {
    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_ne_bytes());
    }
}

impl Bytes for u32 {
    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_ne_bytes());
    }
}

impl Bytes for u16 {
    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_ne_bytes());
    }
}

impl Bytes for u8 {
    fn put(self, bytes: &mut Vec<u8>) {
        bytes.push(self);
    }
}

impl Guarded {
    fn new<T: Bytes>(
        queue: &Queue,
        name: &str,
        data: &[T],
        canaries: bool,
    ) -> Result<Guarded, ClError> {
        let bytes = size_of_val(data).max(4);
        if !canaries {
            let view = ClBuffer::new(queue, name, bytes, Access::ReadWrite, BufferHome::Device)?;
            view.write(0, data)?;
            return Ok(Guarded {
                view,
                parent: None,
                bytes,
            });
        }
        // Written in one piece: oclgrind forgets what it knows of a buffer when a part of it is
        // written.
        let mut all = vec![0xA5u8; CANARY];
        data.iter().for_each(|&v| v.put(&mut all));
        all.resize(CANARY + bytes.next_multiple_of(4) + CANARY, 0xA5);
        let parent = ClBuffer::new(
            queue,
            name,
            all.len(),
            Access::ReadWrite,
            BufferHome::Device,
        )?;
        parent.write(0, &all)?;
        let view = parent.sub_buffer(name, CANARY, bytes)?;
        Ok(Guarded {
            view,
            parent: Some(parent),
            bytes,
        })
    }

    fn read<T: Element + Default>(&self, count: usize) -> Result<Vec<T>, ClError> {
        let mut data = vec![T::default(); count];
        self.view.read(0, &mut data)?;
        Ok(data)
    }

    /// Whether nothing was written around it.
    fn intact(&self) -> Result<bool, ClError> {
        let Some(parent) = &self.parent else {
            return Ok(true);
        };
        let mut all = vec![0u8; parent.bytes()];
        parent.read(0, &mut all)?;
        let around = all[..CANARY].iter().chain(&all[CANARY + self.bytes..]);
        Ok(around.copied().all(|b| b == 0xA5))
    }
}

/// The inputs of a run in plain row-major order, without padding.
struct Data {
    real: Problem,
    a: Vec<f32>,
    /// How a is stored.
    weights: Precision,
    b: Vec<f32>,
    /// The result before the run: the summand of scaled products, the operand of in-place kernels.
    r: Vec<f32>,
    bias: Vec<f32>,
    /// Rows of the first of two layers; else 0.
    middle: usize,
    /// The second of two layers: `a2`, h rows of `middle` columns, and `bias2`.
    second: (Vec<f32>, Vec<f32>),
    image: Vec<u8>,
    alpha: f32,
    beta: f32,
}

impl Data {
    /// The sizes of a launch of `entry` on problem `p`, the one of these inputs or the padded one.
    fn sizes(&self, entry: &Entry, p: Problem, parts: usize, padded: bool) -> Sizes {
        let mut sizes = Sizes {
            parts,
            rows: self.real.l,
            ..Sizes::of(p)
        };
        if entry.operation == Operation::ReducePair {
            sizes.parts = parts_before(p.l);
        }
        if entry.operation == Operation::Pair {
            sizes.middle = self.middle;
            let align = entry
                .restrictions
                .a
                .as_ref()
                .filter(|_| padded)
                .map_or(1, |a| a.row_align);
            sizes.middle = sizes.middle.next_multiple_of(align);
        }
        sizes
    }

    /// The last of several records overflows: infinities of both signs among what is summed up,
    /// activated or compared.
    fn overflow(&mut self) {
        let w = self.real.w;
        if w < 2 {
            return;
        }
        let values = if self.b.is_empty() {
            &mut self.r
        } else {
            &mut self.b
        };
        for (i, row) in values.chunks_exact_mut(w).enumerate().step_by(3) {
            row[w - 1] = if i % 2 == 0 {
                f32::NEG_INFINITY
            } else {
                f32::INFINITY
            };
        }
    }

    /// The weights as halves hold them; those of every third row are so small that halves hold them
    /// without all their digits, which a conversion by hand or a device may lose. Their biases are
    /// as small: beside larger ones their sums would be rounded more coarsely than the bound
    /// allows.
    fn become_halves(&mut self) {
        self.weights = Precision::F16;
        let rounded = |v: &mut f32| *v = half::to_f32(half::from_f32(*v));
        let rows = self
            .a
            .chunks_exact_mut(self.real.l.max(1))
            .zip(&mut self.bias);
        for (row, bias) in rows.skip(1).step_by(3) {
            row.iter_mut()
                .chain([bias])
                .for_each(|v| *v *= 2f32.powi(-15));
        }
        self.a
            .iter_mut()
            .chain(&mut self.second.0)
            .for_each(rounded);
    }

    /// The weights as bytes hold them.
    fn become_bytes(&mut self) {
        self.weights = Precision::I8;
        for (weights, columns) in [
            (&mut self.a, self.real.l),
            (&mut self.second.0, self.middle),
        ] {
            let alike = vec![1.0; columns];
            weights
                .chunks_exact_mut(columns.max(1))
                .for_each(|row| scale::round(row, &alike));
        }
    }

    /// Weights as numbers, without the scales of their rows; and the scales.
    fn numbers(weights: &[f32], columns: usize) -> (Vec<f32>, Vec<f32>) {
        let rows = weights.chunks_exact(columns.max(1));
        let number = |row: &[f32]| {
            let scale = scale::of_row(row);
            row.iter()
                .map(|&w| scale::number(w, scale).into())
                .collect::<Vec<f32>>()
        };
        (
            rows.clone().flat_map(number).collect(),
            rows.map(scale::of_row).collect(),
        )
    }

    /// Biases, as a kernel takes them beside the scales of the rows of `weights`.
    fn biases(&self, biases: &[f32], (weights, columns): (&[f32], usize), rows: usize) -> Vec<f32> {
        let scales = match weights.is_empty() {
            true => (0..biases.len()).map(power).collect(),
            false => Data::numbers(weights, columns).1,
        };
        let both: Vec<f32> = biases
            .iter()
            .zip(scales)
            .flat_map(|(&b, s)| [b, s])
            .collect();
        Layout::panels(BESIDE).pack(
            &both,
            (biases.len(), 2),
            (rows.next_multiple_of(BESIDE), 2),
            0.0,
        )
    }
}

/// The scales of rows of a `reduce`, which has no weights: powers of two.
fn power(row: usize) -> f32 {
    2f32.powi(row as i32 % 7 - 3)
}

/// A kernel with its arguments.
struct Setup {
    /// None where inputs are taken in.
    kernel: Option<BoundKernel>,
    buffers: Vec<(&'static str, Guarded)>,
    global: Vec<usize>,
    local: Option<Vec<usize>>,
    padded: Problem,
    _image: Option<Image2d>,
}

impl Setup {
    fn buffer(&self, name: &str) -> Option<&Guarded> {
        self.buffers.iter().find(|b| b.0 == name).map(|b| &b.1)
    }
}

impl Lab {
    /// Opens `device` for benchmarks.
    pub(crate) fn new(device: &Device, sources: Sources) -> Result<Lab, Error> {
        let queue = Queue::new(&Context::new(device)?, true)?;
        let random = reference::fresh();
        // It takes minutes, and says more than canaries do.
        let simulated = device.platform_name == "Oclgrind";
        Ok(Lab {
            device: device.clone(),
            queue,
            simulated,
            sources,
            programs: Vec::new(),
            random,
            last: None,
            inputs: None,
        })
    }

    /// The hash of all that the checks of `entry` hand to the device and of the scores that they
    /// expect; nothing is compiled or launched, and the random inputs are always the same ones.
    pub(crate) fn inputs(&mut self, entry: &Entry, groups: &[Group]) -> Result<String, Trouble> {
        self.random = Random::new(1);
        self.inputs = Some(Inputs::default());
        let checked = groups
            .iter()
            .try_for_each(|&group| match self.check(entry, group) {
                Err(Trouble::Refused(why)) => {
                    self.take_in(why.as_bytes());
                    Ok(())
                }
                other => other.map(|_| ()),
            });
        let inputs = self.inputs.take().unwrap_or_default();
        checked.map(|()| inputs.to_string())
    }

    /// Takes in bytes, where inputs are taken in.
    fn take_in(&mut self, bytes: &[u8]) {
        self.inputs.iter_mut().for_each(|inputs| inputs.add(bytes));
    }

    fn random(&mut self) -> Random {
        self.random.split()
    }

    fn program(
        &mut self,
        entry: &Entry,
        activation: Activation,
        weights: Precision,
        group: Group,
        step: &StepOptions,
    ) -> Result<Option<Program>, Trouble> {
        let source = entry.source.as_deref().unwrap_or_default();
        let local = group.map(|g| entry.restrictions.dimensions(g));
        let options = entry.options(activation, weights, local, step);
        let key = format!("{source} {options}");
        if let Some((_, program)) = self.programs.iter().find(|p| p.0 == key) {
            return Ok(Some(program.clone()));
        }
        let text = self.sources.text(entry)?;
        if let Some(inputs) = &mut self.inputs {
            inputs.add(options.as_bytes());
            inputs.add_source(&text);
            return Ok(None);
        }
        let program = Program::from_source(
            self.queue.context(),
            &format!("kernels/{source}"),
            &text,
            &options,
        )?;
        self.programs.push((key, program.clone()));
        Ok(Some(program))
    }

    /// A kernel with its arguments; none where inputs are taken in.
    fn bound(
        &mut self,
        program: Option<&Program>,
        entry: &Entry,
        arguments: &[Argument],
        group: Group,
    ) -> Result<Option<BoundKernel>, Trouble> {
        let Some(program) = program else {
            self.take_in(entry.function.as_bytes());
            arguments.iter().try_for_each(|argument| {
                self.inputs
                    .iter_mut()
                    .try_for_each(|inputs| inputs.add_argument(argument))
            })?;
            return Ok(None);
        };
        let kernel = program.kernel(&entry.function)?.bind(arguments)?;
        if let Some((y, x)) = group {
            let most = kernel.work_group_limit()?;
            if y * x > most {
                return Err(Trouble::Refused(format!(
                    "work-groups of {y}×{x} work-items, the device allows this kernel {most}"
                )));
            }
        }
        Ok(Some(kernel))
    }

    /// Launches a kernel and waits for it. False where inputs are taken in: then there is nothing
    /// to verify.
    fn launch(
        &mut self,
        kernel: Option<&BoundKernel>,
        global: &[usize],
        local: Option<&[usize]>,
    ) -> Result<bool, Trouble> {
        let Some(kernel) = kernel else {
            self.take_in(format!("{global:?} {local:?}").as_bytes());
            return Ok(false);
        };
        self.queue.launch(kernel, global, local, None)?;
        self.queue.finish()?;
        Ok(true)
    }

    fn data(&mut self, entry: &Entry, real: Problem, (alpha, beta): (f32, f32)) -> Data {
        let mut random = self.random();
        let Problem { h, w, l } = real;
        let mut floats = |n: usize| (0..n).map(|_| random.float()).collect::<Vec<f32>>();
        let in_place = matches!(
            entry.operation,
            Operation::Bias | Operation::Sigmoid | Operation::Relu | Operation::Activation
        );
        // Results are poisoned unless the kernel reads them.
        let reads = in_place || (entry.restrictions.scaled && beta != 0.0);
        let r = if reads {
            floats(h * w)
        } else {
            vec![f32::NAN; h * w]
        };
        let product = matches!(
            entry.operation,
            Operation::Matmul | Operation::Affine | Operation::Pair
        );
        // The first of two layers has rows of its own.
        let middle = middle(entry.operation, real);
        let (rows, second) = match middle {
            0 => (h, Default::default()),
            rows => (rows, (floats(h * rows), floats(h))),
        };
        let b = match entry.operation {
            _ if product => floats(l * w),
            Operation::Repack => floats(l * w),
            Operation::Reduce => floats(l * h * w),
            Operation::ReducePair => floats(parts_before(l) * l * w),
            Operation::ArgMax => {
                let mut b = floats(l * w);
                // Ties and NaN.
                for c in (0..w).step_by(3) {
                    (0..l).for_each(|i| b[i * w + c] = (b[i * w + c] * 3.0).round());
                }
                for c in (1..w).step_by(5) {
                    b[(c % l) * w + c] = f32::NAN;
                }
                b
            }
            _ => Vec::new(),
        };
        let a = match entry.operation {
            Operation::Probe => floats(h * w),
            _ if product => floats(rows * l),
            _ => Vec::new(),
        };
        let bias = floats(rows);
        let sobel = entry.operation == Operation::Sobel;
        let image = if sobel {
            (0..h * w).map(|_| random.byte()).collect()
        } else {
            Vec::new()
        };
        Data {
            real,
            a,
            weights: Precision::F32,
            b,
            r,
            bias,
            middle,
            second,
            image,
            alpha,
            beta,
        }
    }

    /// Creates buffers and kernel for `data`.
    fn setup(
        &mut self,
        entry: &Entry,
        activation: Activation,
        group: Group,
        data: &Data,
        (parts, canaries): (usize, bool),
    ) -> Result<Setup, Trouble> {
        let padded = entry.pad(data.real, group);
        let limits = limits(&self.device);
        let mut wanted = entry.clone();
        wanted.restrictions.work_group = group;
        wanted
            .admits(padded, Some(&limits))
            .map_err(|e| Trouble::Refused(e.join("; ")))?;
        let largest = (padded.h * padded.w)
            .max(padded.h * padded.l)
            .max(padded.l * padded.w) as u64
            * 4;
        if largest + 2 * CANARY as u64 > self.device.max_alloc {
            let most = self.device.max_alloc;
            return Err(Trouble::Refused(format!(
                "a buffer of {largest} bytes, the device allows {most}"
            )));
        }
        let levels = |b, r| Places::Levels {
            from: entry.layout(b),
            to: entry.layout(r),
        };
        let mut options = StepOptions::default();
        options.places = match (entry.operation, entry.operation.parameters()) {
            (Operation::Repack, [b, r]) => levels(b, r),
            (Operation::Affine, [_, b, _, r]) if entry.of_few() => levels(b, r),
            _ => Places::Fixed,
        };
        if let (true, Some([a, b])) = (entry.of_few(), entry.operation.parameters().first_chunk()) {
            options.row_step = entry.layout(b).row_step(padded.l, padded.w);
            options.panel = entry.layout(a).panel_rows();
            options.kept = (entry.restrictions.keeps > 0).then_some(8);
        }
        let program = self.program(entry, activation, data.weights, group, &options)?;
        let queue = self.queue.clone();
        let (real, sizes) = (
            data.sizes(entry, data.real, parts, false),
            data.sizes(entry, padded, parts, true),
        );
        let params = entry
            .operation
            .activation()
            .unwrap_or(activation)
            .parameters();
        let factors = (data.alpha, data.beta);
        let call = Call {
            kernel: entry,
            group,
            sizes,
            factors,
            params,
            value: 0.0,
            granule: padded.w,
        };
        let mut operands: Vec<&Parameter> = Vec::new();
        let launch = bind(&call, |operand| {
            operands.push(operand);
            Arg::Buffer(operands.len() - 1)
        });
        let (mut buffers, mut image) = (Vec::new(), None);
        for &operand in &operands {
            let name = operand.name;
            let size = |sizes: &Sizes| sizes.of_operand(entry.operation, operand);
            let (plain, to) = (size(&real), size(&sizes));
            let layout = entry.layout(operand);
            let pack = |values: &[f32], pad: f32| layout.pack(values, plain, to, pad);
            let written = |values: &[f32]| {
                pack(
                    values,
                    if values.iter().any(|v| v.is_nan()) {
                        f32::NAN
                    } else {
                        0.0
                    },
                )
            };
            let bytes = data.weights == Precision::I8;
            let values = match (operand.holds, name) {
                (Holds::Biases, "bias2") if bytes => {
                    data.biases(&data.second.1, (&data.second.0, data.middle), to.0)
                }
                (Holds::Biases, _) if bytes => {
                    data.biases(&data.bias, (&data.a, data.real.l), to.0)
                }
                (Holds::Weights, "a2") if bytes => {
                    pack(&Data::numbers(&data.second.0, data.middle).0, 0.0)
                }
                (Holds::Weights, "a") if bytes => pack(&Data::numbers(&data.a, data.real.l).0, 0.0),
                (Holds::Bytes, "image") => {
                    buffers.push((name, Guarded::new(&queue, name, &data.image, canaries)?));
                    continue;
                }
                (Holds::Bytes, _) => {
                    buffers.push((
                        name,
                        Guarded::new(&queue, name, &vec![BORDER; plain.0 * plain.1], canaries)?,
                    ));
                    continue;
                }
                (Holds::Words | Holds::Classes, _) => {
                    buffers.push((
                        name,
                        Guarded::new(&queue, name, &vec![0u32; to.0 * to.1], canaries)?,
                    ));
                    continue;
                }
                (Holds::Biases, "bias2") => pack(&data.second.1, 0.0),
                (Holds::Biases, _) => pack(&data.bias, 0.0),
                (_, "a2") => pack(&data.second.0, 0.0),
                (_, "a") => pack(&data.a, 0.0),
                (_, "b") => pack(&data.b, 0.0),
                _ if parts > 1 => vec![f32::NAN; to.0 * to.1],
                _ => written(&data.r),
            };
            let stored = if operand.holds == Holds::Weights {
                data.weights
            } else {
                Precision::F32
            };
            let values = match stored {
                Precision::F32 => Values::F32(values.into()),
                Precision::F16 => Values::F16(values.iter().map(|&v| half::from_f32(v)).collect()),
                Precision::I8 => Values::I8(values.iter().map(|&v| v as i8).collect()),
            };
            if entry.reads_image(operand) {
                // A pixel is four neighbours in the order of the layout.
                let (line, lines) = if layout.outer == Order::R {
                    (to.1, to.0)
                } else {
                    to
                };
                self.take_in(model::bytes(&values));
                let pixels = model::image(&queue, name, (line / 4, lines), &values)?;
                image = Some((name, pixels));
            } else {
                buffers.push((
                    name,
                    Guarded::new(&queue, name, model::bytes(&values), canaries)?,
                ));
            }
        }
        let touched = |operand: &Parameter| {
            let (sizes, bytes) = match operand.holds {
                Holds::Bytes => (&real, 1),
                Holds::Weights => (&sizes, data.weights.bytes()),
                _ => (&sizes, 4),
            };
            let (mut rows, mut cols) = sizes.of_operand(entry.operation, operand);
            if operand.holds == Holds::Biases && data.weights == Precision::I8 {
                (rows, cols) = (rows.next_multiple_of(BESIDE), 2);
            }
            rows * cols * bytes
        };
        let argument = |arg: &Arg| match *arg {
            Arg::Size(n) => Some(Argument::U32(n)),
            Arg::Scalar(x) => Some(Argument::F32(x)),
            Arg::Pair((x, y)) => Some(Argument::F32x2([x, y])),
            Arg::Geometry(geometry) => Some(Argument::U32x16(geometry.words())),
            Arg::Moved(moved) => Some(Argument::U32x16(moved.words())),
            Arg::Buffer(i) => match (&image, buffers.iter().find(|b| b.0 == operands[i].name)) {
                (_, Some((_, Guarded { view: buffer, .. }))) => Some(Argument::Buffer {
                    buffer,
                    bytes: touched(operands[i]),
                }),
                (Some((_, image)), None) => Some(Argument::Image(image)),
                (None, None) => None,
            },
            Arg::Constant(_) | Arg::Constants => None,
        };
        let arguments: Vec<_> = launch.args.iter().filter_map(argument).collect();
        let kernel = self.bound(program.as_ref(), entry, &arguments, group)?;
        let global = vec![
            launch.global.0.items(padded.w),
            launch.global.1.items(padded.w),
        ];
        let local = launch.local.map(|(first, second)| vec![first, second]);
        Ok(Setup {
            kernel,
            buffers,
            global,
            local,
            padded,
            _image: image.map(|i| i.1),
        })
    }

    /// Takes in the scores that a network has for these records.
    fn take_in_scores(&mut self, network: &Network, weights: &[Vec<f32>], records: &[f32]) {
        for record in records.chunks_exact(network.width) {
            let raw: Vec<f64> = record.iter().map(|&v| v.into()).collect();
            network
                .scores(weights, &raw)
                .iter()
                .for_each(|score| self.take_in(&score.to_ne_bytes()));
        }
    }

    /// Checks a kernel at sizes that hit every edge: with canaries first (but on a simulator), then
    /// exact buffers. Gives the largest error in units of the bound.
    pub(crate) fn check(&mut self, entry: &Entry, group: Group) -> Result<f64, Trouble> {
        self.check_with(entry, group, 0)
    }

    /// The same with the nth layouts that it is checked with; from the second ones on without fused
    /// activations, which see no layout.
    fn check_with(&mut self, entry: &Entry, group: Group, layouts: usize) -> Result<f64, Trouble> {
        if entry.operation == Operation::Layers {
            return self.check_layers(entry, group);
        }
        if nodes::of_image(entry.operation) {
            return self.check_nodes(entry, group);
        }
        if takes_any_layouts(entry) {
            let mut worst = 0.0f64;
            let pairs = if entry.of_few() {
                &OF_FEW[..]
            } else {
                &REPACKED[..]
            };
            for (i, &(from, to)) in pairs.iter().enumerate() {
                worst = worst.max(self.check_with(&laid_out(entry, from, to), group, i)?);
            }
            return Ok(worst);
        }
        let unit = entry.pad(Problem { h: 1, w: 1, l: 1 }, group);
        // The last one's sums go through all stages in local memory.
        let define = |name: &str| entry.define(name).unwrap_or(1);
        let staged = match entry.restrictions.needs.warp {
            true => 5 * define("BK") + 2,
            false => (define("STAGES") - 1) * define("BK") + 2,
        };
        let mut sizes = vec![(1, 1, 1), (17, 9, 5), (9, 33, staged.max(18))];
        // The edges of tiles, where a work-group has one; not of the pair's, which is as high as
        // any network.
        let tile = entry
            .restrictions
            .tile
            .filter(|_| entry.operation != Operation::Pair)
            .unwrap_or((1, 1));
        let (h, w, l) = (unit.h.max(tile.0), unit.w.max(tile.1), unit.l);
        sizes.extend([
            (h.max(2) - 1, w + 1, l),
            (h, w, l.max(2) - 1),
            (h + 1, w.max(2) - 1, l + 1),
            (3 * h, w, 2 * l),
        ]);
        if entry.of_few() {
            // Few records; sums with and without their unrolled loop, rows behind a panel.
            // Their least number of terms is one of speed: they are right with fewer, too.
            sizes = vec![
                (1, 1, 1),
                (17, 3, 5),
                (9, 2, 5 * define("SLICES") + 3),
                (145, 1, 3),
            ];
            // More values than are staged at a time.
            sizes.extend(
                entry
                    .define("STAGED")
                    .map(|staged| (5, 2, staged + 5 * define("SLICES") + 3)),
            );
        } else {
            sizes
                .iter_mut()
                .for_each(|s| s.2 = s.2.max(entry.restrictions.least_l));
        }
        if entry.operation == Operation::ReducePair {
            // More values than a work-group has at a time, and more parts. Between parts there is
            // no padding.
            sizes = vec![
                (1, 1, 4),
                (16, 9, 740),
                (9, 3, 2672),
                (10, 33, 44),
                (13, 2, 1184),
            ];
        }
        match entry.operation {
            Operation::Sobel => {
                sizes = [
                    (1, 1),
                    (2, 9),
                    (3, 3),
                    (4, 7),
                    (5, 8),
                    (3, 10),
                    (9, 11),
                    (7, 17),
                    (6, 18),
                    (5, 19),
                    (33, 34),
                    (16, 35),
                ]
                .map(|(h, w)| (h, w, 0))
                .to_vec();
            }
            // As many rows as it reads, in edges of both layouts.
            Operation::Repack => {
                sizes = [
                    (1, 1),
                    (17, 9),
                    (9, 33),
                    (h.max(l), w),
                    (h + l - 1, w + 1),
                    (3 * h, w.max(2) - 1),
                ]
                .map(|(rows, w)| (rows, w, rows))
                .to_vec();
            }
            Operation::Order => sizes = vec![(33, 33, 0)],
            Operation::Probe => sizes = vec![(1, 16, 1), (3, 32, 7), (33, 48, 20)],
            _ => {}
        }
        let factors: &[(f32, f32)] = if entry.restrictions.scaled {
            &[(1.0, 0.0), (1.0, 0.1), (-2.0, 1.0)]
        } else {
            &[(1.0, 0.0)]
        };
        let activations: &[Activation] = match entry.operation {
            Operation::Activation => entry.activations(),
            _ if entry.fuses() && layouts == 0 => {
                &[&[Activation::None][..], entry.activations()].concat()
            }
            _ => &[Activation::None],
        };
        let stored = |&w: &Precision| entry.restrictions.weights(w) == w;
        let stored: Vec<Precision> = Precision::ALL.into_iter().filter(stored).collect();
        let mut worst = 0.0f64;
        for (i, &(h, w, l)) in sizes.iter().enumerate() {
            for &factor in factors {
                for (n, &activation) in activations.iter().enumerate() {
                    let parts = entry.restrictions.split > 1 && activation == Activation::None;
                    // A fused activation is computed behind the same sums and edges: inside of a
                    // tile and across some, on a simulator one of these.
                    let fused = n > 0 && entry.fuses();
                    let at =
                        |size: usize, odd: usize| i == size && (!self.simulated || n % 2 == odd);
                    if fused && !at(1, 0) && !at(sizes.len() - 2, 1) {
                        continue;
                    }
                    let canaries = match (self.simulated, fused) {
                        (true, _) => &[false][..],
                        (false, true) => &[true],
                        (false, false) => &[true, false],
                    };
                    for (weights, canaries) in stored
                        .iter()
                        .flat_map(|&w| canaries.iter().map(move |&c| (w, c)))
                    {
                        if (fused || layouts > 0) && !self.tries(i + n + layouts, weights, &stored)
                        {
                            continue;
                        }
                        let mut data = self.data(entry, Problem { h, w, l }, factor);
                        match weights {
                            Precision::F32 => {}
                            Precision::F16 => data.become_halves(),
                            Precision::I8 => data.become_bytes(),
                        }
                        if entry.common().next().is_some()
                            || matches!(entry.operation, Operation::ArgMax | Operation::Repack)
                        {
                            data.overflow();
                        }
                        let setup = self.setup(entry, activation, group, &data, (1, canaries))?;
                        if self.launch(
                            setup.kernel.as_ref(),
                            &setup.global,
                            setup.local.as_deref(),
                        )? {
                            worst = worst.max(verify(entry, activation, &setup, &data)?);
                        }
                        if parts && !canaries && self.tries(i, weights, &stored) {
                            worst = worst.max(self.check_parts(entry, group, data)?);
                        }
                    }
                }
            }
        }
        Ok(worst)
    }

    /// Whether variant `n` of what was checked with every precision is tried with `weights`: on a
    /// simulator with one of those that the kernel has, in turns.
    fn tries(&self, n: usize, weights: Precision, stored: &[Precision]) -> bool {
        !self.simulated || weights == stored[n % stored.len()]
    }

    /// The same for a launch whose work-groups share the common dimension: the sum of the parts is
    /// the product.
    fn check_parts(&mut self, entry: &Entry, group: Group, mut data: Data) -> Result<f64, Trouble> {
        const PARTS: usize = 3;
        let real = data.real;
        data.bias.fill(0.0);
        if data.weights == Precision::I8 {
            // Who adds the parts up multiplies with the scales.
            data.a = Data::numbers(&data.a, real.l).0;
        }
        let setup = self.setup(
            entry,
            Activation::None,
            group,
            &data,
            (PARTS, !self.simulated),
        )?;
        let Problem { h, w, .. } = setup.padded;
        if !self.launch(setup.kernel.as_ref(), &setup.global, setup.local.as_deref())? {
            return Ok(0.0);
        }
        let Some(parts) = setup.buffer("r") else {
            return Ok(0.0);
        };
        if !parts.intact()? {
            return Err(Trouble::Wrong(format!(
                "wrote outside its parts at {}",
                shape(real)
            )));
        }
        let layout = entry
            .restrictions
            .r
            .as_ref()
            .and_then(|o| o.representation.clone());
        let size = (PARTS * h, w);
        let all =
            layout
                .unwrap_or(Layout::R)
                .unpack(&parts.read::<f32>(PARTS * h * w)?, size, size);
        let sum: Vec<f32> = (0..h * w)
            .map(|i| all[i] + all[h * w + i] + all[2 * h * w + i])
            .collect();
        let found = Layout::R.unpack(&sum, (real.h, real.w), (h, w));
        let product = reference::Product {
            real,
            a: &data.a,
            b: &data.b,
            c: &data.r,
            bias: None,
            alpha: 1.0,
            beta: 0.0,
            activation: Activation::None,
        };
        match product.excess(&found) {
            excess if excess <= 1.0 => Ok(excess),
            excess => Err(Trouble::Wrong(format!(
                "the sum of {PARTS} parts is {excess:.2} times the bound off at {}",
                shape(real)
            ))),
        }
    }

    /// A kernel for all layers, on networks around its tiles: with as many layers as it takes, with
    /// every activation, with and without arg-max, a record that overflows, equal scores, and a
    /// part of a batch behind which nothing may change.
    fn check_layers(&mut self, entry: &Entry, group: Group) -> Result<f64, Trouble> {
        let mut shapes = vec![("40-120-70-10:relu", 20)];
        if group == entry.restrictions.work_group {
            shapes.extend([
                ("1-1:none", 2),
                ("17-33-20-66-15-5:tanh", 33),
                ("50-16-2:sigmoid", 16),
                ("5-2-3-2-3-2-3-2-3:none", 3),
            ]);
        }
        if entry.of_few() {
            // More terms than work-items, several turns of a slice and some terms, more slices than
            // one work-item adds up.
            shapes.push(("1500-20-600-3:relu", 2));
        }
        let mut worst = 0.0f64;
        for (n, (shape, records)) in shapes.into_iter().enumerate() {
            for weights in Precision::ALL {
                if n > 0 && !self.tries(n, weights, &Precision::ALL) {
                    continue;
                }
                for (kind, canaries) in [
                    (Kind::Classes, true),
                    (Kind::Classes, false),
                    (Kind::Values, true),
                ] {
                    let found = self.check_network(
                        entry,
                        group,
                        (shape, records),
                        kind,
                        weights,
                        canaries,
                    )?;
                    worst = worst.max(found);
                }
            }
        }
        Ok(worst)
    }

    fn check_network(
        &mut self,
        entry: &Entry,
        group: Group,
        (shape, records): (&str, usize),
        kind: Kind,
        precision: Precision,
        canaries: bool,
    ) -> Result<f64, Trouble> {
        let wrong = |what: String| Trouble::Wrong(format!("{what}, {shape}, {records} records"));
        let (mut network, mut weights) = generated(shape, kind).map_err(wrong)?;
        network.weights = precision;
        values::round(precision, &network.graph, &mut weights);
        // The last score is the first once more; without canaries one in the middle is NaN.
        let one_nan = !canaries;
        if let ([.., w, biases], outputs) = (&mut weights[..], network.outputs()) {
            let inputs = w.len() / outputs;
            w.copy_within(..inputs, (outputs - 1) * inputs);
            biases[outputs - 1] = biases[0];
            if one_nan {
                biases[outputs / 2] = f32::NAN;
            }
        }
        let recipe = PlanRecipe {
            without_lab: "".into(),
            name: "check".into(),
            about: "".into(),
            engine: EngineKind::OpenCl,
            batch: records + 16,
            few: None,
            kernels: vec![entry.codename.clone()].into(),
            groups: group
                .map(|g| (entry.codename.clone(), g))
                .into_iter()
                .collect::<Vec<_>>()
                .into(),
        };
        let model = Model::new(network, &weights, &recipe, library(), None).map_err(wrong)?;
        let (plan, network) = (&model.plan, &model.network);
        let step = &plan.steps[0];
        let mut wanted = entry.clone();
        wanted.restrictions.work_group = group;
        let admitted = wanted.admits(step.problem, Some(&limits(&self.device)));
        admitted.map_err(|e| Trouble::Refused(e.join("; ")))?;
        let program = self.program(entry, Activation::None, precision, group, &step.options)?;

        let mut random = self.random();
        let mut input: Vec<f32> = (0..network.width * plan.padded_batch)
            .map(|_| random.float())
            .collect();
        // An infinity or NaN, which every layer must pass on.
        input[network.width * (records - 1)] = if canaries {
            f32::NEG_INFINITY
        } else {
            f32::NAN
        };
        const UNTOUCHED: u32 = 0x5A5A_5A5A;
        let queue = self.queue.clone();
        let (starts, bytes) = places(&plan.constants);
        let mut constants = vec![0u8; bytes];
        for (start, values) in starts
            .into_iter()
            .zip(model.constants.iter().map(model::bytes))
        {
            constants[start..start + values.len()].copy_from_slice(values);
        }
        let mut all = vec![("a", Guarded::new(&queue, "a", &constants, canaries)?)];
        // As the planner makes them: the input, what is between layers, scores, classes.
        let names = entry.parameters().iter().skip(1).map(|p| p.name);
        for (name, b) in names.zip(plan.buffers.iter()) {
            let len = b.len(plan.padded_batch);
            let guarded = match b.role {
                BufferRole::Input => {
                    let (size, padded) = (
                        (network.width, plan.padded_batch),
                        (b.padded_rows, plan.padded_batch),
                    );
                    let rows = Layout::C.unpack(&input, size, size);
                    Guarded::new(
                        &queue,
                        name,
                        &b.layout.pack(&rows, size, padded, 0.0),
                        canaries,
                    )?
                }
                BufferRole::Classes => Guarded::new(&queue, name, &vec![UNTOUCHED; len], canaries)?,
                _ => Guarded::new(&queue, name, &vec![f32::NAN; len], canaries)?,
            };
            all.push((name, guarded));
        }
        let argument = |(arg, bytes): (&Arg, usize)| {
            let at = if let Arg::Buffer(i) = *arg { i + 1 } else { 0 };
            Argument::Buffer {
                buffer: &all[at].1.view,
                bytes,
            }
        };
        let arguments: Vec<_> = step
            .args
            .iter()
            .zip(touched(plan, step, library()))
            .map(argument)
            .collect();
        let kernel = self.bound(program.as_ref(), entry, &arguments, group)?;
        let global = [step.global.0.items(records), step.global.1.items(records)];
        let local = step.local.map(|(y, x)| [y, x]);
        if !self.launch(kernel.as_ref(), &global, local.as_ref().map(|l| &l[..]))? {
            self.take_in_scores(network, &weights, &input[..network.width * records]);
            return Ok(0.0);
        }

        for (name, buffer) in &all {
            if !buffer.intact()? {
                return Err(wrong(format!("wrote outside {name}")));
            }
        }
        let at = |name: &str| all.iter().position(|b| b.0 == name);
        if let Some(i) = at("hidden") {
            let hidden = all[i]
                .1
                .read::<f32>(plan.buffers[i - 1].len(plan.padded_batch))?;
            if !hidden[plan.buffers[i - 1].len(plan.columns(records))..]
                .iter()
                .all(|v| v.is_nan())
            {
                return Err(wrong(
                    "wrote between layers for records that were not in the launch".into(),
                ));
            }
        }
        let of_scores = at("r").ok_or_else(|| wrong("has no scores".into()))?;
        let scores = &plan.buffers[of_scores - 1];
        let (outputs, columns) = (network.outputs(), plan.padded_batch);
        let found = all[of_scores].1.read::<f32>(scores.len(columns))?;
        let found = scores
            .layout
            .unpack(&found, (outputs, columns), (scores.padded_rows, columns));
        let classes = match at("classes") {
            Some(i) => all[i].1.read::<u32>(columns)?,
            None => Vec::new(),
        };
        let mut worst = 0.0f64;
        for n in 0..columns {
            let column: Vec<f32> = (0..outputs).map(|i| found[i * columns + n]).collect();
            let refused = !column.iter().all(|v| v.is_finite());
            let values: Vec<f64> = column.iter().map(|&v| v.into()).collect();
            let mut class = if refused {
                NAN_CLASS
            } else {
                crate::ir::network::argmax(&values)
            };
            if n >= plan.columns(records) {
                class = UNTOUCHED;
                if !column.iter().all(|v| v.is_nan()) {
                    return Err(wrong(format!(
                        "scores of record {n}, which was not in the launch"
                    )));
                }
            } else if (one_nan || n == records - 1) != refused {
                return Err(wrong(format!("record {n} has the scores {column:?}")));
            } else if !refused {
                let raw = &input[n * network.width..][..network.width];
                let raw: Vec<f64> = raw.iter().map(|&v| v.into()).collect();
                let expected = network.scores(&weights, &raw);
                worst = worst.max(crate::ops::bound::excess(&expected, column.into_iter()));
            }
            if classes.get(n).is_some_and(|&c| c != class) {
                return Err(wrong(format!(
                    "record {n} has class {}, not {class}",
                    classes[n]
                )));
            }
        }
        if worst > 1.0 {
            return Err(wrong(format!("an error of {worst:.2} times the bound")));
        }
        Ok(worst)
    }

    /// Times a kernel on fresh inputs, after checking sampled rows of its first result. Where that
    /// launch takes longer than `longest` there are no others.
    pub(crate) fn time(
        &mut self,
        entry: &Entry,
        group: Group,
        real: Problem,
        (repeats, longest): (usize, Option<Duration>),
    ) -> Result<(LaunchTimes, f64), Trouble> {
        if nodes::of_image(entry.operation) {
            return Err(Trouble::Refused(
                "works on images: bench network times it".into(),
            ));
        }
        if takes_any_layouts(entry) {
            return self.time(&laid_out(entry, "R", "C"), group, real, (repeats, longest));
        }
        let factor = if entry.restrictions.scaled {
            (1.0, 0.1)
        } else {
            (1.0, 0.0)
        };
        let activation = if entry.fuses() {
            Activation::Relu
        } else {
            Activation::None
        };
        // A sweep over work-groups and the next Sobel filter have the same inputs: making them
        // takes longer than many a launch.
        let last = self.last.take().filter(|(operation, d)| {
            let same = (*operation, d.real, d.alpha, d.beta);
            let kept = matches!(entry.operation, Operation::Matmul | Operation::Sobel);
            kept && same == (entry.operation, real, factor.0, factor.1)
        });
        let data = last.map_or_else(|| self.data(entry, real, factor), |(_, data)| data);
        let setup = self.setup(entry, activation, group, &data, (1, false))?;
        let Some(kernel) = &setup.kernel else {
            return Ok(Default::default());
        };
        let mut times = LaunchTimes::default();
        let mut event = Event::new();
        let mut error = 0.0;
        for turn in 0..=repeats {
            self.queue.launch(
                kernel,
                &setup.global,
                setup.local.as_deref(),
                Some(&mut event),
            )?;
            event.wait()?;
            let t = event.times()?;
            let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
            if turn == 0 {
                times.first = us(t.start, t.end);
                error = verify(entry, activation, &setup, &data)?;
                if longest.is_some_and(|longest| times.first > longest.as_secs_f64() * 1e6) {
                    return Err(Trouble::Slow(times.first));
                }
            } else if turn > 1 && stopped() {
                break;
            } else {
                times.run.push(us(t.start, t.end));
                times.queued.push(us(t.queued, t.submit));
                times.wait.push(us(t.submit, t.start));
            }
        }
        self.last = Some((entry.operation, data));
        Ok((times, error))
    }

    /// The largest work-group that the device gives a kernel.
    pub(crate) fn largest_group(&mut self, entry: &Entry) -> Option<usize> {
        let program = self.program(
            entry,
            Activation::None,
            Precision::F32,
            entry.restrictions.work_group,
            &StepOptions::default(),
        );
        program
            .ok()??
            .kernel(&entry.function)
            .ok()?
            .work_group_limit()
            .ok()
    }

    /// The order in which work-groups of one work-item started, on a `size` × `size` grid.
    pub(crate) fn order(&mut self, entry: &Entry, size: usize) -> Result<Vec<u32>, Trouble> {
        let data = self.data(
            entry,
            Problem {
                h: size,
                w: size,
                l: 0,
            },
            (1.0, 0.0),
        );
        let setup = self.setup(
            entry,
            Activation::None,
            entry.restrictions.work_group,
            &data,
            (1, false),
        )?;
        self.launch(setup.kernel.as_ref(), &setup.global, setup.local.as_deref())?;
        match setup.buffer("r") {
            Some(r) => Ok(r.read(size * size)?),
            None => Ok(Vec::new()),
        }
    }

    /// Seconds of a function on the host, for comparisons in the same run.
    pub(crate) fn host_seconds(work: impl FnOnce()) -> f64 {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    }
}

/// Layouts that a repack is checked from and to: of every depth, with chunks along rows, columns
/// and both.
const REPACKED: [(&str, &str); 8] = [
    ("R", "C"),
    ("C", "R"),
    ("R", "C_4_2_C"),
    ("C_4_2_C", "C_1_16_R"),
    ("C_1_16_R", "R_16_1_C"),
    ("C_16_10_C", "R"),
    ("R_8_8_R_4_4_R_2_2_R", "R_2_4_R"),
    ("C", "C_16_8_R_4_8_C_2_2_R"),
];

/// Those of kernels of few records: with panels of either kind of plan, and where rows are not
/// equally far apart.
const OF_FEW: [(&str, &str); 3] = [("C", "R"), ("C_1_16_R", "C_1_16_R"), ("C_16_10_C", "C")];

/// Whether a kernel takes layouts that its entry does not name.
fn takes_any_layouts(entry: &Entry) -> bool {
    let any = entry
        .restrictions
        .b
        .as_ref()
        .is_some_and(|b| b.representation.is_none());
    any && (entry.operation == Operation::Repack || entry.of_few())
}

/// A repack with layouts in place of any; a kernel of few records has weights in panels, too, that
/// go with the first.
fn laid_out(entry: &Entry, from: &str, to: &str) -> Entry {
    let mut entry = entry.clone();
    let r = &mut entry.restrictions;
    for (operand, layout) in [(&mut r.b, from), (&mut r.r, to)] {
        operand
            .iter_mut()
            .for_each(|o| o.representation = Layout::parse(layout).ok());
    }
    let panels = match from {
        "C" => Some((140, "R_140_1_C")),
        "C_1_16_R" => Some((16, "R_16_1_C")),
        _ => None,
    };
    if let (Some(a), Some((rows, layout))) = (r.a.as_mut().filter(|a| a.panels && !a.image), panels)
    {
        (a.row_align, a.representation) = (rows, Layout::parse(layout).ok());
    }
    entry
}

/// Rows of the first of two layers, in checks of problem `p`; 0 where there is one.
fn middle(operation: Operation, p: Problem) -> usize {
    match operation {
        Operation::Pair => (p.l + p.h) / 2 + 3,
        Operation::ReducePair => p.l,
        _ => 0,
    }
}

/// Parts that a `reducepair` adds up, in checks with so many rows of each.
fn parts_before(rows: usize) -> usize {
    1 + rows / 4 % 13
}

/// Rows of a Sobel result that are compared: all, of a large image eight bands from its first row
/// to its last.
fn bands(real: Problem) -> Vec<std::ops::Range<usize>> {
    const ROWS: usize = 64;
    if real.h * real.w <= 1 << 22 || real.h <= 8 * ROWS {
        return std::iter::once(0..real.h).collect();
    }
    (0..8)
        .map(|i| i * (real.h - ROWS) / 7)
        .map(|start| start..start + ROWS)
        .collect()
}

/// What the borders of a Sobel result hold before and after.
const BORDER: u8 = 0x5A;

/// Compares results with float64 and looks at the canaries; gives the largest error in units of the
/// bound.
fn verify(
    entry: &Entry,
    activation: Activation,
    setup: &Setup,
    data: &Data,
) -> Result<f64, Trouble> {
    let real = data.real;
    for (name, buffer) in &setup.buffers {
        if !buffer.intact()? {
            return Err(Trouble::Wrong(format!(
                "wrote outside {name} at {}",
                shape(real)
            )));
        }
    }
    let wrong = |what: String| Err(Trouble::Wrong(format!("{what} at {}", shape(real))));
    let read_r = || -> Result<Vec<f32>, Trouble> {
        let Some(r) = setup.buffer("r") else {
            return Ok(Vec::new());
        };
        let packed = r.read::<f32>(setup.padded.h * setup.padded.w)?;
        let layout = entry
            .restrictions
            .r
            .as_ref()
            .and_then(|o| o.representation.clone())
            .unwrap_or(Layout::R);
        Ok(layout.unpack(&packed, (real.h, real.w), (setup.padded.h, setup.padded.w)))
    };
    // What the sums of parts are multiplied with.
    let scale = |row: usize| {
        if data.weights == Precision::I8 {
            power(row)
        } else {
            1.0
        }
    };
    let excess = match entry.operation {
        Operation::Matmul | Operation::Affine => {
            let bias = (entry.operation == Operation::Affine).then_some(&*data.bias);
            let product = reference::Product {
                real,
                a: &data.a,
                b: &data.b,
                c: &data.r,
                bias,
                alpha: data.alpha,
                beta: data.beta,
                activation,
            };
            product.excess(&read_r()?)
        }
        // The parts are the rows of a product with ones.
        Operation::Reduce => {
            let product = reference::Product {
                real: Problem {
                    h: 1,
                    w: real.h * real.w,
                    l: real.l,
                },
                a: &vec![1.0; real.l],
                b: &data
                    .b
                    .iter()
                    .enumerate()
                    .map(|(i, x)| x * scale(i / real.w % real.h))
                    .collect::<Vec<_>>(),
                c: &data
                    .bias
                    .iter()
                    .flat_map(|&x| vec![x; real.w])
                    .collect::<Vec<_>>(),
                bias: None,
                alpha: 1.0,
                beta: 1.0,
                activation,
            };
            product.excess(&read_r()?)
        }
        Operation::Pair | Operation::ReducePair => {
            let (found, m, ones) = (read_r()?, data.middle, vec![1.0; parts_before(real.l)]);
            let dot = |a: &[f32], b: &dyn Fn(usize) -> f64| -> f64 {
                a.iter()
                    .enumerate()
                    .map(|(i, &x)| f64::from(x) * b(i))
                    .sum()
            };
            let column = |c: usize| -> f64 {
                let first: Vec<f64> = (0..m)
                    .map(|i| {
                        let x = match data.a.get(i * real.l..(i + 1) * real.l) {
                            Some(row) => dot(row, &|k| f64::from(data.b[k * real.w + c])),
                            // The parts of the sums, as products with ones.
                            None => {
                                f64::from(scale(i))
                                    * dot(&ones, &|k| f64::from(data.b[(k * m + i) * real.w + c]))
                            }
                        };
                        activation.apply(x + f64::from(data.bias[i]))
                    })
                    .collect();
                let scores: Vec<f64> = (0..real.h)
                    .map(|i| {
                        dot(&data.second.0[i * m..][..m], &|k| first[k])
                            + f64::from(data.second.1[i])
                    })
                    .collect();
                crate::ops::bound::excess(&scores, (0..real.h).map(|i| found[i * real.w + c]))
            };
            let finite = |c: &usize| {
                data.b
                    .iter()
                    .skip(*c)
                    .step_by(real.w)
                    .all(|v| v.is_finite())
            };
            let (finite, overflowed): (Vec<usize>, Vec<usize>) = (0..real.w).partition(finite);
            let scores = |c: usize| found.iter().skip(c).step_by(real.w);
            let lost = overflowed
                .into_iter()
                .flat_map(scores)
                .map(|&v| reference::lost(v));
            finite
                .into_iter()
                .map(column)
                .chain(lost)
                .fold(0.0, f64::max)
        }
        // Checked as a network.
        Operation::Layers
        | Operation::Convolution
        | Operation::Pool
        | Operation::Scale
        | Operation::Combine
        | Operation::Softmax
        | Operation::Gather => 0.0,
        Operation::Bias => {
            let exact = |i: usize| f64::from(data.r[i]) + f64::from(data.bias[i / real.w]);
            reference::elementwise(&read_r()?, exact, 2f64.powi(-24))
        }
        Operation::Sigmoid | Operation::Relu | Operation::Activation => {
            let activation = entry.operation.activation().unwrap_or(activation);
            let exact = |i: usize| match data.r[i] {
                x if x.is_finite() => activation.apply(f64::from(x)),
                _ => f64::NAN,
            };
            reference::elementwise(&read_r()?, exact, 2f64.powi(-20))
        }
        // Every element as it was, and zeros behind them: padding must be finite.
        Operation::Repack => {
            let Problem { h, w, .. } = setup.padded;
            let found = setup
                .buffer("r")
                .map(|r| r.read::<f32>(h * w))
                .transpose()?
                .unwrap_or_default();
            let expected = entry.layout(&entry.operation.parameters()[1]).pack(
                &data.b,
                (real.h, real.w),
                (h, w),
                0.0,
            );
            // Columns of padding hold what those of b do, zeros.
            if let Some(i) = (0..h * w).find(|&i| found[i].to_bits() != expected[i].to_bits()) {
                return wrong(format!("element {i} is {}, not {}", found[i], expected[i]));
            }
            0.0
        }
        Operation::ArgMax => {
            let classes = setup
                .buffer("classes")
                .map(|c| c.read::<u32>(real.w))
                .transpose()?
                .unwrap_or_default();
            for (column, &class) in classes.iter().enumerate() {
                let values: Vec<f64> = (0..real.l)
                    .map(|i| f64::from(data.b[i * real.w + column]))
                    .collect();
                let finite = values.iter().all(|v| v.is_finite());
                let expected = if !finite {
                    NAN_CLASS
                } else {
                    crate::ir::network::argmax(&values)
                };
                if class != expected {
                    return wrong(format!("column {column} has class {class}, not {expected}"));
                }
            }
            0.0
        }
        Operation::Sobel => {
            for (name, horizontal) in [("dx", true), ("dy", false)] {
                let found = setup
                    .buffer(name)
                    .map(|b| b.read::<u8>(real.h * real.w))
                    .transpose()?
                    .unwrap_or_default();
                for band in bands(real) {
                    let (first, last) = (band.start * real.w, band.end * real.w);
                    let image = &data.image[first..last];
                    let expected = reference::sobel(image, band.len(), real.w, horizontal, BORDER);
                    // The rows at the ends of a band inside the image are no border there.
                    let from = if band.start == 0 { 0 } else { real.w };
                    let to = expected.len() - if band.end == real.h { 0 } else { real.w };
                    if let Some(i) = (from..to).find(|&i| found[first + i] != expected[i]) {
                        let (y, x) = ((first + i) / real.w, i % real.w);
                        return wrong(format!(
                            "{name}({y}, {x}) is {}, not {}",
                            found[first + i] as i8,
                            expected[i] as i8
                        ));
                    }
                }
            }
            0.0
        }
        Operation::Probe => {
            let copy = entry.restrictions.arglist.is_empty();
            reference::elementwise(
                &read_r()?,
                |i| {
                    if copy {
                        data.a[i].into()
                    } else {
                        reference::probe(data.a[i], real.l)
                    }
                },
                1e-5,
            )
        }
        Operation::Order => {
            let mut seen = setup
                .buffer("r")
                .map(|r| r.read::<u32>(real.h * real.w))
                .transpose()?
                .unwrap_or_default();
            seen.sort_unstable();
            if !seen.iter().zip(1..).all(|(&found, n)| found == n) {
                return wrong("the numbers are not 1 to the number of work-items".into());
            }
            0.0
        }
    };
    match excess {
        e if e <= 1.0 => Ok(excess),
        e if e.is_finite() => wrong(format!("an error of {excess:.2} times the bound")),
        _ => wrong("NaN, or an overflow that was lost,".into()),
    }
}

/// `17×9 (5)`
pub(crate) fn shape(p: Problem) -> String {
    if p.l == 0 {
        format!("{}×{}", p.h, p.w)
    } else {
        format!("{}×{}, common dimension {}", p.h, p.w, p.l)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cl::{ClLibrary, devices};

    /// The SDK's inputs and result, as its page prints them.
    #[rustfmt::skip]
    const A: [f32; 16] = [
        0.852691, 0.004421, -0.103067, -0.191788,
        -0.23658, 0.0336409, 0.15781, 0.582199,
        -0.0814268, -0.857794, -0.63804, -0.0184786,
        0.793476, 0.459307, 0.955647, -0.306809,
    ];
    #[rustfmt::skip]
    const B: [f32; 16] = [
        0.0529994, 0.507535, -0.55821, -0.849519,
        -0.929501, 0.914186, 0.464341, -0.652125,
        0.409218, -0.125776, -0.273086, 0.731335,
        -0.371732, 0.43648, -0.8001, 0.233541,
    ];
    #[rustfmt::skip]
    const C: [f32; 16] = [
        -0.380438, -0.188046, 0.665832, -0.503661,
        -0.262456, -0.278552, -0.5179, -0.965873,
        0.459781, 0.720241, -0.22676, -0.719225,
        -0.277435, -0.126954, -0.0564545, -0.142268,
    ];
    #[rustfmt::skip]
    const RESULT: [f32; 16] = [
        0.0321557, 0.347259, -0.225749, -0.897793,
        -0.221897, 0.117096, -0.413021, 0.333833,
        0.584754, -0.681301, -0.186507, 0.0857027,
        0.0925018, 0.5558, -0.250792, -0.360579,
    ];

    /// `alpha`·A·B + `beta`·`c` by `entry` on the first device, without padding.
    fn product(lab: &mut Lab, entry: &Entry, c: [f32; 16], alpha: f32, beta: f32) -> Vec<f32> {
        let real = Problem { h: 4, w: 4, l: 4 };
        let mut data = lab.data(entry, real, (alpha, beta));
        (data.a, data.b, data.r) = (A.to_vec(), B.to_vec(), c.to_vec());
        let group = entry.restrictions.work_group;
        let setup = lab
            .setup(entry, Activation::None, group, &data, (1, true))
            .unwrap();
        assert!(
            lab.launch(setup.kernel.as_ref(), &setup.global, setup.local.as_deref())
                .unwrap()
        );
        verify(entry, Activation::None, &setup, &data).unwrap();
        let Problem { h, w, .. } = setup.padded;
        let r = setup.buffer("r").unwrap().read::<f32>(h * w).unwrap();
        let layout = entry
            .restrictions
            .r
            .as_ref()
            .and_then(|o| o.representation.clone());
        layout.unwrap().unpack(&r, (4, 4), (h, w))
    }

    /// The SDK's worked example, and that with beta = 0 the result's old contents are not read, by
    /// every kernel that has alpha and beta.
    #[test]
    fn the_worked_example_of_the_sdk() {
        let all = devices(ClLibrary::open().expect("the tests need OpenCL")).unwrap();
        let device = all
            .devices
            .into_iter()
            .next()
            .expect("the tests need an OpenCL device");
        let mut lab = Lab::new(&device, Sources::default()).unwrap();
        let scaled: Vec<&Entry> = library()
            .kernels
            .iter()
            .filter(|k| k.restrictions.scaled)
            .collect();
        assert!(scaled.iter().any(|k| k.codename == "matmul_sgemm"));
        for entry in scaled {
            let close = |found: &[f32], expected: &dyn Fn(usize) -> f32| {
                for (i, &x) in found.iter().enumerate() {
                    let (e, name) = (expected(i), &entry.codename);
                    assert!((x - e).abs() <= 1e-6, "{name}: element {i} is {x}, not {e}");
                }
            };
            close(&product(&mut lab, entry, C, 1.0, 0.1), &|i| RESULT[i]);
            close(&product(&mut lab, entry, [f32::NAN; 16], 1.0, 0.0), &|i| {
                RESULT[i] - 0.1 * C[i]
            });
        }
    }
}
