//! Measures on this device the tables of the documents that the kernels come from.

use super::Unsound;
use super::case::{self, Lab, LaunchTimes, TimedCase, Timing, Trouble, WorkGroup};
use super::live::{LiveReport, STOPPED, stopped};
use super::network::{Guard, NetworkTables, Peaks, measured, quantile};
use super::table::{Cell, Measured, Plot, Row, Section};
use super::{Budget, KernelBench, groups};
use crate::baked::library;
use crate::engine::opencl;
use crate::error::Error;
use crate::registry::{Kernel, Operation, Problem};
use std::time::Instant;

/// Matrix sizes of the cache model: those of the thesis's table 8.2, 4000, and the power of two
/// 4096.
pub(crate) const CACHE_SIZES: &[usize] = &[96, 192, 384, 768, 1440, 2880, 4000, 4096];

const BY_128: &[usize] = &[
    128, 256, 384, 512, 640, 768, 896, 1000, 1024, 1152, 2048, 4096,
];
const TABLE_8_2: &[usize] = &[96, 192, 384, 768, 1000, 1024, 1440, 2048, 2880, 4096];
const ARM_SIZES: &[usize] = &[96, 192, 384, 768, 1000, 1024, 1440, 2048, 2880, 4096];

/// A table of a document that gives the GFLOPS of kernels by the size of square matrices.
struct BySize {
    id: &'static str,
    title: &'static str,
    sizes: &'static [usize],
    kernels: &'static [&'static str],
    document: &'static [Figures],
}

/// A column with the GFLOPS that a document gives, at the document's own matrix sizes.
struct Figures {
    name: &'static str,
    sizes: &'static [usize],
    gflops: &'static [f64],
}

const fn figures(name: &'static str, sizes: &'static [usize], gflops: &'static [f64]) -> Figures {
    Figures {
        name,
        sizes,
        gflops,
    }
}

impl Figures {
    fn at(&self, size: usize) -> Option<f64> {
        let i = self.sizes.iter().position(|&s| s == size)?;
        self.gflops.get(i).copied()
    }
}

/// The matrix sizes in the thesis's table 7.1.
const THESIS_7_1: [usize; 9] = [128, 256, 384, 512, 640, 768, 896, 1024, 1152];

const BY_SIZE: &[BySize] = &[
    BySize {
        id: "thesis_7_1",
        title: "Layouts (thesis, table 7.1)",
        sizes: BY_128,
        kernels: &["matmul_naive", "matmul_rmcm"],
        document: &[
            figures(
                "RM×RM, document",
                &THESIS_7_1,
                &[
                    2.516, 0.448, 0.397, 0.330, 0.364, 0.352, 0.332, 0.304, 0.283,
                ],
            ),
            figures(
                "RM×CM, document",
                &THESIS_7_1,
                &[
                    2.406, 0.599, 0.480, 0.409, 0.449, 0.447, 0.443, 0.428, 0.392,
                ],
            ),
        ],
    },
    BySize {
        id: "thesis_7_3",
        title: "Work-groups (thesis, fig. 7.3)",
        sizes: BY_128,
        kernels: &[
            "matmul_naive",
            "matmul_rmcm",
            "matmul_naive_grouped",
            "matmul_naive_grouped_8x32",
            "matmul_rmcm_grouped",
            "matmul_rmcm_grouped_8x32",
        ],
        document: &[],
    },
    BySize {
        id: "thesis_7_4",
        title: "Vectors (thesis, fig. 7.4)",
        sizes: BY_128,
        kernels: &["matmul_naive", "matmul_rmcm_grouped", "matmul_rmcm_vector"],
        document: &[],
    },
    BySize {
        id: "thesis_7_7",
        title: "Blocking (thesis, fig. 7.7)",
        sizes: BY_128,
        kernels: &[
            "matmul_rmcm_vector",
            "matmul_blocked_rmrm",
            "matmul_blocked_rmcm",
        ],
        document: &[],
    },
    BySize {
        id: "thesis_8_2",
        title: "Hybrid Morton Order (thesis, table 8.2)",
        sizes: TABLE_8_2,
        kernels: &[
            "matmul_blocked_rmcm",
            "matmul_morton_4_2",
            "matmul_morton_4_4",
            "matmul_packed_4x4",
            "matmul_packed_4x4_k4",
        ],
        document: &[
            figures(
                "ARM paper",
                &ARM_DOCUMENT,
                &[11.2, 13.0, 13.2, 13.1, 13.1, 10.8],
            ),
            figures(
                "blocked, document",
                &ARM_DOCUMENT,
                &[11.65, 13.65, 13.08, 12.90, 12.98, 2.14],
            ),
            figures(
                "Morton 4-2, document",
                &ARM_DOCUMENT,
                &[13.04, 14.86, 14.19, 13.67, 13.61, 13.65],
            ),
            figures(
                "Morton 4-4, document",
                &ARM_DOCUMENT,
                &[12.05, 13.93, 12.94, 12.45, 12.02, 11.98],
            ),
        ],
    },
    BySize {
        id: "thesis_8_3",
        title: "From the baseline to Morton order (thesis, fig. 8.3)",
        sizes: BY_128,
        kernels: &[
            "matmul_naive",
            "matmul_rmcm_grouped",
            "matmul_rmcm_vector",
            "matmul_blocked_rmcm",
            "matmul_morton_4_4",
            "matmul_morton_4_2",
        ],
        document: &[],
    },
];

/// The figure that a table shows for kernels that run in all work-groups of a sweep.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    /// The median of the launches in the best work-group.
    BestGroup,
    /// The median of the launches in all work-groups together.
    Median,
    /// The best launch in any of the work-groups.
    Best,
}

/// A kind of matrix product in ARM's tables 1.3 and 1.4.
struct ArmKind {
    /// Heading of the kind's column.
    name: &'static str,
    /// The kernels of that kind.
    kernels: &'static [&'static str],
    over: Over,
    /// The GFLOPS that ARM gives for the sizes [`ARM_DOCUMENT`].
    document: [f64; 6],
}

/// Matrix sizes in ARM's tables 1.3 and 1.4.
const ARM_DOCUMENT: [usize; 6] = [96, 192, 384, 768, 1440, 2880];

impl ArmKind {
    fn has(&self, kernel: &Kernel) -> bool {
        self.kernels.contains(&&*kernel.codename)
    }
}

const fn arm(
    name: &'static str,
    kernels: &'static [&'static str],
    over: Over,
    document: [f64; 6],
) -> ArmKind {
    ArmKind {
        name,
        kernels,
        over,
        document,
    }
}

