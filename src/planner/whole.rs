//! Networks of 8-bit integers on devices that multiply bytes. Convolutions whose operand and
//! weights are small whole numbers get kernels that sum products of bytes in integers.
//!
//! The planner cannot choose these kernels, because a graph does not have the numbers of its
//! arrays. So a finished plan is changed when an engine starts. Its buffers stay as they are.

use super::bind::{Call, Sizes, bind};
use super::check;
use crate::ir::graph::Node;
use crate::ir::layout::Layout;
use crate::ir::network::{Network, Precision};
use crate::ir::op::Op;
use crate::ir::options::StepOptions;
use crate::ir::plan::{Arg, Constant, Plan, Step};
use crate::ir::scale::BESIDE;
use crate::ir::values::{self, Values};
use crate::ir::view::{Geometry, Image};
use crate::ir::whole_numbers::ranges;
use crate::registry::{Holds, Kernel, Library, Operation, PlanRecipe};
use std::borrow::Cow;
use std::ops::RangeInclusive;

#[cfg(test)]
mod tests;

/// The fewest outputs of a layer for these kernels. Each work-group packs all values of its
/// columns, which pays for at least this many outputs (measured on an H200).
const LEAST_OUTPUTS: usize = 32;

/// The fewest terms of a sum that pay for themselves in any launch (measured on an H200). A launch
/// of shorter sums needs [`LEAST_TILES`], else its time is that of reading and packing.
const LEAST_TERMS: usize = 160;

/// The fewest tiles of 16 outputs by 32 columns in a launch of short sums.
const LEAST_TILES: usize = 264;

/// The most steps between the least and the largest whole number of a value, so that a byte holds
/// it.
const STEPS: f32 = 255.0;

/// Kernels count values from the least one plus this number, so that bytes are signed.
const MIDDLE: i64 = 128;

/// The layers of whole numbers that get kernels for them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layers {
    /// The layers that are faster than with floats.
    Faster,
    /// All layers that the kernels can compute, for checks of the kernels.
    All,
}

/// A plan for kernels of whole numbers, with its constants.
pub(crate) struct WholePlan {
    pub(crate) plan: Plan,
    pub(crate) constants: Vec<Values>,
}

/// Returns `plan` with the recipe's kernels for whole numbers in the steps of `layers`. `constants`
/// are those of `plan`. `None` if there is no such step.
///
/// # Errors
/// Returns the mistakes that [`check::check`] finds in the changed plan.
pub(crate) fn whole(
    network: &Network,
    recipe: &PlanRecipe,
    library: &Library,
    plan: &Plan,
    (constants, layers): (&[Values], Layers),
) -> Result<Option<WholePlan>, String> {
    // Those of the variant for few records fit its layouts, so no other step takes them.
    let few = recipe.few.iter().flat_map(|few| few.kernels.iter());
    let named = few.chain(recipe.kernels.iter());
    let named = named.filter_map(|n| library.kernel(n));
    let kernels: Vec<&Kernel> = named.map(|(_, k)| k).filter(|k| k.whole()).collect();
    // A kernel for all layers takes all constants in one buffer, in their order.
    let takes_all = plan.steps.iter().any(|s| s.args.contains(&Arg::Constants));
    if kernels.is_empty() || takes_all {
        return Ok(None);
    }
    let mut change = Change {
        network,
        plan,
        values: constants,
        ranges: ranges(&network.graph),
        constants: plan.constants.to_vec(),
        packed: constants.to_vec(),
    };
    let mut steps = plan.steps.to_vec();
    let mut changed = false;
    for (i, step) in steps.iter_mut().enumerate() {
        let few = plan.few.is_some_and(|few| i >= few.first);
        let (records, granule) = match plan.few.filter(|_| few) {
            Some(few) => (1, few.granule),
            None => (plan.batch, plan.granule),
        };
        if let Some(layer) = change.layer(step) {
            let fit = kernels.iter().filter(|k| check::layouts(step, k, plan));
            let fit: Vec<&Kernel> = fit.copied().collect();
            if let Some(kernel) = best(&fit, &layer, layers, records) {
                *step = change.step(step, kernel, &layer, granule);
                changed = true;
            }
        }
    }
    if !changed {
        return Ok(None);
    }
    let Change {
        constants, packed, ..
    } = change;
    let (constants, packed) = used(&mut steps, constants, packed);
    let plan = Plan {
        constants: constants.into(),
        steps: steps.into(),
        ..plan.clone()
    };
    match check::check(&plan, network, library) {
        wrong if wrong.is_empty() => Ok(Some(WholePlan {
            plan,
            constants: packed,
        })),
        wrong => Err(wrong.join("; ")),
    }
}

/// A convolution of whole numbers.
struct Layer<'p> {
    node: &'p Node,
    geometry: Geometry,
    /// The weights row by row, without padding.
    weights: Vec<f32>,
    /// For each output the bias, plus what the sum lacks because bytes count values from `least`
    /// plus [`MIDDLE`].
    starts: Vec<i32>,
    /// The least whole number of the operand, or 0 if that is smaller.
    least: f32,
    outputs: usize,
    inputs: usize,
}

