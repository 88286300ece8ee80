//! The profile as one JSON object on one line. Later versions of the program may add keys, but keep
//! all others.

use super::{DeviceProfile, RunProfile, ms, run_us};
use crate::baked::network;
use crate::observe::profile::{Histogram, MemberTimes, Origins, StepClock};
use crate::observe::times::StreamTimes;
use std::fmt::Write;
use std::time::Duration;

/// Returns the profile as a JSON object and a line end.
pub(super) fn text(profile: &RunProfile<'_>, times: &StreamTimes) -> String {
    let mut s = start(profile, times);
    let mut steps: Vec<String> = Vec::new();
    let mut members: Vec<String> = Vec::new();
    for (index, device) in profile.devices.iter().enumerate() {
        let mut key = String::new();
        if let Some(times) = &device.times {
            key = format!(",\"member\":{index}");
            members.push(member(profile, device, times));
        }
        if let Some(clock) = &device.clock {
            device_steps(&mut steps, device, clock, &key);
        }
    }
    let _ = write!(s, ",\"steps\":[{}]", steps.join(","));
    if !members.is_empty() {
        let _ = write!(s, ",\"members\":[{}]", members.join(","));
    }
    end(&mut s, profile, times);
    s
}

/// Returns the beginning of the object: network, device, number of records, and the times of
/// start-up.
fn start(profile: &RunProfile<'_>, times: &StreamTimes) -> String {
    let (running, summary) = (&profile.running, profile.totals.summary);
    let mut s = format!(
        "{{\"program\":\"{}\",\"model\":{},\"hash\":\"{}\",\"device\":{},\"plan\":{},\
         \"laid_out_again\":{},\"records\":{},\"batches\":{},\"marked\":{}",
        env!("CARGO_PKG_VERSION"),
        quoted(&network().name),
        network().hash,
        quoted(running.device),
        quoted(&profile.plans()),
        running.laid_out_again,
        summary.records,
        summary.batches,
        summary.marked
    );
    let phases = running.phases.times.iter();
    let phases: Vec<String> = phases
        .map(|(n, d)| format!("{}:{}", quoted(n), us(*d)))
        .collect();
    let (startup, phases) = (us(profile.totals.startup), phases.join(","));
    let first = times.first.map_or("null".into(), us);
    let _ = write!(
        s,
        ",\"startup_us\":{startup},\"startup_phases_us\":{{{phases}}},\"first_batch_us\":{first}"
    );
    if let Some(origins) = &running.phases.origins {
        s += &kernel_cache(origins);
    }
    s
}

fn kernel_cache(origins: &Origins) -> String {
    let notes: Vec<String> = origins.notes.iter().map(|n| quoted(n)).collect();
    let (result, notes) = (origins.word(), notes.join(","));
    let Origins { hits, misses, .. } = origins;
    format!(
        ",\"kernel_cache\":{{\"result\":\"{result}\",\"hits\":{hits},\"misses\":{misses},\
         \"notes\":[{notes}]}}"
    )
}

/// Returns the JSON object of one of several devices that share the records.
fn member(profile: &RunProfile<'_>, device: &DeviceProfile<'_>, times: &MemberTimes) -> String {
    format!(
        "{{\"device\":{},\"plan\":{},\"records\":{},\"batches\":{},\"share\":{},\"busy_us\":{},\
         \"records_per_s\":{:.1},\"failed\":{}}}",
        quoted(device.device),
        quoted(&device.plan.name),
        times.records,
        times.batches,
        number(Some(profile.share(device))),
        us(times.busy),
        device.records_per_second(times),
        times.failed.as_deref().map_or("null".into(), quoted)
    )
}

/// Adds a JSON object to `to` for each step of a device's plan. `member` is a text with which each
/// object ends: a comma, a key and its value. It is empty for the only device of a run.
fn device_steps(to: &mut Vec<String>, device: &DeviceProfile<'_>, clock: &StepClock, member: &str) {
    let all = run_us(clock);
    for (step, t) in device.plan.steps.iter().zip(&clock.steps) {
        to.push(format!(
            "{{\"kernel\":{},\"layer\":{},\"activation\":{},\"flop_per_record\":{},\
             \"queued_us\":{},\"wait_us\":{},\"run_us\":{},\"gflops\":{},\"share\":{}{member}}}",
            quoted(&step.kernel),
            step.node,
            quoted(step.activation.name()),
            step.flop,
            histogram(&t.queued),
            histogram(&t.wait),
            histogram(&t.run),
            number(device.gflops(step.flop, t)),
            number((all > 0.0).then(|| t.run.total_us() / all))
        ));
    }
}

/// Appends the stream's times and latencies, and the end of the object.
fn end(s: &mut String, profile: &RunProfile<'_>, times: &StreamTimes) {
    let latency = |percent| times.latencies.percentile(percent);
    let latency = |percent| latency(percent).map_or("null".into(), us);
    let [median, p95, p99] = [50.0, 95.0, 99.0].map(latency);
    let [read, parse, wait] = [times.read, times.parse, times.wait].map(us);
    let [engine, decode, write] = [times.engine, profile.decoding(), times.write].map(us);
    let (elapsed, speed) = (us(profile.totals.elapsed), profile.records_per_second());
    let _ = writeln!(
        s,
        ",\"read_us\":{read},\"parse_us\":{parse},\"wait_us\":{wait},\"engine_us\":{engine},\
         \"decode_us\":{decode},\"write_us\":{write},\"latency_us\":{{\"median\":{median},\
         \"p95\":{p95},\"p99\":{p99}}},\"elapsed_us\":{elapsed},\"records_per_s\":{speed:.1}}}"
    );
}

fn histogram(h: &Histogram) -> String {
    format!(
        "{{\"first\":{},\"count\":{},\"mean\":{},\"median\":{},\"p95\":{},\"p99\":{},\
         \"total\":{}}}",
        number(h.first_us()),
        h.count(),
        number(h.mean_us()),
        number(h.percentile_us(0.5)),
        number(h.percentile_us(0.95)),
        number(h.percentile_us(0.99)),
        number(Some(h.total_us()))
    )
}

/// Returns a duration as a JSON number of microseconds.
fn us(d: Duration) -> String {
    number(Some(ms(d) * 1e3))
}

/// Returns a JSON number with three decimals, or `null` for `None`, NaN and infinities.
fn number(x: Option<f64>) -> String {
    x.filter(|x| x.is_finite())
        .map_or("null".into(), |x| format!("{x:.3}"))
}

/// Returns a text as a JSON string, with its quotes.
pub(crate) fn quoted(text: &str) -> String {
    let mut s = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => s.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(s, "\\u{:04x}", c as u32);
            }
            c => s.push(c),
        }
    }
    s + "\""
}
