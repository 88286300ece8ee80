//! The errors of the program, and their exit codes.
//!
//! Each message is written for the person who has to act. It says what failed, where (file, line,
//! field, device), what was expected and found, and what to do. `main` prints it as `mortonnet:
//! MESSAGE`.

use crate::escape;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

/// An error with a message for the user. Its kind is boxed, so that a `Result` stays small. The
/// error ends the program, unless it concerns a bad record and `--on-error mark` is set.
pub(crate) struct Error {
    kind: Box<ErrorKind>,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug)]
pub(crate) enum ErrorKind {
    /// The command line is wrong. The exit code is 2.
    Usage(String),
    /// An input, or one of its records, cannot be used.
    Input {
        /// The place of the mistake in the input, such as `FILE:LINE:FIELD` or `FILE: record N`.
        place: String,
        message: String,
    },
    /// An OpenCL device, its driver or its library failed.
    Device {
        /// The whole message, which includes the message of `source`.
        what: String,
        /// The error that caused this one. For example a [`ClError`](crate::cl::ClError) with call,
        /// code and object.
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// No plan fits the limits of a device, or a limit that the user requested. The message names
    /// the limits.
    Limit(String),
    /// Reading or writing failed.
    Io {
        /// The name of the file that was read or written, or `stdin` or `stdout`.
        place: String,
        source: io::Error,
    },
    /// A check failed (`--selftest`, `--expect`, the hash of the block). Also the end of a run in
    /// which bad records were answered with an error.
    Check(String),
    /// Two errors that happened one after the other. Both are printed. The first error decides the
    /// exit code.
    Both([Error; 2]),
    /// The program that reads stdout closed it. mortonnet then ends silently with exit code 0.
    ClosedOutput,
    /// SIGINT or SIGTERM came, and every record that was read is answered. The program prints no
    /// error and ends by the same signal.
    Stopped,
}

impl Error {
    /// Makes the error of a wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        ErrorKind::Usage(message.into()).into()
    }

    /// Makes the error of an input that cannot be used. `place` says where the input is wrong.
    pub(crate) fn input(place: impl Into<String>, message: impl Into<String>) -> Self {
        ErrorKind::Input {
            place: place.into(),
            message: message.into(),
        }
        .into()
    }

    /// Makes the error of a failed read or write. `place` names the file, or is `stdin` or
    /// `stdout`.
    pub(crate) fn io(place: impl Into<String>, source: io::Error) -> Self {
        ErrorKind::Io {
            place: place.into(),
            source,
        }
        .into()
    }

    /// Makes the error of a failed OpenCL device that has no other error as its cause.
    pub(crate) fn device(what: impl Into<String>) -> Self {
        ErrorKind::Device {
            what: what.into(),
            source: None,
        }
        .into()
    }

    /// Makes the error of an OpenCL device that failed because of `source`. The message is `what`,
    /// a colon and the message of `source`. If `what` is empty, it is only the message of `source`.
    pub(crate) fn caused(
        what: &str,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let what = if what.is_empty() {
            source.to_string()
        } else {
            format!("{what}: {source}")
        };
        ErrorKind::Device {
            what,
            source: Some(Arc::new(source)),
        }
        .into()
    }

    /// Makes the error that no plan fits a limit. The limit is the device's or was requested by the
    /// user.
    pub(crate) fn limit(what: impl Into<String>) -> Self {
        ErrorKind::Limit(what.into()).into()
    }

    /// Makes the error of a failed check.
    pub(crate) fn check(what: impl Into<String>) -> Self {
        ErrorKind::Check(what.into()).into()
    }

    pub(crate) fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    pub(crate) fn into_kind(self) -> ErrorKind {
        *self.kind
    }

