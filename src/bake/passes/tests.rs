//! Tests of what the passes change and what they must leave alone. The results of the graph stay
//! the same.

use crate::bake::draft::{Array, Draft};
use crate::ir::graph::{Role, Shape};
use crate::ir::network::{InputOrder, Transform};
use crate::ir::op::{Activation, Arithmetic, Axis, Border, Float, Math, Op, Padding, Pool, Window};
use crate::ir::taps::{Tap, Taps};
use crate::ops::random::Random;

/// Builds a draft node by node. A node reads the last value, unless others are named for it.
struct Chain {
    draft: Draft,
    random: Random,
    last: usize,
}

const IMAGE: Shape = Shape { c: 4, h: 6, w: 5 };

impl Chain {
    fn new(input: Shape) -> Chain {
        Chain {
            draft: Draft::new(input),
            random: Random::new(7),
            last: 0,
        }
    }

    fn numbers(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| f64::from(self.random.float())).collect()
    }

    fn push(&mut self, op: Op, inputs: &[usize], arrays: Vec<Array>) -> usize {
        self.last = self.draft.push(op.name(), op, inputs, arrays).unwrap();
        self.last
    }

    fn then(self, op: Op) -> Chain {
        self.push_then(op, Vec::new())
    }

    fn push_then(mut self, op: Op, arrays: Vec<Array>) -> Chain {
        self.push(op, &[self.last], arrays);
        self
    }

    fn scale(mut self, summands: bool) -> Chain {
        let c = self.draft.shape(self.last).c;
        let (factors, mut biases) = (self.numbers(c), self.numbers(c));
        if !summands {
            biases.fill(0.0);
        }
        let arrays = vec![
            Array::column(Role::Factors, factors),
            Array::column(Role::Biases, biases),
        ];
        self.push(Op::Scale, &[self.last], arrays);
        self
    }

    fn conv(mut self, outputs: usize, groups: usize, window: Window) -> Chain {
        let columns = self.draft.shape(self.last).c / groups * window.size.0 * window.size.1;
        let arrays = Array::of_layer(self.numbers(outputs * columns), self.numbers(outputs));
        self.push(Op::Convolution { window, groups }, &[self.last], arrays);
        self
    }

    fn affine(mut self, outputs: usize) -> Chain {
        let inputs = self.draft.shape(self.last).len();
        let arrays = Array::of_layer(self.numbers(outputs * inputs), self.numbers(outputs));
        self.push(Op::Affine, &[self.last], arrays);
        self
    }

    /// Runs the passes, and fails if they change the results. Returns the remaining operations and
    /// the scaling of the input.
    fn passed(mut self) -> (String, Transform) {
        let input: Vec<f64> = self.numbers(self.draft.shape(0).len());
        let before = self
            .draft
            .graph
            .evaluate(&self.draft.rounded(), input.clone(), |_, _| ());
        let expected: Vec<Vec<f64>> = self
            .draft
            .graph
            .outputs
            .iter()
            .map(|&o| before[o].clone())
            .collect();
        let (passed, transform) =
            super::run(self.draft, Transform::Identity, InputOrder::Chw).unwrap();
        let scaled = input
            .iter()
            .enumerate()
            .map(|(i, &x)| transform.apply(i, x))
            .collect();
        let after = passed.graph.evaluate(&passed.rounded(), scaled, |_, _| ());
        for (expected, &o) in expected.iter().zip(passed.graph.outputs.iter()) {
            assert_eq!(expected.len(), after[o].len());
            for (e, f) in expected.iter().zip(&after[o]) {
                assert!((e - f).abs() < 1e-5 * e.abs().max(1.0), "{e} {f}");
            }
        }
        let ops: Vec<&str> = passed.graph.nodes.iter().map(|n| n.op.name()).collect();
        (ops.join(" "), transform)
    }

    fn ops(self) -> String {
        self.passed().0
    }
}

fn padded(size: usize, n: usize) -> Window {
    let border = Border {
        top: n,
        left: n,
        bottom: n,
        right: n,
    };
    Window {
        border,
        ..Window::of((size, size))
    }
}

fn pad(value: f32) -> Op {
    Op::Pad {
        padding: Padding {
            before: [0, 1, 2],
            behind: [0, 0, 1],
        },
        value: Float::new(value),
    }
}

