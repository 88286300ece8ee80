//! The kernel library as data (`kernels/library.json`): kernels with their restrictions, plans and
//! device classes. The names of the keys follow the thesis, §4.4.1 and §8.3.
//!
//! [`Kernel::admits`] checks a kernel against a problem and a device. The build calls it with the
//! sizes of the network. The program calls it again with the limits of the device.

mod arguments;
mod covers;
pub(crate) mod json;
pub(crate) mod mistakes;
mod parameters;
pub(crate) mod read;
mod wire;

use crate::ir::layout::Layout;
use crate::ir::network::Precision;
use crate::ir::op::Activation;
pub(crate) use crate::ir::op::Operation;
use crate::ir::options::StepOptions;
pub(crate) use crate::ir::plan::{EngineKind, Problem};
pub(crate) use arguments::LeadingArgument;
pub(crate) use covers::{Covered, CoveredNode, Covers};
pub(crate) use parameters::{Dim, Holds, Parameter, operands};
use std::borrow::Cow;

impl Operation {
    /// Returns true if kernels of the operation multiply matrices. Their `flop` counts a
    /// multiply-add.
    pub(crate) fn is_product(self) -> bool {
        matches!(
            self,
            Operation::Matmul | Operation::Affine | Operation::Pair | Operation::Layers
        )
    }

    /// Returns the activation that all kernels of the operation compute, if it is always the same
    /// one.
    pub(crate) fn activation(self) -> Option<Activation> {
        match self {
            Operation::Sigmoid => Some(Activation::Sigmoid),
            Operation::Relu => Some(Activation::Relu),
            _ => None,
        }
    }
}

/// A matrix operand of a kernel, with its layout and alignment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operand {
    /// The layout of the operand. `None` if the kernel takes any layout. It then works element by
    /// element, or is compiled for the layouts of each step.
    pub(crate) representation: Option<Layout>,
    /// The number of the operand's rows must be a multiple of this.
    pub(crate) row_align: usize,
    /// The number of the operand's columns must be a multiple of this.
    pub(crate) col_align: usize,
    /// True if the operand is an OpenCL image of RGBA floats. A pixel holds four neighbouring
    /// columns of the row-major matrix `b`, or four rows of a column of the column-major matrix
    /// `a`.
    pub(crate) image: bool,
    /// True if the kernel also reads column-major weights in panels of rows, the layout `R_P_1_C`
    /// with P a multiple of 4. It is compiled for the panels that the plan for full batches has.
    pub(crate) panels: bool,
}

/// Properties of a device or an engine that a kernel needs in order to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Needs {
    /// True if the kernel is part of the host engine.
    pub(crate) host: bool,
    pub(crate) images: bool,
    /// True if the file `common/warp.cl` is put before the kernel's source. It uses the
    /// instructions of a warp if the device's compiler knows them.
    pub(crate) warp: bool,
    /// The bytes of local memory that a work-group needs.
    pub(crate) local_bytes: usize,
}

/// The largest problem that a kernel is for. 0 means no bound. For a kernel of several layers, the
/// sizes are those of the first layer. For a repeated chain they are the maximum over the layers,
/// and `weights` is the sum over the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Most {
    /// The largest number of rows of the result.
    pub(crate) h: usize,
    /// The largest common dimension, over which products are summed.
    pub(crate) l: usize,
    /// The largest number of weights, h · l.
    pub(crate) weights: usize,
    /// The largest number of affine layers in a chain. Unlike a bound on sizes, it holds even if
    /// the plan then has no kernel for the chain.
    pub(crate) layers: usize,
    /// The largest number of work-groups along the records. Unlike a bound on sizes, it holds even
    /// if the plan then has no kernel for the problem.
    pub(crate) groups: usize,
    /// The largest `Tensor::spread` of a layer's weights. The errors of some kernels are in
    /// proportion to a record's largest value. Their weights must not include some that are much
    /// smaller than others.
    pub(crate) spread: usize,
}

