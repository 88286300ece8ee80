//! From a network's graph and a recipe to a plan: chooses the kernel of each step, finds the padded
//! sizes that all kernels around a buffer accept, checks that layouts meet, places the hidden
//! buffers, binds arguments and ranges.
//!
//! ```text
//! fuse:   which nodes one launch of a kernel may compute
//! choose: nodes of the graph → drafts (kernel, what it covers, the matrices that it reads and writes)
//! images: which rows the elements of values are; steps that know of images, steps that move elements
//! place:  drafts → buffers with padded sizes and layouts, constants, steps
//! arena:  where hidden buffers stand     bind: arguments and ranges     check: a second opinion on a finished plan
//! stands: where values stand, as a finished plan's steps say
//! fit:    what a finished plan takes of a device
//! ```

mod arena;
pub(crate) mod bind;
pub(crate) mod check;
mod choose;
pub(crate) mod fit;
mod fuse;
mod images;
mod place;
pub(crate) mod stands;
#[cfg(test)]
mod tests;

use crate::ir::layout::Layout;
use crate::ir::network::Network;
use crate::ir::op::Activation;
use crate::ir::plan::{Arg, Buffer, BufferRole, Few, Placing, Plan};
use crate::ir::view::{Geometry, Moved, RowMap};
use crate::registry::{EngineKind, Kernel, Library, Operation, PlanRecipe, lcm};

