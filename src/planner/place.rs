//! Second pass: turns drafts into buffers with padded sizes, constants and steps.

use super::bind::{Call, Sizes, bind};
use super::{Draft, Link, Matrix, Planner, Refused, arena};
use crate::ir::layout::Layout;
use crate::ir::network::{Kind, Network, Precision};
use crate::ir::op::{Activation, Arithmetic, Op};
use crate::ir::options::{Function, LayerOptions, LayersOptions, Places, StepOptions};
use crate::ir::plan::{Arg, Buffer, BufferRole, Constant, Placing, Plan, Role, Step, places};
use crate::ir::scale::BESIDE;
use crate::ir::view::{Geometry, Moved, RowMap};
use crate::registry::{Holds, Kernel, Operation, Parameter, Problem, lcm};

/// Size limit of a buffer, in bytes.
const MOST_BYTES: u64 = (1 << 31) - 1;

impl Planner<'_> {
    /// Returns the plan, or the mistakes that only sizes and layouts reveal.
    pub(super) fn place(mut self) -> Result<Plan, Refused> {
        let padded_batch = self.columns();
        let rows: Vec<usize> = self.matrices.iter().map(|m| self.padded_rows(m)).collect();
        let mut buffers = self.buffers(&rows);
        // A part batch is a prefix of every buffer if all layouts keep records outermost. Otherwise
        // every batch is padded to a full one. In a plan for few records a kernel touches only its
        // own columns, so no full prefix is needed. Element-wise kernels are the exception.
        let by_elements = |d: &Draft<'_>| {
            d.kernel.restrictions.elementwise() || d.kernel.operation == Operation::Combine
        };
        let strided = self.known.full.is_some() && !self.drafts.iter().any(by_elements);
        let granule = buffers
            .iter()
            .try_fold(self.col_multiple, |g, b| match b.layout.column_prefix() {
                Some(p) => Some(lcm(g, p)),
                None => strided.then_some(g),
            })
            .unwrap_or(padded_batch);
        // Kernels compute offsets in 32 bits on every board.
        let mut too_large = Vec::new();
        for b in &buffers {
            let bytes = b.padded_rows as u64 * padded_batch as u64 * 4;
            if bytes > MOST_BYTES {
                too_large.push(format!(
                    "plan {}: {} records of {} values need a buffer of {bytes} bytes, at most \
                     {MOST_BYTES} are possible; \
                     use a smaller batch",
                    self.recipe.name, padded_batch, b.padded_rows
                ));
            }
        }
        if !too_large.is_empty() {
            return Err(Refused::TooLarge(too_large));
        }
        let columns = self.recipe.engine.arena_columns(padded_batch);
        let arena = arena::place(&mut buffers, columns, self.drafts.len(), |step, buffer| {
            let d = &self.drafts[step];
            let others = [d.hidden.map(|h| h.0), d.second];
            d.input == buffer || d.output == buffer || others.contains(&Some(buffer))
        });
        if self.network.output.kind == Kind::Classes {
            buffers.push(Buffer {
                name: "classes".into(),
                role: BufferRole::Classes,
                rows: 1,
                map: RowMap::vector(1),
                padded_rows: 1,
                layout: Layout::C,
                arena: 0,
            });
        }
        let mut constants = self
            .known
            .full
            .map_or(Vec::new(), |full| full.constants.to_vec());
        let drafts = std::mem::take(&mut self.drafts);
        let steps: Vec<Step> = drafts
            .iter()
            .map(|d| self.step(d, &buffers, (padded_batch, granule), &mut constants))
            .collect();
        if !self.errors.is_empty() {
            return Err(Refused::Mistakes(self.errors));
        }
        Ok(Plan {
            name: self.recipe.name.clone(),
            engine: self.recipe.engine,
            batch: self.batch,
            padded_batch,
            granule,
            constants: constants.into(),
            buffers: buffers.into(),
            arena_bytes: arena.bytes,
            arena_bound: arena.bound,
            steps: steps.into(),
            few: None,
        })
    }

    fn columns(&self) -> usize {
        let batch = self.known.full.map_or(self.batch, |full| full.padded_batch);
        batch.next_multiple_of(self.col_multiple)
    }

    /// Returns the rows of a matrix with padding. Partial results add up.
    pub(super) fn padded_rows(&self, matrix: &Matrix) -> usize {
        let of = |(parts, of): (usize, usize)| parts * self.matrices[of].padded();
        matrix.parts_of.map_or_else(|| matrix.padded(), of)
    }

    /// Returns the links whose two layouts place their matrix differently.
    pub(super) fn unmet(&self) -> impl Iterator<Item = &Link> {
        let cols = self.columns();
        self.links.iter().filter(move |link| {
            let rows = self.padded_rows(&self.matrices[link.matrix]);
            let fits = link.gives.fits(rows, cols).and(link.takes.fits(rows, cols));
            fits.is_err() || !link.gives.same_placement(&link.takes, rows, cols)
        })
    }

    /// Returns a buffer for each matrix, without offsets in the arena.
    fn buffers(&self, rows: &[usize]) -> Vec<Buffer> {
        let value = self.network.graph.outputs.first().copied();
        let scores = value.and_then(|v| self.views[v].as_ref());
        let input = self
            .network
            .graph
            .inputs
            .first()
            .and_then(|&v| self.views[v].as_ref());
        let map = |i: usize, rows: usize| {
            let view = [input, scores]
                .into_iter()
                .flatten()
                .find(|view| view.matrix == i);
            view.map_or(RowMap::vector(rows), |view| view.map)
        };
        self.matrices
            .iter()
            .zip(rows)
            .enumerate()
            .map(|(i, (matrix, &padded_rows))| Buffer {
                name: matrix.name.clone().into(),
                role: match i {
                    0 => BufferRole::Input,
                    _ if scores.is_some_and(|s| s.matrix == i) => BufferRole::Scores,
                    _ => BufferRole::Hidden,
                },
                rows: matrix.rows,
                map: map(i, matrix.rows),
                padded_rows,
                layout: matrix.layout.clone().unwrap_or(Layout::C),
                arena: 0,
            })
            .collect()
    }

    /// Returns the step of a draft with all sizes, and adds its constants to `constants`.
    fn step(
        &mut self,
        d: &Draft<'_>,
        buffers: &[Buffer],
        (padded_batch, granule): (usize, usize),
        constants: &mut Vec<Constant>,
    ) -> Step {
        let (b, r) = (&buffers[d.input], &buffers[d.output]);
        let second = d.second.map(|s| &buffers[s]);
        let sizes = self.sizes(d, (b, second), r, padded_batch);
        if let Err(failed) = d.kernel.admits(sizes.problem, None) {
            failed.iter().for_each(|f| self.mistake(d.node, f));
        }
        if d.kernel.restrictions.b.as_ref().is_some_and(|b| b.image) {
            let name = &d.kernel.codename;
            self.mistake(d.node, format_args!("{name} takes activations as an image"));
        }
        let classes = buffers.iter().position(|b| b.role == BufferRole::Classes);
        let op = self.network.graph.nodes.get(d.first).map(|n| n.op);
        let any_layout = d.kernel.options_of_layouts();
        let mut options = StepOptions {
            function: op.map_or(Function::Only, |op| function_of(d.kernel.operation, op)),
            adds: d.added.is_some(),
            places: match any_layout {
                true if sizes.alike => Places::Alike,
                true => Places::Levels {
                    from: b.layout.clone(),
                    to: r.layout.clone(),
                },
                false => Places::Fixed,
            },
            ..StepOptions::default()
        };
        use Operation::{Affine, Convolution, Layers};
        if any_layout && matches!(d.kernel.operation, Affine | Convolution | Layers) {
            options.row_step = b.layout.row_step(b.padded_rows, padded_batch);
        }
        let call = Call {
            kernel: d.kernel,
            group: self.recipe.group(d.kernel),
            sizes,
            factors: (1.0, 0.0),
            params: d.activation.parameters(),
            value: d.value,
            granule,
        };
        let network = self.network;
        let mut last = 0;
        let launch = bind(&call, |operand| match operand.holds {
            Holds::Constants => {
                let l = sizes.problem.l;
                options.layers = layers_options(network, d, buffers, (l, padded_batch), constants);
                Arg::Constants
            }
            // A PReLU has no summands. Its kernel gets the slopes a second time.
            Holds::Biases if op == Some(Op::PRelu) => Arg::Constant(last),
            Holds::Weights | Holds::Biases | Holds::Factors => {
                let at = keep(
                    constants,
                    d.kernel,
                    constant_of(network, d, operand, &sizes),
                );
                if operand.name == "a" {
                    options.panel = panel(d.kernel, &constants[at]);
                    options.kept = kept(network, d.kernel);
                }
                last = at;
                Arg::Constant(at)
            }
            // Without an arg-max the kernel writes no classes, so any buffer serves.
            Holds::Classes => Arg::Buffer(classes.unwrap_or(d.output)),
            Holds::Values | Holds::Bytes | Holds::Words => Arg::Buffer(match operand.name {
                "hidden" => d.hidden.map_or(d.output, |h| h.0),
                "b" => d.input,
                "c" => d.second.unwrap_or(d.input),
                _ => d.output,
            }),
        });
        Step {
            node: d.node,
            operation: d.kernel.operation,
            kernel: d.kernel.codename.clone(),
            activation: d.activation,
            options,
            args: launch.args.into(),
            global: launch.global,
            local: launch.local,
            problem: sizes.problem,
            flop: d.flop,
        }
    }

    /// Returns the sizes of a launch that reads `b` and writes `r` in `w` columns.
    fn sizes(
        &self,
        d: &Draft<'_>,
        (b, second): (&Buffer, Option<&Buffer>),
        r: &Buffer,
        w: usize,
    ) -> Sizes {
        // A row-major matrix has padding rows at the end. The kernel reads up to its alignment.
        let l = match &d.kernel.restrictions.a {
            Some(a) if b.layout == Layout::R => {
                let x = a.representation.as_ref().map_or(1, |l| l.granularity().1);
                b.rows.next_multiple_of(lcm(a.col_align, x))
            }
            _ => b.padded_rows,
        };
        let mut middle = 0;
        if let ([(first, _), _], Operation::Pair, Some(a)) = (
            &d.weighted[..],
            d.kernel.operation,
            &d.kernel.restrictions.a,
        ) {
            middle = size_of(self.network, *first)
                .0
                .next_multiple_of(a.row_align);
        }
        let (problem, parts) = match d.kernel.operation {
            Operation::ArgMax => (
                Problem {
                    h: 1,
                    w,
                    l: b.padded_rows,
                },
                1,
            ),
            Operation::Repack => (
                Problem {
                    h: r.padded_rows,
                    w,
                    l: b.padded_rows,
                },
                1,
            ),
            Operation::Reduce => (
                Problem {
                    h: r.padded_rows,
                    w,
                    l: d.parts,
                },
                1,
            ),
            Operation::ReducePair => (
                Problem {
                    h: r.padded_rows,
                    w,
                    l: b.padded_rows / d.parts,
                },
                d.parts,
            ),
            Operation::Matmul | Operation::Affine | Operation::Pair | Operation::Layers => (
                Problem {
                    h: r.padded_rows / d.parts,
                    w,
                    l,
                },
                d.parts,
            ),
            Operation::Convolution
            | Operation::Pool
            | Operation::Scale
            | Operation::Combine
            | Operation::Softmax
            | Operation::Gather => (
                Problem {
                    h: r.padded_rows,
                    w,
                    l: b.padded_rows,
                },
                1,
            ),
            _ => (
                Problem {
                    h: r.padded_rows,
                    w,
                    l: 0,
                },
                1,
            ),
        };
        let mut sizes = Sizes {
            rows: b.rows,
            middle,
            parts,
            ..Sizes::of(problem)
        };
        sizes.second = second.map_or(0, |s| s.padded_rows);
        // An element-wise kernel includes padding, where a division would compute 0 ÷ 0.
        let divides = self
            .network
            .graph
            .nodes
            .get(d.first)
            .is_some_and(|n| n.op == Op::Combine(Arithmetic::Divide));
        let own = d.kernel.operation == Operation::Combine && !divides;
        if let (Some(second), Some(Geometry { input, output, .. }), true) =
            (second, d.geometry, own)
        {
            let same =
                |other: &Buffer| other.layout == r.layout && other.padded_rows == r.padded_rows;
            // A two-dimensional work-group does not fit the one dimension of a launch by elements.
            let grouped = self.recipe.group(d.kernel).is_some();
            sizes.alike = input.0 == output.0 && same(b) && same(second) && !grouped;
        }
        // A step that fills writes every row of the result.
        sizes.moved = d.moved.map(|m| Moved {
            filled: if m.filled > 0 { r.padded_rows } else { 0 },
            ..m
        });
        if d.kernel.operation == Operation::Scale {
            // The kernel also scales padding rows, so the map covers every row of the result.
            sizes
                .moved
                .iter_mut()
                .for_each(|m| m.filled = r.padded_rows);
        }
        if let Some(mut geometry) = d.geometry {
            let (image, to) = &mut geometry.output;
            if to.h * to.w == 1 {
                // The image is one pixel, which takes all rows of the matrix.
                (image.pixel, image.line) = (r.padded_rows, r.padded_rows);
            }
            sizes.geometry = Some(geometry);
        }
        if let (Operation::Convolution, Some(a), Some(&(node, _))) = (
            d.kernel.operation,
            &d.kernel.restrictions.a,
            d.weighted.first(),
        ) {
            let (outputs, taps) = size_of(self.network, node);
            let (y, x) = a
                .representation
                .as_ref()
                .map_or((1, 1), Layout::granularity);
            let rows = outputs.next_multiple_of(lcm(a.row_align, y));
            sizes.weights = (rows, taps.next_multiple_of(lcm(a.col_align, x)));
        }
        sizes
    }
}

