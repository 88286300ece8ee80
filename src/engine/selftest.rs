//! `--selftest`: the baked golden vectors on the device at hand, against their float64 answers.

use crate::baked::Golden;
use crate::engine::{Answer, Engine, NAN_CLASS};
use crate::error::Error;
use crate::ir::network::{Kind, Network};
use crate::ops::bound::{excess, score_bound, too_close};
use crate::sys::watchdog;
use std::fmt;

/// What the self-test found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Answers that were compared.
    pub(crate) records: usize,
    /// Largest error in units of the bound (1e-4 of the score); above 1 is too large.
    pub(crate) excess: f64,
    /// Largest absolute error of a score.
    pub(crate) error: f64,
    /// Classes that differ although their scores are far enough apart.
    pub(crate) wrong_classes: usize,
    /// Records whose two best scores are closer than rounding, whose class was not compared.
    pub(crate) close: usize,
    /// Answers that depended on the batch they came in, among those of one variant of the plan.
    pub(crate) unstable: usize,
    /// Records that overflow and were refused.
    pub(crate) refused: usize,
    /// Records that overflow and were answered.
    pub(crate) lost: usize,
}

impl Report {
    /// Whether the device gives the network's answers.
    pub(crate) fn passed(&self) -> bool {
        self.excess <= 1.0 && self.wrong_classes == 0 && self.unstable == 0 && self.lost == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} answers, largest error {:.2e} ({:.3} of what is allowed), {} wrong classes, {} \
             too close to compare",
            self.records,
            self.error,
            self.excess.min(1e9),
            self.wrong_classes,
            self.close
        )?;
        if self.unstable > 0 {
            write!(f, ", {} differ from one batch to the next", self.unstable)?;
        }
        if self.refused > 0 {
            write!(f, ", {} that overflow f32 refused", self.refused)?;
        }
        if self.lost > 0 {
            let all = self.refused + self.lost;
            write!(
                f,
                ", lost an overflow: {} of {all} records whose sums leave the range of f32 were \
                 answered, expected infinity \
                 or NaN among the scores (its compiler computes as if there were none)",
                self.lost
            )?;
        }
        Ok(())
    }
}

/// The end of a message where the host engine, with which every release is tested, has failed:
/// `host` is its report, unless the message has that already.
pub(crate) fn blamed(host: Option<&Report>) -> String {
    let too = host.map_or(String::new(), |report| {
        format!("the host engine fails as well: {report}; ")
    });
    format!(
        "{too}this is the network's fault, not the device's: its numbers are too large or too \
         small for f32, or its golden \
         vectors are wrong; bake it again, and report this"
    )
}

/// Runs the golden vectors one by one, as a part batch, and repeated to a full batch: errors may
/// depend on the place in the batch. Then the records that overflow, alone and behind a batch of
/// golden vectors, which must not notice. The engine must have been started for scores (and
/// classes).
pub(crate) fn run(
    engine: &mut dyn Engine,
    network: &Network,
    golden: &Golden<'_>,
) -> Result<Report, Error> {
    let mut report = Report::default();
    // The first answers of either variant of the plan: their sums are in different orders.
    let mut answers: [Vec<f32>; 2] = Default::default();
    let few = engine.few();
    for records in [
        1,
        few.max(1),
        golden.count.min(engine.batch()),
        engine.batch(),
    ] {
        let first = &mut answers[usize::from(records <= few)];
        for start in (0..golden.count).step_by(records) {
            fill(engine, network, golden, start, records)?;
            watchdog::beat("golden vectors");
            engine.submit(0, records)?;
            engine.collect(0)?;
            for index in 0..records {
                let answer = engine.answer(0, index);
                let n = (start + index) % golden.count;
                let outputs = network.outputs();
                let expected: Vec<f64> = golden.scores[n * outputs..(n + 1) * outputs]
                    .iter()
                    .map(|&s| f64::from(s))
                    .collect();
                report.compare(network, &expected, &answer);
                if first.len() < golden.count * outputs {
                    first.extend(answer.scores.iter());
                } else if !same(first, n, &answer) {
                    report.unstable += 1;
                }
            }
        }
    }
    for overflow in golden.overflow.chunks_exact(network.width) {
        for records in [1, engine.batch()] {
            let (others, first) = (records - 1, &answers[usize::from(records <= few)]);
            fill(engine, network, golden, 0, others)?;
            put(engine, network, others, overflow)?;
            watchdog::beat("golden vectors");
            engine.submit(0, records)?;
            engine.collect(0)?;
            for index in 0..others {
                let answer = engine.answer(0, index);
                report.unstable += usize::from(!same(first, index % golden.count, &answer));
            }
            let answer = engine.answer(0, others);
            // Some read the class alone, others the scores: each must tell, where it is there.
            let by_scores = answer.scores.len() == 0 || !answer.scores.is_finite();
            let refused = by_scores && answer.class.is_none_or(|c| c == NAN_CLASS);
            *if refused {
                &mut report.refused
            } else {
                &mut report.lost
            } += 1;
        }
    }
    Ok(report)
}

