//! The arguments of a command line. They are all collected first, then the command takes those that
//! it uses. An argument that no command took is an error, so none is silently ignored.

use super::Command;
use crate::engine::select::DeviceWish;
use crate::engine::sources::Sources;
use crate::error::Error;
use crate::ir::plan::MOST_RECORDS;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A command: its name in messages, and the function that takes its arguments. `take` must ask for
/// every option that the command uses, even one that was not given. [`users`] relies on this to
/// find the commands that use an option.
pub(super) struct CommandSpec {
    pub(super) name: &'static str,
    pub(super) take: fn(&mut Arguments) -> Result<Command, Error>,
}

impl CommandSpec {
    pub(super) const fn new(
        name: &'static str,
        take: fn(&mut Arguments) -> Result<Command, Error>,
    ) -> CommandSpec {
        CommandSpec { name, take }
    }
}

/// An option as the command line gives it.
pub(super) struct GivenOption {
    /// The long name, without dashes.
    pub(super) name: &'static str,
    /// The value of the option; empty for an option that takes no value.
    pub(super) value: OsString,
}

#[derive(Default)]
pub(super) struct Arguments {
    /// The options in the order of the command line, repeated ones included.
    pub(super) options: Vec<GivenOption>,
    /// The arguments that are not options: names of files or of kernels.
    pub(super) values: Vec<OsString>,
    /// Names of the options that the command has asked for. [`VALUES`] is among them if it asked
    /// for the other arguments.
    asked: Vec<&'static str>,
}

/// Stands in [`Arguments::asked`] for the arguments that are not options.
const VALUES: &str = "";

impl Arguments {
    pub(super) fn add(&mut self, name: &'static str, value: OsString) {
        self.options.push(GivenOption { name, value });
    }

    /// Returns true if the command line has `option`. The option does not count as asked for.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o.name == option)
    }

    /// Returns a note for each option that was given more than once with different values. Only its
    /// last value is used.
    pub(super) fn repeated(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (i, first) in self.options.iter().enumerate() {
            let same = |o: &&GivenOption| o.name == first.name;
            if self.options[..i].iter().any(|o| same(&o)) {
                continue;
            }
            let later: Vec<_> = self.options[i + 1..].iter().filter(same).collect();
            if let Some(last) = later.last() {
                if later.iter().any(|o| o.value != first.value) {
                    notes.push(format!(
                        "--{} is there more than once: the last one holds, {}",
                        first.name,
                        last.value.to_string_lossy()
                    ));
                }
            }
        }
        notes
    }

    /// Takes an option that has no value. Returns true if the command line has it.
    pub(super) fn flag(&mut self, option: &'static str) -> bool {
        self.asked.push(option);
        self.has(option)
    }

    /// Takes the arguments that are not options.
    pub(super) fn values(&mut self) -> Vec<OsString> {
        self.asked.push(VALUES);
        std::mem::take(&mut self.values)
    }

    pub(super) fn path(&mut self, option: &'static str) -> Option<PathBuf> {
        self.asked.push(option);
        self.options
            .iter()
            .rfind(|o| o.name == option)
            .map(|o| o.value.clone().into())
    }

    /// Takes an option and parses its value with `read`. If the option is repeated, all its values
    /// must be valid, and the last one is used.
    pub(super) fn parse<T>(
        &mut self,
        option: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        self.asked.push(option);
        let mut found = None;
        for given in self.options.iter().filter(|o| o.name == option) {
            let value = lexopt::ValueExt::string(given.value.clone()).map_err(usage)?;
            found = Some(read(&value).map_err(|e| named(option, &e))?);
        }
        Ok(found)
    }

    pub(super) fn text(&mut self, option: &'static str) -> Result<Option<String>, Error> {
        self.parse(option, |text| Ok(text.to_string()))
    }

    pub(super) fn number(
        &mut self,
        option: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, Error> {
        self.parse(option, |text| number(text, &range))
    }

    pub(super) fn batch(&mut self) -> Result<Option<usize>, Error> {
        Ok(self
            .number("batch", 1..=MOST_RECORDS as u64)?
            .map(|n| n as usize))
    }

    /// Takes `--device` and `--compute-units`.
    pub(super) fn device(&mut self) -> Result<(DeviceWish, Option<u32>), Error> {
        let device = self
            .parse("device", DeviceWish::parse)?
            .unwrap_or(DeviceWish::Auto);
        let units = self.number("compute-units", 1..=u64::from(u32::MAX))?;
        Ok((device, units.map(|n| n as u32)))
    }

    pub(super) fn sources(&mut self) -> Sources {
        let mut sources = Sources::default();
        sources.folder = self.path("kernels");
        sources
    }

    /// Lets the command `spec` take these arguments, and returns it. Error messages may name the
    /// commands in `all`.
    ///
    /// # Errors
    /// An argument has a wrong value, or the command does not use it.
    pub(super) fn command(
        &mut self,
        spec: &CommandSpec,
        all: &[&CommandSpec],
    ) -> Result<Command, Error> {
        let command = (spec.take)(self)?;
        if let Some(o) = self.options.iter().find(|o| !self.asked.contains(&o.name)) {
            return Err(unused(o.name, spec, all));
        }
        if !self.values.is_empty() {
            let what = if spec.name.starts_with("bench") {
                "NAME"
            } else {
                "FILE"
            };
            return Err(Error::usage(format!("{} takes no {what}", spec.name)));
        }
        let device = self.options.iter().rfind(|o| o.name == "device");
        let on_host = device
            .and_then(|o| o.value.to_str())
            .is_some_and(|d| DeviceWish::parse(d) == Ok(DeviceWish::Host));
        let of_opencl = ["compute-units", "kernels"];
        match of_opencl.into_iter().find(|o| on_host && self.has(o)) {
            Some(option) => Err(Error::usage(format!(
                "--{option} is for OpenCL devices, --device host is none: name one, for example \
                 -d opencl"
            ))),
            None => Ok(command),
        }
    }
}

