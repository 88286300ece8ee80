//! The trial of a device at its first start under `auto`. The golden vectors run on the device and
//! on the host, and both are checked and timed. The result is stored in the cache folder. It is
//! valid only for the same model, library, device, driver, host, plans and batch size.
//!
//! The trial detects a driver that computes wrongly before the first record is answered. Without a
//! cache folder every start runs the trial.

use super::cache::{self, Folder};
use super::{Engine, selftest, tuning};
use crate::baked::{golden, library, network};
use crate::cl::Device;
use crate::error::Error;
use crate::escape;
use crate::registry::PlanRecipe;
use crate::sys::watchdog;
use std::time::Instant;

#[cfg(fuzzing)]
#[path = "../../tests/fuzz/checks/trial.rs"]
pub(crate) mod fuzzing;

/// The first line of a trial's file.
const FIRST_LINE: &str = "mortonnet trial 1\n";

/// The size limit of a trial's file.
const MOST_BYTES: u64 = 4 << 10;

/// The number of full batches that are timed on each engine.
const TURNS: usize = 5;

/// The result of a trial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Trial {
    /// The device's answers were right. The times are microseconds per record in full batches.
    Right { device: f64, host: f64 },
    /// The device's answers were wrong, as described.
    Wrong(String),
}

/// Everything that the result of a trial depends on, as texts. It identifies a stored trial.
#[derive(Clone, Debug)]
pub(crate) struct TrialKey {
    parts: Vec<String>,
}

impl TrialKey {
    /// Makes the key of a trial of `device` with `plan` against the host with plan `host`. The pair
    /// has the limits of `--batch` and `--max-memory`.
    pub(crate) fn new(
        device: &Device,
        plan: &PlanRecipe,
        host: &PlanRecipe,
        (batch, memory): (Option<usize>, Option<u64>),
    ) -> TrialKey {
        let mut parts = vec![
            env!("CARGO_PKG_VERSION").to_string(),
            network().hash.to_string(),
            library().hash.to_string(),
        ];
        for (device, plan) in [(Some(device), plan), (None, host)] {
            let (name, driver) = tuning::identity(device);
            parts.extend([
                name,
                driver,
                plan.kernels.join(" "),
                batch.unwrap_or(plan.batch).to_string(),
            ]);
            parts.extend(
                plan.groups
                    .iter()
                    .map(|(kernel, (rows, cols))| format!("{kernel} {rows} {cols}")),
            );
        }
        parts.extend(memory.map(|bytes| bytes.to_string()));
        TrialKey { parts }
    }

    /// Returns the path of the trial's file, for messages.
    pub(crate) fn file(&self) -> String {
        Folder::named().map_or(String::new(), |folder| {
            escape::path(&folder.at(&self.file_name()))
        })
    }

    fn file_name(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        format!("trial-{:016x}", cache::hash(&parts))
    }

    /// Returns the text of a trial's file. Its numbers are written so that they read back exactly.
    fn text(&self, trial: &Trial) -> String {
        let about = self
            .parts
            .iter()
            .map(|part| escape::line(part))
            .collect::<Vec<_>>()
            .join("\n");
        let found = match trial {
            Trial::Right { device, host } => format!("right {device} {host}"),
            Trial::Wrong(why) => format!("wrong {}", escape::line(why)),
        };
        let text = format!("{FIRST_LINE}{about}\n{found}");
        let sum = cache::hash(&[&text]);
        format!("{text}\nchecksum {sum:016x}\n")
    }

    fn parse(&self, text: &str) -> Option<Trial> {
        let found = text.lines().rev().nth(1)?;
        let trial = match found.split_once(' ')? {
            ("right", times) => {
                let (device, host) = times.split_once(' ')?;
                let time = |text: &str| {
                    text.parse()
                        .ok()
                        .filter(|us: &f64| us.is_finite() && *us > 0.0)
                };
                Trial::Right {
                    device: time(device)?,
                    host: time(host)?,
                }
            }
            ("wrong", why) => Trial::Wrong(why.into()),
            _ => return None,
        };
        // The file's text is compared as a whole, including the key's lines and the checksum.
        (self.text(&trial) == text).then_some(trial)
    }

