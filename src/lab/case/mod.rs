//! Checks one kernel on one problem against float64, and times it on the device.

mod check;
mod guarded;
mod inputs;
mod judge;
mod networks;
pub(crate) mod nodes;
mod operands;
mod problems;
mod setup;
#[cfg(test)]
mod tests;

use super::live::stopped;
use super::reference::{self, Random};
use crate::cl::{Argument, BoundKernel, ClError, Context, Device, Event, Program, Queue};
use crate::engine::opencl::limits;
use crate::engine::sources::Sources;
use crate::error::Error;
use crate::ir::network::{Activation, Network, Precision};
use crate::ir::options::StepOptions;
use crate::ir::plan::Arg;
use crate::registry::{EngineKind, Kernel as Entry, Operation, PlanRecipe, Problem};
use inputs::InputHash;
use operands::Operands;
use problems::{takes_any_layouts, with_layouts};
use setup::KernelRun;
use std::borrow::Cow;
use std::time::Duration;

pub(crate) use judge::shape;

/// The work-group of a launch, as rows and columns of work-items. With `None` the driver chooses
/// it.
pub(crate) type WorkGroup = Option<(usize, usize)>;

/// A device under test, with a queue that measures times and the programs that were compiled so
/// far.
pub(crate) struct Lab {
    pub(crate) device: Device,
    queue: Queue,
    /// True if the device itself reports every access outside a buffer.
    pub(crate) simulated: bool,
    sources: Sources,
    /// Compiled programs. Each key is the source's path followed by the compiler's options.
    programs: Vec<(String, Program)>,
    random: Random,
    /// The operation and the operands of the kernel that was timed last. The next kernel may use
    /// them again.
    last: Option<(Operation, Operands)>,
    /// The hash of all data that a check would hand to the device. It is `Some` while checks only
    /// hash their inputs and launch nothing.
    inputs: Option<InputHash>,
}

/// The reason why the lab did not run a kernel, or why its result or time does not count.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The device cannot run the kernel. The text names the restrictions that fail.
    Refused(String),
    /// The kernel's result is wrong. The text says how it differs from the expected one.
    Wrong(String),
    /// The driver cannot compile or run the kernel.
    Driver(ClError),
    /// Something else failed: the source cannot be read, or it has other parameters than expected.
    Failed(Error),
    /// The first launch took this many microseconds, which is more than [`Timing::longest`]. The
    /// kernel was not launched again.
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
    /// Microseconds that the first launch ran on the device.
    pub(crate) first: f64,
    /// For each launch after the first, the microseconds that it ran on the device.
    pub(crate) run: Vec<f64>,
    /// For each launch after the first, the microseconds from its enqueue to its submission to the
    /// device.
    pub(crate) queued: Vec<f64>,
    /// For each launch after the first, the microseconds from its submission to its start on the
    /// device.
    pub(crate) wait: Vec<f64>,
}

/// The device times of a kernel's launches, and the largest error of the first launch's result in
/// units of the error bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimedCase {
    pub(crate) times: LaunchTimes,
    pub(crate) error: f64,
}

/// How often a kernel is timed.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    /// The number of timed launches after the first launch.
    pub(crate) repeats: usize,
    /// The longest time that the first launch may take. A slower kernel is not launched again.
    /// `None` means no limit.
    pub(crate) longest: Option<Duration>,
}