/// ARM's table 1.3: the best kernel of each kind, with any blocking and any work-group.
const ARM_1_3: [ArmKind; 6] = [
    arm(
        "scalar_nn",
        &["matmul_scalar_nn"],
        Over::BestGroup,
        [2.0, 2.0, 2.0, 2.0, 2.0, 1.6],
    ),
    arm(
        "scalar_nt",
        &["matmul_scalar_nt"],
        Over::BestGroup,
        [2.0, 2.1, 2.1, 2.1, 2.1, 2.0],
    ),
    arm(
        "blocked_nn",
        &["matmul_blocked_nn"],
        Over::BestGroup,
        [8.0, 8.4, 7.6, 7.5, 7.4, 6.8],
    ),
    arm(
        "blocked_nt",
        &["matmul_blocked_nt", "matmul_blocked_nt_1x4x4"],
        Over::BestGroup,
        [11.2, 13.0, 13.2, 13.1, 13.1, 10.8],
    ),
    arm(
        "cacheblocked_nn",
        &["matmul_cacheblocked_nn"],
        Over::BestGroup,
        [5.1, 5.1, 6.4, 6.6, 6.5, 6.1],
    ),
    arm(
        "cacheblocked_nt",
        &["matmul_cacheblocked_nt", "matmul_cacheblocked_nt_1x4x4"],
        Over::BestGroup,
        [7.4, 8.1, 10.1, 10.0, 9.3, 9.2],
    ),
];

/// ARM's table 1.4: blocked and cache-blocked NT kernels with 1×4×4 blocks. ARM ran each work-group
/// size three times, and gives the median and the best of all these runs.
const ARM_1_4: [ArmKind; 4] = [
    arm(
        "blocked median",
        &["matmul_blocked_nt_1x4x4"],
        Over::Median,
        [9.3, 10.5, 9.9, 9.7, 9.6, 1.1],
    ),
    arm(
        "blocked high",
        &["matmul_blocked_nt_1x4x4"],
        Over::Best,
        [9.4, 10.6, 10.0, 9.9, 9.9, 9.4],
    ),
    arm(
        "cache-blocked median",
        &["matmul_cacheblocked_nt_1x4x4"],
        Over::Median,
        [7.0, 8.0, 9.9, 9.7, 9.1, 9.2],
    ),
    arm(
        "cache-blocked high",
        &["matmul_cacheblocked_nt_1x4x4"],
        Over::Best,
        [7.4, 8.1, 10.0, 10.0, 9.3, 9.2],
    ),
];

/// Headings of the Sobel table's last columns, which follow those of the images (ARM, table 1.1).
const SOBEL_COLUMNS: [&str; 6] = [
    "pixels a work-item",
    "largest work-group",
    "largest work-group, document",
    "words a work-item (arithmetic + load-store), document",
    "arithmetic words a cycle, document",
    "load-store words a cycle, document",
];

/// Returns the kernels of the table with this name. The list is empty for the tables of networks.
/// `None` if there is no such table.
pub(crate) fn kernels_of(table: &str) -> Option<Vec<&'static Kernel>> {
    let by = |wanted: &dyn Fn(&Kernel) -> bool| {
        let kernels = library().kernels.iter();
        Some(
            kernels
                .filter(|k| k.source.is_some() && wanted(k))
                .collect(),
        )
    };
    let named = |names: &[&str]| by(&|k| names.contains(&&*k.codename));
    let of_kinds = |kinds: &[ArmKind]| by(&|k| kinds.iter().any(|kind| kind.has(k)));
    match table {
        "arm_1_1" => by(&|k| k.operation == Operation::Sobel),
        "arm_1_3" => of_kinds(&ARM_1_3),
        "arm_1_4" => of_kinds(&ARM_1_4),
        "thesis_9_1" => by(&|k| BIAS.contains(&k.operation)),
        "thesis_9_2" => by(&|k| ACTIVATIONS.contains(&k.operation)),
        "sdk" => named(&[SDK]),
        "tutorial" => named(&TUTORIAL),
        "thesis_6" | "thesis_10" => Some(Vec::new()),
        _ => named(BY_SIZE.iter().find(|t| t.id == table)?.kernels),
    }
}

/// Returns the names of the tables that [`kernels_of`] knows.
pub(crate) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = BY_SIZE.iter().map(|t| t.id).collect();
    names.extend(["thesis_6", "thesis_9_1", "thesis_9_2", "thesis_10"]);
    names.extend(["arm_1_1", "arm_1_3", "arm_1_4", "sdk", "tutorial"]);
    names
}

/// The operations in the thesis's figure 9.1. [`ACTIVATIONS`] are those in figure 9.2.
const BIAS: [Operation; 1] = [Operation::Bias];
const ACTIVATIONS: [Operation; 3] = [Operation::Sigmoid, Operation::Relu, Operation::Activation];

/// The kernel that draws the thesis's figure 12.1, the order in which work-groups start.
const ORDER: &str = "order_probe";

/// The kernel of the SDK's table. [`TUTORIAL`] has the kernels of the tutorial's table.
const SDK: &str = "matmul_sgemm";
const TUTORIAL: [&str; 3] = [
    "matmul_columns",
    "matmul_columns_local",
    "matmul_columns_local_vector",
];

/// Rows and columns of the matrices that the thesis's figures 9.1 and 9.2 measure.
const SHAPES: [(usize, usize); 3] = [(1024, 1024), (256, 4096), (4096, 256)];

/// Sides in pixels of the square images for the Sobel filter. The first is ARM's. On fast devices
/// it would only measure the start of launches, so larger images follow.
const SOBEL_SIZES: [usize; 5] = [512, 2048, 4096, 8192, 16384];

/// The side in pixels of an image so small that starting the kernel takes most of its time.
const SOBEL_EMPTY: usize = 16;

/// A Sobel image is large enough if even the fastest kernel takes this many times as long as on a
/// [`SOBEL_EMPTY`] image.
const SOBEL_LAUNCHES: f64 = 20.0;

/// A row of ARM's table 1.1: a Sobel kernel on the Mali-T604.
struct SobelRow {
    kernel: &'static str,
    /// Pixels that the GPU filters per cycle.
    rate: f64,
    largest_group: u32,
    /// Instruction words that a work-item executes for arithmetic. `load_store` counts its loads
    /// and stores.
    arithmetic: u32,
    load_store: u32,
}

