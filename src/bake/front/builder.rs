//! The draft as operations make it: values in the shape that each wants, and the moves that many of
//! them share.

use super::constant::{self, Constant, Element, Int, repeated};
use super::value::{Live, standard};
use crate::bake::draft::{Array, Draft, compressed};
use crate::ir::graph::{Role, Shape, Value};
use crate::ir::op::{Activation, Axis, Op};
use crate::ir::view::RowMap;
use std::collections::HashMap;

/// What is made of a model.
pub(super) struct Builder {
    /// The graph so far.
    pub(super) draft: Draft,
    /// The first size of the model's inputs, where they state one.
    pub(super) records: Option<usize>,
    /// The model's inputs, where it has several.
    pub(super) inputs: Vec<Value>,
    /// Values that are numbers, as the model says.
    pub(super) numbers: Vec<usize>,
    /// Values in other shapes, by value and shape.
    reshaped: HashMap<(usize, [usize; 3]), usize>,
    /// Values with their axes in another order, by value and order.
    turned: Vec<(usize, [Axis; 3], usize)>,
    /// Nodes of each name so far.
    names: HashMap<String, usize>,
}

impl Builder {
    /// One of these inputs, and the value of each. Several stand one behind the other in a record:
    /// each is a part of it.
    ///
    /// # Errors
    /// Of more values than a record may have.
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

