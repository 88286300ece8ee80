//! Finds numbers that an operation rounds, and that are so close to a tie that two engines may
//! round them in different directions. Engines may differ in the last digit of a float.

use crate::ir::byte_steps::ByteSteps;
use crate::ir::graph::Shape;
use crate::ir::network::Network;
use crate::ir::op::{Activation, Math, OfChannels, Op};
use crate::ir::whole_numbers::ranges;

/// The largest error that f32 may cause in a number that is then rounded. It is a share of the
/// largest such number of the value, and eight times the error of one operation.
pub(crate) const MARGIN: f64 = 1.0 / (1u64 << 21) as f64;

const ROUND: Op = Op::Activation(Activation::Math(Math::Round));
const BYTE_STEPS: Op = Op::OfChannels(OfChannels::ByteSteps);

/// How a node rounds a value.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// To whole numbers.
    Ones,
    /// The channels of each pixel, to steps that follow from them.
    Steps,
}

/// The values of a graph that are rounded, and that engines do not compute to the same floats.
pub(crate) struct Ties {
    values: Vec<Option<By>>,
}

impl Ties {
    pub(crate) fn of(network: &Network) -> Ties {
        let graph = &network.graph;
        let exact = exact(network);
        let read = |value: usize, op: Op| graph.consumers(value).any(|i| graph.nodes[i].op == op);
        let by = |value: usize| match exact[value] {
            _ if read(value, BYTE_STEPS) => Some(By::Steps),
            false if read(value, ROUND) => Some(By::Ones),
            _ => None,
        };
        Ties {
            values: (0..graph.values.len()).map(by).collect(),
        }
    }

    /// True if the graph has such a value.
    pub(crate) fn any(&self) -> bool {
        self.values.iter().any(Option::is_some)
    }

    /// Returns the largest error that f32 may cause in the numbers of a value. `None` if the value
    /// is not rounded, or the same for all engines.
    pub(crate) fn margin(&self, value: usize, numbers: &[f64]) -> Option<f64> {
        let largest = |least: f64| numbers.iter().fold(least, |most, x| most.max(x.abs()));
        match self.values[value]? {
            By::Ones => Some(MARGIN * largest(1.0)),
            By::Steps => Some(MARGIN * largest(0.0)),
        }
    }

    /// Returns the least distance of a number from a tie, as a share of the largest number of its
    /// value. `record` has raw inputs.
    pub(crate) fn distance(&self, network: &Network, tensors: &[Vec<f32>], record: &[f32]) -> f64 {
        let mut least = f64::INFINITY;
        let raw: Vec<f64> = record.iter().map(|&x| x.into()).collect();
        let (graph, input) = (&network.graph, network.graph_input(&raw));
        graph.evaluate(tensors, input, |value, numbers| match self.values[value] {
            Some(By::Ones) => {
                let largest = numbers.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
                let off = |x: &f64| (x - x.floor() - 0.5).abs() / largest;
                least = numbers.iter().map(off).fold(least, f64::min);
            }
            Some(By::Steps) => least = least.min(of_steps(numbers, graph.values[value].shape)),
            None => {}
        });
        least
    }
}

/// Returns the least distance from a tie of numbers that are rounded to steps pixel by pixel.
fn of_steps(numbers: &[f64], shape: Shape) -> f64 {
    let pixels = shape.h * shape.w;
    let of_pixel = |p: usize| {
        let channels = || numbers.iter().skip(p).step_by(pixels);
        let least = channels().fold(0.0, |least: f64, &x| least.min(x));
        let most = channels().fold(0.0, |most: f64, &x| most.max(x));
        let steps = ByteSteps::between(least as f32, most as f32);
        channels().fold(f64::INFINITY, |near, &x| {
            near.min(steps.distance_from_tie(x))
        })
    };
    (0..pixels).map(of_pixel).fold(f64::INFINITY, f64::min)
}

/// Returns, for each value of the graph, true if all engines compute exactly the same floats.
fn exact(network: &Network) -> Vec<bool> {
    let graph = &network.graph;
    let whole: Vec<bool> = ranges(graph).iter().map(Option::is_some).collect();
    let mut exact = vec![false; graph.values.len()];
    exact[graph.inputs[0]] = true;
    for node in graph.nodes.iter() {
        let all = |of: &[bool]| node.inputs.iter().all(|&v| of[v]);
        let layer = matches!(node.op, Op::Affine | Op::Convolution { .. });
        let sum = matches!(node.op, Op::Combine(arithmetic) if arithmetic.rounds());
        // A scaling counts as exact, because its summand is 0. All engines round the product to the
        // same float.
        exact[node.output] = match node.op {
            Op::Scale => all(&exact),
            _ if layer || sum => all(&whole),
            op => (op.moves() || op == ROUND) && all(&exact),
        };
    }
    exact
}
