//! A network with the meaning of its inputs and outputs. The weights are kept beside it.

use crate::ir::graph::{Graph, Shape, Value};
pub(crate) use crate::ir::op::Activation;
use crate::ir::op::Op;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// The meaning of the network's last values, those in front of the final activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One value per class. The predicted class is the index of the largest value.
    Classes,
    /// A single value. The class is 1 if the probability computed from it is above the threshold,
    /// else 0.
    Binary,
    /// One value per label. A label applies if the probability computed from its value is above the
    /// threshold.
    Multilabel,
    /// Plain numbers, such as those of a regression. No class is predicted.
    Values,
}

impl Kind {
    /// The name of the kind in network files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Classes => "classes",
            Kind::Binary => "binary",
            Kind::Multilabel => "multilabel",
            Kind::Values => "values",
        }
    }
}

/// The function that turns the network's last values into probabilities. For [`Kind::Values`] it
/// gives the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalActivation {
    /// e^x / Σ e^x
    Softmax,
    Sigmoid,
    Tanh,
    None,
}

impl FinalActivation {
    /// The name of the function in network files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FinalActivation::Softmax => "softmax",
            FinalActivation::Sigmoid => "sigmoid",
            FinalActivation::Tanh => "tanh",
            FinalActivation::None => "none",
        }
    }

    /// Applies the function to the last values of one record, which are finite.
    pub(crate) fn apply(self, values: &mut [f64]) {
        match self {
            FinalActivation::Softmax => {
                let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                values.iter_mut().for_each(|v| *v = libm::exp(*v - max));
                let sum: f64 = values.iter().sum();
                values.iter_mut().for_each(|v| *v /= sum);
            }
            FinalActivation::Sigmoid => values
                .iter_mut()
                .for_each(|v| *v = Activation::Sigmoid.apply(*v)),
            FinalActivation::Tanh => values.iter_mut().for_each(|v| *v = libm::tanh(*v)),
            FinalActivation::None => {}
        }
    }
}

/// The meaning of the network's last values: their kind, the final activation, and a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Output {
    pub(crate) kind: Kind,
    pub(crate) activation: FinalActivation,
    /// The probability threshold. Class 1 of a binary network, or a label of a multilabel network,
    /// applies if its probability is above it.
    pub(crate) threshold: f64,
}

/// The scaling of raw inputs. It is computed in float64, and the result is rounded to f32. Each
/// list has either one entry for all features or one entry per feature.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Transform {
    /// The program does not scale inputs: the model has no scaling, or the build folded it into the
    /// first layer.
    Identity,
    /// The function x·scale + offset.
    ScaleOffset {
        scale: Cow<'static, [f64]>,
        offset: Cow<'static, [f64]>,
    },
    /// The function (x − mean) / std.
    MeanStd {
        mean: Cow<'static, [f64]>,
        /// Standard deviations, none of which is 0.
        std: Cow<'static, [f64]>,
    },
}

impl Transform {
    /// Returns the scaled value, the network's input, for the raw value `x` of feature `i`.
    pub(crate) fn apply(&self, i: usize, x: f64) -> f64 {
        let at = |v: &[f64]| v[if v.len() == 1 { 0 } else { i }];
        match self {
            Transform::Identity => x,
            Transform::ScaleOffset { scale, offset } => x * at(scale) + at(offset),
            Transform::MeanStd { mean, std } => (x - at(mean)) / at(std),
        }
    }

    /// Returns the factor and the summand of feature `i`, such that `apply(i, x) = x·factor +
    /// summand`.
    pub(crate) fn linear(&self, i: usize) -> (f64, f64) {
        let at = |v: &[f64]| v[if v.len() == 1 { 0 } else { i }];
        match self {
            Transform::Identity => (1.0, 0.0),
            Transform::ScaleOffset { scale, offset } => (at(scale), at(offset)),
            Transform::MeanStd { mean, std } => (1.0 / at(std), -at(mean) / at(std)),
        }
    }

    /// Returns the raw value of feature `i` whose scaled value is `z`.
    pub(crate) fn invert(&self, i: usize, z: f64) -> f64 {
        let (factor, summand) = self.linear(i);
        (z - summand) / factor
    }
}

