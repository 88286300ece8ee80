//! Rewrites a graph so that some of its layers and sums compute with 8-bit integers.

use super::grid::Grid;
use super::layer::Layer;
use crate::bake::draft::{Array, Draft};
use crate::bake::passes::scaling::scale_arrays;
use crate::ir::graph::{Graph, Node};
use crate::ir::op::{Activation, Arithmetic, Float, Math, Op, Pool};

/// A node that reads 8-bit integers.
#[derive(Clone, Debug)]
pub(super) enum Integers {
    /// An affine layer or a convolution.
    Layer(Layer),
    /// A sum or a difference of two values, with the grids of both operands. It computes on
    /// integers only where its result is needed on a grid. The last sum of a network often is not,
    /// and stays in floats.
    Sum([Grid; 2]),
    /// The means of windows, with the grid of the operand and the number of elements in a window.
    /// It computes on integers only where its result is needed on a grid alone.
    Mean(Grid, usize),
}

impl Integers {
    /// Returns the grid that operand `i` of the node needs.
    fn grid(&self, i: usize) -> Grid {
        match self {
            Integers::Layer(layer) => layer.grid,
            Integers::Sum(grids) => grids[i],
            Integers::Mean(grid, _) => *grid,
        }
    }
}

/// Says if other nodes need a value as real numbers, as whole numbers on a grid, or both.
#[derive(Clone, Copy, Default)]
struct Needed {
    real: bool,
    whole: Option<Grid>,
    /// True if the real numbers are those that the whole numbers represent.
    represented: bool,
}

/// The values of the new graph that represent one value of the old graph, as real and as whole
/// numbers.
#[derive(Clone, Copy, Default)]
struct Made {
    real: Option<usize>,
    whole: Option<usize>,
}

