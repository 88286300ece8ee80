//! Records in, classes out.

use super::given::{self, Given};
use super::session::Session;
use super::{Command, request};
use crate::engine::select::Request;
use crate::error::Error;
use crate::observe::report::ProfileFormat;
use crate::stream::{Format, Output, Rows};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a line without the name of a command asks for.
#[derive(Debug)]
pub(crate) struct Classify {
    /// Input files; none is stdin, as is `-`.
    pub(crate) files: Vec<PathBuf>,
    /// Input format, where it is not to be detected.
    pub(crate) format: Option<Format>,
    /// Of a time series: which rows are a record.
    pub(crate) rows: Option<Rows>,
    /// Fields in front of each line's numbers, which go in front of its answer.
    pub(crate) keys: usize,
    /// Output, where it is not the network's default.
    pub(crate) output: Option<Output>,
    /// File of expected classes.
    pub(crate) expect: Option<PathBuf>,
    /// Share of right classes below which the exit code is 1.
    pub(crate) min_accuracy: Option<f64>,
    /// Scores to compare with.
    pub(crate) expect_scores: Option<PathBuf>,
    /// How far they may be off, in units of the larger of 1 and the expected score.
    pub(crate) tolerance: Option<f64>,
    /// Mark bad records and go on.
    pub(crate) mark: bool,
    /// Compare every so many batches with the host; 0: none.
    pub(crate) verify: u64,
    /// How long a call of a driver may take, where that is not the default; zero: for ever.
    pub(crate) timeout: Option<Duration>,
    /// Timing: format, and file unless stderr.
    pub(crate) profile: Option<(ProfileFormat, Option<PathBuf>)>,
    /// Say what runs.
    pub(crate) verbose: bool,
    /// Where it runs.
    pub(crate) request: Request,
}

pub(super) fn take(given: &mut Given) -> Result<Command, Error> {
    let on_error = |text: &str| match text {
        "stop" => Ok(false),
        "mark" => Ok(true),
        other => Err(format!("expected stop or mark, found \"{other}\"")),
    };
    let rows = |n: Option<u64>| n.map(|n| n as usize);
    let window = rows(given.number("window", 1..=u64::from(u32::MAX))?);
    let hop = rows(given.number("hop", 1..=u64::from(u32::MAX))?);
    let keys = rows(given.number("key", 1..=1000)?).unwrap_or(0);
    let c = Classify {
        files: given.values().into_iter().map(PathBuf::from).collect(),
        format: given.parse("format", Format::parse)?,
        rows: window.map(|window| Rows {
            window,
            hop: hop.unwrap_or(window),
        }),
        keys,
        output: given.parse("output", Output::parse)?,
        expect: given.path("expect"),
        min_accuracy: given.parse("min-accuracy", share)?,
        expect_scores: given.path("expect-scores"),
        tolerance: given.parse("tolerance", tolerance)?,
        mark: given.parse("on-error", on_error)?.unwrap_or(false),
        verify: given
            .number("verify", 0..=u64::from(u32::MAX))?
            .unwrap_or(0),
        timeout: given.parse("timeout", given::seconds)?,
        profile: given.parse("profile", profile)?,
        verbose: given.flag("verbose"),
        request: Request {
            sources: given.sources(),
            ..request(given)?
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

/// `0.97` or `97%`.
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

/// `table`, `json` or `trace`, each with `:FILE` or without.
fn profile(text: &str) -> Result<(ProfileFormat, Option<PathBuf>), String> {
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
        file => Ok((format, file.map(PathBuf::from))),
    }
}

impl Classify {
    /// Records in, classes out.
    pub(crate) fn run(self, start: Instant) -> Result<(), Error> {
        Session::new(self, start)?.run()
    }
}
