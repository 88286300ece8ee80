//! A graph whose numbers are still float64. Front ends build it, passes change it, and its numbers
//! are rounded once, at the end.

use crate::ir::graph::{Graph, Node, Role, Shape, Tensor, Tensors, Value};
use crate::ir::op::Op;
use crate::ir::taps::Taps;
use crate::ir::view::RowMap;

/// A graph with the numbers of its arrays in float64.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draft {
    pub(crate) graph: Graph,
    /// The numbers of each array of the graph, in the order of `graph.tensors`.
    pub(crate) numbers: Vec<Vec<f64>>,
}

/// An array that a node of the graph takes, such as weights or biases.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) role: Role,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// The elements, row-major.
    pub(crate) numbers: Vec<f64>,
    /// In an element-wise node: the index in `numbers` for each element of the node's value.
    /// `None`: one number for each channel, or one for each element.
    pub(crate) map: Option<RowMap>,
}

impl Array {
    /// Makes an array of weights, a row for each output.
    pub(crate) fn weights(rows: usize, numbers: Vec<f64>) -> Array {
        Array {
            role: Role::Weights,
            rows,
            cols: numbers.len() / rows.max(1),
            numbers,
            map: None,
        }
    }

    /// Makes an array with one number in each row.
    pub(crate) fn column(role: Role, numbers: Vec<f64>) -> Array {
        Array {
            role,
            rows: numbers.len(),
            cols: 1,
            numbers,
            map: None,
        }
    }

    /// Makes the array of a resampling's taps, from [`Taps::node`].
    pub(crate) fn taps(array: Vec<f32>) -> Array {
        let numbers: Vec<f64> = array.into_iter().map(f64::from).collect();
        Array {
            role: Role::Taps,
            rows: numbers.len() / 2,
            cols: 2,
            numbers,
            map: None,
        }
    }

    /// Makes the weights and biases of a layer, a row for each output.
    pub(crate) fn of_layer(weights: Vec<f64>, biases: Vec<f64>) -> Vec<Array> {
        let weights = Array::weights(biases.len(), weights);
        vec![weights, Array::column(Role::Biases, biases)]
    }

    /// Makes an array of one number, which all `elements` elements of a value use.
    pub(crate) fn of_all(role: Role, number: f64, elements: usize) -> Array {
        Array {
            map: Some(RowMap::of_all(elements)),
            ..Array::column(role, vec![number])
        }
    }

    /// Makes an array from a number for each element of a value of sizes `dims`. Along axes where
    /// all numbers are equal only one is kept.
    pub(crate) fn compressed(role: Role, numbers: Vec<f64>, dims: &[usize]) -> Array {
        let (numbers, map) = match kept(&numbers, dims) {
            Some((rows, map)) => (rows.into_iter().map(|i| numbers[i]).collect(), map),
            None => {
                let map = RowMap::vector(numbers.len());
                (numbers, map)
            }
        };
        Array {
            map: Some(map),
            ..Array::column(role, numbers)
        }
    }
}

/// Returns the indices of the numbers that [`Array::compressed`] keeps, and the map from the
/// elements to them. `None` if there are not as many numbers as `dims` states, or if a [`RowMap`]
/// has too few loops.
fn kept(numbers: &[f64], dims: &[usize]) -> Option<(Vec<usize>, RowMap)> {
    /// An axis of the value.
    struct Loop {
        size: usize,
        /// The distance of neighbours along the axis, in elements.
        stride: usize,
        /// True if numbers along the axis differ.
        differs: bool,
    }
    let mut inner = 1;
    let mut innermost_first = Vec::new();
    for &size in dims.iter().rev() {
        let equal = |line: &[f64]| {
            line.chunks(inner)
                .all(|c| c.iter().zip(line).all(|(a, b)| a.to_bits() == b.to_bits()))
        };
        innermost_first.push(Loop {
            size,
            stride: inner,
            differs: size > 1 && !numbers.chunks(inner * size).all(equal),
        });
        inner *= size;
    }
    if inner != numbers.len() {
        return None;
    }
    let (mut loops, mut step) = (Vec::new(), 1);
    for axis in &innermost_first {
        loops.push((axis.size, if axis.differs { step } else { 0 }));
        step *= if axis.differs { axis.size } else { 1 };
    }
    loops.reverse();
    let map = RowMap::of(0, &loops)?;
    let mut rows = vec![0];
    for axis in innermost_first.iter().rev().filter(|a| a.differs) {
        let along = |first: &usize| {
            let (first, stride) = (*first, axis.stride);
            (0..axis.size).map(move |i| first + i * stride)
        };
        rows = rows.iter().flat_map(along).collect();
    }
    Some((rows, map))
}

impl Draft {
    /// A draft of an input and no nodes.
    pub(crate) fn new(input: Shape) -> Draft {
        Draft {
            graph: Graph::new(input),
            numbers: Vec::new(),
        }
    }

