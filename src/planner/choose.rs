//! First pass: which kernel computes which nodes, and what it demands of the matrices around it.

use super::{Draft, Link, Matrix, Planner};
use crate::ir::layout::Layout;
use crate::ir::network::Kind;
use crate::ir::op::{Activation, Op};
use crate::registry::{Kernel, Operation, Problem, lcm};

/// Fewest columns of the weights that a work-group of a split layer adds up: below, its overhead is larger.
const LEAST_PART: usize = 48;

/// Most groups of records that a step for all layers numbers in half a word.
const MOST_GROUPS: usize = 1 << 16;

impl<'l> Planner<'l> {
    /// Drafts the steps of all nodes and of the arg-max.
    pub(super) fn choose(&mut self) {
        if self.whole().is_some() {
            return;
        }
        let graph = &self.network.graph;
        let mut done = vec![false; graph.nodes.len()];
        for i in 0..graph.nodes.len() {
            if done[i] {
                continue;
            }
            let covered = match graph.nodes[i].op {
                Op::Affine => self.affine(i),
                Op::Activation(a) => {
                    Operation::of_activation(a).into_iter().for_each(|o| self.in_place(o, i, Vec::new()));
                    vec![i]
                }
            };
            covered.into_iter().for_each(|n| done[n] = true);
        }
        let nodes = graph.nodes.len();
        if self.network.output.kind != Kind::Classes || !self.errors.is_empty() {
            return;
        }
        let Some(kernel) = self.kernel(Operation::ArgMax) else { return self.missing(nodes, "argmax") };
        let Some(input) = self.matrix_of[graph.outputs[0]] else { return };
        self.reads(kernel, input, nodes);
        self.draft(kernel, nodes, (input, input), 0);
    }

    /// Kernels that are compiled with more than a plan's options stay out of plans.
    pub(super) fn refuse_lab_kernels(&mut self) {
        for name in self.recipe.kernels.iter() {
            if let Some((_, k)) = self.library.kernel(name).filter(|(_, k)| !k.lab_options.is_empty()) {
                self.errors.push(format!(
                    "plan {}: {name} is compiled with {}, which may change results: it is for bench, not for plans",
                    self.recipe.name, k.lab_options
                ));
            }
        }
    }

    /// Floating-point operations of `kernel` for affine node `node`, of one record.
    fn flop(&self, kernel: &Kernel, node: usize) -> u64 {
        let (h, l) = self.weights(node);
        kernel.flop(Problem { h, w: 1, l })
    }

    fn kernels(&self, operation: Operation) -> impl Iterator<Item = &'l Kernel> + use<'l> {
        let (library, recipe) = (self.library, self.recipe);
        recipe
            .kernels
            .iter()
            .filter_map(|name| library.kernel(name))
            .map(|(_, k)| k)
            .filter(move |k| k.operation == operation)
    }

