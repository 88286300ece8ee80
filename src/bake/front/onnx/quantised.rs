//! ONNX operations on quantized integers (`QLinearConv`, `QGemm`, …) and those of dynamic
//! quantization (`DynamicQuantizeLinear`, `MatMulInteger`, …).
//!
//! Such a node is computed as the operations that define it. `QLinearConv` is `DequantizeLinear` of
//! its operands, then `Conv`, then `QuantizeLinear`. So [`super::integers`] applies the same rules
//! to both forms of a model.
//!
//! The node is split while it is computed, not in the model's file. So no names need to be
//! invented, and messages name the node of the model. Scales of biases may be constants that other
//! nodes computed.

use super::node::{OnnxNode, live};
use super::ops::NodeOutputs;
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Element};
use crate::bake::front::elementwise::{self, math};
use crate::bake::front::operations::{self, Reduction, clip, combined};
use crate::bake::front::value::{Live, ModelValue};
use crate::ir::op::{Arithmetic, Math};
use rten_onnx::onnx::{AttributeProto, AttributeType, NodeProto};
use std::rc::Rc;

/// The operation set of ONNX Runtime's own operations.
const MICROSOFT: &str = "com.microsoft";

const POOL: &str = "auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides";
const CONV: &str = "auto_pad dilations group kernel_shape pads strides";

/// The operations that are split into several. An entry has the operation, its operation set and
/// its supported attributes.
pub(super) const OPS: [(&str, &str, &str); 19] = [
    ("ConvInteger", "", CONV),
    ("DequantizeLinear", MICROSOFT, "axis"),
    ("DynamicQuantizeLinear", "", ""),
    ("DynamicQuantizeMatMul", MICROSOFT, ""),
    ("MatMulInteger", "", ""),
    ("MatMulIntegerToFloat", MICROSOFT, ""),
    ("QGemm", MICROSOFT, "alpha transA transB"),
    ("QLinearAdd", MICROSOFT, ""),
    ("QLinearAveragePool", MICROSOFT, POOL),
    ("QLinearConcat", MICROSOFT, "axis"),
    ("QLinearConv", "", CONV),
    ("QLinearGlobalAveragePool", MICROSOFT, "channels_last"),
    ("QLinearLeakyRelu", MICROSOFT, "alpha"),
    ("QLinearMatMul", "", ""),
    ("QLinearMul", MICROSOFT, ""),
    ("QLinearSigmoid", MICROSOFT, ""),
    ("QLinearSoftmax", MICROSOFT, "axis opset"),
    ("QLinearWhere", MICROSOFT, ""),
    ("QuantizeLinear", MICROSOFT, "axis"),
];

/// The positions of a quantized operation's inputs. An operand takes three inputs in a row: its
/// integers, their scale and their zero point.
struct Layout {
    /// The ONNX operation that computes the same on real numbers.
    real: &'static str,
    /// The index of the input that holds the first operand's integers.
    first: usize,
    /// The number of quantized operands.
    operands: usize,
    /// The index of the input that holds the scale of the result. The next input is its zero point.
    result: usize,
    /// The index of the input that holds the biases. Their scale is that of the sums of products.
    biases: Option<usize>,
}

impl Layout {
    /// Returns the positions of a node's inputs. `None` if its operation is not in this list.
    fn of(node: &OnnxNode<'_>) -> Option<Layout> {
        let layout = |real, first, operands, result| Layout {
            real,
            first,
            operands,
            result,
            biases: None,
        };
        Some(match node.op() {
            "QLinearConv" => Layout {
                biases: Some(8),
                ..layout("Conv", 0, 2, 6)
            },
            "QGemm" => Layout {
                biases: Some(6),
                ..layout("Gemm", 0, 2, 7)
            },
            "QLinearMatMul" => layout("MatMul", 0, 2, 6),
            "QLinearAdd" => layout("Add", 0, 2, 6),
            "QLinearMul" => layout("Mul", 0, 2, 6),
            "QLinearWhere" => layout("Where", 1, 2, 7),
            "QLinearConcat" => layout("Concat", 2, (node.inputs.len().max(2) - 2).div_ceil(3), 0),
            "QLinearGlobalAveragePool" => layout("GlobalAveragePool", 0, 1, 3),
            "QLinearAveragePool" => layout("AveragePool", 0, 1, 3),
            "QLinearLeakyRelu" => layout("LeakyRelu", 0, 1, 3),
            "QLinearSigmoid" => layout("Sigmoid", 0, 1, 3),
            "QLinearSoftmax" => layout("Softmax", 0, 1, 3),
            _ => return None,
        })
    }
}

