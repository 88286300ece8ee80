//! Compares the results of operations, element by element, with their definitions, with numbers
//! computed by hand, and with the results of inverse operations.

use super::bound::{excess, score_bound, too_close};
use super::edges::{EdgeGraph, random, single};
use super::random::Random;
use crate::ir::graph::{Graph, MOST_VALUES, Role, Shape};
use crate::ir::op::{
    Activation, Arithmetic, Axis, Border, Float, OfChannels, Op, Padding, Pool, Window,
};
use crate::ir::taps::{Tap, Taps};

const AXES: [Axis; 3] = [Axis::C, Axis::Y, Axis::X];

fn shape(c: usize, h: usize, w: usize) -> Shape {
    Shape { c, h, w }
}

/// Returns the position (c, y, x) of each element of a value, in the order of the elements.
fn positions(s: Shape) -> impl Iterator<Item = [usize; 3]> {
    (0..s.c).flat_map(move |c| (0..s.h).flat_map(move |y| (0..s.w).map(move |x| [c, y, x])))
}

/// Returns `n` different numbers of both signs, without a pattern along any axis.
fn numbers(n: usize) -> Vec<f64> {
    (0..n)
        .map(|i| ((i * i + 3 * i + 1) % 251) as f64 / 16.0 - 5.0 + i as f64 / 4096.0)
        .collect()
}

fn singles(n: usize) -> Vec<f32> {
    numbers(n).into_iter().map(|v| v as f32).collect()
}

/// Computes an operation that has no weights. Returns its result and the shape of the result.
fn value(op: Op, inputs: &[(&[f64], Shape)]) -> (Vec<f64>, Shape) {
    let shapes: Vec<Shape> = inputs.iter().map(|&(_, shape)| shape).collect();
    let output = op.shape(&shapes, &[]).unwrap();
    let found = op.reference(inputs, &[], output);
    assert_eq!(found.len(), output.len(), "{op:?}");
    (found, output)
}

fn near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() < 1e-9, "element {i}: {f}, not {e}");
    }
}

/// Returns the number at position (c, y, x) of an image. `None` outside of the image.
fn pixel((values, s): (&[f64], Shape), c: usize, y: isize, x: isize) -> Option<f64> {
    let inside = y >= 0 && x >= 0 && (y as usize) < s.h && (x as usize) < s.w;
    inside.then(|| values[s.index(c, y as usize, x as usize)])
}

fn windows() -> Vec<Window> {
    let border = Border {
        top: 1,
        left: 0,
        bottom: 2,
        right: 1,
    };
    let wide = Window {
        border,
        ..Window::of((3, 2))
    };
    vec![
        Window::of((1, 1)),
        wide,
        Window {
            stride: (2, 3),
            ..wide
        },
        Window {
            dilation: (3, 2),
            ..wide
        },
        Window {
            stride: (2, 2),
            ceil: true,
            ..Window::of((3, 3))
        },
    ]
}

/// Each element of a resampling is a weighted sum over taps. The test computes these sums from the
/// definition. Rows and columns have one to three taps, some of weight 0.
#[test]
fn resamplings_are_sums_over_taps() {
    let input = shape(2, 4, 3);
    let values = numbers(input.len());
    for taps @ (down, along) in [(1, 1), (2, 3), (3, 1)] {
        let (height, width) = (5, 6);
        let op = Op::Resample {
            height,
            width,
            taps,
        };
        let count = height * down + width * along;
        let tap = |i: usize| {
            let size = if i < height * down { input.h } else { input.w };
            [((i * 7 + 3) % size) as f32, (i % 5) as f32 / 4.0 - 0.25]
        };
        let array: Vec<f32> = (0..count).flat_map(tap).collect();
        let output = op.shape(&[input], &[(count, 2)]).unwrap();
        assert_eq!(output, shape(2, height, width));
        let mut expected: Vec<f64> = Vec::new();
        for [c, y, x] in positions(output) {
            let mut sum = 0.0;
            for i in 0..down {
                for j in 0..along {
                    let [row, wy] = tap(y * down + i);
                    let [column, wx] = tap(height * down + x * along + j);
                    let at = input.index(c, row as usize, column as usize);
                    sum += f64::from(wy) * f64::from(wx) * values[at];
                }
            }
            expected.push(sum);
        }
        near(
            &op.reference(&[(&values, input)], &[&array], output),
            &expected,
        );
    }
}

/// A tap of weight 0 does not read its pixel, so infinity or NaN there has no effect. A single tap
/// of weight 1 copies any number, infinity and NaN included.
#[test]
fn resamplings_skip_taps_without_weight() {
    let input = shape(1, 1, 3);
    let values = [f64::INFINITY, 2.0, f64::NAN];
    let (op, array) = Taps {
        rows: vec![vec![Tap {
            position: 0,
            weight: 1.0,
        }]],
        columns: [(0, 1.0), (0, 0.0), (1, 0.5), (2, 1.0)]
            .map(|(position, weight)| vec![Tap { position, weight }])
            .to_vec(),
    }
    .node();
    let output = shape(1, 1, 4);
    let found = op.reference(&[(&values, input)], &[&array], output);
    assert_eq!(found[..3], [f64::INFINITY, 0.0, 1.0]);
    assert!(found[3].is_nan());
    let wrong = op.reference(&[(&values[..2], shape(1, 1, 2))], &[&array], output);
    assert!(wrong.iter().all(|x| x.is_nan()), "{wrong:?}");
}

