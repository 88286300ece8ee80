//! Times of start-up and of the steps of a plan. Taking them does not allocate.

use crate::observe::trace::{Name, Track};
use crate::sys::watchdog;
use std::time::{Duration, Instant};

/// Buckets per doubling: percentiles are exact to 1.6 %.
const FINE: usize = 32;

/// Durations in logarithmic buckets. The first duration is kept apart: drivers put work off until
/// then.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Box<[u32]>,
    first: Option<u64>,
    count: u64,
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        // Up to 2^42 ns (73 minutes). Longer durations count as that.
        Histogram {
            buckets: vec![0; 42 * FINE].into(),
            first: None,
            count: 0,
            sum: 0,
        }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, d: Duration) {
        self.record_ns(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds a duration in nanoseconds.
    pub(crate) fn record_ns(&mut self, ns: u64) {
        if self.first.is_none() {
            self.first = Some(ns);
            return;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.buckets[Self::bucket(ns).min(self.buckets.len() - 1)] += 1;
    }

    /// Returns the bucket of a duration. Below 2·FINE a bucket is a nanosecond wide. Above, each
    /// doubling has FINE buckets.
    fn bucket(ns: u64) -> usize {
        if ns < 2 * FINE as u64 {
            return ns as usize;
        }
        let shift = 63 - ns.leading_zeros() as usize - FINE.ilog2() as usize;
        shift * FINE + (ns >> shift) as usize
    }

    /// Returns the middle of a bucket in nanoseconds.
    fn middle(bucket: usize) -> f64 {
        if bucket < 2 * FINE {
            return bucket as f64;
        }
        let shift = bucket / FINE - 1;
        ((bucket % FINE + FINE) as f64 + 0.5) * (1u64 << shift) as f64
    }

    /// Returns the number of durations after the first.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the first duration in microseconds.
    pub(crate) fn first_us(&self) -> Option<f64> {
        self.first.map(|ns| ns as f64 / 1e3)
    }

    /// Returns the sum of all durations, the first included, in microseconds.
    pub(crate) fn total_us(&self) -> f64 {
        (self.sum + self.first.unwrap_or(0)) as f64 / 1e3
    }

    /// Returns the mean of the durations after the first, in microseconds.
    pub(crate) fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64 / 1e3)
    }

    /// Returns the duration that `share` (0 to 1) of the durations after the first do not exceed,
    /// in microseconds.
    pub(crate) fn percentile_us(&self, share: f64) -> Option<f64> {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|&n| {
            seen += u64::from(n);
            seen >= rank
        })?;
        Some(Self::middle(bucket) / 1e3)
    }

    pub(crate) fn clear(&mut self) {
        self.buckets.fill(0);
        (self.first, self.count, self.sum) = (None, 0, 0);
    }
}

/// The times of start-up, phase by phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    /// Name and time of each phase. The times of phases of the same name are summed up.
    pub(crate) times: Vec<(&'static str, Duration)>,
    /// Set by OpenCL engines.
    pub(crate) origins: Option<Origins>,
    /// The trace that gets a span for each phase, if there is one.
    pub(crate) track: Option<Track>,
}

/// The origin of an OpenCL engine's programs: the cache or the compiler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    /// Number of programs taken from the cache folder.
    pub(crate) hits: usize,
    /// Number of programs compiled.
    pub(crate) misses: usize,
    /// Reasons to compile, faults of the cache, and changes that the device demanded.
    pub(crate) notes: Vec<String>,
}

impl Origins {
    /// Adds a note that is not there yet.
    pub(crate) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Returns `HIT` if nothing was compiled, else `MISS`.
    pub(crate) fn word(&self) -> &'static str {
        if self.misses == 0 { "HIT" } else { "MISS" }
    }

    /// Returns `HIT` or `MISS`, with the number of programs.
    pub(crate) fn line(&self) -> String {
        let all = self.hits + self.misses;
        format!(
            "{}: {} of {all} programs came compiled from the cache",
            self.word(),
            self.hits
        )
    }
}

