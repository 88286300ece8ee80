//! Computes the memory and the programs that a plan needs on a device, and its expected time.

use super::HOST_BYTES;
use super::tiles::{self, TileSize};
use crate::ir::network::Network;
use crate::ir::plan::{Arg, Buffer, BufferRole, Constant, Plan, SLOTS, Step, TEXT_BYTES};
use crate::registry::{DeviceClass, EngineKind, Library, Operation, PlanRecipe};

/// Bytes that a plan needs on a device. The program, its kernels and the driver do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) constants: u64,
    /// Bytes of the buffers for values between steps.
    pub(crate) arena: u64,
    /// Bytes of the buffers for the inputs and results of all slots, the batches in memory at once.
    pub(crate) batch: u64,
}

/// The size of weights in bytes from which the host engine splits an affine layer by rows. It is
/// the size of a core's second-level cache. The layer's operand and result are kept for the whole
/// batch.
pub(crate) const LARGE: usize = 1 << 20;

/// Returns the bytes of a step's weights for Winograd tiles. The host engine computes these weights
/// at start. Returns 0 for steps without such tiles.
fn tiles_of(plan: &Plan, step: &Step) -> u64 {
    let (Some(Arg::Geometry(geometry)), Operation::Convolution) =
        (step.args.first(), step.operation)
    else {
        return 0;
    };
    let outputs = step
        .constants()
        .next()
        .map_or(0, |c| plan.constants[c].padded.0);
    // Not every instruction set has both sizes of tiles, so the larger need counts.
    let bytes = |sizes: &[TileSize]| {
        let size = tiles::by_tiles(geometry, outputs, sizes.iter().copied());
        size.map_or(0, |size| size.weight_bytes(geometry, outputs))
    };
    bytes(&TileSize::ALL).max(bytes(&[TileSize::Two])) as u64
}

impl Memory {
    /// Returns the memory that `plan` needs. With `apart` each hidden buffer is separate, as on
    /// devices with memory of their own. For the host engine the result is an upper bound, since it
    /// runs few records of an image network at once. It does not count the memory of threads within
    /// a step, nor the 256 KB of windows that a thread may have for records that threads share.
    pub(crate) fn of(plan: &Plan, apart: bool) -> Memory {
        let of_role = |hidden: bool| {
            plan.buffers
                .iter()
                .filter(move |b| (b.role == BufferRole::Hidden) == hidden)
        };
        let slots = SLOTS as u64;
        let (arena, batch) = match plan.engine {
            EngineKind::OpenCl => {
                let bytes = |b: &Buffer| (b.padded_rows * 4) as u64 * plan.padded_batch as u64;
                let hidden = if apart {
                    of_role(true).map(bytes).sum()
                } else {
                    plan.arena_bytes as u64
                };
                (hidden, slots * of_role(false).map(bytes).sum::<u64>())
            }
            EngineKind::Host => {
                // Records start on cache lines. One more line per record avoids distances of whole
                // pages.
                let bytes = |b: &Buffer| ((b.padded_rows.next_multiple_of(16) + 16) * 4) as u64;
                let whole = |&(i, _): &(usize, &Buffer)| !of_images(plan) || meets_large(plan, i);
                let buffers = plan
                    .buffers
                    .iter()
                    .enumerate()
                    .filter(|(_, b)| b.role == BufferRole::Hidden);
                let hidden: u64 = buffers.filter(whole).map(|(_, b)| bytes(b)).sum();
                let tile = if of_images(plan) {
                    plan.arena_bytes as u64
                } else {
                    0
                };
                let input = of_role(false).find(|b| b.role == BufferRole::Input);
                let text = input.map_or(0, |b| b.rows * TEXT_BYTES) as u64;
                let of_slots = of_role(false).map(bytes).sum::<u64>() + text;
                (
                    (hidden + tile) * plan.batch as u64,
                    slots * of_slots * plan.batch as u64,
                )
            }
        };
        let tiles = match plan.engine {
            EngineKind::OpenCl => 0,
            EngineKind::Host => plan.steps.iter().map(|s| tiles_of(plan, s)).sum(),
        };
        Memory {
            constants: plan.constant_bytes() as u64 + tiles,
            arena,
            batch,
        }
    }

    /// Returns the bytes of constants, arena and slots together.
    pub(crate) fn total(&self) -> u64 {
        self.constants + self.arena + self.batch
    }
}

