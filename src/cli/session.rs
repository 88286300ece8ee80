//! Runs the records of the inputs through an engine. If a driver hangs, the run still ends.

use super::classify::{Classify, ProfileOption};
use super::{end, introduce, watch};
use crate::baked::network;
use crate::engine::Engine;
use crate::engine::backed::{BackedEngine, Duties, Kept};
use crate::engine::opencl::Wanted;
use crate::engine::select::{self, DeviceWish, Request, Running};
use crate::error::{Error, ErrorKind, say};
use crate::escape;
use crate::observe::report::{self, Facts, Measurements, ProfileFormat, Totals};
use crate::observe::times::StreamTimes;
use crate::observe::trace::{self, Name, Track};
use crate::registry::EngineKind;
use crate::stream::{
    self, AnswerFormat, ERROR, ExpectedClasses, ExpectedScores, FileSource, InputShape, OutputSpec,
    Pipeline, ResultWriter, SeriesRows, Stdout, Stream, Summary,
};
use crate::sys::{signal, watchdog};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The inputs of a run, each with its name. An input is opened when the one before it has ended.
type OpenedInputs = Box<dyn Iterator<Item = Result<(String, FileSource), Error>> + Send>;

/// A run of the command that classifies records. If a driver hangs, the calling thread hangs too,
/// and the watchdog's thread finishes the run. So a session holds everything that this needs, and
/// lives as long as the program.
pub(super) struct Session {
    classify: Classify,
    /// The request of the command line. It also says which scores, classes and times the engine
    /// must provide for the outputs.
    request: Request,
    start: Instant,
    /// The number of values in a record, or in a row of a time series.
    row_width: usize,
    pipeline: Mutex<Pipeline<'static, 'static, Stdout, FileSource, OpenedInputs>>,
    /// The engine that runs the records. `None` until the engine has started.
    started: Mutex<Option<StartedEngine>>,
    /// The result of the run, including errors of profile and comparisons. `None` until it is
    /// known.
    end: Mutex<Option<Result<(), Error>>>,
}

#[derive(Clone)]
struct StartedEngine {
    facts: Facts<'static>,
    took: Duration,
    /// Copies of the inputs of all unanswered batches. If the device hangs, the host computes these
    /// batches again. `None` if the host does not take over.
    kept: Option<Arc<Kept>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn leaked<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

impl Session {
    /// Prepares a run. It reads the files of expected answers, but it reads no record and does not
    /// call OpenCL.
    pub(super) fn new(classify: Classify, start: Instant) -> Result<&'static Session, Error> {
        let spec = OutputSpec::of(network());
        let output = classify
            .output
            .unwrap_or(AnswerFormat::default_for(spec.kind));
        let shape = input_shape(&classify).map_err(Error::usage)?;
        stream::check(output, &spec).map_err(Error::usage)?;
        if classify.mark {
            stream::check_mark(output, &spec).map_err(Error::usage)?;
        }
        let expected = match &classify.expect {
            Some(file) => Some(ExpectedClasses::read(file, &spec)?),
            None => None,
        };
        let expected_scores = match &classify.expect_scores {
            Some(file) => {
                let tolerance = classify.tolerance.unwrap_or(ExpectedScores::TOLERANCE);
                Some(ExpectedScores::read(file, tolerance, &spec)?)
            }
            None => None,
        };
        let wanted = Wanted {
            scores: stream::needs_scores(output, &spec)
                || expected_scores.is_some()
                || classify.verify > 0,
            classes: stream::needs_argmax(output, &spec, expected.is_some()),
        };
        let format = classify.profile.as_ref().map(|p| p.format);
        let track = (format == Some(ProfileFormat::Trace)).then(|| Track::new(start));
        classify.request.sources.check()?;
        let request = Request {
            wanted,
            timed: format.is_some(),
            track,
            ..classify.request.clone()
        };
        let files = match &classify.files[..] {
            [] => vec![PathBuf::from("-")],
            files => files.to_vec(),
        };
        let inputs: OpenedInputs = Box::new(files.into_iter().map(|file| open(&file)));
        let stdout = Stdout::new().map_err(|e| Error::io("stdout", e))?;
        let report_bad = |why: &Error| say(&why.to_string());
        let stream = Stream {
            format: classify.format,
            shape,
            writer: leaked(ResultWriter::new(stdout, output, spec)),
            bad: classify.mark.then(|| leaked(report_bad) as _),
            left: Some(leaked(report_left)),
            expected: expected.map(leaked),
            expected_scores: expected_scores.map(leaked),
            times: format.map(|_| {
                leaked(StreamTimes {
                    track,
                    ..StreamTimes::default()
                })
            }),
            asked: None,
        };
        Ok(leaked(Session {
            request,
            start,
            row_width: shape.width,
            pipeline: Mutex::new(stream.over(inputs)),
            started: Mutex::new(None),
            end: Mutex::new(None),
            classify,
        }))
    }

