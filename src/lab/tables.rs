//! The documents' tables on this device: which kernels at which sizes, in which shape.

use super::Unsound;
use super::case::{self, Group, Lab, LaunchTimes, Trouble};
use super::live::{Live, STOPPED, stopped};
use super::network::{Guard, measured, quantile};
use super::table::{Cell, Measured, Plot, Row, Section};
use super::{Budget, KernelBench, groups, network};
use crate::baked::library;
use crate::engine::opencl;
use crate::error::Error;
use crate::registry::{Kernel, Operation, Problem};
use std::time::Instant;

/// Sizes of the cache model: table 8.2 of the thesis, and a power of two beside a size that is
/// none.
pub(crate) const CACHE_SIZES: &[usize] = &[96, 192, 384, 768, 1440, 2880, 4000, 4096];

const BY_128: &[usize] = &[
    128, 256, 384, 512, 640, 768, 896, 1000, 1024, 1152, 2048, 4096,
];
const TABLE_8_2: &[usize] = &[96, 192, 384, 768, 1000, 1024, 1440, 2048, 2880, 4096];
const ARM_SIZES: &[usize] = &[96, 192, 384, 768, 1000, 1024, 1440, 2048, 2880, 4096];

/// A table of GFLOPS by size.
struct BySize {
    id: &'static str,
    title: &'static str,
    sizes: &'static [usize],
    kernels: &'static [&'static str],
    /// Figures of the document: the column's name, then (size, GFLOPS).
    document: &'static [(&'static str, &'static [(usize, f64)])],
}

