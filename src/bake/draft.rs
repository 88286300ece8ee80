//! A graph whose numbers are still of float64: what front ends make and passes change. They are rounded once, at the end.

use crate::ir::graph::{Graph, Node, Role, Shape, Tensor, Tensors};
use crate::ir::op::Op;

/// A graph with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draft {
    /// The graph.
    pub(crate) graph: Graph,
    /// The numbers of each of its arrays, in its order.
    pub(crate) numbers: Vec<Vec<f64>>,
}

/// An array of a node: what it is, rows, columns, numbers.
pub(crate) type Array = (Role, usize, usize, Vec<f64>);

impl Draft {
    /// One of an input and no nodes.
    pub(crate) fn new(input: Shape) -> Draft {
        Draft { graph: Graph::new(input), numbers: Vec::new() }
    }

    /// Adds a node as [`Graph::push`] does; gives the number of its value.
    ///
    /// # Errors
    /// What the operation says of shapes that do not meet.
    pub(crate) fn push(
        &mut self,
        name: impl Into<String>,
        op: Op,
        inputs: &[usize],
        arrays: Vec<Array>,
    ) -> Result<usize, String> {
        let sizes: Vec<(Role, usize, usize)> = arrays.iter().map(|a| (a.0, a.1, a.2)).collect();
        let value = self.graph.push(name.into(), op, inputs, &sizes)?;
        self.numbers.extend(arrays.into_iter().map(|a| a.3));
        Ok(value)
    }

    /// The shape of a value.
    pub(crate) fn shape(&self, value: usize) -> Shape {
        self.graph.values[value].shape
    }

    /// The node that computes `value`.
    pub(crate) fn producer(&self, value: usize) -> Option<&Node> {
        self.graph.producer(value).map(|i| &self.graph.nodes[i])
    }

    /// The numbers of a node's arrays.
    pub(crate) fn arrays(&self, node: &Node) -> Vec<&[f64]> {
        node.tensors.iter().map(|&t| &*self.numbers[t]).collect()
    }

    /// Gives node `i` another operation and other arrays. Its value keeps its shape until [`Draft::sweep`].
    pub(crate) fn change(&mut self, i: usize, op: Op, arrays: Vec<Array>) {
        let name = self.graph.nodes[i].name.clone();
        let first = self.numbers.len();
        let tensors = (first..first + arrays.len()).collect::<Vec<_>>();
        for (role, rows, cols, numbers) in arrays {
            self.graph.tensors.to_mut().push(Tensor { name: name.clone(), role, rows, cols, spread: 0 });
            self.numbers.push(numbers);
        }
        let node = &mut self.graph.nodes.to_mut()[i];
        (node.op, node.tensors) = (op, tensors.into());
    }

    /// Lets all that reads `value`, the graph's outputs too, read `other`, which stands before the readers.
    pub(crate) fn redirect(&mut self, value: usize, other: usize) {
        for node in self.graph.nodes.to_mut() {
            if node.inputs.contains(&value) {
                node.inputs.to_mut().iter_mut().filter(|i| **i == value).for_each(|i| *i = other);
            }
        }
        self.graph.outputs.to_mut().iter_mut().filter(|o| **o == value).for_each(|o| *o = other);
    }

    /// Leaves out what nothing reads, and computes every shape anew.
    ///
    /// # Errors
    /// What an operation says of shapes that do not meet.
    pub(crate) fn sweep(self) -> Result<Draft, String> {
        let Draft { graph, mut numbers } = self;
        let mut read = vec![false; graph.values.len()];
        graph.outputs.iter().for_each(|&o| read[o] = true);
        for node in graph.nodes.iter().rev() {
            if read[node.output] {
                node.inputs.iter().for_each(|&i| read[i] = true);
            }
        }
        let mut swept = Draft::new(graph.values[graph.inputs[0]].shape);
        let mut number = vec![0; graph.values.len()];
        for node in graph.nodes.iter().filter(|n| read[n.output]) {
            let inputs: Vec<usize> = node.inputs.iter().map(|&i| number[i]).collect();
            let arrays = node.tensors.iter().map(|&t| {
                let tensor = &graph.tensors[t];
                (tensor.role, tensor.rows, tensor.cols, std::mem::take(&mut numbers[t]))
            });
            let arrays = arrays.collect();
            number[node.output] = swept.push(node.name.to_string(), node.op, &inputs, arrays)?;
        }
        swept.graph.outputs = graph.outputs.iter().map(|&o| number[o]).collect::<Vec<_>>().into();
        Ok(swept)
    }

    /// Its numbers rounded to f32.
    pub(crate) fn rounded(&self) -> Tensors {
        self.numbers.iter().map(|n| n.iter().map(|&v| v as f32).collect()).collect()
    }
}