#[cfg(test)]
thread_local! {
    /// Calls of [`plan`] in this thread.
    pub(crate) static CALLS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Plans `network` under `recipe`; `batch` overrides the recipe's, which holds as far as memory
/// allows it.
///
/// # Errors
/// All mistakes at once, each with plan and node.
pub(crate) fn plan(
    network: &Network,
    recipe: &PlanRecipe,
    library: &Library,
    batch: Option<usize>,
) -> Result<Plan, Vec<String>> {
    #[cfg(test)]
    CALLS.set(CALLS.get() + 1);
    let of_batch = |batch| with_few(network, recipe, library, batch);
    if let Some(batch) = batch {
        return of_batch(batch.max(1)).map_err(Refused::mistakes);
    }
    // A single record tells how many have room.
    let made = match of_batch(recipe.batch.max(1)) {
        Err(Refused::TooLarge(mistakes)) => of_batch(1).map_err(|_| mistakes),
        made => made.map_err(Refused::mistakes),
    }?;
    let bytes = match recipe.engine {
        EngineKind::Host => HOST_BYTES,
        EngineKind::OpenCl => DEVICE_BYTES,
    };
    let most = (bytes / made.record_bytes().max(1)).clamp(1, recipe.batch);
    if made.batch == most {
        return Ok(made);
    }
    // Whole granules, if there is room for one.
    let whole = most / made.granule * made.granule;
    match of_batch(if whole > 0 { whole } else { most }) {
        Err(Refused::TooLarge(_)) => Ok(made),
        smaller => smaller.map_err(Refused::mistakes),
    }
}

/// A plan for batches of `batch` records, with its variant for few records: where there are never
/// more, that alone.
fn with_few(
    network: &Network,
    recipe: &PlanRecipe,
    library: &Library,
    batch: usize,
) -> Result<Plan, Refused> {
    let Some(few) = &recipe.few else {
        return of_batch(network, recipe, library, batch, None);
    };
    let of_few = recipe.of_few(few);
    // A recipe that somebody has cut down may lack what its variant needs.
    if batch <= few.records {
        if let Ok(variant) = of_batch(network, &of_few, library, batch, None) {
            return Ok(variant);
        }
    }
    let full = of_batch(network, recipe, library, batch, None)?;
    let Ok(variant) = of_batch(network, &of_few, library, batch, Some(&full)) else {
        return Ok(full);
    };
    // Where no kernel is another one, nothing is gained.
    let same = full
        .steps
        .iter()
        .map(|s| &s.kernel)
        .eq(variant.steps.iter().map(|s| &s.kernel));
    let joined = if same {
        None
    } else {
        joined(&full, variant, few.records)
    };
    Ok(joined.unwrap_or(full))
}

/// A plan with the steps of a variant behind its own; `None` where their inputs or results stand
/// differently.
fn joined(full: &Plan, variant: Plan, records: usize) -> Option<Plan> {
    let mut buffers = full.buffers.to_vec();
    let place = |of: &Buffer| {
        if of.role == BufferRole::Hidden {
            buffers.push(of.clone());
            return Some(buffers.len() - 1);
        }
        let shared = full.buffer(of.role)?;
        let like = |b: &Buffer| (b.layout.clone(), b.padded_rows, b.map);
        (like(of) == like(&full.buffers[shared])).then_some(shared)
    };
    let places = variant
        .buffers
        .iter()
        .map(place)
        .collect::<Option<Vec<usize>>>()?;
    let mut steps = full.steps.to_vec();
    let first = steps.len();
    steps.extend(variant.steps.into_owned());
    for arg in steps[first..].iter_mut().flat_map(|s| s.args.to_mut()) {
        if let Arg::Buffer(i) = arg {
            *i = places[*i];
        }
    }
    Some(Plan {
        few: Some(Few {
            records,
            first,
            granule: variant.granule,
        }),
        constants: variant.constants,
        buffers: buffers.into(),
        arena_bytes: full.arena_bytes.max(variant.arena_bytes),
        arena_bound: full.arena_bound.max(variant.arena_bound),
        steps: steps.into(),
        ..full.clone()
    })
}

/// Why there is no plan.
enum Refused {
    /// There would be none for another batch.
    Mistakes(Vec<String>),
    /// Its buffers have more bytes than there can be; those of a smaller batch may not.
    TooLarge(Vec<String>),
}

impl Refused {
    fn mistakes(self) -> Vec<String> {
        let (Refused::Mistakes(mistakes) | Refused::TooLarge(mistakes)) = self;
        mistakes
    }
}

/// Bytes of buffers that a batch of the recipe's size may take on the host. A network with more
/// values a record gets smaller batches, unless a size is asked for.
const HOST_BYTES: usize = 16 << 20;

/// The same on a device.
const DEVICE_BYTES: usize = 64 << 20;

/// A plan for batches of `batch` records; of a variant for few of them, `full` is the plan that it
/// belongs to.
fn of_batch(
    network: &Network,
    recipe: &PlanRecipe,
    library: &Library,
    batch: usize,
    full: Option<&Plan>,
) -> Result<Plan, Refused> {
    // Whether two layouts place a matrix equally is known with its padded sizes, which repack steps
    // change: each turn adds those that the one before missed.
    let pixels = vec![1; network.graph.values.len()];
    let mut known = Known {
        full,
        repacks: Vec::new(),
        pixels,
        apart: Vec::new(),
    };
    if let (Some(plan), Some(&value)) = (full, network.graph.inputs.first()) {
        // Its pixels are as wide as those of the full batch.
        let shape = network.graph.values[value].shape;
        let input = plan
            .buffer(BufferRole::Input)
            .and_then(|i| plan.buffers[i].map.as_image(shape));
        input
            .iter()
            .for_each(|image| known.pixels[value] = image.pixel);
    }
    loop {
        let mut planner = Planner::new(network, recipe, library, batch, &known);
        planner.refuse_lab_kernels();
        planner.choose();
        if !planner.errors.is_empty() {
            return Err(Refused::Mistakes(planner.errors));
        }
        let unmet: Vec<(Reader, bool)> = planner
            .unmet()
            .map(|l| (l.reader, planner.repackable(l)))
            .collect();
        let wider = planner.wider_pixels();
        // What stands alike is known once nothing else changes.
        let settled = unmet.is_empty() && wider.is_empty();
        let apart = if settled { planner.apart() } else { Vec::new() };
        if settled && apart.is_empty() {
            return planner.place();
        }
        if unmet.iter().any(|u| !u.1) {
            return Err(Refused::Mistakes(
                planner.unmet().map(|l| l.text.clone()).collect(),
            ));
        }
        let unmet: Vec<Reader> = unmet.into_iter().map(|u| u.0).collect();
        known.repacks.extend(unmet);
        known.apart.extend(apart);
        wider
            .into_iter()
            .for_each(|(value, rows)| known.pixels[value] = rows);
    }
}

/// What the turns before have found out.
struct Known<'l> {
    /// The plan for full batches, whose variant for few records is made.
    full: Option<&'l Plan>,
    /// Whose operand is repacked.
    repacks: Vec<Reader>,
    /// What the rows of a pixel of each value are a multiple of.
    pixels: Vec<usize>,
    /// Additions that are no part of the step before them.
    apart: Vec<usize>,
}

/// What reads a matrix: a node's step of this operation.
type Reader = (usize, Operation);

/// A step before sizes are known.
struct Draft<'l> {
    kernel: &'l Kernel,
    activation: Activation,
    /// The node that it (last) computes; the number of nodes for the arg-max.
    node: usize,
    /// The first node that it computes.
    first: usize,
    /// The nodes whose weights and biases it reads, with the activation behind each.
    weighted: Vec<(usize, Activation)>,
    /// Of a step that knows of images: where it reads and writes.
    geometry: Option<Geometry>,
    /// The second of two operands: of a combination, or what is added to sums of products.
    second: Option<usize>,
    /// The node that adds it to sums of products, and its value.
    added: Option<(usize, usize)>,
    /// Where the numbers of its constants stand: of weights with columns for the elements of a
    /// value.
    placing: Placing,
    /// The numbers of its factors and of its summands that belong to the rows; or twice the rows
    /// that it moves.
    moved: [Moved; 2],
    /// What stands in rows for which there is nothing to read.
    value: f32,
    /// Of a step for all layers whose kernel has a buffer for what is between them: the matrix of
    /// these values. Of each record those of even layers stand there first, those of odd ones from
    /// row `.1` on.
    hidden: Option<(usize, usize)>,
    /// Parts of the common dimension that work-groups share: as many results stand in `output` (or
    /// in `input`).
    parts: usize,
    /// Matrix it reads (`b`); in-place steps have the same as `output`.
    input: usize,
    /// Matrix it writes (`r`).
    output: usize,
    flop: u64,
}

