//! A network as a graph of values and nodes, in topological order. A node computes one value from
//! other values and from constant arrays such as weights. The module `ops` defines what each
//! operation computes.

use super::op::Op;
use super::view::RowMap;
use std::borrow::Cow;

/// The most elements that a value of one record may have: 2^26 floats, which are 256 MB. The build
/// holds several such values at a time, in float64.
pub(crate) const MOST_VALUES: usize = if cfg!(fuzzing) { 1 << 20 } else { 1 << 26 };

/// The shape of a value for one record: channels × height × width. A vector has height and width 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) c: usize,
    pub(crate) h: usize,
    pub(crate) w: usize,
}

impl Shape {
    /// The shape of a vector of `n` elements.
    pub(crate) const fn vector(n: usize) -> Shape {
        Shape { c: n, h: 1, w: 1 }
    }

    /// The number of elements of a value of this shape.
    pub(crate) const fn len(self) -> usize {
        self.c * self.h * self.w
    }

    /// Returns the shape, or an error if it has more than [`MOST_VALUES`] elements.
    pub(crate) fn bounded(self) -> Result<Shape, String> {
        let len = self
            .c
            .checked_mul(self.h)
            .and_then(|n| n.checked_mul(self.w));
        match len {
            Some(n) if n <= MOST_VALUES => Ok(self),
            _ => Err(format!(
                "expected at most {MOST_VALUES} values of a record, found {self}"
            )),
        }
    }

    /// Returns true if a value of this shape has no elements. No value of a checked graph is empty.
    pub(crate) const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The index of element (c, y, x) in a value whose elements are in the order c, y, x.
    pub(crate) const fn index(self, c: usize, y: usize, x: usize) -> usize {
        (c * self.h + y) * self.w + x
    }
}

/// Writes `1×28×28` for an image, or `10` for a vector.
impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shape { c, h: 1, w: 1 } => write!(f, "{c}"),
            Shape { c, h, w } => write!(f, "{c}×{h}×{w}"),
        }
    }
}

/// A value of the graph: an input of the network, or the result of a node. It is computed anew for
/// each record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// The name for messages: the name of the node that computes the value, or `input`.
    pub(crate) name: Cow<'static, str>,
    pub(crate) shape: Shape,
}

/// The role that a constant array has for the node that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A matrix of factors. It has a row for each output of the node.
    Weights,
    /// One summand for each output of the node.
    Biases,
    /// One factor for each channel or each element.
    Factors,
    /// A position and a weight for each tap of a resampling. These arrays are always stored as
    /// floats.
    Taps,
}

impl Role {
    /// The name of the role in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Weights => "weights",
            Role::Biases => "biases",
            Role::Factors => "factors",
            Role::Taps => "taps",
        }
    }
}

/// A constant array that a node reads, such as weights, as a row-major matrix. Its numbers are in
/// [`Tensors`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    /// The name of the node that reads the array, for messages.
    pub(crate) name: Cow<'static, str>,
    pub(crate) role: Role,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Maps each element of the node's value to the index in this array of the number that it uses.
    /// `None` if the node does not work element by element.
    pub(crate) map: Option<RowMap>,
    /// The result of [`spread`] for an array of weights, or 0 if it was not computed.
    pub(crate) spread: usize,
}

/// Measures how much the columns of a matrix differ in size. Divides the largest column maximum (of
/// absolute values) by the smallest, and returns log2 of the ratio, rounded up. Returns
/// [`COLUMN_OF_ZEROS`] if a column has only zeros.
pub(crate) fn spread(array: &[f32], cols: usize) -> usize {
    let mut most = vec![0.0f32; cols];
    for row in array.chunks_exact(cols.max(1)) {
        most.iter_mut()
            .zip(row)
            .for_each(|(most, x)| *most = most.max(x.abs()));
    }
    let largest = most.iter().fold(0.0f32, |x, &y| x.max(y));
    let least = most.iter().fold(f32::INFINITY, |x, &y| x.min(y));
    if least > 0.0 {
        f64::log2(f64::from(largest) / f64::from(least))
            .max(0.0)
            .ceil() as usize
    } else {
        COLUMN_OF_ZEROS
    }
}

/// The result of [`spread`] for a matrix with a column of zeros.
pub(crate) const COLUMN_OF_ZEROS: usize = 1 << 10;

/// The numbers of each constant array of a graph, in the order of `Graph::tensors`.
pub(crate) type Tensors = Vec<Vec<f32>>;