impl Most {
    /// Returns true if `h` rows, a common dimension of `l` and `weights` weights in all are within
    /// the bounds.
    pub(crate) fn admits(&self, h: usize, l: usize, weights: usize) -> bool {
        let within = |size, most| most == 0 || size <= most;
        within(h, self.h) && within(l, self.l) && within(weights, self.weights)
    }
}

/// The demands of a kernel on its problem and on its device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Restrictions {
    /// The arguments that come before the operands.
    pub(crate) args: Cow<'static, [LeadingArgument]>,
    /// True if the floats alpha and beta follow the arguments `args`. The kernel then computes R =
    /// alpha·A·B + beta·R. With beta = 0, R is not read.
    pub(crate) scaled: bool,
    /// Rows and columns of the result that a work-item computes. (0, 1) means one work-item per
    /// column.
    pub(crate) scale: (usize, usize),
    /// True if dimension 0 of the work-items, which runs fastest, goes along the columns of the
    /// result. False if it goes along the rows.
    pub(crate) columns_first: bool,
    /// True if work-items below the last row of the result return at once. The rows then need no
    /// padding to whole work-groups. The columns still do.
    pub(crate) guarded: bool,
    /// The left operand: the weights, h × l.
    pub(crate) a: Option<Operand>,
    /// The right operand: the values of the records, l × w, a column per record.
    pub(crate) b: Option<Operand>,
    /// The result, h × w. An in-place kernel also reads its operand from it.
    pub(crate) r: Option<Operand>,
    /// True if the kernel can read weights in half precision. It is then compiled with
    /// -DHALF_WEIGHTS=1.
    pub(crate) half: bool,
    /// True if the kernel can read weights as bytes. It is then compiled with -DBYTE_WEIGHTS=1, and
    /// each row's quantization scale is beside its bias.
    pub(crate) bytes: bool,
    /// Floating-point operations that a product counts per multiply-add, and another kernel per
    /// element ([`Kernel::flop`]).
    pub(crate) flop: u32,
    /// The work-group, in rows and columns of work-items. If `None`, the driver chooses it.
    pub(crate) work_group: Option<(usize, usize)>,
    /// The work-groups that a benchmark tries one after the other. The kernel runs with any
    /// work-group.
    pub(crate) sweep: Cow<'static, [(usize, usize)]>,
    pub(crate) needs: Needs,
    /// Rows and columns of the result that a work-group computes, if `scale` and `work_group` do
    /// not give them. Such a kernel skips elements outside the result. So its sizes are padded only
    /// to the alignments.
    pub(crate) tile: Option<(usize, usize)>,
    /// The largest problem that the kernel is for. A plan uses its next kernel for a larger
    /// problem.
    pub(crate) most: Most,
    /// The smallest common dimension of a layer for this kernel. Sums of fewer terms may exceed the
    /// error bound.
    pub(crate) least_l: usize,
    /// The number of work-groups to aim at. If there are fewer tiles, work-groups split the common
    /// dimension, and a `reduce` step adds their parts. With 0 the common dimension is never split.
    pub(crate) split: usize,
    /// Bytes of weights that the device's last-level cache is asked to keep for the next record, if
    /// the network has more weights. The file `common/cache.cl` is then put before the source. 0
    /// asks for nothing.
    pub(crate) keeps: usize,
}

/// A constant in a kernel's source. The compiler gets it as `-DNAME=value`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Define {
    pub(crate) name: Cow<'static, str>,
    pub(crate) value: u32,
}

