//! Converts times of a device's clock to the host's clock.
//!
//! OpenCL stamps a command QUEUED inside the call that enqueues it. The host's times before and
//! after the call therefore bound the difference of the clocks. Some exchanges before the stream
//! narrow the bounds to microseconds. Clocks drift: each later batch corrects the difference by as
//! little as its own bounds demand.

use crate::cl::Times;
use std::ops::Range;

/// The host's times of one command of a device, in nanoseconds since the start of the program.
#[derive(Clone, Copy)]
pub(crate) struct HostTimes {
    /// The time just before the call that enqueued the command.
    pub(crate) before: u64,
    /// The time just after the call that enqueued the command.
    pub(crate) after: u64,
    /// The time when the host saw that the command was done.
    pub(crate) done: u64,
}

/// The difference between the host's clock and the clock of one device.
#[derive(Debug)]
pub(crate) struct Clocks {
    bounds: Bounds,
    /// The nanoseconds to add to a device's time to get the host's time. [`Clocks::host`] adjusts
    /// this number.
    add: i64,
}

/// The least and the most nanoseconds by which the host's clock can be ahead of a device's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds {
    least: i64,
    most: i64,
}

const UNKNOWN: Bounds = Bounds {
    least: i64::MIN,
    most: i64::MAX,
};

impl Default for Clocks {
    fn default() -> Self {
        Clocks {
            bounds: UNKNOWN,
            add: 0,
        }
    }
}

impl Clocks {
    /// Narrows the bounds with the times of one command. The compared commands must follow each
    /// other so fast that the clocks do not drift. A command without times is ignored, and so is
    /// one that contradicts the bounds.
    pub(crate) fn compare(&mut self, host: HostTimes, device: Times) {
        let found = bounds(host, device);
        let least = found.least.max(self.bounds.least);
        let most = found.most.min(self.bounds.most);
        if least <= most && device.end > 0 {
            self.bounds = Bounds { least, most };
            self.add = least + (most - least) / 2;
        }
    }

    /// Returns the largest possible error of converted times, in nanoseconds. `None` if no command
    /// had times.
    pub(crate) fn error(&self) -> Option<u64> {
        (self.bounds != UNKNOWN).then(|| self.bounds.least.abs_diff(self.bounds.most) / 2)
    }

    /// Returns start and end of a command by the host's clock. `None` if the driver has taken no
    /// times. Adjusts the difference of the clocks by as little as this command's bounds demand.
    pub(crate) fn host(&mut self, host: HostTimes, device: Times) -> Option<Range<u64>> {
        let Bounds { least, most } = bounds(host, device);
        if device.end == 0 {
            return None;
        }
        self.add = self.add.max(least).min(most);
        let to = |time: u64| {
            u64::try_from((time as i64).wrapping_add(self.add))
                .unwrap_or(0)
                .min(host.done)
        };
        let start = to(device.start);
        Some(start..to(device.end).max(start))
    }
}

/// Returns the bounds of the clocks' difference that the times of one command give.
fn bounds(host: HostTimes, device: Times) -> Bounds {
    let less = |host: u64, device: u64| (host as i64).wrapping_sub(device as i64);
    Bounds {
        least: less(host.before, device.queued),
        most: less(host.after, device.queued).min(less(host.done, device.end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device's clock starts at another time and runs 50 ppm too fast. After some exchanges the
    /// converted times of all later commands are within 3.7 µs of the true times.
    #[test]
    fn clocks_are_compared_and_followed() {
        let device = |host: u64| 7_000_000_000 + host + host / 20_000;
        let times = |queued: u64, end: u64| Times {
            queued: device(queued),
            submit: device(queued),
            start: device(end - 1000),
            end: device(end),
        };
        let host = |before, after, done| HostTimes {
            before,
            after,
            done,
        };
        let mut clocks = Clocks::default();
        clocks.compare(host(5, 9, 12), Times::default());
        assert_eq!(clocks.error(), None);
        for i in 0..8 {
            // The call that enqueues takes 5 µs and more. QUEUED is stamped at some time during the
            // call.
            let (at, took) = (100_000 * i, 5000 + 700 * (i % 3));
            clocks.compare(
                host(at, at + took, at + took + 9000),
                times(at + 1000 + 100 * i, at + took + 8000),
            );
        }
        let error = clocks.error().unwrap();
        assert!(error < 2500, "{error}");
        for i in 1..10_000 {
            let at = 1_000_000 + 3_000_000 * i;
            let command = host(at, at + 6000, at + 90_000);
            let found = clocks.host(command, times(at + 2500, at + 60_000)).unwrap();
            assert!(
                found.start.abs_diff(at + 59_000) < 3700 && found.end.abs_diff(at + 60_000) < 3700,
                "{i}: {found:?}"
            );
        }
        // One driver takes no times. The times of another driver contradict each other.
        assert_eq!(clocks.host(host(1, 2, 3), Times::default()), None);
        let nonsense = Times {
            queued: 9,
            submit: 9,
            start: 1,
            end: u64::MAX,
        };
        let found = clocks.host(host(5, 6, 7), nonsense).unwrap();
        assert!(found.start <= found.end && found.end <= 7);
    }
}
