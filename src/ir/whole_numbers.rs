//! Which values of a graph have only whole numbers, as those of a model of 8-bit integers do.

use super::graph::Graph;
use super::op::{Activation, Op, Pool};
use std::ops::RangeInclusive;

/// Returns, for each value of a graph, the range of its elements if all of them are whole numbers.
/// Other elements are NaN or infinite. The range may have no end. `None` for other values.
pub(crate) fn ranges(graph: &Graph) -> Vec<Option<RangeInclusive<f32>>> {
    let mut ranges: Vec<Option<RangeInclusive<f32>>> = vec![None; graph.values.len()];
    for node in graph.nodes.iter() {
        let of = |i: usize| ranges[node.inputs[i]].clone();
        let join = |a: RangeInclusive<f32>, b: RangeInclusive<f32>| {
            a.start().min(*b.start())..=a.end().max(*b.end())
        };
        let any = f32::NEG_INFINITY..=f32::INFINITY;
        ranges[node.output] = match node.op {
            op if op.rounds() => Some(any),
            Op::Activation(Activation::Relu) => of(0).map(|r| limited(&r, 0.0, f32::INFINITY)),
            Op::Activation(Activation::Clip { low, high }) => {
                let limits = [low.get(), high.get()];
                let whole = limits.iter().all(|&x| x.is_infinite() || x.fract() == 0.0);
                of(0)
                    .filter(|_| whole)
                    .map(|r| limited(&r, limits[0], limits[1]))
            }
            Op::Activation(Activation::None)
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Slice { .. }
            | Op::Pool {
                kind: Pool::Max, ..
            } => of(0),
            Op::Concat(_) => {
                let all: Option<Vec<_>> = (0..node.inputs.len()).map(of).collect();
                all.and_then(|all| all.into_iter().reduce(join))
            }
            Op::Pad { value, .. } => {
                let value = value.get();
                let whole = of(0).filter(|_| value.fract() == 0.0);
                whole.map(|r| join(r, value..=value))
            }
            _ => None,
        };
    }
    ranges
}

/// Returns the range of the numbers of `range` that are limited to `low` and then to `high`.
pub(crate) fn limited(range: &RangeInclusive<f32>, low: f32, high: f32) -> RangeInclusive<f32> {
    let limit = |x: f32| x.max(low).min(high);
    limit(*range.start())..=limit(*range.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::graph::Shape;
    use crate::ir::op::{Arithmetic, Axis, Float, Math, Padding, Window};

    const ROUND: Op = Op::Activation(Activation::Math(Math::Round));

    fn clip(low: f32, high: f32) -> Op {
        let [low, high] = [low, high].map(Float::new);
        Op::Activation(Activation::Clip { low, high })
    }

    #[test]
    fn ranges_follow_the_operations() {
        let mut graph = Graph::new(Shape { c: 4, h: 4, w: 4 });
        let mut push = |op, inputs: &[usize]| graph.push("node", op, inputs, &[]).unwrap();
        let rounded = push(ROUND, &[0]);
        let bytes = push(clip(-128.0, 127.0), &[rounded]);
        let window = Window::of((2, 2));
        let most = push(
            Op::Pool {
                kind: Pool::Max,
                window,
            },
            &[bytes],
        );
        let mean = push(
            Op::Pool {
                kind: Pool::Mean,
                window,
            },
            &[bytes],
        );
        let positive = push(Op::Activation(Activation::Relu), &[most]);
        let joined = push(Op::Concat(Axis::C), &[most, positive]);
        let pad = |value| Op::Pad {
            padding: Padding {
                before: [0, 1, 1],
                behind: [0, 1, 1],
            },
            value: Float::new(value),
        };
        let padded = push(pad(200.0), &[joined]);
        let halves = push(pad(0.5), &[joined]);
        let [a, b] = [0.5, 0.25].map(Float::new);
        let sum = push(
            Op::Combine(Arithmetic::RoundedSum { a, b }),
            &[bytes, bytes],
        );
        let plain = push(Op::Combine(Arithmetic::Add), &[bytes, bytes]);
        let limits = push(clip(0.0, 6.0), &[sum]);
        let ranges = ranges(&graph);
        let all = f32::NEG_INFINITY..=f32::INFINITY;
        for (value, expected) in [
            (0, None),
            (rounded, Some(all.clone())),
            (bytes, Some(-128.0..=127.0)),
            (most, Some(-128.0..=127.0)),
            (mean, None),
            (positive, Some(0.0..=127.0)),
            (joined, Some(-128.0..=127.0)),
            (padded, Some(-128.0..=200.0)),
            (halves, None),
            (sum, Some(all)),
            (plain, None),
            (limits, Some(0.0..=6.0)),
        ] {
            assert_eq!(ranges[value], expected, "value {value}");
        }
        assert_eq!(limited(&(-5.0..=-2.0), 0.0, 6.0), 0.0..=0.0);
    }
}
