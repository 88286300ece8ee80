//! Graphs that tests and checks compute: each operation alone, with small and uneven sizes, and
//! random combinations of operations.

use super::random::Random;
use crate::ir::graph::{Graph, Role, Shape};
use crate::ir::op::{
    Activation, Arithmetic, Axis, Border, Float, Math, OfChannels, Op, Padding, Pool, Window,
};
use crate::ir::taps::{Tap, Taps};
use crate::ir::view::RowMap;

/// A graph under construction, with random numbers in its constant arrays.
pub(crate) struct EdgeGraph {
    pub(crate) graph: Graph,
    /// The numbers of the graph's constant arrays, such as weights.
    pub(crate) tensors: Vec<Vec<f32>>,
    pub(crate) random: Random,
}

impl EdgeGraph {
    pub(crate) fn new(input: Shape, seed: u64) -> EdgeGraph {
        EdgeGraph {
            graph: Graph::new(input),
            tensors: Vec::new(),
            random: Random::new(seed * 77 + 1),
        }
    }

    fn shape(&self, value: usize) -> Shape {
        self.graph.values[value].shape
    }

    fn floats(&mut self, n: usize, size: f32) -> Vec<f32> {
        (0..n).map(|_| self.random.float() * size).collect()
    }

    /// Adds an operation to the graph. `arrays` lists the roles, rows and columns of its constant
    /// arrays, which get random numbers. Returns the index of the operation's value.
    pub(crate) fn push(
        &mut self,
        op: Op,
        inputs: &[usize],
        arrays: &[(Role, usize, usize)],
    ) -> Result<usize, String> {
        let name = format!("{}[{}]", op.name(), self.graph.nodes.len());
        let value = self.graph.push(name, op, inputs, arrays)?;
        for &(role, rows, cols) in arrays {
            // With weights of this size, a sum of products is about as large as the inputs of the
            // layer.
            let size = if role == Role::Weights {
                (3.0 / cols as f32).sqrt()
            } else {
                0.5
            };
            let array = self.floats(rows * cols, size);
            self.tensors.push(array);
        }
        Ok(value)
    }

    fn convolution(
        &mut self,
        value: usize,
        outputs: usize,
        window: Window,
        groups: usize,
    ) -> Result<usize, String> {
        let taps = window.elements() * (self.shape(value).c / groups);
        let arrays = [(Role::Weights, outputs, taps), (Role::Biases, outputs, 1)];
        self.push(Op::Convolution { window, groups }, &[value], &arrays)
    }

    /// Adds a 3×3 convolution whose result has the height and the width of the image.
    fn same(&mut self, value: usize, outputs: usize) -> Result<usize, String> {
        self.convolution(value, outputs, window((3, 3), 1, 1, 1), 1)
    }

    pub(crate) fn activation(
        &mut self,
        value: usize,
        activation: Activation,
    ) -> Result<usize, String> {
        self.push(Op::Activation(activation), &[value], &[])
    }

    fn scale(&mut self, value: usize) -> Result<usize, String> {
        self.of_channels(Op::Scale, value, &[Role::Factors, Role::Biases])
    }

    /// Adds a scaling and a rounding behind the graph's output, as kernels of layers compute them.
    /// All arrays become multiples of 1/8, and factors become powers of two. So all sums of whole
    /// inputs are exact. Without `ties`, no result is in the middle of two whole numbers.
    pub(crate) fn rescale(&mut self, ties: bool) -> Result<(), String> {
        let eighths = |x: &mut f32| *x = (*x * 8.0).round() / 8.0;
        self.tensors.iter_mut().flatten().for_each(eighths);
        let value = self.graph.outputs[0];
        let shape = self.shape(value);
        // One number for all channels, or one for each.
        let maps = [RowMap::of_all(shape.len()), RowMap::of_channels(shape)];
        let [factors, summands] = [0; 2].map(|_| maps[self.random.below(2)]);
        let arrays = [(Role::Factors, factors), (Role::Biases, summands)];
        let sizes = arrays.map(|(role, map)| (role, map.end(), 1, Some(map)));
        let scaled = self
            .graph
            .push_mapped("rescaled", Op::Scale, &[value], &sizes)?;
        let factors = (0..factors.end()).map(|i| if i % 3 == 0 { 0.5 } else { 2.0 });
        self.tensors.push(factors.collect());
        let mut summands = self.floats(summands.end(), 0.5);
        let apart = if ties { 0.0 } else { 1.0 / 32.0 };
        summands.iter_mut().for_each(|x| {
            eighths(x);
            *x += apart;
        });
        self.tensors.push(summands);
        self.activation(scaled, Activation::Math(Math::Round))?;
        Ok(())
    }

    fn combine(&mut self, arithmetic: Arithmetic, of: [usize; 2]) -> Result<usize, String> {
        self.push(Op::Combine(arithmetic), &of, &[])
    }

    /// Adds the whole numbers from −128 to 127 nearest to 128 times the input.
    fn whole(&mut self) -> Result<usize, String> {
        self.whole_within(-128.0, 127.0)
    }

