//! The program: `main` chooses the action, each action is a function below it.

use mortonnet::baked::{self, NETWORK};
use mortonnet::cl;
use mortonnet::cli::info;
use mortonnet::cli::{Action, BENCH_HELP, HELP, Options, ProfileFormat, TUNE_HELP};
use mortonnet::engine::Engine;
use mortonnet::engine::opencl::Wanted;
use mortonnet::engine::select::{self, Request, Running};
use mortonnet::engine::selftest;
use mortonnet::error::{Error, say};
use mortonnet::escape;
use mortonnet::lab;
use mortonnet::observe::report::{self, Facts, Totals};
use mortonnet::observe::times::StreamTimes;
use mortonnet::observe::trace;
use mortonnet::observe::trace::{Name, Track};
use mortonnet::stream::{
    self, ERROR, Expected, ExpectedScores, FileSource, InputShape, Output, OutputSpec, ResultWriter, Stdout,
    Stream, Summary,
};
use mortonnet::sys::signal;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let start = Instant::now();
    let result = Options::parse(std::env::args_os().skip(1)).and_then(|options| match options.action {
        Action::Classify => classify(&options, start),
        Action::SelfTest => self_test(&options),
        Action::ListDevices => list_devices(options.verbose),
        Action::Info => {
            print(&escape::lines(&info::page(&request(&options, Wanted { scores: true, classes: true }))))
        }
        Action::Bench => options.bench.as_ref().map_or(Ok(()), |b| lab::run(b, &mut |text| print(text))),
        Action::BenchHelp => print(BENCH_HELP),
        Action::Tune => options.tune.as_ref().map_or(Ok(()), |t| lab::tune::run(t, &mut |text| print(text))),
        Action::TuneHelp => print(TUNE_HELP),
        Action::Help => print(HELP),
        Action::Version => print(&format!("{}\n", info::version())),
    });
    match (result, signal::stop()) {
        // Whoever asked for the end sees that it came of that: a shell ends its loop, systemd counts it as clean.
        (Ok(()) | Err(Error::ClosedOutput | Error::Stopped), Some(stop)) => signal::die(stop),
        (Ok(()), None) => ExitCode::SUCCESS,
        (Err(e), _) => {
            if !matches!(e, Error::ClosedOutput) {
                say(&e.to_string());
            }
            ExitCode::from(e.exit_code())
        }
    }
}