/// Integers of a quantized operand with their zero points. `None` stands for zero points of 0.
struct Integers {
    numbers: ModelValue,
    zero: Option<ModelValue>,
}

/// ONNX's code of the type FLOAT.
const FLOAT: i64 = 1;

const EARLIER: &str = "an earlier mistake leaves out its inputs";

/// Splits a quantized node into several operations and computes them.
pub(super) struct Parts<'p, 'n> {
    pub(super) builder: &'p mut Option<Builder>,
    pub(super) node: &'p OnnxNode<'n>,
    /// The most elements that all constants computed from now on may have together.
    pub(super) left: &'p mut usize,
    /// The version of ONNX's standard operation set.
    pub(super) version: i64,
}

/// True if a node must be split into operations by [`Parts::outputs`].
pub(super) fn in_parts(node: &OnnxNode<'_>) -> bool {
    let plain = ["DequantizeLinear", "QuantizeLinear"];
    let own = |(op, set, _): &(&str, &str, &str)| (*op, *set) == (node.op(), node.domain());
    OPS.iter().any(own) && !plain.contains(&node.op())
}

/// Makes an integer attribute for an operation into which a node is split.
fn attribute(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        i: Some(i),
        r#type: Some(AttributeType::INT),
        ..AttributeProto::default()
    }
}

fn constant(c: ConstantTensor) -> ModelValue {
    ModelValue::Constant(Rc::new(c))
}

/// Returns the number of axes of a tensor.
fn rank(value: &ModelValue) -> usize {
    match value {
        ModelValue::Constant(c) => c.dims.len(),
        ModelValue::Live(x) => x.rank(),
        _ => 0,
    }
}

/// Returns the element type of a tensor. A predicted class is an error.
fn kind(value: &ModelValue) -> Result<Element, String> {
    match value {
        ModelValue::Constant(c) => Ok(c.kind),
        ModelValue::Live(x) => Ok(x.kind),
        _ => Err("a predicted class cannot be the input of another operation".into()),
    }
}

/// Returns a constant with `n` elements. A constant of a single element is repeated.
fn filled(c: &ConstantTensor, n: usize) -> Rc<ConstantTensor> {
    Rc::new(match c.len() {
        1 if n > 1 => c.pick(vec![n], &vec![0; n]),
        _ => c.clone(),
    })
}

impl Parts<'_, '_> {
    /// Computes the outputs of the node.
    pub(super) fn outputs(&mut self) -> NodeOutputs {
        let one = |value: Result<ModelValue, String>| value.map(|v| vec![v]);
        match self.node.op() {
            "DynamicQuantizeLinear" => Ok(self.dynamic()?.to_vec()),
            "DynamicQuantizeMatMul" => one(self.dynamic_product()),
            "MatMulIntegerToFloat" => {
                let sums = self.sums("MatMul", self.integers(0, 4)?, self.integers(1, 5)?)?;
                let scale = self.input(2, "a scale of a")?;
                one(self.scaled(sums, scale, 3, 6))
            }
            op @ ("ConvInteger" | "MatMulInteger") => {
                let op = op.trim_end_matches("Integer");
                one(self.sums(op, self.integers(0, 2)?, self.integers(1, 3)?))
            }
            _ => one(self.quantised()),
        }
    }

    /// Returns input `i` of the node. A missing input is an error.
    fn input(&self, i: usize, what: &str) -> Result<ModelValue, String> {
        let found = self.node.input(i).cloned();
        found.ok_or_else(|| format!("input {i}: expected {what}, found nothing"))
    }

