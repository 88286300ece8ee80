//! `LSTM`, `GRU` and `RNN`, unrolled. Each place of the sequence (time step) has operations of its
//! own, and all places share the weights.

use super::node::{OnnxNode, live};
use super::ops::NodeOutputs;
use super::values::operand;
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Element};
use crate::bake::front::elementwise::{self, Operand};
use crate::bake::front::operations;
use crate::bake::front::value::{Live, ModelValue, order_of};
use crate::ir::op::{Activation, Arithmetic};

/// The most time steps that may be unrolled, summed over both directions.
const LONGEST: usize = 1024;

/// The kinds of recurrent layers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lstm,
    Gru {
        /// True if the reset gate multiplies the product of the state and its weights. False if it
        /// multiplies the state itself. The ONNX attribute is `linear_before_reset`.
        product: bool,
    },
    Rnn(Activation),
}

impl Kind {
    fn of(node: &OnnxNode<'_>) -> Result<Kind, String> {
        let stated = node.texts("activations").unwrap_or_default();
        let (kind, usual): (Kind, &[&str]) = match node.op() {
            "LSTM" => (Kind::Lstm, &["Sigmoid", "Tanh", "Tanh"]),
            "GRU" => {
                let product = node.int("linear_before_reset", 0) != 0;
                (Kind::Gru { product }, &["Sigmoid", "Tanh"])
            }
            _ => match stated.first().map(String::as_str) {
                Some("Relu") => (Kind::Rnn(Activation::Relu), &["Relu"]),
                _ => (Kind::Rnn(Activation::Tanh), &["Tanh"]),
            },
        };
        let wanted = usual.iter().cycle();
        if stated.iter().zip(wanted).any(|(s, w)| s != w) {
            return Err(format!(
                "activations: expected {}, found {}",
                usual.join(", "),
                stated.join(", ")
            ));
        }
        Ok(kind)
    }

    /// The number of gates. Each weight matrix has this many rows for each number of the state.
    fn gates(self) -> usize {
        match self {
            Kind::Lstm => 4,
            Kind::Gru { .. } => 3,
            Kind::Rnn(_) => 1,
        }
    }
}

/// The weights of one direction of a recurrent layer. A matrix has a row for each number of each
/// gate.
struct Direction {
    kind: Kind,
    size: usize,
    of_input: Vec<f64>,
    of_state: Vec<f64>,
    /// The biases to add to the product of the input and its weights. The biases of the state are
    /// already added in, except those in `reset`.
    biases: Vec<f64>,
    /// The biases to add to the product that a GRU's reset gate multiplies ([`Kind::Gru`]). Empty
    /// for other layers.
    reset: Vec<f64>,
    backwards: bool,
}

/// The state of one direction of a recurrent layer: its output, and the cell of an LSTM. `None`
/// stands for zeros.
#[derive(Clone, Default)]
struct State {
    output: Option<Live>,
    cell: Option<Live>,
}

/// Returns the numbers of direction `d` from a constant whose first axis has `of` directions.
fn part(c: &ConstantTensor, d: usize, of: usize) -> Result<Vec<f64>, String> {
    let numbers = c.numbers()?;
    let n = numbers.len() / of;
    Ok(numbers[d * n..(d + 1) * n].to_vec())
}

/// Reads the weights of each direction. `inputs` is the number of inputs at each time step.
fn directions(node: &OnnxNode<'_>, kind: Kind, inputs: usize) -> Result<Vec<Direction>, String> {
    let backwards: &[bool] = match node.text("direction", "forward") {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => {
            return Err(format!(
                "direction: expected forward, reverse or bidirectional, found {other}"
            ));
        }
    };
    let count = backwards.len();
    let (w, r) = (node.needed(1, "weights")?, node.needed(2, "weights")?);
    let size = r.dims.last().copied().unwrap_or(0);
    let rows = kind.gates() * size;
    let expected = [vec![count, rows, inputs], vec![count, rows, size]];
    if size == 0 || [&w.dims, &r.dims] != [&expected[0], &expected[1]] {
        return Err(format!(
            "expected weights of sizes {expected:?}, found {:?} and {:?}",
            w.dims, r.dims
        ));
    }
    let biases = node.constant(3, "biases")?;
    if biases.as_ref().is_some_and(|b| b.len() != 2 * count * rows) {
        return Err(format!("expected biases of sizes {count} and {}", 2 * rows));
    }
    let one = |(d, &backwards): (usize, &bool)| {
        let both = match &biases {
            Some(b) => part(b, d, count)?,
            None => vec![0.0; 2 * rows],
        };
        let (own, of_state) = both.split_at(rows);
        let mut sums: Vec<f64> = own.iter().zip(of_state).map(|(a, b)| a + b).collect();
        let mut reset = Vec::new();
        if kind == (Kind::Gru { product: true }) {
            reset = of_state[2 * size..].to_vec();
            sums[2 * size..].copy_from_slice(&own[2 * size..]);
        }
        Ok(Direction {
            kind,
            size,
            of_input: part(&w, d, count)?,
            of_state: part(&r, d, count)?,
            biases: sums,
            reset,
            backwards,
        })
    };
    backwards.iter().enumerate().map(one).collect()
}

