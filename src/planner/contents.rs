//! Tracks which buffers hold the values of a network while a plan runs. It follows only the steps
//! of the finished plan and no drafts, so it does not repeat the planner's mistakes.

use crate::ir::graph::{Node, Shape};
use crate::ir::network::Network;
use crate::ir::op::{Axis, Op};
use crate::ir::plan::{BufferRole, Plan, Step};
use crate::ir::view::{Image, Moved, RowMap};
use crate::registry::Operation;

/// The values that the buffers of a plan hold between two of its steps.
pub(crate) struct BufferContents<'p> {
    plan: &'p Plan,
    network: &'p Network,
    held: Vec<Held>,
}

/// A value of the graph that a buffer holds.
#[derive(Clone, Copy, PartialEq)]
struct Held {
    buffer: usize,
    value: usize,
    /// The row of the buffer in which each element of the value is.
    map: RowMap,
}

impl<'p> BufferContents<'p> {
    /// Returns the contents before the first step: the network's input, and values that are views
    /// of it.
    pub(crate) fn of_input(plan: &'p Plan, network: &'p Network) -> BufferContents<'p> {
        let mut contents = BufferContents {
            plan,
            network,
            held: Vec::new(),
        };
        if let (Some(buffer), Some(&value)) =
            (plan.buffer(BufferRole::Input), network.graph.inputs.first())
        {
            contents.add(buffer, value, plan.buffers[buffer].map);
        }
        contents
    }

    fn shape(&self, value: usize) -> Shape {
        self.network.graph.values[value].shape
    }

    /// Adds a value that `buffer` holds in rows `map`. Each reshape, transpose or slice of the
    /// value is held in the same rows, so it is added, too.
    fn add(&mut self, buffer: usize, value: usize, map: RowMap) {
        self.held.push(Held { buffer, value, map });
        let nodes = self
            .network
            .graph
            .nodes
            .iter()
            .filter(|n| n.inputs.first() == Some(&value));
        let views: Vec<(usize, RowMap)> = nodes
            .filter_map(|n| Some((n.output, self.view(n, map)?)))
            .collect();
        views
            .into_iter()
            .for_each(|(value, map)| self.add(buffer, value, map));
    }

    /// Returns the rows of the value of `node`, if the node reshapes, transposes or slices an
    /// operand that is in rows `map`. Such a value needs no copy. `None` for other operations.
    fn view(&self, node: &Node, map: RowMap) -> Option<RowMap> {
        let (from, to) = (self.shape(node.inputs[0]), self.shape(node.output));
        match node.op {
            Op::Reshape(_) => Some(map),
            Op::Transpose(axes) => map.transposed(from, axes),
            Op::Slice { axis, first, .. } => map.sliced(from, along(axis, first), to),
            _ => None,
        }
    }

    /// Returns the rows in which a buffer holds a value, or `None` if it does not hold the value.
    pub(crate) fn rows(&self, buffer: usize, value: usize) -> Option<RowMap> {
        self.held
            .iter()
            .find(|held| held.buffer == buffer && held.value == value)
            .map(|held| held.map)
    }

    fn has(&self, buffer: usize, value: usize, map: RowMap) -> bool {
        self.held.contains(&Held { buffer, value, map })
    }

    /// Forgets all values that a buffer holds.
    fn forget(&mut self, buffer: usize) {
        self.held.retain(|held| held.buffer != buffer);
    }

    /// Returns an error if `moved` gives rows of `buffer` the wrong elements of an array, or if the
    /// step does not compute the node with this array. The array is constant `n` of `step` and
    /// array `tensor` of the graph.
    pub(super) fn reads(
        &self,
        step: &Step,
        buffer: usize,
        (n, tensor): (usize, usize),
        moved: &Moved,
    ) -> Option<String> {
        let graph = &self.network.graph;
        let Some(node) = graph.nodes.iter().position(|n| n.tensors.contains(&tensor)) else {
            return Some("no node of the network has this array".into());
        };
        let of = &graph.nodes[node];
        // A step may also compute the nodes behind this one, which round and apply an activation.
        let behind = |n: usize| graph.only_consumer(graph.nodes[n].output);
        let mut last = std::iter::successors(Some(node), |&n| behind(n)).take(3);
        let computes = last.any(|n| n == step.node);
        let array = if n == 0 {
            of.tensors.first()
        } else {
            of.tensors.last()
        };
        if !computes || !matches!(of.op, Op::Scale | Op::PRelu) || array != Some(&tensor) {
            return Some(format!("it is not operand {n} of what the step computes"));
        }
        let expected = graph.tensors[tensor].map;
        if expected != Some(moved.from) {
            return Some(format!(
                "its elements have numbers {expected:?}, the step takes {:?}",
                moved.from
            ));
        }
        (!self.has(buffer, of.inputs[0], moved.to)).then(|| {
            format!(
                "the value does not stand in rows {:?} of its buffer",
                moved.to
            )
        })
    }

    /// Updates the contents of all buffers by the effect of one step.
    pub(crate) fn follow(&mut self, step: &Step) {
        let (Some(read), Some(written)) = (step.buffers().next(), step.buffers().last()) else {
            return;
        };
        let (moved, node) = (step.maps().next(), self.network.graph.nodes.get(step.node));
        match (step.operation, moved, node) {
            (Operation::ArgMax, ..) => {}
            (Operation::Repack, ..) => {
                self.forget(written);
                let mut copies = self.held.clone();
                copies.retain(|held| held.buffer == read);
                copies.iter_mut().for_each(|held| held.buffer = written);
                self.held.extend(copies);
            }
            (Operation::Gather, Some(moved), _) => self.moves(step, (read, written), moved),
            (
                Operation::Bias | Operation::Sigmoid | Operation::Relu | Operation::Activation,
                _,
                Some(node),
            ) => {
                // The step works in place and overwrites its operand.
                let map = self
                    .rows(written, node.output)
                    .or_else(|| self.rows(written, node.inputs[0]));
                let output = node.output;
                self.forget(written);
                map.into_iter()
                    .for_each(|map| self.add(written, output, map));
            }
            (_, moved, Some(node)) => {
                let image = step
                    .geometry()
                    .map(|g| RowMap::image(g.output.0, g.output.1));
                let image = image.or(step.product().map(|p| p.result()));
                let vector = RowMap::vector(self.shape(node.output).len());
                let output = node.output;
                self.forget(written);
                self.add(
                    written,
                    output,
                    image.or(moved.map(|m| m.to)).unwrap_or(vector),
                );
            }
            _ => self.forget(written),
        }
    }

    /// Applies a step that copies rows. The written buffer then also holds the copied values. It
    /// also holds a concatenation or padding whose last part this was.
    fn moves(&mut self, step: &Step, (read, written): (usize, usize), moved: Moved) {
        if moved.filled > 0 {
            self.forget(written);
        }
        let mut values: Vec<usize> = self
            .held
            .iter()
            .filter(|held| held.buffer == read && held.map == moved.from)
            .map(|held| held.value)
            .collect();
        values.retain(|&value| !self.has(written, value, moved.to));
        for value in values {
            self.add(written, value, moved.to);
        }
        // A concatenation or padding is complete when its buffer holds all parts. Its pixels have
        // either an equal share of all the buffer's rows, or as many rows as channels.
        let Some(node) = self.network.graph.nodes.get(step.node) else {
            return;
        };
        let shape = self.shape(node.output);
        let pixels = shape.h * shape.w;
        let rows = self.plan.buffers[written].padded_rows;
        let whole =
            [rows / pixels, shape.c].map(|pixel| RowMap::image(Image::dense(shape, pixel), shape));
        let complete = |map: RowMap| {
            let part = |at: [usize; 3], value: usize| {
                map.sliced(shape, at, self.shape(value))
                    .is_some_and(|rows| self.has(written, value, rows))
            };
            match node.op {
                Op::Pad { padding, .. } => part(padding.before, node.inputs[0]),
                Op::Concat(axis) => {
                    let mut first = 0;
                    node.inputs.iter().all(|&input| {
                        let at = along(axis, first);
                        first += self.shape(input).along(axis);
                        part(at, input)
                    })
                }
                _ => false,
            }
        };
        if let Some(map) = whole.into_iter().find(|&map| complete(map)) {
            let output = node.output;
            self.add(written, output, map);
        }
    }
}

/// Returns an index (c, y, x) that is `first` along `axis` and 0 along the other axes.
fn along(axis: Axis, first: usize) -> [usize; 3] {
    let mut at = [0; 3];
    at[axis as usize] = first;
    at
}
