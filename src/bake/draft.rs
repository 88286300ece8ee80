//! A graph whose numbers are still float64. Front ends build the draft and passes change it. At the
//! end its numbers are rounded to f32 once.

use crate::ir::graph::{Graph, Node, Role, Shape, Tensor, Tensors, Value};
use crate::ir::op::Op;
use crate::ir::taps::Taps;
use crate::ir::view::RowMap;

/// A graph, and the numbers of its constant arrays in float64.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draft {
    pub(crate) graph: Graph,
    /// The numbers of each constant array of the graph, in the order of `graph.tensors`.
    pub(crate) numbers: Vec<Vec<f64>>,
}

/// A constant array for a node of the graph, such as weights or biases.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) role: Role,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// The elements of the array, row-major.
    pub(crate) numbers: Vec<f64>,
    /// For an element-wise node, maps each element of the node's value to its index in `numbers`.
    /// With `None` the array has one number for each channel, or one for each element.
    pub(crate) map: Option<RowMap>,
}

impl Array {
    /// Makes an array of weights, which has a row for each output.
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

    /// Makes the array of a resampling from the numbers that [`Taps::node`] returns.
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

    /// Makes the weights and the biases of a layer. Both have a row for each output.
    pub(crate) fn of_layer(weights: Vec<f64>, biases: Vec<f64>) -> Vec<Array> {
        let weights = Array::weights(biases.len(), weights);
        vec![weights, Array::column(Role::Biases, biases)]
    }

    /// Makes an array with a single number, which all `elements` elements of a value use.
    pub(crate) fn of_all(role: Role, number: f64, elements: usize) -> Array {
        Array {
            map: Some(RowMap::of_all(elements)),
            ..Array::column(role, vec![number])
        }
    }

    /// Makes an array from one number for each element of a value whose axes have the sizes `dims`.
    /// If the numbers do not change along an axis, only one of them is kept.
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

/// Returns the indices of the numbers that [`Array::compressed`] keeps, and the map from elements
/// to the kept numbers. `None` if `numbers` does not have the length that `dims` gives, or if the
/// map needs more loops than a [`RowMap`] has.
fn kept(numbers: &[f64], dims: &[usize]) -> Option<(Vec<usize>, RowMap)> {
    /// An axis of the value that uses the array.
    struct Loop {
        size: usize,
        /// The distance in elements between neighbours along the axis.
        stride: usize,
        /// True if the numbers change along the axis.
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
    /// Makes a draft whose graph has one input and no nodes.
    pub(crate) fn new(input: Shape) -> Draft {
        Draft {
            graph: Graph::new(input),
            numbers: Vec::new(),
        }
    }

    /// Adds a node as [`Graph::push`] does. Returns the index of its value.
    ///
    /// # Errors
    /// The shapes or arrays do not fit the operation, or a tap of a resampling is outside of the
    /// image.
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

    /// Adds a node as [`Draft::push`] does, but leaves the node's name out of an error. It serves
    /// callers whose messages already name the node.
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

    /// Adds a value that no node computes. A front end uses it after a mistake in a node, so that
    /// the nodes that read the value are still checked. Such a draft never becomes a network.
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

    /// Returns the node that computes `value`. `None` for the input of the graph and for assumed
    /// values.
    pub(crate) fn producer(&self, value: usize) -> Option<&Node> {
        self.graph.producer(value).map(|i| &self.graph.nodes[i])
    }

    /// Returns the numbers of each constant array of a node.
    pub(crate) fn arrays(&self, node: &Node) -> Vec<&[f64]> {
        node.tensors.iter().map(|&t| &*self.numbers[t]).collect()
    }

    /// Returns the numbers of array `n` of an element-wise node, expanded to one for each element
    /// of the node's value.
    pub(crate) fn spread(&self, node: &Node, n: usize) -> Vec<f64> {
        let numbers = &self.numbers[node.tensors[n]];
        let map = self.graph.tensors[node.tensors[n]]
            .map
            .unwrap_or(RowMap::vector(numbers.len()));
        map.rows().map(|i| numbers[i]).collect()
    }

    /// Returns the numbers of array `n` of an element-wise node, one for each channel. `None` if
    /// the numbers may differ within a channel.
    pub(crate) fn of_channels(&self, node: &Node, n: usize) -> Option<Vec<f64>> {
        let (numbers, shape) = (&self.numbers[node.tensors[n]], self.shape(node.output));
        let map = self.graph.tensors[node.tensors[n]].map?;
        let [c, y, x] = map.steps(shape)?;
        ((y, x) == (0, 0)).then(|| (0..shape.c).map(|i| numbers[map.first + i * c]).collect())
    }

    /// Gives node `i` another operation and other arrays. The recorded shape of the node's value is
    /// not updated until [`Draft::sweep`].
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

    /// Replaces `value` by `other` in the inputs of all nodes and in the outputs of the graph.
    /// `other` must be computed before all nodes that read `value`.
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

    /// Removes the nodes whose values are not needed for an output, and computes the shapes of all
    /// values anew.
    ///
    /// # Errors
    /// The shapes do not fit an operation.
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

    /// Returns the numbers of all arrays, rounded to f32.
    pub(crate) fn rounded(&self) -> Tensors {
        self.numbers
            .iter()
            .map(|n| n.iter().map(|&v| v as f32).collect())
            .collect()
    }
}
