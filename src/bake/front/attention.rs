//! Attention and the rotary embedding of queries and keys, built from products, softmax,
//! element-wise operations and copies.

use super::builder::Builder;
use super::constant::{ConstantTensor, Element};
use super::elementwise::{self, MASKED, Operand};
use super::operations;
use super::products;
use super::value::Live;
use crate::ir::op::{Activation, Arithmetic, OfChannels};

/// The options of an attention node.
pub(super) struct Wishes {
    /// The factor for the products of queries and keys. `None` stands for 1 / √n, where n is the
    /// length of a query in one head.
    pub(super) scale: Option<f64>,
    /// True if a query must not attend to later keys.
    pub(super) causal: bool,
    /// A soft limit on the attention scores. A score x, with its mask, becomes cap · tanh(x / cap).
    /// `None` for no limit.
    pub(super) cap: Option<f64>,
    /// The number of heads of the queries, and that of the keys and values. It is used only if all
    /// heads share the last axis of their tensor.
    pub(super) heads: [usize; 2],
}

/// The mask of an attention node.
#[derive(Clone, Copy)]
pub(super) enum Mask<'m> {
    None,
    /// Numbers to add to the products of queries and keys.
    Summand(Operand<'m>),
    /// A truth value for each key, true if the query attends to it.
    Seen(Operand<'m>),
}

/// Keys and values of earlier places of the sequence (the cache). They are put in front of the new
/// keys and values. `None` without a cache.
pub(super) type Past<'p> = Option<[Operand<'p>; 2]>;

/// The results of an attention node.
pub(super) struct Attended {
    pub(super) result: Live,
    /// All keys and all values, with the earlier ones in front.
    pub(super) present: [Live; 2],
    /// The stages of the attention scores, in this order: the scaled products of queries and keys,
    /// then with the mask added, then limited by the cap, then after softmax.
    pub(super) products: [Live; 4],
}

/// Builds softmax(q · kᵀ · scale + mask) · v for each head. A cap limits the numbers in front of
/// the softmax. q, k and v have the axes [batch, head, place, number], or [batch, place, numbers of
/// all heads]. A place is a position in the sequence.
pub(super) fn attention(
    b: &mut Builder,
    name: &str,
    [q, k, v]: [&Live; 3],
    wishes: &Wishes,
    mask: Mask<'_>,
    past: Past<'_>,
) -> Result<Attended, String> {
    let joined = q.rank() == 3;
    let of = |b: &mut Builder, x: &Live, heads: usize| match joined {
        true => split(b, name, x, heads),
        false => Ok(x.clone()),
    };
    let [of_queries, of_keys] = wishes.heads;
    let q = of(b, q, of_queries)?;
    let (k, v) = (of(b, k, of_keys)?, of(b, v, of_keys)?);
    for x in [&q, &k, &v] {
        if x.rank() != 4 || x.records.is_some_and(|r| r != 0) {
            return Err(format!(
                "expected [N, heads, places, numbers] or [N, places, numbers], found {}",
                x.shown()
            ));
        }
    }
    // The index of the heads axis in `dims`, which leaves out the axis of the records.
    let at = usize::from(q.records.is_none());
    let before = match past {
        Some([past, _]) => sizes_of(past, &q)[at + 1],
        None => 0,
    };
    let (k, v) = match past {
        Some([of_k, of_v]) => (
            elementwise::joined(b, name, &[of_k, Operand::Live(&k)], at + 1)?,
            elementwise::joined(b, name, &[of_v, Operand::Live(&v)], at + 1)?,
        ),
        None => (k, v),
    };
    let present = [k.clone(), v.clone()];
    let [k, v] = [k, v].map(|x| repeated(b, name, &x, at, q.dims[at]));
    let (k, v) = (k?, v?);
    let scale = wishes.scale.unwrap_or(1.0 / (q.dims[at + 2] as f64).sqrt());
    let scaled = b.scale(name, &q, &[scale], &[0.0])?;
    let products = products::of_matrices(b, name, &scaled, &k, true)?;
    let masked = masked(b, name, &products, mask, wishes.causal.then_some(before))?;
    let limited = match wishes.cap {
        Some(cap) => {
            let x = b.scale(name, &masked, &[1.0 / cap], &[0.0])?;
            let x = b.activation(name, &x, Activation::Tanh)?;
            b.scale(name, &x, &[cap], &[0.0])?
        }
        None => masked.clone(),
    };
    let shape = Builder::around(&limited, limited.dims.len() - 1);
    let weights = operations::of_axis(b, name, &limited, shape, OfChannels::Softmax)?;
    let result = products::of_matrices(b, name, &weights, &v, false)?;
    let result = match joined {
        true => merged(b, name, &result, at)?,
        false => result,
    };
    Ok(Attended {
        result,
        present,
        products: [products, masked, limited, weights],
    })
}