impl Lab {
    /// Opens `device` for benchmarks.
    pub(crate) fn new(device: &Device, sources: Sources) -> Result<Lab, Error> {
        let queue = Queue::new(&Context::new(device)?, true)?;
        let random = reference::fresh();
        // Oclgrind is a simulator. A check takes minutes there, but every access outside a buffer
        // is reported.
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

    /// Returns a hash of all data that the checks of `entry` hand to the device, and of the scores
    /// that they expect. Nothing is compiled or launched. The random inputs are the same in every
    /// call.
    pub(crate) fn inputs(
        &mut self,
        entry: &Entry,
        groups: &[WorkGroup],
    ) -> Result<String, Trouble> {
        self.random = Random::new(1);
        self.inputs = Some(InputHash::default());
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

    /// Adds bytes to the hash of inputs. Does nothing when kernels are launched instead of hashed.
    fn take_in(&mut self, bytes: &[u8]) {
        self.inputs.iter_mut().for_each(|inputs| inputs.add(bytes));
    }

    /// Adds the scores that a network has for `records` to the hash of inputs.
    fn take_in_scores(&mut self, network: &Network, weights: &[Vec<f32>], records: &[f32]) {
        for record in records.chunks_exact(network.width) {
            let raw: Vec<f64> = record.iter().map(|&v| v.into()).collect();
            for score in network.scores(weights, &raw) {
                self.take_in(&score.to_ne_bytes());
            }
        }
    }

    fn random(&mut self) -> Random {
        self.random.split()
    }

    /// Refuses a problem that `entry`'s restrictions, with this work-group, do not allow on this
    /// device.
    fn admit(&self, entry: &Entry, group: WorkGroup, problem: Problem) -> Result<(), Trouble> {
        let mut wanted = entry.clone();
        wanted.restrictions.work_group = group;
        wanted
            .admits(problem, Some(&limits(&self.device)))
            .map_err(|failed| Trouble::Refused(failed.join("; ")))
    }

    /// Returns a kernel's compiled program. Each set of options is compiled once. `None` if the
    /// inputs are only hashed.
    fn program(
        &mut self,
        entry: &Entry,
        activation: Activation,
        weights: Precision,
        group: WorkGroup,
        step: &StepOptions,
    ) -> Result<Option<Program>, Trouble> {
        let source = entry.source.as_deref().unwrap_or_default();
        let local = group.map(|g| entry.restrictions.dimensions(g));
        let options = entry.options(activation, weights, local, step);
        let key = format!("{source} {options}");
        if let Some((_, program)) = self.programs.iter().find(|(known, _)| *known == key) {
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

    /// Returns a kernel with its arguments set. `None` if the inputs are only hashed. Refuses a
    /// work-group that is too large for the compiled kernel.
    fn bound(
        &mut self,
        program: Option<&Program>,
        entry: &Entry,
        arguments: &[Argument],
        group: WorkGroup,
    ) -> Result<Option<BoundKernel>, Trouble> {
        let Some(program) = program else {
            self.take_in(entry.function.as_bytes());
            if let Some(inputs) = &mut self.inputs {
                arguments.iter().try_for_each(|a| inputs.add_argument(a))?;
            }
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

    /// Launches a kernel and waits until it is done. If the inputs are only hashed, it launches
    /// nothing and returns false, since there is no result to verify.
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

    /// Times a kernel on random inputs. It also checks the result of the first launch, of a large
    /// result only some rows. Refuses the kernels that [`nodes`] checks.
    pub(crate) fn time(
        &mut self,
        entry: &Entry,
        group: WorkGroup,
        real: Problem,
        timing: Timing,
    ) -> Result<TimedCase, Trouble> {
        if nodes::of_image(entry.operation) {
            return Err(Trouble::Refused(
                "works on images: bench network times it".into(),
            ));
        }
        if takes_any_layouts(entry) {
            return self.time(&with_layouts(entry, "R", "C"), group, real, timing);
        }
        let beta = if entry.restrictions.scaled { 0.1 } else { 0.0 };
        // The next work-group of a sweep and the next Sobel filter use the same inputs again.
        // Drawing new inputs would take longer than many launches.
        let last = self.last.take().filter(|(operation, d)| {
            let kept = matches!(entry.operation, Operation::Matmul | Operation::Sobel);
            let same = (*operation, d.real, d.alpha, d.beta);
            kept && same == (entry.operation, real, 1.0, beta)
        });
        let data = match last {
            Some((_, data)) => data,
            None => Operands::draw(&mut self.random(), entry, real, (1.0, beta)),
        };
        let run = KernelRun {
            entry,
            activation: match entry.fuses() {
                true => Activation::Relu,
                false => Activation::None,
            },
            group,
            parts: 1,
            canaries: false,
        };
        let timed = self.time_run(&run, &data, timing)?;
        self.last = Some((entry.operation, data));
        Ok(timed)
    }

    fn time_run(
        &mut self,
        run: &KernelRun,
        data: &Operands,
        timing: Timing,
    ) -> Result<TimedCase, Trouble> {
        let setup = self.setup(run, data)?;
        let mut timed = TimedCase::default();
        let Some(kernel) = &setup.kernel else {
            return Ok(timed);
        };
        let mut event = Event::new();
        for turn in 0..=timing.repeats {
            let local = setup.local.as_deref();
            self.queue
                .launch(kernel, &setup.global, local, Some(&mut event))?;
            event.wait()?;
            let t = event.times()?;
            let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
            let times = &mut timed.times;
            if turn == 0 {
                times.first = us(t.start, t.end);
                timed.error = judge::judge(run, &setup, data)?;
                let longest = timing.longest.map(|longest| longest.as_secs_f64() * 1e6);
                if longest.is_some_and(|longest| times.first > longest) {
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
        Ok(timed)
    }

    /// Returns the largest number of work-items that the device allows in a work-group of a kernel.
    /// `None` if the kernel cannot be compiled.
    pub(crate) fn largest_group(&mut self, entry: &Entry) -> Option<usize> {
        let (group, step) = (entry.restrictions.work_group, StepOptions::default());
        let program = self.program(entry, Activation::None, Precision::F32, group, &step);
        let kernel = program.ok()??.kernel(&entry.function).ok()?;
        kernel.work_group_limit().ok()
    }

    /// Returns the order in which work-groups start, if each has one work-item. The result has a
    /// number for each place of a `size` × `size` grid.
    pub(crate) fn order(&mut self, entry: &Entry, size: usize) -> Result<Vec<u32>, Trouble> {
        let real = Problem {
            h: size,
            w: size,
            l: 0,
        };
        let data = Operands::draw(&mut self.random(), entry, real, (1.0, 0.0));
        let run = KernelRun {
            entry,
            activation: Activation::None,
            group: entry.restrictions.work_group,
            parts: 1,
            canaries: false,
        };
        let setup = self.setup(&run, &data)?;
        self.run(&setup)?;
        match setup.buffer("r") {
            Some(r) => Ok(r.read(size * size)?),
            None => Ok(Vec::new()),
        }
    }
}

/// Returns a kernel's argument that is passed by value. `None` for buffers and constants.
fn scalar(arg: &Arg) -> Option<Argument<'static>> {
    match *arg {
        Arg::Size(n) => Some(Argument::U32(n)),
        Arg::Scalar(x) => Some(Argument::F32(x)),
        Arg::Pair((x, y)) => Some(Argument::F32x2([x, y])),
        Arg::Geometry(geometry) => Some(Argument::U32x16(geometry.words())),
        Arg::Moved(moved) => Some(Argument::U32x16(moved.words())),
        Arg::Product(product) => Some(Argument::U32x16(product.words())),
        Arg::Buffer(_) | Arg::Constant(_) | Arg::Constants => None,
    }
}

/// Returns the recipe of a plan from these kernels, in which `entry` runs with this work-group.
fn recipe(
    entry: &Entry,
    group: WorkGroup,
    batch: usize,
    kernels: Vec<Cow<'static, str>>,
) -> PlanRecipe {
    let groups: Vec<_> = group
        .map(|group| (entry.codename.clone(), group))
        .into_iter()
        .collect();
    PlanRecipe {
        without_lab: "".into(),
        name: "check".into(),
        about: "".into(),
        engine: EngineKind::OpenCl,
        batch,
        few: None,
        kernels: kernels.into(),
        groups: groups.into(),
    }
}