/// Returns true if the plan has a step other than affine layers, activations and arg-max. A thread
/// of the host engine then takes only a few records at once through the steps.
fn of_images(plan: &Plan) -> bool {
    let vectors = |s: &Step| {
        use Operation::{Activation, Affine, ArgMax, Relu, Sigmoid};
        matches!(s.operation, Affine | Activation | Relu | Sigmoid | ArgMax)
    };
    !plan.steps.iter().all(vectors)
}

/// Returns true if an affine layer with at least [`LARGE`] bytes of weights uses buffer `i`.
fn meets_large(plan: &Plan, i: usize) -> bool {
    let large = |a: &Arg| matches!(a, Arg::Constant(c) if plan.constants[*c].bytes() >= LARGE);
    let of_layer = |s: &&Step| s.operation == Operation::Affine && s.args.iter().any(large);
    plan.steps
        .iter()
        .filter(of_layer)
        .any(|s| s.args.contains(&Arg::Buffer(i)))
}

/// Returns the largest batch size below `plan`'s that needs at most `most` bytes. 0 if none does.
pub(crate) fn bounded(
    network: &Network,
    (recipe, library): (&PlanRecipe, &Library),
    plan: &Plan,
    most: u64,
    apart: bool,
) -> usize {
    let fits = |batch: usize| {
        super::plan(network, recipe, library, Some(batch))
            .is_ok_and(|plan| Memory::of(&plan, apart).total() <= most)
    };
    let (mut fitting, mut too_many) = (0, plan.batch);
    while fitting + 1 < too_many {
        let middle = fitting.midpoint(too_many);
        if fits(middle) {
            fitting = middle
        } else {
            too_many = middle
        }
    }
    // A part of a granule needs the memory of a whole granule, so a multiple of granules is
    // preferred.
    let whole = fitting / plan.granule * plan.granule;
    if whole > 0 && fits(whole) {
        whole
    } else {
        fitting
    }
}

/// The fewest threads for which [`grow`] enlarges the host engine's batch.
const MANY_THREADS: usize = 4;

/// The factor by which [`grow`] enlarges the host engine's batch.
const GROWTH: usize = 4;

/// [`grow`] enlarges a batch if a thread's share has at most this many floating-point operations.
/// With more, the cost of handing out a batch is negligible.
const SHORT: u64 = 20_000_000;

/// Enlarges the batch of a host plan if a thread's share of it is too short. The larger batch must
/// fit into [`HOST_BYTES`] and `most`. Only the batch sizes of the plan change.
pub(crate) fn grow(plan: &mut Plan, flop: u64, threads: usize, most: Option<u64>) {
    let share = flop * plan.batch as u64 / threads.max(1) as u64;
    if threads < MANY_THREADS
        || share > SHORT
        || plan.record_bytes() * plan.batch * GROWTH > HOST_BYTES
    {
        return;
    }
    let before = (plan.batch, plan.padded_batch);
    (plan.batch, plan.padded_batch) = (before.0 * GROWTH, before.1 * GROWTH);
    if most.is_some_and(|most| Memory::of(plan, false).total() > most) {
        (plan.batch, plan.padded_batch) = before;
    }
}

/// Returns the source's path and the compiler's options of a step. Both are empty on the host
/// engine.
pub(crate) fn program(plan: &Plan, step: &Step, library: &Library) -> (String, String) {
    let Some((_, kernel)) = library.kernel(&step.kernel) else {
        return Default::default();
    };
    let source = kernel.source.as_deref().unwrap_or_default().to_string();
    // Biases are F32, the first number format, so the last format among the constants is that of
    // the weights.
    let stored = plan.constants_of(step).map(Constant::weights);
    let weights = stored.max_by_key(|&p| p as u8).unwrap_or_default();
    let weights = kernel.restrictions.weights(weights);
    let options = kernel.options(step.activation, weights, step.local, &step.options);
    (source, options)
}

/// Returns the number of OpenCL programs that `plan` builds at start.
pub(crate) fn programs(plan: &Plan, library: &Library) -> usize {
    let of_device = |_: &&Step| plan.engine == EngineKind::OpenCl;
    let mut all: Vec<(String, String)> = Vec::new();
    for program in plan
        .steps
        .iter()
        .filter(of_device)
        .map(|s| program(plan, s, library))
    {
        if !all.contains(&program) {
            all.push(program);
        }
    }
    all.len()
}

