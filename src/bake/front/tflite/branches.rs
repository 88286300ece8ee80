//! TensorFlow Lite's operator `IF`. A condition that is known at build time selects one of two
//! subgraphs. Otherwise both subgraphs are computed, and the condition selects between their
//! outputs.
//!
//! Operators have no side effects, so the result is the same if the outputs of both subgraphs are
//! finite.

use super::ops::{self, Side};
use super::{Lowering, Operator, TfliteValue};
use crate::bake::Mistakes;
use crate::bake::front::builder::Builder;
use crate::bake::front::elementwise::{self, Operand};
use crate::bake::front::value::Live;
use std::collections::HashMap;

/// The schema's code of the operator `IF`.
pub(super) const IF: i32 = 118;

/// The most branches of `IF` that are computed. A damaged model may name a subgraph as its own
/// branch.
const MOST: usize = 256;

/// Computes the outputs of an `IF` operator from its operands. `None` after a mistake.
pub(super) fn choice(
    of: &Lowering<'_, '_>,
    operator: &Operator<'_>,
    operands: &[Option<TfliteValue>],
    builder: &mut Option<Builder>,
    (name, place): (&str, &str),
    mistakes: &mut Mistakes,
) -> Option<Vec<TfliteValue>> {
    let (condition, operands) = operands.split_first()?;
    // Field numbers of the schema's table `IfOptions`: 0 then_subgraph_index, 1
    // else_subgraph_index.
    let mut branch = |field: usize, mistakes: &mut Mistakes| {
        let i = operator.options.int(field, 0);
        let i = i.map_err(|e| mistakes.add(place, e)).ok()?;
        outputs(of, i, operands, builder, place, mistakes)
    };
    let condition = match condition {
        Some(TfliteValue::Constant(c)) if c.len() == 1 => {
            let taken = c.numbers().map(|n| n[0] != 0.0);
            let taken = taken.map_err(|e| mistakes.add(place, e)).ok()?;
            return branch(usize::from(!taken), mistakes);
        }
        Some(TfliteValue::Live(c)) if c.live.records.is_none() && c.live.len() == 1 => Live {
            dims: Vec::new(),
            ..c.live.clone()
        },
        _ => {
            let e = "expected a condition of one element that does not differ between records";
            mistakes.add(place, e);
            return None;
        }
    };
    let (taken, other) = (branch(0, mistakes)?, branch(1, mistakes)?);
    if taken.len() != other.len() {
        mistakes.add(place, "expected branches with the same number of outputs");
        return None;
    }
    let builder = builder.as_mut()?;
    let mut chosen = Vec::new();
    for (x, y) in taken.into_iter().zip(other) {
        let one = either(builder, name, &condition, [x, y]);
        chosen.push(one.map_err(|e| mistakes.add(place, e)).ok()?);
    }
    Some(chosen)
}

/// Builds the selection between the outputs of two branches by the condition.
fn either(
    b: &mut Builder,
    name: &str,
    condition: &Live,
    values: [TfliteValue; 2],
) -> Result<TfliteValue, String> {
    let mut side = |value| match value {
        TfliteValue::Live(turned) => ops::plain(b, name, &turned).map(Side::Live),
        TfliteValue::Constant(c) => Ok(Side::Constant((*c).clone())),
        TfliteValue::Class(_) => Err("expected outputs that are numbers, found classes".into()),
        TfliteValue::Unknown => Err("an output of a branch is not known".to_string()),
    };
    let [x, y] = values;
    let sides = [side(x)?, side(y)?];
    let [x, y] = sides.each_ref().map(Side::operand);
    elementwise::same_sizes(x, y)?;
    let live = elementwise::chosen(b, name, Operand::Live(condition), x, y)?;
    Ok(TfliteValue::Live(ops::straight(live)))
}

/// Computes the outputs of subgraph `i` with these operands as its inputs. `None` after a mistake.
fn outputs(
    of: &Lowering<'_, '_>,
    i: i32,
    operands: &[Option<TfliteValue>],
    builder: &mut Option<Builder>,
    place: &str,
    mistakes: &mut Mistakes,
) -> Option<Vec<TfliteValue>> {
    let Some(graph) = usize::try_from(i).ok().and_then(|i| of.all.get(i)) else {
        mistakes.add(place, format_args!("damaged: it has no subgraph {i}"));
        return None;
    };
    of.branches.set(of.branches.get() + 1);
    if mistakes.lines.len() > of.before || of.branches.get() > MOST + 1 {
        return None;
    }
    if of.branches.get() > MOST {
        mistakes.add(
            place,
            format_args!("expected at most {MOST} branches, found more"),
        );
        return None;
    }
    if graph.inputs.len() != operands.len() {
        let e = format!(
            "expected a branch with {} inputs, found {} in subgraph {i}",
            operands.len(),
            graph.inputs.len()
        );
        mistakes.add(place, e);
        return None;
    }
    if let Some(o) = graph.outputs.iter().find(|&&o| {
        graph
            .tensor(o)
            .is_some_and(|t| t.quantised.is_some() && !t.float())
    }) {
        let e = format!(
            "expected outputs of floats, found integers in {}",
            graph.name(*o)
        );
        mistakes.add(place, e);
        return None;
    }
    let mut known: HashMap<i32, TfliteValue> = graph
        .inputs
        .iter()
        .zip(operands)
        .map(|(&i, value)| (i, value.clone().unwrap_or(TfliteValue::Unknown)))
        .collect();
    let inner = Lowering { graph, ..*of };
    let needed = graph.needed(graph.outputs.iter().copied());
    inner.operators(&needed, builder, &mut known, mistakes);
    let value = |&o: &i32| match known.get(&o) {
        Some(value) => Some(value.clone()),
        None => {
            let constant = graph.tensor(o).filter(|t| t.known())?.constant();
            let constant = constant.map_err(|e| mistakes.add(place, e)).ok()?;
            Some(TfliteValue::Constant(constant.into()))
        }
    };
    graph.outputs.iter().map(value).collect()
}

/// Returns true if one of the operators is `IF`.
pub(super) fn chooses(operators: &[Operator<'_>]) -> bool {
    operators.iter().any(|o| o.code == IF)
}
