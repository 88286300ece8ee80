//! Checks of kernels that compute all layers of a network in one launch.

use super::guarded::{Guarded, written_outside};
use super::{Lab, Trouble, WorkGroup, recipe};
use crate::baked::library;
use crate::cl::bytes_of;
use crate::engine::NAN_CLASS;
use crate::engine::model::{Model, bytes};
use crate::ir::graph::Tensors;
use crate::ir::layout::Layout;
use crate::ir::network::{Activation, Kind, Network, Precision, argmax};
use crate::ir::plan::{Arg, BufferRole, places};
use crate::ir::values;
use crate::lab::shapes::generated;
use crate::ops::bound::excess;
use crate::planner::bind::touched;
use crate::registry::Kernel as Entry;

/// The value that all classes have before a launch. Classes of records that are not in the launch
/// must keep it.
const UNTOUCHED: u32 = 0x5A5A_5A5A;

/// A network that checks a kernel which computes all layers in one launch.
#[derive(Clone, Copy)]
struct NetworkCase {
    shape: &'static str,
    records: usize,
    kind: Kind,
    precision: Precision,
    canaries: bool,
}

impl NetworkCase {
    fn wrong(&self, what: String) -> Trouble {
        let NetworkCase { shape, records, .. } = self;
        Trouble::Wrong(format!("{what}, {shape}, {records} records"))
    }

    /// Returns a network whose last score always equals its first one, so that two classes tie.
    /// Without canaries, a score in the middle is NaN.
    fn network(&self) -> Result<(Network, Tensors), String> {
        let (mut network, mut weights) = generated(self.shape, self.kind)?;
        network.weights = self.precision;
        values::round(self.precision, &network.graph, &mut weights);
        if let ([.., w, biases], outputs) = (&mut weights[..], network.outputs()) {
            let inputs = w.len() / outputs;
            w.copy_within(..inputs, (outputs - 1) * inputs);
            biases[outputs - 1] = biases[0];
            if self.one_nan() {
                biases[outputs / 2] = f32::NAN;
            }
        }
        Ok((network, weights))
    }

    /// Returns true if the network makes one score of every record NaN.
    fn one_nan(&self) -> bool {
        !self.canaries
    }
}

