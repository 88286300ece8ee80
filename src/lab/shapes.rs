//! Networks for measurements, with known shapes and generated weights.

use super::reference::Random;
use crate::ir::graph::{Graph, Role, Shape, Tensors};
use crate::ir::network::{
    Activation, FinalActivation, InputOrder, Kind, Network, Output, Precision, Transform,
};
use crate::ir::op::{Arithmetic, Border, Op, Pool, Window};

/// Names and shapes of networks without convolutions: those of the thesis (§6.4 and §10), and the
/// autoencoder of MLPerf Tiny.
pub(crate) const NAMED: [(&str, &str); 6] = [
    ("baseline", "784-100-100-10:sigmoid"),
    ("partial-mnist", "640-150-10:relu"),
    ("partial-cifar", "256-128-10:relu"),
    ("full-mnist", "784-2500-2000-10:relu"),
    ("full-cifar", "3072-4096-3072-10:relu"),
    (
        "autoencoder",
        "640-128-128-128-128-8-128-128-128-128-640:relu",
    ),
];

/// Names of convolutional networks, each with the channels, height and width of a record. They are
/// the networks of MLPerf Tiny (arXiv 2106.07597), except its autoencoder, and MobileNet-v1 as
/// published (arXiv 1704.04861). Batch norm is folded into the convolutions.
pub(crate) const IMAGES: [(&str, Shape); 4] = [
    ("ds-cnn", Shape { c: 1, h: 49, w: 10 }),
    ("resnet-8", Shape { c: 3, h: 32, w: 32 }),
    ("mobilenet-v1-0.25", Shape { c: 3, h: 96, w: 96 }),
    (
        "mobilenet-v1-1.0",
        Shape {
            c: 3,
            h: 224,
            w: 224,
        },
    ),
];

/// Returns a network of the given shape, or of a name in [`NAMED`] or [`IMAGES`]. Its random
/// weights are scaled so that values keep their size from layer to layer.
pub(crate) fn generated(shape: &str, kind: Kind) -> Result<(Network, Tensors), String> {
    let image = IMAGES.iter().find(|(name, _)| *name == shape);
    let (sizes, activation) = match image {
        Some((_, shape)) => (vec![shape.len()], Activation::None),
        None => chain(shape)?,
    };
    let seed = sizes.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, &n| {
        (h ^ n as u64).wrapping_mul(0x0100_0000_01b3)
    });
    let input = image.map_or(Shape::vector(sizes[0]), |(_, shape)| *shape);
    let random = Random::new(seed);
    let mut builder = NetworkBuilder {
        graph: Graph::new(input),
        tensors: Vec::new(),
        random,
        value: 0,
    };
    match image {
        Some((name, _)) => builder.image(name)?,
        None => {
            for (i, &outputs) in sizes.iter().enumerate().skip(1) {
                builder.affine(outputs)?;
                if i + 1 < sizes.len() && activation != Activation::None {
                    builder.node(Op::Activation(activation), &[builder.value], &[])?;
                }
            }
        }
    }
    let network = Network {
        name: shape.to_string().into(),
        hash: "generated".into(),
        width: input.len(),
        order: InputOrder::Chw,
        graph: builder.graph,
        output: Output {
            kind,
            activation: FinalActivation::None,
            threshold: 0.5,
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
    };
    Ok((network, builder.tensors))
}

/// Parses a shape like `784-100-10:relu`, or a name in [`NAMED`]. Returns the sizes of its layers
/// and the activation between them.
fn chain(shape: &str) -> Result<(Vec<usize>, Activation), String> {
    let named = NAMED.iter().find(|(name, _)| *name == shape);
    let known = named.map_or(shape, |(_, sizes)| sizes);
    let (sizes, activation) = known.split_once(':').unwrap_or((known, "relu"));
    let activation = std::iter::once(Activation::None)
        .chain(Activation::BEHIND_LAYERS)
        .find(|a| a.name() == activation)
        .ok_or_else(|| {
            format!(
                "expected :relu, :leaky_relu (slope 0.25), :sigmoid, :tanh or :none, found \
                 \":{activation}\""
            )
        })?;
    let sizes: Option<Vec<usize>> = sizes
        .split('-')
        .map(|s| s.parse().ok().filter(|n| (1..=1 << 16).contains(n)))
        .collect();
    let sizes = sizes.filter(|s| s.len() >= 2).ok_or_else(|| {
        let names = NAMED.iter().map(|(name, _)| *name);
        let names: Vec<&str> = names.chain(IMAGES.iter().map(|(name, _)| *name)).collect();
        format!(
            "expected sizes like 784-100-10:relu, or {}; found \"{shape}\"",
            names.join(", ")
        )
    })?;
    Ok((sizes, activation))
}

/// A network under construction, to which layers are added one by one.
struct NetworkBuilder {
    graph: Graph,
    tensors: Tensors,
    random: Random,
    /// The index of the last value so far. It is the input of the next layer.
    value: usize,
}