/// The 8-bit integers of the input of a model file. Records of bytes are these integers.
///
/// A byte stands for one of 256 steps. The first step is the smallest integer of the model's type,
/// which is 0 or −128.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ByteInput {
    /// True if the model's integers are signed.
    pub(crate) signed: bool,
    /// The difference between the real numbers of neighbouring integers.
    pub(crate) scale: f32,
    /// The smallest integer less the zero point.
    pub(crate) first: f64,
}

impl ByteInput {
    /// The name of the model's type, for messages.
    pub(crate) fn name(self) -> &'static str {
        if self.signed { "int8" } else { "uint8" }
    }

    /// Returns the zero point of the model's integers.
    pub(crate) fn zero(self) -> f64 {
        let smallest = if self.signed { -128.0 } else { 0.0 };
        smallest - self.first
    }

    /// Returns the real number of a byte. `signed` is true for a byte from −128 to 127, and false
    /// for one from 0 to 255.
    pub(crate) fn real(self, byte: f64, signed: bool) -> f64 {
        let step = if signed { byte + 128.0 } else { byte };
        (step + self.first) * f64::from(self.scale)
    }
}

/// The order of an image's values in an input record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum InputOrder {
    /// Channel by channel.
    #[default]
    Chw,
    /// Pixel by pixel, each with the values of all channels.
    Hwc,
}

impl InputOrder {
    /// Returns the index in the network's input that value `i` of a record has. The network's input
    /// is in the order c, y, x.
    pub(crate) fn element(self, shape: Shape, i: usize) -> usize {
        match self {
            InputOrder::Chw => i,
            InputOrder::Hwc => {
                shape.index(i % shape.c, i / shape.c / shape.w, i / shape.c % shape.w)
            }
        }
    }
}

/// The number format of stored weights. Sums of products are always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Precision {
    #[default]
    F32,
    /// Half precision, rounded to nearest (`super::half`).
    F16,
    /// A whole number from −127 to 127, stored in a byte. The weight is this number times the scale
    /// of its row (`super::scale`).
    I8,
}

impl Precision {
    /// All number formats, from the largest to the smallest.
    pub(crate) const ALL: [Precision; 3] = [Precision::F32, Precision::F16, Precision::I8];

    /// The name of the format in `MORTONNET_WEIGHTS` and `--weights`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::I8 => "i8",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Precision> {
        Precision::ALL.into_iter().find(|e| e.name() == name)
    }

    /// The size of one weight in bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::F16 => 2,
            Precision::I8 => 1,
        }
    }
}

/// The largest size of raw inputs for which no sum in the network overflows f32.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Range {
    /// If no raw input has a larger absolute value than this, no sum overflows f32. `f32::MAX` if
    /// no sum ever overflows, 0 if no bound is known.
    pub(crate) up_to: f32,
    /// True if a score overflowed in trials with inputs a million times as large as the golden
    /// vectors. The build and `--selftest` then print the bound.
    pub(crate) near: bool,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.up_to {
            0.0 => f.write_str("it is not known from which size of inputs on sums overflow f32"),
            f32::MAX => f.write_str("no finite input makes a sum overflow f32"),
            up_to @ 0.001..1e6 => {
                write!(
                    f,
                    "no sum overflows f32 up to inputs of ±{up_to}; larger ones may be refused"
                )
            }
            up_to => {
                write!(
                    f,
                    "no sum overflows f32 up to inputs of ±{up_to:.1e}; larger ones may be refused"
                )
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Network {
    /// The network's name in messages.
    pub(crate) name: Cow<'static, str>,
    /// The SHA-256 of the network's description, its weights as stored and its golden vectors, in
    /// hexadecimal.
    pub(crate) hash: Cow<'static, str>,
    /// The number of values in an input record.
    pub(crate) width: usize,
    pub(crate) order: InputOrder,
    /// The operations up to the network's last values. A final softmax, sigmoid or tanh is not in
    /// the graph but in `output`.
    pub(crate) graph: Graph,
    pub(crate) output: Output,
    /// The names of the classes or outputs, for answers. Empty if the model gives none.
    pub(crate) labels: Cow<'static, [Cow<'static, str>]>,
    /// The names of the input values. Empty if the model gives none.
    pub(crate) features: Cow<'static, [Cow<'static, str>]>,
    /// The scaling that the program applies to every value of a record when it reads the record.
    pub(crate) transform: Transform,
    /// The integers that records of bytes are, in place of numbers. Their real numbers are scaled
    /// by `transform`. `None` for a model whose input is no 8-bit integers, and if the user states
    /// a scaling.
    pub(crate) bytes: Option<ByteInput>,
    /// True if the build folded the input scaling into the first layer. Only the text of `--info`
    /// uses this.
    pub(crate) folded: bool,
    /// The number format that the weights were rounded to. The plan may store the rounded weights
    /// in a format with more bits.
    pub(crate) weights: Precision,
    /// The allowed error of a score, as a multiple of `ops::bound::score_bound`. It is above 1 for
    /// networks whose f32 sums lose many digits (`ops::noise`).
    pub(crate) tolerance: f32,
    /// The inputs of a model that has several, in the order in which a record holds them. Empty for
    /// a model with one input.
    pub(crate) inputs: Cow<'static, [Value]>,
    /// The outputs of a model that has several, in the order in which the graph's output holds
    /// their elements. Empty for a model with one output.
    pub(crate) outputs: Cow<'static, [Value]>,
}