    /// Computes an operation of the standard set on these inputs. Returns its first output.
    fn part(
        &mut self,
        op: &str,
        attributes: Vec<AttributeProto>,
        inputs: Vec<Option<ModelValue>>,
    ) -> Result<ModelValue, String> {
        let name = &self.node.name;
        let proto = NodeProto {
            op_type: Some(op.into()),
            output: vec![name.clone()],
            attribute: attributes,
            ..NodeProto::default()
        };
        let node = OnnxNode {
            proto: &proto,
            name: name.clone(),
            inputs,
            version: match op {
                "Softmax" => self.node.int("opset", self.version),
                _ => self.version,
            },
            tensors: Vec::new(),
        };
        let outputs = super::compute(self.builder, &node, self.left)?;
        let first = outputs.into_iter().next();
        first.ok_or_else(|| EARLIER.into())
    }

    /// Computes a quantized operation: dequantizes its operands, computes on real numbers, and
    /// quantizes the result.
    fn quantised(&mut self) -> Result<ModelValue, String> {
        let node = self.node;
        let layout = Layout::of(node).ok_or("it is not supported")?;
        if node.int("channels_last", 0) != 0 {
            return Err("channels_last: expected 0, found 1: quantise the model anew".into());
        }
        let mut inputs = Vec::new();
        inputs.extend((node.op() == "QLinearWhere").then(|| node.input(0).cloned()));
        for i in 0..layout.operands {
            inputs.push(Some(self.operand(&layout, i)?));
        }
        if let Some(biases) = layout.biases {
            inputs.push(self.biases(biases)?);
        }
        let own = |a: &&AttributeProto| {
            let name = a.name.as_deref().unwrap_or("");
            name != "channels_last" && name != "opset"
        };
        let attributes = node.proto.attribute.iter().filter(own).cloned().collect();
        let real = self.part(layout.real, attributes, inputs)?;
        // If `QGemm` has no scale for its result, the result is real numbers.
        if node.op() == "QGemm" && node.input(layout.result).is_none() {
            return Ok(real);
        }
        let integers = kind(&self.input(layout.first, "integers")?)?;
        let (scale, zero) = self.steps(layout.result, integers)?;
        let along = attribute("axis", rank(&real).max(2) as i64 - 2);
        let inputs = [real, scale, zero].map(Some).to_vec();
        self.part("QuantizeLinear", vec![along], inputs)
    }

    /// Returns the scales at input `i` and the zero points behind it, equally many of both. Missing
    /// zero points are 0, of the type `integers`.
    fn steps(&self, i: usize, integers: Element) -> Result<(ModelValue, ModelValue), String> {
        let scale = self.node.needed(i, "a scale")?;
        let zero = match self.node.constant(i + 1, "a zero point")? {
            Some(zero) => zero,
            None => Rc::new(ConstantTensor::ints(vec![], vec![0]).cast(integers)?),
        };
        let n = scale.len().max(zero.len());
        let (scale, zero) = (filled(&scale, n), filled(&zero, n));
        Ok((ModelValue::Constant(scale), ModelValue::Constant(zero)))
    }

    /// Dequantizes operand `i` of the node to real numbers.
    fn operand(&mut self, layout: &Layout, i: usize) -> Result<ModelValue, String> {
        let at = layout.first + 3 * i;
        let x = self.input(at, "integers")?;
        let (scale, zero) = self.steps(at + 1, kind(&x)?)?;
        // Only these operands may have several scales, along this axis.
        let last = rank(&x).max(1) as i64 - 1;
        let axis = match (layout.real, i) {
            ("Conv", 1) => Some(0),
            ("Gemm", 1) if self.node.int("transB", 0) != 0 => Some(0),
            ("Gemm" | "MatMul", 1) => Some(last),
            ("MatMul", 0) => Some(last.max(1) - 1),
            _ => None,
        };
        if let (None, ModelValue::Constant(c)) = (axis, &scale) {
            if c.len() != 1 {
                return Err(format!(
                    "input {}: expected one scale, found {}",
                    at + 1,
                    c.len()
                ));
            }
        }
        let along = attribute("axis", axis.unwrap_or(last));
        let inputs = [x, scale, zero].map(Some).to_vec();
        self.part("DequantizeLinear", vec![along], inputs)
    }

