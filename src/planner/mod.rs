//! From a network's graph and a recipe to a plan: chooses the kernel of each step, finds the padded sizes that all
//! kernels around a buffer accept, checks that layouts meet, places the hidden buffers, binds arguments and ranges.
//!
//! ```text
//! fuse:   which nodes one launch of a kernel may compute
//! choose: nodes of the graph → drafts (kernel, what it covers, the matrices that it reads and writes)
//! place:  drafts → buffers with padded sizes and layouts, constants, steps
//! arena:  where hidden buffers stand     bind: arguments and ranges     check: a second opinion on a finished plan
//! ```

mod arena;
pub(crate) mod bind;
pub(crate) mod check;
mod choose;
mod fuse;
mod place;

use crate::ir::layout::Layout;
use crate::ir::network::Network;
use crate::ir::op::Activation;
use crate::ir::plan::Plan;
use crate::registry::{Kernel, Library, Operation, PlanRecipe, lcm};

#[cfg(test)]
thread_local! {
    /// Calls of [`plan`] in this thread.
    pub(crate) static CALLS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Plans `network` under `recipe`; `batch` overrides the recipe's.
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
    // Whether two layouts place a matrix equally is known with its padded sizes, which repack steps change: each turn
    // adds those that the one before missed.
    let mut repacks = Vec::new();
    loop {
        let mut planner =
            Planner::new(network, recipe, library, batch.unwrap_or(recipe.batch).max(1), &repacks);
        planner.refuse_lab_kernels();
        planner.choose();
        if !planner.errors.is_empty() {
            return Err(planner.errors);
        }
        let unmet: Vec<(Reader, bool)> = planner.unmet().map(|l| (l.reader, planner.repackable(l))).collect();
        if unmet.is_empty() {
            return planner.place();
        }
        if unmet.iter().any(|u| !u.1) {
            return Err(planner.unmet().map(|l| l.text.clone()).collect());
        }
        repacks.extend(unmet.into_iter().map(|u| u.0));
    }
}

/// What reads a matrix: a node's step of this operation.
type Reader = (usize, Operation);

/// A step before sizes are known.
struct Draft<'l> {
    kernel: &'l Kernel,
    activation: Activation,
    /// The node that it (last) computes; the number of nodes for the arg-max.
    node: usize,
    /// The affine nodes whose constants it reads, with the activation behind each.
    affine: Vec<(usize, Activation)>,
    /// Of a step for all layers: the matrix of the values between them. Of each record those of even layers stand there
    /// first, those of odd ones from row `.1` on.
    hidden: Option<(usize, usize)>,
    /// Parts of the common dimension that work-groups share: as many results stand in `output` (or in `input`).
    parts: usize,
    /// Matrix it reads (`b`); in-place steps have the same as `output`.
    input: usize,
    /// Matrix it writes (`r`).
    output: usize,
    flop: u64,
}

impl<'l> Draft<'l> {
    /// A step that reads one matrix and writes another (or the same), without constants, activation and parts.
    fn new(kernel: &'l Kernel, node: usize, (input, output): (usize, usize)) -> Draft<'l> {
        let (activation, affine) = (Activation::None, Vec::new());
        Draft { kernel, activation, node, affine, hidden: None, parts: 1, input, output, flop: 0 }
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
}

impl Matrix {
    fn new(name: String, rows: usize, row_multiple: usize, layout: Option<Layout>) -> Matrix {
        Matrix { name, rows, row_multiple, layout, parts_of: None }
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
    /// The matrix of each value of the graph that has one so far.
    matrix_of: Vec<Option<usize>>,
    links: Vec<Link>,
    /// Whose operand is repacked.
    repacks: &'l [Reader],
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
        repacks: &'l [Reader],
    ) -> Planner<'l> {
        let mut matrix_of = vec![None; network.graph.values.len()];
        network.graph.inputs.iter().take(1).for_each(|&v| matrix_of[v] = Some(0));
        Planner {
            network,
            library,
            recipe,
            batch,
            drafts: Vec::new(),
            matrices: vec![Matrix::new("input".into(), network.width, 1, None)],
            matrix_of,
            links: Vec::new(),
            repacks,
            col_multiple: 1,
            errors: Vec::new(),
        }
    }

    /// `plan P: layers[2]: TEXT`
    fn mistake(&mut self, node: usize, text: impl std::fmt::Display) {
        let nodes = &self.network.graph.nodes;
        let name = nodes.get(node).map_or("output", |n| &*n.name);
        self.errors.push(format!("plan {}: {name}: {text}", self.recipe.name));
    }

    /// Adds demands on the size of a matrix.
    fn demand(&mut self, matrix: usize, rows: usize, cols: usize, layout: Option<&Layout>) {
        let (y, x) = layout.map_or((1, 1), Layout::granularity);
        let matrix = &mut self.matrices[matrix];
        matrix.row_multiple = lcm(matrix.row_multiple, lcm(rows, y));
        self.col_multiple = lcm(self.col_multiple, lcm(cols, x));
    }
}
