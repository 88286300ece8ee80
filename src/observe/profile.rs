//! The times of start-up, of the steps of a plan, and of devices that share a run. Recording the
//! time of a step does not allocate.

use crate::observe::trace::{Name, Track};
use crate::sys::watchdog;
use std::time::{Duration, Instant};

/// The number of buckets between successive powers of two of nanoseconds. Percentiles are the
/// middles of buckets, so they are wrong by at most 1.6 %.
const FINE: usize = 32;

/// Durations, counted in logarithmic buckets. The first duration is kept apart, because drivers put
/// work off until the first call.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Box<[u32]>,
    first: Option<u64>,
    count: u64,
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        // Durations up to 2^46 ns (19 hours). Longer ones are counted in the last bucket.
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

    /// Returns the index of a duration's bucket. Below 2·FINE ns each bucket is a nanosecond wide.
    /// Above, each doubling of the duration has FINE buckets.
    fn bucket(ns: u64) -> usize {
        if ns < 2 * FINE as u64 {
            return ns as usize;
        }
        let shift = 63 - ns.leading_zeros() as usize - FINE.ilog2() as usize;
        shift * FINE + (ns >> shift) as usize
    }

    /// Returns the middle of the durations of a bucket, in nanoseconds.
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
    /// in microseconds. It is the middle of a bucket. `None` if there are no such durations.
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
    /// The name and the total time of each phase. Phases of the same name are summed up.
    pub(crate) times: Vec<(&'static str, Duration)>,
    /// The origins of the OpenCL programs. `None` if only the host engine started.
    pub(crate) origins: Option<Origins>,
    /// The trace that gets a span for each phase. `None` if the run has no trace.
    pub(crate) track: Option<Track>,
}

/// Counts where an OpenCL engine's compiled programs came from: the cache or the compiler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    /// The number of programs that were taken compiled from the cache folder.
    pub(crate) hits: usize,
    /// The number of programs that the driver compiled.
    pub(crate) misses: usize,
    /// Notes for the user: reasons to compile, faults of the cache, and changes to the plan that
    /// the device demanded.
    pub(crate) notes: Vec<String>,
}

impl Origins {
    /// Adds a note, unless an equal one is there already.
    pub(crate) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Returns `HIT` if no program was compiled, else `MISS`.
    pub(crate) fn word(&self) -> &'static str {
        if self.misses == 0 { "HIT" } else { "MISS" }
    }

    /// Returns a line with `HIT` or `MISS` and with the number of programs that came from the
    /// cache.
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
    /// Runs `work`, adds its time to phase `name`, and records it in the trace.
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

    /// Adds the phases and origins of another engine that was started in the same run.
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
    /// The times from enqueueing the step to handing it to the device (OpenCL: queued to submit).
    pub(crate) queued: Histogram,
    /// The times from handing the step to the device to its start (OpenCL: submit to start).
    pub(crate) wait: Histogram,
    /// The times from the start of the step to its end.
    pub(crate) run: Histogram,
    /// The number of the device's records for which this step did not run, because another variant
    /// of the plan computed them.
    pub(crate) missed: u64,
}

/// The times of all steps of a plan.
#[derive(Clone, Debug)]
pub(crate) struct StepClock {
    pub(crate) steps: Vec<StepTimes>,
    /// The time that the engine's threads spent decoding records that reached it as bytes, summed
    /// up.
    pub(crate) decode: Duration,
}

impl StepClock {
    pub(crate) fn new(steps: usize) -> StepClock {
        StepClock {
            steps: vec![StepTimes::default(); steps],
            decode: Duration::ZERO,
        }
    }

    /// Adds the duration of one run of step `i`.
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

/// The work of one device of several that share a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberTimes {
    pub(crate) records: u64,
    pub(crate) batches: u64,
    /// The time during which the device had work, summed over its batches. A batch counts from when
    /// the device took it until its end. If the batch before ended later, the count begins at that
    /// end.
    pub(crate) busy: Duration,
    /// The time that the device's thread spent decoding records, which is a part of `busy`. Zero if
    /// no times are taken.
    pub(crate) decode: Duration,
    /// The reason why the device no longer takes part. `None` while it does.
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