/// Exchanges the first two axes, so that [record, place, number] becomes [place, record, number].
fn places_first(b: &mut Builder, name: &str, x: &Live) -> Result<Live, String> {
    match (x.records, &x.dims[..]) {
        (Some(0), _) => Ok(Live {
            records: Some(1),
            ..x.clone()
        }),
        _ => b.reorder(name, x, &order_of(&[1, 0, 2], x)?),
    }
}

/// Returns the initial state of direction `d` from the node's input `i`, with the axes [record,
/// number]. `None` stands for zeros.
fn first_state(
    b: &mut Builder,
    node: &OnnxNode<'_>,
    i: usize,
    (d, like): (usize, &Live),
) -> Result<Option<Live>, String> {
    if node.input(i).is_none() {
        return Ok(None);
    }
    let name = &node.name;
    let all = match operand(node, i)? {
        Operand::Constant(c) if c.numbers()?.iter().all(|&n| n == 0.0) => return Ok(None),
        Operand::Constant(c) => elementwise::constant_value(b, name, like, c)?,
        Operand::Live(x) => x.clone(),
    };
    let all = match node.int("layout", 0) {
        0 => all,
        _ => places_first(b, name, &all)?,
    };
    Ok(Some(
        operations::along(b, name, &all, 0, &[d])?.spliced(0, &[]),
    ))
}

impl Direction {
    /// Selects `count` gates, from the gate `first` on, along the last axis. A gate has `size`
    /// numbers.
    fn gate(
        &self,
        b: &mut Builder,
        name: &str,
        x: &Live,
        (first, count): (usize, usize),
    ) -> Result<Live, String> {
        let at: Vec<usize> = (first * self.size..(first + count) * self.size).collect();
        operations::along(b, name, x, x.dims.len() - 1, &at)
    }

    /// Multiplies the state by its weights for `count` gates, from the gate `first` on.
    fn of_state(
        &self,
        b: &mut Builder,
        name: &str,
        state: &Live,
        (first, count): (usize, usize),
    ) -> Result<Live, String> {
        let rows = first * self.size * self.size..(first + count) * self.size * self.size;
        let weights = self.of_state[rows].to_vec();
        operations::product(b, name, state, weights, count * self.size)
    }

    /// Builds this direction over a whole sequence. Returns the output of each time step, in the
    /// order of the sequence, and the final state.
    fn sequence(
        &self,
        b: &mut Builder,
        name: &str,
        x: &Live,
        mut state: State,
    ) -> Result<(Vec<Live>, State), String> {
        let (places, rows) = (x.dims[0], self.biases.len());
        let products = operations::product(b, name, x, self.of_input.clone(), rows)?;
        let biases = ConstantTensor::floats(vec![rows], self.biases.clone());
        let of = Arithmetic::Add;
        let products = operations::with_constant(b, name, of, &products, &biases, false)?;
        let mut outputs = vec![None; places];
        for step in 0..places {
            let at = match self.backwards {
                true => places - 1 - step,
                false => step,
            };
            let own = operations::along(b, name, &products, 0, &[at])?.spliced(0, &[]);
            state = self.step(b, name, &own, &state)?;
            outputs[at] = state.output.clone();
        }
        Ok((outputs.into_iter().flatten().collect(), state))
    }

