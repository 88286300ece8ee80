//! A tensor of a model: known at build time, or computed from each record.

use super::constant::{ConstantTensor, Element};
use crate::ir::graph::Shape;
use std::rc::Rc;

/// A tensor whose numbers are computed from each record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Live {
    /// The index of the tensor's value in the draft's graph. The value's elements in the order c,
    /// y, x are those of one record's tensor in row-major order. The shapes of the two may differ.
    pub(super) value: usize,
    /// The sizes of the tensor's axes, without the axis of the records.
    pub(super) dims: Vec<usize>,
    /// The place of the axis of the records among all axes. `None` if the tensor has no such axis,
    /// because the model computes one record at a time.
    pub(super) records: Option<usize>,
    /// The type that the model computes the numbers in.
    pub(super) kind: Element,
}

impl Live {
    /// Makes a tensor whose first axis is the axis of the records. `dims` are the sizes of the
    /// others.
    pub(super) fn new(value: usize, dims: Vec<usize>, kind: Element) -> Live {
        Live {
            value,
            dims,
            records: Some(0),
            kind,
        }
    }

    /// Returns the value number `value` of the draft, with the sizes and the type of this tensor.
    pub(super) fn with_value(&self, value: usize) -> Live {
        Live {
            value,
            ..self.clone()
        }
    }

    /// Returns this value with other sizes. The number of elements must be the same. The axis of
    /// the records stays in its place.
    pub(super) fn with_dims(&self, dims: Vec<usize>) -> Live {
        Live {
            dims,
            ..self.clone()
        }
    }

    /// The count of numbers for one record.
    pub(super) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// The number of axes, that of the records included.
    pub(super) fn rank(&self) -> usize {
        self.dims.len() + usize::from(self.records.is_some())
    }

    /// The sizes of all axes, with 1 for the axis of the records.
    pub(super) fn whole(&self) -> Vec<usize> {
        let mut whole = self.dims.clone();
        if let Some(r) = self.records {
            whole.insert(r, 1);
        }
        whole
    }

    /// The sizes for messages, such as `[N, 3, 8, 8]`. N stands for the axis of the records.
    pub(super) fn shown(&self) -> String {
        let mut sizes: Vec<String> = self.dims.iter().map(usize::to_string).collect();
        if let Some(r) = self.records {
            sizes.insert(r, "N".into());
        }
        format!("[{}]", sizes.join(", "))
    }

    /// Returns the sizes behind the first axis, if that is the axis of the records or has the size
    /// 1. `None` if it is another axis.
    pub(super) fn behind_first(&self) -> Option<&[usize]> {
        match (self.records, self.dims.first()) {
            (Some(0), _) => Some(&self.dims),
            (None, Some(1)) => Some(&self.dims[1..]),
            _ => None,
        }
    }

    /// Returns the usual shape of the value's sizes ([`standard`]). If the value has no axis of the
    /// records, a first axis of size 1 is left out.
    pub(super) fn standard(&self) -> Shape {
        standard(self.behind_first().unwrap_or(&self.dims))
    }

    /// Returns this tensor for an operation that takes the first axis for the axis of the records.
    /// A first axis of size 1 becomes that axis. Any other first axis is an error.
    pub(super) fn per_record(&self) -> Result<Live, String> {
        match self.behind_first() {
            Some(dims) => Ok(Live::new(self.value, dims.to_vec(), self.kind)),
            None => Err(format!(
                "expected a first axis of the records, or of size 1, found {}",
                self.shown()
            )),
        }
    }

    /// Undoes [`Live::per_record`] in the result of an operation. `of` is [`Live::records`] of its
    /// operand. If it is `None`, the operand had no axis of the records. Then the first axis of the
    /// result becomes an ordinary axis of size 1 again.
    pub(super) fn like(mut self, of: Option<usize>) -> Live {
        if of.is_none() && self.records == Some(0) {
            self.dims.insert(0, 1);
            self.records = None;
        }
        self
    }

    /// Returns the value with axis `a` of [`Live::dims`] replaced by axes of these sizes.
    pub(super) fn spliced(&self, a: usize, by: &[usize]) -> Live {
        let dims = [&self.dims[..a], by, &self.dims[a + 1..]].concat();
        let records = self
            .records
            .map(|r| if r > a { r + by.len() - 1 } else { r });
        Live {
            dims,
            records,
            ..self.clone()
        }
    }
}

/// Makes the shape of `c` channels, `h` rows and `w` columns.
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
    /// The index of the value of the scores in the draft's graph.
    pub(super) scores: usize,
    /// The model's names of the classes. `None` if classes are known by their indices only.
    pub(super) labels: Option<Rc<ConstantTensor>>,
}

/// A tensor of the model, as a front end knows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelValue {
    /// A tensor that is known at build time.
    Constant(Rc<ConstantTensor>),
    /// A tensor that is computed from each record.
    Live(Live),
    /// The class of each record.
    Class(Class),
    /// Probabilities, with the names of their classes.
    Map(Live, Rc<ConstantTensor>),
    /// True for each probability that is above the threshold.
    Flags(Live, f64),
    /// Not known, because of a mistake that is reported.
    Unknown,
}

/// Converts an axis to an index below `rank`. A negative axis counts from the end.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from_end = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_end) {
        Ok(a) if a < rank => Ok(a),
        _ => Err(format!("expected one of {rank} axes, found {axis}")),
    }
}

/// Converts axes, or indices along an axis of size `rank`. Negative ones count from the end.
pub(super) fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    list.iter().map(|&a| axis(a, rank)).collect()
}

/// Converts an axis of the model's tensor to an index in [`Live::dims`].
pub(super) fn inner_axis(axis: i64, live: &Live) -> Result<usize, String> {
    let a = self::axis(axis, live.rank())?;
    match live.records {
        Some(r) if r == a => Err(format!(
            "axis {axis} of {} is the axis of the records",
            live.shown()
        )),
        Some(r) if r < a => Ok(a - 1),
        _ => Ok(a),
    }
}

/// Converts axes of the model's tensor to indices in [`Live::dims`].
pub(super) fn inner_axes(list: &[i64], live: &Live) -> Result<Vec<usize>, String> {
    list.iter().map(|&a| inner_axis(a, live)).collect()
}

/// Converts an order of `rank` axes to indices. Each axis must be there once, and a negative one
/// counts from the end.
pub(super) fn permutation(order: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let order = axes(order, rank)?;
    if order.len() != rank || (0..rank).any(|a| !order.contains(&a)) {
        return Err(format!(
            "perm: expected every axis of {rank} once, found {order:?}"
        ));
    }
    Ok(order)
}

/// The order of a value's axes behind a transposition.
pub(super) struct Order {
    /// The indices in [`Live::dims`] in the new order.
    pub(super) inner: Vec<usize>,
    /// The new place of the axis of the records.
    pub(super) records: Option<usize>,
}

/// Converts an order of all axes of the model's tensor to an [`Order`], which has the axis of the
/// records apart from the others.
pub(super) fn order_of(order: &[i64], live: &Live) -> Result<Order, String> {
    let order = permutation(order, live.rank())?;
    let of_records = |a: &usize| live.records == Some(*a);
    let records = order.iter().position(of_records);
    let rest = order.iter().filter(|a| !of_records(a));
    let inner = rest.map(|&a| match live.records {
        Some(r) if r < a => a - 1,
        _ => a,
    });
    Ok(Order {
        inner: inner.collect(),
        records,
    })
}
