//! First pass of planning: chooses the kernel of each node, and collects what each kernel demands
//! of the matrices that it reads and writes.

use super::fuse::{self, Chain};
use super::{Draft, Link, Matrix, Planner, View};
use crate::ir::graph::Shape;
use crate::ir::layout::Layout;
use crate::ir::network::{Kind, Precision};
use crate::ir::op::{Activation, Op};
use crate::ir::plan::{BufferRole, Placing};
use crate::ir::view::RowMap;
use crate::registry::{Covered, EngineKind, Kernel, Operation, Problem, lcm};
use std::cmp::Reverse;

/// The fewest columns of the weights in each part, if work-groups share the common dimension of a
/// layer. With fewer columns the overhead exceeds the gain.
const LEAST_PART: usize = 48;

/// The most rows of other values that a layer reads beside its operand, multiplied by weights of 0.
/// If there are more, a launch copies the operand first, and the layer reads the copy.
const MOST_SPARE: usize = 64;

/// The most rows that an operand may span per row that a copy would have. If it spans more, a
/// launch copies it first, and the layer reads the copy.
const MOST_SPREAD: usize = 4;

impl<'l> Planner<'l> {
    /// Drafts the steps of all nodes, and of the arg-max if the network has one.
    pub(super) fn choose(&mut self) {
        let graph = &self.network.graph;
        let nodes = graph.nodes.len();
        for i in 0..nodes {
            if !self.done[i] {
                let drafted = self.node(i);
                drafted.into_iter().for_each(|n| self.done[n] = true);
            }
        }
        self.outputs();
        if let Some(View { matrix, .. }) = self.views[graph.outputs[0]] {
            self.stands_as(matrix, BufferRole::Scores);
        }
        let classifies = |d: &Draft<'_>| d.kernel.takes_all();
        if !self.classes() || !self.errors.is_empty() || self.drafts.iter().any(classifies) {
            return;
        }
        let Some(kernel) = self.kernel(Operation::ArgMax) else {
            return self.missing(nodes, "argmax");
        };
        let Some(View { matrix, .. }) = self.views[graph.outputs[0]] else {
            return;
        };
        let input = self.reads(kernel, matrix, nodes);
        self.drafts.push(Draft::new(kernel, nodes, (input, input)));
    }

    fn classes(&self) -> bool {
        self.network.output.kind == Kind::Classes
    }

    /// Refuses kernels that are compiled with lab options, because such options may change results.
    pub(super) fn refuse_lab_kernels(&mut self) {
        for name in self.recipe.kernels.iter() {
            if let Some((_, k)) = self
                .library
                .kernel(name)
                .filter(|(_, k)| !k.lab_options.is_empty())
            {
                self.errors.push(format!(
                    "plan {}: {name} is compiled with {}, which may change results: it is for \
                     bench, not for plans",
                    self.recipe.name, k.lab_options
                ));
            }
        }
    }

    /// Returns the floating-point operations that `kernel` needs to compute the `affine` nodes of
    /// one record.
    pub(super) fn flop(&self, kernel: &Kernel, affine: &[(usize, Activation)]) -> u64 {
        let sizes = affine.iter().map(|layer| self.weights(layer.0));
        sizes
            .map(|(h, l)| kernel.flop(Problem { h, w: 1, l }))
            .sum()
    }

    /// Returns the kernels that the recipe names, in its order. Kernels for whole numbers are left
    /// out.
    pub(super) fn kernels(&self) -> impl Iterator<Item = &'l Kernel> + use<'l> {
        let (library, recipe) = (self.library, self.recipe);
        recipe
            .kernels
            .iter()
            .filter_map(|name| library.kernel(name))
            .map(|(_, k)| k)
            .filter(|k| !k.whole())
    }

