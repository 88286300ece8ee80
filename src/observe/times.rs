//! The times of a stream, and the latencies of its batches.

use crate::ir::order::ascending;
use crate::observe::trace::Track;
use std::time::{Duration, Instant};

/// The numbers of records and batches that a run has answered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The number of answered records, bad ones included.
    pub(crate) records: u64,
    pub(crate) batches: u64,
    /// The number of bad records, which were answered with an error.
    pub(crate) marked: u64,
}

/// The times of a run of the stream, summed over its batches, for profiles. Taking them does not
/// allocate.
#[derive(Debug, Default)]
pub(crate) struct StreamTimes {
    /// The time of system calls that read input which had already arrived, without waiting.
    pub(crate) read: Duration,
    /// The time spent on finding records in the input. It includes the decoding of their numbers,
    /// unless the engine's threads decode. It does not include `read`.
    pub(crate) parse: Duration,
    /// The time of waiting for input to arrive.
    pub(crate) wait: Duration,
    /// The time of handing batches to the engine and of waiting for their answers. The engine also
    /// computes during `parse`.
    pub(crate) engine: Duration,
    /// The time of turning answers into text and of writing it.
    pub(crate) write: Duration,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    /// The latency of each batch, from the start of its parsing until its answers are written.
    pub(crate) latencies: Latencies,
    /// The latency of the first batch. It can be much longer than others, because drivers put work
    /// off until a kernel runs.
    pub(crate) first: Option<Duration>,
    /// The trace that gets a span for each time. `None` if the run has no trace.
    pub(crate) track: Option<Track>,
}

impl StreamTimes {
    /// Counts a batch whose answers are written. Its parsing began at `started`.
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

/// The latencies of the newest [`KEPT`] batches of a run. Every one of them is kept, so that
/// percentiles are exact.
#[derive(Debug)]
pub(crate) struct Latencies {
    nanoseconds: Vec<u64>,
    /// The number of latencies added so far, including those that newer ones have replaced.
    added: usize,
}

/// The largest number of latencies that are kept.
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

    /// Returns the smallest kept latency that `percent` % of the kept latencies do not exceed
    /// (nearest rank).
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