const RELU: Op = Op::Activation(Activation::Relu);
const TANH: Op = Op::Activation(Activation::Tanh);

#[test]
fn factors_go_into_the_weights_around_them() {
    let image = || Chain::new(IMAGE).then(RELU);
    assert_eq!(
        image().conv(3, 1, padded(3, 1)).scale(true).ops(),
        "relu convolution"
    );
    assert_eq!(
        image()
            .conv(4, 4, padded(3, 1))
            .scale(true)
            .scale(true)
            .ops(),
        "relu convolution"
    );
    assert_eq!(
        image().affine(3).scale(true).then(RELU).ops(),
        "relu affine relu"
    );
    assert_eq!(
        image().scale(true).conv(3, 1, padded(3, 0)).ops(),
        "relu convolution"
    );
    assert_eq!(
        image().scale(true).conv(6, 2, padded(3, 0)).ops(),
        "relu convolution"
    );
    // If a scaling adds something, it cannot be folded into a convolution with a border, because
    // border elements must stay 0. A scaling that only multiplies can be folded.
    assert_eq!(
        image().scale(true).conv(3, 1, padded(3, 1)).ops(),
        "relu scale convolution"
    );
    assert_eq!(
        image().scale(false).conv(3, 1, padded(3, 1)).ops(),
        "relu convolution"
    );
    assert_eq!(image().scale(true).affine(3).ops(), "relu affine");
}

/// If a ReLU turns a padding of −∞ into 0, the passes avoid the infinity. A padding that stays
/// infinite is left alone.
#[test]
fn no_activation_reads_a_border_of_infinities() {
    let image = || Chain::new(IMAGE).then(TANH);
    let clip = Op::Activation(Activation::Clip {
        low: Float::new(-1.0),
        high: Float::new(6.0),
    });
    let leaky = Op::Activation(Activation::LeakyRelu(Float::new(0.5)));
    for (border, activation, ops) in [
        (f32::NEG_INFINITY, RELU, "tanh relu pad"),
        (f32::NEG_INFINITY, clip, "tanh clip pad"),
        (f32::INFINITY, TANH, "tanh tanh pad"),
        (f32::INFINITY, clip, "tanh clip pad"),
        (f32::NEG_INFINITY, leaky, "tanh pad leaky_relu"),
        (f32::INFINITY, RELU, "tanh pad relu"),
        (-1.0, RELU, "tanh pad relu"),
    ] {
        let chain = image().then(pad(border)).then(activation);
        let (from, to) = (
            chain.draft.clone(),
            super::run(chain.draft, Transform::Identity, InputOrder::Chw)
                .unwrap()
                .0,
        );
        let found: Vec<&str> = to.graph.nodes.iter().map(|n| n.op.name()).collect();
        assert_eq!(found.join(" "), ops, "{border} {activation:?}");
        let input: Vec<f64> = (0..IMAGE.len()).map(|i| i as f64 / 10.0 - 5.0).collect();
        let output = |draft: &Draft| {
            let values = draft
                .graph
                .evaluate(&draft.rounded(), input.clone(), |_, _| ());
            values[draft.graph.outputs[0]].clone()
        };
        assert_eq!(output(&from), output(&to), "{border} {activation:?}");
    }
}

#[test]
fn factors_stay_where_another_reads_what_they_are_of() {
    let mut c = Chain::new(IMAGE).then(RELU).conv(4, 1, padded(3, 1));
    let conv = c.last;
    c = c.scale(true);
    c.push(Op::Combine(Arithmetic::Add), &[c.last, conv], Vec::new());
    assert_eq!(c.ops(), "relu convolution scale add");
    // The convolution's value must stay if it is an output of the network.
    let mut c = Chain::new(IMAGE).then(RELU).conv(4, 1, padded(3, 1));
    let conv = c.last;
    c = c.scale(true);
    c.draft.graph.outputs = vec![c.last, conv].into();
    assert_eq!(c.ops(), "relu convolution scale");
}

