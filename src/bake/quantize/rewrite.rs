//! Rewrites a graph so that some of its layers compute with 8-bit integers.

use super::grid::Grid;
use super::layer::Layer;
use crate::bake::draft::{Array, Draft};
use crate::bake::passes::scaling::scale_arrays;
use crate::ir::graph::Node;
use crate::ir::op::{Activation, Float, Math, Op, Pool};

/// Says if other nodes need a value as real numbers, as whole numbers on a grid, or both.
#[derive(Clone, Copy, Default)]
struct Needed {
    real: bool,
    whole: Option<Grid>,
}

/// The values of the new graph that represent one value of the old graph, as real and as whole
/// numbers.
#[derive(Clone, Copy, Default)]
struct Made {
    real: Option<usize>,
    whole: Option<usize>,
}

/// Returns a draft in which quantized layers compute with integers. `layers` has an entry for each
/// node, and `None` for nodes that are not quantized.
///
/// The input of a quantized layer must be rounded to integers. If only functions that commute with
/// rounding are in between, the result of the preceding layer is rounded. Otherwise the rounding is
/// directly in front of the quantized layer.
pub(super) fn rewrite(draft: &Draft, layers: &[Option<Layer>]) -> Result<Draft, String> {
    let needed = needed(draft, layers);
    let input = draft.graph.inputs[0];
    let mut writer = Writer {
        from: draft,
        to: Draft::new(draft.shape(input)),
        made: vec![Made::default(); draft.graph.values.len()],
    };
    writer.made[input].real = Some(0);
    let own = writer.from.graph.values[input].name.clone();
    if let Some(grid) = needed[input].whole {
        let whole = writer.quantized(&own, 0, grid)?;
        writer.made[input].whole = Some(whole);
    }
    for (node, layer) in draft.graph.nodes.iter().zip(layers) {
        let wanted = needed[node.output];
        let made = match layer {
            Some(layer) => writer.layer(node, layer, wanted)?,
            None => writer.node(node, wanted)?,
        };
        writer.made[node.output] = made;
    }
    let outputs = draft.graph.outputs.iter();
    let outputs: Option<Vec<usize>> = outputs.map(|&v| writer.made[v].real).collect();
    writer.to.graph.outputs = outputs.ok_or("an output is not computed")?.into();
    Ok(writer.to)
}

/// Returns for each value of the old graph the forms in which other nodes need it.
fn needed(draft: &Draft, layers: &[Option<Layer>]) -> Vec<Needed> {
    let graph = &draft.graph;
    let mut needed = vec![Needed::default(); graph.values.len()];
    graph.outputs.iter().for_each(|&v| needed[v].real = true);
    for (node, layer) in graph.nodes.iter().zip(layers).rev() {
        let Needed { real, whole } = needed[node.output];
        if let Some(layer) = layer {
            needed[node.inputs[0]].whole = Some(layer.grid);
            continue;
        }
        let alone = |&v: &usize| graph.only_consumer(v).is_some();
        match whole.filter(|_| !real && node.inputs.iter().all(alone)) {
            Some(grid) if passes(node.op) => {
                let before = limits(node.op, grid);
                node.inputs
                    .iter()
                    .for_each(|&v| needed[v].whole = Some(before));
            }
            _ => {
                needed[node.output].real = true;
                node.inputs.iter().for_each(|&v| needed[v].real = true);
            }
        }
    }
    needed
}

/// Returns true for operations that commute with rounding. Their result is the same if their
/// operands are rounded to whole numbers or if the result is.
fn passes(op: Op) -> bool {
    match op {
        Op::Pool {
            kind: Pool::Max, ..
        }
        | Op::Concat(_)
        | Op::Slice { .. }
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Activation(Activation::Relu | Activation::Clip { .. }) => true,
        Op::Pad { value, .. } => value.get() == 0.0,
        _ => false,
    }
}

/// Returns the grid of the operand for which `op` gives whole numbers of `grid`. The limits of a
/// ReLU or clip become limits of the whole numbers.
fn limits(op: Op, grid: Grid) -> Grid {
    match op {
        Op::Activation(Activation::Relu) => grid.limited(0.0, f32::INFINITY),
        Op::Activation(Activation::Clip { low, high }) => grid.limited(low.get(), high.get()),
        _ => grid,
    }
}

struct Writer<'w> {
    from: &'w Draft,
    to: Draft,
    made: Vec<Made>,
}

