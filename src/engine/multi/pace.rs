//! The speeds of the members, and the sizes of their chunks.

/// The measured time of a chunk in microseconds, as a function of its number of records. It is a
/// straight line from one record to a full batch.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// The largest number of records in a chunk.
    batch: usize,
    one: f64,
    full: f64,
}

/// The weight of the newest measurement in a new estimate. All earlier ones together have the
/// weight 1 − `NEWEST`.
const NEWEST: f64 = 0.5;

/// A measured time that is off by more than this factor changes both ends of the line of [`Pace`].
/// The whole device has then become faster or slower.
const OFF: f64 = 1.5;

impl Pace {
    /// Makes the line from the time `one` of one record and the time `us` of `records` records, in
    /// microseconds.
    pub(super) fn new(batch: usize, one: f64, records: usize, us: f64) -> Pace {
        let one = one.max(0.1);
        let mut pace = Pace {
            batch,
            one,
            full: one,
        };
        let part = pace.part(records);
        pace.full = if part > 0.0 {
            one + (us - one).max(0.0) / part
        } else {
            one
        };
        pace
    }

    /// Returns the position of a chunk's size on the line: 0 for one record, 1 for a full batch.
    fn part(&self, records: usize) -> f64 {
        if self.batch > 1 {
            (records.saturating_sub(1)) as f64 / (self.batch - 1) as f64
        } else {
            0.0
        }
    }

    /// Returns the expected time of a chunk of `records` records, in microseconds.
    pub(super) fn time(&self, records: usize) -> f64 {
        self.one + (self.full - self.one) * self.part(records)
    }

    /// Returns the member's speed in full batches, in records per microsecond.
    pub(super) fn rate(&self) -> f64 {
        self.batch as f64 / self.full
    }

    /// Returns the number of records that a member computes in `us` microseconds. Beyond one batch,
    /// the rate of full batches counts.
    fn within(&self, us: f64) -> usize {
        if us < self.one {
            0
        } else if us < self.full {
            1 + ((us - self.one) / (self.full - self.one) * (self.batch - 1) as f64) as usize
        } else {
            (us / self.full * self.batch as f64) as usize
        }
    }