#[test]
fn resamplings_check_their_array() {
    let input = shape(2, 4, 3);
    let shape_of = |height, taps, tensors: &[(usize, usize)]| {
        let op = Op::Resample {
            height,
            width: 5,
            taps,
        };
        op.shape(&[input], tensors)
    };
    assert_eq!(shape_of(6, (2, 1), &[(17, 2)]), Ok(shape(2, 6, 5)));
    for (height, taps, tensors, expected) in [
        (6, (2, 1), [(16, 2)], "an array of 17 × 2 numbers"),
        (6, (2, 1), [(34, 1)], "an array of 17 × 2 numbers"),
        (6, (0, 1), [(5, 2)], "1 to 8 taps along an axis"),
        (6, (1, 9), [(51, 2)], "found 1 and 9"),
        (0, (1, 1), [(5, 2)], "its value is empty"),
        (usize::MAX / 4, (1, 1), [(5, 2)], "at most"),
    ] {
        let found = shape_of(height, taps, &tensors).unwrap_err();
        assert!(found.contains(expected), "{found}");
    }
    let op = Op::Resample {
        height: 1,
        width: 1,
        taps: (1, 1),
    };
    assert!(op.shape(&[input, input], &[(2, 2)]).is_err());
}

/// Each element of a product is a sum of products. The test computes these sums from the
/// definition.
#[test]
fn products_are_sums_over_the_common_axis() {
    let a = shape(2, 3, 4);
    for (b, transposed) in [(shape(2, 4, 5), false), (shape(2, 5, 4), true)] {
        let op = Op::Product { transposed };
        let (first, second) = (numbers(a.len()), numbers(b.len() + 3).split_off(3));
        let output = op.shape(&[a, b], &[]).unwrap();
        assert_eq!(output, shape(2, 3, 5));
        assert_eq!(op.flop(&[a, b], output), 2 * 2 * 3 * 5 * 4);
        let sum = |[g, i, j]: [usize; 3]| -> f64 {
            let other = |k| match transposed {
                true => b.index(g, j, k),
                false => b.index(g, k, j),
            };
            let term = |k| first[a.index(g, i, k)] * second[other(k)];
            (0..4).map(term).sum()
        };
        let expected: Vec<f64> = positions(output).map(sum).collect();
        near(
            &op.reference(&[(&first, a), (&second, b)], &[], output),
            &expected,
        );
    }
}

#[test]
fn products_check_their_shapes() {
    let a = shape(2, 3, 4);
    let refused = |inputs: &[Shape], transposed| {
        let op = Op::Product { transposed };
        op.shape(inputs, &[]).unwrap_err()
    };
    assert_eq!(
        refused(&[a, shape(2, 5, 4)], false),
        "the product with a value of shape 2×3×4 expects a second one of 2×4×n, found 2×5×4"
    );
    assert_eq!(
        refused(&[a, shape(1, 5, 4)], true),
        "the product with a value of shape 2×3×4 expects a second one of 2×n×4, found 1×5×4"
    );
    assert_eq!(refused(&[a], true), "a product has two inputs, found 1");
    let (tall, wide) = (shape(1, 1 << 20, 1), shape(1, 1, 1 << 20));
    assert!(refused(&[tall, wide], false).contains("at most"));
}

#[test]
fn convolutions_are_sums_over_windows() {
    let input = shape(4, 6, 7);
    let values = numbers(input.len());
    for window in windows() {
        for (groups, outputs) in [(1, 3), (2, 6), (4, 4)] {
            let (taps, group) = (window.elements(), input.c / groups);
            let op = Op::Convolution { window, groups };
            let output = op
                .shape(&[input], &[(outputs, taps * group), (outputs, 1)])
                .unwrap();
            let (weights, biases) = (singles(outputs * taps * group), singles(outputs));
            let found = op.reference(&[(&values, input)], &[&weights, &biases], output);
            let mut expected: Vec<f64> = Vec::new();
            let (rows, columns) = (window.rows(), window.columns());
            for [o, y, x] in positions(output) {
                let mut weight = weights[o * taps * group..].iter();
                let mut sum = f64::from(biases[o]);
                for ky in 0..rows.size {
                    for kx in 0..columns.size {
                        let iy = y * rows.stride + ky * rows.dilation;
                        let ix = x * columns.stride + kx * columns.dilation;
                        let at = |c| {
                            let (top, left) =
                                (window.border.top as isize, window.border.left as isize);
                            pixel((&values, input), c, iy as isize - top, ix as isize - left)
                        };
                        let first = o * groups / outputs * group;
                        for c in first..first + group {
                            sum += f64::from(*weight.next().unwrap()) * at(c).unwrap_or(0.0);
                        }
                    }
                }
                expected.push(sum);
            }
            near(&found, &expected);
            assert_eq!(
                op.flop(&[input], output),
                (2 * output.len() * taps * group) as u64
            );
        }
    }
}