#[test]
fn factors_of_the_input_are_the_readers() {
    let (ops, transform) = Chain::new(Shape::vector(5)).scale(true).affine(3).passed();
    assert_eq!(ops, "affine");
    assert!(matches!(transform, Transform::MeanStd { mean, .. } if mean.len() == 5));
    let (ops, transform) = Chain::new(IMAGE)
        .scale(false)
        .conv(3, 1, padded(3, 1))
        .passed();
    assert_eq!(ops, "convolution");
    assert!(
        matches!(transform, Transform::ScaleOffset { scale, .. } if scale.len() == IMAGE.len())
    );
    // A scaling with the factor 0 stays in the graph, because the program could not invert it.
    let mut c = Chain::new(Shape::vector(2)).scale(true);
    c.draft.numbers[0][1] = 0.0;
    let (ops, transform) = c.then(RELU).passed();
    assert_eq!(
        (ops.as_str(), transform),
        ("scale relu", Transform::Identity)
    );
}

#[test]
fn factors_that_make_no_numbers_of_weights_stay() {
    // In turn, two arrays have the number 1e30, so that folding would multiply them to 1e60, which
    // is out of the range of f32. The tanh keeps the results small.
    let fill = |c: &mut Chain, tensors: [usize; 2]| {
        tensors.iter().for_each(|&t| c.draft.numbers[t].fill(1e30));
    };
    for product in [[0, 2], [1, 2]] {
        let mut c = Chain::new(IMAGE)
            .then(RELU)
            .conv(4, 1, padded(3, 1))
            .scale(true)
            .then(TANH);
        fill(&mut c, product);
        assert_eq!(c.ops(), "relu convolution scale tanh");
        let mut c = Chain::new(IMAGE)
            .then(RELU)
            .scale(true)
            .scale(true)
            .then(TANH);
        fill(&mut c, product);
        assert_eq!(c.ops(), "relu scale scale tanh");
        let mut c = Chain::new(IMAGE)
            .then(RELU)
            .scale(true)
            .affine(3)
            .then(TANH);
        fill(&mut c, product);
        assert_eq!(c.ops(), "relu scale affine tanh");
    }
}

/// A resampling in which every pixel reads only its own place with weight 1 is removed. Other
/// resamplings stay.
#[test]
fn resamplings_of_each_pixel_alone_are_removed() {
    let axis = |positions: Vec<usize>, weight: f32| -> Vec<Vec<Tap>> {
        let taps = |position| vec![Tap { position, weight }];
        positions.into_iter().map(taps).collect()
    };
    let ops = |columns: Vec<usize>, weight: f32| {
        let rows = axis((0..IMAGE.h).collect(), 1.0);
        let columns = axis(columns, weight);
        let (op, array) = Taps { rows, columns }.node();
        let chain = Chain::new(IMAGE).then(TANH);
        chain.push_then(op, vec![Array::taps(array)]).ops()
    };
    assert_eq!(ops((0..IMAGE.w).collect(), 1.0), "tanh");
    assert_eq!(ops((0..IMAGE.w).collect(), 0.5), "tanh resample");
    assert_eq!(ops((0..IMAGE.w).rev().collect(), 1.0), "tanh resample");
    assert_eq!(ops(vec![0], 1.0), "tanh resample");
}

/// A resampling whose tap is outside of the image cannot be added to a draft.
#[test]
fn resamplings_outside_of_the_image_are_refused() {
    let (op, array) = Taps {
        rows: vec![vec![Tap {
            position: IMAGE.h,
            weight: 1.0,
        }]],
        columns: vec![vec![]],
    }
    .node();
    let found = Draft::new(IMAGE).push("resized", op, &[0], vec![Array::taps(array)]);
    let expected = "resized: a tap reads position 6 of 6 rows";
    assert_eq!(found, Err(expected.to_string()));
}

