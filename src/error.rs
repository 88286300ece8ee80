//! What can go wrong at run time, and the exit code that goes with it.
//!
//! A message is written for the person who must act: what failed, where (file, line, field,
//! device), what was expected, what was found, what to do. `main` prints it as `mortonnet:
//! MESSAGE`.

use crate::escape;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

/// An error that ends the program. One pointer: hardly any call fails, all of them hand a result
/// on.
pub(crate) struct Error(Box<ErrorKind>);

/// What it says: all that is known stands there.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an error is.
#[derive(Debug)]
pub(crate) enum ErrorKind {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// A record of the input cannot be used. `place` is `FILE:LINE:FIELD` or `FILE: record N`.
    Input {
        /// Where the record stands.
        place: String,
        /// Expected, found, and what to do.
        message: String,
    },
    /// A device, its driver or its library failed.
    Device {
        /// What failed, in full: what `source` says is part of it.
        what: String,
        /// The error that it came from, if it came from one; a [`ClError`](crate::cl::ClError) has
        /// call, code and object.
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// A limit of a device does not allow a plan: every one that does not is named.
    Limit(String),
    /// Reading or writing failed.
    Io {
        /// The file, or `stdin` / `stdout`.
        place: String,
        /// What the system said.
        source: io::Error,
    },
    /// A check that was asked for did not hold (`--selftest`, `--expect`), or records have no
    /// answer.
    Check(String),
    /// Something went wrong, and then something else: both are said, the exit code is the first
    /// one's.
    Both([Error; 2]),
    /// stdout was closed by its reader: the program ends silently with exit code 0.
    ClosedOutput,
    /// SIGINT or SIGTERM, after everything read was answered: the program ends silently by that
    /// signal.
    Stopped,
}

impl Error {
    /// A wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        ErrorKind::Usage(message.into()).into()
    }

    /// An input error at `place`.
    pub(crate) fn input(place: impl Into<String>, message: impl Into<String>) -> Self {
        ErrorKind::Input {
            place: place.into(),
            message: message.into(),
        }
        .into()
    }

    /// An I/O error on `place`.
    pub(crate) fn io(place: impl Into<String>, source: io::Error) -> Self {
        ErrorKind::Io {
            place: place.into(),
            source,
        }
        .into()
    }

    /// A failure of a device that is found out here.
    pub(crate) fn device(what: impl Into<String>) -> Self {
        ErrorKind::Device {
            what: what.into(),
            source: None,
        }
        .into()
    }

    /// A failure of a device because of `source`; `what` failed, or nothing that `source` does not
    /// say.
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

    /// A limit of a device, or one that was asked for, that does not allow a plan.
    pub(crate) fn limit(what: impl Into<String>) -> Self {
        ErrorKind::Limit(what.into()).into()
    }

    /// A check that did not hold.
    pub(crate) fn check(what: impl Into<String>) -> Self {
        ErrorKind::Check(what.into()).into()
    }

    /// What it is.
    pub(crate) fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// The same, to take it apart.
    pub(crate) fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// Whether it is an end of the program that nobody is told of.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(*self.0, ErrorKind::ClosedOutput | ErrorKind::Stopped)
    }

    /// What ended one thing and then another: the first error counts, a silent end only where there
    /// is no other.
    pub(crate) fn first(first: Result<(), Error>, then: Result<(), Error>) -> Result<(), Error> {
        match (first, then) {
            (Err(first), Err(then)) if !first.is_silent() => {
                Err(ErrorKind::Both([first, then]).into())
            }
            (_, Err(then)) => Err(then),
            (first, Ok(())) => first,
        }
    }

    /// The exit code of the contract: 0 silent end, 1 input, device or I/O, 2 usage.
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
        Error(Box::new(kind))
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
            // The second one on a line of its own that begins as the first.
            ErrorKind::Both(both) => write!(f, "{}\nmortonnet: {}", both[0], both[1]),
            ErrorKind::ClosedOutput => f.write_str("stdout was closed"),
            ErrorKind::Stopped => f.write_str("stopped by a signal"),
        }
    }
}

/// A message on stderr, with nothing in it that a terminal obeys; where stderr is closed there is
/// nobody to tell.
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