/// Returns rows and columns of the weights of an affine node.
fn size_of(network: &Network, node: usize) -> (usize, usize) {
    let weights = &network.graph.tensors[network.graph.nodes[node].tensors[0]];
    (weights.rows, weights.cols)
}

/// Returns the constant of an operand, in the layout that the kernel reads.
fn constant_of(network: &Network, d: &Draft<'_>, operand: &Parameter, sizes: &Sizes) -> Constant {
    // The operands of a pair's second layer have names that end in 2.
    let second = operand.name.ends_with('2');
    let padded = sizes.of_operand(d.kernel.operation, operand);
    let (node, _) = d.weighted[usize::from(second)];
    let placing = match (operand.holds, &d.placing) {
        // Only the first layer of a pair reads the elements of an image.
        (Holds::Weights, Placing::Columns(_)) if second => Placing::Plain,
        (Holds::Biases, Placing::Columns(_)) => Placing::Plain,
        (_, placing) => *placing,
    };
    let role = match operand.holds {
        Holds::Biases => Role::Biases,
        Holds::Factors => Role::Factors,
        _ => Role::Weights,
    };
    // A reduce kernel is chosen to expect the weight format of the kernel before it.
    let precision = d.kernel.restrictions.weights(network.weights);
    let image = operand.name == "a" && d.kernel.restrictions.a.as_ref().is_some_and(|a| a.image);
    Constant {
        placing,
        image,
        ..constant(
            network,
            node,
            role,
            padded,
            d.kernel.layout(operand),
            precision,
        )
    }
}