#[test]
fn convolutions_are_refused_where_sizes_do_not_meet() {
    let (input, window) = (shape(4, 6, 7), Window::of((2, 3)));
    let refused = |groups, tensors: &[(usize, usize)]| {
        Op::Convolution { window, groups }
            .shape(&[input], tensors)
            .unwrap_err()
    };
    assert!(refused(0, &[(6, 24), (6, 1)]).contains("0 groups"));
    assert!(refused(3, &[(6, 8), (6, 1)]).contains("3 groups do not divide 4 channels"));
    assert!(refused(2, &[(5, 12), (5, 1)]).contains("5 outputs"));
    assert!(
        refused(2, &[(6, 24), (6, 1)])
            .contains("expected 12 weights of an output (2×3 of 2 channels)")
    );
    assert!(refused(1, &[(6, 24), (5, 1)]).contains("expected 6 × 1 biases, found 5 × 1"));
    assert!(refused(1, &[(6, 24), (6, 2)]).contains("found 6 × 2"));
    assert!(refused(1, &[(6, 24)]).contains("one input, weights and biases"));
}

#[test]
fn affine_layers_are_sums_of_products() {
    let found = Op::Affine.reference(
        &[(&[1.0, 2.0, 3.0], Shape::vector(3))],
        &[&[1.0, 0.0, -1.0, 0.5, 2.0, 4.0], &[10.0, 20.0]],
        Shape::vector(2),
    );
    near(&found, &[8.0, 36.5]);
    assert_eq!(
        Op::Affine.shape(&[shape(1, 3, 1)], &[(2, 3), (2, 1)]),
        Ok(Shape::vector(2))
    );
    assert_eq!(Op::Affine.flop(&[Shape::vector(3)], Shape::vector(2)), 12);
    for tensors in [
        &[(2, 4), (2, 1)][..],
        &[(2, 3), (3, 1)],
        &[(2, 3), (2, 2)],
        &[(2, 3)],
    ] {
        assert!(
            Op::Affine.shape(&[Shape::vector(3)], tensors).is_err(),
            "{tensors:?}"
        );
    }
}

#[test]
fn pools_are_the_largest_or_the_mean_of_windows() {
    let input = shape(2, 6, 7);
    let values = numbers(input.len());
    for window in windows() {
        let (h, w) = window.output(input).unwrap();
        for kind in [Pool::Max, Pool::Mean, Pool::PaddedMean] {
            let (found, output) = value(Op::Pool { kind, window }, &[(&values, input)]);
            assert_eq!(output, shape(2, h, w));
            let mut expected = Vec::new();
            let (rows, columns) = (window.rows(), window.columns());
            for [c, y, x] in positions(output) {
                let (mut seen, mut with_border) = (Vec::new(), 0);
                for ky in 0..rows.size {
                    for kx in 0..columns.size {
                        let (top, left) = (window.border.top as isize, window.border.left as isize);
                        let iy = (y * rows.stride + ky * rows.dilation) as isize - top;
                        let ix = (x * columns.stride + kx * columns.dilation) as isize - left;
                        seen.extend(pixel((&values, input), c, iy, ix));
                        let below = (input.h + window.border.bottom) as isize;
                        let right = (input.w + window.border.right) as isize;
                        with_border += i32::from(iy < below && ix < right);
                    }
                }
                let sum: f64 = seen.iter().sum();
                expected.push(match kind {
                    Pool::Max => seen.iter().copied().reduce(f64::max).unwrap(),
                    Pool::Mean => sum / seen.len() as f64,
                    Pool::PaddedMean => sum / f64::from(with_border),
                });
            }
            near(&found, &expected);
            let taps = window.elements();
            assert_eq!(
                Op::Pool { kind, window }.flop(&[input], output),
                (output.len() * taps) as u64
            );
        }
    }
}

#[test]
fn the_largest_of_a_window_with_nan_is_nan() {
    let (input, window) = (shape(1, 1, 3), Window::of((1, 3)));
    let pool = Op::Pool {
        kind: Pool::Max,
        window,
    };
    for place in 0..3 {
        let mut values = [1.0, 2.0, 3.0];
        values[place] = f64::NAN;
        let (found, _) = value(pool, &[(&values, input)]);
        assert!(found[0].is_nan());
    }
    let (found, _) = value(pool, &[(&[f64::NEG_INFINITY; 3], input)]);
    assert_eq!(found, [f64::NEG_INFINITY]);
}

