//! Where the time of a run goes.

use crate::ir::order::ascending;
use crate::observe::trace::Track;
use std::time::{Duration, Instant};

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Records answered, bad ones among them.
    pub(crate) records: u64,
    /// Batches they came in.
    pub(crate) batches: u64,
    /// Bad records, answered with an error.
    pub(crate) marked: u64,
}

/// Times of a run, summed up. Measured only where somebody asks for them; no allocation while a run
/// goes on.
#[derive(Debug, Default)]
pub(crate) struct StreamTimes {
    /// System calls that read input which was there already.
    pub(crate) read: Duration,
    /// Finding records, and their numbers where that is not left to the engine's threads, without
    /// `read`.
    pub(crate) parse: Duration,
    /// Waiting for input to come.
    pub(crate) wait: Duration,
    /// Handing batches to the engine and waiting for it. The rest of the computation runs beside
    /// `parse`.
    pub(crate) engine: Duration,
    /// Answers to text, and text to the system.
    pub(crate) write: Duration,
    /// Batches answered.
    pub(crate) batches: u64,
    /// Records answered.
    pub(crate) records: u64,
    /// From the start of a batch's parsing until its answers are written, a value a batch.
    pub(crate) latencies: Latencies,
    /// The same for the first batch: drivers put work off until a kernel runs.
    pub(crate) first: Option<Duration>,
    /// Where each of them is kept by itself, if somebody wants to know.
    pub(crate) track: Option<Track>,
}

impl StreamTimes {
    /// Counts a batch whose parsing began at `started`.
    pub(crate) fn answered(&mut self, records: usize, started: Option<Instant>) {
        self.batches += 1;
        self.records += records as u64;
        if let Some(started) = started {
            let latency = started.elapsed();
            self.latencies.add(latency);
            self.first.get_or_insert(latency);
        }
    }
}

/// The last latencies of a run, so that percentiles are exact.
#[derive(Debug)]
pub(crate) struct Latencies {
    nanoseconds: Vec<u64>,
    /// All that were added; the newest are kept.
    added: usize,
}

/// How many are kept.
const KEPT: usize = 1 << 16;

impl Default for Latencies {
    fn default() -> Self {
        Latencies {
            nanoseconds: Vec::with_capacity(KEPT),
            added: 0,
        }
    }
}

impl Latencies {
    fn add(&mut self, latency: Duration) {
        let ns = latency.as_nanos() as u64;
        match self.nanoseconds.get_mut(self.added % KEPT) {
            Some(oldest) => *oldest = ns,
            None => self.nanoseconds.push(ns),
        }
        self.added += 1;
    }

    /// The smallest latency that `percent` of the kept ones do not exceed (nearest rank); `None`
    /// without any.
    pub(crate) fn percentile(&self, percent: f64) -> Option<Duration> {
        let sorted = ascending(self.nanoseconds.iter().map(|&ns| [ns, 0, 0]));
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        let ns = sorted.get(rank.clamp(1, sorted.len().max(1)) - 1)?;
        Some(Duration::from_nanos(self.nanoseconds[*ns]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_newest() {
        let mut l = Latencies::default();
        assert_eq!(l.percentile(50.0), None);
        (1..=100).for_each(|n| l.add(Duration::from_nanos(n)));
        let p = |percent| l.percentile(percent).unwrap().as_nanos();
        assert_eq!(
            [p(0.0), p(50.0), p(95.0), p(99.0), p(100.0)],
            [1, 50, 95, 99, 100]
        );
        let mut l = Latencies::default();
        (0..KEPT as u64 + 10).for_each(|n| l.add(Duration::from_nanos(n)));
        assert_eq!(l.percentile(0.0), Some(Duration::from_nanos(10)));
        assert_eq!(l.nanoseconds.capacity(), KEPT);
    }
}