/// Returns the expected microseconds of a batch, on a device of `class` or on `threads` threads of
/// a host class. The batch has `records` records, each with `flop` floating-point operations.
pub(crate) fn modelled_us(
    class: &DeviceClass,
    engine: EngineKind,
    threads: usize,
    steps: usize,
    (records, flop): (usize, u64),
) -> f64 {
    // Sending the input and reading the results cost about a launch each. On an H200 the two took
    // 23 µs together, and a launch took 8.6 µs.
    let launches = if engine == EngineKind::Host {
        1
    } else {
        steps + 2
    };
    let flop = flop as f64 * records as f64;
    launches as f64 * class.launch_us + flop / (class.gflops * threads as f64) / 1e3
}

/// The memory, launches and expected time of a plan.
pub(crate) struct Fit<'l> {
    /// The number of records in a full batch of the plan.
    pub(crate) batch: usize,
    /// The memory that the plan needs on a device that shares memory with the host.
    pub(crate) memory: Memory,
    /// Two sizes of the arena in bytes: the lower bound and the actual size. On a device they are
    /// for a batch, on the host engine for a record.
    pub(crate) arena: (usize, usize),
    /// The number of launches for each full batch.
    pub(crate) steps: usize,
    /// The number of OpenCL programs that the plan builds at start.
    pub(crate) programs: usize,
    /// The first device class that uses the plan, and its expected microseconds for a record. For a
    /// host plan it is the CPU's class. `None` if there is no such class.
    pub(crate) modelled: Option<(&'l str, f64)>,
}

impl<'l> Fit<'l> {
    /// Returns what `plan` needs. `host` is the CPU architecture and the number of threads.
    pub(crate) fn of(plan: &Plan, library: &'l Library, host: (&str, usize), flop: u64) -> Fit<'l> {
        let (arch, threads) = host;
        let (class, rate) = match plan.engine {
            EngineKind::Host => (library.host_class(arch), threads),
            EngineKind::OpenCl => (library.devices.iter().find(|c| c.plan == plan.name), 1),
        };
        let of_batch = |class| {
            modelled_us(
                class,
                plan.engine,
                rate,
                plan.full().len(),
                (plan.batch, flop),
            )
        };
        Fit {
            batch: plan.batch,
            memory: Memory::of(plan, false),
            arena: (plan.arena_bound, plan.arena_bytes),
            steps: plan.full().len(),
            programs: programs(plan, library),
            modelled: class.map(|c| (&*c.name, of_batch(c) / plan.batch as f64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baked::{library, network};
    use crate::planner;

    /// `bounded` returns a batch that fits, and a batch with one granule more does not fit. If not
    /// even one record fits, it returns 0.
    #[test]
    fn batches_are_as_large_as_memory_allows() {
        for recipe in library().plans.iter() {
            let of = |batch| planner::plan(network(), recipe, library(), batch).unwrap();
            let full = of(None);
            for apart in [false, true] {
                let total = |batch| Memory::of(&of(Some(batch)), apart).total();
                let find = |most| bounded(network(), (recipe, library()), &full, most, apart);
                let all = Memory::of(&full, apart);
                assert!(all.constants > 0 && all.batch > 0, "{}", recipe.name);
                for most in [
                    all.total() - 1,
                    all.total() / 2,
                    all.constants + all.batch / 5,
                ] {
                    let batch = find(most);
                    assert!(batch < full.batch, "{}", recipe.name);
                    assert!(
                        batch == 0 || total(batch) <= most,
                        "{}: {batch} in {most}",
                        recipe.name
                    );
                    // A part of a granule needs as much memory as a whole granule.
                    let next = batch + full.granule;
                    assert!(
                        next >= full.batch || total(next) > most,
                        "{}: {batch}",
                        recipe.name
                    );
                }
                assert_eq!(find(total(1) - 1), 0, "{}", recipe.name);
            }
        }
    }

    /// Programs with equal source and options count once. Steps of the host engine do not count.
    #[test]
    fn programs_are_counted_once() {
        let count = |name: &str| {
            let recipe = library().plan(name).unwrap();
            programs(
                &planner::plan(network(), recipe, library(), None).unwrap(),
                library(),
            )
        };
        assert_eq!(count("host"), 0);
        // Each of the network's two layers takes three launches. The arg-max follows.
        let morton = planner::plan(
            network(),
            library().plan("thesis-morton").unwrap(),
            library(),
            None,
        )
        .unwrap();
        assert!(count("thesis-morton") < morton.steps.len() && count("thesis-morton") >= 4);
    }
}
