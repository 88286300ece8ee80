//! Checks a plan by interpreting its steps in float64 and comparing the scores with those of the
//! graph. The build and `mortonnet-bake` use it.
//!
//! The interpreter executes each step by its operation. The layout of each operand is that of the
//! kernel's library entry or compiler options. Sizes, words and work-items are those that the
//! kernel gets as arguments. The interpreter does not imitate each kernel's address arithmetic,
//! which would repeat 60 source files. Only some operations need more detail, such as partial sums
//! or all layers in one launch.
//!
//! The interpreter does not use the planner's knowledge of where values are. Only after a wrong
//! score, `planner::contents` helps to name the first wrong step.
//!
//! ```text
//! memory: cells, and the columns of matrices in them
//! call:   the arguments of a kernel        steps: the results of kernels
//! ```

mod call;
mod memory;
mod steps;
#[cfg(test)]
mod tests;

use crate::ir::network::Network;
use crate::ir::plan::{Arg, BufferRole, Plan, Step};
use crate::ir::values::Values;
use crate::ir::view::Moved;
use crate::ops::bound::{score_bound, too_close};
use crate::planner::contents::BufferContents;
use crate::registry::{Library, Operation};
use steps::Machine;

/// The plan to check, with the network that it must compute and all data that the network needs.
pub(crate) struct Subject<'s> {
    pub(crate) network: &'s Network,
    /// The numbers of the graph's constant arrays, as they are baked.
    pub(crate) tensors: &'s [Vec<f32>],
    pub(crate) library: &'s Library,
    pub(crate) plan: &'s Plan,
    /// The numbers of the plan's constants, as they are baked.
    pub(crate) constants: &'s [Values],
}

/// The most multiply-adds and values that all checked records together may take. A larger network
/// is checked with fewer records, but with at least one for each variant of its plan.
const BUDGET: u64 = 1 << 27;

/// The largest allowed error of a score, relative to max(1, |expected score|). Both scores are
/// computed in float64, but the expected ones were rounded to f32 for the golden vectors.
const TOLERANCE: f64 = 1e-6;

/// A batch that the interpreter executes, for some of its records only.
#[derive(Debug, PartialEq)]
struct Run {
    /// The number of records in the batch.
    records: usize,
    /// The columns (indices in the batch) of the records that the interpreter computes.
    columns: Vec<usize>,
    /// True if each hidden buffer (values between steps) gets its own memory. This imitates an
    /// OpenCL device that shares no memory with the host. Otherwise hidden buffers share the arena.
    apart: bool,
}

/// Returns the batches to check, for a network with `work` operations per record. They are the full
/// batch and the largest batch of the variant for few records. A small network is also checked with
/// the smallest batches, where hidden buffers do not share memory.
fn runs(plan: &Plan, work: u64) -> Vec<Run> {
    let cheap = BUDGET / work.max(1) >= 8;
    let (full, few) = (plan.batch, plan.few.map(|few| few.records.min(plan.batch)));
    let mut runs = Vec::new();
    let mut run = |records: usize, columns: &[usize], apart: bool| {
        let mut columns = if cheap {
            columns.to_vec()
        } else {
            vec![records - 1]
        };
        columns.dedup();
        runs.push(Run {
            records,
            columns,
            apart,
        });
    };
    run(full, &[0, full / 2, full - 1], false);
    few.into_iter()
        .for_each(|few| run(few, &[0, few - 1], false));
    if cheap {
        // First comes the smallest batch that the full plan computes, which is one record too large
        // for the variant for few records. Then comes a single record, the smallest batch of that
        // variant.
        run(few.map_or(1, |few| few + 1).min(full), &[0], true);
        few.into_iter().for_each(|_| run(1, &[0], true));
    }
    runs.dedup();
    runs
}

/// Interprets a plan for some golden vectors, and compares the scores and classes with those of the
/// graph.
///
/// # Errors
/// Returns a message about the first difference. It names the first wrong step, its node and its
/// value.
pub(crate) fn judge(subject: &Subject<'_>, inputs: &[f32], scores: &[f32]) -> Result<(), String> {
    let Subject { network, plan, .. } = *subject;
    let (width, outputs) = (network.width.max(1), network.outputs().max(1));
    let count = (inputs.len() / width).min(scores.len() / outputs);
    let values: usize = network.graph.values.iter().map(|v| v.shape.len()).sum();
    let mut next = 0;
    for run in runs(plan, network.flop() / 2 + values as u64) {
        // Golden vectors are taken alternately from the start and from the end of the list.
        let turn = |n: usize| {
            if n % 2 == 0 {
                n / 2 % count
            } else {
                count - 1 - n / 2 % count
            }
        };
        let records: Vec<usize> = (next..next + run.columns.len())
            .filter(|_| count > 0)
            .map(turn)
            .collect();
        next += run.columns.len();
        let given: Vec<Vec<f64>> = records
            .iter()
            .map(|&n| wide(&inputs[n * width..][..width]))
            .collect();
        let expected: Vec<Vec<f64>> = records
            .iter()
            .map(|&n| wide(&scores[n * outputs..][..outputs]))
            .collect();
        let of_record = |n: usize| format!("golden vector {}", records[n] + 1);
        compare(subject, &run, &given, &expected)
            .map_err(|wrong| wrong.say(subject, &run, &given, &of_record))?;
    }
    Ok(())
}

fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&x| x.into()).collect()
}

/// Returns the largest allowed error of a number, relative to max(1, |expected number|).
fn tolerance(network: &Network) -> f64 {
    match network.graph.rounds_to_steps() {
        // Another order of the same factors may round a value to the next integer.
        true => f64::from(network.tolerance) * score_bound(1.0),
        false => TOLERANCE,
    }
}

/// Returns true if `found` is close enough to `expected`. If `expected` is not finite, f32 cannot
/// hold it either, and any number passes.
fn near(found: f64, expected: f64, tolerance: f64) -> bool {
    !expected.is_finite() || (found - expected).abs() <= tolerance * expected.abs().max(1.0)
}

/// A difference between the results of a plan and of its network.
struct Wrong {
    /// The index in [`Run::columns`] of the record with the difference.
    record: usize,
    /// The index of the step that could not be executed. `None` if a score or a class is wrong.
    step: Option<usize>,
    text: String,
}

/// Interprets one batch, and compares the scores and classes of its records with `expected`.
fn compare(
    subject: &Subject<'_>,
    run: &Run,
    given: &[Vec<f64>],
    expected: &[Vec<f64>],
) -> Result<(), Wrong> {
    let wrong = |record: usize, text: String| Wrong {
        record,
        step: None,
        text,
    };
    let (plan, tolerance) = (subject.plan, tolerance(subject.network));
    let mut machine = begin(subject, run, given).map_err(|text| wrong(0, text))?;
    let (steps, _) = plan.variant(run.records);
    for i in steps {
        let failed = |text: String| Wrong {
            record: 0,
            step: Some(i),
            text,
        };
        machine.run(&plan.steps[i]).map_err(failed)?;
    }
    let role = |role: BufferRole| plan.buffer(role);
    let scores =
        role(BufferRole::Scores).ok_or_else(|| wrong(0, "the plan has no scores".into()))?;
    let map = plan.buffers[scores].map;
    for (n, expected) in expected.iter().enumerate() {
        let column = machine.column(scores, n).map_err(|text| wrong(n, text))?;
        if map.len() != expected.len() || map.end() > column.len() {
            return Err(wrong(
                n,
                format!(
                    "{} scores in rows {map:?} of {}",
                    expected.len(),
                    column.len()
                ),
            ));
        }
        let mut scores = Vec::with_capacity(expected.len());
        for (output, (row, &expected)) in map.rows().zip(expected).enumerate() {
            scores.push(column[row]);
            if !near(column[row], expected, tolerance) {
                let found = column[row];
                return Err(wrong(
                    n,
                    format!("output {output} is {found}, expected {expected}"),
                ));
            }
        }
        let known = expected.iter().all(|x| x.is_finite()) && !too_close(&scores);
        if let (Some(classes), true) = (role(BufferRole::Classes), known) {
            let found = machine.column(classes, n).map_err(|text| wrong(n, text))?[0];
            let class = subject.network.class(&scores);
            if class.is_some_and(|class| found != f64::from(class)) {
                let text = format!(
                    "the class is {found}, expected {}",
                    class.unwrap_or_default()
                );
                return Err(wrong(n, text));
            }
        }
    }
    Ok(())
}

/// Returns a simulated device whose input buffer holds the records of the batch.
fn begin<'s>(subject: &Subject<'s>, run: &Run, given: &[Vec<f64>]) -> Result<Machine<'s>, String> {
    let Subject {
        network,
        library,
        plan,
        constants,
        ..
    } = *subject;
    let input = plan
        .buffer(BufferRole::Input)
        .ok_or("the plan has no input")?;
    let mut machine = Machine::new(
        plan,
        library,
        constants,
        (run.records, run.apart),
        &run.columns,
    );
    for (n, raw) in given.iter().enumerate() {
        machine.put(input, n, &network.graph_input(raw))?;
    }
    Ok(machine)
}

