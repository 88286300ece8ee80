//! Joins the product of a value and a function of the same value into one activation. Exporters
//! write SiLU, GELU, hard swish and Mish as such products.

use super::scaling::scale_arrays;
use crate::bake::draft::Draft;
use crate::ir::graph::Node;
use crate::ir::op::{Activation, Arithmetic, Math, Op};

/// A gate is a function of a value x that is multiplied by x. The product is factor ·
/// activation(x).
struct Gate {
    x: usize,
    activation: Activation,
    factor: f64,
    /// The node that computes the value of the gate, which is its last node.
    last: usize,
}

/// Replaces the product of a value and its gate by one activation. A scaling follows if the factor
/// of the gate is not 1.
pub(super) fn join(draft: &mut Draft) -> bool {
    for i in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[i];
        let (Op::Combine(Arithmetic::Multiply), &[a, b]) = (node.op, &*node.inputs) else {
            continue;
        };
        let found = [(a, b), (b, a)]
            .into_iter()
            .find_map(|(x, value)| Some((gate_of(draft, x, value)?, value)));
        let Some((gate, value)) = found else {
            continue;
        };
        let shape = draft.shape(node.output);
        let last = if gate.factor == 1.0 {
            i
        } else {
            // The node of the product becomes the scaling by the factor. The last node of the gate
            // becomes the activation.
            let (factors, summands) = (vec![gate.factor; shape.len()], vec![0.0; shape.len()]);
            draft.change(i, Op::Scale, scale_arrays(factors, summands, shape));
            draft.graph.nodes.to_mut()[i].inputs = vec![value].into();
            gate.last
        };
        draft.change(last, Op::Activation(gate.activation), Vec::new());
        draft.graph.nodes.to_mut()[last].inputs = vec![gate.x].into();
        return true;
    }
    false
}

/// Returns the gate that computes `value`, if the argument of the gate is `x`. Also returns it if
/// `x` is a multiple of the argument.
fn gate_of(draft: &Draft, x: usize, value: usize) -> Option<Gate> {
    let gate = gate(draft, value)?;
    if gate.x == x {
        return Some(gate);
    }
    let scale = draft.producer(x).filter(|n| n.inputs[0] == gate.x)?;
    let (factor, summand) = uniform(draft, scale)?;
    (summand == 0.0).then_some(Gate {
        factor: gate.factor * factor,
        ..gate
    })
}

/// Returns the gate that computes `value`, if only one node reads `value`.
fn gate(draft: &Draft, value: usize) -> Option<Gate> {
    draft.graph.only_consumer(value)?;
    let last = draft.graph.producer(value)?;
    let node = &draft.graph.nodes[last];
    let from = node.inputs[0];
    // Returns the node that computes the value `from`, if no other node reads that value.
    let before = || {
        draft.graph.only_consumer(from)?;
        draft.producer(from)
    };
    let (x, activation, factor) = match node.op {
        Op::Activation(Activation::Sigmoid) => (from, Activation::Silu, 1.0),
        Op::Activation(Activation::HardSigmoid { alpha, beta })
            if is_hard_swish(alpha.get().into(), beta.get().into()) =>
        {
            (from, Activation::HardSwish, 1.0)
        }
        Op::Activation(Activation::Tanh) => {
            let softplus = before().filter(|n| n.op == Op::Activation(Activation::Softplus))?;
            (softplus.inputs[0], Activation::Mish, 1.0)
        }
        Op::Activation(Activation::Clip { low, high }) if low.get() == 0.0 => {
            let (scale, high) = (before()?, f64::from(high.get()));
            let (factor, summand) = uniform(draft, scale)?;
            if !is_hard_swish(factor / high, summand / high) {
                return None;
            }
            (scale.inputs[0], Activation::HardSwish, high)
        }
        Op::Scale => {
            let (factor, summand) = uniform(draft, node)?;
            match summand == factor {
                // If summand and factor are both f, the gate is f + f · erf(x / √2), which is 2 f
                // Φ(x).
                true => {
                    let is = |n: &&Node| n.op == Op::Activation(Activation::Math(Math::Erf));
                    (
                        before().filter(is).and_then(|n| root_of_two(draft, n))?,
                        Activation::Gelu,
                        2.0 * factor,
                    )
                }
                false => {
                    let inner = gate(draft, from).filter(|_| summand == 0.0)?;
                    (inner.x, inner.activation, inner.factor * factor)
                }
            }
        }
        _ => return None,
    };
    Some(Gate {
        x,
        activation,
        factor,
        last,
    })
}

/// Returns the value x if the operand of `node` is x / √2 and no other node reads that operand.
fn root_of_two(draft: &Draft, node: &Node) -> Option<usize> {
    let from = node.inputs[0];
    draft.graph.only_consumer(from)?;
    let scale = draft.producer(from)?;
    let (factor, summand) = uniform(draft, scale)?;
    let is = (factor - std::f64::consts::FRAC_1_SQRT_2).abs() < 1e-6 && summand == 0.0;
    is.then_some(scale.inputs[0])
}

/// Returns true if x · min(max(factor · x + summand, 0), 1) is the hard swish. Allows for numbers
/// that the model file has rounded to f32.
fn is_hard_swish(factor: f64, summand: f64) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-7 * b;
    near(factor, 1.0 / 6.0) && near(summand, 0.5)
}

/// Returns the factor and the summand of a scaling. `None` if they are not the same for all
/// elements, or if the node is no scaling.
fn uniform(draft: &Draft, node: &Node) -> Option<(f64, f64)> {
    if node.op != Op::Scale {
        return None;
    }
    let one = |numbers: &[f64]| {
        let first = *numbers.first()?;
        numbers.iter().all(|&v| v == first).then_some(first)
    };
    let [factors, summands] = draft.arrays(node)[..] else {
        return None;
    };
    Some((one(factors)?, one(summands)?))
}
