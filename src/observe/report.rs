//! What `--profile` prints: every number was measured in this run.

use crate::baked::network;
use crate::ir::plan::Plan;
use crate::observe::profile::{Histogram, MemberTimes, Phases, StepClock, StepTimes};
use crate::observe::times::{StreamTimes, Summary};
use crate::observe::trace;
use std::fmt::Write;
use std::time::Duration;

/// How `--profile` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfileFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// Chrome's trace events, for timelines.
    Trace,
}

/// Times of the whole run.
#[derive(Clone, Copy)]
pub(crate) struct Totals {
    /// From the start of `main` until the first record could be read.
    pub(crate) startup: Duration,
    /// From the start of `main` until the last result was out.
    pub(crate) elapsed: Duration,
    /// What was done.
    pub(crate) summary: Summary,
}

/// What runs the network.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// The device in words.
    pub(crate) device: &'a str,
    /// The plan.
    pub(crate) plan: &'a Plan,
    /// Constants that were laid out again at start.
    pub(crate) laid_out_again: usize,
    /// Start-up times.
    pub(crate) phases: &'a Phases,
    /// Several devices: each of them.
    pub(crate) members: &'a [MemberFacts],
}

/// One of several devices that share the records.
pub(crate) struct MemberFacts {
    /// The device in words.
    pub(crate) device: String,
    /// Its plan.
    pub(crate) plan: Plan,
    /// Its number among those that were asked for, started or not: that of its group in a trace.
    pub(crate) group: usize,
}

/// What an engine measured: the times of its steps, and of each member where several devices share
/// the records.
#[derive(Default)]
pub(crate) struct Measurements {
    /// Times of the steps.
    pub(crate) clock: Option<StepClock>,
    /// One for each device, where several share the records.
    pub(crate) members: Vec<MemberMeasurements>,
}

/// The work of one of several devices, and the times of its plan's steps.
#[derive(Debug)]
pub(crate) struct MemberMeasurements {
    pub(crate) times: MemberTimes,
    pub(crate) clock: Option<StepClock>,
}

/// The profile of a run: the times of the plan's steps and of the stream where they were taken.
pub(crate) fn text(
    format: ProfileFormat,
    running: Facts<'_>,
    measured: Measurements,
    times: Option<&StreamTimes>,
    totals: Totals,
) -> String {
    let Measurements { clock, members } = measured;
    let records = totals.summary.records;
    let profiles: Vec<DeviceProfile<'_>> = if members.is_empty() {
        vec![DeviceProfile {
            device: running.device,
            plan: running.plan,
            group: 0,
            records,
            times: None,
            clock,
        }]
    } else {
        let devices = running.members.iter().zip(members);
        devices
            .map(|(p, MemberMeasurements { times, clock })| DeviceProfile {
                device: &p.device,
                plan: &p.plan,
                group: p.group,
                records: times.records,
                times: Some(times),
                clock,
            })
            .collect()
    };
    match (format, times) {
        (ProfileFormat::Json | ProfileFormat::Trace, Some(times)) => {
            let sums = json(running, &profiles, times, totals);
            let Some(track) = times.track.filter(|_| format == ProfileFormat::Trace) else {
                return sums;
            };
            let groups: Vec<trace::TraceGroup<'_>> = profiles
                .iter()
                .map(|p| (p.group, p.device, p.plan))
                .collect();
            track.json(&sums, &groups, totals.elapsed)
        }
        _ => crate::escape::lines(&table(running, &profiles, times, totals)).into_owned(),
    }
}

/// The device, or one of several.
struct DeviceProfile<'a> {
    device: &'a str,
    plan: &'a Plan,
    /// In a trace.
    group: usize,
    records: u64,
    /// One of several.
    times: Option<MemberTimes>,
    clock: Option<StepClock>,
}

/// Names of the plans, each once.
fn plans(profiles: &[DeviceProfile<'_>]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for profile in profiles {
        if !names.contains(&&*profile.plan.name) {
            names.push(&profile.plan.name);
        }
    }
    names.join(" + ")
}

/// Parsing by threads of the engines.
fn decoding(profiles: &[DeviceProfile<'_>]) -> Duration {
    let clocks = profiles.iter().flat_map(|p| &p.clock).map(|c| c.decode);
    clocks
        .chain(profiles.iter().flat_map(|p| &p.times).map(|t| t.decode))
        .sum()
}

/// The share of all records that members did.
fn share(profile: &DeviceProfile<'_>, profiles: &[DeviceProfile<'_>]) -> f64 {
    profile.records as f64 / profiles.iter().map(|p| p.records).sum::<u64>().max(1) as f64
}

