//! Checks of kernels that work on images: each runs as a step of the plan of a small graph, one for
//! every edge.

use super::{Group, Guarded, Lab, Trouble};
use crate::baked::library;
use crate::cl::Argument;
use crate::engine::model::{self, Model};
use crate::engine::opencl::limits;
use crate::ir::network::{InputOrder, Kind, Network, Output, Precision, Transform};
use crate::ir::op::Op;
use crate::ir::plan::{Arg, BufferRole, Step};
use crate::ir::values;
use crate::ops::edges::{self, EdgeGraph};
use crate::planner::bind::touched;
use crate::registry::{EngineKind, Kernel as Entry, Operation, PlanRecipe};

/// Kernels that say in which layout a plan's matrices are that any kernel takes.
const FAMILIES: [&str; 5] = [
    "argmax_cm",
    "argmax_rm",
    "argmax_packed",
    "argmax_panel_10",
    "argmax_morton_4_2",
];

/// What the nodes around the one that is checked run on.
const OTHERS: [&str; 7] = [
    "convolution_any",
    "pool_any",
    "scale_any",
    "combine_any",
    "softmax_any",
    "gather_any",
    "activation_unbound",
];

/// Records of a launch, more than a chunk of any layout has columns, and of the batch that it is a
/// part of.
const RECORDS: (usize, usize) = (17, 40);

/// Largest error, relative to the largest value of a record: these sums have few terms.
const BOUND: f64 = 2e-5;

/// Whether kernels of an operation are checked here.
pub(crate) fn of_image(operation: Operation) -> bool {
    use Operation::{Combine, Convolution, Gather, Pool, Scale, Softmax};
    matches!(
        operation,
        Convolution | Pool | Scale | Combine | Softmax | Gather
    )
}

