//! Matrix products of two tensors that are both computed from the record, and `Einsum`.

use super::builder::Builder;
use super::constant::{self, Element};
use super::operations;
use super::value::{Live, shape_of};
use crate::ir::op::Op;

/// Multiplies the matrices in the last two axes of `x` and `y`. If `transposed` is true, each
/// matrix of `y` is transposed. Axes in front are broadcast.
pub(super) fn of_matrices(
    b: &mut Builder,
    name: &str,
    x: &Live,
    y: &Live,
    transposed: bool,
) -> Result<Live, String> {
    let (x, y) = (
        operations::led(x, y.rank().max(2)),
        operations::led(y, x.rank().max(2)),
    );
    let meet = || {
        format!(
            "the product of values of {} and {}: sizes do not match",
            x.shown(),
            y.shown()
        )
    };
    let in_front = |v: &Live| v.records.is_none_or(|r| r + 2 < v.rank());
    if x.records != y.records || !in_front(&x) || !in_front(&y) {
        return Err(format!(
            "the product of values of {} and {} would mix records",
            x.shown(),
            y.shown()
        ));
    }
    let (&[ref ahead @ .., m, k], &[ref behind @ .., first, second]) = (&x.dims[..], &y.dims[..])
    else {
        return Err(meet());
    };
    let (inner, n) = if transposed {
        (second, first)
    } else {
        (first, second)
    };
    let groups = constant::together(ahead, behind).filter(|_| inner == k);
    let groups = groups.ok_or_else(meet)?;
    let count: usize = groups.iter().product();
    let result = |value: usize| Live {
        dims: [&groups[..], &[m, n]].concat(),
        kind: Element::F32,
        ..x.with_value(value)
    };
    // With a single matrix on the right, the rows of all left matrices form one tall matrix.
    if behind.iter().all(|&d| d == 1) && ahead == groups {
        let value = pushed(
            b,
            name,
            [(&x, (1, count * m, k)), (&y, (1, first, second))],
            transposed,
        )?;
        return Ok(result(value));
    }
    let whole = |b: &mut Builder, v: &Live, last: [usize; 2]| {
        let sizes = v.with_dims([&groups[..], &last].concat()).whole();
        operations::expanded(b, name, v, &sizes)
    };
    let (x, y) = (whole(b, &x, [m, k])?, whole(b, &y, [first, second])?);
    let value = pushed(
        b,
        name,
        [(&x, (count, m, k)), (&y, (count, first, second))],
        transposed,
    )?;
    Ok(result(value))
}

/// Adds a matrix product node. Each operand is first reshaped to the channels, rows and columns
/// given with it. Returns the index of the product.
fn pushed(
    b: &mut Builder,
    name: &str,
    of: [(&Live, (usize, usize, usize)); 2],
    transposed: bool,
) -> Result<usize, String> {
    let mut values = [0; 2];
    for (value, (live, (c, h, w))) in values.iter_mut().zip(of) {
        *value = b.shaped(name, live.value, shape_of(c, h, w))?;
    }
    b.push(name, Op::Product { transposed }, &values, Vec::new())
}

/// An equation of `Einsum`: a letter for each axis of the operands and of the result.
pub(super) struct Equation {
    pub(super) inputs: Vec<Vec<char>>,
    pub(super) output: Vec<char>,
}

impl Equation {
    /// Parses an equation such as `bij,bjk->bik`. Without an arrow, the result has the letters that
    /// occur once, in alphabetical order.
    pub(super) fn parse(text: &str) -> Result<Equation, String> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = text.split_once("->").unwrap_or((&text, ""));
        let inputs: Vec<Vec<char>> = left.split(',').map(|part| part.chars().collect()).collect();
        let mut output: Vec<char> = right.chars().collect();
        if !text.contains("->") {
            let once = |c: &char| left.matches(*c).count() == 1 && *c != ',';
            output = left.chars().filter(once).collect();
            output.sort_unstable();
        }
        let letters = inputs.iter().flatten().chain(&output);
        if letters.into_iter().any(|c| !c.is_ascii_alphabetic()) {
            return Err(format!("equation: expected letters, found \"{text}\""));
        }
        let twice = |list: &[char]| (1..list.len()).any(|i| list[..i].contains(&list[i]));
        if inputs.iter().any(|i| twice(i)) || twice(&output) {
            return Err(format!("equation: diagonals are not supported: \"{text}\""));
        }
        Ok(Equation { inputs, output })
    }

    /// Returns the size of the axis that each letter names. A letter of both operands is listed
    /// once.
    fn sizes(&self, operands: [&Live; 2]) -> Result<Vec<(char, usize)>, String> {
        let mut sizes = Vec::new();
        for (letters, live) in self.inputs.iter().zip(operands) {
            if letters.len() != live.dims.len() || live.records.is_some() {
                return Err(format!(
                    "equation: expected a value of {} axes, none of them that of the records, \
                     found {}: set all sizes for one record",
                    letters.len(),
                    live.shown()
                ));
            }
            for (&letter, &n) in letters.iter().zip(&live.dims) {
                match sizes.iter().find(|(known, _)| *known == letter) {
                    Some(&(_, other)) if other != n => {
                        return Err(format!(
                            "equation: {letter} has {other} elements in one operand and {n} in \
                             the other"
                        ));
                    }
                    Some(_) => {}
                    None => sizes.push((letter, n)),
                }
            }
        }
        Ok(sizes)
    }
}

