//! A network as the program knows it: sizes and meanings; the weights are constants beside it.

use crate::ir::graph::{Graph, Shape, Value};
pub(crate) use crate::ir::op::Activation;
use crate::ir::op::Op;
use std::borrow::Cow;
use std::fmt::Write;

/// What the last values of the network mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One class: the arg-max.
    Classes,
    /// One value: class 1 above the threshold.
    Binary,
    /// Several independent yes/no values.
    Multilabel,
    /// Numbers, no class.
    Values,
}

impl Kind {
    /// The name in network files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Classes => "classes",
            Kind::Binary => "binary",
            Kind::Multilabel => "multilabel",
            Kind::Values => "values",
        }
    }
}

/// How probabilities (or, for `values`, outputs) follow from the last values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalActivation {
    /// e^x / Σ e^x
    Softmax,
    /// The sigmoid of each value.
    Sigmoid,
    /// The tanh of each value.
    Tanh,
    /// The values themselves.
    None,
}

impl FinalActivation {
    /// The name in network files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FinalActivation::Softmax => "softmax",
            FinalActivation::Sigmoid => "sigmoid",
            FinalActivation::Tanh => "tanh",
            FinalActivation::None => "none",
        }
    }

    /// Applies the function to the last values of one record, in float64. They are finite.
    pub(crate) fn apply(self, values: &mut [f64]) {
        match self {
            FinalActivation::Softmax => {
                let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                values.iter_mut().for_each(|v| *v = libm::exp(*v - max));
                let sum: f64 = values.iter().sum();
                values.iter_mut().for_each(|v| *v /= sum);
            }
            FinalActivation::Sigmoid => values.iter_mut().for_each(|v| *v = Activation::Sigmoid.apply(*v)),
            FinalActivation::Tanh => values.iter_mut().for_each(|v| *v = libm::tanh(*v)),
            FinalActivation::None => {}
        }
    }
}

/// The meaning of the last values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Output {
    /// What they are.
    pub(crate) kind: Kind,
    /// From values to probabilities (or outputs).
    pub(crate) activation: FinalActivation,
    /// Probability above which a class of `Binary` and `Multilabel` is given.
    pub(crate) threshold: f64,
}

/// How a raw input becomes the network's input, in float64, before rounding to f32. One entry for all features or one
/// per feature.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Transform {
    /// The network takes the input as it is (or the scaling is folded into the first layer).
    Identity,
    /// x·scale + offset
    ScaleOffset {
        /// Factors.
        scale: Cow<'static, [f64]>,
        /// Summands.
        offset: Cow<'static, [f64]>,
    },
    /// (x − mean) / std
    MeanStd {
        /// Means.
        mean: Cow<'static, [f64]>,
        /// Standard deviations, none 0.
        std: Cow<'static, [f64]>,
    },
}

impl Transform {
    /// The network's input for raw value `x` of feature `i`.
    pub(crate) fn apply(&self, i: usize, x: f64) -> f64 {
        let at = |v: &[f64]| v[if v.len() == 1 { 0 } else { i }];
        match self {
            Transform::Identity => x,
            Transform::ScaleOffset { scale, offset } => x * at(scale) + at(offset),
            Transform::MeanStd { mean, std } => (x - at(mean)) / at(std),
        }
    }

    /// The same as factor and summand of feature `i`: `apply(i, x) = x·factor + summand`.
    pub(crate) fn linear(&self, i: usize) -> (f64, f64) {
        let at = |v: &[f64]| v[if v.len() == 1 { 0 } else { i }];
        match self {
            Transform::Identity => (1.0, 0.0),
            Transform::ScaleOffset { scale, offset } => (at(scale), at(offset)),
            Transform::MeanStd { mean, std } => (1.0 / at(std), -at(mean) / at(std)),
        }
    }

    /// The raw value whose network input is `z`.
    pub(crate) fn invert(&self, i: usize, z: f64) -> f64 {
        let (factor, summand) = self.linear(i);
        (z - summand) / factor
    }
}

/// The order in which a record has the values of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum InputOrder {
    /// Channel by channel.
    #[default]
    Chw,
    /// Pixel by pixel, its channels side by side.
    Hwc,
}

impl InputOrder {
    /// Which element (in the order c, y, x) of the network's input value `i` of a record is.
    pub(crate) fn element(self, shape: Shape, i: usize) -> usize {
        match self {
            InputOrder::Chw => i,
            InputOrder::Hwc => shape.index(i % shape.c, i / shape.c / shape.w, i / shape.c % shape.w),
        }
    }
}

