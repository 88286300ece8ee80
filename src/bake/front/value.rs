//! A tensor of a model: known at build time, or computed from each record.

use super::constant::{ConstantTensor, Element};
use crate::ir::graph::Shape;
use std::rc::Rc;

/// A tensor whose numbers are computed from each record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Live {
    /// The index of this tensor among the values of the draft's graph. The graph value holds one
    /// record's elements in row-major order. Its shape (channels, rows, columns) may differ from
    /// `dims`.
    pub(super) value: usize,
    /// The sizes of the tensor's axes, without the axis of the records (the batch axis).
    pub(super) dims: Vec<usize>,
    /// The index of the axis of the records (the batch axis) among all axes of this tensor. `None`
    /// if the tensor has no such axis, because the model computes one record at a time.
    pub(super) records: Option<usize>,
    /// The element type of this tensor in the model.
    pub(super) kind: Element,
}

impl Live {
    /// Makes a tensor whose first axis is the axis of the records. `dims` are the sizes of all
    /// other axes.
    pub(super) fn new(value: usize, dims: Vec<usize>, kind: Element) -> Live {
        Live {
            value,
            dims,
            records: Some(0),
            kind,
        }
    }

    /// Returns a tensor with the sizes and type of this one, whose graph value has the index
    /// `value`.
    pub(super) fn with_value(&self, value: usize) -> Live {
        Live {
            value,
            ..self.clone()
        }
    }

    /// Returns this tensor with the axis sizes `dims`. The axis of the records stays in its place.
    /// A caller that changes the number of elements replaces the graph value too.
    pub(super) fn with_dims(&self, dims: Vec<usize>) -> Live {
        Live {
            dims,
            ..self.clone()
        }
    }

    /// The number of elements for one record.
    pub(super) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// The number of axes, with the axis of the records.
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

    /// Returns the sizes of all axes behind the first axis. The first axis must be the axis of the
    /// records or have size 1, else the result is `None`.
    pub(super) fn behind_first(&self) -> Option<&[usize]> {
        match (self.records, self.dims.first()) {
            (Some(0), _) => Some(&self.dims),
            (None, Some(1)) => Some(&self.dims[1..]),
            _ => None,
        }
    }

    /// Returns the default shape in channels, rows and columns for this tensor ([`standard`]). If
    /// the tensor has no axis of the records, a first axis of size 1 is left out.
    pub(super) fn standard(&self) -> Shape {
        standard(self.behind_first().unwrap_or(&self.dims))
    }

    /// Returns this tensor for an operation that treats the first axis as the axis of the records.
    /// A first axis of size 1 becomes that axis. It is an error if the first axis is neither.
    pub(super) fn per_record(&self) -> Result<Live, String> {
        match self.behind_first() {
            Some(dims) => Ok(Live::new(self.value, dims.to_vec(), self.kind)),
            None => Err(format!(
                "expected a first axis of the records, or of size 1, found {}",
                self.shown()
            )),
        }
    }

    /// Undoes [`Live::per_record`] in the result of an operation. `of` is [`Live::records`] of the
    /// operation's operand. If `of` is `None`, the operand had no axis of the records. Then the
    /// first axis of the result becomes an ordinary axis of size 1 again.
    pub(super) fn like(mut self, of: Option<usize>) -> Live {
        if of.is_none() && self.records == Some(0) {
            self.dims.insert(0, 1);
            self.records = None;
        }
        self
    }

    /// Returns this tensor with axis `a` of [`Live::dims`] replaced by axes of the sizes `by`.
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

/// Returns the default shape for a tensor with the axis sizes `dims`. The first axis becomes the
/// channels and the last one the columns. The axes between them are joined to rows.
pub(super) fn standard(dims: &[usize]) -> Shape {
    match *dims {
        [] => Shape::vector(1),
        [c] => Shape::vector(c),
        [c, w] => Shape { c, h: 1, w },
        [c, ref between @ .., w] => shape_of(c, between.iter().product(), w),
    }
}

/// A classifier's result: the class of each record, which is the arg-max of its scores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    /// The index of the scores among the values of the draft's graph.
    pub(super) scores: usize,
    /// The names that the model gives its classes. `None` if it knows a class by its index only.
    pub(super) labels: Option<Rc<ConstantTensor>>,
}

/// All that a front end knows about a tensor of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelValue {
    /// A tensor that is known at build time.
    Constant(Rc<ConstantTensor>),
    /// A tensor that is computed from each record.
    Live(Live),
    /// The class index of each record.
    Class(Class),
    /// Probabilities of each record, with the names of their classes.
    Map(Live, Rc<ConstantTensor>),
    /// A truth value for each probability: true if it is above the threshold in the second field.
    Flags(Live, f64),
    /// A tensor that is not known, because of a mistake that is already reported.
    Unknown,
}

/// Converts an axis number to an index below `rank`. A negative number counts from the end.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from_end = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_end) {
        Ok(a) if a < rank => Ok(a),
        _ => Err(format!("expected one of {rank} axes, found {axis}")),
    }
}

/// Converts axis numbers to indices below `rank`, or checks indices along an axis of size `rank`.
/// Negative numbers count from the end.
pub(super) fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    list.iter().map(|&a| axis(a, rank)).collect()
}

/// Converts an axis number of the model's tensor, which counts the axis of the records, to an index
/// in [`Live::dims`], which leaves that axis out.
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

/// Converts several axis numbers of the model's tensor as [`inner_axis`] does.
pub(super) fn inner_axes(list: &[i64], live: &Live) -> Result<Vec<usize>, String> {
    list.iter().map(|&a| inner_axis(a, live)).collect()
}

/// Converts the order of a transposition of `rank` axes to indices. Each axis must appear once. A
/// negative number counts from the end.
pub(super) fn permutation(order: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let order = axes(order, rank)?;
    if order.len() != rank || (0..rank).any(|a| !order.contains(&a)) {
        return Err(format!(
            "perm: expected every axis of {rank} once, found {order:?}"
        ));
    }
    Ok(order)
}

/// The order of a tensor's axes after a transposition.
pub(super) struct Order {
    /// The indices in [`Live::dims`], which leaves out the axis of the records, in the new order.
    pub(super) inner: Vec<usize>,
    /// The index of the axis of the records after the transposition.
    pub(super) records: Option<usize>,
}

/// Converts the order of a transposition to an [`Order`], which lists the axis of the records apart
/// from the other axes.
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