    /// Adds the whole numbers from `low` to `high` nearest to 128 times the input.
    fn whole_within(&mut self, low: f32, high: f32) -> Result<usize, String> {
        let mut value = 0;
        for _ in 0..7 {
            value = self.combine(Arithmetic::Add, [value, value])?;
        }
        let value = self.activation(value, Activation::Math(Math::Round))?;
        let limits = Activation::Clip {
            low: Float::new(low),
            high: Float::new(high),
        };
        self.activation(value, limits)
    }

    /// Adds a convolution whose weights are whole numbers from −128 to 127.
    fn whole_convolution(
        &mut self,
        value: usize,
        outputs: usize,
        window: Window,
    ) -> Result<usize, String> {
        let value = self.convolution(value, outputs, window, 1)?;
        let first = self.tensors.len() - 2;
        for (at, size) in [(first, 128.0), (first + 1, 1000.0)] {
            let numbers = self.floats(self.tensors[at].len(), size);
            self.tensors[at] = numbers.into_iter().map(f32::floor).collect();
        }
        Ok(value)
    }

    fn slice(
        &mut self,
        value: usize,
        axis: Axis,
        first: usize,
        size: usize,
    ) -> Result<usize, String> {
        self.push(Op::Slice { axis, first, size }, &[value], &[])
    }

    pub(crate) fn affine(&mut self, value: usize, outputs: usize) -> Result<usize, String> {
        let inputs = self.shape(value).len();
        let arrays = [(Role::Weights, outputs, inputs), (Role::Biases, outputs, 1)];
        self.push(Op::Affine, &[value], &arrays)
    }

    /// Adds a resampling with random taps to `height` rows and `width` columns. A row or column
    /// with one tap has weight 1. Where there are several taps, some have weight 0.
    fn resample(
        &mut self,
        value: usize,
        (height, width): (usize, usize),
        (down, along): (usize, usize),
    ) -> Result<usize, String> {
        let Shape { h, w, .. } = self.shape(value);
        let mut axis = |size: usize, from: usize, count: usize| -> Vec<Vec<Tap>> {
            let mut tap = || {
                let weight = match (count, self.random.below(4)) {
                    (1, _) => 1.0,
                    (_, 0) => 0.0,
                    _ => self.random.float(),
                };
                let position = self.random.below(from);
                Tap { position, weight }
            };
            (0..size)
                .map(|_| (0..count).map(|_| tap()).collect())
                .collect()
        };
        let (rows, columns) = (axis(height, h, down), axis(width, w, along));
        let (op, array) = Taps { rows, columns }.node();
        let name = format!("resample[{}]", self.graph.nodes.len());
        let arrays = [(Role::Taps, array.len() / 2, 2)];
        let value = self.graph.push(name, op, &[value], &arrays)?;
        self.tensors.push(array);
        Ok(value)
    }

    /// Adds the product of two slices of the graph's input, which is a vector. The slices are
    /// reshaped to g × m × k and g × k × n, or g × n × k with `transposed`.
    fn product(&mut self, [g, m, k, n]: [usize; 4], transposed: bool) -> Result<usize, String> {
        let a = self.slice(0, Axis::C, 0, g * m * k)?;
        let a = self.push(Op::Reshape(shape(g, m, k)), &[a], &[])?;
        let b = self.slice(0, Axis::C, g * m * k, g * k * n)?;
        let of = if transposed {
            shape(g, n, k)
        } else {
            shape(g, k, n)
        };
        let b = self.push(Op::Reshape(of), &[b], &[])?;
        self.push(Op::Product { transposed }, &[a, b], &[])
    }

    /// Cuts the heads of attention out of an image whose rows are tokens. The heads begin at
    /// channel `first`. `of` is the number of heads and the channels of each head. The result has
    /// the shape heads × tokens × channels.
    fn heads(&mut self, value: usize, first: usize, of: [usize; 2]) -> Result<usize, String> {
        let ([heads, size], Shape { h, .. }) = (of, self.shape(value));
        let value = self.slice(value, Axis::C, first, heads * size)?;
        let value = self.push(Op::Reshape(shape(heads, size, h)), &[value], &[])?;
        self.push(TURNED, &[value], &[])
    }

    /// Adds attention between the tokens of a value. Its channels are the queries of all heads,
    /// then the keys, then the values.
    fn attention(&mut self, value: usize, of @ [heads, size]: [usize; 2]) -> Result<usize, String> {
        let all = heads * size;
        let queries = self.heads(value, 0, of)?;
        let keys = self.heads(value, all, of)?;
        let values = self.heads(value, 2 * all, of)?;
        let scores = self.push(Op::Product { transposed: true }, &[queries, keys], &[])?;
        let swapped = Op::Transpose([Axis::X, Axis::Y, Axis::C]);
        let scores = self.push(swapped, &[scores], &[])?;
        let shares = self.push(Op::OfChannels(OfChannels::Softmax), &[scores], &[])?;
        let shares = self.push(swapped, &[shares], &[])?;
        let mixed = self.push(Op::Product { transposed: false }, &[shares, values], &[])?;
        let mixed = self.push(TURNED, &[mixed], &[])?;
        let h = self.shape(value).h;
        self.push(Op::Reshape(shape(all, h, 1)), &[mixed], &[])
    }