/// The last window may begin inside the image or in the border before it, but not in the border
/// behind it.
#[test]
fn windows_have_the_places_that_fit() {
    let of = |n: usize, window: Window| window.output(shape(1, n, 1)).map(|(h, w)| (h, w == 1));
    let tall = |size, stride, dilation, (top, bottom), ceil| Window {
        stride: (stride, 1),
        dilation: (dilation, 1),
        border: Border {
            top,
            bottom,
            left: 0,
            right: 0,
        },
        ceil,
        ..Window::of((size, 1))
    };
    for (n, window, places) in [
        (7, tall(3, 1, 1, (0, 0), false), 5),
        (7, tall(3, 2, 1, (0, 0), true), 3),
        (8, tall(3, 2, 1, (0, 0), false), 3),
        (8, tall(3, 2, 1, (0, 0), true), 4),
        (8, tall(3, 2, 1, (1, 2), false), 5),
        (8, tall(3, 1, 3, (0, 0), false), 2),
        // With `ceil`, a window that begins at row 6 would be the fourth. It is left out, because
        // the image and the border before it have only 5 rows.
        (4, tall(1, 2, 1, (1, 1), false), 3),
        (4, tall(2, 3, 1, (1, 1), true), 2),
        (4, tall(2, 3, 1, (0, 2), true), 2),
        (4, tall(2, 3, 1, (2, 1), true), 2),
        (5, tall(3, 3, 1, (2, 0), true), 3),
    ] {
        assert_eq!(of(n, window), Ok((places, true)), "{n}, {window:?}");
    }
    assert!(
        of(3, tall(2, 1, 3, (0, 0), false))
            .unwrap_err()
            .contains("covers 4 does not fit on 3")
    );
    for wrong in [
        tall(0, 1, 1, (0, 0), false),
        tall(1, 0, 1, (0, 0), false),
        tall(1, 1, 0, (0, 0), false),
    ] {
        assert!(of(3, wrong).unwrap_err().contains("above 0"));
    }
    let outside = tall(1, 1, 1, (1, 0), false);
    assert!(
        Op::Pool {
            kind: Pool::Mean,
            window: outside
        }
        .shape(&[shape(1, 3, 1)], &[])
        .is_err()
    );
}

/// The functions have the expected values at known points. NaN stays NaN.
#[test]
fn activations_have_the_values_of_their_definitions() {
    let elu = Activation::Elu {
        alpha: Float::new(1.5),
        gamma: Float::new(0.75),
    };
    let clip = Activation::Clip {
        low: Float::new(-0.25),
        high: Float::new(0.5),
    };
    let hard = Activation::HardSigmoid {
        alpha: Float::new(0.25),
        beta: Float::new(0.5),
    };
    let leaky = Activation::LeakyRelu(Float::new(0.25));
    for (activation, at) in [
        (Activation::None, [-4.0, -1.0, 0.0, 1.0, 4.0]),
        (
            Activation::Sigmoid,
            [
                0.01798620996209156,
                0.2689414213699951,
                0.5,
                0.7310585786300049,
                0.9820137900379085,
            ],
        ),
        (Activation::Relu, [0.0, 0.0, 0.0, 1.0, 4.0]),
        (
            Activation::Tanh,
            [
                -0.999329299739067,
                -0.7615941559557649,
                0.0,
                0.7615941559557649,
                0.999329299739067,
            ],
        ),
        (leaky, [-1.0, -0.25, 0.0, 1.0, 4.0]),
        (clip, [-0.25, -0.25, 0.0, 0.5, 0.5]),
        (
            elu,
            [-1.1043949062501741, -0.7111356286821273, 0.0, 0.75, 3.0],
        ),
        (
            Activation::Gelu,
            [
                -0.00012668496733247986,
                -0.15865525393145707,
                0.0,
                0.8413447460685429,
                3.9998733150326675,
            ],
        ),
        (
            Activation::GeluTanh,
            [
                -7.024594819227126e-05,
                -0.15880800939172324,
                0.0,
                0.8411919906082768,
                3.9999297540518075,
            ],
        ),
        (hard, [0.0, 0.25, 0.5, 0.75, 1.0]),
        (
            Activation::HardSwish,
            [0.0, -1.0 / 3.0, 0.0, 2.0 / 3.0, 4.0],
        ),
        (
            Activation::Silu,
            [
                -0.07194483984836623,
                -0.2689414213699951,
                0.0,
                0.7310585786300049,
                3.928055160151634,
            ],
        ),
        (
            Activation::Mish,
            [
                -0.07259174079202535,
                -0.30340146137410895,
                0.0,
                0.8650983882673103,
                3.9974128069762385,
            ],
        ),
        (
            Activation::Softplus,
            [
                0.018149927917809738,
                0.31326168751822286,
                std::f64::consts::LN_2,
                1.3132616875182228,
                4.0181499279178094,
            ],
        ),
    ] {
        for (x, expected) in [-4.0, -1.0, 0.0, 1.0, 4.0].into_iter().zip(at) {
            let found = activation.apply(x);
            assert!(
                (found - expected).abs() < 1e-12,
                "{activation:?} of {x}: {found}, not {expected}"
            );
        }
        assert!(activation.apply(f64::NAN).is_nan(), "{activation:?}");
        let op = Op::Activation(activation);
        near(
            &value(op, &[(&[1.0, -1.0], Shape::vector(2))]).0,
            &[at[3], at[1]],
        );
    }
    assert!(
        Op::Activation(clip)
            .shape(&[Shape::vector(2); 2], &[])
            .is_err()
    );
}

