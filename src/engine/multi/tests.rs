//! Tests of the multi-device engine with mock engines of set speed.

use super::*;
use crate::engine::RecordRows;
use std::error::Error as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::sleep;

const WIDTH: usize = 3;

/// The settings and counters of a mock member.
#[derive(Default)]
struct Dials {
    /// The time of a batch and of each record, in microseconds.
    batch_us: AtomicU64,
    record_us: AtomicU64,
    /// The number of batches after which the member fails. It never fails if this is 0.
    fails_after: AtomicUsize,
    batches: AtomicUsize,
    records: AtomicUsize,
    /// `crowding` is the factor by which a batch takes longer while another member computes. 0
    /// turns this off. `busy` is the number of members that compute now.
    crowding: AtomicU64,
    busy: Arc<AtomicUsize>,
    /// The member's first run: its number of records, and the times of its submission and its end.
    first: Mutex<Option<(usize, Instant, Instant)>>,
}

/// A mock engine. The scores are the sum of a record's numbers and ten times its first number. It
/// computes in `collect`.
struct Mock {
    dials: Arc<Dials>,
    batch: usize,
    slots: [Vec<f32>; SLOTS],
    submitted: [usize; SLOTS],
    scores: [Vec<f32>; SLOTS],
    /// If true, `submit` fails instead of `collect`, and records are not contiguous.
    early: bool,
}

static ROWS: LazyLock<RecordRows> = LazyLock::new(|| RecordRows::first(WIDTH));
/// A layout with non-contiguous records.
static APART: LazyLock<RecordRows> = LazyLock::new(|| RecordRows::new(vec![0, 2, 4]));

impl Engine for Mock {
    fn batch(&self) -> usize {
        self.batch
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        let rows: &RecordRows = if self.early { &APART } else { &ROWS };
        Ok(RecordMut::new(&mut self.slots[slot], rows, index * 6))
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        assert!((1..=self.batch).contains(&records));
        self.submitted[slot] = records;
        let batches = self.dials.batches.fetch_add(1, SeqCst);
        let now = Instant::now();
        self.dials
            .first
            .lock()
            .unwrap()
            .get_or_insert((records, now, now));
        let fails = self.dials.fails_after.load(SeqCst);
        if self.early && fails > 0 && batches >= fails {
            return Err(Error::device("cannot submit"));
        }
        Ok(())
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        let d = &self.dials;
        let records = std::mem::take(&mut self.submitted[slot]);
        let us = d.batch_us.load(SeqCst) + d.record_us.load(SeqCst) * records as u64;
        let others = d.busy.fetch_add(1, SeqCst);
        sleep(Duration::from_micros(us));
        // A member that begins while another one computes is slowed down.
        if others > 0 {
            sleep(Duration::from_micros(
                us * d.crowding.load(SeqCst).saturating_sub(1),
            ));
        }
        d.busy.fetch_sub(1, SeqCst);
        if d.batches.load(SeqCst) == 1 {
            let mut first = d.first.lock().unwrap();
            let (.., end) = first.as_mut().unwrap();
            *end = Instant::now();
        }
        let fails = d.fails_after.load(SeqCst);
        if fails > 0 && d.batches.load(SeqCst) > fails {
            return Err(Error::device("cannot compute"));
        }
        d.records.fetch_add(records, SeqCst);
        let step = if self.early { 2 } else { 1 };
        for i in 0..records {
            let x = |k: usize| self.slots[slot][i * 6 + k * step];
            self.scores[slot][i * 2] = x(0) + x(1) + x(2);
            self.scores[slot][i * 2 + 1] = 10.0 * x(0);
        }
        Ok(())
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        let scores = Record::new(&self.scores[slot], &[0, 1], index * 2);
        Answer {
            class: Some(scores.get(1) as u32 % 7),
            scores,
        }
    }
}

