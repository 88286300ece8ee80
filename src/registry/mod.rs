//! The kernel library as data (`kernels/library.json`): kernels with their restrictions, plans,
//! device classes.
//!
//! Keys follow the thesis, §4.4.1 and §8.3. `admits` is the one check of a kernel against a problem
//! and a device; the build calls it with the sizes it knows, the program calls it again with the
//! limits of the device it found.

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
pub(crate) use covers::{Covered, Covers};
pub(crate) use parameters::{Dim, Holds, Parameter, operands};
use std::borrow::Cow;

impl Operation {
    /// Whether it multiplies matrices: its `flop` is that of a multiply-add.
    pub(crate) fn is_product(self) -> bool {
        matches!(
            self,
            Operation::Matmul | Operation::Affine | Operation::Pair | Operation::Layers
        )
    }

    /// The one activation that its kernels compute.
    pub(crate) fn activation(self) -> Option<Activation> {
        match self {
            Operation::Sigmoid => Some(Activation::Sigmoid),
            Operation::Relu => Some(Activation::Relu),
            _ => None,
        }
    }
}

/// A matrix operand: its layout, and what its size must be a multiple of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operand {
    /// Layout; `None` where the kernel takes any (it works element by element).
    pub(crate) representation: Option<Layout>,
    /// The number of rows is a multiple of this.
    pub(crate) row_align: usize,
    /// The number of columns is a multiple of this.
    pub(crate) col_align: usize,
    /// It is an image: RGBA float, a pixel is four neighbouring columns of the row-major matrix
    /// (b), or four rows of a column of the column-major one (a).
    pub(crate) image: bool,
    /// Weights whose columns are contiguous may as well stand in panels of rows, `R_P_1_C` with P a
    /// multiple of 4: the kernel is compiled for the panels that the plan has for full batches.
    pub(crate) panels: bool,
}

/// What a device must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Needs {
    /// The kernel is part of the host engine.
    pub(crate) host: bool,
    /// Images.
    pub(crate) images: bool,
    /// `common/warp.cl` in front of its source: instructions of a warp, where the device's compiler
    /// has any.
    pub(crate) warp: bool,
    /// Bytes of local memory in a work-group.
    pub(crate) local_bytes: usize,
}

/// The largest problem that a kernel is for; 0 is no bound. (Of several layers: the first one. Of a
/// repeated chain: the most of any layer, and the weights of all.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Most {
    /// Rows of the result.
    pub(crate) h: usize,
    /// Common dimension.
    pub(crate) l: usize,
    /// Weights, h · l.
    pub(crate) weights: usize,
    /// Affine layers of a repeated chain, whatever else the plan has.
    pub(crate) layers: usize,
    /// Work-groups along the records, whatever else the plan has.
    pub(crate) groups: usize,
    /// `Tensor::spread` of a layer's weights: where errors are in proportion to the largest value
    /// of a record, that must not meet weights much smaller than others.
    pub(crate) spread: usize,
}

impl Most {
    /// Whether layers of at most h rows and a common dimension of at most l are within, with so
    /// many weights in all.
    pub(crate) fn admits(&self, h: usize, l: usize, weights: usize) -> bool {
        let within = |size, most| most == 0 || size <= most;
        within(h, self.h) && within(l, self.l) && within(weights, self.weights)
    }
}