/// Returns the names of those commands in `all` that use an option.
pub(super) fn users(option: &str, all: &[&CommandSpec]) -> Vec<&'static str> {
    let uses = |spec: &&&CommandSpec| {
        let mut nothing = Arguments::default();
        // The result may be an error, but a command asks for all its options before it reports a
        // missing one.
        let _ = (spec.take)(&mut nothing);
        nothing.asked.contains(&option)
    };
    all.iter().filter(uses).map(|spec| spec.name).collect()
}

/// Returns the error for an option that `spec` does not use. The message names the commands that
/// use it.
fn unused(option: &str, spec: &CommandSpec, all: &[&CommandSpec]) -> Error {
    let mut users = users(option, all);
    users.retain(|user| user.strip_prefix("--") != Some(option));
    Error::usage(match users.is_empty() {
        true => format!("{} does not go together with --{option}", spec.name),
        false => format!(
            "{} does not use --{option}, which is for {}",
            spec.name,
            users.join(", ")
        ),
    })
}

/// Returns the error for an unknown option. It suggests an option that begins with `name`, or one
/// that differs from it in at most a third of the letters.
pub(super) fn unknown<'s>(name: &str, all: impl Iterator<Item = &'s str>) -> Error {
    let rank = |option: &'s str| {
        (
            name.len() < 2 || !option.starts_with(name),
            distance(name, option),
            option,
        )
    };
    let near = all.chain(["help", "version"]).map(rank).min();
    let near = near.filter(|(other, d, option)| !other || 3 * d <= option.len().max(3));
    let meant = near.map_or(String::new(), |(.., option)| {
        format!("; did you mean --{option}?")
    });
    Error::usage(format!("there is no option --{name}{meant}; see --help"))
}

/// Returns the Levenshtein distance of two words, counted in bytes.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

/// Returns the error for a command line that lexopt cannot parse.
pub(super) fn usage(e: lexopt::Error) -> Error {
    Error::usage(format!("{e}; see --help"))
}

/// Returns the error for a wrong value of an option. `e` says what is wrong.
pub(super) fn named(option: &str, e: &str) -> Error {
    Error::usage(format!("--{option}: {e}"))
}

/// Parses a number of bytes. `k`, `M` and `G` stand for 2^10, 2^20 and 2^30.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let bytes = digits
        .parse()
        .ok()
        .and_then(|n: u64| n.checked_mul(1 << shift))
        .filter(|&n| n > 0);
    bytes.ok_or_else(|| {
        format!("expected bytes, with k, M or G behind them or without, found \"{text}\"")
    })
}

/// Parses a number of seconds from 0 to 86400, a day.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|s: &f64| (0.0..=86400.0).contains(s));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("expected seconds from 0 (for ever) to 86400, found \"{text}\""))
}

/// Parses a whole number in `range`.
pub(super) fn number(text: &str, range: &std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|n| range.contains(n))
        .ok_or_else(|| {
            format!(
                "expected a number from {} to {}, found \"{text}\"",
                range.start(),
                range.end()
            )
        })
}
