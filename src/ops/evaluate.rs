//! Computes graphs and networks in float64. The results are the reference for every engine.

use crate::ir::graph::{Graph, Node, Role, Shape, Tensor, Value};
use crate::ir::network::Network;
use crate::ir::op::Op;
use crate::ir::view::RowMap;
use std::borrow::Cow;

/// A value of one record, passed to the caller's function as soon as it is computed.
pub(crate) struct Computed<'c> {
    pub(crate) record: usize,
    /// The index of the computed value in `Graph::values`.
    pub(crate) value: usize,
    /// The index of the node that computed the value. `None` for an input of the network.
    pub(crate) node: Option<usize>,
    pub(crate) numbers: &'c mut [f64],
    /// The operands of the node that computed the value, with their shapes. Empty for an input of
    /// the network.
    pub(crate) operands: &'c [(&'c [f64], Shape)],
    /// The constant arrays of the node that computed the value, such as weights. Empty for an input
    /// of the network.
    pub(crate) arrays: &'c [&'c [f32]],
}

impl Graph {
    /// Adds a node that reads `inputs` and has constant arrays with the given roles, rows and
    /// columns. The arrays of an element-wise operation have one number per channel or per element.
    /// The node's value becomes the output of the graph. Returns the index of the value.
    ///
    /// # Errors
    /// The shapes do not fit each other, or the value has too many elements.
    pub(crate) fn push(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        op: Op,
        inputs: &[usize],
        tensors: &[(Role, usize, usize)],
    ) -> Result<usize, String> {
        let tensors: Vec<_> = tensors
            .iter()
            .map(|&(role, rows, cols)| (role, rows, cols, None))
            .collect();
        self.push_mapped(name, op, inputs, &tensors)
    }

    /// Adds a node as [`Graph::push`] does. An array may have a map that gives, for each element of
    /// the value, the index of its number in the array.
    ///
    /// # Errors
    /// A map does not fit its array or the value, or an error of [`Graph::push`].
    pub(crate) fn push_mapped(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        op: Op,
        inputs: &[usize],
        tensors: &[(Role, usize, usize, Option<RowMap>)],
    ) -> Result<usize, String> {
        let name = name.into();
        let shapes: Vec<Shape> = inputs.iter().map(|&i| self.values[i].shape).collect();
        let elements = shapes.first().map_or(0, |s| s.len());
        let fits = |&(_, rows, cols, map): &(Role, usize, usize, Option<RowMap>)| match map {
            None => Ok((rows, cols)),
            Some(map) if map.len() == elements && map.end() <= rows && cols == 1 => {
                Ok((elements, 1))
            }
            Some(map) => Err(format!(
                "expected a map of {elements} values to {rows} numbers, found one of {} to {}",
                map.len(),
                map.end()
            )),
        };
        let sizes = tensors.iter().map(fits).collect::<Result<Vec<_>, _>>();
        let shape = sizes
            .and_then(|sizes| op.shape(&shapes, &sizes))
            .and_then(Shape::bounded);
        let shape = shape.map_err(|e| format!("{name}: {e}"))?;
        let map = |rows: usize| match op {
            Op::Scale | Op::PRelu if rows == shape.c => Some(RowMap::of_channels(shape)),
            Op::Scale | Op::PRelu => Some(RowMap::vector(rows)),
            _ => None,
        };
        let first = self.tensors.len();
        let added = tensors.iter().map(|&(role, rows, cols, given)| Tensor {
            name: name.clone(),
            role,
            rows,
            cols,
            map: given.or_else(|| map(rows)),
            spread: 0,
        });
        self.tensors.to_mut().extend(added);
        self.values.to_mut().push(Value {
            name: name.clone(),
            shape,
        });
        let output = self.values.len() - 1;
        self.nodes.to_mut().push(Node {
            name,
            op,
            inputs: inputs.to_vec().into(),
            tensors: (first..first + tensors.len()).collect::<Vec<_>>().into(),
            output,
        });
        self.outputs = vec![output].into();
        Ok(output)
    }

