//! The program: one call for each command.

use mortonnet::baked;
use mortonnet::cli::{self, Command, info};
use mortonnet::error::{Error, say};
use mortonnet::escape;
use mortonnet::sys::signal;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let start = Instant::now();
    let result =
        baked::check().and_then(|()| Command::parse(std::env::args_os().skip(1))).and_then(|command| {
            match command {
                Command::Classify(classify) => classify.run(start),
                Command::SelfTest(test) => test.run(),
                Command::ListDevices { verbose } => cli::list_devices(verbose),
                Command::Info(request) => {
                    info::page(&request).and_then(|page| cli::print(&escape::lines(&page)))
                }
                Command::Block => baked::text().and_then(|text| cli::print(&escape::lines(&text))),
                #[cfg(feature = "lab")]
                Command::Bench(bench) => bench.run(&mut cli::print),
                #[cfg(feature = "lab")]
                Command::Tune(tune) => tune.run(&mut cli::print),
                Command::Help(page) => cli::print(&page),
                Command::Version => cli::print(&format!("{}\n", info::version())),
            }
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
