//! Times the steps of the host engine, and compares each with the least time that its operations
//! and its bytes take on these cores (`bench network --layers`).

use super::network::{Harness, json, quantile};
use super::render::{self, ReportFormat, csv_field, json_string};
use super::table::{Cell, Report, Section};
use crate::error::Error;
use crate::ir::network::Network;
use crate::ir::plan::Plan;
use crate::simd::{self, StepWork, TeamWork};
use std::collections::BTreeMap;
use std::time::Instant;

/// The rates of the cores that run the engine's threads, all of them together.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// Floating-point operations per microsecond.
    peak: f64,
    /// For each size of a buffer in bytes, the bytes per microsecond of a loop that reads it.
    bandwidths: BTreeMap<usize, f64>,
}

impl Rates {
    /// Measures the rates for buffers of these sizes, with `threads` threads. Keeps the larger one
    /// of the measured rate and of the rate so far.
    fn measure(&mut self, sizes: impl Iterator<Item = usize>, threads: usize) {
        self.peak = self.peak.max(simd::peak_of(threads) / 1e6);
        let mut done = None;
        let mut sizes: Vec<usize> = sizes.map(|size| size.max(simd::LEAST_BYTES)).collect();
        sizes.sort_unstable();
        for size in sizes {
            if done.replace(size) != Some(size) {
                let found = simd::bandwidth(size, threads) / 1e6;
                let rate = self.bandwidths.entry(size).or_default();
                *rate = rate.max(found);
            }
        }
    }

    /// Returns the rate for a buffer of `bytes` bytes. It is the largest one of buffers that are
    /// not smaller. A smaller buffer is read as fast as a larger one, and measured rates have
    /// noise.
    fn bandwidth(&self, bytes: usize) -> f64 {
        let least = bytes.max(simd::LEAST_BYTES);
        let rates = self.bandwidths.range(least..).map(|(_, &rate)| rate);
        rates.fold(0.0, f64::max)
    }

    /// Returns the least time of a step.
    fn bound(&self, work: Work) -> Bound {
        let flop = work.flop / self.peak;
        let read = |bytes: usize, of: usize| match bytes {
            0 => 0.0,
            bytes => bytes as f64 / self.bandwidth(of),
        };
        let values = read(work.values, work.values) * work.records as f64;
        let bytes = values + read(work.weights, work.all_weights);
        match flop >= bytes {
            true => Bound {
                us: flop,
                by: "flop",
            },
            false => Bound {
                us: bytes,
                by: "bytes",
            },
        }
    }
}

/// The work of a step on a batch.
#[derive(Clone, Copy, Debug)]
struct Work {
    records: usize,
    /// The floating-point operations for all records.
    flop: f64,
    /// The bytes of the operands and the result of one record.
    values: usize,
    weights: usize,
    /// The bytes of the weights of all steps.
    all_weights: usize,
}

/// The least time that a step takes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound {
    us: f64,
    /// Which of the two takes that long: `flop` or `bytes`.
    by: &'static str,
}

/// A step with its times.
#[derive(Clone, Debug)]
struct Layer {
    number: usize,
    /// The name of the last node that the step computes.
    name: String,
    operation: &'static str,
    shape: String,
    flop: f64,
    us: f64,
    bound: Bound,
}

/// The steps of a network with their times, and the time of a batch.
#[derive(Clone, Debug)]
pub(super) struct Layers {
    layers: Vec<Layer>,
    /// The median time of a batch in microseconds.
    batch_us: f64,
    threads: usize,
    /// The measured peak in GFLOPS.
    peak: f64,
    /// The bytes of all weights.
    weights: usize,
    /// The bandwidth in GB/s of a loop that reads as many bytes as there are weights.
    bandwidth: f64,
}

/// The names of a row's values.
const COLUMNS: [&str; 9] = [
    "step",
    "operation",
    "shape",
    "median_us",
    "gflops",
    "bound_us",
    "bound_by",
    "share",
    "layer",
];

/// One row of the table, with a value for each of [`COLUMNS`]. Values that it lacks are empty.
type Row = [String; 9];

