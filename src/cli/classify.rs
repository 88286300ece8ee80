//! The options of the program's main command, which classifies records.

use super::arguments::{self, Arguments};
use super::session::Session;
use super::{Command, request};
use crate::engine::select::Request;
use crate::error::Error;
use crate::observe::report::ProfileFormat;
use crate::stream::{AnswerFormat, Format, SeriesRows};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Classify {
    /// The input files. `-` means stdin, and so does an empty list.
    pub(crate) files: Vec<PathBuf>,
    /// The format of the input. With `None` the program detects it.
    pub(crate) format: Option<Format>,
    /// The window and hop that cut a time series into records. `None` if the input has one record a
    /// row.
    pub(crate) rows: Option<SeriesRows>,
    /// The number of fields at the start of each input line that are copied to its answer.
    pub(crate) keys: usize,
    /// The format of the answers. `None` for the network's default.
    pub(crate) output: Option<AnswerFormat>,
    /// The file with the expected class of each record.
    pub(crate) expect: Option<PathBuf>,
    /// The value of `--min-accuracy`, from 0 to 1. An accuracy below it makes the exit code 1.
    pub(crate) min_accuracy: Option<f64>,
    /// The file with the expected scores of each record.
    pub(crate) expect_scores: Option<PathBuf>,
    /// The allowed error of a score, relative to max(1, |expected|). `None` for the default.
    pub(crate) tolerance: Option<f64>,
    /// True to answer a bad record with an error mark and go on. False to stop there.
    pub(crate) mark: bool,
    /// The value N of `--verify`. The host recomputes the first of each N batches and compares the
    /// device's answers with its own. 0 means no comparison.
    pub(crate) verify: u64,
    /// The time limit of a call into the driver. Zero means no limit, `None` means the default.
    pub(crate) timeout: Option<Duration>,
    pub(crate) profile: Option<ProfileOption>,
    pub(crate) verbose: bool,
    pub(crate) request: Request,
}

/// The value of `--profile`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProfileOption {
    pub(crate) format: ProfileFormat,
    /// The file that `--profile` writes to, or None for stderr.
    pub(crate) file: Option<PathBuf>,
}

pub(super) fn take(arguments: &mut Arguments) -> Result<Command, Error> {
    let on_error = |text: &str| match text {
        "stop" => Ok(false),
        "mark" => Ok(true),
        other => Err(format!("expected stop or mark, found \"{other}\"")),
    };
    let rows = |n: Option<u64>| n.map(|n| n as usize);
    let window = rows(arguments.number("window", 1..=u64::from(u32::MAX))?);
    let hop = rows(arguments.number("hop", 1..=u64::from(u32::MAX))?);
    let keys = rows(arguments.number("key", 1..=1000)?).unwrap_or(0);
    let c = Classify {
        files: arguments.values().into_iter().map(PathBuf::from).collect(),
        format: arguments.parse("format", Format::parse)?,
        rows: window.map(|window| SeriesRows {
            window,
            hop: hop.unwrap_or(window),
        }),
        keys,
        output: arguments.parse("output", AnswerFormat::parse)?,
        expect: arguments.path("expect"),
        min_accuracy: arguments.parse("min-accuracy", share)?,
        expect_scores: arguments.path("expect-scores"),
        tolerance: arguments.parse("tolerance", tolerance)?,
        mark: arguments.parse("on-error", on_error)?.unwrap_or(false),
        verify: arguments
            .number("verify", 0..=u64::from(u32::MAX))?
            .unwrap_or(0),
        timeout: arguments.parse("timeout", arguments::seconds)?,
        profile: arguments.parse("profile", profile)?,
        verbose: arguments.flag("verbose"),
        request: Request {
            sources: arguments.sources(),
            ..request(arguments)?
        },
    };
    if hop.is_some() && c.rows.is_none() {
        return Err(Error::usage("--hop needs --window N"));
    }
    if keys > 0 && c.format.is_some_and(|format| format != Format::Csv) {
        return Err(Error::usage(
            "--key N takes the first fields of lines: it is for CSV",
        ));
    }
    if c.min_accuracy.is_some() && c.expect.is_none() {
        return Err(Error::usage("--min-accuracy needs --expect FILE"));
    }
    if c.tolerance.is_some() && c.expect_scores.is_none() {
        return Err(Error::usage("--tolerance needs --expect-scores FILE"));
    }
    Ok(Command::Classify(Box::new(c)))
}

/// Parses a share from 0 to 1 such as `0.97` or `97%`.
fn share(text: &str) -> Result<f64, String> {
    let (digits, unit) = text.strip_suffix('%').map_or((text, 1.0), |t| (t, 100.0));
    let share = digits
        .parse::<f64>()
        .ok()
        .map(|v| v / unit)
        .filter(|v| (0.0..=1.0).contains(v));
    share.ok_or_else(|| format!("expected 0 to 1 or 0% to 100%, found \"{text}\""))
}

fn tolerance(text: &str) -> Result<f64, String> {
    let tolerance = text
        .parse()
        .ok()
        .filter(|t: &f64| t.is_finite() && *t >= 0.0);
    tolerance.ok_or_else(|| format!("expected a number from 0 on, found \"{text}\""))
}

/// Parses the value of `--profile`: `table`, `json` or `trace`, optionally followed by `:FILE`.
fn profile(text: &str) -> Result<ProfileOption, String> {
    let (format, file) = text
        .split_once(':')
        .map_or((text, None), |(format, file)| (format, Some(file)));
    let format = match format {
        "table" => ProfileFormat::Table,
        "json" => ProfileFormat::Json,
        "trace" => ProfileFormat::Trace,
        other => return Err(format!("expected table, json or trace, found \"{other}\"")),
    };
    match file {
        Some("") => Err("a file name is missing after the colon".into()),
        file => Ok(ProfileOption {
            format,
            file: file.map(PathBuf::from),
        }),
    }
}

impl Classify {
    pub(crate) fn run(self, start: Instant) -> Result<(), Error> {
        Session::new(self, start)?.run()
    }
}