    /// Returns the constant arrays of a node. An array with a map is expanded to one number per
    /// element.
    pub(crate) fn arrays<'t>(&self, node: &Node, tensors: &'t [Vec<f32>]) -> Vec<Cow<'t, [f32]>> {
        let array = |&t: &usize| match self.tensors[t].map {
            Some(map) if !map.is_plain() => Cow::Owned(map.rows().map(|i| tensors[t][i]).collect()),
            _ => Cow::Borrowed(&tensors[t][..]),
        };
        node.tensors.iter().map(array).collect()
    }

    /// The floating-point operations of node `i` of the graph for one record.
    pub(crate) fn flop(&self, i: usize) -> u64 {
        let node = &self.nodes[i];
        let shapes: Vec<Shape> = node.inputs.iter().map(|&v| self.values[v].shape).collect();
        node.op.flop(&shapes, self.values[node.output].shape)
    }

    /// Computes all values of the graph for one record. `tensors` has the numbers of
    /// `Graph::tensors`. Element i of the result is value i of the graph. It is empty if a node
    /// reads the value and the value is no output. `seen` is called with the index and the numbers
    /// of each value.
    pub(crate) fn evaluate(
        &self,
        tensors: &[Vec<f32>],
        input: Vec<f64>,
        mut seen: impl FnMut(usize, &[f64]),
    ) -> Vec<Vec<f64>> {
        self.evaluate_all(tensors, vec![input], |computed| {
            seen(computed.value, computed.numbers)
        })
        .swap_remove(0)
    }

    /// Computes several records as [`Graph::evaluate`] does. `seen` may change the numbers of each
    /// value before other nodes read them.
    pub(super) fn evaluate_all(
        &self,
        tensors: &[Vec<f32>],
        inputs: Vec<Vec<f64>>,
        mut seen: impl FnMut(Computed<'_>),
    ) -> Vec<Vec<Vec<f64>>> {
        // For each value, the last node that reads it. After that node the value is dropped. `None`
        // for an output, which is kept.
        let mut last = vec![None; self.values.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|&v| last[v] = Some(i));
        }
        self.outputs.iter().for_each(|&v| last[v] = None);
        let begun = |(record, mut input): (usize, Vec<f64>)| {
            seen(Computed {
                record,
                value: self.inputs[0],
                node: None,
                numbers: &mut input,
                operands: &[],
                arrays: &[],
            });
            let mut values: Vec<Vec<f64>> = vec![Vec::new(); self.values.len()];
            values[self.inputs[0]] = input;
            values
        };
        let mut all: Vec<Vec<Vec<f64>>> = inputs.into_iter().enumerate().map(begun).collect();
        for (i, node) in self.nodes.iter().enumerate() {
            let arrays = self.arrays(node, tensors);
            let weights: Vec<&[f32]> = arrays.iter().map(|a| &**a).collect();
            let records: Vec<Vec<(&[f64], Shape)>> = all
                .iter()
                .map(|values| {
                    node.inputs
                        .iter()
                        .map(|&i| (&*values[i], self.values[i].shape))
                        .collect()
                })
                .collect();
            let mut outputs =
                node.op
                    .references(&records, &weights, self.values[node.output].shape);
            for (record, output) in outputs.iter_mut().enumerate() {
                seen(Computed {
                    record,
                    value: node.output,
                    node: Some(i),
                    numbers: output,
                    operands: &records[record],
                    arrays: &weights,
                });
            }
            for (values, output) in all.iter_mut().zip(outputs) {
                values[node.output] = output;
                for &v in node.inputs.iter().filter(|&&v| last[v] == Some(i)) {
                    values[v] = Vec::new();
                }
            }
        }
        all
    }
}

/// Returns true if a number is finite, but too large for f32.
fn leaves_f32(x: f64) -> bool {
    x.is_finite() && x.abs() > f32::MAX.into()
}

/// The most numbers that all values of the records that are computed together may have. In float64
/// these are 64 MB. A single record may have more.
const AT_A_TIME: usize = 1 << 23;