const BY_SIZE: &[BySize] = &[
    BySize {
        id: "thesis_7_1",
        title: "Layouts (thesis, table 7.1)",
        sizes: BY_128,
        kernels: &["matmul_naive", "matmul_rmcm"],
        document: &[
            (
                "RM×RM, document",
                &[
                    (128, 2.516),
                    (256, 0.448),
                    (384, 0.397),
                    (512, 0.330),
                    (640, 0.364),
                    (768, 0.352),
                    (896, 0.332),
                    (1024, 0.304),
                    (1152, 0.283),
                ],
            ),
            (
                "RM×CM, document",
                &[
                    (128, 2.406),
                    (256, 0.599),
                    (384, 0.480),
                    (512, 0.409),
                    (640, 0.449),
                    (768, 0.447),
                    (896, 0.443),
                    (1024, 0.428),
                    (1152, 0.392),
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
            (
                "ARM paper",
                &[
                    (96, 11.2),
                    (192, 13.0),
                    (384, 13.2),
                    (768, 13.1),
                    (1440, 13.1),
                    (2880, 10.8),
                ],
            ),
            (
                "blocked, document",
                &[
                    (96, 11.65),
                    (192, 13.65),
                    (384, 13.08),
                    (768, 12.90),
                    (1440, 12.98),
                    (2880, 2.14),
                ],
            ),
            (
                "Morton 4-2, document",
                &[
                    (96, 13.04),
                    (192, 14.86),
                    (384, 14.19),
                    (768, 13.67),
                    (1440, 13.61),
                    (2880, 13.65),
                ],
            ),
            (
                "Morton 4-4, document",
                &[
                    (96, 12.05),
                    (192, 13.93),
                    (384, 12.94),
                    (768, 12.45),
                    (1440, 12.02),
                    (2880, 11.98),
                ],
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

/// What a cell has of the launches in all work-group sizes of a sweep.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    /// The best work-group's median.
    BestGroup,
    /// The median of all launches together.
    Median,
    /// The best launch.
    Best,
}

/// A kind of product in ARM's tables 1.3 and 1.4.
struct ArmKind {
    /// The column.
    name: &'static str,
    /// The kernels of that kind.
    kernels: &'static [&'static str],
    over: Over,
    /// GFLOPS in the document, at [`ARM_DOCUMENT`].
    document: [f64; 6],
}

/// Sizes of ARM's tables 1.3 and 1.4.
const ARM_DOCUMENT: [usize; 6] = [96, 192, 384, 768, 1440, 2880];

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

/// ARM, table 1.3: the best of each kind, whatever its blocking and work-group.
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

/// ARM, table 1.4: 1×4×4 blocked and cache-blocked NT. ARM ran each work-group size three times,
/// and has the median and the best of all these runs.
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

/// The other columns of ARM's table 1.1.
const SOBEL_COLUMNS: [&str; 6] = [
    "pixels a work-item",
    "largest work-group",
    "largest work-group, document",
    "words a work-item (arithmetic + load-store), document",
    "arithmetic words a cycle, document",
    "load-store words a cycle, document",
];

/// The kernels of a table of the documents that can be asked for by its name; none for the tables
/// of networks.
pub(crate) fn kernels_of(table: &str) -> Option<Vec<&'static Kernel>> {
    let by = |wanted: &dyn Fn(&Kernel) -> bool| {
        Some(
            library()
                .kernels
                .iter()
                .filter(|k| k.source.is_some() && wanted(k))
                .collect(),
        )
    };
    let named = |names: &[&str]| by(&|k| names.contains(&&*k.codename));
    match table {
        "arm_1_1" => by(&|k| k.operation == Operation::Sobel),
        "arm_1_3" => by(&|k| {
            ARM_1_3
                .iter()
                .any(|kind| kind.kernels.contains(&&*k.codename))
        }),
        "arm_1_4" => by(&|k| {
            ARM_1_4
                .iter()
                .any(|kind| kind.kernels.contains(&&*k.codename))
        }),
        "thesis_9_1" => by(&|k| BIAS.contains(&k.operation)),
        "thesis_9_2" => by(&|k| ACTIVATIONS.contains(&k.operation)),
        "sdk" => named(&[SDK]),
        "tutorial" => named(&TUTORIAL),
        "thesis_6" | "thesis_10" => Some(Vec::new()),
        _ => named(BY_SIZE.iter().find(|t| t.id == table)?.kernels),
    }
}

/// The names that [`kernels_of`] knows.
pub(crate) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = BY_SIZE.iter().map(|t| t.id).collect();
    names.extend(["thesis_6", "thesis_9_1", "thesis_9_2", "thesis_10"]);
    names.extend(["arm_1_1", "arm_1_3", "arm_1_4", "sdk", "tutorial"]);
    names
}

/// The operations of figure 9.1, and those of figure 9.2.
const BIAS: [Operation; 1] = [Operation::Bias];
const ACTIVATIONS: [Operation; 3] = [Operation::Sigmoid, Operation::Relu, Operation::Activation];

/// The kernel of the SDK's table, and those of the tutorial's.
const SDK: &str = "matmul_sgemm";
const TUTORIAL: [&str; 3] = [
    "matmul_columns",
    "matmul_columns_local",
    "matmul_columns_local_vector",
];

/// Shapes of figures 9.1 and 9.2.
const SHAPES: [(usize, usize); 3] = [(1024, 1024), (256, 4096), (4096, 256)];

/// Images of the Sobel filter, rows and columns: ARM's, and larger ones for devices whose launches
/// are all that ARM's would measure.
const SOBEL_SIZES: [usize; 5] = [512, 2048, 4096, 8192, 16384];

/// An image with so little to do that its launch is what is measured.
const SOBEL_EMPTY: usize = 16;

/// An image is large enough where the fastest kernel takes so many times the launch of an empty
/// one.
const SOBEL_LAUNCHES: f64 = 20.0;

/// Sobel, ARM's table 1.1 on the Mali-T604: pixels per cycle; the largest work-group; arithmetic
/// and load-store words of a work-item.
const SOBEL_DOCUMENT: [(&str, f64, u32, [u32; 2]); 8] = [
    ("sobel_char", 0.3, 256, [13, 7]),
    ("sobel_char8", 1.8, 128, [17, 9]),
    ("sobel_char16", 1.8, 64, [21, 7]),
    ("sobel_char8_load16", 2.2, 128, [18, 5]),
    ("sobel_char16_swizzle", 2.6, 128, [32, 8]),
    ("sobel_2xchar8", 2.1, 128, [29, 14]),
    ("sobel_2xchar8_load16", 2.5, 128, [32, 7]),
    ("sobel_3xchar8", 1.4, 64, [39, 19]),
];

/// What a kernel took, or why it was not run.
type Outcome = Result<(LaunchTimes, f64), String>;

/// A case that was tried.
struct Done {
    kernel: String,
    group: Group,
    real: Problem,
    outcome: Outcome,
    /// Microseconds of a launch, also where one was enough.
    us: Option<f64>,
    /// Seconds that everything about it took.
    all: f64,
}

/// Multiply-adds, or elements, of a problem.
fn work(p: Problem) -> f64 {
    p.h as f64 * p.w as f64 * p.l.max(1) as f64
}

/// Rows, columns and common dimension of a case that is so small that nothing has to be known
/// before it runs.
const SMALL: usize = 128;

/// What of more than so many times its work a case says nothing.
const FAR: f64 = 8.5;

/// What larger cases may take more than their work says: caches that do not hold them.
const STEEPEST: f64 = 1.5;

/// Microseconds of a launch, and seconds of everything about it, of a case of `work` out of smaller
/// cases (work, microseconds, seconds): from the largest of them, as its time grew since the one
/// before it, at least as its work.
fn predicted(smaller: &[(f64, f64, f64)], work: f64) -> Option<(f64, f64)> {
    let largest = |below: f64| {
        let below = smaller.iter().filter(move |c| c.0 < below);
        below.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))
    };
    let &(last, us, all) = largest(f64::INFINITY)?;
    let grew = largest(last).map_or(1.0, |before| (us / before.1).ln() / (last / before.0).ln());
    let grew = if grew.is_nan() {
        1.0
    } else {
        grew.clamp(1.0, STEEPEST)
    };
    let more = work / last;
    Some((us * more.powf(grew), all * more))
}

