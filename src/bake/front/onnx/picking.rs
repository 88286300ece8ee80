//! ONNX operations that search for elements or pick them by index: `ArgMax`, `TopK`,
//! `GatherElements`, `ScatterND` and others. Also the losses that are built from them.

use super::node::{OnnxNode, live};
use super::ops::NodeOutputs;
use super::values::operand;
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Element};
use crate::bake::front::elementwise::{self, Comparison, Operand, compared};
use crate::bake::front::operations::{self, Reduction};
use crate::bake::front::ranking;
use crate::bake::front::value::{Class, Live, ModelValue, axes, axis, inner_axis};
use crate::ir::op::{Arithmetic, OfChannels};

/// `ArgMax` and `ArgMin`. An `ArgMax` over all elements of a record becomes a predicted class, if
/// it selects the first of equal elements. All other results are tensors of indices.
pub(super) fn index(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let x = live(node, 0)?;
    let a = inner_axis(node.int("axis", 0), x)?;
    let last = node.int("select_last_index", 0) != 0;
    if node.op() == "ArgMax" && x.dims[a] == x.len() && !last {
        return Ok(vec![ModelValue::Class(Class {
            scores: x.value,
            labels: None,
        })]);
    }
    let x = match node.op() {
        "ArgMin" => b.scale(&node.name, x, &[-1.0], &[0.0])?,
        _ => x.clone(),
    };
    let index = ranking::index_of_largest(b, &node.name, &x, a, last)?;
    let index = match node.int("keepdims", 1) {
        0 => index.spliced(a, &[]),
        _ => index,
    };
    Ok(vec![ModelValue::Live(index)])
}

/// `Hardmax`: 1 at the first of the largest elements, 0 elsewhere.
pub(super) fn hardmax(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let (mut a, mut of) = (inner_axis(node.int("axis", -1), x)?, x.clone());
    if node.version < 13 {
        // Before operation set 13 the maximum is over `axis` and all axes behind it together.
        a = inner_axis(node.int("axis", 1), x)?;
        let behind = x.dims[a..].iter().product();
        of = x.with_dims([&x.dims[..a], &[behind]].concat());
    }
    let index = ranking::index_of_largest(b, &node.name, &of, a, false)?;
    let hot = ranking::marked(b, &node.name, &of, &index, a)?;
    Ok(x.with_value(hot.value))
}

/// `TopK`: the largest or smallest elements along an axis, and their indices.
pub(super) fn top(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let x = live(node, 0)?;
    let count = match node.int("k", 0) {
        0 => match node.needed(1, "a count")?.integers()?[..] {
            [k] => k,
            _ => return Err("k: expected one count".into()),
        },
        k => k,
    };
    let a = inner_axis(node.int("axis", -1), x)?;
    let count = usize::try_from(count).unwrap_or(0);
    let found = ranking::top(b, &node.name, x, a, count, node.int("largest", 1) != 0)?;
    Ok(found.map(ModelValue::Live).to_vec())
}

/// Flattens a tensor to one axis. A tensor with an axis of the records is an error.
fn list(x: &Live) -> Result<Live, String> {
    match x.records {
        None => Ok(x.with_dims(vec![x.len()])),
        Some(_) => Err(format!(
            "it would mix records of {}: set all sizes for one record",
            x.shown()
        )),
    }
}

/// Returns for each element of `index` a row-major position in a tensor of `sizes`. The element's
/// number is the coordinate along axis `a`. The other coordinates are those of the element's place
/// in `index`.
fn places(sizes: &[usize], index: &ConstantTensor, a: usize) -> Result<Vec<usize>, String> {
    if index.dims.len() != sizes.len() {
        return Err(format!(
            "expected indices of {} axes, found {}",
            sizes.len(),
            index.dims.len()
        ));
    }
    let along = axes(&index.integers()?, sizes[a])?;
    let place = |(i, along): (usize, usize)| {
        let (mut rest, mut at, mut stride) = (i, 0, 1);
        for (k, (&n, &of)) in index.dims.iter().zip(sizes).enumerate().rev() {
            let own = if k == a { along } else { rest % n };
            if own >= of {
                return Err(format!("indices of sizes {:?} for {sizes:?}", index.dims));
            }
            at += own * stride;
            (rest, stride) = (rest / n, stride * of);
        }
        Ok(at)
    };
    along.into_iter().enumerate().map(place).collect()
}

/// `GatherElements`: replaces each index by an element of the tensor. The index is that element's
/// coordinate along the axis. The other coordinates are the index's own.
pub(super) fn elements(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, index) = (operand(node, 0)?, operand(node, 1)?);
    match (x, index) {
        (x, Operand::Live(index)) => {
            let a = inner_axis(node.int("axis", 0), index)?;
            let depth = match x {
                Operand::Live(x) => x.dims.get(a).copied(),
                Operand::Constant(c) => c.dims.get(a).copied(),
            };
            let index = elementwise::from_front(b, &node.name, index, depth.unwrap_or(1) as f64)?;
            ranking::picked(b, &node.name, x, &index, a)
        }
        (Operand::Live(x), Operand::Constant(c)) => {
            let flat = list(x)?;
            let a = axis(node.int("axis", 0), x.rank())?;
            let at = places(&x.dims, c, a)?;
            let y = operations::along(b, &node.name, &flat, 0, &at)?;
            Ok(y.with_dims(c.dims.clone()))
        }
        _ => Err("expected a value computed from the record, found constants".into()),
    }
}

