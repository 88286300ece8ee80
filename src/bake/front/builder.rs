//! The builder of drafts. It reshapes each tensor to the shape that an operation needs. Equal
//! reshapes and transpositions of a tensor share one node.

use super::constant::{self, ConstantTensor, Data, Element, Int, repeated};
use super::integers::Known;
use super::value::{Live, Order, shape_of, standard};
use crate::bake::draft::{Array, Draft};
use crate::ir::graph::{Node, Role, Shape, Value};
use crate::ir::op::{Activation, Arithmetic, Axis, Op};
use std::collections::{HashMap, HashSet, VecDeque};

/// The axes of a [`Shape`], in the order of its fields.
const AXES: [Axis; 3] = [Axis::C, Axis::Y, Axis::X];

/// The most axes above size 1 that one transposition may reorder. The search for the shortest chain
/// of copies visits all orders of these axes, 7! = 5040.
const MOST_AXES: usize = 7;

/// A transposition of a tensor that is first reshaped to three axes.
struct Transposition {
    shape: Shape,
    axes: [Axis; 3],
}

impl Transposition {
    /// Makes the transposition of a tensor whose axes form at most three [`groups`]. `moving` are
    /// the axes of size above 1, in the new order.
    fn grouped(live: &Live, moving: &[usize]) -> Transposition {
        let groups = groups(live, moving);
        let mut sorted = groups.clone();
        sorted.sort();
        let size = |g: &Vec<usize>| g.iter().map(|&a| live.dims[a]).product::<usize>();
        let mut sizes: Vec<usize> = sorted.iter().map(size).collect();
        sizes.resize(3, 1);
        let place = |g: &Vec<usize>| sorted.iter().position(|s| s == g);
        let mut axes: Vec<usize> = groups.iter().filter_map(place).collect();
        axes.extend(axes.len()..3);
        Transposition {
            shape: shape_of(sizes[0], sizes[1], sizes[2]),
            axes: [axes[0], axes[1], axes[2]].map(|a| AXES[a]),
        }
    }
}

/// Groups the axes `moving`, which have sizes above 1 and are listed in their new order. Axes that
/// are neighbours both before and after the transposition, in the same order, form one group.
fn groups(live: &Live, moving: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &a in moving {
        let between = |last: usize| (last + 1..a).all(|b| live.dims[b] == 1);
        match groups.last_mut() {
            Some(g) if g.last().is_some_and(|&last| last < a && between(last)) => g.push(a),
            _ => groups.push(vec![a]),
        }
    }
    groups
}

