//! How fast members are, and who should take how much of what is left.

/// The time of a chunk, as measured: a straight line from one record to a full batch, in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Most records of a chunk.
    batch: usize,
    one: f64,
    full: f64,
}

/// Weight of the newest measurement.
const NEWEST: f64 = 0.5;

/// A measurement that is off by more than this changes both ends of the line: the member itself has become faster or
/// slower.
const OFF: f64 = 1.5;

impl Pace {
    /// From the time of one record and that of `records`.
    pub(super) fn new(batch: usize, one: f64, records: usize, us: f64) -> Pace {
        let one = one.max(0.1);
        let mut pace = Pace { batch, one, full: one };
        let part = pace.part(records);
        pace.full = if part > 0.0 { one + (us - one).max(0.0) / part } else { one };
        pace
    }

    /// Where between one record and a full batch.
    fn part(&self, records: usize) -> f64 {
        if self.batch > 1 { (records.saturating_sub(1)) as f64 / (self.batch - 1) as f64 } else { 0.0 }
    }

    /// Expected time of a chunk.
    pub(super) fn time(&self, records: usize) -> f64 {
        self.one + (self.full - self.one) * self.part(records)
    }

    /// Records that are done in `us` microseconds, in as many full batches as fit.
    fn within(&self, us: f64) -> usize {
        if us < self.one {
            0
        } else if us < self.full {
            1 + ((us - self.one) / (self.full - self.one) * (self.batch - 1) as f64) as usize
        } else {
            (us / self.full * self.batch as f64) as usize
        }
    }

    /// A chunk took so long.
    pub(super) fn observe(&mut self, records: usize, us: f64) {
        let ratio = (us / self.time(records)).max(0.01);
        let factor = 1.0 + (ratio - 1.0) * NEWEST;
        let (few, off) = (self.part(records) < 0.25, !(1.0 / OFF..OFF).contains(&ratio));
        if few || off {
            self.one *= factor;
        }
        if !few || off {
            self.full *= factor;
        }
        self.one = self.one.clamp(0.1, 1e12);
        self.full = self.full.max(self.one);
    }
}

/// When `records` records are done at the earliest, in microseconds from now, if each member begins with them when its
/// `pending` microseconds are over.
pub(super) fn horizon<'a>(members: impl Iterator<Item = (&'a Pace, f64)> + Clone, records: usize) -> f64 {
    let alone = |(pace, pending): (&Pace, f64)| {
        let batches = records.div_ceil(pace.batch).max(1) as f64;
        pending + if records < pace.batch { pace.time(records) } else { pace.full * batches }
    };
    // By bisection: what the members do grows with the time.
    let (mut low, mut high) = (0.0, members.clone().map(alone).fold(f64::INFINITY, f64::min));
    while high.is_finite() && high - low > 1e-3 * high {
        let middle = (low + high) / 2.0;
        match members.clone().map(|(pace, pending)| pace.within(middle - pending)).sum::<usize>() >= records {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

/// Records of the next chunk of a member that is free in `pending` microseconds, if everything is to be done by the
/// `horizon`. `granule`: part batches cost as much as the next multiple of it.
pub(super) fn share(pace: &Pace, pending: f64, horizon: f64, granule: usize) -> usize {
    let records = pace.within(horizon - pending).min(pace.batch);
    records.next_multiple_of(granule.max(1)).min(pace.batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(members: &[(Pace, f64)], records: usize) -> Vec<usize> {
        let all = members.iter().map(|(pace, pending)| (pace, *pending));
        let horizon = horizon(all, records);
        members.iter().map(|(pace, pending)| share(pace, *pending, horizon, 1)).collect()
    }

    #[test]
    fn a_pace_is_a_line_through_two_times() {
        let pace = Pace::new(101, 10.0, 26, 60.0);
        assert_eq!((pace.time(1), pace.time(26), pace.time(101)), (10.0, 60.0, 210.0));
        assert_eq!(
            (pace.within(9.0), pace.within(10.0), pace.within(210.0), pace.within(420.0)),
            (0, 1, 101, 202)
        );
        // A batch of one, and one that is measured as faster than a record.
        assert_eq!(Pace::new(1, 5.0, 1, 5.0).within(11.0), 2);
        let flat = Pace::new(100, 10.0, 25, 3.0);
        assert_eq!((flat.time(100), flat.within(10.0), flat.within(9.0)), (10.0, 100, 0));
    }

    #[test]
    fn the_pace_follows_the_device() {
        let mut pace = Pace::new(100, 10.0, 100, 1000.0);
        let truth = |n: usize, slow: f64| slow * (10.0 + 10.0 * (n - 1) as f64);
        // It becomes 20 times slower, and recovers although it gets small chunks only.
        (0..8).for_each(|_| pace.observe(100, truth(100, 20.0)));
        assert!((pace.time(100) / truth(100, 20.0) - 1.0).abs() < 0.02, "{pace:?}");
        (0..12).for_each(|_| pace.observe(5, truth(5, 1.0)));
        assert!((0.6..1.6).contains(&(pace.time(100) / truth(100, 1.0))), "{pace:?}");
        assert!((0.8..1.2).contains(&(pace.time(5) / truth(5, 1.0))), "{pace:?}");
        // Small changes move the near end only.
        let one = pace.time(1);
        pace.observe(100, pace.time(100) * 1.2);
        assert_eq!(pace.time(1), one);
        pace.observe(100, 0.0);
        assert!(pace.time(1) > 0.0 && pace.time(100) >= pace.time(1));
    }

    #[test]
    fn what_is_left_is_shared_so_that_all_end_together() {
        let (fast, slow) = (Pace::new(100, 10.0, 100, 1000.0), Pace::new(100, 100.0, 100, 10_000.0));
        // Much is left: full batches.
        assert_eq!(shares(&[(fast.clone(), 0.0), (fast.clone(), 500.0)], 1600), [100, 100]);
        // The last hundred, while the other one is half through its chunk.
        let last = shares(&[(fast.clone(), 0.0), (fast.clone(), 500.0)], 100);
        assert!(last[0].abs_diff(75) <= 1 && last[1].abs_diff(25) <= 1, "{last:?}");
        // A slow one gets what it can do meanwhile, or nothing.
        let uneven = shares(&[(fast.clone(), 0.0), (slow.clone(), 0.0)], 110);
        assert!(uneven[0].abs_diff(100) <= 1 && uneven[1].abs_diff(10) <= 1, "{uneven:?}");
        assert_eq!(shares(&[(fast.clone(), 0.0), (slow.clone(), 0.0)], 8)[1], 0);
        // A lone record goes where it is answered first: not to the faster one if that is busy.
        assert_eq!(shares(&[(fast.clone(), 0.0), (slow.clone(), 0.0)], 1), [1, 0]);
        assert_eq!(shares(&[(fast.clone(), 300.0), (slow.clone(), 0.0)], 1), [0, 1]);
        assert_eq!(share(&fast, 0.0, 370.0, 10), 40);
        // Whatever the numbers, somebody takes something.
        for records in 1..400 {
            assert!(shares(&[(fast.clone(), 77.7), (slow.clone(), 3.3)], records).iter().sum::<usize>() > 0);
        }
    }
}
