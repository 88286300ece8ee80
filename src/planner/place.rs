//! Second pass of planning: turns drafts into buffers with padded sizes, constants and steps.

use super::bind::{Call, Sizes, bind};
use super::{Draft, Link, Matrix, PlanError, Planner, arena};
use crate::ir::graph::Node;
use crate::ir::layout::Layout;
use crate::ir::network::{Kind, Network, Precision};
use crate::ir::op::{Activation, Arithmetic, Float, Op};
use crate::ir::options::{Function, LayerOptions, LayersOptions, Places, StepOptions};
use crate::ir::plan::{
    Arg, Buffer, BufferRole, Constant, Placing, Plan, Rescaling, Role, Step, columns_of_biases,
    places,
};
use crate::ir::scale::BESIDE;
use crate::ir::view::{Geometry, Moved, RowMap};
use crate::registry::{Holds, Kernel, Operand, Operation, Parameter, Problem, lcm};

/// Size limit of a buffer in bytes. Kernels compute offsets in 32 bits.
const MOST_BYTES: u64 = (1 << 31) - 1;

impl Planner<'_> {
    /// Returns the plan. Returns the mistakes that show only when sizes and layouts are known.
    pub(super) fn place(mut self) -> Result<Plan, PlanError> {
        let padded_batch = self.columns();
        let rows: Vec<usize> = self.matrices.iter().map(|m| self.padded_rows(m)).collect();
        let mut buffers = self.buffers(&rows);
        // A smaller batch takes a prefix of each buffer if all layouts put records outermost.
        // Otherwise it is padded to a full batch. A variant for few records needs no padding,
        // because its kernels touch only their own columns. Kernels that work element by element
        // are the exception.
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
        let too_large = self.too_large(&buffers, padded_batch);
        if !too_large.is_empty() {
            return Err(PlanError::TooLarge(too_large));
        }
        let columns = self.recipe.engine.arena_columns(padded_batch);
        let arena = arena::place(&mut buffers, columns, self.drafts.len(), |step, buffer| {
            let d = &self.drafts[step];
            let others = [d.hidden.map(|(matrix, _)| matrix), d.second];
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
            return Err(PlanError::Mistakes(self.errors));
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

    /// Returns a mistake for each buffer that exceeds [`MOST_BYTES`]. The limit holds on any
    /// engine.
    fn too_large(&self, buffers: &[Buffer], padded_batch: usize) -> Vec<String> {
        let bytes = |b: &Buffer| b.padded_rows as u64 * padded_batch as u64 * 4;
        buffers
            .iter()
            .filter(|b| bytes(b) > MOST_BYTES)
            .map(|b| {
                format!(
                    "plan {}: {padded_batch} records of {} values need a buffer of {} bytes, at \
                     most {MOST_BYTES} are possible; use a smaller batch",
                    self.recipe.name,
                    b.padded_rows,
                    bytes(b)
                )
            })
            .collect()
    }

    fn columns(&self) -> usize {
        let batch = self.known.full.map_or(self.batch, |full| full.padded_batch);
        batch.next_multiple_of(self.col_multiple)
    }

    /// Returns the number of rows of a matrix with padding. For a matrix of partial results it is
    /// the sum over all of them.
    pub(super) fn padded_rows(&self, matrix: &Matrix) -> usize {
        let of = |(parts, of): (usize, usize)| parts * self.matrices[of].padded();
        matrix.parts_of.map_or_else(|| matrix.padded(), of)
    }

    /// Returns the links whose two layouts place the elements of their matrix differently.
    pub(super) fn unmet(&self) -> impl Iterator<Item = &Link> {
        let cols = self.columns();
        self.links.iter().filter(move |link| {
            let rows = self.padded_rows(&self.matrices[link.matrix]);
            let fits = link.gives.fits(rows, cols).and(link.takes.fits(rows, cols));
            fits.is_err() || !link.gives.same_placement(&link.takes, rows, cols)
        })
    }

    /// Returns a buffer for each matrix. The offsets in the arena are not set yet.
    fn buffers(&self, rows: &[usize]) -> Vec<Buffer> {
        let value = self.network.graph.outputs.first().copied();
        let scores = value.and_then(|v| self.views[v].as_ref());
        let map = |i: usize, rows: usize| {
            let view = [self.input.as_ref(), scores]
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

    /// Turns a draft into a step with all sizes, and adds the step's constants to `constants`.
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
        self.check_kernel(d, sizes.problem);
        let classes = buffers.iter().position(|b| b.role == BufferRole::Classes);
        let op = self.network.graph.nodes.get(d.first).map(|n| n.op);
        let places = places_of(d.kernel, [b, r], sizes.alike, padded_batch);
        let mut options = options_of(d, op, places);
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
            // A PReLU has no summands, so its kernel gets the slopes a second time.
            Holds::Biases if op == Some(Op::PRelu) => Arg::Constant(last),
            Holds::Weights | Holds::Biases | Holds::Factors | Holds::Taps => {
                let constant = constant_of(network, d, operand, &sizes);
                let at = intern_constant(constants, d.kernel, constant);
                if operand.name == "a" {
                    options.panel = panel(d.kernel, &constants[at]);
                    options.kept = kept(network, d.kernel);
                }
                last = at;
                Arg::Constant(at)
            }
            // Without an arg-max the kernel writes no classes, so any buffer may be passed.
            Holds::Classes => Arg::Buffer(classes.unwrap_or(d.output)),
            Holds::Values | Holds::Bytes | Holds::Words => Arg::Buffer(match operand.name {
                "hidden" => d.hidden.map_or(d.output, |(matrix, _)| matrix),
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

    /// Records a mistake if a kernel does not accept the problem of its draft, or if it reads its
    /// operand as an OpenCL image.
    fn check_kernel(&mut self, d: &Draft<'_>, problem: Problem) {
        if let Err(failed) = d.kernel.admits(problem, None) {
            failed.iter().for_each(|f| self.mistake(d.node, f));
        }
        if d.kernel.restrictions.b.as_ref().is_some_and(|b| b.image) {
            let name = &d.kernel.codename;
            self.mistake(d.node, format_args!("{name} takes activations as an image"));
        }
    }

    /// Returns the sizes of the launch for a draft that reads `b` and writes `r`. Both buffers have
    /// `w` columns.
    fn sizes(
        &self,
        d: &Draft<'_>,
        (b, second): (&Buffer, Option<&Buffer>),
        r: &Buffer,
        w: usize,
    ) -> Sizes {
        use Operation::{Affine, Layers, Matmul, Pair, ReducePair};
        let parts = match d.kernel.operation {
            Matmul | Affine | Pair | Layers | ReducePair => d.parts,
            _ => 1,
        };
        Sizes {
            rows: b.rows,
            middle: self.middle(d),
            parts,
            second: second.map_or(0, |s| s.padded_rows),
            alike: match second {
                Some(second) => self.stored_alike(d, [b, second], r),
                None => self.scaled_alike(d, b, r),
            },
            moved: d.moved.map(|m| moved_rows(d.kernel.operation, m, r)),
            geometry: d.geometry.map(|geometry| geometry_in(geometry, r)),
            product: d.product,
            factors: self.factors(d),
            weights: self.padded_weights(d).unwrap_or_default(),
            ..Sizes::of(problem(d, b, r, w))
        }
    }

    /// Returns the factors of both operands if the draft computes a rounded sum, else 0.
    fn factors(&self, d: &Draft<'_>) -> [Float; 2] {
        match self.network.graph.nodes.get(d.first).map(|n| n.op) {
            Some(Op::Combine(arithmetic)) => arithmetic.factors(),
            _ => [Float::new(0.0); 2],
        }
    }

    /// Returns the padded height of the first layer if the draft computes a pair of layers, else 0.
    fn middle(&self, d: &Draft<'_>) -> usize {
        let (operation, a) = (d.kernel.operation, &d.kernel.restrictions.a);
        match (&d.weighted[..], operation, a) {
            (&[(first, _), _], Operation::Pair, Some(a)) => {
                let (outputs, _) = size_of(self.network, first);
                outputs.next_multiple_of(a.row_align)
            }
            _ => 0,
        }
    }

    /// Returns true if a kernel may combine two operands element by element, because they and the
    /// result have the same layout and size.
    fn stored_alike(&self, d: &Draft<'_>, operands: [&Buffer; 2], r: &Buffer) -> bool {
        let Some(Geometry { input, output, .. }) = d.geometry else {
            return false;
        };
        // An element-wise kernel also computes padding, where a division would be 0 ÷ 0.
        let divides = |node: &Node| node.op == Op::Combine(Arithmetic::Divide);
        let divides = self.network.graph.nodes.get(d.first).is_some_and(divides);
        let same = |other: &Buffer| other.layout == r.layout && other.padded_rows == r.padded_rows;
        // Element-wise launches have one dimension, which a two-dimensional work-group does not
        // fit.
        let grouped = self.recipe.group(d.kernel).is_some();
        let ((from, _), (to, _)) = (input, output);
        d.kernel.operation == Operation::Combine
            && !divides
            && from == to
            && operands.into_iter().all(same)
            && !grouped
    }

    /// Returns true if a kernel may scale its operand element by element, padding included. All
    /// elements have one factor and one summand, and records are outermost in memory.
    fn scaled_alike(&self, d: &Draft<'_>, b: &Buffer, r: &Buffer) -> bool {
        let uniform = |moved: &Moved| {
            let mut loops = moved.from.loops.iter();
            loops.all(|&(turns, step)| turns == 1 || step == 0)
        };
        d.kernel.operation == Operation::Scale
            && d.kernel.source.is_some()
            && d.moved.iter().all(uniform)
            && (&b.layout, b.padded_rows) == (&r.layout, r.padded_rows)
            && r.layout.column_prefix().is_some()
            && self.recipe.group(d.kernel).is_none()
    }

    /// Returns rows and columns of the weights of a convolution, padded for its kernel, or of the
    /// taps of a resampling. `None` for other operations.
    fn padded_weights(&self, d: &Draft<'_>) -> Option<(usize, usize)> {
        let &(node, _) = d.weighted.first()?;
        if d.kernel.operation == Operation::Resample {
            return Some(size_of(self.network, node));
        }
        let a = d.kernel.restrictions.a.as_ref()?;
        (d.kernel.operation == Operation::Convolution).then(|| {
            let (outputs, taps) = size_of(self.network, node);
            let granularity = a.representation.as_ref().map(Layout::granularity);
            let (y, x) = granularity.unwrap_or((1, 1));
            let rows = outputs.next_multiple_of(lcm(a.row_align, y));
            (rows, taps.next_multiple_of(lcm(a.col_align, x)))
        })
    }
}

/// Returns the problem of a launch that reads buffer `b` and writes buffer `r`, with `w` columns.
fn problem(d: &Draft<'_>, b: &Buffer, r: &Buffer, w: usize) -> Problem {
    use Operation::*;
    let operation = d.kernel.operation;
    let h = match operation {
        ArgMax => 1,
        Matmul | Affine | Pair | Layers => r.padded_rows / d.parts,
        _ => r.padded_rows,
    };
    let l = match (operation, &d.kernel.restrictions.a) {
        // A row-major matrix has its padding rows at the end. The kernel reads only as many padding
        // rows as its own alignment needs.
        (Matmul | Affine | Pair | Layers, Some(a)) if b.layout == Layout::R => {
            let granularity = a.representation.as_ref().map(Layout::granularity);
            let (_, x) = granularity.unwrap_or((1, 1));
            b.rows.next_multiple_of(lcm(a.col_align, x))
        }
        (Reduce, _) => d.parts,
        (ReducePair, _) => b.padded_rows / d.parts,
        (Matmul | Affine | Pair | Layers | ArgMax | Repack | Convolution, _) => b.padded_rows,
        (Pool | Scale | Combine | Resample | Product | Softmax | Gather, _) => b.padded_rows,
        (Bias | Sigmoid | Relu | Activation | Sobel | Order | Probe, _) => 0,
    };
    Problem { h, w, l }
}

/// Returns `moved` with the number of result rows that the step fills: all padded rows of `r`, or
/// 0.
fn moved_rows(operation: Operation, moved: Moved, r: &Buffer) -> Moved {
    // A step that fills writes every row of its result. A `Scale` kernel always writes the padding
    // rows, too.
    let fills = moved.filled > 0 || operation == Operation::Scale;
    Moved {
        filled: if fills { r.padded_rows } else { 0 },
        ..moved
    }
}

/// Returns the geometry of a step that writes buffer `r`. If the result has one pixel, the pixel
/// takes all rows of `r`.
fn geometry_in(mut geometry: Geometry, r: &Buffer) -> Geometry {
    let (image, to) = &mut geometry.output;
    if to.h * to.w == 1 {
        (image.pixel, image.line) = (r.padded_rows, r.padded_rows);
    }
    geometry
}

/// Returns the rows and columns of the first array (such as the weights) of a node.
fn size_of(network: &Network, node: usize) -> (usize, usize) {
    let weights = &network.graph.tensors[network.graph.nodes[node].tensors[0]];
    (weights.rows, weights.cols)
}

/// Returns an operand's constant, in the layout that the kernel reads.
fn constant_of(network: &Network, d: &Draft<'_>, operand: &Parameter, sizes: &Sizes) -> Constant {
    // Operands of the second layer in a pair have names that end in 2.
    let second = operand.name.ends_with('2');
    let padded = sizes.of_operand(d.kernel.operation, operand);
    let (node, _) = d.weighted[usize::from(second)];
    let placing = match (operand.holds, &d.placing) {
        // Only the first of two layers reads the elements of an image.
        (Holds::Weights, Placing::Columns(_)) if second => Placing::Plain,
        (Holds::Biases, Placing::Columns(_)) => Placing::Plain,
        (_, placing) => *placing,
    };
    let role = match operand.holds {
        Holds::Biases => Role::Biases,
        Holds::Factors => Role::Factors,
        Holds::Taps => Role::Taps,
        _ => Role::Weights,
    };
    // A reduce kernel is chosen to match the weight format of the kernel before it.
    let precision = d.kernel.restrictions.weights(network.weights);
    let image = operand.name == "a" && d.kernel.restrictions.a.as_ref().is_some_and(|a| a.image);
    let rescale = d.rescaled.filter(|_| role == Role::Biases).map(|node| {
        let tensors = &network.graph.nodes[node].tensors;
        Rescaling {
            factors: tensors[0],
            summands: tensors[1],
        }
    });
    Constant {
        placing,
        image,
        ..constant(
            network,
            (node, rescale),
            role,
            padded,
            d.kernel.layout(operand),
            precision,
        )
    }
}

/// Returns the constant of a node's array with this role. `layout` and `precision` are for weights.
/// Biases get further columns for the scales of byte weights, and for the scaling `rescale` behind
/// the layer.
fn constant(
    network: &Network,
    (node, rescale): (usize, Option<Rescaling>),
    role: Role,
    padded: (usize, usize),
    layout: Layout,
    precision: Precision,
) -> Constant {
    let node = &network.graph.nodes[node];
    let tensor = node.tensors[usize::from(role == Role::Biases)];
    let (name, t) = (node.name.clone(), &network.graph.tensors[tensor]);
    let (size, placing) = ((t.rows, t.cols), Placing::Plain);
    let bytes = role == Role::Biases && precision == Precision::I8;
    let scales = bytes.then(|| node.tensors[0]);
    let (rows, _) = padded;
    let (padded, layout, precision) = match role {
        Role::Weights => (padded, layout, precision),
        Role::Biases | Role::Factors => match columns_of_biases(scales, rescale) {
            1 => ((rows, 1), Layout::C, Precision::F32),
            columns => {
                let padded = (rows.next_multiple_of(BESIDE), columns);
                (padded, Layout::panels(BESIDE), Precision::F32)
            }
        },
        Role::Taps => (padded, Layout::R, Precision::F32),
    };
    Constant {
        name,
        tensor,
        scales,
        rescale,
        role,
        placing,
        size,
        padded,
        layout,
        precision,
        image: false,
    }
}

/// Returns the index of `constant` in `all`, and adds the constant if it is missing. A kernel for
/// few records also accepts weights in panels or with more padding rows.
fn intern_constant(all: &mut Vec<Constant>, kernel: &Kernel, constant: Constant) -> usize {
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
            (other.scales, other.rescale),
            other.image,
        ) == (
            tensor,
            role,
            precision,
            (constant.scales, constant.rescale),
            constant.image,
        );
        let rows = other.layout == constant.layout || panel(kernel, other).is_some();
        let fits = other.padded.0 >= constant.padded.0 && other.padded.1 == constant.padded.1;
        // Nodes may share an array. Its constant then has the name of the first node, so names are
        // not compared.
        let named = || Constant {
            name: other.name.clone(),
            ..constant.clone()
        };
        other.tensor == tensor && *other == named()
            || kernel.of_few() && same && other.placing == *placing && rows && fits
    };
    all.iter().position(serves).unwrap_or_else(|| {
        all.push(constant);
        all.len() - 1
    })
}

/// Returns the number of rows in a panel of `weights`. The layout `C` is a single panel. `None` if
/// the weights are not in panels, or if `kernel` does not read panels.
fn panel(kernel: &Kernel, weights: &Constant) -> Option<usize> {
    kernel.of_few().then_some(())?;
    if weights.layout == Layout::C {
        Some(weights.padded.0)
    } else {
        weights.layout.panel_rows()
    }
}

/// Returns how many of each 16 work-groups ask the device's last-level cache to keep their weights
/// for the next record. `None` if the cache can hold all weights, or if the kernel never asks.
fn kept(network: &Network, kernel: &Kernel) -> Option<usize> {
    let r = &kernel.restrictions;
    let weights: usize = network.graph.tensors.iter().map(|t| t.rows * t.cols).sum();
    let bytes = weights * r.weights(network.weights).bytes();
    (r.keeps > 0 && bytes > r.keeps).then(|| 16 * r.keeps / bytes)
}

/// Returns compiler options with the layouts of operand `b` and result `r`, for a kernel that is
/// compiled for layouts. For other kernels the options are empty.
fn places_of(kernel: &Kernel, [b, r]: [&Buffer; 2], alike: bool, columns: usize) -> StepOptions {
    use Operation::{Affine, Convolution, Layers};
    if !kernel.options_of_layouts() {
        return StepOptions::default();
    }
    let by_rows = matches!(kernel.operation, Affine | Convolution | Layers);
    StepOptions {
        places: match alike {
            true => Places::Alike,
            false => Places::Levels {
                from: b.layout.clone(),
                to: r.layout.clone(),
            },
        },
        row_step: by_rows
            .then(|| b.layout.row_step(b.padded_rows, columns))
            .flatten(),
        ..StepOptions::default()
    }
}

/// Returns the options of a draft whose first node computes `op`. `places` has those for layouts.
fn options_of(d: &Draft<'_>, op: Option<Op>, places: StepOptions) -> StepOptions {
    StepOptions {
        function: op.map_or(Function::Only, |op| function_of(d.kernel.operation, op)),
        adds: d.added.is_some(),
        rescales: d.rescaled.is_some(),
        rounds: d.rounds,
        ..places
    }
}

/// Returns the function that a kernel of `operation` computes for a node.
fn function_of(operation: Operation, op: Op) -> Function {
    match (operation, op) {
        (Operation::Pool, Op::Pool { kind, .. }) => Function::Pool(kind),
        (Operation::Scale, Op::PRelu) => Function::PRelu,
        (Operation::Combine, Op::Combine(arithmetic)) => Function::Combine(arithmetic),
        (Operation::Softmax, Op::OfChannels(of)) => Function::OfChannels(of),
        _ => Function::Only,
    }
}

/// Returns the options of a kernel that computes the whole network, and adds the constants of all
/// layers to `constants`. The input has `l` rows, and every matrix has `width` columns.
fn layers_options(
    network: &Network,
    d: &Draft<'_>,
    buffers: &[Buffer],
    (l, width): (usize, usize),
    constants: &mut Vec<Constant>,
) -> Option<LayersOptions> {
    let r = &d.kernel.restrictions;
    let a = r.a.as_ref().filter(|_| d.kernel.takes_all())?;
    let constants_of = layers_constants(network, d, a, l, constants);
    let (starts, _) = places(constants);
    // The kernel counts in vectors of `lanes` values. A row of a chunk has the values of several
    // records, so it may be several vectors. Without a fixed layout, a row counts as one vector.
    let lanes = r.scale.0.max(1);
    let vectors = match r.r.as_ref().and_then(|o| o.representation.as_ref()) {
        Some(layout) => layout.granularity().1 / lanes,
        None => 1,
    };
    let rows = |i: usize| vectors * buffers[i].padded_rows;
    let layers = d.weighted.len();
    let outputs = |&(node, _): &(usize, Activation)| {
        let (outputs, _) = size_of(network, node);
        outputs
    };
    let layer = |n: usize| {
        let (node, activation) = d.weighted[n];
        let [of_weights, of_biases] = constants_of[n];
        let ((outputs, inputs), weights) = (size_of(network, node), &constants[of_weights]);
        LayerOptions {
            columns: weights.padded.1,
            terms: inputs.next_multiple_of(a.col_align),
            groups: outputs.div_ceil(r.scale.0),
            activation,
            weights: starts[of_weights] / (lanes * weights.precision.bytes()),
            biases: starts[of_biases] / (lanes * Precision::F32.bytes()),
            // The buffer between layers has two areas. Even layers write one of them, odd layers
            // the other.
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

/// Adds the weights and biases of all layers to `constants`, for a kernel whose operand `a` is the
/// weights. Returns the indices of weights and biases for each layer. The input has `l` rows.
fn layers_constants(
    network: &Network,
    d: &Draft<'_>,
    a: &Operand,
    mut l: usize,
    constants: &mut Vec<Constant>,
) -> Vec<[usize; 2]> {
    let precision = d.kernel.restrictions.weights(network.weights);
    let mut indices = Vec::with_capacity(d.weighted.len());
    for (n, &(node, _)) in d.weighted.iter().enumerate() {
        let (outputs, _) = size_of(network, node);
        let h = outputs.next_multiple_of(a.row_align);
        indices.push([Role::Weights, Role::Biases].map(|role| {
            let layout = a.representation.clone().unwrap_or(Layout::R);
            let node = (node, None);
            let mut constant = constant(network, node, role, (h, l), layout, precision);
            // Columns of the first layer's weights follow the order of the input's elements.
            if role == Role::Weights && n == 0 {
                constant.placing = d.placing;
            }
            intern_constant(constants, d.kernel, constant)
        }));
        l = h;
    }
    indices
}