/// The buffers of a launch in the order of the kernel's parameters, each with its parameter's name.
type Buffers = Vec<(&'static str, Guarded)>;

impl Lab {
    /// Checks a kernel that computes all layers. The networks have sizes around the kernel's tiles,
    /// as many layers as it takes and every activation. They run with and without arg-max, with an
    /// overflowing record and with equal scores. A launch with a part of a batch must not change
    /// what lies behind that part.
    pub(super) fn check_layers(&mut self, entry: &Entry, group: WorkGroup) -> Result<f64, Trouble> {
        let mut shapes = vec![("40-120-70-10:relu", 20)];
        if group == entry.restrictions.work_group {
            shapes.extend([
                ("1-1:none", 2),
                ("17-33-20-66-15-5:tanh", 33),
                ("50-16-2:sigmoid", 16),
                ("5-2-3-2-3-2-3-2-3:none", 3),
            ]);
        }
        if entry.of_few() {
            // The sums of these layers have more terms than a work-group has work-items. Their
            // slices take several turns with some terms left over. There are also more slices than
            // one work-item adds up.
            shapes.push(("1500-20-600-3:relu", 2));
        }
        let mut worst = 0.0f64;
        for (n, (shape, records)) in shapes.into_iter().enumerate() {
            for precision in Precision::ALL {
                if n > 0 && !self.tries(n, precision, &Precision::ALL) {
                    continue;
                }
                for (kind, canaries) in [
                    (Kind::Classes, true),
                    (Kind::Classes, false),
                    (Kind::Values, true),
                ] {
                    let case = NetworkCase {
                        shape,
                        records,
                        kind,
                        precision,
                        canaries,
                    };
                    worst = worst.max(self.check_network(entry, group, case)?);
                }
            }
        }
        Ok(worst)
    }

    fn check_network(
        &mut self,
        entry: &Entry,
        group: WorkGroup,
        case: NetworkCase,
    ) -> Result<f64, Trouble> {
        let wrong = |what: String| case.wrong(what);
        let (network, weights) = case.network().map_err(wrong)?;
        let kernels = vec![entry.codename.clone()];
        let recipe = recipe(entry, group, case.records + 16, kernels);
        let model = Model::new(network, &weights, &recipe, library(), None).map_err(wrong)?;
        let (plan, network) = (&model.plan, &model.network);
        let step = &plan.steps[0];
        self.admit(entry, group, step.problem)?;
        let options = &step.options;
        let program = self.program(entry, Activation::None, case.precision, group, options)?;

        let mut random = self.random();
        let mut input: Vec<f32> = (0..network.width * plan.padded_batch)
            .map(|_| random.float())
            .collect();
        // The last record contains an infinity, or a NaN without canaries. No layer may lose it.
        input[network.width * (case.records - 1)] = match case.canaries {
            true => f32::NEG_INFINITY,
            false => f32::NAN,
        };
        let buffers = self.network_buffers(entry, case, &model, &input)?;
        let argument = |(arg, bytes): (&Arg, usize)| {
            let at = if let Arg::Buffer(i) = *arg { i + 1 } else { 0 };
            let (_, buffer) = &buffers[at];
            buffer.argument(bytes)
        };
        let sizes = touched(plan, step, library());
        let arguments: Vec<_> = step.args.iter().zip(sizes).map(argument).collect();
        let kernel = self.bound(program.as_ref(), entry, &arguments, group)?;
        let (first, second) = &step.global;
        let global = [first.items(case.records), second.items(case.records)];
        let local = step.local.map(|(y, x)| [y, x]);
        if !self.launch(kernel.as_ref(), &global, local.as_ref().map(|l| &l[..]))? {
            self.take_in_scores(network, &weights, &input[..network.width * case.records]);
            return Ok(0.0);
        }
        if let Some(name) = written_outside(&buffers)? {
            return Err(case.wrong(format!("wrote outside {name}")));
        }
        let results = NetworkResults::read(case, &model, &buffers)?;
        results.judge(&model, &weights, &input)
    }

    /// Returns the constants and the plan's buffers, in the order of the kernel's parameters. After
    /// the constants come the input, the values between layers, the scores and the classes.
    fn network_buffers(
        &self,
        entry: &Entry,
        case: NetworkCase,
        model: &Model,
        input: &[f32],
    ) -> Result<Buffers, Trouble> {
        let (plan, queue) = (&model.plan, &self.queue);
        let (starts, len) = places(&plan.constants);
        let mut constants = vec![0u8; len];
        for (start, values) in starts.into_iter().zip(model.constants.iter().map(bytes)) {
            constants[start..start + values.len()].copy_from_slice(values);
        }
        let mut all = vec![("a", Guarded::new(queue, "a", &constants, case.canaries)?)];
        let names = entry.parameters().iter().skip(1).map(|p| p.name);
        let columns = plan.padded_batch;
        for (name, b) in names.zip(plan.buffers.iter()) {
            let len = b.len(columns);
            let guarded = |contents: &[u8]| Guarded::new(queue, name, contents, case.canaries);
            let buffer = match b.role {
                BufferRole::Input => {
                    let size = (model.network.width, columns);
                    let rows = Layout::C.unpack(input, size, size);
                    let packed = b.layout.pack(&rows, size, (b.padded_rows, columns), 0.0);
                    guarded(bytes_of(&packed[..]))
                }
                BufferRole::Classes => guarded(bytes_of(&vec![UNTOUCHED; len][..])),
                _ => guarded(bytes_of(&vec![f32::NAN; len][..])),
            };
            all.push((name, buffer?));
        }
        Ok(all)
    }
}

/// The results of one launch of a network's kernel, as read from its buffers.
struct NetworkResults {
    case: NetworkCase,
    /// The scores in row-major order: a row for each output, a column for each record of the batch.
    scores: Vec<f32>,
    /// A class for each record; empty if the network computes no classes.
    classes: Vec<u32>,
}

impl NetworkResults {
    /// Reads the results. Returns an error if the kernel wrote values between layers for records
    /// that were not in the launch.
    fn read(
        case: NetworkCase,
        model: &Model,
        buffers: &Buffers,
    ) -> Result<NetworkResults, Trouble> {
        let (plan, columns) = (&model.plan, model.plan.padded_batch);
        let at = |name: &str| buffers.iter().position(|(n, _)| *n == name);
        let buffer = |i: usize| {
            let (_, buffer) = &buffers[i];
            buffer
        };
        if let Some(i) = at("hidden") {
            let between = &plan.buffers[i - 1];
            let hidden = buffer(i).read::<f32>(between.len(columns))?;
            let behind = &hidden[between.len(plan.columns(case.records))..];
            if !behind.iter().all(|v| v.is_nan()) {
                let what = "wrote between layers for records that were not in the launch";
                return Err(case.wrong(what.into()));
            }
        }
        let of_scores = at("r").ok_or_else(|| case.wrong("has no scores".into()))?;
        let scores = &plan.buffers[of_scores - 1];
        let found = buffer(of_scores).read::<f32>(scores.len(columns))?;
        let size = (model.network.outputs(), columns);
        let classes = match at("classes") {
            Some(i) => buffer(i).read(columns)?,
            None => Vec::new(),
        };
        Ok(NetworkResults {
            case,
            scores: scores
                .layout
                .unpack(&found, size, (scores.padded_rows, columns)),
            classes,
        })
    }

    /// Compares scores and classes with a float64 reference. Returns the largest error in units of
    /// the bound.
    fn judge(&self, model: &Model, weights: &Tensors, input: &[f32]) -> Result<f64, Trouble> {
        let (plan, network, case) = (&model.plan, &model.network, self.case);
        let (outputs, columns) = (network.outputs(), plan.padded_batch);
        let mut worst = 0.0f64;
        for n in 0..columns {
            let column: Vec<f32> = (0..outputs).map(|i| self.scores[i * columns + n]).collect();
            let refused = !column.iter().all(|v| v.is_finite());
            let values: Vec<f64> = column.iter().map(|&v| v.into()).collect();
            let mut class = match refused {
                true => NAN_CLASS,
                false => argmax(&values),
            };
            if n >= plan.columns(case.records) {
                class = UNTOUCHED;
                if !column.iter().all(|v| v.is_nan()) {
                    let what = format!("scores of record {n}, which was not in the launch");
                    return Err(case.wrong(what));
                }
            } else if (case.one_nan() || n == case.records - 1) != refused {
                return Err(case.wrong(format!("record {n} has the scores {column:?}")));
            } else if !refused {
                let raw = &input[n * network.width..][..network.width];
                let raw: Vec<f64> = raw.iter().map(|&v| v.into()).collect();
                let expected = network.scores(weights, &raw);
                worst = worst.max(excess(&expected, column.into_iter()));
            }
            if self.classes.get(n).is_some_and(|&c| c != class) {
                let found = self.classes[n];
                return Err(case.wrong(format!("record {n} has class {found}, not {class}")));
            }
        }
        if worst > 1.0 {
            return Err(case.wrong(format!("an error of {worst:.2} times the bound")));
        }
        Ok(worst)
    }
}