    /// Returns true if the error ends the program without printing a message.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(*self.kind, ErrorKind::ClosedOutput | ErrorKind::Stopped)
    }

    /// Joins the results of two pieces of work, of which `then` ended later. If both are errors,
    /// both are kept. But if the first is a silent end, only the second is kept.
    pub(crate) fn first(first: Result<(), Error>, then: Result<(), Error>) -> Result<(), Error> {
        match (first, then) {
            (Err(first), Err(then)) if !first.is_silent() => {
                Err(ErrorKind::Both([first, then]).into())
            }
            (_, Err(then)) => Err(then),
            (first, Ok(())) => first,
        }
    }

    /// Returns the exit code: 0 if stdout was closed, 2 for a wrong command line, 1 for all other
    /// errors. Of two errors the first one decides. A run that a signal stopped normally ends by
    /// that signal, without an exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.kind() {
            ErrorKind::ClosedOutput => 0,
            ErrorKind::Usage(_) => 2,
            ErrorKind::Both(both) => both[0].exit_code(),
            _ => 1,
        }
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        let kind = Box::new(kind);
        Error { kind }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            ErrorKind::Usage(m)
            | ErrorKind::Device { what: m, .. }
            | ErrorKind::Limit(m)
            | ErrorKind::Check(m) => f.write_str(m),
            ErrorKind::Input { place, message } => write!(f, "{place}: {message}"),
            ErrorKind::Io { place, source } => write!(f, "{place}: {source}"),
            // The caller prints `mortonnet: ` in front of the first error only.
            ErrorKind::Both(both) => write!(f, "{}\nmortonnet: {}", both[0], both[1]),
            ErrorKind::ClosedOutput => f.write_str("stdout was closed"),
            ErrorKind::Stopped => f.write_str("stopped by a signal"),
        }
    }
}

/// Prints a message on stderr. Characters that would control the terminal are escaped. If stderr is
/// closed, the message is lost.
pub(crate) fn say(message: &str) {
    let _ = writeln!(io::stderr(), "mortonnet: {}", escape::lines(message));
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.kind() {
            ErrorKind::Io { source, .. } => Some(source),
            ErrorKind::Device {
                source: Some(source),
                ..
            } => Some(&**source),
            ErrorKind::Both(both) => Some(&both[0]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn what_came_of_an_error_has_it_as_its_source() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let of = |error: &Error| {
            error
                .source()
                .map(|e| e.downcast_ref::<io::Error>().unwrap().kind())
        };
        let kind = Some(io::ErrorKind::PermissionDenied);
        let caused = Error::caused("cannot start a thread", denied());
        assert_eq!(
            (caused.to_string(), of(&caused)),
            ("cannot start a thread: permission denied".into(), kind)
        );
        let same = Error::caused("", denied());
        assert_eq!(
            (same.to_string(), of(&same)),
            ("permission denied".into(), kind)
        );
        assert_eq!(of(&Error::io("stdin", denied())), kind);
        assert_eq!(of(&Error::device("no device")), None);
        let both = Error::first(Err(caused), Err(Error::check("b"))).unwrap_err();
        assert_eq!(of(both.source().unwrap().downcast_ref().unwrap()), kind);
    }

    #[test]
    fn the_first_error_counts_and_the_second_is_said() {
        let usage = || Err(Error::usage("a"));
        let check = || Err(Error::check("b"));
        let both = Error::first(usage(), check()).unwrap_err();
        assert_eq!(
            (both.exit_code(), both.to_string()),
            (2, "a\nmortonnet: b".into())
        );
        assert_eq!(Error::first(check(), usage()).unwrap_err().exit_code(), 1);
        for (first, then) in [(check(), Ok(())), (Ok(()), check())] {
            assert_eq!(Error::first(first, then).unwrap_err().to_string(), "b");
        }
        for silent in [ErrorKind::ClosedOutput, ErrorKind::Stopped] {
            assert_eq!(
                Error::first(Err(silent.into()), check())
                    .unwrap_err()
                    .to_string(),
                "b"
            );
        }
        let stopped = Error::first(Err(ErrorKind::Stopped.into()), Ok(())).unwrap_err();
        assert!(matches!(stopped.kind(), ErrorKind::Stopped));
        assert!(Error::first(Ok(()), Ok(())).is_ok());
    }
}