/// A table by size that is to be measured.
struct Growing<'a> {
    id: &'static str,
    title: &'static str,
    kernels: Vec<&'a Kernel>,
    sizes: Vec<usize>,
    document: &'static [(&'static str, &'static [(usize, f64)])],
    /// Each kernel with the best work-group of its sweep.
    best: bool,
}

/// Measures and arranges.
pub(crate) struct Tables<'a, 'p> {
    lab: &'a mut Lab,
    kernels: Vec<&'a Kernel>,
    options: &'a KernelBench,
    budget: Budget,
    live: &'a mut Live<'p>,
    done: Vec<Done>,
    peak: Option<f64>,
    nominal: Option<f64>,
    wrong: Vec<Unsound>,
    /// Tables were named, and nothing else.
    only: bool,
}

impl<'a, 'p> Tables<'a, 'p> {
    /// Tables of the given kernels, which are known to be right.
    pub(crate) fn new(
        lab: &'a mut Lab,
        kernels: Vec<&'a Kernel>,
        options: &'a KernelBench,
        budget: Budget,
        live: &'a mut Live<'p>,
    ) -> Tables<'a, 'p> {
        Tables {
            lab,
            kernels,
            options,
            budget,
            live,
            done: Vec::new(),
            peak: None,
            nominal: None,
            wrong: Vec::new(),
            only: !options.names.is_empty()
                && options.names.iter().all(|name| kernels_of(name).is_some()),
        }
    }

    /// Everything that the kernels belong to, within the budget; each table is printed when it is
    /// finished. Gives the kernels that computed something else when they were timed.
    pub(crate) fn run(mut self) -> Result<Vec<Unsound>, Error> {
        let head = self.peaks();
        self.live.head(head)?;
        // What was asked for comes first. Else cheap tables do, and sweeps over work-groups last,
        // so that the time is spent on many tables.
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

    /// Tables whose sizes are those of the documents.
    fn fixed(&mut self) -> Result<(), Error> {
        self.shapes()?;
        if self.options.sizes.is_empty() {
            let sobel = self.sobel();
            self.put(sobel)?;
        }
        type Table<'a, 'p> = fn(&mut Tables<'a, 'p>) -> Option<Section>;
        for (id, table) in [
            ("sdk", Self::sdk as Table<'a, 'p>),
            ("tutorial", Self::tutorial),
            ("order", Self::order),
        ] {
            let section = if stopped() || !self.wants(id) {
                None
            } else {
                table(self)
            };
            self.put(section)?;
        }
        let all = self.options.names.is_empty() && self.options.library.is_none();
        let wanted = ["thesis_10", "thesis_6"].map(|id| all || (self.only && self.wants(id)));
        if wanted.contains(&true) {
            let guard = Guard {
                budget: &self.budget,
                progress: self.live.progress,
            };
            let peaks = (self.peak, self.nominal);
            let live = &mut *self.live;
            let put = &mut |section| live.section(section);
            network::sections(&self.lab.device, peaks, (self.options, wanted), &guard, put)?;
        }
        Ok(())
    }

    fn put(&mut self, section: Option<Section>) -> Result<(), Error> {
        section.map_or(Ok(()), |section| self.live.section(section))
    }

    /// Whether a table is to be measured: nothing but tables was named, and this is none of them.
    fn wants(&self, id: &str) -> bool {
        !self.only || self.options.names.iter().any(|name| name == id)
    }

    fn has(&self, codename: &str) -> Option<&'a Kernel> {
        self.kernels
            .iter()
            .copied()
            .find(|k| k.codename == codename || k.aliases.iter().any(|a| a == codename))
    }

