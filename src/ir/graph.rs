//! A network as a graph: values, and the nodes that compute them from other values and from
//! weights.
//!
//! Plain data in topological order. What a node computes stands in `ops`, one file an operation.

use super::op::Op;
use super::view::RowMap;
use std::borrow::Cow;

/// Most elements of a value of one record, 256 MB of floats: the build computes them in float64,
/// several at a time.
pub(crate) const MOST_VALUES: usize = if cfg!(fuzzing) { 1 << 20 } else { 1 << 26 };

/// The shape of a value of one record: channels × height × width. A vector has height and width 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Channels.
    pub(crate) c: usize,
    /// Height in pixels.
    pub(crate) h: usize,
    /// Width in pixels.
    pub(crate) w: usize,
}

impl Shape {
    /// A vector of `n` values.
    pub(crate) const fn vector(n: usize) -> Shape {
        Shape { c: n, h: 1, w: 1 }
    }

    /// Values of a record.
    pub(crate) const fn len(self) -> usize {
        self.c * self.h * self.w
    }

    /// Refuses what has more than [`MOST_VALUES`].
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

    /// Whether there is nothing in it (never so in a checked graph).
    pub(crate) const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Where an element stands in the order c, y, x.
    pub(crate) const fn index(self, c: usize, y: usize, x: usize) -> usize {
        (c * self.h + y) * self.w + x
    }
}

/// `1×28×28`, or `10` of a vector.
impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shape { c, h: 1, w: 1 } => write!(f, "{c}"),
            Shape { c, h, w } => write!(f, "{c}×{h}×{w}"),
        }
    }
}

/// Something that is computed of each record, or its input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// Its name, for messages: that of the node that computes it, or `input`.
    pub(crate) name: Cow<'static, str>,
    /// Its shape.
    pub(crate) shape: Shape,
}

/// What an array of weights is to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Factors, a row for each output.
    Weights,
    /// Summands, one for each output.
    Biases,
    /// Factors of single channels, or of single values.
    Factors,
}

impl Role {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Weights => "weights",
            Role::Biases => "biases",
            Role::Factors => "factors",
        }
    }
}

/// An array of weights: a row-major matrix. Its numbers stand beside the graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    /// The name of its node, for messages.
    pub(crate) name: Cow<'static, str>,
    /// The part that it plays in its node.
    pub(crate) role: Role,
    /// Rows.
    pub(crate) rows: usize,
    /// Columns.
    pub(crate) cols: usize,
    /// For an array that works on single elements: the number for each element of the node's value.
    pub(crate) map: Option<RowMap>,
    /// Of weights, how much the largest numbers of columns differ: [`spread`]. 0 where nobody has
    /// looked.
    pub(crate) spread: usize,
}

/// The binary logarithm, rounded up, of the largest number of an array by the largest of the column
/// where that is least; [`COLUMN_OF_ZEROS`] where a column is all zeros.
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

/// The spread of an array with a column of zeros.
pub(crate) const COLUMN_OF_ZEROS: usize = 1 << 10;

/// The numbers of each array of a graph, in its order.
pub(crate) type Tensors = Vec<Vec<f32>>;

/// One operation on values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// The name that it had in its file: `layers[2]`.
    pub(crate) name: Cow<'static, str>,
    /// What it computes.
    pub(crate) op: Op,
    /// Values that it reads (indices in `Graph::values`).
    pub(crate) inputs: Cow<'static, [usize]>,
    /// Arrays of weights that it reads (indices in `Graph::tensors`).
    pub(crate) tensors: Cow<'static, [usize]>,
    /// The value that it computes.
    pub(crate) output: usize,
}

/// A network.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Graph {
    /// Values; a node's output stands behind its inputs.
    pub(crate) values: Cow<'static, [Value]>,
    /// Arrays of weights.
    pub(crate) tensors: Cow<'static, [Tensor]>,
    /// Nodes, each behind those whose outputs it reads.
    pub(crate) nodes: Cow<'static, [Node]>,
    /// Values that come from outside.
    pub(crate) inputs: Cow<'static, [usize]>,
    /// Values that go out.
    pub(crate) outputs: Cow<'static, [usize]>,
}

impl Graph {
    /// A graph of one input and no nodes.
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

    /// The node that computes `value`; `None` for an input.
    pub(crate) fn producer(&self, value: usize) -> Option<usize> {
        self.nodes.iter().position(|n| n.output == value)
    }

    /// The nodes that read `value`.
    pub(crate) fn consumers(&self, value: usize) -> impl Iterator<Item = usize> + '_ {
        self.nodes
            .iter()
            .enumerate()
            .filter(move |(_, n)| n.inputs.contains(&value))
            .map(|(i, _)| i)
    }

    /// The one node that reads `value`, where exactly one does and it does not go out: what may be
    /// fused with the node that computes it.
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

    /// A value may be fused with its reader where there is no other reader and it does not go out.
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

    /// Columns are compared by their largest numbers, whatever their signs.
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