/// A kernel of the library, as its entry in `library.json` describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kernel {
    /// The name of the kernel in plans, in the form `operation_variant`.
    pub(crate) codename: Cow<'static, str>,
    /// Names that other documents give the same kernel.
    pub(crate) aliases: Cow<'static, [Cow<'static, str>]>,
    /// The idea of this variant, in one line.
    pub(crate) about: Cow<'static, str>,
    /// The document and its section that the idea comes from.
    pub(crate) document: Cow<'static, str>,
    pub(crate) operation: Operation,
    /// The nodes that one launch computes. Empty if the kernel computes only a part of a node, or
    /// no node of a network.
    pub(crate) covers: Covers,
    /// Nodes that may follow those of `covers`. One launch computes them, too.
    pub(crate) epilogue: Cow<'static, [Covered]>,
    /// The name of the kernel function, made of the folder and the stem of the source file:
    /// `folder_stem`. Empty for kernels of the host engine.
    pub(crate) function: Cow<'static, str>,
    /// The path of the source file below `kernels/`. `None` for kernels of the host engine.
    pub(crate) source: Option<Cow<'static, str>>,
    pub(crate) defines: Cow<'static, [Define]>,
    /// Further options of the compiler, which may change results. A kernel with such options is
    /// only for benchmarks and never in a plan.
    pub(crate) lab_options: Cow<'static, str>,
    pub(crate) restrictions: Restrictions,
}

/// A plan of the library. For a network, the planner turns it into steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanRecipe {
    /// The name that `--plan` and `MORTONNET_PLAN` use.
    pub(crate) name: Cow<'static, str>,
    /// One sentence about the plan.
    pub(crate) about: Cow<'static, str>,
    pub(crate) engine: EngineKind,
    /// The number of records in a full batch, before padding.
    pub(crate) batch: usize,
    /// Codenames of kernels. A node is computed by the kernel with the longest chain, of those that
    /// accept the node and its operand's layout. Equals are ranked: kernels for few records come
    /// first, then those with the least work per work-group, then the first in this list. If no
    /// kernel accepts the node, the shortest chain of at most one layer is chosen.
    pub(crate) kernels: Cow<'static, [Cow<'static, str>]>,
    /// The variant of the plan for batches of few records, if it has one.
    pub(crate) few: Option<FewRecords>,
    /// Work-groups that `tune` found. They replace the work-groups in the kernels' entries.
    pub(crate) groups: Groups,
    /// The name of the plan that replaces this one in a program without the lab. It is set for
    /// devices that no board has. Empty if every program has this plan.
    pub(crate) without_lab: Cow<'static, str>,
}

/// A plan's variant for batches of few records. It shares the plan's constants if their layouts
/// allow it, and the buffers of input and results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FewRecords {
    /// The largest number of records in a batch that the variant runs.
    pub(crate) records: usize,
    /// Kernels that the variant prefers to those of the plan.
    pub(crate) kernels: Cow<'static, [Cow<'static, str>]>,
}

/// Codenames of kernels, each with a work-group in rows and columns of work-items, or with
/// [`DRIVERS_CHOICE`].
pub(crate) type Groups = Cow<'static, [(Cow<'static, str>, (usize, usize))]>;

/// A work-group in [`Groups`] that lets the driver choose, even if the kernel's entry has one. In
/// files it is `null`.
pub(crate) const DRIVERS_CHOICE: (usize, usize) = (0, 0);

impl PlanRecipe {
    /// Returns the recipe of this plan's variant for few records.
    pub(crate) fn of_few(&self, few: &FewRecords) -> PlanRecipe {
        let kernels = few
            .kernels
            .iter()
            .chain(self.kernels.iter())
            .cloned()
            .collect();
        PlanRecipe {
            kernels,
            few: None,
            ..self.clone()
        }
    }

    /// Returns the work-group of `kernel` in this plan. If `None`, the driver chooses it.
    pub(crate) fn group(&self, kernel: &Kernel) -> Option<(usize, usize)> {
        let mut groups = self.groups.iter();
        match groups.find(|(name, _)| *name == kernel.codename) {
            Some(&(_, group)) => Some(group).filter(|&g| g != DRIVERS_CHOICE),
            None => kernel.restrictions.work_group,
        }
    }
}