impl NetworkBuilder {
    fn node(
        &mut self,
        op: Op,
        inputs: &[usize],
        arrays: &[(Role, usize, usize)],
    ) -> Result<(), String> {
        self.value = self.graph.push(
            format!("layers[{}]", self.graph.nodes.len()),
            op,
            inputs,
            arrays,
        )?;
        Ok(())
    }

    /// Draws a layer's random weights and biases. The weights are scaled so that the layer's
    /// results are about as large as its inputs. Returns the roles and shapes of both arrays.
    fn draw(&mut self, outputs: usize, inputs: usize) -> [(Role, usize, usize); 2] {
        let scale = (3.0 / inputs as f32).sqrt();
        self.tensors.push(
            (0..inputs * outputs)
                .map(|_| self.random.float() * scale)
                .collect(),
        );
        self.tensors
            .push((0..outputs).map(|_| self.random.float() * 0.1).collect());
        [(Role::Weights, outputs, inputs), (Role::Biases, outputs, 1)]
    }

    fn affine(&mut self, outputs: usize) -> Result<(), String> {
        let arrays = self.draw(outputs, self.shape().len());
        self.node(Op::Affine, &[self.value], &arrays)
    }

    /// Adds a convolution whose border keeps the image's size at stride 1. If an odd number of
    /// border rows or columns is needed, the extra one is below or to the right.
    fn convolution(
        &mut self,
        outputs: usize,
        size: (usize, usize),
        stride: usize,
        groups: usize,
    ) -> Result<(), String> {
        let (Shape { c, h, w }, (rows, cols)) = (self.shape(), size);
        let total = |n: usize, k: usize| ((n.div_ceil(stride) - 1) * stride + k).saturating_sub(n);
        let (y, x) = (total(h, rows), total(w, cols));
        let border = Border {
            top: y / 2,
            left: x / 2,
            bottom: y - y / 2,
            right: x - x / 2,
        };
        let window = Window {
            border,
            stride: (stride, stride),
            ..Window::of(size)
        };
        let arrays = self.draw(outputs, rows * cols * (c / groups));
        self.node(Op::Convolution { window, groups }, &[self.value], &arrays)
    }

    fn relu(&mut self) -> Result<(), String> {
        self.node(Op::Activation(Activation::Relu), &[self.value], &[])
    }

    /// Adds a separable convolution: a depthwise 3×3 and a 1×1 convolution, each followed by a
    /// ReLU.
    fn separable(&mut self, outputs: usize, stride: usize) -> Result<(), String> {
        self.convolution(self.shape().c, (3, 3), stride, self.shape().c)?;
        self.relu()?;
        self.convolution(outputs, (1, 1), 1, 1)?;
        self.relu()
    }

    /// Adds a residual block: two convolutions, a shortcut around them, and the sum of both paths.
    fn residual(&mut self, outputs: usize, stride: usize) -> Result<(), String> {
        let before = self.value;
        self.convolution(outputs, (3, 3), stride, 1)?;
        self.relu()?;
        self.convolution(outputs, (3, 3), 1, 1)?;
        let long = self.value;
        self.value = before;
        if stride != 1 {
            self.convolution(outputs, (1, 1), stride, 1)?;
        }
        self.node(Op::Combine(Arithmetic::Add), &[self.value, long], &[])?;
        self.relu()
    }

    /// Adds a pool that averages the pixels of each channel, and an affine layer with a score per
    /// class.
    fn classes(&mut self, classes: usize) -> Result<(), String> {
        let Shape { h, w, .. } = self.shape();
        self.node(
            Op::Pool {
                kind: Pool::Mean,
                window: Window::of((h, w)),
            },
            &[self.value],
            &[],
        )?;
        self.affine(classes)
    }

    fn shape(&self) -> Shape {
        self.graph.values[self.value].shape
    }

    /// Adds all layers of the network in [`IMAGES`] with this name.
    fn image(&mut self, name: &str) -> Result<(), String> {
        match name {
            "ds-cnn" => {
                self.convolution(64, (10, 4), 2, 1)?;
                self.relu()?;
                (0..4).try_for_each(|_| self.separable(64, 1))?;
                self.classes(12)
            }
            "resnet-8" => {
                self.convolution(16, (3, 3), 1, 1)?;
                self.relu()?;
                self.residual(16, 1)?;
                self.residual(32, 2)?;
                self.residual(64, 2)?;
                self.classes(10)
            }
            _ => {
                let (part, classes) = if name == "mobilenet-v1-0.25" {
                    (4, 2)
                } else {
                    (1, 1000)
                };
                self.convolution(32 / part, (3, 3), 2, 1)?;
                self.relu()?;
                let blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)];
                let blocks = blocks
                    .into_iter()
                    .chain([(512, 1); 5])
                    .chain([(1024, 2), (1024, 1)]);
                for (outputs, stride) in blocks {
                    self.separable(outputs / part, stride)?;
                }
                self.classes(classes)
            }
        }
    }
}
