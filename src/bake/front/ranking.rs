//! Finds the largest elements along an axis, and picks elements by indices that are computed at run
//! time.

use super::builder::Builder;
use super::constant::{ConstantTensor, Element};
use super::elementwise::{self, Comparison, Operand, compared, constant_value};
use super::operations::{self, Reduction};
use super::products;
use super::value::Live;
use crate::ir::op::Arithmetic;

/// Makes a constant of `factor` · i + `summand` for i = 0, 1, … along axis `a` of `x`. Its other
/// axes have size 1.
fn counted(x: &Live, a: usize, factor: f64, summand: f64) -> ConstantTensor {
    let whole = a + usize::from(x.records.is_some_and(|r| r <= a));
    let mut dims = vec![1; x.rank() - whole];
    dims[0] = x.dims[a];
    let numbers = (0..x.dims[a]).map(|i| factor * i as f64 + summand);
    ConstantTensor::floats(dims, numbers.collect())
}

/// Finds the index of the largest element along axis `a`, which stays with size 1. Among equal
/// elements it is the first, or the last if `last` is true.
pub(super) fn index_of_largest(
    b: &mut Builder,
    name: &str,
    x: &Live,
    a: usize,
    last: bool,
) -> Result<Live, String> {
    let n = x.dims[a] as f64;
    let most = operations::reduce(b, name, x, vec![a], Reduction::Max, true)?;
    let (of, most) = (Operand::Live(x), Operand::Live(&most));
    let equal = compared(b, name, Comparison::GreaterOrEqual, of, most)?;
    // Each element that equals the maximum is marked with a number that grows towards the wanted
    // end. The maximum of these numbers then gives the index.
    let weights = match last {
        true => counted(x, a, 1.0, 1.0),
        false => counted(x, a, -1.0, n),
    };
    let (equal, of) = (numbers(equal), Arithmetic::Multiply);
    let found = operations::with_constant(b, name, of, &equal, &weights, false)?;
    let best = operations::reduce(b, name, &found, vec![a], Reduction::Max, true)?;
    let index = match last {
        true => b.scale(name, &best, &[1.0], &[-1.0])?,
        false => b.scale(name, &best, &[-1.0], &[n])?,
    };
    Ok(Live {
        kind: Element::I64,
        ..index
    })
}

/// Returns 1 where the position along axis `a` of `x` equals `index`, else 0. `index` has size 1
/// along that axis.
pub(super) fn marked(
    b: &mut Builder,
    name: &str,
    x: &Live,
    index: &Live,
    a: usize,
) -> Result<Live, String> {
    let (index, places) = (Operand::Live(index), counted(x, a, 1.0, 0.0));
    compared(
        b,
        name,
        Comparison::Equal,
        index,
        Operand::Constant(&places),
    )
}

/// Returns two orders of axes. The first moves axis `a` to the end, the second moves it back.
fn to_end(rank: usize, a: usize) -> [Vec<usize>; 2] {
    let there: Vec<usize> = (0..rank).filter(|&i| i != a).chain([a]).collect();
    let back = (0..rank)
        .map(|i| there.iter().position(|&t| t == i).unwrap_or(i))
        .collect();
    [there, back]
}

/// The most pairs of elements that a sorting or picking node may compare for one record.
const MOST_PAIRS: usize = 1 << 24;

/// Returns an error for more than [`MOST_PAIRS`], or if axis `a` is in front of the axis of the
/// records.
fn check(x: &Live, a: usize, pairs: usize) -> Result<(), String> {
    if pairs > MOST_PAIRS {
        return Err(format!(
            "{pairs} pairs of elements would be compared along axis {a} of {}: at most \
             {MOST_PAIRS} are supported",
            x.shown()
        ));
    }
    match x.records.is_some_and(|r| r > a) {
        true => Err(format!(
            "axis {a} of {} is in front of the axis of the records",
            x.shown()
        )),
        false => Ok(()),
    }
}