    /// Measures a case once; a launch is predicted from smaller cases of the same kernel.
    fn measure(&mut self, kernel: &'a Kernel, group: Group, real: Problem) -> Outcome {
        let name = &*kernel.codename;
        let same = |d: &&Done| d.kernel == name && d.group == group && d.real == real;
        if let Some(found) = self.done.iter().find(same) {
            return found.outcome.clone();
        }
        if stopped() {
            return Err(STOPPED.into());
        }
        let smaller = |done: &[Done], mine: bool| -> Vec<(f64, f64, f64)> {
            let of = done
                .iter()
                .filter(|d| d.kernel == name && work(d.real) <= work(real));
            let of = of.filter(|d| !mine || d.group == group);
            of.filter_map(|d| Some((work(d.real), d.us?, d.all)))
                .collect()
        };
        // Another work-group tells more than nothing.
        let known = |done: &[Done]| {
            predicted(&smaller(done, true), work(real))
                .or_else(|| predicted(&smaller(done, false), work(real)))
        };
        let large = work(real)
            > work(Problem {
                h: SMALL,
                w: SMALL,
                l: SMALL,
            });
        let near = |done: &[Done]| smaller(done, false).iter().any(|c| c.0 * FAR >= work(real));
        let mut first = Ok(());
        if large && !near(&self.done) {
            // Nothing near was measured: a case of half the sizes first, so that nobody waits for
            // minutes.
            let half = |n: usize| n.min(n.div_ceil(2).max(SMALL));
            let half = Problem {
                h: half(real.h),
                w: half(real.w),
                l: half(real.l),
            };
            first = self.measure(kernel, group, half).map(drop);
        }
        let repeats = self.options.repeat.max(1);
        let refused = match (known(&self.done), first) {
            (Some((us, all)), _) => self
                .budget
                .refuses(us, all.max(us * (repeats + 1) as f64 / 1e6)),
            // What nothing is known of may take any time.
            (None, Err(why)) if large && self.budget.longest().is_some() => Some(why),
            (None, _) => self.budget.refuses(0.0, 0.0),
        };
        let of_time = self.budget.left().map_or(String::new(), |left| {
            format!("{:>4} s left: ", left.as_secs())
        });
        self.live
            .progress
            .show(&format!("{of_time}{name} {}", case::shape(real)));
        let start = Instant::now();
        let mut us = None;
        let outcome = match refused {
            Some(why) => Err(why),
            None => {
                let found = self
                    .lab
                    .time(kernel, group, real, (repeats, self.budget.longest()));
                us = match &found {
                    Ok((times, _)) => Some(quantile(&times.run, 0.5)),
                    Err(Trouble::Slow(us)) => Some(*us),
                    Err(_) => None,
                };
                found.map_err(|trouble| {
                    let text = trouble.to_string();
                    if matches!(trouble, Trouble::Wrong(_))
                        && !self.wrong.iter().any(|u| u.kernel == name)
                    {
                        self.wrong.push(Unsound {
                            kernel: name.to_string(),
                            trouble,
                        });
                    }
                    text
                })
            }
        };
        let all = start.elapsed().as_secs_f64();
        let kernel = name.to_string();
        self.done.push(Done {
            kernel,
            group,
            real,
            outcome: outcome.clone(),
            us,
            all,
        });
        outcome
    }

    /// GFLOPS of a product: flop as its entry of the library counts them.
    fn gflops(&mut self, kernel: &'a Kernel, group: Group, size: usize) -> Cell {
        let real = Problem {
            h: size,
            w: size,
            l: size,
        };
        match self.measure(kernel, group, real) {
            Err(why) => Cell::Skipped(why),
            Ok((times, error)) => {
                let flop = kernel.flop(real) as f64;
                let rates: Vec<f64> = times.run.iter().map(|us| flop / us / 1e3).collect();
                let mut m = measured(&rates);
                m.first = Some(flop / times.first / 1e3);
                m.percent = self.peak.map(|peak| 100.0 * m.value / peak);
                m.error = Some(error);
                Cell::Measured(m)
            }
        }
    }

