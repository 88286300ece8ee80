//! The options of a line: gathered first, then taken by the command that the line asks for. What it
//! does not take is refused, so none can be ignored.

use super::Command;
use crate::engine::select::DeviceWish;
use crate::engine::sources::Sources;
use crate::error::Error;
use crate::ir::plan::MOST_RECORDS;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What follows an option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    Nothing,
    Value,
    /// `--profile=json`; `--profile` alone has this value.
    ValueOr(&'static str),
}

/// An option: long name, letter, what follows.
pub(super) type Spec = (&'static str, Option<char>, Follows);

/// A command as lines ask for it: its name in messages, and what takes its options. `take` asks for
/// everything that it uses, whether it is there or not: that is how messages know who uses an
/// option.
pub(super) struct Form {
    pub(super) name: &'static str,
    pub(super) take: fn(&mut Given) -> Result<Command, Error>,
}

/// What a line has.
#[derive(Default)]
pub(super) struct Given {
    /// Long names with their values, in order.
    pub(super) options: Vec<(&'static str, OsString)>,
    /// What is no option.
    pub(super) values: Vec<OsString>,
    /// What the command asked for.
    asked: Vec<&'static str>,
}

/// [`Given::asked`] of what is no option.
const VALUES: &str = "";

impl Given {
    /// Whether `option` is there, without taking it.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o.0 == option)
    }

    /// Says of each option that has several values which one holds.
    pub(super) fn repeated(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (i, (option, value)) in self.options.iter().enumerate() {
            let more = || self.options[i + 1..].iter().filter(|o| o.0 == *option);
            let before = self.options[..i].iter().any(|o| o.0 == *option);
            if let (false, true, Some((_, last))) =
                (before, more().any(|o| o.1 != *value), more().next_back())
            {
                notes.push(format!(
                    "--{option} is there more than once: the last one holds, {}",
                    last.to_string_lossy()
                ));
            }
        }
        notes
    }

    /// Takes an option without a value.
    pub(super) fn flag(&mut self, option: &'static str) -> bool {
        self.asked.push(option);
        self.has(option)
    }

    /// Takes what is no option.
    pub(super) fn values(&mut self) -> Vec<OsString> {
        self.asked.push(VALUES);
        std::mem::take(&mut self.values)
    }

    /// Takes a path.
    pub(super) fn path(&mut self, option: &'static str) -> Option<PathBuf> {
        self.asked.push(option);
        self.options
            .iter()
            .rfind(|o| o.0 == option)
            .map(|o| o.1.clone().into())
    }

    /// Takes a value that `read` understands. Where it is given twice all are read, and the last
    /// one holds.
    pub(super) fn parse<T>(
        &mut self,
        option: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let mut found = None;
        self.each(option, &mut |value| {
            found = Some(read(value)?);
            Ok(())
        })?;
        Ok(found)
    }

    fn each(
        &mut self,
        option: &'static str,
        read: &mut dyn FnMut(&str) -> Result<(), String>,
    ) -> Result<(), Error> {
        self.asked.push(option);
        self.options
            .iter()
            .filter(|o| o.0 == option)
            .try_for_each(|(_, value)| {
                let value = lexopt::ValueExt::string(value.clone()).map_err(usage)?;
                read(&value).map_err(|e| named(option, &e))
            })
    }

    /// Takes a text.
    pub(super) fn text(&mut self, option: &'static str) -> Result<Option<String>, Error> {
        self.parse(option, |text| Ok(text.to_string()))
    }

    /// Takes a number.
    pub(super) fn number(
        &mut self,
        option: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, Error> {
        self.parse(option, |text| number(text, &range))
    }

    /// Takes `--batch`.
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

    /// Takes `--kernels`.
    pub(super) fn sources(&mut self) -> Sources {
        let mut sources = Sources::default();
        sources.folder = self.path("kernels");
        sources
    }

    /// The command of `form`, which has a use for everything that is given.
    pub(super) fn command(&mut self, form: &Form, all: &[&Form]) -> Result<Command, Error> {
        let command = (form.take)(self)?;
        if let Some((option, _)) = self.options.iter().find(|o| !self.asked.contains(&o.0)) {
            return Err(unused(option, form, all));
        }
        if !self.values.is_empty() {
            let what = if form.name.starts_with("bench") {
                "NAME"
            } else {
                "FILE"
            };
            return Err(Error::usage(format!("{} takes no {what}", form.name)));
        }
        let device = self
            .options
            .iter()
            .rfind(|o| o.0 == "device")
            .and_then(|o| o.1.to_str());
        if device.is_some_and(|d| DeviceWish::parse(d) == Ok(DeviceWish::Host)) {
            if let Some(option) = ["compute-units", "kernels"]
                .into_iter()
                .find(|o| self.has(o))
            {
                return Err(Error::usage(format!(
                    "--{option} is for OpenCL devices, --device host is none: name one, for \
                     example -d opencl"
                )));
            }
        }
        Ok(command)
    }
}

/// The commands that use an option.
pub(super) fn users(option: &str, all: &[&Form]) -> Vec<&'static str> {
    let uses = |form: &&&Form| {
        let mut nothing = Given::default();
        // What is missing is no matter: it asks for everything first.
        let _ = (form.take)(&mut nothing);
        nothing.asked.contains(&option)
    };
    all.iter().filter(uses).map(|form| form.name).collect()
}

/// `form` has no use for an option.
fn unused(option: &str, form: &Form, all: &[&Form]) -> Error {
    let mut users = users(option, all);
    users.retain(|user| user.strip_prefix("--") != Some(option));
    Error::usage(match users.is_empty() {
        true => format!("{} does not go together with --{option}", form.name),
        false => format!(
            "{} does not use --{option}, which is for {}",
            form.name,
            users.join(", ")
        ),
    })
}

/// There is no option of this name; says which one of all it resembles: it begins so, or a third of
/// the letters differ.
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

/// Letters to insert, leave out or change between two words.
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

/// What lexopt found wrong.
pub(super) fn usage(e: lexopt::Error) -> Error {
    Error::usage(format!("{e}; see --help"))
}

/// What is wrong with the value of an option.
pub(super) fn named(option: &str, e: &str) -> Error {
    Error::usage(format!("--{option}: {e}"))
}

/// A number of bytes: `k`, `M` and `G` stand for 2^10, 2^20 and 2^30.
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

/// Seconds, a day at most.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|s: &f64| (0.0..=86400.0).contains(s));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("expected seconds from 0 (for ever) to 86400, found \"{text}\""))
}

/// A number of `range`.
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
