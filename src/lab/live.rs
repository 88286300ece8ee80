//! A report that is printed while the benchmark runs. Each table is printed as soon as it is
//! finished. The progress is shown on stderr if that is a terminal. A signal to stop ends the run,
//! and the finished tables are kept.

use super::Page;
use super::render::{Parts, ReportFormat};
use super::table::{Cell, Report, Section};
use super::{against, host, html, render};
use crate::error::Error;
use crate::escape;
use crate::sys::signal;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// The reason that a table shows in the cells that were not measured before a signal stopped the
/// run.
pub(crate) const STOPPED: &str = "the run was stopped before";

/// Returns true after a signal to stop. The compilers in OpenCL drivers may replace the signal
/// handler, so each call installs the handler again.
pub(crate) fn stopped() -> bool {
    signal::keep();
    signal::stop().is_some()
}

/// Shows the current step of a benchmark in the last line of the terminal. Nothing is shown if
/// stderr is no terminal.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    shown: bool,
}

/// The length of the progress line in characters, one less than the usual width of a terminal.
const LINE: usize = 79;

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            shown: std::io::stderr().is_terminal(),
        }
    }

    /// Replaces the progress line with `text`.
    pub(crate) fn show(self, text: &str) {
        if self.shown {
            let text: String = render::clean(text).chars().take(LINE).collect();
            // An error of the write is ignored, because the terminal may be gone.
            let _ = write!(std::io::stderr(), "\r{text:<LINE$}");
        }
    }

    /// Clears the progress line, before other text is printed.
    pub(crate) fn clear(self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r{:<LINE$}\r", "");
        }
    }
}

/// A report that is printed while it grows.
pub(crate) struct LiveReport<'p> {
    page: &'p Page,
    print: &'p mut dyn FnMut(&str) -> Result<(), Error>,
    parts: Parts,
    /// The report that `--against` names, which this report's tables are compared with.
    other: Option<Report>,
    report: Report,
    pub(crate) progress: Progress,
}

impl<'p> LiveReport<'p> {
    /// Returns an empty report for the outputs of `page`. This reads the report of `--against`, so
    /// that a mistake in it shows before a run of some minutes.
    pub(crate) fn new(
        page: &'p Page,
        print: &'p mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<LiveReport<'p>, Error> {
        let read = |file: &Path| {
            let place = escape::path(file);
            let text = std::fs::read_to_string(file).map_err(|e| Error::io(&place, e))?;
            against::read(&text).map_err(|e| Error::input(&place, e))
        };
        Ok(LiveReport {
            page,
            print,
            parts: Parts::new(page.output),
            other: page.against.as_deref().map(read).transpose()?,
            report: Report::default(),
            progress: Progress::new(),
        })
    }

    fn put(&mut self, text: &str) -> Result<(), Error> {
        self.progress.clear();
        if text.is_empty() {
            Ok(())
        } else {
            (self.print)(text)
        }
    }

    /// Adds lines to the report's head and prints them.
    pub(crate) fn head(&mut self, mut lines: Vec<(String, String)>) -> Result<(), Error> {
        if let (true, Some(other)) = (self.report.head.is_empty(), &self.other) {
            lines.push(("compared with".into(), against::device(other).into()));
        }
        let text = self.parts.head(&lines);
        self.report.head.extend(lines);
        self.put(&text)
    }

    /// Adds a table and prints it. With `--against`, ratios to the other report are beside its
    /// columns. After a signal to stop, a table with no text and no measured cell is left out.
    pub(crate) fn section(&mut self, section: Section) -> Result<(), Error> {
        let empty =
            |cell: &Cell| matches!(cell, Cell::Empty | Cell::Skipped(_) | Cell::Document(_));
        if stopped() && section.rows.iter().flat_map(|row| &row.cells).all(empty) {
            return Ok(());
        }
        let section = match &self.other {
            Some(other) => against::beside(&section, other),
            None => section,
        };
        let text = self.parts.section(&section);
        self.report.sections.push(section);
        self.put(&text)
    }

    /// Prints the whole report if the format is JSON, and writes the HTML page of `--report`.
    pub(crate) fn end(mut self, subject: &str) -> Result<(), Error> {
        if self.page.output == ReportFormat::Json {
            let text = render::text(&self.report, ReportFormat::Json);
            self.put(&text)?;
        }
        self.progress.clear();
        let Some(file) = &self.page.file else {
            return Ok(());
        };
        let title = format!("mortonnet bench: {subject}");
        if !self.report.head.iter().any(|(name, _)| name == "date") {
            self.report.head.extend(host::origin());
        }
        std::fs::write(file, html::page(&self.report, &title))
            .map_err(|e| Error::io(escape::path(file), e))
    }
}
