//! `--selftest`: runs the baked golden vectors and compares the scores with their float64 scores.

use crate::baked::Golden;
use crate::engine::{Answer, Engine, NAN_CLASS};
use crate::error::Error;
use crate::ir::network::{Kind, Network};
use crate::ops::bound::{excess, score_bound, too_close};
use crate::sys::watchdog;
use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SelfTestReport {
    /// The number of compared answers.
    pub(crate) records: usize,
    /// The largest error of a score, in units of its bound, which is 1e-4 · max(1, |score|). Above
    /// 1 the test fails.
    pub(crate) excess: f64,
    /// The largest absolute error of a score.
    pub(crate) error: f64,
    /// The number of wrong classes, counted only for records whose two best scores are far enough
    /// apart.
    pub(crate) wrong_classes: usize,
    /// The number of records whose class was not compared, because rounding could swap the two best
    /// scores.
    pub(crate) close: usize,
    /// The number of answers that differ from an earlier answer for the same golden vector in
    /// another batch. Only answers of the same variant of the plan are compared.
    pub(crate) unstable: usize,
    /// The number of records with an overflow that the engine refused, as it should.
    pub(crate) refused: usize,
    /// The number of records with an overflow that the engine answered, which is a failure.
    pub(crate) lost: usize,
}

impl SelfTestReport {
    pub(crate) fn passed(&self) -> bool {
        self.excess <= 1.0 && self.wrong_classes == 0 && self.unstable == 0 && self.lost == 0
    }
}

impl fmt::Display for SelfTestReport {
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

/// Returns the end of a message about a failure of the host engine itself. `host` is the host's
/// report, or `None` if the message contains it already. The text blames the network, because every
/// release is tested with the host engine.
pub(crate) fn blamed(host: Option<&SelfTestReport>) -> String {
    let too = host.map_or(String::new(), |report| {
        format!("the host engine fails as well: {report}; ")
    });
    format!(
        "{too}this is the network's fault, not the device's: its numbers are too large or too \
         small for f32, or its golden \
         vectors are wrong; bake it again, and report this"
    )
}

/// Runs the golden vectors as single records, as a partial batch, and repeated to a full batch.
/// Errors may depend on the position in the batch. Then runs the overflowing records, alone and
/// after golden vectors, whose answers must not change. The engine must have been started for
/// scores, and for classes if its plan has them.
pub(crate) fn run(
    engine: &mut dyn Engine,
    network: &Network,
    golden: &Golden<'_>,
) -> Result<SelfTestReport, Error> {
    let mut report = SelfTestReport::default();
    // The first scores found for each golden vector, by the full plan and by the variant for few
    // records. The two add in different orders, so only scores of one variant are compared.
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
            // Some callers read only the class, others only the scores. Both must show the
            // overflow, if the answer has them.
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

/// Fills the first `records` records of slot 0 with golden vectors, from vector `start` on. After
/// the last vector the first one follows.
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

/// Writes the unscaled inputs `raw` as record `index` of slot 0, scaled as the network expects.
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

/// Returns true if the scores of `answer` equal those of golden vector `n` in `first`, bit by bit.
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

/// Returns true if the answer's class is not the expected one, but the network's tolerance excuses
/// this. The expected scores of both classes are then close together.
fn swapped(network: &Network, expected: &[f64], answer: &Answer<'_>) -> bool {
    let best = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let found = answer.class.and_then(|class| expected.get(class as usize));
    let allowed = 2.0 * f64::from(network.tolerance) * score_bound(best);
    let other = answer.class != network.class(expected);
    other && network.tolerance > 1.0 && found.is_some_and(|score| best - score <= allowed)
}

impl SelfTestReport {
    fn compare(&mut self, network: &Network, expected: &[f64], answer: &Answer<'_>) {
        self.records += 1;
        let excess = excess(expected, answer.scores.iter()) / f64::from(network.tolerance);
        self.excess = self.excess.max(excess);
        let errors = expected
            .iter()
            .zip(answer.scores.iter())
            .map(|(e, f)| (f64::from(f) - e).abs());
        self.error = errors.fold(self.error, |a, b| {
            if b.is_nan() { f64::INFINITY } else { a.max(b) }
        });
        match network.output.kind {
            Kind::Classes if too_close(expected) || swapped(network, expected, answer) => {
                self.close += 1
            }
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
        // The changed constant is the bias of one class in the last layer. It changes every score
        // of that class.
        let Some(Values::F32(biases)) = model.constants.last_mut() else {
            panic!("biases are floats")
        };
        biases.to_mut()[2] += 0.5;
        let mut engine = HostEngine::new(model, 1, false).unwrap();
        assert!(!run(&mut engine, &network, &golden()).unwrap().passed());
    }
}