    fn ms(&mut self, kernel: &'a Kernel, group: Group, real: Problem) -> Cell {
        match self.measure(kernel, group, real) {
            Err(why) => Cell::Skipped(why),
            Ok((times, error)) => {
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

    /// What the device can do at most: multiply-adds on vectors in registers, and a copy.
    fn peaks(&mut self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut best = 0.0f64;
        for kernel in library()
            .kernels
            .iter()
            .filter(|k| k.operation == Operation::Probe)
        {
            let copy = kernel.codename.ends_with("copy");
            // Enough work-items to fill a small device, enough work for its clock to see; 16 times
            // as much where that takes less than 2 ms: launching is then a part of it, and copies
            // are of a cache.
            let small = Problem {
                h: 1 << 10,
                w: if copy {
                    1 << 12
                } else {
                    kernel.restrictions.scale.1 << 6
                },
                l: if copy { 0 } else { 512 },
            };
            let large = if copy {
                Problem {
                    h: small.h << 4,
                    ..small
                }
            } else {
                Problem {
                    l: small.l << 4,
                    ..small
                }
            };
            let mut real = small;
            let shortest =
                |times: &LaunchTimes| times.run.iter().copied().fold(f64::INFINITY, f64::min);
            let mut found_here = self.measure(kernel, None, small);
            if found_here
                .as_ref()
                .is_ok_and(|(times, _)| shortest(times) < 2000.0)
            {
                if let Ok(more) = self.measure(kernel, None, large) {
                    (real, found_here) = (large, Ok(more));
                }
            }
            if let Ok((times, _)) = found_here {
                let us = shortest(&times);
                let text = if copy {
                    let bytes = 2.0 * 4.0 * real.h as f64 * real.w as f64;
                    format!("{:.2} GB/s, read and written", bytes / us / 1e3)
                } else {
                    let each = f64::from(kernel.restrictions.flop) * CHAINS;
                    let flop = each * real.l as f64 * real.h as f64 * real.w as f64;
                    let gflops = flop / us / 1e3;
                    best = best.max(gflops);
                    format!("{gflops:.2} GFLOPS")
                };
                found.push((format!("peak {}", kernel.codename), text));
            }
        }
        self.peak = (best > 0.0).then_some(best);
        let device = &self.lab.device;
        let class = opencl::class(device);
        self.nominal = class
            .map(|c| c.nominal(device.compute_units, device.max_clock))
            .filter(|&n| n > 0.0);
        if let Some(nominal) = self.nominal {
            let clock = device.max_clock;
            found.push((
                "peak, nominal".into(),
                format!("{nominal:.0} GFLOPS, all units at {clock} MHz"),
            ));
        }
        found
    }

    fn sizes(&self, table: &[usize]) -> Vec<usize> {
        if self.options.sizes.is_empty() {
            table.to_vec()
        } else {
            self.options.sizes.clone()
        }
    }

    /// Products in GFLOPS by size.
    fn by_size(&mut self) -> Result<(), Error> {
        let own = |kernels: &[&str]| -> Vec<&'a Kernel> {
            kernels.iter().filter_map(|k| self.has(k)).collect()
        };
        let growing = |id, title, kernels, sizes: &[usize], document| {
            let sizes = self.sizes(sizes);
            Growing {
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
            tables.push(Growing {
                best: true,
                ..table
            });
        }
        tables.extend(
            BY_SIZE
                .iter()
                .map(|t| growing(t.id, t.title, own(t.kernels), t.sizes, t.document)),
        );
        // Products that no document's table has, at the sizes of table 8.2.
        let title = "Other products: SDK, Adreno, tutorial, fused layers";
        tables.push(growing(
            "products",
            title,
            self.other_kernels(),
            TABLE_8_2,
            &[],
        ));
        tables.retain(|t| !t.kernels.is_empty() && self.wants(t.id));
        // All tables grow together from small sizes to large ones, so that the budget serves each
        // of them.
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

    fn size_table(&mut self, table: &Growing<'a>) -> Section {
        let mut columns: Vec<String> = table
            .kernels
            .iter()
            .map(|k| k.codename.to_string())
            .collect();
        columns.extend(table.document.iter().map(|d| d.0.to_string()));
        let mut rows = Vec::new();
        for &size in &table.sizes {
            let mut cells: Vec<Cell> = table
                .kernels
                .iter()
                .map(|k| self.product(k, size, table.best))
                .collect();
            for (_, figures) in table.document {
                let figure = figures.iter().find(|f| f.0 == size);
                cells.push(figure.map_or(Cell::Empty, |f| Cell::Document(f.1)));
            }
            rows.push(Row {
                label: size.to_string(),
                cells,
            });
        }
        let mut s = gflops_section(table.id, table.title, &table.kernels, columns, rows);
        if table.best
            && table
                .kernels
                .iter()
                .any(|k| !k.restrictions.sweep.is_empty())
        {
            s.notes
                .push("Where a kernel has a sweep over work-groups, the best of it.".into());
        }
        s
    }

    /// The kernels that the command line names by themselves, in its order.
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
            BY_SIZE.iter().any(|t| t.kernels.contains(name))
                || ARM_1_3.iter().any(|a| a.kernels.contains(name))
        };
        let product = |k: &Kernel| matches!(k.operation, Operation::Matmul | Operation::Affine);
        self.kernels
            .iter()
            .copied()
            .filter(|k| product(k) && !in_tables(k))
            .collect()
    }

    /// ARM's two tables of products, over the work-group sizes of each kernel's sweep.
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
        let kinds: Vec<(&ArmKind, Vec<&'a Kernel>)> = kinds
            .iter()
            .map(|kind| {
                (
                    kind,
                    kind.kernels
                        .iter()
                        .filter_map(|k| self.has(k))
                        .collect::<Vec<_>>(),
                )
            })
            .filter(|(_, kernels)| !kernels.is_empty())
            .collect();
        if kinds.is_empty() {
            return None;
        }
        let columns = kinds
            .iter()
            .flat_map(|(k, _)| [k.name.to_string(), format!("{}, document", k.name)]);
        let columns = columns.collect();
        let mut rows = Vec::new();
        for size in self.sizes(ARM_SIZES) {
            let at = ARM_DOCUMENT.iter().position(|&s| s == size);
            let mut cells = Vec::new();
            for (kind, kernels) in &kinds {
                cells.push(self.over_groups(kernels, size, kind.over));
                cells.push(at.map_or(Cell::Empty, |i| Cell::Document(kind.document[i])));
            }
            rows.push(Row {
                label: size.to_string(),
                cells,
            });
        }
        let mut s = section(
            id,
            title,
            "size",
            "GFLOPS",
            true,
            columns,
            rows,
            Plot::Lines,
        );
        let all: Vec<&Kernel> = kinds
            .iter()
            .flat_map(|(_, kernels)| kernels.iter().copied())
            .collect();
        s.notes.push(format!(
            "Device time, α = 1, β = 0.1; flop by the library: {}; percent of the measured peak. \
             The document's figures: \
             Mali-T604.",
            counted(&all)
        ));
        if id == "arm_1_3" {
            s.notes
                .push("NT, blocked and cache-blocked: the better of 2×4×2 and 1×4×4.".into());
        }
        Some(s)
    }

    /// What these kernels reach over the work-group sizes of their sweeps.
    fn over_groups(&mut self, kernels: &[&'a Kernel], size: usize, over: Over) -> Cell {
        let real = Problem {
            h: size,
            w: size,
            l: size,
        };
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
                if let Ok((times, _)) = self.measure(kernel, group, real) {
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
        let percent = self.peak.map(|peak| 100.0 * value / peak);
        Cell::Measured(Measured {
            value,
            percent,
            first: None,
            ..measured(&runs)
        })
    }

    /// Bias and activations on three shapes, in milliseconds.
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
        let of = |kernel: &Kernel| tables.iter().position(|t| t.2.contains(&kernel.operation));
        let mut named: Vec<&'a Kernel> = self.named();
        named.retain(|k| of(k).is_some());
        // Of one table they stand side by side anyway.
        if named.iter().any(|k| of(k) != of(named[0])) {
            self.shape_table("named_shapes", "Kernels that were named", named)?;
        }
        for (id, title, operations) in tables {
            let kernels = self
                .kernels
                .iter()
                .copied()
                .filter(|k| operations.contains(&k.operation))
                .collect();
            self.shape_table(id, title, kernels)?;
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
        let mut rows = Vec::new();
        for k in kernels {
            let problem = |(h, w): (usize, usize)| {
                // The arg-max goes down the columns: its operand's rows are the common dimension.
                match k.operation {
                    Operation::ArgMax => Problem { h: 1, w, l: h },
                    Operation::Repack => Problem { h, w, l: h },
                    _ => Problem { h, w, l: 0 },
                }
            };
            let cells = SHAPES
                .map(|s| self.ms(k, k.restrictions.work_group, problem(s)))
                .to_vec();
            rows.push(Row {
                label: k.codename.to_string(),
                cells,
            });
        }
        let columns = SHAPES.iter().map(|(h, w)| format!("{h}×{w}")).collect();
        self.live.section(section(
            id,
            title,
            "kernel",
            "ms",
            false,
            columns,
            rows,
            Plot::Bars,
        ))
    }

    /// The Sobel filter on square images: the document's size, then larger ones until even the
    /// fastest kernel computes for many times as long as a launch takes.
    fn sobel(&mut self) -> Option<Section> {
        let sobel = self
            .kernels
            .iter()
            .copied()
            .filter(|k| k.operation == Operation::Sobel);
        let kernels: Vec<&'a Kernel> = if self.wants("arm_1_1") {
            sobel.collect()
        } else {
            Vec::new()
        };
        let baseline = *kernels.first()?;
        let square = |size: usize| Problem {
            h: size,
            w: size,
            l: 0,
        };
        let median = |o: &Outcome| o.as_ref().ok().map(|(t, _)| quantile(&t.run, 0.5));
        let (mut sizes, mut launch) = (Vec::new(), None);
        for size in self.sizes(&SOBEL_SIZES) {
            sizes.push(size);
            let times: Vec<f64> = kernels
                .iter()
                .filter_map(|k| median(&self.measure(k, k.restrictions.work_group, square(size))))
                .collect();
            // After a larger image, from whose time nothing about it would be predicted.
            launch = median(&self.measure(
                baseline,
                baseline.restrictions.work_group,
                square(SOBEL_EMPTY),
            ));
            let fastest = times.into_iter().fold(f64::INFINITY, f64::min);
            let enough = launch.is_none_or(|us| fastest >= SOBEL_LAUNCHES * us);
            if enough && self.options.sizes.is_empty() {
                break;
            }
        }
        let mut columns = Vec::new();
        for &size in &sizes {
            columns.push(format!("{size}×{size}"));
            if size == SOBEL_SIZES[0] {
                columns.push("512×512, document (T604)".into());
            }
            columns.push(format!("{size}×{size}, million pixels/s"));
        }
        let base = self.has("sobel_char");
        let mut rows: Vec<Row> = kernels
            .iter()
            .map(|k| Row {
                label: k.codename.to_string(),
                cells: Vec::new(),
            })
            .collect();
        for &size in &sizes {
            let pixels = (size * size) as f64;
            let char = base
                .and_then(|k| median(&self.measure(k, k.restrictions.work_group, square(size))));
            for (k, row) in kernels.iter().zip(&mut rows) {
                let outcome = self.measure(k, k.restrictions.work_group, square(size));
                row.cells.push(match (&outcome, char) {
                    (Ok((t, error)), Some(char)) => {
                        let ratios: Vec<f64> = t.run.iter().map(|us| char / us).collect();
                        // The median of ratios is not the ratio of medians: char itself is 1.
                        let value = char / quantile(&t.run, 0.5);
                        Cell::Measured(Measured {
                            value,
                            error: Some(*error),
                            ..measured(&ratios)
                        })
                    }
                    (Err(why), _) => Cell::Skipped(why.clone()),
                    _ => Cell::Empty,
                });
                if size == SOBEL_SIZES[0] {
                    let figure = SOBEL_DOCUMENT.iter().find(|d| d.0 == &*k.codename);
                    let relative = figure.map(|d| Cell::Document(d.1 / SOBEL_DOCUMENT[0].1));
                    row.cells.push(relative.unwrap_or(Cell::Empty));
                }
                let rate = median(&outcome).map(|us| Cell::Text(format!("{:.1}", pixels / us)));
                row.cells.push(rate.unwrap_or(Cell::Empty));
            }
        }
        columns.extend(SOBEL_COLUMNS.map(String::from));
        for (k, row) in kernels.iter().zip(&mut rows) {
            let (down, across) = k.restrictions.scale;
            row.cells.push(Cell::Text((down * across).to_string()));
            let most = self.lab.largest_group(k);
            row.cells
                .push(most.map_or(Cell::Empty, |most| Cell::Text(most.to_string())));
            let figure = SOBEL_DOCUMENT.iter().find(|d| d.0 == &*k.codename);
            let figures = figure.map(|(_, rate, group, [a, ls])| {
                // Words a cycle are those of a work-item times work-items a cycle.
                let a_cycle =
                    |words: u32| Cell::Document(f64::from(words) * rate / (down * across) as f64);
                [
                    Cell::Document((*group).into()),
                    Cell::Text(format!("{a} + {ls}")),
                    a_cycle(*a),
                    a_cycle(*ls),
                ]
            });
            row.cells
                .extend(figures.map_or_else(|| vec![Cell::Empty; 4], Vec::from));
        }
        let mut s = section(
            "arm_1_1",
            "Sobel filter (ARM, table 1.1)",
            "kernel",
            "pixels per second relative to char",
            true,
            columns,
            rows,
            Plot::Bars,
        );
        if let Some(us) = launch {
            s.notes.push(format!(
                "A launch on {SOBEL_EMPTY}×{SOBEL_EMPTY} pixels takes {us:.1} µs: where an image \
                 takes little more, launches \
                 are compared. Without --sizes images grow until each kernel takes \
                 {SOBEL_LAUNCHES} times that."
            ));
        }
        s.notes.push(
            "No driver tells words: benches/mali/run has those that Mesa's compiler makes. Words \
             a cycle, document: words a \
             work-item times the document's pixels a cycle over pixels a work-item."
                .into(),
        );
        Some(s)
    }

    /// Queued, wait and run time of one launch.
    fn sdk(&mut self) -> Option<Section> {
        let kernel = self.has(SDK)?;
        let real = Problem {
            h: 1024,
            w: 1024,
            l: 1024,
        };
        let outcome = self.measure(kernel, kernel.restrictions.work_group, real);
        let cell = |pick: fn(&LaunchTimes) -> &Vec<f64>| match &outcome {
            Ok((times, _)) => {
                let ms: Vec<f64> = pick(times).iter().map(|us| us / 1e3).collect();
                Cell::Measured(measured(&ms))
            }
            Err(why) => Cell::Skipped(why.clone()),
        };
        let row = |label: &str, own: Cell, document: f64| Row {
            label: label.into(),
            cells: vec![own, Cell::Document(document)],
        };
        let rows = vec![
            row("queued", cell(|t| &t.queued), 0.094),
            row("wait", cell(|t| &t.wait), 0.074),
            row("run", cell(|t| &t.run), 1316.41),
        ];
        let columns = vec!["here".into(), "document".into()];
        Some(section(
            "sdk",
            "sgemm, 1024×1024 (SDK)",
            "time",
            "ms",
            false,
            columns,
            rows,
            Plot::None,
        ))
    }

    /// Column-major kernels against a serial loop in double precision on the CPU.
    fn tutorial(&mut self) -> Option<Section> {
        let kernels: Vec<&'a Kernel> = TUTORIAL.iter().filter_map(|k| self.has(k)).collect();
        if kernels.is_empty() {
            return None;
        }
        const SIZE: usize = 512;
        let serial = serial_ms::<f64>(SIZE);
        let mut rows = Vec::new();
        for (label, ms) in [
            ("serial, double, CPU", serial),
            ("serial, float, CPU", serial_ms::<f32>(SIZE)),
        ] {
            let value = Cell::Measured(Measured {
                value: ms,
                runs: 1,
                ..Measured::default()
            });
            rows.push(Row {
                label: label.into(),
                cells: vec![value, Cell::Text(format!("{:.1}", serial / ms))],
            });
        }
        for kernel in kernels {
            let own = self.ms(
                kernel,
                kernel.restrictions.work_group,
                Problem {
                    h: SIZE,
                    w: SIZE,
                    l: SIZE,
                },
            );
            let gain = match &own {
                Cell::Measured(m) => Cell::Text(format!("{:.1}", serial / m.value)),
                _ => Cell::Empty,
            };
            rows.push(Row {
                label: kernel.codename.to_string(),
                cells: vec![own, gain],
            });
        }
        let columns = vec!["time".into(), "times faster".into()];
        Some(section(
            "tutorial",
            "512×512, column major (tutorial)",
            "kernel",
            "ms",
            false,
            columns,
            rows,
            Plot::None,
        ))
    }

    /// The grid of figure 12.1.
    fn order(&mut self) -> Option<Section> {
        let kernel = self.has("order_probe")?;
        const SIZE: usize = 33;
        let grid = self.lab.order(kernel, SIZE).ok()?;
        let rows = grid
            .chunks_exact(SIZE)
            .enumerate()
            .map(|(i, row)| Row {
                label: i.to_string(),
                cells: row.iter().map(|n| Cell::Text(n.to_string())).collect(),
            })
            .collect();
        let columns = (0..SIZE).map(|i| i.to_string()).collect();
        let title = "Order in which work-groups of one work-item start (thesis, fig. 12.1)";
        let mut s = section(
            "order",
            title,
            "global id 0",
            "",
            false,
            columns,
            rows,
            Plot::None,
        );
        s.notes.push(
            "Columns are global id 1. Numbered by an atomic counter: the document's kernel is a \
             race."
                .into(),
        );
        Some(s)
    }
}

/// Milliseconds of the tutorial's three loops over column-major matrices, in one precision.
fn serial_ms<T>(size: usize) -> f64
where
    T: Copy + From<f32> + std::ops::Mul<Output = T> + std::iter::Sum<T>,
{
    let values: Vec<T> = (0..size * size)
        .map(|i| T::from(((i * 7919) % 1000) as f32 / 500.0 - 1.0))
        .collect();
    let mut result = vec![T::from(0.0); size * size];
    let seconds = Lab::host_seconds(|| {
        for j in 0..size {
            for i in 0..size {
                result[i + size * j] = (0..size)
                    .map(|k| values[i + size * k] * values[k + size * j])
                    .sum();
            }
        }
    });
    std::hint::black_box(&result);
    1e3 * seconds
}

/// Independent multiply-add chains of the peak probe.
const CHAINS: f64 = 8.0;

fn gflops_section(
    id: &str,
    title: &str,
    kernels: &[&Kernel],
    columns: Vec<String>,
    rows: Vec<Row>,
) -> Section {
    let mut s = section(
        id,
        title,
        "size",
        "GFLOPS",
        true,
        columns,
        rows,
        Plot::Lines,
    );
    let flop = counted(kernels);
    s.notes.push(format!(
        "Square products, device time; flop by the library: {flop}; percent of the measured peak."
    ));
    s
}

/// What the entries of `kernels` count as flop of a product.
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

#[allow(clippy::too_many_arguments)]
fn section(
    id: &str,
    title: &str,
    rows_are: &str,
    unit: &str,
    larger_is_better: bool,
    columns: Vec<String>,
    rows: Vec<Row>,
    plot: Plot,
) -> Section {
    Section {
        id: id.into(),
        title: title.into(),
        rows_are: rows_are.into(),
        unit: unit.into(),
        larger_is_better,
        columns,
        rows,
        notes: Vec::new(),
        plot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_takes_as_its_work_says_or_as_it_grew() {
        let near = |found: Option<(f64, f64)>, us: f64| (found.unwrap().0 / us - 1.0).abs() < 1e-9;
        assert_eq!(predicted(&[], 1e6), None);
        assert!(near(predicted(&[(1e6, 50.0, 0.1)], 8e6), 400.0));
        // A launch that is nothing but a launch tells little, a cache that does not hold the
        // operands much.
        assert!(near(
            predicted(&[(1e5, 40.0, 0.1), (1e6, 50.0, 0.1)], 8e6),
            400.0
        ));
        assert!(near(
            predicted(&[(1e6, 50.0, 0.1), (1e4, 0.05, 0.1)], 4e6),
            400.0
        ));
        // Two of the same work: the slower one.
        assert!(near(
            predicted(&[(1e6, 50.0, 0.1), (1e6, 70.0, 0.1)], 2e6),
            140.0
        ));
    }
}