impl Layers {
    /// Runs `runs` batches with an engine that times its steps.
    ///
    /// # Errors
    /// If the engine is not the host engine, or if it fails.
    pub(super) fn measure(
        harness: &mut Harness,
        network: &Network,
        plan: &Plan,
        runs: usize,
    ) -> Result<Layers, Error> {
        let Some(TeamWork { threads, steps }) = harness.engine.work() else {
            return Err(Error::device("the engine does not describe its steps"));
        };
        let weights = steps.iter().map(|step| step.weights).sum();
        let mut rates = Rates::default();
        let sizes = || steps.iter().map(|step| step.values).chain([weights]);
        rates.measure(sizes(), threads);
        let (batches, times) = times(harness, runs)?;
        rates.measure(sizes(), threads);
        let records = harness.batch;
        let layer = |step: &StepWork| {
            let planned = &plan.steps[step.number];
            let node = network.graph.nodes.get(planned.node);
            let flop = (planned.flop * records as u64) as f64;
            let us: Vec<f64> = times.iter().map(|run| run[step.number]).collect();
            Layer {
                number: step.number,
                name: node.map_or(String::new(), |node| node.name.to_string()),
                operation: step.operation,
                shape: step.shape.clone(),
                flop,
                us: quantile(&us, 0.5) / threads as f64,
                bound: rates.bound(Work {
                    records,
                    flop,
                    values: step.values,
                    weights: step.weights,
                    all_weights: weights,
                }),
            }
        };
        Ok(Layers {
            layers: steps.iter().map(layer).collect(),
            batch_us: quantile(&batches, 0.5),
            threads,
            peak: rates.peak / 1e3,
            weights,
            bandwidth: rates.bandwidth(weights) / 1e3,
        })
    }

    /// Returns the rows: one for each step, the sum of the steps, and the whole batch.
    fn rows(&self) -> Vec<Row> {
        let row = |l: &Layer| {
            let last = [l.bound.by.into(), share(l.bound.us, l.us), l.name.clone()];
            let names = [l.number.to_string(), l.operation.into(), l.shape.clone()];
            full(names, [l.us, l.flop, l.bound.us], last)
        };
        let sum = |of: fn(&Layer) -> f64| self.layers.iter().map(of).sum::<f64>();
        let (us, flop, bound) = (sum(|l| l.us), sum(|l| l.flop), sum(|l| l.bound.us));
        let of_all = |name: &str, us: f64| {
            let names = [name.into(), String::new(), String::new()];
            let last = [String::new(), share(bound, us), String::new()];
            full(names, [us, flop, bound], last)
        };
        let mut rows: Vec<Row> = self.layers.iter().map(row).collect();
        rows.extend([of_all("total", us), of_all("batch", self.batch_us)]);
        rows
    }

    /// Returns the result as text. `head` are names and values about the network and the device.
    pub(super) fn text(&self, head: &[(&str, String)], format: ReportFormat) -> String {
        match format {
            ReportFormat::Json => self.json(head),
            ReportFormat::Csv => {
                let mut text = format!("{}\n", COLUMNS.join(","));
                for row in self.rows() {
                    text += &row.map(|value| csv_field(&value)).join(",");
                    text.push('\n');
                }
                text
            }
            ReportFormat::Table | ReportFormat::Md => self.table(head, format),
        }
    }

    /// Returns one object with the head's values, an array of the steps, their sum, and the batch.
    fn json(&self, head: &[(&str, String)]) -> String {
        let mut fields: Vec<String> = head
            .iter()
            .map(|(name, value)| format!("{}:{}", json_string(name), json(name, value)))
            .collect();
        fields.push(format!("\"threads\":{}", self.threads));
        fields.push(format!("\"peak_gflops\":{:.3}", self.peak));
        fields.push(format!("\"weights_bytes\":{}", self.weights));
        fields.push(format!("\"weights_gbs\":{:.3}", self.bandwidth));
        let object = |row: &Row| {
            let values = COLUMNS.iter().zip(row).filter(|(_, v)| !v.is_empty());
            let text = |name: &str| ["operation", "shape", "bound_by", "layer"].contains(&name);
            let pairs: Vec<String> = values
                .map(
                    |(name, value)| match text(name) || value.parse::<f64>().is_err() {
                        true => format!("\"{name}\":{}", json_string(value)),
                        false => format!("\"{name}\":{}", json(name, value)),
                    },
                )
                .collect();
            format!("{{{}}}", pairs.join(","))
        };
        let rows = self.rows();
        let (steps, sums) = rows.split_at(self.layers.len());
        let steps: Vec<String> = steps.iter().map(object).collect();
        fields.push(format!("\"layers\":[{}]", steps.join(",")));
        let names = ["total", "whole_batch"].iter().zip(sums);
        fields.extend(names.map(|(name, row)| format!("\"{name}\":{}", object(row))));
        format!("{{{}}}\n", fields.join(","))
    }