/// What a kernel demands of its problem and its device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Restrictions {
    /// Sizes passed before the operands, a letter each: `l` common dimension, `w` width and `h`
    /// height of the result (all padded), `n` height without padding, `m` height of a pair's first
    /// layer, `c` parts of the layer before.
    pub(crate) arglist: Cow<'static, str>,
    /// Two floats follow the sizes, alpha and beta: R = alpha·A·B + beta·R. With beta = 0, R is not
    /// read.
    pub(crate) scaled: bool,
    /// Rows and columns of the result that one work-item computes; (0, 1) is one work-item per
    /// column.
    pub(crate) scale: (usize, usize),
    /// Dimension 0 of the work-items, which runs fastest, runs over the columns of the result; else
    /// over the rows.
    pub(crate) columns_first: bool,
    /// Work-items below the last row of the result return at once, so that rows need no more than
    /// the alignments, whatever the work-group; its columns are those of whole work-groups.
    pub(crate) guarded: bool,
    /// Left operand: weights, h × l.
    pub(crate) a: Option<Operand>,
    /// Right operand: activations, l × w, a column per record.
    pub(crate) b: Option<Operand>,
    /// Result, h × w; also the operand of kernels that work in place.
    pub(crate) r: Option<Operand>,
    /// It can read its left operand as halves, compiled with -DHALF_WEIGHTS=1.
    pub(crate) half: bool,
    /// It can read its left operand as bytes, compiled with -DBYTE_WEIGHTS=1: the scales of rows
    /// stand beside the biases.
    pub(crate) bytes: bool,
    /// Floating-point operations per multiply-add (products, see [`Kernel::flop`]) or per element.
    pub(crate) flop: u32,
    /// Work-group size (rows, columns of work-items, whichever comes first); the driver chooses
    /// where it is `None`.
    pub(crate) work_group: Option<(usize, usize)>,
    /// Work-group sizes that a benchmark tries in turn (the kernel runs with any).
    pub(crate) sweep: Cow<'static, [(usize, usize)]>,
    /// What the device must have.
    pub(crate) needs: Needs,
    /// Rows and columns of the result that one work-group computes, where `scale` and `work_group`
    /// do not say it. Such a kernel leaves out what is outside, so that sizes need no more than the
    /// alignments.
    pub(crate) tile: Option<(usize, usize)>,
    /// The largest problem it is for: a plan takes the next kernel for larger ones.
    pub(crate) most: Most,
    /// Least common dimension of a layer; with fewer terms its sums may miss the bound.
    pub(crate) least_l: usize,
    /// Work-groups to aim at: with fewer tiles than this, work-groups share the common dimension,
    /// and a `reduce` step adds their parts. 0: never.
    pub(crate) split: usize,
    /// Bytes of weights that it asks the device's last cache to keep for the next record, where a
    /// network has more (`common/cache.cl` in front of its source); 0: it asks nothing.
    pub(crate) keeps: usize,
}

/// A kernel of the library.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kernel {
    /// The name that plans use: `operation_variant`.
    pub(crate) codename: Cow<'static, str>,
    /// Other names: of the same kernel in another document.
    pub(crate) aliases: Cow<'static, [Cow<'static, str>]>,
    /// What this variant adds, in a line.
    pub(crate) about: Cow<'static, str>,
    /// Document and section that the idea comes from.
    pub(crate) document: Cow<'static, str>,
    /// What it computes.
    pub(crate) operation: Operation,
    /// The nodes that it computes in one launch; none where it computes a part of a node, or none
    /// of a network.
    pub(crate) covers: Covers,
    /// What may stand behind them and is then computed in the same launch.
    pub(crate) epilogue: Cow<'static, [Covered]>,
    /// Function in the source; equals `folder_stem` of the source file. Empty for kernels of the
    /// host engine.
    pub(crate) function: Cow<'static, str>,
    /// Path of the source below `kernels/`; `None` for kernels of the host engine.
    pub(crate) source: Option<Cow<'static, str>>,
    /// Constants that its source is compiled with.
    pub(crate) defines: Cow<'static, [(Cow<'static, str>, u32)]>,
    /// More options of the compiler, which may change results; a kernel that has some is for
    /// benchmarks, never for a plan.
    pub(crate) lab_options: Cow<'static, str>,
    /// Demands.
    pub(crate) restrictions: Restrictions,
}

/// A plan of the library: which kernel serves which operation. `lower` turns it into the steps for
/// one network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanRecipe {
    /// Name for `--plan` and `MORTONNET_PLAN`.
    pub(crate) name: Cow<'static, str>,
    /// One sentence.
    pub(crate) about: Cow<'static, str>,
    /// Which engine runs it.
    pub(crate) engine: EngineKind,
    /// Records of a full batch, before padding.
    pub(crate) batch: usize,
    /// Codenames of its kernels. A node is computed by the kernel that covers the longest chain
    /// from it on, takes its operand in the layout that is there and whose `most` admits the chain;
    /// among equally long ones by that whose work-groups have the least to do, then by the first.
    /// Where none admits it, by the shortest that can compute one layer.
    pub(crate) kernels: Cow<'static, [Cow<'static, str>]>,
    /// What batches of few records have kernels of their own for.
    pub(crate) few: Option<Few>,
    /// Work-groups (rows, columns of work-items) that replace those of kernels: what tuning found.
    pub(crate) groups: Groups,
    /// The plan that its devices have in a program without the lab, which leaves this one out: it
    /// is for devices that no board has. Empty: every program has it.
    pub(crate) without_lab: Cow<'static, str>,
}