impl Network {
    /// The floating-point operations of one record, two per multiply-add. As in the thesis, biases
    /// and activations do not count.
    pub(crate) fn flop(&self) -> u64 {
        (0..self.graph.nodes.len())
            .map(|i| self.graph.flop(i))
            .sum()
    }

    /// Turns a raw record into the input of the graph. Scales its numbers, rounds them to f32 as
    /// the program does, and puts them into the graph's order. Numbers too large for f32 are not
    /// rounded.
    pub(crate) fn graph_input(&self, raw: &[f64]) -> Vec<f64> {
        let mut input = vec![0.0; raw.len()];
        for (i, &x) in raw.iter().enumerate() {
            let x = self.transform.apply(i, x);
            let float = if leaves_f32(x) { x } else { (x as f32).into() };
            input[self.order.element(self.input(), i)] = float;
        }
        input
    }

    /// Computes the scores of one record from raw inputs. All scores are NaN if any value of the
    /// graph has a finite number too large for f32, because every engine refuses such a record. An
    /// infinite number is allowed, because constants may be infinite.
    pub(crate) fn scores(&self, tensors: &[Vec<f32>], raw: &[f64]) -> Vec<f64> {
        self.scores_of_inputs(tensors, vec![self.graph_input(raw)], &mut |_| {})
            .swap_remove(0)
    }

    /// Computes the scores of several records. The inputs are already scaled and in the graph's
    /// order.
    fn scores_of_inputs(
        &self,
        tensors: &[Vec<f32>],
        inputs: Vec<Vec<f64>>,
        seen: &mut dyn FnMut(&Computed<'_>),
    ) -> Vec<Vec<f64>> {
        let mut overflows = vec![false; inputs.len()];
        let values = self.graph.evaluate_all(tensors, inputs, |computed| {
            overflows[computed.record] |= computed.numbers.iter().any(|x| leaves_f32(*x));
            seen(&computed);
        });
        let output = self.graph.outputs.first();
        let of = |(mut values, overflows): (Vec<Vec<f64>>, bool)| {
            let mut scores = output.map_or_else(Vec::new, |&v| values.swap_remove(v));
            if overflows {
                scores.fill(f64::NAN);
            }
            scores
        };
        values.into_iter().zip(overflows).map(of).collect()
    }

    /// Returns the name of the first value that has a finite number too large for f32, and that
    /// number. `None` if all numbers fit f32.
    pub(crate) fn overflow(&self, tensors: &[Vec<f32>], raw: &[f64]) -> Option<(&str, f64)> {
        let mut found = None;
        self.graph
            .evaluate(tensors, self.graph_input(raw), |value, values| {
                let large = values.iter().copied().find(|x| leaves_f32(*x));
                found = found.or(large.map(|x| (value, x)));
            });
        found.map(|(value, x)| (&*self.graph.values[value].name, x))
    }

    /// Computes the [`scores`](Self::scores) of several records. `raw` has their inputs, one record
    /// after the other.
    pub(crate) fn scores_of_all(&self, tensors: &[Vec<f32>], raw: &[f32]) -> Vec<Vec<f64>> {
        self.scores_and_values(tensors, raw, &mut |_| {})
    }

    /// Computes the scores as [`Network::scores_of_all`] does, and calls `seen` with every computed
    /// value of the graph.
    pub(crate) fn scores_and_values(
        &self,
        tensors: &[Vec<f32>],
        raw: &[f32],
        seen: &mut dyn FnMut(&Computed<'_>),
    ) -> Vec<Vec<f64>> {
        let numbers: usize = self.graph.values.iter().map(|v| v.shape.len()).sum();
        let at_a_time = (AT_A_TIME / numbers.max(1)).max(1);
        let mut scores = Vec::new();
        for records in raw.chunks(at_a_time * self.width.max(1)) {
            let input = |raw: &[f32]| {
                self.graph_input(&raw.iter().map(|&x| x.into()).collect::<Vec<f64>>())
            };
            let inputs = records.chunks_exact(self.width.max(1)).map(input).collect();
            scores.extend(self.scores_of_inputs(tensors, inputs, seen));
        }
        scores
    }
}