    /// Returns the stored result of this trial, if this user's cache folder has one.
    pub(crate) fn known(&self) -> Option<Trial> {
        let folder = Folder::named()
            .ok()
            .filter(|folder| folder.check().is_ok())?;
        self.parse(&folder.text(&self.file_name(), MOST_BYTES).ok()??)
    }

    /// Stores the result of the trial for the next start, if there is a cache folder.
    pub(crate) fn remember(&self, trial: &Trial) {
        if let Ok(folder) = Folder::named() {
            let _ = folder.write(&self.file_name(), self.text(trial).as_bytes());
        }
    }
}

/// Checks the answers of `device` to the golden vectors. `device` must have been started for scores
/// and classes. If they are right, times `device` and `host`.
pub(crate) fn run(device: &mut dyn Engine, host: &mut dyn Engine) -> Result<Trial, Error> {
    let (network, golden) = (network(), golden());
    let report = selftest::run(device, network, &golden)?;
    if !report.passed() {
        let on_host = selftest::run(host, network, &golden)?;
        if !on_host.passed() {
            return Err(Error::check(format!(
                "{report}; {}",
                selftest::blamed(Some(&on_host))
            )));
        }
        return Ok(Trial::Wrong(report.to_string()));
    }
    let time = |engine: &mut dyn Engine| {
        let batch = engine.batch();
        selftest::fill(engine, network, &golden, 0, batch)?;
        let mut times = [0.0; TURNS];
        for time in &mut times {
            watchdog::beat("trial");
            let start = Instant::now();
            engine.submit(0, batch)?;
            engine.collect(0)?;
            *time = start.elapsed().as_secs_f64() * 1e6 / batch as f64;
        }
        times.sort_unstable_by(f64::total_cmp);
        engine.forget_times();
        Ok::<f64, Error>(times[TURNS / 2].max(1e-6))
    };
    // The host's first batch wakes its threads, so it is run once before the timing.
    time(host)?;
    Ok(Trial::Right {
        device: time(device)?,
        host: time(host)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::host::HostEngine;
    use crate::engine::model::{Model, Values, recipe};
    use crate::registry::EngineKind;

    /// Makes a host engine. If `wrong`, a changed bias of the last layer makes its answers wrong.
    fn engine(wrong: bool) -> HostEngine {
        let mut model = Model::baked(recipe("host", EngineKind::Host).unwrap(), None).unwrap();
        let Some(Values::F32(biases)) = model.constants.last_mut() else {
            panic!("biases are floats")
        };
        biases.to_mut()[2] += if wrong { 0.5 } else { 0.0 };
        HostEngine::new(model, 1, false).unwrap()
    }

    #[test]
    fn a_device_is_wrong_only_where_the_host_is_right() {
        let run = |device, host| super::run(&mut engine(device), &mut engine(host));
        assert!(matches!(run(false, false), Ok(Trial::Right { .. })));
        assert!(matches!(run(true, false), Ok(Trial::Wrong(_))));
        let error = run(true, true).unwrap_err().to_string();
        assert!(
            error.contains("; the host engine fails as well: ") && error.contains("not the device"),
            "{error}"
        );
    }

    #[test]
    fn records_read_back_and_every_changed_byte_is_seen() {
        let key = |device: &str, driver: &str| TrialKey {
            parts: ["1.0", "model", "library", device, driver]
                .map(String::from)
                .to_vec(),
        };
        let other = key("a device", "driver 2");
        let key = key("a\u{1b}[1m device", "driver");
        assert_ne!(key.file_name(), other.file_name());
        for trial in [
            Trial::Right {
                device: 0.1,
                host: 1.0 / 3.0,
            },
            Trial::Wrong("2 wrong classes".into()),
        ] {
            let text = key.text(&trial);
            assert_eq!(key.parse(&text), Some(trial));
            assert_eq!(other.parse(&text), None);
            for i in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[i] ^= 1;
                if let Ok(changed) = String::from_utf8(bytes) {
                    assert_eq!(key.parse(&changed), None, "byte {i}");
                }
                assert_eq!(key.parse(&text[..i]), None, "{i} bytes");
            }
        }
    }
}
