//! The builder of drafts. It gives values the shape that each operation needs, and shares reshapes
//! and transpositions.

use super::constant::{self, ConstantTensor, Data, Element, Int, repeated};
use super::value::{Live, shape_of, standard};
use crate::bake::draft::{Array, Draft};
use crate::ir::graph::{Role, Shape, Value};
use crate::ir::op::{Activation, Axis, Op};
use std::collections::HashMap;

/// The axes of a shape, in its order.
const AXES: [Axis; 3] = [Axis::C, Axis::Y, Axis::X];

/// A transposition of a value in a shape of three axes.
struct Transposition {
    shape: Shape,
    axes: [Axis; 3],
}

impl Transposition {
    /// The transposition of a value of more than three axes. Axes that stay neighbours become one.
    /// `moving` are the axes of a size above 1, in the new order.
    fn grouped(live: &Live, moving: &[usize]) -> Result<Transposition, String> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &a in moving {
            let between = |last: usize| (last + 1..a).all(|b| live.dims[b] == 1);
            match groups.last_mut() {
                Some(g) if g.last().is_some_and(|&last| last < a && between(last)) => g.push(a),
                _ => groups.push(vec![a]),
            }
        }
        if groups.len() > 3 {
            return Err(format!(
                "{} groups of axes of {} change places, at most 3 can",
                groups.len(),
                live.shown()
            ));
        }
        let mut sorted = groups.clone();
        sorted.sort();
        let size = |g: &Vec<usize>| g.iter().map(|&a| live.dims[a]).product::<usize>();
        let mut sizes: Vec<usize> = sorted.iter().map(size).collect();
        sizes.resize(3, 1);
        let place = |g: &Vec<usize>| sorted.iter().position(|s| s == g);
        let mut axes: Vec<usize> = groups.iter().filter_map(place).collect();
        axes.extend(axes.len()..3);
        Ok(Transposition {
            shape: shape_of(sizes[0], sizes[1], sizes[2]),
            axes: [axes[0], axes[1], axes[2]].map(|a| AXES[a]),
        })
    }
}

/// A value and its transposition.
struct Turn {
    from: usize,
    axes: [Axis; 3],
    to: usize,
}

/// Builds the draft of a model.
pub(super) struct Builder {
    /// The draft so far.
    pub(super) draft: Draft,
    /// The number of records, where the model states it.
    pub(super) records: Option<usize>,
    /// The model's inputs by name, where it has several.
    pub(super) inputs: Vec<Value>,
    /// The values that the model states to be numbers, not scores of classes.
    pub(super) numbers: Vec<usize>,
    /// The reshapes so far, by value and shape.
    reshaped: HashMap<(usize, [usize; 3]), usize>,
    /// The transpositions so far.
    turned: Vec<Turn>,
    /// The number of nodes of each name so far.
    names: HashMap<String, usize>,
}

impl Builder {
    /// A builder with these inputs, and the value of each. A record has a part of every input, one
    /// behind the other.
    pub(super) fn new(
        inputs: Vec<Value>,
        records: Option<usize>,
    ) -> Result<(Builder, Vec<usize>), String> {
        let mut b = Builder {
            draft: Draft::new(Shape::default()),
            records,
            inputs: Vec::new(),
            numbers: Vec::new(),
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

    /// Adds a node to the draft. Further nodes of the same name get a number.
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

    /// A value of these sizes in place of one that a mistake has left out ([`Draft::assume`]).
    pub(super) fn assumed(&mut self, name: &str, dims: Vec<usize>) -> Option<Live> {
        constant::elements(&dims).filter(|&n| n > 0)?;
        let shape = standard(&dims).bounded().ok()?;
        Some(Live::new(
            self.draft.assume(name, shape),
            dims,
            Element::F32,
        ))
    }

    /// The value in another shape of as many elements.
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
        // The way back is the value itself.
        let from = self.draft.shape(value);
        self.reshaped
            .insert((reshaped, [from.c, from.h, from.w]), value);
        Ok(reshaped)
    }

    /// The value in the usual shape of its sizes ([`standard`]).
    pub(super) fn standard(&mut self, name: &str, live: &Live) -> Result<usize, String> {
        self.shaped(name, live.value, standard(&live.dims))
    }

    /// Applies an element-wise function.
    pub(super) fn activation(
        &mut self,
        name: &str,
        live: &Live,
        a: Activation,
    ) -> Result<Live, String> {
        let value = self.push(name, Op::Activation(a), &[live.value], Vec::new())?;
        Ok(live.with_value(value))
    }

    /// x · factor + summand, with one number for all elements or one for each.
    pub(super) fn scale(
        &mut self,
        name: &str,
        live: &Live,
        factors: &[f64],
        summands: &[f64],
    ) -> Result<Live, String> {
        let value = self.shaped(name, live.value, standard(&live.dims))?;
        let arrays = vec![
            per_element(Role::Factors, factors.to_vec(), live),
            per_element(Role::Biases, summands.to_vec(), live),
        ];
        let value = self.push(name, Op::Scale, &[value], arrays)?;
        Ok(live.with_value(value))
    }

    /// W·x + b, where x is all elements of the value in their order.
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
        Ok(Live::new(value, vec![outputs], Element::F32))
    }

