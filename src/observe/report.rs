//! The text of `--profile`: a table, JSON or a trace. Every time in the text was measured in this
//! run.

mod json;
mod table;

use crate::ir::plan::Plan;
use crate::observe::profile::{MemberTimes, Phases, StepClock, StepTimes};
use crate::observe::times::{StreamTimes, Summary};
use crate::observe::trace::DeviceOfTrace;
pub(crate) use json::quoted;
use std::time::Duration;

/// The format of `--profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfileFormat {
    /// A table for people.
    Table,
    /// One JSON object on one line.
    Json,
    /// Chrome's trace events, for timelines.
    Trace,
}

/// The total times of a run, and its numbers of records and batches.
#[derive(Clone, Copy)]
pub(crate) struct Totals {
    /// The time from the start of `main` until the first record could be read.
    pub(crate) startup: Duration,
    /// The time from the start of `main` until the profile is made, normally after the last result.
    pub(crate) elapsed: Duration,
    pub(crate) summary: Summary,
}

/// The engine of a run, its plan and its start-up.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// A text that describes the device, for people.
    pub(crate) device: &'a str,
    pub(crate) plan: &'a Plan,
    /// The number of constants that were repacked at start-up, because the plan needs other layouts
    /// than the baked ones.
    pub(crate) laid_out_again: usize,
    pub(crate) phases: &'a Phases,
    /// The devices of a run, if several share the records. Empty for a single device.
    pub(crate) members: &'a [RunningMember],
}

/// One of several devices that share the records.
pub(crate) struct RunningMember {
    /// A text that describes the device, for people.
    pub(crate) device: String,
    pub(crate) plan: Plan,
    /// The device's number among the requested devices, from 0. Devices that did not start count,
    /// too. The trace numbers its groups in the same order.
    pub(crate) group: usize,
}

/// The times that an engine measured.
#[derive(Default)]
pub(crate) struct Measurements {
    /// The times of the plan's steps. `None` if no times were taken, or if several devices share
    /// the records.
    pub(crate) clock: Option<StepClock>,
    /// The measurements of each device, if several share the records. Empty for a single device.
    pub(crate) members: Vec<MemberMeasurements>,
}

/// The work of one of several devices, and the times of its plan's steps.
#[derive(Debug)]
pub(crate) struct MemberMeasurements {
    pub(crate) times: MemberTimes,
    pub(crate) clock: Option<StepClock>,
}

/// Returns the profile of a run as text. `times` are the times of the stream. Without `times` the
/// text is a table, whatever `format` is.
pub(crate) fn text(
    format: ProfileFormat,
    running: Facts<'_>,
    measured: Measurements,
    times: Option<&StreamTimes>,
    totals: Totals,
) -> String {
    let Measurements { clock, members } = measured;
    let records = totals.summary.records;
    let devices = if members.is_empty() {
        vec![DeviceProfile {
            device: running.device,
            plan: running.plan,
            group: 0,
            records,
            times: None,
            clock,
        }]
    } else {
        let members = running.members.iter().zip(members);
        members
            .map(
                |(facts, MemberMeasurements { times, clock })| DeviceProfile {
                    device: &facts.device,
                    plan: &facts.plan,
                    group: facts.group,
                    records: times.records,
                    times: Some(times),
                    clock,
                },
            )
            .collect()
    };
    let profile = RunProfile {
        running,
        devices,
        totals,
    };
    match (format, times) {
        (ProfileFormat::Json | ProfileFormat::Trace, Some(times)) => {
            let sums = json::text(&profile, times);
            let Some(track) = times.track.filter(|_| format == ProfileFormat::Trace) else {
                return sums;
            };
            let groups: Vec<DeviceOfTrace<'_>> = profile
                .devices
                .iter()
                .map(|device| DeviceOfTrace {
                    group: device.group,
                    name: device.device,
                    plan: device.plan,
                })
                .collect();
            track.json(&sums, &groups, totals.elapsed)
        }
        _ => crate::escape::lines(&table::text(&profile, times)).into_owned(),
    }
}

/// The facts and measurements that a profile prints, except the times of the stream.
struct RunProfile<'a> {
    running: Facts<'a>,
    devices: Vec<DeviceProfile<'a>>,
    totals: Totals,
}

/// A device of a run, with its measurements.
struct DeviceProfile<'a> {
    device: &'a str,
    plan: &'a Plan,
    /// The device's number among the requested devices, which selects its group in a trace.
    group: usize,
    records: u64,
    /// The device's records, batches and busy time, if several devices share the run. `None` for
    /// the only device of a run.
    times: Option<MemberTimes>,
    clock: Option<StepClock>,
}

impl RunProfile<'_> {
    /// Returns the names of the devices' plans, each once, with ` + ` between them.
    fn plans(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for device in &self.devices {
            if !names.contains(&&*device.plan.name) {
                names.push(&device.plan.name);
            }
        }
        names.join(" + ")
    }

    /// Returns the time that threads of the engines spent decoding records, summed over threads and
    /// devices.
    fn decoding(&self) -> Duration {
        let clocks = self.devices.iter().flat_map(|d| &d.clock);
        let members = self.devices.iter().flat_map(|d| &d.times);
        clocks
            .map(|c| c.decode)
            .chain(members.map(|t| t.decode))
            .sum()
    }

    /// Returns the share (0 to 1) of the run's records that `device` answered.
    fn share(&self, device: &DeviceProfile<'_>) -> f64 {
        device.records as f64 / self.devices.iter().map(|d| d.records).sum::<u64>().max(1) as f64
    }

    /// Returns the records per second of the whole run, without start-up.
    fn records_per_second(&self) -> f64 {
        let running = self.totals.elapsed.saturating_sub(self.totals.startup);
        self.totals.summary.records as f64 / running.as_secs_f64().max(1e-9)
    }
}

impl DeviceProfile<'_> {
    /// Returns the device's records per second of its busy time, which `times` contains.
    fn records_per_second(&self, times: &MemberTimes) -> f64 {
        self.records as f64 / times.busy.as_secs_f64().max(1e-9)
    }

    /// Returns the GFLOPS of a step with `flop` operations per record. Records that another variant
    /// of the plan computed do not count. `None` for a step without operations or times.
    fn gflops(&self, flop: u64, times: &StepTimes) -> Option<f64> {
        let us = times.run.total_us();
        let records = self.records.saturating_sub(times.missed);
        (us > 0.0 && flop > 0).then(|| flop as f64 * records as f64 / us / 1e3)
    }
}

/// Returns the time of all runs of all steps of a device, in microseconds.
fn run_us(clock: &StepClock) -> f64 {
    clock.steps.iter().map(|t| t.run.total_us()).sum()
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
