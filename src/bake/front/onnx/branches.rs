//! ONNX's operation `If`. A condition that is known at build time selects one of the two graphs.
//! Otherwise both graphs are computed, and the condition selects between their outputs. The result
//! is the same, because nodes have no side effects.

use super::file::NodeRest;
use super::node::OnnxNode;
use super::{GraphPart, Lowering, initializers};
use crate::bake::Mistakes;
use crate::bake::front::elementwise::{self, Operand};
use crate::bake::front::value::{Live, ModelValue};

impl<'m> Lowering<'m, '_, '_> {
    /// Computes the outputs of an `If` node. `None` after a mistake.
    pub(super) fn choice(
        &mut self,
        node: &OnnxNode<'m>,
        rest: Option<&'m NodeRest>,
        place: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<ModelValue>> {
        let mut branch =
            |name: &str, mistakes: &mut Mistakes| self.branch(node, rest, name, place, mistakes);
        let condition = match node.input(0) {
            Some(ModelValue::Constant(c)) if c.len() == 1 => {
                let taken = c.numbers().map(|n| n[0] != 0.0);
                let taken = taken.map_err(|e| mistakes.add(place, e)).ok()?;
                let name = if taken { "then_branch" } else { "else_branch" };
                return branch(name, mistakes);
            }
            Some(ModelValue::Live(c)) if c.records.is_none() && c.len() == 1 => Live {
                dims: Vec::new(),
                ..c.clone()
            },
            _ => {
                let e = "expected a condition of one element that does not differ between records: \
                         set all sizes for one record";
                mistakes.add(place, e);
                return None;
            }
        };
        let taken = branch("then_branch", mistakes)?;
        let other = branch("else_branch", mistakes)?;
        if taken
            .iter()
            .chain(&other)
            .any(|v| matches!(v, ModelValue::Unknown))
        {
            let by = self.sizes_by;
            mistakes.add(
                place,
                format_args!(
                    "its condition is computed from the record, so both graphs must be supported: \
                     if an input decides it, make that a constant by {by}, in this form: \
                     \"NAME=NUMBER\""
                ),
            );
            return None;
        }
        if taken.len() != other.len() {
            mistakes.add(place, "expected branches with the same number of outputs");
            return None;
        }
        let builder = self.builder.as_mut()?;
        let mut outputs = Vec::new();
        for (x, y) in taken.iter().zip(&other) {
            let chosen = match (operand(x), operand(y)) {
                (Some(x), Some(y)) => elementwise::same_sizes(x, y).and_then(|()| {
                    let condition = Operand::Live(&condition);
                    elementwise::chosen(builder, &node.name, condition, x, y)
                }),
                _ => Err("expected outputs that are numbers, found classes".into()),
            };
            outputs.push(chosen.map_err(|e| mistakes.add(place, e)).ok()?);
        }
        Some(outputs.into_iter().map(ModelValue::Live).collect())
    }

    /// Computes the outputs of a graph in an attribute of `If`. This graph may read tensors of the
    /// graph around it. Its own names are not visible outside.
    fn branch(
        &mut self,
        node: &OnnxNode<'m>,
        rest: Option<&'m NodeRest>,
        name: &str,
        place: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<ModelValue>> {
        let attributes = node.proto.attribute.iter();
        let found = attributes
            .zip(&rest?.attributes)
            .find(|(a, _)| a.name.as_deref() == Some(name));
        let Some((Some(graph), rest)) = found.map(|(a, rest)| (a.g.as_ref(), rest)) else {
            mistakes.add(place, format_args!("expected the graph {name}, found none"));
            return None;
        };
        if !graph.input.is_empty() || rest.graph.sparse > 0 {
            mistakes.add(
                place,
                format_args!("{name}: expected a graph without inputs and sparse initialisers"),
            );
            return None;
        }
        let constants = initializers(graph, &rest.graph, place, &mut self.tensors, mistakes);
        let of_nodes = graph
            .node
            .iter()
            .flat_map(|n| &n.output)
            .map(String::as_str);
        let names: Vec<&str> = constants.keys().copied().chain(of_nodes).collect();
        let hidden: Vec<_> = names.iter().map(|&n| (n, self.known.remove(n))).collect();
        self.known.extend(constants);
        let wanted = || graph.output.iter().map(|o| o.name.as_deref().unwrap_or(""));
        let part = GraphPart {
            graph,
            rest: &rest.graph,
        };
        self.nodes(part, wanted(), mistakes);
        let value = |name| self.known.get(name).cloned().unwrap_or(ModelValue::Unknown);
        let outputs = wanted().map(value).collect();
        // In reverse, a name's first entry comes last. Only that entry has the tensor that the
        // branch hid.
        for (name, value) in hidden.into_iter().rev() {
            match value {
                Some(value) => self.known.insert(name, value),
                None => self.known.remove(name),
            };
        }
        Some(outputs)
    }
}

/// Returns a branch's output as an operand. `None` for a class, and for an output that is unknown
/// after a mistake.
fn operand(value: &ModelValue) -> Option<Operand<'_>> {
    match value {
        ModelValue::Live(live) => Some(Operand::Live(live)),
        ModelValue::Constant(c) => Some(Operand::Constant(c)),
        _ => None,
    }
}