#[test]
fn borders_join_windows_that_see_the_same() {
    let image = || Chain::new(IMAGE).then(TANH);
    let pool = |kind, window| Op::Pool { kind, window };
    assert_eq!(
        image().then(pad(0.0)).conv(3, 1, padded(3, 1)).ops(),
        "tanh convolution"
    );
    assert_eq!(
        image().then(pad(0.5)).conv(3, 1, padded(3, 1)).ops(),
        "tanh pad convolution"
    );
    let channels = Op::Pad {
        padding: Padding {
            before: [0; 3],
            behind: [2, 1, 1],
        },
        value: Float::new(0.0),
    };
    assert_eq!(
        image().then(channels).conv(3, 1, padded(3, 1)).ops(),
        "tanh pad convolution"
    );
    assert_eq!(
        image()
            .then(pad(0.0))
            .then(pool(Pool::Mean, padded(3, 0)))
            .ops(),
        "tanh average_pool"
    );
    let behind = Border {
        bottom: 1,
        right: 1,
        ..Border::default()
    };
    let more = Window {
        border: behind,
        ..Window::of((3, 3))
    };
    assert_eq!(
        image()
            .then(pad(0.0))
            .then(pool(Pool::PaddedMean, more))
            .ops(),
        "tanh average_pool"
    );
    // Joining would make a window that has no element of the image, so the padding stays.
    assert_eq!(
        image()
            .then(pad(0.0))
            .then(pool(Pool::PaddedMean, padded(3, 1)))
            .ops(),
        "tanh pad average_pool"
    );
    // The mean pooling does not count its own border, but would have to count the joined padding.
    // So the padding stays.
    assert_eq!(
        image()
            .then(pad(0.0))
            .then(pool(Pool::Mean, padded(3, 1)))
            .ops(),
        "tanh pad average_pool"
    );
    let max = pool(Pool::Max, padded(3, 0));
    assert_eq!(image().then(pad(0.0)).then(max).ops(), "tanh pad max_pool");
    assert_eq!(
        image().then(pad(f32::NEG_INFINITY)).then(max).ops(),
        "tanh max_pool"
    );
    assert_eq!(
        image().then(RELU).then(pad(0.0)).then(max).ops(),
        "tanh relu max_pool"
    );
    // Here a window is completely inside the padding, so joining is not possible.
    assert_eq!(
        image()
            .then(RELU)
            .then(pad(0.0))
            .then(pool(Pool::Max, Window::of((1, 1))))
            .ops(),
        "tanh relu pad"
    );
}

#[test]
fn groups_become_dense_unless_each_is_a_channel() {
    let groups = |outputs, groups| {
        let draft = Chain::new(IMAGE).conv(outputs, groups, padded(3, 1)).draft;
        let (passed, _) = super::run(draft, Transform::Identity, InputOrder::Chw).unwrap();
        match passed.graph.nodes[0].op {
            Op::Convolution { groups, .. } => groups,
            op => panic!("{op:?}"),
        }
    };
    assert_eq!(
        [groups(4, 1), groups(6, 2), groups(4, 4), groups(8, 4)],
        [1, 1, 4, 1]
    );
    for (outputs, groups) in [(6, 2), (8, 4)] {
        assert_eq!(
            Chain::new(IMAGE).conv(outputs, groups, padded(3, 1)).ops(),
            "convolution"
        );
    }
}

#[test]
fn moves_cancel_or_become_orders_of_weights() {
    let turn = Op::Transpose([Axis::Y, Axis::X, Axis::C]);
    let back = Op::Transpose([Axis::X, Axis::C, Axis::Y]);
    assert_eq!(
        Chain::new(IMAGE).then(turn).then(back).then(RELU).ops(),
        "relu"
    );
    assert_eq!(
        Chain::new(IMAGE).then(turn).then(turn).then(RELU).ops(),
        "relu transpose"
    );
    assert_eq!(
        Chain::new(IMAGE)
            .then(turn)
            .then(RELU)
            .scale(true)
            .then(back)
            .ops(),
        "relu scale"
    );
    let flat = Op::Reshape(Shape::vector(IMAGE.len()));
    assert_eq!(Chain::new(IMAGE).then(flat).affine(3).ops(), "affine");
    assert_eq!(
        Chain::new(IMAGE).then(turn).then(flat).affine(3).ops(),
        "affine"
    );
    assert_eq!(Chain::new(IMAGE).then(turn).affine(3).ops(), "affine");
    assert_eq!(
        Chain::new(IMAGE)
            .then(flat)
            .then(Op::Reshape(IMAGE))
            .then(RELU)
            .ops(),
        "relu"
    );
}

