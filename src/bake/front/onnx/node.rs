//! A node of an ONNX model: its inputs, and its attributes by name and type.

use crate::bake::front::constant::ConstantTensor;
use crate::bake::front::value::{Live, ModelValue};
use rten_onnx::onnx::{AttributeProto, NodeProto};
use std::rc::Rc;

/// A node of an ONNX model with the tensors of its inputs.
pub(super) struct OnnxNode<'n> {
    pub(super) proto: &'n NodeProto,
    /// The name that the draft's nodes get for this ONNX node.
    pub(super) name: String,
    /// The tensors of the node's inputs. `None` stands for an input that is left out.
    pub(super) inputs: Vec<Option<ModelValue>>,
    /// The version of the operation set that the node's operation belongs to.
    pub(super) version: i64,
    /// The node's attributes that are tensors, by attribute name.
    pub(super) tensors: Vec<(String, Rc<ConstantTensor>)>,
}

impl OnnxNode<'_> {
    pub(super) fn op(&self) -> &str {
        self.proto.op_type.as_deref().unwrap_or("")
    }

    /// Returns the operation set of the node. It is empty for ONNX's standard set.
    pub(super) fn domain(&self) -> &str {
        super::set(self.proto)
    }

    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.proto
            .attribute
            .iter()
            .find(|a| a.name.as_deref() == Some(name))
    }

    /// True if the node has the attribute `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    /// Returns an integer attribute, or `default` if the node lacks it. An attribute without a
    /// number is 0, because files may leave out zeros.
    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |a| a.i.unwrap_or(0))
    }

    /// Returns a float attribute, or `default` if the node lacks it.
    pub(super) fn float(&self, name: &str, default: f64) -> f64 {
        self.attribute(name)
            .map_or(default, |a| a.f.map_or(0.0, f64::from))
    }

    /// Returns a text attribute, or `default` if the node lacks it.
    pub(super) fn text(&self, name: &str, default: &'static str) -> &str {
        self.attribute(name)
            .map_or(default, |a| a.s.as_deref().unwrap_or(""))
    }

    /// Returns an attribute that is a list of integers. `None` if the node lacks it.
    pub(super) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|a| &*a.ints)
    }

    /// Returns an attribute that is a list of floats. `None` if the node lacks it.
    pub(super) fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.attribute(name)
            .map(|a| a.floats.iter().map(|&f| f.into()).collect())
    }

    /// Returns an attribute that is a list of texts. `None` if the node lacks it.
    pub(super) fn texts(&self, name: &str) -> Option<&[String]> {
        self.attribute(name).map(|a| &*a.strings)
    }

    /// Returns an attribute that is a tensor. `None` if the node lacks it.
    pub(super) fn tensor(&self, name: &str) -> Option<Rc<ConstantTensor>> {
        self.tensors
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, tensor)| tensor.clone())
    }

    /// Returns the tensor of input `i`. `None` if the input is left out.
    pub(super) fn input(&self, i: usize) -> Option<&ModelValue> {
        self.inputs.get(i).and_then(Option::as_ref)
    }

    /// True if the model names output `i` of the node. Only a named output can be used.
    pub(super) fn gives(&self, i: usize) -> bool {
        self.proto.output.get(i).is_some_and(|o| !o.is_empty())
    }

    /// Returns input `i`, which must be a constant. `None` if the input is left out. `what` is its
    /// name in messages.
    pub(super) fn constant(
        &self,
        i: usize,
        what: &str,
    ) -> Result<Option<Rc<ConstantTensor>>, String> {
        match self.input(i) {
            None => Ok(None),
            Some(ModelValue::Constant(c)) => Ok(Some(c.clone())),
            Some(_) => Err(format!(
                "expected {what} that is a constant, found a value computed from the record"
            )),
        }
    }

    /// Returns input `i`, which must be a constant and must not be left out. `what` is its name in
    /// messages.
    pub(super) fn needed(&self, i: usize, what: &str) -> Result<Rc<ConstantTensor>, String> {
        self.constant(i, what)?
            .ok_or_else(|| format!("expected {what}, found nothing"))
    }

    /// Returns the integers of the attribute `name`, or of the constant input `i`. In newer
    /// operation sets the input replaces the attribute. `None` if the node has neither.
    pub(super) fn ints_of(&self, name: &str, i: usize) -> Result<Option<Vec<i64>>, String> {
        if let Some(ints) = self.ints(name) {
            return Ok(Some(ints.to_vec()));
        }
        self.constant(i, name)?.map(|c| c.integers()).transpose()
    }
}

/// Returns input `i` of a node. It is an error if that is not a tensor computed from the record.
pub(super) fn live<'a>(node: &'a OnnxNode<'_>, i: usize) -> Result<&'a Live, String> {
    match node.input(i) {
        Some(ModelValue::Live(live)) => Ok(live),
        Some(ModelValue::Constant(_)) => Err(format!(
            "input {i}: expected a value computed from the record, found a constant"
        )),
        Some(ModelValue::Class(_) | ModelValue::Map(..) | ModelValue::Flags(..)) => Err(format!(
            "input {i}: a predicted class cannot be the input of another operation"
        )),
        Some(ModelValue::Unknown) | None => {
            Err(format!("input {i}: expected a value, found nothing"))
        }
    }
}