/// Finds the blocks of a tensor of `sizes` that the rows of `index` name. A row has coordinates
/// along the first axes. Its block has all elements along the other axes.
///
/// Returns the row-major position of each block's first element, and the number of elements of a
/// block.
fn blocks(sizes: &[usize], index: &ConstantTensor) -> Result<(Vec<usize>, usize), String> {
    let depth = index.dims.last().copied().unwrap_or(0);
    if depth == 0 || depth > sizes.len() {
        return Err(format!(
            "expected indices of 1 to {} axes, found sizes {:?}",
            sizes.len(),
            index.dims
        ));
    }
    let block: usize = sizes[depth..].iter().product();
    let first = |at: &[i64]| {
        let mut place = 0;
        for (&i, &n) in at.iter().zip(sizes) {
            place = place * n + axis(i, n)?;
        }
        Ok(place * block)
    };
    let firsts: Result<Vec<usize>, String> = index.integers()?.chunks(depth).map(first).collect();
    Ok((firsts?, block))
}

/// `GatherND`: picks the blocks of elements that the rows of the indices name ([`blocks`]). The
/// tensor and the indices share the first `batch_dims` axes.
pub(super) fn gather(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let index = node.needed(1, "indices")?;
    let (flat, batch) = (list(x)?, node.int("batch_dims", 0));
    let batch = usize::try_from(batch).unwrap_or(usize::MAX);
    if batch >= index.dims.len() || batch >= x.dims.len() {
        return Err(format!("batch_dims: {batch} are too many"));
    }
    let (ahead, sizes) = x.dims.split_at(batch);
    if index.dims[..batch] != *ahead {
        return Err(format!(
            "batch_dims: {} with indices {:?}: the first {batch} sizes differ",
            x.shown(),
            index.dims
        ));
    }
    let (several, each): (usize, usize) = (ahead.iter().product(), sizes.iter().product());
    let (mut at, mut block) = (Vec::new(), 1);
    let numbers = index.integers()?;
    for k in 0..several {
        let n = numbers.len() / several.max(1);
        let part = numbers[k * n..(k + 1) * n].to_vec();
        let part = ConstantTensor::ints(index.dims[batch..].to_vec(), part);
        let (firsts, size) = blocks(sizes, &part)?;
        block = size;
        at.extend(
            firsts
                .iter()
                .flat_map(|f| (0..size).map(move |i| k * each + f + i)),
        );
    }
    let depth = index.dims[index.dims.len() - 1];
    let y = operations::along(b, &node.name, &flat, 0, &at)?;
    let dims = [&index.dims[..index.dims.len() - 1], &sizes[depth..]].concat();
    debug_assert!(block == sizes[depth..].iter().product::<usize>());
    Ok(y.with_dims(dims))
}

/// `ScatterElements`, `Scatter` and `ScatterND`: returns a tensor in which the updates replace the
/// elements at the indices.
pub(super) fn scatter(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let reduction = node.text("reduction", "none");
    if reduction != "none" {
        return Err(format!("reduction: expected none, found {reduction}"));
    }
    let index = node.needed(1, "indices")?;
    let first = (0..3).find_map(|i| live(node, i).ok()).cloned();
    let first = first.ok_or("expected a value computed from the record, found constants")?;
    let mut whole = |i: usize| match operand(node, i)? {
        Operand::Live(x) => Ok(x.clone()),
        Operand::Constant(c) => elementwise::constant_value(b, &node.name, &first, c),
    };
    let (x, updates): (Live, Live) = (whole(0)?, whole(2)?);
    let at = match node.op() {
        "ScatterND" => {
            let (firsts, block) = blocks(&x.dims, &index)?;
            let all = firsts.iter().flat_map(|f| (0..block).map(move |i| f + i));
            all.collect()
        }
        _ => places(&x.dims, &index, axis(node.int("axis", 0), x.rank())?)?,
    };
    if at.len() != updates.len() {
        return Err(format!("{} places for {}", at.len(), updates.shown()));
    }
    // If two updates have the same position, the later one wins.
    let mut from: Vec<usize> = (0..x.len()).collect();
    for (i, &at) in at.iter().enumerate() {
        from[at] = x.len() + i;
    }
    let both = operations::concat(b, &node.name, &[list(&x)?, list(&updates)?], 0)?;
    let y = operations::along(b, &node.name, &both, 0, &from)?;
    Ok(y.with_dims(x.dims.clone()))
}

