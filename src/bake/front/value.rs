//! A tensor of a model: known at build time, or computed from each record.

use super::constant::{ConstantTensor, Element};
use crate::ir::graph::Shape;
use std::rc::Rc;

/// Numbers computed from each record. The first axis of the tensor is the axis of the records.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Live {
    /// The value of the draft. Its elements in the order c, y, x are those of the tensor in
    /// row-major order. The shapes of the two may differ.
    pub(super) value: usize,
    /// The sizes of the axes behind the axis of the records.
    pub(super) dims: Vec<usize>,
    /// The type that the model computes the numbers in.
    pub(super) kind: Element,
}

impl Live {
    pub(super) fn new(value: usize, dims: Vec<usize>, kind: Element) -> Live {
        Live { value, dims, kind }
    }

    /// Returns the value number `value` of the draft, with the sizes and the type of this tensor.
    pub(super) fn with_value(&self, value: usize) -> Live {
        Live::new(value, self.dims.clone(), self.kind)
    }

    /// Returns this value with other sizes. The number of elements must be the same.
    pub(super) fn with_dims(&self, dims: Vec<usize>) -> Live {
        Live::new(self.value, dims, self.kind)
    }

    /// The count of numbers for one record.
    pub(super) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// The sizes for messages: `[N, 3, 8, 8]`.
    pub(super) fn shown(&self) -> String {
        shown(&self.dims)
    }
}

/// The sizes of a tensor for messages, from those behind the axis of the records.
pub(super) fn shown(dims: &[usize]) -> String {
    let sizes: Vec<String> = std::iter::once("N".into())
        .chain(dims.iter().map(usize::to_string))
        .collect();
    format!("[{}]", sizes.join(", "))
}

/// A shape of channels, rows and columns.
pub(super) fn shape_of(c: usize, h: usize, w: usize) -> Shape {
    Shape { c, h, w }
}

/// The usual shape of a value of these sizes: the first axis is that of the channels, the last one
/// that of the columns, and all others are joined to rows.
pub(super) fn standard(dims: &[usize]) -> Shape {
    match *dims {
        [] => Shape::vector(1),
        [c] => Shape::vector(c),
        [c, w] => Shape { c, h: 1, w },
        [c, ref between @ .., w] => shape_of(c, between.iter().product(), w),
    }
}

/// The class of each record: the arg-max of scores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    /// The value of the scores.
    pub(super) scores: usize,
    /// The model's names of the classes.
    pub(super) labels: Option<Rc<ConstantTensor>>,
}

/// A tensor of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelValue {
    /// Known at build time.
    Constant(Rc<ConstantTensor>),
    /// Computed from each record.
    Live(Live),
    /// The class of each record.
    Class(Class),
    /// Probabilities, with the names of their classes.
    Map(Live, Rc<ConstantTensor>),
    /// For each probability, whether it is above a threshold.
    Flags(Live, f64),
    /// Not known, because of a mistake that is reported.
    Unknown,
}

/// Converts an axis that may count from the end.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from_end = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_end) {
        Ok(a) if a < rank => Ok(a),
        _ => Err(format!("expected one of {rank} axes, found {axis}")),
    }
}

/// Converts axes, or indices along an axis of size `rank`, that may count from the end.
pub(super) fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    list.iter().map(|&a| axis(a, rank)).collect()
}

/// Converts an axis of the model's tensor to an index in [`Live::dims`].
pub(super) fn inner_axis(axis: i64, live: &Live) -> Result<usize, String> {
    let a = self::axis(axis, live.dims.len() + 1)?;
    a.checked_sub(1)
        .ok_or_else(|| format!("axis {axis} of {} is the axis of the records", live.shown()))
}

/// Converts axes of the model's tensor to indices in [`Live::dims`].
pub(super) fn inner_axes(list: &[i64], live: &Live) -> Result<Vec<usize>, String> {
    list.iter().map(|&a| inner_axis(a, live)).collect()
}

/// Converts an order of axes, each of which must be there once.
pub(super) fn permutation(order: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let order = axes(order, rank)?;
    if order.len() != rank || (0..rank).any(|a| !order.contains(&a)) {
        return Err(format!(
            "perm: expected every axis of {rank} once, found {order:?}"
        ));
    }
    Ok(order)
}

/// Converts an order of axes to the order of those behind the axis of the records.
pub(super) fn inner_permutation(order: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let order = permutation(order, rank)?;
    match order.split_first() {
        Some((0, inner)) => Ok(inner.iter().map(|a| a - 1).collect()),
        _ => Err(format!(
            "perm {order:?}: the first axis must stay the axis of the records"
        )),
    }
}