impl Wrong {
    /// Returns the error message. If a score or class is wrong, it names the first step whose value
    /// is wrong.
    fn say(
        self,
        subject: &Subject<'_>,
        run: &Run,
        given: &[Vec<f64>],
        name: &dyn Fn(usize) -> String,
    ) -> String {
        let Subject { network, plan, .. } = *subject;
        let graph = &network.graph;
        let named = |i: usize, text: &str| {
            let step = &plan.steps[i];
            // If one kernel computes the whole network and the classes, its step has no graph node.
            // The message then names the step by the output.
            let last = graph
                .outputs
                .first()
                .map_or("the output", |&v| &*graph.values[v].name);
            let node = match graph.nodes.get(step.node) {
                Some(node) => &*node.name,
                None if step.operation == Operation::ArgMax => "the arg-max",
                None => last,
            };
            format!("step {i}, {} of {node}: {text}", step.kernel)
        };
        let (columns, records) = (&run.columns, run.records);
        let place = format!(
            "{}, column {} of a batch of {records}",
            name(self.record),
            columns[self.record]
        );
        let text = match self.step {
            Some(i) => named(i, &self.text),
            None => match first_wrong(subject, run, given, self.record) {
                Some((i, text)) => format!("{}; {}", self.text, named(i, &text)),
                None => format!("{}; the value of each step is right", self.text),
            },
        };
        format!(
            "plan {} does not compute the network: {place}: {text}. This is a mistake of \
             mortonnet: please report it",
            plan.name
        )
    }
}

/// Returns the index of the first step after which a value of the graph is wrong, and a text about
/// the first wrong number. `None` if all values are right.
fn first_wrong(
    subject: &Subject<'_>,
    run: &Run,
    given: &[Vec<f64>],
    record: usize,
) -> Option<(usize, String)> {
    let Subject {
        network,
        tensors,
        plan,
        ..
    } = *subject;
    let (graph, tolerance) = (&network.graph, tolerance(network));
    let mut expected = vec![Vec::new(); graph.values.len()];
    graph.evaluate(
        tensors,
        network.graph_input(&given[record]),
        |value, numbers| {
            expected[value] = numbers.to_vec();
        },
    );
    let mut machine = begin(subject, run, given).ok()?;
    let mut contents = BufferContents::of_input(plan, network);
    let (steps, _) = plan.variant(run.records);
    let mut lost: Option<(usize, String)> = None;
    for i in steps.clone() {
        let step = &plan.steps[i];
        let whole = match machine.run(step) {
            Ok(whole) => whole,
            Err(text) => return Some((i, text)),
        };
        contents.follow(step);
        let Some(buffer) = written(plan, step).filter(|_| whole) else {
            continue;
        };
        // The scores buffer has the output in the rows of its map. The output is only complete
        // after the last step that writes the buffer.
        let last = !plan.steps[i + 1..steps.end]
            .iter()
            .any(|later| written(plan, later) == Some(buffer));
        let scores = plan.buffers[buffer].role == BufferRole::Scores && last;
        let rows = |value: usize| {
            let output = scores && graph.outputs.first() == Some(&value);
            contents
                .rows(buffer, value)
                .or(output.then_some(plan.buffers[buffer].map))
        };
        if let (Some(moved), None) = (gathered(step), &lost) {
            if !(0..graph.values.len()).any(|value| contents.rows(buffer, value) == Some(moved.to))
            {
                let text = format!("moves rows {:?}, which are those of no value", moved.from);
                lost = Some((i, text));
            }
        }
        let column = machine.column(buffer, record).ok()?;
        for (value, expected) in expected.iter().enumerate() {
            let rows = rows(value).into_iter().flat_map(|map| map.rows());
            let names = (&*graph.values[value].name, &*plan.buffers[buffer].name);
            let Some(wrong) = wrong_number(tolerance, &column, rows.zip(expected), names) else {
                continue;
            };
            return Some(match lost {
                Some((step, text)) => (step, format!("{text}; step {i}: {wrong}")),
                None => (i, wrong),
            });
        }
    }
    lost
}

/// Returns a text about the first wrong number of a value, or `None`. `column` is a column of the
/// buffer. `expected` gives rows of the column with their expected numbers, and `tolerance` is that
/// of [`near`].
fn wrong_number<'a>(
    tolerance: f64,
    column: &[f64],
    expected: impl Iterator<Item = (usize, &'a f64)>,
    (value, buffer): (&str, &str),
) -> Option<String> {
    expected.enumerate().find_map(|(number, (row, &expected))| {
        let found = column.get(row).copied().unwrap_or(f64::NAN);
        let say = || {
            format!(
                "number {number} of value {value} is {found} in row {row} of {buffer}, expected \
                 {expected}"
            )
        };
        (!near(found, expected, tolerance)).then(say)
    })
}

/// Returns the map of the rows that a gather step moves. `None` if the step is no gather.
fn gathered(step: &Step) -> Option<&Moved> {
    step.args.iter().find_map(|a| match a {
        Arg::Moved(moved) if step.operation == Operation::Gather => Some(moved),
        _ => None,
    })
}

/// Returns the buffer that a step writes its result to. It is the last buffer among the step's
/// arguments that does not hold classes.
fn written(plan: &Plan, step: &Step) -> Option<usize> {
    step.args.iter().rev().find_map(|a| match *a {
        Arg::Buffer(i) if plan.buffers[i].role != BufferRole::Classes => Some(i),
        _ => None,
    })
}
