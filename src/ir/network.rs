//! A network as the program knows it: sizes and meanings; the weights are constants beside it.

use crate::ir::graph::{Graph, Shape, Value};
pub(crate) use crate::ir::op::Activation;
use crate::ir::op::Op;
use std::borrow::Cow;
use std::fmt::{self, Write};

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
            FinalActivation::Sigmoid => values
                .iter_mut()
                .for_each(|v| *v = Activation::Sigmoid.apply(*v)),
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

/// How a raw input becomes the network's input, in float64, before rounding to f32. One entry for
/// all features or one per feature.
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
            InputOrder::Hwc => {
                shape.index(i % shape.c, i / shape.c / shape.w, i / shape.c % shape.w)
            }
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

/// How large inputs may be before sums overflow f32.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Range {
    /// The size of raw inputs up to which no sum overflows: `f32::MAX` if none ever does, 0 if no
    /// such size is known.
    pub(crate) up_to: f32,
    /// True if golden vectors overflow where they are a million times as large: real inputs may do
    /// so, too.
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
    /// What is computed, up to the last values. A final softmax, sigmoid or tanh is not in it: it
    /// belongs to [`Output`].
    pub(crate) graph: Graph,
    /// What the last values mean.
    pub(crate) output: Output,
    /// Names of the classes (or outputs); empty where none were given.
    pub(crate) labels: Cow<'static, [Cow<'static, str>]>,
    /// Names of the inputs; empty where none were given.
    pub(crate) features: Cow<'static, [Cow<'static, str>]>,
    /// What the reader does to every value (identity where the build folded it into the first
    /// layer).
    pub(crate) transform: Transform,
    /// The scaling that was folded into the first layer's weights, for `--info`.
    pub(crate) folded: bool,
    /// What weights were rounded to, whatever the plan stores them as.
    pub(crate) weights: Precision,
    /// The model's inputs, which stand one behind the other in a record; empty where it has one.
    pub(crate) inputs: Cow<'static, [Value]>,
    /// The model's outputs, which stand one behind the other in the last value; empty where it has
    /// one.
    pub(crate) outputs: Cow<'static, [Value]>,
}

impl Network {
    /// The shape of its input.
    pub(crate) fn input(&self) -> Shape {
        self.graph.values[self.graph.inputs[0]].shape
    }

    /// Values of a record after the last layer.
    pub(crate) fn outputs(&self) -> usize {
        self.graph
            .outputs
            .first()
            .map_or(self.width, |&v| self.graph.values[v].shape.len())
    }

    /// The class of one record in float64: arg-max (ties to the lowest), or 0/1 by the threshold
    /// for `Binary`. `None` for the kinds without a single class.
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

    /// `1×28×28-20×24×24-10 relu`: the shapes behind layers with weights, and the activations where
    /// they are all the same or listed otherwise.
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
            folded: false,
            weights: Precision::F32,
            inputs: Vec::new().into(),
            outputs: Vec::new().into(),
        }
    }

    /// One entry serves all features; what `linear` says is what `apply` does, and `invert` undoes
    /// it.
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
        // Far beyond what e^x can be.
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
