//! What happened when, for `--profile=trace`: spans of time on tracks, kept while a run goes on and
//! written at its end
//! as Chrome's trace events, which Perfetto (<https://ui.perfetto.dev>) and chrome://tracing show.
//!
//! A track is a thread, or a device's queue. Tracks stand in groups: the program with its main
//! thread, and each device with its queue and the threads that work for it. All of them write into
//! one list with room for [`MOST`] spans. When it is full nothing more is kept: start-up and the
//! first batches are what people look at, later batches repeat them, and `--profile=table` sums all
//! of them up. One list and not one for each track, so that the timeline ends for all tracks at the
//! same time instead of showing batches whose kernels are missing. What found no room is counted.
//!
//! The clock of a device is another one than the host's. A command is stamped QUEUED inside the
//! call that enqueues it: the host's times before and after the call bound the difference of the
//! clocks ([`Clocks`]). Some exchanges before the stream narrow that to microseconds, each batch
//! then corrects it, where clocks drift, by as little as agrees with its own bounds.

use crate::cl::Times;
use crate::ir::order::ascending;
use crate::ir::plan::Plan;
use crate::ir::plan::SLOTS;
use crate::observe::report::quoted;
use crate::sys::thread;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Most spans of a trace.
pub(crate) const MOST: usize = 1 << 16;

/// What a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// This.
    Text(&'static str),
    /// A step of the plan.
    Step(usize),
}

/// A span. Times are nanoseconds since the start of the program.
#[derive(Debug)]
struct TraceSpan {
    start: u64,
    end: u64,
    name: Name,
    group: u32,
    /// [`QUEUE`], or the thread's number.
    thread: u32,
    /// From 1; 0: of no batch of the stream.
    batch: u32,
    records: u32,
    /// Nanoseconds that a command of a device waited for its start.
    waited: u32,
}

/// A device's queue, among the threads.
const QUEUE: u32 = u32::MAX;

/// All spans, the first of them kept.
#[derive(Debug)]
struct Trace {
    start: Instant,
    main: u32,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    spans: Vec<TraceSpan>,
    dropped: u64,
}

#[derive(Debug)]
struct TrackGroup {
    trace: &'static Trace,
    number: u32,
    /// The stream's batches in the slots of what works for the group.
    batches: [AtomicU32; SLOTS],
}

/// What a group keeps in a trace, which lives as long as the program does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Track(&'static TrackGroup);

/// The group of the main thread, and that of the only device or the first of several.
const PROGRAM: u32 = 0;
const FIRST: u32 = 1;

/// A group for the reader: its number among the devices that share a stream, its device, and its
/// plan.
pub(crate) type TraceGroup<'a> = (usize, &'a str, &'a Plan);

impl Track {
    /// That of the only device, in a new trace of what began at `start`. The calling thread is the
    /// main thread.
    pub(crate) fn new(start: Instant) -> Track {
        Track::with_room(start, MOST)
    }

    fn with_room(start: Instant, room: usize) -> Track {
        let book = Mutex::new(Book {
            spans: Vec::with_capacity(room),
            dropped: 0,
        });
        Track::group(
            Box::leak(Box::new(Trace {
                start,
                main: thread::number(),
                book,
            })),
            FIRST,
        )
    }

    fn group(trace: &'static Trace, number: u32) -> Track {
        Track(Box::leak(Box::new(TrackGroup {
            trace,
            number,
            batches: Default::default(),
        })))
    }

    /// That of one of several devices in the same trace.
    pub(crate) fn member(self, index: usize) -> Track {
        Track::group(self.0.trace, FIRST + index as u32)
    }

    /// From now on `slot` holds batch number `batch` of the stream, from 1.
    pub(crate) fn begin(self, slot: usize, batch: u32) {
        self.0.batches[slot].store(batch, Relaxed);
    }

