//! The standard output, and the errors of writing to it.

use crate::error::{Error, ErrorKind};
use crate::sys::io::{wait_writable, was_open};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// The standard output. It has no buffer, so each write goes to the system at once.
pub(crate) struct Stdout {
    file: File,
}

impl Stdout {
    /// Opens stdout. Returns an error if it was closed when the process began.
    pub(crate) fn new() -> io::Result<Self> {
        was_open(1)?;
        Ok(Stdout {
            file: File::from(io::stdout().as_fd().try_clone_to_owned()?),
        })
    }
}

impl io::Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match io::Write::write(&mut self.file, bytes) {
                // The output cannot take more bytes now. It is non-blocking because another process
                // that shares it made it so.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => wait_writable(self.file.as_fd()),
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error of a failed write to stdout. A closed pipe gets an error that ends the program
/// without a message.
pub(super) fn write_error(e: io::Error) -> Error {
    if e.kind() == io::ErrorKind::BrokenPipe {
        ErrorKind::ClosedOutput.into()
    } else {
        Error::io("stdout", e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Duration;

    /// A write to a full non-blocking output waits until there is room. A write to a closed output
    /// fails at once.
    #[test]
    fn a_full_output_is_waited_for_and_a_closed_one_is_an_error() {
        let (here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut out = Stdout {
            file: File::from(OwnedFd::from(here)),
        };
        let all = vec![7; 1 << 22];
        let (to, ended) = mpsc::channel();
        std::thread::spawn(move || {
            to.send(out.write_all(&all)).unwrap();
            to.send(out.write_all(&all)).unwrap();
        });
        let mut found = vec![0; 1 << 22];
        there.read_exact(&mut found).unwrap();
        assert!(found.iter().all(|&b| b == 7));
        drop(there);
        let end = || {
            ended
                .recv_timeout(Duration::from_secs(30))
                .expect("it ends")
        };
        assert_eq!(end().map_err(|e| e.kind()), Ok(()));
        let closed = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(end().is_err_and(|e| closed.contains(&e.kind())));
    }
}