const fn sobel_row(
    kernel: &'static str,
    rate: f64,
    largest_group: u32,
    [arithmetic, load_store]: [u32; 2],
) -> SobelRow {
    SobelRow {
        kernel,
        rate,
        largest_group,
        arithmetic,
        load_store,
    }
}

const SOBEL_DOCUMENT: [SobelRow; 8] = [
    sobel_row("sobel_char", 0.3, 256, [13, 7]),
    sobel_row("sobel_char8", 1.8, 128, [17, 9]),
    sobel_row("sobel_char16", 1.8, 64, [21, 7]),
    sobel_row("sobel_char8_load16", 2.2, 128, [18, 5]),
    sobel_row("sobel_char16_swizzle", 2.6, 128, [32, 8]),
    sobel_row("sobel_2xchar8", 2.1, 128, [29, 14]),
    sobel_row("sobel_2xchar8_load16", 2.5, 128, [32, 7]),
    sobel_row("sobel_3xchar8", 1.4, 64, [39, 19]),
];

/// The times of a kernel on one problem, or the reason why it was not timed.
type Outcome = Result<TimedCase, String>;

/// A case that was measured or skipped. It is kept to predict larger cases and for other tables.
struct Done {
    kernel: String,
    group: WorkGroup,
    real: Problem,
    outcome: Outcome,
    /// Microseconds of a launch. The number is also known if the first launch took too long and no
    /// others followed.
    us: Option<f64>,
    /// Seconds that the whole case took, with drawing inputs, compiling and checking.
    all: f64,
}

/// The cost of a case that was measured or is predicted. [`work`] computes the field `work`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    work: f64,
    /// Microseconds that one launch of the case takes.
    us: f64,
    /// Seconds that the whole case takes, with drawing inputs, compiling and checking.
    all: f64,
}

/// Returns a problem's number of multiply-adds, or of elements if it has no common dimension.
fn work(p: Problem) -> f64 {
    p.h as f64 * p.w as f64 * p.l.max(1) as f64
}

/// Returns the problem of a product of `size` × `size` matrices.
fn cube(size: usize) -> Problem {
    Problem {
        h: size,
        w: size,
        l: size,
    }
}

/// Returns the problem of an image of `size` × `size` pixels.
fn square(size: usize) -> Problem {
    Problem { l: 0, ..cube(size) }
}

/// Rows, columns and common dimension up to which a case is so small that it runs without
/// prediction.
const SMALL: usize = 128;

/// If a case has more than this many times the work of every measured case, a smaller one runs
/// first.
const FAR: f64 = 8.5;

/// The steepest growth of a case's time with its work, as an exponent. Time grows faster than work
/// because caches do not hold large cases.
const STEEPEST: f64 = 1.5;

/// Predicts the cost of a case of `work` from the two largest of the `smaller` cases. Their
/// launches show how the time grows with the work: at least in proportion, at most with the
/// exponent [`STEEPEST`]. `None` without a smaller case.
fn predicted(smaller: &[Cost], work: f64) -> Option<Cost> {
    let largest = |below: f64| {
        let below = smaller.iter().filter(move |c| c.work < below);
        below.max_by(|a, b| a.work.total_cmp(&b.work).then(a.us.total_cmp(&b.us)))
    };
    let last = largest(f64::INFINITY)?;
    let grew = largest(last.work).map_or(1.0, |before| {
        (last.us / before.us).ln() / (last.work / before.work).ln()
    });
    let grew = if grew.is_nan() {
        1.0
    } else {
        grew.clamp(1.0, STEEPEST)
    };
    let more = work / last.work;
    Some(Cost {
        work,
        us: last.us * more.powf(grew),
        all: last.all * more,
    })
}

/// A table by matrix size, with the kernels and sizes that this run measures.
struct SizeTable<'a> {
    id: &'static str,
    title: &'static str,
    kernels: Vec<&'a Kernel>,
    sizes: Vec<usize>,
    document: &'static [Figures],
    /// True if each kernel runs in the best work-group of its sweep.
    best: bool,
}

/// Measures the documents' tables in one run of `bench`.
pub(crate) struct Tables<'a, 'p> {
    lab: &'a mut Lab,
    kernels: Vec<&'a Kernel>,
    options: &'a KernelBench,
    budget: Budget,
    live: &'a mut LiveReport<'p>,
    done: Vec<Done>,
    peaks: Peaks,
    wrong: Vec<Unsound>,
    /// True if the command line names tables and nothing else.
    only: bool,
}

impl<'a, 'p> Tables<'a, 'p> {
    /// Prepares the tables for `kernels`, which have passed their checks.
    pub(crate) fn new(
        lab: &'a mut Lab,
        kernels: Vec<&'a Kernel>,
        options: &'a KernelBench,
        budget: Budget,
        live: &'a mut LiveReport<'p>,
    ) -> Tables<'a, 'p> {
        Tables {
            lab,
            kernels,
            options,
            budget,
            live,
            done: Vec::new(),
            peaks: Peaks::default(),
            wrong: Vec::new(),
            only: !options.names.is_empty()
                && options.names.iter().all(|name| kernels_of(name).is_some()),
        }
    }

    /// Measures all tables of the kernels within the time limit, and prints each when it is
    /// finished. Returns the kernels that passed their check but had wrong results in timed cases.
    pub(crate) fn run(mut self) -> Result<Vec<Unsound>, Error> {
        let head = self.measure_peaks();
        self.live.head(head)?;
        // With `--sizes`, the tables at these sizes come first. Otherwise cheap tables come first
        // and sweeps over work-groups last, so that many tables are finished in time.
        if self.options.sizes.is_empty() {
            self.fixed()?;
            self.by_size()?;
            self.arm()?;
        } else {
            self.by_size()?;
            self.arm()?;
            let sobel = self.sobel();
            self.put(sobel)?;
            self.fixed()?;
        }
        Ok(self.wrong)
    }