    /// The number of the stream's batch in a slot.
    pub(crate) fn batch(self, slot: usize) -> u32 {
        self.0.batches[slot].load(Relaxed)
    }

    /// Nanoseconds from the start of the program to now.
    pub(crate) fn now(self) -> u64 {
        self.at(Instant::now())
    }

    fn at(self, time: Instant) -> u64 {
        time.saturating_duration_since(self.0.trace.start)
            .as_nanos() as u64
    }

    /// Keeps what the calling thread did for `records` records of the batch in `slot`; none: for no
    /// batch.
    pub(crate) fn span(
        self,
        name: Name,
        slot: usize,
        records: usize,
        start: Instant,
        took: Duration,
    ) {
        let thread = thread::number();
        // The main thread is the program's, also where it works for a device.
        let group = if thread == self.0.trace.main {
            PROGRAM
        } else {
            self.0.number
        };
        let start = self.at(start);
        let end = start + took.as_nanos() as u64;
        self.keep(TraceSpan {
            start,
            end,
            name,
            group,
            thread,
            ..self.of(slot, records)
        });
    }

    /// Keeps a command of the device's queue, its times already on the host's clock.
    pub(crate) fn command(
        self,
        name: Name,
        slot: usize,
        records: usize,
        times: (u64, u64),
        waited: u64,
    ) {
        let (start, end) = times;
        let waited = waited.try_into().unwrap_or(u32::MAX);
        self.keep(TraceSpan {
            start,
            end,
            name,
            waited,
            ..self.of(slot, records)
        });
    }

    fn of(self, slot: usize, records: usize) -> TraceSpan {
        let (group, batch) = (
            self.0.number,
            if records > 0 { self.batch(slot) } else { 0 },
        );
        let records = records as u32;
        TraceSpan {
            start: 0,
            end: 0,
            name: CLOCK,
            group,
            thread: QUEUE,
            batch,
            records,
            waited: 0,
        }
    }

    fn book(self) -> MutexGuard<'static, Book> {
        self.0.trace.book.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn keep(self, span: TraceSpan) {
        let mut book = self.book();
        if book.spans.len() < book.spans.capacity() {
            book.spans.push(span);
        } else {
            book.dropped += 1;
        }
    }

    /// Spans that found no room.
    pub(crate) fn dropped(self) -> u64 {
        self.book().dropped
    }