    /// Adds a node as [`Graph::push`] does. Returns the number of its value.
    ///
    /// # Errors
    /// Shapes or arrays that do not fit the operation, or taps outside of the image.
    pub(crate) fn push(
        &mut self,
        name: impl Into<String>,
        op: Op,
        inputs: &[usize],
        arrays: Vec<Array>,
    ) -> Result<usize, String> {
        let sizes: Vec<_> = arrays
            .iter()
            .map(|a| (a.role, a.rows, a.cols, a.map))
            .collect();
        let name = name.into();
        let value = self.graph.push_mapped(name.clone(), op, inputs, &sizes)?;
        if let (Op::Resample { taps, .. }, [array]) = (op, &arrays[..]) {
            let array: Vec<f32> = array.numbers.iter().map(|&v| v as f32).collect();
            let shapes = (self.shape(inputs[0]), self.shape(value));
            Taps::read(&array, shapes, taps).map_err(|e| format!("{name}: {e}"))?;
        }
        self.numbers.extend(arrays.into_iter().map(|a| a.numbers));
        Ok(value)
    }

    /// Adds a node as [`Draft::push`] does, for callers whose messages name the node already. The
    /// error leaves out its name.
    pub(crate) fn push_at_place(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[usize],
        arrays: Vec<Array>,
    ) -> Result<usize, String> {
        self.push(name, op, inputs, arrays).map_err(|e| {
            let own = e.strip_prefix(name).and_then(|e| e.strip_prefix(": "));
            own.unwrap_or(&e).to_string()
        })
    }

    /// Adds a value that no node computes, in place of the value of a node with a mistake. So nodes
    /// that read the value are checked too. Such a draft never becomes a network.
    pub(crate) fn assume(&mut self, name: &str, shape: Shape) -> usize {
        let values = self.graph.values.to_mut();
        values.push(Value {
            name: name.to_string().into(),
            shape,
        });
        values.len() - 1
    }

    pub(crate) fn shape(&self, value: usize) -> Shape {
        self.graph.values[value].shape
    }

    /// Returns the node that computes `value`; `None` for the graph's input and assumed values.
    pub(crate) fn producer(&self, value: usize) -> Option<&Node> {
        self.graph.producer(value).map(|i| &self.graph.nodes[i])
    }

    /// The numbers of a node's arrays.
    pub(crate) fn arrays(&self, node: &Node) -> Vec<&[f64]> {
        node.tensors.iter().map(|&t| &*self.numbers[t]).collect()
    }

    /// The numbers of array `n` of an element-wise node, one for each element of its value.
    pub(crate) fn spread(&self, node: &Node, n: usize) -> Vec<f64> {
        let numbers = &self.numbers[node.tensors[n]];
        let map = self.graph.tensors[node.tensors[n]]
            .map
            .unwrap_or(RowMap::vector(numbers.len()));
        map.rows().map(|i| numbers[i]).collect()
    }

    /// The numbers of array `n` of an element-wise node, one for each channel; `None` where they
    /// may differ within a channel.
    pub(crate) fn of_channels(&self, node: &Node, n: usize) -> Option<Vec<f64>> {
        let (numbers, shape) = (&self.numbers[node.tensors[n]], self.shape(node.output));
        let map = self.graph.tensors[node.tensors[n]].map?;
        let [c, y, x] = map.steps(shape)?;
        ((y, x) == (0, 0)).then(|| (0..shape.c).map(|i| numbers[map.first + i * c]).collect())
    }

    /// Gives node `i` another operation and other arrays. The shape of the node's value stays as it
    /// is until [`Draft::sweep`].
    pub(crate) fn change(&mut self, i: usize, op: Op, arrays: Vec<Array>) {
        let name = self.graph.nodes[i].name.clone();
        let first = self.numbers.len();
        let tensors = (first..first + arrays.len()).collect::<Vec<_>>();
        for array in arrays {
            self.graph.tensors.to_mut().push(Tensor {
                name: name.clone(),
                role: array.role,
                rows: array.rows,
                cols: array.cols,
                map: array.map,
                spread: 0,
            });
            self.numbers.push(array.numbers);
        }
        let node = &mut self.graph.nodes.to_mut()[i];
        (node.op, node.tensors) = (op, tensors.into());
    }

    /// Replaces `value` by `other` in the inputs of all nodes and in the graph's outputs. `other`
    /// must be computed before the nodes that read `value`.
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

    /// Removes nodes whose values nothing reads, and infers every shape anew.
    ///
    /// # Errors
    /// Shapes that do not fit an operation.
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
                Array {
                    role: tensor.role,
                    rows: tensor.rows,
                    cols: tensor.cols,
                    numbers: std::mem::take(&mut numbers[t]),
                    map: tensor.map,
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

    /// The numbers rounded to f32.
    pub(crate) fn rounded(&self) -> Tensors {
        self.numbers
            .iter()
            .map(|n| n.iter().map(|&v| v as f32).collect())
            .collect()
    }
}