    fn kernel(&self, operation: Operation) -> Option<&'l Kernel> {
        self.kernels(operation).next()
    }

    fn missing(&mut self, node: usize, what: &str) {
        let article = if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        self.mistake(node, format_args!("needs {article} {what} kernel, the plan has none"));
    }

    /// Rows and columns of the weights of an affine node.
    fn weights(&self, node: usize) -> (usize, usize) {
        let graph = &self.network.graph;
        let weights = &graph.tensors[graph.nodes[node].tensors[0]];
        (weights.rows, weights.cols)
    }

    /// The one node that reads what `node` computes, where only it does.
    fn next(&self, node: usize) -> Option<usize> {
        let graph = &self.network.graph;
        graph.only_consumer(graph.nodes[node].output).filter(|&n| graph.nodes[n].inputs.len() == 1)
    }

    /// The activation that alone reads what `node` computes.
    fn activation_after(&self, node: usize) -> Option<(Activation, usize)> {
        let next = self.next(node)?;
        match self.network.graph.nodes[next].op {
            Op::Activation(a) => Some((a, next)),
            Op::Affine => None,
        }
    }

    /// Whether `kernel` can read `matrix` as it is.
    fn meets(&self, kernel: &Kernel, matrix: usize) -> bool {
        let takes = kernel.restrictions.b.as_ref().and_then(|b| b.representation.as_ref());
        let gives = self.matrices[matrix].layout.as_ref();
        takes.is_none() || gives.is_none() || takes == gives
    }

    /// The matrix that `node` reads.
    fn input_of(&self, node: usize) -> usize {
        self.matrix_of[self.network.graph.nodes[node].inputs[0]].unwrap_or(0)
    }

    /// Parts that the common dimension of a layer is split into: until there are as many work-groups as the kernel
    /// wants, but no part shorter than [`LEAST_PART`].
    fn parts(&self, kernel: &Kernel, (outputs, inputs): (usize, usize)) -> usize {
        let r = &kernel.restrictions;
        let Some((y, x)) = r.tile.filter(|_| self.kernel(Operation::Reduce).is_some()) else { return 1 };
        let tiles = outputs.div_ceil(y) * self.batch.div_ceil(x);
        (r.split / tiles).min(inputs / LEAST_PART).max(1)
    }

    /// The kernel of an affine node: see [`crate::registry::PlanRecipe::kernels`].
    fn affine_kernel(&self, node: usize) -> Option<&'l Kernel> {
        let (outputs, inputs) = self.weights(node);
        let matrix = self.input_of(node);
        // Multiply-adds of a work-group; where there are more than run at a time, of the last to end.
        let longest = |k: &Kernel| {
            let Some((y, x)) = k.restrictions.tile else { return 0 };
            let turns = match k.restrictions.split {
                0 => 1,
                groups => (outputs.div_ceil(y) * self.batch.div_ceil(x)).div_ceil(groups),
            };
            y * x * inputs.div_ceil(self.parts(k, (outputs, inputs))) * turns
        };
        self.kernels(Operation::Affine)
            .filter(|k| k.restrictions.most.admits(outputs, inputs) && self.meets(k, matrix))
            .min_by_key(|k| longest(k))
            .or_else(|| self.kernel(Operation::Affine))
    }

    /// Drafts affine node `i` and what is computed with it; gives the nodes that are then done.
    fn affine(&mut self, i: usize) -> Vec<usize> {
        if let Some((pair, activation, [last, second])) = self.pair(i) {
            let flop = self.flop(pair, i) + self.flop(pair, second);
            self.product(pair, second, vec![(i, activation), (second, Activation::None)], flop);
            return vec![i, last, second];
        }
        let after = self.activation_after(i);
        let (activation, last) = after.unwrap_or((Activation::None, i));
        if let Some(affine) = self.affine_kernel(i) {
            let (parts, flop) = (self.parts(affine, self.weights(i)), self.flop(affine, i));
            match self.kernel(Operation::Reduce).filter(|_| parts > 1) {
                None => self.product(affine, last, vec![(i, activation)], flop),
                Some(reduce) => self.split(affine, reduce, parts, (i, last, activation), flop),
            }
            return vec![i, last];
        }
        match self.kernel(Operation::Matmul) {
            Some(matmul) => {
                self.product(matmul, i, vec![(i, Activation::None)], self.flop(matmul, i));
                self.in_place(Operation::Bias, i, vec![(i, Activation::None)]);
            }
            None => self.missing(i, "affine or matmul"),
        }
        vec![i]
    }

    /// All layers and the arg-max as one step, where the plan has a kernel for that and the network suits it: a chain of
    /// affine layers with an activation each, as many as it takes and, if the plan can do without, no larger than it is
    /// for.
    fn whole(&mut self) -> Option<()> {
        let kernel = self.kernel(Operation::Layers)?;
        let graph = &self.network.graph;
        let r = &kernel.restrictions;
        let mut affine: Vec<(usize, Activation)> = Vec::new();
        let (mut h, mut l, mut weights) = (0, 0, 0);
        for (i, node) in graph.nodes.iter().enumerate() {
            if i > 0 && self.next(i - 1) != Some(i) {
                return None;
            }
            match (node.op, affine.last_mut()) {
                (Op::Affine, _) => {
                    let (outputs, inputs) = self.weights(i);
                    (h, l, weights) = (h.max(outputs), l.max(inputs), weights + outputs * inputs);
                    affine.push((i, Activation::None));
                }
                (Op::Activation(a), Some((_, none @ Activation::None))) => *none = a,
                _ => return None,
            }
        }
        let others = self.kernel(Operation::Affine).or(self.kernel(Operation::Matmul));
        let (records, a) = (r.tile?.1, r.a.as_ref()?);
        if affine.is_empty()
            || affine.len() > r.most.layers
            || self.batch.div_ceil(records) > MOST_GROUPS
            || (others.is_some() && !r.most.admits_layers(h, l, weights))
        {
            return None;
        }
        let last = graph.nodes.len() - usize::from(self.network.output.kind != Kind::Classes);
        self.reads(kernel, 0, last);
        self.matrices[0].row_multiple = lcm(self.matrices[0].row_multiple, a.col_align);
        // The last layer's values are the scores.
        let between = &affine[..affine.len() - 1];
        let height = |layer: &(usize, Activation)| self.weights(layer.0).0.next_multiple_of(a.row_align);
        let most = |first| between.iter().skip(first).step_by(2).map(height).max().unwrap_or(0);
        let (even, odd) = (most(0), most(1));
        let layout = || r.r.as_ref().and_then(|o| o.representation.clone());
        let hidden = Matrix::new("between layers".into(), (even + odd).max(a.row_align), 1, layout());
        let scores = Matrix::new("scores".into(), self.network.outputs(), a.row_align, layout());
        self.matrices.extend([hidden, scores]);
        self.matrix_of[graph.outputs[0]] = Some(2);
        self.covers(kernel, 2);
        let flop = affine.iter().map(|layer| self.flop(kernel, layer.0)).sum();
        self.draft(kernel, last, (0, 2), flop);
        self.drafts.iter_mut().last().into_iter().for_each(|d| {
            (d.affine, d.hidden) = (std::mem::take(&mut affine), Some((1, even)));
        });
        Some(())
    }

    /// A step without constants, activation and parts.
    fn draft(&mut self, kernel: &'l Kernel, node: usize, (input, output): (usize, usize), flop: u64) {
        self.drafts.push(Draft {
            kernel,
            activation: Activation::None,
            node,
            affine: Vec::new(),
            hidden: None,
            parts: 1,
            input,
            output,
            flop,
        });
    }

    /// A step with a result of its own, the value of node `last`: matmul, affine, pair or reduce. Of the affine nodes
    /// that it computes, the first reads its input, and the activation of the first is fused into it.
    fn product(&mut self, kernel: &'l Kernel, last: usize, affine: Vec<(usize, Activation)>, flop: u64) {
        let input = self.input_of(affine[0].0);
        let output = self.result(kernel, input, last, affine, flop);
        self.matrix_of[self.network.graph.nodes[last].output] = Some(output);
    }

    /// A step that reads matrix `input`; gives the matrix of its result.
    fn result(
        &mut self,
        kernel: &'l Kernel,
        input: usize,
        last: usize,
        affine: Vec<(usize, Activation)>,
        flop: u64,
    ) -> usize {
        let r = &kernel.restrictions;
        self.reads(kernel, input, last);
        let mut rows = 1;
        if let Some(a) = &r.a {
            let (y, x) = a.representation.as_ref().map_or((1, 1), Layout::granularity);
            let multiple = &mut self.matrices[input].row_multiple;
            *multiple = lcm(*multiple, lcm(a.col_align, x));
            rows = lcm(a.row_align, y);
        }
        let graph = &self.network.graph;
        let name = &graph.nodes[last].name;
        let layout = r.r.as_ref().and_then(|o| o.representation.clone());
        let height = graph.values[graph.nodes[last].output].shape.len();
        self.matrices.push(Matrix::new(name.to_string(), height, rows, layout));
        let output = self.matrices.len() - 1;
        self.covers(kernel, output);
        self.draft(kernel, last, (input, output), flop);
        self.drafts.iter_mut().last().into_iter().for_each(|d| {
            (d.activation, d.affine) = (affine[0].1, affine.clone());
        });
        output
    }

    /// The pair kernel, the activation between, its node and the second affine node, where node `i` and the next affine
    /// node make a pair. (Without an activation, its node is `i`.)
    fn pair(&self, i: usize) -> Option<(&'l Kernel, Activation, [usize; 2])> {
        let (outputs, inputs) = self.weights(i);
        let matrix = self.input_of(i);
        let fits = |k: &&Kernel| k.restrictions.most.admits(outputs, inputs) && self.meets(k, matrix);
        let kernel = self.kernel(Operation::Pair).filter(fits)?;
        let (activation, last) = self.activation_after(i).unwrap_or((Activation::None, i));
        let second = self.next(last).filter(|&n| self.network.graph.nodes[n].op == Op::Affine)?;
        Some((kernel, activation, [last, second]))
    }

    /// An affine node in two steps: parts of the common dimension, then their sum with bias and activation.
    fn split(
        &mut self,
        affine: &'l Kernel,
        reduce: &'l Kernel,
        parts: usize,
        (node, last, activation): (usize, usize, Activation),
        flop: u64,
    ) {
        let input = self.input_of(node);
        let between = self.result(affine, input, node, vec![(node, Activation::None)], flop);
        self.matrices[between].name = format!("parts of {}", self.matrices[between].name);
        self.drafts.iter_mut().last().into_iter().for_each(|d| d.parts = parts);
        let row_multiple = self.matrices[between].row_multiple;
        let output = self.result(reduce, between, last, vec![(node, activation)], 0);
        self.matrices[output].row_multiple = row_multiple;
        self.matrices[between].parts_of = Some((parts, output));
        self.drafts.iter_mut().last().into_iter().for_each(|d| d.parts = parts);
        self.matrix_of[self.network.graph.nodes[last].output] = Some(output);
    }

    /// A step that changes a matrix where it is: bias or activation.
    fn in_place(&mut self, operation: Operation, node: usize, affine: Vec<(usize, Activation)>) {
        let Some(kernel) = self.kernel(operation) else {
            return self.missing(node, operation.name());
        };
        let graph = &self.network.graph;
        let value = match operation {
            Operation::Bias => graph.nodes[node].output,
            _ => graph.nodes[node].inputs[0],
        };
        let Some(matrix) = self.matrix_of[value] else { return };
        if operation != Operation::Bias && graph.only_consumer(value) != Some(node) {
            return self.mistake(node, "works in place, but its input is read by other nodes too");
        }
        if let Some(takes) = kernel.restrictions.r.as_ref().and_then(|o| o.representation.clone()) {
            self.link(kernel, matrix, takes, node);
        }
        self.covers(kernel, matrix);
        let flop = kernel.flop(Problem { h: self.matrices[matrix].rows, w: 1, l: 0 });
        self.draft(kernel, node, (matrix, matrix), flop);
        self.drafts.iter_mut().last().into_iter().for_each(|d| d.affine = affine.clone());
        self.matrix_of[graph.nodes[node].output] = Some(matrix);
    }

    /// The demands of `kernel` on the matrix it reads.
    fn reads(&mut self, kernel: &'l Kernel, matrix: usize, node: usize) {
        let Some(b) = &kernel.restrictions.b else { return };
        self.demand(matrix, b.row_align, b.col_align, b.representation.as_ref());
        if let Some(takes) = b.representation.clone() {
            self.link(kernel, matrix, takes, node);
        }
    }

    /// The demands of `kernel` on the matrix it writes: alignment, and whole work-groups of whole tiles.
    fn covers(&mut self, kernel: &'l Kernel, matrix: usize) {
        let r = &kernel.restrictions;
        if let Some(o) = &r.r {
            self.demand(matrix, o.row_align, o.col_align, o.representation.as_ref());
        }
        if r.r.as_ref().is_some_and(|o| o.representation.is_some()) {
            let group = self.recipe.group(kernel).filter(|_| r.tile.is_none());
            let (rows, cols) = r.covers(group.unwrap_or((1, 1)));
            self.demand(matrix, rows, cols, None);
        }
    }

    /// Remembers that `kernel` takes `matrix` in layout `takes`.
    fn link(&mut self, kernel: &Kernel, matrix: usize, takes: Layout, node: usize) {
        match &self.matrices[matrix].layout {
            None => self.matrices[matrix].layout = Some(takes),
            Some(gives) => {
                let before = self.drafts.iter().rfind(|d| d.output == matrix);
                let before = before.map_or("the input".into(), |d| d.kernel.codename.clone());
                let nodes = &self.network.graph.nodes;
                let text = format!(
                    "plan {}: {}: {} takes its operand in layout {takes}, {before} before it gives {gives}; use kernels \
                     whose layouts meet",
                    self.recipe.name,
                    nodes.get(node).map_or("output", |n| &*n.name),
                    kernel.codename
                );
                self.links.push(Link { matrix, gives: gives.clone(), takes, text });
            }
        }
    }
}