/// Properties of an OpenCL device that determine its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits<'a> {
    pub(crate) vendor: &'a str,
    pub(crate) name: &'a str,
    /// True if OpenCL reports the device's type as CPU.
    pub(crate) cpu: bool,
    /// NVIDIA's compute capability (major, minor), if the device reports one.
    pub(crate) compute_capability: Option<(u32, u32)>,
}

/// A class of devices: how to recognize its devices, their expected speed, and the plan for them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeviceClass {
    pub(crate) name: Cow<'static, str>,
    /// True if only devices of the type CPU belong to the class (`"kind": "cpu"`).
    pub(crate) cpu: bool,
    /// For OpenCL devices: texts, one of which must be part of the device's vendor or name, in any
    /// case. For hosts: names of architectures, one of which must be the host's. An empty list
    /// matches everything.
    pub(crate) matches: Cow<'static, [Cow<'static, str>]>,
    /// The smallest NVIDIA compute capability (major, minor) of the class. A device that reports
    /// none does not belong to it.
    pub(crate) compute_capability: Option<(u32, u32)>,
    /// The name of the plan for devices of this class.
    pub(crate) plan: Cow<'static, str>,
    /// The expected microseconds of a launch. For Mali, 190 is the middle of clpeak's published
    /// results: 149 (T604), 179 to 233 (T628).
    pub(crate) launch_us: f64,
    /// The expected GFLOPS when a network runs: of the whole device, or for a class of hosts of one
    /// thread.
    pub(crate) gflops: f64,
    /// Floating-point operations per compute unit and clock cycle, according to the maker. 0 if
    /// unknown.
    pub(crate) flop_per_cycle: f64,
    /// True if the driver refuses every call after a kernel has failed. The engine then need not
    /// ask each launch how it ended.
    pub(crate) stops_after_failure: bool,
}

impl DeviceClass {
    /// Returns the peak of a device in GFLOPS, according to the maker. 0 if unknown.
    pub(crate) fn nominal(&self, compute_units: u32, mhz: u32) -> f64 {
        f64::from(compute_units) * f64::from(mhz) * self.flop_per_cycle / 1e3
    }
}

/// The path (below `kernels/`) and the text of each kernel source.
pub(crate) type KernelSources = Cow<'static, [(Cow<'static, str>, Cow<'static, str>)]>;

/// The content of `kernels/library.json`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Library {
    /// A hash of library.json and of all kernel sources, in hexadecimal.
    pub(crate) hash: Cow<'static, str>,
    /// The kernels in the order of the file, from simple to advanced ones.
    pub(crate) kernels: Cow<'static, [Kernel]>,
    pub(crate) plans: Cow<'static, [PlanRecipe]>,
    /// Classes of OpenCL devices. A device belongs to the first class that matches it.
    pub(crate) devices: Cow<'static, [DeviceClass]>,
    /// Classes of hosts, which match `std::env::consts::ARCH`. The last class matches every host.
    pub(crate) hosts: Cow<'static, [DeviceClass]>,
}

impl Library {
    /// Finds a kernel by its codename or an alias. Returns its index and the kernel.
    pub(crate) fn kernel(&self, codename: &str) -> Option<(usize, &Kernel)> {
        self.kernels
            .iter()
            .enumerate()
            .find(|(_, k)| k.codename == codename || k.aliases.iter().any(|a| a == codename))
    }

    /// Returns the recipe without the kernels that compute all layers in one launch. `None` if the
    /// recipe has no such kernel.
    pub(crate) fn layer_by_layer(&self, recipe: &PlanRecipe) -> Option<PlanRecipe> {
        let repeats =
            |name: &Cow<'static, str>| self.kernel(name).is_some_and(|(_, k)| k.covers.repeated);
        let mut other = recipe.clone();
        let lists = other
            .few
            .iter_mut()
            .map(|few| &mut few.kernels)
            .chain([&mut other.kernels]);
        lists.for_each(|names| names.to_mut().retain(|name| !repeats(name)));
        other.name = format!("{} (a launch for each layer)", recipe.name).into();
        (other.kernels != recipe.kernels || other.few != recipe.few).then_some(other)
    }