impl Writer<'_> {
    /// Writes a node that is not a quantized layer into the new draft.
    fn node(&mut self, node: &Node, needed: Needed) -> Result<Made, String> {
        let of = |f: &dyn Fn(Made) -> Option<usize>| -> Result<Vec<usize>, String> {
            let inputs = node.inputs.iter().map(|&v| f(self.made[v]));
            let inputs: Option<Vec<usize>> = inputs.collect();
            inputs.ok_or_else(|| format!("{}: an operand is not computed", node.name))
        };
        if needed.real {
            let inputs = of(&|made| made.real)?;
            let real = self
                .to
                .push(node.name.to_string(), node.op, &inputs, self.arrays(node))?;
            let whole = needed.whole;
            let whole = whole.map(|grid| self.quantized(&node.name, real, grid));
            return Ok(Made {
                real: Some(real),
                whole: whole.transpose()?,
            });
        }
        if needed.whole.is_none() {
            return Ok(Made::default());
        }
        let inputs = of(&|made| made.whole)?;
        let whole = match node.op {
            Op::Activation(_) => inputs[0],
            op => self
                .to
                .push(node.name.to_string(), op, &inputs, Vec::new())?,
        };
        Ok(Made {
            real: None,
            whole: Some(whole),
        })
    }

    /// Returns copies of the constant arrays of a node of the old graph.
    fn arrays(&self, node: &Node) -> Vec<Array> {
        let array = |&t: &usize| {
            let tensor = &self.from.graph.tensors[t];
            Array {
                role: tensor.role,
                rows: tensor.rows,
                cols: tensor.cols,
                numbers: self.from.numbers[t].clone(),
                map: tensor.map,
            }
        };
        node.tensors.iter().map(array).collect()
    }

    /// Writes a quantized layer into the new draft: its integer sums, followed by the real or whole
    /// numbers that other nodes need.
    fn layer(&mut self, node: &Node, layer: &Layer, needed: Needed) -> Result<Made, String> {
        let input = self.made[node.inputs[0]].whole;
        let input = input.ok_or_else(|| format!("{}: its operand is not rounded", node.name))?;
        let weights = layer.weights.iter().map(|&w| w.into()).collect();
        let arrays = Array::of_layer(weights, layer.biases());
        let name = &node.name;
        let sums = self.to.push(name.to_string(), node.op, &[input], arrays)?;
        let (mut real, mut whole) = (None, None);
        if needed.real {
            real = Some(self.scaled(name, sums, &layer.units)?);
        }
        if let Some(grid) = needed.whole {
            whole = Some(match real {
                Some(real) => self.quantized(name, real, grid)?,
                None => {
                    let units = layer.units.iter();
                    let steps: Vec<f64> = units.map(|u| u / f64::from(grid.scale)).collect();
                    let scaled = self.scaled(name, sums, &steps)?;
                    self.rounded(name, scaled, grid)?
                }
            });
        }
        Ok(Made { real, whole })
    }

    /// Adds nodes that turn a value of real numbers into whole numbers of `grid`. Returns the index
    /// of the new value.
    fn quantized(&mut self, name: &str, value: usize, grid: Grid) -> Result<usize, String> {
        let factors = vec![f64::from(grid.factor()); self.to.shape(value).c];
        let scaled = self.scaled(name, value, &factors)?;
        self.rounded(name, scaled, grid)
    }

    /// Adds a node that multiplies each channel of a value by its factor. Returns the index of the
    /// new value.
    fn scaled(&mut self, name: &str, value: usize, factors: &[f64]) -> Result<usize, String> {
        let shape = self.to.shape(value);
        let pixels = shape.h * shape.w;
        let spread = (0..shape.len()).map(|i| factors[i / pixels]).collect();
        let arrays = scale_arrays(spread, vec![0.0; shape.len()], shape);
        self.to.push(name, Op::Scale, &[value], arrays)
    }

    /// Adds nodes that round a value to whole numbers and clip it to the limits of `grid`. Returns
    /// the index of the new value.
    fn rounded(&mut self, name: &str, value: usize, grid: Grid) -> Result<usize, String> {
        let round = Op::Activation(Activation::Math(Math::Round));
        let whole = self.to.push(name, round, &[value], Vec::new())?;
        let clip = Activation::Clip {
            low: Float::new(grid.low as f32),
            high: Float::new(grid.high as f32),
        };
        self.to
            .push(name, Op::Activation(clip), &[whole], Vec::new())
    }
}