/// Builds an `Einsum` of one operand: sums it over the letters that the result lacks.
pub(super) fn summed_alone(
    b: &mut Builder,
    name: &str,
    equation: &Equation,
    x: &Live,
) -> Result<Live, String> {
    let [letters] = &equation.inputs[..] else {
        return Err("equation: expected one operand".into());
    };
    if letters.len() != x.dims.len() || x.records.is_some() {
        return Err(format!(
            "equation: expected a value of {} axes, none of them that of the records, found {}: \
             set all sizes for one record",
            letters.len(),
            x.shown()
        ));
    }
    let gone = |i: &usize| !equation.output.contains(&letters[*i]);
    let axes: Vec<usize> = (0..letters.len()).filter(gone).collect();
    let rest: Vec<char> = letters
        .iter()
        .copied()
        .filter(|c| equation.output.contains(c))
        .collect();
    let sum = operations::reduce(b, name, x, axes, operations::Reduction::Sum, false)?;
    let place = |c: &char| rest.iter().position(|l| l == c);
    let order: Option<Vec<usize>> = equation.output.iter().map(place).collect();
    let order = order.ok_or("equation: the result has a letter that the operand has not")?;
    b.transpose(name, &sum, &order)
}

/// Builds an `Einsum` of two operands: sums of products, as a batched matrix product.
pub(super) fn summed(
    b: &mut Builder,
    name: &str,
    equation: &Equation,
    operands: [&Live; 2],
) -> Result<Live, String> {
    let [first, second] = &equation.inputs[..] else {
        return Err(format!(
            "equation: expected one or two operands, found {}",
            equation.inputs.len()
        ));
    };
    let sizes = equation.sizes(operands)?;
    let both = |c: &&char| first.contains(c) && second.contains(c);
    let stays = |c: &&char| equation.output.contains(c);
    let list = |of: &[char], keep: &dyn Fn(&&char) -> bool| -> Vec<char> {
        of.iter().filter(keep).copied().collect()
    };
    let groups = list(first, &|c| both(c) && stays(c));
    let terms = list(first, &|c| both(c) && !stays(c));
    let rows = list(first, &|c| !both(c));
    let columns = list(second, &|c| !both(c));
    if rows
        .iter()
        .chain(&columns)
        .any(|c| !equation.output.contains(c))
    {
        return Err(
            "equation: sums over one operand alone are not supported: use ReduceSum".into(),
        );
    }
    let size = |letters: &[char]| -> usize {
        let of = |c: &char| sizes.iter().find(|(l, _)| l == c).map_or(1, |&(_, n)| n);
        letters.iter().map(of).product()
    };
    let order = |letters: &[char], to: &[char]| -> Vec<usize> {
        to.iter()
            .filter_map(|c| letters.iter().position(|l| l == c))
            .collect()
    };
    let x = b.transpose(
        name,
        operands[0],
        &order(first, &[&groups[..], &rows, &terms].concat()),
    )?;
    let y = b.transpose(
        name,
        operands[1],
        &order(second, &[&groups[..], &terms, &columns].concat()),
    )?;
    let (g, m, k, n) = (size(&groups), size(&rows), size(&terms), size(&columns));
    let (x, y) = (x.with_dims(vec![g, m, k]), y.with_dims(vec![g, k, n]));
    let product = of_matrices(b, name, &x, &y, false)?;
    let all = [&groups[..], &rows, &columns].concat();
    let dims: Vec<usize> = all.iter().map(|&c| size(&[c])).collect();
    b.transpose(
        name,
        &product.with_dims(dims),
        &order(&all, &equation.output),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations() {
        let parsed = Equation::parse("bij, bjk -> bik").unwrap();
        assert_eq!(parsed.inputs, [vec!['b', 'i', 'j'], vec!['b', 'j', 'k']]);
        assert_eq!(parsed.output, ['b', 'i', 'k']);
        assert_eq!(Equation::parse("ij,jk").unwrap().output, ['i', 'k']);
        assert!(Equation::parse("...ij->ij").is_err());
        assert!(Equation::parse("ii->i").is_err());
    }
}
