//! The timeline of a run, for `--profile=trace`: spans of time on tracks. At its end the run writes
//! them as Chrome's trace events, which Perfetto (<https://ui.perfetto.dev>) and chrome://tracing
//! show.
//!
//! A track is a thread or a device's queue. Tracks stand in groups: one for the program with its
//! main thread, and one for each device with its queue and the threads that work for it.
//!
//! All tracks write into one list with room for [`MOST`] spans. When the list is full, further
//! spans are only counted. Start-up and the first batches are what people look at, later batches
//! repeat them, and `--profile=table` sums all of them up. Because the list is shared, the timeline
//! ends for all tracks at the same time: no batch is shown without its kernels.

mod events;

use crate::ir::plan::{Plan, SLOTS};
use crate::sys::thread;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The number of spans that a trace has room for.
pub(crate) const MOST: usize = 1 << 16;

/// The name of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Text(&'static str),
    /// A step of the plan, by its index. The trace shows the name of the step's kernel.
    Step(usize),
}

/// The name of the span in which a device's clock is compared with the host's clock. The span's
/// `waited` holds the largest error of converted times, in nanoseconds.
pub(crate) const CLOCK: Name = Name::Text("clock");

/// A span of time on a track. Times are nanoseconds since the start of the program.
#[derive(Debug)]
struct TraceSpan {
    start: u64,
    end: u64,
    name: Name,
    group: u32,
    /// The number of the thread that did the work, or [`QUEUE`] for a command of the device's
    /// queue.
    thread: u32,
    /// The number of the stream's batch, from 1. It is 0 if the span belongs to no batch.
    batch: u32,
    records: u32,
    /// The nanoseconds that a command of a device's queue waited for its start.
    waited: u32,
}

/// The thread number in a span that stands for a device's queue.
const QUEUE: u32 = u32::MAX;

#[derive(Debug)]
struct Trace {
    start: Instant,
    /// The number of the main thread.
    main: u32,
    book: Mutex<Book>,
}

/// The first spans of a trace, and the number of later ones that were dropped.
#[derive(Debug)]
struct Book {
    spans: Vec<TraceSpan>,
    dropped: u64,
}

#[derive(Debug)]
struct TrackGroup {
    trace: &'static Trace,
    number: u32,
    /// The number of the stream's batch that each slot of the group's engine holds.
    batches: [AtomicU32; SLOTS],
}

/// Adds spans to the trace for one group, which is the program or a device. Traces live as long as
/// the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Track {
    group: &'static TrackGroup,
}

/// The number of the program's group, which has the main thread.
const PROGRAM: u32 = 0;
/// The number of the first device's group. A run with a single device has only this one besides the
/// program's.
const FIRST: u32 = 1;

/// The name and the plan of a device, which the written trace shows.
pub(crate) struct DeviceOfTrace<'a> {
    /// The device's number among the requested devices, from 0.
    pub(crate) group: usize,
    pub(crate) name: &'a str,
    pub(crate) plan: &'a Plan,
}

impl Track {
    /// Begins a trace and returns the track of its only or first device. Times in the trace count
    /// from `start`. The calling thread is the main thread.
    pub(crate) fn new(start: Instant) -> Track {
        Track::with_room(start, MOST)
    }

    fn with_room(start: Instant, room: usize) -> Track {
        let book = Mutex::new(Book {
            spans: Vec::with_capacity(room),
            dropped: 0,
        });
        let main = thread::number();
        Track::new_group(Box::leak(Box::new(Trace { start, main, book })), FIRST)
    }

    fn new_group(trace: &'static Trace, number: u32) -> Track {
        let group = Box::leak(Box::new(TrackGroup {
            trace,
            number,
            batches: Default::default(),
        }));
        Track { group }
    }

    /// Returns the track of device `index`, one of several, in the same trace.
    pub(crate) fn member(self, index: usize) -> Track {
        Track::new_group(self.group.trace, FIRST + index as u32)
    }

    /// Notes that `slot` holds batch number `batch` of the stream from now on. Batches count from
    /// 1.
    pub(crate) fn begin(self, slot: usize, batch: u32) {
        self.group.batches[slot].store(batch, Relaxed);
    }

    /// Returns the number of the stream's batch that `slot` holds.
    pub(crate) fn batch(self, slot: usize) -> u32 {
        self.group.batches[slot].load(Relaxed)
    }

    /// Returns the nanoseconds from the start of the program to now.
    pub(crate) fn now(self) -> u64 {
        self.at(Instant::now())
    }

    fn at(self, time: Instant) -> u64 {
        time.saturating_duration_since(self.group.trace.start)
            .as_nanos() as u64
    }

    /// Adds a span of the calling thread to the trace. The thread worked on `records` records of
    /// the batch in `slot`, or on no batch if `records` is 0.
    pub(crate) fn span(
        self,
        name: Name,
        slot: usize,
        records: usize,
        start: Instant,
        took: Duration,
    ) {
        let thread = thread::number();
        // Spans of the main thread stand in the program's group, even if they are work for a
        // device.
        let group = if thread == self.group.trace.main {
            PROGRAM
        } else {
            self.group.number
        };
        let start = self.at(start);
        let end = start + took.as_nanos() as u64;
        self.keep(TraceSpan {
            start,
            end,
            name,
            group,
            thread,
            ..self.queue_span(slot, records)
        });
    }