/// A plan's variant for batches of few records: over the same constants where their layouts allow
/// it, input and results where full batches have them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Few {
    /// Most records of such a batch.
    pub(crate) records: usize,
    /// Kernels that come before the plan's.
    pub(crate) kernels: Cow<'static, [Cow<'static, str>]>,
}

/// Kernels by codename, and a work-group for each, or [`DRIVERS_CHOICE`].
pub(crate) type Groups = Cow<'static, [(Cow<'static, str>, (usize, usize))]>;

/// A plan's word for a kernel whose work-group the driver chooses, whatever the kernel's entry has
/// (`null` in files).
pub(crate) const DRIVERS_CHOICE: (usize, usize) = (0, 0);

impl PlanRecipe {
    /// The recipe for few records alone.
    pub(crate) fn of_few(&self, few: &Few) -> PlanRecipe {
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

    /// The work-group that `kernel` runs in under this plan.
    pub(crate) fn group(&self, kernel: &Kernel) -> Option<(usize, usize)> {
        let found = self.groups.iter().find(|g| g.0 == kernel.codename);
        match found {
            Some(group) => Some(group.1).filter(|&g| g != DRIVERS_CHOICE),
            None => kernel.restrictions.work_group,
        }
    }
}

/// What recognises a device's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits<'a> {
    /// CL_DEVICE_VENDOR.
    pub(crate) vendor: &'a str,
    /// CL_DEVICE_NAME.
    pub(crate) name: &'a str,
    /// Whether its type is CPU.
    pub(crate) cpu: bool,
    /// NVIDIA's compute capability, where the device tells it.
    pub(crate) compute_capability: Option<(u32, u32)>,
}

/// A class of devices: how it is recognised, how fast to expect it to be, and its plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeviceClass {
    /// Name.
    pub(crate) name: Cow<'static, str>,
    /// Only devices of the type CPU (`"kind": "cpu"`): their names are those of processors, of any
    /// make.
    pub(crate) cpu: bool,
    /// The device's vendor or name contains one of these, ignoring case; empty fits every device.
    pub(crate) matches: Cow<'static, [Cow<'static, str>]>,
    /// Only devices that answer with at least this NVIDIA compute capability, (major, minor).
    pub(crate) compute_capability: Option<(u32, u32)>,
    /// The plan for such devices.
    pub(crate) plan: Cow<'static, str>,
    /// Expected time of a launch in microseconds. Mali's 190 is the middle of clpeak's published
    /// results: 149 (T604), 179 to 233 (T628).
    pub(crate) launch_us: f64,
    /// Expected rate on networks, in GFLOPS: of the whole device, or of one thread for the host
    /// classes.
    pub(crate) gflops: f64,
    /// Floating-point operations of a compute unit in a clock cycle, by the maker's figures; 0
    /// where there are none.
    pub(crate) flop_per_cycle: f64,
    /// After a kernel that failed, the driver refuses every later call: no launch has to be asked
    /// how it ended.
    pub(crate) stops_after_failure: bool,
}

impl DeviceClass {
    /// Peak in GFLOPS by the maker's figures; 0 where there are none.
    pub(crate) fn nominal(&self, compute_units: u32, mhz: u32) -> f64 {
        f64::from(compute_units) * f64::from(mhz) * self.flop_per_cycle / 1e3
    }
}

/// Path (below `kernels/`) and text of every kernel source.
pub(crate) type KernelSources = Cow<'static, [(Cow<'static, str>, Cow<'static, str>)]>;