    /// Starts an engine, and answers all records of the inputs.
    pub(super) fn run(&'static self) -> Result<(), Error> {
        self.classify
            .timeout
            .into_iter()
            .for_each(watchdog::set_limit);
        if self.request.device != DeviceWish::Host {
            watch(|ticks| end(self.hung(ticks)))?;
        }
        self.go(watchdog::call(|| select::start(&self.request))?)
    }

    /// Returns true if the host engine takes over from a device that fails.
    fn takes_over(&self) -> bool {
        select::is_auto(&self.request) && self.request.sources.folder.is_none()
    }

    /// Wraps a device's engine if the host has to take over from the device or to verify its
    /// results. Also returns the copies of inputs that are kept for taking over. They are `None` if
    /// the host does not take over.
    fn backed(&self, running: Running) -> Result<(Running, Option<Arc<Kept>>), Error> {
        const ALONE: &str = "--verify compares with the host, which runs this alone";
        let alone = running.members.is_empty() && running.plan.engine == EngineKind::Host;
        if alone {
            watchdog::stop();
        }
        let verify = self.classify.verify;
        if alone && verify > 0 {
            if self.request.device == DeviceWish::Host {
                return Err(Error::usage(ALONE));
            }
            say(&format!("{ALONE}: nothing is compared"));
        }
        let duties = Duties {
            verify,
            take_over: self.takes_over(),
            tolerance: network().tolerance,
        };
        if alone || !(duties.take_over || duties.verify > 0) {
            return Ok((running, None));
        }
        let sizes = (network().width, network().outputs());
        let (asked, device) = (self.request.clone(), running.device.clone());
        let host = Box::new(move |batch| select::beside(&asked, batch));
        let engine = BackedEngine::new(
            running.engine,
            device,
            running.diagnose,
            host,
            duties,
            sizes,
        )?;
        let kept = duties.take_over.then(|| engine.kept());
        // If the answers of device and host differ, the backed engine itself finds the wrong step.
        // So this function need not, and returns an empty text.
        let diagnose = Box::new(|_: &[f32]| String::new());
        Ok((
            Running {
                engine: Box::new(engine),
                diagnose,
                ..running
            },
            kept,
        ))
    }

