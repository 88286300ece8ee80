//! Checks of kernels whose operations work on images. A kernel runs as a step in the plans of small
//! graphs, one graph for each edge case.

use super::guarded::{Guarded, written_outside};
use super::{Lab, Trouble, WorkGroup, recipe, scalar};
use crate::baked::{library, network};
use crate::cl::{Argument, Image2d, bytes_of};
use crate::engine::model::{self, Model, bytes};
use crate::ir::graph::{Shape, Tensors};
use crate::ir::network::{InputOrder, Kind, Network, Output, Precision, Transform};
use crate::ir::op::Op;
use crate::ir::plan::{Arg, Buffer as PlanBuffer, BufferRole, Step};
use crate::ir::values;
use crate::lab::reference;
use crate::ops::edges::{self, EdgeGraph};
use crate::planner::bind::touched;
use crate::planner::whole::Layers;
use crate::registry::{Kernel as Entry, Operation};
use std::borrow::Cow;

/// Kernels that each require one layout. A plan with one of these kernels gives its matrices that
/// layout. Kernels that take any layout are checked once with each.
const FAMILIES: [&str; 5] = [
    "argmax_cm",
    "argmax_rm",
    "argmax_packed",
    "argmax_panel_10",
    "argmax_morton_4_2",
];

/// Kernels that compute those nodes of a checked graph that the kernel under test does not.
const OTHERS: [&str; 7] = [
    "convolution_any",
    "pool_any",
    "scale_any",
    "combine_any",
    "softmax_any",
    "gather_any",
    "activation_unbound",
];

/// A kernel with the layouts of the kernels for whole numbers. A plan has it before those kernels
/// take its steps.
const FLOATS: &str = "convolution_records_16x32";

/// Inputs and outputs of the layers that are checked with a scaling behind them. The sums of the
/// larger ones are split into parts, by kernels that do so.
const SIZES: [(usize, usize); 6] = [(1, 1), (20, 7), (150, 33), (300, 70), (700, 10), (700, 140)];

/// Records of a launch. The number is larger than the columns of a chunk in any layout here.
const RECORDS: usize = 17;

/// The number of records in the batch. The launch computes only a part of them.
const BATCH: usize = 40;

/// The largest allowed error, relative to the largest score of a record. A largest score below 1
/// counts as 1. The bound can be small, because the graphs' sums have few terms.
const BOUND: f64 = 2e-5;

/// Returns true if this module checks kernels of the operation, in the plans of small graphs.
pub(crate) fn of_image(operation: Operation) -> bool {
    use Operation::{Combine, Convolution, Gather, Pool, Product, Resample, Scale, Softmax};
    matches!(
        operation,
        Convolution | Pool | Scale | Combine | Resample | Product | Softmax | Gather
    )
}

/// Returns the name of a kernel whose work-groups share the common dimension of a layer, and whose
/// parts `reduce` adds up.
fn partial_sums_for(reduce: &Entry) -> Option<&'static str> {
    let layout = |k: &Entry| {
        let r = k.restrictions.r.as_ref();
        r.and_then(|o| o.representation.clone())
    };
    let fits = |k: &&Entry| {
        let splits = k.operation == Operation::Affine && k.restrictions.split > 1;
        splits && layout(k) == layout(reduce)
    };
    library().kernels.iter().find(fits).map(|k| &*k.codename)
}

/// A kernel that is checked in the plan of a graph.
struct GraphCase<'a> {
    entry: &'a Entry,
    /// The names of the graph and of its layouts, for error messages.
    what: String,
    model: Model,
    tensors: Tensors,
    canaries: bool,
    /// True if the graph ends with a rounding, so its inputs are whole numbers.
    rescaled: bool,
}