    /// The trace of the first `elapsed` of the run as JSON. `sums` is the object of
    /// `--profile=json`.
    pub(crate) fn json(self, sums: &str, groups: &[TraceGroup<'_>], elapsed: Duration) -> String {
        let book = self.book();
        let dropped = book.dropped;
        // Parents before children, which viewers want: they may begin at the same time.
        let key = |s: &TraceSpan| {
            [
                u64::from(s.group) << 32 | u64::from(s.thread),
                s.start,
                u64::MAX - s.end,
            ]
        };
        let sorted = ascending(book.spans.iter().map(key));
        let sums = sums.trim_end();
        let mut s = format!(
            "{{\"displayTimeUnit\":\"ns\",\"dropped\":{dropped},\"otherData\":{sums},\"traceEvents\":["
        );
        let (mut track, mut end, mut last) = (None, 0, 0);
        // A device may still be at something that the stream did not wait for.
        let elapsed = elapsed.as_nanos() as u64;
        for span in sorted
            .into_iter()
            .map(|i| &book.spans[i])
            .filter(|s| s.end <= elapsed)
        {
            let group = groups.iter().find(|g| g.0 as u32 + FIRST == span.group);
            // A thread works in one group only; each group has a queue.
            let ids = (
                span.group + 1,
                if span.thread == QUEUE {
                    QUEUE_IDS + span.group
                } else {
                    span.thread
                },
            );
            let before = track.replace(ids);
            if before != track {
                end = 0;
                if before.is_none_or(|b| b.0 != ids.0) {
                    let name = match group {
                        _ if span.group == PROGRAM => "mortonnet",
                        Some(group) => group.1,
                        None => "a device that did not start",
                    };
                    about_track(&mut s, "process", ids, name, ids.0);
                }
                let name = match span.thread {
                    QUEUE => "queue".into(),
                    n if n == self.0.trace.main => "main thread".into(),
                    n => format!("thread {n}"),
                };
                // The queue first.
                about_track(&mut s, "thread", ids, &name, span.thread.wrapping_add(1));
            }
            let (mut start, mut stop) = (span.start, span.end);
            if span.thread == QUEUE {
                // In order: where the driver's times overlap, or the clock was set back, the later
                // one gives way.
                start = start.max(end);
                stop = stop.max(start);
                end = stop;
            }
            last = stop.max(last);
            let step = match span.name {
                Name::Step(i) => group.or(groups.first()).and_then(|p| p.2.steps.get(i)),
                Name::Text(_) => None,
            };
            let name = match (span.name, step) {
                (Name::Text(name), _) => name,
                (_, step) => step.map_or("", |step| &*step.kernel),
            };
            event(&mut s, "X", ids, name, start);
            let _ = write!(s, ",\"dur\":{},\"args\":{{", us(stop - start));
            let mut arg = |name: &str, value: &dyn Display| {
                let _ = write!(s, "\"{name}\":{value},");
            };
            if span.batch > 0 {
                arg("batch", &span.batch);
                arg("records", &span.records);
            }
            if let Some(step) = step {
                arg("layer", &step.node);
            }
            if span.thread == QUEUE {
                arg(
                    if span.name == CLOCK {
                        "error_us"
                    } else {
                        "waited_us"
                    },
                    &us(span.waited.into()),
                );
            }
            cut(&mut s, "}},");
        }
        if dropped > 0 {
            event(
                &mut s,
                "i",
                (PROGRAM + 1, self.0.trace.main),
                "the trace is full",
                last,
            );
            let _ = write!(s, ",\"s\":\"g\",\"args\":{{\"dropped\":{dropped}}}}},");
        }
        cut(&mut s, "\n]}\n");
        s
    }
}

/// Queues are threads of these numbers: no thread has them.
const QUEUE_IDS: u32 = 1 << 16;

/// Begins an event. A time means nothing to those that are about a track.
fn event(s: &mut String, kind: &str, (group, thread): (u32, u32), name: &str, time: u64) {
    let (name, time) = (quoted(name), us(time));
    let _ = write!(
        s,
        "\n{{\"ph\":\"{kind}\",\"pid\":{group},\"tid\":{thread},\"name\":{name},\"ts\":{time}"
    );
}

/// Events that say what a process or thread is called, and where it stands.
fn about_track(s: &mut String, what: &str, ids: (u32, u32), name: &str, place: u32) {
    event(s, "M", ids, &format!("{what}_name"), 0);
    let _ = write!(s, ",\"args\":{{\"name\":{}}}}},", quoted(name));
    event(s, "M", ids, &format!("{what}_sort_index"), 0);
    let _ = write!(s, ",\"args\":{{\"sort_index\":{place}}}}},");
}

/// Puts `end` in place of the last comma, if there is one at the end.
fn cut(s: &mut String, end: &str) {
    if s.ends_with(',') {
        s.truncate(s.len() - 1);
    }
    s.push_str(end);
}

/// Nanoseconds as microseconds.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// The exchanges that compare a device's clock with the host's; what they waited for is the error
/// that was left.
pub(crate) const CLOCK: Name = Name::Text("clock");

/// A device's clock, by the host's.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// What is added to times of the device: at least, at most. In nanoseconds.
    bounds: (i64, i64),
    add: i64,
}

impl Default for Clocks {
    fn default() -> Self {
        Clocks {
            bounds: (i64::MIN, i64::MAX),
            add: 0,
        }
    }
}