/// The bound of an activation's error is never exceeded. It is hardly larger than the error at the
/// steepest place of the function.
#[test]
fn errors_of_activations_are_those_of_their_steepest_place() {
    let mut all = Activation::BEHIND_LAYERS.to_vec();
    all.push(Activation::LeakyRelu(Float::new(-3.0)));
    all.push(Activation::Elu {
        alpha: Float::new(0.5),
        gamma: Float::new(2.0),
    });
    for activation in all {
        let own = activation.error(0.0);
        assert!((0.0..1e-5).contains(&own), "{activation:?}");
        assert!(
            (0.0..1e-5).contains(&activation.own_error()),
            "{activation:?}"
        );
        let exponential = activation.bounded()
            || matches!(
                activation,
                Activation::Elu { .. }
                    | Activation::Gelu
                    | Activation::GeluTanh
                    | Activation::Silu
                    | Activation::Mish
                    | Activation::Softplus
            );
        assert_eq!(
            (own > 0.0, activation.own_error() > 0.0),
            (exponential, exponential),
            "{activation:?}"
        );
        let (mut steepest, step) = (0.0f64, 1e-3);
        for i in -6000..6000 {
            let x = f64::from(i) * step;
            steepest =
                steepest.max((activation.apply(x + step) - activation.apply(x)).abs() / step);
        }
        let said = (activation.error(0.5) - own) / 0.5;
        assert!(
            steepest <= said + 1e-9,
            "{activation:?}: {steepest}, {said} is said"
        );
        if activation.bounded() {
            // The values of a bounded function differ by at most 2.
            assert!((2.0..2.1).contains(&activation.error(1e9)));
        } else {
            assert!(
                steepest > 0.99 * said,
                "{activation:?}: {steepest}, {said} is said"
            );
        }
    }
}

#[test]
fn bounds_of_scores_grow_with_them() {
    let bounds = [0.0, 0.5, -1.0, 2.0, -50.0].map(score_bound);
    near(&bounds, &[1e-4, 1e-4, 1e-4, 2e-4, 5e-3]);
    assert!((excess(&[1.0, -50.0], [1.0, -50.01].into_iter()) - 2.0).abs() < 1e-3);
    assert_eq!(
        excess(&[1.0, 2.0], [f32::NAN, 2.0].into_iter()),
        f64::INFINITY
    );
    for (scores, close) in [
        (&[0.0, 1.0][..], false),
        (&[1.0, 1.0 + 1.9e-4], true),
        (&[1.0, 1.0 + 2.1e-4], false),
        (&[1.0, 0.5, 0.99999], true),
        (&[0.5, 0.99999, 1.0], true),
        (&[-7.0, -7.0], true),
        (&[3.0, 1.0, 1.0, 2.0], false),
        (&[1.0], false),
    ] {
        assert_eq!(too_close(scores), close, "{scores:?}");
    }
}

/// The factors and biases of `Scale` and the slopes of PReLU may be given per channel or per
/// element.
#[test]
fn factors_are_of_channels_or_of_values() {
    let s = shape(2, 1, 3);
    let values = [1.0, -2.0, 3.0, -4.0, 5.0, -6.0];
    let each = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let found = Op::Scale.reference(&[(&values, s)], &[&[10.0, 2.0], &each], s);
    near(&found, &[11.0, -18.0, 33.0, -4.0, 15.0, -6.0]);
    near(
        &Op::PRelu.reference(&[(&values, s)], &[&[0.5, -1.0]], s),
        &[1.0, -1.0, 3.0, 4.0, 5.0, 6.0],
    );
    near(
        &Op::PRelu.reference(&[(&values, s)], &[&each], s),
        &[1.0, -4.0, 3.0, -16.0, 5.0, -36.0],
    );
    for n in [2, 6] {
        assert_eq!(Op::Scale.shape(&[s], &[(n, 1), (n, 1)]), Ok(s));
        assert_eq!(Op::PRelu.shape(&[s], &[(n, 1)]), Ok(s));
    }
    assert!(
        Op::Scale
            .shape(&[s], &[(2, 1)])
            .unwrap_err()
            .contains("expected 2 arrays, found 1")
    );
    for wrong in [(3, 1), (2, 2), (1, 1)] {
        assert!(Op::PRelu.shape(&[s], &[wrong]).is_err(), "{wrong:?}");
        assert!(
            Op::Scale.shape(&[s], &[(2, 1), wrong]).is_err(),
            "{wrong:?}"
        );
    }
}

