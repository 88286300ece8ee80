//! The judge of a plan: an interpreter of its steps in float64, for the build and for
//! `mortonnet-bake`.
//!
//! A step is carried out by its operation, and each operand is addressed by the layout of the
//! kernel's entry, or by the levels that the kernel is compiled with, over the sizes, the words and
//! the work-items that the kernel gets. Address arithmetic for each kernel would repeat 60 sources
//! line by line, and whoever adds a kernel would have to write it a second time; so it stands here
//! only where kernels of one operation differ (parts of sums, all layers in one launch).
//!
//! Nothing of the planner that places values is used. The planner's view of where values stand
//! serves to name the first wrong step, once a score is known to be wrong.
//!
//! ```text
//! memory: cells, and columns of matrices among them     call: arguments of a kernel     steps: what kernels compute
//! ```

mod call;
mod memory;
mod steps;
#[cfg(test)]
mod tests;

use crate::ir::network::Network;
use crate::ir::plan::{Arg, BufferRole, Plan, Step};
use crate::ir::values::Values;
use crate::ops::bound::too_close;
use crate::planner::stands::Stands;
use crate::registry::{Library, Operation};
use steps::Machine;

/// What is judged.
pub(crate) struct Subject<'s> {
    /// The network.
    pub(crate) network: &'s Network,
    /// The numbers of its graph's arrays, as they are baked.
    pub(crate) tensors: &'s [Vec<f32>],
    /// The kernel library.
    pub(crate) library: &'s Library,
    /// The plan.
    pub(crate) plan: &'s Plan,
    /// The plan's constants as they are baked.
    pub(crate) constants: &'s [Values],
}

/// Multiply-adds and values that the records of a judgement may take. A network that takes more of
/// them gets fewer records, one for each variant of its plan at least.
const BUDGET: u64 = 1 << 27;

/// How far a score may be from that of the graph, relative to the larger of 1 and the score. Both
/// are float64; the scores of golden vectors are rounded to floats.
const TOLERANCE: f64 = 1e-6;

/// Some records of a batch.
#[derive(Debug, PartialEq)]
struct Run {
    /// Records of the batch.
    records: usize,
    /// Columns of those that are carried out.
    columns: Vec<usize>,
    /// Each hidden buffer has a memory of its own, as on a device that shares none with the host;
    /// else all share the arena.
    apart: bool,
}

/// The batches that are judged, for a network that takes so much work a record: the full one and
/// the largest for few records; if they cost little, also the smallest ones, with buffers apart.
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
        // The smallest batch that is none of few records, and a single record.
        run(few.map_or(1, |few| few + 1).min(full), &[0], true);
        few.into_iter().for_each(|_| run(1, &[0], true));
    }
    runs.dedup();
    runs
}

/// Carries a plan out for some golden vectors and compares scores and classes with those of the
/// graph.
///
/// # Errors
/// The first difference, with the step, the node and the value that are wrong first.
pub(crate) fn judge(subject: &Subject<'_>, inputs: &[f32], scores: &[f32]) -> Result<(), String> {
    let Subject { network, plan, .. } = *subject;
    let (width, outputs) = (network.width.max(1), network.outputs().max(1));
    let count = (inputs.len() / width).min(scores.len() / outputs);
    let values: usize = network.graph.values.iter().map(|v| v.shape.len()).sum();
    let mut next = 0;
    for run in runs(plan, network.flop() / 2 + values as u64) {
        // Records in turn, the last ones too.
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

/// True for a number that is near enough to what is expected. What is no number in float64 is no
/// device's to know.
fn near(found: f64, expected: f64) -> bool {
    !expected.is_finite() || (found - expected).abs() <= TOLERANCE * expected.abs().max(1.0)
}

/// A difference between a plan and its network.
struct Wrong {
    /// Which of the records of a run.
    record: usize,
    /// The step that could not be carried out, if any.
    step: Option<usize>,
    /// What differs.
    text: String,
}

/// Carries out one run.
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
    let plan = subject.plan;
    let mut machine = begin(subject, run, given).map_err(|text| wrong(0, text))?;
    for i in plan.variant(run.records).0 {
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
        for (output, (row, &expected)) in map.rows().zip(expected).enumerate() {
            if !near(column[row], expected) {
                let found = column[row];
                return Err(wrong(
                    n,
                    format!("output {output} is {found}, expected {expected}"),
                ));
            }
        }
        let known = expected.iter().all(|x| x.is_finite()) && !too_close(expected);
        if let (Some(classes), true) = (role(BufferRole::Classes), known) {
            let found = machine.column(classes, n).map_err(|text| wrong(n, text))?[0];
            let class = subject.network.class(expected);
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

/// A machine whose input holds these records.
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
    /// The difference in words, with the first step whose value is wrong.
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
            // A step that gives classes as well has the last node, too.
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

/// The first step behind which the value of its node is not where it should be, and what stands
/// there.
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
    let graph = &network.graph;
    let mut expected = vec![Vec::new(); graph.values.len()];
    graph.evaluate(
        tensors,
        network.graph_input(&given[record]),
        |value, numbers| {
            expected[value] = numbers.to_vec();
        },
    );
    let mut machine = begin(subject, run, given).ok()?;
    let mut stands = Stands::of_input(plan, network);
    let steps = plan.variant(run.records).0;
    let mut lost: Option<(usize, String)> = None;
    for i in steps.clone() {
        let step = &plan.steps[i];
        let whole = match machine.run(step) {
            Ok(whole) => whole,
            Err(text) => return Some((i, text)),
        };
        stands.follow(step);
        let Some(buffer) = written(plan, step).filter(|_| whole) else {
            continue;
        };
        // The network's output in the rows that the plan says, once nobody writes them any more.
        let last = !plan.steps[i + 1..steps.end]
            .iter()
            .any(|later| written(plan, later) == Some(buffer));
        let scores = plan.buffers[buffer].role == BufferRole::Scores && last;
        let rows = |value: usize| {
            let output = scores && graph.outputs.first() == Some(&value);
            stands
                .rows(buffer, value)
                .or(output.then_some(plan.buffers[buffer].map))
        };
        let to = step
            .args
            .iter()
            .find_map(|a| if let Arg::Moved(m) = a { Some(m) } else { None });
        if let Some(moved) = to.filter(|_| step.operation == Operation::Gather && lost.is_none()) {
            if !(0..graph.values.len()).any(|value| stands.rows(buffer, value) == Some(moved.to)) {
                lost = Some((
                    i,
                    format!("moves rows {:?}, which are those of no value", moved.from),
                ));
            }
        }
        let column = machine.column(buffer, record).ok()?;
        for (value, expected) in expected.iter().enumerate() {
            let rows = rows(value).into_iter().flat_map(|map| map.rows());
            for (number, (row, &expected)) in rows.zip(expected).enumerate() {
                let found = column.get(row).copied().unwrap_or(f64::NAN);
                if !near(found, expected) {
                    let (name, buffer) = (&graph.values[value].name, &plan.buffers[buffer].name);
                    let wrong = format!(
                        "number {number} of value {name} is {found} in row {row} of {buffer}, \
                         expected {expected}"
                    );
                    return Some(match lost {
                        Some((step, text)) => (step, format!("{text}; step {i}: {wrong}")),
                        None => (i, wrong),
                    });
                }
            }
        }
    }
    lost
}

/// The buffer of values that a step writes.
fn written(plan: &Plan, step: &Step) -> Option<usize> {
    step.args.iter().rev().find_map(|a| match *a {
        Arg::Buffer(i) if plan.buffers[i].role != BufferRole::Classes => Some(i),
        _ => None,
    })
}
