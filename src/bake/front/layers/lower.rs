//! Converts the layers of a network JSON to a draft in one pass. The pass infers the shape of each
//! value and adds the nodes.

use super::{FileArray, FileLayer, LayerKind, bounded};
use crate::bake::Mistakes;
use crate::bake::draft::{Array, Draft};
use crate::ir::graph::Shape;
use crate::ir::network::FinalActivation;
use crate::ir::op::{Axis, Op, Window};

/// The draft that is made from a network JSON's layers, with the draft's value for each layer.
pub(super) struct Lowered {
    draft: Draft,
    /// The index of the draft's value for the network's input, then for each layer's output. `None`
    /// if the value's shape is not known.
    values: Vec<Option<usize>>,
}

/// Adds a node to the draft for each layer. If a layer has a mistake but its shape is known, a
/// value of that shape is assumed, so that mistakes in later layers are found too.
///
/// The final function `last` becomes no node. The numbers are moved out of the layers' arrays.
pub(super) fn lower(
    file: &str,
    layers: &mut [FileLayer],
    input: Option<Shape>,
    last: Option<FinalActivation>,
    mistakes: &mut Mistakes,
) -> Lowered {
    let mut draft = Draft::new(input.unwrap_or_default());
    let mut values = vec![input.map(|_| 0)];
    // For each value, the layer that determined its shape, counted from 1. 0 stands for the
    // network's input.
    let mut shaped_by = vec![0];
    let left_out = matches!(last, Some(FinalActivation::Sigmoid | FinalActivation::Tanh));
    for i in 0..layers.len() - usize::from(left_out) {
        let outputs = layers[i].weights_size().map(|size| size.rows);
        let arrays = std::mem::take(&mut layers[i].arrays);
        let arrays: Option<Vec<Array>> = arrays.into_iter().map(FileArray::complete).collect();
        let layer = &layers[i];
        let read = layer.inputs.as_deref();
        let inputs: Option<Vec<usize>> = read.and_then(|i| i.iter().map(|&v| values[v]).collect());
        let giver = read.and_then(|i| i.first()).map_or(0, |&v| shaped_by[v]);
        let pushed = match (layer.kind, inputs.as_deref(), arrays) {
            (Some(kind), Some(inputs), Some(arrays)) => {
                let giver = match giver {
                    0 => "the input",
                    giver => &layers[giver - 1].shown,
                };
                push(&mut draft, &layer.name, kind, inputs, arrays, giver)
                    .map_err(|e| mistakes.add(format_args!("{file}: {}", layer.shown), e))
                    .ok()
            }
            _ => None,
        };
        let assumed = || {
            let first = inputs.as_deref().and_then(|i| i.first());
            let input = first.map(|&v| draft.shape(v));
            Some(draft.assume(&layer.name, assumed(layer.kind?, input, outputs)?))
        };
        values.push(pushed.or_else(assumed));
        shaped_by.push(match layer.kind {
            Some(kind) if kind.keeps_shape() => giver,
            _ => i + 1,
        });
    }
    Lowered { draft, values }
}

impl FileArray {
    /// Makes a node's array from this array of the file. `None` if the size is not known because of
    /// a mistake.
    fn complete(self) -> Option<Array> {
        let size = self.size?;
        Some(Array {
            role: self.role,
            rows: size.rows,
            cols: size.cols,
            numbers: self.numbers,
            map: None,
        })
    }
}

/// Adds the node of a layer. Returns the index of its value. `giver` is the layer that determined
/// the shape of the first input, for messages.
fn push(
    draft: &mut Draft,
    name: &str,
    kind: LayerKind,
    inputs: &[usize],
    arrays: Vec<Array>,
    giver: &str,
) -> Result<usize, String> {
    let input = draft.shape(inputs[0]);
    let vector = (input.h, input.w) == (1, 1);
    let op = match kind {
        LayerKind::Softmax if !vector => {
            return Err(format!(
                "expected a vector, a value for each class, found {input}; a \
                 GlobalAveragePoolLayer or a FlattenLayer before it gives one"
            ));
        }
        LayerKind::Softmax => return Ok(inputs[0]),
        LayerKind::Flatten if vector => return Ok(inputs[0]),
        LayerKind::Flatten => Op::Reshape(Shape::vector(input.len())),
        LayerKind::GlobalPool(kind) => Op::Pool {
            kind,
            window: Window::of((input.h, input.w)),
        },
        LayerKind::Convolution { window, groups } => Op::Convolution {
            window,
            groups: groups.unwrap_or(input.c),
        },
        LayerKind::Op(op) => op,
    };
    let weights = arrays.first().map_or((0, 0), |a| (a.rows, a.cols));
    if let (Op::Affine, (outputs, takes)) = (op, weights) {
        if takes != input.len() {
            let message = format!("takes {takes} inputs, {giver} gives {}", input.len());
            return Err(with_hint(message, outputs == input.len()));
        }
    }
    let transposed = match op {
        Op::Convolution { window, groups } => {
            let (height, width) = window.size;
            let (outputs, columns) = weights;
            let expected = height * width * (input.c / groups);
            outputs == expected && columns != expected
        }
        _ => false,
    };
    let value = draft
        .push_at_place(name, op, inputs, arrays)
        .map_err(|e| with_hint(e, transposed))?;
    bounded(draft.shape(value)).map(|_| value)
}

/// Returns the message. If `transposed` is true, adds the hint that the weights would fit
/// transposed.
fn with_hint(message: String, transposed: bool) -> String {
    match transposed {
        true => message + " (its weights would fit transposed)",
        false => message,
    }
}

/// Returns the shape of the output of a layer that has a mistake, if it can be known. `input` is
/// the shape of the first input. `outputs` is the number of rows of the weights.
fn assumed(kind: LayerKind, input: Option<Shape>, outputs: Option<usize>) -> Option<Shape> {
    let shape = match kind {
        LayerKind::Op(Op::Affine) => Shape::vector(outputs?),
        LayerKind::Convolution { window, .. } => {
            let (h, w) = window.output(input?).ok()?;
            Shape { c: outputs?, h, w }
        }
        LayerKind::Op(Op::Combine(_)) => input?,
        kind if kind.keeps_shape() => input?,
        _ => return None,
    };
    bounded(shape).ok()
}

impl Lowered {
    /// Returns the shape of the network's input (0) or of layer i's output (i + 1), if it is known.
    pub(super) fn shape(&self, value: usize) -> Option<Shape> {
        let value = self.values.get(value).copied().flatten()?;
        Some(self.draft.shape(value))
    }

    /// Returns the draft with the outputs `ends`, which are numbered as in [`Lowered::shape`].
    /// Several outputs are joined into one vector.
    pub(super) fn finish(self, ends: &[usize]) -> Result<Draft, String> {
        let Lowered { mut draft, values } = self;
        let mut parts: Vec<usize> = ends.iter().filter_map(|&end| values[end]).collect();
        if parts.len() > 1 {
            for part in &mut parts {
                let shape = Shape::vector(draft.shape(*part).len());
                if draft.shape(*part) != shape {
                    let name = draft.graph.values[*part].name.to_string();
                    *part = draft.push(name, Op::Reshape(shape), &[*part], Vec::new())?;
                }
            }
            parts = vec![draft.push("outputs", Op::Concat(Axis::C), &parts, Vec::new())?];
        }
        draft.graph.outputs = parts.into();
        Ok(draft)
    }
}