/// The change of a plan.
struct Change<'p> {
    network: &'p Network,
    plan: &'p Plan,
    /// The constants of `plan`, as they are stored.
    values: &'p [Values],
    /// For each value of the graph the range of its whole numbers.
    ranges: Vec<Option<RangeInclusive<f32>>>,
    /// The constants of `plan`, and those of changed steps behind them.
    constants: Vec<Constant>,
    packed: Vec<Values>,
}

impl<'p> Change<'p> {
    /// Returns the layer of a step, if kernels for whole numbers can compute it.
    fn layer(&self, step: &Step) -> Option<Layer<'p>> {
        let graph = &self.network.graph;
        let geometry = step.geometry()?;
        let of_weights = &self.plan.constants[step.constants().next()?];
        let convolution = step.operation == Operation::Convolution && geometry.groups == 1;
        if !convolution || !in_fours(step, &geometry) {
            return None;
        }
        // Nodes with the same array may read values of other ranges.
        let reads = |n: &&Node| {
            matches!(n.op, Op::Convolution { .. }) && n.tensors.first() == Some(&of_weights.tensor)
        };
        let mut nodes = graph.nodes.iter().filter(reads);
        let node = nodes.next().filter(|_| nodes.next().is_none())?;
        let range = self.ranges[node.inputs[0]].clone()?;
        // Values outside of the image count as 0.
        let (least, most) = (range.start().min(0.0), range.end().max(0.0));
        // A range that has no end fails this comparison.
        let in_bytes = most - least <= STEPS;
        let &[of_weights, of_biases] = &*node.tensors else {
            return None;
        };
        if !in_bytes {
            return None;
        }
        let of = |i: usize| self.values[i].clone();
        let array = |t: usize| values::array(graph, t, &self.plan.constants, &of);
        let tensor = &graph.tensors[of_weights];
        let (weights, biases) = (array(of_weights), array(of_biases));
        let rows = weights.chunks_exact(tensor.cols.max(1));
        let starts = rows
            .zip(&biases)
            .map(|(row, &bias)| start(row, bias, least));
        let starts: Vec<i32> = starts.collect::<Option<_>>()?;
        (starts.len() == tensor.rows).then_some(Layer {
            node,
            geometry,
            weights,
            starts,
            least,
            outputs: tensor.rows,
            inputs: tensor.cols,
        })
    }

    /// Returns the step of `kernel` for a layer, in place of `step`. Adds its constants.
    fn step(&mut self, step: &Step, kernel: &Kernel, layer: &Layer<'_>, granule: usize) -> Step {
        let buffers: Vec<usize> = step.buffers().collect();
        let a = kernel.restrictions.a.as_ref();
        let rows = layer.outputs.next_multiple_of(a.map_or(1, |a| a.row_align));
        let call = Call {
            kernel,
            group: kernel.restrictions.work_group,
            sizes: Sizes {
                geometry: Some(layer.geometry),
                second: match *buffers {
                    [_, second, _] => self.plan.buffers[second].padded_rows,
                    _ => 0,
                },
                weights: (rows, layer.inputs),
                ..Sizes::of(step.problem)
            },
            factors: (1.0, 0.0),
            params: step.activation.parameters(),
            value: layer.least,
            granule,
        };
        let constants: Vec<usize> = step.constants().collect();
        let mut inputs = buffers.iter();
        let launch = bind(&call, |operand| match operand.holds {
            Holds::Weights => Arg::Constant(self.weights(constants[0], kernel, layer)),
            Holds::Biases => Arg::Constant(self.biases(constants[1], rows, layer)),
            _ => Arg::Buffer(*inputs.next().unwrap_or(&0)),
        });
        Step {
            kernel: kernel.codename.clone(),
            options: StepOptions {
                adds: step.options.adds,
                rescales: step.options.rescales,
                rounds: step.options.rounds,
                ..StepOptions::default()
            },
            args: launch.args.into(),
            global: launch.global,
            local: launch.local,
            ..step.clone()
        }
    }

    /// Returns the index of a layer's weights as bytes. `from` has them as floats.
    fn weights(&mut self, from: usize, kernel: &Kernel, layer: &Layer<'_>) -> usize {
        let a = kernel.restrictions.a.as_ref();
        let layout = a.and_then(|a| a.representation.clone());
        let size @ (outputs, inputs) = (layer.outputs, layer.inputs);
        let padded = (
            outputs.next_multiple_of(a.map_or(1, |a| a.row_align)),
            inputs,
        );
        let constant = Constant {
            padded,
            layout: layout.unwrap_or(Layout::R),
            precision: Precision::I8,
            ..self.constants[from].clone()
        };
        self.add(constant, |c| {
            let bytes: Vec<i8> = layer.weights.iter().map(|&w| w as i8).collect();
            Values::I8(c.layout.pack(&bytes, size, c.padded, 0).into())
        })
    }

    /// Returns the index of a layer's biases, which are the bits of integers, with the numbers
    /// beside them. `from` has them as floats.
    fn biases(&mut self, from: usize, rows: usize, layer: &Layer<'_>) -> usize {
        let mut constant = Constant {
            scales: None,
            precision: Precision::F32,
            ..self.constants[from].clone()
        };
        (constant.padded, constant.layout) = match constant.columns_of_biases() {
            1 => ((rows, 1), Layout::C),
            columns => (
                (rows.next_multiple_of(BESIDE), columns),
                Layout::panels(BESIDE),
            ),
        };
        let (graph, old) = (&self.network.graph, &self.plan.constants);
        let of = |i: usize| self.values[i].clone();
        let array = |t: usize| -> Cow<'_, [f32]> {
            if t == layer.node.tensors[1] {
                let bits = layer.starts.iter().map(|&n| f32::from_bits(n as u32));
                return bits.collect();
            }
            values::array(graph, t, old, &of).into()
        };
        let packed = Values::pack(&constant, &array);
        self.add(constant, |_| packed)
    }

    /// Returns the index of a constant among those of changed steps, and adds it if it is missing.
    fn add(&mut self, constant: Constant, pack: impl FnOnce(&Constant) -> Values) -> usize {
        let own = self.plan.constants.len();
        let found = self.constants[own..].iter().position(|c| *c == constant);
        if let Some(at) = found {
            return own + at;
        }
        self.packed.push(pack(&constant));
        self.constants.push(constant);
        self.constants.len() - 1
    }
}