/// Everything in `kernels/library.json`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Library {
    /// Hash of library.json and all sources (hexadecimal).
    pub(crate) hash: Cow<'static, str>,
    /// Kernels in teaching order.
    pub(crate) kernels: Cow<'static, [Kernel]>,
    /// Plans.
    pub(crate) plans: Cow<'static, [PlanRecipe]>,
    /// Classes of OpenCL devices; the first that matches counts.
    pub(crate) devices: Cow<'static, [DeviceClass]>,
    /// Classes of hosts by CPU architecture (as `std::env::consts::ARCH` has it).
    pub(crate) hosts: Cow<'static, [DeviceClass]>,
}

impl Library {
    /// The kernel called `codename` (or with that alias), with its index.
    pub(crate) fn kernel(&self, codename: &str) -> Option<(usize, &Kernel)> {
        self.kernels
            .iter()
            .enumerate()
            .find(|(_, k)| k.codename == codename || k.aliases.iter().any(|a| a == codename))
    }

    /// `recipe` with a launch for each layer: without its kernel for all layers. `None` where it
    /// has none.
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

    /// The plan called `name`; the error lists the plans.
    pub(crate) fn plan(&self, name: &str) -> Result<&PlanRecipe, String> {
        self.plans.iter().find(|p| p.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.plans.iter().map(|p| &*p.name).collect();
            format!(
                "no plan is called \"{name}\"; the library has {}",
                names.join(", ")
            )
        })
    }

    /// The class of a device. One that does not tell what a class demands is not of that class.
    pub(crate) fn device_class(&self, device: Traits<'_>) -> Option<&DeviceClass> {
        let text = format!("{} {}", device.vendor, device.name).to_ascii_lowercase();
        let capable = |least| {
            device
                .compute_capability
                .is_some_and(|found| found >= least)
        };
        let able =
            |c: &&DeviceClass| (device.cpu || !c.cpu) && c.compute_capability.is_none_or(capable);
        self.devices.iter().filter(able).find(|c| {
            c.matches.is_empty()
                || c.matches
                    .iter()
                    .any(|m| text.contains(&m.to_ascii_lowercase()))
        })
    }

    /// The class of a host by its architecture; the last class fits every architecture.
    pub(crate) fn host_class(&self, arch: &str) -> Option<&DeviceClass> {
        self.hosts
            .iter()
            .find(|c| c.matches.is_empty() || c.matches.iter().any(|m| m == arch))
    }
}

/// Limits of a device, as far as kernels depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceLimits {
    /// Most work-items of a work-group.
    pub(crate) work_group: usize,
    /// Most work-items of a work-group in dimensions 0 and 1.
    pub(crate) work_items: (usize, usize),
    /// Local memory in bytes.
    pub(crate) local_bytes: usize,
    /// Images.
    pub(crate) images: bool,
    /// Largest buffer in bytes.
    pub(crate) max_alloc: u64,
}

impl Restrictions {
    /// What it reads weights as where they are rounded to `wanted`.
    pub(crate) fn weights(&self, wanted: Precision) -> Precision {
        match wanted {
            Precision::F16 if self.half => wanted,
            Precision::I8 if self.bytes => wanted,
            _ => Precision::F32,
        }
    }

    /// Work-items over rows and columns of the result, as dimensions 0 and 1.
    pub(crate) fn dimensions<T>(&self, (rows, cols): (T, T)) -> (T, T) {
        if self.columns_first {
            (cols, rows)
        } else {
            (rows, cols)
        }
    }

    /// Whether it works in place and element by element, in whatever layout.
    pub(crate) fn elementwise(&self) -> bool {
        self.b.is_none() && self.r.as_ref().is_some_and(|o| o.representation.is_none())
    }

    /// What rows and columns of the result must be multiples of so that whole work-groups cover
    /// them.
    pub(crate) fn whole_groups(&self, (y, x): (usize, usize)) -> (usize, usize) {
        let rows = if self.guarded {
            1
        } else {
            self.scale.0.max(1) * y
        };
        (rows, self.scale.1.max(1) * x)
    }
}