/// The constants of a plan on the device.
#[derive(Default)]
struct Constants {
    buffers: Vec<(&'static str, Guarded)>,
    /// For each constant, its image if kernels read it as one.
    images: Vec<Option<Image2d>>,
}

/// The outcome of checking a kernel in one graph, which ran or whose inputs were hashed.
struct GraphResult {
    /// The largest error of the graph's scores, in units of the allowed bound.
    error: f64,
    /// True if the kernel adds a second operand to its sums in this graph.
    adds: bool,
    /// True if the kernel also computes a scaling behind its layer in this graph.
    rescales: bool,
}

impl Lab {
    /// Runs every graph of [`edges::single`] that has a step of `entry`. A kernel for whole numbers
    /// has those of [`edges::whole`]. Returns the largest error in units of the bound.
    pub(super) fn check_nodes(&mut self, entry: &Entry, group: WorkGroup) -> Result<f64, Trouble> {
        let any = entry.options_of_layouts();
        let (mut worst, mut runs, mut added, mut scaled) = (0.0f64, 0, false, false);
        let graphs = match entry.whole() {
            true => edges::whole(),
            false => edges::single(),
        };
        for (i, (name, mut builder)) in graphs.into_iter().enumerate() {
            // The graph's index chooses the layouts and an activation that follows the graph. So
            // every activation and every layout has its turn.
            let activations = entry.activations();
            let n = i % (activations.len() + 1);
            let rescaled = entry.rescales() && i % 2 == 0;
            let weights = entry.restrictions.weights(Precision::ALL[i % 3]);
            if rescaled {
                builder
                    .rescale(weights != Precision::I8)
                    .map_err(Trouble::Wrong)?;
            }
            if let Some(&a) = n.checked_sub(1).and_then(|n| activations.get(n)) {
                let value = builder.graph.outputs[0];
                let pushed = builder
                    .graph
                    .push("activation", Op::Activation(a), &[value], &[]);
                pushed.map_err(Trouble::Wrong)?;
            }
            let family = any.then(|| FAMILIES[i % FAMILIES.len()]);
            let canaries = !self.simulated && i % 4 > 0;
            let shape = builder.graph.values[0].shape;
            let what = format!("{name}, {shape}, {}", family.unwrap_or("its own layouts"));
            let case = GraphCase::new(entry, group, family, what, builder, weights, canaries)?;
            if let Some(case) = case {
                // Sums of whole numbers are exact for any input.
                let rescaled = rescaled && !entry.whole();
                let result = self.run_graph(&GraphCase { rescaled, ..case })?;
                worst = worst.max(result.error);
                runs += 1;
                added |= result.adds;
                scaled |= result.rescales;
            }
        }
        if entry.rescales() && !scaled {
            return Err(Trouble::Wrong(
                "no graph of the checks has it compute a scaling".into(),
            ));
        }
        if entry.adds() && !added {
            return Err(Trouble::Wrong(
                "no graph of the checks has it add a second operand".into(),
            ));
        }
        if runs == 0 {
            return Err(Trouble::Wrong("no graph of the checks runs it".into()));
        }
        Ok(worst)
    }

    /// Checks a kernel of affine layers with a scaling and a rounding behind the layer. Also checks
    /// kernels that add up the parts of sums. Returns the largest error in units of the bound.
    pub(super) fn check_rescaled(
        &mut self,
        entry: &Entry,
        group: WorkGroup,
    ) -> Result<f64, Trouble> {
        // A reduce kernel needs the sums of a kernel whose work-groups share the common dimension.
        let sums = (entry.operation == Operation::Reduce).then(|| partial_sums_for(entry));
        let (mut worst, mut scaled) = (0.0f64, false);
        for (i, (inputs, outputs)) in SIZES.into_iter().enumerate() {
            // The scales of byte weights may be no powers of two, and sums are then not exact.
            let weights = entry.restrictions.weights(Precision::ALL[i % 3]);
            let mut builder = EdgeGraph::new(Shape::vector(inputs), i as u64);
            let pushed = builder
                .affine(0, outputs)
                .and_then(|_| builder.rescale(weights != Precision::I8))
                .and_then(|()| match entry.activations().get(i) {
                    Some(&a) => builder.activation(builder.graph.outputs[0], a).map(|_| ()),
                    None => Ok(()),
                });
            pushed.map_err(Trouble::Wrong)?;
            let what = format!("a scaled layer of {inputs} inputs and {outputs} outputs");
            let canaries = !self.simulated;
            let case = GraphCase::new(
                entry,
                group,
                sums.flatten(),
                what,
                builder,
                weights,
                canaries,
            )?;
            if let Some(case) = case {
                let result = self.run_graph(&GraphCase {
                    rescaled: true,
                    ..case
                })?;
                worst = worst.max(result.error);
                scaled |= result.rescales;
            }
        }
        match scaled {
            true => Ok(worst),
            false => Err(Trouble::Wrong(
                "no layer of the checks has it compute a scaling".into(),
            )),
        }
    }