/// The golden vectors from vector `start` on, in turns, as the first `records` of slot 0.
pub(crate) fn fill(
    engine: &mut dyn Engine,
    network: &Network,
    golden: &Golden<'_>,
    start: usize,
    records: usize,
) -> Result<(), Error> {
    (0..records).try_for_each(|index| {
        put(
            engine,
            network,
            index,
            vector(golden, network, start + index),
        )
    })
}

/// Writes a record of raw inputs.
pub(super) fn put(
    engine: &mut dyn Engine,
    network: &Network,
    index: usize,
    raw: &[f32],
) -> Result<(), Error> {
    let mut record = engine.record(0, index)?;
    let scaled = raw
        .iter()
        .enumerate()
        .map(|(i, &v)| network.transform.apply(i, f64::from(v)) as f32);
    scaled.enumerate().for_each(|(i, z)| record.set(i, z));
    Ok(())
}

/// Whether the scores are those of golden vector `n` in `first`, to the bit.
fn same(first: &[f32], n: usize, answer: &Answer<'_>) -> bool {
    let outputs = answer.scores.len();
    answer
        .scores
        .iter()
        .zip(&first[n * outputs..])
        .all(|(a, b)| a.to_bits() == b.to_bits())
}

fn vector<'g>(golden: &Golden<'g>, network: &Network, index: usize) -> &'g [f32] {
    &golden.inputs[index % golden.count * network.width..][..network.width]
}

impl Report {
    fn compare(&mut self, network: &Network, expected: &[f64], answer: &Answer<'_>) {
        self.records += 1;
        self.excess = self.excess.max(excess(expected, answer.scores.iter()));
        let errors = expected
            .iter()
            .zip(answer.scores.iter())
            .map(|(e, f)| (f64::from(f) - e).abs());
        self.error = errors.fold(self.error, |a, b| {
            if b.is_nan() { f64::INFINITY } else { a.max(b) }
        });
        match network.output.kind {
            Kind::Classes if too_close(expected) => self.close += 1,
            Kind::Classes if answer.class != network.class(expected) => self.wrong_classes += 1,
            Kind::Binary => {
                let found: Vec<f64> = answer.scores.iter().map(f64::from).collect();
                let near = |d: f64| network.class(&[expected[0] + d * score_bound(expected[0])]);
                if near(-1.0) != near(1.0) {
                    self.close += 1;
                } else if network.class(&found) != near(0.0) {
                    self.wrong_classes += 1;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baked::golden;
    use crate::engine::host::HostEngine;
    use crate::engine::model::{Model, Values, recipe};
    use crate::registry::EngineKind;

    #[test]
    fn the_host_passes_and_a_changed_weight_is_found() {
        let recipe = recipe("host", EngineKind::Host).unwrap();
        for threads in [1, 3] {
            let model = Model::baked(recipe, None).unwrap();
            let network = model.network.clone();
            let mut engine = HostEngine::new(model, threads, false).unwrap();
            let report = run(&mut engine, &network, &golden()).unwrap();
            assert!(report.passed() && report.records > 256, "{report}");
        }
        let mut model = Model::baked(recipe, None).unwrap();
        let network = model.network.clone();
        // A bias of the last layer: it is part of every score of its class.
        let Some(Values::F32(biases)) = model.constants.last_mut() else {
            panic!("biases are floats")
        };
        biases.to_mut()[2] += 0.5;
        let mut engine = HostEngine::new(model, 1, false).unwrap();
        assert!(!run(&mut engine, &network, &golden()).unwrap().passed());
    }
}