/// Returns the constant of a node's array with this role. `layout` and `precision` are for weights.
fn constant(
    network: &Network,
    node: usize,
    role: Role,
    padded: (usize, usize),
    layout: Layout,
    precision: Precision,
) -> Constant {
    let node = &network.graph.nodes[node];
    let tensor = node.tensors[usize::from(role == Role::Biases)];
    let (name, t) = (node.name.clone(), &network.graph.tensors[tensor]);
    let (size, placing) = ((t.rows, t.cols), Placing::Plain);
    let (padded, layout, precision, scales) = match (role, precision) {
        (Role::Weights, _) => (padded, layout, precision, None),
        (Role::Biases, Precision::I8) => {
            let padded = (padded.0.next_multiple_of(BESIDE), 2);
            (
                padded,
                Layout::panels(BESIDE),
                Precision::F32,
                Some(node.tensors[0]),
            )
        }
        (Role::Biases | Role::Factors, _) => ((padded.0, 1), Layout::C, Precision::F32, None),
    };
    Constant {
        name,
        tensor,
        scales,
        role,
        placing,
        size,
        padded,
        layout,
        precision,
        image: false,
    }
}

/// Returns the index of `constant` in `all` and adds it if it is missing. A kernel for few records
/// also accepts weights in panels, or with more padding rows.
fn keep(all: &mut Vec<Constant>, kernel: &Kernel, constant: Constant) -> usize {
    let serves = |other: &Constant| {
        let Constant {
            tensor,
            role,
            precision,
            ref placing,
            ..
        } = constant;
        let same = (
            other.tensor,
            other.role,
            other.precision,
            other.scales,
            other.image,
        ) == (tensor, role, precision, constant.scales, constant.image);
        let rows = other.layout == constant.layout || panel(kernel, other).is_some();
        let fits = other.padded.0 >= constant.padded.0 && other.padded.1 == constant.padded.1;
        *other == constant || kernel.of_few() && same && other.placing == *placing && rows && fits
    };
    all.iter().position(serves).unwrap_or_else(|| {
        all.push(constant);
        all.len() - 1
    })
}