impl Phases {
    /// Runs `work` and adds its time to phase `name`.
    pub(crate) fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        watchdog::beat(name);
        let start = Instant::now();
        let result = work();
        self.done(name, start);
        result
    }

    fn done(&mut self, name: &'static str, start: Instant) {
        let took = start.elapsed();
        self.add(name, took);
        self.track
            .iter()
            .for_each(|track| track.span(Name::Text(name), 0, 0, start, took));
    }

    /// Adds the start-up of another engine.
    pub(crate) fn join(&mut self, other: Phases) {
        other
            .times
            .into_iter()
            .for_each(|(name, time)| self.add(name, time));
        if let Some(origins) = other.origins {
            let all = self.origins.get_or_insert_default();
            (all.hits, all.misses) = (all.hits + origins.hits, all.misses + origins.misses);
            origins.notes.into_iter().for_each(|note| all.note(note));
        }
    }

    /// Adds a time to phase `name`.
    pub(crate) fn add(&mut self, name: &'static str, time: Duration) {
        match self.times.iter_mut().find(|(phase, _)| *phase == name) {
            Some((_, sum)) => *sum += time,
            None => self.times.push((name, time)),
        }
    }
}

/// The times of one step of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepTimes {
    /// From enqueueing to the hand-over to the device (OpenCL: queued to submit).
    pub(crate) queued: Histogram,
    /// From the hand-over to the start (OpenCL: submit to start).
    pub(crate) wait: Histogram,
    /// From start to end.
    pub(crate) run: Histogram,
    /// Number of records that another variant of the plan computed.
    pub(crate) missed: u64,
}

/// The times of all steps of a plan.
#[derive(Clone, Debug)]
pub(crate) struct StepClock {
    pub(crate) steps: Vec<StepTimes>,
    /// Time for decoding records that reached the engine as bytes, summed over its threads.
    pub(crate) decode: Duration,
}

impl StepClock {
    pub(crate) fn new(steps: usize) -> StepClock {
        StepClock {
            steps: vec![StepTimes::default(); steps],
            decode: Duration::ZERO,
        }
    }

    /// Adds a run of step `i`.
    pub(crate) fn record(&mut self, i: usize, run: Duration) {
        self.steps[i].run.record(run);
    }

    pub(crate) fn clear(&mut self) {
        self.decode = Duration::ZERO;
        for s in &mut self.steps {
            s.queued.clear();
            s.wait.clear();
            s.run.clear();
            s.missed = 0;
        }
    }
}

/// The part of a stream that one of several devices computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberTimes {
    pub(crate) records: u64,
    pub(crate) batches: u64,
    /// Time during which the device had a batch.
    pub(crate) busy: Duration,
    /// Time of `busy` spent decoding on the device's thread, if times are taken.
    pub(crate) decode: Duration,
    /// The reason why the device no longer takes part.
    pub(crate) failed: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_two_percent() {
        let mut h = Histogram::default();
        h.record_ns(1_000_000);
        for ns in 1..=100_000u64 {
            h.record_ns(ns * 10);
        }
        assert_eq!((h.count(), h.first_us()), (100_000, Some(1000.0)));
        for (share, us) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = h.percentile_us(share).unwrap();
            assert!((found / us - 1.0f64).abs() < 0.02, "{share}: {found}");
        }
        assert!((h.mean_us().unwrap() - 500.005).abs() < 1e-6);
        assert!((h.total_us() - 100_000.0 * 500.005 - 1000.0).abs() < 1e-3);
        assert!(Histogram::default().percentile_us(0.5).is_none());
    }

    #[test]
    fn buckets_do_not_overlap() {
        let mut last = 0;
        for ns in 0..1_000_000u64 {
            let b = Histogram::bucket(ns);
            assert!(b == last || b == last + 1, "{ns}");
            last = b;
            let middle = Histogram::middle(b);
            assert!(
                (middle - ns as f64).abs() <= 0.016 * ns as f64 + 0.5,
                "{ns} {middle}"
            );
        }
    }
}