    /// Finds a plan by its name. The error lists the names of all plans.
    pub(crate) fn plan(&self, name: &str) -> Result<&PlanRecipe, String> {
        self.plans.iter().find(|p| p.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.plans.iter().map(|p| &*p.name).collect();
            format!(
                "no plan is called \"{name}\"; the library has {}",
                names.join(", ")
            )
        })
    }

    pub(crate) fn device_class(&self, device: Traits<'_>) -> Option<&DeviceClass> {
        let text = format!("{} {}", device.vendor, device.name).to_ascii_lowercase();
        let found = device.compute_capability;
        self.devices.iter().find(|class| {
            let capable = |least| found.is_some_and(|found| found >= least);
            let named = |part: &Cow<'_, str>| text.contains(&part.to_ascii_lowercase());
            (device.cpu || !class.cpu)
                && class.compute_capability.is_none_or(capable)
                && (class.matches.is_empty() || class.matches.iter().any(named))
        })
    }

    pub(crate) fn host_class(&self, arch: &str) -> Option<&DeviceClass> {
        self.hosts
            .iter()
            .find(|c| c.matches.is_empty() || c.matches.iter().any(|m| m == arch))
    }
}

/// The limits of an OpenCL device that kernels depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceLimits {
    /// The largest number of work-items in a work-group.
    pub(crate) work_group: usize,
    /// The largest numbers of work-items of a work-group in dimensions 0 and 1.
    pub(crate) work_items: (usize, usize),
    /// Bytes of local memory that a work-group can use.
    pub(crate) local_bytes: usize,
    pub(crate) images: bool,
    /// The largest size of a buffer in bytes.
    pub(crate) max_alloc: u64,
}

impl Restrictions {
    /// Returns the format in which the kernel reads weights that the network stores as `wanted`.
    pub(crate) fn weights(&self, wanted: Precision) -> Precision {
        match wanted {
            Precision::F16 if self.half => wanted,
            Precision::I8 if self.bytes => wanted,
            _ => Precision::F32,
        }
    }

    /// Reorders a pair for (rows, columns) into the order of the work-items' dimensions 0 and 1.
    pub(crate) fn dimensions<T>(&self, (rows, cols): (T, T)) -> (T, T) {
        if self.columns_first {
            (cols, rows)
        } else {
            (rows, cols)
        }
    }

    /// Returns true for a kernel that works in place, element by element and in any layout.
    pub(crate) fn elementwise(&self) -> bool {
        self.b.is_none() && self.r.as_ref().is_some_and(|o| o.representation.is_none())
    }

    /// Returns the numbers that the result's rows and columns must be multiples of. Work-groups of
    /// y × x work-items then cover the result exactly.
    pub(crate) fn whole_groups(&self, (y, x): (usize, usize)) -> (usize, usize) {
        let (rows, cols) = self.scale;
        let rows = if self.guarded { 1 } else { rows.max(1) * y };
        (rows, cols.max(1) * x)
    }
}

impl Kernel {
    /// Checks that the kernel can run a problem, and that `device` can run the kernel if it is
    /// known.
    ///
    /// # Errors
    /// Returns every restriction that fails, one line each.
    pub(crate) fn admits(
        &self,
        problem: Problem,
        device: Option<&DeviceLimits>,
    ) -> Result<(), Vec<String>> {
        let mut failed = Vec::new();
        let mut fail = |why: String| failed.push(format!("{}: {why}", self.codename));
        self.check_sizes(problem, &mut fail);
        if let Some(device) = device {
            self.check_device(device, &mut fail);
        }
        if failed.is_empty() {
            Ok(())
        } else {
            Err(failed)
        }
    }