    /// Builds one time step: returns the state after it, from the state `s` before it. `x` is the
    /// step's input times the weights of all gates, plus the biases.
    fn step(&self, b: &mut Builder, name: &str, x: &Live, s: &State) -> Result<State, String> {
        match self.kind {
            Kind::Lstm => self.lstm(b, name, x, s),
            Kind::Gru { product } => self.gru(b, name, x, (s, product)),
            Kind::Rnn(function) => {
                let sum = self.with_state(b, name, x, (s, self.kind.gates()))?;
                let output = b.activation(name, &sum, function)?;
                Ok(State {
                    output: Some(output),
                    cell: None,
                })
            }
        }
    }

    /// Returns the first `gates` gates of `x`, plus the product of the state and its weights. `x`
    /// has the weighted inputs of all gates, as in [`Direction::step`].
    fn with_state(
        &self,
        b: &mut Builder,
        name: &str,
        x: &Live,
        (s, gates): (&State, usize),
    ) -> Result<Live, String> {
        let own = self.gate(b, name, x, (0, gates))?;
        match &s.output {
            Some(state) => {
                let product = self.of_state(b, name, state, (0, gates))?;
                operations::combined(b, name, Arithmetic::Add, &product, &own)
            }
            None => Ok(own),
        }
    }

    /// Builds one time step of an LSTM. The gates are input, output, forget and cell candidate, in
    /// this order.
    fn lstm(&self, b: &mut Builder, name: &str, x: &Live, s: &State) -> Result<State, String> {
        let sum = self.with_state(b, name, x, (s, 4))?;
        let open = self.gate(b, name, &sum, (0, 3))?;
        let open = b.activation(name, &open, Activation::Sigmoid)?;
        let candidate = self.gate(b, name, &sum, (3, 1))?;
        let candidate = b.activation(name, &candidate, Activation::Tanh)?;
        let input = self.gate(b, name, &open, (0, 1))?;
        let mut cell = operations::combined(b, name, Arithmetic::Multiply, &input, &candidate)?;
        if let Some(before) = &s.cell {
            let forget = self.gate(b, name, &open, (2, 1))?;
            let rest = operations::combined(b, name, Arithmetic::Multiply, &forget, before)?;
            cell = operations::combined(b, name, Arithmetic::Add, &rest, &cell)?;
        }
        let output = self.gate(b, name, &open, (1, 1))?;
        let shown = b.activation(name, &cell, Activation::Tanh)?;
        let output = operations::combined(b, name, Arithmetic::Multiply, &output, &shown)?;
        Ok(State {
            output: Some(output),
            cell: Some(cell),
        })
    }

    /// Builds one time step of a GRU. The gates are update, reset and state candidate, in this
    /// order.
    fn gru(
        &self,
        b: &mut Builder,
        name: &str,
        x: &Live,
        (s, product): (&State, bool),
    ) -> Result<State, String> {
        let gates = self.with_state(b, name, x, (s, 2))?;
        let gates = b.activation(name, &gates, Activation::Sigmoid)?;
        let update = self.gate(b, name, &gates, (0, 1))?;
        let reset = self.gate(b, name, &gates, (1, 1))?;
        let mut sum = self.gate(b, name, x, (2, 1))?;
        let times = |x: &Live, y: &Live, b: &mut Builder| {
            operations::combined(b, name, Arithmetic::Multiply, x, y)
        };
        let biases = ConstantTensor::floats(vec![self.size], self.reset.clone());
        let of_state = match (&s.output, product) {
            (Some(state), false) => {
                let state = times(&reset, state, b)?;
                Some(self.of_state(b, name, &state, (2, 1))?)
            }
            (Some(state), true) => {
                let of = self.of_state(b, name, state, (2, 1))?;
                let of = operations::with_constant(b, name, Arithmetic::Add, &of, &biases, false)?;
                Some(times(&reset, &of, b)?)
            }
            (None, true) => {
                let of = Arithmetic::Multiply;
                Some(operations::with_constant(
                    b, name, of, &reset, &biases, false,
                )?)
            }
            (None, false) => None,
        };
        if let Some(of) = of_state {
            sum = operations::combined(b, name, Arithmetic::Add, &of, &sum)?;
        }
        let candidate = b.activation(name, &sum, Activation::Tanh)?;
        let rest = elementwise::not(b, name, &update)?;
        let mut output = times(&rest, &candidate, b)?;
        if let Some(state) = &s.output {
            let kept = times(&update, state, b)?;
            output = operations::combined(b, name, Arithmetic::Add, &kept, &output)?;
        }
        Ok(State {
            output: Some(output),
            cell: None,
        })
    }
}

