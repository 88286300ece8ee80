//! Makes a plan from a network's graph and a recipe. The planner chooses a kernel for each node,
//! and pads every buffer to sizes that all kernels which use it accept.
//!
//! ```text
//! fuse:   the nodes that one launch of a kernel can compute
//! choose: graph nodes → drafts (kernel, nodes, the matrices that it reads and writes)
//! images: the row of each element of a value; steps over images; steps that only move elements
//! place:  drafts → buffers with padded sizes and layouts, constants, steps
//! arena:  offsets of the hidden buffers    bind: arguments and work-items of a launch
//! check:  verifies a finished plan         contents: the values in its buffers, told by its steps
//! fit:    the memory, programs and time that a finished plan needs
//! whole:  kernels for whole numbers in the finished plan of a network of integers
//! ```

pub(crate) mod arena;
pub(crate) mod bind;
pub(crate) mod check;
mod choose;
pub(crate) mod contents;
pub(crate) mod fit;
mod fuse;
mod images;
mod place;
#[cfg(test)]
mod tests;
pub(crate) mod tiles;
pub(crate) mod whole;

use crate::ir::layout::Layout;
use crate::ir::network::Network;
use crate::ir::op::Activation;
use crate::ir::plan::{Arg, Buffer, BufferRole, Few, Placing, Plan};
use crate::ir::product::Product;
use crate::ir::view::{Geometry, Moved, RowMap};
use crate::registry::{EngineKind, Kernel, Library, Operation, PlanRecipe, lcm};

#[cfg(test)]
thread_local! {
    /// The number of calls of [`plan`] in this thread. Tests count them.
    pub(crate) static CALLS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Plans `network` with the kernels of `recipe`. Without `batch` it takes the recipe's batch size.
/// The recipe's batch size is reduced until the buffers fit the engine's byte limit.
///
/// # Errors
/// Returns all mistakes at once, each with the names of the plan and of a node.
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
        return of_batch(batch.max(1)).map_err(PlanError::mistakes);
    }
    // If the recipe's batch is too large, a plan for one record shows how many bytes a record
    // takes.
    let made = match of_batch(recipe.batch.max(1)) {
        Err(PlanError::TooLarge(mistakes)) => of_batch(1).map_err(|_| mistakes),
        made => made.map_err(PlanError::mistakes),
    }?;
    let bytes = match recipe.engine {
        EngineKind::Host => HOST_BYTES,
        EngineKind::OpenCl => DEVICE_BYTES,
    };
    let most = (bytes / made.record_bytes().max(1)).clamp(1, recipe.batch);
    if made.batch == most {
        return Ok(made);
    }
    // A batch of whole granules wastes no columns of padding.
    let whole = most / made.granule * made.granule;
    match of_batch(if whole > 0 { whole } else { most }) {
        Err(PlanError::TooLarge(_)) => Ok(made),
        smaller => smaller.map_err(PlanError::mistakes),
    }
}