/// Returns the shortest chain of axis orders that leads from 0, 1, … to the order `to`. Each order
/// of the chain moves at most three blocks of neighbouring axes. An axis is named by its first
/// place.
fn chain(to: &[usize]) -> Vec<Vec<usize>> {
    let start: Vec<usize> = (0..to.len()).collect();
    let mut before: HashMap<Vec<usize>, Vec<usize>> = HashMap::new();
    let mut waiting = VecDeque::from([start.clone()]);
    while let Some(now) = waiting.pop_front().filter(|now| *now != to) {
        for first in 0..now.len() {
            for second in first + 1..=now.len() {
                let (rest, c) = now.split_at(second);
                let (a, b) = rest.split_at(first);
                for next in [[a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
                    let next = next.concat();
                    if next != start && !before.contains_key(&next) {
                        before.insert(next.clone(), now.clone());
                        waiting.push_back(next);
                    }
                }
            }
        }
    }
    let mut chain = vec![to.to_vec()];
    while let Some(earlier) = before.get(&chain[chain.len() - 1]).filter(|e| **e != start) {
        chain.push(earlier.clone());
    }
    chain.reverse();
    chain
}

/// A transposition node in the draft, with the indices of its operand and its result.
struct Turn {
    from: usize,
    axes: [Axis; 3],
    to: usize,
}

/// Builds the draft of a model.
pub(super) struct Builder {
    /// The draft that this builder makes.
    pub(super) draft: Draft,
    /// The number of records, if the model states it.
    pub(super) records: Option<usize>,
    /// The model's inputs by name. Empty if there is only one input.
    pub(super) inputs: Vec<Value>,
    /// The indices of values that the model states to be numbers, not scores of classes.
    pub(super) numbers: Vec<usize>,
    /// The indices of values in which a very low number stands for minus infinity.
    pub(super) masked: Vec<usize>,
    /// The integers behind real values that lie between two quantized tensors of an ONNX model.
    pub(super) known: Known,
    /// The reshaped values so far. The key is the index of the value and its new shape.
    reshaped: HashMap<(usize, [usize; 3]), usize>,
    /// The transpositions so far.
    turned: Vec<Turn>,
    /// The number of nodes so far, by the name that the caller asked for.
    names: HashMap<String, usize>,
}

impl Builder {
    /// Makes a builder, and returns the index of each input's value. A record has the elements of
    /// all inputs, one input behind the other. `records` is the number of records, if the model
    /// states it.
    pub(super) fn new(
        inputs: Vec<Value>,
        records: Option<usize>,
    ) -> Result<(Builder, Vec<usize>), String> {
        let mut b = Builder {
            draft: Draft::new(Shape::default()),
            records,
            inputs: Vec::new(),
            numbers: Vec::new(),
            masked: Vec::new(),
            known: Known::default(),
            reshaped: HashMap::new(),
            turned: Vec::new(),
            names: HashMap::new(),
        };
        let total = inputs
            .iter()
            .map(|i| i.shape.len())
            .fold(0usize, usize::saturating_add);
        Shape::vector(total)
            .bounded()
            .map_err(|e| format!("its inputs: {e}"))?;
        if let [one] = &inputs[..] {
            b.draft = Draft::new(one.shape);
            return Ok((b, vec![0]));
        }
        b.draft = Draft::new(Shape::vector(total));
        let (mut first, mut values) = (0, Vec::new());
        for Value { name, shape } in &inputs {
            let part = Op::Slice {
                axis: Axis::C,
                first,
                size: shape.len(),
            };
            let part = b.push(name, part, &[0], Vec::new())?;
            values.push(b.shaped(name, part, *shape)?);
            first += shape.len();
        }
        b.inputs = inputs;
        Ok((b, values))
    }

    /// Adds a node to the draft. If the name is taken, a number is appended to it. An array with a
    /// number that f32 cannot hold is an error.
    pub(super) fn push(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[usize],
        arrays: Vec<Array>,
    ) -> Result<usize, String> {
        for Array { role, numbers, .. } in &arrays {
            if let Some(bad) = numbers.iter().find(|v| !(**v as f32).is_finite()) {
                return Err(format!("expected finite {}, found {bad}", role.name()));
            }
        }
        let count = self.names.entry(name.to_string()).or_default();
        *count += 1;
        let name = if *count == 1 {
            name.to_string()
        } else {
            format!("{name}:{count}")
        };
        self.draft.push_at_place(&name, op, inputs, arrays)
    }

    /// Makes a value with the sizes of `like`, so that reading goes on behind a node that has a
    /// mistake ([`Draft::assume`]). `None` if no value can have these sizes.
    pub(super) fn assumed(&mut self, name: &str, like: &Live) -> Option<Live> {
        constant::elements(&like.dims).filter(|&n| n > 0)?;
        let shape = like.standard().bounded().ok()?;
        Some(Live {
            kind: Element::F32,
            ..like.with_value(self.draft.assume(name, shape))
        })
    }

    /// Returns the index of a value in another shape with as many elements. That is the value
    /// itself, an earlier reshape of it, or a new reshape.
    pub(super) fn shaped(
        &mut self,
        name: &str,
        value: usize,
        shape: Shape,
    ) -> Result<usize, String> {
        if self.draft.shape(value) == shape {
            return Ok(value);
        }
        let key = (value, [shape.c, shape.h, shape.w]);
        if let Some(&known) = self.reshaped.get(&key) {
            return Ok(known);
        }
        let reshaped = self.push(name, Op::Reshape(shape), &[value], Vec::new())?;
        self.reshaped.insert(key, reshaped);
        // The reverse reshape needs no node, because its result is `value` itself.
        let from = self.draft.shape(value);
        self.reshaped
            .insert((reshaped, [from.c, from.h, from.w]), value);
        Ok(reshaped)
    }

    /// Returns a tensor's value in the default shape for its sizes ([`standard`]).
    pub(super) fn standard(&mut self, name: &str, live: &Live) -> Result<usize, String> {
        self.shaped(name, live.value, live.standard())
    }

    /// Adds a node that applies an element-wise function to a tensor.
    pub(super) fn activation(
        &mut self,
        name: &str,
        live: &Live,
        a: Activation,
    ) -> Result<Live, String> {
        let value = self.push(name, Op::Activation(a), &[live.value], Vec::new())?;
        Ok(live.with_value(value))
    }

    /// Adds a node for x · factor + summand. Factors and summands have one number for all elements,
    /// or one number for each element of x.
    pub(super) fn scale(
        &mut self,
        name: &str,
        live: &Live,
        factors: &[f64],
        summands: &[f64],
    ) -> Result<Live, String> {
        let value = self.standard(name, live)?;
        let arrays = vec![
            per_element(Role::Factors, factors.to_vec(), live),
            per_element(Role::Biases, summands.to_vec(), live),
        ];
        let value = self.push(name, Op::Scale, &[value], arrays)?;
        Ok(live.with_value(value))
    }

    /// Adds a node for W·x + b, where the vector x has all elements of the tensor in their order.
    pub(super) fn affine(
        &mut self,
        name: &str,
        live: &Live,
        weights: Vec<f64>,
        biases: Vec<f64>,
    ) -> Result<Live, String> {
        let outputs = biases.len();
        let arrays = Array::of_layer(weights, biases);
        let value = self.push(name, Op::Affine, &[live.value], arrays)?;
        Ok(Live {
            kind: Element::F32,
            ..live.with_dims(vec![outputs]).with_value(value)
        })
    }

    /// Selects the elements with the indices `at` from a tensor that is read as a vector.
    pub(super) fn select(&mut self, name: &str, live: &Live, at: &[usize]) -> Result<Live, String> {
        let same = |value: usize| live.with_dims(vec![at.len()]).with_value(value);
        if let Some(value) = self.part(live.value, at) {
            return Ok(same(value));
        }
        if let Some(first) = run(at) {
            let from = self.shaped(name, live.value, Shape::vector(live.len()))?;
            let part = Op::Slice {
                axis: Axis::C,
                first,
                size: at.len(),
            };
            return Ok(same(self.push(name, part, &[from], Vec::new())?));
        }
        let (inputs, mut weights) = (live.len(), vec![0.0; at.len() * live.len()]);
        at.iter()
            .enumerate()
            .for_each(|(row, &i)| weights[row * inputs + i] = 1.0);
        self.affine(name, live, weights, vec![0.0; at.len()])
    }

    /// Looks for the elements `at` among the operands of a concatenation. Returns the operand that
    /// has just these elements. `None` if `value` is no concatenation, or no operand matches.
    fn part(&self, value: usize, at: &[usize]) -> Option<usize> {
        let node = self
            .draft
            .producer(value)
            .filter(|n| n.op == Op::Concat(Axis::C))?;
        let mut first = 0;
        for &part in node.inputs.iter() {
            let len = self.draft.shape(part).len();
            if at.iter().copied().eq(first..first + len) {
                return Some(part);
            }
            first += len;
        }
        None
    }

    /// Transposes a tensor. `order` covers all its axes, with the axis of the records.
    pub(super) fn reorder(
        &mut self,
        name: &str,
        live: &Live,
        order: &Order,
    ) -> Result<Live, String> {
        let turned = self.transpose(name, live, &order.inner)?;
        Ok(Live {
            records: order.records,
            ..turned
        })
    }

    /// Transposes a tensor. `order` lists the axes, without the axis of the records, in the new
    /// order.
    pub(super) fn transpose(
        &mut self,
        name: &str,
        live: &Live,
        order: &[usize],
    ) -> Result<Live, String> {
        let dims: Vec<usize> = order.iter().map(|&a| live.dims[a]).collect();
        // Axes of size 1 change places without a copy, so only longer axes matter.
        let moving: Vec<usize> = order
            .iter()
            .copied()
            .filter(|&a| live.dims[a] > 1)
            .collect();
        if moving.is_sorted() {
            return Ok(live.with_dims(dims));
        }
        // A first axis of size 1 that stays in front is dropped, so that fewer axes need a place in
        // the shape.
        if let (true, Some(&[_, ..])) = (order[0] == 0 && live.dims[0] == 1, live.dims.get(1..4)) {
            let rest: Vec<usize> = order[1..].iter().map(|a| a - 1).collect();
            let turned = self.transpose(name, &live.with_dims(live.dims[1..].to_vec()), &rest)?;
            return Ok(turned.with_dims(dims));
        }
        if groups(live, &moving).len() > 3 {
            return self.transpose_in_steps(name, live, &moving, dims);
        }
        let Transposition { shape, axes } = match live.dims.len() {
            2 => Transposition {
                shape: standard(&live.dims),
                axes: [Axis::X, Axis::Y, Axis::C],
            },
            0..=3 => Transposition {
                shape: standard(&live.dims),
                axes: [order[0], order[1], order[2]].map(|a| AXES[a]),
            },
            _ => Transposition::grouped(live, &moving),
        };
        let from = self.shaped(name, live.value, shape)?;
        let known = self
            .turned
            .iter()
            .find(|t| t.from == from && t.axes == axes)
            .map(|t| t.to);
        let value = match known {
            Some(turned) => turned,
            None => {
                let to = self.push(name, Op::Transpose(axes), &[from], Vec::new())?;
                self.turned.push(Turn { from, axes, to });
                to
            }
        };
        Ok(live.with_dims(dims).with_value(value))
    }

    /// Transposes a tensor by several copies, because more than three groups of axes change places.
    /// `moving` are the axes of size above 1 in the new order. `dims` are the sizes of the result.
    fn transpose_in_steps(
        &mut self,
        name: &str,
        live: &Live,
        moving: &[usize],
        dims: Vec<usize>,
    ) -> Result<Live, String> {
        let mut long = moving.to_vec();
        long.sort_unstable();
        if long.len() > MOST_AXES {
            return Err(format!(
                "{} axes of {} change places, at most {MOST_AXES} can",
                long.len(),
                live.shown()
            ));
        }
        let sizes: Vec<usize> = long.iter().map(|&a| live.dims[a]).collect();
        let place = |order: &[usize], a: &usize| order.iter().position(|o| o == a);
        let to: Vec<usize> = moving.iter().filter_map(|a| place(&long, a)).collect();
        let mut now: Vec<usize> = (0..sizes.len()).collect();
        let mut result = live.with_dims(sizes);
        for next in chain(&to) {
            let order: Vec<usize> = next.iter().filter_map(|a| place(&now, a)).collect();
            result = self.transpose(name, &result, &order)?;
            now = next;
        }
        Ok(result.with_dims(dims))
    }

    /// Broadcasts a constant to the sizes of a tensor. Returns one number for each element, or a
    /// single number that is for all elements.
    pub(super) fn against(
        &self,
        live: &Live,
        constant: &ConstantTensor,
    ) -> Result<Vec<f64>, String> {
        let numbers = constant.numbers()?;
        let whole = live.whole();
        if numbers.len() == 1 && constant.dims.len() <= whole.len() {
            return Ok(numbers);
        }
        let at = repeated(&constant.dims, &whole).ok_or_else(|| {
            let own_rows = |r: usize| constant.dims.len() == whole.len() && constant.dims[r] > 1;
            let records = live.records.is_some_and(own_rows);
            let why = if records {
                "it has a row for each record"
            } else {
                "the value would have to be repeated"
            };
            format!(
                "a constant of sizes {:?} does not match a value of {}: {why}",
                constant.dims,
                live.shown()
            )
        })?;
        Ok(at.into_iter().map(|i| numbers[i]).collect())
    }

    /// Returns the sizes of a tensor as a constant of integers. One of them is the number of
    /// records.
    pub(super) fn shape_constant(&self, live: &Live, kind: Element) -> ConstantTensor {
        let mut data: Vec<Int> = live.dims.iter().map(|&d| Int::Known(d as i64)).collect();
        if let Some(r) = live.records {
            let records = self.records.map_or(Int::Records, |n| Int::Known(n as i64));
            data.insert(r, records);
        }
        ConstantTensor::new(kind, vec![data.len()], Data::Ints(data))
    }

    /// Returns the tensor with the sizes `target` of a reshape, without a new node. -1 stands for
    /// the size that the other sizes leave.
    ///
    /// 0 stands for the tensor's own size at that axis, unless `zero` is true. The axis of the
    /// records may move if as many elements as before stand in front of it.
    pub(super) fn reshape(&self, live: &Live, target: &[Int], zero: bool) -> Result<Live, String> {
        let len = live.len();
        let wrong = |why: &str| format!("{} to {}: {why}", live.shown(), asked(target));
        let mixes = || wrong("the axis of the records must stay, with as many elements before it");
        let mut sizes = Vec::new();
        for (i, &size) in target.iter().enumerate() {
            sizes.push(match size {
                Int::Known(0) if !zero && live.records == Some(i) => Asked::Records,
                Int::Known(0) if !zero => match live.whole().get(i) {
                    Some(&size) => Asked::Size(size),
                    None => return Err(wrong(&format!("no size {}", i + 1))),
                },
                Int::Known(-1) => Asked::Rest,
                Int::Known(size) => match usize::try_from(size) {
                    Ok(size) => Asked::Size(size),
                    Err(_) => return Err(wrong("expected sizes")),
                },
                Int::Records if live.records.is_some() => Asked::Records,
                Int::Records => return Err(mixes()),
            });
        }
        let records = match live.records {
            Some(r) => Some(self.place_of_records(live, r, &sizes).ok_or_else(mixes)?),
            None => None,
        };
        if let Some(r) = records {
            sizes.remove(r);
        }
        if sizes.iter().filter(|&&s| s == Asked::Rest).count() > 1 {
            return Err(wrong("expected -1 once"));
        }
        if sizes.contains(&Asked::Records) {
            return Err(mixes());
        }
        let known = sizes.iter().filter_map(|s| s.size());
        let product = constant::elements(&known.collect::<Vec<_>>()).unwrap_or(0);
        let rest = len.checked_div(product).unwrap_or(0);
        let dims: Vec<usize> = sizes.iter().map(|s| s.size().unwrap_or(rest)).collect();
        let ahead = |dims: &[usize], r: usize| dims[..r].iter().product::<usize>();
        if constant::elements(&dims) != Some(len) {
            return Err(wrong(&format!("it has {len} elements")));
        }
        if let (Some(from), Some(to)) = (live.records, records) {
            if ahead(&live.dims, from) != ahead(&dims, to) {
                return Err(mixes());
            }
        }
        Ok(Live {
            dims,
            records,
            ..live.clone()
        })
    }

    /// Finds the size that stands for the number of records, among the sizes that a reshape asks
    /// for. Returns its index. `r` is the index of the axis of the records in `live`.
    fn place_of_records(&self, live: &Live, r: usize, sizes: &[Asked]) -> Option<usize> {
        if let Some(stated) = sizes.iter().position(|&s| s == Asked::Records) {
            return Some(stated);
        }
        let others = sizes.iter().filter_map(|s| s.size());
        let all = constant::elements(&others.collect::<Vec<_>>())?;
        // -1 stands for the number of records if the other sizes multiply to the elements of one
        // record.
        let rest = sizes.iter().position(|&s| s == Asked::Rest);
        if let (Some(rest), true) = (rest, all == live.len()) {
            return Some(rest);
        }
        let number = self.records.unwrap_or(1);
        let ahead: usize = live.dims[..r].iter().product();
        (0..sizes.len()).find(|&i| {
            let before = sizes[..i].iter().map(|s| s.size());
            let product = before.product::<Option<usize>>();
            sizes[i] == Asked::Size(number) && product == Some(ahead)
        })
    }

    /// Checks that each very low number that stands for minus infinity reaches a softmax. Softmax
    /// gives 0 for both numbers. Only operations that keep the number very low may come between.
    pub(super) fn check_masked(&self) -> Result<(), String> {
        let graph = &self.draft.graph;
        let (mut left, mut seen) = (self.masked.clone(), HashSet::new());
        while let Some(value) = left.pop() {
            let mut readers = graph.nodes.iter().filter(|n| n.inputs.contains(&value));
            let bad = readers.clone().find(|n| !self.keeps_low(n));
            if bad.is_some() || readers.clone().next().is_none() {
                let behind = bad.map_or("the output", |n| &*n.name);
                return Err(format!(
                    "{}: minus infinity is supported in front of a softmax only, found {behind}",
                    graph.values[value].name
                ));
            }
            let ends = |n: &&Node| matches!(n.op, Op::OfChannels(_));
            for n in readers.by_ref().filter(|n| !ends(n)) {
                if seen.insert(n.output) {
                    left.push(n.output);
                }
            }
        }
        Ok(())
    }

    /// Returns true if this node keeps a very low number very low, or if it is a softmax.
    fn keeps_low(&self, node: &Node) -> bool {
        match node.op {
            Op::OfChannels(_) | Op::Reshape(_) | Op::Transpose(_) => true,
            Op::Slice { .. } | Op::Concat(_) | Op::Resample { .. } => true,
            Op::Combine(Arithmetic::Add) => true,
            Op::Scale => match self.draft.arrays(node)[..] {
                [factors, _] => factors.iter().all(|&f| f > 0.0),
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns the shape in which `axis` becomes the height. The axes before it become the
    /// channels, and the axes behind it the width.
    pub(super) fn around(live: &Live, axis: usize) -> Shape {
        let product = |d: &[usize]| d.iter().product();
        shape_of(
            product(&live.dims[..axis]),
            live.dims[axis],
            product(&live.dims[axis + 1..]),
        )
    }
}

/// A size that a reshape asks for.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Size(usize),
    /// -1, the size that the other sizes leave.
    Rest,
    /// The number of records. This size belongs to the axis of the records.
    Records,
}

impl Asked {
    fn size(self) -> Option<usize> {
        match self {
            Asked::Size(size) => Some(size),
            _ => None,
        }
    }
}

/// Formats the sizes that a reshape asks for, for messages.
fn asked(target: &[Int]) -> String {
    let size = |i: &Int| match i {
        Int::Known(i) => i.to_string(),
        Int::Records => "N".into(),
    };
    let sizes: Vec<String> = target.iter().map(size).collect();
    format!("[{}]", sizes.join(", "))
}

/// Returns the first index if the indices are consecutive and ascending.
pub(super) fn run(at: &[usize]) -> Option<usize> {
    let first = *at.first()?;
    at.iter()
        .copied()
        .eq(first..first + at.len())
        .then_some(first)
}

/// Makes the array of an element-wise node on `live`. `numbers` has one number for all elements, or
/// one for each element.
pub(super) fn per_element(role: Role, numbers: Vec<f64>, live: &Live) -> Array {
    match numbers[..] {
        [number] => Array::of_all(role, number, live.len()),
        _ => Array::compressed(role, numbers, &live.dims),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_whose_product_wraps_are_no_shape() {
        let x = crate::ir::graph::Value {
            name: "x".into(),
            shape: Shape::vector(4),
        };
        let (b, _) = Builder::new(vec![x], None).unwrap();
        let live = Live::new(0, vec![4], Element::F32);
        let reshape = |sizes: [i64; 3]| {
            let reshaped = b.reshape(&live, &sizes.map(Int::Known), false);
            reshaped.map(|l| l.dims)
        };
        assert_eq!(reshape([0, 2, 2]), Ok(vec![2, 2]));
        // The sizes multiply to 2^64 + 4, which would wrap around to 4.
        assert!(reshape([0, (1 << 62) + 1, 4]).is_err());
    }
}