impl Kernel {
    /// Whether the kernel may run this problem, on this device if one is known. Every restriction
    /// that fails is one line of the error.
    pub(crate) fn admits(
        &self,
        problem: Problem,
        device: Option<&DeviceLimits>,
    ) -> Result<(), Vec<String>> {
        let mut failed = Vec::new();
        let r = &self.restrictions;
        let Problem { h, w, l } = problem;
        for (operand, name, rows, cols) in [(&r.a, "a", h, l), (&r.b, "b", l, w), (&r.r, "r", h, w)]
        {
            let Some(o) = operand else { continue };
            // A convolution's weights have sizes of their own.
            if name == "a" && self.operation == Operation::Convolution {
                continue;
            }
            if rows % o.row_align != 0 {
                failed.push(format!(
                    "{}: {name} has {rows} rows, not a multiple of {}",
                    self.codename, o.row_align
                ));
            }
            if cols % o.col_align != 0 {
                failed.push(format!(
                    "{}: {name} has {cols} columns, not a multiple of {}",
                    self.codename, o.col_align
                ));
            }
            if let Some(Err(e)) = o
                .representation
                .as_ref()
                .map(|layout| layout.fits(rows, cols))
            {
                failed.push(format!("{}: {name}: {e}", self.codename));
            }
        }
        if let Some(d) = device {
            if let Some((y, x)) = r.work_group {
                let (first, second) = r.dimensions((y, x));
                // One of both limits is enough to say.
                if y * x > d.work_group {
                    failed.push(format!(
                        "{}: work-groups of {y}×{x} work-items, the device allows {}",
                        self.codename, d.work_group
                    ));
                } else if first > d.work_items.0 || second > d.work_items.1 {
                    failed.push(format!(
                        "{}: work-groups of {y}×{x} work-items, the device allows {}×{}",
                        self.codename, d.work_items.0, d.work_items.1
                    ));
                }
            }
            if r.needs.local_bytes > d.local_bytes {
                failed.push(format!(
                    "{}: needs {} bytes of local memory, the device has {}",
                    self.codename, r.needs.local_bytes, d.local_bytes
                ));
            }
            if r.needs.images && !d.images {
                failed.push(format!(
                    "{}: needs images, the device has none",
                    self.codename
                ));
            }
        }
        if failed.is_empty() {
            Ok(())
        } else {
            Err(failed)
        }
    }

    /// Floating-point operations of `problem` without padding: of a product so many a multiply-add,
    /// and with alpha and beta two more for each result (ARM, §1.4.9: 2N²(N+1)); of other kernels
    /// so many an element.
    pub(crate) fn flop(&self, problem: Problem) -> u64 {
        let Problem { h, w, l } = problem;
        let (results, flop) = ((h * w) as u64, u64::from(self.restrictions.flop));
        // What adds parts up and then multiplies is no product of two matrices.
        if !self.operation.is_product() && self.operation != Operation::ReducePair {
            return results * flop;
        }
        results * (flop * l as u64 + if self.restrictions.scaled { 2 } else { 0 })
    }

    /// The smallest problem this kernel runs that holds `real`, in work-groups of `group`: sizes
    /// rounded up to what alignments, layouts and whole work-groups of whole tiles demand.
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

    /// A constant that its source is compiled with, if it has that.
    pub(crate) fn define(&self, name: &str) -> Option<usize> {
        self.defines
            .iter()
            .find(|d| d.0 == name)
            .map(|d| d.1 as usize)
    }

    /// Terms of a sum that a work-group takes at a time (`BK`), of which parts of the common
    /// dimension are whole multiples; 1 where it does not say so.
    pub(crate) fn stage(&self) -> usize {
        self.define("BK").unwrap_or(1).max(1)
    }

    /// The compiler options for a step: the language's version, the kernel's constants, the fused
    /// activation, the work-group (dimensions 0 and 1), the step's own facts.
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
                .map(|(name, value)| format!("-D{name}={value}")),
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

    /// Whether `text` is a source of this kernel: one kernel function of its name, that takes a
    /// uint for each letter of the arglist (`p`: the parameters of its activation; `g`: a geometry;
    /// `v`: a value; `f`, `b`: maps), then alpha and beta where it is scaled, then its operands,
    /// with that which it adds, whatever the conditions of the preprocessor. The error says what
    /// was expected.
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
            .arglist
            .chars()
            .map(|c| match c {
                'p' => "float2 params".into(),
                'g' => "uint16 geometry".into(),
                'v' => "float value".into(),
                'f' => "uint16 moved".into(),
                'b' => "uint16 added".into(),
                size => format!("uint {size}"),
            })
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

/// Least common multiple.
pub(crate) fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}