/// Changes the type of truth values, which are 1 or 0, to float. No node is needed.
fn numbers(truth: Live) -> Live {
    Live {
        kind: Element::F32,
        ..truth
    }
}

/// Returns the rank of each element along the last axis: the number of elements that come before it
/// in descending order. Of equal elements the earlier comes first. `own` has the sizes […, n, 1],
/// and `other` has […, 1, n].
fn ranks(b: &mut Builder, name: &str, [own, other]: [&Live; 2], n: usize) -> Result<Live, String> {
    let (own, other) = (Operand::Live(own), Operand::Live(other));
    let above = compared(b, name, Comparison::Greater, other, own)?;
    let from = compared(b, name, Comparison::GreaterOrEqual, other, own)?;
    let triangle = |of: fn(usize, usize) -> bool| {
        let all = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
        let numbers = all.map(|(i, j)| f64::from(u8::from(of(i, j)))).collect();
        ConstantTensor::floats(vec![n, n], numbers)
    };
    let (earlier, later) = (triangle(|i, j| j < i), triangle(|i, j| j > i));
    let mut times = |x: &Live, c: &ConstantTensor| {
        let x = Operand::Live(x);
        elementwise::arithmetic(b, name, Arithmetic::Multiply, x, Operand::Constant(c))
    };
    let (equal, above) = (times(&from, &earlier)?, times(&above, &later)?);
    let before = operations::combined(b, name, Arithmetic::Add, &equal, &above)?;
    // Sums of ones are exact in f32, so each rank is a whole number.
    operations::product(b, name, &numbers(before), vec![1.0; n], 1)
}

/// Finds the `count` largest elements along axis `a`, in descending order, and their indices. Of
/// equal elements the earlier comes first. If `largest` is false, finds the smallest in ascending
/// order.
pub(super) fn top(
    b: &mut Builder,
    name: &str,
    x: &Live,
    a: usize,
    count: usize,
    largest: bool,
) -> Result<[Live; 2], String> {
    let n = x.dims[a];
    if count == 0 || count > n {
        return Err(format!("expected from 1 to {n} elements, found {count}"));
    }
    check(x, a, x.len().saturating_mul(n))?;
    let [there, back] = to_end(x.dims.len(), a);
    let last = b.transpose(name, x, &there)?;
    let signed = match largest {
        true => last.clone(),
        false => b.scale(name, &last, &[-1.0], &[0.0])?,
    };
    let ahead = &last.dims[..last.dims.len() - 1];
    let with = |v: &Live, sizes: [usize; 2]| v.with_dims([ahead, &sizes].concat());
    let ranks = ranks(b, name, [&with(&signed, [n, 1]), &with(&signed, [1, n])], n)?;
    let ranks = with(&ranks, [1, n]);
    let wanted = (0..count).map(|i| i as f64).collect();
    let wanted = ConstantTensor::floats(vec![count, 1], wanted);
    let (ranks, wanted) = (Operand::Live(&ranks), Operand::Constant(&wanted));
    let places = numbers(compared(b, name, Comparison::Equal, ranks, wanted)?);
    let values = products::of_matrices(b, name, &places, &with(&last, [n, 1]), false)?;
    let indices = (0..n).map(|i| i as f64).collect();
    let indices = operations::product(b, name, &places, indices, 1)?;
    let mut result = |v: Live, kind: Element| {
        let v = v.with_dims([ahead, &[count]].concat());
        let v = b.transpose(name, &v, &back)?;
        Ok::<Live, String>(Live { kind, ..v })
    };
    Ok([result(values, x.kind)?, result(indices, Element::I64)?])
}