    /// Updates the line with the measured time `us` of a chunk of `records` records.
    pub(super) fn observe(&mut self, records: usize, us: f64) {
        let ratio = (us / self.time(records)).max(0.01);
        let factor = 1.0 + (ratio - 1.0) * NEWEST;
        let (few, off) = (
            self.part(records) < 0.25,
            !(1.0 / OFF..OFF).contains(&ratio),
        );
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

/// Returns the least time in microseconds, from now on, in which the members together can do
/// `records` records. Each member begins after its own `pending` microseconds.
pub(super) fn horizon<'a>(
    members: impl Iterator<Item = (&'a Pace, f64)> + Clone,
    records: usize,
) -> f64 {
    let alone = |(pace, pending): (&Pace, f64)| {
        let batches = records.div_ceil(pace.batch).max(1) as f64;
        pending
            + if records < pace.batch {
                pace.time(records)
            } else {
                pace.full * batches
            }
    };
    // The time is found by bisection, because the number of records done grows with it.
    let (mut low, mut high) = (
        0.0,
        members.clone().map(alone).fold(f64::INFINITY, f64::min),
    );
    while high.is_finite() && high - low > 1e-3 * high {
        let middle = (low + high) / 2.0;
        match members
            .clone()
            .map(|(pace, pending)| pace.within(middle - pending))
            .sum::<usize>()
            >= records
        {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

/// Returns the size of the next chunk of a member that is free in `pending` microseconds. The chunk
/// should be done by the `horizon`. A partial batch costs as much as the next multiple of
/// `granule`.
pub(super) fn share(pace: &Pace, pending: f64, horizon: f64, granule: usize) -> usize {
    let records = pace.within(horizon - pending).min(pace.batch);
    records.next_multiple_of(granule.max(1)).min(pace.batch)
}

/// Chooses who computes full slots: all members, or the fastest one alone. Members that compete for
/// the same cores may be slower together than the best one alone. Only measuring both ways tells.
///
/// Both ways are tried for some slots, and the faster one stays. After a while the other way is
/// tried again, each time after a longer interval.
#[derive(Clone, Debug)]
pub(super) struct Party {
    /// The member that computes full slots alone; `None` if all members do.
    alone: Option<usize>,
    /// Microseconds per record of the fastest member, as measured at the start, when only one
    /// member at a time computes.
    best: f64,
    /// Microseconds per record of all members together, and of the fastest one alone. `None` if a
    /// trial has yet to measure this way.
    costs: [Option<f64>; 2],
    /// `slots` counts full slots since the last change between all members and one. `us` and
    /// `records` are the time and the records of these slots, without the first [`Party::SETTLE`].
    slots: u32,
    us: f64,
    records: usize,
    /// True while a trial compares the two ways: all members, and the fastest one alone.
    trying: bool,
    /// The number of full slots to compute in the present way before the next trial of the other
    /// way.
    stay: u32,
    /// `faster` counts consecutive trials that one member alone won. `slower` counts consecutive
    /// slots that took far longer than in the trial.
    faster: u32,
    slower: u32,
}

impl Party {
    /// The number of full slots after a change of way that are not counted. Some of their chunks
    /// were taken before the change.
    const SETTLE: u32 = 2;
    /// The number of full slots that a trial counts.
    const TRIAL: u32 = 3;
    /// The number of full slots between two trials. It begins with `FIRST_STAY` and grows up to
    /// `LONGEST_STAY`.
    const FIRST_STAY: u32 = 12;
    const LONGEST_STAY: u32 = 4096;
    /// One member alone is chosen if its time is below this fraction of the time of all members
    /// together.
    const BETTER: f64 = 0.97;
    /// One member alone is tried if the time of all members together is above this fraction of the
    /// fastest member's time at the start.
    const CLEARLY: f64 = 0.8;
    /// The number of consecutive trials that one member alone must win, so that chance does not
    /// decide.
    const SURE: u32 = 2;
    /// A new trial begins if slots take longer than in the last trial by the factor in the first
    /// value. The second value is the necessary number of such slots in a row.
    const CHANGED: (f64, u32) = (1.5, 2);

    pub(super) fn new() -> Party {
        Party {
            alone: None,
            best: f64::INFINITY,
            costs: [None; 2],
            slots: 0,
            us: 0.0,
            records: 0,
            trying: true,
            stay: Party::FIRST_STAY,
            faster: 0,
            slower: 0,
        }
    }

    /// Takes a member's rate at the start, in records per microsecond. The highest rate of all
    /// members counts.
    pub(super) fn can_do(&mut self, rate: f64) {
        self.best = self.best.min(1.0 / rate);
    }

    pub(super) fn alone(&self) -> Option<usize> {
        self.alone
    }

    /// Takes the number of records in a full slot that is done, and the microseconds since the
    /// previous full slot was done. Chooses who computes the next slots. `fastest` is the fastest
    /// member now.
    pub(super) fn observe(&mut self, records: usize, us: f64, fastest: Option<usize>) {
        self.slots += 1;
        if self.slots <= Party::SETTLE {
            return;
        }
        self.us += us;
        self.records += records;
        let cost = self.us / self.records as f64;
        let way = usize::from(self.alone.is_some());
        let counted = self.slots - Party::SETTLE;
        if self.trying && counted >= Party::TRIAL {
            self.costs[way] = Some(cost);
            match self.costs {
                [Some(all), Some(one)] if one < all * Party::BETTER => {
                    self.faster += 1;
                    self.trying = self.faster < Party::SURE;
                    if self.trying {
                        self.costs = [None; 2];
                    }
                    self.change(if self.trying { None } else { fastest });
                }
                [Some(_), Some(_)] => {
                    (self.trying, self.faster) = (false, 0);
                    self.change(None);
                }
                [Some(all), None] if all < self.best * Party::CLEARLY => {
                    self.trying = false;
                    self.change(None);
                }
                [None, _] => self.change(None),
                [_, None] => self.change(fastest),
            }
            return;
        }
        let tried = self.costs[way].unwrap_or(f64::INFINITY);
        let (most, slots) = Party::CHANGED;
        self.slower = if !self.trying && us / records as f64 > most * tried {
            self.slower + 1
        } else {
            0
        };
        if self.slower >= slots {
            self.begin_again();
        } else if !self.trying
            && counted >= self.stay
            && (way == 1 || cost >= self.best * Party::CLEARLY)
        {
            self.stay = (2 * self.stay).min(Party::LONGEST_STAY);
            self.trying = true;
            // The cost of the way in use is known, so the trial measures only the other way. A
            // member that computes alone already has to win only once more.
            self.costs[way] = Some(cost);
            self.costs[1 - way] = None;
            self.faster = if way == 1 { Party::SURE - 1 } else { 0 };
            self.change(if way == 1 { None } else { fastest });
        }
    }

    /// Lets all members take part again and begins a new trial, for example after a member failed.
    pub(super) fn begin_again(&mut self) {
        *self = Party {
            stay: self.stay,
            best: self.best,
            ..Party::new()
        };
    }

    fn change(&mut self, alone: Option<usize>) {
        if self.alone != alone {
            self.slots = 0;
        } else {
            self.slots = Party::SETTLE;
        }
        (self.alone, self.us, self.records) = (alone, 0.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes `slots` full slots. `cost` has the microseconds of a slot with all members, and
    /// with one member alone. Returns the number of slots that one member computed alone.
    fn party(party: &mut Party, slots: u32, cost: [f64; 2]) -> u32 {
        let mut alone = 0;
        party.can_do(1000.0 / cost[1]);
        for _ in 0..slots {
            let way = usize::from(party.alone().is_some());
            alone += way as u32;
            assert!(party.alone().is_none_or(|who| who == 3));
            party.observe(1000, cost[way], Some(3));
        }
        alone
    }

    #[test]
    fn all_take_part_unless_one_is_faster_alone() {
        let mut p = Party::new();
        // One member alone is tried only now and then.
        assert!(party(&mut p, 2000, [100.0, 140.0]) < 60);
        // If the others slow the fastest member down, it soon computes alone.
        let mut p = Party::new();
        assert!(party(&mut p, 2000, [140.0, 100.0]) > 1940);
        // Then the members stop slowing each other down. After some slots all take part again.
        assert!(party(&mut p, 8000, [70.0, 100.0]) < 4200);
        assert_eq!(p.alone(), None);
        p.begin_again();
        assert_eq!(party(&mut p, 5, [1.0, 1.0]), 0);
        assert_eq!(p.alone(), Some(3));
        // If all members together are clearly faster, one alone is never tried.
        assert_eq!(party(&mut Party::new(), 2000, [50.0, 100.0]), 0);
        // If both ways are about equally fast, all members take part. A single faster trial may be
        // chance.
        assert!(party(&mut p, 1000, [100.0, 99.0]) < 60);
        let mut p = Party::new();
        assert_eq!(party(&mut p, 11, [100.0, 90.0]), 5);
        assert_eq!((party(&mut p, 8, [100.0, 99.0]), p.alone()), (4, Some(3)));
        party(&mut p, 1, [100.0, 101.0]);
        assert_eq!((p.alone(), p.trying), (None, false));
        // If the lone member becomes slow, the others soon take part again.
        let mut p = Party::new();
        party(&mut p, 100, [140.0, 100.0]);
        assert_eq!(p.alone(), Some(3));
        assert!(party(&mut p, 20, [300.0, 500.0]) <= 7 && p.alone().is_none());
    }

    fn shares(members: &[(Pace, f64)], records: usize) -> Vec<usize> {
        let all = members.iter().map(|(pace, pending)| (pace, *pending));
        let horizon = horizon(all, records);
        members
            .iter()
            .map(|(pace, pending)| share(pace, *pending, horizon, 1))
            .collect()
    }

    #[test]
    fn a_pace_is_a_line_through_two_times() {
        let pace = Pace::new(101, 10.0, 26, 60.0);
        assert_eq!(
            (pace.time(1), pace.time(26), pace.time(101)),
            (10.0, 60.0, 210.0)
        );
        assert_eq!(
            (
                pace.within(9.0),
                pace.within(10.0),
                pace.within(210.0),
                pace.within(420.0)
            ),
            (0, 1, 101, 202)
        );
        // Edge cases: a batch of one record, and a full batch that was measured as faster than one
        // record.
        assert_eq!(Pace::new(1, 5.0, 1, 5.0).within(11.0), 2);
        let flat = Pace::new(100, 10.0, 25, 3.0);
        assert_eq!(
            (flat.time(100), flat.within(10.0), flat.within(9.0)),
            (10.0, 100, 0)
        );
    }

    #[test]
    fn the_pace_follows_the_device() {
        let mut pace = Pace::new(100, 10.0, 100, 1000.0);
        let truth = |n: usize, slow: f64| slow * (10.0 + 10.0 * (n - 1) as f64);
        // The device becomes 20 times slower. It recovers although it gets only small chunks.
        (0..8).for_each(|_| pace.observe(100, truth(100, 20.0)));
        assert!(
            (pace.time(100) / truth(100, 20.0) - 1.0).abs() < 0.02,
            "{pace:?}"
        );
        (0..12).for_each(|_| pace.observe(5, truth(5, 1.0)));
        assert!(
            (0.6..1.6).contains(&(pace.time(100) / truth(100, 1.0))),
            "{pace:?}"
        );
        assert!(
            (0.8..1.2).contains(&(pace.time(5) / truth(5, 1.0))),
            "{pace:?}"
        );
        // Small changes move only one end of the line.
        let one = pace.time(1);
        pace.observe(100, pace.time(100) * 1.2);
        assert_eq!(pace.time(1), one);
        pace.observe(100, 0.0);
        assert!(pace.time(1) > 0.0 && pace.time(100) >= pace.time(1));
    }

    #[test]
    fn what_is_left_is_shared_so_that_all_end_together() {
        let (fast, slow) = (
            Pace::new(100, 10.0, 100, 1000.0),
            Pace::new(100, 100.0, 100, 10_000.0),
        );
        // With many records left, all members get full batches.
        assert_eq!(
            shares(&[(fast.clone(), 0.0), (fast.clone(), 500.0)], 1600),
            [100, 100]
        );
        // The last hundred records are shared while the second member is half through its chunk.
        let last = shares(&[(fast.clone(), 0.0), (fast.clone(), 500.0)], 100);
        assert!(
            last[0].abs_diff(75) <= 1 && last[1].abs_diff(25) <= 1,
            "{last:?}"
        );
        // A slow member gets the records that it can do while the fast one works, or none.
        let uneven = shares(&[(fast.clone(), 0.0), (slow.clone(), 0.0)], 110);
        assert!(
            uneven[0].abs_diff(100) <= 1 && uneven[1].abs_diff(10) <= 1,
            "{uneven:?}"
        );
        assert_eq!(shares(&[(fast.clone(), 0.0), (slow.clone(), 0.0)], 8)[1], 0);
        // A lone record goes to the member that answers it first. That may be the slower member if
        // the faster one is busy.
        assert_eq!(
            shares(&[(fast.clone(), 0.0), (slow.clone(), 0.0)], 1),
            [1, 0]
        );
        assert_eq!(
            shares(&[(fast.clone(), 300.0), (slow.clone(), 0.0)], 1),
            [0, 1]
        );
        assert_eq!(share(&fast, 0.0, 370.0, 10), 40);
        // For every number of records, at least one member takes some.
        for records in 1..400 {
            assert!(
                shares(&[(fast.clone(), 77.7), (slow.clone(), 3.3)], records)
                    .iter()
                    .sum::<usize>()
                    > 0
            );
        }
    }
}