    /// Runs all records through a started engine, then writes the reports of the run.
    fn go(&'static self, running: Running) -> Result<(), Error> {
        introduce(self.classify.verbose, &running);
        let (running, kept) = self.backed(running)?;
        if self.classify.files.is_empty() && std::io::stdin().is_terminal() {
            let numbers = self.row_width;
            let what = match self.classify.rows {
                None => format!("records of {numbers} numbers"),
                Some(SeriesRows { window, .. }) => {
                    format!("rows of {numbers} numbers, {window} of them a record,")
                }
            };
            say(&format!(
                "reading {what} from the terminal, one a line; --help says more"
            ));
        }
        // So far no record was read, and a signal ended the program at once. From here on, a signal
        // ends the run in order.
        signal::serve_stops();
        let took = self.start.elapsed();
        self.request
            .track
            .iter()
            .for_each(|t| t.span(Name::Text("start-up"), 0, 0, self.start, took));
        let Running {
            mut engine,
            device,
            plan,
            laid_out_again,
            phases,
            members,
            ..
        } = running;
        let (device, plan, phases, members) = leaked((device, plan, phases, members));
        let facts = Facts {
            device,
            plan,
            laid_out_again,
            phases,
            members,
        };
        let started = StartedEngine { facts, took, kept };
        // SIGUSR1 prints a table of times. It prints JSON only if `--profile` also asks for JSON.
        let wanted = self.classify.profile.as_ref().map(|p| p.format);
        let format = wanted
            .filter(|f| *f == ProfileFormat::Json)
            .unwrap_or(ProfileFormat::Table);
        let tell = move |engine: &mut dyn Engine, times: Option<&StreamTimes>, summary: Summary| {
            let totals = Totals {
                startup: took,
                elapsed: self.start.elapsed(),
                summary,
            };
            let text = report::text(format, facts, engine.measured(), times, totals);
            let _ = std::io::stderr().write_all(text.as_bytes());
        };
        lock(&self.pipeline).stream.asked = Some(leaked(tell));
        *lock(&self.started) = Some(started.clone());
        let result = stream::run(&self.pipeline, engine.as_mut());
        let result = self.finish(result.map(drop), &started, engine.measured());
        *lock(&self.end) = Some(result);
        // If a driver hangs while the engine is closed, the watchdog returns the result stored in
        // `end`.
        watchdog::call(|| drop(engine));
        lock(&self.end).take().unwrap_or(Ok(()))
    }

    /// Ends a run in which a driver has not answered for `ticks` ticks of the watchdog.
    #[cold]
    fn hung(&'static self, ticks: u32) -> Result<(), Error> {
        const ADVICE: &str = "the device or its driver hangs; --timeout allows more";
        let silence = watchdog::silence(ticks);
        let started = lock(&self.started).clone();
        let device = started
            .as_ref()
            .map_or("OpenCL", |started| started.facts.device);
        if let Some(result) = lock(&self.end).take() {
            say(&format!(
                "{device}: {silence} at its end, after all results"
            ));
            return result;
        }
        let Some(started) = started else {
            let silence = format!("{device}: {silence} at start ({})", watchdog::work());
            if !self.takes_over() {
                return Err(Error::device(format!("{silence}: {ADVICE}")));
            }
            say(&format!("{silence}; running on the host instead"));
            return self.go(select::start(&Request {
                device: DeviceWish::Host,
                ..self.request.clone()
            })?);
        };
        let error = || Error::device(format!("{device}: {silence}: {ADVICE}"));
        let (result, measured) = match started.kept.as_ref().map(|kept| (kept, kept.host())) {
            Some((kept, Ok(mut host))) => {
                let first = lock(&self.pipeline).done() + 1;
                say(&format!(
                    "{device}: {silence}; from record {first} of the run on the host computes"
                ));
                let fill = |host: &mut dyn Engine, slot, records| kept.fill(host, slot, records);
                (
                    stream::resume(&self.pipeline, host.as_mut(), fill).map(drop),
                    host.measured(),
                )
            }
            Some((_, Err(e))) => (
                Err(ErrorKind::Both([error(), e]).into()),
                Measurements::default(),
            ),
            None => (Err(error()), Measurements::default()),
        };
        if result.is_err() {
            // Writes the answers of earlier records. An error of stdout is ignored, because the
            // device's error matters more.
            let _ = lock(&self.pipeline).stream.writer.flush();
        }
        self.finish(result, &started, measured)
    }