/// Picks elements of `x` along axis `a` by indices that are computed at run time. `index` and the
/// result have the same sizes, equal to those of `x` except along axis `a`. An index out of range
/// gives 0.
pub(super) fn picked(
    b: &mut Builder,
    name: &str,
    x: Operand<'_>,
    index: &Live,
    a: usize,
) -> Result<Live, String> {
    let x = match x {
        Operand::Live(x) => x.clone(),
        Operand::Constant(c) => {
            let mut sizes = index.whole();
            let whole = a + usize::from(index.records.is_some_and(|r| r <= a));
            sizes[whole] = c.dims.get(whole).copied().unwrap_or(1);
            if index.records.is_some() || sizes != c.dims {
                return Err(format!(
                    "a constant of sizes {:?} with indices of {}",
                    c.dims,
                    index.shown()
                ));
            }
            constant_value(b, name, index, c)?
        }
    };
    let same = |(i, (x, at)): (usize, (&usize, &usize))| i == a || x == at;
    let fits = x.dims.len() == index.dims.len() && x.records == index.records;
    if !fits || !x.dims.iter().zip(&index.dims).enumerate().all(same) {
        return Err(format!(
            "values of {} and indices of {}: sizes do not match",
            x.shown(),
            index.shown()
        ));
    }
    let (n, count) = (x.dims[a], index.dims[a]);
    check(&x, a, index.len().saturating_mul(n))?;
    let [there, back] = to_end(x.dims.len(), a);
    let at = b.transpose(name, index, &there)?;
    let ahead = at.dims[..at.dims.len() - 1].to_vec();
    let with = |v: &Live, sizes: [usize; 2]| v.with_dims([&ahead[..], &sizes].concat());
    let at = with(&at, [count, 1]);
    let places = ConstantTensor::floats(vec![n], (0..n).map(|i| i as f64).collect());
    let hot = compared(
        b,
        name,
        Comparison::Equal,
        Operand::Live(&at),
        Operand::Constant(&places),
    )?;
    let hot = numbers(hot);
    let of = b.transpose(name, &x, &there)?;
    let found = products::of_matrices(b, name, &hot, &with(&of, [n, 1]), false)?;
    let found = found.with_dims([&ahead[..], &[count]].concat());
    let found = b.transpose(name, &found, &back)?;
    Ok(Live {
        kind: x.kind,
        ..found
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::graph::{Shape, Value};

    /// Builds a graph whose input is a matrix of two rows, and returns its result for `numbers`.
    fn computed(
        numbers: &[f64],
        build: impl FnOnce(&mut Builder, &Live) -> Result<Live, String>,
    ) -> Vec<f64> {
        let input = Value {
            name: "x".into(),
            shape: Shape::vector(numbers.len()),
        };
        let (mut b, _) = Builder::new(vec![input], None).unwrap();
        let x = Live::new(0, vec![2, numbers.len() / 2], Element::F32);
        let y = build(&mut b, &x).unwrap();
        let mut graph = b.draft.graph.clone();
        graph.outputs = vec![y.value].into();
        let weights = b.draft.rounded();
        let mut values = graph.evaluate(&weights, numbers.to_vec(), |_, _| ());
        values.swap_remove(y.value)
    }

    #[test]
    fn places_of_the_largest() {
        let x = [1.0, 5.0, 5.0, 2.0, -3.0, -7.0, -3.0, -9.0];
        let index = |last| computed(&x, |b, x| index_of_largest(b, "i", x, 1, last));
        assert_eq!(index(false), [1.0, 0.0]);
        assert_eq!(index(true), [2.0, 2.0]);
        let top = |largest, which: usize| {
            computed(&x, |b, x| Ok(top(b, "t", x, 1, 3, largest)?[which].clone()))
        };
        assert_eq!(top(true, 0), [5.0, 5.0, 2.0, -3.0, -3.0, -7.0]);
        assert_eq!(top(true, 1), [1.0, 2.0, 3.0, 0.0, 2.0, 1.0]);
        assert_eq!(top(false, 0), [1.0, 2.0, 5.0, -9.0, -7.0, -3.0]);
        assert_eq!(top(false, 1), [0.0, 3.0, 1.0, 3.0, 1.0, 0.0]);
        let picked = computed(&x, |b, x| {
            let index = index_of_largest(b, "i", x, 1, true)?;
            picked(b, "p", Operand::Live(x), &index, 1)
        });
        assert_eq!(picked, [5.0, -3.0]);
    }
}