/// Records a second while the member had any.
fn speed(profile: &DeviceProfile<'_>, times: &MemberTimes) -> f64 {
    profile.records as f64 / times.busy.as_secs_f64().max(1e-9)
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Microseconds with four digits, or a dash.
fn us(x: Option<f64>) -> String {
    x.map_or("-".into(), |x| {
        if x >= 1000.0 {
            format!("{x:.0}")
        } else {
            format!("{x:.4}")[..6].trim_end_matches('.').into()
        }
    })
}

/// GFLOPS of a step over its runs, of `records` records less those that another variant of the plan
/// computed.
fn gflops(records: u64, flop: u64, times: &StepTimes) -> Option<f64> {
    let us = times.run.total_us();
    let records = records.saturating_sub(times.missed);
    (us > 0.0 && flop > 0).then(|| flop as f64 * records as f64 / us / 1e3)
}

fn table(
    running: Facts<'_>,
    profiles: &[DeviceProfile<'_>],
    times: Option<&StreamTimes>,
    totals: Totals,
) -> String {
    let mut s = String::new();
    let summary = totals.summary;
    let _ = writeln!(
        s,
        "profile of {} on {}, plan {}",
        network().name,
        running.device,
        plans(profiles)
    );
    let phases: Vec<String> = running
        .phases
        .times
        .iter()
        .map(|(n, d)| format!("{n} {:.3}", ms(*d)))
        .collect();
    let _ = writeln!(
        s,
        "start-up   {:.3} ms: {}",
        ms(totals.startup),
        phases.join(", ")
    );
    if let Some(first) = times.and_then(|t| t.first) {
        let _ = writeln!(
            s,
            "           then {:.3} ms for the first batch, from its input to its answers",
            ms(first)
        );
    }
    if let Some(o) = &running.phases.origins {
        let _ = writeln!(s, "kernels    {}", o.line());
        for note in &o.notes {
            let _ = writeln!(s, "           {note}");
        }
    }
    if running.laid_out_again > 0 {
        let _ = writeln!(
            s,
            "           {} constants were laid out again: the plan is not the baked one",
            running.laid_out_again
        );
    }
    for profile in profiles {
        if let Some(t) = &profile.times {
            let _ = writeln!(
                s,
                "\n{}, plan {}: {} records in {} batches ({:.1} %), busy for {:.3} ms, {:.0} \
                 records/s",
                profile.device,
                profile.plan.name,
                t.records,
                t.batches,
                100.0 * share(profile, profiles),
                ms(t.busy),
                speed(profile, t)
            );
            if let Some(why) = &t.failed {
                let _ = writeln!(s, "failed: {why}");
            }
        }
        let Some(clock) = &profile.clock else {
            continue;
        };
        let all: f64 = clock.steps.iter().map(|t| t.run.total_us()).sum();
        let _ = writeln!(
            s,
            "\n{:<26}{:>7}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>7}",
            "step (µs)",
            "calls",
            "first",
            "queued",
            "wait",
            "mean",
            "median",
            "95th",
            "GFLOPS",
            "share"
        );
        // Without those of a variant of the plan that had nothing to do.
        let idle = |t: &StepTimes| t.missed > 0 && t.run.count() == 0 && t.run.first_us().is_none();
        let steps = profile.plan.steps.iter().zip(&clock.steps);
        for (step, t) in steps.filter(|(_, t)| !idle(t)) {
            let _ = writeln!(
                s,
                "{:<26}{:>7}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>6.1}%",
                step.kernel,
                t.run.count() + u64::from(t.run.first_us().is_some()),
                us(t.run.first_us()),
                us(t.queued.percentile_us(0.5)),
                us(t.wait.percentile_us(0.5)),
                us(t.run.mean_us()),
                us(t.run.percentile_us(0.5)),
                us(t.run.percentile_us(0.95)),
                us(gflops(profile.records, step.flop, t)),
                if all > 0.0 {
                    100.0 * t.run.total_us() / all
                } else {
                    0.0
                }
            );
        }
    }
    if profiles.iter().any(|p| p.clock.is_some()) {
        let _ = writeln!(
            s,
            "GFLOPS: flop of the records, without padding, as the kernel library counts them (2 a \
             multiply-add)."
        );
    }
    if let Some(times) = times {
        let _ = writeln!(
            s,
            "\nstream     {} records in {} batches; reading {:.3} ms, parsing {:.3}, waiting for \
             input {:.3}, engine {:.3} (its threads parsed for {:.3}), writing {:.3}",
            summary.records,
            summary.batches,
            ms(times.read),
            ms(times.parse),
            ms(times.wait),
            ms(times.engine),
            ms(decoding(profiles)),
            ms(times.write)
        );
        let latency = |percent| us(times.latencies.percentile(percent).map(|d| ms(d) * 1e3));
        let _ = writeln!(
            s,
            "latency    of a batch, from reading its first record to writing its answers: p50 {} \
             µs, p95 {}, p99 {}",
            latency(50.0),
            latency(95.0),
            latency(99.0)
        );
    } else {
        let _ = writeln!(
            s,
            "stream     {} records in {} batches; where the time goes is measured with --profile",
            summary.records, summary.batches
        );
    }
    if summary.marked > 0 {
        let _ = writeln!(
            s,
            "           {} of the records are bad: answered with \"error\"",
            summary.marked
        );
    }
    let running_time = totals.elapsed.saturating_sub(totals.startup);
    let _ = writeln!(
        s,
        "end to end {:.3} ms, {:.0} records/s without start-up",
        ms(totals.elapsed),
        summary.records as f64 / running_time.as_secs_f64().max(1e-9)
    );
    s
}

/// A JSON number, or null.
fn number(x: Option<f64>) -> String {
    x.filter(|x| x.is_finite())
        .map_or("null".into(), |x| format!("{x:.3}"))
}

/// A JSON string.
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

/// One object on one line. Keys are only ever added.
fn json(
    running: Facts<'_>,
    profiles: &[DeviceProfile<'_>],
    times: &StreamTimes,
    totals: Totals,
) -> String {
    let summary = totals.summary;
    let mut s = format!(
        "{{\"program\":\"{}\",\"model\":{},\"hash\":\"{}\",\"device\":{},\"plan\":{},\"laid_out_again\":{},\"records\":{},\"batches\":{},\"marked\":{}",
        env!("CARGO_PKG_VERSION"),
        quoted(&network().name),
        network().hash,
        quoted(running.device),
        quoted(&plans(profiles)),
        running.laid_out_again,
        summary.records,
        summary.batches,
        summary.marked
    );
    let phases: Vec<String> = running
        .phases
        .times
        .iter()
        .map(|(n, d)| format!("{}:{:.3}", quoted(n), ms(*d) * 1e3))
        .collect();
    let _ = write!(
        s,
        ",\"startup_us\":{:.3},\"startup_phases_us\":{{{}}},\"first_batch_us\":{}",
        ms(totals.startup) * 1e3,
        phases.join(","),
        number(times.first.map(|d| ms(d) * 1e3))
    );
    if let Some(o) = &running.phases.origins {
        let notes: Vec<String> = o.notes.iter().map(|n| quoted(n)).collect();
        let _ = write!(
            s,
            ",\"kernel_cache\":{{\"result\":\"{}\",\"hits\":{},\"misses\":{},\"notes\":[{}]}}",
            o.word(),
            o.hits,
            o.misses,
            notes.join(",")
        );
    }
    let histogram = |h: &Histogram| {
        format!(
            "{{\"first\":{},\"count\":{},\"mean\":{},\"median\":{},\"p95\":{},\"p99\":{},\"total\":{}}}",
            number(h.first_us()),
            h.count(),
            number(h.mean_us()),
            number(h.percentile_us(0.5)),
            number(h.percentile_us(0.95)),
            number(h.percentile_us(0.99)),
            number(Some(h.total_us()))
        )
    };
    let us = |d: Duration| number(Some(ms(d) * 1e3));
    let (mut steps, mut members): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (index, profile) in profiles.iter().enumerate() {
        let mut member = String::new();
        if let Some(t) = &profile.times {
            let _ = write!(member, ",\"member\":{index}");
            members.push(format!(
                "{{\"device\":{},\"plan\":{},\"records\":{},\"batches\":{},\"share\":{},\"busy_us\":{},\
                 \"records_per_s\":{:.1},\"failed\":{}}}",
                quoted(profile.device),
                quoted(&profile.plan.name),
                t.records,
                t.batches,
                number(Some(share(profile, profiles))),
                us(t.busy),
                speed(profile, t),
                t.failed.as_deref().map_or("null".into(), quoted)
            ));
        }
        let clock = profile.clock.as_ref();
        let all: f64 = clock.map_or(0.0, |c| c.steps.iter().map(|t| t.run.total_us()).sum());
        for (step, t) in profile
            .plan
            .steps
            .iter()
            .zip(clock.map_or(&[][..], |c| &c.steps))
        {
            steps.push(format!(
                "{{\"kernel\":{},\"layer\":{},\"activation\":{},\"flop_per_record\":{},\"queued_us\":{},\"wait_us\":{},\
                 \"run_us\":{},\"gflops\":{},\"share\":{}{member}}}",
                quoted(&step.kernel),
                step.node,
                quoted(step.activation.name()),
                step.flop,
                histogram(&t.queued),
                histogram(&t.wait),
                histogram(&t.run),
                number(gflops(profile.records, step.flop, t)),
                number((all > 0.0).then(|| t.run.total_us() / all))
            ));
        }
    }
    let _ = write!(s, ",\"steps\":[{}]", steps.join(","));
    if !members.is_empty() {
        let _ = write!(s, ",\"members\":[{}]", members.join(","));
    }
    let latency = |percent| {
        times
            .latencies
            .percentile(percent)
            .map_or("null".into(), us)
    };
    let _ = write!(
        s,
        ",\"read_us\":{},\"parse_us\":{},\"wait_us\":{},\"engine_us\":{},\"decode_us\":{},\"write_us\":{},\
         \"latency_us\":{{\"median\":{},\"p95\":{},\"p99\":{}}},\"elapsed_us\":{}",
        us(times.read),
        us(times.parse),
        us(times.wait),
        us(times.engine),
        us(decoding(profiles)),
        us(times.write),
        latency(50.0),
        latency(95.0),
        latency(99.0),
        us(totals.elapsed)
    );
    let running_time = totals
        .elapsed
        .saturating_sub(totals.startup)
        .as_secs_f64()
        .max(1e-9);
    let _ = writeln!(
        s,
        ",\"records_per_s\":{:.1}}}",
        summary.records as f64 / running_time
    );
    s
}