    fn run_graph(&mut self, case: &GraphCase) -> Result<GraphResult, Trouble> {
        let (plan, network) = (&case.model.plan, &case.model.network);
        let mut random = self.random();
        let width = network.width;
        let mut input: Vec<f32> = (0..width * RECORDS).map(|_| random.float()).collect();
        if case.rescaled {
            input.iter_mut().for_each(|x| *x = (*x * 4.0).round());
        }
        // The last record has a NaN. The scores that it reaches must not be finite.
        input[width * (RECORDS - 1) + width / 2] = f32::NAN;
        let mut buffers = Vec::new();
        for b in plan.buffers.iter() {
            let values = match b.role {
                BufferRole::Input => case.packed(b, &input),
                _ => vec![f32::NAN; b.len(plan.padded_batch)],
            };
            let buffer = Guarded::new(&self.queue, "buffer", bytes_of(&values[..]), case.canaries)?;
            buffers.push((b.name.to_string(), buffer));
        }
        let mut constants = Constants::default();
        for (c, values) in plan.constants.iter().zip(&case.model.constants) {
            let buffer = Guarded::new(&self.queue, "constant", bytes(values), case.canaries)?;
            constants.buffers.push(("a constant", buffer));
            let image = c.image.then(|| {
                // A pixel has four rows of a column, and a line of pixels is one column.
                let size = (c.padded.0 / 4, c.padded.1);
                model::image(&self.queue, "constant", size, values)
            });
            constants.images.push(image.transpose()?);
        }
        let mut launched = false;
        for step in plan.steps.iter() {
            if let Some((_, kernel)) = library().kernel(&step.kernel) {
                launched = self.run_step(case, step, kernel, &buffers, &constants)?;
            }
        }
        let own = |s: &&Step| s.kernel == case.entry.codename;
        let result = |error: f64| GraphResult {
            error,
            adds: plan.steps.iter().filter(own).any(|s| s.options.adds),
            rescales: plan.steps.iter().filter(own).any(|s| s.options.rescales),
        };
        if !launched {
            self.take_in_scores(network, &case.tensors, &input);
            return Ok(result(0.0));
        }
        if let Some(name) = written_outside(&buffers)?.or(written_outside(&constants.buffers)?) {
            return Err(case.wrong(format!("wrote outside {name}")));
        }
        Ok(result(case.judge(&buffers, &input)?))
    }

    /// Runs one step of the plan. Returns false if the inputs are only hashed and nothing is
    /// launched.
    fn run_step(
        &mut self,
        case: &GraphCase,
        step: &Step,
        kernel: &Entry,
        buffers: &[(String, Guarded)],
        constants: &Constants,
    ) -> Result<bool, Trouble> {
        let plan = &case.model.plan;
        let local = step.local;
        let group = local.map(|local| kernel.restrictions.dimensions(local));
        self.admit(kernel, group, step.problem)?;
        let stored = kernel.restrictions.weights(case.model.network.weights);
        let program = self.program(kernel, step.activation, stored, group, &step.options)?;
        let argument = |(arg, bytes): (&Arg, usize)| {
            let buffer = match *arg {
                Arg::Buffer(i) => buffers.get(i).map(|(_, buffer)| buffer),
                Arg::Constant(i) => match constants.images.get(i)? {
                    Some(image) => return Some(Argument::Image(image)),
                    None => constants.buffers.get(i).map(|(_, buffer)| buffer),
                },
                ref number => return scalar(number),
            };
            buffer.map(|buffer| buffer.argument(bytes))
        };
        let sizes = touched(plan, step, library());
        let arguments: Option<Vec<_>> = step.args.iter().zip(sizes).map(argument).collect();
        let arguments = arguments.ok_or_else(|| case.wrong("it takes all constants".into()))?;
        let bound = self.bound(program.as_ref(), kernel, &arguments, None)?;
        let (first, second) = &step.global;
        let global = [first.items(RECORDS), second.items(RECORDS)];
        let local = local.map(|(first, second)| [first, second]);
        self.launch(bound.as_ref(), &global, local.as_ref().map(|l| &l[..]))
    }
}

impl<'a> GraphCase<'a> {
    /// Plans a graph with the layouts of `family`. Returns `None` if the plan has no step of
    /// `entry`.
    fn new(
        entry: &'a Entry,
        group: WorkGroup,
        family: Option<&str>,
        what: String,
        builder: EdgeGraph,
        weights: Precision,
        canaries: bool,
    ) -> Result<Option<GraphCase<'a>>, Trouble> {
        let mut tensors = builder.tensors;
        values::round(weights, &builder.graph, &mut tensors);
        let baked = network().clone();
        let network = Network {
            width: builder.graph.values[0].shape.len(),
            order: InputOrder::Chw,
            graph: builder.graph,
            labels: Vec::new().into(),
            features: Vec::new().into(),
            transform: Transform::Identity,
            output: Output {
                kind: Kind::Values,
                ..baked.output
            },
            weights,
            ..baked
        };
        let floats = entry.whole().then_some(FLOATS);
        let kernels = std::iter::once(&*entry.codename)
            .chain(floats)
            .chain(family)
            .chain(OTHERS)
            .map(|k| Cow::Owned(k.to_string()))
            .collect();
        let recipe = recipe(entry, group, BATCH, kernels);
        let model = match Model::new(network, &tensors, &recipe, library(), None) {
            Ok(model) => model,
            // The plan has no kernel for one of the graph's nodes, so this graph is not checked.
            Err(e) if e.contains("the plan has none") => return Ok(None),
            Err(e) => return Err(Trouble::Wrong(format!("{e} ({what})"))),
        };
        let whole = model.whole(library(), Layers::All);
        let whole = whole.map_err(Trouble::Wrong)?;
        let model = whole.unwrap_or(model);
        let runs = model.plan.steps.iter().any(|s| s.kernel == entry.codename);
        Ok(runs.then_some(GraphCase {
            entry,
            what,
            model,
            tensors,
            canaries,
            rescaled: false,
        }))
    }