/// Repeats each head of keys or values along the axis `at`, up to `heads`, the number of the
/// queries' heads.
fn repeated(
    b: &mut Builder,
    name: &str,
    x: &Live,
    at: usize,
    heads: usize,
) -> Result<Live, String> {
    let repeats = heads / x.dims[at].max(1);
    if repeats * x.dims[at] != heads {
        return Err(format!(
            "{heads} heads of queries are no multiple of {} of keys",
            x.dims[at]
        ));
    }
    let each: Vec<usize> = (0..heads).map(|i| i / repeats).collect();
    operations::along(b, name, x, at, &each)
}

/// Returns the sizes of an operand without the axis of the records. A constant is taken to have
/// that axis at the same index as the tensor `like`.
fn sizes_of(operand: Operand<'_>, like: &Live) -> Vec<usize> {
    match operand {
        Operand::Live(x) => x.dims.clone(),
        Operand::Constant(c) => {
            let mut dims = c.dims.clone();
            if let Some(r) = like.records.filter(|&r| r < dims.len()) {
                dims.remove(r);
            }
            dims
        }
    }
}

/// Splits heads: turns [batch, place, numbers of all heads] into [batch, head, place, number].
fn split(b: &mut Builder, name: &str, x: &Live, heads: usize) -> Result<Live, String> {
    let Some((&all, ahead)) = x.dims.split_last() else {
        return Err(format!("expected three axes, found {}", x.shown()));
    };
    if heads == 0 || all % heads != 0 {
        return Err(format!("{all} numbers are no multiple of {heads} heads"));
    }
    let split = x.with_dims([ahead, &[heads, all / heads]].concat());
    let n = split.dims.len();
    let order: Vec<usize> = (0..n - 3).chain([n - 2, n - 3, n - 1]).collect();
    b.transpose(name, &split, &order)
}

/// Merges heads: turns [batch, head, place, number] into [batch, place, numbers of all heads]. `at`
/// is the index of the heads axis.
fn merged(b: &mut Builder, name: &str, x: &Live, at: usize) -> Result<Live, String> {
    let order: Vec<usize> = (0..at).chain([at + 1, at, at + 2]).collect();
    let turned = b.transpose(name, x, &order)?;
    let [places, heads, numbers] = [at + 1, at, at + 2].map(|a| x.dims[a]);
    Ok(turned.with_dims([&x.dims[..at], &[places, heads * numbers]].concat()))
}

/// Adds the mask to the products of queries and keys. With `causal`, a query attends to no later
/// key, and `causal` is the number of earlier keys in the cache. `None` allows later keys.
fn masked(
    b: &mut Builder,
    name: &str,
    products: &Live,
    mask: Mask<'_>,
    causal: Option<usize>,
) -> Result<Live, String> {
    let keys = *products.dims.last().unwrap_or(&1);
    let queries = products.dims[products.dims.len() - 2];
    let mut x = products.clone();
    let add = |b: &mut Builder, x: &Live, y: Operand<'_>| {
        elementwise::arithmetic(b, name, Arithmetic::Add, Operand::Live(x), y)
    };
    match mask {
        Mask::None => {}
        Mask::Summand(m) => x = add(b, &x, m)?,
        Mask::Seen(Operand::Constant(c)) => {
            let numbers = c.numbers()?.into_iter();
            let numbers = numbers.map(|n| if n == 0.0 { MASKED } else { 0.0 });
            let c = ConstantTensor::floats(c.dims.clone(), numbers.collect());
            x = add(b, &x, Operand::Constant(&c))?;
        }
        Mask::Seen(Operand::Live(seen)) => {
            let summand = b.scale(name, seen, &[-MASKED], &[MASKED])?;
            x = add(b, &x, Operand::Live(&summand))?;
        }
    }
    if let Some(before) = causal {
        let hidden = |i: usize| (0..keys).map(move |j| if j > i + before { MASKED } else { 0.0 });
        let numbers = (0..queries).flat_map(hidden).collect();
        let c = ConstantTensor::floats(vec![queries, keys], numbers);
        x = add(b, &x, Operand::Constant(&c))?;
    }
    Ok(Live {
        kind: Element::F32,
        ..x
    })
}

