//! How fast members are, and who should take how much of what is left.

/// The time of a chunk, as measured: a straight line from one record to a full batch, in
/// microseconds.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Most records of a chunk.
    batch: usize,
    one: f64,
    full: f64,
}

/// Weight of the newest measurement.
const NEWEST: f64 = 0.5;

/// A measurement that is off by more than this changes both ends of the line: the member itself has
/// become faster or slower.
const OFF: f64 = 1.5;

impl Pace {
    /// From the time of one record and that of `records`.
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

    /// Where between one record and a full batch.
    fn part(&self, records: usize) -> f64 {
        if self.batch > 1 {
            (records.saturating_sub(1)) as f64 / (self.batch - 1) as f64
        } else {
            0.0
        }
    }

    /// Expected time of a chunk.
    pub(super) fn time(&self, records: usize) -> f64 {
        self.one + (self.full - self.one) * self.part(records)
    }

    /// Records a microsecond, in full batches.
    pub(super) fn rate(&self) -> f64 {
        self.batch as f64 / self.full
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

/// When `records` records are done at the earliest, in microseconds from now, if each member begins
/// with them when its `pending` microseconds are over.
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
    // By bisection: what the members do grows with the time.
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

/// Records of the next chunk of a member that is free in `pending` microseconds, if everything is
/// to be done by the `horizon`. `granule`: part batches cost as much as the next multiple of it.
pub(super) fn share(pace: &Pace, pending: f64, horizon: f64, granule: usize) -> usize {
    let records = pace.within(horizon - pending).min(pace.batch);
    records.next_multiple_of(granule.max(1)).min(pace.batch)
}

/// Who takes part in full slots: all members, or the fastest one by itself, whichever gets more
/// done. Members that compute on the same cores (the host beside a CPU's driver), or whose threads
/// take a core that another one needs, may be slower together than the best of them is alone; only
/// measuring both tells.
///
/// Both are tried for some slots; what won stays, and the other one is tried again when that has
/// lasted, each time for longer.
#[derive(Clone, Debug)]
pub(super) struct Party {
    /// Who is alone now.
    alone: Option<usize>,
    /// Microseconds a record of the fastest member, as measured when nobody else ran.
    best: f64,
    /// Microseconds a record: of all, and of the fastest one.
    costs: [Option<f64>; 2],
    /// Full slots since the last change, and the time and records of those that count.
    slots: u32,
    us: f64,
    records: usize,
    /// Whether the other way is being tried.
    trying: bool,
    /// Slots until the other way is tried.
    stay: u32,
    /// How often in a row one alone was faster, and how often in a row a slot was far slower than
    /// when it was tried.
    faster: u32,
    slower: u32,
}

impl Party {
    /// Slots that do not count after a change: what was on its way was shared in the other way.
    const SETTLE: u32 = 2;
    /// Slots that a trial counts.
    const TRIAL: u32 = 3;
    /// Slots from one trial to the next: at first, and at most.
    const STAY: (u32, u32) = (12, 4096);
    /// All take part unless one alone needs less than this part of their time.
    const BETTER: f64 = 0.97;
    /// One alone is tried where all need more than this part of what the fastest needed by itself.
    const CLEARLY: f64 = 0.8;
    /// Trials in a row that say so, or chance would.
    const SURE: u32 = 2;
    /// What is so many times as slow as when it was tried, for that many slots, is tried again.
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
            stay: Party::STAY.0,
            faster: 0,
            slower: 0,
        }
    }

    /// A member did so many records a microsecond when nobody else ran.
    pub(super) fn can_do(&mut self, rate: f64) {
        self.best = self.best.min(1.0 / rate);
    }

    /// Who takes part alone in a full slot; `None`: all do.
    pub(super) fn alone(&self) -> Option<usize> {
        self.alone
    }

    /// A full slot was done so long after the one before; `fastest` is the fastest member now.
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
            self.stay = (2 * self.stay).min(Party::STAY.1);
            self.trying = true;
            // What it costs is known; one that is alone has to be faster once more only.
            self.costs[way] = Some(cost);
            self.costs[1 - way] = None;
            self.faster = if way == 1 { Party::SURE - 1 } else { 0 };
            self.change(if way == 1 { None } else { fastest });
        }
    }

    /// All take part again: one has failed.
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

    /// Runs `slots` full slots; `cost` is that of all and of one alone, in a slot. Gives how many
    /// one had alone.
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
        // Alone is tried now and then only.
        assert!(party(&mut p, 2000, [100.0, 140.0]) < 60);
        // Then others come in its way, and soon it stays alone.
        let mut p = Party::new();
        assert!(party(&mut p, 2000, [140.0, 100.0]) > 1940);
        // As they are no more, the others are back.
        assert!(party(&mut p, 8000, [70.0, 100.0]) < 4200);
        assert_eq!(p.alone(), None);
        p.begin_again();
        assert_eq!(party(&mut p, 5, [1.0, 1.0]), 0);
        assert_eq!(p.alone(), Some(3));
        // Where all are clearly faster nobody is tried alone.
        assert_eq!(party(&mut Party::new(), 2000, [50.0, 100.0]), 0);
        // About equal: all. Once faster may be chance.
        assert!(party(&mut p, 1000, [100.0, 99.0]) < 60);
        let mut p = Party::new();
        assert_eq!(party(&mut p, 11, [100.0, 90.0]), 5);
        assert_eq!((party(&mut p, 8, [100.0, 99.0]), p.alone()), (4, Some(3)));
        party(&mut p, 1, [100.0, 101.0]);
        assert_eq!((p.alone(), p.trying), (None, false));
        // One that is alone and becomes slow has company soon.
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
        // A batch of one, and one that is measured as faster than a record.
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
        // It becomes 20 times slower, and recovers although it gets small chunks only.
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
        // Small changes move the near end only.
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
        // Much is left: full batches.
        assert_eq!(
            shares(&[(fast.clone(), 0.0), (fast.clone(), 500.0)], 1600),
            [100, 100]
        );
        // The last hundred, while the other one is half through its chunk.
        let last = shares(&[(fast.clone(), 0.0), (fast.clone(), 500.0)], 100);
        assert!(
            last[0].abs_diff(75) <= 1 && last[1].abs_diff(25) <= 1,
            "{last:?}"
        );
        // A slow one gets what it can do meanwhile, or nothing.
        let uneven = shares(&[(fast.clone(), 0.0), (slow.clone(), 0.0)], 110);
        assert!(
            uneven[0].abs_diff(100) <= 1 && uneven[1].abs_diff(10) <= 1,
            "{uneven:?}"
        );
        assert_eq!(shares(&[(fast.clone(), 0.0), (slow.clone(), 0.0)], 8)[1], 0);
        // A lone record goes where it is answered first: not to the faster one if that is busy.
        assert_eq!(
            shares(&[(fast.clone(), 0.0), (slow.clone(), 0.0)], 1),
            [1, 0]
        );
        assert_eq!(
            shares(&[(fast.clone(), 300.0), (slow.clone(), 0.0)], 1),
            [0, 1]
        );
        assert_eq!(share(&fast, 0.0, 370.0, 10), 40);
        // Whatever the numbers, somebody takes something.
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
