//! What a tensor of the model is: known at build time, or computed of each record.

use super::constant::{Constant, Element};
use crate::ir::graph::Shape;
use std::rc::Rc;

/// Numbers that are computed of each record. The first axis of the tensor is that of the records.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Live {
    /// The value of the draft. Its elements in the order c, y, x are those of the tensor in theirs:
    /// sizes of the two may differ.
    pub(super) value: usize,
    /// Sizes behind the axis of the records.
    pub(super) dims: Vec<usize>,
    /// The type that the model computes it in.
    pub(super) kind: Element,
}

impl Live {
    /// Numbers of a record.
    pub(super) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Its sizes for messages: `[N, 3, 8, 8]`.
    pub(super) fn shown(&self) -> String {
        shown(&self.dims)
    }
}

/// Sizes behind the axis of the records, for messages.
pub(super) fn shown(dims: &[usize]) -> String {
    let sizes: Vec<String> = std::iter::once("N".into())
        .chain(dims.iter().map(usize::to_string))
        .collect();
    format!("[{}]", sizes.join(", "))
}

/// The shape of a value of these sizes: channels first, the axes of an image last.
pub(super) fn standard(dims: &[usize]) -> Shape {
    match *dims {
        [] => Shape::vector(1),
        [c] => Shape::vector(c),
        [c, w] => Shape { c, h: 1, w },
        [c, ref between @ .., w] => Shape {
            c,
            h: between.iter().product(),
            w,
        },
    }
}

/// The class of each record: the arg-max of its scores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    /// What it is the arg-max of.
    pub(super) scores: usize,
    /// What the model calls the classes.
    pub(super) labels: Option<Rc<Constant>>,
}

/// A tensor of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Known at build time.
    Constant(Rc<Constant>),
    /// Computed of each record.
    Live(Live),
    /// The class of each record.
    Class(Class),
    /// Probabilities by the names of their classes.
    Map(Live, Rc<Constant>),
    /// Which probabilities are above a threshold.
    Flags(Live, f64),
    /// What cannot be known, for reasons that are reported.
    Unknown,
}

/// An axis that may count from the end, of `rank` axes.
///
/// # Errors
/// Of one that is not there.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from_end = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_end) {
        Ok(a) if a < rank => Ok(a),
        _ => Err(format!("expected an axis of {rank}, found {axis}")),
    }
}

/// The axis behind the records that an axis of the model's tensor is.
///
/// # Errors
/// Of the axis of the records.
pub(super) fn inner_axis(axis: i64, live: &Live) -> Result<usize, String> {
    let a = self::axis(axis, live.dims.len() + 1)?;
    a.checked_sub(1)
        .ok_or_else(|| format!("axis {axis} of {} is that of the records", live.shown()))
}