#[test]
fn two_values_are_combined_by_elements_or_by_channels() {
    let s = shape(2, 1, 2);
    let (a, b, channels) = ([6.0, 8.0, 10.0, 12.0], [1.0, 2.0, 4.0, -3.0], [2.0, -4.0]);
    for (arithmetic, by_elements, by_channels) in [
        (
            Arithmetic::Add,
            [7.0, 10.0, 14.0, 9.0],
            [8.0, 10.0, 6.0, 8.0],
        ),
        (
            Arithmetic::Subtract,
            [5.0, 6.0, 6.0, 15.0],
            [4.0, 6.0, 14.0, 16.0],
        ),
        (
            Arithmetic::Multiply,
            [6.0, 16.0, 40.0, -36.0],
            [12.0, 16.0, -40.0, -48.0],
        ),
        (
            Arithmetic::Divide,
            [6.0, 4.0, 2.5, -4.0],
            [3.0, 4.0, -2.5, -3.0],
        ),
    ] {
        let op = Op::Combine(arithmetic);
        assert_eq!(value(op, &[(&a, s), (&b, s)]), (by_elements.to_vec(), s));
        assert_eq!(
            value(op, &[(&a, s), (&channels, Shape::vector(2))]),
            (by_channels.to_vec(), s)
        );
        for wrong in [shape(2, 2, 1), Shape::vector(4), Shape::vector(1)] {
            assert!(op.shape(&[s, wrong], &[]).is_err(), "{wrong}");
        }
    }
}

/// The probabilities of each pixel sum to 1. The ratio of two probabilities is the ratio of the
/// exponentials of their inputs.
#[test]
fn softmax_is_of_the_channels_of_each_pixel() {
    let s = shape(3, 2, 2);
    let mut values = numbers(s.len());
    // e^x overflows to infinity for numbers of this size.
    values[5] += 1000.0;
    let (linear, _) = value(Op::OfChannels(OfChannels::Softmax), &[(&values, s)]);
    let (logarithm, _) = value(Op::OfChannels(OfChannels::LogSoftmax), &[(&values, s)]);
    for (y, x) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let of = |v: &[f64]| [0, 1, 2].map(|c| v[s.index(c, y, x)]);
        near(&[of(&linear).iter().sum()], &[1.0]);
        near(&of(&logarithm).map(f64::exp), &of(&linear));
        let (log, v) = (of(&logarithm), of(&values));
        near(
            &[log[1] - log[0], log[2] - log[0]],
            &[v[1] - v[0], v[2] - v[0]],
        );
    }
}

/// Cutting a value into slices and concatenating the slices gives the value back.
#[test]
fn parts_side_by_side_are_the_whole() {
    let s = shape(4, 3, 5);
    let values = numbers(s.len());
    for axis in AXES {
        for cut in 1..s.along(axis) {
            let slice = |first, size| value(Op::Slice { axis, first, size }, &[(&values, s)]);
            let (low, high) = (slice(0, cut), slice(cut, s.along(axis) - cut));
            for [c, y, x] in positions(high.1) {
                let mut at = [c, y, x];
                at[axis as usize] += cut;
                assert_eq!(
                    high.0[high.1.index(c, y, x)],
                    values[s.index(at[0], at[1], at[2])]
                );
            }
            assert_eq!(
                value(Op::Concat(axis), &[(&low.0, low.1), (&high.0, high.1)]),
                (values.clone(), s)
            );
        }
        let beyond = Op::Slice {
            axis,
            first: 1,
            size: s.along(axis),
        };
        assert!(
            beyond
                .shape(&[s], &[])
                .unwrap_err()
                .contains("are not in 4×3×5")
        );
        let empty = Op::Slice {
            axis,
            first: 1,
            size: 0,
        };
        assert_eq!(empty.shape(&[s], &[]), Err("its value is empty".into()));
        let other = shape(4, 3, 5).with(AXES[(axis as usize + 1) % 3], 2);
        assert!(Op::Concat(axis).shape(&[s, other], &[]).is_err());
    }
}

#[test]
fn borders_stand_around_the_image() {
    let s = shape(2, 3, 4);
    let values = numbers(s.len());
    for (before, behind) in [(0, 0), (2, 0), (1, 3)] {
        let padding = Padding {
            before: [before, 1, 2],
            behind: [behind, 3, 4],
        };
        let value_around = Float::new(0.25);
        let pad = Op::Pad {
            padding,
            value: value_around,
        };
        let (padded, output) = value(pad, &[(&values, s)]);
        assert_eq!(output, shape(before + 2 + behind, 7, 10));
        for [c, y, x] in positions(output) {
            let channel = c.checked_sub(before).filter(|&c| c < s.c);
            let inside =
                channel.and_then(|c| pixel((&values, s), c, y as isize - 1, x as isize - 2));
            assert_eq!(padded[output.index(c, y, x)], inside.unwrap_or(0.25));
        }
    }
}

#[test]
fn axes_change_places_and_shapes_keep_their_elements() {
    let s = shape(2, 3, 4);
    let values = numbers(s.len());
    let (turned, output) = value(Op::Transpose([Axis::Y, Axis::X, Axis::C]), &[(&values, s)]);
    assert_eq!(output, shape(3, 4, 2));
    for [c, y, x] in positions(s) {
        assert_eq!(turned[output.index(y, x, c)], values[s.index(c, y, x)]);
    }
    assert!(
        Op::Transpose([Axis::Y, Axis::X, Axis::X])
            .shape(&[s], &[])
            .is_err()
    );
    assert_eq!(
        value(Op::Reshape(shape(4, 1, 6)), &[(&values, s)]),
        (values.clone(), shape(4, 1, 6))
    );
    let refused = Op::Reshape(shape(5, 1, 6)).shape(&[s], &[]).unwrap_err();
    assert_eq!(refused, "2×3×4 has 24 values, 5×1×6 has 30");
}