    /// Measures the tables that only have the documents' sizes. With `--sizes` such a table is left
    /// out, unless the user named its kernels, or for a table of products its name.
    fn fixed(&mut self) -> Result<(), Error> {
        self.shapes()?;
        let own_sizes = self.options.sizes.is_empty();
        if own_sizes {
            let sobel = self.sobel();
            self.put(sobel)?;
        }
        type MeasureTable<'a, 'p> = fn(&mut Tables<'a, 'p>) -> Option<Section>;
        for (id, table) in [
            ("sdk", Self::sdk as MeasureTable<'a, 'p>),
            ("tutorial", Self::tutorial),
            ("order", Self::order),
        ] {
            let names = &self.options.names;
            let asked = own_sizes || names.iter().any(|name| name == id || name == ORDER);
            let section = match asked && self.wants(id) && !stopped() {
                true => table(self),
                false => None,
            };
            self.put(section)?;
        }
        let all = own_sizes && self.options.names.is_empty() && self.options.library.is_none();
        for id in ["thesis_10", "thesis_6"] {
            if all || (self.only && self.wants(id)) {
                let tables = NetworkTables {
                    device: &self.lab.device,
                    peaks: self.peaks,
                    options: self.options,
                    guard: Guard {
                        budget: &self.budget,
                        progress: self.live.progress,
                    },
                };
                let section = match id {
                    "thesis_10" => tables.thesis_10()?,
                    _ => tables.thesis_6()?,
                };
                self.live.section(section)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, section: Option<Section>) -> Result<(), Error> {
        section.map_or(Ok(()), |section| self.live.section(section))
    }

    /// Returns true if the run measures table `id`. It does not if the command line names only
    /// other tables.
    fn wants(&self, id: &str) -> bool {
        !self.only || self.options.names.iter().any(|name| name == id)
    }

    fn has(&self, codename: &str) -> Option<&'a Kernel> {
        self.kernels
            .iter()
            .copied()
            .find(|k| k.codename == codename || k.aliases.iter().any(|a| a == codename))
    }

    /// Measures a case, or returns the outcome of measuring it before. The case is skipped if
    /// smaller cases of the same kernel predict that it takes too long.
    fn measure(&mut self, kernel: &'a Kernel, group: WorkGroup, real: Problem) -> Outcome {
        let name = &*kernel.codename;
        let same = |d: &&Done| d.kernel == name && d.group == group && d.real == real;
        if let Some(found) = self.done.iter().find(same) {
            return found.outcome.clone();
        }
        if stopped() {
            return Err(STOPPED.into());
        }
        let large = work(real) > work(cube(SMALL));
        let near = |c: &Cost| c.work * FAR >= work(real);
        let mut first = Ok(());
        if large && !self.smaller(name, None, real).iter().any(near) {
            // No case of similar work was measured yet. A case of half the sizes runs first, to
            // predict if this case would take minutes.
            let half = |n: usize| n.min(n.div_ceil(2).max(SMALL));
            let half = Problem {
                h: half(real.h),
                w: half(real.w),
                l: half(real.l),
            };
            first = self.measure(kernel, group, half).map(drop);
        }
        // Without a smaller case in this work-group, cases in other work-groups predict the cost.
        let known = predicted(&self.smaller(name, Some(group), real), work(real))
            .or_else(|| predicted(&self.smaller(name, None, real), work(real)));
        let repeats = self.options.repeat.max(1);
        let refused = match (known, first) {
            (Some(Cost { us, all, .. }), _) => {
                let all = all.max(us * (repeats + 1) as f64 / 1e6);
                self.budget.refuses(us, all)
            }
            // The case of half the sizes failed, so nothing predicts this case's time. It is
            // skipped.
            (None, Err(why)) if large && self.budget.longest().is_some() => Some(why),
            (None, _) => self.budget.refuses(0.0, 0.0),
        };
        let of_time = self.budget.left().map_or(String::new(), |left| {
            format!("{:>4} s left: ", left.as_secs())
        });
        let progress = self.live.progress;
        progress.show(&format!("{of_time}{name} {}", case::shape(real)));
        let start = Instant::now();
        let mut us = None;
        let outcome = match refused {
            Some(why) => Err(why),
            None => {
                let longest = self.budget.longest();
                let timing = Timing { repeats, longest };
                let found = self.lab.time(kernel, group, real, timing);
                us = match &found {
                    Ok(timed) => Some(quantile(&timed.times.run, 0.5)),
                    Err(Trouble::Slow(us)) => Some(*us),
                    Err(_) => None,
                };
                found.map_err(|trouble| self.reason(name, trouble))
            }
        };
        self.done.push(Done {
            kernel: name.to_string(),
            group,
            real,
            outcome: outcome.clone(),
            us,
            all: start.elapsed().as_secs_f64(),
        });
        outcome
    }

    /// Returns the costs of a kernel's measured cases with at most the work of `real`. They are
    /// those in work-group `group`, or in all work-groups if `group` is `None`.
    fn smaller(&self, name: &str, group: Option<WorkGroup>, real: Problem) -> Vec<Cost> {
        let most = work(real);
        let cost = |d: &Done| {
            let of = d.kernel == name && group.is_none_or(|group| d.group == group);
            let us = d.us.filter(|_| of && work(d.real) <= most)?;
            Some(Cost {
                work: work(d.real),
                us,
                all: d.all,
            })
        };
        self.done.iter().filter_map(cost).collect()
    }

    /// Returns the reason why a case was not timed. If the kernel's result was wrong, it is
    /// remembered.
    fn reason(&mut self, name: &str, trouble: Trouble) -> String {
        let text = trouble.to_string();
        let wrong = matches!(trouble, Trouble::Wrong(_));
        if wrong && !self.wrong.iter().any(|u| u.kernel == name) {
            let kernel = name.to_string();
            self.wrong.push(Unsound { kernel, trouble });
        }
        text
    }

    /// Measures a product and returns its GFLOPS as a cell. The kernel's entry in the library says
    /// how its floating-point operations are counted.
    fn gflops(&mut self, kernel: &'a Kernel, group: WorkGroup, size: usize) -> Cell {
        let real = cube(size);
        match self.measure(kernel, group, real) {
            Err(why) => Cell::Skipped(why),
            Ok(TimedCase { times, error }) => {
                let flop = kernel.flop(real) as f64;
                let rates: Vec<f64> = times.run.iter().map(|us| flop / us / 1e3).collect();
                let mut m = measured(&rates);
                m.first = Some(flop / times.first / 1e3);
                m.percent = self.peaks.measured.map(|peak| 100.0 * m.value / peak);
                m.error = Some(error);
                Cell::Measured(m)
            }
        }
    }

    fn ms(&mut self, kernel: &'a Kernel, group: WorkGroup, real: Problem) -> Cell {
        match self.measure(kernel, group, real) {
            Err(why) => Cell::Skipped(why),
            Ok(TimedCase { times, error }) => {
                let ms: Vec<f64> = times.run.iter().map(|us| us / 1e3).collect();
                let m = measured(&ms);
                Cell::Measured(Measured {
                    first: Some(times.first / 1e3),
                    error: Some(error),
                    ..m
                })
            }
        }
    }

    /// Measures two peaks of the device: of multiply-adds on vectors in registers, and of copying
    /// memory. Returns lines for the report's head.
    fn measure_peaks(&mut self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut best = 0.0f64;
        let probes = library().kernels.iter();
        for kernel in probes.filter(|k| k.operation == Operation::Probe) {
            let Some((real, us)) = self.probe(kernel) else {
                continue;
            };
            let elements = real.h as f64 * real.w as f64;
            let text = if copies(kernel) {
                let bytes = 2.0 * 4.0 * elements;
                format!("{:.2} GB/s, read and written", bytes / us / 1e3)
            } else {
                let each = f64::from(kernel.restrictions.flop) * CHAINS;
                let gflops = each * real.l as f64 * elements / us / 1e3;
                best = best.max(gflops);
                format!("{gflops:.2} GFLOPS")
            };
            found.push((format!("peak {}", kernel.codename), text));
        }
        let device = &self.lab.device;
        let clock = device.max_clock;
        let nominal = opencl::class(device)
            .map(|c| c.nominal(device.compute_units, clock))
            .filter(|&n| n > 0.0);
        self.peaks = Peaks {
            measured: (best > 0.0).then_some(best),
            nominal,
        };
        if let Some(nominal) = nominal {
            let text = format!("{nominal:.0} GFLOPS, all units at {clock} MHz");
            found.push(("peak, nominal".into(), text));
        }
        found
    }

    /// Runs a kernel that measures a peak. Returns its problem and the microseconds of its shortest
    /// launch.
    ///
    /// The first problem fills a small device with work-items, and runs long enough for the
    /// device's clock. A launch below 2 ms consists partly of its start, and a copy may then stay
    /// in a cache. In that case 16 times as much work is measured.
    fn probe(&mut self, kernel: &'a Kernel) -> Option<(Problem, f64)> {
        let copy = copies(kernel);
        let (_, across) = kernel.restrictions.scale;
        let small = Problem {
            h: 1 << 10,
            w: if copy { 1 << 12 } else { across << 6 },
            l: if copy { 0 } else { 512 },
        };
        let large = match copy {
            true => Problem {
                h: small.h << 4,
                ..small
            },
            false => Problem {
                l: small.l << 4,
                ..small
            },
        };
        let shortest = |timed: TimedCase| timed.times.run.into_iter().fold(f64::INFINITY, f64::min);
        let us = shortest(self.measure(kernel, None, small).ok()?);
        if us < 2000.0 {
            if let Ok(more) = self.measure(kernel, None, large) {
                return Some((large, shortest(more)));
            }
        }
        Some((small, us))
    }

    fn sizes(&self, table: &[usize]) -> Vec<usize> {
        if self.options.sizes.is_empty() {
            table.to_vec()
        } else {
            self.options.sizes.clone()
        }
    }

    /// Measures the tables with the GFLOPS of products by matrix size.
    fn by_size(&mut self) -> Result<(), Error> {
        let own = |kernels: &[&str]| -> Vec<&'a Kernel> {
            kernels.iter().filter_map(|k| self.has(k)).collect()
        };
        let growing = |id, title, kernels, sizes: &[usize], document| {
            let sizes = self.sizes(sizes);
            SizeTable {
                id,
                title,
                kernels,
                sizes,
                document,
                best: false,
            }
        };
        let product = |k: &&Kernel| matches!(k.operation, Operation::Matmul | Operation::Affine);
        let named: Vec<&'a Kernel> = self.named().into_iter().filter(product).collect();
        let mut tables = Vec::new();
        if named.len() > 1 {
            let table = growing("named", "Products that were named", named, TABLE_8_2, &[]);
            tables.push(SizeTable {
                best: true,
                ..table
            });
        }
        tables.extend(
            BY_SIZE
                .iter()
                .map(|t| growing(t.id, t.title, own(t.kernels), t.sizes, t.document)),
        );
        // Products that are in no document's table, at the sizes of the thesis's table 8.2.
        let title = "Other products: SDK, Adreno, tutorial, fused layers";
        tables.push(growing(
            "products",
            title,
            self.other_kernels(),
            TABLE_8_2,
            &[],
        ));
        tables.retain(|t| !t.kernels.is_empty() && self.wants(t.id));
        // All tables grow together from small sizes to large ones, so that each gets a part of the
        // time limit.
        let mut sizes: Vec<usize> = tables
            .iter()
            .flat_map(|t| t.sizes.iter().copied())
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            for table in tables.iter().filter(|t| t.sizes.contains(&size)) {
                for kernel in &table.kernels {
                    self.product(kernel, size, table.best);
                }
                if table.sizes.iter().max() == Some(&size) {
                    let section = self.size_table(table);
                    self.live.section(section)?;
                }
            }
        }
        Ok(())
    }

    fn product(&mut self, kernel: &'a Kernel, size: usize, best: bool) -> Cell {
        match best {
            true => self.over_groups(&[kernel], size, Over::BestGroup),
            false => self.gflops(kernel, kernel.restrictions.work_group, size),
        }
    }

    fn size_table(&mut self, table: &SizeTable<'a>) -> Section {
        // A document without a figure at any of the table's sizes gets no column.
        let document: Vec<_> = table
            .document
            .iter()
            .filter(|d| table.sizes.iter().any(|&size| d.at(size).is_some()))
            .collect();
        let kernels = table.kernels.iter().map(|k| k.codename.to_string());
        let names = document.iter().map(|d| d.name.to_string());
        let columns = kernels.chain(names).collect();
        let mut rows = Vec::new();
        for &size in &table.sizes {
            let mut cells: Vec<Cell> = table
                .kernels
                .iter()
                .map(|k| self.product(k, size, table.best))
                .collect();
            cells.extend(
                document
                    .iter()
                    .map(|d| d.at(size).map_or(Cell::Empty, Cell::Document)),
            );
            rows.push(Row::new(size.to_string(), cells));
        }
        let mut s = gflops_section(table.id, table.title, &table.kernels, columns, rows);
        if table.best
            && table
                .kernels
                .iter()
                .any(|k| !k.restrictions.sweep.is_empty())
        {
            s.note("Where a kernel has a sweep over work-groups, the best of it.");
        }
        s
    }

    /// Returns the kernels that the command line names, each once, in the order of the names. Names
    /// of operations and tables do not count, nor do kernels that failed their check.
    fn named(&self) -> Vec<&'a Kernel> {
        let mut found: Vec<&'a Kernel> = Vec::new();
        for kernel in self.options.names.iter().filter_map(|name| self.has(name)) {
            if !found.iter().any(|k| k.codename == kernel.codename) {
                found.push(kernel);
            }
        }
        found
    }

    fn other_kernels(&self) -> Vec<&'a Kernel> {
        let in_tables = |k: &Kernel| {
            let name = &&*k.codename;
            BY_SIZE.iter().any(|t| t.kernels.contains(name)) || ARM_1_3.iter().any(|a| a.has(k))
        };
        let product = |k: &Kernel| matches!(k.operation, Operation::Matmul | Operation::Affine);
        self.kernels
            .iter()
            .copied()
            .filter(|k| product(k) && !in_tables(k))
            .collect()
    }

    /// Measures ARM's two tables of products, with all work-group sizes of each kernel's sweep.
    fn arm(&mut self) -> Result<(), Error> {
        let about = [
            (
                "arm_1_3",
                "C = αAB + βC, the best of each kind over work-group sizes (ARM, table 1.3)",
                &ARM_1_3[..],
            ),
            (
                "arm_1_4",
                "C = αAB + βC, 1×4×4 NT, median and best launch over all work-group sizes (ARM, \
                 table 1.4)",
                &ARM_1_4,
            ),
        ];
        for (id, title, kinds) in about {
            let section = if self.wants(id) {
                self.arm_table(id, title, kinds)
            } else {
                None
            };
            self.put(section)?;
        }
        Ok(())
    }

    fn arm_table(&mut self, id: &str, title: &str, kinds: &[ArmKind]) -> Option<Section> {
        let with_kernels = |kind| {
            let ArmKind { kernels, .. }: &ArmKind = kind;
            let kernels: Vec<&'a Kernel> = kernels.iter().filter_map(|k| self.has(k)).collect();
            (!kernels.is_empty()).then_some((kind, kernels))
        };
        let kinds: Vec<_> = kinds.iter().filter_map(with_kernels).collect();
        if kinds.is_empty() {
            return None;
        }
        let sizes = self.sizes(ARM_SIZES);
        let in_document = |size: usize| ARM_DOCUMENT.iter().position(|&s| s == size);
        let document = sizes.iter().any(|&size| in_document(size).is_some());
        let mut s = Section {
            larger_is_better: true,
            plot: Plot::Lines,
            ..Section::new(id, title, "size", "GFLOPS")
        };
        for (kind, _) in &kinds {
            s.columns.push(kind.name.to_string());
            s.columns
                .extend(document.then(|| format!("{}, document", kind.name)));
        }
        for size in sizes {
            let mut cells = Vec::new();
            for (kind, kernels) in &kinds {
                cells.push(self.over_groups(kernels, size, kind.over));
                let figure = in_document(size).map(|i| Cell::Document(kind.document[i]));
                cells.extend(document.then(|| figure.unwrap_or(Cell::Empty)));
            }
            s.row(size.to_string(), cells);
        }
        let all: Vec<&Kernel> = kinds
            .iter()
            .flat_map(|(_, kernels)| kernels.iter().copied())
            .collect();
        s.note(format!(
            "Device time, α = 1, β = 0.1; flop by the library: {}; percent of the measured peak. \
             The document's figures: Mali-T604.",
            counted(&all)
        ));
        if id == "arm_1_3" {
            s.note("NT, blocked and cache-blocked: the better of 2×4×2 and 1×4×4.");
        }
        Some(s)
    }

    /// Returns a cell with the GFLOPS of `kernels` in all work-groups of their sweeps. `over`
    /// chooses the best work-group's median, the median of all launches, or the best launch.
    fn over_groups(&mut self, kernels: &[&'a Kernel], size: usize, over: Over) -> Cell {
        let real = cube(size);
        let (mut best, mut runs, mut why) = (None::<Measured>, Vec::new(), String::new());
        for &kernel in kernels {
            for group in groups(kernel) {
                match self.gflops(kernel, group, size) {
                    Cell::Measured(m) if best.is_none_or(|best| m.value > best.value) => {
                        best = Some(m)
                    }
                    Cell::Skipped(reason) => why = reason,
                    _ => {}
                }
                if let Ok(TimedCase { times, .. }) = self.measure(kernel, group, real) {
                    let flop = kernel.flop(real) as f64;
                    runs.extend(times.run.iter().map(|us| flop / us / 1e3));
                }
            }
        }
        let Some(best) = best else {
            return Cell::Skipped(why);
        };
        let value = match over {
            Over::BestGroup => return Cell::Measured(best),
            Over::Median => quantile(&runs, 0.5),
            Over::Best => quantile(&runs, 1.0),
        };
        let percent = self.peaks.measured.map(|peak| 100.0 * value / peak);
        Cell::Measured(Measured {
            value,
            percent,
            first: None,
            ..measured(&runs)
        })
    }

    /// Measures bias, activations, arg-max and repack on matrices of three shapes, in milliseconds.
    /// With `--sizes` these tables are left out, unless the command line has names.
    fn shapes(&mut self) -> Result<(), Error> {
        let tables = [
            ("thesis_9_1", "Bias (thesis, fig. 9.1)", &BIAS[..]),
            ("thesis_9_2", "Activations (thesis, fig. 9.2)", &ACTIVATIONS),
            ("argmax", "Arg-max of columns", &[Operation::ArgMax]),
            (
                "repack",
                "From row major to column major (thesis, §8.3.3)",
                &[Operation::Repack],
            ),
        ];
        let table_of = |kernel: &Kernel| {
            let has = |operations: &[Operation]| operations.contains(&kernel.operation);
            tables.iter().position(|(_, _, operations)| has(operations))
        };
        let mut named: Vec<&'a Kernel> = self.named();
        named.retain(|k| table_of(k).is_some());
        // Named kernels that belong to different tables get one more table together. Kernels of the
        // same table are side by side anyway.
        if named.iter().any(|k| table_of(k) != table_of(named[0])) {
            self.shape_table("named_shapes", "Kernels that were named", named)?;
        }
        let unnamed = self.options.names.is_empty() && !self.options.sizes.is_empty();
        for (id, title, operations) in tables.into_iter().filter(|_| !unnamed) {
            let kernels = self.kernels.iter().copied();
            let kernels = kernels.filter(|k| operations.contains(&k.operation));
            self.shape_table(id, title, kernels.collect())?;
        }
        Ok(())
    }

    fn shape_table(
        &mut self,
        id: &str,
        title: &str,
        kernels: Vec<&'a Kernel>,
    ) -> Result<(), Error> {
        if kernels.is_empty() || !self.wants(id) {
            return Ok(());
        }
        let mut s = Section {
            columns: SHAPES.iter().map(|(h, w)| format!("{h}×{w}")).collect(),
            plot: Plot::Bars,
            ..Section::new(id, title, "kernel", "ms")
        };
        for k in kernels {
            let problem = |(h, w): (usize, usize)| {
                // The arg-max goes down the columns, so the rows of its operand are the common
                // dimension.
                match k.operation {
                    Operation::ArgMax => Problem { h: 1, w, l: h },
                    Operation::Repack => Problem { h, w, l: h },
                    _ => Problem { h, w, l: 0 },
                }
            };
            let cells = SHAPES.map(|s| self.ms(k, k.restrictions.work_group, problem(s)));
            s.row(&*k.codename, cells.to_vec());
        }
        self.live.section(s)
    }

    /// Measures the Sobel filter on square images. The first image has ARM's size. Larger images
    /// follow until even the fastest kernel takes many times as long as starting a launch.
    fn sobel(&mut self) -> Option<Section> {
        let sobel = self.kernels.iter().copied();
        let sobel = sobel.filter(|k| k.operation == Operation::Sobel);
        let kernels: Vec<&'a Kernel> = match self.wants("arm_1_1") {
            true => sobel.collect(),
            false => Vec::new(),
        };
        let baseline = *kernels.first()?;
        let (mut sizes, mut launch) = (Vec::new(), None);
        for size in self.sizes(&SOBEL_SIZES) {
            sizes.push(size);
            let times: Vec<f64> = kernels
                .iter()
                .filter_map(|k| self.sobel_us(k, size))
                .collect();
            // The tiny image is measured after the larger one. Its time is mostly the start of the
            // kernel, so it would predict far too much for a larger image.
            launch = self.sobel_us(baseline, SOBEL_EMPTY);
            let fastest = times.into_iter().fold(f64::INFINITY, f64::min);
            let enough = launch.is_none_or(|us| fastest >= SOBEL_LAUNCHES * us);
            if enough && self.options.sizes.is_empty() {
                break;
            }
        }
        let mut s = Section {
            larger_is_better: true,
            plot: Plot::Bars,
            ..Section::new(
                "arm_1_1",
                "Sobel filter (ARM, table 1.1)",
                "kernel",
                "pixels per second relative to char",
            )
        };
        for &size in &sizes {
            s.columns.push(format!("{size}×{size}"));
            if size == SOBEL_SIZES[0] {
                s.columns.push("512×512, document (T604)".into());
            }
            s.columns.push(format!("{size}×{size}, million pixels/s"));
        }
        s.columns.extend(SOBEL_COLUMNS.map(String::from));
        for kernel in kernels {
            let mut cells = Vec::new();
            for &size in &sizes {
                cells.extend(self.sobel_size(kernel, size));
            }
            cells.extend(self.sobel_words(kernel));
            s.row(&*kernel.codename, cells);
        }
        if let Some(us) = launch {
            s.note(format!(
                "A launch on {SOBEL_EMPTY}×{SOBEL_EMPTY} pixels takes {us:.1} µs: where an image \
                 takes little more, launches are compared. Without --sizes images grow until each \
                 kernel takes {SOBEL_LAUNCHES} times that."
            ));
        }
        s.note(
            "No driver tells words: benches/mali/run has those that Mesa's compiler makes. Words a \
             cycle, document: words a work-item times the document's pixels a cycle over pixels a \
             work-item.",
        );
        Some(s)
    }

    /// Returns the median microseconds of a Sobel kernel on a `size` × `size` image. `None` if it
    /// was not measured.
    fn sobel_us(&mut self, kernel: &'a Kernel, size: usize) -> Option<f64> {
        let timed = self.measure(kernel, kernel.restrictions.work_group, square(size));
        timed.ok().map(|t| quantile(&t.times.run, 0.5))
    }

    /// Returns a Sobel kernel's cells for images of one size: the speed relative to char, ARM's
    /// figure (only at ARM's size), and million pixels per second.
    fn sobel_size(&mut self, kernel: &'a Kernel, size: usize) -> Vec<Cell> {
        let char = self
            .has("sobel_char")
            .and_then(|char| self.sobel_us(char, size));
        let outcome = self.measure(kernel, kernel.restrictions.work_group, square(size));
        let median = outcome.as_ref().ok().map(|t| quantile(&t.times.run, 0.5));
        let mut cells = vec![match (&outcome, median, char) {
            (Ok(TimedCase { times, error }), Some(median), Some(char)) => {
                let ratios: Vec<f64> = times.run.iter().map(|us| char / us).collect();
                Cell::Measured(Measured {
                    // This is the ratio of the medians, which is exactly 1 for char itself. The
                    // median of the ratios may differ from 1.
                    value: char / median,
                    error: Some(*error),
                    ..measured(&ratios)
                })
            }
            (Err(why), ..) => Cell::Skipped(why.clone()),
            _ => Cell::Empty,
        }];
        if size == SOBEL_SIZES[0] {
            let relative = |row: &SobelRow| Cell::Document(row.rate / SOBEL_DOCUMENT[0].rate);
            cells.push(sobel_document(kernel).map_or(Cell::Empty, relative));
        }
        let pixels = (size * size) as f64;
        let rate = median.map(|us| Cell::Text(format!("{:.1}", pixels / us)));
        cells.push(rate.unwrap_or(Cell::Empty));
        cells
    }

    /// Returns the cells of a Sobel kernel in the columns of [`SOBEL_COLUMNS`].
    fn sobel_words(&mut self, kernel: &Kernel) -> Vec<Cell> {
        let (down, across) = kernel.restrictions.scale;
        let most = self.lab.largest_group(kernel);
        let mut cells = vec![
            Cell::text((down * across).to_string()),
            most.map_or(Cell::Empty, |most| Cell::text(most.to_string())),
        ];
        let figures = sobel_document(kernel).map(|row| {
            // Words per cycle are the words of a work-item times the work-items per cycle.
            let a_cycle =
                |words: u32| Cell::Document(f64::from(words) * row.rate / (down * across) as f64);
            vec![
                Cell::Document(row.largest_group.into()),
                Cell::Text(format!("{} + {}", row.arithmetic, row.load_store)),
                a_cycle(row.arithmetic),
                a_cycle(row.load_store),
            ]
        });
        cells.extend(figures.unwrap_or_else(|| vec![Cell::Empty; 4]));
        cells
    }

    /// Measures the SDK's table: the times that a launch of its kernel is queued, waits and runs.
    fn sdk(&mut self) -> Option<Section> {
        let kernel = self.has(SDK)?;
        let outcome = self.measure(kernel, kernel.restrictions.work_group, cube(1024));
        let cell = |pick: fn(&LaunchTimes) -> &Vec<f64>| match &outcome {
            Ok(TimedCase { times, .. }) => {
                let ms: Vec<f64> = pick(times).iter().map(|us| us / 1e3).collect();
                Cell::Measured(measured(&ms))
            }
            Err(why) => Cell::Skipped(why.clone()),
        };
        let mut s = Section::new("sdk", "sgemm, 1024×1024 (SDK)", "time", "ms");
        s.columns = vec!["here".into(), "document".into()];
        s.row("queued", vec![cell(|t| &t.queued), Cell::Document(0.094)]);
        s.row("wait", vec![cell(|t| &t.wait), Cell::Document(0.074)]);
        s.row("run", vec![cell(|t| &t.run), Cell::Document(1316.41)]);
        Some(s)
    }

    /// Measures the tutorial's table: kernels on column-major matrices, compared with a serial loop
    /// in double precision on the CPU.
    fn tutorial(&mut self) -> Option<Section> {
        let kernels: Vec<&'a Kernel> = TUTORIAL.iter().filter_map(|k| self.has(k)).collect();
        if kernels.is_empty() {
            return None;
        }
        const SIZE: usize = 512;
        let title = "512×512, column major (tutorial)";
        let mut s = Section::new("tutorial", title, "kernel", "ms");
        s.columns = vec!["time".into(), "times faster".into()];
        let serial = serial_ms::<f64>(SIZE);
        let faster = |ms: f64| Cell::Text(format!("{:.1}", serial / ms));
        for (label, ms) in [
            ("serial, double, CPU", serial),
            ("serial, float, CPU", serial_ms::<f32>(SIZE)),
        ] {
            s.row(label, vec![Cell::once(ms), faster(ms)]);
        }
        for kernel in kernels {
            let own = self.ms(kernel, kernel.restrictions.work_group, cube(SIZE));
            let gain = match &own {
                Cell::Measured(m) => faster(m.value),
                _ => Cell::Empty,
            };
            s.row(&*kernel.codename, vec![own, gain]);
        }
        Some(s)
    }

    /// Returns the grid of the thesis's figure 12.1, which shows the order in which work-groups
    /// start.
    fn order(&mut self) -> Option<Section> {
        let kernel = self.has(ORDER)?;
        const SIZE: usize = 33;
        let grid = self.lab.order(kernel, SIZE).ok()?;
        let title = "Order in which work-groups of one work-item start (thesis, fig. 12.1)";
        let mut s = Section::new("order", title, "global id 0", "");
        s.columns = (0..SIZE).map(|i| i.to_string()).collect();
        for (i, row) in grid.chunks_exact(SIZE).enumerate() {
            let cells = row.iter().map(|n| Cell::text(n.to_string()));
            s.row(i.to_string(), cells.collect());
        }
        s.note(
            "Columns are global id 1. Numbered by an atomic counter: the document's kernel is a \
             race.",
        );
        Some(s)
    }
}