/// Makes an engine of mock members. Each has a batch size, the microseconds of a batch, and the
/// microseconds of each record.
fn engine(members: &[(usize, u64, u64)]) -> (MultiEngine, Vec<Arc<Dials>>) {
    let busy = Arc::new(AtomicUsize::new(0));
    let dials = |&(_, batch_us, record_us): &(usize, u64, u64)| Dials {
        batch_us: batch_us.into(),
        record_us: record_us.into(),
        busy: Arc::clone(&busy),
        ..Dials::default()
    };
    let dials: Vec<Arc<Dials>> = members.iter().map(|m| Arc::new(dials(m))).collect();
    let member = |i: usize, batch: usize, dials: &Arc<Dials>| {
        let mock = Mock {
            dials: Arc::clone(dials),
            batch,
            slots: [(); SLOTS].map(|()| vec![0.0; batch * 6]),
            submitted: [0; SLOTS],
            scores: [(); SLOTS].map(|()| vec![0.0; batch * 2]),
            early: i % 2 == 1,
        };
        let facts = MemberFacts {
            name: format!("mock {i}"),
            batch,
            granule: 1 + i,
            in_process: i != 1,
            track: None,
        };
        Member::start(Box::new(move || Ok((Box::new(mock) as _, facts)))).unwrap()
    };
    let members = members
        .iter()
        .zip(&dials)
        .enumerate()
        .map(|(i, (&(batch, ..), d))| member(i, batch, d))
        .collect();
    (
        MultiEngine::new(
            members,
            RecordSizes {
                width: WIDTH,
                scores: 2,
                classes: true,
            },
            true,
            None,
        ),
        dials,
    )
}

/// Waits until all members have measured their speed.
fn ready(engine: &MultiEngine) {
    while engine
        .shared
        .state()
        .members
        .iter()
        .any(|m| m.pace.is_none() && m.times.failed.is_none())
    {
        sleep(Duration::from_millis(1));
    }
}

fn value(n: usize, i: usize) -> f32 {
    ((n * 31 + i * 17) % 1009) as f32
}

/// Runs batches of the given `sizes`, filling one slot while the other is computed. Returns the
/// number of answered records, and the error if one ended the stream.
fn stream(
    engine: &mut MultiEngine,
    sizes: impl IntoIterator<Item = usize>,
) -> (usize, Option<Error>) {
    let (mut slot, mut read, mut answered) = (0, 0, 0);
    let mut flying: Option<(usize, usize)> = None;
    let mut answer =
        |engine: &mut MultiEngine, flying: &mut Option<(usize, usize)>| -> Result<(), Error> {
            let Some((slot, records)) = flying.take() else {
                return Ok(());
            };
            engine.collect(slot)?;
            for i in 0..records {
                let (n, a) = (answered, engine.answer(slot, i));
                let x: Vec<f32> = (0..WIDTH).map(|k| value(n, k)).collect();
                assert_eq!(
                    (a.scores.get(0), a.scores.get(1)),
                    (x[0] + x[1] + x[2], 10.0 * x[0]),
                    "record {n}"
                );
                assert_eq!(a.class, Some((10.0 * x[0]) as u32 % 7));
                answered += 1;
            }
            Ok(())
        };
    let run = || {
        for records in sizes {
            let records = records.min(engine.batch());
            for i in 0..records {
                let mut record = engine.record(slot, i)?;
                (0..WIDTH).for_each(|k| record.set(k, value(read, k)));
                read += 1;
            }
            if let Err(e) = engine.submit(slot, records) {
                answer(engine, &mut flying)?;
                return Err(e);
            }
            answer(engine, &mut flying)?;
            flying = Some((slot, records));
            slot = 1 - slot;
        }
        answer(engine, &mut flying)
    };
    let error = run().err();
    (answered, error)
}

#[test]
fn answers_keep_their_order_whoever_is_first() {
    let (mut engine, dials) = engine(&[(16, 100, 10), (7, 900, 200), (1, 0, 50)]);
    assert_eq!(engine.batch(), 4 * 24);
    let sizes = (0..60).map(|i| if i % 7 == 6 { i } else { 96 });
    let all: usize = sizes.clone().sum();
    let (answered, error) = stream(&mut engine, sizes);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(answered, all);
    let times = engine.members();
    assert_eq!(
        times.iter().map(|m| m.times.records).sum::<u64>(),
        all as u64
    );
    for (MemberMeasurements { times, .. }, d) in times.iter().zip(&dials) {
        assert!(times.records > 0 && times.batches > 0 && times.busy > Duration::ZERO);
        // The member's batches include the three runs that measured its speed.
        assert_eq!(d.batches.load(SeqCst) as u64, times.batches + 3);
    }
    assert!(
        times[0].times.records > 2 * times[1].times.records,
        "{times:?}"
    );
}

