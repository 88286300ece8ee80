//! The profile as a table for people.

use super::{DeviceProfile, RunProfile, ms, run_us};
use crate::baked::network;
use crate::observe::profile::{StepClock, StepTimes};
use crate::observe::times::StreamTimes;
use std::fmt::Write;

/// Returns the whole table. `times`: of the stream, if they were taken.
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
    let _ = writeln!(
        s,
        "end to end {:.3} ms, {:.0} records/s without start-up",
        ms(profile.totals.elapsed),
        profile.records_per_second()
    );
    s
}

/// Network, device, and the times of start-up.
fn start(s: &mut String, profile: &RunProfile<'_>, times: Option<&StreamTimes>) {
    let running = &profile.running;
    let _ = writeln!(
        s,
        "profile of {} on {}, plan {}",
        network().name,
        running.device,
        profile.plans()
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
        ms(profile.totals.startup),
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
}

/// The work of a device that shares the records with others.
fn work(s: &mut String, profile: &RunProfile<'_>, device: &DeviceProfile<'_>) {
    let Some(t) = &device.times else { return };
    let _ = writeln!(
        s,
        "\n{}, plan {}: {} records in {} batches ({:.1} %), busy for {:.3} ms, {:.0} records/s",
        device.device,
        device.plan.name,
        t.records,
        t.batches,
        100.0 * profile.share(device),
        ms(t.busy),
        device.records_per_second(t)
    );
    if let Some(why) = &t.failed {
        let _ = writeln!(s, "failed: {why}");
    }
}

/// One line for each step of a device's plan.
fn steps(s: &mut String, device: &DeviceProfile<'_>, clock: &StepClock) {
    let all = run_us(clock);
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
    // A variant of the plan that had nothing to do has no lines.
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

/// The stream's times, latencies and bad records.
fn stream(s: &mut String, profile: &RunProfile<'_>, times: Option<&StreamTimes>) {
    let summary = profile.totals.summary;
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
            ms(profile.decoding()),
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