    /// The elements `at` of a vector.
    pub(super) fn select(&mut self, name: &str, live: &Live, at: &[usize]) -> Result<Live, String> {
        let same = |value: usize| Live::new(value, vec![at.len()], live.kind);
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

    /// If `value` is a concatenation of vectors and `at` are the elements of one of them, that
    /// vector.
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

    /// Transposes a value. `order` has the axes behind the axis of the records in the new order.
    pub(super) fn transpose(
        &mut self,
        name: &str,
        live: &Live,
        order: &[usize],
    ) -> Result<Live, String> {
        let dims: Vec<usize> = order.iter().map(|&a| live.dims[a]).collect();
        // Axes of size 1 may be anywhere.
        let moving: Vec<usize> = order
            .iter()
            .copied()
            .filter(|&a| live.dims[a] > 1)
            .collect();
        if moving.is_sorted() {
            return Ok(live.with_dims(dims));
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
            _ => Transposition::grouped(live, &moving)?,
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
        Ok(Live::new(value, dims, live.kind))
    }

    /// Broadcasts a constant to a value: a number for each element, or one number for all.
    pub(super) fn against(
        &self,
        live: &Live,
        constant: &ConstantTensor,
    ) -> Result<Vec<f64>, String> {
        let numbers = constant.numbers()?;
        let whole: Vec<usize> = std::iter::once(1)
            .chain(live.dims.iter().copied())
            .collect();
        if numbers.len() == 1 && constant.dims.len() <= whole.len() {
            return Ok(numbers);
        }
        let at = repeated(&constant.dims, &whole).ok_or_else(|| {
            let records = constant.dims.len() == whole.len() && constant.dims[0] > 1;
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

    /// The sizes of a tensor as a constant, the number of records first.
    pub(super) fn shape_constant(&self, dims: &[usize], kind: Element) -> ConstantTensor {
        let records = self.records.map_or(Int::Records, |n| Int::Known(n as i64));
        let rest = dims.iter().map(|&d| Int::Known(d as i64));
        let data: Vec<Int> = std::iter::once(records).chain(rest).collect();
        ConstantTensor::new(kind, vec![data.len()], Data::Ints(data))
    }

    /// The sizes behind the number of records that a reshape asks for. -1 stands for the rest, and
    /// 0 for the size that was there, unless `zero` is true.
    pub(super) fn reshape(
        &self,
        live: &Live,
        target: &[Int],
        zero: bool,
    ) -> Result<Vec<usize>, String> {
        let asked = || asked(target);
        let len = live.len();
        let mixes = || {
            format!(
                "{} to {}: the first size must stay the number of records",
                live.shown(),
                asked()
            )
        };
        let Some((&first, rest)) = target.split_first() else {
            return Err(mixes());
        };
        let mut dims = Vec::new();
        let mut open = None;
        for (i, &size) in rest.iter().enumerate() {
            match size {
                Int::Known(-1) if open.is_none() => {
                    open = Some(i);
                    dims.push(1);
                }
                Int::Known(0) if !zero => {
                    dims.push(
                        *live
                            .dims
                            .get(i)
                            .ok_or_else(|| format!("{}: no size {}", asked(), i + 1))?,
                    );
                }
                Int::Known(size) => match usize::try_from(size) {
                    Ok(size) => dims.push(size),
                    Err(_) => return Err(format!("expected sizes, found {}", asked())),
                },
                Int::Records => return Err(mixes()),
            }
        }
        let product = constant::elements(&dims).unwrap_or(0);
        if let Some(i) = open {
            if product == 0 || len % product != 0 {
                return Err(format!(
                    "{} cannot be reshaped to {}",
                    live.shown(),
                    asked()
                ));
            }
            dims[i] = len / product;
        }
        let stays = match first {
            Int::Records => true,
            Int::Known(0) => !zero,
            Int::Known(-1) => open.is_none(),
            Int::Known(n) => usize::try_from(n).is_ok_and(|n| n == self.records.unwrap_or(1)),
        };
        match constant::elements(&dims) == Some(len) {
            true if stays => Ok(dims),
            _ => Err(mixes()),
        }
    }

    /// The shape of a value around an axis: the sizes before, along and behind it.
    pub(super) fn around(live: &Live, axis: usize) -> Shape {
        let product = |d: &[usize]| d.iter().product();
        shape_of(
            product(&live.dims[..axis]),
            live.dims[axis],
            product(&live.dims[axis + 1..]),
        )
    }
}

/// The sizes that a reshape asks for, for messages.
fn asked(target: &[Int]) -> String {
    let size = |i: &Int| match i {
        Int::Known(i) => i.to_string(),
        Int::Records => "N".into(),
    };
    let sizes: Vec<String> = target.iter().map(size).collect();
    format!("[{}]", sizes.join(", "))
}

/// The first of the indices, if they are consecutive.
pub(super) fn run(at: &[usize]) -> Option<usize> {
    let first = *at.first()?;
    at.iter()
        .copied()
        .eq(first..first + at.len())
        .then_some(first)
}

/// The array of an element-wise node on `live`, from one number for all elements or one for each.
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
        let reshape = |sizes: [i64; 3]| b.reshape(&live, &sizes.map(Int::Known), false);
        assert_eq!(reshape([0, 2, 2]), Ok(vec![2, 2]));
        // 2^64 + 4 values.
        assert!(reshape([0, (1 << 62) + 1, 4]).is_err());
    }
}
