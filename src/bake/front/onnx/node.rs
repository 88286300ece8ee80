//! A node of the model as operations see it: its inputs, and its attributes by name and type.

use crate::bake::front::constant::Constant;
use crate::bake::front::value::{Live, Value};
use rten_onnx::onnx::{AttributeProto, NodeProto};
use std::rc::Rc;

/// A node with what its inputs are.
pub(super) struct Node<'n> {
    /// The node.
    pub(super) proto: &'n NodeProto,
    /// Its name in the graph.
    pub(super) name: String,
    /// Its inputs; `None` where one is left out.
    pub(super) inputs: Vec<Option<Value>>,
    /// The version of its operation's set.
    pub(super) version: i64,
    /// Tensors among its attributes, with their names.
    pub(super) tensors: Vec<(String, Rc<Constant>)>,
}

impl Node<'_> {
    /// Its operation.
    pub(super) fn op(&self) -> &str {
        self.proto.op_type.as_deref().unwrap_or("")
    }

    /// The domain of its operation; empty for ONNX's own.
    pub(super) fn domain(&self) -> &str {
        super::set(self.proto)
    }

    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.proto
            .attribute
            .iter()
            .find(|a| a.name.as_deref() == Some(name))
    }

    /// Whether it has the attribute.
    pub(super) fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    /// An integer attribute. (A 0 may be left out of the file.)
    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |a| a.i.unwrap_or(0))
    }

    /// A float attribute.
    pub(super) fn float(&self, name: &str, default: f64) -> f64 {
        self.attribute(name)
            .map_or(default, |a| a.f.map_or(0.0, f64::from))
    }

    /// A text attribute.
    pub(super) fn text(&self, name: &str, default: &'static str) -> &str {
        self.attribute(name)
            .map_or(default, |a| a.s.as_deref().unwrap_or(""))
    }

    /// An attribute of several integers.
    pub(super) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|a| &*a.ints)
    }

    /// An attribute of several floats.
    pub(super) fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.attribute(name)
            .map(|a| a.floats.iter().map(|&f| f.into()).collect())
    }

    /// An attribute of several texts.
    pub(super) fn texts(&self, name: &str) -> Option<&[String]> {
        self.attribute(name).map(|a| &*a.strings)
    }

    /// A tensor attribute.
    pub(super) fn tensor(&self, name: &str) -> Option<Rc<Constant>> {
        self.tensors
            .iter()
            .find(|t| t.0 == name)
            .map(|t| t.1.clone())
    }

    /// Input `i`, if it is there.
    pub(super) fn input(&self, i: usize) -> Option<&Value> {
        self.inputs.get(i).and_then(Option::as_ref)
    }

    /// Whether it has an output `i`.
    pub(super) fn gives(&self, i: usize) -> bool {
        self.proto.output.get(i).is_some_and(|o| !o.is_empty())
    }

    /// Input `i` as a constant, if it is there.
    ///
    /// # Errors
    /// Of one that is computed of the network's input.
    pub(super) fn constant(&self, i: usize, what: &str) -> Result<Option<Rc<Constant>>, String> {
        match self.input(i) {
            None => Ok(None),
            Some(Value::Constant(c)) => Ok(Some(c.clone())),
            Some(_) => Err(format!(
                "expected {what} that is known at build time, found one that is computed"
            )),
        }
    }

    /// The same, which must be there.
    ///
    /// # Errors
    /// Of one that is not there, or computed of the network's input.
    pub(super) fn needed(&self, i: usize, what: &str) -> Result<Rc<Constant>, String> {
        self.constant(i, what)?
            .ok_or_else(|| format!("expected {what}, found nothing"))
    }

    /// The integers of attribute `name`, or where it became an input, of input `i`.
    ///
    /// # Errors
    /// Of an input that is no constant, or not of integers.
    pub(super) fn ints_of(&self, name: &str, i: usize) -> Result<Option<Vec<i64>>, String> {
        if let Some(ints) = self.ints(name) {
            return Ok(Some(ints.to_vec()));
        }
        self.constant(i, name)?.map(|c| c.integers()).transpose()
    }
}

/// The one input of a node, as a value that is computed.
///
/// # Errors
/// Of any other.
pub(super) fn live<'a>(node: &'a Node<'_>, i: usize) -> Result<&'a Live, String> {
    match node.input(i) {
        Some(Value::Live(live)) => Ok(live),
        Some(Value::Constant(_)) => Err(format!(
            "input {i}: expected one that is computed, found a constant"
        )),
        Some(Value::Class(_) | Value::Map(..) | Value::Flags(..)) => Err(format!(
            "input {i}: what is computed of classes cannot be computed with"
        )),
        Some(Value::Unknown) | None => Err(format!("input {i}: expected a value, found nothing")),
    }
}