#[test]
fn graphs_are_evaluated_node_by_node() {
    let mut graph = Graph::new(Shape::vector(2));
    let arrays = [(Role::Weights, 2, 2), (Role::Biases, 2, 1)];
    let sums = graph.push("sums", Op::Affine, &[0], &arrays).unwrap();
    let relu = graph
        .push("relu", Op::Activation(Activation::Relu), &[sums], &[])
        .unwrap();
    let both = graph
        .push("both", Op::Combine(Arithmetic::Subtract), &[relu, 0], &[])
        .unwrap();
    let tensors = [vec![1.0, 1.0, 1.0, -1.0], vec![0.0, -1.0]];
    let mut seen = Vec::new();
    let values = graph.evaluate(&tensors, vec![2.0, 3.0], |value, x| {
        seen.push((value, x.to_vec()))
    });
    let expected = [
        (0, [2.0, 3.0]),
        (sums, [5.0, -2.0]),
        (relu, [5.0, 0.0]),
        (both, [3.0, -3.0]),
    ];
    assert_eq!(seen, expected.map(|(value, x)| (value, x.to_vec())));
    // `evaluate` drops the values that no later node reads, and keeps the outputs.
    assert_eq!(values, [vec![], vec![], vec![], vec![3.0, -3.0]]);
    assert_eq!(
        (graph.outputs.to_vec(), graph.flop(0), graph.flop(2)),
        (vec![both], 8, 0)
    );
    let refused = graph.push(
        "wrong",
        Op::Affine,
        &[both],
        &[(Role::Weights, 2, 3), (Role::Biases, 2, 1)],
    );
    assert!(refused.unwrap_err().starts_with("wrong: "));
    let sides = (Role::Weights, MOST_VALUES + 1, 2);
    let refused = graph.push(
        "large",
        Op::Affine,
        &[both],
        &[sides, (Role::Biases, sides.1, 1)],
    );
    let expected = format!(
        "large: expected at most {MOST_VALUES} values of a record, found {}",
        sides.1
    );
    assert_eq!(refused.unwrap_err(), expected);
    // The number of elements of this shape overflows `usize`.
    assert!(
        Shape {
            c: usize::MAX / 2 + 1,
            h: 2,
            w: 1
        }
        .bounded()
        .is_err()
    );
}

/// The generator is xorshift64*. With the seed 1234567 it gives the published numbers
/// (rosettacode.org).
#[test]
fn random_numbers_are_those_of_the_generator() {
    let mut random = Random::new(1_234_567);
    let published = [
        3540625527u32,
        2750739987,
        4037983143,
        1993361440,
        3809424708,
    ];
    for expected in published {
        assert_eq!(random.byte(), (expected >> 24) as u8);
    }
    let mut random = Random::new(1_234_567);
    for expected in published {
        assert_eq!(random.below(1 << 31), expected as usize % (1 << 31));
    }
    let floats: Vec<f32> = (0..10_000).map(|_| random.float()).collect();
    for (low, high) in [(-1.0, -0.99), (-0.01, 0.01), (0.99, 1.0)] {
        assert!(
            floats.iter().any(|v| (low..high).contains(v)),
            "{low} to {high}"
        );
    }
    assert!(floats.iter().all(|v| (-1.0..1.0).contains(v)));
    assert_eq!(random.below(0), 0);
}