/// Returns an error for peepholes, `clip` and `input_forget`, and for stated sequence lengths other
/// than `places`.
fn check(node: &OnnxNode<'_>, places: usize) -> Result<(), String> {
    if node.input(7).is_some() && node.op() == "LSTM" {
        return Err("peepholes are not supported".into());
    }
    if node.has("clip") || node.int("input_forget", 0) != 0 {
        return Err("clip and input_forget are not supported".into());
    }
    let lengths = node.constant(4, "lengths of sequences")?;
    let lengths = lengths.map_or(Ok(Vec::new()), |c| c.integers())?;
    if lengths.iter().any(|&n| usize::try_from(n) != Ok(places)) {
        return Err(format!(
            "expected sequences of {places} places, found {lengths:?}"
        ));
    }
    Ok(())
}

/// Stacks tensors along a new first axis.
fn joined(b: &mut Builder, name: &str, parts: &[Live]) -> Result<Live, String> {
    let parts: Result<Vec<Live>, String> = parts
        .iter()
        .map(|p| operations::squeezed("Unsqueeze", p, Some(&[0])))
        .collect();
    operations::concat(b, name, &parts?, 0)
}

/// Builds a recurrent layer. Returns the outputs of all time steps, the final outputs, and for an
/// LSTM the final cells.
pub(super) fn unrolled(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    let (x, name, layout) = (live(node, 0)?, &node.name, node.int("layout", 0));
    if x.rank() != 3 || x.records == Some(2) || x.records == Some(layout as usize) {
        return Err(format!(
            "expected the axes place, record, number, found {}: set all sizes for one record",
            x.shown()
        ));
    }
    let x = match layout {
        0 => x.clone(),
        _ => places_first(b, name, x)?,
    };
    let (places, inputs) = (x.dims[0], x.dims[x.dims.len() - 1]);
    check(node, places)?;
    let kind = Kind::of(node)?;
    let directions = directions(node, kind, inputs)?;
    if places * directions.len() > LONGEST {
        return Err(format!(
            "{places} places are too many: at most {LONGEST} of all directions are unrolled"
        ));
    }
    let (mut all, mut last, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for (d, direction) in directions.iter().enumerate() {
        let first = State {
            output: first_state(b, node, 5, (d, &x))?,
            cell: match kind {
                Kind::Lstm => first_state(b, node, 6, (d, &x))?,
                _ => None,
            },
        };
        let (outputs, state) = direction.sequence(b, name, &x, first)?;
        if node.gives(0) {
            let outputs = joined(b, name, &outputs)?;
            all.push(operations::squeezed("Unsqueeze", &outputs, Some(&[1]))?);
        }
        last.extend(state.output);
        cells.extend(state.cell);
    }
    let mut found = vec![match all.is_empty() {
        true => ModelValue::Unknown,
        false => {
            let all = operations::concat(b, name, &all, 1)?;
            ModelValue::Live(turned(b, name, &all, (layout, &[2, 0, 1, 3]))?)
        }
    }];
    for states in [last, cells] {
        if !states.is_empty() {
            let states = joined(b, name, &states)?;
            let states = turned(b, name, &states, (layout, &[1, 0, 2]))?;
            found.push(ModelValue::Live(states));
        }
    }
    let float = |value: ModelValue| match value {
        ModelValue::Live(live) => ModelValue::Live(Live {
            kind: Element::F32,
            ..live
        }),
        other => other,
    };
    Ok(found.into_iter().map(float).collect())
}

/// Returns a result unchanged for the ONNX attribute `layout` 0, otherwise with its axes in
/// `order`.
fn turned(
    b: &mut Builder,
    name: &str,
    x: &Live,
    (layout, order): (i64, &[i64]),
) -> Result<Live, String> {
    match layout {
        0 => Ok(x.clone()),
        _ => b.reorder(name, x, &order_of(order, x)?),
    }
}