/// PoCL needs full batches first, from one member after the other (`Worker::measure`). Member 1
/// stands for a driver outside this process.
#[test]
fn first_runs_in_this_process_are_full_batches_one_after_the_other() {
    let (engine, dials) = engine(&[(16, 3000, 0), (7, 3000, 0), (1, 3000, 0), (5, 3000, 0)]);
    ready(&engine);
    let mut first: Vec<_> = dials
        .iter()
        .map(|d| d.first.lock().unwrap().unwrap())
        .collect();
    let records: Vec<usize> = first.iter().map(|&(records, ..)| records).collect();
    assert_eq!(records, [16, 1, 1, 5]);
    first.remove(1);
    first.sort_by_key(|&(_, start, _)| start);
    let mut before = None;
    for &(_, start, end) in &first {
        assert!(before.is_none_or(|before| before <= start), "{first:?}");
        assert!(end - start >= Duration::from_millis(3));
        before = Some(end);
    }
}

#[test]
fn a_member_that_fails_loses_nothing() {
    // The failure happens in `submit` (the odd member), in `collect`, and during the measurement.
    for (who, after) in [(1, 8), (0, 8), (2, 12), (1, 1), (0, 2)] {
        let (mut engine, dials) = engine(&[(8, 100, 5), (8, 100, 5), (8, 100, 5)]);
        dials[who].fails_after.store(after, SeqCst);
        // A slow member gets few chunks. On a busy machine it takes a while to reach the failure.
        for _ in 0..50 {
            let (answered, error) = stream(&mut engine, [96; 30]);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(answered, 30 * 96, "{who} {after}");
            if engine.members()[who].times.failed.is_some() {
                break;
            }
        }
        let failed: Vec<bool> = engine
            .members()
            .iter()
            .map(|m| m.times.failed.is_some())
            .collect();
        assert_eq!(failed.iter().filter(|f| **f).count(), 1);
        assert!(failed[who]);
    }
}

#[test]
fn when_all_have_failed_that_is_the_error() {
    let (mut engine, dials) = engine(&[(8, 100, 5), (8, 100, 5)]);
    dials[0].fails_after.store(20, SeqCst);
    dials[1].fails_after.store(30, SeqCst);
    let (answered, error) = stream(&mut engine, [64; 30]);
    let error = error.unwrap();
    let text = error.to_string();
    assert!(
        text.contains("mock ") && text.contains("no other device is left"),
        "{text}"
    );
    let source = error.source().unwrap().to_string();
    assert!(
        ["cannot submit", "cannot compute"].contains(&&*source),
        "{source}"
    );
    // Some slots were answered before the last member failed, all of them rightly.
    assert!(
        (64..30 * 64).contains(&answered) && answered % 64 == 0,
        "{answered}"
    );
    assert!(engine.submit(0, 1).is_err() && engine.submit(1, 1).is_err());
}

#[test]
fn a_lone_record_goes_where_it_is_answered_first() {
    // The first member is faster with many records, the second with few.
    let (mut engine, dials) = engine(&[(50, 20_000, 0), (50, 500, 1000)]);
    ready(&engine);
    let before: Vec<usize> = dials.iter().map(|d| d.records.load(SeqCst)).collect();
    let (answered, _) = stream(&mut engine, [1; 20]);
    assert_eq!(answered, 20);
    let done = |i: usize| dials[i].records.load(SeqCst) - before[i];
    assert_eq!((done(0), done(1)), (0, 20));
    // The second member becomes slow, and the first one takes over.
    dials[1].batch_us.store(60_000, SeqCst);
    stream(&mut engine, [1; 10]);
    assert!(done(0) >= 5, "{}", done(0));
}