/// Returns a draft in which some nodes compute with integers. `integers` has an entry for each
/// node, and `None` for nodes that compute in floats.
///
/// The operands of such a node must be rounded to integers. If only functions that commute with
/// rounding are in between, the result of the preceding layer or sum is rounded. Otherwise the
/// rounding is directly in front of the node.
pub(super) fn rewrite(draft: &Draft, integers: &[Option<Integers>]) -> Result<Draft, String> {
    let needed = needed(draft, integers);
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
    for (node, of) in draft.graph.nodes.iter().zip(integers) {
        let wanted = needed[node.output];
        let made = match of {
            Some(Integers::Layer(layer)) => writer.layer(node, layer, wanted)?,
            Some(Integers::Sum(grids)) => match of_grids(node.op, *grids, wanted.whole) {
                Some((op, grid)) => writer.sum(node, op, wanted.real, grid)?,
                None => writer.node(node, wanted)?,
            },
            Some(Integers::Mean(grid, count)) => match wanted.whole.filter(|_| !wanted.real) {
                Some(to) => writer.mean(node, (*grid, *count), to)?,
                None => writer.node(node, wanted)?,
            },
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
fn needed(draft: &Draft, integers: &[Option<Integers>]) -> Vec<Needed> {
    let graph = &draft.graph;
    let mut needed = vec![Needed::default(); graph.values.len()];
    graph.outputs.iter().for_each(|&v| needed[v].real = true);
    for (node, of) in graph.nodes.iter().zip(integers).rev() {
        let Needed { real, whole, .. } = needed[node.output];
        let computes = match of {
            Some(Integers::Layer(_)) => true,
            Some(Integers::Sum(grids)) => of_grids(node.op, *grids, whole).is_some(),
            Some(Integers::Mean(..)) => whole.is_some() && !real,
            None => false,
        };
        if let Some(of) = of.as_ref().filter(|_| computes) {
            let inputs = node.inputs.iter().enumerate();
            inputs.for_each(|(i, &v)| needed[v].whole = Some(of.grid(i)));
            continue;
        }
        let alone = |&v: &usize| graph.only_consumer(v).is_some();
        let rounded = |&v: &usize| is_rounded(graph, integers, v);
        let fits = node.inputs.iter().all(alone)
            && (!real || node.inputs.iter().all(rounded))
            && passes(node.op);
        match whole.filter(|_| fits) {
            Some(grid) => {
                needed[node.output].represented = true;
                let before = limits(node.op, grid);
                let inputs = node.inputs.iter();
                inputs.for_each(|&v| needed[v].whole = Some(before));
            }
            None => {
                needed[node.output].real = true;
                node.inputs.iter().for_each(|&v| needed[v].real = true);
            }
        }
    }
    needed
}

/// Returns true if a value that is needed on a grid is computed by a sum on integers, perhaps with
/// functions behind the sum that commute with rounding. Its real numbers are then those that the
/// integers represent, because sums in floats would need the real numbers of all sums before.
fn is_rounded(graph: &Graph, integers: &[Option<Integers>], value: usize) -> bool {
    let Some(i) = graph.producer(value) else {
        return false;
    };
    let node = &graph.nodes[i];
    match (&integers[i], &*node.inputs) {
        (Some(Integers::Sum(_)), _) => true,
        (None, &[v]) => passes(node.op) && is_rounded(graph, integers, v),
        _ => false,
    }
}

/// Returns the operation that adds or subtracts whole numbers of the grids `of`, and the grid of
/// its result, if the result is needed on a grid. `None` if the scales are too different.
fn of_grids(op: Op, of: [Grid; 2], grid: Option<Grid>) -> Option<(Op, Grid)> {
    let grid = grid?;
    let sign = match op {
        Op::Combine(Arithmetic::Add) => 1.0,
        Op::Combine(Arithmetic::Subtract) => -1.0,
        _ => return None,
    };
    let ratios = [of[0].scale / grid.scale, sign * of[1].scale / grid.scale];
    Some((Op::Combine(Arithmetic::rounded_sum(ratios)?), grid))
}

/// Returns true for operations that commute with rounding. Their result is the same if their
/// operands are rounded to whole numbers or if the result is.
pub(super) fn passes(op: Op) -> bool {
    match op {
        Op::Pool {
            kind: Pool::Max, ..
        }
        | Op::Concat(_)
        | Op::Slice { .. }
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Activation(Activation::Relu) => true,
        // The limits move in front of paddings with 0, which they would change.
        Op::Activation(Activation::Clip { low, high }) => low.get() <= 0.0 && high.get() >= 0.0,
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
    /// Returns the values of the new draft that represent the operands of a node. `form` selects
    /// real or whole numbers.
    fn operands(
        &self,
        node: &Node,
        form: impl Fn(Made) -> Option<usize>,
    ) -> Result<Vec<usize>, String> {
        let inputs = node.inputs.iter().map(|&v| form(self.made[v]));
        let inputs: Option<Vec<usize>> = inputs.collect();
        inputs.ok_or_else(|| format!("{}: an operand is not computed", node.name))
    }

    /// Writes a node that computes in floats, or moves whole numbers, into the new draft.
    fn node(&mut self, node: &Node, needed: Needed) -> Result<Made, String> {
        if needed.real && !needed.represented {
            let inputs = self.operands(node, |made| made.real)?;
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
        let Some(grid) = needed.whole else {
            return Ok(Made::default());
        };
        let inputs = self.operands(node, |made| made.whole)?;
        let whole = match node.op {
            Op::Activation(_) => inputs[0],
            op => self
                .to
                .push(node.name.to_string(), op, &inputs, Vec::new())?,
        };
        self.rounded_only(&node.name, whole, needed.real, grid)
    }

    /// Returns the forms of a value that has been computed as `whole` numbers of `grid`. If `real`
    /// is true, adds a node that turns them into the real numbers that they represent.
    fn rounded_only(
        &mut self,
        name: &str,
        whole: usize,
        real: bool,
        grid: Grid,
    ) -> Result<Made, String> {
        let real = match real {
            true => {
                let factors = vec![f64::from(grid.scale); self.to.shape(whole).c];
                Some(self.scaled(name, whole, &factors)?)
            }
            false => None,
        };
        Ok(Made {
            real,
            whole: Some(whole),
        })
    }

    /// Writes a sum on integers into the new draft. `op` computes whole numbers of `grid`. `real`
    /// is true if other nodes need real numbers too.
    fn sum(&mut self, node: &Node, op: Op, real: bool, grid: Grid) -> Result<Made, String> {
        let inputs = self.operands(node, |made| made.whole)?;
        let sums = self
            .to
            .push(node.name.to_string(), op, &inputs, Vec::new())?;
        let whole = self.clipped(&node.name, sums, grid)?;
        self.rounded_only(&node.name, whole, real, grid)
    }

    /// Writes means of windows on integers into the new draft, as whole numbers of `to`. The
    /// operand has whole numbers of a grid, and each window has `count` elements. The mean times
    /// `count` is nearly the sum of the window, so rounding gives the exact sum on all engines.
    fn mean(
        &mut self,
        node: &Node,
        (grid, count): (Grid, usize),
        to: Grid,
    ) -> Result<Made, String> {
        let inputs = self.operands(node, |made| made.whole)?;
        let name = &node.name;
        let means = self
            .to
            .push(name.to_string(), node.op, &inputs, Vec::new())?;
        let channels = self.to.shape(means).c;
        let sums = self.scaled(name, means, &vec![count as f64; channels])?;
        let round = Op::Activation(Activation::Math(Math::Round));
        let sums = self.to.push(name.to_string(), round, &[sums], Vec::new())?;
        let unit = f64::from(grid.scale) / count as f64 / f64::from(to.scale);
        let scaled = self.scaled(name, sums, &vec![unit; channels])?;
        let whole = self.rounded(name, scaled, to)?;
        self.rounded_only(name, whole, false, to)
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
        self.clipped(name, whole, grid)
    }

    /// Adds a node that clips whole numbers to the limits of `grid`. Returns the index of the new
    /// value.
    fn clipped(&mut self, name: &str, value: usize, grid: Grid) -> Result<usize, String> {
        let clip = Activation::Clip {
            low: Float::new(grid.low as f32),
            high: Float::new(grid.high as f32),
        };
        self.to
            .push(name, Op::Activation(clip), &[value], Vec::new())
    }
}
