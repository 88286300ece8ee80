//! The program: `main` chooses the action, each action is a function below it.

use mortonnet::baked::{self, NETWORK};
use mortonnet::bench;
use mortonnet::cl;
use mortonnet::cli::{Action, BENCH_HELP, HELP, Options, TUNE_HELP};
use mortonnet::engine::opencl::Wanted;
use mortonnet::engine::select::{self, Request, Running};
use mortonnet::error::Error;
use mortonnet::report::{self, Totals};
use mortonnet::stream::{
    self, Expected, FileSource, InputShape, Output, OutputSpec, ResultWriter, Stdout, Stream, StreamTimes,
};
use mortonnet::{info, selftest, tune};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let start = Instant::now();
    let result = Options::parse(std::env::args_os().skip(1)).and_then(|options| match options.action {
        Action::Classify => classify(&options, start),
        Action::SelfTest => self_test(&options),
        Action::ListDevices => list_devices(),
        Action::Info => print(&info::page(&request(&options, Wanted { scores: true, classes: true }))),
        Action::Bench => options.bench.as_ref().map_or(Ok(()), |b| bench::run(b, &mut |text| print(text))),
        Action::BenchHelp => print(BENCH_HELP),
        Action::Tune => options.tune.as_ref().map_or(Ok(()), |t| tune::run(t, &mut |text| print(text))),
        Action::TuneHelp => print(TUNE_HELP),
        Action::Help => print(HELP),
        Action::Version => print(&format!("{}\n", info::version())),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if !matches!(e, Error::ClosedOutput) {
                say(&e.to_string());
            }
            ExitCode::from(e.exit_code())
        }
    }
}

/// Records in, classes out.
fn classify(options: &Options, start: Instant) -> Result<(), Error> {
    let spec = OutputSpec::of(&NETWORK);
    let output = options.output.unwrap_or(Output::default_for(spec.kind));
    stream::check(output, &spec).map_err(Error::Usage)?;
    let mut expected = options.expect.as_deref().map(|file| Expected::read(file, &spec)).transpose()?;
    let wanted = Wanted {
        scores: stream::needs_scores(output, &spec),
        classes: stream::needs_argmax(output, &spec, expected.is_some()),
    };
    let mut running = start_engine(options, wanted)?;
    let mut times = options.profile.is_some().then(StreamTimes::default);
    let mut writer = ResultWriter::new(Stdout::new().map_err(|e| Error::io("stdout", e))?, output, spec);
    if options.files.is_empty() && std::io::stdin().is_terminal() {
        say(&format!(
            "reading records of {} numbers from the terminal, one a line; --help says more",
            NETWORK.width
        ));
    }
    let startup = start.elapsed();
    let stdin = [PathBuf::from("-")];
    let files = if options.files.is_empty() { &stdin[..] } else { &options.files };
    let result = Stream {
        engine: running.engine.as_mut(),
        format: options.format,
        shape: InputShape::of(&NETWORK),
        writer: &mut writer,
        expected: expected.as_mut(),
        times: times.as_mut(),
    }
    .run(files.iter().map(|file| open(file)));
    if let (Some((format, file)), Some(times)) = (&options.profile, &times) {
        let totals = Totals { startup, elapsed: start.elapsed(), summary: result.as_ref().ok().copied() };
        let text = report::text(*format, &mut running, times, totals);
        write_profile(file.as_deref(), &text)?;
    }
    result?;
    if let Some(expected) = &expected {
        let accuracy = expected.finish()?;
        say(&accuracy.to_string());
        if options.min_accuracy.is_some_and(|least| accuracy.fraction() < least) {
            let least = options.min_accuracy.unwrap_or_default();
            return Err(Error::Check(format!("accuracy {:.4} is below {least}", accuracy.fraction())));
        }
    }
    Ok(())
}

/// An input by its name; `-` is stdin.
fn open(file: &Path) -> Result<(String, FileSource), Error> {
    let (place, source) = match file.to_str() {
        Some("-") => ("stdin".to_string(), FileSource::stdin()),
        _ => (file.display().to_string(), FileSource::open(file)),
    };
    source.map(|s| (place.clone(), s)).map_err(|e| Error::io(place, e))
}

/// Runs the golden vectors.
fn self_test(options: &Options) -> Result<(), Error> {
    let wanted = Wanted { scores: true, classes: true };
    let mut running = start_engine(options, wanted)?;
    let report = selftest::run(running.engine.as_mut(), &NETWORK, &baked::golden())?;
    let line = format!("{}, plan {}: {report}", running.device, running.plan.name);
    if report.passed() {
        print(&format!("passed: {line}\n"))
    } else {
        Err(Error::Check(format!("self-test failed: {line}; do not trust this device with this plan")))
    }
}

fn list_devices() -> Result<(), Error> {
    let library = cl::Library::open()?;
    let devices = cl::devices(library)?;
    print(&format!("{}\n{}\n", library.path(), select::listing(&devices)))
}

fn start_engine(options: &Options, wanted: Wanted) -> Result<Running, Error> {
    options.sources.check()?;
    let running = select::start(&request(options, wanted))?;
    if let Some(warning) = &running.warning {
        say(warning);
    }
    if options.verbose {
        say(&running.device);
        running.why.iter().for_each(|line| say(line));
        if running.laid_out_again > 0 {
            say(&format!(
                "{} constants were laid out again for plan {}",
                running.laid_out_again, running.plan.name
            ));
        }
    }
    Ok(running)
}

fn request(options: &Options, wanted: Wanted) -> Request {
    Request {
        device: options.device.clone(),
        compute_units: options.compute_units,
        plan: options.plan.clone(),
        batch: options.batch,
        wanted,
        timed: options.profile.is_some(),
        sources: options.sources.clone(),
    }
}

/// A message on stderr; where stderr is closed there is nobody to tell.
fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "mortonnet: {message}");
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
        Some(file) => std::fs::write(file, text).map_err(|e| Error::io(file.display().to_string(), e)),
        None => {
            let _ = std::io::stderr().write_all(text.as_bytes());
            Ok(())
        }
    }
}