    /// Dequantizes the biases at input `i` to real numbers. A bias has the scale of the products:
    /// both operands' scales multiplied.
    fn biases(&mut self, i: usize) -> Result<Option<ModelValue>, String> {
        let Some(biases) = self.node.input(i).cloned() else {
            return Ok(None);
        };
        let (x, w) = (
            self.node.needed(1, "a scale")?,
            self.node.needed(4, "a scale")?,
        );
        let alpha = self.node.float("alpha", 1.0) as f32;
        let x = x.number()? as f32 * alpha;
        let products = w.numbers()?.into_iter().map(|w| f64::from(x * w as f32));
        let products: Vec<f64> = products.collect();
        let sums = ConstantTensor::floats(vec![products.len()], products);
        let along = attribute("axis", rank(&biases).max(1) as i64 - 1);
        let inputs = vec![Some(biases), Some(constant(sums)), None];
        self.part("DequantizeLinear", vec![along], inputs).map(Some)
    }

    /// Returns integers less their zero points, as floats. If there are several zero points, they
    /// belong to the indices along `axis`.
    fn whole(&mut self, of: Integers, axis: usize) -> Result<ModelValue, String> {
        let axes = rank(&of.numbers);
        let x = self.cast(of.numbers, FLOAT)?;
        let Some(mut zero) = of.zero else {
            return Ok(x);
        };
        if let ModelValue::Constant(c) = &zero {
            if c.len() == 1 {
                zero = constant(c.with_dims(vec![]));
            } else if c.dims.len() == 1 {
                let mut dims = vec![1; axes];
                *dims.get_mut(axis).ok_or("expected one zero point")? = c.len();
                zero = constant(c.with_dims(dims));
            }
        }
        let zero = self.cast(zero, FLOAT)?;
        self.part("Sub", Vec::new(), vec![Some(x), Some(zero)])
    }

    fn cast(&mut self, x: ModelValue, to: i64) -> Result<ModelValue, String> {
        self.part("Cast", vec![attribute("to", to)], vec![Some(x)])
    }

    /// Returns the integers at input `i` with their zero points at input `zero`.
    fn integers(&self, i: usize, zero: usize) -> Result<Integers, String> {
        Ok(Integers {
            numbers: self.input(i, "integers")?,
            zero: self.node.input(zero).cloned(),
        })
    }

    /// Computes sums of products of integers less their zero points, by `Conv` or `MatMul`.
    fn sums(&mut self, op: &str, x: Integers, y: Integers) -> Result<ModelValue, String> {
        // If there are several zero points, they belong to the rows of the first matrix, to the
        // columns of the second, or to the outputs of a convolution.
        let axes = match op {
            "Conv" => [1, 0],
            _ => [rank(&x.numbers).max(2) - 2, rank(&y.numbers).max(1) - 1],
        };
        let (x, y) = (self.whole(x, axes[0])?, self.whole(y, axes[1])?);
        let attributes = self.node.proto.attribute.clone();
        match self.part(op, attributes, vec![Some(x), Some(y)])? {
            ModelValue::Live(sums) => Ok(ModelValue::Live(Live {
                kind: Element::I32,
                ..sums
            })),
            ModelValue::Constant(c) => Ok(constant(c.cast(Element::I32)?)),
            other => Ok(other),
        }
    }

    /// Multiplies sums by both operands' scales: `scale` and the one at input `other`. Then adds
    /// the biases at input `biases`, if the node has them.
    fn scaled(
        &mut self,
        sums: ModelValue,
        scale: ModelValue,
        other: usize,
        biases: usize,
    ) -> Result<ModelValue, String> {
        if let ModelValue::Constant(c) = &scale {
            c.number().map_err(|e| format!("a_scale: {e}"))?;
        }
        let other = self.input(other, "a scale of b")?;
        let scales = self.part("Mul", Vec::new(), vec![Some(scale), Some(other)])?;
        let sums = self.cast(sums, FLOAT)?;
        let real = self.part("Mul", Vec::new(), vec![Some(sums), Some(scales)])?;
        match self.node.input(biases).cloned() {
            None => Ok(real),
            biases => self.part("Add", Vec::new(), vec![Some(real), biases]),
        }
    }

