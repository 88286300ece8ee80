//! The profile as a table for people.

use super::{DeviceProfile, RunProfile, ms, run_us};
use crate::baked::network;
use crate::observe::profile::{StepClock, StepTimes};
use crate::observe::times::{StreamTimes, Summary};
use std::fmt::Write;

/// Returns the profile as a table. `times` are the times of the stream, if they were taken.
pub(super) fn text(profile: &RunProfile<'_>, times: Option<&StreamTimes>) -> String {
    let mut s = String::new();
    start(&mut s, profile, times);
    for device in &profile.devices {
        work(&mut s, profile, device);
        if let Some(clock) = &device.clock {
            steps(&mut s, device, clock);
        }
    }
    if profile.devices.iter().any(|d| d.clock.is_some()) {
        let _ = writeln!(
            s,
            "GFLOPS: flop of the records, without padding, as the kernel library counts them (2 a \
             multiply-add)."
        );
    }
    stream(&mut s, profile, times);
    let (elapsed, speed) = (ms(profile.totals.elapsed), profile.records_per_second());
    let _ = writeln!(
        s,
        "end to end {elapsed:.3} ms, {speed:.0} records/s without start-up"
    );
    s
}

/// Appends network, device, plans, and the times of start-up.
fn start(s: &mut String, profile: &RunProfile<'_>, times: Option<&StreamTimes>) {
    let (running, plans) = (&profile.running, profile.plans());
    let (model, device) = (&network().name, running.device);
    let _ = writeln!(s, "profile of {model} on {device}, plan {plans}");
    let phases = running.phases.times.iter();
    let phases: Vec<String> = phases.map(|(n, d)| format!("{n} {:.3}", ms(*d))).collect();
    let (took, phases) = (ms(profile.totals.startup), phases.join(", "));
    let _ = writeln!(s, "start-up   {took:.3} ms: {phases}");
    const INDENT: &str = "           ";
    if let Some(first) = times.and_then(|t| t.first).map(ms) {
        let what = "for the first batch, from its input to its answers";
        let _ = writeln!(s, "{INDENT}then {first:.3} ms {what}");
    }
    if let Some(o) = &running.phases.origins {
        let _ = writeln!(s, "kernels    {}", o.line());
        for note in &o.notes {
            let _ = writeln!(s, "{INDENT}{note}");
        }
    }
    if running.laid_out_again > 0 {
        let constants = running.laid_out_again;
        let why = "constants were laid out again: the plan is not the baked one";
        let _ = writeln!(s, "{INDENT}{constants} {why}");
    }
}

/// Appends the work of a device. Appends nothing for the only device of a run.
fn work(s: &mut String, profile: &RunProfile<'_>, device: &DeviceProfile<'_>) {
    let Some(t) = &device.times else { return };
    let (name, plan, busy) = (device.device, &device.plan.name, ms(t.busy));
    let (share, speed) = (100.0 * profile.share(device), device.records_per_second(t));
    let (records, batches) = (t.records, t.batches);
    let _ = writeln!(
        s,
        "\n{name}, plan {plan}: {records} records in {batches} batches ({share:.1} %), busy for \
         {busy:.3} ms, {speed:.0} records/s"
    );
    if let Some(why) = &t.failed {
        let _ = writeln!(s, "failed: {why}");
    }
}

/// Appends a table with a line for each step of a device's plan.
fn steps(s: &mut String, device: &DeviceProfile<'_>, clock: &StepClock) {
    let all = run_us(clock);
    let head = [
        "calls", "first", "queued", "wait", "mean", "median", "95th", "GFLOPS", "share",
    ];
    let [calls, first, queued, wait, mean, median, p95, gflops, share] = head;
    let _ = writeln!(
        s,
        "\n{:<26}{calls:>7}{first:>9}{queued:>9}{wait:>9}{mean:>9}{median:>9}{p95:>9}{gflops:>9}\
         {share:>7}",
        "step (µs)"
    );
    // A variant of the plan may have computed no batch. Its steps have no lines.
    let idle = |t: &StepTimes| t.missed > 0 && t.run.count() == 0 && t.run.first_us().is_none();
    let steps = device.plan.steps.iter().zip(&clock.steps);
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
            us(device.gflops(step.flop, t)),
            if all > 0.0 {
                100.0 * t.run.total_us() / all
            } else {
                0.0
            }
        );
    }
}

/// Appends the stream's times, latencies and bad records.
fn stream(s: &mut String, profile: &RunProfile<'_>, times: Option<&StreamTimes>) {
    let Summary {
        records,
        batches,
        marked,
    } = profile.totals.summary;
    if let Some(times) = times {
        let [read, parse, wait] = [times.read, times.parse, times.wait].map(ms);
        let [engine, decode, write] = [times.engine, profile.decoding(), times.write].map(ms);
        let _ = writeln!(
            s,
            "\nstream     {records} records in {batches} batches; reading {read:.3} ms, parsing \
             {parse:.3}, waiting for input {wait:.3}, engine {engine:.3} (its threads parsed for \
             {decode:.3}), writing {write:.3}"
        );
        let latency = |percent| us(times.latencies.percentile(percent).map(|d| ms(d) * 1e3));
        let [p50, p95, p99] = [50.0, 95.0, 99.0].map(latency);
        let _ = writeln!(
            s,
            "latency    of a batch, from reading its first record to writing its answers: p50 \
             {p50} µs, p95 {p95}, p99 {p99}"
        );
    } else {
        let _ = writeln!(
            s,
            "stream     {records} records in {batches} batches; where the time goes is measured \
             with --profile"
        );
    }
    if marked > 0 {
        let what = "of the records are bad: answered with \"error\"";
        let _ = writeln!(s, "           {marked} {what}");
    }
}

/// Returns a number of microseconds as text: cut to six characters below 1000, and without decimals
/// from 1000 on. Returns a dash for `None`.
fn us(x: Option<f64>) -> String {
    x.map_or("-".into(), |x| {
        if x >= 1000.0 {
            format!("{x:.0}")
        } else {
            format!("{x:.4}")[..6].trim_end_matches('.').into()
        }
    })
}
