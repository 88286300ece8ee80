//! The command `--selftest`, which runs the golden vectors and compares their scores.

use super::arguments::Arguments;
use super::{Command, introduce, print, request};
use crate::baked::{self, network};
use crate::engine::select::{self, Request, Running};
use crate::engine::selftest;
use crate::error::{Error, ErrorKind};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct SelfTest {
    pub(crate) verbose: bool,
    /// The time limit of a call into a driver. Zero means no limit, `None` means the default.
    pub(crate) timeout: Option<Duration>,
    pub(crate) request: Request,
}

pub(super) fn take(arguments: &mut Arguments) -> Result<Command, Error> {
    arguments.flag("selftest");
    let verbose = arguments.flag("verbose");
    let timeout = arguments.parse("timeout", super::arguments::seconds)?;
    let request = Request {
        sources: arguments.sources(),
        ..request(arguments)?
    };
    Ok(Command::SelfTest(SelfTest {
        verbose,
        timeout,
        request,
    }))
}

impl SelfTest {
    /// Runs the golden vectors on every requested device. After a device fails, the others are
    /// still tested.
    pub(crate) fn run(&self) -> Result<(), Error> {
        self.request.sources.check()?;
        baked::verify()?;
        let mut failed: Vec<String> = Vec::new();
        select::each(&self.request, |running| {
            match running.and_then(|running| self.test(running)) {
                Ok(Ok(line)) => return print(&format!("passed: {line}\n")),
                Ok(Err(line)) => failed.push(format!("self-test failed: {line}")),
                Err(e) if matches!(e.kind(), ErrorKind::Usage(_)) => return Err(e),
                Err(e) => failed.push(e.to_string()),
            }
            Ok(())
        })?;
        if failed.is_empty() {
            Ok(())
        } else {
            Err(Error::check(failed.join("\n")))
        }
    }

    /// Tests one device. Returns an error if the test could not finish. Otherwise the inner result
    /// has a line about the device: `Ok` if it passed, `Err` if its results are wrong.
    fn test(&self, mut running: Running) -> Result<Result<String, String>, Error> {
        introduce(self.verbose, &running);
        let report = selftest::run(running.engine.as_mut(), network(), &baked::golden())?;
        let line = format!("{}, plan {}: {report}", running.device, running.plan.name);
        if report.passed() {
            let range = baked::range();
            return Ok(Ok(if range.near {
                format!("{line}; {range}")
            } else {
                line
            }));
        }
        if running.device.starts_with("host, ") {
            return Ok(Err(format!("{line}; {}", selftest::blamed(None))));
        }
        let mut host = select::beside(&self.request, running.engine.batch())?;
        let on_host = selftest::run(host.as_mut(), network(), &baked::golden())?;
        Ok(Err(match on_host.passed() {
            true => format!(
                "{line}{}; do not trust this device with this plan",
                (running.diagnose)(&[])
            ),
            false => format!("{line}; {}", selftest::blamed(Some(&on_host))),
        }))
    }
}