impl Network {
    /// The shape of the graph's first input.
    pub(crate) fn input(&self) -> Shape {
        self.graph.values[self.graph.inputs[0]].shape
    }

    /// The number of scores that the network computes for one record.
    pub(crate) fn outputs(&self) -> usize {
        self.graph
            .outputs
            .first()
            .map_or(self.width, |&v| self.graph.values[v].shape.len())
    }

    /// Returns the predicted class for the network's last values of one record. `None` for kinds
    /// that predict no single class.
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

    /// Returns a text with the shapes of the input and of the results of layers with weights,
    /// followed by the activations. For example `1×28×28-20×24×24-10 relu`. Equal activations in
    /// succession are named once.
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

/// Returns a text with the names and shapes of inputs or outputs, for example `a 3, b 1×8×8`.
pub(crate) fn named(values: &[Value]) -> String {
    let mut text = String::new();
    for v in values {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{} {}", v.name, v.shape);
    }
    text
}

/// Returns the index of the largest value. Of equal values the first wins.
pub(crate) fn argmax(values: &[f64]) -> u32 {
    let mut best = 0;
    for (i, v) in values.iter().enumerate() {
        if *v > values[best] {
            best = i;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(kind: Kind, activation: FinalActivation, threshold: f64) -> Network {
        Network {
            name: "".into(),
            hash: "".into(),
            width: 2,
            order: InputOrder::Chw,
            graph: Graph::new(Shape::vector(2)),
            output: Output {
                kind,
                activation,
                threshold,
            },
            labels: Vec::new().into(),
            features: Vec::new().into(),
            transform: Transform::Identity,
            bytes: None,
            folded: false,
            weights: Precision::F32,
            tolerance: 1.0,
            inputs: Vec::new().into(),
            outputs: Vec::new().into(),
        }
    }

    /// `linear` agrees with `apply`, and `invert` is the inverse of `apply`. This holds for one
    /// entry shared by all features and for one entry per feature.
    #[test]
    fn transforms_are_linear_and_can_be_undone() {
        let scaled = |scale: &'static [f64], offset: &'static [f64]| Transform::ScaleOffset {
            scale: scale.into(),
            offset: offset.into(),
        };
        let standard = |mean: &'static [f64], std: &'static [f64]| Transform::MeanStd {
            mean: mean.into(),
            std: std.into(),
        };
        for (transform, expected) in [
            (Transform::Identity, [3.0, 3.0]),
            (scaled(&[2.0], &[1.0]), [7.0, 7.0]),
            (scaled(&[2.0, -0.5], &[1.0, 4.0]), [7.0, 2.5]),
            (standard(&[1.0], &[4.0]), [0.5, 0.5]),
            (standard(&[1.0, -1.0], &[4.0, -2.0]), [0.5, -2.0]),
        ] {
            for (i, z) in expected.into_iter().enumerate() {
                let (factor, summand) = transform.linear(i);
                assert_eq!(transform.apply(i, 3.0), z, "{transform:?}");
                assert_eq!(3.0 * factor + summand, z, "{transform:?}");
                assert_eq!(transform.invert(i, z), 3.0, "{transform:?}");
            }
        }
    }

    #[test]
    fn records_have_images_channel_by_channel_or_pixel_by_pixel() {
        let shape = Shape { c: 3, h: 4, w: 5 };
        let pixels = (0..4).flat_map(|y| (0..5).map(move |x| (y, x)));
        let values = pixels.flat_map(|(y, x)| (0..3).map(move |c| shape.index(c, y, x)));
        assert!(values.eq((0..shape.len()).map(|i| InputOrder::Hwc.element(shape, i))));
        assert!((0..shape.len()).all(|i| InputOrder::Chw.element(shape, i) == i));
    }

    #[test]
    fn precisions_are_read_by_their_names_alone() {
        for (precision, bytes) in [(Precision::F32, 4), (Precision::F16, 2)] {
            assert_eq!(Precision::parse(precision.name()), Some(precision));
            assert_eq!(precision.bytes(), bytes);
        }
        assert_eq!(["", "F32", "f64"].map(Precision::parse), [None; 3]);
    }

    #[test]
    fn probabilities_of_last_values() {
        let applied = |function: FinalActivation, values: [f64; 2]| {
            let mut values = values;
            function.apply(&mut values);
            values
        };
        let near = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).abs().max((a[1] - b[1]).abs()) < 1e-12;
        // e^1000 is not finite, so the softmax must subtract the maximum first.
        assert!(near(
            applied(FinalActivation::Softmax, [1000.0, 1000.0 + 3f64.ln()]),
            [0.25, 0.75]
        ));
        assert!(near(
            applied(FinalActivation::Sigmoid, [0.0, -3f64.ln()]),
            [0.5, 0.25]
        ));
        assert!(near(
            applied(FinalActivation::Tanh, [0.0, 3f64.ln() / 2.0]),
            [0.0, 0.5]
        ));
        assert_eq!(applied(FinalActivation::None, [3.0, -4.0]), [3.0, -4.0]);
    }

    #[test]
    fn classes_are_the_first_largest_or_above_the_threshold() {
        for (scores, class) in [
            (&[1.0, 3.0, 3.0, 2.0][..], 1),
            (&[5.0, 1.0], 0),
            (&[-2.0, -1.0], 1),
            (&[0.0, 0.0], 0),
            (&[1.0, 0.0, 2.0], 2),
        ] {
            assert_eq!(
                network(Kind::Classes, FinalActivation::Softmax, 0.5).class(scores),
                Some(class)
            );
        }
        let binary = |activation, threshold, score: f64| {
            network(Kind::Binary, activation, threshold).class(&[score])
        };
        for (score, class) in [(-0.01, 0), (0.0, 0), (0.01, 1)] {
            assert_eq!(binary(FinalActivation::Sigmoid, 0.5, score), Some(class));
            assert_eq!(
                binary(FinalActivation::None, 0.75, score + 0.75),
                Some(class)
            );
        }
        for kind in [Kind::Multilabel, Kind::Values] {
            assert_eq!(
                network(kind, FinalActivation::None, 0.5).class(&[1.0, 2.0]),
                None
            );
        }
    }

    #[test]
    fn networks_are_described_by_their_layers() {
        let mut n = network(Kind::Values, FinalActivation::None, 0.5);
        assert_eq!(
            (n.shape(), n.outputs(), n.input()),
            ("2".into(), 2, Shape::vector(2))
        );
        let mut value = 0;
        for (outputs, activation) in [
            (3, Activation::Relu),
            (5, Activation::Relu),
            (1, Activation::Tanh),
        ] {
            use crate::ir::graph::Role;
            let columns = n.graph.values[value].shape.len();
            let arrays = [
                (Role::Weights, outputs, columns),
                (Role::Biases, outputs, 1),
            ];
            let sum = n
                .graph
                .push("layer", Op::Affine, &[value], &arrays)
                .unwrap();
            value = n
                .graph
                .push("layer", Op::Activation(activation), &[sum], &[])
                .unwrap();
        }
        assert_eq!((n.shape(), n.outputs()), ("2-3-5-1 relu,tanh".into(), 1));
        let shape = Shape { c: 1, h: 8, w: 8 };
        let values = [
            Value {
                name: "a".into(),
                shape: Shape::vector(3),
            },
            Value {
                name: "b".into(),
                shape,
            },
        ];
        assert_eq!(named(&values), "a 3, b 1×8×8");
    }
}
