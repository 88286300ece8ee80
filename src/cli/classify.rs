//! Records in, classes out.

use super::given::Given;
use super::{Command, introduce, request};
use crate::baked::network;
use crate::engine::Engine;
use crate::engine::backed::{BackedEngine, Duties};
use crate::engine::opencl::Wanted;
use crate::engine::select::{self, DeviceWish, Request, Running};
use crate::error::{Error, Kind, say};
use crate::escape;
use crate::observe::report::{self, Facts, ProfileFormat, Totals};
use crate::observe::times::StreamTimes;
use crate::observe::trace::{self, Name, Track};
use crate::registry::EngineKind;
use crate::stream::{
    self, ERROR, Expected, ExpectedScores, FileSource, Format, InputShape, Output, OutputSpec, ResultWriter,
    Rows, Stdout, Stream, Summary,
};
use crate::sys::signal;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

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
        rows: window.map(|window| Rows { window, hop: hop.unwrap_or(window) }),
        keys,
        output: given.parse("output", Output::parse)?,
        expect: given.path("expect"),
        min_accuracy: given.parse("min-accuracy", share)?,
        expect_scores: given.path("expect-scores"),
        tolerance: given.parse("tolerance", tolerance)?,
        mark: given.parse("on-error", on_error)?.unwrap_or(false),
        verify: given.number("verify", 0..=u64::from(u32::MAX))?.unwrap_or(0),
        profile: given.parse("profile", profile)?,
        verbose: given.flag("verbose"),
        request: Request { sources: given.sources(), ..request(given)? },
    };
    if hop.is_some() && c.rows.is_none() {
        return Err(Error::usage("--hop needs --window N"));
    }
    if keys > 0 && c.format.is_some_and(|format| format != Format::Csv) {
        return Err(Error::usage("--key N takes the first fields of lines: it is for CSV"));
    }
    if c.min_accuracy.is_some() && c.expect.is_none() {
        return Err(Error::usage("--min-accuracy needs --expect FILE"));
    }
    if c.tolerance.is_some() && c.expect_scores.is_none() {
        return Err(Error::usage("--tolerance needs --expect-scores FILE"));
    }
    Ok(Command::Classify(c))
}

/// `0.97` or `97%`.
fn share(text: &str) -> Result<f64, String> {
    let (digits, unit) = text.strip_suffix('%').map_or((text, 1.0), |t| (t, 100.0));
    let share = digits.parse::<f64>().ok().map(|v| v / unit).filter(|v| (0.0..=1.0).contains(v));
    share.ok_or_else(|| format!("expected 0 to 1 or 0% to 100%, found \"{text}\""))
}

fn tolerance(text: &str) -> Result<f64, String> {
    let tolerance = text.parse().ok().filter(|t: &f64| t.is_finite() && *t >= 0.0);
    tolerance.ok_or_else(|| format!("expected a number from 0 on, found \"{text}\""))
}