/// Returns the rows of a panel of `weights`, if `kernel` reads panels. Layout `C` is one panel.
fn panel(kernel: &Kernel, weights: &Constant) -> Option<usize> {
    kernel.of_few().then_some(())?;
    if weights.layout == Layout::C {
        Some(weights.padded.0)
    } else {
        weights.layout.panel_rows()
    }
}

/// Returns the number of work-groups, out of 16, that ask the device's last cache to keep their
/// weights for the next record. Returns `None` if the cache holds all weights.
fn kept(network: &Network, kernel: &Kernel) -> Option<usize> {
    let r = &kernel.restrictions;
    let weights: usize = network.graph.tensors.iter().map(|t| t.rows * t.cols).sum();
    let bytes = weights * r.weights(network.weights).bytes();
    (r.keeps > 0 && bytes > r.keeps).then(|| 16 * r.keeps / bytes)
}

/// Returns the function that a kernel of `operation` computes for a node.
fn function_of(operation: Operation, op: Op) -> Function {
    match (operation, op) {
        (Operation::Pool, Op::Pool { kind, .. }) => Function::Pool(kind),
        (Operation::Scale, Op::PRelu) => Function::PRelu,
        (Operation::Combine, Op::Combine(arithmetic)) => Function::Combine(arithmetic),
        (Operation::Softmax, Op::Softmax(of)) => Function::Softmax(of),
        _ => Function::Only,
    }
}