impl<'l> Draft<'l> {
    /// A step that reads one matrix and writes another (or the same), without constants, activation
    /// and parts.
    fn new(kernel: &'l Kernel, node: usize, (input, output): (usize, usize)) -> Draft<'l> {
        Draft {
            kernel,
            activation: Activation::None,
            node,
            first: node,
            weighted: Vec::new(),
            geometry: None,
            second: None,
            added: None,
            placing: Placing::Plain,
            moved: [Moved::default(); 2],
            value: 0.0,
            hidden: None,
            parts: 1,
            input,
            output,
            flop: 0,
        }
    }
}

/// A buffer before sizes are known.
struct Matrix {
    name: String,
    rows: usize,
    row_multiple: usize,
    layout: Option<Layout>,
    /// It holds this many results of the shape of another matrix.
    parts_of: Option<(usize, usize)>,
    /// The value that its rows are the pixels of: as wide as they were made for that one.
    pixels_of: Option<usize>,
    /// Its kernel writes whole pixels only: there may be no rows behind the last one, which would
    /// hold anything.
    by_pixels: bool,
}

/// The rows of a value.
#[derive(Clone, Copy, Debug)]
struct View {
    matrix: usize,
    map: RowMap,
}

impl Matrix {
    fn new(name: String, rows: usize, row_multiple: usize, layout: Option<Layout>) -> Matrix {
        Matrix {
            name,
            rows,
            row_multiple,
            layout,
            parts_of: None,
            pixels_of: None,
            by_pixels: false,
        }
    }

    /// Rows with padding, where it does not hold parts.
    fn padded(&self) -> usize {
        self.rows.next_multiple_of(self.row_multiple)
    }
}

/// Two layouts that must place a matrix equally: that of who wrote it and that of who reads it.
struct Link {
    matrix: usize,
    reader: Reader,
    gives: Layout,
    takes: Layout,
    text: String,
}

struct Planner<'l> {
    network: &'l Network,
    library: &'l Library,
    recipe: &'l PlanRecipe,
    batch: usize,
    drafts: Vec<Draft<'l>>,
    matrices: Vec<Matrix>,
    /// The rows of each value of the graph that has some so far.
    views: Vec<Option<View>>,
    /// Nodes that have been drafted.
    done: Vec<bool>,
    links: Vec<Link>,
    /// What the turns before have found out.
    known: &'l Known<'l>,
    /// Columns of every matrix are a multiple of this.
    col_multiple: usize,
    errors: Vec<String>,
}

impl<'l> Planner<'l> {
    fn new(
        network: &'l Network,
        recipe: &'l PlanRecipe,
        library: &'l Library,
        batch: usize,
        known: &'l Known<'l>,
    ) -> Planner<'l> {
        let input = Matrix::new("input".into(), 0, 1, None);
        let mut planner = Planner {
            network,
            library,
            recipe,
            batch,
            drafts: Vec::new(),
            matrices: vec![input],
            views: vec![None; network.graph.values.len()],
            done: vec![false; network.graph.nodes.len()],
            links: Vec::new(),
            known,
            col_multiple: 1,
            errors: Vec::new(),
        };
        network
            .graph
            .inputs
            .iter()
            .take(1)
            .for_each(|&v| planner.pixels(0, v, 1));
        planner.stands_as(0, BufferRole::Input);
        planner
    }

    /// Of a variant: what is written into or read out of a matrix from outside stands where the
    /// plan for full batches has it.
    fn stands_as(&mut self, matrix: usize, role: BufferRole) {
        let Some(plan) = self.known.full else { return };
        let Some(buffer) = plan.buffer(role).map(|i| &plan.buffers[i]) else {
            return;
        };
        self.demand(matrix, buffer.padded_rows, 1, Some(&buffer.layout));
        self.matrices[matrix]
            .layout
            .get_or_insert_with(|| buffer.layout.clone());
    }

    /// Records that sizes of work are compared for.
    fn records(&self) -> usize {
        if self.known.full.is_some() {
            1
        } else {
            self.batch
        }
    }

    /// `plan P: layers[2]: TEXT`
    fn mistake(&mut self, node: usize, text: impl std::fmt::Display) {
        let nodes = &self.network.graph.nodes;
        let name = nodes.get(node).map_or("output", |n| &*n.name);
        self.errors
            .push(format!("plan {}: {name}: {text}", self.recipe.name));
    }

    /// Adds demands on the size of a matrix.
    fn demand(&mut self, matrix: usize, rows: usize, cols: usize, layout: Option<&Layout>) {
        let (y, x) = layout.map_or((1, 1), Layout::granularity);
        let matrix = &mut self.matrices[matrix];
        matrix.row_multiple = lcm(matrix.row_multiple, lcm(rows, y));
        self.col_multiple = lcm(self.col_multiple, lcm(cols, x));
    }
}