/// Returns the sum that an output begins with: its bias, plus its weights times the value that
/// bytes count as 0. `None` if a number is not whole, a weight is no byte, or a sum may exceed 31
/// bits.
fn start(weights: &[f32], bias: f32, least: f32) -> Option<i32> {
    let whole = |x: f32| x as i32 as f32 == x;
    let bytes = weights
        .iter()
        .all(|&w| whole(w) && (-128.0..=127.0).contains(&w));
    if !bytes || !whole(bias) {
        return None;
    }
    let sum: i64 = weights.iter().map(|&w| w as i64).sum();
    let sizes: i64 = weights.iter().map(|&w| (w as i64).abs()).sum();
    let start = bias as i64 + sum * (least as i64 + MIDDLE);
    let largest = start.abs() + sizes * MIDDLE;
    (largest < 1 << 31).then_some(start as i32)
}

/// Returns true if a kernel can read and write four channels at a time.
fn in_fours(step: &Step, geometry: &Geometry) -> bool {
    let Geometry { input, output, .. } = geometry;
    let of_image = |i: &Image| [i.first, i.line, i.pixel];
    let sizes = [step.problem.l, step.problem.h, input.1.c];
    let all = of_image(&input.0).into_iter().chain(of_image(&output.0));
    all.chain(sizes).all(|n| n % 4 == 0)
}

/// Returns the kernel whose work-groups have the least to do for a layer of `records` records.
/// `None` if the layer is not among `layers`.
fn best<'k>(
    kernels: &[&'k Kernel],
    layer: &Layer<'_>,
    layers: Layers,
    records: usize,
) -> Option<&'k Kernel> {
    let shape = layer.geometry.output.1;
    let columns = records * shape.h * shape.w;
    let tiles = |(rows, cols)| layer.outputs.div_ceil(rows) * columns.div_ceil(cols);
    let work = |k: &&&Kernel| {
        let tile @ (rows, cols) = k.restrictions.tile.unwrap_or((1, 1));
        rows * cols * tiles(tile).div_ceil(k.restrictions.split.max(1))
    };
    let pays = layer.inputs >= LEAST_TERMS || tiles((16, 32)) >= LEAST_TILES;
    let faster = pays && layer.outputs >= LEAST_OUTPUTS;
    let fits =
        |k: &&&Kernel| layers == Layers::All || faster && layer.inputs >= k.restrictions.least_l;
    kernels.iter().filter(fits).min_by_key(work).copied()
}

/// Returns the constants that steps read, and renumbers the arguments of the steps.
fn used(
    steps: &mut [Step],
    constants: Vec<Constant>,
    packed: Vec<Values>,
) -> (Vec<Constant>, Vec<Values>) {
    let mut places = vec![None; constants.len()];
    steps
        .iter()
        .flat_map(Step::constants)
        .for_each(|c| places[c] = Some(0));
    let all = constants.into_iter().zip(packed).zip(&mut places);
    let mut kept = (Vec::new(), Vec::new());
    for ((constant, values), place) in all {
        if place.is_some() {
            *place = Some(kept.0.len());
            kept.0.push(constant);
            kept.1.push(values);
        }
    }
    for arg in steps.iter_mut().flat_map(|s| s.args.to_mut()) {
        if let Arg::Constant(c) = arg {
            *c = places[*c].unwrap_or(*c);
        }
    }
    kept
}