    fn table(&self, head: &[(&str, String)], format: ReportFormat) -> String {
        let mut head: Vec<(String, String)> = head
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect();
        head.push(("peak".into(), format!("{:.1} GFLOPS", self.peak)));
        let (mib, rate) = (self.weights as f64 / (1 << 20) as f64, self.bandwidth);
        head.push(("weights".into(), format!("{mib:.2} MiB, {rate:.1} GB/s")));
        let mut section = Section::new("layers", "Steps of a batch", COLUMNS[0], "");
        let headings = ["median µs", "GFLOPS", "bound µs", "bound by"];
        section.columns = COLUMNS[1..3].iter().map(|s| (*s).into()).collect();
        section.columns.extend(headings.map(String::from));
        section
            .columns
            .extend(COLUMNS[7..].iter().map(|s| (*s).into()));
        for row in self.rows() {
            let [label, cells @ ..] = row;
            let cell = |text: String| match text.is_empty() {
                true => Cell::Empty,
                false => Cell::Text(text),
            };
            section.row(label, cells.map(cell).into());
        }
        section.note(
            "Bound: the larger of the times that the step's flop take at the measured peak, and \
             its bytes at the measured bandwidth. Share: bound / median.",
        );
        let threads = match self.threads {
            1 => String::new(),
            n => format!("Median: the times of {n} threads added up, divided by {n}. "),
        };
        section.note(format!(
            "{threads}Batch: its time on the clock, with what lies between the steps."
        ));
        let sections = vec![section];
        render::text(&Report { head, sections }, format)
    }
}

/// Returns a row of its names, its numbers (microseconds, flop, bound), and the last columns.
fn full([step, operation, shape]: [String; 3], numbers: [f64; 3], last: [String; 3]) -> Row {
    let [us, flop, bound] = numbers;
    let [by, share, name] = last;
    let gflops = if us > 0.0 { flop / us / 1e3 } else { 0.0 };
    let [us, gflops, bound] = [us, gflops, bound].map(|x| format!("{x:.2}"));
    [step, operation, shape, us, gflops, bound, by, share, name]
}

fn share(bound: f64, us: f64) -> String {
    let share = if us > 0.0 { bound / us } else { 0.0 };
    format!("{share:.3}")
}

