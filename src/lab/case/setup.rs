//! The buffers, arguments and index ranges of one launch of a kernel.

use super::guarded::{CANARY, Guarded};
use super::operands::{Contents, LaunchSizes, Operands};
use super::{Lab, Trouble, WorkGroup, scalar};
use crate::cl::{Argument, BoundKernel, Image2d};
use crate::engine::model;
use crate::ir::layout::Order;
use crate::ir::network::Activation;
use crate::ir::options::{Places, StepOptions};
use crate::ir::plan::Arg;
use crate::planner::bind::{Call, bind};
use crate::registry::{Kernel as Entry, Operation, Parameter, Problem};

/// A kernel with the options of one launch of it.
#[derive(Clone, Copy)]
pub(super) struct KernelRun<'a> {
    pub(super) entry: &'a Entry,
    pub(super) activation: Activation,
    pub(super) group: WorkGroup,
    /// The number of parts that the common dimension is split into.
    pub(super) parts: usize,
    /// True if each buffer lies between canaries, guard areas that show writes outside of it.
    pub(super) canaries: bool,
}

/// A kernel with its arguments, buffers and index ranges, ready to be launched.
pub(super) struct Setup {
    /// The kernel with its arguments set. `None` if the inputs are only hashed and nothing is
    /// launched.
    pub(super) kernel: Option<BoundKernel>,
    pub(super) buffers: Vec<(&'static str, Guarded)>,
    pub(super) global: Vec<usize>,
    pub(super) local: Option<Vec<usize>>,
    pub(super) padded: Problem,
    _image: Option<Image2d>,
}

impl Setup {
    pub(super) fn buffer(&self, name: &str) -> Option<&Guarded> {
        let mut buffers = self.buffers.iter();
        buffers.find_map(|(n, buffer)| (*n == name).then_some(buffer))
    }
}

impl Lab {
    /// Creates the buffers and the kernel of a run on `data`.
    pub(super) fn setup(&mut self, run: &KernelRun, data: &Operands) -> Result<Setup, Trouble> {
        let KernelRun { entry, group, .. } = *run;
        let padded = entry.pad(data.real, group);
        self.admit(entry, group, padded)?;
        self.allow(padded)?;
        let options = layout_options(entry, padded);
        let program = self.program(entry, run.activation, data.weights, group, &options)?;
        let sizes = LaunchSizes::new(entry, group, data, run.parts);
        let activation = entry.operation.activation().unwrap_or(run.activation);
        let call = Call {
            kernel: entry,
            group,
            sizes: sizes.padded,
            factors: (data.alpha, data.beta),
            params: activation.parameters(),
            value: 0.0,
            granule: padded.w,
        };
        let mut operands: Vec<&'static Parameter> = Vec::new();
        let launch = bind(&call, |operand| {
            operands.push(operand);
            Arg::Buffer(operands.len() - 1)
        });
        let (mut buffers, mut image) = (Vec::new(), None);
        let queue = self.queue.clone();
        for &operand in &operands {
            let contents = data.contents(entry, operand, &sizes, run.parts);
            if let (true, Contents::Numbers(values)) = (entry.reads_image(operand), &contents) {
                self.take_in(contents.bytes());
                // A pixel holds four elements that are neighbours in the operand's layout.
                let (rows, cols) = sizes.padded.of_operand(entry.operation, operand);
                let size = match entry.layout(operand).outer {
                    Order::R => (cols / 4, rows),
                    _ => (rows / 4, cols),
                };
                image = Some(model::image(&queue, operand.name, size, values)?);
            } else {
                let buffer = Guarded::new(&queue, operand.name, contents.bytes(), run.canaries)?;
                buffers.push((operand.name, buffer));
            }
        }
        let argument = |arg: &Arg| match *arg {
            Arg::Buffer(i) => {
                let operand = operands[i];
                match buffers.iter().find(|(name, _)| *name == operand.name) {
                    Some((_, buffer)) => {
                        Some(buffer.argument(sizes.touched(entry, operand, data.weights)))
                    }
                    None => image.as_ref().map(Argument::Image),
                }
            }
            ref number => scalar(number),
        };
        let arguments: Vec<_> = launch.args.iter().filter_map(argument).collect();
        let kernel = self.bound(program.as_ref(), entry, &arguments, group)?;
        let (first, second) = launch.global;
        Ok(Setup {
            kernel,
            buffers,
            global: vec![first.items(padded.w), second.items(padded.w)],
            local: launch.local.map(|(first, second)| vec![first, second]),
            padded,
            _image: image,
        })
    }

    /// Launches a kernel that `setup` prepared. Returns false without a launch if the inputs are
    /// only hashed.
    pub(super) fn run(&mut self, setup: &Setup) -> Result<bool, Trouble> {
        self.launch(setup.kernel.as_ref(), &setup.global, setup.local.as_deref())
    }

    /// Refuses a problem whose largest buffer exceeds the device's limit for a buffer.
    fn allow(&self, p: Problem) -> Result<(), Trouble> {
        let largest = (p.h * p.w).max(p.h * p.l).max(p.l * p.w) as u64 * 4;
        let most = self.device.max_alloc;
        if largest + 2 * CANARY as u64 > most {
            return Err(Trouble::Refused(format!(
                "a buffer of {largest} bytes, the device allows {most}"
            )));
        }
        Ok(())
    }
}

/// Returns the compiler's options that tell a kernel its layouts, if the kernel takes any layout.
fn layout_options(entry: &Entry, padded: Problem) -> StepOptions {
    let levels = |b, r| Places::Levels {
        from: entry.layout(b),
        to: entry.layout(r),
    };
    let parameters = entry.operation.parameters();
    let mut options = StepOptions {
        places: match (entry.operation, parameters) {
            (Operation::Repack, [b, r]) => levels(b, r),
            (Operation::Affine, [_, b, _, r]) if entry.of_few() => levels(b, r),
            _ => Places::Fixed,
        },
        ..StepOptions::default()
    };
    if let (true, Some([a, b])) = (entry.of_few(), parameters.first_chunk()) {
        options.row_step = entry.layout(b).row_step(padded.l, padded.w);
        options.panel = entry.layout(a).panel_rows();
        options.kept = (entry.restrictions.keeps > 0).then_some(8);
    }
    options
}