/// Plans batches of `batch` records, and appends the recipe's variant for few records. The variant
/// is left out if it cannot be planned or has the same kernels. If no batch exceeds the variant's
/// limit, the result is the variant alone.
fn with_few(
    network: &Network,
    recipe: &PlanRecipe,
    library: &Library,
    batch: usize,
) -> Result<Plan, PlanError> {
    let Some(few) = &recipe.few else {
        return of_batch(network, recipe, library, batch, None);
    };
    let of_few = recipe.of_few(few);
    // The variant may need a kernel that a shortened recipe lacks. The full plan then runs all
    // batches.
    if batch <= few.records {
        if let Ok(variant) = of_batch(network, &of_few, library, batch, None) {
            return Ok(variant);
        }
    }
    let full = of_batch(network, recipe, library, batch, None)?;
    let Ok(variant) = of_batch(network, &of_few, library, batch, Some(&full)) else {
        return Ok(full);
    };
    // A variant for few records with the same kernels as the full plan gains nothing.
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

/// Returns the plan `full` with the steps of `variant` appended. Returns `None` if inputs or
/// results of both plans have different layouts or sizes.
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

/// The reasons planning can fail.
enum PlanError {
    /// The network cannot be planned at any batch size.
    Mistakes(Vec<String>),
    /// A buffer exceeds the size limit. A smaller batch may fit.
    TooLarge(Vec<String>),
}

impl PlanError {
    fn mistakes(self) -> Vec<String> {
        let (PlanError::Mistakes(mistakes) | PlanError::TooLarge(mistakes)) = self;
        mistakes
    }
}

/// Byte limit for the buffers of a batch on the host. A network with large records gets smaller
/// batches, unless the caller sets the batch size.
const HOST_BYTES: usize = 16 << 20;

/// Byte limit for the buffers of a batch on an OpenCL device, used like [`HOST_BYTES`].
const DEVICE_BYTES: usize = 64 << 20;

/// Plans batches of `batch` records, without a variant for few records. To plan such a variant
/// itself, `full` must be the plan that it belongs to.
fn of_batch(
    network: &Network,
    recipe: &PlanRecipe,
    library: &Library,
    batch: usize,
    full: Option<&Plan>,
) -> Result<Plan, PlanError> {
    // Padded sizes decide if two layouts place a matrix equally, and repack steps change padded
    // sizes. So each round adds the repack steps that the previous round found missing.
    let pixels = vec![1; network.graph.values.len()];
    let mut known = Known {
        full,
        repacks: Vec::new(),
        pixels,
        apart: Vec::new(),
    };
    if let (Some(plan), Some(&value)) = (full, network.graph.inputs.first()) {
        // The variant shares the input buffer of the full plan. So a pixel of its input has as many
        // rows as in the full plan.
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
            return Err(PlanError::Mistakes(planner.errors));
        }
        let unmet: Vec<(Reader, bool)> = planner
            .unmet()
            .map(|l| (l.reader, planner.repackable(l)))
            .collect();
        let wider = planner.wider_pixels();
        // The operands of fused additions can only be compared when all sizes are final.
        let settled = unmet.is_empty() && wider.is_empty();
        let apart = if settled { planner.apart() } else { Vec::new() };
        if settled && apart.is_empty() {
            return planner.place();
        }
        if unmet.iter().any(|u| !u.1) {
            return Err(PlanError::Mistakes(
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

/// Facts that earlier planning rounds found, for the next round.
struct Known<'l> {
    /// The plan for full batches, if the planner is now making its variant for few records.
    full: Option<&'l Plan>,
    /// The steps that must read a repacked copy of their operand.
    repacks: Vec<Reader>,
    /// For each value of the graph, a number. The padded rows of each of the value's pixels must be
    /// a multiple of it.
    pixels: Vec<usize>,
    /// Addition nodes that get a separate step instead of being fused into another step.
    apart: Vec<usize>,
}

/// The reader of a matrix: the last graph node of the reading step, and the step's operation.
type Reader = (usize, Operation);

/// A step of a plan before the sizes of its buffers are known.
struct Draft<'l> {
    kernel: &'l Kernel,
    activation: Activation,
    /// The `Scale` node behind a layer that is fused into the step.
    rescaled: Option<usize>,
    /// True if the step rounds to whole numbers before the activation.
    rounds: bool,
    /// The last graph node that the step computes. The arg-max is no node, so its step has the
    /// number of nodes here.
    node: usize,
    /// The first of the graph nodes that the step computes.
    first: usize,
    /// The nodes whose weights and biases the step reads, each with the activation that follows it.
    weighted: Vec<(usize, Activation)>,
    /// For steps over images: the image that the step reads, the image that it writes, and its
    /// window.
    geometry: Option<Geometry>,
    /// For a step that multiplies two values: the sizes and the rows of both operands.
    product: Option<Product>,
    /// The matrix of the step's second operand. Combinations and products have one, and steps with
    /// a fused addition.
    second: Option<usize>,
    /// The addition node that is fused into the step, and the value that the step adds for it.
    added: Option<(usize, usize)>,
    /// The map of the weights' columns, if they follow the elements of an image.
    placing: Placing,
    /// The maps of the factors and of the summands of a `Scale` step. A `Gather` step has its map
    /// twice.
    moved: [Moved; 2],
    /// The constant that fills result rows without a source row, such as the border of a `Pad`.
    value: f32,
    /// Set for a step that computes the whole network and has a buffer between layers. It holds
    /// that buffer's matrix, and the row where results of odd layers start. Results of even layers
    /// start at row 0.
    hidden: Option<(usize, usize)>,
    /// The number of work-groups that share the common dimension. The first step writes that many
    /// partial results, and the next step adds them.
    parts: usize,
    /// The matrix that the step reads (operand `b`). An in-place step has the same input and
    /// output.
    input: usize,
    /// The matrix that the step writes (operand `r`).
    output: usize,
    flop: u64,
}

impl<'l> Draft<'l> {
    /// Returns the draft of a step that reads matrix `input` and writes matrix `output`, with
    /// neither constants nor an activation.
    fn new(kernel: &'l Kernel, node: usize, (input, output): (usize, usize)) -> Draft<'l> {
        Draft {
            kernel,
            activation: Activation::None,
            rescaled: None,
            rounds: false,
            node,
            first: node,
            weighted: Vec::new(),
            geometry: None,
            product: None,
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

/// A buffer of a plan before its sizes are known.
struct Matrix {
    name: String,
    rows: usize,
    row_multiple: usize,
    layout: Option<Layout>,
    /// Set for a matrix of partial results: their number, and the matrix whose shape each of them
    /// has.
    parts_of: Option<(usize, usize)>,
    /// Set if the rows form pixels: the value whose entry in [`Known::pixels`] applies to them.
    pixels_of: Option<usize>,
    /// True if the kernel writes only whole pixels. Rows behind the last pixel would stay
    /// undefined, so all padding must be inside the pixels.
    by_pixels: bool,
}

/// The matrix that holds a value, and the rows in which the value's elements are.
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

    /// Returns the number of rows with padding. A matrix of partial results has no padding of its
    /// own. For it, call this on the matrix whose shape each part has.
    fn padded(&self) -> usize {
        self.rows.next_multiple_of(self.row_multiple)
    }
}

/// A matrix whose writer and reader name a layout each. Both layouts must place its elements
/// equally.
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
    /// For each value of the graph its view, or `None` before its step is drafted.
    views: Vec<Option<View>>,
    /// The rows that the host writes the network's input into. `views` may name a copy of the input
    /// instead.
    input: Option<View>,
    /// For each node of the graph, true if its step has been drafted.
    done: Vec<bool>,
    links: Vec<Link>,
    known: &'l Known<'l>,
    /// The number that the columns of every matrix must be a multiple of.
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
            input: None,
            done: vec![false; network.graph.nodes.len()],
            links: Vec::new(),
            known,
            col_multiple: 1,
            errors: Vec::new(),
        };
        if let Some(&value) = network.graph.inputs.first() {
            planner.pixels(0, value, 1);
            planner.input = planner.views[value];
        }
        planner.stands_as(0, BufferRole::Input);
        planner
    }

    /// In a variant, gives `matrix` the layout and the rows of the full plan's buffer with this
    /// role. The host then fills and reads the buffers of both plans in the same way.
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

    /// Returns true in a variant if `matrix` has another layout than the full plan's buffer with
    /// this role.
    fn otherwise(&self, matrix: usize, role: BufferRole) -> bool {
        let full = self.known.full;
        let buffer = full.and_then(|plan| plan.buffer(role).map(|i| &plan.buffers[i]));
        let layout = self.matrices[matrix].layout.as_ref();
        buffer.is_some_and(|b| layout.is_some_and(|l| *l != b.layout))
    }

    /// Returns the batch size that kernels are compared for: one record in a variant for few
    /// records, else a full batch.
    fn records(&self) -> usize {
        if self.known.full.is_some() {
            1
        } else {
            self.batch
        }
    }

    /// Records a mistake in a node, in the form `plan P: layers[2]: TEXT`.
    fn mistake(&mut self, node: usize, text: impl std::fmt::Display) {
        let nodes = &self.network.graph.nodes;
        let name = nodes.get(node).map_or("output", |n| &*n.name);
        self.errors
            .push(format!("plan {}: {name}: {text}", self.recipe.name));
    }

    /// Demands that the rows of `matrix` are a multiple of `rows`, and the columns of all matrices
    /// a multiple of `cols`. Both must also be multiples of `layout`'s chunks.
    fn demand(&mut self, matrix: usize, rows: usize, cols: usize, layout: Option<&Layout>) {
        let (y, x) = layout.map_or((1, 1), Layout::granularity);
        let matrix = &mut self.matrices[matrix];
        matrix.row_multiple = lcm(matrix.row_multiple, lcm(rows, y));
        self.col_multiple = lcm(self.col_multiple, lcm(cols, x));
    }
}