    /// Adds an operation with one constant array for each role in `arrays`.
    pub(crate) fn of_channels(
        &mut self,
        op: Op,
        value: usize,
        arrays: &[Role],
    ) -> Result<usize, String> {
        let shape = self.shape(value);
        // A random choice decides if the array has one number per channel or one per element.
        let mut size = || {
            if self.random.below(2) == 0 {
                shape.c
            } else {
                shape.len()
            }
        };
        let arrays: Vec<(Role, usize, usize)> =
            arrays.iter().map(|&role| (role, size(), 1)).collect();
        self.push(op, &[value], &arrays)
    }
}

fn border(n: usize) -> Border {
    Border {
        top: n,
        left: n,
        bottom: n,
        right: n,
    }
}

fn window(size: (usize, usize), stride: usize, dilation: usize, border: usize) -> Window {
    Window {
        size,
        stride: (stride, stride),
        dilation: (dilation, dilation),
        border: self::border(border),
        ceil: false,
    }
}

const fn shape(c: usize, h: usize, w: usize) -> Shape {
    Shape { c, h, w }
}

/// The operation that swaps the rows and the columns of a value.
const TURNED: Op = Op::Transpose([Axis::C, Axis::X, Axis::Y]);

/// Graphs for tests, each with a name for messages.
#[derive(Default)]
struct EdgeCases(Vec<(&'static str, EdgeGraph)>);

impl EdgeCases {
    /// Adds a graph that `make` builds and whose last value `make` returns. The random seed is the
    /// number of graphs so far plus 1.
    fn add(
        &mut self,
        name: &'static str,
        input: Shape,
        make: impl FnOnce(&mut EdgeGraph) -> Result<usize, String>,
    ) {
        let EdgeCases(graphs) = self;
        let mut graph = EdgeGraph::new(input, graphs.len() as u64 + 1);
        make(&mut graph).unwrap_or_else(|e| panic!("{name}: {e}"));
        graphs.push((name, graph));
    }
}

/// Returns named graphs that each have one operation, or a few operations that belong together.
pub(crate) fn single() -> Vec<(&'static str, EdgeGraph)> {
    let mut cases = EdgeCases::default();
    convolutions(&mut cases);
    pools(&mut cases);
    functions(&mut cases);
    combinations(&mut cases);
    slices(&mut cases);
    softmaxes(&mut cases);
    moves(&mut cases);
    residuals(&mut cases);
    residuals_of_parts(&mut cases);
    resamplings(&mut cases);
    products(&mut cases);
    products_of_parts(&mut cases);
    rounded_sums(&mut cases);
    byte_steps(&mut cases);
    let EdgeCases(graphs) = cases;
    graphs
}

/// Returns named graphs that each have a convolution of whole numbers in bytes, for kernels that
/// multiply bytes.
pub(crate) fn whole() -> Vec<(&'static str, EdgeGraph)> {
    let mut cases = EdgeCases::default();
    for (name, input, window, outputs, (low, high)) in [
        (
            "1x1 of whole numbers",
            shape(32, 1, 1),
            window((1, 1), 1, 1, 0),
            32,
            (-128.0, 127.0),
        ),
        (
            "1x1, few terms",
            shape(32, 5, 3),
            window((1, 1), 1, 1, 0),
            36,
            (0.0, 255.0),
        ),
        (
            "1x1, many terms",
            shape(260, 3, 5),
            window((1, 1), 1, 1, 0),
            70,
            (-77.0, 178.0),
        ),
        (
            "1x1, stride 2",
            shape(64, 5, 6),
            window((1, 1), 2, 1, 0),
            129,
            (0.0, 200.0),
        ),
        (
            "3x3, border",
            shape(4, 5, 5),
            window((3, 3), 1, 1, 1),
            33,
            (-128.0, 127.0),
        ),
        (
            "3x3, dilation",
            shape(12, 8, 7),
            window((3, 3), 1, 2, 1),
            64,
            (-1.0, 254.0),
        ),
        (
            "5x5, wide border",
            shape(8, 4, 9),
            window((5, 5), 2, 1, 3),
            40,
            (3.0, 255.0),
        ),
        ("uneven window", shape(20, 6, 7), UNEVEN, 48, (-255.0, -2.0)),
    ] {
        cases.add(name, input, |g| {
            let value = g.whole_within(low, high)?;
            g.whole_convolution(value, outputs, window)
        });
    }
    for channels in [32, 68] {
        cases.add("residual of whole numbers", shape(channels, 4, 5), |g| {
            let value = g.whole()?;
            let sum = g.whole_convolution(value, channels, window((3, 3), 1, 1, 1))?;
            g.combine(Arithmetic::Add, [sum, value])
        });
    }
    let EdgeCases(graphs) = cases;
    graphs
}

/// A window whose size, stride and border differ between rows and columns.
const UNEVEN: Window = Window {
    size: (2, 3),
    stride: (1, 2),
    dilation: (1, 1),
    border: Border {
        top: 0,
        left: 2,
        bottom: 1,
        right: 0,
    },
    ceil: false,
};

fn convolutions(cases: &mut EdgeCases) {
    for (name, input, window, outputs) in [
        ("one pixel", shape(1, 1, 1), window((1, 1), 1, 1, 0), 1),
        ("1x1", shape(5, 4, 3), window((1, 1), 1, 1, 0), 19),
        ("1x1 of 16", shape(16, 3, 3), window((1, 1), 1, 1, 0), 32),
        ("1x1, stride 2", shape(3, 5, 4), window((1, 1), 2, 1, 0), 7),
        ("3x3", shape(3, 6, 7), window((3, 3), 1, 1, 0), 5),
        ("3x3, border", shape(4, 5, 5), window((3, 3), 1, 1, 1), 17),
        (
            "3x3, stride 2, border",
            shape(2, 7, 8),
            window((3, 3), 2, 1, 1),
            4,
        ),
        (
            "window over all",
            shape(3, 4, 6),
            window((4, 6), 1, 1, 0),
            9,
        ),
        (
            "window larger than the image",
            shape(2, 2, 3),
            window((5, 5), 1, 1, 2),
            3,
        ),
        (
            "stride larger than the window",
            shape(2, 9, 8),
            window((2, 2), 3, 1, 0),
            3,
        ),
        ("dilation", shape(2, 9, 9), window((3, 3), 1, 2, 2), 6),
        (
            "dilation larger than the image",
            shape(1, 3, 3),
            window((3, 3), 1, 4, 4),
            2,
        ),
        ("5x1", shape(2, 9, 1), window((5, 1), 1, 1, 0), 6),
        ("uneven border", shape(3, 5, 6), UNEVEN, 4),
    ] {
        cases.add(name, input, |g| g.convolution(0, outputs, window, 1));
    }
    for (name, input, window) in [
        ("depthwise", shape(5, 6, 6), window((3, 3), 1, 1, 1)),
        (
            "depthwise of 16, stride 2",
            shape(16, 7, 6),
            window((3, 3), 2, 1, 1),
        ),
        ("depthwise, uneven", shape(33, 4, 5), UNEVEN),
        (
            "depthwise, dilation",
            shape(2, 9, 7),
            window((3, 2), 1, 3, 2),
        ),
    ] {
        cases.add(name, input, |g| g.convolution(0, input.c, window, input.c));
    }
}

fn pools(cases: &mut EdgeCases) {
    let ceil = Window {
        ceil: true,
        stride: (2, 2),
        ..Window::of((3, 3))
    };
    let bordered = Window {
        border: border(1),
        ..ceil
    };
    for kind in [Pool::Max, Pool::Mean, Pool::PaddedMean] {
        for (name, input, window) in [
            ("pool", shape(3, 6, 6), window((2, 2), 2, 1, 0)),
            ("pool, border", shape(17, 5, 7), window((3, 3), 2, 1, 1)),
            ("pool over all", shape(4, 3, 5), Window::of((3, 5))),
            ("pool, beyond the image", shape(2, 6, 8), ceil),
            ("pool, beyond the border", shape(2, 6, 8), bordered),
            ("pool, dilation", shape(2, 8, 8), window((2, 3), 1, 2, 1)),
        ] {
            cases.add(name, input, |g| {
                g.push(Op::Pool { kind, window }, &[0], &[])
            });
        }
    }
}

fn functions(cases: &mut EdgeCases) {
    let image = shape(3, 4, 5);
    for activation in Activation::ALL {
        // Logarithm, square root and reciprocal need positive numbers, so they get the exponentials
        // of the input.
        let of = |g: &mut EdgeGraph| match activation {
            Activation::Math(Math::Log | Math::Sqrt | Math::Reciprocal) => {
                g.activation(0, Activation::Math(Math::Exp))
            }
            _ => Ok(0),
        };
        cases.add("activation", image, |g| {
            let from = of(g)?;
            g.activation(from, activation)
        });
    }
    cases.add("prelu", image, |g| {
        g.of_channels(Op::PRelu, 0, &[Role::Factors])
    });
    cases.add("scale", image, |g| g.scale(0));
    for (factors, summands) in [(3, 60), (60, 3), (60, 60)] {
        let arrays = [(Role::Factors, factors, 1), (Role::Biases, summands, 1)];
        cases.add("scale, each array of another size", image, |g| {
            g.push(Op::Scale, &[0], &arrays)
        });
    }
    cases.add("scale of a vector", shape(7, 1, 1), |g| g.scale(0));
}

fn combinations(cases: &mut EdgeCases) {
    for arithmetic in Arithmetic::ALL {
        cases.add("combined with itself", shape(3, 2, 5), |g| {
            // Clipping to 0.5 … 2 keeps the divisor of a division away from zero.
            let gentle = Activation::Clip {
                low: Float::new(0.5),
                high: Float::new(2.0),
            };
            let other = g.activation(0, gentle)?;
            g.combine(arithmetic, [0, other])
        });
        cases.add("combined with channels", shape(5, 3, 4), |g| {
            let pool = Op::Pool {
                kind: Pool::Mean,
                window: Window::of((3, 4)),
            };
            let means = g.push(pool, &[0], &[])?;
            let sigmoid = g.activation(means, Activation::Sigmoid)?;
            g.combine(arithmetic, [0, sigmoid])
        });
    }
    for axis in [Axis::C, Axis::Y, Axis::X] {
        cases.add("concatenated", shape(3, 4, 5), |g| {
            let other = g.activation(0, Activation::Relu)?;
            g.push(Op::Concat(axis), &[0, other, 0], &[])
        });
    }
}

fn slices(cases: &mut EdgeCases) {
    for (axis, at) in [(Axis::C, 1), (Axis::Y, 2), (Axis::X, 3)] {
        cases.add("sliced", shape(3, 4, 5), |g| g.slice(0, axis, at, 1));
        cases.add("slice of a layer", shape(3, 4, 5), |g| {
            let value = g.convolution(0, 6, window((1, 1), 1, 1, 0), 1)?;
            g.slice(value, axis, at, 2)
        });
        cases.add("layers of slices", shape(9, 4, 5), |g| {
            let first = g.slice(0, axis, 0, at)?;
            let other = g.slice(0, axis, at, 1)?;
            let first = g.convolution(first, 5, window((2, 2), 1, 1, 1), 1)?;
            let other = g.affine(other, 5)?;
            let gate = g.activation(other, Activation::Sigmoid)?;
            g.combine(Arithmetic::Multiply, [first, gate])
        });
        cases.add("functions of slices", shape(4, 4, 4), |g| {
            let value = g.convolution(0, 4, window((1, 1), 1, 1, 0), 1)?;
            let low = g.slice(value, axis, 0, 2)?;
            let high = g.slice(value, axis, 2, 2)?;
            let low = g.activation(low, Activation::Relu)?;
            let high = g.scale(high)?;
            let sum = g.combine(Arithmetic::Add, [low, high])?;
            g.push(Op::Concat(axis), &[sum, high, low], &[])
        });
    }
    // If the vector has few elements outside of the slice (n = 9), the layer reads the whole
    // vector. Its weights are 0 for elements outside of the slice. Otherwise (n = 100) the program
    // copies the slice.
    for n in [9, 100] {
        cases.add("slices of a vector", shape(n, 1, 1), |g| {
            let first = g.slice(0, Axis::C, 0, 4)?;
            let other = g.slice(0, Axis::C, 4, n - 4)?;
            let (first, other) = (g.affine(first, 5)?, g.affine(other, 5)?);
            g.combine(Arithmetic::Add, [first, other])
        });
        cases.add("function of a slice of a vector", shape(n, 1, 1), |g| {
            let value = g.affine(0, n)?;
            let first = g.slice(value, Axis::C, 0, 4)?;
            let first = g.scale(first)?;
            g.push(Op::OfChannels(OfChannels::Softmax), &[first], &[])
        });
        cases.add("slice of a vector at the end", shape(n, 1, 1), |g| {
            let value = g.affine(0, n)?;
            g.slice(value, Axis::C, 0, 4)
        });
    }
}

/// Adds graphs with unequally padded values, and graphs with both kinds of softmax.
fn softmaxes(cases: &mut EdgeCases) {
    let value = Float::new(0.25);
    for (name, before, behind) in [
        ("border", [0, 1, 2], [0, 0, 3]),
        ("channels behind", [0; 3], [5, 0, 0]),
        ("channels and rows", [2, 0, 1], [1, 3, 0]),
    ] {
        let padding = Padding { before, behind };
        cases.add(name, shape(3, 2, 3), |g| {
            g.push(Op::Pad { padding, value }, &[0], &[])
        });
    }
    let integers = OfChannels::IntegerSoftmax(Float::new(1.5));
    for of in [OfChannels::Softmax, OfChannels::LogSoftmax, integers] {
        for (name, input) in [
            ("softmax", shape(5, 2, 3)),
            ("softmax of a vector", shape(18, 1, 1)),
        ] {
            cases.add(name, input, |g| g.push(Op::OfChannels(of), &[0], &[]));
        }
    }
}

/// Adds graphs that round the channels of pixels, and all values of a record.
fn byte_steps(cases: &mut EdgeCases) {
    let of = Op::OfChannels(OfChannels::ByteSteps);
    for input in [shape(5, 2, 3), shape(37, 1, 1)] {
        cases.add("byte steps", input, |g| g.push(of, &[0], &[]));
    }
    cases.add("byte steps of an image", shape(6, 3, 4), |g| {
        let vector = g.push(Op::Reshape(shape(72, 1, 1)), &[0], &[])?;
        let rounded = g.push(of, &[vector], &[])?;
        g.push(Op::Reshape(shape(6, 3, 4)), &[rounded], &[])
    });
}

fn moves(cases: &mut EdgeCases) {
    let image = shape(3, 4, 5);
    let reshaped = Op::Reshape(shape(5, 2, 6));
    cases.add("reshape", image, |g| g.push(reshaped, &[0], &[]));
    cases.add("reshape and convolution", image, |g| {
        let value = g.push(reshaped, &[0], &[])?;
        g.convolution(value, 3, window((2, 2), 1, 1, 0), 1)
    });
    for axes in [
        [Axis::Y, Axis::X, Axis::C],
        [Axis::X, Axis::C, Axis::Y],
        [Axis::C, Axis::X, Axis::Y],
    ] {
        let transpose = Op::Transpose(axes);
        cases.add("transposed", image, |g| g.push(transpose, &[0], &[]));
        cases.add("transposed and convolution", image, |g| {
            let value = g.push(transpose, &[0], &[])?;
            g.same(value, 3)
        });
    }
    cases.add("flattened", image, |g| {
        let value = g.same(0, 6)?;
        let value = g.push(Op::Reshape(Shape::vector(6 * 20)), &[value], &[])?;
        g.affine(value, 7)
    });
    cases.add("affine of an image", image, |g| g.affine(0, 7));
    cases.add("an image of an affine layer", shape(8, 1, 1), |g| {
        let value = g.affine(0, 3 * 4 * 4)?;
        let value = g.push(Op::Reshape(shape(3, 4, 4)), &[value], &[])?;
        g.same(value, 5)
    });
}

fn residuals(cases: &mut EdgeCases) {
    use Arithmetic::{Add, Multiply};
    for (input, outputs) in [
        (shape(3, 5, 4), 17),
        (shape(16, 2, 3), 16),
        (shape(2, 1, 1), 18),
    ] {
        cases.add("residual", input, |g| {
            let before = g.same(0, outputs)?;
            let value = g.same(before, outputs)?;
            g.combine(Add, [value, before])
        });
    }
    cases.add(
        "residual, its sum the second operand, read again",
        shape(3, 3, 4),
        |g| {
            let before = g.same(0, 20)?;
            let value = g.same(before, 20)?;
            let both = g.combine(Add, [before, value])?;
            let value = g.same(both, 20)?;
            let both = g.combine(Add, [both, value])?;
            g.combine(Multiply, [both, before])
        },
    );
    cases.add("residual of two convolutions", shape(5, 7, 6), |g| {
        let long = g.convolution(0, 33, window((3, 3), 2, 1, 1), 1)?;
        let short = g.convolution(0, 33, window((1, 1), 2, 1, 0), 1)?;
        g.combine(Add, [short, long])
    });
    cases.add("residual of the input", shape(32, 2, 3), |g| {
        let value = g.same(0, 32)?;
        g.combine(Add, [value, 0])
    });
}

/// Adds residuals (sums of two values) where one operand has a different row map than the result.
fn residuals_of_parts(cases: &mut EdgeCases) {
    use Arithmetic::Add;
    cases.add("residual of a slice", shape(5, 4, 4), |g| {
        let value = g.same(0, 32)?;
        let part = g.slice(value, Axis::C, 16, 16)?;
        let value = g.same(0, 16)?;
        g.combine(Add, [value, part])
    });
    cases.add("residual of a pool", shape(5, 6, 4), |g| {
        let pool = Op::Pool {
            kind: Pool::Max,
            window: window((2, 2), 2, 1, 0),
        };
        let part = g.push(pool, &[0], &[])?;
        let value = g.convolution(0, 5, window((3, 3), 2, 1, 1), 1)?;
        g.combine(Add, [value, part])
    });
    cases.add("residual of a pixel", shape(5, 4, 4), |g| {
        let part = g.convolution(0, 5, window((4, 4), 1, 1, 0), 1)?;
        let value = g.same(0, 5)?;
        g.combine(Add, [value, part])
    });
    cases.add("twice a convolution", shape(5, 4, 4), |g| {
        let value = g.same(0, 5)?;
        g.combine(Add, [value, value])
    });
}

fn resamplings(cases: &mut EdgeCases) {
    for (name, input, size, taps) in [
        ("resampled, copies", shape(3, 4, 5), (7, 9), (1, 1)),
        ("resampled by two taps", shape(17, 5, 4), (3, 8), (2, 2)),
        ("resampled by four taps", shape(16, 3, 6), (6, 6), (4, 4)),
        ("resampled along y", shape(33, 4, 3), (5, 3), (3, 1)),
        ("resampled along x", shape(2, 1, 9), (1, 4), (1, 2)),
        ("resampled by the most taps", shape(1, 9, 2), (2, 3), (8, 8)),
        ("a pixel repeated", shape(20, 1, 1), (3, 2), (1, 1)),
        ("resampled to a pixel", shape(5, 3, 4), (1, 1), (2, 3)),
        ("a vector resampled", shape(18, 1, 1), (1, 1), (1, 2)),
    ] {
        cases.add(name, input, |g| g.resample(0, size, taps));
    }
    cases.add("convolutions around a resampling", shape(3, 5, 5), |g| {
        let value = g.same(0, 20)?;
        let value = g.resample(value, (10, 7), (2, 2))?;
        g.same(value, 5)
    });
    cases.add("resampled slice", shape(6, 5, 4), |g| {
        let value = g.slice(0, Axis::C, 2, 3)?;
        g.resample(value, (4, 6), (2, 1))
    });
    cases.add("resampled, turned", shape(6, 5, 4), |g| {
        let value = g.push(Op::Transpose([Axis::Y, Axis::X, Axis::C]), &[0], &[])?;
        let value = g.resample(value, (3, 8), (1, 2))?;
        let value = g.push(Op::Transpose([Axis::X, Axis::C, Axis::Y]), &[value], &[])?;
        g.affine(value, 5)
    });
}

/// Adds products whose sizes are just below, at or above the length of a vector or the number of
/// rows in a block.
fn products(cases: &mut EdgeCases) {
    for (name, sizes) in [
        ("product of two numbers", [1, 1, 1, 1]),
        ("product of a row", [1, 1, 7, 5]),
        ("product with a column", [2, 5, 3, 1]),
        ("outer products", [3, 4, 1, 6]),
        ("products in three groups", [3, 4, 5, 6]),
        ("products of whole vectors", [2, 8, 16, 16]),
        ("products of a block of rows", [1, 48, 3, 32]),
        ("products of more rows than a block", [2, 49, 2, 17]),
        ("products of two blocks of rows", [1, 97, 2, 8]),
        ("products of many columns", [1, 3, 4, 65]),
    ] {
        for transposed in [false, true] {
            let [g, m, k, n] = sizes;
            let input = Shape::vector(g * k * (m + n));
            cases.add(name, input, |c| c.product(sizes, transposed));
        }
    }
}

/// Adds products whose operands are views of other values, such as transpositions, and products
/// that other operations read.
fn products_of_parts(cases: &mut EdgeCases) {
    cases.add("attention", shape(18, 7, 1), |g| g.attention(0, [3, 2]));
    cases.add("attention of a layer", shape(5, 20, 1), |g| {
        let value = g.convolution(0, 48, Window::of((1, 1)), 1)?;
        let value = g.attention(value, [2, 8])?;
        g.convolution(value, 9, Window::of((1, 1)), 1)
    });
    cases.add("a value by itself", shape(3, 6, 4), |g| {
        g.push(Op::Product { transposed: true }, &[0, 0], &[])
    });
    cases.add("products of turned values", shape(3, 6, 4), |g| {
        let turned = g.push(TURNED, &[0], &[])?;
        g.push(Op::Product { transposed: false }, &[turned, 0], &[])
    });
    cases.add("products of values in another order", shape(5, 4, 3), |g| {
        let value = g.convolution(0, 5, Window::of((1, 1)), 1)?;
        let value = g.push(Op::Reshape(shape(3, 4, 5)), &[value], &[])?;
        g.push(Op::Product { transposed: true }, &[value, value], &[])
    });
    cases.add("a sum and a scale of products", shape(2, 5, 5), |g| {
        let value = g.same(0, 2)?;
        let value = g.push(Op::Product { transposed: false }, &[value, 0], &[])?;
        let sum = g.combine(Arithmetic::Add, [value, 0])?;
        let sum = g.scale(sum)?;
        g.combine(Arithmetic::Multiply, [sum, value])
    });
    cases.add(
        "products as the input of a convolution",
        shape(3, 6, 4),
        |g| {
            let value = g.push(Op::Product { transposed: true }, &[0, 0], &[])?;
            let value = g.same(value, 4)?;
            g.activation(value, Activation::Relu)
        },
    );
}

/// Adds rounded sums of whole numbers from −128 to 127. Some are in the middle of two whole
/// numbers. They are the last graphs, and have operations on two values and activations alone. So
/// the checks of kernels for other operations do not depend on them.
fn rounded_sums(cases: &mut EdgeCases) {
    let unit = 1.0 / (1 << 20) as f32;
    for [a, b] in [
        [0.5, 0.25],
        [-1.5, 0.125],
        [1_234_567.0 * unit, 956_789.0 * unit],
        [255.0 + 127.0 / 128.0, 1.0 / 1024.0],
        [1.0 / 1024.0, 1_048_575.0 * unit / 1024.0],
    ] {
        let (a, b) = (Float::new(a), Float::new(b));
        let sum = Arithmetic::RoundedSum { a, b };
        for input in [shape(3, 2, 5), shape(17, 4, 3), shape(7, 1, 1)] {
            cases.add("rounded sum", input, |g| {
                let value = g.whole()?;
                let other = g.activation(value, Activation::Relu)?;
                g.combine(sum, [value, other])
            });
        }
        cases.add("rounded sum of turned values", shape(3, 4, 4), |g| {
            let value = g.whole()?;
            let axes = [Axis::C, Axis::X, Axis::Y];
            let turned = g.push(Op::Transpose(axes), &[value], &[])?;
            g.combine(sum, [value, turned])
        });
        cases.add("rounded sum with channels", shape(5, 3, 4), |g| {
            let value = g.whole()?;
            let line = g.slice(value, Axis::Y, 1, 1)?;
            let pixel = g.slice(line, Axis::X, 2, 1)?;
            g.combine(sum, [value, pixel])
        });
    }
}

/// Builds a random graph of several operations. Its last operation is an affine layer.
pub(crate) fn random(seed: u64) -> EdgeGraph {
    let mut g = EdgeGraph::new(shape(1, 1, 1), seed);
    let (c, height, width) = (
        1 + g.random.below(6),
        3 + g.random.below(8),
        3 + g.random.below(8),
    );
    g.graph = Graph::new(shape(c, height, width));
    let mut value = 0;
    for _ in 0..3 + g.random.below(7) {
        value = random_node(&mut g, value).unwrap_or(value);
    }
    let n = g.shape(value).len();
    let vector = Op::Reshape(Shape::vector(n));
    let value = g.push(vector, &[value], &[]).unwrap();
    let outputs = 2 + g.random.below(9);
    let value = g.affine(value, outputs).unwrap();
    g.graph.outputs = vec![value].into();
    g
}

fn random_window(g: &mut EdgeGraph, shape: Shape) -> Window {
    let mut size = |n: usize| 1 + g.random.below(n.min(3));
    let (height, width) = (size(shape.h), size(shape.w));
    Window {
        stride: (1 + g.random.below(2), 1 + g.random.below(2)),
        border: Border {
            top: g.random.below(height),
            left: g.random.below(width),
            bottom: g.random.below(height),
            right: g.random.below(width),
        },
        ..Window::of((height, width))
    }
}

/// Adds a random operation that reads `value`. Returns an error if the operation does not fit the
/// shape of `value`.
fn random_node(g: &mut EdgeGraph, value: usize) -> Result<usize, String> {
    let s = g.shape(value);
    let window = random_window(g, s);
    let outputs = 1 + g.random.below(20);
    let one_pixel = Window::of((1, 1));
    match g.random.below(16) {
        0..=2 => g.convolution(value, outputs, window, 1),
        3 => g.convolution(value, s.c, window, s.c),
        4 => {
            let kind = Pool::Max;
            g.push(Op::Pool { kind, window }, &[value], &[])
        }
        5 => {
            let kind = Pool::Mean;
            g.push(Op::Pool { kind, window }, &[value], &[])
        }
        6 => {
            // Only the first 17 activations are used. The others have steps or an unbounded slope,
            // so no bound on their errors is known.
            let activation = Activation::ALL[g.random.below(17)];
            g.activation(value, activation)
        }
        7 => g.scale(value),
        8 => {
            let activated = g.activation(value, Activation::HardSwish)?;
            let convolved = g.convolution(activated, s.c, one_pixel, 1)?;
            g.combine(Arithmetic::Add, [convolved, value])
        }
        9 => {
            let convolved = g.convolution(value, outputs, one_pixel, 1)?;
            g.push(Op::Concat(Axis::C), &[value, convolved], &[])
        }
        10 => g.push(Op::Transpose([Axis::C, Axis::X, Axis::Y]), &[value], &[]),
        11 | 12 => random_slices(g, value),
        13 => {
            let size = (1 + g.random.below(9), 1 + g.random.below(9));
            let taps = (1 + g.random.below(3), 1 + g.random.below(3));
            g.resample(value, size, taps)
        }
        14 => {
            let other = g.activation(value, Activation::Sigmoid)?;
            let transposed = g.random.below(2) == 0;
            let other = match transposed {
                true => other,
                false => g.push(TURNED, &[other], &[])?,
            };
            g.push(Op::Product { transposed }, &[value, other], &[])
        }
        _ => {
            let padding = Padding {
                before: [0, 1, 0],
                behind: [g.random.below(2) * 3, 1, 2],
            };
            let value_around = Float::new(0.0);
            let op = Op::Pad {
                padding,
                value: value_around,
            };
            g.push(op, &[value], &[])
        }
    }
}

/// Cuts `value` into two slices and applies ReLU to the second. Then either concatenates both
/// slices or drops the first.
fn random_slices(g: &mut EdgeGraph, value: usize) -> Result<usize, String> {
    let axis = [Axis::C, Axis::Y, Axis::X][g.random.below(3)];
    let all = g.shape(value).along(axis);
    let both = g.random.below(2) == 0;
    let first = g.random.below(all);
    let low = g.slice(value, axis, 0, first);
    let high = g.slice(value, axis, first, all - first);
    let high = high.and_then(|high| g.activation(high, Activation::Relu));
    match (low, high) {
        (Ok(low), Ok(high)) if both => g.push(Op::Concat(axis), &[high, low], &[]),
        (_, high) => high,
    }
}