/// Applies a rotary embedding along the last axis: turns pairs (x, y) of numbers into (x · cos − y
/// · sin, x · sin + y · cos). `cos` and `sin` have one number for each pair.
///
/// Only the first `turned` numbers are rotated. If `interleaved` is true, neighbours form a pair.
/// Otherwise the two numbers of a pair are `turned` / 2 apart.
pub(super) fn rotary(
    b: &mut Builder,
    name: &str,
    x: &Live,
    [cos, sin]: [Operand<'_>; 2],
    turned: usize,
    interleaved: bool,
) -> Result<Live, String> {
    let (last, n) = (x.dims.len() - 1, x.dims[x.dims.len() - 1]);
    let half = turned / 2;
    let place = |i: usize, second: usize| match interleaved {
        true => 2 * i + second,
        false => i + second * half,
    };
    let part = |b: &mut Builder, second: usize| {
        let at: Vec<usize> = (0..half).map(|i| place(i, second)).collect();
        operations::along(b, name, x, last, &at)
    };
    let (first, second) = (part(b, 0)?, part(b, 1)?);
    let mut times = |x: &Live, y: Operand<'_>| {
        elementwise::arithmetic(b, name, Arithmetic::Multiply, Operand::Live(x), y)
    };
    let [xc, xs] = [times(&first, cos)?, times(&first, sin)?];
    let [yc, ys] = [times(&second, cos)?, times(&second, sin)?];
    let real = operations::combined(b, name, Arithmetic::Subtract, &xc, &ys)?;
    let imaginary = operations::combined(b, name, Arithmetic::Add, &xs, &yc)?;
    let both = operations::concat(b, name, &[real, imaginary], last)?;
    // For each number of the result, its index in `both`.
    let mut back = vec![0; turned];
    for i in 0..half {
        back[place(i, 0)] = i;
        back[place(i, 1)] = half + i;
    }
    let result = operations::along(b, name, &both, last, &back)?;
    if turned == n {
        return Ok(result);
    }
    let rest: Vec<usize> = (turned..n).collect();
    let rest = operations::along(b, name, x, last, &rest)?;
    operations::concat(b, name, &[result, rest], last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::graph::{Shape, Value};

    /// Compares causal attention with the same formula in plain loops.
    #[test]
    fn a_query_sees_no_later_key() {
        let (places, numbers) = (3, 2);
        let shape = Shape::vector(3 * places * numbers);
        let input = Value {
            name: "x".into(),
            shape,
        };
        let (mut b, _) = Builder::new(vec![input], None).unwrap();
        let all = Live::new(0, vec![3, places, numbers], Element::F32);
        let parts: Vec<Live> = (0..3)
            .map(|i| {
                let part = operations::along(&mut b, "p", &all, 0, &[i]).unwrap();
                part.with_dims(vec![1, places, numbers])
            })
            .collect();
        let wishes = Wishes {
            scale: None,
            causal: true,
            cap: None,
            heads: [1, 1],
        };
        let qkv = [&parts[0], &parts[1], &parts[2]];
        let found = attention(&mut b, "a", qkv, &wishes, Mask::None, None).unwrap();
        let mut graph = b.draft.graph.clone();
        graph.outputs = vec![found.result.value].into();
        let x: Vec<f64> = (0..shape.len()).map(|i| (i as f64 * 0.7).sin()).collect();
        let weights = b.draft.rounded();
        let mut values = graph.evaluate(&weights, x.clone(), |_, _| ());
        let found = values.swap_remove(found.result.value);
        let at = |part: usize, p: usize, i: usize| x[(part * places + p) * numbers + i];
        for p in 0..places {
            let product = |k: usize| (0..numbers).map(|i| at(0, p, i) * at(1, k, i)).sum::<f64>();
            let power = |k: usize| (product(k) / 2f64.sqrt()).exp();
            let sum: f64 = (0..=p).map(power).sum();
            for i in 0..numbers {
                let expected: f64 = (0..=p).map(|k| power(k) / sum * at(2, k, i)).sum();
                let y = found[p * numbers + i];
                assert!((y - expected).abs() < 1e-6, "{y} {expected}");
            }
        }
    }
}