/// `table`, `json` or `trace`, each with `:FILE` or without.
fn profile(text: &str) -> Result<(ProfileFormat, Option<PathBuf>), String> {
    let (format, file) = text.split_once(':').map_or((text, None), |(format, file)| (format, Some(file)));
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
    /// The same with the host behind it, where that has something to do.
    fn backed(&self, request: &Request, running: Running) -> Result<Running, Error> {
        const ALONE: &str = "--verify compares with the host, which runs this alone";
        let alone = running.members.is_empty() && running.plan.engine == EngineKind::Host;
        if alone && self.verify > 0 {
            if request.device == DeviceWish::Host {
                return Err(Error::usage(ALONE));
            }
            say(&format!("{ALONE}: nothing is compared"));
        }
        let duties = Duties {
            verify: self.verify,
            take_over: select::is_auto(request) && request.sources.folder.is_none(),
        };
        if alone || !(duties.take_over || duties.verify > 0) {
            return Ok(running);
        }
        let sizes = (network().width, network().outputs());
        let (asked, device) = (request.clone(), running.device.clone());
        let host = Box::new(move |batch| select::beside(&asked, batch));
        let engine = BackedEngine::new(running.engine, device, host, duties, sizes)?;
        Ok(Running { engine: Box::new(engine), ..running })
    }

    /// Records in, classes out.
    pub(crate) fn run(&self, start: Instant) -> Result<(), Error> {
        let spec = OutputSpec::of(network());
        let output = self.output.unwrap_or(Output::default_for(spec.kind));
        let whole = InputShape { keys: self.keys, ..InputShape::of(network()) };
        let shape = self.rows.map_or(Ok(whole), |rows| whole.of_rows(rows)).map_err(Error::usage)?;
        stream::check(output, &spec).map_err(Error::usage)?;
        if self.mark {
            stream::check_mark(output, &spec).map_err(Error::usage)?;
        }
        let mut expected = self.expect.as_deref().map(|file| Expected::read(file, &spec)).transpose()?;
        let read_scores = |file: &Path| {
            ExpectedScores::read(file, self.tolerance.unwrap_or(ExpectedScores::TOLERANCE), &spec)
        };
        let mut expected_scores = self.expect_scores.as_deref().map(read_scores).transpose()?;
        let wanted = Wanted {
            scores: stream::needs_scores(output, &spec) || expected_scores.is_some() || self.verify > 0,
            classes: stream::needs_argmax(output, &spec, expected.is_some()),
        };
        let format = self.profile.as_ref().map(|p| p.0);
        let track = (format == Some(ProfileFormat::Trace)).then(|| Track::new(start));
        self.request.sources.check()?;
        let request = Request { wanted, timed: format.is_some(), track, ..self.request.clone() };
        let running = select::start(&request)?;
        introduce(self.verbose, &running);
        let mut running = self.backed(&request, running)?;
        let mut times = format.map(|_| StreamTimes { track, ..StreamTimes::default() });
        let mut writer = ResultWriter::new(Stdout::new().map_err(|e| Error::io("stdout", e))?, output, spec);
        if self.files.is_empty() && std::io::stdin().is_terminal() {
            let numbers = shape.width;
            let what = match self.rows {
                None => format!("records of {numbers} numbers"),
                Some(Rows { window, .. }) => format!("rows of {numbers} numbers, {window} of them a record,"),
            };
            say(&format!("reading {what} from the terminal, one a line; --help says more"));
        }
        // Until here a signal ends the program at once: no record was read.
        signal::serve_stops();
        let startup = start.elapsed();
        track.into_iter().for_each(|track| track.span(Name::Text("start-up"), 0, 0, start, startup));
        let Running { engine, device, plan, laid_out_again, phases, members, .. } = &mut running;
        let facts = Facts { device, plan, laid_out_again: *laid_out_again, phases, members };
        let totals = |summary| Totals { startup, elapsed: start.elapsed(), summary };
        // A trace is for the end; who asks on the way reads the table.
        let format = format.filter(|f| *f == ProfileFormat::Json).unwrap_or(ProfileFormat::Table);
        let mut tell = |engine: &mut dyn Engine, times: Option<&StreamTimes>, summary: Summary| {
            let text = report::text(format, facts, engine.measured(), times, totals(summary));
            let _ = std::io::stderr().write_all(text.as_bytes());
        };
        let mut bad = |why: &Error| say(&why.to_string());
        let mut left = |input: &str, rows: usize| {
            let (s, are) = if rows == 1 { ("", "is") } else { ("s", "are") };
            say(&format!("{input}: the last {rows} row{s} {are} part of no record"));
        };
        let stdin = [PathBuf::from("-")];
        let files = if self.files.is_empty() { &stdin[..] } else { &self.files };
        let mut result = Stream {
            engine: engine.as_mut(),
            format: self.format,
            shape,
            writer: &mut writer,
            bad: if self.mark { Some(&mut bad) } else { None },
            left: Some(&mut left),
            expected: expected.as_mut(),
            expected_scores: expected_scores.as_mut(),
            times: times.as_mut(),
            asked: Some(&mut tell),
        }
        .run(files.iter().map(|file| open(file)))
        .map(drop);
        if let (Some((format, file)), Some(times)) = (&self.profile, &times) {
            let marked = writer.marked();
            let summary = Summary { records: times.records, batches: times.batches, marked };
            let text = report::text(*format, facts, engine.measured(), Some(times), totals(summary));
            result = Error::first(result, write_profile(file.as_deref(), &text));
            // On stderr the trace itself says so: who keeps that as a file wants nothing behind it.
            let dropped = track.filter(|_| file.is_some()).map_or(0, Track::dropped);
            if dropped > 0 {
                say(&format!(
                    "the trace is full: its first {} spans were kept, {dropped} dropped",
                    trace::MOST
                ));
            }
        }
        let complete = result.is_ok();
        let (marked, records) = (writer.marked(), writer.records());
        if marked > 0 && !result.as_ref().is_err_and(|e| matches!(e.kind(), Kind::ClosedOutput)) {
            let count = format!("bad records: {marked} of {records}, answered with \"{ERROR}\"");
            if result.as_ref().is_err_and(|e| matches!(e.kind(), Kind::Stopped)) {
                // Every record has its line: the end is a signal's.
                say(&count);
            } else {
                result = Error::first(result, Err(Error::check(count)));
            }
        }
        if complete {
            if let Some(expected) = &expected {
                result = Error::first(result, compare(expected, self.min_accuracy));
            }
            if let Some(scores) = &expected_scores {
                result = Error::first(result, compare_scores(scores));
            }
        }
        result
    }
}

/// `--expect` at the end of the run.
fn compare(expected: &Expected, least: Option<f64>) -> Result<(), Error> {
    let accuracy = expected.finish()?;
    say(&accuracy.to_string());
    match least.filter(|&least| accuracy.fraction() < least) {
        Some(least) => Err(Error::check(format!("accuracy {:.4} is below {least}", accuracy.fraction()))),
        None => Ok(()),
    }
}

/// `--expect-scores` at the end of the run.
fn compare_scores(expected: &ExpectedScores) -> Result<(), Error> {
    let agreement = expected.finish()?;
    if !agreement.complete() {
        return Err(Error::check(agreement.to_string()));
    }
    say(&agreement.to_string());
    Ok(())
}

/// An input by its name; `-` is stdin.
fn open(file: &Path) -> Result<(String, FileSource), Error> {
    let (place, source) = match file.to_str() {
        Some("-") => ("stdin".to_string(), FileSource::stdin()),
        _ => (escape::path(file), FileSource::open(file)),
    };
    source.map(|s| (place.clone(), s)).map_err(|e| Error::io(place, e))
}

fn write_profile(file: Option<&Path>, text: &str) -> Result<(), Error> {
    match file {
        Some(file) => std::fs::write(file, text).map_err(|e| Error::io(escape::path(file), e)),
        None => {
            let _ = std::io::stderr().write_all(text.as_bytes());
            Ok(())
        }
    }
}