    fn check_sizes(&self, Problem { h, w, l }: Problem, fail: &mut impl FnMut(String)) {
        let r = &self.restrictions;
        for (operand, name, rows, cols) in [(&r.a, "a", h, l), (&r.b, "b", l, w), (&r.r, "r", h, w)]
        {
            let Some(o) = operand else { continue };
            // The weights of a convolution have other sizes than the problem, so they are not
            // checked here.
            if name == "a" && self.operation == Operation::Convolution {
                continue;
            }
            if rows % o.row_align != 0 {
                let align = o.row_align;
                fail(format!("{name} has {rows} rows, not a multiple of {align}"));
            }
            if cols % o.col_align != 0 {
                let align = o.col_align;
                fail(format!(
                    "{name} has {cols} columns, not a multiple of {align}"
                ));
            }
            let layout = o.representation.as_ref();
            if let Some(Err(e)) = layout.map(|layout| layout.fits(rows, cols)) {
                fail(format!("{name}: {e}"));
            }
        }
    }

    fn check_device(&self, device: &DeviceLimits, fail: &mut impl FnMut(String)) {
        let r = &self.restrictions;
        if let Some((y, x)) = r.work_group {
            let (first, second) = r.dimensions((y, x));
            let (most_first, most_second) = device.work_items;
            // If the device's limits on work-items are both exceeded, one message is enough.
            if y * x > device.work_group {
                fail(format!(
                    "work-groups of {y}×{x} work-items, the device allows {}",
                    device.work_group
                ));
            } else if first > most_first || second > most_second {
                fail(format!(
                    "work-groups of {y}×{x} work-items, the device allows \
                     {most_first}×{most_second}"
                ));
            }
        }
        if r.needs.local_bytes > device.local_bytes {
            fail(format!(
                "needs {} bytes of local memory, the device has {}",
                r.needs.local_bytes, device.local_bytes
            ));
        }
        if r.needs.images && !device.images {
            fail("needs images, the device has none".into());
        }
    }

    /// Returns the floating-point operations of `problem` without padding. A product has `flop` of
    /// them per multiply-add. Alpha and beta add two per result, as ARM counts (§1.4.9: 2N²(N+1)).
    /// Other kernels have `flop` per element.
    pub(crate) fn flop(&self, problem: Problem) -> u64 {
        let Problem { h, w, l } = problem;
        let (results, flop) = ((h * w) as u64, u64::from(self.restrictions.flop));
        // A reducepair kernel counts as a product here, although `is_product` is false for it.
        if !self.operation.is_product() && self.operation != Operation::ReducePair {
            return results * flop;
        }
        results * (flop * l as u64 + if self.restrictions.scaled { 2 } else { 0 })
    }

    /// Returns the smallest problem that contains `real` and that the kernel can run in work-groups
    /// of `group`. Sizes are rounded up to alignments, to chunks of layouts, and to whole
    /// work-groups.
    pub(crate) fn pad(&self, real: Problem, group: Option<(usize, usize)>) -> Problem {
        let r = &self.restrictions;
        let group = group.filter(|_| r.tile.is_none());
        let ((mut h, mut w), mut l) = (group.map_or((1, 1), |g| r.whole_groups(g)), 1);
        let demand = |o: &Option<Operand>, rows: &mut usize, cols: &mut usize| {
            if let Some(o) = o {
                let (y, x) = o
                    .representation
                    .as_ref()
                    .map_or((1, 1), Layout::granularity);
                *rows = lcm(*rows, lcm(o.row_align, y));
                *cols = lcm(*cols, lcm(o.col_align, x));
            }
        };
        demand(&r.a, &mut h, &mut l);
        demand(&r.b, &mut l, &mut w);
        demand(&r.r, &mut h, &mut w);
        Problem {
            h: real.h.next_multiple_of(h),
            w: real.w.next_multiple_of(w),
            l: real.l.next_multiple_of(l),
        }
    }