    /// `DynamicQuantizeLinear`: integers with a scale and a zero point. The scale and zero point
    /// follow from the smallest and largest number of each record.
    fn dynamic(&mut self) -> Result<[ModelValue; 3], String> {
        let (x, name) = (live(self.node, 0)?, &*self.node.name);
        let b = self.builder.as_mut().ok_or(EARLIER)?;
        if let (Some(_), Some(records @ 2..)) = (x.records, b.records) {
            return Err(format!("it has one scale for {records} records together"));
        }
        let axes: Vec<usize> = (0..x.dims.len()).collect();
        // With an axis of the records, each record has a scale of its own. The scale keeps x's
        // axes, so that it is broadcast over its record's numbers.
        let keep = x.records.is_some();
        let positive = clip(0.0, f64::INFINITY);
        let most = operations::reduce(b, name, x, axes.clone(), Reduction::Max, keep)?;
        let most = b.activation(name, &most, positive)?;
        let negative = b.scale(name, x, &[-1.0], &[0.0])?;
        let least = operations::reduce(b, name, &negative, axes, Reduction::Max, keep)?;
        let least = b.activation(name, &least, positive)?;
        let range = combined(b, name, Arithmetic::Add, &most, &least)?;
        // A product with 1/255 would round twice.
        let steps = ConstantTensor::floats(vec![], vec![255.0]);
        let steps = elementwise::constant_like(b, name, &range, &steps)?;
        let scale = quotient(b, name, &range, &steps)?;
        // If all numbers are 0, the scale is 1.
        let above = math(b, name, &scale, Math::Above)?;
        let none = elementwise::not(b, name, &above)?;
        let scale = combined(b, name, Arithmetic::Add, &scale, &none)?;
        let zero = quotient(b, name, &least, &scale)?;
        let zero = b.activation(name, &zero, clip(0.0, 255.0))?;
        let zero = Live {
            kind: Element::U8,
            ..math(b, name, &zero, Math::Round)?
        };
        let (scale, zero) = (ModelValue::Live(scale), ModelValue::Live(zero));
        let inputs = vec![
            self.node.inputs[0].clone(),
            Some(scale.clone()),
            Some(zero.clone()),
        ];
        let numbers = self.part("QuantizeLinear", Vec::new(), inputs)?;
        Ok([numbers, scale, zero])
    }

    /// `DynamicQuantizeMatMul`: quantizes a tensor dynamically, and multiplies it by quantized
    /// weights.
    fn dynamic_product(&mut self) -> Result<ModelValue, String> {
        let [numbers, scale, zero] = self.dynamic()?;
        let zero = Some(zero);
        let weights = self.integers(1, 3)?;
        let sums = self.sums("MatMul", Integers { numbers, zero }, weights)?;
        self.scaled(sums, scale, 2, 4)
    }
}

/// x / y, rounded to f32 as the engines do. The golden vectors round a product with a constant to
/// f32, but not a quotient. So this divides by 2y and doubles the quotient, which is exact.
fn quotient(b: &mut Builder, name: &str, x: &Live, y: &Live) -> Result<Live, String> {
    let double = b.scale(name, y, &[2.0], &[0.0])?;
    let half = combined(b, name, Arithmetic::Divide, x, &double)?;
    b.scale(name, &half, &[2.0], &[0.0])
}

/// `QuantizeLinear` with a scale that is computed from the record. There is one scale, or one for
/// each record.
pub(super) fn by_computed_scale(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, scale, name) = (live(node, 0)?, live(node, 1)?, &node.name);
    let zero = match node.input(2) {
        Some(_) => live(node, 2)?.clone(),
        None => return Err("expected a zero point, found nothing".into()),
    };
    for of in [scale, &zero] {
        if of.len() != 1 || of.records.is_some() && of.rank() != x.rank() {
            return Err(format!(
                "expected one scale and zero point, found {}: give scales of axes as constants",
                of.shown()
            ));
        }
    }
    let Some((low, high)) = zero.kind.range().filter(|&(low, _)| low >= -(1 << 15)) else {
        return Err(format!(
            "expected a zero point of at most 16 bits, found {}",
            zero.kind.name()
        ));
    };
    let steps = quotient(b, name, x, scale)?;
    let whole = math(b, name, &steps, Math::Round)?;
    let moved = combined(b, name, Arithmetic::Add, &whole, &zero)?;
    let y = b.activation(name, &moved, clip(low as f64, high as f64))?;
    Ok(Live {
        kind: zero.kind,
        ..y
    })
}