/// Returns the row of a Sobel kernel in ARM's table 1.1, if it has one.
fn sobel_document(kernel: &Kernel) -> Option<&'static SobelRow> {
    SOBEL_DOCUMENT
        .iter()
        .find(|row| row.kernel == &*kernel.codename)
}

/// Times the tutorial's three nested loops over column-major matrices of type `T`. Returns
/// milliseconds.
fn serial_ms<T>(size: usize) -> f64
where
    T: Copy + From<f32> + std::ops::Mul<Output = T> + std::iter::Sum<T>,
{
    let values: Vec<T> = (0..size * size)
        .map(|i| T::from(((i * 7919) % 1000) as f32 / 500.0 - 1.0))
        .collect();
    let mut result = vec![T::from(0.0); size * size];
    let start = Instant::now();
    for j in 0..size {
        for i in 0..size {
            result[i + size * j] = (0..size)
                .map(|k| values[i + size * k] * values[k + size * j])
                .sum();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    std::hint::black_box(&result);
    1e3 * seconds
}

/// The number of independent chains of multiply-adds in a kernel that measures their peak.
const CHAINS: f64 = 8.0;

/// Returns true if a kernel for measuring peaks copies memory, false if it multiplies and adds.
fn copies(probe: &Kernel) -> bool {
    probe.codename.ends_with("copy")
}

fn gflops_section(
    id: &str,
    title: &str,
    kernels: &[&Kernel],
    columns: Vec<String>,
    rows: Vec<Row>,
) -> Section {
    let mut s = Section {
        larger_is_better: true,
        columns,
        rows,
        plot: Plot::Lines,
        ..Section::new(id, title, "size", "GFLOPS")
    };
    let flop = counted(kernels);
    s.note(format!(
        "Square products, device time; flop by the library: {flop}; percent of the measured peak."
    ));
    s
}

/// Returns words that say how many floating-point operations `kernels` count for a product.
fn counted(kernels: &[&Kernel]) -> String {
    let mut each: Vec<u32> = kernels.iter().map(|k| k.restrictions.flop).collect();
    each.sort_unstable();
    each.dedup();
    let each: Vec<String> = each.iter().map(u32::to_string).collect();
    let scaled = kernels.iter().any(|k| k.restrictions.scaled);
    let more = if scaled {
        ", with α and β two more a result (of N×N 2N²(N+1), as ARM counts)"
    } else {
        ""
    };
    format!("{} a multiply-add{more}", each.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_takes_as_its_work_says_or_as_it_grew() {
        let near = |found: Option<Cost>, us: f64| (found.unwrap().us / us - 1.0).abs() < 1e-9;
        let cost = |work, us| Cost { work, us, all: 0.1 };
        assert_eq!(predicted(&[], 1e6), None);
        assert!(near(predicted(&[cost(1e6, 50.0)], 8e6), 400.0));
        // If the time grows less than the work, growth in proportion is assumed, since starting the
        // smaller launch took most of its time. Steep growth, where a cache is too small, is
        // limited.
        let launch = [cost(1e5, 40.0), cost(1e6, 50.0)];
        assert!(near(predicted(&launch, 8e6), 400.0));
        let steep = [cost(1e6, 50.0), cost(1e4, 0.05)];
        assert!(near(predicted(&steep, 4e6), 400.0));
        // If two cases have the same work, the slower one predicts.
        let same = [cost(1e6, 50.0), cost(1e6, 70.0)];
        assert!(near(predicted(&same, 2e6), 140.0));
    }
}