/// Records in, classes out.
fn classify(options: &Options, start: Instant) -> Result<(), Error> {
    signal::serve_questions().map_err(|e| Error::io("signals", e))?;
    let spec = OutputSpec::of(&NETWORK);
    let output = options.output.unwrap_or(Output::default_for(spec.kind));
    stream::check(output, &spec).map_err(Error::Usage)?;
    if options.mark {
        stream::check_mark(output, &spec).map_err(Error::Usage)?;
    }
    let mut expected = options.expect.as_deref().map(|file| Expected::read(file, &spec)).transpose()?;
    let read_scores = |file: &Path| ExpectedScores::read(file, options.tolerance(), &spec);
    let mut expected_scores = options.expect_scores.as_deref().map(read_scores).transpose()?;
    let wanted = Wanted {
        scores: stream::needs_scores(output, &spec) || expected_scores.is_some(),
        classes: stream::needs_argmax(output, &spec, expected.is_some()),
    };
    let format = options.profile.as_ref().map(|p| p.0);
    let track = (format == Some(ProfileFormat::Trace)).then(|| Track::new(start));
    let mut running = start_engine(options, wanted, track)?;
    let mut times = format.map(|_| StreamTimes { track, ..StreamTimes::default() });
    let mut writer = ResultWriter::new(Stdout::new().map_err(|e| Error::io("stdout", e))?, output, spec);
    if options.files.is_empty() && std::io::stdin().is_terminal() {
        say(&format!(
            "reading records of {} numbers from the terminal, one a line; --help says more",
            NETWORK.width
        ));
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
    let stdin = [PathBuf::from("-")];
    let files = if options.files.is_empty() { &stdin[..] } else { &options.files };
    let mut result = Stream {
        engine: engine.as_mut(),
        format: options.format,
        shape: InputShape::of(&NETWORK),
        writer: &mut writer,
        bad: if options.mark { Some(&mut bad) } else { None },
        expected: expected.as_mut(),
        expected_scores: expected_scores.as_mut(),
        times: times.as_mut(),
        asked: Some(&mut tell),
    }
    .run(files.iter().map(|file| open(file)))
    .map(drop);
    if let (Some((format, file)), Some(times)) = (&options.profile, &times) {
        let marked = writer.marked();
        let summary = Summary { records: times.records, batches: times.batches, marked };
        let text = report::text(*format, facts, engine.measured(), Some(times), totals(summary));
        result = Error::first(result, write_profile(file.as_deref(), &text));
        // On stderr the trace itself says so: who keeps that as a file wants nothing behind it.
        let dropped = track.filter(|_| file.is_some()).map_or(0, Track::dropped);
        if dropped > 0 {
            say(&format!("the trace is full: its first {} spans were kept, {dropped} dropped", trace::MOST));
        }
    }
    let complete = result.is_ok();
    let (marked, records) = (writer.marked(), writer.records());
    if marked > 0 && !matches!(result, Err(Error::ClosedOutput)) {
        let count = format!("bad records: {marked} of {records}, answered with \"{ERROR}\"");
        if matches!(result, Err(Error::Stopped)) {
            // Every record has its line: the end is a signal's.
            say(&count);
        } else {
            result = Error::first(result, Err(Error::Check(count)));
        }
    }
    if complete {
        if let Some(expected) = &expected {
            result = Error::first(result, compare(expected, options.min_accuracy));
        }
        if let Some(scores) = &expected_scores {
            result = Error::first(result, compare_scores(scores));
        }
    }
    result
}

/// `--expect` at the end of the run.
fn compare(expected: &Expected, least: Option<f64>) -> Result<(), Error> {
    let accuracy = expected.finish()?;
    say(&accuracy.to_string());
    match least.filter(|&least| accuracy.fraction() < least) {
        Some(least) => Err(Error::Check(format!("accuracy {:.4} is below {least}", accuracy.fraction()))),
        None => Ok(()),
    }
}

/// `--expect-scores` at the end of the run.
fn compare_scores(expected: &ExpectedScores) -> Result<(), Error> {
    let agreement = expected.finish()?;
    if !agreement.complete() {
        return Err(Error::Check(agreement.to_string()));
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

/// Runs the golden vectors.
fn self_test(options: &Options) -> Result<(), Error> {
    let wanted = Wanted { scores: true, classes: true };
    options.sources.check()?;
    let mut failed: Vec<String> = Vec::new();
    // Each device by itself: one that fails does not hide the others.
    select::each(&request(options, wanted), |running| {
        let tested = running.and_then(|mut running| {
            introduce(options, &running);
            let report = selftest::run(running.engine.as_mut(), &NETWORK, &baked::golden())?;
            Ok((format!("{}, plan {}: {report}", running.device, running.plan.name), report.passed()))
        });
        match tested {
            Ok((line, true)) => return print(&format!("passed: {line}\n")),
            Ok((line, false)) => {
                failed.push(format!("self-test failed: {line}; do not trust this device with this plan"));
            }
            Err(e @ Error::Usage(_)) => return Err(e),
            Err(e) => failed.push(e.to_string()),
        }
        Ok(())
    })?;
    if failed.is_empty() { Ok(()) } else { Err(Error::Check(failed.join("\n"))) }
}

/// The OpenCL devices; `all` that plans depend on.
fn list_devices(all: bool) -> Result<(), Error> {
    // Where there is nothing to list, the page says why, and the exit code is 1.
    let (page, failed) = match cl::Library::open() {
        Ok(library) => {
            let devices = cl::devices(library)?;
            let failed = devices.devices.is_empty().then_some("no OpenCL device");
            (format!("{}\n{}\n", library.path(), select::listing(&devices, all)), failed)
        }
        Err(e) => (format!("{e}\n"), Some("no usable OpenCL library")),
    };
    print(&escape::lines(&page))?;
    failed.map_or(Ok(()), |what| Err(Error::device(what)))
}

fn start_engine(options: &Options, wanted: Wanted, track: Option<Track>) -> Result<Running, Error> {
    options.sources.check()?;
    let running = select::start(&Request { track, ..request(options, wanted) })?;
    introduce(options, &running);
    Ok(running)
}

/// Warnings, and what runs if that is wanted.
fn introduce(options: &Options, running: &Running) {
    running.warnings.iter().for_each(|warning| say(warning));
    if options.verbose {
        say(&running.device);
        running.why.iter().for_each(|line| say(line));
        if running.laid_out_again > 0 {
            let plan = if running.members.is_empty() { &*running.plan.name } else { "of each device" };
            say(&format!("{} constants were laid out again for plan {plan}", running.laid_out_again));
        }
        if let Some(origins) = &running.phases.origins {
            say(&format!("kernels: {}", origins.line()));
            origins.notes.iter().for_each(|note| say(&format!("kernels: {note}")));
        }
    }
}

fn request(options: &Options, wanted: Wanted) -> Request {
    Request {
        device: options.device.clone(),
        compute_units: options.compute_units,
        plan: options.plan.clone(),
        batch: options.batch,
        wanted,
        timed: options.profile.is_some(),
        track: None,
        sources: options.sources.clone(),
    }
}

/// Text on stdout.
fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        std::io::ErrorKind::BrokenPipe => Error::ClosedOutput,
        _ => Error::io("stdout", e),
    })
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