/// Returns the options of a kernel for the whole network, and adds the constants of all layers to
/// `constants`. The input has `l` rows and every matrix `width` columns.
fn layers_options(
    network: &Network,
    d: &Draft<'_>,
    buffers: &[Buffer],
    (mut l, width): (usize, usize),
    constants: &mut Vec<Constant>,
) -> Option<LayersOptions> {
    let r = &d.kernel.restrictions;
    let a = r.a.as_ref().filter(|_| d.kernel.takes_all())?;
    let precision = r.weights(network.weights);
    let mut places_of = Vec::with_capacity(d.weighted.len());
    for &(node, _) in &d.weighted {
        let h = size_of(network, node).0.next_multiple_of(a.row_align);
        places_of.push([Role::Weights, Role::Biases].map(|role| {
            let layout = a.representation.clone().unwrap_or(Layout::R);
            let mut constant = constant(network, node, role, (h, l), layout, precision);
            // Columns of the first layer's weights follow the elements of the input.
            if role == Role::Weights && node == d.weighted[0].0 {
                constant.placing = d.placing;
            }
            keep(constants, d.kernel, constant)
        }));
        l = h;
    }
    let (starts, _) = places(constants);
    // The kernel counts in vectors of `lanes` values. A chunk row holds the values of several
    // records, so it may have several vectors. Without a fixed layout a row counts as one.
    let lanes = r.scale.0.max(1);
    let vectors = match r.r.as_ref().and_then(|o| o.representation.as_ref()) {
        Some(layout) => layout.granularity().1 / lanes,
        None => 1,
    };
    let rows = |i: usize| vectors * buffers[i].padded_rows;
    let layers = d.weighted.len();
    let outputs = |&(node, _): &(usize, Activation)| size_of(network, node).0;
    let layer = |n: usize| {
        let (node, activation) = d.weighted[n];
        let [of_weights, of_biases] = places_of[n];
        let ((outputs, inputs), weights) = (size_of(network, node), &constants[of_weights]);
        LayerOptions {
            columns: weights.padded.1,
            terms: inputs.next_multiple_of(a.col_align),
            groups: outputs.div_ceil(r.scale.0),
            activation,
            weights: starts[of_weights] / (lanes * weights.precision.bytes()),
            biases: starts[of_biases] / (lanes * Precision::F32.bytes()),
            // Results of even and odd layers alternate between two areas of the buffer.
            start: d.hidden.map(|(_, odd)| {
                if n + 1 == layers {
                    0
                } else {
                    n % 2 * vectors * odd
                }
            }),
            panel: panel(d.kernel, weights).map(|rows| rows / lanes),
        }
    };
    Some(LayersOptions {
        classes: if network.output.kind == Kind::Classes {
            network.outputs()
        } else {
            0
        },
        hidden: match d.hidden {
            Some((hidden, _)) => rows(hidden),
            None => d.weighted[..layers - 1]
                .iter()
                .map(outputs)
                .max()
                .unwrap_or(0),
        },
        rows: rows(d.output),
        width: d.kernel.of_few().then_some(width),
        each: (0..layers).map(layer).collect(),
    })
}