/// An operation of the graph, with the values and constant arrays that it reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// The name of the node in the model's file, for example `layers[2]`.
    pub(crate) name: Cow<'static, str>,
    pub(crate) op: Op,
    /// The values that the node reads, as indices into `Graph::values`.
    pub(crate) inputs: Cow<'static, [usize]>,
    /// The constant arrays that the node reads, as indices into `Graph::tensors`.
    pub(crate) tensors: Cow<'static, [usize]>,
    /// The value that the node computes, as an index into `Graph::values`.
    pub(crate) output: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Graph {
    /// All values. The value that a node computes has a higher index than the values that the node
    /// reads.
    pub(crate) values: Cow<'static, [Value]>,
    pub(crate) tensors: Cow<'static, [Tensor]>,
    /// All nodes. A node has a higher index than the nodes whose values it reads.
    pub(crate) nodes: Cow<'static, [Node]>,
    /// The inputs of the network, as indices into `values`.
    pub(crate) inputs: Cow<'static, [usize]>,
    /// The outputs of the network, as indices into `values`.
    pub(crate) outputs: Cow<'static, [usize]>,
}

impl Graph {
    /// Returns true if a node rounds values to steps that follow from them.
    pub(crate) fn rounds_to_steps(&self) -> bool {
        self.nodes.iter().any(|node| node.op.rounds_to_steps())
    }

    /// A graph with one input and no nodes. Its input is also its output.
    pub(crate) fn new(input: Shape) -> Graph {
        let value = Value {
            name: "input".into(),
            shape: input,
        };
        Graph {
            values: vec![value].into(),
            inputs: vec![0].into(),
            outputs: vec![0].into(),
            ..Graph::default()
        }
    }

    /// Returns the index of the node that computes `value`. `None` for an input of the network.
    pub(crate) fn producer(&self, value: usize) -> Option<usize> {
        self.nodes.iter().position(|n| n.output == value)
    }

    /// Returns the indices of the nodes that read `value`.
    pub(crate) fn consumers(&self, value: usize) -> impl Iterator<Item = usize> + '_ {
        self.nodes
            .iter()
            .enumerate()
            .filter(move |(_, n)| n.inputs.contains(&value))
            .map(|(i, _)| i)
    }

    /// Returns the index of the only node that reads `value`. `None` if several nodes or none read
    /// it, or if it is an output of the network. The node may be fused with the node that computes
    /// `value`.
    pub(crate) fn only_consumer(&self, value: usize) -> Option<usize> {
        let mut found = self.consumers(value);
        let one = found.next().filter(|_| !self.outputs.contains(&value))?;
        found.next().is_none().then_some(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::op::{Activation, Arithmetic};

    #[test]
    fn producers_and_readers_of_values_are_found() {
        let mut graph = Graph::new(Shape { c: 2, h: 3, w: 4 });
        let relu = Op::Activation(Activation::Relu);
        let once = graph.push("once", relu, &[0], &[]).unwrap();
        let twice = graph.push("twice", relu, &[once], &[]).unwrap();
        let sum = graph
            .push("sum", Op::Combine(Arithmetic::Add), &[once, twice], &[])
            .unwrap();
        assert_eq!(
            [0, once, twice, sum].map(|v| graph.producer(v)),
            [None, Some(0), Some(1), Some(2)]
        );
        assert_eq!(graph.consumers(once).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(
            [0, once, twice, sum].map(|v| graph.only_consumer(v)),
            [Some(0), None, Some(2), None]
        );
        graph.outputs = vec![sum, twice].into();
        assert_eq!([0, twice].map(|v| graph.only_consumer(v)), [Some(0), None]);
    }

    #[test]
    fn columns_of_weights_differ_by_their_largest_numbers() {
        assert_eq!(spread(&[1.0, -1.0, 0.5, 0.25], 2), 0);
        assert_eq!(spread(&[0.0, -1.0, 0.25, 0.0], 2), 2);
        assert_eq!(spread(&[3.0, 1.0], 2), 2);
        assert_eq!(spread(&[1e30, 1e-30], 2), 200);
        assert_eq!(
            [spread(&[1.0, 0.0, 2.0, 0.0], 2), spread(&[0.0], 1)],
            [COLUMN_OF_ZEROS; 2]
        );
    }

    #[test]
    fn elements_are_numbered_along_x_then_y_then_c() {
        let shape = Shape { c: 2, h: 3, w: 4 };
        let all = (0..2).flat_map(|c| (0..3).flat_map(move |y| (0..4).map(move |x| (c, y, x))));
        assert!(all.map(|(c, y, x)| shape.index(c, y, x)).eq(0..shape.len()));
        assert_eq!(
            (shape.to_string(), Shape::vector(5).to_string()),
            ("2×3×4".into(), "5".into())
        );
        assert!(!shape.is_empty() && Shape { h: 0, ..shape }.is_empty());
    }
}
