//! Graphs for checks: every operation alone at its edges, and random ones.

use super::random::Random;
use crate::ir::graph::{Graph, Role, Shape};
use crate::ir::op::{Activation, Arithmetic, Axis, Border, Float, Op, Pool, SoftmaxOf, Window};

/// A graph with random weights.
pub(crate) struct Builder {
    /// The graph.
    pub(crate) graph: Graph,
    /// The numbers of its arrays.
    pub(crate) tensors: Vec<Vec<f32>>,
    /// For more of them.
    pub(crate) random: Random,
}

impl Builder {
    pub(crate) fn new(input: Shape, seed: u64) -> Builder {
        Builder {
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

    pub(crate) fn push(
        &mut self,
        op: Op,
        inputs: &[usize],
        arrays: &[(Role, usize, usize)],
    ) -> Result<usize, String> {
        let name = format!("{}[{}]", op.name(), self.graph.nodes.len());
        let value = self.graph.push(name, op, inputs, arrays)?;
        for &(role, rows, cols) in arrays {
            // Sums keep the size of their terms.
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
        let taps = window.size.0 * window.size.1 * (self.shape(value).c / groups);
        let arrays = [(Role::Weights, outputs, taps), (Role::Biases, outputs, 1)];
        self.push(Op::Convolution { window, groups }, &[value], &arrays)
    }

    fn affine(&mut self, value: usize, outputs: usize) -> Result<usize, String> {
        let inputs = self.shape(value).len();
        let arrays = [(Role::Weights, outputs, inputs), (Role::Biases, outputs, 1)];
        self.push(Op::Affine, &[value], &arrays)
    }

    pub(crate) fn of_channels(
        &mut self,
        op: Op,
        value: usize,
        arrays: &[Role],
    ) -> Result<usize, String> {
        let shape = self.shape(value);
        // Each array has a size of its own.
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

fn window(size: (usize, usize), stride: usize, dilation: usize, border: usize) -> Window {
    Window {
        size,
        stride: (stride, stride),
        dilation: (dilation, dilation),
        border: Border {
            top: border,
            left: border,
            bottom: border,
            right: border,
        },
        ceil: false,
    }
}

const fn shape(c: usize, h: usize, w: usize) -> Shape {
    Shape { c, h, w }
}

/// Each operation alone, at its edges, with a name for messages.
pub(crate) fn single() -> Vec<(&'static str, Builder)> {
    let mut all: Vec<(&'static str, Builder)> = Vec::new();
    let mut add = |name, input: Shape, make: &dyn Fn(&mut Builder) -> Result<usize, String>| {
        let mut builder = Builder::new(input, all.len() as u64 + 1);
        make(&mut builder).unwrap_or_else(|e| panic!("{name}: {e}"));
        all.push((name, builder));
    };
    let dense = |w: Window, outputs: usize| move |b: &mut Builder| b.convolution(0, outputs, w, 1);
    let each = |w: Window| move |b: &mut Builder| b.convolution(0, b.shape(0).c, w, b.shape(0).c);
    add(
        "one pixel",
        shape(1, 1, 1),
        &dense(window((1, 1), 1, 1, 0), 1),
    );
    add("1x1", shape(5, 4, 3), &dense(window((1, 1), 1, 1, 0), 19));
    add(
        "1x1 of 16",
        shape(16, 3, 3),
        &dense(window((1, 1), 1, 1, 0), 32),
    );
    add(
        "1x1, stride 2",
        shape(3, 5, 4),
        &dense(window((1, 1), 2, 1, 0), 7),
    );
    add("3x3", shape(3, 6, 7), &dense(window((3, 3), 1, 1, 0), 5));
    add(
        "3x3, border",
        shape(4, 5, 5),
        &dense(window((3, 3), 1, 1, 1), 17),
    );
    add(
        "3x3, stride 2, border",
        shape(2, 7, 8),
        &dense(window((3, 3), 2, 1, 1), 4),
    );
    add(
        "window over all",
        shape(3, 4, 6),
        &dense(window((4, 6), 1, 1, 0), 9),
    );
    add(
        "window larger than the image",
        shape(2, 2, 3),
        &dense(window((5, 5), 1, 1, 2), 3),
    );
    add(
        "stride larger than the window",
        shape(2, 9, 8),
        &dense(window((2, 2), 3, 1, 0), 3),
    );
    add(
        "dilation",
        shape(2, 9, 9),
        &dense(window((3, 3), 1, 2, 2), 6),
    );
    add(
        "dilation larger than the image",
        shape(1, 3, 3),
        &dense(window((3, 3), 1, 4, 4), 2),
    );
    add("5x1", shape(2, 9, 1), &dense(window((5, 1), 1, 1, 0), 6));
    let uneven = Window {
        border: Border {
            top: 0,
            left: 2,
            bottom: 1,
            right: 0,
        },
        stride: (1, 2),
        ..Window::of((2, 3))
    };
    add("uneven border", shape(3, 5, 6), &dense(uneven, 4));
    add("depthwise", shape(5, 6, 6), &each(window((3, 3), 1, 1, 1)));
    add(
        "depthwise of 16, stride 2",
        shape(16, 7, 6),
        &each(window((3, 3), 2, 1, 1)),
    );
    add("depthwise, uneven", shape(33, 4, 5), &each(uneven));
    add(
        "depthwise, dilation",
        shape(2, 9, 7),
        &each(window((3, 2), 1, 3, 2)),
    );
    for kind in [Pool::Max, Pool::Mean, Pool::PaddedMean] {
        let pool =
            |window: Window| move |b: &mut Builder| b.push(Op::Pool { kind, window }, &[0], &[]);
        add(
            "pool",
            shape(3, 6, 6),
            &pool(Window {
                stride: (2, 2),
                ..Window::of((2, 2))
            }),
        );
        add(
            "pool, border",
            shape(17, 5, 7),
            &pool(window((3, 3), 2, 1, 1)),
        );
        add("pool over all", shape(4, 3, 5), &pool(Window::of((3, 5))));
        let ceil = Window {
            ceil: true,
            stride: (2, 2),
            ..Window::of((3, 3))
        };
        add("pool, beyond the image", shape(2, 6, 8), &pool(ceil));
        let bordered = Border {
            top: 1,
            left: 1,
            bottom: 1,
            right: 1,
        };
        add(
            "pool, beyond the border",
            shape(2, 6, 8),
            &pool(Window {
                border: bordered,
                ..ceil
            }),
        );
        add(
            "pool, dilation",
            shape(2, 8, 8),
            &pool(window((2, 3), 1, 2, 1)),
        );
    }
    for activation in Activation::ALL {
        add("activation", shape(3, 4, 5), &|b| {
            b.push(Op::Activation(activation), &[0], &[])
        });
    }
    add("prelu", shape(3, 4, 5), &|b| {
        b.of_channels(Op::PRelu, 0, &[Role::Factors])
    });
    add("scale", shape(3, 4, 5), &|b| {
        b.of_channels(Op::Scale, 0, &[Role::Factors, Role::Biases])
    });
    for (factors, summands) in [(3, 60), (60, 3), (60, 60)] {
        add("scale, each array of another size", shape(3, 4, 5), &|b| {
            b.push(
                Op::Scale,
                &[0],
                &[(Role::Factors, factors, 1), (Role::Biases, summands, 1)],
            )
        });
    }
    add("scale of a vector", shape(7, 1, 1), &|b| {
        b.of_channels(Op::Scale, 0, &[Role::Factors, Role::Biases])
    });
    for arithmetic in Arithmetic::ALL {
        add("combined with itself", shape(3, 2, 5), &|b| {
            // Away from zero, which is divided by.
            let gentle = Activation::Clip {
                low: Float::new(0.5),
                high: Float::new(2.0),
            };
            let other = b.push(Op::Activation(gentle), &[0], &[])?;
            b.push(Op::Combine(arithmetic), &[0, other], &[])
        });
        add("combined with channels", shape(5, 3, 4), &|b| {
            let pool = Op::Pool {
                kind: Pool::Mean,
                window: Window::of((3, 4)),
            };
            let means = b.push(pool, &[0], &[])?;
            let sigmoid = b.push(Op::Activation(Activation::Sigmoid), &[means], &[])?;
            b.push(Op::Combine(arithmetic), &[0, sigmoid], &[])
        });
    }
    for axis in [Axis::C, Axis::Y, Axis::X] {
        add("concatenated", shape(3, 4, 5), &|b| {
            let other = b.push(Op::Activation(Activation::Relu), &[0], &[])?;
            b.push(Op::Concat(axis), &[0, other, 0], &[])
        });
    }
    for (axis, at) in [(Axis::C, 1), (Axis::Y, 2), (Axis::X, 3)] {
        let slice = |first: usize, size: usize| Op::Slice { axis, first, size };
        add("sliced", shape(3, 4, 5), &|b| {
            b.push(slice(at, 1), &[0], &[])
        });
        add("slice of a layer", shape(3, 4, 5), &|b| {
            let value = b.convolution(0, 6, window((1, 1), 1, 1, 0), 1)?;
            b.push(slice(at, 2), &[value], &[])
        });
        add("layers of slices", shape(9, 4, 5), &|b| {
            let (first, other) = (
                b.push(slice(0, at), &[0], &[])?,
                b.push(slice(at, 1), &[0], &[])?,
            );
            let layers = [
                b.convolution(first, 5, window((2, 2), 1, 1, 1), 1)?,
                b.affine(other, 5)?,
            ];
            let gate = b.push(Op::Activation(Activation::Sigmoid), &[layers[1]], &[])?;
            b.push(Op::Combine(Arithmetic::Multiply), &[layers[0], gate], &[])
        });
        add("functions of slices", shape(4, 4, 4), &|b| {
            let value = b.convolution(0, 4, window((1, 1), 1, 1, 0), 1)?;
            let (low, high) = (
                b.push(slice(0, 2), &[value], &[])?,
                b.push(slice(2, 2), &[value], &[])?,
            );
            let low = b.push(Op::Activation(Activation::Relu), &[low], &[])?;
            let high = b.of_channels(Op::Scale, high, &[Role::Factors, Role::Biases])?;
            let sum = b.push(Op::Combine(Arithmetic::Add), &[low, high], &[])?;
            b.push(Op::Concat(axis), &[sum, high, low], &[])
        });
    }
    // Of few others and of many: weights of 0, a copy.
    for n in [9, 100] {
        let slice = |first: usize, size: usize| Op::Slice {
            axis: Axis::C,
            first,
            size,
        };
        add("slices of a vector", shape(n, 1, 1), &|b| {
            let (first, other) = (
                b.push(slice(0, 4), &[0], &[])?,
                b.push(slice(4, n - 4), &[0], &[])?,
            );
            let (first, other) = (b.affine(first, 5)?, b.affine(other, 5)?);
            b.push(Op::Combine(Arithmetic::Add), &[first, other], &[])
        });
        add("function of a slice of a vector", shape(n, 1, 1), &|b| {
            let value = b.affine(0, n)?;
            let first = b.push(slice(0, 4), &[value], &[])?;
            let first = b.of_channels(Op::Scale, first, &[Role::Factors, Role::Biases])?;
            b.push(Op::Softmax(SoftmaxOf::Linear), &[first], &[])
        });
        add("slice of a vector at the end", shape(n, 1, 1), &|b| {
            let value = b.affine(0, n)?;
            b.push(slice(0, 4), &[value], &[])
        });
    }
    add("border", shape(3, 2, 3), &|b| {
        let border = Border {
            top: 1,
            left: 2,
            bottom: 0,
            right: 3,
        };
        b.push(
            Op::Pad {
                border,
                value: Float::new(0.25),
            },
            &[0],
            &[],
        )
    });
    for of in [SoftmaxOf::Linear, SoftmaxOf::Logarithm] {
        add("softmax", shape(5, 2, 3), &|b| {
            b.push(Op::Softmax(of), &[0], &[])
        });
        add("softmax of a vector", shape(18, 1, 1), &|b| {
            b.push(Op::Softmax(of), &[0], &[])
        });
    }
    add("reshape", shape(3, 4, 5), &|b| {
        b.push(Op::Reshape(shape(5, 2, 6)), &[0], &[])
    });
    add("reshape and convolution", shape(3, 4, 5), &|b| {
        let value = b.push(Op::Reshape(shape(5, 2, 6)), &[0], &[])?;
        b.convolution(value, 3, window((2, 2), 1, 1, 0), 1)
    });
    for axes in [
        [Axis::Y, Axis::X, Axis::C],
        [Axis::X, Axis::C, Axis::Y],
        [Axis::C, Axis::X, Axis::Y],
    ] {
        add("transposed", shape(3, 4, 5), &|b| {
            b.push(Op::Transpose(axes), &[0], &[])
        });
        add("transposed and convolution", shape(3, 4, 5), &|b| {
            let value = b.push(Op::Transpose(axes), &[0], &[])?;
            b.convolution(value, 3, window((2, 2), 1, 1, 1), 1)
        });
    }
    add("flattened", shape(3, 4, 5), &|b| {
        let value = b.convolution(0, 6, window((3, 3), 1, 1, 1), 1)?;
        let value = b.push(Op::Reshape(Shape::vector(6 * 20)), &[value], &[])?;
        b.affine(value, 7)
    });
    add("affine of an image", shape(3, 4, 5), &|b| b.affine(0, 7));
    add("an image of an affine layer", shape(8, 1, 1), &|b| {
        let value = b.affine(0, 3 * 4 * 4)?;
        let value = b.push(Op::Reshape(shape(3, 4, 4)), &[value], &[])?;
        b.convolution(value, 5, window((3, 3), 1, 1, 1), 1)
    });
    let same = |b: &mut Builder, value: usize, outputs: usize| {
        b.convolution(value, outputs, window((3, 3), 1, 1, 1), 1)
    };
    let sum = Op::Combine(Arithmetic::Add);
    for (input, outputs) in [
        (shape(3, 5, 4), 17),
        (shape(16, 2, 3), 16),
        (shape(2, 1, 1), 18),
    ] {
        add("residual", input, &|b| {
            let before = same(b, 0, outputs)?;
            let value = same(b, before, outputs)?;
            b.push(sum, &[value, before], &[])
        });
    }
    add(
        "residual, its sum the second operand, read again",
        shape(3, 3, 4),
        &|b| {
            let before = same(b, 0, 20)?;
            let value = same(b, before, 20)?;
            let both = b.push(sum, &[before, value], &[])?;
            let value = same(b, both, 20)?;
            let both = b.push(sum, &[both, value], &[])?;
            b.push(Op::Combine(Arithmetic::Multiply), &[both, before], &[])
        },
    );
    add("residual of two convolutions", shape(5, 7, 6), &|b| {
        let long = b.convolution(0, 33, window((3, 3), 2, 1, 1), 1)?;
        let short = b.convolution(0, 33, window((1, 1), 2, 1, 0), 1)?;
        b.push(sum, &[short, long], &[])
    });
    add("residual of the input", shape(32, 2, 3), &|b| {
        let value = same(b, 0, 32)?;
        b.push(sum, &[value, 0], &[])
    });
    // Values that stand elsewhere than the result.
    add("residual of a slice", shape(5, 4, 4), &|b| {
        let value = same(b, 0, 32)?;
        let part = b.push(
            Op::Slice {
                axis: Axis::C,
                first: 16,
                size: 16,
            },
            &[value],
            &[],
        )?;
        let value = same(b, 0, 16)?;
        b.push(sum, &[value, part], &[])
    });
    add("residual of a pool", shape(5, 6, 4), &|b| {
        let pool = Op::Pool {
            kind: Pool::Max,
            window: Window {
                stride: (2, 2),
                ..Window::of((2, 2))
            },
        };
        let part = b.push(pool, &[0], &[])?;
        let value = b.convolution(0, 5, window((3, 3), 2, 1, 1), 1)?;
        b.push(sum, &[value, part], &[])
    });
    add("residual of a pixel", shape(5, 4, 4), &|b| {
        let part = b.convolution(0, 5, window((4, 4), 1, 1, 0), 1)?;
        let value = same(b, 0, 5)?;
        b.push(sum, &[value, part], &[])
    });
    add("twice a convolution", shape(5, 4, 4), &|b| {
        let value = same(b, 0, 5)?;
        b.push(sum, &[value, value], &[])
    });
    all
}

/// A graph of random operations.
pub(crate) fn random(seed: u64) -> Builder {
    let mut b = Builder::new(shape(1, 1, 1), seed);
    let (c, h, w) = (
        1 + b.random.below(6),
        3 + b.random.below(8),
        3 + b.random.below(8),
    );
    b.graph = Graph::new(shape(c, h, w));
    let mut value = 0;
    let mut last: Vec<usize> = vec![0];
    for _ in 0..3 + b.random.below(7) {
        let s = b.shape(value);
        let size = |b: &mut Builder, n: usize| 1 + b.random.below(n.min(3));
        let (wh, ww) = (size(&mut b, s.h), size(&mut b, s.w));
        let win = Window {
            stride: (1 + b.random.below(2), 1 + b.random.below(2)),
            border: Border {
                top: b.random.below(wh),
                left: b.random.below(ww),
                bottom: b.random.below(wh),
                right: b.random.below(ww),
            },
            ..Window::of((wh, ww))
        };
        let outputs = 1 + b.random.below(20);
        let made = match b.random.below(14) {
            0..=2 => b.convolution(value, outputs, win, 1),
            3 => b.convolution(value, s.c, win, s.c),
            4 => b.push(
                Op::Pool {
                    kind: Pool::Max,
                    window: win,
                },
                &[value],
                &[],
            ),
            5 => b.push(
                Op::Pool {
                    kind: Pool::Mean,
                    window: win,
                },
                &[value],
                &[],
            ),
            6 => {
                let a = Activation::ALL[b.random.below(10)];
                b.push(Op::Activation(a), &[value], &[])
            }
            7 => b.of_channels(Op::Scale, value, &[Role::Factors, Role::Biases]),
            8 => {
                // A residual.
                let a = b.push(Op::Activation(Activation::HardSwish), &[value], &[]);
                let n = s.c;
                let c = a.and_then(|a| b.convolution(a, n, window((1, 1), 1, 1, 0), 1));
                c.and_then(|c| b.push(Op::Combine(Arithmetic::Add), &[c, value], &[]))
            }
            9 => {
                let c = b.convolution(value, outputs, window((1, 1), 1, 1, 0), 1);
                c.and_then(|c| b.push(Op::Concat(Axis::C), &[value, c], &[]))
            }
            10 => b.push(Op::Transpose([Axis::C, Axis::X, Axis::Y]), &[value], &[]),
            11 | 12 => {
                // Two parts, of which one is changed, side by side again or only one of them.
                let axis = [Axis::C, Axis::Y, Axis::X][b.random.below(3)];
                let (all, both) = (s.along(axis), b.random.below(2) == 0);
                let first = b.random.below(all);
                let slice = |first: usize, size: usize| Op::Slice { axis, first, size };
                let low = b.push(slice(0, first), &[value], &[]);
                let high = b.push(slice(first, all - first), &[value], &[]);
                let high = high.and_then(|h| b.push(Op::Activation(Activation::Relu), &[h], &[]));
                match (low, high) {
                    (Ok(low), Ok(high)) if both => b.push(Op::Concat(axis), &[high, low], &[]),
                    (_, high) => high,
                }
            }
            _ => b.push(
                Op::Pad {
                    border: Border {
                        top: 1,
                        left: 0,
                        bottom: 1,
                        right: 2,
                    },
                    value: Float::new(0.0),
                },
                &[value],
                &[],
            ),
        };
        if let Ok(made) = made {
            value = made;
            last.push(made);
        }
    }
    let n = b.shape(value).len();
    let value = b
        .push(Op::Reshape(Shape::vector(n)), &[value], &[])
        .unwrap();
    let outputs = 2 + b.random.below(9);
    let value = b.affine(value, outputs).unwrap();
    b.graph.outputs = vec![value].into();
    b
}