/// The graphs that other tests compute have every operation and windows of all kinds.
#[test]
fn graphs_of_checks_have_all_operations() {
    let all_windows = |graphs: &[EdgeGraph]| -> Vec<Window> {
        let nodes = graphs.iter().flat_map(|b| b.graph.nodes.iter());
        nodes
            .filter_map(|n| match n.op {
                Op::Convolution { window, .. } | Op::Pool { window, .. } => Some(window),
                _ => None,
            })
            .collect()
    };
    let has = |graphs: &[EdgeGraph], what: &dyn Fn(&Op) -> bool| {
        graphs
            .iter()
            .any(|b| b.graph.nodes.iter().any(|n| what(&n.op)))
    };
    let edges: Vec<EdgeGraph> = single().into_iter().map(|(_, builder)| builder).collect();
    let random: Vec<EdgeGraph> = (0..200).map(random).collect();
    for b in edges.iter().chain(&random) {
        assert_eq!(b.tensors.len(), b.graph.tensors.len());
        for (numbers, t) in b.tensors.iter().zip(b.graph.tensors.iter()) {
            assert_eq!(numbers.len(), t.rows * t.cols, "{}", t.name);
            assert!(
                t.rows * t.cols < 3 || numbers.iter().any(|&v| v != numbers[0]),
                "{}",
                t.name
            );
        }
    }
    for graphs in [&edges, &random] {
        let windows = all_windows(graphs);
        assert!(windows.iter().any(|w| w.size.0 == 3) && windows.iter().any(|w| w.size.1 == 3));
        assert!(
            windows
                .iter()
                .any(|w| w.stride.1 == 2 && w.border.top != w.border.bottom)
        );
        assert!(has(graphs, &|op| matches!(
            op,
            Op::Convolution { groups: 2.., .. }
        )));
        assert!(has(graphs, &|op| matches!(
            op,
            Op::Slice { first: 1.., .. }
        )));
        // Random graphs use the first 17 activations, which have no steps and a bounded slope.
        for activation in Activation::ALL.into_iter().take(17) {
            assert!(
                has(graphs, &|op| *op == Op::Activation(activation)),
                "{activation:?}"
            );
        }
        for name in [
            "affine",
            "max_pool",
            "average_pool",
            "scale",
            "add",
            "concat",
            "pad",
            "reshape",
            "transpose",
        ] {
            assert!(has(graphs, &|op| op.name() == name), "{name}");
        }
    }
    for name in [
        "prelu",
        "softmax",
        "log_softmax",
        "subtract",
        "multiply",
        "divide",
    ] {
        assert!(has(&edges, &|op| op.name() == name), "{name}");
    }
    let windows = all_windows(&edges);
    assert!(windows.iter().any(|w| w.ceil) && windows.iter().any(|w| w.dilation.0 > 1));
    assert!(has(&edges, &|op| matches!(
        op,
        Op::Pool {
            kind: Pool::PaddedMean,
            ..
        }
    )));
    // At least one random graph has a slice that is not concatenated again.
    assert!(random.iter().any(|b| {
        let b = std::slice::from_ref(b);
        has(b, &|op| matches!(op, Op::Slice { first: 1.., .. }))
            && !has(b, &|op| matches!(op, Op::Concat(_)))
    }));
}

/// Neither tiles nor the number of records change the bits of a sum, because its terms are always
/// added in the same order.
#[test]
fn products_in_blocks_are_sums_in_order() {
    let wide = Window {
        border: Border {
            top: 1,
            left: 2,
            bottom: 0,
            right: 1,
        },
        ..Window::of((3, 3))
    };
    let windows = [
        Window::of((1, 1)),
        wide,
        Window {
            stride: (2, 2),
            dilation: (1, 2),
            ..wide
        },
    ];
    // The sizes of these products are just below, at or above those of a tile. One product has more
    // columns than are packed at a time.
    for (input, groups, outputs) in [
        (shape(5, 7, 9), 1, 6),
        (shape(6, 5, 8), 2, 10),
        (shape(7, 9, 6), 7, 7),
        (shape(40, 20, 31), 1, 3),
    ] {
        for window in windows {
            let (taps, group) = (window.elements(), input.c / groups);
            let op = Op::Convolution { window, groups };
            let output = op
                .shape(&[input], &[(outputs, taps * group), (outputs, 1)])
                .unwrap();
            let (weights, biases) = (singles(outputs * taps * group), singles(outputs));
            let records = [
                numbers(input.len()),
                numbers(input.len()).into_iter().rev().collect(),
            ];
            let given: Vec<_> = records
                .iter()
                .map(|values| vec![(&values[..], input)])
                .collect();
            let found = op.references(&given, &[&weights, &biases], output);
            for (values, found) in records.iter().zip(found) {
                for ([o, y, x], found) in positions(output).zip(found) {
                    let mut sum = f64::from(biases[o]);
                    for ((ky, kx), (iy, ix)) in window.inside(input, (y, x)) {
                        for c in 0..group {
                            let tap = ky * window.columns().size + kx;
                            let w = weights[(o * taps + tap) * group + c];
                            sum += f64::from(w)
                                * values[input.index(o * groups / outputs * group + c, iy, ix)];
                        }
                    }
                    assert_eq!(found, sum, "{input} {groups} {window:?}: {o}, {y}, {x}");
                }
            }
        }
    }
    for (inputs, outputs, count) in [(5, 3, 1), (33, 19, 1), (33, 19, 6), (700, 9, 70)] {
        let (weights, biases) = (singles(inputs * outputs), singles(outputs));
        let records: Vec<Vec<f64>> = (0..count)
            .map(|n| numbers(inputs).iter().map(|v| v + n as f64 / 7.0).collect())
            .collect();
        let given: Vec<_> = records
            .iter()
            .map(|x| vec![(&x[..], Shape::vector(inputs))])
            .collect();
        let found = Op::Affine.references(&given, &[&weights, &biases], Shape::vector(outputs));
        for (x, found) in records.iter().zip(found) {
            for (row, (found, &b)) in weights.chunks_exact(inputs).zip(found.iter().zip(&biases)) {
                let sum = row
                    .iter()
                    .zip(x)
                    .fold(0.0, |sum, (&w, x)| sum + f64::from(w) * x);
                assert_eq!(*found, f64::from(b) + sum, "{inputs} {outputs} {count}");
            }
        }
    }
}