    fn wrong(&self, text: String) -> Trouble {
        Trouble::Wrong(format!("{text} ({})", self.what))
    }

    /// Returns the input records as the contents of plan buffer `b`, in its layout and with its
    /// padding.
    fn packed(&self, b: &PlanBuffer, input: &[f32]) -> Vec<f32> {
        let columns = self.model.plan.padded_batch;
        let size = (b.padded_rows, columns);
        let mut rows = vec![0.0; b.padded_rows * columns];
        for (n, record) in input.chunks_exact(self.model.network.width).enumerate() {
            for (row, &v) in b.map.rows().zip(record) {
                rows[row * columns + n] = v;
            }
        }
        b.layout.pack(&rows, size, size, 0.0)
    }

    /// Compares the scores with a float64 reference. Returns the largest error in units of the
    /// bound.
    fn judge(&self, buffers: &[(String, Guarded)], input: &[f32]) -> Result<f64, Trouble> {
        let (plan, network) = (&self.model.plan, &self.model.network);
        let columns = plan.padded_batch;
        let Some(at) = plan.buffer(BufferRole::Scores) else {
            return Err(self.wrong("it has no scores".into()));
        };
        let (scores, (_, buffer)) = (&plan.buffers[at], &buffers[at]);
        let size = (scores.padded_rows, columns);
        let found = buffer.read::<f32>(scores.len(columns))?;
        let found = scores.layout.unpack(&found, size, size);
        let untouched = |row: &[f32]| row[plan.columns(RECORDS)..].iter().all(|v| v.is_nan());
        if !found.chunks_exact(columns).all(untouched) {
            return Err(self.wrong("scores of records that were not in the launch".into()));
        }
        let mut worst = 0.0f64;
        for (n, record) in input.chunks_exact(network.width).enumerate() {
            let raw: Vec<f64> = record.iter().map(|&v| v.into()).collect();
            let expected = network.scores(&self.tensors, &raw);
            let finite = expected.iter().filter(|v| v.is_finite());
            let most = finite.fold(1.0f64, |most, v| most.max(v.abs()));
            for (i, (row, &e)) in scores.map.rows().zip(&expected).enumerate() {
                let f = found[row * columns + n];
                let error = match e.is_finite() {
                    true => (f64::from(f) - e).abs() / (BOUND * most),
                    false => reference::lost(f),
                };
                if error.is_nan() || error > 1.0 {
                    return Err(self.wrong(format!("record {n}: value {i} is {f}, not {e}")));
                }
                worst = worst.max(error);
            }
        }
        Ok(worst)
    }
}