/// Runs `runs` batches, after one that does not count. Returns the microseconds of each batch, and
/// those of each step in each batch.
fn times(harness: &mut Harness, runs: usize) -> Result<(Vec<f64>, Vec<Vec<f64>>), Error> {
    harness.engine.resident(harness.batch)?;
    let (mut batches, mut steps) = (Vec::new(), Vec::new());
    let mut before = harness.engine.step_totals();
    for _ in 0..runs {
        let start = Instant::now();
        harness.engine.resident(harness.batch)?;
        batches.push(start.elapsed().as_secs_f64() * 1e6);
        let now = harness.engine.step_totals();
        steps.push(
            now.iter()
                .zip(&before)
                .map(|(now, before)| now - before)
                .collect(),
        );
        before = now;
    }
    Ok((batches, steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sources::Sources;
    use crate::ir::network::Kind;
    use crate::lab::network::{Setting, recipe_for};
    use crate::lab::shapes::generated;

    /// A network's steps on the host: their shapes, bytes, operations and times.
    #[test]
    fn steps_of_a_network() {
        let (network, weights) = generated("ds-cnn", Kind::Values).unwrap();
        let setting = Setting {
            network: &network,
            weights: &weights,
            device: None,
            recipe: recipe_for(None, None).unwrap(),
            batch: 3,
            timed: true,
            sources: &Sources::default(),
        };
        let mut harness = Harness::new(setting, &|_| None).unwrap();
        let TeamWork { steps, threads } = harness.engine.work().unwrap();
        let found: Vec<(&str, &str, usize)> = steps
            .iter()
            .map(|s| (s.operation, &*s.shape, s.values))
            .collect();
        let all = 64 * 25 * 5 * 4;
        assert_eq!(
            found[0],
            ("convolution", "10x4/2 1→64 at 25x5", 490 * 4 + all)
        );
        assert_eq!(
            found[1],
            ("depthwise convolution", "3x3 64 at 25x5", 2 * all)
        );
        assert_eq!(found[2], ("convolution", "1x1 64→64 at 25x5", 2 * all));
        assert_eq!(steps[0].weights, (40 * 64 + 64) * 4);
        assert_eq!(steps[1].weights, (9 * 64 + 64) * 4);
        assert_eq!(steps[2].weights, (64 * 64 + 64) * 4);
        let plan = setting.model().unwrap().plan;
        let layers = Layers::measure(&mut harness, &network, &plan, 3).unwrap();
        let planned: u64 = plan.full().iter().map(|s| 3 * s.flop).sum();
        let flop: f64 = layers.layers.iter().map(|l| l.flop).sum();
        assert!(flop > 0.0 && flop == planned as f64, "{flop} {planned}");
        assert!(layers.layers.iter().all(|l| l.us > 0.0 && l.bound.us > 0.0));
        let (batches, times) = times(&mut harness, 3).unwrap();
        for (batch, steps) in batches.iter().zip(times) {
            let sum: f64 = steps.iter().sum();
            assert!(sum > 0.0 && sum <= batch * threads as f64, "{sum} {batch}");
        }
    }

    /// Rates of 1000 flop a µs. A loop over 20 KB reads 100 bytes a µs, and one over 1 MB reads 10.
    fn rates() -> Rates {
        Rates {
            peak: 1000.0,
            bandwidths: BTreeMap::from([(20_000, 100.0), (500_000, 8.0), (1_000_000, 10.0)]),
        }
    }

    #[test]
    fn bounds_are_the_larger_of_two_times() {
        let work = Work {
            records: 1,
            flop: 250_000.0,
            values: 20_000,
            weights: 400,
            all_weights: 1_000_000,
        };
        // 20,000 bytes at 100 take 200 µs, and 400 bytes at 10 take 40 µs.
        let by_flop = Bound {
            us: 250.0,
            by: "flop",
        };
        assert_eq!(rates().bound(work), by_flop);
        let flop = 230_000.0;
        let by_bytes = Bound {
            us: 240.0,
            by: "bytes",
        };
        assert_eq!(rates().bound(Work { flop, ..work }), by_bytes);
        // Three records have three times the values and the same weights.
        let three = Work { records: 3, ..work };
        assert_eq!(rates().bound(three).us, 640.0);
        let without = Work {
            values: 0,
            weights: 0,
            all_weights: 0,
            flop: 0.0,
            ..work
        };
        assert_eq!(rates().bound(without).us, 0.0);
    }

    /// A buffer is read at least as fast as a larger one, whatever was measured for it.
    #[test]
    fn bandwidths_do_not_grow_with_the_size() {
        for (bytes, rate) in [(4, 100.0), (20_000, 100.0), (20_001, 10.0), (500_000, 10.0)] {
            assert_eq!(rates().bandwidth(bytes), rate, "{bytes}");
        }
    }

    fn layers() -> Layers {
        let layer = |number, us, flop, bound, by| Layer {
            number,
            name: "a, b".into(),
            operation: "convolution",
            shape: "3x3/2 3→32 at 112x112".into(),
            flop,
            us,
            bound: Bound { us: bound, by },
        };
        Layers {
            layers: vec![
                layer(0, 40.0, 40_000.0, 10.0, "flop"),
                layer(2, 10.0, 10_000.0, 5.0, "bytes"),
            ],
            batch_us: 60.0,
            threads: 1,
            peak: 4.0,
            weights: 1 << 20,
            bandwidth: 10.0,
        }
    }

    /// The total adds times, flop and bounds. The batch has the time between the steps, too.
    #[test]
    fn totals_are_sums_of_the_steps() {
        let csv = layers().text(&[], ReportFormat::Csv);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[0], COLUMNS.join(","));
        assert_eq!(
            lines[1..],
            [
                "0,convolution,3x3/2 3→32 at 112x112,40.00,1.00,10.00,flop,0.250,\"a, b\"",
                "2,convolution,3x3/2 3→32 at 112x112,10.00,1.00,5.00,bytes,0.500,\"a, b\"",
                "total,,,50.00,1.00,15.00,,0.300,",
                "batch,,,60.00,0.83,15.00,,0.250,",
            ]
        );
    }

    #[test]
    fn json_has_numbers_and_texts() {
        let head = [("network", "7".to_string()), ("batch", "3".into())];
        let text = layers().text(&head, ReportFormat::Json);
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&found["network"], &found["batch"]),
            (&"7".into(), &3.into())
        );
        let second = &found["layers"][1];
        assert_eq!(
            (&second["step"], &second["layer"]),
            (&2.into(), &"a, b".into())
        );
        assert_eq!(second["share"], 0.5);
        assert_eq!(found["total"]["bound_us"], 15.0);
        assert_eq!(found["whole_batch"]["median_us"], 60.0);
    }

    #[test]
    fn tables_have_a_line_for_each_step() {
        for (format, mark) in [(ReportFormat::Table, "  "), (ReportFormat::Md, "|")] {
            let text = layers().text(&[("plan", "host".into())], format);
            let lines = |word: &str| {
                let lines = text
                    .lines()
                    .filter(|l| l.contains(word) && l.contains(mark));
                lines.count()
            };
            assert_eq!(
                (lines("3x3/2 3→32 at 112x112"), lines("total")),
                (2, 1),
                "{text}"
            );
            assert!(text.contains("4.0 GFLOPS") && text.contains("1.00 MiB, 10.0 GB/s"));
        }
    }
}