    /// Adds a command of the device's queue to the trace. `times` are nanoseconds of the host's
    /// clock since the start of the program. `waited` is the nanoseconds that the command waited
    /// for its start.
    pub(crate) fn command(
        self,
        name: Name,
        slot: usize,
        records: usize,
        times: Range<u64>,
        waited: u64,
    ) {
        self.keep(TraceSpan {
            start: times.start,
            end: times.end,
            name,
            waited: waited.try_into().unwrap_or(u32::MAX),
            ..self.queue_span(slot, records)
        });
    }

    /// Returns a span of the device's queue. The caller sets the span's times and name.
    fn queue_span(self, slot: usize, records: usize) -> TraceSpan {
        let batch = if records > 0 { self.batch(slot) } else { 0 };
        TraceSpan {
            start: 0,
            end: 0,
            name: CLOCK,
            group: self.group.number,
            thread: QUEUE,
            batch,
            records: records as u32,
            waited: 0,
        }
    }

    fn book(self) -> MutexGuard<'static, Book> {
        let book = &self.group.trace.book;
        book.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn keep(self, span: TraceSpan) {
        let mut book = self.book();
        if book.spans.len() < book.spans.capacity() {
            book.spans.push(span);
        } else {
            book.dropped += 1;
        }
    }

    /// Returns the number of spans that were dropped because the trace was full.
    pub(crate) fn dropped(self) -> u64 {
        self.book().dropped
    }

    /// Returns the trace as JSON, without spans that end later than `elapsed` after the start.
    /// `sums` is the JSON object that `--profile=json` writes.
    pub(crate) fn json(
        self,
        sums: &str,
        devices: &[DeviceOfTrace<'_>],
        elapsed: Duration,
    ) -> String {
        events::write(&self.book(), self.group.trace.main, sums, devices, elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn events(track: Track) -> Vec<Value> {
        let text = track.json("{}\n", &[], Duration::from_secs(1));
        let trace: Value = serde_json::from_str(&text).unwrap();
        trace["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn the_first_spans_are_kept_and_the_others_counted() {
        let start = Instant::now();
        let track = Track::with_room(start, 3);
        for i in 0..5 {
            track.begin(1, i + 1);
            track.span(
                Name::Text("work"),
                1,
                7,
                start + Duration::from_nanos(1500),
                Duration::from_nanos(20),
            );
        }
        assert_eq!(track.dropped(), 2);
        let events = events(track);
        let spans: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
        let batches: Vec<u64> = spans
            .iter()
            .map(|e| e["args"]["batch"].as_u64().unwrap())
            .collect();
        assert_eq!(spans.len(), 3);
        assert!(batches.iter().all(|b| *b <= 3), "{batches:?}");
        for span in spans {
            assert_eq!(
                (span["ts"].as_f64(), span["dur"].as_f64()),
                (Some(1.5), Some(0.02))
            );
            assert_eq!(span["args"]["records"], 7);
        }
        let full = events.last().unwrap();
        assert_eq!(
            (&full["name"], &full["args"]["dropped"]),
            (&"the trace is full".into(), &2.into())
        );
    }

    #[test]
    fn tracks_are_named_and_parents_come_first() {
        let start = Instant::now();
        let track = Track::new(start);
        let ns = Duration::from_nanos;
        // The child's span ends before its parent's, so it is added first. Both may begin at the
        // same time.
        track.span(Name::Text("child"), 0, 0, start, ns(5));
        track.span(Name::Text("parent"), 0, 0, start, ns(9));
        let member = track.member(2);
        let id = std::thread::scope(|s| {
            let work = || {
                member.span(Name::Text("elsewhere"), 0, 0, start, ns(1));
                thread::number()
            };
            s.spawn(work).join().unwrap()
        });
        // The driver's times of `one` and `two` overlap. `late` ends after the run and is left out.
        member.command(Name::Text("one"), 0, 0, 10..30, 4);
        member.command(Name::Text("two"), 0, 0, 20..40, 4);
        member.command(Name::Text("late"), 0, 0, 50..2_000_000_000, 4);
        let events = events(track);
        let spans: Vec<String> = events
            .iter()
            .filter(|e| e["ph"] == "X")
            .map(|e| {
                format!(
                    "{} {} {} {} {}",
                    e["pid"], e["tid"], e["name"], e["ts"], e["dur"]
                )
            })
            .collect();
        let main = thread::number();
        let expected = [
            format!("1 {main} \"parent\" 0.0 0.009"),
            format!("1 {main} \"child\" 0.0 0.005"),
            format!("4 {id} \"elsewhere\" 0.0 0.001"),
            "4 65539 \"one\" 0.01 0.02".to_string(),
            "4 65539 \"two\" 0.03 0.01".to_string(),
        ];
        assert_eq!(spans, expected);
        let names: Vec<&str> = events
            .iter()
            .filter(|e| e["ph"] == "M")
            .filter_map(|e| e["args"]["name"].as_str())
            .collect();
        let thread = format!("thread {id}");
        assert_eq!(
            names,
            [
                "mortonnet",
                "main thread",
                "a device that did not start",
                &thread,
                "queue"
            ]
        );
    }
}
