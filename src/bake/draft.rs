//! A graph whose numbers are still of float64: what front ends make and passes change. They are
//! rounded once, at the end.

use crate::ir::graph::{Graph, Node, Role, Shape, Tensor, Tensors};
use crate::ir::op::Op;
use crate::ir::view::RowMap;

/// A graph with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draft {
    /// The graph.
    pub(crate) graph: Graph,
    /// The numbers of each of its arrays, in its order.
    pub(crate) numbers: Vec<Vec<f64>>,
}

/// An array of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    /// The part that it plays in its node.
    pub(crate) role: Role,
    /// Rows and columns.
    pub(crate) size: (usize, usize),
    /// Its numbers, row by row.
    pub(crate) numbers: Vec<f64>,
    /// For an array that works on single elements: the number for each element of the node's value.
    /// `None`: one for each channel, or one for each element.
    pub(crate) map: Option<RowMap>,
}

impl Array {
    /// Weights, a row for each output.
    pub(crate) fn weights(rows: usize, numbers: Vec<f64>) -> Array {
        let size = (rows, numbers.len() / rows.max(1));
        Array {
            role: Role::Weights,
            size,
            numbers,
            map: None,
        }
    }

    /// A column of numbers.
    pub(crate) fn column(role: Role, numbers: Vec<f64>) -> Array {
        Array {
            role,
            size: (numbers.len(), 1),
            numbers,
            map: None,
        }
    }

    /// A column of numbers, of which `map` says the one that belongs to each element of the node's
    /// value.
    pub(crate) fn mapped(role: Role, (numbers, map): (Vec<f64>, RowMap)) -> Array {
        Array {
            map: Some(map),
            ..Array::column(role, numbers)
        }
    }
}

/// The different ones among numbers for each element of a value of these sizes, and where they
/// belong: along axes on which all are alike there is one.
pub(crate) fn compressed(numbers: Vec<f64>, dims: &[usize]) -> (Vec<f64>, RowMap) {
    let whole = RowMap::vector(numbers.len());
    let mut inner = 1;
    // From the innermost axis out: how often it turns, numbers of the value from a turn to the
    // next, whether they differ.
    let mut axes: Vec<(usize, usize, bool)> = Vec::new();
    for &n in dims.iter().rev() {
        let alike = |line: &[f64]| {
            line.chunks(inner)
                .all(|c| c.iter().zip(line).all(|(a, b)| a.to_bits() == b.to_bits()))
        };
        axes.push((n, inner, n > 1 && !numbers.chunks(inner * n).all(alike)));
        inner *= n;
    }
    if inner != numbers.len() {
        return (numbers, whole);
    }
    let (mut loops, mut step) = (Vec::new(), 1);
    for &(n, _, differs) in &axes {
        loops.push((n, if differs { step } else { 0 }));
        step *= if differs { n } else { 1 };
    }
    loops.reverse();
    // More than three loops are not compressed.
    let Some(map) = RowMap::of(0, &loops) else {
        return (numbers, whole);
    };
    let mut at = vec![0];
    for &(n, stride, _) in axes.iter().rev().filter(|a| a.2) {
        at = at
            .iter()
            .flat_map(|&first| (0..n).map(move |i| first + i * stride))
            .collect();
    }
    (at.into_iter().map(|i| numbers[i]).collect(), map)
}

impl Draft {
    /// One of an input and no nodes.
    pub(crate) fn new(input: Shape) -> Draft {
        Draft {
            graph: Graph::new(input),
            numbers: Vec::new(),
        }
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
        let sizes: Vec<_> = arrays
            .iter()
            .map(|a| (a.role, a.size.0, a.size.1, a.map))
            .collect();
        let value = self.graph.push_mapped(name.into(), op, inputs, &sizes)?;
        self.numbers.extend(arrays.into_iter().map(|a| a.numbers));
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

    /// The numbers of array `n` of a node that works on single elements, one for each element of
    /// its value.
    pub(crate) fn spread(&self, node: &Node, n: usize) -> Vec<f64> {
        let numbers = &self.numbers[node.tensors[n]];
        let map = self.graph.tensors[node.tensors[n]]
            .map
            .unwrap_or(RowMap::vector(numbers.len()));
        map.rows().map(|i| numbers[i]).collect()
    }

    /// One number for each channel; `None` where those of a channel's elements may differ.
    pub(crate) fn of_channels(&self, node: &Node, n: usize) -> Option<Vec<f64>> {
        let (numbers, shape) = (&self.numbers[node.tensors[n]], self.shape(node.output));
        let map = self.graph.tensors[node.tensors[n]].map?;
        let [c, y, x] = map.steps(shape)?;
        ((y, x) == (0, 0)).then(|| (0..shape.c).map(|i| numbers[map.first + i * c]).collect())
    }

    /// Gives node `i` another operation and other arrays. Its value keeps its shape until
    /// [`Draft::sweep`].
    pub(crate) fn change(&mut self, i: usize, op: Op, arrays: Vec<Array>) {
        let name = self.graph.nodes[i].name.clone();
        let first = self.numbers.len();
        let tensors = (first..first + arrays.len()).collect::<Vec<_>>();
        for Array {
            role,
            size: (rows, cols),
            numbers,
            map,
        } in arrays
        {
            self.graph.tensors.to_mut().push(Tensor {
                name: name.clone(),
                role,
                rows,
                cols,
                map,
                spread: 0,
            });
            self.numbers.push(numbers);
        }
        let node = &mut self.graph.nodes.to_mut()[i];
        (node.op, node.tensors) = (op, tensors.into());
    }

    /// Lets all that reads `value`, the graph's outputs too, read `other`, which stands before the
    /// readers.
    pub(crate) fn redirect(&mut self, value: usize, other: usize) {
        for node in self.graph.nodes.to_mut() {
            if node.inputs.contains(&value) {
                node.inputs
                    .to_mut()
                    .iter_mut()
                    .filter(|i| **i == value)
                    .for_each(|i| *i = other);
            }
        }
        self.graph
            .outputs
            .to_mut()
            .iter_mut()
            .filter(|o| **o == value)
            .for_each(|o| *o = other);
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
                let &Tensor {
                    role,
                    rows,
                    cols,
                    map,
                    ..
                } = &graph.tensors[t];
                Array {
                    role,
                    size: (rows, cols),
                    numbers: std::mem::take(&mut numbers[t]),
                    map,
                }
            });
            let arrays = arrays.collect();
            number[node.output] = swept.push(node.name.to_string(), node.op, &inputs, arrays)?;
        }
        swept.graph.outputs = graph
            .outputs
            .iter()
            .map(|&o| number[o])
            .collect::<Vec<_>>()
            .into();
        Ok(swept)
    }

    /// Its numbers rounded to f32.
    pub(crate) fn rounded(&self) -> Tensors {
        self.numbers
            .iter()
            .map(|n| n.iter().map(|&v| v as f32).collect())
            .collect()
    }
}
