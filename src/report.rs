//! What `--profile` prints: every number was measured in this run.

use crate::baked::NETWORK;
use crate::cli::ProfileFormat;
use crate::engine::select::Running;
use crate::profile::{Histogram, StepClock};
use crate::stream::{StreamTimes, Summary};
use std::fmt::Write;
use std::time::Duration;

/// Times of the whole run.
#[derive(Clone, Copy)]
pub struct Totals {
    /// From the start of `main` until the first record could be read.
    pub startup: Duration,
    /// From the start of `main` until the last result was out.
    pub elapsed: Duration,
    /// What was done; `None` where an error ended the run.
    pub summary: Option<Summary>,
}

/// The profile of a run.
pub fn text(format: ProfileFormat, running: &mut Running, times: &StreamTimes, totals: Totals) -> String {
    let clock = running.engine.step_times();
    match format {
        ProfileFormat::Table => table(running, clock.as_ref(), times, totals),
        ProfileFormat::Json => json(running, clock.as_ref(), times, totals),
    }
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Microseconds with four digits, or a dash.
fn us(x: Option<f64>) -> String {
    x.map_or("-".into(), |x| {
        if x >= 1000.0 { format!("{x:.0}") } else { format!("{x:.4}")[..6].trim_end_matches('.').into() }
    })
}

/// Records that the steady-state runs of a step had: all but those of the first run. Blocks of the host engine and
/// batches of a device have at most so many records.
struct Rates {
    records: u64,
}

impl Rates {
    /// GFLOPS of a step over all its runs.
    fn gflops(&self, flop: u64, run: &Histogram) -> Option<f64> {
        let us = run.total_us();
        (us > 0.0 && flop > 0).then(|| flop as f64 * self.records as f64 / us / 1e3)
    }
}

fn table(running: &Running, clock: Option<&StepClock>, times: &StreamTimes, totals: Totals) -> String {
    let mut s = String::new();
    let summary = totals.summary.unwrap_or_default();
    let _ = writeln!(s, "profile of {} on {}, plan {}", NETWORK.name, running.device, running.plan.name);
    let phases: Vec<String> = running.phases.0.iter().map(|(n, d)| format!("{n} {:.3}", ms(*d))).collect();
    let _ = writeln!(s, "start-up   {:.3} ms: {}", ms(totals.startup), phases.join(", "));
    if running.laid_out_again > 0 {
        let _ = writeln!(
            s,
            "           {} constants were laid out again: the plan is not the baked one",
            running.laid_out_again
        );
    }
    if let Some(clock) = clock {
        let rates = Rates { records: summary.records };
        let all: f64 = clock.steps.iter().map(|t| t.run.total_us()).sum();
        let _ = writeln!(
            s,
            "\n{:<26}{:>7}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>7}",
            "step (µs)", "calls", "first", "queued", "wait", "mean", "median", "95th", "GFLOPS", "share"
        );
        for (step, t) in running.plan.steps.iter().zip(&clock.steps) {
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
                us(rates.gflops(step.flop, &t.run)),
                if all > 0.0 { 100.0 * t.run.total_us() / all } else { 0.0 }
            );
        }
        let _ = writeln!(
            s,
            "GFLOPS: 2 flop a multiply-add (1 an element elsewhere) of the records, padding not counted."
        );
    }
    let _ = writeln!(
        s,
        "\nstream     {} records in {} batches; reading {:.3} ms, parsing {:.3}, waiting for input {:.3}, engine {:.3} (its threads parsed for {:.3}), writing {:.3}",
        summary.records,
        summary.batches,
        ms(times.read),
        ms(times.parse),
        ms(times.wait),
        ms(times.engine),
        ms(clock.map_or(Duration::ZERO, |c| c.decode)),
        ms(times.write)
    );
    let latency = |percent| us(times.latencies.percentile(percent).map(|d| ms(d) * 1e3));
    let _ = writeln!(
        s,
        "latency    of a batch, from reading its first record to writing its answers: p50 {} µs, p95 {}, p99 {}",
        latency(50.0),
        latency(95.0),
        latency(99.0)
    );
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
    x.filter(|x| x.is_finite()).map_or("null".into(), |x| format!("{x:.3}"))
}

fn quoted(text: &str) -> String {
    let mut s = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => s.extend(['\\', c]),
            c if (c as u32) < 32 => {
                let _ = write!(s, "\\u{:04x}", c as u32);
            }
            c => s.push(c),
        }
    }
    s + "\""
}

/// One object on one line. Keys are only ever added.
fn json(running: &Running, clock: Option<&StepClock>, times: &StreamTimes, totals: Totals) -> String {
    let summary = totals.summary.unwrap_or_default();
    let mut s = format!(
        "{{\"program\":{},\"model\":{},\"hash\":{},\"device\":{},\"plan\":{},\"laid_out_again\":{},\"records\":{},\"batches\":{}",
        quoted(env!("CARGO_PKG_VERSION")),
        quoted(&NETWORK.name),
        quoted(&NETWORK.hash),
        quoted(&running.device),
        quoted(&running.plan.name),
        running.laid_out_again,
        summary.records,
        summary.batches
    );
    let phases: Vec<String> =
        running.phases.0.iter().map(|(n, d)| format!("{}:{:.3}", quoted(n), ms(*d) * 1e3)).collect();
    let _ = write!(
        s,
        ",\"startup_us\":{:.3},\"startup_phases_us\":{{{}}}",
        ms(totals.startup) * 1e3,
        phases.join(",")
    );
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
    let rates = Rates { records: summary.records };
    let all: f64 = clock.map_or(0.0, |c| c.steps.iter().map(|t| t.run.total_us()).sum());
    let steps: Vec<String> = running
        .plan
        .steps
        .iter()
        .zip(clock.map_or(&[][..], |c| &c.steps))
        .map(|(step, t)| {
            format!(
                "{{\"kernel\":{},\"layer\":{},\"activation\":{},\"flop_per_record\":{},\"queued_us\":{},\"wait_us\":{},\
                 \"run_us\":{},\"gflops\":{},\"share\":{}}}",
                quoted(&step.kernel),
                step.layer,
                quoted(step.activation.name()),
                step.flop,
                histogram(&t.queued),
                histogram(&t.wait),
                histogram(&t.run),
                number(rates.gflops(step.flop, &t.run)),
                number((all > 0.0).then(|| t.run.total_us() / all))
            )
        })
        .collect();
    let _ = write!(s, ",\"steps\":[{}]", steps.join(","));
    let us = |d: Duration| number(Some(ms(d) * 1e3));
    let latency = |percent| times.latencies.percentile(percent).map_or("null".into(), us);
    let _ = write!(
        s,
        ",\"read_us\":{},\"parse_us\":{},\"wait_us\":{},\"engine_us\":{},\"decode_us\":{},\"write_us\":{},\
         \"latency_us\":{{\"median\":{},\"p95\":{},\"p99\":{}}},\"elapsed_us\":{}",
        us(times.read),
        us(times.parse),
        us(times.wait),
        us(times.engine),
        us(clock.map_or(Duration::ZERO, |c| c.decode)),
        us(times.write),
        latency(50.0),
        latency(95.0),
        latency(99.0),
        us(totals.elapsed)
    );
    let running_time = totals.elapsed.saturating_sub(totals.startup).as_secs_f64().max(1e-9);
    let _ = writeln!(s, ",\"records_per_s\":{:.1}}}", summary.records as f64 / running_time);
    s
}