    /// Writes the profile and compares the answers with the expected ones. Returns `result`, or
    /// else the first error of profile and comparison.
    fn finish(
        &self,
        mut result: Result<(), Error>,
        started: &StartedEngine,
        measured: Measurements,
    ) -> Result<(), Error> {
        let p = &mut *lock(&self.pipeline);
        let Stream {
            writer,
            expected,
            expected_scores,
            times,
            ..
        } = &p.stream;
        let (marked, records) = (writer.marked(), writer.records());
        if let (Some(ProfileOption { format, file }), Some(times)) = (&self.classify.profile, times)
        {
            let summary = Summary {
                records: times.records,
                batches: times.batches,
                marked,
            };
            let totals = Totals {
                startup: started.took,
                elapsed: self.start.elapsed(),
                summary,
            };
            let text = report::text(*format, started.facts, measured, Some(times), totals);
            result = Error::first(result, write_profile(file.as_deref(), &text));
            // The message is printed only if the trace goes to a file. A trace on stderr must be
            // the last text there. It contains the number of dropped spans itself.
            let dropped = self
                .request
                .track
                .filter(|_| file.is_some())
                .map_or(0, Track::dropped);
            if dropped > 0 {
                say(&format!(
                    "the trace is full: its first {} spans were kept, {dropped} dropped",
                    trace::MOST
                ));
            }
        }
        let complete = result.is_ok();
        if marked > 0
            && !result
                .as_ref()
                .is_err_and(|e| matches!(e.kind(), ErrorKind::ClosedOutput))
        {
            let count = format!("bad records: {marked} of {records}, answered with \"{ERROR}\"");
            if result
                .as_ref()
                .is_err_and(|e| matches!(e.kind(), ErrorKind::Stopped))
            {
                // After a signal, marked records are no error: the program ends by that signal.
                say(&count);
            } else {
                result = Error::first(result, Err(Error::check(count)));
            }
        }
        if complete {
            if let Some(expected) = expected {
                result = Error::first(result, compare(expected, self.classify.min_accuracy));
            }
            if let Some(scores) = expected_scores {
                result = Error::first(result, compare_scores(scores));
            }
        }
        result
    }
}

/// Returns the shape of a record in the input, with the command line's window and keys.
fn input_shape(classify: &Classify) -> Result<InputShape<'static>, String> {
    let record = InputShape {
        keys: classify.keys,
        ..InputShape::of(network())
    };
    match classify.rows {
        Some(rows) => record.of_rows(rows),
        None => Ok(record),
    }
}

/// Reports on stderr that the last rows of an input are too few for another record.
fn report_left(input: &str, rows: usize) {
    let (s, are) = if rows == 1 { ("", "is") } else { ("s", "are") };
    say(&format!(
        "{input}: the last {rows} row{s} {are} part of no record"
    ));
}

/// Reports the accuracy against `--expect` on stderr. Returns an error if it is below `least`.
fn compare(expected: &ExpectedClasses, least: Option<f64>) -> Result<(), Error> {
    let accuracy = expected.finish()?;
    say(&accuracy.to_string());
    match least.filter(|&least| accuracy.fraction() < least) {
        Some(least) => Err(Error::check(format!(
            "accuracy {:.4} is below {least}",
            accuracy.fraction()
        ))),
        None => Ok(()),
    }
}

/// Reports the comparison with `--expect-scores` on stderr. Returns an error if a score is beyond
/// the tolerance.
fn compare_scores(expected: &ExpectedScores) -> Result<(), Error> {
    let agreement = expected.finish()?;
    if !agreement.complete() {
        return Err(Error::check(agreement.to_string()));
    }
    say(&agreement.to_string());
    Ok(())
}

/// Opens an input file. Also returns the name that messages use for it. `-` is stdin.
fn open(file: &Path) -> Result<(String, FileSource), Error> {
    let (place, source) = match file.to_str() {
        Some("-") => ("stdin".to_string(), FileSource::stdin()),
        _ => (escape::path(file), FileSource::open(file)),
    };
    source
        .map(|s| (place.clone(), s))
        .map_err(|e| Error::io(place, e))
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