#[test]
fn convolutions_with_one_place_are_affine_layers() {
    // Each affine layer has one position, so none of them is changed.
    assert_eq!(
        Chain::new(Shape::vector(3)).affine(30).affine(3).ops(),
        "affine affine"
    );
    // A convolution with one position becomes an affine layer. Its window may cover the whole
    // image, or a part of the image together with a border.
    let whole = Window::of((6, 5));
    assert_eq!(
        Chain::new(IMAGE).conv(3, 1, whole).then(RELU).ops(),
        "affine relu"
    );
    let around = Window {
        stride: (9, 9),
        dilation: (2, 1),
        ..padded(5, 2)
    };
    assert_eq!(
        Chain::new(Shape { c: 2, h: 5, w: 3 })
            .conv(3, 1, around)
            .then(RELU)
            .ops(),
        "affine relu"
    );
    // This window covers one pixel, and most of the image is outside. An affine layer would need
    // more weights, so it stays a convolution.
    let part = Window {
        stride: (9, 9),
        ..Window::of((1, 1))
    };
    assert_eq!(Chain::new(IMAGE).conv(3, 1, part).ops(), "convolution");
}

#[test]
fn what_nothing_reads_is_left_out() {
    let mut c = Chain::new(IMAGE).then(RELU);
    let relu = c.last;
    c = c.conv(3, 1, padded(3, 1)).then(RELU);
    c.draft.graph.outputs = vec![relu].into();
    assert_eq!(c.ops(), "relu");
}

/// The function that GELU gates contain. The passes join a value times such a gate into one
/// activation.
const ERF: Op = Op::Activation(Activation::Math(Math::Erf));

#[test]
fn a_product_with_its_gate_is_an_activation() {
    let hard = |alpha: f32| {
        let (alpha, beta) = (Float::new(alpha), Float::new(0.5));
        Op::Activation(Activation::HardSigmoid { alpha, beta })
    };
    let relu6 = Op::Activation(Activation::Clip {
        low: Float::new(0.0),
        high: Float::new(6.0),
    });
    let sigmoid = Op::Activation(Activation::Sigmoid);
    let softplus = Op::Activation(Activation::Softplus);
    let linear = |c: Chain, factor: f64, summand: f64| {
        let all = |role, number| Array::of_all(role, number, IMAGE.len());
        let arrays = vec![all(Role::Factors, factor), all(Role::Biases, summand)];
        c.push_then(Op::Scale, arrays)
    };
    let erf = |c: Chain| linear(c, std::f64::consts::FRAC_1_SQRT_2, 0.0).then(ERF);
    let gates: [(&dyn Fn(Chain) -> Chain, &str); 12] = [
        (&|c| c.then(sigmoid), "silu"),
        (&|c| c.then(hard(1.0 / 6.0)), "hard_swish"),
        (&|c| c.then(hard(0.2)), "hard_sigmoid multiply"),
        (&|c| c.then(softplus).then(TANH), "mish"),
        (&|c| c.then(TANH), "tanh multiply"),
        (&|c| linear(c, 1.0, 3.0).then(relu6), "hard_swish scale"),
        (
            &|c| linear(linear(c, 1.0, 3.0).then(relu6), 1.0 / 6.0, 0.0),
            "hard_swish",
        ),
        (
            &|c| linear(linear(c, 1.0, 2.0).then(relu6), 1.0 / 6.0, 0.0),
            "scale clip scale multiply",
        ),
        (&|c| linear(erf(c), 0.5, 0.5), "gelu"),
        (&|c| linear(erf(c), 1.0, 1.0), "gelu scale"),
        (&|c| linear(erf(c), 1.0, 0.5), "scale erf scale multiply"),
        (
            &|c| linear(linear(c, 0.75, 0.0).then(ERF), 0.5, 0.5),
            "scale erf scale multiply",
        ),
    ];
    for (gate, expected) in gates {
        for swapped in [false, true] {
            let chain = Chain::new(IMAGE).conv(4, 1, Window::of((1, 1)));
            let x = chain.last;
            let mut chain = gate(chain);
            let factors = match swapped {
                false => [x, chain.last],
                true => [chain.last, x],
            };
            chain.push(Op::Combine(Arithmetic::Multiply), &factors, Vec::new());
            assert_eq!(chain.ops(), format!("convolution {expected}"));
        }
    }
    // Another node reads the gate, so the product is not joined.
    let mut chain = Chain::new(IMAGE).then(sigmoid);
    let gate = chain.last;
    chain.push(Op::Combine(Arithmetic::Multiply), &[0, gate], Vec::new());
    let product = chain.last;
    chain.push(Op::Combine(Arithmetic::Add), &[product, gate], Vec::new());
    assert_eq!(chain.ops(), "sigmoid multiply add");
}