impl Lab {
    /// Runs every graph of [`edges::single`] that `entry` has a part in. Gives the largest error in
    /// units of the bound.
    pub(super) fn check_nodes(&mut self, entry: &Entry, group: Group) -> Result<f64, Trouble> {
        let any = entry.options_of_layouts();
        let (mut worst, mut runs, mut added) = (0.0f64, 0, false);
        for (i, (name, mut builder)) in edges::single().into_iter().enumerate() {
            // Every activation comes behind some graph, and every layout comes with some.
            let activations = entry.activations();
            let n = i % (activations.len() + 1);
            if let Some(&a) = n.checked_sub(1).and_then(|n| activations.get(n)) {
                let value = builder.graph.outputs[0];
                let pushed = builder
                    .graph
                    .push("activation", Op::Activation(a), &[value], &[]);
                pushed.map_err(Trouble::Wrong)?;
            }
            let family = any.then(|| FAMILIES[i % FAMILIES.len()]);
            let weights = entry.restrictions.weights(Precision::ALL[i % 3]);
            let canaries = !self.simulated && i % 4 > 0;
            let run = self.run_graph(entry, group, family, name, builder, (weights, canaries))?;
            if let Some((error, adds)) = run {
                (worst, runs, added) = (worst.max(error), runs + 1, added || adds);
            }
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

    /// Runs a graph; `None` where its plan has no step of `entry`. Gives the largest error in units
    /// of the bound, and whether `entry` adds a second operand to its sums.
    fn run_graph(
        &mut self,
        entry: &Entry,
        group: Group,
        family: Option<&str>,
        name: &str,
        builder: EdgeGraph,
        (weights, canaries): (Precision, bool),
    ) -> Result<Option<(f64, bool)>, Trouble> {
        let shape = builder.graph.values[0].shape;
        let what = format!("{name}, {shape}, {}", family.unwrap_or("its own layouts"));
        let wrong = |text: String| Trouble::Wrong(format!("{text} ({what})"));
        let mut tensors = builder.tensors;
        values::round(weights, &builder.graph, &mut tensors);
        let baked = crate::baked::network().clone();
        let network = Network {
            width: shape.len(),
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
        let kernels = std::iter::once(&*entry.codename)
            .chain(family)
            .chain(OTHERS);
        let recipe = PlanRecipe {
            without_lab: "".into(),
            name: "check".into(),
            about: "".into(),
            engine: EngineKind::OpenCl,
            batch: RECORDS.1,
            few: None,
            kernels: kernels
                .map(|k| k.to_string().into())
                .collect::<Vec<_>>()
                .into(),
            groups: group
                .map(|g| (entry.codename.clone(), g))
                .into_iter()
                .collect::<Vec<_>>()
                .into(),
        };
        let model = match Model::new(network, &tensors, &recipe, library(), None) {
            Ok(model) => model,
            // A node that needs what neither this kernel nor the others are.
            Err(e) if e.contains("the plan has none") => return Ok(None),
            Err(e) => return Err(wrong(e)),
        };
        let (plan, network) = (&model.plan, &model.network);
        if !plan.steps.iter().any(|s| s.kernel == entry.codename) {
            return Ok(None);
        }

        let mut random = self.random();
        let width = network.width;
        let mut input: Vec<f32> = (0..width * RECORDS.0).map(|_| random.float()).collect();
        // What a NaN reaches must not be finite.
        input[width * (RECORDS.0 - 1) + width / 2] = f32::NAN;
        let queue = self.queue.clone();
        let columns = plan.padded_batch;
        let mut buffers = Vec::new();
        for b in plan.buffers.iter() {
            let values = match b.role {
                BufferRole::Input => {
                    let size = (b.padded_rows, columns);
                    let mut rows = vec![0.0; size.0 * size.1];
                    for (n, record) in input.chunks_exact(width).enumerate() {
                        b.map
                            .rows()
                            .zip(record)
                            .for_each(|(row, &v)| rows[row * columns + n] = v);
                    }
                    b.layout.pack(&rows, size, size, 0.0)
                }
                _ => vec![f32::NAN; b.len(columns)],
            };
            buffers.push((
                b.name.to_string(),
                Guarded::new(&queue, "buffer", &values, canaries)?,
            ));
        }
        let mut constants = Vec::new();
        for values in &model.constants {
            constants.push(Guarded::new(
                &queue,
                "constant",
                model::bytes(values),
                canaries,
            )?);
        }
        let mut launched = false;
        for step in plan.steps.iter() {
            let Some((_, kernel)) = library().kernel(&step.kernel) else {
                continue;
            };
            let mut wanted = kernel.clone();
            wanted.restrictions.work_group = step
                .local
                .map(|local| kernel.restrictions.dimensions(local));
            let admitted = wanted.admits(step.problem, Some(&limits(&self.device)));
            admitted.map_err(|e| Trouble::Refused(e.join("; ")))?;
            let group = wanted.restrictions.work_group;
            let stored = kernel.restrictions.weights(weights);
            let program = self.program(kernel, step.activation, stored, group, &step.options)?;
            let argument = |(arg, bytes): (&Arg, usize)| {
                Some(match *arg {
                    Arg::Size(n) => Argument::U32(n),
                    Arg::Scalar(x) => Argument::F32(x),
                    Arg::Pair((x, y)) => Argument::F32x2([x, y]),
                    Arg::Geometry(geometry) => Argument::U32x16(geometry.words()),
                    Arg::Moved(moved) => Argument::U32x16(moved.words()),
                    Arg::Buffer(i) => Argument::Buffer {
                        buffer: &buffers[i].1.view,
                        bytes,
                    },
                    Arg::Constant(i) => Argument::Buffer {
                        buffer: &constants[i].view,
                        bytes,
                    },
                    Arg::Constants => return None,
                })
            };
            let arguments: Option<Vec<_>> = step
                .args
                .iter()
                .zip(touched(plan, step, library()))
                .map(argument)
                .collect();
            let arguments = arguments.ok_or_else(|| wrong("it takes all constants".into()))?;
            let bound = self.bound(program.as_ref(), kernel, &arguments, None)?;
            let global = [
                step.global.0.items(RECORDS.0),
                step.global.1.items(RECORDS.0),
            ];
            let local = step.local.map(|(first, second)| [first, second]);
            launched = self.launch(bound.as_ref(), &global, local.as_ref().map(|l| &l[..]))?;
        }
        let adds = |s: &Step| s.kernel == entry.codename && s.options.adds;
        let adds = plan.steps.iter().any(adds);
        if !launched {
            self.take_in_scores(network, &tensors, &input);
            return Ok(Some((0.0, adds)));
        }
        for (name, buffer) in &buffers {
            if !buffer.intact()? {
                return Err(wrong(format!("wrote outside {name}")));
            }
        }
        for constant in &constants {
            if !constant.intact()? {
                return Err(wrong("wrote outside a constant".into()));
            }
        }

        let Some(at) = plan.buffer(BufferRole::Scores) else {
            return Err(wrong("it has no scores".into()));
        };
        let scores = &plan.buffers[at];
        let size = (scores.padded_rows, columns);
        let found =
            scores
                .layout
                .unpack(&buffers[at].1.read::<f32>(scores.len(columns))?, size, size);
        let untouched = |row: &[f32]| row[plan.columns(RECORDS.0)..].iter().all(|v| v.is_nan());
        if !found.chunks_exact(columns).all(untouched) {
            return Err(wrong(
                "scores of records that were not in the launch".into(),
            ));
        }
        let mut worst = 0.0f64;
        for (n, record) in input.chunks_exact(width).enumerate() {
            let raw: Vec<f64> = record.iter().map(|&v| v.into()).collect();
            let expected = network.scores(&tensors, &raw);
            let finite = expected.iter().filter(|v| v.is_finite());
            let most = finite.fold(1.0f64, |most, v| most.max(v.abs()));
            for (i, (row, &e)) in scores.map.rows().zip(&expected).enumerate() {
                let f = found[row * columns + n];
                let error = match e.is_finite() {
                    true => (f64::from(f) - e).abs() / (BOUND * most),
                    false => super::reference::lost(f),
                };
                if error.is_nan() || error > 1.0 {
                    return Err(wrong(format!("record {n}: value {i} is {f}, not {e}")));
                }
                worst = worst.max(error);
            }
        }
        Ok(Some((worst, adds)))
    }
}