impl Clocks {
    /// The command with the times `device` was enqueued between the first two times of the host,
    /// and was seen to be done by the third. For exchanges that follow each other at once: clocks
    /// do not drift.
    pub(crate) fn compare(&mut self, host: [u64; 3], device: Times) {
        let (least, most) = bounds(host, device);
        let (least, most) = (least.max(self.bounds.0), most.min(self.bounds.1));
        if least <= most && device.end > 0 {
            self.bounds = (least, most);
            self.add = least + (most - least) / 2;
        }
    }

    /// The largest error that is left; `None` if the driver has taken no times.
    pub(crate) fn error(&self) -> Option<u64> {
        (self.bounds != Clocks::default().bounds).then(|| self.bounds.0.abs_diff(self.bounds.1) / 2)
    }

    /// The same of a later command: its start and end by the host's clock, if the driver has taken
    /// its times. Corrects what is added by as little as the host's times demand.
    pub(crate) fn host(&mut self, host: [u64; 3], device: Times) -> Option<(u64, u64)> {
        let (least, most) = bounds(host, device);
        if device.end == 0 {
            return None;
        }
        self.add = self.add.max(least).min(most);
        let to = |time: u64| {
            u64::try_from((time as i64).wrapping_add(self.add))
                .unwrap_or(0)
                .min(host[2])
        };
        let start = to(device.start);
        Some((start, to(device.end).max(start)))
    }
}

/// What can be added to times of the device.
fn bounds([before, after, done]: [u64; 3], device: Times) -> (i64, i64) {
    let less = |host: u64, device: u64| (host as i64).wrapping_sub(device as i64);
    (
        less(before, device.queued),
        less(after, device.queued).min(less(done, device.end)),
    )
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
        // Children end first; they may begin with their parent.
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
        // The driver's times overlap, and what is not done when the run ends is left out.
        member.command(Name::Text("one"), 0, 0, (10, 30), 4);
        member.command(Name::Text("two"), 0, 0, (20, 40), 4);
        member.command(Name::Text("late"), 0, 0, (50, 2_000_000_000), 4);
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

    /// A device whose clock starts elsewhere and runs 50 ppm too fast: after exchanges at the start
    /// every command stands where it was, within what the host can know, for as long as commands
    /// keep coming.
    #[test]
    fn clocks_are_compared_and_followed() {
        let device = |host: u64| 7_000_000_000 + host + host / 20_000;
        let times = |queued: u64, end: u64| Times {
            queued: device(queued),
            submit: device(queued),
            start: device(end - 1000),
            end: device(end),
        };
        let mut clocks = Clocks::default();
        clocks.compare([5, 9, 12], Times::default());
        assert_eq!(clocks.error(), None);
        for i in 0..8 {
            // Enqueueing takes 5 µs and more, QUEUED is stamped somewhere in it.
            let (at, took) = (100_000 * i, 5000 + 700 * (i % 3));
            clocks.compare(
                [at, at + took, at + took + 9000],
                times(at + 1000 + 100 * i, at + took + 8000),
            );
        }
        let error = clocks.error().unwrap();
        assert!(error < 2500, "{error}");
        for i in 1..10_000 {
            let at = 1_000_000 + 3_000_000 * i;
            let (start, end) = clocks
                .host([at, at + 6000, at + 90_000], times(at + 2500, at + 60_000))
                .unwrap();
            assert!(
                start.abs_diff(at + 59_000) < 3700 && end.abs_diff(at + 60_000) < 3700,
                "{i}: {start} {end}"
            );
        }
        // A driver without times, and one whose times are none.
        assert_eq!(clocks.host([1, 2, 3], Times::default()), None);
        let (start, end) = clocks
            .host(
                [5, 6, 7],
                Times {
                    queued: 9,
                    submit: 9,
                    start: 1,
                    end: u64::MAX,
                },
            )
            .unwrap();
        assert!(start <= end && end <= 7);
    }
}
