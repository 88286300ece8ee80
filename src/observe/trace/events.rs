//! Writes a trace as Chrome's trace events.

use super::{Book, CLOCK, DeviceOfTrace, FIRST, Name, PROGRAM, QUEUE, TraceSpan};
use crate::ir::order::ascending;
use crate::ir::plan::Step;
use crate::observe::report::quoted;
use std::fmt::{Display, Write};
use std::ops::Range;
use std::time::Duration;

/// This number plus a group's number is the thread ID of the track for the group's queue. No thread
/// has so large a number, so no thread has the same ID.
const QUEUE_IDS: u32 = 1 << 16;

/// The process ID and the thread ID under which viewers show a track.
#[derive(Clone, Copy, PartialEq)]
struct TrackIds {
    process: u32,
    thread: u32,
}

impl TrackIds {
    /// Returns the IDs of a span's track. A thread's number can be its ID, because each thread
    /// works in one group only. Each group has a queue, so a queue's ID depends on its group.
    fn of(span: &TraceSpan) -> TrackIds {
        TrackIds {
            process: span.group + 1,
            thread: if span.thread == QUEUE {
                QUEUE_IDS + span.group
            } else {
                span.thread
            },
        }
    }
}

/// Returns the JSON text of [`Track::json`](super::Track::json). `main` is the number of the main
/// thread.
pub(super) fn write(
    book: &Book,
    main: u32,
    sums: &str,
    devices: &[DeviceOfTrace<'_>],
    elapsed: Duration,
) -> String {
    // Viewers want a parent span before its children. Both may begin at the same time, so the
    // longer span comes first.
    let key = |s: &TraceSpan| {
        [
            u64::from(s.group) << 32 | u64::from(s.thread),
            s.start,
            u64::MAX - s.end,
        ]
    };
    let dropped = book.dropped;
    let sums = sums.trim_end();
    let mut s = format!(
        "{{\"displayTimeUnit\":\"ns\",\"dropped\":{dropped},\"otherData\":{sums},\
         \"traceEvents\":["
    );
    let (mut track, mut queue_end, mut last) = (None, 0, 0);
    // A device may still work after `elapsed`, and the stream did not wait for it. Such spans are
    // left out.
    let elapsed = elapsed.as_nanos() as u64;
    let sorted = ascending(book.spans.iter().map(key)).into_iter();
    for span in sorted.map(|i| &book.spans[i]).filter(|s| s.end <= elapsed) {
        let device = devices
            .iter()
            .find(|d| d.group as u32 + FIRST == span.group);
        let ids = TrackIds::of(span);
        let before: Option<TrackIds> = track.replace(ids);
        if before != track {
            queue_end = 0;
            if before.is_none_or(|b| b.process != ids.process) {
                name_group(&mut s, ids, span.group, device);
            }
            name_track(&mut s, ids, span.thread, main);
        }
        let mut times = span.start..span.end;
        if span.thread == QUEUE {
            // The commands of a queue run in order. Where the driver's times overlap, or the clock
            // was set back, the later command is shortened.
            times.start = times.start.max(queue_end);
            times.end = times.end.max(times.start);
            queue_end = times.end;
        }
        last = times.end.max(last);
        let step = match span.name {
            Name::Step(i) => device.or(devices.first()).and_then(|d| d.plan.steps.get(i)),
            Name::Text(_) => None,
        };
        write_span(&mut s, ids, span, times, step);
    }
    if dropped > 0 {
        let ids = TrackIds {
            process: PROGRAM + 1,
            thread: main,
        };
        event(&mut s, "i", ids, "the trace is full", last);
        let _ = write!(s, ",\"s\":\"g\",\"args\":{{\"dropped\":{dropped}}}}},");
    }
    end_list(&mut s, "\n]}\n");
    s
}

fn write_span(
    s: &mut String,
    ids: TrackIds,
    span: &TraceSpan,
    times: Range<u64>,
    step: Option<&Step>,
) {
    let name = match (span.name, step) {
        (Name::Text(name), _) => name,
        (_, step) => step.map_or("", |step| &*step.kernel),
    };
    event(s, "X", ids, name, times.start);
    let _ = write!(s, ",\"dur\":{},\"args\":{{", us(times.end - times.start));
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
        let name = if span.name == CLOCK {
            "error_us"
        } else {
            "waited_us"
        };
        arg(name, &us(span.waited.into()));
    }
    end_list(s, "}},");
}

fn name_group(s: &mut String, ids: TrackIds, group: u32, device: Option<&DeviceOfTrace<'_>>) {
    let name = match device {
        _ if group == PROGRAM => "mortonnet",
        Some(device) => device.name,
        None => "a device that did not start",
    };
    name_and_place(s, "process", ids, name, ids.process);
}

fn name_track(s: &mut String, ids: TrackIds, thread: u32, main: u32) {
    let name = match thread {
        QUEUE => "queue".into(),
        n if n == main => "main thread".into(),
        n => format!("thread {n}"),
    };
    // The queue is shown first, because `QUEUE` + 1 wraps to 0.
    name_and_place(s, "thread", ids, &name, thread.wrapping_add(1));
}

/// Writes two events: the name of a process or thread, and the place where viewers show it.
fn name_and_place(s: &mut String, what: &str, ids: TrackIds, name: &str, place: u32) {
    event(s, "M", ids, &format!("{what}_name"), 0);
    let _ = write!(s, ",\"args\":{{\"name\":{}}}}},", quoted(name));
    event(s, "M", ids, &format!("{what}_sort_index"), 0);
    let _ = write!(s, ",\"args\":{{\"sort_index\":{place}}}}},");
}

/// Writes the beginning of an event. Viewers ignore the time of events that name a track.
fn event(s: &mut String, kind: &str, ids: TrackIds, name: &str, time: u64) {
    let TrackIds { process, thread } = ids;
    let (name, time) = (quoted(name), us(time));
    let _ = write!(
        s,
        "\n{{\"ph\":\"{kind}\",\"pid\":{process},\"tid\":{thread},\"name\":{name},\"ts\":{time}"
    );
}

/// Ends a JSON list or object with `end`, which replaces the comma after the last entry.
fn end_list(s: &mut String, end: &str) {
    if s.ends_with(',') {
        s.truncate(s.len() - 1);
    }
    s.push_str(end);
}

/// Returns nanoseconds as a text in microseconds.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
