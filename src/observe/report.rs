//! The text of `--profile`. Every number was measured in this run.

mod json;
mod table;

use crate::ir::plan::Plan;
use crate::observe::profile::{MemberTimes, Phases, StepClock, StepTimes};
use crate::observe::times::{StreamTimes, Summary};
use crate::observe::trace::DeviceOfTrace;
pub(crate) use json::quoted;
use std::time::Duration;

/// The format of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfileFormat {
    /// A table for people.
    Table,
    /// One JSON object on one line.
    Json,
    /// Chrome's trace events, for timelines.
    Trace,
}

/// Times of the whole run.
#[derive(Clone, Copy)]
pub(crate) struct Totals {
    /// From the start of `main` until the first record could be read.
    pub(crate) startup: Duration,
    /// From the start of `main` until the last result was written.
    pub(crate) elapsed: Duration,
    pub(crate) summary: Summary,
}

/// The engine of a run, its plan and its start-up.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// The device in words.
    pub(crate) device: &'a str,
    pub(crate) plan: &'a Plan,
    /// The number of constants that start-up had to store in another layout.
    pub(crate) laid_out_again: usize,
    pub(crate) phases: &'a Phases,
    /// The devices, if several share the records.
    pub(crate) members: &'a [RunningMember],
}

/// One of several devices that share the records.
pub(crate) struct RunningMember {
    /// The device in words.
    pub(crate) device: String,
    pub(crate) plan: Plan,
    /// Its number among the requested devices, started or not; also the number of its group in a
    /// trace.
    pub(crate) group: usize,
}

/// Everything that an engine measured.
#[derive(Default)]
pub(crate) struct Measurements {
    /// Times of the plan's steps, if they were taken.
    pub(crate) clock: Option<StepClock>,
    /// One for each device, if several share the records.
    pub(crate) members: Vec<MemberMeasurements>,
}

/// The work of one of several devices, and the times of its plan's steps.
#[derive(Debug)]
pub(crate) struct MemberMeasurements {
    pub(crate) times: MemberTimes,
    pub(crate) clock: Option<StepClock>,
}

/// Returns the profile of a run. `times`: of the stream, if they were taken.
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

/// Everything that a profile prints, but the times of the stream.
struct RunProfile<'a> {
    running: Facts<'a>,
    devices: Vec<DeviceProfile<'a>>,
    totals: Totals,
}

/// The only device of a run, or one of several.
struct DeviceProfile<'a> {
    device: &'a str,
    plan: &'a Plan,
    /// The number of its group in a trace.
    group: usize,
    records: u64,
    /// Its part of the work, if several devices share it.
    times: Option<MemberTimes>,
    clock: Option<StepClock>,
}

impl RunProfile<'_> {
    /// The names of the plans, each once.
    fn plans(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for device in &self.devices {
            if !names.contains(&&*device.plan.name) {
                names.push(&device.plan.name);
            }
        }
        names.join(" + ")
    }

    /// Time that the engines' threads spent parsing.
    fn decoding(&self) -> Duration {
        let clocks = self.devices.iter().flat_map(|d| &d.clock);
        let members = self.devices.iter().flat_map(|d| &d.times);
        clocks
            .map(|c| c.decode)
            .chain(members.map(|t| t.decode))
            .sum()
    }

    /// The share (0 to 1) of all records that `device` answered.
    fn share(&self, device: &DeviceProfile<'_>) -> f64 {
        device.records as f64 / self.devices.iter().map(|d| d.records).sum::<u64>().max(1) as f64
    }

    /// Records per second of the whole run, without start-up.
    fn records_per_second(&self) -> f64 {
        let running = self.totals.elapsed.saturating_sub(self.totals.startup);
        self.totals.summary.records as f64 / running.as_secs_f64().max(1e-9)
    }
}

impl DeviceProfile<'_> {
    /// Records per second while the device was busy.
    fn records_per_second(&self, times: &MemberTimes) -> f64 {
        self.records as f64 / times.busy.as_secs_f64().max(1e-9)
    }

    /// GFLOPS of a step over its runs. Records that another variant of the plan computed do not
    /// count.
    fn gflops(&self, flop: u64, times: &StepTimes) -> Option<f64> {
        let us = times.run.total_us();
        let records = self.records.saturating_sub(times.missed);
        (us > 0.0 && flop > 0).then(|| flop as f64 * records as f64 / us / 1e3)
    }
}

/// The sum of all runs of all steps, in microseconds.
fn run_us(clock: &StepClock) -> f64 {
    clock.steps.iter().map(|t| t.run.total_us()).sum()
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