/// How weights are stored. Sums are of f32 either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Precision {
    /// Four bytes.
    #[default]
    F32,
    /// Two bytes, rounded to the nearest (`super::half`).
    F16,
    /// One byte: a whole number from −127 to 127 times the scale of its row (`super::scale`).
    I8,
}

impl Precision {
    /// All, the largest first.
    pub(crate) const ALL: [Precision; 3] = [Precision::F32, Precision::F16, Precision::I8];

    /// Its name in MORTONNET_WEIGHTS and `--weights`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::I8 => "i8",
        }
    }

    /// Reads a name.
    pub(crate) fn parse(name: &str) -> Option<Precision> {
        Precision::ALL.into_iter().find(|e| e.name() == name)
    }

    /// Bytes of a weight.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::F16 => 2,
            Precision::I8 => 1,
        }
    }
}

/// A network: what comes in, the layers, what goes out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Network {
    /// Its name, for people.
    pub(crate) name: Cow<'static, str>,
    /// Hash of everything the build read of it (hexadecimal).
    pub(crate) hash: Cow<'static, str>,
    /// Values of one input record.
    pub(crate) width: usize,
    /// Their order.
    pub(crate) order: InputOrder,
    /// What is computed, up to the last values. A final softmax, sigmoid or tanh is not in it: it belongs to [`Output`].
    pub(crate) graph: Graph,
    /// What the last values mean.
    pub(crate) output: Output,
    /// Names of the classes (or outputs); empty where none were given.
    pub(crate) labels: Cow<'static, [Cow<'static, str>]>,
    /// Names of the inputs; empty where none were given.
    pub(crate) features: Cow<'static, [Cow<'static, str>]>,
    /// What the reader does to every value (identity where the build folded it into the first layer).
    pub(crate) transform: Transform,
    /// The scaling that was folded into the first layer's weights, for `--info`.
    pub(crate) folded: bool,
    /// What weights were rounded to, whatever the plan stores them as.
    pub(crate) weights: Precision,
    /// The model's inputs, which stand one behind the other in a record; empty where it has one.
    pub(crate) inputs: Cow<'static, [Value]>,
    /// The model's outputs, which stand one behind the other in the last value; empty where it has one.
    pub(crate) outputs: Cow<'static, [Value]>,
}

impl Network {
    /// The shape of its input.
    pub(crate) fn input(&self) -> Shape {
        self.graph.values[self.graph.inputs[0]].shape
    }

    /// Values of a record after the last layer.
    pub(crate) fn outputs(&self) -> usize {
        self.graph.outputs.first().map_or(self.width, |&v| self.graph.values[v].shape.len())
    }

    /// The class of one record in float64: arg-max (ties to the lowest), or 0/1 by the threshold for `Binary`. `None`
    /// for the kinds without a single class.
    pub(crate) fn class(&self, scores: &[f64]) -> Option<u32> {
        match self.output.kind {
            Kind::Classes => Some(argmax(scores)),
            Kind::Binary => {
                let mut p = [scores[0]];
                self.output.activation.apply(&mut p);
                Some(u32::from(p[0] > self.output.threshold))
            }
            Kind::Multilabel | Kind::Values => None,
        }
    }

    /// `1×28×28-20×24×24-10 relu`: the shapes behind layers with weights, and the activations where they are all the same
    /// or listed otherwise.
    pub(crate) fn shape(&self) -> String {
        let mut sizes = vec![self.input().to_string()];
        let mut activations: Vec<&str> = Vec::new();
        for node in self.graph.nodes.iter() {
            match node.op {
                Op::Affine | Op::Convolution { .. } => {
                    sizes.push(self.graph.values[node.output].shape.to_string());
                }
                Op::Activation(a) => activations.push(a.name()),
                _ => {}
            }
        }
        activations.dedup();
        if activations.is_empty() {
            sizes.join("-")
        } else {
            format!("{} {}", sizes.join("-"), activations.join(","))
        }
    }
}

/// Inputs or outputs with their shapes: `a 3, b 1×8×8`.
pub(crate) fn named(values: &[Value]) -> String {
    let mut text = String::new();
    for v in values {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{} {}", v.name, v.shape);
    }
    text
}

/// Index of the largest value; the lowest of equal ones.
pub(crate) fn argmax(values: &[f64]) -> u32 {
    let mut best = 0;
    for (i, v) in values.iter().enumerate() {
        if *v > values[best] {
            best = i;
        }
    }
    best as u32
}