/// `Compress`: picks the elements along an axis for which a constant condition is true. Without an
/// axis, it picks from the flattened tensor.
pub(super) fn compress(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let x = live(node, 0)?;
    let condition = node.needed(1, "a condition")?.integers()?;
    let at: Vec<usize> = (0..condition.len())
        .filter(|&i| condition[i] != 0)
        .collect();
    let (x, a) = match node.has("axis") {
        true => (x.clone(), inner_axis(node.int("axis", 0), x)?),
        false => (list(x)?, 0),
    };
    if at.is_empty() || at.last().is_some_and(|&last| last >= x.dims[a]) {
        return Err(format!(
            "the condition selects {} of {} elements",
            at.len(),
            x.dims[a]
        ));
    }
    operations::along(b, &node.name, &x, a, &at)
}

/// `CenterCropPad`: cuts axes to the stated sizes, or pads them with zeros. Both ends change
/// equally, and an odd element is cut or added at the end.
pub(super) fn centred(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let mut x = live(node, 0)?.clone();
    let sizes = node.needed(1, "a shape")?.integers()?;
    let all: Vec<i64> = (0..x.rank() as i64).collect();
    let list = node.ints("axes").unwrap_or(&all).to_vec();
    if list.len() != sizes.len() {
        return Err(format!(
            "expected {} sizes, found {}",
            list.len(),
            sizes.len()
        ));
    }
    for (&along, &size) in list.iter().zip(&sizes) {
        let a = inner_axis(along, &x)?;
        let (n, size) = (x.dims[a], usize::try_from(size).unwrap_or(0));
        if size == 0 || size > operations::MOST {
            return Err(format!("expected sizes above 0, found {sizes:?}"));
        }
        if size <= n {
            let first = (n - size) / 2;
            let at: Vec<usize> = (first..first + size).collect();
            x = operations::along(b, &node.name, &x, a, &at)?;
        } else {
            let mut around = vec![operations::Around::NONE; x.dims.len()];
            let before = (size - n) / 2;
            around[a] = operations::Around {
                before,
                behind: size - n - before,
            };
            x = operations::pad(b, &node.name, &x, &around, 0.0)?;
        }
    }
    Ok(x)
}

/// `NegativeLogLikelihoodLoss` of `x`, the logarithms of probabilities. The second axis of `x` has
/// the classes.
pub(super) fn loss(b: &mut Builder, node: &OnnxNode<'_>, x: &Live) -> Result<Live, String> {
    let name = &node.name;
    let a = inner_axis(1, x)?;
    let classes = x.dims[a] as f64;
    let target = live(node, 1)?;
    let index = operations::squeezed("Unsqueeze", target, Some(&[1]))?;
    let found = ranking::picked(b, name, Operand::Live(x), &index, a)?;
    // The weight of each target. It is 0 for a target equal to `ignore_index`. `None` if all
    // weights are 1.
    let mut weight: Option<Live> = None;
    if let Some(c) = node.constant(2, "weights")? {
        let hot = elementwise::one_hot(b, name, target, (-1, classes), [0.0, 1.0])?;
        let hot = Live {
            kind: Element::F32,
            ..hot
        };
        let of = operations::product(b, name, &hot, c.numbers()?, 1)?;
        weight = Some(index.with_value(of.value));
    }
    if node.has("ignore_index") {
        let ignored = ConstantTensor::floats(vec![], vec![node.int("ignore_index", 0) as f64]);
        let (at, ignored) = (Operand::Live(&index), Operand::Constant(&ignored));
        let counts = compared(b, name, Comparison::NotEqual, at, ignored)?;
        weight = Some(match weight {
            Some(w) => operations::combined(b, name, Arithmetic::Multiply, &w, &counts)?,
            None => counts,
        });
    }
    let losses = b.scale(name, &found, &[-1.0], &[0.0])?;
    let weight = weight.map(|w| Live {
        kind: Element::F32,
        ..w
    });
    let losses = match &weight {
        Some(w) => operations::combined(b, name, Arithmetic::Multiply, &losses, w)?,
        None => losses,
    };
    let reduction = node.text("reduction", "mean");
    if reduction == "none" {
        return Ok(losses.spliced(a, &[]));
    }
    if losses.records.is_some() {
        return Err(format!("reduction: {reduction} would mix records"));
    }
    let mut sum = |x: &Live, of: Reduction| {
        let all = (0..x.dims.len()).collect();
        operations::reduce(b, name, x, all, of, false)
    };
    match (reduction, &weight) {
        ("sum", _) => sum(&losses, Reduction::Sum),
        ("mean", None) => sum(&losses, Reduction::Mean),
        ("mean", Some(w)) => {
            let (losses, weights) = (sum(&losses, Reduction::Sum)?, sum(w, Reduction::Sum)?);
            operations::combined(b, name, Arithmetic::Divide, &losses, &weights)
        }
        _ => Err(format!(
            "reduction: expected none, sum or mean, found {reduction}"
        )),
    }
}

/// `SoftmaxCrossEntropyLoss`: returns the loss and the logarithms of the probabilities.
pub(super) fn cross_entropy(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let x = live(node, 0)?;
    let a = inner_axis(1, x)?;
    let shape = Builder::around(x, a);
    let logarithms = operations::of_axis(b, &node.name, x, shape, OfChannels::LogSoftmax)?;
    let loss = loss(b, node, &logarithms)?;
    Ok([loss, logarithms].map(ModelValue::Live).to_vec())
}