    /// Adds a node to the draft. Several that come of one node of the model are told apart by a
    /// number.
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
        // The place of the message names the node already.
        let own = format!("{name}: ");
        self.draft
            .push(name, op, inputs, arrays)
            .map_err(|e| e.strip_prefix(&own).unwrap_or(&e).to_string())
    }

    /// A value of these sizes that nothing computes: it stands for what a mistake has left out, so
    /// that the mistakes behind it are found too. A draft with one never becomes a network.
    pub(super) fn assumed(&mut self, name: &str, dims: Vec<usize>) -> Option<Live> {
        constant::elements(&dims).filter(|&n| n > 0)?;
        let shape = standard(&dims).bounded().ok()?;
        let values = self.draft.graph.values.to_mut();
        values.push(Value {
            name: name.to_string().into(),
            shape,
        });
        Some(Live {
            value: values.len() - 1,
            dims,
            kind: Element::F32,
        })
    }

    /// A value in another shape of as many elements.
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
        // Back again is the value itself.
        let from = self.draft.shape(value);
        self.reshaped
            .insert((reshaped, [from.c, from.h, from.w]), value);
        Ok(reshaped)
    }

    /// The value in the shape that its sizes stand for.
    pub(super) fn standard(&mut self, name: &str, live: &Live) -> Result<usize, String> {
        self.shaped(name, live.value, standard(&live.dims))
    }

    /// An element-wise function of a value.
    pub(super) fn activation(
        &mut self,
        name: &str,
        live: &Live,
        a: Activation,
    ) -> Result<Live, String> {
        let value = self.push(name, Op::Activation(a), &[live.value], Vec::new())?;
        Ok(Live {
            value,
            ..live.clone()
        })
    }

    /// x · factor + summand; of each there is one number for all elements, or one for each.
    pub(super) fn scale(
        &mut self,
        name: &str,
        live: &Live,
        factors: &[f64],
        summands: &[f64],
    ) -> Result<Live, String> {
        let value = self.shaped(name, live.value, standard(&live.dims))?;
        let array =
            |role, numbers: &[f64]| Array::mapped(role, per_element(numbers.to_vec(), live));
        let arrays = vec![array(Role::Factors, factors), array(Role::Biases, summands)];
        let value = self.push(name, Op::Scale, &[value], arrays)?;
        Ok(Live {
            value,
            ..live.clone()
        })
    }

    /// W·x + b of a value's elements in their order.
    pub(super) fn affine(
        &mut self,
        name: &str,
        live: &Live,
        weights: Vec<f64>,
        biases: Vec<f64>,
    ) -> Result<Live, String> {
        let outputs = biases.len();
        let arrays = vec![
            Array::weights(outputs, weights),
            Array::column(Role::Biases, biases),
        ];
        let value = self.push(name, Op::Affine, &[live.value], arrays)?;
        Ok(Live {
            value,
            dims: vec![outputs],
            kind: Element::F32,
        })
    }

    /// Elements `at` of a vector.
    pub(super) fn select(&mut self, name: &str, live: &Live, at: &[usize]) -> Result<Live, String> {
        let same = |value: usize| Live {
            value,
            dims: vec![at.len()],
            kind: live.kind,
        };
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

    /// The value that elements `at` of a concatenation of vectors are, if they are one.
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

    /// The value with its axes (those behind the records) in another order.
    pub(super) fn transpose(
        &mut self,
        name: &str,
        live: &Live,
        order: &[usize],
    ) -> Result<Live, String> {
        let dims: Vec<usize> = order.iter().map(|&a| live.dims[a]).collect();
        // Axes of size 1 stand anywhere.
        let moving: Vec<usize> = order
            .iter()
            .copied()
            .filter(|&a| live.dims[a] > 1)
            .collect();
        if moving.is_sorted() {
            return Ok(Live {
                dims,
                ..live.clone()
            });
        }
        let (shape, axes) = if live.dims.len() <= 3 {
            let axes = match live.dims.len() {
                2 => [Axis::X, Axis::Y, Axis::C],
                _ => [order[0], order[1], order[2]].map(|a| [Axis::C, Axis::Y, Axis::X][a]),
            };
            (standard(&live.dims), axes)
        } else {
            // Axes that stay side by side are one.
            let mut groups: Vec<Vec<usize>> = Vec::new();
            for &a in &moving {
                let between = |last: usize| (last + 1..a).all(|b| live.dims[b] == 1);
                match groups.last_mut() {
                    Some(g) if g.last().is_some_and(|&last| last < a && between(last)) => g.push(a),
                    _ => groups.push(vec![a]),
                }
            }
            if groups.len() > 3 {
                return Err(format!(
                    "{} axes of {} change places, at most 3 can",
                    groups.len(),
                    live.shown()
                ));
            }
            let size = |g: &Vec<usize>| g.iter().map(|&a| live.dims[a]).product::<usize>();
            let mut sorted = groups.clone();
            sorted.sort();
            let mut sizes: Vec<usize> = sorted.iter().map(size).collect();
            sizes.resize(3, 1);
            let mut axes: Vec<usize> = groups
                .iter()
                .filter_map(|g| sorted.iter().position(|s| s == g))
                .collect();
            axes.extend(axes.len()..3);
            let axes = [axes[0], axes[1], axes[2]].map(|a| [Axis::C, Axis::Y, Axis::X][a]);
            (
                Shape {
                    c: sizes[0],
                    h: sizes[1],
                    w: sizes[2],
                },
                axes,
            )
        };
        let value = self.shaped(name, live.value, shape)?;
        let known = self
            .turned
            .iter()
            .find(|t| (t.0, t.1) == (value, axes))
            .map(|t| t.2);
        let value = match known {
            Some(turned) => turned,
            None => {
                let turned = self.push(name, Op::Transpose(axes), &[value], Vec::new())?;
                self.turned.push((value, axes, turned));
                turned
            }
        };
        Ok(Live {
            value,
            dims,
            kind: live.kind,
        })
    }

    /// A constant's number for each element of a value (one for all of them, if it has one).
    pub(super) fn against(&self, live: &Live, constant: &Constant) -> Result<Vec<f64>, String> {
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
                "it would repeat the value"
            };
            format!(
                "a constant of sizes {:?} does not go with a value of {}: {why}",
                constant.dims,
                live.shown()
            )
        })?;
        Ok(at.into_iter().map(|i| numbers[i]).collect())
    }

    /// Sizes behind the axis of the records that a list of sizes asks for; `-1` is what is left, 0
    /// (unless `zero`) what was there.
    pub(super) fn reshape(
        &self,
        live: &Live,
        target: &[Int],
        zero: bool,
    ) -> Result<Vec<usize>, String> {
        let asked = || {
            let sizes: Vec<String> = target
                .iter()
                .map(|i| match i {
                    Int::Known(i) => i.to_string(),
                    Int::Records => "N".into(),
                })
                .collect();
            format!("[{}]", sizes.join(", "))
        };
        let len = live.len();
        let mixes = || {
            format!(
                "{} to {}: the first size must stay that of the records",
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
                return Err(format!("{} does not divide into {}", live.shown(), asked()));
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

    /// The two axes around one, for operations along it: sizes before, along, behind.
    pub(super) fn around(live: &Live, axis: usize) -> Shape {
        let product = |d: &[usize]| d.iter().product();
        Shape {
            c: product(&live.dims[..axis]),
            h: live.dims[axis],
            w: product(&live.dims[axis + 1..]),
        }
    }
}

/// The first of elements that stand side by side, if they do.
pub(super) fn run(at: &[usize]) -> Option<usize> {
    let first = *at.first()?;
    at.iter()
        .copied()
        .eq(first..first + at.len())
        .then_some(first)
}

/// The different ones among one number for all elements of a value, or one for each, and where they
/// belong.
pub(super) fn per_element(numbers: Vec<f64>, live: &Live) -> (Vec<f64>, RowMap) {
    if numbers.len() == 1 {
        (numbers, RowMap::of_all(live.len()))
    } else {
        compressed(numbers, &live.dims)
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
        let live = Live {
            value: 0,
            dims: vec![4],
            kind: Element::F32,
        };
        let reshape = |sizes: [i64; 3]| b.reshape(&live, &sizes.map(Int::Known), false);
        assert_eq!(reshape([0, 2, 2]), Ok(vec![2, 2]));
        // 2^64 + 4 values.
        assert!(reshape([0, (1 << 62) + 1, 4]).is_err());
    }
}