    pub(crate) fn define(&self, name: &str) -> Option<usize> {
        let found = self.defines.iter().find(|d| d.name == name);
        found.map(|d| d.value as usize)
    }

    /// Returns the number of terms of a sum that a work-group takes at a time (`BK`, 1 by default).
    /// If the common dimension is split, the length of a part is a multiple of this number.
    pub(crate) fn stage(&self) -> usize {
        self.define("BK").unwrap_or(1).max(1)
    }

    /// Returns the compiler options for a step. They have the version of the language, the kernel's
    /// constants and own options, the fused activation, and the format of `weights`. The work-group
    /// `local` (dimensions 0 and 1) and the options `step` follow.
    pub(crate) fn options(
        &self,
        activation: Activation,
        weights: Precision,
        local: Option<(usize, usize)>,
        step: &StepOptions,
    ) -> String {
        let mut options = vec!["-cl-std=CL1.1".to_string()];
        options.extend(
            self.defines
                .iter()
                .map(|Define { name, value }| format!("-D{name}={value}")),
        );
        if self.fuses() {
            options.push(format!("-DACTIVATION={}", activation.code()));
        }
        match weights {
            Precision::F32 => {}
            Precision::F16 => options.push("-DHALF_WEIGHTS=1".into()),
            Precision::I8 => options.push("-DBYTE_WEIGHTS=1".into()),
        }
        if let Some((first, second)) = local {
            options.push(format!("-DGROUP_0={first} -DGROUP_1={second}"));
        }
        if !self.lab_options.is_empty() {
            options.push(self.lab_options.to_string());
        }
        options.extend(Some(step.to_string()).filter(|text| !text.is_empty()));
        options.join(" ")
    }

    /// Checks that the source `text` has one kernel function, with the kernel's name and
    /// parameters. The parameters are those of `args`, alpha and beta of a scaled kernel, and the
    /// operands. Conditions of the preprocessor are ignored.
    pub(crate) fn check_source(&self, text: &str) -> Result<(), String> {
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        let code: Vec<&str> = lines.map(|l| l.split("//").next().unwrap_or("")).collect();
        let code = code.join(" ");
        let heads: Vec<&str> = code.split("kernel void ").skip(1).collect();
        let [head] = heads.as_slice() else {
            return Err(format!(
                "expected one \"kernel void\" function, found {}",
                heads.len()
            ));
        };
        let (name, rest) = head.split_once('(').unwrap_or((head, ""));
        if name.trim() != self.function {
            return Err(format!(
                "expected the function {}, found {}",
                self.function,
                name.trim()
            ));
        }
        let found: Vec<&str> = rest
            .split(')')
            .next()
            .unwrap_or("")
            .split(',')
            .map(str::trim)
            .collect();
        let mut expected: Vec<String> = self
            .restrictions
            .args
            .iter()
            .map(|argument| argument.declaration().into())
            .collect();
        if self.restrictions.scaled {
            expected.extend(["float alpha".into(), "float beta".into()]);
        }
        let scalars = expected.len();
        expected.extend(self.parameters().iter().map(|o| match self.reads_image(o) {
            true => format!("read_only image2d_t {}", o.name),
            false => o.name.to_string(),
        }));
        let agrees = |(i, (found, expected)): (usize, (&&str, &String))| {
            if i < scalars || expected.contains(' ') {
                found == expected
            } else {
                found.starts_with("global ") && found.rsplit([' ', '*']).next() == Some(expected)
            }
        };
        if found.len() == expected.len() && found.iter().zip(&expected).enumerate().all(agrees) {
            return Ok(());
        }
        Err(format!(
            "{}: expected the parameters ({}), pointers to global memory where no type is named; \
             found ({})",
            self.codename,
            expected.join(", "),
            found.join(", ")
        ))
    }
}

/// Returns the greatest common divisor.
pub(crate) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the least common multiple.
pub(crate) fn lcm(a: usize, b: usize) -> usize {
    a / gcd(a, b) * b
}
