//! `--selftest`

use super::given::Given;
use super::{Command, introduce, print, request};
use crate::baked::{self, network};
use crate::engine::select::{self, Request};
use crate::engine::selftest;
use crate::error::{Error, Kind};

/// What `--selftest` asks for.
#[derive(Debug)]
pub(crate) struct SelfTest {
    /// Say what runs.
    pub(crate) verbose: bool,
    /// Where it runs.
    pub(crate) request: Request,
}

pub(super) fn take(given: &mut Given) -> Result<Command, Error> {
    given.flag("selftest");
    let verbose = given.flag("verbose");
    let request = Request {
        sources: given.sources(),
        ..request(given)?
    };
    Ok(Command::SelfTest(SelfTest { verbose, request }))
}

impl SelfTest {
    /// Runs the golden vectors.
    pub(crate) fn run(&self) -> Result<(), Error> {
        self.request.sources.check()?;
        baked::verify()?;
        let mut failed: Vec<String> = Vec::new();
        // Each device by itself: one that fails does not hide the others.
        select::each(&self.request, |running| {
            let tested = running.and_then(|mut running| {
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
                    true => {
                        format!(
                            "{line}{}; do not trust this device with this plan",
                            (running.diagnose)(&[])
                        )
                    }
                    false => format!("{line}; {}", selftest::blamed(Some(&on_host))),
                }))
            });
            match tested {
                Ok(Ok(line)) => return print(&format!("passed: {line}\n")),
                Ok(Err(line)) => {
                    failed.push(format!("self-test failed: {line}"));
                }
                Err(e) if matches!(e.kind(), Kind::Usage(_)) => return Err(e),
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
}