    pub(super) fn kernel(&self, operation: Operation) -> Option<&'l Kernel> {
        self.kernels().find(|k| k.operation == operation)
    }

    pub(super) fn missing(&mut self, node: usize, what: &str) {
        let article = if what.starts_with(['a', 'e', 'i', 'o', 'u']) {
            "an"
        } else {
            "a"
        };
        self.mistake(
            node,
            format_args!("needs {article} {what} kernel, the plan has none"),
        );
    }

    /// Returns the rows and columns of an affine node's weights.
    fn weights(&self, node: usize) -> (usize, usize) {
        let graph = &self.network.graph;
        let weights = &graph.tensors[graph.nodes[node].tensors[0]];
        (weights.rows, weights.cols)
    }

    /// Returns true if `kernel` can read `matrix` in the layout that the matrix has so far.
    fn meets(&self, kernel: &Kernel, matrix: usize) -> bool {
        let takes = kernel
            .restrictions
            .b
            .as_ref()
            .and_then(|b| b.representation.as_ref());
        let gives = self.matrices[matrix].layout.as_ref();
        takes.is_none() || gives.is_none() || takes == gives
    }

    fn input_of(&self, node: usize) -> usize {
        self.view(self.network.graph.nodes[node].inputs[0]).matrix
    }

    /// Returns the number of parts that the common dimension of a layer is split into. It is
    /// limited to `split` work-groups in all, and to [`LEAST_PART`] columns per part on average.
    fn parts(&self, kernel: &Kernel, (outputs, inputs): (usize, usize)) -> usize {
        let r = &kernel.restrictions;
        let Some((y, x)) = r.tile.filter(|_| self.kernel(Operation::Reduce).is_some()) else {
            return 1;
        };
        let tiles = outputs.div_ceil(y) * self.records().div_ceil(x);
        let most = (r.split / tiles).min(inputs / LEAST_PART).max(1);
        // A part consists of whole stages, the terms that the kernel takes at a time. This lowers
        // the number of parts until none is empty.
        let stages = inputs.div_ceil(kernel.stage());
        stages.div_ceil(stages.div_ceil(most))
    }

    /// Returns true if the chain is within the kernel's limits on layers and work-groups. These
    /// limits hold even if the plan then has no kernel for the chain.
    fn possible(&self, kernel: &Kernel, chain: &Chain) -> bool {
        let most = kernel.restrictions.most;
        let within = |n: usize, most: usize| most == 0 || n <= most;
        let groups = kernel
            .restrictions
            .tile
            .map_or(0, |(_, records)| self.batch.div_ceil(records));
        within(chain.weighted.len(), most.layers) && within(groups, most.groups)
    }

    /// Returns true if the sizes of the layers in `chain` are within the limits of `kernel`.
    fn admits(&self, kernel: &Kernel, chain: &Chain) -> bool {
        let counted = if kernel.covers.repeated {
            chain.weighted.len()
        } else {
            chain.weighted.len().min(1)
        };
        let sizes: Vec<(usize, usize)> = chain.weighted[..counted]
            .iter()
            .map(|l| self.weights(l.0))
            .collect();
        let most = |size: fn(&(usize, usize)) -> usize| sizes.iter().map(size).max().unwrap_or(0);
        let spread = |l: &(usize, Activation)| {
            let tensors = &self.network.graph.nodes[l.0].tensors;
            tensors
                .first()
                .map_or(0, |&t| self.network.graph.tensors[t].spread)
        };
        let limit = kernel.restrictions.most.spread;
        sizes.iter().all(|s| s.1 >= kernel.restrictions.least_l)
            && chain.weighted[..counted]
                .iter()
                .all(|l| limit == 0 || spread(l) <= limit)
            && kernel.restrictions.most.admits(
                most(|s| s.0),
                most(|s| s.1),
                sizes.iter().map(|s| s.0 * s.1).sum(),
            )
    }

    /// Returns the multiply-adds of one work-group for the first layer, times the rounds that the
    /// device needs for all work-groups. The result ranks kernels. Affine kernels without tiles
    /// count as 0.
    fn work(&self, kernel: &Kernel, chain: &Chain) -> usize {
        let graph = &self.network.graph;
        let Some(&(node, _)) = chain.weighted.first() else {
            return 0;
        };
        let convolution = matches!(graph.nodes[node].op, Op::Convolution { .. });
        // A convolution kernel with tiles is preferred to one without tiles.
        let Some((y, x)) = kernel.restrictions.tile else {
            return if convolution { usize::MAX } else { 0 };
        };
        let (outputs, inputs) = self.weights(node);
        // The product of a convolution has a column for each pixel of each record.
        let (columns, parts) = match convolution {
            true => {
                let Shape { h, w, .. } = graph.values[graph.nodes[node].output].shape;
                (self.records() * h * w, 1)
            }
            false => (self.records(), self.parts(kernel, (outputs, inputs))),
        };
        let turns = match kernel.restrictions.split {
            0 => 1,
            groups => (outputs.div_ceil(y) * columns.div_ceil(x)).div_ceil(groups),
        };
        y * x * inputs.div_ceil(parts) * turns
    }

    /// Returns the best kernel for node `i`, and the nodes that the kernel computes.
    /// [`crate::registry::PlanRecipe::kernels`] defines the order of preference.
    fn best(&self, i: usize) -> Option<(&'l Kernel, Chain)> {
        let (graph, input) = (&self.network.graph, self.input_of(i));
        // A fused addition needs an operand that is already computed, with the layout and rows of
        // the result. `apart` lists the additions that an earlier planning round found to lack
        // this.
        let may_add = |sum: usize, value: usize| {
            self.views.get(value).is_some_and(Option::is_some) && !self.known.apart.contains(&sum)
        };
        let matching = || {
            // Kernels of `ReducePair` cannot begin a chain. `reduce_pair` chooses them later, for
            // the step after the first layer.
            let begins = self
                .kernels()
                .filter(|k| k.operation != Operation::ReducePair);
            let found = begins.filter_map(|k| Some((k, fuse::chain(graph, k, i, may_add)?)));
            found.filter(|(k, c)| self.possible(k, c))
        };
        let admitted = matching().filter(|(k, c)| self.admits(k, c) && self.meets(k, input));
        let rank =
            |k: &Kernel, c: &Chain| (Reverse(k.covers.most_nodes()), !k.of_few(), self.work(k, c));
        if let Some(best) = admitted.min_by_key(|(k, c)| rank(k, c)) {
            return Some(best);
        }
        let matmul = self.kernel(Operation::Matmul).is_some();
        let alone =
            matching().filter(|(k, _)| k.covers.weighted() < 2 && !(matmul && k.covers.repeated));
        alone.min_by_key(|(k, _)| k.covers.most_nodes())
    }

    /// Drafts the steps for node `i`. Returns the nodes that these steps compute.
    fn node(&mut self, i: usize) -> Vec<usize> {
        let op = self.network.graph.nodes[i].op;
        if self.moves(i) {
            return vec![i];
        }
        if op == Op::Affine {
            let value = self.network.graph.nodes[i].inputs[0];
            let View { matrix, map } = *self.view(value);
            // If the operand is a small part of its matrix, or its rows have large gaps, the layer
            // reads a copy. Otherwise its weights would get many columns of zeros.
            let (span, copied) = (map.end() - map.first, self.rows_of_copy(value));
            if self.matrices[matrix].rows > span + MOST_SPARE || span > MOST_SPREAD * copied {
                self.copy(value, i);
            }
        }
        let Some((kernel, chain)) = self.best(i) else {
            match op {
                Op::Affine => self.matmul_and_bias(i),
                op => self.missing(i, op.name()),
            }
            return vec![i];
        };
        if !matches!(op, Op::Affine | Op::Activation(_)) {
            return self.of_image(kernel, i, chain);
        }
        let Chain {
            nodes,
            weighted: affine,
            rescaled,
            rounds,
            ..
        } = chain;
        let (last, first_draft) = (nodes[nodes.len() - 1], self.drafts.len());
        match *affine {
            [] => self.in_place(kernel, i, Vec::new()),
            _ if kernel.takes_all() => self.all(kernel, affine),
            [layer] => {
                let parts = self.parts(kernel, self.weights(i));
                let scaled = self.scaled(kernel);
                let reduce = self.kernel(Operation::Reduce).filter(|r| {
                    parts > 1 && r.epilogue == kernel.epilogue && self.scaled(r) == scaled
                });
                let pair = reduce.and_then(|_| self.reduce_pair(i, scaled));
                match (reduce, pair) {
                    (
                        _,
                        Some((
                            pair,
                            Chain {
                                nodes, weighted, ..
                            },
                        )),
                    ) => {
                        self.split(kernel, pair, parts, (nodes[nodes.len() - 1], weighted));
                        return nodes;
                    }
                    (Some(reduce), None) => self.split(kernel, reduce, parts, (last, vec![layer])),
                    (None, None) => self.product(kernel, last, affine),
                }
            }
            _ => self.product(kernel, last, affine),
        }
        // A layer that is split has two steps, which share the biases and all numbers beside them.
        for draft in &mut self.drafts[first_draft..] {
            (draft.rescaled, draft.rounds) = (rescaled, rounds);
        }
        nodes
    }

    /// Returns true if `kernel` reads weights as bytes. Its partial sums then lack the quantization
    /// scales, which the reduce step applies.
    fn scaled(&self, kernel: &Kernel) -> bool {
        kernel.restrictions.weights(self.network.weights) == Precision::I8
    }

    /// Returns a kernel that adds the parts of layer `i` and also computes the narrow layer behind
    /// it, with the nodes of both. `scaled` is true if the parts still lack the quantization
    /// scales.
    fn reduce_pair(&self, i: usize, scaled: bool) -> Option<(&'l Kernel, Chain)> {
        let graph = &self.network.graph;
        let fits = |&(k, ref chain): &(&'l Kernel, Chain)| {
            let (&Some(&(second, _)), &Some(&last)) = (&chain.weighted.get(1), &chain.nodes.last())
            else {
                return false;
            };
            let next = graph.only_consumer(graph.nodes[last].output);
            // An activation behind the narrow layer fuses into that layer's own kernel, but not
            // into a pair. The pair would then save no launch.
            let activated = next.is_some_and(|n| Covered::Activation.fits(graph, &graph.nodes[n]));
            let (outputs, most) = (self.weights(second).0, k.restrictions.most.h);
            self.scaled(k) == scaled && !activated && (most == 0 || outputs <= most)
        };
        let kernels = self
            .kernels()
            .filter(|k| k.operation == Operation::ReducePair);
        kernels
            .filter_map(|k| Some((k, fuse::chain(graph, k, i, |_, _| false)?)))
            .find(fits)
    }

    /// Drafts an affine node as two steps: the product, and the bias that is added in place.
    fn matmul_and_bias(&mut self, i: usize) {
        let Some(matmul) = self.kernel(Operation::Matmul) else {
            return self.missing(i, "affine or matmul");
        };
        let affine = vec![(i, Activation::None)];
        self.product(matmul, i, affine.clone());
        match self.kernel(Operation::Bias) {
            Some(bias) => self.in_place(bias, i, affine),
            None => self.missing(i, "bias"),
        }
    }

    /// Drafts the whole network as one step, including an arg-max. Results of even and odd layers
    /// alternate between two areas of one buffer. The last layer writes the scores.
    fn all(&mut self, kernel: &'l Kernel, affine: Vec<(usize, Activation)>) {
        let Some(a) = &kernel.restrictions.a else {
            return;
        };
        let between = &affine[..affine.len() - 1];
        let height =
            |layer: &(usize, Activation)| self.weights(layer.0).0.next_multiple_of(a.row_align);
        let most = |first| {
            between
                .iter()
                .skip(first)
                .step_by(2)
                .map(height)
                .max()
                .unwrap_or(0)
        };
        let (even, odd) = (most(0), most(1));
        let hidden = kernel.takes_hidden().then(|| {
            let layout = kernel
                .restrictions
                .r
                .as_ref()
                .and_then(|o| o.representation.clone());
            let rows = (even + odd).max(a.row_align);
            self.matrices
                .push(Matrix::new("between layers".into(), rows, 1, layout));
            (self.matrices.len() - 1, even)
        });
        let last = self.network.graph.nodes.len() - 1;
        self.product(kernel, last, affine);
        let classes = self.classes();
        if let Some(d) = self.drafts.last_mut() {
            d.activation = Activation::None;
            d.hidden = hidden;
            d.node = last + usize::from(classes);
            self.matrices[d.output].name = "scores".into();
        }
    }

    /// Drafts a step that computes the `affine` nodes and writes the value of node `last` to a new
    /// matrix. The activation that follows the first node is fused.
    fn product(&mut self, kernel: &'l Kernel, last: usize, affine: Vec<(usize, Activation)>) {
        let (input, flop) = (self.input_of(affine[0].0), self.flop(kernel, &affine));
        let output = self.result(kernel, input, last, affine, flop);
        self.rows_of(last, output);
    }

    /// Records that the first rows of `matrix` hold the value of node `last`.
    fn rows_of(&mut self, last: usize, matrix: usize) {
        let value = self.network.graph.nodes[last].output;
        let map = RowMap::vector(self.network.graph.values[value].shape.len());
        self.views[value] = Some(View { matrix, map });
    }

    /// Drafts a step that reads matrix `input`. Returns the new matrix that the step writes.
    fn result(
        &mut self,
        kernel: &'l Kernel,
        input: usize,
        last: usize,
        affine: Vec<(usize, Activation)>,
        flop: u64,
    ) -> usize {
        let r = &kernel.restrictions;
        let input = self.reads(kernel, input, last);
        let mut rows = 1;
        if let Some(a) = &r.a {
            let (y, x) = a
                .representation
                .as_ref()
                .map_or((1, 1), Layout::granularity);
            let multiple = &mut self.matrices[input].row_multiple;
            *multiple = lcm(*multiple, lcm(a.col_align, x));
            rows = lcm(a.row_align, y);
            self.common_dimension(kernel, input, affine[0].0);
        }
        let graph = &self.network.graph;
        let name = &graph.nodes[last].name;
        let layout = r.r.as_ref().and_then(|o| o.representation.clone());
        let height = graph.values[graph.nodes[last].output].shape.len();
        self.matrices
            .push(Matrix::new(name.to_string(), height, rows, layout));
        let output = self.matrices.len() - 1;
        self.writes(kernel, output);
        let activation = affine[0].1;
        let map = self.view(graph.nodes[affine[0].0].inputs[0]).map;
        let placing = if map.is_plain() {
            Placing::Plain
        } else {
            Placing::Columns(map)
        };
        self.drafts.push(Draft {
            activation,
            weighted: affine,
            placing,
            flop,
            ..Draft::new(kernel, last, (input, output))
        });
        output
    }

    /// In a variant for few records, pads the operand's rows to the columns of the full plan's
    /// weights. Both plans can then share the weights.
    fn common_dimension(&mut self, kernel: &Kernel, input: usize, node: usize) {
        let weights = self.network.graph.nodes[node].tensors[0];
        let constants = self
            .known
            .full
            .filter(|_| kernel.of_few())
            .map_or(&[][..], |full| &full.constants);
        let columns = constants
            .iter()
            .find(|c| c.tensor == weights)
            .map_or(0, |c| c.padded.1);
        let Matrix {
            rows, row_multiple, ..
        } = &mut self.matrices[input];
        if columns >= *rows && columns % *row_multiple == 0 {
            *row_multiple = columns;
        }
    }

    /// Drafts the first of `layers` as two steps. The first computes partial sums with kernel
    /// `affine`. The second adds them with bias and activation, and computes the further nodes of
    /// kernel `reduce` up to `last`.
    fn split(
        &mut self,
        affine: &'l Kernel,
        reduce: &'l Kernel,
        parts: usize,
        (last, layers): (usize, Vec<(usize, Activation)>),
    ) {
        let node = layers[0].0;
        let (input, flop) = (self.input_of(node), self.flop(affine, &layers[..1]));
        let between = self.result(affine, input, node, vec![(node, Activation::None)], flop);
        let (alone, flop) = (layers.len() == 1, self.flop(reduce, &layers[1..]));
        let output = self.result(reduce, between, last, layers, flop);
        if alone {
            self.matrices[output].row_multiple = self.matrices[between].row_multiple;
        }
        let of = if alone { output } else { between };
        let matrix = &mut self.matrices[between];
        (matrix.name, matrix.parts_of) = (format!("parts of {}", matrix.name), Some((parts, of)));
        self.drafts
            .iter_mut()
            .rev()
            .take(2)
            .for_each(|d| d.parts = parts);
        self.rows_of(last, output);
    }

    /// Drafts a bias or activation step that overwrites its operand.
    fn in_place(&mut self, kernel: &'l Kernel, node: usize, affine: Vec<(usize, Activation)>) {
        let graph = &self.network.graph;
        let bias = kernel.operation == Operation::Bias;
        let value = if bias {
            graph.nodes[node].output
        } else {
            graph.nodes[node].inputs[0]
        };
        let view = if bias {
            *self.view(value)
        } else {
            self.own(value, node)
        };
        let matrix = view.matrix;
        let takes = kernel
            .restrictions
            .r
            .as_ref()
            .and_then(|o| o.representation.as_ref());
        let matrix = self.link(kernel, matrix, takes, node);
        self.writes(kernel, matrix);
        let flop = kernel.flop(Problem {
            h: self.matrices[matrix].rows,
            w: 1,
            l: 0,
        });
        let activation = match graph.nodes[node].op {
            Op::Activation(a) => a,
            _ => Activation::None,
        };
        self.drafts.push(Draft {
            weighted: affine,
            flop,
            activation,
            ..Draft::new(kernel, node, (matrix, matrix))
        });
        let output = graph.nodes[node].output;
        self.views[output] = Some(View {
            matrix,
            map: view.map,
        });
        // The activation of a padding row may be infinite or NaN. Times a weight of 0 that gives
        // NaN, so the next layer reads a copy, whose padding rows are zero.
        let unbounded = matches!(activation, Activation::Math(m) if m.unbounded());
        if unbounded && graph.consumers(output).next().is_some() {
            self.copy(output, node);
        }
    }

    /// Adds what `kernel` demands of the layout and sizes of its operand. Returns the matrix that
    /// the kernel reads: `matrix` or a repacked copy of it.
    pub(super) fn reads(&mut self, kernel: &'l Kernel, matrix: usize, node: usize) -> usize {
        let Some(b) = &kernel.restrictions.b else {
            return matrix;
        };
        let matrix = self.link(kernel, matrix, b.representation.as_ref(), node);
        self.demand(matrix, b.row_align, b.col_align, b.representation.as_ref());
        matrix
    }

    /// Adds what `kernel` demands of the sizes of its result. If the kernel has a fixed layout and
    /// no tiles, the result must consist of whole work-groups.
    pub(super) fn writes(&mut self, kernel: &'l Kernel, matrix: usize) {
        let r = &kernel.restrictions;
        if let Some(o) = &r.r {
            self.demand(matrix, o.row_align, o.col_align, o.representation.as_ref());
        }
        if r.r.as_ref().is_some_and(|o| o.representation.is_some()) {
            let group = self.recipe.group(kernel).filter(|_| r.tile.is_none());
            let (rows, cols) = r.whole_groups(group.unwrap_or((1, 1)));
            self.demand(matrix, rows, cols, None);
        }
    }

    /// Records that `kernel` reads `matrix` in layout `takes`. `None` stands for any layout.
    /// Returns the matrix that the kernel reads: `matrix` or a repacked copy of it.
    pub(super) fn link(
        &mut self,
        kernel: &Kernel,
        matrix: usize,
        takes: Option<&Layout>,
        node: usize,
    ) -> usize {
        let Some(takes) = takes else { return matrix };
        let Some(gives) = self.matrices[matrix].layout.clone() else {
            self.matrices[matrix].layout = Some(takes.clone());
            return matrix;
        };
        let reader = (node, kernel.operation);
        if let Some(repack) = self
            .kernel(Operation::Repack)
            .filter(|_| self.known.repacks.contains(&reader))
        {
            return self.repack(repack, matrix, takes, node);
        }
        let before = self.drafts.iter().rfind(|d| d.output == matrix);
        let before = before.map_or("the input".into(), |d| d.kernel.codename.clone());
        let without =
            self.kernel(Operation::Repack).is_none() && self.recipe.engine == EngineKind::OpenCl;
        let text = format!(
            "plan {}: {}: {} takes its operand in layout {takes}, {before} before it gives \
             {gives}; use kernels whose \
             layouts meet{}",
            self.recipe.name,
            self.network
                .graph
                .nodes
                .get(node)
                .map_or("output", |n| &*n.name),
            kernel.codename,
            if without {
                ", or add a repack kernel to the plan"
            } else {
                ""
            }
        );
        self.links.push(Link {
            matrix,
            reader,
            gives,
            takes: takes.clone(),
            text,
        });
        matrix
    }

    /// Returns true if a repack step can resolve `link`, a matrix whose writer and reader need
    /// different layouts.
    pub(super) fn repackable(&self, link: &Link) -> bool {
        // A matrix of partial results consists of several matrices, which one repack step cannot
        // copy.
        let one = self.matrices[link.matrix].parts_of.is_none();
        one && self.kernel(Operation::Repack).is_some()
            && !self.known.repacks.contains(&link.reader)
    }

    /// Returns a copy of `matrix` in layout `takes`, which node `node` reads. An existing copy is
    /// reused.
    fn repack(&mut self, kernel: &'l Kernel, matrix: usize, takes: &Layout, node: usize) -> usize {
        let copies = |d: &&Draft<'_>| d.kernel.operation == Operation::Repack && d.input == matrix;
        let there = |d: &&Draft<'_>| self.matrices[d.output].layout.as_ref() == Some(takes);
        if let Some(copy) = self.drafts.iter().filter(copies).find(there) {
            return copy.output;
        }
        let of = &self.matrices[matrix];
        let (name, pixels_of) = (format!("{} as {takes}", of.name), of.pixels_of);
        self.matrices.push(Matrix {
            pixels_of,
            ..Matrix::new(name, of.rows, 1, Some(takes.clone()))
        });
        let copy = self.matrices.len() - 1;
        self.drafts.push(Draft::new(kernel, node, (matrix, copy)));
        copy
    }
}