#[test]
fn who_becomes_slow_gets_less() {
    let (mut engine, dials) = engine(&[(10, 0, 100), (10, 0, 100)]);
    ready(&engine);
    stream(&mut engine, [80; 10]);
    let first = dials[1].records.load(SeqCst);
    assert!(first > 200, "{first}");
    dials[1].record_us.store(5000, SeqCst);
    stream(&mut engine, [80; 20]);
    let then = dials[1].records.load(SeqCst) - first;
    assert!(then > 0 && then < 200, "{then}");
    // After the recovery the member gets more again. On a busy machine it may first be measured as
    // slow once more.
    dials[1].record_us.store(100, SeqCst);
    let recovered = (0..10).any(|_| {
        let before = dials[1].records.load(SeqCst);
        stream(&mut engine, [80; 40]);
        dials[1].records.load(SeqCst) - before > 800
    });
    assert!(recovered, "{then}");
}

/// Two members slow each other down, so one soon computes alone. Later both compute again.
#[test]
fn who_is_in_the_way_rests() {
    let (mut engine, dials) = engine(&[(10, 0, 100), (10, 0, 100)]);
    ready(&engine);
    let shares = |engine: &mut MultiEngine, slots: usize| -> f64 {
        let before: Vec<usize> = dials.iter().map(|d| d.records.load(SeqCst)).collect();
        let (answered, error) = stream(engine, vec![80; slots]);
        assert!(answered == 80 * slots && error.is_none());
        let done = dials
            .iter()
            .zip(before)
            .map(|(d, before)| (d.records.load(SeqCst) - before) as f64);
        done.fold(f64::INFINITY, f64::min) / (80 * slots) as f64
    };
    assert!(shares(&mut engine, 60) > 0.25);
    dials.iter().for_each(|d| d.crowding.store(8, SeqCst));
    assert!(
        (0..10).any(|_| shares(&mut engine, 40) < 0.1),
        "both still compute"
    );
    dials.iter().for_each(|d| d.crowding.store(0, SeqCst));
    assert!(
        (0..10).any(|_| shares(&mut engine, 40) > 0.25),
        "one is still alone"
    );
}

#[test]
fn bytes_are_decoded_by_the_members() {
    /// Decodes each byte as its value and refuses 255.
    struct Bytes;
    impl Decode for Bytes {
        fn decode(&self, bytes: &[u8], values: &mut [f32]) -> bool {
            values
                .iter_mut()
                .zip(bytes)
                .for_each(|(v, &b)| *v = b.into());
            !bytes.contains(&255)
        }
        fn explain(&self, bytes: &[u8], width: usize) -> Refusal {
            Refusal {
                number: width,
                message: format!("{bytes:?}"),
            }
        }
    }
    let decode: Arc<dyn Decode> = Arc::new(Bytes);
    let (mut engine, _) = engine(&[(4, 0, 50), (4, 0, 50)]);
    for wrong in [None, Some(20), Some(0), None] {
        for i in 0..32u8 {
            let byte = if wrong == Some(i) || i > 25 && wrong.is_some() {
                255
            } else {
                i
            };
            assert!(engine.defer(1, i.into(), &decode, &[byte, 1, 2]));
        }
        // The last record of the batch is given as numbers, not as bytes.
        engine.record(1, 31).unwrap().fill(&[31.0, 1.0, 2.0]);
        engine.submit(1, 32).unwrap();
        assert!(!engine.defer(1, 0, &decode, &[0, 0, 0]), "members have it");
        engine.collect(1).unwrap();
        let refused = |from| engine.refused(1, from).map(|(record, _)| record);
        assert_eq!(refused(0), wrong.map(usize::from));
        let bad = |i: usize| wrong.is_some_and(|w| i == usize::from(w) || i > 25);
        for i in 0..32 {
            assert_eq!(refused(i) == Some(i), bad(i), "{i}");
            assert!(
                bad(i) || engine.answer(1, i).scores.get(0) == i as f32 + 3.0,
                "{i}"
            );
        }
    }
}
